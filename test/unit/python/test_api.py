"""The Python interface: lazily imported, frozen results, an estimator that can be cloned."""

import dataclasses
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.computations.capedjica import CapeDjicaConfig
from cape.data.cleaning import stop_band_cosines
from cape.data.issues import Findings
from cape.data.runs import Person, SiteRun
from cape.errors import CapeWarning, ConfigError, DataError
from cape.site.site_data import ArraySource

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.py"))
FEW = pytest.mark.filterwarnings("ignore::cape.errors.SubjectsWarning")

SMALL = {"min_timepoints": 30, "n_components": 3, "n_rounds": 3, "n_looks": 1}


def subjects(n: int, *, seed: int) -> list[np.ndarray]:
    common = np.random.default_rng(5).standard_normal((12, 3))
    rng = np.random.default_rng(seed)
    return [
        rng.laplace(size=(40, 3)) @ common.T + 0.2 * rng.standard_normal((40, 12)) for _ in range(n)
    ]


def sites() -> dict[str, list[np.ndarray]]:
    return {name: subjects(n, seed=n) for name, n in (("a", 5), ("b", 4), ("c", 6))}


def test_import_cape_loads_nothing_of_it() -> None:
    """A round imports the package too: names come when they are asked for."""
    code = (
        "import sys, cape; loaded = [m for m in sys.modules if m.startswith('cape.')]; "
        "assert loaded == [], loaded; assert 'numpy' not in sys.modules; "
        "assert callable(cape.budget); assert 'cape.python.api' in sys.modules; "
        "assert 'sklearn' not in sys.modules and 'nilearn' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_exists_and_no_other() -> None:
    for name in dir(cape):
        assert getattr(cape, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = cape.simulat


def test_a_consortium_in_memory_gives_a_frozen_result() -> None:
    result = cape.Consortium(sites()).run(epsilon=100.0, settings=SMALL)
    assert result.private
    assert 99.0 < result.epsilon <= 100.0
    assert result.maps.shape == (12, 3)
    assert np.allclose(result.maps.std(axis=0), 1.0)
    assert result.unmixing.shape == (3, 12)
    assert result.spatial_maps.shape == (12, 3)
    assert [record.phase for record in result.trace] == ["pca", "whitening", *["iterate"] * 3]
    assert (result.q_ngi, result.map_correlation) == (None, None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.epsilon = 1.0


def test_a_seed_gives_the_same_maps_and_promises_nothing(tmp_path) -> None:
    truth = np.random.default_rng(5).standard_normal((12, 3))
    one, two = (
        cape.Consortium(sites(), truth=truth).run(epsilon=100.0, settings=SMALL, seed=3)
        for _ in range(2)
    )
    assert np.array_equal(one.maps, two.maps)
    assert not one.private
    assert one.epsilon is None
    assert 0.0 <= one.q_ngi <= 1.0
    assert one.map_correlation > 0.5
    page = one.write(tmp_path / "out")
    assert "NOT PRIVATE" in page.read_text()
    assert (tmp_path / "out" / "results.json").is_file()
    # Another run wrote over all files, privacy.json too, and what was spent was forgotten.
    private = cape.Consortium(sites()).run(epsilon=100.0, settings=SMALL)
    with pytest.raises(ConfigError, match=r"E016.*privacy.json says.*with replace=True\."):
        private.write(tmp_path / "out")
    assert "NOT PRIVATE" in page.read_text()
    assert "NOT PRIVATE" not in private.write(tmp_path / "out", replace=True).read_text()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "a site without subjects"),
        ({"a": []}, "a site without subjects"),
        ({"a": [np.zeros(12)]}, r"not arrays of two axes, but of shape \(12,\)"),
        ({"a": [np.zeros((40, 12)), np.zeros((41, 13))]}, "40 to 41 rows and 12 to 13 columns"),
        ({"a": [np.zeros((40, 12), dtype=complex)]}, "not arrays of real numbers"),
        ({"a": [np.full((40, 12), "x")]}, "not arrays of real numbers"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(given, words) -> None:
    with pytest.raises(ConfigError, match=words) as found:
        cape.Consortium(given)
    assert "transposed" not in str(found.value)
    with pytest.raises(ConfigError, match="12 columns for 10 features"):
        cape.Consortium(sites(), space=cape.FeatureSpace.of_matrix(10))


def test_features_by_time_are_refused_wherever_sizes_tell_them() -> None:
    """Consortium took them, the estimator time by features: each was the other's silent mistake."""
    turned = {site: [X.T for X in people] for site, people in sites().items()}
    ways = {
        "truth": lambda: cape.Consortium(turned, truth=np.zeros((12, 3))),
        "space": lambda: cape.Consortium(turned, space=cape.FeatureSpace.of_matrix(12)),
        "lengths": lambda: cape.Consortium({"a": [turned["a"][0], turned["a"][1][:, :38]]}),
        "estimator": lambda: cape.JointICA(3).fit([turned["a"][0], turned["a"][1][:, :38]]),
        "confounds": lambda: cape.JointICA(3).fit(
            [turned["a"][0], turned["a"][1][:, :38]], confounds=[np.ones(12)] * 2
        ),
    }
    for name, way in ways.items():
        with pytest.raises(ConfigError, match=r"E284 .*look transposed \(X.T") as found:
            way()
        assert "(n_timepoints, n_features)" in str(found.value), name
    # All as long as each other: sizes tell nothing, but so few time points are no data.
    for run in (
        lambda: cape.Consortium(turned).run(epsilon=8.0, settings=SMALL),
        lambda: cape.JointICA(3, epsilon=8.0, settings=SMALL).fit(turned),
    ):
        with pytest.raises(ConfigError, match=r"E284 at most 12 time points .* transpose"):
            run()


BAD = {
    "NaN": (lambda X: np.nan * X, "NaN everywhere"),
    "constant": (lambda X: X * 0 + 3.0, "constant or zero everywhere"),
    "infinite": (lambda X: np.where(X > 1, np.inf, X), "too many NaN or infinite"),
    "past float32": (lambda X: np.where(X > 1, 1e300, X), "too many NaN or infinite"),
    "short": (lambda X: X[:20], "too few time points"),
}


@pytest.mark.parametrize("name", BAD)
def test_arrays_go_through_the_checks_of_files(name) -> None:
    """Three sites of NaN alone once "converged" and gave maps, epsilon 8."""
    spoil, words = BAD[name]
    spoiled = {site: [spoil(X) for X in of_site] for site, of_site in sites().items()}
    with pytest.raises(DataError, match=r"^CAPE-E1\d\d .*ite a ") as found:
        cape.Consortium(spoiled).run(epsilon=8.0, settings=SMALL)
    assert "sub-001" not in found.value.public  # the text is for who called
    assert words in str(found.value)
    assert "sub-001" in str(found.value)
    assert "site-error.txt" not in str(found.value)  # there is none


def test_a_bad_array_among_good_ones_counts_as_zeros_and_is_told() -> None:
    given = sites()
    given["c"][1][3, 2] = np.nan
    given["b"][2][:] = 1.0
    with pytest.warns(CapeWarning) as told:
        result = cape.Consortium(given).run(epsilon=100.0, settings=SMALL)
    first, *others = (str(each.message) for each in told)
    n = sum(map(len, given.values()))
    assert first.startswith(f"{n - 2} of {n} people count (1: a subject is constant or zero")
    assert (result.counted.counted, result.counted.listed) == (n - 2, n)
    texts = sorted("\n".join(others).splitlines())
    assert texts[0].startswith(
        "site b: CAPE-W127 A subject is constant or zero everywhere. sub-003"
    )
    assert texts[1].startswith("site c: CAPE-W125 A subject has too many NaN")
    assert len(texts) == 2
    assert [entry.n_subjects for entry in result.outcome.roster.sites] == [
        len(given[site]) for site in "abc"
    ]
    assert not any("sub-0" in text for text in result.warnings)  # these are published


def test_one_person_given_twice_counts_once() -> None:
    given = sites()
    given["a"][3] = given["a"][0]
    with pytest.warns(CapeWarning) as told:
        result = cape.Consortium(given).run(private=False, settings=SMALL)
    n = sum(map(len, given.values()))
    assert result.outcome.roster.n_subjects == n
    first, second, *_ = (str(each.message) for each in told)
    assert first.startswith(f"{n - 1} of {n} people count (1: the same data are listed twice")
    assert "The same data are listed twice, and count once" in second


def test_arrays_are_filtered_and_cut_as_files_are() -> None:
    """Settings of the preprocessing beyond detrending once did nothing to arrays."""
    people = [
        Person(label=f"sub-{m}", runs=(SiteRun(path=Path(), name=f"{m}", values=X.T),))
        for m, X in enumerate(sites()["a"])
    ]
    config = CapeDjicaConfig.from_input(
        {**SMALL, "private": False, "drop_first_volumes": 4, "max_timepoints": 31,
         "tr": 2.0, "high_pass": 0.02, "feature_space": "matrix"}
    )  # fmt: skip
    source = ArraySource.of(people, cape.FeatureSpace.of_matrix(12), config, Findings("a"))
    assert "past max_timepoints are not used" in source.notice
    shapes = {Y.shape for _, Y in source.reduced(12)}
    assert shapes == {(12, 31)}
    slow = stop_band_cosines(36, 2.0, high_pass=0.02, low_pass=0.0)
    whole = replace(config, max_timepoints=0)
    (_, Y), *_ = ArraySource.of(people, source.space, whole, Findings("a")).reduced(12)
    assert np.allclose(Y @ slow, 0.0, atol=1e-4)
    asked = replace(whole, confounds="motion6")
    with pytest.raises(DataError, match="onfound") as found:
        ArraySource.of(people, source.space, asked, Findings("a"))
    assert "no confound table" in found.value.detail


# -- the estimator ---------------------------------------------------------------------------------


def by_time() -> list[list[np.ndarray]]:
    return list(sites().values())


def test_the_estimator_fits_and_gives_time_courses() -> None:
    model = cape.JointICA(3, epsilon=100.0, random_state=1, settings=SMALL)
    with pytest.raises(ConfigError, match="call fit first"):
        model.transform(by_time()[0])
    assert model.fit(by_time()) is model
    assert model.components_.shape == (3, 12)
    courses = model.transform(by_time()[0])
    assert [c.shape for c in courses] == [(40, 3)] * 5
    assert np.allclose(courses[0].mean(axis=0), 0.0, atol=1e-6)
    assert len(model.fit_transform(by_time())) == 15
    by_name = dict(zip("abc", by_time(), strict=True))
    assert not cape.JointICA(3, private=False, settings=SMALL).fit(by_name).result_.private
    # It ran without noise once, because a budget was forgotten.
    with pytest.raises(ConfigError, match="E013"):
        cape.JointICA(3, settings=SMALL).fit(by_name)


def test_what_is_no_list_of_fitting_subjects_is_refused() -> None:
    """One (T, D) array, the call of scikit-learn, was taken row by row and gave garbage."""
    model = cape.JointICA(3, epsilon=100.0, random_state=1, settings=SMALL).fit(by_time())
    X = by_time()[0][0]
    for given in (X, list(X), [X[0]], [X.astype(complex)], [[["a"] * 12]]):
        with pytest.raises(ConfigError, match=r"E284 .*list"):
            model.transform(given)
    with pytest.raises(ConfigError, match=r"one array of shape \(40, 12\), not a list"):
        cape.JointICA(3, settings=SMALL).fit(X)
    with pytest.raises(ConfigError, match="11 to 12 columns for 12 features"):
        model.transform([X, X[:, :11]])
    with pytest.raises(ConfigError, match="no folder or file sub-01"):
        model.transform("sub-01_bold.nii.gz")
    for given in (X * np.nan, X[:0]):
        with pytest.raises(ConfigError, match="no values or too many that are NaN"):
            model.transform([given])
    with pytest.raises(ConfigError, match=r"40 rows and 12 columns for 3 features"):
        model.inverse_transform([X])
    assert np.array_equal(model.transform(np.stack([X]))[0], model.transform([X])[0])


def test_a_single_nan_counts_as_the_mean_of_its_feature_as_in_the_fit() -> None:
    model = cape.JointICA(3, epsilon=100.0, random_state=1, settings=SMALL).fit(by_time())
    X = np.tile(by_time()[0][0], (4, 1))
    holed = X.copy()
    holed[7, 2] = np.nan
    filled = holed.copy()
    filled[7, 2] = np.nanmean(holed[:, 2])
    assert np.allclose(model.transform([holed])[0], model.transform([filled])[0], atol=1e-12)


def test_it_works_with_a_nilearn_masker_on_images() -> None:
    maskers = pytest.importorskip("nilearn.maskers")
    import nibabel as nib

    affine = np.diag([8.0, 8.0, 8.0, 1.0])
    inside = np.zeros((6, 6, 6), dtype=np.int8)
    inside[1:5, 1:5, 1:5] = 1
    rng = np.random.default_rng(3)
    common = rng.standard_normal((64, 2))

    def image() -> nib.Nifti1Image:
        volume = np.zeros((*inside.shape, 40))
        volume[inside > 0] = common @ rng.laplace(size=(2, 40))
        return nib.Nifti1Image(volume.astype(np.float32), affine)

    masker = maskers.NiftiMasker(
        mask_img=nib.Nifti1Image(inside, affine), standardize=None, memory=None, verbose=0
    )
    model = cape.JointICA(
        2, private=False, masker=masker, settings={**SMALL, "n_components": 2, "n_basis": 20}
    ).fit([[image() for _ in range(3)] for _ in range(3)])
    assert model.components_.shape == (2, 64)
    assert model.components_img_.shape == (6, 6, 6, 2)
    assert model.transform([image()])[0].shape == (40, 2)
    pytest.importorskip("sklearn.base")
    assert model.get_params()["masker__verbose"] == 0
    model.set_params(masker__verbose=1)
    assert masker.verbose == 1


@pytest.mark.long
@FEW
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_runs(path, capsys) -> None:
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) > 2
    if path.stem == "three_hospitals":
        assert "correlation with the true maps 0." in printed


@pytest.mark.parametrize("other", [1.0, -1.0])
def test_without_noise_a_matrix_is_told_of_the_model_that_fits(other: float) -> None:
    """Sparse maps with Gaussian courses: temporal ICA gave r .67, spatial ICA .96."""
    # By skewness it gave .77 of maps of both signs, where FastICA after group PCA gave .91.
    maps, people = np.zeros((60, 3)), []
    for k in range(3):
        maps[20 * k : 20 * k + 8, k] = np.tile([1.0, other], 4)
    rng = np.random.default_rng(4)
    for _ in range(12):
        courses = rng.standard_normal((80, 3))
        people.append(courses @ maps.T + 0.7 * rng.standard_normal((80, 60)))
    consortium = cape.Consortium({s: people[i::3] for i, s in enumerate("abc")}, truth=maps)
    settings = {"n_components": 3, "min_timepoints": 40}
    with pytest.warns(CapeWarning, match="computation='capegica' fits such data better"):
        result = consortium.run(private=False, settings=settings)
    named = consortium.run(private=False, settings=settings, computation="capegica")
    assert named.map_correlation > max(0.95, result.map_correlation)


@pytest.mark.parametrize("asked", [{}, {"computation": "capecontrast", "outcomes": 1}])
def test_a_plan_of_either_kind_says_whether_a_run_starts(asked) -> None:
    """Typed programs had to ask which of two classes a plan is."""
    few, many = (
        cape.budget(subjects=people, sites=4, epsilon=1.0, **asked) for people in (24, 4000)
    )
    assert (few.usable, many.usable) == (False, True)
    assert few.refusal


def test_two_sites_are_planned_as_they_run() -> None:
    """`compare_groups` ran two tables whose plan was refused."""
    plan = cape.budget(subjects=800, sites=2, epsilon=4.0, computation="capecontrast", outcomes=1)
    assert (plan.n_sites, plan.refusal) == (2, "")
    # Settings that say n_sites are the plan of an owner, who agrees to two.
    with pytest.raises(ConfigError, match="CAPE-E152 2 sites joined, but min_sites is 3"):
        cape.budget(subjects=800, sites=2, epsilon=4.0, settings={"n_sites": 2})
    # It was E010: unknown setting 'n_components', which nobody had given.
    for asked in ({"outcomes": 1}, {"settings": {"computation": "capecontrast", "outcomes": 1}}):
        with pytest.raises(ConfigError, match=r"E012 .*components= is a number of maps"):
            cape.budget(subjects=800, sites=2, epsilon=4.0, components=4, **asked)
