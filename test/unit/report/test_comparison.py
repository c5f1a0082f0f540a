"""The record of a comparison and the tables beside it."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from cape.algorithms.effects import regions_of
from cape.report import files
from cape.report.comparison import GroupComparison, slug, write_tables
from cape.settings.question import parse_question
from support.comparison_example import (
    EDGES,
    FIVE,
    NAMES,
    NETWORKS,
    TWO,
    compared,
    effect,
    pattern,
    three_groups,
    withheld,
)

FIVE_ROWS = [effect(name, -0.5) for name in NAMES]
EDGE_NAMES = [one.name for one in parse_question(**EDGES).outcomes]


@pytest.mark.parametrize(
    "result",
    [
        compared(FIVE_ROWS, FIVE),
        compared([withheld("hippocampus", "range")]),
        three_groups(),
        pattern(0.9),
        compared([effect("hippocampus")], {**TWO, "public": ""}),
    ],
)
def test_results_json_holds_every_row(result: GroupComparison, tmp_path) -> None:
    files.write_json(tmp_path / "record.json", result)
    assert files.read_record(tmp_path / "record.json", GroupComparison) == result


@pytest.mark.parametrize("result", [compared(FIVE_ROWS, FIVE), three_groups(), pattern(0.9)])
def test_every_table_has_a_json_of_its_columns(result: GroupComparison, tmp_path) -> None:
    """As in BIDS: a reader who has never heard of cape knows what a column holds."""
    write_tables(tmp_path, result)
    tables = sorted(tmp_path.glob("*.tsv"))
    assert {"effects", "means", "balance", "sites"} <= {path.stem for path in tables}
    assert (tmp_path / "omnibus.tsv").is_file() == bool(result.omnibus)
    assert (tmp_path / "pattern.tsv").is_file() == bool(result.pattern)
    for path in tables:
        described = json.loads(path.with_suffix(".json").read_text())
        header = path.read_text().partition("\n")[0].split("\t")
        assert list(described) == header
        assert all(len(one["Description"]) > 3 for one in described.values())


def test_rows_of_effects_are_those_of_the_record_with_na_where_withheld(tmp_path) -> None:
    write_tables(tmp_path, compared([*FIVE_ROWS[:4], withheld("pallidum", "shape")], FIVE))
    rows = files.read_table(tmp_path / "effects.tsv")
    assert [row["outcome"] for row in rows] == list(NAMES)
    assert float(rows[0]["d"]) == -0.5
    assert (rows[4]["d"], rows[4]["p"], rows[4]["fits"]) == ("n/a", "n/a", "shape")


def test_counts_of_public_cells_are_columns_of_the_sites(tmp_path) -> None:
    write_tables(tmp_path, compared(FIVE_ROWS, FIVE))
    rows = files.read_table(tmp_path / "sites.tsv")
    assert list(rows[0]) == ["site", "people", "control", "SZ", "weight", "lacks"]
    assert (rows[0]["control"], rows[0]["SZ"], rows[0]["lacks"]) == ("150", "140", "n/a")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    write_tables(hidden, compared(FIVE_ROWS, {**FIVE, "public": ""}))
    assert list(files.read_table(hidden / "sites.tsv")[0]) == ["site", "people", "weight", "lacks"]
    assert files.read_table(hidden / "sites.tsv")[0]["weight"] == "n/a"


def with_edges(folder: Path) -> GroupComparison:
    """Write the tables of 15 edges, one of which is withheld."""
    rows = [effect(name, 0.01 * k) for k, name in enumerate(EDGE_NAMES)]
    rows[3] = withheld(EDGE_NAMES[3], "ties")
    result = compared(rows, EDGES)
    write_tables(folder, result)
    return result


def test_edges_are_matrices_of_regions_too(tmp_path) -> None:
    result = with_edges(tmp_path)
    lines = (tmp_path / "matrix_SZ-control_d.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["region", *NETWORKS]
    assert lines[1].split("\t") == ["C01", "0", "0", "0.01", "0.02", "n/a", "0.04"]
    d = result.matrix("SZ - control", "d")
    np.testing.assert_array_equal(d, d.T)
    assert np.diag(result.matrix("SZ - control", "p")).tolist() == [1.0] * 6


def test_pandas_and_nilearn_take_effects_and_matrices_as_they_are(tmp_path) -> None:
    pandas, plotting = pytest.importorskip("pandas"), pytest.importorskip("nilearn.plotting")
    with_edges(tmp_path)
    effects = pandas.read_csv(tmp_path / "effects.tsv", sep="\t")
    assert effects["d"].dtype == float
    assert effects["d"].isna().sum() == 1
    d = pandas.read_csv(tmp_path / "matrix_SZ-control_d.tsv", sep="\t", index_col=0)
    assert d.dtypes.eq(float).all()
    drawn = plotting.plot_matrix(d, labels=list(d.index))
    assert drawn.get_array().shape == (6, 6)
    places = np.random.default_rng(1).uniform(-50, 50, (6, 3))
    plotting.plot_connectome(d.fillna(0), places).close()


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed here")
def test_r_takes_effects_and_matrices_as_the_page_on_files_says(tmp_path) -> None:
    with_edges(tmp_path)
    page = (Path(__file__).parents[3] / "docs/reports.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"`(read\.delim\(file[^`]*)`", page)
    script = f"""
        file <- "effects.tsv"; e <- read.delim(file, na.strings = "n/a")
        file <- "matrix_SZ-control_d.tsv"; d <- {line}
        cat(class(e$d), sum(is.na(e$d)), class(as.matrix(d)[1, 2]), isSymmetric(as.matrix(d)))
    """
    told = subprocess.run(
        ["Rscript", "-e", script], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert told.stdout == "numeric 1 numeric TRUE"


def test_edges_within_a_domain_stand_on_the_diagonal() -> None:
    asked = {**TWO, "outcomes": "domains", "networks": "a (V), b (V), c (M), d (M)"}
    rows = [effect(one.name, 0.3) for one in parse_question(**asked).outcomes]
    result = compared(rows, asked)
    assert result.regions == ("V", "M")
    assert result.matrix("SZ - control", "d").tolist() == [[0.3, 0.3], [0.3, 0.3]]
    assert [(row.name, row.domain) for row in result.networks][2] == ("c", "M")


def test_columns_of_a_table_are_edges_if_they_are_named_so() -> None:
    named = {**TWO, "outcomes": ", ".join(f'"{name}" -1:1' for name in EDGE_NAMES)}
    assert regions_of(parse_question(**named))["C01 - C03"] == ("C01", "C03")
    assert regions_of(parse_question(**FIVE)) == {}
    assert regions_of(parse_question(**{**TWO, "outcomes": '"a - b" 0:1'})) == {}


@pytest.mark.parametrize(
    ("contrast", "part"),
    [("SZ - control", "SZ-control"), ("dx:age [SZ]", "dx-age-SZ"), ("age", "age")],
)
def test_a_contrast_is_part_of_a_file_name(contrast: str, part: str) -> None:
    assert slug(contrast) == part


def test_the_share_of_a_part_of_an_error_is_of_its_square() -> None:
    row = compared(FIVE_ROWS, FIVE).effects[0]
    assert row.share("privacy") == pytest.approx(0.5)
    assert withheld("a", "ties", se=None).share("privacy") is None
