"""capeCCA (Imtiaz and Sarwate, Alg. 1): private CCA of two views from one secure sum.

A subject is one record z = [x ; y], such as strengths of brain networks and scores of behaviour.
Each column is standardised by its public range.  One release, the joint second moment, gives means,
standard deviations, canonical correlations and weights.  For comparison: ``noise=local`` is the
paper's "conv", and ``noise=local min_sites=1`` on one folder its "local".
"""

from dataclasses import replace
from typing import Literal

import numpy as np

from cape.algorithms.cca import CanonicalState, SecondMomentCca
from cape.algorithms.estimators import Array
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import RunPlan, by_sizes, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, Roster, n_basis, settings_of
from cape.protocol.outcome import Outcome, Table
from cape.protocol.phases import Computation
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, make_plan, verify_plan
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import nothing_for_sites, outcome_in_tables, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config
from cape.settings.option import check_ends, option, out_of_range


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeCcaConfig(Config):
    """Settings of capecca; records are rows of a table or files, without preprocessing."""

    n_features_x: int = option(0, low=0, high=1446)
    n_pairs: int = option(2, low=1, high=500)
    x_low: float = option(-3.0)
    x_high: float = option(3.0)
    y_low: float = option(-3.0)
    y_high: float = option(3.0)
    bounds: str = option("", expert=True)
    norm_bound: float = option(0.6, low=0.01, high=1.0, expert=True)
    centre: Literal["released", "range"] = option("released", expert=True)
    ridge: float = option(0.0, low=0.0, high=10.0, expert=True)
    # Common settings with defaults that suit a table: no preprocessing.
    feature_space: Literal["matrix"] = option("matrix", group="Data")
    basis: Literal["none"] = option("none", group="Data")
    min_timepoints: int = option(1, low=1, group="Data")
    detrend: Literal["linear", "none"] = option("none", group="Data")
    standardize: Literal["variance", "demean", "none"] = option("none", group="Data")

    def check(self) -> None:
        Config.check(self)
        single_bounds(self.bounds)
        for view, low, high in (("x", self.x_low, self.x_high), ("y", self.y_low, self.y_high)):
            if not low < high:
                allowed, do = f"below {view}_high = {high}", "give the public range of the values."
                raise out_of_range(f"{view}_low", low, allowed, do)
            check_ends(f"{view}_low", f"{low:g} to {high:g}", low, high)


def single_bounds(text: str) -> dict[int, tuple[float, float]]:
    """Return {column: (low, high)} of ``"4:18:90;7:0:30"``, else ConfigError."""
    bounds: dict[int, tuple[float, float]] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        try:
            column, low, high = part.split(":")
            index, ends = int(column), (float(low), float(high))
        except ValueError:
            index, ends = 0, (0.0, 0.0)
        fine = index >= 1 and np.isfinite(ends).all() and ends[0] < ends[1]
        # If a column is given twice, the meant range is unknown.
        if not fine or index in bounds:
            allowed, do = "column:low:high, each column once", "such as 4:18:90."
            raise out_of_range("bounds", part, allowed, do)
        check_ends("bounds", part, *ends)
        bounds[index] = ends
    return bounds


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeCcaModel(Model):
    """The public state of a run."""

    canonical: CanonicalState | None = None  # None before the release


# Appended constant over the norm bound: the means cost a factor of 1.25 in sensitivity.
CONSTANT_RATIO = 0.5


def first_view(config: CapeCcaConfig, n_columns: int) -> int:
    return config.n_features_x or n_columns // 2


def estimator(config: CapeCcaConfig, n_columns: int) -> SecondMomentCca:
    # Public ranges only: a range from data would be another release.
    n_x = first_view(config, n_columns)
    low = [config.x_low] * n_x + [config.y_low] * (n_columns - n_x)
    high = [config.x_high] * n_x + [config.y_high] * (n_columns - n_x)
    for column, ends in single_bounds(config.bounds).items():
        if column <= n_columns:
            low[column - 1], high[column - 1] = ends
    return SecondMomentCca(
        low=tuple(low),
        high=tuple(high),
        n_x=n_x,
        n_pairs=config.n_pairs,
        norm_bound=config.norm_bound,
        constant=CONSTANT_RATIO * config.norm_bound if config.centre == "released" else 0.0,
        ridge=config.ridge,
    )


def stages(config: CapeCcaConfig, n_columns: int) -> tuple[PlannedStage, ...]:
    releases = estimator(config, n_columns).schedule(n_columns)
    return (PlannedStage(phase="moment", releases=releases, mu2_weight=1.0),)


def plan_run(config: CapeCcaConfig, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    D = space.n_features
    if config.max_features < D:
        do = "use fewer."
        raise ConfigError("E145", setting="columns", got=D, allowed=config.max_features, do=do)
    n_x = first_view(config, D)
    # The number of columns is known only after the sites have read their tables.
    for setting, got, limit in (
        ("n_features_x", n_x, D - 1),
        ("n_pairs", config.n_pairs, min(n_x, D - n_x)),
        ("bounds", max(single_bounds(config.bounds), default=1), D),
    ):
        if not 1 <= got <= limit:
            do = f"the data have {D} columns, {n_x} of them in the first view."
            raise out_of_range(setting, got, f"1 to {limit}", do)
    plan = make_plan(config, stages(config, D), n_sites=n_sites, n_subjects=n_subjects)
    warnings = () if config.private else (PROTECTS_NOBODY,)
    return RunPlan(releases=plan, n_basis=D, warnings=warnings)


def _verify(site: Site, roster: Roster) -> None:
    # The roster is not trusted: the site makes the same plan again from its own inputs.
    config, D = settings_of(CapeCcaConfig, site.config), roster.space.n_features
    verify_plan(site, roster, stages(config, D), n_basis=D)


def _estimator(config: CapeCcaConfig, model: CapeCcaModel) -> SecondMomentCca:
    return estimator(config, n_basis(model))


ONLY_NOISE = "No canonical correlation is above what noise alone can give: too few subjects."


def _outcome(party: Aggregator, model: CapeCcaModel) -> Outcome:
    state: CanonicalState = JOINT_MOMENT.released(model)
    done = state.status == "released"
    outcome = outcome_in_tables(
        "capecca",
        party,
        model,
        status=state.status,
        tables=(correlations_table(state), *column_tables(state)) if done else (),
    )
    if done and state.correlations[0] <= state.noise_bound:
        return replace(outcome, warnings=(*outcome.warnings, ONLY_NOISE))
    return outcome


def correlations_table(state: CanonicalState) -> Table:
    return Table(
        name="correlations",
        title="Canonical correlations",
        note="noise_bound is what the added noise alone gives as the largest correlation at most, "
        "on average; a correlation below it says nothing, and noise makes all of them larger. How "
        "much these subjects differ from others is not in it: few subjects do the same.",
        header=("pair", "correlation", "noise_bound"),
        rows=tuple(
            (k, value, state.noise_bound) for k, value in enumerate(state.correlations.tolist(), 1)
        ),
    )


def column_tables(state: CanonicalState) -> tuple[Table, Table]:
    """Return a table per view; a row holds a column's mean, std, weights and loadings."""
    n_x = len(state.U)
    first, second = slice(0, n_x), slice(n_x, len(state.mean))
    return (
        _column_table(state, "x", "First view", first, state.U),
        _column_table(state, "y", "Second view", second, state.V),
    )


def _column_table(
    state: CanonicalState, view: str, title: str, columns: slice, weights: Array
) -> Table:
    K, std = weights.shape[1], state.std[columns]
    # Correlations of columns with the variates of their view, from released values.
    loadings = state.covariance[columns, columns] @ weights
    loadings /= np.where(std > 0.0, std, np.inf)[:, None]
    # Noise can take an estimate beyond 1.
    loadings = np.clip(loadings, -1.0, 1.0)
    parts = (state.mean[columns], std, weights * std[:, None], loadings)
    rows = zip(*(part.tolist() for part in parts), strict=True)
    pairs = range(1, K + 1)
    return Table(
        name=f"columns_{view}",
        title=f"{title}: columns",
        note="Private mean and standard deviation; weights of columns of unit standard deviation, "
        "for variates of unit variance; loadings are correlations with the variate.",
        header=(
            *("column", "mean", "std"),
            *(f"weight_{k}" for k in pairs),
            *(f"loading_{k}" for k in pairs),
        ),
        rows=tuple(
            (i, mean, std_i, *weight, *loading)
            for i, (mean, std_i, weight, loading) in enumerate(rows, 1 + columns.start)
        ),
    )


JOINT_MOMENT = SecureSum(
    name="moment",
    state=CanonicalState,
    model_field="canonical",
    estimator=_estimator,
    input=subject_views.as_read,
)

COMPUTATION = Computation(
    name="capecca",
    config=CapeCcaConfig,
    model=CapeCcaModel,
    table=(
        join("capecca", by_sizes(plan_run), then="zero-sum"),  # SiteCard -> Roster
        ZeroSum(_verify, then="moment"),  # PublicKey -> KeyBook; probe -> Fingerprint
        JOINT_MOMENT,  # Masked -> CanonicalState
        report(nothing_for_sites, _outcome),  # Done -> Closing
    ),
)
