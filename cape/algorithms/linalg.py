"""Small dense linear algebra of the private steps: isometric vectors, matrix functions.

It uses ``eigh`` and ``svd`` of numpy, so a round never imports scipy.  Independent noise on an
`svec` is symmetric noise on the matrix (section III of capeDJICA, Imtiaz et al.).
"""

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array


@lru_cache(maxsize=8)  # a run has few sizes, and a round uses each many times
def above_diagonal(n: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of the entries i < j of an (n, n) matrix, row by row."""
    rows, columns = np.triu_indices(n, 1)
    rows.flags.writeable = columns.flags.writeable = False  # cached, hence shared
    return rows, columns


def svec(matrix: Array) -> Array:
    """Isometric vectors (..., n (n + 1) / 2) of symmetric matrices (..., n, n)."""
    # The diagonal, then sqrt(2) times the upper triangle row by row; the lower one is not read.
    # The norm is that of the matrix, and independent noise is GOE noise on the matrix.
    n = matrix.shape[-1]
    rows, columns = above_diagonal(n)
    vector = np.empty((*matrix.shape[:-2], n * (n + 1) // 2))
    vector[..., :n] = np.diagonal(matrix, axis1=-2, axis2=-1)
    vector[..., n:] = matrix[..., rows, columns]
    vector[..., n:] *= np.sqrt(2.0)
    return vector


def smat(vector: Array) -> Array:
    """Symmetric matrices (..., n, n): the inverse of `svec`."""
    n = order_of_svec(vector.shape[-1])
    rows, columns = above_diagonal(n)
    matrix = np.zeros((*vector.shape[:-1], n, n))
    upper = vector[..., n:] / np.sqrt(2.0)
    matrix[..., rows, columns] = upper
    matrix[..., columns, rows] = upper
    diagonal = np.arange(n)
    matrix[..., diagonal, diagonal] = vector[..., :n]
    return matrix


def order_of_svec(length: int) -> int:
    n = (isqrt(8 * length + 1) - 1) // 2
    if n * (n + 1) // 2 != length:
        raise ValueError(f"{length} numbers are no svec of a symmetric matrix")
    return n


def skew(upper: Array, n: int) -> Array:
    """Skew-symmetric matrix of the entries i < j, row by row."""
    matrix = np.zeros((n, n))
    matrix[above_diagonal(n)] = upper
    return matrix - matrix.T


def top_eigenspace(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues (n,), descending, and orthonormal eigenvectors (n, n) of a symmetric matrix.

    Deviation: no SVD (Alg. 3, line 6, Imtiaz et al.), which would put large negative eigenvalues of
    the noise first.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1].copy(), vectors[:, ::-1]
    # The entry of largest magnitude is made positive, so that LAPACK builds agree on signs.
    peaks = np.argmax(np.abs(vectors), axis=0)
    signs = np.sign(vectors[peaks, np.arange(vectors.shape[1])])
    return values, np.ascontiguousarray(vectors * signs)


def unit_columns(matrix: Array) -> Array:
    """Scale columns (..., d, K) to norm 1; zero columns stay zero."""
    norms = np.linalg.norm(matrix, axis=-2, keepdims=True)
    return np.asarray(matrix / np.where(norms > 0.0, norms, 1.0))


def sym_log(matrix: Array, floor: float) -> Array:
    """Logarithm of symmetric matrices (..., n, n) after raising eigenvalues to `floor` > 0."""
    values, vectors = np.linalg.eigh(matrix)
    logs = np.log(np.maximum(values, floor))
    return np.asarray((vectors * logs[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def sym_exp(matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)


def skew_exp(matrix: Array) -> Array:
    """Rotation exp(E), E skew (n, n): Re V diag(exp(-i w)) V^H with ``i E = V diag(w) V^H``."""
    # i E is Hermitian, so this is exact to rounding for an E of any norm, without scipy.
    values, vectors = np.linalg.eigh(1j * matrix)
    rotation: Array = ((vectors * np.exp(-1j * values)) @ vectors.conj().T).real
    return rotation


def along_axes(matrices: Sequence[Array], volume: Array) -> Array:
    """Apply one matrix (new, old) along each of the first axes of a volume (..., n)."""
    for axis, matrix in enumerate(matrices):
        volume = np.moveaxis(np.tensordot(matrix, volume, axes=(1, axis)), 0, axis)
    return volume


def polar(matrix: Array) -> Array:
    """Orthogonal polar factor of a matrix (R, R): the nearest orthogonal matrix."""
    left, _, right = np.linalg.svd(matrix)
    return np.asarray(left @ right)
