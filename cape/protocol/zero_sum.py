"""`zero-sum` and `zero-sum.probe`: key agreement, and proof that the masks cancel.

Every site makes one X25519 key pair for this run; pairwise keys then give every release its
zero-sum noise e_s, uniform over the integers modulo 2^64, without another exchange.  The probe
masks a vector of zeros: its sum must be zero before any budget is spent.  Where sites may drop
out, keys and probe are those of `cape.protocol.secagg_stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from cape.config import Config
from cape.errors import SecureAggregationError
from cape.privacy.ledger import Budget, Ledger
from cape.protocol import droppable_sum, pinned_keys, secagg_stages
from cape.protocol.messages import Fingerprint, KeyBook, Masked, PublicKey, RingVector, Roster
from cape.protocol.model import Model, agreed_labels, attendance, joined
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Site
from cape.secagg import keys
from cape.secagg.aggregator_stages import SurvivorSum
from cape.secagg.field import decode_sum

PlanCheck = Callable[[Site, Roster], None]
"""A site's own check of the plan that the aggregator sent; raises if anything is off."""

KEY_NAME = "x25519"
PROBE = "zero-sum.probe"
PROBE_SIZE = 8
KEY_BYTES = 32


def entry(stage: str, config: Config) -> str:
    """Return the phase that opens a release of `stage`."""
    return f"{stage}.zero-sum" if config.zero_sum == "gaussian" else stage


class ZeroSum:
    """Two lines of a table: keys, then the probe; `verify` is the site's look at the plan."""

    def __init__(self, verify: PlanCheck, *, then: str | Callable[[Config], str]) -> None:
        self._verify = verify
        self._then = then

    def _next(self, config: Config) -> str:
        stage = self._then if isinstance(self._then, str) else self._then(config)
        return entry(stage, config)

    def phases(self, config: Config) -> tuple[AnyPhase, ...]:
        """Return the phases of the chosen aggregation."""
        then = self._next(config)
        if config.aggregation == "secagg":
            return (
                *secagg_stages.key_phases(self._prepare, then=PROBE),
                *droppable_sum.DroppableSum(
                    name=PROBE,
                    field="probe",
                    broadcast=Fingerprint,
                    answer=_probe,
                    size=lambda party, model: PROBE_SIZE,
                    bound=lambda party, model: 0,
                    finish=self._opened,
                    absorb=_absorb_fingerprint,
                    then=(then,),
                ).phases(),
            )
        return (
            Phase(
                name="zero-sum",
                reply=PublicKey,
                broadcast=KeyBook,
                answer=self._advertise,
                combine=_collect,
                absorb=_absorb_keys,
                then=(PROBE,),
                attendance=attendance,
            ),
            Phase(
                name=PROBE,
                reply=Masked,
                broadcast=Fingerprint,
                answer=_probe,
                combine=self._compare,
                absorb=_absorb_fingerprint,
                then=(then,),
                attendance=attendance,
            ),
        )

    def _prepare(self, site: Site, model: Model) -> None:
        roster = joined(model)
        site.admit(roster)
        self._verify(site, roster)
        site.ledger = empty_ledger(site.config)

    def _advertise(self, site: Site, model: Model) -> PublicKey:
        self._prepare(site, model)
        secret = site.noise.stream(site.id, "zero-sum", 1, "key").token_bytes(KEY_BYTES)
        site.keep(KEY_NAME, secret)
        public = keys.public_key(keys.private_key_from_bytes(secret))
        return replace(pinned_keys.advertised(site, model, public), labels=site.labels)

    def _compare(
        self, party: Aggregator, replies: Mapping[str, Masked], model: Model
    ) -> tuple[Fingerprint, str | None]:
        total = decode_sum([reply.total for reply in replies.values()], bound=0)
        if total.shape != (PROBE_SIZE,):
            raise SecureAggregationError("E220", problem="the probe has another length")
        digest = keys.roster_digest(key_roster(joined(model), book(model)))
        party.ledger = empty_ledger(party.config)
        signed = tuple(reply.signature for reply in replies.values() if reply.signature)
        shown = Fingerprint(fingerprint=keys.roster_fingerprint(digest), signatures=signed)
        return shown, self._next(party.config)

    def _opened(
        self, party: Aggregator, total: SurvivorSum, model: Model
    ) -> tuple[Fingerprint, str | None]:
        """Return the fingerprint once the masks of the sites that are left have cancelled."""
        del total  # all zeros: its bound is 0
        party.ledger = empty_ledger(party.config)
        digest = secagg_stages.key_digest(party, model)
        return Fingerprint(fingerprint=keys.roster_fingerprint(digest)), self._next(party.config)


def empty_ledger(config: Config) -> Ledger:
    """Return the ledger of a run that has released nothing; without a budget if not private."""
    if not config.private:
        return Ledger(budget=None)
    return Ledger(budget=Budget.of(epsilon=config.epsilon, delta=config.delta))


def book(model: Model) -> KeyBook:
    """Return the public keys of a run whose keys are agreed."""
    if model.keys is None:
        raise RuntimeError("no keys before zero-sum")
    return model.keys


def key_roster(roster: Roster, agreed: KeyBook) -> list[keys.RosterEntry]:
    """Return sites, sizes and public keys in the form that keys are bound to."""
    if len(agreed.public_keys) != roster.n_sites:
        raise SecureAggregationError("E220", problem="one public key per site is needed")
    try:
        publics = [bytes.fromhex(text) for text in agreed.public_keys]
    except ValueError:
        raise SecureAggregationError("E220", problem="a public key is not hexadecimal") from None
    identities = agreed.identity_keys or ("",) * roster.n_sites
    if len(identities) != roster.n_sites:
        raise SecureAggregationError("E220", problem="one identity key per site is needed")
    try:
        return [
            keys.RosterEntry(
                site=entry.site,
                n_subjects=entry.n_subjects,
                public_key=public,
                identity_key=bytes.fromhex(identity),
            )
            for entry, public, identity in zip(roster.sites, publics, identities, strict=True)
        ]
    except ValueError:
        raise SecureAggregationError("E220", problem="an identity key is not hexadecimal") from None


def own_fingerprint(site: Site, model: Model) -> str:
    """Return the first digits of the roster of keys as this site computes it by itself."""
    if model.keys is not None:
        digest = keys.roster_digest(key_roster(joined(model), model.keys))
    else:
        digest = secagg_stages.key_digest(site, model)
    return keys.roster_fingerprint(digest)


def hide(site: Site, model: Model, noisy: npt.NDArray[np.int64], field: str) -> RingVector:
    """Return the vector of this site, (d,) int64, as it may leave: masked modulo 2^64."""
    if site.config.aggregation == "secagg":
        return droppable_sum.hide(site, model, noisy, field)
    entries = key_roster(joined(model), book(model))
    if site.cursor.phase != PROBE:
        pinned_keys.check_roster(site, model, entries)
    return noisy.view(np.uint64) + mask(site, model, noisy.size, field)


def mask(site: Site, model: Model, size: int, field: str) -> RingVector:
    """Return the zero-sum noise e_s of this site for the present phase and round, (size,) uint64.

    Bound to the broadcast that is being answered: if sites were told different things, their
    masks do not cancel and the sum is noise.
    """
    roster = joined(model)
    entries = key_roster(roster, book(model))
    ring = keys.KeyRing(site=site.id, secret_key=site.secret(KEY_NAME))
    sizes = {entry.site: entry.n_subjects for entry in roster.sites}
    public = keys.public_key(keys.private_key_from_bytes(ring.secret_key))
    own = next((entry for entry in entries if entry.site == site.id), None)
    if own is None or own.public_key != public:
        raise SecureAggregationError("E220", problem=f"the key of {site.id} was changed")
    keys.check_roster(entries, own=own, sizes=sizes)
    salt = pinned_keys.salt_of(site, roster)
    label = keys.MaskLabel(
        phase=site.cursor.phase,
        round=site.cursor.round,
        field=field,
        size=size,
        broadcast_digest=site.request,
    )
    return keys.zero_sum_mask(keys.pair_keys(ring, entries, salt=salt), label)


def _collect(
    party: Aggregator, replies: Mapping[str, PublicKey], model: Model
) -> tuple[KeyBook, str | None]:
    answers = list(replies.values())
    labels = agreed_labels(model, (r.labels for r in answers))
    agreed = KeyBook(public_keys=tuple(r.public_key for r in answers), labels=labels)
    if party.config.key_trust == "pinned":
        identities = tuple(r.identity_key for r in answers)
        signatures = tuple(r.signature for r in answers)
        agreed = replace(agreed, identity_keys=identities, signatures=signatures)
    return agreed, PROBE


def _absorb_keys(model: Model, agreed: KeyBook) -> Model:
    agreed_labels(model, (agreed.labels,))
    return replace(model, keys=agreed)


def _probe(site: Site, model: Model) -> Masked:
    zeros = np.zeros(PROBE_SIZE, dtype=np.int64)
    signature = ""
    if site.config.aggregation != "secagg":  # there the list of survivors is signed
        entries = key_roster(joined(model), book(model))
        pinned_keys.check_keys(site, model, entries, book(model))
        signature = pinned_keys.signed_roster(site, entries)
    return Masked(total=hide(site, model, zeros, "probe"), refused=False, signature=signature)


def _absorb_fingerprint(model: Model, shown: Fingerprint) -> Model:
    if model.keys is not None:  # people compare it: it must be that of the keys in use here
        digest = keys.roster_digest(key_roster(joined(model), model.keys))
        if shown.fingerprint != keys.roster_fingerprint(digest):
            raise SecureAggregationError("E220", problem="the fingerprint is not that of the keys")
    return replace(model, fingerprint=shown.fingerprint, signatures=shown.signatures)
