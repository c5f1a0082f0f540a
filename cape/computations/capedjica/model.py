"""The public state of joint ICA, and how a site sees its subjects once a subspace is released."""

from __future__ import annotations

from dataclasses import field

from cape.algorithms import whitening
from cape.algorithms.estimators import Array
from cape.algorithms.pca import Subspace
from cape.algorithms.spatial import SpatialComponents
from cape.algorithms.templates import TemplateMaps
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import Whitener
from cape.frozen import dataclass
from cape.protocol.model import Model
from cape.protocol.ports import Site, Stacks
from cape.protocol.subject_views import each_subject, raw


@dataclass(frozen=True, kw_only=True, slots=True)
class IcaModel(Model):
    """Common subspace, whitening and unmixing."""

    # subspace, whitener, unmixing: Estimator states: V (d, k), U (k, k), W (k, k); None before the
    # first release of a stage
    subspace: Subspace | None = None
    whitener: Whitener | None = None
    unmixing: Unmixing | None = None
    # Checkpoints and messages of version 1 came before these two.
    # spatial, template: The one release of the other separations; None in a temporal run
    spatial: SpatialComponents | None = field(default=None, metadata={"added": True})
    template: TemplateMaps | None = field(default=None, metadata={"added": True})


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FinalState:
    """What the last stage of a run leaves, whatever its model."""

    # V, U, W: (d, k), (k, k), (k, k): directions, whitener, and what the solver found
    V: Array
    U: Array
    W: Array
    unmixing: Array  # (k, k): maps are ``B V unmixing^-1``, time courses ``unmixing V' Y``
    order: tuple[int, ...]  # signed order of the components
    status: str
    reason: str
    stability: float = 0.0  # 0 where there are no rounds
    spectrum: Subspace | None = None  # what the first release said of directions; None without one


def subspace(model: IcaModel) -> Subspace:
    if model.spatial is not None:
        return model.spatial.subspace
    if model.subspace is None:
        raise RuntimeError("no subspace before the pca release")
    return model.subspace


def n_directions(model: IcaModel) -> int:
    """Return k, the directions of the released subspace; the rank guard may leave fewer than R."""
    return int(subspace(model).V.shape[1])


def reduced(site: Site, model: IcaModel, *, prewhiten: whitening.Prewhiten) -> Stacks:
    """Return Z0_m = V'Y_m (k, T), filtered in time and scaled to unit trace."""
    V = subspace(model).V

    def build() -> Stacks:
        return each_subject(
            raw(site, model), lambda Y: whitening.reduce_subject(V, Y, prewhiten=prewhiten)
        )

    return site.cached("reduced", (V,), build)


def whitened(site: Site, model: IcaModel, U: Array, *, prewhiten: whitening.Prewhiten) -> Stacks:
    """Return Z_m = U Z0_m (k, T), the same for all rounds of a solver."""

    def build() -> Stacks:
        stacks = reduced(site, model, prewhiten=prewhiten)
        # Whole stacks at once: a product of stacked matrices is faster, and its bits are the ones
        # that all runs have had.
        arrays = tuple(whitening.whiten(U, array) for array in stacks.arrays)
        return Stacks(arrays=arrays, labels=stacks.labels)

    return site.cached("whitened", (subspace(model).V, U), build)
