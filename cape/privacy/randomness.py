"""Where noise comes from: the operating system, or a seed in simulations.

This is the only module of the audit unit that may import `secrets`.  Everything random in a
release is drawn through `NoiseSource.token_bytes`; there is no other entropy, no global state and
no numpy generator.  Keys and masks are not made here (`cape.secagg`).
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final, Literal, Protocol

Label = Literal["os", "seeded"]

# Bytes squeezed at a time: 32 permutations of SHAKE-256, whose rate is 136 bytes.
_BLOCK: Final = 32 * 136


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
    """A reproducible byte stream of SHAKE-256, for simulations and tests only.

    Block k of the stream is SHAKE-256(encoding of seed and context, k).  Cutting the requests
    differently does not change the bytes.  The seed is an int, not negative, of any size; the
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
