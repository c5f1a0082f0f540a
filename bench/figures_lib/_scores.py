"""The papers' figures of merit beside q_NGI: subspaces, clusters, canonical correlations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.scores import best_pairs


def mdi(gain: Array) -> float:
    """Return the minimum distance index of a gain matrix P = W_total A (Ilmonen et al.).

    min over scaled permutations C of ||C P - I||_F / sqrt(p - 1), in 0..1; .900 at random.
    """
    share = gain**2 / np.sum(gain**2, axis=1, keepdims=True)
    rows, columns = best_pairs(share)
    p = len(gain)
    return float(np.sqrt(max(0.0, p - share[rows, columns].sum()) / (p - 1)))


def captured_energy(V: Array, moment: Array) -> float:
    """Return tr(V' C V), what orthonormal V (D, K) captures of a second moment C (D, D)."""
    return float(np.sum(V * (moment @ V)))


def principal_cosines(U: Array, V: Array) -> Array:
    """Return the cosines (K,) of the principal angles, descending; U, V (D, K) orthonormal."""
    cosines = np.linalg.svd(U.T @ V, compute_uv=False)
    # Rounding takes the cosine of equal directions past 1.
    return np.asarray(np.minimum(cosines, 1.0))


def calinski_harabasz(records: Array, labels: npt.NDArray[np.integer]) -> float:
    """Return the variance ratio of records (N, K) in 2 to N - 1 clusters, CH of capeCCA.

    Between over within variance, each by its degrees of freedom; proportional to N, so only values
    over the same records compare.
    """
    clusters, assigned = np.unique(labels, return_inverse=True)
    counts = np.bincount(assigned).astype(np.float64)
    sums = np.zeros((len(clusters), records.shape[1]))
    np.add.at(sums, assigned, records)
    centres = sums / counts[:, None]
    between = float(np.sum(counts * np.sum((centres - records.mean(axis=0)) ** 2, axis=1)))
    within = float(np.sum((records - centres[assigned]) ** 2))
    n, k = len(records), len(clusters)
    if within == 0.0:
        return float("inf")
    return between / (k - 1) * (n - k) / within


def err_corr(x: Array, y: Array, U: Array, V: Array, correlations: Array) -> float:
    """Return how far the correlations under estimated directions are from the true ones.

    ``||r* - r|| / K``, r* the true `correlations` (K,), r those of the variates of the non-private
    records x (N, D_x), y (N, D_y) under the private directions U (D_x, K), V (D_y, K).  Our reading
    of capeCCA, Sec. IV (the scripts for that data set are not public).
    """
    # A constant variate correlates 0: its norm counts as infinite.
    a, b = ((view - view.mean(axis=0)) @ W for view, W in ((x, U), (y, V)))
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    r = np.abs(np.sum(a * b, axis=0)) / np.where(norms > 0.0, norms, np.inf)
    return float(np.linalg.norm(correlations - r) / len(correlations))
