"""Public bases: orthonormal, nested, unique."""

import numpy as np
import pytest

from cape.algorithms import basis
from cape.errors import ConfigError
from cape.lab.synthetic.generators import PRESETS, blob_maps
from support.closed_forms import map_energy


def ball() -> np.ndarray:
    x, y, z = np.indices((12, 11, 10)) - np.array([5.5, 5.0, 4.5])[:, None, None, None]
    return x**2 + y**2 + 1.3 * z**2 < 22


def test_the_image_basis_is_orthonormal_and_nested() -> None:
    B = basis.dct_image((30, 30), 144)
    np.testing.assert_allclose(B.T @ B, np.eye(144), atol=1e-13)
    np.testing.assert_array_equal(basis.dct_image((30, 30), 100), B[:, :100])


def test_a_square_number_of_image_columns_are_the_products_of_the_lowest_frequencies() -> None:
    i = np.arange(6) + 0.5
    axis = np.cos(np.pi * np.outer(i, np.arange(3)) / 6)
    axis /= np.linalg.norm(axis, axis=0)
    products = np.kron(axis, axis)
    overlap = np.abs(products.T @ basis.dct_image((6, 6), 9))
    np.testing.assert_allclose(np.sort(overlap.max(axis=0)), np.ones(9))


def test_the_image_basis_keeps_the_energy_of_blobs() -> None:
    kept = [
        map_energy(
            basis.dct_image((30, 30), 100),
            blob_maps(np.random.default_rng(1070), 30, 20, PRESETS[name]),
        )
        for name in ("paper", "realistic")
    ]
    assert kept == pytest.approx([0.979, 0.993], abs=0.006)


def test_an_image_need_not_be_square() -> None:
    B = basis.dct_image((5, 8), 40)
    np.testing.assert_allclose(B.T @ B, np.eye(40), atol=1e-13)


def test_the_mask_basis_is_orthonormal_and_nested() -> None:
    B = basis.dct_mask(ball(), 90)
    assert B.shape == (np.count_nonzero(ball()), 90)
    np.testing.assert_allclose(B.T @ B, np.eye(90), atol=1e-12)
    np.testing.assert_allclose(basis.dct_mask(ball(), 40), B[:, :40], atol=1e-12)
    np.testing.assert_allclose(B[:, 0], 1 / np.sqrt(len(B)), atol=1e-12)


def test_the_mask_basis_follows_the_recipe_column_by_column() -> None:
    mask = np.zeros((9, 7, 8), dtype=bool)
    mask[2:8, 1:6, 3:8] = True
    mask[2, 1, 3] = False
    voxels = np.argwhere(mask) - [2, 1, 3]
    triples = sorted(
        ((a, b, c) for a in range(6) for b in range(5) for c in range(5)),
        key=lambda f: (round((f[0] / 6) ** 2 + (f[1] / 5) ** 2 + (f[2] / 5) ** 2, 12), *f),
    )
    columns: list[np.ndarray] = []
    for a, b, c in triples[:12]:
        i, j, k = (voxels + 0.5).T
        column = np.cos(np.pi * a * i / 6) * np.cos(np.pi * b * j / 5) * np.cos(np.pi * c * k / 5)
        for earlier in columns:  # Gram-Schmidt: QR with a positive diagonal
            column = column - earlier * (earlier @ column)
        columns.append(column / np.linalg.norm(column))
    np.testing.assert_allclose(basis.dct_mask(mask, 12), np.stack(columns, axis=1), atol=1e-12)


def test_the_mask_basis_does_not_see_where_the_box_lies() -> None:
    moved = np.pad(ball(), ((3, 1), (0, 2), (5, 0)))
    np.testing.assert_allclose(basis.dct_mask(moved, 30), basis.dct_mask(ball(), 30), atol=1e-13)


@pytest.mark.parametrize(
    "build",
    [
        lambda: basis.dct_image((3, 3), 10),
        lambda: basis.dct_image((3, 3), 0),
        lambda: basis.dct_mask(np.ones((2, 2, 2), dtype=bool), 9),
        lambda: basis.dct_mask(np.zeros((2, 2, 2), dtype=bool), 1),
        lambda: basis.dct_mask(np.eye(5, dtype=bool)[:, :, None], 5),
    ],
    ids=["too many", "none", "more than voxels", "empty mask", "dependent columns"],
)
def test_a_basis_that_cannot_be_built_is_a_settings_error(build) -> None:
    with pytest.raises(ConfigError) as caught:
        build()
    assert caught.value.code == "CAPE-E011"
