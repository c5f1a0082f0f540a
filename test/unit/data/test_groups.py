"""Variables and outcomes of people, from the tables of a site."""

from pathlib import Path

import numpy as np
import pytest

from cape.counting import CountedPeople
from cape.data.groups import Compared, read_compared
from cape.data.issues import Findings
from cape.settings.own_words import OwnWords
from cape.settings.question import Question, parse_question

LISTED = ("sub-01", "sub-02", "sub-03", "sub-04")
TABLE = """participant_id\tage\tDx\tsex\tnote
sub-01\t54\tpatient\tf\t"a, b"
sub-02\t95\tcontrol\tm\t
03\tn/a\tother\tf\t
sub-04\t17\tControl\t?\t
sub-99\t20\tpatient\tf\t
"""
VOLUMES = """participant_id\tleft\tright\twmh
sub-01\t3000\t10\t1
02\t4000\tn/a\t10
sub-03\t1e300\t12\t0
sub-04\t41 3\t14\t100
"""
SILENT = OwnWords(tables=("volumes.tsv",))


def question_of(**changed: str) -> Question:
    settings = {
        "variables": "dx control/patient, age 18:90, sex f/m", "formula": "dx + age + sex",
        "outcomes": "left 2000:6000, right 8:16, log(wmh) .1:100", "public": "dx", **changed,
    }  # fmt: skip
    return parse_question(**settings)


def read(
    folder: Path, text: str | bytes = TABLE, listed=LISTED, words=SILENT, volumes=VOLUMES, **changed
) -> tuple[Compared, Findings]:
    content = text if isinstance(text, bytes) else text.encode()
    (folder / "participants.tsv").write_bytes(content)
    (folder / "volumes.tsv").write_text(volumes)
    findings = Findings("B")
    return read_compared(folder, words, question_of(**changed), listed, findings), findings


def said(findings: Findings) -> str:
    return "\n".join(f"{one.private}\n{one.places}" for one in findings.listing())


def groups(people: Compared) -> list[int]:
    """Levels, -1 for none."""
    return np.nan_to_num(people.codes["dx"], nan=-1).astype(int).tolist()


def test_everybody_who_is_listed_is_read_by_label_and_told_what_is_missing(tmp_path) -> None:
    people, findings = read(tmp_path)
    assert people.labels == LISTED
    assert groups(people) == [1, 0, -1, 0]
    np.testing.assert_allclose(people.codes["age"], [0.0, 2.0, np.nan, -2.0])
    np.testing.assert_allclose(people.codes["sex"], [0.0, 1.0, 0.0, np.nan])
    half = np.log(10) / np.log(1000)  # of a decade, in public units: log(wmh) has .1:100
    expected = [[-1, -1, -half], [0, np.nan, half], [1e6, 0, np.nan], [np.nan, 1, 3 * half]]
    np.testing.assert_allclose(people.u, np.multiply(expected, [1, 1, 2]))
    assert not findings.blocked
    text = said(findings)
    # Of whoever has no level of a public column nothing else is asked, and nothing is said.
    for part in ("dx: 1 of 4, such as sub-03 'other'", "sex: 1 of 3, such as sub-04 '?'",
                 "sub-02 '95', sub-04 '17'", "left: 1 of 3, such as sub-04 '41 3'"):  # fmt: skip
        assert part in text
    assert "sub-99" not in text
    people, findings = read(tmp_path, public="")
    for part in ("age: 1 of 4, such as sub-03", "wmh: 1 of 4, such as sub-03",
                 "left: 1 of 4, such as sub-03"):  # fmt: skip
        assert part in said(findings)
    # what stands in a row leaves in no public text
    assert all(not one.public for one in findings.listing())


def test_rows_are_in_public_order(tmp_path) -> None:
    people, _ = read(tmp_path)
    labels, rows = people.rows(question_of())
    assert rows.shape == (4, 3 + 1 + 3)
    assert rows.dtype == np.float32
    assert rows[:, 3].tolist() == [-1, 0, 0, 1]
    assert labels[0] == "sub-03"
    assert labels[-1] == "sub-01"
    assert rows[-1, 4:].tolist() == [1.0, 0.0, -1.0]
    swapped, _ = read(tmp_path, listed=LISTED[::-1])
    again, mixed = swapped.rows(question_of())
    assert again == labels
    np.testing.assert_array_equal(mixed, rows)


def test_who_adds_only_zeros_to_a_comparison_is_told_with_the_reason(tmp_path) -> None:
    """Every figure spoke of all who are listed, whose rows were zeros for want of a cell."""
    volumes = VOLUMES.replace("sub-01\t3000\t10\t1", "sub-01\tn/a\tn/a\tn/a")
    people, _ = read(tmp_path, volumes=volumes)
    cell, column, outcome = (
        "no level of a public column", "a column of the formula is missing", "no outcome",
    )  # fmt: skip
    expected = {"sub-03": cell, "sub-04": column, "sub-01": outcome}
    assert people.adds_nothing(question_of(), 1) == expected
    few = "fewer than 2 people of one public level; min_group"
    assert people.adds_nothing(question_of(), 2) == {**expected, "sub-01": few}
    # An outcome alone can be missing: the other outcomes count.
    assert people.adds_nothing(question_of(formula="dx"), 1) == {"sub-03": cell, "sub-01": outcome}
    counted = CountedPeople(listed=6, counted=4, why={"too short": 2})
    said = counted.without(expected.values())
    assert (said.counted, said.listed, sum(said.why.values())) == (1, 6, 5)
    assert said.sentence.startswith("1 of 6 people counts (2: too short; 1: ")


def test_columns_stand_where_the_site_has_them(tmp_path) -> None:
    (tmp_path / "phenotype").mkdir()
    ages = "participant_id\tage\tage2\nsub-01\t90\t1\nsub-02\t18\t1\n"
    (tmp_path / "phenotype" / "ages.tsv").write_text(ages)
    people, _ = read(tmp_path, TABLE.replace("\tage\t", "\tage2\t"))
    assert groups(people) == [1, 0, -1, 0]
    np.testing.assert_allclose(people.codes["age"], [2, -2, np.nan, np.nan])


@pytest.mark.parametrize("listed", [LISTED, ("sub-01a", *LISTED[1:])])
def test_labels_that_the_site_says_are_one_person_s_are_one(tmp_path, listed) -> None:
    """Also where the list has the other of the two: such a person had no group."""
    words = OwnWords(tables=("volumes.tsv",), same_people=(("01", "01a"),))
    people, findings = read(tmp_path, TABLE.replace("sub-01", "sub-01a"), listed, words)
    assert groups(people) == [1, 0, -1, 0]
    assert people.u[0, 0] == -1.0
    assert "did you mean" not in said(findings)


def test_rows_of_sessions_must_say_the_same_of_what_is_asked(tmp_path) -> None:
    again = TABLE + "sub-01\t55\tpatient\tf\tsecond visit\nsub-02\t95\tpatient\t\t\n"
    people, findings = read(tmp_path, again)
    assert groups(people) == [1, -1, -1, 0]  # whoever grew older is still a patient
    assert np.isnan(people.codes["age"][0])
    assert people.codes["sex"][1] == 1.0  # an empty cell contradicts nothing
    assert "dx: 1 of 4, such as sub-02" in said(findings)


def test_who_is_not_in_the_table_stays_counted_and_is_told(tmp_path) -> None:
    people, findings = read(tmp_path, listed=(*LISTED, "sub-5", "sub-099"))
    assert groups(people) == [1, 0, -1, 0, -1, -1]
    assert "'sub-5': not in participants.tsv" in said(findings)
    assert "'sub-099': not in participants.tsv (did you mean '99' there?)" in said(findings)
    assert not findings.blocked


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (TABLE.replace("Dx", "diagnosis"), "dx: volumes.tsv, participants.tsv"),
        (TABLE.replace("Dx", "dxx"), "did you mean 'dxx'"),
        (TABLE.replace("note", "DX"), "2 columns dx"),
        (TABLE.replace("note", "participant_id"), "2 columns participant_id"),
        (TABLE.replace("participant_id", "subject"), "no column participant_id; found subject"),
        (TABLE.replace("sub-", "case-").replace("\n03", "\ncase-03"), "none of 4 people here"),
        (TABLE.replace("\t", ","), "participants.tsv: line 1"),
        ("", "participants.tsv: no lines"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_used_stops_the_site_with_what_to_do(tmp_path, text, part) -> None:
    people, findings = read(tmp_path, text)
    assert np.isnan(people.codes["dx"]).all()
    assert findings.blocked
    assert part in said(findings)


def test_a_column_of_outcomes_is_there_or_stated_as_lacking(tmp_path) -> None:
    short = VOLUMES.replace("\tright", "\trihgt")
    _, findings = read(tmp_path, volumes=short)
    assert findings.blocked
    assert "right; did you mean 'rihgt'?" in said(findings)
    assert 'lacks = ["right"]' in said(findings)
    words = OwnWords(tables=("volumes.tsv",), lacks=("RIGHT ", "other"))
    people, findings = read(tmp_path, words=words)  # as stated, also where a table has it
    assert not findings.blocked
    assert np.isnan(people.u[:, 1]).all()
    assert np.isfinite(people.u[:2, [0, 2]]).all()
    assert "right" not in said(findings)
    words = OwnWords(tables=("volumes.tsv",), lacks=("left", "right", "wmh"))
    _, findings = read(tmp_path, words=words)
    assert "no outcome of the comparison" in said(findings)


TWICE = """participant_id\tsession_id\tleft\tright\twmh\tage
sub-01\tses-1\t3000\t10\t1\t30
sub-01\t2\t4000\tn/a\t10\t31
sub-01\tses-1\tn/a\t10\t\t30
sub-02\tses-2\t5000\t12\t1\t41
sub-02\tses-1\t4000\t13\t2\t40
sub-03\tses-1\t4000\t13\t2\t50
sub-04\tses-1\t4000\t13\t2\t60
sub-04\tses-1\t5000\t13\t2\t60
sub-04\tses-2\t5000\t13\t2\t61
sub-04\tses-3\t1\t1\t1\t62
"""


def test_a_change_is_later_less_earlier_of_each_person(tmp_path) -> None:
    people_only = "\n".join(
        "\t".join(c for i, c in enumerate(line.split("\t")) if i != 1)
        for line in TABLE.splitlines()
    )
    people, findings = read(tmp_path, people_only, volumes=TWICE, change="ses-1, 2")
    log = 4 / np.log(1000)
    expected = [[1, np.nan, log * np.log(10)], [1, -0.5, log * np.log(0.5)], [np.nan] * 3,
                [np.nan, 0, 0]]  # fmt: skip
    np.testing.assert_allclose(people.u, expected, atol=1e-12)
    # Of the earlier session, and of the only row of a table without sessions.
    np.testing.assert_allclose(people.codes["age"], (np.array([30, 40, 50, 60]) - 54) / 18)
    assert groups(people) == [1, 0, -1, 0]
    assert "left: 1 of 3, such as sub-04" in said(findings)


def test_a_change_of_public_cells_is_none(tmp_path) -> None:
    """A group is that of the earlier session; a later row, or a broken one, leaves it."""
    rows = "participant_id\tsession_id\tDx\tsex\tage\n"
    for m in range(1, 5):
        rows += f"sub-0{m}\tses-1\tcontrol\tf\t20\nsub-0{m}\tses-2\tpatient\tf\t21\n"
    volumes = "\n".join(line.rsplit("\t", 1)[0] for line in TWICE.splitlines())
    people, _ = read(tmp_path, rows, volumes=volumes, change="1, 2")
    assert groups(people) == [0, 0, 0, 0]
    torn = rows.replace("sub-02\tses-1\tcontrol\tf\t20", "sub-02\tses-1\tcontrol\tf")
    people, _ = read(tmp_path, torn, volumes=volumes, change="1, 2")
    assert groups(people) == [0, 0, 0, 0]
    assert np.isnan(people.codes["sex"][1])
