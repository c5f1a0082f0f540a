"""Pure mathematics: arrays in, frozen dataclasses out; knows no site, phase or privacy."""
