"""Infomax of capeDJICA (Imtiaz et al., Alg. 4), with the printed clip or one per subject.

Data are whitened and scaled by 2 (djICA's sphere, Baker et al.); Z = W X + b 1', the printed 1 - 2
g(Z) is ``Y = -tanh(Z/2)``.  `clip="time_point"` is Alg. 4 to the letter, one joint release of (G,
h); `clip="subject"` bounds a subject's relative gradient: about ten times less noise.  Deviations:
rate .25-.5, not .015/log R, which does not converge in 1000 rounds even without noise; no
annealing, no stopping rule in private runs, where noise alone would drive both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, sqrt
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

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

Clip = Literal["subject", "time_point"]

# Whitened data are doubled: the logistic nonlinearity then starts near its solution.
INPUT_SCALE = 2.0

# B_G as printed; it fits doubled white data only (5 % of the time points clipped at the end).
GRADIENT_BOUND = 30.0

# B_h as printed.
BIAS_BOUND = sqrt(30.0)

# Bound of one subject's relative gradient; its norm is about 1.65 at the solution.
SUBJECT_BOUND = 2.0

RESTART_FACTOR = 0.9  # factor on the learning rate after a blow-up (djICA, Baker et al.)
LEAST_RATE = 1e-6  # a run whose rate has come down to this is given up

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
    if rho <= LEAST_RATE:
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


class Channels:
    """Working arrays (R, n_subjects T), reused chunk by chunk, and their per-subject views.

    Elementwise work runs over long rows; products stay per subject, whatever else is in the chunk.
    """

    def __init__(self, stack: Floats) -> None:
        n_subjects, self.R, self.T = stack.shape
        self.n = min(n_subjects, max(1, _CHUNK // (self.R * self.T)))
        self.kind = stack.dtype

    def pair(self) -> tuple[Floats, Floats]:
        """Make an array, shape (R, n T), and its view, shape (n, R, T)."""
        flat = aligned(self.R * self.n * self.T, self.kind).reshape(self.R, self.n * self.T)
        return flat, flat.reshape(self.R, self.n, self.T).swapaxes(0, 1)


def _operands(W: Array, b: Array, stack: Floats) -> tuple[Floats, Floats, Floats]:
    """W and b for half of z = W (2 x) + b, as tanh(z/2) needs it, and a column of ones."""
    kind = stack.dtype
    half_W = np.asarray(W * (INPUT_SCALE / 2.0), dtype=kind)
    return half_W, np.asarray(b / 2.0, dtype=kind)[:, None], np.ones((stack.shape[2], 1), kind)


def relative_gradients(W: Array, b: Array, stack: Floats) -> Moments:
    """H_m = I + mean_t y z' and h_m = mean_t y of every subject, float64, not clipped.

    W is for doubled data; the stack (n_subjects, R, T), whose precision is used, is not doubled.
    """
    n_subjects, R, T = stack.shape
    half_W, half_b, ones = _operands(W, b, stack)
    H = np.empty((n_subjects, R, R), dtype=stack.dtype)
    h = np.empty((n_subjects, R, 1), dtype=stack.dtype)
    work = Channels(stack)
    (half, half_m), (y, y_m) = work.pair(), work.pair()
    for first in range(0, n_subjects, work.n):
        part = slice(first, first + work.n)
        m = len(stack[part])
        np.matmul(half_W, stack[part], out=half_m[:m])
        half += half_b
        np.tanh(half, out=y)
        np.matmul(y_m[:m], half_m[:m].swapaxes(1, 2), out=H[part])
        np.matmul(y_m[:m], ones, out=h[part])
    moments = _means(H, h, T)
    moments.diagonal[...] += 1.0
    return moments


def clipped_gradients(W: Array, b: Array, stack: Floats, bounds: tuple[float, float]) -> Moments:
    """G_m and h_m of every subject, float64: means of time points clipped one by one.

    Alg. 4, lines 5-8 (Imtiaz et al.): G_n = (I + y z') W divided by max(1, ||G_n||_F/B_G), h_n = y
    by max(1, ||y||/B_h); `bounds` is (B_G, B_h), the rest as in `relative_gradients`.
    """
    n_subjects, R, T = stack.shape
    half_W, half_b, ones = _operands(W, b, stack)
    gram, energy = np.asarray(W @ W.T, dtype=stack.dtype), float(np.vdot(W, W))
    sums = np.empty((n_subjects, R, R), dtype=stack.dtype)
    h = np.empty((n_subjects, R, 1), dtype=stack.dtype)
    weights = np.empty(n_subjects)
    work = Channels(stack)
    (half, half_m), (y, y_m), (v, v_m) = work.pair(), work.pair(), work.pair()
    for first in range(0, n_subjects, work.n):
        part = slice(first, first + work.n)
        m = len(stack[part])
        np.matmul(half_W, stack[part], out=half_m[:m])
        half += half_b
        np.tanh(half, out=y)  # minus the y of the paper; half is z/2
        np.matmul(gram, half_m[:m], out=v_m[:m])
        yy = np.einsum("rn,rn->n", y, y)
        # No R x R x N array is built: with v = (W W') z,
        # ||G_n||_F^2 = ||W||_F^2 + 2 y'v + ||y||^2 z'v.
        norm2 = np.einsum("rn,rn->n", half, v) * yy
        norm2 -= np.einsum("rn,rn->n", y, v)
        norm2 *= 4.0
        norm2 += energy
        c = _shrink(norm2, bounds[0])
        # ||y|| < sqrt(R) always, so a larger bound clips nothing.
        c_h = _shrink(yy, bounds[1]) if bounds[1] < sqrt(R) else None
        by_time = ones if c_h is None else c_h.reshape(work.n, T, 1)[:m]
        np.matmul(y_m[:m], by_time, out=h[part])
        weights[part] = c.reshape(work.n, T)[:m].sum(axis=1, dtype=np.float64)
        y *= c
        np.matmul(y_m[:m], half_m[:m].swapaxes(1, 2), out=sums[part])
    moments = _means(sums, h, T)
    moments.diagonal[...] += (weights / T)[:, None]
    moments.matrix[...] = moments.matrix @ W
    return moments


def _means(H: Floats, h: Floats, T: int) -> Moments:
    """-2/T H and -1/T h in float64, from sums over time (n_subjects, R, R) and (n_subjects, R, 1).

    Straight into the rows of an answer: passes over these took up to a twentieth of a round.
    """
    n_subjects, R, _ = H.shape
    moments = Moments(rows=np.empty((n_subjects, R * R + R)), R=R)
    np.multiply(H, -2.0 / T, out=moments.matrix, dtype=np.float64)
    np.divide(h[..., 0], -T, out=moments.vector, dtype=np.float64)
    return moments


def _shrink(norm2: Floats, bound: float) -> Floats:
    """min(1, bound/norm) from squared norms."""
    kind = norm2.dtype.type
    norm = np.sqrt(np.maximum(norm2, kind(1e-30)))
    return np.asarray(np.minimum(kind(1.0), kind(bound) / norm))


def _absent(stack: Floats) -> npt.NDArray[np.bool_]:
    absent: npt.NDArray[np.bool_] = np.logical_not(np.any(stack[:, :, 0], axis=1))
    for m in np.flatnonzero(absent):
        absent[m] = not np.any(stack[m])
    return absent


@dataclass(frozen=True, kw_only=True, slots=True)
class Infomax:
    """Gradient ascent of the Infomax likelihood (Imtiaz et al., Alg. 4)."""

    n_rounds: int  # J, a public constant
    learning_rate: float  # rho; .25 to .5 on doubled white data
    clip: Clip  # what is bounded: a subject's [H_m ; h_m], or each time point's gradient
    subject_bound: float  # L2 bound of [H_m ; h_m] with ``clip="subject"``
    gradient_bound: float  # B_G with ``clip="time_point"``
    bias_bound: float  # B_h.  Deviation: counts as min(B_h, sqrt R), which ||y|| never exceeds
    private: bool  # false: no clipping, and the tolerance may end the run
    # Without privacy: stop when ||H W||_F falls to this.  Deviation: Alg. 4 tests ||Delta_W||^2,
    # which a small rho passes at once.
    tolerance: float = 2e-3

    def after(self, released: Subspace | None, whitened: Whitener | None) -> Infomax:
        """Return this solver: its rounds begin at W = I, whatever was released before."""
        return self

    @property
    def _by_time_point(self) -> bool:
        # Without clips both forms give the same step; the relative one is cheaper.
        return self.private and self.clip == "time_point"

    def _bounds(self, R: int) -> tuple[float, float]:
        return self.gradient_bound, min(self.bias_bound, sqrt(R))

    def _release(self, R: int) -> PlannedRelease:
        bound = self.subject_bound
        if self._by_time_point:
            bound = sqrt(2.0)  # two parts of norm at most 1: same mu as two releases in the paper
        elif not self.private:
            bound = UNCLIPPED
        return PlannedRelease(size=R * R + R, clip=bound, shape="ball", weight=1.0)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (self._release(rows),) * self.n_rounds

    def start(self, rows: int) -> Unmixing:
        return beginning(rows, self.learning_rate)

    def query(self, state: Unmixing) -> SubjectQuery:
        R = len(state.b)
        release = self._release(R)

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):
                rows = self._gradients(state, stack)
                rows[_absent(stack)] = 0.0
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
        """W += rho G, b += rho h (Alg. 4, lines 10-11)."""
        G, h = self.gradient(state, mean)
        size = float(np.linalg.norm(G))
        rho = state.rho

        def propose(scale: float) -> Step:
            return Step(W=state.W + scale * rho * G, b=state.b + scale * rho * h)

        record = step_record(mean, noise_std, step_norm=rho * size)
        look_back = ceil(5.0 / self.learning_rate)
        stop_rule = StopRule(n_rounds=self.n_rounds, look_back=look_back, private=self.private)
        settled = size <= self.tolerance
        return advance_or_restart(state, propose, stop_rule, settled=settled, record=record)

    def gradient(self, state: Unmixing, mean: Array) -> tuple[Array, Array]:
        """G and h, (R, R) and (R,), from what was released."""
        R = len(state.b)
        G, h = mean[: R * R].reshape(R, R), mean[R * R :]
        if self._by_time_point:
            scale_G, scale_h = self._bounds(R)
            G, h = scale_G * G, scale_h * h
        else:
            G = G @ state.W  # the relative gradient H becomes H W
        return G, h

    def done(self, state: Unmixing) -> bool:
        return state.round >= self.n_rounds or state.status != "running"
