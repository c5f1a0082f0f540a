"""The messages of SecureAgg, one record per stage and side, here and on the wire.

Ids of exchanges, keys, signatures and shares are bytes; a masked vector is uint64 (d,).  `site` and
`exchange` say who sent a message and what it answers; the stages (`cape.secagg.stages`) compare
both, so that a replayed or misplaced message is refused.  Where a transport's envelope says the
same, the sender clears them and the receiver fills them in from the envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Protocol

from cape.frozen import dataclass
from cape.markers import OPENED, PUBLIC, RING, SEALED
from cape.secagg.field import Ring


def _address(empty: Any) -> Any:
    # Left out of a body while it is empty (`cape.protocol.wire.ADDED`).
    return field(default=empty, metadata={"added": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Advertisement:
    """Stage 1, site: public keys, commitments, signature."""

    site: Annotated[str, PUBLIC] = _address("")
    exchange: Annotated[bytes, PUBLIC] = _address(b"")  # `cape.secagg.stages.advertise_id`
    # X25519 key for shares, then per set: X25519 key for masks, commitment of the self mask.
    keys: Annotated[bytes, PUBLIC]
    identity_key: Annotated[bytes, PUBLIC]  # Ed25519: signs here and in stage 3b
    signature: Annotated[bytes, PUBLIC]  # over `cape.secagg.keys.advertisement`
    # What the site's commitment in the roster opens to: its part of the graph; empty without one
    opening: Annotated[bytes, PUBLIC] = _address(b"")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvertisementList:
    """The advertisements of U1 as every party holds them after stage 1, sorted by site."""

    entries: tuple[Advertisement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedShares:
    """Stage 2, site: for every partner of U1, its shares of all key sets, encrypted."""

    site: Annotated[str, PUBLIC] = _address("")
    exchange: Annotated[bytes, PUBLIC] = _address(b"")
    sealed: Annotated[Mapping[str, bytes], SEALED]


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedShareBook:
    """Stage 2, aggregator: `sharers` are U2, and what they sent, receiver to sender to ciphertext.

    A site is given its own entry of `addressed` where the engine can do that, and needs no other.
    """

    exchange: bytes = _address(b"")
    sharers: tuple[str, ...]
    addressed: Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedInput:
    """Stage 3, site: uint64 vector (d,), uniform to everybody without the masks."""

    site: Annotated[str, PUBLIC] = _address("")
    exchange: Annotated[bytes, PUBLIC] = _address(b"")
    masked: Annotated[Ring, RING]


@dataclass(frozen=True, kw_only=True, slots=True)
class Survivors:
    """Stage 3, aggregator: U3, the sites whose vectors were summed."""

    exchange: bytes = _address(b"")
    sites: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivorSignature:
    """Stage 3b, site: signature over `cape.secagg.stages.survivor_statement`."""

    site: Annotated[str, PUBLIC] = _address("")
    exchange: Annotated[bytes, PUBLIC] = _address(b"")
    signature: Annotated[bytes, PUBLIC]


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivorSignatures:
    """Stage 3b, aggregator: all signatures; the signers are U4."""

    exchange: bytes = _address(b"")
    signatures: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskShares:
    """Stage 4, site: per survivor a share of its self mask, per dropped site of its mask key."""

    site: Annotated[str, PUBLIC] = _address("")
    exchange: Annotated[bytes, PUBLIC] = _address(b"")
    self_masks: Annotated[Mapping[str, bytes], OPENED] = field(repr=False)
    mask_keys: Annotated[Mapping[str, bytes], OPENED] = field(repr=False)


class Message(Protocol):
    """What every message of a site has."""

    @property
    def site(self) -> str:
        """Sender."""

    @property
    def exchange(self) -> bytes:
        """What it answers, 32 bytes: a replayed message names another exchange."""
