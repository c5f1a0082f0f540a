"""The engine's documents: envelopes and party states by the types that the table declares.

What the engine hands over is checked for shape before anything is believed; what it gets back is
checked once for every way an answer goes out.  The engine hangs without a word on an answer without
``output``, leaves a site out of the sum whose ``output`` is null, and lets all other sites wait for
ever once one site says ``success``.  None of that can leave here: the answer is an error then, and
an error ends the run for everybody at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeVar

from cape.config import Config
from cape.errors import CapeError, MessageError, ProtocolError, StateLostError
from cape.frozen import dataclass
from cape.privacy.ledger import Ledger
from cape.protocol import wire
from cape.protocol.messages import Cursor, Progress
from cape.protocol.phases import AnyEnvelope, Computation, Envelope, Run
from cape.site.context import NO_REQUEST

M = TypeVar("M")

# What stands in every envelope beside its body.
HEAD = {"v": int, "run": str, "seq": int, "phase": str, "round": int, "config": str}
# Hard cap of a party's cache, bytes: the engine carries it twice a round.
MAX_CACHE = 4 * 2**20

# One JSON document of the engine.
Document = dict[str, Any]
# The computation of a request that names none.
# Bytes of what the engine hands over.
MAX_DOCUMENT = 100 * 2**20
# Bytes; the engine's own limit for what a container sends is 100 MiB.
MAX_ANSWER: Final = 90 * 2**20


def encode_reply(envelope: AnyEnvelope) -> dict[str, Any]:
    """Return a site's message; every field of its body must say why it may leave."""
    return {**_head(envelope), "body": wire.encode_marked(envelope.body)}


def encode_broadcast(envelope: AnyEnvelope) -> dict[str, Any]:
    return {
        **_head(envelope),
        "body": wire.encode(envelope.body, type(envelope.body)),
        "progress": wire.encode(envelope.progress, Progress | None, "progress"),
    }


def _head(envelope: AnyEnvelope) -> dict[str, Any]:
    return {name: getattr(envelope, name) for name in HEAD}


def decode_envelope(document: Any, body: type, *, broadcast: bool) -> AnyEnvelope:
    """Return the envelope of a message whose body has the declared type; MessageError if not."""
    fields: dict[str, Any] = {**HEAD, "body": body}
    if broadcast:
        fields["progress"] = Progress | None
    if not isinstance(document, dict) or set(document) != set(fields):
        raise MessageError("E202", problem=f"envelope: the fields are {sorted(fields)}")
    # Not a record: the type of the body is that of the phase, chosen by the caller.
    values = {
        name: wire.decode(document[name], hint, "" if name == "body" else f"envelope.{name}")
        for name, hint in fields.items()
    }
    return Envelope(**values)


def request_digest(envelope: AnyEnvelope) -> bytes:
    # Every mask is bound to it: two answers to different broadcasts never share a mask.
    return hashlib.sha256(wire.dumps(encode_broadcast(envelope))).digest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """The part of a party's state that has the same type in every computation."""

    v: int
    computation: str
    settings: str
    run: str
    cursor: Cursor
    ledger: Ledger | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cache:
    """What a party finds under the key ``cape`` of the engine's cache; `kept` is in hex.

    `model` is of the type that the computation declares, so it is decoded when that is known.
    """

    head: Head
    model: Any
    nonce: str = ""
    vault_key: str = ""
    request: str = NO_REQUEST.hex()
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def vault_key_bytes(self) -> bytes:
        return bytes.fromhex(self.vault_key)

    @property
    def request_digest(self) -> bytes:
        return bytes.fromhex(self.request)

    @property
    def kept_bytes(self) -> dict[str, bytes]:
        return {name: bytes.fromhex(raw) for name, raw in self.kept.items()}


def read_cache(document: Any, party: str) -> Cache:
    """Return a cache by its types, but for the model; StateLostError (E210) if it is damaged."""
    try:
        cache = wire.decode_document(document, Cache, "cache")
        # Hex is checked here, so that the properties of a cache that was read never fail.
        for text in (cache.vault_key, cache.request, *cache.kept.values()):
            bytes.fromhex(text)
        return cache
    except (CapeError, ValueError) as err:
        raise StateLostError("E210", site=party, what="cache", detail=str(err)) from err


def cache_of(computation: Computation[M], run: Run[M]) -> Cache:
    head = Head(
        v=1,
        computation=computation.name,
        settings=json.dumps(run.config.settings(), sort_keys=True),
        run=run.run,
        cursor=run.cursor,
        ledger=run.ledger,
    )
    return Cache(head=head, model=wire.encode(run.model, computation.model))


def encode_run(computation: Computation[M], run: Run[M]) -> dict[str, Any]:
    cache = cache_of(computation, run)
    document = {"head": wire.encode(cache.head, Head), "model": cache.model}
    if len(wire.dumps(document)) > MAX_CACHE:
        raise CapeError("E145", setting="cache", got="more", allowed="4 MiB", do="lower n_basis.")
    return document


def decode_run(computation: Computation[M], cache: Any, *, party: str) -> Run[M]:
    """Return the state in a cache, read or not; StateLostError (E210) if it is damaged."""
    cache = cache if isinstance(cache, Cache) else read_cache(cache, party)
    head = cache.head
    try:
        if head.v != 1 or head.computation != computation.name:
            raise MessageError("E202", problem="cache of another version or computation")
        # Settings travel as text, so that a cache of another version fails in words, not in types.
        config = decode_settings(computation, head.settings)
        model: M = wire.decode(cache.model, computation.model)
    except CapeError as err:
        raise StateLostError("E210", site=party, what="cache", detail=str(err)) from err
    bound = computation.bind(config)
    return Run(bound=bound, run=head.run, cursor=head.cursor, ledger=head.ledger, model=model)


def decode_settings(computation: Computation[M], text: str) -> Config:
    settings: dict[str, Any] = wire.decode(wire.loads(text), dict[str, Any], "settings")
    return computation.config.from_input(settings)


def engine_answer(
    computation: Computation[Any],
    state: Run[Any],
    output: Document,
    nonce: str = "",
    vault_key: bytes = b"",
    *,
    success: bool = False,
) -> Document:
    """Return a party's answer to the engine: ``output``, ``success``, its state as the cache."""
    # The engine merges caches shallowly: all of ours stands under one key.
    cache = {**encode_run(computation, state), "nonce": nonce, "vault_key": vault_key.hex()}
    return {"output": output, "cache": {"cape": cache}, "success": success}


# -- what the engine hands over, and what it may get back -----------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineState:
    """Where a party is, as the engine says; it says more, which is not read."""

    party: str = field(metadata={wire.KEY: "clientId"})
    base: str = field(metadata={wire.KEY: "baseDirectory"})
    output: str = field(metadata={wire.KEY: "outputDirectory"})
    working: str = field(metadata={wire.KEY: "cacheDirectory"})
    transfer: str = field(metadata={wire.KEY: "transferDirectory"})
    iteration: Any
    owner: Any = ""  # not every engine names one


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineDocument:
    """What the engine hands over: types as declared, contents not believed yet."""

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

    @classmethod
    def of(cls, role: str, document: Mapping[str, Any]) -> EngineRequest:
        """Return the request in a document; MessageError for whatever the engine never sends."""
        if role not in ("local", "remote"):
            raise MessageError("E158", problem=f"role {role!r}, allowed local, remote")
        try:
            read = wire.decode_document(document, EngineDocument, "request", unknown="ignore")
        except MessageError as err:
            raise MessageError("E158", problem=err.fields["problem"]) from None
        state = read.state
        # The decoder takes 1.0 for 1, as JavaScript may write it; the engine's count is none.
        if type(state.iteration) is not int:
            raise MessageError("E158", problem="request.state.iteration: not a whole number")
        for text in (state.party, state.base, state.output, state.working, state.transfer):
            if "\0" in text:  # no path and no name holds that
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
            # Whatever an engine names its owner by: a policy compares texts.
            owner=str(state.owner),
            iteration=state.iteration,
        )

    @property
    def who(self) -> str:
        """The party, for people."""
        return f"site {self.party}" if self.role == "local" else "the aggregator"

    def expect(self, seq: int) -> None:
        """Refuse a request (ProtocolError) that is not the exchange `seq` of the run."""
        # The engine counts its iterations, at every party from 1; a count that differs from the
        # party's own says that a round was left out, or that an older cache came back.
        if self.iteration != seq:
            raise ProtocolError("E248", allowed=seq, got=self.iteration)


def encode_response(role: str, answer: Any) -> bytes:
    """Return an answer as one line of ASCII JSON; MessageError (E240) if no engine may see it."""
    if not isinstance(answer, Mapping) or set(answer) != {"output", "cache", "success"}:
        raise _refuse("it must have output, cache and success")
    for name in ("output", "cache"):
        if not isinstance(answer[name], dict):
            raise _refuse(f"{name} must be a mapping")
    if not isinstance(answer["success"], bool) or (role == "local" and answer["success"]):
        # A site that says so would let all others wait for ever.
        raise _refuse("only the aggregator may say that the run is done")
    try:
        line = wire.dumps(answer)
    except (ValueError, TypeError) as err:
        raise _refuse("it must be JSON with finite numbers") from err
    # The engine drops a longer one without a word.
    if len(line) > MAX_ANSWER:
        raise _refuse(f"{len(line)} bytes, allowed {MAX_ANSWER}; lower n_basis")
    return line


def _refuse(problem: str) -> MessageError:
    return MessageError("E240", problem=problem)
