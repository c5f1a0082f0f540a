"""Do people differ? One private linear model: groups, continuous columns, products, change.

The owner states columns, a formula and which of its terms are asked.  Every term is answered for
every outcome, with the other terms held equal and site by site; or, of many outcomes, one half of
the people gives the pattern along which groups differ, and the other half tests it with one number.
The number of people by site is public, and so are those by level of the columns that the owner
names as public; all other columns are data.

Question and grammar: `cape.settings.question`; estimator and answer: `cape.algorithms.regression`,
`cape.algorithms.answer`; docs/group-comparison.md.  Read the table at the bottom first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, Self, cast

import numpy as np

from cape.algorithms.answer import direction
from cape.algorithms.design import (
    Counts,
    Flags,
    Public,
    counted,
    counts_of,
    in_words,
    public_of,
    sites_asked,
)
from cape.algorithms.estimators import Array, Data
from cape.algorithms.regression import Regressed, Regression
from cape.errors import ConfigError, ConsortiumError, DataError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.cost import Half
from cape.privacy.halves import half_of_sites, pairs_of_sites, size_of_half
from cape.privacy.ledger import Budget
from cape.protocol import subject_views
from cape.protocol.join import Entries, RunPlan, join
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, Roster, RosterEntry, joined, settings_of
from cape.protocol.outcome import ContrastOutcome, Outcome, SiteOutcome, Table
from cape.protocol.phases import AnyPhase, Computation, of_public_values
from cape.protocol.plan import (
    PROTECTS_NOBODY,
    PlannedStage,
    make_plan,
    noise_shares_of,
    verify_plan,
)
from cape.protocol.ports import Aggregator, Site, Stacks
from cape.protocol.report_phase import facts, nothing_for_sites, refused, report
from cape.protocol.secure_sum import SecureSum
from cape.protocol.zero_sum import ZeroSum
from cape.settings.config import Config, Recipe
from cape.settings.measures import UNITS
from cape.settings.option import option, out_of_range
from cape.settings.question import QUESTION, Question, parse_question, typed

if TYPE_CHECKING:
    from cape.forecast.comparison import TermForecast

NAME = "capecontrast"

# Defaults of common settings when outcomes come from a table
TABLE_DEFAULTS: Final[Mapping[str, object]] = {
    "feature_space": "matrix",
    "basis": "none",
    "min_timepoints": 1,
    "detrend": "none",
    "standardize": "none",
}

# Fewest sites whose spread can be estimated (site_effects = random)
MIN_RANDOM_SITES = 8
# Stages in order; their names are those of phases
_DESIGN: Final = "design"
_WHOLE: Final = "contrast"
_SCORE: Final = "score"
_Stage = Literal["design", "contrast", "score"]


# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class CapeContrastConfig(Config):
    """Settings of capecontrast."""

    SHOWN: ClassVar = (
        "epsilon", "delta", "n_sites",
        "variables", "formula", "ask", "outcomes", "public", "networks",
    )  # fmt: skip

    variables: str = option("")
    formula: str = option("")
    ask: str = option("")
    outcomes: str = option("")
    public: str = option("", group="Privacy")
    networks: str = option("")
    among: str = option("", expert=True)
    change: str = option("", expert=True)
    test: Literal["each", "pattern"] = option("each", expert=True)
    site_effects: Literal["fixed", "random"] = option("fixed", expert=True)
    outcomes_from: Literal["auto", "gift"] = option("auto", group="Data", expert=True)
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
        question = self.question
        if question is None or question.measure is None or self.of_gift:
            return Config.recipe(self)
        n = len(question.measure.networks)
        return Recipe(templates=True, courses=True, widest=n, max_components=0)

    def check(self) -> None:
        Config.check(self)
        question = self.question  # raises what is wrong with its texts
        if question is None or question.measure is None:
            return
        if self.low_pass and question.measure.kind in ("power", "falff"):
            allowed, do = f"0 with outcomes={question.measure.kind}", "leave the upper ones in."
            raise out_of_range("low_pass", self.low_pass, allowed, do)

    @property
    def question(self) -> Question | None:
        """What is asked; None for a form that nobody filled."""
        filled = self.variables.strip() and self.formula.strip() and self.outcomes.strip()
        return self.asked if filled else None

    @property
    def asked(self) -> Question:
        """The question; ConfigError E013 for an empty form."""
        return parse_question(**{name: getattr(self, name) for name in QUESTION})

    @property
    def of_gift(self) -> bool:
        """Whether outcomes are read from GIFT's results, one file per site."""
        return self.outcomes_from == "gift"

    @property
    def counted(self) -> tuple[str, ...]:
        return () if self.question is None else self.question.public


# -- the public model ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ContrastModel(Model):
    """States of the estimators, which all parties hold; None before their first release."""

    design: Regressed | None = None  # of a pattern: what all people say of columns and groups
    contrast: Regressed | None = None  # all outcomes; of a pattern, in half A
    score: Regressed | None = None  # the pattern, tested in half B


# -- what is asked: one description for the planner and for every site's own check ---------------


def chain(config: CapeContrastConfig) -> tuple[_Stage, ...]:
    question = config.asked
    if not question.pattern:
        return (_WHOLE,)
    # Without noise halves share nothing; nor is there anything to share without covariates.
    adjusted = config.private and any(term.nuisance for term in question.asked)
    return (_DESIGN, _WHOLE, _SCORE) if adjusted else (_WHOLE, _SCORE)


def part_of(config: CapeContrastConfig, stage: _Stage) -> Half:
    if not config.asked.pattern or stage == _DESIGN:
        return ""
    return "A" if stage == _WHOLE else "B"


def cells_of(question: Question, entry: RosterEntry) -> tuple[int, ...]:
    """Return the people of each public cell at a site; without public columns all are in one."""
    return entry.counts if question.public else (entry.n_subjects,)


def has_of(question: Question, entries: Entries, *, together: bool = False) -> Flags:
    """Return which site has which outcome (S, K), by its own words; `together`: has all, (S, 1)."""
    names = [outcome.name for outcome in question.outcomes]
    has = np.array([[name not in entry.lacks for name in names] for entry in entries])
    return np.asarray(has.all(axis=1, keepdims=True) if together else has)


def asked_counts(question: Question, entries: Entries, part: Half, seed: str) -> Counts:
    """Return how many people of each cell a release asks at each site, (S, cells)."""
    counts = np.array([cells_of(question, entry) for entry in entries])
    if part and question.random:
        first = np.array(half_of_sites(seed, *_sizes(entries)))
        return np.where((first == (part == "A"))[:, None], counts, 0)
    for entry, row in zip(entries, counts, strict=True):
        row[:] = [size_of_half(seed, entry.site, str(i), int(n), part) for i, n in enumerate(row)]
    return counts


def _sizes(entries: Entries) -> tuple[list[str], list[int]]:
    return [entry.site for entry in entries], [entry.n_subjects for entry in entries]


def terms_of(
    config: CapeContrastConfig, entries: Entries, stage: _Stage, seed: str
) -> tuple[Public, ...]:
    """Return the public numbers of each asked term in a stage; `seed` draws halves."""
    question, part = config.asked, part_of(config, stage)
    counts = asked_counts(question, entries, part, seed)
    has = has_of(question, entries, together=stage == _SCORE)
    return tuple(
        public_of(
            question,
            term,
            counts=counts,
            people=counts.sum(axis=1),
            has=has,
            everybody=sum(entry.n_subjects for entry in entries),
            G=_precision(config, entries, part),
        )
        for term in question.asked
    )


def _precision(config: CapeContrastConfig, entries: Entries, part: Half) -> float:
    """Return G = M mu sqrt(h / S) of a term, in a half of M / 2 people; inf without noise."""
    # The plan of a stage hangs on it, and so it must not depend on how halves are drawn.
    if not config.private:
        return np.inf
    question, S = config.asked, len(entries)
    asked = sites_asked(question, has_of(question, entries))
    counts = np.array([sum(cells_of(question, entry)) for entry in entries])
    M = counts[asked].sum() / (2 if part else 1)
    mu = Budget.of(epsilon=config.epsilon, delta=config.delta).mu
    return float(M * mu * np.sqrt(noise_shares_of(config, S) / S / len(question.asked)))


# Parties ask for it in every exchange, and what it knows of a state is kept with it.
@functools.lru_cache(maxsize=16)
def regression_of(
    config: CapeContrastConfig,
    entries: Entries,
    stage: _Stage,
    seed: str = "",
    given: Regressed | None = None,
) -> Regression:
    """Return the estimator of a stage; `given`: the last state of `design`, None for its plan."""
    if stage == _DESIGN or not config.asked.pattern:
        kind: Literal["whole", "design"] = "design" if stage == _DESIGN else "whole"
        return Regression(terms=terms_of(config, entries, stage, seed), stage=kind)
    before = None
    if _DESIGN in chain(config):
        design = regression_of(config, entries, _DESIGN)
        before = (design, design.start(0) if given is None else given)
    return Regression(terms=terms_of(config, entries, stage, seed), stage="half", given=before)


def question_of(
    config: CapeContrastConfig, model: ContrastModel, *, stage: _Stage = _WHOLE
) -> Regression:
    given = None if stage == _DESIGN else model.design
    seed = model.fingerprint if part_of(config, stage) else ""
    return regression_of(config, joined(model).sites, stage, seed, given)


def stages(config: CapeContrastConfig, entries: Entries) -> tuple[PlannedStage, ...]:
    planned = []
    for stage in chain(config):
        asked = regression_of(config, entries, stage)
        planned.append(
            PlannedStage(
                phase=stage,
                releases=asked.schedule(0),
                mu2_weight=asked.share,
                part=part_of(config, stage),
            )
        )
    return tuple(planned)


def plan_run(config: CapeContrastConfig, entries: Entries, space: FeatureSpace) -> RunPlan:
    """Return the plan of a run; ConfigError if there is none."""
    question, n_sites = config.asked, len(entries)
    if question.random and n_sites < MIN_RANDOM_SITES:
        got, allowed = f"random with {n_sites} sites", f"{MIN_RANDOM_SITES} and more"
        do = "leave the answer to these sites (site_effects = fixed)."
        raise out_of_range("site_effects", got, allowed, do)
    if config.survivors(n_sites) < n_sites:
        # Weights, halves and D count all people of the roster: no site may drop out.
        allowed = f"all-sites, or secagg with min_survivors={n_sites}"
        raise out_of_range("aggregation", config.aggregation, allowed, "no site may drop out here.")
    n_subjects = sum(entry.n_subjects for entry in entries)
    plan = make_plan(config, stages(config, entries), n_sites=n_sites, n_subjects=n_subjects)
    warnings = () if config.private else (PROTECTS_NOBODY,)
    return RunPlan(releases=plan, n_basis=_n_basis(config, space), warnings=warnings)


def _n_basis(config: CapeContrastConfig, space: FeatureSpace) -> int:
    """Return the numbers per row or volume of a person; ConfigError: another number of maps."""
    question = config.asked
    if question.of_tables or question.measure is None:
        return space.n_features
    n = len(question.measure.networks)
    # The owner's plan is made before maps are read.
    if space.n_templates not in (0, n):
        raise out_of_range("networks", f"{n} names", f"{space.n_templates}, one for each map there")
    return n


def verify(site: Site, roster: Roster) -> None:
    # The roster is not trusted: the site makes the same plan again from its own inputs.
    config = settings_of(CapeContrastConfig, site.config)
    own = next(entry for entry in roster.sites if entry.site == site.id)
    if {"counts": own.counts, "lacks": own.lacks} != said_of(site, roster.space):
        problem = "the roster says other things of this site's people than it said"
        raise PrivacyBudgetError("E231", site=site.id, problem=problem)
    n_basis = _n_basis(config, roster.space)
    verify_plan(site, roster, stages(config, roster.sites), n_basis=n_basis)


# -- people of a site ----------------------------------------------------------------------------


class ComparedSource(Protocol):
    """A source whose subjects are rows: outcomes, public cell, coded columns."""

    @property
    def lacks(self) -> tuple[str, ...]:
        """Names of outcomes that the site states it does not have."""


def people_at(site: Site, space: FeatureSpace) -> tuple[Data, tuple[str, ...], Counts]:
    """Return rows (n, K + 1 + C) of all listed people in public order, their labels and cells (n,).

    The cell is -1 for people who are not asked, among them those of a cell with fewer people than
    the site says.  A site pins its people in `join` (E161): after a change of cells, newly drawn
    halves would overlap the earlier ones.
    """
    question = settings_of(CapeContrastConfig, site.config).asked
    people = subject_views.prepared(site, space)
    rows, labels = people.arrays[0][:, :, 0], people.labels[0]
    cell, _ = counted(question, rows[:, len(question.outcomes)].astype(np.int64), site.min_group)
    return rows, labels, cell


def said_of(site: Site, space: FeatureSpace | None = None) -> dict[str, Any]:
    """Return what the card says of this site alone: people by public cell, missing outcomes."""
    question = settings_of(CapeContrastConfig, site.config).asked
    _, _, cell = people_at(site, space or site.source.space)
    counts = counts_of(question, cell) if question.public else ()
    return {"counts": counts, "lacks": cast(ComparedSource, site.source).lacks}


def cell_by_person(site: Site, model: Model) -> dict[str, str]:
    """Return the public cell of every person, by label."""
    _, labels, cell = people_at(site, joined(model).space)
    return dict(zip(labels, map(str, cell.tolist()), strict=True))


def rows_for(site: Site, model: ContrastModel, *, stage: _Stage = _WHOLE) -> Stacks:
    """Return the people as a stage asks them: outcomes, cell, coded columns, place of the site.

    DataError (E161): the public cells are not those of before.
    """
    config, roster = settings_of(CapeContrastConfig, site.config), joined(model)
    question, K = config.asked, len(config.asked.outcomes)
    rows, labels, cell = people_at(site, roster.space)
    own = [entry.site for entry in roster.sites].index(site.id)
    # Bounds rely on the public cells.
    if question.public and counts_of(question, cell) != roster.sites[own].counts:
        detail = "the people of the public cells are not those of before"
        raise DataError("E161", site=site.id, detail=detail)
    u = rows[:, :K].astype(np.float64)
    if stage == _SCORE:
        u = u @ pattern_weights(config, model)[:, None]
    place = np.full(len(rows), own)
    people = np.column_stack([u, cell, rows[:, K + 1 :], place]).astype(np.float32)
    return Stacks(arrays=(people[:, :, None],), labels=(labels,))


def pattern_weights(config: CapeContrastConfig, model: ContrastModel) -> Array:
    """Return w (K,), of outcomes in their public units: the unit vector that half A estimates."""
    with of_public_values():
        return direction(question_of(config, model), CONTRAST.released(model))


# -- the result ----------------------------------------------------------------------------------

_REASONS = {"released": "All planned releases were made.", **refused("there is no answer.")}


def outcome(party: Aggregator, model: ContrastModel) -> Outcome:
    config = settings_of(CapeContrastConfig, party.config)
    question, pattern = config.asked, config.asked.pattern
    state: Regressed = CONTRAST.released(model)
    score: Regressed | None = SCORED.released(model) if pattern else None
    status = (score or state).status
    return ContrastOutcome(
        **facts(NAME, party, model),
        status=status,
        reason=_REASONS[status],
        question=question,
        has=tuple(map(tuple, has_of(question, joined(model).sites).tolist())),
        regression=question_of(config, model),
        state=state,
        score=question_of(config, model, stage=_SCORE) if pattern else None,
        score_state=score,
        weights=pattern_weights(config, model) if pattern else None,
    )


def of_site(site: Site, model: ContrastModel) -> SiteOutcome:
    question = settings_of(CapeContrastConfig, site.config).asked
    return replace(
        nothing_for_sites(site, model),
        people=lambda: _own_people(site, model),
        settings=site.config.settings(),
        space=None if question.of_tables else site.source.space,
    )


def _own_people(site: Site, model: ContrastModel) -> Table:
    """Return the table that a site sees: the values used of each of its own people."""
    question = settings_of(CapeContrastConfig, site.config).asked
    rows, labels, cell = people_at(site, joined(model).space)
    names = [outcome.name for outcome in question.outcomes]
    units = np.array([outcome.unit for outcome in question.outcomes])
    middles = np.array([outcome.middle for outcome in question.outcomes])
    own = rows[:, : len(names)].astype(np.float64) * units + middles
    own[:, [outcome.log for outcome in question.outcomes]] = np.exp(
        own[:, [outcome.log for outcome in question.outcomes]]
    )
    table = []
    for label, row, values, asked in zip(labels, rows, own.tolist(), cell >= 0, strict=True):
        said = [f"{value:.6g}" if np.isfinite(value) else None for value in values]
        table.append((label, "yes" if asked else "no", *in_words(question, row), *said))
    header = ("subject", "asked", *(one.name for one in question.variables), *names)
    return Table(name="people", title="", note="", header=header, rows=tuple(table))


# -- the protocol --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class _AskedStage(SecureSum[ContrastModel]):
    """A stage that some questions do not have (`chain`)."""

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        asked = chain(settings_of(CapeContrastConfig, config))
        if self.name not in asked:
            return ()
        later = tuple(one for one in self.successors if one.name in asked)
        # Without successors a stage opens `report`.
        return SecureSum.phases(replace(self, successors=later), config)


def _stage(stage: _Stage, *successors: SecureSum[ContrastModel]) -> _AskedStage:
    return _AskedStage(
        name=stage,
        state=Regressed,
        model_field=stage,
        estimator=partial(question_of, stage=stage),
        rows=lambda model: joined(model).space.n_features,
        input=partial(rows_for, stage=stage),
        cells=cell_by_person,
        by_site=lambda config: config.asked.random,
        successors=successors,
    )


SCORED = _stage(_SCORE)
CONTRAST = _stage(_WHOLE, SCORED)
DESIGNED = _stage(_DESIGN, CONTRAST, SCORED)


def planned(config: CapeContrastConfig, entries: Entries, space: FeatureSpace) -> RunPlan:
    """Return the plan that the aggregator makes in `join`, with what the owner must know.

    ConfigError (E150) for a question without an answer, or one that could only find large
    differences.
    """
    notes = check_people(config, entries)
    run_plan = plan_run(config, entries, space)
    if config.private:
        notes += check_precision(config, entries)
    return replace(run_plan, warnings=(*run_plan.warnings, *notes))


def check_people(config: CapeContrastConfig, entries: Entries) -> tuple[str, ...]:
    """Return warnings; ConfigError (E150) if a level, a group or an outcome is nowhere."""
    question = config.asked
    known = {outcome.name for outcome in question.outcomes}
    if strange := [entry.site for entry in entries if not known.issuperset(entry.lacks)]:
        problem = f"{', '.join(strange)}: others than are asked"
        raise ConsortiumError("E204", field="outcomes that a site lacks", sites=problem)
    cells, there = question.cells, np.zeros(len(question.cells), dtype=np.int64)
    for entry in entries:
        there = there + cells_of(question, entry)
    for place, name in enumerate(question.public):
        levels = {cell[place] for cell, n in zip(cells, there, strict=True) if n}
        if absent := [one for one in question.variable(name).levels if one not in levels]:
            problem = f"nobody has {name} {' or '.join(absent)}"
            do = "correct variables or the tables, or leave the level out of variables."
            raise ConfigError("E150", problem=problem, do=do)
    notes = []
    # A pattern leaves out sites that lack an outcome.
    has = has_of(question, entries, together=question.pattern)
    for term, public in zip(question.asked, terms_of(config, entries, _DESIGN, ""), strict=True):
        apart = np.ones(len(entries), dtype=bool)
        if term.public:
            apart = np.abs(public.g).max(axis=(1, 2)) > 0
        for sites, with_people in ((has, ""), (has & apart[:, None], " and people of two levels")):
            if not (answered := sites.any(axis=0)).all():
                one = question.outcomes[int(np.argmin(answered))].name
                wanted = "all outcomes" if question.pattern else one
                where = f"{with_people} of {term.text}" if with_people else ""
                do = "look at the levels in variables and in the tables, and at lacks."
                raise ConfigError("E150", problem=f"no site has {wanted}{where}", do=do)
        if question.pattern:
            _check_halves(question, entries, public, has[:, 0] & apart)
        if not apart.all():
            names = [entry.site for entry, a in zip(entries, apart, strict=True) if not a]
            text = f"People of one level of {term.text} only, who add nothing to it"
            notes.append(f"{text}: {', '.join(names)}.")
    return tuple(notes)


def _check_halves(question: Question, entries: Entries, public: Public, useful: Flags) -> None:
    """Raise ConfigError (E150) unless both halves of a pattern have two levels, however drawn.

    `useful` (S,): sites with all outcomes and people of two levels.  A half without them would be
    found after it was charged.
    """
    if question.random:
        pairs = [pair for pair in pairs_of_sites(*_sizes(entries)) if len(pair) == 2]
        sure = any(useful[pair].all() for pair in pairs)
        do = "set site_effects = fixed, or test = each."
    else:
        groups = (public.group[row > 1] for row in public.counts[useful])
        sure = any(len(set(group.tolist())) > 1 for group in groups)
        do = "have two people of each level at a site, or set test = each."
    if not sure:
        problem = f"half of the people may lack a level of {question.asked[0].text} at every site"
        raise ConfigError("E150", problem=problem, do=do)


def check_precision(config: CapeContrastConfig, entries: Entries) -> tuple[str, ...]:
    """Return a warning for a question that would only find large differences; else E150."""
    from cape.forecast.comparison import MAX_USEFUL  # imported in this exchange only

    worst = max(forecast_of(config, entries), key=lambda one: one.smallest)
    if worst.smallest <= MAX_USEFUL:
        return ()
    text = (
        f"of {worst.text}, the smallest difference that would be found is {worst.smallest:.2f} sd"
    )
    if not config.accept_low_quality:
        ways = (*remedies(config, entries), "accept_low_quality = true")
        problem = f"{text}; at most {MAX_USEFUL} is accepted"
        raise ConfigError("E150", problem=problem, do=f"take {', or '.join(ways)}.")
    return (f"{text[0].upper()}{text[1:]}.",)


def forecast_of(config: CapeContrastConfig, entries: Entries) -> tuple[TermForecast, ...]:
    """Return the forecast of each asked term; for a pattern, of its test in half B."""
    from cape.forecast.comparison import forecast

    stage: _Stage = _SCORE if config.asked.pattern else _WHOLE
    return forecast(config.asked, regression_of(config, entries, stage))


# Epsilons and multiples of people that are tried as a way out
WAYS_EPSILON = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
WAYS_PEOPLE = (1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0, 10.0, 15.0, 20.0)


def remedies(config: CapeContrastConfig, entries: Entries) -> tuple[str, ...]:
    """Return what would make a question useful, each by itself: settings as they are typed."""
    from cape.forecast.comparison import MAX_USEFUL

    def useful(entries: Entries = entries, **changed: Any) -> bool:
        try:
            asked = replace(config, **changed)
            return max(one.smallest for one in forecast_of(asked, entries)) <= MAX_USEFUL
        except ConfigError:  # such a question cannot be asked
            return False

    found, question = [], config.asked
    people = sum(entry.n_subjects for entry in entries)
    times = (t for t in WAYS_PEOPLE if useful(tuple(more_people(one, t) for one in entries)))
    if more := next(times, 0.0):
        found.append(f"{math.ceil(people * more / 10) * 10} people")
    epsilons = (e for e in WAYS_EPSILON if e > config.epsilon and useful(epsilon=e))
    if epsilon := next(epsilons, 0.0):
        found.append(f"epsilon = {epsilon:g}")
    if len(question.asked) > 1:
        terms = (typed(term.names) for term in question.asked)
        found += [f"ask = {term}" for term in terms if useful(ask=term)][:1]
    if question.measure and question.measure.kind == "fnc" and useful(outcomes="domains"):
        found.append("outcomes = domains")
    if not question.pattern and useful(test="pattern"):
        found.append("test = pattern")
    return tuple(found)


def more_people(entry: RosterEntry, times: float) -> RosterEntry:
    """Return a site with so many times its people."""
    counts = tuple(math.ceil(n * times) for n in entry.counts)
    rest = math.ceil((entry.n_subjects - sum(entry.counts)) * times)
    return replace(entry, n_subjects=sum(counts) + rest, counts=counts)


COMPUTATION = Computation(
    name=NAME,
    config=CapeContrastConfig,
    model=ContrastModel,
    table=(
        join(NAME, planned, then="zero-sum", more=said_of),  # SiteCard -> Roster
        ZeroSum(verify, then=lambda config: chain(config)[0]),  # PublicKey -> KeyBook; Fingerprint
        DESIGNED,  # Masked -> Regressed
        CONTRAST,  # Masked -> Regressed
        SCORED,  # Masked -> Regressed
        report(of_site, outcome),  # Done -> Closing
    ),
)
