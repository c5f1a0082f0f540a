"""Sign and order of components: one rule, decided once, from released maps only.

The aggregator calls `arrange` on the maps A; everybody applies the resulting integers with
`apply_order`, so no host's rounding flips a map.  Scale is left as released.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array

# Below this |mean z^3| a map has no clear side, and its strongest feature decides.
SKEWNESS_DECIDES = 0.05

# Relative difference up to which two numbers count as equal, so that rounding decides nothing.
TIE = 1e-12


def z_scores(A: Array) -> Array:
    """Columns of the maps (D, R) with mean 0 and std 1 over the features; constant ones are 0."""
    centred = A - A.mean(axis=0)
    std = np.sqrt(np.mean(centred**2, axis=0))
    # Relative to the map: the std of a constant map is rounding, not 0.
    flat = std <= TIE * np.max(np.abs(A), axis=0, initial=0.0)
    z: Array = np.where(flat, 0.0, centred / np.where(flat, 1.0, std))
    return z


def variance_explained(A: Array) -> Array:
    """Energy ||A[:, k]||^2 / sum_j ||A[:, j]||^2, shape (R,); zeros for a zero matrix."""
    energy = np.sum(A**2, axis=0)
    total = float(energy.sum())
    share: Array = energy / total if total > 0 else np.zeros_like(energy)
    return share


def peaks(z: Array) -> npt.NDArray[np.intp]:
    """Lowest index of the largest absolute entry of each column, shape (R,)."""
    size = np.abs(z)
    first: npt.NDArray[np.intp] = np.argmax(size >= size.max(axis=0) * (1.0 - TIE), axis=0)
    return first


def arrange(A: Array, strength: Array | None = None) -> tuple[int, ...]:
    """Signed order of the components of maps (D, R): +-(k + 1) for the old component k.

    Descending `strength` (R,), by default variance explained; equal ones by the lower peak index.
    The sign makes the skewness of the map positive, or, if that is below 0.05, its largest |z|.
    """
    z = z_scores(A)
    at = peaks(z)
    skewness = np.mean(z**3, axis=0)
    at_peak = z[at, np.arange(A.shape[1])]
    # Networks are mostly one-sided; a symmetric map is decided by its strongest feature.
    side = np.where(np.abs(skewness) >= SKEWNESS_DECIDES, skewness, at_peak)
    return tuple(
        int(-(k + 1) if side[k] < 0 else k + 1)
        for k in _descending(variance_explained(A) if strength is None else strength, at.tolist())
    )


def apply_order(order: Sequence[int], matrix: Array, axis: int) -> Array:
    """Put components along `axis` (A: 1; W, W_total, time courses: 0) into signed `order`."""
    index = np.abs(np.asarray(order, dtype=np.intp)) - 1
    shape = [1] * matrix.ndim
    shape[axis] = index.size
    sign = np.sign(np.asarray(order, dtype=np.float64)).reshape(shape)
    arranged: Array = np.ascontiguousarray(np.take(matrix, index, axis=axis) * sign)
    return arranged


def _descending(share: Array, peak: Sequence[int]) -> list[int]:
    """Sort indices by descending share; runs of equal shares by peak, then by index."""
    # A plain sort would let rounding decide between equal shares, differently on two hosts.
    left = sorted(range(share.size), key=lambda k: -share[k])
    done: list[int] = []
    while left:
        first = share[left[0]]
        tied = [k for k in left if share[k] >= first * (1.0 - TIE)]
        done += sorted(tied, key=lambda k: (peak[k], k))
        left = left[len(tied) :]
    return done
