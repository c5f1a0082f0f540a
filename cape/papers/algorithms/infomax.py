"""Infomax of capeDJICA (Imtiaz et al., Alg. 4), with the printed clip or one per subject.

Data are whitened and doubled (djICA's sphere, Baker et al.); Z = W X + b 1', and the printed 1 - 2
g(Z) is ``Y = -tanh(Z/2)``.  `clip="time_point"` is the printed Alg. 4, with one joint release of
(G, h).  `clip="subject"` bounds a subject's relative gradient, with about ten times less noise.

Deviations: the rate is .25 to .5; .015/log R does not converge in 1000 rounds even without noise.
Private runs neither anneal nor stop early, because noise alone would decide both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, sqrt
from typing import Literal, TypeVar

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, UNCLIPPED, Array, Data, Floats, PlannedRelease
from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Step, StopRule, Unmixing, advance, status_after
from cape.algorithms.whitening import Whitener
from cape.frozen import dataclass

# With doubled white data the logistic nonlinearity starts near its solution.
INPUT_SCALE = 2.0

# B_G as printed; on doubled white data it clips 5 % of the time points at the solution.
GRADIENT_BOUND = 30.0

# B_h as printed.
BIAS_BOUND = sqrt(30.0)

# Bound of one subject's relative gradient; its norm is about 1.65 at the solution.
SUBJECT_BOUND = 2.0

RESTART_FACTOR = 0.9  # of the learning rate after divergence (djICA, Baker et al.)
MIN_RATE = 1e-6  # at which a run counts as diverged
# Runs without privacy stop at this ||H W||_F.  Deviation: Alg. 4 tests ||Delta_W||^2, which is
# small at once for a small rho.
TOLERANCE = 2e-3

# Numbers per working array, so that a few arrays fit the second-level cache of one core
_CHUNK = 160_000

State = TypeVar("State", bound=Unmixing)


def beginning(rows: int, rho: float) -> Unmixing:
    """Return the first state: W = I, b = 0 (Alg. 4, line 1, Imtiaz et al.)."""
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


def restart(state: State, record: estimators.StepRecord) -> State | None:
    """Return the state to continue from after divergence; None below the minimal rate."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Means over time: per subject one row, an R x R matrix and then a vector."""

    rows: Array  # (n_subjects, R R + R)
    R: int

    @property
    def matrix(self) -> Array:
        """Return a view (n_subjects, R, R)."""
        return self.rows[:, : self.R**2].reshape(-1, self.R, self.R)

    @property
    def vector(self) -> Array:
        """Return a view (n_subjects, R)."""
        return self.rows[:, self.R**2 :]

    @property
    def diagonal(self) -> Array:
        """Return a view of the matrices' diagonals, (n_subjects, R)."""
        return self.rows[:, : self.R**2 : self.R + 1]


class Halves:
    """z/2 and y = tanh(z/2), z = W (2 x) + b, of a stack (n_subjects, R, T), chunk by chunk."""

    # Precision is that of the stack.  Working arrays (R, n T) are reused: elementwise work runs
    # over long rows.  Products are per subject, so results do not depend on the chunk.

    def __init__(self, W: Array, b: Array, stack: Floats) -> None:
        self.stack, kind = stack, stack.dtype
        n_subjects, self.R, self.T = stack.shape
        self.n = min(n_subjects, max(1, _CHUNK // (self.R * self.T)))
        self._W = np.asarray(W * (INPUT_SCALE / 2.0), dtype=kind)
        self._b = np.asarray(b / 2.0, dtype=kind)[:, None]
        (self.z, self.z_m), (self.y, self.y_m) = self.pair(), self.pair()
        self.ones = np.ones((self.T, 1), kind)
        # Callers fill in the sums over time of y z'/2 and of y for every subject.
        self.H = np.empty((n_subjects, self.R, self.R), dtype=kind)
        self.h = np.empty((n_subjects, self.R, 1), dtype=kind)

    def pair(self) -> tuple[Floats, Floats]:
        """Return a new array (R, n T) and its view (n, R, T)."""
        flat = estimators.aligned(self.R * self.n * self.T, self.stack.dtype).reshape(self.R, -1)
        return flat, flat.reshape(self.R, self.n, self.T).swapaxes(0, 1)

    def __iter__(self) -> Iterator[tuple[slice, int]]:
        """Fill the arrays chunk by chunk; yield the slice of subjects and their number."""
        for first in range(0, len(self.stack), self.n):
            part = slice(first, first + self.n)
            m = len(self.stack[part])
            np.matmul(self._W, self.stack[part], out=self.z_m[:m])
            self.z += self._b
            np.tanh(self.z, out=self.y)  # minus the y of the paper
            yield part, m

    def means(self) -> Moments:
        """Return -2/T H and -1/T h in float64."""
        # Write into the rows of the answer: copies took up to a twentieth of a round.
        moments = Moments(rows=np.empty((len(self.H), self.R * (self.R + 1))), R=self.R)
        np.multiply(self.H, -2.0 / self.T, out=moments.matrix, dtype=np.float64)
        np.divide(self.h[..., 0], -self.T, out=moments.vector, dtype=np.float64)
        return moments


def relative_gradients(W: Array, b: Array, stack: Floats) -> Moments:
    """Return unclipped H_m = I + mean_t y z' and h_m = mean_t y of every subject, float64."""
    # W is for doubled data, the stack (n_subjects, R, T) is not doubled and sets the precision.
    work = Halves(W, b, stack)
    for part, m in work:
        np.matmul(work.y_m[:m], work.z_m[:m].swapaxes(1, 2), out=work.H[part])
        np.matmul(work.y_m[:m], work.ones, out=work.h[part])
    moments = work.means()
    moments.diagonal[...] += 1.0
    return moments


def clipped_gradients(W: Array, b: Array, stack: Floats, bounds: tuple[float, float]) -> Moments:
    """Return means G_m and h_m over clipped time points, of every subject, float64.

    Alg. 4, lines 5-8 (Imtiaz et al.): G_n = (I + y z') W is divided by max(1, ||G_n||_F/B_G), h_n =
    y by max(1, ||y||/B_h).  `bounds` is (B_G, B_h); W and stack as in `relative_gradients`.
    """
    gram, energy = np.asarray(W @ W.T, dtype=stack.dtype), float(np.vdot(W, W))
    weights = np.empty(len(stack))
    work = Halves(W, b, stack)
    v, v_m = work.pair()
    for part, m in work:
        y = work.y
        np.matmul(gram, work.z_m[:m], out=v_m[:m])
        yy = np.einsum("rn,rn->n", y, y)
        # ||G_n||_F^2 = ||W||_F^2 + 2 y'v + ||y||^2 z'v with v = (W W') z needs no R x R x N array.
        norm2 = np.einsum("rn,rn->n", work.z, v) * yy
        norm2 -= np.einsum("rn,rn->n", y, v)
        norm2 *= 4.0
        norm2 += energy
        c = _shrink(norm2, bounds[0])
        # ||y|| < sqrt(R): a larger bound has no effect.
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
    """Return min(1, bound/norm) from squared norms."""
    kind = norm2.dtype.type
    norm = np.sqrt(np.maximum(norm2, kind(1e-30)))
    return np.asarray(np.minimum(kind(1.0), kind(bound) / norm))


@dataclass(frozen=True, kw_only=True, slots=True)
class Ascent:
    """Base of all Infomax solvers; by default answers are not clipped."""

    n_rounds: int  # J, a public constant
    learning_rate: float  # rho

    def release(self, R: int) -> PlannedRelease:
        """Return the release of one round: R^2 + R numbers."""
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
    """Step W += rho G, b += rho h after a release of `mean` (Imtiaz et al., Alg. 4, lines 10-11).

    After divergence, start again from W = I with a lower rate (line 18); all rounds stay charged.
    """
    size, rho = float(np.linalg.norm(G)), state.rho

    def propose(scale: float) -> Step:
        return Step(W=state.W + scale * rho * G, b=state.b + scale * rho * h)

    record = estimators.step_record(mean, noise_std, step_norm=rho * size)
    after = advance(state, propose, stop_rule, settled=size <= TOLERANCE, record=record)
    if after.status != "diverged" or (again := restart(state, after.record)) is None:
        return after
    return replace(again, status=status_after(again.round, stop_rule, settled=False))


@dataclass(frozen=True, kw_only=True, slots=True)
class Infomax(Ascent, estimators.OneRelease[Unmixing]):
    """Gradient ascent of the Infomax likelihood (Imtiaz et al., Alg. 4); rho .25 to .5."""

    clip: Literal["subject", "time_point"]  # a subject's [H_m ; h_m], or each time point's gradient
    subject_bound: float  # L2 bound of [H_m ; h_m] with ``clip="subject"``
    gradient_bound: float  # B_G with ``clip="time_point"``
    bias_bound: float  # B_h.  Deviation: min(B_h, sqrt R) is used, as ||y|| < sqrt R
    private: bool  # false: no clipping, and the tolerance may end the run

    def after(self, released: Subspace | None, whitened: Whitener | None) -> Infomax:
        """Return this solver: its rounds always begin at W = I."""
        return self

    @property
    def _by_time_point(self) -> bool:
        # Without clipping both forms give the same step; the relative one is cheaper.
        return self.private and self.clip == "time_point"

    def _bounds(self, R: int) -> tuple[float, float]:
        return self.gradient_bound, min(self.bias_bound, sqrt(R))

    def release(self, R: int) -> PlannedRelease:
        planned = Ascent.release(self, R)
        if not self.private:
            return planned
        # Two parts of norm at most 1 have the same mu as the two releases of the paper.
        return replace(planned, clip=sqrt(2.0) if self._by_time_point else self.subject_bound)

    def query(self, state: Unmixing) -> estimators.SubjectQuery:
        release = self.release(len(state.b))

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):
                rows = self._gradients(state, stack)
                # An absent subject is all zeros; the first time point rules out most others.
                for m in np.flatnonzero(~np.any(stack[:, :, 0], axis=1)):
                    if not np.any(stack[m]):
                        rows[m] = 0.0
                return estimators.clip_rows(rows, release.clip)

        return release.query(answer)

    def _gradients(self, state: Unmixing, stack: Data) -> Array:
        """Return rows [G_m ; h_m], divided by their bounds if time points are clipped."""
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
