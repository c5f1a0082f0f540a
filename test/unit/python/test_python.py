"""What people meet in Python: names, warnings, scikit-learn's rules, comparisons, generators.

Belongs to `cape/python/estimator.py`.
"""

import pickle
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.cli import main
from cape.errors import ConfigError

SMALL = {"min_timepoints": 30, "n_rounds": 3, "n_looks": 1}
# Of tests about runs of a dozen people under noise
NOISE = {**SMALL, "accept_low_quality": True}


def people(n: int, *, seed: int) -> list[np.ndarray]:
    """Return n arrays (T, D) with three common maps."""
    common = np.random.default_rng(5).standard_normal((3, 12))
    rng = np.random.default_rng(seed)
    return [
        rng.laplace(size=(40, 3)) @ common + 0.2 * rng.standard_normal((40, 12)) for _ in range(n)
    ]


def fitted(**more: object) -> cape.JointICA:
    model = cape.JointICA(3, private=False, settings=SMALL, **more)
    return model.fit(people(9, seed=1), groups=[1, 2, 3] * 3)


# -- warnings --------------------------------------------------------------------------------------


def test_a_run_that_will_show_noise_is_refused_unless_somebody_types_that_it_may() -> None:
    """Python and `cape simulate` accepted it by themselves, so no test saw what sites refuse."""
    consortium = cape.Consortium({s: people(4, seed=2) for s in "abc"})
    with pytest.raises(ConfigError, match="CAPE-E150"):
        consortium.run(epsilon=1.0, settings={**SMALL, "n_components": 3}, seed=1)
    with pytest.warns(cape.NoiseWarning, match="mostly show noise"):
        consortium.run(epsilon=1.0, settings={**NOISE, "n_components": 3}, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", cape.NoiseWarning)
        consortium.run(private=False, settings={**SMALL, "n_components": 3})
    for kind in (cape.NoiseWarning, cape.PrivacyWarning, cape.SubjectsWarning):
        assert issubclass(kind, cape.CapeWarning)


def _noise_said(record: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in record if issubclass(w.category, cape.NoiseWarning)]


def _folder_of_sites(root: Path) -> Path:
    for name in "abc":
        (root / name).mkdir(parents=True)
        for k, X in enumerate(people(4, seed=ord(name))):
            np.save(root / name / f"sub-{name}{k}.npy", X.T)
    return root


MATRICES = {**NOISE, "n_components": 3, "feature_space": "matrix"}
MATRICES |= {"orientation": "feature_by_time", "delta": 1e-3}


def test_noise_is_announced_once_before_a_run(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # pictures are other tests' business
    consortium = cape.Consortium({s: people(4, seed=2) for s in "abc"})
    with pytest.warns() as record:
        consortium.run(epsilon=1.0, settings={**NOISE, "n_components": 3}, seed=1)
    (said,) = _noise_said(list(record))
    assert said.startswith("too few people for this budget: the effective size is")
    folder = _folder_of_sites(tmp_path / "study")
    with pytest.warns() as record:
        cape.simulate(folder, out=tmp_path / "out", epsilon=1.0, settings=MATRICES, seed=1)
    (said,) = _noise_said(list(record))
    assert said.startswith("too few people for this budget: the effective size is")
    # `cape simulate` prints them on stderr, whatever Python's filters say.
    options = [f"--set={name}={value}" for name, value in MATRICES.items()]
    words = ["simulate", str(folder), "--out", str(tmp_path / "again"), "--quiet", *options]
    assert main([*words, "--epsilon", "1", "--seed", "1"]) == 0
    # It stood there three times: before, after and beside the results.
    printed = capsys.readouterr()
    (said,) = [s for s in (printed.err + printed.out).splitlines() if "mostly show noise" in s]
    assert said.startswith("warning: ")


def test_a_comparison_keeps_no_noise_to_itself() -> None:
    sites = {s: people(4, seed=ord(s)) for s in "abc"}
    small = {**NOISE, "n_components": 3, "delta": 1e-3}
    with pytest.warns() as record:
        cape.compare(sites, {"one": {**small, "epsilon": 2.0}, "two": {**small, "epsilon": 1.0}})
    assert len(_noise_said(list(record))) == 2


def test_no_epsilon_means_the_same_everywhere(tmp_path, monkeypatch) -> None:
    """It is refused, with the same code, by all that runs; a run without noise has a name."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # pictures are other tests' business
    sites = {s: people(4, seed=ord(s)) for s in "abc"}
    consortium = cape.Consortium(sites)
    folder = _folder_of_sites(tmp_path / "study")
    (folder / "settings.toml").write_text("n_components = 3\n", encoding="utf-8")
    settings = {**SMALL, "n_components": 3}
    ways = {
        "Consortium": lambda **asked: consortium.run(settings=settings, **asked),
        "JointICA": lambda **asked: cape.JointICA(3, settings=SMALL, **asked).fit(sites),
        "simulate": lambda **asked: cape.simulate(
            folder, out=tmp_path / "out", settings=MATRICES, **asked
        ),
    }
    for way in ways.values():
        with pytest.raises(ConfigError, match="CAPE-E013"):
            way()
        way(private=False)
    (run,) = cape.compare(sites, {"": settings}).runs
    assert "CAPE-E013" in run.reason


# -- the estimator ---------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
NAME = re.compile(r"`(check_\w+)`")


def people_as_rows() -> cape.JointICA:
    """Return an estimator that tells scikit-learn to try everything, tables of rows too."""

    class Rows(cape.JointICA):
        def __sklearn_tags__(self) -> object:
            tags = super().__sklearn_tags__()
            tags.input_tags.two_d_array = True
            return tags

    return Rows(3, private=False)


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass_or_are_listed_with_a_reason() -> None:
    """All that scikit-learn has, none left out: those that fail are exactly those of the page."""
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    if not hasattr(checks, "check_estimator_sparse_tag"):
        pytest.skip("the page lists the checks of a later scikit-learn")
    found = checks.check_estimator(people_as_rows(), on_fail=None, on_skip=None)
    status = {one["check_name"]: one["status"] for one in found}
    passed, listed = (
        {
            name
            for row in re.findall(f"^\\| {kind}[^|]* \\|.*$", PAGE, re.M)
            for name in NAME.findall(row)
        }
        for kind in ("passes", "left out")
    )
    assert {name for name, said in status.items() if said == "passed"} == passed
    assert {name for name, said in status.items() if said != "passed"} == listed


def test_scikit_learn_is_told_that_a_sample_is_a_person() -> None:
    """Its checks with tables of rows are then left out, by itself and with a warning."""
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    with pytest.warns(UserWarning, match=r"requires input\s+of type"):
        left = checks.check_estimator(cape.JointICA(3, private=False))
    assert all(one["status"] == "passed" for one in left)


def test_what_the_left_out_checks_are_about_holds_with_people() -> None:
    """Fit returns self, changes no parameter and no data, can be repeated, pickled, cut, sorted."""
    X, sites = people(9, seed=1), list("abc") * 3
    for one in X:
        one.setflags(write=False)
    model = cape.JointICA(3, private=False, settings=SMALL, random_state=0)
    before = dict(model.get_params())
    assert not hasattr(model, "n_features_in_")
    assert model.fit(X, groups=sites) is model
    assert model.get_params() == before
    assert model.n_features_in_ == 12
    maps, courses, held = model.components_.copy(), model.transform(X), set(vars(model))
    assert np.array_equal(model.fit(X, groups=sites).components_, maps)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.components_, maps)
    for seen in (again.transform(X), [model.transform([one])[0] for one in X],
                 model.transform(X[::-1])[::-1], model.transform(tuple(X)),
                 model.transform([np.asfortranarray(one) for one in X])):  # fmt: skip
        assert all(np.allclose(a, b, atol=1e-12) for a, b in zip(courses, seen, strict=True))
    (single,) = model.transform([X[0].astype(np.float32)])
    assert np.allclose(single, courses[0], atol=1e-4)
    model.score(X)
    assert set(vars(model)) == held
    sparse = pytest.importorskip("scipy.sparse").csr_array(X[0])
    for wrong in (X[0][0], X[0] + 1j, sparse, X[0][:, :5], X[0][:0]):
        with pytest.raises(ConfigError, match="E284"):
            model.transform([wrong])


@pytest.mark.filterwarnings("ignore::cape.errors.SubjectsWarning")
def test_the_estimator_works_in_a_pipeline() -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    model = cape.JointICA(3, private=False, settings=SMALL, random_state=0)
    sites = [people(3, seed=k) for k in (1, 2, 3)]
    first = pytest.importorskip("sklearn.preprocessing").FunctionTransformer(validate=False)
    piped = pipeline.make_pipeline(first, model).fit(sites)
    alone = pytest.importorskip("sklearn.base").clone(model).fit(sites)
    assert np.array_equal(piped[-1].components_, alone.components_)


def test_groups_name_the_site_of_every_person() -> None:
    X = people(9, seed=1)
    by_group = cape.JointICA(3, private=False, settings=SMALL).fit(X, groups=list("abc") * 3)
    by_name = {s: X[k::3] for k, s in enumerate("abc")}
    other = cape.JointICA(3, private=False, settings=SMALL).fit(by_name)
    assert np.array_equal(by_group.components_, other.components_)
    with pytest.raises(ConfigError, match="2 groups for 9 people"):
        cape.JointICA(3, private=False, settings=SMALL).fit(X, groups=["a", "b"])


def test_people_without_groups_are_of_one_site() -> None:
    """Every person was taken for a site; one data set in the hands of one scientist is usual."""
    X = people(9, seed=1)
    model = cape.JointICA(3, private=False, settings=SMALL)
    with pytest.warns(cape.CapeWarning, match="one site"):
        courses = model.fit_transform(X)
    assert [one.shape for one in courses] == [(len(x), 3) for x in X]
    assert model.result_.outcome.roster.n_sites == 1
    with pytest.warns(cape.CapeWarning, match="one site"):
        private = cape.JointICA(3, epsilon=900, settings=SMALL).fit(np.stack([x[:60] for x in X]))
    assert private.result_.epsilon == pytest.approx(900, rel=1e-6)


def test_time_courses_come_back_as_data_and_as_frames_with_names() -> None:
    model, X = fitted(), people(9, seed=1)
    (courses,) = model.transform(X[:1])
    (data,) = model.inverse_transform([courses])
    assert np.allclose(data @ model.unmixing_.T, courses, atol=1e-8)
    assert 0.5 < model.score(X) <= 1.0
    assert list(model.get_feature_names_out()) == ["C01", "C02", "C03"]
    pytest.importorskip("pandas")
    (frame,) = model.set_output(transform="pandas").transform(X[:1])
    assert list(frame.columns) == ["C01", "C02", "C03"]
    with pytest.raises(ValueError, match="allowed 'default', 'pandas'"):
        model.set_output(transform="arrow")


def test_without_scikit_learn_it_fits_all_the_same() -> None:
    code = (
        "import sys; sys.modules['sklearn'] = None; import cape, numpy as np;"
        "rng = np.random.default_rng(1);"
        "people = [rng.laplace(size=(60, 3)) @ rng.standard_normal((3, 9)) for _ in range(6)];"
        "model = cape.JointICA(3, private=False, settings={'min_timepoints': 40});"
        "courses = model.fit_transform({'a': people[:3], 'b': people[3:]});"
        "print(len(courses), *courses[0].shape);"
        "print(cape.JointICA(**model.get_params()).set_params(n_components=4));"
        "print(cape.JointICA()._repr_mimebundle_())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, second, third = done.stdout.splitlines()
    assert first == "6 60 3"
    # It was <cape.python.estimator.JointICA object at 0x7f...>.
    shown = "JointICA(n_components=4, private=False, settings={'min_timepoints': 40})"
    assert (second, third) == (shown, "{'text/plain': 'JointICA()'}")


# -- comparisons and generators --------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::cape.errors.SubjectsWarning")
def test_a_comparison_is_a_table_and_a_refused_run_is_a_row_of_it() -> None:
    study = cape.datasets.make_study("paper", n_subjects=9, n_components=3, n_timepoints=60, seed=4)
    runs = {
        "open": {"n_components": 3, "private": False, **SMALL},
        "forgotten": {"n_components": 3, **SMALL},
        "djica": {"computation": "djica", "n_components": 3, "min_timepoints": 30},
        "pca": {"computation": "capepca", "epsilon": 1.0, "nonsense": 3},
    }
    ended: list[str] = []
    table = cape.compare(
        study.sites(3), runs, space=study.space, truth=study.maps, seed=1,
        on_run=lambda run: ended.append(run.name),
    )  # fmt: skip
    assert ended == list(runs)
    assert [run.status == "refused" for run in table.runs] == [False, True, False, True]
    assert "E013" in table["forgotten"].reason
    assert "  CAPE-E013" in repr(table)  # the table said "refused", and not why
    assert 0.0 < table["open"].result.map_correlation <= 1.0
    assert "NOT PRIVATE" in repr(table["open"].result)
    assert len(repr(table).splitlines()) == 5
    pytest.importorskip("pandas")
    assert list(table.to_dataframe().index) == list(runs)
    assert table["open"].result.to_dataframe().shape == (900, 3)
    pytest.importorskip("matplotlib")
    assert len(table["open"].result.plot().axes) == 3


def test_a_study_is_the_same_every_time_and_names_its_presets() -> None:
    one, two = (cape.datasets.make_study(n_subjects=3, n_components=2, seed=3) for _ in range(2))
    for x, y in zip(one.subjects(), two.subjects(), strict=True):
        assert np.array_equal(x, y)
        assert x.shape == (250, 900)
    assert one.sources.shape == (3, 250, 2)
    assert sorted(map(len, one.sites(2).values())) == [1, 2]
    assert "realistic: 3 subjects, 2 maps of 900 pixels" in repr(one)
    with pytest.raises(ConfigError, match="preset=other: allowed paper, realistic"):
        cape.datasets.make_study("other", n_subjects=3, seed=1)


# -- progress --------------------------------------------------------------------------------------


def run_with(bar: cape.ProgressBar) -> None:
    consortium = cape.Consortium({s: people(3, seed=ord(s)) for s in "abc"})
    consortium.run(private=False, settings={**SMALL, "n_components": 3}, on_progress=bar)


def test_a_bar_on_a_terminal_is_one_line_that_grows_and_ends(capsys) -> None:
    run_with(cape.ProgressBar())
    said = capsys.readouterr()
    assert said.out == ""
    shown = said.err.split("\r")[1:]
    filled = [text.count("#") for text in shown]
    assert filled == sorted(filled)
    assert filled[0] > 0
    assert filled[-1] == 30
    assert [text.endswith("\n") for text in shown] == [False] * (len(shown) - 1) + [True]
    assert "report 1/1, no noise" in shown[-1]


def test_a_bar_in_a_notebook_is_drawn_once_in_each_cell_and_written_over(monkeypatch, capsys):
    drawn: list[list[str]] = []

    def display(first: str, *, display_id: bool) -> object:
        assert display_id
        drawn.append([first])
        return types.SimpleNamespace(update=drawn[-1].append)

    notebook = types.ModuleType("IPython")
    notebook.get_ipython = lambda: types.SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    inner = types.ModuleType("IPython.display")
    inner.HTML, inner.display = str, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    monkeypatch.setitem(sys.modules, "IPython.display", inner)
    bar = cape.ProgressBar()
    run_with(bar)
    run_with(bar)
    assert len(drawn) == 2
    assert drawn[0] == drawn[1]
    done = [int(re.search(r'value="(\d+)"', text)[1]) for text in drawn[0]]  # type: ignore[index]
    assert done == list(range(1, len(done) + 1))
    assert f'max="{len(done)}"' in drawn[0][-1]
    assert capsys.readouterr().err == ""


# -- privacy as arguments --------------------------------------------------------------------------

TABLES = {"a": {"dx": ["control", "SZ"], "volume": [1.0, 2.0]}}
QUESTION = {"variables": {"dx": ["control", "SZ"]}, "outcomes": {"volume": (0, 3)}}
DOORS = {
    "fit": lambda **how: cape.JointICA(3, **how).fit(people(3, seed=1)),
    "run": lambda **how: cape.Consortium(people(3, seed=1)).run(**how),
    "simulate": lambda **how: cape.simulate(Path(), out="out", **how),
    "compare_groups": lambda **how: cape.compare_groups(TABLES, "dx", **QUESTION, **how),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_run_without_noise_is_asked_for_by_false_alone_and_has_no_epsilon(door) -> None:
    """JointICA(3, private=None, epsilon=8.) ran without noise, and so did epsilon= with False."""
    for private in (0, "", "no", 1):
        with pytest.raises(ConfigError, match=f"E011 private={private!r}: allowed True, False or"):
            DOORS[door](private=private, epsilon=8.0)
    for how in ({"private": False}, {"private": np.False_}, {"settings": {"private": False}}):
        with pytest.raises(ConfigError, match=r"E012 .*; drop one of them"):
            DOORS[door](epsilon=8.0, **how)


def test_nothing_said_of_privacy_is_private() -> None:
    for private in ({}, {"private": None}, {"private": True}):
        with pytest.raises(ConfigError, match="CAPE-E013"):
            cape.JointICA(3, **private).fit(people(3, seed=1))
