"""DP-djICA of 2016: its parts as printed, and why its label is "none"."""

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms.linalg import unit_columns
from cape.papers.algorithms.dpdjica import (
    LaplaceInfomax,
    WishartPca,
    bounded_columns,
    gaussian,
    laplace,
    noisy_gradients,
    private_local_pca,
    uniforms,
)


def test_without_noise_the_parcel_ends_as_the_pooled_subspace() -> None:
    rng = np.random.default_rng(0)
    common = rng.standard_normal((9, 3))
    sites = [common @ rng.standard_normal((3, 40)) for _ in range(4)]
    estimator = WishartPca(n_components=3, n_local=4, n_sites=4, n_subjects=8)
    state = estimator.start(9)
    for X in sites:
        record = np.concatenate([X @ X.T, np.zeros((9, 20))], axis=1)[None]
        answers = [estimator.query(state).answer(np.zeros_like(record)) for _ in range(3)]
        answers.append(estimator.query(state).answer(record))
        state = estimator.step(state, np.sum(answers, axis=0)[0] / 8, 0.0)
    assert estimator.done(state)
    U = np.linalg.svd(np.concatenate(sites, axis=1))[0][:, :3]
    np.testing.assert_allclose(np.linalg.svd(U.T @ state.V)[1], 1.0, atol=1e-6)
    np.testing.assert_allclose(np.sum(state.V**2, axis=0), 1.0, atol=1e-6)


def test_wishart_noise_only_adds() -> None:
    """C + E E' is never below C: a neighbour with a larger moment is told from the output alone."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((5, 30))
    for _ in range(20):
        E = rng.standard_normal((5, 6)) / np.sqrt(2.0)
        P = private_local_pca(X @ X.T, E, 5)
        assert np.linalg.eigvalsh(P @ P.T - X @ X.T)[0] > -1e-9


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_an_impossible_output_has_probability_one_minus_exp_minus_epsilon(epsilon) -> None:
    """x added in one coordinate, ||x|| = 1: outputs without it that the neighbour cannot give."""
    rng = np.random.default_rng(2)
    n, d = 20_000, 3
    E = rng.standard_normal((n, d, d + 1)) / np.sqrt(2.0 * epsilon)
    noise = E @ E.swapaxes(1, 2)  # the neighbour's C is larger by e1 e1'
    inverse = np.linalg.inv(noise)[:, 0, 0]  # noise - e1 e1' is PSD iff e1' noise^-1 e1 <= 1
    impossible = float(np.mean(inverse > 1.0))
    assert impossible == pytest.approx(1.0 - np.exp(-epsilon), abs=5.0 * 0.5 / np.sqrt(n))


def test_the_noise_of_a_round_scales_with_the_unmixing_matrix() -> None:
    estimator = LaplaceInfomax(n_rounds=2, learning_rate=0.5, round_epsilon=0.5)
    W = np.array([[1.0, -2.0], [3.0, 1.0]])  # ||W||_1 = 4
    state = replace(estimator.start(2), W=W)
    X, E = np.zeros((1, 2, 4), np.float32), np.ones((1, 2, 4), np.float32)
    answer = estimator.query(state).answer(np.concatenate([X, E], axis=1))
    G, h = noisy_gradients(W, np.zeros(2), X, 8.0 * E)
    np.testing.assert_allclose(answer[0], np.concatenate([G.ravel(), h.ravel()]), rtol=1e-6)


def test_noise_from_bytes_has_its_laws() -> None:
    u = uniforms(np.random.default_rng(4).bytes(8 * 200_000))
    assert u.min() > 0.0
    assert u.max() < 1.0
    for sample, kurtosis in ((gaussian(u), 3.0), (laplace(u) / np.sqrt(2.0), 6.0)):
        assert abs(np.mean(sample)) < 0.02
        assert np.var(sample) == pytest.approx(1.0, abs=0.03)
        assert np.mean(sample**4) == pytest.approx(kurtosis, rel=0.1)
    assert uniforms(bytes(8))[0] > 0.0


def test_columns_are_bounded_and_bad_subjects_vanish() -> None:
    stack = np.random.default_rng(5).standard_normal((3, 4, 10)).astype(np.float32)
    stack[1, 0, 0] = np.nan
    bounded = bounded_columns(stack, 2.0)
    assert np.max(np.linalg.norm(bounded, axis=1)) <= 1.0 + 1e-6
    assert not np.any(bounded[1])
    small = np.linalg.norm(stack[0], axis=0) < 2.0
    np.testing.assert_allclose(bounded[0][:, small], stack[0][:, small] / 2.0, rtol=1e-6)
    assert np.array_equal(unit_columns(np.zeros((3, 2))), np.zeros((3, 2)))
