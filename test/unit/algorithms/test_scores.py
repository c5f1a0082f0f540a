"""Figures of merit against known truth."""

import numpy as np
import pytest

from cape.algorithms import scores


def random_orthogonal(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def test_isi_is_zero_for_a_signed_permutation_and_one_factor() -> None:
    gain = -2.5 * np.eye(5)[[3, 1, 0, 4, 2]] * [1, -1, 1, 1, -1]
    assert scores.isi(gain) == 0.0


def test_isi_follows_its_definition() -> None:
    p = np.array([[1.0, 0.5], [0.25, 2.0]])
    rows = (1.5 - 1) + (2.25 / 2 - 1)
    columns = (1.25 - 1) + (2.5 / 2 - 1)
    assert scores.isi(p) == pytest.approx((rows + columns) / 4)
    assert scores.isi(np.ones((6, 6))) == pytest.approx(1.0)


def test_random_rotations_of_order_twenty_score_as_the_notes_say() -> None:
    gains = [random_orthogonal(20, seed) for seed in range(60)]
    assert np.mean([scores.isi(g) for g in gains]) == pytest.approx(0.347, abs=0.01)


def test_unit_rows_make_isi_blind_to_row_scales() -> None:
    gain = random_orthogonal(6, 1) + 2 * np.eye(6)
    W = np.diag([1.0, 5.0, 0.2, 3.0, 1.0, 9.0]) @ random_orthogonal(6, 2)
    assert scores.isi(scores.unit_rows(W) @ gain) == pytest.approx(
        scores.isi(random_orthogonal(6, 2) @ gain)
    )


def test_maps_are_matched_one_to_one_with_their_signs() -> None:
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((200, 4))
    estimate = -3.0 * truth[:, [2, 0, 3, 1]] + 7.0
    matching = scores.match_maps(estimate, truth)
    np.testing.assert_array_equal(matching.estimate[np.argsort(matching.truth)], [1, 3, 0, 2])
    np.testing.assert_allclose(matching.correlation, -1.0)
    assert matching.mean == pytest.approx(1.0)


def test_fewer_estimates_than_maps_form_fewer_pairs_and_constants_score_zero() -> None:
    truth = np.random.default_rng(5).standard_normal((50, 4))
    assert scores.match_maps(truth[:, :3], truth).correlation.shape == (3,)
    flat = np.column_stack([truth[:, 0], np.ones(50)])
    assert scores.match_maps(flat, truth[:, :2]).mean == pytest.approx(0.5)
