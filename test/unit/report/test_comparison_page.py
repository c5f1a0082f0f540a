"""The page of a comparison: its sentence first, then what leaves zero, for whom, and how sure.

Belongs to `cape/report/consortium_page.py`.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from cape.report import rebuild, write_results
from cape.report.consortium import add_score, results_of
from cape.report.results import ComparisonFolder, read_folder, sentence
from support import comparison_example as example

PATTERN = np.linspace(-0.9, 0.9, len(example.EDGES))
FIVE = tuple("abcde")


def page(folder: Path, *args: object, **how: object) -> str:
    write_results(folder, example.outcome(*args, **how))
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", (folder / "index.html").read_text()))


def test_a_pattern_has_its_test_its_matrix_and_its_files(tmp_path: Path) -> None:
    text = page(tmp_path, example.EDGES, PATTERN, pattern=0.9, noise=0.002)
    title, _, rest = text.partition("What differs")
    assert "At these 3 sites, patient and control differ along a pattern" in title
    assert "275 people of the other half gave one number" in rest
    assert "privacy noise" in title
    html = (tmp_path / "index.html").read_text()
    assert "pairs of networks leave zero" in html
    assert "Mean connectivity of all people: the strongest pair" in html
    for name in ("effects.tsv", "pattern.tsv", "mean_fnc.tsv", "balance.tsv", "groups.tsv"):
        assert name in rest
    assert "Cox DR (1975)" in (tmp_path / "methods.md").read_text()
    assert "cox1975" in (tmp_path / "references.bib").read_text()


def test_edges_that_do_not_leave_zero_are_not_drawn(tmp_path: Path) -> None:
    text = page(tmp_path, example.EDGES, 0.0, pattern=0.0)
    assert "No single pair of networks differs from zero." in text
    assert "one of d" in text
    assert "is found with power .8" in text
    assert "97 in 100 were called differences with 4 sites" in text


def test_planned_outcomes_have_a_forest_plot(tmp_path: Path) -> None:
    text = page(tmp_path, FIVE, np.array([0.9, 0.0, -0.8, 0.0, 0.0]))
    html = (tmp_path / "index.html").read_text()
    assert "Effects on 5 of 5 outcomes; blue leaves zero (Benjamini and Hochberg" in html
    assert "19 in 100 were called differences with 4 sites" in text
    assert "One group only, so no comparison within the site: local2" in text
    assert "patient less control" in text
    page(tmp_path / "one")
    assert (
        "Effects on 1 of 1 outcomes; blue leaves zero."
        in (tmp_path / "one" / "index.html").read_text()
    )


def test_protected_groups_show_no_count_and_a_range_says_its_ends(tmp_path: Path) -> None:
    text = page(tmp_path, effect=2.0, group="age 18:90", strict=True)
    assert "The sizes of the groups are not released" in text
    assert "From age 18 to 90" in text
    assert "A continuous question was asked" in text


def test_without_covariates_the_page_warns(tmp_path: Path) -> None:
    made = example.outcome()
    asked = dataclasses.replace(made.question, covariates=())
    asked = dataclasses.replace(asked, noise=(0.01,) * len(asked.looks))
    made = dataclasses.replace(made, covariates=(), question=asked, state=example.led(asked, 0.9))
    write_results(tmp_path, made)
    assert "No covariate was adjusted for" in (tmp_path / "index.html").read_text()


def test_a_refused_release_leaves_counts_and_the_reason(tmp_path: Path) -> None:
    made = example.outcome()
    state = dataclasses.replace(made.state, looks=3)
    made = dataclasses.replace(
        made, state=state, status="budget_exhausted", reason="A site refused the release."
    )
    assert sentence(results_of(made)) == "There is no answer: A site refused the release."
    write_results(tmp_path, made)
    text = (tmp_path / "index.html").read_text()
    assert "There is no answer." in text
    assert "local2" in text


def test_a_folder_is_read_and_its_page_made_again_with_equal_bytes(tmp_path: Path) -> None:
    page(tmp_path, FIVE)
    folder = read_folder(tmp_path)
    assert isinstance(folder, ComparisonFolder)
    assert len(folder.tables.effects) == 5
    first = (tmp_path / "index.html").read_bytes()
    rebuild(tmp_path)
    assert (tmp_path / "index.html").read_bytes() == first
    add_score(tmp_path, q_ngi=None, map_correlation=None, synthetic=True)
    assert "SIMULATION" in (tmp_path / "index.html").read_text()
    assert "simulation" in (tmp_path / "methods.md").read_text()


def test_outcomes_of_images_say_how_images_were_read(tmp_path: Path) -> None:
    made = example.outcome(FIVE)
    space = dataclasses.replace(made.roster.space, kind="parcels")
    made = dataclasses.replace(
        made,
        roster=dataclasses.replace(made.roster, space=space),
        settings={**made.settings, "feature_space": "parcels"},
    )
    write_results(tmp_path, made)
    text = (tmp_path / "methods.md").read_text()
    assert "Every run was prepared at its site" in text
    assert "Filippini" in text


@pytest.mark.parametrize("name", ["pattern", "planned"])
def test_without_the_extra_the_page_has_its_tables(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cape.report.plots.has_matplotlib", lambda: False)
    text = (
        page(tmp_path, example.EDGES, PATTERN, pattern=0.9)
        if name == "pattern"
        else page(tmp_path, FIVE)
    )
    assert "This page has no pictures" in text
    assert "privacy noise" in text
