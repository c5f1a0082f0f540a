"""Keys and zero-sum noise (cape/secagg/keys.py)."""

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest

from cape.errors import SecureAggregationError
from cape.secagg import keys
from cape.secagg.keys import KeyRing, KeyRosterEntry, MaskLabel

LOW_ORDER = bytes(32)  # a point of small order: the shared secret is all zeros


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def rings_of(*sites: str) -> dict[str, KeyRing]:
    return {s: KeyRing(site=s, secret_key=digest("cape kat sk " + s)) for s in sites}


def entries_of(rings: dict[str, KeyRing]) -> list[KeyRosterEntry]:
    return [
        KeyRosterEntry(site=s, n_subjects=10 + i, public_key=ring.public_key)
        for i, (s, ring) in enumerate(rings.items())
    ]


LABEL = MaskLabel(
    phase="pca", round=1, field="projector", size=4, transcript=digest("kat-broadcast")
)
SALT = keys.run_salt("kat-run", digest("kat-config"))


def masks_of(*sites: str, label: MaskLabel = LABEL) -> dict[str, np.ndarray]:
    rings = rings_of(*sites)
    entries = entries_of(rings)
    return {
        s: keys.zero_sum_mask(keys.pair_keys(ring, entries, salt=SALT), label)
        for s, ring in rings.items()
    }


def test_the_known_answer_of_the_byte_layout_holds():
    """The values were computed once by another program; a change breaks running consortia."""
    rings = rings_of("site-a", "site-b", "site-c")
    entries = entries_of(rings)
    assert entries[0].public_key.hex() == (
        "8c07034fba5edc336dc1a29375d6b964e65aa01d0931f12bb9eae45be9e55f0b"
    )
    assert SALT.hex().startswith("a305884aeacd656e")
    roster = keys.roster_digest(entries)
    assert keys.roster_fingerprint(roster) == "48989766c1daaa70"
    k_ab = keys.pair_keys(rings["site-a"], entries, salt=SALT).keys["site-b"]
    assert k_ab.hex().startswith("b0fb5f42f3da0987")
    assert keys.stream_key(k_ab, LABEL.info()).hex().startswith("0227dd8a2870a45a")
    stream = np.zeros(4, dtype=np.uint64)
    keys.add_stream(stream, k_ab, LABEL)
    assert int(stream[0]) == 0x79959646E04A2808
    e = masks_of("site-a", "site-b", "site-c")
    assert [f"{int(x):016x}" for x in e["site-a"]] == [
        "ff043825aecbf2d8",
        "3346240c7b112d9e",
        "3b614e4201b75d44",
        "45c8046819444096",
    ]
    assert int(e["site-b"][0]) == 0x6BB77E7FB10E2A1C
    assert int(e["site-c"][0]) == 0x9544495AA025E30C


def test_the_key_stream_is_chacha20_of_rfc_8439(monkeypatch):
    """Appendix A.1, test vector 1: key, counter and nonce zero."""
    monkeypatch.setattr(keys, "stream_key", lambda _key, _info: bytes(32))
    stream = np.zeros(4, dtype=np.uint64)
    keys.add_stream(stream, b"", LABEL)
    assert stream.astype("<u8").tobytes() == bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    )


@pytest.mark.parametrize("n_sites", [2, 3, 7])
def test_the_terms_of_all_sites_cancel_exactly(n_sites):
    e = masks_of(*[f"site {i}" for i in range(n_sites)])
    assert np.sum(list(e.values()), axis=0, dtype=np.uint64).tolist() == [0, 0, 0, 0]
    assert all(mask.all() for mask in e.values())


def test_a_lone_site_has_no_mask():
    assert masks_of("alone")["alone"].tolist() == [0, 0, 0, 0]


def test_a_long_stream_is_the_same_in_pieces(monkeypatch):
    long = dataclasses.replace(LABEL, size=2 * keys._CHUNK + 77)
    whole = masks_of("a", "b", label=long)
    monkeypatch.setattr(keys, "_CHUNK", 100)
    pieces = masks_of("a", "b", label=long)
    assert np.array_equal(whole["a"], pieces["a"])
    assert not (whole["a"] + whole["b"]).any()
    assert np.unique(whole["a"]).size == long.size


def test_an_empty_vector_needs_no_stream():
    assert masks_of("a", "b", label=dataclasses.replace(LABEL, size=0))["a"].size == 0


@pytest.mark.parametrize(
    "other",
    [
        {"phase": "whitening"},
        {"round": 2},
        {"field": "covariance"},
        {"transcript": digest("another broadcast")},
    ],
)
def test_sites_with_different_labels_do_not_cancel(other):
    here = masks_of("a", "b")["a"]
    there = masks_of("a", "b", label=dataclasses.replace(LABEL, **other))["b"]
    assert (here + there).all()


def test_the_size_is_bound_into_the_stream():
    longer = masks_of("a", "b", label=dataclasses.replace(LABEL, size=5))["a"]
    assert not np.array_equal(longer[:4], masks_of("a", "b")["a"])


def test_sites_with_different_plans_do_not_cancel():
    rings = rings_of("a", "b")
    entries = entries_of(rings)
    other = keys.run_salt("kat-run", digest("another config"))
    here = keys.zero_sum_mask(keys.pair_keys(rings["a"], entries, salt=SALT), LABEL)
    there = keys.zero_sum_mask(keys.pair_keys(rings["b"], entries, salt=other), LABEL)
    assert (here + there).all()


def test_labels_have_one_encoding_each():
    one = dataclasses.replace(LABEL, phase="pca", field="x")
    two = dataclasses.replace(LABEL, phase="pc", field="ax")
    assert one.to_bytes() != two.to_bytes()
    with pytest.raises(SecureAggregationError, match="digest of the broadcast"):
        dataclasses.replace(LABEL, transcript=b"short")


def test_sites_are_ordered_by_utf_8_bytes_and_not_by_utf_16_or_locale():
    assert keys.site_order(["\U0001f600", "￿", "b", "B", "ä"]) == ["B", "b", "ä", "￿", "\U0001f600"]
    e = masks_of("\U0001f600", "￿", "ä")
    assert not np.sum(list(e.values()), axis=0, dtype=np.uint64).any()


def test_the_roster_digest_does_not_depend_on_the_order_of_arrival():
    entries = entries_of(rings_of("a", "b", "c"))
    assert keys.roster_digest(entries) == keys.roster_digest(entries[::-1])


@pytest.mark.parametrize("change", [{"site": "x"}, {"n_subjects": 3}, {"identity_key": b"i" * 32}])
def test_the_roster_digest_binds_every_field(change):
    entries = entries_of(rings_of("a", "b"))
    changed = [dataclasses.replace(entries[0], **change), entries[1]]
    assert keys.roster_digest(entries) != keys.roster_digest(changed)


def test_a_roster_as_joined_is_accepted():
    entries = entries_of(rings_of("a", "b", "c"))
    keys.check_roster(entries, own=entries[1])


def test_a_changed_roster_is_refused():
    entries = entries_of(rings_of("a", "b", "c"))
    own = entries[1]
    same_key = dataclasses.replace(entries[2], public_key=entries[0].public_key)
    same_identity = [dataclasses.replace(e, identity_key=b"i" * 32) for e in entries[::2]]
    short = dataclasses.replace(entries[2], public_key=b"short")
    swapped = dataclasses.replace(own, public_key=b"k" * 32)
    cases = {
        "two sites have one public key": [[*entries[:2], same_key]],
        "two sites have one identity key": [[own, *same_identity]],
        "public key of c has a wrong length": [[*entries[:2], short]],
        "the key of b was changed": [[entries[0], swapped, entries[2]], entries[::2]],
    }
    for problem, rosters in cases.items():
        for roster in rosters:
            with pytest.raises(SecureAggregationError, match=problem):
                keys.check_roster(roster, own=own)


@pytest.mark.parametrize("bad", [LOW_ORDER, b"short", b"\x01" + bytes(31)])
def test_a_public_key_that_gives_no_secret_is_refused_by_name(bad):
    rings = rings_of("a", "b")
    entries = entries_of(rings)
    entries[1] = dataclasses.replace(entries[1], public_key=bad)
    with pytest.raises(SecureAggregationError, match="the public key of b is not usable"):
        keys.pair_keys(rings["a"], entries, salt=SALT)


def test_an_all_zero_secret_is_refused_even_if_the_library_returns_it():
    class Lenient:
        """Stands for a version of the library that does not check."""

        def exchange(self, _peer):
            return bytes(32)

    public = rings_of("a")["a"].public_key
    with pytest.raises(SecureAggregationError, match="not usable"):
        keys.exchange(Lenient(), public, peer="a", salt=SALT, info=b"")


def test_a_secret_key_of_another_length_is_refused_without_being_shown():
    with pytest.raises(SecureAggregationError, match="secret key does not have 32 bytes") as caught:
        KeyRing(site="a", secret_key=b"guess me")
    assert "guess" not in repr(caught.value) + caught.value.detail


def test_no_repr_shows_a_key():
    ring = rings_of("a", "b")["a"]
    pairs = keys.pair_keys(ring, entries_of(rings_of("a", "b")), salt=SALT)
    for value, secret in ((ring, ring.secret_key), (pairs, pairs.keys["b"])):
        shown = repr(value) + str(value)
        assert "site='a'" in shown
        assert secret.hex() not in shown
        assert repr(secret)[2:-1] not in shown


def test_secagg_draws_no_entropy_of_its_own():
    """Entropy is handed in by callers, so that a run can be replayed in tests."""
    for source in Path(keys.__file__).parent.glob("*.py"):
        text = source.read_text()
        for word in ("import secrets", "urandom", "np.random", "import random", ".generate("):
            assert word not in text, f"{word} in {source.name}"


def test_a_signature_that_was_valid_makes_no_other_one_valid() -> None:
    """What was verified once is remembered by key, message and signature together."""
    secret, other = bytes(range(32)), bytes(32)
    public, message = keys.identity_public_key(secret), b"said"
    signature = keys.sign(secret, message)
    for _ in range(2):
        keys.verify_signature(public, message, signature, site="A")
        for wrong in (
            (public, b"other", signature),
            (keys.identity_public_key(other), message, signature),
            (public, message, keys.sign(other, message)),
        ):
            with pytest.raises(SecureAggregationError, match="signature of A"):
                keys.verify_signature(*wrong, site="A")


def test_a_text_that_is_not_hexadecimal_is_refused_by_what_it_should_have_been():
    assert keys.from_hex("00ff", "a public key") == b"\x00\xff"
    with pytest.raises(SecureAggregationError, match="a public key is not hexadecimal"):
        keys.from_hex("zz", "a public key")
