# ruff: noqa: T201 - a check prints its claim and its figures
"""Claim: exactly, delta_pool <= delta_cape <= delta_conv; Fig. 5 compares unlike bounds."""

from __future__ import annotations

from cape.papers.accountants import paper_deltas


def main() -> int:
    """Print the paper's comparison and the exact one; ten sites, three colluders."""
    print(__doc__)
    good = True
    for epsilon in (0.5, 1.0):
        for noise in (2.0, 4.0, 6.0, 8.0, 10.0):
            d = paper_deltas(epsilon=epsilon, n_sites=10, colluders=3, noise=noise)
            print(f"epsilon {epsilon:g}, tau_s N_s {noise:g}: printed CAPE {d.cape_printed:.3g}, "
                  f"classic pool {d.pooled_classic:.3g}; exact pool {d.pooled:.3g}, CAPE "
                  f"{d.cape:.3g}, conventional {d.conventional:.3g}")  # fmt: skip
            good &= d.pooled <= d.cape <= d.conventional
    d = paper_deltas(epsilon=0.5, n_sites=10, colluders=3, noise=4.0)
    good &= (d.cape_printed or 1.0) < d.pooled_classic  # the paper's comparison, reproduced
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
