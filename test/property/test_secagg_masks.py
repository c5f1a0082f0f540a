"""Masks cancel for any consortium, and only when everybody was told the same."""

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cape.secagg import keys, shamir
from cape.secagg.keys import KeyRing, KeyRosterEntry, MaskLabel

IDS = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=7, unique=True)
DIGESTS = st.binary(min_size=32, max_size=32)
LABELS = st.builds(
    MaskLabel,
    phase=st.text(max_size=8),
    round=st.integers(0, 2**64 - 1),
    field=st.text(max_size=8),
    size=st.integers(1, 30),
    transcript=DIGESTS,
)


def masks(ids, labels, salt=bytes(32)):
    """e_s of every site; `labels` per site."""
    rings = [KeyRing(site=s, secret_key=hashlib.sha256(s.encode()).digest()) for s in ids]
    entries = [KeyRosterEntry(site=r.site, n_subjects=1, public_key=r.public_key) for r in rings]
    return [
        keys.zero_sum_mask(keys.pair_keys(ring, entries, salt=salt), label)
        for ring, label in zip(rings, labels, strict=True)
    ]


@settings(max_examples=40)
@given(IDS, LABELS)
def test_masks_of_any_consortium_cancel_modulo_2_to_the_64(ids, label):
    e = masks(ids, [label] * len(ids))
    assert sum(int(mask[0]) for mask in e) % 2**64 == 0
    assert not np.sum(e, axis=0, dtype=np.uint64).any()


@settings(max_examples=40)
@given(LABELS, DIGESTS)
def test_a_site_that_was_told_something_else_spoils_every_entry(label, other):
    if other == label.transcript:
        return
    told = MaskLabel(
        phase=label.phase, round=label.round, field=label.field, size=label.size, transcript=other
    )
    e = masks(["a", "b", "c"], [label, label, told])
    assert np.sum(e, axis=0, dtype=np.uint64).all()


@settings(max_examples=200)
@given(LABELS, LABELS)
def test_different_labels_have_different_encodings(one, two):
    assert (one == two) == (one.to_bytes() == two.to_bytes())


@settings(max_examples=60)
@given(DIGESTS, st.data())
def test_any_threshold_of_shares_gives_the_secret_back(secret, data):
    n = data.draw(st.integers(1, 12))
    t = data.draw(st.integers(1, n))
    seed = data.draw(st.binary(max_size=4))
    shares = shamir.split(
        secret,
        threshold=t,
        points=range(1, n + 1),
        token_bytes=lambda size: hashlib.shake_256(seed).digest(size),
    )
    chosen = data.draw(st.sets(st.integers(1, n), min_size=t))
    assert shamir.recover({x: shares[x - 1] for x in chosen}, threshold=t) == secret
