"""The papers' subspace from covariances, and the whitening from its eigenvalues."""

import numpy as np
import pytest

from cape.algorithms.estimators import UNCLIPPED
from cape.algorithms.linalg import smat, svec
from cape.algorithms.whitening import reduce_subject, whiten
from cape.lab.synthetic.generators import PRESETS, generate
from cape.papers.algorithms.covariance import CovariancePca, EigenWhitening
from cape.protocol.subject_views import map_stack, unit_trace

STUDY = {"n_components": 10, "n_timepoints": 120, "n_basis": 49}


@pytest.fixture(scope="module")
def stack() -> np.ndarray:
    """96 subjects, 10 true components, 49 basis functions."""
    study = generate(PRESETS["paper"], n_subjects=96, seed=3, **STUDY)
    return map_stack(study.subjects(), unit_trace)


def test_answers_are_scaled_to_the_clip(stack: np.ndarray) -> None:
    estimator = CovariancePca(n_components=10, clip=0.3, private=True)
    query = estimator.query(estimator.start(49))
    answers = query.answer(stack)
    assert (query.shape, query.clip) == ("psd", 0.3)
    np.testing.assert_allclose(np.linalg.norm(answers, axis=1), 0.3, rtol=1e-12)
    assert np.min(np.linalg.eigvalsh(smat(answers[0]))) > -1e-12
    (asked,) = CovariancePca(n_components=20, clip=0.3, private=True).schedule(100)
    assert (asked.size, asked.clip, asked.shape) == (5050, 0.3, "psd")


def test_without_privacy_the_second_moment_is_exact(stack: np.ndarray) -> None:
    estimator = CovariancePca(n_components=10, clip=0.3, private=False)
    query = estimator.query(estimator.start(49))
    assert query.clip == UNCLIPPED
    Y = stack[5].astype(np.float64)
    np.testing.assert_allclose(query.answer(stack)[5], svec(Y @ Y.T / 120), atol=1e-15)


def test_the_true_subspace_is_found_without_noise(stack: np.ndarray) -> None:
    study = generate(PRESETS["paper"], n_subjects=1, seed=3, **{**STUDY, "n_timepoints": 2})
    truth = np.linalg.qr(study.B.T @ study.A)[0]
    estimator = CovariancePca(n_components=10, clip=1.0, private=False)
    state = estimator.start(49)
    state = estimator.step(state, estimator.query(state).answer(stack).mean(axis=0), 0.0)
    assert estimator.done(state)
    assert (state.V.shape, state.status) == ((49, 10), "unguarded")
    assert np.min(np.linalg.svd(state.V.T @ truth, compute_uv=False)) > 0.9999


def test_eigenvalues_of_the_second_moment_whiten_without_a_release() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((6, 6)) + 2 * np.eye(6)
    stack = (A / np.linalg.norm(A) @ rng.standard_normal((60, 6, 300))).astype(np.float32)
    pca = CovariancePca(n_components=4, clip=1.0, private=False)
    subspace = pca.start(6)
    subspace = pca.step(subspace, pca.query(subspace).answer(stack).mean(axis=0), 0.0)
    estimator = EigenWhitening(eigenvalues=subspace.eigenvalues)
    assert estimator.schedule(4) == ()
    state = estimator.start(4)
    assert estimator.done(state)
    Z0 = np.stack([reduce_subject(subspace.V, Y, "none") for Y in stack])
    Z = whiten(state.U, Z0)
    C = np.einsum("mit,mjt->ij", Z, Z) / (60 * 300)
    np.testing.assert_allclose(C, np.eye(4), atol=0.05)
    with pytest.raises(ValueError, match="no release"):
        estimator.query(state)
    with pytest.raises(ValueError, match="no release"):
        estimator.step(state, np.zeros(10), 0.0)


def test_negative_noisy_eigenvalues_are_floored() -> None:
    pca = CovariancePca(n_components=3, clip=1.0, private=True)
    subspace = pca.step(pca.start(3), svec(np.diag([1.0, 0.5, -0.2])), 0.1)
    U = EigenWhitening(eigenvalues=subspace.eigenvalues).start(subspace.V.shape[1]).U
    assert np.all(np.isfinite(U))
    assert np.all(np.diag(U) > 0)
    assert smat(svec(U)).shape == U.shape
