"""Labels of people in many scripts: read right or refused, whatever states them.

Belongs to `cape/data/names.py`.
"""

import csv
import json
import unicodedata
from pathlib import Path

import pytest

from cape.data.issues import UnusableFile
from cape.data.names import normal
from cape.data.tables import read_labels
from test.support.people import MATRIX, read, read_all

# Labels of one site, and how many people they are; 0: refused
LABELS: list[tuple[tuple[str, ...], int]] = [
    (("01", "02", "03"), 3),
    (("S1", "S10", "S100"), 3),
    (("01", "1a", "1b"), 3),
    (("1e3", "1000"), 2),
    (("a" * 100, "a" * 99 + "b"), 2),
    # One label, written in two ways
    (("1", "1.0"), 1),
    (("01 ", "01"), 1),
    (("01\u00a0", "01"), 1),
    (("Ren\u00e91", "Rene\u03011"), 1),
    (("\ud55c1", unicodedata.normalize("NFD", "\ud55c1")), 1),
    (("\u212a1", "K1"), 1),  # the sign of kelvin
    # Labels that look alike
    (("01", "1"), 0),
    (("1.0", "01"), 0),
    (("0", "00"), 0),
    (("001", "0001", "2"), 0),
    (("01a", "01A"), 0),
    (("P01", "p01"), 0),
    (("S-01", "S01"), 0),
    (("S_01", "S01"), 0),
    (("S 01", "S01"), 0),
    (("S\u00a001", "S01"), 0),
    (("S.1", "S01"), 0),
    (("p1.0", "p10"), 0),
    (("1-02", "102"), 0),
    (("stra\u00dfe1", "strasse1"), 0),
    (("\u00c41", "\u00e41"), 0),
    (("\ufb01n1", "fin1"), 0),  # one letter for two
    (("x\u00b2", "x2"), 0),
    (("\u03a31", "\u03c21"), 0),  # two small letters of one great one
    (("I1", "i1"), 0),
    (("\uff11\uff12", "12"), 0),  # digits as wide as Chinese letters
    (("\u0661", "1"), 0),  # Arabic digit
    (("S\u200b01", "S01"), 0),  # of no width
    (("S\u00ad01", "S01"), 0),  # a hyphen that is not shown
    (("\ufeff01", "01"), 0),
    (("\u200f01", "01"), 0),
    # Letters, digits and vowels of all scripts count
    (("\u0623\u062d\u0645\u062f", "\u0645\u062d\u0645\u062f"), 2),
    (("\u5f20\u4f1f", "\u738b\u4f1f"), 2),
    (("\u0915\u093f", "\u0915\u0940", "\u0915"), 3),
    (("\u0967", "\u0968", "\u0969"), 3),
    (("\u04101", "A1"), 2),  # Cyrillic
    (("\u01301", "i1", "\u01311"), 3),  # of Turkish, with a dot and without
    # Nobody's name
    (("nan", "01"), 0),
    (("None", "01"), 0),
    (("NULL", "01"), 0),
]
# As cells of a list only
CELLS: list[tuple[tuple[str, ...], int]] = [
    (("", "01"), 0),
    (("  ", "01"), 0),
    (("n/a", "01"), 0),
    (("N/A", "01"), 0),
    (("sub-01", "01"), 1),
    (("sub-", "01"), 0),
]


def of_bids(folder: Path, labels: tuple[str, ...]) -> None:
    for run, label in enumerate(labels):
        path = folder / f"sub-{label}/func/sub-{label}_task-rest_run-{run}_bold.nii.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(path.name.encode())


def of_layout(folder: Path, labels: tuple[str, ...]) -> None:
    (folder / "site-policy.toml").write_text('layout = "{subject}/{run}.nii"\n')
    for run, label in enumerate(labels):
        (folder / label).mkdir()
        (folder / label / f"{run}.nii").write_bytes(label.encode())


def of_manifest(folder: Path, labels: tuple[str, ...]) -> None:
    with (folder / "manifest.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["participant_id", "file"])
        for run, label in enumerate(labels):
            (folder / f"{run}.nii").write_bytes(str(run).encode())
            rows.writerow([label, f"{run}.nii"])


def of_table(folder: Path, labels: tuple[str, ...]) -> None:
    with (folder / "records.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["participant_id", "a"], *([one, "1"] for one in labels)])


@pytest.mark.parametrize(
    ("state", "labels", "people"),
    [
        *((state, *row) for state in (of_bids, of_layout, of_manifest, of_table) for row in LABELS),
        *((state, *row) for state in (of_manifest, of_table) for row in CELLS),
    ],
)
def test_labels_are_read_right_or_refused(state, labels, people, tmp_path) -> None:
    state(tmp_path, labels)
    found = read(tmp_path, *([MATRIX] if state is of_table else []))
    # A table has one row for each person.
    wanted = 0 if state is of_table and people < len(labels) else people
    assert (0 if found is None else len(found)) == wanted


@pytest.mark.parametrize("labels", [labels for labels, n in LABELS if n == 0 and len(labels) == 2])
@pytest.mark.parametrize("state", [of_bids, of_layout, of_manifest])
def test_the_site_says_whether_labels_that_look_alike_are_one_persons(state, labels, tmp_path):
    state(tmp_path, labels)
    _, texts = read_all(tmp_path)
    if labels[0].lower() in ("nan", "none", "null"):
        assert not any("different_people" in text for text in texts)
        return
    assert any("same_people" in text and "different_people" in text for text in texts)
    policy = tmp_path / "site-policy.toml"
    before = policy.read_text() if policy.exists() else ""
    for key, people in (("same_people", 1), ("different_people", 2)):
        said = f"{key} = [{json.dumps(labels, ensure_ascii=False)}]\n"
        policy.write_text(before + said, encoding="utf-8")
        assert len(read(tmp_path)) == people
    policy.write_text(before + 'different_people = [["01", "77"]]\n')
    assert read(tmp_path) is None


@pytest.mark.parametrize("cell", ["#N/A", "#REF!", "<NA>"])
def test_a_row_that_a_program_could_not_fill_is_nobody_and_no_remark(cell, tmp_path) -> None:
    """Rows of a failed look-up in a spreadsheet were skipped as remarks, without a word."""
    table = tmp_path / "participants.tsv"
    table.write_text(f"participant_id\tdx\n# a remark\np1\tSZ\n{cell}\tSZ\n")
    assert read_labels(table) == ("p1", cell)
    with pytest.raises(UnusableFile):
        normal(cell)
