"""The ledger that outlives a run: added up per person, charged once, never past the limit."""

import fcntl
import hashlib
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cape.errors import ConfigError, StateLostError, StoppedError
from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.privacy.cost import INFINITE, Cost, Event
from cape.privacy.holds import Limits
from cape.privacy.spending import Charge, RunSpending
from cape.settings.config import Config
from cape.site import files, ledger_lines
from cape.site.access import round_file
from cape.site.files import appending
from cape.site.ledger_file import LifetimeLedger, LifetimeLedgerFile, ListedPerson, read_ledger
from cape.site.policy import limit_of
from cape.site.site_data import FileSource

DELTA = 1e-5


def run(name: str, *people: str, dataset: str = "", delta: float = DELTA, promised: bool = True):
    return RunSpending(
        run=name, dataset=dataset or name, people=frozenset(people), computation="capedjica",
        date="2026-01-01", epsilon=1.0, delta=delta, promised=promised,
    )  # fmt: skip


def entry(round: int, mu2: str = "1/100") -> dict[str, object]:
    return {"phase": "iterate", "round": round, "field": "total", "mu2": mu2, "seq": round}


def ledger(tmp_path: Path, limit: Cost = INFINITE) -> LifetimeLedgerFile:
    limits = Limits(total=limit)
    return LifetimeLedgerFile(path=tmp_path / "deep" / "ledger.jsonl", site="B", limits=limits)


def cost(text: str) -> Cost:
    return Cost(mu2=Fraction(text))


# More than any run of these tests charges
PLAN = cost("1000")


def opened(file: LifetimeLedgerFile, what: RunSpending, plan: Cost = PLAN) -> str:
    """Ask as a run does, in `join` and at the roster; the last answer."""
    word = file.join(what, plan).word
    return file.hold(what.run, plan).word if word == "in" else word


def pays(file: LifetimeLedgerFile, name: str, *charge: object) -> str:
    return file.charge(name, entry(*charge), PLAN).word


def spend(file: LifetimeLedgerFile, what: RunSpending, rounds: int, mu2: str = "1/100") -> None:
    assert opened(file, what) == "in"
    for j in range(1, rounds + 1):
        assert pays(file, what.run, j, mu2) == "in"


@pytest.mark.parametrize(
    ("runs", "mu"),
    [
        ([("a b", "", 3), ("a b", "", 6)], 0.3),  # the root of the summed squares
        # The digest of all data changes when one file does; those of the others do not
        ([("a b", "digest 1", 4), ("a b c", "digest 2", 5)], 0.3),
        # Files of a named data set may have been made anew
        ([("a", "cohort", 4), ("A", "cohort", 5)], 0.3),
        ([("x", "cohort", 3), ("a", "cohort", 4), ("a", "pooled", 9)], 0.4),  # x with other images?
    ],
)
def test_runs_that_may_hold_one_person_are_added_up(tmp_path, runs, mu) -> None:
    file = ledger(tmp_path)
    for j, (people, dataset, rounds) in enumerate(runs):
        spend(file, run(f"run {j}", *people.split(), dataset=dataset), rounds)
    total = file.total(f"run {len(runs) - 1}")
    assert (total.runs, total.delta) == (len(runs), DELTA)
    assert total.mu == pytest.approx(mu, rel=1e-15)
    assert total.mu >= mu
    assert total.epsilon == gdp_epsilon(mu=total.mu, delta=DELTA)


def test_the_person_in_most_runs_decides_and_strangers_do_not_count(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a", "b"), 1)
    spend(file, run("two", "b", "c"), 1)
    spend(file, run("three", "x"), 1)
    spend(file, run("four", "a", "c"), 1)
    assert file.total("four").mu == pytest.approx(math.sqrt(0.02))  # a or c: two runs each
    spend(file, run("five", "b"), 1)
    assert file.total("five").mu == pytest.approx(math.sqrt(0.03))
    assert file.total("three").runs == 1


def test_a_person_is_found_again_through_runs_on_other_files_of_hers(tmp_path) -> None:
    """Runs on A, on B and on both: they were three people, and each began a new account."""
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 4)
    spend(file, run("two", "b"), 5)
    assert (file.total("one").runs, file.total("two").runs) == (1, 1)  # nothing joins them yet
    spend(file, run("three", "a b", "c"), 7)
    for name in ("one", "two", "three"):
        assert (file.total(name).runs, file.total(name).mu) == (3, pytest.approx(0.4))
    spend(file, run("four", "c"), 1)
    assert file.total("four").mu == pytest.approx(math.sqrt(0.08))  # c was in two runs only
    assert file.total("three").mu == pytest.approx(0.4)  # the person who spent most decides


def all_runs(
    file: LifetimeLedgerFile, people: list[ListedPerson], contents: str = "c", **more
) -> LifetimeLedger:
    return LifetimeLedger(file=file, dataset_id="", **more,
                   data=SimpleNamespace(people=people, contents=contents))  # fmt: skip


CONFIG = Config(epsilon=1.0, delta=DELTA)
EVENT = Event(
    phase="iterate", round=1, field="total", shape="ball", size=4, log2_gamma=10, clip_int=10,
    delta_int=20, variance=40000, shares=1,
)  # fmt: skip


def test_other_files_of_the_same_name_are_the_same_person(tmp_path) -> None:
    """Another bids_filter, or some runs only: the same people looked new to the ledger."""
    file = ledger(tmp_path)
    first = [ListedPerson(label=f"sub-{m}", files=(f"{m}-run-1", f"{m}-run-2")) for m in range(3)]
    other = [ListedPerson(label=f"sub-{m}", files=(f"{m}-other-space",)) for m in range(3)]
    renamed = [ListedPerson(label=f"patient{m}", files=(f"{m}-run-2",)) for m in range(3)]
    for name, people in (("one", first), ("two", other), ("three", renamed)):
        assert (
            all_runs(file, people, name).begin(name, "capedjica", CONFIG, promised=True).word
            == "in"
        )
        assert pays(file, name, 1) == "in"
        assert len(file.find(name).people) == 3
    assert [file.total(name).runs for name in ("one", "two", "three")] == [3, 3, 3]
    strangers = [ListedPerson(label="sub-7", files=("7",))]
    assert (
        all_runs(file, strangers, "four").begin("four", "capedjica", CONFIG, promised=True).word
        == "in"
    )
    assert file.total("four").runs == 1


def test_a_choice_of_runs_makes_no_other_people_of_the_same_files(tmp_path) -> None:
    rng = np.random.default_rng(3)
    names = [f"sub-{m}_run-{r}.npy" for m in (1, 2) for r in (1, 2)]
    for name in names:
        np.save(tmp_path / name, rng.standard_normal((6, 400)))
    config = Config(epsilon=1.0, delta=DELTA, feature_space="matrix", n_features=6)
    first, second, both = (
        FileSource(tmp_path, {"data": chosen}, config, "B").people
        for chosen in (names[::2], names[1::2], names)
    )
    assert [person.label for person in first] == ["sub-1", "sub-2"]
    assert [person.label for person in second] == ["sub-1", "sub-2"]
    for one, other, all_files in zip(first, second, both, strict=True):
        assert all_files.files == one.files + other.files


def test_reading_a_long_run_looks_at_every_charge_a_few_times_only(tmp_path, monkeypatch) -> None:
    """It was read before every release, and each line was compared with all lines of its run."""
    file, asked = ledger(tmp_path), []
    spend(file, run("one", "a"), 50)
    key = Charge.key.fget
    monkeypatch.setattr(Charge, "key", property(lambda one: asked.append(one) or key(one)))
    read_ledger(file.path)
    assert len(asked) <= 100


def test_names_of_people_are_in_no_file_and_their_digests_need_the_key(tmp_path) -> None:
    file = ledger(tmp_path)
    people = [ListedPerson(label="sub-MRN12345", files=("f",))]
    all_runs(file, people).begin("one", "capedjica", CONFIG, promised=True)
    key = file.path.with_name("ledger.jsonl.key")
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert "MRN12345" not in file.path.read_text() + key.read_text()
    made = people[0].digests(bytes.fromhex(key.read_text()), ("",))
    assert read_ledger(file.path).runs[0].people == {made}
    assert made not in (people[0].digests(bytes(32), ("",)), people[0].digests(b"", ("",)))
    # Names of two data sets that the site tells apart are not the same.
    assert people[0].digests(bytes.fromhex(key.read_text()), ("d",)) != made


def test_a_site_that_an_aggregator_calls_by_another_name_has_the_same_people(tmp_path) -> None:
    """Tables without dataset_id, another name each time: five runs of epsilon 8 were all "in"."""
    people = [ListedPerson(label=f"sub-{m}", files=()) for m in range(3)]
    config = replace(CONFIG, epsilon=gdp_epsilon(mu=0.6, delta=DELTA))
    for name, word in (("a", "in"), ("b", "in"), ("c", "spent"), ("d", "spent")):
        file = replace(ledger(tmp_path, cost("0.8")), site=f"site {name}")
        runs = all_runs(file, people, f"outcome {name}")
        assert runs.begin(name, "capecontrast", config, promised=True).word == word
        if word == "in":
            assert file.hold(name, cost("0.36")).word == "in"
            assert pays(file, name, 1, "36/100") == "in"


def test_people_of_a_ledger_whose_digests_name_the_site_keep_what_they_spent(tmp_path) -> None:
    """By the first version: digests under (site, dataset_id), and another print of the key."""
    file = ledger(tmp_path)
    key, now = file.key()
    before = hashlib.sha256(b"cape/1/ledger-key" + key).hexdigest()[:32]
    people = [ListedPerson(label=f"sub-{m}", files=()) for m in range(2)]
    old = frozenset(one.digests(key, ("B", "")) for one in people)
    spend(file, replace(run("old", "x", dataset="old"), people=old, key=before), 9)
    for name in ("new", "newer"):
        assert all_runs(file, people, name).begin(name, "c", CONFIG, promised=True).word == "in"
        assert file.find(name).key == now != before
    # Also under another name, once a run under the old one has joined the two digests.
    renamed = replace(file, site="C")
    assert all_runs(renamed, people, "last").begin("last", "c", CONFIG, promised=True).word == "in"
    assert [file.total(name).mu for name in ("new", "newer", "last")] == [pytest.approx(0.3)] * 3


@pytest.mark.parametrize("damage", ["gone", "another", "short", "text"])
def test_without_the_key_of_its_names_a_ledger_does_not_go_on(tmp_path, damage) -> None:
    """All people would look new."""
    file = ledger(tmp_path)
    runs = all_runs(file, [ListedPerson(label="sub-1", files=("f",))])
    assert runs.begin("one", "capedjica", CONFIG, promised=True).word == "in"
    key = file.path.with_name("ledger.jsonl.key")
    if damage == "gone":
        key.unlink()
    else:
        key.write_text({"another": "00" * 32, "short": "00", "text": "no key"}[damage])
    before = file.path.read_bytes()
    with pytest.raises(StateLostError, match="E262"):
        runs.begin("two", "capedjica", CONFIG, promised=True)
    assert file.path.read_bytes() == before
    assert key.exists() == (damage != "gone")  # none is made that would hide the loss


def test_without_its_ledger_a_key_does_not_begin_a_new_account(tmp_path) -> None:
    """A run that the limit refused was let in once the file was away, and all charges with it."""
    file = ledger(tmp_path, Cost.of_mu(0.11))
    runs = all_runs(file, [ListedPerson(label="sub-1", files=("f",))])
    small = Config(epsilon=gdp_epsilon(mu=0.1, delta=DELTA), delta=DELTA)
    assert runs.begin("one", "capedjica", small, promised=True).word == "in"
    assert file.hold("one", cost("1/100")).word == "in"
    assert pays(file, "one", 1) == "in"
    assert runs.begin("two", "capedjica", small, promised=True).word == "spent"
    file.path.unlink()
    for go_on in (
        lambda: runs.begin("two", "capedjica", small, promised=True),
        lambda: pays(file, "one", 2),
        lambda: runs.hold("one", [EVENT], promised=False),
        lambda: runs.begin("two", "capedjica", small, promised=True),
    ):
        with pytest.raises(StateLostError, match="E262"):
            go_on()
        assert not file.path.exists()  # an empty one would hide the loss


def test_a_first_run_that_was_refused_leaves_a_ledger_that_can_be_used(tmp_path) -> None:
    """Its key is there, and no line yet."""
    runs = all_runs(
        ledger(tmp_path, limit_of([(0.5, DELTA)])), [ListedPerson(label="sub-1", files=("f",))]
    )
    assert runs.begin("one", "capedjica", CONFIG, promised=True).word == "spent"
    assert (
        runs.begin("two", "capedjica", Config(epsilon=0.4, delta=DELTA), promised=True).word == "in"
    )


def test_a_run_that_another_site_seeds_costs_infinity(tmp_path) -> None:
    """It was known in `join` as one with noise of the operating system, and stayed that."""
    file = ledger(tmp_path)
    runs = all_runs(file, [ListedPerson(label="sub-1", files=("f",))])
    assert runs.begin("one", "capedjica", CONFIG, promised=True).word == "in"
    assert runs.hold("one", [EVENT], promised=False).word == "in"
    assert pays(file, "one", 1) == "in"
    before = file.path.read_bytes()
    assert runs.hold("one", [EVENT], promised=False).word == "in"  # asked again: written down once
    assert file.path.read_bytes() == before
    assert file.total("one").cost == INFINITE
    limited = all_runs(
        ledger(tmp_path / "limited", PLAN), [ListedPerson(label="sub-1", files=("f",))]
    )
    assert limited.begin("one", "capedjica", CONFIG, promised=True).word == "in"
    assert limited.hold("one", [EVENT], promised=False).word == "spent"
    with pytest.raises(StateLostError, match="E262"):
        runs.hold("two", [EVENT], promised=True)


def test_a_run_without_a_promise_costs_infinity_for_ever(tmp_path) -> None:
    file = ledger(tmp_path, PLAN)
    spend(file, run("one", "a"), 1)
    for name, promised, mu2 in (("seeded", False, "1/100"), ("bare", False, "infinite")):
        free = ledger(tmp_path / name)
        spend(free, run(name, "a", promised=promised), 1, mu2)
        assert free.total(name).mu is None
        assert free.total(name).epsilon is None
        limited = replace(free, limits=Limits(total=PLAN))
        assert limited.join(run("next", "a"), cost("1/100")).word == "spent"
    for limited, word in ((file, "spent"), (ledger(tmp_path / "free"), "in")):
        assert limited.join(run("bare", "a", promised=False), PLAN).word == word


def test_a_repeated_charge_is_charged_once(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 3)
    before = file.path.read_bytes()
    spend(file, run("one", "a"), 3)
    assert file.path.read_bytes() == before
    with pytest.raises(StateLostError, match="E262 Site B cannot rely on its ledger"):
        pays(file, "one", 2, "1/99")
    assert file.path.read_bytes() == before


def test_a_run_that_is_not_in_the_file_cannot_be_charged(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 1)
    with pytest.raises(StateLostError, match="E262"):
        pays(file, "two", 1)
    file.path.unlink()
    with pytest.raises(StateLostError, match="E262"):
        pays(file, "one", 2)


def test_a_run_holds_its_whole_plan_before_it_charges_anything(tmp_path) -> None:
    """Two runs were let in side by side; both ended halfway, all was spent, and no result was."""
    file = ledger(tmp_path, cost("6"))
    assert [file.join(run(name, "a"), cost("4")).word for name in ("one", "two")] == ["in", "in"]
    assert [file.hold(name, cost("4")).word for name in ("one", "two", "one")] == [
        "in",
        "wait",
        "in",
    ]
    assert file.join(run("three", "a"), cost("2")).word == "in"
    assert file.join(run("three", "a"), cost("2.1")).word == "wait"
    assert file.join(run("three", "a"), cost("6.1")).word == "spent"
    assert [pays(file, "one", j, "1") for j in range(1, 5)] == ["in"] * 4
    with pytest.raises(StateLostError, match="E262"):  # no release is outside of the plan
        pays(file, "one", 5, "1")
    assert file.hold("two", cost("4")).word == "spent"
    assert file.find("two").charges == ()


def test_what_a_run_did_not_charge_comes_back_with_its_end(tmp_path) -> None:
    file = ledger(tmp_path, cost("6"))
    for name, why in (("one", "finished"), ("two", "failed"), ("three", "closed")):
        assert opened(file, run(name, "a"), cost("3")) == "in"
        assert pays(file, name, 1, "1") == "in"
        assert file.end(name, why, by="ann", text="as told")
        assert not file.end(name, why)  # written once, also after a kill
        assert file.find(name).held == cost("1")
    assert opened(file, run("four", "a"), cost("3")) == "in"
    assert opened(file, run("five", "a"), cost("1/9")) == "wait"
    assert [one.state for one in file.spending().runs] == [
        "finished", "failed", "closed", "held",
    ]  # fmt: skip
    assert file.find("three").by == "ann"
    assert not file.end("nobody", "closed")
    assert not ledger(tmp_path / "none").end("one", "closed")


@pytest.mark.parametrize(
    ("why", "word"), [("finished", "closed"), ("closed", "closed"), ("failed", "in")]
)
def test_only_a_run_that_failed_may_come_back(tmp_path, why, word) -> None:
    """Its folder was restored; who closed it, or has its results, must see no charge more."""
    file = ledger(tmp_path, cost("6"))
    assert opened(file, run("one", "a"), cost("3")) == "in"
    assert pays(file, "one", 1, "1") == "in"
    file.end("one", why)
    assert pays(file, "one", 2, "1") == word
    assert len(file.find("one").charges) == 1 + (word == "in")


def silent(file: LifetimeLedgerFile, name: str, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(round_file(file.path, name), (then, then))


@pytest.mark.parametrize(
    ("owner", "question", "charges", "silence", "word"),
    [
        ("ben", "q", 0, 3500, "wait"),
        ("ben", "q", 0, 3700, "in"),  # nothing is lost with it
        ("ben", "q", 1, 3700, "wait"),
        ("ben", "q", 1, 6.9 * 86400, "wait"),
        ("ben", "q", 1, 7.1 * 86400, "in"),
        ("ann", "q", 1, 3500, "wait"),
        ("ann", "q", 1, 3700, "in"),  # who corrects a mistake starts again at once
        ("ben", "same", 1, 3700, "wait"),  # settings are public: they name no owner
        ("", "same", 1, 3700, "in"),  # unless nobody names one
        ("", "q", 1, 3700, "wait"),
    ],
)
def test_a_silent_run_yields_to_who_needs_its_place(
    tmp_path, owner, question, charges, silence, word
) -> None:
    file = ledger(tmp_path, cost("6"))
    one, two = (
        replace(run(name, "a"), owner=by, question=asks)
        for name, by, asks in (("one", owner and "ann", "same"), ("two", owner, question))
    )
    assert opened(file, one, cost("4")) == "in"
    assert [pays(file, "one", j + 1, "1") for j in range(charges)] == ["in"] * charges
    silent(file, "one", silence)
    assert opened(file, two, cost("4")) == word
    assert file.find("one").state == ("yielded" if word == "in" else "held")
    assert file.find("one").held == cost(f"{charges if word == 'in' else 4}")
    if word == "in":  # there is no place to come back to, and none is taken back
        silent(file, "two", 99 * 86400)
        assert pays(file, "one", 9, "1") == "yielded"
        file.end("two", "failed")
        assert pays(file, "one", 9, "1") == "in"


def test_a_run_that_a_process_computes_yields_to_nobody(tmp_path) -> None:
    """An exchange that takes longer than the patience says nothing meanwhile."""
    file = ledger(tmp_path, cost("6"))
    assert opened(file, run("one", "a"), cost("4")) == "in"
    records = all_runs(file, []).access
    with records.lock_run("one"):
        silent(file, "one", 99 * 86400)
        assert opened(file, run("two", "a"), cost("4")) == "wait"
    silent(file, "one", 99 * 86400)
    assert opened(file, run("two", "a"), cost("4")) == "in"


def test_no_more_places_are_taken_than_are_needed(tmp_path) -> None:
    """Whoever charged least first, and nobody of whom the new run holds no person."""
    file = ledger(tmp_path, cost("9"))
    for name, people, charges in (("one", "a", 2), ("two", "a", 1), ("three", "b", 0)):
        assert opened(file, run(name, people), cost("4")) == "in"
        assert [pays(file, name, j + 1, "1") for j in range(charges)] == ["in"] * charges
        silent(file, name, 8 * 86400)
    assert opened(file, run("four", "a", "b"), cost("4")) == "in"
    states = {one.run: one.state for one in file.spending().runs}
    assert states == {"one": "held", "two": "yielded", "three": "held", "four": "held"}


def test_silence_without_end_keeps_a_place_where_the_policy_says_so(tmp_path) -> None:
    file = ledger(tmp_path, cost("6"))
    never = replace(file, limits=replace(file.limits, patience=0.0))
    assert opened(never, run("one", "a"), cost("4")) == "in"
    assert pays(never, "one", 1, "1") == "in"
    silent(never, "one", 999 * 86400)
    two = replace(run("two", "a"), question="another")
    assert opened(never, two, cost("4")) == "wait"
    assert opened(file, two, cost("4")) == "in"


def test_the_limit_is_one_mu_whatever_deltas_runs_have(tmp_path) -> None:
    """A run of a small delta lowered the limit of all others afterwards: it would end one that
    was let in."""
    file = ledger(tmp_path, limit_of([(2.0, DELTA)]))
    half = Cost(mu2=Fraction(gdp_mu(epsilon=2.0, delta=DELTA)) ** 2 / 2)
    assert opened(file, run("one", "a", delta=1e-9), half) == "in"
    assert opened(file, run("two", "a", delta=1e-3), half) == "in"
    assert opened(file, run("three", "a"), cost("1/999999")) == "wait"
    assert opened(file, run("four", "z"), half) == "in"


def test_the_sum_of_others_is_compared_in_steps_where_a_policy_wants_it_coarser(tmp_path) -> None:
    file = ledger(tmp_path, cost("8"))
    coarse = replace(file, limits=replace(file.limits, steps=4))
    assert opened(file, run("one", "a"), cost("1")) == "in"
    assert pays(file, "one", 1, "1/10") == "in"
    file.end("one", "finished")
    assert file.join(run("two", "a"), cost("7")).word == "in"
    assert coarse.join(run("three", "a"), cost("6.01")).word == "spent"
    assert coarse.join(run("four", "a"), cost("6")).word == "in"
    assert coarse.join(run("five", "b"), cost("8")).word == "in"  # nobody else: nothing is rounded


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_line_that_a_crash_cut_short_does_not_count(tmp_path, cut) -> None:
    """It was not on disk, so nothing was drawn for it."""
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    head = head_of(file).read_bytes()
    assert pays(file, "one", 3) == "in"
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-cut])
    head_of(file).write_bytes(head)  # it is written after the line
    assert len(read_ledger(file.path).runs[0].charges) == 2
    assert pays(file, "one", 3) == "in"
    assert file.path.read_bytes() == whole


def head_of(file: LifetimeLedgerFile) -> Path:
    return file.path.with_name(f"{file.path.name}.head")


@pytest.mark.parametrize("left", [0, 1, 3])
def test_whole_lines_that_are_gone_are_noticed(tmp_path, left) -> None:
    """A ledger was emptied beside its key, and the next run began as if nothing was spent."""
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 3)
    lines = file.path.read_bytes().splitlines(keepends=True)
    file.path.write_bytes(b"".join(lines[:left]))
    for step in (
        lambda: pays(file, "one", 4), lambda: file.join(run("two", "a"), PLAN), file.key,
        lambda: file.find("one"), lambda: file.total("one"), lambda: file.mark_not_private("one"),
    ):  # fmt: skip
        with pytest.raises(StateLostError, match="E262"):
            step()
    with pytest.raises(StateLostError, match=r"E235 .*do not delete it"):
        read_ledger(file.path)
    assert file.path.read_bytes() == b"".join(lines[:left])


def test_a_crash_between_a_line_and_its_head_loses_nothing(tmp_path, monkeypatch) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    monkeypatch.setattr(ledger_lines, "write_atomically", None)
    with pytest.raises(TypeError):
        pays(file, "one", 3)
    monkeypatch.undo()
    assert pays(file, "one", 3) == "in"
    assert len(read_ledger(file.path).runs[0].charges) == 3
    assert pays(file, "one", 4) == "in"
    assert head_of(file).read_text().startswith("6 ")


@pytest.mark.parametrize("text", [b"", b"5\n", b"x y\n", b"-1 00\n", b"\xff"])
def test_a_damaged_head_stops_the_site(tmp_path, text) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    head_of(file).write_bytes(text)
    with pytest.raises(StateLostError, match="E262"):
        pays(file, "one", 3)


def test_a_head_may_be_missing_after_the_first_line_only(tmp_path) -> None:
    """A crash comes between a line and its head; whoever takes the head away hides lines."""
    file = ledger(tmp_path)
    assert file.join(run("one", "a"), PLAN).word == "in"
    head_of(file).unlink()
    assert file.hold("one", PLAN).word == "in"
    head_of(file).unlink()
    with pytest.raises(StateLostError, match="E262"):
        pays(file, "one", 2)


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.parametrize("sign", ["key", "rounds"])
def test_a_head_that_is_gone_is_noticed_beside_any_sign_of_earlier_lines(tmp_path, left, sign):
    """Cut to one line or none, without its head, a ledger let people in whose total was spent."""
    file = ledger(tmp_path)
    file.key()
    assert file.join(run("zero", "a"), PLAN).word == "in"  # a new key with no line is no such sign
    spend(file, run("one", "a"), 2)
    file.path.write_bytes(b"".join(file.path.read_bytes().splitlines(keepends=True)[:left]))
    head_of(file).unlink()
    key = file.path.with_name(f"{file.path.name}.key")
    if sign == "key":
        shutil.rmtree(round_file(file.path, ""))
    else:
        key.unlink()
    for step in (lambda: file.join(run("two", "a"), PLAN), file.key, file.spending):
        with pytest.raises(StateLostError, match="E262"):
            step()


@pytest.mark.parametrize("text", ["not a ledger", "subject,file\n01,a.nii\n", "{}\n"])
def test_a_file_that_never_was_a_ledger_is_not_called_damaged(tmp_path, text) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"E264 .*notes.txt is no ledger of all runs; name"):
        read_ledger(path)


def test_a_process_that_holds_a_ledger_for_ever_does_not_hang_the_site(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 1)
    with file.path.open("rb") as held, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(held, fcntl.LOCK_SH)
        patch.setattr(files, "LOCK_PATIENCE", 0.2)
        with pytest.raises(StoppedError, match="E263 the ledger of site"):
            pays(file, "one", 2)


def test_any_other_damage_stops_the_site(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 3)
    lines = file.path.read_bytes().splitlines(keepends=True)
    changed = lines[2].replace(b"1/100", b"1/900")
    for damaged in (
        [lines[0], *lines[2:]], lines[1:], [lines[0], lines[2], lines[1], lines[3]],
        [*lines, lines[3]], [*lines[:2], changed, *lines[3:]], [*lines, b"{}\n"], [*lines, b"\n"],
        [*lines, b"\xff\n"], [*lines, b"[]\n"], [*lines, b"[" * 9000 + b"\n"],
        [lines[0].replace(b'"a"', b'""')],
        [*lines[:2], lines[2].replace(b"1/100", b"1e9999999")],
        [*lines[:2], lines[2].replace(b'"round": 1', b'"round": 1e999')],
        [lines[0], lines[1].replace(b"1000/1", b"0")],
        [lines[0], lines[1].replace(b"[]", b'["two"]')],
    ):  # fmt: skip
        file.path.write_bytes(b"".join(damaged))
        with pytest.raises(StateLostError, match="E262") as caught:
            pays(file, "one", 4)
        assert str(tmp_path) not in caught.value.public
        assert str(tmp_path) in caught.value.detail
        with pytest.raises(StateLostError, match=r"E235 .*do not delete it"):
            read_ledger(file.path)


def test_runs_that_begin_at_the_same_time_share_one_limit(tmp_path) -> None:
    file = ledger(tmp_path, cost("1/4"))
    names = [f"run {j}" for j in range(6)]
    for name in names:
        assert file.join(run(name, "a"), cost("1/10")).word == "in"
    with ThreadPoolExecutor(6) as pool:
        words = list(pool.map(lambda name: file.hold(name, cost("1/10")).word, names))
    assert sorted(words) == ["in", "in", "wait", "wait", "wait", "wait"]


def test_a_second_writer_of_a_ledger_waits_for_the_first(tmp_path) -> None:
    path, inside = tmp_path / "ledger.jsonl", threading.Event()

    def second() -> None:
        with appending(path, "x"):
            inside.set()

    with ThreadPoolExecutor(1) as pool:
        with appending(path, "x"):
            waiting = pool.submit(second)
            assert not inside.wait(0.2)
        waiting.result(timeout=30)
    assert inside.is_set()


KILLED = """
import os, signal, sys
from pathlib import Path
from types import SimpleNamespace
import cape.site.files as durable
from cape.site.ledger_file import LifetimeLedgerFile
real = os.{function}
def die(*args):
    if "{when}" == "after":
        real(*args)
    os.kill(os.getpid(), signal.SIGKILL)
file = LifetimeLedgerFile(path=Path(sys.argv[1]), site="B")
durable.os.{function} = die
from cape.privacy.cost import INFINITE
file.charge("one", {entry!r}, INFINITE)
"""


@pytest.mark.parametrize("function", ["write", "fsync"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_moment_of_a_charge_leaves_it_charged_once_or_not(tmp_path, function, when):
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    code = KILLED.format(function=function, when=when, entry=entry(3))
    done = subprocess.run([sys.executable, "-c", code, str(file.path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(read_ledger(file.path).runs[0].charges) in (2, 3)
    assert pays(file, "one", 3) == "in"
    assert [charge.round for charge in read_ledger(file.path).runs[0].charges] == [1, 2, 3]


def test_a_line_that_the_disk_has_no_room_for_is_taken_back(tmp_path, monkeypatch) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    before = file.path.read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[: len(data) // 2]))
    with pytest.raises(OSError, match="No space left"):
        pays(file, "one", 3)
    monkeypatch.undo()
    assert file.path.read_bytes() == before
    with appending(file.path, "x") as (lines, _):
        assert len(lines) == 4


def test_the_hold_of_a_plan_of_halves_is_that_of_the_dearer_half(tmp_path) -> None:
    file = ledger(tmp_path, limit=cost("3"))
    runs = all_runs(file, [ListedPerson(label="sub-01", files=("f",))])
    plan = [
        SimpleNamespace(part=part, cost=cost(mu2))
        for part, mu2 in (("", "1"), ("A", "2"), ("B", "1"))
    ]
    file.join(run("one", "a"), cost("3"))
    assert runs.hold("one", plan, promised=True).word == "in"
    assert file.find("one").plan == cost("3")
    for round, (part, word) in enumerate([("", "in"), ("A", "in"), ("B", "in"), ("A", "in")], 1):
        assert file.charge("one", {**entry(round, "1"), "part": part}, PLAN).word == word
    with pytest.raises(StateLostError, match="E262"):
        file.charge("one", {**entry(9, "1"), "part": "A"}, PLAN)
    assert file.charge("one", {**entry(5, "1"), "part": "B"}, PLAN).word == "in"
    assert file.find("one").cost == cost("3")


@pytest.mark.parametrize("part", ["", "A"])
def test_a_run_may_charge_its_whole_plan(tmp_path, part) -> None:
    """Each charge is rounded up; a hold that was rounded once for all refused the last of them."""
    file = ledger(tmp_path, limit=cost("3"))
    plan = [SimpleNamespace(part=part, cost=cost(f"1/{n}")) for n in (3, 7, 11, 13, 17)]
    file.join(run("one", "a"), cost("3"))
    assert all_runs(file, []).hold("one", plan, promised=True).word == "in"
    for round, release in enumerate(plan, 1):
        said = {**entry(round, str(release.cost)), "part": part}
        assert file.charge("one", said, PLAN).word == "in"
