"""What capepca and dpdispca share: settings, plan, the subjects they see, and their tables."""

from __future__ import annotations

from typing import Literal

from cape.algorithms.second_moment import Principal, SecondMomentPca
from cape.config import Config, option
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.protocol import subject_views
from cape.protocol.join import RunPlan
from cape.protocol.messages import FeatureSpace, Roster
from cape.protocol.model import Model, n_basis, settings_of
from cape.protocol.outcome import Outcome, Table
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, make_plan, verify_basis, verify_plan
from cape.protocol.ports import Aggregator, Site
from cape.protocol.report_phase import as_released, outcome_in_tables
from cape.protocol.secure_sum import SecureSum
from cape.public_basis import check_basis, widest_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class PcaConfig(Config):
    """Settings of a PCA of bounded records; data are taken as they are, one column or many each."""

    n_directions: int = option(3, "Directions to keep", low=1, high=1000, help="K of the papers.")
    norm_bound: float = option(
        1.0, "Largest norm of a record", low=1e-12, high=1e12,
        help="A public constant, never from data: longer records are shrunk to it.",
    )  # fmt: skip
    feature_space: Literal["mask", "atlas", "matrix"] = option(
        "matrix", "Feature space", group="Data", help="matrix: array files, or a table of records."
    )
    min_timepoints: int = option(1, "Fewest columns of a subject", low=1, group="Data")
    detrend: Literal["linear", "none"] = option("none", "Detrending", group="Data")
    standardize: Literal["variance", "demean", "none"] = option(
        "none", "Scaling of each feature", group="Data"
    )

    def check(self) -> None:
        """Check what the settings say together."""
        Config.check(self)
        check_basis(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class PcaModel(Model):
    """What all parties hold; None before the release."""

    principal: Principal | None = None


def own(config: Config) -> PcaConfig:
    """Return the settings as those of a PCA."""
    return settings_of(PcaConfig, config)


def estimator(config: Config, model: object = None) -> SecondMomentPca:
    """Return the estimator of the second moment."""
    del model
    settings = own(config)
    return SecondMomentPca(n_components=settings.n_directions, norm_bound=settings.norm_bound)


def stages(config: Config, n_features: int) -> tuple[PlannedStage, ...]:
    """Return the one release of a run."""
    return (
        PlannedStage(
            phase="moment", releases=estimator(config).schedule(n_features), mu2_weight=1.0
        ),
    )


def plan_run(config: Config, n_sites: int, n_subjects: int, space: FeatureSpace) -> RunPlan:
    """Return the plan of a run, made by the aggregator in `join`; ConfigError if there is none."""
    settings = own(config)
    d = widest_basis(config, space)
    if d > settings.max_features:
        raise ConfigError(
            "E145", setting="features", got=d, allowed=settings.max_features,
            do="use a basis or an atlas.",
        )  # fmt: skip
    if settings.n_directions > d:
        raise ConfigError(
            "E011", setting="n_directions", got=settings.n_directions, allowed=f"1 to {d}",
            do=f"the data have {d} directions.",
        )  # fmt: skip
    plan = make_plan(config, stages(config, d), n_sites=n_sites, n_subjects=n_subjects)
    warnings = () if settings.private else (PROTECTS_NOBODY,)
    return RunPlan(releases=plan, n_basis=d, warnings=warnings)


def verify(site: Site, roster: Roster) -> None:
    """Check, as a site, the plan that the aggregator sent against the site's own settings."""
    d = widest_basis(site.config, roster.space)
    verify_basis(site, roster, d)
    verify_plan(site, roster, stages(site.config, d))


MOMENT = SecureSum(
    name="moment",
    state=Principal,
    model_field="principal",
    estimator=estimator,
    rows=n_basis,
    input=subject_views.unchanged,
    close=as_released("principal"),
)
"""The one stage of a table."""


# -- the result ----------------------------------------------------------------------------------

REASONS = {
    "released": "The planned release was made.",
    "budget_exhausted": "A site refused the release; there is no result.",
}


def outcome(name: str, party: Aggregator, model: PcaModel, *, note: str) -> Outcome:
    """Return the result: directions and spectrum, as tables."""
    state = model.principal
    if state is None:
        raise RuntimeError("no release before report")
    tables = (spectrum_table(state, note), directions_table(state))
    return outcome_in_tables(
        name, party, model, status=state.status, reason=REASONS[state.status],
        tables=tables if state.status == "released" else (),
    )  # fmt: skip


def spectrum_table(state: Principal, note: str) -> Table:
    """Return one row per eigenvalue."""
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
    """Return one row per feature: its weight in every direction kept."""
    K = state.V.shape[1]
    return Table(
        name="directions",
        title="Directions, one column each, of norm 1",
        note="The entry of largest magnitude of every direction is positive. With a public basis "
        "the rows are its directions, else the features.",
        header=("feature", *(f"V{k:02d}" for k in range(1, K + 1))),
        rows=tuple((i, *row) for i, row in enumerate(state.V.tolist(), 1)),
    )
