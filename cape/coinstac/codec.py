"""Envelopes and party states as JSON documents, by the types that the table declares."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, TypeVar

from cape.computations import load
from cape.config import Config
from cape.errors import CapeError, MessageError, StateLostError
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
    return Run(config=config, run=head.run, cursor=head.cursor, ledger=head.ledger, model=model)


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
