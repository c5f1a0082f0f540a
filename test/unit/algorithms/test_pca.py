"""The common subspace: projectors, second moments, the rank guard."""

from itertools import pairwise

import numpy as np
import pytest

from cape.algorithms.linalg import smat, svec
from cape.algorithms.pca import ProjectorPca, leading_projector, rank_guard
from cape.lab.synthetic.generators import PRESETS, generate
from cape.protocol.subject_views import map_stack, unit_trace


@pytest.fixture(scope="module")
def stack() -> np.ndarray:
    """96 subjects, 10 true components, 49 basis functions."""
    study = generate(
        PRESETS["paper"], n_subjects=96, seed=3, n_components=10, n_timepoints=120, n_basis=49
    )
    return map_stack(study.subjects(), unit_trace)


def noisy(estimator: ProjectorPca, stack: np.ndarray, g: float, seed: int = 0) -> object:
    """One release as a trusted curator makes it; g = M mu of this release."""
    state = estimator.start(stack.shape[1])
    query = estimator.query(state)
    std = np.sqrt(2.0) * query.clip / g
    noise = np.random.default_rng(seed).standard_normal(query.size)
    return estimator.step(state, query.answer(stack).mean(axis=0) + std * noise, std)


def test_a_subject_answers_its_own_projector(stack: np.ndarray) -> None:
    estimator = ProjectorPca(n_components=10, private=True)
    answers = estimator.query(estimator.start(49)).answer(stack[:3])
    P = smat(answers[1])
    np.testing.assert_allclose(P @ P, P, atol=1e-10)
    assert np.trace(P) == pytest.approx(10)
    left = np.linalg.svd(stack[1].astype(np.float64))[0][:, :10]
    np.testing.assert_allclose(P, left @ left.T, atol=1e-6)


def test_a_subject_of_low_rank_answers_with_fewer_directions() -> None:
    rng = np.random.default_rng(2)
    Y = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 50))
    assert np.trace(leading_projector(Y, 6)) == pytest.approx(3)
    assert np.trace(leading_projector(1e-200 * Y, 6)) == pytest.approx(3)


def test_answers_stay_within_their_bounds(stack: np.ndarray) -> None:
    projector = ProjectorPca(n_components=10, private=True)
    query = projector.query(projector.start(49))
    assert (query.shape, query.clip, query.size) == ("psd", np.sqrt(10), 49 * 25)
    norms = np.linalg.norm(query.answer(stack), axis=1)
    assert np.all(norms <= np.sqrt(10) * (1 + 1e-12))


def test_the_true_subspace_is_found_without_noise(stack: np.ndarray) -> None:
    study = generate(
        PRESETS["paper"], n_subjects=1, seed=3, n_components=10, n_timepoints=2, n_basis=49
    )
    truth = np.linalg.qr(study.B.T @ study.A)[0]
    estimator = ProjectorPca(n_components=10, private=False)
    state = estimator.start(49)
    assert not estimator.done(state)
    state = estimator.step(state, estimator.query(state).answer(stack).mean(axis=0), 0.0)
    assert estimator.done(state)
    assert state.V.shape == (49, 10)
    assert state.status == "unguarded"
    assert np.min(np.linalg.svd(state.V.T @ truth, compute_uv=False)) > 0.9999


def test_without_noise_surplus_directions_are_cut_by_rounding_alone(stack: np.ndarray) -> None:
    estimator = ProjectorPca(n_components=14, private=False)
    state = estimator.start(49)
    state = estimator.step(state, estimator.query(state).answer(stack).mean(axis=0), 0.0)
    assert state.V.shape == (49, 10)
    assert state.status == "reduced"


def test_without_a_visible_gap_all_are_kept_and_it_is_said(stack: np.ndarray) -> None:
    state = noisy(ProjectorPca(n_components=15, private=True), stack, 20.0)
    assert state.V.shape == (49, 15)
    assert state.status == "no_gap"


def test_the_edge_is_the_top_of_a_pure_noise_spectrum() -> None:
    estimator = ProjectorPca(n_components=10, private=True)
    noise = 0.02 * np.random.default_rng(7).standard_normal(100 * 101 // 2)
    state = estimator.step(estimator.start(100), noise, 0.02)
    assert state.eigenvalues[0] == pytest.approx(state.edge, rel=0.06)
    assert state.record.noise_norm == pytest.approx(state.record.statistic_norm, rel=0.05)


def test_the_guard_looks_between_half_and_all_components_only() -> None:
    values = np.array([9.0, 1.0, 0.9, 0.8, 0.3, 0.25, 0.2])
    assert rank_guard(values, 6, 1.0).k == 4
    assert rank_guard(values, 6, 1.0).status == "reduced"
    assert rank_guard(values, 6, 1.0).gap_ratio == pytest.approx(0.5)
    assert rank_guard(values, 6, 4.0).status == "no_gap"
    assert rank_guard(values, 7, 1.0).status == "unguarded"
    assert rank_guard(values, 1, 1.0).status == "gap"


def test_no_direction_that_many_subjects_share_is_cut() -> None:
    values = np.r_[np.array([6.0, 5.9, 5.8, 3.0, 2.9, 2.8]) / 7, np.full(94, 0.05)]
    # The drop after the third is no end of the signal: what follows, .43, is above edge and .35.
    for edge in (0.1, 0.4):
        assert (rank_guard(values, 6, edge).k, rank_guard(values, 6, edge).status) == (6, "no_gap")
    # Below the edge of the 97 other directions, .985 of that of all, it may be noise, and is cut.
    assert (rank_guard(values, 6, 0.434).k, rank_guard(values, 6, 0.436).k) == (6, 3)
    assert rank_guard(values, 6, 0.436).status == "reduced"


@pytest.mark.parametrize("kept", [10, 7])
def test_the_overlap_is_what_subjects_have_in_common(kept: int) -> None:
    """All subjects alike, or 3 of 10 directions elsewhere in half of them; noise of norm 3.4."""
    rng, d, noise_std = np.random.default_rng(kept), 40, 0.12
    own = np.linalg.qr(rng.standard_normal((d, 16)))[0]
    first, second = own[:, :10], np.c_[own[:, :kept], own[:, 10 : 20 - kept]]
    mean = (first @ first.T + second @ second.T) / 2
    expected = np.linalg.norm(mean) / np.sqrt(10)
    estimator = ProjectorPca(n_components=10, private=True)
    noise = noise_std * rng.standard_normal(d * (d + 1) // 2)
    found = estimator.step(estimator.start(d), svec(mean) + noise, noise_std).overlap
    # Its error has a standard deviation of about .02.
    assert found == pytest.approx(expected, abs=0.08)
    assert expected == pytest.approx(1.0 if kept == 10 else np.sqrt(0.85))


def test_up_to_five_components_are_never_cut() -> None:
    values = np.array([0.9, 0.9, 0.1, 0.05, 0.04, 0.03, 0.0])
    for R in (2, 3, 4, 5):
        assert rank_guard(values, R, 0.3).k == R
    assert rank_guard(values, 6, 0.3).k < 6


@pytest.mark.parametrize("R", [10, 15, 20])
def test_more_budget_never_cuts_more_where_components_are_too_few(R: int) -> None:
    """25 networks, R asked for: subjects' projectors of rank R, the same noise ever smaller."""
    rng = np.random.default_rng(R)
    common = np.linalg.qr(rng.standard_normal((60, 25)))[0]
    mean = np.zeros((60, 60))
    for _ in range(200):
        # Who shows which networks differs, hence uneven eigenvalues between networks.
        chosen = rng.choice(25, size=R, replace=False, p=np.linspace(1, 4, 25) / 62.5)
        mean += common[:, chosen] @ common[:, chosen].T / 200
    goe = smat(rng.standard_normal(60 * 61 // 2))
    kept = []
    for s in np.geomspace(0.3, 1e-4, 30):
        values = np.linalg.eigvalsh(mean + s * goe)[::-1]
        kept.append(rank_guard(values, R, 2.0 * s / np.sqrt(2.0) * np.sqrt(60)).k)
    assert kept[-1] == R
    assert all(more >= less for less, more in pairwise(kept))


def test_one_release_is_planned() -> None:
    (asked,) = ProjectorPca(n_components=20, private=True).schedule(100)
    assert (asked.size, asked.clip, asked.shape) == (5050, np.sqrt(20), "psd")


@pytest.mark.parametrize(("d", "T"), [(260, 300), (300, 255), (120, 400)])
def test_leading_eigenvectors_alone_give_the_projector_of_all(d: int, T: int) -> None:
    """To 1e-10: from 250 rows on LAPACK is asked for R vectors, by another algorithm."""
    rng = np.random.default_rng(d)
    Y = rng.standard_normal((d, 30)) @ rng.standard_normal((30, T)) + rng.standard_normal((d, T))
    vectors = np.linalg.svd(Y)[0][:, :20]
    P = leading_projector(Y, 20)
    np.testing.assert_allclose(P, vectors @ vectors.T, atol=1e-10)
    # Fewer directions than were asked for, and nothing at all.
    thin = leading_projector(Y[:, :1] @ Y[:1], 20)
    assert np.trace(thin) == pytest.approx(1.0)
    assert not leading_projector(np.full((d, T), np.nan), 20).any()
