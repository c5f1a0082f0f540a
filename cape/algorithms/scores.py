"""Which maps belong together, and how good an estimate is when the truth is known.

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


def best_pairs(score: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return rows and columns of the one-to-one matching of greatest score (Hungarian method)."""
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
    rows, columns = best_pairs(np.abs(r))
    return Matching(truth=rows, estimate=columns, correlation=r[rows, columns])
