# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: averaging site means costs H(n) in variance; a sum over subjects costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

SIZES, RUNS = np.array([60, 80, 100, 160]), 400_000


def imbalance(sizes: Sequence[int]) -> Fraction:
    """Return H(n) = N^2/S^3 sum 1/N_s^2 (Imtiaz et al., Remark 3): 1 for equal sizes only."""
    # Site means are averaged with weight 1/S, each with noise for its own N_s.
    return Fraction(sum(sizes) ** 2, len(sizes) ** 3) * sum(Fraction(1, n**2) for n in sizes)


def largest_imbalance(total: int, n: int) -> Fraction:
    """Return the upper bound of H(n) for N samples at S sites: one is huge."""
    return Fraction(total**2, n**3) * (Fraction(1, (total - n + 1) ** 2) + n - 1)


def main() -> int:
    """Simulate both estimators of a mean at the same noise per subject."""
    n, total = len(SIZES), int(SIZES.sum())
    noise = np.random.default_rng(3).standard_normal((RUNS, n))
    pooled = 1.0 / total**2  # Delta^2 of the mean of all subjects; the noise multiplier is 1
    means = (noise / SIZES / np.sqrt(n)).mean(1)  # tau_g = tau_s / sqrt(S), weights 1/S
    sums = (noise / np.sqrt(n)).sum(1) / total  # sensitivity 1 at every site, divided by N
    by_means, by_sums = float(means.var() / pooled), float(sums.var() / pooled)
    h, high = float(imbalance(SIZES.tolist())), float(largest_imbalance(total, n))
    print(__doc__)
    print(f"sizes {SIZES.tolist()}: H(n) {h:.6f}, bounds 1 and {high:.4g}")
    print(f"variance over that of pooled data: site means {by_means:.4f}, sums {by_sums:.4f}")
    good = abs(by_means / h - 1.0) < 0.01 and abs(by_sums - 1.0) < 0.01
    return 0 if good and abs(h - 1.432726) < 1e-6 and 1 <= h <= high else 1


if __name__ == "__main__":
    raise SystemExit(main())
