"""A site's mask is seen by nobody before all sites are known to have the same one."""

from dataclasses import replace

import numpy as np
import pytest

from cape.errors import ConfigError, ConsortiumError, MessageError, PrivacyBudgetError
from cape.protocol import wire
from cape.protocol.model import joined
from cape.space.feature_space import FeatureSpace
from support import consortium as helper

changed, canonical = helper.changed, helper.canonical
AFFINE = np.diag([4.0, 4, 4, 1])


def atlas(turn: int = 0) -> FeatureSpace:
    """Return a grid of 12 parcels and some background."""
    labels = np.roll(np.arange(60) % 13, turn).astype(np.int32)
    return FeatureSpace.of_labels("atlas", labels.reshape(5, 4, 3), AFFINE)


def consortium(aggregation: str = "all-sites", turns: tuple[int, ...] = (0, 0, 0)):
    run = helper.Consortium("capedjica", feature_space="atlas", aggregation=aggregation)
    for party, turn in zip(run.parties.values(), turns, strict=True):
        party.source.space = atlas(turn)
    return run


both = pytest.mark.parametrize("aggregation", ["all-sites", "secagg"])


@both
def test_labels_travel_after_join_once(aggregation) -> None:
    run = consortium(aggregation)
    packed = atlas().packed.encode()
    run.exchange()
    for message in (*run.sent[0].values(), run.request):
        assert packed not in canonical(message.body)
    assert joined(run.state.model).space == atlas().outline()
    run.exchange()
    assert canonical(run.request.body).count(packed) == 1
    run.play()
    assert run.outcome.space == atlas()
    assert run.outcome.run == run.request.run
    assert all(joined(state.model).space == atlas() for state in run.runs.values())
    later = [message.body for inbox in run.sent[2:] for message in inbox.values()]
    assert not any(packed in canonical(body) for body in later)


@both
def test_labels_that_all_sites_cannot_send_at_once_are_refused_before_any_charge(
    aggregation, monkeypatch
) -> None:
    run = consortium(aggregation)
    run.exchange()
    monkeypatch.setattr(wire, "MAX_DOCUMENT", 3 * len(atlas().packed) - 1)
    with pytest.raises(ConfigError, match="E145 the labels of the mask, from 3 sites"):
        run.exchange()
    assert all(state.ledger is None for state in run.runs.values())


@both
def test_a_mask_that_differs_is_refused_by_its_hash_and_never_sent(aggregation) -> None:
    run = consortium(aggregation, (0, 0, 1))
    inbox = run.answers()
    with pytest.raises(ConsortiumError, match=r"E124 The mask or atlas differs"):
        run.combine(inbox)
    space = inbox["local2"].body.space
    assert (space.packed, space.digest) == ("", atlas(1).digest)


@both
def test_labels_other_than_those_of_the_digest_are_refused_by_everybody(aggregation) -> None:
    run = consortium(aggregation)
    run.exchange()
    inbox = run.answers()
    lying = {**inbox, "local1": changed(inbox["local1"], labels=atlas(1).packed)}
    with pytest.raises(MessageError, match="agreed digest"):
        run.combine(lying)
    run.go_on(run.combine(inbox))
    told = changed(run.request, labels=atlas(1).packed)
    for site in run.parties:
        with pytest.raises(MessageError, match="agreed digest"):
            run.answer(site, told)
        run.answer(site)


def test_a_roster_that_brings_labels_is_refused(monkeypatch) -> None:
    run = consortium()
    run.exchange()
    space = replace(run.request.body.space, packed=atlas().packed)
    lie = changed(run.request, space=space)
    with pytest.raises(MessageError, match="E202"):  # the run is named after another roster
        run.answer("local0", lie)
    named = run.parties["local0"].digest(lie.body)[:16].hex()
    with pytest.raises(PrivacyBudgetError, match="E231"):
        run.answer("local0", replace(lie, run=named))
