"""``cape ledger``: what stands there at any width, and the two commands of a site's people."""

import getpass
import json
import os
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cape.cli import main
from cape.errors import StateLostError
from cape.privacy.accounting import display_epsilon, gdp_epsilon
from cape.privacy.ledger import Budget
from cape.privacy.spending import BY_HAND
from cape.site.access import AccessRecords, round_file
from cape.site.files import folder_lock
from cape.site.ledger_file import LifetimeLedgerFile, read_ledger
from cape.site.policy import limit_of
from support import spending
from support.ledger_model import cost

PAGE = (Path(__file__).parents[3] / "docs/json.md").read_text(encoding="utf-8")
ANNA, BEN, NOBODY = "3f9a1c20" * 4, "b7712e04" * 4, "b7d01a99" * 4


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LifetimeLedgerFile:
    """A ledger in CAPE_SITE_HOME: a finished run of anna, open ones of ben and of nobody named."""
    monkeypatch.setenv("CAPE_SITE_HOME", str(tmp_path))
    monkeypatch.delenv("CAPE_SITE_POLICY", raising=False)
    made = LifetimeLedgerFile(path=tmp_path / "ledger.jsonl", site="B")
    for name, owner in ((ANNA, "anna"), (BEN, "ben [red]\x1b"), (NOBODY, "")):
        made.join(replace(spending.run(name), owner=owner), cost(1))
        made.hold(name, cost(1))
        entry = {"phase": "pca", "round": 1, "field": "total", "mu2": "1/4"}
        assert made.charge(name, entry, cost(1)).word == "in"
    made.end(ANNA, "finished")
    return made


def stopped(file: LifetimeLedgerFile, owner: str, count: int, **facts: str) -> None:
    records = AccessRecords(
        ledger=file.path, site="B", owner=owner, dataset_id="cohort", held=file.held_runs
    )
    for number in range(count):
        given = {"question": f"q{number}", "folder": "", "exchange": "join", **facts}
        records.record(f"{owner}{number}", given)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    capsys.readouterr()
    code = main(["ledger", *words])
    caught = capsys.readouterr()
    return code, " ".join((caught.out + caught.err).replace("│", " ").split())


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["ledger", *words, "--json"]) == 0
    return dict(json.loads(capsys.readouterr().out))


def promised(row: str) -> set[str]:
    """Return the fields of a row of the page."""
    (cells,) = re.findall(rf"^\| `{re.escape(row)}` \| (.+) \|$", PAGE, re.MULTILINE)
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cells)))


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_nothing_is_cut_at_any_width(file, capsys, monkeypatch, columns) -> None:
    """At 80 columns numbers were cut to their first digits."""
    monkeypatch.setenv("COLUMNS", str(columns))
    stopped(file, "ben", 3)
    code, text = said(capsys)
    assert code == 0
    for told in (
        "epsilon 10 at delta 1e-5: mu 2.0004, the best guesser is right in 84.1 %",
        "3f9a1c20 anna, 2026-01-01, capedjica, data set D, 2 people finished, since",
        f"charged mu 0.5 (epsilon {display_epsilon(gdp_epsilon(mu=0.5, delta=1e-5))}) in 1 rel",
        "charging, silent 0 s",
        "holds mu 0.866 more; does it not go on?",
        "3 exchanges of ben were never answered",
        "NO RUN OF THIS OWNER BEGINS",
        "join of ",
    ):
        assert told in text, told
    assert "\x1b" not in text
    assert "ben [red]?" in text
    for typed in re.findall(r"cape (ledger \w+ \S+ --why TEXT --file \S+)", text):
        assert main(shlex.split(typed)) == 0, typed
    assert said(capsys, str(file.path))[1] == said(capsys, "--file", str(file.path))[1]


def test_a_run_that_spent_its_plan_need_not_be_closed_and_people_are_told_once(file, capsys):
    """ "Holds mu 0 more; does it not go on?" asked to close a run that frees nothing."""
    entry = {"phase": "pca", "round": 2, "field": "total", "mu2": "3/4"}
    assert file.charge(BEN, entry, cost(1)).word == "in"
    _, text = said(capsys)
    assert text.count("holds nothing more: to close it frees nothing") == 1
    assert "holds mu 0 more" not in text
    assert f"ledger close {BEN[:8]}" not in text
    assert f"ledger close {NOBODY[:8]}" in text
    assert text.count("all runs on these people") == 1
    # 2.8 spent of 10 left 9.3, which looked wrong.
    assert text.count("composed exactly: epsilons do not add") == 1
    # Whoever ended it by hand was told that it failed.
    file.end(NOBODY, "failed", text=BY_HAND)
    assert " stopped, since " in said(capsys)[1]
    other = replace(spending.run("5c" * 16), people=frozenset({"e" * 32}), dataset="E")
    file.join(other, cost(1))
    _, text = said(capsys)
    assert text.count("all runs on these people") == 2
    assert f"On the people of {other.run[:8]}:" in text


def test_a_run_is_closed_by_its_first_digits_with_a_name_and_a_reason(file, capsys) -> None:
    code, text = said(capsys, "close", "b7", "--why", "stopped")
    assert (code, "'b7' names 2 runs: b7712e04 (held), b7d01a99 (held)" in text) == (2, True)
    assert said(capsys, "close", "xx", "--why", "stopped")[0] == 2
    assert said(capsys, "close", "", "--why", "stopped")[0] == 2
    for why in ([], ["--why", " "]):
        assert said(capsys, "close", "b7712e04", *why)[0] == 2
    before = file.find(BEN)
    code, text = said(capsys, "close", "b7712e04", "--why", "stopped by its owner")
    assert code == 0
    assert "keeps what it charged (mu 0.5) and frees what it held (mu 0.866)" in text
    run = file.find(BEN)
    assert (run.state, run.by, run.why) == ("closed", getpass.getuser(), "stopped by its owner")
    assert (run.held, before.held) == (run.cost, cost(1))
    assert "closed on" in said(capsys, "close", "b7712e04", "--why", "again")[1]
    lines = file.path.read_bytes()
    assert "finished on" in said(capsys, "close", "3f9a1c20", "--why", "x")[1]
    assert file.path.read_bytes() == lines


@pytest.fixture
def named_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LifetimeLedgerFile:
    """A ledger in CAPE_SITE_HOME with one run whose people are named under its key."""
    monkeypatch.setenv("CAPE_SITE_HOME", str(tmp_path))
    monkeypatch.delenv("CAPE_SITE_POLICY", raising=False)
    made = LifetimeLedgerFile(path=tmp_path / "ledger.jsonl", site="B")
    made.join(replace(spending.run(ANNA), key=made.key()[1]), cost(1))
    return made


def test_a_ledger_without_its_key_says_so(named_people, capsys) -> None:
    """It listed all runs and ended well; the next run stopped with E262.  With the key of another
    ledger, too, and everybody was said to be in none of its runs."""
    key = named_people.path.with_name("ledger.jsonl.key")
    assert "KEY" not in said(capsys)[1]
    key.write_text("0f" * 32)
    code, text = said(capsys)
    assert code == 0
    assert "ledger.jsonl.key IS ANOTHER ONE: no run begins (CAPE-E262); put the ledger's" in text
    assert main(["forget", "sub-01"]) == 0
    assert "whose cannot be told without the key of the ledger" in capsys.readouterr().out
    key.unlink()
    assert "ledger.jsonl.key IS GONE OR DAMAGED: no run begins" in said(capsys)[1]


def test_a_ledger_that_is_gone_or_older_than_a_run_is_damaged(named_people, capsys) -> None:
    """Two files of three from a backup: a run that had spent was not shown, and the next began.
    Of a ledger that was gone beside its key, "there is no ledger; name it with --file"."""
    file = named_people
    backup = [(p, p.read_bytes()) for p in (file.path, file.path.with_name("ledger.jsonl.head"))]
    late = spending.run(BEN)
    file.join(late, cost(1))
    file.hold(late.run, cost(1))
    for path, text in backup:
        path.write_bytes(text)
    code, told = said(capsys)
    assert code == 1
    assert f"it is older than ledger.jsonl.rounds/{late.run}" in told
    with pytest.raises(StateLostError, match="E262"):
        file.join(spending.run("6d" * 16), cost(1))
    file.path.unlink()
    code, told = said(capsys)
    assert (code, "it is gone, and files beside it are there" in told) == (1, True)


def test_a_run_whose_record_of_questions_is_gone_is_not_asked_again(file) -> None:
    """All of ``.rounds`` was deleted: a folder that was set back might have answered twice."""
    file.check_asked(BEN)
    for path in file.path.with_name("ledger.jsonl.rounds").iterdir():
        path.unlink()
    with pytest.raises(StateLostError, match="E262"):
        file.check_asked(BEN)
    file.join(spending.run("5c" * 16), cost(1))
    file.check_asked("5c" * 16)  # nothing was asked yet
    with pytest.raises(StateLostError, match="E262"):
        file.check_asked("6d" * 16)


def test_a_run_that_computes_is_closed_only_when_that_is_said(file, capsys) -> None:
    """A live run was closed without a question."""
    records = AccessRecords(
        ledger=file.path, site="B", owner="ben", dataset_id="", held=file.held_runs
    )
    words = ("close", BEN[:8], "--why", "x")
    with records.lock_run(BEN):
        code, text = said(capsys, *words)
        assert (code, "computes now" in text, "--now" in text) == (2, True, True)
        assert "at work now" in said(capsys)[1]
        assert f"ledger close {BEN[:8]}" not in said(capsys)[1]
        assert shown(capsys)["runs"][1]["at_work"] is True
        assert said(capsys, *words, "--now")[0] == 0
    # A reason that quotes another line closes nothing.
    text = f'"run": "{ANNA}", "kind": "end", "why": "closed"'
    assert said(capsys, "close", NOBODY[:8], "--why", text)[0] == 0
    assert [file.is_closed(run) for run in (ANNA, BEN, NOBODY, "")] == [False, True, True, False]


@pytest.mark.parametrize("hundredths", [1, 37, 99, 123, 249])
def test_what_is_shown_as_left_is_not_refused(tmp_path, capsys, monkeypatch, hundredths) -> None:
    """1.72913 was shown as 1.730, and a run of 1.730 was refused: "left 1.730"."""
    monkeypatch.delenv("CAPE_SITE_POLICY", raising=False)
    path = tmp_path / "site-policy.toml"
    path.write_text('ledger_file = "ledger.jsonl"\nmax_total = [[2.5, 1e-5]]\n')
    ledger = LifetimeLedgerFile(path=tmp_path / "ledger.jsonl", site="B")
    ledger.join(spending.run(BEN), cost(1))
    ledger.hold(BEN, cost(1))
    mu2 = f"{hundredths}/1000"
    ledger.charge(BEN, {"phase": "pca", "round": 1, "field": "t", "mu2": mu2}, cost(1))
    ledger.end(BEN, "failed")
    _, text = said(capsys, "--file", str(ledger.path))  # its policy lies beside it
    (left,) = re.findall(r"left for these people: epsilon (\S+)", text)
    plan = Budget.of(epsilon=float(left), delta=1e-5).cost
    total = limit_of(((2.5, 1e-5),))
    (run,) = ledger.spending().runs
    assert run.cost + plan <= total
    path.write_text("# of another ledger\n")
    _, text = said(capsys, "--file", str(ledger.path))
    assert "as shipped; the site's policy was not read" in text
    assert "left for these people" not in text


def test_an_owner_is_forgiven_what_has_ended_and_the_ledger_says_by_whom(file, capsys, tmp_path):
    stopped(file, "ben", 2)
    stopped(file, "", 1)
    (tmp_path / "run").mkdir()
    with folder_lock(tmp_path / "run", "site B"):
        stopped(file, "carl", 1, folder=str(tmp_path / "run"))
        code, text = said(capsys, "forgive", "carl", "--why", "x")
        assert (code, "counted: ben, nobody named" in text) == (2, True)
    assert said(capsys, "forgive", "--why", "x")[0] == 2
    assert said(capsys, "forgive", "ben", "--unnamed", "--why", "x")[0] == 2
    code, text = said(capsys, "forgive", "ben", "--why", "we stopped them")
    assert (code, "Forgiven: 2 exchanges of ben" in text) == (0, True)
    assert said(capsys, "forgive", "--unnamed", "--why", "a power cut")[0] == 0
    code, text = said(capsys, "forgive", "--unnamed", "--why", "again")
    assert (code, "of an owner without a name no exchange" in text) == (2, True)
    assert [one["owner"] for one in shown(capsys)["unanswered"]] == ["carl"]
    given = [(one.owner, one.count, one.by, one.text) for one in file.spending().forgiven]
    who = getpass.getuser()
    assert given == [("ben", 2, who, "we stopped them"), ("", 1, who, "a power cut")]
    assert "Forgiven on" in said(capsys)[1]


def test_exchanges_are_forgiven_where_no_run_was_let_in_yet(file, capsys, tmp_path) -> None:
    other = replace(file, path=tmp_path / "other" / "ledger.jsonl")
    stopped(other, "ben", 3)
    assert shown(capsys, str(other.path))["runs"] == []
    code, _ = said(capsys, "forgive", "ben", "--why", "x", "--file", str(other.path))
    assert code == 0
    assert len(read_ledger(other.path).forgiven) == 1


def test_machines_read_what_the_page_says(file, capsys, typed) -> None:
    stopped(file, "ben", 1)
    found = shown(capsys)
    assert set(found) == promised("ledger")
    assert found["limits"] == [[10.0, 1e-5]]
    states = [(run["state"], run["owner"]) for run in found["runs"]]
    assert states == [("finished", "anna"), ("held", "ben [red]\x1b"), ("held", "")]
    assert found["runs"][1]["held_mu"] == pytest.approx(0.75**0.5)
    capsys.readouterr()
    for words, row in (
        (["close", BEN, "--why", "x"], "ledger close"),
        (["forgive", "ben", "--why", "x"], "ledger forgive"),
    ):
        assert set(json.loads(typed("ledger", *words, "--json").out)) == promised(row)


def test_a_damaged_ledger_is_another_thing_than_a_file_that_is_none(file, capsys, tmp_path) -> None:
    (tmp_path / "notes.txt").write_text("people,age\n")
    code, text = said(capsys, str(tmp_path / "notes.txt"))
    assert (code, "is no ledger of all runs; name the ledger.jsonl" in text) == (2, True)
    assert said(capsys, str(tmp_path / "nowhere"))[0] == 2
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[: len(whole) // 2])
    for words in ([], ["close", BEN, "--why", "x"]):
        code, text = said(capsys, *words)
        assert (code, "the ledger is damaged" in text) == (1, True)


def test_the_ledger_of_a_policy_is_found_beside_it_and_under_its_limits(
    file, capsys, tmp_path, monkeypatch
) -> None:
    (tmp_path / "policy").mkdir()
    path = tmp_path / "policy" / "site-policy.toml"
    path.write_text('ledger_file = "../ledger.jsonl"\nmax_total = [[3, 1e-6]]\n')
    monkeypatch.delenv("CAPE_SITE_HOME")
    assert said(capsys)[0] == 2  # nothing is named
    for words in (["--policy", str(path)], []):
        if not words:
            monkeypatch.setenv("CAPE_SITE_POLICY", str(path))
        found = shown(capsys, *words)
        assert (len(found["runs"]), found["limits"]) == (3, [[3.0, 1e-6]])


def test_the_page_for_data_managers_shows_a_stopped_run_as_it_is_shown(
    tmp_path, capsys, monkeypatch
) -> None:
    page = (Path(__file__).parents[3] / "docs/ledger.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```text\n(b7712e04.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    ledger = LifetimeLedgerFile(path=Path("ledger.jsonl"), site="B")
    run = spending.run(BEN, computation="capegica", dataset="cohort-a", delta=1e-5)
    ledger.join(replace(run, owner="ben", date="2026-11-20"), cost(1))
    ledger.hold(BEN, cost(1))
    charged = {"phase": "pca", "round": 1, "field": "total", "mu2": "1/4"}
    ledger.charge(BEN, charged, cost(1))
    silent = time.time() - (2 * 24 + 4) * 3600 - 60
    os.utime(round_file(ledger.path, BEN), (silent, silent))
    _, text = said(capsys, "--file", "ledger.jsonl")
    shown_there = re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)
    for line in block.splitlines():
        assert " ".join(line.split()) in shown_there, line
