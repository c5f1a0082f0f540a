"""The template-free kernel basis: leading eigenvectors of a Gaussian kernel over the features.

``K_ij = exp(-|x_i - x_j|^2 / (2 sigma^2))``, x the positions of voxels, pixels or parcels.  The
eigenvectors are the smooth patterns that a mask can hold; they are public, orthonormal and nested.
They are unique up to sign, and up to a rotation among equal eigenvalues; `settled` fixes both, so
all hosts have the same columns up to rounding.  The privacy bounds hold for any basis.
"""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cape.algorithms.basis import check_size, cosines, lowest_cosines, refused_size
from cape.algorithms.estimators import Array
from cape.algorithms.linalg import along_axes, polar
from cape.frozen import dataclass

SIGMA_MM = 12.0  # width of the kernel in a brain, mm
# Width for spatial components: patterns of a narrower kernel vanish at the edge of the mask.
SPATIAL_SIGMA_MM = 30.0
WIDE_MM = 20.0  # minimum width at which a brain has few enough modes for an exact decomposition
_MIN_MODE = 1e-11  # modes of the bounding box below this share of the strongest are rounding
_MIN_EIGENVALUE = 1e-9  # eigenvalues below this share of the largest are rounding
SIGMA_PIXELS = 2.0  # width of the kernel in a 2-D image, pixels
TIED = 1e-6  # neighbouring eigenvalues closer than this share of the larger count as equal
MAX_RESIDUAL = 1e-10  # maximum norm of an eigenvector's residual, over its eigenvalue

MAX_BLOCK_STEPS = 60
DEGREE = 6  # of the Chebyshev polynomial between two checks of the residual
_COLUMNS = 32  # columns processed at a time


def kernel_image(image_shape: tuple[int, int], n_basis: int) -> Array:
    """Kernel basis (D, d) of an image, row by row, by falling eigenvalue; ties by row, column."""
    check_size(n_basis, image_shape[0] * image_shape[1])
    (down, lower), (across, upper) = (_axis(n) for n in image_shape)
    strength = np.multiply.outer(lower, upper)
    a, b = (index.ravel() for index in np.indices(image_shape))
    order = np.round(np.log(np.maximum(strength.ravel(), 1e-300)), 9)
    first = np.lexsort((b, a, -order))[:n_basis]
    products = down[:, None, a[first]] * across[None, :, b[first]]
    return np.ascontiguousarray(products.reshape(-1, n_basis))


def _axis(n: int) -> tuple[Array, Array]:
    """Eigenvectors (n, n) and eigenvalues (n,) of the kernel of one axis of pixels."""
    values, vectors = np.linalg.eigh(_gaussian(n, 1.0 / SIGMA_PIXELS))
    values, vectors = values[::-1], vectors[:, ::-1]
    # The f-th eigenvector gets the sign of the f-th cosine, which it resembles.
    sign = np.sum(vectors * cosines(n, n), axis=0)
    return vectors * np.where(sign < 0.0, -1.0, 1.0), np.maximum(values, 0.0)


def _gaussian(n: int, step: float) -> Array:
    place = step * np.arange(n)
    return np.asarray(np.exp(-0.5 * (place[:, None] - place[None, :]) ** 2))


def _axes(
    box: npt.NDArray[np.bool_], voxel_mm: tuple[float, float, float], sigma_mm: float
) -> list[Array]:
    return [_gaussian(n, mm / sigma_mm) for n, mm in zip(box.shape, voxel_mm, strict=True)]


def spatial_sigma(mask: npt.NDArray[np.bool_], voxel_mm: tuple[float, float, float]) -> float:
    """Return the width (mm) for spatial components: 30 in a brain, less in a part of one."""
    # A quarter of the edge of a cube with the mask's volume: 31 mm for a whole brain (1.9 litres).
    volume = float(np.prod(voxel_mm)) * int(mask.sum())
    return min(SPATIAL_SIGMA_MM, float(np.cbrt(volume)) / 4.0)


def kernel_points(places: Array, n_basis: int, sigma_mm: float = SPATIAL_SIGMA_MM) -> Array:
    """Kernel basis (D, d) of a few positions (D, 3) in mm, such as centres of parcels."""
    # A fixed rule adds columns if d exceeds the number of eigenvalues above rounding.
    check_size(n_basis, len(places))
    values, vectors = np.linalg.eigh(kernel_matrix(places, sigma_mm))
    values, vectors = values[::-1], vectors[:, ::-1]
    n = min(int(np.count_nonzero(values > _MIN_EIGENVALUE * values[0])), n_basis)
    U = settled(vectors[:, : n + 1], values[: n + 1])[:, :n]
    if n == n_basis:
        return np.ascontiguousarray(U)
    irregular = _irregular(len(U), n_basis - n)
    rest = np.linalg.qr(irregular - U @ (U.T @ irregular))[0]
    rest -= U @ (U.T @ rest)  # again: the first difference may be small against its rounding
    return np.ascontiguousarray(np.concatenate([U, np.linalg.qr(rest)[0]], axis=1))


def kernel_matrix(places: Array, sigma_mm: float) -> Array:
    squares = np.sum(places**2, axis=1)
    distance = np.maximum(squares[:, None] + squares[None, :] - 2.0 * places @ places.T, 0.0)
    return np.asarray(np.exp(-distance / (2.0 * sigma_mm**2)))


def kernel_mask(
    mask: npt.NDArray[np.bool_],
    voxel_mm: tuple[float, float, float],
    n_basis: int,
    sigma_mm: float = SIGMA_MM,
) -> Array:
    """Kernel basis (D, d) inside a mask (nx, ny, nz), voxels in C order, by falling eigenvalue."""
    # Block iteration starts from the lowest cosines and applies the kernel axis by axis over the
    # bounding box; the (D, D) kernel is never formed.  Wide kernels use the modes of the box
    # (`_by_modes`).
    voxels = np.argwhere(mask)
    check_size(n_basis, len(voxels))
    box = mask[tuple(map(slice, voxels.min(axis=0), voxels.max(axis=0) + 1))]
    if sigma_mm >= WIDE_MM:
        return _by_modes(box, voxel_mm, sigma_mm, n_basis)
    axes = _axes(box, voxel_mm, sigma_mm)
    width = min(len(voxels), n_basis + max(30, n_basis // 2))
    U = np.linalg.qr(lowest_cosines(voxels, width))[0]
    for _ in range(MAX_BLOCK_STEPS):
        KU = _apply(box, axes, U)
        values, turn = np.linalg.eigh(U.T @ KU)
        values, turn = values[::-1], turn[:, ::-1]
        U, KU = U @ turn, KU @ turn
        residual = (KU - U * values)[:, :n_basis]
        relative = np.linalg.norm(residual, axis=0) / np.maximum(values[:n_basis], 1e-300)
        if float(relative.max()) <= MAX_RESIDUAL:
            break
        U = np.linalg.qr(_filtered(box, axes, U, KU, cut=float(values[-1])))[0]
    return settled(U[:, : n_basis + 1], values[: n_basis + 1])[:, :n_basis]


def smooth(
    mask: npt.NDArray[np.bool_],
    voxel_mm: tuple[float, float, float],
    columns: Array,
    sigma_mm: float = SIGMA_MM,
) -> Array:
    """Apply the kernel of `kernel_mask` to columns (D, n)."""
    return _apply(mask, _axes(mask, voxel_mm, sigma_mm), columns)


def smooth_mirrored(
    mask: npt.NDArray[np.bool_],
    voxel_mm: tuple[float, float, float],
    columns: Array,
    *,
    first_mm: float,
    midline_mm: float,
    sigma_mm: float,
) -> Array:
    """Return ``K' columns``, ``K'_ij = exp(-|x_i - M x_j|^2 / (2 sigma^2))``, M the mirror in x."""
    # `first_mm` is the x of the grid's first voxels, `midline_mm` that of the plane.  The mirror
    # image of a voxel may lie between voxels.
    axes = _axes(mask, voxel_mm, sigma_mm)
    x = (first_mm + voxel_mm[0] * np.arange(mask.shape[0]) - midline_mm) / sigma_mm
    axes[0] = np.exp(-0.5 * (x[:, None] + x[None, :]) ** 2)
    return _apply(mask, axes, columns)


def smooth_image(image_shape: tuple[int, int], columns: Array) -> Array:
    """Apply the kernel of `kernel_image` to columns (D, n)."""
    down, across = (_gaussian(n, 1.0 / SIGMA_PIXELS) for n in image_shape)
    images = columns.reshape(*image_shape, -1)
    return np.asarray(np.einsum("ai,bj,ijn->abn", down, across, images, optimize=True)).reshape(
        columns.shape
    )


def _apply(box: npt.NDArray[np.bool_], axes: list[Array], U: Array) -> Array:
    out = np.empty_like(U)
    for first in range(0, U.shape[1], _COLUMNS):
        part = U[:, first : first + _COLUMNS]
        volume = np.zeros((*box.shape, part.shape[1]))
        volume[box] = part
        out[:, first : first + _COLUMNS] = along_axes(axes, volume)[box]
    return out


def _by_modes(
    box: npt.NDArray[np.bool_], voxel_mm: tuple[float, float, float], sigma_mm: float, n_basis: int
) -> Array:
    """Leading eigenvectors (D, d) at a box's voxels; E011 if d exceeds those above rounding."""
    # Block iteration would fail: the spectrum of a wide kernel falls by 1e6 within the basis.
    modes = box_modes(box, voxel_mm, sigma_mm, min_share=_MIN_MODE)
    limit = int(np.count_nonzero(modes.values > _MIN_EIGENVALUE * modes.values[0]))
    if n_basis > limit:
        raise refused_size(n_basis, f"1 to {limit} in this mask", "lower n_basis.")
    return modes.eigenvectors(box, n_basis)


def box_modes(
    inside: npt.NDArray[np.bool_],
    voxel_mm: tuple[float, float, float],
    sigma_mm: float,
    *,
    min_share: float,
) -> Modes:
    """Decompose the kernel in a box, without modes below `min_share` of the strongest."""
    kernels = tuple(axis.tobytes() for axis in _axes(inside, voxel_mm, sigma_mm))
    return _modes_of(inside.tobytes(), inside.shape, kernels, min_share)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Modes:
    """Decomposition of a kernel inside a box: ``K = F F'``, F the modes of the box, via F'F."""

    # A mode is a product of three functions, one of each axis.  F is never formed: products with F
    # and F'F are computed axis by axis.

    axes: tuple[Array, ...]  # eigenvectors of each axis: (nx, p), (ny, q), (nz, r)
    index: npt.NDArray[np.intp]  # (m, 3): for each mode an eigenvector of each axis, in order
    root: Array  # (m,): roots of the strengths
    values: Array  # (m,): eigenvalues of F'F, which are those of K; falling
    vectors: Array  # (m, m): eigenvectors of F'F

    def eigenvectors(self, box: npt.NDArray[np.bool_], n: int) -> Array:
        """Return the leading eigenvectors (D, n) of K at the voxels of a box."""
        # One more, unless it is rounding, shows whether the last two eigenvalues are equal.
        limit = int(np.count_nonzero(self.values > _MIN_MODE * self.values[0]))
        values = self.values[: min(n + 1, limit)]
        turn = self.vectors[:, : len(values)] / np.sqrt(values)
        return orthonormal(self._times(box, turn), values, n)

    def _times(self, box: npt.NDArray[np.bool_], columns: Array) -> Array:
        out = np.empty((int(box.sum()), columns.shape[1]))
        sizes = [vectors.shape[1] for vectors in self.axes]
        for first in range(0, columns.shape[1], _COLUMNS):
            part = self.root[:, None] * columns[:, first : first + _COLUMNS]
            modes = np.zeros((*sizes, part.shape[1]))
            modes[tuple(self.index.T)] = part
            out[:, first : first + _COLUMNS] = along_axes(self.axes, modes)[box]
        return out


# Cached: a run asks for the widest basis and for its own, and a decomposition takes seconds.
@functools.lru_cache(maxsize=2)
def _modes_of(
    inside: bytes, shape: tuple[int, ...], kernels: tuple[bytes, ...], min_share: float
) -> Modes:
    box = np.frombuffer(inside, dtype=bool).reshape(shape)
    pairs = [
        np.linalg.eigh(np.frombuffer(K).reshape(n, n)) for K, n in zip(kernels, shape, strict=True)
    ]
    x, y, z = (np.maximum(values, 0.0) for values, _ in pairs)
    strength = np.multiply.outer(np.multiply.outer(x, y), z)
    index = np.argwhere(strength > min_share * strength.max())
    root = np.sqrt(strength[tuple(index.T)])
    lowest = index.min(axis=0)
    axes = tuple(vectors[:, first:] for (_, vectors), first in zip(pairs, lowest, strict=True))
    index -= lowest
    values, vectors = np.linalg.eigh(_gram(box, axes, index) * np.multiply.outer(root, root))
    return Modes(
        axes=axes,
        index=index,
        root=root,
        values=values[::-1],
        vectors=np.ascontiguousarray(vectors[:, ::-1]),
    )


def _gram(
    box: npt.NDArray[np.bool_], axes: tuple[Array, ...], index: npt.NDArray[np.intp]
) -> Array:
    """Inner products (m, m) of the modes over the voxels of a box, for modes of strength 1."""
    # ``sum_i x_a x_a' sum_j y_b y_b' sum_k z_c z_c'`` from the right.  The sums over k and j are
    # computed once for each pair of functions.
    x = axes[0]
    (y, y_at), (z, z_at) = (_pairs(vectors) for vectors in axes[1:])
    sums = np.stack([y.T @ (plane @ z) for plane in box.astype(np.float64)]).reshape(len(x), -1)
    gram = np.empty((len(index), len(index)))
    bounds = np.searchsorted(index[:, 0], np.arange(x.shape[1] + 1))
    of_x = [slice(*ends) for ends in pairwise(bounds)]
    for a, k in enumerate(of_x):
        for b, m in enumerate(of_x[: a + 1]):
            total = ((x[:, a] * x[:, b]) @ sums).reshape(y.shape[1], z.shape[1])
            of_y = y_at[index[k, 1][:, None], index[m, 1]]
            of_z = z_at[index[k, 2][:, None], index[m, 2]]
            gram[k, m] = total[of_y, of_z]
            gram[m, k] = gram[k, m].T
    return gram


def _pairs(vectors: Array) -> tuple[Array, npt.NDArray[np.intp]]:
    """Products (n, p (p + 1) / 2) of pairs of an axis's functions; column of each pair, (p, p)."""
    p = vectors.shape[1]
    first, second = np.triu_indices(p)
    at = np.empty((p, p), dtype=np.intp)
    at[first, second] = at[second, first] = np.arange(len(first))
    return vectors[:, first] * vectors[:, second], at


def orthonormal(U: Array, values: Array, n: int) -> Array:
    """Orthonormalise U (D, n or n + 1), which nearly is; return n columns of it, `settled`."""
    # Cholesky gives the triangle of QR, so the columns stay nested.
    Q = U @ np.linalg.inv(np.linalg.cholesky(U.T @ U)).T
    return np.ascontiguousarray(settled(Q, values[: Q.shape[1]])[:, :n])


def _filtered(
    box: npt.NDArray[np.bool_], axes: list[Array], U: Array, KU: Array, *, cut: float
) -> Array:
    """Chebyshev filter T_m(2 K / cut - 1) U, which damps all eigenvectors below `cut`."""
    if cut <= 0.0:
        return KU
    before, now = U, 2.0 / cut * KU - U
    for _ in range(DEGREE - 1):
        before, now = now, 4.0 / cut * _apply(box, axes, now) - 2.0 * now - before
    return now


def settled(U: Array, values: Array) -> Array:
    """Eigenvectors U (D, n) with fixed signs, and a fixed rotation among equal eigenvalues."""
    # The product of a group of equals with fixed irregular columns is made symmetric and positive.
    rows = np.arange(1.0, len(U) + 1.0)
    # Most columns have an eigenvalue of their own and need a sign only.
    settled = U * np.where(np.cos(np.sqrt(2.0) * rows) @ U < 0.0, -1.0, 1.0)
    first = 0
    while first < U.shape[1]:
        last = first + 1
        while last < U.shape[1] and values[last - 1] - values[last] <= TIED * values[last - 1]:
            last += 1
        if last > first + 1:
            group = U[:, first:last]
            settled[:, first:last] = group @ polar(group.T @ _irregular(len(U), last - first))
        first = last
    return settled


def _irregular(n_rows: int, n: int) -> Array:
    """Return cos(i sqrt(2)), cos(i sqrt(3)), ...: columns (n_rows, n) without a pattern."""
    rows = np.arange(1.0, n_rows + 1.0)
    return np.asarray(np.cos(np.multiply.outer(rows, np.sqrt(np.arange(2.0, 2.0 + n)))))
