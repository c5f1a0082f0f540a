"""Forecast a planned comparison, without data: cost, error of every asked term, what would help.

The plan is that of a run (`cape.computations.capecontrast`), and a run refuses by the same forecast
(`cape.forecast.comparison`).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from cape.computations import capecontrast
from cape.computations.capecontrast import CapeContrastConfig
from cape.counting import number_of
from cape.errors import ConfigError
from cape.forecast.comparison import EFFECTS, GOOD, MAX_USEFUL, USUAL_SHARE, TermForecast
from cape.frozen import dataclass
from cape.planning.judge import judge, usual_sites, with_sites
from cape.privacy.cost import INFINITE, Cost, Viewer, total_of
from cape.protocol.join import Entries
from cape.protocol.model import settings_of
from cape.protocol.sizes import Weight, check_weight
from cape.settings.config import Config
from cape.settings.option import out_of_range
from cape.settings.question import Question, term_text, typed
from cape.site.policy import SitePolicy

# Asked if the settings name no question: two groups and a usual number of covariates
USUAL: Mapping[str, str] = {
    "variables": "group first/second, age 0:1, motion 0:1, sex F/M",
    "formula": "group + age + motion + sex",
    "public": "group",
}
# A pattern is proposed if it finds differences that are so much smaller.
MUCH_LESS = 0.8
OTHER_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)

Verdict = Literal["yes", "only large ones", "no"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectableEffect:
    """What another budget or more people would find, of the term with the largest error."""

    n_subjects: int
    epsilon: float
    term: str
    se: float  # standard error of a difference, sd
    smallest: float  # difference found with power .8, after Holm
    privacy: float  # share of the squared error that is privacy noise


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedComparison:
    """A plan with its costs and its forecast."""

    computation: str
    n_subjects: int
    n_sites: int
    n_outcomes: int
    pattern: bool  # one number for all outcomes, found in half of the people
    share: float  # of the second of two levels at every site
    releases: int
    mu: float | None  # against the headline viewer; None without noise
    epsilon: Mapping[Viewer, float] | None  # by viewer
    delta: float
    planned: float  # epsilon of the settings
    colluders: int
    bytes_per_site: int
    weight: Weight  # of messages, states and memory
    effects: tuple[float, ...]  # differences of `power`, in standard deviations
    terms: tuple[TermForecast, ...]
    alone: tuple[float, ...]  # se of each term if it were the only one asked
    verdict: Verdict
    answer: str  # a sentence for people
    assumed: str  # whose shares and which columns the forecast has, in a sentence
    helps: tuple[str, ...]  # settings that would do, each by itself; empty unless the answer is no
    others: tuple[DetectableEffect, ...]  # at other epsilons, and with more people
    refusal: str  # what a run of these settings is refused with; empty if it starts
    sites_refuse: str  # why sites with the policy at hand refuse it; empty if they do not

    @property
    def usable(self) -> bool:
        """Whether a run starts."""
        return self.verdict != "no"

    def __repr__(self) -> str:
        promise = f"epsilon {self.planned:g}" if self.epsilon else "no noise"
        size = f"{self.n_subjects} people at {number_of(self.n_sites, 'site')}"
        size += f", {number_of(self.n_outcomes, 'outcome')}"
        return f"<PlannedComparison {size}, {promise}: {self.verdict}>"

    def __str__(self) -> str:
        helps = f"What would do, each by itself: {', '.join(self.helps)}" if self.helps else ""
        return "\n".join(filter(None, (repr(self), self.answer, self.assumed, helps)))


def comparison_budget(
    settings: Mapping[str, object],
    *,
    n_sites: int,
    n_subjects: int,
    n_outcomes: int | None = None,
    share: float = USUAL_SHARE,
    counted: Entries = (),
    policy: SitePolicy | None = None,
) -> PlannedComparison:
    """Return the plan that a real handshake makes from the same numbers; raises its errors.

    `n_outcomes` replaces the outcomes of the settings, for an owner who has not named them yet.
    `counted`: sites whose people were counted, in place of sites of equal size with that `share`.
    """
    if not (isinstance(share, int | float) and 0.0 < share < 1.0):
        raise out_of_range("share", share, "between 0 and 1", "give that of one group.")
    given = with_sites(_question(settings, n_outcomes), n_sites)
    judged = judge(
        given, n_sites=n_sites, n_subjects=n_subjects, share=share, entries=counted, policy=policy
    )
    config = settings_of(CapeContrastConfig, judged.config)
    entries, question, events = judged.plan.sites, config.asked, judged.plan.plan
    n = len(question.outcomes)
    cost = total_of(events)

    def other(times: int, epsilon: float) -> DetectableEffect:
        asked = replace(config, epsilon=epsilon)
        sites = tuple(capecontrast.more_people(one, times) for one in entries)
        if not counted:
            sites = usual_sites(asked, n_sites, times * n_subjects, share)
        worst = max(capecontrast.forecast_of(asked, sites), key=lambda one: one.smallest)
        return DetectableEffect(
            n_subjects=times * n_subjects,
            epsilon=epsilon,
            term=worst.text,
            se=worst.se,
            smallest=worst.smallest,
            privacy=worst.privacy,
        )

    terms, sizes = capecontrast.forecast_of(config, entries), list[tuple[int, float]]()
    if config.private:
        sizes = [(1, epsilon) for epsilon in OTHER_EPSILONS if epsilon != config.epsilon]
        # More people would need a smaller delta (`check_delta`).
        sizes += [
            (times, config.epsilon)
            for times in (2, 4)
            if 10 * config.delta * times * n_subjects <= 1.0
        ]
    alone = [
        capecontrast.forecast_of(replace(config, ask=typed(term.names)), entries)[0].se
        for term in question.asked
    ]
    smallest = max(term.smallest for term in terms)
    verdict: Verdict = "no" if smallest > MAX_USEFUL else "only large ones"
    verdict = "yes" if smallest <= GOOD else verdict
    helps = capecontrast.remedies(config, entries) if verdict == "no" else ()
    return PlannedComparison(
        computation=capecontrast.NAME,
        n_subjects=n_subjects,
        n_sites=n_sites,
        n_outcomes=n,
        pattern=question.pattern,
        share=share,
        releases=len(events),
        mu=cost.mu(),
        epsilon=epsilon_by_viewer(config, cost, events[0].shares, n_sites),
        delta=config.delta,
        planned=config.epsilon,
        colluders=config.colluders(n_sites),
        bytes_per_site=sum(4 * math.ceil(8 * event.size / 3) for event in events),
        weight=check_weight(config, events, n_sites, n),
        effects=EFFECTS,
        terms=terms,
        alone=tuple(alone),
        verdict=verdict,
        answer=_answer(config, entries, terms, verdict),
        assumed=_assumed(question, entries, counted=bool(counted), usual=_is_usual(settings)),
        helps=helps,
        others=tuple(other(times, epsilon) for times, epsilon in sizes),
        refusal=judged.refusal,
        sites_refuse=judged.sites_refuse,
    )


def epsilon_by_viewer(
    config: Config, cost: Cost, noise_shares: int, n_sites: int
) -> dict[Viewer, float] | None:
    """Return epsilon against each viewer; None without noise."""
    if cost == INFINITE:
        return None
    costs = cost.by_viewer(noise_shares=noise_shares, n_sites=n_sites, noise=config.noise)
    return {viewer: of_viewer.epsilon(config.delta) or 0.0 for viewer, of_viewer in costs.items()}


def _question(settings: Mapping[str, object], n_outcomes: int | None) -> dict[str, object]:
    given = {name: value for name, value in settings.items() if value is not None}
    given["computation"] = capecontrast.NAME
    if n_outcomes is not None:
        given["outcomes"] = ", ".join(f"o{k} 0:4" for k in range(n_outcomes))
    if not str(given.get("outcomes", "")).strip():
        do = "give --outcomes K or the setting outcomes."
        raise ConfigError("E013", setting="outcomes", do=do)
    # Of a question that is not asked yet the usual one is forecast; never of half a question.
    return {**given, **USUAL} if _is_usual(given) else given


def _is_usual(settings: Mapping[str, object]) -> bool:
    return not any(settings.get(name) for name in (*USUAL, "ask"))


def _answer(
    config: CapeContrastConfig, entries: Entries, terms: tuple[TermForecast, ...], verdict: Verdict
) -> str:
    worst = max(terms, key=lambda one: one.smallest)
    of = f" of {worst.text}" if len(terms) > 1 else ""
    found = f"differences{of} of {worst.smallest:.2f} sd and more are found in 8 of 10 studies"
    tests = 1 if config.asked.pattern else len(config.asked.outcomes)
    found += f", after Holm over {tests} outcomes" if tests > 1 else ""
    if verdict == "no":
        return f"No: only {found}. A run is refused above {MAX_USEFUL} (accept_low_quality)."
    size = EFFECTS[-2]
    half = 1.96 * worst.sizes[-2]
    found += f"; one of {size:g} sd is given as {size:g} [{size - half:.2f}, {size + half:.2f}]"
    text = f"{'Yes' if verdict == 'yes' else 'Only large ones'}: {found}."
    pattern = _pattern(config, entries)
    if pattern and pattern.smallest < MUCH_LESS * worst.smallest:
        text += f" A pattern of all outcomes is found from {pattern.smallest:.2f} sd: take "
        text += "test = pattern."
    return text


def _assumed(question: Question, entries: Entries, *, counted: bool, usual: bool) -> str:
    """Say which shares of groups and which columns a forecast has, and who said so."""
    columns = " + ".join(term_text(names) for names in question.model)
    said = f"The model is {columns}{', the usual one, as no question was given' if usual else ''}"
    if not question.public:
        return f"{said}; groups are not counted, as no column is public."
    people = np.array([entry.counts for entry in entries]).sum(axis=0)
    groups = ", ".join(
        f"{' '.join(cell)} {n}" for cell, n in zip(question.cells, people.tolist(), strict=True)
    )
    return f"{said}; people {'counted' if counted else 'assumed (share)'}: {groups}."


def _pattern(config: CapeContrastConfig, entries: Entries) -> TermForecast | None:
    """Return the forecast of a pattern of the same outcomes, where that could be asked instead."""
    if config.asked.pattern:
        return None
    try:
        return capecontrast.forecast_of(replace(config, test="pattern"), entries)[0]
    except ConfigError:  # of this question there is none
        return None
