"""The secure sum where sites may drop out: protocol stages as phases of a table.

``aggregation=secagg`` (Bonawitz et al. 2017).  Once per run the sites advertise keys and share
their secrets, one key set for every release to come (`key_phases`); each sum is then made by
`cape.computations._survivors`.  The mathematics is `cape.secagg.protocol`; here is only who says
what when.

Secrets of a site stay in its vault between phases; what the model holds is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
<<<<<<< HEAD
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
=======
from dataclasses import replace
from typing import TypeVar
>>>>>>> 4250ed3d65fc8289bd2ab0efc00e3a03b7573715

from cape import wire
from cape.computations._model import DropOuts, Model, attendance, joined
from cape.computations._pinned import pinned
from cape.errors import CapeError, SecureAggregationError
from cape.messages import (
    KeyAdvertisement,
    KeyAdvertisements,
    Roster,
    SealedShareBook,
    SealedShares,
)
from cape.phases import Aggregator, AnyPhase, Phase, Site
from cape.secagg import keys, protocol, protocol_aggregator, protocol_sharing, protocol_site

SECRET = "secagg"  # noqa: S105 - the name of a vault entry
EXTRA_SETS = 1
"""Key sets besides one per planned release: for the probe."""

State = TypeVar("State")
M = TypeVar("M", bound=Model)


# -- facts that all parties derive from the model ------------------------------------------------


def setup_of(roster_digest: bytes, roster: Roster) -> protocol.Setup:
    """Return the facts that every key and signature of this run is bound to."""
    return protocol.Setup(
        salt=keys.run_salt(roster_digest[:16].hex(), roster_digest),
        sizes={entry.site: entry.n_subjects for entry in roster.sites},
        colluders=roster.colluders,
        batch=1,
        n_sets=len(roster.plan) + EXTRA_SETS,
        min_survivors=roster.survivors,
    )


def drop_outs(model: Model) -> DropOuts:
    """Return the state of a run whose keys were advertised."""
    if model.drop_outs is None:
        raise RuntimeError("no keys before zero-sum")
    return model.drop_outs


def advertised(setup: protocol.Setup, listed: KeyAdvertisements) -> protocol.AdvertisementList:
    """Return the advertisements of U1 in the form of the protocol."""
    exchange = protocol.advertise_id(setup)
    return protocol.AdvertisementList(
        entries=tuple(
            protocol.Advertisement(
                site=site,
                exchange=exchange,
                keys=listed.sites[site].keys,
                identity_key=listed.sites[site].identity_key,
                signature=listed.sites[site].signature,
            )
            for site in keys.site_order(listed.sites)
        )
    )


def key_digest(party: Site | Aggregator, model: Model) -> bytes:
    """Return the digest of the key roster, of which people compare the first digits."""
    roster = joined(model)
    setup = setup_of(party.digest(roster), roster)
    return protocol.roster_of(setup, advertised(setup, drop_outs(model).advertised).entries)


def table_of(party: Aggregator, model: Model) -> protocol_aggregator.KeyTable:
    """Return the public keys of this run in the form of the protocol."""
    roster, left = joined(model), drop_outs(model)
    setup = setup_of(party.digest(roster), roster)
    listed = advertised(setup, left.advertised)
    return protocol_aggregator.KeyTable(
        setup=setup,
        advertised=listed,
        roster=protocol.roster_of(setup, listed.entries),
        sharers=left.asked,
    )


def label_of(party: Site | Aggregator, field: str, size: int) -> keys.MaskLabel:
    """Return what one vector of masks is for: bound to the broadcast that is being answered."""
    return keys.MaskLabel(
        phase=party.cursor.phase,
        round=party.cursor.round,
        field=field,
        size=size,
        broadcast_digest=party.request,
    )


# -- secrets between phases ----------------------------------------------------------------------


def keep(party: Site | Aggregator, name: str, state: object) -> None:
    """Store a state of the protocol; the one before it, with its used-up keys, is gone."""
    party.keep(name, wire.dumps(wire.encode(state, type(state))))


def kept(party: Site | Aggregator, name: str, kind: type[State]) -> State:
    """Return the stored state; refused unless the protocol stands at that stage."""
    try:
        state: State = wire.decode(wire.loads(party.secret(name)), kind)
    except CapeError as err:
        problem = "the stored keys are not those of this stage"
        raise SecureAggregationError("E220", problem=problem) from err
    return state


# -- stages 1 and 2: keys for all releases -------------------------------------------------------


def key_phases(prepare: Callable[[Site, Model], None], *, then: str) -> tuple[AnyPhase, ...]:
    """Return `zero-sum` and `zero-sum.shares`; `prepare` is the site's look at the plan."""

    def advertise(site: Site, model: Model) -> KeyAdvertisement:
        prepare(site, model)
        roster = joined(model)
        entropy = site.noise.stream(site.id, "zero-sum", 1, "keys")
        fresh = entropy.token_bytes(keys.KEY_BYTES)
        state = protocol_sharing.advertise(
            setup_of(site.digest(roster), roster),
            site=site.id,
            identity_secret=site.identity().secret if pinned(site) else fresh,
            token_bytes=entropy.token_bytes,
        )
        keep(site, SECRET, state)
        own = state.own
        return KeyAdvertisement(
            keys=own.keys, identity_key=own.identity_key, signature=own.signature
        )

    return (
        Phase(
            name="zero-sum",
            reply=KeyAdvertisement,
            broadcast=KeyAdvertisements,
            answer=advertise,
            combine=_collect_advertisements,
            absorb=_absorb_advertisements,
            then=("zero-sum.shares",),
            attendance=attendance,
        ),
        Phase(
            name="zero-sum.shares",
            reply=SealedShares,
            broadcast=SealedShareBook,
            answer=_share,
            combine=lambda party, replies, model: (_route(party, replies, model), then),
            absorb=_absorb_shares,
            then=(then,),
            attendance=attendance,
        ),
    )


def _collect_advertisements(
    party: Aggregator, replies: Mapping[str, KeyAdvertisement], model: Model
) -> tuple[KeyAdvertisements, str | None]:
    roster, listed = joined(model), KeyAdvertisements(sites=dict(replies))
    setup = setup_of(party.digest(roster), roster)
    protocol_aggregator.collect_advertisements(setup, advertised(setup, listed).entries)
    return listed, "zero-sum.shares"


def _absorb_advertisements(model: Model, listed: KeyAdvertisements) -> Model:
    left = DropOuts(advertised=listed, asked=tuple(keys.site_order(listed.sites)))
    return replace(model, drop_outs=left)


def _share(site: Site, model: Model) -> SealedShares:
    state = kept(site, SECRET, protocol_sharing.AdvertisedSite)
    after, message = protocol_sharing.share(
        state,
        advertised(state.setup, drop_outs(model).advertised),
        pinned=site.identity().roster if pinned(site) else None,
        token_bytes=site.noise.stream(site.id, "zero-sum.shares", 1, "shares").token_bytes,
    )
    keep(site, SECRET, after)
    return SealedShares(sealed=message.sealed)


def _route(party: Aggregator, replies: Mapping[str, SealedShares], model: Model) -> SealedShareBook:
    table = table_of(party, model)
    exchange = protocol.share_id(table.setup, table.roster)
    inbox = [
        protocol.SealedShares(site=site, exchange=exchange, sealed=reply.sealed)
        for site, reply in replies.items()
    ]
    _, book = protocol_aggregator.route_shares(table.setup, table.advertised, inbox)
    return SealedShareBook(sealed=book.sealed)


def _absorb_shares(model: Model, book: SealedShareBook) -> Model:
    asked = tuple(keys.site_order(book.sealed))
    return replace(model, drop_outs=replace(drop_outs(model), asked=asked, shares=book))


def ready(site: Site, model: Model) -> protocol_site.ReadySite:
    """Return the site's state before a release; opens the shares before the first one."""
    book = drop_outs(model).shares
    if book is None:
        return kept(site, SECRET, protocol_site.ReadySite)
    state = kept(site, SECRET, protocol_sharing.SharedSite)
    received = protocol.SealedShareBook(
        exchange=protocol.share_id(state.first.setup, state.roster), sealed=book.sealed
    )
    return protocol_sharing.accept_shares(state, received)
<<<<<<< HEAD


# -- stages 3, 3b and 4: one sum -----------------------------------------------------------------


def hide(site: Site, model: Model, noisy: npt.NDArray[np.int64], field: str) -> RingVector:
    """Return x + g under fresh masks of the next key set, uniform without the others' shares."""
    after, message = protocol_site.mask_input(
        _ready(site, model),
        noisy.view(np.uint64),
        label=_label(site, field, noisy.size),
        participants=drop_outs(model).asked,
    )
    _keep(site, SECRET, after)
    return message.masked


@dataclass(frozen=True, kw_only=True, slots=True)
class DroppableSum(Generic[M]):
    """Three phases of a table: one modular sum over the sites that remain.

    Attributes
    ----------
    name, field : str
        Of the first phase, and of the masked vector.
    broadcast : type
        Of the result.
    answer : callable
        ``answer(site, model)``: the masked vector (made with `hide`).
    size : callable
        ``size(party, model)``: its length; where the aggregator charges the release.
    bound : callable
        ``bound(party, model)``: largest size of an entry of the true sum.
    finish : callable
        ``finish(party, total, model)``: the result, and the phase to open next.
    absorb : callable
        As in `Phase`.
    then : tuple of str
        What may open after the last phase.
    """

    name: str
    field: str
    broadcast: type
    answer: Callable[[Site, M], Masked]
    size: Callable[[Aggregator, M], int]
    bound: Callable[[Aggregator, M], int]
    finish: Callable[[Aggregator, SurvivorSum, M], tuple[Any, str | None]]
    absorb: Callable[[M, Any], M]
    then: tuple[str, ...]

    def phases(self) -> tuple[AnyPhase, ...]:
        """Return the phases."""
        return (
            Phase(
                name=self.name,
                reply=Masked,
                broadcast=Survivors,
                answer=self.answer,
                combine=self._collect,
                absorb=_absorb_survivors,
                then=(f"{self.name}.consistency",),
                attendance=attendance,
            ),
            Phase(
                name=f"{self.name}.consistency",
                reply=SurvivorSignature,
                broadcast=SurvivorSignatures,
                answer=_sign,
                combine=self._check,
                absorb=_absorb_signatures,
                then=(f"{self.name}.unmask",),
                attendance=attendance,
            ),
            Phase(
                name=f"{self.name}.unmask",
                reply=MaskShares,
                broadcast=self.broadcast,
                answer=_open,
                combine=self._finish,
                absorb=self._absorb,
                then=self.then,
                attendance=attendance,
            ),
        )

    def _collect(
        self, party: Aggregator, replies: Mapping[str, Masked], model: M
    ) -> tuple[Survivors, str | None]:
        """Sum what came; a site that refuses the release is one that dropped out."""
        table, left = _table(party, model), drop_outs(model)
        refusing = [site for site, reply in replies.items() if reply.refused]
        if refusing and len(replies) - len(refusing) < table.setup.threshold:
            raise PrivacyBudgetError("E154", site=refusing[0])
        label = _label(party, self.field, self.size(party, model))
        exchange = protocol.release_id(
            table.setup,
            table.roster,
            key_set=left.releases,
            label=label,
            participants=left.asked,
        )
        pending, listed = protocol_aggregator.collect_masked(
            table,
            [
                protocol.MaskedInput(site=site, exchange=exchange, masked=reply.total)
                for site, reply in replies.items()
                if not reply.refused
            ],
            key_set=left.releases,
            label=label,
            participants=left.asked,
        )
        _keep(party, PENDING, pending)
        return Survivors(sites=listed.survivors), f"{self.name}.consistency"

    def _check(
        self, party: Aggregator, replies: Mapping[str, SurvivorSignature], model: M
    ) -> tuple[SurvivorSignatures, str | None]:
        del model
        pending = _kept(party, PENDING, PendingSum)
        signed, book = protocol_aggregator.collect_signatures(
            pending,
            [
                protocol.SurvivorSignature(
                    site=site, exchange=pending.exchange, signature=reply.signature
                )
                for site, reply in replies.items()
            ],
        )
        _keep(party, PENDING, signed)
        return SurvivorSignatures(signatures=book.signatures), f"{self.name}.unmask"

    def _finish(
        self, party: Aggregator, replies: Mapping[str, MaskShares], model: M
    ) -> tuple[Any, str | None]:
        pending = _kept(party, PENDING, PendingSum)
        total = protocol_aggregator.unmask_sum(
            pending,
            [
                protocol.UnmaskShares(
                    site=site,
                    exchange=pending.exchange,
                    self_masks=reply.self_masks,
                    mask_keys=reply.mask_keys,
                )
                for site, reply in replies.items()
            ],
            bound=self.bound(party, model),
        )
        party.keep(PENDING, b"")
        return self.finish(party, total, model)

    def _absorb(self, model: M, result: Any) -> M:
        left = drop_outs(model)
        after = replace(left, releases=left.releases + 1, participants=(), signatures=None)
        return self.absorb(replace(model, drop_outs=after), result)


def _absorb_survivors(model: Model, listed: Survivors) -> Model:
    left = drop_outs(model)
    after = replace(
        left,
        asked=listed.sites,
        participants=left.asked,
        survivors=listed.sites,
        shares=None,
    )
    return replace(model, drop_outs=after)


def _sign(site: Site, model: Model) -> SurvivorSignature:
    state = _kept(site, SECRET, protocol_site.ReadySite)
    listed = protocol.SurvivorList(exchange=_exchange(state), survivors=drop_outs(model).survivors)
    after, message = protocol_site.sign_survivors(state, listed)
    _keep(site, SECRET, after)
    return SurvivorSignature(signature=message.signature)


def _absorb_signatures(model: Model, book: SurvivorSignatures) -> Model:
    asked = tuple(keys.site_order(book.signatures))
    return replace(model, drop_outs=replace(drop_outs(model), asked=asked, signatures=book))


def _open(site: Site, model: Model) -> MaskShares:
    state = _kept(site, SECRET, protocol_site.ReadySite)
    signed = drop_outs(model).signatures
    book = protocol.SignatureBook(
        exchange=_exchange(state), signatures=signed.signatures if signed else {}
    )
    after, message = protocol_site.unmask(state, book)
    _keep(site, SECRET, after)
    return MaskShares(self_masks=message.self_masks, mask_keys=message.mask_keys)


def _exchange(state: protocol_site.ReadySite) -> bytes:
    """Return the exchange of the release under way: signatures are bound to it."""
    return state.release.exchange if state.release is not None else b""
=======
>>>>>>> 4250ed3d65fc8289bd2ab0efc00e3a03b7573715
