"""The secure sum for sites that may drop out: steps of SecureAgg as phases of a table.

``aggregation=secagg`` (Bonawitz et al. 2017).  Once per run the sites advertise keys and share
their secrets, one key set per release (`key_phases`).  Each sum takes three phases
(`DroppableSum`): ``X`` collects masked vectors and names the survivors, ``X.consistency`` collects
their signatures on that list, ``X.unmask`` collects the shares that open only the sum over the
survivors.  Secrets of a site stay in its vault between phases; the model is public.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from cape.errors import CapeError, PrivacyBudgetError, SecureAggregationError
from cape.privacy.ledger import by_exchange
from cape.protocol import wire
from cape.protocol.messages import KeyAdvertisement, KeyAdvertisements, Masked, RingVector
from cape.protocol.model import (
    DropOuts,
    Model,
    agreed_labels,
    broadcast_roster,
    check_maps_are_sent,
    signs,
)
from cape.protocol.phases import AnyPhase, Phase
from cape.protocol.ports import Aggregator, Site
from cape.secagg import aggregator_steps, keys, site_steps, steps
from cape.secagg.aggregator_steps import PendingSum
from cape.secagg.field import Integers
from cape.secagg.messages import (
    Advertisement,
    MaskShares,
    SealedShareBook,
    SealedShares,
    Survivors,
    SurvivorSignature,
    SurvivorSignatures,
)

SECRET = "secagg"  # noqa: S105 - the name of a vault entry
PENDING = "pending"
# Key sets besides one per planned round: for the probe
EXTRA_SETS = 1

M = TypeVar("M", bound=Model)
State = TypeVar("State")


# -- public facts, derived from the model --------------------------------------------------------


def setup_of(party: Site | Aggregator, model: Model) -> steps.Setup:
    roster = broadcast_roster(model)
    digest = party.digest(roster)
    return steps.Setup(
        salt=keys.run_salt(digest[:16].hex(), digest),
        sizes={entry.site: entry.n_subjects for entry in roster.sites},
        colluders=roster.colluders,
        n_sets=len(by_exchange(roster.plan)) + EXTRA_SETS,
        min_survivors=roster.survivors,
        commitments={
            entry.site: keys.from_hex(entry.commitment, "a commitment") for entry in roster.sites
        },
    )


def _part(site: Site) -> bytes:
    """Return this site's part of the graph (`cape.secagg.graph`)."""
    return site.noise.stream("graph").token_bytes(keys.KEY_BYTES)


def commitment_of(site: Site) -> str:
    """Return the commitment to the site's part of the graph, which it opens in `zero-sum`."""
    return steps.commit_part(_part(site)).hex()


def drop_outs(model: Model) -> DropOuts:
    if model.drop_outs is None:
        raise RuntimeError("no keys before zero-sum")
    return model.drop_outs


def key_table_of(party: Site | Aggregator, model: Model) -> aggregator_steps.KeyTable:
    advertised = drop_outs(model).advertised.sites
    return aggregator_steps.KeyTable.of(setup_of(party, model), advertised)


def mask_label(party: Site | Aggregator, field: str, size: int) -> keys.MaskLabel:
    """Return the label of one vector of masks."""
    # It contains the transcript: if sites received different broadcasts, their masks do not cancel.
    return keys.MaskLabel(
        phase=party.cursor.phase,
        round=party.cursor.round,
        field=field,
        size=size,
        transcript=party.transcript,
    )


# -- secrets between phases ----------------------------------------------------------------------


def store_state(party: Site | Aggregator, name: str, state: object) -> None:
    """Store a state of SecureAgg in place of the one before, whose keys are used up."""
    party.keep(name, wire.dumps(wire.encode(state, type(state))))


def load_state(party: Site | Aggregator, name: str, kind: type[State]) -> State:
    """Return the stored state; SecureAggregationError if it is not of that step."""
    try:
        state: State = wire.decode(wire.loads(party.secret(name)), kind)
    except CapeError as err:
        problem = "the stored keys are not those of this step"
        raise SecureAggregationError("E220", problem=problem) from err
    return state


# -- steps 1 and 2: keys for all rounds ----------------------------------------------------------


def key_phases(prepare: Callable[[Site, Model], None], *, then: str) -> tuple[AnyPhase, ...]:
    """Return `zero-sum` and `zero-sum.shares`; `prepare` lets the site check the plan."""

    def advertise(site: Site, model: Model) -> KeyAdvertisement:
        prepare(site, model)
        entropy = site.noise.stream("keys", site.transcript)
        # Always drawn, so that seeded runs draw the same keys after it.
        fresh = entropy.token_bytes(keys.KEY_BYTES)
        state = site_steps.advertise(
            setup_of(site, model),
            site=site.id,
            identity_secret=site.identity_secret() if signs(site.config) else fresh,
            token_bytes=entropy.token_bytes,
            opening=_part(site),
        )
        store_state(site, SECRET, state)
        return KeyAdvertisement(
            keys=state.own.keys,
            identity_key=state.own.identity_key,
            signature=state.own.signature,
            opening=state.own.opening,
            labels=site.labels,
            maps=site.maps,
        )

    def route(
        party: Aggregator, replies: Mapping[str, SealedShares], model: Model
    ) -> tuple[SealedShareBook, str | None]:
        return aggregator_steps.route_shares(key_table_of(party, model), replies), then

    return (
        Phase(
            name="zero-sum",
            reply=KeyAdvertisement,
            broadcast=KeyAdvertisements,
            answer=advertise,
            combine=_collect_advertisements,
            absorb=_absorb_advertisements,
            then=("zero-sum.shares",),
        ),
        Phase(
            name="zero-sum.shares",
            reply=SealedShares,
            broadcast=SealedShareBook,
            answer=_share,
            combine=route,
            absorb=_absorb_shares,
            then=(then,),
        ),
    )


def _collect_advertisements(
    party: Aggregator, replies: Mapping[str, KeyAdvertisement], model: Model
) -> tuple[KeyAdvertisements, str | None]:
    sent = ((reply.labels, reply.maps) for reply in replies.values())
    labels, maps = agreed_labels(model, sent)
    check_maps_are_sent(party.config, model, maps)
    # Labels are as large as the mask: the broadcast holds them once, not once per site.
    without = {
        site: Advertisement(
            keys=reply.keys,
            identity_key=reply.identity_key,
            signature=reply.signature,
            opening=reply.opening,
        )
        for site, reply in replies.items()
    }
    steps.check_advertisements(setup_of(party, model), without)
    return KeyAdvertisements(sites=without, labels=labels, maps=maps), "zero-sum.shares"


def _absorb_advertisements(model: Model, listed: KeyAdvertisements) -> Model:
    agreed_labels(model, ((listed.labels, listed.maps),))
    state = DropOuts(advertised=listed, asked=tuple(keys.site_order(listed.sites)))
    return replace(model, drop_outs=state)


def _share(site: Site, model: Model) -> SealedShares:
    state = load_state(site, SECRET, site_steps.AdvertisedSite)
    listed = drop_outs(model).advertised.sites
    # Signatures first: an unsigned key could be remembered under a false name.
    steps.check_advertisements(state.setup, listed)
    if signs(site.config):
        shown = {name: entry.identity_key for name, entry in listed.items()}
        entries = steps.roster_entries(state.setup, listed)
        keys.check_pinned(entries, pinned=site.known_keys(shown))
    after, message = site_steps.share(
        state,
        listed,
        # One polynomial per secret of the run, whatever the list of receivers: two ciphertexts
        # under one key and nonce would reveal their difference.  (The salt also fixes the graph.)
        token_bytes=site.noise.stream("shares", state.setup.salt).token_bytes,
    )
    store_state(site, SECRET, after)
    return message


def _absorb_shares(model: Model, book: SealedShareBook) -> Model:
    asked = tuple(keys.site_order(book.sharers))
    return replace(model, drop_outs=replace(drop_outs(model), asked=asked))


def _ready(site: Site, model: Model) -> site_steps.ReadySite:
    """Return the site's state before a release; before the first one, open the received shares."""
    if site.own_part is None:
        return load_state(site, SECRET, site_steps.ReadySite)
    state = load_state(site, SECRET, site_steps.SharedSite)
    book = SealedShareBook(sharers=drop_outs(model).asked, addressed={site.id: site.own_part})
    return site_steps.accept_shares(state, book)


# -- steps 3 and 4: one sum over the sites that remain -------------------------------------------


def mask_droppable(
    site: Site, model: Model, noisy: npt.NDArray[np.int64], field: str
) -> RingVector:
    """Mask x + g (d,) with the next key set; the result is uniform without the others' shares."""
    after, masked = site_steps.mask_input(
        _ready(site, model),
        noisy.view(np.uint64),
        label=mask_label(site, field, noisy.size),
        participants=drop_outs(model).asked,
    )
    store_state(site, SECRET, after)
    return masked


class ModularSum(Protocol[M]):
    """A release of `cape.protocol.secure_sum`, or the probe of the masks."""

    # `name`: first phase.  `field`: part of the label of the masks.  `broadcast`: type of the
    # result. `then`: phases that may open after it.  `absorb` and `check` as in `Phase`.

    @property
    def name(self) -> str: ...
    @property
    def field(self) -> str: ...
    @property
    def broadcast(self) -> type: ...
    @property
    def then(self) -> tuple[str, ...]: ...

    def masked_sum(self, site: Site, model: M) -> Masked:
        """Return a site's vector, made with `mask_droppable`, or its refusal."""

    def charge(self, party: Aggregator, model: M) -> int:
        """Charge the sum; return the length of its vector."""

    def bound(self, party: Aggregator, model: M) -> int:
        """Return the largest absolute entry of the true sum."""

    def step(
        self, party: Aggregator, model: M, total: Integers, *, n_sites: int, n_subjects: int
    ) -> tuple[Any, str | None]:
        """Return the result of the sum over the survivors, and the phase to open next."""

    def absorb(self, model: M, result: Any) -> M: ...
    def check(self, model: M, result: Any) -> None: ...


class DroppableSum(Generic[M]):
    """The carrier that survives drop-outs: three phases for one sum."""

    def __init__(self, release: ModularSum[M]) -> None:
        self._release = release

    def phases(self) -> tuple[AnyPhase, ...]:
        """Return the phases: masked vectors, signatures of the survivors, shares."""
        release, name = self._release, self._release.name
        return (
            Phase(
                name=name,
                reply=Masked,
                broadcast=Survivors,
                answer=release.masked_sum,
                combine=self._collect,
                absorb=_absorb_survivors,
                then=(f"{name}.consistency",),
                fold=Masked.folded,
            ),
            Phase(
                name=f"{name}.consistency",
                reply=SurvivorSignature,
                broadcast=SurvivorSignatures,
                answer=_sign,
                combine=self._collect_signatures,
                absorb=_absorb_signatures,
                then=(f"{name}.unmask",),
            ),
            Phase(
                name=f"{name}.unmask",
                reply=MaskShares,
                broadcast=release.broadcast,
                answer=_open,
                combine=self._unmask,
                absorb=self._absorb,
                then=release.then,
                check=release.check,
            ),
        )

    def _collect(
        self, party: Aggregator, replies: Mapping[str, Masked], model: M
    ) -> tuple[Survivors, str | None]:
        """Sum the masked vectors; a site that refuses the release counts as dropped out."""
        table, state = key_table_of(party, model), drop_outs(model)
        refusing = [site for site, reply in replies.items() if reply.refused]
        if refusing and len(replies) - len(refusing) < table.setup.threshold:
            raise PrivacyBudgetError(replies[refusing[0]].refusal or "E154", site=refusing[0])
        # Charged now: the replies are here, whichever site drops out next.
        label = mask_label(party, self._release.field, self._release.charge(party, model))
        pending, listed = aggregator_steps.collect_masked(
            table,
            {site: reply.total for site, reply in replies.items() if not reply.refused},
            key_set=state.releases,
            label=label,
            participants=state.asked,
        )
        # A masked sum is not public, so it stays outside the model.
        store_state(party, PENDING, pending)
        return listed, f"{self._release.name}.consistency"

    def _collect_signatures(
        self, party: Aggregator, replies: Mapping[str, SurvivorSignature], model: M
    ) -> tuple[SurvivorSignatures, str | None]:
        pending = load_state(party, PENDING, PendingSum)
        book = aggregator_steps.collect_signatures(pending, replies)
        return book, f"{self._release.name}.unmask"

    def _unmask(
        self, party: Aggregator, replies: Mapping[str, MaskShares], model: M
    ) -> tuple[Any, str | None]:
        pending = load_state(party, PENDING, PendingSum)
        bound = self._release.bound(party, model)
        total = aggregator_steps.unmask_sum(pending, replies, bound=bound)
        # No other shares may open the same vectors again.
        party.keep(PENDING, b"")
        n_sites = len(total.survivors)
        return self._release.step(
            party, model, total.total, n_sites=n_sites, n_subjects=total.n_subjects
        )

    def _absorb(self, model: M, result: Any) -> M:
        state = drop_outs(model)
        after = replace(state, releases=state.releases + 1, signatures=None)
        return self._release.absorb(replace(model, drop_outs=after), result)


def _absorb_survivors(model: Model, listed: Survivors) -> Model:
    after = replace(drop_outs(model), asked=listed.sites, survivors=listed.sites)
    return replace(model, drop_outs=after)


def _sign(site: Site, model: Model) -> SurvivorSignature:
    state = load_state(site, SECRET, site_steps.ReadySite)
    listed = Survivors(sites=drop_outs(model).survivors)
    after, message = site_steps.sign_survivors(state, listed)
    store_state(site, SECRET, after)
    return message


def _absorb_signatures(model: Model, book: SurvivorSignatures) -> Model:
    asked = tuple(keys.site_order(book.signatures))
    return replace(model, drop_outs=replace(drop_outs(model), asked=asked, signatures=book))


def _open(site: Site, model: Model) -> MaskShares:
    state = load_state(site, SECRET, site_steps.ReadySite)
    signed = drop_outs(model).signatures
    after, message = site_steps.unmask(state, signed or SurvivorSignatures(signatures={}))
    store_state(site, SECRET, after)
    return message
