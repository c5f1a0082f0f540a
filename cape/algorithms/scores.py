"""Which maps belong together, and how good an estimate is when the truth is known.

Definitions follow the papers: ISI is what capeDJICA (Imtiaz et al., Sec. V) calls q_NGI, by our
reading, because its source could not be obtained.
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


def best_pairs(score: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return rows and columns of the one-to-one matching of greatest score; NaN counts as 0.

    Shortest augmenting paths (Jonker and Volgenant, Computing 1987), since a round imports no
    scipy; a test compares the two.
    """
    if score.shape[0] > score.shape[1]:
        columns, rows = best_pairs(score.T)
        order = np.argsort(rows)
        return rows[order], columns[order]
    cost = -np.nan_to_num(score)
    n, m = cost.shape
    u, v = np.zeros(n), np.zeros(m)  # what each row and column pays at least
    row_of, column_of = np.full(m, -1), np.full(n, -1)
    for row in range(n):
        path, length, reached = _shortest_path(cost, u, v, row_of, row)
        end = reached[-1]
        for column in reached[:-1]:
            u[row_of[column]] += length[end] - length[column]
        u[row] += length[end]
        v[reached] -= length[end] - length[reached]
        # Turn the path round: each of its columns goes to the row before it.
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
    """Return the row before each column, the lengths to columns, and columns up to a free one."""
    m = len(v)
    path, length, reached = np.full(m, -1), np.full(m, np.inf), list[int]()
    left, so_far = np.ones(m, dtype=bool), 0.0
    while True:
        through = so_far + cost[row] - u[row] - v
        shorter = left & (through < length)
        path[shorter], length[shorter] = row, through[shorter]
        column = int(np.argmin(np.where(left, length, np.inf)))
        left[column], so_far = False, float(length[column])
        reached.append(column)
        if row_of[column] < 0:
            return path, length, reached
        row = int(row_of[column])


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
    rows, columns = best_pairs(np.abs(r))
    return Matching(truth=rows, estimate=columns, correlation=r[rows, columns])
