"""The papers' noise on second moments, and what it promises by the exact count.

Printed: a symmetric matrix with independent normal entries on and above the diagonal, of std
``tau = sqrt(2 log(1.25 / delta)) / (N epsilon)`` for N records of norm 1 at most.
"""

from __future__ import annotations

import math

import numpy as np

from cape.algorithms.estimators import Array
from cape.privacy.accounting import gdp_epsilon


def printed_std(n_records: int, epsilon: float, delta: float) -> float:
    """Return tau, the std of every entry."""
    return math.sqrt(2.0 * math.log(1.25 / delta)) / (n_records * epsilon)


def exact_epsilon(epsilon: float, delta: float) -> float:
    """Return what the printed noise gives one person, who is one record, at the same delta.

    Replace one: two second moments are sqrt 2 apart at most, not 1 as printed, so
    ``mu = sqrt 2 / (N tau)``; Gaussian noise of that mu is then counted exactly.
    """
    mu = math.sqrt(2.0) * epsilon / math.sqrt(2.0 * math.log(1.25 / delta))
    return gdp_epsilon(mu=mu, delta=delta)


def symmetric_noise(rng: np.random.Generator, n: int) -> Array:
    """Return a symmetric matrix of standard normal entries, equal across the diagonal."""
    upper = np.triu(rng.standard_normal((n, n)))
    return np.asarray(upper + np.triu(upper, 1).T)


PRIVACY = (
    "unit: one record, which is one person here; relation: replace one. The lower axis is the "
    "papers' own epsilon (classic formula, sensitivity 1/N); the upper axis what the same noise "
    "gives by the exact count with sensitivity sqrt(2)/N, at the same delta. label: none, because "
    "the papers scale the data by their own largest norm, which is not private; the product's "
    "computations clip at a public norm instead."
)
