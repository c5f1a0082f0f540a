"""The people of a site's folder and their runs, by names and lists; no image is opened here."""

import errno
import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from cape.cli import main
from cape.data.issues import Findings, IssueCode, in_full
from cape.data.people import NotTaken
from cape.data.pipeline import inspect_site, load_site
from cape.errors import CATALOGUE, DataError
from cape.settings.config import Config
from support.sites import discover
from test.support.file_lists import lay_out
from test.support.people import IMAGES, people_said, read, read_all


def found(base: Path, given: dict[str, object]) -> tuple[dict[str, list[str]], list[str]]:
    people, texts = read_all(base, IMAGES, given)
    labels = {person.label: [run.name for run in person.runs] for person in people.listed}
    return labels, [text[2:] for text in texts]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"data": None, "manifest": ""},  # as not given
        {"data": ["study/sub-9.nii.gz", "study/sub-10.nii"]},  # an engine linked them flat
    ],
)
def test_all_series_of_the_folder_are_taken_in_natural_order(tmp_path, given):
    names = ["sub-10.nii", "sub-9.nii.gz", "mask.nii.gz", "notes.txt", ".hidden.nii", "x.npy"]
    labels, texts = found(lay_out(tmp_path, *names), given)
    assert list(labels) == ["sub-9", "sub-10"]
    assert texts == []


LEFT_BEHIND = (
    *("._sub-01_bold.nii.gz", "~$sub-02_bold.nii", "#sub-03_bold.nii#", "sub-04_bold.nii~"),
    *(".nfs0001", ".sub-05_bold.nii", "._manifest.csv", "~$participants.tsv", "#manifest.csv#"),
    *("participants.tsv~", "._participants.tsv", ".DS_Store"),
)


def test_files_that_a_system_or_an_editor_left_behind_are_nobodys_list_and_nobodys_run(tmp_path):
    """AppleDouble files were people, and a lock of a spreadsheet was a second list."""
    folder = lay_out(tmp_path, "sub-01/func/sub-01_bold.nii.gz")
    before = read_all(folder)
    lay_out(folder, *LEFT_BEHIND, *(f"sub-01/func/{name}" for name in LEFT_BEHIND))
    assert read_all(folder) == before
    assert len(read(folder) or ()) == 1


@pytest.mark.parametrize(
    ("names", "entity", "filters"),
    [
        (("_proc-a_bold", "_proc-b_bold"), "proc", ("proc-a", "proc-b")),
        (("_desc-preproc_bold", "_desc-denoised_bold"), "desc", ("desc-preproc", "desc-denoised")),
        (("_atlas-A_timeseries", "_atlas-B_timeseries"), "atlas", ("atlas-A", "atlas-B")),
        (("_space-T1w_bold", "_space-MNI_bold"), "space", ("space-T1w", "space-MNI")),
        (("_echo-1_bold", "_echo-2_bold"), "echo", ("echo-1", "echo-2")),
        (("_rec-norm_bold", "_rec-raw_bold"), "rec", ("rec-norm", "rec-raw")),
        (("_bold", "_desc-clean_bold"), "desc", ("desc-clean",)),
        (("_run-1_bold", "_run-01_bold"), "run", ("run-1", "run-01")),
        (("_bold", "_run-1_bold", "_run-2_bold"), "run", ("run-1+2",)),
        (("_bold", "_run-1_bold"), "run", ("run-1",)),
        (("_bold", "_acq-mb_bold"), "acq", ("acq-mb",)),
        (("_bold.nii", "_task-rest_bold.nii"), "task", ("task-rest",)),
        (("_bold.nii", "_desc-clean_bold.nii"), "desc", ("desc-clean",)),
        (("_bold", "_dir-AP_run-01_bold", "_dir-PA_run-01_bold"), "run", ()),
    ],
)
def test_versions_of_a_run_are_refused_by_everything_with_the_filters_to_type(
    names, entity, filters, tmp_path, capsys
):
    """`people` said "one of each is used", `validate` refused, and `init` was silent."""
    for n in (1, 2, 3):
        stem = f"sub-{n}/func/sub-{n}_task-rest"
        # Some have no task.
        full = [f"sub-{n}{e}" if e.endswith(".nii") else f"{stem}{e}.nii.gz" for e in names]
        lay_out(tmp_path, *full)
    config = Config(epsilon=1.0, delta=1e-5, bids_filter="")
    # In a run these people count as zeros: filters must not ask who has which files.
    people, texts = read_all(tmp_path, config)
    assert any(text.startswith("W ") and f"{entity}-" in text for text in texts), texts
    assert [person.runs for person in people.listed] == [(), (), ()]
    assert isinstance(inspect_site(tmp_path, {}, config, site="B").error, DataError)
    refused = people_said(tmp_path, capsys)["refused"]
    assert f"{entity}-" in refused["text"]
    assert refused["ways"]
    for text in filters:
        assert f"cape people {tmp_path} --filter {text}" in refused["ways"]
    *ways, layout, write = refused["ways"]
    assert "--layout" in layout
    assert "--write" in write
    for way in ways:
        said = people_said(tmp_path, capsys, *shlex.split(way)[3:])
        assert said["refused"] is None, way
        assert len(said["people"]) == 3
    assert main(["init", str(tmp_path)]) != 0
    told = capsys.readouterr()
    assert any(text in told.out + told.err for text in filters or ("run-",))
    assert not (tmp_path / "settings.toml").exists()


def test_one_name_in_two_folders_is_one_run_in_two_versions(tmp_path, capsys):
    tops = ("derivatives/a", "derivatives/b")
    lay_out(tmp_path, *(f"{top}/sub-{n}/sub-{n}_bold.nii" for top in tops for n in (1, 2)))
    refused = people_said(tmp_path, capsys)["refused"]
    assert [way.split()[2:] for way in refused["ways"]] == [
        *([f"{tmp_path}/{top}"] for top in tops),
        [f"{tmp_path}", "--layout", "'derivatives/a/sub-{subject}/sub-{subject}_bold.nii'"],
        [f"{tmp_path}", "--write", f"{tmp_path}/manifest.csv"],
    ]
    for way in refused["ways"][:2]:
        assert len(people_said(Path(shlex.split(way)[2]), capsys)["people"]) == 2


def test_what_is_no_series_is_named_with_the_reason(tmp_path):
    beside = ("T1w", "boldref", "desc-brain_mask", "desc-confounds_timeseries")
    lay_out(tmp_path, *(f"sub-1_{name}.nii.gz" for name in ("task-rest_bold", *beside)))
    lay_out(tmp_path, "sub-2.nii.gz", "sub-3_task-rest_run-1.nii.gz")
    people, texts = read_all(tmp_path)
    assert texts == []
    assert [person.label for person in people.listed] == ["sub-1", "sub-2", "sub-3"]
    assert [each.path for each in people.not_taken] == sorted(f"sub-1_{n}.nii.gz" for n in beside)
    assert all(isinstance(each, NotTaken) and each.why for each in people.not_taken)


@pytest.mark.parametrize(
    "name",
    [
        "sub-1/func/sub-2_task-rest_bold.nii",
        "sub-1/sub-2/sub-1_bold.nii",
        "sub-1/ses-1/sub-1_ses-2_bold.nii",
        "sub-1/func/sub-1_task-a_task-b_bold.nii",
        "sub-1/func/sub-1x_task-rest_bold.nii",
    ],
)
def test_a_name_that_contradicts_its_folder_refuses_the_site(name, tmp_path):
    lay_out(tmp_path, "sub-3/func/sub-3_task-rest_bold.nii", name)
    _, texts = read_all(tmp_path)
    assert any(text.startswith("E ") and name in text for text in texts), texts


@pytest.mark.parametrize("space", ["mask", "atlas"])
def test_grayordinates_beside_volumes_of_the_same_people_are_no_runs(tmp_path, space):
    """Read, both were one person's runs, and in a private run everybody counted as zeros."""
    names = [f"sub-{m}_bold{end}" for m in (1, 2) for end in (".nii.gz", ".dtseries.nii")]
    lay_out(tmp_path, *names)
    config = Config(epsilon=1.0, delta=1e-5, feature_space=space, atlas="a.nii")
    people, texts = read_all(tmp_path, config)
    assert [run.name for person in people.listed for run in person.runs] == names[::2]
    assert [each.path for each in people.not_taken] == names[1::2]
    assert texts == []
    rows = "".join(f"{name[4]},{name}\n" for name in names)
    (tmp_path / "manifest.csv").write_text(f"participant_id,file\n{rows}")
    _, texts = read_all(tmp_path, config)
    assert "CAPE-E163" in texts[0]
    assert "sub-1_bold.dtseries.nii" in texts[0]
    assert "sub-2_bold.dtseries.nii" in texts[0]


@pytest.mark.parametrize("private", [True, False])
def test_whom_nobody_states_is_refused_with_two_ways(tmp_path, private, capsys):
    """Each file of another name was a person: one who had four was counted four times."""
    names = ["ann/rest1.nii", "ann/rest2.nii", "bob/rest1.nii", "bob/rest2.nii", "eve/rest1.nii"]
    lay_out(tmp_path, *names)
    config = replace(IMAGES, private=private)
    findings = Findings("B")
    assert discover(tmp_path, {}, config, findings) == ()
    assert discover(tmp_path, {"data": "*/*.nii"}, config, Findings("B")) == ()
    with pytest.raises(DataError, match="CAPE-E165") as refused:
        findings.raise_if_blocked()
    assert "ann" not in str(refused.value)  # what others read
    said = people_said(tmp_path, capsys)
    assert said["people"] == []
    assert all(name in said["refused"]["text"] for name in names[:3])
    assert names[3] not in said["refused"]["text"]
    assert said["refused"]["ways"] == [
        f"cape people {tmp_path} --layout ann/rest1.nii",
        f"cape people {tmp_path} --write {tmp_path}/manifest.csv",
    ]


def series(n: int, space: str = "MNI") -> str:
    return f"sub-{n}/func/sub-{n}_task-rest_space-{space}_bold.nii"


@pytest.mark.parametrize(
    ("listed", "layout", "people"),
    [
        ([(1, series(1)), (2, series(2))], "", 2),  # a manifest of the files that BIDS names
        ([(1, series(1))], "", 0),  # another person's run is in no row
        ([(2, series(1)), (1, series(2))], "", 0),  # the list says otherwise than the names
        ([(1, series(1)), (2, series(2))], "sub-{subject}/func/*.nii", 0),
        ([], "sub-{subject}/func/sub-{subject}_task-{run}_space-MNI_bold.nii", 2),
        ([], "sub-*/func/sub-*_task-{subject}_space-{run}_bold.nii", 0),
    ],
)
def test_people_are_stated_by_one_thing(listed, layout, people, tmp_path):
    lay_out(tmp_path, series(1), series(2))
    if listed:
        # The list names one version of each run.
        lay_out(tmp_path, series(1, "T1w"), series(2, "T1w"))
        rows = "".join(f"{person},{name}\n" for person, name in listed)
        (tmp_path / "manifest.csv").write_text(f"participant_id,file\n{rows}")
    if layout:
        (tmp_path / "site-policy.toml").write_text(f'layout = "{layout}"\n')
    site, texts = read_all(tmp_path)
    assert len(site.listed if not any(t.startswith("E ") for t in texts) else ()) == people, texts
    if people and listed:
        assert [each.path for each in site.not_taken] == [series(1, "T1w"), series(2, "T1w")]
    if not people:
        assert any("CAPE-E139" in text for text in texts), texts


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("sub-1_hemi-L_space-fsLR_bold.func.gii", "wb_command"),
        ("sub-1.results/errts+tlrc.HEAD", "3dAFNItoNIFTI"),
        ("ann/scan/0001.dcm", "dcm2niix"),
    ],
)
def test_series_of_another_format_are_said_to_be_converted(name, tool, tmp_path, capsys):
    lay_out(tmp_path, name)
    refused = people_said(tmp_path, capsys)["refused"]
    assert tool in refused["text"]
    assert name in refused["text"]


def test_a_table_beside_an_image_is_not_read_through_a_link_to_another_place(tmp_path):
    base = lay_out(tmp_path / "base", "sub-1_task-rest_bold.nii", "sub-2_task-rest_bold.nii")
    name = "sub-{}_task-rest_desc-confounds_timeseries.tsv"
    outside = lay_out(tmp_path, "elsewhere.tsv") / "elsewhere.tsv"
    (base / name.format(1)).symlink_to(outside)
    lay_out(base, name.format(2))
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
        ({"data": ["/etc/sub-1.nii"]}, "E102", "/etc/sub-1.nii"),
        ({"data": ["sub-2.nii"]}, "E101", "nearest: sub-1.nii"),
        ({"data": ["sub-1.nii", "sub-1.nii"]}, "E105", "sub-1.nii and sub-1.nii"),
        ({"data": ["sub-link.nii"]}, "E102", "a link to another place"),
        ({"data": ["sub-annex.nii"]}, "E108", "DataLad"),
        ({"manifest": "../m.csv"}, "E102", "../m.csv"),
        ({"manifest": "m.csv"}, "E101", "m.csv"),
        ({"data": ["sub-1.nii"], "manifest": "m.csv"}, "E139", "exactly one"),
        ({"data": ["sub-1.nii"], "epsilon": 3}, "E151", "'epsilon'"),
    ],
)
def test_a_list_that_does_not_fit_the_folder_says_why(tmp_path, given, code, part):
    base = lay_out(tmp_path / "site", "sub-1.nii")
    outside = lay_out(tmp_path, "x.nii") / "x.nii"
    (base / "sub-link.nii").symlink_to(outside)
    (base / "sub-annex.nii").symlink_to("../.git/annex/objects/ab/cd/key")
    _, texts = found(base, given)
    assert [t for t in texts if t.startswith(f"CAPE-{code}") and part in t], texts


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
        findings.add(IssueCode.GRID_ROUNDED, f"sub-{m}: 0.0{m} mm", most=0.1)
    (only,) = findings.listing()
    assert "25 times: sub-0: 0.00 mm; sub-1: 0.01 mm; sub-2: 0.02 mm; and 22 more." in only.private
    assert len(in_full([only]).splitlines()) == 1 + 22  # all of them in a file
    assert not findings.blocked


def test_what_all_files_have_in_common_is_told_once_with_one_name():
    """Forty images on one other grid were three paths of 120 letters, each with the same shape."""
    findings = Findings("B")
    for m in range(43):
        name = f"sub-{m:03d}/ses-1/func/sub-{m:03d}_ses-1_bold.nii.gz"
        findings.add(IssueCode.GRID_ROUNDED, f"{name}: shape (20, 23, 20)", most=0.1)
    (only,) = findings.listing()
    told = "43 times, shape (20, 23, 20): sub-000_ses-1_bold.nii.gz; and 42 more."
    assert told in only.private
    assert len(in_full([only]).splitlines()) == 1 + 42  # all of them in a file
    # Where names of files do not tell people apart, folders do.
    findings = Findings("B")
    for m in range(2):
        findings.add(IssueCode.GRID_ROUNDED, f"{m}/rest.nii: 0.01 mm", most=0.1)
    assert "2 times, 0.01 mm: 0/rest.nii; 1/rest.nii." in findings.listing()[0].private


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


def test_nobody_is_left_out_because_a_folder_below_cannot_be_read(tmp_path, monkeypatch, typed):
    """It was passed over: a person without a word, or a list of who is left out."""
    for name in ("sub-01", "sub-02"):
        lay_out(tmp_path / name / "func", f"{name}_task-rest_bold.nii.gz")
    listed, locked = os.scandir, ["sub-02"]

    def refused(path: str) -> object:
        if Path(path).name in locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(DataError, match="E101"):
        discover(tmp_path, {}, IMAGES, Findings("B"))
    for command in (["people"], ["init"], ["validate", "--fast"]):
        said = typed(*command, str(tmp_path), code=1)
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
    lay_out(tmp_path, "sub-1.nii")

    def refused(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os if look == "scandir" else Path, look, refused)
    with pytest.raises(DataError, match="E101") as caught:
        load_site(tmp_path, {}, IMAGES, site="B")
    assert f"{tmp_path}" in caught.value.detail
    assert "Permission denied" in caught.value.detail
    assert "correct its permissions" in caught.value.detail


def test_names_that_contradict_each_other_do_not_stop_a_list_that_says_who_it_is(tmp_path):
    """The remedy of a folder that says 01 and a name that says 02 was refused as well."""
    lay_out(tmp_path, "sub-01/sub-02_bold.nii", "sub-03/sub-03_bold.nii")
    assert read(tmp_path) is None
    (tmp_path / "manifest.csv").write_text(
        "participant_id,file\n02,sub-01/sub-02_bold.nii\n03,sub-03/sub-03_bold.nii\n"
    )
    assert [person.label for person in read(tmp_path) or ()] == ["02", "03"]
