"""Spatial components of a released subspace: rotate its maps until they are independent in space.

Another model than joint temporal ICA: sparse, spatially independent maps, nothing of time courses.
It needs the subspace only, so one private projector release can take the whole budget.  It
returns something also from smooth noise: only maps clearly sparser than the data-free surrogates of
`sparseness` say that the model fits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from cape.algorithms.estimators import Array, PlannedRelease, StepRecord, SubjectQuery
from cape.algorithms.linalg import polar
from cape.algorithms.pca import ProjectorPca, Subspace
from cape.frozen import dataclass

if TYPE_CHECKING:
    from cape.algorithms.interpolated_basis import InterpolatedBasis

MOST_ITERATIONS = 150
_TOLERANCE = 1e-5  # FastICA ends when no row of the rotation turned by more than this (1 - |cos|)
DEPENDENT = 1e-10  # smallest singular value of independent maps, over the largest
MOST_FEATURES = 2000  # features on which sparseness is judged; more would only cost time

N_SURROGATES = 20
_SURROGATE_SEED = 20_260_101
MARGIN = 3.0  # standard deviations above the surrogates from which maps count as sparse


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotation:
    """Spatial ICA of a set of maps."""

    # (k, k): ``maps @ mixing`` are the components: std 1 over the features, uncorrelated up to a
    # mean
    mixing: Array
    converged: bool  # whether the rotation settled within 150 iterations


def spatial_ica(maps: Array) -> Rotation:
    """Rotate centred, whitened maps (D, k) until they are independent in space.

    Symmetric FastICA (Hyvarinen 1999) with tanh from a fixed start, so equal maps give equal
    components.  The identity, not converged, if the maps are linearly dependent once centred.
    """
    n, k = maps.shape
    left, strength, right = np.linalg.svd(maps - maps.mean(axis=0), full_matrices=False)
    if n <= k or strength[-1] <= DEPENDENT * strength[0]:
        return Rotation(mixing=np.eye(k), converged=False)
    Z = np.sqrt(float(n)) * left
    Q = np.eye(k)
    converged = False
    for _ in range(MOST_ITERATIONS):
        # Q <- polar(E[z g(y)'] - Q E[g'(y)]): all rows at once, no order among them.
        Y = np.tanh(Z @ Q)
        new = polar(Z.T @ Y / n - Q * np.mean(1.0 - Y**2, axis=0))
        turned = 1.0 - np.abs(np.sum(new * Q, axis=0))
        Q = new
        if float(turned.max()) <= _TOLERANCE:
            converged = True
            break
    whitener = (right.T / strength) * np.sqrt(float(n))
    return Rotation(mixing=np.asarray(whitener @ Q), converged=converged)


def kurtosis(maps: Array) -> Array:
    """Excess kurtosis of each map over the features, shape (k,)."""
    centred = maps - maps.mean(axis=0)
    variance = np.mean(centred**2, axis=0)
    safe = np.where(variance > 0.0, variance, 1.0)
    return np.asarray(np.mean(centred**4, axis=0) / safe**2 - 3.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sparseness:
    """Whether spatial components are sparser than those of equally smooth noise.

    Median excess `kurtosis` against mean and std over surrogates; `fits` if more than three std
    above.
    """

    kurtosis: float
    surrogate: float
    surrogate_std: float
    fits: bool


def sparseness(basis: Array | InterpolatedBasis | None, V: Array, mixing: Array) -> Sparseness:
    """Compare spatial components with those of random subspaces of the same smoothness.

    Surrogates are Gaussian in the public basis B (D, d), sized direction by direction like the
    released V (d, k).  No basis: all features weigh the same.  `mixing` (k, k): `spatial_ica`.
    """
    d, k = V.shape
    n_features = d if basis is None else basis.shape[0]
    some = slice(None, None, max(1, -(-n_features // MOST_FEATURES)))
    if basis is None or isinstance(basis, np.ndarray):
        B = (np.eye(d) if basis is None else basis)[some]
    else:
        B = basis.rows(some)
    observed = float(np.median(kurtosis(B @ V @ mixing)))
    size = np.ones(d) if basis is None else np.sqrt(np.sum(V**2, axis=1))
    rng = np.random.default_rng(_SURROGATE_SEED)  # public: no data, no secret
    null = []
    for _ in range(N_SURROGATES):
        maps = B @ np.linalg.qr(size[:, None] * rng.standard_normal((d, k)))[0]
        null.append(float(np.median(kurtosis(maps @ spatial_ica(maps).mixing))))
    middle, spread = float(np.mean(null)), float(np.std(null, ddof=1))
    return Sparseness(
        kurtosis=observed,
        surrogate=middle,
        surrogate_std=spread,
        fits=observed > middle + MARGIN * spread,
    )


# -- the private step ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialComponents:
    """State of the stage: the released subspace, and how its maps are rotated."""

    subspace: Subspace  # released
    mixing: Array  # (k, k): components are ``B V mixing``; the identity until `report` opens
    converged: bool  # whether the rotation settled
    # Signed order of the components, counted from 1; filled in at the end of the run
    order: tuple[int, ...]
    record: StepRecord

    def rotated(self, rotation: Rotation, order: tuple[int, ...]) -> SpatialComponents:
        return replace(self, mixing=rotation.mixing, converged=rotation.converged, order=order)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialIca:
    """One release of the subjects' projectors; all the rest is post-processing.

    Sensitivity is that of `ProjectorPca`: P and P' of two subjects are positive semidefinite with
    norms of at most sqrt(R), so ``||P - P'||_F <= sqrt(2 R)``.
    """

    n_components: int  # R
    private: bool  # false: bounds are only there for the integers of the secure sum

    @property
    def _pca(self) -> ProjectorPca:
        return ProjectorPca(n_components=self.n_components, private=self.private)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return self._pca.schedule(rows)

    def start(self, rows: int) -> SpatialComponents:
        return _unrotated(self._pca.start(rows))

    def query(self, state: SpatialComponents) -> SubjectQuery:
        return self._pca.query(state.subspace)

    def step(self, state: SpatialComponents, mean: Array, noise_std: float) -> SpatialComponents:
        return _unrotated(self._pca.step(state.subspace, mean, noise_std))

    def done(self, state: SpatialComponents) -> bool:
        return self._pca.done(state.subspace)


def _unrotated(subspace: Subspace) -> SpatialComponents:
    return SpatialComponents(
        subspace=subspace,
        mixing=np.eye(subspace.V.shape[1]),
        converged=False,
        order=(),
        record=subspace.record,
    )
