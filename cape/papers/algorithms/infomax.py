"""Infomax of capeDJICA (Imtiaz et al., Alg. 4), with the printed clip or one per subject.

Data are whitened and scaled by 2 (djICA's sphere, Baker et al.); Z = W X + b 1', the printed 1 - 2
g(Z) is ``Y = -tanh(Z/2)``.  `clip="time_point"` is Alg. 4 to the letter, one joint release of (G,
h); `clip="subject"` bounds a subject's relative gradient: about ten times less noise.  Deviations:
rate .25-.5, not .015/log R, which does not converge in 1000 rounds even without noise; no
annealing, no stopping rule in private runs, where noise alone would drive both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import ceil, sqrt
from typing import Literal, TypeVar

import numpy as np

from cape.algorithms.estimators import (
    NO_STEP,
    UNCLIPPED,
    Array,
    Data,
    Floats,
    PlannedRelease,
    StepRecord,
    SubjectQuery,
    aligned,
    clip_rows,
    step_record,
)
from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Step, StopRule, Unmixing, advance, status_after
from cape.algorithms.whitening import Whitener
from cape.frozen import dataclass

# Whitened data are doubled: the logistic nonlinearity then starts near its solution.
INPUT_SCALE = 2.0

# B_G as printed; it fits doubled white data only (5 % of the time points clipped at the end).
GRADIENT_BOUND = 30.0

# B_h as printed.
BIAS_BOUND = sqrt(30.0)

# Bound of one subject's relative gradient; its norm is about 1.65 at the solution.
SUBJECT_BOUND = 2.0

RESTART_FACTOR = 0.9  # factor on the learning rate after a blow-up (djICA, Baker et al.)
MIN_RATE = 1e-6  # a run whose rate has come down to this is given up
# Without privacy: stop when ||H W||_F falls to this.  Deviation: Alg. 4 tests ||Delta_W||^2, which
# a small rho passes at once.
TOLERANCE = 2e-3

# Numbers per working array: a few such arrays fit the second-level cache of one core.
_CHUNK = 160_000

State = TypeVar("State", bound=Unmixing)


def beginning(rows: int, rho: float) -> Unmixing:
    """State before the first round: W = I, b = 0 (Alg. 4, line 1, Imtiaz et al.)."""
    return Unmixing(
        W=np.eye(rows),
        b=np.zeros(rows),
        rho=rho,
        round=0,
        anchor=np.eye(rows),
        stability=0.0,
        status="running",
        record=NO_STEP,
    )


def restart(state: State, record: StepRecord) -> State | None:
    """State to go on from after a blow-up, or None if the rate is used up."""
    rho = state.rho * RESTART_FACTOR
    if rho <= MIN_RATE:
        return None
    rows = len(state.b)
    return replace(
        state,
        W=np.eye(rows),
        b=np.zeros(rows),
        rho=rho,
        round=state.round + 1,
        anchor=np.eye(rows),
        stability=0.0,
        record=replace(record, stability=0.0),
    )


def advance_or_restart(
    state: Unmixing,
    propose: Callable[[float], Step],
    stop_rule: StopRule,
    *,
    settled: bool,
    record: StepRecord,
) -> Unmixing:
    """As `advance`, but a blow-up starts again from W = I with a lower rate.

    Alg. 4, line 18 (Imtiaz et al.); the rounds that blew up stay charged.
    """
    after = advance(state, propose, stop_rule, settled=settled, record=record)
    if after.status != "diverged" or (again := restart(state, after.record)) is None:
        return after
    return replace(again, status=status_after(again.round, stop_rule, settled=False))


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Means over time, a row of every subject: a matrix row by row, then a vector."""

    rows: Array  # (n_subjects, R R + R)
    R: int

    @property
    def matrix(self) -> Array:
        """View of shape (n_subjects, R, R)."""
        return self.rows[:, : self.R**2].reshape(-1, self.R, self.R)

    @property
    def vector(self) -> Array:
        """View of shape (n_subjects, R)."""
        return self.rows[:, self.R**2 :]

    @property
    def diagonal(self) -> Array:
        """View of the matrix's diagonal, shape (n_subjects, R)."""
        return self.rows[:, : self.R**2 : self.R + 1]


class Halves:
    """z/2, z = W (2 x) + b, and y = tanh(z/2) of a stack (n_subjects, R, T), chunk by chunk.

    In the precision of the stack.  Working arrays (R, n T) are reused, so that elementwise work
    runs over long rows; products stay per subject, whatever else is in the chunk.
    """

    def __init__(self, W: Array, b: Array, stack: Floats) -> None:
        self.stack, kind = stack, stack.dtype
        n_subjects, self.R, self.T = stack.shape
        self.n = min(n_subjects, max(1, _CHUNK // (self.R * self.T)))
        self._W = np.asarray(W * (INPUT_SCALE / 2.0), dtype=kind)
        self._b = np.asarray(b / 2.0, dtype=kind)[:, None]
        (self.z, self.z_m), (self.y, self.y_m) = self.pair(), self.pair()
        self.ones = np.ones((self.T, 1), kind)
        # What callers fill: sums over time of y z'/2 and of y, of every subject.
        self.H = np.empty((n_subjects, self.R, self.R), dtype=kind)
        self.h = np.empty((n_subjects, self.R, 1), dtype=kind)

    def pair(self) -> tuple[Floats, Floats]:
        """Make an array, shape (R, n T), and its view, shape (n, R, T)."""
        flat = aligned(self.R * self.n * self.T, self.stack.dtype).reshape(self.R, -1)
        return flat, flat.reshape(self.R, self.n, self.T).swapaxes(0, 1)

    def __iter__(self) -> Iterator[tuple[slice, int]]:
        """Fill the arrays with one chunk after the other; give its place and number of subjects."""
        for first in range(0, len(self.stack), self.n):
            part = slice(first, first + self.n)
            m = len(self.stack[part])
            np.matmul(self._W, self.stack[part], out=self.z_m[:m])
            self.z += self._b
            np.tanh(self.z, out=self.y)  # minus the y of the paper
            yield part, m

    def means(self) -> Moments:
        """-2/T H and -1/T h in float64."""
        # Straight into the rows of an answer: passes over these took up to a twentieth of a round.
        moments = Moments(rows=np.empty((len(self.H), self.R * (self.R + 1))), R=self.R)
        np.multiply(self.H, -2.0 / self.T, out=moments.matrix, dtype=np.float64)
        np.divide(self.h[..., 0], -self.T, out=moments.vector, dtype=np.float64)
        return moments


def relative_gradients(W: Array, b: Array, stack: Floats) -> Moments:
    """H_m = I + mean_t y z' and h_m = mean_t y of every subject, float64, not clipped.

    W is for doubled data; the stack (n_subjects, R, T), whose precision is used, is not doubled.
    """
    work = Halves(W, b, stack)
    for part, m in work:
        np.matmul(work.y_m[:m], work.z_m[:m].swapaxes(1, 2), out=work.H[part])
        np.matmul(work.y_m[:m], work.ones, out=work.h[part])
    moments = work.means()
    moments.diagonal[...] += 1.0
    return moments


def clipped_gradients(W: Array, b: Array, stack: Floats, bounds: tuple[float, float]) -> Moments:
    """G_m and h_m of every subject, float64: means of time points clipped one by one.

    Alg. 4, lines 5-8 (Imtiaz et al.): G_n = (I + y z') W divided by max(1, ||G_n||_F/B_G), h_n = y
    by max(1, ||y||/B_h); `bounds` is (B_G, B_h), the rest as in `relative_gradients`.
    """
    gram, energy = np.asarray(W @ W.T, dtype=stack.dtype), float(np.vdot(W, W))
    weights = np.empty(len(stack))
    work = Halves(W, b, stack)
    v, v_m = work.pair()
    for part, m in work:
        y = work.y
        np.matmul(gram, work.z_m[:m], out=v_m[:m])
        yy = np.einsum("rn,rn->n", y, y)
        # No R x R x N array is built: with v = (W W') z,
        # ||G_n||_F^2 = ||W||_F^2 + 2 y'v + ||y||^2 z'v.
        norm2 = np.einsum("rn,rn->n", work.z, v) * yy
        norm2 -= np.einsum("rn,rn->n", y, v)
        norm2 *= 4.0
        norm2 += energy
        c = _shrink(norm2, bounds[0])
        # ||y|| < sqrt(R) always, so a larger bound clips nothing.
        clips = bounds[1] < sqrt(work.R)
        c_h = _shrink(yy, bounds[1]).reshape(work.n, work.T, 1)[:m] if clips else work.ones
        np.matmul(work.y_m[:m], c_h, out=work.h[part])
        weights[part] = c.reshape(work.n, work.T)[:m].sum(axis=1, dtype=np.float64)
        y *= c
        np.matmul(work.y_m[:m], work.z_m[:m].swapaxes(1, 2), out=work.H[part])
    moments = work.means()
    moments.diagonal[...] += (weights / work.T)[:, None]
    moments.matrix[...] = moments.matrix @ W
    return moments


def _shrink(norm2: Floats, bound: float) -> Floats:
    """min(1, bound/norm) from squared norms."""
    kind = norm2.dtype.type
    norm = np.sqrt(np.maximum(norm2, kind(1e-30)))
    return np.asarray(np.minimum(kind(1.0), kind(bound) / norm))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ascent:
    """What the rounds of all Infomax solvers share; by default an answer is not clipped."""

    n_rounds: int  # J, a public constant
    learning_rate: float  # rho

    def release(self, R: int) -> PlannedRelease:
        """Return one round: R^2 + R numbers."""
        return PlannedRelease(size=R * R + R, clip=UNCLIPPED, shape="ball", weight=1.0)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (self.release(rows),) * self.n_rounds

    def start(self, rows: int) -> Unmixing:
        return beginning(rows, self.learning_rate)

    def done(self, state: Unmixing) -> bool:
        return state.round >= self.n_rounds or state.status != "running"


def split_mean(mean: Array, R: int) -> tuple[Array, Array]:
    """Return the matrix (R, R) and the vector (R,) of a released mean."""
    return mean[: R * R].reshape(R, R), mean[R * R :]


def ascend(
    state: Unmixing, G: Array, h: Array, stop_rule: StopRule, mean: Array, noise_std: float
) -> Unmixing:
    """W += rho G, b += rho h (Alg. 4, lines 10-11), after a release of `mean`."""
    size, rho = float(np.linalg.norm(G)), state.rho

    def propose(scale: float) -> Step:
        return Step(W=state.W + scale * rho * G, b=state.b + scale * rho * h)

    record = step_record(mean, noise_std, step_norm=rho * size)
    settled = size <= TOLERANCE
    return advance_or_restart(state, propose, stop_rule, settled=settled, record=record)


@dataclass(frozen=True, kw_only=True, slots=True)
class Infomax(Ascent):
    """Gradient ascent of the Infomax likelihood (Imtiaz et al., Alg. 4); rho .25 to .5."""

    # What is bounded: a subject's [H_m ; h_m], or each time point's gradient
    clip: Literal["subject", "time_point"]
    subject_bound: float  # L2 bound of [H_m ; h_m] with ``clip="subject"``
    gradient_bound: float  # B_G with ``clip="time_point"``
    bias_bound: float  # B_h.  Deviation: counts as min(B_h, sqrt R), which ||y|| never exceeds
    private: bool  # false: no clipping, and the tolerance may end the run

    def after(self, released: Subspace | None, whitened: Whitener | None) -> Infomax:
        """Return this solver: its rounds begin at W = I, whatever was released before."""
        return self

    @property
    def _by_time_point(self) -> bool:
        # Without clips both forms give the same step; the relative one is cheaper.
        return self.private and self.clip == "time_point"

    def _bounds(self, R: int) -> tuple[float, float]:
        return self.gradient_bound, min(self.bias_bound, sqrt(R))

    def release(self, R: int) -> PlannedRelease:
        planned = Ascent.release(self, R)
        if not self.private:
            return planned
        # Two parts of norm at most 1: same mu as two releases in the paper.
        return replace(planned, clip=sqrt(2.0) if self._by_time_point else self.subject_bound)

    def query(self, state: Unmixing) -> SubjectQuery:
        release = self.release(len(state.b))

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):
                rows = self._gradients(state, stack)
                # An absent subject is one of zeros; most are told by their first time point.
                for m in np.flatnonzero(~np.any(stack[:, :, 0], axis=1)):
                    if not np.any(stack[m]):
                        rows[m] = 0.0
                return clip_rows(rows, release.clip)

        return release.query(answer)

    def _gradients(self, state: Unmixing, stack: Data) -> Array:
        """Rows [G_m ; h_m] of every subject; over their bounds where time points are clipped."""
        if not self._by_time_point:
            return relative_gradients(state.W, state.b, stack).rows
        scale_G, scale_h = bounds = self._bounds(len(state.b))
        moments = clipped_gradients(state.W, state.b, stack, bounds)
        moments.matrix[...] /= scale_G
        moments.vector[...] /= scale_h
        return moments.rows

    def step(self, state: Unmixing, mean: Array, noise_std: float) -> Unmixing:
        G, h = split_mean(mean, len(state.b))
        if self._by_time_point:
            scale_G, scale_h = self._bounds(len(state.b))
            G, h = scale_G * G, scale_h * h
        else:
            G = G @ state.W  # the relative gradient H becomes H W
        look_back = ceil(5.0 / self.learning_rate)
        stop_rule = StopRule(n_rounds=self.n_rounds, look_back=look_back, private=self.private)
        return ascend(state, G, h, stop_rule, mean, noise_std)
