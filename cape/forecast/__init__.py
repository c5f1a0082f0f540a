"""Whether the maps of a planned run will be worth anything, from public numbers only."""
