"""`join`: what must be equal everywhere is compared, and every difference is named."""

import dataclasses
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cape.errors import CapeError, ConfigError, ConsortiumError
from cape.privacy.cost import Event
from cape.protocol.join import RunPlan, by_sizes, compare_cards, join, make_roster
from cape.protocol.messages import FORMAT, FeatureSpace, SiteCard
from cape.protocol.model import Model, Roster, joined
from cape.protocol.phases import Attendance
from cape.protocol.ports import Stacks
from cape.settings.config import VERSION, Config

CONFIG = Config(epsilon=1.0, delta=1e-5, n_sites=3)
SPACE = FeatureSpace.of_matrix(6)
EVENT = Event(
    phase="pca", round=1, field="total", shape="psd", size=21, log2_gamma=17, clip_int=10**6,
    delta_int=1414220, variance=10**12, shares=2,
)  # fmt: skip
RUN_PLAN = RunPlan(releases=(EVENT,), n_basis=5, warnings=("a warning",))


def planned(*_: Any) -> RunPlan:
    return RUN_PLAN


def card(i: int, **changed: Any) -> SiteCard:
    fields: dict[str, Any] = {
        "protocol": FORMAT, "version": VERSION, "computation": "toy",
        "settings": json.dumps(CONFIG.settings(), sort_keys=True), "nonce": f"{i:032x}",
        "n_subjects": 5 + i, "space": SPACE, "noise": "os",
    }  # fmt: skip
    return SiteCard(**(fields | changed))


def cards(**changed: Any) -> dict[str, SiteCard]:
    """Return three cards; `changed` is what site B says otherwise."""
    return {"A": card(0), "B": card(1, **changed), "C": card(2)}


def settings(**changed: Any) -> str:
    return json.dumps({**CONFIG.settings(), **changed}, sort_keys=True)


IMAGE = FeatureSpace.of_labels("mask", np.ones((2, 3, 1), np.int32), np.diag([2.0, 2, 2, 1]))


def test_equal_cards_pass() -> None:
    compare_cards(cards(), CONFIG)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"protocol": 2}, "E155 Versions differ between sites: A has 1, B has 2, C has 1. Install"),
        ({"version": "9"}, f"E155 Versions differ between sites: A has {VERSION}, B has 9, C has"),
        ({"computation": "x"}, "E204 computation differs: A has toy, B has x, C has toy; the run"),
        (
            {"settings": settings(epsilon=2.0)},
            "E151 Settings differ between sites: epsilon: A has 1.0, B has 2.0, C has 1.0. All",
        ),
        (
            {"settings": settings(extra=1, delta=1e-6)},
            "E151 Settings differ between sites: delta: A has 1e-05, B has 1e-06, C has 1e-05; "
            "extra: A has None, B has 1, C has None. All",
        ),
        (
            {"space": FeatureSpace.of_matrix(7)},
            "E144 The number of features differs between sites: A has 6, B has 7, C has 6; use",
        ),
        ({"space": IMAGE}, "E124 The grid differs between sites: A has ('matrix', ()), B has"),
        (
            {"space": replace(SPACE, affine=(1.0,))},
            "E124 The affine differs between sites: A has (), B has (1.0,), C has (); map",
        ),
        (
            {"space": replace(SPACE, digest="00")},
            f"E250 The columns of the tables differ between sites: A has {SPACE.digest}, B has 00",
        ),
        (
            {"counts": (3, 2)},
            "E204 number of public cells differs: A has 0, B has 2, C has 0; the run",
        ),
        ({"nonce": f"{2:032x}"}, "E204 nonce differs: B, C sent the same one; the run ends"),
    ],
)
def test_a_difference_is_named_with_its_sites(changed, expected) -> None:
    with pytest.raises(ConsortiumError) as caught:
        compare_cards(cards(**changed), CONFIG)
    assert caught.value.public.startswith(f"CAPE-{expected}")


def test_people_in_groups_are_people_of_the_site() -> None:
    own = {name: card(i, counts=(2, 3)) for i, name in enumerate("ABC")}
    compare_cards(own, CONFIG)
    for counts in ((3, 4), (-1, 3)):
        with pytest.raises(
            ConsortiumError, match="E204 number of people in public cells differs: B"
        ):
            compare_cards(own | {"B": card(1, counts=counts)}, CONFIG)
    found = make_roster(own | {"C": card(2, counts=(2, 3), lacks=("volume",))}, CONFIG, planned)
    assert [entry.counts for entry in found.sites] == [(2, 3)] * 3
    assert [entry.lacks for entry in found.sites] == [(), (), ("volume",)]


def test_fewer_sites_than_the_owner_allows_are_refused() -> None:
    two = {"A": card(0), "B": card(1)}
    with pytest.raises(
        ConfigError, match="E152 2 sites joined, but min_sites is 3; wait for all sites"
    ):
        compare_cards(two, replace(CONFIG, n_sites=0))
    compare_cards(two, replace(CONFIG, n_sites=2, min_sites=2))


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"n_sites": 4}, "3 sites joined, but n_sites is 4"),
        ({"n_sites": 2, "min_sites": 2}, "3 sites joined, but n_sites is 2"),
        (
            {"n_sites": 0, "site_names": "A,B,C,D"},
            "the sites are A, B, C, but site_names says A,B,C,D",
        ),
        ({"site_names": "A,B,X"}, "the sites are A, B, C, but site_names says A,B,X"),
    ],
)
def test_sites_are_those_that_the_owner_counts_and_names(said, problem) -> None:
    compare_cards(cards(), replace(CONFIG, site_names="C, B,A"))
    with pytest.raises(ConfigError) as caught:
        compare_cards(cards(), replace(CONFIG, **said))
    assert caught.value.public.startswith(f"CAPE-E152 {problem};")


def test_sites_that_share_the_noise_need_an_owner_who_says_how_many_they_are() -> None:
    """Site and aggregator refuse; whole noise at each site, or none, needs no number."""
    phase = join("toy", planned, then="next")
    for said in ({"n_sites": 3}, {"site_names": "A,B,C"}, {"noise": "local"}, {"private": False}):
        config = replace(CONFIG, **{"n_sites": 0, **said})
        site = fake()
        site.config = config
        phase.answer(site, Model())
        make_roster(cards(), config, planned)
    site = fake()
    site.config = unsaid = replace(CONFIG, n_sites=0)
    with pytest.raises(ConfigError, match="E013 setting 'n_sites' is required; the owner says how"):
        phase.answer(site, Model())
    assert "data" not in site.log
    with pytest.raises(ConfigError, match="E013"):
        make_roster(cards(), unsaid, planned)


def test_the_roster_lists_the_sites_and_the_whole_plan() -> None:
    seen = []

    def plan(*given: Any) -> RunPlan:
        seen.append(given)
        return RUN_PLAN

    planner = by_sizes(plan)
    roster = make_roster(cards(), CONFIG, planner)
    assert seen == [(CONFIG, 3, 18, SPACE)]
    assert [(e.site, e.nonce, e.n_subjects) for e in roster.sites] == [
        ("A", f"{0:032x}", 5), ("B", f"{1:032x}", 6), ("C", f"{2:032x}", 7)
    ]  # fmt: skip
    assert (roster.n_sites, roster.n_subjects, roster.n_basis) == (3, 18, 5)
    assert (roster.colluders, roster.survivors, roster.noise_shares) == (1, 3, 2)
    assert roster.plan == (EVENT,)
    assert roster.config == CONFIG.digest()
    assert roster.warnings == ("a warning",)
    assert not roster.seeded
    assert make_roster(cards(noise="seeded"), CONFIG, planner).seeded


@pytest.mark.parametrize("number", [3, 4, 100])
def test_as_many_colluders_as_sites_are_refused(number) -> None:
    config = replace(CONFIG, assumed_colluders=number)
    with pytest.raises(ConfigError, match=f"assumed_colluders={number} of 3 sites; allowed 0 to 2"):
        make_roster(cards(), config, planned)
    assert make_roster(cards(), replace(CONFIG, assumed_colluders=2), planned).noise_shares == 1


class FakeSite(SimpleNamespace):
    def cached(self, name, key, build):
        self.log.append("data")
        return Stacks(
            arrays=(np.zeros((2, 5, 40)), np.zeros((1, 5, 44))), labels=(("a", "b"), ("c",))
        )

    def admit(self, facts):
        self.log.append(type(facts).__name__)
        if type(facts).__name__ == self.refuses:
            raise ConfigError("E012", problem="refused", do="stop")


def fake(refuses: str = "") -> Any:
    noise = SimpleNamespace(label="os")
    noise.stream = lambda *context: noise
    noise.token_bytes = bytes
    source = SimpleNamespace(space=SPACE, n_subjects=4)
    config = replace(CONFIG, feature_space="matrix")
    return FakeSite(id="A", config=config, noise=noise, source=source, refuses=refuses, log=[])


def test_a_site_asks_its_policy_before_and_after_it_reads_its_data() -> None:
    phase = join("toy", planned, then="next")
    site = fake()
    sent = phase.answer(site, Model())
    assert site.log == ["NoneType", "data", "SiteCard"]
    assert (sent.n_subjects, sent.nonce) == (4, "00" * 16)
    assert json.loads(sent.settings) == site.config.settings()
    for refuses, seen in (
        ("NoneType", ["NoneType"]),
        ("SiteCard", ["NoneType", "data", "SiteCard"]),
    ):
        site = fake(refuses)
        with pytest.raises(ConfigError, match="refused"):
            phase.answer(site, Model())
        assert site.log == seen


def test_the_phase_compares_makes_the_roster_and_opens_the_next_one() -> None:
    phase = join("toy", planned, then="next")
    party = SimpleNamespace(config=CONFIG, addresses=True)
    roster, then = phase.combine(party, cards(), Model())
    assert (type(roster), then, phase.then) == (Roster, "next", ("next",))
    assert phase.absorb(Model(), roster).roster == roster
    with pytest.raises(CapeError, match="E155"):
        phase.combine(party, cards(version="9"), Model())


def test_the_roster_repeats_what_the_cards_say() -> None:
    said = {
        site: dataclasses.replace(card, counts=(1, 3), lacks=(site,))
        for site, card in cards().items()
    }
    listed = make_roster(said, CONFIG, planned).sites
    assert [(e.counts, e.lacks) for e in listed] == [((1, 3), (s,)) for s in said]


def test_the_roster_fixes_who_is_asked() -> None:
    roster = make_roster(cards(), CONFIG, planned)
    assert Model(roster=roster).attendance() == Attendance(sites=("A", "B", "C"), least=3)
    assert Model().attendance() is None
    with pytest.raises(RuntimeError, match="no roster before join"):
        joined(Model())


@pytest.mark.parametrize(
    ("colluders", "survivors", "expected"), [(1, 2, 3), (1, 3, 3), (0, 3, 3), (2, 3, 3), (1, 4, 0)]
)
def test_survivors_that_protect_nobody_are_refused(colluders, survivors, expected) -> None:
    """Needed: S_C < t <= S and 2 t > S + S_C."""
    config = replace(
        CONFIG, aggregation="secagg", assumed_colluders=colluders, min_survivors=survivors
    )
    if expected:
        assert make_roster(cards(), config, planned).survivors == expected
        return
    with pytest.raises(ConfigError, match=r"E152 min_survivors=., assumed_colluders=. of 3 sites"):
        make_roster(cards(), config, planned)


def test_a_card_has_no_field_for_anything_of_the_content_of_data() -> None:
    """M_s is what a list says; a space is the mask's, or the layout of tables."""
    # A commitment hides 32 bytes that are drawn like a nonce.  Counts are of levels whose column
    # the site's own policy names
    # (`test_counts_leave_only_under_a_setting_that_names_their_column`), and what it lacks is what
    # the site states there.  Software is the version of numpy.
    assert {spec.name for spec in dataclasses.fields(SiteCard)} == {
        "protocol", "version", "computation", "settings", "nonce", "n_subjects", "space", "noise",
        "commitment", "counts", "lacks", "software",
    }  # fmt: skip


def test_several_versions_of_numpy_are_told_to_all_and_stop_nobody() -> None:
    """With one seed, 2.4 and 2.5 gave other bytes, and nobody could see why."""
    same = {site: replace(one, software="numpy 2.4.1") for site, one in cards().items()}
    assert (
        make_roster(same, CONFIG, planned).warnings
        == make_roster(cards(), CONFIG, planned).warnings
    )
    other = {**same, "B": replace(same["B"], software="numpy 2.5.0")}
    compare_cards(other, CONFIG)
    warning = make_roster(other, CONFIG, planned).warnings[-1]
    assert warning.endswith("differs in last bits: numpy 2.4.1: A, C; numpy 2.5.0: B.")
