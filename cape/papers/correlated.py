"""The papers' correlated noise (CAPE) in closed form: what it costs, and what a viewer learns.

Imtiaz et al., Algorithms 1 and 2, symmetric setting.  Site s draws a seed of variance kappa^2;
the sum T of all seeds is broadcast; e_s is the seed minus T/S, so that sum e_s = 0; the site sends
f_s + e_s + g_s with local noise g_s of variance tau_g^2.  r = kappa^2 / tau_g^2 is the seed ratio:
S in the paper, 0 without zero-sum noise, infinite for the secure sum modulo 2^64.

All factors f are mu^2 in units of an outsider's, who sees the sum only: mu^2 = f Delta^2 /
(S tau_g^2), which with the paper's tau_g^2 = tau_s^2 / S is mu^2 = f (Delta / tau_s)^2.  The
asymmetric scheme is in docs/checks/asymmetric_scheme.py: the computations run the symmetric one on
sums over subjects, which is the asymmetric one with w_s = N_s / N.  Pure functions; no noise is
drawn here.
"""

from __future__ import annotations

import math
from fractions import Fraction

from cape.errors import ConfigError

SeedRatio = int | float | Fraction


def paper_colluders(n_sites: int) -> int:
    """Return ceil(S/3) - 1, the colluding sites that the papers assume; 0 for S <= 3."""
    return -(-at_least("n_sites", n_sites, 1) // 3) - 1


def view_factor(*, n_sites: int, colluders: int, ratio: SeedRatio) -> Fraction:
    """Return f of the aggregator with S_C sites: S/S_H (r + S_H)/(r + 1), S_H = S - S_C; exact.

    With r = S it is S (2 S - S_C) / ((1 + S)(S - S_C)); it replaces the bracket of Imtiaz et al.,
    eq. (1).  r is zero or more, ``math.inf`` the secure sum: S/S_H, colluders subtract their
    shares.  S_C is at most S - 1.
    """
    honest = honest_sites(n_sites, colluders)
    if math.isnan(ratio) or ratio < 0:
        raise refused("ratio", ratio, "0 or more, inf for the secure sum")
    if math.isinf(ratio):
        return Fraction(n_sites, honest)
    r = Fraction(ratio)
    # They know T, so of an honest site they hold f_s + ehat_s + g_s, and the sum of the honest
    # seeds.  Given that sum the covariance of these S_H numbers is (kappa^2 + tau_g^2) I -
    # (kappa^2 / S_H) 1 1'; its inverse has the diagonal (r + S_H) / ((r + 1) S_H tau_g^2).
    return Fraction(n_sites, honest) * (r + honest) / (r + 1)


def printed_factor(*, n_sites: int, colluders: int) -> Fraction | None:
    """Return f as printed in Imtiaz et al., Theorem 1, eq. (1); it is too small from S = 3 on.

    None where it divides by zero, S (1 + S) = 3 S_C^2.
    """
    honest = honest_sites(n_sites, colluders)
    bottom = n_sites * (1 + n_sites) - 3 * colluders**2
    if bottom == 0:
        return None
    # Two slips: the inverse of the covariance of the honest outputs has 2/S_H where 1/(1 + S_C) is
    # right, and the colluders' seeds count as unknown noise although T and these seeds are known.
    bracket = Fraction(honest + 2, honest) + Fraction(9 * colluders**2, honest * bottom)
    return Fraction(n_sites, 1 + n_sites) * bracket


def positive(setting: str, got: float) -> float:
    if not (math.isfinite(got) and got > 0.0):
        raise refused(setting, got, "finite, more than 0")
    return got


def honest_sites(n_sites: int, colluders: int) -> int:
    at_least("n_sites", n_sites, 1)
    if at_least("colluders", colluders, 0) >= n_sites:
        do = "without an honest site there is nobody left to protect."
        raise refused("colluders", colluders, f"0 to {n_sites - 1} of {n_sites} sites", do)
    return n_sites - colluders


def at_least(setting: str, got: int, least: int) -> int:
    if type(got) is not int or got < least:
        raise refused(setting, got, f"whole, at least {least}")
    return got


def refused(setting: str, got: object, allowed: str, do: str = "correct it.") -> ConfigError:
    return ConfigError("E011", setting=setting, got=got, allowed=allowed, do=do)
