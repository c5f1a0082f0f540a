"""The messages of SecureAgg, one record per stage and side.

Ids of exchanges, keys, signatures and shares are bytes; a masked vector is uint64 (d,).
What a message must hold to be accepted is `cape.secagg.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from cape.frozen import dataclass
from cape.secagg.keys import Ring


@dataclass(frozen=True, kw_only=True, slots=True)
class Advertisement:
    """Stage 1, site: public keys, commitments, signature."""

    site: str
    exchange: bytes  # `cape.secagg.stages.advertise_id`
    # X25519 key for shares, then per set: X25519 key for masks, commitment of the self mask.
    keys: bytes
    identity_key: bytes  # Ed25519: signs here and in stage 3b
    signature: bytes  # over `cape.secagg.seals.advertisement`


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvertisementList:
    """Stage 1, aggregator: the advertisements of U1."""

    entries: tuple[Advertisement, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedShares:
    """Stage 2, site: for every other site of U1, its shares of all key sets, encrypted."""

    site: str
    exchange: bytes
    sealed: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedShareBook:
    """Stage 2, aggregator: sender to receiver to ciphertext; the senders are U2."""

    exchange: bytes
    sealed: Mapping[str, Mapping[str, bytes]]


@dataclass(frozen=True, kw_only=True, slots=True)
class MaskedInput:
    """Stage 3, site: uint64 vector (d,), uniform to everybody without the masks."""

    site: str
    exchange: bytes
    masked: Ring


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivorList:
    """Stage 3, aggregator: U3, the sites whose vectors were summed."""

    exchange: bytes
    survivors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SurvivorSignature:
    """Stage 3b, site: signature over `cape.secagg.stages.survivor_statement`."""

    site: str
    exchange: bytes
    signature: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class SignatureBook:
    """Stage 3b, aggregator: all signatures; the signers are U4."""

    exchange: bytes
    signatures: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class UnmaskShares:
    """Stage 4, site: per survivor a share of its self mask, per dropped site of its mask key."""

    site: str
    exchange: bytes
    self_masks: Mapping[str, bytes] = field(repr=False)
    mask_keys: Mapping[str, bytes] = field(repr=False)


class Message(Protocol):
    """What every message of a site has."""

    @property
    def site(self) -> str:
        """Sender."""

    @property
    def exchange(self) -> bytes:
        """What it answers, 32 bytes: a replayed message names another exchange."""
