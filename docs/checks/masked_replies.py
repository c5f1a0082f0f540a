# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the masks of all sites cancel exactly, and one masked reply alone is uniform noise."""

from __future__ import annotations

import hashlib

import numpy as np

from cape.secagg.keys import KeyRing, KeyRosterEntry, MaskLabel, pair_keys, run_salt, zero_sum_mask

SITES, SIZE = ("a", "b", "c"), 50_000


def main() -> int:
    """Mask three equal, constant vectors; count the bytes of one reply."""
    rings = [KeyRing(site=s, secret_key=hashlib.sha256(s.encode()).digest()) for s in SITES]
    entries = [KeyRosterEntry(site=r.site, n_subjects=9, public_key=r.public_key) for r in rings]
    salt = run_salt("check", bytes(32))
    label = MaskLabel(phase="pca", round=1, field="x", size=SIZE, transcript=bytes(32))
    secret = np.full(SIZE, 7, dtype=np.uint64)
    replies = [secret + zero_sum_mask(pair_keys(r, entries, salt=salt), label) for r in rings]
    cancels = bool((np.sum(replies, axis=0, dtype=np.uint64) == 21).all())
    counts = np.bincount(np.frombuffer(replies[0].tobytes(), dtype=np.uint8), minlength=256)
    expected = 8 * SIZE / 256
    chi2 = float(((counts - expected) ** 2).sum() / expected)
    print(__doc__)
    print(f"sum of three replies is 3 x 7 in all {SIZE} entries: {cancels}")
    print(f"bytes of one reply: chi-square {chi2:.1f} with 255 degrees of freedom (allowed 377)")
    return 0 if cancels and chi2 < 377.1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
