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
from pathlib import Path
from typing import Any, Final, TypeVar

from cape.computations import load
from cape.config import Config
from cape.errors import CapeError, MessageError, ProtocolError, StateLostError
from cape.frozen import dataclass
from cape.privacy.ledger import Ledger
from cape.protocol import wire
from cape.protocol.messages import Cursor, Progress
from cape.protocol.phases import AnyEnvelope, Computation, Envelope, Run

M = TypeVar("M")

FIELDS = {"v", "run", "seq", "phase", "round", "config", "body"}
MAX_CACHE = 4 * 2**20
"""Hard cap of a party's cache, bytes: the engine carries it twice a round."""

Document = dict[str, Any]
"""One JSON document of the engine."""
PRODUCT = "capedjica"
"""The computation of a request that names none."""
MAX_DOCUMENT = 100 * 2**20
"""Bytes of what the engine hands over."""
MAX_ANSWER: Final = 90 * 2**20
"""Bytes; the engine's own limit for what a container sends is 100 MiB."""


def encode_reply(envelope: AnyEnvelope) -> dict[str, Any]:
    """Return a site's message; every field of its body must say why it may leave."""
    return {**_head(envelope), "body": wire.encode_reply(envelope.body)}


def encode_broadcast(envelope: AnyEnvelope) -> dict[str, Any]:
    """Return the aggregator's message, with the public line of progress."""
    return {
        **_head(envelope),
        "body": wire.encode(envelope.body, type(envelope.body)),
        "progress": wire.encode(envelope.progress, Progress | None, "progress"),
    }


def _head(envelope: AnyEnvelope) -> dict[str, Any]:
    return {
        "v": envelope.v,
        "run": envelope.run,
        "seq": envelope.seq,
        "phase": envelope.phase,
        "round": envelope.round,
        "config": envelope.config,
    }


def decode_envelope(document: Any, body: type, *, broadcast: bool) -> AnyEnvelope:
    """Return the envelope of a message whose body has the declared type; MessageError if not."""
    expected = FIELDS | {"progress"} if broadcast else FIELDS
    if not isinstance(document, dict) or set(document) != expected:
        raise MessageError("E202", problem=f"envelope: the fields are {sorted(expected)}")
    return Envelope(
        v=wire.decode(document["v"], int, "envelope.v"),
        run=wire.decode(document["run"], str, "envelope.run"),
        seq=wire.decode(document["seq"], int, "envelope.seq"),
        phase=wire.decode(document["phase"], str, "envelope.phase"),
        round=wire.decode(document["round"], int, "envelope.round"),
        config=wire.decode(document["config"], str, "envelope.config"),
        body=wire.decode(document["body"], body),
        progress=wire.decode(document["progress"], Progress | None, "progress")
        if broadcast
        else None,
    )


def request_digest(envelope: AnyEnvelope) -> bytes:
    """Return the SHA-256 of a broadcast, which every mask of its answers is bound to."""
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


def encode_run(computation: Computation[M], run: Run[M], *, capped: bool = True) -> dict[str, Any]:
    """Return the state of a party as JSON, of at most `MAX_CACHE` bytes if it is capped."""
    head = Head(
        v=1,
        computation=computation.name,
        settings=json.dumps(run.config.settings(), sort_keys=True),
        run=run.run,
        cursor=run.cursor,
        ledger=run.ledger,
    )
    document = {
        "head": wire.encode(head, Head),
        "model": wire.encode(run.model, computation.model),
    }
    if capped and len(wire.dumps(document)) > MAX_CACHE:
        raise CapeError("E145", setting="cache", got="more", allowed="4 MiB", do="lower n_basis.")
    return document


def decode_run(computation: Computation[M], document: Any, *, party: str) -> Run[M]:
    """Return the state that `encode_run` wrote; StateLostError if it is damaged."""
    try:
        head: Head = wire.decode(document["head"], Head)
        if head.v != 1 or head.computation != computation.name:
            raise MessageError("E202", problem="cache of another version or computation")
        config = settings_of(computation, head.settings)
        model: M = wire.decode(document["model"], computation.model)
    except (CapeError, KeyError, TypeError, ValueError) as err:
        raise StateLostError("E210", site=party, what="cache", detail=str(err)) from err
    bound = computation.bind(config)
    return Run(bound=bound, run=head.run, cursor=head.cursor, ledger=head.ledger, model=model)


def settings_of(computation: Computation[M], text: str) -> Config:
    """Return the settings that a card or a cache holds as JSON text."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise MessageError("E202", problem="settings are not JSON") from err
    if not isinstance(given, dict):
        raise MessageError("E202", problem="settings are not a mapping")
    return computation.config.from_input(given)


def answer_of(
    computation: Computation[Any],
    state: Run[Any],
    output: Document,
    nonce: str = "",
    vault_key: bytes = b"",
    *,
    success: bool = False,
) -> Document:
    """Return a party's answer to the engine: ``output``, ``success``, its state as the cache."""
    cache = {**encode_run(computation, state), "nonce": nonce, "vault_key": vault_key.hex()}
    return {"output": output, "cache": {"cape": cache}, "success": success}


def identity_of(cache: Mapping[str, Any], party: str) -> tuple[Computation[Any], str, bytes]:
    """Return computation, nonce and vault key of a cache, before its typed part is decoded.

    Raises
    ------
    StateLostError
        E210: the cache is damaged.
    """
    try:
        name, nonce = str(cache["head"]["computation"]), str(cache["nonce"])
        return load(name), nonce, bytes.fromhex(cache["vault_key"])
    except (CapeError, KeyError, TypeError, ValueError):
        raise StateLostError("E210", site=party, what="cache") from None


# -- what the engine hands over, and what it may get back ------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineRequest:
    """One document of the engine, checked for shape."""

    role: str
    input: dict[str, Any]
    cache: dict[str, Any] | None
    party: str
    base: Path
    output: Path
    working: Path
    transfer: Path
    owner: str
    iteration: int

    @classmethod
    def of(cls, role: str, document: Mapping[str, Any]) -> EngineRequest:
        """Return the call of a document; MessageError for whatever the engine never sends."""
        if role not in ("local", "remote"):
            raise MessageError("E158", problem=f"role {role!r}, allowed local, remote")
        parts = {}
        for name in ("input", "cache", "state"):
            part = document.get(name) if isinstance(document, Mapping) else None
            if not isinstance(part, dict):
                raise MessageError("E158", problem=f"'{name}' must be a mapping")
            parts[name] = part
        places = ("clientId", "baseDirectory", "outputDirectory", "cacheDirectory",
                  "transferDirectory")  # fmt: skip
        for name in places:
            given = parts["state"].get(name)
            if not isinstance(given, str) or "\0" in given:  # no path and no name holds that
                raise MessageError("E158", problem=f"'state.{name}' must be a text")
        iteration = parts["state"].get("iteration")
        if type(iteration) is not int:  # true is no number here
            raise MessageError("E158", problem="'state.iteration' must be a whole number")
        party, base, output, working, transfer = (parts["state"][name] for name in places)
        return cls(
            role=role,
            input=parts["input"],
            cache=parts["cache"].get("cape"),
            party=party,
            base=Path(base),
            output=Path(output),
            working=Path(working),
            transfer=Path(transfer),
            owner=str(parts["state"].get("owner", "")),  # not every engine names one
            iteration=iteration,
        )

    def expect(self, seq: int) -> None:
        """Refuse a call that is not the exchange `seq` of the run.

        The engine counts its iterations, at every party from 1; a count that differs from the
        party's own says that a round was left out, or that an older cache came back.

        Raises
        ------
        ProtocolError
            Nothing was drawn, charged or changed.
        """
        if self.iteration != seq:
            raise ProtocolError("E248", allowed=seq, got=self.iteration)


def encode_response(role: str, answer: Any) -> bytes:
    """Return the answer of a party as one line of ASCII JSON.

    Parameters
    ----------
    role : {"local", "remote"}
        The engine's words for site and aggregator.
    answer : mapping
        ``output``, ``cache`` and ``success``.

    Raises
    ------
    MessageError
        E240: the answer is not one that the engine may see.
    """
    if not isinstance(answer, Mapping) or set(answer) != {"output", "cache", "success"}:
        raise _refuse("it must have output, cache and success")
    for name in ("output", "cache"):
        if not isinstance(answer[name], dict):
            raise _refuse(f"{name} must be a mapping")
    if not isinstance(answer["success"], bool) or (role == "local" and answer["success"]):
        raise _refuse("only the aggregator may say that the run is done")
    try:
        line = wire.dumps(answer)
    except (ValueError, TypeError) as err:
        raise _refuse("it must be JSON with finite numbers") from err
    if len(line) > MAX_ANSWER:
        raise _refuse(f"{len(line)} bytes, allowed {MAX_ANSWER}; lower n_basis")
    return line


def _refuse(problem: str) -> MessageError:
    return MessageError("E240", problem=problem)
