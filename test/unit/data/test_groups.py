"""Groups and covariates of people, from the table of a site."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cape.data.groups import read_groups
from cape.data.issues import Findings
from cape.settings.comparison import Comparison, parse_covariates, parse_question
from cape.settings.own_words import OwnWords

COVARIATES = parse_covariates("age 18:90, sex f/m")
LISTED = ("sub-01", "sub-02", "sub-03", "sub-04")
TABLE = """participant_id\tage\tDx\tsex\tnote
sub-01\t54\tpatient\tf\t"a, b"
sub-02\t95\tcontrol\tm\t
03\tn/a\tother\tf\t
sub-04\t17\tControl\t?\t
sub-99\t20\tpatient\tf\t
"""


DX = "dx: patient, control"
SILENT = OwnWords()


def comparison_of(group: str = DX) -> Comparison:
    return Comparison(group=parse_question(group), covariates=COVARIATES)


def levels(people) -> list[int]:
    """Groups, -1 for neither."""
    return np.nan_to_num(people.group, nan=-1).astype(int).tolist()


def read(folder: Path, text: str | bytes = TABLE, listed=LISTED, words=SILENT, group=DX):
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "participants.tsv").write_bytes(content)
    findings = Findings("B")
    people = read_groups(folder, words, comparison_of(group), listed, findings)
    return people, findings


def said(findings: Findings) -> str:
    return "\n".join(f"{one.private}\n{one.places}" for one in findings.listing())


def test_everybody_who_is_listed_is_read_by_label_and_told_what_is_missing(tmp_path) -> None:
    people, findings = read(tmp_path)
    assert people.subjects == LISTED
    assert levels(people) == [1, 0, -1, 0]
    expected = [[0.0, 1.0], [2.0, -1.0], [np.nan, 1.0], [-2.0, np.nan]]
    np.testing.assert_allclose(people.covariates, expected)
    assert not findings.blocked
    text = said(findings)
    for part in ("'sub-03': dx 'other'", "'sub-03': age 'n/a'", "'sub-04': sex '?'",
                 "'sub-02': age '95'", "'sub-04': age '17'", "adds zeros"):  # fmt: skip
        assert part in text
    assert "sub-99" not in text
    # what stands in a row leaves in no public text
    assert all(not one.public for one in findings.listing())


def test_nobody_moves_when_another_row_changes(tmp_path) -> None:
    """What is read of a person hangs on that person's row alone."""
    people, _ = read(tmp_path)
    changed, _ = read(tmp_path, TABLE.replace("95\tcontrol", "n/a\tnobody knows"))
    others = [0, 2, 3]
    np.testing.assert_array_equal(people.group[others], changed.group[others])
    np.testing.assert_array_equal(people.covariates[others], changed.covariates[others])
    assert np.isnan(changed.group[1])


def test_a_continuous_question_has_values_in_public_units(tmp_path) -> None:
    people, findings = read(tmp_path, group="age 18:90")
    np.testing.assert_allclose(people.group, [0.0, 2.0, np.nan, -2.0])
    assert "'sub-03': age 'n/a'" in said(findings)


def test_columns_stand_where_the_site_has_them(tmp_path) -> None:
    (tmp_path / "phenotype").mkdir()
    ages = "participant_id\tage\tage2\nsub-01\t90\t1\nsub-02\t18\t1\n"
    (tmp_path / "phenotype" / "ages.tsv").write_text(ages)
    people, _ = read(tmp_path, TABLE.replace("\tage\t", "\tage2\t"))
    assert levels(people) == [1, 0, -1, 0]
    np.testing.assert_allclose(people.covariates[:, 0], [2, -2, np.nan, np.nan])


def test_labels_that_the_site_says_are_one_person_s_are_one(tmp_path) -> None:
    words = OwnWords(same_people=(("01", "01a"),))
    people, _ = read(tmp_path, TABLE.replace("sub-01", "sub-01a"), words=words)
    assert levels(people) == [1, 0, -1, 0]


@pytest.mark.parametrize(
    "row", ["sub-02\t95\tcontrol", 'sub-02\t"95\tcontrol\tm\t', "sub-02\t95\tcontrol\tm\t\t\t7"]
)
def test_a_row_that_cannot_be_read_fails_its_person_alone(tmp_path, row) -> None:
    """One person's ragged row once put everybody of the site in no group: 100 people added zeros,
    and whether they did was that one person's secret."""
    whole, _ = read(tmp_path)
    people, findings = read(tmp_path, TABLE.replace("sub-02\t95\tcontrol\tm\t", row))
    assert levels(people) == [1, -1, -1, 0]
    others = [0, 2, 3]
    np.testing.assert_array_equal(people.covariates[others], whole.covariates[others])
    assert not findings.blocked
    assert "'sub-02'" in said(findings)


@pytest.mark.parametrize(
    ("cell", "other", "lost"),
    [
        (b"\t95\tcontrol\tm\t", b"\t95\tcontrol\tm\t\xff", ()),
        (b"\t95\tcontrol\tm\t", b"\t95\tcontrol\tm\t" + 200_000 * b"y", ()),
        (b"\t95\tcontrol\tm\t", b"\t\xff\tcontrol\tm\t", ("age",)),
        (b"\t95\tcontrol\tm\t", b"\t95\t\xff\tm\t", ("dx",)),
    ],
)
def test_a_cell_decides_nothing_but_its_own_column(tmp_path, cell, other, lost) -> None:
    """The number of people of a group moved by a byte of somebody's note."""
    whole, _ = read(tmp_path)
    people, findings = read(tmp_path, TABLE.encode().replace(cell, other))
    assert levels(people) == [1, -1 if "dx" in lost else 0, -1, 0]
    expected = whole.covariates.copy()
    expected[1, 0] = np.nan if "age" in lost else expected[1, 0]
    np.testing.assert_array_equal(people.covariates, expected)
    assert not findings.blocked
    assert all(f"'sub-02': {column}: line 3" in said(findings) for column in lost)


def test_rows_of_sessions_must_say_the_same_of_what_is_asked(tmp_path) -> None:
    again = TABLE + "sub-01\t55\tpatient\tf\tsecond visit\nsub-02\t95\tpatient\tm\t\n"
    people, findings = read(tmp_path, again)
    assert levels(people) == [1, -1, -1, 0]  # whoever grew older is still a patient
    np.testing.assert_array_equal(people.covariates[:2], [[np.nan, 1], [2, -1]])
    assert "contradict" in said(findings)


def test_who_is_not_in_the_table_stays_counted_and_is_told(tmp_path) -> None:
    people, findings = read(tmp_path, listed=(*LISTED, "sub-5", "sub-099"))
    assert levels(people) == [1, 0, -1, 0, -1, -1]
    assert "'sub-5': not in participants.tsv" in said(findings)
    assert "'sub-099': not in participants.tsv (did you mean '99' there?)" in said(findings)
    assert not findings.blocked


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (TABLE.replace("Dx", "diagnosis"), "dx: participants.tsv"),
        (TABLE.replace("Dx", "dxx"), "did you mean 'dxx'"),
        (TABLE.replace("note", "DX"), "2 columns dx"),
        (TABLE.replace("participant_id", "subject"), "no column participant_id; found subject"),
        (TABLE.replace("sub-", "case-").replace("\n03", "\ncase-03"), "none of 4 people here"),
        (TABLE.replace("\t", ","), "participants.tsv: line 1"),
        ("", "participants.tsv: no lines"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_stops_the_site_with_what_to_do(tmp_path, text, part) -> None:
    people, findings = read(tmp_path, text)
    assert np.isnan(people.group).all()
    assert findings.blocked
    assert part in said(findings)
