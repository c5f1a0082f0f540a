"""Synthetic studies: the facts stated about them, and draws that do not move."""

import numpy as np
import pytest

from cape.lab.synthetic.generators import PRESETS, garch_sources, generate
from figures_lib._study import djica_sim, djica_sim_maps
from support.closed_forms import map_energy


def excess_kurtosis(S: np.ndarray) -> np.ndarray:
    pooled = S.astype(np.float64).transpose(1, 0, 2).reshape(S.shape[1], -1)
    return np.mean(pooled**4, axis=1) / np.mean(pooled**2, axis=1) ** 2 - 3.0


def cosines(A: np.ndarray) -> np.ndarray:
    unit = A / np.linalg.norm(A, axis=0)
    return np.abs(unit.T @ unit - np.eye(A.shape[1]))


def test_the_study_of_the_papers_has_the_stated_facts() -> None:
    A = djica_sim_maps()
    assert A.shape == (900, 20)
    assert np.mean(A != 0) == pytest.approx(0.108, abs=5e-4)
    assert np.max(cosines(A)) == pytest.approx(0.345, abs=5e-4)
    assert np.linalg.cond(A) == pytest.approx(2.08, abs=5e-3)
    study = djica_sim(1, n_subjects=256)
    kurtosis = excess_kurtosis(study.S)
    facts = (np.min(kurtosis), np.median(kurtosis), np.max(kurtosis))
    assert facts == pytest.approx((1.06, 3.40, 32.6), abs=0.04)
    assert np.std(study.S) == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(study.S.mean(axis=(0, 2), dtype=np.float64), 0.0, atol=1e-6)


@pytest.mark.parametrize(("name", "bound"), [("paper", 0.35), ("realistic", 0.5)])
def test_preset_maps_respect_their_bound_and_fit_the_basis(name: str, bound: float) -> None:
    study = generate(PRESETS[name], n_subjects=2, seed=70, n_timepoints=20)
    assert np.max(cosines(study.A)) < bound
    assert map_energy(study.B, study.A) == pytest.approx(0.986, abs=0.01)
    spread = np.std(np.log(np.linalg.norm(study.A, axis=0)))
    assert (spread > 0.1) == (name == "realistic")


def test_the_draws_of_a_preset_do_not_move() -> None:
    # First numbers of seed 70, drawn by hand in the documented order.
    rng = np.random.default_rng(1070)
    blobs = rng.integers(1, 3)
    centre, sd = rng.uniform(3, 26, 2), rng.uniform(1.4, 2.6, 2)
    row, column = np.indices((30, 30))
    image = np.exp(-(((row - centre[0]) / sd[0]) ** 2 + ((column - centre[1]) / sd[1]) ** 2) / 2)
    if blobs == 2:
        centre, sd = rng.uniform(3, 26, 2), rng.uniform(1.4, 2.6, 2)
        image += np.exp(
            -(((row - centre[0]) / sd[0]) ** 2 + ((column - centre[1]) / sd[1]) ** 2) / 2
        )
    first = generate(PRESETS["paper"], n_subjects=1, seed=70, n_timepoints=2).A[:, 0]
    np.testing.assert_allclose(first, image.ravel() / np.linalg.norm(image), atol=1e-12)


def test_subjects_come_in_blocks_of_any_size_with_the_same_draws() -> None:
    study = generate(PRESETS["realistic"], n_subjects=7, seed=1, n_timepoints=31, n_basis=25)
    whole = study.subjects()
    assert (whole.shape, whole.dtype) == ((7, 25, 31), np.float32)
    for size in (1, 3, 7, 50):
        blocks = list(study.blocks(size))
        assert len(blocks) == -(-7 // size)
        np.testing.assert_array_equal(np.concatenate(blocks), whole)


def test_the_noise_of_the_realistic_preset_is_half_the_signal() -> None:
    study = generate(PRESETS["realistic"], n_subjects=20, seed=2, n_timepoints=100)
    signal = study.B.T @ study.A @ study.S
    noise = study.subjects() - signal
    assert np.var(noise) * 900 / np.sum(study.A**2) == pytest.approx(0.5, rel=0.02)
    assert generate(PRESETS["paper"], n_subjects=1, seed=2, n_timepoints=5).noise_std == 0.0


def test_a_study_can_be_seen_in_voxels() -> None:
    study = generate(PRESETS["paper"], n_subjects=2, seed=3, n_timepoints=10)
    voxels = study.in_voxels().subjects()
    assert voxels.shape == (2, 900, 10)
    np.testing.assert_allclose(study.B.T @ voxels[1], study.subjects()[1], atol=1e-5)


def test_garch_courses_have_unit_variance_and_their_autocorrelation() -> None:
    S = garch_sources(np.random.default_rng(0), 200, 5, 250, ar=0.4)
    assert (S.shape, S.dtype) == ((200, 5, 250), np.float32)
    assert np.var(S) == pytest.approx(1.0, abs=0.05)
    assert np.mean(S[..., 1:] * S[..., :-1]) / np.var(S) == pytest.approx(0.4, abs=0.02)
    assert np.all(excess_kurtosis(S) > 0.1)
    heavy = garch_sources(np.random.default_rng(0), 200, 5, 250, ar=0.0, innovations="laplace")
    assert np.median(excess_kurtosis(heavy)) > np.median(excess_kurtosis(S))
    weak = garch_sources(np.random.default_rng(0), 200, 5, 250, ar=0.4, alpha=(0.05, 0.10))
    assert np.median(excess_kurtosis(weak)) < np.median(excess_kurtosis(S))


def test_courses_have_no_time_mean() -> None:
    S = generate(PRESETS["realistic"], n_subjects=3, seed=4, n_timepoints=50).S
    np.testing.assert_allclose(S.mean(axis=2), 0.0, atol=1e-6)
