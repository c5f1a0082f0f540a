"""The question of a comparison, as an owner types it."""

import math
import random
import re
from typing import Any

import numpy as np
import pytest

from cape.errors import ConfigError
from cape.settings.question import Question, Variable, parse_question, quoted, term_text

VARIABLES = "dx control/SZ/BD, age 18:90, sex F/M, ICV 1000:2100"


def asked(**settings: str) -> Question:
    defaults = dict(variables=VARIABLES, formula="dx + age", outcomes="hippocampus 2500:5500")
    return parse_question(**{**defaults, "public": "dx", **settings})


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("dx + age", ["dx", "age"]),
        ("~ dx*age+sex", ["dx", "age", "dx:age", "sex"]),
        ("dx:age", ["dx:age", "dx", "age"]),
        ("age + I(age^2) + dx", ["age", "I(age^2)", "dx"]),
        ("dx + I( age ** 2 )", ["dx", "I(age^2)", "age"]),
        ("DX + dx + sex:dx + dx:sex", ["dx", "sex:dx", "sex"]),
        ('dx + "ICV" + `age`', ["dx", "ICV", "age"]),
    ],
)
def test_a_formula_is_the_right_side_of_one_in_r(formula, terms) -> None:
    question = asked(formula=formula, ask="dx", public="dx, sex")
    assert [term_text(term) for term in question.model] == terms


def test_a_term_is_adjusted_for_all_that_do_not_contain_it() -> None:
    question = asked(formula="dx * age + sex + I(age^2)", ask="dx, age + I(age^2)")
    dx, age, square = question.asked
    assert [one.text for one in question.asked] == ["dx", "age", "I(age^2)"]
    assert [one.public for one in question.asked] == [True, False, False]
    assert [one.q for one in question.asked] == [2, 1, 1]
    assert dx.nuisance == (("age",), ("sex",), ("age", "age"))
    assert age.nuisance == (("dx",), ("sex",))
    assert square.nuisance == (("dx",), ("age",), ("dx", "age"), ("sex",))


BAD = [
    ("formula", "C(dx) + age", "name the column alone"),
    ("formula", "log(age)", r"log\(\) stands in outcomes"),
    ("formula", "dx + (1|site)", "site is in every model"),
    ("formula", "dx + (1 + age | site)", "site is in every model"),
    ("formula", "hippocampus ~ dx", "leave out hippocampus ~"),
    ("formula", "dx - 1", "leave the intercept out"),
    ("formula", "0 + dx", "leave the intercept out"),
    ("formula", "dx * age * sex", "at most two columns"),
    ("formula", "I(dx^2)", "dx has levels"),
    ("formula", "age:age", r"write I\(age\^2\)"),
    ("formula", "dx + agee", "did you mean 'age'"),
    ("formula", "dx +", "both sides of every sign"),
    ("formula", "dx + site", "leave it out"),
    ("formula", "(dx + age)^2", "name the column alone"),
    ("formula", "dx/sex", "with : and"),
    ("variables", "dx control/SZ, mmse 0-30", "write mmse 0:30"),
    ("variables", "dx SZ, age 1:2", "two levels or more"),
    ("variables", "age 90:18", "write age 18:90"),
    ("variables", "age 18:18", "widen it"),
    ("variables", "dx control/SZ, age", "a range with :"),
    ("variables", "dx 1/1.0", "different levels"),
    ("variables", "dx a/b, DX 1:2", "name dx once"),
    ("variables", "=age 18:90", "begin with another sign"),
    ("variables", "+age 18:90", "begin with another sign"),
    ("variables", "-age 18:90", "begin with another sign"),
    ("variables", "@age 18:90", "begin with another sign"),
    ("variables", "dx a/=b", "begin with another sign"),
    ("variables", "blood group A/B", 'write "blood group" A/B or blood "group A"/B'),
    ("variables", "dx a/", "allowed columns with levels"),
    ("variables", "age 1e-10:2e-10", "4e-9 to 4e9 wide"),
    ("variables", "log(age) 1:4", r"log\(\) stands in outcomes"),
    ("variables", "age 18:90,", "allowed columns with levels"),
    ("outcomes", "hippocampus", "range of most people"),
    ("outcomes", "score 10", "write score -20:20"),
    ("outcomes", "a 1:2, A 1:2", "name a once"),
    ("outcomes", "a 1:2, log(a) 1:2", "name a once"),
    ("outcomes", "log(wmh) 0:3", "begin it above 0"),
    ("outcomes", "fnc, a 1:2", "fnc stands alone"),
    ("outcomes", "=a 1:2", "begin with another sign"),
    ("outcomes", "age 1:2", "leave it out of one"),
    ("ask", "sex", r"dx \+ age"),
    ("ask", "dx * age", "write dx:age"),
    ("public", "age", "counts need levels"),
    ("public", "foo", "state its levels"),
    ("public", "", 'set public = "dx", or name two levels of dx'),
    ("among", "sex F", 'set public = "dx, sex"'),
    ("among", "dx SZ", "leave it out of formula"),
    ("among", "dx foo", "levels control/SZ/BD"),
    ("outcomes", "a 1:2; b 1:2", "separate with commas"),
    ("outcomes", "a: 1:2", "write a 1:2"),
    ("outcomes", "a=1:2", "write a 1:2"),
    ("outcomes", "a 2,5:5,5", r"write 2\.5"),
    ("outcomes", "a 2:5,5", r"write 5\.5"),
    ("variables", "dx a/b; sex F/M", "separate with commas"),
    ("variables", "dx=a/b", "write dx a/b"),
    ("variables", "age 18,5:90", r"write 18\.5"),
    ("public", "dx; sex", "separate with commas"),
    ("ask", "dx; age", "separate with commas"),
    ("formula", "dx; age", r"separate with \+"),
    ("among", "dx: SZ", "write dx SZ"),
    ("change", "ses-1", "two sessions"),
    ("change", "1, ses-1", "two sessions"),
    ("test", "pattern", "one outcome has no pattern"),
]


@pytest.mark.parametrize(("setting", "text", "way"), BAD)
def test_what_is_not_understood_is_refused_with_a_way(setting, text, way) -> None:
    with pytest.raises(ConfigError, match=way) as refused:
        asked(**{setting: text})
    assert refused.value.code == "CAPE-E011"


@pytest.mark.parametrize(
    ("settings", "way"),
    [
        ({"ask": "age"}, "not age"),
        ({"ask": "dx"}, "not dx"),  # three levels
        ({"ask": "dx, age"}, "one with test=pattern"),
    ],
)
def test_a_pattern_is_of_one_public_term_of_two_levels(settings, way) -> None:
    with pytest.raises(ConfigError, match=way):
        asked(test="pattern", outcomes="a 1:2, b 1:2", **settings)
    two = asked(test="pattern", outcomes="a 1:2, b 1:2", variables="dx a/b, age 1:2")
    assert two.pattern


def test_protected_terms_have_one_column() -> None:
    with pytest.raises(ConfigError, match=r"ask=dx:age.*name two levels of dx"):
        asked(formula="dx * age", ask="dx:age")  # no column of counts would help
    asked(formula="dx * age", ask="age")
    two = asked(formula="dx * age", ask="dx:age", variables="dx a/b, age 1:2")
    assert (two.asked[0].q, two.asked[0].public) == (1, False)


def test_a_setting_that_is_missing_is_named() -> None:
    for setting in ("variables", "formula", "outcomes"):
        with pytest.raises(ConfigError, match=f"E013.*'{setting}'"):
            asked(**{setting: " "})
    with pytest.raises(ConfigError, match=r"E013.*'networks'"):
        asked(outcomes="fnc")


def test_columns_that_nothing_names_are_not_read() -> None:
    question = asked(formula="dx", public="sex, dx")
    assert [one.name for one in question.variables] == ["dx", "sex"]
    assert question.cells[:2] == (("F", "control"), ("F", "SZ"))
    assert asked(formula="age", public="").cells == ((),)


def test_only_levels_of_among_are_asked() -> None:
    """With a level left out, a variable has two levels and its term one column."""
    question = asked(among="dx BD/control")
    assert question.among == ("dx", ("control", "BD"))
    assert question.cells == (("control",), ("BD",))
    assert question.asked[0].q == 1
    assert np.isnan(question.variable("dx").code(["SZ"])).all()
    assert asked(formula="age", among="dx SZ").cells == (("SZ",),)


# The names of relation 5
NAMES = (
    "years of age",
    "Größe",
    "年齢",
    'say "x"',
    "HDRS:17",
    "a+b*c",
    "don't",
    "n" * 100,
    "5-HT/2",
)


@pytest.mark.parametrize("name", NAMES)
def test_columns_have_names_of_all_kinds(name) -> None:
    q = quoted(name)
    question = parse_question(
        variables=f"{q} a/b, {quoted(name + '2')} 1:2",
        formula=f"{q} + I({quoted(name + '2')}^2)",
        public=q,
        outcomes=f"{quoted(name + '3')} 1:2, log({quoted(name + '4')}) 1:2",
    )
    assert question.public == (name,)
    assert question.model == ((name,), (name + "2",) * 2, (name + "2",))
    assert [one.name for one in question.outcomes] == [name + "3", name + "4"]


def test_names_with_blanks_need_no_quotes_where_they_are_clear() -> None:
    question = parse_question(
        variables="total brain volume 1:2, dx healthy/bipolar disorder", public="dx",
        formula="dx + total brain volume", outcomes="left hippocampus 1:2",
    )  # fmt: skip
    assert question.model == (("dx",), ("total brain volume",))
    assert question.cells == (("healthy",), ("bipolar disorder",))
    assert question.outcomes[0].name == "left hippocampus"


def test_one_spelling_of_an_umlaut() -> None:
    """A name that a Mac wrote as letter and mark is the same name."""
    question = parse_question(
        variables="Gro\u0308\u00dfe 1:2", formula="Gr\u00f6\u00dfe", outcomes="a 1:2"
    )
    assert question.model == (("Gr\u00f6\u00dfe",),)
    dx = Variable(name="dx", levels=("geh\u00f6rlos", "h\u00f6rend"))
    assert dx.code(["GEHO\u0308RLOS "]).tolist() == [0.0]


def test_cells_are_coded_or_missing() -> None:
    dx = Variable(name="dx", levels=("0", "1"))
    assert dx.code([0, "1.0", " 1", 1.0])[1:].tolist() == [1.0, 1.0, 1.0]
    cells: list[Any] = [None, "", math.nan, "2", "n/a", float("inf"), "1,0"]
    assert np.isnan(dx.code(cells)).all()
    age = Variable(name="age", low=20.0, high=60.0)
    assert age.code(["40", 50, "1e300", "-7"]).tolist() == [0.0, 1.0, 2.0, -2.0]
    assert np.isnan(age.code(["41,3", "1_0", "٣", None, "inf", "1e999", "abc"])).all()


def test_a_logarithm_has_unit_and_middle_of_its_own() -> None:
    (one,) = asked(outcomes="log(wmh) .1:100").outcomes
    assert one.name == "wmh"
    assert one.log
    assert one.unit == pytest.approx(math.log(1000) / 4)
    assert one.middle == pytest.approx(math.log(math.sqrt(10)))
    assert "ratio" in one.word


def test_a_change_lies_around_zero() -> None:
    question = asked(outcomes="a 10:14", change="ses-pre, post")
    assert question.change == ("pre", "post")
    assert (question.outcomes[0].unit, question.outcomes[0].middle) == (1.0, 0.0)


def test_networks_have_names_and_domains() -> None:
    networks = 'precuneus (default mode), "IC02, left" (visual), IC03 (visual)'
    question = asked(outcomes="domains", networks=networks)
    assert question.measure.networks == ("precuneus", "IC02, left", "IC03")
    names = [one.name for one in question.outcomes]
    assert names == ["default mode - visual", "visual"]
    assert not question.of_tables
    assert asked(outcomes="fnc", networks="a,b", outcomes_from="gift").of_tables
    for wrong, way in [
        ("a (x), b", "domain of b"),
        ("a (x)", "two maps"),
        ("a, A", "name a once"),
        ("a; b, c", "commas"),
    ]:
        with pytest.raises(ConfigError, match=way):
            asked(outcomes="domains", networks=wrong)
    with pytest.raises(ConfigError, match="outcomes = domains"):
        asked(outcomes="fnc", networks=", ".join(f"m{i}" for i in range(33)))
    for kind in ("falff", "hippocampus 1:2"):
        with pytest.raises(ConfigError, match="outcomes_from=gift"):
            asked(outcomes=kind, networks="a, b", outcomes_from="gift")


def test_a_remedy_that_is_typed_is_taken() -> None:
    """Also where names need quotes."""

    def remedy(**settings: str) -> str:
        with pytest.raises(ConfigError) as refused:
            asked(variables='dx a/b, "b:m i" 1:60', **{"formula": '"b:m i" + dx', **settings})
        return re.split("write |formula: ", refused.value.public)[-1].rstrip(".")

    named = remedy(ask='dx:"b:m i"').split(" + ")[0]
    square = remedy(formula=f"{named}:{named}")
    given = {"variables": 'dx a/b, "b:m i" 1:60', "formula": f"dx + {square}"}
    assert asked(**given, ask=square).asked[0].names == ("b:m i",) * 2
    with pytest.raises(ConfigError, match='write "b:m i" 1:60') as refused:
        asked(variables='"b:m i" 60:1')
    assert refused.value.code == "CAPE-E011"


def test_too_many_columns_or_cells_are_refused() -> None:
    names = [f"c{i}" for i in range(14)]
    ranges = ", ".join(f"{name} 0:1" for name in names)
    with pytest.raises(ConfigError, match="at most 12 columns beside c0"):
        asked(variables=ranges, formula=" + ".join(names), public="")
    with pytest.raises(ConfigError, match="at most 64 crossed levels"):
        asked(variables="a 1/2/3/4/5, b 1/2/3/4/5, c 1/2/3", formula="c", public="a, b, c")


def test_whatever_is_typed_is_a_question_or_is_refused() -> None:
    rng = random.Random(4)
    right = {
        "variables": 'dx control/SZ/BD, age 18:90, "a b" 1:2', "ask": "dx, age", "public": "dx",
        "formula": 'dx * age + I(age^2) + "a b"', "outcomes": "h 1:2, log(w) .1:10",
        "among": "dx SZ/BD", "change": "ses-1, 2", "networks": "a (x), b (y)",
    }  # fmt: skip
    taken = 0
    for _ in range(3000):
        given, setting = dict(right), rng.choice(list(right))
        text, at = right[setting], rng.randint(0, len(right[setting]))
        sign = rng.choice('"`+-*:/()^~|,. I1x\n\t\0é年=@')
        given[setting] = text[:at] + sign + text[at + rng.randint(0, 2) :]
        try:
            taken += bool(parse_question(**given))
        except ConfigError:
            continue
    assert 300 < taken < 2700
