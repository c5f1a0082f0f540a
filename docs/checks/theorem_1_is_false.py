# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: eq. (1) forgets what the viewer knows; Theorem 1 as printed understates epsilon."""

from __future__ import annotations

import math

import numpy as np

from cape.papers.accountants import tail_epsilon
from cape.papers.correlated import paper_colluders, printed_factor, view_factor
from cape.privacy.accounting import gdp_epsilon

DELTA, RUNS = 1e-5, 200_000
CLASSIC = math.sqrt(2.0 * math.log(125.0)) / 0.5  # tau_s N_s for (0.5, 0.01)


def attack(n: int, colluders: int, rng: np.random.Generator) -> float:
    """Run Algorithms 1 and 2 many times and return f that a viewer gets out of the messages.

    The viewer adds T/S to the outputs and knows the honest seeds' sum; the best weights for one
    site's value, given the others, come from least squares on these messages alone.
    """
    honest = n - colluders
    seeds, local = rng.standard_normal((2, RUNS, n)) * np.array([1.0, n**-0.5])[:, None, None]
    total = seeds.sum(1, keepdims=True)
    outputs = seeds - total / n + local  # all values f_s are 0; tau_s is 1
    known = np.hstack([outputs[:, :honest] + total / n, total - seeds[:, honest:].sum(1)[:, None]])
    victim, rest = known[:, 0], known[:, 1:]
    weights = np.linalg.lstsq(rest, victim, rcond=None)[0]
    return 1.0 / float(np.var(victim - rest @ weights))


def main() -> int:
    """Show the factor by attack, then claimed and true epsilon by number of sites."""
    print(__doc__)
    good, rng = True, np.random.default_rng(1)
    for n, colluders in ((4, 1), (10, 3)):
        right = float(view_factor(n_sites=n, colluders=colluders, ratio=n))
        printed = float(printed_factor(n_sites=n, colluders=colluders))
        got = attack(n, colluders, rng)
        print(f"S {n}, S_C {colluders}: f by attack {got:.3f}, right {right:.3f}, "
              f"printed {printed:.3f}")  # fmt: skip
        good &= abs(got / right - 1.0) < 0.02
    for n in (4, 7, 8, 20):
        sites = {"n_sites": n, "colluders": paper_colluders(n)}
        claimed = tail_epsilon(math.sqrt(printed_factor(**sites)) / CLASSIC, DELTA)
        true = gdp_epsilon(mu=math.sqrt(view_factor(**sites, ratio=n)) / CLASSIC, delta=DELTA)
        print(f"S {n}: epsilon claimed {claimed:.4f}, true {true:.4f}")
        good &= (claimed < true) == (n >= 7)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
