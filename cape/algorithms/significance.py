"""p-values, intervals and families of tests of estimates with known standard errors.

Without scipy, which a round does not import: the normal distribution is `math.erfc`.
"""

from __future__ import annotations

import math

import numpy as np

from cape.algorithms.estimators import Array

# Standard errors to either side of an interval of 95 %
Z95 = 1.959963984540054
# And on from there to the size of an effect that is found with power .8
Z80 = 0.8416212335729143


def two_sided(estimate: Array, se: Array) -> Array:
    """Two-sided p-values (K,) of estimates that are normal around 0 with those errors."""
    z = np.abs(estimate) / np.maximum(se, 1e-300)
    return np.array([math.erfc(value / math.sqrt(2.0)) for value in z])


def power(effect: float, se: float) -> float:
    """Probability that an effect leaves zero at .05, two-sided."""
    shift = effect / se
    above, below = (math.erfc((Z95 + sign * shift) / math.sqrt(2.0)) / 2 for sign in (-1, 1))
    return above + below


def holm(p: Array) -> Array:
    """p-values (K,) after Holm (1979): below .05 with at most 5 % chance of any false one."""
    order, K = np.argsort(p, kind="stable"), len(p)
    adjusted = np.maximum.accumulate(p[order] * np.arange(K, 0, -1))
    return _in_place(np.minimum(adjusted, 1.0), order)


def benjamini_hochberg(p: Array) -> Array:
    """q-values (K,) after Benjamini and Hochberg (1995): expected share of false ones."""
    order, K = np.argsort(p, kind="stable"), len(p)
    steps = p[order] * K / np.arange(1, K + 1)
    adjusted = np.minimum.accumulate(steps[::-1])[::-1]
    return _in_place(np.minimum(adjusted, 1.0), order)


def _in_place(sorted_values: Array, order: np.ndarray) -> Array:
    values = np.empty(len(order))
    values[order] = sorted_values
    return values
