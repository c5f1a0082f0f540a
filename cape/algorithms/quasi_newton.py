"""Default solver: rotations of whitened data, by noisy quasi-Newton steps on the orthogonal group.

A round releases R (R - 1)/2 numbers: the skew part of the score moment.  The clip of each subject's
vector is far below its typical norm on purpose; a constant curvature absorbs that.
Rounds start at W = I with steps of annealed length, or at the spatial components of the released
subspace (`spatial_start`), near the solution, with the steps of a scalar Kalman filter.  They ask
at W turned by a small public angle, the dither; the response to it shows what was found
(`verdict`).
Deviation: replaces Infomax (Alg. 4, lines 3-12, Imtiaz et al.), which releases R^2 + R numbers a
round with a sensitivity so large that subject-level noise drowns the answer.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, Array, Data, PlannedRelease, SubjectQuery, aligned
from cape.algorithms.linalg import above_diagonal, polar, skew, skew_exp
from cape.algorithms.unmixing import Step, StopRule, Unmixing, advance, unit_rows
from cape.algorithms.verdict import judge_run
from cape.frozen import dataclass

if TYPE_CHECKING:  # a round does not pay for its import
    from cape.algorithms.pca import Subspace
    from cape.algorithms.whitening import Whitener

Score = Literal["volatility", "tanh"]

# kappa_0 = E psi' - E psi y per source: a constant, since estimates would cost R more numbers
CURVATURE = {"volatility": 0.2, "tanh": 0.09}
NU = 0.3  # offset of the volatility score y / (nu + v)
HALF_WINDOW = 5  # samples on each side in the moving mean v of y^2
MAX_ENTRY = 0.5  # bound of the angle between two components in one Newton step, before alpha
MAX_DIRECTION = 1.5  # bound of the spectral norm of a Newton step, before alpha
LOOK_BACK = 10  # rounds between the matrices whose rows `stability` compares

# Numbers per working array, so that the six arrays of the score fit a second-level cache of 1 MiB
# (with 80,000 a round took .4 of the floor longer, bench/kernels.py)
_CHUNK = 41_000


# The filter after a spatial start: std of the initial angle and of a round's change, rad (measured)
START_ANGLE = 0.04
ROUND_ANGLE = 0.005
# Answer per rad off the optimum, as assumed by the filter.  Clipping makes it smaller than 2
# kappa_0: .14 to .28 was measured.  A filter with a larger slope follows the noise.
SLOPE = 0.2
FILTER_LIMIT = 0.8  # bound of the spectral norm of a step of the filter

# Number of last rounds with a dither after a start at W = I; earlier, W is far from any optimum.
LAST_DITHERED = 20
DITHER_RECIPE = b"cape-dither-1"

# R -> G needed for R networks of any shape, measured before the algorithm was revised; the revised
# one needs .92 of it.  12 R (untested) continues the table above 30.
_DENSE_G = {5: 65.0, 10: 95.0, 15: 140.0, 20: 180.0, 25: 250.0, 30: 345.0}
_REVISED = 0.92
_PER_COMPONENT = 12.0

# Minimum G over sqrt(R) at which the subspace loses no direction
_SUBSPACE = 33.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedConstants:
    """Public constants of the default algorithm; they depend on R and G = M mu sqrt(h/S) alone."""

    mu2_weights: tuple[float, float, float]  # shares of mu^2 for PCA, whitening, solver
    n_looks: int  # whitening releases
    whitening_clip: float  # c_W
    clips: tuple[float, ...]  # C_I: one constant, or first and last of a geometric schedule
    step_limit: float  # bound of the spectral norm of a step after alpha
    alpha_first: float  # first and last step length of a geometric schedule
    alpha_last: float
    dither: float = 0.0  # delta, angle of each pair in dithered rounds


_ROOMY = TunedConstants(
    mu2_weights=(0.27, 0.20, 0.53),
    n_looks=2,
    whitening_clip=4.0,
    clips=(0.35,),
    step_limit=3.0,
    alpha_first=2.0,
    alpha_last=0.3,
    dither=0.03,
)


def dense_g(n_components: int) -> float:
    """Return the minimum G for R networks of any shape; linear between measured R."""
    if n_components > max(_DENSE_G):
        return _REVISED * _PER_COMPONENT * n_components
    return _REVISED * float(np.interp(n_components, list(_DENSE_G), list(_DENSE_G.values())))


def subspace_g(n_components: int) -> float:
    """Return the minimum G at which the released subspace holds all of R directions."""
    return _SUBSPACE * math.sqrt(n_components)


def tuned_constants(n_components: int, g: float | None) -> TunedConstants:
    """Return the measured constants for R components and G; None means no privacy."""
    R = n_components
    if g is None:
        # Unclipped moments have two to three times the curvature kappa_0, hence shorter steps.
        return replace(_ROOMY, step_limit=0.8, alpha_first=1.0, dither=0.0)
    # Clips were measured at R = 20; norms of the answers grow with R.  If the whitening clip shrank
    # as fast for small R, two looks could not reach the common mean.
    solver_scale = math.sqrt(R * (R - 1) / 380.0)
    whitening_scale = (R * (R + 1) / 420.0) ** 0.25
    dense, directions = dense_g(R), subspace_g(R)
    constant = replace(_ROOMY, whitening_clip=4.0 * whitening_scale, clips=(0.35 * solver_scale,))
    rising = replace(constant, clips=(0.2 * solver_scale, 0.4 * solver_scale), step_limit=0.8)
    if g < max(0.85 * dense, min(dense, directions)):
        # Only sparse maps can be found, and the subspace is what limits them.
        return replace(
            constant,
            mu2_weights=(0.55, 0.30, 0.15),
            whitening_clip=3.0 * whitening_scale,
            dither=0.06,
        )
    if g < directions:
        # Few components: rounds find maps of any shape, but the subspace still loses directions.
        return replace(rising, mu2_weights=(0.35, 0.25, 0.40), whitening_clip=3.5 * whitening_scale)
    return rising if g < 2.4 * dense else constant


def dither_signs(pair: int, size: int) -> Array:
    """Return signs +-1 of all pairs of components, (size,): bits of SHAKE-256 of a public text."""
    n_bytes = (size + 7) // 8
    drawn = hashlib.shake_256(DITHER_RECIPE + pair.to_bytes(4, "big")).digest(n_bytes)
    bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8), count=size)
    return np.where(bits == 1, 1.0, -1.0)


def turned(W: Array, turn: Array) -> Array:
    """Turn W (R, R) by small angles of all pairs: the Cayley transform, exp(D) to third order."""
    half = np.zeros_like(W)
    half[above_diagonal(len(W))] = turn / 2.0
    half -= half.T
    one = np.eye(len(W))
    return np.asarray(np.linalg.solve(one - half, (one + half) @ W))


def filter_gain(variance: float, angle_noise: float) -> tuple[float, float]:
    """Return the gain of a round and the variance of an angle after it."""
    predicted = variance + ROUND_ANGLE**2
    gain = predicted / (predicted + angle_noise**2)
    return gain, (1.0 - gain) * predicted


class Windows:
    """Working arrays for the score of a chunk of subjects, reused for each chunk."""

    # Sums of 11 neighbours are made of sums of 2, 4 and 8 over the whole buffer.  Windows across
    # two rows fall into the 5 padding samples at both ends.  All terms are positive, so float32
    # keeps 6 digits.

    def __init__(self, shape: tuple[int, int, int], kind: npt.DTypeLike) -> None:
        n_subjects, R, T = shape
        h, shape = HALF_WINDOW, (n_subjects, R, T + 2 * HALF_WINDOW)
        n = math.prod(shape)
        self._flat, self._flat_psi = aligned(n, kind), aligned(n, kind, at=h)
        self._power, self._pair = aligned(n, kind), aligned(n - 1, kind)
        self._four, self._window = aligned(n - 3, kind), aligned(n - 10, kind)
        self._padded = self._flat.reshape(shape)
        self.y = self._padded[..., h:-h]
        self.psi = self._flat_psi.reshape(shape)[..., h:-h]

    def tanh(self) -> None:
        h = HALF_WINDOW
        # Including the zeros between two rows.
        np.tanh(self._flat[h:-h], out=self._flat_psi[h:-h])

    def score(self) -> None:
        """Fill `psi` with y / (nu + v) / 11."""
        h = HALF_WINDOW
        self._padded[..., :h] = self._padded[..., h : h + 1]
        self._padded[..., -h:] = self._padded[..., -h - 1 : -h]
        flat, window = self._flat, self._window
        n = len(flat)
        np.multiply(flat, flat, out=self._power)
        np.add(self._power[:-1], self._power[1:], out=self._pair)
        np.add(self._pair[:-2], self._pair[2:], out=self._four)
        np.add(self._four[: n - 10], self._four[4 : n - 6], out=window)
        window += self._pair[8 : n - 2]
        window += self._power[10:]
        window += (2 * h + 1) * NU
        np.divide(flat[h:-h], window, out=self._flat_psi[h:-h])


@functools.lru_cache(maxsize=4)
def _mirrored(R: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return the indices of ij and ji, i < j row by row, in a flat (R, R) matrix."""
    upper, right = np.triu_indices(R, 1)
    return upper * R + right, right * R + upper


def skew_moments(W: Array, stack: estimators.Floats, name: Score) -> Array:
    """Skew part of each subject's score moment, (n_subjects, R (R - 1)/2), float64, not clipped."""
    # ``K_ij = g_ij - g_ji``, i < j row by row, ``g = psi(y) y'/T``, ``y = W z``: the gradient along
    # rotations.  The stack (n_subjects, R, T) is whitened, and products are in its precision.
    n_subjects, R, T = stack.shape
    W = np.asarray(W, dtype=stack.dtype)
    moments = np.empty((n_subjects, R, R), dtype=stack.dtype)
    step = min(n_subjects, max(1, _CHUNK // (R * T)))
    windows = Windows((step, R, T), stack.dtype)
    # One product per subject: a wide product over several is faster, but in some BLAS kernels the
    # last bit of a column depends on its position (docs/decisions.md).
    for first in range(0, n_subjects, step):
        part = stack[first : first + step]
        # The last chunk may be shorter than the working arrays.
        y, psi = windows.y[: len(part)], windows.psi[: len(part)]
        np.matmul(W, part, out=y)
        if name == "volatility":
            windows.score()
        else:
            windows.tanh()
        np.matmul(psi, y.swapaxes(1, 2), out=moments[first : first + step])
    taps = 2 * HALF_WINDOW + 1 if name == "volatility" else 1
    flat, (upper, lower) = moments.reshape(n_subjects, R * R), _mirrored(R)
    difference = flat.take(upper, axis=1).astype(np.float64)
    difference -= flat.take(lower, axis=1)
    difference *= taps / T
    return difference


@dataclass(frozen=True, kw_only=True, slots=True)
class QuasiNewton(estimators.OneRelease[Unmixing]):
    """Rotations by noisy Newton steps: of annealed length, or of a filter after a spatial start."""

    n_rounds: int  # J, a public constant
    clips: tuple[float, ...]  # C_I: one constant, or first and last of a geometric schedule
    step_limit: float  # bound of the spectral norm of a step alpha_t e
    alpha_first: float  # first and last step length alpha_t, geometric over the rounds
    alpha_last: float
    private: bool  # false: no clipping, and the tolerance may end the run
    score: Score = "volatility"
    tolerance: float = 1e-4  # without privacy: stop if no |K_ij| of the mean is larger
    dither: float = 0.0  # delta; 0: no dither and no verdict
    # (k, k): start of the rounds if the gate of the spatial start is open; released
    origin: Array | None = None
    residual: float = 0.0  # that of whitening, see `Whitener`
    # For the verdict: what subjects have in common, and which maps were sparse at the start
    subspace: Subspace | None = None
    whitened: Whitener | None = None
    of_projectors: bool = True  # whether eigenvalues of the subspace are mean squared cosines

    def after(self, released: Subspace | None, whitened: Whitener | None) -> QuasiNewton:
        return replace(
            self,
            subspace=released,
            whitened=whitened,
            origin=whitened.origin if whitened is not None and whitened.gate else None,
            residual=whitened.residual if whitened is not None else 0.0,
        )

    def _common(self, W: Array) -> Array | None:
        """Share of each component (k,) that subjects have in common; None if unknown."""
        # The smaller share of two: of its map, ``(W U)^-1``, and of the white directions that give
        # its time course.  A small error of W fills the map of a weak component with networks, but
        # not its course.
        if self.subspace is None or self.whitened is None or not self.of_projectors:
            return None
        rows, U = unit_rows(W), self.whitened.U
        maps, white = np.linalg.inv(rows @ U), U / np.linalg.norm(U, axis=0)
        parts = (np.asarray(maps), np.asarray(white.T @ rows.T))
        return np.minimum(*(self.subspace.common(part) for part in parts))

    def clip(self, done: int) -> float:
        if not self.private:
            return estimators.UNCLIPPED
        first, last = self.clips[0], self.clips[-1]
        return float(first * (last / first) ** self._progress(done))

    def _progress(self, done: int) -> float:
        return done / (self.n_rounds - 1) if self.n_rounds > 1 else 0.0

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        size = rows * (rows - 1) // 2  # mu^2 is proportional to the root of the round
        return tuple(
            PlannedRelease(size=size, clip=self.clip(t), shape="ball", weight=float(np.sqrt(t + 1)))
            for t in range(self.n_rounds)
        )

    def start(self, rows: int) -> Unmixing:
        W = np.eye(rows) if self.origin is None else self.origin
        return Unmixing(
            W=W,
            b=np.zeros(rows),
            rho=self.alpha_first,
            round=0,
            anchor=W,
            stability=0.0,
            status="running",
            variance=START_ANGLE**2,
            response=np.zeros(rows * (rows - 1) // 2),
            record=NO_STEP,
        )

    def turn(self, done: int, size: int) -> Array | None:
        """Public angles (size,) of all pairs by which round `done` (from 0) turns W, or None."""
        # Two consecutive rounds have opposite angles, so that constant terms cancel.
        first = 0 if self.origin is not None else max(0, self.n_rounds - LAST_DITHERED)
        if self.dither <= 0.0 or done < first:
            return None
        pair, second = divmod(done - first, 2)
        return (-self.dither if second else self.dither) * dither_signs(pair, size)

    def query(self, state: Unmixing) -> SubjectQuery:
        R = len(state.W)
        size, bound = R * (R - 1) // 2, self.clip(state.round)

        @functools.cache  # the same for all stacks; not needed if only the size is asked
        def turned_W() -> Array:
            turn = self.turn(state.round, size)
            return state.W if turn is None else turned(state.W, turn)

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):
                return estimators.clip_rows(skew_moments(turned_W(), stack, self.score), bound)

        return SubjectQuery(size=size, clip=bound, shape="ball", answer=answer)

    def step(self, state: Unmixing, mean: Array, noise_std: float) -> Unmixing:
        """W <- polar(expm(E) W), E the bounded Newton direction times its gain."""
        R, turn = len(state.W), self.turn(state.round, len(mean))
        before = state
        if self.origin is None:
            progress = self._progress(state.round)
            gain = self.alpha_first * (self.alpha_last / self.alpha_first) ** progress
            limit = gain * min(MAX_DIRECTION, self.step_limit / gain)
            slope = 2.0 * CURVATURE[self.score]
            state = replace(state, rho=gain)
        else:
            gain, variance = filter_gain(state.variance, noise_std / SLOPE)
            limit, slope = FILTER_LIMIT, SLOPE
            state = replace(state, rho=gain, variance=variance)
        rotation = _rotation(mean / slope, R, gain, limit)

        def propose(scale: float) -> Step:
            if not np.all(np.isfinite(rotation)):
                return Step(W=rotation, b=state.b)
            return Step(W=polar(skew_exp(scale * rotation) @ state.W), b=state.b)

        record = estimators.step_record(mean, noise_std, step_norm=float(np.linalg.norm(rotation)))
        settled = bool(np.max(np.abs(mean), initial=0.0) <= self.tolerance)
        stop_rule = StopRule(n_rounds=self.n_rounds, look_back=LOOK_BACK, private=self.private)
        state = advance(state, propose, stop_rule, settled=settled, record=record)
        if turn is not None and state.status != "diverged":
            state = replace(
                state,
                response=before.response + turn * mean / noise_std**2,
                information=before.information + (self.dither / noise_std) ** 2,
            )
        if state.status == "not_judged" and self.dither > 0.0:
            verdict = judge_run(
                state.response,
                state.information,
                n_components=R,
                gate=self.origin is not None,
                dither=self.dither,
                residual=self.residual,
                sparse=() if self.whitened is None else self.whitened.sparse,
                common=self._common(state.W),
                overlap=1.0 if self.subspace is None else self.subspace.overlap,
            )
            state = replace(state, status=verdict.status, confirmed=verdict.confirmed)
            if self.origin is not None and verdict.status == "unconfirmed":
                # Without temporal evidence, keep the start.
                state = replace(state, W=self.origin)
        return state

    def done(self, state: Unmixing) -> bool:
        return state.round >= self.n_rounds or state.status != "running"


def _rotation(angles: Array, R: int, gain: float, limit: float) -> Array:
    """Return E = gain e (R, R) for e = -angles of all pairs, with bounds on e and the norm of E."""
    if not np.all(np.isfinite(angles)):
        return np.full((R, R), np.nan)
    e = skew(np.clip(-angles, -MAX_ENTRY, MAX_ENTRY), R)
    size = float(np.linalg.norm(e, 2)) if R > 1 else 0.0
    return gain * e * min(1.0, limit / gain / max(size, 1e-12))
