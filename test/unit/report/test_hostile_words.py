"""Words of owners and sites in what is written: no formula in a table, no HTML in a text.

A factor's level ``=HYPERLINK(...)`` became a formula in the spreadsheet of whoever opened
effects.tsv, and ``<img onerror=...>`` a picture where methods.md is shown as a page.

Belongs to `cape/report/results.py`.
"""

import csv
import dataclasses
import io
import re
from pathlib import Path

import pytest

from cape.algorithms.effects import Effect
from cape.delimited import read_cell, rows_by_column, written_cell
from cape.protocol.outcome import Table
from cape.report import files, write_results
from cape.report.consortium import _csv_text
from support import comparison_example, report_example

FORMULAS = ("=1+1", "+x", "-x+1", "@SUM(A1)", "-", "'=1+1", "=cmd|' /C calc'!A0", "-1.5-2", "+-3")
NUMBERS = ("-1.5", "+2", "-1e-05", "-.5", "1", "-3.")


def first_signs(path: Path) -> set[str]:
    """Return the cells of a written table that a spreadsheet would compute, but for numbers."""
    sign = "," if path.suffix == ".csv" else "\t"
    rows = csv.reader(io.StringIO(path.read_text()), delimiter=sign, quoting=csv.QUOTE_MINIMAL)
    cells = {cell for row in rows for cell in row}
    number = r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
    return {
        cell for cell in cells if cell[:1] in "=+-@" and cell and not re.fullmatch(number, cell)
    }


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_looks_like_a_formula_is_none_and_is_read_back(text: str) -> None:
    assert written_cell(text) == f"'{text}"
    assert read_cell(written_cell(text)) == text
    (row,) = rows_by_column(f"label\tn\n{written_cell(text)}\t-1\n", "\t", quoted=False)
    assert row == {"label": text, "n": "-1"}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_stay_numbers(text: str) -> None:
    assert written_cell(text) == read_cell(text) == text


def test_no_cell_of_a_comparison_is_a_formula(tmp_path: Path) -> None:
    rows = [
        dataclasses.replace(
            comparison_example.effect("hippocampus", -0.5), contrast="=2+5 - @x", term="-dx"
        )
    ]
    comparison_example.write(tmp_path, comparison_example.compared(rows))
    tables = [path for path in tmp_path.iterdir() if path.suffix in (".tsv", ".csv")]
    assert len(tables) >= 4
    assert {path.name: first_signs(path) for path in tables} == {
        path.name: set() for path in tables
    }
    (row,) = files.read_rows(tmp_path / "effects.tsv", Effect)
    assert (row.contrast, row.term, row.d) == ("=2+5 - @x", "-dx", -0.5)


def test_no_cell_of_a_result_in_tables_is_a_formula(tmp_path: Path) -> None:
    rows = (("@volume", -1.5), ("+x", 2))
    table = Table(name="means", title="", note="", header=("column", "=mean"), rows=rows)
    (tmp_path / "means.csv").write_text(_csv_text(table))
    assert first_signs(tmp_path / "means.csv") == set()
    assert "-1.5" in (tmp_path / "means.csv").read_text()


def test_no_html_stands_in_methods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    made = report_example.outcome()
    hostile = {**made.settings, "mask": "<img src=x onerror=alert(1)>"}
    write_results(tmp_path, dataclasses.replace(made, settings=hostile))
    text = (tmp_path / "methods.md").read_text()
    assert "<" not in text
    assert "&lt;img src=x onerror=alert(1)>" in text
