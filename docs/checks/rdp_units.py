# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the printed noise variance for RDP has wrong units; right, rho, B_G, M and S cancel."""

from __future__ import annotations

import math

from cape.papers.accountants import rdp_epsilon

SIGMA, DELTA, ROUNDS = 6.2150229201845, 1e-5, 1000  # noise of (0.5, 0.01) over the sensitivity


def printed_variance(*, learning_rate: float, pooled_std: float, sensitivity: float) -> float:
    """Return rho^2 tau_pool^2 / Delta, sigma_W^2 as printed in Imtiaz et al., Section IV-A."""
    # Two slips of units: the step size scales the noise and the sensitivity alike, and Delta has to
    # be squared.  Right is tau_pool^2 / Delta^2, in which neither B_G, M nor S is left.
    return learning_rate**2 * pooled_std**2 / sensitivity


def epsilon(bound: float, bias_bound: float, subjects: int, rho: float) -> tuple[float, float]:
    """Return total epsilon with the variance as printed, and with tau_pool^2 / Delta^2."""
    printed = right = 0.0
    for clip in (bound, bias_bound):
        sensitivity = 2.0 * clip / subjects
        pooled = SIGMA * sensitivity
        printed += 1.0 / printed_variance(
            learning_rate=rho, pooled_std=pooled, sensitivity=sensitivity
        )
        right += sensitivity**2 / pooled**2
    mus = math.sqrt(ROUNDS * printed), math.sqrt(ROUNDS * right)
    return rdp_epsilon(mus[0], DELTA), rdp_epsilon(mus[1], DELTA)


def main() -> int:
    """Change what must not matter and see which figure moves."""
    rho = 0.015 / math.log(20)
    print(__doc__)
    found = []
    for case in ((30.0, 30.0**0.5, 1024, rho), (60.0, 30.0**0.5, 1024, rho),
                 (30.0, 30.0**0.5, 256, rho), (30.0, 30.0**0.5, 1024, 10 * rho)):  # fmt: skip
        found.append(epsilon(*case))
        print(f"B_G {case[0]:g}, M {case[2]}, rho {case[3]:.4f}: as printed {found[-1][0]:.5g}, "
              f"right {found[-1][1]:.6f}")  # fmt: skip
    same = all(abs(right / found[0][1] - 1.0) < 1e-12 for _, right in found)
    moves = len({round(printed) for printed, _ in found}) == len(found)
    return 0 if same and moves and abs(found[0][1] - 60.417646) < 1e-6 else 1


if __name__ == "__main__":
    raise SystemExit(main())
