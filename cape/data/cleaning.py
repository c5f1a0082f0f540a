"""Preprocessing of one run, features by time: numpy only, independent of other subjects.

Order: drop dummies -> NaN and constant rules -> one least squares for intercept, trend, confounds
and the cosines outside the pass band -> standardise -> global signal.
"""

from __future__ import annotations

import dataclasses
from typing import Final, Self

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.data.runs import Kept, Series
from cape.frozen import dataclass
from cape.settings.resolved import Cleaning, Reading

# Numbers that are converted to doubles at a time: 4096 rows of 400 time points, 13 MB.
BLOCK_NUMBERS: Final = 4096 * 400
# A feature that varies by less than this fraction of its size is constant: float32 holds 6e-8.
FLAT: Final = 1e-6
# Smallest deviation to divide by, in medians over features (recipe of spatial maps).
FLOOR: Final = 0.3
# Degree of the polynomial that `detrend` takes out.
DEGREES: Final = {"none": 0, "linear": 1, "quadratic": 2}
# A regressor is left out if other ones explain all but this fraction of it.
COLLINEAR: Final = 1e-8


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """Counts over a run or a subject; they stay at the site."""

    n_values: int
    n_bad: int  # values that are not finite
    n_features: int
    n_zero: int  # features that are zero at all times; 0 for a single time point
    n_constant: int  # features that are constant at another value
    dummy_z: float  # robust z of the first volume's mean
    n_empty: int = (
        0  # volumes that are zero everywhere, of runs whose other volumes are far from it
    )
    # Temporal signal to noise: median over features of the mean divided by the std after cleaning;
    # 0 without a varying feature
    tsnr: float = 0.0

    def joined(self, other: Self) -> Quality:
        return Quality(
            n_values=self.n_values + other.n_values,
            n_bad=self.n_bad + other.n_bad,
            n_features=self.n_features + other.n_features,
            n_zero=self.n_zero + other.n_zero,
            n_constant=self.n_constant + other.n_constant,
            dummy_z=max(self.dummy_z, other.dummy_z),
            n_empty=self.n_empty + other.n_empty,
            # Weighted by the length of the runs
            tsnr=(self.tsnr * self.n_values + other.tsnr * other.n_values)
            / max(self.n_values + other.n_values, 1),
        )

    @property
    def bad_fraction(self) -> float:
        return self.n_bad / max(self.n_values, 1)

    @property
    def coverage(self) -> float:
        """Fraction of features that are not zero throughout."""
        return 1 - self.n_zero / max(self.n_features, 1)

    @property
    def constant_fraction(self) -> float:
        return self.n_constant / max(self.n_features, 1)


# Counts of data that were not read, because a check reads headers and tables only.
UNREAD: Final = Quality(n_values=0, n_bad=0, n_features=0, n_zero=0, n_constant=0, dummy_z=0.0)


def regressors(n_times: int, *, degree: int, others: Array | None = None) -> Array:
    """Return orthonormal (T, k), intercept first; `others` (T, K) may be collinear or constant."""
    columns = [np.full(n_times, 1 / np.sqrt(n_times))]
    line = np.arange(n_times) - (n_times - 1) / 2
    for power in range(1, min(degree, n_times - 1) + 1):
        column = line**power - np.mean(line**power)  # even and odd powers are orthogonal
        columns.append(column / np.linalg.norm(column))
    design = np.stack(columns, axis=1)
    if others is None or others.shape[1] == 0 or n_times < 2:
        return design
    centred = np.concatenate([design[:, 1:], others - others.mean(axis=0)], axis=1)
    # Motion parameters and their derivatives are often collinear: dividing by the rounding errors
    # of such columns would make the result depend on the computer.
    norms = np.linalg.norm(centred, axis=0)
    varying = norms > COLLINEAR * np.linalg.norm(np.concatenate([design[:, 1:], others], 1), axis=0)
    left, size, _ = np.linalg.svd(centred[:, varying] / norms[varying], full_matrices=False)
    rank = int((size > COLLINEAR * size.max(initial=0.0)).sum())
    return np.concatenate([design[:, :1], left[:, :rank]], axis=1)


def stop_band_cosines(n_times: int, tr: float, *, high_pass: float, low_pass: float) -> Array:
    """Return cosines ``cos(pi k (t + 1/2) / T)`` outside the pass band, shape (T, K).

    Frequency k / (2 T TR) at or below `high_pass` (as in SPM) or above `low_pass`, Hz; 0: no limit.
    """
    k = np.arange(1, n_times)
    at_one = 2 * n_times * tr  # k at 1 Hz
    slack = 1e-9  # a frequency that equals the limit but for rounding
    outside = np.zeros(k.size, dtype=bool)
    if high_pass > 0:
        outside |= k <= high_pass * at_one * (1 + slack)
    if low_pass > 0:
        outside |= k > low_pass * at_one * (1 + slack)
    return np.asarray(np.cos(np.pi * np.outer(np.arange(n_times) + 0.5, k[outside]) / n_times))


def nuisance(confounds: Array, n_dummy: int, how: Reading, tr: float) -> Array:
    """Return signals (T - n_dummy, K); `confounds` (T, K), K may be 0, have all stored volumes."""
    others, high, low = confounds[n_dummy:], how.high_pass, how.low_pass
    if not high and not low:
        return others
    cosines = stop_band_cosines(len(others), tr, high_pass=high, low_pass=low)
    return np.concatenate([others, cosines], axis=1)


def design(others: Array | None, kept: Kept | int, how: Cleaning) -> Array:
    """Return orthonormal regressors of a run, for all T volumes or those of a mask (T,).

    `others` (T, K) have all volumes.
    """
    degree = DEGREES[how.detrend]
    if isinstance(kept, int):
        return regressors(kept, degree=degree, others=others)
    # At their true times: scrubbing leaves gaps, in which a line goes on.
    line = np.linspace(-1, 1, kept.size)
    trend = np.stack([line**power for power in range(1, degree + 1)], axis=1) if degree else None
    parts = [part[kept] for part in (trend, others) if part is not None]
    n_times = int(kept.sum())
    every = np.concatenate([np.zeros((n_times, 0)), *parts], axis=1)
    return regressors(n_times, degree=0, others=every)


def clean(series: Series, how: Cleaning) -> tuple[Data, Quality]:
    """Return a cleaned run (D, T), in the memory of `series`, and its counts.

    Dummies and scrubbed volumes are dropped, regressors removed.  Rows have mean 0, constant ones
    are 0; with ``standardize=none`` all rows keep mean and scale.
    """
    values, kept = series.values[:, series.n_dummy :], series.kept
    n_features, n_times = len(values), series.n_kept
    # In place: a run may take half of the memory of a site.
    cleaned = values
    if kept is not None:
        # A row at its new place never overlaps one that is still to be read.
        cleaned = series.values.reshape(-1)[: n_features * n_times].reshape(n_features, n_times)
    if n_times == 0:
        return cleaned, dataclasses.replace(UNREAD, n_features=n_features)
    # One least squares for all: in two successive steps the second brings back what the first
    # removed (Lindquist et al. 2019, Hum. Brain Mapp. 40).
    basis = design(series.others, n_times if kept is None else kept, how)
    n_bad = n_zero = n_constant = 0
    spreads, means = np.zeros(n_features), np.zeros(n_features)
    level, signal = np.zeros(n_times), np.zeros(n_times, dtype=bool)
    # In blocks of rows: doubles of the whole subject would need twice its memory.
    rows = _rows_at_a_time(n_times)
    for first in range(0, n_features, rows):
        block = values[first : first + rows].astype(np.float64)
        if kept is not None:
            block = block[:, kept]
        n_bad += _fill(block)  # the mean of the row becomes 0 when the mean is removed
        zero = ~block.any(axis=1)
        size = np.sqrt(np.mean(block * block, axis=1))
        level += block.sum(axis=0)
        signal |= block.any(axis=0)
        means[first : first + rows] = block.mean(axis=1)
        signals = basis[:, 1:]
        as_is = block - (block @ signals) @ signals.T if how.standardize == "none" else None
        block -= (block @ basis) @ basis.T
        spread = np.sqrt(np.mean(block * block, axis=1))
        flat = spread <= FLAT * size  # zero rows included
        if n_times > 1:  # a single record varies over subjects, not over time
            n_zero += int(zero.sum())
            n_constant += int((flat & ~zero).sum())
        if how.standardize == "variance":
            block /= np.where(flat, 1.0, spread)[:, None]
        block[flat] = 0.0
        spreads[first : first + rows] = np.where(flat, 0.0, spread)
        cleaned[first : first + rows] = block if as_is is None else as_is
    # A voxel with almost no signal must not be scaled up to the size of the others.
    moving = spreads > 0.0
    if how.standardize == "floored" and moving.any():
        floor = FLOOR * np.median(spreads[moving])
        cleaned /= np.maximum(spreads, floor).astype(np.float32)[:, None]
    if how.global_signal:
        _regress_mean(cleaned)
    quality = Quality(
        n_values=n_features * n_times,
        n_bad=n_bad,
        n_features=n_features,
        n_zero=n_zero,
        n_constant=n_constant,
        dummy_z=_first_volume_z(level / max(n_features, 1)),
        # Where the mean was taken out before, zeros are a censored volume, and harm nobody.
        n_empty=int((~signal).sum()) if _is_far(level[signal]) else 0,
        tsnr=float(np.median(np.abs(means[moving]) / spreads[moving])) if moving.any() else 0.0,
    )
    return cleaned, quality


def _regress_mean(cleaned: Data) -> None:
    """Regress the mean over the features out of every feature (D, T), in place."""
    # Features have equal scale, so that no loud voxel dominates.  The mean no longer contains the
    # other regressors, so this step brings none of them back.
    signal = cleaned.mean(axis=0, dtype=np.float64)
    signal -= signal.mean()
    power = float(signal @ signal)
    if power <= 0.0:
        return
    rows = _rows_at_a_time(signal.size)
    for first in range(0, len(cleaned), rows):
        block = cleaned[first : first + rows].astype(np.float64)
        block -= np.outer(block @ signal / power, signal)
        cleaned[first : first + rows] = block


def _rows_at_a_time(n_times: int) -> int:
    # A run of 30,000 volumes has few rows in a block: 4096 of them would take 1 GB.
    return min(4096, max(1, BLOCK_NUMBERS // max(n_times, 1)))


def _fill(block: Array) -> int:
    """Replace NaN and infinite entries by the mean of their row, in place; return their number."""
    bad = ~np.isfinite(block)
    count = int(bad.sum())
    if count:
        block[bad] = 0.0
        good = np.maximum((~bad).sum(axis=1), 1)
        rows, columns = np.nonzero(bad)
        block[rows, columns] = (block.sum(axis=1) / good)[rows]
    return count


def _is_far(level: Array) -> bool:
    """Whether means of volumes lie further from 0 than they vary, but for outliers."""
    low, middle, high = np.quantile(level, [0.1, 0.5, 0.9]) if level.size > 1 else (0.0, 0.0, 0.0)
    return bool(abs(middle) > 3.0 * (high - low))


def _first_volume_z(level: Array) -> float:
    """Return how far the first volume's mean lies from the others, in robust deviations."""
    if level.size < 10:
        return 0.0
    rest = level[1:]
    # Median and MAD: a spike of motion elsewhere must not hide a deviating first volume.
    middle = np.median(rest)
    spread = 1.4826 * float(np.median(np.abs(rest - middle)))
    return abs(float(level[0] - middle)) / spread if spread > 0 else 0.0


def rank_of(cleaned: Data) -> int:
    """Return the numerical rank of a subject's data, from at most about 2000 of its rows."""
    # Every n-th row: 70,000 voxels say no more of at most 400 time points than 2000 of them do.
    rows = cleaned[:: max(1, cleaned.shape[0] // 2000)]
    if rows.shape[0] >= rows.shape[1]:
        rows = rows.T
    small = np.zeros((rows.shape[0], rows.shape[0]))
    # In blocks: doubles of a long run would need twice its memory.
    width = _rows_at_a_time(rows.shape[0])
    for first in range(0, rows.shape[1], width):
        block = rows[:, first : first + width].astype(np.float64)
        for top in range(0, len(block), 512):
            small[top : top + 512] += block[top : top + 512] @ block.T
    eigenvalues = np.linalg.eigvalsh(small)
    return int((eigenvalues > 1e-9 * max(float(eigenvalues[-1]), 1e-300)).sum())
