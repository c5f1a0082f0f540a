"""The public basis B (D x d) in which every subject's data are written, from settings and space.

Nothing here is computed from data: each party makes the same B, bit for bit, by itself.
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np

from cape.algorithms import basis, kernel
from cape.algorithms.estimators import Array
from cape.config import Config, parse_shape
from cape.errors import ConfigError
from cape.feature_space import FeatureSpace
from cape.forecast.alternatives import Separation, spatial_basis
from cape.forecast.temporal import BRAIN_ENERGY

BasisKind = Literal["dct", "kernel", "templates", "none"]


def separation_of(config: Config) -> Separation:
    """Return the model of separation; ``temporal`` where a computation has no other."""
    kind: Separation = getattr(config, "separation", "temporal")
    return kind


def basis_kind(config: Config) -> BasisKind:
    """Return the recipe of the public basis; ``none``: the features themselves."""
    if config.basis == "templates":
        return "templates"
    if config.basis in ("dct", "kernel"):
        return "dct" if config.basis == "dct" else "kernel"
    if config.basis != "auto":
        return "none"
    if separation_of(config) != "temporal":
        flat = config.feature_space == "matrix" and config.image_shape
        return "kernel" if config.feature_space == "mask" or flat else "none"
    return "dct" if config.feature_space == "mask" else "none"


def wants_templates(config: Config) -> bool:
    """Tell whether every site maps the owner's template maps."""
    return separation_of(config) == "template" or config.basis == "templates"


def check_basis(config: Config) -> None:
    """Raise ConfigError for a basis that the feature space cannot have."""
    smooth = ("dct", "none") if separation_of(config) == "temporal" else ("kernel", "dct", "none")
    wanted = {"mask": smooth, "atlas": ("atlas", "none"), "matrix": smooth}
    own = ("templates",) if separation_of(config) == "temporal" else ()
    allowed = ("auto", *wanted[config.feature_space], *own)
    if config.basis not in allowed:
        raise ConfigError(
            "E011",
            setting="basis",
            got=config.basis,
            allowed=f"{', '.join(allowed)} with feature_space={config.feature_space}",
            do="parcels: feature_space=atlas; kernel: another separation than temporal.",
        )
    smooth_matrix = config.feature_space == "matrix" and config.basis in ("dct", "kernel")
    if smooth_matrix and not config.image_shape:
        do = f"a {config.basis} of a matrix needs 2-D images."
        raise ConfigError("E013", setting="image_shape", do=do)


def public_basis(config: Config, space: FeatureSpace, n_basis: int) -> Array | None:
    """Return B (D, d) with orthonormal columns, or None where the features are the basis.

    With templates their span comes first, so that the basis holds them whatever d is.
    """
    kind = basis_kind(config)
    if kind == "none":
        return None
    if kind == "templates":
        return basis.spanned_by(space.templates()[:, :n_basis])
    shape = parse_shape(config.image_shape) if space.kind == "matrix" else ()
    plain = _smooth_basis(kind, space, shape, n_basis)
    if not space.n_templates:
        return plain
    return basis.led_by(space.templates(), plain)


@functools.lru_cache(maxsize=4)
def _smooth_basis(
    kind: BasisKind, space: FeatureSpace, shape: tuple[int, ...], n_basis: int
) -> Array:
    """Return the first smooth directions; kept, because a kernel basis takes seconds."""
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
    """Return the edges of a voxel, mm."""
    edges = np.linalg.norm(np.array(space.affine).reshape(4, 4)[:3, :3], axis=0)
    return float(edges[0]), float(edges[1]), float(edges[2])


def widest_basis(config: Config, space: FeatureSpace) -> int:
    """Return the d that a site prepares in `join`; columns nest, a smaller d is a slice."""
    if basis_kind(config) == "none":
        return space.n_features
    if basis_kind(config) == "templates" and space.n_templates:
        return space.n_templates
    if config.n_basis:
        return min(config.n_basis, space.n_features)
    if separation_of(config) != "temporal":
        widest = spatial_basis(np.inf, int(getattr(config, "n_components", 0)))
        return min(widest, space.n_features)
    return min(max(BRAIN_ENERGY), config.max_features, space.n_features)
