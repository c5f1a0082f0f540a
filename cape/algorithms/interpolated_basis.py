"""A public basis of a fine mask, interpolated from a coarser grid: B = P C, never formed (D x d).

P interpolates linearly from nodes every few voxels to the voxels of the mask.  C (nodes, d) is a
basis on the nodes, transformed so that the columns of B are orthonormal; they stay nested.  Basis
functions are smooth, so the span is close to that of the basis on the voxels; docs/howto-inputs.md
says how close.
"""

import itertools
import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.axis_products import AxisProducts
from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass

# Distance of nodes in mm, rounded to whole voxels, at least two
NODES_MM: Final = 4.0
_COLUMNS: Final = 8  # volumes copied at a time

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class InterpolatedBasis:
    """B = P C, shape (D, d), with orthonormal columns."""

    inside: Mask  # (nx, ny, nz): the mask in its bounding box, voxels in C order
    axes: tuple[Array, Array, Array]  # factor of P along each axis, (voxels, nodes)
    used: Mask  # nodes with a weight at some voxel of the mask
    coefficients: Array  # C, (nodes used, d)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.inside.sum()), self.coefficients.shape[1]

    def __matmul__(self, V: Array) -> Array:
        """Return ``B V``, shape (D, k)."""
        products = AxisProducts.of(*self.axes)
        out = np.empty((self.shape[0], V.shape[1]))
        nodes = np.zeros(self.used.shape)
        for k, column in enumerate((self.coefficients @ V).T):
            nodes[self.used] = column
            out[:, k] = products.of_volume(nodes)[self.inside]
        return out

    def adjoint(self, values: Array | Data) -> Array:
        """Return ``B' values``, shape (d, T) float64, of values (D, T)."""
        products = AxisProducts.of(*(matrix.T for matrix in self.axes))
        n_times = values.shape[1]
        at_nodes = np.empty((len(self.coefficients), n_times))
        volume = np.zeros(self.inside.shape)
        for first in range(0, n_times, _COLUMNS):
            for t, column in enumerate(np.array(values[:, first : first + _COLUMNS].T), first):
                volume[self.inside] = column
                at_nodes[:, t] = products.of_volume(volume)[self.used]
        return np.asarray(self.coefficients.T @ at_nodes)

    def rows(self, chosen: slice) -> Array:
        """Return ``B[chosen]``."""
        number = np.cumsum(self.used).reshape(self.used.shape) - 1
        voxels = np.argwhere(self.inside)[chosen]
        out = np.zeros((len(voxels), self.coefficients.shape[1]))
        ends = [_ends(matrix[at]) for matrix, at in zip(self.axes, voxels.T, strict=True)]
        for corner in itertools.product((0, 1), repeat=3):
            (x, a), (y, b), (z, c) = (ends[axis][end] for axis, end in enumerate(corner))
            weight = a * b * c
            seen = weight > 0
            nodes = number[x[seen], y[seen], z[seen]]
            out[seen] += weight[seen, None] * self.coefficients[nodes]
        return out


def node_steps(voxel_mm: tuple[float, float, float]) -> tuple[int, int, int]:
    """Voxels from node to node along each axis."""
    x, y, z = (max(2, round(NODES_MM / edge)) for edge in voxel_mm)
    return x, y, z


def interpolated(
    mask: Mask,
    voxel_mm: tuple[float, float, float],
    n_basis: int,
    build: Callable[[Mask, tuple[float, float, float], int], Array],
) -> InterpolatedBasis:
    """Return the basis of a mask; `build` makes that of the nodes from their mask, edges and d."""
    voxels = np.argwhere(mask)
    inside = mask[tuple(map(slice, voxels.min(axis=0), voxels.max(axis=0) + 1))]
    steps = node_steps(voxel_mm)
    x, y, z = (_linear(n, step) for n, step in zip(inside.shape, steps, strict=True))
    weight = AxisProducts.of(x.T, y.T, z.T).of_volume(inside.astype(np.float64))
    used = np.asarray(weight > 0)
    edges = (voxel_mm[0] * steps[0], voxel_mm[1] * steps[1], voxel_mm[2] * steps[2])
    C = build(used, edges, n_basis)
    # B'B = C' (P'P) C, and P'P is nonzero for neighbouring nodes only.
    upper = np.linalg.cholesky(C.T @ _gram(inside, (x, y, z), used, C)).T
    C = np.ascontiguousarray(np.linalg.solve(upper.T, C.T).T)
    return InterpolatedBasis(inside=inside, axes=(x, y, z), used=used, coefficients=C)


def _linear(n: int, step: int) -> Array:
    """Matrix (n, nodes) that interpolates n voxels linearly from nodes at every `step` voxels."""
    place = np.arange(n) / step
    lower = np.floor(place).astype(np.intp)
    part = place - lower
    matrix = np.zeros((n, math.ceil((n - 1) / step) + 1))
    matrix[np.arange(n), lower] = 1.0 - part
    between = part > 0
    matrix[np.flatnonzero(between), lower[between] + 1] = part[between]
    return matrix


def _gram(inside: Mask, axes: tuple[Array, Array, Array], used: Mask, C: Array) -> Array:
    """Return ``P'P C``."""
    number = np.where(used, np.cumsum(used).reshape(used.shape) - 1, -1)
    padded = np.pad(number, 1, constant_values=-1)
    product = np.zeros_like(C)
    volume = inside.astype(np.float64)
    for shift in itertools.product((-1, 0, 1), repeat=3):
        # The sum over voxels of a node's weight times its neighbour's.
        pairs = [_shifted(matrix, by) * matrix for matrix, by in zip(axes, shift, strict=True)]
        joint = AxisProducts.of(*(pair.T for pair in pairs)).of_volume(volume)[used]
        window = tuple(slice(1 + by, 1 + by + n) for by, n in zip(shift, used.shape, strict=True))
        neighbour = padded[window][used]
        joined = neighbour >= 0
        for first in range(0, C.shape[1], 64):
            columns = slice(first, first + 64)
            part = C[neighbour[joined], columns]
            product[joined, columns] += joint[joined, None] * part
    return product


def _shifted(matrix: Array, by: int) -> Array:
    """Shift columns: column a of the result is column a + `by`, or 0 outside."""
    out = np.zeros_like(matrix)
    n = matrix.shape[1]
    out[:, max(0, -by) : n - max(0, by)] = matrix[:, max(0, by) : n + min(0, by)]
    return out


def _ends(rows: Array) -> tuple[tuple[npt.NDArray[np.intp], Array], ...]:
    """Return the two nodes of each row of a linear interpolation, with their weights."""
    lower = np.argmax(rows > 0, axis=1)
    upper = np.minimum(lower + 1, rows.shape[1] - 1)
    at = np.arange(len(rows))
    return (lower, rows[at, lower]), (upper, np.where(upper > lower, rows[at, upper], 0.0))
