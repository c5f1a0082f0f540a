"""Groups and covariates of people, from the table of a site."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cape.data.groups import read_people
from cape.data.issues import Findings
from cape.settings.comparison import Comparison, parse_covariates, parse_question

COVARIATES = parse_covariates("age 18:90, sex f/m")
LISTED = ("sub-01", "sub-02", "sub-03", "sub-04")
TABLE = """participant_id\tage\tDx\tsex\tnote
sub-01\t54\tpatient\tf\t"a, b"
sub-02\t95\tcontrol\tm\t
03\tn/a\tother\tf\t
sub-04\t17\tControl\t?\t
sub-99\t20\tpatient\tf\t
"""


def asked(name: str = "participants.tsv", group: str = "dx: patient, control") -> Comparison:
    return Comparison(group=parse_question(group), covariates=COVARIATES, table=name)


def levels(people) -> list[int]:
    """Groups, -1 for neither."""
    return np.nan_to_num(people.group, nan=-1).astype(int).tolist()


def read(folder: Path, text: str = TABLE, name: str = "participants.tsv", listed=LISTED):
    (folder / name).write_text(text, encoding="utf-8")
    findings = Findings("B")
    people = read_people(folder, asked(name), listed, findings)
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


def test_a_manifest_or_another_table_may_say_it(tmp_path) -> None:
    text = "subject,dx,age,sex\n1,patient,54,f\n2,control,54,m\n"
    people, _ = read(tmp_path, text, "scores.csv", ("1", "2"))
    assert levels(people) == [1, 0]


def test_a_continuous_question_has_values_in_public_units(tmp_path) -> None:
    (tmp_path / "participants.tsv").write_text(TABLE)
    findings = Findings("B")
    people = read_people(tmp_path, asked(group="age 18:90"), LISTED, findings)
    np.testing.assert_allclose(people.group, [0.0, 2.0, np.nan, -2.0])
    assert "'sub-03': age 'n/a'" in said(findings)


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


def test_bytes_of_a_row_that_are_no_text_fail_its_person_alone(tmp_path) -> None:
    read(tmp_path)
    table = tmp_path / "participants.tsv"
    table.write_bytes(TABLE.encode().replace(b"sub-02\t95", b"sub-02\t\xff"))
    findings = Findings("B")
    people = read_people(tmp_path, asked(), LISTED, findings)
    assert levels(people) == [1, -1, -1, 0]
    assert not findings.blocked


def test_rows_of_sessions_must_say_the_same(tmp_path) -> None:
    again = TABLE + "sub-01\t54\tpatient\tf\tsecond visit\nsub-02\t95\tpatient\tm\t\n"
    people, findings = read(tmp_path, again)
    assert levels(people) == [1, -1, -1, 0]
    assert np.isnan(people.covariates[1]).all()
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
        (TABLE.replace("Dx", "diagnosis"), "has no dx"),
        (TABLE.replace("Dx", "dxx"), "did you mean 'dxx'"),
        (TABLE.replace("note", "DX"), "2 columns dx"),
        (TABLE.replace("participant_id", "who"), "participant_id"),
        (TABLE.replace("sub-", "case-").replace("\n03", "\ncase-03"), "none of 4 people here"),
        (TABLE.replace("\t", ","), "TABLE"),
        ("", "no lines"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_stops_the_site_with_what_to_do(tmp_path, text, part) -> None:
    people, findings = read(tmp_path, text)
    assert np.isnan(people.group).all()
    assert findings.blocked
    if part != "TABLE":
        assert part in said(findings)


def test_no_table_is_read_outside_of_the_folder(tmp_path) -> None:
    (tmp_path / "secret.tsv").write_text(TABLE)
    (tmp_path / "site").mkdir()
    findings = Findings("B")
    people = read_people(tmp_path / "site", asked("../secret.tsv"), LISTED, findings)
    assert np.isnan(people.group).all()
    assert findings.blocked
    findings = Findings("B")
    read_people(tmp_path / "site", asked(), LISTED, findings)
    assert findings.blocked  # it is not there
