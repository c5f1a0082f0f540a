# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: Theorem 2 and strong composition as set in the paper promise nothing at its settings."""

from __future__ import annotations

import math

from cape.papers.accountants import ACCOUNTANTS, Releases

SIGMA = 6.2150229201845  # noise of (0.5, 0.01) over the sensitivity


def main() -> int:
    """Print delta by rounds; a delta of 1 allows publishing everything."""
    print(__doc__)
    vacuous = []
    for rounds in (1, 49, 50, 1000):
        run = Releases.repeated(math.sqrt(2.0) / SIGMA, rounds=rounds, per_round=2)
        two, strong = (
            ACCOUNTANTS[name].total(run, 1e-5) for name in ("theorem-2", "strong-printed")
        )
        exact = ACCOUNTANTS["gdp"].total(run, 1e-5).epsilon
        print(f"J {rounds}: delta of Theorem 2 {two.delta:.4g}, of strong composition "
              f"{strong.delta:.5g}; exact: epsilon {exact:.4f} at delta 1e-5")  # fmt: skip
        vacuous.append((two.epsilon is None, strong.epsilon is None))
    return 0 if vacuous == [(False, False), (False, False), (True, True), (True, True)] else 1


if __name__ == "__main__":
    raise SystemExit(main())
