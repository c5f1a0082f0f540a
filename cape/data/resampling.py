"""Resampling of volumes: smoothing and interpolation at the voxels of a mask only.

If axes are parallel, a Gaussian and trilinear interpolation both factor into one matrix per axis.
These matrices are small (new by old voxels of an axis) and formed once per image; a volume then
takes three matrix products in float64.  If grids are turned or sheared, scipy interpolates.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.axis_products import AxisProducts, support
from cape.algorithms.estimators import Array
from cape.data.space import Grid, Index
from cape.frozen import dataclass

SD_PER_FWHM: Final = 1 / np.sqrt(8 * np.log(2))
# Voxels by which a parallel axis may deviate over the whole grid.
PARALLEL: Final = 1e-6


def edges_of(affine: Array) -> Array:
    """Return the edges of a voxel, mm, shape (3,)."""
    return np.asarray(np.linalg.norm(affine[:3, :3], axis=0))


def anti_alias_fwhm(affine: Array, target: Array) -> Array:
    """Return the FWHM along each old axis, mm, of the smoothing before resampling to `target`."""
    # Along an axis that becomes coarser, the new edge is the full width at half maximum: this
    # avoids aliasing.
    old = edges_of(affine)
    new = np.max(np.abs((affine[:3, :3] / old).T @ target[:3, :3]), axis=1)
    return np.where(new > old * (1 + 1e-6), new, 0.0)


def voxel_map(affine: Array, target: Array, shape: tuple[int, ...]) -> Array:
    """Return (4, 4): place in the volume of `affine` of each voxel of a grid of `shape`."""
    matrix = np.linalg.inv(affine) @ target
    # Ignore rotations by rounding errors: parallel axes stay parallel.
    matrix[:3, :3][np.abs(matrix[:3, :3]) * np.array(shape) < PARALLEL] = 0.0
    return np.asarray(matrix)


def smoothing_matrix(n: int, sd: float) -> Array:
    """Gaussian of one axis of n voxels, shape (n, n); borders are repeated."""
    from scipy import ndimage

    eye = np.eye(n)
    return np.asarray(ndimage.gaussian_filter1d(eye, sd, axis=0, mode="nearest")) if sd else eye


def nearest_marked(
    marked: npt.NDArray[np.bool_], affine: Array, grid: Grid
) -> npt.NDArray[np.bool_]:
    """Return which voxels of the mask, (n_inside,), are nearest to a marked one of (x, y, z)."""
    from scipy import ndimage

    matrix = voxel_map(affine, grid.affine, grid.shape)
    nearest = {"offset": matrix[:3, 3], "output_shape": grid.shape, "order": 0}
    moved = ndimage.affine_transform(marked.astype(np.float64), matrix[:3, :3], **nearest)
    return np.asarray(moved[grid.inside] > 0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelAxes:
    """Matrices from a stored volume to the voxels of a mask, by axis."""

    seen: tuple[slice, slice, slice]  # voxels along z, y, x that any voxel of the mask sees
    volume: Array  # (z, y, x): those of the volume that is being read, in doubles
    products: AxisProducts  # of z, y, x
    index: Index  # (n_inside,): positions of the mask's voxels in the new volume, x fastest

    def voxels(self, stored: npt.NDArray[np.generic], slope: float, inter: float) -> Array:
        """Return the voxels of the mask, (n_inside,), of a finite volume (z, y, x) as stored."""
        np.multiply(stored[self.seen], slope, out=self.volume, dtype=np.float64)
        np.add(self.volume, inter, out=self.volume)
        return np.asarray(self.products.of_volume(self.volume).ravel()[self.index])


def parallel_axes(
    shape: tuple[int, int, int],
    affine: Array,
    grid: Grid,
    *,
    index: Index | None,
    smoothing_fwhm: float,
) -> ParallelAxes | None:
    """Return the three matrices of an image, or None where its axes are not those of the mask.

    `index`: the mask's voxels in a stored volume that lies on its grid, which is only smoothed.
    """
    if index is not None:
        sds = smoothing_fwhm * SD_PER_FWHM / edges_of(affine)
        matrices = [smoothing_matrix(n, sd) for n, sd in zip(shape, sds, strict=True)]
        return _banded(matrices, index)
    matrix = voxel_map(affine, grid.affine, grid.shape)
    moved, along = np.nonzero(matrix[:3, :3])  # of each new axis, one old one
    if moved.tolist() != [0, 1, 2] or sorted(along.tolist()) != [0, 1, 2]:
        return None
    before = anti_alias_fwhm(affine, grid.affine) * SD_PER_FWHM / edges_of(affine)
    after = smoothing_fwhm * SD_PER_FWHM / edges_of(grid.affine)
    matrices = []
    for old, new in zip(range(3), along, strict=True):
        places = matrix[old, 3] + np.arange(grid.shape[new]) * matrix[old, new]
        steps = _interpolation(shape[old], places) @ smoothing_matrix(shape[old], before[old])
        matrices.append(smoothing_matrix(grid.shape[new], after[new]) @ steps)
    # Positions of the mask's voxels: the new volume has the axes of the stored one.
    sizes = tuple(grid.shape[new] for new in along)
    positions = np.arange(int(np.prod(sizes)), dtype=np.intp).reshape(sizes, order="F")
    inside = positions.transpose(np.argsort(along))[grid.inside]
    return _banded(matrices, inside)


def _interpolation(n: int, places: Array) -> Array:
    """Linear interpolation of n voxels at `places`, shape (places, n); rows outside are 0."""
    within = (places >= 0) & (places <= n - 1)
    lower = np.clip(np.floor(places), 0, n - 1).astype(np.intp)
    part = places - lower
    weights = np.zeros((places.size, n))
    rows = np.arange(places.size)
    weights[rows, lower] = 1.0 - part
    weights[rows, np.minimum(lower + 1, n - 1)] += part * (lower < n - 1)
    weights[~within] = 0.0
    return weights


def _banded(matrices: list[Array], inside: Index) -> ParallelAxes:
    """Return the matrices of x, y, z without their zeros, and without voxels outside the mask."""
    sizes = tuple(len(matrix) for matrix in matrices)
    places = np.unravel_index(inside, sizes, order="F")
    boxes = [slice(int(place.min()), int(place.max()) + 1) for place in places]
    matrices = [matrix[box] for matrix, box in zip(matrices, boxes, strict=True)]
    sizes = tuple(len(matrix) for matrix in matrices)
    moved = tuple(place - box.start for place, box in zip(places, boxes, strict=True))
    index = np.ravel_multi_index(moved, sizes, order="F").astype(np.intp)
    # Voxels that do not affect the mask are left out of the products.
    seen = [support(matrix) for matrix in matrices]
    x, y, z = (matrix[:, old] for matrix, old in zip(matrices, seen, strict=True))
    return ParallelAxes(
        seen=(seen[2], seen[1], seen[0]),
        volume=np.empty((z.shape[1], y.shape[1], x.shape[1])),
        products=AxisProducts.of(z, y, x),
        index=index,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnedAxes:
    """Gaussians and interpolation from a stored volume to the voxels of a mask."""

    before: Array  # sd of the Gaussian along each old axis, voxels
    matrix: Array  # (4, 4): place in the stored volume of each voxel of the grid
    after: Array  # sd along each new axis, voxels
    grid: Grid

    def voxels(self, stored: npt.NDArray[np.generic], slope: float, inter: float) -> Array:
        """Return the voxels of the mask, (n_inside,), of a finite volume (z, y, x) as stored."""
        from scipy import ndimage

        volume = np.multiply(stored.T, slope, dtype=np.float64) + inter
        if self.before.any():
            ndimage.gaussian_filter(volume, self.before, output=volume, mode="nearest")
        shape = self.grid.shape
        new = ndimage.affine_transform(volume, self.matrix, output_shape=shape, order=1)
        if self.after.any():
            ndimage.gaussian_filter(new, self.after, output=new, mode="nearest")
        return np.asarray(new[self.grid.inside])


def turned_axes(affine: Array, grid: Grid, *, smoothing_fwhm: float) -> TurnedAxes:
    """Return the steps from an image of another grid to the mask, for axes of any direction."""
    return TurnedAxes(
        before=anti_alias_fwhm(affine, grid.affine) * SD_PER_FWHM / edges_of(affine),
        matrix=voxel_map(affine, grid.affine, grid.shape),
        after=smoothing_fwhm * SD_PER_FWHM / edges_of(grid.affine),
        grid=grid,
    )
