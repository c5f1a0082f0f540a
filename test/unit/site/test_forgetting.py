"""A person who is forgotten: what goes, what stays, and what an interruption leaves."""

import dataclasses
import hashlib
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cape.report
from cape.cli import main
from cape.data.data_store import DataStore, marks_of
from cape.data.names import likeness
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import Table
from cape.report import files
from cape.report.private_folder import PRIVATE, SUBJECT_TABLE
from cape.site import forgetting
from cape.site.files import folder_lock
from cape.site.forgetting import Traces, _files_of, _names, _without, traces_of
from cape.site.ledger_file import LifetimeLedgerFile, ListedPerson
from cape.site.store import FileStore
from support import report_example as example
from support import spending
from support.ledger_model import cost

LABELS = ("sub-01", "sub-02", "sub-011")
NONCES = {"finished": "0f" * 16, "held": "1e" * 16}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site's folders: results, a run that has ended, one that may go on, a store, a ledger."""
    tmp_path = tmp_path_factory.mktemp("built")
    made = example.outcome(FeatureSpace.of_matrix(20))
    summary = example.inside(made, LABELS)
    checks = tuple(
        dataclasses.replace(summary.checks[0], text=f"0.01 of {label}_bold.nii.gz")
        for label in LABELS
    )
    # Only a comparison writes people, and its settings hold its question.
    asked = {"variables": "dx control/SZ", "formula": "dx", "outcomes": "volume 1:9"}
    one = dataclasses.replace(
        example.site_outcome(made, LABELS),
        settings={**made.settings, **asked, "public": "dx"},
        people=lambda: Table(
            name="people", title="", note="", header=("subject", "asked", "dx", "volume"),
            rows=tuple((label, "yes", "SZ", 4.5) for label in LABELS),
        ),
    )  # fmt: skip
    results = tmp_path / "results"
    cape.report.write_site(results, one, dataclasses.replace(summary, checks=checks))
    (results / "cape-site.json").write_text('{"site": "local0"}')
    (results / "site-notice.txt").write_text("Site local0: told\nW130 sub-01: short\nsub-011\n")
    os.utime(results / "site-notice.txt", (0, 0))  # `join` writes it, long before the rest
    home = results / ".cape-site"
    ledger = LifetimeLedgerFile(path=home / "ledger.jsonl", site="local0")
    key, fingerprint = ledger.key()
    people = frozenset(
        ListedPerson(label=label, files=(), spellings=(label[4:], likeness(label))).digests(
            key, ("",)
        )
        for label in LABELS
    )
    for state, nonce in NONCES.items():
        ledger.join(spending.run(nonce, people=people, key=fingerprint), cost(1))
        ledger.hold(nonce, cost(1))
        charged = {"phase": "pca", "round": 1, "field": "total", "mu2": "1/4"}
        assert ledger.charge(nonce, charged, cost(1)).word == "in"
        FileStore(tmp_path / state, tmp_path / state, "local0").begin(nonce, b"k" * 32)
        (tmp_path / state / "cape-ab-rows.arrays").write_bytes(b"all people")
    ledger.end(NONCES["finished"], "finished")
    store = DataStore.open(home / "data")
    for label in LABELS:
        store.put(label, "k", [np.zeros(3)], marks=marks_of(label, [Path(f"/d/{label}/x.nii")]))
    return tmp_path


@pytest.fixture
def site(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path


def found(site: Path) -> Traces:
    return traces_of("01", [site])


def holding(site: Path, text: str = "sub-01") -> set[str]:
    """Return the files that have a name in their text or their path."""
    pattern = forgetting._names({text})
    return {
        path.relative_to(site).as_posix()
        for path in site.rglob("*")
        if path.is_file()
        and pattern.search(f"{path.relative_to(site)} {path.read_bytes().decode(errors='replace')}")
    }


def content(site: Path) -> dict[str, bytes]:
    return {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in site.rglob("*")
        if path.is_file()
    }


def test_to_look_changes_nothing_and_to_forget_leaves_no_name_and_all_others(site) -> None:
    before = content(site)
    traces = found(site)
    assert content(site) == before
    assert {path.split("/")[-1] for path in holding(site)} >= {
        "index.html", "subjects.tsv", "checks.tsv", "people.tsv", "loadings.tsv", "fnc.tsv",
        "spectra.tsv", "site-notice.txt", "sub-01_desc-cape_timeseries.tsv",
    }  # fmt: skip
    traces.remove()
    assert holding(site) == set()
    assert "sub-011" in (site / "results/private/index.html").read_text()
    for name, text in before.items():
        if name.startswith("results/private/") and name.endswith(".tsv") and "sub-01/" not in name:
            rows = files.read_table(site / name)
            assert [row for row in rows if "sub-01" not in {*row.values()}] == rows
            others = [line for line in text.decode().splitlines() if "sub-01\t" not in line]
            others = [line for line in others if "sub-01_bold" not in line]
            assert (site / name).read_text().splitlines() == others
    store = DataStore.open(site / "results/.cape-site/data")
    assert store.size() == (2, store.size("02")[1] + store.size("011")[1])


def test_whose_entries_of_the_store_go_is_said(site) -> None:
    """It deleted 553 entries without a word that they were of all studies."""
    (what,) = (each.what for each in found(site).removals if "data store" in each.what)
    assert "1 entry of" in what
    assert "copies of everybody called 01" in what
    assert "in all studies; they are read again when needed" in what


def test_what_was_spent_stays_spent_byte_for_byte_and_is_said(site) -> None:
    ledger = site / "results/.cape-site/ledger.jsonl"
    before = {path: path.read_bytes() for path in ledger.parent.glob("ledger.jsonl*")
              if path.is_file()}  # fmt: skip
    traces = found(site)
    (charged,) = traces.charged
    assert (charged.runs, charged.listed) == (2, 2)
    assert charged.cost.mu() == pytest.approx(0.5**0.5)
    assert charged.open_runs == (NONCES["held"],)
    traces.remove()
    assert {path: path.read_bytes() for path in before} == before
    # Who was never there is in no run, and nobody is told to be free.
    (other,) = traces_of("77", [site]).charged
    assert (other.listed, other.delta) == (0, None)


def test_a_run_that_may_go_on_keeps_its_journal_until_it_is_closed(site) -> None:
    traces = found(site)
    traces.remove()
    assert not (site / "finished/.cape").exists()
    assert (site / "held/.cape").is_dir()
    (stays,) = traces.stays
    assert "cape ledger close 1e1e1e1e --why TEXT --file" in stays.why
    assert not list(site.rglob("*.arrays"))
    home = site / "results/.cape-site"
    closed = LifetimeLedgerFile(path=home / "ledger.jsonl", site="local0")
    assert closed.end(NONCES["held"], "closed", by="x", text="withdrawn")
    with folder_lock(site / "held", "a run"):
        (stays,) = found(site).stays
        assert "computes here now" in stays.why
    with folder_lock(site / "results", "a run"):
        assert site / "results/private" in {each.path for each in found(site).stays}
    found(site).remove()
    assert not (site / "held/.cape").exists()


class Killed(BaseException):
    """The process ends here."""


def light_page(folder: Path) -> None:
    (folder / "index.html").write_bytes((folder / "subjects.tsv").read_bytes())


@pytest.mark.parametrize("step", range(19))
def test_an_interruption_at_any_step_is_mended_by_the_same_command(
    site, monkeypatch, step, tmp_path_factory
) -> None:
    """The page went first and the table of files last, so that nothing is left without its name."""
    whole = tmp_path_factory.mktemp("whole")
    shutil.copytree(site, whole, dirs_exist_ok=True)
    monkeypatch.setattr(forgetting, "rebuild", light_page)
    found(whole).remove()
    left = [step]

    def dying(real):
        def call(*args, **options):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return real(*args, **options)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(shutil, "rmtree", dying(shutil.rmtree))
        patched.setattr(Path, "unlink", dying(Path.unlink))
        patched.setattr(forgetting, "rebuild", dying(light_page))
        with pytest.raises(Killed):
            found(site).remove()
    found(site).remove()
    same, wanted = content(site), content(whole)
    assert same.keys() == wanted.keys()
    assert {name for name in same if same[name] != wanted[name]} == set()


def test_labels_that_look_alike_are_named_and_left_alone(site, capsys, monkeypatch) -> None:
    monkeypatch.setenv("CAPE_CACHE", "none")
    before = content(site)
    traces = traces_of("sub-1", [site])
    assert traces.removals == tuple(r for r in traces.removals if r.path.suffix == ".arrays"
                                    or r.path.name == ".cape")  # fmt: skip
    assert traces.alike == ("sub-01",)
    assert content(site) == before
    # "spent in 2 of 2 runs" and exit code 0 of a misspelt label passed for done.
    assert [each.listed for each in traces.charged] == [2]
    assert not traces.is_known
    assert main(["forget", "sub-1", str(site)]) == 5
    told = capsys.readouterr().out
    assert "spent in 2 of 2 runs by labels that look alike: " in told
    assert "not touched: sub-01" in told


@pytest.mark.parametrize("private", [True, False])
def test_results_without_noise_are_named_for_deletion(site, private: bool, capsys) -> None:
    """It said of exact means with and without a person that noise protects them."""
    exact = site / "study" / "consortium"
    exact.mkdir(parents=True)
    (exact / "results.json").write_text(json.dumps({"private": private}))
    (site / "results.json").write_text("[]")  # of another program
    named = [each.path for each in found(site).stays if "delete this folder" in each.why]
    assert named == ([] if private else [exact])
    main(["forget", "sub-01", str(site)])
    assert (str(exact) in capsys.readouterr().out) is not private


def test_the_command_shows_first_and_deletes_when_told(site, typed, monkeypatch) -> None:
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.delenv("CAPE_SITE_HOME", raising=False)
    line = ["forget", "sub-01", str(site)]
    before = content(site)
    told = typed(*line).out
    assert content(site) == before
    assert "Nothing is deleted yet: type it again with --yes." in told
    assert "It will say NOT DONE (exit code 6) while places stand below Stays." in told
    assert "spent in 2 of 2 runs: mu 0.7" in told
    assert "it stays spent" in told
    document = json.loads(typed(*line, "--yes", "--json", code=6).out)  # a run may go on
    assert document["deleted"] is True
    assert document["ledgers"][0]["listed"] == 2
    assert holding(site) == set()
    assert main(["forget", "n/a"]) == 2
    data = site / "data/sub-01/func"
    data.mkdir(parents=True)
    (data / "sub-01_task-rest_bold.nii.gz").write_bytes(b"")
    assert "STILL LISTED for the next run" in typed(*line, "--data", str(site / "data")).out


def test_runs_in_folders_that_were_not_named_are_named(site, typed, monkeypatch) -> None:
    """It said "Deleted" and no more, and files of four other runs on the person stayed.

    In a folder of common results alone it deleted nothing, with exit code 0.
    """
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.delenv("CAPE_SITE_HOME", raising=False)
    out, shared = site / "out", site / "out/consortium"
    shared.mkdir(parents=True)
    (shared / "results.json").write_text(json.dumps({"run": NONCES["finished"], "private": True}))
    shutil.move(site / "results", out / "local0")
    for state in NONCES:
        shutil.rmtree(site / state)
    shutil.move(out / "local0/.cape-site", site / "home")
    ledger = site / "home/ledger.jsonl"
    LifetimeLedgerFile(path=ledger, site="local0").end(NONCES["held"], "closed")
    line = ["forget", "sub-01", "--file", str(ledger)]
    wrong = typed(*line, str(shared), "--yes", code=5).out
    assert f"ELSEWHERE: 2 runs of {ledger} with this person" in wrong
    (site / "nothing").mkdir()
    typed(*line, str(site / "nothing"), "--yes", code=5)
    right = typed(*line, str(out), "--yes").out
    assert f"ELSEWHERE: 1 run of {ledger} with this person" in right
    assert f": {NONCES['held'][:8]}; name their folders" in " ".join(right.split())
    (site / "other").mkdir()
    (site / "other/cape-site.json").write_text('{"site": "local0"}')
    (site / "other/results.json").write_text(json.dumps({"run": NONCES["held"]}))
    assert "ELSEWHERE" not in typed(*line, str(out), str(site / "other"), "--yes").out


def test_a_person_is_found_without_the_policy_and_nobody_is_called_nobody(
    site, capsys, monkeypatch
) -> None:
    """Without the policy's dataset_id it said "none recognised" of a person of every run."""
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.delenv("CAPE_SITE_HOME", raising=False)
    ledger = LifetimeLedgerFile(path=site / "other.jsonl", site="local0")
    key, fingerprint = ledger.key()
    old = hashlib.sha256(b"cape/1/ledger-key" + key).hexdigest()[:32]
    assert old != fingerprint
    people = frozenset({ListedPerson(label="sub-01", files=()).digests(key, ("cohort-a",))})
    run = spending.run("2d" * 16, people=people, key=fingerprint, dataset="cohort-a")
    ledger.join(run, cost(1))

    def told(*words: str, code: int = 0) -> str:
        assert main(["forget", *words]) == code
        return " ".join(capsys.readouterr().out.split())

    file = ["--file", str(ledger.path)]
    assert "spent in 1 of 1 run:" in told("01", str(site), *file)
    assert "spent in 1 of 1 run:" in told("01", *file)
    # As long as no site is named, none is denied.
    assert "1 run; whose cannot be told without the site's name" in told("77", *file)
    # Of a run of an earlier version, whose digests have the name of the site in them
    named = frozenset({ListedPerson(label="sub-02", files=()).digests(key, ("local0", "cohort-a"))})
    ledger.join(replace(run, run="2e" * 16, people=named, key=old), cost(1))
    assert "spent in 1 of 2 runs" in told("02", str(site), *file)
    assert "whose cannot be told without the site's name: name a folder of its results" in told(
        "02", *file
    )
    ledger.path.with_name("other.jsonl.key").unlink()
    assert "cannot be told without the key of the ledger" in told("01", str(site), *file)
    # A script that took the rc 0 of a misspelt label for done left the person there.
    nobody = told("77", str(site), code=5)
    assert f"NOBODY of this name (77) in {site}" in nobody
    assert "1 of" not in nobody
    assert "NOBODY" not in told("01", str(site))
    nothing = told("01")
    assert "looked at: nothing" in nothing
    assert "No ledger was named" in nothing
    # Nobody is called nobody where nothing was looked at, or names cannot be compared.
    assert "NOBODY" not in nothing + told("77", *file)


def test_a_row_of_somebody_whose_file_has_the_same_last_name_stays(tmp_path) -> None:
    """Of x/rest.csv and y/rest.csv the row of checks of the second went with the first's person."""
    folder = tmp_path / PRIVATE
    folder.mkdir()
    rows = [("P1", "sub-P1", "x/rest.csv; x/more.csv"), ("P2", "sub-P2", "y/rest.csv")]
    files.write_table(folder / SUBJECT_TABLE, ["label", "subject", "files"], rows)
    assert _files_of(folder, "P1") == {"x/rest.csv", "x/more.csv", "more.csv"}
    checks = [("y/rest.csv: 1 cell",), ("x/rest.csv: 2 cells",), ("more.csv: 1 cell",)]
    files.write_table(folder / "checks.tsv", ["text"], checks)
    named = _names(_files_of(folder, "P1"))
    _, kept = _without(folder / "checks.tsv", "P1", set(), named)
    assert [row["text"] for row in kept] == ["y/rest.csv: 1 cell"]


def test_a_folder_of_another_program_is_no_simulation_of_ours(tmp_path) -> None:
    """Any .work with a folder cache in it was deleted whole."""
    work = tmp_path / "project" / ".work" / "job"
    for name in ("cache", "output", "data"):
        (work / name).mkdir(parents=True)
    (work / "data" / "thesis.txt").write_text("mine")
    traces_of("A1", [tmp_path]).remove()
    assert (work / "data" / "thesis.txt").read_text() == "mine"


def test_a_ledger_that_is_damaged_stops_no_deletion_and_a_reason_that_names_is_told(
    site, capsys, monkeypatch
) -> None:
    """E235, and every file stayed; of a reason "Ms 01 withdrew": "it holds no name"."""
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.delenv("CAPE_SITE_HOME", raising=False)
    ledger = LifetimeLedgerFile(path=site / "results/.cape-site/ledger.jsonl", site="local0")
    ledger.end(NONCES["held"], "closed", by="root", text="sub-01 withdrew")
    typed = ["forget", "sub-01", str(site)]
    assert main(typed) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "1 reason that somebody gave there names this person" in told
    assert "it holds no name" not in told
    ledger.path.write_bytes(ledger.path.read_bytes()[:-40])
    assert main([*typed, "--yes"]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "CANNOT BE READ, so nothing is told of it: CAPE-E235" in told
    left = {Path(name).parts[0] for name in holding(site)}
    assert left <= {"results"}
    assert all(".cape-site/ledger" in name for name in holding(site))
