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

# Digest that the first entry is chained to
GENESIS: Final = hashlib.sha256(b"cape/1/ledger").hexdigest()

# Written into every entry, so that it says what it means without this program.
_VIEW: Final = "aggregator and assumed colluders"
_UNIT: Final = "subject"


def write_entries(events: Sequence[Event]) -> tuple[Entry, ...]:
    """Entries of charged releases for JSON, in order.

    Keys: seq (from 1), prev_digest, release, phase, round, field, kind, d, log2_gamma, C_int,
    Delta_int, s2, h, mu2 ("p/q" in lowest terms, or "infinite"), view, unit; with
    Gaussian zero-sum noise also seed_ratio.
    """
    entries, head = [], GENESIS
    for seq, event in enumerate(events, start=1):
        entries.append(_entry(seq, head, event))
        head = next_head(head, seq, event)
    return tuple(entries)


def read_entries(
    entries: Sequence[Mapping[str, object]], *, head: str | None = None
) -> tuple[Event, ...]:
    """Check a chain of entries read back from JSON and give its events.

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
        # Not key by key: whatever the writer would not write (another mu2, a key more) is damage.
        if dict(entry) != _entry(seq, digest, event):
            raise _broken(seq)
        events.append(event)
        digest = next_head(digest, seq, event)
    if head is not None and head != digest:
        raise _broken(len(events) + 1)
    return tuple(events)


def chain_head(events: Sequence[Event]) -> str:
    """Digest of the last entry; `GENESIS` without events."""
    head = GENESIS
    for seq, event in enumerate(events, start=1):
        head = next_head(head, seq, event)
    return head


@lru_cache(maxsize=65536)  # every charge asks for the digests of all that went before
def next_head(prev_digest: str, seq: int, event: Event) -> str:
    """SHA-256 of the canonical JSON of the entry that follows `prev_digest`."""
    text = json.dumps(_entry(seq, prev_digest, event), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _entry(seq: int, prev_digest: str, event: Event) -> Entry:
    # Written ledgers must stay readable: a change here is a new version of the entry.
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
        "view": _VIEW,
        "unit": _UNIT,
    }
    if event.seed_ratio:
        entry["seed_ratio"] = event.seed_ratio
    return entry


def _event(entry: Mapping[str, object]) -> Event:
    # The casts claim nothing: `Event` itself checks the types of all it is given.
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


def _broken(seq: int) -> PrivacyBudgetError:
    problem = f"entry {seq} is missing, changed or out of place"
    return PrivacyBudgetError("E235", problem=problem, do="do not rely on this ledger.")
