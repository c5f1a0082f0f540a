"""Second stage: the common whitener U of the reduced data, and the reduction of each subject.

`LogEuclidean` releases the mean logarithm of the subjects' covariances in a few looks.  A solver
then only has to find a rotation.
Deviation: Alg. 4 (Imtiaz et al.) passes V_R' X to Infomax unwhitened.  djICA (Baker et al.) whitens
each site by its own covariance, which makes the mixings of the sites differ.
"""

from dataclasses import field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, UNCLIPPED, Array, Data, OneRelease, PlannedRelease
from cape.algorithms.linalg import smat, svec, sym_exp, sym_log
from cape.frozen import dataclass

Prewhiten = Literal["ar1", "none"]

# Minimum of the covariance eigenvalues in a logarithm (data have unit variance on average)
LOG_FLOOR = 1e-4

# Minimum norm, over the clip, of a released mean that the clip is assumed to have shortened
CLIPPED = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Whitener:
    """Common whitening matrix."""

    U: Array  # (k, k): whitened data are ``U Z0``
    look: int  # releases made
    # (k, k): start of the solver's rounds if `gate` is open; from `spatial_start`, after the last
    # look
    origin: Array = field(default_factory=lambda: np.zeros((0, 0)))
    gate: bool = False
    # Rows of `origin`, from 0, whose maps are sparser than half of those of noise
    sparse: tuple[int, ...] = field(default=(), metadata={"omittable": True})
    # Expected mean square of the remaining log eigenvalues.  The contrast is curved around their
    # axes even without sources, so the verdict has to exceed this.
    residual: float = 0.0
    record: estimators.StepRecord


def reduce_subject(V: Array, Y: npt.NDArray[np.floating], prewhiten: Prewhiten) -> Data:
    """Reduce one subject (d, T) to the subspace V (d, k), filter it and scale it to unit trace."""
    # The shape is (k, T - 1) with "ar1", else (k, T); float32.  One AR(1) coefficient for all
    # channels whitens time courses without changing the mixing.  A subject that is zero or not
    # finite becomes zeros.
    with np.errstate(all="ignore"):
        Z = V.T @ Y.astype(np.float64)
    peak = float(np.max(np.abs(Z), initial=0.0))
    if np.isfinite(peak) and peak > 0.0:
        Z = Z / peak  # so that squares do not overflow
        Z -= Z.mean(axis=1, keepdims=True)
    else:
        Z = np.zeros_like(Z)
    if prewhiten == "ar1":
        power = float(np.vdot(Z, Z))
        phi = float(np.vdot(Z[:, 1:], Z[:, :-1])) / power if power > 0.0 else 0.0
        Z = Z[:, 1:] - phi * Z[:, :-1]
    if Z.shape[1] == 0:
        return np.asarray(Z, dtype=np.float32)  # no time points: 0 in every sum
    power = float(np.vdot(Z, Z)) / Z.shape[1]
    return np.asarray(Z / np.sqrt(power) if power > 0.0 else Z, dtype=np.float32)


def whiten(U: Array, Z0: Data) -> Data:
    """Return ``U Z0`` in float32: (k, T) for one subject, (n_subjects, k, T) for a stack."""
    if U.ndim != 2:  # a third axis would turn one subject into several
        raise ValueError(f"U has shape {U.shape}, needed (k, k)")
    return np.asarray(U.astype(np.float32) @ Z0, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEuclidean(OneRelease[Whitener]):
    """Whitening by the mean logarithm of the subjects' covariances."""

    n_looks: int  # L releases, each on the data as whitened so far
    clip: float  # c_W, Frobenius bound of one subject's log covariance
    private: bool  # false: no clipping, no shrinkage

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        clip = self.clip if self.private else UNCLIPPED
        planned = PlannedRelease(size=rows * (rows + 1) // 2, clip=clip, shape="ball", weight=1.0)
        return (planned,) * self.n_looks

    def start(self, rows: int) -> Whitener:
        one = np.eye(rows)
        return Whitener(U=np.sqrt(float(rows)) * one, look=0, origin=one, record=NO_STEP)

    def query(self, state: Whitener) -> estimators.SubjectQuery:
        release = self.schedule(len(state.U))[0]

        def answer(stack: Data) -> Array:
            rows = np.array([svec(_log_covariance(state.U, Z0)) for Z0 in stack])
            return estimators.clip_rows(rows, release.clip)

        return release.query(answer)

    def step(self, state: Whitener, mean: Array, noise_std: float) -> Whitener:
        """Shrink the released mean logarithm to A (James-Stein), then U <- expm(-A/2) U."""
        energy, noise = float(mean @ mean), noise_std**2 * len(mean)
        shrink = max(0.0, 1.0 - noise / max(energy, 1e-12))
        A = shrink * smat(mean)
        return replace(
            state,
            U=sym_exp(-A / 2.0) @ state.U,
            look=state.look + 1,
            residual=_residual(energy, noise, self.clip) / len(A),
            record=estimators.step_record(
                mean, noise_std, step_norm=float(np.linalg.norm(A) / 2.0)
            ),
        )

    def done(self, state: Whitener) -> bool:
        return state.look >= self.n_looks


def _residual(energy: float, noise: float, clip: float) -> float:
    """Return the expected squared norm of the mean logarithm after a shrunk step."""
    # Energy e and noise n are squared norms.  The shrinkage f = 1 - n/e lets f^2 n of the noise
    # into the step and keeps (1 - f)^2 (e - n) of the mean out of it: together n (1 - (1 - f)^2).
    signal = energy - noise
    if signal <= 0.0:
        return 0.0
    # The clip shortened a mean near it by an unknown amount: assume that the step removed nothing.
    if signal > (CLIPPED * clip) ** 2:
        return energy
    return noise * (1.0 - (noise / energy) ** 2)


def _log_covariance(U: Array, Z0: Data) -> Array:
    """Log covariance (k, k) of a subject; zeros if it is zero or not finite."""
    with np.errstate(all="ignore"):
        Z = U @ Z0.astype(np.float64)
        C = Z @ Z.T / Z.shape[1]
    if not np.all(np.isfinite(C)) or not np.any(C):
        return np.zeros_like(C)
    return sym_log(C, LOG_FLOOR)
