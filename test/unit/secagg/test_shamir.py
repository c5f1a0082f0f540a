"""Shamir sharing (cape/secagg/shamir.py)."""

import hashlib
import itertools

import pytest

from cape.errors import SecureAggregationError
from cape.secagg import shamir

SECRET = hashlib.sha256(b"a secret").digest()


class Stream:
    """Reproducible entropy."""

    def __init__(self, seed: bytes) -> None:
        self.seed, self.drawn = seed, 0

    def __call__(self, n: int) -> bytes:
        self.drawn += 1
        return hashlib.shake_256(self.seed + self.drawn.to_bytes(4, "little")).digest(n)


def split(threshold: int, n_shares: int, secret: bytes = SECRET) -> dict[int, bytes]:
    shares = shamir.split(
        secret, threshold=threshold, points=range(1, n_shares + 1), token_bytes=Stream(b"seed")
    )
    return dict(enumerate(shares, start=1))


def test_the_prime_is_the_mersenne_prime_and_fits_a_share():
    assert shamir.PRIME == 2**521 - 1
    assert pow(3, shamir.PRIME - 1, shamir.PRIME) == 1
    assert len(shamir.PRIME.to_bytes(shamir.SHARE_BYTES, "little")) == 66


@pytest.mark.parametrize(("threshold", "n_shares"), [(1, 1), (1, 3), (2, 2), (3, 5), (5, 5)])
def test_any_set_of_threshold_shares_gives_the_secret(threshold, n_shares):
    shares = split(threshold, n_shares)
    for chosen in itertools.combinations(shares, threshold):
        assert shamir.recover({x: shares[x] for x in chosen}, threshold=threshold) == SECRET
    assert shamir.recover(shares, threshold=threshold) == SECRET


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32, b"\x01" + bytes(31)])
def test_extreme_secrets_survive(secret):
    assert shamir.recover(split(3, 4, secret), threshold=3) == secret


def test_shares_are_the_polynomial_at_1_2_3_in_little_endian():
    """Coefficients 5, 7, 0 by hand: p(x) = s + 5 x + 7 x^2 with the words drawn in this order."""
    words = iter([5, 7])
    shares = shamir.split(
        b"\x09" + bytes(31),
        threshold=3,
        points=(1, 2, 3),
        token_bytes=lambda n: next(words).to_bytes(n, "little"),
    )
    assert [int.from_bytes(s, "little") for s in shares] == [21, 47, 87]


def test_fewer_shares_than_the_threshold_are_refused():
    shares = split(3, 5)
    with pytest.raises(SecureAggregationError, match="2 shares came, 3 are needed"):
        shamir.recover({1: shares[1], 4: shares[4]}, threshold=3)


def test_one_share_less_is_consistent_with_every_secret():
    """Two shares of three and any other secret have a polynomial of their own."""
    shares = split(3, 3)
    known = {1: int.from_bytes(shares[1], "little"), 2: int.from_bytes(shares[2], "little")}
    p = shamir.PRIME
    for other in (0, 1, 2**255):
        # Value at 3 of the parabola through (0, other), (1, .), (2, .): s - 3 p1 + 3 p2 at x = 3.
        third = (other - 3 * known[1] + 3 * known[2]) % p
        forged = {**shares, 3: third.to_bytes(66, "little")}
        assert shamir.recover(forged, threshold=3) == other.to_bytes(32, "little")


def test_coefficients_fill_the_field_and_all_ones_are_drawn_again():
    calls = []

    def token_bytes(n: int) -> bytes:
        calls.append(n)
        return b"\xff" * n if len(calls) == 1 else Stream(b"x")(n)

    shamir.split(SECRET, threshold=2, points=(1, 2), token_bytes=token_bytes)
    assert calls == [66, 66]
    draws = [shamir._below_prime(Stream(bytes([i]))) for i in range(200)]
    assert max(draws) >> 520 == 1
    assert all(0 <= draw < shamir.PRIME for draw in draws)


def test_a_changed_share_gives_no_32_byte_secret():
    """Unless the change is tiny: 256 of 521 bits are free, so callers compare a commitment."""
    shares = split(3, 3)
    shares[2] = shares[2][:-2] + bytes([shares[2][-2] ^ 1, shares[2][-1]])
    with pytest.raises(SecureAggregationError, match="do not belong together"):
        shamir.recover(shares, threshold=3)


@pytest.mark.parametrize(
    "share",
    [b"", bytes(65), bytes(67), shamir.PRIME.to_bytes(66, "little"), b"\xff" * 66],
    ids=["empty", "short", "long", "the prime", "all ones"],
)
def test_a_malformed_share_is_refused(share):
    with pytest.raises(SecureAggregationError, match="a share is malformed"):
        shamir.read_share(share)
    assert shamir.read_share((shamir.PRIME - 1).to_bytes(66, "little")) == shamir.PRIME - 1


@pytest.mark.parametrize(("threshold", "n_shares"), [(0, 3), (4, 3)])
def test_an_impossible_threshold_is_refused(threshold, n_shares):
    with pytest.raises(SecureAggregationError, match="shares is not possible"):
        split(threshold, n_shares)


def test_a_secret_of_another_length_is_refused():
    with pytest.raises(SecureAggregationError, match="does not have 32 bytes"):
        split(2, 3, b"short")
