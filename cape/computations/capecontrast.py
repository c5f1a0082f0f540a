"""Do two groups of people differ? A private comparison with covariates, intervals and p-values.

Patients and controls, or any two levels of a column, are compared in outcomes of each person.  A
planned question tests every outcome.  With many outcomes, one half of the people gives the pattern
along which groups differ, and the other half tests it with one number.  The number of people by
site and group is public unless labels = protected.

Design, formulas and measurements: docs/group-comparison.md; the estimator is
`cape.algorithms.contrast`.  Read the table at the bottom first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, cast

import numpy as np

from cape.algorithms.contrast import MAX_PLANNED, Contrast, Contrasted, estimates
from cape.algorithms.estimators import Array
from cape.algorithms.group_design import Groups, half_of_sites, weights
from cape.algorithms.person_outcomes import outcome_names
from cape.errors import ConfigError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.cost import Half
from cape.privacy.halves import size_of_half
from cape.protocol import subject_views
from cape.protocol.join import RunPlan, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, Roster, RosterEntry, joined, settings_of
from cape.protocol.outcome import ContrastOutcome, Outcome, SiteOutcome, Table, component_names
from cape.protocol.phases import AnyPhase, Computation
from cape.protocol.plan import PROTECTS_NOBODY, PlannedStage, make_plan, verify_plan
from cape.protocol.ports import Aggregator, Site, Stacks
from cape.protocol.report_phase import facts, nothing_for_sites, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.comparison import (
    MAX_OUTCOMES,
    OF_GIFT,
    UNITS,
    Column,
    Comparison,
    Covariate,
    Levels,
    Measure,
    MeasureKind,
    Range,
    check_question,
    parse_covariates,
    parse_outcomes,
    parse_question,
)
from cape.settings.config import Config, Recipe
from cape.settings.option import option, out_of_range

if TYPE_CHECKING:
    from cape.forecast.contrast import ContrastForecast

NAME = "capecontrast"

# Maximum of maps whose time courses are compared
MAX_NETWORKS: Final = 200
# Defaults of common settings when outcomes come from a table
TABLE_DEFAULTS: Final[Mapping[str, object]] = {
    "feature_space": "matrix",
    "basis": "none",
    "min_timepoints": 1,
    "detrend": "none",
    "standardize": "none",
}

# Sites needed to estimate the spread between them (sites = random)
MIN_RANDOM_SITES = 8
# Cells of people for counts and halves: their groups
FIRST, SECOND, NEITHER = "first", "second", "neither"
CELLS = (FIRST, SECOND, NEITHER)


# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeContrastConfig(Config):
    """Settings of capecontrast."""

    group: str = option("")
    covariates: str = option("")
    outcomes: str = option("")
    question: Literal["auto", "planned", "pattern"] = option("auto")
    sites: Literal["these", "random"] = option("these", expert=True)
    labels: Literal["public", "protected"] = option("public", group="Privacy")
    outcomes_from: Literal["auto", "gift"] = option("auto", group="Data", expert=True)
    n_networks: int = option(0, low=0, high=MAX_NETWORKS, group="Data", expert=True)
    domains: str = option("", group="Data", expert=True)
    min_timepoints: int = option(100, low=1, group="Data")  # tables: 1

    @classmethod
    def from_input(cls, given: Mapping[str, object]) -> Self:
        """As in all computations; the values of a table are not preprocessed."""
        kind, source = (str(given.get(name) or "") for name in ("outcomes", "outcomes_from"))
        of_maps = kind.strip() in UNITS and source != "gift"
        given = given if of_maps else {**given, **TABLE_DEFAULTS}
        # slots=True creates a second class, and super() would refer to the first.
        return super(CapeContrastConfig, cls).from_input(given)  # noqa: UP008

    def recipe(self) -> Recipe:
        if self.measure is None:
            return Config.recipe(self)
        n = len(self.measure.networks)
        return Recipe(templates=True, courses=True, widest=n, max_components=0)

    def check(self) -> None:
        Config.check(self)
        if not (self.group.strip() and self.outcomes.strip()):
            return  # an empty form is allowed; its use raises E013
        check_question(self.asked_group, self.asked_covariates)
        if isinstance(self.asked_group, Range) and not self.strict:
            do = 'name two levels, such as "dx: patient, control", or set labels = "protected".'
            raise out_of_range("group", self.group, "two groups with labels = public", do)
        self._check_measure()
        self._check_outcomes(len(self.asked_outcomes))

    def _check_measure(self) -> None:
        """ConfigError for outcomes that cannot be computed from images."""
        measure, domains = self.asked_measure, self.named_domains
        if self.of_gift and (measure is None or measure.kind not in OF_GIFT):
            raise out_of_range(
                "outcomes", self.outcomes[:60], f"{', '.join(OF_GIFT)} with outcomes_from=gift"
            )
        if measure is None:
            return
        n = len(measure.networks)
        if n < 2:
            do = "say how many maps there are (cape simulate --maps counts them)."
            raise ConfigError("E013", setting="n_networks", do=do)
        if measure.kind == "domains" and not domains:
            do = "name the domain of every map, such as visual, visual, motor."
            raise ConfigError("E013", setting="domains", do=do)
        if domains and self.n_networks not in (0, len(domains)):
            allowed = f"{len(domains)}, as domains has"
            raise out_of_range("n_networks", self.n_networks, allowed, "count the maps.")
        if self.low_pass and measure.kind in ("power", "falff"):
            do = "leave the upper frequencies in."
            raise out_of_range("low_pass", self.low_pass, f"0 with outcomes={measure.kind}", do)
        K = len(outcome_names(measure))
        if K > MAX_OUTCOMES:
            allowed = f"at most {MAX_OUTCOMES} outcomes"
            do = 'take means of domains (outcomes = "domains"), or fewer maps.'
            raise out_of_range("outcomes", f"{K} of {n} maps", allowed, do)

    def _check_outcomes(self, n_outcomes: int) -> None:
        """ConfigError for a question that does not suit the number of outcomes."""
        if self.question == "pattern" and n_outcomes < 2:
            raise out_of_range("question", "pattern", "planned", "one outcome has no pattern.")
        if self.strict and (self.is_pattern(n_outcomes) or n_outcomes > MAX_PLANNED):
            allowed, do = f"1 to {MAX_PLANNED} with labels = protected", "ask for fewer."
            raise out_of_range("outcomes", n_outcomes, allowed, do)
        if self.sites == "random" and (
            self.strict or (n_outcomes > 1 and not self.is_pattern(n_outcomes))
        ):
            do = "leave the answer to these sites."
            raise out_of_range(
                "sites", "random", "these, but for one outcome or a pattern of public groups", do
            )

    @property
    def asked_group(self) -> Covariate:
        return parse_question(self._required("group"))

    @property
    def asked_covariates(self) -> tuple[Covariate, ...]:
        return parse_covariates(self.covariates)

    @property
    def named_domains(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.domains.split(",") if self.domains)

    @property
    def of_gift(self) -> bool:
        """Whether outcomes are read from GIFT's results, one file per site."""
        return self.outcomes_from == "gift"

    @property
    def measure(self) -> Measure | None:
        """The measure of the time courses of public maps; None for tables."""
        return None if self.of_gift else self.asked_measure

    @property
    def asked_measure(self) -> Measure | None:
        """The measure of maps or of GIFT's results; None for columns of a table."""
        kind = self.outcomes.strip()
        if kind not in UNITS:
            return None
        domains = self.named_domains
        networks = component_names(len(domains) or self.n_networks)
        return Measure(kind=cast(MeasureKind, kind), networks=networks, domains=domains)

    @property
    def asked_outcomes(self) -> tuple[Column, ...]:
        if (measure := self.asked_measure) is None:
            return parse_outcomes(self._required("outcomes"))
        _, unit, middle = UNITS[measure.kind]
        names = outcome_names(measure)
        return tuple(Column(column=name, unit=unit, middle=middle) for name in names)

    @property
    def outcome_units(self) -> tuple[str, ...]:
        """The unit of every outcome, as a word."""
        word = "" if self.asked_measure is None else UNITS[self.asked_measure.kind][0]
        return (word,) * len(self.asked_outcomes)

    def _required(self, setting: str) -> str:
        if not (text := str(getattr(self, setting))).strip():
            raise ConfigError("E013", setting=setting, do="the owner says what is compared.")
        return text

    @property
    def strict(self) -> bool:
        return self.labels == "protected"

    def is_pattern(self, n_outcomes: int) -> bool:
        return self.question == "pattern" or (self.question == "auto" and n_outcomes > MAX_PLANNED)

    @property
    def comparison(self) -> Comparison | None:
        if not (self.group.strip() and self.outcomes.strip()):
            return None
        measure = self.measure
        columns = () if measure else tuple(outcome.column for outcome in self.asked_outcomes)
        return Comparison(
            group=self.asked_group,
            covariates=self.asked_covariates,
            outcomes=columns,
            measure=measure,
            of_gift=self.asked_measure if self.of_gift else None,
        )

    @property
    def counted(self) -> tuple[str, ...]:
        return () if self.strict else (self.asked_group.column,)


# -- the public model ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastModel(Model):
    """States of the estimators, which all parties hold; None before their first release."""

    contrast: Contrasted | None = None  # all outcomes
    score: Contrasted | None = None  # the pattern, tested in half B


# -- people of a site: rows and cells ------------------------------------------------------------


class ComparedSource(Protocol):
    """A source of subjects that also gives covariates and groups."""

    def compared(self) -> Stacks:
        """Return covariates and, last, g of all listed people: one array (n, p + 1, 1).

        Values are in public units, NaN where missing.  g is 1 in the first group and 0 in the
        second, or the value of a continuous question in public units.
        """


def comparison_rows(site: Site, space: FeatureSpace) -> Stacks:
    """Return [K outcomes, p covariates, g] of all listed people: one array (n, K + p + 1, 1).

    Missing outcomes are NaN.
    """
    K = len(settings_of(CapeContrastConfig, site.config).asked_outcomes)

    def build() -> Stacks:
        u: dict[str, Array] = {}
        outcomes = subject_views.prepared(site, space)
        for array, labels in zip(outcomes.arrays, outcomes.labels, strict=True):
            nothing = np.full((len(array), K), np.nan)
            u |= dict(zip(labels, array[:, :, 0] if array.shape[2] else nothing, strict=True))
        compared = cast(ComparedSource, site.source).compared()
        (array,), (labels,) = compared.arrays, compared.labels
        values = np.array([u[label] for label in labels]).reshape(len(labels), -1)
        return _one_stack(np.hstack([values, array[:, :, 0]]), labels)

    return site.cached("people", site.config.digest(), build)


def _one_stack(rows: Array, labels: tuple[str, ...]) -> Stacks:
    with np.errstate(over="ignore"):  # overflow gives inf: that person then adds zeros
        people = rows[:, :, None].astype(np.float32)
    return Stacks(arrays=(people,), labels=(labels,))


def cell_by_person(site: Site, space: FeatureSpace) -> dict[str, str]:
    """Return the group of every person, by label.

    A site pins the groups in `join` (E161): after a change of groups, newly drawn halves would
    overlap the earlier ones.
    """
    people = comparison_rows(site, space)
    named = {1.0: FIRST, 0.0: SECOND}
    cells = [named.get(g, NEITHER) for g in people.arrays[0][:, -1, 0].tolist()]
    return dict(zip(people.labels[0], cells, strict=True))


def counts(site: Site, space: FeatureSpace | None = None) -> tuple[int, ...]:
    """Return the numbers of people in the first and the second group."""
    groups = list(cell_by_person(site, space or site.source.space).values())
    return groups.count(FIRST), groups.count(SECOND)


# -- what is asked: one description for the planner and for every site's own check ---------------


def _question(config: CapeContrastConfig, *, score: bool = False, **public: Any) -> Contrast:
    scales = (1.0,) if score else tuple(one.unit for one in config.asked_outcomes)
    return Contrast(
        scales=scales,
        covariates=tuple(one.max_value for one in config.asked_covariates),
        found=score,
        strict=config.strict,
        random=config.sites == "random" and len(scales) == 1,
        **public,
    )


def stages(config: CapeContrastConfig) -> tuple[PlannedStage, ...]:
    # Looks and their shares do not depend on the number of people.
    groups = Groups(people=np.zeros(1, dtype=np.int64), cases=None)

    def planned(phase: str, *, score: bool) -> PlannedStage:
        releases = _question(config, score=score, groups=groups, everybody=0).schedule(0)
        part = part_of(config, score=score)
        return PlannedStage(phase=phase, releases=releases, mu2_weight=1.0, part=part)

    first = planned("contrast", score=False)
    return (first, planned("score", score=True)) if first.part else (first,)


def plan_run(
    config: CapeContrastConfig, n_sites: int, n_subjects: int, space: FeatureSpace
) -> RunPlan:
    """Return the plan that the aggregator makes in `join`; ConfigError if no plan exists."""
    if config.sites == "random" and n_sites < MIN_RANDOM_SITES:
        do = "leave the answer to these sites (sites = these)."
        raise out_of_range(
            "sites", f"random with {n_sites} sites", f"{MIN_RANDOM_SITES} and more", do
        )
    if config.survivors(n_sites) < n_sites:
        # Weights, halves and D count all people of the roster: no site may drop out.
        allowed = f"all-sites, or secagg with min_survivors={n_sites}"
        raise out_of_range("aggregation", config.aggregation, allowed, "no site may drop out here.")
    plan = make_plan(config, stages(config), n_sites=n_sites, n_subjects=n_subjects)
    warnings = () if config.private else (PROTECTS_NOBODY,)
    return RunPlan(releases=plan, n_basis=_n_basis(config, space), warnings=warnings)


def _n_basis(config: CapeContrastConfig, space: FeatureSpace) -> int:
    """Return the numbers per row or volume of a person; ConfigError: another number of maps."""
    if config.measure is None:
        return space.n_features
    n = len(config.measure.networks)
    # The owner's plan is made before maps are read.
    if space.n_templates not in (0, n):
        raise out_of_range("n_networks", n, f"{space.n_templates}, the maps there", "count them.")
    return n


def verify(site: Site, roster: Roster) -> None:
    # The roster is not trusted: the site makes the same plan again from its own inputs.
    config = settings_of(CapeContrastConfig, site.config)
    verify_plan(site, roster, stages(config), n_basis=_n_basis(config, roster.space))
    if not config.strict:
        own = next(entry for entry in roster.sites if entry.site == site.id)
        if own.counts != counts(site, roster.space):
            problem = "the roster has other counts of this site's groups than it said"
            raise PrivacyBudgetError("E231", site=site.id, problem=problem)


def part_of(config: CapeContrastConfig, *, score: bool) -> Half:
    if not config.is_pattern(len(config.asked_outcomes)):
        return ""
    return "B" if score else "A"


def asked_of(config: CapeContrastConfig, seed: str, entry: RosterEntry, part: Half) -> list[int]:
    """Return the numbers of the first and second group that a release uses at a site."""
    if config.sites == "random":
        return list(entry.counts)  # halves are whole sites
    return [
        size_of_half(seed, entry.site, cell, n, part)
        for cell, n in zip(CELLS, entry.counts, strict=False)
    ]


def groups_of(config: CapeContrastConfig, seed: str, roster: Roster, part: Half) -> Groups:
    """Return the public numbers of people in a release."""
    entries = roster.sites
    if config.strict:
        return Groups(people=np.array([entry.n_subjects for entry in entries]), cases=None)
    if part and config.sites == "random":
        names, people = [entry.site for entry in entries], [entry.n_subjects for entry in entries]
        first = half_of_sites(seed.encode(), names, np.array(people))
        entries = tuple(
            entry for entry, a in zip(entries, first, strict=True) if a == (part == "A")
        )
    counts = np.array([asked_of(config, seed, entry, part) for entry in entries])
    return Groups(people=counts.sum(axis=1), cases=counts[:, 0])


def question_of(config: CapeContrastConfig, model: Model, *, score: bool = False) -> Contrast:
    """Return the estimator of a stage, with its planned noise."""
    return _asked(config, joined(model), model.fingerprint, score=score)


def _asked(config: CapeContrastConfig, roster: Roster, seed: str, *, score: bool) -> Contrast:
    phase = "score" if score else "contrast"
    events = [event for event in roster.plan if event.phase == phase]
    sizes = roster.n_sites, roster.n_subjects
    return _question(
        config,
        score=score,
        groups=groups_of(config, seed, roster, part_of(config, score=score)),
        everybody=roster.n_subjects,
        noise=tuple(event.noise_std(*sizes) for event in events),
    )


def pattern_weights(config: CapeContrastConfig, model: ContrastModel) -> Array:
    """Return w (K,), per outcome in its unit: the unit vector estimated by half A."""
    question = question_of(config, model)
    beta = estimates(question, CONTRAST.released(model)).estimate / np.array(question.scales)
    return np.asarray(beta / max(float(np.linalg.norm(beta)), 1e-300) / np.array(question.scales))


# -- what a site adds ----------------------------------------------------------------------------


def _weighed(site: Site, model: ContrastModel, *, score: bool = False) -> Stacks:
    """Return [outcomes, covariates, r] of all people; r is NaN for those in neither group."""
    config = settings_of(CapeContrastConfig, site.config)
    roster = joined(model)
    people = comparison_rows(site, roster.space)
    rows, K = people.arrays[0][:, :, 0].astype(np.float64), len(config.asked_outcomes)
    middles = [one.middle for one in config.asked_outcomes]
    u, x, g = rows[:, :K] - middles, rows[:, K:-1], rows[:, -1]
    if score:
        u = (u @ pattern_weights(config, model))[:, None]
    if config.strict:
        r = g / 4 if isinstance(config.asked_group, Range) else g - 0.5
    else:
        own = next(entry for entry in roster.sites if entry.site == site.id)
        part = part_of(config, score=score)
        first, second = asked_of(config, model.fingerprint, own, part)
        # Weights of the half in this release; they sum to 0
        each = weights(np.array([1] * first + [0] * second))
        r = np.full(len(g), np.nan)
        if first:
            r[g == 1.0] = each[0]
        if second:
            r[g == 0.0] = each[-1]
    return _one_stack(np.column_stack([u, x, r]), people.labels[0])


# -- the result ----------------------------------------------------------------------------------

_REASONS = {
    "released": "All planned releases were made.",
    "budget_exhausted": "A site refused a release; there is no answer.",
}


def outcome(party: Aggregator, model: ContrastModel) -> Outcome:
    config = settings_of(CapeContrastConfig, party.config)
    pattern = config.is_pattern(len(config.asked_outcomes))
    state: Contrasted = CONTRAST.released(model)
    score: Contrasted | None = SCORE.released(model) if pattern else None
    asked_score = question_of(config, model, score=True) if pattern else None
    status = (score or state).status
    names = tuple(one.column for one in config.asked_outcomes)
    return ContrastOutcome(
        **facts(NAME, party, model),
        status=status,
        reason=_REASONS[status],
        group=config.asked_group,
        covariates=config.asked_covariates,
        names=names,
        units=config.outcome_units,
        middles=tuple(one.middle for one in config.asked_outcomes),
        question=question_of(config, model),
        state=state,
        score=asked_score,
        score_state=score,
        weights=pattern_weights(config, model) if pattern else None,
    )


def of_site(site: Site, model: ContrastModel) -> SiteOutcome:
    return replace(nothing_for_sites(site, model), people=lambda: _own_people(site, model))


def _own_people(site: Site, model: ContrastModel) -> Table:
    """Return the table that a site sees: the values used of each of its own people."""
    config = settings_of(CapeContrastConfig, site.config)
    people, covariates = comparison_rows(site, joined(model).space), config.asked_covariates
    columns = (*covariates, config.asked_group)
    rows = []
    for label, row in zip(people.labels[0], people.arrays[0][:, :, 0].tolist(), strict=True):
        coded = row[-len(columns) :]
        # g codes the groups as 1 and 0; `cell` expects the coding of covariates, 1 and -1.
        if isinstance(config.asked_group, Levels):
            coded[-1] = 2 * coded[-1] - 1
        cells = [column.cell(value) for column, value in zip(columns, coded, strict=True)]
        values = [f"{value:.6g}" if np.isfinite(value) else None for value in row[: -len(columns)]]
        rows.append((label, cells[-1], *cells[:-1], *values))
    names = [one.column for one in (config.asked_group, *covariates, *config.asked_outcomes)]
    return Table(name="people", title="", note="", header=("subject", *names), rows=tuple(rows))


# -- the protocol --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _QuestionStage(SecureSum[ContrastModel]):
    """A stage that ends the run unless the question is a pattern."""

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        own = settings_of(CapeContrastConfig, config)
        if own.is_pattern(len(own.asked_outcomes)):
            return SecureSum.phases(self, config)
        # Without successors a stage opens `report`.  A planned question has no score stage.
        return SecureSum.phases(replace(self, successors=()), config) if self.successors else ()


SCORE = _QuestionStage(
    name="score",
    state=Contrasted,
    model_field="score",
    estimator=partial(question_of, score=True),
    rows=lambda model: joined(model).space.n_features,
    input=partial(_weighed, score=True),
    cells=lambda site, model: cell_by_person(site, joined(model).space),
    by_site=lambda config: config.sites == "random",
)
CONTRAST = replace(
    SCORE,
    name="contrast",
    model_field="contrast",
    estimator=question_of,
    input=_weighed,
    successors=(SCORE,),
)


def _join() -> AnyPhase:
    """Return `join`, which refuses a question that could only detect large differences."""
    phase = join(NAME, plan_run, then="zero-sum", counts=counts)

    def combine(party: Aggregator, cards: Mapping[str, Any], model: Model) -> Any:
        roster, then = phase.combine(party, cards, model)
        return with_forecast(settings_of(CapeContrastConfig, party.config), roster), then

    return replace(phase, combine=combine)


def with_forecast(config: CapeContrastConfig, roster: Roster) -> Roster:
    """Return the roster with the forecast's warnings; ConfigError for too little power."""
    notes = []
    if not config.strict:
        alone = [entry.site for entry in roster.sites if 0 in entry.counts]
        if alone:
            notes.append(f"People of one group only, who add nothing to it: {', '.join(alone)}.")
        pattern = config.is_pattern(len(config.asked_outcomes))
        needed = 2 if pattern and config.sites == "these" else 1  # one of each group per half
        if max(min(entry.counts) for entry in roster.sites) < needed:
            problem = f"no site has {needed} or more people of both groups"
            raise ConfigError("E150", problem=problem, do="look at the levels of group.")
    if config.private:
        from cape.forecast.contrast import MAX_USEFUL  # imported in this exchange only

        precision = forecast_of(config, roster)
        if not precision.usable:
            text = f"too few people: only a difference of {precision.smallest:.1f} sd would be seen"
            if not config.accept_low_quality:
                do = "ask more people, fewer outcomes, or set accept_low_quality."
                raise ConfigError("E150", problem=f"{text}, {MAX_USEFUL} at most", do=do)
            notes.append(f"{text[0].upper()}{text[1:]}.")
    return replace(roster, warnings=(*roster.warnings, *notes))


def forecast_of(config: CapeContrastConfig, roster: Roster) -> ContrastForecast:
    """Return the forecast of a roster's question; for a pattern, of its test in half B."""
    from cape.forecast.contrast import forecast

    # Halves are drawn later; their sizes are already known to within one person.
    pattern = config.is_pattern(len(config.asked_outcomes))
    return forecast(_asked(config, roster, "", score=pattern))


COMPUTATION = Computation(
    name=NAME,
    config=CapeContrastConfig,
    model=ContrastModel,
    table=(
        _join(),  # SiteCard -> Roster
        ZeroSum(verify, then="contrast"),  # PublicKey -> KeyBook; probe -> Fingerprint
        CONTRAST,  # Masked -> Contrasted
        SCORE,  # Masked -> Contrasted
        report(of_site, outcome),  # Done -> Closing
    ),
)
