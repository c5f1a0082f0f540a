"""``separation=spatial``: maps that are independent in space, from one release.

The maps of the released subspace are rotated by public arithmetic, so the projector release takes
the whole budget.  Another model than joint temporal ICA, and named wherever its results are shown.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array
from cape.algorithms.left_right import CLEAR, LeftRight, Mirror, left_right, mirrored
from cape.algorithms.linalg import smat
from cape.algorithms.spatial import (
    Score,
    SpatialComponents,
    SpatialIca,
    claims,
    leading,
    sparseness,
    spatial_ica,
)
from cape.computations.capedjica.model import FinalState, IcaModel, SeparationModel
from cape.computations.capedjica.settings import CapeDjicaConfig, separates, sized
from cape.feature_space import FeatureSpace
from cape.protocol import subject_views
from cape.protocol.model import joined, n_basis
from cape.protocol.outcome import SpatialSet
from cape.protocol.plan import PlannedStage
from cape.protocol.secure_sum import SecureSum
from cape.public_basis import Basis, public_basis

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
    B = public_basis(config, roster.space, roster.n_basis)
    mirror = mirror_of(config, roster.space, roster.n_basis)
    test = None if mirror is None else _tested(config, model, F, mirror)
    clear = test is not None and test.z >= CLEAR
    # Without noise there is nothing that a mirror would take away.
    wanted = config.symmetry == "assume" or (config.symmetry == "auto" and clear and noise_std > 0)
    J = mirror.J if mirror is not None and wanted else None
    V = leading(F if J is None else mirrored(F, J), k)
    maps = V if B is None else B @ V
    rotation = spatial_ica(maps, score=SCORE)
    A = maps @ rotation.mixing
    return replace(
        state,
        subspace=replace(state.subspace, V=V),
        mixing=rotation.mixing,
        converged=rotation.converged,
        order=arrange(A),
        mean=np.zeros(0),
        test=test,
        mirrored=J is not None,
        claims=claims(F, B, A, noise_std=noise_std, J=J) if clear and noise_std > 0 else (),
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


def spatial_set(B: Basis | None, end: FinalState) -> SpatialSet:
    """Return the spatial components of a run's released subspace; they cost no budget."""
    state = end.spatial
    if state is None:
        maps = end.V if B is None else B @ end.V
        rotation = spatial_ica(maps)
        A = maps @ rotation.mixing
        return SpatialSet(
            A=apply_order(arrange(A), A, 1),
            converged=rotation.converged,
            sparseness=sparseness(B, end.V, rotation.mixing),
        )
    A = (end.V if B is None else B @ end.V) @ state.mixing
    return SpatialSet(
        A=apply_order(end.order, A, 1),
        converged=state.converged,
        # Of brains the left-right test says more, and says it of coarse maps too.
        sparseness=None if state.test else sparseness(B, end.V, state.mixing, score=SCORE),
        test=state.test,
        mirrored=state.mirrored,
        claims=tuple(state.claims[abs(k) - 1] for k in end.order) if state.claims else (),
    )
