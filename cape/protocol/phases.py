"""The engine: a computation is a table of phases, and a phase is three verbs.

In round k every site *answers*, the aggregator *combines*, everybody *absorbs* the broadcast:
answer(site, model) -> reply; combine(aggregator, replies, model) -> broadcast, next phase;
absorb(model, broadcast) -> model.  The model is public, frozen and the same bit for bit at all
parties, because all fold the same broadcasts; data and keys are never in it.  Only the aggregator
opens phases; each site checks the choice against the same table from its own cursor.  Only here are
transitions checked; bytes and clocks are the drivers'.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from cape.errors import ConsortiumError, MessageError, OutOfPhaseError, ProtocolError
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
    """Who is asked in a phase, and the fewest sites that must answer."""

    sites: tuple[str, ...]
    least: int


class PublicModel(Protocol):
    """What the engine asks of the public state of a run."""

    def attendance(self) -> Attendance | None:
        """Return who is asked in the present phase; None: the sites are not known yet."""

    def progress(self, config: Config, ledger: Ledger | None, cursor: Cursor) -> Progress:
        """Return the public line of a broadcast: where the run is and what it has spent."""


M = TypeVar("M", bound=PublicModel)


def accept_any_form(model: object, body: object) -> None:
    """Take a broadcast as its type declares it: nothing in it has a shape of its own."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase(Generic[R, B, M]):
    """One row of the protocol: what a site sends, what the aggregator answers, the three verbs.

    `then` lists what may open next: itself, later phases, or an earlier phase of the same stage
    (`stage_of`), which begins its next round, so (phase, round) never repeats; empty for the last,
    whose `combine` returns None.  `check` raises MessageError for broadcast arrays of another form.
    `fold` moves what only counts as a sum from the second of two replies into the first: who
    gathers replies need not hold them all.
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
        """Return itself: a phase is a line of a table."""
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
    # What its results may be labelled at best.  "none": a comparison that protects nobody, or not
    # as its authors meant it; it takes ``private=false`` only and its ledger stays empty.
    guarantee: Literal["dp", "none"] = "dp"
    # Refused at every site whose noise is not seeded by its own policy, which only simulations have
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


# A service answers all rounds of a run in one process, a simulation plays all parties in one.
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


def stage_of(name: str) -> str:
    """Return the stage of a phase: ``iterate`` of ``iterate.unmask``.  Its phases share rounds."""
    return name.partition(".")[0]


def check_table(rows: list[AnyPhase]) -> None:
    """Raise ValueError unless names are unique, `then` points onward, all is reached, last ends."""
    names = [phase.name for phase in rows]
    if len(set(names)) != len(names):
        raise ValueError(f"phase names repeat: {names}")
    # (phase, round) never repeats in a run, because `then` points onward or within the stage:
    # masks and noise streams are labelled by it.
    reached = {names[0]}
    for i, phase in enumerate(rows):
        own = [n for n in names if stage_of(n) == stage_of(phase.name)]
        wrong = [n for n in phase.then if n not in names[i:] and n not in own]
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


# Of a run in which nothing was broadcast
NO_TRANSCRIPT = bytes(32)


# -- one party's state, and the envelope around every message -----------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Run(Generic[M]):
    """All that a party carries from round to round; `run` is empty until `join` has named it.

    `transcript` is a chain of SHA-256 over all broadcasts: equal at two parties only if they were
    told the same from `join` on.  Masks and noise are bound to it.
    """

    bound: BoundComputation[M]
    run: str
    cursor: Cursor
    ledger: Ledger | None
    model: M
    transcript: bytes = NO_TRANSCRIPT
    # What the broadcast that is being answered holds for this site alone: part of no stored state
    own_part: Any = None

    @property
    def config(self) -> Config:
        return self.bound.config

    @property
    def phase(self) -> AnyPhase:
        return self.bound.phases[self.cursor.phase]


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope(Generic[T]):
    """What is wrapped around every message; a broadcast names the cursor that it opens."""

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
        """Where the sender of a reply stands, or where a broadcast sends the sites."""
        return Cursor(seq=self.seq, phase=self.phase, round=self.round)


AnyEnvelope = Envelope[Any]


def start(bound: BoundComputation[M]) -> Run[M]:
    cursor = Cursor(seq=1, phase=bound.first, round=1)
    model = bound.computation.model()
    return Run(bound=bound, run="", cursor=cursor, ledger=None, model=model)


def next_cursor(run: Run[M], name: str) -> Cursor:
    """Return the cursor after phase `name` opens, or raise OutOfPhaseError naming what may open."""
    here = run.cursor.phase
    if name not in run.phase.then:
        raise _out_of_phase(run, name)
    names = list(run.bound.phases)
    within = run.cursor.round if stage_of(name) == stage_of(here) else 0
    # A stage of several phases keeps its round until one of them opens again.
    again = within + 1 if within == 0 or names.index(name) <= names.index(here) else within
    return Cursor(seq=run.cursor.seq + 1, phase=name, round=again)


def without_own_parts(body: T) -> T:
    """Return what a broadcast tells everybody: without `addressed`, parts for one site each."""
    if getattr(body, "addressed", None) is None:
        return body
    return replace(body, addressed={})  # type: ignore[type-var]


def extend_transcript(run: Run[M], cursor: Cursor, body_digest: bytes) -> bytes:
    """Return the transcript with one broadcast more, which opens `cursor`.

    Of what is absorbed: what only people read (`Progress`) makes no other question.
    """
    head = f"cape/2/told {cursor.seq} {cursor.phase} {cursor.round} ".encode()
    return hashlib.sha256(head + run.transcript + body_digest).digest()


def _out_of_phase(run: Run[M], name: str) -> OutOfPhaseError:
    allowed = list(run.phase.then)
    computation = run.bound.computation.name
    return OutOfPhaseError("E201", computation=computation, phase=name, allowed=allowed)


def accept(run: Run[M], request: AnyEnvelope, party: Site) -> Run[M]:
    """Return a site's state after absorbing a broadcast; refuses whatever does not follow on.

    Draws, charges and stores nothing.  ProtocolError, nothing changed, for another format, run,
    order, settings or form than the site's own: a message that does not belong here ends nothing.
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
    # Last before it is absorbed: a wrong form would be computed with from here on.
    phase.check(run.model, request.body)
    body = without_own_parts(request.body)
    own_part = None if body is request.body else request.body.addressed.get(party.id)
    return replace(
        run,
        run=name,
        cursor=cursor,
        model=phase.absorb(run.model, body),
        transcript=extend_transcript(run, cursor, party.digest(body)),
        own_part=own_part,
    )


def respond(run: Run[M], site: Site) -> tuple[Run[M], AnyEnvelope]:
    """Answer the phase in which a site stands: the first, or the one that `accept` opened."""
    # A context serves one round: where it stands and what was charged come from the stored state.
    site.cursor, site.ledger, site.transcript = run.cursor, run.ledger, run.transcript
    site.own_part = run.own_part
    phase = run.phase
    reply = phase.answer(site, run.model)
    # Not isinstance: a subclass could carry fields that no marker was checked for.
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
    """Combine a round's replies, in order of site ids: state, broadcast, and whether it ended."""
    phase = run.phase
    _agree(run, inbox)
    # Who is missing is settled before anything is combined: never a silently smaller sum.
    party.lost = _missing(run.cursor, run.model.attendance(), sorted(inbox, key=str.encode))
    party.cursor, party.ledger, party.transcript = run.cursor, run.ledger, run.transcript
    # COINSTAC lists sites in order of arrival, and a float sum depends on its order.
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
    stage = replace(cursor, phase=stage_of(name))
    progress = run.model.progress(run.config, run.ledger, stage)
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


def _missing(
    cursor: Cursor, attendance: Attendance | None, answered: Sequence[str]
) -> frozenset[str]:
    """Return who was asked and did not answer; ConsortiumError if that is one too many."""
    if attendance is None:
        return frozenset()
    asked, present = frozenset(attendance.sites), frozenset(answered)
    lost, strange = asked - present, present - asked
    if lost and len(asked & present) < attendance.least:
        raise ConsortiumError("E156", site=min(lost), phase=cursor.phase, round=cursor.round)
    if strange:
        raise ConsortiumError("E204", field="list of sites", sites=f"{min(strange)} was not asked")
    return lost


def _agree(run: Run[M], inbox: Mapping[str, AnyEnvelope]) -> None:
    """Raise ConsortiumError unless all sites answer the same exchange of the same run."""
    expected = [
        ("format", "v", FORMAT),
        ("run", "run", run.run),
        ("seq", "seq", run.cursor.seq),
        ("phase", "phase", run.cursor.phase),
        ("round", "round", run.cursor.round),
    ]
    # In the first exchange settings are compared by `join` itself, which can name the setting.
    if run.run:
        expected.append(("settings digest", "config", run.bound.digest))
    for field, attribute, own in expected:
        got = {site: getattr(inbox[site], attribute) for site in sorted(inbox, key=str.encode)}
        wrong = [f"{site} {value}" for site, value in got.items() if value != own]
        if wrong:
            sites = ", ".join([*wrong, f"expected {own}"])
            raise ConsortiumError("E204", field=field, sites=sites)
