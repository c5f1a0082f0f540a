"""Groups and covariates of a comparison, as an owner types them."""

from __future__ import annotations

import math

import pytest

from cape.errors import ConfigError
from cape.settings.comparison import (
    Levels,
    Range,
    check_question,
    parse_covariates,
    parse_group,
    parse_outcomes,
)


def test_a_group_is_a_column_and_two_levels() -> None:
    assert parse_group("dx: patient, control") == Levels(column="dx", levels=("patient", "control"))
    assert parse_group(" clinical group :SZ,healthy control ").levels == ("SZ", "healthy control")


@pytest.mark.parametrize(
    "text", ["", "dx", "dx:", ": a, b", "dx: a", "dx: a, a", "dx: A, a", "dx: 1, 1.0", "dx: a,",
             "dx: a, b, c"],
)  # fmt: skip
def test_a_group_of_another_form_is_refused_with_an_example(text) -> None:
    with pytest.raises(ConfigError, match=r"E011 group=.*such as dx: patient, control"):
        parse_group(text)


def test_covariates_have_public_ranges_or_two_levels() -> None:
    age, motion, sex = parse_covariates("age 18:90, fd_mean 0:.5,sex: female/male")
    assert age == Range(column="age", low=18.0, high=90.0)
    assert (motion.low, motion.high, motion.unit) == (0.0, 0.5, 0.125)
    assert sex == Levels(column="sex", levels=("female", "male"))
    assert [one.max_value for one in (age, motion, sex)] == [2.0, 2.0, 1.0]
    assert parse_covariates("") == parse_covariates("  ") == ()
    assert parse_covariates("total score -3:1e2")[0].column == "total score"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("age", "age 18:90"), ("18:90", "age 18:90"), ("age 18-90", "age 18:90"),
        ("age 90:18", "lower end first"), ("age 18:18", "lower end first"),
        ("age nan:3", "age 18:90"), ("age 0:inf", "age 18:90"), ("age 1_0:20", "age 18:90"),
        ("sex f/f", "two different"), ("sex f/m/d", "two different"), ("sex /m", "two different"),
        ("age 18:90,", "age 18:90"), ("age 18:90, AGE 1:2", "name age once"),
        (", ".join(f"c{i} 0:1" for i in range(13)), "at most 12"),
    ],
)  # fmt: skip
def test_covariates_of_another_form_are_refused_with_what_to_do(text, said) -> None:
    with pytest.raises(ConfigError, match=f"E011 covariates=.*{said}"):
        parse_covariates(text)


def test_values_are_read_in_public_units_and_clipped_to_their_range() -> None:
    (age,) = parse_covariates("age 18:90")
    assert age.public("54") == (0.0, False)
    assert age.public("90.0") == (2.0, False)
    assert age.public("17.9") == (-2.0, True)
    assert age.public("1e3") == (2.0, True)
    for cell in ("", "n/a", "old", "5_4", "54,0", "inf", "\u0665"):
        value, clipped = age.public(cell)
        assert math.isnan(value)
        assert not clipped


def test_levels_are_told_apart_as_people_write_them() -> None:
    sex, coded = Levels(column="sex", levels=("F", "M")), Levels(column="dx", levels=("1", "2"))
    assert [sex.which(cell) for cell in ("F", " f ", "m", "female", "")] == [0, 0, 1, -1, -1]
    # a column with an empty cell is one of floats to pandas
    assert [coded.which(cell) for cell in ("1", "1.0", "02", "2.5")] == [0, 0, 1, -1]
    assert [sex.public(cell)[0] for cell in "FM"] == [1.0, -1.0]


def test_a_question_is_not_adjusted_for_itself() -> None:
    check_question(parse_group("dx: a, b"), parse_covariates("age 18:90"))
    with pytest.raises(ConfigError, match="other columns than that of group"):
        check_question(parse_group("dx: a, b"), parse_covariates("age 18:90, DX a/b"))


def test_a_value_in_public_units_is_said_in_the_column_s_own() -> None:
    """On the page of a site, beside its own table."""
    age, sex = parse_covariates("age 18:90, sex female/male")
    assert [age.cell(age.public(cell)[0]) for cell in ("54", "95", "n/a")] == ["54", "90", None]
    assert [sex.cell(sex.public(cell)[0]) for cell in ("female", "male", "")] == [
        "female", "male", None,
    ]  # fmt: skip


def test_outcomes_far_from_zero_have_a_range_whose_middle_is_taken_off() -> None:
    """A volume of 4,000 mm3 lay ten units from zero, and was cut: d .38 where .57 was planted."""
    volume, score = parse_outcomes("hippocampus 2500:5500, score 10")
    assert (volume.unit, volume.middle) == (750.0, 4000.0)
    assert (score.unit, score.middle) == (10.0, 0.0)
    for text in ("hippocampus 2500:", "hippocampus 5500:2500", "hippocampus a:b"):
        with pytest.raises(ConfigError, match="E011 outcomes="):
            parse_outcomes(text)
