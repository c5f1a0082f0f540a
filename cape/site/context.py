"""The ports of a site and of the aggregator, for the length of one round.

One class each; how a driver keeps working arrays, secrets and charges is given to them as stores,
in memory or in files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cape.config import Config
from cape.errors import ConfigError, PrivacyBudgetError, StateLostError
from cape.frozen import dataclass
from cape.privacy.event import Event
from cape.privacy.ledger import Ledger
from cape.privacy.randomness import NoiseSource
from cape.protocol import wire
from cape.protocol.messages import Cursor, FeatureSpace, Roster, SiteCard
from cape.protocol.outcome import Outcome, SiteOutcome
from cape.protocol.ports import Identity, Source, Stacks
from cape.site.ledger_file import AllRuns
from cape.site.policy import SitePolicy
from cape.site.site_data import WorkingCache

NO_REQUEST = bytes(32)
"""Stands for the broadcast that is answered in the first exchange: there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Whose run this is, as the engine says, and digests of the software that answers it."""

    owner: str = ""
    digests: tuple[str, ...] = ()


NOWHERE = Origin()


class SiteContext:
    """One site for one round: what `cape.protocol.phases.Site` asks for."""

    def __init__(
        self,
        *,
        site: str,
        computation: str,
        config: Config,
        noise: NoiseSource,
        policy: SitePolicy,
        source: Source,
        memo: WorkingCache,
        request: bytes,
        on_charge: Callable[[Mapping[str, Any]], None],
        keep: Callable[[str, bytes], None],
        secret: Callable[[str], bytes],
        publish: Callable[[SiteOutcome], None],
        record: Callable[[SiteOutcome], None] = lambda result: None,
        identity: Callable[[], Identity] | None = None,
        card: Sequence[Any] = (),
        origin: Origin = NOWHERE,
        all_runs: AllRuns | None = None,
    ) -> None:
        self.id = site
        self.config = config
        self.noise = noise
        self.request = request
        self.cursor = Cursor(seq=1, phase="", round=1)
        self.ledger: Ledger | None = None
        self.source = source
        self.keep = keep
        self.secret = secret
        self.card = tuple(card)
        """What this site said of itself in `join`: nonce, M_s, SHA-256 of its feature space.

        The fourth is what it did not say: the labels of that space.
        """
        self._identity = identity
        self._computation = computation
        self.policy = self._policy = policy
        self._memo = memo
        self._origin = origin
        self._all_runs = all_runs
        self._on_charge = on_charge
        self._publish = publish
        self._record = record
        self._digested: tuple[object, bytes] | None = None

    @property
    def share_timepoints(self) -> bool:
        """Whether `join` may say the fewest and most time points of a subject."""
        return self._policy.share_timepoints

    @property
    def labels(self) -> str:
        """Packed labels of the site's own mask or atlas, as accepted in `join`; else empty."""
        return str(self.card[3]) if self.card else ""

    def identity(self) -> Identity:
        """Return the pinned keys from the site's own files."""
        if self._identity is None:
            raise ConfigError("E303")
        return self._identity()

    def cached(self, name: str, key: str, build: Callable[[], Stacks]) -> Stacks:
        """Return kept working arrays, or build and keep them."""
        kept = self._memo.get(name, key)
        if kept is None:
            kept = build()
            self._memo.put(name, key, kept)
        return kept

    def charge(self, event: Event) -> None:
        """Check policy and budget, then write the charge down, all before any noise is drawn."""
        if self.ledger is None:
            raise StateLostError("E210", site=f"site {self.id}", what="ledger")
        self._policy.check_settings(self.id, self._computation, self.config)
        ledger = self.ledger.charge(event)
        line = ledger.entries()[-1]
        if self._all_runs and not self._all_runs.file.charge(str(self.card[0]), line):
            raise self._policy.over_total(self.id)
        self._on_charge(line)
        self.ledger = ledger

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent.

        The last one is kept: every round asks for that of the roster, with the plan of all rounds.
        """
        if self._digested is None or self._digested[0] is not message:
            sent = message.as_broadcast() if isinstance(message, Roster) else message
            self._digested = message, wire.digest(sent)
        return self._digested[1]

    def admit(self, facts: object) -> None:
        """Let the policy look at the settings, and at card and roster once there are any."""
        origin = self._origin
        self._policy.check_origin(self.id, owner=origin.owner, digests=origin.digests)
        self._policy.check_settings(self.id, self._computation, self.config)
        if isinstance(facts, SiteCard):
            self._policy.check_size(self.id, facts.n_subjects)
            self.card = (
                facts.nonce,
                facts.n_subjects,
                _outline(facts.space),
                self.source.space.packed,
            )
            if self._all_runs is not None:
                promised = self.config.private and facts.noise != "seeded"
                begin = self._all_runs.begin
                if not begin(facts.nonce, self._computation, self.config, promised=promised):
                    raise self._policy.over_total(self.id)
        if isinstance(facts, Roster):
            self._check_entry(facts)
            self._policy.check_run(
                self.id,
                colluders=facts.colluders,
                n_basis=facts.n_basis,
                n_subjects=int(self.card[1]),
                n_sites=facts.n_sites,
            )
            if self._all_runs is not None:
                promised = self.config.private and not facts.seeded
                if not self._all_runs.go_on(str(self.card[0]), self.config, promised=promised):
                    raise self._policy.over_total(self.id)

    def _check_entry(self, roster: Roster) -> None:
        """Refuse a roster that does not say of this site what it said, or mixes in seeded noise."""
        own = [
            (entry.nonce, entry.n_subjects, _outline(roster.space))
            for entry in roster.sites
            if entry.site == self.id
        ]
        if own != [self.card[:3]] or roster.space.packed:
            problem = "the roster does not list this site as it joined"
            raise PrivacyBudgetError("E231", site=self.id, problem=problem)
        if self.noise.label == "seeded" and not roster.seeded:
            raise PrivacyBudgetError("E160", site=self.id)
        if roster.seeded and self.noise.label != "seeded" and not self._policy.allow_not_private:
            raise PrivacyBudgetError("E154", site=self.id)

    def publish(self, result: object) -> None:
        """Write the site's own record, and what only it may see if its policy wants that."""
        if isinstance(result, SiteOutcome):
            if self._all_runs is not None and self.card:
                total = self._all_runs.file.total(str(self.card[0]))
                result = dataclasses.replace(result, all_runs=total)
            self._record(result)
            if self._policy.private_results:
                self._publish(result)


def _outline(space: FeatureSpace) -> str:
    """Return the SHA-256 of all that is said of a space in `join`: its own digest names less.

    A site prepares as many features as the roster says, so that number must be its own.
    """
    return wire.digest(space.outline()).hex()


class AggregatorContext:
    """The aggregator for one round: what `cape.protocol.phases.Aggregator` asks for."""

    def __init__(
        self,
        *,
        config: Config,
        publish: Callable[[Outcome], None],
        request: bytes = NO_REQUEST,
        kept: dict[str, bytes] | None = None,
    ) -> None:
        self.config = config
        self.cursor = Cursor(seq=1, phase="", round=1)
        self.ledger: Ledger | None = None
        self.lost: frozenset[str] = frozenset()
        self.request = request
        self._publish = publish
        self._kept = {} if kept is None else kept

    def keep(self, name: str, value: bytes) -> None:
        """Store what only the aggregator holds; empty bytes remove it."""
        if value:
            self._kept[name] = value
        else:
            self._kept.pop(name, None)

    def secret(self, name: str) -> bytes:
        """Return what was kept; StateLostError if it is gone."""
        if name not in self._kept:
            raise StateLostError("E210", site="the aggregator", what=name)
        return self._kept[name]

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent."""
        return wire.digest(message.as_broadcast() if isinstance(message, Roster) else message)

    def charge(self, event: Event) -> None:
        """Put a release on record."""
        if self.ledger is None:
            raise StateLostError("E210", site="the aggregator", what="ledger")
        self.ledger = self.ledger.charge(event)

    def publish(self, result: object) -> None:
        """Write the files of the consortium."""
        if isinstance(result, Outcome):
            self._publish(result)
