"""``separation=spatial``: maps that are independent in space, from one release.

The maps of the released subspace are rotated by public arithmetic, so the projector release takes
the whole budget.  Another model than joint temporal ICA, and named wherever its results are shown.
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.component_order import apply_order, arrange
from cape.algorithms.estimators import Array
from cape.algorithms.spatial import Rotation, SpatialComponents, SpatialIca, sparseness, spatial_ica
from cape.computations.capedjica.model import FinalState, IcaModel, SeparationModel
from cape.computations.capedjica.settings import CapeDjicaConfig, separates
from cape.protocol import subject_views
from cape.protocol.model import joined, n_basis
from cape.protocol.outcome import SpatialSet
from cape.protocol.plan import PlannedStage
from cape.protocol.secure_sum import SecureSum
from cape.public_basis import Basis, public_basis


def _estimator(config: CapeDjicaConfig, model: object = None) -> SpatialIca:
    return SpatialIca(n_components=config.n_components, private=config.private)


def _released(model: IcaModel) -> SpatialComponents:
    if model.spatial is None:
        raise RuntimeError("no subspace before the spatial release")
    return model.spatial


def _arranged(config: CapeDjicaConfig, model: IcaModel) -> SpatialComponents:
    # The aggregator alone rotates, and everybody takes its result: another host's FastICA could
    # stop at another step.
    state, roster = _released(model), joined(model)
    rotation, A = _rotation(public_basis(config, roster.space, roster.n_basis), state.subspace.V)
    return state.rotated(rotation, arrange(A))


def _rotation(B: Basis | None, V: Array) -> tuple[Rotation, Array]:
    """Return the rotation of a subspace V (d, k) to independent maps A (D, k), and A."""
    maps = V if B is None else B @ V
    rotation = spatial_ica(maps)
    return rotation, maps @ rotation.mixing


SPATIAL = SecureSum(
    name="spatial",
    state=SpatialComponents,
    model_field="spatial",
    may_reduce_rank=True,
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

    def final_state(self, config: CapeDjicaConfig, model: IcaModel) -> FinalState:
        state = _released(model)
        settled = "The rotation settled." if state.converged else "The rotation did not settle."
        unmixing = np.asarray(np.linalg.inv(state.mixing))
        return FinalState(
            V=state.subspace.V,
            U=np.eye(len(unmixing)),
            W=unmixing,
            unmixing=unmixing,
            spectrum=state.subspace,
            order=state.order,
            status="converged" if state.converged else "max_rounds",
            reason=f"Spatial ICA of the released subspace. {settled}",
        )


def spatial_set(B: Basis | None, V: Array) -> SpatialSet:
    """Return the spatial components of a released subspace, of whatever model; costs no budget."""
    rotation, A = _rotation(B, V)
    return SpatialSet(
        A=apply_order(arrange(A), A, 1),
        converged=rotation.converged,
        sparseness=sparseness(B, V, rotation.mixing),
    )
