"""Kernel basis, spatial components and their surrogates, private dual regression.

Belongs to `cape/algorithms/spatial.py`.
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from cape.algorithms import basis, kernel, spatial, templates
from cape.algorithms.scores import match_maps
from cape.algorithms.spatial import kurtosis, leading, sparseness, spatial_ica
from cape.errors import ConfigError
from cape.lab.synthetic.generators import PRESETS, blob_maps


def ball(edge: int = 9) -> np.ndarray:
    axes = np.indices((edge, edge + 1, edge)).astype(float)
    centre = np.array(axes.shape[1:]).reshape(3, 1, 1, 1) / 2 - 0.5
    return ((axes - centre) ** 2).sum(0) <= (edge / 2) ** 2


def test_the_kernel_basis_is_nested_and_does_not_depend_on_the_order_of_twins() -> None:
    """A ball has eigenvalues that coincide: sign and rotation must still be one and the same."""
    mask = ball()
    wide, narrow = (kernel.kernel_mask(mask, (8.0,) * 3, d) for d in (30, 20))
    values = np.einsum("ij,ij->j", wide, kernel.smooth(mask, (8.0,) * 3, wide))
    assert (np.abs(np.diff(values)) < 1e-6 * values[:-1]).any()  # twins are there
    whole = int(np.argmax(values[15:19] / values[16:20])) + 16
    assert np.allclose(wide[:, :whole], narrow[:, :whole], atol=1e-6)


def test_the_kernel_basis_of_an_image_is_orthonormal_nested_and_smooth() -> None:
    B = kernel.kernel_image((30, 20), 60)
    assert np.abs(B.T @ B - np.eye(60)).max() < 1e-12
    assert np.array_equal(B[:, :25], kernel.kernel_image((30, 20), 25))
    strength = np.einsum("ij,ij->j", B, kernel.smooth_image((30, 20), B))
    assert (np.diff(strength) < 1e-9).all()
    with pytest.raises(ConfigError, match="n_basis=601"):
        kernel.kernel_image((30, 20), 601)


def test_a_basis_led_by_templates_holds_them_whatever_its_size() -> None:
    T = blob_maps(np.random.default_rng(3), 30, 4, PRESETS["paper"])
    plain = kernel.kernel_image((30, 30), 40)
    B, small = basis.led_by(T, plain), basis.led_by(T, plain[:, :10])
    assert np.abs(B.T @ B - np.eye(40)).max() < 1e-10
    assert np.allclose(B @ (B.T @ T), T)
    assert np.allclose(B[:, :10], small)
    with pytest.raises(ConfigError, match="n_basis=4"):
        basis.led_by(T, plain[:, :4])


def planted(n: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return sparse maps, a basis, and the subspace of the maps in it, mixed."""
    rng = np.random.default_rng(8)
    A = blob_maps(rng, 30, n, PRESETS["paper"])
    B = kernel.kernel_image((30, 30), 100)
    V = np.linalg.qr(B.T @ A @ rng.standard_normal((n, n)))[0]
    return A, B, V


def test_spatial_ica_finds_sparse_maps_from_any_mixture_of_them() -> None:
    A, B, V = planted()
    found = spatial_ica(B @ V)
    assert found.converged
    assert match_maps(B @ V @ found.mixing, A).mean > 0.9
    maps = B @ V @ found.mixing
    assert np.allclose(np.cov(maps.T, bias=True), np.eye(8), atol=1e-8)
    again = spatial_ica(B @ V @ np.random.default_rng(1).standard_normal((8, 8)))
    turned = B @ V @ np.linalg.lstsq(B @ V, B @ V, rcond=None)[0] @ found.mixing
    assert again.converged
    assert match_maps(turned, maps).mean == pytest.approx(1.0)


def shaken(signal: float, n_maps: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return maps of a noisy released mean, and those of the mean as another host may hold it."""
    # Moved by 1e-13, with other signs of eigenvectors.
    rng = np.random.default_rng(seed)
    _, B, V = planted()
    noise = rng.standard_normal((2, 100, 100))
    F, moved = noise + noise.swapaxes(1, 2)
    F += signal * V @ V.T
    signs = rng.choice([-1.0, 1.0], n_maps)
    return B @ leading(F, n_maps), B @ (leading(F + 1e-13 * moved, n_maps) * signs)


def settled_agreement(maps: np.ndarray, moved: np.ndarray, score: spatial.Score) -> float:
    """Return the smallest |r| of the components of two sets with each other; 0 if one moves."""
    one, other = (spatial_ica(m, score=score) for m in (maps, moved))
    r = match_maps(moved @ other.mixing, maps @ one.mixing).correlation
    return float(np.abs(r).min()) if one.converged and other.converged else 0.0


@pytest.mark.parametrize("signal", [0.0, 10.0, 40.0])
@pytest.mark.parametrize("n_maps", [5, 20])
def test_a_rotation_by_skewness_settles_and_the_last_bits_of_a_mean_do_not_choose_its_maps(
    signal: float, n_maps: int
) -> None:
    # Two of three settled before, and maps of a mean moved by 1e-13 agreed with themselves by .3:
    # the start was a singular vector of a matrix whose singular values are all 1.
    for seed in range(6):
        assert settled_agreement(*shaken(signal, n_maps, seed), "skewness") > 1.0 - 1e-6


def test_a_rotation_by_tanh_that_settles_does_not_hang_on_the_last_bits_of_a_mean() -> None:
    for seed in range(6):
        assert settled_agreement(*shaken(400.0, 8, seed), "tanh") > 1.0 - 1e-6


def test_dependent_maps_are_left_as_they_are() -> None:
    maps = np.ones((40, 3)) * np.arange(3) + 0.0
    assert not spatial_ica(maps).converged
    assert np.array_equal(spatial_ica(maps).mixing, np.eye(3))


def test_sparse_maps_fit_and_smooth_noise_does_not() -> None:
    _, B, V = planted()
    judged = sparseness(B, V, spatial_ica(B @ V).mixing)
    assert judged.fits
    assert judged.kurtosis > judged.surrogate + 5 * judged.surrogate_std
    rng = np.random.default_rng(4)
    fits = []
    for _ in range(2):
        weight = np.exp(-0.02 * np.arange(100))
        noise = np.linalg.qr(weight[:, None] * rng.standard_normal((100, 8)))[0]
        fits.append(sparseness(B, noise, spatial_ica(B @ noise).mixing).fits)
    assert not any(fits)


def test_surrogates_are_turned_once_for_the_same_subspace_and_are_those_of_the_plain_form(
    monkeypatch,
) -> None:
    _, B, V = planted()
    mixing = spatial_ica(B @ V).mixing
    turned: list[int] = []
    plain = spatial_ica

    def counted(maps, **named):
        turned.append(1)
        return plain(maps, **named)

    monkeypatch.setattr(spatial, "spatial_ica", counted)
    spatial._surrogates.cache_clear()
    first, again = (sparseness(B, V, mixing) for _ in range(2))
    assert (len(turned), again) == (spatial.N_SURROGATES, first)
    assert sparseness(B, V[:, :-1], mixing[:-1, :-1]) != first  # another subspace, other surrogates
    # The plain form, to the bit.
    size, rng = np.sqrt(np.sum(V**2, axis=1)), np.random.default_rng(spatial._SURROGATE_SEED)
    null = []
    for _ in range(spatial.N_SURROGATES):
        maps = B @ np.linalg.qr(size[:, None] * rng.standard_normal(V.shape))[0]
        null.append(float(np.median(kurtosis(maps @ plain(maps).mixing))))
    assert first.surrogate == float(np.mean(null))
    assert first.surrogate_std == float(np.std(null, ddof=1))


def test_kurtosis_is_zero_for_a_gaussian_and_minus_two_for_a_coin() -> None:
    values = np.random.default_rng(0).standard_normal((200_000, 1))
    assert kurtosis(values)[0] == pytest.approx(0.0, abs=0.05)
    assert kurtosis(np.sign(values))[0] == pytest.approx(-2.0, abs=1e-3)


def regression(private: bool = True) -> templates.TemplateRegression:
    rng = np.random.default_rng(2)
    T = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    known = templates.TemplateBasis.of(T, np.eye(12))
    return templates.TemplateRegression(n_templates=3, private=private, basis=known)


def stack(n: int, T: int = 60, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = np.random.default_rng(9).standard_normal((12, 3))
    courses = rng.laplace(size=(n, 3, T))
    noise = 0.3 * rng.standard_normal((n, 12, T))
    return (mixing @ courses + noise).astype(np.float32)


def test_every_answer_depends_on_its_subject_alone_and_is_in_the_ball() -> None:
    one = regression()
    query, subjects = one.query(one.start(12)), stack(6)
    together = query.answer(subjects)
    alone = np.concatenate([query.answer(subjects[m : m + 1]) for m in range(6)])
    assert np.array_equal(together, alone)
    assert query.size == 36
    assert query.clip == pytest.approx(0.3 * np.sqrt(3))
    assert (np.linalg.norm(together, axis=1) <= query.clip * (1 + 1e-12)).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0, 1e38])
def test_a_subject_that_cannot_be_regressed_is_the_zero_vector_or_clipped(wrong: float) -> None:
    one = regression()
    subjects = stack(3)
    subjects[1] = wrong
    answers = one.query(one.start(12)).answer(subjects)
    assert not answers[1].any()
    assert answers[0].any()
    assert answers[2].any()


def test_scale_and_level_of_a_subject_do_not_matter() -> None:
    one = regression()
    answer = one.query(one.start(12)).answer
    centred = stack(2) - stack(2).mean(axis=2, keepdims=True)
    assert np.allclose(answer(centred), answer(1000.0 * centred), atol=1e-5)


@pytest.mark.parametrize(("K", "gain"), [(20, 0.0), (21, 0.05)])
def test_the_ridge_of_many_templates_helps_where_volumes_are_few(K: int, gain: float) -> None:
    """Nothing changes up to 20 templates."""
    rng = np.random.default_rng(4)
    own = np.linalg.qr(rng.standard_normal((60, K)))[0]
    data = own @ rng.standard_normal((K, K + 4)) + 0.2 * rng.standard_normal((60, K + 4))
    near = own + 0.05 * rng.standard_normal(own.shape)

    def likeness(share: float) -> float:
        with mock.patch.object(templates, "RIDGE_OF_MANY", share):
            maps = templates.regressed(data[None], near)[0]
        return float(np.mean(np.abs(np.sum(maps * own, axis=0))))

    more = likeness(templates.RIDGE_OF_MANY) - likeness(templates.RIDGE)
    assert more > gain if gain else more == 0.0


def test_without_data_the_maps_are_the_centre_and_noise_is_shrunk_away() -> None:
    one = regression()
    start = one.start(12)
    assert np.array_equal(start.maps, start.centre)
    noise = 0.05 * np.random.default_rng(3).standard_normal(36)
    after = one.step(start, noise, 0.05)
    assert after.released
    assert np.mean(after.kept) < 0.3
    assert after.kept.count(0.0) >= 1  # at least one column is taken for noise entirely
    strong = one.step(start, 20 * noise, 0.05)
    assert min(strong.kept) > 0.9
    assert np.allclose(strong.maps, strong.centre + strong.evidence)
