"""The form of every private step: ask each subject a question, bound the answer, average, step.

Estimators such as PCA, whitening and solvers differ in the question and the step only.  An
estimator knows no site, phase, noise generator or budget: `cape.protocol` sums the clipped answers,
adds the noise, and passes the noisy means to `Estimator.steps`.  Questions that do not depend on
each other's answers form a round: they are asked in one exchange.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cape.frozen import dataclass

Array = npt.NDArray[np.float64]
Data = npt.NDArray[np.float32]
Floats = npt.NDArray[np.floating]  # of either precision

_Shape = Literal["ball", "psd"]
# How a release that a site refused ends its run: by policy or budget, because people of the site
# closed the run, or because another run took its place
Refused = Literal["budget_exhausted", "closed", "yielded"]
ReleaseStatus = Literal["waiting", "released", "budget_exhausted", "closed", "yielded"]

# Clip norm of runs with ``private=false``, far above any answer: it only bounds the integers.
UNCLIPPED = 4096.0

# Bytes of a cache line, and of the longest vector registers
LINE_BYTES = 64

# Range of squared norms whose computation did not overflow or underflow
SAFE_SQUARE = (1e-200, 1e200)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRelease:
    """One release as planned before the run, with all that its cost depends on."""

    size: int  # maximum length n of an answer; a shorter one costs the same
    clip: float  # C, public L2 bound of one subject's answer
    # Maximum distance of two answers: 2 C ("ball"), or sqrt(2) C ("psd": svec of PSD matrices)
    shape: _Shape
    weight: float  # share of the estimator's mu^2, relative to its other releases
    # Exchange of the estimator that carries it, from 1; 0: the i-th release has the i-th exchange
    round: int = 0
    name: str = "total"  # tells the releases of an exchange apart

    def query(self, answer: Callable[[Data], Array]) -> SubjectQuery:
        return SubjectQuery(size=self.size, clip=self.clip, shape=self.shape, answer=answer)


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectQuery:
    """The question put to every subject in one release."""

    size: int  # exact; this and the next two as in `PlannedRelease`
    clip: float
    shape: _Shape
    # ``answer(stack) -> (n_subjects, size)`` for a stack (n_subjects, rows, T), float32, of
    # subjects of equal length.  Row m depends on subject m alone: stacks are for speed, and a test
    # compares each row with the answer of its subject alone.
    answer: Callable[[Data], Array]
    # A term that is no sum over subjects: ``part(stack) -> (size,)`` of all subjects of a site.
    # One subject changes the sum of the answers plus this by at most 2 C, up to rounding.
    part: Callable[[Data], Array] | None = None
    # "pair": ``answer`` gets all people of a site in one stack, in their public order, and returns
    # (n_pairs, size), n_pairs <= n_subjects // 2.  Which rows form pairs is public, and each person
    # is in one pair at most, so that a replaced person changes one row, as with "person".
    unit: Literal["person", "pair"] = "person"


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """The last step in numbers; released quantities only."""

    statistic_norm: float  # L2 norm of the noisy mean
    noise_norm: float  # expected norm of the noise alone
    step_norm: float  # norm of the update, in the units of the state
    # Solvers: mean |cos| between the rows of W now and some rounds before; 0 while unknown
    stability: float = 0.0


NO_STEP = StepRecord(statistic_norm=0.0, noise_norm=0.0, step_norm=0.0)


def step_record(mean: Array, noise_std: float, *, step_norm: float) -> StepRecord:
    return StepRecord(
        statistic_norm=float(np.linalg.norm(mean)),
        noise_norm=float(noise_std * np.sqrt(len(mean))),
        step_norm=step_norm,
    )


def aligned(n: int, kind: npt.DTypeLike, *, at: int = 0) -> npt.NDArray[np.floating]:
    """Zeros (n,) whose entry `at` is at an address that is a multiple of 64 bytes."""
    # NumPy aligns to 16 bytes only.  A vector of 64 bytes then lies across two cache lines, and a
    # pass over arrays in the cache takes twice as long.
    size = np.dtype(kind).itemsize
    memory = np.zeros(n + LINE_BYTES // size, dtype=kind)
    first = (-(memory.ctypes.data // size) - at) % (LINE_BYTES // size)
    return memory[first : first + n]


def clip_rows(rows: Array, bound: float) -> Array:
    """Scale rows (n_rows, n) into the L2 ball of radius `bound` > 0, up to rounding; float64."""
    # Rows that are not finite become 0.  The exact clip is in `cape.secagg.field`.
    # Contiguous rows, summed one by one, so that the result does not depend on the stack's layout
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
    # Divided by its largest entry first, so that the square of 1e300 does not overflow
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
        """Return all planned releases in order, for subjects with at most `rows` rows."""

    def start(self, rows: int) -> S:
        """Return the state before the first release, for subjects with `rows` rows."""

    def queries(self, state: S) -> tuple[SubjectQuery, ...]:
        """Return the questions of the next round, from public values only.

        One for each planned release of the round, in the order of `schedule`.
        """

    def steps(self, state: S, means: Sequence[Array], noise_stds: Sequence[float]) -> S:
        """Return the state after a round; this is post-processing and costs no budget.

        One mean (size,) for each of `queries`, and the true std of the noise on its entries.
        """

    def done(self, state: S) -> bool:
        """Return whether all planned releases were made, from public counters only."""


class OneRelease(ABC, Generic[S]):
    """Base of estimators whose rounds have one release each; by default there is one round."""

    __slots__ = ()

    @abstractmethod
    def query(self, state: S) -> SubjectQuery:
        """Return the next question, from public values only."""

    @abstractmethod
    def step(self, state: S, mean: Array, noise_std: float) -> S:
        """Return the state after a release: `Estimator.steps` of its mean (size,)."""

    def queries(self, state: S) -> tuple[SubjectQuery, ...]:
        return (self.query(state),)

    def steps(self, state: S, means: Sequence[Array], noise_stds: Sequence[float]) -> S:
        (mean,), (noise_std,) = means, noise_stds
        return self.step(state, mean, noise_std)

    def done(self, state: Any) -> bool:
        return bool(state.status != "waiting")
