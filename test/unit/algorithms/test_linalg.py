"""Isometric vectors, matrix functions, clipping."""

import numpy as np
import pytest
from scipy.linalg import expm, logm

from cape.algorithms import linalg
from cape.algorithms.estimators import aligned


def symmetric(rng: np.random.Generator, *shape: int) -> np.ndarray:
    a = rng.standard_normal(shape)
    return a + np.swapaxes(a, -1, -2)


def test_svec_keeps_the_norm_and_smat_undoes_it_for_stacks() -> None:
    a = symmetric(np.random.default_rng(0), 3, 2, 7, 7)
    v = linalg.svec(a)
    assert v.shape == (3, 2, 28)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-1), np.linalg.norm(a, axis=(-2, -1)))
    np.testing.assert_allclose(linalg.smat(v), a, atol=1e-14)


def test_svec_lists_the_diagonal_then_the_upper_rows_times_root_two() -> None:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    expected = [1.0, 4.0, 6.0, 2 * np.sqrt(2), 3 * np.sqrt(2), 5 * np.sqrt(2)]
    np.testing.assert_allclose(linalg.svec(a), expected)


def test_independent_noise_on_svec_is_goe_noise() -> None:
    noise = linalg.smat(np.random.default_rng(1).standard_normal((20_000, 6)))
    assert np.std(noise[:, 0, 0]) == pytest.approx(1.0, abs=0.03)
    assert np.std(noise[:, 0, 1]) == pytest.approx(np.sqrt(0.5), abs=0.03)


def test_a_length_that_is_not_triangular_is_refused() -> None:
    with pytest.raises(ValueError, match="no svec"):
        linalg.smat(np.zeros(7))


def test_skew_puts_the_vector_above_the_diagonal() -> None:
    e = linalg.skew(np.array([1.0, 2.0, 3.0]), 3)
    np.testing.assert_array_equal(e, [[0, 1, 2], [-1, 0, 3], [-2, -3, 0]])


def test_top_eigenspace_orders_by_signed_value_not_by_magnitude() -> None:
    q = np.linalg.qr(np.random.default_rng(2).standard_normal((4, 4)))[0]
    values, vectors = linalg.top_eigenspace((q * [1.0, -9.0, 3.0, 0.5]) @ q.T)
    np.testing.assert_allclose(values, [3.0, 1.0, 0.5, -9.0], atol=1e-12)
    np.testing.assert_allclose(np.abs(q.T @ vectors)[2, 0], 1.0)
    peaks = vectors[np.argmax(np.abs(vectors), axis=0), np.arange(4)]
    assert np.all(peaks > 0)


def test_matrix_functions_agree_with_scipy() -> None:
    rng = np.random.default_rng(3)
    s = symmetric(rng, 6, 6)
    np.testing.assert_allclose(linalg.sym_exp(s), expm(s), rtol=1e-10, atol=1e-10)
    positive = s @ s + np.eye(6)
    np.testing.assert_allclose(linalg.sym_log(positive, 1e-9), logm(positive), atol=1e-11)
    stack = np.stack([positive, 2 * positive])
    np.testing.assert_allclose(linalg.sym_log(stack, 1e-9)[1], logm(2 * positive), atol=1e-11)
    e = linalg.skew(rng.standard_normal(15), 6)
    np.testing.assert_allclose(linalg.skew_exp(e), expm(e), atol=1e-13)


def test_the_logarithm_floors_eigenvalues() -> None:
    log = linalg.sym_log(np.diag([1.0, 1e-30, -2.0]), 1e-4)
    np.testing.assert_allclose(np.sort(np.linalg.eigvalsh(log)), [np.log(1e-4)] * 2 + [0.0])


def test_the_polar_factor_is_orthogonal_and_nearest() -> None:
    rng = np.random.default_rng(4)
    rotation = np.linalg.qr(rng.standard_normal((5, 5)))[0]
    s = symmetric(rng, 5, 5)
    np.testing.assert_allclose(linalg.polar((s @ s + np.eye(5)) @ rotation), rotation, atol=1e-12)


@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("at", [0, 5, 21])
def test_working_arrays_begin_where_a_line_of_the_cache_does(kind: str, at: int) -> None:
    held = [aligned(n, kind, at=at) for n in range(1, 200)]  # wherever the allocator puts them
    for n, array in enumerate(held, start=1):
        assert array.shape == (n,)
        assert not array.any()
        assert (array.ctypes.data + at * array.itemsize) % 64 == 0
