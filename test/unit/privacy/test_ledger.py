import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from cape.errors import ConfigError, PrivacyBudgetError
from cape.privacy.accounting import gdp_epsilon
from cape.privacy.cost import FREE, INFINITE, Event, total_cost
from cape.privacy.ledger import (
    GENESIS,
    Budget,
    Ledger,
    Plan,
    by_exchange,
    check_plan,
    read_entries,
    split_mu,
)
from cape.privacy.mechanisms import plan_event

BUDGET = Budget.of(epsilon=1.0, delta=1e-5)


def event(number=1, phase="iterate", **changes):
    values = {
        "phase": phase,
        "round": number,
        "field": "mean",
        "shape": "ball",
        "size": 10,
        "log2_gamma": 10,
        "clip_int": 1024,
        "delta_int": 2048,
        "variance": 2**40,
        "shares": 1,
    }
    return Event(**{**values, **changes})


def squared(number, numerator_root, variance):
    """Event with mu^2 = numerator_root^2 / variance, exactly."""
    return event(number, delta_int=numerator_root, variance=variance)


def whole_plan():
    rounds = [math.sqrt(k) for k in range(1, 41)]
    weights = [0.4, 0.15, 0.15, *[0.3 * r / math.fsum(rounds) for r in rounds]]
    kinds = [("pca", 1, math.sqrt(20), "psd", 5050)]
    kinds += [("whitening", k, 4.0, "ball", 210) for k in (1, 2)]
    kinds += [("iterate", k, 0.35, "ball", 190) for k in range(1, 41)]
    mus = split_mu(BUDGET.mu, weights)
    return Plan(
        releases=tuple(
            plan_event(
                phase=phase, round=k, field="mean", shape=shape, size=size, clip=clip, mu=mu,
                shares=3,
            )
            for (phase, k, clip, shape, size), mu in zip(kinds, mus, strict=True)
        )
    )  # fmt: skip


def exhausting_budget():
    """A budget, the event that spends exactly all of it, and its denominator exponent."""
    mantissa, exponent = math.frexp(BUDGET.mu)
    root, bits = int(mantissa * 2**53), 53 - exponent
    spends_all = squared(1, root, 2 ** (2 * bits))
    assert spends_all.cost == BUDGET.cost
    return spends_all


def test_the_whole_worked_plan_fits_its_budget_and_reads_as_epsilon_one():
    plan = whole_plan()
    check_plan(plan, BUDGET)
    assert total_cost(e.cost for e in plan.releases).mu() == pytest.approx(0.2680511229, abs=1e-10)
    ledger = Ledger(budget=BUDGET)
    for release in plan.releases:
        ledger = ledger.charge(release)
    exact = sum((release.cost for release in plan.releases), FREE)
    assert 0 <= ledger.spent.mu2 - exact.mu2 < Fraction(len(plan.releases), 2**256)
    assert ledger.remaining.mu2 == BUDGET.cost.mu2 - ledger.spent.mu2
    assert 0 < ledger.remaining.mu2 < BUDGET.cost.mu2 * Fraction(3, 10**9)
    assert ledger.epsilon_spent() == pytest.approx(1.0, abs=1e-8)
    assert ledger.epsilon_spent() <= 1.0


def test_a_budget_is_spent_exactly_and_not_one_part_in_2_to_the_200_further():
    spends_all = exhausting_budget()
    assert Ledger(budget=BUDGET).charge(spends_all).remaining == FREE
    sliver = squared(2, 1, 2**200)
    with pytest.raises(PrivacyBudgetError):
        Ledger(budget=BUDGET).charge(sliver).charge(spends_all)
    with pytest.raises(PrivacyBudgetError):
        Ledger(budget=BUDGET).charge(spends_all).charge(sliver)
    thinnest = squared(2, 1, 2**900)
    with pytest.raises(PrivacyBudgetError):
        Ledger(budget=BUDGET).charge(spends_all).charge(thinnest)


def test_a_refusal_says_what_was_asked_and_left_and_changes_nothing():
    ledger = Ledger(budget=BUDGET).charge(squared(1, 1, 4**2))
    before = (ledger.events, ledger.head, ledger.spent.mu2)
    with pytest.raises(PrivacyBudgetError) as caught:
        ledger.charge(squared(2, 1, 4**2))
    assert caught.value.code == "CAPE-E230"
    assert caught.value.public == (
        "CAPE-E230 iterate round 2 (mean) needs mu 0.250001, 0.0967022 of 0.268052 is left; "
        "plan fewer or noisier releases, or raise epsilon."
    )
    assert (ledger.events, ledger.head, ledger.spent.mu2) == before


def test_a_release_is_charged_once():
    ledger = Ledger(budget=BUDGET).charge(event(1))
    with pytest.raises(PrivacyBudgetError, match="charged already"):
        ledger.charge(event(1))
    with pytest.raises(PrivacyBudgetError, match="charged already"):
        ledger.charge(event(1, variance=2**50))
    for other in (event(2), event(1, phase="pca"), event(1, field="second")):
        ledger.charge(other)


def test_queries_give_the_same_answer_twice():
    ledger = Ledger(budget=BUDGET).charge(event(1))
    asked = [
        (
            ledger.spent.mu2,
            ledger.remaining,
            ledger.spent.mu(),
            ledger.epsilon_spent(),
            ledger.entries(),
        )
        for _ in range(2)
    ]
    assert asked[0] == asked[1]
    assert ledger.epsilon_spent() == gdp_epsilon(mu=ledger.spent.mu(), delta=1e-5)


def test_an_empty_ledger_has_spent_nothing():
    ledger = Ledger(budget=BUDGET)
    assert ledger.spent == FREE
    assert ledger.epsilon_spent() == 0.0
    assert ledger.entries() == ()
    assert ledger.head == GENESIS


def test_a_run_without_noise_keeps_its_events_and_reports_an_infinite_epsilon():
    ledger = Ledger(budget=None).charge(event(1, variance=0)).charge(event(2, variance=0))
    assert len(ledger.events) == 2
    assert ledger.epsilon_spent() is None
    assert ledger.spent.mu() is None
    assert ledger.entries()[1]["mu2"] == "infinite"
    assert ledger.spent == INFINITE
    with pytest.raises(PrivacyBudgetError, match="no budget"):
        _ = ledger.remaining
    with pytest.raises(PrivacyBudgetError, match="no private release"):
        ledger.charge(event(3))
    with pytest.raises(PrivacyBudgetError, match="charged already"):
        ledger.charge(event(2, variance=0))


def test_a_release_without_noise_never_enters_a_private_ledger():
    ledger = Ledger(budget=BUDGET)
    with pytest.raises(PrivacyBudgetError, match=r"needs mu infinity.*private=false"):
        ledger.charge(event(1, variance=0))


@pytest.mark.parametrize("mu", [0.0, -1.0, math.inf, math.nan])
def test_a_budget_without_a_positive_mu_cannot_be_made(mu):
    with pytest.raises(ConfigError, match="mu"):
        Budget(epsilon=1.0, delta=1e-5, mu=mu)


def test_a_plan_finds_the_releases_of_a_round_and_an_unknown_round_is_never_free():
    first, second = event(1), event(2)
    beside, of_pca = event(2, field="second"), event(1, phase="pca")
    plan = Plan(releases=(first, second, beside, of_pca))
    assert plan.find("iterate", 1) == (first,)
    assert plan.find("iterate", 2) == (second, beside)
    assert plan.find("pca", 1) == (of_pca,)
    assert list(by_exchange(plan.releases)) == [("iterate", 1), ("iterate", 2), ("pca", 1)]
    for phase, number in (("iterate", 3), ("report", 1), ("pca", 2)):
        with pytest.raises(PrivacyBudgetError, match="not in the plan"):
            plan.find(phase, number)
    assert plan.private


def test_a_plan_with_a_release_twice_or_with_partial_noise_cannot_be_made():
    with pytest.raises(ConfigError, match="a release is planned twice"):
        Plan(releases=(event(1), event(2), event(1, variance=2**50)))
    with pytest.raises(ConfigError, match="only some"):
        Plan(releases=(event(1), event(2, variance=0)))


def test_a_plan_past_the_budget_is_refused_with_what_would_be_possible():
    plan = Plan(releases=tuple(squared(k, 1, 8**2) for k in range(1, 7)))
    with pytest.raises(PrivacyBudgetError) as caught:
        check_plan(plan, BUDGET)
    epsilon = gdp_epsilon(mu=math.sqrt(6) / 8, delta=1e-5)
    assert caught.value.public == (
        "CAPE-E230 the plan of 6 releases needs mu 0.306188, 0.26805 of 0.268052 is left; "
        f"the first 4 fit; plan fewer or noisier releases, or raise epsilon to {epsilon:.6g}."
    )
    check_plan(Plan(releases=plan.releases[:4]), BUDGET)
    check_plan(Plan(releases=plan.releases), Budget.of(epsilon=1.158, delta=1e-5))


def test_the_plan_check_has_no_tolerance_either():
    spends_all = exhausting_budget()
    check_plan(Plan(releases=(spends_all,)), BUDGET)
    with pytest.raises(PrivacyBudgetError):
        check_plan(Plan(releases=(spends_all, squared(2, 1, 2**200))), BUDGET)
    with pytest.raises(PrivacyBudgetError):
        check_plan(Plan(releases=(spends_all, squared(2, 1, 2**900))), BUDGET)


def test_plans_with_and_without_noise_need_the_matching_kind_of_budget():
    noiseless = Plan(releases=(event(1, variance=0),))
    assert not noiseless.private
    check_plan(noiseless, None)
    check_plan(Plan(releases=()), None)
    check_plan(Plan(releases=()), BUDGET)
    with pytest.raises(PrivacyBudgetError, match="private=false"):
        check_plan(noiseless, BUDGET)
    with pytest.raises(PrivacyBudgetError, match="no private release"):
        check_plan(Plan(releases=(event(1),)), None)


def test_mu_is_split_by_weights_of_its_square_with_a_margin():
    mus = split_mu(2.0, [0.25, 0.75])
    assert mus == pytest.approx([1.0, math.sqrt(3.0)], rel=1e-8)
    assert mus[0] < 1.0 - 9e-10
    assert math.hypot(*mus) < 2.0
    assert split_mu(2.0, []) == ()


@pytest.mark.parametrize("weights", [[0.5, 0.51], [1.0, 0.0], [-0.1], [math.nan]])
def test_shares_that_are_no_shares_are_refused(weights):
    with pytest.raises(ConfigError, match="shares"):
        split_mu(1.0, weights)


def test_entries_hold_what_the_charge_follows_from_and_survive_json():
    ledger = Ledger(budget=BUDGET).charge(event(1)).charge(event(2, shares=3))
    entries = ledger.entries()
    assert entries[1] == {
        "seq": 2,
        "prev_digest": Ledger(budget=BUDGET).charge(event(1)).head,
        "release": "iterate round 2 (mean)",
        "phase": "iterate",
        "round": 2,
        "field": "mean",
        "kind": "ball",
        "d": 10,
        "log2_gamma": 10,
        "C_int": 1024,
        "Delta_int": 2048,
        "s2": 2**40,
        "h": 3,
        "mu2": f"1/{3 * 2**18}",
        "view": "aggregator and assumed colluders",
        "unit": "subject",
    }
    assert entries[0]["prev_digest"] == GENESIS
    back = json.loads(json.dumps(entries))
    assert read_entries(back, head=ledger.head) == ledger.events
    assert read_entries(back) == ledger.events
    assert read_entries([]) == ()


def test_the_digest_of_an_entry_never_changes_its_meaning():
    # Written ledgers must stay readable: a change here is a new version of the entry.
    assert GENESIS == "c5e87815871c0a65274353f736d0d5efe0a0b35ffa12baa64ede50d9a0d882df"
    assert (
        Ledger(budget=None).charge(event(1, variance=0)).head
        == "b5b6ef5acc6f6323936ef7dd78a91d8fa7f964b41016ce432ff3ff5620f057c3"
    )


CHAIN = [
    dict(entry)
    for entry in Ledger(budget=BUDGET).charge(event(1)).charge(event(2)).charge(event(3)).entries()
]


@pytest.mark.parametrize("key", list(CHAIN[0]))
def test_any_changed_or_missing_value_of_an_entry_is_seen(key):
    for entry in (
        {**CHAIN[1], key: "x"},
        {**CHAIN[1], key: 4},
        {**CHAIN[1], key: [1]},
        {name: value for name, value in CHAIN[1].items() if name != key},
    ):
        # Another release that could exist is seen by the next entry, or by the head digest.
        with pytest.raises(PrivacyBudgetError, match=r"entry [23] is missing"):
            read_entries([CHAIN[0], entry, CHAIN[2]])


@pytest.mark.parametrize(
    ("entries", "seq"),
    [
        ([CHAIN[0], CHAIN[2]], 2),
        ([CHAIN[1], CHAIN[2]], 1),
        ([CHAIN[0], CHAIN[2], CHAIN[1]], 2),
        ([CHAIN[0], CHAIN[0]], 2),
        ([CHAIN[0], {**CHAIN[1], "extra": 1}], 2),
        ([CHAIN[0], None], 2),
    ],
    ids=["dropped", "first dropped", "reordered", "doubled", "extra key", "no mapping"],
)
def test_dropped_reordered_or_foreign_entries_are_seen(entries, seq):
    with pytest.raises(PrivacyBudgetError, match=f"entry {seq} is missing"):
        read_entries(entries)


def test_a_cut_end_is_seen_by_who_knows_the_head():
    head = Ledger(budget=None, events=(), head=GENESIS).head
    read_entries([], head=head)
    with pytest.raises(PrivacyBudgetError, match="entry 1 is missing"):
        read_entries([], head="0" * 64)
    with pytest.raises(PrivacyBudgetError, match="entry 3 is missing"):
        read_entries(CHAIN[:2], head="0" * 64)


def test_a_ledger_that_does_not_match_its_digest_cannot_be_made():
    ledger = Ledger(budget=BUDGET).charge(event(1)).charge(event(2))
    for events in ((), ledger.events[:1], ledger.events[::-1]):
        with pytest.raises(PrivacyBudgetError, match="digest"):
            Ledger(budget=BUDGET, events=events, head=ledger.head)
    louder = (ledger.events[0], replace(ledger.events[1], variance=2**50))
    with pytest.raises(PrivacyBudgetError, match="digest"):
        Ledger(budget=BUDGET, events=louder, head=ledger.head)


def test_a_thousand_rounds_of_different_noise_are_charged_quickly():
    ledger = Ledger(budget=BUDGET)
    for k in range(1, 301):
        ledger = ledger.charge(event(k, variance=2**44 + 7919 * k))
        assert ledger.epsilon_spent() > 0.0
    assert ledger.spent.mu() == pytest.approx(math.sqrt(ledger.spent.mu2), rel=1e-15)
    exact = sum((one.cost for one in ledger.events), FREE)
    assert Fraction(ledger.spent.mu()) ** 2 >= exact.mu2


def test_entries_of_gaussian_seeds_name_their_ratio_and_are_read_back():
    plain, gaussian = event(1), event(2, seed_ratio=4, shares=3)
    ledger = Ledger(budget=Budget.of(epsilon=50.0, delta=1e-5)).charge(plain).charge(gaussian)
    entries = json.loads(json.dumps(ledger.entries()))
    assert "seed_ratio" not in entries[0]
    assert entries[1]["seed_ratio"] == 4
    assert read_entries(entries, head=ledger.head) == (plain, gaussian)
    assert ledger.spent == total_cost((plain.cost, gaussian.cost))
    with pytest.raises(PrivacyBudgetError, match="entry 2 is missing"):
        read_entries([entries[0], {**entries[1], "seed_ratio": 5}], head=ledger.head)
    with pytest.raises(PrivacyBudgetError, match="entry 1 is missing"):
        read_entries([{**entries[0], "seed_ratio": 0}])


def test_halves_are_charged_for_the_dearer_one_and_stand_in_the_entries():
    """Nobody is asked in both halves; a release to all is borne by both."""
    one = exhausting_budget()
    a, b = (replace(one, phase=phase, part=part) for phase, part in (("find", "A"), ("test", "B")))
    check_plan(Plan(releases=(a, b)), BUDGET)
    ledger = Ledger(budget=BUDGET).charge(a).charge(b)
    assert ledger.spent == BUDGET.cost
    tiny = event(9, delta_int=1, variance=2**56)
    for part in ("", "A", "B"):
        with pytest.raises(PrivacyBudgetError, match="CAPE-E230"):
            ledger.charge(replace(tiny, part=part))
    # a half is no way to send a release again
    with pytest.raises(PrivacyBudgetError, match="charged already"):
        Ledger(budget=BUDGET).charge(a).charge(replace(a, part="B"))
    entries = json.loads(json.dumps(ledger.entries()))
    assert [entry["part"] for entry in entries] == ["A", "B"]
    assert read_entries(entries, head=ledger.head) == (a, b)
    with pytest.raises(PrivacyBudgetError, match="entry 3 is missing"):
        read_entries([entries[0], {**entries[1], "part": "A"}], head=ledger.head)
    assert "part" not in Ledger(budget=BUDGET).entry(one)
    with pytest.raises(ConfigError, match="part"):
        event(part="C")
