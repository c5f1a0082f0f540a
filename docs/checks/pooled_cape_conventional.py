# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: exactly, delta_pool <= delta_cape <= delta_conv; Fig. 5 compares unlike bounds."""

from __future__ import annotations

import math

from cape.papers.accountants import tail_delta
from cape.papers.correlated import printed_factor, view_factor
from cape.privacy.accounting import gdp_delta

S, S_C = 10, 3


def main() -> int:
    """Print the paper's comparison and the exact one; ten sites, three colluders."""
    print(__doc__)
    good = True
    printed = math.sqrt(printed_factor(n_sites=S, colluders=S_C) or math.nan)
    right = math.sqrt(view_factor(n_sites=S, colluders=S_C, ratio=S))
    for epsilon in (0.5, 1.0):
        for noise in (2.0, 4.0, 6.0, 8.0, 10.0):
            # All have the accuracy of pooled data, whose mu is 1 / (tau_s N_s).
            factors = (1.0, right, math.sqrt(S))
            pooled, cape, separate = (gdp_delta(epsilon=epsilon, mu=f / noise) for f in factors)
            classic = 1.25 * math.exp(-0.5 * (epsilon * noise) ** 2)
            claimed = tail_delta(epsilon, printed / noise)
            print(f"epsilon {epsilon:g}, tau_s N_s {noise:g}: printed CAPE {claimed:.3g}, "
                  f"classic pool {classic:.3g}; exact pool {pooled:.3g}, CAPE {cape:.3g}, "
                  f"conventional {separate:.3g}")  # fmt: skip
            good &= pooled <= cape <= separate
            if (epsilon, noise) == (0.5, 4.0):
                good &= claimed < classic  # the paper's comparison, reproduced
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
