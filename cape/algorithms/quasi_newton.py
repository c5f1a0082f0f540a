"""Default solver: rotations of whitened data, by noisy quasi-Newton steps on the orthogonal group.

Only R (R - 1)/2 numbers per round are unknown: the skew part of the score moment.  Each subject's
vector is clipped far below its usual norm on purpose; a constant curvature absorbs that.
Deviation: replaces Infomax (Alg. 4, lines 3-12, Imtiaz et al.): R^2 + R numbers a round, with a
sensitivity so large that subject-level privacy leaves nothing of the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import (
    NO_STEP,
    UNCLIPPED,
    Array,
    Data,
    Floats,
    PlannedRelease,
    SubjectQuery,
    clip_rows,
    step_record,
)
from cape.algorithms.linalg import polar, skew, skew_exp
from cape.algorithms.unmixing import Step, StopRule, Unmixing, advance
from cape.frozen import dataclass

Score = Literal["volatility", "tanh"]

# kappa_0 = E psi' - E psi y per source, a constant: estimating it would cost R more numbers.
CURVATURE = {"volatility": 0.2, "tanh": 0.09}
NU = 0.3  # offset of the volatility score y / (nu + v)
HALF_WINDOW = 5  # samples on each side in the moving mean v of y^2
MAX_ENTRY = 0.5  # largest angle between two components in one Newton step, before alpha
MAX_DIRECTION = 1.5  # spectral limit of a Newton step, before alpha
LOOK_BACK = 10  # rounds between the matrices whose rows `stability` compares

# Numbers per working array: a few such arrays fit the second-level cache of one core.
_CHUNK = 80_000


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedConstants:
    """Public constants of the default algorithm; functions of G_eff = M mu sqrt(h/S) alone."""

    mu2_weights: tuple[float, float, float]  # parts of mu^2 for PCA, whitening, solver
    n_looks: int  # whitening releases
    whitening_clip: float  # c_W
    clips: tuple[float, ...]  # C_I: one constant, or first and last of a geometric schedule
    step_limit: float  # spectral limit of a step after alpha
    alpha_first: float  # first and last step length, geometric in between
    alpha_last: float


_ROOMY = TunedConstants(
    mu2_weights=(0.27, 0.20, 0.53),
    n_looks=2,
    whitening_clip=4.0,
    clips=(0.35,),
    step_limit=3.0,
    alpha_first=2.0,
    alpha_last=0.3,
)


def tuned_constants(g_eff: float | None) -> TunedConstants:
    """Measured constants for a size and budget; None means no privacy."""
    if g_eff is None:
        # Unclipped moments are curved two to three times as much as kappa_0 says: shorter steps.
        return replace(_ROOMY, step_limit=0.8, alpha_first=1.0)
    if g_eff < 140.0:
        return replace(_ROOMY, mu2_weights=(0.4, 0.2, 0.4), n_looks=1, whitening_clip=2.0)
    if g_eff < 400.0:
        return replace(_ROOMY, clips=(0.2, 0.4), step_limit=0.8)
    return _ROOMY


class Windows:
    """Working arrays for the volatility score of a chunk of subjects, reused chunk by chunk.

    Sums of 11 neighbours come from sums of 2, 4 and 8 over the whole buffer; windows across two
    rows land in 5 free places at both ends.  All terms are positive: float32 keeps 6 digits.
    """

    def __init__(self, shape: tuple[int, int, int], kind: npt.DTypeLike) -> None:
        n_subjects, R, T = shape
        shape = (n_subjects, R, T + 2 * HALF_WINDOW)
        self._padded = np.zeros(shape, dtype=kind)
        self._psi = np.zeros(shape, dtype=kind)
        n = self._padded.size
        self._power, self._pair = np.empty(n, dtype=kind), np.empty(n - 1, dtype=kind)
        self._four, self._window = np.empty(n - 3, dtype=kind), np.empty(n - 10, dtype=kind)
        self.y = self._padded[..., HALF_WINDOW:-HALF_WINDOW]
        self.psi = self._psi[..., HALF_WINDOW:-HALF_WINDOW]

    def score(self) -> None:
        """Fill `psi` with y / (nu + v), divided by 11, from `y`; both (n_subjects, R, T)."""
        h = HALF_WINDOW
        self._padded[..., :h] = self._padded[..., h : h + 1]
        self._padded[..., -h:] = self._padded[..., -h - 1 : -h]
        flat, window = self._padded.reshape(-1), self._window
        n = len(flat)
        np.multiply(flat, flat, out=self._power)
        np.add(self._power[:-1], self._power[1:], out=self._pair)
        np.add(self._pair[:-2], self._pair[2:], out=self._four)
        np.add(self._four[: n - 10], self._four[4 : n - 6], out=window)
        window += self._pair[8 : n - 2]
        window += self._power[10:]
        window += (2 * h + 1) * NU
        np.divide(flat[h:-h], window, out=self._psi.reshape(-1)[h:-h])


def score(y: Floats, name: Score) -> Floats:
    """psi(y) along the last axis of (n_subjects, R, T), elementwise or over a moving window.

    "tanh", or "volatility": y / (nu + v), v the mean of y^2 over 11 samples, border repeated.
    """
    if name == "tanh":
        return np.asarray(np.tanh(y))
    n_subjects, R, T = y.shape
    windows = Windows((n_subjects, R, T), y.dtype)
    windows.y[...] = y
    windows.score()
    return windows.psi * (2 * HALF_WINDOW + 1)


def skew_moments(W: Array, stack: Floats, name: Score) -> Array:
    """Skew part of every subject's score moment, (n_subjects, R (R - 1)/2), float64, not clipped.

    ``K_ij = g_ij - g_ji``, i < j row by row, ``g = psi(y) y'/T``, ``y = W z``: the gradient along
    rotations.  The stack (n_subjects, R, T) is whitened; the work is done in its precision.
    """
    n_subjects, R, T = stack.shape
    W = np.asarray(W, dtype=stack.dtype)
    moments = np.empty((n_subjects, R, R), dtype=stack.dtype)
    step = min(n_subjects, max(1, _CHUNK // (R * T)))
    windows = Windows((step, R, T), stack.dtype)
    for first in range(0, n_subjects, step):
        part = stack[first : first + step]
        # The last chunk may be short: what the working arrays hold beyond it is not read.
        y, psi = windows.y[: len(part)], windows.psi[: len(part)]
        np.matmul(W, part, out=y)
        if name == "volatility":
            windows.score()
        else:
            np.tanh(y, out=psi)
        np.matmul(psi, y.swapaxes(1, 2), out=moments[first : first + step])
    taps = 2 * HALF_WINDOW + 1 if name == "volatility" else 1
    upper, right = np.triu_indices(R, 1)
    difference = moments[:, upper, right].astype(np.float64) - moments[:, right, upper]
    return np.asarray(difference * (taps / T))


@dataclass(frozen=True, kw_only=True, slots=True)
class QuasiNewton:
    """Rotations by noisy Newton steps of annealed length."""

    n_rounds: int  # J, a public constant
    # C_I: one constant, first and last of a geometric schedule, or one per round
    clips: tuple[float, ...]
    step_limit: float  # largest spectral norm of a step alpha_t e
    alpha_first: float  # first and last step length alpha_t, geometric over the rounds
    alpha_last: float
    private: bool  # false: no clipping, and the tolerance may end the run
    score: Score = "volatility"  # {"volatility", "tanh"}
    tolerance: float = 1e-4  # without privacy: stop when no |K_ij| of the mean is larger

    @property
    def input_scale(self) -> float:
        """Factor on the whitened data that W applies to."""
        return 1.0

    def clip(self, done: int) -> float:
        if not self.private:
            return UNCLIPPED
        if len(self.clips) == 2:
            first, last = self.clips
            return float(first * (last / first) ** self._progress(done))
        return self.clips[min(done, len(self.clips) - 1)]

    def _progress(self, done: int) -> float:
        return done / (self.n_rounds - 1) if self.n_rounds > 1 else 0.0

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """J releases of R (R - 1)/2 numbers; mu^2 grows like the root of the round."""
        size = rows * (rows - 1) // 2
        return tuple(
            PlannedRelease(size=size, clip=self.clip(t), shape="ball", weight=float(np.sqrt(t + 1)))
            for t in range(self.n_rounds)
        )

    def start(self, rows: int) -> Unmixing:
        return Unmixing(
            W=np.eye(rows),
            b=np.zeros(rows),
            rho=self.alpha_first,
            round=0,
            anchor=np.eye(rows),
            stability=0.0,
            status="running",
            record=NO_STEP,
        )

    def query(self, state: Unmixing) -> SubjectQuery:
        R = len(state.W)
        bound = self.clip(state.round)

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):
                return clip_rows(skew_moments(state.W, stack, self.score), bound)

        return SubjectQuery(size=R * (R - 1) // 2, clip=bound, shape="ball", answer=answer)

    def step(self, state: Unmixing, mean: Array, noise_std: float) -> Unmixing:
        """W <- polar(expm(alpha e) W), e the limited Newton direction."""
        progress = self._progress(state.round)
        alpha = self.alpha_first * (self.alpha_last / self.alpha_first) ** progress
        rotation = self._direction(mean, len(state.W), alpha)

        def propose(scale: float) -> Step:
            if not np.all(np.isfinite(rotation)):
                return Step(W=rotation, b=state.b)
            return Step(W=polar(skew_exp(scale * rotation) @ state.W), b=state.b)

        record = step_record(mean, noise_std, step_norm=float(np.linalg.norm(rotation)))
        settled = bool(np.max(np.abs(mean), initial=0.0) <= self.tolerance)
        stop_rule = StopRule(n_rounds=self.n_rounds, look_back=LOOK_BACK, private=self.private)
        state = replace(state, rho=alpha)
        return advance(state, propose, stop_rule, settled=settled, record=record)

    def _direction(self, mean: Array, R: int, alpha: float) -> Array:
        """Direction alpha e, skew: e = -K/(2 kappa_0), entries and spectral norm limited."""
        if not np.all(np.isfinite(mean)):
            return np.full((R, R), np.nan)
        entries = np.clip(-mean / (2.0 * CURVATURE[self.score]), -MAX_ENTRY, MAX_ENTRY)
        e = skew(entries, R)
        size = float(np.linalg.norm(e, 2)) if R > 1 else 0.0
        limit = min(MAX_DIRECTION, self.step_limit / alpha)
        return alpha * e * min(1.0, limit / max(size, 1e-12))

    def done(self, state: Unmixing) -> bool:
        return state.round >= self.n_rounds or state.status != "running"
