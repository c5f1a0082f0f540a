"""The two privacy chapters of the page: the promise in words, and the ledger with its curve.

Written from the parsed privacy.json.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cape.privacy.accounting import display_epsilon
from cape.report.page_model import Block, Bullets, Fold, Grid, Text

INFINITE = "infinite"
COSTS = ("share of mu²", "mu", "mu so far", "epsilon so far")


def promise(privacy: dict[str, Any]) -> tuple[Block, ...]:
    """Return the chapter on what is protected, against whom, and what is not."""
    if not privacy["private"]:
        return (*_in_words(privacy), *_warnings(privacy))
    return (
        *_in_words(privacy),
        _views(privacy),
        *_beyond(privacy),
        Bullets(title="This rests on", items=tuple(privacy["assumptions"])),
        Bullets(title="Not covered", items=tuple(privacy["not_covered"])),
        *_warnings(privacy),
    )


def ledger(privacy: dict[str, Any], *, with_pictures: bool) -> tuple[Block, ...]:
    """Return the chapter on releases: the curve, a row per phase, every release."""
    events = privacy["events"]
    if not events:
        return (Text(text="Nothing was released."),)
    blocks: list[Block] = []
    if privacy["private"]:
        budget = privacy["budget"]
        epsilon, unspent = budget["epsilon_spent"], budget["epsilon_unspent"]
        blocks.append(Text(text=(
            f"Spent so far: epsilon {display_epsilon(epsilon)} (mu {budget['mu_spent']:.4g}) of "
            f"the budget of mu {budget['mu']:.4g}. Unspent: mu {budget['mu_unspent']:.2g}, by "
            f"itself epsilon {display_epsilon(unspent, digits=2)}. Costs add as mu squared, not "
            "as epsilon."
        )))  # fmt: skip
        if with_pictures:
            from cape.report import plots

            curve = np.array([event["epsilon_so_far"] for event in events])
            phases = [event["phase"] for event in events]
            limit = float(budget["epsilon"])
            blocks.append(plots.budget_curve(curve, limit, privacy["delta"], phases))
    else:
        blocks.append(Text(text="This run promises nothing, so no mu and no epsilon are given."))
    blocks.append(_by_phase(events))
    blocks.append(Fold(summary=f"All {len(events)} releases", grid=_every(events)))
    return tuple(blocks)


def _warnings(privacy: dict[str, Any]) -> tuple[Block, ...]:
    return tuple(Text(text=warning, tone="warning") for warning in privacy["warnings"])


def single_sums_are_seen(privacy: dict[str, Any]) -> bool:
    """Tell whether the aggregator sees the noisy sum of every site, not their total alone."""
    return privacy.get("zero_sum") == "gaussian" or (
        privacy.get("noise") == "local" and privacy.get("aggregation") != "secagg"
    )


def _hidden(privacy: dict[str, Any]) -> str:
    """Return what hides the sum of one site."""
    if single_sums_are_seen(privacy):
        if privacy.get("zero_sum") == "gaussian":
            return "noise that cancels only in the total was added to single sums, which are seen."
        return "every site by itself added all the noise its sum needs, so single sums are seen."
    hidden = "single sums are hidden by masks that cancel only in the total."
    if privacy.get("aggregation") == "secagg":
        hidden += (
            f" Sites could drop out; the noise suffices for {privacy['min_survivors']} of "
            f"{privacy['n_sites']}, and {len(privacy['survivors'])} are in the last sum."
        )
    return hidden


def _in_words(privacy: dict[str, Any]) -> tuple[Block, ...]:
    if not privacy["private"]:
        text = (
            "This run is NOT PRIVATE. Its files may reveal data of single subjects. It is meant "
            "for synthetic data, or for comparison at one place that holds all the data."
        )
        return (Text(text=text, tone="warning"),)
    epsilon, colluders = float(privacy["epsilon"]), privacy["assumed_colluders"]
    sites = "1 site" if colluders == 1 else f"{colluders} sites"
    right = 50.0 * math.erfc(-float(privacy["mu"]) / 2.0 / math.sqrt(2.0))
    first = (
        "Compare this run with the same run in which the data of one person were replaced by "
        "those of anybody else. Somebody who sees everything the aggregator sees, knows the "
        f"secrets of up to {sites} and has to guess which of the two took place is right in at "
        f"most {right:.1f} of 100 cases, where tossing a coin gives 50. {_strength(epsilon)}"
    )
    factor = math.exp(min(epsilon, 700.0))
    formal = (
        f"Formally: any outcome is at most {factor:.3g} times as likely in one run as in the "
        f"other (epsilon {display_epsilon(epsilon)}), up to a probability of "
        f"{privacy['delta']:g} (delta)."
    )
    second = (
        f"The unit is {privacy['unit']}; the relation is {privacy['relation']}. Every site added "
        "exact discrete Gaussian noise to sums of clipped whole numbers before anything left it; "
        f"{_hidden(privacy)}"
    )
    blocks: list[Block] = [Text(text=first), Text(text=formal), Text(text=second)]
    if colluders == 0:
        text = "No colluding site is assumed: participating sites are trusted."
        blocks.append(Text(text=text, tone="warning"))
    return tuple(blocks)


def _strength(epsilon: float) -> str:
    """Say what to make of an epsilon, so that a large one does not pass for protection."""
    if epsilon <= 1.0:
        return "That is a strong guarantee."
    if epsilon <= 3.0:
        return "That is a moderate guarantee."
    if epsilon <= 8.0:
        return "That is a limited guarantee: it excludes certainty, not suspicion."
    return "That is a WEAK guarantee: treat the results with nearly the care of the data."


def _views(privacy: dict[str, Any]) -> Grid:
    rows = tuple(
        (
            view["who"] + (" (headline)" if view["headline"] else ""),
            view["sees"],
            _number(view["mu"]),
            display_epsilon(view["epsilon"]),
        )
        for view in privacy["views"]
    )
    caption = f"Guarantee by viewer, at delta {privacy['delta']:g}"
    return Grid(caption=caption, header=("viewer", "sees", "mu", "epsilon"), rows=rows,
                numeric_from=2)  # fmt: skip


def _beyond(privacy: dict[str, Any]) -> tuple[Block, ...]:
    """Say how the guarantee fades if more sites collude than assumed."""
    parts = [
        f"epsilon {display_epsilon(row['epsilon'])} with {row['colluders']} colluding sites"
        for row in privacy["if_more_collude"]
    ]
    if not parts:
        return ()
    text = (
        "If more sites collude than assumed, the guarantee fades but does not vanish: "
        f"{'; '.join(parts)}."
    )
    slack = privacy["lattice_slack"]["epsilon"]
    if slack is not None:
        text += f" That noise and data are whole numbers adds at most {slack:.1g} to any epsilon."
    return (Text(text=text),)


def _by_phase(events: list[dict[str, Any]]) -> Grid:
    """Return one row per phase: what one release looks like, and what the phase cost."""
    total = sum((_mu2(event) for event in events), Fraction(0))
    rows = []
    for phase in dict.fromkeys(event["phase"] for event in events):
        own = [event for event in events if event["phase"] == phase]
        first, last = own[0], own[-1]
        spent = sum((_mu2(event) for event in own), Fraction(0))
        rows.append((
            phase,
            str(len(own)),
            str(first["size"]),
            _range(first["clip"], last["clip"]),
            _range(first["sensitivity"], last["sensitivity"]),
            _range(first["noise_std_share"], last["noise_std_share"]),
            _range(first["noise_std_mean"], last["noise_std_mean"]),
            f"{float(100 * spent / total):.1f} %" if total and last["mu"] is not None else "-",
            _number(last["mu_so_far"]),
            display_epsilon(last["epsilon_so_far"]),
        ))  # fmt: skip
    header = (
        "phase", "releases", "numbers each", "clip", "sensitivity of sum", "noise std, site",
        "noise std, mean", "share of mu²", "mu so far", "epsilon so far",
    )  # fmt: skip
    caption = "Releases by phase, first to last"
    return _without_costs(Grid(caption=caption, header=header, rows=tuple(rows), numeric_from=1))


def _every(events: list[dict[str, Any]]) -> Grid:
    header = (
        "no.", "phase", "round", "numbers", "clip", "sensitivity", "noise std of the mean", "mu",
        "mu so far", "epsilon so far",
    )  # fmt: skip
    rows = tuple(
        (
            str(event["seq"]), event["phase"], str(event["round"]), str(event["size"]),
            _number(event["clip"]), _number(event["sensitivity"]),
            _number(event["noise_std_mean"]), _number(event["mu"]), _number(event["mu_so_far"]),
            display_epsilon(event["epsilon_so_far"]),
        )
        for event in events
    )  # fmt: skip
    grid = Grid(caption="Every release in order", header=header, rows=rows, numeric_from=2)
    return _without_costs(grid)


def _without_costs(grid: Grid) -> Grid:
    """Drop the columns on mu and epsilon of a run that promises nothing."""
    if any(row[-1] != INFINITE for row in grid.rows):
        return grid
    keep = [k for k, name in enumerate(grid.header) if name not in COSTS]
    rows = tuple(tuple(row[k] for k in keep) for row in grid.rows)
    return replace(grid, header=tuple(grid.header[k] for k in keep), rows=rows)


def _mu2(event: dict[str, Any]) -> Fraction:
    return Fraction(event["mu2"]) if event["mu2"] else Fraction(0)


def _number(value: float | None) -> str:
    return INFINITE if value is None else f"{value:.4g}"


def _range(first: float, last: float) -> str:
    texts = f"{first:.3g}", f"{last:.3g}"
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)
