"""Left and right of a run's feature space: its mirror, and the null distribution of smooth noise.

All functions take public values only: settings, grid, mask or label image, size of the basis.
They are used at the end of a run, and with ``symmetry=assume``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from cape.algorithms import kernel, left_right
from cape.algorithms.estimators import Array
from cape.algorithms.left_right import Mirror, Null
from cape.computations.ica.settings import LeftRightConfig
from cape.frozen import dataclass
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace, coordinates
from cape.space.public_basis import Basis, grayordinate_points, kernel_width, public_basis, voxel_mm

MAX_TILT = 1e-3  # largest part of the grid's x axis that points elsewhere than left to right
MIN_OVERLAP = 0.9  # of a mask with its mirror image, if the midplane is not stated
MIN_PARTNERS = 0.5  # share of voxels that have a partner on the other side
WHITE_MM = 10.0  # edge of the voxels whose white noise `left_right.WHITE_LEVELS` is
SIMULATED_MM = 8.0  # about the least edge of voxels of the simulated null: maps are coarse

# Inputs of `left_right.simulated_null`: smooth fields, the share of white noise at each position,
# rows of the basis there
_Ground = tuple[Callable[[float], left_right.Field], Array, Array | None]


@functools.lru_cache(maxsize=2)
def mirror_of(config: LeftRightConfig, space: FeatureSpace, n_basis: int) -> Mirror | None:
    """Return the mirror in the public basis; None where left and right cannot be compared."""
    how = resolve(config)
    if not how.brains:
        return None
    if space.kind == "atlas":
        partner = _partners(config, space)
        if not (partner >= 0).any():
            return None
        B = public_basis(how, space, n_basis)
        pairs = left_right.swap(partner)
        return left_right.project_mirror(B, pairs) if isinstance(B, np.ndarray) else pairs
    if space.of_cifti:
        return _mirror_of_surfaces(config, space, n_basis)
    midline = midline_of(config, space)
    if midline is None or how.basis != "kernel":  # in which the mirror was measured
        return None
    return _mirror_in(_places(config, space, n_basis), midline, kernel_width(space))


@functools.lru_cache(maxsize=2)
def null_of(
    config: LeftRightConfig, space: FeatureSpace, n_basis: int, mirror: Mirror, R: int
) -> Null:
    """Return the null distribution of subjects of smooth noise in this basis; takes seconds."""
    # R is that of their projectors; 0: soft ones of trace 1.
    if space.kind == "atlas":
        ground = _parcels(space, public_basis(resolve(config), space, n_basis))
    elif space.of_cifti:
        ground = _grayordinates(config, space, n_basis)
    else:
        ground = _voxels(_places(config, space, n_basis))
    return left_right.simulated_null(
        *ground,
        mirror.weighed,
        n_components=R,
        global_signal=resolve(config).reading.cleaning.global_signal,
    )


def _voxels(places: _Places) -> _Ground:
    steps = [max(1, int(SIMULATED_MM // edge)) for edge in places.mm]
    if places.rows is None:  # all voxels are the basis, few enough to be coarse
        steps = [1, 1, 1]
    every = tuple(slice(step // 2, None, step) for step in steps)
    row = np.full(places.inside.shape, -1)
    row[places.inside] = np.arange(int(places.inside.sum()))
    rows = row[every]
    coarse = rows >= 0
    x, y, z = (edge * step for edge, step in zip(places.mm, steps, strict=True))
    coarse_voxels = np.argwhere(coarse)
    box = tuple(map(slice, coarse_voxels.min(axis=0), coarse_voxels.max(axis=0) + 1))
    return (
        lambda sigma: left_right.voxel_fields(coarse[box], (x, y, z), sigma),
        np.ones(len(coarse_voxels)),
        None if places.rows is None else places.rows[rows[coarse]],
    )


def midline_of(config: LeftRightConfig, space: FeatureSpace) -> float | None:
    """Return the x (mm) of the plane between left and right; None if none fits."""
    affine = np.array(space.affine).reshape(4, 4)
    step = float(affine[0, 0])
    tilted = max(np.abs(affine[0, 1:3]).max(), np.abs(affine[1:3, 0]).max())
    if step <= 0.0 or tilted > MAX_TILT * step:
        return None
    inside = space.labels() > 0
    given = config.midline_mm()
    if given is None:
        # Steps of half a voxel: the plane may lie between two voxels.
        sums = range(2 * inside.shape[0] - 1)
        best = max(sums, key=lambda total: overlap(inside, total))
        if overlap(inside, best) < MIN_OVERLAP:
            return None
        return float(affine[0, 3]) + step * best / 2.0
    nearest = round(2.0 * (given - float(affine[0, 3])) / step)
    return given if overlap(inside, nearest) >= MIN_PARTNERS else None


def overlap(inside: npt.NDArray[np.bool_], total: int) -> float:
    """Return the share of voxels i whose mirror `total` - i along the first axis is inside too."""
    other = total - np.arange(len(inside))
    there = (other >= 0) & (other < len(inside))
    both = inside[there] & inside[other[there]]
    return float(both.sum() / inside.sum())


def _partners(config: LeftRightConfig, space: FeatureSpace) -> npt.NDArray[np.intp]:
    """Return the feature on the other side of each parcel (D,), by rising label; -1: none."""
    if not config.label_pairs:
        midline = config.midline_mm()
        if midline is None and space.in_mni:
            midline = 0.0
        if midline is None:
            return np.full(space.n_features, -1)
        return partners(coordinates(space), midline)
    labels = space.labels()
    place = {int(label): k for k, label in enumerate(np.unique(labels[labels > 0]))}
    partner = np.full(len(place), -1)
    for left, right in config.pairs_of_labels():
        if left in place and right in place:
            partner[place[left]], partner[place[right]] = place[right], place[left]
    return partner


def partners(centres: Array, midline: float) -> npt.NDArray[np.intp]:
    """Return the mirror image of each centre (D, 3), -1 without one."""
    # Two centres are a pair if each, mirrored, is nearest to the other, and they lie on opposite
    # sides.
    mirrored = centres * [-1.0, 1.0, 1.0] + [2.0 * midline, 0.0, 0.0]
    apart = np.linalg.norm(mirrored[:, None] - centres[None, :], axis=2)
    nearest = np.argmin(apart, axis=1)
    own = np.arange(len(centres))
    return np.where((nearest[nearest] == own) & (nearest != own), nearest, -1)


def _parcels(space: FeatureSpace, basis: Basis | None) -> _Ground:
    labels, mm = space.labels(), voxel_mm(space)
    inside = labels > 0
    _, parcel, sizes = np.unique(labels[inside], return_inverse=True, return_counts=True)
    means = np.zeros((len(parcel), len(sizes)))
    means[np.arange(len(parcel)), parcel.ravel()] = 1.0 / sizes[parcel.ravel()]

    def field_of(sigma: float) -> left_right.Field:
        # Covariance of a smooth field's means over parcels.
        covariance = means.T @ kernel.smooth(inside, mm, means, sigma)
        root = left_right.symmetric_root(covariance)
        return lambda rng, n_times: root @ rng.standard_normal((len(root), n_times))

    # A mean over many voxels keeps little of the white noise at WHITE_MM.
    white = np.sqrt(np.minimum(WHITE_MM**3 / (sizes * np.prod(mm)), 1.0))
    return field_of, white, basis if isinstance(basis, np.ndarray) else None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Places:
    """The positions at which the basis is known: voxels of the mask, or interpolation nodes."""

    inside: npt.NDArray[np.bool_]  # (nx, ny, nz)
    mm: tuple[float, float, float]
    first_mm: float  # x of the first ones
    rows: Array | None  # (n inside, d): the basis there; None: the identity


def _places(config: LeftRightConfig, space: FeatureSpace, n_basis: int) -> _Places:
    B, at = public_basis(resolve(config), space, n_basis), float(space.affine[3])
    if B is None or isinstance(B, np.ndarray):
        return _Places(inside=space.labels() > 0, mm=voxel_mm(space), first_mm=at, rows=B)
    from cape.algorithms.interpolated_basis import InterpolatedBasis, node_steps

    if not isinstance(B, InterpolatedBasis):
        raise ValueError("places of a mask")
    # A fine mask has an interpolated basis: its nodes are fine enough here.
    first = int(np.argwhere(space.labels() > 0)[:, 0].min())
    x, y, z = (
        edge * step for edge, step in zip(voxel_mm(space), node_steps(voxel_mm(space)), strict=True)
    )
    at += first * float(space.affine[0])
    return _Places(inside=B.used, mm=(x, y, z), first_mm=at, rows=B.coefficients)


def _mirror_in(places: _Places, midline: float, sigma: float) -> Mirror:
    B = places.rows
    if B is None:
        raise ValueError("the mirror is made in a basis")
    across = kernel.smooth_mirrored(
        places.inside, places.mm, B, first_mm=places.first_mm, midline_mm=midline, sigma_mm=sigma
    )
    return left_right.mirror(B, kernel.smooth(places.inside, places.mm, B, sigma), across)


def _mirror_of_surfaces(
    config: LeftRightConfig, space: FeatureSpace, n_basis: int
) -> Mirror | None:
    """Return the mirror that swaps the hemispheres; None if their vertices are not paired."""
    from cape.algorithms import surface_kernel

    B = public_basis(resolve(config), space, n_basis)
    # Similar names do not make parcels of two sides a pair.
    if not isinstance(B, surface_kernel.BlockBasis):
        return None
    places, midline = grayordinate_points(space), config.midline_mm()
    if midline is None or not surface_kernel.is_symmetric(places):
        return None
    diagonal, across = surface_kernel.mirror_in_basis(
        places, B, sigma_mm=kernel.SPATIAL_SIGMA_MM, midline_mm=midline
    )
    return left_right.mirror(np.eye(len(across)), np.diag(diagonal), across)


def _grayordinates(config: LeftRightConfig, space: FeatureSpace, n_basis: int) -> _Ground:
    from cape.algorithms import surface_kernel

    B = public_basis(resolve(config), space, n_basis)
    if not isinstance(B, surface_kernel.BlockBasis):
        raise ValueError("a space without left and right")
    thin, chosen = [], []
    for one in grayordinate_points(space):
        few = surface_kernel.thinned(one, SIMULATED_MM)
        chosen.append(one.rows[few])
        thin.append(surface_kernel.positions_mm(one)[few])
    rows = np.concatenate(chosen)

    def field_of(sigma: float) -> left_right.Field:
        roots = [left_right.symmetric_root(kernel.kernel_matrix(xyz, sigma)) for xyz in thin]
        return lambda rng, n_times: np.concatenate(
            [root @ rng.standard_normal((len(root), n_times)) for root in roots]
        )

    return field_of, np.ones(len(rows)), B.rows(rows)
