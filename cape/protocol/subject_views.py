"""The forms of a subject's data that stages work on.

Working arrays hold no voxels: a subject is ``B' X_m`` (d x T_m) in a public basis B, then
``V' Y_m``, then whitened by U.  Each working file can be rebuilt from the one before.
"""

from collections.abc import Callable, Iterator
from itertools import groupby

import numpy as np

from cape.algorithms.estimators import Data
from cape.protocol.messages import FeatureSpace
from cape.protocol.model import Model, joined
from cape.protocol.ports import Site, Stacks, View
from cape.settings.resolved import resolve
from cape.space.public_basis import widest_basis

# Temporal rounds leave out a volume whose norm exceeds so many medians of its subject.  Measured:
# .1 % of the volumes of 20 volatile networks, 3 % of three heavy-tailed ones.
SPIKE = 3.0


def prepared(site: Site, space: FeatureSpace) -> Stacks:
    """Return ``B' X_m`` of all subjects in the widest basis, not scaled; read them if needed."""
    n_basis = widest_basis(resolve(site.config), space)

    def build() -> Stacks:
        return stacked(site.source.reduced(n_basis))

    # The key has settings and width only: in `join` there is no roster yet that names the run.
    return site.cached("basis", f"{site.config.digest()}-{n_basis}", build)


def as_read(site: Site, model: Model) -> Stacks:
    return prepared(site, joined(model).space)


def normalised(site: Site, model: Model) -> View:
    """Return Y_m (d, T_m) scaled by `unit_trace`."""
    roster = joined(model)
    d = roster.n_basis
    return View(stacks=prepared(site, roster.space), one=lambda Y: unit_trace(Y[:d]))


def despiked(site: Site, model: Model) -> View:
    """Return Y_m as `normalised` does, with volumes above `SPIKE` medians set to zero."""
    seen = normalised(site, model)
    return View(stacks=seen.stacks, one=lambda Y: without_spikes(seen.one(Y)))


def unit_trace(Y: Data) -> Data:
    """Return Y without its time mean, scaled to covariance of trace 1; zeros if not finite."""
    if Y.shape[1] == 0:
        return np.asarray(Y, dtype=np.float32)
    # Data that are not finite, constant or overflow become zeros, without a message.
    with np.errstate(all="ignore"):
        centred = Y - Y.mean(axis=1, keepdims=True, dtype=np.float64)
        power = float(np.mean(np.sum(centred**2, axis=0)))
    if not np.isfinite(power) or power <= 0.0:
        return np.zeros_like(Y, dtype=np.float32)
    return np.asarray(centred / np.sqrt(power), dtype=np.float32)


def without_spikes(Y: Data) -> Data:
    """Return Y (d, T) of `unit_trace` with volumes above `SPIKE` times the median norm set to 0."""
    # Otherwise each of a few volumes with motion takes one direction of the subject's projector. Y
    # is unchanged if the median norm is 0.
    size = np.linalg.norm(Y.astype(np.float64), axis=0)
    limit = SPIKE * float(np.median(size)) if size.size else 0.0
    if limit <= 0.0 or not np.any(size > limit):
        return Y
    return unit_trace(np.where(size > limit, np.float32(0.0), Y))


def stacked(subjects: Iterator[tuple[str, Data]]) -> Stacks:
    # Only neighbours are stacked, so the order of subjects stays.
    arrays: list[Data] = []
    labels: list[tuple[str, ...]] = []
    for _, group in groupby(subjects, key=lambda pair: pair[1].shape):
        names, parts = zip(*group, strict=True)
        arrays.append(np.stack([np.asarray(part, dtype=np.float32) for part in parts]))
        labels.append(names)
    return Stacks(arrays=tuple(arrays), labels=tuple(labels))


def map_subjects(subjects: Stacks | View, function: Callable[[Data], Data]) -> Stacks:
    """Return the stacks with `function` applied to every subject, and the same labels."""
    if isinstance(subjects, View):
        stacks, one = subjects.stacks, subjects.one
        return map_subjects(stacks, lambda Y: function(one(Y)))
    arrays = tuple(map_stack(array, function) for array in subjects.arrays)
    return Stacks(arrays=arrays, labels=subjects.labels)


def map_stack(array: Data, function: Callable[[Data], Data]) -> Data:
    """Return the stack (n, k, T') of `function` of every subject of a stack (n, d, T)."""
    first = function(array[0])
    # Filled one by one: a list of all results would hold the data twice.
    results = np.empty((len(array), *first.shape), dtype=first.dtype)
    results[0] = first
    for m in range(1, len(array)):
        results[m] = function(array[m])
    return results
