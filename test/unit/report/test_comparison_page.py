"""The page of a comparison: its sentence first, then what leaves zero, for whom, and how sure.

Belongs to `cape/report/comparison_page.py` and its templates.
"""

import dataclasses
import html
import math
import re
from pathlib import Path

import numpy as np
import pytest

from cape.report import plots, rebuild
from cape.report.comparison import GroupComparison, Mean, Missing
from cape.report.consortium import add_score
from cape.report.results import ComparisonFolder, read_folder, sentence
from support import comparison_example as example
from support.comparison_example import (
    EDGES,
    FIVE,
    NAMES,
    TWO,
    compared,
    effect,
    pattern,
    results_of,
    three_groups,
    withheld,
)

ROWS = [effect(name, d) for name, d in zip(NAMES, (-0.5, -0.4, 0, 0, 0.2), strict=True)]


def page(folder: Path, result: GroupComparison, **other: object) -> str:
    """Return the words of a page."""
    text = html.unescape(example.write(folder, result, **other).read_text())
    return re.sub(r"\s+", " ", re.sub(r"<[a-z/!][^>]*>", " ", text))


def test_the_sentence_comes_first_then_who_was_asked(tmp_path: Path) -> None:
    title, _, rest = page(tmp_path, compared(ROWS, FIVE)).partition("What differs")
    assert "SZ and control differ in 2 of 5 outcomes, most in hippocampus." in title
    assert "-0.50 sd [-0.70, -0.30], p < 0.0001 after Holm." in title
    assert (
        "2 of 3 sites, 490 people asked, about 90 % with a value; adjusted for age, sex and"
        in title
    )
    whole = (tmp_path / "index.html").read_text()
    assert "SZ - control; blue differs from zero after Holm." in whole
    assert "36 % is the choice of people, 50 % privacy noise and 14 % what adjusting" in rest
    assert "car::Anova(lm(y ~ dx + age + sex + site), type = 2)" in rest
    assert "local2 did not enter the number: people of one group only." in rest
    assert "the same dx" in rest  # what is protected
    assert "Each site allowed by its own policy that its counts of dx are public." in rest


def test_a_run_that_cannot_see_skewed_outcomes_says_so(tmp_path: Path) -> None:
    """Nulls of lognormals were called different in a quarter of such runs, without a word."""
    words = "the run cannot see whether outcomes are skewed"
    assert words in page(tmp_path / "few", compared(ROWS, FIVE), n_subjects=1000)
    assert words not in page(tmp_path / "many", compared(ROWS, FIVE), n_subjects=4000)
    assert words not in page(tmp_path / "plain", compared(ROWS, FIVE), mu=None)
    assert words not in page(tmp_path / "pattern", pattern(0.9), n_subjects=1000)


def test_a_simulation_does_not_say_what_no_policy_was_asked(tmp_path: Path) -> None:
    """It said that sites allowed their counts, whose policies would have refused (E168)."""
    text = page(tmp_path, compared(ROWS, FIVE), simulation=True)
    assert "allowed by its own policy" not in text
    assert "In this simulation counts of dx are public; in a real run each site's own" in text


@pytest.mark.parametrize(
    ("result", "y"),
    [
        (compared(ROWS, FIVE), ", where y is each outcome:"),
        (pattern(0.9), ", where y is the position of each person of the other half along"),
        (compared(ROWS, {**FIVE, "change": "ses-1, ses-2"}),
         ", where y is the change from session 1 to 2 of each outcome:"),
        (compared([effect("wmh"), effect("icv")], {**TWO, "outcomes": "log(wmh) .1:9, icv 1:9"}),
         ", where y is each outcome, by its logarithm where it is stated as log():"),
        (compared([effect("wmh")], {**TWO, "outcomes": "log(wmh) .1:9"}), "privacy, in R: "),
    ],
)  # fmt: skip
def test_the_line_of_r_says_what_y_is(result: GroupComparison, y: str, tmp_path: Path) -> None:
    assert y in page(tmp_path, result)


def test_without_noise_errors_are_those_of_sampling(tmp_path: Path) -> None:
    page(tmp_path, compared(ROWS, FIVE), private=False, epsilon=None)
    text = " ".join((tmp_path / "methods.md").read_text().split())
    assert "Standard errors are those of sampling; the result" in text
    assert "known privacy noise" not in text


def test_shares_with_a_value_name_the_term_where_several_are_asked(tmp_path: Path) -> None:
    """With two terms every outcome stood there twice."""
    rows = [effect("hippocampus", observed=0.9), effect("hippocampus", term="age", observed=0.8)]
    text = page(tmp_path / "two", compared(rows, {**TWO, "ask": "dx, age"}))
    assert "term outcome share dx hippocampus 90 % age hippocampus 80 %" in text
    assert "outcome share hippocampus 90 %" in page(tmp_path, compared(rows[:1]))


def test_a_pattern_has_its_test_its_matrix_and_its_files(tmp_path: Path) -> None:
    text = page(tmp_path, pattern(0.9))
    title, _, rest = text.partition("What differs")
    assert "SZ and control differ along a pattern" in title
    assert "number was tested: this alone is the answer of this page" in rest
    assert "Weights of the pattern; colours say" in (tmp_path / "index.html").read_text()
    for name in ("effects.tsv", "pattern.tsv", "means.tsv", "sites.tsv", "matrix_*.tsv"):
        assert name in rest
    assert "Cox DR (1975)" in (tmp_path / "methods.md").read_text()
    assert "cox1975" in (tmp_path / "references.bib").read_text()


def test_edges_that_do_not_leave_zero_are_not_drawn(tmp_path: Path) -> None:
    names = example.edge_names()
    text = page(tmp_path / "none", compared([effect(name) for name in names], EDGES))
    assert "no connection by itself leaves zero" in text
    page(tmp_path, compared([effect(name, -0.5 * (name == names[0])) for name in names], EDGES))
    told = (tmp_path / "index.html").read_text()
    assert "1 of 15 connections leave zero" in told
    # The sentence counts after Holm, the picture by the false discovery rate.
    assert "1 of them after Holm, too" in told


def test_long_tables_are_folded_and_show_the_strongest(tmp_path: Path) -> None:
    rows = [effect(name, -0.01 * k) for k, name in enumerate(example.edge_names(EDGES))]
    text = page(tmp_path, compared(rows, EDGES))
    assert "SZ - control : the strongest".replace(" :", ":") in text
    assert "All 15 rows" in text


def test_what_is_withheld_has_no_figure_and_says_why(tmp_path: Path) -> None:
    rows = [
        *ROWS[:3],
        withheld("caudate", "range", p=0.4, p_holm=0.4),
        withheld("pallidum", "ties"),
    ]
    text = page(tmp_path, compared(rows, FIVE))
    assert re.search(r"caudate - - 0\.40 0\.40 range", text)
    assert re.search(r"pallidum - - - - ties", text)
    assert "Nothing is said about pallidum: too many people have the same value" in text


def test_several_groups_have_their_omnibus_and_a_table_a_pair(tmp_path: Path) -> None:
    text = page(tmp_path, three_groups())
    assert "Does any group differ?" in text
    for pair in ("SZ - control", "BD - control", "BD - SZ"):
        assert pair in text


def test_the_pictures_of_all_pairs_have_one_axis(tmp_path: Path, monkeypatch) -> None:
    spans, draw = [], plots.draw_effects
    monkeypatch.setattr(plots, "draw_effects", lambda *args: spans.append(args[-1]) or draw(*args))
    page(tmp_path / "three", three_groups())
    assert spans == [(pytest.approx(-0.646), pytest.approx(0.596))] * 3
    page(tmp_path, compared(ROWS, FIVE))
    assert spans[3:] == [None]


@pytest.mark.parametrize("span", [(-3.0, 4.0), None])
def test_an_axis_reaches_as_far_as_the_others(span, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(plots, "_chart", lambda figure, alt: seen.append(figure.axes[0].get_xlim()))
    d = np.array([0.1])
    plots.draw_effects(["a"], d, d - 0.2, d + 0.2, [False], "", span)
    ((low, high),) = seen
    assert (low < -3.0 and high > 4.0) == bool(span)


def test_a_slope_by_group_says_which_slope_less_which(tmp_path: Path) -> None:
    """It was headed dx:age [SZ]."""
    asked = {**TWO, "formula": "dx * age + sex", "ask": "dx:age"}
    row = effect("hippocampus", 0.02, term="dx:age", contrast="dx:age [SZ]")
    text = page(tmp_path, compared([row], asked))
    assert "slope of age in SZ less slope in control, in 10 years outcome slope [95 %]" in text
    whole = (tmp_path / "index.html").read_text()
    assert "less slope in control, in 10 years; blue differs from zero." in whole
    assert "[SZ]" not in whole


def test_logarithms_are_ratios(tmp_path: Path) -> None:
    asked = {**TWO, "outcomes": "log(wmh) .1:100"}
    row = effect("wmh", 0.5, estimate=0.2, low95=0.1, high95=0.3)
    mean = Mean(outcome="wmh", group="all", mean=math.log(12.5), unit=None, se=0.1)
    text = page(tmp_path, compared([row], asked, means=(mean,)))
    assert "times 1.22 [1.11, 1.35]" in text
    assert "wmh 12.5 Means are of everybody" in text


def test_protected_groups_show_no_count(tmp_path: Path) -> None:
    text = page(tmp_path, compared(ROWS, {**FIVE, "public": ""}))
    assert "No count of any group was published." in text
    assert "150" not in text.partition("Who was asked")[2].partition("Privacy in")[0]
    assert "the same dx" not in text


def test_without_other_columns_the_page_warns(tmp_path: Path) -> None:
    bare = compared([effect("hippocampus", 0.1)], {**TWO, "formula": "dx"}, balance=())
    assert "Nothing was adjusted for but the site" in page(tmp_path, bare)


def test_values_missing_by_group_are_said(tmp_path: Path) -> None:
    more = (Missing(term="dx", contrast="SZ - control", difference=-0.12),)
    text = page(tmp_path, compared(ROWS, FIVE, missing=more))
    assert "differs between groups (SZ - control: -12 %)" in text


def test_a_refused_release_leaves_counts_and_the_reason(tmp_path: Path) -> None:
    refused = compared([], FIVE, balance=(), means=())
    reason = "A site refused the release."
    made = results_of(refused, status="budget_exhausted", reason=reason)
    assert sentence(made) == "There is no answer: A site refused the release."
    text = page(tmp_path, refused, status="budget_exhausted", reason=reason)
    assert "There is no answer." in text
    assert "local2" in text
    assert not (tmp_path / "effects.tsv").exists()


def test_a_folder_is_read_and_its_page_made_again_with_equal_bytes(tmp_path: Path) -> None:
    page(tmp_path, compared(ROWS, FIVE))
    folder = read_folder(tmp_path)
    assert isinstance(folder, ComparisonFolder)
    assert len(folder.results.comparison.effects) == 5
    first = (tmp_path / "index.html").read_bytes()
    rebuild(tmp_path)
    assert (tmp_path / "index.html").read_bytes() == first
    add_score(tmp_path, q_ngi=None, map_correlation=None, synthetic=True)
    assert "SIMULATION" in (tmp_path / "index.html").read_text()
    assert "simulation" in (tmp_path / "methods.md").read_text()


def test_outcomes_of_images_say_how_images_were_read(tmp_path: Path) -> None:
    page(tmp_path, pattern(0.9), feature_space="parcels")
    text = (tmp_path / "methods.md").read_text()
    assert "Every run was prepared at its site" in text
    assert "Filippini" in text


@pytest.mark.parametrize("result", [pattern(0.9), compared(ROWS, FIVE)])
def test_without_the_extra_the_page_has_its_tables(result, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("cape.report.plots.has_matplotlib", lambda: False)
    text = page(tmp_path, result)
    assert "This page has no pictures" in text
    assert "privacy noise" in text


def test_a_site_that_lacks_an_outcome_is_named(tmp_path: Path) -> None:
    whole = compared(ROWS, FIVE)
    first, *others = whole.sites
    lacking = (dataclasses.replace(first, lacks=("caudate",)), *others)
    text = page(tmp_path, dataclasses.replace(whole, sites=lacking))
    assert "does not have" in text
