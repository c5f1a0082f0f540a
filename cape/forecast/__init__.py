"""Forecast, from public numbers only, whether a planned run will give useful maps."""
