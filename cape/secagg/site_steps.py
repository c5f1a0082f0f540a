"""SecureAgg, the site's side: one function per step.

`advertise`, `share`, `accept_shares`, then per release `mask_input`, `sign_survivors`, `unmask`.
Every function takes the state that the previous one returned; a step asked twice or out of order
is refused.  States hold secrets, which repr does not show; a used key set is removed from the
state.  Source: see `cape.secagg.steps`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from cape.errors import MessageError
from cape.frozen import dataclass
from cape.secagg import shamir, steps
from cape.secagg.field import Ring
from cape.secagg.keys import (
    KEY_BYTES,
    KeyRing,
    MaskLabel,
    add_stream,
    advertisement,
    exchange,
    failure,
    identity_public_key,
    private_key_from_bytes,
    public_key,
    shared_keys,
    sign,
    site_order,
    verify_signature,
    zero_sum_mask,
)
from cape.secagg.messages import (
    Advertisement,
    MaskShares,
    SealedShareBook,
    SealedShares,
    Survivors,
    SurvivorSignature,
    SurvivorSignatures,
)
from cape.secagg.shamir import SHARE_BYTES, TokenBytes

# Every share key encrypts one message only, so the nonce may be constant.
_NONCE = bytes(12)


@dataclass(frozen=True, kw_only=True, slots=True)
class KeySet:
    """Secrets of one site for one release: X25519 key of the pairwise masks, self-mask seed."""

    mask_key: bytes = field(repr=False)
    seed: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenRelease:
    """A release whose masked input was sent; `survivors` is empty until this site signed them."""

    exchange: bytes
    participants: tuple[str, ...]
    shares: Mapping[str, bytes] = field(repr=False)
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadySite:
    """State between releases, and during one (`release`)."""

    setup: steps.Setup
    site: str
    roster: bytes  # roster digest of U1, whose public keys are `advertised`
    advertised: Mapping[str, Advertisement]
    # Sites that may still take part: U2, then the survivors of the last release
    alive: tuple[str, ...]
    used: int  # key sets used up; the next release takes the set of this index
    identity_secret: bytes = field(repr=False)  # Ed25519 key of step 3b
    key_sets: tuple[KeySet, ...] = field(repr=False)  # own secrets of the sets that are left
    # Per set that is left: site to its two shares for this site
    held: tuple[Mapping[str, bytes], ...] = field(repr=False)
    release: OpenRelease | None = None  # the release under way


@dataclass(frozen=True, kw_only=True, slots=True)
class AdvertisedSite:
    """State after step 1; `own` is the message."""

    setup: steps.Setup
    site: str
    own: Advertisement
    share_key: bytes = field(repr=False)
    identity_secret: bytes = field(repr=False)
    key_sets: tuple[KeySet, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedSite:
    """State after step 2 was sent."""

    first: AdvertisedSite
    advertised: Mapping[str, Advertisement]
    roster: bytes
    own_shares: bytes = field(repr=False)


def advertise(
    setup: steps.Setup,
    *,
    site: str,
    identity_secret: bytes,
    token_bytes: TokenBytes,
    opening: bytes = b"",
) -> AdvertisedSite:
    """Step 1: draw the keys of the run; `own` of the state goes to the aggregator."""
    # `identity_secret` is an Ed25519 key of 32 bytes: the pinned one, or one drawn for this run;
    # `opening` what this site committed to, its part of the graph.
    # All sets at once: the run then needs no further exchange of keys before a release.
    share_key = token_bytes(KEY_BYTES)
    key_sets = tuple(
        KeySet(mask_key=token_bytes(KEY_BYTES), seed=token_bytes(KEY_BYTES))
        for _ in range(setup.n_sets)
    )
    keys = public_key(private_key_from_bytes(share_key))
    for one in key_sets:
        keys += public_key(private_key_from_bytes(one.mask_key)) + steps.commit(one.seed)
    own = Advertisement(
        keys=keys,
        identity_key=identity_public_key(identity_secret),
        signature=sign(identity_secret, advertisement(site, keys, salt=setup.salt)),
        opening=opening,
    )
    return AdvertisedSite(
        setup=setup,
        site=site,
        own=own,
        share_key=share_key,
        identity_secret=identity_secret,
        key_sets=key_sets,
    )


def share(
    state: AdvertisedSite, advertised: Mapping[str, Advertisement], *, token_bytes: TokenBytes
) -> tuple[SharedSite, SealedShares]:
    """Step 2: share the own secrets among the sites of a list that passed `check_advertisements`.

    Call it once per state: a second call would encrypt other shares under the same key and nonce.
    SecureAggregationError if the own entry was changed.
    """
    site = state.site
    # Others would encrypt their shares to the changed key.
    if advertised.get(site) != state.own:
        raise failure("the own advertisement was changed")
    setup = steps.wired(state.setup, advertised)
    roster, partners = steps.roster_of(setup, advertised), setup.partners(site)
    shares = _split_sets(setup, {site, *partners}, state.key_sets, token_bytes)
    # The aggregator relays all shares, so each is encrypted for its receiver.
    sealed = {
        peer: _cipher(state, advertised, roster, site, peer).encrypt(
            _NONCE, shares[peer], steps.share_context(setup, site, peer)
        )
        for peer in partners & advertised.keys()
    }
    shared = SharedSite(
        first=replace(state, setup=setup),
        advertised=advertised,
        roster=roster,
        own_shares=shares[site],
    )
    return shared, SealedShares(sealed=sealed)


def accept_shares(state: SharedSite, book: SealedShareBook) -> ReadySite:
    """Open the shares that U2 sent to this site.

    SecureAggregationError: too few sites; own shares or a ciphertext missing, changed or malformed.
    """
    first, setup, site = state.first, state.first.setup, state.first.site
    sharers = set(book.sharers)
    steps.check_enough(sharers, threshold=setup.threshold)
    # A site that the list leaves out must not continue as if it were in U2.
    if site not in sharers or not sharers <= state.advertised.keys():
        raise failure("the sites that shared are not those that advertised")
    received, ciphertexts = {site: state.own_shares}, book.addressed.get(site, {})
    for sender in site_order(sharers & setup.partners(site)):
        cipher = _cipher(first, state.advertised, state.roster, sender, site)
        context = steps.share_context(setup, sender, site)
        received[sender] = _open(cipher, ciphertexts.get(sender, b""), context, sender=sender)
        # Find malformed shares now, before anything is masked, not at a drop-out.
        if len(received[sender]) != steps.PAIR_BYTES * setup.n_sets:
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
        alive=tuple(site_order(sharers)),  # U2
        used=0,
        identity_secret=first.identity_secret,
        key_sets=first.key_sets,
        held=held,
    )


def _split_sets(
    setup: steps.Setup,
    holders: Collection[str],
    key_sets: Sequence[KeySet],
    token_bytes: TokenBytes,
) -> dict[str, bytes]:
    """Share both secrets of all sets: per holder its `PAIR_BYTES` for every set."""
    # Coordinates of U0, which do not depend on the list of advertisements.
    points = {site: x for site, x in setup.coordinates.items() if site in holders}
    parts: list[list[bytes]] = [
        shamir.split(
            secret,
            threshold=setup.share_threshold,
            points=tuple(points.values()),
            token_bytes=token_bytes,
        )
        for one in key_sets
        for secret in (one.mask_key, one.seed)
    ]
    return {site: b"".join(part[i] for part in parts) for i, site in enumerate(points)}


def _cipher(
    own: AdvertisedSite,
    advertised: Mapping[str, Advertisement],
    roster: bytes,
    sender: str,
    receiver: str,
) -> ChaCha20Poly1305:
    """AEAD for the one message from `sender` to `receiver`, one of whom is this site."""
    # The info holds sender and receiver, so the two directions of a pair have different keys.
    secret = private_key_from_bytes(own.share_key)
    info = steps.share_info(roster, sender, receiver)
    peer = receiver if sender == own.site else sender
    public = advertised[peer].keys[:KEY_BYTES]
    return ChaCha20Poly1305(exchange(secret, public, peer=peer, salt=own.setup.salt, info=info))


def _open(cipher: ChaCha20Poly1305, sealed: bytes, context: bytes, *, sender: str) -> bytes:
    try:
        return cipher.decrypt(_NONCE, sealed, context)
    except (InvalidTag, ValueError):
        raise failure(f"the shares of {sender} do not open") from None


def _pair(shares: bytes, key_set: int) -> bytes:
    """Cut out the two shares of one key set and check their form."""
    pair = shares[steps.PAIR_BYTES * key_set : steps.PAIR_BYTES * (key_set + 1)]
    shamir.read_share(pair[:SHARE_BYTES])
    shamir.read_share(pair[SHARE_BYTES:])
    return pair


def mask_input(
    state: ReadySite, noisy: Ring, *, label: MaskLabel, participants: Sequence[str]
) -> tuple[ReadySite, Ring]:
    """Step 3: mask `noisy` = x + g, modulo 2^64, with the next key set, which is used up by this.

    `participants` are in `state.alive`, with the own id.  SecureAggregationError if a release is
    under way, no key set is left, or the sites are wrong or too few.
    """
    # A second vector under the same keys would reveal the difference of the two.
    if state.release is not None or not state.key_sets:
        raise failure("a release is under way, or all key sets are used")
    # The mask keys of a site that dropped out earlier were opened, so its masks hide nothing.
    if not {state.site} <= set(participants) <= set(state.alive):
        raise failure("the sites asked are not those that are left")
    steps.check_enough(set(participants), threshold=state.setup.threshold)
    own = state.key_sets[0]
    ring = KeyRing(site=state.site, secret_key=own.mask_key)
    among = state.setup.partners(state.site).intersection(participants)
    peers = {
        peer: steps.mask_public_key(entry, state.used)
        for peer, entry in state.advertised.items()
        if peer in among
    }
    pairs = shared_keys(ring, peers, digest=state.roster, salt=state.setup.salt)
    masked = zero_sum_mask(pairs, label)
    # The self mask hides a vector that arrives too late, after its pairwise masks were opened.
    add_stream(masked, own.seed, label)
    masked += noisy
    release = OpenRelease(
        exchange=steps.release_id(
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
    return after, masked


def sign_survivors(state: ReadySite, listed: Survivors) -> tuple[ReadySite, SurvivorSignature]:
    """Step 3b: sign the list of survivors, one list per release.

    MessageError if no release is open, or a list was signed already;
    SecureAggregationError for too few survivors, one that was not asked, or without this site.
    """
    release = _open_release(state)
    # With two lists for one release, both secrets of a site could be opened.
    if release.survivors:
        raise MessageError("E202", problem="the survivors of this release are signed already")
    survivors = tuple(site_order(set(listed.sites)))
    steps.check_survivors(state.setup, survivors)
    # If this site were listed as dropped, its mask key would be opened although it sent a vector.
    if not {state.site} <= set(survivors) <= set(release.participants):
        raise failure("the survivors are not sites of this release")
    statement = steps.survivor_statement(release.exchange, survivors)
    message = SurvivorSignature(signature=sign(state.identity_secret, statement))
    after = replace(state, alive=survivors, release=replace(release, survivors=survivors))
    return after, message


def unmask(state: ReadySite, book: SurvivorSignatures) -> tuple[ReadySite, MaskShares]:
    """Step 4: open the self masks of survivors and the mask keys of dropped sites, once.

    MessageError if no release is open.  SecureAggregationError if survivors were not
    signed here, or not by t survivors on the same list.
    """
    release = _open_release(state)
    # The list that this site signed, not one from the book.
    survivors = release.survivors
    if not survivors or not book.signatures.keys() <= set(survivors):
        raise failure("the signatures are not those of the survivors")
    steps.check_enough(book.signatures, threshold=state.setup.threshold)
    statement = steps.survivor_statement(release.exchange, survivors)
    for signer, signature in book.signatures.items():
        key = state.advertised[signer].identity_key
        verify_signature(key, statement, signature, site=signer)
    # One secret of each site is opened, never both.
    dropped = set(release.participants) - set(survivors)
    message = MaskShares(
        self_masks={u: both[SHARE_BYTES:] for u, both in release.shares.items() if u in survivors},
        mask_keys={u: both[:SHARE_BYTES] for u, both in release.shares.items() if u in dropped},
    )
    return replace(state, release=None), message


def _open_release(state: ReadySite) -> OpenRelease:
    """Release under way; MessageError if there is none."""
    if state.release is None:
        raise MessageError("E202", problem="it belongs to no open release")
    return state.release
