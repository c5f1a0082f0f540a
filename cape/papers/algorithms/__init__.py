"""Algorithms of the papers, for comparison."""
