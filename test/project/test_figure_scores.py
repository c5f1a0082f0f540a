"""The papers' figures of merit against closed cases and scikit-learn."""

import itertools

import numpy as np
import pytest

from figures_lib import _scores as scores


def random_orthogonal(n: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))[0]


def test_mdi_is_the_smallest_distance_over_all_matchings() -> None:
    p = np.random.default_rng(3).standard_normal((4, 4))
    best = np.inf
    for order in itertools.permutations(range(4)):
        chosen = p[list(order)]  # row order[j] of P stands for source j, scaled to fit best
        scale = np.diag(chosen) / np.sum(chosen**2, axis=1)
        best = min(best, float(np.linalg.norm(scale[:, None] * chosen - np.eye(4))))
    assert scores.mdi(p) == pytest.approx(best / np.sqrt(3))


def test_captured_energy_is_the_trace_inside_the_subspace() -> None:
    V = random_orthogonal(6, 6)[:, :2]
    C = np.diag([6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert scores.captured_energy(V, C) == pytest.approx(np.trace(V.T @ C @ V))
    assert scores.captured_energy(np.eye(6)[:, :2], C) == 11.0


def test_principal_cosines_of_turned_planes() -> None:
    U = np.eye(4)[:, :2]
    V = np.column_stack([np.eye(4)[:, 0], [0, np.cos(0.3), np.sin(0.3), 0]])
    np.testing.assert_allclose(scores.principal_cosines(U, V), [1.0, np.cos(0.3)])
    assert np.all(scores.principal_cosines(V, V) <= 1.0)


def test_mdi_is_zero_for_a_signed_permutation_and_as_the_notes_say_for_random_rotations() -> None:
    gain = -2.5 * np.eye(5)[[3, 1, 0, 4, 2]] * [1, -1, 1, 1, -1]
    assert scores.mdi(gain) == pytest.approx(0.0, abs=1e-7)
    gains = [random_orthogonal(20, seed) for seed in range(60)]
    assert np.mean([scores.mdi(g) for g in gains]) == pytest.approx(0.900, abs=0.01)


@pytest.mark.oracle
def test_the_clustering_index_is_that_of_scikit_learn_and_grows_with_n() -> None:
    from sklearn.metrics import calinski_harabasz_score

    rng = np.random.default_rng(7)
    labels = rng.integers(0, 4, 300) * 10
    records = rng.standard_normal((300, 3)) + labels[:, None] / 10
    found = scores.calinski_harabasz(records, labels)
    assert found == pytest.approx(calinski_harabasz_score(records, labels), rel=1e-10)
    twice = scores.calinski_harabasz(np.tile(records, (2, 1)), np.tile(labels, 2))
    assert twice == pytest.approx(found * (600 - 4) / (300 - 4))


def test_the_clustering_index_of_a_closed_case() -> None:
    """Two clusters at -1 and 1 with members 0.5 around: between 4 / 1, within 1 / 2."""
    records = np.array([[-1.5], [-0.5], [0.5], [1.5]])
    assert scores.calinski_harabasz(records, np.array([0, 0, 1, 1])) == pytest.approx(8.0)
    assert scores.calinski_harabasz(records[[0, 0, 3, 3]], np.array([0, 0, 1, 1])) == np.inf


def test_err_corr_is_zero_at_the_truth_and_closed_for_swapped_directions() -> None:
    rng = np.random.default_rng(8)
    a = np.linalg.qr(rng.standard_normal((500, 4)) @ np.eye(4))[0]
    a = np.linalg.qr(np.column_stack([np.ones(500), a]))[0][:, 1:]  # centred, orthonormal
    r = np.array([0.8, 0.3])
    x, y = a[:, :2], a[:, :2] * r + a[:, 2:] * np.sqrt(1 - r**2)
    eye = np.eye(2)
    assert scores.err_corr(x, y, eye, -3 * eye, r) == pytest.approx(0.0, abs=1e-12)
    swapped = scores.err_corr(x, y, eye[::-1], eye[::-1], r)
    assert swapped == pytest.approx(np.sqrt(2 * 0.5**2) / 2)
    crossed = scores.err_corr(x, y, eye, eye[::-1], r)  # variates of different pairs
    assert crossed == pytest.approx(np.linalg.norm(r) / 2)
    assert scores.err_corr(x, y, eye, 0 * eye, r) == pytest.approx(np.linalg.norm(r) / 2)
