"""The kernel basis of grayordinates: Gaussian kernels on two spheres and on the voxels.

The kernel is 0 between these blocks, so B (D, d) is never formed.  On a sphere the eigenfunctions
of the kernel ``exp(-|x - x'|^2 / (2 sigma^2))`` (chords) are the spherical harmonics: ``K = F F'``,
F the harmonics at the vertices times the roots of their strengths.  Since the medial wall is
missing, K is decomposed through ``F'F``, as in `kernel.Modes`.  Eigenvalues of a block are in units
of its mean row sum, so that the density of vertices and voxels does not decide which block's
columns come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cape.algorithms import kernel
from cape.algorithms.basis import refused_size
from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass

# Radius of a hemisphere's sphere.  Its area is that of fsLR's mean midthickness surface, 56,600
# mm^2.
RADIUS_MM = 67.0
_NODES = 400  # of the quadrature over the cosine
# Minimum shares of the largest: of harmonics, of the many modes of the voxels' box, of eigenvalues
# on a sphere and among voxels; smaller ones are rounding
_MIN_HARMONIC = 1e-9
_MIN_MODE = 1e-6
_MIN_EIGENVALUE = 1e-8
_MIN_EIGENVALUE_MODES = 1e-5
_ROWS = 4096  # points processed at a time
# Maximum distance of a vertex from the mirror image of its partner, in radii
_MAX_DISTANCE = 1e-3

RowIndices = npt.NDArray[np.intp]
_Make = Callable[[int], Array]  # the first n eigenvectors (points, n) of a block


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PointSet:
    """Positions of some of the D points: vertices of one hemisphere, or all voxels."""

    rows: RowIndices  # (n,): indices among the D points
    sphere: Array | None = None  # (n, 3): unit vectors
    vertex: RowIndices | None = None  # (n,): numbers of the vertices in the whole surface
    side: str = ""  # of a hemisphere: {"left", "right"}
    voxels: RowIndices | None = None  # (n, 3)
    mm: tuple[float, float, float] = (1.0, 1.0, 1.0)  # edges of a voxel
    first_mm: float = 0.0  # x of voxels (0, ., .)

    def box(self) -> tuple[npt.NDArray[np.bool_], RowIndices, float]:
        """Return the bounding box, the points in its order, and the x of its first voxels (mm)."""
        if self.voxels is None:
            raise ValueError("no voxels")
        low = self.voxels.min(axis=0)
        at = self.voxels - low
        inside = np.zeros(tuple(at.max(axis=0) + 1), dtype=bool)
        inside[tuple(at.T)] = True
        order = np.argsort(np.ravel_multi_index(tuple(at.T), inside.shape))
        return inside, order, self.first_mm + float(low[0]) * self.mm[0]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Block:
    """Columns of B that belong to one block, at its points."""

    rows: RowIndices
    columns: RowIndices
    values: Array  # (rows, columns)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockBasis:
    """B (D, d) with orthonormal columns, each of which is nonzero in one block only."""

    shape: tuple[int, int]
    blocks: tuple[Block, ...]

    def __matmul__(self, V: Array) -> Array:
        out = np.zeros((self.shape[0], V.shape[1]))
        for block in self.blocks:
            out[block.rows] = block.values @ V[block.columns]
        return out

    def adjoint(self, values: Array | Data) -> Array:
        out = np.zeros((self.shape[1], values.shape[1]))
        for block in self.blocks:
            for first in range(0, len(block.rows), _ROWS):
                part = slice(first, first + _ROWS)
                stored = values[block.rows[part]].astype(np.float64)
                out[block.columns] += block.values[part].T @ stored
        return out

    def rows(self, chosen: slice | RowIndices) -> Array:
        wanted = np.arange(self.shape[0])[chosen]
        out = np.zeros((len(wanted), self.shape[1]))
        for block in self.blocks:
            at = np.full(self.shape[0], -1)
            at[block.rows] = np.arange(len(block.rows))
            here = at[wanted]
            out[np.ix_(here >= 0, block.columns)] = block.values[here[here >= 0]]
        return out


def grayordinate_basis(places: Sequence[PointSet], n_basis: int, sigma_mm: float) -> BlockBasis:
    """Leading eigenvectors of all blocks' kernels, nested; ConfigError (E011) for too many."""
    decomposed = [_decomposed(block, sigma_mm) for block in places]
    limit = sum(len(values) for values, _ in decomposed)
    if n_basis > limit:
        raise refused_size(n_basis, f"1 to {limit} on these grayordinates", "lower n_basis.")
    strength = np.concatenate([values for values, _ in decomposed])
    owner = np.repeat(np.arange(len(decomposed)), [len(values) for values, _ in decomposed])
    # The two hemispheres have nearly equal eigenvalues: every host takes them in block order.
    order = np.lexsort((owner, -np.round(np.log(strength), 9)))[:n_basis]
    blocks = []
    for k, (block, (_, make)) in enumerate(zip(places, decomposed, strict=True)):
        columns = np.flatnonzero(owner[order] == k)
        if len(columns):
            blocks.append(Block(rows=block.rows, columns=columns, values=make(len(columns))))
    D = sum(len(block.rows) for block in places)
    return BlockBasis(shape=(D, n_basis), blocks=tuple(blocks))


def _decomposed(points: PointSet, sigma_mm: float) -> tuple[Array, _Make]:
    """Return falling eigenvalues over the mean row sum, and a function that makes eigenvectors."""
    if (sphere := points.sphere) is not None:
        F = _Harmonics.of(sphere, sigma_mm)
        gram = np.zeros((F.size, F.size))
        total = np.zeros(F.size)
        for first in range(0, len(sphere), _ROWS):
            part = F.at(sphere[first : first + _ROWS])
            gram += part.T @ part
            total += part.sum(axis=0)
        values, vectors = np.linalg.eigh(gram)
        values, vectors = values[::-1], vectors[:, ::-1]
        mean = float(total @ total) / len(sphere)

        def of_vertices(n: int) -> Array:
            turn = vectors[:, : n + 1] / np.sqrt(values[: n + 1])
            return kernel.orthonormal(_times(F, sphere, turn), values, n)

        return _above_rounding(values, _MIN_EIGENVALUE) / mean, of_vertices
    inside, order, _ = points.box()
    modes = kernel.box_modes(inside, points.mm, sigma_mm, min_share=_MIN_MODE)
    ones = np.ones((len(order), 1))
    mean = float(np.mean(kernel.smooth(inside, points.mm, ones, sigma_mm)))

    def of_voxels(n: int) -> Array:
        out = np.empty((len(order), n))
        out[order] = modes.eigenvectors(inside, n)
        return out

    return _above_rounding(modes.values, _MIN_EIGENVALUE_MODES) / mean, of_voxels


def _above_rounding(values: Array, min_share: float) -> Array:
    # Without the last one, which only shows whether the last two eigenvalues in use are equal.
    return values[: max(1, int(np.count_nonzero(values > min_share * values[0])) - 1)]


# -- the kernel itself ----------------------------------------------------------------------------


def smooth_points(places: Sequence[PointSet], columns: Array, sigma_mm: float) -> Array:
    """Return ``K columns``, shape (D, n)."""
    out = np.zeros(columns.shape)
    for points in places:
        part = columns[points.rows]
        if points.sphere is not None:
            F = _Harmonics.of(points.sphere, sigma_mm)
            out[points.rows] = _times(F, points.sphere, _transposed(F, points.sphere, part))
        else:
            inside, order, _ = points.box()
            out[points.rows[order]] = kernel.smooth(inside, points.mm, part[order], sigma_mm)
    return out


def mirror_in_basis(
    places: Sequence[PointSet], B: BlockBasis, *, sigma_mm: float, midline_mm: float
) -> tuple[Array, Array]:
    """Return the diagonal of ``B' K B``, (d,), and ``B' K' B``, (d, d)."""
    # ``K'_ij = k(x_i, M x_j)``.  M swaps the hemispheres and the sign of x.
    diagonal, across = np.zeros(B.shape[1]), np.zeros((B.shape[1], B.shape[1]))
    block_at = {int(block.rows[0]): block for block in B.blocks}
    sides = {points.side: points for points in places if points.sphere is not None}
    for points in places:
        block = block_at.get(int(points.rows[0]))
        if block is None:
            continue
        if points.sphere is None:
            inside, order, first_mm = points.box()
            U = block.values[order]
            image = kernel.smooth_mirrored(
                inside, points.mm, U, first_mm=first_mm, midline_mm=midline_mm, sigma_mm=sigma_mm
            )
            smoothed = kernel.smooth(inside, points.mm, U, sigma_mm)
            diagonal[block.columns] = np.sum(U * smoothed, axis=0)
            across[np.ix_(block.columns, block.columns)] = U.T @ image
            continue
        F = _Harmonics.of(points.sphere, sigma_mm)
        C = _transposed(F, points.sphere, block.values)
        diagonal[block.columns] = np.sum(C**2, axis=0)
        other = sides["right" if points.side == "left" else "left"]
        partner = block_at.get(int(other.rows[0]))
        if partner is not None and other.sphere is not None:
            of_other = _transposed(F, other.sphere * (-1.0, 1.0, 1.0), partner.values)
            across[np.ix_(block.columns, partner.columns)] = C.T @ of_other
    return diagonal, across


def is_symmetric(places: Sequence[PointSet]) -> bool:
    """Whether vertices of the same number in both hemispheres are mirror images."""
    sides = {points.side: points for points in places if points.sphere is not None}
    left, right = sides.get("left"), sides.get("right")
    if left is None or right is None or left.vertex is None or right.vertex is None:
        return False
    _, a, b = np.intersect1d(left.vertex, right.vertex, return_indices=True)
    if 2 * len(a) < max(len(left.vertex), len(right.vertex)):
        return False
    if left.sphere is None or right.sphere is None:
        return False
    difference = left.sphere[a] - right.sphere[b] * (-1.0, 1.0, 1.0)
    return bool(np.abs(difference).max() <= _MAX_DISTANCE)


def positions_mm(points: PointSet) -> Array:
    """Return positions (n, 3) in mm: of vertices on their sphere, or of voxels."""
    if points.sphere is not None:
        return RADIUS_MM * points.sphere
    if points.voxels is None:
        raise ValueError("neither vertices nor voxels")
    return np.asarray(points.voxels * np.array(points.mm))


def thinned(points: PointSet, mm: float) -> RowIndices:
    """Return the indices of some points, on average about `mm` or more apart."""
    if points.voxels is None:
        area = 4.0 * np.pi * RADIUS_MM**2
        step = max(1, int(mm**2 * len(points.rows) / area))
        # At random: neighbours have neighbouring numbers, so a regular step would leave stripes.
        return np.sort(np.random.default_rng(0).permutation(len(points.rows))[::step])
    steps = np.array([max(1, int(mm // edge)) for edge in points.mm])
    low = points.voxels.min(axis=0)
    return np.flatnonzero(((points.voxels - low) % steps == steps // 2).all(axis=1))


def _transposed(F: _Harmonics, xyz: Array, columns: Array) -> Array:
    parts = (slice(first, first + _ROWS) for first in range(0, len(xyz), _ROWS))
    return np.asarray(sum(F.at(xyz[part]).T @ columns[part] for part in parts))


def _times(F: _Harmonics, places: npt.NDArray[Any], coefficients: Array) -> Array:
    parts = range(0, len(places), _ROWS)
    return np.concatenate([F.at(places[first : first + _ROWS]) @ coefficients for first in parts])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Harmonics:
    """F of the kernel on a sphere: real spherical harmonics times the roots of their strengths."""

    root: Array  # (L + 1,): root of the strength of each degree

    @classmethod
    def of(cls, xyz: Array, sigma_mm: float) -> _Harmonics:
        # A chord has |x - x'|^2 = 2 (1 - t); the strengths follow from the Funk-Hecke formula.
        kappa = (RADIUS_MM / sigma_mm) ** 2
        t, weight = np.polynomial.legendre.leggauss(_NODES)
        profile = weight * np.exp(kappa * (t - 1.0))
        before, now = np.zeros_like(t), np.ones_like(t)
        strength: list[float] = []
        # At most as many harmonics as vertices.
        while (len(strength) + 1) ** 2 <= len(xyz):
            next_strength = 2.0 * np.pi * float(profile @ now)
            if strength and next_strength < _MIN_HARMONIC * strength[0]:
                break
            strength.append(next_strength)
            n = len(strength)
            before, now = now, ((2 * n - 1) * t * now - (n - 1) * before) / n
        return cls(root=np.sqrt(np.array(strength)))

    @property
    def size(self) -> int:
        return len(self.root) ** 2

    def at(self, xyz: Array) -> Array:
        """Return F at unit vectors (n, 3), shape (n, (L + 1)^2), order by order."""
        x, y, z = xyz.T
        n_degrees = len(self.root)
        out = np.empty((len(xyz), self.size))
        at = 0
        # The real and imaginary parts of (x + iy)^m are sin^m(theta) times cos and sin of m phi.
        turn = np.ones(len(xyz), dtype=complex)
        start = np.full(len(xyz), np.sqrt(1.0 / (4.0 * np.pi)))
        for m in range(n_degrees):
            if m:
                turn = turn * (x + 1j * y)
                start = start * np.sqrt((2 * m + 1) / (2 * m))
            before, now = np.zeros_like(z), start
            for degree in range(m, n_degrees):
                if degree > m:
                    a = np.sqrt((4 * degree**2 - 1) / (degree**2 - m**2))
                    b = np.sqrt(((degree - 1) ** 2 - m**2) / (4 * (degree - 1) ** 2 - 1))
                    before, now = now, a * (z * now - b * before)
                value = self.root[degree] * now
                if m == 0:
                    out[:, at] = value
                    at += 1
                else:
                    out[:, at] = np.sqrt(2.0) * value * turn.real
                    out[:, at + 1] = np.sqrt(2.0) * value * turn.imag
                    at += 2
        return out
