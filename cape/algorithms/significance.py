"""p-values, intervals and multiple testing for estimates with known standard errors.

Distributions are those of scipy, imported where they are used: a round does not import it.
"""

import math

import numpy as np

from cape.algorithms.estimators import Array

# Half width of a 95 % interval, in standard errors
Z95 = 1.959963984540054
# An effect of Z95 + Z80 standard errors is found with power .8.
Z80 = 0.8416212335729143


def t_p(t: Array, df: Array) -> Array:
    """Two-sided p-values of Student's t; of a normal for df that is infinite, NaN for NaN."""
    from scipy.special import ndtr, stdtr

    beyond = -np.abs(t)
    return np.asarray(2.0 * np.where(np.isinf(df), ndtr(beyond), stdtr(df, beyond)))


def t95(df: Array) -> Array:
    """Half widths of 95 % intervals of Student's t, in standard errors."""
    from scipy.special import stdtrit

    return np.asarray(np.where(np.isinf(df), Z95, stdtrit(df, 0.975)))


def f_p(F: Array, q: int, df: Array) -> Array:
    """p-values of F statistics with q and df degrees of freedom; NaN for NaN."""
    from scipy.special import chdtrc, fdtrc

    return np.asarray(np.where(np.isinf(df), chdtrc(q, q * F), fdtrc(q, df, F)))


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
