"""p-values and families of tests, against scipy, which a round does not import."""

import math

import numpy as np
import pytest
from scipy import stats

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


def test_t_and_f_are_those_of_scipy() -> None:
    for df in (1.0, 2.5, 7.0, 30.0, 893.0, 1e6):
        for t in (0.0, 0.3, 1.96, 5.0, 40.0):
            assert significance.t_p(t, df) == pytest.approx(
                2 * stats.t.sf(t, df), rel=1e-8, abs=1e-300
            )
            assert significance.f_p(t, 3, df) == pytest.approx(
                stats.f.sf(t, 3, df), rel=1e-8, abs=1e-300
            )
        assert significance.t95(df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-9)
    assert significance.t_p(1.959963984540054, math.inf) == pytest.approx(0.05)
    assert significance.t95(math.inf) == pytest.approx(1.959963984540054)
    assert significance.f_p(2.0, 3, math.inf) == pytest.approx(stats.chi2.sf(6.0, 3))
    assert math.isnan(significance.t_p(math.nan, 5.0))
    assert math.isnan(significance.f_p(math.nan, 2, 5.0))
