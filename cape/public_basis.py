"""The public basis B, from settings and feature space alone: all build it, nobody sends it."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np

from cape.algorithms import basis, kernel
from cape.algorithms.estimators import Array
from cape.config import Config, parse_shape
from cape.feature_space import FeatureSpace

BasisKind = Literal["dct", "kernel", "templates", "none"]


def basis_kind(config: Config) -> BasisKind:
    """Return the recipe of the public basis; ``none``: the features themselves."""
    if config.basis in ("dct", "kernel", "templates"):
        return config.basis
    if config.basis != "auto":
        return "none"
    if config.smooth_basis == "dct":
        return "dct" if config.feature_space == "mask" else "none"
    # Sparse maps need smooth directions, so a kernel is worth it for 2-D images too.
    flat = config.feature_space == "matrix" and config.image_shape
    return "kernel" if config.feature_space == "mask" or flat else "none"


def widest_basis(config: Config, space: FeatureSpace) -> int:
    """Return the d that a site prepares in `join`; columns nest, a smaller d is a slice."""
    kind = basis_kind(config)
    if kind == "none":
        return space.n_features
    if kind == "templates" and space.n_templates:
        return space.n_templates
    # d is known only once all sites have joined, and no file is read twice: prepare for the most.
    return min(config.n_basis or config.widest_smooth_basis(), space.n_features)


def public_basis(config: Config, space: FeatureSpace, n_basis: int) -> Array | None:
    """Return B (D, d) with orthonormal columns, or None where the features are the basis."""
    kind = basis_kind(config)
    if kind == "none":
        return None
    if kind == "templates":
        return basis.spanned_by(space.templates()[:, :n_basis])
    shape = parse_shape(config.image_shape) if space.kind == "matrix" else ()
    plain = _smooth_basis(kind, space, shape, n_basis)
    if not space.n_templates:
        return plain
    # With their span first, the basis holds the templates whatever d is.
    return basis.led_by(space.templates(), plain)


# A run asks for at most two (the widest, and d); a kernel basis takes seconds.
@functools.lru_cache(maxsize=4)
def _smooth_basis(
    kind: BasisKind, space: FeatureSpace, shape: tuple[int, ...], n_basis: int
) -> Array:
    if space.kind == "mask":
        inside = space.labels() > 0
        if kind == "dct":
            B = basis.dct_mask(inside, n_basis)
        else:
            B = kernel.kernel_mask(inside, voxel_mm(space), n_basis)
    elif kind == "dct":
        B = basis.dct_image((shape[0], shape[1]), n_basis)
    else:
        B = kernel.kernel_image((shape[0], shape[1]), n_basis)
    B.flags.writeable = False  # shared by all who ask again
    return B


def voxel_mm(space: FeatureSpace) -> tuple[float, float, float]:
    edges = np.linalg.norm(np.array(space.affine).reshape(4, 4)[:3, :3], axis=0)
    return float(edges[0]), float(edges[1]), float(edges[2])
