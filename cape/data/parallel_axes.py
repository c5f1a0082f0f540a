"""Volumes between grids whose axes are parallel: smoothing and interpolation are three matrices.

A Gaussian along each axis and trilinear interpolation are both products of what they do to one
axis.  Their products are small (new by old voxels of an axis), formed once per image; a volume then
takes three matrix products in float64.  `cape.data.alignment` has the form for any grid, which is
also that of volumes with entries that are not finite; rounded to float32 both are the same bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.data.alignment import SD_PER_FWHM, anti_alias_fwhm, edges_of, voxel_map
from cape.data.space import Grid
from cape.frozen import dataclass

# New voxels of an axis that are computed together: the old ones that they see are few.
BAND: Final = 16

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisBand:
    """Rows `new` of the matrix of one axis, and the columns `old` outside which they are 0."""

    new: slice
    old: slice
    weights: Array  # (new, old), contiguous


@dataclass(frozen=True, kw_only=True, slots=True)
class ParallelAxes:
    """What brings a stored volume to the voxels of a mask."""

    # Of the stored axes x, y, z.
    bands: tuple[tuple[AxisBand, ...], tuple[AxisBand, ...], tuple[AxisBand, ...]]
    # Voxels along z, y, x that any new voxel sees; bands count from there
    seen: tuple[slice, slice, slice]
    # (n_inside,): positions of the mask's voxels in the new volume, x fastest
    index: Index
    # Volumes (z, y, x): as stored, then with new voxels along z, along z and y, along all three.
    # Kept, because a fresh page of memory costs more than the numbers that are written to it.
    steps: tuple[Array, Array, Array, Array]

    def voxels(self, stored: npt.NDArray[np.generic], slope: float, inter: float) -> Array:
        """Return the voxels of the mask, (n_inside,), of a finite volume (z, y, x) as stored."""
        volume, along_z, along_y, along_x = self.steps
        np.multiply(stored[self.seen], slope, out=volume, dtype=np.float64)
        np.add(volume, inter, out=volume)
        # The slowest axis first: its products are wide, and leave less for the other two.
        old, new = volume.reshape(len(volume), -1), along_z.reshape(len(along_z), -1)
        for band in self.bands[2]:
            np.matmul(band.weights, old[band.old], out=new[band.new])
        for band in self.bands[1]:
            np.matmul(band.weights, along_z[:, band.old], out=along_y[:, band.new])
        old, new = along_y.reshape(-1, along_y.shape[2]), along_x.reshape(-1, along_x.shape[2])
        for band in self.bands[0]:
            np.matmul(old[:, band.old], band.weights.T, out=new[:, band.new])
        return np.asarray(along_x.ravel()[self.index])


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
        matrices = [_smoothing(n, sd) for n, sd in zip(shape, sds, strict=True)]
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
        steps = _interpolation(shape[old], places) @ _smoothing(shape[old], before[old])
        matrices.append(_smoothing(grid.shape[new], after[new]) @ steps)
    # Where a voxel of the mask comes out: the new volume has the axes of the stored one.
    sizes = tuple(grid.shape[new] for new in along)
    positions = np.arange(int(np.prod(sizes)), dtype=np.intp).reshape(sizes, order="F")
    inside = positions.transpose(np.argsort(along))[grid.inside]
    return _banded(matrices, inside)


def _smoothing(n: int, sd: float) -> Array:
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
    seen = [_seen(matrix) for matrix in matrices]
    bands = [_bands(matrix[:, old]) for matrix, old in zip(matrices, seen, strict=True)]
    old = [box.stop - box.start for box in seen]
    return ParallelAxes(
        bands=(bands[0], bands[1], bands[2]),
        seen=(seen[2], seen[1], seen[0]),
        index=index,
        steps=(
            np.empty((old[2], old[1], old[0])),
            np.empty((sizes[2], old[1], old[0])),
            np.empty((sizes[2], sizes[1], old[0])),
            np.empty((sizes[2], sizes[1], sizes[0])),
        ),
    )


def _seen(matrix: Array) -> slice:
    """Columns between the first and the last that are not 0; the first if all are."""
    used = np.flatnonzero(matrix.any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1) if used.size else slice(0, 1)


def _bands(matrix: Array) -> tuple[AxisBand, ...]:
    bands = []
    for first in range(0, len(matrix), BAND):
        new = slice(first, min(first + BAND, len(matrix)))
        old = _seen(matrix[new])
        bands.append(AxisBand(new=new, old=old, weights=np.ascontiguousarray(matrix[new, old])))
    return tuple(bands)
