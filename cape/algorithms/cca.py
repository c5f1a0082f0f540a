"""Canonical correlations of two views from one private second moment: capeCCA.

A record is z = [x ; y].  Columns are mapped from public ranges to [-1, 1], each view is divided by
the root of its number of columns, and z is clipped to a public norm, which bounds one subject's
influence on the mean of z z'.  With ``c > 0`` a constant entry c is appended, so that the release
also holds the means, which centre the covariances.  Source: Imtiaz and Sarwate, capeCCA (Alg. 1).
Deviations (docs/deviations.md no. 21): joint scaling; whitened cross-covariance, not an asymmetric
matrix.
"""

from typing import NamedTuple

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.estimators import NO_STEP, Array, Data, OneRelease, PlannedRelease, clip_rows
from cape.algorithms.linalg import smat, svec, top_eigenspace
from cape.frozen import dataclass

# Eigenvalues below this share of the largest are rounding, not variance.
MIN_VARIANCE_SHARE = 1e-9


class Canonical(NamedTuple):
    """Canonical pairs of two views."""

    # Weights: the variates U' x and V' y have unit variance.  The entry of largest magnitude of
    # each column of U is positive.
    U: Array  # (D_x, K)
    V: Array  # (D_y, K)
    correlations: Array  # (K,): descending, in 0..1
    noise_bound: float  # bound of the largest correlation, on average, of the noise alone


def canonical_pairs(
    covariance: Array, n_x: int, n_pairs: int, *, noise_std: float = 0.0, ridge: float = 0.0
) -> Canonical:
    """Canonical pairs of a joint covariance (D, D) of z = [x ; y], symmetric and possibly noisy."""
    # The first `n_x` rows are the first view.  `noise_std` is the noise of an entry off the
    # diagonal. `ridge` is added to the diagonals of C_xx and C_yy, in units of their mean
    # eigenvalue.
    x, y = slice(0, n_x), slice(n_x, len(covariance))
    A = _inverse_root(covariance[x, x], noise_std=noise_std, ridge=ridge)
    B = _inverse_root(covariance[y, y], noise_std=noise_std, ridge=ridge)
    # Deviation: Alg. 1 takes eigenvectors of Cxx^-1 Cxy Cyy^-1 Cyx, the authors' scripts its left
    # singular vectors.  This symmetric form gives the same directions and is stable.
    left, s, right = np.linalg.svd(A @ covariance[x, y] @ B)
    U, V = A @ left[:, :n_pairs], B @ right[:n_pairs].T
    a, b = (float(np.linalg.norm(M, 2)) for M in (A, B))
    peaks = np.argmax(np.abs(U), axis=0)
    signs = np.sign(U[peaks, np.arange(n_pairs)])
    return Canonical(
        U=np.ascontiguousarray(U * signs),
        V=np.ascontiguousarray(V * signs),
        correlations=np.clip(s[:n_pairs], 0.0, 1.0),
        # Chevet's bound of the mean spectral norm of A E B, E of independent standard normals
        noise_bound=noise_std * (a * float(np.linalg.norm(B)) + b * float(np.linalg.norm(A))),
    )


def _inverse_root(C: Array, *, noise_std: float, ridge: float) -> Array:
    """Return C^(-1/2) after raising small eigenvalues."""
    values, vectors = top_eigenspace((C + C.T) / 2.0)
    # Eigenvalues below the edge of the noise, 2 noise_std sqrt(D) (semicircle law), are noise, and
    # their inverse roots would be huge.
    values = values + ridge * max(float(np.mean(values)), 0.0)
    largest = max(float(values[0]), np.finfo(float).tiny)
    floor = max(2.0 * noise_std * np.sqrt(len(C)), MIN_VARIANCE_SHARE * largest)
    return np.asarray((vectors / np.sqrt(np.maximum(values, floor))) @ vectors.T)


@dataclass(frozen=True, kw_only=True, slots=True)
class CanonicalState:
    """State of `SecondMomentCca`; released quantities only, in units of the data."""

    U: Array  # (D_x, K)
    V: Array  # (D_y, K)
    correlations: Array  # (K,)
    noise_bound: float  # as in `Canonical`
    mean: Array  # (D,): released means of the columns, or the middles of their ranges
    # (D,): from the released covariance; 0 where noise made the variance negative
    std: Array
    covariance: Array  # (D, D): released, centred
    status: estimators.ReleaseStatus
    record: estimators.StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondMomentCca(OneRelease[CanonicalState]):
    """Canonical pairs of all subjects from one release: the mean of [z ; c] [z ; c]'."""

    low: tuple[float, ...]  # (D,) public ranges of the columns of both views
    high: tuple[float, ...]
    n_x: int  # D_x
    n_pairs: int  # K
    norm_bound: float  # bound of the norm of z, at most 1
    constant: float  # c; 0: the middles of the ranges are the means
    ridge: float  # as in `canonical_pairs`

    def units(self) -> Array:
        """One unit of z in units of each column (D,)."""
        n_y = len(self.low) - self.n_x
        columns = np.where(np.arange(len(self.low)) < self.n_x, self.n_x, n_y)
        half = (np.array(self.high) - np.array(self.low)) / 2.0
        # ||x|| = ||y|| = 1/sqrt 2 if every column is at an end of its range.
        return np.asarray(half * np.sqrt(2.0 * columns))

    def _release(self) -> PlannedRelease:
        # ||z z'||_F = ||z||^2, to which the constant entry adds c^2.
        n = len(self.low) + (1 if self.constant else 0)
        clip = self.norm_bound**2 + self.constant**2
        return PlannedRelease(size=n * (n + 1) // 2, clip=clip, shape="psd", weight=1.0)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return (self._release(),)

    def start(self, rows: int) -> CanonicalState:
        K = self.n_pairs
        return CanonicalState(
            U=np.zeros((self.n_x, K)),
            V=np.zeros((rows - self.n_x, K)),
            correlations=np.zeros(K),
            noise_bound=0.0,
            mean=np.zeros(rows),
            std=np.zeros(rows),
            covariance=np.zeros((rows, rows)),
            status="waiting",
            record=NO_STEP,
        )

    def query(self, state: CanonicalState) -> estimators.SubjectQuery:
        return self._release().query(self._answer)

    def _answer(self, stack: Data) -> Array:
        x = np.asarray(stack, dtype=np.float64)
        usable = np.isfinite(x).all(axis=(1, 2)) & (x.shape[2] > 0)
        x = np.where(usable[:, None, None], x, 0.0)
        low, high = (np.array(ends)[:, None] for ends in (self.low, self.high))
        # Clipping at public ends tells nothing of the values beyond them.
        inside = np.clip(x, low, high).sum(axis=2) / max(1, x.shape[2])
        middle = (np.array(self.low) + np.array(self.high)) / 2.0
        z = clip_rows((inside - middle) / self.units(), self.norm_bound)
        if self.constant:
            z = np.column_stack([z, np.full(len(z), self.constant)])
        moments = svec(z[:, :, None] * z[:, None, :])
        return np.where(usable[:, None], clip_rows(moments, self._release().clip), 0.0)

    def step(self, state: CanonicalState, mean: Array, noise_std: float) -> CanonicalState:
        moment, middle = smat(mean), (np.array(self.low) + np.array(self.high)) / 2.0
        D = len(self.low)
        # The last column holds c times the means.
        m = moment[:D, D] / self.constant if self.constant else np.zeros(D)
        covariance = moment[:D, :D] - np.outer(m, m)
        # svec multiplies entries off the diagonal by sqrt(2).
        std, units = noise_std / np.sqrt(2.0), self.units()
        U, V, correlations, noise_bound = canonical_pairs(
            covariance, self.n_x, self.n_pairs, noise_std=std, ridge=self.ridge
        )
        return CanonicalState(
            U=U / units[: self.n_x, None],
            V=V / units[self.n_x :, None],
            correlations=correlations,
            noise_bound=noise_bound,
            mean=middle + units * m,
            std=units * np.sqrt(np.maximum(np.diagonal(covariance), 0.0)),
            covariance=covariance * np.outer(units, units),
            status="released",
            record=estimators.step_record(
                mean, noise_std, step_norm=float(np.linalg.norm(correlations))
            ),
        )
