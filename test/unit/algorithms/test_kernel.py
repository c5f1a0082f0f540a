"""The kernel of a mask taken apart by the modes of its box, beside the plain forms."""

import numpy as np
import pytest

from cape.algorithms import kernel

MM = (9.0, 10.0, 8.0)


@pytest.fixture(scope="module")
def mask() -> np.ndarray:
    """A lopsided ball with a hole: no symmetry makes two eigenvalues equal."""
    x, y, z = np.indices((13, 12, 11))
    ball = (x - 6) ** 2 / 33 + (y - 5.5) ** 2 / 30 + (z - 5) ** 2 / 26 < 1
    return ball & ((x - 8) ** 2 + (y - 3) ** 2 + (z - 6) ** 2 > 3)


def dense(mask: np.ndarray, sigma_mm: float) -> np.ndarray:
    at = np.argwhere(mask) * np.array(MM)
    apart = ((at[:, None] - at[None]) ** 2).sum(axis=2)
    return np.exp(-apart / (2 * sigma_mm**2))


def test_columns_are_eigenvectors_of_the_kernel_over_the_voxels(mask) -> None:
    K = dense(mask, 30.0)
    U = kernel.kernel_mask(mask, MM, 60, 30.0)
    np.testing.assert_allclose(U.T @ U, np.eye(60), atol=1e-12)
    values = np.linalg.eigvalsh(K)[::-1][:60]
    # Rounding is that of the largest eigenvalue: 1e-13 of it.
    np.testing.assert_allclose(K @ U, U * values, atol=1e-13 * values[0] * len(K))


def test_sums_over_one_axis_after_the_other_are_products_over_voxels(mask) -> None:
    """F'F and F v were made of F, 2,000 numbers a voxel: ten seconds of every `join`."""
    axes = tuple(kernel._gaussian(n, mm / 30.0) for n, mm in zip(mask.shape, MM, strict=True))
    modes = kernel._modes_of(mask.tobytes(), mask.shape, tuple(K.tobytes() for K in axes), 1e-6)
    x, y, z = (v[at] for v, at in zip(modes.axes, np.nonzero(mask), strict=True))
    a, b, c = modes.index.T
    F = x[:, a] * y[:, b] * z[:, c]
    np.testing.assert_allclose(kernel._gram(mask, modes.axes, modes.index), F.T @ F, atol=1e-13)
    v = np.random.default_rng(3).standard_normal((len(modes.root), 40))
    np.testing.assert_allclose(modes._times(mask, v), (F * modes.root) @ v, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        (modes.vectors * modes.values) @ modes.vectors.T,
        np.outer(modes.root, modes.root) * (F.T @ F),
        atol=1e-12 * modes.values[0],
    )


def test_a_basis_of_all_that_a_mask_carries_has_no_column_of_rounding() -> None:
    """One column more than asked is made, to compare; here it would be noise, or not a number."""
    # A box has more modes than a mask in it has voxels.
    mask = np.ones((3, 3, 2), dtype=bool)
    mask[0, 0, 0] = mask[2, 1, 1] = False
    U = kernel.kernel_mask(mask, (40.0, 40.0, 40.0), 16, 30.0)
    np.testing.assert_allclose(U.T @ U, np.eye(16), atol=1e-12)


def test_a_column_alone_in_its_group_gets_a_sign_and_equal_ones_a_rotation() -> None:
    rng = np.random.default_rng(8)
    U = np.linalg.qr(rng.standard_normal((50, 5)))[0]
    values = np.array([5.0, 4.0, 3.0, 3.0, 1.0])
    turn = np.eye(5)
    turn[2:4, 2:4] = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    turned = U @ turn * np.array([-1.0, 1.0, 1.0, 1.0, -1.0])
    np.testing.assert_allclose(
        kernel.settled(U, values), kernel.settled(turned, values), atol=1e-12
    )
    assert abs(kernel.settled(U, values).T @ U)[[0, 1, 4], [0, 1, 4]] == pytest.approx(1.0)
