"""COINSTAC, the aggregator's half: takes the replies of a round and returns one broadcast."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from cape.computations import load
from cape.engines.coinstac import documents
from cape.errors import ConsortiumError, MessageError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.phases import AnyEnvelope, AnyPhase, Computation, advance_aggregator, start
from cape.settings.config import VERSION, Config
from cape.site.context import AggregatorContext

# Pairs of a site and the document of its reply
Arriving = Iterable[tuple[str, documents.Document]]

NO_CARD = "the first message of a site is its card"


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstCard:
    """The fields of a site's card that are read before the computation is known."""

    version: str
    computation: str
    settings: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstMessage:
    """A message whose body is a card; it is decoded again once its type is known."""

    body: FirstCard


def combine_replies(request: documents.EngineRequest, replies: Arriving) -> documents.Document:
    """Return the answer for a round; replies are combined as they arrive."""
    # The aggregator draws no random numbers: repeated requests need no journal.
    kept: dict[str, bytes] = {}
    if request.cache is None:
        cards = dict(replies)  # small; all are needed to decode the replies
        replies = cards.items()
        computation, config = first_settings(cards)
        state = start(computation.bind(config))
    else:
        cache = documents.read_cache(request.cache, request.who)
        computation = load(cache.head.computation)
        state, kept = documents.decode_run(computation, cache, party=request.who), dict(cache.kept)
    # A cache of another round belongs to replies to another broadcast.
    request.expect(state.cursor.seq)
    inbox = gathered(replies, state.phase)
    context = AggregatorContext(
        config=state.config,
        kept=kept,
        folder=request.transfer,
        addresses=request.addresses,
        page=request.page,
        name=request.run,
    )
    state, envelope, ended = advance_aggregator(state, inbox, context)
    if not ended:
        answer = documents.engine_answer(state, documents.encode_broadcast(envelope))
        # Only runs with drop-outs have stages that use earlier replies.
        if state.config.aggregation == "secagg":
            answer["cache"]["cape"]["kept"] = wire.encode(kept, dict[str, bytes])
        return answer
    from cape.engines.coinstac import display

    outcome = context.outcome
    if outcome is None:
        raise TypeError("the last phase of a computation publishes its outcome")
    try:
        output = {"summary": display.summary(outcome), "components": display.tables(outcome)}
    except Exception as err:  # the results are written, so the run has ended well
        output = {"summary": display.unshown(outcome, err), "components": {}}
    return documents.engine_answer(state, output, success=True)


def gathered(replies: Arriving, phase: AnyPhase) -> dict[str, AnyEnvelope]:
    """Decode replies as they arrive; of vectors that are only summed, keep only the sum."""
    inbox: dict[str, AnyEnvelope] = {}
    first = ""
    for site, document in replies:
        envelope = documents.decode_envelope(document, phase.reply, broadcast=False)
        if phase.fold is not None and inbox:
            one, other = phase.fold(inbox[first].body, envelope.body)
            inbox[first] = dataclasses.replace(inbox[first], body=one)
            envelope = dataclasses.replace(envelope, body=other)
        first = first or site
        inbox[site] = envelope
    return inbox


def first_settings(inbox: dict[str, Any]) -> tuple[Computation[Any], Config]:
    cards: dict[str, FirstCard] = {}
    for site in sorted(inbox, key=str.encode):
        try:
            message = wire.decode_document(inbox[site], FirstMessage, unknown="ignore")
        except MessageError:
            raise MessageError("E202", problem=NO_CARD) from None
        cards[site] = message.body
    if not cards:
        raise MessageError("E202", problem=NO_CARD)
    versions = {site: card.version for site, card in cards.items()}
    if set(versions.values()) != {VERSION}:  # settings of another version may fail to decode
        listed = ", ".join(f"{site} has {version}" for site, version in versions.items())
        raise ConsortiumError("E155", sites=f"{listed}, the aggregator has {VERSION}")
    # If the cards differ, `join` names the setting.
    first = next(iter(cards.values()))
    computation = load(first.computation)
    return computation, documents.decode_settings(computation, first.settings)
