"""What a comparison says of its record: findings, nulls by intervals, and why nothing is said."""

import dataclasses
import re

import pytest

from cape.report.comparison import PATTERN, GroupComparison
from cape.report.comparison_words import (
    WITHHELD,
    notes_of,
    p_text,
    per,
    r_line,
    sentences_of,
    who_of,
)
from cape.settings.question import parse_question
from support.comparison_example import (
    FIVE,
    NAMES,
    TWO,
    compared,
    effect,
    pattern,
    three_groups,
    withheld,
)


def said(result: GroupComparison) -> str:
    return " ".join(sentences_of(result))


def test_a_difference_is_said_with_its_interval() -> None:
    text = said(compared([effect("hippocampus", -0.45)]))
    assert text == "SZ and control differ in hippocampus: -0.45 sd [-0.65, -0.25], p < 0.0001."


def test_of_several_outcomes_the_strongest_is_named() -> None:
    rows = [effect(name, d) for name, d in zip(NAMES, (-0.3, -0.5, 0, 0, 0.4), strict=True)]
    text = said(compared(rows, FIVE))
    assert "differ in 3 of 5 outcomes, most in amygdala: -0.50 sd [" in text
    assert "after Holm" in text
    one = said(compared([effect(name, -0.5 * (name == "caudate")) for name in NAMES], FIVE))
    assert "differ in 1 of 5 outcomes, caudate: -0.50 sd [" in one
    asked = {**FIVE, "outcomes": "hippocampus 1000:5000, amygdala 1000:5000"}
    both = said(compared([effect(name, -0.5) for name in NAMES[:2]], asked))
    assert "differ in both outcomes, most in hippocampus" in both
    every = said(compared([effect(name, -0.5) for name in NAMES], FIVE))
    assert "differ in all 5 outcomes, most in hippocampus" in every


def test_a_null_is_said_by_intervals_and_never_as_no_difference() -> None:
    text = said(compared([effect("hippocampus", 0.05)]))
    assert "No difference between SZ and control was found in hippocampus: 0.05 sd [-0.15," in text
    several = said(compared([effect(name, 0.05) for name in NAMES], FIVE))
    assert "was found in any of 5 outcomes: the intervals of 95 % exclude those beyond 0.25 sd" in (
        several
    )
    for word in ("power", "missed", "there is no difference"):
        assert word not in several


@pytest.mark.parametrize("fits", [fits for fits in WITHHELD if fits != "no d"])
def test_where_an_answer_is_withheld_there_is_no_size_and_no_null(fits: str) -> None:
    text = said(compared([withheld("hippocampus", fits)]))
    noise = "; privacy noise is 50 % of the error" if fits == "wide" else ""
    assert text.endswith(f"Nothing can be said about hippocampus: {WITHHELD[fits]}{noise}.")
    assert not re.search(r"was found|not found|exclude|\.\d+ sd", text)
    rows = [*(effect(name, -0.5) for name in NAMES[:4]), withheld("pallidum", fits)]
    among = said(compared(rows, FIVE))
    assert "differ in all 4 outcomes" in among
    assert f"Nothing is said about pallidum: {WITHHELD[fits]}." in among


@pytest.mark.parametrize("fits", ["large", "no d"])
def test_what_is_found_without_a_size_has_its_direction_or_its_unit(fits: str) -> None:
    row = withheld("hippocampus", fits, p=1e-9, p_holm=1e-9)
    text = said(compared([row]))
    assert "SZ and control differ in hippocampus: " in text
    # Only here: with p .35 to 1 of 6 connections it was said to be known, too.
    assert "direction" not in WITHHELD[fits]
    assert " sd" not in text
    assert ("400 [322, 478]" if fits == "no d" else "SZ above control") in text
    (note,) = notes_of(compared([row]))
    assert note.startswith("The size in standard deviations of hippocampus is not known: ")
    assert note.endswith(", so only the direction is known.") is (fits == "large")


def test_a_null_without_a_size_is_said_in_its_unit() -> None:
    """The spread is not known, but nothing was cut: the estimate and its interval hold."""
    row = withheld("hippocampus", "no d", p=0.4, p_holm=0.4, estimate=20.0, low95=-9, high95=49)
    assert said(compared([row])).endswith("was found in hippocampus: 20 [-9, 49], p 0.40.")
    rows = [dataclasses.replace(row, outcome=name) for name in NAMES]
    assert "was found in any of 5 outcomes: how large one may be is in" in said(
        compared(rows, FIVE)
    )
    one = [*rows[:4], effect("pallidum", 0.05)]
    assert "exclude those beyond 0.25 sd" in said(compared(one, FIVE))


def test_a_hopeless_run_speaks_of_no_sd() -> None:
    """ "No difference was found: the intervals of 95 % exclude those beyond 537.51 sd"."""
    parts = {"se_privacy": 400 * 0.98**0.5, "se_sampling": 400 * 0.02**0.5, "se": 400.0}
    rows = [withheld(name, "wide", p=0.03, p_holm=1.0, **parts) for name in NAMES]
    result = compared(rows, FIVE)
    assert said(result) == (
        "Nothing can be said about any of 5 outcomes: the intervals of 95 % reach beyond 2 sd to "
        "either side; privacy noise is 98 % of the error."
    )
    assert "with a value" not in who_of(result)
    some = said(compared([*rows[:4], effect("pallidum", 0.05)], FIVE))
    assert "was found in pallidum: 0.05 sd" in some
    assert "Nothing is said about hippocampus, amygdala, thalamus and 1 more: the inter" in some
    (there,) = notes_of(compared([withheld("hippocampus", "wide", p=1e-9, p_holm=1e-9)]))
    assert there.startswith("The size in standard deviations of hippocampus is not known: the int")


def test_of_several_groups_the_omnibus_decides_and_pairs_follow() -> None:
    text = said(three_groups())
    assert (
        "Groups control, SZ and BD differ in 1 of 2 outcomes, hippocampus, most SZ - control: "
        "-0.45 sd" in text
    )
    assert "; pairs that differ: SZ - control, BD - SZ." in text
    # Pairs are not claimed where the omnibus does not hold.
    none = said(three_groups(several=False))
    assert "No difference among control, SZ and BD was found in any of 2 outcomes" in none


AGE = {**TWO, "formula": "dx * age + sex", "ask": "age"}


def slope(d: float, term: str = "age", contrast: str = "age"):
    """Return a row whose slope is `d` sd in 10 years."""
    row = effect("hippocampus", d, term=term, contrast=contrast)
    parts = ("estimate", "low95", "high95", "d", "d_low95", "d_high95")
    return dataclasses.replace(row, **{name: getattr(row, name) / 10 for name in parts})


def test_slopes_are_said_in_a_step_that_a_reader_knows() -> None:
    text = said(compared([slope(-0.4)], AGE))
    assert "hippocampus falls with age: by 0.40 sd [0.20, 0.60] in 10 years, p" in text
    assert "hippocampus rises with age" in said(compared([slope(0.4)], AGE))
    assert "No change with age was found in hippocampus" in said(compared([slope(0.0)], AGE))


@pytest.mark.parametrize(
    ("formula", "ask", "words"),
    [
        (
            "dx * age + sex",
            "dx:age",
            "The slope with age differs between SZ and control in hippocampus: in SZ higher by",
        ),
        ("dx * sex + age", "dx:sex", "The effect of dx depends on sex in hippocampus: 0.50 sd"),
        ("dx + I(age^2) + sex", "I(age^2)", "hippocampus and age go together along a curve"),
    ],
)
def test_products_say_what_depends_on_what(formula: str, ask: str, words: str) -> None:
    asked = {**TWO, "formula": formula, "ask": ask}
    (term,) = parse_question(**asked).asked
    row = effect("hippocampus", 0.5, term=term.text, contrast=term.text)
    assert words in said(compared([row], asked))
    null = said(compared([dataclasses.replace(row, p_holm=0.5)], asked))
    assert null.startswith("No ")
    assert " was found in hippocampus: " in null


def test_every_asked_term_has_a_sentence() -> None:
    asked = {**TWO, "formula": "dx * age + sex", "ask": "dx + age + dx:age"}
    rows = [effect("hippocampus", -0.4), slope(-0.4), slope(0.3, "dx:age", "dx:age [SZ]")]
    first, second, third = sentences_of(compared(rows, asked))
    assert first.startswith("SZ and control differ in hippocampus: ")
    assert second.startswith("hippocampus falls with age: ")
    assert third.startswith("The slope with age differs between SZ and control in hippocampus: ")


def test_a_pattern_is_claimed_only_where_the_other_half_points_the_same_way() -> None:
    assert (
        "SZ and control differ along a pattern over 15 connections that was found in half of the "
        "people and tested in the other half: 0.90 sd ["
    ) in said(pattern(0.9))
    assert "found at half of the sites and tested at the others" in said(
        pattern(0.9, site_effects="random")
    )
    assert "not found again in the other half: -0.90 sd" in said(pattern(-0.9))
    assert "not found again in the other half: 0.05 sd" in said(pattern(0.05))
    rows = pattern(0.9)
    silent = dataclasses.replace(rows, effects=(withheld(PATTERN, "shape"), *rows.effects[1:]))
    assert "Nothing can be said about a pattern over 15 connections: " in said(silent)


def test_change_and_among_are_said() -> None:
    changed = compared([effect("hippocampus", -0.4)], {**TWO, "change": "ses-1, ses-2"})
    assert (
        "differ in the change from session 1 to 2 of hippocampus: -0.40 sd of the change"
        in said(changed)
    )
    only = {**TWO, "formula": "age + sex", "among": "dx SZ"}
    result = compared([slope(-0.4)], only)
    assert "people asked (dx SZ)" in who_of(result)


def test_who_was_asked_is_said_with_what_was_adjusted_for() -> None:
    assert who_of(compared([effect("hippocampus")])) == (
        "2 of 3 sites, 490 people asked, about 90 % with a value; adjusted for age, sex and site. "
        "local2 did not enter: people of one group only. The answer is for these sites."
    )
    random = compared([effect("hippocampus")], {**TWO, "site_effects": "random"})
    assert who_of(random).endswith("The answer is for sites like these.")
    rows = [effect("hippocampus"), effect("amygdala", observed=0.7)]
    text = who_of(compared(rows, {**FIVE, "formula": "dx"}))
    assert "about 70 to 90 % with a value; adjusted for site." in text


def test_notes_name_three_outcomes_and_count_the_rest() -> None:
    rows = [effect("hippocampus"), *(withheld(name, "ties") for name in NAMES[1:])]
    note = sentences_of(compared(rows, FIVE))[-1]
    assert "amygdala, thalamus, caudate and 1 more: too many people" in note


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, "car::Anova(lm(hippocampus ~ dx + age + sex + site), type = 2)"),
        (
            {"formula": "dx * age + I(age^2)"},
            "lm(hippocampus ~ dx + age + dx:age + I(age^2) + site)",
        ),
        ({"outcomes": "log(wmh) .1:100"}, "lm(log(wmh) ~ dx"),
        ({"outcomes": FIVE["outcomes"]}, "lm(y ~ dx"),
        ({"change": "ses-1, ses-2"}, "lm(y ~ dx"),
        ({"outcomes": '"left hippo" 1:2'}, "lm(`left hippo` ~ dx"),
        ({"site_effects": "random"}, "lme4::lmer(hippocampus ~ dx + age + sex + (1 + dx | site))"),
    ],
)
def test_the_line_of_r_is_that_of_the_formula(changed: dict[str, str], line: str) -> None:
    assert line in r_line(parse_question(**{**TWO, **changed}), 3)


def test_the_line_and_the_words_of_one_lab_have_no_site() -> None:
    # "+ site" of one level: "contrasts can be applied only to factors with 2 or more levels" in R.
    line = "car::Anova(lm(hippocampus ~ dx + age + sex), type = 2)"
    assert r_line(parse_question(**TWO), 1) == line
    both = compared([effect("hippocampus")], TWO)
    alone = dataclasses.replace(both, sites=both.sites[:1])
    assert "adjusted for age, sex and site." in who_of(both)
    assert "adjusted for age and sex." in who_of(alone)


def test_the_step_of_a_slope_is_a_power_of_ten() -> None:
    asked = parse_question(
        variables="age 18:90, motion 0:.5", formula="age * motion + I(age^2)",
        outcomes="u 0:1", ask="age, motion, age:motion, I(age^2)",
    )  # fmt: skip
    assert [per(asked, term) for term in asked.asked] == [
        (10.0, " in 10 years"),
        (pytest.approx(0.1), " per 0.1 of motion"),
        (pytest.approx(1.0), " per 10 of age and 0.1 of motion"),
        (100.0, " per square of 10 of age"),
    ]


@pytest.mark.parametrize(
    ("p", "text"),
    [(1e-9, "p < 0.0001"), (4e-4, "p 0.0004"), (0.0312, "p 0.031"), (0.4321, "p 0.43")],
)
def test_p_has_the_figures_that_count(p: float, text: str) -> None:
    assert p_text(p) == text
