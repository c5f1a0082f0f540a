"""Bagged spatial maps: what a released mean gives under many draws of the noise that it carries.

Noise is drawn again, from a public seed, on top of the release; each draw is mirrored and rotated,
and the maps that belong together are averaged.  Free post-processing of a release: on 40 real
subjects it brought .02 to .03 of likeness to other people, on smooth noise .006 to .019.  How far a
map stays itself over the draws is its stability.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.left_right import mirrored
from cape.algorithms.linalg import smat, unit_columns
from cape.algorithms.scores import best_pairs
from cape.algorithms.spatial import Score, leading, spatial_ica
from cape.frozen import dataclass

if TYPE_CHECKING:
    from cape.algorithms.spatial import Basis

SCORE: Score = "skewness"
REDRAWS = 24
PASSES = 3
POWER = 2  # a draw counts by |r|^POWER of its map with the mean of before
# Maps are smooth: of more features than these every k-th one decides
MAX_ROWS = 20_000
_SEED = 20_261_124


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Bag:
    """The maps ``B C`` of a released mean."""

    C: Array  # (d, k): each map has std 1 over the features
    stability: Array  # (k,): mean |r| with its partners of the draws
    converged: bool  # whether all rotations settled


def bagged(
    F: Array, basis: Basis | None, n_components: int, *, noise_std: float, J: Array | None
) -> Bag:
    """Return the maps of a released mean F (d, d); `noise_std` is that of an entry of its svec.

    Without noise there is nothing to draw: the maps of F itself, all of stability 1.
    """
    B, d = sampled_rows(basis, len(F)), len(F)
    first, settled = _rotated(F, B, n_components, J)
    if noise_std == 0.0:
        return Bag(C=first, stability=np.ones(first.shape[1]), converged=settled)
    draws = []
    for b in range(REDRAWS):
        rng = np.random.default_rng([_SEED, b])  # public: no data, no secret
        again = F + noise_std * smat(rng.standard_normal(d * (d + 1) // 2))
        C, converged = _rotated(again, B, n_components, J)
        draws.append(C)
        settled &= converged
    C, others = first, [_unit_maps(B, C) for C in draws]
    for step in range(PASSES):
        maps = _unit_maps(B, C)
        total = C.copy() if step == 0 else np.zeros_like(C)
        for other, coefficients in zip(others, draws, strict=True):
            partner, r = _partners(maps, other)
            total += coefficients[:, partner] * np.sign(r) * np.abs(r) ** POWER
        C = total
    maps = _unit_maps(B, C)
    stability = np.mean([np.abs(_partners(maps, other)[1]) for other in others], axis=0)
    return Bag(C=C / np.std(B @ C, axis=0), stability=stability, converged=settled)


def sampled_rows(basis: Basis | None, d: int) -> Array:
    """Return rows of the basis at evenly chosen features, at most about `MAX_ROWS`."""
    if basis is None:
        return np.eye(d)
    every = slice(None, None, max(1, -(-basis.shape[0] // MAX_ROWS)))
    return basis[every] if isinstance(basis, np.ndarray) else basis.rows(every)


def _rotated(F: Array, B: Array, n_components: int, J: Array | None) -> tuple[Array, bool]:
    """Return coefficients (d, k) of the maps of one mean, and whether their rotation settled."""
    V = leading(F if J is None else mirrored(F, J), n_components)
    rotation = spatial_ica(B @ V, score=SCORE)
    return V @ rotation.mixing, rotation.converged


def _unit_maps(B: Array, C: Array) -> Array:
    A = B @ C
    return unit_columns(A - A.mean(axis=0))


def _partners(maps: Array, others: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """Return for each map its partner among as many others, and their r."""
    r = maps.T @ others
    rows, partner = best_pairs(np.abs(r))
    return partner, r[rows, partner]
