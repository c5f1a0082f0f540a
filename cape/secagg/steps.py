"""SecureAgg for engines where sites may drop out: facts and checks of sites and aggregator.

After Bonawitz et al. 2017, figure 4: advertise keys (1), share secrets (2), send masked inputs (3),
agree on who survived (3b), unmask (4).  Each step is a pure function of a frozen state and one
message.  Any failed check ends the run.  Steps 1 and 2 carry `n_sets` key sets at once, one per
release.  Each is used once: with a reused set, a drop-out in the second release would open the
first.  Source: docs/secure-sum.md, "SecureAgg".
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from cape.errors import ConfigError, MessageError
from cape.frozen import dataclass
from cape.secagg import keys
from cape.secagg.graph import GraphPlan, neighbourhoods, plan_graph
from cape.secagg.messages import Advertisement
from cape.secagg.shamir import SHARE_BYTES

# Public part of a key set: X25519 key of the pairwise masks, commitment of the self mask
SET_BYTES: Final = 2 * keys.KEY_BYTES

# Shares of one key set: of the secret mask key, then of the self-mask seed
PAIR_BYTES: Final = 2 * SHARE_BYTES


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Public facts fixed before step 1.  ConfigError for too many colluders, threshold > S."""

    salt: bytes  # `cape.secagg.keys.run_salt`
    sizes: Mapping[str, int]  # M_s of every joined site: the sites are U0
    colluders: int  # assumed colluders S_C
    n_sets: int  # key sets, one per release
    min_survivors: int = 0  # the owner's threshold t; see `threshold`
    # Commitments to the parts of the graph, 32 bytes, sent before any part is opened
    commitments: Mapping[str, bytes] = field(default_factory=dict)
    graph_seed: bytes = b""  # derived from all parts (`wired`)

    def __post_init__(self) -> None:
        n_sites, t = len(self.sizes), self.threshold
        if t > n_sites:
            problem = f"{t} of {n_sites} sites cannot survive"
            raise ConfigError("E152", problem=problem, do="lower min_survivors")
        # Two groups of t sites must share an honest one.  Otherwise an aggregator that sends them
        # different lists of survivors could open both secrets of a site.
        if not (self.colluders < t and 2 * t > n_sites + self.colluders):
            problem = f"{self.colluders} assumed colluders of {n_sites} sites are too many"
            raise ConfigError("E152", problem=problem, do="lower assumed_colluders")

    @property
    def threshold(self) -> int:
        """Sites that must answer at every step, t = max(min_survivors, floor(2 S / 3) + 1)."""
        # Two thirds is the bound of Bonawitz et al. against an active aggregator.
        return max(self.min_survivors, 2 * len(self.sizes) // 3 + 1)

    @property
    def plan(self) -> GraphPlan | None:
        """The graph of this run, or None: every pair of sites."""
        return plan_graph(len(self.sizes), self.threshold, self.colluders)

    @property
    def share_threshold(self) -> int:
        """Shares that open a secret: t' of the graph, or t."""
        return self.threshold if self.plan is None else self.plan.threshold

    def partners(self, site: str) -> frozenset[str]:
        """Sites that `site` masks against and gives shares to."""
        wiring = self.wiring
        return frozenset(self.sizes) - {site} if wiring is None else wiring[site]

    @property
    def wiring(self) -> dict[str, frozenset[str]] | None:
        """Neighbours of every site, or None: every pair of sites."""
        if self.plan is None:
            return None
        if not self.graph_seed:
            raise keys.failure("the graph is not known yet")
        return neighbourhoods(tuple(keys.site_order(self.sizes)), self.graph_seed, self.plan)

    @property
    def coordinates(self) -> dict[str, int]:
        """Shamir x-coordinate of every site: 1 + index in the sorted roster."""
        return {site: 1 + i for i, site in enumerate(keys.site_order(self.sizes))}


def check_enough(sites: Collection[str], *, threshold: int) -> None:
    """Raise SecureAggregationError unless at least `threshold` sites are left."""
    if len(sites) < threshold:
        raise keys.failure(f"{len(sites)} sites are left, {threshold} are needed")


def check_advertisements(setup: Setup, listed: Mapping[str, Advertisement]) -> None:
    """Refuse a list for U1 that is not complete, distinct and signed.

    MessageError for a site that did not join; SecureAggregationError for too few, a wrong length,
    a repeated key or a bad signature.
    """
    if not listed.keys() <= setup.sizes.keys():
        raise MessageError("E202", problem="a site that did not join advertises keys")
    check_enough(listed, threshold=setup.threshold)
    parts: list[bytes] = []
    for site in keys.site_order(listed):
        entry = listed[site]
        if len(entry.keys) != keys.KEY_BYTES + SET_BYTES * setup.n_sets:
            raise keys.failure(f"the keys of {site} have a wrong length")
        parts += [
            entry.keys[i : i + keys.KEY_BYTES] for i in range(0, len(entry.keys), keys.KEY_BYTES)
        ]
        parts.append(entry.identity_key)
        signed = keys.advertisement(site, entry.keys, salt=setup.salt)
        keys.verify_signature(entry.identity_key, signed, entry.signature, site=site)
    # A site that advertises a key of another site could receive that site's secrets.
    if len(set(parts)) != len(parts):
        raise keys.failure("an advertised key repeats")
    if setup.plan is not None:
        # A site that saw the parts of the others and then withheld its own could choose the graph.
        if listed.keys() != setup.sizes.keys():
            raise keys.failure("the graph needs the part of every site, and one is missing")
        for site, entry in listed.items():
            if commit_part(entry.opening) != setup.commitments.get(site):
                raise keys.failure(
                    f"the part of {site} in the graph is not the one it committed to"
                )


def wired(setup: Setup, listed: Mapping[str, Advertisement]) -> Setup:
    """Return the setup with the graph of a list that passed `check_advertisements`."""
    if setup.plan is None:
        return setup
    # The salt depends on the roster and so on every commitment, which came before every part.
    mixed = b"".join(keys.lp(listed[site].opening) for site in keys.site_order(listed))
    seed = keys.sha256(keys.lp(b"cape/1/graph") + setup.salt + mixed)
    return replace(setup, commitments={}, graph_seed=seed)


def commit_part(opening: bytes) -> bytes:
    """Commit to a site's part of the graph: 32 random bytes, so the hash hides them."""
    return keys.sha256(keys.lp(b"cape/1/graph-part") + opening)


def check_survivors(setup: Setup, survivors: Collection[str]) -> None:
    """Raise SecureAggregationError for a list that no honest site may sign."""
    # A list of fewer than t, or, in a graph, with a site that has fewer than t' neighbours on the
    # list, could reveal parts of the sum (docs/privacy.md, "Many sites").
    check_enough(survivors, threshold=setup.threshold)
    if (wiring := setup.wiring) is not None:
        among = frozenset(survivors)
        for site in survivors:
            if len(wiring[site] & among) < setup.share_threshold:
                raise keys.failure(f"{site} has too few neighbours among the survivors")


def roster_entries(setup: Setup, listed: Mapping[str, Advertisement]) -> list[keys.KeyRosterEntry]:
    """Roster of U1: the public key of an entry is its whole `Advertisement.keys`."""
    return [
        keys.KeyRosterEntry(
            site=site,
            n_subjects=setup.sizes[site],
            public_key=listed[site].keys,
            identity_key=listed[site].identity_key,
        )
        for site in keys.site_order(listed)
    ]


def roster_of(setup: Setup, listed: Mapping[str, Advertisement]) -> bytes:
    """Roster digest of U1, bound into every key of this run."""
    return keys.roster_digest(roster_entries(setup, listed))


def mask_public_key(entry: Advertisement, key_set: int) -> bytes:
    """X25519 public key for the pairwise masks of one key set."""
    # After the key for shares; see `Advertisement.keys`.
    start = keys.KEY_BYTES + SET_BYTES * key_set
    return entry.keys[start : start + keys.KEY_BYTES]


def commitment(entry: Advertisement, key_set: int) -> bytes:
    """Advertised commitment of the self-mask seed of one key set."""
    start = 2 * keys.KEY_BYTES + SET_BYTES * key_set
    return entry.keys[start : start + keys.KEY_BYTES]


def commit(seed: bytes) -> bytes:
    """Commit to a self-mask seed: 32 random bytes, so the hash hides them."""
    return keys.sha256(keys.lp(b"cape/1/b") + seed)


# Texts "cape/1/..." keep the uses of SHA-256 and HKDF apart; each other part has a fixed length or
# carries its own, so that no two meanings have the same bytes.


def release_id(
    setup: Setup, roster: bytes, *, key_set: int, label: keys.MaskLabel, participants: Iterable[str]
) -> bytes:
    """Exchange id of steps 3, 3b and 4: a digest of all values that must be equal at all sites."""
    where = setup.salt + keys.u64(1) + roster + keys.u64(key_set)
    who = _sites(participants)
    return keys.sha256(keys.lp(b"cape/1/release") + where + keys.lp(label.to_bytes()) + who)


def survivor_statement(exchange: bytes, survivors: Iterable[str]) -> bytes:
    """Bytes signed in step 3b: this release counts exactly these sites."""
    return keys.lp(b"cape/1/survivors") + exchange + _sites(survivors)


def share_info(roster: bytes, sender: str, receiver: str) -> bytes:
    """HKDF info of the key that encrypts the one message from `sender` to `receiver`."""
    return keys.lp(b"cape/1/share") + roster + keys.lp(sender.encode()) + keys.lp(receiver.encode())


def share_context(setup: Setup, sender: str, receiver: str) -> bytes:
    """Associated data of that message: run, step 2, number 1 of the run, sender, receiver."""
    ends = keys.lp(sender.encode()) + keys.lp(receiver.encode())
    return setup.salt + keys.u64(2) + keys.u64(1) + ends


def _sites(sites: Iterable[str]) -> bytes:
    """Encode a set of sites: count, then ids in `site_order`."""
    ordered = [keys.lp(site.encode()) for site in keys.site_order(sites)]
    return keys.u64(len(ordered)) + b"".join(ordered)
