"""Closed forms that only tests compare with, most of the papers' correlated noise."""

from fractions import Fraction

import numpy as np

from cape.papers.correlated import honest_sites


def printed_view_factor(*, n_sites: int, colluders: int) -> Fraction:
    """Return f for what the proof of Theorem 1 says is seen, with the algebra done right."""
    # The honest outputs and the sum of the honest seeds, but not T itself; r = S.  Still less than
    # what is really seen.
    s, c, honest = n_sites, colluders, honest_sites(n_sites, colluders)
    first = Fraction(s * (c + 2), (1 + s) * (c + 1))
    return first + Fraction(s * c**2, (1 + c) * honest * (s + c * honest))


def map_energy(V: np.ndarray, maps: np.ndarray) -> float:
    """Return the mean part of the energy of maps (D, R) inside span(V), V (D, K) orthonormal."""
    return float(np.mean(np.sum((V.T @ maps) ** 2, axis=0) / np.sum(maps**2, axis=0)))
