"""How near a run came to planted maps, where a folder holds them: simulations alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.scores import isi, match_maps


def compare_with_truth(truth: Path, unmixing: Path) -> tuple[float | None, float | None]:
    """Return ISI of the gain matrix and mean matched |r| of the maps; None without truth or maps.

    Files hold ``A`` (D, R) planted; ``W_total`` (k, D) and ``A`` (D, k) estimated.
    """
    if not (truth.is_file() and unmixing.is_file()):
        return None, None
    with np.load(truth, allow_pickle=False) as stored:
        planted = stored["A"].astype(np.float64)
    with np.load(unmixing, allow_pickle=False) as stored:
        W_total, A = stored["W_total"], stored["A"]
    if len(planted) != len(A):
        return None, None
    return nearness(A, W_total, planted)


def nearness(maps: Array, unmixing: Array, planted: Array) -> tuple[float | None, float]:
    """Return ISI of the gain matrix, None if it is not square, and mean matched |r| of the maps."""
    gain = unmixing @ planted
    q = float(isi(gain)) if gain.shape[0] == gain.shape[1] else None
    return q, float(match_maps(maps, planted).mean)
