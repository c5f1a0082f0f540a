"""Bagged maps: noise drawn again on top of a release, on the 10 mm mask."""

import numpy as np
import pytest

from cape.algorithms import bagging
from cape.algorithms.bagging import bagged, sampled_rows
from cape.algorithms.linalg import smat
from cape.algorithms.scores import match_maps
from cape.computations import load
from cape.data.space import grid_of, mask_space
from cape.lab.synthetic.resting import two_sided_study
from cape.settings.resolved import resolve
from cape.space.public_basis import public_basis

D, R, G = 64, 15, 100.0
NOISE_STD = float(np.sqrt(2 * R)) / G


def noise(seed: int, std: float = NOISE_STD) -> np.ndarray:
    return smat(std * np.random.default_rng(seed).standard_normal(D * (D + 1) // 2))


@pytest.fixture(scope="module")
def brains() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean projector of 20 people, the basis, and the planted maps."""
    given = {"epsilon": 1.0, "delta": 1e-5, "mask": "MNI152-10mm", "n_components": R}
    config = load("capegica").config.from_input(given)
    space = mask_space(config)
    B = public_basis(resolve(config), space, D)
    study = two_sided_study(grid_of(space), 20, seed=78_001)
    F = np.zeros((D, D))
    for m in range(20):
        Y = B.T @ study.subject(m, 120).astype(float)
        U = np.linalg.svd(Y - Y.mean(axis=1, keepdims=True), full_matrices=False)[0][:, :R]
        F += U @ U.T / 20
    return F, B, study.maps


def test_bagged_maps_are_nearer_to_the_networks_than_those_of_the_release_alone(brains) -> None:
    """Of six draws of the noise of G 100: .02 to .03 on average, as on real brains."""
    F, B, truth = brains
    gains = []
    for seed in range(6):
        released = F + noise(seed)
        bag = bagged(released, B, R, noise_std=NOISE_STD, J=None)
        once = bagged(released, B, R, noise_std=0.0, J=None)
        gains.append(match_maps(B @ bag.C, truth).mean - match_maps(B @ once.C, truth).mean)
    assert np.mean(gains) > 0.01


def test_maps_have_unit_deviation_and_their_stability_follows_the_noise(brains) -> None:
    F, B, _ = brains
    loud, quiet = (
        bagged(F + noise(1), B, R, noise_std=std, J=None) for std in (NOISE_STD, NOISE_STD / 20)
    )
    np.testing.assert_allclose(np.std(B @ loud.C, axis=0), 1.0)
    assert 0.0 < loud.stability.min() <= loud.stability.max() < 1.0
    assert quiet.stability.mean() > loud.stability.mean() + 0.1


def test_maps_do_not_hang_on_rounding(brains) -> None:
    """Before the shift a matrix moved by 1e-13 gave another worst map, r .30."""
    F, B, _ = brains
    released = F + noise(2)
    one, other = (
        bagged(moved, B, R, noise_std=NOISE_STD, J=None)
        for moved in (released, released + 1e-13 * noise(3, 1.0))
    )
    assert one.converged
    assert np.abs(match_maps(B @ other.C, B @ one.C).correlation).min() > 1.0 - 1e-6
    np.testing.assert_allclose(np.sort(other.stability), np.sort(one.stability), atol=1e-6)


def test_without_noise_there_is_nothing_to_draw(brains) -> None:
    F, B, _ = brains
    bag = bagged(F, B, R, noise_std=0.0, J=None)
    assert np.array_equal(bag.stability, np.ones(R))
    again = bagged(F, B, R, noise_std=0.0, J=None)
    assert np.array_equal(bag.C, again.C)


def test_of_many_features_every_kth_one_decides(brains, monkeypatch) -> None:
    F, B, _ = brains
    monkeypatch.setattr(bagging, "MAX_SAMPLED_ROWS", 1100)
    few = sampled_rows(B, D)
    assert np.array_equal(few, B[::2])
    assert np.array_equal(sampled_rows(None, 5), np.eye(5))
    bag = bagged(F + noise(4), B, R, noise_std=NOISE_STD, J=None)
    monkeypatch.undo()
    whole = bagged(F + noise(4), B, R, noise_std=NOISE_STD, J=None)
    assert match_maps(B @ bag.C, B @ whole.C).mean > 0.95
