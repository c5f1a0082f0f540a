"""Ports: all a computation may ask of the outside; each driver brings site, aggregator, source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass
from cape.privacy.cost import Event
from cape.privacy.ledger import Ledger
from cape.privacy.noise import NoiseSource
from cape.protocol.messages import Cursor, FeatureSpace, Refusal
from cape.settings.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Stacks:
    """Subjects of a site, equally long ones stacked: arrays (n, rows, T), labels per array."""

    arrays: tuple[Data, ...]
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Stacks as a stage sees them: `one` of each subject, made when it is asked for, never kept."""

    stacks: Stacks
    one: Callable[[Data], Data]  # (rows, T) to (k, T)


class Described(Protocol):
    """What a site's card says of its data: all that `join` asks of them."""

    @property
    def space(self) -> FeatureSpace:
        """Feature space of the data."""

    @property
    def n_subjects(self) -> int:
        """M_s: everybody whom the site lists, those that fail its checks, too."""


class Source(Described, Protocol):
    """The accepted data of a site, described and read: what the rounds ask for."""

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) in the first `n_basis` directions of the public basis.

        Of everybody; T_m = 0 for who fails: the zero vector in every sum.
        """


class Site(Protocol):
    """One site, for the length of one round."""

    id: str
    config: Config
    cursor: Cursor
    # Digest of all broadcasts up to the one that is being answered
    transcript: bytes
    ledger: Ledger | None
    # What the broadcast that is being answered holds for this site alone, or None
    own_part: Any
    # What the reply of a refused release says of it
    refusal: Refusal

    @property
    def noise(self) -> NoiseSource:
        """All that is drawn: functions of one secret of this site in this run."""

    @property
    def labels(self) -> str:
        """Packed labels of the site's own mask or atlas, as accepted in `join`; else empty."""

    @property
    def source(self) -> Source:
        """The site's data; reads and checks the files when first asked."""

    def cached(self, name: str, key: str | Sequence[Array], build: Callable[[], Stacks]) -> Stacks:
        """Return the working arrays of that name and key, built again if they are lost.

        The key says what they are made of: a text, or released arrays themselves.
        """

    def charge(self, event: Event) -> None:
        """Put a release on record before its noise is drawn; PrivacyBudgetError if refused."""

    def keep(self, name: str, secret: bytes) -> None:
        """Store a secret of this run."""

    def secret(self, name: str) -> bytes:
        """Return a secret of this run; StateLostError if it is gone."""

    def identity_secret(self) -> bytes:
        """Return this site's Ed25519 secret, which outlives a run; ConfigError if it has none."""

    def known_keys(self, shown: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the identity keys, by site, that are believed here, given those that were shown.

        With ``key_trust=first-use`` a new name becomes known by what was shown; ConfigError E306
        if a known one shows another key.
        """

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent."""

    def admit(self, facts: object) -> None:
        """Let the site's policy look at the run; PrivacyBudgetError if it refuses."""

    def hold(self, plan: Sequence[Event], *, seeded: bool) -> None:
        """Reserve the plan of the run among all runs here; PrivacyBudgetError without room."""

    def publish(self, result: object) -> None:
        """Write what only this site may see."""


class Aggregator(Protocol):
    """The coordinator, for the length of one round."""

    config: Config
    cursor: Cursor
    ledger: Ledger | None
    # Sites that were asked in this round and did not answer
    lost: frozenset[str]
    # Whether the engine can hand each site what a broadcast holds for it alone
    addresses: bool
    # Digest of all broadcasts up to the one that is being answered
    transcript: bytes

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent."""

    def keep(self, name: str, value: bytes) -> None:
        """Store what only the aggregator holds, such as a masked sum; empty bytes remove it."""

    def secret(self, name: str) -> bytes:
        """Return what was kept; StateLostError if it is gone."""

    def charge(self, event: Event) -> None:
        """Put a release on record."""

    def publish(self, result: object) -> None:
        """Write the files of the consortium."""
