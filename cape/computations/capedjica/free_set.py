"""The spatial components that a run on images gives away: one release, the recipe of capegica.

The first release of a run is the mean of the subjects' projectors, which is all that a capegica run
asks.  Its recipe is taken in the smooth directions that the noise of that
release pays for, whatever basis the run has; the left-right test is of the mean as released.  On
real brains these maps did better than the rounds (docs/separations.md).  The aggregator computes
them once, as its last step of the stage: another host's FastICA could stop at another step.
"""

from __future__ import annotations

import math

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array
from cape.algorithms.left_right import Mirror, left_right
from cape.algorithms.linalg import smat
from cape.algorithms.pca import FreeSet
from cape.computations.capedjica.settings import CapeDjicaConfig
from cape.computations.ica.mirror import mirror_of, simulated
from cape.computations.ica.model import IcaModel
from cape.computations.ica.recipe import rotated
from cape.computations.ica.settings import SpatialConfig
from cape.forecast.one_release import spatial_basis, spatial_components
from cape.protocol.model import joined, settings_of
from cape.protocol.outcome import SpatialSet
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, basis_kind, in_basis, public_basis


def free_set(config: CapeDjicaConfig, model: IcaModel, mean: Array) -> FreeSet | None:
    """Return the components of a released mean, as svec; None where the recipe is not for it."""
    roster = joined(model)
    space, d = roster.space, roster.n_basis
    smooth = basis_kind(resolve(config), space) in ("dct", "none")
    if space.kind not in ("mask", "atlas") or not smooth or model.subspace is None:
        return None
    R, noise_std = config.n_components, model.subspace.noise_std
    g = math.sqrt(2.0 * R) / noise_std if noise_std else math.inf
    n = min(spatial_components(g), R)
    k = d if space.kind == "atlas" else min(spatial_basis(g, n), d)
    brains = _as_spatial(config, k)
    K, F = public_basis(resolve(brains), space, k), smat(mean)
    C = _between(K, public_basis(resolve(config), space, d), d)
    mirror, test = mirror_of(brains, space, k), None
    if mirror is not None:
        # Of the mean as it was released: there its noise is known exactly.
        weighed = C.T @ mirror.weighed @ C
        null = simulated(config, space, d, Mirror(J=weighed, weighed=weighed), R)
        test = left_right(
            F, weighed, null, noise_std=noise_std, n_subjects=roster.n_subjects, n_components=R
        )
    found = rotated(
        C @ F @ C.T, K, n, noise_std=noise_std, mirror=mirror, test=test, symmetry=config.symmetry
    )
    order = arrange(found.maps)
    return FreeSet(
        directions=apply_order(order, found.V @ found.mixing, 1),
        converged=found.converged,
        test=test,
        mirrored=found.mirrored,
        claims=tuple(found.claims[abs(i) - 1] for i in order) if found.claims else (),
    )


def maps_of_free_set(config: CapeDjicaConfig, space: FeatureSpace, found: FreeSet) -> Array:
    """Return the maps (D, n) of a free set."""
    k = len(found.directions)
    K = public_basis(resolve(_as_spatial(config, k)), space, k)
    return found.directions if K is None else np.asarray(K @ found.directions)


def _as_spatial(config: CapeDjicaConfig, k: int) -> SpatialConfig:
    return SpatialConfig.of(config, n_basis=k if config.feature_space == "mask" else 0)


def _between(K: Basis | None, B: Basis | None, d: int) -> Array:
    """Return ``K' B``, shape (k, d); None is the identity."""
    if K is None or B is None:
        rows = np.eye(d) if B is None else B @ np.eye(d)
        return in_basis(K, rows)
    # An interpolated basis is never held whole.
    parts = [in_basis(K, B @ np.eye(d)[:, i : i + 16]) for i in range(0, d, 16)]
    return np.concatenate(parts, axis=1)


def spatial_set(config: Config, model: IcaModel) -> SpatialSet | None:
    """Return the free set of a run that has one, as the consortium gets it."""
    if model.subspace is None or (free := model.subspace.free) is None:
        return None
    return SpatialSet(
        A=maps_of_free_set(settings_of(CapeDjicaConfig, config), joined(model).space, free),
        converged=free.converged,
        sparseness=None,
        test=free.test,
        mirrored=free.mirrored,
        claims=free.claims,
        recipe=True,
    )
