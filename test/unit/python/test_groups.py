"""`cape.compare_groups`: whole protocol runs from tables in this process."""

import warnings
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.errors import CapeError, ConfigError, DataError, LabelsWarning, SubjectsWarning
from cape.python.groups import _write_table as write_table
from cape.python.question_words import column_words

QUESTION = {
    "variables": {"dx": ["control", "SZ"], "age": (18, 90), "sex": ["one", "two"]},
    "outcomes": {"hippocampus": (2500, 5500)},
    "public": "dx",
}
FORMULA = "dx + age + sex"


def study(n_sites: int, n_people: int, effect: float, seed: int = 3) -> dict[str, dict]:
    """Tables of sites of unlike age and volume: patients differ by `effect` sd of 400 mm3."""
    rng = np.random.default_rng(seed)
    tables = {}
    for s in range(n_sites):
        n = n_people // n_sites
        patient = rng.random(n) < 0.3 + 0.1 * s
        age = np.clip(45 + 3 * s - 3 * patient + 12 * rng.standard_normal(n), 18, 90)
        sex = np.where(rng.random(n) < 0.5, "one", "two")
        u = effect * patient - 0.02 * (age - 45) + 0.3 * s + rng.standard_normal(n)
        dx = np.where(patient, "SZ", "control")
        tables[f"site{s}"] = {"dx": dx, "age": age, "sex": sex, "hippocampus": 4000 + 400 * u}
    return tables


def ask(sites, formula: str = FORMULA, **how) -> cape.GroupResult:
    return cape.compare_groups(sites, formula, **{**QUESTION, "epsilon": 4.0, **how})


@pytest.mark.long
def test_what_is_planted_is_found_with_its_files(tmp_path: Path) -> None:
    found = ask(study(4, 1000, 0.6), out=tmp_path / "out", seed=7)
    assert "SZ and control differ in hippocampus" in found.sentence
    (row,) = found.comparison.effects
    # Twice the interval of 95 %: a false alarm in fewer than 1e-4 of draws.
    assert abs(row.d - 0.6) < row.d_high95 - row.d_low95
    assert found.folder == tmp_path / "out" / "consortium"
    assert (found.folder / "effects.tsv").is_file()
    own = (tmp_path / "out" / "site0" / "private" / "people.tsv").read_text().splitlines()
    assert own[0] == "subject\tasked\tdx\tage\tsex\thippocampus"
    assert own[1].split("\t")[2] in ("control", "SZ")
    assert not found.private  # seeded
    assert "NOT PRIVATE" in repr(found)
    assert found.effects.contrast.tolist() == ["SZ - control"]
    assert found.effects.d[0] == pytest.approx(row.d)
    assert found.table("sites").people.sum() == 1000


def test_where_nothing_is_planted_nothing_is_claimed() -> None:
    found = ask(study(4, 1000, 0.0))
    (row,) = found.comparison.effects
    assert not row.found or row.p > 0.001  # a false alarm in .001 of draws
    assert found.private
    assert found.epsilon == pytest.approx(4.0, rel=1e-3)
    assert found.folder is None
    assert "epsilon 4" in repr(found)


def test_a_folder_is_compared_too(tmp_path: Path) -> None:
    for name, columns in study(3, 600, 1.0).items():
        names = [f"p{i}" for i in range(len(columns["dx"]))]
        write_table(tmp_path / name, {"participant_id": names, **columns}, count(1))
    found = ask(tmp_path, epsilon=8.0, settings={"min_sites": 3})
    (row,) = found.comparison.effects
    # Twice the interval of 95 %: a false alarm in fewer than 1e-4 of draws.
    assert abs(row.d - 1.0) < row.d_high95 - row.d_low95
    mean = next(row for row in found.comparison.means if row.group == "all")
    assert mean.mean == pytest.approx(4200, abs=150)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"dx": ["control", "SZ"], "age": (18, 90)}, "dx control/SZ, age 18:90"),
        ({"left hippo": (2.5, 5.5)}, '"left hippo" 2.5:5.5'),
        ({"log(wmh)": (0.1, 100)}, "log(wmh) 0.1:100"),
        ({"log(left wmh)": (0.1, 100)}, 'log("left wmh") 0.1:100'),
        ({"smoker": ["0", "1"]}, 'smoker "0"/"1"'),
        ({"dx": ["healthy control", "SZ"]}, 'dx "healthy control"/SZ'),
        ("dx control/SZ", "dx control/SZ"),
        ({"age": (np.int64(18), np.float64(90))}, "age 18:90.0"),
        ({"dx": np.array(["control", "SZ"])}, "dx control/SZ"),
    ],
)
def test_columns_are_written_as_the_settings_read_them(columns, words: str) -> None:
    assert column_words("variables", columns) == words


@pytest.mark.parametrize(
    ("ends", "do"),
    [
        ([18, 80], "write (18, 80) for a range, ['18', '80'] for levels"),
        (np.array([18, 80]), "write (18, 80) for a range, ['18', '80'] for levels"),
        ([0, 1, 2], "write (18, 90) for a range, ['18', '90'] for levels"),
        ((1, 2, 3), "write (18, 90)"),
        ("control/SZ", "write ['control', 'SZ']."),
        ({"control", "SZ"}, "give a list: the first is the reference"),
        *((none, "a range as a tuple") for none in (80, None, {}, [], ["SZ", None])),
    ],
)
def test_what_is_no_range_and_no_levels_is_refused_with_what_to_write(ends, do) -> None:
    """A set had another reference in every process; a number was a TypeError."""
    with pytest.raises(ConfigError, match=r"E011 variables.'age'.=") as caught:
        column_words("variables", {"age": ends})
    assert do in str(caught.value)


@pytest.mark.parametrize("ends", [[3, 6], 5500, None, "3:6", ("3", "6"), (3, None), {3, 6}])
def test_outcomes_have_ranges_alone(ends) -> None:
    with pytest.raises(ConfigError, match=r"E011 outcomes.'h'.=") as caught:
        column_words("outcomes", {"h": ends})
    do = "(3, 6)" if ends == [3, 6] else "(2500, 5500)"
    assert f"allowed a range as a tuple; write {do} for a range." in str(caught.value)


def test_rows_of_people_as_a_range_are_not_shown() -> None:
    with pytest.raises(ConfigError, match="ndarray") as caught:
        column_words("variables", {"age": np.linspace(18.5, 90, 40)})
    assert "18.5" not in str(caught.value)


@pytest.mark.parametrize("columns", [{"dx": ["SZ"], "hippocampus": [1.0, 2.0]}, {"dx": []}])
def test_tables_without_a_row_for_everybody_are_refused(columns) -> None:
    with pytest.raises(CapeError, match="E284"):
        ask({"a": columns})


def test_sessions_need_names_of_people() -> None:
    with pytest.raises(CapeError, match="site0 has no column participant_id, session_id"):
        ask(study(3, 60, 0.0), change=("ses-1", "ses-2"))


def test_what_cannot_be_asked_is_said_in_words_of_python_without_rows_of_people() -> None:
    """An error once printed every row of a list of tables, or was an AttributeError."""
    tables = study(3, 60, 0.0)
    for sites, how, words in (
        (["north", "south"], {}, "give a data frame, columns by name, or the name of a .csv"),
        (tables, {"outcomes": ["hippocampus"]}, "outcomes=list: allowed a mapping such as"),
        (tables, {"maps": "nope.nii.gz"}, "no file nope.nii.gz of maps"),
        (tables, {"public": 3}, "public=int: allowed text, or a list of texts"),
        (tables, {"epsilon": None}, "pass epsilon=, or private=False"),
        ({"a": {"dx": ["SZ"]}}, {}, "the table of a has no column age, sex, hippocampus; it has"),
    ):
        with pytest.raises(CapeError) as caught:
            ask(sites, **how)
        assert words in str(caught.value)
        assert len(str(caught.value)) < 300


def test_a_site_may_lack_an_outcome_and_may_have_one_group_alone() -> None:
    tables = study(3, 90, 0.0)
    two = {"outcomes": {"hippocampus": (2500, 5500), "age": (18, 90)}, "epsilon": None}
    del tables["site1"]["age"]
    tables["site2"]["dx"] = ["control"] * 30
    with pytest.warns(SubjectsWarning, match="Nobody here is of a level"):
        found = ask(tables, "dx + sex", private=False, as_it_is="dx", **two)
    assert [site.lacks for site in found.comparison.sites] == [(), ("age",), ()]
    assert [site.left_out for site in found.comparison.sites] == [
        "",
        "",
        "people of one group only",
    ]
    assert [row.observed for row in found.comparison.effects] == [1.0, 1.0]


def test_people_without_names_are_of_one_site_each() -> None:
    """They were numbered from 1 at every site, and cape warned of people seen at several."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", LabelsWarning)
        found = ask(study(2, 60, 0.0), private=False, epsilon=None, public=["dx"])
    assert found.table("sites").people.tolist() == [30, 30]


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            {"dx": ["control"] * 30},
            'correct the column; if the column is right, give as_it_is=["dx"].',
        ),
        (
            {"dx": ["1", "2"] * 15},
            'Fix: give df["dx"].replace({...: "control", ...: "SZ"}), with the cell that means it '
            "for each ...; if",
        ),
        (
            {"dx": ["healthy", "healthy", "SZ"] * 10},
            'give df["dx"].replace({"healthy": "control"}); if',
        ),
        (
            {"hippocampus": [4000.0] * 29 + ["failed QC"]},
            "row 30: 'failed QC' in column 'hippocampus'. Expected one column exclude, 1 = left "
            "out. Fix: set such cells to NaN, or drop the rows.",
        ),
        (
            {"withdrawn": [0] * 29 + [1]},
            "column 'withdrawn'. Expected one column exclude, 1 = left out. Fix: drop the rows of "
            "who is left out, then the column withdrawn.",
        ),
        (
            {"hippocampus": np.linspace(3, 5, 30)},
            "Fix: give outcomes={'hippocampus': (2.5, 5.5)} if all sites have that unit, or "
            "multiply the column by 1000, which brings 30 inside.",
        ),
        ({"hippocampus": np.zeros(30)}, "correct the column, or give another range; if"),
    ],
)
def test_a_column_that_looks_wrong_says_what_to_do_with_the_frame(column, words: str) -> None:
    """It told people with data frames what to write into a site-policy.toml."""
    tables = study(3, 90, 0.0)
    tables["site1"] |= column
    with pytest.raises(DataError, match=r"E13[89] .*[Ss]ite site1 cannot") as caught:
        ask(tables)
    assert words in str(caught.value)
    assert ".t" not in str(caught.value)  # neither site-error.txt nor .toml


def test_who_is_left_out_and_who_counts_is_told() -> None:
    """A frame with a column exclude lost people without a word, and no result said who counts."""
    (table,) = study(1, 60, 0.0).values()
    marks = {"Exclude": [1, "yes", *[0] * 57, None]}
    with pytest.warns(SubjectsWarning, match="site1: column exclude leaves out 2 of 60 rows$"):
        found = ask({**table, **marks}, private=False, epsilon=None)
    assert (found.counted.listed, found.counted.counted, found.counted.why) == (58, 58, {})
    table["sex"][7] = "n/a"
    # One site alone was called "sites", whatever name was given.
    with pytest.warns(SubjectsWarning, match="Site 7: 59 of 60 people count"):
        found = ask({7: table}, private=False, epsilon=None)
    assert found.table("sites").site.tolist() == ["7"]
    assert (
        found.counted.sentence == "59 of 60 people count (1: a column of the formula is missing)."
    )


def test_rows_that_are_there_twice_are_told_unless_people_have_names(tmp_path: Path) -> None:
    table = {"dx": ["SZ", "control", "SZ", "SZ"], "volume": [3.5, 3.5, 3.5, 3.5]}
    with pytest.warns(SubjectsWarning, match="north: 2 of 4 rows are the same as others"):
        write_table(tmp_path / "north", table, count(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_table(tmp_path / "south", {"participant_id": list("abcd"), **table}, count(1))


def test_the_column_of_names_has_no_case_in_a_frame_as_in_a_table(tmp_path: Path) -> None:
    """`Participant_ID` was "not the first column": another one had been put before it."""
    write_table(tmp_path / "a", {"dx": ["SZ", "control"], "Participant_ID": ["x", "y"]}, count(1))
    lines = (tmp_path / "a" / "participants.tsv").read_text().splitlines()
    assert lines == ["participant_id\tdx", "x\tSZ", "y\tcontrol"]


def test_another_table_or_matrix_is_refused_with_those_there_are() -> None:
    found = ask(study(3, 600, 0.0), epsilon=8.0)
    with pytest.raises(CapeError, match="allowed effects, omnibus"):
        found.table("groups")
    with pytest.raises(CapeError, match="not all edges between regions, named"):
        found.matrix("d")


@pytest.mark.parametrize("wrong", [{"outcomes": {"h": (1, 2)}}, {"outcomes": 2.5}, {"share": "x"}])
def test_a_budget_of_what_is_no_number_is_refused(wrong) -> None:
    settings = {"formula": "dx", "variables": "dx control/SZ"}
    plan = {"subjects": 200, "sites": 4, "epsilon": 4.0, "outcomes": 2, "settings": settings}
    with pytest.raises(ConfigError, match=f"E011 {next(iter(wrong))}="):
        cape.budget(computation="capecontrast", **{**plan, **wrong})
