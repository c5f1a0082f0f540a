"""What one stage sees of a subject, and the public basis it is written in.

Voxels never leave their file: a subject is kept as ``B' X_m`` (d x T_m) in a public basis B, then
reduced to ``V' Y_m`` after the PCA release, then whitened by U.  Each step is a working file that
can be made again from the one before, so a site that lost them only loses time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from cape.algorithms import basis, whitening
from cape.algorithms.estimators import Array, Data
from cape.algorithms.pca import Subspace
from cape.computations._ica_model import IcaModel
from cape.computations._model import Model, joined
from cape.config import Config, parse_shape
from cape.errors import ConfigError
from cape.messages import FeatureSpace
from cape.ports import Site, Stacks
from cape.usefulness import BRAIN_ENERGY


def uses_dct(config: Config) -> bool:
    """Tell whether the public basis is a cosine basis (else the features themselves)."""
    if config.basis == "auto":
        return config.feature_space == "mask"
    return config.basis == "dct"


def check_basis(config: Config) -> None:
    """Raise ConfigError for a basis that the feature space cannot have."""
    wanted = {"mask": ("dct", "none"), "atlas": ("atlas", "none"), "matrix": ("dct", "none")}
    allowed = ("auto", *wanted[config.feature_space])
    if config.basis not in allowed:
        raise ConfigError(
            "E011",
            setting="basis",
            got=config.basis,
            allowed=f"{', '.join(allowed)} with feature_space={config.feature_space}",
            do="parcels: feature_space=atlas.",
        )
    if config.feature_space == "matrix" and config.basis == "dct" and not config.image_shape:
        raise ConfigError("E013", setting="image_shape", do="a dct of a matrix needs 2-D images.")


def public_basis(config: Config, space: FeatureSpace, n_basis: int) -> Array | None:
    """Return B (D, d) with orthonormal columns, or None where the features are the basis."""
    if not uses_dct(config):
        return None
    if space.kind == "mask":
        return basis.dct_mask(space.labels() > 0, n_basis)
    rows, columns = parse_shape(config.image_shape)
    return basis.dct_image((rows, columns), n_basis)


def widest_basis(config: Config, space: FeatureSpace) -> int:
    """Return the d that a site prepares in `join`; columns nest, a smaller d is a slice."""
    if not uses_dct(config):
        return space.n_features
    if config.n_basis:
        return min(config.n_basis, space.n_features)
    return min(max(BRAIN_ENERGY), config.max_features, space.n_features)


def prepared(site: Site, space: FeatureSpace) -> Stacks:
    """Return all subjects as ``B' X_m`` in the widest basis, not scaled; reads them if need be."""
    n_basis = widest_basis(site.config, space)

    def build() -> Stacks:
        return stacked(site.source.reduced(n_basis))

    return site.memo("basis", f"{site.config.digest()}-{n_basis}", build)


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
    if model.subspace is None:
        raise RuntimeError("no subspace before the pca release")
    return model.subspace


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
