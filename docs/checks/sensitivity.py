# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: replacing one subject moves a site's integer sum by at most the charged Delta_int."""

from __future__ import annotations

import math

import numpy as np

from cape.privacy.cost import VectorShape
from cape.privacy.mechanisms import integer_sensitivity
from cape.secagg.field import quantize

CLIP, LOG2_GAMMA, SIZE = 1000, 10, 6


def svec(matrix: np.ndarray) -> np.ndarray:
    """Return the diagonal, then sqrt(2) times the upper triangle: keeps the norm."""
    upper = np.triu_indices(len(matrix), 1)
    return np.concatenate([np.diag(matrix), math.sqrt(2.0) * matrix[upper]])


def farthest(answers: np.ndarray, shape: VectorShape) -> int:
    """Return the largest squared distance of two subjects' integer vectors, in Python integers."""
    rows = quantize(answers, log2_gamma=LOG2_GAMMA, clip_int=CLIP, shape=shape).astype(object)
    return max(int(((a - b) ** 2).sum()) for a in rows for b in rows)


def main() -> int:
    """Try hostile answers of both shapes: huge, tiny, not finite, opposite, orthogonal."""
    rng = np.random.default_rng(0)
    ball = rng.standard_normal((60, SIZE)) * 10.0 ** rng.integers(-8, 300, (60, 1))
    ball = np.vstack([ball, -ball, np.eye(SIZE) * 1e9, np.full((2, SIZE), [[np.nan], [np.inf]])])
    vectors = np.vstack([rng.standard_normal((100, 3)), np.eye(3)])
    psd = np.array([svec(np.outer(v, v)) for v in vectors]) * 1e6
    print(__doc__)
    good = True
    cases: tuple[tuple[VectorShape, np.ndarray], ...] = (("ball", ball), ("psd", psd))
    for shape, answers in cases:
        charged = integer_sensitivity(shape, CLIP, SIZE)
        got = math.sqrt(farthest(answers, shape))
        print(f"{shape}: farthest {got:.2f}, charged {charged}, bound of the clip {CLIP}")
        # Not above the charge, and the charge is not wasteful either.
        good &= 0.98 * charged < got <= charged
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
