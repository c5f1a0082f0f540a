"""People as users of scikit-learn and nilearn have them: file names, images, folders, confounds."""

import pickle
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

import cape
from cape.errors import ConfigError, DataError
from cape.python import people

AFFINE = np.diag([8.0, 8.0, 8.0, 1.0])
INSIDE = np.zeros((6, 6, 6), dtype=np.uint8)
INSIDE[1:5, 1:5, 1:5] = 1
MASK = nib.Nifti1Image(INSIDE, AFFINE)
SMALL = {"n_basis": 20, "min_timepoints": 30}
T = 40
pytestmark = pytest.mark.filterwarnings(
    "ignore::cape.errors.SubjectsWarning", "ignore::cape.errors.CapeWarning"
)


def image(seed: int, drift: np.ndarray | None = None) -> nib.Nifti1Image:
    common = np.random.default_rng(3).standard_normal((64, 2))
    rng = np.random.default_rng(seed)
    series = 100 + common @ rng.laplace(size=(2, T)) + 0.1 * rng.standard_normal((64, T))
    volume = np.zeros((*INSIDE.shape, T), dtype=np.float32)
    volume[INSIDE > 0] = series + (0 if drift is None else 30 * drift)
    return nib.Nifti1Image(volume, AFFINE)


def model(**given) -> cape.JointICA:
    settings = {**SMALL, **given.pop("settings", {})}
    return cape.JointICA(2, private=False, random_state=1, settings=settings, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("people")
    for site in ("north", "south"):
        (place / site).mkdir()
        MASK.to_filename(place / site / "mask.nii.gz")
        for m in range(3):
            name = f"sub-{site}{m}_task-rest_bold.nii.gz"
            image(m + 10 * (site == "south")).to_filename(place / site / name)
    return place


def test_names_images_and_folders_of_the_same_people_give_the_same_maps(folder):
    """The estimator took arrays alone; whoever has files had to write a reader."""
    names = sorted(folder.glob("*/sub-*.nii.gz"))
    groups = [path.parent.name for path in names]
    fitted = model(masker=MASK).fit(names, groups=groups)
    assert fitted.result_.outcome.computation == "capegica"  # images have the recipe of images
    assert fitted.components_img_.shape == (6, 6, 6, 2)
    inside = np.asarray(fitted.components_img_.dataobj)[INSIDE > 0]
    assert np.allclose(inside, fitted.components_.T, atol=1e-5)
    in_memory = [nib.Nifti1Image(nib.load(p).get_fdata(), AFFINE) for p in names]
    by_image = model(masker=folder / "north" / "mask.nii.gz").fit(in_memory, groups=groups)
    sites = [folder / "north", folder / "south"]
    by_folder = model(settings={"mask": "file"}).fit(sites)
    for other in (by_image, by_folder):
        assert np.allclose(other.components_, fitted.components_, atol=1e-3)
    courses = fitted.transform(names[:3])
    assert [one.shape for one in courses] == [(T, 2)] * 3
    for one, other in zip(courses, by_folder.transform(sites[0]), strict=True):
        assert np.allclose(one, other, atol=1e-2 * one.std())
    assert len(by_folder.fit_transform(sites)) == 6
    assert fitted.inverse_transform(courses)[0].shape == (T, 64)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.transform(names[:1])[0], courses[0])


def test_confounds_leave_the_data():
    rng = np.random.default_rng(9)
    drifts = [rng.standard_normal((T, 1)) for _ in range(4)]
    images = [image(k, drift[:, 0]) for k, drift in enumerate(drifts)]
    fitted = model(masker=MASK).fit(images, confounds=drifts)
    (course,) = fitted.transform(images[:1], confounds=drifts[:1])
    assert np.all(np.abs(np.corrcoef(course.T, drifts[0].T)[2, :2]) < 1e-3)
    # Arrays have them too, and a masker of nilearn is given them.
    arrays = [np.asarray(x.dataobj)[INSIDE > 0].T for x in images]
    small = {"min_timepoints": 30, "n_rounds": 2}
    of_arrays = cape.JointICA(2, private=False, random_state=1, settings=small)
    assert len(of_arrays.fit_transform(arrays, confounds=drifts)) == 4

    class Masker:
        mask_img_ = MASK
        given: list[object] = []  # noqa: RUF012

        def transform(self, x, confounds=None):
            self.given.append(confounds)
            return np.asarray(x.dataobj)[INSIDE > 0].T

    by_masker = model(masker=Masker())
    by_masker.fit(images, confounds=drifts, groups=["a", "b", "a", "b"])
    assert Masker.given == [drifts[0], drifts[2], drifts[1], drifts[3]]


def test_what_cannot_be_paired_or_read_is_refused(folder):
    x = image(0)
    with pytest.raises(ConfigError, match="confounds of 1 for 2 people"):
        model(masker=MASK).fit([x, x], confounds=[np.ones(T)])
    with pytest.raises(ConfigError, match="with people who are not in a list"):
        model(masker=MASK).fit(folder / "north", confounds=[np.ones(T)])
    with pytest.raises(ConfigError, match="finite numbers"):
        model(masker=MASK).fit([x], confounds=[np.full((T, 2), np.inf)])
    with pytest.raises(ConfigError, match="no file"):
        model(masker=MASK).fit(["gone.nii.gz"])
    for masker in ("gone.nii.gz", 3):
        with pytest.raises(ConfigError, match="is no mask"):
            model(masker=masker).fit([np.ones((T, 3))])
    with pytest.raises(DataError, match="E100"):
        model(masker=MASK).fit([x] * 3, confounds=[np.ones(T - 1)] * 3)
    fitted = model(masker=MASK).fit([image(k) for k in range(3)])
    with pytest.raises(DataError) as found:
        fitted.transform([x], confounds=[np.ones(T - 1)])
    assert f"{T - 1} rows, {T} volumes" in found.value.detail


@pytest.mark.parametrize("kind", ["frame", "csv"])
@pytest.mark.parametrize(
    ("columns", "do"),
    [("bac", "reorder: df.columns., with the columns of person 1 of x"), ("abd", "the same names")],
)
def test_columns_of_other_names_or_order_are_refused_by_place(kind, columns, do, tmp_path):
    """They were joined by position: amygdala was averaged with putamen."""
    pd = pytest.importorskip("pandas")

    def person(seed: int, names: str):
        frame = pd.DataFrame(np.random.default_rng(seed).laplace(size=(T, 3)), columns=list(names))
        if kind == "frame":
            return frame
        frame.to_csv(tmp_path / f"{names}{seed}.csv", index=False)
        return tmp_path / f"{names}{seed}.csv"

    same, other = [person(k, "abc") for k in range(6)], person(7, columns)
    found = rf"the columns of person 2 of y are not those of person 1 of x: .* has .*{do}"
    for door in (cape.Consortium, cape.JointICA(2, private=False).fit):
        with pytest.raises(ConfigError, match=found):
            door({"x": same[:2], "y": [same[2], other]})
    fitted = cape.JointICA(2, private=False, settings={"min_timepoints": 30, "n_rounds": 2})
    fitted.fit([*same, np.ones((T, 3)) * np.arange(T)[:, None]])  # arrays have no names
    with pytest.raises(ConfigError, match="person 2 are not those of the fit"):
        fitted.transform([same[0], other])
    bare = pd.DataFrame(np.random.default_rng(1).laplace(size=(T, 3)))
    assert cape.Consortium([same[0], bare]).n_subjects == 2  # nobody named its columns


@pytest.mark.parametrize(
    ("name", "save", "words"),
    [
        (
            "x.csv",
            {"delimiter": ",", "fmt": "%d"},
            "add a first line with the names of the columns",
        ),
        (
            "x.csv",
            {"header": "a;b;c", "comments": "", "delimiter": ";"},
            "with a comma between cells",
        ),
        ("x.mat", None, r"lacks the variable X .Y .40, 3., Z .40, 3..; save it as save"),
    ],
)
def test_a_file_of_another_form_says_what_to_save(name, save, words, tmp_path):
    """Two arrays in a .mat file: 'lacks the variable {variable}; give a row per time point'."""
    X = np.random.default_rng(1).laplace(size=(T, 3))
    if save is None:
        pytest.importorskip("scipy.io").savemat(tmp_path / name, {"Y": X, "Z": X})
    else:
        np.savetxt(tmp_path / name, X, **save)
    with pytest.raises(ConfigError, match=words) as caught:
        cape.Consortium([tmp_path / name])
    assert "{" not in str(caught.value)
    assert "the owner" not in str(caught.value)


@pytest.mark.parametrize("door", ["run", "budget"])
def test_a_folder_that_cannot_be_used_says_why(door, tmp_path):
    """It said 'see its site-error.txt', which nobody has in Python."""
    with pytest.raises(DataError, match="E104 There are no data files") as caught:
        getattr(cape.Consortium(tmp_path), door)(epsilon=4.0, settings={"n_components": 3})
    assert "site-error" not in str(caught.value)


def test_a_place_with_a_finished_run_is_given_up_in_words_of_python(folder, tmp_path):
    (tmp_path / "consortium").mkdir()
    for name in ("privacy.json", "results.json"):
        (tmp_path / "consortium" / name).write_text("{}")
    with pytest.raises(ConfigError, match=r"E016 .*give it up with replace=True") as caught:
        cape.simulate(folder, out=tmp_path, private=False)
    assert "--" not in str(caught.value)


def test_who_counts_as_zeros_in_a_folder_is_told(folder, tmp_path):
    shutil.copytree(folder / "north", tmp_path / "north")
    image(7).slicer[..., :20].to_filename(tmp_path / "north" / "sub-north9_task-rest_bold.nii.gz")
    with pytest.warns(cape.SubjectsWarning, match="3 of 4 people count"):
        model(settings={"mask": "file"}).fit(tmp_path / "north")


def test_folders_of_one_name_are_numbered_and_one_folder_is_one_site(tmp_path):
    twice = [tmp_path / "x" / "site", tmp_path / "y" / "site"]
    for place in twice:
        place.mkdir(parents=True)
    assert list(people.by_site(twice, None)) == ["site1", "site2"]
    assert list(people.by_site(str(twice[0]), None)) == ["site"]


def test_a_folder_of_tables_without_settings_says_how_to_read_it(tmp_path):
    """It was sought for images."""
    (tmp_path / "lab").mkdir()
    table = tmp_path / "lab" / "sub-1.csv"
    np.savetxt(table, np.eye(3), delimiter=",", header="a,b,c", comments="")
    with pytest.raises(DataError, match=r"read with settings=..feature_space.: .matrix"):
        cape.simulate(table.parent, out=tmp_path / "out", private=False)


def tables_in(folder: Path, site: str, label: str) -> list[Path]:
    """Write four people as np.savetxt does: regions by time, no header, names of no BIDS."""
    (folder / site).mkdir(parents=True)
    paths = [folder / site / f"sub-{label}{m:03d}_roi.csv" for m in range(4)]
    maps = np.random.default_rng(3).standard_normal((3, 12))
    for m, path in enumerate(paths):
        X = np.random.default_rng([m, ord(label)]).laplace(size=(60, 3)) @ maps
        np.savetxt(path, X.T, delimiter=",")
    return paths


TURNED = {"orientation": "feature_by_time", "min_timepoints": 40, "n_rounds": 2}


def test_a_file_in_a_folder_of_each_person_is_that_person(tmp_path):
    """E165 asked for 'a list of one file a person', which was given: sub-00/ses-1/roi.csv."""
    rng = np.random.default_rng(2)
    files = [tmp_path / f"sub-{k:02}" / "ses-1" / "roi.csv" for k in range(12)]
    for file in files:
        file.parent.mkdir(parents=True)
        np.savetxt(file, rng.laplace(size=(60, 4)), delimiter=",")
    (tmp_path / "participants.tsv").write_text("participant_id\texclude\nsub-03\t1\n")
    two = {"n_components": 2, "min_timepoints": 40}
    consortium = cape.Consortium(files, settings=two)
    with pytest.warns(cape.SubjectsWarning, match=r"1 of 12 people is left out: participants\.tsv"):
        assert "11 people at 1 site" in repr(consortium.budget(epsilon=8.0))
    # Two files of a person may be two runs, or a run and its table.
    other = files[0].with_name("motion.csv")
    other.write_bytes(files[0].read_bytes())
    with pytest.raises(DataError, match="E165"):
        cape.Consortium([*files, other]).budget(epsilon=8.0, settings=two)


def test_regions_by_time_without_a_header_are_read_and_the_way_is_told(tmp_path):
    """E284 asked for a header; then (X.T) was said of names of files, which have no .T."""
    sites = {
        "londonA": tables_in(tmp_path, "londonA", "L"),
        "parisB": tables_in(tmp_path, "parisB", "P"),
    }
    arrays = {s: [np.loadtxt(x, delimiter=",").T for x in files] for s, files in sites.items()}
    both = [
        cape.JointICA(2, private=False, random_state=1, settings=TURNED).fit(X).components_
        for X in (sites, arrays)
    ]
    np.testing.assert_allclose(*both, rtol=1e-3, atol=1e-4)
    said = r"X.T, or for files JointICA\(settings=\{'orientation': 'feature_by_time'\}\)"
    tall = {"min_timepoints": 50}
    with pytest.raises(ConfigError, match=said):
        cape.JointICA(2, private=False, settings=tall).fit(sites)
    with pytest.raises(ConfigError, match=said):
        cape.Consortium(sites).run(private=False, settings=tall)


def test_files_whose_people_nobody_states_name_the_way_of_python(tmp_path):
    """It said 'type one of the commands of cape people FOLDER' and nothing of lists."""
    folders = [tables_in(tmp_path, site, site[0])[0].parent for site in ("a", "b")]
    with pytest.raises(DataError, match=r"E165 .*\n.*give a list of one file a person") as caught:
        cape.JointICA(2, private=False, settings=TURNED).fit(folders)
    assert "run cape people there" not in str(caught.value)
    for folder in folders:
        (folder / "site-policy.toml").write_text('layout = "{subject}_roi.csv"\n')
    # A run took the number of regions from the files, the plan asked for it (E013).
    plan = cape.Consortium(folders).budget(epsilon=8.0, components=2, settings=TURNED)
    assert "8 people at 2 sites" in repr(plan)


def test_two_sites_run_as_in_a_consortium(folder, tmp_path):
    """E152 refused in `simulate` what `Consortium` and `compare_groups` ran."""
    given = {"private": False, "settings": {"n_components": 2, "mask": "file", **SMALL}}
    assert cape.simulate(folder, out=tmp_path / "out", **given).is_dir()
    given["settings"]["min_sites"] = 3
    with pytest.raises(ConfigError, match=r"is 3; give settings=.'min_sites': 2.; of two sites"):
        cape.simulate(folder, out=tmp_path / "other", **given)


def test_a_consortium_shows_its_sites_and_plans_its_maps():
    X = list(np.random.default_rng(1).laplace(size=(4, 60, 12)))
    consortium = cape.Consortium({"a": X[:1], "b": X[1:]})
    assert repr(consortium) == "<Consortium of a: 1 person, b: 3 people>"
    plan = consortium.budget(epsilon=8.0, components=2, settings={"min_timepoints": 40})
    assert "2 components" in repr(plan)
