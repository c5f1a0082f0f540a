"""Sign and order of components."""

import numpy as np
import pytest

from cape.algorithms.component_order import (
    apply_order,
    arrange,
    peaks,
    variance_explained,
    z_scores,
)


def sparse_maps(*, n_features: int = 60, n_components: int = 5, seed: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((n_features, n_components)) ** 3
    return maps * np.linspace(1.0, 3.0, n_components)


def signed_permutation(n: int, rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(k) for k in (rng.permutation(n) + 1) * rng.choice([-1, 1], n))


def test_any_signed_permutation_of_the_unmixing_gives_the_same_maps():
    rng = np.random.default_rng(1)
    W_total = np.linalg.pinv(sparse_maps())
    A = np.linalg.pinv(W_total)
    first = apply_order(arrange(A), A, axis=1)
    for _ in range(30):
        mixed = apply_order(signed_permutation(5, rng), W_total, axis=0)
        A_mixed = np.linalg.pinv(mixed)
        order = arrange(A_mixed)
        assert np.abs(apply_order(order, A_mixed, axis=1) - first).max() < 1e-12
        arranged = apply_order(order, mixed, axis=0)
        assert np.abs(arranged - np.linalg.pinv(first)).max() < 1e-12


def test_maps_and_time_courses_flip_together():
    rng = np.random.default_rng(2)
    A, S = sparse_maps(), rng.standard_normal((5, 40))
    order = arrange(A)
    assert any(k < 0 for k in order)
    data = apply_order(order, A, axis=1) @ apply_order(order, S, axis=0)
    assert np.abs(data - A @ S).max() < 1e-10


def test_components_come_by_descending_share_with_positive_skewness():
    A = apply_order(arrange(sparse_maps()), sparse_maps(), axis=1)
    assert np.all(np.diff(variance_explained(A)) < 0)
    assert abs(variance_explained(A).sum() - 1.0) < 1e-12
    assert np.all(np.mean(z_scores(A) ** 3, axis=0) >= 0.05)


def test_without_skewness_the_strongest_feature_decides_the_sign():
    symmetric = np.array([-3.0, 1.0, 1.0, 1.0, 3.0 - 1e-3, -1.0, -1.0, -1.0 + 1e-3])[:, None]
    assert arrange(symmetric) == (-1,)
    assert arrange(-symmetric) == (1,)


def test_equal_shares_are_ordered_by_the_lower_peak():
    one = np.zeros(9)
    one[6] = 1.0
    two = np.roll(one, -4)
    assert arrange(np.stack([one, two, one * 2], axis=1)) == (3, 2, 1)


def test_equal_peaks_count_at_the_lower_index():
    z = np.array([[0.0], [2.0], [-2.0 * (1 + 1e-15)], [1.0]])
    assert peaks(z).tolist() == [1]


def test_constant_and_zero_maps_do_not_break_anything():
    A = np.stack([np.full(6, 0.1), np.arange(6.0), np.zeros(6)], axis=1)
    assert sorted(abs(k) for k in arrange(A)) == [1, 2, 3]
    assert np.all(np.isfinite(z_scores(A)))
    assert not z_scores(A)[:, 0].any()
    assert arrange(np.zeros((4, 2))) == (1, 2)


@pytest.mark.parametrize("axis", [0, 1])
def test_an_order_can_leave_components_out(axis):
    matrix = np.arange(9.0).reshape(3, 3)
    picked = apply_order((-3, 1), matrix, axis=axis)
    wanted = np.stack([-matrix.take(2, axis), matrix.take(0, axis)], axis=axis)
    assert np.array_equal(picked, wanted)
