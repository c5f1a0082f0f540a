"""Sources of uniform bytes, and exact discrete Gaussian integers made of them.

A release reads all its randomness from one `Entropy` in a fixed order, and nothing else, so the
same bytes give the same integers.  No other module of the audit unit may import `secrets`.

N_Z(0, s2) has mass proportional to exp(-x^2 / (2 s2)) on every integer x.  It is drawn by rejection
from a discrete Laplace law (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential
Privacy", NeurIPS 2020).  Every decision is exact: floats decide outside a guard band around the
threshold, where they cannot be wrong; inside it, integers and decimals do.  Continuous draws are
never rounded, because their low bits would reveal data (Mironov, "On significance of the least
significant bits for differential privacy", CCS 2012).  The running time depends on the noise drawn,
never on data.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import isqrt
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cape.privacy.mechanisms import MAX_VARIANCE

Label = Literal["os", "seeded"]
_Integers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bits = npt.NDArray[np.bool_]
_Ratio = Callable[[int], tuple[int, int]]

# More than 100 times the float error of a threshold (about 4 * 2^-53) and of a uniform draw.
GUARD_BAND: Final = 2.0**-44

# More Laplace steps have probability exp(-61) = 3e-27 and would overflow: an error.
_MAX_STEPS: Final = 60

# Tries at a time: their arrays stay in the second-level cache.
_BATCH: Final = 2**16


class Entropy(Protocol):
    """Independent uniform bytes."""

    def token_bytes(self, n: int) -> bytes:
        """Next `n` uniform bytes."""


class NoiseSource(Protocol):
    """Source of a site's draws, which gives bytes only for a named purpose."""

    @property
    def label(self) -> Label:
        """Draws of a "seeded" source are predictable: such a run has no guarantee."""

    def stream(self, *context: str | bytes) -> Entropy:
        """Bytes for one purpose: equal contexts give equal bytes, others independent ones."""


@dataclass(frozen=True, slots=True)
class SecureNoise:
    """Entropy of the operating system: secrets of runs and of sites come from here only."""

    def token_bytes(self, n: int) -> bytes:
        return secrets.token_bytes(n)


def discrete_gaussian(
    variance: int, size: int, source: Entropy, *, guard_band: float = GUARD_BAND
) -> _Integers:
    """Draw `size` independent integers (int64) of the discrete Gaussian law, s2 in 1 .. 2^56.

    Exact arithmetic decides within `guard_band` of a threshold (1.0: always); a wider band is
    slower and gives the same law.  ValueError if an argument is outside its range; ArithmeticError
    if the source is so far from uniform that a draw exceeds the tail of the method.
    """
    if not 1 <= variance <= MAX_VARIANCE:
        raise ValueError("variance: allowed 1 to 2^56")
    if size < 0:
        raise ValueError("size: allowed 0 and more")
    if guard_band < GUARD_BAND:
        raise ValueError("guard_band: allowed 2^-44 and more")
    pieces = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        # 0.48 of the tries are accepted; a few extra ones make a second pass rare.
        batch = min((26 * missing + 9) // 10 + 64, _BATCH)
        piece = _candidates(variance, batch, source, guard_band)[:missing]
        pieces.append(piece)
        missing -= piece.size
    return np.concatenate(pieces)


def _candidates(variance: int, batch: int, source: Entropy, band: float) -> _Integers:
    """Return the accepted draws of `batch` tries, on average 0.48 of them."""
    # Algorithms 2 and 3 of Canonne, Kamath, Steinke: |x| = u + T0 v has a Laplace law on the
    # integers, and exp(-(|x| - s2/T0)^2 / (2 s2)) turns it into the Gaussian one.
    scale = isqrt(variance) + 1  # T0, scale of the Laplace law
    u = _uniform_below(scale, batch, source)
    u = u[_bernoulli_exp(u / scale, lambda i: (int(u[i]), scale), source, band)]
    v = _geometric(u.size, source, band)
    x = u + scale * v
    negative = _signs(x.size, source)
    once = ~(negative & (x == 0))  # zero has one sign only, else its mass would be double
    x, negative = x[once], negative[once]
    gap = x * scale - variance  # |gap| < 2^62
    bottom = 2 * variance * scale**2
    exponent = gap.astype(np.float64) ** 2 / float(bottom)
    is_accepted = _bernoulli_exp(exponent, lambda i: (int(gap[i]) ** 2, bottom), source, band)
    accepted: _Integers = np.where(negative, -x, x)[is_accepted]
    return accepted


def _uniform_below(bound: int, batch: int, source: Entropy) -> _Integers:
    """Uniform integers of {0 .. bound - 1}, at most `batch`."""
    words = _words(batch, source)
    # Words above the last multiple of `bound` are dropped: a remainder would favour small numbers.
    last = np.uint64(2**64 // bound * bound - 1)
    return (words[words <= last] % np.uint64(bound)).astype(np.int64)


def _geometric(count: int, source: Entropy, band: float) -> _Integers:
    """Numbers of successes of Bernoulli(exp(-1)) before the first failure."""
    v = np.zeros(count, dtype=np.int64)
    active = np.arange(count)
    for _ in range(_MAX_STEPS + 1):
        active = active[_bernoulli_exp(np.ones(active.size), lambda _: (1, 1), source, band)]
        if active.size == 0:
            return v
        v[active] += 1
    raise ArithmeticError("the entropy source is broken")


def _bernoulli_exp(exponent: _Floats, ratio: _Ratio, source: Entropy, band: float) -> _Bits:
    """Independent bits with probability exp(-a); the exact a, ``ratio(i)``, decides within `band`.

    `exponent` holds a >= 0 as floats, with a relative error of a few 2^-53 at most.
    """
    words = _words(exponent.size, source)
    uniform = words.astype(np.float64) * 2.0**-64
    threshold = np.exp(-exponent)
    bits: _Bits = uniform < threshold
    # Exact arithmetic decides where the float could be wrong.
    for i in np.flatnonzero(np.abs(uniform - threshold) <= band):
        bits[i] = _below_exp(int(words[i]), *ratio(int(i)), source)
    return bits


def _below_exp(word: int, numerator: int, denominator: int, source: Entropy) -> bool:
    """Tell whether a uniform real, of which `word` is the first 64 bits, is below exp(-a)."""
    # The real lies in [r, r + 1) / 2^bits.  Bits are appended until this interval and one around
    # exp(-a) are disjoint.
    r, bits = word, 64
    while True:
        # More decimal digits than the bits need, 8 of them for the error of exp.
        digits = bits * 2 // 5 + 16
        context = Context(prec=digits, rounding=ROUND_HALF_EVEN, Emin=-999999, Emax=999999)
        exponent = context.divide(Decimal(-numerator), Decimal(denominator))
        threshold = Fraction(context.exp(exponent))
        error = Fraction(1, 10 ** (digits - 8))
        if Fraction(r + 1, 2**bits) <= threshold - error:
            return True
        if Fraction(r, 2**bits) >= threshold + error:
            return False
        r = (r << 64) | int.from_bytes(source.token_bytes(8), "little")
        bits += 64


def _words(count: int, source: Entropy) -> npt.NDArray[np.uint64]:
    return np.frombuffer(source.token_bytes(8 * count), dtype="<u8").astype(np.uint64)


def _signs(count: int, source: Entropy) -> _Bits:
    # One byte of entropy gives eight signs.
    packed = np.frombuffer(source.token_bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(np.bool_)
