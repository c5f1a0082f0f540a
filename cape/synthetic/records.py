"""The preset `records`: one table per site, brain networks and behaviour of one person a row.

x = sum of shared and own factors, y likewise; factor k of both views correlates by a known amount,
so the canonical correlations are known.  All columns have mean 0 and variance 1, so that the
public range -3 to 3 fits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array
from cape.synthetic.two_views import two_views

N_X, N_Y = 10, 8
STRONGEST, WEAKEST = 0.8, 0.4
"""Canonical correlations of the planted pairs, evenly spaced."""

Progress = Callable[[int, int], None]


def planted(n_pairs: int) -> Array:
    """Return the canonical correlations of the study, shape (n_pairs,)."""
    return np.linspace(STRONGEST, WEAKEST, n_pairs)


def write_records(
    out: Path, owners: tuple[int, ...], n_pairs: int, seed: int, progress: Progress
) -> tuple[Array, tuple[str, ...]]:
    """Write ``records.csv`` of every site; return the loadings (D, n_pairs) and names of pairs."""
    study = two_views(
        seed, n_records=len(owners), n_x=N_X, n_y=N_Y, correlations=tuple(planted(n_pairs))
    )
    header = [f"network_{i:02d}" for i in range(1, N_X + 1)]
    header += [f"score_{i:02d}" for i in range(1, N_Y + 1)]
    for site in sorted(set(owners)):
        rows = [m for m, owner in enumerate(owners) if owner == site]
        lines = [",".join(["subject", *header])]
        lines += [
            ",".join([f"sub-{m + 1:05d}", *(f"{value:.6g}" for value in study.records[m])])
            for m in rows
        ]
        text = "\n".join(lines) + "\n"
        (out / f"local{site}" / "records.csv").write_text(text, encoding="utf-8")
        progress(rows[-1] + 1, len(owners))
    return study.loadings, tuple(f"P{k:02d}" for k in range(1, n_pairs + 1))
