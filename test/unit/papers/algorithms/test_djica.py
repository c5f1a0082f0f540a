"""djICA of Baker et al.: stacked PCA, one sphere, blocks, epochs, blow-ups; quality by oracles."""

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms.estimators import UNCLIPPED
from cape.algorithms.scores import isi
from cape.algorithms.unmixing import unit_rows
from cape.lab.synthetic.generators import Study
from cape.papers.algorithms.djica import (
    DjicaInfomax,
    GlobalSphere,
    StackedPca,
    default_block,
    default_rate,
    local_moment,
    public_order,
)
from figures_lib._study import djica_sim


def solver(**changed: object) -> DjicaInfomax:
    settings = {
        "n_rounds": 400, "learning_rate": 0.5, "block": 0, "n_columns": 0, "n_subjects": 1,
        "anneal": False, "tolerance": 1e-6,
    }  # fmt: skip
    return DjicaInfomax(**(settings | changed))


def test_the_sum_of_local_moments_has_the_directions_of_the_stacked_local_pcas() -> None:
    rng = np.random.default_rng(0)
    sites = [rng.standard_normal((8, 3)) @ rng.standard_normal((3, 50)) for _ in range(4)]
    stacked = []
    for X in sites:
        U, s, _ = np.linalg.svd(X, full_matrices=False)
        stacked.append(U[:, :2] * s[:2])
    U, s, _ = np.linalg.svd(np.concatenate(stacked, axis=1))
    total = sum(local_moment(X, 2) for X in sites)
    values, vectors = np.linalg.eigh(total)
    np.testing.assert_allclose(np.sqrt(values[::-1][:5]), s[:5], rtol=1e-9)
    np.testing.assert_allclose(np.abs(np.sum(vectors[:, ::-1][:, :5] * U[:, :5], axis=0)), 1.0)
    np.testing.assert_allclose(local_moment(sites[0], 8), sites[0] @ sites[0].T)


def test_the_global_pca_weighs_sites_by_their_sums_whatever_they_keep() -> None:
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((6, 60)) * np.arange(6, 0, -1)[:, None] / 60).astype(np.float32)
    estimator = StackedPca(n_components=2, n_local=6, n_subjects=10)
    query = estimator.query(estimator.start(6))
    parts = [query.answer(part[np.newaxis])[0] for part in (X[:, :20], X[:, 20:])]
    state = estimator.step(estimator.start(6), sum(parts) / 10, 0.0)
    V = np.linalg.svd(X.astype(np.float64))[0][:, :2]
    np.testing.assert_allclose(np.abs(np.sum(state.V * V, axis=0)), 1.0, atol=1e-9)
    assert estimator.done(state)
    assert not estimator.done(estimator.start(6))


def test_the_sphere_is_exact_and_counts_columns() -> None:
    rng = np.random.default_rng(2)
    mixing = rng.standard_normal((4, 4))
    X = mixing @ rng.standard_normal((4, 3000))
    X /= np.sqrt(np.sum(X**2))
    estimator = GlobalSphere(n_subjects=7, n_sites=2)
    query = estimator.query(estimator.start(4))
    parts = [query.answer(part[np.newaxis])[0] for part in (X[:, :1000], X[:, 1000:])]
    state = estimator.step(estimator.start(4), sum(parts) / 7, 0.0)
    np.testing.assert_allclose(state.U @ X @ X.T @ state.U.T, np.eye(4), atol=1e-9)
    assert state.n_columns == 1500
    assert estimator.done(state)


def test_the_sizes_of_the_paper() -> None:
    assert default_block(64_000) == 56
    assert default_rate(20) == pytest.approx(0.0050071, rel=1e-4)
    assert solver(block=56, n_columns=64_000).epoch_length == 1142
    assert solver().epoch_length == 1


def test_an_epoch_takes_every_column_once_and_the_next_in_another_order() -> None:
    estimator = solver(block=5, n_columns=20)
    stack = np.arange(20, dtype=np.float32)[None, None, :]
    epochs = [[estimator._next_block(4 * e + i, stack).ravel() for i in range(4)] for e in (0, 1)]
    for blocks in epochs:
        assert sorted(np.concatenate(blocks)) == list(range(20))
    assert not np.array_equal(epochs[0], epochs[1])
    short = np.arange(7, dtype=np.float32)[None, None, :]  # a small site begins again
    taken = np.concatenate([estimator._next_block(i, short).ravel() for i in range(4)])
    assert set(taken) == set(range(7))
    assert sorted(public_order(3, 100)) == list(range(100))


def test_a_block_step_is_the_sum_over_sites_and_columns() -> None:
    rng = np.random.default_rng(3)
    sites = [rng.standard_normal((1, 3, 40)).astype(np.float32) for _ in range(2)]
    estimator = solver(block=40, n_columns=40, n_subjects=6, learning_rate=0.001)
    state = replace(estimator.start(3), W=np.eye(3) + 0.1 * rng.standard_normal((3, 3)))
    query = estimator.query(state)
    mean = sum(query.answer(site)[0] for site in sites) / 6
    after = estimator.step(state, mean, 0.0)
    W, b = state.W.copy(), np.zeros(3)
    for site in sites:
        Z = state.W @ (2.0 * site[0].astype(np.float64))
        Y = 1.0 - 2.0 / (1.0 + np.exp(-Z))
        W += 0.001 * (40 * np.eye(3) + Y @ Z.T) @ state.W
        b += 0.001 * Y.sum(axis=1)
    np.testing.assert_allclose(after.W, W, atol=1e-6)
    np.testing.assert_allclose(after.b, b, atol=1e-6)


def test_the_rate_falls_when_the_step_of_an_epoch_turns() -> None:
    estimator = solver(block=1, n_columns=1, anneal=True, tolerance=0.0)
    state, rates = estimator.start(2), []
    forward = 1e-3 * np.array([1.0, 0, 0, 0, 0, 0])
    sideways = 1e-3 * np.array([0, 1.0, 0, 0, 0, 0])
    for mean in (forward, sideways, forward, sideways, sideways, forward):
        state = estimator.step(state, mean, 0.0)
        rates.append(state.rho)
    np.testing.assert_allclose(rates, [0.5, 0.5, 0.5, 0.45, 0.45, 0.405], rtol=1e-9)


def test_a_blow_up_restarts_with_a_lower_rate_and_gives_up_when_it_is_used_up() -> None:
    estimator = solver(n_rounds=1000, block=1, n_columns=1)
    state = estimator.start(3)
    huge = np.full(12, UNCLIPPED)
    after = estimator.step(replace(state, W=1e3 * np.eye(3)), huge, 0.0)
    np.testing.assert_array_equal(after.W, np.eye(3))
    assert (after.rho, after.restarts, after.status) == (pytest.approx(0.45), 1, "running")
    not_finite = estimator.step(state, np.full(12, np.nan), 0.0)
    assert (not_finite.restarts, np.all(np.isfinite(not_finite.W))) == (1, True)
    while not estimator.done(state):
        state = estimator.step(state, 1e9 * huge, 0.0)
    assert state.status == "diverged"
    assert state.restarts > 100


def test_a_huge_change_lowers_the_rate_and_a_tiny_one_ends_the_run() -> None:
    estimator = solver(block=1, n_columns=1, tolerance=1e-6)
    state = replace(estimator.start(2), anchor=1e5 * np.ones((2, 2)))
    assert estimator.step(state, np.zeros(6), 0.0).rho == pytest.approx(0.4)
    state = estimator.start(2)
    for _ in range(3):
        state = estimator.step(state, np.full(6, 1e-5), 0.0)
    assert (state.status, state.epoch) == ("converged", 3)


def test_the_length_of_a_full_batch_is_the_inverse_curvature_along_the_last_step() -> None:
    estimator = solver(tolerance=0.0)
    curvature = np.array([4.0, 0.2, 0.2, 4.0, 1.0, 1.0])
    state, at, lengths = estimator.start(2), np.zeros(6), []
    optimum = 0.01 * np.ones(6)
    for _ in range(30):
        state = estimator.step(state, curvature * (optimum - at), 0.0)
        at = at + state.last[1]
        lengths.append(state.rho)
    assert lengths[0] == 0.5
    # Lengths lie between the inverse curvatures, and the slowest direction is found.
    assert np.all((np.array(lengths[1:]) >= 0.25 - 1e-9) & (np.array(lengths[1:]) <= 5.0 + 1e-9))
    np.testing.assert_allclose(at, optimum, rtol=1e-3)
    up = estimator.step(state, 2.0 * state.last[0] + state.last[1], 0.0)
    assert up.rho == state.rho  # not concave there
    # However long the length, no step is longer than W can follow.
    assert np.linalg.norm(estimator.step(state, np.full(6, 1e3), 0.0).last[1]) <= 1.0 + 1e-9


def test_a_full_batch_ends_by_its_gradient_and_forgets_a_blow_up() -> None:
    estimator = solver(tolerance=1e-6)
    state = estimator.start(2)
    for _ in range(2):
        state = estimator.step(state, np.full(6, 1e-5), 0.0)
        assert state.status == "running"
    assert estimator.step(state, np.full(6, 1e-5), 0.0).status == "converged"
    assert estimator.step(state, np.full(6, 1e-3), 0.0).status == "running"
    again = estimator.step(state, np.full(6, np.nan), 0.0)
    np.testing.assert_array_equal(again.last, 0.0)


def whitened(study: Study) -> tuple[np.ndarray, np.ndarray]:
    """Pooled PCA whitening; also the matrix that whitens the sources."""
    S = study.S.astype(np.float64)
    pooled = S.transpose(1, 0, 2).reshape(S.shape[1], -1)
    triangle = np.linalg.qr(study.A)[1]
    values, vectors = np.linalg.eigh(triangle @ (pooled @ pooled.T / pooled.shape[1]) @ triangle.T)
    sphere = (vectors / np.sqrt(values)).T @ triangle
    return (sphere @ S).astype(np.float32), sphere


def run(estimator: DjicaInfomax, stacks: list[np.ndarray], n_subjects: int):
    state = estimator.start(stacks[0].shape[1])
    while not estimator.done(state):
        answer = estimator.query(state).answer
        mean = sum(answer(stack).sum(axis=0) for stack in stacks) / n_subjects
        state = estimator.step(state, mean, 0.0)
    return state


@pytest.mark.long
@pytest.mark.oracle
def test_full_batch_equals_fastica_and_picard_on_the_same_reduced_data() -> None:
    from picard import picard
    from sklearn.decomposition import FastICA

    stack, sphere = whitened(djica_sim(1, n_subjects=256))
    state = run(solver(n_rounds=100), [stack], 256)
    ours = isi(unit_rows(state.W) @ sphere)
    columns = stack.transpose(1, 0, 2).reshape(20, -1).astype(np.float64)
    fast = FastICA(whiten=False, fun="logcosh", w_init=np.eye(20), tol=1e-5).fit(columns.T)
    _, W, _ = picard(columns, whiten=False, ortho=False, extended=False, w_init=np.eye(20),
                     fun="tanh", tol=1e-6)  # fmt: skip
    assert state.status == "converged"
    assert ours <= 0.01
    assert abs(ours - isi(fast.components_ @ sphere)) < 0.002
    assert abs(ours - isi(unit_rows(W) @ sphere)) < 0.002
