"""SecureAgg when sites drop out: every pattern of deaths for few sites, sampled for more.

A site that dies at step k sends nothing from step k on.  The result is the survivors' plain
sum, exactly, or the run ends because fewer than t sites are left at some step.

Belongs to `cape/secagg/site_steps.py`.
"""

import hashlib
import itertools
import random

import numpy as np
import pytest

from cape.errors import SecureAggregationError
from cape.secagg import aggregator_steps as aggregator
from cape.secagg import site_steps as site_side
from cape.secagg.keys import KeyRing, MaskLabel, shared_keys, zero_sum_mask
from cape.secagg.steps import Setup, check_advertisements, mask_public_key

SIZE = 3
BOUND = 2**40
NEVER = 6
STAGES = range(1, NEVER)  # advertise, share, mask, sign, unmask


def entropy(name: str):
    """Reproducible entropy of one site."""
    counter = itertools.count()

    def token_bytes(n: int) -> bytes:
        return hashlib.shake_256(f"{name}/{next(counter)}".encode()).digest(n)

    return token_bytes


def remember(step):
    """Compute a step once per argument, refusals too."""
    known = {}

    def again(*args):
        if args not in known:
            try:
                known[args] = step(*args), None
            except SecureAggregationError as error:
                known[args] = None, error
        result, error = known[args]
        if error is not None:
            raise error
        return result

    return again


def label(round_: int) -> MaskLabel:
    return MaskLabel(phase="pca", round=round_, field="sum", size=SIZE, transcript=bytes(32))


def vector(site: str, round_: int) -> np.ndarray:
    """What a site holds: integers of both signs, up to 30 bits."""
    raw = hashlib.shake_256(f"{site} {round_}".encode()).digest(4 * SIZE)
    return np.frombuffer(raw, dtype="<i4").astype(np.int64) // 2


class World:
    """All parties of one run; a step is computed once for every set of sites that is left.

    The steps are pure, so a pattern of deaths is a path in a tree, and patterns share its trunk.
    """

    def __init__(self, n_sites: int, *, n_sets: int = 1, colluders: int = 1) -> None:
        sizes = {f"site{i}": 10 + i for i in range(n_sites)}
        self.setup = Setup(salt=bytes(32), sizes=sizes, colluders=colluders, n_sets=n_sets)
        self.first = {
            site: site_side.advertise(
                self.setup,
                site=site,
                identity_secret=hashlib.sha256(site.encode()).digest(),
                token_bytes=entropy(site),
            )
            for site in sizes
        }
        self.advertised = remember(self._advertised)
        self.ready = remember(self._ready)
        self.masked = remember(self._masked)
        self.signed = remember(self._signed)
        self.opened = remember(self._opened)

    def _advertised(self, u1):
        listed = {site: self.first[site].own for site in u1}
        check_advertisements(self.setup, listed)
        return listed, {
            site: site_side.share(self.first[site], listed, token_bytes=entropy(site + "s"))
            for site in u1
        }

    def _ready(self, u1, u2):
        listed, shared = self.advertised(u1)
        inbox = {site: shared[site][1] for site in u2}
        table = aggregator.KeyTable.of(self.setup, listed)
        book = aggregator.route_shares(table, inbox)
        return table, {site: site_side.accept_shares(shared[site][0], book) for site in u2}

    def _masked(self, u1, u2):
        return mask_all(self.ready(u1, u2)[1], key_set=0, participants=sorted(u2))

    def _signed(self, u1, u2, u3):
        table, sent = self.ready(u1, u2)[0], self.masked(u1, u2)
        return sign_all(table, only(sent, u3), key_set=0, participants=sorted(u2))

    def _opened(self, u1, u2, u3, u4):
        pending, signed = self.signed(u1, u2, u3)
        return unmask_all(pending, only(signed, u4))

    def run(self, deaths: tuple[int, ...]):
        """One release, in which site i is silent from step ``deaths[i]`` on."""
        *left, answering = (
            frozenset(s for s, death in zip(self.setup.sizes, deaths, strict=True) if death > step)
            for step in STAGES
        )
        pending, opened = self.opened(*left)
        return finish(pending, only(opened, answering))[0]


def only(outcomes, sites):
    """What these sites did: the others were silent."""
    return {site: outcome for site, outcome in outcomes.items() if site in sites}


def messages(outcomes):
    return {site: message for site, (_, message) in outcomes.items()}


def mask_all(states, *, key_set, participants):
    """Step 3 at every site."""
    return {
        site: site_side.mask_input(
            state,
            vector(site, key_set).view(np.uint64),
            label=label(key_set),
            participants=participants,
        )
        for site, state in states.items()
    }


def sign_all(table, sent, *, key_set, participants):
    """Step 3 at the aggregator, 3b at every site that was counted."""
    pending, listed = aggregator.collect_masked(
        table, messages(sent), key_set=key_set, label=label(key_set), participants=participants
    )
    return pending, {
        site: site_side.sign_survivors(state, listed) for site, (state, _) in sent.items()
    }


def unmask_all(pending, signed):
    """Step 3b at the aggregator, 4 at every signer."""
    book = aggregator.collect_signatures(pending, messages(signed))
    return pending, {site: site_side.unmask(state, book) for site, (state, _) in signed.items()}


def finish(pending, opened):
    """Step 4 at the aggregator: the result, and the states of the sites that answered."""
    result = aggregator.unmask_sum(pending, messages(opened), bound=BOUND)
    return result, {site: state for site, (state, _) in opened.items()}


def release(table, states, *, key_set, participants, here):
    """All of one release, in which only the sites `here` answer."""
    sent = only(mask_all(states, key_set=key_set, participants=participants), here)
    pending, signed = sign_all(table, sent, key_set=key_set, participants=participants)
    return finish(*unmask_all(pending, signed))


def check(world: World, deaths: tuple[int, ...]) -> bool:
    """Run one pattern and compare with the plain sum; returns whether there was a result."""
    left = sum(death == NEVER for death in deaths)
    if left < world.setup.threshold:
        with pytest.raises(SecureAggregationError, match=r"sites are left, \d are needed"):
            world.run(deaths)
        return False
    result = world.run(deaths)
    counted = [s for s, death in zip(world.setup.sizes, deaths, strict=True) if death > 3]
    assert list(result.survivors) == sorted(counted)
    assert result.total.tolist() == sum(vector(s, 0) for s in counted).tolist()
    assert result.n_subjects == sum(world.setup.sizes[s] for s in counted)
    return True


@pytest.fixture(scope="module")
def worlds():
    """Worlds by their number of sites; the steps that patterns share are computed once."""
    return remember(World)


@pytest.mark.parametrize(("n_sites", "successes"), [(3, 1), (4, 1 + 4 * 5), (5, 1 + 5 * 5)])
def test_every_pattern_of_deaths_gives_the_survivors_sum_or_ends_the_run(n_sites, successes):
    """Every site dies at one of the five messages or never: 6^S patterns."""
    world = World(n_sites)
    patterns = itertools.product(range(1, NEVER + 1), repeat=n_sites)
    assert sum(check(world, deaths) for deaths in patterns) == successes


@pytest.mark.parametrize("n_sites", [6, 7])
def test_sampled_patterns_of_deaths_give_the_survivors_sum_or_end_the_run(n_sites):
    world = World(n_sites)
    draw = random.Random(n_sites)
    outcomes = []
    for _ in range(300):
        dying = draw.sample(range(n_sites), draw.randint(0, n_sites - world.setup.threshold + 1))
        deaths = [draw.randint(1, 5) if i in dying else NEVER for i in range(n_sites)]
        outcomes.append(check(world, tuple(deaths)))
    assert 50 < sum(outcomes) < 300


MESSAGES = {"advertise": 1, "share": 2, "masked input": 3, "consistency": 4, "unmask": 5}


@pytest.mark.parametrize("step", MESSAGES.values(), ids=MESSAGES.keys())
@pytest.mark.parametrize("n_sites", [3, 4, 5, 6, 7])
def test_every_subset_of_sites_may_drop_out_together(worlds, n_sites, step):
    """All 2^S - 1 subsets, silent from one message on: four steps and the consistency round."""
    # Exactly those that leave at least t sites give a sum: of the sites that sent a masked input.
    world = worlds(n_sites)
    spare = n_sites - world.setup.threshold
    for n_gone in range(1, n_sites + 1):
        for gone in itertools.combinations(range(n_sites), n_gone):
            deaths = tuple(step if i in gone else NEVER for i in range(n_sites))
            assert check(world, deaths) == (n_gone <= spare)


def test_key_sets_serve_many_releases_while_sites_go_one_after_the_other():
    """Six sites, t = 5: one is lost in release 1, none in 0 and 2."""
    world = World(6, n_sets=3)
    everybody = frozenset(world.setup.sizes)
    table, states = world.ready(everybody, everybody)
    participants = sorted(everybody)
    for key_set, lost in enumerate([set(), {"site3"}, set()]):
        here = set(participants)
        counted = here - lost
        result, states = release(
            table, states, key_set=key_set, participants=participants, here=counted
        )
        assert result.total.tolist() == sum(vector(s, key_set) for s in counted).tolist()
        assert result.survivors == tuple(sorted(counted))
        participants = sorted(counted)
        for state in states.values():
            assert len(state.key_sets) == len(state.held) == 2 - key_set
            assert state.release is None
            assert state.alive == tuple(sorted(counted))


def test_a_site_that_sent_its_vector_but_was_counted_out_stays_hidden():
    """Its mask key is opened, its self mask is not: the vector alone is still uniform noise."""
    world = World(4)
    everybody = frozenset(world.setup.sizes)
    table, states = world.ready(everybody, everybody)
    asked = sorted(everybody)
    late = mask_all(states, key_set=0, participants=asked)["site1"][1]
    result, _ = release(table, states, key_set=0, participants=asked, here=everybody - {"site1"})
    assert "site1" not in result.survivors
    opened = KeyRing(site="site1", secret_key=world.first["site1"].key_sets[0].mask_key)
    listed = table.advertised.items()
    peers = {site: mask_public_key(entry, 0) for site, entry in listed if site != "site1"}
    pairs = shared_keys(opened, peers, digest=table.roster, salt=world.setup.salt)
    left = late - zero_sum_mask(pairs, label(0)) - vector("site1", 0).view(np.uint64)
    assert (left > 2**40).all()
    assert (left < 2**64 - 2**40).all()
