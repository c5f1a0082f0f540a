"""A release to one half of the people, at the one door.

Belongs to `cape/protocol/secure_sum.py`.
"""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cape.errors import DataError, PrivacyBudgetError
from cape.privacy.halves import halves, size_of_half
from cape.protocol import secure_sum
from cape.protocol.ports import Stacks, View
from cape.protocol.secure_sum import Release, half_of, site_is_asked
from support import wiretap
from support.auditor import coins, half_places

NAMES = tuple(f"sub-{i:02d}" for i in range(9))
MODEL: Any = SimpleNamespace(fingerprint="a1b2")
GROUPS = {name: "patient" if i < 4 else "control" for i, name in enumerate(NAMES)}


class Kept:
    """A site, as far as the door asks it for halves."""

    def __init__(self) -> None:
        self.id, self.secrets = "local0", {}
        self.ledger = SimpleNamespace(events=())

    def keep(self, name: str, secret: bytes) -> None:
        self.secrets[name] = secret

    def secret(self, name: str) -> bytes:
        return self.secrets[name]


def event(part: str, phase: str = "") -> Any:
    return SimpleNamespace(part=part, phase=phase or part, round=1)


def stacks(names: tuple[str, ...] = NAMES) -> Stacks:
    values = np.arange(len(names), dtype=np.float32)[:, None, None]
    return Stacks(arrays=(values[:4], values[4:]), labels=(names[:4], names[4:]))


def asked(site: Any, part: str, subjects: Any = None, cells: Any = GROUPS, phase: str = "") -> set:
    one = event(part, phase)
    half = half_of(site, MODEL, one, subjects or stacks(), cells)
    site.ledger.events = (*site.ledger.events, one)
    kept = half.stacks if isinstance(half, View) else half
    for array, labels in zip(kept.arrays, kept.labels, strict=True):
        assert [NAMES[int(value)] for value in array[:, 0, 0]] == list(labels)
    return {name for labels in kept.labels for name in labels}


def test_each_half_is_asked_once_and_both_are_everybody() -> None:
    site = Kept()
    first, second = asked(site, "A"), asked(site, "B")
    assert first | second == set(NAMES)
    assert not first & second
    found = halves("a1b2", "local0", GROUPS)
    assert first == {name for name in NAMES if found[name] == "A"}
    n_patients = size_of_half("a1b2", "local0", "patient", 4, "A")
    assert len([name for name in first if GROUPS[name] == "patient"]) == n_patients == 2
    view = View(stacks=stacks(), one=lambda Y: Y)
    assert asked(site, "A", view, phase="again") == first


CHANGED = {
    "a person more": (stacks((*NAMES[:8], "sub-99")), GROUPS | {"sub-99": "control"}),
    "another group": (stacks(), GROUPS | {"sub-00": "control"}),
}


@pytest.mark.parametrize("what", CHANGED)
def test_halves_that_would_overlap_are_refused(what) -> None:
    """The table of groups changed between the two halves: somebody would be asked in both."""
    site = Kept()
    asked(site, "A")
    with pytest.raises(DataError, match="E161") as caught:
        asked(site, "B", *CHANGED[what])
    assert "overlap" in caught.value.detail
    assert "sub-" not in caught.value.public


@pytest.mark.parametrize("order", ["AB", "BA"])
def test_halves_of_sites_and_of_people_are_not_mixed(order, monkeypatch) -> None:
    """Two stages of a run, one by sites and one by people: half of a site bore both."""
    monkeypatch.setattr(secure_sum, "site_is_asked", lambda *_: True)
    whole = SimpleNamespace(by_site=lambda config: True, cells=None)
    release: Any = Release(stage=cast(Any, whole), config=cast(Any, None), then=())
    site: Any = Kept()
    release._half(site, MODEL, event(order[0]), stacks())
    site.ledger.events = (event(order[0]),)
    release._half(site, MODEL, event(order[0], "again"), stacks())
    with pytest.raises(DataError, match="E161"):
        asked(site, order[1])
    site = Kept()
    asked(site, order[0])
    with pytest.raises(DataError, match="E161"):
        release._half(site, MODEL, event(order[1]), stacks())


def test_halves_of_sites_are_those_of_the_fingerprint_that_was_settled(monkeypatch) -> None:
    """A constant was pinned: after a step back with other keys a site could be in both halves."""
    monkeypatch.setattr(secure_sum, "site_is_asked", lambda *_: True)
    whole = SimpleNamespace(by_site=lambda config: True, cells=None)
    release: Any = Release(stage=cast(Any, whole), config=cast(Any, None), then=())
    site: Any = Kept()
    release._half(site, MODEL, event("A"), stacks())
    site.ledger.events = (event("A"),)
    with pytest.raises(DataError, match="E161"):
        release._half(site, SimpleNamespace(fingerprint="c3d4"), event("B"), stacks())


def test_the_first_half_may_be_asked_again_before_it_was_answered() -> None:
    site = Kept()
    one = asked(site, "A")
    site.ledger.events = ()  # the process died before its state was stored
    assert asked(site, "A") == one


def test_the_other_releases_of_a_round_that_is_repeated_settle_nothing() -> None:
    """All of a round ask one half, which nobody was told before the round was answered."""
    site = Kept()
    asked(site, "A")
    beside = event("A")
    beside.field = "beside"
    site.ledger.events = (*site.ledger.events, beside)
    changed = CHANGED["a person more"]
    assert "sub-99" in {*changed[0].labels[1]}
    half_of(cast(Any, site), MODEL, event("A"), *changed)
    with pytest.raises(DataError, match="E161"):
        half_of(cast(Any, site), MODEL, event("B"), stacks(), GROUPS)


def test_people_listed_twice_or_in_no_cell_have_no_half() -> None:
    with pytest.raises(PrivacyBudgetError, match="twice or in no cell"):
        asked(Kept(), "A", stacks((*NAMES[:8], NAMES[0])))
    with pytest.raises(PrivacyBudgetError, match="twice or in no cell"):
        asked(Kept(), "A", cells={name: "patient" for name in NAMES[1:]})


@pytest.mark.parametrize("part", ["", "A", "B"])
def test_the_sum_of_a_run_holds_the_half_that_was_asked(part) -> None:
    """Without noise every entry of the sum shows whether its subject was asked."""
    bits = coins(60)
    link, owned = wiretap.canary_run(bits, n_rounds=1, part=part, private=False)
    link.until("canary")
    places = half_places(link, owned, 60)
    link.exchange()
    total = sum((reply.total for reply in link.replies.values()), np.zeros(60, dtype=np.uint64))
    signs = np.sign(total.view(np.int64))
    np.testing.assert_array_equal(signs, np.where((places == part) | (part == ""), bits, 0))


def test_halves_of_sites_ask_everybody_of_a_site_or_nobody() -> None:
    """The two halves are all sites; who is asked in A is not asked in B."""
    bits = coins(60)
    for part in ("A", "B"):
        link, owned = wiretap.canary_run(bits, n_rounds=1, part=part, by_site=True, private=False)
        link.until("canary")
        model = link._state.model
        asked = {site: site_is_asked(site, model, event(part)) for site in owned}
        other = {site: site_is_asked(site, model, event("AB".strip(part))) for site in owned}
        assert all(asked[site] != other[site] for site in owned)
        link.exchange()
        total = sum((reply.total for reply in link.replies.values()), np.zeros(60, dtype=np.uint64))
        seen = np.sign(total.view(np.int64))
        for site, own in owned.items():
            np.testing.assert_array_equal(seen[own], bits[own] if asked[site] else 0 * bits[own])
