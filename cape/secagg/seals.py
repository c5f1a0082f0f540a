"""Signatures of sites (pinned keys) and authenticated encryption of stored secrets.

Ed25519 and ChaCha20-Poly1305 as they are in `cryptography`; here stand only the bytes that are
signed and the refusals.  Source: docs/threat-model.md, "Active aggregator" and "Vault".

What is signed with pinned keys: `advertisement` in phase `zero-sum`, then the 32 bytes of
`cape.secagg.keys.roster_digest` in phase `zero-sum.probe`.  No exception text and no repr holds
key bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from cape.secagg.keys import RosterEntry, check_length, failure, lp

NONCE_BYTES: Final = 12


def identity_public_key(secret: bytes) -> bytes:
    """Ed25519 public key, 32 bytes, of 32 secret bytes."""
    return _identity(secret).public_key().public_bytes_raw()


def sign(secret: bytes, message: bytes) -> bytes:
    """Ed25519 signature, 64 bytes."""
    return _identity(secret).sign(message)


def verify(public: bytes, message: bytes, signature: bytes, *, site: str) -> None:
    """Raise SecureAggregationError unless `site` signed `message` with its identity key."""
    # ValueError: a relayed key of another length, which is the relay's doing, not a mistake here.
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        raise failure(f"the signature of {site} is not valid") from None


def advertisement(site: str, public: bytes, *, salt: bytes) -> bytes:
    """Bytes that a site signs in `zero-sum` with pinned keys; `public` is its key of the run."""
    return lp(b"cape/1/adv") + salt + lp(site.encode()) + lp(public)


def check_pinned(entries: Sequence[RosterEntry], *, pinned: Mapping[str, bytes]) -> None:
    """Raise SecureAggregationError unless every identity key is the one stored by this site."""
    for entry in entries:
        # A site without a stored key fails, too: a first meeting through the aggregator proves
        # nothing.
        if entry.identity_key != pinned.get(entry.site):
            raise failure(f"the identity key of {entry.site} is not the pinned one")


def seal(key: bytes, plaintext: bytes, *, context: bytes, nonce: bytes) -> bytes:
    """Encrypt for storage, ChaCha20-Poly1305: `nonce` (12 bytes, drawn by the caller), then text.

    `context` is authenticated and not stored.
    """
    check_length(key, "vault key")
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, context)


def open_sealed(key: bytes, sealed: bytes, *, context: bytes) -> bytes:
    """Plaintext of `seal`; SecureAggregationError if anything was changed."""
    check_length(key, "vault key")
    # One text for every cause: which part was changed is nobody's business.
    nonce, body = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, body, context)
    except (InvalidTag, ValueError):
        raise failure("a sealed value does not open") from None


def _identity(secret: bytes) -> Ed25519PrivateKey:
    check_length(secret, "identity key")
    return Ed25519PrivateKey.from_private_bytes(secret)
