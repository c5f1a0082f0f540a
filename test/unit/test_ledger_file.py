"""The ledger that outlives a run: added up per person, charged once, never past the limit."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from cape.drivers.durable import appending
from cape.drivers.ledger_file import LedgerFile, read_ledger
from cape.errors import PrivacyBudgetError, StateLostError
from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.privacy.spending import GENESIS, RunSpending, read_lines

DELTA = 1e-5


def run(name: str, *people: str, dataset: str = "", delta: float = DELTA, promised: bool = True):
    return RunSpending(
        run=name, dataset=dataset or name, people=frozenset(people), computation="capedjica",
        date="2026-01-01", epsilon=1.0, delta=delta, promised=promised,
    )  # fmt: skip


def entry(round: int, mu2: str = "1/100") -> dict[str, object]:
    return {"phase": "iterate", "round": round, "field": "total", "mu2": mu2, "seq": round}


def ledger(tmp_path: Path, limit: float = 0.0) -> LedgerFile:
    return LedgerFile(path=tmp_path / "deep" / "ledger.jsonl", site="B", max_total_epsilon=limit)


def spend(file: LedgerFile, what: RunSpending, rounds: int, mu2: str = "1/100") -> None:
    file.open(what)
    for j in range(1, rounds + 1):
        assert file.charge(what.run, entry(j, mu2))


def test_mu_of_several_runs_on_the_same_people_is_the_root_of_the_summed_squares(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a", "b"), 3)
    spend(file, run("two", "a", "b"), 6)
    total = file.total("two")
    assert (total.runs, total.delta) == (2, DELTA)
    assert total.mu == pytest.approx(0.3, rel=1e-15)
    assert total.mu >= 0.3
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


def test_a_subject_more_does_not_begin_a_new_account(tmp_path) -> None:
    """The digest of all data changes when one file does; those of the others do not."""
    file = ledger(tmp_path)
    spend(file, run("one", "a", "b", dataset="digest 1"), 4)
    spend(file, run("two", "a", "b", "c", dataset="digest 2"), 5)
    assert file.total("two").mu == pytest.approx(0.3)


def test_the_name_of_a_data_set_joins_runs_whose_files_were_made_anew(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a", dataset="cohort"), 4)
    spend(file, run("two", "A", dataset="cohort"), 5)
    assert file.total("two").mu == pytest.approx(0.3)


def test_a_run_without_a_promise_costs_infinity_for_ever(tmp_path) -> None:
    file = ledger(tmp_path, limit=50.0)
    spend(file, run("one", "a"), 1)
    for name, promised, mu2 in (("seeded", False, "1/100"), ("bare", False, "infinite")):
        free = ledger(tmp_path / name)
        spend(free, run(name, "a", promised=promised), 1, mu2)
        assert free.total(name).mu is None
        assert free.total(name).epsilon is None
        assert not LedgerFile(path=free.path, site="B", max_total_epsilon=50.0).allows(
            run("next", "a"), Fraction(1, 100)
        )
    assert not file.allows(run("bare", "a", promised=False), None)


def test_a_repeated_charge_is_charged_once(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 3)
    before = file.path.read_bytes()
    spend(file, run("one", "a"), 3)
    assert file.path.read_bytes() == before
    with pytest.raises(StateLostError, match="E262 Site B cannot rely on its ledger"):
        file.charge("one", entry(2, "1/99"))
    assert file.path.read_bytes() == before


def test_a_run_that_is_not_in_the_file_cannot_be_charged(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 1)
    with pytest.raises(StateLostError, match="E262"):
        file.charge("two", entry(1))
    file.path.unlink()
    with pytest.raises(StateLostError, match="E262"):
        file.charge("one", entry(2))


def test_the_limit_over_all_runs_is_never_passed(tmp_path) -> None:
    """To the last charge that fits, exactly; a release that does not fit leaves no trace."""
    limit = gdp_epsilon(mu=0.5, delta=DELTA)  # room for 25 charges of mu 0.1
    file = ledger(tmp_path, limit)
    spend(file, run("one", "a"), 20)
    file.open(run("two", "a"))
    answers = [file.charge("two", entry(j)) for j in range(1, 9)]
    assert answers == [True] * 5 + [False] * 3
    assert file.total("two").within(limit)
    assert file.total("two").mu == pytest.approx(0.5)
    assert file.charge("two", entry(5))  # the last one again: it is paid


def test_a_run_that_cannot_fit_is_refused_before_it_begins(tmp_path) -> None:
    mu = gdp_mu(epsilon=2.0, delta=DELTA)
    file = ledger(tmp_path, 2.0)
    half = Fraction(mu) ** 2 / 2
    assert file.allows(run("one", "a"), Fraction(mu) ** 2)
    assert not file.path.exists()
    spend(file, run("one", "a"), 1, f"{half.numerator}/{half.denominator}")
    assert file.allows(run("two", "a"), half * Fraction(999_999, 1_000_000))
    assert not file.allows(run("two", "a"), half * Fraction(1_000_001, 1_000_000))
    assert file.allows(run("two", "z"), Fraction(mu) ** 2)


def test_the_smallest_delta_of_all_runs_is_the_one_that_counts(tmp_path) -> None:
    """Else an owner with a large delta would get what the epsilon of the site does not allow."""
    file = ledger(tmp_path, 2.0)
    spend(file, run("one", "a", delta=1e-8), 1)
    generous = Fraction(gdp_mu(epsilon=2.0, delta=1e-3)) ** 2 * Fraction(9, 10)
    assert ledger(tmp_path / "x", 2.0).allows(run("two", "a", delta=1e-3), generous)
    assert not file.allows(run("two", "a", delta=1e-3), generous)
    assert file.total("one").delta == 1e-8


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_line_that_a_crash_cut_short_does_not_count(tmp_path, cut) -> None:
    """It was not on disk, so nothing was drawn for it."""
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 3)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-cut])
    assert len(read_ledger(file.path).runs[0].charges) == 2
    assert file.charge("one", entry(3))
    assert file.path.read_bytes() == whole


def test_any_other_damage_stops_the_site(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 3)
    lines = file.path.read_bytes().splitlines(keepends=True)
    changed = lines[1].replace(b"1/100", b"1/900")
    for damaged in (
        [lines[0], *lines[2:]], lines[1:], [lines[0], lines[2], lines[1], lines[3]],
        [*lines, lines[3]], [lines[0], changed, *lines[2:]], [*lines, b"{}\n"], [*lines, b"\n"],
        [*lines, b"\xff\n"], [*lines, b"[]\n"],
    ):  # fmt: skip
        file.path.write_bytes(b"".join(damaged))
        with pytest.raises(StateLostError, match="E262") as caught:
            file.charge("one", entry(4))
        assert str(tmp_path) not in caught.value.public
        assert str(tmp_path) in caught.value.detail
        with pytest.raises(PrivacyBudgetError, match="do not delete it"):
            read_ledger(file.path)


def test_lines_are_chained_and_hold_digests_only(tmp_path) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    rows = [json.loads(line) for line in file.path.read_bytes().splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert rows[0]["prev"] == GENESIS
    assert len({row["prev"] for row in rows}) == 3
    assert os.stat(file.path).st_mode & 0o777 == 0o600
    assert read_lines([]).runs == ()


def test_two_runs_at_the_same_time_share_one_limit(tmp_path) -> None:
    limit = gdp_epsilon(mu=0.5, delta=DELTA)
    file = ledger(tmp_path, limit)
    names = ("one", "two", "three")
    for name in names:
        file.open(run(name, "a"))

    def all_charges(name: str) -> int:
        return sum(file.charge(name, entry(j)) for j in range(1, 13))

    with ThreadPoolExecutor(3) as pool:
        paid = sum(pool.map(all_charges, names))
    assert paid == 25
    assert sum(len(one.charges) for one in read_ledger(file.path).runs) == 25


KILLED = """
import os, signal, sys
from pathlib import Path
import cape.drivers.durable as durable
from cape.drivers.ledger_file import LedgerFile
real = os.{function}
def die(*args):
    if "{when}" == "after":
        real(*args)
    os.kill(os.getpid(), signal.SIGKILL)
file = LedgerFile(path=Path(sys.argv[1]), site="B")
durable.os.{function} = die
file.charge("one", {entry!r})
"""


@pytest.mark.parametrize("function", ["write", "fsync"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_moment_of_a_charge_leaves_it_charged_once_or_not(
    tmp_path, function, when
) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    code = KILLED.format(function=function, when=when, entry=entry(3))
    done = subprocess.run([sys.executable, "-c", code, str(file.path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(read_ledger(file.path).runs[0].charges) in (2, 3)
    assert file.charge("one", entry(3))
    assert [charge.round for charge in read_ledger(file.path).runs[0].charges] == [1, 2, 3]


def test_a_line_that_the_disk_has_no_room_for_is_taken_back(tmp_path, monkeypatch) -> None:
    file = ledger(tmp_path)
    spend(file, run("one", "a"), 2)
    before = file.path.read_bytes()
    real = os.write
    monkeypatch.setattr(os, "write", lambda handle, data: real(handle, data[: len(data) // 2]))
    with pytest.raises(OSError, match="No space left"):
        file.charge("one", entry(3))
    monkeypatch.undo()
    assert file.path.read_bytes() == before
    with appending(file.path) as (lines, _):
        assert len(lines) == 3
