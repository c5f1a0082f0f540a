"""What a comparison of groups will see, against what `bench/contrast.py` measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms.contrast import Contrast
from cape.algorithms.group_design import Groups
from cape.forecast.contrast import EFFECTS, forecast
from cape.privacy.accounting import gdp_mu

# Question, K, sites, people who are asked, epsilon; median se in sd of 35 to 100 null studies
MEASURED = [
    ("planned", 1, 20, 1000, 0.5, 0.147), ("planned", 1, 4, 4000, 1.0, 0.057),
    ("planned", 5, 3, 500, 1.0, 0.287), ("planned", 5, 20, 4000, 1.0, 0.052),
    ("planned", 24, 20, 1000, 0.5, 0.375), ("planned", 24, 4, 4000, 1.0, 0.080),
    ("found", 1, 20, 500, 1.0, 0.195), ("found", 1, 4, 2000, 1.0, 0.085),
    ("strict", 1, 20, 1000, 0.5, 4 * 0.219),
]  # fmt: skip


def question(kind: str, K: int, S: int, M: int, epsilon: float) -> Contrast:
    people = np.full(S, M // S)
    cases = np.array([round(M // S * (0.4, 0.6)[i % 2]) for i in range(S)])
    asked = Contrast(
        scales=(1.0,) * K,
        covariates=(2.5, 1.0, 2.0),
        groups=Groups(people=people, cases=None if kind == "strict" else cases),
        everybody=int(people.sum()),
        found=kind == "found",
        strict=kind == "strict",
    )
    g = people.sum() * gdp_mu(epsilon=epsilon, delta=1e-5) * np.sqrt((S - 1) / S)
    looks = asked.schedule(0)
    factors = [2.0 if look.shape == "ball" else np.sqrt(2.0) for look in looks]
    noise = [f / (g * np.sqrt(look.weight)) for f, look in zip(factors, looks, strict=True)]
    return replace(asked, noise=tuple(float(std) for std in noise))


@pytest.mark.parametrize(("kind", "K", "S", "M", "epsilon", "se"), MEASURED)
def test_the_standard_error_is_the_measured_one(
    kind: str, K: int, S: int, M: int, epsilon: float, se: float
) -> None:
    assert forecast(question(kind, K, S, M, epsilon)).se == pytest.approx(se, rel=0.15)


def test_what_will_be_found_follows_from_the_error() -> None:
    few, many = (forecast(question("planned", 1, 4, M, 1.0)) for M in (200, 4000))
    assert not few.usable
    assert many.usable
    assert few.smallest > many.smallest
    assert 1 > few.privacy > many.privacy > 0.2
    assert list(many.power) == sorted(many.power)
    assert len(many.power) == len(EFFECTS)
    assert many.power[2] > 0.95 > few.power[2]


def test_a_forecast_draws_nothing_new() -> None:
    asked = question("planned", 12, 4, 1000, 1.0)
    assert forecast(asked) == forecast(asked)
