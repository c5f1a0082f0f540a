"""What the end of a comparison names to be opened."""

from __future__ import annotations

from pathlib import Path

from cape.cli import ending
from cape.report.results import read_results
from support import comparison_example as example


def test_a_comparison_names_its_page_and_its_effects(tmp_path: Path) -> None:
    example.write(tmp_path, example.compared([example.effect("hippocampus", -0.5)]))
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    lines = list(ending._to_open(tmp_path, read_results(tmp_path), paths))
    assert lines[1] == f"  table  {tmp_path / 'effects.tsv'}"
    said = list(ending._story(tmp_path, paths, to_open=False))
    assert said[0].startswith("At these 2 sites, SZ and control differ in hippocampus:")


def test_without_an_answer_no_table_is_named(tmp_path: Path) -> None:
    example.write(tmp_path, example.compared([]), status="budget_exhausted")
    lines = list(ending._to_open(tmp_path, read_results(tmp_path), {}))
    assert not [line for line in lines if "table" in line]
