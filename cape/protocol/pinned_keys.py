"""Pinned identity keys: what a site signs, and checks, so that a lying relay is detected.

``key_trust=pinned``: the sites exchanged Ed25519 keys beforehand, past the aggregator, and each
keeps the list in its own files.  A site signs the key that it makes for this run (`zero-sum`) and
then the whole key roster as it sees it (`zero-sum.probe`); every site checks all of it before
anything computed from data leaves it.  Where sites may drop out, `cape.secagg.stages` does the
same, and signs every list of survivors.
"""

from __future__ import annotations

from collections.abc import Sequence

from cape.errors import SecureAggregationError
from cape.protocol.messages import KeyBook, PublicKey, Roster
from cape.protocol.model import Model, joined
from cape.protocol.ports import Site
from cape.secagg import keys, seals


def pinned(site: Site) -> bool:
    """Tell whether this run trusts pinned keys only."""
    return site.config.key_trust == "pinned"


def salt_of(site: Site, roster: Roster) -> bytes:
    """Return the salt of all keys of this run."""
    digest = site.digest(roster)
    return keys.run_salt(digest[:16].hex(), digest)


def advertised(site: Site, model: Model, public: bytes) -> PublicKey:
    """Return the public key of this run, signed if keys are pinned."""
    if not pinned(site):
        return PublicKey(public_key=public.hex())
    secret = site.identity().secret
    statement = seals.advertisement(site.id, public, salt=salt_of(site, joined(model)))
    return PublicKey(
        public_key=public.hex(),
        identity_key=seals.identity_public_key(secret).hex(),
        signature=seals.sign(secret, statement).hex(),
    )


def check_keys(
    site: Site, model: Model, entries: Sequence[keys.RosterEntry], agreed: KeyBook
) -> None:
    """Raise SecureAggregationError unless every key is signed by the site it is said to be of."""
    if not pinned(site):
        return
    seals.check_pinned(entries, pinned=site.identity().roster)
    salt = salt_of(site, joined(model))
    for entry, signature in zip(entries, _signatures(agreed.signatures, entries), strict=True):
        statement = seals.advertisement(entry.site, entry.public_key, salt=salt)
        seals.verify(entry.identity_key, statement, signature, site=entry.site)


def signed_roster(site: Site, entries: Sequence[keys.RosterEntry]) -> str:
    """Return this site's signature over the key roster, hex; empty if keys are not pinned."""
    if not pinned(site):
        return ""
    return seals.sign(site.identity().secret, keys.roster_digest(entries)).hex()


def check_roster(site: Site, model: Model, entries: Sequence[keys.RosterEntry]) -> None:
    """Raise SecureAggregationError unless every site signed the very roster that this one has."""
    if not pinned(site):
        return
    digest = keys.roster_digest(entries)
    for entry, signature in zip(entries, _signatures(model.signatures, entries), strict=True):
        seals.verify(entry.identity_key, digest, signature, site=entry.site)


def _signatures(given: Sequence[str], entries: Sequence[keys.RosterEntry]) -> list[bytes]:
    try:
        found = [bytes.fromhex(text) for text in given]
    except ValueError:
        found = []
    if len(found) != len(entries):
        raise SecureAggregationError("E220", problem="one signature per site is needed")
    return found
