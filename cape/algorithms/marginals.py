"""Mean and histogram of every column (feature) over subjects: the two simplest estimators.

Each subject answers from its own matrix X_m (D, T_m) and has the same weight, whatever T_m is.
Values outside the public range [low, high] count as its end (mean) or in one of the two open bins
(histogram).  Source: Imtiaz et al., Alg. 2, whose example is the mean of values in [0, 1].
Deviation: sums over subjects are divided by the public M, so sites of unequal size need no weights
(H = 1 in Remark 3).
"""

import math

import numpy as np
import numpy.typing as npt

from cape.algorithms import estimators
from cape.algorithms.estimators import Array, Data, OneRelease, PlannedRelease, SubjectQuery
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnStatistic:
    """State of both estimators; released quantities only."""

    # (D,): means in units of the data; or (D * (n_bins + 2),): fractions, column after column, from
    # the bin below `low` to the one above `high`.  Unbiased, so noise may take them out of range.
    values: Array
    noise_std: float  # exact std of the noise on every value; 0 without noise
    status: estimators.ReleaseStatus
    record: estimators.StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnMean(OneRelease[ColumnStatistic]):
    """Mean of each column: one release of D numbers."""

    # Answers lie in [-1, 1]^D, in units of half the range: the norm is at most sqrt(D) without a
    # clip.

    low: float
    high: float

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (PlannedRelease(size=rows, clip=math.sqrt(rows), shape="ball", weight=1.0),)

    def start(self, rows: int) -> ColumnStatistic:
        return _waiting(rows)

    def query(self, state: ColumnStatistic) -> SubjectQuery:
        return self.schedule(state.values.size)[0].query(self._answer)

    def _answer(self, stack: Data) -> Array:
        x, usable = _checked(stack)
        inside = np.clip(x, self.low, self.high).mean(axis=2)
        scaled = (inside - (self.low + self.high) / 2) / ((self.high - self.low) / 2)
        return np.where(usable[:, np.newaxis], scaled, 0.0)

    def step(self, state: ColumnStatistic, mean: Array, noise_std: float) -> ColumnStatistic:
        half = (self.high - self.low) / 2
        return _released((self.low + self.high) / 2 + half * mean, half * noise_std)


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnHistogram(OneRelease[ColumnStatistic]):
    """Histogram of each column: one release of D (n_bins + 2) fractions of a subject's points."""

    # Fractions of a column are >= 0 with sum 1.  Hence norms are at most sqrt(D), inner products of
    # two answers are >= 0, and their distance is at most sqrt(2) sqrt(D), which is the shape "psd".

    low: float
    high: float
    n_bins: int

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        size = rows * (self.n_bins + 2)
        return (PlannedRelease(size=size, clip=math.sqrt(rows), shape="psd", weight=1.0),)

    def start(self, rows: int) -> ColumnStatistic:
        return _waiting(rows * (self.n_bins + 2))

    def query(self, state: ColumnStatistic) -> SubjectQuery:
        rows = state.values.size // (self.n_bins + 2)
        return self.schedule(rows)[0].query(self._answer)

    def edges(self) -> Array:
        """Edges (n_bins + 1,) of the closed bins; `high` itself is in the last bin."""
        return np.linspace(self.low, self.high, self.n_bins + 1)

    def _answer(self, stack: Data) -> Array:
        x, usable = _checked(stack)
        n, D, T = x.shape
        bins = self.n_bins + 2
        bin_of = np.searchsorted(self.edges(), x, side="right")  # 0 is below low
        bin_of[x == self.high] = self.n_bins
        flat = bin_of + bins * np.arange(n * D).reshape(n, D, 1)
        counts = np.bincount(flat.ravel(), minlength=n * D * bins).reshape(n, D * bins)
        return np.where(usable[:, np.newaxis], counts / T, 0.0)

    def step(self, state: ColumnStatistic, mean: Array, noise_std: float) -> ColumnStatistic:
        # Setting negative fractions to 0 would be a bias.
        return _released(mean, noise_std)


def _checked(stack: Data) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Return the stack (n, D, T) with zeros for unusable subjects, and the usable ones, (n,)."""
    x = np.asarray(stack, dtype=np.float64)
    if x.shape[2] == 0:
        return np.zeros((*x.shape[:2], 1)), np.zeros(len(x), dtype=np.bool_)
    usable = np.asarray(np.isfinite(x).all(axis=(1, 2)), dtype=np.bool_)
    return np.where(usable[:, np.newaxis, np.newaxis], x, 0.0), usable


def _waiting(size: int) -> ColumnStatistic:
    return ColumnStatistic(
        values=np.zeros(size), noise_std=0.0, status="waiting", record=estimators.NO_STEP
    )


def _released(values: Array, noise_std: float) -> ColumnStatistic:
    record = estimators.step_record(values, noise_std, step_norm=float(np.linalg.norm(values)))
    return ColumnStatistic(values=values, noise_std=noise_std, status="released", record=record)
