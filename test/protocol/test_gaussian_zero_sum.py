"""Gaussian zero-sum noise (Imtiaz et al., Alg. 1 and 2) in whole runs, and what it is charged."""

import dataclasses
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cape.engines.coinstac.documents import decode_run, encode_run
from cape.errors import ConfigError, ConsortiumError, PrivacyBudgetError, SecureAggregationError
from cape.papers.correlated import view_factor
from cape.privacy.cost import Event
from cape.privacy.ledger import read_entries
from cape.privacy.mechanisms import check_overflow, plan_event, verify_event
from cape.protocol.messages import Released
from cape.protocol.phases import advance_aggregator, advance_site
from cape.simulation import memory as driver
from cape.simulation.transports import Drop
from support import tiny

SEED = 3


def gaussian(**given: object) -> Any:
    return tiny.settings(zero_sum="gaussian", **given)


def watched(link: Any, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, int], Any]:
    """All replies of a run by phase and round."""
    seen: dict[tuple[str, int], Any] = {}

    def watch(run: Any, inbox: Any, party: Any) -> Any:
        key = (run.cursor.phase, run.cursor.round)
        seen[key] = {site: envelope.body for site, envelope in inbox.items()}
        return advance_aggregator(run, inbox, party)

    monkeypatch.setattr(driver, "advance_aggregator", watch)
    return seen


def test_the_seeds_cancel_exactly_and_every_reply_is_alg_2(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiny.data_of(4)
    link = tiny.link_of(gaussian(), data, seed=SEED)
    seen, drawn = watched(link, monkeypatch), tiny.draws(monkeypatch)
    found = tiny.released(link)
    n_subjects = sum(map(len, data.values()))
    for event in link._state.model.roster.plan:
        seeds = {s: drawn.pop(0) for s in data}
        noise = {s: drawn.pop(0) for s in data}
        T = sum(seeds.values())
        exact = tiny.plain_mean(link, data, sorted(data)) * event.gamma * n_subjects
        total = exact + sum(noise.values())
        np.testing.assert_array_equal(found[event.round].mean, total / (event.gamma * n_subjects))
        for site, reply in seen["mean.released", event.round].items():
            own = tiny.plain_mean(link, data, [site]) * event.gamma * len(data[site])
            a = 4 * (own.astype(np.int64) + noise[site] + seeds[site]) - T
            np.testing.assert_array_equal(reply.total, a)


def test_the_zero_sum_noise_of_two_rounds_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    link = tiny.link_of(gaussian(), tiny.data_of(3), seed=SEED)
    seen = watched(link, monkeypatch)
    tiny.released(link)
    replies = [seen["mean.released", n]["site0"] for n in (1, 2)]
    first, second = (reply.total for reply in replies)
    assert isinstance(replies[0], Released)
    assert np.all(first != second)
    assert link._parties["site0"].secret("seed") == b""


@pytest.mark.parametrize("seed_ratio", [0, 1, 1000])
def test_a_release_is_charged_with_the_corrected_formula(seed_ratio: int) -> None:
    link = tiny.link_of(gaussian(seed_ratio=seed_ratio), tiny.data_of(5))
    tiny.released(link)
    ledger = link._state.ledger
    r = seed_ratio or 5  # 0: the paper's r = S
    for event in ledger.events:
        assert event.seed_ratio == r
        f = view_factor(n_sites=5, colluders=1, ratio=r)
        assert event.cost.mu2 == Fraction(event.delta_int**2, 5 * event.variance) * f
    assert ledger.spent <= ledger.budget.cost
    assert float(ledger.spent.mu2 / ledger.budget.cost.mu2) > 0.999999
    assert {run.ledger.head for run in link._runs.values()} == {ledger.head}


@pytest.mark.parametrize("r", [1, 4, 100])
def test_the_charge_is_that_of_everything_the_adversary_holds(r: int) -> None:
    """Pseudo-inverse of the covariance of all replies, T and what the colluders know."""
    for S in range(2, 9):
        for colluders in range(S):
            H = S - colluders
            # unknowns: e_hat and g of the honest sites; rows: their replies, then T_H.
            replies = np.hstack([S * np.eye(H) - np.ones((H, H)), S * np.eye(H)])
            view = np.vstack([replies, np.hstack([np.ones(H), np.zeros(H)])])
            cov = view @ np.diag([float(r)] * H + [1.0] * H) @ view.T
            shift = np.zeros(H + 1)
            shift[0] = S  # the victim's x moves by one unit
            mu2 = shift @ np.linalg.pinv(cov, rcond=1e-12) @ shift
            event = plan_event(
                phase="mean", round=1, field="total", shape="ball", size=4, clip=1.0, mu=0.5,
                shares=H, seed_ratio=r,
            )  # fmt: skip
            charged = float(event.cost.mu2) * event.variance / event.delta_int**2
            assert mu2 == pytest.approx(charged, rel=1e-9), (S, colluders)
            assert event.cost.mu2 <= Fraction(1, 4)


def test_the_ledger_stays_verifiable_and_knows_r() -> None:
    link = tiny.link_of(gaussian(), tiny.data_of(3))
    tiny.released(link)
    ledger = link._state.ledger
    entries = [dict(entry) for entry in ledger.entries()]
    assert read_entries(entries, head=ledger.head) == ledger.events
    for change in ({"seed_ratio": 2000}, {"seed_ratio": 0}):
        with pytest.raises(PrivacyBudgetError, match="entry 1 is missing"):
            read_entries([{**entries[0], **change}, *entries[1:]])
    without = {key: value for key, value in entries[0].items() if key != "seed_ratio"}
    with pytest.raises(PrivacyBudgetError, match="entry 1 is missing"):
        read_entries([without, *entries[1:]])


def test_ledgers_of_masked_runs_do_not_mention_it() -> None:
    link = tiny.link_of(tiny.settings(), tiny.data_of(3))
    tiny.released(link)
    assert "seed_ratio" not in link._state.ledger.entries()[0]


def test_a_plan_with_another_ratio_is_refused_by_the_sites() -> None:
    link = tiny.link_of(gaussian(), tiny.data_of(3))
    link.exchange()
    request = link._request
    plan = tuple(dataclasses.replace(event, seed_ratio=999) for event in request.body.plan)
    roster = dataclasses.replace(request.body, plan=plan)
    party = link._parties["site0"]
    lie = dataclasses.replace(request, body=roster, run=party.digest(roster)[:16].hex())
    with pytest.raises(PrivacyBudgetError, match="other zero-sum noise"):
        advance_site(link._runs["site0"], lie, party)


def test_sites_that_are_told_different_sums_of_the_seeds_spoil_the_release() -> None:
    link = tiny.link_of(gaussian(), tiny.data_of(4))
    while link._state.cursor.phase != "mean.released":
        link.exchange()
    request, told = link._request, {}
    for site, party in link._parties.items():
        body = request.body
        if site == "site1":
            body = dataclasses.replace(body, total=body.total + 1)
        heard = dataclasses.replace(request, body=body)
        told[site] = advance_site(link._runs[site], heard, party)[1]
    aggregator = driver.AggregatorContext(config=link._config)
    with pytest.raises(SecureAggregationError, match="does not cancel"):
        advance_aggregator(link._state, told, aggregator)


def test_a_missing_site_ends_the_run() -> None:
    for phase in ("mean", "mean.released"):
        drops = [Drop(site="site1", phase=phase, round=2)]
        link = tiny.link_of(gaussian(), tiny.data_of(4), drops=drops)
        with pytest.raises(ConsortiumError, match="E156 Site site1"):
            tiny.released(link)
        assert link._state.model.mean.rounds == 1


@pytest.mark.parametrize(
    "wrong", [{"aggregation": "secagg"}, {"private": "false"}, {"noise": "local"}]
)
def test_settings_that_it_would_not_protect_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="use zero_sum=ring"):
        gaussian(**wrong)


def test_a_reply_that_could_leave_62_bits_is_refused() -> None:
    event = Event(
        phase="mean", round=1, field="total", shape="ball", size=4, log2_gamma=30,
        clip_int=2**30, delta_int=2**31, variance=2**44, shares=3, seed_ratio=1000,
    )  # fmt: skip
    check_overflow(dataclasses.replace(event, seed_ratio=0), 4, 2**31)
    with pytest.raises(ConfigError, match="E221"):
        check_overflow(event, 4, 2**31)
    check_overflow(event, 4, 2**28)
    loud = dataclasses.replace(event, variance=2**47)
    with pytest.raises(PrivacyBudgetError, match="seeds of the zero-sum noise"):
        verify_event(loud, 1.0)


@pytest.mark.parametrize("way", [{"zero_sum": "gaussian"}, {"aggregation": "secagg"}])
def test_the_state_of_every_party_survives_its_cache(way: dict[str, str]) -> None:
    data, config = tiny.data_of(3), tiny.settings(**way)
    plain, cached = tiny.link_of(config, data), tiny.link_of(config, data)
    computation = cached._state.bound.computation
    while True:
        ended = plain.exchange()[0] is None
        cached.exchange()
        for site, run in cached._runs.items():
            text = encode_run(run)
            cached._runs[site] = decode_run(computation, text, party=site)
        cached._state = decode_run(computation, encode_run(cached._state), party="a")
        assert encode_run(cached._state) == encode_run(plain._state)
        if ended:
            return
