"""Where noise comes from: bytes of the operating system or of a seed, and exact Gaussian integers.

Everything random in a release is drawn through `NoiseSource.token_bytes`: no other entropy, no
global state, no numpy generator.  The only module of the audit unit that may import `secrets`.
N_Z(0, s2) has mass proportional to exp(-x^2 / (2 s2)) on every integer x, by rejection from a
discrete Laplace law (Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy",
NeurIPS 2020).  Every decision is the exact one: a float decides only where it cannot be wrong,
integers and decimals inside a guard band around the threshold.  No rounding of a continuous draw:
its low bits tell data apart (Mironov, "On significance of the least significant bits for
differential privacy", CCS 2012).  The running time depends on the noise drawn, never on data.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import isqrt
from typing import Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from cape.privacy.mechanisms import LARGEST_VARIANCE

Label = Literal["os", "seeded"]
_Integers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bits = npt.NDArray[np.bool_]
_Ratio = Callable[[int], tuple[int, int]]

# Bytes squeezed at a time: 32 permutations of SHAKE-256, whose rate is 136 bytes.
_BLOCK: Final = 32 * 136

# More than 100 times the float error of a threshold (about 4 * 2^-53) and of a uniform draw.
GUARD_BAND: Final = 2.0**-44

# More Laplace steps than that have probability exp(-61) = 3e-27 and would overflow: an error.
_TAIL: Final = 60

# Tries at a time: their arrays stay in the second-level cache.
_BATCH: Final = 2**16


class NoiseSource(Protocol):
    """An entropy port: independent uniform bytes."""

    @property
    def label(self) -> Label:
        """Bytes of a "seeded" source are predictable: such a run guarantees nothing."""
        ...

    def token_bytes(self, n: int) -> bytes:
        """Next `n` uniform bytes."""
        ...

    def stream(self, *context: str | int) -> NoiseSource:
        """Source for one purpose, named by `context`."""
        ...


@dataclass(frozen=True, slots=True)
class SecureNoise:
    """Entropy of the operating system, the only source for real data."""

    @property
    def label(self) -> Label:
        return "os"

    def token_bytes(self, n: int) -> bytes:
        return secrets.token_bytes(n)  # no buffer: a copied process must not repeat noise

    def stream(self, *context: str | int) -> SecureNoise:
        return self


class SeededNoise:
    """A reproducible byte stream for simulations and tests only: SHAKE-256(seed and context, k).

    However requests are cut, the bytes are the same.  The seed is an int >= 0 of any size; the
    context names the stream: by custom site, phase, round, purpose.  ValueError for other types.
    """

    __slots__ = ("_block", "_buffer", "_context", "_key", "_seed")

    def __init__(self, seed: int, context: tuple[str | int, ...] = ()) -> None:
        # A bool or a float would be another seed than the text that it was read from says.
        if type(seed) is not int or seed < 0:
            raise ValueError("a seed is a non-negative int")
        self._seed = seed
        self._context = tuple(context)
        self._key = b"cape/1/seeded" + b"".join(_encode(part) for part in (seed, *context))
        self._block = 0
        self._buffer = b""

    @property
    def label(self) -> Label:
        return "seeded"

    def token_bytes(self, n: int) -> bytes:
        if n < 0:
            raise ValueError("a number of bytes is not negative")
        # What was squeezed and not used is kept for the next request.
        pieces, have = [self._buffer], len(self._buffer)
        while have < n:
            counter = self._block.to_bytes(8, "little")
            pieces.append(hashlib.shake_256(self._key + counter).digest(_BLOCK))
            self._block += 1
            have += _BLOCK
        joined = b"".join(pieces)
        self._buffer = joined[n:]
        return joined[:n]

    def stream(self, *context: str | int) -> SeededNoise:
        # From the seed and the contexts alone, not from what was drawn before: a round that is
        # played again gets the same noise.
        return SeededNoise(self._seed, (*self._context, *context))


def _encode(part: str | int) -> bytes:
    """Encode one part so that a sequence of parts is read back in one way only."""
    # Kind and length: ("a", 1), ("a1",) and ("a", "1") are three streams.
    if isinstance(part, str):
        kind, text = b"s", part.encode()
    elif type(part) is int:
        kind, text = b"i", str(part).encode()
    else:
        raise ValueError("a context is made of str and int")
    return kind + len(text).to_bytes(8, "little") + text


def discrete_gaussian(
    variance: int, size: int, source: NoiseSource, *, guard_band: float = GUARD_BAND
) -> _Integers:
    """Draw `size` independent integers (int64) of the discrete Gaussian law, s2 in 1 .. 2^56.

    Decisions within `guard_band` of their threshold are exact: larger is slower, the law is the
    same (1.0: all of them).  ValueError if an argument is outside its range; ArithmeticError if the
    source is so far from uniform that the tail of the method is left.
    """
    if not 1 <= variance <= LARGEST_VARIANCE:
        raise ValueError("variance: allowed 1 to 2^56")
    if size < 0:
        raise ValueError("size: allowed 0 and more")
    if guard_band < GUARD_BAND:
        raise ValueError("guard_band: allowed 2^-44 and more")
    pieces = [np.empty(0, dtype=np.int64)]
    missing = size
    while missing > 0:
        # 0.48 of the tries are accepted; a few more make a second turn rare.
        batch = min((26 * missing + 9) // 10 + 64, _BATCH)
        piece = _candidates(variance, batch, source, guard_band)[:missing]
        pieces.append(piece)
        missing -= piece.size
    return np.concatenate(pieces)


def _candidates(variance: int, batch: int, source: NoiseSource, band: float) -> _Integers:
    """Turn `batch` tries into accepted draws, on average 0.48 of them."""
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
    kept = _bernoulli_exp(exponent, lambda i: (int(gap[i]) ** 2, bottom), source, band)
    accepted: _Integers = np.where(negative, -x, x)[kept]
    return accepted


def _uniform_below(bound: int, batch: int, source: NoiseSource) -> _Integers:
    """Uniform integers of {0 .. bound - 1}, at most `batch`."""
    words = _words(batch, source)
    # Words of the uneven rest are dropped: a plain remainder would prefer small numbers.
    last = np.uint64(2**64 // bound * bound - 1)
    return (words[words <= last] % np.uint64(bound)).astype(np.int64)


def _geometric(count: int, source: NoiseSource, band: float) -> _Integers:
    """Numbers of successes of Bernoulli(exp(-1)) before the first failure."""
    v = np.zeros(count, dtype=np.int64)
    active = np.arange(count)
    for _ in range(_TAIL + 1):
        active = active[_bernoulli_exp(np.ones(active.size), lambda _: (1, 1), source, band)]
        if active.size == 0:
            return v
        v[active] += 1
    raise ArithmeticError("the entropy source is broken")


def _bernoulli_exp(exponent: _Floats, ratio: _Ratio, source: NoiseSource, band: float) -> _Bits:
    """Independent bits with probability exp(-a); ``ratio(i)``, the exact a, decides within `band`.

    `exponent` holds a >= 0 as floats, wrong by a few 2^-53 relative at most.
    """
    words = _words(exponent.size, source)
    uniform = words.astype(np.float64) * 2.0**-64
    threshold = np.exp(-exponent)
    bits: _Bits = uniform < threshold
    # Where the float could be wrong, and only there, exact arithmetic decides.
    for i in np.flatnonzero(np.abs(uniform - threshold) <= band):
        bits[i] = _below_exp(int(words[i]), *ratio(int(i)), source)
    return bits


def _below_exp(word: int, numerator: int, denominator: int, source: NoiseSource) -> bool:
    """Tell whether a uniform real, of which `word` is the first 64 bits, is below exp(-a)."""
    # The real lies in [r, r + 1) / 2^bits; bits are appended until this interval and an interval
    # around exp(-a) are disjoint.
    r, bits = word, 64
    while True:
        # More decimal digits than the bits so far need, 8 of them for the error of exp.
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


def _words(count: int, source: NoiseSource) -> npt.NDArray[np.uint64]:
    return np.frombuffer(source.token_bytes(8 * count), dtype="<u8").astype(np.uint64)


def _signs(count: int, source: NoiseSource) -> _Bits:
    # One byte of entropy gives eight signs.
    packed = np.frombuffer(source.token_bytes((count + 7) // 8), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(np.bool_)
