# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: mu^2 = Delta^2 / (S_H tau_g^2) (r + S_H) / (r + 1) is what CAPE's aggregator sees."""

from __future__ import annotations

import numpy as np

from cape.papers.correlated import view_factor


def oracle(n: int, colluders: int, ratio: float) -> float:
    """Return S times the victim's entry of the pseudo-inverse of the covariance of ALL messages.

    Columns: seeds, local noises.  Rows: the broadcast T, all outputs, the colluders' own noise.
    """
    total = np.r_[np.ones(n), np.zeros(n)]
    outputs = np.hstack([np.eye(n), np.eye(n)]) - total / n
    own = np.eye(2 * n)[[k for s in range(colluders) for k in (n - 1 - s, 2 * n - 1 - s)]]
    seen = np.vstack([total, outputs, own]) * np.sqrt(np.r_[np.full(n, ratio), np.ones(n)])
    left, values, _ = np.linalg.svd(seen, full_matrices=False)
    kept = values > 1e-11 * values[0]
    return n * float(((left[1, kept] / values[kept]) ** 2).sum())


def main() -> int:
    """Compare for every S up to 12, every number of colluders, five ratios."""
    worst, cases = 0.0, 0
    for n in range(1, 13):
        for colluders in range(n):
            for ratio in (0.3, 1.0, float(n), 25.0, 100.0):
                f = float(view_factor(n_sites=n, colluders=colluders, ratio=ratio))
                worst = max(worst, abs(f / oracle(n, colluders, ratio) - 1.0))
                cases += 1
    print(__doc__)
    print(f"{cases} cases, largest relative difference {worst:.1e} (allowed 1e-9)")
    return 0 if worst < 1e-9 else 1


if __name__ == "__main__":
    raise SystemExit(main())
