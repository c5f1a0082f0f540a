"""Shamir sharing of 32-byte secrets over the prime field of 2^521 - 1 (Shamir 1979).

Fewer than `threshold` shares say nothing.  Shares carry no check of their own: callers compare with
a public commitment.  Layout in docs/secure-sum.md, "SecureAgg".
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from cape.secagg.keys import KEY_BYTES, check_length, failure

# A Mersenne prime: one field holds any 32-byte secret, and 521 random bits are almost uniform.
PRIME: Final = 2**521 - 1

SHARE_BYTES: Final = 66

# Source of fresh random bytes (`secrets.token_bytes`)
TokenBytes = Callable[[int], bytes]


def split(
    secret: bytes, *, threshold: int, points: Sequence[int], token_bytes: TokenBytes
) -> list[bytes]:
    """Shares at the x-coordinates `points` (from 1), 66 bytes each, little endian, below the prime.

    SecureAggregationError for a secret that has not 32 bytes, or a threshold out of range.
    """
    check_length(secret, "shared secret")
    if not 1 <= threshold <= len(points):
        raise failure(f"{threshold} of {len(points)} shares is not possible")
    # Fewer than `threshold` points of a polynomial with random coefficients fit any secret.
    tail = [_below_prime(token_bytes) for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "little"), *tail]
    shares = []
    for x in points:  # x = 0 would be the secret itself
        value = 0
        for coefficient in reversed(coefficients):  # Horner
            value = (value * x + coefficient) % PRIME
        shares.append(value.to_bytes(SHARE_BYTES, "little"))
    return shares


def recover(shares: Mapping[int, bytes], *, threshold: int) -> bytes:
    """Secret from shares by x-coordinate (from 1).

    SecureAggregationError for too few or malformed shares, or shares of no 32-byte secret.
    """
    if len(shares) < threshold:
        raise failure(f"{len(shares)} shares came, {threshold} are needed")
    # The lowest coordinates, so that the result does not depend on the order of answers.
    points = tuple(sorted(shares)[:threshold])
    value = 0
    for x, weight in zip(points, _weights(points), strict=True):
        value = (value + read_share(shares[x]) * weight) % PRIME
    # A wrong share gives a random element of the field, almost surely above 2^256.
    if value >> 8 * KEY_BYTES:
        raise failure("the shares do not belong together")
    return value.to_bytes(KEY_BYTES, "little")


# The same sites open the secrets of many others; computing the weights costs far more than the sum.
@functools.lru_cache(maxsize=8)
def _weights(points: tuple[int, ...]) -> tuple[int, ...]:
    """Weights of Lagrange interpolation at x = 0."""
    weights = []
    for x in points:
        numerator = denominator = 1
        for other in points:
            if other != x:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - x) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return tuple(weights)


def read_share(share: bytes) -> int:
    """Value of a share; SecureAggregationError unless it has 66 bytes and is below the prime."""
    value = int.from_bytes(share, "little")
    if len(share) != SHARE_BYTES or value >= PRIME:
        raise failure("a share is malformed")
    return value


def _below_prime(token_bytes: TokenBytes) -> int:
    while True:  # 521 random bits; all ones is the prime itself
        value = int.from_bytes(token_bytes(SHARE_BYTES), "little") & PRIME
        if value < PRIME:
            return value
