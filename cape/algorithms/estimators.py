"""The one shape of every private step: ask each subject a question, bound it, average, step.

PCA, whitening and both solvers differ in the question and in the step, in nothing else.  An
estimator knows no site, no phase, no noise generator and no budget: `cape.protocol` sums the
clipped answers, adds the noise, and hands the noisy mean back to `Estimator.step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cape.frozen import dataclass

Array = npt.NDArray[np.float64]
Data = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating]  # of either precision

_Shape = Literal["ball", "psd"]
ReleaseStatus = Literal["waiting", "released", "budget_exhausted"]

# Clip norm of runs with ``private=false``: far above any answer, only there to bound integers.
UNCLIPPED = 4096.0

# Bytes of a line of the cache, and of the longest vectors.
ALIGNED = 64

# Squared norms in this range were computed without overflow or underflow that matters.
SAFE_SQUARE = (1e-200, 1e200)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRelease:
    """One release as planned before the run: everything the accountant needs to know."""

    size: int  # largest length n of one answer (shorter ones are allowed and cost the same)
    clip: float  # C, L2 bound of one subject's answer; a public constant
    # Replace-one distance of two answers: 2 C, or sqrt(2) C ("psd") for svec of PSD matrices
    shape: _Shape
    # Share of the mu^2 of this estimator, relative to the other releases of the same one
    weight: float

    def query(self, answer: Callable[[Data], Array]) -> SubjectQuery:
        """Put a question whose answers are as planned here."""
        return SubjectQuery(size=self.size, clip=self.clip, shape=self.shape, answer=answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectQuery:
    """The question put to every subject in one release."""

    size: int  # exact; this and the next two as in `PlannedRelease`
    clip: float
    shape: _Shape
    # ``answer(stack) -> (n_subjects, size)`` for a stack of equally long subjects, shape
    # (n_subjects, rows, T), float32.  Row m depends on subject m alone: stacking is for speed, and
    # a test compares every row with the answer of its subject alone.
    answer: Callable[[Data], Array]
    # What does not split into persons: ``part(stack) -> (size,)`` of all subjects of a site.  One
    # subject moves the sum of the answers and this by at most 2 C, up to rounding.
    part: Callable[[Data], Array] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """What the last step looked like; released quantities only."""

    statistic_norm: float  # L2 norm of the noisy mean
    noise_norm: float  # norm expected of the noise alone
    step_norm: float  # size of the update, in the units of the state
    # Mean |cos| of the rows of W now and some rounds before, 0 while unknown (solvers only)
    stability: float = 0.0


NO_STEP = StepRecord(statistic_norm=0.0, noise_norm=0.0, step_norm=0.0)


def step_record(mean: Array, noise_std: float, *, step_norm: float) -> StepRecord:
    """Record of a step on a released mean (n,), whose entries carry noise of that std."""
    return StepRecord(
        statistic_norm=float(np.linalg.norm(mean)),
        noise_norm=float(noise_std * np.sqrt(len(mean))),
        step_norm=step_norm,
    )


def aligned(n: int, kind: npt.DTypeLike, *, at: int = 0) -> npt.NDArray[np.floating]:
    """Zeros (n,) in memory whose entry `at` begins at a multiple of 64 bytes.

    NumPy promises 16: then a vector of 64 bytes lies across two lines, and a pass over arrays that
    fit the cache takes twice as long.
    """
    size = np.dtype(kind).itemsize
    memory = np.zeros(n + ALIGNED // size, dtype=kind)
    first = (-(memory.ctypes.data // size) - at) % (ALIGNED // size)
    return memory[first : first + n]


def clip_rows(rows: Array, bound: float) -> Array:
    """Rows (n_rows, n) in float64, scaled into the L2 ball of radius `bound` > 0, up to rounding.

    Rows that are not finite become 0.  The exact clip is `cape.secagg.field`.
    """
    # Rows contiguous and summed one by one: the result must not depend on the layout of the stack.
    rows = np.ascontiguousarray(rows, dtype=np.float64)
    with np.errstate(all="ignore"):
        norm2 = np.add.reduce(rows * rows, axis=1)
    plain = (norm2 > SAFE_SQUARE[0]) & (norm2 < SAFE_SQUARE[1])  # False for NaN
    factor = np.minimum(1.0, bound / np.sqrt(np.where(plain, norm2, 1.0)))
    clipped: Array = rows * factor[:, None]
    for m in np.flatnonzero(~plain):
        clipped[m] = _clip_extreme(rows[m], bound)
    return clipped


def _clip_extreme(row: Array, bound: float) -> Array:
    """Clip one row whose squared norm may overflow, underflow or be NaN."""
    # Scaled by its largest entry first, so 1e300 does not overflow.
    peak = float(np.max(np.abs(row), initial=0.0))
    if not np.isfinite(peak) or peak == 0.0:
        return np.zeros_like(row)
    relative = row / peak
    allowed = bound / float(np.sqrt(relative @ relative))
    return relative * allowed if peak > allowed else row


S = TypeVar("S")


class Estimator(Protocol[S]):
    """A frozen dataclass built from settings; every method is pure."""

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """All planned releases in order, for subjects with at most `rows` rows."""

    def start(self, rows: int) -> S:
        """State before the first release, for subjects with `rows` rows."""

    def query(self, state: S) -> SubjectQuery:
        """Next question, from public values only."""

    def step(self, state: S, mean: Array, noise_std: float) -> S:
        """State after a release: post-processing, costs no budget.

        `mean` has shape (size,); `noise_std` is the true std of the noise on each entry.
        """

    def done(self, state: S) -> bool:
        """Tell whether all planned releases were made: public counters only, never data."""
