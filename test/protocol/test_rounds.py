"""Rounds of several releases: one exchange, and of each release its own clip, charge and noise."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.errors import CapeError, MessageError, PrivacyBudgetError
from cape.privacy.cost import Event, total_of
from cape.privacy.halves import halves
from cape.privacy.ledger import by_exchange
from cape.privacy.noise import discrete_gaussian
from cape.protocol import secure_sum, wire
from cape.protocol.droppable_sum import setup_of
from cape.protocol.messages import Masked, Released
from cape.protocol.model import EXCHANGES, joined, records
from cape.protocol.phases import prefix_of
from cape.protocol.secure_sum import clipped_sum
from cape.protocol.sizes import weight_of
from cape.site.context import SiteContext
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from support import consortium as helper
from support import several, tiny

ROADS: dict[str, dict[str, Any]] = {
    "masks": {},
    "secagg": {"aggregation": "secagg"},
    "local": {"noise": "local"},
    "half": {"part": "A"},
}
FILES = {**helper.MATRIX, "min_timepoints": 30, "standardize": "demean"}
NAMES = [(release.round, release.name) for release in several.PLANNED]

every_road = pytest.mark.parametrize("road", ROADS)


@pytest.fixture(autouse=True)
def named():
    with several.found_by_name():
        yield


def consortium(road: str = "masks", **settings: Any) -> helper.Consortium:
    return helper.Consortium(several.NAME, **helper.MATRIX, **ROADS[road], **settings)


def asked(run: helper.Consortium, site: str, model: Any) -> np.ndarray:
    """Return the people of a site that a round asks, (n, `ROWS`, 1)."""
    people = [np.tanh(X[: several.ROWS, :1].astype(np.float32)) for X in helper.datasets()[site]]
    if run.config.part:
        names = [f"sub-{m:02d}" for m in range(len(people))]
        half = halves(model.fingerprint, site, dict.fromkeys(names, ""))
        people = [X for name, X in zip(names, people, strict=True) if half[name] == "A"]
    return np.array(people).reshape(-1, several.ROWS, 1)


# -- one exchange ----------------------------------------------------------------------------------


@every_road
def test_every_release_of_a_round_is_its_own_sum_under_its_own_noise(road, monkeypatch) -> None:
    """Exact: the mean of each is that of the integers of all sites and of the noise they drew."""
    drawn = tiny.draws(monkeypatch)
    run = consortium(road)
    estimator, n_subjects = several.SeveralEstimator(), sum(helper.SIZES)
    for number in (1, 2):
        run.until("look", number)
        before, state = run.state.model, run.state.model.look or estimator.start(12)
        events = by_exchange(joined(before).plan)["look", number]
        drawn.clear()
        while run.state.cursor.round == number and run.state.cursor.phase != "report":
            run.exchange()
        queries = estimator.queries(state)
        sites = list(run.parties)
        assert len(drawn) == len(sites) * len(queries)
        for j, (event, query) in enumerate(zip(events, queries, strict=True)):
            total = np.zeros(query.size, dtype=np.int64)
            for s, site in enumerate(sites):
                total += clipped_sum([asked(run, site, before)], query, event)
                total += drawn[s * len(queries) + j]
            expected = total / (event.gamma * n_subjects)
            found = several.released(run.state.model.look, event.field)
            np.testing.assert_array_equal(found, expected)
            assert run.state.model.look.noise[NAMES.index((number, event.field))] == (
                event.noise_std(len(sites), n_subjects)
            )


@every_road
@pytest.mark.parametrize("private", [True, False])
def test_all_parties_charge_every_release_of_every_round_once(road, private) -> None:
    run = consortium(road, private=private).play()
    plan = joined(run.state.model).plan
    assert [(event.round, event.field) for event in plan] == NAMES
    ledgers = [run.state.ledger, *(state.ledger for state in run.runs.values())]
    assert {ledger.events for ledger in ledgers} == {plan}
    assert len({ledger.head for ledger in ledgers}) == 1
    if private:
        assert ledgers[0].spent == total_of(plan)
        assert ledgers[0].epsilon_spent() <= run.config.epsilon
        shares = [float(event.cost.mu2 / ledgers[0].budget.cost.mu2) for event in plan]
        assert shares == pytest.approx([2 / 8, 1 / 8, 1 / 8, 1 / 8, 3 / 8], rel=1e-5)


@every_road
def test_a_round_is_one_exchange_and_one_record(road) -> None:
    """Planned before the run: exchanges, rounds, and where sites may drop out, sets of keys."""
    run = consortium(road).play()
    lines = [broadcast.progress for broadcast in run.broadcasts[:-1]]
    assert {line.exchanges for line in lines} == {len(run.phases())}
    assert {line.rounds for line in lines if prefix_of(line.phase) == "look"} == {2}
    model = run.state.model
    found = records(model.trace, model.roster)
    assert [(record.phase, record.round) for record in found] == [("look", 1), ("look", 2)]
    first, whole = (weight_of(run.config, model.roster.plan[:n], 3, 12) for n in (2, 5))
    n_first, n_whole = (sum(kind.exchanges for kind in weight.traffic) for weight in (first, whole))
    assert n_whole - n_first == EXCHANGES[run.config.aggregation][1]
    assert whole.vector == 8 * (several.ROWS + 3)
    if road == "secagg":
        assert all(set(record.survivors) == set(run.parties) for record in found)
        assert model.drop_outs.releases == 2 + 1  # and the probe
        assert setup_of(run.parties["local0"], model).n_sets == 3


@every_road
def test_the_vectors_of_a_round_travel_as_one(road) -> None:
    run = consortium(road).until("look", 2)
    inbox = run.answers()
    kind = Released if road == "local" else Masked
    for reply in inbox.values():
        assert type(reply.body) is kind
        assert reply.body.total.shape == (1 + 1 + 3,)
    short = {
        site: helper.changed(reply, total=reply.body.total[:-1]) for site, reply in inbox.items()
    }
    with pytest.raises(CapeError, match="E2"):
        run.combine(short)
    run.combine(inbox)


def test_two_releases_that_differ_in_their_name_have_independent_noise(monkeypatch) -> None:
    """Of equal sums under equal charges: with equal noise their difference would be exact."""
    drawn = tiny.draws(monkeypatch)
    run = consortium(seed=None).until("look", 2)
    events = joined(run.state.model).plan[2:4]
    assert replace(events[0], field="again") == events[1]
    drawn.clear()
    run.exchange()
    rest, again = np.concatenate(drawn[0::3]), np.concatenate(drawn[1::3])
    # Three sites, one number each, of more than 2^10 units std: all equal with less than 1e-9.
    assert not np.array_equal(rest, again)


# -- order, refusals and kills ---------------------------------------------------------------------


def test_every_charge_of_a_round_stands_before_the_first_byte_of_its_noise() -> None:
    run = consortium().play()
    for log in run.events.values():
        for number, n_releases in ((1, 2), (2, 3)):
            of_round = [
                entry[0]
                for entry in log
                if entry[:3] == ("charge", "look", number)
                or (entry[0] == "draw" and entry[2:4] == ("look", number) and entry[4] == "noise")
            ]
            charges = of_round[:n_releases]
            assert charges == ["charge"] * n_releases
            assert set(of_round[n_releases:]) == {"draw"}


def refusing(monkeypatch: pytest.MonkeyPatch, site: str, field: str) -> None:
    """Let a site refuse one release."""
    real = SiteContext.charge

    def charge(self: SiteContext, event: Event) -> None:
        if (self.id, event.field) == (site, field):
            raise PrivacyBudgetError("E154", site=site)
        real(self, event)

    monkeypatch.setattr(SiteContext, "charge", charge)


@pytest.mark.parametrize("field", ["rest", "again", "site"])
@pytest.mark.parametrize("road", ["masks", "local", "half"])
def test_a_site_that_refuses_one_release_refuses_the_round(road, field, monkeypatch) -> None:
    run = consortium(road).until("look", 2)
    before, drawn = run.state.model.look, tiny.draws(monkeypatch)
    refusing(monkeypatch, "local1", field)
    run.exchange()
    assert len(drawn) == 2 * 3  # of the two others
    after = run.state.model
    assert after.look.status == "budget_exhausted"
    np.testing.assert_array_equal(after.look.values, before.values)
    assert len(records(after.trace, after.roster)) == 1
    run.play()
    assert run.outcome.status == "budget_exhausted"
    # The aggregator counts the round, as the sites that answered do.
    assert run.outcome.ledger.events == joined(after).plan
    n_charged = 2 + ["rest", "again", "site"].index(field)
    assert len(run.runs["local1"].ledger.events) == n_charged


def test_where_sites_may_drop_out_one_refusal_leaves_a_site_out_of_the_round(monkeypatch) -> None:
    data = tiny.data_of(4)
    settings = {"epsilon": 4.0, "delta": 1e-3, "feature_space": "matrix", "basis": "none"}
    config = several.SeveralConfig.from_input({**settings, "aggregation": "secagg"})
    link = tiny.link_of(config, data, computation=several.COMPUTATION)
    while (link._state.cursor.phase, link._state.cursor.round) != ("look", 2):
        link.exchange()
    refusing(monkeypatch, "site1", "again")
    while link.exchange()[0] is not None:
        model = link._state.model
    everybody, left = tuple(data), ("site0", "site2", "site3")
    found = records(model.trace, model.roster)
    assert [record.survivors for record in found] == [everybody, left]
    stds = [
        event.noise_std(len(sites), sum(len(data[site]) for site in sites))
        for event, sites in zip(model.roster.plan, (*[everybody] * 2, *[left] * 3), strict=True)
    ]
    assert model.look.noise.tolist() == stds


class Killed(BaseException):
    """As a SIGKILL: nothing that catches errors sees it."""


def engine(folder: Path, policy: SitePolicy, **more: Any) -> helper.Engine:
    """Return a run through documents."""
    settings = helper.settings_of(several.NAME, computation=several.NAME, **FILES, **more)
    data = helper.write_data(folder / "data")
    return helper.Engine(folder / "work", data, settings, policy=policy)


def charged(engine: helper.Engine) -> list[tuple[int, str]]:
    (run,) = read_ledger(engine.work / "local0" / "ledger.jsonl").runs
    return [(charge.round, charge.field) for charge in run.charges]


@pytest.mark.parametrize("number", [1, 2])
def test_a_site_killed_between_two_charges_gives_the_same_bytes_and_pays_once(
    number, tmp_path, monkeypatch
) -> None:
    """Real noise: an untouched copy of the site says what its answer should have been."""
    policy = replace(SitePolicy.of_simulation(), ledger_file="ledger.jsonl")
    site = engine(tmp_path, policy).until("look", number)
    expected = site.copy(tmp_path / "untouched").ask("local0")
    before = charged(site)
    assert before == NAMES[: len(before)]
    names = [release.name for release in several.of_round(number)]
    real = SiteContext.charge
    for n_charged, last in enumerate(names):

        def dies(self: SiteContext, event: Event, last: str = last) -> None:
            if event.field == last:
                raise Killed
            real(self, event)

        with monkeypatch.context() as patch:
            patch.setattr(SiteContext, "charge", dies)
            with pytest.raises(Killed):
                site.ask("local0")
        assert charged(site) == NAMES[: len(before) + n_charged]

    def no_noise(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:  # all charged, no noise drawn
        patch.setattr(secure_sum, "discrete_gaussian", no_noise)
        with pytest.raises(Killed):
            site.ask("local0")
    assert site.ask("local0") == site.ask("local0") == expected
    assert charged(site) == NAMES[: len(before) + len(names)]
    own = (site.journal("local0") / "ledger.jsonl").read_text().splitlines()
    assert [(line["round"], line["field"]) for line in map(json.loads, own)] == charged(site)


def test_a_run_through_documents_ends_as_one_in_memory(tmp_path) -> None:
    """Of the same files, without noise: the settings name the computation in documents alone."""
    played = engine(tmp_path, helper.POLICY, private=False).until("report")
    run = helper.Consortium(several.NAME, folder=tmp_path / "data", private=False, **FILES)
    run.until("report")
    found = played.caches["remote"]["cape"]["model"]["look"]
    assert found == wire.loads(helper.canonical(run.state.model.look))


def test_the_results_state_every_release_and_what_each_round_cost(tmp_path) -> None:
    with helper.without_pages():
        results = engine(tmp_path, SitePolicy.of_simulation()).play().place("remote", "transfer")
    stated = json.loads((results / "privacy.json").read_text())
    assert [(row["round"], row["field"]) for row in stated["events"]] == NAMES
    table = [line.split("\t") for line in (results / "rounds.tsv").read_text().splitlines()]
    rows = [dict(zip(table[0], row, strict=True)) for row in table[1:]]
    assert [(row["phase"], row["round"]) for row in rows] == [("look", "1"), ("look", "2")]
    so_far = [stated["events"][last]["mu_so_far"] for last in (1, 4)]
    assert [float(row["mu_so_far"]) for row in rows] == pytest.approx(so_far, rel=1e-5)


# -- what a site does not believe ------------------------------------------------------------------

Change = Callable[[tuple[Event, ...]], tuple[Event, ...]]
LIES: dict[str, Change] = {
    "a release less": lambda plan: plan[:-1],
    "a release of the first round less": lambda plan: plan[1:],
    "a release more": lambda plan: (*plan, replace(plan[-1], field="more")),
    "another field": lambda plan: (*plan[:-1], replace(plan[-1], field="sites")),
    "another round": lambda plan: (*plan[:-1], replace(plan[-1], round=3)),
    "all in one round": lambda plan: tuple(replace(event, round=1) for event in plan),
    "another order": lambda plan: (plan[0], plan[1], plan[3], plan[2], plan[4]),
    "rounds in turn": lambda plan: (plan[0], plan[2], plan[1], *plan[3:]),
    "a field twice": lambda plan: (*plan[:3], plan[2], plan[4]),
    "the noise of another one": lambda plan: (
        replace(plan[0], variance=plan[0].variance // 4), *plan[1:],
    ),
    "a release of one half": lambda plan: (*plan[:-1], replace(plan[-1], part="A")),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_site_believes_no_plan_of_other_rounds_than_its_own(lie) -> None:
    run = consortium()
    join, inbox = run.computation.bind(run.config).phases["join"], run.answers()
    honest, (_, broadcast, _) = run.computation, run.combine(inbox)
    wrong = replace(broadcast.body, plan=LIES[lie](broadcast.body.plan))
    run.computation = helper.cheating(run, join, wrong, broadcast.phase)
    run.go_on(run.combine(inbox))
    run.computation = honest
    with pytest.raises(CapeError, match=r"E23[012]"):
        run.answer("local0")
    assert not any(event[0] == "charge" for event in run.events["local0"])


def test_a_broadcast_state_of_another_round_asks_nothing_that_was_not_planned() -> None:
    """Its questions are those of round 2 again, which are none of round 3; or of no round."""
    run = consortium().until("look", 2)
    state = run.request.body
    with pytest.raises(PrivacyBudgetError, match="asks 2 questions, planned 3"):
        run.answer("local0", helper.changed(run.request, round=0))
    longer = replace(state, values=np.zeros(13))
    with pytest.raises(MessageError, match="arrays of another shape"):
        run.answer("local0", replace(run.request, body=longer))
    assert len([event for event in run.events["local0"] if event[0] == "charge"]) == 2


UNPLANNED: dict[str, Callable[..., Any]] = {
    "in another order": lambda mean, pairs: (pairs, mean),
    "one less": lambda mean, pairs: (mean,),
    "one more": lambda mean, pairs: (mean, pairs, pairs),
    "of a smaller clip": lambda mean, pairs: (replace(mean, clip=1.5), pairs),
    "of another shape": lambda mean, pairs: (mean, replace(pairs, shape="ball")),
    "of more numbers": lambda mean, pairs: (replace(mean, size=5), pairs),
}


@pytest.mark.parametrize("what", UNPLANNED)
def test_a_question_that_a_round_did_not_plan_is_not_asked(what, monkeypatch) -> None:
    real, run = several.SeveralEstimator.queries, consortium().until("look", 1)
    monkeypatch.setattr(
        several.SeveralEstimator, "queries", lambda self, state: UNPLANNED[what](*real(self, state))
    )
    with pytest.raises(PrivacyBudgetError, match=r"E23[13]"):
        run.answer("local0")
    assert not any(event[0] == "charge" for event in run.events["local0"])


def test_the_noise_of_each_release_has_its_own_planned_variance(monkeypatch) -> None:
    seen: list[tuple[int, int]] = []

    def listening(variance: int, size: int, source: Any) -> Any:
        seen.append((variance, size))
        return discrete_gaussian(variance, size, source)

    monkeypatch.setattr(secure_sum, "discrete_gaussian", listening)
    run = consortium().play()
    plan = joined(run.state.model).plan
    own = [(event.variance, event.size) for event in plan]
    assert seen == own[:2] * 3 + own[2:] * 3
    assert len({variance for variance, _ in own}) > 2
