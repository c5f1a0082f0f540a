"""What the end of a comparison names to be opened."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cape.cli import ending
from cape.report import write_results
from cape.report.results import read_results
from support import comparison_example as example


def test_a_comparison_names_its_page_and_its_effects(tmp_path: Path) -> None:
    write_results(tmp_path, example.outcome())
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    lines = list(ending._to_open(tmp_path, read_results(tmp_path), paths))
    assert lines[1] == f"  table  {tmp_path / 'effects.tsv'}"
    said = list(ending._story(tmp_path, paths, to_open=False))
    assert said[0].startswith("At these 3 sites, patient and control differ in hippocampus:")


def test_without_an_answer_no_table_is_named(tmp_path: Path) -> None:
    made = example.outcome()
    refused = dataclasses.replace(made, state=dataclasses.replace(made.state, looks=2))
    write_results(tmp_path, refused)
    lines = list(ending._to_open(tmp_path, read_results(tmp_path), {}))
    assert not [line for line in lines if "table" in line]
