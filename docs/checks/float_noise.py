# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: floating-point noise gives the data away through its low bits."""

from __future__ import annotations

import numpy as np

RUNS = 200_000


def tell(value: float, rng: np.random.Generator) -> float:
    """Return the part of small outputs value + noise that are multiples of 2^-53."""
    outputs = value + rng.standard_normal(RUNS)
    small = outputs[np.abs(outputs) < 0.125] * 2.0**53
    return float(np.mean(small == np.rint(small)))


def main() -> int:
    """Compare the data 0 and 1 under the same noise of std 1."""
    rng = np.random.default_rng(5)
    zero, one = tell(0.0, rng), tell(1.0, rng)
    print(__doc__)
    print(f"outputs near 0 that are multiples of 2^-53: {zero:.3f} for data 0, {one:.3f} for 1")
    print("one output that is no such multiple proves that the data were 0: no epsilon covers that")
    return 0 if one == 1.0 and zero < 0.2 else 1


if __name__ == "__main__":
    raise SystemExit(main())
