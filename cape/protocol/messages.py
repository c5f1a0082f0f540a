"""The messages of a run, frozen records (those of SecureAgg: `cape.secagg.messages`).

Every field of a site's reply carries a marker that says why it may leave (`cape.markers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from cape.frozen import dataclass
from cape.markers import (
    COMPUTATION_FORM,
    HEX_16,
    HEX_32,
    HEX_64,
    LABELS_FORM,
    MAPS_FORM,
    NAMED,
    OUTCOME_FORM,
    PUBLIC,
    RELEASED,
    RING,
    SETTINGS_FORM,
    SOFTWARE_FORM,
    VERSION_FORM,
)
from cape.secagg.field import Integers
from cape.secagg.messages import Advertisement
from cape.space.feature_space import FeatureSpace as FeatureSpace  # part of the messages

RingVector = npt.NDArray[np.uint64]


# Version of the envelope and of the messages in it
FORMAT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Cursor:
    """The position of a party: exchange number from 1, phase, round within the phase."""

    seq: int
    phase: str
    round: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """One public line for people, in every broadcast."""

    phase: str  # the one that opens
    round: int
    rounds: int  # planned
    exchange: int  # over the whole run
    exchanges: int
    mu: float  # spent so far; 0 without noise
    mu_budget: float
    epsilon: float  # spent so far, at the delta of the settings
    step: float  # norm of the last step; 0 before the first
    stability: float  # similarity of the components now and some rounds ago; 0 if not assessed


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteCard:
    """Reply of `join`: values that must be equal at all sites, and public facts of this site."""

    protocol: Annotated[int, PUBLIC]
    version: Annotated[str, PUBLIC, VERSION_FORM]
    computation: Annotated[str, PUBLIC, COMPUTATION_FORM]
    settings: Annotated[str, PUBLIC, SETTINGS_FORM]  # canonical JSON of the Config
    nonce: Annotated[str, PUBLIC, HEX_16]  # 16 fresh bytes, hex: makes the run's name
    # M_s: all people whom the site lists by name, so it does not depend on their data
    n_subjects: Annotated[int, PUBLIC]
    space: Annotated[FeatureSpace, PUBLIC]
    noise: Annotated[Literal["os", "seeded"], PUBLIC]
    # What the last bits of sums hang on, beside the version of cape
    software: Annotated[str, PUBLIC, SOFTWARE_FORM] = field(
        default="", metadata={"omittable": True}
    )
    # Commitment to the site's part of the graph (`cape.secagg.graph`), hex; ``aggregation=secagg``
    commitment: Annotated[str, PUBLIC, HEX_32] = field(default="", metadata={"omittable": True})
    # Number of people in each public cell of a comparison, if the policy allows the site to say it
    counts: Annotated[tuple[int, ...], PUBLIC] = field(default=(), metadata={"omittable": True})
    # Names of outcomes of a comparison that the site states it does not have
    lacks: Annotated[tuple[str, ...], PUBLIC, OUTCOME_FORM] = field(
        default=(), metadata={"omittable": True}
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class PublicKey:
    """Reply of `zero-sum`: the X25519 public key of this run, hex; signed if sites sign keys."""

    # `labels` of the mask or atlas are sent after `join` found them equal at all sites; `maps` by
    # sites whose own policy names their digest as public.

    public_key: Annotated[str, PUBLIC, HEX_32]
    identity_key: Annotated[str, PUBLIC, HEX_32] = field(default="", metadata={"omittable": True})
    signature: Annotated[str, PUBLIC, HEX_64] = field(default="", metadata={"omittable": True})
    labels: Annotated[str, PUBLIC, LABELS_FORM] = field(default="", metadata={"omittable": True})
    maps: Annotated[str, NAMED, MAPS_FORM] = field(default="", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyBook:
    """Broadcast of `zero-sum`: the public keys in the order of the roster, labels of the space."""

    public_keys: tuple[str, ...]
    identity_keys: tuple[str, ...] = field(default=(), metadata={"omittable": True})
    signatures: tuple[str, ...] = field(default=(), metadata={"omittable": True})
    labels: str = field(default="", metadata={"omittable": True})
    maps: str = field(default="", metadata={"omittable": True})


# Error that the owner reads when a site refuses a release: "" for its policy's, E237 for a run that
# people at the site closed, E238 for a run whose place another run took.
Refusal = Literal["", "E237", "E238"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Masked:
    """Reply of every release: a masked sum, or a refusal (empty vector) by the site's budget."""

    # `signature` is that of the key roster, in `zero-sum.probe` if sites sign keys.

    total: Annotated[RingVector, RING]
    refused: Annotated[bool, PUBLIC]
    refusal: Annotated[Refusal, PUBLIC] = field(default="", metadata={"omittable": True})
    signature: Annotated[str, PUBLIC, HEX_64] = field(default="", metadata={"omittable": True})

    def folded(self, other: Masked) -> tuple[Masked, Masked]:
        """Add another vector to this one, modulo 2^64; zeros without memory replace the other."""
        if self.refused or other.refused or self.total.shape != other.total.shape:
            return self, other  # `combine` judges them
        zeros = np.broadcast_to(np.uint64(0), other.total.shape)
        return replace(self, total=self.total + other.total), replace(other, total=zeros)


@dataclass(frozen=True, kw_only=True, slots=True)
class Released:
    """Reply of a release in which every site's own vector x + g is public, or a refusal."""

    total: Annotated[Integers, RELEASED]
    refused: Annotated[bool, PUBLIC]
    refusal: Annotated[Refusal, PUBLIC] = field(default="", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Fingerprint:
    """Broadcast of `zero-sum.probe`: masks cancel; first 16 hex digits of the key roster."""

    fingerprint: str
    signatures: tuple[str, ...] = field(default=(), metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyAdvertisement(Advertisement):
    """Reply of `zero-sum` if sites may drop out: the public keys for all releases."""

    labels: Annotated[str, PUBLIC, LABELS_FORM] = field(default="", metadata={"omittable": True})
    maps: Annotated[str, NAMED, MAPS_FORM] = field(default="", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyAdvertisements:
    """Broadcast of `zero-sum` if sites may drop out: the advertisement of each site of U1."""

    sites: Mapping[str, Advertisement]
    labels: str = field(default="", metadata={"omittable": True})
    maps: str = field(default="", metadata={"omittable": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """Reply of `report`: the site wrote its own files."""

    written: Annotated[bool, PUBLIC]


@dataclass(frozen=True, kw_only=True, slots=True)
class Closing:
    """Broadcast of `report`: the run is over."""

    status: str
