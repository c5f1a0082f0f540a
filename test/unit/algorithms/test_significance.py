"""p-values and families of tests, against scipy, which a round does not import."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cape.algorithms import significance


def test_p_values_and_power_are_those_of_the_normal_distribution() -> None:
    z = np.array([0.0, 0.3, -1.96, 4.0, -9.0])
    expected = 2 * stats.norm.sf(np.abs(z))
    np.testing.assert_allclose(significance.two_sided_p(3 * z, np.full(5, 3.0)), expected)
    assert significance.power(0.0, 1.0) == pytest.approx(0.05)
    seen = significance.Z95 + significance.Z80
    assert significance.power(2 * seen, 2.0) == pytest.approx(0.8, abs=1e-4)


def test_families_follow_their_definitions() -> None:
    p = np.array([0.03, 0.001, 0.04, 0.9, 0.012])
    np.testing.assert_allclose(significance.holm(p), [0.09, 0.005, 0.09, 0.9, 0.048])
    # Sorted, times 5 / rank: .005, .03, .05, .05, .9
    expected = [0.05, 0.005, 0.05, 0.9, 0.03]
    np.testing.assert_allclose(significance.benjamini_hochberg(p), expected)
