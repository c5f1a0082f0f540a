"""A site believes no broadcast further than its settings and data go: form, size, feature space.

An aggregator that adds an axis to the whitener made a site ask one subject a thousand times for one
charge (the sum was 537 times what all subjects together may give); one that said another number of
features than the data have read a column's mean at a twentieth of its noise.  No error came.
"""

import dataclasses
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cape.algorithms.estimators import SubjectQuery
from cape.algorithms.whitening import whiten
from cape.computations import names
from cape.errors import CapeError, ConfigError, MessageError, PrivacyBudgetError
from cape.privacy.mechanisms import plan_event
from cape.protocol import secure_sum, wire
from cape.protocol.ports import Stacks, View
from cape.protocol.secure_sum import SecureSum, check_subjects, clipped_sum, same_form
from cape.site.identity import IdentityFiles, make_key
from support import consortium as helper
from support.consortium import Consortium, settings_of

CHOICES = [
    *((name, {}) for name in names()),
    ("capemean", {"aggregation": "secagg"}),
    ("capemean", {"noise": "local"}),
]


def arrays(state: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Yield the way to every array of a broadcast, and the array."""
    for spec in dataclasses.fields(state):
        value = getattr(state, spec.name)
        if isinstance(value, np.ndarray):
            yield (*way, spec.name), value
        elif dataclasses.is_dataclass(value):
            yield from arrays(value, (*way, spec.name))


def with_array(state: Any, way: tuple[str, ...], array: np.ndarray) -> Any:
    first, *rest = way
    inner = with_array(getattr(state, first), tuple(rest), array) if rest else array
    return replace(state, **{first: inner})


def other_forms(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield the same numbers with an axis more, one more along each axis, and too few axes."""
    yield np.broadcast_to(array, (7, *array.shape)).copy()
    yield array[np.newaxis].copy()
    if not array.size:  # a solver may not use an array of its state
        return
    yield array.reshape(-1)[:1].reshape(())
    for axis in range(array.ndim):
        yield np.concatenate([array, array[:1] if axis == 0 else array[:, :1]], axis=axis)


@pytest.mark.parametrize(("name", "settings"), CHOICES)
def test_a_broadcast_whose_arrays_have_another_form_is_refused_by_every_site(name, settings):
    run = Consortium(name, **settings)
    released = {
        phase.name
        for entry in run.computation.table
        if isinstance(entry, SecureSum)
        for phase in entry.phases(run.config)
        if phase.broadcast is entry.state
    }
    tried = set()
    while not run.ended:
        phase = run.state.cursor.phase
        request = run.exchange()
        if phase not in released or phase in tried or run.ended:
            continue
        tried.add(phase)
        for way, array in arrays(request.body):
            for other in other_forms(array):
                lie = replace(request, body=with_array(request.body, way, other))
                charged = list(run.events["local0"])
                with pytest.raises(
                    MessageError, match=f"E202 .* {phase.partition('.')[0]}: arrays"
                ):
                    run.answer("local0", lie)
                assert run.events["local0"] == charged, (way, other.shape)
    assert tried == released


def test_a_rank_guard_may_keep_fewer_directions_and_nothing_else_may_shrink() -> None:
    run = Consortium().until("whitening")
    state = run.request.body
    fewer = replace(state, V=state.V[:, :1].copy())
    assert same_form(state, fewer, most=state.V.shape[1])
    assert not same_form(state, fewer)
    assert not same_form(state, replace(state, V=state.V[:, :0].copy()), most=state.V.shape[1])
    run.answer("local0", replace(run.request, body=fewer))
    short = replace(state, eigenvalues=state.eigenvalues[:-1].copy())
    with pytest.raises(MessageError, match=r"E202 .* pca: arrays"):
        run.answer("local0", replace(run.request, body=short))


def test_one_subject_cannot_be_multiplied_by_what_is_computed_from_broadcasts() -> None:
    """The last line, whatever slips through: one bounded answer of each subject."""
    with pytest.raises(ValueError, match="needed"):
        whiten(np.ones((5, 2, 2)), np.ones((1, 2, 9), np.float32))
    event = plan_event(
        phase="a", round=1, field="total", shape="ball", size=2, clip=1.0, mu=1.0, shares=3
    )
    for rows in ((5, 2), (1, 3), (1, 1), (2,), (1, 2, 1)):
        query = SubjectQuery(
            size=2, clip=1.0, shape="ball", answer=lambda stack, rows=rows: np.ones(rows)
        )
        with pytest.raises(PrivacyBudgetError, match="does not ask each subject for one vector"):
            clipped_sum(iter([np.ones((1, 4, 9), np.float32)]), query, event)
    stacks = Stacks(arrays=(np.ones((5, 2, 9)), np.ones((1, 2, 8))), labels=(("a",), ("b",)))
    check_subjects(event, stacks, 6)
    for n_subjects in (2, 5, 7):
        with pytest.raises(PrivacyBudgetError, match=f"each of {n_subjects} subjects once"):
            check_subjects(event, stacks, n_subjects)


@pytest.mark.parametrize("name", ["capedjica", "capepca", "capemean", "capecca", "dpdispca"])
def test_a_site_that_would_ask_a_subject_twice_releases_nothing(name, monkeypatch) -> None:
    real = secure_sum.Release.noisy_sum

    def doubled(self, site, model):
        def sees(party, known):
            subjects = self.stage.input(party, known)
            stacks = secure_sum.stacks_behind(subjects)
            twice = Stacks(arrays=stacks.arrays * 2, labels=stacks.labels * 2)
            return replace(subjects, stacks=twice) if isinstance(subjects, View) else twice

        asked = replace(self, stage=replace(self.stage, input=sees))
        return real(asked, site, model)

    monkeypatch.setattr(secure_sum.Release, "noisy_sum", doubled)
    run = Consortium(name)
    with pytest.raises(PrivacyBudgetError, match="subjects once; nothing is released"):
        run.play()
    assert not any(event[0] == "charge" for event in run.events["local0"])


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("more", [-1, 1, 200])
def test_a_roster_with_another_number_of_features_than_the_data_is_refused(name, more) -> None:
    run = Consortium(name)
    run.exchange()
    roster = run.request.body
    D = roster.space.n_features + more
    told = replace(roster, space=replace(roster.space, n_features=D), n_basis=D)
    lie = replace(run.request, body=told, run=run.parties["local0"].digest(told)[:16].hex())
    with pytest.raises(PrivacyBudgetError, match=r"E231 .* the roster does not list this site"):
        run.answer("local0", lie)


def test_a_site_refuses_a_basis_that_the_owner_does_not_allow() -> None:
    run = Consortium("capepca")
    run.exchange()
    config = replace(run.config, max_features=2)
    party = run.parties["local0"]
    party.config = config
    run.config = config
    body = replace(run.request.body, config=config.digest())
    lie = replace(run.request, body=body, run=party.digest(body)[:16].hex(), config=config.digest())
    with pytest.raises(PrivacyBudgetError, match=r"E231 .* size of the public basis"):
        run.answer("local0", lie)


@pytest.mark.parametrize("changed", ["roster.json", "identity_key", "both", "taken away"])
def test_pinned_keys_are_those_that_a_site_had_before_the_aggregator_sent_anything(
    tmp_path, changed
) -> None:
    """What the aggregator sends lands with the data, where a site may keep its keys too."""
    data = helper.write_data(tmp_path / "data")
    keys = {site: make_key(data / site / "identity_key") for site in sorted(helper.datasets())}
    for site in keys:
        (data / site / "roster.json").write_text(json.dumps(keys))
    engine = helper.Engine(tmp_path / "work", data, settings_of("capedjica", key_trust="pinned"))
    before = IdentityFiles(folders=(data / "local0",)).digest_now()
    engine.exchange()
    home = data / "local0"
    if changed in ("identity_key", "both", "taken away"):
        (home / "identity_key").unlink()
    if changed in ("identity_key", "both"):
        keys["local0"] = make_key(home / "identity_key")
    if changed in ("roster.json", "both"):
        (home / "roster.json").write_text(json.dumps({**keys, "local1": "11" * 32}))
    assert IdentityFiles(folders=(home,)).digest_now() != before
    with pytest.raises(ConfigError, match="of site local0 changed since the run began"):
        engine.ask("local0")
    engine.take("local1", engine.ask("local1"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"epsilon":', b'"x":1e400,"epsilon":'),
        (b'"epsilon":', b'"data":"\\ud800","epsilon":'),
        (b'"epsilon":', b'"\\uDFFF":1,"epsilon":'),
        (b'"clientId":"local0"', b'"clientId":"\\udc00"'),
        (b'"clientId":"local0"', b'"clientId":"a\\u0000b"'),
        (b"/data/", b"/da\\u0000ta/"),
        (b'/output"', b'/out\\u0000put"'),
    ],
    ids=str,
)
def test_numbers_and_texts_that_no_file_can_hold_are_refused_by_name(tmp_path, old, new) -> None:
    data = helper.write_data(tmp_path / "data")
    engine = helper.Engine(tmp_path / "work", data, settings_of("capedjica"))
    damaged = engine.document("local0", engine.input).replace(old, new)
    assert new in damaged
    with pytest.raises(CapeError, match=r"E158|E202"):
        engine.call("local", damaged, {})


@pytest.mark.parametrize("part", [b"[]", b"{}", b"0", b'""'])
def test_a_document_of_many_small_parts_is_refused_before_it_is_parsed(part) -> None:
    """Two bytes of text become a list of 56 and more."""
    text = b"[" + (part + b",") * 2**20 + part + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match=r"E202 .* more than 1048576 parts"):
            wire.loads(text, 2**27)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    few = b"[" + (part + b",") * 1000 + part + b"]"
    assert len(wire.loads(few)) == 1001


def test_a_character_of_two_halves_is_one() -> None:
    assert wire.loads(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
    assert wire.loads('["\\\\ud800"]') == ["\\ud800"]  # a backslash and letters
