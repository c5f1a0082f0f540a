"""The privacy statement of a run: figures per viewer, every release, and sentences for people.

The figures come from the ledger and the plan only.  Nothing is claimed for a run with label
"none".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import count

from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.cost import FREE, INFINITE, Cost, Noise, total_cost
from cape.privacy.event import Event
from cape.privacy.ledger import Ledger
from cape.privacy.mechanisms import lattice_slack
from cape.protocol.outcome import Outcome

Json = dict[str, object]

UNIT = "one subject: everything the run reads of one person at one site"
RELATION = "replace-one"

CURIOUS = (
    "The aggregator follows the protocol and is curious: it may study all it receives, together "
    "with at most the assumed number of sites."
)
PINNED = (
    "The aggregator may lie, together with at most the assumed number of sites: identity keys that "
    "the sites exchanged beforehand, past it, detect other keys and other lists of sites. It can "
    "always stop the run."
)
DROPPING = "Which sites drop out, and when, does not depend on their data."
ASSUMPTIONS = (
    "Sites keep their own noise and keys secret and add their noise share.",
    "The random numbers of each site's operating system cannot be predicted, and X25519, HKDF and "
    "ChaCha20 hold.",
)
NOT_COVERED = (
    "That a site took part, the number of sites, the number of subjects of each site, the shortest "
    "and longest repetition time of its scans, the features, and all settings.",
    "Which subjects were accepted: the checks before the run lie outside the guarantee.",
    "Timing, memory use and the length of messages, and that a site stopped the run.",
    "A person scanned at two sites: mu doubles for that person.",
    "Earlier or later runs on the same data: mu^2 adds; the figures here are for this run alone.",
    "Choices made by looking at the data before the run, such as settings tried on them.",
    "Anything a site publishes by itself, such as time courses of its own subjects.",
    "An aggregator that swaps keys: sites should compare the roster fingerprint by telephone.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """One release and the cost of all releases up to it."""

    event: Event
    so_far: Cost


def running(events: Iterable[Event]) -> Iterator[Spent]:
    so_far = FREE
    for event in events:
        # Rounded up by less than 2^-256 each: exact sums would grow with every release.
        so_far = total_cost((so_far, event.cost))
        yield Spent(event=event, so_far=so_far)


def planned_cost(outcome: Outcome) -> Cost:
    """Cost of the whole plan, which no adaptive course of the run can exceed.

    At least what the ledger holds; infinite if a release has no noise.
    """
    plan = total_cost(event.cost for event in outcome.roster.plan)
    charged = total_cost(event.cost for event in outcome.ledger.events)
    return charged if plan <= charged else plan


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """The headline numbers of a run against the aggregator with the assumed colluders.

    `mu` and `epsilon` hold for the run whatever happened in it (None with label "none");
    `*_planned` are the same numbers whatever the label (None without noise); `*_spent` are
    readings of what was charged, and `*_unspent` what the budget still has.
    """

    mu: float | None
    epsilon: float | None
    mu_planned: float | None
    epsilon_planned: float | None
    mu_spent: float | None
    epsilon_spent: float | None
    mu_unspent: float | None
    epsilon_unspent: float | None
    delta: float


def survivors(outcome: Outcome) -> list[str]:
    """Return the sites whose data are in the last sum; all of them unless sites dropped out."""
    last = outcome.trace[-1].survivors if outcome.trace else ()
    return list(last or (entry.site for entry in outcome.roster.sites))


def delta_of(outcome: Outcome) -> float:
    """Return the total delta of the run."""
    budget = outcome.ledger.budget
    return float(outcome.settings.get("delta") or 0.0) if budget is None else budget.delta


def figures(outcome: Outcome) -> Figures:
    """Return the headline numbers, in exact fractions up to the last step."""
    delta, promised = delta_of(outcome), outcome.label == "dp"
    ledger, plan = outcome.ledger, planned_cost(outcome)
    if ledger.budget is None or plan == INFINITE:
        return Figures(**dict.fromkeys(_OPTIONAL), delta=delta)
    mus = {
        "": plan.mu(),
        "_planned": plan.mu(),
        "_spent": ledger.spent.mu(),
        "_unspent": math.sqrt(ledger.left.mu2 or 0.0),
    }
    numbers: dict[str, float | None] = {}
    for name, mu in mus.items():
        shown = mu if promised or name == "_planned" else None
        numbers[f"mu{name}"] = shown
        numbers[f"epsilon{name}"] = None if shown is None else gdp_epsilon(mu=shown, delta=delta)
    return Figures(**numbers, delta=delta)


_OPTIONAL = tuple(name for name in Figures.__slots__ if name != "delta")


def statement(outcome: Outcome) -> Json:
    """Return the content of privacy.json."""
    roster, numbers = outcome.roster, figures(outcome)
    return {
        "schema": "cape-privacy-1",
        "guarantee": outcome.label,
        "private": outcome.label == "dp",
        "unit": UNIT,
        "relation": RELATION,
        "epsilon": numbers.epsilon,
        "epsilon_planned": numbers.epsilon_planned,
        "delta": numbers.delta,
        "mu": numbers.mu,
        "zcdp_rho": None if numbers.mu is None else numbers.mu**2 / 2.0,
        "lattice_slack": _slack(outcome),
        "n_sites": roster.n_sites,
        "assumed_colluders": roster.colluders,
        "min_survivors": roster.survivors,
        "survivors": survivors(outcome),
        "n_subjects": roster.n_subjects,
        "subjects_per_site": {entry.site: entry.n_subjects for entry in roster.sites},
        "noise": outcome.settings.get("noise"),
        "aggregation": outcome.settings.get("aggregation"),
        "zero_sum": outcome.settings.get("zero_sum"),
        "key_trust": outcome.settings.get("key_trust"),
        "roster_fingerprint": outcome.fingerprint,
        "views": _views(outcome),
        "if_more_collude": _beyond(outcome),
        "budget": _budget(outcome, numbers),
        "assumptions": _assumptions(outcome),
        "not_covered": list(NOT_COVERED),
        "events": events(outcome.ledger, delta=numbers.delta, n_sites=roster.n_sites,
                         n_subjects=roster.n_subjects, promised=outcome.label == "dp"),
        "ledger": {"head": outcome.ledger.head, "entries": list(outcome.ledger.entries())},
        "warnings": list(outcome.warnings),
    }  # fmt: skip


def _assumptions(outcome: Outcome) -> list[str]:
    """Return what the guarantee rests on under the settings of this run."""
    pinned = outcome.settings.get("key_trust") == "pinned"
    drops = (DROPPING,) if outcome.settings.get("aggregation") == "secagg" else ()
    return [PINNED if pinned else CURIOUS, *ASSUMPTIONS, *drops]


def _budget(outcome: Outcome, numbers: Figures) -> Json:
    """Return what was allowed, spent and left."""
    budget = outcome.ledger.budget
    return {
        "epsilon": None if budget is None else budget.epsilon,
        "mu": None if budget is None else budget.mu,
        "mu_spent": numbers.mu_spent,
        "epsilon_spent": numbers.epsilon_spent,
        "mu_unspent": numbers.mu_unspent,
        "epsilon_unspent": numbers.epsilon_unspent,
    }


def _slack(outcome: Outcome) -> Json:
    """Return what the noise being discrete may add to epsilon and delta; null with "none"."""
    if outcome.label != "dp" or planned_cost(outcome) == INFINITE:
        return {"epsilon": None, "delta": None}
    plan, charged = outcome.roster.plan, outcome.ledger.events
    slack = lattice_slack(plan if len(plan) >= len(charged) else charged)
    return {"epsilon": slack.epsilon, "delta": slack.delta}


def _views(outcome: Outcome) -> list[Json]:
    """Return mu and epsilon of the three viewers; null with label "none"."""
    roster, numbers = outcome.roster, figures(outcome)
    colluders = "1 site" if roster.colluders == 1 else f"{roster.colluders} sites"
    masked = outcome.settings.get("aggregation") == "secagg"
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
    return [
        {
            "key": key,
            "who": who,
            "sees": what,
            "mu": cost.mu() if promised else None,
            "epsilon": cost.epsilon(numbers.delta) if promised else None,
            "headline": key == "aggregator",
        }
        for (key, cost), (who, what) in zip(by_viewer.items(), sees.items(), strict=True)
    ]


def _beyond(outcome: Outcome) -> list[Json]:
    """Return what is left if more sites collude than assumed: one more, and all others."""
    roster, numbers, plan = outcome.roster, figures(outcome), planned_cost(outcome)
    h = roster.noise_shares
    rows: list[Json] = []
    for colluders in sorted({roster.colluders + 1, roster.survivors - 1}):
        unknown = roster.survivors - colluders
        if numbers.epsilon is None or unknown < 1 or colluders <= roster.colluders:
            continue
        # A site's own full noise protects its release whoever colludes.
        cost = plan if outcome.noise_is_local else plan.if_unknown(unknown, noise_shares=h)
        mu, epsilon = cost.mu(), cost.epsilon(numbers.delta)
        rows.append({"colluders": colluders, "mu": mu, "epsilon": epsilon})
    return rows


def events(
    ledger: Ledger, *, delta: float, n_sites: int, n_subjects: int, promised: bool
) -> list[Json]:
    """Return every charged release in order, with its place in the hash chain.

    Parameters
    ----------
    ledger : Ledger
        What was charged.
    delta, n_sites, n_subjects
        For epsilon so far, and for the noise of the decoded mean (S shares, divided by M).
    promised : bool
        False: mu and epsilon are null, because the run promises nothing.
    """
    links = [*(str(entry["prev_digest"]) for entry in ledger.entries()[1:]), ledger.head]
    return [
        {
            **_event(spent.event, n_sites=n_sites, n_subjects=n_subjects),
            "seq": number,
            "mu": spent.event.cost.mu() if promised else None,
            "mu_so_far": spent.so_far.mu() if promised else None,
            "epsilon_so_far": spent.so_far.epsilon(delta) if promised else None,
            "digest": digest,
        }
        for number, spent, digest in zip(count(1), running(ledger.events), links, strict=False)
    ]


def _event(event: Event, *, n_sites: int, n_subjects: int) -> Json:
    """Return a release with its exact integers and the same in real units."""
    return {
        "seq": 0,
        "phase": event.phase,
        "round": event.round,
        "field": event.field,
        "shape": event.shape,
        "size": event.size,
        "log2_gamma": event.log2_gamma,
        "clip": event.clip_int / event.gamma,
        "clip_int": event.clip_int,
        "sensitivity": event.delta_int / event.gamma,
        "delta_int": event.delta_int,
        "s2": str(event.variance),
        "shares": event.shares,
        **({"seed_ratio": event.seed_ratio} if event.seed_ratio else {}),
        "noise_std_share": math.sqrt(event.variance) / event.gamma,
        "noise_std_mean": event.noise_std(n_sites, n_subjects),
        "mu2": str(event.cost) if event.private else None,
    }
