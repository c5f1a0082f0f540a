"""Spatial components of a released subspace: maps rotated until they are independent in space.

Unlike joint temporal ICA, this model assumes sparse, spatially independent maps and ignores time
courses.  It needs the subspace only, so one private projector release can have the whole budget.
Smooth noise also has components: the model fits only if its maps are clearly sparser than the
data-free surrogates of `sparseness`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from cape.algorithms import estimators
from cape.algorithms.claims import FoundMaps
from cape.algorithms.estimators import Array, OneRelease, PlannedRelease, ReleaseStatus, StepRecord
from cape.algorithms.linalg import polar, smat, top_eigenspace
from cape.algorithms.pca import ProjectorPca, Subspace, leading_projector
from cape.algorithms.soft_projector import soft_projector
from cape.frozen import dataclass

if TYPE_CHECKING:
    from cape.algorithms.interpolated_basis import InterpolatedBasis
    from cape.algorithms.surface_kernel import BlockBasis

    Basis = Array | InterpolatedBasis | BlockBasis

SpatialScore = Literal["tanh", "skewness"]
# A rotation (k, k) and the number of its step -> the next one
_Step = Callable[[Array, int], Array]

# Maximum of steps by score.  "skewness" (y^2) found more real networks (docs/choosing.md).
MAX_STEPS: Mapping[SpatialScore, int] = {"tanh": 150, "skewness": 400}
_TOLERANCE = 1e-5  # FastICA ends if no column of the rotation turned by more than this (1 - |cos|)
MIN_SINGULAR = 1e-10  # minimum singular value of independent maps, over the largest
MAX_FEATURES = 2000  # used to judge sparseness; more only cost time

N_SURROGATES = 20
_SURROGATE_SEED = 20_260_101
SPARSE_Z = 3.0  # minimum distance of sparse maps from the surrogates, in standard deviations


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotation:
    """Spatial ICA of a set of maps."""

    # (k, k): ``maps @ mixing`` are the components, of std 1 over the features and, apart from their
    # means, uncorrelated
    mixing: Array
    converged: bool  # whether the rotation converged within `MAX_STEPS`


def spatial_ica(maps: Array, *, score: SpatialScore = "tanh") -> Rotation:
    """Centre and whiten maps (D, k), and rotate them until they are independent in space."""
    # Symmetric FastICA (Hyvarinen 1999), starting from the maps themselves, so equal maps give
    # equal components.  The result is the identity, not converged, if the centred maps are
    # dependent.
    n, k = maps.shape
    left, strength, right = np.linalg.svd(maps - maps.mean(axis=0), full_matrices=False)
    if n <= k or strength[-1] <= MIN_SINGULAR * strength[0]:
        return Rotation(mixing=np.eye(k), converged=False)
    # Whitened by the symmetric root: singular vectors of equal singular values depend on rounding,
    # so the rotation would start and end elsewhere with another BLAS.
    Z = np.sqrt(float(n)) * (left @ right)
    step = _tanh_step(Z) if score == "tanh" else _skewness_step(third_moments(Z))
    Q = np.eye(k)
    converged = False
    for i in range(MAX_STEPS[score]):
        new = step(Q, i)
        turned = 1.0 - np.abs(np.sum(new * Q, axis=0))
        Q = new
        if float(turned.max()) <= _TOLERANCE:
            converged = True
            break
    whitener = (right.T / strength) @ right * np.sqrt(float(n))
    return Rotation(mixing=np.asarray(whitener @ Q), converged=converged)


def third_moments(Z: Array) -> Array:
    return np.stack([Z.T @ (Z * column[:, None]) for column in Z.T]) / len(Z)


def _tanh_step(Z: Array) -> _Step:
    """Return the step Q <- polar(E[z g(y)'] - Q E[g'(y)]), y = Q'z, g = tanh."""

    def step(Q: Array, _: int) -> Array:
        Y = np.tanh(Z @ Q)
        return polar(Z.T @ Y / len(Z) - Q * np.mean(1.0 - Y**2, axis=0))

    return step


def _skewness_step(moments: Array) -> _Step:
    """Return the step Q <- polar(M + a Q), M = E[z (y^2)'], a = mean |diag(Q'M)|; at first 0."""
    # FastICA has no shift a (g = y^2, E[g'(y)] = 2 E[y] = 0).  Without it, the rotation of half of
    # all noisy subspaces cycles, and rounding decides where it ends.  The first step has no shift,
    # so that it does not depend on the signs of the maps, which LAPACK chooses.

    def step(Q: Array, i: int) -> Array:
        M = np.sum((moments @ Q) * Q, axis=1)
        shift = float(np.mean(np.abs(np.sum(Q * M, axis=0)))) if i > 0 else 0.0
        return polar(M + shift * Q)

    return step


def kurtosis(maps: Array) -> Array:
    """Excess kurtosis of each map over the features, shape (k,)."""
    centred = maps - maps.mean(axis=0)
    variance = np.mean(centred**2, axis=0)
    safe = np.where(variance > 0.0, variance, 1.0)
    return np.asarray(np.mean(centred**4, axis=0) / safe**2 - 3.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sparseness:
    """Whether spatial components are sparser than those of equally smooth noise."""

    kurtosis: float  # median excess kurtosis of the components
    surrogate: float  # its mean over surrogates
    surrogate_std: float
    fits: bool  # whether it is more than three std above the surrogates


def skewness(maps: Array) -> Array:
    """Skewness of each map over the features, shape (k,); 0 for a constant one."""
    centred = maps - maps.mean(axis=0)
    std = np.sqrt(np.mean(centred**2, axis=0))
    return np.asarray(np.mean((centred / np.where(std > 0.0, std, 1.0)) ** 3, axis=0))


def sparseness(
    basis: Basis | None, V: Array, mixing: Array, *, score: SpatialScore = "tanh"
) -> Sparseness:
    """Compare spatial components with those of random subspaces of the same smoothness."""
    # Surrogates are Gaussian in the public basis B (D, d); each direction has the size that it has
    # in the released V (d, k).  Without a basis, all features have the same size.  `mixing` (k, k)
    # is that of `spatial_ica`.
    kurtoses, null = _compared(basis, V, mixing, score)
    observed, medians = float(np.median(kurtoses)), np.median(null, axis=1)
    mean, std = float(np.mean(medians)), float(np.std(medians, ddof=1))
    return Sparseness(
        kurtosis=observed, surrogate=mean, surrogate_std=std, fits=observed > mean + SPARSE_Z * std
    )


def _compared(
    basis: Basis | None, V: Array, mixing: Array, score: SpatialScore
) -> tuple[Array, Array]:
    """Return the kurtosis of components (k,) and of surrogates (N_SURROGATES, k)."""
    d, k = V.shape
    n_features = d if basis is None else basis.shape[0]
    sampled = slice(None, None, max(1, -(-n_features // MAX_FEATURES)))
    if basis is None or isinstance(basis, np.ndarray):
        B = (np.eye(d) if basis is None else basis)[sampled]
    else:
        B = basis.rows(sampled)
    size = np.ones(d) if basis is None else np.sqrt(np.sum(V**2, axis=1))
    return kurtosis(B @ V @ mixing), _surrogates(B.tobytes(), size.tobytes(), k, score)


# Cached: a run needs them at the start of its rounds and at its end, and they take seconds.
@functools.lru_cache(maxsize=2)
def _surrogates(basis: bytes, sizes: bytes, k: int, score: SpatialScore) -> Array:
    """Kurtosis of the components of random subspaces; basis (n, d), sizes (d,)."""
    size = np.frombuffer(sizes)
    B = np.frombuffer(basis).reshape(-1, len(size))
    rng = np.random.default_rng(_SURROGATE_SEED)  # public: no data, no secret
    null = []
    for _ in range(N_SURROGATES):
        maps = B @ np.linalg.qr(size[:, None] * rng.standard_normal((len(size), k)))[0]
        null.append(kurtosis(maps @ spatial_ica(maps, score=score).mixing))
    return np.array(null)


def leading(F: Array, n_components: int) -> Array:
    """Exactly R leading eigenvectors (d, R) of a released mean, without a rank guard."""
    # On real brains, a guard cut directions that were networks (docs/choosing.md).
    return np.ascontiguousarray(top_eigenspace(F)[1][:, :n_components])


# -- the start of the rounds of joint temporal ICA -----------------------------------------------

# From a random start, rounds would need half of their budget to come near a solution.  Spatial ICA
# of the released subspace nearly finds networks that are sparse in space, and costs no privacy.  A
# gate first tests whether its maps are sparser than those of equally smooth noise.  The aggregator
# alone does this, once, because FastICA on another host could stop at another step.

# Minimum z of the mean kurtosis of the sparser half that opens the gate, and minimum std of 20
# surrogates.  The sparser half only: with more components than networks the others are noise.
GATE_Z = 2.0
MIN_SPREAD = 0.15

# Minimum kurtosis of skewness components, over that of tanh components, at which they are the
# start: measured .97 for one-sided maps, which skewness finds better, and .72 for two-sided ones,
# which it does not find.
MIN_KURTOSIS_KEPT = 0.85


def fitting_score(maps: Array) -> SpatialScore:
    """Return the score that fits maps (D, k): skewness does not find maps of both signs."""
    # Of six planted studies of columns r was .79 by skewness and .87 by tanh.
    return _fitting(maps, spatial_ica(maps).mixing)[0]


def _fitting(maps: Array, two_sided: Array) -> tuple[SpatialScore, Array]:
    """Return the score that fits, and its rotation; `two_sided`: that of tanh."""
    one_sided = spatial_ica(maps, score="skewness").mixing
    peaked, skewed = (
        float(np.median(kurtosis(maps @ rotation))) for rotation in (two_sided, one_sided)
    )
    fits = skewed >= MIN_KURTOSIS_KEPT * peaked
    return ("skewness", one_sided) if fits else ("tanh", two_sided)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialStart:
    """Start of the rounds."""

    W: Array  # (k, k), orthogonal; the identity if the gate is shut
    gate: bool  # whether the maps are sparse enough
    # Rows of W, from 0, whose maps are sparser than half of those of noise; () if the gate is shut
    sparse: tuple[int, ...] = ()


def gate_z(kurtoses: Array, null: Array) -> float:
    """Return z of the sparser half of components (k,), by mean kurtosis, against noise (n, k)."""
    half = len(kurtoses) // 2
    noise = np.mean(np.sort(null, axis=1)[:, half:], axis=1)
    spread = max(float(np.std(noise, ddof=1)), MIN_SPREAD)
    return (float(np.mean(np.sort(kurtoses)[half:])) - float(np.mean(noise))) / spread


def spatial_start(basis: Basis | None, V: Array, U: Array) -> SpatialStart:
    """Find the start: maps are ``B V U^-1 W'``, so rows of W along ``U mixing`` give components."""
    maps = V if basis is None else basis @ V
    mixing = spatial_ica(maps).mixing
    kurtoses, null = _compared(basis, V, mixing, "tanh")
    if gate_z(kurtoses, null) < GATE_Z:
        return SpatialStart(W=np.eye(len(U)), gate=False)
    directions = U @ _fitting(maps, mixing)[1]
    W = polar((directions / np.linalg.norm(directions, axis=0)).T)
    sparse = np.flatnonzero(kurtosis(maps @ np.linalg.inv(W @ U)) >= np.median(null))
    return SpatialStart(W=W, gate=True, sparse=tuple(sparse.tolist()))


# -- the private step ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SpatialComponents(FoundMaps):
    """State of the stage: the released subspace, the rotation of its maps, and the claims."""

    subspace: Subspace  # released; from `report` on, V is that of the mirrored mean
    mixing: Array  # (k, k): components are ``B V mixing``; the identity before `report`
    order: tuple[int, ...]  # signed order of the components, counted from 1
    status: ReleaseStatus
    # (d (d + 1)/2,): the released mean, which the aggregator keeps from the step to the end of the
    # run; never in a message
    mean: Array
    record: StepRecord


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class MirroredPca(ProjectorPca):
    """`ProjectorPca` of each subject together with its mirror image (``symmetry=assume``)."""

    # The answer is still a projector of rank at most R, so the sensitivity is the same.

    J: Array  # (d, d): the public mirror

    def matrix(self, Y: Array) -> Array:
        return leading_projector(np.concatenate([Y, self.J @ Y], axis=1), self.n_components)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SoftPca(ProjectorPca):
    """`ProjectorPca` without privacy: a subject answers with all directions above its own noise."""

    J: Array | None  # (d, d): the public mirror (``symmetry=assume``)

    def matrix(self, Y: Array) -> Array:
        both = Y if self.J is None else np.concatenate([Y, self.J @ Y], axis=1) / math.sqrt(2.0)
        return soft_projector(both)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SpatialIca(OneRelease[SpatialComponents]):
    """One release of the mean of projectors; all other steps are post-processing."""

    # The sensitivity is that of `ProjectorPca`: P and P' of two subjects are positive semidefinite
    # with norms of at most sqrt(R), so ``||P - P'||_F <= sqrt(2 R)``.

    n_components: int  # R
    private: bool  # false: bounds only serve the integers of the secure sum
    J: Array | None = None  # (d, d): mirror of subjects before they answer
    soft: bool = False  # whether subjects answer with soft projectors: without privacy only
    within_bound: ClassVar[bool] = True  # as in `ProjectorPca`

    @property
    def _pca(self) -> ProjectorPca:
        if self.soft:
            return SoftPca(n_components=self.n_components, private=False, J=self.J)
        if self.J is None:
            return ProjectorPca(n_components=self.n_components, private=self.private)
        return MirroredPca(n_components=self.n_components, private=self.private, J=self.J)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return self._pca.schedule(rows)

    def start(self, rows: int) -> SpatialComponents:
        subspace = self._pca.start(rows)
        return SpatialComponents(
            subspace=subspace,
            mixing=np.eye(subspace.V.shape[1]),
            converged=False,
            order=(),
            status="waiting",
            mean=np.zeros(0),
            record=subspace.record,
        )

    def query(self, state: SpatialComponents) -> estimators.SubjectQuery:
        return self._pca.query(state.subspace)

    def step(self, state: SpatialComponents, mean: Array, noise_std: float) -> SpatialComponents:
        released = self._pca.step(state.subspace, mean, noise_std)
        V = leading(smat(mean), min(self.n_components, len(released.eigenvalues)))
        subspace = replace(released, V=V, status="unguarded")
        return replace(
            state, subspace=subspace, status="released", mean=mean, record=subspace.record
        )
