"""Private mean and histogram of the columns of each subject's matrix: the smallest computation.

The paper's CAPE (Imtiaz et al., Alg. 2) estimates a mean from noisy sums of sites.  Here two secure
sums, one release each, give the mean of every column over subjects, and its histogram.  The
standard deviation of the noise is known, so each number has an exact error bar.

This file is the model for adding a computation (docs/adding-a-computation.md).  In order: its
settings, its public model, its releases (read by the planner and by each site's own check), its
result, its table.  The mathematics is in `cape.algorithms.marginals`.
"""

from typing import Literal

from cape.algorithms.marginals import ColumnHistogram, ColumnMean, ColumnStatistic
from cape.algorithms.significance import Z95
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, Roster, settings_of
from cape.protocol.outcome import Outcome, Table
from cape.protocol.phases import Computation
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, make_plan, verify_plan
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import nothing_for_sites, outcome_in_tables, refused, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import check_ends, option, out_of_range

# Noise std of a mean, over the range, above which there is a warning
NOISY = 0.1


# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeMeanConfig(Config):
    """Settings of capemean; columns are not preprocessed."""

    low: float = option(0.0)
    high: float = option(1.0)
    n_bins: int = option(10, low=1, high=100)
    mean_share: float = option(0.5, low=0.01, high=0.99)
    # Common settings with defaults that suit a table: no preprocessing.
    basis: Literal["none"] = option("none", group="Data")
    detrend: Literal["linear", "none"] = option("none", group="Data")
    standardize: Literal["variance", "demean", "none"] = option("none", group="Data")

    def check(self) -> None:
        Config.check(self)
        if not self.low < self.high:
            allowed, do = f"below high = {self.high}", "give the public range of the values."
            raise out_of_range("low", self.low, allowed, do)
        check_ends("low", f"{self.low:g} to {self.high:g}", self.low, self.high)


# -- the public model ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeMeanModel(Model):
    """The public state of a run; a field is None before its release."""

    mean: ColumnStatistic | None = None
    histogram: ColumnStatistic | None = None


# -- what is released: one description for the planner and for every site's own check ------------


def mean_of(config: CapeMeanConfig, model: object = None) -> ColumnMean:
    return ColumnMean(low=config.low, high=config.high)


def histogram_of(config: CapeMeanConfig, model: object = None) -> ColumnHistogram:
    return ColumnHistogram(low=config.low, high=config.high, n_bins=config.n_bins)


def stages(config: CapeMeanConfig, n_columns: int) -> tuple[PlannedStage, ...]:
    share = config.mean_share
    return (
        PlannedStage(phase="mean", releases=mean_of(config).schedule(n_columns), mu2_weight=share),
        PlannedStage(
            phase="histogram",
            releases=histogram_of(config).schedule(n_columns),
            mu2_weight=1.0 - share,
        ),
    )


def plan_run(config: CapeMeanConfig, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    """Return the plan that the aggregator makes in `join`; ConfigError if none exists."""
    D = space.n_features
    if config.max_features < D:
        do = "use an atlas."
        raise ConfigError("E145", setting="columns", got=D, allowed=config.max_features, do=do)
    plan = make_plan(config, stages(config, D), n_sites=n_sites, n_subjects=n_subjects)
    warnings: tuple[str, ...] = ()
    noise = plan[0].noise_std(n_sites, n_subjects) / 2  # the statistic spans -1 to 1
    if not config.private:
        warnings = (PROTECTS_NOBODY,)
    elif noise > NOISY:
        warnings = (
            f"The noise of every mean (std {noise:.2g} of the range) is above {NOISY:g}: "
            "use fewer columns, more subjects or a larger epsilon.",
        )
    return RunPlan(releases=plan, n_basis=D, warnings=warnings)


def verify(site: Site, roster: Roster) -> None:
    # The roster is not trusted: the site makes the same plan again from its own inputs.
    config, D = settings_of(CapeMeanConfig, site.config), roster.space.n_features
    verify_plan(site, roster, stages(config, D), n_basis=D)


# -- the result ----------------------------------------------------------------------------------

_REASONS = {"released": "All planned releases were made.", **refused("the means are complete.")}
NOTE = (
    "noise_std is the exact standard deviation of the noise that was added, which is the same for "
    "all rows; low_95 and high_95 are 1.96 of it away. They say how far a number is from that of "
    "these subjects, not how these subjects differ from others."
)


def outcome(party: Aggregator, model: CapeMeanModel) -> Outcome:
    mean: ColumnStatistic = MEAN.released(model)
    histogram: ColumnStatistic = HISTOGRAM.released(model)
    config = settings_of(CapeMeanConfig, party.config)
    return outcome_in_tables(
        COMPUTATION.name,
        party,
        model,
        status=histogram.status,
        reasons=_REASONS,
        tables=(mean_table(mean), histogram_table(config, histogram)),
    )


def mean_table(state: ColumnStatistic) -> Table:
    """Return one row per column: the private mean and its error."""
    return Table(
        name="mean",
        title="Mean of every column over subjects",
        note=f"Every subject weighs the same. {NOTE}",
        header=("column", "mean", "noise_std", "low_95", "high_95"),
        rows=tuple(
            (i, *_with_error(value, state.noise_std))
            for i, value in enumerate(state.values.tolist(), 1)
        ),
    )


def histogram_table(config: CapeMeanConfig, state: ColumnStatistic) -> Table:
    """Return one row per column and bin; the first and last bin of a column are open."""
    edges = histogram_of(config).edges().tolist()
    bins = list(zip(["-inf", *edges], [*edges, "inf"], strict=True))
    # After a refusal, cells are empty: zeros would look like empty bins.
    released = state.status == "released"
    rows = []
    for i, value in enumerate(state.values.tolist()):
        column, bin_ = divmod(i, len(bins))
        numbers = _with_error(value, state.noise_std) if released else (None,) * 4
        rows.append((1 + column, *bins[bin_], *numbers))
    return Table(
        name="histogram",
        title="Histogram of every column over subjects",
        note=f"Mean fraction of a subject's own time points, unbiased; it may be below 0. {NOTE}",
        header=("column", "from", "to", "fraction", "noise_std", "low_95", "high_95"),
        rows=tuple(rows),
    )


def _with_error(value: float, noise_std: float) -> tuple[float, float, float, float]:
    half = Z95 * noise_std
    return value, noise_std, value - half, value + half


# -- the protocol --------------------------------------------------------------------------------

# The last stage has no successors: it opens `report`.  If a site refuses it, the run ends with the
# means.
HISTOGRAM = SecureSum(
    name="histogram",
    state=ColumnStatistic,
    model_field="histogram",
    estimator=histogram_of,
    input=subject_views.as_read,
)
MEAN = SecureSum(
    name="mean",
    state=ColumnStatistic,
    model_field="mean",
    estimator=mean_of,
    input=subject_views.as_read,
    successors=(HISTOGRAM,),
)

COMPUTATION = Computation(
    name="capemean",
    config=CapeMeanConfig,
    model=CapeMeanModel,
    table=(
        join("capemean", by_sizes(plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(verify, then="mean"),  # PublicKey -> KeyBook; probe -> Fingerprint
        MEAN,  # Masked -> ColumnStatistic
        HISTOGRAM,  # Masked -> ColumnStatistic
        report(nothing_for_sites, outcome),  # Done -> Closing
    ),
)
