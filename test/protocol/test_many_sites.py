"""Runs of many sites: addressed shares, the graph of SecAgg+, what an aggregator may try there."""

import dataclasses
import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from cape.engines.coinstac import documents
from cape.errors import CapeError, ConfigError, ConsortiumError, SecureAggregationError
from cape.planning import budget
from cape.planning.budget import budget_of
from cape.protocol import droppable_sum, sizes, wire
from cape.protocol.phases import advance_site
from cape.secagg import graph, steps
from cape.simulation import memory
from cape.simulation.transports import Drop
from support import tiny

SITES = 33
SETTINGS = {"aggregation": "secagg", "min_survivors": 30, "assumed_colluders": 1, "delta": 1e-5}


def names(n_sites: int) -> list[str]:
    """Of so many sites, in order."""
    return [f"site{i:03}" for i in range(n_sites)]


def many(
    n_sites: int = SITES, *, drops: Any = (), seed: int = 3, **settings: Any
) -> tuple[Any, Any]:
    few = tiny.data_of(3)
    data = {site: few[f"site{i % 3}"] + i for i, site in enumerate(names(n_sites))}
    config = tiny.settings(**{**SETTINGS, "n_sites": n_sites, **settings})
    return tiny.link_of(config, data, drops=drops, seed=seed), data


def until(link: Any, phase: str) -> Any:
    while link._state.cursor.phase != phase:
        link.exchange()
    return link


def setup_of(link: Any) -> steps.Setup:
    return droppable_sum.key_table_of(link._parties["site000"], link._state.model).setup


# -- the sum, and what travels ---------------------------------------------------------------------


def test_the_sum_of_a_graph_is_the_plain_sum_of_the_survivors() -> None:
    drops = [
        Drop(site="site003", phase="zero-sum.shares", round=1),
        Drop(site="site017", phase="mean", round=2),
        Drop(site="site030", phase="mean.unmask", round=2),
    ]
    link, data = many(drops=drops, private="false")
    found = tiny.released(link)
    assert setup_of(link).plan is not None
    left = [site for site in data if site != "site003"]
    for round_, gone in ((1, set()), (2, {"site017"}), (3, {"site017", "site030"})):
        inside = [site for site in left if site not in gone]
        np.testing.assert_array_equal(found[round_].mean, tiny.plain_mean(link, data, inside))


def test_a_site_shares_and_masks_with_its_neighbours_only() -> None:
    link, _ = many()
    until(link, "zero-sum.probe")
    setup, book = setup_of(link), link._request.body
    k = setup.plan.neighbours
    assert k < SITES / 2
    for site, parcel in book.addressed.items():
        assert parcel.keys() == setup.partners(site)
        assert len(parcel) == k
    wiring = setup.wiring
    assert all(site in wiring[other] for site in wiring for other in wiring[site])


def test_a_site_needs_nothing_of_what_others_are_sent() -> None:
    """What an engine gives to its addressee alone is enough, and no party keeps the whole."""
    whole, _ = many(private="false")
    until(whole, "zero-sum.probe")
    site, request = "site000", whole._request
    own = dataclasses.replace(request.body, addressed={site: request.body.addressed[site]})
    party, before = whole._parties[site], whole._runs[site]
    secrets = dict(party.store.secrets)

    def answer(body):
        party.store.secrets = dict(secrets)
        return advance_site(before, dataclasses.replace(request, body=body), party)

    run, reply = answer(request.body)
    np.testing.assert_array_equal(reply.body.total, answer(own)[1].body.total)
    assert (run.own_part, run.model) == (None, whole._state.model)
    for parts in ({}, {site: {}}):
        with pytest.raises(CapeError):
            answer(dataclasses.replace(own, addressed=parts))


def played(n_sites: int, lost: int = 0, **settings: Any) -> None:
    """A run to its end, in which every tenth site or so falls silent, equals the plain sums."""
    gone = names(n_sites)[3::10][:lost]
    stages = ("zero-sum.probe", "mean", "mean.consistency", "mean.unmask")
    drops = [
        Drop(site=site, phase=stages[i % 4], round=1 if i % 4 == 0 else 2)
        for i, site in enumerate(gone)
    ]
    link, data = many(n_sites, drops=drops, private="false", **settings)
    found = tiny.released(link)
    assert max(found) == 3
    assert len(link.active.remaining) == n_sites - lost
    for round_ in found:
        inside = tiny.survivors(link, round_) or tuple(data)
        assert len(inside) >= n_sites - lost
        expected = tiny.plain_mean(link, data, list(inside))
        np.testing.assert_array_equal(found[round_].mean, expected)


def test_forty_sites_all_of_which_answer() -> None:
    played(40, aggregation="all-sites", min_survivors=0)


@pytest.mark.slow
def test_five_hundred_sites_all_of_which_answer() -> None:
    played(500, aggregation="all-sites", min_survivors=0)


@pytest.mark.slow
@pytest.mark.parametrize("colluders", [5, 20])
def test_two_hundred_sites_of_which_a_tenth_drop_out(colluders: int) -> None:
    played(200, 20, min_survivors=170, assumed_colluders=colluders)


# -- what an aggregator may try --------------------------------------------------------------------


@pytest.fixture
def sparse(monkeypatch):
    """Fewer neighbours than a run would have, so that few sites show what many would."""
    monkeypatch.setattr(graph, "LOG2_FAILURE", 1)
    graph.plan_graph.cache_clear()
    yield {"n_sites": 36, "min_survivors": 29}
    graph.plan_graph.cache_clear()


def test_a_list_that_leaves_a_survivor_alone_is_signed_by_nobody(sparse) -> None:
    """Its neighbours "dropped out": others' vectors would be told apart from its own."""
    link, data = many(**sparse)
    until(link, "zero-sum.probe.consistency")
    setup = setup_of(link)
    victim = "site000"
    gone = sorted(setup.partners(victim))[: len(data) - setup.threshold]
    left = [site for site in data if site not in gone]
    assert len(left) >= setup.threshold
    assert len(setup.partners(victim).intersection(left)) < setup.plan.threshold
    lie = dataclasses.replace(
        link._request, body=dataclasses.replace(link._request.body, sites=tuple(left))
    )
    for site in (victim, left[-1]):
        with pytest.raises(SecureAggregationError, match="too few neighbours among the survivors"):
            advance_site(link._runs[site], lie, link._parties[site])


@pytest.mark.parametrize("what", ["left out", "another", "of another site"])
def test_nobody_chooses_a_graph_once_the_parts_are_known(what: str) -> None:
    """The last to speak could try other parts until the graph suits him."""
    link, _ = many()
    until(link, "zero-sum.shares")
    body = link._request.body
    sites = dict(body.sites)
    if what == "left out":
        del sites["site007"]
    else:
        part = bytes(32) if what == "another" else sites["site008"].opening
        sites["site007"] = dataclasses.replace(sites["site007"], opening=part)
    lie = dataclasses.replace(link._request, body=dataclasses.replace(body, sites=sites))
    with pytest.raises(SecureAggregationError, match="graph"):
        advance_site(link._runs["site000"], lie, link._parties["site000"])


def test_a_site_that_falls_silent_before_its_part_is_known_ends_the_run() -> None:
    link, _ = many(drops=[Drop(site="site007", phase="zero-sum", round=1)])
    with pytest.raises((SecureAggregationError, ConsortiumError), match="part of every site"):
        tiny.released(link)


def test_another_roster_is_another_graph_and_a_part_is_not_told_before_it() -> None:
    one, _ = many(seed=3)
    other, _ = many(seed=4)
    for link in (one, other):
        until(link, "zero-sum.shares")
    assert setup_of(one).wiring != setup_of(other).wiring
    roster = one._state.model.roster
    parts = [entry.opening for entry in one._request.body.sites.values()]
    assert len(set(parts)) == SITES
    assert not any(part.hex() in str(roster) for part in parts)
    committed = {entry.commitment for entry in roster.sites}
    assert committed == {steps.commit_part(part).hex() for part in parts}


# -- k and its figures -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_sites", "survivors", "colluders"),
    [(50, 45, 1), (200, 180, 5), (200, 160, 10), (500, 450, 25)],
)
def test_the_graph_keeps_its_promises_by_exact_counts(n_sites, survivors, colluders) -> None:
    plan = graph.plan_graph(n_sites, survivors, colluders)
    k, others = plan.neighbours, n_sites - 1

    def more_than(x: int, marked: int) -> float:
        ways = sum(
            math.comb(marked, i) * math.comb(others - marked, k - i)
            for i in range(x + 1, min(k, marked) + 1)
        )
        return n_sites * ways / math.comb(others, k)

    assert more_than(plan.colluding, colluders) < 2**-40
    assert more_than(k - plan.threshold, n_sites - survivors) < 2**-40
    adjacency = np.zeros((n_sites, n_sites))
    for step in graph.steps(n_sites, k):
        for i in range(n_sites):
            adjacency[i, (i + step) % n_sites] = adjacency[(i + step) % n_sites, i] = 1
    assert adjacency.sum(axis=0).tolist() == [k] * n_sites
    eigenvalues = np.sort(np.abs(np.linalg.eigvalsh(adjacency)))
    assert eigenvalues[-2] <= graph.second_eigenvalue(n_sites, k) < eigenvalues[-2] + 1e-5
    assert plan.threshold - plan.colluding > eigenvalues[-2]


def test_few_sites_or_many_colluders_share_with_everybody() -> None:
    assert graph.plan_graph(24, 24, 0) is None
    assert graph.plan_graph(60, 41, 19) is None  # the defaults: a third each


# -- what a run weighs, and what cannot travel -----------------------------------------------------


LIMITS = {"MAX_ANSWER": 15_000_000, "MAX_ARRAY": 400_000, "MAX_STATE": 500_000}


def weight(n_sites: int, **settings: Any) -> sizes.Weight:
    plan = budget_of(
        {"computation": "capedjica", "epsilon": 1.0, "delta": 1e-6, "n_components": 20, **settings},
        n_sites=n_sites, n_subjects=20 * n_sites,
    )  # fmt: skip
    return plan.weight


@pytest.mark.parametrize(
    ("n_sites", "settings"),
    [
        (20, {"n_basis": 1000}),
        (117, {"n_basis": 400}),
        (500, {}),
        (24, {"aggregation": "secagg"}),
        (100, {"aggregation": "secagg"}),
        (200, {"aggregation": "secagg"}),
        (200, {"aggregation": "secagg", "min_survivors": 180, "assumed_colluders": 5}),
    ],
)
def test_runs_that_used_to_break_on_their_way_travel(n_sites: int, settings: Any) -> None:
    for what, got, allowed in weight(n_sites, **settings).limits():
        assert 0 < got <= allowed, what


def test_what_cannot_travel_is_refused_by_the_budget_and_in_join(monkeypatch) -> None:
    with pytest.raises(ConfigError, match=r"E145 the state of a party at 2000 sites"):
        weight(2000, aggregation="secagg")
    monkeypatch.setattr(wire, "MAX_STATE", 5000)
    link, _ = many(33)
    with pytest.raises(ConfigError, match="E145 the state of a party at 33 sites"):
        link.exchange()
    assert all(run.ledger is None for run in link._runs.values())


LEVER = re.compile(r"(?:lower|raise) (\w+) to (\d+)(?: with (\w+)=(\d+))?|take at most (\d+) sites")


@pytest.mark.long
@pytest.mark.parametrize(
    ("limit", "n_sites", "settings", "levers"),
    [
        # Each of them alone was named before, and none of them helped.
        ("MAX_ANSWER", 80, {"aggregation": "secagg"}, "assumed_colluders+, n_rounds, sites"),
        ("MAX_ANSWER", 80, {"aggregation": "secagg", "assumed_colluders": 2},
         "min_survivors, n_rounds, sites"),
        ("MAX_ANSWER", 80, {"aggregation": "secagg", "min_survivors": 72},
         "assumed_colluders, n_rounds"),
        ("MAX_ARRAY", 4, {"n_basis": 400}, "n_basis"),
        ("MAX_STATE", 300, {}, "n_basis"),
    ],
)  # fmt: skip
def test_every_lever_that_a_refusal_names_works_by_itself(
    monkeypatch, limit: str, n_sites: int, settings: Any, levers: str
) -> None:
    """One text for all said "lower n_basis or n_rounds", where neither changed what was large."""
    monkeypatch.setattr(wire, limit, LIMITS[limit])
    if limit == "MAX_ANSWER":  # an engine that hands everybody the shares of all
        monkeypatch.setattr(budget, "check_weight", partial(sizes.check_weight, addresses=False))
    with pytest.raises(ConfigError, match="E145") as caught:
        weight(n_sites, **settings)
    found = LEVER.findall(caught.value.public)
    assert found, caught.value.public
    for name, value, other, at, sites in found:
        given = {name: int(value)} if name else {}
        given |= {other: int(at)} if other else {}
        weight(int(sites or n_sites), **{**settings, **given})
    named = ", ".join(
        ("sites" if sites else name) + "+" * bool(o) for name, _, o, _, sites in found
    )
    assert named == levers


def test_an_engine_that_hands_everybody_the_shares_of_all_takes_fewer_sites(monkeypatch):
    """200 sites, whose shares are 296 MiB together: refused where there is one message for all."""
    found = {}
    for addresses in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(budget, "check_weight", partial(sizes.weight_of, addresses=addresses))
            found[addresses] = weight(200, aggregation="secagg").broadcast
    assert 290 < found[False] / 2**20 < 300
    assert 1.4 < found[True] / 2**20 < 1.6
    link, _ = many(33)
    link.exchange()
    roster = link._state.model.roster
    enough = sizes.weight_of(link._config, roster.plan, 33, roster.n_basis).broadcast
    monkeypatch.setattr(wire, "MAX_ANSWER", enough)
    many(33)[0].exchange()
    context = memory.AggregatorContext
    told = lambda **given: context(**{**given, "addresses": False})  # noqa: E731
    monkeypatch.setattr(memory, "AggregatorContext", told)
    with pytest.raises(ConfigError, match="E145 one broadcast at 33 sites"):
        many(33)[0].exchange()


@pytest.mark.parametrize("way", ["all-sites", "secagg"])
def test_the_figures_are_those_of_the_messages(monkeypatch, way: str) -> None:
    """Never less than what is sent, nor twice as much and a kilobyte."""
    survivors = 30 if way == "secagg" else 0
    link, _ = many(aggregation=way, min_survivors=survivors)
    sent: dict[str, int] = {}
    states: list[int] = []
    real = memory.advance_site

    def heard(run: Any, request: Any, party: Any) -> Any:
        after, reply = real(run, request, party)
        length = len(wire.dumps(documents.reply_document(reply)))
        sent[reply.phase] = max(length, sent.get(reply.phase, 0))
        if party.id == "site000":
            states.append(len(wire.dumps(documents.encode_run(after))))
        return after, reply

    monkeypatch.setattr(memory, "advance_site", heard)
    tiny.released(link)
    roster = link._state.model.roster
    found = sizes.weight_of(link._config, roster.plan, SITES, roster.n_basis)
    assert max(states) <= found.state <= 2 * max(states) + 1000
    planned = {traffic.phase: traffic.reply for traffic in found.traffic}
    for phase, length in sent.items():
        stage = phase.rpartition(".")[2]
        name = f"*.{stage}" if stage in ("consistency", "unmask") else phase
        if name in planned:
            assert length <= planned[name] <= 2 * length + 1000, phase
