"""Whichever door of Python: the same words mean the same, and what cannot be meant is refused.

A new user typed every door; each test is something that a door read in a way of its own.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape
from cape.errors import CapeError, ConfigError, SubjectsWarning
from cape.settings.config import Config

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")
T, D = 60, 9
MIX = np.random.default_rng(0).standard_normal((2, D))
SETTINGS = {"n_components": 2, "n_rounds": 2, "n_looks": 1, "min_timepoints": 30}
NAMES = [f"area {k}" for k in range(D)]
UNITS = 10.0 ** np.arange(-4, 5)
DRIFT = UNITS * np.linspace(0, 3, T)[:, None]


def person(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.laplace(size=(T, 2)) @ MIX + 0.1 * rng.standard_normal((T, D))


PEOPLE = [person(m) for m in range(6)]
N = 40
TABLE = {
    "dx": ["control", "SZ"] * (N // 2),
    "volume": np.linspace(3000, 5000, N)[np.random.default_rng(1).permutation(N)],
}
QUESTION = {
    "variables": {"dx": ["control", "SZ"]},
    "outcomes": {"volume": (2500, 5500)},
    "public": "dx",
}


def fitted(X: Any, **given: Any) -> Any:
    groups = given.pop("groups", None)
    settings = {**SETTINGS, **given.pop("settings", {})}
    return cape.JointICA(private=False, settings=settings, **given).fit(X, groups=groups).result_


def ran(sites: Any, **given: Any) -> Any:
    how = {"private": False, **given, "settings": {**SETTINGS, **given.get("settings", {})}}
    return cape.Consortium(sites).run(**how)


def compared(sites: Any, formula: str = "dx", **given: Any) -> Any:
    return cape.compare_groups(sites, formula, **{"private": False, **QUESTION, **given})


ROADS: dict[str, Callable[[str], object]] = {
    "JointICA": lambda name: fitted({name: PEOPLE[:3], "b": PEOPLE[3:]}),
    "groups": lambda name: fitted(PEOPLE, groups=[name] * 3 + ["b"] * 3),
    "Consortium": lambda name: cape.Consortium({name: PEOPLE[:3], "b": PEOPLE[3:]}),
    "compare": lambda name: cape.compare({name: PEOPLE[:3], "b": PEOPLE[3:]}, {}),
    "compare_groups": lambda name: compared({name: TABLE, "b": TABLE}),
    "settings": lambda name: Config.from_input({"private": False, "site_names": f"{name};b"}),
}


@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize(
    "name", ["../../escape", "Lab/North", "..", "a\\b", ".b", "remote", "a\tb"]
)
def test_a_site_has_the_name_of_one_folder(road: str, name: str, tmp_path, monkeypatch) -> None:
    """A table of people was left, readable to all, two folders above the temporary one."""
    scratch = tmp_path / "x" / "y" / "z"
    scratch.mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    name = name if road != "settings" else f"{name},{name}2"
    with pytest.raises(ConfigError, match=r"none with / \\ or a comma") as caught:
        ROADS[road](name)
    assert caught.value.code in ("CAPE-E284", "CAPE-E011")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_site_of_groups_has_no_name_that_folders_of_sites_leave_out() -> None:
    """'work' and 'out' are no sites below a folder: such a table was left out."""
    for name in ("work", "Out", "_a"):
        with pytest.raises(ConfigError, match=f"a site called '{name}'; rename it"):
            compared({name: TABLE, "b": TABLE})


def test_sites_may_be_numbers() -> None:
    """As groups= has them; {1: ...} was a TypeError."""
    assert repr(cape.Consortium({1: PEOPLE[:3], 2: PEOPLE[3:]})) == (
        "<Consortium of 1: 3 people, 2: 3 people>"
    )
    assert set(compared({1: TABLE, 2: TABLE}).table("sites").site) == {"1", "2"}


@pytest.fixture(scope="module")
def labs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("labs")
    for m, X in enumerate(PEOPLE):
        path = folder / "abc"[m // 2] / f"sub-{m:02}.csv"
        path.parent.mkdir(exist_ok=True)
        pd.DataFrame(X, columns=NAMES).to_csv(path, index=False)
    return folder


SITES_OF: dict[str, Callable[[Path], Any]] = {
    "the folder of all": lambda folder: folder,
    "their folders": lambda folder: sorted(folder.iterdir()),
    "folders by name": lambda folder: {path.name: path for path in sorted(folder.iterdir())},
    "their files": lambda folder: {p.name: sorted(p.iterdir()) for p in sorted(folder.iterdir())},
}


@pytest.mark.parametrize("form", SITES_OF)
def test_a_folder_of_sites_is_its_sites_as_for_a_simulation(form: str, labs: Path) -> None:
    """JointICA(3).fit("labs") made one site of three hospitals."""
    X = SITES_OF[form](labs)
    want = [(check, 2) for check in "abc"]
    for result in (fitted(X), ran(X)):
        assert [(one.site, one.n_subjects) for one in result.outcome.roster.sites] == want
    if form != "their files":
        model = cape.JointICA(2, private=False, settings=SETTINGS, random_state=1).fit(X)
        by_array = model.transform(PEOPLE)
        for courses in (model.transform(X), model.fit_transform(X)) if form[0] == "t" else ():
            np.testing.assert_allclose(courses, by_array, atol=1e-4)


def test_folders_fit_a_model_of_arrays(labs: Path) -> None:
    """'A matrix seems to be transposed', because the fit had no folders."""
    model = cape.JointICA(2, private=False, settings=SETTINGS).fit(PEOPLE)
    np.testing.assert_allclose(model.transform(labs / "a"), model.transform(PEOPLE[:2]), atol=1e-4)
    np.testing.assert_allclose(
        model.transform([labs / "c"]), model.transform(PEOPLE[4:]), atol=1e-4
    )


def test_time_courses_are_those_of_a_sites_own_files(labs: Path, tmp_path) -> None:
    """`transform` only centred what the fit had also scaled, feature by feature."""
    tables = tmp_path / "labs"
    for m, X in enumerate(PEOPLE):
        path = tables / "abc"[m // 2] / f"sub-{m:02}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(X * UNITS + DRIFT, columns=NAMES).to_csv(path, index=False)
    settings = {**SETTINGS, "orientation": "time_by_feature", "feature_space": "matrix"}
    cape.simulate(tables, private=False, settings=settings, out=tmp_path / "out")
    model = cape.JointICA(2, private=False, settings=settings).fit(tables)
    files = sorted(tmp_path.glob("out/*/private/sub-*/**/*timeseries.tsv"))
    own = [pd.read_csv(path, sep="\t")[["C01", "C02"]].to_numpy() for path in files]
    courses = model.transform(tables)
    assert len(own) == len(courses) == len(PEOPLE)
    for one, two in zip(own, courses, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-3 * np.abs(one).max())


def test_time_courses_do_not_depend_on_units_or_a_drift() -> None:
    one, two = (
        cape.JointICA(2, private=False, settings=SETTINGS).fit_transform(X)
        for X in (PEOPLE, [X * UNITS + DRIFT for X in PEOPLE])
    )
    np.testing.assert_allclose(one, two, atol=1e-3)


@pytest.mark.parametrize("door", [fitted, ran])
def test_several_sites_are_not_one(door: Callable[..., Any], labs: Path) -> None:
    for X in ([labs], {"all": labs}):
        with pytest.raises(ConfigError, match="given as one site, holds 3: a, b, c; give it alone"):
            door(X)
    with pytest.raises(ConfigError, match="groups= with people who are not in a list"):
        fitted(labs, groups=["a"] * 6)
    with pytest.raises(ConfigError, match="groups= with people who are not in a list"):
        fitted({"a": PEOPLE}, groups=["a"] * 6)
    for nobody in (None, float("nan"), pd.NA, ""):
        with pytest.raises(ConfigError, match=r"a site called .* of person 4 in groups="):
            fitted(PEOPLE, groups=["a"] * 3 + [nobody] * 3)


ONE, MANY = {"a": PEOPLE}, {"subjects": 90, "sites": 3}
TWICE: dict[str, Callable[[], object]] = {
    "maps of JointICA": lambda: fitted(PEOPLE, n_components=3, settings={"n_components": 2}),
    "formula": lambda: compared(TABLE, "dx", settings={"formula": "1"}),
    "outcomes": lambda: compared(TABLE, "dx", settings={"outcomes": {"volume": (1, 9)}}),
    "delta of groups": lambda: compared(TABLE, delta=1e-6, settings={"delta": 1e-7}),
    "test": lambda: compared(TABLE, test="pattern", settings={"test": "each"}),
    "budget": lambda: cape.budget(**MANY, epsilon=100, settings={"epsilon": 8}),
    "maps of a budget": lambda: cape.budget(
        **MANY, epsilon=8, components=3, settings={"n_components": 5}
    ),
    "run": lambda: ran(ONE, private=None, epsilon=100, settings={"epsilon": 8}),
    "noise": lambda: ran(ONE, private=True, settings={"private": False}),
    "computation": lambda: ran(ONE, computation="capegica", settings={"computation": "capedjica"}),
    "delta": lambda: ran(ONE, delta=1e-6, settings={"delta": 1e-7}),
    "budget of a consortium": lambda: cape.Consortium(ONE).budget(
        epsilon=100, settings={"epsilon": 8}
    ),
    "simulate": lambda: cape.simulate(".", out="o", epsilon=100, settings={"epsilon": 8}),
    "features": lambda: ran(ONE, settings={"n_features": D + 1}),
}


@pytest.mark.parametrize("way", TWICE)
def test_an_argument_and_a_setting_that_differ_are_refused(way: str) -> None:
    """Here the argument won, there the setting, without a word: epsilon 100 was planned as 8."""
    with pytest.raises(ConfigError, match=r"E012 .*, and settings say .*; drop one of them"):
        TWICE[way]()


def test_an_argument_and_a_setting_that_agree_are_one() -> None:
    given = {"n_components": 2, "computation": "capedjica"}
    assert fitted(PEOPLE, n_components=2, settings=given).outcome.computation == "capedjica"
    assert ran(ONE, settings={"computation": "capedjica"}).outcome.computation == "capedjica"
    assert compared(TABLE, settings={"formula": "dx", "outcomes": QUESTION["outcomes"]}).comparison


def test_a_question_in_words_of_python_is_one_for_a_budget() -> None:
    """What compare_groups takes was 'allowed a text' in the settings of a budget."""
    asked = {**QUESTION, "computation": "capecontrast", "formula": "dx", "public": ["dx"]}
    plan = cape.budget(subjects=900, sites=3, epsilon=4.0, settings=asked)
    assert plan.usable


def test_maps_that_nobody_counted_are_as_many_as_the_data_allow() -> None:
    """JointICA(0) of 6 people with 9 columns: 'n_components=20 needs more'."""
    few = {name: value for name, value in SETTINGS.items() if name != "n_components"}
    model = cape.JointICA(private=False, settings=few).fit(PEOPLE)
    assert model.components_.shape == (2, D)
    assert cape.Consortium(ONE).budget(epsilon=8.0, settings=few).n_components == 2


@pytest.mark.parametrize("door", ["JointICA", "Consortium", "compare"])
def test_a_list_of_files_has_the_variable_of_the_settings(door: str, tmp_path) -> None:
    """Their folder obeyed it; a list said that X is missing, and did not name the setting."""
    savemat = pytest.importorskip("scipy.io").savemat
    for m, X in enumerate(PEOPLE):
        savemat(tmp_path / f"sub-{m}.mat", {"signals": X, "motion": np.zeros((T, 6))})
    files, named = sorted(tmp_path.iterdir()), {**SETTINGS, "variable": "signals"}
    doors: dict[str, Callable[[dict[str, Any]], Any]] = {
        "JointICA": lambda how: fitted(files, settings=how, random_state=1),
        "Consortium": lambda how: cape.Consortium(files, settings=how).run(
            private=False, settings=SETTINGS, seed=1
        ),
        "compare": lambda how: (
            cape.compare(files, {"x": {"private": False, **how}}, seed=1)["x"].result
        ),
    }
    with pytest.raises(ConfigError, match=r"or name the one to read in settings= \(variable\)"):
        doors[door](SETTINGS)
    of_folder = fitted(tmp_path, settings=named, random_state=1)
    np.testing.assert_allclose(doors[door](named).maps, of_folder.maps, rtol=1e-4, atol=1e-4)
    if door == "Consortium":
        read = cape.Consortium(files, settings=named)
        with pytest.raises(ConfigError, match=r"E012 .*variable = motion, and the files of"):
            read.run(private=False, settings={**SETTINGS, "variable": "motion"})


NO_PEOPLE: dict[str, tuple[Callable[[], object], str]] = {
    "a folder that is not there": (lambda: "csvv", "no folder or file csvv; correct the name"),
    "a pattern": (lambda: "csv/*.csv", r"sorted\(glob.glob\('csv/\*.csv'\)\)"),
    "one person": (lambda: PEOPLE[0], r"one array of shape \(60, 9\), not a list"),
    "one person as a site": (lambda: {"sub-1": PEOPLE[0]}, "site sub-1 is one array of shape"),
    "one frame as a site": (lambda: {"a": pd.DataFrame(PEOPLE[0])}, "site a is one frame, not a"),
    "a long frame": (lambda: pd.DataFrame(PEOPLE[0]), r"df.groupby\('subject'\)"),
    "nothing": (lambda: None, "people as NoneType; give a list"),
    "a number": (lambda: 3, "people as int; give a list"),
    "workbooks": (lambda: ["sub-1.xlsx"], "sub-1.xlsx, a workbook; save its sheet as .csv"),
    "nobody": (lambda: [], "without"),
    "other columns": (
        lambda: [*PEOPLE[:4], *(X[:, 1:] for X in PEOPLE[4:])],
        "person 5 and 1 more of 6, with 8; give",
    ),
}


@pytest.mark.parametrize("case", NO_PEOPLE)
def test_what_is_no_list_of_people_is_said_by_its_name(case: str) -> None:
    make, words = NO_PEOPLE[case]
    for door in (fitted, ran, cape.JointICA(2, private=False, settings=SETTINGS).fit):
        with pytest.raises(ConfigError, match=f"E284 .*{words}"):
            door(make())
    if not isinstance(make(), dict):
        model = cape.JointICA(2, private=False, settings=SETTINGS).fit(PEOPLE)
        with pytest.raises(ConfigError, match="E284"):
            model.transform(make())


BUDGETS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "tables": lambda: (
        cape.budget(**MANY, epsilon=8, components=3, features=D),
        cape.budget(
            **MANY,
            epsilon=8,
            settings={"feature_space": "matrix", "n_features": D, "n_components": 3},
        ),
    ),
    "outcomes": lambda: (
        cape.budget(**MANY, epsilon=8, outcomes=2),
        cape.budget(**MANY, epsilon=8, outcomes=2, computation="capecontrast"),
    ),
}


@pytest.mark.parametrize("case", BUDGETS)
def test_a_budget_is_of_what_is_asked(case: str) -> None:
    """Tables of regions were forecast as images of brains; outcomes= alone was dropped."""
    said, in_settings = BUDGETS[case]()
    assert str(said) == str(in_settings)
    assert "of brains" not in str(said)
    assert case != "tables" or "3 components of tables" in repr(said)


def test_maps_of_few_columns_that_nobody_counted_are_planned_as_they_run() -> None:
    """12 columns ended in "n_components=20: allowed 2 to 12", and nobody had said 20."""
    plan = cape.budget(subjects=500, sites=2, epsilon=1.0, features=12, computation="capedjica")
    assert 2 <= plan.n_components <= 12


def test_outcomes_belong_to_a_comparison() -> None:
    with pytest.raises(ConfigError, match=r"E012 .*outcomes= belongs to capecontrast, not to"):
        cape.budget(**MANY, epsilon=8, outcomes=2, computation="capegica")


def test_what_was_measured_of_twelve_maps_is_not_said_of_three() -> None:
    """3, 5 and 20 components all gave 'about 9 of 12 maps are expected to be networks'."""
    few, chosen = (cape.budget(**MANY, epsilon=8, components=n).advice for n in (3, 15))
    assert chosen.networks == "12 of 15"
    assert "about 12 of 15 maps are expected to be networks" in chosen.reason
    assert few.networks == ""
    assert "12 of 15 maps of such a run were networks" in few.reason
    assert few.reason.endswith("of 3 nothing was measured")


def test_a_budget_says_how_well_the_headline_knows_a_size() -> None:
    """It spoke of the estimate's error, .080 sd; the headline's d has that of the sd, too: .12.

    Relation 11: within 15 %.  Seeds make the runs the same every time.
    """
    rng = np.random.default_rng(2)
    sites = {}
    for name in ("north", "south", "west"):
        patient = rng.random(300) < 0.4
        volume = 4000 + 400 * (rng.standard_normal(300) - 0.8 * patient)
        sites[name] = {"dx": np.where(patient, "SZ", "control"), "volume": volume}
    asked = {"computation": "capecontrast", "formula": "dx", **QUESTION}
    plan = cape.budget(subjects=900, sites=3, epsilon=4.0, settings=asked)
    assert "; one of 0.5 sd is given as 0.5 [0.3" in plan.answer
    (term,), found = plan.terms, []
    for seed in range(9):
        (row,) = compared(sites, private=True, epsilon=4.0, seed=seed).comparison.effects
        found.append((abs(row.d), (row.d_high95 - row.d_low95) / 2 / 1.96))
    d, error = np.median(found, axis=0)
    assert 0.85 < error / np.interp(d, plan.effects, term.sizes) < 1.15
    assert term.sizes[-1] > 1.2 * term.se


GAPS = ["", "NaN", "nan", "n/a", "NA"]


@pytest.mark.parametrize("cell", GAPS)
def test_a_table_of_regions_has_gaps_as_a_frame_has(cell: str, tmp_path) -> None:
    """One empty cell, as pandas writes NaN, stopped a whole site; the frame itself was taken."""
    frames = [pd.DataFrame(np.tile(X, (3, 1)), columns=NAMES) for X in PEOPLE]
    frames[2].iloc[3, 1] = np.nan
    files = [tmp_path / f"sub-{m}.csv" for m in range(6)]
    for frame, file in zip(frames, files, strict=True):
        frame.to_csv(file, index=False, na_rep=cell)
    given = [fitted(X, random_state=1) for X in (frames, files, tmp_path)]
    for other in given:
        assert other.counted.counted == other.counted.listed == 6
        np.testing.assert_allclose(other.maps, given[0].maps, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("header", [True, False])
def test_regions_may_be_rows_with_their_names(header: bool, tmp_path) -> None:
    """'A cell is not a number: Hippocampus R', whatever the orientation said."""
    for m, X in enumerate(PEOPLE):
        frame = pd.DataFrame(X.T, index=[f"Area {name}" for name in "abcdefghi"])
        frame.to_csv(tmp_path / f"sub-{m}.csv", header=header)
    files, turned = sorted(tmp_path.iterdir()), {"orientation": "feature_by_time"}
    for door in (fitted, ran):
        with pytest.raises(ConfigError, match=r"seems to be transposed .*the first column has nam"):
            door(files)
    model = cape.JointICA(2, private=False, settings=SETTINGS | turned, random_state=1).fit(files)
    assert list(model.feature_names_in_) == [f"Area {name}" for name in "abcdefghi"]
    by_array = fitted(PEOPLE, n_components=2, random_state=1)
    np.testing.assert_allclose(model.result_.maps, by_array.maps, rtol=1e-4, atol=1e-4)
    of_folder = fitted(tmp_path, settings=turned, random_state=1)
    np.testing.assert_allclose(of_folder.maps, by_array.maps, rtol=1e-4, atol=1e-4)


def test_a_column_that_nobody_has_is_named() -> None:
    """'Too many NaN ... convert it again', of a region that no scan covers."""
    frames = [pd.DataFrame(X, columns=NAMES).assign(**{"area 3": np.nan}) for X in PEOPLE]
    with pytest.raises(ConfigError, match="column 'area 3' has no value in 6 of 6 people"):
        fitted(frames)
    holed = [frames[0], *(pd.DataFrame(X, columns=NAMES) for X in PEOPLE[1:])]
    with pytest.warns(SubjectsWarning, match="column 'area 3' has no value in 1 of 6 people"):
        assert fitted(holed).counted.counted == 5
    model = cape.JointICA(2, private=False, settings=SETTINGS).fit(PEOPLE)
    with pytest.raises(ConfigError, match="E284 person 2 has no values or too many"):
        model.transform([PEOPLE[0], np.where(np.arange(D) == 3, np.nan, PEOPLE[1])])


RUNS: dict[str, Callable[[], object]] = {
    "JointICA": lambda: cape.JointICA(2, private=False, settings=SETTINGS).fit(PEOPLE),
    "Consortium": lambda: ran({"a": PEOPLE}),
    "compare_groups": lambda: compared({"a": {**TABLE, "volume": [np.nan, *TABLE["volume"][1:]]}}),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_warning_points_at_the_line_of_the_caller(run: str) -> None:
    """They pointed into the package (people.py:353)."""
    with pytest.warns(cape.CapeWarning) as told:
        RUNS[run]()
    assert {Path(one.filename).name for one in told} == {Path(__file__).name}


def test_a_seed_says_that_it_protects_nobody() -> None:
    with pytest.warns(cape.PrivacyWarning, match="with a seed .*NOT PRIVATE"):
        ran({"a": PEOPLE}, private=True, epsilon=900.0, seed=1)


def test_a_table_with_a_column_of_sites_is_one_site_and_says_so() -> None:
    table = {**TABLE, "Site": ["north"] * N}
    with pytest.warns(cape.CapeWarning, match="one table is one site, and its column Site makes"):
        compared(pd.DataFrame(table))


def test_names_of_tables_are_their_frames(tmp_path) -> None:
    """Names of .csv by site were 'sites that are not tables'."""
    sites = {name: pd.DataFrame(TABLE) for name in ("a", "b")}
    for name, frame in sites.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {name: tmp_path / f"{name}.csv" for name in sites}
    assert compared(files).comparison == compared(sites).comparison
    with pytest.raises(ConfigError, match=r"no file .*gone.csv"):
        compared({"a": tmp_path / "gone.csv"})
    with pytest.raises(ConfigError, match="sites that are not tables; give a data frame"):
        compared({})


def test_what_is_no_folder_no_function_and_no_fit_is_said_so() -> None:
    with pytest.raises(ConfigError, match="E284 no folder nope"):
        cape.validate("nope")
    with pytest.raises(ConfigError, match="on_progress=True, which cannot be called"):
        ran({"a": PEOPLE}, on_progress=True)
    with pytest.raises(ConfigError, match=r"settings=.a.toml.: allowed a mapping"):
        cape.JointICA(2, private=False, settings="a.toml").fit(PEOPLE)
    with pytest.raises(ConfigError, match="runs that are no settings by name"):
        cape.compare({"a": PEOPLE}, [SETTINGS])
    with pytest.raises(ConfigError, match=r"truth= of shape \(2, 9\) for 9 features"):
        cape.Consortium({"a": PEOPLE}, truth=MIX)
    with pytest.raises(ConfigError, match="space= of 9 features in an image of"):
        cape.Consortium({"a": PEOPLE}, space=cape.FeatureSpace.of_matrix(9, (3, 4)))
    exceptions = pytest.importorskip("sklearn.exceptions")
    with pytest.raises(exceptions.NotFittedError, match=r"E284 .*call fit first"):
        cape.JointICA(2).transform(PEOPLE)


def test_a_finished_comparison_is_given_up_as_its_error_says(tmp_path) -> None:
    """'Give it up with replace=True', which compare_groups had not."""
    compared(TABLE, out=tmp_path / "out")
    with pytest.raises(ConfigError, match="or give it up with replace=True"):
        compared(TABLE, out=tmp_path / "out")
    assert compared(TABLE, out=tmp_path / "out", replace=True).folder


def test_an_outcome_in_another_unit_says_the_range_to_write() -> None:
    """It proposed as_it_is=, with which nothing is said of any outcome and epsilon is spent."""
    litres = {**TABLE, "volume": np.asarray(TABLE["volume"]) / 1e6}
    with pytest.raises(CapeError) as told:
        compared(litres)
    said = "give outcomes={'volume': (0.0025, 0.0055)} if all sites have that unit, or multiply"
    assert said in str(told.value)
    assert "as_it_is" not in str(told.value)
    assert compared(litres, outcomes={"volume": (0.0025, 0.0055)}).comparison.effects[0].d


def test_a_range_that_is_much_too_wide_is_told_before_the_charge() -> None:
    """'Too many people have the same value, such as 0' was said after it, and nobody had 0."""
    with pytest.warns(SubjectsWarning, match="40 of 40 are within a hundredth of 0:3e\\+06"):
        compared(TABLE, outcomes={"volume": (0, 3_000_000)})
