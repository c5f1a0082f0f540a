"""Computations for comparison: found by name like all others."""
