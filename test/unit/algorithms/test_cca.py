"""Canonical correlations from a joint second moment: closed cases, an oracle, bounds, noise."""

import numpy as np
import pytest

from cape.algorithms.cca import SecondMomentCca, canonical_pairs
from cape.algorithms.linalg import smat, svec

TRUE = np.array([0.9, 0.7, 0.5, 0.3, 0.1])


def joint(seed: int, n_x: int = 6, n_y: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a covariance with known canonical correlations, and its true weights."""
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((n_x, n_x)), rng.standard_normal((n_y, n_y))
    cross = np.zeros((n_x, n_y))
    cross[np.arange(5), np.arange(5)] = TRUE
    C = np.block([[A @ A.T, A @ cross @ B.T], [B @ cross.T @ A.T, B @ B.T]])
    return C, np.linalg.inv(A).T[:, :5], np.linalg.inv(B).T[:, :5]


def test_known_correlations_and_weights_are_found() -> None:
    C, U, V = joint(1)
    found = canonical_pairs(C, 6, 5)
    np.testing.assert_allclose(found.correlations, TRUE, atol=1e-10)
    np.testing.assert_allclose(np.abs(found.U), np.abs(U), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(np.abs(found.V), np.abs(V), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.U.T @ C[:6, :6] @ found.U, np.eye(5), atol=1e-9)
    np.testing.assert_allclose(found.U.T @ C[:6, 6:] @ found.V, np.diag(TRUE), atol=1e-9)


def test_left_singular_vectors_of_the_printed_product_are_not_canonical() -> None:
    """What the authors' scripts take; the product is not symmetric unless the views are white."""
    C, U, _ = joint(1)
    x, y = slice(0, 6), slice(6, None)
    inverse = np.linalg.inv
    M = inverse(C[x, x]) @ C[x, y] @ inverse(C[y, y]) @ C[y, x]
    coded = np.linalg.svd(M)[0][:, 2]
    true = U[:, 2] / np.linalg.norm(U[:, 2])
    assert abs(coded @ true) < 0.9
    ours = canonical_pairs(C, 6, 3).U[:, 2]
    assert abs(ours @ true) / np.linalg.norm(ours) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.oracle
def test_samples_give_what_scikit_learn_gives() -> None:
    from sklearn.cross_decomposition import CCA

    rng = np.random.default_rng(4)
    C, *_ = joint(2)
    z = rng.standard_normal((3000, 14)) @ np.linalg.cholesky(C).T
    z -= z.mean(axis=0)
    other = CCA(n_components=3, max_iter=5000, tol=1e-10).fit(z[:, :6], z[:, 6:])
    a, b = other.transform(z[:, :6], z[:, 6:])
    wanted = [np.corrcoef(a[:, k], b[:, k])[0, 1] for k in range(3)]
    found = canonical_pairs(z.T @ z / len(z), 6, 3)
    np.testing.assert_allclose(found.correlations, wanted, atol=1e-4)


def test_a_floor_and_a_ridge_keep_noise_directions_from_blowing_up() -> None:
    """Rank one views under noise: without a floor the first correlation is that of the noise."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4000)
    z = np.outer(x, np.ones(12)) / 6.0
    noise = rng.standard_normal((12, 12)) * 0.002
    C = z.T @ z / 4000 + (noise + noise.T) / 2
    floored = canonical_pairs(C, 6, 2, noise_std=0.002)
    assert floored.correlations[0] > 0.9
    assert floored.correlations[1] <= floored.noise_bound
    assert canonical_pairs(C, 6, 2).correlations[1] > 0.5
    ridge = [canonical_pairs(C, 6, 2, ridge=r).correlations[1] for r in (1.0, 5.0)]
    assert ridge[1] < ridge[0] < 0.5


def test_the_bound_of_the_noise_holds_on_average() -> None:
    rng = np.random.default_rng(3)
    tops = []
    for _ in range(60):
        E = rng.standard_normal((20, 20)) * 0.01
        C = np.eye(20) + np.triu(E) + np.triu(E, 1).T
        found = canonical_pairs(C, 8, 1, noise_std=0.01)
        tops.append(found.correlations[0])
    assert 0.5 * found.noise_bound < np.mean(tops) < found.noise_bound


def estimator(**changed: object) -> SecondMomentCca:
    settings = {
        "low": (-2.0,) * 3 + (0.0,) * 2, "high": (2.0,) * 3 + (10.0,) * 2, "n_x": 3, "n_pairs": 2,
        "norm_bound": 1.0, "constant": 0.5, "ridge": 0.0, **changed,
    }  # fmt: skip
    return SecondMomentCca(**settings)


def test_a_record_at_every_end_of_its_range_has_norm_one() -> None:
    found = estimator(constant=0.0)
    stack = np.array(
        [[[2.0], [-2.0], [2.0], [10.0], [0.0]], [[9.0], [-9.0], [9.0], [99.0], [-9.0]]]
    )
    for answer in found.query(found.start(5)).answer(stack.astype(np.float32)):
        assert np.linalg.norm(answer) == pytest.approx(1.0)


@pytest.mark.parametrize("centre", [0.0, 0.5])
def test_without_noise_means_stds_and_weights_are_in_units_of_the_data(centre: float) -> None:
    rng = np.random.default_rng(5)
    shared = rng.uniform(-1, 1, 500)
    X = np.column_stack([shared, *rng.uniform(-1, 1, (2, 500))]) + (0.5 if centre else 0.0)
    Y = 5.0 + 2.0 * np.column_stack([shared + 0.2 * rng.uniform(-1, 1, 500), shared**2 - 1 / 3])
    z = np.column_stack([X, Y])
    found = estimator(constant=centre)
    stack = z.astype(np.float32)[:, :, None]
    answers = found.query(found.start(5)).answer(stack)
    state = found.step(found.start(5), answers.mean(axis=0), 0.0)
    covariance = np.cov(z.T, bias=True) if centre else (z - [0, 0, 0, 5, 5]).T @ (
        z - [0, 0, 0, 5, 5]) / 500  # fmt: skip
    np.testing.assert_allclose(state.covariance, covariance, atol=1e-6)
    np.testing.assert_allclose(state.std, np.sqrt(np.diagonal(covariance)), rtol=1e-5)
    if centre:
        np.testing.assert_allclose(state.mean, z.mean(axis=0), atol=1e-5)
        a, b = X @ state.U[:, 0], Y @ state.V[:, 0]
        assert np.corrcoef(a, b)[0, 1] == pytest.approx(state.correlations[0], abs=1e-5)
        assert np.std(a) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf])
def test_a_subject_that_is_not_finite_answers_zeros(wild: float) -> None:
    found = estimator()
    stack = np.zeros((2, 5, 1), dtype=np.float32)
    stack[1, 2, 0] = wild
    answers = found.query(found.start(5)).answer(stack)
    assert np.linalg.norm(answers[0]) > 0
    assert np.all(answers[1] == 0)


def test_two_records_are_no_further_apart_than_root_two_times_the_bound() -> None:
    """Shape psd: any two answers have an inner product >= 0, the constant entry included."""
    found = estimator(norm_bound=0.7, constant=0.35)
    rng = np.random.default_rng(6)
    stack = (rng.standard_normal((400, 5, 1)) * 4 + 1).astype(np.float32)
    answers = found.query(found.start(5)).answer(stack)
    clip = found.schedule(5)[0].clip
    assert clip == pytest.approx(0.7**2 + 0.35**2)
    assert np.min(answers @ answers.T) > -1e-12
    assert np.max(np.linalg.norm(answers, axis=1)) <= clip * (1 + 1e-12)
    assert answers.shape[1] == svec(np.eye(6)).size


def test_a_long_record_is_shrunk_and_its_constant_entry_is_not() -> None:
    """Else the released means would be those of other records than the covariances."""
    found = estimator(norm_bound=0.5, constant=0.25)
    stack = np.array([[[2.0], [2.0], [-2.0], [10.0], [0.0]]], dtype=np.float32)
    moment = smat(found.query(found.start(5)).answer(stack))[0]
    assert moment[5, 5] == pytest.approx(0.25**2)
    assert np.trace(moment[:5, :5]) == pytest.approx(0.5**2)
