"""What one stage sees of a subject, and the public basis it is written in.

Voxels never leave their file: a subject is kept as ``B' X_m`` (d x T_m) in a public basis B, then
reduced to ``V' Y_m`` after the PCA release, then whitened by U.  Each step is a working file that
can be made again from the one before, so a site that lost them only loses time.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Literal

import numpy as np

from cape.algorithms import basis, kernel, whitening
from cape.algorithms.estimators import Array, Data
from cape.algorithms.pca import Subspace
from cape.config import Config, parse_shape
from cape.errors import ConfigError
from cape.forecast.alternatives import Separation, spatial_basis
from cape.forecast.temporal import BRAIN_ENERGY
from cape.protocol.ica_model import IcaModel
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, joined
from cape.protocol.ports import Site, Stacks

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


def prepared(site: Site, space: FeatureSpace) -> Stacks:
    """Return all subjects as ``B' X_m`` in the widest basis, not scaled; reads them if need be."""
    n_basis = widest_basis(site.config, space)

    def build() -> Stacks:
        return stacked(site.source.reduced(n_basis))

    return site.memo("basis", f"{site.config.digest()}-{n_basis}", build)


def unchanged(site: Site, model: Model) -> Stacks:
    """Return the subjects' matrices (d, T_m) as they are."""
    return prepared(site, joined(model).space)


def raw(site: Site, model: Model) -> Stacks:
    """Return Y_m (d, T_m): no time mean, trace of the covariance 1; zeros if not finite."""
    roster = joined(model)
    d = roster.n_basis
    return _mapped(prepared(site, roster.space), lambda Y: unit_trace(Y[:d]))


def reduced(site: Site, model: IcaModel, *, prewhiten: whitening.Prewhiten) -> Stacks:
    """Return Z0_m = V'Y_m (k, T), filtered in time and scaled to unit trace."""
    V = subspace(model).V

    def build() -> Stacks:
        return _mapped(
            raw(site, model), lambda Y: whitening.reduce_subject(V, Y, prewhiten=prewhiten)
        )

    return site.memo("reduced", _key(V), build)


def whitened(site: Site, model: IcaModel, U: Array, *, prewhiten: whitening.Prewhiten) -> Stacks:
    """Return Z_m = U Z0_m (k, T), the same for all rounds of a solver."""

    def build() -> Stacks:
        stacks = reduced(site, model, prewhiten=prewhiten)
        arrays = tuple(whitening.whiten(U, array) for array in stacks.arrays)
        return Stacks(arrays=arrays, labels=stacks.labels)

    return site.memo("whitened", _key(subspace(model).V, U), build)


def mapped(site: Site, model: IcaModel, name: str, rows: Array) -> Stacks:
    """Return ``rows @ Y_m`` (k, T_m) of every subject in float32, kept as working arrays `name`."""

    def one(Y: Data) -> Data:
        if Y.shape[1] == 0:
            return np.zeros((len(rows), 1), dtype=np.float32)  # no time point: the zero vector
        return np.asarray(rows @ Y.astype(np.float64), dtype=np.float32)

    def build() -> Stacks:
        return _mapped(raw(site, model), one)

    return site.memo(name, _key(rows), build)


def subspace(model: IcaModel) -> Subspace:
    """Return the released subspace of a run that has one."""
    if model.spatial is not None:
        return model.spatial.subspace
    if model.subspace is None:
        raise RuntimeError("no subspace before the pca release")
    return model.subspace


def n_directions(model: IcaModel) -> int:
    """Return k, the directions of the released subspace."""
    return int(subspace(model).V.shape[1])


def unit_trace(Y: Data) -> Data:
    """Return Y without its time mean, scaled to covariance of trace 1; zeros if not finite."""
    if Y.shape[1] == 0:
        return np.asarray(Y, dtype=np.float32)
    with np.errstate(all="ignore"):
        centred = Y - Y.mean(axis=1, keepdims=True, dtype=np.float64)
        power = float(np.mean(np.sum(centred**2, axis=0)))
    if not np.isfinite(power) or power <= 0.0:
        return np.zeros_like(Y, dtype=np.float32)
    return np.asarray(centred / np.sqrt(power), dtype=np.float32)


def stacked(subjects: Iterator[tuple[str, Data]]) -> Stacks:
    """Return subjects with neighbours of equal length stacked; the order stays."""
    arrays: list[Data] = []
    labels: list[tuple[str, ...]] = []
    for _, group in groupby(subjects, key=lambda pair: pair[1].shape):
        names, parts = zip(*group, strict=True)
        arrays.append(np.stack([np.asarray(part, dtype=np.float32) for part in parts]))
        labels.append(names)
    return Stacks(arrays=tuple(arrays), labels=tuple(labels))


def _mapped(stacks: Stacks, function: Callable[[Data], Data]) -> Stacks:
    arrays = tuple(np.stack([function(one) for one in array]) for array in stacks.arrays)
    return Stacks(arrays=arrays, labels=stacks.labels)


def _key(*arrays: Array) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
