"""Whatever an aggregator says, nothing but declared fields leaves, and no number of a person.

The broadcasts of whole runs are changed at random: numbers, texts, arrays, order of lists, digests
that are those of the site itself, broadcasts of other rounds, other cursors.  What a site answers
is held to the list of what it may send (`cape.markers`), which docs/what-leaves.md prints.
"""

import base64
import copy
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cape.computations import names
from cape.engines.coinstac.documents import decode_envelope, encode_broadcast, reply_document
from cape.errors import CapeError
from cape.markers import RELEASED, Marker
from cape.protocol import wire
from cape.protocol.messages import SiteCard
from cape.protocol.phases import AnyEnvelope
from support import consortium as helper
from support import say

VICTIM, NAMING = "local0", "local1"  # the second one's policy names the maps
# What streams of noise are for; the last two are of the papers' mechanisms
NOISE = {"noise", "seed", "wishart"}
DOCUMENTS = {"fast": 84, "long": 1000}
SETTINGS: dict[str, list[dict[str, Any]]] = {
    name: [{}, {"aggregation": "secagg"}, {"noise": "local"}] for name in names()
}
SETTINGS["capedjica"].append({"basis": "templates"})


def runs_of(name: str) -> Iterator[helper.Consortium]:
    """Yield a run of each kind, before its first exchange; the victim names no maps."""
    for chosen in SETTINGS[name]:
        try:
            run = helper.Consortium(name, **chosen)
        except CapeError:  # papers' computations have one aggregation each
            continue
        for site, party in run.parties.items():
            party.policy = replace(party.policy, public_maps=("*",) if site == NAMING else ())
        yield run


def changed(document: Any, pool: list[Any], rng: np.random.Generator) -> Any:
    """Return a JSON document with one to three leaves, lists or members changed."""
    document = copy.deepcopy(document)
    for _ in range(rng.integers(1, 4)):
        places = list(walk(document))
        holder, key = places[rng.integers(len(places))]
        holder[key] = lie(holder[key], pool, rng)
    return document


def walk(document: Any) -> Iterator[tuple[Any, Any]]:
    pairs = document.items() if isinstance(document, dict) else enumerate(document)
    for key, item in list(pairs):
        yield document, key
        if isinstance(item, dict | list):
            yield from walk(item)


def lie(value: Any, pool: list[Any], rng: np.random.Generator) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return [0, 1, -1, value + 1, value * 2, 2**40][rng.integers(6)]
    if isinstance(value, list):
        ways = [value[::-1], value[:-1], value + value[-1:], [*value[1:], *value[:1]]]
        return ways[rng.integers(4)]
    if isinstance(value, dict) and set(value) == {"base64", "shape"}:
        try:
            raw = base64.b64decode(value["base64"], validate=True)
        except ValueError:  # an earlier lie
            return value
        words = np.frombuffer(raw, dtype="<f8") if len(raw) % 8 == 0 else np.zeros(0)
        with np.errstate(over="ignore"):
            told = [words * 0, words * 1e6, words[::-1]][rng.integers(3)]
        return {**value, "base64": base64.b64encode(told.tobytes()).decode()}
    same = [item for item in pool if type(item) is type(value)]
    return copy.deepcopy(same[rng.integers(len(same))]) if same else value


def leaves(document: Any) -> list[Any]:
    return [holder[key] for holder, key in walk(document)]


def told(run: helper.Consortium, pool: list[Any], rng: np.random.Generator) -> AnyEnvelope | None:
    """Return a lie in place of the broadcast that a site waits for; None if it is no message."""
    assert run.request is not None
    document = encode_broadcast(run.request)
    other = encode_broadcast(run.broadcasts[rng.integers(len(run.broadcasts))])
    way = rng.integers(4)
    if way == 0:
        document = {**document, "body": other["body"]}
    elif way == 1:
        phases = [name for name in run.runs[VICTIM].bound.phases]
        document["phase"] = phases[rng.integers(len(phases))]
    if way:
        document = changed(document, pool, rng)
    kind = run.runs[VICTIM].phase.broadcast
    try:
        return decode_envelope(document, kind, broadcast=True)
    except CapeError:
        return None


def check_declared(run: helper.Consortium, envelope: AnyEnvelope) -> list[np.ndarray]:
    """Hold an answer to the list; return the words of its masked vectors."""
    body = envelope.body
    kinds = {phase.reply for phase in run.runs[VICTIM].bound.phases.values()}
    assert type(body) in kinds
    document = wire.loads(wire.dumps(reply_document(envelope)), 2**27)
    assert decode_envelope(document, type(body), broadcast=False).body is not None
    masked = []
    for name, hint in wire._hints(type(body)).items():
        (marker,) = (m for m in hint.__metadata__ if isinstance(m, Marker))
        value = getattr(body, name)
        if isinstance(value, np.ndarray) and value.dtype == np.uint64:
            masked.append(value)
        elif isinstance(value, np.ndarray):
            # Where sites are seen one by one, their whole noise is on them.
            assert marker is RELEASED
    for place, number in floats_of(document["body"]):
        assert place == "affine" or any(
            m is RELEASED for h in wire._hints(type(body)).values() for m in h.__metadata__
        ), (type(body).__name__, place, number)
    if isinstance(body, SiteCard):
        assert json.loads(body.settings) == run.config.settings()
        assert body.space.packed == ""
    vector = any(isinstance(getattr(body, name), np.ndarray) for name in wire._hints(type(body)))
    if vector and run.config.private and envelope.phase != "zero-sum.probe":
        drawn = {event[-1] for event in run.events[VICTIM] if event[0] == "draw"}
        assert body.refused or drawn & NOISE, envelope.phase
    check_packed(run, getattr(body, "labels", ""), getattr(body, "maps", ""))
    return masked


def floats_of(document: Any, where: str = "") -> Iterator[tuple[str, float]]:
    for holder, key in walk({where: document}):
        if isinstance(holder[key], float):
            yield key if isinstance(key, str) else "affine", holder[key]


def check_packed(run: helper.Consortium, labels: str, maps: str) -> None:
    """Texts that are packed hold whole numbers of the site's mask, and no maps."""
    assert maps == ""
    if labels:
        space = run.parties[VICTIM].source.space
        raw = zlib.decompress(base64.b64decode(labels, validate=True))
        assert raw == space.labels().astype("<i4").tobytes()


@pytest.mark.parametrize(
    ("name", "length"),
    [pytest.param(n, "fast") for n in names()]
    + [pytest.param(n, "long", marks=pytest.mark.trust) for n in names()],
)
def test_nothing_but_declared_fields_leaves_whatever_an_aggregator_says(name, length) -> None:
    """1,000 lies over all computations; in the long form to each.  Deterministic."""
    rng = np.random.default_rng(49)
    runs = list(runs_of(name))
    n_told = n_answered = 0
    words: list[np.ndarray] = []
    for run in runs:
        planned = run.exchange().progress.exchanges
        check_declared(run, run.sent[0][VICTIM])
        per_round = DOCUMENTS[length] // (len(runs) * (planned - 1)) + 1
        while not run.ended:
            card = run.sent[0][VICTIM].body
            pool = [card.space.digest, card.nonce, card.settings, VICTIM, "", "0" * 64, 0, 1.5,
                    *leaves(encode_broadcast(run.broadcasts[0]))]  # fmt: skip
            for _ in range(per_round):
                request = told(run, pool, rng)
                n_told += 1
                if request is None:
                    continue
                saved = copy.deepcopy(run.parties[VICTIM].store)
                run.events[VICTIM].clear()
                try:
                    _, envelope = run.answer(VICTIM, request)
                except CapeError:  # and nothing else: a raw error is a lie that no check saw
                    continue
                finally:
                    run.parties[VICTIM].store = saved
                words += check_declared(run, envelope)
                n_answered += 1
            run.events[VICTIM].clear()
            run.exchange()
            words += check_declared(run, run.sent[-1][VICTIM])
    assert n_told >= DOCUMENTS[length]
    # The victim forgets what it answered: one answer, given again, is no other bits.
    bits = np.unpackbits(np.unique(np.concatenate(words)).view(np.uint8))
    assert abs(bits.mean() - 0.5) < 3 / np.sqrt(bits.size)
    say(f"{n_told} documents, {n_answered} answered")
