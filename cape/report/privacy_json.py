"""The privacy statement of a run, from ledger and plan; label "none" claims nothing."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from cape.counting import number_of
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.cost import (
    FREE,
    INFINITE,
    Cost,
    Event,
    Half,
    Noise,
    VectorShape,
    Viewer,
    largest_cost,
    total_cost,
    total_of,
)
from cape.privacy.mechanisms import lattice_slack
from cape.protocol.outcome import Outcome
from cape.report.page import text_of
from cape.secagg.graph import GraphPlan, plan_graph, unknown_shares
from cape.settings.documents import UNLESS_EMPTY

RELATION = "replace-one"
# Relation of a run in which counts of some columns are public at every site
RELATION_OF_GROUPS = "replace-one, by a person of the same site and the same {columns}"


def running(events: Iterable[Event]) -> Iterator[tuple[Event, Cost]]:
    """Yield every release with the cost of all releases up to it."""
    sums: dict[Half, Cost] = dict.fromkeys(("", "A", "B"), FREE)
    for event in events:
        # Each sum is rounded up by less than 2^-256: exact fractions would grow with every release.
        sums[event.part] = total_cost((sums[event.part], event.cost))
        yield event, sums[""] + largest_cost((sums["A"], sums["B"]))


def planned_cost(outcome: Outcome) -> Cost:
    # No adaptive course of a run exceeds the plan; never state less than was charged.
    plan = total_of(outcome.roster.plan)
    charged = total_of(outcome.ledger.events)
    return charged if plan <= charged else plan


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetFigures:
    """Allowed, spent and unspent budget."""

    epsilon: float | None = None
    mu: float | None = None
    mu_spent: float | None = None
    epsilon_spent: float | None = None
    mu_unspent: float | None = None
    epsilon_unspent: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadlineFigures(BudgetFigures):
    """The headline numbers of a run: aggregator with the assumed colluders."""

    # Epsilon and mu hold however the run went.  With label "none" only the planned ones are given;
    # without noise they are None too.

    mu_planned: float | None = None
    epsilon_planned: float | None = None
    delta: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewerGuarantee:
    """One kind of viewer: what it sees, and the guarantee against it (null with label "none")."""

    key: Viewer
    who: str
    sees: str
    mu: float | None
    epsilon: float | None
    headline: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Collusion:
    """The guarantee that remains if that many sites collude."""

    colluders: int
    mu: float | None
    epsilon: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Slack:
    """The amount that discrete noise may add; null with label "none"."""

    epsilon: float | None = None
    delta: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReleaseRow:
    """A charged release: its exact integers, their real values, its place in the chain."""

    seq: int
    phase: str
    round: int
    field: str
    shape: VectorShape
    size: int
    log2_gamma: int
    clip: float
    clip_int: int
    sensitivity: float
    delta_int: int
    # As text: above 2^53 readers of JSON round numbers.
    s2: str
    shares: int
    seed_ratio: int = dataclasses.field(default=0, metadata=UNLESS_EMPTY)
    part: Half = dataclasses.field(default="", metadata=UNLESS_EMPTY)
    noise_std_share: float  # of one site
    noise_std_mean: float  # of the decoded mean
    # p/q in lowest terms: exact, so that a reader can add up the releases.
    mu2: str | None
    mu: float | None
    mu_so_far: float | None
    epsilon_so_far: float | None
    digest: str

    @property
    def event(self) -> Event:
        """The release by its integers; ValueError or ConfigError if they are impossible."""
        names = {field.name for field in dataclasses.fields(Event)} - {"variance"}
        return Event(variance=int(self.s2), **{name: getattr(self, name) for name in names})

    @property
    def cost(self) -> Cost:
        """The stated cost; ValueError or ArithmeticError if it is no fraction."""
        return Cost.parse(self.mu2) if self.mu2 else INFINITE


@dataclass(frozen=True, kw_only=True, slots=True)
class Chain:
    """The ledger of a run; `cape.privacy.ledger.read_entries` checks its entries."""

    head: str
    entries: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivacyStatement:
    """The content of privacy.json, fields in the order of the file."""

    schema: Literal["cape-privacy-1"] = "cape-privacy-1"
    guarantee: str
    private: bool
    unit: str = "one subject: everything the run reads of one person at one site"
    relation: str = RELATION
    epsilon: float | None
    epsilon_planned: float | None
    delta: float
    mu: float | None
    zcdp_rho: float | None
    lattice_slack: Slack
    n_sites: int
    assumed_colluders: int
    min_survivors: int
    survivors: tuple[str, ...]
    n_subjects: int
    subjects_per_site: Mapping[str, int]
    noise: Noise | None = None
    aggregation: str | None = None
    key_trust: str | None = None
    roster_fingerprint: str
    views: tuple[ViewerGuarantee, ...]
    if_more_collude: tuple[Collusion, ...]
    budget: BudgetFigures
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    events: tuple[ReleaseRow, ...]
    ledger: Chain
    warnings: tuple[str, ...]

    @property
    def single_sums_are_seen(self) -> bool:
        """Whether the aggregator sees the noisy sum of every site, not only their total."""
        alone = self.noise == "local" and self.aggregation != "secagg"
        return alone or any(row.seed_ratio for row in self.events)


def survivors(outcome: Outcome) -> tuple[str, ...]:
    # The sites in the last sum; the trace names none if all must answer in every round.
    last = outcome.trace[-1].survivors if outcome.trace else ()
    return tuple(last or (entry.site for entry in outcome.roster.sites))


def delta_of(outcome: Outcome) -> float:
    budget = outcome.ledger.budget
    return float(outcome.settings.get("delta") or 0.0) if budget is None else budget.delta


def figures(outcome: Outcome) -> HeadlineFigures:
    empty = HeadlineFigures(delta=delta_of(outcome))
    ledger, plan = outcome.ledger, planned_cost(outcome)
    if ledger.budget is None or plan == INFINITE:
        return empty
    planned = replace(empty, mu_planned=plan.mu(), epsilon_planned=plan.epsilon(empty.delta))
    # The noise of a seeded run can be computed from the seed: no claim is made.
    if outcome.label != "dp":
        return planned
    mu_unspent = math.sqrt(ledger.remaining.mu2 or 0.0)
    return replace(
        planned,
        mu=planned.mu_planned,
        epsilon=planned.epsilon_planned,
        mu_spent=ledger.spent.mu(),
        epsilon_spent=ledger.spent.epsilon(empty.delta),
        mu_unspent=mu_unspent,
        epsilon_unspent=gdp_epsilon(mu=mu_unspent, delta=empty.delta),
    )


def statement(outcome: Outcome) -> PrivacyStatement:
    roster, numbers, settings = outcome.roster, figures(outcome), outcome.settings
    budget = outcome.ledger.budget
    texts: dict[str, Any] = {
        name: settings.get(name) for name in ("noise", "aggregation", "key_trust")
    }
    # The columns of a comparison whose counts are public
    public = str(settings.get("public") or "")
    return PrivacyStatement(
        guarantee=outcome.label,
        private=outcome.label == "dp",
        relation=RELATION_OF_GROUPS.format(columns=public) if public else RELATION,
        epsilon=numbers.epsilon,
        epsilon_planned=numbers.epsilon_planned,
        delta=numbers.delta,
        mu=numbers.mu,
        # mu-GDP is (mu^2 / 2)-zCDP.
        zcdp_rho=None if numbers.mu is None else numbers.mu**2 / 2.0,
        lattice_slack=_slack(outcome),
        n_sites=roster.n_sites,
        assumed_colluders=roster.colluders,
        min_survivors=roster.survivors,
        survivors=survivors(outcome),
        n_subjects=roster.n_subjects,
        subjects_per_site={entry.site: entry.n_subjects for entry in roster.sites},
        **texts,
        roster_fingerprint=outcome.fingerprint,
        views=tuple(_views(outcome, numbers)),
        if_more_collude=tuple(_beyond(outcome, numbers)),
        budget=BudgetFigures(
            epsilon=None if budget is None else budget.epsilon,
            mu=None if budget is None else budget.mu,
            mu_spent=numbers.mu_spent,
            epsilon_spent=numbers.epsilon_spent,
            mu_unspent=numbers.mu_unspent,
            epsilon_unspent=numbers.epsilon_unspent,
        ),
        assumptions=_lines(
            "assumptions.txt.j2",
            settings=settings,
            graph=_graph(outcome),
            halves=any(event.part for event in roster.plan),
        ),
        not_covered=_lines("not_covered.txt.j2", settings=settings, public=public),
        events=tuple(_releases(outcome, numbers.delta)),
        ledger=Chain(head=outcome.ledger.head, entries=tuple(outcome.ledger.entries())),
        warnings=tuple(outcome.warnings),
    )


def _lines(template: str, **values: object) -> tuple[str, ...]:
    return tuple(text_of(template, **values).splitlines())


def _graph(outcome: Outcome) -> GraphPlan | None:
    """Return the graph along which sites masked; None if every pair masked."""
    roster = outcome.roster
    if outcome.settings.get("aggregation") != "secagg":
        return None
    return plan_graph(roster.n_sites, roster.survivors, roster.colluders)


def _slack(outcome: Outcome) -> Slack:
    if outcome.label != "dp" or planned_cost(outcome) == INFINITE:
        return Slack()
    plan, charged = outcome.roster.plan, outcome.ledger.events
    # The slack grows with every release: take the longer list.
    slack = lattice_slack(plan if len(plan) >= len(charged) else charged)
    return Slack(epsilon=slack.epsilon, delta=slack.delta)


def _views(outcome: Outcome, numbers: HeadlineFigures) -> Iterator[ViewerGuarantee]:
    roster = outcome.roster
    colluders = number_of(roster.colluders, "site")
    masked = outcome.settings.get("aggregation") == "secagg"
    # With local noise alone single sums are seen; with secagg they are masked too.
    alone = outcome.noise_is_local and not masked
    replies = "replies, noisy by themselves" if alone else "masked replies"
    sees = {
        "outsider": "the results, the settings and the decoded sums",
        "one site": "all broadcasts, and its own noise share",
        f"aggregator with {colluders}": f"{replies}, the sums, and all that these sites know",
    }
    noise: Noise = "local" if outcome.noise_is_local else "correlated"
    by_viewer = planned_cost(outcome).by_viewer(
        noise_shares=roster.noise_shares, n_sites=roster.survivors, noise=noise
    )
    promised = numbers.epsilon is not None
    for (key, cost), (who, seen) in zip(by_viewer.items(), sees.items(), strict=True):
        yield ViewerGuarantee(
            key=key,
            who=who,
            sees=seen,
            mu=cost.mu() if promised else None,
            epsilon=cost.epsilon(numbers.delta) if promised else None,
            headline=key == "aggregator",
        )


def _beyond(outcome: Outcome, numbers: HeadlineFigures) -> Iterator[Collusion]:
    roster, plan = outcome.roster, planned_cost(outcome)
    # Two rows: one colluder more than assumed, and the worst case.
    for colluders in sorted({roster.colluders + 1, roster.survivors - 1}):
        unknown = roster.survivors - colluders
        if outcome.settings.get("aggregation") == "secagg":
            unknown = unknown_shares(
                roster.n_sites, roster.survivors, assumed=roster.colluders, colluders=colluders
            )
        if numbers.epsilon is None or unknown < 1 or colluders <= roster.colluders:
            continue
        # With local noise each site's own noise is enough, whoever colludes.
        fewer = plan.if_unknown(unknown, noise_shares=roster.noise_shares)
        cost = plan if outcome.noise_is_local else fewer
        yield Collusion(colluders=colluders, mu=cost.mu(), epsilon=cost.epsilon(numbers.delta))


def _releases(outcome: Outcome, delta: float) -> Iterator[ReleaseRow]:
    ledger, roster, promised = outcome.ledger, outcome.roster, outcome.label == "dp"
    # Each entry holds the digest of the entry before it; the head is the digest of the last.
    links = [*(str(entry["prev_digest"]) for entry in ledger.entries()[1:]), ledger.head]
    charged = zip(running(ledger.events), links, strict=False)
    for number, ((event, so_far), digest) in enumerate(charged, 1):
        stated = dataclasses.asdict(event)
        yield ReleaseRow(
            seq=number,
            s2=str(stated.pop("variance")),
            **stated,
            clip=event.clip_int / event.gamma,
            sensitivity=event.delta_int / event.gamma,
            noise_std_share=math.sqrt(event.variance) / event.gamma,
            noise_std_mean=event.noise_std(roster.n_sites, roster.n_subjects),
            mu2=str(event.cost) if event.private else None,
            mu=event.cost.mu() if promised else None,
            mu_so_far=so_far.mu() if promised else None,
            epsilon_so_far=so_far.epsilon(delta) if promised else None,
            digest=digest,
        )
