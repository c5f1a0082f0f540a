# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: sqrt(2 log(1.25/delta))/epsilon wastes noise below 8.42 and fails its delta above."""

from __future__ import annotations

from cape.papers.accountants import classic_epsilon
from cape.privacy.accounting import gdp_delta, gdp_mu

DELTA = 1e-5


def classic_noise(epsilon: float) -> float:
    """Return the noise std over the sensitivity that the papers calibrate with."""
    return classic_epsilon(1.0, DELTA) / epsilon


def main() -> int:
    """Print both noises, and the delta that the classic one really has."""
    print(__doc__)
    good = True
    for epsilon in (0.5, 1.0, 8.41, 8.43, 20.0):
        # The smallest noise std of one release is 1 / mu (Balle and Wang 2018, Algorithm 1).
        classic, exact = classic_noise(epsilon), 1.0 / gdp_mu(epsilon=epsilon, delta=DELTA)
        real = gdp_delta(epsilon=epsilon, mu=1.0 / classic)
        print(f"epsilon {epsilon:g}: classic {classic:.5f}, needed {exact:.5f} "
              f"({100 * (classic / exact - 1):+.1f} %), real delta {real:.3g}")  # fmt: skip
        good &= (real > DELTA) == (epsilon > 8.42)
        good &= epsilon > 1.0 or 1.29 < classic / exact < 1.39
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
