"""Bagged spatial maps of a released mean: averages over new draws of its noise.

New noise from a public seed is added to the release.  Each draw is mirrored and rotated, and
matching maps are averaged.  This is post-processing of a release and costs no privacy.  On 40 real
subjects it raised the correlation with other people's maps by .02 to .03, on smooth noise by .006
to .019.  The stability of a map is its mean correlation with its partners of the draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.algorithms.left_right import mirrored
from cape.algorithms.linalg import smat, unit_columns
from cape.algorithms.scores import best_pairs
from cape.algorithms.spatial import SpatialScore, leading, spatial_ica
from cape.frozen import dataclass

if TYPE_CHECKING:
    from cape.algorithms.spatial import Basis

BAG_SCORE: SpatialScore = "skewness"
REDRAWS = 24
PASSES = 3
POWER = 2  # a map of a draw has the weight |r|^POWER, r with the previous average
# Maximum of features used; maps are smooth, so larger spaces are sampled at every k-th feature.
MAX_SAMPLED_ROWS = 20_000
_SEED = 20_261_124


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Bag:
    """The maps ``B C`` of a released mean."""

    C: Array  # (d, k): each map has std 1 over the features
    stability: Array  # (k,): mean |r| of a map with its partners of the draws
    converged: bool  # whether all rotations converged


def bagged(
    F: Array, basis: Basis | None, n_components: int, *, noise_std: float, J: Array | None
) -> Bag:
    """Return the maps of a released mean F (d, d); `noise_std` is that of an entry of its svec.

    Without noise these are the maps of F itself, with stability 1.
    """
    B, d = sampled_rows(basis, len(F)), len(F)
    first, all_converged = _rotated(F, B, n_components, J)
    if noise_std == 0.0:
        return Bag(C=first, stability=np.ones(first.shape[1]), converged=all_converged)
    draws = []
    for b in range(REDRAWS):
        rng = np.random.default_rng([_SEED, b])  # public: no data, no secret
        again = F + noise_std * smat(rng.standard_normal(d * (d + 1) // 2))
        C, converged = _rotated(again, B, n_components, J)
        draws.append(C)
        all_converged &= converged
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
    return Bag(C=C / np.std(B @ C, axis=0), stability=stability, converged=all_converged)


def sampled_rows(basis: Basis | None, d: int) -> Array:
    """Return rows of the basis at evenly spaced features, at most about `MAX_SAMPLED_ROWS`."""
    if basis is None:
        return np.eye(d)
    every = slice(None, None, max(1, -(-basis.shape[0] // MAX_SAMPLED_ROWS)))
    return basis[every] if isinstance(basis, np.ndarray) else basis.rows(every)


def _rotated(F: Array, B: Array, n_components: int, J: Array | None) -> tuple[Array, bool]:
    """Return coefficients (d, k) of the maps of one mean, and whether their rotation converged."""
    V = leading(F if J is None else mirrored(F, J), n_components)
    rotation = spatial_ica(B @ V, score=BAG_SCORE)
    return V @ rotation.mixing, rotation.converged


def _unit_maps(B: Array, C: Array) -> Array:
    A = B @ C
    return unit_columns(A - A.mean(axis=0))


def _partners(maps: Array, others: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """Return the partner of each map among the same number of others, and their r, (k,) each."""
    r = maps.T @ others
    rows, partner = best_pairs(np.abs(r))
    return partner, r[rows, partner]
