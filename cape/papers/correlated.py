"""The papers' correlated noise (CAPE) in closed form: what it costs, and what a viewer learns.

Imtiaz et al., Algorithms 1 and 2, symmetric setting.  Site s draws a seed of variance kappa^2;
the sum T of all seeds is broadcast; e_s is the seed minus T/S, so that sum e_s = 0; the site sends
f_s + e_s + g_s with local noise g_s of variance tau_g^2.  r = kappa^2 / tau_g^2 is the seed ratio:
S in the paper, 0 without zero-sum noise, infinite for the secure sum modulo 2^64.

All factors f are mu^2 in units of an outsider's, who sees the sum only: mu^2 = f Delta^2 /
(S tau_g^2), which with the paper's tau_g^2 = tau_s^2 / S is mu^2 = f (Delta / tau_s)^2.  The
asymmetric scheme is in `cape.papers.asymmetric`.  Pure functions; no noise is drawn here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from cape.errors import ConfigError
from cape.frozen import dataclass

Ratio = int | float | Fraction


def paper_colluders(n_sites: int) -> int:
    """Return ceil(S/3) - 1, the colluding sites that the papers assume; 0 for S <= 3."""
    return -(-_at_least("n_sites", n_sites, 1) // 3) - 1


def view_factor(*, n_sites: int, colluders: int, ratio: Ratio) -> Fraction:
    """Return f of the aggregator with S_C sites: S/S_H (r + S_H)/(r + 1), S_H = S - S_C.

    They know T, so of an honest site they hold f_s + ehat_s + g_s, and the sum of the honest
    seeds.  Given that sum the covariance of these S_H numbers is (kappa^2 + tau_g^2) I -
    (kappa^2 / S_H) 1 1'; its inverse has the diagonal (r + S_H) / ((r + 1) S_H tau_g^2).

    Parameters
    ----------
    n_sites, colluders : int
        S and S_C, at most S - 1.
    ratio : int, float or Fraction
        r, zero or more; ``math.inf`` is the secure sum.

    Returns
    -------
    Fraction
        Exact.  With r = S it is S (2 S - S_C) / ((1 + S)(S - S_C)); it replaces the bracket of
        Imtiaz et al., eq. (1).

    Raises
    ------
    ConfigError
        If an argument is out of range.
    """
    honest = _honest(n_sites, colluders)
    r = _ratio(ratio)
    if r is None:
        return Fraction(n_sites, honest)
    return Fraction(n_sites, honest) * (r + honest) / (r + 1)


def secure_sum_factor(*, n_sites: int, colluders: int) -> Fraction:
    """Return S/S_H, the limit of `view_factor` for large r: colluders subtract their shares."""
    return view_factor(n_sites=n_sites, colluders=colluders, ratio=math.inf)


def one_site_factor(n_sites: int) -> Fraction:
    """Return S/(S - 1): a curious site sees the sum and knows its own noise, for any r."""
    return Fraction(_at_least("n_sites", n_sites, 2), n_sites - 1)


def printed_factor(*, n_sites: int, colluders: int) -> Fraction:
    """Return f as printed in Imtiaz et al., Theorem 1, eq. (1), for comparison only.

    Two slips: the inverse of the covariance of the honest outputs has 2/S_H where 1/(1 + S_C) is
    right, and the colluders' seeds count as unknown noise although T and these seeds are known.
    Too small for the printed number of colluders from three sites on.

    Raises
    ------
    ConfigError
        Also where the printed denominator S (1 + S) - 3 S_C^2 is zero.
    """
    honest = _honest(n_sites, colluders)
    bottom = n_sites * (1 + n_sites) - 3 * colluders**2
    if bottom == 0:
        raise ConfigError(
            "E011",
            setting="colluders",
            got=colluders,
            allowed=f"others: eq. (1) divides by zero at {n_sites} sites, {colluders} colluders",
            do="it says nothing there; use the corrected factor.",
        )
    bracket = Fraction(honest + 2, honest) + Fraction(9 * colluders**2, honest * bottom)
    return Fraction(n_sites, 1 + n_sites) * bracket


def printed_view_factor(*, n_sites: int, colluders: int) -> Fraction:
    """Return f for what the proof of Theorem 1 says is seen, with the algebra done right.

    The honest outputs and the sum of the honest seeds, but not T itself; r = S.  Still less than
    what is really seen.
    """
    s, c, honest = n_sites, colluders, _honest(n_sites, colluders)
    first = Fraction(s * (c + 2), (1 + s) * (c + 1))
    return first + Fraction(s * c**2, (1 + c) * honest * (s + c * honest))


def nonsymmetric_factor(*, n_sites: int, colluders: int, ratio: Ratio) -> Fraction:
    """Return f off the diagonal where E_s is not symmetric but G_s is (Alg. 3 as printed).

    Entries ij and ji carry the same data and the same local noise but independent seeds; their
    mean halves kappa^2, hence r.  One svec vector for both kinds of noise avoids it.
    """
    r = _ratio(ratio)
    half: Ratio = math.inf if r is None else r / 2
    return view_factor(n_sites=n_sites, colluders=colluders, ratio=half)


def seen_mu(
    *, sensitivity: float, local_std: float, n_sites: int, colluders: int, ratio: Ratio
) -> float:
    """Return mu of one release against the aggregator with S_C sites.

    Parameters
    ----------
    sensitivity : float
        Delta of the sum, more than 0.
    local_std : float
        tau_g, more than 0, in the units of `sensitivity`.
    n_sites, colluders, ratio
        As in `view_factor`.
    """
    scale = positive("sensitivity", sensitivity) / positive("local_std", local_std)
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return scale * math.sqrt(f / n_sites)


def local_noise_std(
    *, mu: float, sensitivity: float, n_sites: int, colluders: int, ratio: Ratio
) -> float:
    """Return tau_g for which one release has this mu: the inverse of `seen_mu`.

    tau_g^2 = Delta^2 / (S_H mu^2) (r + S_H) / (r + 1).
    """
    scale = positive("sensitivity", sensitivity) / positive("mu", mu)
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return scale * math.sqrt(f / n_sites)


def share_variance(*, mu: float, delta_int: int, n_sites: int, colluders: int, ratio: Ratio) -> int:
    """Return the least integer variance s2 of a site's local noise that keeps mu, exactly.

    Parameters
    ----------
    mu : float
        Allowed mu, taken as the rational number it is.
    delta_int : int
        Sensitivity of the integer sum.
    n_sites, colluders, ratio
        As in `view_factor`.
    """
    allowed = Fraction(positive("mu", mu)) ** 2
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return math.ceil(_at_least("delta_int", delta_int, 1) ** 2 * f / (n_sites * allowed))


def imbalance(sizes: Sequence[int]) -> Fraction:
    """Return H(n) = N^2/S^3 sum 1/N_s^2: noise variance of CAPE over that of pooled data.

    Imtiaz et al., Remark 3: site means averaged with weight 1/S, each with noise for its own N_s.
    1 for equal sizes only; weighted sums over subjects have 1 for all sizes.
    """
    total = sum(_at_least("sizes", size, 1) for size in sizes)
    n_sites = _at_least("number of sites", len(sizes), 1)
    return Fraction(total**2, n_sites**3) * sum(Fraction(1, size**2) for size in sizes)


def imbalance_bounds(*, n_samples: int, n_sites: int) -> tuple[Fraction, Fraction]:
    """Return the bounds of H(n) for N samples at S sites (Remark 3): equal sizes, and one huge."""
    _at_least("n_sites", n_sites, 1)
    _at_least("n_samples", n_samples, n_sites)
    largest = n_samples - n_sites + 1
    bracket = Fraction(1, largest**2) + n_sites - 1
    return Fraction(1), Fraction(n_samples**2, n_sites**3) * bracket


def noise_ratio(sizes: Sequence[int], sensitivity: Callable[[int], float]) -> float:
    """Return H(n) of Proposition 2, sum Delta(N_s)^2 / (S^3 Delta(N)^2), for any sensitivity.

    Parameters
    ----------
    sizes : sequence of int
        N_s.
    sensitivity : callable
        Delta(n), more than 0, for n samples.
    """
    for size in sizes:
        _at_least("sizes", size, 1)
    n_sites = _at_least("number of sites", len(sizes), 1)
    pooled = positive("sensitivity", sensitivity(sum(sizes)))
    return math.fsum((sensitivity(size) / pooled) ** 2 for size in sizes) / n_sites**3


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimateVariances:
    """Noise variance of the average of S site outputs.

    Attributes
    ----------
    conventional : float
        Every site adds all of its noise: sum tau_s^2 / S^2.
    cape : float
        Local noise of variance tau_s^2 / S and zero-sum noise: sum tau_s^2 / S^3.
    gain : float
        conventional / cape = S (Imtiaz et al., Proposition 1).
    """

    conventional: float
    cape: float
    gain: float


def estimate_variances(site_stds: Sequence[float]) -> EstimateVariances:
    """Return the noise of the average from the noise std tau_s that each site asks for."""
    n_sites = _at_least("number of sites", len(site_stds), 1)
    total = math.fsum(positive("site_stds", std) ** 2 for std in site_stds)
    conventional, cape = total / n_sites**2, total / n_sites**3
    return EstimateVariances(conventional=conventional, cape=cape, gain=conventional / cape)


def dropout_factor(*, n_sites: int, dropped: int, ratio: Ratio) -> Fraction:
    """Return by what the noise variance of the sum grows if sites go after Algorithm 1.

    1 + n_drop r / S, against Remark 4: e_s of the survivors no longer cancel, they keep the
    variance n_drop (S - n_drop) / S kappa^2.  Only drop-outs before e_s is formed are harmless.

    Raises
    ------
    ConfigError
        Also for an infinite ratio with a drop: nothing is readable then.
    """
    _at_least("n_sites", n_sites, 1)
    if _at_least("dropped", dropped, 0) >= n_sites:
        raise _refused("dropped", dropped, f"0 to {n_sites - 1}", "somebody has to be left.")
    r = _ratio(ratio)
    if r is None:
        if dropped:
            raise _refused("ratio", "inf", "a finite number where sites drop out", "lower it.")
        return Fraction(1)
    return 1 + dropped * r / n_sites


def positive(setting: str, got: float) -> float:
    """Return `got`; ConfigError unless it is finite and more than 0."""
    if not (math.isfinite(got) and got > 0.0):
        raise _refused(setting, got, "finite, more than 0", "correct it.")
    return got


def _honest(n_sites: int, colluders: int) -> int:
    """Return S_H = S - S_C after checking both."""
    _at_least("n_sites", n_sites, 1)
    if _at_least("colluders", colluders, 0) >= n_sites:
        do = "without an honest site there is nobody left to protect."
        raise _refused("colluders", colluders, f"0 to {n_sites - 1} of {n_sites} sites", do)
    return n_sites - colluders


def _ratio(ratio: Ratio) -> Fraction | None:
    """Return r exactly; None for infinity."""
    if math.isnan(ratio) or ratio < 0:
        raise _refused("ratio", ratio, "0 or more, inf for the secure sum", "correct it.")
    return None if math.isinf(ratio) else Fraction(ratio)


def _at_least(setting: str, got: int, least: int) -> int:
    if type(got) is not int or got < least:
        raise _refused(setting, got, f"whole, at least {least}", "correct it.")
    return got


def _refused(setting: str, got: object, allowed: str, do: str) -> ConfigError:
    return ConfigError("E011", setting=setting, got=got, allowed=allowed, do=do)
