"""Who is left out: every mark of a list is understood, or refused with its line."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from cape.data.exclusions import (
    ListOfPeople,
    alike,
    column_of,
    leave_out,
    lines_of_left_out,
    lists_of_people,
    mark_of,
    spellings,
)

from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.runs import ListedRun
from cape.settings.config import Config
from support.sites import discover

IMAGES = Config(epsilon=1.0, delta=1e-5, bids_filter="task-rest")

OUT = (
    *("1", "1.0", "1,0", "01", "true", "TRUE", "True", "t", "T", "yes", "Yes", "y", "Y", "x", "X"),
    *(" x ", "on", "exclude", "Excluded", "excluded", "out", "drop", '"1"'),
)
STAYS = (
    *("", " ", "0", "0.0", "0,0", "00", "false", "FALSE", "f", "no", "No", "n", "N", "off", "n/a"),
    *("N/A", "NA", "nan", "NaN", "None", "null", "-", ".", "include", "included", "keep"),
)
RUNS = ("ses-2", "ses-1_run-2", "run-1+2", "task-nback")
UNCLEAR = (
    *("-1", "2", "0.5", "?", "maybe", "tbd", "motion", "fd>0.5", "withdrawn", "pending", "1?"),
    *("yes (motion)", "no consent", "ja", "oui", "✓", "✗", "1e0", "inf", "TRUE FALSE", "partial"),
    *("done", "ses2", "run2"),
)
MORE_UNCLEAR = (
    "SES-2",
    "ses-",
    "ses-1 ses-2",
    "sub-01",
    "echo-2",
    "\uff11",
    "1;0",
    "+1",
    "1.5",
    "#1",
)


def mark(cell: str, side: str = "exclude") -> str:
    try:
        return mark_of(cell, side)  # type: ignore[arg-type]
    except UnusableFile as verdict:
        return "refused" if verdict.issue.code is IssueCode.MARK_UNCLEAR else str(verdict)


def test_every_cell_of_the_table_is_out_in_runs_or_refused():
    """17 of 23 spellings of yes let people in, and all 24 unclear ones, without a word."""
    assert [len(cells) for cells in (OUT, STAYS, RUNS, UNCLEAR)] == [23, 26, 4, 24]
    assert {cell: mark(cell) for cell in OUT} == dict.fromkeys(OUT, "out")
    assert {mark(cell) for cell in STAYS} == {"in", "silent"}
    assert {cell: mark(cell) for cell in RUNS} == dict.fromkeys(RUNS, "runs")
    unclear = (*UNCLEAR, *MORE_UNCLEAR)
    assert {cell: mark(cell) for cell in unclear} == dict.fromkeys(unclear, "refused")


def test_in_column_include_the_same_words_say_who_takes_part():
    sides = {"exclude", "excluded", "out", "drop", "dropped", "include", "included", "in", "keep"}
    for cell in (*OUT, *STAYS, *RUNS, *UNCLEAR):
        there, here = mark(cell), mark(cell, "include")
        if cell.strip().lower() in sides or there in ("silent", "runs", "refused"):
            assert here == there, cell
        else:
            assert {there, here} == {"out", "in"}, cell


HEADERS = {
    **dict.fromkeys(("exclude", "Exclude", " EXCLUDE ", "\ufeffexclude"), "exclude"),
    **dict.fromkeys(("include", "Include"), "include"),
    **dict.fromkeys(("participant_id", "Participant_ID"), "person"),
    **dict.fromkeys(
        (
            *("excluded", "Excluded", "exclusion", "exclude_reason", "is_excluded", "to_exclude"),
            *("excl", "Exclude?", "exclude.1", "qc_exclude", "exclude_mri", "remove", "omit"),
            *("drop", "rejected", "withdrawn", "dropout", "outlier", "bad", "included", "use"),
            *("keep", "usable", "valid", "qc", "QC_pass", "pass", "consent"),
        ),
        "refused",
    ),
    **dict.fromkeys(
        (
            *("age", "sex", "site", "group", "diagnosis", "handedness", "notes", "notes_excluded"),
            *("session", "species", "iq", "fd_mean", "scanner", "included_studies_count"),
            "education",
        ),
        "",
    ),
}
MISTYPED = ("exlude", "exlcude", "excude", "inlcude", "inclued", "exclude\u200b", "EXCLUDE!")


def column(header: str, not_exclusions: tuple[str, ...] = ()) -> str:
    try:
        return column_of(header, not_exclusions)
    except UnusableFile as verdict:
        return "refused" if verdict.issue.code is IssueCode.LIST_COLUMN else str(verdict)


def test_a_header_that_is_nearly_right_is_refused():
    assert len(HEADERS) == 51
    assert {header: column(header) for header in HEADERS} == HEADERS
    assert {header: column(header) for header in MISTYPED} == dict.fromkeys(MISTYPED, "refused")


def test_the_site_may_say_of_a_column_that_it_is_none_of_its_exclusions():
    assert column("QC", ("qc",)) == ""
    assert column("qc_pass", ("qc",)) == "refused"
    assert column("exclude", ("exclude",)) == "exclude"  # what is read cannot be talked away


PEOPLE = ("01", "02", "03")
TABLES: list[tuple[str, tuple[str, ...], set[str] | str]] = [
    ("participant_id\texclude\nsub-01\t1\nsub-02\t0\nsub-03\t\n", (), {"01"}),
    ("participant_id\texclude\n01\t1.0\n02\t\n03\tnan\n", (), {"01"}),
    ("Participant_ID\tExclude\nsub-01\tTRUE\nsub-02\tFALSE\nsub-03\tFALSE\n", (), {"01"}),
    ("participant_id\tinclude\nsub-01\t0\nsub-02\t1\nsub-03\tyes\n", (), {"01"}),
    ("participant_id\tinclude\nsub-01\texcluded\nsub-02\t\nsub-03\tn/a\n", (), {"01"}),
    ("participant_id\texclude\nsub-01\tses-2\nsub-02\t0\nsub-03\t0\n", (), set()),
    ("participant_id\tage\texclude\nsub-01\t30\t1\nsub-02\t31\t0\nsub-03\t29\t0\nsub-09\t40\t1\n",
     (), {"01"}),
    ("participant_id\texcluded\nsub-01\t1\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\nsub-1\t1\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\nSUB-01\t1\nsub-02\t0\n", (), "refused"),
    ("subject\texclude\nsub-01\t1\nsub-02\t0\n", (), "refused"),
    ("participant_id,exclude\nsub-01,1\n", (), "refused"),
    ("participant_id\texclude\nsub-01\t1\nsub-01\t0\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\nsub-01\t1\nsub-02\n", (), "refused"),
    ("participant_id\texclude\tinclude\nsub-01\t1\t1\n", (), "refused"),
    ("participant_id\texclude\tinclude\nsub-01\t1\t0\nsub-02\t0\t1\n", (), {"01"}),
    ("participant_id\texclude\nS100\t1\nS200\t0\n", (), "refused"),
    ("participant_id\texclude\nsub-01\tmotion\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\tExclude\nsub-01\t1\t0\n", (), "refused"),
    ("participant_id\texclude\nsub-01\t1\nsub-02\t0\n", ("participants.csv",), "refused"),
    ("participant_id\texclude\nsub-01\t1\nsub-02\t0\n", ("exclude.txt",), "refused"),
    ("participant_id\tage\nsub-01\t31\nsub-02\t20\nsub-03\t20\n", (), set()),
    ("\ufeffparticipant_id\texclude\r\nsub-01\t1\r\nsub-02\t0\r\n", (), {"01"}),
    ("age\tsex\n30\tF\n", (), set()),
]  # fmt: skip
MORE_TABLES: list[tuple[str | bytes, tuple[str, ...], set[str] | str]] = [
    ("participant_id\texclude\nsub-01\tses-02\nsub-02\t0\n", (), "refused"),  # there is ses-2
    ("participant_id\texclude\nsub-01.0\t1\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\nS01\t1\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\nsub-01_ses-1\t1\nsub-02\t0\n", (), "refused"),
    ("participant_id\texclude\n\t1\nsub-02\t0\n", (), "refused"),  # somebody without a name
    ("#participant_id\texclude\nsub-01\t1\n", (), "refused"),
    ("participant_id\texclude\n#sub-01\t0\nsub-02\t0\n", (), "refused"),
    ("# made by hand\nparticipant_id\texclude\nsub-01\t1\n", (), "refused"),
    ("partcipant_id\texclude\nsub-01\t1\n", (), "refused"),
    ("participant_id;exclude\nsub-01;1\n", (), "refused"),
    ("participant_id exclude\nsub-01 1\n", (), "refused"),
    ("participant_id\texclude\nsub-01\tses-2\nsub-01\tses-1\n", (), "refused"),
    ("participant_id\texclude\nsub-01\t1\nsub-01\t1.0\nsub-02\t\n", (), {"01"}),
    ("participant_id\texclude\tinclude\nsub-01\t1\tses-2\n", (), "refused"),
    ("participant_id\tage\nS100\t31\n", (), set()),  # it leaves nobody out, whoever they are
    ("age\texclude\n30\t1\n", (), "refused"),
    ("", (), "refused"),
    ("participant_id\texclude\nsub-01\t1\n".encode("utf-16"), (), "refused"),
    ("participant_id\texclude\nsub-01\t1\n".encode("utf-16-le"), (), "refused"),
    ("participant_id\texclude\tname\nsub-01\t1\tJosé\n".encode("latin-1"), (), "refused"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", (), "refused"),
    (b"/annex/objects/MD5E-s12--ab.tsv\n", (), "refused"),
    *(
        ("participant_id\texclude\nsub-01\t1\n", (name,), "refused")
        for name in (
            *("Participants.tsv", "participants.txt", "participants.tsv.txt", "subjects.txt"),
            *("participants (1).tsv", "excluded_subjects.csv", "exclusions.xlsx", "manifest.txt"),
        )
    ),
    ("participant_id\texclude\nsub-01\t1\n", ("participants.json", "README", "notes.txt"), {"01"}),
]


def runs_of(people: tuple[str, ...]) -> list[ListedRun]:
    return [
        ListedRun(file=f"sub-{p}_ses-{s}_task-rest_bold.nii", subject=f"sub-{p}", ses=s)
        for p in people
        for s in ("1", "2")
    ]


def read(folder: Path, text: str | bytes, beside: tuple[str, ...] = ()) -> object:
    """Return who is left out, or "refused"; that a refusal names what to do is asserted."""
    (folder / "participants.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
    for name in beside:
        (folder / name).write_text("sub-01\n")
    findings = Findings("B")
    lists = lists_of_people(folder, ".", (), findings)
    marked = leave_out(runs_of(PEOPLE), lists, findings)
    if findings.blocked:
        assert all("Fix: " in f.private for f in findings.listing() if f.severity == "E")
        assert not any("sub-" in f.public for f in findings.listing())
        return "refused"
    stay = {run.subject[4:] for run in marked if run.left_out is None}
    return set(PEOPLE) - stay


@pytest.mark.parametrize(("text", "beside", "wanted"), TABLES + MORE_TABLES)
def test_a_table_leaves_out_whom_it_says_or_is_refused(tmp_path, text, beside, wanted):
    """Whoever withdrew consent and was marked 1.0, y or excluded took part."""
    assert read(tmp_path, text, beside) == wanted


def test_the_table_of_lists_is_whole():
    assert len(TABLES) == 24


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("participant_id\texclude\nsub-01\tmotion\n", "line 2 'sub-01\tmotion': 'motion'"),
        ("participant_id\texclude\nsub-1\t1\nsub-02\t0\n", "did you mean 'sub-01'?"),
        ("participant_id\texcluded\nsub-01\t1\n", "call it exclude (1 = left out)"),
        ("participant_id\tqc\nsub-01\t1\n", 'not_exclusions = "qc"'),
        ("subject\texclude\nsub-01\t1\n", "call it participant_id"),
        ("participant_id,exclude\nsub-01,1\n", "separated by a comma"),
        ("participant_id\texclude\nsub-01\t1\nsub-02\n", "line 3 'sub-02' has 1 cells"),
        ("participant_id\texclude\nS100\t1\n", "'S100', none of 3 people here"),
        ("participant_id\texclude\nsub-01\tses-3\n", "who has ses-1, ses-2"),
    ],
)
def test_a_refusal_says_what_was_found_and_what_to_do(tmp_path, text, said):
    (tmp_path / "participants.tsv").write_text(text)
    findings = Findings("B")
    leave_out(runs_of(PEOPLE), lists_of_people(tmp_path, ".", (), findings), findings)
    assert said in " ".join(finding.private for finding in findings.listing())


def test_who_is_marked_and_not_here_is_said_and_stops_nobody(tmp_path):
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-01\t0\nsub-77\t1\n")
    findings = Findings("B")
    lists = lists_of_people(tmp_path, ".", (), findings)
    marked = leave_out(runs_of(PEOPLE), lists, findings)
    assert not findings.blocked
    assert "participants.tsv, line 3: 'sub-77'" in findings.listing()[0].private
    assert lines_of_left_out(marked, [one.name for one in lists]) == (
        "0 of 3 people are left out by participants.tsv",
    )


def test_it_is_said_who_is_left_out_by_which_line(tmp_path):
    rows = "".join(f"sub-{n:02d}\t{int(n in (3, 8, 30))}\n" for n in range(1, 41))
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\n" + rows)
    people = tuple(f"{n:02d}" for n in range(1, 41))
    findings = Findings("B")
    (one,) = lists_of_people(tmp_path, ".", (), findings)
    marked = leave_out(runs_of(people), [one], findings)
    assert lines_of_left_out(marked, ["participants.tsv"]) == (
        "3 of 40 people are left out by participants.tsv, lines 4, 9, 31",
    )
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-01\tses-2\n")
    marked = leave_out(runs_of(people), lists_of_people(tmp_path, ".", (), findings), findings)
    assert lines_of_left_out(marked, ["participants.tsv"]) == (
        "0 of 40 people are left out by participants.tsv; and 1 runs of others, line 2",
    )


def test_a_list_that_is_not_here_is_no_list_that_says_nothing(tmp_path):
    """A DataLad clone without its content let everybody in."""
    for make in (
        lambda path: path.symlink_to(".git/annex/objects/aa/key"),
        lambda path: path.mkdir(),
        lambda path: path.symlink_to("participants.tsv"),
    ):
        path = tmp_path / "participants.tsv"
        make(path)
        findings = Findings("B")
        lists_of_people(tmp_path, ".", (), findings)
        assert findings.blocked
        path.rmdir() if path.is_dir() else path.unlink()


def test_lists_above_the_images_count_too(tmp_path):
    """A study's participants.tsv stands in its first folder, its images in derivatives/."""
    images = tmp_path / "derivatives" / "fmriprep"
    for person in PEOPLE:
        folder = images / f"sub-{person}" / "func"
        folder.mkdir(parents=True)
        (folder / f"sub-{person}_task-rest_bold.nii").write_bytes(b"x")
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-01\t1\n")
    findings = Findings("B")
    found = discover(tmp_path, {"bids": "derivatives/fmriprep"}, IMAGES, findings)
    assert [subject.label for subject in found] == ["sub-02", "sub-03"]
    (images / "participants.tsv").write_text("participant_id\texclude\nsub-02\t1\n")
    found = discover(tmp_path, {"bids": "derivatives/fmriprep"}, IMAGES, findings)
    assert [subject.label for subject in found] == ["sub-03"]
    assert not findings.blocked


@pytest.mark.parametrize(
    "given", [{}, {"data": ["sub-01.nii", "sub-02.nii"]}, {"manifest": "m.csv"}]
)
def test_people_are_left_out_whatever_names_the_files(tmp_path, given):
    """participants.tsv was read in BIDS folders only."""
    for name in ("sub-01.nii", "sub-02.nii"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-01\ty\n")
    if given.get("manifest"):
        (tmp_path / "m.csv").write_text("file\nsub-01.nii\nsub-02.nii\n")
    findings = Findings("B")
    assert [s.label for s in discover(tmp_path, given, IMAGES, findings)] == ["sub-02"]
    assert findings.listing() == ()
    assert findings.left_out[-1] == "1 of 2 people are left out by participants.tsv, line 2"


def test_the_sites_own_file_says_which_columns_leave_nobody_out(tmp_path):
    """The remedy that is printed works as typed; a site may not write its data set."""
    (tmp_path / "sub-01.nii").write_bytes(b"x")
    (tmp_path / "participants.tsv").write_text("participant_id\tqc\nsub-01\t1\n")
    findings = Findings("B")
    discover(tmp_path, {}, IMAGES, findings)
    (said,) = (finding.private for finding in findings.listing())
    typed = re.search(r"writes (not_exclusions = .*) into its own (site-policy.toml)", said)
    assert typed is not None
    (tmp_path / typed[2]).write_text(typed[1] + "\n")
    findings = Findings("B")
    assert len(discover(tmp_path, {}, IMAGES, findings)) == 1
    assert findings.listing() == ()


def test_who_has_several_versions_of_a_run_is_left_out_as_everybody(tmp_path):
    """fMRIPrep writes a run in two spaces: nobody's run is one before the owner's filter."""
    for person, session, space in itertools.product(PEOPLE, "12", ("T1w", "MNI152NLin6Asym")):
        folder = tmp_path / f"sub-{person}" / f"ses-{session}" / "func"
        folder.mkdir(parents=True, exist_ok=True)
        name = f"sub-{person}_ses-{session}_task-rest_space-{space}_desc-preproc_bold.nii.gz"
        (folder / name).write_bytes(b"x")
    (tmp_path / "participants.tsv").write_text(
        "participant_id\texclude\nsub-01\t1\nsub-02\tses-2\nsub-03\t0\n"
    )
    config = replace(IMAGES, bids_filter="task-rest_space-MNI152NLin6Asym")
    findings = Findings("B")
    found = discover(tmp_path, {}, config, findings)
    taken = {subject.label: [run.name.split("/")[1] for run in subject.runs] for subject in found}
    assert not findings.blocked, findings.listing()
    assert taken == {"sub-02": ["ses-1"], "sub-03": ["ses-1", "ses-2"]}
    assert "1 of 3 people are left out by participants.tsv, line 2" in findings.left_out[0]


def test_rows_of_a_table_of_records_are_not_taken_against_the_list(tmp_path):
    """Whoever is marked does not take part in silence, whatever the kind of the files."""
    (tmp_path / "records.csv").write_text("subject,a,b\nsub-01,1,2\nsub-02,3,4\nsub-03,5,6\n")
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-01\t1\n")
    findings = Findings("B")
    config = replace(IMAGES, feature_space="matrix", n_features=2)
    labels = [subject.label for subject in discover(tmp_path, {}, config, findings)]
    assert findings.blocked or labels == ["sub-02", "sub-03"]


def test_a_manifest_that_is_not_read_is_a_second_list(tmp_path):
    """Its marks were passed over where the files were named in another way."""
    (tmp_path / "sub-01.nii").write_bytes(b"x")
    (tmp_path / "manifest.csv").write_text("file,exclude\nsub-01.nii,1\n")
    for given in ({"data": "*.nii"}, {"bids": "."}):
        findings = Findings("B")
        discover(tmp_path, given, IMAGES, findings)
        assert any(
            "CAPE-E139" in f.private and "manifest.csv" in f.private for f in findings.listing()
        )
    (tmp_path / "manifest.tsv").write_text("file\nsub-01.nii\n")
    findings = Findings("B")
    discover(tmp_path, {}, IMAGES, findings)
    assert findings.blocked


def test_spellings_of_one_label_are_alike_and_other_labels_are_not():
    assert len({alike(label) for label in ("sub-02", "02", "2", "SUB-002", "Sub_02")}) == 1
    assert alike("P01") != alike("C01")
    assert alike("02") in spellings("S02")
    assert alike("0050952_2") not in spellings("0050952_1")


def test_a_list_without_marks_names_the_people_and_leaves_out_nobody(tmp_path):
    (tmp_path / "participants.tsv").write_text("participant_id\tage\nsub-01\t3\nsub-02\t4\n")
    (one,) = lists_of_people(tmp_path, ".", (), Findings("B"))
    assert isinstance(one, ListOfPeople)
    assert (tuple(one.said), one.marks) == (("01", "02"), False)
