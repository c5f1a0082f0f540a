# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: a viewer's epsilon follows from the noise shares it cannot subtract, nothing else."""

from __future__ import annotations

import math

import numpy as np

from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.privacy.cost import Cost

SITES, COLLUDERS, DELTA = 4, 1, 1e-5


def seen_epsilon(mu: float, known: int) -> float:
    """Return epsilon of a viewer of the sum who knows the noise of `known` sites."""
    rows = np.vstack([np.ones(SITES), np.eye(SITES)[:known]])  # the sum, and the known shares
    inverse = np.linalg.inv(rows @ rows.T)
    return gdp_epsilon(mu=mu * math.sqrt((SITES - COLLUDERS) * inverse[0, 0]), delta=DELTA)


def main() -> int:
    """Compare three viewers of a run at epsilon 1 with the covariance of what each one holds."""
    mu = gdp_mu(epsilon=1.0, delta=DELTA)
    costs = Cost.of_mu(mu).by_viewer(
        noise_shares=SITES - COLLUDERS, n_sites=SITES, noise="correlated"
    )
    stated = {viewer: cost.epsilon(DELTA) for viewer, cost in costs.items()}
    rows = (
        ("somebody with the results", stated["outsider"], seen_epsilon(mu, 0)),
        ("one curious site", stated["one_site"], seen_epsilon(mu, 1)),
        ("aggregator and one site", stated["aggregator"], seen_epsilon(mu, COLLUDERS)),
    )
    print(__doc__)
    print("four sites, one assumed colluder, epsilon 1 at delta 1e-5")
    for who, claim, seen in rows:
        print(f"{who:28} stated {claim:.9f}   from the covariance {seen:.9f}")
    print(f"if two collude: {seen_epsilon(mu, 2):.6f}; if all others do: {seen_epsilon(mu, 3):.6f}")
    right = all(abs(claim / seen - 1.0) < 1e-9 for _, claim, seen in rows)
    known = [0.854049, 1.0, 1.249911, 1.834965]
    return 0 if right and np.allclose([seen_epsilon(mu, k) for k in range(4)], known, 1e-6) else 1


if __name__ == "__main__":
    raise SystemExit(main())
