"""The plan: made by the aggregator from the settings, believed by no site."""

import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from cape.algorithms.estimators import PlannedRelease
from cape.computations import capedjica, capegica, load
from cape.computations.ica.settings import sized
from cape.data.space import mask_space
from cape.errors import CapeError, ConfigError, PrivacyBudgetError
from cape.planning.budget import budget_of
from cape.privacy.cost import FREE, Event
from cape.privacy.ledger import Budget, Plan
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Roster, RosterEntry
from cape.protocol.plan import PlannedStage, make_plan, noise_shares_of, verify_plan
from cape.settings.config import Config
from cape.settings.resolved import resolve

CONFIG = Config(epsilon=1.0, delta=1e-5)
SIZES = {"local0": 5, "local1": 7, "local2": 4, "local3": 9}


def asked(
    size: int = 10, clip: float = 1.0, shape: Any = "ball", weight: float = 1.0
) -> PlannedRelease:
    return PlannedRelease(size=size, clip=clip, shape=shape, weight=weight)


STAGES = (
    PlannedStage(phase="pca", releases=(asked(size=21, shape="psd"),), mu2_weight=0.4),
    PlannedStage(phase="iterate", releases=(asked(weight=1.0), asked(weight=3.0)), mu2_weight=0.6),
)


def plan_of(config: Config = CONFIG, stages: Any = STAGES) -> tuple[Event, ...]:
    return make_plan(config, stages, n_sites=len(SIZES), n_subjects=sum(SIZES.values()))


def roster_of(own: Config = CONFIG, stages: Any = STAGES, /, **changed: Any) -> Roster:
    fields = {
        "sites": tuple(
            RosterEntry(site=site, nonce=f"{i}" * 32, n_subjects=n)
            for i, (site, n) in enumerate(SIZES.items())
        ),
        "config": own.digest(), "space": FeatureSpace.of_matrix(6), "n_basis": 6,
        "colluders": own.colluders(4), "survivors": 4, "seeded": False,
        "plan": plan_of(own, stages), "warnings": (),
    }  # fmt: skip
    return Roster(**(fields | changed))


def verify(roster: Roster, config: Config = CONFIG, stages: Any = STAGES) -> None:
    verify_plan(SimpleNamespace(id="local1", config=config), roster, stages, n_basis=roster.n_basis)


# -- made ------------------------------------------------------------------------------------------


def test_the_plan_spends_the_budget_and_no_more() -> None:
    plan = plan_of()
    mu2 = Budget.of(epsilon=1.0, delta=1e-5).cost.mu2
    total = sum((event.cost for event in plan), FREE).mu2
    assert total <= mu2
    assert float(total / mu2) == pytest.approx(1.0, abs=1e-5)
    assert [(e.phase, e.round, e.field) for e in plan] == [
        ("pca", 1, "total"), ("iterate", 1, "total"), ("iterate", 2, "total")
    ]  # fmt: skip
    parts = [float(event.cost.mu2 / total) for event in plan]
    assert parts == pytest.approx([0.4, 0.15, 0.45], abs=1e-4)


@pytest.mark.parametrize(
    ("changed", "shares"),
    [
        ({}, 3),
        ({"assumed_colluders": 0}, 4),
        ({"assumed_colluders": 3}, 1),
        ({"noise": "local"}, 1),
    ],
)
def test_noise_is_calibrated_for_the_shares_that_nobody_can_subtract(changed, shares) -> None:
    config = replace(CONFIG, **changed)
    assert noise_shares_of(config, 4) == shares
    plan = plan_of(config)
    assert {event.shares for event in plan} == {shares}
    one = plan_of(replace(CONFIG, assumed_colluders=3))
    # the total noise of h shares is that of one
    for event, alone in zip(plan, one, strict=True):
        scale = Fraction(4) ** (event.log2_gamma - alone.log2_gamma)
        assert float(event.variance * shares / (alone.variance * scale)) == pytest.approx(
            1, rel=1e-3
        )


def test_weights_are_relative_and_stages_without_a_release_take_none() -> None:
    doubled = tuple(replace(stage, mu2_weight=2 * stage.mu2_weight) for stage in STAGES)
    assert plan_of(stages=doubled) == plan_of()
    empty = (*STAGES, PlannedStage(phase="whitening", releases=(), mu2_weight=5.0))
    assert plan_of(stages=empty) == plan_of()


def test_a_fixed_mu_comes_first_and_the_rest_is_shared() -> None:
    budget = Budget.of(epsilon=1.0, delta=1e-5)
    mu = budget.mu / 4
    stages = (STAGES[0], replace(STAGES[1], fixed_mu=mu))
    plan = plan_of(stages=stages)
    assert [math.sqrt(e.cost.mu2) for e in plan[1:]] == pytest.approx([mu, mu], rel=1e-5)
    assert all(event.cost.mu2 <= Fraction(mu) ** 2 for event in plan[1:])
    left = budget.cost.mu2 * (1 - 2 * Fraction(1, 16))
    assert float(plan[0].cost.mu2 / left) == pytest.approx(1.0, abs=1e-5)


def test_both_halves_have_what_is_left_of_the_budget() -> None:
    """The half that is asked more takes it all; the other has its weight of that."""
    halves = (
        STAGES[0],
        PlannedStage(phase="find", releases=(asked(),), mu2_weight=0.6, part="A"),
        PlannedStage(phase="test", releases=(asked(),), mu2_weight=0.3, part="B"),
    )
    plan = plan_of(stages=halves)
    mu2 = Budget.of(epsilon=1.0, delta=1e-5).cost.mu2
    shares = [float(event.cost.mu2 / mu2) for event in plan]
    assert shares == pytest.approx([0.4, 0.6, 0.3], abs=1e-4)
    assert [event.part for event in plan] == ["", "A", "B"]
    assert sum(event.cost.mu2 for event in plan[:2]) <= mu2
    verify(roster_of(CONFIG, halves), stages=halves)
    with pytest.raises(PrivacyBudgetError, match="another half"):
        verify(roster_of(CONFIG, halves), stages=(*halves[:2], replace(halves[2], part="A")))
    none = plan_of(replace(CONFIG, private=False), halves)
    assert [event.part for event in none] == ["", "A", "B"]


@pytest.mark.parametrize("factor", [0.71, 1.0, 10.0])
def test_fixed_rounds_that_leave_nothing_are_refused_with_figures(factor) -> None:
    mu = Budget.of(epsilon=1.0, delta=1e-5).mu
    stages = (STAGES[0], replace(STAGES[1], fixed_mu=factor * mu))
    with pytest.raises(PrivacyBudgetError) as caught:
        plan_of(stages=stages)
    text = caught.value.public
    assert text.startswith("CAPE-E230 the fixed rounds of pca needs mu ")
    assert f"{math.sqrt(2) * factor * mu:.6g}" in text
    assert f"{mu:.6g} of {mu:.6g} is left" in text
    assert "raise epsilon" in text


def test_fixed_rounds_alone_past_the_budget_are_refused_with_what_would_fit() -> None:
    mu = Budget.of(epsilon=1.0, delta=1e-5).mu
    rounds = PlannedStage(
        phase="iterate", releases=(asked(),) * 5, mu2_weight=1.0, fixed_mu=0.6 * mu
    )
    with pytest.raises(PrivacyBudgetError, match=r"plan of 5 releases .*the first 2 fit; .*raise"):
        plan_of(stages=(rounds,))


def test_a_run_without_noise_has_a_plan_without_a_budget() -> None:
    plan = plan_of(replace(CONFIG, private=False))
    assert {event.variance for event in plan} == {0}
    assert not Plan(releases=plan).private


def test_a_sum_that_could_leave_the_integers_is_refused() -> None:
    config = replace(CONFIG, epsilon=1000.0, delta=1e-15)
    with pytest.raises(ConfigError, match="E221 the sum may reach"):
        make_plan(config, STAGES, n_sites=4, n_subjects=2**45)


def test_a_delta_that_gives_one_person_away_has_no_plan_in_any_computation() -> None:
    with pytest.raises(ConfigError, match="E011 delta=1e-05: allowed less than 1/200000"):
        make_plan(CONFIG, STAGES, n_sites=4, n_subjects=200_000)
    assert make_plan(replace(CONFIG, private=False), STAGES, n_sites=4, n_subjects=200_000)


def in_rounds(*rounds: int) -> PlannedStage:
    """Return a stage of releases, each of another weight, in these rounds."""
    releases = tuple(
        replace(asked(weight=1.0 + i), round=number, name=f"look{i}")
        for i, number in enumerate(rounds)
    )
    return PlannedStage(phase="look", releases=releases, mu2_weight=1.0)


def test_the_releases_of_a_round_are_planned_one_by_one() -> None:
    plan = plan_of(stages=(in_rounds(1, 1, 2, 2, 2),))
    places = [(event.round, event.field) for event in plan]
    assert places == [(1, "look0"), (1, "look1"), (2, "look2"), (2, "look3"), (2, "look4")]
    total = sum((event.cost for event in plan), FREE).mu2
    shares = [float(event.cost.mu2 / total) for event in plan]
    assert shares == pytest.approx([n / 15 for n in (1, 2, 3, 4, 5)], rel=1e-5)
    none = plan_of(replace(CONFIG, private=False), (in_rounds(1, 1, 2, 2, 2),))
    assert [(event.round, event.field) for event in none] == places
    for config in (CONFIG, replace(CONFIG, private=False)):
        stages = (in_rounds(1, 1, 2, 2, 2),)
        verify(roster_of(config, stages), config, stages)


def test_a_release_without_a_round_has_an_exchange_of_its_own() -> None:
    assert [event.round for event in plan_of(stages=(in_rounds(0, 0, 0),))] == [1, 2, 3]
    assert [event.round for event in plan_of(stages=(in_rounds(1, 1, 2),))] == [1, 1, 2]


@pytest.mark.parametrize("rounds", [(2,), (1, 3), (1, 2, 1), (2, 1), (1, 1, 0), (0, 0, 2, 1)])
def test_rounds_that_skip_or_go_back_cannot_be_planned(rounds) -> None:
    """The run counts them 1, 2, ..: at a number that is missing it would end, budget spent."""
    with pytest.raises(ConfigError, match=r"E232 .*rounds of look do not count 1, 2"):
        in_rounds(*rounds)


def test_two_releases_of_a_round_with_one_name_cannot_be_planned() -> None:
    twins = replace(in_rounds(1, 1), releases=(replace(asked(), round=1),) * 2)
    with pytest.raises(ConfigError, match="a release is planned twice"):
        plan_of(stages=(twins,))


# -- checked by a site -----------------------------------------------------------------------------


def test_an_honest_plan_is_accepted() -> None:
    verify(roster_of())
    config = replace(CONFIG, private=False)
    verify(roster_of(config), config)


def event_changed(i: int, **changed: Any) -> tuple[Event, ...]:
    plan = plan_of()
    return (*plan[:i], replace(plan[i], **changed), *plan[i + 1 :])


E0 = plan_of()[0]
E1 = plan_of()[1]
LIES = {
    "less noise": {"plan": event_changed(0, variance=E0.variance // 2)},
    "a little less noise": {"plan": event_changed(0, variance=E0.variance - E0.variance // 1000)},
    "no noise": {"plan": event_changed(0, variance=0)},
    "hardly noise": {"plan": event_changed(0, variance=2**19)},
    "too much noise": {"plan": event_changed(0, variance=2**57)},
    "a smaller sensitivity": {"plan": event_changed(0, delta_int=E0.delta_int - 1)},
    "a larger clip": {"plan": event_changed(0, clip_int=E0.clip_int + 1)},
    "a larger clip, consistently": {
        "plan": event_changed(1, clip_int=4 * E1.clip_int, delta_int=4 * E1.delta_int)
    },
    "another scale": {"plan": event_changed(1, log2_gamma=E1.log2_gamma - 1)},
    "more shares": {"plan": event_changed(0, shares=4)},
    "more shares, less noise": {
        "plan": event_changed(0, shares=4, variance=E0.variance * 3 // 4 + 1)
    },
    "other zero-sum noise": {"plan": event_changed(0, seed_ratio=E0.seed_ratio + 1)},
    "a longer vector": {"plan": event_changed(0, size=E0.size + 1)},
    "a shorter vector": {"plan": event_changed(1, size=E1.size - 1)},
    "another shape": {"plan": event_changed(1, shape="psd")},
    "one more round": {"plan": (*plan_of(), replace(plan_of()[2], round=3))},
    "one round less": {"plan": plan_of()[:-1]},
    "another phase": {"plan": event_changed(1, phase="leak")},
    "no plan": {"plan": ()},
    "fewer colluders": {"colluders": 0},
    "more colluders": {"colluders": 2},
    "fewer survivors": {"survivors": 3},
    "other settings": {"config": replace(CONFIG, epsilon=2.0).digest()},
    "another budget": {"plan": plan_of(replace(CONFIG, epsilon=2.0))},
    "another delta": {"plan": plan_of(replace(CONFIG, delta=1e-4))},
    "no privacy": {"plan": plan_of(replace(CONFIG, private=False))},
    "one half of all": {"plan": event_changed(1, part="A")},
    "one more release of a round": {"plan": (*plan_of(), replace(plan_of()[1], field="again"))},
    "another name": {"plan": event_changed(1, field="again")},
    "another order": {"plan": (*plan_of()[1:], plan_of()[0])},
    "a release twice": {"plan": (*plan_of(), plan_of()[1])},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_site_refuses_a_plan_that_is_not_its_own(lie) -> None:
    with pytest.raises(CapeError) as caught:
        verify(roster_of(**LIES[lie]))
    error = caught.value
    if isinstance(error, PrivacyBudgetError) and error.code == "CAPE-E231":
        assert "site local1" in error.public
    else:
        assert error.code in ("CAPE-E230", "CAPE-E232", "CAPE-E233"), error.public


def test_a_site_refuses_fewer_sites_than_the_settings_allow_and_empty_ones() -> None:
    """With one site its reply carries no mask at all; only the aggregator used to look."""
    honest = roster_of()
    empty = replace(honest.sites[0], n_subjects=0)
    for sites in ((empty, *honest.sites[1:]), (replace(empty, n_subjects=-5), *honest.sites[1:])):
        with pytest.raises(PrivacyBudgetError, match="a site has no subjects"):
            verify(replace(honest, sites=sites))
    # Weights of people follow from these counts, which the aggregator might make up.
    for counts in ((-1, 2), (1, honest.sites[1].n_subjects)):
        made_up = replace(honest.sites[1], counts=counts)
        with pytest.raises(PrivacyBudgetError, match="more people in cells than it has"):
            verify(replace(honest, sites=(honest.sites[0], made_up, *honest.sites[2:])))
    config = replace(CONFIG, min_sites=honest.n_sites + 1)
    with pytest.raises(PrivacyBudgetError, match="4 sites joined, but min_sites is 5"):
        verify(roster_of(config), config)


def test_a_site_refuses_sites_that_the_owner_did_not_count_or_name() -> None:
    """Whatever the plan says: it was computed for the sites that the aggregator lists."""
    names = ",".join(SIZES)
    for said in ({"n_sites": 4}, {"site_names": names}, {"n_sites": 4, "site_names": names}):
        config = replace(CONFIG, **said)
        verify(roster_of(config), config)
    for said, text in (
        ({"n_sites": 3}, "4 sites joined, but n_sites is 3"),
        ({"n_sites": 5}, "4 sites joined, but n_sites is 5"),
        (
            {"site_names": f"{names},more"},
            "the sites are local0, local1, local2, local3, but site_names says",
        ),
        ({"site_names": names.replace("local3", "other")}, "the sites are local0, local1, local2"),
    ):
        config = replace(CONFIG, **said)
        with pytest.raises(PrivacyBudgetError, match=f"E231 plan refused by site local1: {text}"):
            verify(roster_of(config), config)


def test_a_site_refuses_a_roster_that_is_out_of_order_or_names_a_site_twice() -> None:
    honest = roster_of()
    first, second, *rest = honest.sites
    for sites in ((second, first, *rest), (first, first, *rest)):
        with pytest.raises(PrivacyBudgetError, match="not in order, or one stands there twice"):
            verify(replace(honest, sites=sites))


def test_a_private_release_in_a_run_without_noise_is_refused() -> None:
    config = replace(CONFIG, private=False)
    with pytest.raises(PrivacyBudgetError, match="E231 plan refused by site local1"):
        verify(roster_of(config, plan=plan_of()), config)


def test_local_noise_counts_on_one_share_only() -> None:
    config = replace(CONFIG, noise="local")
    verify(roster_of(config), config)
    with pytest.raises(PrivacyBudgetError, match="other noise shares"):
        verify(roster_of(config, plan=plan_of()), config)


def test_a_sum_that_could_overflow_is_refused_by_the_site_too() -> None:
    large = tuple(
        RosterEntry(site=site, nonce=f"{i}" * 32, n_subjects=2**60) for i, site in enumerate(SIZES)
    )
    with pytest.raises(ConfigError, match="E221"):
        verify(roster_of(sites=large))


@pytest.mark.parametrize(("low_pass", "tr", "warned"), [
    (0.0, 2.0, False), (0.1, 2.0, True), (0.1, 0.0, True), (0.25, 2.0, False), (0.4, 2.0, False),
])  # fmt: skip
@pytest.mark.parametrize("planner", [capedjica.PLANNER, capegica.PLANNER], ids=lambda p: p.kind)
def test_a_low_pass_filter_that_takes_something_out_is_warned_of(low_pass, tr, warned, planner):
    given = {"epsilon": 8.0, "delta": 1e-5, "low_pass": low_pass, "tr": tr, "n_components": 5}
    config = planner.config.from_input(given)
    run_plan = planner.plan_run(config, 4, 1024, mask_space(config))
    assert [text for text in run_plan.warnings if "low_pass = 0.1 Hz" in text] == (
        list(run_plan.warnings[-1:]) if warned else []
    )
    named = {**given, "computation": f"cape{'g' if planner.kind == 'spatial' else 'dj'}ica"}
    budget = budget_of(named, n_sites=4, n_subjects=1024)
    assert ("low_pass" in " ".join(budget.warnings)) is warned


# -- R of spatial runs -----------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "d", "R"), [
    (0.5, 40, 12), (2.0, 64, 15), (4.0, 130, 18), (8.0, 240, 18),
])  # fmt: skip
def test_without_an_owners_word_r_and_d_follow_from_g(epsilon, d, R) -> None:
    given = {"epsilon": epsilon, "delta": 1e-5, "accept_low_quality": epsilon < 1}
    plan = budget_of({**given, "computation": "capegica"}, n_sites=4, n_subjects=256)
    assert (plan.n_basis, plan.n_components) == (d, R)
    assert f"follows from the effective size, {plan.verdict.g:.0f}" in plan.why_sizes
    config = load("capegica").config.from_input(given)
    space = mask_space(config)
    # A site finds the same from the roster, and the clip of the release is that of R.
    events = capegica.PLANNER.plan_run(config, 4, 256, space).releases
    clip = events[0].clip_int / 2.0 ** events[0].log2_gamma
    assert (len(events), clip) == (1, pytest.approx(math.sqrt(R), rel=1e-3))
    entries = (RosterEntry(site=f"local{i}", nonce=f"{i}" * 32, n_subjects=64) for i in range(4))
    roster = roster_of(config, (), plan=events, space=space, n_basis=d, sites=tuple(entries))
    site: Any = SimpleNamespace(id="local1", config=config)
    capegica.PLANNER.verify(site, roster)
    more = capegica.PLANNER.plan_run(replace(config, n_components=R + 1), 4, 256, space).releases
    with pytest.raises(PrivacyBudgetError):
        capegica.PLANNER.verify(site, replace(roster, plan=more))


def test_an_owners_r_rules_and_people_and_parcels_bound_it() -> None:
    given = {"epsilon": 8.0, "delta": 1e-5}
    plan = budget_of(
        {**given, "computation": "capegica", "n_components": 9}, n_sites=4, n_subjects=256
    )
    assert (plan.n_components, plan.n_basis) == (9, 240)
    assert "components is that of the settings" in plan.why_sizes

    def r_of(n_features: int, n_subjects: int, **more: Any) -> int:
        config = load("capegica").config.from_input({**given, **more})
        space = FeatureSpace.of_matrix(n_features)
        return sized(config, 4, n_subjects, space).n_components

    assert r_of(400, 256) == 18
    assert r_of(400, 7) == 7
    assert r_of(40, 256) == 12
    assert r_of(400, 256, n_basis=20) == 6
    assert r_of(400, 256, n_components=19) == 19
    # No more are asked of a person than a run of many may have: people of an atlas of 18 regions
    # were refused for a rank below 20, by settings that `cape init` had written.
    for n_features in (2, 7, 18, 40):
        largest = resolve(load("capegica").config.from_input(given)).most_components(n_features)
        assert largest == r_of(n_features, 10**6, epsilon=1000.0)
    for name in ("capedjica", "capedualreg"):
        assert load(name).config.from_input(given).n_components == 20
    with pytest.raises(ConfigError, match="n_components=1"):
        load("capegica").config.from_input({**given, "n_components": 1})
