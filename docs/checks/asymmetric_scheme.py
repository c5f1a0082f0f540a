# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the asymmetric scheme is often infeasible; weights by size make it the symmetric one."""

from __future__ import annotations

import numpy as np

from cape.papers.asymmetric import feasibility, solve, worst_view
from cape.papers.correlated import view_factor


def printed_solution(weights: list[float], stds: list[float], pooled: float) -> np.ndarray:
    """Solve the paper's linear system (its last right-hand entry needs w_S^2 S for S^2)."""
    w, tau, n = np.array(weights), np.array(stds), len(weights)
    matrix = w**2 / (w[:, None] ** 2 * n**2)
    np.fill_diagonal(matrix, (1.0 - 1.0 / n) ** 2)
    return np.linalg.solve(matrix, tau**2 - pooled**2 / (w**2 * n))


def main() -> int:
    """Equal weights fail for unequal sizes, by the system itself; weights N_s / N never do."""
    print(__doc__)
    good = True
    for sizes in ([60, 80, 100, 160], [50, 100, 150], [100, 110, 120, 130]):
        n, total = len(sizes), sum(sizes)
        stds, pooled = [1.0 / size for size in sizes], 1.0 / total
        equal = feasibility(weights=[1.0 / n] * n, site_stds=stds, pooled_std=pooled)
        least = min(printed_solution([1.0 / n] * n, stds, pooled) / np.square(stds))
        print(f"sizes {sizes}, equal weights: smallest q_s/tau_s^2 {least:.4f}, "
              f"{'feasible' if equal.feasible else equal.reason}")  # fmt: skip
        good &= equal.feasible == bool(least >= 0.0)
        scheme = solve(weights=[s / total for s in sizes], site_stds=stds, pooled_std=pooled)
        for colluders in range(n):
            worst = worst_view(scheme, colluders=colluders, sensitivities=stds)
            f = float(view_factor(n_sites=n, colluders=colluders, ratio=n))
            good &= abs(worst.mu2 / f - 1.0) < 1e-9
    print("weights N_s/N: feasible each time, with the symmetric scheme's mu for any colluders")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
