"""Public bases B, shape (D, d), on which subjects are projected before any release.

They follow from a grid, a mask or a label image alone.  Columns are orthonormal and nested: the
first d' columns of the d basis are the d' basis.  Privacy bounds hold for any B.  Deviation:
capePCA (Imtiaz et al., Alg. 3) works on D x D second moments of the voxels; here the released
matrix is d x d and the noise (D/d) times smaller.
"""

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.errors import ConfigError

# Decimal digits of a frequency that decide the order of columns, so that ties are exact
SORT_DIGITS = 12

# Minimum diagonal entry of R over the largest; a smaller one shows dependent columns.
MIN_DIAGONAL = 1e-9


def cosines(n: int, n_frequencies: int) -> Array:
    """Cosines ``cos(pi f (i + .5) / n)``, shape (n, n_frequencies), not normalised."""
    positions = np.arange(n)[:, None] + 0.5
    return np.asarray(np.cos(np.pi * positions * np.arange(n_frequencies) / n))


def lowest_cosines(voxels: npt.NDArray[np.intp], n: int, *, digits: int | None = None) -> Array:
    """Product cosines of the bounding box of voxels (D, 3), at the voxels, shape (D, n)."""
    # Ordered by ``(a/nx)^2 + (b/ny)^2 + (c/nz)^2`` to `digits` decimals; ties by a, b, c.
    i, j, k = (voxels - voxels.min(axis=0)).T
    nx, ny, nz = (int(size) for size in np.ptp(voxels, axis=0) + 1)
    a, b, c = (axis.ravel() for axis in np.indices((nx, ny, nz)))
    order = (a / nx) ** 2 + (b / ny) ** 2 + (c / nz) ** 2
    first = np.lexsort((c, b, a, order if digits is None else np.round(order, digits)))[:n]
    columns: Array = cosines(nx, nx)[i][:, a[first]]
    columns *= cosines(ny, ny)[j][:, b[first]]
    columns *= cosines(nz, nz)[k][:, c[first]]
    return columns


def check_size(n_basis: int, limit: int) -> None:
    """Raise ConfigError (E011) unless ``1 <= n_basis <= limit``."""
    if not 1 <= n_basis <= limit:
        raise refused_size(n_basis, f"1 to {limit}")


def refused_size(
    n_basis: int, allowed: str, do: str = "lower n_basis, or use a finer grid."
) -> ConfigError:
    return ConfigError("E011", setting="n_basis", got=n_basis, allowed=allowed, do=do)


def dct_image(image_shape: tuple[int, int], n_basis: int) -> Array:
    """2-D product cosine basis (D, d) of an image, pixels row by row; exactly orthonormal."""
    # Ordered by the larger of the two frequencies relative to their axes, then by row and column.
    n_rows, n_columns = image_shape
    check_size(n_basis, n_rows * n_columns)
    a, b = (axis.ravel() for axis in np.indices(image_shape))
    band = np.round(np.maximum(a / n_rows, b / n_columns), SORT_DIGITS)
    first = np.lexsort((b, a, band))[:n_basis]
    down, across = cosines(n_rows, n_rows), cosines(n_columns, n_columns)
    down /= np.linalg.norm(down, axis=0)
    across /= np.linalg.norm(across, axis=0)
    products = down[:, None, a[first]] * across[None, :, b[first]]
    return np.ascontiguousarray(products.reshape(n_rows * n_columns, n_basis))


def dct_mask(mask: npt.NDArray[np.bool_], n_basis: int) -> Array:
    """3-D orthonormal cosine basis (D, d) in a mask (nx, ny, nz), C order; E011 if too small."""
    # QR with a positive diagonal makes `lowest_cosines` unique and nested.
    voxels = np.argwhere(mask)
    check_size(n_basis, len(voxels))
    return _orthonormal(lowest_cosines(voxels, n_basis, digits=SORT_DIGITS))


def _orthonormal(columns: Array) -> Array:
    q, r = np.linalg.qr(columns)
    diagonal = np.diagonal(r)
    if np.min(np.abs(diagonal)) < MIN_DIAGONAL * np.max(np.abs(diagonal)):
        raise refused_size(columns.shape[1], "what the mask carries")
    return np.ascontiguousarray(q * np.sign(diagonal))


def spanned_by(maps: Array) -> Array:
    """Orthonormal nested columns (D, K) that span the maps; ConfigError (E011) if dependent."""
    return _orthonormal(maps / np.maximum(np.linalg.norm(maps, axis=0), 1e-300))


def led_by(leaders: Array, basis: Array) -> Array:
    """Basis (D, d > K) that begins with the span of `leaders` (D, K), then `basis`; else E011."""
    n, d = leaders.shape[1], basis.shape[1]
    if d <= n:
        raise refused_size(d, f"{n + 1} or more", "the basis holds the templates and more.")
    scaled = leaders / np.maximum(np.linalg.norm(leaders, axis=0), 1e-300)
    return _orthonormal(np.concatenate([scaled, basis[:, : d - n]], axis=1))
