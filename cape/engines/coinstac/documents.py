"""The engine's documents: checked on the way in before any field is used, and on the way out.

The engine hangs on an answer without ``output``, omits a null one from the sum, and lets other
sites wait for ever once a site says ``success``.  Hence all answers come from `engine_answer`.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final

from cape.errors import (
    CapeError,
    ConsortiumError,
    MessageError,
    PrivacyBudgetError,
    ProtocolError,
    StateLostError,
)
from cape.frozen import dataclass
from cape.markers import VERSION_FORM
from cape.privacy.cost import Event
from cape.privacy.ledger import Budget, Ledger
from cape.protocol import wire
from cape.protocol.messages import Cursor, Progress
from cape.protocol.model import Roster
from cape.protocol.phases import AnyEnvelope, Computation, Envelope, M, Run
from cape.settings.config import VERSION, Config

# Fields of every envelope besides its body.
ENVELOPE_FIELDS = {"v": int, "run": str, "seq": int, "phase": str, "round": int, "config": str}
STATE_VERSION = 6  # version of a party's state
# Fields that grow with the number of sites: the parts of a broadcast for one site each, and the
# parts of a reply for other sites (`cape.secagg.messages`)
ADDRESSED, SEALED = "addressed", "sealed"

# One JSON document of the engine.
Document = dict[str, Any]


def reply_document(envelope: AnyEnvelope) -> dict[str, Any]:
    # `wire.encode_marked` refuses fields that are not marked as releasable.
    return {**_head(envelope), "body": wire.encode_marked(envelope.body)}


def encode_broadcast(envelope: AnyEnvelope) -> dict[str, Any]:
    return {
        **_head(envelope),
        "body": wire.encode(envelope.body, type(envelope.body)),
        "progress": wire.encode(envelope.progress, Progress | None, "progress"),
    }


def is_addressed(output: Mapping[str, Any]) -> bool:
    """Whether a broadcast has parts for one site each."""
    body = output.get("body")
    return isinstance(body, dict) and isinstance(body.get(ADDRESSED), dict)


def for_site(output: Document, site: str) -> Document:
    """Return a broadcast for `site`: of the addressed parts only its own."""
    if not is_addressed(output):
        return output
    body = output["body"]
    own = {name: part for name, part in body[ADDRESSED].items() if name == site}
    return {**output, "body": {**body, ADDRESSED: own}}


def _head(envelope: AnyEnvelope) -> dict[str, Any]:
    return {name: getattr(envelope, name) for name in ENVELOPE_FIELDS}


def decode_envelope(document: Any, body: type, *, broadcast: bool) -> AnyEnvelope:
    fields: dict[str, Any] = {**ENVELOPE_FIELDS, "body": body}
    if broadcast:
        fields["progress"] = Progress | None
    if not isinstance(document, dict) or set(document) != set(fields):
        raise MessageError("E202", problem=f"envelope: the fields are {sorted(fields)}")
    # Decoded field by field: the caller knows the type of the body from the phase.
    values = {
        name: wire.decode(document[name], hint, "" if name == "body" else f"envelope.{name}")
        for name, hint in fields.items()
    }
    return Envelope(**values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Charges:
    """A ledger in a state: which lines of the plan were charged, verified by `head` on reading."""

    # The ledger's own list of charges would grow with every round.
    budget: Budget | None
    lines: str  # one letter per line of the plan: "1" charged, "0" not
    head: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The part of a party's state whose type is the same in every computation."""

    v: int
    version: str  # of cape
    computation: str
    settings: str
    run: str
    cursor: Cursor
    charges: Charges | None
    transcript: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Cache:
    """The cache's key ``cape``; `model` is decoded once the computation is known."""

    head: Head
    model: Any
    nonce: str = ""
    vault_key: bytes = b""
    kept: dict[str, bytes] = field(default_factory=dict)


def read_cache(document: Any, party: str) -> Cache:
    """Return the state that the engine kept; ConsortiumError E155 if another version made it."""
    # Digests of settings hold the version: a site that was updated during a run would refuse every
    # message for a digest that nobody can read.
    head = document.get("head") if isinstance(document, dict) else None
    version = head.get("version") if isinstance(head, dict) else None
    if isinstance(version, str) and version != VERSION and VERSION_FORM.fits(version):
        sites = f"{party} began this run with {version} and has {VERSION} now"
        raise ConsortiumError("E155", sites=sites)
    try:
        return wire.decode_document(document, Cache, "cache")
    except CapeError as err:
        raise StateLostError("E210", site=party, what="cache", detail=str(err)) from err


def head_of(run: Run[Any]) -> Head:
    return Head(
        v=STATE_VERSION,
        version=VERSION,
        computation=run.bound.computation.name,
        settings=json.dumps(run.config.settings(), sort_keys=True),
        run=run.run,
        cursor=run.cursor,
        charges=None if run.ledger is None else charges_of(run.ledger, planned_events(run.model)),
        transcript=run.transcript,
    )


def planned_events(model: Any) -> tuple[Event, ...]:
    return () if model.roster is None else tuple(model.roster.plan)


def charges_of(ledger: Ledger, plan: Sequence[Event]) -> Charges:
    charged = frozenset(ledger.events)
    lines = "".join("1" if event in charged else "0" for event in plan)
    return Charges(budget=ledger.budget, lines=lines, head=ledger.head)


def ledger_of(charges: Charges, plan: Sequence[Event]) -> Ledger:
    """Return the ledger; PrivacyBudgetError (E235) unless the charged lines give its head."""
    named = {(event.phase, event.round, event.field) for event in plan}
    if not len(charges.lines) == len(plan) == len(named):
        raise PrivacyBudgetError("E235", problem="it is not of this plan", do="start a new run.")
    events = tuple(e for e, letter in zip(plan, charges.lines, strict=True) if letter == "1")
    return Ledger(budget=charges.budget, events=events, head=charges.head)


def encode_run(run: Run[Any]) -> dict[str, Any]:
    model = wire.encode(run.model, run.bound.computation.model)
    document = {"head": wire.encode(head_of(run), Head), "model": model}
    if len(wire.dumps(document)) > wire.MAX_STATE:
        raise CapeError("E145", setting="cache", got="more", allowed="4 MiB", do="lower n_basis.")
    return document


def decode_run(computation: Computation[M], cache: Any, *, party: str) -> Run[M]:
    cache = cache if isinstance(cache, Cache) else read_cache(cache, party)
    head = cache.head
    try:
        if head.v != STATE_VERSION:
            raise MessageError("E202", problem="cache of another version")
        # Settings travel as text, so that a cache of another version gives a readable error.
        config = decode_settings(computation, head.settings)
        known: M = wire.decode(cache.model, computation.model)
        ledger = None if head.charges is None else ledger_of(head.charges, planned_events(known))
    except CapeError as err:
        raise StateLostError("E210", site=party, what="cache", detail=str(err)) from err
    bound = computation.bind(config)
    return Run(
        bound=bound,
        run=head.run,
        cursor=head.cursor,
        ledger=ledger,
        model=known,
        transcript=head.transcript,
    )


# Cached: a service reads the settings of a run once.
@functools.lru_cache(maxsize=8)
def decode_settings(computation: Computation[M], text: str) -> Config:
    settings: dict[str, Any] = wire.decode(
        wire.loads(text, wire.MAX_STATE), dict[str, Any], "settings"
    )
    return computation.config.from_input(settings)


def engine_answer(
    state: Run[Any],
    output: Document,
    nonce: str = "",
    vault_key: bytes = b"",
    *,
    success: bool = False,
) -> Document:
    # The engine merges caches shallowly: our state has one key.
    key = wire.encode(vault_key, bytes)
    cache = {**encode_run(state), "nonce": nonce, "vault_key": key}
    return {"output": output, "cache": {"cape": cache}, "success": success}


# -- what the engine hands over, and what it may get back -----------------------------------------


# An engine's name of a run
RUN_NAME: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineState:
    """The fields of the engine's state that are read; the engine sends more."""

    party: str = field(metadata={wire.KEY: "clientId"})
    base: str = field(metadata={wire.KEY: "baseDirectory"})
    output: str = field(metadata={wire.KEY: "outputDirectory"})
    working: str = field(metadata={wire.KEY: "cacheDirectory"})
    transfer: str = field(metadata={wire.KEY: "transferDirectory"})
    iteration: Any
    owner: Any = ""  # not every engine names one
    # Aggregator: whether the engine gives each site its own parts of a broadcast (`for_site`)
    addresses: bool = False
    page: bool = True  # whether the party draws its page of results
    run: Any = ""  # the engine's name of the run, by which people find it; not every engine has one


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineDocument:
    """The engine's document: types are checked, contents are not yet."""

    input: dict[str, Any]
    cache: dict[str, Any]
    state: EngineState


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRequest:
    """One request of the engine; `cache` is None in a party's first round."""

    role: str
    input: dict[str, Any]
    cache: Any
    party: str
    base: Path
    output: Path
    working: Path
    transfer: Path
    owner: str
    iteration: int
    addresses: bool = False
    page: bool = True
    run: str = ""  # 32 hex digits, or empty

    @classmethod
    def of(cls, role: str, document: Mapping[str, Any]) -> EngineRequest:
        """Return the request; MessageError for documents that the engine never sends."""
        if role not in ("local", "remote"):
            raise MessageError("E158", problem="role: allowed local, remote")
        try:
            read = wire.decode_document(document, EngineDocument, "request", unknown="ignore")
        except MessageError as err:
            raise MessageError("E158", problem=err.fields["problem"]) from None
        state = read.state
        # The decoder reads 1.0 as 1, because JavaScript may write it so; not for this count.
        if type(state.iteration) is not int:
            raise MessageError("E158", problem="request.state.iteration: not a whole number")
        for text in (state.party, state.base, state.output, state.working, state.transfer):
            if "\0" in text:  # neither a path nor a name can hold it
                raise MessageError("E158", problem="request.state: a zero byte")
        return cls(
            role=role,
            input=read.input,
            cache=read.cache.get("cape"),
            party=state.party,
            base=Path(state.base),
            output=Path(state.output),
            working=Path(state.working),
            transfer=Path(state.transfer),
            # Engines may use any type; a policy compares texts.
            owner=str(state.owner),
            iteration=state.iteration,
            addresses=state.addresses,
            page=state.page,
            run=str(state.run) if RUN_NAME.fullmatch(str(state.run)) else "",
        )

    @property
    def folders(self) -> dict[str, Path]:
        return {
            "baseDirectory": self.base,
            "outputDirectory": self.output,
            "cacheDirectory": self.working,
            "transferDirectory": self.transfer,
        }

    @property
    def who(self) -> str:
        return f"site {self.party}" if self.role == "local" else "the aggregator"

    def expect(self, seq: int) -> None:
        # The engine counts iterations from 1 at every party.  If its count differs from the party's
        # own, a round was skipped or an older cache was restored.
        if self.iteration != seq:
            raise ProtocolError("E248", allowed=seq, got=self.iteration)


def encode_response(answer: Document) -> bytes:
    """Return one line of ASCII JSON; MessageError (E240) if the engine would not accept it."""
    try:
        line = wire.dumps(answer)
    except (ValueError, TypeError) as err:
        raise _refuse("it must be JSON with finite numbers") from err
    # The engine silently drops longer answers.
    if len(line) > wire.MAX_ANSWER:
        raise _refuse(f"{len(line)} bytes, allowed {wire.MAX_ANSWER}; lower n_basis")
    return line


def _refuse(problem: str) -> MessageError:
    return MessageError("E240", problem=problem)


# -- large arrays: files that the engine carries through transferDirectory -------------------------

# Large arrays are slow in the engine's JavaScript and may exceed its limits.  They travel as files
# of raw little-endian bytes, which need no parser and cannot be executed.  The document has the
# name and the SHA-256 of the file, so no old, damaged or foreign file is read.  Journals and
# digests at both ends hold the whole array; the file serves transport only.  Sealed shares travel
# the same way, as one JSON file per site: those of all sites together are too long for a document.

# Maximum bytes of an array inside a message.
MAX_INLINE = wire.MAX_TEXT
# Maximum bytes of all files of one message, which could name a large file many times.
MAX_MESSAGE_FILES = 4 * wire.MAX_ARRAY
REFERENCE_KEYS = {"file", "sha256", "shape"}
PART_KEYS = {"file", "sha256"}
ARRAY_KEYS = {"base64", "shape"}
FILE_NAME = re.compile(r"[0-9a-f]{8,64}-\d{1,6}-[a-z][a-z.-]{0,63}-\d{1,6}-[0-9a-f]{16}\.bin")


def n_senders(answer: Document) -> int:
    """Return how many messages the engine joins in one document: one per known site."""
    roster = wire.decode_constant(answer["cache"]["cape"]["model"]["roster"], Roster | None)
    return 1 if roster is None else len(roster.sites)  # None in `join`, which sends no array


def offload(output: Any, folder: Path, senders: int = 1) -> Any:
    """Return the message with its large arrays replaced by names of files in `folder`."""
    # Each of the `senders` messages in one document may use an equal part of `ALL_INLINE`.
    largest = min(MAX_INLINE, wire.ALL_INLINE // senders)
    # An OSError may propagate: the answer is stored, so the step may be repeated.
    # Only envelopes have large arrays; a summary is returned unchanged.
    if not isinstance(output, Mapping) or "body" not in output:
        return output
    # Every round has its own names: the engine never deletes the files.
    head = "-".join(str(output[name]) for name in ("run", "seq", "phase", "round"))

    def write(raw: bytes) -> dict[str, str]:
        digest = hashlib.sha256(raw).hexdigest()
        name = f"{head}-{digest[:16]}.bin"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(raw)
        return {"file": name, "sha256": digest}

    def leave(array: dict[str, Any]) -> Any:
        if len(array["base64"]) * 3 // 4 <= largest:
            return array
        return {**write(base64.b64decode(array["base64"])), "shape": array["shape"]}

    def leave_part(part: dict[str, Any], most: int) -> Any:
        text = wire.dumps(part)
        return part if len(text) <= most else write(text)

    body = _replaced(output["body"], ARRAY_KEYS, leave)
    if SEALED in body:
        body = {**body, SEALED: leave_part(body[SEALED], largest)}
    if parts := body.get(ADDRESSED):
        most = min(largest, wire.ALL_INLINE // len(parts))
        body = {**body, ADDRESSED: {site: leave_part(part, most) for site, part in parts.items()}}
    return {**output, "body": body}


def inline(message: Any, folder: Path) -> Any:
    """Undo `offload`; MessageError if a file is missing, too large, or has another digest."""
    if not isinstance(message, Mapping) or "body" not in message:
        return message
    # The limit counts all files of the message.
    remaining = MAX_MESSAGE_FILES

    def put_back(reference: dict[str, Any]) -> Any:
        nonlocal remaining
        raw = _read_file(reference, folder, remaining)
        remaining -= len(raw)
        return {"base64": base64.b64encode(raw).decode("ascii"), "shape": reference["shape"]}

    def put_part_back(part: Any) -> Any:
        nonlocal remaining
        # Sites may be called "file" and "sha256"; no ciphertext matches our file names.
        if not (isinstance(part, dict) and set(part) == PART_KEYS and _is_ours(part["file"])):
            return part
        raw = _read_file(part, folder, remaining)
        remaining -= len(raw)
        return wire.loads(raw, wire.MAX_ARRAY)

    body = _replaced(message["body"], REFERENCE_KEYS, put_back)
    if isinstance(body, dict) and SEALED in body:
        body = {**body, SEALED: put_part_back(body[SEALED])}
    if is_addressed(message):
        parts = {site: put_part_back(part) for site, part in body[ADDRESSED].items()}
        body = {**body, ADDRESSED: parts}
    return {**message, "body": body}


def _read_file(reference: Mapping[str, Any], folder: Path, remaining: int) -> bytes:
    name, digest = reference["file"], reference["sha256"]
    # A peer chose the name: only our pattern is allowed, no path and no other file.
    if not _is_ours(name):
        raise _refuse_file("a file's name is not one of ours")
    path = folder / str(name)
    try:
        # Checked before reading: a peer must not fill the memory or link to another file.
        size = path.stat().st_size
        if path.is_symlink() or size > wire.MAX_ARRAY:
            raise _refuse_file(f"a file is larger than {wire.MAX_ARRAY} bytes or no file")
        if size > remaining:
            raise _refuse_file(f"its files are larger than {MAX_MESSAGE_FILES} bytes together")
        raw = path.read_bytes()
    except OSError:
        raise _refuse_file("a file that the message names did not arrive") from None
    if hashlib.sha256(raw).hexdigest() != digest:
        raise _refuse_file("a file is not the one that the message names")
    return raw


def _is_ours(name: Any) -> bool:
    return isinstance(name, str) and FILE_NAME.fullmatch(name) is not None


def _refuse_file(problem: str) -> MessageError:
    return MessageError("E202", problem=problem)


def _replaced(node: Any, keys: set[str], change: Callable[[dict[str, Any]], Any]) -> Any:
    if isinstance(node, dict):
        if set(node) == keys and isinstance(node[min(keys)], str):
            return change(node)
        return {key: _replaced(item, keys, change) for key, item in node.items()}
    if isinstance(node, list):
        return [_replaced(item, keys, change) for item in node]
    return node
