"""Second stage: a common whitener U of the reduced data, and the per-subject reduction before it.

`LogEuclidean` releases the mean logarithm of the subjects' covariances, a few looks.  Solvers then
search rotations.
Deviation: Alg. 4 (Imtiaz et al.) feeds V_R' X to Infomax as it is; djICA (Baker et al.) whitens
every site by its own covariance, which makes the sites' mixings differ.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import (
    NO_STEP,
    UNCLIPPED,
    Array,
    Data,
    PlannedRelease,
    StepRecord,
    SubjectQuery,
    clip_rows,
    step_record,
)
from cape.algorithms.linalg import smat, svec, sym_exp, sym_log
from cape.frozen import dataclass

Prewhiten = Literal["ar1", "none"]

# Smallest covariance eigenvalue used in a logarithm (data have unit variance on average).
LOG_FLOOR = 1e-4

# Share of the clip from which a released mean is taken to be cut by it
CUT = 0.9


@dataclass(frozen=True, kw_only=True, slots=True)
class Whitener:
    """Common whitening matrix."""

    U: Array  # (k, k): whitened data are ``U Z0``
    look: int  # releases made
    # (k, k): where the rounds of the solver begin if `gate` is open; of `spatial_start`, after the
    # last look
    origin: Array = field(default_factory=lambda: np.zeros((0, 0)))
    gate: bool = False
    # Rows of `origin`, from 0, whose maps are sparser than half of those of noise
    sparse: tuple[int, ...] = field(default=(), metadata={"omittable": True})
    # Expected mean square of the log eigenvalues that are left: what a run without anything to
    # separate still has to find, because the contrast is curved around the axes of that rest
    residual: float = 0.0
    record: StepRecord


def reduce_subject(V: Array, Y: npt.NDArray[np.floating], prewhiten: Prewhiten) -> Data:
    """One subject (d, T) in the subspace V (d, k): filtered, scaled to unit trace, float32.

    Shape (k, T - 1) with "ar1", else (k, T).  One AR(1) number for all channels leaves the mixing
    unchanged and whitens time courses.  A subject that is zero or not finite counts as zeros.
    """
    with np.errstate(all="ignore"):
        Z = V.T @ Y.astype(np.float64)
    peak = float(np.max(np.abs(Z), initial=0.0))
    if np.isfinite(peak) and peak > 0.0:
        Z = Z / peak  # no square of a huge number below
        Z -= Z.mean(axis=1, keepdims=True)
    else:
        Z = np.zeros_like(Z)
    if prewhiten == "ar1":
        power = float(np.vdot(Z, Z))
        phi = float(np.vdot(Z[:, 1:], Z[:, :-1])) / power if power > 0.0 else 0.0
        Z = Z[:, 1:] - phi * Z[:, :-1]
    if Z.shape[1] == 0:
        return np.asarray(Z, dtype=np.float32)  # no time point: the zero vector in every sum
    power = float(np.vdot(Z, Z)) / Z.shape[1]
    return np.asarray(Z / np.sqrt(power) if power > 0.0 else Z, dtype=np.float32)


def whiten(U: Array, Z0: Data) -> Data:
    """``U Z0`` in float32: (k, T) for one subject, (n_subjects, k, T) for a stack."""
    if U.ndim != 2:  # an axis more would turn one subject into many
        raise ValueError(f"U has shape {U.shape}, needed (k, k)")
    return np.asarray(U.astype(np.float32) @ Z0, dtype=np.float32)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogEuclidean:
    """Whitening by the mean logarithm of the subjects' covariances."""

    n_looks: int  # L releases, each about the data whitened so far
    clip: float  # c_W, Frobenius bound of one subject's log covariance
    private: bool  # false: no clipping, no shrinkage

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        clip = self.clip if self.private else UNCLIPPED
        planned = PlannedRelease(size=rows * (rows + 1) // 2, clip=clip, shape="ball", weight=1.0)
        return (planned,) * self.n_looks

    def start(self, rows: int) -> Whitener:
        one = np.eye(rows)
        return Whitener(U=np.sqrt(float(rows)) * one, look=0, origin=one, record=NO_STEP)

    def query(self, state: Whitener) -> SubjectQuery:
        release = self.schedule(len(state.U))[0]

        def answer(stack: Data) -> Array:
            rows = np.array([svec(_log_covariance(state.U, Z0)) for Z0 in stack])
            return clip_rows(rows, release.clip)

        return release.query(answer)

    def step(self, state: Whitener, mean: Array, noise_std: float) -> Whitener:
        """Shrink the released mean logarithm (James-Stein), then U <- expm(-A/2) U."""
        energy = float(mean @ mean)
        # A mean that is mostly noise is shrunk strongly: the step goes to 0, not astray.
        shrink = max(0.0, 1.0 - noise_std**2 * len(mean) / max(energy, 1e-12))
        A = shrink * smat(mean)
        record = step_record(mean, noise_std, step_norm=float(np.linalg.norm(A) / 2.0))
        left = _left(energy, noise_std**2 * len(mean), self.clip)
        return replace(
            state,
            U=sym_exp(-A / 2.0) @ state.U,
            look=state.look + 1,
            residual=left / len(A),
            record=record,
        )

    def done(self, state: Whitener) -> bool:
        return state.look >= self.n_looks


def _left(energy: float, noise: float, clip: float) -> float:
    """Return the expected squared norm that a shrunk step leaves of the mean logarithm.

    Energy e and noise n, squared norms.  With the shrink f = 1 - n/e, f^2 n of the noise goes into
    the step and (1 - f)^2 (e - n) of the mean does not: together n (1 - (1 - f)^2).
    """
    signal = energy - noise
    if signal <= 0.0:
        return 0.0
    # A mean near the clip was cut by an unknown amount: assume that all of it is left.
    if signal > (CUT * clip) ** 2:
        return energy
    return noise * (1.0 - (noise / energy) ** 2)


def _log_covariance(U: Array, Z0: Data) -> Array:
    """Log covariance of one subject, shape (k, k); zeros if it is zero or not finite."""
    with np.errstate(all="ignore"):
        Z = U @ Z0.astype(np.float64)
        C = Z @ Z.T / Z.shape[1]
    if not np.all(np.isfinite(C)) or not np.any(C):
        return np.zeros_like(C)
    return sym_log(C, LOG_FLOOR)
