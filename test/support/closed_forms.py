"""Closed forms that only tests compare with, most of the papers' correlated noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from cape.frozen import dataclass
from cape.papers.correlated import SeedRatio, at_least, honest_sites, positive, view_factor


def one_site_factor(n_sites: int) -> Fraction:
    """Return S/(S - 1): a curious site sees the sum and knows its own noise, for any r."""
    return Fraction(at_least("n_sites", n_sites, 2), n_sites - 1)


def printed_view_factor(*, n_sites: int, colluders: int) -> Fraction:
    """Return f for what the proof of Theorem 1 says is seen, with the algebra done right.

    The honest outputs and the sum of the honest seeds, but not T itself; r = S.  Still less than
    what is really seen.
    """
    s, c, honest = n_sites, colluders, honest_sites(n_sites, colluders)
    first = Fraction(s * (c + 2), (1 + s) * (c + 1))
    return first + Fraction(s * c**2, (1 + c) * honest * (s + c * honest))


def seen_mu(
    *, sensitivity: float, local_std: float, n_sites: int, colluders: int, ratio: SeedRatio
) -> float:
    """Return mu of one release against the aggregator with S_C sites.

    Parameters
    ----------
    sensitivity : float
        Delta of the sum, more than 0.
    local_std : float
        tau_g, more than 0, in the units of `sensitivity`.
    n_sites, colluders, ratio
        As in `view_factor`.
    """
    scale = positive("sensitivity", sensitivity) / positive("local_std", local_std)
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return scale * math.sqrt(f / n_sites)


def local_noise_std(
    *, mu: float, sensitivity: float, n_sites: int, colluders: int, ratio: SeedRatio
) -> float:
    """Return tau_g for which one release has this mu: the inverse of `seen_mu`.

    tau_g^2 = Delta^2 / (S_H mu^2) (r + S_H) / (r + 1).
    """
    scale = positive("sensitivity", sensitivity) / positive("mu", mu)
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return scale * math.sqrt(f / n_sites)


def share_variance(
    *, mu: float, delta_int: int, n_sites: int, colluders: int, ratio: SeedRatio
) -> int:
    """Return the least integer variance s2 of a site's local noise that keeps mu, exactly.

    Parameters
    ----------
    mu : float
        Allowed mu, taken as the rational number it is.
    delta_int : int
        Sensitivity of the integer sum.
    n_sites, colluders, ratio
        As in `view_factor`.
    """
    allowed = Fraction(positive("mu", mu)) ** 2
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return math.ceil(at_least("delta_int", delta_int, 1) ** 2 * f / (n_sites * allowed))


def noise_ratio(sizes: Sequence[int], sensitivity: Callable[[int], float]) -> float:
    """Return H(n) of Proposition 2, sum Delta(N_s)^2 / (S^3 Delta(N)^2), for any sensitivity.

    Parameters
    ----------
    sizes : sequence of int
        N_s.
    sensitivity : callable
        Delta(n), more than 0, for n samples.
    """
    for size in sizes:
        at_least("sizes", size, 1)
    n_sites = at_least("number of sites", len(sizes), 1)
    pooled = positive("sensitivity", sensitivity(sum(sizes)))
    return math.fsum((sensitivity(size) / pooled) ** 2 for size in sizes) / n_sites**3


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimateVariances:
    """Noise variance of the average of S site outputs.

    Attributes
    ----------
    conventional : float
        Every site adds all of its noise: sum tau_s^2 / S^2.
    cape : float
        Local noise of variance tau_s^2 / S and zero-sum noise: sum tau_s^2 / S^3.
    gain : float
        conventional / cape = S (Imtiaz et al., Proposition 1).
    """

    conventional: float
    cape: float
    gain: float


def estimate_variances(site_stds: Sequence[float]) -> EstimateVariances:
    """Return the noise of the average from the noise std tau_s that each site asks for."""
    n_sites = at_least("number of sites", len(site_stds), 1)
    total = math.fsum(positive("site_stds", std) ** 2 for std in site_stds)
    conventional, cape = total / n_sites**2, total / n_sites**3
    return EstimateVariances(conventional=conventional, cape=cape, gain=conventional / cape)


def map_energy(V: np.ndarray, maps: np.ndarray) -> float:
    """Return the mean part of the energy of maps (D, R) inside span(V), V (D, K) orthonormal."""
    return float(np.mean(np.sum((V.T @ maps) ** 2, axis=0) / np.sum(maps**2, axis=0)))
