"""A person who is forgotten is nowhere, wherever a run was killed; what is private stays closed.

The folder of a run is looked at as a killed process leaves it: before each of its changes of a file
(`Moments`).  After ``cape forget`` and what that asks for, no file there names the person or holds
a row of theirs, and nobody else may read a file below `private`.
"""

import dataclasses
import os
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cape.cli import main
from cape.protocol.messages import FeatureSpace
from cape.protocol.ports import Stacks
from cape.report import plots
from cape.site import forgetting
from cape.site.context import write_private_results
from cape.site.files import write_atomically
from cape.site.ledger_file import read_ledger
from cape.site.policy import SitePolicy
from cape.site.store import FileStore
from support import consortium
from support import report_example as example
from support.simulation import simulate

PERSON = "zebra7"
# Of a file of that person, which says no label
FILE = "q17_rest.npy"
# Of somebody who fails a check
FAILED, FILE_OF_FAILED = "sub-09", "q18_cut.npy"
CHANGES = ("open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")


class Moments:
    """Copies of a folder before each change of it, each with the change that was next."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self.folder, self._copies = folder, copies
        self.seen: list[tuple[Path, str]] = []
        self._last: set[str] = set()
        self._on = False
        sys.addaudithook(self._look)  # for the life of this process; it does nothing when it is off

    def _look(self, event: str, values: tuple[Any, ...]) -> None:
        if not self._on or event not in CHANGES or not self.folder.is_dir():
            return
        if event == "open" and not (values[1] and set(str(values[1])) & set("wxa+")):
            flags = values[2] if isinstance(values[2], int) else 0
            if not flags & 0o3:  # read only
                return
        self._on = False
        try:
            # Which files there are, not how long: a killed process leaves files of any length.
            there = {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*")}
            there = {name for name in there if not re.search(r"remote|local0|sub-0|\.rounds", name)}
            if there != self._last:
                copy = self._copies / f"{len(self.seen):04d}" / self.folder.name
                shutil.copytree(self.folder, copy)
                self.seen.append((copy, f"{event} {values[0]}"))
                self._last = there
        finally:
            self._on = True

    @contextmanager
    def kept(self) -> Iterator[None]:
        self._on = True
        try:
            yield
        finally:
            self._on = False


def light_page(folder: Path) -> None:
    (folder / "index.html").write_bytes((folder / "subjects.tsv").read_bytes())


def named(folder: Path, *names: str) -> set[str]:
    """Return the files with a name in their path or text, and arrays of all people.

    Without `names` these are the person's and that of the person's file.
    """
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
        and (
            PERSON in str(path.relative_to(folder))
            or any(name.encode() in path.read_bytes() for name in names or (PERSON, FILE))
            or ".arrays" in path.name
        )
    }


def open_to_others(folder: Path) -> list[str]:
    return [
        str(path.relative_to(folder))
        for private in folder.rglob("private")
        for path in (private, *private.rglob("*"))
        if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)
    ]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    people = {f"local{s}": consortium.subjects(3, seed=s) for s in range(2)}
    folder = consortium.write_data(tmp_path_factory.mktemp("data"), people)
    at = folder / "local1"
    one = at / "sub-01.npy"
    X = np.load(one)
    X[0, 0] = np.nan  # told of in the notes, by file
    one.unlink()
    np.save(at / FILE, X)
    (at / FILE_OF_FAILED).write_bytes((at / FILE).read_bytes()[:-9])
    rows = [f"{name},{name}.npy" for name in ("sub-00", "sub-02")]
    rows += [f"sub-{PERSON},{FILE}", f"{FAILED},{FILE_OF_FAILED}"]
    (at / "manifest.csv").write_text("\n".join(["participant_id,file", *rows]))
    return folder


def asked(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in re.findall(r"cape (ledger close .+? --file \S+)", text)]


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize(
    ("through", "ledger"),
    [
        ("memory", "ledger.jsonl"),
        ("wire", "none"),
        pytest.param("memory", "none", marks=pytest.mark.slow),
        pytest.param("wire", "ledger.jsonl", marks=pytest.mark.slow),
    ],
)
def test_wherever_a_run_was_killed_a_person_who_is_forgotten_is_nowhere(
    data, tmp_path, monkeypatch, capsys, through, ledger
) -> None:
    """A folder `private` without its tables was passed over: "2 places", and the files were there.
    Half-written arrays were, too, and the list of files that a simulation began with."""
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.setattr(forgetting, "rebuild", light_page)
    home = tmp_path / "home"
    home.mkdir()
    moments = Moments(home, tmp_path / "copies")
    path = ledger if ledger == "none" else str(home / ledger)
    policy = SitePolicy.of_simulation(ledger_file=path, private_results=True)
    settings = consortium.settings_of("capedjica", n_rounds=1, n_looks=1)
    given = {"settings": settings, "policy": policy, "through": through, "replace": False}
    with moments.kept():
        simulate(data, out=home / "out", **given)
    home.rename(tmp_path / "copies" / "end")
    moments.seen.append((tmp_path / "copies" / "end", "the end"))
    assert len(moments.seen) > 40
    ways = set()
    for copy, moment in moments.seen:
        copy.rename(home)  # paths are written down
        for _ in range(4):
            # By a file alone, or arrays half written, nobody is known.
            before = {name for name in named(home, PERSON) if ".arrays" not in name}
            code = main(["forget", f"sub-{PERSON}", str(home), "--yes"])
            told = " ".join(capsys.readouterr().out.split())
            assert code == (6 if "NOT DONE" in told else 0) or not before, (moment, told)
            steps = asked(told)
            if forgetting.TO_END in told:
                ways.add("in place")
                simulate(data, out=home / "out", **given)
            elif not steps:
                break
            for step in steps:
                ways.add("close")
                assert main(step) == 0, step
            capsys.readouterr()
        assert named(home) == set(), (moment, told)
        assert open_to_others(home) == [], moment
        shutil.rmtree(home)
    assert ways == {"in place", *(["close"] if ledger != "none" else [])}


@pytest.mark.usefixtures("no_pages")
def test_wherever_a_site_was_killed_while_it_wrote_a_person_who_is_forgotten_is_nowhere(
    tmp_path, monkeypatch, capsys
) -> None:
    """A site of an engine has no working folder that goes as a whole; its second report is written
    over the first one, and the folder says all the time whether what is in it is whole.  Before a
    table said whose the person's file was, its name stayed in the notes."""
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.setattr(forgetting, "rebuild", light_page)
    home = tmp_path / "home"
    home.mkdir()
    others, labels = ("sub-08", "sub-09"), ("sub-01", f"sub-{PERSON}", "sub-03")
    made = example.outcome(FeatureSpace.of_matrix(20))
    moments = Moments(home, tmp_path / "copies")
    inside = example.inside(made, labels)
    each = [
        dataclasses.replace(s, files=(FILE,)) if PERSON in s.label else s for s in inside.subjects
    ]
    inside = dataclasses.replace(inside, subjects=tuple(each))
    head = "Site local0: 3 of 4 people count.\n"
    notices = (head, f"{head}\nCAPE-W125 Infinite values. {FILE}: 1.\n")
    with moments.kept():
        output = home / "output"
        store = FileStore(output, home / "working", "local0")
        stacks = Stacks(arrays=(np.zeros((3, 2, 4)),), labels=(labels,))
        store.put_arrays("basis", "key", stacks)
        insides = (example.inside(made, others), inside)
        for people, told, notice in zip((others, labels), insides, notices, strict=True):
            output.mkdir(exist_ok=True)
            write_atomically(output / "site-notice.txt", notice.encode())
            write_private_results(
                output,
                example.site_outcome(made, people),
                SimpleNamespace(private_summary=lambda *_, told=told: told),
                SitePolicy(private_results=True),
                (),
                page=False,
            )
    moments.seen.append((home, "the end"))
    assert len(moments.seen) > 20
    for copy, moment in moments.seen:
        before = named(copy)
        code = main(["forget", PERSON, str(copy), "--yes"])
        assert code == (0 if any("subjects.tsv" in name for name in before) else code), moment
        assert named(copy) == set(), (moment, capsys.readouterr().out)
        note = copy / "output/site-notice.txt"
        assert not note.exists() or note.read_text().startswith(head)
        # A killed process may leave open files, in a folder that nobody else may enter.
        assert set(open_to_others(copy)).isdisjoint({"output/private"}), moment
        # Of a folder that is whole the others stay.
        if (copy / "output/private/site.json").is_file():
            left = (copy / "output/private/subjects.tsv").read_text()
            assert "sub-03" in left or "sub-09" in left
    assert open_to_others(home) == []


def test_whatever_writes_below_private_leaves_it_to_its_user_alone(
    data, tmp_path, monkeypatch, capsys
) -> None:
    """After ``cape forget`` tables and page of all others could be read by everybody here, and a
    copy by ``cape report --out`` was open from the start."""
    monkeypatch.setenv("CAPE_CACHE", "none")
    monkeypatch.setattr(plots, "has_matplotlib", lambda: False)
    before = os.umask(0o022)
    try:
        settings = consortium.settings_of("capedjica", n_rounds=1, n_looks=1)
        policy = SitePolicy.of_simulation(private_results=True)
        out, copy, of_site = tmp_path / "out", tmp_path / "copy", tmp_path / "site"
        simulate(data, out=out, settings=settings, policy=policy, all_pages=False)
        for words in (
            ["report", str(out)],
            ["report", str(out), "--out", str(copy)],
            ["report", str(out / "local1" / "private"), "--out", str(of_site)],
            ["forget", f"sub-{PERSON}", str(out), str(copy), "--yes"],
        ):
            assert main(words) == 0, words
            capsys.readouterr()
            assert {name: open_to_others(tmp_path / name) for name in ("out", "copy")} == {
                "out": [], "copy": [],
            }, words  # fmt: skip
        assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in of_site.rglob("*")} == {0}
        assert named(out) | named(copy) == set()
        # Of somebody who fails no table named the files.
        of_failed = named(out, FILE_OF_FAILED)
        assert {Path(name).name for name in of_failed} > {"run.json", "site-notice.txt"}
        assert main(["forget", FAILED, str(out), str(copy), "--yes"]) == 0
        assert named(out, FILE_OF_FAILED) | named(copy, FILE_OF_FAILED) == set()
        assert (out / "local1" / "private" / "index.html").is_file()
    finally:
        os.umask(before)


def test_a_journal_is_kept_as_its_own_ledger_says_whether_that_is_named_or_not(
    data, tmp_path, monkeypatch, capsys
) -> None:
    """Without --file the journal of a run that may go on went, below "NOBODY of this name"; and
    what the ledger called b65713b2 was called 19d4bd1b to be closed.  The ledger
    of this journal, which a simulation keeps by site, was said to have none of this person.
    """
    monkeypatch.setenv("CAPE_CACHE", "none")
    ledger, out = tmp_path / "ledger.jsonl", tmp_path / "out"
    policy = SitePolicy.of_simulation(ledger_file=str(ledger))
    settings = consortium.settings_of("capedjica", n_rounds=1, n_looks=1)

    def stop(line) -> None:
        if line.exchange == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), consortium.without_pages():
        simulate(data, out=out, settings=settings, policy=policy, replace=False, on_progress=stop)
    words = ["forget", f"sub-{PERSON}", str(out)]
    told = []
    for more in (["--yes"], ["--yes", "--file", str(ledger)]):
        assert main([*words, *more]) == 6  # it said "0 places" and exit 0
        told.append(" ".join(capsys.readouterr().out.split()))
        assert told[-1].startswith("NOT DONE")
    assert told[0].partition("Stays:")[2] == told[1].partition("Stays:")[2]
    assert (out / ".work" / "state.json").is_file()
    assert all("spent in " in text and "none of this person" not in text for text in told)
    (step, *_) = asked(told[0])
    assert main(["ledger", "--file", str(ledger)]) == 0
    assert f"{step[2]}  nobody named" in capsys.readouterr().out
    assert main(step) == 0
    assert {run.state for run in read_ledger(ledger).runs} == {"closed"}  # at all sites
    capsys.readouterr()
    assert main([*words, "--yes"]) == 0
    assert "all of a simulation that was stopped" in capsys.readouterr().out
    assert named(out) == set()
    assert main([*words, "--yes"]) == 5  # no ledger is named
    capsys.readouterr()
    words += ["--file", str(ledger)]
    assert main(words) == 5  # nothing is here: a wrong folder must not pass for done
    assert "whose cannot be told without the site's name" in capsys.readouterr().out
    assert main([*words, "--data", str(data)]) == 0
    assert "spent in " in capsys.readouterr().out
    assert main(["forget", "sub-nobody", str(out), "--file", str(ledger), "--data", str(data)]) == 5
