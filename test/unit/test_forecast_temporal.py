"""The G rule: thresholds, basis size, what to tell people."""

from __future__ import annotations

import math

import pytest

from cape.errors import ConfigError
from cape.forecast import temporal
from cape.forecast.rule import RunSize, Verdict, g_eff
from cape.forecast.temporal import TemporalRule
from cape.privacy.accounting import gdp_mu


def test_g_counts_only_the_shares_that_nobody_can_subtract() -> None:
    full = g_eff(n_subjects=1024, mu=0.268, noise_shares=4, n_sites=4)
    assert full == pytest.approx(1024 * 0.268)
    less = g_eff(n_subjects=1024, mu=0.268, noise_shares=3, n_sites=4)
    assert full / less == pytest.approx(math.sqrt(4 / 3))


@pytest.mark.parametrize(
    ("r", "g"), [(5, 65), (10, 95), (15, 140), (20, 180), (25, 250), (30, 345)]
)
def test_measured_thresholds_are_scaled_for_the_algorithm_that_runs(r: int, g: float) -> None:
    assert temporal.usable(r) == pytest.approx(0.92 * g)
    assert temporal.usable(r, prewhitened=False) == pytest.approx(1.05 * g)


def test_thresholds_between_and_beyond_the_measured_numbers() -> None:
    assert temporal.usable(2) == temporal.usable(5)
    assert temporal.usable(22) == pytest.approx(0.92 * (180 + 0.4 * 70))
    assert temporal.usable(40) == pytest.approx(0.92 * 480)
    values = [temporal.usable(r) for r in range(2, 51)]
    assert values == sorted(values)
    with pytest.raises(ConfigError, match="n_components=0"):
        temporal.usable(0)


def test_largest_number_of_components_is_the_inverse_of_the_threshold() -> None:
    assert temporal.largest_usable_components(10.0) == 0
    assert temporal.largest_usable_components(math.inf) == 50
    for r in (5, 13, 20, 31):
        g = temporal.usable(r)
        assert temporal.largest_usable_components(g) >= r
        assert temporal.largest_usable_components(0.999 * g) < max(r, 6)


@pytest.mark.parametrize(("n_subjects", "epsilon"), [(256, 3.12), (1024, 0.67), (4096, 0.148)])
def test_smallest_epsilon_of_four_sites_with_one_colluder(n_subjects: int, epsilon: float) -> None:
    """The figures that the owner reads before a run (R = 20, delta = 1e-5)."""
    size = RunSize(n_subjects=n_subjects, n_sites=4, noise_shares=3, delta=1e-5)
    got = size.epsilon_for(TemporalRule(n_components=20).needed_g())
    assert got == pytest.approx(epsilon, rel=0.01)
    mu = gdp_mu(epsilon=got, delta=1e-5)
    g = g_eff(n_subjects=n_subjects, mu=mu, noise_shares=3, n_sites=4)
    assert g == pytest.approx(temporal.usable(20))


@pytest.mark.parametrize(
    ("g", "d"),
    [(100, 100), (265, 100), (280, 200), (395, 200), (410, 400), (1030, 400), (1050, 1000)],
)
def test_basis_grows_with_g(g: float, d: int) -> None:
    assert temporal.choose_n_basis(n_components=20, g=g) == d


def test_basis_is_the_best_of_the_allowed_sizes() -> None:
    for r in (5, 10, 20, 40):
        for g in (60.0, 150.0, 300.0, 700.0, 2000.0):
            got = temporal.choose_n_basis(n_components=r, g=g)
            scores = {
                d: energy * (1 - r * d / (0.27 * g * g))
                for d, energy in temporal.BRAIN_ENERGY.items()
            }
            assert scores[got] == max(scores.values())


def test_basis_respects_the_limits() -> None:
    assert temporal.choose_n_basis(n_components=20, g=math.inf) == 1000
    assert temporal.choose_n_basis(n_components=20, g=math.inf, limit=300) == 200
    assert temporal.choose_n_basis(n_components=20, g=500, limit=64) == 64
    image = temporal.choose_n_basis(n_components=20, g=275, energies=temporal.IMAGE_ENERGY)
    assert image == 100
    with pytest.raises(ConfigError, match="number of features"):
        temporal.choose_n_basis(n_components=20, g=500, limit=20)


def test_expected_energy_follows_the_measured_formula() -> None:
    """Table of the base algorithm: G 275, f_P .4."""
    for d, energy, expected in [(64, 0.922, 0.90), (100, 0.979, 0.93), (225, 0.999, 0.86)]:
        rule = TemporalRule(n_components=20, basis_energy=energy, pca_share=0.4)
        assert rule.map_energy(275, d) == pytest.approx(expected, abs=0.015)
    rule = TemporalRule(n_components=20, basis_energy=0.94)
    assert rule.map_energy(50, 1000) == 0.0
    assert rule.map_energy(math.inf, 1000) == 0.94


def test_energy_inside_the_basis_is_monotone() -> None:
    assert temporal.energy_inside(100) == 0.72
    assert temporal.energy_inside(300) == pytest.approx(0.855)
    assert temporal.energy_inside(5000) == 0.94
    values = [temporal.energy_inside(d) for d in range(0, 1200, 25)]
    assert values == sorted(values)


def verdict(
    *, n_subjects: int = 1024, n_components: int = 20, n_basis: int = 100, epsilon: float = 1.0
) -> Verdict:
    size = RunSize(n_subjects=n_subjects, n_sites=4, noise_shares=3, delta=1e-5)
    mu = math.inf if math.isinf(epsilon) else gdp_mu(epsilon=epsilon, delta=1e-5)
    rule = TemporalRule(n_components=n_components, basis_energy=0.979)
    return rule.verdict(size, mu, n_basis=n_basis)


def test_a_good_plan_is_called_usable_and_real_data_are_mentioned() -> None:
    got = verdict()
    assert got.usable
    assert got.g == pytest.approx(237.7, abs=0.1)
    assert got.smallest_epsilon == pytest.approx(0.67, abs=0.005)
    assert got.largest_n_components >= 20
    assert got.text == "Usable on synthetic data: G 238, needed 166."
    assert any("real resting-state data" in text for text in got.warnings)


def test_a_hopeless_plan_says_what_would_help_and_the_advice_works() -> None:
    got = verdict(n_subjects=128)
    assert not got.usable
    assert got.text.startswith("Maps will mostly show noise: G 30, needed 166. Use at least ")
    assert verdict(n_subjects=got.smallest_n_subjects).usable
    assert not verdict(n_subjects=got.smallest_n_subjects - 1).usable
    epsilon = float(got.text.split("epsilon >= ")[1].rstrip("."))
    assert verdict(n_subjects=128, epsilon=epsilon).usable
    middle = verdict(n_subjects=500)
    assert f"n_components <= {middle.largest_n_components}" in middle.text
    assert verdict(n_subjects=500, n_components=middle.largest_n_components).usable


def test_a_run_without_noise_promises_nothing() -> None:
    got = verdict(epsilon=math.inf)
    assert got.usable
    assert math.isinf(got.g)
    assert "nobody is protected" in got.text
    assert got.map_energy == pytest.approx(0.979)


def test_too_large_a_basis_and_too_many_components_are_warned_about() -> None:
    assert any("basis of 1000" in text for text in verdict(n_basis=1000).warnings)
    assert not any("basis" in text for text in verdict(n_basis=64).warnings)
    assert any("never measured" in text for text in verdict(n_components=40).warnings)
