"""The papers' common subspace from covariances (capePCA), and whitening by its eigenvalues.

Alg. 3 of Imtiaz et al., clipped per subject instead of per time point.  The product averages
projectors and has a separate release for whitening (docs/deviations.md, no. 19).
"""

from typing import ClassVar

import numpy as np

from cape.algorithms.estimators import NO_STEP, Array, OneRelease, PlannedRelease, SubjectQuery
from cape.algorithms.pca import ProjectorPca
from cape.algorithms.whitening import Whitener
from cape.frozen import dataclass

# Smallest usable eigenvalue, as a share of the largest; noise may make eigenvalues negative.
_MIN_EIGENVALUE_SHARE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class CovariancePca(ProjectorPca):
    """capePCA (Imtiaz et al., Alg. 3): mean of second moments, clipped per subject.

    Deviation: the record is a subject, not a time point with ||x|| <= 1.  X_m X_m'/T_m, of trace 1,
    is scaled into a Frobenius ball of radius `clip` <= 1 and summed over subjects.
    """

    clip: float
    within_bound: ClassVar[bool] = False

    @property
    def bound(self) -> float:
        return self.clip

    def matrix(self, Y: Array) -> Array:
        # Alg. 3, line 2 (Imtiaz et al.)
        return np.asarray(Y @ Y.T / Y.shape[1])


def leading_factor(moment: Array, rank: int) -> Array:
    """Return P = U_k Sigma_k^(1/2) (d, k) of a noisy second moment (d, d), leading ones first."""
    # Negative eigenvalues count as 0.  Alg. 1 of DPdisPCA (Imtiaz and Sarwate) and of DP-djICA.
    # Deviation: the authors' scripts use an SVD, which takes a large negative eigenvalue of the
    # noise for a direction (docs/deviations.md, no. 11).
    values, vectors = np.linalg.eigh(moment)
    top = np.argsort(values)[::-1][:rank]
    return np.asarray(vectors[:, top] * np.sqrt(np.maximum(values[top], 0.0)))


def scale_from_eigenvalues(values: Array) -> Array:
    """Return 1/sqrt(share of each eigenvalue), shape (k,), which whitens unit-trace subjects."""
    values = np.maximum(values, max(_MIN_EIGENVALUE_SHARE * float(values[0]), 1e-12))
    return np.asarray(np.sqrt(values.sum() / values))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EigenWhitening(OneRelease[Whitener]):
    """Whitening from the eigenvalues released by `CovariancePca`; needs no round."""

    eigenvalues: Array  # (d,): of the released subspace; empty while planning

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return ()

    def start(self, rows: int) -> Whitener:
        U = np.diag(scale_from_eigenvalues(self.eigenvalues[:rows]))
        return Whitener(U=U, look=0, record=NO_STEP)

    def query(self, state: Whitener) -> SubjectQuery:
        raise ValueError("EigenWhitening makes no release")

    def step(self, state: Whitener, mean: Array, noise_std: float) -> Whitener:
        raise ValueError("EigenWhitening makes no release")

    def done(self, state: Whitener) -> bool:
        return True
