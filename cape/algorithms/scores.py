"""How good an estimate is when the truth is known; never used inside a run.

Definitions follow the papers: ISI is what capeDJICA (Imtiaz et al., Sec. V) calls q_NGI, by our
reading, because its source could not be obtained.  scipy is imported only here, and lazily.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.unmixing import unit_rows
from cape.frozen import dataclass


def isi(gain: Array) -> float:
    """Return q_NGI of W_total A (L, L): 0 is perfect, .35 random at order 20, 1 the worst.

    Invariant to permutation, signs and one common factor; the rows of W must be scaled to unit
    source variance (`unit_rows` in whitened coordinates) and nothing else.
    """
    p = np.abs(gain)
    n = len(p)
    rows = np.sum(p.sum(axis=1) / p.max(axis=1) - 1.0)
    columns = np.sum(p.sum(axis=0) / p.max(axis=0) - 1.0)
    return float((rows + columns) / (2 * n * (n - 1)))


def mdi(gain: Array) -> float:
    """Return the minimum distance index of a gain matrix P = W_total A (Ilmonen et al.).

    min over scaled permutations C of ||C P - I||_F / sqrt(p - 1), in 0..1; .900 at random.
    """
    share = gain**2 / np.sum(gain**2, axis=1, keepdims=True)
    rows, columns = _assign(share)
    p = len(gain)
    return float(np.sqrt(max(0.0, p - share[rows, columns].sum()) / (p - 1)))


def _assign(score: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(score, maximize=True)
    return np.asarray(rows), np.asarray(columns)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Matching:
    """One-to-one matching of estimated to true maps."""

    # (n_matched,) each: columns that belong together
    truth: npt.NDArray[np.intp]
    estimate: npt.NDArray[np.intp]
    correlation: Array  # (n_matched,): Pearson correlation of each pair, with sign

    @property
    def mean(self) -> float:
        """Mean |correlation| over the matched pairs."""
        return float(np.mean(np.abs(self.correlation)))


def match_maps(estimate: Array, truth: Array) -> Matching:
    """Match maps (D, K) to true maps (D, R) by |Pearson correlation| (Hungarian method).

    min(K, R) pairs are formed; constant columns correlate 0.
    """
    true_rows = unit_rows((truth - truth.mean(axis=0)).T)
    r = true_rows @ unit_rows((estimate - estimate.mean(axis=0)).T).T
    rows, columns = _assign(np.abs(r))
    return Matching(truth=rows, estimate=columns, correlation=r[rows, columns])


def captured_energy(V: Array, moment: Array) -> float:
    """Return tr(V' C V), what orthonormal V (D, K) captures of a second moment C (D, D)."""
    return float(np.sum(V * (moment @ V)))


def map_energy(V: Array, maps: Array) -> float:
    """Return the mean part of the energy of maps (D, R) inside span(V), V (D, K) orthonormal."""
    return float(np.mean(np.sum((V.T @ maps) ** 2, axis=0) / np.sum(maps**2, axis=0)))


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
