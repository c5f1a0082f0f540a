"""Privacy of the papers' correlated noise (CAPE) in closed form.

Imtiaz et al., Algorithms 1 and 2, symmetric setting.  Site s draws a seed of variance kappa^2.  The
sum T of all seeds is broadcast, e_s is the seed minus T/S, and the site sends f_s + e_s + g_s with
local noise g_s of variance tau_g^2.  r = kappa^2 / tau_g^2 is the seed ratio: S in the paper, 0
without zero-sum noise, infinite for the secure sum modulo 2^64.

Factors f are relative to mu^2 of an outsider, who sees the sum only: mu^2 = f Delta^2 /
(S tau_g^2), or f (Delta / tau_s)^2 with the paper's tau_g^2 = tau_s^2 / S.  The computations run
the symmetric scheme on sums over subjects, which equals the asymmetric one with w_s = N_s / N
(docs/checks/asymmetric_scheme.py).
"""

import math
from fractions import Fraction

from cape.settings.option import out_of_range

SeedRatio = int | float | Fraction


def paper_colluders(n_sites: int) -> int:
    """Return ceil(S/3) - 1, the papers' number of colluding sites; 0 for S <= 3."""
    return -(-at_least("n_sites", n_sites, 1) // 3) - 1


def view_factor(*, n_sites: int, colluders: int, ratio: SeedRatio) -> Fraction:
    """Return f of the aggregator with S_C sites: S/S_H (r + S_H)/(r + 1), S_H = S - S_C; exact."""
    # With r = S it is S (2 S - S_C) / ((1 + S)(S - S_C)), in place of the bracket of Imtiaz et al.,
    # eq. (1).  r is 0 or more; ``math.inf`` is the secure sum, with f = S/S_H.  S_C is at most S -
    # 1.
    honest = honest_sites(n_sites, colluders)
    if math.isnan(ratio) or ratio < 0:
        raise out_of_range("ratio", ratio, "0 or more, inf for the secure sum")
    if math.isinf(ratio):
        return Fraction(n_sites, honest)
    r = Fraction(ratio)
    # The viewer knows T, so it holds f_s + ehat_s + g_s of each honest site and the sum of the
    # honest seeds.  Given that sum, the covariance of these S_H numbers is (kappa^2 + tau_g^2) I -
    # (kappa^2 / S_H) 1 1'; its inverse has the diagonal (r + S_H) / ((r + 1) S_H tau_g^2).
    return Fraction(n_sites, honest) * (r + honest) / (r + 1)


def printed_factor(*, n_sites: int, colluders: int) -> Fraction | None:
    """Return f as printed in Imtiaz et al., Theorem 1, eq. (1); too small for S >= 3.

    None for a division by zero, S (1 + S) = 3 S_C^2.
    """
    honest = honest_sites(n_sites, colluders)
    bottom = n_sites * (1 + n_sites) - 3 * colluders**2
    if bottom == 0:
        return None
    # Two errors in print: the inverse of the covariance of the honest outputs has 2/S_H in place of
    # 1/(1 + S_C), and the colluders' seeds count as unknown noise although the viewer knows them.
    bracket = Fraction(honest + 2, honest) + Fraction(9 * colluders**2, honest * bottom)
    return Fraction(n_sites, 1 + n_sites) * bracket


def positive(setting: str, got: float) -> float:
    if not (math.isfinite(got) and got > 0.0):
        raise out_of_range(setting, got, "finite, more than 0")
    return got


def honest_sites(n_sites: int, colluders: int) -> int:
    at_least("n_sites", n_sites, 1)
    if at_least("colluders", colluders, 0) >= n_sites:
        do = "at least one site must be honest."
        raise out_of_range("colluders", colluders, f"0 to {n_sites - 1} of {n_sites} sites", do)
    return n_sites - colluders


def at_least(setting: str, got: int, least: int) -> int:
    if type(got) is not int or got < least:
        raise out_of_range(setting, got, f"whole, at least {least}")
    return got
