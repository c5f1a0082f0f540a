"""Who gets at a site's folder: snapshots put back, copies run side by side, clocks that jump.

The thief restores all that the site keeps (journal, vault, cache, ledger of the run) as it was
before an exchange, and has the site answer again, with the same or with another broadcast.  Each
attack says what is learned beyond the one answer that everybody gets: in bits, or as certified mu.
Not here: a thief who takes the data, which lie beside the folder.
"""

import base64
import copy
import datetime
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cape.errors import CapeError, PrivacyBudgetError
from cape.privacy.mechanisms import plan_event
from cape.privacy.noise import discrete_gaussian
from cape.protocol import wire
from cape.protocol.droppable_sum import load_state
from cape.protocol.model import Roster
from cape.protocol.phases import advance_site
from cape.protocol.secure_sum import noise_stream
from cape.secagg.keys import RunSecret
from cape.secagg.site_steps import SharedSite
from cape.site import access, ledger_lines
from cape.site.ledger_file import read_ledger
from cape.site.places import POLICY_VARIABLE
from support import auditor, say, tiny, wiretap
from support import consortium as helper

ROOT = Path(__file__).parents[2]
THIEF = "local1"
REAL = replace(helper.POLICY, simulation_seed=-1)
LEDGER = replace(REAL, ledger_file="../ledger.jsonl")
RESTORES = 200  # as in the audit that found 200 answers, whose mean has a 14th of the noise

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "capedjica": ("capedjica", {}),
    "paperdjica": ("paperdjica", {"whitening": "eigen"}),
    "covariance": ("paperdjica", {"solver": "quasi-newton"}),
    "capegica": ("capegica", {}),
    "gaussian": ("papermean", {}),
    "local": ("capedjica", {"noise": "local"}),
    "secagg": ("capedjica", {"aggregation": "secagg", "n_rounds": 1}),
    "capemean": ("capemean", {}),
    "capemean-secagg": ("capemean", {"aggregation": "secagg"}),
    "capecca": ("capecca", {}),
    "capecca-secagg": ("capecca", {"aggregation": "secagg"}),
    "capepca": ("capepca", {}),
    "capepca-secagg": ("capepca", {"aggregation": "secagg"}),
}
SHORT = ("capedjica", "gaussian", "capemean-secagg")


def engine_of(folder: Path, way: str, policy: Any = REAL) -> Any:
    name, chosen = WAYS[way]
    data = helper.write_data(folder / "data")
    settings = helper.settings_of(name, computation=name, **chosen)
    return helper.Engine(folder / "work", data, settings, policy=policy)


class Snapshot:
    """All that a site keeps, and its cache in the engine, as they are now."""

    def __init__(self, engine: Any, folder: Path) -> None:
        self._engine, self._folder = engine, folder
        self._cache, self._iteration = copy.deepcopy(engine.caches[THIEF]), engine.iteration
        shutil.copytree(engine.work / THIEF, folder)

    def restore(self) -> None:
        shutil.rmtree(self._engine.work / THIEF)
        shutil.copytree(self._folder, self._engine.work / THIEF)
        self._engine.caches[THIEF] = copy.deepcopy(self._cache)
        self._engine.iteration = self._iteration

    def answers(self, n: int, message: Any = None) -> Iterator[bytes]:
        for _ in range(n):
            self.restore()
            yield self._engine.ask(THIEF, message)


def each_exchange(engine: Any, folder: Path) -> Iterator[Snapshot]:
    """Yield a snapshot before each exchange but `join`, and play it."""
    with helper.without_pages():
        engine.exchange()
        while not engine.ended:
            snapshot = Snapshot(engine, folder / str(engine.iteration))
            yield snapshot
            snapshot.restore()
            engine.exchange()


def words(text: bytes) -> np.ndarray:
    """Return the vector of an answer, modulo 2^64."""
    body = json.loads(text)["output"]["body"]["total"]
    return np.frombuffer(base64.b64decode(body["base64"]), dtype="<u8")


def changed(message: Any, **body: Any) -> dict[str, Any]:
    return {**message, "body": {**message["body"], **body}}


def looks_uniform(difference: np.ndarray) -> bool:
    """Tell whether no entry is small; false below 2^-13 for an entry that is uniform."""
    return bool(np.abs(difference.view(np.int64)).min() > 2**50)


# -- the same question -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "way", [pytest.param(w, marks=() if w in SHORT else pytest.mark.trust) for w in WAYS]
)
def test_a_folder_restored_before_any_exchange_gives_the_same_bytes(tmp_path, way) -> None:
    """0 bits: one answer, however often it is asked for; with fresh draws it were three."""
    engine = engine_of(tmp_path, way)
    for snapshot in each_exchange(engine, tmp_path / "old"):
        if engine.cursor[0] != "report":  # its results say when they were written; it sends none
            assert len(set(snapshot.answers(3))) == 1, engine.cursor
    assert engine.iteration > 5


@pytest.mark.parametrize(
    ("way", "phase"),
    [("capemean", "mean"), *(
        pytest.param(*row, marks=pytest.mark.trust)
        for row in (("local", "pca"), ("gaussian", "mean.released"), ("secagg", "whitening"))
    )],
)  # fmt: skip
def test_200_restores_of_a_release_give_one_answer_and_one_charge(tmp_path, way, phase) -> None:
    """0 bits.  Before: 200 answers, one charge, and noise of a fourteenth in their mean."""
    engine = engine_of(tmp_path, way, LEDGER)
    engine.until(phase)
    charges = sum(len(run.charges) for run in read_ledger(tmp_path / "work/ledger.jsonl").runs)
    answers = set(Snapshot(engine, tmp_path / "old").answers(RESTORES))
    after = sum(len(run.charges) for run in read_ledger(tmp_path / "work/ledger.jsonl").runs)
    say(f"{way} {phase}: {RESTORES} restores, {len(answers)} answer, {after - charges} charge")
    assert len(answers) == 1
    assert after - charges == 1


def test_averaging_restores_certifies_no_more_than_one_release() -> None:
    """The adversary of the audits sets all honest sites back and averages what it decodes."""
    # False alarm below 1e-6.  With fresh noise 25 restores certify five times the claimed mu, less
    # what 5,000 guesses cannot tell.
    statistic, bits = [], []
    for _ in range(5):
        own = auditor.coins(1000)
        link, _ = wiretap.canary_run(own, n_rounds=1, mu=1.0)
        link.until("canary")
        here, looks = link.snapshot(), []
        for _ in range(25):
            link.back(here, renew=False)
            link.exchange()
            looks.append(link.seen())
        statistic.append(np.mean(looks, axis=0))
        bits.append(own)
    claimed = math.sqrt(link.event().cost.mu2)
    certified = wiretap.certified_mu(np.concatenate(statistic), np.concatenate(bits))
    auditor.check_sound(certified, claimed)


def test_a_copy_of_a_folder_answers_alike_in_a_process_of_its_own(tmp_path) -> None:
    """A forked container, a cloned machine: 0 bits."""
    engine = engine_of(tmp_path, "capemean").until("mean")
    clone = engine.copy(tmp_path / "clone")
    environment = {**os.environ, POLICY_VARIABLE: str(clone.work / THIEF / "site-policy.toml")}
    processes = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "local.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=environment,
        )
        for _ in range(2)
    ]  # fmt: skip
    documents = [clone.document(THIEF, clone.input), engine.document(THIEF, engine.input)]
    answers = {p.communicate(d)[0] for p, d in zip(processes, documents, strict=True)}
    assert answers == {engine.ask(THIEF) + b"\n"}


@pytest.mark.parametrize("jump", [-20, 20])
def test_a_clock_that_jumps_changes_no_answer_and_no_charge(tmp_path, monkeypatch, jump) -> None:
    """Years back or forth, files and ledger included: 0 bits, the same charge."""
    engine = engine_of(tmp_path, "capemean", LEDGER).until("mean")
    snapshot, now = Snapshot(engine, tmp_path / "old"), time.time() + jump * 365 * 86400
    (first,) = snapshot.answers(1)
    before = read_ledger(tmp_path / "work/ledger.jsonl")
    snapshot.restore()
    monkeypatch.setattr(time, "time", lambda: now)
    day = datetime.date.fromtimestamp(now)
    date = SimpleNamespace(today=lambda: day)
    for module in (ledger_lines, access):
        monkeypatch.setattr(module, "datetime", SimpleNamespace(date=date))
    for path in sorted((engine.work / THIEF).rglob("*")):
        os.utime(path, (now, now))
    assert engine.ask(THIEF) == first
    assert read_ledger(tmp_path / "work/ledger.jsonl") == before


# -- another question ------------------------------------------------------------------------------


def test_another_question_for_an_answered_round_has_another_mask(tmp_path) -> None:
    """0 bits: the difference of the two answers is uniform to who does not hold the pair keys."""
    engine = engine_of(tmp_path, "capedjica").until("iterate", 2)
    snapshot = Snapshot(engine, tmp_path / "old")
    record = {**engine.input["body"]["record"], "noise_norm": 0.125}
    told = [engine.input, changed(engine.input, record=record)]
    first, second = (next(snapshot.answers(1, message)) for message in told)
    assert looks_uniform(words(first) - words(second))


def test_one_last_broadcast_after_two_histories_has_two_masks(tmp_path) -> None:
    """0 bits.  A label that knew the last broadcast only showed x - x' + g - g' of one site."""
    engine = engine_of(tmp_path, "capedjica").until("whitening")
    snapshot, honest = Snapshot(engine, tmp_path / "old"), engine.input
    others = {site: engine.ask(site) for site in engine.sites if site != THIEF}
    V = honest["body"]["V"]
    turned = -np.frombuffer(base64.b64decode(V["base64"]), dtype="<f8")
    lie = {**V, "base64": base64.b64encode(turned.tobytes()).decode()}
    inbox = {site: engine.take(site, text) for site, text in others.items()}
    (text,) = snapshot.answers(1, changed(honest, V=lie))
    engine.take(THIEF, text)
    engine.iteration += 1
    lied_to = Snapshot(engine, tmp_path / "lied to")
    (text,) = snapshot.answers(1)
    engine.finish({**inbox, THIEF: engine.take(THIEF, text)})
    told_the_truth = Snapshot(engine, tmp_path / "told the truth")
    (first,), (second,) = lied_to.answers(1), told_the_truth.answers(1)
    assert looks_uniform(words(first) - words(second))


def test_a_second_sum_of_the_seeds_gives_the_same_vector_less_what_was_said(tmp_path) -> None:
    """0 bits: under Gaussian zero-sum noise T is all that differs, and the aggregator chose it."""
    engine = engine_of(tmp_path, "gaussian").until("mean.released")
    snapshot, total = Snapshot(engine, tmp_path / "old"), engine.input["body"]["total"]
    T = np.frombuffer(base64.b64decode(total["base64"]), dtype="<i8")
    other = T + np.arange(len(T))
    lie = {**total, "base64": base64.b64encode(other.astype("<i8").tobytes()).decode()}
    (first,), (second,) = snapshot.answers(1), snapshot.answers(1, changed(engine.input, total=lie))
    difference = (words(first) - words(second)).view(np.int64)
    np.testing.assert_array_equal(difference, other - T)


def test_another_sum_under_the_same_question_has_other_noise() -> None:
    """One person more or less between two restores: exact before, two noises between them now."""
    event = plan_event(phase="mean", round=1, field="total", shape="ball", size=500, clip=1.0,
                       mu=0.5, shares=3)  # fmt: skip
    site = SimpleNamespace(noise=RunSecret(secret=bytes(range(32)), label="os"))
    one = np.zeros(500, dtype=np.int64)
    noises = []
    for total, told, line in (
        (one, bytes(32), event), (one + 1, bytes(32), event), (one, b"x" * 32, event),
        (one, bytes(32), replace(event, round=2)), (one, bytes(32), event),
    ):  # fmt: skip
        entropy = noise_stream(site, line, told, total)
        noises.append(discrete_gaussian(event.variance, 500, entropy))
    assert np.array_equal(noises[0], noises[4])
    std = math.sqrt(event.variance)
    for i, j in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)):
        # 500 differences of variance 2 s2: outside of that range below 1e-9
        assert 1.1 < np.std(noises[i] - noises[j]) / std < 1.75


def test_another_question_has_another_mask_where_sites_may_drop_out(tmp_path) -> None:
    """0 bits: key sets serve one release, but a restored one is bound to the question, too."""
    engine = engine_of(tmp_path, "secagg").until("whitening")
    snapshot = Snapshot(engine, tmp_path / "old")
    record = {**engine.input["body"]["record"], "noise_norm": 0.125}
    told = [engine.input, changed(engine.input, record=record)]
    first, second = (next(snapshot.answers(1, message)) for message in told)
    assert looks_uniform(words(first) - words(second))


@pytest.mark.parametrize(
    ("way", "phase", "lie"),
    [("capedjica", "iterate", "record"), ("secagg", "pca.consistency", "sites")],
)
def test_the_ledger_of_all_runs_remembers_what_a_folder_that_was_set_back_forgot(
    tmp_path, way, phase, lie
) -> None:
    """0 bits: the same question has the same answer, another one for the round has none."""
    # Without that ledger it were one release more, or, with lists of survivors, mu sqrt(h).
    engine = engine_of(tmp_path, way, LEDGER).until(phase)
    snapshot, told = Snapshot(engine, tmp_path / "old"), engine.input
    first = engine.ask(THIEF)
    with helper.without_pages():
        engine.exchange()
        engine.exchange()
    body = {"record": {**told["body"].get("record", {}), "noise_norm": 0.125}, "sites": [THIEF]}
    snapshot.restore()
    with pytest.raises(CapeError, match="E203"):
        engine.ask(THIEF, changed(told, **{lie: body[lie]}))
    assert list(snapshot.answers(2, told)) == [first, first]


def test_gaussian_seeds_and_keys_of_another_question_are_others() -> None:
    party = helper.Consortium("papermean", seed=None).until("zero-sum")
    site, roster = party.parties[THIEF], replace(party.request.body, warnings=("w",))
    lie = replace(party.request, body=roster, run=site.digest(roster)[:16].hex())
    drawn = set()
    for message in (party.request, lie, party.request):
        party.answer(THIEF, message)
        drawn.add(site.secret("x25519"))
    assert len(drawn) == 2
    party.until("histogram")
    record = replace(party.request.body.record, noise_norm=0.125)
    drawn = set()
    for message in (party.request, helper.changed(party.request, record=record), party.request):
        party.answer(THIEF, message)
        drawn.add(site.secret("seed")[32:])
    assert len(drawn) == 2


def test_shares_of_one_secret_lie_on_one_polynomial_whatever_list_is_told() -> None:
    """Else two lists would have two texts under one key and nonce, or two points per site."""
    link = tiny.link_of(tiny.settings(aggregation="secagg"), tiny.data_of(5))
    while link._state.cursor.phase != "zero-sum.shares":
        link.exchange()
    party, request = link._parties["site0"], link._request
    fewer = {site: own for site, own in request.body.sites.items() if site != "site4"}
    before, shares = dict(party.store.secrets), []
    for sites in (request.body.sites, fewer):
        party.store.secrets = dict(before)
        told = replace(request, body=replace(request.body, sites=sites))
        advance_site(link._runs["site0"], told, party)
        shares.append(load_state(party, "secagg", SharedSite).own_shares)
    assert shares[0] == shares[1]


# -- runs ------------------------------------------------------------------------------------------


def test_a_snapshot_from_before_join_is_another_run_with_its_own_charges(tmp_path) -> None:
    """Two releases, two charges: mu grows by the square root of 2, and the ledger says so."""
    engine = engine_of(tmp_path, "capemean", LEDGER)
    snapshot, begin = Snapshot(engine, tmp_path / "old"), engine.copy(tmp_path / "begin")
    engine.until("histogram")
    first = engine.caches[THIEF]["cape"]["nonce"]
    snapshot.restore()
    again = begin.copy(tmp_path / "again")
    shutil.copy(tmp_path / "work/ledger.jsonl", tmp_path / "again/ledger.jsonl")
    for name in ("ledger.jsonl.key", "ledger.jsonl.head"):
        shutil.copy(tmp_path / "work" / name, tmp_path / "again" / name)
    again.until("histogram")
    assert again.caches[THIEF]["cape"]["nonce"] != first
    runs = read_ledger(tmp_path / "again/ledger.jsonl").runs
    assert len({run.run for run in runs}) == len(runs) == 2 * len(engine.sites)
    assert [len(run.charges) for run in runs] == [1] * len(runs)


def test_a_machine_that_is_set_back_as_a_whole_answers_anew_every_time(tmp_path) -> None:
    """The limit of what a site can know by itself: mu sqrt(n) for n, and one charge on paper."""
    # Folder, ledger and home come from one moment before `join`, as from a snapshot of a machine.
    # Seen alone here (``noise=local``), so that what each answer adds can be measured.  False alarm
    # below 1e-6: the mean of 36 squares of a normal is .2 to 3 of what is expected.
    data = helper.write_data(tmp_path / "data")
    settings = helper.settings_of("capemean", computation="capemean", noise="local")
    begin = helper.Engine(tmp_path / "begin" / "work", data, settings, policy=LEDGER)
    answers, nonces = [], set()
    for k in range(4):
        engine = begin.copy(tmp_path / f"{k}" / "work").until("mean")
        nonces.add(engine.caches[THIEF]["cape"]["nonce"])
        answers.append(words(engine.ask(THIEF)).view(np.int64))
        runs = [
            run for run in read_ledger(tmp_path / f"{k}" / "work" / "ledger.jsonl").runs
            if run.run in nonces
        ]  # fmt: skip
        assert [len(run.charges) for run in runs] == [1]
    assert len(nonces) == 4
    state = json.loads(engine.document(THIEF, engine.input))["cache"]["cape"]
    roster = wire.decode_constant(state["model"]["roster"], Roster)
    seen = np.var(answers, axis=0, ddof=1).mean() / roster.plan[0].variance
    say(f"4 machines set back: noise of {seen:.2f} of one share's variance between their answers")
    assert 0.2 < seen < 3


def test_join_asked_again_is_another_run(tmp_path) -> None:
    """Under one nonce and its charges, each answer to `join` would else open fresh noise."""
    engine = engine_of(tmp_path, "capemean")
    first, second = (json.loads(engine.ask(THIEF)) for _ in range(2))
    assert first["output"]["body"]["nonce"] != second["output"]["body"]["nonce"]
    engine.exchange()
    engine.caches[THIEF] = first["cache"]
    with pytest.raises(CapeError, match="E210"):
        engine.ask(THIEF)


def test_two_runs_on_the_same_people_under_other_labels_share_one_budget(tmp_path) -> None:
    """Nothing beyond the limit: files renamed, folder moved, order changed; the second is refused.

    Each run plans epsilon 100; the limit over all runs is 120.
    """
    # One ledger a site: the sites of these tests share their labels.
    policy = replace(LEDGER, ledger_file="ledger.jsonl", max_total=((120.0, 1e-5),))
    first = engine_of(tmp_path / "one", "capemean", policy)
    with helper.without_pages():
        first.play()
    second = engine_of(tmp_path / "two", "capemean", policy)
    for site in first.sites:
        for name in ("ledger.jsonl", "ledger.jsonl.key", "ledger.jsonl.head"):
            shutil.copy(tmp_path / "one/work" / site / name, tmp_path / "two/work" / site / name)
    for path in sorted(second.data.rglob("*.npy")):
        path.rename(path.with_name(f"sub-patient{path.stem[::-1].replace('-', '')}.npy"))
    with pytest.raises(PrivacyBudgetError, match="E154"):
        second.exchange()


@pytest.mark.parametrize(
    ("ledger", "named", "made_anew", "is_found"),
    [
        ("../ledger.jsonl", "", False, True),
        ("../ledger.jsonl", "", True, True),
        ("../ledger.jsonl", "cohort", True, True),
        ("ledger.jsonl", "cohort", False, False),
    ],
)
def test_a_site_that_is_called_by_another_id_is_found_in_its_ledger(
    tmp_path, ledger, named, made_anew, is_found
) -> None:
    """In the ledger that it had: a ledger beside the output of another id is another one."""
    # One and a half times epsilon 100 by the charge and the plan, of a limit of 120.
    policy = replace(LEDGER, ledger_file=ledger, dataset_id=named, max_total=((120.0, 1e-5),))
    first = engine_of(tmp_path, "capemean")
    first.allow(THIEF, policy)
    first.until("histogram")
    for site in sorted((tmp_path / "data").iterdir()):
        moved = site.rename(site.with_name(f"account-{site.name}"))
        for path in sorted(moved.glob("*.npy")) if made_anew else ():
            np.save(path, 1.5 * np.load(path))
    settings = helper.settings_of("capemean", computation="capemean")
    again = helper.Engine(tmp_path / "work", tmp_path / "data", settings, policy=REAL)
    again.allow(f"account-{THIEF}", policy)
    if not is_found:
        assert b'"n_subjects"' in again.ask(f"account-{THIEF}")
        return
    with pytest.raises(PrivacyBudgetError, match="E154"):
        again.ask(f"account-{THIEF}")
