"""Spatial group ICA of several sites, private for every subject: one release.

The maps are independent of each other over the brain; time courses are arbitrary.  Every subject
answers with the projector on its leading directions in a public kernel basis.  The one release, the
noisy mean of projectors, takes the whole budget.  All later steps use public values: a left-right
test and a mirror, a rotation of the maps, claims (docs/choosing.md).

After Calhoun et al., group ICA (2001).  Read the table at the bottom first; `cape.computations.ica`
has the parts that all joint ICAs share, and `recipe` in it the recipe of the maps.
"""

import math
from dataclasses import replace

import numpy as np

from cape.algorithms.component_order import apply_order
from cape.algorithms.left_right import LeftRight, left_right
from cape.algorithms.linalg import smat
from cape.algorithms.spatial import SpatialComponents, SpatialIca, fitting_score, sparseness
from cape.computations.ica.model import FinalState
from cape.computations.ica.outcome import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.computations.ica.settings import SpatialConfig, sized
from cape.forecast.rule import ForecastRule
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import by_sizes, join
from cape.protocol.model import Model, joined
from cape.protocol.outcome import SpatialSet
from cape.protocol.phases import Computation
from cape.protocol.plan import PlannedStage
from cape.protocol.report_phase import refused
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.option import option, out_of_range
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace, has_neighbours
from cape.space.public_basis import public_basis, widest_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeGicaConfig(SpatialConfig):
    """Settings of capegica."""

    n_components: int = option(0, low=0, high=50)

    def check(self) -> None:
        SpatialConfig.check(self)
        if self.n_components == 1:
            allowed, do = "0, or 2 to 50", "one component has nothing to be separated from."
            raise out_of_range("n_components", 1, allowed, do)


@dataclass(frozen=True, kw_only=True, slots=True)
class GicaModel(Model):
    """The public state of a run."""

    spatial: SpatialComponents | None = None  # None before the release


def _estimator(config: CapeGicaConfig, model: GicaModel | None = None) -> SpatialIca:
    J = None
    if model is not None:
        config = _sized(config, model)
    if config.symmetry == "assume" and model is not None:
        from cape.computations.ica.mirror import mirror_of

        roster = joined(model)
        mirror = mirror_of(config, roster.space, roster.n_basis)
        J = None if mirror is None else mirror.J
    private = config.private
    return SpatialIca(n_components=config.n_components, private=private, J=J, soft=not private)


def _sized(config: CapeGicaConfig, model: GicaModel) -> CapeGicaConfig:
    roster = joined(model)
    return sized(config, roster.n_sites, roster.n_subjects, roster.space)


def _arranged(config: CapeGicaConfig, model: GicaModel) -> SpatialComponents:
    # Only the aggregator rotates, because FastICA on another host could stop at another step.
    # Hence the imports here.
    from cape.algorithms.bagging import BAG_SCORE
    from cape.algorithms.claims import cohort
    from cape.computations.ica.mirror import mirror_of, null_of
    from cape.computations.ica.recipe import rotated

    state: SpatialComponents = SPATIAL.released(model)
    roster = joined(model)
    if state.status != "released":
        return state
    F, noise_std, k = smat(state.mean), state.subspace.noise_std, state.subspace.V.shape[1]
    B = public_basis(resolve(config), roster.space, roster.n_basis)
    mirror, test, q = mirror_of(config, roster.space, roster.n_basis), None, 0.0
    R = _sized(config, model).n_components
    # Subjects that were mirrored before they answered already have even and odd parts.
    if mirror is not None and config.symmetry != "assume":
        # The largest statistic is the trace of an answer: R, or any without privacy.
        rank, size = R, 1.0
        if not config.private:
            rank, size = 0, max(float(np.trace(F)), np.finfo(float).tiny)
        test = left_right(
            F / size,
            mirror.weighed,
            null_of(config, roster.space, roster.n_basis, mirror, rank),
            noise_std=noise_std,
            n_subjects=roster.n_subjects,
            n_components=rank or 1,
        )
        q = cohort(
            F,
            test,
            noise_std=noise_std,
            n_subjects=roster.n_subjects,
            rank=R if config.private else size,
        )
    columns = B is None and roster.space.kind == "matrix"
    maps = rotated(
        F,
        B,
        k,
        noise_std=noise_std,
        mirror=mirror,
        test=test,
        q=q,
        rank=R,
        symmetry=config.symmetry,
        kind=roster.space.kind,
        n_subjects=roster.n_subjects,
        # Maps of columns may have both signs; all else was measured with skewness.
        score=fitting_score(state.subspace.V) if columns and not config.private else BAG_SCORE,
        suggest=True,
    )
    V, mixing = np.linalg.qr(maps.directions)
    return replace(
        state,
        subspace=replace(state.subspace, V=V),
        mixing=mixing,
        order=tuple(range(1, k + 1)),
        mean=np.zeros(0),
        **maps.said(),
    )


SPATIAL = SecureSum(
    name="spatial",
    state=SpatialComponents,
    model_field="spatial",
    estimator=_estimator,
    input=subject_views.normalised,
    close=_arranged,
)


def releases(
    config: CapeGicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    schedule = _estimator(config).schedule(n_basis)
    return (PlannedStage(phase="spatial", releases=schedule, mu2_weight=1.0),)


def choose_n_basis(config: CapeGicaConfig, space: FeatureSpace, g: float) -> int:
    from cape.forecast.one_release import spatial_basis_size

    if math.isinf(g):
        return widest_basis(resolve(config), space)
    return min(spatial_basis_size(g, config.n_components), space.n_features)


def rule(config: CapeGicaConfig, n_basis: int) -> ForecastRule:
    from cape.forecast.one_release import SpatialRule

    return SpatialRule(n_components=config.n_components, brains=config.feature_space != "matrix")


_REASONS = {
    "networks": "The left-right test is clear: patterns that are the same on both sides are there.",
    "unclear": "The left-right test is not clear: these maps may be noise.",
    "nothing_found": "The left-right test finds no more than smooth noise gives.",
    "released": "The planned release was made; left and right could not be compared.",
    **refused("there is no result."),
}


def final_state(config: CapeGicaConfig, model: GicaModel) -> FinalState:
    state: SpatialComponents = SPATIAL.released(model)
    unmixing = np.asarray(np.linalg.inv(state.mixing))
    status = state.status if state.status != "released" else _status(state.test)
    return FinalState(
        kind="spatial",
        V=state.subspace.V,
        U=np.eye(len(unmixing)),
        W=unmixing,
        unmixing=unmixing,
        spectrum=state.subspace,
        order=state.order,
        status=status,
        reason=_REASONS[status],
    )


def _status(test: LeftRight | None) -> str:
    if test is None:
        return "released"
    return {"brain": "networks", "unclear": "unclear", "nothing": "nothing_found"}[test.verdict]


def spatial_set(config: CapeGicaConfig, model: GicaModel) -> SpatialSet:
    from cape.algorithms.bagging import BAG_SCORE

    state: SpatialComponents = SPATIAL.released(model)
    roster = joined(model)
    V, order = state.subspace.V, state.order
    B = public_basis(resolve(config), roster.space, roster.n_basis)
    maps = V if B is None else B @ V
    return SpatialSet(
        A=apply_order(order, maps @ state.mixing, 1),
        # For brains the left-right test is stronger, and also applies to coarse maps.
        sparseness=sparseness(B, V, state.mixing, score=BAG_SCORE)
        if state.test is None and has_neighbours(roster.space)
        else None,
        recipe=resolve(config).brains,
        **state.said(),
    )


_NAME = "capegica"
PLANNER = IcaPlanner(
    kind="spatial",
    config=CapeGicaConfig,
    releases=releases,
    choose_n_basis=choose_n_basis,
    rule=rule,
)

COMPUTATION = Computation(
    name=_NAME,
    config=CapeGicaConfig,
    model=GicaModel,
    table=(
        join(_NAME, by_sizes(PLANNER.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="spatial"),  # PublicKey -> KeyBook; probe -> Fingerprint
        SPATIAL,  # Masked -> SpatialComponents
        ica_report(_NAME, (SPATIAL,), final_state, spatial_set=spatial_set),  # Done -> Closing
    ),
)
