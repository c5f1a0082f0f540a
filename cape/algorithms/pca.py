"""First stage: the common subspace V of all subjects, from one private mean of d x d matrices.

`ProjectorPca` averages the projectors on each subject's own leading subspace.  All directions of a
subject have the same weight, and the norm of a projector is sqrt(R), so no clip bound has to be
chosen.

Subjects are Y_m = B' X_m, shape (d, T_m) float32, without their time mean, covariance of trace 1.
"""

import math
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.claims import FoundMaps
from cape.algorithms.estimators import NO_STEP, UNCLIPPED, Array, Data, OneRelease, PlannedRelease
from cape.algorithms.linalg import smat, svec, top_eigenspace
from cape.frozen import dataclass

SubspaceStatus = Literal["pending", "gap", "reduced", "no_gap", "unguarded"]

# Eigenvalues of a subject below this share of the trace are rounding.
_RANK_TOLERANCE = 1e-7

# Minimum size of a matrix whose leading eigenvectors are computed alone: 1.7 times as fast at 250,
# 2 times at 400, no gain at 150 (measured)
_MIN_PARTIAL = 250

# Without noise: eigenvalues of the mean below this share of the largest are rounding.
NUMERICAL_RANK = 1e-6

# Minimum spectral gap, over the noise edge (measured: true gaps have .2 and more)
MIN_GAP = 0.15

# The guard never cuts a direction whose eigenvalue is above this and above the noise of the
# remaining directions: it is common to a third of the subjects, so it is a network.
COMMON = 0.35

# Minimum number of directions to cut, over R.  One or two directions in the noise may be networks
# that an artefact of one site has pushed there (once kept, they came back with r .67 to .85).  If
# they are noise, keeping them costs the other maps .01.
MIN_CUT = 0.15

# Maximum of components for which the guard cuts none
FEW_COMPONENTS = 5


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FreeSet(FoundMaps):
    """Spatial components of a released mean, by the spatial recipe."""

    directions: Array  # (k, n): in the kernel basis of spatial maps, in final order and sign


@dataclass(frozen=True, kw_only=True, slots=True)
class Subspace:
    """Common subspace of all subjects: released quantities, and what follows from them."""

    V: Array  # (d, k): orthonormal columns; k <= n_components after the rank guard
    eigenvalues: Array  # (d,): of the released mean, descending
    edge: float  # largest eigenvalue of the noise alone, ``2 sigma_off sqrt(d)``; 0 without noise
    # Largest drop between neighbouring eigenvalues near n_components, over `edge` (0 if none)
    gap_ratio: float
    noise_std: float  # std of the noise on each svec entry of the mean
    # "gap": clear gap at n_components; "reduced": the guard chose fewer; "no_gap": R may be too
    # large or the budget too small; "unguarded": the guard does not apply
    status: SubspaceStatus
    record: estimators.StepRecord
    # Spatial maps of the same release, for the report only
    free: FreeSet | None = field(default=None, metadata={"omittable": True})

    @property
    def overlap(self) -> float:
        """Overlap of the subjects' own subspaces: 1 if they are all the same."""
        # The norm of the mean projector over sqrt(k), less the expected energy of the noise.
        d, k = self.V.shape
        energy = float(np.sum(self.eigenvalues**2)) - self.noise_std**2 * d * (d + 1) / 2.0
        return math.sqrt(max(0.0, energy) / k)

    def common(self, directions: Array) -> Array:
        """Share of each column of `directions` (k, n) that subjects have in common, shape (n,)."""
        # This is the mean squared cosine with the subjects' own subspaces.  An observed eigenvalue,
        # less the mean of the rest, is x = theta + (edge/2)^2 / theta; inside the noise, theta =
        # x/2.
        k, half = self.V.shape[1], self.edge / 2.0
        rest = self.eigenvalues[k:]
        x = self.eigenvalues[:k] - (float(np.mean(rest)) if rest.size else 0.0)
        spike = (x + np.sqrt(np.maximum(x * x - self.edge**2, 0.0))) / 2.0
        theta = np.where(x > self.edge, spike, np.minimum(x / 2.0, half))
        weights = directions**2
        total = np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
        return np.asarray(theta @ weights / total)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rank:
    """Outcome of the rank guard: k directions kept, and why."""

    k: int
    gap_ratio: float
    status: SubspaceStatus


def rank_guard(eigenvalues: Array, n_components: int, edge: float) -> Rank:
    """Choose the number of directions from the released spectrum (d,); this costs no budget."""
    # Surplus directions are noise, which whitening would amplify.  The cut is at the largest drop
    # l_j - l_(j+1), floor(R/2) <= j <= R, if it is at least .15 of the noise edge (0 without
    # noise).  No direction above both .35 and the edge of d - k directions is cut, no fewer than
    # .15 R directions are cut, and none if R <= 5.
    R = n_components
    if edge <= 0.0:
        # Deviation: without noise there is no edge, and only rounding is cut.
        k = max(1, int(np.count_nonzero(eigenvalues[:R] > NUMERICAL_RANK * eigenvalues[0])))
        return Rank(k=k, gap_ratio=0.0, status="unguarded" if k == R else "reduced")
    if len(eigenvalues) <= R:
        return Rank(k=R, gap_ratio=0.0, status="unguarded")
    # A cut far below R would give a weak fit with few components, not the requested number.
    first = max(1, R // 2)
    drops = eigenvalues[first - 1 : R] - eigenvalues[first : R + 1]
    best = int(np.argmax(drops))
    ratio = float(drops[best]) / edge
    if ratio < MIN_GAP:
        return Rank(k=R, gap_ratio=ratio, status="no_gap")
    k = first + best
    if k == R:
        return Rank(k=R, gap_ratio=ratio, status="gap")
    # The noise is left with d - k directions, which lowers its edge.
    top = edge * float(np.sqrt(1.0 - k / len(eigenvalues)))
    if R <= FEW_COMPONENTS or R - k < MIN_CUT * R or eigenvalues[k] > max(top, COMMON):
        return Rank(k=R, gap_ratio=ratio, status="no_gap")
    return Rank(k=k, gap_ratio=ratio, status="reduced")


def leading_projector(Y: Array, n_components: int) -> Array:
    """Projector U U' (d, d) on at most R leading directions of a centred subject (d, T)."""
    # It is PSD with norm sqrt(rank), and 0 if Y is zero or not finite.
    d, T = Y.shape
    peak = float(np.max(np.abs(Y), initial=0.0))
    if not np.isfinite(peak) or peak == 0.0:
        return np.zeros((d, d))
    Y = Y / peak  # so that the Gram matrix does not overflow
    # The smaller Gram matrix has the same nonzero eigenvalues.
    gram = Y.T @ Y if T < d else Y @ Y.T
    values, vectors = _leading(gram, n_components)
    U = vectors[:, values > _RANK_TOLERANCE * np.trace(gram)]
    if T < d:
        U = np.linalg.qr(Y @ U)[0]
    return np.asarray(U @ U.T)


def _leading(gram: Array, n_components: int) -> tuple[Array, Array]:
    """Return the largest eigenvalues, rising, of a symmetric matrix, and their vectors (n, R)."""
    n, R = len(gram), min(n_components, len(gram))
    if n < _MIN_PARTIAL or not np.all(np.isfinite(gram)):
        values, vectors = np.linalg.eigh(gram)
        return values[-R:], vectors[:, -R:]
    # Imported here, because most runs have fewer directions and do not need it.
    from scipy.linalg import eigh

    values, vectors = eigh(gram, subset_by_index=(n - R, n - 1), check_finite=False)
    return np.asarray(values), np.asarray(vectors)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProjectorPca(OneRelease[Subspace]):
    """Leading eigenvectors of the noisy mean of projectors on each subject's own top-R subspace.

    Deviation: replaces the second moments of Alg. 3 (Imtiaz et al.), whose eigenvalues span a
    factor of 20 and more, so that weak directions would be lost in the noise.
    """

    n_components: int  # R
    private: bool  # false: bounds only serve the integers of the secure sum
    within_bound: ClassVar[bool] = True  # no answer is ever longer than the bound

    @property
    def bound(self) -> float:
        # The norm of a projector is the root of its rank, whatever the data are.
        return float(np.sqrt(self.n_components))

    def matrix(self, Y: Array) -> Array:
        """Return the positive semidefinite matrix (d, d) of one subject Y (d, T)."""
        return leading_projector(Y, self.n_components)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        clip = self.bound if self.private else UNCLIPPED
        return (PlannedRelease(size=rows * (rows + 1) // 2, clip=clip, shape="psd", weight=1.0),)

    def start(self, rows: int) -> Subspace:
        return Subspace(
            V=np.eye(rows)[:, : self.n_components].copy(),
            eigenvalues=np.zeros(rows),
            edge=0.0,
            gap_ratio=0.0,
            noise_std=0.0,
            status="pending",
            record=NO_STEP,
        )

    def query(self, state: Subspace) -> estimators.SubjectQuery:
        release = self.schedule(len(state.V))[0]

        def answer(stack: Data) -> Array:
            with np.errstate(all="ignore"):  # subjects that are not finite become rows of zeros
                rows = [svec(self.matrix(Y)) for Y in stack.astype(np.float64)]
            return estimators.clip_rows(np.array(rows), release.clip)

        return release.query(answer)

    def step(self, state: Subspace, mean: Array, noise_std: float) -> Subspace:
        """Take the leading eigenvectors of the released mean (Alg. 3, line 6 of Imtiaz et al.)."""
        eigenvalues, vectors = top_eigenspace(smat(mean))
        d = len(eigenvalues)
        # Off-diagonal entries of smat(noise) have std s/sqrt2: semicircle radius sqrt(2 d) s.
        edge = 2.0 * noise_std / np.sqrt(2.0) * np.sqrt(d)
        rank = rank_guard(eigenvalues, min(self.n_components, d), edge)
        return Subspace(
            V=np.ascontiguousarray(vectors[:, : rank.k]),
            eigenvalues=eigenvalues,
            edge=float(edge),
            gap_ratio=rank.gap_ratio,
            noise_std=noise_std,
            status=rank.status,
            record=estimators.step_record(mean, noise_std, step_norm=float(np.sqrt(rank.k))),
        )

    def done(self, state: Subspace) -> bool:
        return state.status != "pending"
