"""What the end of a comparison names to be opened."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cape.cli import ending
from cape.report.results import read_results
from support import comparison_example as example


def test_a_comparison_names_its_page_and_its_effects(tmp_path) -> None:
    example.write(tmp_path, example.compared([example.effect("hippocampus", -0.5)]))
    paths = {path.name: str(path) for path in tmp_path.iterdir()}
    lines = list(ending._to_open(tmp_path, read_results(tmp_path), paths))
    assert lines[1] == f"  table  {tmp_path / 'effects.tsv'}"
    said = list(ending._story(tmp_path, paths, to_open=False))
    assert said[0].startswith("SZ and control differ in hippocampus:")
    assert any(line.startswith("2 of 3 sites, 490 people asked") for line in said)


def test_without_an_answer_no_table_is_named(tmp_path) -> None:
    example.write(tmp_path, example.compared([]), status="budget_exhausted")
    lines = list(ending._to_open(tmp_path, read_results(tmp_path), {}))
    assert not [line for line in lines if "table" in line]


def test_an_error_in_the_words_of_an_end_does_not_end_a_run_that_has_results(
    tmp_path, monkeypatch, capsys
) -> None:
    example.write(tmp_path, example.compared([]))

    def broken(*given: object) -> None:
        raise KeyError("somebody's label")

    monkeypatch.setattr(ending, "read_results", broken)
    ending.print_results(tmp_path, as_json=False, quiet=False)
    printed = capsys.readouterr()
    assert "the results are written, but not shown here: KeyError" in printed.err
    assert "somebody" not in printed.err
    assert printed.out.splitlines()[0].endswith("index.html")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_shows_what_it_can_and_escapes_the_rest(tmp_path, encoding: str) -> None:
    """One umlaut in a site's name was CAPE-E000 on a terminal in ASCII, at the end of a run."""
    names = ("Zo\u00eb", "\u9648")
    for name in names:
        path = tmp_path / "Z\u00fcrich" / f"sub-{name}.npy"
        path.parent.mkdir(exist_ok=True)
        np.save(path, np.zeros((3, 40)))
    done = subprocess.run(
        [sys.executable, "-m", "cape", "people", str(tmp_path)],
        env={**os.environ, "PYTHONIOENCODING": encoding}, capture_output=True, check=False,
    )  # fmt: skip
    text = (done.stdout + done.stderr).decode(encoding)
    assert "E000" not in text
    for name in names:
        assert name.encode(encoding, "backslashreplace").decode(encoding) in text
