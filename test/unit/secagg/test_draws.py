"""Streams of the secret of a run: what names one, and that nothing else changes it.

Belongs to `cape/secagg/keys.py`.
"""

import hashlib

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from cape.errors import SecureAggregationError
from cape.secagg.keys import RunSecret, seeded_secret

SECRET = RunSecret(secret=hashlib.sha256(b"draws").digest(), label="os")


def test_a_stream_is_chacha20_under_a_key_of_hkdf():
    info = b"\x0b\0\0\0cape/2/draw" + b"s\x05\0\0\0noise" + b"b\x02\0\0\0\x01\x02"
    key = HKDFExpand(algorithm=SHA256(), length=32, info=info).derive(SECRET.secret)
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    assert SECRET.stream("noise", b"\x01\x02").token_bytes(5000) == cipher.update(bytes(5000))


def test_cutting_the_requests_differently_does_not_change_a_stream():
    stream = SECRET.stream("x")
    pieces = [stream.token_bytes(n) for n in (0, 1, 4351, 1, 9000, 7)]
    assert b"".join(pieces) == SECRET.stream("x").token_bytes(13_360)


def test_the_same_context_restarts_and_does_not_depend_on_what_was_drawn():
    first = SECRET.stream("noise", b"pca").token_bytes(64)
    SECRET.stream("noise", b"other").token_bytes(1000)
    assert SECRET.stream("noise", b"pca").token_bytes(64) == first
    assert (
        RunSecret(secret=SECRET.secret, label="seeded").stream("noise", b"pca").token_bytes(64)
        == first
    )


def test_every_part_of_a_context_and_the_secret_name_the_stream():
    """A round that shared the noise of another would undo both."""
    other = RunSecret(secret=bytes(32), label="os")
    contexts = [
        (), ("",), (b"",), ("a",), (b"a",), ("a", "b"), ("ab",), ("a", b"b"), ("a", "b", ""),
        ("b", "a"), ("a", "bb"), ("s\x01\0\0\0a",), ("as", "\x01"),
    ]  # fmt: skip
    drawn = [source.stream(*c).token_bytes(32) for source in (SECRET, other) for c in contexts]
    assert len(set(drawn)) == 2 * len(contexts)
    assert SECRET.secret not in drawn


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33)])
def test_a_secret_of_another_length_is_refused(secret):
    with pytest.raises(SecureAggregationError, match="secret of the run does not have 32 bytes"):
        RunSecret(secret=secret, label="os")


def test_the_secret_is_not_shown():
    assert SECRET.secret.hex() not in repr(SECRET)
    assert str(SECRET.secret) not in repr(SECRET)
    with pytest.raises(ValueError, match="negative"):
        SECRET.stream("a").token_bytes(-1)


@pytest.mark.parametrize("seed", [-1, True, 1.0, "1"])
def test_a_seed_that_is_no_natural_number_is_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        seeded_secret(seed, "a")


def test_sites_and_seeds_of_a_simulation_have_secrets_of_their_own():
    secrets = {seeded_secret(seed, site) for seed in (0, 1, 11, 2**80) for site in ("", "1", "a")}
    assert len(secrets) == 12
    assert seeded_secret(11, "") != seeded_secret(1, "1")
