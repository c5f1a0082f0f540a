"""The secure sum where sites may drop out: protocol stages as phases of a table.

``aggregation=secagg`` (Bonawitz et al. 2017).  Once per run the sites advertise keys and share
their secrets, one key set for every release to come (`key_phases`); each sum is then made by
`cape.protocol.droppable_sum`.  The mathematics is `cape.secagg.stages`; here is only who says
what when.

Secrets of a site stay in its vault between phases; what the model holds is public.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from cape.errors import CapeError, SecureAggregationError
from cape.protocol import wire
from cape.protocol.messages import (
    KeyAdvertisement,
    KeyAdvertisements,
    Roster,
    SealedShareBook,
    SealedShares,
)
from cape.protocol.model import DropOuts, Model, agreed_labels, attendance, joined
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.pinned_keys import pinned
from cape.protocol.ports import Aggregator, Site
from cape.secagg import (
    aggregator_stages,
    key_sharing,
    keys,
    messages,
    site_stages,
    stages,
)

SECRET = "secagg"  # noqa: S105 - the name of a vault entry
EXTRA_SETS = 1
"""Key sets besides one per planned release: for the probe."""

State = TypeVar("State")


# -- facts that all parties derive from the model ------------------------------------------------


def setup_of(roster_digest: bytes, roster: Roster) -> stages.Setup:
    """Return the facts that every key and signature of this run is bound to."""
    return stages.Setup(
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


def advertised(setup: stages.Setup, listed: KeyAdvertisements) -> messages.AdvertisementList:
    """Return the advertisements of U1 in the form of the protocol."""
    exchange = stages.advertise_id(setup)
    return messages.AdvertisementList(
        entries=tuple(
            messages.Advertisement(
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
    return stages.roster_of(setup, advertised(setup, drop_outs(model).advertised).entries)


def table_of(party: Aggregator, model: Model) -> aggregator_stages.KeyTable:
    """Return the public keys of this run in the form of the protocol."""
    roster, left = joined(model), drop_outs(model)
    setup = setup_of(party.digest(roster), roster)
    listed = advertised(setup, left.advertised)
    return aggregator_stages.KeyTable(
        setup=setup,
        advertised=listed,
        roster=stages.roster_of(setup, listed.entries),
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
        state = key_sharing.advertise(
            setup_of(site.digest(roster), roster),
            site=site.id,
            identity_secret=site.identity().secret if pinned(site) else fresh,
            token_bytes=entropy.token_bytes,
        )
        keep(site, SECRET, state)
        own = state.own
        return KeyAdvertisement(
            keys=own.keys,
            identity_key=own.identity_key,
            signature=own.signature,
            labels=site.labels,
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
    labels = agreed_labels(model, (reply.labels for reply in replies.values()))
    without = {site: replace(reply, labels="") for site, reply in replies.items()}
    roster, listed = joined(model), KeyAdvertisements(sites=without, labels=labels)
    setup = setup_of(party.digest(roster), roster)
    aggregator_stages.collect_advertisements(setup, advertised(setup, listed).entries)
    return listed, "zero-sum.shares"


def _absorb_advertisements(model: Model, listed: KeyAdvertisements) -> Model:
    agreed_labels(model, (listed.labels,))
    left = DropOuts(advertised=listed, asked=tuple(keys.site_order(listed.sites)))
    return replace(model, drop_outs=left)


def _share(site: Site, model: Model) -> SealedShares:
    state = kept(site, SECRET, key_sharing.AdvertisedSite)
    after, message = key_sharing.share(
        state,
        advertised(state.setup, drop_outs(model).advertised),
        pinned=site.identity().roster if pinned(site) else None,
        token_bytes=site.noise.stream(site.id, "zero-sum.shares", 1, "shares").token_bytes,
    )
    keep(site, SECRET, after)
    return SealedShares(sealed=message.sealed)


def _route(party: Aggregator, replies: Mapping[str, SealedShares], model: Model) -> SealedShareBook:
    table = table_of(party, model)
    exchange = stages.share_id(table.setup, table.roster)
    inbox = [
        messages.SealedShares(site=site, exchange=exchange, sealed=reply.sealed)
        for site, reply in replies.items()
    ]
    _, book = aggregator_stages.route_shares(table.setup, table.advertised, inbox)
    return SealedShareBook(sealed=book.sealed)


def _absorb_shares(model: Model, book: SealedShareBook) -> Model:
    asked = tuple(keys.site_order(book.sealed))
    return replace(model, drop_outs=replace(drop_outs(model), asked=asked, shares=book))


def ready(site: Site, model: Model) -> site_stages.ReadySite:
    """Return the site's state before a release; opens the shares before the first one."""
    book = drop_outs(model).shares
    if book is None:
        return kept(site, SECRET, site_stages.ReadySite)
    state = kept(site, SECRET, key_sharing.SharedSite)
    received = messages.SealedShareBook(
        exchange=stages.share_id(state.first.setup, state.roster), sealed=book.sealed
    )
    return key_sharing.accept_shares(state, received)
