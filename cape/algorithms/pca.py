"""First stage: the common subspace V of all subjects, from one private mean of d x d matrices.

`ProjectorPca` (default) averages the projectors on each subject's own leading subspace: every
direction of a subject weighs the same and the norm is sqrt(R), so nothing needs a clip bound.
`CovariancePca` is capePCA (Imtiaz et al., Alg. 3), clipped per subject instead of per time point.

Subjects arrive as Y_m = B' X_m, shape (d, T_m) float32, time mean removed, covariance of trace 1.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from cape.algorithms.estimators import (
    UNCLIPPED,
    Array,
    Data,
    PlannedRelease,
    StepRecord,
    SubjectQuery,
)
from cape.algorithms.linalg import clip_rows, smat, svec, top_eigenspace
from cape.frozen import dataclass

SubspaceStatus = Literal["pending", "gap", "reduced", "no_gap", "unguarded"]

RANK_TOLERANCE = 1e-7
"""Eigenvalues of a subject below this share of the trace are rounding, not directions."""

NUMERICAL_RANK = 1e-6
"""Without noise: eigenvalues of the mean below this share of the largest are no directions."""

MIN_GAP = 0.15
"""A spectral gap counts from this share of the noise edge on (measured: true gaps .2 and more)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subspace:
    """Common subspace of all subjects; everything here is released or follows from it.

    Attributes
    ----------
    V : ndarray, shape (d, k)
        Orthonormal columns; k <= n_components after the rank guard.
    eigenvalues : ndarray, shape (d,)
        Of the released mean, descending.
    edge : float
        Top of the spectrum of the noise alone, ``2 sigma_off sqrt(d)``; 0 without noise.
    gap_ratio : float
        Largest drop between neighbouring eigenvalues near n_components, over `edge` (0 if none).
    noise_std : float
        Std of the noise on each svec entry of the mean.
    status : {"pending", "gap", "reduced", "no_gap", "unguarded"}
        "gap": clear gap at n_components; "reduced": the guard chose fewer; "no_gap": R may be too
        large or the budget too small; "unguarded": the guard does not apply.
    record : StepRecord
    """

    V: Array
    eigenvalues: Array
    edge: float
    gap_ratio: float
    noise_std: float
    status: SubspaceStatus
    record: StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """Outcome of the rank guard: k directions kept, and why."""

    k: int
    gap_ratio: float
    status: SubspaceStatus


def rank_guard(eigenvalues: Array, n_components: int, edge: float) -> Rank:
    """Choose how many directions to keep from the released spectrum; costs no budget.

    Fitting more components than the data have is the most harmful setting: the surplus directions
    are noise, and whitening blows them up.  The largest drop l_j - l_(j+1) over
    floor(R/2) <= j <= R decides if it is at least .15 of the noise edge.

    Parameters
    ----------
    eigenvalues : ndarray, shape (d,)
        Descending.
    n_components : int
        R asked for.
    edge : float
        Top of the noise spectrum, 0 without noise.

    Returns
    -------
    Rank
    """
    R = n_components
    if edge <= 0.0:
        # Deviation: without noise there is no edge to compare with; only rounding is cut off.
        real = int(np.count_nonzero(eigenvalues[:R] > NUMERICAL_RANK * eigenvalues[0]))
        k = max(1, real)
        return Rank(k=k, gap_ratio=0.0, status="unguarded" if k == R else "reduced")
    if len(eigenvalues) <= R:
        return Rank(k=R, gap_ratio=0.0, status="unguarded")
    first = max(1, R // 2)
    drops = eigenvalues[first - 1 : R] - eigenvalues[first : R + 1]
    best = int(np.argmax(drops))
    ratio = float(drops[best]) / edge
    if ratio < MIN_GAP:
        return Rank(k=R, gap_ratio=ratio, status="no_gap")
    k = first + best
    return Rank(k=k, gap_ratio=ratio, status="gap" if k == R else "reduced")


def leading_projector(Y: Array, n_components: int) -> Array:
    """Return the projector on the leading directions of one subject.

    Parameters
    ----------
    Y : ndarray, shape (d, T)
        Time mean removed.
    n_components : int
        Largest rank R.

    Returns
    -------
    ndarray, shape (d, d)
        U U', formed as a Gram product (positive semidefinite, norm sqrt(rank)); zeros when Y is
        zero or not finite.
    """
    d, T = Y.shape
    peak = float(np.max(np.abs(Y), initial=0.0))
    if not np.isfinite(peak) or peak == 0.0:
        return np.zeros((d, d))
    Y = Y / peak
    # The smaller Gram matrix has the same nonzero eigenvalues.
    gram = Y.T @ Y if T < d else Y @ Y.T
    values, vectors = np.linalg.eigh(gram)
    top = slice(-min(n_components, len(values)), None)
    kept = values[top] > RANK_TOLERANCE * np.trace(gram)
    U = vectors[:, top][:, kept]
    if T < d:
        U = np.linalg.qr(Y @ U)[0]
    return np.asarray(U @ U.T)


def _initial(rows: int, n_components: int) -> Subspace:
    return Subspace(
        V=np.eye(rows)[:, :n_components].copy(),
        eigenvalues=np.zeros(rows),
        edge=0.0,
        gap_ratio=0.0,
        noise_std=0.0,
        status="pending",
        record=StepRecord(statistic_norm=0.0, noise_norm=0.0, step_norm=0.0),
    )


def _released(mean: Array, noise_std: float, n_components: int) -> Subspace:
    """Top eigenvectors of the released mean (Alg. 3, line 6 of Imtiaz et al.), rank guarded."""
    eigenvalues, vectors = top_eigenspace(smat(mean))
    d = len(eigenvalues)
    # Off-diagonal entries of smat(noise) have std s/sqrt2: semicircle of radius sqrt(2 d) s.
    edge = 2.0 * noise_std / np.sqrt(2.0) * np.sqrt(d)
    rank = rank_guard(eigenvalues, min(n_components, d), edge)
    V = np.ascontiguousarray(vectors[:, : rank.k])
    return Subspace(
        V=V,
        eigenvalues=eigenvalues,
        edge=float(edge),
        gap_ratio=rank.gap_ratio,
        noise_std=noise_std,
        status=rank.status,
        record=StepRecord(
            statistic_norm=float(np.linalg.norm(mean)),
            noise_norm=float(noise_std * np.sqrt(len(mean))),
            step_norm=float(np.sqrt(rank.k)),
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectorPca:
    """Mean of the subjects' projectors on their own top-R subspace.

    Deviation: replaces the second moments of Alg. 3 (Imtiaz et al.), whose eigenvalues span a
    factor of 20 and more, so that weak directions drown in the noise.

    Attributes
    ----------
    n_components : int
        R.
    private : bool
        False: bounds are only there for the integers of the secure sum.
    """

    n_components: int
    private: bool

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """Return the single planned release: svec of a d x d matrix, norm sqrt(R)."""
        clip = float(np.sqrt(self.n_components)) if self.private else UNCLIPPED
        return (PlannedRelease(size=rows * (rows + 1) // 2, clip=clip, shape="psd", weight=1.0),)

    def start(self, rows: int) -> Subspace:
        """Return the state before the release: the first R axes, status "pending"."""
        return _initial(rows, self.n_components)

    def query(self, state: Subspace) -> SubjectQuery:
        """Return the question: the subject's own leading projector."""
        asked = self.schedule(len(state.V))[0]
        return SubjectQuery(
            size=asked.size, clip=asked.clip, shape=asked.shape, answer=self._answer
        )

    def _answer(self, stack: Data) -> Array:
        rows = [svec(leading_projector(Y, self.n_components)) for Y in stack.astype(np.float64)]
        return clip_rows(np.array(rows), self.schedule(stack.shape[1])[0].clip)

    def step(self, state: Subspace, mean: Array, noise_std: float) -> Subspace:
        """Return V, the top eigenvectors of the noisy mean, after the rank guard."""
        return _released(mean, noise_std, self.n_components)

    def done(self, state: Subspace) -> bool:
        """Tell whether the release was made."""
        return state.status != "pending"


@dataclass(frozen=True, kw_only=True, slots=True)
class CovariancePca:
    """capePCA (Imtiaz et al., Alg. 3): mean of second moments, clipped per subject.

    Deviation: Alg. 3 bounds every time point by ||x|| <= 1 and divides by N_s; here the record is a
    subject, its matrix is X_m X_m'/T_m scaled into a Frobenius ball, and the sum is over subjects.

    Attributes
    ----------
    n_components : int
        R.
    clip : float
        Frobenius bound of one subject's matrix, 0 < clip <= 1 (its trace is 1).
    private : bool
        False: no clipping.
    """

    n_components: int
    clip: float
    private: bool

    def __post_init__(self) -> None:
        """Check the clip bound."""
        if not 0.0 < self.clip <= 1.0:
            raise ValueError(f"clip={self.clip}: allowed 0 < clip <= 1 for unit-trace subjects")

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        """Return the single planned release: svec of a d x d matrix, norm `clip`."""
        clip = self.clip if self.private else UNCLIPPED
        return (PlannedRelease(size=rows * (rows + 1) // 2, clip=clip, shape="psd", weight=1.0),)

    def start(self, rows: int) -> Subspace:
        """Return the state before the release: the first R axes, status "pending"."""
        return _initial(rows, self.n_components)

    def query(self, state: Subspace) -> SubjectQuery:
        """Return the question: the subject's second moment (Alg. 3, line 2 of Imtiaz et al.)."""
        asked = self.schedule(len(state.V))[0]
        return SubjectQuery(
            size=asked.size, clip=asked.clip, shape=asked.shape, answer=self._answer
        )

    def _answer(self, stack: Data) -> Array:
        T = stack.shape[2]
        with np.errstate(all="ignore"):  # a subject that is not finite becomes a row of zeros
            rows = [svec(Y @ Y.T / T) for Y in stack.astype(np.float64)]
        return clip_rows(np.array(rows), self.schedule(stack.shape[1])[0].clip)

    def step(self, state: Subspace, mean: Array, noise_std: float) -> Subspace:
        """Return V, the top eigenvectors of the noisy mean (Alg. 3, line 6), rank guarded."""
        return _released(mean, noise_std, self.n_components)

    def done(self, state: Subspace) -> bool:
        """Tell whether the release was made."""
        return state.status != "pending"
