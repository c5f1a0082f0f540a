"""Outcomes of one person: known signals have known numbers."""

import numpy as np
import pytest

from cape.algorithms.person_outcomes import (
    courses,
    domain_means,
    edges,
    falff,
    log_amplitudes,
    log_band_power,
)
from cape.settings.measures import domain_names, edge_names

RNG = np.random.default_rng(3)
TR = 2.0
T = 400


def exact_courses(correlation: np.ndarray) -> np.ndarray:
    """Courses (R, T) whose sample correlations are exactly those."""
    white = RNG.standard_normal((len(correlation), T))
    white -= white.mean(axis=1, keepdims=True)
    white = np.linalg.solve(np.linalg.cholesky(white @ white.T), white)
    return np.linalg.cholesky(correlation) @ white


def sine(hz: float) -> np.ndarray:
    return np.sin(2 * np.pi * hz * TR * np.arange(T))[None]


def test_edges_are_fisher_z_of_correlations_in_the_order_of_their_names() -> None:
    r = np.array([[1, 0.5, -0.2], [0.5, 1, 0.3], [-0.2, 0.3, 1]])
    found = edges(100 * exact_courses(r) + 7)
    np.testing.assert_allclose(found, np.arctanh([0.5, -0.2, 0.3]), atol=1e-10)
    assert edge_names(("a", "b", "c")) == ("a - b", "a - c", "b - c")


def test_a_constant_course_has_no_edges() -> None:
    S = exact_courses(np.eye(3))
    S[1] = 4.0
    assert np.isnan(edges(S)).tolist() == [True, False, True]
    assert np.isnan(log_amplitudes(S)).tolist() == [False, True, False]


def test_means_are_of_the_edges_inside_and_between_domains() -> None:
    z = np.arange(6.0)  # ab ac ad bc bd cd
    assert domain_names(("x", "y", "x", "x")) == ("x", "x - y")
    means = domain_means(z, ("x", "y", "x", "x"))
    np.testing.assert_allclose(means, [(1 + 2 + 5) / 3, (0 + 3 + 4) / 3])
    assert domain_names(("x", "x", "y", "y")) == ("x", "x - y", "y")
    np.testing.assert_allclose(domain_means(z, ("x", "x", "y", "y")), [0, 2.5, 5])


def test_courses_of_maps_are_found_in_data_that_are_made_of_them() -> None:
    maps, S = RNG.standard_normal((300, 4)) + 2, RNG.standard_normal((4, 50))
    maps -= 2 * (np.arange(4) % 2)
    X = maps @ S + 11 * RNG.standard_normal(50)  # a constant in every volume is nobody's
    np.testing.assert_allclose(courses(X, maps), S * maps.std(axis=0)[:, None], atol=1e-8)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_band_power_is_a_part_of_all_and_hangs_on_no_scale(scale) -> None:
    white = scale * RNG.standard_normal((200, T))
    bands = ((0.01, 0.1), (0.1, 0.25))
    parts = 10 ** log_band_power(white, TR, bands)
    np.testing.assert_allclose(parts.mean(axis=0), [0.09 / 0.25, 0.15 / 0.25], atol=0.03)
    assert 10 ** log_band_power(scale * sine(0.05), TR, bands)[0, 0] > 0.97


def test_where_the_sampling_is_unknown_or_too_slow_nothing_is_said() -> None:
    white = RNG.standard_normal((2, T))
    assert np.isnan(log_band_power(white, 0.0, ((0.01, 0.1),))).all()
    assert np.isnan(log_band_power(white, TR, ((0.2, 0.4),))).all()
    assert np.isnan(falff(white, 0.0)).all()
    assert np.isnan(falff(white, 3.0)).all()
    assert np.isnan(falff(np.ones((1, T)), TR)).all()


def test_falff_is_the_part_of_slow_amplitudes() -> None:
    white = RNG.standard_normal((300, T))
    assert falff(white, TR).mean() == pytest.approx(0.07 / 0.25, abs=0.01)
    assert falff(sine(0.05), TR)[0] > 0.99
    assert falff(sine(0.2), TR)[0] < 0.01
    # faster sampling adds frequencies that do not count
    fast = RNG.standard_normal((300, 4 * T))
    assert falff(fast, 0.5).mean() == pytest.approx(0.07 / 0.25, abs=0.01)
