"""Without noise a comparison is least squares, with a mean for each site: `lm` of R, type II."""

import math

import numpy as np
import pytest

from support.fast_comparison import fast

VARIABLES = "dx HC/SZ/BD, sex F/M, age 18:90, iq 40:160"


def tables(seed: int, missing: float = 0.0) -> dict[str, dict[str, np.ndarray]]:
    rng, made = np.random.default_rng(seed), {}
    for s, n in enumerate((90, 140, 60)):
        dx, sex = rng.integers(3, size=n), rng.integers(2, size=n)
        age, iq = rng.uniform(18, 90, n), rng.uniform(40, 160, n)
        u = rng.standard_normal(n) + 0.3 * dx + 0.02 * age + 0.01 * sex * age + rng.normal(0, 2)
        u[rng.random(n) < missing] = np.nan
        age[rng.random(n) < missing / 2] = np.nan
        levels = np.array(["HC", "SZ", "BD"], dtype=object)[dx]
        made[f"s{s}"] = {
            "dx": levels, "sex": np.array(["F", "M"])[sex], "age": age, "iq": iq, "u": u,
            "w": 100 * u,
        }  # fmt: skip
    return made


def fitted(
    sites: dict[str, dict[str, np.ndarray]], columns: list[object], outcome: str = "u"
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return coefficients and covariance of columns beside site dummies, and the residual sd."""
    site = np.repeat(np.arange(len(sites)), [len(one["u"]) for one in sites.values()])
    whole = {name: np.concatenate([one[name] for one in sites.values()]) for name in sites["s0"]}
    X = np.column_stack([np.eye(len(sites))[site], *(column(whole) for column in columns)])
    y = whole[outcome]
    seen = np.isfinite(y) & np.isfinite(X).all(axis=1)
    X, y = X[seen], y[seen]
    inverse = np.linalg.inv(X.T @ X)
    b = inverse @ X.T @ y
    rest = y - X @ b
    square = float(rest @ rest) / (len(y) - X.shape[1])
    return b[len(sites) :], square * inverse[len(sites) :, len(sites) :], math.sqrt(square)


def is_level(name: str, level: str) -> object:
    return lambda table: (table[name] == level).astype(float)


def number(name: str) -> object:
    return lambda table: table[name].astype(float)


def times(one: object, other: object) -> object:
    return lambda table: one(table) * other(table)


SZ, BD, MALE, AGE, IQ = (
    is_level("dx", "SZ"), is_level("dx", "BD"), is_level("sex", "M"), number("age"), number("iq")
)  # fmt: skip

CASES = {
    "three groups": ({"formula": "dx + age + sex", "public": "dx"}, [SZ, BD, AGE, MALE],
                     {"SZ - HC": [1, 0], "BD - HC": [0, 1], "BD - SZ": [-1, 1]}),
    "age": ({"formula": "age + sex + dx", "public": "dx"}, [AGE, MALE, SZ, BD], {"age": [1]}),
    "sex, protected": ({"formula": "sex + age"}, [MALE, AGE], {"M - F": [1]}),
    "slopes": ({"formula": "sex * age + iq", "ask": "sex:age"},
               [times(MALE, AGE), MALE, AGE, IQ], {"sex:age [M]": [1]}),
    "square": ({"formula": "age + I(age^2) + sex", "ask": "I(age^2)"},
               [times(AGE, AGE), AGE, MALE], {"I(age^2)": [1]}),
    "product": ({"formula": "age * iq", "ask": "age:iq"}, [times(AGE, IQ), AGE, IQ],
                {"age:iq": [1]}),
    "product of levels": ({"formula": "dx * sex", "ask": "dx:sex", "public": "dx, sex"},
                          [times(SZ, MALE), times(BD, MALE), SZ, BD, MALE],
                          {"dx [SZ - HC]:sex [M - F]": [1, 0], "dx [BD - HC]:sex [M - F]": [0, 1],
                           "dx [BD - SZ]:sex [M - F]": [-1, 1]}),
    "main effect beside a product": ({"formula": "sex * age", "ask": "sex", "public": "sex"},
                                     [MALE, AGE], {"M - F": [1]}),
}  # fmt: skip


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("case", CASES)
def test_effects_are_those_of_least_squares(case: str, missing: float) -> None:
    how, columns, contrasts = CASES[case]
    sites = tables(4, missing)
    found = fast(
        {"variables": VARIABLES, "outcomes": "u -3:7, w -300:700", **how},
        sites, epsilon=None, rng=np.random.default_rng(1),
    )  # fmt: skip
    assert [row.contrast for row in found.effects if row.outcome == "u"] == list(contrasts)
    for row in found.effects:
        b, cov, sd = fitted(sites, columns, row.outcome)
        c = np.zeros(len(b))
        c[: len(contrasts[row.contrast])] = contrasts[row.contrast]
        # Codes of people travel as 32-bit numbers.
        assert row.estimate == pytest.approx(c @ b, rel=1e-4, abs=1e-6 * row.se)
        assert row.se_sampling == pytest.approx(math.sqrt(c @ cov @ c), rel=1e-5)
        assert row.sd == pytest.approx(sd, rel=1e-5)
        assert row.d == pytest.approx(row.estimate / row.sd)
        assert row.se_privacy == row.se_adjustment == row.se_shape == 0.0
        assert row.fits == "yes"
    for row in found.omnibus:
        b, cov, _ = fitted(sites, columns, row.outcome)
        q = int(row.df)
        chi2 = b[:q] @ np.linalg.solve(cov[:q, :q], b[:q])
        assert row.chi2 == pytest.approx(chi2, rel=0.02)  # the factor of t


def test_a_range_that_is_far_too_narrow_or_wide_loses_no_digits() -> None:
    sites = tables(4)
    _, columns, _ = CASES["three groups"]
    b, _, sd = fitted(sites, columns)
    for ends in ("-3:7", "-300:700", "1.99:2.01"):
        found = fast(
            {"variables": VARIABLES, "outcomes": f"u {ends}", **CASES["three groups"][0]},
            sites, epsilon=None, rng=np.random.default_rng(1),
        )  # fmt: skip
        assert found.effects[0].estimate == pytest.approx(b[0], rel=1e-4)
        assert found.effects[0].sd == pytest.approx(sd, rel=1e-4)


def test_effects_that_differ_by_site_widen_an_answer_for_sites_like_these() -> None:
    rng, sites = np.random.default_rng(3), {}
    for s in range(24):
        dx, effect = rng.integers(2, size=80), rng.normal(0.3, 0.4)
        sites[f"s{s}"] = {
            "dx": np.array(["HC", "SZ"])[dx],
            "u": rng.standard_normal(80) + effect * dx,
        }
    rows = [
        fast(
            {"variables": "dx HC/SZ", "outcomes": "u -3:3", "formula": "dx", "public": "dx",
             "site_effects": kind}, sites, epsilon=None, rng=rng,
        ).effects[0]
        for kind in ("fixed", "random")
    ]  # fmt: skip
    assert rows[0].se_sites == 0.0
    assert rows[0].estimate == rows[1].estimate
    assert rows[1].se_sites == pytest.approx(0.4 / math.sqrt(24), rel=0.35)


def test_sites_without_both_groups_say_nothing() -> None:
    sites = {
        "s0": {"dx": np.array(["HC"] * 20), "u": np.arange(20.0) / 9},
        "s1": {"dx": np.array(["SZ"] * 20), "u": np.arange(20.0) / 9},
    }
    settings = {"variables": "dx HC/SZ", "outcomes": "u -3:3", "formula": "dx", "public": "dx"}
    for epsilon in (None, 4.0):
        (row,) = fast(settings, sites, epsilon=epsilon, rng=np.random.default_rng(1)).effects
        assert row.fits == "lacks"
        assert row.estimate is None
        assert row.p is None


def test_an_outcome_of_one_value_has_no_answer() -> None:
    """Its error was 0 and it counted as answered: the page said that no difference was found."""
    sites = tables(4)
    for one in sites.values():
        one["w"] = np.full(len(one["u"]), 10.7082)
    found = fast(
        {"variables": VARIABLES, "outcomes": "u -3:7, w 0:20", "formula": "sex + age"},
        sites, epsilon=None, rng=np.random.default_rng(1),
    )  # fmt: skip
    assert [(row.outcome, row.fits) for row in found.effects] == [("u", "yes"), ("w", "lacks")]
    assert found.effects[1].estimate is None
