"""Volumes between grids that are turned or sheared: only what the voxels of a mask see is made.

The Gaussian before is a product along each axis, over the part that is seen; what is interpolated
are the voxels of the mask, or those of the box that the Gaussian afterwards reaches.
`cape.data.alignment` has the form for any volume; rounded to float32 both are the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.axis_products import AxisProducts, start_of, support
from cape.algorithms.estimators import Array
from cape.data.alignment import SD_PER_FWHM, anti_alias_fwhm, edges_of, voxel_map
from cape.data.parallel_axes import smoothing_matrix
from cape.data.space import Grid
from cape.frozen import dataclass

# Points that are interpolated at a time.  Their places are formed anew for each volume and stay in
# the processor's cache: kept, they would take 24 bytes a point.
BLOCK: Final = 8192

Index = npt.NDArray[np.intp]
Points = npt.NDArray[np.unsignedinteger]
Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnedAxes:
    """What brings a stored volume to the voxels of a mask."""

    seen: tuple[slice, slice, slice]  # voxels along z, y, x that any voxel of the mask sees
    volume: Array  # (z, y, x): those of the volume that is being read, in doubles
    before: AxisProducts | None  # of z, y, x
    matrix: Array  # (4, 4): place in the stored volume of each voxel of the grid
    points: Points  # (3, n): voxels of the grid that are interpolated
    first: Index  # (3, 1): the first voxel along x, y, z that the points lie between
    new: Array  # (n,): the points of the volume that is being read
    box: Shape  # shape of the points where a Gaussian comes after
    after: AxisProducts | None  # of x, y, z
    index: Index  # (n_inside,): positions of the mask's voxels in what comes out, z fastest

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
            # Of x, y, z, whose order is that of the sums.
            ndimage.map_coordinates(volume.T, part, output=self.new[block], order=1, cval=0.0)
        return self.new


def turned_axes(shape: Shape, affine: Array, grid: Grid, *, smoothing_fwhm: float) -> TurnedAxes:
    """Return what brings an image of another grid to the mask, whatever its axes."""
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
    # Each step reads one of two arrays and writes the other, so that no more is ever held.
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


def _gaussian(shape: Shape, sds: Array, made: list[slice]) -> tuple[list[slice], list[Array]]:
    """Return what the voxels `made` see along x, y, z, and the matrices between."""
    matrices = [smoothing_matrix(n, sd)[new] for n, sd, new in zip(shape, sds, made, strict=True)]
    seen = [support(matrix) for matrix in matrices]
    return seen, [matrix[:, old] for matrix, old in zip(matrices, seen, strict=True)]


def _between(shape: Shape, matrix: Array, points: Points) -> list[slice]:
    """Return the voxels along x, y, z that the points lie between, of those that are there."""
    each = (_places(matrix, points[:, block]) for block in _blocks(points.shape[1]))
    ends = np.array([(places.min(axis=1), places.max(axis=1)) for places in each])
    last = np.array(shape) - 1
    low = np.clip(np.floor(ends[:, 0].min(axis=0)), 0, np.maximum(last - 1, 0)).astype(int)
    high = np.clip(np.floor(ends[:, 1].max(axis=0)) + 1, low, last).astype(int)
    return [slice(a, b + 1) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


def _places(matrix: Array, points: Points) -> Array:
    """Return the places (3, n) of points of the grid."""
    # In the order of scipy, whose rounding says what lies on the border and what outside.
    places: Array = matrix[:3, 0:1] * points[0]
    places += matrix[:3, 1:2] * points[1]
    places += matrix[:3, 2:3] * points[2]
    places += matrix[:3, 3:]
    return places


def _blocks(n: int) -> Iterator[slice]:
    for first in range(0, n, BLOCK):
        yield slice(first, min(first + BLOCK, n))
