"""Products of three matrices, one for each axis, with a volume: interpolation and smoothing.

Each matrix is stored in bands of rows that are nonzero in few columns.
"""

from typing import Final, Self

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass

BAND: Final = 16  # rows of a band


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisBand:
    """Rows `new` of the matrix of one axis, which are 0 outside the columns `old`."""

    new: slice
    old: slice
    weights: Array  # (new, old), contiguous


Bands = tuple[AxisBand, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisProducts:
    """Three matrices (n_new, n_old), for the axes of a volume in C order, the slowest first."""

    bands: tuple[Bands, Bands, Bands]
    # The volume after one, two and three products: reused memory, since fresh pages are slower
    # than the products.
    steps: tuple[Array, Array, Array]

    @classmethod
    def of(cls, first: Array, second: Array, third: Array) -> Self:
        (x, _), (y, old_y), (z, old_z) = first.shape, second.shape, third.shape
        shapes = (x, old_y, old_z), (x, y, old_z), (x, y, z)
        one, two, three = (np.empty(shape) for shape in shapes)
        return cls(bands=(_bands(first), _bands(second), _bands(third)), steps=(one, two, three))

    def of_volume(self, volume: Array) -> Array:
        """Return the product with a finite, contiguous volume, valid until the next call."""
        first, second, third = self.steps
        # The slowest axis first: its products are wide, and the result is smaller.
        old, new = volume.reshape(len(volume), -1), first.reshape(len(first), -1)
        for band in self.bands[0]:
            np.matmul(band.weights, old[band.old], out=new[band.new])
        for band in self.bands[1]:
            np.matmul(band.weights, first[:, band.old], out=second[:, band.new])
        old, new = second.reshape(-1, second.shape[2]), third.reshape(-1, third.shape[2])
        for band in self.bands[2]:
            np.matmul(old[:, band.old], band.weights.T, out=new[:, band.new])
        return third


def support(matrix: Array) -> slice:
    """Slice from the first to the last nonzero column; the first column if all are 0."""
    used = np.flatnonzero(matrix.any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1) if used.size else slice(0, 1)


def _bands(matrix: Array) -> Bands:
    bands = []
    for first in range(0, len(matrix), BAND):
        new = slice(first, min(first + BAND, len(matrix)))
        old = support(matrix[new])
        bands.append(AxisBand(new=new, old=old, weights=np.ascontiguousarray(matrix[new, old])))
    return tuple(bands)
