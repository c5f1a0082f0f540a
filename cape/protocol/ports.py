"""Ports: the interfaces of a computation to the outside; drivers implement them."""

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
    """Subjects of a site, stacked if equally long: arrays (n, rows, T), labels per array."""

    arrays: tuple[Data, ...]
    labels: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Stacks with a function `one` for each subject, computed on demand and never stored."""

    stacks: Stacks
    one: Callable[[Data], Data]  # (rows, T) to (k, T)


class Described(Protocol):
    """The description of a site's data that its card needs."""

    @property
    def space(self) -> FeatureSpace:
        """Feature space of the data."""

    @property
    def n_subjects(self) -> int:
        """M_s: all people whom the site lists, including those that fail its checks."""


class Source(Described, Protocol):
    """The accepted data of a site."""

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) in the first `n_basis` directions of the public basis.

        All listed people; T_m = 0 for people who fail a check, the zero vector in every sum.
        """


class Site(Protocol):
    """One site, for the length of one round."""

    id: str
    config: Config
    cursor: Cursor
    # Digest of all broadcasts up to the one that is being answered
    transcript: bytes
    ledger: Ledger | None
    # This site's own part of the broadcast that is being answered, or None
    own_part: Any
    # The reason that the reply to a refused release gives
    refusal: Refusal

    @property
    def is_closed(self) -> bool:
        """Whether people of the site closed the run: nobody is read, nothing of them is written."""

    @property
    def noise(self) -> NoiseSource:
        """Source of all random bytes, derived from one secret of this site in this run."""

    @property
    def labels(self) -> str:
        """Packed labels of the site's own mask or atlas, as accepted in `join`; else empty."""

    @property
    def maps(self) -> str:
        """Packed public maps, if this computation needs them and the site's policy names them."""

    @property
    def min_group(self) -> int:
        """Fewest people of a public cell that the site says; fewer are not asked."""

    @property
    def source(self) -> Source:
        """The site's data; the first access reads and checks the files."""

    def cached(self, name: str, key: str | Sequence[Array], build: Callable[[], Stacks]) -> Stacks:
        """Return the working arrays of that name and key, built again if they are lost.

        The key identifies their inputs: a text, or released arrays themselves.
        """

    def charge(self, event: Event) -> None:
        """Charge a release before its noise is drawn; PrivacyBudgetError if refused."""

    def keep(self, name: str, secret: bytes) -> None:
        """Store a secret of this run."""

    def secret(self, name: str) -> bytes:
        """Return a secret of this run; StateLostError if it is gone."""

    def identity_secret(self) -> bytes:
        """Return this site's Ed25519 secret, which outlives a run; ConfigError if it has none."""

    def known_keys(self, shown: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the identity keys that this site trusts, by site, given the keys that were sent.

        With ``key_trust=first-use`` it stores the key of a new name; ConfigError E306 if a known
        site sent another key.
        """

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent."""

    def admit(self, facts: object) -> None:
        """Check the run, its card or its roster against the site's policy; PrivacyBudgetError."""

    def hold(self, plan: Sequence[Event], *, seeded: bool) -> None:
        """Reserve the plan in the ledger of all runs; PrivacyBudgetError if there is no room."""

    def publish(self, result: object) -> None:
        """Write the private results of this site."""


class Aggregator(Protocol):
    """The coordinator, for the length of one round."""

    config: Config
    cursor: Cursor
    ledger: Ledger | None
    # Whether the engine can send each site only its own part of a broadcast
    addresses: bool
    # Digest of all broadcasts up to the one that is being answered
    transcript: bytes

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent."""

    def keep(self, name: str, value: bytes) -> None:
        """Store a secret of the aggregator, such as a masked sum; empty bytes remove it."""

    def secret(self, name: str) -> bytes:
        """Return a stored secret; StateLostError if it is gone."""

    def charge(self, event: Event) -> None:
        """Charge a release."""

    def publish(self, result: object) -> None:
        """Write the files of the consortium."""
