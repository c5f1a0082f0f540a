"""Sizes of a run's messages and states in bytes, and the number of sites that fit.

A party's share grows at most in proportion to S, with two exceptions.  The sealed shares of all
sites pass the aggregator once (S k of them).  Every state holds the keys of all S sites and the
list of survivors.  `join` refuses a run whose messages are too large, before any charge.
Measured up to 500 sites: docs/results.md.
"""

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.privacy.cost import Event
from cape.privacy.ledger import by_exchange
from cape.protocol import wire
from cape.protocol.droppable_sum import EXTRA_SETS
from cape.protocol.messages import KeyAdvertisement
from cape.protocol.model import TRACE_ROW, RosterEntry, signs
from cape.secagg.graph import GraphPlan, plan_graph
from cape.secagg.keys import KEY_BYTES
from cape.secagg.shamir import SHARE_BYTES
from cape.secagg.steps import PAIR_BYTES, SET_BYTES
from cape.settings.config import Config

# Bytes of a site's name with its JSON signs; longer names count as this
NAME_BYTES: Final = 24
# Bytes of the envelope, of JSON signs and of the other fields of an answer
HEAD_BYTES: Final = 600
# Largest S that `breaks_first` tries
MAX_SITES: Final = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """Exchanges of one kind: their number, bytes of one reply, bytes that one site receives."""

    phase: str
    exchanges: int
    reply: int
    told: int


_Row = tuple[str, int, int, int]  # the fields of `Traffic`


@dataclass(frozen=True, kw_only=True, slots=True)
class Weight:
    """Sizes of a run at S sites, bytes."""

    n_sites: int
    traffic: tuple[Traffic, ...]
    vector: int  # the longest, as 8-byte integers
    state: int  # of a party, at the end of the run
    document: int  # the longest with the replies of all sites; 0 with drop-outs
    broadcast: int  # the longest to one site, with the addressed parts that the engine sends it
    site_memory: int  # messages, vectors and secrets held at once, beside program and data
    aggregator_memory: int
    graph: GraphPlan | None  # partners of the sites; None: all pairs

    def limits(self) -> tuple[tuple[str, int, int], ...]:
        """Return (name, size, limit) of every limited size, bytes."""
        # With drop-outs replies arrive one by one.  If an engine joins them, the broadcast of
        # their content is the tighter limit.
        replies = ("the replies of all sites in one exchange", self.document, wire.MAX_DOCUMENT)
        return (
            ("the state of a party", self.state, wire.MAX_STATE),
            *((replies,) if self.document else ()),
            ("one broadcast", self.broadcast, wire.MAX_ANSWER),
            ("one vector", self.vector, wire.MAX_ARRAY),
        )


def weight_of(
    config: Config, events: Sequence[Event], n_sites: int, n_basis: int, *, addresses: bool = True
) -> Weight:
    """Return the sizes of a run of these releases at S sites, from the messages it would send."""
    # `addresses` as in `cape.protocol.ports.Aggregator`; it is true in all our engines in which
    # sites may drop out.
    secagg = config.aggregation == "secagg"
    n_releases, rounds = len(events), by_exchange(events)
    # The vectors of a round travel as one.
    vectors = [(phase, sum(e.size for e in of_round)) for (phase, _), of_round in rounds.items()]
    longest = max((size for _, size in vectors), default=0)
    # Released values: a few matrices of n_basis rows; of a comparison all that is released.
    numbers = 3 * n_basis * int(getattr(config, "n_components", 1))
    if config.question is not None:
        numbers = sum(event.size for event in events)
    released = _text(8 * numbers)
    entry = _size(RosterEntry(site="", nonce="0" * 32, n_subjects=10**6)) + NAME_BYTES + 1
    # Settings; a letter per release in the ledger; a row and a letter per round in the trace.
    trace = len(rounds) + _text(TRACE_ROW.size * len(rounds))
    own = _settings(config) + n_releases + trace + 2 * HEAD_BYTES
    # Uncompressed, as sent; a state holds it compressed, to a fifth if sites are few.
    roster = n_sites * entry + sum(_size(event) + 1 for event in events) + HEAD_BYTES
    traffic: list[_Row] = [("join", 1, 2 * HEAD_BYTES + _settings(config), roster)]
    if secagg:
        graph = plan_graph(n_sites, config.survivors(n_sites), config.colluders(n_sites))
        partners = n_sites - 1 if graph is None else graph.neighbours
        sets = len(rounds) + EXTRA_SETS
        keys = _advertisement(KEY_BYTES + SET_BYTES * sets) + NAME_BYTES
        own_part = partners * (_text(PAIR_BYTES * sets + 16) + NAME_BYTES + 6)
        opened = (partners + 1) * (_text(SHARE_BYTES) + NAME_BYTES + 6) + HEAD_BYTES
        names, signed = n_sites * (NAME_BYTES + 3), n_sites * (_text(64) + NAME_BYTES + 6)
        taken = n_sites * (len(str(len(rounds))) + 1)
        state = roster + n_sites * (keys + 67) + names * 3 + signed + taken + released + own
        book = n_sites * (own_part + NAME_BYTES + 6) + names
        sums = len(rounds) + 1
        traffic += [
            ("zero-sum", 1, keys + HEAD_BYTES, n_sites * keys + HEAD_BYTES),
            ("zero-sum.shares", 1, own_part + HEAD_BYTES, own_part + names),
            *_releases(vectors, told=names + HEAD_BYTES),
            ("*.consistency", sums, HEAD_BYTES, signed + HEAD_BYTES),
            ("*.unmask", sums, opened, released + HEAD_BYTES),
        ]
        document = 0
        # Keys of all sites, shares of the partners (sealed and decoded), the document of a state.
        site_memory = 3 * (n_sites * keys + own_part) + 3 * state + 4 * 8 * longest
        aggregator_memory = max(3 * book, n_sites * opened) + 3 * state + 6 * 8 * longest
        broadcast = max(own_part + names if addresses else book, n_sites * keys) + HEAD_BYTES
    else:
        graph = None
        key = 67 + (67 + 131 + 131 if signs(config) else 0)
        state = roster + n_sites * key + released + own
        traffic += [
            ("zero-sum", 1, key + HEAD_BYTES, n_sites * key + HEAD_BYTES),
            ("zero-sum.probe", 1, HEAD_BYTES, HEAD_BYTES),
            *_releases(vectors, told=released + HEAD_BYTES),
        ]
        # Longer vectors travel as files.
        inline = min(wire.MAX_TEXT, wire.ALL_INLINE // n_sites)
        inside = max((8 * size for _, size in vectors if 8 * size <= inline), default=0)
        document = n_sites * (_text(inside) + HEAD_BYTES)
        # x, x with noise, the masked vector and its text.
        site_memory = 3 * state + n_sites * (NAME_BYTES + 80) + 5 * 8 * longest
        # The running sum, one reply and its text, the other fields of all replies.
        aggregator_memory = 3 * state + document + 6 * 8 * longest
        broadcast = max(roster, n_sites * key, released) + HEAD_BYTES
    return Weight(
        n_sites=n_sites,
        traffic=tuple(
            Traffic(phase=p, exchanges=n, reply=r, told=told) for p, n, r, told in traffic
        ),
        vector=8 * longest,
        state=state,
        document=document,
        broadcast=broadcast,
        site_memory=site_memory,
        aggregator_memory=aggregator_memory,
        graph=graph,
    )


def check_weight(
    config: Config, events: Sequence[Event], n_sites: int, n_basis: int, *, addresses: bool = True
) -> Weight:
    """Return the sizes of a run; ConfigError (E145), with remedies, if one exceeds its limit."""
    weigh = functools.partial(weight_of, addresses=addresses)
    weight = weigh(config, events, n_sites, n_basis)
    for what, got, allowed in weight.limits():
        if got > allowed:
            remedies = ", or ".join(_remedies(weigh, config, events, n_sites, n_basis))
            raise ConfigError(
                "E145",
                setting=f"{what} at {n_sites} sites",
                got=f"{got / 2**20:.1f} MiB",
                allowed=f"{allowed / 2**20:g} MiB",
                do=f"{remedies or 'ask for less'}.",
            )
    return weight


def _remedies(
    weigh: Callable[..., Weight],
    config: Config,
    events: Sequence[Event],
    n_sites: int,
    n_basis: int,
) -> Iterator[str]:
    """Yield changes of the settings, each of which alone makes the run fit."""

    def fits(d: int = n_basis, *, sites: int = n_sites, n: int = len(events), **more: Any) -> bool:
        # In a smaller basis the vector of the subspace is shorter; other releases do not change.
        shorter = [replace(e, size=min(e.size, d * (d + 3) // 2)) for e in events[:n]]
        limits = weigh(replace(config, **more), shorter, sites, d).limits()
        return all(got <= allowed for _, got, allowed in limits)

    if config.aggregation == "secagg":
        # A graph exists only if few sites may be lost and few may collude.
        colluders, lost = config.colluders(n_sites), n_sites - config.survivors(n_sites)
        c = _largest(lambda c: fits(assumed_colluders=c), 1, colluders - 1)
        away = _largest(lambda away: fits(min_survivors=n_sites - away), 1, lost - 1)
        if c:
            yield f"lower assumed_colluders to {c}"
        if away:
            yield f"raise min_survivors to {n_sites - away}"
        few = min(lost, n_sites // 10)
        both = {"min_survivors": n_sites - few}
        if few and not (c or away):
            if c := _largest(lambda c: fits(assumed_colluders=c, **both), 1, colluders):
                yield f"lower assumed_colluders to {c} with min_survivors={n_sites - few}"
    if d := _largest(fits, int(getattr(config, "n_components", 1)), n_basis - 1):
        yield f"lower n_basis to {d}"
    least = max(2, config.min_survivors, config.assumed_colluders + 2)
    rounds = int(getattr(config, "n_rounds", 0))
    if n := _largest(lambda n: fits(n=n), len(events) - rounds + 1, len(events) - 1):
        yield f"lower n_rounds to {rounds - len(events) + n}"
    if sites := _largest(lambda n: fits(sites=n), least, n_sites - 1):
        yield f"take at most {sites} sites"


def _largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest n in low..high that fits, 0 if none does; smaller n fit too."""
    if low > high or not fits(low):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def breaks_first(
    config: Config, events: Sequence[Event], n_sites: int, n_basis: int
) -> tuple[int, str]:
    """Return the least S up to `MAX_SITES` at which a size exceeds its limit, and its name."""
    # (0, "") if there is none.

    def broken(n: int) -> str:
        limits = weight_of(config, events, n, n_basis).limits()
        return next((what for what, got, allowed in limits if got > allowed), "")

    low, high = n_sites, n_sites
    while not broken(high):
        if high >= MAX_SITES:
            return 0, ""
        low, high = high, min(2 * high, MAX_SITES)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if broken(middle) else (middle, high)
    return high, broken(high)


def _releases(vectors: Sequence[tuple[str, int]], *, told: int) -> list[_Row]:
    counted = Counter(vectors).items()
    return [(phase, n, _text(8 * size) + HEAD_BYTES, told) for (phase, size), n in counted]


def _text(n_bytes: int) -> int:
    return 4 * -(-n_bytes // 3)


def _size(record: Any) -> int:
    return len(wire.dumps(wire.encode(record, type(record))))


def _settings(config: Config) -> int:
    # Settings travel as text.
    return len(wire.dumps(wire.dumps(config.settings()).decode("ascii")))


def _advertisement(n_bytes: int) -> int:
    sample = KeyAdvertisement(
        keys=bytes(n_bytes), identity_key=bytes(32), signature=bytes(64), opening=bytes(32)
    )
    return _size(sample)
