"""Relations of what a site reads for a comparison: rows of two readings are compared.

Tables of 24 people, two of them: variables in participants.tsv, outcomes in one that the site
names.  Nothing is released here.
"""

import unicodedata
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.computations.capecontrast import CapeContrastConfig
from cape.data.folders import words_beside
from cape.data.groups import read_compared
from cape.data.issues import Findings, IssueCode
from cape.data.people import read_people
from cape.data.person_tables import column_faults
from cape.python.groups import _write_table as write_table
from cape.settings.question import quoted
from support.asked import GIVEN, config_of, rows_of, source_of

Rows = dict[str, np.ndarray]
Columns = dict[str, list[Any]]


class Study:
    """Columns of two tables, in order; cells are texts or numbers."""

    def __init__(self, n: int = 24) -> None:
        rng = np.random.default_rng(8)
        self.labels = [f"sub-{m:02}" for m in range(n)]
        self.people: Columns = {
            "age": [*(20 + rng.integers(0, 60, n)).tolist()],
            "dx": [("control", "patient", "other")[k] for k in rng.integers(0, 3, n)],
            "note": [f"n {m}" for m in range(n)],
            "sex": [*rng.choice(["f", "m"], n)],
            "site": ["x"] * n,
        }
        self.outcomes: Columns = {
            "left": [*(4000 + 900 * rng.standard_normal(n)).round(2).tolist()],
            "right": [*(12 + 2 * rng.standard_normal(n)).round(3).tolist()],
        }
        self.people["age"][3] = "n/a"
        self.outcomes["right"][5] = ""
        self.words = 'tables = ["volumes.tsv"]\n'

    def written(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "site-policy.toml").write_text(self.words)
        (folder / "participants.tsv").write_text(table(self.labels, self.people))
        (folder / "volumes.tsv").write_text(table(self.labels, self.outcomes))
        return folder


def table(labels: list[str], columns: Columns) -> str:
    rows = [["participant_id", *columns], *zip(labels, *columns.values(), strict=True)]
    return "\n".join("\t".join(map(str, row)) for row in rows) + "\n"


def same(one: Rows, other: Rows, *, rtol: float = 0.0) -> None:
    """Tell whether people, order and numbers are equal, to the bit without a tolerance."""
    assert list(one) == list(other)
    np.testing.assert_allclose(list(one.values()), list(other.values()), rtol=rtol, atol=rtol)


@pytest.fixture
def plain(tmp_path: Path) -> Rows:
    rows = rows_of(Study().written(tmp_path / "plain"))
    assert len(rows) == 24
    cells = [row[2] for row in rows.values()]
    assert {-1.0, 0.0, 1.0} == set(cells)
    assert np.isnan(list(rows.values())).sum() == 2 + cells.count(-1.0)
    return rows


@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_1_the_unit_of_an_outcome_is_nobody_s_matter(tmp_path, plain, factor) -> None:
    study = Study()
    study.outcomes["left"] = [factor * x for x in study.outcomes["left"]]
    low, high = 2000 * factor, 6000 * factor
    outcomes = f"left {low:.12g}:{high:.12g}, right 8:16"
    same(plain, rows_of(study.written(tmp_path / "other"), outcomes=outcomes), rtol=1e-5)


def test_2_a_constant_added_to_column_and_range_changes_nothing(tmp_path, plain) -> None:
    study = Study()
    study.outcomes["left"] = [x - 4e4 for x in study.outcomes["left"]]
    study.people["age"] = [x if x == "n/a" else x + 500 for x in study.people["age"]]
    changed = {
        "outcomes": "left -38000:-34000, right 8:16",
        "variables": "dx control/patient, age 518:590, sex f/m",
    }
    same(plain, rows_of(study.written(tmp_path / "other"), **changed), rtol=1e-4)


def test_4_order_changes_nothing(tmp_path, plain) -> None:
    study = Study()
    study.people = dict(reversed(study.people.items()))
    study.outcomes = dict(reversed(study.outcomes.items()))
    order = np.random.default_rng(1).permutation(len(study.labels))
    study.labels = [study.labels[i] for i in order]
    for columns in (study.people, study.outcomes):
        columns |= {name: [cells[i] for i in order] for name, cells in columns.items()}
    settings = {"variables": "sex f/m, age 18:90, dx control/patient"}
    same(plain, rows_of(study.written(tmp_path / "other"), **settings))


# Blanks, umlauts, another script, signs of the grammar, quotes, 100 letters
NAMES = ("years of age", "Größe", "年齢", "HDRS:17 (+)", "a*b + c", "5'-HT", "n" * 100, "log(x)")


@pytest.mark.parametrize("name", NAMES)
def test_5_columns_have_other_names(tmp_path, plain, name) -> None:
    study = Study()
    new = {"age": name, "dx": f"{name} 2", "left": f"{name} 3"}
    # As a Mac writes it
    spelled = {old: unicodedata.normalize("NFD", text) for old, text in new.items()}
    for columns in (study.people, study.outcomes):
        renamed = {spelled.get(old, old): cells for old, cells in columns.items()}
        columns.clear()
        columns |= renamed
    age, dx, left = map(quoted, new.values())
    settings = {
        "variables": f"{dx} control/patient, {age} 18:90, sex f/m",
        "formula": f"{dx} + {age} + sex",
        "public": dx,
        "outcomes": f"{left} 2000:6000, right 8:16",
    }
    same(plain, rows_of(study.written(tmp_path / "other"), **settings))


@pytest.mark.parametrize(
    "levels", [("healthy control", "Größe 5/6"), ("0", "1"), ("対照", "患者"), ("c" * 100, "none")]
)
def test_5_levels_have_other_names(tmp_path, plain, levels) -> None:
    study = Study()
    to = {"control": levels[0], "patient": levels[1]}
    study.people["dx"] = [to.get(cell, cell) for cell in study.people["dx"]]
    said = "/".join(map(quoted, levels))
    settings = {"variables": f"dx {said}, age 18:90, sex f/m"}
    same(plain, rows_of(study.written(tmp_path / "other"), **settings))


def test_5_people_have_other_names(tmp_path, plain) -> None:
    """Their pairs are others, as the order is that of a hash of names; each row is the same."""
    study = Study()
    new = {label: f"Person {unicodedata.lookup('LATIN SMALL LETTER A WITH DIAERESIS')} {m}"
           for m, label in enumerate(study.labels)}  # fmt: skip
    study.labels = list(new.values())
    rows = rows_of(study.written(tmp_path / "other"))
    same(plain, {label: rows[new[label]] for label in plain})
    assert [row[2] for row in rows.values()] == [row[2] for row in plain.values()]


def _somebody_excluded(study: Study, folder: Path) -> None:
    study.labels.append("sub-99")
    for columns in (study.people, study.outcomes):
        columns |= {name: [*cells, cells[0]] for name, cells in columns.items()}
    study.people["exclude"] = [0] * 24 + [1]


def _more_columns_and_tables(study: Study, folder: Path) -> None:
    study.people["smoker"] = ["yes"] * 24
    study.outcomes["amygdala"] = [1.0] * 24
    (folder / "phenotype").mkdir(parents=True)
    (folder / "phenotype" / "iq.tsv").write_text("participant_id\tiq\nsub-00\t100\nsub-77\t90\n")
    (folder / "phenotype" / "._iq.tsv").write_bytes(b"\xff")


def _an_odd_byte(study: Study, folder: Path) -> None:
    study.people["note"][4] = 'a "word", \x01 ' + "y" * 200_000


@pytest.mark.parametrize(
    "add", [_somebody_excluded, _more_columns_and_tables, _an_odd_byte], ids=lambda f: f.__name__
)
def test_6_what_nobody_asked_for_changes_nothing(
    tmp_path, plain, add: Callable[[Study, Path], None]
) -> None:
    study = Study()
    add(study, tmp_path / "other")
    same(plain, rows_of(study.written(tmp_path / "other")))


# -- 15: the public cell of a person -------------------------------------------------------------


def _faults(rng: np.random.Generator, cell: str) -> Iterator[bytes]:
    """Yield nine kinds of fault of one cell; one of them is taken."""
    text = cell.encode()
    yield text + b"\xff\xfe"
    yield b'"' + text
    yield text + b'"x'
    yield text + b"\t" + text
    yield b""
    yield b"y" * int(rng.integers(1, 300_000))
    yield text + b"\0"
    yield bytes(rng.choice([b"patient", b"control", b"n/a", b"41,3", b"1e999", b"=1+1", b"-"]))
    yield b"\xef\xbb\xbf \xe2\x80\xa8" + text


def _site(road: str, study: Study, folder: Path) -> tuple[CapeContrastConfig, list[str]]:
    """Write a site whose people are stated in one of several ways; tables in which faults lie."""
    study.written(folder)
    if road == "tables":
        return config_of(), ["participants.tsv", "volumes.tsv"]
    (folder / "site-policy.toml").unlink()
    (folder / "volumes.tsv").unlink()
    for label in study.labels:
        place = folder / label / "func"
        place.mkdir(parents=True)
        (place / f"{label}_task-rest_bold.nii.gz").touch()
    if road == "manifest":
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.nii.gz")]
        rows = [f"{name.partition('/')[0]},{name}" for name in names]
        (folder / "manifest.csv").write_text("\n".join(["participant_id,file", *rows]) + "\n")
    return config_of(outcomes="fnc", networks="a, b, c"), ["participants.tsv"]


@pytest.mark.parametrize(("road", "n"), [("tables", 300), ("BIDS", 100), ("manifest", 100)])
def test_15_nothing_but_the_public_cell_moves_it(tmp_path, road, n) -> None:
    """A bad byte, quote or cell elsewhere in a row took a person out of the group: an owner had
    exact counts of any column without a charge, as often as wanted.  In a table whose column of
    names was not the first it gave the person another name, and others were paired otherwise."""
    rng, study = np.random.default_rng(15), Study()
    config, names = _site(road, study, tmp_path)

    def read() -> tuple[tuple[str, ...], np.ndarray, tuple[int, ...]]:
        findings = Findings("A")
        listed = [person.label for person in read_people(tmp_path, config, findings).listed]
        words = words_beside(tmp_path)
        people = read_compared(tmp_path, words, config.question, listed, findings)
        assert not findings.blocked
        return *people.rows(config.question), people.said(config.question, 1)[1]

    labels, rows, counts = read()
    assert sum(counts) > 10
    K = len(config.question.outcomes)
    own = [label.removeprefix("sub-") for label in labels]
    for _ in range(n):
        m, name = int(rng.integers(len(study.labels))), str(rng.choice(names))
        columns = study.outcomes if name == "volumes.tsv" else study.people
        columns = {k: list(map(str, columns[k])) for k in rng.permutation(list(columns))}
        right = table(study.labels, columns).encode()
        lines = right.splitlines()
        cells = lines[m + 1].split(b"\t")
        at = int(rng.choice([i for i, k in enumerate(columns, 1) if k != "dx"]))
        faults = list(_faults(rng, cells[at].decode()))
        fault = faults[int(rng.integers(len(faults)))]
        torn = b"\t".join([*cells[:at], fault, *cells[at + 1 :]])
        if name == "participants.tsv" and rng.random() < 0.2:  # rows of two sessions that disagree
            lines.append(torn.replace(b"\t" + fault, b"\t" + fault.replace(b"\t", b" ")))
        else:
            lines[m + 1] = torn
        (tmp_path / name).write_bytes(b"\n".join(lines) + b"\n")
        found, changed, said = read()
        (tmp_path / name).write_bytes(right)
        assert (found, said) == (labels, counts)
        np.testing.assert_array_equal(changed[:, K], rows[:, K], err_msg=f"{fault[:40]!r}")
        others = [i for i, label in enumerate(own) if label != study.labels[m][4:]]
        np.testing.assert_array_equal(changed[others], rows[others])


@pytest.mark.parametrize("column", [0, 1])
def test_15_names_stand_in_the_first_column(tmp_path, column) -> None:
    """Where they do not, the table is refused by its header alone, whatever its rows hold."""
    study = Study()
    folder = study.written(tmp_path)
    name = ("participants.tsv", "volumes.tsv")[column]
    lines = [line.split("\t") for line in (folder / name).read_text().splitlines()]
    (folder / name).write_text("\n".join("\t".join([*c[1:2], c[0], *c[2:]]) for c in lines))
    (refused,) = column_faults(folder, words_beside(folder), config_of().question)
    assert refused.issue.code is IssueCode.PERSON_FIRST


def test_15_cells_of_python_are_one_cell_each(tmp_path, plain) -> None:
    """A line end in a note of a data frame made another person."""
    rng, study = np.random.default_rng(5), Study()
    columns = {**study.people, **study.outcomes, "participant_id": study.labels}
    for i in range(100):
        m, name = int(rng.integers(24)), str(rng.choice(["age", "note", "sex", "left", "right"]))
        hostile = [fault.decode("latin-1") for fault in _faults(rng, str(columns[name][m]))]
        hostile += ["a\nb\tc", "\r\n", "\u2028", None, float("nan"), 1e400]
        cells = [*columns[name]]
        cells[m] = hostile[int(rng.integers(len(hostile)))]
        write_table(tmp_path / str(i), {**columns, name: cells}, count(1))
        rows = rows_of(tmp_path / str(i))
        assert list(rows) == list(plain)
        assert [row[2] for row in rows.values()] == [row[2] for row in plain.values()]
        del rows[study.labels[m]]
        same({label: plain[label] for label in rows}, rows)


def test_15_a_change_of_the_public_cell_moves_it(tmp_path, plain) -> None:
    """The test above would see it."""
    study = Study()
    m = study.people["dx"].index("control")
    study.people["dx"][m] = "patient"
    rows = rows_of(study.written(tmp_path / "other"))
    label = study.labels[m]
    assert (plain[label][2], rows[label][2]) == (0.0, 1.0)


# -- what a site states it has not ---------------------------------------------------------------


def test_a_stated_outcome_is_missing_for_all_and_others_stay(tmp_path, plain) -> None:
    study = Study()
    study.words += 'lacks = ["RIGHT", "amygdala"]\n'
    source = source_of(study.written(tmp_path / "other"))
    rows = {label: row[:, 0] for label, row in source.reduced(1)}
    assert source.lacks == ("right",)
    assert source.space == source_of(Study().written(tmp_path / "plain")).space
    assert np.isnan([row[1] for row in rows.values()]).all()
    without = {label: np.delete(row, 1) for label, row in plain.items()}
    same(without, {label: np.delete(row, 1) for label, row in rows.items()})


def test_a_change_is_a_column_of_differences(tmp_path) -> None:
    """The same people with their differences in a table are the same rows."""
    rng, study = np.random.default_rng(3), Study()
    study.outcomes["right"][5] = 11.0
    later = {name: [x + rng.standard_normal() for x in cells]
             for name, cells in study.outcomes.items()}  # fmt: skip
    folder = study.written(tmp_path / "both")
    both = {name: [*later[name], *cells] for name, cells in study.outcomes.items()}
    sessions = {"session_id": ["ses-2"] * 24 + ["ses-1"] * 24, **both}
    (folder / "volumes.tsv").write_text(table(study.labels * 2, sessions))
    found = rows_of(folder, change="ses-1, ses-2")
    study.outcomes = {name: [b - a for a, b in zip(cells, later[name], strict=True)]
                      for name, cells in study.outcomes.items()}  # fmt: skip
    outcomes = "left -2000:2000, right -4:4"
    same(rows_of(study.written(tmp_path / "one"), outcomes=outcomes), found, rtol=1e-5)
    assert GIVEN["outcomes"] != outcomes
