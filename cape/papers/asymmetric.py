"""CAPE with unequal weights and unequal noise at the sites: feasible or not, and what is learned.

Imtiaz et al., Section III-C, corrected.  Weights w_s add up to 1; seeds have variance q_s; what is
broadcast is T_w = sum w_i ehat_i; e_s = ehat_s - T_w / (w_s S), so that sum w_s e_s = 0; the local
noise has variance l_s = tau_pool^2 / (w_s^2 S), so that sum w_s^2 l_s = tau_pool^2.  A site asks
for noise of variance tau_s^2 in all, Var e_s + l_s = tau_s^2, which fixes q_s.

A calculator only.  The computations of this package run the symmetric scheme on sums over
subjects, which is the asymmetric one with w_s = N_s / N and is feasible for all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from fractions import Fraction

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.papers.correlated import positive

_SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Feasibility:
    """Whether the linear system of the scheme has a solution that is a set of variances."""

    requests: tuple[float, ...]  # w_s^2 tau_s^2 of every site
    # Q / (S (S - 1)) + tau_pool^2 (S - 2) / (S (S - 1)) with Q = sum w_s^2 tau_s^2: every q_s is
    # zero or more exactly if no request is below it
    needed: float
    infeasible: tuple[int, ...]  # sites below, from 0; empty if the scheme is feasible
    reason: str  # for people; empty if the scheme is feasible

    @property
    def feasible(self) -> bool:
        return not self.infeasible


@dataclass(frozen=True, kw_only=True, slots=True)
class Scheme:
    """A feasible scheme: w_s, q_s and l_s of every site."""

    weights: tuple[float, ...]
    seed_variances: tuple[float, ...]
    local_variances: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstView:
    """The subject's site that loses most, mu^2, and the colluders who take it; sites from 0."""

    mu2: float
    victim: int
    colluders: tuple[int, ...]


def feasibility(
    *, weights: Sequence[float], site_stds: Sequence[float], pooled_std: float
) -> Feasibility:
    """Tell in closed form whether every site can have the noise it asks for.

    Weights w_s > 0, three or more, sum 1; tau_s > 0; tau_pool > 0, noise std of the weighted
    average.  ConfigError for other arguments; with two sites the system is singular.
    """
    # In exact fractions of the given floats: with equal sites every request lies on the border.
    x, pool = _requests(weights, site_stds, pooled_std)
    needed = _needed(x, pool)
    low = tuple(s for s, x_s in enumerate(x) if x_s < needed)
    return Feasibility(
        requests=tuple(float(x_s) for x_s in x),
        needed=float(needed),
        infeasible=low,
        reason=_reason(low, weights, site_stds, x, pool) if low else "",
    )


def solve(*, weights: Sequence[float], site_stds: Sequence[float], pooled_std: float) -> Scheme:
    """Return the variances of the scheme; arguments as in `feasibility`.

    ConfigError if a q_s would be negative, with the sites and what they would have to ask for.
    """
    verdict = feasibility(weights=weights, site_stds=site_stds, pooled_std=pooled_std)
    if not verdict.feasible:
        do = "weight sites by their subjects (then it always holds), or let them ask for more."
        raise ConfigError("E012", problem=verdict.reason, do=do)
    x, pool = _requests(weights, site_stds, pooled_std)
    n = len(x)
    # The printed linear system, solved: with r_s = w_s^2 tau_s^2 - tau_pool^2 / S and R = sum r_s
    # it is q_s = S / (S - 2) (r_s - R / (S (S - 1))) / w_s^2.  (The last entry of the printed
    # right-hand side lacks w_S^2.)
    r = [x_s - pool / n for x_s in x]
    share = sum(r) / (n * (n - 1))
    squares = [Fraction(weight) ** 2 for weight in weights]
    seeds = [Fraction(n, n - 2) * (r_s - share) / w2 for r_s, w2 in zip(r, squares, strict=True)]
    return Scheme(
        weights=tuple(weights),
        seed_variances=tuple(float(q) for q in seeds),
        local_variances=tuple(float(pool / (n * w2)) for w2 in squares),
    )


def victim_mu2(
    scheme: Scheme, *, victim: int, colluders: Collection[int], sensitivity: float
) -> float:
    """Return mu^2 of a subject at one site against the aggregator with these sites.

    mu_v^2 = Delta_v^2 [1/A_v + (w_v q_v / A_v)^2 / sum_H w_s^2 q_s l_s / A_s], A_s = q_s + l_s,
    H the honest sites, the victim's included; sites count from 0, Delta_v > 0 is the sensitivity
    of the victim's output.  ConfigError for other sites, or a victim that colludes.
    """
    n = len(scheme.weights)
    if not {victim, *colluders} <= set(range(n)) or victim in colluders:
        raise ConfigError(
            "E011",
            setting="colluders",
            got=tuple(colluders),
            allowed=f"sites 0 to {n - 1} other than the victim, {victim}",
            do="name sites of the scheme.",
        )
    # They know T_w and their own seeds; so of an honest site they hold f_s + ehat_s + g_s, and
    # sum_H w_s ehat_s.  The bracket is the victim's entry of the inverse covariance of these.
    bottom = math.fsum(_hidden(scheme, s) for s in range(n) if s not in colluders)
    w, q = scheme.weights[victim], scheme.seed_variances[victim]
    total = q + scheme.local_variances[victim]
    extra = 0.0 if q == 0.0 else (w * q / total) ** 2 / bottom
    return positive("sensitivity", sensitivity) ** 2 * (1.0 / total + extra)


def worst_view(scheme: Scheme, *, colluders: int, sensitivities: Sequence[float]) -> WorstView:
    """Return the largest mu^2 over all victims and all sets of S_C colluders.

    ConfigError if S_C or the number of sensitivities Delta_s does not fit the scheme.
    """
    n = len(scheme.weights)
    if not 0 <= colluders < n:
        raise ConfigError(
            "E011", setting="colluders", got=colluders, allowed=f"0 to {n - 1}", do="correct it."
        )
    _same_length("sensitivities", sensitivities, n)
    # Colluders matter through the sum over the honest sites only, so the worst ones are those with
    # the largest terms w_s^2 q_s l_s / A_s: no search over sets is needed.
    order = sorted(range(n), key=lambda s: _hidden(scheme, s), reverse=True)
    worst: list[WorstView] = []
    for victim in range(n):
        chosen = tuple(sorted([s for s in order if s != victim][:colluders]))
        mu2 = victim_mu2(scheme, victim=victim, colluders=chosen, sensitivity=sensitivities[victim])
        worst.append(WorstView(mu2=mu2, victim=victim, colluders=chosen))
    return max(worst, key=lambda view: view.mu2)


def _hidden(scheme: Scheme, site: int) -> float:
    """Return w^2 q l / (q + l): what a site adds to the seeds' unknown part."""
    q, local = scheme.seed_variances[site], scheme.local_variances[site]
    return scheme.weights[site] ** 2 * q * local / (q + local)


def _requests(
    weights: Sequence[float], site_stds: Sequence[float], pooled_std: float
) -> tuple[list[Fraction], Fraction]:
    """Return w_s^2 tau_s^2 and tau_pool^2, exact, after checking the arguments."""
    n = len(weights)
    if n < 3:
        do = "with two the system is singular; send sums over subjects instead."
        raise ConfigError("E011", setting="number of sites", got=n, allowed="3 or more", do=do)
    _same_length("site_stds", site_stds, n)
    w = [Fraction(positive("weights", weight)) for weight in weights]
    if abs(math.fsum(weights) - 1.0) > _SUM_TOLERANCE:
        raise ConfigError(
            "E011",
            setting="sum of weights",
            got=math.fsum(weights),
            allowed="1",
            do="divide the weights by their sum.",
        )
    stds = [Fraction(positive("site_stds", std)) for std in site_stds]
    pool = Fraction(positive("pooled_std", pooled_std)) ** 2
    return [(a * b) ** 2 for a, b in zip(w, stds, strict=True)], pool


def _needed(x: Sequence[Fraction], pool: Fraction) -> Fraction:
    n = len(x)
    return (sum(x) + pool * (n - 2)) / (n * (n - 1))


def _reason(
    low: Sequence[int],
    weights: Sequence[float],
    site_stds: Sequence[float],
    x: Sequence[Fraction],
    pool: Fraction,
) -> str:
    """Say which sites ask for too little noise, and for how much each would have to ask."""
    n, parts = len(x), []
    for s in low:
        rest = sum(x) - x[s]
        # A request that is raised raises the bound with it: this one meets its own.
        least = (rest + pool * (n - 2)) / (n * (n - 1) - 1)
        std = math.sqrt(least) / weights[s]
        parts.append(f"site {s} asks for noise std {site_stds[s]:.4g}, at least {std:.4g} fits")
    return "a seed variance would be negative: " + "; ".join(parts)


def _same_length(setting: str, got: Sequence[float], n: int) -> None:
    if len(got) != n:
        raise ConfigError(
            "E011", setting=setting, got=f"{len(got)} values", allowed=str(n), do="one per site."
        )
