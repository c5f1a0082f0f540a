"""COINSTAC, the aggregator's half: one round of all sites' replies in, one broadcast out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cape.coinstac.documents import (
    Document,
    EngineRequest,
    answer_of,
    decode_envelope,
    decode_run,
    encode_broadcast,
    identity_of,
    request_digest,
    settings_of,
)
from cape.computations import load
from cape.config import VERSION, Config
from cape.errors import ConsortiumError, MessageError, StateLostError
from cape.protocol.outcome import Outcome
from cape.protocol.phases import Computation, advance_aggregator, start
from cape.site.context import NO_REQUEST, AggregatorContext


def combine_replies(request: EngineRequest) -> Document:
    """Combine one round.  Draws nothing, so the same request always gives the same answer."""
    if request.cache is None:
        computation, config = joining(request.input)
        state = start(computation.bind(config))
    else:
        computation, _, _ = identity_of(request.cache, "the aggregator")
        state = decode_run(computation, request.cache, party="the aggregator")
    request.expect(state.cursor.seq)
    reply = state.phase.reply
    inbox = {
        site: decode_envelope(document, reply, broadcast=False)
        for site, document in request.input.items()
    }
    published: list[Outcome] = []

    def publish(outcome: Outcome) -> None:
        from cape.report import write_consortium

        write_consortium(request.transfer, outcome)
        published.append(outcome)

    digest, kept = memory_of(request.cache)
    party = AggregatorContext(config=state.config, publish=publish, request=digest, kept=kept)
    state, envelope, ended = advance_aggregator(state, inbox, party)
    if not ended:
        answer = answer_of(computation, state, encode_broadcast(envelope))
        if state.config.aggregation == "secagg":
            answer["cache"]["cape"]["request"] = request_digest(envelope).hex()
            answer["cache"]["cape"]["kept"] = {name: raw.hex() for name, raw in kept.items()}
        return answer
    from cape.report import components_table, summary

    output = {"summary": summary(published[0]), "components": components_table(published[0])}
    return answer_of(computation, state, output, success=True)


def memory_of(cache: Mapping[str, Any] | None) -> tuple[bytes, dict[str, bytes]]:
    """Return the digest of the last broadcast and what the aggregator kept, if sites may drop."""
    cache = cache or {}
    try:
        kept = {str(name): bytes.fromhex(raw) for name, raw in cache.get("kept", {}).items()}
        return bytes.fromhex(cache.get("request", NO_REQUEST.hex())), kept
    except (AttributeError, TypeError, ValueError):
        raise StateLostError("E210", site="the aggregator", what="cache") from None


def joining(inbox: Mapping[str, Any]) -> tuple[Computation[Any], Config]:
    """Return computation and settings from the first card; `join` compares all of them."""
    try:
        sites = sorted(inbox, key=str.encode)
        versions = {site: str(inbox[site]["body"]["version"]) for site in sites}
        body = inbox[sites[0]]["body"]
        name, text = str(body["computation"]), str(body["settings"])
    except (KeyError, TypeError, IndexError):
        raise MessageError("E202", problem="the first message of a site is its card") from None
    if set(versions.values()) != {VERSION}:  # settings of another version may not even decode
        listed = ", ".join(f"{site} has {version}" for site, version in versions.items())
        raise ConsortiumError("E155", sites=f"{listed}, the aggregator has {VERSION}")
    computation = load(name)
    return computation, settings_of(computation, text)
