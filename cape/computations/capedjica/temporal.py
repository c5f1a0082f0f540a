"""``separation=temporal``: joint temporal ICA, in three stages of secure sums.

A common subspace (pca), a common whitening, and the rounds of a solver.  Each stage has two
algorithms: the default, made for privacy, and that of Imtiaz et al. (docs/deviations.md).
"""

from __future__ import annotations

import functools
from dataclasses import replace

from cape.algorithms.estimators import Estimator
from cape.algorithms.infomax import Infomax
from cape.algorithms.pca import CovariancePca, ProjectorPca, Subspace
from cape.algorithms.quasi_newton import QuasiNewton, TunedConstants, tuned_constants
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.whitening import EigenWhitening, LogEuclidean, Whitener
from cape.computations.capedjica import model as views
from cape.computations.capedjica.model import FinalState, IcaModel, n_directions
from cape.computations.capedjica.separation import SeparationModel
from cape.computations.capedjica.settings import CapeDjicaConfig, effective_g, numbers
from cape.feature_space import FeatureSpace
from cape.forecast.rule import ForecastRule
from cape.protocol import subject_views
from cape.protocol.model import joined, n_basis, settings_of
from cape.protocol.plan import PlannedStage
from cape.protocol.ports import Site, Stacks
from cape.protocol.secure_sum import SecureSum
from cape.public_basis import basis_kind, widest_basis

MEASURED = ("quasi-newton", "projector", "log-euclidean")
# The forecast holds for this algorithm with about 40 rounds
FEW_ROUNDS = 20


# -- the algorithm of each stage -----------------------------------------------------------------


# Both whitening and solver ask, in every round, and G needs mu: a root of the accountant's.
@functools.lru_cache(maxsize=4)
def constants(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> TunedConstants:
    """Return the public constants of a run: measured ones for its G, unless the owner set them."""
    g = effective_g(config, n_sites, n_subjects) if config.private else None
    fixed = tuned_constants(g)
    if weights := numbers("shares", config.shares, 3):
        fixed = replace(fixed, mu2_weights=(weights[0], weights[1], weights[2]))
    if config.n_looks:
        fixed = replace(fixed, n_looks=config.n_looks)
    if clips := numbers("clip_schedule", config.clip_schedule, 2):
        fixed = replace(fixed, clips=clips)
    return replace(fixed, step_limit=config.step_limit) if config.step_limit else fixed


def make_pca(config: CapeDjicaConfig, model: object = None) -> Estimator[Subspace]:
    if config.pca == "covariance":
        return CovariancePca(
            n_components=config.n_components, clip=config.covariance_clip, private=config.private
        )
    return ProjectorPca(n_components=config.n_components, private=config.private)


def make_whitening(
    config: CapeDjicaConfig, fixed: TunedConstants, released: Subspace | None
) -> Estimator[Whitener]:
    """Return the estimator of the common whitening; `released` is None while planning."""
    if config.whitening == "eigen":
        return EigenWhitening(subspace=released)
    return LogEuclidean(n_looks=fixed.n_looks, clip=fixed.whitening_clip, private=config.private)


def make_solver(config: CapeDjicaConfig, fixed: TunedConstants) -> QuasiNewton | Infomax:
    if config.solver == "infomax":
        return Infomax(
            n_rounds=config.n_rounds,
            learning_rate=config.learning_rate,
            clip=config.clip,
            subject_bound=config.subject_clip,
            gradient_bound=config.gradient_clip,
            bias_bound=config.bias_clip,
            private=config.private,
        )
    return QuasiNewton(
        n_rounds=config.n_rounds,
        clips=fixed.clips,
        step_limit=fixed.step_limit,
        alpha_first=fixed.alpha_first,
        alpha_last=fixed.alpha_last,
        private=config.private,
        score=config.score,
    )


# -- the stages ----------------------------------------------------------------------------------


def _constants(config: CapeDjicaConfig, model: IcaModel) -> TunedConstants:
    roster = joined(model)
    return constants(config, roster.n_sites, roster.n_subjects)


def _whitening(config: CapeDjicaConfig, model: IcaModel) -> Estimator[Whitener]:
    return make_whitening(config, _constants(config, model), model.subspace)


def _solver(config: CapeDjicaConfig, model: IcaModel) -> Estimator[Unmixing]:
    return make_solver(config, _constants(config, model))


def _reduced(site: Site, model: IcaModel) -> Stacks:
    prewhiten = settings_of(CapeDjicaConfig, site.config).prewhiten
    return views.reduced(site, model, prewhiten=prewhiten)


def _whitened(site: Site, model: IcaModel) -> Stacks:
    config = settings_of(CapeDjicaConfig, site.config)
    U = WHITENING.current(config, model).U
    return views.whitened(site, model, U, prewhiten=config.prewhiten)


def _close(config: CapeDjicaConfig, model: IcaModel) -> Unmixing:
    from cape.computations.capedjica.outcome import arranged

    return arranged(config, model, WHITENING.current(config, model).U)


def _enabled(config: CapeDjicaConfig) -> bool:
    return config.separation == "temporal"


ITERATE = SecureSum(
    name="iterate",
    state=Unmixing,
    model_field="unmixing",
    estimator=_solver,
    rows=n_directions,
    input=_whitened,
    close=_close,
    enabled_if=_enabled,
)
WHITENING = SecureSum(
    name="whitening",
    state=Whitener,
    model_field="whitener",
    estimator=_whitening,
    rows=n_directions,
    input=_reduced,
    successors=(ITERATE,),
    enabled_if=_enabled,
)
# With whitening=eigen, or no look at all, the solver follows at once: both are successors.
PCA = SecureSum(
    name="pca",
    state=Subspace,
    model_field="subspace",
    may_reduce_rank=True,
    estimator=make_pca,
    rows=n_basis,
    input=subject_views.raw,
    successors=(WHITENING, ITERATE),
    enabled_if=_enabled,
)


# -- the model -----------------------------------------------------------------------------------


class TemporalModel(SeparationModel):
    """Time courses independent of each other, and maps that all subjects share."""

    first = "pca"

    def stages(
        self, config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
    ) -> tuple[PlannedStage, ...]:
        R, fixed = config.n_components, constants(config, n_sites, n_subjects)
        pca, whitening, iterate = fixed.mu2_weights
        looks = make_whitening(config, fixed, None).schedule(R)
        return (
            PlannedStage(phase="pca", releases=make_pca(config).schedule(n_basis), mu2_weight=pca),
            PlannedStage(phase="whitening", releases=looks, mu2_weight=whitening),
            PlannedStage(
                phase="iterate",
                releases=make_solver(config, fixed).schedule(R),
                mu2_weight=iterate,
                fixed_mu=config.round_mu if config.private else 0.0,
            ),
        )

    def choose_n_basis(self, config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
        from cape.forecast.temporal import BRAIN_ENERGY, IMAGE_ENERGY, choose_n_basis

        return choose_n_basis(
            n_components=config.n_components,
            g=g,
            limit=widest_basis(config, space),
            energies=BRAIN_ENERGY if space.kind == "mask" else IMAGE_ENERGY,
        )

    def rule(self, config: CapeDjicaConfig, n_basis: int) -> ForecastRule:
        from cape.forecast.temporal import (
            BRAIN_ENERGY,
            IMAGE_ENERGY,
            TemporalRule,
            energy_inside,
        )

        energy = 1.0  # of templates: of what they hold; what they lack nobody knows
        if basis_kind(config) not in ("none", "templates"):
            voxels = config.feature_space == "mask"
            energy = energy_inside(n_basis, BRAIN_ENERGY if voxels else IMAGE_ENERGY)
        return TemporalRule(
            n_components=config.n_components,
            prewhitened=config.prewhiten == "ar1",
            basis_energy=energy,
        )

    def untested(self, config: CapeDjicaConfig) -> str:
        algorithm = (config.solver, config.pca, config.whitening)
        if algorithm == MEASURED and config.n_rounds >= FEW_ROUNDS:
            return ""
        return "How good the maps will be was measured for the default algorithm only."

    def final_state(self, config: CapeDjicaConfig, model: IcaModel) -> FinalState:
        from cape.computations.capedjica.outcome import unmixed

        # With whitening=eigen there was no release of it: it follows from the subspace.
        return unmixed(model, WHITENING.current(config, model).U)
