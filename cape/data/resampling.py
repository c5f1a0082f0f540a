"""Resampling of volumes: smoothing and interpolation at the voxels of a mask only.

If axes are parallel, a Gaussian and trilinear interpolation both factor into one matrix per axis.
These matrices are small (new by old voxels of an axis) and formed once per image; a volume then
takes three matrix products in float64.  If grids are turned or sheared, only the Gaussians factor;
the voxels of the mask are interpolated, or those of the box that a later Gaussian reaches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.axis_products import AxisProducts, start_of, support
from cape.algorithms.estimators import Array
from cape.data.space import Grid, Index
from cape.frozen import dataclass

SD_PER_FWHM: Final = 1 / np.sqrt(8 * np.log(2))
# Voxels by which a parallel axis may deviate over the whole grid.
PARALLEL: Final = 1e-6
# Points that are interpolated at a time.  Their places are computed for each volume and stay in the
# processor's cache; storing them would take 24 bytes a point.
BLOCK_POINTS: Final = 8192

_Points = npt.NDArray[np.unsignedinteger]
_Shape = tuple[int, ...]


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

    seen: tuple[slice, slice, slice]  # voxels along z, y, x that any voxel of the mask sees
    volume: Array  # (z, y, x): those of the volume that is being read, in doubles
    before: AxisProducts | None  # of z, y, x
    matrix: Array  # (4, 4): place in the stored volume of each voxel of the grid
    points: _Points  # (3, n): voxels of the grid that are interpolated
    first: Index  # (3, 1): the first voxel along x, y, z that the points lie between
    new: Array  # (n,): the points of the volume that is being read
    box: _Shape  # shape of the points where a Gaussian comes after
    after: AxisProducts | None  # of x, y, z
    index: Index  # (n_inside,): positions of the mask's voxels in the result, z fastest

    def voxels(self, stored: npt.NDArray[np.generic], slope: float, inter: float) -> Array:
        """Return the voxels of the mask, (n_inside,), of a finite volume (z, y, x) as stored.

        They last until the next volume.
        """
        np.multiply(stored[self.seen], slope, out=self.volume, dtype=np.float64)
        volume = np.add(self.volume, inter, out=self.volume)
        new = self._interpolated(self.before.of_volume(volume) if self.before else volume)
        if not self.after:
            return new
        return np.asarray(self.after.of_volume(new.reshape(self.box)).ravel()[self.index])

    def _interpolated(self, volume: Array) -> Array:
        """Return the points, (n,), of the part (z, y, x) of a volume that they lie between."""
        from scipy import ndimage

        for block in _blocks(self.new.size):
            part = _places(self.matrix, self.points[:, block]) - self.first
            # In the order x, y, z, in which the terms are added.
            ndimage.map_coordinates(volume.T, part, output=self.new[block], order=1, cval=0.0)
        return self.new


def turned_axes(shape: _Shape, affine: Array, grid: Grid, *, smoothing_fwhm: float) -> TurnedAxes:
    """Return the steps from an image of another grid to the mask, for axes of any direction."""
    matrix = voxel_map(affine, grid.affine, grid.shape)
    points = np.array(np.nonzero(grid.inside)).astype(np.min_scalar_type(max(grid.shape)))
    box, index, later = grid.shape, np.zeros(0, dtype=np.intp), list[Array]()
    if smoothing_fwhm:
        sds = smoothing_fwhm * SD_PER_FWHM / edges_of(grid.affine)
        made = [slice(int(each.min()), int(each.max()) + 1) for each in points]
        reached, later = _gaussian(grid.shape, sds, made)
        moved = tuple(each - new.start for each, new in zip(points, made, strict=True))
        index = np.ravel_multi_index(moved, tuple(map(len, later))).astype(np.intp)
        box = tuple(each.shape[1] for each in later)
        points = np.indices(box, dtype=points.dtype).reshape(3, -1)
        points += np.array([[old.start] for old in reached], dtype=points.dtype)
    between = _between(shape, matrix, points)
    seen, earlier = between, list[Array]()
    wide = anti_alias_fwhm(affine, grid.affine) * SD_PER_FWHM / edges_of(affine)
    if wide.any():
        seen, earlier = _gaussian(shape, wide, between)
    # Each step reads one of two arrays and writes the other, which bounds the memory.
    sizes = tuple(old.stop - old.start for old in reversed(seen))
    one, two = np.empty((2, max(math.prod(sizes), points.shape[1])))
    smoothed, new = (two, one) if earlier else (one, two)
    return TurnedAxes(
        seen=(seen[2], seen[1], seen[0]),
        volume=start_of(one, sizes),
        before=AxisProducts.of(*reversed(earlier), work=(two, one)) if earlier else None,
        matrix=matrix,
        points=points,
        first=np.array([[old.start] for old in between]),
        new=start_of(new, (points.shape[1],)),
        box=box,
        after=AxisProducts.of(*later, work=(smoothed, new)) if later else None,
        index=index,
    )


def _gaussian(shape: _Shape, sds: Array, made: list[slice]) -> tuple[list[slice], list[Array]]:
    """Return the voxels along x, y, z that `made` depends on, and the matrices between."""
    matrices = [smoothing_matrix(n, sd)[new] for n, sd, new in zip(shape, sds, made, strict=True)]
    seen = [support(matrix) for matrix in matrices]
    return seen, [matrix[:, old] for matrix, old in zip(matrices, seen, strict=True)]


def _between(shape: _Shape, matrix: Array, points: _Points) -> list[slice]:
    """Return the voxels along x, y, z that the points lie between, of those that are there."""
    each = (_places(matrix, points[:, block]) for block in _blocks(points.shape[1]))
    ends = np.array([(places.min(axis=1), places.max(axis=1)) for places in each])
    last = np.array(shape) - 1
    low = np.clip(np.floor(ends[:, 0].min(axis=0)), 0, np.maximum(last - 1, 0)).astype(int)
    high = np.clip(np.floor(ends[:, 1].max(axis=0)) + 1, low, last).astype(int)
    return [slice(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _places(matrix: Array, points: _Points) -> Array:
    """Return the places (3, n) of points of the grid."""
    # In the order of scipy, whose rounding decides what lies on the border.
    places: Array = matrix[:3, 0:1] * points[0]
    places += matrix[:3, 1:2] * points[1]
    places += matrix[:3, 2:3] * points[2]
    places += matrix[:3, 3:]
    return places


def _blocks(n: int) -> Iterator[slice]:
    for first in range(0, n, BLOCK_POINTS):
        yield slice(first, min(first + BLOCK_POINTS, n))
