"""Synthetic records of two views whose canonical correlations are known."""

from __future__ import annotations

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TwoViews:
    """Records of two views with known canonical correlations.

    Attributes
    ----------
    records : ndarray, shape (N, D_x + D_y)
        One row per person, columns of unit variance.
    covariance : ndarray, shape (D, D)
        True, of the columns.
    loadings : ndarray, shape (D, K)
        Correlation of every column with the true variate of its own view.
    correlations : ndarray, shape (K,)
        True canonical correlations.
    """

    records: Array
    covariance: Array
    loadings: Array
    correlations: Array


def two_views(
    seed: int, *, n_records: int, n_x: int, n_y: int, correlations: tuple[float, ...]
) -> TwoViews:
    """Draw Gaussian records whose two views share len(correlations) pairs of factors.

    Mixing matrices are random with singular values between 1 and 2, then columns are scaled to
    unit variance, which leaves canonical correlations alone.
    """
    rng = np.random.default_rng(3000 + seed)
    K = len(correlations)
    cross = np.zeros((n_x, n_y))
    cross[np.arange(K), np.arange(K)] = correlations
    mixing = [_conditioned(rng, n) for n in (n_x, n_y)]
    A, B = (M / np.linalg.norm(M, axis=1, keepdims=True) for M in mixing)
    covariance = np.block([[A @ A.T, A @ cross @ B.T], [B @ cross.T @ A.T, B @ B.T]])
    root = np.linalg.cholesky(covariance)
    return TwoViews(
        records=rng.standard_normal((n_records, n_x + n_y)) @ root.T,
        covariance=covariance,
        loadings=np.vstack([A[:, :K], B[:, :K]]),
        correlations=np.array(correlations),
    )


def _conditioned(rng: np.random.Generator, n: int) -> Array:
    """Return a random n x n matrix with singular values evenly between 1 and 2."""
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for _ in range(2))
    return np.asarray((left * np.linspace(1.0, 2.0, n)) @ right)
