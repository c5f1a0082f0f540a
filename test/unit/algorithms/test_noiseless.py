"""Maps without noise: soft answers, sampling error, and a mirror that ends where noise does.

Belongs to `cape/algorithms/soft_projector.py`.
"""

import numpy as np
import pytest

from cape.algorithms import bagging
from cape.algorithms.bagging import (
    MIN_ORDER_DIRECTIONS,
    bagged,
    sampling_root,
    split_half_of,
    suggested_order,
)
from cape.algorithms.claims import GOOD_COHORT, MOST_HALVED, MOST_PEOPLE, SplitHalf
from cape.algorithms.component_order import above_background
from cape.algorithms.left_right import LeftRight, Mirror, mirrored, mirrored_where_noisy
from cape.algorithms.linalg import smat
from cape.algorithms.pca import FreeSet
from cape.algorithms.soft_projector import MAX_RANK, soft_projector, soft_root
from cape.computations.ica import recipe

D = 30


def noise(seed: int, d: int = D) -> np.ndarray:
    return smat(np.random.default_rng(seed).standard_normal(d * (d + 1) // 2))


def subject(seed: int, n_times: int, signal: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    maps = np.linalg.qr(np.random.default_rng(99).standard_normal((D, signal)))[0]
    Y = 6.0 * maps @ rng.standard_normal((signal, n_times)) + rng.standard_normal((D, n_times))
    return Y - Y.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("n_times", [20, 60, 400])
def test_a_soft_projector_counts_what_stands_above_a_subjects_noise(n_times: int) -> None:
    W = soft_projector(subject(1, n_times))
    values = np.linalg.eigvalsh(W)[::-1]
    assert values[3] > 0.5
    assert values[0] <= 1.0
    assert values[-1] > -1e-12
    assert values[8:].sum() < 1.5
    assert soft_root(subject(1, n_times)).shape[1] <= MAX_RANK


def test_a_subject_without_data_has_no_direction() -> None:
    for Y in (np.zeros((D, 9)), np.full((D, 9), np.nan)):
        assert np.array_equal(soft_projector(Y), np.zeros((D, D)))


def test_the_mirror_ends_where_noise_does() -> None:
    J = np.diag(np.where(np.arange(D) % 2, 1.0, -1.0))
    F = noise(2)
    assert np.abs(mirrored_where_noisy(F, J, 0.0) - F).max() < 1e-12
    assert np.array_equal(mirrored_where_noisy(F, J, 1.5), mirrored(F, J))
    # A difference of left and right far above the noise stays.
    one_sided = np.eye(D)[0] + np.eye(D)[1]
    G = 5.0 * np.outer(one_sided, one_sided)
    kept = mirrored_where_noisy(G + 0.1 * noise(3), J, 0.1)
    assert np.linalg.norm(kept - G) < 0.3 * np.linalg.norm(mirrored(G, J) - G)


def test_the_sampling_error_is_as_large_as_that_of_projectors() -> None:
    rng, n = np.random.default_rng(4), 12
    values = np.linalg.qr(rng.standard_normal((D, D)))[0][:, :5]
    F = values @ np.diag([0.9, 0.8, 0.6, 0.5, 0.2]) @ values.T
    root = sampling_root(F, n)
    drawn = np.mean([np.sum((root @ noise(100 + k) @ root) ** 2) for k in range(400)])
    assert drawn == pytest.approx((np.trace(F) - np.sum(F * F)) / n, rel=0.1)


def test_halves_agree_on_what_people_share() -> None:
    rng = np.random.default_rng(5)
    blobs = np.zeros((D, 3))
    for k in range(3):
        blobs[4 * k : 4 * k + 3, k] = 1.0
    shared = np.linalg.qr(blobs)[0]
    F = np.mean(
        [
            soft_projector(
                shared @ rng.standard_normal((3, 60)) * 5.0 + rng.standard_normal((D, 60))
            )
            for _ in range(20)
        ],
        axis=0,
    )
    bag = bagged(F, None, 6, noise_std=0.0, J=None, n_subjects=20)
    again = np.sort(split_half_of(F, None, bag.C, n_components=bag.C.shape[1], n_subjects=20))
    assert again[-3] > 0.8
    assert again[0] < 0.6


@pytest.mark.parametrize(
    ("found", "said"), [((6, 8, 9, 11, 10, 12, 12, 12), 14), ((1,) * 8, None), ((2, 3) * 4, 6)]
)
def test_the_smallest_number_within_one_of_the_best_is_suggested(found, said, monkeypatch) -> None:
    told = iter(found)
    again = lambda F, basis, C, **_: np.where(np.arange(C.shape[1]) < next(told), 0.9, 0.1)  # noqa: E731
    monkeypatch.setattr(bagging, "split_half_of", again)
    d = MIN_ORDER_DIRECTIONS
    assert suggested_order(np.eye(d), None, n_subjects=20) == said


@pytest.mark.parametrize("planted", [6, 13])
def test_halves_suggest_as_many_components_as_people_share(planted: int) -> None:
    d = MIN_ORDER_DIRECTIONS
    shared = np.kron(np.eye(d // 5), np.full((5, 1), 5**-0.5))[:, :planted]
    F = 0.8 * shared @ shared.T + 0.02 * np.eye(d)
    assert suggested_order(F, None, n_subjects=40) in (planted, planted + 1)
    # Maps that fill the whole space were alike in all halves, so as many as there are were found.
    assert suggested_order(F[1:, 1:], None, n_subjects=40) is None


def test_background_is_shrunk_and_peaks_are_kept() -> None:
    z = np.random.default_rng(6).standard_normal((1000, 1))
    z[:5] += 20.0
    shown = above_background(z)
    assert np.all(shown[:5] > 0.95 * z[:5])
    assert np.std(shown[5:]) < 0.6
    assert np.array_equal(above_background(np.zeros((9, 2))), np.zeros((9, 2)))


def test_words_of_halves_begin_at_what_was_measured() -> None:
    r = np.array([0.9, 0.7, 0.69, 0.5, 0.49])
    J, C = np.diag([1.0, -1.0] * 5), np.eye(10)[:, ::2]
    expected = ("in halves", "in halves", "maybe", "maybe", "")
    assert SplitHalf.of(r, C, J, q=0.0).words == expected
    # Noise at one place in all people was found again, too: 70 of 84 such maps were no network.
    one_sided = C + np.eye(10)[:, 1::2]
    assert SplitHalf.of(r, one_sided, J, q=GOOD_COHORT - 0.01).words == ("",) * 5
    assert SplitHalf.of(r, one_sided, J, q=GOOD_COHORT).words == expected


def test_of_many_people_as_many_are_halved_as_were_measured(monkeypatch) -> None:
    """In 120 people what noise they have in common was found again at r .87."""
    seen = []
    monkeypatch.setattr(
        recipe, "split_half_of", lambda *_, n_subjects, **__: seen.append(n_subjects)
    )
    monkeypatch.setattr(recipe.SplitHalf, "of", lambda *_, **__: None)
    for n_subjects in (10, MOST_HALVED, 400):
        noiseless(n_subjects)
    assert seen == [10, MOST_HALVED, MOST_HALVED]


def test_in_more_people_than_were_measured_nothing_is_said() -> None:
    assert noiseless(MOST_PEOPLE).split_half is not None
    assert noiseless(MOST_PEOPLE + 1).split_half is None


def noiseless(n_subjects: int) -> FreeSet:
    rng = np.random.default_rng(9)
    V = np.linalg.qr(rng.standard_normal((D, 4)))[0]
    J = np.diag(np.where(np.arange(D) % 2, 1.0, -1.0))
    clear = LeftRight(z=9.0, statistic=0.5, null=0.1, null_std=0.1)
    found = recipe.rotated(
        V @ V.T, None, 4, noise_std=0.0, mirror=Mirror(J=J, weighed=J), test=clear, q=0.0,
        rank=4, symmetry="auto", kind="mask", n_subjects=n_subjects,
    )  # fmt: skip
    assert found.claims is None
    return found
