"""An aggregator that lies: it sends sites other broadcasts than the protocol makes.

The sites are real (`advance_site`, policy, ledger); only what they are told is false.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cape.protocol.model import Roster, RosterEntry
from cape.protocol.phases import AnyEnvelope, advance_aggregator, advance_site
from cape.protocol.wire import digest
from cape.settings.config import Config
from cape.site.context import AggregatorContext
from support import tiny

FALSE = "zz-false"


def told(link: Any, site: str, **body: Any) -> AnyEnvelope:
    """Return what a site answers to the last broadcast with another body; its state moves on."""
    # The run is named as the site will name it, so that no site refuses a name.
    told = replace(link._request.body, **body)
    own = link._runs[site].run or digest(told)[:16].hex()
    request = replace(link._request, body=told, run=own)
    party = link._parties[site]
    link._runs[site], answer = advance_site(link._runs[site], request, party)
    return replace(answer, run=link._state.run)


def told_all(link: Any) -> dict[str, AnyEnvelope]:
    return {site: told(link, site) for site in link._parties}


def combine(link: Any, inbox: Mapping[str, AnyEnvelope]) -> None:
    """Let the aggregator do as the protocol says with these replies."""
    party = AggregatorContext(config=link._config, kept=link._kept)
    link._state, link._request, _ = advance_aggregator(link._state, inbox, party)


def pretend(link: Any, inbox: Mapping[str, AnyEnvelope]) -> None:
    """Go on after the probe, whose sum is not zero, as if it were: with replies that cancel."""
    first, *others = inbox
    size = len(inbox[first].body.total)
    made = {site: np.full(size, 1, dtype=np.uint64) for site in others}
    made[first] = np.zeros(size, dtype=np.uint64) - sum(made.values())
    combine(link, {s: replace(e, body=replace(e.body, total=made[s])) for s, e in inbox.items()})


def invented(n: int, *, n_subjects: int = 3) -> list[RosterEntry]:
    """Return roster entries of sites that do not exist; they sort behind the real ones."""
    return [
        RosterEntry(site=f"{FALSE}{i:04d}", nonce=f"{i:032x}", n_subjects=n_subjects)
        for i in range(n)
    ]


def roster_of(link: Any, entries: Sequence[RosterEntry], *, config: Config | None = None) -> Roster:
    """Return the roster that `join` would have made of these sites: plan, colluders, survivors."""
    # It carries the digest of the real settings, whatever `config` it was computed for.
    own = config or link._config
    S, M = len(entries), sum(entry.n_subjects for entry in entries)
    return replace(
        link._state.model.roster,
        sites=tuple(entries),
        config=link._config.digest(),
        colluders=own.colluders(S),
        survivors=own.survivors(S),
        plan=tiny.make_run_plan(own, S, M, link._state.model.roster.space).releases,
    )


def body_of(roster: Roster, *names: str) -> dict[str, Any]:
    """Return the fields of a roster that a false one replaces."""
    chosen = names or ("sites", "config", "colluders", "survivors", "plan")
    return {name: getattr(roster, name) for name in chosen}
