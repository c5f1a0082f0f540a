"""Decentralized joint ICA of Baker et al. (2015, 2019), no privacy: what others compare with.

Local PCA at every site, global PCA of the stacked local ones, one sphere for all, then Infomax on
sums over sites, block by block (as its authors do) or on all columns in every round.  Labelled
"none": nothing is added to the sums, and a site that runs it must allow it in its policy
(``allow_not_private``).  A site is the record here; see `cape.papers.algorithms.djica`.
"""

from __future__ import annotations

from typing import Literal

from cape.algorithms.estimators import Array
from cape.algorithms.pca import Subspace
from cape.algorithms.unmixing import Unmixing
from cape.computations.capedjica.stages import n_directions, subspace
from cape.computations.ica.model import IcaModel, arranged, unmixed
from cape.computations.ica.outcome import consortium_outcome, site_outcome
from cape.errors import ConfigError, ConsortiumError
from cape.frozen import dataclass
from cape.papers.algorithms.djica import (
    DjicaInfomax,
    EpochState,
    GlobalSphere,
    Sphere,
    StackedPca,
    default_block,
    default_rate,
)
from cape.papers.no_guarantee import as_one_record, check_n_local, check_not_private
from cape.protocol import subject_views
from cape.protocol.join import RunPlan, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Roster, joined, n_basis, progress, settings_of
from cape.protocol.outcome import IcaOutcome, SiteOutcome
from cape.protocol.phases import Computation
from cape.protocol.plan import (
    PROTECTS_NOBODY,
    PlannedStage,
    filtered,
    make_plan,
    verify_basis,
    verify_plan,
)
from cape.protocol.ports import Aggregator, Site, Stacks
from cape.protocol.report_phase import report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import option
from cape.settings.resolved import check_basis, resolve
from cape.space.public_basis import widest_basis

_NAME = "djica"
# Of the first mean gradient on doubled white data; later ones choose their own.
FULL_BATCH_RATE = 0.5

# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class DjicaConfig(Config):
    """Settings of djica."""

    n_components: int = option(20, low=2, high=50)
    n_local: int = option(100, low=2, high=1447)
    batch: Literal["full", "block"] = option("full")
    block: int = option(0, low=0, high=10**6, expert=True)
    n_rounds: int = option(400, low=1, high=9000)
    learning_rate: float = option(0.0, low=0.0, high=2.0, expert=True)
    anneal: bool = option(True, expert=True)
    tolerance: float = option(1e-6, low=0.0, high=1.0, expert=True)
    private: bool = option(False, group="Privacy")
    standardize: Literal["auto", "variance", "floored", "demean"] = option("auto", group="Data")

    def check(self) -> None:
        Config.check(self)
        check_not_private(_NAME, self)
        check_basis(self)
        check_n_local(self.n_local, self.n_components)


def djica_settings(config: Config) -> DjicaConfig:
    return settings_of(DjicaConfig, config)


# -- the public model ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class DjicaModel(IcaModel):
    """As of every joint ICA; sphere and solver carry more."""

    whitener: Sphere | None = None
    unmixing: EpochState | None = None


# -- what is summed ------------------------------------------------------------------------------


def pca_of(config: Config, n_subjects: int) -> StackedPca:
    settings = djica_settings(config)
    return StackedPca(
        n_components=settings.n_components, n_local=settings.n_local, n_subjects=n_subjects
    )


def _solver_of(config: Config, n_subjects: int, n_columns: int) -> DjicaInfomax:
    settings = djica_settings(config)
    block = 0
    rate = settings.learning_rate or FULL_BATCH_RATE
    if settings.batch == "block":
        # Baker et al. choose both by the size of a site; sums over blocks need a smaller rate.
        block = min(settings.block or default_block(n_columns), max(n_columns, 1))
        rate = settings.learning_rate or default_rate(settings.n_components)
    return DjicaInfomax(
        n_rounds=settings.n_rounds,
        learning_rate=rate,
        block=block,
        n_columns=n_columns,
        n_subjects=n_subjects,
        anneal=settings.anneal,
        tolerance=settings.tolerance,
    )


def _stages(
    config: Config, n_sites: int, n_subjects: int, n_basis: int
) -> tuple[PlannedStage, ...]:
    # Weights of the budget mean nothing without noise, but every plan has them.
    R = djica_settings(config).n_components
    sphere = GlobalSphere(n_subjects=n_subjects, n_sites=n_sites)
    solver = _solver_of(config, n_subjects, 0)
    return (
        PlannedStage(
            phase="pca", releases=pca_of(config, n_subjects).schedule(n_basis), mu2_weight=1.0
        ),
        PlannedStage(phase="sphere", releases=sphere.schedule(R), mu2_weight=1.0),
        PlannedStage(phase="iterate", releases=solver.schedule(R), mu2_weight=1.0),
    )


def _full_width(config: Config, space: FeatureSpace) -> int:
    d = widest_basis(resolve(config), space)
    if d > config.max_features:
        raise ConfigError(
            "E145", setting="features", got=d, allowed=config.max_features, do="set n_basis."
        )
    if d < djica_settings(config).n_components:
        got = djica_settings(config).n_components
        raise ConfigError("E149", got=got, allowed=f"2 to {d}", do=f"there are {d} directions.")
    return d


def _plan_run(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    if n_subjects < djica_settings(config).n_components:
        raise ConsortiumError("E130", got=n_subjects, allowed=djica_settings(config).n_components)
    d = _full_width(config, space)
    releases = make_plan(
        config, _stages(config, n_sites, n_subjects, d), n_sites=n_sites, n_subjects=n_subjects
    )
    return RunPlan(releases=releases, n_basis=d, warnings=(PROTECTS_NOBODY, *filtered(config)))


def _verify(site: Site, roster: Roster) -> None:
    d = _full_width(site.config, roster.space)
    verify_basis(site, roster, d)
    verify_plan(site, roster, _stages(site.config, roster.n_sites, roster.n_subjects, d))


def _pca(config: Config, model: DjicaModel) -> StackedPca:
    return pca_of(config, joined(model).n_subjects)


def _sphere(config: Config, model: DjicaModel) -> GlobalSphere:
    del config
    return GlobalSphere(n_subjects=joined(model).n_subjects, n_sites=joined(model).n_sites)


def _solver(config: Config, model: DjicaModel) -> DjicaInfomax:
    # The size of a block follows from what the sphere released: the mean number of columns.
    n_columns = model.whitener.n_columns if model.whitener else 1
    return _solver_of(config, joined(model).n_subjects, n_columns)


# -- what a site answers from --------------------------------------------------------------------


def _columns(site: Site, model: DjicaModel) -> Stacks:
    M = joined(model).n_subjects
    return as_one_record(subject_views.raw(site, model), site.id, weighted=True, n_subjects=M)


def _reduced(site: Site, model: DjicaModel) -> Stacks:
    M = joined(model).n_subjects
    return as_one_record(_projected(site, model), site.id, weighted=True, n_subjects=M)


def _projected(site: Site, model: DjicaModel) -> Stacks:
    V = subspace(model).V
    return subject_views.mapped(site, model, "reduced", V.T)


def _whitened(site: Site, model: DjicaModel) -> Stacks:
    """Return doubled white data later on: of each subject, or of the site side by side."""
    U = SPHERE.current(site.config, model).U
    map_ = U @ subspace(model).V.T
    white = subject_views.mapped(site, model, "whitened", map_)
    # Full batch: a record is a subject, as for the product.  Blocks run over a whole site.
    if djica_settings(site.config).batch == "full":
        return white
    return as_one_record(white, site.id, weighted=False)


# -- the protocol --------------------------------------------------------------------------------


def _sphered(model: DjicaModel) -> Array:
    if model.whitener is None:
        raise RuntimeError("no sphere before its sum")
    return model.whitener.U


def _close(config: Config, model: DjicaModel) -> Unmixing:
    return arranged(config, model, _sphered(model))


def _write_site(site: Site, model: DjicaModel) -> SiteOutcome:
    return site_outcome(_NAME, site, model, unmixed(model, _sphered(model)))


def _outcome(party: Aggregator, model: DjicaModel) -> IcaOutcome:
    end = unmixed(model, _sphered(model))
    return consortium_outcome(_NAME, party, model, end, label="none")


_ITERATE = SecureSum(
    name="iterate",
    state=EpochState,
    model_field="unmixing",
    estimator=_solver,
    rows=n_directions,
    input=_whitened,
    close=_close,
)
SPHERE = SecureSum(
    name="sphere",
    state=Sphere,
    model_field="whitener",
    estimator=_sphere,
    rows=n_directions,
    input=_reduced,
    successors=(_ITERATE,),
)
_PCA = SecureSum(
    name="pca",
    state=Subspace,
    model_field="subspace",
    may_reduce_rank=True,
    estimator=_pca,
    rows=n_basis,
    input=_columns,
    successors=(SPHERE, _ITERATE),
)

COMPUTATION = Computation(
    name=_NAME,
    cite="Baker et al., djICA (MLSP 2015, NeuroImage 2019)",
    config=DjicaConfig,
    model=DjicaModel,
    start=DjicaModel,
    progress=progress,
    guarantee="none",
    table=(
        join(_NAME, _plan_run, then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then="pca"),  # PublicKey -> KeyBook; probe -> Fingerprint
        _PCA,  # Masked -> Subspace
        SPHERE,  # Masked -> Sphere
        _ITERATE,  # Masked -> EpochState
        report(_write_site, _outcome),  # Done -> Closing
    ),
)
