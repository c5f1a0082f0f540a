"""The public basis B, which every party builds from settings and feature space."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from cape.algorithms import basis, kernel
from cape.algorithms.estimators import Array, Data
from cape.errors import ConfigError
from cape.settings.resolved import BasisKind, Resolved
from cape.space.feature_space import FeatureSpace, coordinates

if TYPE_CHECKING:  # a round on an ordinary mask imports no more than it needs
    from cape.algorithms.interpolated_basis import InterpolatedBasis
    from cape.algorithms.surface_kernel import BlockBasis, PointSet

Basis: TypeAlias = "Array | InterpolatedBasis | BlockBasis"

# Maximum of voxels with B as an array (D, d) in memory; above it, B is interpolated.
MAX_DENSE_FEATURES: Final = 70_000
# Nodes with a weight in the mask, over those inside it: measured for a brain, nodes 4 mm apart
RIM_FACTOR: Final = 1.15
# Modes of a wide kernel in a brain (1,866 to 2,043 at 10 to 4 mm)
BRAIN_MODES: Final = 2000
# d of a run without noise in a mask (`size_of_volume`)
CM3_OF_DIRECTION: Final = 3.0
SMALLEST_BY_VOLUME: Final = 300
# Rows of a subject that are projected at a time: 8192 x 400 doubles are 26 MB.
PROJECTED_ROWS: Final = 8192
_COLUMNS: Final = 8  # columns of a basis that are smoothed at a time
# Bytes to decompose the kernel of grayordinates: for spatial maps, which have at most the last
# number of columns, and for others (measured)
WIDE_MODES, MODES, MAX_WIDE_MODES = 60_000_000, 290_000_000, 300


def widest_basis(how: Resolved, space: FeatureSpace) -> int:
    """Return the d that a site prepares in `join`; a smaller d is a slice, as columns nest."""
    kind = how.basis
    if kind == "none":
        return space.n_features
    if kind in ("templates", "courses") and space.n_templates:
        return space.n_templates
    # d is known after all sites have joined, and no file is read twice: prepare the maximum.
    d = min(how.widest, space.n_features)
    return min(d, size_of_volume(space)) if how.by_volume and kind == "kernel" else d


def size_of_volume(space: FeatureSpace) -> int:
    """Return d of a run without noise in a mask: a direction for `CM3_OF_DIRECTION` of volume.

    A whole brain has about 750 smooth directions above rounding, half of one 480 (`kernel`).
    """
    cm3 = space.n_features * math.prod(voxel_mm(space)) / 1000.0
    return max(SMALLEST_BY_VOLUME, int(cm3 / CM3_OF_DIRECTION))


def public_basis(how: Resolved, space: FeatureSpace, n_basis: int) -> Basis | None:
    """Return B (D, d) with orthonormal columns, or None if the features are the basis.

    For ``courses`` B' X are the time courses of the templates, and columns are not orthonormal.
    ConfigError (E011) for templates with a smooth basis on a mask too fine for an array.
    """
    kind = how.basis
    if kind == "none":
        return None
    if kind == "templates":
        return basis.spanned_by(space.templates()[:, :n_basis])
    if kind == "courses":
        from cape.algorithms.person_outcomes import regressor

        return regressor(space.templates())
    plain = _smooth_basis(kind, space, how.image_shape, n_basis, wide=how.brains)
    if not space.n_templates:
        return plain
    if not isinstance(plain, np.ndarray):
        allowed = f"masks of at most {MAX_DENSE_FEATURES} voxels, or basis = templates"
        do = "use a coarser mask for templates."
        raise ConfigError(
            "E011", setting="mask", got=f"{space.n_features} voxels", allowed=allowed, do=do
        )
    # The templates come first, so every d includes them.
    return basis.led_by(space.templates(), plain)


_Build = Callable[[npt.NDArray[np.bool_], tuple[float, float, float], int], Array]
_BUILD: Final[dict[BasisKind, _Build]] = {
    "dct": lambda mask, _, n_basis: basis.dct_mask(mask, n_basis),
    "kernel": kernel.kernel_mask,
}


class BasisCache(Protocol):
    """A cache of bases between processes; the name of a basis contains all its parameters."""

    def get(self, what: str, n_rows: int) -> Array | None:
        """Return B (D, d), or None if it is not cached."""

    def put(self, what: str, B: Array) -> None: ...


_shelves: list[Callable[[], BasisCache]] = []


def keep_on(shelf: Callable[[], BasisCache]) -> None:
    """Use a cache for bases of masks in this process; it is opened when a basis is needed.

    Programs of one party call this.
    """
    _shelves[:] = [shelf]


def _kept(what: str, n_rows: int, build: Callable[[], Array]) -> Array:
    shelves = [opened() for opened in _shelves]
    for shelf in shelves:
        if (B := shelf.get(what, n_rows)) is not None:
            return B
    # The same layout with and without a cache: another may change the last bits of products.
    B = np.ascontiguousarray(build())
    for shelf in shelves:
        shelf.put(what, B)
    return B


# Cached: a run needs the widest basis and that of d, and a kernel basis takes seconds.
@functools.lru_cache(maxsize=4)
def _smooth_basis(
    kind: BasisKind, space: FeatureSpace, shape: tuple[int, ...], n_basis: int, *, wide: bool
) -> Basis:
    if space.kind == "grayordinates":
        from cape.algorithms.surface_kernel import grayordinate_basis

        sigma = kernel.SPATIAL_SIGMA_MM if wide else kernel.SIGMA_MM
        return grayordinate_basis(grayordinate_points(space), n_basis, sigma)
    if space.kind == "mask":
        inside = space.labels() > 0
        build = _BUILD[kind]
        if kind == "kernel" and wide:
            build = functools.partial(kernel.kernel_mask, sigma_mm=kernel_width(space))
        if space.n_features > MAX_DENSE_FEATURES:
            from cape.algorithms.interpolated_basis import interpolated

            return interpolated(inside, voxel_mm(space), n_basis, build)
        what = f"{kind} {wide} {space.digest} {n_basis}"
        B = _kept(what, space.n_features, lambda: build(inside, voxel_mm(space), n_basis))
    elif space.kind == "atlas":
        B = kernel.kernel_points(coordinates(space), n_basis)
    elif kind == "dct":
        B = basis.dct_image((shape[0], shape[1]), n_basis)
    else:
        B = kernel.kernel_image((shape[0], shape[1]), n_basis)
    B.flags.writeable = False  # cached, hence shared
    return B


def grayordinate_points(space: FeatureSpace) -> tuple[PointSet, ...]:
    """Return the positions of grayordinates: the hemispheres, then all voxels."""
    from cape.algorithms.surface_kernel import PointSet
    from cape.space.grayordinates import LEFT, RIGHT

    hemispheres: list[PointSet] = []
    rows, voxels = [], []
    for part, chosen in space.structure().blocks():
        at = np.arange(chosen.start, chosen.stop)
        if part.n_vertices:
            side = {LEFT: "left", RIGHT: "right"}.get(part.structure, part.structure)
            sphere, vertex = part.on_sphere(), part.index.astype(np.intp)
            hemispheres.append(PointSet(rows=at, sphere=sphere, vertex=vertex, side=side))
        else:
            rows.append(at)
            voxels.append(part.index.astype(np.intp))
    if not voxels:
        return tuple(hemispheres)
    joined = np.concatenate(voxels)
    volume = PointSet(
        rows=np.concatenate(rows),
        voxels=joined,
        mm=voxel_mm(space),
        first_mm=float(space.affine[3]),
    )
    return (*hemispheres, volume)


def smoothed(space: FeatureSpace, columns: Array) -> Array:
    """Return ``K columns`` (D, n), as smooth as the surrogates of spatial maps."""
    if space.kind == "grayordinates":
        from cape.algorithms.surface_kernel import smooth_points

        return smooth_points(grayordinate_points(space), columns, kernel.SIGMA_MM)
    if space.kind == "mask":
        return kernel.smooth(space.labels() > 0, voxel_mm(space), columns)
    if space.kind == "matrix" and len(space.shape) == 2:
        return kernel.smooth_image((space.shape[0], space.shape[1]), columns)
    # Parcels and plain columns have no neighbours.
    return columns


def kernel_width(space: FeatureSpace) -> float:
    """Return the width (mm) of the kernel for spatial maps of this mask."""
    return kernel.spatial_sigma(space.labels() > 0, voxel_mm(space))


def voxel_mm(space: FeatureSpace) -> tuple[float, float, float]:
    edges = np.linalg.norm(np.array(space.affine).reshape(4, 4)[:3, :3], axis=0)
    return float(edges[0]), float(edges[1]), float(edges[2])


def basis_memory(how: Resolved, space: FeatureSpace, n_basis: int) -> int:
    """Estimate the bytes needed to build B; 0 if the features are the basis."""
    if n_basis >= space.n_features:
        return 0
    rows = space.n_features
    if how.basis == "courses":
        return 52 * rows * n_basis  # measured: bench/many_maps.py
    if space.kind == "grayordinates":
        # A column belongs to one of about three blocks, which are made one after the other.
        return (WIDE_MODES if n_basis <= MAX_WIDE_MODES else MODES) + 4 * rows * n_basis
    if space.kind == "atlas":
        return 24 * rows * rows  # the kernel, its eigenvectors and the working memory
    if space.kind == "mask" and rows > MAX_DENSE_FEATURES:
        from cape.algorithms.interpolated_basis import node_steps

        rows = round(RIM_FACTOR * rows / np.prod(node_steps(voxel_mm(space))))
    if how.brains and how.basis == "kernel":  # the modes of a wide kernel (`kernel.kernel_mask`)
        # Measured: the decomposition of F'F; five copies of B to make it orthonormal.
        square = 8 * BRAIN_MODES**2
        return max(5 * square, 40 * rows * n_basis + 2 * square)
    # B in doubles, and two copies of it to make its columns orthonormal.
    return 24 * rows * n_basis


def project(values: Data, B: Basis | None) -> Data:
    """Return ``B' X``, shape (d, T), float32, for X (D, T); a B of None is the identity."""
    if B is None:
        return values
    if B.shape[0] != values.shape[0]:
        raise ValueError(f"basis has {B.shape[0]} rows, the data have {values.shape[0]}")
    if not isinstance(B, np.ndarray):
        return B.adjoint(values).astype(np.float32)
    # Sums are in doubles; in float32 the result would depend on the order of 70,000 voxels.
    total = np.zeros((B.shape[1], values.shape[1]))
    for first in range(0, values.shape[0], PROJECTED_ROWS):
        rows = slice(first, first + PROJECTED_ROWS)
        total += B[rows].T @ values[rows].astype(np.float64)
    return total.astype(np.float32)


def in_basis(B: Basis | None, values: Array | Data) -> Array:
    """Return ``B' values``, shape (d, T) float64; a B of None is the identity."""
    if B is None:
        return values.astype(np.float64)
    return np.asarray(B.T @ values) if isinstance(B, np.ndarray) else B.adjoint(values)


def noise_covariance(space: FeatureSpace, B: Basis) -> Array:
    """Return ``B' K B``, shape (d, d): the covariance in B of smooth noise (K: `kernel.smooth`)."""
    if not isinstance(B, np.ndarray):
        d = B.shape[1]
        parts = (np.eye(d)[:, first : first + _COLUMNS] for first in range(0, d, _COLUMNS))
        return np.concatenate([B.adjoint(smoothed(space, B @ part)) for part in parts], axis=1)
    return np.asarray(B.T @ smoothed(space, B))


def noise_root(space: FeatureSpace, B: Basis) -> Array:
    """Return a root of `noise_covariance`, shape (d, d)."""
    values, vectors = np.linalg.eigh(noise_covariance(space, B))
    # Rounding makes tiny eigenvalues negative.
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
