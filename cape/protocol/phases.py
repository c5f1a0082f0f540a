"""The engine: a computation is a table of phases, and a phase has three functions.

In round k every site *answers*, the aggregator *combines*, all parties *absorb* the broadcast:
answer(site, model) -> reply; combine(aggregator, replies, model) -> broadcast, next phase;
absorb(model, broadcast) -> model.  The model is public, frozen and equal bit for bit at all
parties, because all absorb the same broadcasts; it never holds data or keys.  Only the aggregator
opens phases; each site checks the choice against the same table from its own cursor.  All
transitions are checked here; drivers move the bytes and keep time.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from cape.errors import CapeError, ConsortiumError, MessageError, OutOfPhaseError, ProtocolError
from cape.frozen import dataclass
from cape.privacy.ledger import Ledger
from cape.protocol.messages import FORMAT, Cursor, Progress
from cape.protocol.ports import Aggregator, Site
from cape.settings.config import Config

R = TypeVar("R")
B = TypeVar("B")
T = TypeVar("T")


# -- tables -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Attendance:
    """The sites that are asked in a phase, and the fewest of them that must answer."""

    sites: tuple[str, ...]
    least: int


class PublicModel(Protocol):
    """The public state of a run, as the engine uses it."""

    def attendance(self) -> Attendance | None:
        """Return the sites asked in the present phase; None while the sites are not known."""

    def progress(self, config: Config, ledger: Ledger | None, cursor: Cursor) -> Progress:
        """Return the public progress line of a broadcast."""


M = TypeVar("M", bound=PublicModel)


def accept_any_form(model: object, body: object) -> None:
    """Accept any broadcast of the declared type: it holds no array whose shape could vary."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase(Generic[R, B, M]):
    """One row of the protocol: types of reply and broadcast, and the three functions.

    `then` lists the phases that may open next: itself, later ones, or an earlier phase with its
    prefix (`prefix_of`), which begins its next round, so (phase, round) never repeats.  It is empty
    for the last phase, whose `combine` returns None.  `check` raises MessageError for broadcast
    arrays of another shape.  `fold` moves the summed part of the second of two replies into the
    first, so that a gatherer need not hold all replies.
    """

    name: str
    reply: type[R]
    broadcast: type[B]
    answer: Callable[[Site, M], R]
    combine: Callable[[Aggregator, Mapping[str, R], M], tuple[B, str | None]]
    absorb: Callable[[M, B], M]
    then: tuple[str, ...]
    check: Callable[[M, B], None] = accept_any_form
    fold: Callable[[R, R], tuple[R, R]] | None = None

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        """Return itself, as a `TableLine`."""
        return (self,)


AnyPhase = Phase[Any, Any, Any]  # a table is heterogeneous


class TableLine(Protocol):
    """A line of a table: one phase, or several that belong together."""

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        """Return the phases of this line under these settings."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Computation(Generic[M]):
    """A protocol: settings, public model, table.  One file of `cape.computations` each."""

    name: str
    config: type[Config]
    model: type[M]  # its public state; made without arguments before anything was broadcast
    table: tuple[TableLine, ...]
    # The best label that its results may have.  "none": a comparison without a guarantee; it takes
    # ``private=false`` only and its ledger stays empty.
    guarantee: Literal["dp", "none"] = "dp"
    # Refused unless the site's own policy seeds the noise, as in simulations
    # (`cape.papers.computations.dpdjica`)
    simulation_only: bool = False

    def bind(self, config: Config) -> BoundComputation[M]:
        """Return this computation under the settings of a run; ValueError for a wrong table."""
        return _bind(self, config)


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundComputation(Generic[M]):
    """A computation under the settings of one run and process: its phases in order, checked."""

    computation: Computation[M]
    config: Config
    digest: str
    phases: Mapping[str, AnyPhase]

    @property
    def first(self) -> str:
        return next(iter(self.phases))

    @property
    def last(self) -> str:
        return list(self.phases)[-1]


# A service answers all rounds of a run in one process; a simulation runs all parties in one.
@functools.lru_cache(maxsize=16)
def _bind(computation: Computation[M], config: Config) -> BoundComputation[M]:
    rows = [phase for entry in computation.table for phase in entry.phases(config)]
    check_table(rows)
    return BoundComputation(
        computation=computation,
        config=config,
        digest=config.digest(),
        phases=types.MappingProxyType({phase.name: phase for phase in rows}),
    )


def prefix_of(name: str) -> str:
    """Return ``iterate`` for ``iterate.unmask``; phases with one prefix share their rounds."""
    return name.partition(".")[0]


def check_table(rows: list[AnyPhase]) -> None:
    """Raise ValueError unless names are unique, `then` points onward, and each phase is reachable.

    Only the last phase may end the run.
    """
    names = [phase.name for phase in rows]
    if len(set(names)) != len(names):
        raise ValueError(f"phase names repeat: {names}")
    # (phase, round) labels masks and noise streams.  It never repeats in a run, because `then`
    # points onward or to a phase with the same prefix.
    reached = {names[0]}
    for i, phase in enumerate(rows):
        allowed = {*names[i:], *(n for n in names if prefix_of(n) == prefix_of(phase.name))}
        wrong = [name for name in phase.then if name not in allowed]
        if wrong:
            raise ValueError(f"'{phase.name}' may open itself or later phases, not {wrong}")
        reached |= set(phase.then)
        for kind in (phase.reply, phase.broadcast):
            if not dataclasses.is_dataclass(kind):
                raise ValueError(f"messages of '{phase.name}' must be dataclasses")
    if reached != set(names):
        raise ValueError(f"never reached: {sorted(set(names) - reached)}")
    if rows[-1].then or any(not phase.then for phase in rows[:-1]):
        raise ValueError("the last phase, and only the last, ends the run")


# Transcript of a run before its first broadcast
NO_TRANSCRIPT = bytes(32)


# -- one party's state, and the envelope around every message -----------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Generic[M]):
    """A party's state between rounds; `run` is empty until `join` has named it."""

    # `transcript` is a SHA-256 chain over all broadcasts: it is equal at two parties only if both
    # received the same broadcasts from `join` on.  Masks and noise are bound to it.

    bound: BoundComputation[M]
    run: str
    cursor: Cursor
    ledger: Ledger | None
    model: M
    transcript: bytes = NO_TRANSCRIPT
    # This site's own part of the broadcast that it answers; never stored
    own_part: Any = None

    @property
    def config(self) -> Config:
        return self.bound.config

    @property
    def phase(self) -> AnyPhase:
        return self.bound.phases[self.cursor.phase]


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope(Generic[T]):
    """The envelope of every message; a broadcast names the cursor that it opens."""

    v: int
    run: str
    seq: int
    phase: str
    round: int
    config: str
    body: T
    progress: Progress | None = None

    @property
    def cursor(self) -> Cursor:
        """The position of the sender of a reply, or the one that a broadcast opens."""
        return Cursor(seq=self.seq, phase=self.phase, round=self.round)


AnyEnvelope = Envelope[Any]


def start(bound: BoundComputation[M]) -> Run[M]:
    cursor = Cursor(seq=1, phase=bound.first, round=1)
    model = bound.computation.model()
    return Run(bound=bound, run="", cursor=cursor, ledger=None, model=model)


def next_cursor(run: Run[M], name: str) -> Cursor:
    """Return the cursor after phase `name` opens; OutOfPhaseError if it may not open now."""
    here = run.cursor.phase
    if name not in run.phase.then:
        raise _out_of_phase(run, name)
    names = list(run.bound.phases)
    number = run.cursor.round if prefix_of(name) == prefix_of(here) else 0
    # Phases with one prefix keep their round until one of them opens again.
    if number == 0 or names.index(name) <= names.index(here):
        number += 1
    return Cursor(seq=run.cursor.seq + 1, phase=name, round=number)


def without_own_parts(body: T) -> T:
    """Return a broadcast without `addressed`, the parts that are for one site each."""
    if getattr(body, "addressed", None) is None:
        return body
    return replace(body, addressed={})  # type: ignore[type-var]


def extend_transcript(run: Run[M], cursor: Cursor, body_digest: bytes) -> bytes:
    """Return the transcript with one more broadcast, which opens `cursor`."""
    # Progress is excluded: it does not change what is asked.
    head = f"cape/2/told {cursor.seq} {cursor.phase} {cursor.round} ".encode()
    return hashlib.sha256(head + run.transcript + body_digest).digest()


def _out_of_phase(run: Run[M], name: str) -> OutOfPhaseError:
    allowed = list(run.phase.then)
    computation = run.bound.computation.name
    return OutOfPhaseError("E201", computation=computation, phase=name, allowed=allowed)


@contextmanager
def of_public_values() -> Iterator[None]:
    """Turn whatever a site cannot compute from the public model alone into a refusal (E202)."""
    # An aggregator may say anything that has the declared types: phases out of turn, indices past
    # an end, matrices without an inverse.  The aggregator's own errors stay as they are.
    try:
        yield
    except (CapeError, OSError, MemoryError):
        raise
    except Exception as err:
        # Not the class: in `report` it may follow from this site's data.
        problem = "nothing follows from what was told"
        raise MessageError("E202", problem=problem, detail=traceback.format_exc()) from err


def accept(run: Run[M], request: AnyEnvelope, party: Site) -> Run[M]:
    """Return a site's state after absorbing a broadcast.

    This draws, charges and stores nothing.  ProtocolError for another format, run, order, settings
    or shape than the site expects; a refused message leaves the run unchanged.
    """
    if request.seq != run.cursor.seq + 1:
        raise ProtocolError("E205", allowed=run.cursor.seq + 1, got=request.seq)
    cursor = next_cursor(run, request.phase)
    if request.round != cursor.round:
        raise ProtocolError("E205", allowed=f"round {cursor.round}", got=f"round {request.round}")
    # The first broadcast is the roster, and its digest is the name of the run.
    name = run.run or party.digest(request.body)[:16].hex()
    for what, got, own in (
        ("format", request.v, FORMAT),
        ("run", request.run, name),
        ("settings digest", request.config, run.bound.digest),
    ):
        if got != own:
            raise MessageError("E202", problem=f"{what} {got} is not {own}")
    phase = run.phase
    if type(request.body) is not phase.broadcast:
        raise MessageError(
            "E202", problem=f"{phase.name} is answered by {phase.broadcast.__name__}"
        )
    body = without_own_parts(request.body)
    own_part = None if body is request.body else request.body.addressed.get(party.id)
    with of_public_values():
        # All later code relies on these shapes.
        phase.check(run.model, request.body)
        model = phase.absorb(run.model, body)
    return replace(
        run,
        run=name,
        cursor=cursor,
        model=model,
        transcript=extend_transcript(run, cursor, party.digest(body)),
        own_part=own_part,
    )


def respond(run: Run[M], site: Site) -> tuple[Run[M], AnyEnvelope]:
    """Answer the present phase: the first one, or the one that `accept` opened."""
    # A context serves one round; its position and its charges come from the stored state.
    site.cursor, site.ledger, site.transcript = run.cursor, run.ledger, run.transcript
    site.own_part = run.own_part
    phase = run.phase
    # One guard around all arithmetic on people's data: what a single number over- or underflows is
    # neither an error nor a line of a log, whatever settings of the caller's NumPy are.
    with np.errstate(all="ignore"):
        reply = phase.answer(site, run.model)
    # Not isinstance: a subclass could add fields without a checked marker.
    if type(reply) is not phase.reply:
        raise MessageError("E202", problem=f"{phase.name} sends {phase.reply.__name__}")
    run = replace(run, ledger=site.ledger, own_part=None)
    return run, _wrap(run, run.cursor, reply)


def advance_site(
    run: Run[M], request: AnyEnvelope | None, site: Site
) -> tuple[Run[M], AnyEnvelope]:
    """Accept a broadcast (None in the first exchange) and respond."""
    if request is not None:
        run = accept(run, request, site)
    elif run.cursor.seq != 1:
        raise ProtocolError("E205", allowed=run.cursor.seq + 1, got="none")
    return respond(run, site)


def advance_aggregator(
    run: Run[M], inbox: Mapping[str, AnyEnvelope], party: Aggregator
) -> tuple[Run[M], AnyEnvelope, bool]:
    """Combine a round's replies; return state, broadcast, and whether the run ended."""
    phase = run.phase
    _agree(run, inbox)
    # Before anything is combined, so that no sum is silently smaller
    _check_attendance(run.cursor, run.model.attendance(), frozenset(inbox))
    party.cursor, party.ledger, party.transcript = run.cursor, run.ledger, run.transcript
    # COINSTAC lists sites in order of arrival; a float sum depends on that order.
    replies = {site: inbox[site].body for site in sorted(inbox, key=str.encode)}
    for site, reply in replies.items():
        if type(reply) is not phase.reply:
            raise MessageError("E202", problem=f"site {site} must send {phase.reply.__name__}")
    body, name = phase.combine(party, replies, run.model)
    if type(body) is not phase.broadcast:
        raise MessageError("E202", problem=f"{phase.name} answers {phase.broadcast.__name__}")
    run = replace(run, run=run.run or party.digest(body)[:16].hex(), ledger=party.ledger)
    if name is None:
        if phase.then:
            raise _out_of_phase(run, "end")
        return run, _wrap(run, run.cursor, body), True
    cursor = next_cursor(run, name)
    transcript = extend_transcript(run, cursor, party.digest(without_own_parts(body)))
    model = phase.absorb(run.model, without_own_parts(body))
    run = replace(run, cursor=cursor, model=model, transcript=transcript)
    release = replace(cursor, phase=prefix_of(name))  # names the planned releases
    progress = run.model.progress(run.config, run.ledger, release)
    return run, replace(_wrap(run, cursor, body), progress=replace(progress, phase=name)), False


def _wrap(run: Run[M], cursor: Cursor, body: T) -> Envelope[T]:
    return Envelope(
        v=FORMAT,
        run=run.run,
        seq=cursor.seq,
        phase=cursor.phase,
        round=cursor.round,
        config=run.bound.digest,
        body=body,
    )


def _check_attendance(
    cursor: Cursor, attendance: Attendance | None, present: frozenset[str]
) -> None:
    """Raise ConsortiumError if too few of those that were asked answered, or another site."""
    if attendance is None:
        return
    expected = frozenset(attendance.sites)
    lost, strange = expected - present, present - expected
    if lost and len(expected & present) < attendance.least:
        raise ConsortiumError("E156", site=min(lost), phase=cursor.phase, round=cursor.round)
    if strange:
        raise ConsortiumError("E204", field="list of sites", sites=f"{min(strange)} was not asked")


def _agree(run: Run[M], inbox: Mapping[str, AnyEnvelope]) -> None:
    """Raise ConsortiumError unless all sites answer the same exchange of the same run."""
    expected = [
        ("format", "v", FORMAT),
        ("run", "run", run.run),
        ("seq", "seq", run.cursor.seq),
        ("phase", "phase", run.cursor.phase),
        ("round", "round", run.cursor.round),
    ]
    # In the first exchange `join` compares settings itself, because it can name the setting.
    if run.run:
        expected.append(("settings digest", "config", run.bound.digest))
    for field, attribute, own in expected:
        got = {site: getattr(inbox[site], attribute) for site in sorted(inbox, key=str.encode)}
        wrong = [f"{site} {value}" for site, value in got.items() if value != own]
        if wrong:
            sites = ", ".join([*wrong, f"expected {own}"])
            raise ConsortiumError("E204", field=field, sites=sites)
