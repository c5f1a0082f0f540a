"""Will it work? The rule, the curve, the advice, and the table of measured runs behind them."""

import functools
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cape
from cape.computations import load, planner_of
from cape.forecast import temporal
from cape.forecast.one_release import (
    SpatialRule,
    TemplateRule,
    spatial_basis_size,
    template_basis_size,
)
from cape.forecast.rule import Advice, RunSize, size_text
from cape.forecast.temporal import TemporalRule
from cape.privacy.accounting import gdp_mu

MEASURED = json.loads(
    (Path(__file__).parents[3] / "bench" / "measured" / "budget.json").read_text()
)
IMAGES = {"feature_space": "matrix", "image_shape": "30,30", "basis": "dct", "n_basis": 100}


# Temporal ICA of columns: of images the answer is always "no"
COLUMNS = functools.partial(TemporalRule, brains=False)
RULES = {"temporal": COLUMNS, "spatial": SpatialRule, "template": TemplateRule}


def rule_of(kind: str, n_components: int):
    return RULES[kind](n_components=n_components)


def size(n_subjects: int = 256, noise_shares: int = 3) -> RunSize:
    return RunSize(n_sites=4, n_subjects=n_subjects, noise_shares=noise_shares, delta=1e-5)


def advice(at: RunSize, kind, n_components: int, mu: float) -> Advice:
    return rule_of(kind, n_components).advice(at, mu)


def curve(at: RunSize, kind, n_components: int, *, epsilon: float):
    return rule_of(kind, n_components).curve(at, epsilon=epsilon)


def expected_q(g: float, n_components: int) -> float:
    q = rule_of("temporal", n_components).expected_q(g)
    assert q is not None
    return q


def mu(epsilon: float) -> float:
    return gdp_mu(epsilon=epsilon, delta=1e-5)


def test_the_stored_table_covers_the_sizes_that_the_rule_is_judged_on() -> None:
    found = {(row["preset"], row["subjects"], row["epsilon"]) for row in MEASURED}
    assert found == {
        (preset, subjects, epsilon)
        for preset in ("paper", "realistic")
        for subjects in (64, 256, 1024)
        for epsilon in (1.0, 4.0)
    }


@pytest.mark.parametrize(
    "row", MEASURED, ids=lambda r: f"{r['preset']}-{r['subjects']}-{r['epsilon']}"
)
def test_the_rule_agrees_with_what_runs_gave(row) -> None:
    """q_ngi of runs of bench/utility.py: "yes" must mean q < 0.1, "no" q >= 0.08."""
    plan = cape.budget(
        subjects=row["subjects"], sites=4, epsilon=row["epsilon"], delta=1e-5, components=20,
        settings=IMAGES,
    )  # fmt: skip
    if row["q_ngi"] >= 0.1:
        assert plan.advice.answer != "yes"
    if row["q_ngi"] < 0.08:
        assert plan.advice.answer != "no"
    assert expected_q(plan.verdict.g, 20) == pytest.approx(row["q_ngi"], abs=0.05)


def test_expected_error_falls_with_g_and_crosses_a_tenth_at_the_threshold() -> None:
    for r in (5, 10, 20, 30):
        values = [expected_q(g, r) for g in range(0, 2000, 10)]
        assert values == sorted(values, reverse=True)
        assert expected_q(temporal.likely_g(r), r) < 0.1
        assert expected_q(0.9 * temporal.likely_g(r), r) > 0.1
    assert expected_q(math.inf, 20) == 0.0


@pytest.mark.parametrize("kind", ["temporal", "spatial", "template"])
def test_each_change_that_is_advised_is_enough_by_itself(kind) -> None:
    small, at = size(150), mu(0.6)
    told = advice(small, kind, 20, at)
    assert told.answer == "no"
    changes = dict(text.split(": ", 1) for text in told.changes)
    more = size(int(changes["subjects"].removeprefix("at least ")))
    assert advice(more, kind, 20, at).answer == "yes"
    epsilon = float(changes["epsilon"].removeprefix("at least "))
    assert advice(small, kind, 20, mu(epsilon)).answer == "yes"
    assert advice(small, kind, 20, mu(0.97 * epsilon)).answer != "yes"


def test_fewer_components_trust_and_other_models_are_advised_where_they_help() -> None:
    told = advice(size(300), "temporal", 20, mu(2.0))
    (fewer,) = [text for text in told.changes if text.startswith("components")]
    best = int(fewer.rsplit(" ", 1)[1])
    assert advice(size(300), "temporal", best, mu(2.0)).answer == "yes"
    assert any(text.startswith("computation: capegica") for text in told.changes)
    near = size(1000)
    assert advice(near, "temporal", 20, mu(0.9)).answer == "perhaps"
    assert any("assumed_colluders: 0" in t for t in advice(near, "temporal", 20, mu(0.9)).changes)
    trusting = size(1000, noise_shares=4)
    assert advice(trusting, "temporal", 20, mu(0.9)).answer == "yes"


def test_spatial_runs_are_refused_doubtful_or_usable_by_g() -> None:
    unit = size(1000)

    def told(g: float) -> str:
        return advice(unit, "spatial", 15, g / unit.g_of(1.0)).answer

    assert [told(g) for g in (40, 49, 51, 89, 91, 400)] == [
        "no", "no", "perhaps", "perhaps", "yes", "yes",
    ]  # fmt: skip
    found = rule_of("spatial", 15).forecast(unit, 60 / unit.g_of(1.0), n_basis=53)
    assert found.usable
    assert found.text.startswith(
        "Perhaps: the effective size is 60, and spatial components need 90"
    )
    assert any("noise alone gives 1 to 2" in text for text in found.warnings)


def test_a_size_below_a_bound_is_not_rounded_to_it() -> None:
    """The effective size was 50, 50 at least were needed, and the answer was no."""
    given = [(49.7, 50), (49.97, 50), (49.2, 50), (50.0, 50), (89.6, 90)]
    assert [size_text(g, bound) for g, bound in given] == ["49.7", "49.9", "49", "50", "89.6"]


def test_the_basis_follows_g_and_has_room_for_the_components() -> None:
    sizes = [spatial_basis_size(g, 10) for g in (10, 50, 100, 200, 400, math.inf)]
    assert sizes == [40, 40, 64, 130, 240, 300]
    # Private dual regression was calibrated with smaller ones.
    assert [template_basis_size(g, 10) for g in (50, 100, 200, 400)] == [40, 53, 64, 80]
    assert spatial_basis_size(100, 20) == 67
    assert all(0.3 * spatial_basis_size(g, 25) >= 25 for g in (50, 100, 1000))


def test_many_templates_need_more_people_and_the_way_is_fewer_of_them() -> None:
    """The rule said that 200 maps need no more than 10."""
    needed = [rule_of("template", k).needed_g() for k in (2, 20, 53, 105, 200)]
    assert needed == [50, 50, 314, 730, 1490]
    assert [template_basis_size(math.inf, k) for k in (20, 53, 105, 200)] == [80, 80, 147, 280]
    told = advice(size(), "template", 53, 100 / size().g_of(1.0))
    assert told.reason.startswith(
        "the effective size is 100, and 53 templates need 314: the maps would"
    )
    assert told.changes[-1] == "templates: at most 26"
    best = rule_of("template", 200)
    for g in (49, 50, 300, 1e9):
        largest = best.largest_components(g)
        assert largest == 0 or rule_of("template", largest).answer(g) == "yes"
        assert largest == 200 or rule_of("template", largest + 1).answer(g) == "no"


def test_the_curve_holds_the_planned_budget_and_rises() -> None:
    points = curve(size(), "temporal", 20, epsilon=3.0)
    assert 3.0 in [point.epsilon for point in points]
    assert [p.g for p in points] == sorted(p.g for p in points)
    assert [p.expected_q for p in points] == sorted((p.expected_q for p in points), reverse=True)
    assert all((p.answer == "yes") == (p.largest_n_components >= 20) for p in points)
    assert {p.answer for p in points} == {"no", "perhaps", "yes"}
    assert max(p.epsilon for p in points) <= 10
    spatial = curve(size(), "spatial", 15, epsilon=1.0)
    assert {point.expected_q for point in spatial} == {None}


@pytest.mark.parametrize(
    ("kind", "g", "most"),
    [
        ("temporal", 128.0, 7), ("spatial", 128.0, 15), ("spatial", 60.0, 12),
        ("spatial", 49.0, 0), ("template", 55.0, 20), ("template", 49.0, 0),
    ],
)  # fmt: skip
def test_plan_and_report_say_the_same_number_of_components_by_the_rule_of_the_model(kind, g, most):
    # At G 55 "15 templates, usable: yes" stood beside "most components 10", the spatial rule; the
    # report of a spatial run told of 14, the temporal one, where its plan said 15.
    from cape.report.confidence import hint

    unit = size(1000)
    told = rule_of(kind, 15).forecast(unit, g / unit.g_of(1.0), n_basis=53)
    if kind != "temporal":
        assert told.largest_n_components == most
    at = unit.epsilon_for(g * (1 + 1e-9))  # not a hair below the threshold
    (point,) = [p for p in curve(unit, kind, 15, epsilon=at) if p.epsilon == at]
    assert point.largest_n_components == most
    assert kind != "template" or (point.answer == "yes") == (point.largest_n_components >= 15)
    if kind == "template":  # it has no spectrum to read
        return
    values = np.r_[np.linspace(1.0, 0.8, 12), np.linspace(0.3, -0.3, 40)]
    sentence = hint(
        values, rule_of(kind, 12), requested=12, edge=0.4, n_components=12, g=g
    ).budget_text
    carried = f"about {most}" if most else "no"
    assert sentence == (
        f"At this budget up to 25 components were recovered on synthetic data of focal maps, up to "
        f"{most} on all."
        if kind == "temporal"
        else f"At effective size {g:.0f} real data carried {carried} spatial components."
    )


@pytest.mark.parametrize("kind", ["temporal", "spatial", "template"])
def test_what_real_data_showed_has_a_value_for_every_g_and_is_that_of_the_report(kind) -> None:
    # At four budgets three values were reached.
    from cape.report.page import TEMPLATE_FOLDER

    page = " ".join((TEMPLATE_FOLDER / "consortium" / "separation.html.j2").read_text().split())
    showed = dict(
        zip(("temporal", "spatial", "template"), page.split("On one real")[1:], strict=True)
    )

    unit = size(1000)
    said = advice(unit, kind, 15, 450 / unit.g_of(1.0)).real_data
    lists = re.findall(r"\d*\.?\d+(?:, \.?\d+)+ and \.?\d+", said)
    assert len({text.count(",") for text in lists}) <= 1
    assert lists or kind != "template"
    assert kind != "spatial" or "about 16 of 18 networks were found again" in said
    assert all(text in showed[kind] for text in lists)


@pytest.mark.parametrize("kind", ["temporal", "spatial", "template"])
@pytest.mark.parametrize("g", [30.0, 60.0, 120.0, 400.0])
def test_what_was_seen_in_voxels_of_brains_is_not_said_of_a_table(kind, g) -> None:
    """ "40 subjects, 10 mm" once stood beside tables of questionnaires."""
    unit = size(1000)
    told = replace(rule_of(kind, 15), brains=False).advice(unit, g / unit.g_of(1.0))
    assert "10 mm" not in f"{told.sentence} {told.real_data}"
    assert told.real_data == ""
    settings = {"epsilon": 1, "delta": 1e-5, "feature_space": "matrix", "n_features": 90}
    name = {"temporal": "capedjica", "spatial": "capegica"}.get(kind)
    if name:
        for space, brains in ({"feature_space": "atlas"}, True), (settings, False):
            config = load(name).config.from_input({**settings, "n_features": 0, **space})
            assert planner_of(name).rule(config, 90).brains == brains
