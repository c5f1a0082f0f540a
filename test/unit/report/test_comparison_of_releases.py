"""What the report makes of released states: rows, means, balance, missing values, shares of sites.

Runs are played in floats (`support.fast_comparison`); their data are known.
Belongs to `cape/report/comparison.py`.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from cape.protocol.model import RosterEntry
from cape.protocol.outcome import ContrastOutcome
from cape.report.comparison import GroupComparison, comparison_of
from cape.settings.question import QUESTION
from support import comparison_example as example
from support.fast_comparison import Found, fast

ASKED = {
    "variables": "dx control/SZ, age 18:90, sex F/M",
    "formula": "dx + age + sex",
    "outcomes": "hippocampus 2500:5500, amygdala 900:2300",
    "public": "dx",
}
SIZES = (1500, 1000, 500)


def tables(seed: int = 1, *, missing_of_sz: float = 0.1) -> dict[str, dict[str, Any]]:
    """Return three sites; SZ are 3 years younger, more often men, and .5 sd lower."""
    rng = np.random.default_rng(seed)
    found = {}
    for s, n in enumerate(SIZES):
        sz = rng.random(n) < 0.3 + 0.15 * s
        age = np.clip(45 - 3 * sz + 12 * rng.standard_normal(n), 18, 90)
        sex = np.where(rng.random(n) < 0.4 + 0.2 * sz, "M", "F")
        sd = np.array([400.0, 200.0])
        u = np.array([4000, 1600]) + sd * (
            rng.standard_normal((n, 2)) + 0.3 * s - 0.5 * sz[:, None]
        )
        share = np.where(sz, missing_of_sz, 0.1)[:, None]
        u[rng.random((n, 2)) < share] = np.nan
        dx = np.where(sz, "SZ", "control")
        columns = {"dx": dx, "age": age, "sex": sex, "hippocampus": u[:, 0], "amygdala": u[:, 1]}
        found[f"site{s}"] = columns
    return found


def outcome_of(found: Found, sites: dict[str, dict[str, Any]], asked: dict[str, str]) -> Any:
    """Return what a run would hand over."""
    settings = {**dict.fromkeys(QUESTION, ""), "test": "each", "site_effects": "fixed",
                "outcomes_from": "auto", **asked}  # fmt: skip
    made = example.facts(settings)
    counts = found.regression.terms[0].counts.tolist()
    entries = tuple(
        RosterEntry(
            site=site,
            nonce="00" * 16,
            n_subjects=len(table["dx"]),
            counts=tuple(counts[s]) if asked["public"] else (),
        )
        for s, (site, table) in enumerate(sites.items())
    )
    made = dataclasses.replace(made, roster=dataclasses.replace(made.roster, sites=entries))
    result = example.compared([], asked)
    return ContrastOutcome(
        **{one.name: getattr(made, one.name) for one in dataclasses.fields(made)},
        question=result.asked,
        has=(),
        regression=found.regression,
        state=found.state,
    )


def said(
    asked: dict[str, str] = ASKED, *, epsilon: float | None = 8.0, **how: Any
) -> GroupComparison:
    sites = tables(**how)
    found = fast(asked, sites, epsilon=epsilon, rng=np.random.default_rng(2))
    return comparison_of(outcome_of(found, sites, asked))


def test_rows_are_those_of_the_estimator_with_none_for_nan() -> None:
    result = said()
    first, second = result.effects
    assert (first.outcome, second.outcome) == ("hippocampus", "amygdala")
    assert first.contrast == "SZ - control"
    # Standard error .04: a false alarm in fewer than 1e-6 of draws
    assert first.d == pytest.approx(-0.5, abs=0.2)
    parts = ("sampling", "privacy", "adjustment", "shape", "sites")
    assert sum(first.share(part) or 0.0 for part in parts) == pytest.approx(1.0)
    assert first.observed == pytest.approx(0.9, abs=0.05)
    assert result.networks == result.pattern == ()


def test_means_are_near_those_of_people_and_differ_as_the_groups_do() -> None:
    result = said()
    means = {(row.outcome, row.group): row for row in result.means}
    u = np.concatenate([table["hippocampus"] for table in tables().values()])
    everybody = means["hippocampus", "all"]
    assert everybody.se is not None
    assert abs(everybody.mean - np.nanmean(u)) < 5 * everybody.se
    apart = means["hippocampus", "SZ"].mean - means["hippocampus", "control"].mean
    assert apart == pytest.approx(result.effects[0].estimate)
    assert means["hippocampus", "SZ"].mean < everybody.mean < means["hippocampus", "control"].mean


def test_people_without_a_value_do_not_draw_a_mean_to_the_middle_of_its_range() -> None:
    """A quarter lacks the value, and the mean lies 4 sd from the middle."""
    asked = {**ASKED, "outcomes": "hippocampus 4100:7100, amygdala 900:2300"}
    result = said(asked, missing_of_sz=0.4)
    u = np.concatenate([table["hippocampus"] for table in tables(missing_of_sz=0.4).values()])
    everybody = next(row for row in result.means if row.group == "all")
    # The quarter would draw it by 350; noise and rest of the cut are below 100.
    assert everybody.mean == pytest.approx(np.nanmean(u), abs=175)


def test_balance_is_in_the_unit_of_the_column_and_in_sd() -> None:
    rows = {row.column: row for row in said().balance}
    # Noise and sampling of .04 sd: a false alarm in fewer than 1e-4 of draws
    assert rows["age"].difference == pytest.approx(-3.0, abs=2.0)
    assert rows["age"].before == pytest.approx(-3 / 12, abs=0.17)
    assert rows["sex [M]"].difference == pytest.approx(0.2, abs=0.09)
    assert 0 < rows["age"].left < 0.1


def test_balance_of_columns_that_agree_is_in_their_own_sd() -> None:
    """Directions of whitened columns are no columns: their sd stood for that of age."""
    sites = tables()
    rng = np.random.default_rng(3)
    for table in sites.values():
        own = rng.standard_normal(len(table["age"]))
        table["iq"] = 100 + 15 * (0.8 * (table["age"] - 45) / 12 + 0.6 * own)
    asked = {**ASKED, "variables": f"{ASKED['variables']}, iq 40:160", "formula": "dx + age + iq"}
    found = fast(asked, sites, epsilon=8.0, rng=np.random.default_rng(1))
    rows = comparison_of(outcome_of(found, sites, asked)).balance
    assert [row.column for row in rows] == ["age", "iq"]
    # Noise and sampling of .04 sd, as above
    for row, difference in zip(rows, (-3 / 12, -0.8 * 3 / 12), strict=True):
        assert row.before == pytest.approx(difference, abs=0.17)
    assert rows[1].difference == pytest.approx(-0.8 * 3 / 12 * 15, abs=2.5)
    sd = [row.difference / row.before for row in rows if row.difference]
    assert sd[0] == pytest.approx(12.0, rel=0.12)
    assert sd[1] == pytest.approx(15.0, rel=0.12)


@pytest.mark.parametrize(("share", "told"), [(0.1, False), (0.4, True)])
def test_values_missing_by_group_are_told_where_they_are_clear(share: float, told: bool) -> None:
    """At equal shares a false alarm in .003 of draws."""
    missing = said(missing_of_sz=share).missing
    assert bool(missing) == told
    for row in missing:
        assert row.difference == pytest.approx(-0.3, abs=0.1)


def test_sites_weigh_by_people_and_by_shares_of_groups() -> None:
    result = said()
    assert [site.people for site in result.sites] == list(SIZES)
    assert [sum(site.counts.values()) for site in result.sites] == list(SIZES)
    weights = [site.weight for site in result.sites]
    assert sum(weights) == pytest.approx(1.0)
    p = [site.counts["SZ"] / site.people for site in result.sites]
    each = [n * x * (1 - x) / (2 * max(x, 1 - x)) for n, x in zip(SIZES, p, strict=True)]
    np.testing.assert_allclose(weights, np.array(each) / sum(each))


def test_protected_groups_have_neither_counts_nor_weights_nor_means() -> None:
    result = said({**ASKED, "public": ""})
    assert {site.weight for site in result.sites} == {None}
    assert {len(site.counts) for site in result.sites} == {0}
    assert {row.group for row in result.means} == {"all"}
    assert {row.contrast for row in result.balance} == {"1 sd more of dx"}


def test_without_noise_rows_are_least_squares_and_no_more_is_released() -> None:
    result = said(epsilon=None)
    assert (result.means, result.balance, result.missing) == ((), (), ())
    assert result.effects[0].share("privacy") == 0.0


def test_a_refused_run_has_sites_and_no_rows() -> None:
    sites = tables()
    found = fast(ASKED, sites, epsilon=8.0, rng=np.random.default_rng(2))
    made = dataclasses.replace(outcome_of(found, sites, ASKED), status="budget_exhausted")
    result = comparison_of(made)
    assert result.effects == ()
    assert len(result.sites) == 3
