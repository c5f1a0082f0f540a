"""Sign and order of components, decided once by one rule, from released maps only.

The aggregator calls `arrange` on the maps A.  All parties apply the resulting integers with
`apply_order`, so the rounding of no host flips a map.  The scale does not change.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array

# Minimum |mean z^3| that decides the sign of a map; below it, the strongest feature does.
MIN_SKEWNESS = 0.05

# Maximum relative difference of numbers that count as equal, so that rounding decides nothing
TIE = 1e-12
# Distance from a map's background, squared, at which a feature keeps half of its value
BACKGROUND = 4.0


def z_scores(A: Array) -> Array:
    """Scale maps (D, R) to mean 0 and std 1 over the features; constant maps become 0."""
    centred = A - A.mean(axis=0)
    std = np.sqrt(np.mean(centred**2, axis=0))
    # Relative to the map, because rounding gives a constant map a positive std.
    flat = std <= TIE * np.max(np.abs(A), axis=0, initial=0.0)
    z: Array = np.where(flat, 0.0, centred / np.where(flat, 1.0, std))
    return z


def above_background(z: Array) -> Array:
    """Shrink z-maps (D, R) to 0 where they do not stand out of their own background."""
    # A feature has the weight ``r^2 / (r^2 + 4)``, r its distance from the map's median in robust
    # standard deviations; a map without spread stays as it is.
    centred = z - np.median(z, axis=0)
    spread = 1.4826 * np.median(np.abs(centred), axis=0)
    square = (centred / np.where(spread > 0.0, spread, np.inf)) ** 2
    weight = np.where(spread > 0.0, square / (square + BACKGROUND), 1.0)
    return np.asarray(centred * weight)


def variance_explained(A: Array) -> Array:
    """Energy ||A[:, k]||^2 / sum_j ||A[:, j]||^2, shape (R,); zeros for a zero matrix."""
    energy = np.sum(A**2, axis=0)
    total = float(energy.sum())
    share: Array = energy / total if total > 0 else np.zeros_like(energy)
    return share


def peaks(z: Array) -> npt.NDArray[np.intp]:
    """Index of the largest absolute entry of each column, (R,); ties: the lowest."""
    size = np.abs(z)
    first: npt.NDArray[np.intp] = np.argmax(size >= size.max(axis=0) * (1.0 - TIE), axis=0)
    return first


def arrange(A: Array, strength: Array | None = None) -> tuple[int, ...]:
    """Signed order of the components of maps (D, R): +-(k + 1) for the old component k."""
    # By descending `strength` (R,), by default the variance explained; ties by the lower peak
    # index.  The sign makes the skewness of the map positive or, if |skewness| < 0.05, its largest
    # |z|.
    z = z_scores(A)
    at = peaks(z)
    skewness = np.mean(z**3, axis=0)
    at_peak = z[at, np.arange(A.shape[1])]
    sign = np.where(np.abs(skewness) >= MIN_SKEWNESS, skewness, at_peak)
    return tuple(
        int(-(k + 1) if sign[k] < 0 else k + 1)
        for k in _descending(variance_explained(A) if strength is None else strength, at.tolist())
    )


def apply_order(order: Sequence[int], matrix: Array, axis: int) -> Array:
    """Put the components along `axis` (A: 1; W, W_total, time courses: 0) in signed `order`."""
    index = np.abs(np.asarray(order, dtype=np.intp)) - 1
    shape = [1] * matrix.ndim
    shape[axis] = index.size
    sign = np.sign(np.asarray(order, dtype=np.float64)).reshape(shape)
    arranged: Array = np.ascontiguousarray(np.take(matrix, index, axis=axis) * sign)
    return arranged


def _descending(share: Array, peak: Sequence[int]) -> list[int]:
    """Sort indices by descending share; equal shares by peak, then by index."""
    # In a plain sort rounding would decide between equal shares, differently on two hosts.
    remaining = sorted(range(share.size), key=lambda k: -share[k])
    order: list[int] = []
    while remaining:
        largest = share[remaining[0]]
        tied = [k for k in remaining if share[k] >= largest * (1.0 - TIE)]
        order += sorted(tied, key=lambda k: (peak[k], k))
        remaining = remaining[len(tied) :]
    return order
