"""SecureAgg, the aggregator's side: one function per step.

`cape.secagg.steps.check_advertisements`, `route_shares`, then per release `collect_masked`,
`collect_signatures`, `unmask_sum`.  Each takes the replies of one exchange by sender; only sites
that were asked have replied (`cape.protocol.phases`).  The aggregator learns only the list of
survivors and the sum over them.  Source: see `cape.secagg.steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeVar

import numpy as np

from cape.errors import MessageError
from cape.frozen import dataclass
from cape.secagg import keys, shamir, steps
from cape.secagg.field import Integers, Ring, decode_sum
from cape.secagg.messages import (
    Advertisement,
    MaskShares,
    SealedShareBook,
    SealedShares,
    Survivors,
    SurvivorSignature,
    SurvivorSignatures,
)

_Reply = TypeVar("_Reply")


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyTable:
    """Public facts of a run after U1 has advertised keys."""

    setup: steps.Setup
    advertised: Mapping[str, Advertisement]
    roster: bytes  # digest of U1

    @classmethod
    def of(cls, setup: steps.Setup, advertised: Mapping[str, Advertisement]) -> KeyTable:
        """Return the table of a list that passed `check_advertisements`."""
        setup = steps.wired(setup, advertised)
        return cls(setup=setup, advertised=advertised, roster=steps.roster_of(setup, advertised))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PendingSum:
    """State of one release: sum of the masked vectors, survivors U3."""

    table: KeyTable
    key_set: int
    label: keys.MaskLabel
    participants: tuple[str, ...]
    exchange: bytes
    survivors: tuple[str, ...]
    total: Ring = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SurvivorSum:
    """Result of one release: `total` over survivors (U3) of x + g, int64 (d,), unit 1 / gamma."""

    total: Integers
    survivors: tuple[str, ...]
    n_subjects: int  # in it


def route_shares(table: KeyTable, inbox: Mapping[str, SealedShares]) -> SealedShareBook:
    """Step 2: put the ciphertexts of U2 into one book.

    SecureAggregationError for fewer than t; MessageError if one did not share with every partner.
    """
    messages = _enough(table.setup, inbox)
    for site, message in messages.items():
        if message.sealed.keys() != table.setup.partners(site) & table.advertised.keys():
            raise MessageError("E202", problem=f"{site} did not share with every partner")
    addressed = {
        site: {sender: m.sealed[site] for sender, m in messages.items() if site in m.sealed}
        for site in messages
    }
    return SealedShareBook(sharers=tuple(messages), addressed=addressed)


def collect_masked(
    table: KeyTable,
    inbox: Mapping[str, Ring],
    *,
    key_set: int,
    label: keys.MaskLabel,
    participants: Sequence[str],
) -> tuple[PendingSum, Survivors]:
    """Step 3: sum the received vectors and fix the survivors U3.

    `key_set`: number of earlier releases.  `participants`: U2 at first, later the sites that
    completed the release before.  Errors as of `check_survivors`; MessageError if a vector has
    another shape.
    """
    setup = table.setup
    expected = tuple(keys.site_order(participants))
    exchange = steps.release_id(
        setup, table.roster, key_set=key_set, label=label, participants=expected
    )
    steps.check_survivors(setup, inbox)
    total = np.zeros(label.size, dtype=np.uint64)
    for site, vector in inbox.items():
        if vector.shape != total.shape:
            raise MessageError("E202", problem=f"the vector of {site} has another form")
        # Each vector is uniform to the aggregator; only the whole sum can be opened.
        total += vector
    pending = PendingSum(
        table=table,
        key_set=key_set,
        label=label,
        participants=expected,
        exchange=exchange,
        survivors=tuple(keys.site_order(inbox)),
        total=total,
    )
    return pending, Survivors(sites=pending.survivors)


def collect_signatures(
    pending: PendingSum, inbox: Mapping[str, SurvivorSignature]
) -> SurvivorSignatures:
    """Step 3b; SecureAggregationError for fewer than t, or if another list is signed."""
    messages = _enough(pending.table.setup, inbox)
    # Sites check them too, but here the error can name the site.
    statement = steps.survivor_statement(pending.exchange, pending.survivors)
    entries = pending.table.advertised
    for site, message in messages.items():
        keys.verify_signature(entries[site].identity_key, statement, message.signature, site=site)
    return SurvivorSignatures(signatures={site: m.signature for site, m in messages.items()})


def unmask_sum(pending: PendingSum, inbox: Mapping[str, MaskShares], *, bound: int) -> SurvivorSum:
    """Step 4: subtract self masks of survivors and pairwise masks towards dropped sites.

    `bound` as of `decode_sum`.  MessageError if a site did not open exactly the requested shares;
    SecureAggregationError for fewer than t, for shares that do not match the advertised keys, or a
    sum past its bound.
    """
    table, label = pending.table, pending.label
    messages = _enough(table.setup, inbox)
    survivors = set(pending.survivors)
    dropped = set(pending.participants) - survivors
    for site, message in messages.items():
        held = {site, *table.setup.partners(site)}
        asked = (survivors & held, dropped & held)
        if (set(message.self_masks), set(message.mask_keys)) != asked:
            raise MessageError("E202", problem=f"{site} did not open what was asked")
    # A copy, so that a repeated request gives the same sum.
    total = pending.total.copy()
    entries = table.advertised
    for u in pending.survivors:
        seed = _secret(
            table, {v: m.self_masks[u] for v, m in messages.items() if u in m.self_masks}
        )
        # Shamir shares carry no check: one false share gives a seed that was not advertised.
        if steps.commit(seed) != steps.commitment(entries[u], pending.key_set):
            raise keys.failure(f"the shares do not give the self mask of {u}")
        keys.subtract_stream(total, seed, label)
    # Survivors also masked against the dropped sites, whose halves of the pairs are missing.
    for u in keys.site_order(dropped):
        # A site without a neighbour among the survivors leaves no mask behind.  Computed plans have
        # no such site (k is above S - t).
        if partners := survivors & table.setup.partners(u):  # pragma: no branch
            shares = {v: m.mask_keys[u] for v, m in messages.items() if u in m.mask_keys}
            ring = keys.KeyRing(site=u, secret_key=_secret(table, shares))
            if ring.public_key != steps.mask_public_key(entries[u], pending.key_set):
                raise keys.failure(f"the shares do not give the mask key of {u}")
            peers = {
                site: steps.mask_public_key(entries[site], pending.key_set) for site in partners
            }
            pairs = keys.shared_keys(ring, peers, digest=table.roster, salt=table.setup.salt)
            # Adding its zero-sum term towards the survivors completes their sum.
            total += keys.zero_sum_mask(pairs, label)
    sizes = table.setup.sizes
    return SurvivorSum(
        total=decode_sum([total], bound=bound),
        survivors=pending.survivors,
        n_subjects=sum(sizes[site] for site in pending.survivors),
    )


def _enough(setup: steps.Setup, replies: Mapping[str, _Reply]) -> dict[str, _Reply]:
    """Return the replies in `site_order`, at least t of them."""
    steps.check_enough(replies, threshold=setup.threshold)
    return {site: replies[site] for site in keys.site_order(replies)}


def _secret(table: KeyTable, shares: Mapping[str, bytes]) -> bytes:
    coordinates = table.setup.coordinates
    by_x = {coordinates[site]: share for site, share in shares.items()}
    return shamir.recover(by_x, threshold=table.setup.share_threshold)
