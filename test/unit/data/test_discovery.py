"""Finding the files of a site; no image is opened here."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cape.cli import main
from cape.data.discovery import discover
from cape.data.issues import Findings, IssueCode, in_full
from cape.data.pipeline import inspect_site, load_site
from cape.errors import CATALOGUE, DataError
from cape.settings.config import Config

IMAGES = Config(epsilon=1.0, delta=1e-5)


def site_with(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return folder


def found(base: Path, given: dict[str, object]) -> tuple[dict[str, list[str]], list[str]]:
    findings = Findings("B")
    subjects = discover(base, given, IMAGES, findings)
    labels = {subject.label: [run.name for run in subject.runs] for subject in subjects}
    return labels, [finding.private for finding in findings.listing()]


def test_without_a_list_all_images_of_the_folder_are_taken_in_natural_order(tmp_path):
    names = ["sub-10.nii", "sub-9.nii.gz", "mask.nii.gz", "notes.txt", ".hidden.nii", "x.npy"]
    labels, texts = found(site_with(tmp_path, *names), {})
    assert list(labels) == ["sub-9", "sub-10"]
    assert texts == []


@pytest.mark.parametrize("given", [{}, {"data": "sub-*"}, {"manifest": "manifest.csv"}])
@pytest.mark.parametrize("space", ["mask", "atlas"])
def test_grayordinates_beside_volumes_of_the_same_people_are_refused_by_name(
    tmp_path, space, given
):
    """Read, both were one person's runs, and in a private run everybody counted as zeros."""
    names = [f"sub-{m}_bold{end}" for m in (1, 2) for end in (".nii.gz", ".dtseries.nii")]
    site_with(tmp_path, *names)
    if "manifest" in given:
        (tmp_path / "manifest.csv").write_text("\n".join(["file", *names]))
    findings = Findings("B")
    config = Config(epsilon=1.0, delta=1e-5, feature_space=space, atlas="a.nii")
    subjects = discover(tmp_path, given, config, findings)
    assert [run.name for subject in subjects for run in subject.runs] == names[::2]
    with pytest.raises(DataError, match="E163"):
        findings.raise_if_blocked()
    (said,) = (finding.private for finding in findings.listing())
    assert "sub-1_bold.dtseries.nii" in said
    assert "sub-2_bold.dtseries.nii" in said


def test_all_runs_of_a_subject_are_joined_in_natural_order(tmp_path):
    names = ["sub-1_run-10.nii", "sub-1_run-2.nii", "sub-2.nii", "sub-1/sub-1_run-11.nii"]
    site_with(tmp_path, *names)
    labels, _ = found(tmp_path, {"data": names})
    assert labels == {
        "sub-1": ["sub-1_run-2.nii", "sub-1_run-10.nii", "sub-1/sub-1_run-11.nii"],
        "sub-2": ["sub-2.nii"],
    }


def test_nobody_is_a_person_for_a_private_run_because_a_name_looks_so(tmp_path):
    """Each file of another name was a person: one who had four was counted four times."""
    names = ["ann/rest1.nii", "ann/rest2.nii", "bob/rest1.nii", "bob/rest2.nii", "eve/rest1.nii"]
    site_with(tmp_path, *names)
    labels, texts = found(tmp_path, {"data": "*/*.nii"})
    assert {label: len(runs) for label, runs in labels.items()} == {"ann": 2, "bob": 2, "eve": 1}
    assert [text[:9] for text in texts] == ["CAPE-E165"]
    findings = Findings("B")
    discover(tmp_path, {}, IMAGES, findings)
    with pytest.raises(DataError, match=r"CAPE-E165 Site B has not confirmed") as refused:
        findings.raise_if_blocked()
    assert "ann" not in str(refused.value)  # what others read
    (tmp_path / "site-policy.toml").write_text('layout = ["{subject}/{run}.nii"]\n')
    labels, texts = found(tmp_path, {})
    assert (list(labels), texts) == (["ann", "bob", "eve"], [])
    # A run that promises nothing goes on with what names look like, and says so.
    (tmp_path / "site-policy.toml").unlink()
    findings = Findings("B")
    discover(tmp_path, {}, Config(private=False, epsilon=1.0, delta=1e-5), findings)
    assert [(f.code, f.severity) for f in findings.listing()] == [("CAPE-W165", "W")]


def test_what_repeats_other_runs_is_left_out_and_versions_are_never_joined(tmp_path):
    """XCP-D's concatenation was a third run, and rec-norm, rec-raw were two runs of one scan."""

    def names(*runs: str) -> list[str]:
        return [f"sub-{n}/func/sub-{n}_task-rest{run}_bold.nii" for n in (1, 2, 3) for run in runs]

    config = Config(epsilon=1.0, delta=1e-5, bids_filter="task-rest")
    findings = Findings("B")
    site = site_with(tmp_path / "x", *names("", "_run-1", "_run-2"))
    assert [len(s.runs) for s in discover(site, {}, config, findings)] == [2, 2, 2]
    assert [f.code for f in findings.listing()] == ["CAPE-W105"]
    findings = Findings("B")
    site = site_with(tmp_path / "r", *names("_rec-norm", "_rec-raw"))
    assert [len(s.runs) for s in discover(site, {}, config, findings)] == [0, 0, 0]
    assert "several versions" in findings.listing()[0].private


def test_a_table_beside_an_image_is_not_read_through_a_link_to_another_place(tmp_path):
    base = site_with(tmp_path / "base", "sub-1_task-rest_bold.nii", "sub-2_task-rest_bold.nii")
    name = "sub-{}_task-rest_desc-confounds_timeseries.tsv"
    outside = site_with(tmp_path, "elsewhere.tsv") / "elsewhere.tsv"
    (base / name.format(1)).symlink_to(outside)
    site_with(base, name.format(2))
    findings = Findings("B")
    one, two = discover(base, {}, IMAGES, findings)
    assert one.runs[0].confounds is None
    assert two.runs[0].confounds == base / name.format(2)
    (said,) = (finding.private for finding in findings.listing())
    assert "(a link to another place)" in said
    with pytest.raises(DataError, match="E102"):
        findings.raise_if_blocked()


@pytest.mark.parametrize(
    ("given", "code", "part"),
    [
        ({"data": []}, "E104", "an empty list"),
        ({"data": "*.img"}, "E104", "the pattern *.img"),
        ({"data": "/etc/*.nii"}, "E102", "/etc/*.nii"),
        ({"data": ["/etc/passwd"]}, "E102", "/etc/passwd"),
        ({"data": ["b.nii"]}, "E101", "nearest: a.nii"),
        ({"data": ["a.nii", "a.nii"]}, "E105", "a.nii and a.nii"),
        ({"data": ["link.nii"]}, "E102", "a link to another place"),
        ({"data": ["annex.nii"]}, "E108", "DataLad"),
        ({"manifest": "../m.csv"}, "E102", "../m.csv"),
        ({"manifest": "m.csv"}, "E101", "m.csv"),
        ({"data": ["a.nii"], "manifest": "m.csv"}, "E139", "exactly one"),
        ({"data": ["a.nii"], "epsilon": 3}, "E151", "'epsilon'"),
    ],
)
def test_a_list_that_does_not_fit_the_folder_says_why(tmp_path, given, code, part):
    base = site_with(tmp_path / "site", "a.nii")
    outside = site_with(tmp_path, "x.nii") / "x.nii"
    (base / "link.nii").symlink_to(outside)
    (base / "annex.nii").symlink_to("../.git/annex/objects/ab/cd/key")
    _, texts = found(base, given)
    matching = [t for t in texts if t.startswith(f"CAPE-{code}") and part in t]
    assert matching, texts


def test_none_and_empty_text_count_as_not_given(tmp_path):
    labels, texts = found(site_with(tmp_path, "sub-1.nii"), {"data": None, "manifest": ""})
    assert list(labels) == ["sub-1"]
    assert texts == []


def test_files_that_an_engine_linked_flat_are_found_by_their_base_name(tmp_path):
    labels, texts = found(site_with(tmp_path, "sub-1.nii"), {"data": ["study/sub-1.nii"]})
    assert list(labels) == ["sub-1"]
    assert texts == []


def test_a_stop_for_image_content_says_no_more_than_e100_whatever_the_catalogue_holds(monkeypatch):
    monkeypatch.setitem(CATALOGUE, "E125", "Site {site} has NaN in its images.")
    findings = Findings("B", strict=True)
    findings.add(IssueCode.NAN_TOO_MANY, "sub-1: 3 values", most=0.1)
    # In a file of one subject nothing stops the site by itself, whatever is wrong with it.
    findings.add(IssueCode.FILE_POINTER, "sub-1.nii: Git-LFS pointer", of_subject=True)
    assert not findings.blocked
    findings.escalate("2 of 2 subjects fail")
    assert findings.listing()[0].public == f"CAPE-E100 {CATALOGUE['E100'].format(site='B')}"
    with pytest.raises(DataError, match="CAPE-E100"):
        findings.raise_if_blocked()


def test_equal_problems_become_one_finding_and_long_lists_are_counted():
    findings = Findings("B")
    for m in range(25):
        findings.add(IssueCode.GRID_ROUNDED, f"sub-{m}: 0.01 mm", most=0.1)
    (only,) = findings.listing()
    assert "25 times: sub-0: 0.01 mm; sub-1: 0.01 mm; sub-2: 0.01 mm; and 22 more." in only.private
    assert len(in_full([only]).splitlines()) == 1 + 22  # all of them in a file
    assert not findings.blocked


LONG = "a" * 5000


@pytest.mark.parametrize("setting", [{}, {"feature_space": "matrix"}])
@pytest.mark.parametrize(
    ("given", "code"),
    [
        *(
            ({source: name}, "E101")
            for source in ("bids", "manifest", "data")
            for name in (LONG, "a/" * 900, "a\0")
        ),
        ({"data": LONG + "*"}, "E101"),
        ({"data": "**/" * 400 + "*"}, "E101"),
        ({"data": "**x"}, "E104"),
    ],
)
def test_a_name_that_no_file_can_have_is_told_as_that(tmp_path, given, code, setting):
    """A folder of 5,000 letters was an internal error, and one of 1,000 parts had no end."""
    config = Config(epsilon=1.0, delta=1e-5, **setting)
    inspection = inspect_site(tmp_path, given, config, site="B")
    assert isinstance(inspection.error, DataError)
    assert inspection.error.code == f"CAPE-{code}"


@pytest.mark.parametrize("setting", [{"mask": LONG}, {"feature_space": "atlas", "atlas": LONG}])
def test_an_owners_name_that_no_file_can_have_is_told_as_that(tmp_path, setting):
    with pytest.raises(DataError, match="E101") as caught:
        inspect_site(tmp_path, {}, Config(epsilon=1.0, delta=1e-5, **setting), site="B")
    assert "File name too long" in caught.value.detail


def test_nobody_is_left_out_because_a_folder_below_cannot_be_read(tmp_path, monkeypatch, capsys):
    """It was passed over: a person without a word, or a list of who is left out."""
    for name in ("sub-01", "sub-02"):
        site_with(tmp_path / name / "func", f"{name}_task-rest_bold.nii.gz")
    listed, locked = os.scandir, ["sub-02"]

    def refused(path: str) -> object:
        if Path(path).name in locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(DataError, match="E101"):
        discover(tmp_path, {}, IMAGES, Findings("B"))
    for command in (["people"], ["init"], ["validate", "--fast"]):
        assert main([*command, str(tmp_path)]) == 1
        said = capsys.readouterr()
        assert "CAPE-E101" in said.err + said.out
        assert "sub-02: Permission denied" in said.err + said.out
    locked[:] = ["lost+found"]  # of the disk, which is nobody's
    (tmp_path / "lost+found").mkdir()
    assert len(discover(tmp_path, {}, IMAGES, Findings("B"))) == 2


@pytest.mark.parametrize("look", ["scandir", "exists", "is_file"])
def test_a_folder_that_cannot_be_read_is_not_told_as_one_that_cannot_be_written(
    tmp_path, monkeypatch, look
):
    """It was CAPE-E261, whose remedy is about a full disk."""
    site_with(tmp_path, "sub-1.nii")

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os if look == "scandir" else Path, look, refused)
    with pytest.raises(DataError, match="E101") as caught:
        load_site(tmp_path, {}, IMAGES, site="B")
    assert "cannot be read" in caught.value.detail
    assert f"{tmp_path}" in caught.value.detail
    assert "Permission denied" in caught.value.detail
    assert "correct its permissions" in caught.value.detail
