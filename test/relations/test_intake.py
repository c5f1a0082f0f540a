"""Relations: two runs of the product are compared with each other, whatever the data.

This folder holds all of them.  Here: names, lists and marks, which decide who takes part.
"""

import csv
import io
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from test.support.file_lists import lay_out
from test.support.people import IMAGES, MATRIX, people_said, read_all, sites_of

Table = list[list[str]]
LABELS = ("01", "02", "03", "10")
AGES = [[f"sub-{n}", str(20 + k), "", "x"] for k, n in enumerate(LABELS)]


class Study:
    """A small study that a source states; tables and files are written when all is said."""

    def __init__(self, source: str) -> None:
        self.source, self.rename = source, dict(zip(LABELS, LABELS, strict=True))
        self.people: Table = [["participant_id", "age", "exclude", "notes"], *AGES]
        self.more: list[str] = []
        self.shuffled = False

    @property
    def rows(self) -> Table:
        """Person, session and file of each run."""
        return [[n, s, self.path(n, s)] for n in self.rename.values() for s in ("1", "2")]

    def path(self, label: str, session: str) -> str:
        bids = f"sub-{label}/ses-{session}/func/sub-{label}_ses-{session}_task-rest_bold.nii"
        names = {"BIDS": bids, "layout": f"{label}/{session}/rest.nii"}
        return names.get(self.source, f"scans/{label} {session}.nii")

    def written(self, folder: Path) -> None:
        # Order of creation is that of some folders.
        paths = [path for *_, path in self.rows if self.source != "records.csv"]
        lay_out(folder, *(reversed(paths) if self.shuffled else paths), *self.more)
        header, *people = [[self._renamed(cell) for cell in row] for row in self.people]
        if self.source == "records.csv":
            header, people = header[:2], [row[:2] for row in people]
            self._table(folder / "records.csv", [header, *people])
            return
        self._table(folder / "participants.tsv", [header, *people])
        if self.source == "layout":
            text = 'layout = "{subject}/{session}/rest.nii"\n'
            (folder / "site-policy.toml").write_text(text)
        if self.source == "manifest.csv":
            self._table(
                folder / "manifest.csv", [["participant_id", "session", "file"], *self.rows]
            )

    def _renamed(self, cell: str) -> str:
        label = cell.removeprefix("sub-")
        return f"sub-{self.rename[label]}" if label in self.rename else cell

    def _table(self, path: Path, rows: Table) -> None:
        if self.shuffled:
            order = list(range(len(rows[0])))
            random.Random(1).shuffle(order)
            if path.name == "records.csv":  # its first column is that of the people
                order = [0, *(k for k in order if k)]
            body = rows[1:]
            random.Random(2).shuffle(body)
            rows = [[row[k] for k in order] for row in (rows[0], *body)]
        text = io.StringIO(newline="")
        csv.writer(text, delimiter="\t" if path.suffix == ".tsv" else ",").writerows(rows)
        path.write_bytes(text.getvalue().encode("utf-8", "surrogateescape"))

    def answer(self, folder: Path) -> tuple[object, ...]:
        """Return people, runs and refusals, with the labels of the first study."""
        folder.mkdir()
        self.written(folder)
        people, texts = read_all(folder, MATRIX if self.source == "records.csv" else IMAGES)
        back = {new: old for old, new in self.rename.items()}
        listed = {
            back[person.label.removeprefix("sub-")]: [
                (
                    run.session,
                    run.run,
                    len(run.name) if run.row >= 0 else run.path.read_bytes() != b"",
                )
                for run in person.runs
            ]
            for person in people.listed
        }
        return listed, [text for text in texts if text.startswith("E ")], len(people.said)


SOURCES = ("BIDS", "manifest.csv", "layout", "records.csv")
Change = Callable[[Study], None]


def another_order(study: Study) -> None:
    study.shuffled = True


def a_hidden_file(study: Study) -> None:
    study.more += [".DS_Store", ".cache/x.nii", "._participants.tsv", "scans/.x.nii"]


def a_file_of_another_kind(study: Study) -> None:
    study.more += ["README.md", "code/run.py", "figures/a.png"]


def a_column_nobody_asked_for(study: Study) -> None:
    study.people = [[*row, "x" if n else "site_of_birth"] for n, row in enumerate(study.people)]


def an_odd_byte(study: Study) -> None:
    study.people[2] = [*study.people[2][:3], "Jos\udce9"]  # Latin-1


def somebody_who_is_excluded(study: Study) -> None:
    study.people.append(["sub-77", "40", "1", ""])
    study.more.append(study.path("77", "1"))


CHANGES = (
    another_order, a_hidden_file, a_file_of_another_kind, a_column_nobody_asked_for, an_odd_byte,
)  # fmt: skip


# Every column of records is asked for.
TRIED = [
    (source, change)
    for source in SOURCES
    for change in CHANGES
    if source != "records.csv" or change not in (a_column_nobody_asked_for, an_odd_byte)
]


@pytest.mark.parametrize(("source", "change"), TRIED)
def test_what_nobody_asked_for_changes_nobody(source: str, change: Change, tmp_path: Path) -> None:
    before, after = Study(source), Study(source)
    change(after)
    wanted = before.answer(tmp_path / "a")
    assert wanted[1] == []
    assert list(wanted[0]) == [*LABELS]
    assert after.answer(tmp_path / "b") == wanted


NAMES = {
    "blanks": ("a b", "a c", "b a", "b b b"),
    "umlauts": ("\u00c4nne", "\u00d6rs", "Zo\u00eb", "stra\u00dfe"),
    "scripts": (
        "\u0623\u062d\u0645\u062f",
        "\u5f20\u4f1f",
        "\u0915\u093f\u0930\u0923",
        "\u0416\u0430",
    ),
    "letters": tuple("abcd"[k] + "x" * 99 for k in range(4)),
    "numbers": ("7", "8", "9", "100"),
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("source", SOURCES)
def test_people_under_other_names_are_the_same_people(source, names, tmp_path) -> None:
    before, after = Study(source), Study(source)
    after.rename = dict(zip(LABELS, names, strict=True))
    wanted, found = before.answer(tmp_path / "a"), after.answer(tmp_path / "b")
    assert (dict(sorted(found[0].items())), found[1:]) == (
        dict(sorted(wanted[0].items())),
        wanted[1:],
    )


@pytest.mark.parametrize("source", ["BIDS", "layout"])
def test_somebody_who_is_excluded_changes_nobody_else(source, tmp_path) -> None:
    before, after = Study(source), Study(source)
    somebody_who_is_excluded(after)
    assert after.answer(tmp_path / "b") == before.answer(tmp_path / "a")


PLACES = ("Klinik f\u00fcr Psychiatrie", "\u533b\u9662", "x" * 100, "a;b 'c'", "-site")


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("source", SOURCES)
def test_a_folder_and_its_sites_under_other_names_hold_the_same_people(
    source, name, tmp_path, capsys
) -> None:
    study, said = Study(source), []
    sites = {"plain": ("north", "south"), name: (f"{name} north", f"{name} south")}
    for top, below in sites.items():
        for site in below:
            (tmp_path / top / site).mkdir(parents=True)
            study.written(tmp_path / top / site)
        assert tuple(sites_of(tmp_path / top)) == below
        found = people_said(tmp_path / top, capsys)
        assert found["refused"] is None
        said.append([(each["person"], len(each["runs"])) for each in found["people"]])
    assert said[0] == said[1]
    assert len(said[0]) == 2 * len(LABELS)
