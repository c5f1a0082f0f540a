"""p-values, intervals and multiple testing for estimates with known standard errors.

The normal distribution comes from `math.erfc`, because a round does not import scipy.
"""

from __future__ import annotations

import math

import numpy as np

from cape.algorithms.estimators import Array

# Half width of a 95 % interval, in standard errors
Z95 = 1.959963984540054
# An effect of Z95 + Z80 standard errors is found with power .8.
Z80 = 0.8416212335729143


def two_sided_p(estimate: Array, se: Array) -> Array:
    """Two-sided p-values (K,) of normal estimates with these standard errors."""
    z = np.abs(estimate) / np.maximum(se, 1e-300)
    return np.array([math.erfc(value / math.sqrt(2.0)) for value in z])


def chi2_p(chi2: float, df: int) -> float:
    """p-value of a chi-squared statistic with df degrees of freedom; NaN for NaN."""
    half = chi2 / 2.0
    p, n = (math.erfc(math.sqrt(half)), 1) if df % 2 else (math.exp(-half), 2)
    while n < df:  # Q(n + 2) = Q(n) + (x/2)^(n/2) e^(-x/2) / Gamma(n/2 + 1)
        p += math.exp(n / 2 * math.log(max(half, 1e-300)) - half - math.lgamma(n / 2 + 1))
        n += 2
    return p


def power(effect: float, se: float) -> float:
    """Power of a two-sided test at .05 for this effect."""
    shift = effect / se
    above, below = (math.erfc((Z95 + sign * shift) / math.sqrt(2.0)) / 2 for sign in (-1, 1))
    return above + below


def holm(p: Array) -> Array:
    """p-values (K,) adjusted by Holm (1979), which controls the family-wise error rate."""
    order, K = np.argsort(p, kind="stable"), len(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(K, 0, -1))
    return _in_place(np.minimum(adjusted, 1.0), order)


def benjamini_hochberg(p: Array) -> Array:
    """q-values (K,) of Benjamini and Hochberg (1995), which control the false discovery rate."""
    order, K = np.argsort(p, kind="stable"), len(p)
    steps = p[order] * K / np.arange(1, K + 1)
    adjusted = np.minimum.accumulate(steps[::-1])[::-1]
    return _in_place(np.minimum(adjusted, 1.0), order)


def _in_place(sorted_values: Array, order: np.ndarray) -> Array:
    values = np.empty(len(order))
    values[order] = sorted_values
    return values
