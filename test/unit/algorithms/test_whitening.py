"""Reduction of a subject and the common whitener."""

import numpy as np
import pytest

from cape.algorithms.linalg import svec, sym_log
from cape.algorithms.whitening import LogEuclidean, reduce_subject


def mixed(n_subjects: int = 40, k: int = 6, T: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Subjects with one common covariance up to sampling; also that covariance."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((k, k)) + 2 * np.eye(k)
    A /= np.linalg.norm(A)
    return (A @ rng.standard_normal((n_subjects, k, T))).astype(np.float32), A @ A.T


def released(estimator: LogEuclidean, stack: np.ndarray) -> object:
    state = estimator.start(stack.shape[1])
    while not estimator.done(state):
        state = estimator.step(state, estimator.query(state).answer(stack).mean(axis=0), 0.0)
    return state


def test_the_reduced_subject_is_centred_and_of_unit_trace() -> None:
    rng = np.random.default_rng(1)
    V = np.linalg.qr(rng.standard_normal((9, 4)))[0]
    Y = rng.standard_normal((9, 80)).cumsum(axis=1).astype(np.float32) + 5
    Z = reduce_subject(V, Y, "none")
    assert (Z.shape, Z.dtype) == ((4, 80), np.float32)
    assert np.sum(Z.astype(np.float64) ** 2) / 80 == pytest.approx(1.0, rel=1e-6)
    np.testing.assert_allclose(Z.mean(axis=1), 0.0, atol=1e-6)
    raw = V.T @ (Y - Y.mean(axis=1, keepdims=True))
    np.testing.assert_allclose(Z / np.linalg.norm(Z), raw / np.linalg.norm(raw), atol=1e-6)


def test_the_filter_takes_one_pooled_coefficient_out_of_all_channels() -> None:
    rng = np.random.default_rng(2)
    x = np.zeros((5, 4000))
    e = rng.standard_normal(x.shape)
    for t in range(1, 4000):
        x[:, t] = 0.7 * x[:, t - 1] + e[:, t]
    Z = reduce_subject(np.eye(5), x, "ar1")
    assert Z.shape == (5, 3999)
    assert np.sum(Z[:, 1:] * Z[:, :-1]) / np.sum(Z**2) == pytest.approx(0.0, abs=0.02)
    centred = x - x.mean(axis=1, keepdims=True)
    phi = np.sum(centred[:, 1:] * centred[:, :-1]) / np.sum(centred**2)
    expected = centred[:, 1:] - phi * centred[:, :-1]
    np.testing.assert_allclose(Z, expected / np.sqrt(np.sum(expected**2) / 3999), atol=1e-5)


def test_the_filter_leaves_the_mixing_unchanged() -> None:
    rng = np.random.default_rng(3)
    A, S = rng.standard_normal((6, 3)), rng.standard_normal((3, 500)).cumsum(axis=1)
    Z = reduce_subject(np.eye(6), A @ S, "ar1")
    left = np.linalg.svd(Z.astype(np.float64))[0][:, 3:]
    assert np.max(np.abs(left.T @ A)) < 1e-4


@pytest.mark.parametrize("prewhiten", ["ar1", "none"])
@pytest.mark.parametrize("value", [0.0, 7.0, np.nan, np.inf])
def test_a_constant_or_broken_subject_becomes_zero(prewhiten: str, value: float) -> None:
    Y = np.full((5, 30), 7.0, dtype=np.float32)
    Y[2, 4] = value
    if value == 0.0:
        Y[:] = 0.0
    Z = reduce_subject(np.eye(5)[:, :3], Y, prewhiten)
    np.testing.assert_array_equal(Z, np.zeros((3, 29 if prewhiten == "ar1" else 30)))


def test_huge_and_tiny_subjects_are_scaled_not_lost() -> None:
    Y = np.random.default_rng(4).standard_normal((4, 50))
    expected = reduce_subject(np.eye(4), Y, "ar1")
    for factor in (1e-170, 1e170):
        np.testing.assert_allclose(reduce_subject(np.eye(4), factor * Y, "ar1"), expected, 1e-5)


def test_looks_without_noise_whiten_a_common_covariance() -> None:
    stack, C = mixed()
    state = released(LogEuclidean(n_looks=2, clip=4.0, private=False), stack)
    np.testing.assert_allclose(state.U @ C @ state.U.T, np.eye(6), atol=0.06)
    assert state.look == 2


def test_a_subject_answers_its_log_covariance_under_the_present_whitener() -> None:
    stack, _ = mixed(3)
    estimator = LogEuclidean(n_looks=1, clip=50.0, private=True)
    state = estimator.start(6)
    Z = np.sqrt(6) * stack[2].astype(np.float64)
    answer = estimator.query(state).answer(stack)[2]
    np.testing.assert_allclose(answer, svec(sym_log(Z @ Z.T / 300, 1e-4)), atol=1e-10)


def test_shrinkage_takes_noise_for_nothing_and_signal_nearly_whole() -> None:
    estimator = LogEuclidean(n_looks=1, clip=4.0, private=True)
    start = estimator.start(6)
    noise = np.random.default_rng(5).standard_normal(21)
    noise *= np.sqrt(21) / np.linalg.norm(
        noise
    )  # exactly the energy that noise is expected to have
    still = estimator.step(start, 0.1 * noise, 0.1)
    np.testing.assert_allclose(still.U, start.U, atol=1e-12)
    assert still.record.step_norm == pytest.approx(0.0, abs=1e-12)
    weak = estimator.step(start, 0.05 * noise, 0.1)  # never turns the sign
    np.testing.assert_allclose(weak.U, start.U, atol=1e-12)
    signal = np.zeros(21)
    signal[0] = 1.0
    moved = estimator.step(start, signal, 0.1)
    factor = 1 - 0.01 * 21
    assert moved.U[0, 0] == pytest.approx(np.sqrt(6) * np.exp(-factor / 2))
    assert moved.record.noise_norm == pytest.approx(0.1 * np.sqrt(21))


def test_what_whitening_leaves_is_told_from_the_released_mean_and_its_noise() -> None:
    """Against the mean over 400 draws, of standard error 2 %; the formula is of first order."""
    k, s, clip = 8, 0.15, 4.0
    rng = np.random.default_rng(4)
    true = rng.standard_normal(k * (k + 1) // 2)
    true *= 2.0 / np.linalg.norm(true)
    estimator = LogEuclidean(n_looks=1, clip=clip, private=True)
    told, left = [], []
    for _ in range(400):
        mean = true + s * rng.standard_normal(len(true))
        state = estimator.step(estimator.start(k), mean, s)
        shrink = 2.0 * state.record.step_norm / np.linalg.norm(mean)
        told.append(state.residual)
        left.append(np.sum((true - shrink * mean) ** 2) / k)
    assert np.mean(told) == pytest.approx(np.mean(left), rel=0.2)
    # Cut by the clip: whatever was told is a lower bound, so all of it counts as left.
    cut = estimator.step(estimator.start(k), 3.8 / 2.0 * true, s)
    assert cut.residual == pytest.approx(3.8**2 / k)
    assert estimator.step(estimator.start(k), 0.01 * true, s).residual == 0.0
