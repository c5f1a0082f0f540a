# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: the asymmetric scheme is often infeasible; weights by size make it the symmetric one.

Imtiaz et al., Section III-C, corrected: weights w_s add up to 1, seeds have variance q_s, local
noise l_s = tau_pool^2 / (w_s^2 S), and a site asks for noise of variance tau_s^2 in all.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from cape.papers.correlated import view_factor


def printed_solution(w: np.ndarray, stds: np.ndarray, pooled: float) -> np.ndarray:
    """Solve the paper's linear system for q_s (its last right-hand entry needs w_S^2 S for S^2)."""
    n = len(w)
    matrix = w**2 / (w[:, None] ** 2 * n**2)
    np.fill_diagonal(matrix, (1.0 - 1.0 / n) ** 2)
    return np.linalg.solve(matrix, stds**2 - pooled**2 / (w**2 * n))


def seed_variances(w: np.ndarray, stds: np.ndarray, pooled: float) -> np.ndarray:
    """Return q_s in closed form; one below 0 is no variance, and the scheme infeasible."""
    n = len(w)
    r = (w * stds) ** 2 - pooled**2 / n
    return n / (n - 2) * (r - r.sum() / (n * (n - 1))) / w**2


def least_request(w: np.ndarray, stds: np.ndarray, pooled: float) -> float:
    """Return what every w_s^2 tau_s^2 has to reach for all q_s to be variances."""
    n = len(w)
    return float(np.sum((w * stds) ** 2) + (n - 2) * pooled**2) / (n * (n - 1))


def victim_mu2(
    w: np.ndarray, q: np.ndarray, local: np.ndarray, victim: int, colluders: Collection[int]
) -> float:
    """Return mu_v^2 / Delta_v^2 of a subject of site v against the aggregator with these sites."""
    # They know T_w and their own seeds; so of an honest site they hold f_s + ehat_s + g_s, and
    # sum_H w_s ehat_s.  This is the victim's entry of the inverse covariance of these.
    total = q + local
    honest = [s for s in range(len(w)) if s not in colluders]
    hidden = (w**2 * q * local / total)[honest].sum()
    extra = (w * q / total)[victim] ** 2 / hidden if q[victim] else 0.0
    return float(1.0 / total[victim] + extra)


def worst_mu2(
    w: np.ndarray, q: np.ndarray, local: np.ndarray, n_colluders: int, sensitivities: np.ndarray
) -> float:
    """Return the largest mu^2 over all victims and all sets of S_C colluders."""
    # Colluders matter through the sum over the honest sites only, so the worst ones are those with
    # the largest terms: no search over sets is needed.
    order = np.argsort(-(w**2) * q * local / (q + local)).tolist()
    views = []
    for victim, sensitivity in enumerate(sensitivities.tolist()):
        colluders = [s for s in order if s != victim][:n_colluders]
        views.append(sensitivity**2 * victim_mu2(w, q, local, victim, colluders))
    return max(views)


def main() -> int:
    """Equal weights fail for unequal sizes, by the system itself; weights N_s / N never do."""
    print(__doc__)
    good = True
    for sizes in ([60, 80, 100, 160], [50, 100, 150], [100, 110, 120, 130]):
        n, total = len(sizes), sum(sizes)
        stds, pooled, equal = 1.0 / np.array(sizes), 1.0 / total, np.full(n, 1.0 / n)
        q = printed_solution(equal, stds, pooled)
        few = (equal * stds) ** 2 < least_request(equal, stds, pooled)
        print(f"sizes {sizes}, equal weights: smallest q_s/tau_s^2 {min(q / stds**2):.4f}, "
              f"{few.sum()} sites ask for too little noise")  # fmt: skip
        good &= np.allclose(q, seed_variances(equal, stds, pooled)) and bool(np.all((q < 0) == few))
        w = np.array(sizes) / total
        q, local = seed_variances(w, stds, pooled), pooled**2 / (n * w**2)
        good &= bool(np.all(q > 0.0))
        for colluders in range(n):
            f = float(view_factor(n_sites=n, colluders=colluders, ratio=n))
            good &= abs(worst_mu2(w, q, local, colluders, stds) / f - 1.0) < 1e-9
    print("weights N_s/N: feasible each time, with the symmetric scheme's mu for any colluders")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
