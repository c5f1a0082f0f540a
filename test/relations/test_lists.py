"""A list of the files of a folder is the folder: whichever door of Python, names say who is who."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io

import cape
from cape.data.templates import with_templates
from cape.errors import CapeError, CapeWarning, ConfigError, LabelsWarning, SubjectsWarning
from cape.space.feature_space import FeatureSpace

PEOPLE, T, D = 5, 36, 8
MIX = np.random.default_rng(0).standard_normal((2, D))
SETTINGS = {"n_components": 2, "n_rounds": 2, "n_looks": 1, "min_timepoints": 30}
OF_IMAGES = {"n_components": 2, "min_timepoints": 30, "n_basis": 8}
pytestmark = pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")


def series(*seeds: int) -> np.ndarray:
    rng = np.random.default_rng(seeds)
    return rng.laplace(size=(T, 2)) @ MIX + 0.1 * rng.standard_normal((T, D))


def table(path: Path, X: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names = [f"area {k}" for k in range(D)]
    match path.suffix:
        case ".csv":
            np.savetxt(path, X, delimiter=",", header=",".join(names), comments="")
        case ".npy":
            np.save(path, X)
        case ".mat":
            scipy_io.savemat(path, {"X": X})
        case ".1D":
            np.savetxt(path, X)
        case _:
            volume = X.T.reshape(2, 2, 2, T).astype(np.float32) + 100
            nib.Nifti1Image(volume, np.diag([8.0, 8, 8, 1])).to_filename(path)


FMRIPREP = (
    "sub-{p}/ses-{s}/func/sub-{p}_ses-{s}_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold"
)
NAMES = {
    "flat csv": "sub-{p}_run-{s}.csv",
    "flat npy": "sub-{p}_run-{s}.npy",
    "1D of a program": "derivatives/prog/sub-{p}/sub-{p}_ses-{s}.1D",
    "mat by hospital": "h{s}/sub-{p}_ses-{s}.mat",
    "fMRIPrep": FMRIPREP + ".nii.gz",
    "flat images": "sub-{p}_ses-{s}_task-rest_bold.nii.gz",
}


def laid_out(folder: Path, names: str) -> list[Path]:
    """Write two runs of each of five people; a person and one run of another are left out."""
    files = []
    for p in range(1, PEOPLE + 1):
        for s in (1, 2):
            files.append(folder / names.format(p=f"0{p}", s=s))
            table(files[-1], series(p, s))
    one_run = f"sub-03\t{'run' if '_run-' in names else 'ses'}-2\n"
    rows = "participant_id\texclude\nsub-02\t1\n" + one_run
    (folder / "participants.tsv").write_text(rows)
    if ".nii" in names:
        mask = nib.Nifti1Image(np.ones((2, 2, 2), np.uint8), np.diag([8.0, 8, 8, 1]))
        mask.to_filename(folder / "mask.nii.gz")
    return files


def estimator(X: Any, folder: Path) -> Any:
    mask = folder / "mask.nii.gz"  # a list has no folder in which a mask of the site could lie
    given: dict[str, Any] = {"settings": SETTINGS}
    if mask.is_file():
        there = {"mask": "file"} if X == folder else {}
        given = {"settings": {**OF_IMAGES, **there}, "masker": None if X == folder else mask}
    return cape.JointICA(2, private=False, random_state=1, **given).fit(X).result_


def consortium(X: Any, folder: Path) -> Any:
    del folder
    sites = X if isinstance(X, dict) else {"a": X}
    return cape.Consortium(sites).run(private=False, seed=1, settings=SETTINGS)


def compared(X: Any, folder: Path) -> Any:
    del folder
    return cape.compare({"a": X}, {"one": {**SETTINGS, "private": False}}, seed=1)["one"].result


DOORS: dict[str, Callable[[Any, Path], Any]] = {
    "JointICA": estimator, "Consortium": consortium, "compare": compared,
}  # fmt: skip
TRIED = [
    (names, door)
    for names in NAMES
    for door in DOORS
    if door == "JointICA" or ".nii" not in NAMES[names]
]


@pytest.mark.parametrize(("names", "door"), TRIED)
def test_a_list_of_all_files_of_a_folder_is_the_folder(names: str, door: str, tmp_path) -> None:
    """Four runs of one person counted four times, and who is excluded was taken in.

    The noise is by person: at epsilon 8 such a person had the protection of epsilon 32.
    """
    files = laid_out(tmp_path, NAMES[names])
    folder, listed = (DOORS[door](X, tmp_path) for X in (tmp_path, files[::-1]))
    assert folder.counted.listed == folder.counted.counted == PEOPLE - 1
    assert listed.counted == folder.counted
    np.testing.assert_allclose(listed.maps, folder.maps, rtol=1e-4, atol=1e-5)
    if ".nii" in NAMES[names]:  # images in memory still know their files
        assert estimator(list(map(nib.load, files)), tmp_path).counted == folder.counted


@pytest.mark.parametrize("names", ["flat npy", "1D of a program"])
def test_runs_of_one_person_in_two_sites_are_refused(names: str, tmp_path) -> None:
    """With groups= by run each person counted twice, with the noise for one."""
    files = laid_out(tmp_path, NAMES[names])
    groups = [f"h{k % 2}" for k in range(len(files))]
    model = cape.JointICA(2, epsilon=8.0, settings=SETTINGS)
    with pytest.raises(ConfigError, match=r"sub-0.* is one person, in two sites: h0 and h1; write"):
        model.fit(files, groups=groups)


def told_of_labels(run: Callable[[], object]) -> set[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run()
    return {str(each.message) for each in told if issubclass(each.category, LabelsWarning)}


def test_labels_that_recur_at_two_sites_are_doubted_at_every_door(tmp_path, monkeypatch) -> None:
    """wave1/sub-01 and wave2/sub-01 were two people in Python without a word, and the command said
    so: the same person at two sites has half of the protection."""
    monkeypatch.setenv("CAPE_CACHE", "none")
    sites: dict[str, list[Path]] = {
        wave: names(tmp_path / wave, *(f"sub-0{p}.csv" for p in people))
        for wave, people in (("wave1", (1, 2, 3)), ("wave2", (2, 3, 4)), ("wave3", (7, 8, 9)))
    }
    folders = {wave: tmp_path / wave for wave in sites}
    files = [file for each in sites.values() for file in each]
    groups = [file.parent.name for file in files]
    settings = {**SETTINGS, "orientation": "time_by_feature", "feature_space": "matrix"}
    command = told_of_labels(
        lambda: cape.simulate(tmp_path, out=tmp_path / "out", private=False, settings=settings)
    )
    assert len(command) == 1
    assert "2 labels recur at several of the sites wave1, wave2, wave3" in next(iter(command))
    doors: dict[str, Callable[[], object]] = {
        f"{door} of {kind}": partial(DOORS[door], X, tmp_path)
        for door in ("JointICA", "Consortium")
        for kind, X in {"lists": sites, "folders": folders}.items()
    }
    estimator = cape.JointICA(2, private=False, random_state=1, settings=SETTINGS)
    doors["groups"] = lambda: estimator.fit(files, groups=groups)
    for door, run in doors.items():
        assert told_of_labels(run) == command, door
    # Numbers that nobody stated recur at all sites.
    unstated = {s: names(tmp_path / "more" / s, "x.csv", "y.csv", "z.csv") for s in sites}
    arrays = {s: [series(p) for p in range(3)] for s in sites}
    for people in (
        unstated,
        arrays,
        {**sites, "wave1": sites["wave1"][:1], "wave2": sites["wave2"][1:]},
    ):
        assert told_of_labels(partial(consortium, people, tmp_path)) == set()


def test_a_plan_counts_the_people_of_a_list(tmp_path) -> None:
    consortium = cape.Consortium({"a": laid_out(tmp_path, NAMES["flat csv"])})
    assert consortium.n_subjects == PEOPLE - 1
    assert repr(consortium) == "<Consortium of a: 10 files>"
    with pytest.warns(
        SubjectsWarning, match=r"1 of 5 people is left out: participants.tsv, line 2"
    ):
        plan = consortium.budget(epsilon=8.0, settings=SETTINGS)
    assert f"{PEOPLE - 1} people" in repr(plan)


def test_the_owners_filter_chooses_sessions_of_a_list_as_of_a_folder(tmp_path) -> None:
    files = laid_out(tmp_path, NAMES["mat by hospital"])
    given = {**SETTINGS, "bids_filter": "ses-1"}
    folder, listed = (
        cape.Consortium({"a": X}).run(private=False, seed=1, settings=given)
        for X in (tmp_path, files)
    )
    np.testing.assert_allclose(listed.maps, folder.maps, rtol=1e-4, atol=1e-5)
    assert listed.counted.counted == PEOPLE - 1


def names(folder: Path, *names: str) -> list[Path]:
    for n, name in enumerate(names):
        table(folder / name, series(n))
    return [folder / name for name in names]


@pytest.mark.parametrize(
    ("files", "error", "words"),
    [
        (("sub-1_desc-a.csv", "sub-1_desc-b.csv", "sub-2.csv"), ConfigError, "differ in desc-"),
        (("sub-1_roi.csv", "sub-1_bold.csv"), ConfigError, "sub-1_roi.csv and sub-1_bold.csv"),
        (("a/sub-1.csv", "b/sub-1.csv"), ConfigError, r"or each its site .a mapping, or groups=."),
        (("S1_run-1.csv", "S1_run-2.csv", "S2.csv"), CapeError, "look like two runs of one person"),
        (("sub-1.csv", "S2.csv"), CapeError, "S2.csv .its name is none of BIDS"),
        (("sub-1.csv", "sub-01.csv"), CapeError, "one person, or two"),
    ],
)
def test_what_names_leave_open_is_refused_with_what_to_write(files, error, words, tmp_path) -> None:
    consortium = cape.Consortium({"a": names(tmp_path, *files)})
    with pytest.raises(error, match=words):
        consortium.run(private=False, settings=SETTINGS)


def test_a_column_of_time_in_everybody_is_told_by_its_name(tmp_path) -> None:
    """It was a feature without a word; a ramp under any name, or time that only rises."""
    rng = np.random.default_rng(0)
    times = {"time": np.cumsum(rng.uniform(1, 2, T)), "scan": 2.0 * np.arange(T)}
    for name, course in times.items():
        frames = [pd.DataFrame(series(k), columns=list("abcdefgh")) for k in range(3)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cape.Consortium({"a": frames})
        for k, frame in enumerate(frames):
            frame.insert(0, name, course)
            frame.to_csv(tmp_path / f"sub-{k}.csv", index=False)
        with pytest.warns(CapeWarning, match=f"column '{name}' only rises in everybody"):
            cape.Consortium({"a": frames})
        by_time = {"feature_space": "matrix", "orientation": "time_by_feature"}
        found = cape.validate(tmp_path, settings={**SETTINGS, **by_time})
        assert f"column '{name}'" in " ".join(one.private for one in found)


def test_where_no_name_says_anybody_each_file_is_one_person(tmp_path) -> None:
    """As before, unless a table beside them leaves somebody out whom no name tells."""
    files = names(tmp_path, "p1/rest.csv", "p2/rest.csv", "p2/scan_2.csv", "p2/scan_3.csv")
    run = cape.Consortium({"a": files}).run
    assert run(private=False, settings=SETTINGS).counted.counted == 4
    (tmp_path / "p2" / "participants.tsv").write_text("participant_id\texclude\n9\t1\n")
    with pytest.raises(CapeError, match=r"participants.tsv, line 2 leaves somebody out"):
        run(private=False, settings=SETTINGS)


def test_names_of_regions_stand_wherever_a_region_is_named(tmp_path) -> None:
    """`to_dataframe`, group_maps.csv and the page had numbers, and two ways of counting them."""
    files = laid_out(tmp_path, NAMES["flat csv"])
    model = cape.JointICA(2, private=False, random_state=1, settings=SETTINGS).fit(files)
    names = [f"area {k}" for k in range(D)]
    assert model.feature_names_in_.tolist() == names
    frame = model.result_.to_dataframe()
    assert frame.index.tolist() == names
    model.result_.write(tmp_path / "out")
    lines = (tmp_path / "out" / "group_maps.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["feature", *names]
    peak = frame["C01"].abs().idxmax()
    page = (tmp_path / "out" / "index.html").read_text()
    assert f'<td data-name="peak">{peak}</td>' in page
    # The maps of a run are templates of the next.
    again = with_templates(FeatureSpace.of_matrix(D), tmp_path / "out", site="a", sent=True)
    assert again.templates().shape == (D, 2)
    unnamed = cape.JointICA(2, private=False, random_state=1, settings=SETTINGS).fit(
        [series(k) for k in range(4)]
    )
    assert not hasattr(unnamed, "feature_names_in_")
    assert unnamed.result_.to_dataframe().index.tolist() == list(range(1, D + 1))
