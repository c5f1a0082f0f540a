"""Forecast a planned comparison of groups, without data.

The plan is that of a run (`cape.computations.capecontrast`), and a run refuses by the same forecast
(`cape.forecast.contrast`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from cape.computations import capecontrast
from cape.computations.capecontrast import CapeContrastConfig
from cape.errors import ConfigError
from cape.forecast.contrast import EFFECTS, MAX_USEFUL
from cape.frozen import dataclass
from cape.privacy.accounting import check_delta
from cape.privacy.cost import INFINITE, Cost, Event, Viewer, total_of
from cape.protocol.join import check_shares
from cape.protocol.model import Roster, RosterEntry
from cape.protocol.sizes import Weight, check_weight
from cape.settings.config import Config
from cape.settings.option import out_of_range
from cape.space.feature_space import FeatureSpace

# Assumed if the settings name no groups: two groups and a usual number of covariates
GROUP, COVARIATES = "group: first, second", "age 0:1, motion 0:1, sex female/male"
# The smaller group of a site counts: .40 on average if shares are .5 with an sd of .12 between
# sites.  Equal groups would promise too much.
USUAL_SHARE = 0.4
OTHER_EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class DetectableEffect:
    """Sensitivity of a comparison to differences, in standard deviations over people."""

    n_subjects: int
    epsilon: float
    se: float  # standard error of a difference
    smallest: float  # difference found with power .8 at .05, two-sided
    power: tuple[float, ...]  # for `EFFECTS`
    privacy: float  # share of the squared error that is privacy noise


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedComparison:
    """A plan with its costs and its forecast."""

    computation: str
    n_subjects: int
    n_sites: int
    n_outcomes: int
    pattern: bool  # the question is one pattern, found in half of the people
    first_share: float  # of the first group at every site
    releases: int
    mu: float | None  # against the headline viewer; None without noise
    epsilon: Mapping[Viewer, float] | None  # by viewer
    delta: float
    planned: float  # epsilon of the settings
    colluders: int
    bytes_per_site: int
    weight: Weight  # of messages, states and memory
    effects: tuple[float, ...]  # differences of `power`, in standard deviations
    seen: DetectableEffect
    usable: bool
    answer: str  # a sentence for people
    others: tuple[DetectableEffect, ...]  # at other epsilons, and with more people


def comparison_budget(
    settings: Mapping[str, object],
    *,
    n_sites: int,
    n_subjects: int,
    n_outcomes: int | None = None,
    first_share: float = USUAL_SHARE,
) -> PlannedComparison:
    """Return the plan that a real handshake makes from the same numbers; raises its errors.

    `n_outcomes` replaces the outcomes of the settings, for an owner who has not named them yet.
    """
    if not 0.0 < first_share < 1.0:
        raise out_of_range("share", first_share, "between 0 and 1", "give that of the first group.")
    config = _config(settings, n_outcomes)
    check_shares(config, n_sites)
    if config.private:
        check_delta(config.delta, n_subjects=n_subjects)
    events = _roster(config, n_sites, n_subjects, first_share).plan
    cost = total_of(events)
    mu = cost.mu()

    def effect(people: int, epsilon: float) -> DetectableEffect:
        asked = replace(config, epsilon=epsilon)
        roster = _roster(asked, n_sites, people, first_share)
        forecast = capecontrast.forecast_of(asked, roster)
        return DetectableEffect(
            n_subjects=people,
            epsilon=epsilon,
            se=forecast.se,
            smallest=forecast.smallest,
            power=forecast.power,
            privacy=forecast.privacy,
        )

    seen, sizes = effect(n_subjects, config.epsilon), list[tuple[int, float]]()
    if mu is not None:
        sizes = [(n_subjects, epsilon) for epsilon in OTHER_EPSILONS if epsilon != config.epsilon]
        # More people would need a smaller delta (`check_delta`).
        sizes += [
            (times * n_subjects, config.epsilon)
            for times in (2, 4)
            if 10 * config.delta * times * n_subjects <= 1.0
        ]
    n = len(config.asked_outcomes)
    return PlannedComparison(
        computation=capecontrast.NAME,
        n_subjects=n_subjects,
        n_sites=n_sites,
        n_outcomes=n,
        pattern=config.is_pattern(n),
        first_share=first_share,
        releases=len(events),
        mu=mu,
        epsilon=epsilon_by_viewer(config, cost, events[0].shares, n_sites),
        delta=config.delta,
        planned=config.epsilon,
        colluders=config.colluders(n_sites),
        bytes_per_site=sum(4 * math.ceil(8 * event.size / 3) for event in events),
        weight=check_weight(config, events, n_sites, n),
        effects=EFFECTS,
        seen=seen,
        usable=seen.smallest <= MAX_USEFUL,
        answer=_answer(seen.smallest, n if not config.is_pattern(n) else 1),
        others=tuple(effect(people, epsilon) for people, epsilon in sizes),
    )


def epsilon_by_viewer(
    config: Config, cost: Cost, noise_shares: int, n_sites: int
) -> dict[Viewer, float] | None:
    """Return epsilon against each viewer; None without noise."""
    if cost == INFINITE:
        return None
    costs = cost.by_viewer(noise_shares=noise_shares, n_sites=n_sites, noise=config.noise)
    return {viewer: of_viewer.epsilon(config.delta) or 0.0 for viewer, of_viewer in costs.items()}


def _config(settings: Mapping[str, object], n_outcomes: int | None) -> CapeContrastConfig:
    given = {n: v for n, v in settings.items() if n != "computation" and v is not None}
    if n_outcomes is not None:
        given["outcomes"] = ", ".join(f"o{k} 1" for k in range(n_outcomes))
    if not str(given.get("outcomes", "")).strip():
        do = "give --outcomes K or the setting outcomes."
        raise ConfigError("E013", setting="outcomes", do=do)
    if not str(given.get("group", "")).strip():
        given |= {"group": GROUP}
        given.setdefault("covariates", COVARIATES)
    return CapeContrastConfig.from_input(given)


def _roster(
    config: CapeContrastConfig, n_sites: int, n_subjects: int, first_share: float
) -> Roster:
    """Return a roster of sites of equal size with the plan of a run."""
    space = FeatureSpace.of_matrix(len(config.asked_outcomes))
    plan: tuple[Event, ...] = capecontrast.plan_run(config, n_sites, n_subjects, space).releases
    entries = []
    for s in range(n_sites):
        people = n_subjects // n_sites + (s < n_subjects % n_sites)
        first = round(people * first_share)
        counts = () if config.strict else (first, people - first)
        entries.append(RosterEntry(site=f"site{s}", nonce="", n_subjects=people, counts=counts))
    return Roster(
        sites=tuple(entries),
        config="",
        space=space,
        n_basis=space.n_features,
        colluders=config.colluders(n_sites),
        survivors=config.survivors(n_sites),
        seeded=False,
        plan=plan,
        warnings=(),
    )


def _answer(smallest: float, tests: int) -> str:
    if smallest > MAX_USEFUL:
        return (
            f"No: too few people, only a difference of {smallest:.1f} sd would be seen. A run "
            f"is refused above {MAX_USEFUL} unless accept_low_quality says so."
        )
    several = f" of one outcome (of {tests}, Holm asks for more)" if tests > 1 else ""
    return (
        f"Yes, for differences of {smallest:.2f} sd and more{several}: they are found in 8 of "
        "10 studies. A smaller one would mostly be missed."
    )
