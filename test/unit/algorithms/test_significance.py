"""p-values and families of tests."""

import math

import numpy as np
import pytest

from cape.algorithms import significance


def test_power_is_that_of_the_normal_distribution() -> None:
    assert significance.power(0.0, 1.0) == pytest.approx(0.05)
    seen = significance.Z95 + significance.Z80
    assert significance.power(2 * seen, 2.0) == pytest.approx(0.8, abs=1e-4)


def test_families_follow_their_definitions() -> None:
    p = np.array([0.03, 0.001, 0.04, 0.9, 0.012])
    np.testing.assert_allclose(significance.holm(p), [0.09, 0.005, 0.09, 0.9, 0.048])
    # Sorted, times 5 / rank: .005, .03, .05, .05, .9
    expected = [0.05, 0.005, 0.05, 0.9, 0.03]
    np.testing.assert_allclose(significance.benjamini_hochberg(p), expected)


def test_of_infinite_degrees_of_freedom_they_are_normal() -> None:
    df = np.array([math.inf, 5.0])
    t = np.array([significance.Z95, math.nan])
    np.testing.assert_allclose(significance.t_p(t, df), [0.05, math.nan])
    np.testing.assert_allclose(significance.t95(df), [significance.Z95, 2.5706], rtol=1e-4)
    # Points of a table of chi squared at .05
    for q, point in enumerate((3.8415, 5.9915, 7.8147, 9.4877), start=1):
        found = significance.f_p(np.array([point, math.nan]) / q, q, df)
        np.testing.assert_allclose(found, [0.05, math.nan], rtol=1e-3)
