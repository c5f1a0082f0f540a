"""Which files are a site's tables of people, and which of them has a column."""

from pathlib import Path

import numpy as np
import pytest

from cape.computations.capecontrast import CapeContrastConfig
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.people import PeopleList, read_people
from cape.data.person_tables import gift_results, table_with, tables_of, tables_with
from cape.settings.config import Config
from cape.settings.own_words import OwnWords


def write(folder: Path, **tables: str) -> Path:
    """Write tables, a column a word, with one person."""
    for name, columns in tables.items():
        path = folder / (f"phenotype/{name}.tsv" if name != "participants" else f"{name}.tsv")
        path.parent.mkdir(exist_ok=True)
        header = ["participant_id", *columns.split()]
        path.write_text("\t".join(header) + "\n" + "\t".join(["sub-1", *"1" * len(header[1:])]))
    return folder


def refused(code: IssueCode, function, *args) -> str:
    with pytest.raises(UnusableFile) as stop:
        function(*args)
    assert stop.value.issue.code is code
    return stop.value.issue.observed


def test_tables_are_those_of_bids_unless_the_site_names_its_own(tmp_path: Path) -> None:
    assert tables_of(tmp_path, OwnWords()) == ()
    write(tmp_path, participants="dx", b="age", a="sex")
    (tmp_path / "volumes.csv").write_text("participant_id,left\n1,2\n")
    (tmp_path / "phenotype" / "._a.tsv").write_text("")
    bids = ("participants.tsv", "phenotype/a.tsv", "phenotype/b.tsv")
    assert tables_of(tmp_path, OwnWords()) == bids
    assert tables_of(tmp_path, OwnWords(tables=("volumes.csv",))) == ("volumes.csv", *bids)
    (tmp_path / "gift.mat").write_bytes(b"")
    assert tables_of(tmp_path, OwnWords(tables=("gift.mat",))) == bids


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("gone.tsv", IssueCode.FILE_MISSING),
        ("../other.tsv", IssueCode.OUTSIDE_FOLDER),
        ("volumes.xlsx", IssueCode.FILE_TYPE_UNUSABLE),
    ],
)
def test_a_table_that_the_site_names_and_that_cannot_be_read_is_refused(tmp_path, name, code):
    write(tmp_path, participants="dx")
    (tmp_path / "volumes.xlsx").write_bytes(b"PK")
    words = OwnWords(tables=("participants.tsv", name))
    assert name in refused(code, tables_of, tmp_path, words)


def test_a_column_is_taken_from_the_one_table_that_has_it(tmp_path: Path) -> None:
    write(tmp_path, participants="dx Age", a="left right", b="site")
    found = tables_with(tmp_path, OwnWords(), ("dx", "left", "age"))
    assert found == {"participants.tsv": ["dx", "age"], "phenotype/a.tsv": ["left"]}
    assert table_with(tmp_path, OwnWords(), ("left", "right")) == "phenotype/a.tsv"
    looked = refused(IssueCode.GROUP_COLUMN, tables_with, tmp_path, OwnWords(), ("lefft",))
    assert looked.startswith("lefft; did you mean 'left'?: participants.tsv, phenotype/a.tsv, ")
    apart = refused(IssueCode.OUTCOMES_APART, table_with, tmp_path, OwnWords(), ("left", "age"))
    assert apart == "phenotype/a.tsv (left); participants.tsv (age)"


def test_a_column_that_several_tables_have_is_refused_until_the_site_names_one(tmp_path):
    write(tmp_path, participants="dx age", a="AGE")
    again = refused(IssueCode.COLUMN_AGAIN, tables_with, tmp_path, OwnWords(), ("age",))
    assert again == "age: participants.tsv, phenotype/a.tsv"
    words = OwnWords(tables=("participants.tsv",))
    assert table_with(tmp_path, words, ("dx", "age")) == "participants.tsv"


def test_one_file_of_gift_s_results_counts(tmp_path: Path) -> None:
    refused(IssueCode.GIFT_FILES, gift_results, tmp_path, OwnWords())
    for name in ("a", "b"):
        (tmp_path / f"{name}_postprocess_results.mat").write_bytes(b"")
        if name == "a":
            assert gift_results(tmp_path, OwnWords()) == "a_postprocess_results.mat"
    refused(IssueCode.GIFT_FILES, gift_results, tmp_path, OwnWords())
    words = OwnWords(tables=("b_postprocess_results.mat", "participants.tsv"))
    (tmp_path / "participants.tsv").write_text("participant_id\n")
    assert gift_results(tmp_path, words) == "b_postprocess_results.mat"


def test_a_missing_table_stops_a_run_that_reads_images_too(tmp_path: Path) -> None:
    (tmp_path / "site-policy.toml").write_text('tables = ["gone.tsv"]\n')
    np.save(tmp_path / "sub-1_bold.npy", np.ones((9, 3)))
    findings = Findings("A")
    read_people(
        tmp_path, Config.from_input({"feature_space": "matrix", "private": False}), findings
    )
    assert "gone.tsv, of tables in site-policy.toml" in findings.listing()[0].private


ROWS = "participant_id\tdx\tvolume\tnote\texclude\n1\ta\t3\t\t\n2\tb\t4\t\t1\n3\tb\t5\t\t0\n"


def people(folder: Path, rows: bytes, **asked: str) -> tuple[PeopleList, Findings]:
    (folder / "participants.tsv").write_bytes(rows)
    given = {"variables": "dx a/b", "formula": "dx", "public": "dx", "outcomes": "volume 1:9"}
    findings = Findings("A")
    return read_people(
        folder, CapeContrastConfig.from_input({**given, **asked, "private": False}), findings
    ), findings


def test_who_is_left_out_is_said_with_the_line(tmp_path: Path) -> None:
    found, findings = people(tmp_path, ROWS.encode())
    assert [person.label for person in found.listed] == ["1", "3"]
    assert [person.left_out for person in found.people] == ["", "participants.tsv, line 3", ""]
    assert found.said == ("1 of 3 people is left out: participants.tsv, line 3",)
    assert not findings.blocked


def test_two_rows_of_labels_that_are_one_person_s_are_a_person_twice(tmp_path: Path) -> None:
    (tmp_path / "site-policy.toml").write_text('same_people = [["1", "3"]]\n')
    _, findings = people(tmp_path, ROWS.encode())
    assert [finding.code for finding in findings.listing()] == ["CAPE-E105"]


def test_rows_of_sessions_are_one_person_where_a_change_is_asked(tmp_path: Path) -> None:
    rows = "participant_id\tsession_id\tdx\tvolume\n" + "".join(
        f"{m}\tses-{s}\ta\t{m + s}\n" for s in (2, 1) for m in (1, 2)
    )
    found, findings = people(tmp_path, rows.encode(), change="1, 2")
    assert [(person.label, len(person.runs)) for person in found.listed] == [("1", 1), ("2", 1)]
    assert not findings.blocked
    _, findings = people(tmp_path, rows.encode())
    assert [finding.code for finding in findings.listing()] == ["CAPE-E105"]
    _, findings = people(tmp_path, rows.replace("session_id", "ses").encode(), change="1, 2")
    assert "no sessions, which a change needs" in findings.listing()[0].private


def test_columns_are_sought_before_anybody_is_read(tmp_path: Path) -> None:
    """A table without a column of the formula was told after its people had been read."""
    _, findings = people(tmp_path, ROWS.encode(), variables="dx a/b, age 1:9", formula="dx + age")
    assert findings.blocked
    (tmp_path / "participants.tsv").write_text(ROWS)
    opened: list[bool] = []
    given = {
        "variables": "dx a/b", "formula": "dx", "public": "dx", "outcomes": "vol 1:9",
        "private": False,
    }  # fmt: skip
    read_people(
        tmp_path, CapeContrastConfig.from_input(given), Findings("A"),
        before_tables=lambda: opened.append(True),
    )  # fmt: skip
    assert not opened


@pytest.mark.parametrize(
    ("before", "after", "listed"),
    [
        (b"3\tb\t5\t\t0", b"3\tb\t5\t\t0\tmore", ["1", "3"]),  # reported, and stays
        (b"3\tb\t5\t\t0", b"3\tb\t5\t\xff\t0", ["1", "3"]),
        (b"2\tb\t4\t\t1", b"2\tb\t4\t\xff\t1", ["1", "3"]),  # a note takes nobody in again
        (b"2\tb\t4\t\t1", b"2\tb\t4\t" + 200_000 * b"y" + b"\t1", ["1", "3"]),
        (b"3\tb\t5\t\t0", b'3\tb\t5\t"' + 200_000 * b"y" + b'"\t0', ["1", "3"]),
    ],
)
def test_a_broken_row_is_reported_and_decides_nothing_else(tmp_path, before, after, listed):
    found, findings = people(tmp_path, ROWS.encode().replace(before, after))
    assert [person.label for person in found.listed] == listed
    assert not findings.blocked
    codes = [finding.private for finding in findings.listing()]
    assert any("A row of a table" in text for text in codes) == (b"yyy\t1" not in after)
