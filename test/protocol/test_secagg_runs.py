"""Whole runs whose sites drop out, through the real engine: the survivors' sum, or nothing."""

import dataclasses
import itertools

import numpy as np
import pytest

from cape.errors import (
    ConfigError,
    ConsortiumError,
    PrivacyBudgetError,
    ProtocolError,
    SecureAggregationError,
)
from cape.protocol import wire
from cape.protocol.messages import Cursor
from cape.protocol.phases import advance_aggregator, advance_site
from cape.secagg.site_steps import ReadySite
from cape.simulation import memory as driver
from cape.simulation.transports import Drop, read_drop
from cape.site.policy import SitePolicy
from support import tiny

KEY_STAGES = (
    "zero-sum",
    "zero-sum.shares",
    "zero-sum.probe",
    "zero-sum.probe.consistency",
    "zero-sum.probe.unmask",
)
RELEASE_STAGES = ("mean", "mean.consistency", "mean.unmask")
STAGES = [(name, 1) for name in KEY_STAGES] + [(name, 2) for name in RELEASE_STAGES]


def threshold(n_sites: int) -> int:
    return 2 * n_sites // 3 + 1


def check_pattern(n_sites: int, gone: tuple[str, ...], stage: tuple[str, int]) -> None:
    """All of `gone` fall silent at one stage: exact sums over who is left, or an abort."""
    data = tiny.data_of(n_sites)
    drops = [Drop(site=site, phase=stage[0], round=stage[1]) for site in gone]
    link = tiny.link_of(tiny.settings(private="false", aggregation="secagg"), data, drops=drops)
    everybody, left = sorted(data), sorted(set(data) - set(gone))
    if len(left) < threshold(n_sites):
        with pytest.raises(ConsortiumError, match="E156"):
            tiny.released(link)
        mean = link._state.model.mean
        assert mean is None or mean.rounds < stage[1]  # nothing of that round was read
        return
    found = tiny.released(link)
    inside = {1: left, 2: left, 3: left}
    if stage[0] in RELEASE_STAGES:
        inside[1] = everybody
        inside[2] = left if stage[0] == "mean" else everybody
    for round_, sites in inside.items():
        np.testing.assert_array_equal(found[round_].mean, tiny.plain_mean(link, data, sites))
        assert list(tiny.survivors(link, round_)) == sites
    heads = {link._runs[site].ledger.head for site in left}
    assert heads == {link._state.ledger.head}


def subsets(n_sites: int) -> list[tuple[str, ...]]:
    """Everything up to one site too many."""
    names = [f"site{i}" for i in range(n_sites)]
    most = n_sites - threshold(n_sites) + 1
    return [c for size in range(1, most + 1) for c in itertools.combinations(names, size)]


@pytest.mark.parametrize("stage", STAGES, ids=lambda s: f"{s[0]}:{s[1]}")
@pytest.mark.parametrize(
    ("n_sites", "gone"),
    [
        (3, ("site0",)),
        (4, ("site0",)),
        (4, ("site3",)),
        (4, ("site1", "site2")),
        (5, ("site2",)),
        (5, ("site0", "site4")),
    ],
)
def test_the_sum_is_that_of_the_survivors_or_the_run_ends(n_sites, gone, stage) -> None:
    check_pattern(n_sites, gone, stage)


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES, ids=lambda s: f"{s[0]}:{s[1]}")
@pytest.mark.parametrize("n_sites", [3, 4, 5])
def test_every_subset_of_sites_may_drop_out_at_every_stage(n_sites, stage) -> None:
    for gone in subsets(n_sites):
        check_pattern(n_sites, gone, stage)


def test_sites_may_drop_out_one_after_the_other() -> None:
    data = tiny.data_of(7)  # t = 5
    drops = [
        Drop(site="site6", phase="mean.unmask", round=1),
        Drop(site="site0", phase="mean", round=2),
    ]
    link = tiny.link_of(tiny.settings(private="false", aggregation="secagg"), data, drops=drops)
    found = tiny.released(link)
    sites = sorted(data)
    for round_, inside in ((1, sites), (2, sites[1:6]), (3, sites[1:6])):
        np.testing.assert_array_equal(found[round_].mean, tiny.plain_mean(link, data, inside))


def test_both_ways_of_aggregation_give_the_same_sum(monkeypatch) -> None:
    tiny.fixed_noise(monkeypatch)
    data = tiny.data_of(3)
    means = [
        tiny.released(tiny.link_of(tiny.settings(aggregation=way), data))[3]
        for way in ("all-sites", "secagg")
    ]
    # S = 3: t = 3 = S, so both plans are one.
    np.testing.assert_array_equal(means[0].mean, means[1].mean)
    assert means[0].noise_std == means[1].noise_std


def test_noise_is_made_for_the_fewest_survivors_from_the_start() -> None:
    data = tiny.data_of(5)
    drops = [Drop(site="site1", phase="mean", round=2)]
    link = tiny.link_of(tiny.settings(aggregation="secagg"), data, drops=drops)
    found = tiny.released(link)
    roster = link._state.model.roster
    assert (roster.survivors, roster.colluders) == (4, 1)
    assert {event.shares for event in roster.plan} == {3}
    left = ["site0", "site2", "site3", "site4"]
    event = roster.plan[1]
    n_subjects = sum(len(data[site]) for site in left)
    assert found[2].noise_std == event.noise_std(4, n_subjects)
    error = found[2].mean - tiny.plain_mean(link, data, left)
    assert 0 < np.abs(error).max() < 6 * found[2].noise_std


def test_the_noise_in_the_sum_is_the_shares_of_the_survivors_exactly(monkeypatch) -> None:
    data = tiny.data_of(5)
    drops = [Drop(site="site1", phase="mean", round=2)]
    link = tiny.link_of(tiny.settings(aggregation="secagg"), data, drops=drops, seed=11)
    drawn = tiny.draws(monkeypatch)
    found = tiny.released(link)
    for event in link._state.model.roster.plan:
        inside = sorted(data) if event.round == 1 else ["site0", "site2", "site3", "site4"]
        scale = event.gamma * sum(len(data[site]) for site in inside)
        total = np.rint(tiny.plain_mean(link, data, inside) * scale)
        for _ in inside:
            total = total + drawn.pop(0)
        np.testing.assert_array_equal(found[event.round].mean, total / scale)


def test_a_site_that_refuses_a_release_is_one_that_dropped_out() -> None:
    data = tiny.data_of(5)
    link = tiny.link_of(tiny.settings(aggregation="secagg"), data)
    while link._state.cursor != Cursor(seq=link._state.cursor.seq, phase="mean", round=2):
        link.exchange()
    link._parties["site3"].policy = SitePolicy(veto=True)
    link.exchange()
    assert link._state.model.drop_outs.survivors == ("site0", "site1", "site2", "site4")
    left = tiny.released(link)
    assert max(left) == 3
    assert len(link.active.remaining) == 4  # its own list of survivors stopped it
    other = tiny.link_of(tiny.settings(aggregation="secagg"), tiny.data_of(3))
    while other._state.cursor.phase != "mean":
        other.exchange()
    other._parties["site2"].policy = SitePolicy(veto=True)
    with pytest.raises(PrivacyBudgetError, match="E154 Site policy of site site2"):
        other.exchange()


def test_more_survivors_may_be_asked_for() -> None:
    data = tiny.data_of(4)
    drops = [Drop(site="site1", phase="mean", round=1)]
    config = tiny.settings(aggregation="secagg", min_survivors=4)
    with pytest.raises(ConsortiumError, match="E156"):
        tiny.released(tiny.link_of(config, data, drops=drops))


@pytest.mark.parametrize("wrong", [{"min_survivors": 6}, {"assumed_colluders": 3}])
def test_a_threshold_that_protects_nobody_is_refused(wrong: dict[str, int]) -> None:
    config = tiny.settings(aggregation="secagg", **wrong)
    with pytest.raises(ConfigError, match="E152"):
        tiny.released(tiny.link_of(config, tiny.data_of(5)))


def test_a_missing_site_ends_an_all_sites_run() -> None:
    drops = [Drop(site="site1", phase="mean", round=2)]
    link = tiny.link_of(tiny.settings(), tiny.data_of(4), drops=drops)
    with pytest.raises(ConsortiumError, match=r"E156 Site site1 .* mean round 2"):
        tiny.released(link)


def test_a_late_answer_is_refused_and_changes_nothing() -> None:
    drops = [Drop(site="site1", phase="mean", round=2)]
    link = tiny.link_of(tiny.settings(aggregation="secagg"), tiny.data_of(4), drops=drops)
    while link._state.cursor.phase != "mean.consistency" or link._state.cursor.round != 2:
        link.exchange()
    state, party = link._state, link._parties["site1"]
    with pytest.raises(ProtocolError):  # it has missed a broadcast: out for the rest of the run
        advance_site(link._runs["site1"], link._request, party)
    inbox = {
        site: advance_site(link._runs[site], link._request, link._parties[site])[1]
        for site in ("site0", "site2", "site3")
    }
    aggregator = driver.AggregatorContext(config=link._config, kept=dict(link._kept))
    late = {**inbox, "site1": dataclasses.replace(inbox["site0"])}
    with pytest.raises(ConsortiumError, match="was not asked"):
        advance_aggregator(state, late, aggregator)
    after, _, _ = advance_aggregator(state, inbox, aggregator)
    assert after.cursor.phase == "mean.unmask"


@pytest.mark.parametrize("phase", ["zero-sum.shares", "zero-sum.probe", "mean", "mean.unmask"])
def test_a_stage_asked_twice_finds_its_keys_used(phase: str) -> None:
    link = tiny.link_of(tiny.settings(aggregation="secagg"), tiny.data_of(3))
    while link._state.cursor.phase != phase:
        link.exchange()
    run, party = link._runs["site0"], link._parties["site0"]
    advance_site(run, link._request, party)
    with pytest.raises((SecureAggregationError, ProtocolError)):
        advance_site(run, link._request, party)


def test_a_key_set_is_gone_once_it_was_used() -> None:
    link = tiny.link_of(tiny.settings(aggregation="secagg"), tiny.data_of(3))
    left = []
    while link.exchange()[0] is not None:
        if link._state.cursor.phase in ("mean.consistency", "report"):
            state = wire.decode(wire.loads(link._parties["site0"].secret("secagg")), ReadySite)
            left.append((len(state.key_sets), state.used))
    # The probe takes one set, each of the three rounds another one.
    assert left == [(2, 2), (1, 3), (0, 4), (0, 4)]


@pytest.mark.parametrize(
    "text", ["local0", "local9@mean:1", "local0@unmask:1", "local0@mean:0", "local0@join", "@mean"]
)
def test_a_drop_out_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="SITE@PHASE:ROUND"):
        read_drop(text, sites=["local0"], phases=["join", "mean"])


def test_a_drop_out_without_a_round_is_in_the_first() -> None:
    drop = read_drop("local0@mean", sites=["local0"], phases=["join", "mean"])
    assert drop == Drop(site="local0", phase="mean", round=1)
