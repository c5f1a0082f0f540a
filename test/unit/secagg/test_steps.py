"""SecureAgg, step by step: what every party refuses (cape/secagg/*steps.py)."""

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from cape.errors import ConfigError, MessageError, SecureAggregationError
from cape.secagg import aggregator_steps, shamir, site_steps, steps
from cape.secagg.keys import MaskLabel, check_pinned, identity_public_key
from cape.secagg.messages import SealedShareBook, Survivors, SurvivorSignatures
from cape.secagg.steps import Setup

SITES = ("a", "b", "c", "d")
SETUP = Setup(
    salt=hashlib.sha256(b"run").digest(),
    sizes={"d": 13, "b": 11, "a": 10, "c": 12},
    colluders=1,
    n_sets=2,
)
LABEL = MaskLabel(phase="pca", round=1, field="sum", size=3, transcript=bytes(32))
IDENTITY = {s: hashlib.sha256(b"identity " + s.encode()).digest() for s in SITES}
PINNED = {s: identity_public_key(secret) for s, secret in IDENTITY.items()}
BOUND = 2**30


def entropy(name):
    counter = itertools.count()
    return lambda n: hashlib.shake_256(f"{name}/{next(counter)}".encode()).digest(n)


def vector(site):
    return np.array([-1, 5, 1000], dtype=np.int64) * (1 + SITES.index(site))


class Run:
    """An honest run up to a step; each attribute is what that step gave, by site."""

    def __init__(self, setup: Setup = SETUP) -> None:
        self.setup = setup
        self.first = {
            s: site_steps.advertise(
                setup, site=s, identity_secret=IDENTITY[s], token_bytes=entropy(s)
            )
            for s in SITES
        }
        self.listed = {s: state.own for s, state in self.first.items()}
        steps.check_advertisements(setup, self.listed)
        self.shared = {s: self.share(s, self.listed) for s in SITES}
        self.table = aggregator_steps.KeyTable.of(setup, self.listed)
        self.book = aggregator_steps.route_shares(self.table, self.sealed())
        self.ready = {s: self.accept(s, self.book) for s in SITES}
        self.sent = {s: self.mask(s) for s in SITES}
        self.pending, self.survivors = self.collect_masked(only(self.inputs(), "abc"))
        self.signed = {s: self.sign(s, self.survivors) for s in "abc"}
        self.signatures = aggregator_steps.collect_signatures(self.pending, self.marks())
        self.opened = {s: self.unmask(s, self.signatures) for s in "abc"}

    def share(self, site, listed):
        return site_steps.share(self.first[site], listed, token_bytes=entropy(site + " shares"))

    def sealed(self):
        return {site: message for site, (_, message) in self.shared.items()}

    def accept(self, site, book):
        return site_steps.accept_shares(self.shared[site][0], book)

    def mask(self, site, label=LABEL, participants=SITES, state=None, noisy=None):
        return site_steps.mask_input(
            self.ready[site] if state is None else state,
            vector(site).view(np.uint64) if noisy is None else noisy,
            label=label,
            participants=participants,
        )

    def inputs(self):
        return {site: vector for site, (_, vector) in self.sent.items()}

    def collect_masked(self, inbox, key_set=0, label=LABEL):
        return aggregator_steps.collect_masked(
            self.table, inbox, key_set=key_set, label=label, participants=SITES
        )

    def sign(self, site, listed):
        return site_steps.sign_survivors(self.sent[site][0], listed)

    def marks(self):
        return {site: message for site, (_, message) in self.signed.items()}

    def unmask(self, site, book):
        return site_steps.unmask(self.signed[site][0], book)

    def answers(self):
        return {site: message for site, (_, message) in self.opened.items()}

    def finish(self, inbox, bound=BOUND):
        return aggregator_steps.unmask_sum(self.pending, inbox, bound=bound)


@pytest.fixture(scope="module")
def run():
    """Site d is lost after step 2; nobody changes the states, they are frozen."""
    return Run()


def change(message, **fields):
    return dataclasses.replace(message, **fields)


def only(replies, sites):
    return {site: replies[site] for site in sites}


def flip(value: bytes, at: int = 0) -> bytes:
    changed = bytearray(value)
    changed[at] ^= 1
    return bytes(changed)


# -- honest run -----------------------------------------------------------------------------------


def test_the_result_is_the_survivors_plain_sum(run):
    result = run.finish(run.answers())
    assert result.total.tolist() == (vector("a") + vector("b") + vector("c")).tolist()
    assert result.survivors == ("a", "b", "c")
    assert result.n_subjects == 10 + 11 + 12


def test_the_order_of_arrival_changes_nothing(run):
    shuffled = only(run.listed, "cadb")
    table = aggregator_steps.KeyTable.of(SETUP, shuffled)
    book = aggregator_steps.route_shares(table, only(run.sealed(), "dbac"))
    assert (table, book) == (run.table, run.book)
    assert book.sharers == SITES
    pending, survivors = run.collect_masked(only(run.inputs(), "cba"))
    assert survivors == run.survivors
    assert np.array_equal(pending.total, run.pending.total)
    result = run.finish(only(run.answers(), "cba"))
    assert result.total.tolist() == run.finish(run.answers()).total.tolist()


def test_a_masked_vector_differs_from_its_content_in_every_entry(run):
    for site in SITES:
        masked = run.sent[site][1]
        assert masked.dtype == np.uint64
        assert (masked != vector(site).view(np.uint64)).all()


@pytest.mark.parametrize(
    ("n_sites", "threshold"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 5), (10, 7)]
)
def test_the_threshold_is_two_thirds_of_the_sites_plus_one(n_sites, threshold):
    sizes = {str(i): 1 for i in range(n_sites)}
    setup = change(SETUP, sizes=sizes, colluders=0)
    assert setup.threshold == threshold
    assert setup.coordinates == {site: 1 + i for i, site in enumerate(sorted(sizes))}


def test_the_default_number_of_colluders_fits_any_number_of_sites():
    for n_sites in range(2, 201):
        colluders = max(1, -(-n_sites // 3) - 1)
        sizes = {str(i): 1 for i in range(n_sites)}
        assert change(SETUP, sizes=sizes, colluders=colluders).colluders == colluders


@pytest.mark.parametrize(("n_sites", "colluders"), [(4, 2), (3, 3), (1, 1), (9, 5)])
def test_too_many_assumed_colluders_are_refused(n_sites, colluders):
    """With 2 t <= S + S_C two groups could be told different survivors."""
    with pytest.raises(ConfigError, match=r"assumed colluders of \d sites are too many; lower"):
        change(SETUP, sizes={str(i): 1 for i in range(n_sites)}, colluders=colluders)


def test_the_statements_that_are_signed_name_run_release_and_sites(run):
    exchanges = {
        steps.release_id(setup, roster, key_set=key_set, label=label, participants=participants)
        for setup in (SETUP, change(SETUP, salt=bytes(32)))
        for roster in (run.table.roster, bytes(32))
        for key_set in (0, 1)
        for label in (LABEL, change(LABEL, round=2), change(LABEL, transcript=b"x" * 32))
        for participants in (SITES, SITES[:3])
    }
    assert len(exchanges) == 2 * 2 * 2 * 3 * 2
    statements = {steps.survivor_statement(bytes(32), s) for s in (["ab"], ["a", "b"], ["a"])}
    assert len(statements) == 3
    assert steps.survivor_statement(bytes(32), ["b", "a"]) == steps.survivor_statement(
        bytes(32), ["a", "b"]
    )


def test_no_state_shows_a_secret(run):
    secrets = [run.first["a"].share_key, IDENTITY["a"], run.shared["a"][0].own_shares[:66]]
    for one in run.first["a"].key_sets:
        secrets += [one.mask_key, one.seed]
    secrets += [run.ready["b"].held[0]["a"][:66], run.opened["b"][1].mask_keys["d"]]
    states = [
        run.first["a"],
        run.first["a"].key_sets,
        run.shared["a"],
        run.ready["a"],
        run.ready["b"],
        run.sent["a"][0],
        run.signed["a"][0],
        run.opened["b"],
    ]
    for state in states:
        shown = repr(state)
        for secret in secrets:
            assert secret.hex() not in shown
            assert repr(secret)[2:-1] not in shown


def test_a_used_key_set_is_gone_from_the_state(run):
    before, after = run.ready["a"], run.sent["a"][0]
    assert (before.used, after.used) == (0, 1)
    assert after.key_sets == before.key_sets[1:]
    assert after.held == before.held[1:]
    answered = run.opened["a"][0]
    assert answered.release is None
    assert answered.alive == ("a", "b", "c")


# -- any inbox of the aggregator ------------------------------------------------------------------


def test_every_stage_refuses_too_few_replies(run):
    for honest, step in (
        (run.listed, lambda replies: steps.check_advertisements(SETUP, replies)),
        (run.sealed(), lambda replies: aggregator_steps.route_shares(run.table, replies)),
        (run.inputs(), run.collect_masked),
        (run.marks(), lambda replies: aggregator_steps.collect_signatures(run.pending, replies)),
        (run.answers(), run.finish),
    ):
        step(honest)
        with pytest.raises(SecureAggregationError, match="2 sites are left, 3 are needed"):
            step(only(honest, "ab"))


# -- step 1 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"keys": b"short"}, "keys of b have a wrong length"),
        ({"signature": bytes(64)}, "signature of b is not valid"),
        ({"identity_key": PINNED["a"]}, "signature of b is not valid"),
    ],
)
def test_an_advertisement_that_is_not_whole_is_refused(run, fields, problem):
    listed = run.listed | {"b": change(run.listed["b"], **fields)}
    with pytest.raises(SecureAggregationError, match=problem):
        steps.check_advertisements(SETUP, listed)


def test_a_site_that_did_not_join_advertises_nothing(run):
    with pytest.raises(MessageError, match="did not join") as caught:
        steps.check_advertisements(SETUP, run.listed | {"x": run.listed["a"]})
    assert caught.value.code == "CAPE-E202"


def test_changed_keys_break_the_signature(run):
    entry = run.listed["b"]
    for at in (0, 40, 70, len(entry.keys) - 1):
        listed = run.listed | {"b": change(entry, keys=flip(entry.keys, at))}
        with pytest.raises(SecureAggregationError, match="signature of b is not valid"):
            steps.check_advertisements(SETUP, listed)


def test_keys_under_the_name_of_another_site_break_the_signature(run):
    listed = run.listed | {"b": run.listed["c"], "c": run.listed["b"]}
    with pytest.raises(SecureAggregationError, match="signature of b is not valid"):
        steps.check_advertisements(SETUP, listed)


def test_a_site_that_repeats_the_keys_of_another_is_refused(run):
    copied = site_steps.advertise(
        SETUP, site="b", identity_secret=IDENTITY["b"], token_bytes=entropy("a")
    ).own
    with pytest.raises(SecureAggregationError, match="an advertised key repeats"):
        steps.check_advertisements(SETUP, run.listed | {"b": copied})


def test_a_list_with_another_own_entry_is_refused(run):
    """The aggregator in the middle: keys of its own, signed by an identity of its own."""
    forged = site_steps.advertise(
        SETUP, site="a", identity_secret=bytes(32), token_bytes=entropy("mallory")
    ).own
    listed = run.listed | {"a": forged}
    steps.check_advertisements(SETUP, listed)  # without pinned keys nobody else can tell
    with pytest.raises(SecureAggregationError, match="own advertisement was changed"):
        run.share("a", listed)
    with pytest.raises(SecureAggregationError, match="own advertisement was changed"):
        run.share("a", only(run.listed, "bcd"))
    with pytest.raises(SecureAggregationError, match="identity key of a is not the pinned one"):
        check_pinned(steps.roster_entries(SETUP, listed), pinned=PINNED)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"salt": bytes(32)}, "signature of a is not valid"),
        ({"n_sets": 1}, "keys of a have a wrong length"),
    ],
)
def test_advertisements_of_another_run_or_plan_are_refused(run, fields, problem):
    """Also a replay of keys whose secrets the adversary has learned since."""
    with pytest.raises(SecureAggregationError, match=problem):
        steps.check_advertisements(change(SETUP, **fields), run.listed)


# -- step 2 --------------------------------------------------------------------------------------


def test_shares_for_a_wrong_set_of_sites_are_refused(run):
    first = run.sealed()["a"]
    for sealed in ({**first.sealed, "a": b""}, only(first.sealed, "bc"), {}):
        inbox = run.sealed() | {"a": change(first, sealed=sealed)}
        with pytest.raises(MessageError, match="a did not share with every partner"):
            aggregator_steps.route_shares(run.table, inbox)


def rebook(run, **senders):
    """The book with other ciphertexts of some senders, or without them (None)."""
    sent = {site: message.sealed for site, (_, message) in run.shared.items()} | senders
    sent = {site: sealed for site, sealed in sent.items() if sealed is not None}
    return SealedShareBook(
        sharers=tuple(sent),
        addressed={
            site: {sender: sealed[site] for sender, sealed in sent.items() if site in sealed}
            for site in SITES
        },
    )


def test_a_book_of_other_sites_is_refused(run):
    with pytest.raises(SecureAggregationError, match="2 sites are left, 3 are needed"):
        run.accept("a", rebook(run, c=None, d=None))
    with pytest.raises(SecureAggregationError, match="not those that advertised"):
        run.accept("a", rebook(run, a=None))
    with pytest.raises(SecureAggregationError, match="not those that advertised"):
        run.accept("a", rebook(run, x={}))
    assert run.accept("a", rebook(run, d=None)).alive == ("a", "b", "c")


def test_tampered_swapped_truncated_or_missing_ciphertexts_do_not_open(run):
    mine = run.book.addressed["a"]["b"]
    for wrong in (
        flip(mine),
        flip(mine, -1),
        mine[:-1],
        mine[:8],
        b"",
        run.book.addressed["a"]["c"],
        run.book.addressed["c"]["b"],
        run.book.addressed["b"]["a"],
    ):
        with pytest.raises(SecureAggregationError, match="shares of b do not open") as caught:
            run.accept("a", rebook(run, b={"a": wrong}))
        assert caught.value.__suppress_context__
    with pytest.raises(SecureAggregationError, match="shares of b do not open"):
        run.accept("a", rebook(run, b={"c": mine}))


def test_shares_that_open_but_have_a_wrong_form_are_refused(run, monkeypatch):
    """A malicious site can seal whatever it likes."""
    for shares, problem in (
        (b"", "shares of b have a wrong length"),
        (bytes(4 * 66 + 1), "shares of b have a wrong length"),
        (b"\xff" * (4 * 66), "a share is malformed"),
    ):
        monkeypatch.setattr(site_steps, "_open", lambda *_a, s=shares, **_k: s)
        with pytest.raises(SecureAggregationError, match=problem):
            run.accept("a", run.book)


def test_shares_travel_under_the_documented_key_and_associated_data(run):
    """Computed here from the byte layout alone; a change breaks running consortia."""

    def lp(value):
        return len(value).to_bytes(4, "little") + value

    def number(value):
        return value.to_bytes(8, "little")

    roster = lp(b"cape/1/roster") + number(4)
    for (site, entry), size in zip(run.listed.items(), (10, 11, 12, 13), strict=True):
        roster += lp(site.encode()) + number(size) + lp(entry.keys) + lp(entry.identity_key)
    roster = hashlib.sha256(roster).digest()
    ends = lp(b"b") + lp(b"a")
    key = HKDF(
        algorithm=SHA256(), length=32, salt=SETUP.salt, info=lp(b"cape/1/share") + roster + ends
    ).derive(
        X25519PrivateKey.from_private_bytes(run.first["a"].share_key).exchange(
            X25519PublicKey.from_public_bytes(run.listed["b"].keys[:32])
        )
    )
    context = SETUP.salt + number(2) + number(1) + ends
    plain = ChaCha20Poly1305(key).decrypt(bytes(12), run.book.addressed["a"]["b"], context)
    assert len(plain) == 2 * 2 * 66
    held = run.ready["a"].held
    assert plain == held[0]["b"] + held[1]["b"]
    seed = run.first["b"].key_sets[0].seed
    listed = run.listed["b"].keys
    assert listed[64:96] == hashlib.sha256(lp(b"cape/1/b") + seed).digest()
    own = [run.ready[s].held[0]["b"][66:] for s in "abc"]
    assert shamir.recover(dict(enumerate(own, start=1)), threshold=3) == seed


def test_sites_with_different_lists_share_no_key(run):
    other = run.share("b", only(run.listed, "abc"))[1]
    with pytest.raises(SecureAggregationError, match="shares of b do not open"):
        run.accept("a", rebook(run, b=other.sealed))


# -- step 3 --------------------------------------------------------------------------------------


def test_one_release_at_a_time_and_one_key_set_each(run):
    with pytest.raises(SecureAggregationError, match="a release is under way"):
        run.mask("a", state=run.sent["a"][0])
    used_up = change(run.ready["a"], key_sets=(), held=())
    with pytest.raises(SecureAggregationError, match="all key sets are used"):
        run.mask("a", state=used_up)


def test_participants_must_be_enough_sites_that_are_left_with_oneself(run):
    for participants in (("b", "c", "d"), (*SITES, "x")):
        with pytest.raises(SecureAggregationError, match="not those that are left"):
            run.mask("a", participants=participants)
    with pytest.raises(SecureAggregationError, match="2 sites are left, 3 are needed"):
        run.mask("a", participants=("a", "b", "a", "b"))
    with pytest.raises(SecureAggregationError, match="not those that are left"):
        run.mask("a", state=run.opened["a"][0])  # d is out since the last release


@pytest.mark.parametrize("masked", [np.zeros(4, dtype=np.uint64), np.zeros(2, dtype=np.uint64)])
def test_a_vector_of_another_length_is_refused(run, masked):
    with pytest.raises(MessageError, match="the vector of a has another form"):
        run.collect_masked(run.inputs() | {"a": masked})


def test_a_list_of_another_round_broadcast_or_key_set_has_no_valid_signature(run):
    for other in ({"label": change(LABEL, round=2)}, {"key_set": 1}):
        pending, _ = run.collect_masked(only(run.inputs(), "abc"), **other)
        with pytest.raises(SecureAggregationError, match="signature of a is not valid"):
            aggregator_steps.collect_signatures(pending, run.marks())
    told = run.mask("a", label=change(LABEL, transcript=b"x" * 32))[0]
    _, signed = site_steps.sign_survivors(told, run.survivors)
    with pytest.raises(SecureAggregationError, match="signature of a is not valid"):
        aggregator_steps.collect_signatures(run.pending, run.marks() | {"a": signed})


# -- step 3b -------------------------------------------------------------------------------------


def test_only_one_acceptable_list_of_survivors_is_signed(run):
    with pytest.raises(MessageError, match="no open release"):
        site_steps.sign_survivors(run.ready["a"], run.survivors)
    with pytest.raises(MessageError, match="signed already"):
        site_steps.sign_survivors(run.signed["a"][0], Survivors(sites=SITES))
    for survivors in (("b", "c", "d"), ("a", "b", "c", "x")):
        with pytest.raises(SecureAggregationError, match="survivors are not sites of this"):
            run.sign("a", Survivors(sites=survivors))
    with pytest.raises(SecureAggregationError, match="2 sites are left, 3 are needed"):
        run.sign("a", Survivors(sites=("a", "b", "b")))


def test_unequal_lists_of_survivors_are_found_by_the_aggregator_and_by_sites(run):
    state, split = run.sign("a", Survivors(sites=SITES))
    with pytest.raises(SecureAggregationError, match="signature of a is not valid"):
        aggregator_steps.collect_signatures(run.pending, run.marks() | {"a": split})
    with pytest.raises(SecureAggregationError, match=r"signature of [ab] is not valid"):
        site_steps.unmask(state, run.signatures)


# -- step 4 --------------------------------------------------------------------------------------


def test_shares_are_opened_once_and_only_for_enough_valid_signatures(run):
    with pytest.raises(MessageError, match="no open release"):
        site_steps.unmask(run.opened["a"][0], run.signatures)
    with pytest.raises(SecureAggregationError, match="not those of the survivors"):
        site_steps.unmask(run.sent["a"][0], run.signatures)  # signed nothing yet
    marks = run.signatures.signatures

    def book(signatures):
        return SurvivorSignatures(signatures=signatures)

    with pytest.raises(SecureAggregationError, match="not those of the survivors"):
        run.unmask("a", book({**marks, "d": marks["a"]}))
    with pytest.raises(SecureAggregationError, match="2 sites are left, 3 are needed"):
        run.unmask("a", book(only(marks, "ab")))
    with pytest.raises(SecureAggregationError, match="signature of c is not valid"):
        run.unmask("a", book({**marks, "c": flip(marks["c"])}))
    with pytest.raises(SecureAggregationError, match="signature of c is not valid"):
        run.unmask("a", book({**marks, "c": marks["b"]}))


def test_nobody_opens_both_secrets_of_one_site(run):
    for _, message in run.opened.values():
        assert message.self_masks.keys() == {"a", "b", "c"}
        assert message.mask_keys.keys() == {"d"}


def test_an_answer_that_opens_another_set_of_sites_is_refused(run):
    first = run.answers()["a"]
    share = first.mask_keys["d"]
    for fields in (
        {"mask_keys": {}},
        {"mask_keys": {"d": share, "a": share}},
        {"self_masks": only(first.self_masks, "ab")},
        {"self_masks": {**first.self_masks, "d": share}},
    ):
        with pytest.raises(MessageError, match="a did not open what was asked"):
            run.finish(run.answers() | {"a": change(first, **fields)})


def test_a_changed_share_is_found_by_the_commitment_or_the_advertised_key(run):
    first = run.answers()["a"]
    # An even change of the share at x = 1 moves the secret by 3 * change: still 32 bytes.
    seed = first.self_masks["b"]
    changed = change(first, self_masks={**first.self_masks, "b": flip(seed)})
    with pytest.raises(SecureAggregationError, match="do not give the self mask of b"):
        run.finish(run.answers() | {"a": changed})
    changed = change(first, mask_keys={"d": flip(first.mask_keys["d"], 1)})
    with pytest.raises(SecureAggregationError, match="do not give the mask key of d"):
        run.finish(run.answers() | {"a": changed})
    for share in (b"", seed[:-1], b"\xff" * 66):
        changed = change(first, self_masks={**first.self_masks, "b": share})
        with pytest.raises(SecureAggregationError, match="a share is malformed"):
            run.finish(run.answers() | {"a": changed})


def test_a_survivor_whose_signature_came_late_is_out_of_stage_4(run):
    pending, listed = run.collect_masked(run.inputs())
    signed = {s: run.sign(s, listed) for s in SITES}
    in_time = {site: message for site, (_, message) in signed.items() if site != "d"}
    book = aggregator_steps.collect_signatures(pending, in_time)
    answers = {s: site_steps.unmask(signed[s][0], book)[1] for s in "abc"}
    result = aggregator_steps.unmask_sum(pending, answers, bound=BOUND)
    assert result.total.tolist() == sum(vector(s) for s in SITES).tolist()
    assert result.survivors == SITES


def test_a_sum_past_its_bound_is_refused(run):
    with pytest.raises(SecureAggregationError, match="masks do not cancel"):
        run.finish(run.answers(), bound=5999)
    assert run.finish(run.answers(), bound=6000).total[2] == 6000


def test_a_vector_changed_on_the_way_spoils_the_sum_and_is_refused_by_its_bound(run):
    changed = run.inputs()["a"] + np.uint64(2**40)
    pending, _ = run.collect_masked(only(run.inputs(), "bc") | {"a": changed})
    with pytest.raises(SecureAggregationError, match="masks do not cancel"):
        aggregator_steps.unmask_sum(pending, run.answers(), bound=BOUND)


def test_more_survivors_may_be_asked_for_but_not_more_than_there_are():
    sizes = {str(i): 1 for i in range(5)}
    wanted = change(SETUP, sizes=sizes, colluders=1, min_survivors=5)
    assert (change(SETUP, sizes=sizes, colluders=1).threshold, wanted.threshold) == (4, 5)
    assert change(SETUP, sizes=sizes, colluders=1, min_survivors=2).threshold == 4
    with pytest.raises(ConfigError, match="6 of 5 sites cannot survive; lower min_survivors"):
        change(SETUP, sizes=sizes, colluders=1, min_survivors=6)
