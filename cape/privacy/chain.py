"""The written form of a ledger: entries for JSON, each chained to the one before by SHA-256.

An entry holds everything that its mu^2 follows from, as integers, and the digest of the entry
before it; so a changed, dropped or reordered entry is seen, by anybody, without the run.  A cut
end is seen only by who knows the head digest from elsewhere.  No I/O here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

from cape.errors import ConfigError, PrivacyBudgetError
from cape.privacy.event import Event, Shape

Entry = dict[str, object]

GENESIS: Final = hashlib.sha256(b"cape/1/ledger").hexdigest()
"""Digest that the first entry is chained to."""

VIEW: Final = "aggregator and assumed colluders"
UNIT: Final = "subject"


def write_entries(events: Sequence[Event]) -> tuple[Entry, ...]:
    """Return the entries of charged releases for JSON, in order.

    Keys: seq (from 1), prev_digest, release, phase, round, field, kind, d, log2_gamma, C_int,
    Delta_int, s2, h, mu2 ("p/q" in lowest terms, or "infinite"), view, unit; with
    Gaussian zero-sum noise also seed_ratio.
    """
    entries, head = [], GENESIS
    for seq, event in enumerate(events, start=1):
        entries.append(_entry(seq, head, event))
        head = _link(seq, head, event)
    return tuple(entries)


def read_entries(
    entries: Sequence[Mapping[str, object]], *, head: str | None = None
) -> tuple[Event, ...]:
    """Check a chain of entries read back from JSON and return its events.

    Every number, name and digest is computed anew and must be equal.

    Parameters
    ----------
    entries : sequence of mapping
        In order, as made by `write_entries`.
    head : str or None
        Digest of the last entry, if known from elsewhere; without it a cut end is not seen.

    Raises
    ------
    PrivacyBudgetError
        If an entry does not follow from the one before it.
    """
    events: list[Event] = []
    digest = GENESIS
    for seq, entry in enumerate(entries, start=1):
        try:
            event = _event(entry)
        except (KeyError, TypeError, ConfigError):
            raise _broken(seq) from None
        if dict(entry) != _entry(seq, digest, event):
            raise _broken(seq)
        events.append(event)
        digest = _link(seq, digest, event)
    if head is not None and head != digest:
        raise _broken(len(events) + 1)
    return tuple(events)


def chain_head(events: Sequence[Event]) -> str:
    """Return the digest of the last entry; `GENESIS` without events."""
    head = GENESIS
    for seq, event in enumerate(events, start=1):
        head = _link(seq, head, event)
    return head


def _entry(seq: int, prev_digest: str, event: Event) -> Entry:
    entry: Entry = {
        "seq": seq,
        "prev_digest": prev_digest,
        "release": event.name,
        "phase": event.phase,
        "round": event.round,
        "field": event.field,
        "kind": event.shape,
        "d": event.size,
        "log2_gamma": event.log2_gamma,
        "C_int": event.clip_int,
        "Delta_int": event.delta_int,
        "s2": event.variance,
        "h": event.shares,
        "mu2": str(event.cost),
        "view": VIEW,
        "unit": UNIT,
    }
    if event.seed_ratio:
        entry["seed_ratio"] = event.seed_ratio
    return entry


def _event(entry: Mapping[str, object]) -> Event:
    """Read the event of an entry; `Event` itself checks the types."""
    return Event(
        phase=cast(str, entry["phase"]),
        round=cast(int, entry["round"]),
        field=cast(str, entry["field"]),
        shape=cast(Shape, entry["kind"]),
        size=cast(int, entry["d"]),
        log2_gamma=cast(int, entry["log2_gamma"]),
        clip_int=cast(int, entry["C_int"]),
        delta_int=cast(int, entry["Delta_int"]),
        variance=cast(int, entry["s2"]),
        shares=cast(int, entry["h"]),
        seed_ratio=cast(int, entry.get("seed_ratio", 0)),
    )


@lru_cache(maxsize=65536)
def _link(seq: int, prev_digest: str, event: Event) -> str:
    """Return SHA-256 of the canonical JSON of an entry (kept: every charge asks for all)."""
    text = json.dumps(_entry(seq, prev_digest, event), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _broken(seq: int) -> PrivacyBudgetError:
    problem = f"entry {seq} is missing, changed or out of place"
    return PrivacyBudgetError("E235", problem=problem, do="do not rely on this ledger.")
