"""What a comparison says: its record and tables from released states, words from the record."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cape.report import comparison, files
from cape.report.comparison import GroupComparison, comparison_of, sentence_of
from support import comparison_example as example


def said(*args: object, **how: object) -> GroupComparison:
    record, _ = comparison_of(example.outcome(*args, **how))
    assert record is not None
    return record


def test_a_difference_is_said_with_its_size_its_error_and_for_which_sites() -> None:
    text = sentence_of(said())
    assert text.startswith("At these 3 sites, patient and control differ in hippocampus: d 0.")
    assert "% of the error is privacy noise." in text
    assert "missed" not in text
    text = sentence_of(said(random=True))
    assert text.startswith("At sites like these 3, patient and control differ in hippocampus: ")


def test_where_none_was_found_the_reader_is_told_what_would_have_been_missed() -> None:
    """ "No difference" is nothing that a test of this size can say."""
    text = sentence_of(said(effect=0.0))
    assert "a difference of patient and control in hippocampus was not found: d 0.00 [" in text
    assert "one below d " in text
    assert "would probably have been missed" in text
    several = sentence_of(said(("a", "b", "c"), 0.0))
    assert "in any of 3 outcomes was not found: one below d " in several


def test_of_several_outcomes_those_below_05_after_holm_are_named() -> None:
    effects = np.array([0.9, 0.0, -0.8, 0.7, 0.75])
    record = said(tuple("abcde"), effects)
    assert set(record.found) == {"a", "c", "d", "e"}
    text = sentence_of(record)
    assert "differ in 4 of 5 outcomes: a (d " in text
    assert " and 1 more; " in text
    # With more outcomes a single one must differ by more to be found.
    assert record.smallest > said(effect=0.0).smallest


def test_a_pattern_is_claimed_only_where_the_other_half_points_the_same_way() -> None:
    text = sentence_of(said(example.EDGES, 0.3, pattern=0.9))
    assert "differ along a pattern that was found in half of the people and tested in the" in text
    text = sentence_of(said(example.EDGES, 0.3, pattern=0.9, random=True))
    assert "was found at half of the sites and tested at the others: d " in text
    turned = said(example.EDGES, 0.3, pattern=-0.9)
    assert turned.answer is not None
    assert turned.answer.p < 0.05
    assert "was looked for in half of the people and not found again" in sentence_of(turned)


def test_a_continuous_question_is_about_the_ends_of_its_range() -> None:
    record = said(effect=2.0, group="age 18:90", strict=True)
    assert (record.first, record.second) == ("90", "18")
    assert ", hippocampus changes with age: d " in sentence_of(record)
    none = said(group="age 18:90", strict=True, effect=0.0)
    assert ", a change of hippocampus with age was not found: d " in sentence_of(none)
    two = said(("a", "b"), 0.9, group="age 18:90", strict=True, noise=0.001)
    assert ", 2 of 2 outcomes change with age: " in sentence_of(two)


@pytest.mark.parametrize(
    ("p", "text"),
    [(1e-9, "p < 0.0001"), (4e-4, "p 0.0004"), (0.0312, "p 0.031"), (0.4321, "p 0.43")],
)
def test_p_has_the_figures_that_count(p: float, text: str) -> None:
    assert comparison.p_text(p) == text


def test_numbers_of_a_row_agree_with_one_another() -> None:
    _, tables = comparison_of(example.outcome(tuple("abc"), np.array([0.9, 0.0, -0.8])))
    for row in tables.effects:
        assert row.d * row.sd == pytest.approx(row.estimate)
        parts = (row.se_sampling, row.se_privacy, row.se_adjustment, row.se_sites)
        assert sum(part**2 for part in parts) == pytest.approx(row.se**2)
        assert row.low95 < row.estimate < row.high95
        assert row.p <= row.q_bh <= row.p_holm
        assert 0 < row.privacy < 1
    assert tables.effects[0].estimate > 0.1  # units of .2: .9 scales, about


def test_means_of_groups_lie_around_that_of_all_by_public_shares() -> None:
    _, tables = comparison_of(example.outcome(("a", "b"), 0.9))
    first, second = 220, 330
    for mean, effect in zip(tables.means, tables.effects, strict=True):
        assert mean.mean_first - mean.mean_second == pytest.approx(effect.estimate)
        both = (first * mean.mean_first + second * mean.mean_second) / (first + second)
        assert both == pytest.approx(mean.mean)


def test_balance_is_said_in_the_unit_of_the_column() -> None:
    _, (age, sex) = None, comparison_of(example.outcome())[1].balance
    made = example.outcome()
    kept = made.state.imbalance / made.question.groups.mean_separation
    assert age.difference == pytest.approx(kept[0] * 18)  # (90 - 18) / 4 years a public unit
    assert sex.difference == pytest.approx(kept[1] / 2)
    assert sex.unit == "share of female"
    assert 0 < age.se_privacy < 18


def test_counts_say_who_adds_what() -> None:
    record, tables = comparison_of(example.outcome())
    assert record is not None
    assert record.one_group == ("local2",)
    local0, _, local2 = tables.groups
    assert (local0.first, local0.second, local0.neither) == (140, 150, 10)
    assert local2.weight == 0.0
    assert sum(row.weight for row in tables.groups) == pytest.approx(1.0)


def test_protected_groups_have_no_counts() -> None:
    record, tables = comparison_of(example.outcome(strict=True))
    assert record is not None
    assert record.strict
    assert record.one_group == ()
    assert {row.first for row in tables.groups} == {None}
    assert {row.mean_first for row in tables.means} == {None}


def test_a_run_that_was_refused_has_counts_and_no_answer() -> None:
    made = example.outcome()
    state = dataclasses.replace(made.state, looks=3)
    record, tables = comparison_of(dataclasses.replace(made, state=state))
    assert record is None
    assert tables.effects == ()
    assert len(tables.groups) == 3


def test_without_covariates_there_is_no_balance() -> None:
    assert list(comparison._balance((), example.question(1), example.outcome().state)) == []


@pytest.mark.parametrize(
    ("made", "means"),
    [
        (example.outcome(example.EDGES, 0.3, pattern=0.9), "mean_fnc.tsv"),
        (example.outcome(("a", "b", "c")), "means.tsv"),
        (example.outcome(strict=True), "means.tsv"),
    ],
)
def test_files_are_read_as_they_were_written(made, means, tmp_path) -> None:
    record, tables = comparison_of(made)
    comparison.write_tables(tmp_path, tables, made.names)
    assert (tmp_path / means).is_file()
    assert (tmp_path / "pattern.tsv").is_file() == (record.kind == "pattern")
    back = comparison.read_tables(tmp_path)
    assert back.groups[0].first == tables.groups[0].first
    assert len(back.means) == len(tables.means)
    np.testing.assert_allclose(
        [row.p for row in back.effects], [row.p for row in tables.effects], rtol=1e-10
    )
    files.write_json(tmp_path / "record.json", record)
    assert files.read_record(tmp_path / "record.json", GroupComparison) == record


def test_edges_are_known_by_their_names() -> None:
    assert comparison._are_edges(example.EDGES)
    assert not comparison._are_edges(("a", "b", "c"))
    assert not comparison._are_edges(("a - b",))
