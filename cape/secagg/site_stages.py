"""SecureAgg, the site's side from stage 3 on: one function per stage, for every release.

::

    mask_input -> sign_survivors -> unmask

Every function takes the state that the one before it returned; a stage asked twice, or out of
order, finds no open release and is refused.  States hold secrets: none is shown by repr, and a
key set is gone from the state once it was used.  Stages 1 and 2 are in
`cape.secagg.key_sharing`.  Source: see `cape.secagg.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from cape.errors import MessageError
from cape.frozen import dataclass
from cape.secagg.field import Ring
from cape.secagg.keys import (
    KeyRing,
    MaskLabel,
    add_stream,
    failure,
    shared_keys,
    sign,
    site_order,
    verify_signature,
    zero_sum_mask,
)
from cape.secagg.messages import (
    AdvertisementList,
    MaskedInput,
    MaskShares,
    Survivors,
    SurvivorSignature,
    SurvivorSignatures,
)
from cape.secagg.shamir import SHARE_BYTES
from cape.secagg.stages import (
    Setup,
    check_enough,
    mask_public_key,
    release_id,
    survivor_statement,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeySet:
    """Secrets of one site for one release: X25519 key of the pairwise masks, self-mask seed."""

    mask_key: bytes = field(repr=False)
    seed: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRelease:
    """A release whose masked input was sent; `survivors` is empty until they are signed."""

    exchange: bytes
    participants: tuple[str, ...]
    shares: Mapping[str, bytes] = field(repr=False)
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadySite:
    """State between releases, and during one (`release`)."""

    setup: Setup
    site: str
    roster: bytes  # roster digest of U1, whose public keys are `advertised`
    advertised: AdvertisementList
    # Sites that may still take part: U2, then the survivors of the last release
    alive: tuple[str, ...]
    used: int  # key sets used up; the next release takes the set of this index
    identity_secret: bytes = field(repr=False)  # Ed25519 key of stage 3b
    key_sets: tuple[KeySet, ...] = field(repr=False)  # own secrets of the sets that are left
    # Per set that is left: site to its two shares for this site
    held: tuple[Mapping[str, bytes], ...] = field(repr=False)
    release: OpenRelease | None = None  # the release under way


def mask_input(
    state: ReadySite, noisy: Ring, *, label: MaskLabel, participants: Sequence[str]
) -> tuple[ReadySite, MaskedInput]:
    """Stage 3: mask one vector with the next key set, which is used up by this.

    `noisy` is x + g, the exact sum of this site plus its noise share, modulo 2^64; `participants`
    are a part of `state.alive` with the own id.  SecureAggregationError if a release is under way,
    no key set is left, or the sites are wrong or too few.
    """
    # A second vector under the same keys would show the difference of the two.
    if state.release is not None or not state.key_sets:
        raise failure("a release is under way, or all key sets are used")
    # A site that dropped out earlier had its mask keys opened: it cannot hide anybody any more.
    if not {state.site} <= set(participants) <= set(state.alive):
        raise failure("the sites asked are not those that are left")
    check_enough(set(participants), threshold=state.setup.threshold)
    if noisy.dtype != np.uint64 or noisy.shape != (label.size,):
        raise failure("the vector does not fit its label")
    own = state.key_sets[0]
    ring = KeyRing(site=state.site, secret_key=own.mask_key)
    peers = {
        entry.site: mask_public_key(entry, state.used)
        for entry in state.advertised.entries
        if entry.site in participants and entry.site != state.site
    }
    pairs = shared_keys(ring, peers, digest=state.roster, salt=state.setup.salt)
    masked = zero_sum_mask(pairs, label)
    # The self mask: if this vector comes too late, its pairwise masks are opened for the others'
    # sake, and this one still hides it.
    add_stream(masked, own.seed, label)
    masked += noisy
    release = OpenRelease(
        exchange=release_id(
            state.setup, state.roster, key_set=state.used, label=label, participants=participants
        ),
        participants=tuple(site_order(participants)),
        shares=state.held[0],
    )
    # The set leaves the state before the message leaves the site.
    after = replace(
        state,
        used=state.used + 1,
        key_sets=state.key_sets[1:],
        held=state.held[1:],
        release=release,
    )
    return after, MaskedInput(site=state.site, exchange=release.exchange, masked=masked)


def sign_survivors(state: ReadySite, listed: Survivors) -> tuple[ReadySite, SurvivorSignature]:
    """Stage 3b: sign the list of survivors, one list per release.

    MessageError if no release is open, a list was signed already, or it belongs to another release;
    SecureAggregationError for too few survivors, one that was not asked, or without this site.
    """
    release = _open_release(state, listed.exchange)
    # Two lists of one release could have one site's mask key opened and its self mask as well.
    if release.survivors:
        raise MessageError("E202", problem="the survivors of this release are signed already")
    survivors = tuple(site_order(set(listed.sites)))
    check_enough(survivors, threshold=state.setup.threshold)
    # Listed as dropped, this site's mask key would be opened although its vector was sent.
    if not {state.site} <= set(survivors) <= set(release.participants):
        raise failure("the survivors are not sites of this release")
    statement = survivor_statement(release.exchange, survivors)
    message = SurvivorSignature(
        site=state.site,
        exchange=release.exchange,
        signature=sign(state.identity_secret, statement),
    )
    after = replace(state, alive=survivors, release=replace(release, survivors=survivors))
    return after, message


def unmask(state: ReadySite, book: SurvivorSignatures) -> tuple[ReadySite, MaskShares]:
    """Stage 4: open the self masks of survivors and the mask keys of dropped sites.

    MessageError if no release is open, or the book belongs to another one: a second answer is
    refused.  SecureAggregationError if survivors were not signed here, or not by t survivors on the
    same list.
    """
    release = _open_release(state, book.exchange)
    # The list that this site signed, not one that the book could bring along.
    survivors = release.survivors
    if not survivors or not book.signatures.keys() <= set(survivors):
        raise failure("the signatures are not those of the survivors")
    check_enough(book.signatures, threshold=state.setup.threshold)
    statement = survivor_statement(release.exchange, survivors)
    identities = {entry.site: entry.identity_key for entry in state.advertised.entries}
    for signer, signature in book.signatures.items():
        verify_signature(identities[signer], statement, signature, site=signer)
    # Of every site one secret is opened, never both.
    dropped = set(release.participants) - set(survivors)
    message = MaskShares(
        site=state.site,
        exchange=release.exchange,
        self_masks={u: release.shares[u][SHARE_BYTES:] for u in survivors},
        mask_keys={u: release.shares[u][:SHARE_BYTES] for u in site_order(dropped)},
    )
    return replace(state, release=None), message


def _open_release(state: ReadySite, exchange: bytes) -> OpenRelease:
    """Release under way; MessageError if there is none or another one is meant."""
    if state.release is None or state.release.exchange != exchange:
        raise MessageError("E202", problem="it belongs to no open release")
    return state.release
