"""The ports of a site and of the aggregator, for the length of one round.

One class each; how a driver keeps working arrays, secrets and charges is given to them as stores,
in memory or in files.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cape import wire
from cape.algorithms.estimators import Data
from cape.computations._results import Outcome, SiteOutcome
from cape.computations._views import public_basis
from cape.config import Config
from cape.errors import ConfigError, DataError, PrivacyBudgetError, StateLostError
from cape.messages import Cursor, FeatureSpace, Roster, SiteCard
from cape.policy import SitePolicy
from cape.ports import Identity, Source, Stacks
from cape.privacy.ledger import Ledger
from cape.privacy.mechanisms import Event
from cape.privacy.randomness import NoiseSource

NO_REQUEST = bytes(32)
"""Stands for the broadcast that is answered in the first exchange: there is none."""


class FileSource:
    """The data of a site in its folder, read and checked when first asked.

    `given` may hold ``contents``, the fingerprint of the files that were accepted in `join`: then
    nothing but these is read (CAPE-E161).
    """

    def __init__(
        self,
        base: Path,
        given: Mapping[str, object],
        config: Config,
        site: str,
        working: Path | None = None,
    ) -> None:
        self._base, self._config, self._site = base, config, site
        self._working = working
        self._given = {name: given[name] for name in ("data", "manifest", "bids") if name in given}
        self._expected = given.get("contents")
        self._loaded: Any = None

    def _data(self) -> Any:
        if self._loaded is None:
            from cape.data import load_site

            self._loaded = load_site(
                self._base, self._given, self._config, site=self._site, working=self._working
            )
            if self._expected not in (None, self._loaded.fingerprint):
                raise DataError("E161", site=self._site, detail="not the files of the first round")
        return self._loaded

    @property
    def contents(self) -> str:
        """Fingerprint of the accepted files; never leaves the site."""
        return str(self._expected or self._data().fingerprint)

    @property
    def space(self) -> FeatureSpace:
        """Feature space of the data."""
        space: FeatureSpace = self._data().space
        return space

    @property
    def n_subjects(self) -> int:
        """M_s."""
        return len(self._data().subjects)

    @property
    def tr_range(self) -> tuple[float, float]:
        """Shortest and longest repetition time, s."""
        return self._data().tr_low, self._data().tr_high

    def reduced(self, n_basis: int) -> Iterator[tuple[str, Data]]:
        """Yield (label, Y_m (d, T_m)) subject by subject; one of them in memory at a time."""
        from cape.data import reduce_to_basis

        data = self._data()
        B = public_basis(self._config, data.space, n_basis)
        yield from reduce_to_basis(data, B, self._config)


class Memo(Protocol):
    """Where working arrays stay between rounds; may lose them."""

    def get(self, name: str, key: str) -> Stacks | None:
        """Return what was put, or None."""

    def put(self, name: str, key: str, stacks: Stacks) -> None:
        """Keep arrays under name and key, replacing those of another key."""


class MemoryMemo:
    """Working arrays in memory."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[str, Stacks]] = {}

    def get(self, name: str, key: str) -> Stacks | None:
        """Return what was put, or None."""
        kept = self._kept.get(name)
        return kept[1] if kept is not None and kept[0] == key else None

    def put(self, name: str, key: str, stacks: Stacks) -> None:
        """Keep arrays under name and key."""
        self._kept[name] = (key, stacks)


class FileMemo:
    """Working arrays in side files, one per name; a lost or damaged one is made again.

    `contents` gives the fingerprint of the data that they are made of: those of other data count
    as lost.
    """

    def __init__(self, folder: Path, party: str, contents: Callable[[], str] = lambda: "") -> None:
        self._contents = contents
        # An engine's id of a party may hold anything; the name of a file may not.
        self._folder, self._prefix = (
            folder,
            f"cape-{hashlib.sha256(party.encode()).hexdigest()[:16]}",
        )

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._prefix}-{name}.npz"

    def get(self, name: str, key: str) -> Stacks | None:
        """Return what was put, or None if it is gone, damaged or of another key."""
        try:
            with self._path(name).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                head = json.loads(str(stored["head"]))
                if (head["key"], head["contents"]) != (key, self._contents()):
                    return None
                arrays = tuple(stored[f"a{i}"] for i in range(len(head["labels"])))
                labels = tuple(tuple(names) for names in head["labels"])
        except Exception:  # gone, or damaged in whatever way: it is made again
            return None
        return Stacks(arrays=arrays, labels=labels)

    def put(self, name: str, key: str, stacks: Stacks) -> None:
        """Keep arrays under name and key: a complete file or none."""
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._path(name).with_suffix(".partial")
        arrays = {f"a{i}": array for i, array in enumerate(stacks.arrays)}
        head = json.dumps({"key": key, "contents": self._contents(), "labels": stacks.labels})
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            np.savez(file, head=np.array(head), **arrays)  # type: ignore[arg-type]
        os.replace(partial, self._path(name))

    def forget(self) -> None:
        """Remove all working arrays of this party."""
        for path in self._folder.glob(f"{self._prefix}-*.npz"):
            path.unlink(missing_ok=True)


class SiteParty:
    """One site for one round: what `cape.phases.Site` asks for."""

    def __init__(
        self,
        *,
        site: str,
        computation: str,
        config: Config,
        noise: NoiseSource,
        policy: SitePolicy,
        source: Source,
        memo: Memo,
        request: bytes,
        on_charge: Callable[[Mapping[str, Any]], None],
        keep: Callable[[str, bytes], None],
        secret: Callable[[str], bytes],
        publish: Callable[[SiteOutcome], None],
        record: Callable[[SiteOutcome], None] = lambda result: None,
        identity: Callable[[], Identity] | None = None,
        card: Sequence[Any] = (),
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
        """What this site said of itself in `join`: nonce, M_s, digest of its feature space.

        The fourth is what it did not say: the labels of that space.
        """
        self._identity = identity
        self._computation = computation
        self.policy = self._policy = policy
        self._memo = memo
        self._on_charge = on_charge
        self._publish = publish
        self._record = record

    @property
    def labels(self) -> str:
        """Packed labels of the site's own mask or atlas, as accepted in `join`; else empty."""
        return str(self.card[3]) if self.card else ""

    def identity(self) -> Identity:
        """Return the pinned keys from the site's own files."""
        if self._identity is None:
            problem = "key_trust=pinned is not possible here"
            raise ConfigError("E012", problem=problem, do="use key_trust=aggregator.")
        return self._identity()

    def memo(self, name: str, key: str, build: Callable[[], Stacks]) -> Stacks:
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
        self._on_charge(ledger.entries()[-1])
        self.ledger = ledger

    def digest(self, message: object) -> bytes:
        """Return the SHA-256 of the canonical bytes of a message, a roster as it was sent."""
        return wire.digest(message.as_broadcast() if isinstance(message, Roster) else message)

    def admit(self, facts: object) -> None:
        """Let the policy look at the settings, and at card and roster once there are any."""
        self._policy.check_settings(self.id, self._computation, self.config)
        if isinstance(facts, SiteCard):
            self._policy.check_size(self.id, facts.n_subjects)
            digest, labels = facts.space.digest, self.source.space.packed
            self.card = (facts.nonce, facts.n_subjects, digest, labels)
        if isinstance(facts, Roster):
            self._check_entry(facts)
            self._policy.check_run(
                self.id,
                colluders=facts.colluders,
                n_basis=facts.n_basis,
                n_subjects=int(self.card[1]),
            )

    def _check_entry(self, roster: Roster) -> None:
        """Refuse a roster that does not say of this site what it said, or mixes in seeded noise."""
        own = [
            (entry.nonce, entry.n_subjects, roster.space.digest)
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
            self._record(result)
            if self._policy.private_results:
                self._publish(result)


class AggregatorParty:
    """The aggregator for one round: what `cape.phases.Aggregator` asks for."""

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
