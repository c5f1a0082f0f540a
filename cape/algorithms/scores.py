"""Matching of maps, and the error of an estimate when the truth is known.

ISI is our reading of q_NGI of capeDJICA (Imtiaz et al., Sec. V), whose code could not be obtained.
"""

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.unmixing import unit_rows
from cape.frozen import dataclass


def isi(gain: Array) -> float:
    """Return q_NGI of W_total A (L, L): 0 is perfect, .35 random for L = 20, 1 the worst."""
    # It is invariant to permutation, signs and one common factor.  The rows of W must be scaled to
    # unit source variance (`unit_rows` in whitened coordinates).
    p = np.abs(gain)
    n = len(p)
    rows = np.sum(p.sum(axis=1) / p.max(axis=1) - 1.0)
    columns = np.sum(p.sum(axis=0) / p.max(axis=0) - 1.0)
    return float((rows + columns) / (2 * n * (n - 1)))


def best_pairs(score: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return rows and columns of the one-to-one matching with the largest sum; NaN counts as 0."""
    # By shortest augmenting paths (Jonker and Volgenant, Computing 1987), because a round imports
    # no scipy.  A test compares the two.
    if score.shape[0] > score.shape[1]:
        columns, rows = best_pairs(score.T)
        order = np.argsort(rows)
        return rows[order], columns[order]
    cost = -np.nan_to_num(score)
    n, m = cost.shape
    u, v = np.zeros(n), np.zeros(m)  # dual variables of rows and columns
    row_of, column_of = np.full(m, -1), np.full(n, -1)
    for row in range(n):
        path, length, reached = _shortest_path(cost, u, v, row_of, row)
        end = reached[-1]
        for column in reached[:-1]:
            u[row_of[column]] += length[end] - length[column]
        u[row] += length[end]
        v[reached] -= length[end] - length[reached]
        # Reverse the path: each of its columns is matched to the row before it.
        column = end
        while True:
            before = path[column]
            row_of[column] = before
            column_of[before], column = column, column_of[before]
            if before == row:
                break
    return np.arange(n), column_of


def _shortest_path(
    cost: Array, u: Array, v: Array, row_of: npt.NDArray[np.intp], row: int
) -> tuple[npt.NDArray[np.intp], Array, list[int]]:
    """Return each column's predecessor row and path length, and the columns up to a free one."""
    m = len(v)
    path, length, reached = np.full(m, -1), np.full(m, np.inf), list[int]()
    is_open, distance = np.ones(m, dtype=bool), 0.0
    while True:
        through = distance + cost[row] - u[row] - v
        shorter = is_open & (through < length)
        path[shorter], length[shorter] = row, through[shorter]
        column = int(np.argmin(np.where(is_open, length, np.inf)))
        is_open[column], distance = False, float(length[column])
        reached.append(column)
        if row_of[column] < 0:
            return path, length, reached
        row = int(row_of[column])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Matching:
    """One-to-one matching of estimated to true maps."""

    # (n_matched,) each: columns of the pairs
    truth: npt.NDArray[np.intp]
    estimate: npt.NDArray[np.intp]
    correlation: Array  # (n_matched,): signed Pearson correlation of each pair

    @property
    def mean(self) -> float:
        """Mean |correlation| over the matched pairs."""
        return float(np.mean(np.abs(self.correlation)))


def match_maps(estimate: Array, truth: Array) -> Matching:
    """Match maps (D, K) to true maps (D, R) by |Pearson correlation|, in min(K, R) pairs."""
    # The correlation of a constant column is 0.
    true_rows = unit_rows((truth - truth.mean(axis=0)).T)
    r = true_rows @ unit_rows((estimate - estimate.mean(axis=0)).T).T
    rows, columns = best_pairs(np.abs(r))
    return Matching(truth=rows, estimate=columns, correlation=r[rows, columns])
