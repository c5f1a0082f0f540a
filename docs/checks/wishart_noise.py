# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: Wishart noise (CISS 2016) has no finite epsilon: outputs rule datasets out."""

from __future__ import annotations

import math

import numpy as np

RUNS, SIZE = 20_000, 5


def ruled_out(epsilon: float, rng: np.random.Generator) -> float:
    """Return how often the output for data C = x x' is impossible for the neighbour C = 0.

    Output C + E E' with SIZE + 1 columns N(0, I / (2 epsilon)); here the other way round: from the
    neighbour's outputs E E', those with E E' - x x' not positive definite.
    """
    noise = rng.standard_normal((RUNS, SIZE, SIZE + 1)) / math.sqrt(2.0 * epsilon)
    inverse = np.linalg.inv(noise @ noise.transpose(0, 2, 1))
    return float(np.mean(inverse[:, 0, 0] > 1.0))  # x = e1: definite iff e1' (E E')^-1 e1 < 1


def main() -> int:
    """Compare with 1 - exp(-epsilon), the delta that no epsilon can avoid."""
    print(__doc__)
    good, rng = True, np.random.default_rng(6)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        got, formula = ruled_out(epsilon, rng), -math.expm1(-epsilon)
        print(f"epsilon {epsilon:g}: impossible under the neighbour {got:.4f}, "
              f"1 - exp(-epsilon) {formula:.4f}")  # fmt: skip
        good &= abs(got - formula) < 0.02
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
