"""SecureAgg, the aggregator's side: one function per stage.

::

    collect_advertisements -> route_shares
        -> [collect_masked -> collect_signatures -> unmask_sum] per release

Each takes the messages that came in time, in any order; a later one is refused by the next
stage, as it belongs to another exchange or type.  The aggregator learns the sum over the
survivors and who they are.  Source: see `cape.secagg.stages`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from cape.errors import MessageError
from cape.frozen import dataclass
from cape.secagg import shamir
from cape.secagg.field import Integers, decode_sum
from cape.secagg.keys import (
    KeyRing,
    MaskLabel,
    Ring,
    failure,
    shared_keys,
    site_order,
    subtract_stream,
    zero_sum_mask,
)
from cape.secagg.messages import (
    Advertisement,
    AdvertisementList,
    MaskedInput,
    SealedShareBook,
    SealedShares,
    SignatureBook,
    SurvivorList,
    SurvivorSignature,
    UnmaskShares,
)
from cape.secagg.seals import verify
from cape.secagg.stages import (
    Setup,
    advertise_id,
    check_advertisements,
    commit,
    commitment,
    inbox_by_site,
    mask_public_key,
    release_id,
    roster_of,
    share_id,
    survivor_statement,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyTable:
    """State after stage 2, public: facts, advertisements of U1, its digest, sites of U2."""

    setup: Setup
    advertised: AdvertisementList
    roster: bytes
    sharers: tuple[str, ...]

    def entry(self, site: str) -> Advertisement:
        """Advertisement of one site of U1."""
        return next(entry for entry in self.advertised.entries if entry.site == site)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PendingSum:
    """State of one release: sum of the masked vectors, survivors U3, then signers U4."""

    table: KeyTable
    key_set: int
    label: MaskLabel
    participants: tuple[str, ...]
    exchange: bytes
    survivors: tuple[str, ...]
    total: Ring = field(repr=False)
    signers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SurvivorSum:
    """Result of one release.

    Parameters
    ----------
    total : ndarray of int64, shape (d,)
        Sum over survivors of x + g, unit 1 / gamma.
    survivors : tuple of str
        Sites that were counted, U3.
    responders : tuple of str
        Sites that answered the last stage: the participants of the next release.
    n_subjects : int
        Subjects of the survivors.
    """

    total: Integers
    survivors: tuple[str, ...]
    responders: tuple[str, ...]
    n_subjects: int


def collect_advertisements(setup: Setup, inbox: Iterable[object]) -> AdvertisementList:
    """Stage 1: the list for U1; raises as `inbox_by_site` and `check_advertisements` do."""
    found = inbox_by_site(
        inbox,
        Advertisement,
        allowed=setup.sizes,
        exchange=advertise_id(setup),
        threshold=setup.threshold,
    )
    entries = tuple(found.values())
    check_advertisements(setup, entries, pinned=None)
    return AdvertisementList(entries=entries)


def route_shares(
    setup: Setup, advertised: AdvertisementList, inbox: Iterable[object]
) -> tuple[KeyTable, SealedShareBook]:
    """Stage 2: put the ciphertexts of U2 into one book.

    Raises
    ------
    MessageError
        See `inbox_by_site`; or a site did not share with every other one.
    SecureAggregationError
        Too few sites.
    """
    roster = roster_of(setup, advertised.entries)
    sites = {entry.site for entry in advertised.entries}
    exchange = share_id(setup, roster)
    found = inbox_by_site(
        inbox, SealedShares, allowed=sites, exchange=exchange, threshold=setup.threshold
    )
    for site, message in found.items():
        if message.sealed.keys() != sites - {site}:
            raise MessageError("E202", problem=f"{site} did not share with every other site")
    table = KeyTable(setup=setup, advertised=advertised, roster=roster, sharers=tuple(found))
    sealed = {site: message.sealed for site, message in found.items()}
    return table, SealedShareBook(exchange=exchange, sealed=sealed)


def collect_masked(
    table: KeyTable,
    inbox: Iterable[object],
    *,
    key_set: int,
    label: MaskLabel,
    participants: Sequence[str],
) -> tuple[PendingSum, SurvivorList]:
    """Stage 3: sum the vectors that came and fix the survivors U3.

    Parameters
    ----------
    table : KeyTable
        State after stage 2.
    inbox : iterable
        Messages of sites.
    key_set : int
        Index of the key set: releases made from this table so far.
    label : MaskLabel
        What is masked.
    participants : sequence of str
        Sites asked: U2, later the responders of the release before.

    Raises
    ------
    MessageError
        See `inbox_by_site`; or a vector has another form.
    SecureAggregationError
        Too few sites.
    """
    setup = table.setup
    asked = tuple(site_order(participants))
    exchange = release_id(setup, table.roster, key_set=key_set, label=label, participants=asked)
    found = inbox_by_site(
        inbox, MaskedInput, allowed=asked, exchange=exchange, threshold=setup.threshold
    )
    total = np.zeros(label.size, dtype=np.uint64)
    for site, message in found.items():
        if message.masked.dtype != np.uint64 or message.masked.shape != total.shape:
            raise MessageError("E202", problem=f"the vector of {site} has another form")
        total += message.masked
    pending = PendingSum(
        table=table,
        key_set=key_set,
        label=label,
        participants=asked,
        exchange=exchange,
        survivors=tuple(found),
        total=total,
    )
    return pending, SurvivorList(exchange=exchange, survivors=pending.survivors)


def collect_signatures(
    pending: PendingSum, inbox: Iterable[object]
) -> tuple[PendingSum, SignatureBook]:
    """Stage 3b: collect the signatures on the list of survivors.

    Raises
    ------
    MessageError
        See `inbox_by_site`.
    SecureAggregationError
        Too few sites, or a signature on another list.
    """
    found = inbox_by_site(
        inbox,
        SurvivorSignature,
        allowed=pending.survivors,
        exchange=pending.exchange,
        threshold=pending.table.setup.threshold,
    )
    statement = survivor_statement(pending.exchange, pending.survivors)
    for site, message in found.items():
        verify(pending.table.entry(site).identity_key, statement, message.signature, site=site)
    signatures = {site: message.signature for site, message in found.items()}
    signed = replace(pending, signers=tuple(found))
    return signed, SignatureBook(exchange=pending.exchange, signatures=signatures)


def unmask_sum(pending: PendingSum, inbox: Iterable[object], *, bound: int) -> SurvivorSum:
    """Stage 4: take off the self masks of survivors and what dropped sites left behind.

    Parameters
    ----------
    pending : PendingSum
        State after stage 3b.
    inbox : iterable
        Messages of sites.
    bound : int
        See `cape.secagg.field.decode_sum`.

    Raises
    ------
    MessageError
        See `inbox_by_site`; or a site did not open exactly what was asked.
    SecureAggregationError
        Too few sites, shares that do not lead to the advertised keys, a sum past its bound.
    """
    table, label = pending.table, pending.label
    found = inbox_by_site(
        inbox,
        UnmaskShares,
        allowed=pending.signers,
        exchange=pending.exchange,
        threshold=table.setup.threshold,
    )
    survivors = set(pending.survivors)
    dropped = set(pending.participants) - survivors
    for site, message in found.items():
        if message.self_masks.keys() != survivors or message.mask_keys.keys() != dropped:
            raise MessageError("E202", problem=f"{site} did not open what was asked")
    total = pending.total.copy()
    for u in pending.survivors:
        seed = _secret(table, {v: m.self_masks[u] for v, m in found.items()})
        if commit(seed) != commitment(table.entry(u), pending.key_set):
            raise failure(f"the shares do not give the self mask of {u}")
        subtract_stream(total, seed, label)
    for u in site_order(dropped):
        secret = _secret(table, {v: m.mask_keys[u] for v, m in found.items()})
        total += _left_behind(pending, KeyRing(site=u, secret_key=secret))
    sizes = table.setup.sizes
    return SurvivorSum(
        total=decode_sum([total], bound=bound),
        survivors=pending.survivors,
        responders=tuple(found),
        n_subjects=sum(sizes[site] for site in pending.survivors),
    )


def _secret(table: KeyTable, shares: Mapping[str, bytes]) -> bytes:
    """Put one secret together from the shares of the sites that answered."""
    coordinates = table.setup.coordinates
    by_x = {coordinates[site]: share for site, share in shares.items()}
    return shamir.join(by_x, threshold=table.setup.threshold)


def _left_behind(pending: PendingSum, ring: KeyRing) -> Ring:
    """Zero-sum term of a dropped site towards the survivors: added, it completes their sum."""
    table, key_set = pending.table, pending.key_set
    if ring.public_key != mask_public_key(table.entry(ring.site), key_set):
        raise failure(f"the shares do not give the mask key of {ring.site}")
    peers = {site: mask_public_key(table.entry(site), key_set) for site in pending.survivors}
    pairs = shared_keys(ring, peers, digest=table.roster, salt=table.setup.salt)
    return zero_sum_mask(pairs, pending.label)
