"""Relations of the answers of a comparison: two runs on changed data or settings are compared.

Four sites of 400 people at epsilon 4, through the fast driver with one seed, so that two runs draw
the same noise; whole runs where a road is the matter.  Where noise differs, answers may be five
standard errors apart, which happens in fewer than one of a million runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cape
import comparison
from cape.algorithms.effects import EffectRow
from cape.errors import CapeError
from cape.planning.comparison_budget import comparison_budget
from support.fast_comparison import Found, fast
from support.group_study import ROWS

Sites = dict[str, dict[str, np.ndarray]]
VARIABLES = "dx HC/SZ, group HC/SZ/BD, sex F/M, age 18:90, iq 40:160"
OUTCOMES = "left 3000:5000, right 8:16"  # two sd on each side, right is the same in all groups
GROUPS = {"formula": "dx + age + sex", "public": "dx"}
PRODUCTS = {"formula": "dx * age", "public": "dx"}
QUESTIONS: dict[str, dict[str, str]] = {
    "groups": GROUPS,
    "three groups": {"formula": "group + age", "public": "group"},
    "protected groups": {**GROUPS, "public": ""},
    "age": {**GROUPS, "ask": "age"},
    "slopes": {**PRODUCTS, "ask": "dx:age"},
    "three terms": {**PRODUCTS, "ask": "dx, age, dx:age"},
    "square": {"formula": "age + I(age^2)", "ask": "I(age^2)"},
    "product of levels": {"formula": "dx * sex", "ask": "dx:sex", "public": "dx, sex"},
    "among": {"formula": "age + sex", "public": "group", "among": "group SZ/BD"},
    "change": {**GROUPS, "change": "before, after"},
    "random": {**GROUPS, "site_effects": "random"},
    "pattern": {**GROUPS, "test": "pattern"},
}
every_question = pytest.mark.parametrize("kind", QUESTIONS)
# Those whose rows are of the outcomes themselves
each = pytest.mark.parametrize("kind", [kind for kind in QUESTIONS if kind != "pattern"])


def people(n: int = 400, S: int = 4, seed: int = 1, effect: float = 0.6) -> Sites:
    """Return sites where SZ and age move `left`, and only age moves `right`."""
    rng, made = np.random.default_rng(seed), {}
    for s in range(S):
        dx, sex = rng.integers(2, size=n), rng.integers(2, size=n)
        group = dx + dx * rng.integers(2, size=n)
        age = rng.normal(50 + 3 * dx, 14, n).clip(18, 90).round(1)
        table = {
            "dx": np.array(["HC", "SZ"])[dx],
            "group": np.array(["HC", "SZ", "BD"])[group],
            "sex": np.array(["F", "M"])[sex],
            "age": age,
            "iq": rng.normal(100, 15, n),
        }
        for name, middle, sd, by_dx in (("left", 4000.0, 500.0, effect), ("right", 12.0, 2.0, 0.0)):
            values = rng.standard_normal(n) + by_dx * dx - 0.02 * (age - 50) + rng.normal(0, 0.5)
            before = 100.0 + rng.standard_normal(n)
            table[name] = middle + sd * values
            table[f"{name}@before"], table[f"{name}@after"] = before, before + sd * values
        made[f"site {s}"] = table
    return made


@pytest.fixture(scope="module")
def sites() -> Sites:
    return people()


def ask(sites: Sites, kind: str, epsilon: float | None = 4.0, **changed: str) -> Found:
    settings = {"variables": VARIABLES, "outcomes": OUTCOMES, **QUESTIONS[kind], **changed}
    return fast(settings, sites, epsilon=epsilon, rng=np.random.default_rng(7))


def with_columns(
    sites: Sites, names: tuple[str, ...], change: Callable[[np.ndarray], np.ndarray]
) -> Sites:
    """Return sites whose columns of these names are changed, each in all sessions."""
    return {
        site: {
            name: change(values) if name.partition("@")[0] in names else values
            for name, values in table.items()
        }
        for site, table in sites.items()
    }


def numbers(row: EffectRow, unit: float = 1.0) -> dict[str, float]:
    """Return all numbers of a row; those in the outcome's unit by `unit`."""
    own = {one.name: getattr(row, one.name) for one in fields(row)}
    found = {name: value for name, value in own.items() if isinstance(value, float)}
    of_unit = {"estimate", "low95", "high95", "sd"} | {name for name in found if name[:2] == "se"}
    return {name: value / unit if name in of_unit else value for name, value in found.items()}


def same(one: Found, other: Found, *, rtol: float = 0.0, units: Mapping[str, float] = {}) -> None:
    """Tell whether two answers are equal, row by row; to the bit without a tolerance."""
    assert len(one.effects) == len(other.effects)
    for first, second in zip(one.effects, other.effects, strict=True):
        assert first.fits == second.fits
        left, right = numbers(first), numbers(second, units.get(second.outcome, 1.0))
        atol = rtol * np.nan_to_num(first.sd)
        np.testing.assert_allclose([*right.values()], [*left.values()], rtol=rtol, atol=atol)


def near(one: EffectRow, other: EffectRow) -> None:
    """Tell whether two rows agree within five standard errors of both."""
    assert abs(one.estimate - other.estimate) < 5 * math.hypot(one.se, other.se)


# -- 1, 2, 3: units, constants, ranges -----------------------------------------------------------


@every_question
@pytest.mark.parametrize("factor", [1000.0, 0.001])
def test_1_unit_times_1000(sites, kind, factor) -> None:
    outcomes = f"left {3000 * factor:.12g}:{5000 * factor:.12g}, right 8:16"
    changed = ask(with_columns(sites, ("left",), lambda x: factor * x), kind, outcomes=outcomes)
    same(ask(sites, kind), changed, rtol=1e-3, units={"left": factor})


@every_question
def test_2_constant_added(sites, kind) -> None:
    moved = with_columns(sites, ("left",), lambda x: x - 4e4)
    moved = with_columns(moved, ("age",), lambda x: x + 500)
    variables = VARIABLES.replace("age 18:90", "age 518:590")
    changed = ask(moved, kind, outcomes="left -37000:-35000, right 8:16", variables=variables)
    same(ask(sites, kind), changed, rtol=1e-3)


@each
@pytest.mark.parametrize(
    "outcomes",
    [
        "left 2000:6000, right 4:20", "left -6000:14000, right -28:52",
        "left 4000:6000, right 12:20", "left 2500:4500, right 8:16",
    ],
)  # fmt: skip
def test_3_wide_moved_range(sites, kind, outcomes) -> None:
    """Twice and ten times as wide; two sd off, and one to the other side."""
    for one, other in zip(
        ask(sites, kind).effects, ask(sites, kind, outcomes=outcomes).effects, strict=True
    ):
        assert other.fits == one.fits == "yes"
        near(one, other)
        assert other.se < 1.35 * one.se
        assert other.sd == pytest.approx(one.sd, rel=0.1)


@each
@pytest.mark.parametrize("ends", ["2000:6000", "-6000:14000"])
def test_3_wide_range_of_one_of_two(sites, kind, ends) -> None:
    """No look pays for the scale of each outcome: an outcome far from the others has no d."""
    outcomes = OUTCOMES.replace("3000:5000", ends)
    for one, other in zip(
        ask(sites, kind).effects, ask(sites, kind, outcomes=outcomes).effects, strict=True
    ):
        near(one, other)
        assert other.fits == "yes" or (other.fits == "no d" and other.outcome == "left")
        if other.fits == "yes":
            assert other.d_low95 - (other.d - other.d_low95) < one.d
            assert other.d_high95 + (other.d_high95 - other.d) > one.d


@pytest.mark.parametrize("ends", ["-18:126", "-306:414", "46:118"])
def test_3_wide_moved_range_of_a_covariate(sites, ends) -> None:
    variables = VARIABLES.replace("18:90", ends)
    for kind in ("groups", "three groups", "protected groups"):
        for one, other in zip(
            ask(sites, kind).effects, ask(sites, kind, variables=variables).effects, strict=True
        ):
            near(one, other)
            assert other.se < 1.35 * one.se


# -- 4, 5, 6: order, names, what nobody asked for ------------------------------------------------


@every_question
def test_4_order(sites, kind) -> None:
    """Outcomes, columns and covariates in another order; without noise, of which each has its."""
    formula = QUESTIONS[kind]["formula"]
    if "*" not in formula:
        formula = " + ".join([formula.split(" + ")[0], *reversed(formula.split(" + ")[1:])])
    changed = {
        "outcomes": ", ".join(reversed(OUTCOMES.split(", "))),
        "variables": ", ".join(reversed(VARIABLES.split(", "))),
        "formula": formula,
        "ask": QUESTIONS[kind].get("ask", formula.split(" + ")[0].replace("dx * age", "dx")),
    }
    turned = {site: dict(reversed(table.items())) for site, table in sites.items()}
    one, other = ask(sites, kind, None), ask(turned, kind, None, **changed)
    rows = {(row.term, row.contrast, row.outcome): row for row in other.effects}
    expected = {(row.term, row.contrast, row.outcome): row for row in one.effects}
    assert set(rows) == set(expected)
    ordered = replace(other, effects=[rows[of] for of in expected])
    same(one, ordered, rtol=1e-4)


@each
def test_4_sites_in_another_order(sites, kind) -> None:
    one, other = ask(sites, kind, None), ask(dict(reversed(sites.items())), kind, None)
    same(one, other, rtol=1e-4)


@every_question
def test_5_renamed(sites, kind) -> None:
    """Columns, levels and outcomes: blanks, umlauts, another script, signs of the grammar."""
    new = {"dx": "Diagnose (\u00fc)", "group": "\u7fa4", "age": "a*b + c", "left": "log(x)"}
    levels = {"HC": "not ill/healthy", "SZ": "5-6", "BD": "b" * 100}

    def said(text: str) -> str:
        for old, word in [*new.items(), *levels.items()]:
            text = text.replace(old, f'"{word}"')
        return text

    renamed = {}
    for site, table in sites.items():
        renamed[site] = {
            new.get(name.partition("@")[0], name.partition("@")[0])
            + name[len(name.partition("@")[0]) :]: np.array([levels.get(x, x) for x in values])
            if values.dtype.kind == "U" else values
            for name, values in table.items()
        }  # fmt: skip
    settings = {"variables": VARIABLES, "outcomes": OUTCOMES, **QUESTIONS[kind]}
    changed = {name: said(text) if name not in ("change", "test") else text
               for name, text in settings.items()}  # fmt: skip
    found = fast(changed, renamed, epsilon=4.0, rng=np.random.default_rng(7))
    same(ask(sites, kind), found)


@every_question
def test_6_unasked_column(sites, kind) -> None:
    more = {
        site: {"smoker": np.array(["yes"] * 400), **table, "amygdala": np.full(400, 1e9)}
        for site, table in sites.items()
    }
    variables = f"smoker no/yes, {VARIABLES}, height 100:220"
    same(ask(sites, kind), ask(more, kind, variables=variables))


# -- 7: missing values ---------------------------------------------------------------------------


def missing(sites: Sites, names: tuple[str, ...], share: float, only: str = "") -> Sites:
    """Return sites that lack a share of each of these columns, `only` among people of this dx."""
    rng, made = np.random.default_rng(5), {}
    for site, table in sites.items():
        made[site] = dict(table)
        for name in names:
            gone = (rng.random(len(table["dx"])) < share) & ((table["dx"] == only) | (not only))
            for column in [one for one in table if one.partition("@")[0] == name]:
                made[site][column] = np.where(gone, np.nan, table[column])
    return made


@each
@pytest.mark.parametrize(
    ("names", "share", "only"),
    [
        (("left", "right"), 0.1, ""), (("left", "right"), 0.33, ""),
        (("left", "right"), 0.3, "SZ"), (("left",), 0.5, "HC"), (("age",), 0.33, ""),
    ],
)  # fmt: skip
def test_7_missing_tenth_third_one_group(sites, kind, names, share, only) -> None:
    """Estimates stay, and `right`, of which groups have the same, is not found."""
    lacking = missing(sites, names, share, only)
    for one, other in zip(ask(sites, kind).effects, ask(lacking, kind).effects, strict=True):
        near(one, other)
        if one.outcome == "right" and one.term in ("dx", "group"):
            assert not other.p < 1e-6
        if names != ("age",) and not only and other.outcome in names and kind != "among":
            assert other.observed == pytest.approx(1 - share, abs=0.06)


# -- 8: one bad site -----------------------------------------------------------------------------

SMALL = {
    "formula": "dx + age", "variables": "dx HC/SZ, age 18:90, sex F/M",
    "outcomes": "left 3000:5000", "public": "dx", "epsilon": 20.0,
}  # fmt: skip


def whole_run(sites: Sites, out: Path | None = None, **changed: Any) -> cape.GroupResult:
    return cape.compare_groups(sites, seed=3, out=out, **{**SMALL, **changed})


@pytest.mark.parametrize(
    ("column", "bad"),
    [
        ("left", lambda x: 1000 * x), ("left", lambda x: np.full(len(x), 4000.0)),
        ("dx", lambda x: np.where(x == "HC", "1", "2")), ("age", lambda x: 12 * x),
        ("left", None),
    ],
    ids=["unit", "constant", "coding", "unit of a covariate", "missing"],
)  # fmt: skip
def test_8_one_bad_site(column, bad) -> None:
    """That site is told its column before anything is charged; the owner is told the site."""
    five = people(40, S=5)
    table = {name: five["site 3"][name] for name in ("dx", "age", "left")}
    table = (
        {**table, column: bad(table[column])} if bad else {"dx": table["dx"], "age": table["age"]}
    )
    with pytest.raises(CapeError, match="site 3") as refused:
        whole_run({**five, "site 3": table})
    assert refused.value.code == "CAPE-E139"
    assert column in str(refused.value)
