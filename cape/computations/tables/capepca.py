"""capePCA (Imtiaz et al., Alg. 3) alone: private PCA of bounded records from one secure sum.

Each subject answers with the second moment of its own columns.  The one release, the sum over
subjects, has as much noise as if one site held all data (correlated noise, Lemma 1).  For
comparison: ``noise=local`` is the conventional scheme ("full" of DPdisPCA: each site adds all the
noise); ``noise=local min_sites=1`` is local DP-PCA on the folder of one site, and pooled DP-PCA on
a folder of all data.
"""

from typing import Literal

from cape.algorithms.second_moment import Principal, SecondMomentPca
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.model import Model, Roster, settings_of
from cape.protocol.outcome import Outcome, Table
from cape.protocol.phases import Computation
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, make_plan, verify_plan
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import nothing_for_sites, outcome_in_tables, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import option, out_of_range
from cape.settings.resolved import check_basis, resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import widest_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class CapePcaConfig(Config):
    """Settings of capepca; columns are not preprocessed."""

    n_directions: int = option(3, low=1, high=1000)
    norm_bound: float = option(1.0, low=1e-12, high=1e12)
    feature_space: Literal["mask", "atlas", "matrix"] = option("matrix", group="Data")
    min_timepoints: int = option(1, low=1, group="Data")
    detrend: Literal["linear", "none"] = option("none", group="Data")
    standardize: Literal["variance", "demean", "none"] = option("none", group="Data")

    def check(self) -> None:
        Config.check(self)
        check_basis(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class PcaModel(Model):
    """The public state of a run."""

    principal: Principal | None = None  # None before the release


def estimator(config: CapePcaConfig, model: object = None) -> SecondMomentPca:
    return SecondMomentPca(n_components=config.n_directions, norm_bound=config.norm_bound)


def stages(config: CapePcaConfig, n_features: int) -> tuple[PlannedStage, ...]:
    releases = estimator(config).schedule(n_features)
    return (PlannedStage(phase="moment", releases=releases, mu2_weight=1.0),)


def plan_run(config: CapePcaConfig, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    d = widest_basis(resolve(config), space)
    if d > config.max_features:
        do = "use a basis or an atlas."
        raise ConfigError("E145", setting="features", got=d, allowed=config.max_features, do=do)
    if config.n_directions > d:
        got, do = config.n_directions, f"the data have {d} directions."
        raise out_of_range("n_directions", got, f"1 to {d}", do)
    plan = make_plan(config, stages(config, d), n_sites=n_sites, n_subjects=n_subjects)
    warnings = () if config.private else (PROTECTS_NOBODY,)
    return RunPlan(releases=plan, n_basis=d, warnings=warnings)


def verify(site: Site, roster: Roster) -> None:
    # The roster is not trusted: the site makes the same plan again from its own inputs.
    config = settings_of(CapePcaConfig, site.config)
    d = widest_basis(resolve(config), roster.space)
    verify_plan(site, roster, stages(config, d), n_basis=d)


def outcome(name: str, party: Aggregator, model: PcaModel, *, note: str) -> Outcome:
    state: Principal = MOMENT.released(model)
    # After a refusal there is nothing to show: the state is that before the release.
    tables = (spectrum_table(state, note), directions_table(state))
    return outcome_in_tables(
        name, party, model, status=state.status, tables=tables if state.status == "released" else ()
    )


def spectrum_table(state: Principal, note: str) -> Table:
    K = state.V.shape[1]
    return Table(
        name="spectrum",
        title="Eigenvalues of the released second moment",
        note=f"{note} noise_edge is the largest eigenvalue of the noise alone; a direction whose "
        "eigenvalue is not well above it is mostly noise. Negative eigenvalues are noise.",
        header=("direction", "eigenvalue", "noise_edge", "above_noise", "kept"),
        rows=tuple(
            (i, value, state.edge, "yes" if value > state.edge else "no", "yes" if i <= K else "no")
            for i, value in enumerate(state.eigenvalues.tolist(), 1)
        ),
    )


def directions_table(state: Principal) -> Table:
    """Return one row per feature: its weight in each direction."""
    K = state.V.shape[1]
    return Table(
        name="directions",
        title="Directions, one column each, of norm 1",
        note="The entry of largest magnitude of every direction is positive. With a public basis "
        "the rows are its directions, else the features.",
        header=("feature", *(f"V{k:02d}" for k in range(1, K + 1))),
        rows=tuple((i, *row) for i, row in enumerate(state.V.tolist(), 1)),
    )


def _outcome(party: Aggregator, model: PcaModel) -> Outcome:
    return outcome("capepca", party, model, note="One sum over all subjects.")


MOMENT = SecureSum(
    name="moment",
    state=Principal,
    model_field="principal",
    estimator=estimator,
    # Neither centred nor scaled: `norm_bound` is for the records themselves.
    input=subject_views.as_read,
)

COMPUTATION = Computation(
    name="capepca",
    config=CapePcaConfig,
    model=PcaModel,
    table=(
        join("capepca", by_sizes(plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(verify, then="moment"),  # PublicKey -> KeyBook; probe -> Fingerprint
        MOMENT,  # Masked -> Principal
        report(nothing_for_sites, _outcome),  # Done -> Closing
    ),
)
