"""From (epsilon, delta) to the integers of every release, before anything is released."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from cape.algorithms.estimators import PlannedRelease
from cape.errors import ConfigError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.accounting import check_delta
from cape.privacy.cost import Event, Half
from cape.privacy.ledger import Budget, Plan, check_plan, split_mu
from cape.privacy.mechanisms import (
    check_overflow,
    plan_event,
    plan_event_without_noise,
    verify_event,
)
from cape.protocol.model import Roster
from cape.protocol.ports import Site
from cape.settings.config import Config

# Reply field that holds the joined vectors of a round; part of the label of its masks
SUM_FIELD = "total"

PROTECTS_NOBODY = "No noise is added: this run protects nobody."


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedStage:
    """Releases of one phase, and their weight in mu^2 of the budget; `fixed_mu` > 0 replaces it.

    With a `part` they ask one half of the people of every site (`cape.privacy.halves`); the budget
    counts only the more expensive half.  ConfigError unless their rounds count 1, 2, .. in order.
    """

    phase: str
    releases: tuple[PlannedRelease, ...]
    mu2_weight: float
    fixed_mu: float = 0.0  # of each release
    part: Half = ""

    def __post_init__(self) -> None:
        numbers = [0, *(number for number, _ in self.numbered)]
        if any(after - before not in (0, 1) for before, after in pairwise(numbers)):
            problem = f"the rounds of {self.phase} do not count 1, 2, .. in order"
            raise ConfigError("E232", problem=problem, do="correct the plan.")

    @property
    def numbered(self) -> tuple[tuple[int, PlannedRelease], ...]:
        """The releases in order, each with its round."""
        return tuple((release.round or i, release) for i, release in enumerate(self.releases, 1))


def noise_shares_of(config: Config, n_sites: int) -> int:
    """Return h, the noise shares that suffice for the planned mu: t - S_C; 1 if ``noise=local``."""
    return 1 if config.noise == "local" else config.survivors(n_sites) - config.colluders(n_sites)


def make_plan(
    config: Config, stages: Sequence[PlannedStage], *, n_sites: int, n_subjects: int
) -> tuple[Event, ...]:
    """Return every release of a run.

    PrivacyBudgetError if they do not fit the budget (asked, allowed, what would fit); ConfigError
    if delta is too large for M, or a sum could leave the integers modulo 2^64.
    """
    if config.private:
        check_delta(config.delta, n_subjects=n_subjects)
        shares = noise_shares_of(config, n_sites)
        plan = _with_noise(config, stages, shares, config.ratio(n_sites))
        budget = Budget.of(epsilon=config.epsilon, delta=config.delta)
    else:
        plan, budget = _without_noise(stages, n_subjects), None
    for event in plan:
        check_overflow(event, n_sites, n_subjects)
    check_plan(Plan(releases=plan), budget)
    return plan


def _with_noise(
    config: Config, stages: Sequence[PlannedStage], shares: int, seed_ratio: int
) -> tuple[Event, ...]:
    budget = Budget.of(epsilon=config.epsilon, delta=config.delta)
    # Fixed rounds take their mu^2 first; the others divide the rest by their weights.
    free = [stage for stage in stages if stage.releases and not stage.fixed_mu]
    total = _borne(free, lambda stage: stage.mu2_weight)
    fixed2 = _borne(stages, lambda stage: stage.fixed_mu**2 * len(stage.releases)) / budget.mu**2
    plan: list[Event] = []
    for stage in stages:
        share = max(0.0, 1.0 - fixed2) * stage.mu2_weight / total if total else 0.0
        share = 0.0 if stage.fixed_mu else share
        weights = [release.weight for release in stage.releases]
        mus = split_mu(budget.mu, [share * w / sum(weights) for w in weights]) if share else ()
        for i, (number, release) in enumerate(stage.numbered):
            mu = stage.fixed_mu or (mus[i] if mus else 0.0)
            if mu <= 0.0:
                raise PrivacyBudgetError(
                    "E230",
                    what=f"the fixed rounds of {stage.phase}",
                    needed=f"{(fixed2**0.5) * budget.mu:.6g} and more for {stage.phase}",
                    remaining=f"{budget.mu:.6g}",
                    budget=f"{budget.mu:.6g}",
                    do="use fewer rounds, a smaller mu per round, or raise epsilon",
                )
            plan.append(
                plan_event(
                    phase=stage.phase,
                    round=number,
                    field=release.name,
                    shape=release.shape,
                    size=release.size,
                    clip=release.clip,
                    mu=mu,
                    shares=shares,
                    seed_ratio=seed_ratio,
                    part=stage.part,
                )
            )
    return tuple(plan)


def _borne(stages: Sequence[PlannedStage], amount: Callable[[PlannedStage], float]) -> float:
    """Sum an amount over the stages that ask all people and over the more expensive half."""
    sums = {part: sum(amount(s) for s in stages if s.part == part) for part in ("", "A", "B")}
    return sums[""] + max(sums["A"], sums["B"])


def _without_noise(stages: Sequence[PlannedStage], n_subjects: int) -> tuple[Event, ...]:
    return tuple(
        plan_event_without_noise(
            phase=stage.phase,
            round=number,
            field=release.name,
            shape=release.shape,
            size=release.size,
            clip=release.clip,
            n_subjects=n_subjects,
            part=stage.part,
        )
        for stage in stages
        for number, release in stage.numbered
    )


def verify_plan(
    site: Site, roster: Roster, stages: Sequence[PlannedStage], *, n_basis: int
) -> None:
    """Check, as a site, the plan that the aggregator sent, in exact integers.

    d, clips, sensitivities, noise and the total must follow from this site's own settings:
    `stages`, `n_basis`, budget and number of colluders.  PrivacyBudgetError; nothing was released.
    """
    config = site.config

    def refuse(problem: str) -> PrivacyBudgetError:
        return PrivacyBudgetError("E231", site=site.id, problem=problem)

    if roster.n_basis != n_basis or n_basis > config.max_features:
        raise refuse("the size of the public basis is not that of the settings")
    expected = {
        (stage.phase, number, release.name): (release, stage.part)
        for stage in stages
        for number, release in stage.numbered
    }
    # In order, too: the vectors of a round are told apart by their places in the sum.
    if [(e.phase, e.round, e.field) for e in roster.plan] != list(expected):
        raise refuse("the releases are not those of the settings")
    public = (config.colluders(roster.n_sites), config.survivors(roster.n_sites))
    if (roster.colluders, roster.survivors) != public:
        raise refuse("the number of colluders or survivors is not that of the settings")
    if roster.config != config.digest():
        raise refuse("the settings are others than this site's")
    # An aggregator that adds invented sites can remove the masks and leaves a site its own share of
    # the noise; so the owner sets the number of sites, from which that share follows.
    sites = [entry.site for entry in roster.sites]
    if problem := config.wrong_sites(sites):
        raise refuse(problem)
    if sites != sorted(set(sites), key=str.encode):
        raise refuse("the sites of the roster are not in order, or one stands there twice")
    if min(entry.n_subjects for entry in roster.sites) < 1:
        raise refuse("a site has no subjects")
    if any(min(s.counts, default=0) < 0 or sum(s.counts) > s.n_subjects for s in roster.sites):
        raise refuse("a site has more people in cells than it has people, or fewer than none")
    for event in roster.plan:
        release, part = expected[event.phase, event.round, event.field]
        # A release that asks all people and charges one half would be free for the other half.
        if event.part != part:
            raise refuse(f"{event.phase} asks another half of the people than the settings")
        if (event.size, event.shape) != (release.size, release.shape):
            raise refuse(f"{event.phase} asks for another vector than the settings")
        if event.private != config.private:
            raise refuse(f"{event.phase} carries no noise")
        if config.private:
            verify_event(event, release.clip, site=site.id)
            if event.shares != noise_shares_of(config, roster.n_sites):
                raise refuse(f"{event.phase} counts on other noise shares than the settings")
            if event.seed_ratio != config.ratio(roster.n_sites):
                raise refuse(f"{event.phase} counts on other zero-sum noise than the settings")
        # A sum that wraps modulo 2^64 would silently decode to another number.
        check_overflow(event, roster.n_sites, roster.n_subjects)
    budget = Budget.of(epsilon=config.epsilon, delta=config.delta) if config.private else None
    check_plan(Plan(releases=roster.plan), budget)


def filtered(config: Config) -> tuple[str, ...]:
    nyquist = 0.5 / config.tr if config.tr else math.inf  # Hz
    if not 0 < config.low_pass < nyquist:
        return ()
    return (
        f"low_pass = {config.low_pass:g} Hz makes time courses smooth: they come closer to "
        "Gaussian and count as fewer samples, so components are harder to separate. Leave it out "
        "unless the data demand it.",
    )
