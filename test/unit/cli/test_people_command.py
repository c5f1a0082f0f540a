"""`cape people` shows who the people of a folder are, and keeps what the site says."""

import csv
import json
from pathlib import Path

import pytest

from cape.cli import main
from test.support.file_lists import lay_out
from test.support.people import people_said


@pytest.fixture
def study(tmp_path: Path) -> Path:
    names = (f"sub-{n}/ses-{s}/sub-{n}_ses-{s}_run-1_bold.nii" for n in "12" for s in "12")
    lay_out(tmp_path, *names, "sub-1/anat/sub-1_T1w.nii", "sub-3/sub-3_bold.nii")
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-2\t1\n")
    return tmp_path


def test_one_object_holds_people_what_is_not_taken_and_no_refusal(study, typed) -> None:
    (line,) = typed("people", str(study), "--json").out.splitlines()
    said = json.loads(line)
    assert {"people", "not_taken", "refused"} <= set(said)
    assert said["people"][0] == {
        "site": "",
        "person": "1",
        "left_out": None,
        "runs": [
            {"path": f"sub-1/ses-{s}/sub-1_ses-{s}_run-1_bold.nii", "session": s, "run": "run-1"}
            for s in "12"
        ],
    }
    assert [each["left_out"] for each in said["people"]] == [None, "participants.tsv, line 2", None]
    assert said["refused"] is None
    (anat,) = (each for each in said["not_taken"] if "anat" in each["path"])
    assert anat["why"]


def test_a_refusal_is_one_object_too(tmp_path, typed) -> None:
    lay_out(tmp_path, "ann/rest.nii")
    (line,) = typed("people", str(tmp_path), "--json", code=2).out.splitlines()
    assert set(json.loads(line)["refused"]) == {"code", "text", "ways"}


def test_all_labels_and_who_is_left_out_are_printed(study, typed) -> None:
    told = typed("people", str(study)).out
    assert "1 of 3 people is left out: participants.tsv, line 2" in told
    assert all(label in told for label in ("sub-1", "sub-2", "sub-3"))
    (study / "participants.tsv").unlink()
    assert "nobody is left out: no column `exclude`" in typed("people", str(study)).out


def test_a_filter_is_not_kept(study, capsys) -> None:
    before = sorted(study.rglob("*"))
    said = people_said(study, capsys, "--filter", "ses-1")
    assert [run["session"] for run in said["people"][0]["runs"]] == ["1"]
    assert len(people_said(study, capsys)["people"][0]["runs"]) == 2
    assert sorted(study.rglob("*")) == before


def test_the_settings_beside_a_folder_count(study, capsys) -> None:
    (study / "settings.toml").write_text('bids_filter = "ses-2"\nepsilon = 1.0\ndelta = 1e-5\n')
    said = people_said(study, capsys)
    assert [run["session"] for run in said["people"][0]["runs"]] == ["2"]


def test_the_list_that_is_written_has_one_row_a_file(tmp_path, capsys) -> None:
    lay_out(tmp_path, "ann, 1/rest.nii", 'b"ob/rest.nii')
    path = tmp_path / "manifest.csv"
    people_said(tmp_path, capsys, "--write", str(path))
    with path.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["file"] for row in rows] == ["ann, 1/rest.nii", 'b"ob/rest.nii']
    assert {row["participant_id"] for row in rows} == {""}
    assert {"participant_id", "file", "session", "run"} <= set(rows[0])
    # A list that somebody filled in is not written over.
    filled = path.read_text().replace('"ann, 1/rest.nii"', '"ann, 1/rest.nii"', 1)
    assert main(["people", str(tmp_path), "--write", str(path)]) == 2
    assert path.read_text() == filled
