"""The mathematics of computations that are here for comparison."""
