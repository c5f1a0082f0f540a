"""The kernel basis of grayordinates: Gaussian kernels on two spheres and on the voxels.

Nothing joins these blocks, so B is never formed (D x d).  On a sphere the eigenfunctions of the
kernel ``exp(-|x - x'|^2 / (2 sigma^2))`` (chords) are the spherical harmonics: ``K = F F'``, F the
harmonics at the vertices times the roots of their strengths.  At vertices without a medial wall it
is taken apart through ``F'F``, as `kernel` does with the modes of a box.  Eigenvalues of a block
count in units of its mean row sum, so that a column stands for the same fineness, however dense
vertices and voxels are.
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

# Of the sphere on which a hemisphere's vertices count as lying: as large as the mean midthickness
# surface of fsLR, 56,600 mm^2
RADIUS_MM = 67.0
_NODES = 400  # of the quadrature over the cosine
_MIN_HARMONIC = 1e-9  # harmonics below this share of the strongest are rounding
_MIN_MODE = 1e-6  # the same of the modes of the voxels' box, of which there are many more
_MIN_EIGENVALUE = 1e-8  # eigenvalues on a sphere below this share of the largest are rounding
_MIN_EIGENVALUE_MODES = 1e-5  # the same of voxels
_ROWS = 4096  # points whose modes are held at once
_CLOSE = 1e-3  # between a vertex and the mirror image of its partner, over the radius

Rows = npt.NDArray[np.intp]
_Make = Callable[[int], Array]  # the first n eigenvectors (points, n) of a block


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Points:
    """Where some of the D points lie: vertices of one hemisphere, or all voxels."""

    rows: Rows  # (n,): which points
    sphere: Array | None = None  # (n, 3): unit vectors
    vertex: Rows | None = None  # (n,): numbers on the whole sphere
    side: str = ""  # of a sphere: {"left", "right"}
    voxels: Rows | None = None  # (n, 3)
    mm: tuple[float, float, float] = (1.0, 1.0, 1.0)  # edges of a voxel
    first_mm: float = 0.0  # x of voxels (0, ., .)

    def box(self) -> tuple[npt.NDArray[np.bool_], Rows, float]:
        """Return the voxels' bounding box, the order of the points in it, and its first x (mm)."""
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
    """The columns of one block at its points."""

    rows: Rows
    columns: Rows
    values: Array  # (rows, columns)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockBasis:
    """B, shape (D, d), with orthonormal columns, each of one block."""

    shape: tuple[int, int]
    blocks: tuple[Block, ...]

    def __matmul__(self, V: Array) -> Array:
        """Return ``B V``, shape (D, k)."""
        out = np.zeros((self.shape[0], V.shape[1]))
        for block in self.blocks:
            out[block.rows] = block.values @ V[block.columns]
        return out

    def adjoint(self, values: Array | Data) -> Array:
        """Return ``B' values``, shape (d, T) float64, of values (D, T)."""
        out = np.zeros((self.shape[1], values.shape[1]))
        for block in self.blocks:
            for first in range(0, len(block.rows), _ROWS):
                part = slice(first, first + _ROWS)
                stored = values[block.rows[part]].astype(np.float64)
                out[block.columns] += block.values[part].T @ stored
        return out

    def rows(self, chosen: slice | Rows) -> Array:
        """Return ``B[chosen]``."""
        wanted = np.arange(self.shape[0])[chosen]
        out = np.zeros((len(wanted), self.shape[1]))
        for block in self.blocks:
            at = np.full(self.shape[0], -1)
            at[block.rows] = np.arange(len(block.rows))
            here = at[wanted]
            out[np.ix_(here >= 0, block.columns)] = block.values[here[here >= 0]]
        return out


def grayordinate_basis(places: Sequence[Points], n_basis: int, sigma_mm: float) -> BlockBasis:
    """Leading eigenvectors of all blocks' kernels, nested; ConfigError (E011) for too many."""
    taken = [_taken_apart(one, sigma_mm) for one in places]
    carried = sum(len(values) for values, _ in taken)
    if n_basis > carried:
        raise refused_size(n_basis, f"1 to {carried} on these grayordinates", "lower n_basis.")
    strength = np.concatenate([values for values, _ in taken])
    owner = np.repeat(np.arange(len(taken)), [len(values) for values, _ in taken])
    # Nearly equal ones of two hemispheres in the order of the blocks on every host.
    order = np.lexsort((owner, -np.round(np.log(strength), 9)))[:n_basis]
    blocks = []
    for k, (one, (_, make)) in enumerate(zip(places, taken, strict=True)):
        columns = np.flatnonzero(owner[order] == k)
        if len(columns):
            blocks.append(Block(rows=one.rows, columns=columns, values=make(len(columns))))
    return BlockBasis(shape=(sum(len(one.rows) for one in places), n_basis), blocks=tuple(blocks))


def _taken_apart(one: Points, sigma_mm: float) -> tuple[Array, _Make]:
    """Return falling eigenvalues over the mean row sum, and what makes the first eigenvectors."""
    if one.sphere is not None:
        F = _Harmonics.of(one.sphere, sigma_mm)
        gram = np.zeros((F.size, F.size))
        total = np.zeros(F.size)
        for first in range(0, len(one.sphere), _ROWS):
            part = F.at(one.sphere[first : first + _ROWS])
            gram += part.T @ part
            total += part.sum(axis=0)
        values, vectors = np.linalg.eigh(gram)
        values, vectors = values[::-1], vectors[:, ::-1]
        mean = float(total @ total) / len(one.sphere)

        sphere = one.sphere

        def of_vertices(n: int) -> Array:
            turn = vectors[:, : n + 1] / np.sqrt(values[: n + 1])
            return kernel.orthonormal(_times(F, sphere, turn), values, n)

        return _kept(values, _MIN_EIGENVALUE) / mean, of_vertices
    inside, order, _ = one.box()
    modes = kernel.box_modes(inside, one.mm, sigma_mm, weakest=_MIN_MODE)
    ones = np.ones((len(order), 1))
    mean = float(np.mean(kernel.smooth(inside, one.mm, ones, sigma_mm)))

    def of_voxels(n: int) -> Array:
        out = np.empty((len(order), n))
        out[order] = modes.eigenvectors(inside, n)
        return out

    return _kept(modes.values, _MIN_EIGENVALUE_MODES) / mean, of_voxels


def _kept(values: Array, carried: float) -> Array:
    # One eigenvector more is made than is used, to tell whether the last two are equal.
    return values[: max(1, int(np.count_nonzero(values > carried * values[0])) - 1)]


# -- the kernel itself ----------------------------------------------------------------------------


def smooth(places: Sequence[Points], columns: Array, sigma_mm: float) -> Array:
    """Return ``K columns``, shape (D, n)."""
    out = np.zeros(columns.shape)
    for one in places:
        part = columns[one.rows]
        if one.sphere is not None:
            F = _Harmonics.of(one.sphere, sigma_mm)
            out[one.rows] = _times(F, one.sphere, _transposed(F, one.sphere, part))
        else:
            inside, order, _ = one.box()
            out[one.rows[order]] = kernel.smooth(inside, one.mm, part[order], sigma_mm)
    return out


def mirror_in_basis(
    places: Sequence[Points], B: BlockBasis, *, sigma_mm: float, midline_mm: float
) -> tuple[Array, Array]:
    """Return the diagonal of ``B' K B``, (d,), and ``B' K' B``, (d, d).

    ``K'_ij = k(x_i, M x_j)``; M swaps the hemispheres, and x for -x.
    """
    diagonal, across = np.zeros(B.shape[1]), np.zeros((B.shape[1], B.shape[1]))
    found = {int(block.rows[0]): block for block in B.blocks}
    sides = {one.side: one for one in places if one.sphere is not None}
    for one in places:
        block = found.get(int(one.rows[0]))
        if block is None:
            continue
        if one.sphere is None:
            inside, order, first_mm = one.box()
            U = block.values[order]
            image = kernel.smooth_mirrored(
                inside, one.mm, U, first_mm=first_mm, midline_mm=midline_mm, sigma_mm=sigma_mm
            )
            smoothed = kernel.smooth(inside, one.mm, U, sigma_mm)
            diagonal[block.columns] = np.sum(U * smoothed, axis=0)
            across[np.ix_(block.columns, block.columns)] = U.T @ image
            continue
        F = _Harmonics.of(one.sphere, sigma_mm)
        C = _transposed(F, one.sphere, block.values)
        diagonal[block.columns] = np.sum(C**2, axis=0)
        other = sides["right" if one.side == "left" else "left"]
        partner = found.get(int(other.rows[0]))
        if partner is not None and other.sphere is not None:
            of_other = _transposed(F, other.sphere * (-1.0, 1.0, 1.0), partner.values)
            across[np.ix_(block.columns, partner.columns)] = C.T @ of_other
    return diagonal, across


def is_symmetric(places: Sequence[Points]) -> bool:
    """Whether vertices of both hemispheres that have the same number are mirror images."""
    sides = {one.side: one for one in places if one.sphere is not None}
    left, right = sides.get("left"), sides.get("right")
    if left is None or right is None or left.vertex is None or right.vertex is None:
        return False
    _, a, b = np.intersect1d(left.vertex, right.vertex, return_indices=True)
    if 2 * len(a) < max(len(left.vertex), len(right.vertex)):
        return False
    if left.sphere is None or right.sphere is None:
        return False
    apart = left.sphere[a] - right.sphere[b] * (-1.0, 1.0, 1.0)
    return bool(np.abs(apart).max() <= _CLOSE)


def positions_mm(one: Points) -> Array:
    """Return places (n, 3) in mm: on the sphere of a hemisphere, or of voxels."""
    if one.sphere is not None:
        return RADIUS_MM * one.sphere
    if one.voxels is None:
        raise ValueError("neither vertices nor voxels")
    return np.asarray(one.voxels * np.array(one.mm))


def thinned(one: Points, mm: float) -> Rows:
    """Return some of the points, about `mm` or more apart on average."""
    if one.voxels is None:
        area = 4.0 * np.pi * RADIUS_MM**2
        step = max(1, int(mm**2 * len(one.rows) / area))
        # Neighbours have neighbouring numbers along whole edges: no step of one pattern.
        return np.sort(np.random.default_rng(0).permutation(len(one.rows))[::step])
    steps = np.array([max(1, int(mm // edge)) for edge in one.mm])
    low = one.voxels.min(axis=0)
    return np.flatnonzero(((one.voxels - low) % steps == steps // 2).all(axis=1))


def _transposed(F: _Harmonics, xyz: Array, columns: Array) -> Array:
    parts = (slice(first, first + _ROWS) for first in range(0, len(xyz), _ROWS))
    return np.asarray(sum(F.at(xyz[part]).T @ columns[part] for part in parts))


def _times(F: _Harmonics, places: npt.NDArray[Any], coefficients: Array) -> Array:
    parts = range(0, len(places), _ROWS)
    return np.concatenate([F.at(places[first : first + _ROWS]) @ coefficients for first in parts])


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Harmonics:
    """F of the kernel on a sphere: real spherical harmonics times the roots of their strengths."""

    root: Array  # (L + 1,): of the strength of each degree

    @classmethod
    def of(cls, xyz: Array, sigma_mm: float) -> _Harmonics:
        # Chords: |x - x'|^2 = 2 (1 - t); strengths by Funk and Hecke.
        kappa = (RADIUS_MM / sigma_mm) ** 2
        t, weight = np.polynomial.legendre.leggauss(_NODES)
        profile = weight * np.exp(kappa * (t - 1.0))
        before, now = np.zeros_like(t), np.ones_like(t)
        strength: list[float] = []
        # Not more harmonics than vertices tell apart.
        while (len(strength) + 1) ** 2 <= len(xyz):
            found = 2.0 * np.pi * float(profile @ now)
            if strength and found < _MIN_HARMONIC * strength[0]:
                break
            strength.append(found)
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
        # sin^m and cos, sin of m phi are the real and imaginary part of (x + iy)^m.
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
