"""A basis of a fine mask that is never an array: equal to the array, and nearly the fine basis."""

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms import basis, kernel
from cape.algorithms.interpolated_basis import InterpolatedBasis, interpolated
from cape.errors import ConfigError
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import (
    MAX_DENSE_FEATURES,
    in_basis,
    noise_covariance,
    project,
    public_basis,
)

EDGES = (2.0, 2.0, 2.5)


def ball(shape: tuple[int, int, int], radius: float = 0.95) -> np.ndarray:
    axes = [np.linspace(-1, 1, n) / radius for n in shape]
    x, y, z = np.meshgrid(*axes, indexing="ij")
    inside = x**2 + y**2 + z**2 < 1
    inside[:, : shape[1] // 3, : shape[2] // 4] = False  # no mask is so regular
    return inside


def dct(mask, _, n_basis):
    return basis.dct_mask(mask, n_basis)


@pytest.fixture(scope="module", params=["dct", "kernel"])
def pair(request) -> tuple[InterpolatedBasis, np.ndarray, np.ndarray]:
    """An interpolated basis, the same as an array, and the basis on the voxels themselves."""
    mask, build = ball((27, 30, 22)), {"dct": dct, "kernel": kernel.kernel_mask}[request.param]
    B = interpolated(mask, EDGES, 24, build)
    return B, B @ np.eye(24), build(mask, EDGES, 24)


def test_it_is_an_orthonormal_basis_of_the_mask_whose_array_is_never_formed(pair):
    B, dense, _ = pair
    D = int(ball((27, 30, 22)).sum())
    assert B.shape == dense.shape == (D, 24)
    np.testing.assert_allclose(dense.T @ dense, np.eye(24), atol=1e-10)
    assert len(B.coefficients) < D / 4
    rng = np.random.default_rng(0)
    X = rng.standard_normal((D, 19)).astype(np.float32)
    np.testing.assert_allclose(B.adjoint(X), dense.T @ X.astype(np.float64), atol=1e-9)
    np.testing.assert_allclose(project(X, B), dense.T @ X.astype(np.float64), atol=1e-4)
    np.testing.assert_array_equal(in_basis(B, X), B.adjoint(X))
    for some in (slice(None), slice(3, None, 17)):
        np.testing.assert_allclose(B.rows(some), dense[some], atol=1e-12)


def test_it_spans_nearly_what_the_basis_on_the_voxels_spans(pair):
    """Figures of a whole brain: docs/howto-inputs.md."""
    _, dense, fine = pair
    # All but the last ones, whose order near equal frequencies may differ.
    assert np.mean(np.linalg.svd(dense.T @ fine[:, :20], compute_uv=False) ** 2) > 0.99
    assert np.mean(np.linalg.svd(dense[:, :12].T @ fine[:, :8], compute_uv=False) ** 2) > 0.995


def test_columns_nest(pair):
    _B, dense, _ = pair
    mask, build = ball((27, 30, 22)), dct
    if np.abs(dense[:, 0]).std() / np.abs(dense[:, 0]).mean() > 0.1:
        build = kernel.kernel_mask
    fewer = interpolated(mask, EDGES, 9, build) @ np.eye(9)
    np.testing.assert_allclose(fewer, dense[:, :9], atol=1e-6)


def space_of(shape: tuple[int, int, int], edge: float) -> FeatureSpace:
    labels = ball(shape).astype(np.int32)
    return FeatureSpace.of_labels("mask", labels, np.diag([edge, edge, edge, 1.0]))


@pytest.mark.parametrize("kind", ["dct", "kernel"])
def test_a_mask_too_fine_for_an_array_gets_it_and_any_other_the_array(kind):
    settings = {"epsilon": 1.0, "delta": 1e-5, "basis": kind}
    fine, coarse = space_of((62, 66, 58), 2.0), space_of((31, 33, 29), 4.0)
    assert fine.n_features > MAX_DENSE_FEATURES > coarse.n_features
    B, dense = (public_basis(resolve(Config(**settings)), space, 20) for space in (fine, coarse))
    assert isinstance(B, InterpolatedBasis)
    assert isinstance(dense, np.ndarray)
    # Smooth noise of the same brain has the same covariance in both, but for the size of a voxel.
    noise = [noise_covariance(*pair) for pair in ((fine, B), (coarse, dense))]
    strengths = [np.linalg.eigvalsh(covariance)[::-1][:10] for covariance in noise]
    np.testing.assert_allclose(strengths[0] / 8, strengths[1], rtol=0.1)


def test_templates_beside_a_basis_are_refused_where_the_mask_is_too_fine():
    space = space_of((62, 66, 58), 2.0)
    rng = np.random.default_rng(2)
    space = replace(space.with_templates(rng.standard_normal((space.n_features, 2))))
    config = Config(epsilon=1.0, delta=1e-5)
    with pytest.raises(ConfigError, match="use a coarser mask"):
        public_basis(resolve(config), space, 20)
