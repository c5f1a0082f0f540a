# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the moments quadratic needs -epsilon/2; then it is the RDP figure exactly."""

from __future__ import annotations

import math

import numpy as np

from cape.papers.accountants import moments_epsilon, moments_epsilon_printed, rdp_epsilon

MU, DELTA = math.sqrt(2000.0) / 6.2150229201845, 1e-5  # 1000 rounds of two releases


def main() -> int:
    """Minimise alpha(t) - t epsilon on a grid and look which root gives log delta."""
    right, printed, rdp = (
        formula(MU, DELTA) for formula in (moments_epsilon, moments_epsilon_printed, rdp_epsilon)
    )
    t = np.linspace(0.0, 20.0, 2_000_001)
    reached = {e: float((MU**2 / 2.0 * (t + t**2) - t * e).min()) for e in (right, printed)}
    print(__doc__)
    print(f"with -epsilon/2: {right:.6f}; RDP: {rdp:.6f}; with -epsilon as printed: {printed:.6f}")
    print(f"log delta asked {math.log(DELTA):.6f}; at these epsilons the minimum over all moments "
          f"is {reached[right]:.6f} and {reached[printed]:.6f}")  # fmt: skip
    good = abs(right / rdp - 1.0) < 1e-12 and abs(reached[right] / math.log(DELTA) - 1.0) < 1e-6
    return 0 if good and reached[printed] < 2.0 * math.log(DELTA) else 1


if __name__ == "__main__":
    raise SystemExit(main())
