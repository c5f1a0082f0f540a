"""Joint temporal ICA of several sites, private for every subject: the papers' model.

Model: X_m is about A S_m for every subject m of every site, with common maps A and private time
courses S_m.  A run has three stages of secure sums: a common subspace (pca), a common whitening,
and the rounds of a solver.  The algorithms are designed for privacy: PCA of subjects' projectors in
a public basis, log-Euclidean whitening, rotations by quasi-Newton steps.  `paperdjica` has those of
Imtiaz et al., Alg. 3 and 4 (docs/deviations.md).

Read the table at the bottom first.  `cape.computations.ica` has the parts that all joint ICAs
share: `plan` (checked by all sites before any release) and `outcome` (the results).
"""

import functools
import math
from dataclasses import replace
from typing import Literal, Protocol

import numpy as np

from cape.algorithms import whitening
from cape.algorithms.estimators import Array, Estimator
from cape.algorithms.pca import ProjectorPca, Subspace
from cape.algorithms.quasi_newton import QuasiNewton, TunedConstants, tuned_constants
from cape.algorithms.unmixing import Unmixing
from cape.algorithms.verdict import JUDGED, of_answers
from cape.algorithms.whitening import LogEuclidean, Whitener
from cape.computations.ica.model import FinalState, IcaModel, arranged, unmixed
from cape.computations.ica.outcome import ica_report
from cape.computations.ica.plan import IcaPlanner
from cape.computations.ica.settings import LeftRightConfig, effective_g
from cape.errors import ConfigError
from cape.forecast.rule import ForecastRule
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import by_sizes, join
from cape.protocol.model import joined, settings_of
from cape.protocol.outcome import SpatialSet
from cape.protocol.phases import Computation
from cape.protocol.plan import PlannedStage
from cape.protocol.ports import Site, Stacks
from cape.protocol.secure_sum import SecureSum
from cape.protocol.subject_views import map_subjects
from cape.protocol.zero_sum import ZeroSum
from cape.settings.option import option, out_of_range
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import public_basis, widest_basis

# -- settings --------------------------------------------------------------------------------------


class Solver(Estimator[Unmixing], Protocol):
    """The estimator of the rounds, as planned."""

    def after(self, released: Subspace | None, whitened: Whitener | None) -> Estimator[Unmixing]:
        """Return the solver with the states that earlier stages released."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeDjicaConfig(LeftRightConfig):
    """Settings of capedjica."""

    n_looks: int = option(0, low=0, high=10, expert=True)
    prewhiten: Literal["ar1", "none"] = option("ar1", expert=True)
    score: Literal["volatility", "tanh"] = option("volatility", expert=True)
    n_rounds: int = option(40, low=1, high=2000, expert=True)
    shares: str = option("auto", expert=True)
    clip_schedule: str = option("auto", expert=True)
    step_limit: float = option(0.0, low=0.0, high=10.0, expert=True)
    round_mu: float = option(0.0, low=0.0, high=100.0, expert=True)

    def check(self) -> None:
        LeftRightConfig.check(self)
        parse_numbers("shares", self.shares, 3)
        parse_numbers("clip_schedule", self.clip_schedule, 2)

    # These are methods because `cape.papers.computations.paperdjica` overrides them: the same
    # stages with other algorithms.
    def make_pca(self) -> Estimator[Subspace]:
        return ProjectorPca(n_components=self.n_components, private=self.private)

    def make_whitening(
        self, fixed: TunedConstants, released: Subspace | None
    ) -> Estimator[Whitener]:
        """Return the estimator of the common whitening; `released` is None while planning."""
        return LogEuclidean(n_looks=fixed.n_looks, clip=fixed.whitening_clip, private=self.private)

    def make_solver(self, fixed: TunedConstants) -> Solver:
        return QuasiNewton(
            n_rounds=self.n_rounds,
            clips=fixed.clips,
            step_limit=fixed.step_limit,
            alpha_first=fixed.alpha_first,
            alpha_last=fixed.alpha_last,
            private=self.private,
            score=self.score,
            dither=fixed.dither if self.is_dithered() else 0.0,
            of_projectors=self.releases_projectors(),
        )

    def releases_projectors(self) -> bool:
        """Whether the first release is a mean of projectors, from which common maps follow."""
        return True

    def is_dithered(self) -> bool:
        """Whether each round rotates W by public angles, whose answers judge the result."""
        return self.private and self.score == "volatility"


def parse_numbers(name: str, text: str, count: int) -> tuple[float, ...]:
    """Return the numbers of ``"0.4,0.3,0.3"``, () for ``"auto"``; positive, else ConfigError."""
    if text == "auto":
        return ()
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(math.isfinite(v) and v > 0 for v in values):
        allowed = f"auto, or {count} numbers above 0 separated by commas"
        raise out_of_range(name, text, allowed, "such as " + ",".join(["0.3"] * count))
    return values


# -- what follows from the settings and the sizes --------------------------------------------------


# Cached: whitening and solver both need it, and G requires a root search for mu.
@functools.lru_cache(maxsize=4)
def constants(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> TunedConstants:
    """Return the public constants of a run: fitted to R and G, unless set by the owner."""
    g = effective_g(config, n_sites, n_subjects) if config.private else None
    fixed = tuned_constants(config.n_components, g)
    if weights := parse_numbers("shares", config.shares, 3):
        fixed = replace(fixed, mu2_weights=(weights[0], weights[1], weights[2]))
    if config.n_looks:
        fixed = replace(fixed, n_looks=config.n_looks)
    if clips := parse_numbers("clip_schedule", config.clip_schedule, 2):
        fixed = replace(fixed, clips=clips)
    return replace(fixed, step_limit=config.step_limit) if config.step_limit else fixed


@functools.lru_cache(maxsize=4)
def solver(config: CapeDjicaConfig, n_sites: int, n_subjects: int) -> Solver:
    return config.make_solver(constants(config, n_sites, n_subjects))


# -- what a site answers from ---------------------------------------------------------------------

# Name of the working arrays of the two later stages; whitened arrays replace reduced ones.
IN_SUBSPACE = "subspace"


def subspace(model: IcaModel) -> Subspace:
    released: Subspace = PCA.released(model)
    return released


def n_directions(model: IcaModel) -> int:
    """Return k, the dimension of the released subspace; the rank guard may lower it below R."""
    return int(subspace(model).V.shape[1])


def _reduced(site: Site, model: IcaModel) -> Stacks:
    """Return Z0_m = V'Y_m (k, T), filtered in time and scaled to unit trace."""
    V = subspace(model).V
    prewhiten = settings_of(CapeDjicaConfig, site.config).prewhiten

    def build() -> Stacks:
        return map_subjects(
            subject_views.despiked(site, model),
            lambda Y: whitening.reduce_subject(V, Y, prewhiten=prewhiten),
        )

    return site.cached(IN_SUBSPACE, (V,), build)


def _whitened(site: Site, model: IcaModel) -> Stacks:
    """Return Z_m = U Z0_m (k, T), constant over the rounds of a solver."""
    U = WHITENING.current(site.config, model).U

    def build() -> Stacks:
        stacks = _reduced(site, model)
        # One product of stacked matrices: faster, and its rounding is that of earlier runs.
        arrays = tuple(whitening.whiten(U, array) for array in stacks.arrays)
        return Stacks(arrays=arrays, labels=stacks.labels)

    return site.cached(IN_SUBSPACE, (subspace(model).V, U), build)


# -- the stages ----------------------------------------------------------------------------------


def _whitening(config: CapeDjicaConfig, model: IcaModel) -> Estimator[Whitener]:
    roster = joined(model)
    fixed = constants(config, roster.n_sites, roster.n_subjects)
    return config.make_whitening(fixed, model.subspace)


def _solver(config: CapeDjicaConfig, model: IcaModel) -> Estimator[Unmixing]:
    roster = joined(model)
    planned = solver(config, roster.n_sites, roster.n_subjects)
    return planned.after(model.subspace, model.whitener)


def _with_start(config: CapeDjicaConfig, model: IcaModel, mean: Array) -> Whitener:
    """Return the released whitener and the start of the rounds, which costs no privacy."""
    # The aggregator alone imports and runs this, once.
    from cape.algorithms.spatial import spatial_start

    whitener: Whitener = WHITENING.released(model)
    if not config.is_dithered():
        return whitener
    roster = joined(model)
    basis = public_basis(resolve(config), roster.space, roster.n_basis)
    start = spatial_start(basis, subspace(model).V, whitener.U)
    return replace(whitener, origin=start.W, gate=start.gate, sparse=start.sparse)


def with_free_set(config: CapeDjicaConfig, model: IcaModel, mean: Array) -> Subspace:
    # The aggregator alone imports and runs this, once.
    from cape.computations.ica.recipe import free_set

    try:
        free = free_set(config, model, mean)
    except (ConfigError, np.linalg.LinAlgError):
        # The budget is already spent: a mask too small for the kernel must not end the run.
        free = None
    return replace(subspace(model), free=free)


def _close(config: CapeDjicaConfig, model: IcaModel) -> Unmixing:
    return arranged(config, model, WHITENING.current(config, model).U)


# Feature spaces of brains, in which `forecast.BRAIN_ENERGY` holds (docs/decisions.md has similar
# figures for grayordinates)
OF_BRAINS = ("mask", "grayordinates")

ITERATE = SecureSum(
    name="iterate",
    state=Unmixing,
    model_field="unmixing",
    estimator=_solver,
    rows=n_directions,
    input=_whitened,
    close=_close,
)
WHITENING = SecureSum(
    name="whitening",
    state=Whitener,
    model_field="whitener",
    estimator=_whitening,
    rows=n_directions,
    input=_reduced,
    successors=(ITERATE,),
    hand_over=_with_start,
)
PCA = SecureSum(
    name="pca",
    state=Subspace,
    model_field="subspace",
    may_reduce_rank=True,
    estimator=lambda config, model: config.make_pca(),
    input=subject_views.despiked,
    successors=(WHITENING,),
    hand_over=with_free_set,
)


# -- the plan ------------------------------------------------------------------------------------


def releases(
    config: CapeDjicaConfig, *, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    """Return all releases of a run with their weights in mu^2."""
    R, fixed = config.n_components, constants(config, n_sites, n_subjects)
    pca_weight, whitening_weight, solver_weight = fixed.mu2_weights
    subspace_release = config.make_pca().schedule(n_basis)
    looks = config.make_whitening(fixed, None).schedule(R)
    return (
        PlannedStage(phase="pca", releases=subspace_release, mu2_weight=pca_weight),
        PlannedStage(phase="whitening", releases=looks, mu2_weight=whitening_weight),
        PlannedStage(
            phase="iterate",
            releases=solver(config, n_sites, n_subjects).schedule(R),
            mu2_weight=solver_weight,
            fixed_mu=config.round_mu if config.private else 0.0,
        ),
    )


def choose_n_basis(config: CapeDjicaConfig, space: FeatureSpace, g: float) -> int:
    from cape.forecast import temporal as forecast

    return forecast.best_n_basis(
        n_components=config.n_components,
        g=g,
        limit=widest_basis(resolve(config), space),
        energies=forecast.BRAIN_ENERGY if space.kind in OF_BRAINS else forecast.IMAGE_ENERGY,
    )


def rule(config: CapeDjicaConfig, n_basis: int) -> ForecastRule:
    from cape.forecast import temporal as forecast

    fields = forecast.settings_of_rule(config.settings())
    fields["brains"] = config.feature_space != "matrix"
    rule = forecast.TemporalRule(n_components=config.n_components, **fields)
    # Templates are assumed to hold the whole map: their error is unknown.
    if resolve(config).basis in ("none", "templates"):
        return rule
    brains = config.feature_space in OF_BRAINS
    energies = forecast.BRAIN_ENERGY if brains else forecast.IMAGE_ENERGY
    return replace(rule, basis_energy=forecast.energy_inside(n_basis, energies))


# -- the end -------------------------------------------------------------------------------------


def final_state(config: CapeDjicaConfig, model: IcaModel) -> FinalState:
    # Without a release, the whitening is computed from the subspace.
    whitener = WHITENING.current(config, model)
    end = unmixed(model, whitener.U)
    if model.unmixing is None or not config.is_dithered() or end.status not in JUDGED:
        return end
    verdict = of_answers(
        model.unmixing.response,
        model.unmixing.information,
        n_components=len(end.W),
        gate=whitener.gate,
    )
    return replace(end, verdict=replace(verdict, confirmed=model.unmixing.confirmed))


def spatial_set(config: CapeDjicaConfig, model: IcaModel) -> SpatialSet | None:
    from cape.computations.ica.recipe import set_of

    return set_of(config, model)


# -- the protocol ----------------------------------------------------------------------------------

NAME = "capedjica"
PLANNER = IcaPlanner(
    kind="temporal",
    config=CapeDjicaConfig,
    releases=releases,
    choose_n_basis=choose_n_basis,
    rule=rule,
)

COMPUTATION = Computation(
    name=NAME,
    config=CapeDjicaConfig,
    model=IcaModel,
    table=(
        join(NAME, by_sizes(PLANNER.plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(PLANNER.verify, then="pca"),  # PublicKey -> KeyBook; probe -> Fingerprint
        PCA,  # Masked -> Subspace
        WHITENING,  # Masked -> Whitener
        ITERATE,  # Masked -> Unmixing
        # Done -> Closing
        ica_report(NAME, (PCA, WHITENING, ITERATE), final_state, spatial_set=spatial_set),
    ),
)
