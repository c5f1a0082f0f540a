"""``separation=spatial``: maps that are independent in space, from one release.

The maps of the released subspace are rotated by public arithmetic, so the projector release takes
the whole budget.  Another model than joint temporal ICA, and named wherever its results are shown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cape.algorithms.component_order import arrange
from cape.algorithms.estimators import Array
from cape.algorithms.left_right import CLEAR, LeftRight, Mirror, left_right, mirrored
from cape.algorithms.linalg import smat
from cape.algorithms.spatial import (
    Score,
    SpatialComponents,
    SpatialIca,
    claims,
    leading,
    spatial_ica,
)
from cape.computations.capedjica.model import FinalState, IcaModel, SeparationModel
from cape.computations.capedjica.settings import CapeDjicaConfig, separates, sized
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.model import joined, n_basis
from cape.protocol.plan import PlannedStage
from cape.protocol.secure_sum import SecureSum
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, public_basis

SCORE: Score = "skewness"


def _estimator(config: CapeDjicaConfig, model: IcaModel | None = None) -> SpatialIca:
    J = None
    if model is not None:
        config = _sized(config, model)
    if config.symmetry == "assume" and model is not None:
        from cape.computations.capedjica.brains import mirror_of

        roster = joined(model)
        mirror = mirror_of(config, roster.space, roster.n_basis)
        J = None if mirror is None else mirror.J
    return SpatialIca(n_components=config.n_components, private=config.private, J=J)


def _sized(config: CapeDjicaConfig, model: IcaModel) -> CapeDjicaConfig:
    roster = joined(model)
    return sized(config, roster.n_sites, roster.n_subjects, roster.space)


def _released(model: IcaModel) -> SpatialComponents:
    if model.spatial is None:
        raise RuntimeError("no subspace before the spatial release")
    return model.spatial


def _arranged(config: CapeDjicaConfig, model: IcaModel) -> SpatialComponents:
    # The aggregator alone rotates, and everybody takes its result: another host's FastICA could
    # stop at another step.  So only its last exchange pays for these imports.
    from cape.computations.capedjica.brains import mirror_of

    state, roster = _released(model), joined(model)
    if state.status != "released":
        return state
    F, noise_std, k = smat(state.mean), state.subspace.noise_std, state.subspace.V.shape[1]
    B = public_basis(resolve(config), roster.space, roster.n_basis)
    mirror = mirror_of(config, roster.space, roster.n_basis)
    test = None if mirror is None else _tested(config, model, F, mirror)
    found = rotated(
        F, B, k, noise_std=noise_std, mirror=mirror, test=test, symmetry=config.symmetry
    )
    return replace(
        state,
        subspace=replace(state.subspace, V=found.V),
        mixing=found.mixing,
        converged=found.converged,
        order=arrange(found.maps),
        mean=np.zeros(0),
        test=test,
        mirrored=found.mirrored,
        claims=found.claims,
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rotated:
    """Spatial components of a released mean, and what may be said of them."""

    V: Array  # (d, k)
    mixing: Array  # (k, k)
    maps: Array  # (D, k): ``B V mixing``
    converged: bool
    mirrored: bool
    claims: tuple[float, ...]


def rotated(
    F: Array,
    B: Basis | None,
    n_components: int,
    *,
    noise_std: float,
    mirror: Mirror | None,
    test: LeftRight | None,
    symmetry: str,
) -> Rotated:
    """Take the recipe's steps from a released mean F (d, d): mirror, maps, rotation, claims."""
    clear = test is not None and test.z >= CLEAR
    # Without noise there is nothing that a mirror would take away.
    wanted = symmetry == "assume" or (symmetry == "auto" and clear and noise_std > 0)
    J = mirror.J if mirror is not None and wanted else None
    V = leading(F if J is None else mirrored(F, J), n_components)
    directions = V if B is None else B @ V
    rotation = spatial_ica(directions, score=SCORE)
    maps = directions @ rotation.mixing
    return Rotated(
        V=V,
        mixing=rotation.mixing,
        maps=maps,
        converged=rotation.converged,
        mirrored=J is not None,
        claims=claims(F, B, maps, noise_std=noise_std, J=J) if clear and noise_std > 0 else (),
    )


def _tested(config: CapeDjicaConfig, model: IcaModel, F: Array, mirror: Mirror) -> LeftRight | None:
    # Subjects that were mirrored before they answered are even and odd by themselves.
    if config.symmetry == "assume":
        return None
    from cape.computations.capedjica.brains import null_of

    roster, R = joined(model), _sized(config, model).n_components
    return left_right(
        F,
        mirror.weighed,
        null_of(config, roster.space, roster.n_basis, R),
        noise_std=_released(model).subspace.noise_std,
        n_subjects=roster.n_subjects,
        n_components=R,
    )


SPATIAL = SecureSum(
    name="spatial",
    state=SpatialComponents,
    model_field="spatial",
    estimator=_estimator,
    rows=n_basis,
    input=subject_views.raw,
    close=_arranged,
    enabled_if=separates("spatial"),
)


class SpatialModel(SeparationModel):
    """Maps independent of each other over the brain; nothing is assumed of time courses."""

    def stages(
        self, config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
    ) -> tuple[PlannedStage, ...]:
        releases = _estimator(config).schedule(n_basis)
        return (PlannedStage(phase="spatial", releases=releases, mu2_weight=1.0),)

    def choose_n_basis(self, config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
        from cape.forecast.one_release import spatial_basis

        return min(spatial_basis(g, config.n_components), space.n_features)

    def final_state(self, config: CapeDjicaConfig, model: IcaModel) -> FinalState:
        state = _released(model)
        unmixing = np.asarray(np.linalg.inv(state.mixing))
        status = state.status if state.status != "released" else _status(state.test)
        return FinalState(
            V=state.subspace.V,
            U=np.eye(len(unmixing)),
            W=unmixing,
            unmixing=unmixing,
            spectrum=state.subspace,
            order=state.order,
            status=status,
            reason=REASONS[status],
            spatial=state,
        )


REASONS = {
    "networks": "The left-right test is clear: networks that are the same on both sides are there.",
    "unclear": "The left-right test is not clear: these maps may be noise.",
    "nothing_found": "The left-right test finds no more than smooth noise gives.",
    "released": "The planned release was made; left and right could not be compared.",
    "budget_exhausted": "A site refused the release; there is no result.",
}


def _status(test: LeftRight | None) -> str:
    if test is None:
        return "released"
    return {"brain": "networks", "unclear": "unclear", "nothing": "nothing_found"}[test.verdict]
