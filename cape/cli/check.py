"""Recompute what privacy.json claims from the integers of its releases.

The check trusts nothing in the file but the integers (clip, sensitivity, noise variance, shares,
delta): mu of every release, the sensitivity that its clip allows, the sums and every epsilon are
computed again, exactly, and the claims are compared with them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cape.cli.privacy_file import privacy_document
from cape.errors import CapeError
from cape.frozen import dataclass
from cape.privacy.cost import FREE, Cost, Noise, total_cost
from cape.privacy.event import Event
from cape.privacy.mechanisms import verify_event

# Relative; a claim below the recomputed figure by more is a finding.
TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """One file, recomputed.

    Attributes
    ----------
    path : str
        The file.
    private : bool
        Whether the file promises anything.
    cost : Cost
        Of all its releases, against the headline viewer.
    delta : float
        Total delta of the file.
    epsilon : float
        What its releases give at this delta.
    claimed : float or None
        What the file says, of the plan, which may be more.
    findings : tuple of str
        Claims that the recomputed figures contradict.
    run : str
        Fingerprint of the roster, which no other run has; empty if the file has none.
    """

    path: str
    private: bool
    cost: Cost
    delta: float
    epsilon: float
    claimed: float | None
    findings: tuple[str, ...]
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Together:
    """Several runs on the same subjects.

    Attributes
    ----------
    runs : int
        How many that promise something, every one counted once.
    epsilon, delta : float or None
        Of all of them, at the smallest of their deltas as in a site's ledger; None without any.
    same : mapping of int to str
        Position of a file -> path of an earlier file of the same run, which is counted.
    """

    runs: int
    epsilon: float | None
    delta: float | None
    same: Mapping[int, str]


def check_file(path: Path) -> Checked:
    """Return the recomputed figures of a privacy.json.

    Raises
    ------
    ConfigError
        If it is not such a file.
    """
    with privacy_document(path) as document:
        return _check(str(path), document)


def together(files: Sequence[Checked]) -> Together:
    """Return the figures of several runs on the same subjects."""
    first: dict[tuple[object, ...], str] = {}
    same: dict[int, str] = {}
    counted = []
    for i, file in enumerate(files):
        key = (file.run, file.cost, file.delta) if file.run else (i,)
        if key in first:
            same[i] = first[key]
        elif file.private:
            counted.append(file)
        first.setdefault(key, file.path)
    if not counted:
        return Together(runs=0, epsilon=None, delta=None, same=same)
    delta = min(file.delta for file in counted)
    epsilon = total_cost(file.cost for file in counted).epsilon(delta)
    return Together(runs=len(counted), epsilon=epsilon, delta=delta, same=same)


def _check(path: str, document: Mapping[str, Any]) -> Checked:
    if document["schema"] != "cape-privacy-1":
        raise ValueError(f"schema {document['schema']!r}")
    private, delta, claimed = document["private"], float(document["delta"]), document["epsilon"]
    if type(private) is not bool or not isinstance(claimed, int | float | None):
        raise TypeError("private or epsilon")
    claimed = None if claimed is None else float(claimed)
    run = str(document.get("roster_fingerprint", ""))
    findings: list[str] = []
    if not private:
        if claimed is not None or document["guarantee"] != "none":
            findings.append("a run without a promise claims an epsilon")
        return Checked(
            path=path,
            private=False,
            cost=FREE,
            delta=delta,
            epsilon=math.inf,
            claimed=claimed,
            findings=tuple(findings),
            run=run,
        )
    costs: list[Cost] = []
    rounds: set[tuple[str, int, str]] = set()
    for row in document["events"]:
        event = _event(row)
        if (key := (event.phase, event.round, event.field)) in rounds:
            findings.append(f"{event.name} is listed twice")
        rounds.add(key)
        findings += _event_findings(event, row)
        if event.private:  # one without noise is a finding already
            costs.append(event.cost)
    total = total_cost(costs)
    epsilon = total.epsilon(delta) or 0.0
    findings += _below("epsilon", claimed, epsilon)
    findings += _below("epsilon_spent", document["budget"]["epsilon_spent"], epsilon)
    findings += _view_findings(document, total, delta)
    return Checked(
        path=path,
        private=True,
        cost=total,
        delta=delta,
        epsilon=epsilon,
        claimed=claimed,
        findings=tuple(findings),
        run=run,
    )


def _event(row: Mapping[str, Any]) -> Event:
    return Event(
        phase=row["phase"],
        round=row["round"],
        field=row["field"],
        shape=row["shape"],
        size=row["size"],
        log2_gamma=row["log2_gamma"],
        clip_int=row["clip_int"],
        delta_int=row["delta_int"],
        variance=int(row["s2"]),
        shares=row["shares"],
        seed_ratio=row.get("seed_ratio", 0),
    )


def _event_findings(event: Event, row: Mapping[str, Any]) -> list[str]:
    """Check one release: noise at all, the sensitivity of its clip, the stated mu^2."""
    if not event.private:
        return [f"{event.name} carries no noise"]
    found = []
    try:
        verify_event(event, (event.clip_int + 0.5) / event.gamma)
    except CapeError as err:
        found.append(str(err.fields.get("problem", err)))
    if Cost.parse(row["mu2"]) != event.cost:
        found.append(f"{event.name}: mu2 is {row['mu2']}, its integers give {event.cost}")
    return found


def _view_findings(document: Mapping[str, Any], total: Cost, delta: float) -> list[str]:
    """Compare the figure of every viewer with what this viewer cannot subtract."""
    t = int(document["min_survivors"])
    h = t - int(document["assumed_colluders"])
    if any(event["shares"] != h for event in document["events"]) and document["noise"] != "local":
        return [f"releases are not calibrated for {h} noise shares"]
    noise: Noise = "local" if document["noise"] == "local" else "correlated"
    by_viewer = total.by_viewer(noise_shares=h, n_sites=t, noise=noise)
    found = []
    for view in document["views"]:
        least = by_viewer[view["key"]].epsilon(delta) or 0.0
        found += _below(f"epsilon of {view['key']}", view["epsilon"], least)
    return found


def _below(name: str, claimed: float | None, least: float) -> list[str]:
    if claimed is None:
        return [f"{name} is missing"]
    if not claimed >= least * (1.0 - TOLERANCE):  # NaN is no claim
        return [f"{name} is claimed as {claimed:.6g}, the releases give {least:.6g}"]
    return []
