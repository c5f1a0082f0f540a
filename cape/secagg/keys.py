"""Secrets and keys of one run, zero-sum noise e_s over Z_2^64, signatures, sealed storage.

Every pair of sites shares a key that the aggregator does not know; both stretch it to one key
stream, one adds it, the other subtracts it.  All terms cancel, one site's alone is uniform.
Source: docs/secure-sum.md, "Zero-sum noise" and "Vault"; Bonawitz et al. 2017, section 4.  With
pinned keys `advertisement` is signed in phase `zero-sum`, the 32 bytes of `roster_digest` in
`zero-sum.probe` (docs/threat-model.md, "Active aggregator").  Not here: entropy (callers hand in
bytes) and messages.  lp(b) is the length of b as 4 bytes little endian, then b; integers are 8
bytes little endian, text is UTF-8.  No exception text and no repr holds key bytes.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

from cape.errors import SecureAggregationError
from cape.frozen import dataclass
from cape.secagg.field import Ring

KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 32
_NONCE_BYTES: Final = 12

# Key stream entries made at a time (128 KiB): they stay in the second-level cache.
_CHUNK: Final = 1 << 14

_ZEROS: Final = bytes(8 * _CHUNK)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRosterEntry:
    """Public facts about one site."""

    site: str
    n_subjects: int  # M_s
    # X25519 key of this run, 32 bytes (if sites may drop out: `Advertisement.keys`)
    public_key: bytes
    identity_key: bytes = b""  # Ed25519, 32 bytes; empty without pinned keys


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyRing:
    """Secret X25519 key of one site for one run: 32 bytes of entropy, refused if not."""

    site: str
    secret_key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_length(self.secret_key, "secret key")

    @property
    def public_key(self) -> bytes:
        return public_key(private_key_from_bytes(self.secret_key))


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSecret:
    """The secret of a site in a run, 32 uniform bytes, from which streams are derived.

    All random bytes of a site depend on this secret and their purpose.  A round repeated from a
    journal, a restored folder or a copy of it draws the same bytes, so no party can average noise
    away by asking twice; another question draws other bytes, like the nonce of a deterministic
    signature (RFC 6979).  Source: docs/privacy.md, "Noise as a function".
    """

    secret: bytes = field(repr=False)
    label: Literal["os", "seeded"]

    def __post_init__(self) -> None:
        check_length(self.secret, "secret of the run")

    def stream(self, *context: str | bytes) -> KeyStream:
        """Return the ChaCha20 key stream under HKDF-Expand of the secret, bound to the context."""
        # Kind and length of every part: ("a", "b"), ("ab",) and (b"ab",) are three streams.
        info = lp(b"cape/2/draw") + b"".join(
            b"s" + lp(part.encode()) if isinstance(part, str) else b"b" + lp(part)
            for part in context
        )
        return KeyStream(
            HKDFExpand(algorithm=SHA256(), length=KEY_BYTES, info=info).derive(self.secret)
        )


class KeyStream:
    """The key stream of one key; its bytes do not depend on the sizes of requests."""

    __slots__ = ("_cipher",)

    def __init__(self, key: bytes) -> None:
        # Counter and nonce are zero, as each key has one use.
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()

    def token_bytes(self, n: int) -> bytes:
        # Encrypting zeros gives the bare key stream; a negative length is a ValueError there.
        return self._cipher.update(bytes(n))


def seeded_secret(seed: int, site: str) -> bytes:
    """Return the secret of a simulated site from a seed >= 0; the seed reveals all its noise."""
    # A bool or a float would become another seed than its text says.
    if type(seed) is not int or seed < 0:
        raise ValueError("a seed is a non-negative int")
    return sha256(lp(b"cape/2/seed") + lp(str(seed).encode()) + lp(site.encode()))


@dataclass(frozen=True, kw_only=True, slots=True)
class PairKeys:
    """Keys that one site shares with every other one, 32 bytes each; not shown by repr."""

    site: str
    keys: Mapping[str, bytes] = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskLabel:
    """Label of one vector of masks, `size` entries, for `field` of the reply in this round."""

    # Labels of two releases differ: equal masks would reveal the difference of the vectors.

    phase: str
    round: int
    field: str
    size: int
    # Digest of all broadcasts so far: masks do not cancel if sites received different broadcasts,
    # and no two questions share a label.
    transcript: bytes

    def __post_init__(self) -> None:
        # Fixed length, so that `to_bytes` is unambiguous.
        if len(self.transcript) != DIGEST_BYTES:
            raise failure("the digest of the broadcasts does not have 32 bytes")

    def to_bytes(self) -> bytes:
        """Encode without ambiguity, as bound into keys and signatures."""
        phase, name = lp(self.phase.encode()), lp(self.field.encode())
        return phase + u64(self.round) + name + u64(self.size) + self.transcript

    def info(self) -> bytes:
        """Return the HKDF info for `stream_key`."""
        return lp(b"cape/1/mask") + self.to_bytes()


def lp(value: bytes) -> bytes:
    """Length of `value` (4 bytes, little endian), then `value`."""
    # Little endian on every machine: both ends must derive the same bytes.
    return struct.pack("<I", len(value)) + value


def u64(value: int) -> bytes:
    """`value` as 8 bytes, little endian."""
    return struct.pack("<Q", value)


def site_order(sites: Iterable[str]) -> list[str]:
    """Ids sorted by the bytes of their UTF-8 form, the one order used everywhere."""
    # The order of UTF-8 bytes is one that any other language can repeat.
    return sorted(sites, key=str.encode)


def private_key_from_bytes(entropy: bytes) -> X25519PrivateKey:
    check_length(entropy, "secret key")
    return X25519PrivateKey.from_private_bytes(entropy)


def public_key(secret: X25519PrivateKey) -> bytes:
    return secret.public_key().public_bytes_raw()


def run_salt(run_id: str, config_digest: bytes) -> bytes:
    """Salt of all keys of one run, whose id has 32 hex digits.

    `config_digest` is SHA-256 of the canonical roster of `join` as this site received it
    (settings, plan, sizes, nonces): sites that received different plans share no key.
    """
    return sha256(lp(b"cape/1/run") + lp(run_id.encode()) + lp(config_digest))


def roster_digest(entries: Sequence[KeyRosterEntry]) -> bytes:
    """SHA-256 over all entries in `site_order`; bound into every pair key."""
    # Every field of variable length carries its length, so no two rosters give the same bytes.
    parts = [lp(b"cape/1/roster"), u64(len(entries))]
    for entry in sorted(entries, key=lambda e: e.site.encode()):
        keys = lp(entry.public_key) + lp(entry.identity_key)
        parts += [lp(entry.site.encode()), u64(entry.n_subjects), keys]
    return sha256(b"".join(parts))


def roster_fingerprint(digest: bytes) -> str:
    """First 16 hex digits of the roster digest, for people to compare by phone."""
    return digest[:8].hex()


def check_roster(entries: Sequence[KeyRosterEntry], *, own: KeyRosterEntry) -> None:
    """SecureAggregationError for relayed keys that repeat, or lack `own`, which this site sent."""
    # If two sites had one key, its holder would know their common stream.
    if len({e.public_key for e in entries}) != len(entries):
        raise failure("two sites have one public key")
    # Identity keys are empty if sites do not sign.
    identities = [e.identity_key for e in entries if e.identity_key]
    if len(set(identities)) != len(identities):
        raise failure("two sites have one identity key")
    for entry in entries:
        if len(entry.public_key) != len(own.public_key):
            raise failure(f"the public key of {entry.site} has a wrong length")
    # With a changed key, this site's masks would not cancel, or only with those of the liar.
    if own not in entries:
        raise failure(f"the key of {own.site} was changed")


def pair_keys(ring: KeyRing, entries: Sequence[KeyRosterEntry], *, salt: bytes) -> PairKeys:
    """Keys shared with every other site of a roster that passed `check_roster`.

    SecureAggregationError if a public key is malformed or leads to the all-zero shared secret.
    """
    digest = roster_digest(entries)
    keys = {e.site: e.public_key for e in entries if e.site != ring.site}
    return shared_keys(ring, keys, digest=digest, salt=salt)


def shared_keys(
    ring: KeyRing, public_keys: Mapping[str, bytes], *, digest: bytes, salt: bytes
) -> PairKeys:
    """`pair_keys` for given public keys of the peers and a roster digest made elsewhere."""
    secret = private_key_from_bytes(ring.secret_key)
    keys = {}
    for peer, key in public_keys.items():
        # Both ends must derive the same key, so the pair is named in one order.
        low, high = site_order((ring.site, peer))
        info = lp(b"cape/1/pair") + digest + lp(low.encode()) + lp(high.encode())
        keys[peer] = exchange(secret, key, peer=peer, salt=salt, info=info)
    return PairKeys(site=ring.site, keys=keys)


def exchange(
    secret: X25519PrivateKey, public: bytes, *, peer: str, salt: bytes, info: bytes
) -> bytes:
    """32 bytes known to both ends only: X25519, then HKDF-SHA-256."""
    try:
        shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # wrong length, or (some versions of the library) all-zero result
        shared = b""
    # A point of small order gives zeros for any secret: a publicly known key.
    if not any(shared):
        raise failure(f"the public key of {peer} is not usable")
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(shared)


def zero_sum_mask(pairs: PairKeys, label: MaskLabel) -> Ring:
    """Zero-sum noise e_s of one site, uint64 (d,): the sum over all sites is 0 modulo 2^64."""
    # ``sum(P_sj, j > s) - sum(P_js, j < s)``, P the stream of a pair.  Never use a label twice.
    total = np.zeros(label.size, dtype=np.uint64)
    info, own = label.info(), pairs.site.encode()  # once, not for each of S - 1 peers
    for peer, key in pairs.keys.items():
        # One end of a pair adds the stream, the other subtracts it: they agree by their order.
        operation = np.add if own < peer.encode() else np.subtract
        _apply_stream(operation, total, key, info)
    return total


def stream_key(key: bytes, info: bytes) -> bytes:
    """Key of one stream: HKDF-Expand of `key` bound to `MaskLabel.info`."""
    # Pair keys are uniform already, so Extract is not needed again; a key for each label lets
    # every stream start at counter zero.
    return HKDFExpand(algorithm=SHA256(), length=KEY_BYTES, info=info).derive(key)


def add_stream(total: Ring, key: bytes, label: MaskLabel) -> None:
    """Add the key stream P of `key` and `label` to `total`, in place, modulo 2^64."""
    _apply_stream(np.add, total, key, label.info())


def subtract_stream(total: Ring, key: bytes, label: MaskLabel) -> None:
    _apply_stream(np.subtract, total, key, label.info())


def _apply_stream(operation: np.ufunc, total: Ring, key: bytes, info: bytes) -> None:
    # Counter and nonce are zero, as each key has one use.
    cipher = Cipher(algorithms.ChaCha20(stream_key(key, info), bytes(16)), mode=None).encryptor()
    buffer = bytearray(8 * min(_CHUNK, total.size))
    words = np.frombuffer(buffer, dtype="<u8")
    zeros = memoryview(_ZEROS)
    for start in range(0, total.size, _CHUNK):
        part = total[start : start + _CHUNK]
        # Encrypting zeros gives the bare key stream.
        cipher.update_into(zeros[: 8 * part.size], buffer)
        operation(part, words[: part.size], out=part)


def identity_public_key(secret: bytes) -> bytes:
    """Ed25519 public key, 32 bytes, of 32 secret bytes."""
    return _identity(secret).public_key().public_bytes_raw()


def sign(secret: bytes, message: bytes) -> bytes:
    """Ed25519 signature, 64 bytes."""
    return _identity(secret).sign(message)


def verify_signature(public: bytes, message: bytes, signature: bytes, *, site: str) -> None:
    """Raise SecureAggregationError unless `site` signed `message` with its identity key."""
    # ValueError: a relayed key of another length, which is the relay's doing, not a mistake here.
    try:
        _verify(public, message, signature)
    except (InvalidSignature, ValueError):
        raise failure(f"the signature of {site} is not valid") from None


# Public values only; what is not valid is asked again.  All sites of a simulation verify the same.
@functools.lru_cache(maxsize=2048)
def _verify(public: bytes, message: bytes, signature: bytes) -> None:
    Ed25519PublicKey.from_public_bytes(public).verify(signature, message)


def advertisement(site: str, public: bytes, *, salt: bytes) -> bytes:
    """Bytes that a site signs in `zero-sum` with pinned keys; `public` is its key of the run."""
    return lp(b"cape/1/adv") + salt + lp(site.encode()) + lp(public)


def check_pinned(entries: Sequence[KeyRosterEntry], *, pinned: Mapping[str, bytes]) -> None:
    """Raise SecureAggregationError unless every identity key is the one stored by this site."""
    for entry in entries:
        # A site without a stored key fails too: a key relayed by the aggregator proves nothing.
        if entry.identity_key != pinned.get(entry.site):
            raise failure(f"the identity key of {entry.site} is not the pinned one")


def seal(key: bytes, plaintext: bytes, *, context: bytes, nonce: bytes) -> bytes:
    """Encrypt for storage, ChaCha20-Poly1305: `nonce` (12 bytes, from the caller), then text."""
    # `context` is authenticated and not stored.
    check_length(key, "vault key")
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, plaintext, context)


def open_sealed(key: bytes, sealed: bytes, *, context: bytes) -> bytes:
    """Plaintext of `seal`; SecureAggregationError if anything was changed."""
    check_length(key, "vault key")
    # One text for every cause: the error must not reveal which part was changed.
    nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, body, context)
    except (InvalidTag, ValueError):
        raise failure("a sealed value does not open") from None


def _identity(secret: bytes) -> Ed25519PrivateKey:
    check_length(secret, "identity key")
    return Ed25519PrivateKey.from_private_bytes(secret)


def check_length(key: bytes, name: str) -> None:
    """Refuse a key that is not 32 bytes long, without showing it."""
    # A shorter key would still work in places, with less strength than promised.
    if len(key) != KEY_BYTES:
        raise failure(f"a {name} does not have {KEY_BYTES} bytes")


def from_hex(text: str, what: str) -> bytes:
    """Bytes of a text that another party sent; SecureAggregationError unless hexadecimal."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise failure(f"{what} is not hexadecimal") from None


def failure(problem: str) -> SecureAggregationError:
    """Error with a public text; `problem` names sites and fields only."""
    return SecureAggregationError("E220", problem=problem)


def sha256(message: bytes) -> bytes:
    return hashlib.sha256(message).digest()
