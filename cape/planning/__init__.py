"""Before a run: the owner's settings, the budget, the check of a site's data."""
