"""Fixed point: real answers of subjects to bounded integers, and the modular sum to integers.

The clip in exact integer arithmetic carries the sensitivity.  This module has no noise, masks or
sites.  Source: docs/secure-sum.md, "One sum".
An integer u means u / gamma with gamma = 2^log2_gamma.  Scaling a float64 by a power of two is
exact; only rounding to integers changes a value.
"""

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from cape.errors import ConfigError, SecureAggregationError

_Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Ring = npt.NDArray[np.uint64]
_Shape = Literal["ball", "psd"]

# A sum must stay below 2^62, so that its sign is known.
_MAX_LOG2_SUM: Final = 62

# Far below the largest exponent of float64: scaling can neither overflow nor lose bits.
_MAX_LOG2_GAMMA: Final = 500

# Entries quantised at a time: a block and its copies stay in the second-level cache.
_BLOCK: Final = 1 << 15


def quantize(answers: _Floats, *, log2_gamma: int, clip_int: int, shape: _Shape) -> Integers:
    """Clip each subject's answer and round it: ``sum(u**2) <= clip_int**2``, exactly, for each row.

    `answers` (n_subjects, d) may hold anything; a row with a non-finite entry counts as zeros.
    Unit 1 / gamma; `shape` "psd": svec of PSD matrices.  ConfigError if the bound is too small for
    d, or its squares do not fit 63 bits.
    """
    rows = np.asarray(answers, dtype=np.float64)
    rho = _float_bound(rows.shape, log2_gamma=log2_gamma, clip_int=clip_int)
    # Step 1: zeros, because an error would reveal that this site has a bad subject.
    broken = ~np.all(np.isfinite(rows), axis=1)
    if broken.any():
        rows = np.where(broken[:, np.newaxis], 0.0, rows)
    # Step 2 clips ordinary data; steps 3 and 4 carry the guarantee for any input.
    clipped = _float_clip(rows, rho=rho)
    return _integer_clip(clipped * 2.0**log2_gamma, clip_int=clip_int, shape=shape)


def quantized_sum(answers: _Floats, *, log2_gamma: int, clip_int: int, shape: _Shape) -> Integers:
    """Return the exact sum of `quantize` over subjects; not all integers are in memory at once."""
    answers = np.asarray(answers, dtype=np.float64)
    total = np.zeros(answers.shape[-1], dtype=np.int64)
    for rows in _row_blocks(answers):
        integers = quantize(rows, log2_gamma=log2_gamma, clip_int=clip_int, shape=shape)
        # Entries are below 2^31.5, so fewer than 2^31 subjects cannot reach 2^63.
        total += np.sum(integers, axis=0, dtype=np.int64)
    return total


def decode_sum(vectors: Sequence[Ring], *, bound: int) -> Integers:
    """Sum masked vectors (d,) modulo 2^64 as int64, unit 1 / gamma; `bound` as of `overflow_bound`.

    SecureAggregationError for no vectors, vectors of different form, or an entry past the bound.
    Masks that do not cancel leave uniform entries; one passes with probability 2 * bound / 2^64.
    """
    if not vectors or any(
        v.dtype != np.uint64 or v.ndim != 1 or v.shape != vectors[0].shape for v in vectors
    ):
        raise SecureAggregationError("E220", problem="the masked vectors do not have one form")
    if not 0 <= bound < 1 << _MAX_LOG2_SUM:
        raise SecureAggregationError("E220", problem="the bound of the sum is out of range")
    total = np.zeros(vectors[0].shape, dtype=np.uint64)
    for vector in vectors:
        total += vector  # wraps modulo 2^64 by definition of uint64 arrays
    # Two's complement: numbers from 2^63 up are the negative ones.
    signed = total.view(np.int64)
    # No entry and no value in the text: the sum of a failed run may not be public.
    if np.any((signed > bound) | (signed < -bound)):
        raise SecureAggregationError("E220", problem="the masks do not cancel")
    return signed


def _float_bound(form: tuple[int, ...], *, log2_gamma: int, clip_int: int) -> float:
    """Return the radius rho of the float clip, after checking the plan's integers and `form`."""
    if len(form) != 2:
        raise ConfigError("E232", problem="answers are not a matrix", do="one row per subject")
    if abs(log2_gamma) > _MAX_LOG2_GAMMA:
        raise ConfigError("E232", problem="log2_gamma is out of range", do="correct the clip bound")
    d = form[1]
    # The integer clip squares and adds d entries of up to clip_int in int64.
    if d * clip_int**2 >= 1 << 63:
        raise ConfigError("E232", problem="squared norms do not fit 63 bits", do="lower log2_gamma")
    # Rounding d entries adds at most sqrt(d)/2 to a norm; 1 covers float error.
    margin = clip_int - math.sqrt(d) / 2 - 1
    if margin <= 0:
        raise ConfigError("E232", problem="rounding would use up the clip", do="raise log2_gamma")
    return math.ldexp(margin, -log2_gamma)


def _row_blocks(answers: _Floats) -> list[_Floats]:
    """Return views of whole rows, about `_BLOCK` entries each; one empty view for no rows."""
    # At least one view, so that `quantize` also checks empty answers.
    n_rows = max(1, _BLOCK // max(1, answers.shape[-1]))
    return [answers[i : i + n_rows] for i in range(0, max(1, answers.shape[0]), n_rows)]


def _float_clip(rows: _Floats, *, rho: float) -> _Floats:
    """Return finite rows scaled into the ball of radius `rho`."""
    # Divide by the peak first: squares of huge entries would overflow.
    peak = np.max(np.abs(rows), axis=1, initial=0.0)
    w = rows / np.where(peak > 0.0, peak, 1.0)[:, np.newaxis]
    norm = np.sqrt(np.einsum("ij,ij->i", w, w))
    limit = rho / np.where(norm > 0.0, norm, 1.0)
    over = peak > limit
    if over.any():
        rows = np.where(over[:, np.newaxis], w * limit[:, np.newaxis], rows)
    return rows


def _integer_clip(scaled: _Floats, *, clip_int: int, shape: _Shape) -> Integers:
    """Round, then clip exactly (steps 3 and 4); this alone guarantees the bound for any input."""
    # A row of squared norm n2 > clip_int^2 is scaled: with q = ceil(sqrt(n2)) each entry becomes
    # floor(|u_i| clip_int / q), so the squares sum to at most n2 clip_int^2 / q^2 <= clip_int^2.
    rounded = np.rint(scaled)
    # "not <=" includes NaN; the other values cannot overflow the cast to int64.
    wild = ~(np.max(np.abs(rounded), axis=1, initial=0.0) <= clip_int)
    if wild.any():
        rounded = np.where(wild[:, np.newaxis], 0.0, rounded)
    u = rounded.astype(np.int64)
    n2 = np.einsum("ij,ij->i", u, u)  # exact: at most d clip_int^2 < 2^63
    over = n2 > clip_int**2
    for m in np.flatnonzero(over):  # not reached after the float clip
        q = math.isqrt(int(n2[m]) - 1) + 1
        # The smaller sensitivity of "psd" needs PSD matrices.  Flooring entries could give another
        # matrix; the zero matrix is PSD.
        u[m] = 0 if shape == "psd" else np.sign(u[m]) * (np.abs(u[m]) * clip_int // q)
    return u
