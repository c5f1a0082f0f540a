"""SecureAgg, the site's side of stages 1 and 2: keys for the coming releases.

::

    advertise -> share -> accept_shares -> a `ReadySite` for `cape.secagg.site_stages`

States hold secrets; none is shown by repr.  Source: see `cape.secagg.stages`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from cape.errors import MessageError
from cape.frozen import dataclass
from cape.secagg import shamir
from cape.secagg.keys import (
    KEY_BYTES,
    advertisement,
    exchange,
    failure,
    identity_public_key,
    private_key_from_bytes,
    public_key,
    sign,
    site_order,
)
from cape.secagg.messages import (
    Advertisement,
    AdvertisementList,
    SealedShareBook,
    SealedShares,
)
from cape.secagg.shamir import SHARE_BYTES, TokenBytes
from cape.secagg.site_stages import KeySet, ReadySite
from cape.secagg.stages import (
    PAIR_BYTES,
    Setup,
    advertise_id,
    check_advertisements,
    check_enough,
    commit,
    roster_of,
    share_context,
    share_id,
    share_info,
)

# Every share key encrypts one message only, so the nonce may be constant.
_NONCE = bytes(12)


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvertisedSite:
    """State after stage 1; `own` is the message."""

    setup: Setup
    own: Advertisement
    share_key: bytes = field(repr=False)
    identity_secret: bytes = field(repr=False)
    key_sets: tuple[KeySet, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedSite:
    """State after stage 2 was sent."""

    first: AdvertisedSite
    advertised: AdvertisementList
    roster: bytes
    own_shares: bytes = field(repr=False)


def advertise(
    setup: Setup, *, site: str, identity_secret: bytes, token_bytes: TokenBytes
) -> AdvertisedSite:
    """Stage 1: draw the keys of this batch; `own` of the state goes to the aggregator.

    `identity_secret` is an Ed25519 key of 32 bytes: the pinned one, or one drawn for this run.
    """
    # All sets at once: the run then needs no further exchange of keys before a release.
    share_key = token_bytes(KEY_BYTES)
    key_sets = tuple(
        KeySet(mask_key=token_bytes(KEY_BYTES), seed=token_bytes(KEY_BYTES))
        for _ in range(setup.n_sets)
    )
    keys = public_key(private_key_from_bytes(share_key))
    for one in key_sets:
        keys += public_key(private_key_from_bytes(one.mask_key)) + commit(one.seed)
    own = Advertisement(
        site=site,
        exchange=advertise_id(setup),
        keys=keys,
        identity_key=identity_public_key(identity_secret),
        signature=sign(identity_secret, advertisement(site, keys, salt=setup.salt)),
    )
    return AdvertisedSite(
        setup=setup,
        own=own,
        share_key=share_key,
        identity_secret=identity_secret,
        key_sets=key_sets,
    )


def share(
    state: AdvertisedSite,
    advertised: AdvertisementList,
    *,
    pinned: Mapping[str, bytes] | None,
    token_bytes: TokenBytes,
) -> tuple[SharedSite, SealedShares]:
    """Stage 2: check U1 as the aggregator relays it and share the own secrets among its sites.

    Once per state: a second call would encrypt other shares under the same key and nonce.  A
    repeated request is answered with the stored message.  Errors as of `check_advertisements`;
    SecureAggregationError if the own entry was changed.
    """
    setup, own, entries = state.setup, state.own, advertised.entries
    check_advertisements(setup, entries, pinned=pinned)
    # Others would encrypt their shares to the changed key.
    if own not in entries:
        raise failure("the own advertisement was changed")
    roster = roster_of(setup, entries)
    shares = _split_sets(setup, state.key_sets, token_bytes)
    # The aggregator relays all shares, so each is for the eyes of its receiver only; the own ones
    # stay here.
    sealed = {
        entry.site: _cipher(state.share_key, entry, roster, setup, own.site, entry.site).encrypt(
            _NONCE, shares[entry.site], share_context(setup, own.site, entry.site)
        )
        for entry in entries
        if entry.site != own.site
    }
    shared = SharedSite(
        first=state, advertised=advertised, roster=roster, own_shares=shares[own.site]
    )
    message = SealedShares(site=own.site, exchange=share_id(setup, roster), sealed=sealed)
    return shared, message


def accept_shares(state: SharedSite, book: SealedShareBook) -> ReadySite:
    """Open the shares that U2 sent to this site.

    MessageError if the book belongs to another exchange; SecureAggregationError for too few sites,
    or if the own shares or a ciphertext are missing, changed or malformed.
    """
    first, setup, site = state.first, state.first.setup, state.first.own.site
    if book.exchange != share_id(setup, state.roster):
        raise MessageError("E202", problem="it belongs to another stage or exchange")
    check_enough(book.sealed, threshold=setup.threshold)
    entries = {entry.site: entry for entry in state.advertised.entries}
    # Without its own shares among them this site was counted out: it must not go on as if in U2.
    if site not in book.sealed or not book.sealed.keys() <= entries.keys():
        raise failure("the sites that shared are not those that advertised")
    received = {site: state.own_shares}
    for sender, ciphertexts in book.sealed.items():
        if sender != site:
            cipher = _cipher(first.share_key, entries[sender], state.roster, setup, sender, site)
            context = share_context(setup, sender, site)
            received[sender] = _open(cipher, ciphertexts.get(site, b""), context, sender=sender)
            # Malformed shares are found now, while nothing is masked yet, not at a drop-out.
            if len(received[sender]) != PAIR_BYTES * setup.n_sets:
                raise failure(f"the shares of {sender} have a wrong length")
    held = tuple(
        {sender: _pair(shares, k) for sender, shares in received.items()}
        for k in range(setup.n_sets)
    )
    return ReadySite(
        setup=setup,
        site=site,
        roster=state.roster,
        advertised=state.advertised,
        alive=tuple(site_order(received)),  # U2
        used=0,
        identity_secret=first.identity_secret,
        key_sets=first.key_sets,
        held=held,
    )


def _split_sets(
    setup: Setup, key_sets: Sequence[KeySet], token_bytes: TokenBytes
) -> dict[str, bytes]:
    """Share both secrets of all sets: per site of the run its `PAIR_BYTES` for every set."""
    # For every site of U0, so that x-coordinates do not depend on who advertised.
    coordinates = setup.coordinates
    parts: list[list[bytes]] = [
        shamir.split(
            secret,
            threshold=setup.threshold,
            n_shares=len(coordinates),
            token_bytes=token_bytes,
        )
        for one in key_sets
        for secret in (one.mask_key, one.seed)
    ]
    return {site: b"".join(part[x - 1] for part in parts) for site, x in coordinates.items()}


def _cipher(
    share_key: bytes, peer: Advertisement, roster: bytes, setup: Setup, sender: str, receiver: str
) -> ChaCha20Poly1305:
    """AEAD for the one message from `sender` to `receiver`; `peer` is the other end."""
    # Sender and receiver stand in the info: the two directions of a pair have different keys.
    secret = private_key_from_bytes(share_key)
    info = share_info(roster, sender, receiver)
    public = peer.keys[:KEY_BYTES]
    return ChaCha20Poly1305(exchange(secret, public, peer=peer.site, salt=setup.salt, info=info))


def _open(cipher: ChaCha20Poly1305, sealed: bytes, context: bytes, *, sender: str) -> bytes:
    try:
        return cipher.decrypt(_NONCE, sealed, context)
    except (InvalidTag, ValueError):
        raise failure(f"the shares of {sender} do not open") from None


def _pair(shares: bytes, key_set: int) -> bytes:
    """Cut out the two shares of one key set and check their form."""
    pair = shares[PAIR_BYTES * key_set : PAIR_BYTES * (key_set + 1)]
    shamir.read_share(pair[:SHARE_BYTES])
    shamir.read_share(pair[SHARE_BYTES:])
    return pair
