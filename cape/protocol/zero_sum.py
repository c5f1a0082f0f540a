"""`zero-sum` and `zero-sum.probe`: key agreement, and a test that the masks cancel.

Every site makes one X25519 key pair for this run; pairwise keys then give every release its
zero-sum noise e_s, uniform modulo 2^64, without another exchange.  The probe masks a vector of
zeros: its sum must be zero before any budget is spent.

Every site has an Ed25519 key that outlives a run and knows those of the others: from their first
run together (``key_trust=first-use``), or exchanged beforehand without the aggregator
(``pinned``).  It signs its key of this run (`zero-sum`), then the key roster as it received it
(`zero-sum.probe`).  Every site checks all signatures before it sends anything computed from data,
which detects a relay that changes keys.  For sites that may drop out see
`cape.protocol.droppable_sum`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cape.errors import ConfigError, SecureAggregationError, StateLostError
from cape.frozen import dataclass
from cape.privacy.ledger import Budget, Ledger
from cape.protocol import wire
from cape.protocol.messages import Fingerprint, KeyBook, Masked, PublicKey, RingVector
from cape.protocol.model import (
    Model,
    Roster,
    agreed_labels,
    broadcast_roster,
    check_maps_are_sent,
    joined,
    own_subjects,
    signs,
)
from cape.protocol.phases import AnyPhase, Phase, accept_any_form
from cape.protocol.ports import Aggregator, Site
from cape.secagg import keys
from cape.secagg.field import Integers, decode_sum
from cape.settings.config import Config

# A site's check of the plan that the aggregator sent; raises an error if the plan is wrong
PlanCheck = Callable[[Site, Roster], None]

# Vault entries: the secret key, and the `AgreedKeys` derived from it
KEY_NAME = "x25519"
AGREED = "agreed"
PROBE = "zero-sum.probe"
PROBE_SIZE = 8


def empty_ledger(config: Config) -> Ledger:
    """Return the ledger of a run that has released nothing; without a budget if not private."""
    if not config.private:
        return Ledger(budget=None)
    return Ledger(budget=Budget.of(epsilon=config.epsilon, delta=config.delta))


# -- the line of a table -------------------------------------------------------------------------


class ZeroSum:
    """A line of a table: keys, then the probe; `verify` lets the site check the plan."""

    def __init__(self, verify: PlanCheck, *, then: str | Callable[[Any], str]) -> None:
        self._verify = verify
        self._then = then

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        then = self._then if isinstance(self._then, str) else self._then(config)
        if config.aggregation == "secagg":
            # Only rounds with drop-outs load its messages and states.
            from cape.protocol.droppable_sum import DroppableSum, key_phases

            return (*key_phases(self._prepare, then=PROBE), *DroppableSum(Probe(then)).phases())
        keys_phase = Phase(
            name="zero-sum",
            reply=PublicKey,
            broadcast=KeyBook,
            answer=self._advertise,
            combine=_collect,
            absorb=_absorb_keys,
            then=(PROBE,),
        )
        probe = Probe(then)
        probe_phase = Phase(
            name=PROBE,
            reply=Masked,
            broadcast=Fingerprint,
            answer=probe.masked_sum,
            combine=probe.combine,
            absorb=probe.absorb,
            then=probe.then,
        )
        return (keys_phase, probe_phase)

    def _prepare(self, site: Site, model: Model) -> None:
        roster = joined(model)
        # The first charge may follow after this phase.
        site.admit(roster)
        self._verify(site, roster)
        # Every site sends its labels next; refuse now, before any charge, if they are too large.
        n_bytes = (len(site.labels) + len(site.maps)) * roster.n_sites
        if n_bytes > wire.MAX_DOCUMENT:
            raise ConfigError(
                "E145",
                setting=f"the labels of the mask, from {roster.n_sites} sites",
                got=f"{n_bytes / 2**20:.0f} MiB",
                allowed=f"{wire.MAX_DOCUMENT // 2**20} MiB",
                do="use a bundled mask, or a coarser one.",
            )
        # Last, so that a refused plan reserves nothing.
        site.hold(roster.plan, seeded=roster.seeded)
        site.ledger = empty_ledger(site.config)

    def _advertise(self, site: Site, model: Model) -> PublicKey:
        self._prepare(site, model)
        secret = site.noise.stream("key", site.transcript).token_bytes(keys.KEY_BYTES)
        site.keep(KEY_NAME, secret)
        public = keys.public_key(keys.private_key_from_bytes(secret))
        reply = PublicKey(public_key=public.hex(), labels=site.labels, maps=site.maps)
        if not signs(site.config):
            return reply
        identity = site.identity_secret()
        statement = keys.advertisement(site.id, public, salt=_salt(site, model))
        return replace(
            reply,
            identity_key=keys.identity_public_key(identity).hex(),
            signature=keys.sign(identity, statement).hex(),
        )


def _collect(
    party: Aggregator, replies: Mapping[str, PublicKey], model: Model
) -> tuple[KeyBook, str | None]:
    answers = list(replies.values())
    labels, maps = agreed_labels(model, ((r.labels, r.maps) for r in answers))
    check_maps_are_sent(party.config, model, maps)
    agreed = KeyBook(public_keys=tuple(r.public_key for r in answers), labels=labels, maps=maps)
    if signs(party.config):
        identities = tuple(r.identity_key for r in answers)
        signatures = tuple(r.signature for r in answers)
        agreed = replace(agreed, identity_keys=identities, signatures=signatures)
    return agreed, PROBE


def _absorb_keys(model: Model, agreed: KeyBook) -> Model:
    agreed_labels(model, ((agreed.labels, agreed.maps),))
    # A truncated broadcast is refused here, so that the site can receive it again.
    n_sites, shown = joined(model).n_sites, [agreed.public_keys]
    if agreed.identity_keys or agreed.signatures:
        shown += [agreed.identity_keys, agreed.signatures]
    if any(len(each) != n_sites for each in shown):
        raise SecureAggregationError("E220", problem="one key per site is needed")
    return replace(model, keys=agreed)


class Probe:
    """A sum of zeros that shows that the masks cancel, under either masked carrier."""

    name = PROBE
    field = "probe"
    broadcast = Fingerprint
    check = staticmethod(accept_any_form)

    def __init__(self, then: str) -> None:
        self.then = (then,)

    def masked_sum(self, site: Site, model: Model) -> Masked:
        """Return masked zeros (8,), with the site's signature over the key roster."""
        zeros, signature = np.zeros(PROBE_SIZE, dtype=np.int64), ""
        if site.config.aggregation == "secagg":  # sites sign the list of survivors instead
            masked = mask_vector(site, model, zeros, self.field)
        else:
            agreed = _agree(site, model)
            if signs(site.config):
                signature = keys.sign(site.identity_secret(), agreed.roster).hex()
            masked = _masked(site, model, agreed, zeros, self.field)
        return Masked(total=masked, refused=False, signature=signature)

    def combine(
        self, party: Aggregator, replies: Mapping[str, Masked], model: Model
    ) -> tuple[Fingerprint, str | None]:
        """Return the fingerprint; SecureAggregationError if the masks do not cancel."""
        total = decode_sum([reply.total for reply in replies.values()], bound=0)
        if total.shape != (PROBE_SIZE,):
            raise SecureAggregationError("E220", problem="the probe has another length")
        party.ledger = empty_ledger(party.config)
        signed = tuple(reply.signature for reply in replies.values() if reply.signature)
        shown = Fingerprint(fingerprint=own_fingerprint(party, model), signatures=signed)
        return shown, self.then[0]

    def charge(self, party: Aggregator, model: Model) -> int:
        """Charge nothing: zeros do not depend on data."""
        return PROBE_SIZE

    def bound(self, party: Aggregator, model: Model) -> int:
        """Return 0: the masks must cancel exactly."""
        return 0

    def step(
        self, party: Aggregator, model: Model, total: Integers, *, n_sites: int, n_subjects: int
    ) -> tuple[Fingerprint, str | None]:
        """Return the fingerprint; the masks of the survivors have cancelled."""
        party.ledger = empty_ledger(party.config)
        return Fingerprint(fingerprint=own_fingerprint(party, model)), self.then[0]

    def absorb(self, model: Model, shown: Fingerprint) -> Model:
        """Store the fingerprint; SecureAggregationError unless it is that of the keys used here."""
        wanted = 0 if model.keys is None else len(model.keys.identity_keys)
        if len(shown.signatures) != wanted:
            raise SecureAggregationError("E220", problem="one signature per site is needed")
        if model.keys is not None:
            digest = keys.roster_digest(key_roster(joined(model), model.keys))
            if shown.fingerprint != keys.roster_fingerprint(digest):
                problem = "the fingerprint is not that of the keys"
                raise SecureAggregationError("E220", problem=problem)
        return replace(model, fingerprint=shown.fingerprint, signatures=shown.signatures)


# -- keys and masks of a site --------------------------------------------------------------------


def key_roster(roster: Roster, agreed: KeyBook | None) -> list[keys.KeyRosterEntry]:
    """Return sites, sizes and public keys in the form that pair keys are bound to."""
    if agreed is None:
        raise RuntimeError("no keys before zero-sum")
    identities = agreed.identity_keys or ("",) * roster.n_sites
    return [
        keys.KeyRosterEntry(
            site=entry.site,
            n_subjects=entry.n_subjects,
            public_key=keys.from_hex(public, "a public key"),
            identity_key=keys.from_hex(identity, "an identity key"),
        )
        for entry, public, identity in zip(
            roster.sites, agreed.public_keys, identities, strict=True
        )
    ]


def own_fingerprint(party: Site | Aggregator, model: Model) -> str:
    """Return the fingerprint of the key roster, as this party computes it."""
    if model.keys is not None:
        digest = keys.roster_digest(key_roster(joined(model), model.keys))
    else:
        from cape.protocol.droppable_sum import key_table_of

        digest = key_table_of(party, model).roster
    return keys.roster_fingerprint(digest)


def mask_vector(site: Site, model: Model, noisy: npt.NDArray[np.int64], field: str) -> RingVector:
    """Return the vector of this site, (d,) int64, masked modulo 2^64."""
    if site.config.aggregation == "secagg":
        from cape.protocol.droppable_sum import mask_droppable

        return mask_droppable(site, model, noisy, field)
    agreed: AgreedKeys = wire.decode(wire.loads(site.secret(AGREED)), AgreedKeys)
    if not agreed.signed:
        _check_signatures(model, key_roster(joined(model), model.keys), agreed.roster)
        _keep(site, replace(agreed, signed=True))
    return _masked(site, model, agreed, noisy, field)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgreedKeys:
    """Result of the key exchange in a site's vault, computed once per run."""

    # Pair keys of all other sites in the order of the roster, joined, to parse one text per round
    pairs: bytes = field(repr=False)
    roster: bytes  # digest of the key roster
    # Whether the signatures of all sites on this roster were checked, or there are none
    signed: bool


def _keep(site: Site, agreed: AgreedKeys) -> None:
    site.keep(AGREED, wire.dumps(wire.encode(agreed, AgreedKeys)))


def _agree(site: Site, model: Model) -> AgreedKeys:
    """Check the key roster, and derive a key for each other site, once per run."""
    entries = key_roster(joined(model), model.keys)
    _check_keys(site, model, entries)
    ring = keys.KeyRing(site=site.id, secret_key=site.secret(KEY_NAME))
    # Built from this site's own secrets: an aggregator that swaps its key could remove the masks.
    own = keys.KeyRosterEntry(
        site=site.id,
        n_subjects=own_subjects(site.id, model),
        public_key=ring.public_key,
        identity_key=(
            keys.identity_public_key(site.identity_secret()) if signs(site.config) else b""
        ),
    )
    keys.check_roster(entries, own=own)
    pairs = keys.pair_keys(ring, entries, salt=_salt(site, model)).keys
    agreed = AgreedKeys(
        pairs=b"".join(pairs.values()),
        roster=keys.roster_digest(entries),
        signed=not signs(site.config),
    )
    _keep(site, agreed)
    return agreed


def _masked(
    site: Site, model: Model, agreed: AgreedKeys, noisy: npt.NDArray[np.int64], field: str
) -> RingVector:
    """Add zero-sum noise e_s of this site for the present phase and round, (size,) uint64."""
    # The masks depend on the transcript: they do not cancel if sites received different broadcasts,
    # and two questions for one round, asked of a restored folder, have different masks.
    label = keys.MaskLabel(
        phase=site.cursor.phase,
        round=site.cursor.round,
        field=field,
        size=noisy.size,
        transcript=site.transcript,
    )
    others = [entry.site for entry in broadcast_roster(model).sites if entry.site != site.id]
    n = keys.KEY_BYTES
    if len(agreed.pairs) != n * len(others):  # the keys are of another roster
        raise StateLostError("E210", site=f"site {site.id}", what="keys of all other sites")
    shared = {peer: agreed.pairs[i * n : (i + 1) * n] for i, peer in enumerate(others)}
    pairs = keys.PairKeys(site=site.id, keys=shared)
    return noisy.view(np.uint64) + keys.zero_sum_mask(pairs, label)


def _salt(site: Site, model: Model) -> bytes:
    digest = site.digest(broadcast_roster(model))
    return keys.run_salt(digest[:16].hex(), digest)


# -- identity keys -------------------------------------------------------------------------------


def _check_keys(site: Site, model: Model, roster: Sequence[keys.KeyRosterEntry]) -> None:
    """Raise SecureAggregationError unless every site signed its own key.

    ConfigError E306 for an identity key that differs from the known one.
    """
    if not signs(site.config) or model.keys is None:
        return
    salt = _salt(site, model)
    for entry, signature in zip(roster, _signatures(model.keys.signatures, roster), strict=True):
        statement = keys.advertisement(entry.site, entry.public_key, salt=salt)
        keys.verify_signature(entry.identity_key, statement, signature, site=entry.site)
    shown = {entry.site: entry.identity_key for entry in roster}
    keys.check_pinned(roster, pinned=site.known_keys(shown))


def _check_signatures(model: Model, roster: Sequence[keys.KeyRosterEntry], digest: bytes) -> None:
    """Raise SecureAggregationError unless every site signed this site's key roster."""
    for entry, signature in zip(roster, _signatures(model.signatures, roster), strict=True):
        keys.verify_signature(entry.identity_key, digest, signature, site=entry.site)


def _signatures(texts: Sequence[str], roster: Sequence[keys.KeyRosterEntry]) -> list[bytes]:
    if len(texts) != len(roster):
        raise SecureAggregationError("E220", problem="one signature per site is needed")
    return [keys.from_hex(text, "a signature") for text in texts]
