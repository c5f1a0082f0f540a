"""Computations of the papers, for comparison; loaded by name like all others."""
