"""Infomax of the paper: gradients, clips, steps, and the quality it reaches without noise."""

import numpy as np
import pytest

from cape.algorithms.estimators import UNCLIPPED
from cape.algorithms.scores import isi
from cape.algorithms.unmixing import unit_rows
from cape.lab.synthetic.generators import PRESETS, Study, generate
from cape.papers.algorithms.infomax import (
    BIAS_BOUND,
    GRADIENT_BOUND,
    SUBJECT_BOUND,
    Infomax,
    clipped_gradients,
    relative_gradients,
)
from figures_lib._study import djica_sim


def solver(**changes: object) -> Infomax:
    settings = {
        "n_rounds": 400,
        "learning_rate": 0.5,
        "clip": "subject",
        "subject_bound": SUBJECT_BOUND,
        "gradient_bound": GRADIENT_BOUND,
        "bias_bound": BIAS_BOUND,
        "private": True,
    }
    return Infomax(**(settings | changes))


def problem(R: int = 5, T: int = 40, n: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    W = np.eye(R) + 0.3 * rng.standard_normal((R, R))
    return W, 0.2 * rng.standard_normal(R), rng.standard_normal((n, R, T))


def naive(W: np.ndarray, b: np.ndarray, X: np.ndarray, bounds: tuple[float, float]) -> tuple:
    """Alg. 4, lines 4-8, column by column on one subject's doubled data."""
    G, h, clipped = np.zeros_like(W), np.zeros_like(b), 0
    for x in 2.0 * X.T:
        z = W @ x + b
        y = 1.0 - 2.0 / (1.0 + np.exp(-z))
        G_n = (np.eye(len(b)) + np.outer(y, z)) @ W
        clipped += np.linalg.norm(G_n) > bounds[0]
        G += G_n / max(1.0, np.linalg.norm(G_n) / bounds[0])
        h += y / max(1.0, np.linalg.norm(y) / bounds[1])
    return G / X.shape[1], h / X.shape[1], clipped


@pytest.mark.parametrize("bounds", [(6.0, 1.2), (6.0, 9.0), (1e9, 1e9)])
def test_the_closed_form_of_the_clip_equals_the_sum_over_columns(bounds) -> None:
    W, b, stack = problem()
    moments = clipped_gradients(W, b, stack, bounds)
    for m, X in enumerate(stack):
        G, h, clipped = naive(W, b, X, bounds)
        np.testing.assert_allclose(moments.matrix[m], G, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(moments.vector[m], h, rtol=1e-12, atol=1e-12)
        assert (0 < clipped < 40) == (bounds[0] == 6.0)


def log_likelihood(W: np.ndarray, b: np.ndarray, X: np.ndarray) -> float:
    """Mean log likelihood of logistic sources, doubled data."""
    z = W @ (2.0 * X) + b[:, None]
    return float(np.linalg.slogdet(W)[1] - np.mean(np.sum(2 * np.log(np.cosh(z / 2)), axis=0)))


def test_the_gradients_are_those_of_the_likelihood() -> None:
    W, _, stack = problem(n=1)
    b = np.zeros(5)
    moments = relative_gradients(W, b, stack)
    for i in range(5):
        ahead, behind = b.copy(), b.copy()
        ahead[i], behind[i] = 1e-6, -1e-6
        slope = log_likelihood(W, ahead, stack[0]) - log_likelihood(W, behind, stack[0])
        assert moments.vector[0, i] == pytest.approx(slope / 2e-6, abs=1e-7)
        for j in range(5):
            e = np.zeros((5, 5))
            e[i, j] = 1e-6
            ratio = log_likelihood(W + e @ W, b, stack[0]) - log_likelihood(W - e @ W, b, stack[0])
            assert moments.matrix[0, i, j] == pytest.approx(ratio / 2e-6, abs=1e-7)


@pytest.mark.parametrize("clip", ["subject", "time_point"])
def test_a_row_does_not_depend_on_the_stack(clip: str) -> None:
    stack = problem(20, 250, 37)[2].astype(np.float32)
    stack[5, 1, 2] = np.nan
    estimator = solver(clip=clip, bias_bound=3.0)
    state = estimator.step(estimator.start(20), 0.01 * np.ones(420), 0.0)
    answer = estimator.query(state).answer
    alone = np.concatenate([answer(stack[m : m + 1]) for m in range(len(stack))])
    np.testing.assert_array_equal(answer(stack), alone)


def test_the_parts_of_a_printed_answer_have_norm_one_at_most() -> None:
    stack = problem(5, 30, 4)[2].astype(np.float32) * 20
    estimator = solver(clip="time_point", gradient_bound=3.0, bias_bound=1.5)
    query = estimator.query(estimator.start(5))
    answers = query.answer(stack)
    assert query.clip == pytest.approx(np.sqrt(2))
    assert np.max(np.linalg.norm(answers[:, :25], axis=1)) <= 1 + 1e-6
    assert np.max(np.linalg.norm(answers[:, 25:], axis=1)) <= 1 + 1e-6
    G, h, _ = naive(np.eye(5), np.zeros(5), stack[1].astype(np.float64), (3.0, 1.5))
    np.testing.assert_allclose(answers[1], np.concatenate([G.ravel() / 3.0, h / 1.5]), atol=1e-6)


def test_the_bias_bound_counts_up_to_the_root_of_the_order_only() -> None:
    estimator = solver(clip="time_point", bias_bound=50.0)
    state = estimator.start(4)
    mean = np.zeros(20)
    mean[16:] = 1.0
    np.testing.assert_allclose(estimator.step(state, mean, 0.0).b, 0.5 * 2.0)


def test_the_steps_add_the_gradient_times_the_learning_rate() -> None:
    rng = np.random.default_rng(1)
    mean = 0.1 * rng.standard_normal(12)
    first = solver().step(solver().start(3), mean, 0.01)
    second = solver().step(first, mean, 0.01)
    H = mean[:9].reshape(3, 3)
    np.testing.assert_allclose(second.W, first.W + 0.5 * H @ first.W)
    np.testing.assert_allclose(second.b, mean[9:])
    printed = solver(clip="time_point")
    state = printed.step(printed.start(3), mean, 0.01)
    np.testing.assert_allclose(state.W, np.eye(3) + 0.5 * 30 * H)
    np.testing.assert_allclose(state.b, 0.5 * np.sqrt(3) * mean[9:])
    assert state.record.noise_norm == pytest.approx(0.01 * np.sqrt(12))


def test_the_schedule_is_one_joint_release_a_round() -> None:
    for estimator, clip in (
        (solver(), 2.0),
        (solver(clip="time_point"), np.sqrt(2.0)),
        (solver(private=False), UNCLIPPED),
        (solver(private=False, clip="time_point"), UNCLIPPED),
    ):
        asked = estimator.schedule(20)
        assert len(asked) == 400
        assert {(a.size, a.clip, a.shape, a.weight) for a in asked} == {(420, clip, "ball", 1.0)}
        assert estimator.query(estimator.start(20)).clip == clip


def test_a_run_that_blows_up_begins_again_with_a_lower_rate() -> None:
    estimator = solver(n_rounds=60)
    state = estimator.start(3)
    mean = np.concatenate([np.eye(3).ravel(), np.zeros(3)])
    began = []
    while not estimator.done(state):
        before, state = state, estimator.step(state, mean, 1.0)
        assert np.max(np.abs(state.W)) <= 1e4
        if state.rho < before.rho:
            began.append(state.rho)
            np.testing.assert_array_equal(state.W, np.eye(3))
            assert state.round == before.round + 1  # a round that blew up is a round
    np.testing.assert_allclose(began, [0.45, 0.405])
    assert state.round == 60


def test_a_run_whose_rate_is_used_up_is_diverged() -> None:
    estimator = solver(n_rounds=300)
    state = estimator.start(3)
    while not estimator.done(state):
        state = estimator.step(state, np.full(12, 1e100), 1.0)
    assert state.status == "diverged"
    assert state.round < 300


def whitened(study: Study) -> tuple[np.ndarray, np.ndarray]:
    """Pooled non-private PCA whitening; also the matrix that whitens the sources."""
    S = study.S.astype(np.float64)
    pooled = S.transpose(1, 0, 2).reshape(S.shape[1], -1)
    R = np.linalg.qr(study.A)[1]
    values, vectors = np.linalg.eigh(R @ (pooled @ pooled.T / pooled.shape[1]) @ R.T)
    whitener = (vectors / np.sqrt(values)).T @ R
    return (whitener @ S).astype(np.float32), whitener


@pytest.mark.long
@pytest.mark.oracle
@pytest.mark.parametrize(
    ("study", "limit"),
    [
        (lambda: djica_sim(1, n_subjects=256), 250),
        (lambda: generate(PRESETS["paper"], n_subjects=256, seed=70), 400),
    ],
    ids=["djica_sim", "paper"],
)
def test_without_noise_it_reaches_what_fastica_reaches(study, limit: int) -> None:
    from sklearn.decomposition import FastICA

    stack, whitener = whitened(study())
    estimator = solver(private=False, n_rounds=limit)
    state = estimator.start(20)
    while not estimator.done(state):
        state = estimator.step(state, estimator.query(state).answer(stack).mean(axis=0), 0.0)
    assert state.status == "converged"
    ours = isi(unit_rows(state.W) @ whitener)
    columns = stack.transpose(1, 0, 2).reshape(20, -1).T.astype(np.float64)
    oracle = FastICA(whiten=False, fun="logcosh", w_init=np.eye(20), tol=1e-5).fit(columns)
    assert ours < 0.01
    assert abs(ours - isi(oracle.components_ @ whitener)) < 0.002
