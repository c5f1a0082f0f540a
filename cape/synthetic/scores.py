"""How good an estimate is when the truth is known; never used inside a run.

Definitions follow the papers: ISI is what capeDJICA (Imtiaz et al., Sec. V) calls q_NGI, by our
reading, because its source could not be obtained.  scipy is imported only here, and lazily.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.unmixing import unit_rows
from cape.frozen import dataclass


def isi(gain: Array) -> float:
    """Return the inter-symbol interference of a gain matrix, q_NGI of the papers.

    Parameters
    ----------
    gain : ndarray, shape (L, L)
        W_total A.  Invariant to permutation, signs and one common factor; the rows of W must be
        scaled to unit source variance (`unit_rows` in whitened coordinates) and nothing else.

    Returns
    -------
    float
        0 for a perfect separation, about .35 for a random rotation of order 20, 1 at worst.
    """
    p = np.abs(gain)
    n = len(p)
    rows = np.sum(p.sum(axis=1) / p.max(axis=1) - 1.0)
    columns = np.sum(p.sum(axis=0) / p.max(axis=0) - 1.0)
    return float((rows + columns) / (2 * n * (n - 1)))


def mdi(gain: Array) -> float:
    """Return the minimum distance index of a gain matrix (Ilmonen et al.).

    Parameters
    ----------
    gain : ndarray, shape (p, p)
        W_total A.

    Returns
    -------
    float
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

    # truth, estimate: (n_matched,): column indices that belong together
    truth: npt.NDArray[np.intp]
    estimate: npt.NDArray[np.intp]
    correlation: Array  # (n_matched,): pearson correlation of each pair, with sign

    @property
    def mean(self) -> float:
        """Mean |correlation| over the matched pairs."""
        return float(np.mean(np.abs(self.correlation)))


def match_maps(estimate: Array, truth: Array) -> Matching:
    """Match estimated to true maps by |Pearson correlation| (Hungarian method).

    Parameters
    ----------
    estimate : ndarray, shape (D, K)
    truth : ndarray, shape (D, R)
        K and R may differ; min(K, R) pairs are formed.  Constant columns correlate 0.

    Returns
    -------
    Matching
    """
    true_rows = unit_rows((truth - truth.mean(axis=0)).T)
    r = true_rows @ unit_rows((estimate - estimate.mean(axis=0)).T).T
    rows, columns = _assign(np.abs(r))
    return Matching(truth=rows, estimate=columns, correlation=r[rows, columns])


def captured_energy(V: Array, moment: Array) -> float:
    """Return tr(V' C V), the part of a second moment C that a subspace captures.

    Parameters
    ----------
    V : ndarray, shape (D, K)
        Orthonormal columns.
    moment : ndarray, shape (D, D)

    Returns
    -------
    float
    """
    return float(np.sum(V * (moment @ V)))


def map_energy(V: Array, maps: Array) -> float:
    """Return the mean share of the maps' energy inside span(V), in 0..1.

    Parameters
    ----------
    V : ndarray, shape (D, K)
        Orthonormal columns.
    maps : ndarray, shape (D, R)

    Returns
    -------
    float
    """
    return float(np.mean(np.sum((V.T @ maps) ** 2, axis=0) / np.sum(maps**2, axis=0)))


def principal_cosines(U: Array, V: Array) -> Array:
    """Return the cosines of the principal angles of two subspaces, descending.

    Parameters
    ----------
    U, V : ndarray, shape (D, K)
        Orthonormal columns.

    Returns
    -------
    ndarray, shape (K,)
    """
    cosines = np.linalg.svd(U.T @ V, compute_uv=False)
    return np.asarray(np.minimum(cosines, 1.0))


def calinski_harabasz(records: Array, labels: npt.NDArray[np.integer]) -> float:
    """Return the variance ratio of a clustering (Calinski and Harabasz), CH of capeCCA.

    Parameters
    ----------
    records : ndarray, shape (N, K)
    labels : ndarray of int, shape (N,)
        At least two clusters, fewer than records.

    Returns
    -------
    float
        Between over within variance, each by its degrees of freedom; proportional to N, so only
        values over the same records compare.
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

    Our reading of capeCCA, Sec. IV (the scripts for that data set are not public): correlations
    of the variates of the non-private data under the private directions, against the truth.

    Parameters
    ----------
    x, y : ndarray, shape (N, D_x), (N, D_y)
        Records of both views.
    U, V : ndarray, shape (D_x, K), (D_y, K)
    correlations : ndarray, shape (K,)
        r*.

    Returns
    -------
    float
        ``||r* - r|| / K``; a constant variate correlates 0.
    """
    a, b = ((view - view.mean(axis=0)) @ W for view, W in ((x, U), (y, V)))
    norms = np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0)
    r = np.abs(np.sum(a * b, axis=0)) / np.where(norms > 0.0, norms, np.inf)
    return float(np.linalg.norm(correlations - r) / len(correlations))


def compare_with_truth(truth: Path, unmixing: Path) -> tuple[float | None, float | None]:
    """Return ISI of the gain matrix and mean matched |r| of the maps; None without truth or maps.

    Parameters
    ----------
    truth, unmixing : Path
        ``A`` (D, R) planted; ``W_total`` (k, D) and ``A`` (D, k) estimated.
    """
    if not (truth.is_file() and unmixing.is_file()):
        return None, None
    with np.load(truth, allow_pickle=False) as stored:
        planted = stored["A"].astype(np.float64)
    with np.load(unmixing, allow_pickle=False) as stored:
        W_total, A = stored["W_total"], stored["A"]
    if len(planted) != len(A):
        return None, None
    correlation = float(match_maps(A, planted).mean)
    gain = W_total @ planted
    return (float(isi(gain)) if gain.shape[0] == gain.shape[1] else None), correlation
