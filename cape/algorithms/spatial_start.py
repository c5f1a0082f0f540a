"""Where the rounds of joint temporal ICA may begin: the spatial components of the subspace.

Rounds spend half of their budget on leaving a random start.  Networks that are sparse in space are
nearly found by spatial ICA of the released subspace, which costs nothing; a gate asks first whether
its maps are sparser than those of equally smooth noise.  Post-processing of released V and U, done
once, by the aggregator: FastICA of another host could stop at another step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.linalg import polar
from cape.algorithms.spatial import kurtosis, sparseness, spatial_ica
from cape.frozen import dataclass

if TYPE_CHECKING:
    from cape.algorithms.interpolated_basis import InterpolatedBasis
    from cape.algorithms.surface_kernel import BlockBasis

# The gate opens above GATE_FACTOR * (kurtosis of noise) + GATE_OFFSET.  Not a ratio: with few
# components the kurtosis of noise is about 0.
GATE_FACTOR = 1.5
GATE_OFFSET = 0.7

# Maps with one side are found better by their skewness, maps with two not at all: share of the
# kurtosis of tanh components that those of skewness keep, .97 and .72 where it was measured.
ONE_SIDED = 0.85


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialStart:
    """Where the rounds begin."""

    W: Array  # (k, k), orthogonal; the identity if the gate is shut
    gate: bool  # whether the maps are sparse enough


def spatial_start(
    basis: Array | InterpolatedBasis | BlockBasis | None, V: Array, U: Array
) -> SpatialStart:
    """Start of the rounds from subspace V (d, k) and whitener U (k, k); basis (D, d) or None.

    Maps are ``B V U^-1 W'``, so those of the spatial set are met by rows of W along ``U mixing``.
    """
    maps = V if basis is None else basis @ V
    mixing = spatial_ica(maps).mixing
    found = sparseness(basis, V, mixing)
    if found.kurtosis <= GATE_FACTOR * found.surrogate + GATE_OFFSET:
        return SpatialStart(W=np.eye(len(U)), gate=False)
    one_sided = spatial_ica(maps, score="skewness").mixing
    sparse, skewed = (
        float(np.median(kurtosis(maps @ rotation))) for rotation in (mixing, one_sided)
    )
    directions = U @ (one_sided if skewed >= ONE_SIDED * sparse else mixing)
    return SpatialStart(W=polar((directions / np.linalg.norm(directions, axis=0)).T), gate=True)
