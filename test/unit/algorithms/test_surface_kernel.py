"""The public basis of grayordinates against kernels that are formed in full."""

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms import surface_kernel
from cape.algorithms.surface_kernel import RADIUS_MM, BlockBasis
from cape.computations.capegica import CapeGicaConfig
from cape.computations.ica import mirror
from cape.data.discovery import list_site
from cape.data.issues import Findings
from cape.errors import ConfigError
from cape.settings.resolved import resolve
from cape.space.public_basis import grayordinate_points, noise_covariance, public_basis, smoothed
from support.surfaces import axis, sphere, write_owner_files

CONFIG = CapeGicaConfig(epsilon=1.0, delta=1e-5, feature_space="grayordinates", n_components=4)


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owner")
    write_owner_files(folder, axis(3), 3)
    found = list_site(folder, {}, CONFIG, Findings("A")).space
    assert found is not None
    return found


def dense(places, sigma: float, *, mirrored: bool = False) -> np.ndarray:
    """K, or K' of the mirror, from distances alone."""
    D = sum(len(one.rows) for one in places)
    K = np.zeros((D, D))
    for one in places:
        for other in places:
            swapped = {"left": "right", "right": "left"}.get(one.side, "") if mirrored else one.side
            if other.side != swapped:
                continue
            a, b = _mm(one), _mm(other)
            if mirrored:
                b = b * (-1.0, 1.0, 1.0)
            distance = ((a[:, None, :] - b[None]) ** 2).sum(axis=2)
            K[np.ix_(one.rows, other.rows)] = np.exp(-distance / (2 * sigma**2))
    return K


def _mm(one) -> np.ndarray:
    if one.sphere is not None:
        return RADIUS_MM * one.sphere
    return one.voxels * np.array(one.mm) + (one.first_mm, 0.0, 0.0)


@pytest.mark.parametrize("sigma", [12.0, 30.0])
def test_columns_are_the_leading_eigenvectors_of_the_kernel(space, sigma) -> None:
    places, d = grayordinate_points(space), 60
    B = surface_kernel.grayordinate_basis(places, d, sigma)
    plain = B.rows(slice(None))
    np.testing.assert_allclose(plain.T @ plain, np.eye(d), atol=1e-12)
    K = dense(places, sigma)
    # In units of the mean row sum of each block.
    for one in places:
        K[np.ix_(one.rows, one.rows)] /= K[np.ix_(one.rows, one.rows)].sum(axis=1).mean()
    values = np.linalg.eigvalsh(K)[::-1]
    of_columns = np.sum(plain * (K @ plain), axis=0)
    np.testing.assert_allclose(of_columns, values[:d], rtol=1e-3, atol=1e-5)
    residual = np.linalg.norm(K @ plain - plain * of_columns, axis=0)
    assert residual.max() < 1e-4 * values[0]
    # Columns nest: what a site prepares holds what the plan asks for.
    fewer = surface_kernel.grayordinate_basis(places, 35, sigma).rows(slice(None))
    np.testing.assert_allclose(fewer, plain[:, :35], atol=1e-10)


def test_a_basis_of_blocks_acts_as_the_matrix_that_is_never_formed(space) -> None:
    B = public_basis(resolve(CONFIG), space, 40)
    assert isinstance(B, BlockBasis)
    plain = B.rows(slice(None))
    rng = np.random.default_rng(0)
    X, V = rng.standard_normal((B.shape[0], 5)), rng.standard_normal((40, 3))
    np.testing.assert_allclose(B.adjoint(X.astype(np.float32)), plain.T @ X, atol=1e-4)
    np.testing.assert_allclose(B @ V, plain @ V, atol=1e-12)
    some = np.array([3, 1200, 700])
    np.testing.assert_array_equal(B.rows(some), plain[some])
    # Each column is of one block: a third of the memory of the whole.
    assert sum(block.values.size for block in B.blocks) < 0.5 * plain.size


def test_smooth_noise_has_the_kernels_covariance(space) -> None:
    K = dense(grayordinate_points(space), 12.0)
    columns = np.random.default_rng(1).standard_normal((space.n_features, 3))
    # 642 vertices tell no more than 625 harmonics apart.
    np.testing.assert_allclose(smoothed(space, columns), K @ columns, atol=5e-3)
    B = public_basis(resolve(CONFIG), space, 20)
    assert isinstance(B, BlockBasis)
    plain = B.rows(slice(None))
    np.testing.assert_allclose(noise_covariance(space, B), plain.T @ K @ plain, atol=1e-3)


def test_the_mirror_swaps_the_hemispheres_and_the_sides_of_the_voxels(space) -> None:
    places = grayordinate_points(space)
    assert surface_kernel.is_symmetric(places)
    B = public_basis(resolve(CONFIG), space, 40)
    assert isinstance(B, BlockBasis)
    plain = B.rows(slice(None))
    diagonal, across = surface_kernel.mirror_in_basis(places, B, sigma_mm=30.0, midline_mm=0.0)
    K, mirrored = dense(places, 30.0), dense(places, 30.0, mirrored=True)
    np.testing.assert_allclose(diagonal, np.sum(plain * (K @ plain), axis=0), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(across, plain.T @ mirrored @ plain, atol=1e-4)
    found = mirror.mirror_of(CONFIG, space, 40)
    assert found is not None
    np.testing.assert_allclose(found.J @ found.J, np.eye(40), atol=1e-10)
    # A smooth map that is the same on both sides stays; one that is opposite turns its sign.
    xyz = np.concatenate([_mm(one) for one in places])
    even = np.exp(-((np.abs(xyz) - (40.0, 30.0, 30.0)) ** 2).sum(axis=1) / (2 * 25.0**2))
    for values, sign in ((even, 1.0), (even * np.sign(xyz[:, 0]), -1.0)):
        values = np.where(np.arange(len(xyz)) < places[2].rows[0], values, 0.0)
        if sign < 0:
            values[places[0].rows], values[places[1].rows] = (
                -even[places[0].rows], even[places[1].rows],
            )  # fmt: skip
        y = plain.T @ values
        assert y @ found.J @ y / (y @ y) == pytest.approx(sign, abs=0.1)


def test_no_mirror_where_vertices_are_no_pairs(tmp_path) -> None:
    import nibabel as nib

    write_owner_files(tmp_path, axis(2), 2)
    path = tmp_path / "sphere.R.surf.gii"
    surface = nib.load(path)
    surface.darrays[0].data[:] = surface.darrays[0].data[:, [1, 2, 0]]
    nib.save(surface, path)
    space = list_site(tmp_path, {}, CONFIG, Findings("A")).space
    assert space is not None
    assert not surface_kernel.is_symmetric(grayordinate_points(space))
    assert mirror.mirror_of(CONFIG, space, 20) is None


def test_more_columns_than_the_kernel_carries_are_refused(space) -> None:
    with pytest.raises(ConfigError, match="E011"):
        surface_kernel.grayordinate_basis(grayordinate_points(space), 4000, 30.0)


def test_the_harmonics_make_the_kernel_on_the_whole_sphere() -> None:
    xyz, _ = sphere(3)
    for sigma in (14.0, 30.0):
        F = surface_kernel._Harmonics.of(xyz, sigma).at(xyz)
        distance = RADIUS_MM**2 * ((xyz[:, None, :] - xyz[None]) ** 2).sum(axis=2)
        np.testing.assert_allclose(F @ F.T, np.exp(-distance / (2 * sigma**2)), atol=1e-4)


def test_settings_that_grayordinates_cannot_have() -> None:
    for change, words in (
        ({"basis": "dct"}, "auto, kernel"),
        ({"smoothing_fwhm": 6.0}, "smoothing_fwhm"),
    ):
        with pytest.raises(ConfigError, match=words):
            replace(CONFIG, **change).check()
