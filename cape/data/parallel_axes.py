"""Volumes between grids whose axes are parallel: smoothing and interpolation are three matrices.

A Gaussian along each axis and trilinear interpolation are both products of what they do to one
axis.  Their products are small (new by old voxels of an axis), formed once per image; a volume then
takes three matrix products in float64.  `cape.data.alignment` has the form for any grid, which is
also that of volumes with entries that are not finite; rounded to float32 both are the same bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cape.algorithms.axis_products import AxisProducts, support
from cape.algorithms.estimators import Array
from cape.data.alignment import SD_PER_FWHM, anti_alias_fwhm, edges_of, voxel_map
from cape.data.space import Grid
from cape.frozen import dataclass

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelAxes:
    """What brings a stored volume to the voxels of a mask."""

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
        inside = index
        return _banded(matrices, inside)
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
    # Where a voxel of the mask comes out: the new volume has the axes of the stored one.
    sizes = tuple(grid.shape[new] for new in along)
    positions = np.arange(int(np.prod(sizes)), dtype=np.intp).reshape(sizes, order="F")
    inside = positions.transpose(np.argsort(along))[grid.inside]
    return _banded(matrices, inside)


def smoothing_matrix(n: int, sd: float) -> Array:
    """Gaussian of one axis of n voxels, shape (n, n); borders are repeated."""
    from scipy import ndimage

    one = np.eye(n)
    return np.asarray(ndimage.gaussian_filter1d(one, sd, axis=0, mode="nearest")) if sd else one


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
    # What no voxel of the mask sees is left out before anything is multiplied.
    seen = [support(matrix) for matrix in matrices]
    x, y, z = (matrix[:, old] for matrix, old in zip(matrices, seen, strict=True))
    return ParallelAxes(
        seen=(seen[2], seen[1], seen[0]),
        volume=np.empty((z.shape[1], y.shape[1], x.shape[1])),
        products=AxisProducts.of(z, y, x),
        index=index,
    )
