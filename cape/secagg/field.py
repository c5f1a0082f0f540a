"""Fixed point: one subject's real answer to bounded integers, and the modular sum back to integers.

What it is: the clip that carries the sensitivity, done in exact integer arithmetic, and the
decoding of a sum modulo 2^64.  What it is not: it draws no noise, makes no mask and knows no
site.  Source: docs/threat-model.md, "Secure sum, step by step".

Scale: an integer u stands for the real number u / gamma with gamma = 2^log2_gamma.  A power of
two, so that scaling a float64 is exact and only the rounding to integers changes a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from cape.errors import ConfigError, SecureAggregationError
from cape.frozen import dataclass

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Ring = npt.NDArray[np.uint64]
Flags = npt.NDArray[np.bool_]
Shape = Literal["ball", "psd"]

MAX_LOG2_SUM: Final = 62
"""A sum must stay below 2^62, so that its sign is never in doubt."""

_TAIL: Final = 12
"""Standard deviations of noise that the bound of a sum leaves room for."""

_MAX_LOG2_GAMMA: Final = 500
"""Far inside the exponents of float64, so that scaling can neither overflow nor lose bits."""

_BLOCK: Final = 1 << 15
"""Entries quantised at a time: a block and its copies stay in the second-level cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantized:
    """Integer sum of one site's clipped answers.

    Parameters
    ----------
    total : ndarray of int64, shape (d,)
        Exact sum over subjects, unit 1 / gamma.
    n_clipped : int
        Subjects scaled down to the bound.  For the site's own log only: depends on data.
    n_rejected : int
        Subjects counted as the zero vector.  For the site's own log only: depends on data.
    """

    total: Integers
    n_clipped: int
    n_rejected: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rows:
    """Integers (n, d) of n subjects, and which of them were changed."""

    integers: Integers
    clipped: Flags
    rejected: Flags


def quantize(answers: Array, *, log2_gamma: int, clip_int: int, shape: Shape) -> Integers:
    """Clip each subject's answer and round it to integers.

    Parameters
    ----------
    answers : ndarray of float64, shape (n_subjects, d)
        One row per subject, any values; a row with a non-finite entry counts as zeros.
    log2_gamma : int
        Scale exponent: gamma = 2^log2_gamma units per 1.0.
    clip_int : int
        Bound of a row's Euclidean norm, in units of 1 / gamma.
    shape : {"ball", "psd"}
        ``psd`` when rows are svec of positive semidefinite matrices.

    Returns
    -------
    ndarray of int64, shape (n_subjects, d)
        Every row u has ``sum(u**2) <= clip_int**2``, exactly, whatever `answers` holds.

    Raises
    ------
    ConfigError
        The bound is too small for d, or its squares do not fit 63 bits.
    """
    answers = np.asarray(answers, dtype=np.float64)
    rho = _float_bound(answers.shape, log2_gamma=log2_gamma, clip_int=clip_int)
    blocks = [
        _quantize_rows(rows, rho=rho, log2_gamma=log2_gamma, clip_int=clip_int, shape=shape)
        for rows in _row_blocks(answers)
    ]
    return np.concatenate([block.integers for block in blocks])


def quantized_sum(answers: Array, *, log2_gamma: int, clip_int: int, shape: Shape) -> Quantized:
    """Sum of `quantize` over subjects, without holding all integers at once.

    Parameters
    ----------
    answers : ndarray of float64, shape (n_subjects, d)
        See `quantize`; so are the other parameters.
    log2_gamma : int
        Scale exponent.
    clip_int : int
        Bound of a row's norm, in units of 1 / gamma.
    shape : {"ball", "psd"}
        Kind of answer.

    Returns
    -------
    Quantized
        The exact sum and two counts for the site's own log.

    Raises
    ------
    ConfigError
        See `quantize`.
    """
    answers = np.asarray(answers, dtype=np.float64)
    rho = _float_bound(answers.shape, log2_gamma=log2_gamma, clip_int=clip_int)
    total = np.zeros(answers.shape[1], dtype=np.int64)
    n_clipped = n_rejected = 0
    for rows in _row_blocks(answers):
        block = _quantize_rows(rows, rho=rho, log2_gamma=log2_gamma, clip_int=clip_int, shape=shape)
        total += sum_subjects(block.integers)
        n_clipped += int(np.count_nonzero(block.clipped))
        n_rejected += int(np.count_nonzero(block.rejected))
    return Quantized(total=total, n_clipped=n_clipped, n_rejected=n_rejected)


def sum_subjects(u: Integers) -> Integers:
    """Exact sum over subjects of rows made by `quantize`.

    Parameters
    ----------
    u : ndarray of int64, shape (n_subjects, d)
        Entries below 2^31.5 in size (`quantize` guarantees it), so that fewer than 2^31
        subjects cannot reach 2^63.

    Returns
    -------
    ndarray of int64, shape (d,)
        The sum, unit 1 / gamma.
    """
    total: Integers = np.sum(u, axis=0, dtype=np.int64)
    return total


def sum_bound(*, n_subjects: int, clip_int: int, n_sites: int, share_variance: int) -> int:
    """Bound B of every entry of a noisy sum: the overflow rule.

    Parameters
    ----------
    n_subjects : int
        Subjects of all sites, M.
    clip_int : int
        Bound of a row's norm, in units of 1 / gamma.
    n_sites : int
        Sites that add a noise share, S.
    share_variance : int
        Integer variance s2 of one share.

    Returns
    -------
    int
        ``M * clip_int + ceil(12 * sqrt(S * s2))``.

    Raises
    ------
    ConfigError
        The bound reaches 2^62.
    """
    bound = n_subjects * clip_int + _ceil_sqrt(_TAIL**2 * n_sites * share_variance)
    if bound >= 1 << MAX_LOG2_SUM:
        raise ConfigError("E221", got=bound.bit_length())
    return bound


def decode_sum(vectors: Sequence[Ring], *, bound: int) -> Integers:
    """Sum masked vectors modulo 2^64 and read the result as signed integers.

    Parameters
    ----------
    vectors : sequence of ndarray of uint64, shape (d,)
        One per site; summed in this order (the order cannot change the result).
    bound : int
        Largest size an entry of the true sum can have, see `sum_bound`.

    Returns
    -------
    ndarray of int64, shape (d,)
        The sum, unit 1 / gamma.

    Raises
    ------
    SecureAggregationError
        Nothing to sum, unequal shapes, another dtype, or an entry past the bound: masks that do
        not cancel leave a uniform number, which passes with probability 2 * bound / 2^64.
    """
    if not vectors or any(
        v.dtype != np.uint64 or v.ndim != 1 or v.shape != vectors[0].shape for v in vectors
    ):
        raise SecureAggregationError("E220", problem="the masked vectors do not have one form")
    if not 0 <= bound < 1 << MAX_LOG2_SUM:
        raise SecureAggregationError("E220", problem="the bound of the sum is out of range")
    total = np.zeros(vectors[0].shape, dtype=np.uint64)
    for vector in vectors:
        total += vector  # wraps modulo 2^64 by definition of uint64 arrays
    signed = total.view(np.int64)
    if np.any((signed > bound) | (signed < -bound)):
        raise SecureAggregationError("E220", problem="the masks do not cancel")
    return signed


def _float_bound(form: tuple[int, ...], *, log2_gamma: int, clip_int: int) -> float:
    """Radius rho of the float clip; also checks the plan's integers against `form`.

    The margin sqrt(d)/2 is what rounding d entries can add to a norm; 1 covers float error.
    """
    if len(form) != 2:
        raise ConfigError("E232", problem="answers are not a matrix", do="one row per subject")
    if abs(log2_gamma) > _MAX_LOG2_GAMMA:
        raise ConfigError("E232", problem="log2_gamma is out of range", do="correct the clip bound")
    d = form[1]
    if d * clip_int**2 >= 1 << 63:
        raise ConfigError("E232", problem="squared norms do not fit 63 bits", do="lower log2_gamma")
    margin = clip_int - math.sqrt(d) / 2 - 1
    if margin <= 0:
        raise ConfigError("E232", problem="rounding would use up the clip", do="raise log2_gamma")
    return math.ldexp(margin, -log2_gamma)


def _row_blocks(answers: Array) -> list[Array]:
    """Cut into views of whole rows, about `_BLOCK` entries each; one empty view for no rows."""
    n_rows = max(1, _BLOCK // max(1, answers.shape[1]))
    return [answers[i : i + n_rows] for i in range(0, max(1, answers.shape[0]), n_rows)]


def _quantize_rows(
    rows: Array, *, rho: float, log2_gamma: int, clip_int: int, shape: Shape
) -> _Rows:
    """Do steps 1 to 4 for one block of subjects."""
    broken: Flags = ~np.all(np.isfinite(rows), axis=1)
    if broken.any():
        rows = np.where(broken[:, np.newaxis], 0.0, rows)  # step 1
    rows, shrunk = _float_clip(rows, rho=rho)  # step 2
    exact = _integer_clip(rows * 2.0**log2_gamma, clip_int=clip_int, shape=shape)
    return _Rows(
        integers=exact.integers,
        clipped=shrunk | exact.clipped,
        rejected=broken | exact.rejected,
    )


def _float_clip(rows: Array, *, rho: float) -> tuple[Array, Flags]:
    """Scale finite rows into the ball of radius `rho`; dividing by the peak avoids overflow."""
    peak = np.max(np.abs(rows), axis=1, initial=0.0)
    w = rows / np.where(peak > 0.0, peak, 1.0)[:, np.newaxis]
    norm = np.sqrt(np.einsum("ij,ij->i", w, w))
    limit = rho / np.where(norm > 0.0, norm, 1.0)
    over = peak > limit
    if over.any():
        rows = np.where(over[:, np.newaxis], w * limit[:, np.newaxis], rows)
    return rows, over


def _integer_clip(scaled: Array, *, clip_int: int, shape: Shape) -> _Rows:
    """Round, then clip exactly (steps 3 and 4): alone carries the bound, for any input.

    A row leaves with squared norm n2 <= clip_int^2: with q = ceil(sqrt(n2)) each entry becomes
    floor(|u_i| clip_int / q), so the squares sum to at most n2 clip_int^2 / q^2 <= clip_int^2.
    """
    rounded = np.rint(scaled)
    wild = ~(np.max(np.abs(rounded), axis=1, initial=0.0) <= clip_int)  # NaN is wild, too
    if wild.any():
        rounded = np.where(wild[:, np.newaxis], 0.0, rounded)
    u = rounded.astype(np.int64)
    n2 = np.einsum("ij,ij->i", u, u)  # exact: at most d clip_int^2 < 2^63
    over = n2 > clip_int**2
    for m in np.flatnonzero(over):  # not reached after the float clip
        q = _ceil_sqrt(int(n2[m]))
        u[m] = 0 if shape == "psd" else np.sign(u[m]) * (np.abs(u[m]) * clip_int // q)
    zeroed = over if shape == "psd" else np.zeros_like(over)
    return _Rows(integers=u, clipped=over & ~zeroed, rejected=wild | zeroed)


def _ceil_sqrt(n: int) -> int:
    """Least q with q^2 >= n, for n >= 1; 0 for n = 0."""
    return math.isqrt(n - 1) + 1 if n else 0
