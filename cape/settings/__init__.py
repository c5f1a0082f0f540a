"""Settings of a run: declared once, checked once, resolved once."""
