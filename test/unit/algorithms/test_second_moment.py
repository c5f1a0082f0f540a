"""PCA of bounded records, and what a DPdisPCA site sends."""

import numpy as np
import pytest

from cape.algorithms.linalg import smat
from cape.algorithms.second_moment import SecondMomentPca
from cape.papers.algorithms.covariance import leading_factor


def answers(found: SecondMomentPca, stack: np.ndarray) -> np.ndarray:
    return found.query(found.start(stack.shape[1])).answer(stack.astype(np.float32))


def test_records_within_the_bound_give_their_second_moment() -> None:
    rng = np.random.default_rng(0)
    stack = rng.standard_normal((30, 6, 4))
    bound = 1.01 * float(np.max(np.linalg.norm(stack, axis=1)))
    found = SecondMomentPca(n_components=2, norm_bound=bound)
    state = found.step(found.start(6), answers(found, stack).mean(axis=0), 0.0)
    moment = np.einsum("mdt,met->de", stack, stack) / 120
    np.testing.assert_allclose(state.eigenvalues, np.linalg.eigvalsh(moment)[::-1], rtol=1e-5)
    top = np.linalg.eigh(moment)[1][:, :-3:-1]
    cosines = np.linalg.svd(state.V.T @ top, compute_uv=False)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-6)


def test_longer_records_are_shrunk_and_keep_their_direction() -> None:
    found = SecondMomentPca(n_components=1, norm_bound=2.0)
    stack = np.array([[[3e30], [4e30]], [[0.3], [0.4]], [[np.nan], [1.0]]])
    moments = smat(answers(found, stack))
    np.testing.assert_allclose(moments[0], [[0.36, 0.48], [0.48, 0.64]], rtol=1e-6)
    np.testing.assert_allclose(np.trace(moments[1]), 0.25 / 4, rtol=1e-6)
    assert np.all(moments[2] == 0.0)


def test_the_noise_edge_is_that_of_pure_noise() -> None:
    found = SecondMomentPca(n_components=1, norm_bound=3.0)
    rng = np.random.default_rng(1)
    state = found.step(found.start(100), rng.normal(0, 0.01, 5050), 0.01)
    assert state.eigenvalues[0] == pytest.approx(state.edge, rel=0.1)
    assert np.std(state.eigenvalues) == pytest.approx(state.edge / 2, rel=0.1)


def test_a_factor_is_the_leading_part_and_never_a_negative_direction() -> None:
    rng = np.random.default_rng(2)
    Q = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    A = (Q * [4.0, 2.0, 1.0, -0.5, -9.0]) @ Q.T
    P = leading_factor(A, 2)
    np.testing.assert_allclose(P @ P.T, (Q[:, :2] * [4.0, 2.0]) @ Q[:, :2].T, atol=1e-12)
    whole = leading_factor(A, 5)
    np.testing.assert_allclose(
        whole @ whole.T, (Q[:, :3] * [4.0, 2.0, 1.0]) @ Q[:, :3].T, atol=1e-9
    )
