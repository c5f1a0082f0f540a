"""Signatures and sealed storage (cape/secagg/keys.py).

Belongs to `cape/secagg/keys.py`.
"""

import pytest

from cape.errors import SecureAggregationError
from cape.secagg import keys
from cape.secagg.keys import KeyRosterEntry

SECRET = bytes(range(32))
NONCE = bytes(range(12))


def test_the_identity_key_is_ed25519_of_rfc_8032():
    """Section 7.1, test 1."""
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    assert keys.identity_public_key(secret).hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert keys.sign(secret, b"").hex().startswith("e5564300c360ac729086e2cc806e828a")


def test_a_signature_holds_for_its_message_and_key_only():
    public = keys.identity_public_key(SECRET)
    message = keys.advertisement("a", b"k" * 32, salt=bytes(32))
    signature = keys.sign(SECRET, message)
    keys.verify_signature(public, message, signature, site="a")
    other = keys.identity_public_key(bytes(32))
    wrong = [
        (public, message + b"x", signature),
        (other, message, signature),
        (public, message, signature[:-1]),
        (public, message, b""),
        (b"no key", message, signature),
    ]
    for key, text, mark in wrong:
        with pytest.raises(SecureAggregationError, match="the signature of a is not valid"):
            keys.verify_signature(key, text, mark, site="a")


def test_an_advertisement_names_run_site_and_key():
    base = keys.advertisement("a", b"k" * 32, salt=bytes(32))
    assert base == (
        b"\x0a\0\0\0cape/1/adv" + bytes(32) + b"\x01\0\0\0a" + b"\x20\0\0\0" + b"k" * 32
    )


def test_identity_keys_must_be_the_pinned_ones():
    entry = KeyRosterEntry(site="a", n_subjects=1, public_key=b"p" * 32, identity_key=b"i" * 32)
    keys.check_pinned([entry], pinned={"a": b"i" * 32, "absent": b"j" * 32})
    for pinned in ({}, {"a": b"j" * 32}):
        with pytest.raises(SecureAggregationError, match="identity key of a is not the pinned"):
            keys.check_pinned([entry], pinned=pinned)


def test_a_sealed_value_opens_with_its_key_and_context_only():
    sealed = keys.seal(SECRET, b"the secret", context=b"run 1", nonce=NONCE)
    assert sealed.startswith(NONCE)
    assert b"the secret" not in sealed
    assert keys.open_sealed(SECRET, sealed, context=b"run 1") == b"the secret"
    wrong = [
        (bytes(32), sealed, b"run 1"),
        (SECRET, sealed, b"run 2"),
        (SECRET, sealed[:-1], b"run 1"),
        (SECRET, sealed[:5], b"run 1"),
        (SECRET, b"", b"run 1"),
        (SECRET, sealed[:-1] + bytes([sealed[-1] ^ 1]), b"run 1"),
        (SECRET, bytes([sealed[0] ^ 1]) + sealed[1:], b"run 1"),
    ]
    for key, value, context in wrong:
        with pytest.raises(SecureAggregationError, match="a sealed value does not open") as caught:
            keys.open_sealed(key, value, context=context)
        assert caught.value.__suppress_context__


def test_keys_of_another_length_are_refused():
    with pytest.raises(SecureAggregationError, match="vault key"):
        keys.seal(b"short", b"", context=b"", nonce=NONCE)
    with pytest.raises(SecureAggregationError, match="vault key"):
        keys.open_sealed(b"short", b"", context=b"")
    with pytest.raises(SecureAggregationError, match="identity key"):
        keys.sign(b"short", b"")
