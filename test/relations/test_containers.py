"""The same numbers in another container are the same numbers, or are refused: nothing is guessed.

Frames with types of their own, masked arrays, tables as other programs write them.  A mask, an
index and words were dropped without a word; other types were errors of Python.

Belongs to `cape/python/people.py` and `cape/python/groups.py`.
"""

import csv
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape
from cape.data.tables import MISSING_CELLS
from cape.delimited import read_cell
from cape.errors import ConfigError, DataError
from cape.python.groups import _tables_of as tables_of
from cape.python.groups import _write_table as write_table
from cape.python.people import _signals as signals
from cape.python.people import with_names
from cape.settings.question import plain

pd = pytest.importorskip("pandas")
NAMES = list("abcd")
X = np.random.default_rng(5).standard_normal((40, 4)).round(6)
GAP = np.where(np.arange(160).reshape(40, 4) == 0, np.nan, X)  # in the first row, as derivatives


def frame(values: np.ndarray) -> Any:
    return pd.DataFrame(values, columns=NAMES)


SAME: dict[str, Callable[[np.ndarray], Any]] = {
    "frame": frame,
    "types that know a missing cell": lambda x: frame(x).convert_dtypes(),
    "objects": lambda x: frame(x).astype(object),
    "sparse": lambda x: frame(x).astype(pd.SparseDtype("float", np.nan)),
    "masked": lambda x: np.ma.masked_array(np.nan_to_num(x, nan=999.0), np.isnan(x)),
    "lists": lambda x: x.tolist(),
    "other byte order": lambda x: x.astype(">f8"),
}
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "words": (lambda: frame(X).astype(str), "column 'a', which does not hold numbers"),
    "a column of categories": (
        lambda: frame(X).assign(net=pd.Categorical(["x"] * 40)),
        "column 'net', which does not hold numbers",
    ),
    "dates": (lambda: frame(X).assign(t=pd.Timestamp("2020-01-01")), "column 't', which"),
    "a name twice": (lambda: frame(X).set_axis(["l", "l", "m", "n"], axis=1), "2 columns 'l'"),
    "rows of unlike length": (lambda: [*X[:9].tolist(), [1.0]], "unlike numbers of values"),
    "complex": (lambda: frame(X + 1j), "which does not hold numbers"),
    "a tuple of nilearn's": (lambda: (frame(X), None), "unlike numbers of values"),
}


@pytest.mark.parametrize("form", SAME)
@pytest.mark.parametrize("values", [X, GAP], ids=["whole", "gap"])
def test_people_and_confounds_are_the_same_in_every_container(form, values) -> None:
    np.testing.assert_array_equal(with_names(SAME[form](values)).data, values)
    np.testing.assert_array_equal(signals(SAME[form](values)), np.nan_to_num(values))


@pytest.mark.parametrize("form", REFUSED)
def test_what_holds_no_numbers_is_refused_with_its_column(form) -> None:
    make, words = REFUSED[form]
    for take in (with_names, signals):
        with pytest.raises(ConfigError, match="E284") as caught:
            take(make())
        assert words in str(caught.value)


TABLES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "tabs": ("c.tsv", lambda p: frame(GAP).to_csv(p, sep="\t", index=False, na_rep="n/a")),
    "commas": ("c.csv", lambda p: frame(GAP).to_csv(p, index=False)),
    "numbers of rows": ("c.csv", lambda p: frame(GAP).to_csv(p)),
    "quotes": ("c.csv", lambda p: frame(GAP).to_csv(p, index=False, quoting=csv.QUOTE_ALL)),
    "SPM": ("rp_c.txt", lambda p: np.savetxt(p, np.nan_to_num(GAP))),
    "AFNI": ("c.1D", lambda p: np.savetxt(p, np.nan_to_num(GAP))),
    "NumPy": ("c.npy", lambda p: np.save(p, GAP)),
}
DAMAGED: dict[str, tuple[bytes, str]] = {
    "a word in the first row": (
        b"a\tb\nbad\t1\n2\t3\n",
        "is not a number (c.tsv: line 2, column a)",
    ),
    "a row too long": (b"a\tb\n1\t2\n1\t2\t3\n", "another number of cells than its header"),
    "UTF-16": ("a\tb\n1\t2\n".encode("utf-16"), "is not UTF-8 text"),
    "commas": (b"a,b\n1,2\n", "separated by another character"),
    "a column without numbers": (b"a\tb\nn/a\t1\nn/a\t2\n", "line 3, column a"),
    "no bytes": (b"", "a table is empty"),
}


@pytest.mark.parametrize("form", TABLES)
def test_a_table_of_confounds_is_the_array_that_it_holds(tmp_path, form) -> None:
    """A word in the first row counted as 0; a quoted table, or one of SPM, was refused."""
    name, write = TABLES[form]
    write(tmp_path / name)
    np.testing.assert_allclose(signals(tmp_path / name), np.nan_to_num(GAP), atol=1e-6)


@pytest.mark.parametrize("form", [*DAMAGED, "none"])
def test_a_table_of_confounds_that_cannot_be_read_says_why(tmp_path, form) -> None:
    content, words = DAMAGED.get(form, (b"", "no file"))
    if form in DAMAGED:
        (tmp_path / "c.tsv").write_bytes(content)
    with pytest.raises(ConfigError, match="E284") as caught:
        signals(tmp_path / "c.tsv")
    assert words in str(caught.value)


N = 30
STUDY = {
    "participant_id": [f"p{i:02}" for i in range(N)],
    "dx": ["control", "SZ"] * (N // 2),
    "age": [float(30 + i) if i % 7 else np.nan for i in range(N)],
    "volume": [4.0 + 0.01 * i for i in range(N)],
}


def study() -> Any:
    return pd.DataFrame(STUDY)


FORMS: dict[str, Callable[[], Any]] = {
    "lists": lambda: STUDY,
    "types that know a missing cell": lambda: study().convert_dtypes(),
    "whole numbers with gaps": lambda: study().astype({"age": "Int64"}),
    "levels that nobody has": lambda: study().assign(
        dx=pd.Categorical(STUDY["dx"], ["control", "SZ", "BD"])
    ),
    "names in the index": lambda: study().set_index("participant_id"),
    "names and a column in the index": lambda: study().set_index(["participant_id", "dx"]),
    "texts among numbers": lambda: study().astype(object),
    "masked": lambda: {**STUDY, "age": np.ma.masked_invalid(STUDY["age"])},
    "texts of pandas": lambda: study().convert_dtypes().astype(str),
}


def as_read(folder: Path, form: str) -> list[dict[str, str]]:
    """The table that a site would have, as its reader compares the cells."""
    tables = tables_of({"a": FORMS[form]()})
    write_table(folder / "a", tables["a"], count(1), tuple(STUDY))
    text = (folder / "a" / "participants.tsv").read_text()
    rows = csv.DictReader(text.splitlines(), delimiter="\t")
    return [
        {k: "" if v.lower() in MISSING_CELLS else plain(v) for k, v in cells}
        for cells in (sorted((k, read_cell(v)) for k, v in row.items()) for row in rows)
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_table_of_a_site_is_the_same_in_every_container(tmp_path, form) -> None:
    assert as_read(tmp_path / "given", form) == as_read(tmp_path / "lists", "lists")


@pytest.mark.filterwarnings("ignore::cape.errors.CapeWarning")
def test_a_person_twice_in_the_index_is_refused_and_does_not_count_twice() -> None:
    """The index was dropped and people got numbers: whoever stood there twice counted twice."""
    twice = study().assign(participant_id=STUDY["participant_id"][: N // 2] * 2)
    ask: dict[str, Any] = {"variables": {"dx": ["control", "SZ"]}, "outcomes": {"volume": (3, 6)}}
    sites = [twice.set_index("participant_id")] * 3
    with pytest.raises(DataError, match="E105"):
        cape.compare_groups(sites, "dx", private=False, **ask)


def test_a_column_twice_is_named() -> None:
    doubled = pd.concat([study(), study()[["age"]]], axis=1)
    with pytest.raises(ConfigError, match="the table of north has 2 columns age"):
        tables_of({"north": doubled})


@pytest.mark.parametrize(
    "named",
    [(1, "1"), ("a/b", "b"), ("..", "b"), ("a,b", "b"), ("", "b"), (None, "b"), (np.nan, "b"),
     ("a\n", "b"), ("x" * 201, "b"), ("remote", "b")],
)  # fmt: skip
def test_a_site_has_a_name_that_a_folder_may_have(named) -> None:
    """Numbers, as frames are grouped by, were errors of Python, ".." wrote above its folder, and a
    comma made two sites of one."""
    people = {"dx": ["a", "b"] * 20, "v": [1.0, 2.0, 3.0, 4.0] * 10}
    roads = (
        lambda sites: cape.Consortium({name: [X, X + 1] for name in sites}),
        lambda sites: cape.JointICA(2).fit([X, X + 1], groups=sites),
        lambda sites: cape.compare_groups(
            dict.fromkeys(sites, people), "dx", variables="dx a/b", outcomes="v 0:5", epsilon=4.0
        ),
    )
    for road in roads if named[0] != 1 else (roads[0], roads[2]):
        with pytest.raises(ConfigError, match="E284 a site called"):
            road(named)
    assert repr(cape.Consortium({1: [X], np.int64(2): [X + 1]})) == (
        "<Consortium of 1: 1 person, 2: 1 person>"
    )


@pytest.mark.parametrize("column", [4.0, "words", None, X])
def test_a_column_of_a_table_has_a_cell_of_each_person(column, tmp_path) -> None:
    with pytest.raises(ConfigError, match="E284 a column v that is not a list of cells"):
        write_table(tmp_path / "a", {"dx": ["a", "b"], "v": column}, count(1))
