"""The site and the aggregator of one round: implementations of `cape.protocol.ports`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cape.algorithms.estimators import Array
from cape.errors import CapeError, ConfigError, PrivacyBudgetError, StateLostError
from cape.privacy.cost import Event
from cape.privacy.ledger import Ledger
from cape.privacy.noise import NoiseSource
from cape.protocol import wire
from cape.protocol.messages import Cursor, FeatureSpace, Refusal, SiteCard
from cape.protocol.model import Roster
from cape.protocol.outcome import Outcome, SiteOutcome
from cape.protocol.phases import NO_TRANSCRIPT
from cape.protocol.ports import Source, Stacks
from cape.secagg.keys import KEY_BYTES
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.site.files import make_own_folder, write_atomically
from cape.site.policy import SitePolicy, new_secret, noise_of, software
from cape.site.store import Card, SiteStore
from cape.space.feature_space import DOT

if TYPE_CHECKING:  # most rounds ask for no identity key, and simulations keep no ledger
    from cape.privacy.holds import Decision, Ending
    from cape.site.access import Access
    from cape.site.identity import IdentityFiles, KnownSites
    from cape.site.ledger_file import LifetimeLedger

# Vault entry of the secret from which a site derives all random bytes
RUN_SECRET = "run"  # noqa: S105 - the name of a vault entry
# Suffix of the access record of a run that the total of all runs refused
OVER_TOTAL = "-total"
# Refusal of a release whose run holds nothing any more, by state of the run
REFUSALS: dict[str, Refusal] = {"closed": "E237", "yielded": "E238"}
# The last messages with their digests.  Every round needs the digest of the roster, which holds the
# plan of all rounds: encoding it would cost more than the rest of a round.
_DIGESTED: deque[tuple[object, bytes]] = deque(maxlen=4)


class _Party:
    """Common to both sides: position in the run, ledger, and digests of messages."""

    def __init__(self, config: Config) -> None:
        self.config, self.transcript = config, NO_TRANSCRIPT
        self.cursor = Cursor(seq=1, phase="", round=1)
        self.ledger: Ledger | None = None

    def digest(self, message: object) -> bytes:
        digest = next((digest for other, digest in _DIGESTED if other is message), None)
        if digest is None:
            digest = wire.digest(message)
        _DIGESTED.append((message, digest))
        return digest


class SiteContext(_Party):
    """One site for one round of a run of `owner`.

    `open_keys` opens the identity keys; without it, as in simulations, a key serves one run.
    `access_id` names the run in the access records, `question` is the digest of what it asks; if
    `access_id` is empty, no access is recorded.  Nor is that of a `repeated` last round, whose
    journal is gone: its answer clears an earlier record.  `image`: as in `SitePlaces`.  If `page`
    is false, the caller draws the site's page.  `name`: the
    engine's name of the run; empty: the protocol's, as on the page of the results.
    """

    def __init__(
        self,
        *,
        site: str,
        computation: str,
        config: Config,
        policy: SitePolicy,
        open_source: Callable[[], Source],
        store: SiteStore,
        owner: str = "",
        name: str = "",
        open_keys: Callable[[], IdentityFiles | KnownSites] | None = None,
        all_runs: LifetimeLedger | None = None,
        access_id: str = "",
        question: str = "",
        repeated: bool = False,
        image: str = "",
        page: bool = True,
    ) -> None:
        super().__init__(config)
        self.id, self.own_part = site, None
        self.policy, self.store = policy, store
        self._open_source = open_source
        self._computation, self._owner, self._name = computation, owner, name
        self.open_keys, self._all_runs = open_keys, all_runs
        self._access_id, self._question = access_id, question
        self._repeated, self._image, self._page = repeated, image, page
        self._has_looked, self._is_first = False, False
        self.refusal: Refusal = ""

    @cached_property
    def source(self) -> Source:
        self._record_access()
        return self._open_source()

    def _record_access(self) -> None:
        """Record an access to data before it happens.

        PrivacyBudgetError in `join` if too many runs of this owner left an open record.
        """
        if self._all_runs is None or not self._access_id or self._repeated or self._has_looked:
            return
        access = self._all_runs.access
        self._is_first = not access.has(self._access_id)
        # Later rounds belong to a run that was admitted.
        most = self.policy.max_refusals if self.cursor.phase == "join" else 0
        if not access.record(self._access_id, self._facts(), most=most):
            raise self._too_often(self._all_runs, access.counted(but=self._access_id))
        self._has_looked = True

    def _facts(self) -> dict[str, str]:
        output = self.store.output
        folder = "" if output is None else str(output.resolve())
        facts = {"question": self._question, "folder": folder, "exchange": self._exchange}
        return {**facts, "checks": self._checks} if self._exchange == "join" else facts

    @cached_property
    def _checks(self) -> str:
        """What `join` asks about people's data; empty if its answer never depends on them."""
        stops = self.policy.stop_if_most_fail or self.policy.stop_for_data
        return self.config.checks_digest(self._computation) if stops else ""

    @property
    def _exchange(self) -> str:
        phase = self.cursor.phase
        return phase if phase == "join" else f"{phase} round {self.cursor.round}"

    def answered(self) -> None:
        """Remove the access record: the exchange was answered."""
        if self._all_runs is not None and self._access_id:
            same = {"question": self._question, "exchange": self._exchange}
            self._told(self._all_runs)
            self._all_runs.access.clear(self._access_id, **(same if self._has_looked else {}))

    def clear_if_first(self, *, has_read: bool) -> None:
        """Remove the record if this exchange made it: its error cannot depend on data.

        `has_read`: that it came so far says that most of the people pass.
        """
        if self._is_first and self._all_runs is not None:
            if has_read:
                self._told(self._all_runs)
            self._all_runs.access.clear(self._access_id)

    def _told(self, all_runs: LifetimeLedger) -> None:
        """Count the question of `join`: whatever is said now, no fault of the site ended it."""
        if self._exchange == "join":
            all_runs.access.asked(self._access_id)

    def lock_run(self) -> AbstractContextManager[Callable[[int, bytes], None]]:
        """Lock the run; yields a function that refuses a second, different question for a round.

        It refuses even if the site's folder was restored from an older copy.
        """
        if self._all_runs is None:
            return nullcontext(lambda seq, transcript: None)
        self._all_runs.file.check_asked(self.store.nonce)
        return self._all_runs.access.lock_run(self.store.nonce)

    def new_run(self) -> bytes:
        """Draw the secret of this run; the caller stores it as `RUN_SECRET`."""
        secret = new_secret(self.policy, self.id)
        self.noise = noise_of(self.policy, secret)
        return secret

    @cached_property
    def noise(self) -> NoiseSource:
        return noise_of(self.policy, self.store.secret(RUN_SECRET))

    @property
    def card(self) -> Card:
        if self.store.card is None:
            raise StateLostError("E210", site=f"site {self.id}", what="card")
        return self.store.card

    @property
    def min_group(self) -> int:
        return self.policy.min_group

    @property
    def labels(self) -> str:
        return "" if self.store.card is None else self.store.card.labels

    @property
    def maps(self) -> str:
        return "" if self.store.card is None else self.store.card.maps

    def identity_secret(self) -> bytes:
        fresh = self.noise.stream("identity").token_bytes(KEY_BYTES)
        if self.open_keys is not None:
            return self.open_keys().secret(self.id, fresh)
        if self.config.key_trust == "pinned":
            raise ConfigError("E303")
        return fresh

    def known_keys(self, shown: Mapping[str, bytes]) -> Mapping[str, bytes]:
        if self.open_keys is None:
            return shown
        return self.open_keys().known(self.id, shown, self.card.nonce)

    def cached(self, name: str, key: str | Sequence[Array], build: Callable[[], Stacks]) -> Stacks:
        self._record_access()
        if not isinstance(key, str):
            key = hashlib.sha256(b"".join(array.tobytes() for array in key)).hexdigest()
        stacks = self.store.arrays(name, key)
        if stacks is None:
            stacks = build()
            self.store.put_arrays(name, key, stacks)
        return stacks

    def keep(self, name: str, secret: bytes) -> None:
        self.store.keep(name, secret)

    def secret(self, name: str) -> bytes:
        return self.store.secret(name)

    def charge(self, event: Event) -> None:
        # Policy, budget and ledger files all come before any noise is drawn.
        if self.ledger is None:
            raise StateLostError("E210", site=f"site {self.id}", what="ledger")
        self.policy.check_settings(self.id, self._computation, self.config)
        # In memory first, so that an exhausted budget leaves no line.
        ledger, line = self.ledger.charge(event), self.ledger.entry(event)
        # The ledger of all runs comes first: if it refuses, this run's ledger gets no line.
        if self._all_runs:
            earlier = self.ledger.entries()
            decision = self._all_runs.charge(self.card.nonce, line, self.config, earlier)
            self._check_room(self._all_runs, decision)
            self._all_runs.access.paid(self._checks)
        self.store.charge(line)
        # Last: if writing failed, the charge does not count and no noise is drawn for it.
        self.ledger = ledger

    def admit(self, facts: object) -> None:
        digests = software(self.policy, self._image)
        self.policy.check_origin(self.id, owner=self._owner, digests=digests)
        self.policy.check_settings(self.id, self._computation, self.config)
        if isinstance(facts, SiteCard):
            self._admit_card(facts)
        if isinstance(facts, Roster):
            self._admit_roster(facts)

    def _admit_card(self, card: SiteCard) -> None:
        # Before the card leaves: even a too small number of subjects may be confidential.
        try:
            self.policy.check_size(self.id, card.n_subjects)
        except CapeError:
            # The error depends on the listed names only, not on data.
            self.clear_if_first(has_read=True)
            raise
        if card.counts and not self.config.counted:
            column = "a column that no setting names"
            raise PrivacyBudgetError("E168", site=self.id, column=column)
        space = self.source.space
        labels, _, maps = space.packed.partition(DOT)
        if not (resolve(self.config).sends_maps and self.policy.publishes_maps(space.digest)):
            maps = ""
        outline = _outline(card.space, card.counts, card.lacks)
        self.store.card = Card(card.nonce, card.n_subjects, outline, labels, maps)
        if self._all_runs is not None:
            promised = self.config.private and card.noise != "seeded"
            decision = self._all_runs.begin(
                card.nonce, self._computation, self.config, promised=promised
            )
            self._check_room(self._all_runs, decision)

    def _admit_roster(self, roster: Roster) -> None:
        """Refuse a roster that misstates this site's card, or mixes seeded and real noise."""
        listed = [
            (entry.nonce, entry.n_subjects, _outline(roster.space, entry.counts, entry.lacks))
            for entry in roster.sites
            if entry.site == self.id
        ]
        # An aggregator that lists other sizes or nonces changes the noise share of this site.
        if listed != [self.card[:3]] or roster.space.packed:
            problem = "the roster does not list this site as it joined"
            raise PrivacyBudgetError("E231", site=self.id, problem=problem)
        # A run that claims privacy may not contain seeded noise: the seed reveals it.
        if self.noise.label == "seeded" and not roster.seeded:
            raise PrivacyBudgetError("E160", site=self.id)
        if roster.seeded and self.noise.label != "seeded" and not self.policy.allow_not_private:
            raise PrivacyBudgetError("E154", site=self.id)
        self.policy.check_run(
            self.id,
            colluders=roster.colluders,
            n_basis=roster.n_basis,
            n_subjects=self.card.n_subjects,
            n_sites=roster.n_sites,
        )
        self._name = self._name or self.digest(roster)[:16].hex()

    def hold(self, plan: Sequence[Event], *, seeded: bool) -> None:
        """Reserve the plan of the run in the ledger of all runs; PrivacyBudgetError if refused."""
        if self._all_runs is None:
            return
        refused = self._all_runs.access.counted(of_total=True)
        # Otherwise many waiting runs could each learn how much another one has spent.
        if 0 < self.policy.max_refusals <= len(refused):
            raise self._too_often(self._all_runs, refused)
        promised = self.config.private and not seeded
        decision = self._all_runs.hold(self.card.nonce, plan, promised=promised, name=self._name)
        self._check_room(self._all_runs, decision)

    def ended(self, why: Ending) -> None:
        """Free what the run holds in the ledger of all runs and has not charged."""
        if self._all_runs is not None and self.store.nonce:
            self._all_runs.file.end(self.store.nonce, why)

    def _check_room(self, all_runs: LifetimeLedger, decision: Decision) -> None:
        """Raise PrivacyBudgetError if the total refuses a run, and record the refusal."""
        if decision.word == "in":
            return
        # The refusal depends on the people of the site, so its record outlives the answer.
        if self._access_id and decision.counts != "never":
            others = (other for other in decision.waits_for if other.owner != self._owner)
            waits_for = tuple(other.run for other in others)
            for_good = decision.counts == "for good"
            kind: Literal["spent", "wait"] = "spent" if for_good else "wait"
            all_runs.access.record(
                f"{self._access_id}{OVER_TOTAL}", self._facts(), kind=kind, waits_for=waits_for
            )
        if self._access_id:
            self._told(all_runs)
            all_runs.access.clear(self._access_id)
        if decision.word in REFUSALS:
            self.refusal = REFUSALS[decision.word]
            raise PrivacyBudgetError(self.refusal, site=self.id)
        if decision.word == "spent":
            raise self.policy.over_total(self.id, asked=decision.plan, left=decision.left)
        from cape.site.ledger_texts import waiting_text

        detail = waiting_text(decision, all_runs.file.clock, all_runs.file.path)
        raise PrivacyBudgetError("E236", site=self.id, detail=detail)

    def _too_often(self, all_runs: LifetimeLedger, counted: Sequence[Access]) -> PrivacyBudgetError:
        from cape.site.ledger_texts import too_often_text

        most, path = self.policy.max_refusals, all_runs.file.path
        detail = too_often_text(all_runs.owner, counted, most, path)
        return PrivacyBudgetError("E239", site=self.id, detail=detail)

    @property
    def is_closed(self) -> bool:
        if self._all_runs is None or not self.store.nonce:
            return False
        return self._all_runs.file.is_closed(self.store.nonce)

    def publish(self, result: object) -> None:
        if not isinstance(result, SiteOutcome):
            return
        if (output := self.store.output) is not None:  # else the caller has all results
            self._write(output, result)
        # After the results: a process stopped before this line repeats the last round.
        self.ended("finished")

    def _write(self, output: Path, result: SiteOutcome) -> None:
        # Not the card's nonce: if the last phase is repeated, the journal with the card is gone.
        nonce = self.store.nonce
        if self._all_runs is not None and nonce:
            result = dataclasses.replace(result, all_runs=self._all_runs.file.total(nonce))
        if self.open_keys is not None and self.config.key_trust == "first-use" and nonce:
            result = self._with_contacts(result, self.open_keys().contacts_of_run(self.id, nonce))
        write_site_record(output, result)
        # Of a repeated end the files exist already.
        if self.policy.private_results and not (self._repeated or self.is_closed):
            replies = self.store.replies()
            write_private_results(
                output, result, self.source, self.policy, replies, page=self._page
            )

    def _with_contacts(self, result: SiteOutcome, met: Sequence[str]) -> SiteOutcome:
        """Add the first contacts, and the epsilon if the aggregator invented these sites."""
        n_sites = self.config.expected_sites
        epsilon = result.ledger.epsilon_spent()
        if met and n_sites and epsilon is not None and self.config.noise == "correlated":
            colluders = self.config.colluders(n_sites)
            survivors, false = self.config.survivors(n_sites), colluders + len(met)
            shares, real = survivors - colluders, survivors - false
            if self.config.aggregation == "secagg":
                from cape.secagg.graph import unknown_shares

                real = unknown_shares(n_sites, survivors, assumed=colluders, colluders=false)
            real = max(1, real)
            cost = result.ledger.spent.if_unknown(real, noise_shares=shares)
            epsilon = cost.epsilon(self.config.delta)
        return dataclasses.replace(result, first_contacts=tuple(met), epsilon_if_invented=epsilon)


def _outline(space: FeatureSpace, counts: tuple[int, ...], lacks: tuple[str, ...]) -> str:
    # Digest of the whole outline: the number of features, which `space.digest` lacks, must also be
    # the site's own.  What only comparisons say is included if there is any.
    digest = wire.digest(space.outline()).hex()
    text = wire.dumps([digest, *counts, *lacks])
    return hashlib.sha256(text).hexdigest() if counts or lacks else digest


def write_private_results(
    output: Path,
    result: SiteOutcome,
    source: Source,
    policy: SitePolicy,
    replies: tuple[dict[str, Any], ...],
    *,
    page: bool,
) -> None:
    from cape.report import write_site

    # Arrays in memory have no files to describe.
    describe = getattr(source, "private_summary", None)
    make_own_folder(output / "private")
    write_site(output, result, describe and describe(policy, replies), page=page)


def write_site_record(output: Path, result: SiteOutcome) -> None:
    """Write ``cape-site.json``, with the fingerprint of keys that people compare between sites."""
    document: dict[str, Any] = {
        "site": result.site,
        "status": result.outcome_status,
        "fingerprint": result.fingerprint,
        "releases": len(result.ledger.events),
        "epsilon_spent": result.ledger.epsilon_spent(),
        "ledger_head": result.ledger.head,
    }
    if (total := result.all_runs) is not None:
        names = ("runs", "mu", "epsilon", "delta")
        document["all_runs"] = {name: getattr(total, name) for name in names}
    if result.first_contacts is not None:
        document["met_first"] = list(result.first_contacts)
        document["epsilon_if_invented"] = result.epsilon_if_invented
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "cape-site.json", (json.dumps(document, indent=1) + "\n").encode())


class AggregatorContext(_Party):
    """The aggregator for one round; `kept`: its secrets between rounds, changed in place.

    If `page` is false, the caller draws the page of results.  `name`: as in `SiteContext`.
    """

    def __init__(
        self,
        *,
        config: Config,
        kept: dict[str, bytes] | None = None,
        folder: Path | None = None,
        addresses: bool = False,
        page: bool = True,
        name: str = "",
    ) -> None:
        super().__init__(config)
        self.addresses = addresses
        self._page, self._name = page, name
        self.outcome: Outcome | None = None
        self.kept = {} if kept is None else kept
        self._folder = folder

    def keep(self, name: str, value: bytes) -> None:
        # Empty bytes remove a secret, so that the engine's cache no longer holds it.
        if value:
            self.kept[name] = value
        else:
            self.kept.pop(name, None)

    def secret(self, name: str) -> bytes:
        if name not in self.kept:
            raise StateLostError("E210", site="the aggregator", what=name)
        return self.kept[name]

    def charge(self, event: Event) -> None:
        if self.ledger is None:
            raise StateLostError("E210", site="the aggregator", what="ledger")
        self.ledger = self.ledger.charge(event)

    def publish(self, result: object) -> None:
        if isinstance(result, Outcome):
            if self._name:
                result = dataclasses.replace(result, run=self._name)
            self.outcome = result
            if self._folder is not None:
                from cape.report import write_results

                write_results(self._folder, result, page=self._page)
