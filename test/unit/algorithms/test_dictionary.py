"""Sparse maps of a mean without noise: networks that overlap, or that tile the brain."""

import numpy as np
import pytest

from cape.algorithms.bagging import bagged
from cape.algorithms.dictionary import Maps, sparse_maps, started_with
from cape.algorithms.left_right import LeftRight, Mirror
from cape.algorithms.scores import best_pairs
from cape.algorithms.soft_projector import soft_projector
from cape.computations.ica.recipe import rotated

D, PEOPLE, N_TIMES = 150, 12, 120


def mean_of(truth: np.ndarray, *, without_mean: bool = False) -> np.ndarray:
    """Return F (D, D) of people with these maps (D, n) in white noise."""
    answers = []
    for m in range(PEOPLE):
        rng = np.random.default_rng([48, m])
        X = truth @ rng.standard_normal((truth.shape[1], N_TIMES))
        X += 0.3 * rng.standard_normal(X.shape)
        if without_mean:
            g = X.mean(axis=0)
            X -= np.outer(X @ g / (g @ g), g)
        answers.append(soft_projector(X - X.mean(axis=1, keepdims=True)))
    return np.mean(answers, axis=0)


def blob(centre: float, width: float) -> np.ndarray:
    return np.exp(-0.5 * ((np.arange(D) - centre) / width) ** 2)


def found(maps: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return |r| of each planted map (D, n) with its partner."""
    r = np.abs(np.corrcoef(truth.T, maps.T)[: truth.shape[1], truth.shape[1] :])
    rows, partner = best_pairs(r)
    return r[rows, partner]


def ica(F: np.ndarray, k: int) -> np.ndarray:
    return bagged(F, None, k, noise_std=0.0, J=None, n_subjects=PEOPLE).C


def refined(F: np.ndarray, n: int, B: np.ndarray | None = None) -> Maps:
    bag = bagged(F, B, started_with(n, len(F)), noise_std=0.0, J=None, n_subjects=PEOPLE)
    return sparse_maps(F, np.eye(D) if B is None else B, bag.C, n, strength=bag.stability)


def overlapping() -> tuple[np.ndarray, np.ndarray]:
    """Return F and its six networks, of which two overlap (r .72)."""
    # Two broad patterns, which all people have, are stronger than the difference of the two.
    truth = np.stack([blob(x, 4.0) for x in (20, 24, 60, 80, 100, 125)], axis=1)
    t = 2.0 * np.pi * np.arange(D) / D
    broad = 0.4 * np.stack([np.sin(t), np.sin(2.0 * t)], axis=1)
    return mean_of(np.concatenate([truth, broad], axis=1)), truth


def test_two_networks_that_overlap_are_two_maps() -> None:
    # Of 13 networks of fmrisim two with r .44 came out as one map, which a dictionary kept apart.
    F, truth = overlapping()
    assert found(ica(F, 6), truth).min() < 0.3
    assert found(refined(F, 6).C, truth).min() > 0.9


CLEAR = LeftRight(z=9.0, statistic=0.5, null=0.1, null_std=0.1)


@pytest.mark.parametrize(
    ("kind", "noise_std", "test", "two"),
    [
        ("mask", 0.0, CLEAR, True),
        ("atlas", 0.0, CLEAR, False),  # measured on voxels only
        ("mask", 0.0, None, False),  # there sparseness is judged
        ("mask", 1e-6, CLEAR, False),  # claims were measured on ICA
    ],
)
def test_the_recipe_refines_maps_of_voxels_without_noise(kind, noise_std, test, two) -> None:
    F, truth = overlapping()
    J = np.eye(D)[::-1]
    maps = rotated(
        F, None, 6, noise_std=noise_std, mirror=Mirror(J=J, weighed=J), test=test, q=0.8,
        rank=6, symmetry="none", kind=kind, n_subjects=PEOPLE,
    )  # fmt: skip
    assert (found(maps.directions, truth).min() > 0.9) == two
    assert maps.directions.shape[1] == 6
    if maps.split_half is not None:
        assert len(maps.split_half.r) == 6


def test_slabs_that_tile_the_brain_keep_the_one_that_the_mean_signal_took() -> None:
    sizes = (10, 12, 14, 15, 16, 18, 20, 45)
    truth = np.repeat(np.eye(len(sizes)), sizes, axis=0)
    F = mean_of(truth, without_mean=True)
    assert found(ica(F, 8), truth).min() < 0.6
    assert found(refined(F, 8).C, truth).min() > 0.9


def test_maps_follow_neither_the_signs_nor_the_order_of_the_start() -> None:
    truth = np.stack([blob(x, 4.0) for x in (20, 30, 80, 110)], axis=1)
    F = mean_of(truth)
    C, strength = ica(F, 6), np.linspace(1.0, 0.9, 6)
    one = sparse_maps(F, np.eye(D), C, 4, strength=strength)
    other = sparse_maps(F, np.eye(D), -C[:, ::-1], 4, strength=strength[::-1])
    assert one.C.std(axis=0) == pytest.approx(np.ones(4))
    assert found(other.C, one.C).min() > 0.999
    assert len(set(one.of.tolist())) == 4


def test_missing_maps_are_the_most_stable_of_the_start() -> None:
    F = mean_of(np.stack([blob(x, 4.0) for x in (30, 110)], axis=1))
    C, strength = ica(F, 6), np.array([0.9, 0.8, 0.2, 0.5, 0.4, 0.3])
    some = sparse_maps(F, np.eye(D), C, 5, strength=strength)
    kept = [
        k for k in range(5) if np.allclose(some.C[:, k], C[:, some.of[k]] / C[:, some.of[k]].std())
    ]
    left = [int(some.of[k]) for k in kept]
    assert len(left) == 3
    assert left == sorted(left, key=lambda k: -strength[k])
    assert min(strength[left]) > min(np.delete(strength, some.of), default=0.0)


def test_maps_stay_in_the_basis() -> None:
    truth = np.stack([blob(x, 6.0) for x in (20, 60, 110)], axis=1)
    B = np.linalg.qr(np.cos(np.pi * np.outer(np.arange(D) + 0.5, np.arange(40)) / D))[0]
    C = refined(B.T @ mean_of(truth) @ B, 3, B).C
    assert C.shape == (40, 3)
    assert found(B @ C, truth).min() > 0.95


def test_a_few_more_components_at_the_start_but_no_more_than_directions() -> None:
    assert [started_with(n, 600) for n in (2, 6, 20, 50)] == [3, 8, 26, 65]
    assert started_with(20, 21) == 21


def test_people_without_data_leave_the_maps_as_they_were() -> None:
    C = np.eye(D)[:, :4]
    some = sparse_maps(np.zeros((D, D)), np.eye(D), C, 3, strength=np.arange(4.0))
    assert some.of.tolist() == [3, 2, 1]
    assert np.allclose(some.C, C[:, some.of] / C.std(axis=0)[some.of])


def test_of_equal_maps_the_more_stable_are_kept() -> None:
    F = mean_of(np.stack([blob(x, 4.0) for x in (30, 75, 120)], axis=1))
    C = np.stack([blob(x, 4.0) for x in (30, 75, 120)], axis=1)
    for weak in range(3):
        strength = np.where(np.arange(3) == weak, 0.4, 0.9)
        assert weak not in sparse_maps(F, np.eye(D), C, 2, strength=strength).of
