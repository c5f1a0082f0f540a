# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: after Algorithm 1 a drop-out leaves seeds in the sum (against Remark 4)."""

from __future__ import annotations

import numpy as np

RUNS = 200_000


def simulated(n: int, dropped: int, ratio: float) -> float:
    """Run Algorithms 1 and 2, lose sites after e_s is formed, compare with local noise alone."""
    rng = np.random.default_rng(4)
    seeds = rng.standard_normal((RUNS, n)) * np.sqrt(ratio)
    zero_sum = seeds - seeds.mean(1, keepdims=True)
    local = rng.standard_normal((RUNS, n))
    left = n - dropped
    return float((zero_sum + local)[:, :left].sum(1).var()) / left


def dropout_factor(n: int, dropped: int, ratio: float) -> float:
    """Return by what the noise variance of the sum grows: 1 + n_drop r / S."""
    # e_s of the survivors no longer cancel: they keep the variance n_drop (S - n_drop) / S kappa^2.
    # Only drop-outs before e_s is formed are harmless.
    return 1.0 + dropped * ratio / n


def main() -> int:
    """Print by what the variance of the survivors' sum grows."""
    print(__doc__)
    good = True
    for n, dropped, ratio in ((4, 0, 4.0), (4, 1, 4.0), (4, 3, 4.0), (10, 2, 1000.0)):
        got = simulated(n, dropped, ratio)
        formula = dropout_factor(n, dropped, ratio)
        print(f"S {n}, {dropped} dropped, r {ratio:g}: {got:.3f} simulated, {formula:g} by formula")
        good &= abs(got / formula - 1.0) < 0.02
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
