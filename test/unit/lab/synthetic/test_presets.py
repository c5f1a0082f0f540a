"""Every preset of the matrices has the one property that it is named for, `realistic` beside it."""

from __future__ import annotations

import numpy as np
import pytest

from cape.algorithms.scores import match_maps
from cape.lab.synthetic.generators import Study, generate
from cape.lab.synthetic.presets import PRESETS

M, R, T = 60, 6, 200


def study(name: str, **sizes: int) -> Study:
    given = {"n_subjects": M, "n_components": R, "n_timepoints": T, "n_basis": 25, **sizes}
    return generate(PRESETS[name], seed=77, **given)


def pooled(S: np.ndarray) -> np.ndarray:
    """Courses (R, M T) at unit variance in every subject."""
    return (S / S.std(axis=2, keepdims=True)).transpose(1, 0, 2).reshape(S.shape[1], -1)


def kurtosis(S: np.ndarray) -> np.ndarray:
    return np.mean(pooled(S) ** 4, axis=1) - 3.0


def volatility(S: np.ndarray) -> np.ndarray:
    """Autocorrelation of the power of the innovations at lag 1."""
    e = S[..., 1:] - 0.4 * S[..., :-1]
    power = e**2 - np.mean(e**2, axis=2, keepdims=True)
    return np.mean(power[..., 1:] * power[..., :-1], axis=(0, 2)) / np.mean(power**2, axis=(0, 2))


def test_weak_volatility_is_weaker_and_stationary_courses_have_none() -> None:
    by_name = {name: volatility(study(name).S) for name in ("realistic", "weak", "gaussian")}
    assert np.median(by_name["realistic"]) > 2 * np.median(by_name["weak"])
    assert np.median(by_name["weak"]) > 0.03
    # 12,000 samples a source: its standard error is .009, and nothing is left of the volatility.
    assert np.max(np.abs(by_name["gaussian"])) < 0.045
    assert np.max(np.abs(kurtosis(study("gaussian").S))) < 0.2


def test_gaussian_courses_of_equal_amplitude_have_nothing_to_separate() -> None:
    # 300 subjects: the fourth cumulant of a turned pair is that of the pair, up to chance.
    S = study("gaussian", n_subjects=300).S
    assert PRESETS["gaussian"].heterogeneity == 0.0
    amplitudes = S.std(axis=2)
    assert np.max(np.abs(np.log(amplitudes))) < 0.45
    other = study("gaussian-het", n_subjects=300).S
    assert np.std(np.log(other.std(axis=2))) == pytest.approx(0.3, abs=0.05)
    assert np.max(np.abs(kurtosis(other))) < 0.2


def test_heavier_tails_are_heavier() -> None:
    assert np.median(kurtosis(study("heavy").S)) > 2 * np.median(kurtosis(study("realistic").S))


def test_a_third_of_the_sub_gaussian_sources_has_light_tails() -> None:
    k = kurtosis(study("sub-gaussian").S)
    assert np.all(k[:2] < -0.5)  # a uniform one has -1.2, filtered by AR(.4) -.87
    assert np.all(k[2:] > 0.0)
    np.testing.assert_array_equal(study("sub-gaussian").S[:, 3], study("realistic").S[:, 3])


def test_neighbours_correlate_and_nobody_else_does() -> None:
    together = np.corrcoef(pooled(study("correlated").S))
    pairs = np.kron(np.eye(R // 2), np.ones((2, 2))) - np.eye(R)
    np.testing.assert_allclose(together[pairs == 1], 0.3, atol=0.06)
    assert np.max(np.abs(together[(pairs == 0) & ~np.eye(R, dtype=bool)])) < 0.06
    assert study("correlated").S.dtype == np.float32


def test_jitter_moves_networks_by_about_a_pixel_in_every_subject() -> None:
    made = study("jitter")
    assert made.differences is not None
    own = np.array([made.differences.maps_of(m) for m in range(M)])
    row, column = np.indices((30, 30)).reshape(2, -1)
    weight = own / own.sum(axis=1, keepdims=True)
    places = np.stack([np.einsum("d,mdr->mr", axis, weight) for axis in (row, column)])
    # A place is the centre of mass; the border eats a little of it.
    assert np.median(places.std(axis=1)) == pytest.approx(1.0, abs=0.2)
    assert match_maps(own.mean(axis=0), made.A).mean > 0.95
    np.testing.assert_array_equal(own[5], made.differences.maps_of(5))


def test_random_fields_are_smooth_and_not_sparse() -> None:
    fields, blobs = (study(name, n_components=20).A for name in ("fields", "realistic"))

    def tails(A: np.ndarray) -> np.ndarray:
        z = (A - A.mean(axis=0)) / A.std(axis=0)
        return np.mean(z**4, axis=0) - 3.0

    # A field of this smoothness has about 20 independent patches: its own kurtosis is wide.
    assert np.median(tails(fields)) < 1.0
    assert np.median(tails(blobs)) > 5.0
    image = fields[:, 0].reshape(30, 30)
    assert np.corrcoef(image[1:].ravel(), image[:-1].ravel())[0, 1] > 0.8


def test_lengths_differ_four_times_and_every_subject_ends_at_its_own() -> None:
    made = study("lengths", n_subjects=200, n_timepoints=100)
    assert made.lengths is not None
    assert (made.lengths.min(), made.lengths.max()) == (40, 160)
    for m, subject in enumerate(made.each()):
        n = made.lengths[m]
        assert subject.shape == (25, n)
        np.testing.assert_allclose(made.S[m, :, :n].mean(axis=1), 0.0, atol=1e-6)
        assert np.all(made.S[m, :, n:] == 0.0)
        assert np.all(made.S[m, :, n - 1] != 0.0)


def test_smooth_courses_and_noise_are_as_their_names_say() -> None:
    S = study("smooth-courses").S
    assert np.mean(S[..., 1:] * S[..., :-1]) / np.mean(S**2) == pytest.approx(0.8, abs=0.03)
    ratio = study("noisy").noise_std / study("realistic").noise_std
    assert ratio == pytest.approx(np.sqrt(3.0))
    signal = study("noisy").B.T @ study("noisy").A @ study("noisy").S
    noise = study("noisy").subjects() - signal
    assert np.var(noise) * 900 / np.sum(study("noisy").A ** 2) == pytest.approx(1.5, rel=0.02)


def test_sites_have_gains_and_an_artefact_of_their_own() -> None:
    made = study("sites")
    assert made.differences is not None
    own = [made.differences.maps_of(m) for m in (0, 14, 15, 59)]
    np.testing.assert_array_equal(own[0], own[1])  # the first of four sites has 15 subjects
    assert np.std(np.log(np.linalg.norm(own[0], axis=0) / np.linalg.norm(own[2], axis=0))) > 0.1
    added = [made.differences.artefacts(m, T) for m in (0, 14, 59)]
    first = [np.linalg.svd(a)[0][:, 0] for a in added]
    assert abs(first[0] @ first[1]) == pytest.approx(1.0)
    assert abs(first[0] @ first[2]) < 0.9
    assert np.sum(added[0] ** 2) / T == pytest.approx(0.3 * np.sum(made.A**2), rel=0.5)
    assert np.linalg.matrix_rank(added[0]) == 1


def test_two_volumes_of_a_hundred_are_spikes() -> None:
    made = study("spikes")
    assert made.differences is not None
    added = np.array([made.differences.artefacts(m, T) for m in range(M)])
    hit = np.any(added != 0.0, axis=1)
    # 12,000 volumes: 5 standard errors on each side.
    assert abs(np.mean(hit) - 0.02) < 5 * np.sqrt(0.02 * 0.98 / hit.size)
    norms = np.linalg.norm(added, axis=1)[hit]
    np.testing.assert_allclose(norms, 5.0 * np.linalg.norm(made.A))
    whole, signal = made.subjects(), made.B.T @ made.A @ made.S
    quiet = (whole - signal).transpose(0, 2, 1)[~hit]
    assert np.std(quiet) == pytest.approx(made.noise_std, rel=0.02)


def test_a_third_of_the_networks_lies_elsewhere_in_a_subgroup() -> None:
    made = study("subgroups")
    assert made.differences is not None
    apart = [m for m in range(M) if made.differences.in_subgroup(m)]
    assert len(apart) == round(0.3 * M)
    own, others = made.differences.maps_of(apart[0]), made.differences.maps_of(0)
    np.testing.assert_array_equal(others, made.A)
    moved = np.any(own != made.A, axis=0)
    np.testing.assert_array_equal(np.flatnonzero(moved), [0, 3])
    np.testing.assert_allclose(np.linalg.norm(own, axis=0), np.linalg.norm(made.A, axis=0))
    # Subjects of both kinds are seen in the data, through the basis.
    signal = np.linalg.lstsq(made.B.T @ own, made.subjects()[apart[0]], rcond=None)[0]
    r = np.corrcoef(signal[0], made.S[apart[0], 0])[0, 1]
    assert r > 0.8


@pytest.mark.parametrize("name", ["jitter", "sites", "spikes", "subgroups"])
def test_subjects_that_differ_come_in_blocks_of_any_size(name: str) -> None:
    made = study(name, n_subjects=7, n_timepoints=30)
    whole = made.subjects()
    assert whole.dtype == np.float32
    for size in (1, 3):
        np.testing.assert_array_equal(np.concatenate(list(made.blocks(size))), whole)
    # One difference from `realistic`: sources and true maps are the same.
    plain = study("realistic", n_subjects=7, n_timepoints=30)
    np.testing.assert_array_equal(made.S, plain.S)
    np.testing.assert_array_equal(made.A, plain.A)
    assert not np.allclose(whole, plain.subjects())
