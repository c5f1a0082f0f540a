"""The messages of SecureAgg, one record per step and side, here and on the wire.

Keys, signatures and shares are bytes.  The envelope names sender and exchange
(`cape.protocol.phases`); it is checked before any step sees the message.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from cape.frozen import dataclass
from cape.markers import BYTES_32, BYTES_64, OPENED, PUBLIC, SEALED, SEALED_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Advertisement:
    """Step 1, site: public keys, commitments, signature."""

    # X25519 key for shares, then per set: X25519 key for masks, commitment of the self mask.
    keys: Annotated[bytes, PUBLIC, BYTES_32]
    identity_key: Annotated[bytes, PUBLIC, BYTES_32]  # Ed25519: signs here and in step 3b
    signature: Annotated[bytes, PUBLIC, BYTES_64]  # over `cape.secagg.keys.advertisement`
    # The site's part of the graph, which opens its commitment in the roster; empty without a graph
    opening: Annotated[bytes, PUBLIC, BYTES_32] = field(default=b"", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedShares:
    """Step 2, site: for every partner of U1, its shares of all key sets, encrypted."""

    sealed: Annotated[Mapping[str, bytes], SEALED, SEALED_BYTES]


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedShareBook:
    """Step 2, aggregator: `sharers` are U2; `addressed` maps receiver to sender to ciphertext."""

    # A site needs only its own entry of `addressed`; some engines send it no other.

    sharers: tuple[str, ...]
    addressed: Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Survivors:
    """Step 3, aggregator: U3, the sites whose vectors were summed."""

    sites: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivorSignature:
    """Step 3b, site: signature over `cape.secagg.steps.survivor_statement`."""

    signature: Annotated[bytes, PUBLIC, BYTES_64]


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivorSignatures:
    """Step 3b, aggregator: all signatures; the signers are U4."""

    signatures: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskShares:
    """Step 4, site: per survivor a share of its self mask, per dropped site of its mask key."""

    self_masks: Annotated[Mapping[str, bytes], OPENED, SEALED_BYTES] = field(repr=False)
    mask_keys: Annotated[Mapping[str, bytes], OPENED, SEALED_BYTES] = field(repr=False)
