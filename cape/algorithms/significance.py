"""p-values, intervals and multiple testing for estimates with known standard errors.

The normal distribution comes from `math.erfc` and others from the incomplete beta function, because
a round does not import scipy.
"""

import math

import numpy as np

from cape.algorithms.estimators import Array

# Half width of a 95 % interval, in standard errors
Z95 = 1.959963984540054
# An effect of Z95 + Z80 standard errors is found with power .8.
Z80 = 0.8416212335729143


def t_p(t: float, df: float) -> float:
    """Two-sided p-value of Student's t; of a normal for df that is infinite, NaN for NaN."""
    if math.isinf(df) or math.isnan(t):
        return math.erfc(abs(t) / math.sqrt(2.0))
    return _beta(df / 2.0, 0.5, df / (df + t * t))


def t95(df: float) -> float:
    """Half width of a 95 % interval of Student's t, in standard errors."""
    low, high = Z95, Z95 + 11.0 / df
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if t_p(middle, df) > 0.05 else (low, middle)
    return low


def f_p(F: float, q: int, df: float) -> float:
    """p-value of an F statistic with q and df degrees of freedom; NaN for NaN."""
    if math.isinf(df) or math.isnan(F):
        return chi2_p(q * F, q)
    return _beta(df / 2.0, q / 2.0, df / (df + q * F))


def _beta(a: float, b: float, x: float) -> float:
    """Regularized incomplete beta function (Lentz's continued fraction, Numerical Recipes 6.4)."""
    if not 0.0 < x < 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta(b, a, 1.0 - x)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    fraction = d
    for m in range(1, 400):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            c, d = 1.0 + term / c, 1.0 / (1.0 + term * d)
            fraction *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return front * fraction


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
