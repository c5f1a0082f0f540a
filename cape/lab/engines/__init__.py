"""Consortia in real engines and containers on this computer."""
