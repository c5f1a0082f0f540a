# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the closed form of delta(epsilon; mu) is the exact one, and mu adds up as mu^2."""

from __future__ import annotations

import numpy as np

from cape.privacy.accounting import gdp_delta, gdp_epsilon, gdp_mu
from cape.privacy.cost import Cost


def hockey_stick(epsilon: float, mu: float) -> float:
    """Integrate max(0, p - exp(epsilon) q) for p = N(mu, 1), q = N(0, 1), from its definition."""
    x = np.linspace(-14.0, 14.0 + mu, 400_001)
    p, q = (np.exp(-0.5 * (x - centre) ** 2) / np.sqrt(2 * np.pi) for centre in (mu, 0.0))
    return float(np.maximum(p - np.exp(epsilon) * q, 0.0).sum() * (x[1] - x[0]))


def main() -> int:
    """Compare with numerical integration, once for one release and once for two together."""
    worst = 0.0
    for mu, epsilon in ((0.1, 0.2), (0.5, 1.0), (1.0, 5.0), (2.0, 3.0), (4.0, 9.0)):
        exact = hockey_stick(epsilon, mu)
        worst = max(worst, abs(gdp_delta(epsilon=epsilon, mu=mu) / exact - 1.0))
    # Two at once: N((a, b), I) and N(0, I) differ along one line only, by hypot(a, b).
    mu, delta = (Cost.of_mu(0.3) + Cost.of_mu(0.4)).mu(), 1e-5
    epsilon = gdp_epsilon(mu=mu, delta=delta)
    back = abs(gdp_mu(epsilon=epsilon, delta=delta) / 0.5 - 1.0)
    print(__doc__)
    print(f"largest relative difference from numerical integration: {worst:.1e} (allowed 1e-6)")
    print(f"mu 0.3 and 0.4 together: {mu:.12g}; there and back again: {back:.1e} (allowed 1e-9)")
    return 0 if worst < 1e-6 and abs(mu - 0.5) < 1e-15 and back < 1e-9 else 1


if __name__ == "__main__":
    raise SystemExit(main())
