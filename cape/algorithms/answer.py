"""The answer of a comparison: estimates, errors by their sources, effects in units, tests.

Everything follows from public numbers and released means (`cape.algorithms.facts`).  Numbers in
brackets are sections of docs/group-comparison.md.
"""

import math
from dataclasses import replace
from typing import Literal, Self

import numpy as np

from cape.algorithms.design import Flags, Public
from cape.algorithms.estimators import Array
from cape.algorithms.facts import Facts
from cape.algorithms.least_squares import fitted
from cape.algorithms.population import HEAVY, cut_bias, cut_curve
from cape.algorithms.regression import Regressed, Regression, facts_of
from cape.frozen import dataclass

Fit = Literal["yes", "range", "large", "shape", "partly", "ties", "no d", "lacks"]

# Share of the bias of a cut that the error holds; .. of outcomes known to be heavy
SHAPE, HEAVY_SHAPE = 0.5, 0.8
# [3] What shapes may make of a group: prior sd, noises before it is believed (K = 1, K > 1)
SHAPE_PRIOR, LOSS, NOISES = 0.7, 0.4, (4.0, 2.0)
# .. and how many standard errors of it withhold an answer (K = 1, K > 1)
MISFIT = (0.8, 3.0)
# Relative error of sd by the shape of outcomes and covariates
SD_ERROR = 0.03
# Noises of the end bins before the range is blamed
END_NOISES = 3.0
# Relative sd of mean squares about those of normal outcomes
USUAL_SQUARES = 0.4
# Noises below the mean of all outcomes at which a mean square is too small
CLEARLY = 2.3
# Effects differ between sites by at most this many sd.
MOST_TAU, USUAL_TAU = 1.0, 0.5


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Parts:
    """Covariances (K, q, q) of the answer by source, in squared sd of people or in units."""

    sampling: Array
    privacy: Array
    adjustment: Array
    shape: Array
    sites: Array

    @property
    def total(self) -> Array:
        return np.asarray(self.sampling + self.privacy + self.adjustment + self.shape + self.sites)

    def times(self, factor: float | Array) -> Self:
        return type(self)(**{name: factor * getattr(self, name) for name in _SOURCES})


_SOURCES = ("sampling", "privacy", "adjustment", "shape", "sites")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Measured:
    """What the errors depend on, released or typical; outcomes in scales."""

    D: Array  # (K, q, q) mean w g'
    ww: Array  # (K, q, q) mean w w', of mean diagonal 1
    squares: Array  # (K,) mean square of w v
    noise: float  # std of the noise of T
    leak: Array  # (K,) variance in T of what adjustment leaves
    kept: Array  # (K,) J times the share of people with the outcome
    shape: Array  # (K,) variance of what the cut may make of other shapes


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TermAnswer:
    """Estimates of one term for K outcomes, in their public units; q columns."""

    public: Public
    estimate: Array  # (q, K) delta
    parts: Parts
    df: Array  # (K,) degrees of freedom; infinite if sites and people are many
    relative: Array  # (K,) variance of the relative error of the size of an estimate
    own: Array  # (q, K) the part of the estimate that has it
    sd: Array  # (K,) of people within sites and groups, at equal covariates
    sd_error: Array  # (K,) variance of its relative error
    observed: Array  # (K,) share of people with the outcome, where the site has it
    fits: tuple[Fit, ...]  # (K,)
    J: float  # slope of the cut
    C: float  # radius of the cut, in scales (sqrt K scales)
    tau: float  # sd of effects between sites, in sd
    ends: float  # share of pairs in the end bins

    @property
    def cov(self) -> Array:
        """Covariance (K, q, q) under the null."""
        return self.parts.total


def answers(regression: Regression, state: Regressed) -> tuple[TermAnswer, ...]:
    one = _of_least_squares if regression.noiseless else answer_of
    return tuple(map(one, facts_of(regression, state)))


def variance(public: Public, found: Measured) -> Parts:
    """Return the errors of an estimate D^-1 T / (J observed), by source."""
    inverse = np.linalg.inv(found.D)
    turned = np.swapaxes(inverse, 1, 2)
    scale = (1.0 / found.kept**2)[:, None, None]
    noise = inverse @ turned * scale
    return Parts(
        sampling=inverse
        @ found.ww
        @ turned
        * scale
        * (found.squares / max(public.M, 1))[:, None, None],
        privacy=noise * found.noise**2,
        adjustment=noise * found.leak[:, None, None],
        shape=np.eye(public.q)[None] * found.shape[:, None, None],
        sites=np.zeros_like(noise),
    )


def direction(regression: Regression, state: Regressed) -> Array:
    """Return the unit vector (K,), in public units, of the later less the earlier group."""
    if regression.noiseless:
        # An outcome that lacks an answer, such as a constant, has no weight.
        along = np.nan_to_num(answers(regression, state)[0].estimate[0])
    else:
        (f,) = facts_of(regression, state)
        slope = cut_curve(f.C / math.sqrt(f.K), f.K)[0] * f.pool
        found = np.linalg.pinv(f.D_all) @ f.T[0] / slope
        along = ((found + _group_effects(f)) * f.scale)[0]
    return np.asarray(along / max(float(np.linalg.norm(along)), 1e-300))


# -- what the last looks say ---------------------------------------------------------------------


def _group_effects(f: Facts) -> Array:
    """Return the part (q, K) of delta that the centres of groups took out."""
    if f.L == 1:
        return np.zeros((f.q, f.K))
    return np.asarray(np.linalg.pinv(f.public.H) @ f.group_centres)


def _slope_of_d(f: Facts) -> tuple[Array, float]:
    """Return D (q, q), of public people and of the look, and the variance of its relative error."""
    D, (look, noise) = f.D_all, f.kept_D
    size = float(np.trace(D)) / f.q
    # How wrong public people may be: by their z^2, or by what adjustment took
    inside = f.J * f.pool if f.public.protected else 1.0
    if f.public.protected:
        unsure = (0.8 * f.z_square[1] + 0.05) * size * inside
    else:
        before = float(np.linalg.det(f.people[0].T @ f.people[1] / f.M))
        lost = max(1.0 - float(np.linalg.det(D)) / max(before, 1e-12), 0.0)
        unsure = (0.25 * lost + 0.01) * size
    variance = unsure**2 + noise**2
    step = unsure**2 / variance * (look - D * inside)
    most = 0.5 * float(np.linalg.svd(D * inside, compute_uv=False)[-1])
    found = D * inside + step * min(1.0, most / max(float(np.linalg.norm(step, 2)), 1e-12))
    size = max(abs(float(np.trace(found)) / f.q), 1e-6)
    return found / (f.J if f.public.protected else 1.0), (unsure * noise / size) ** 2 / variance


def _lacking(f: Facts) -> Flags:
    """Return for which outcomes (K,) no site that has them has people of all groups."""
    if f.public.protected:
        return np.asarray(~f.public.has.any(axis=0))
    r, g, site = f.people
    by_site = np.zeros((f.S, f.q, f.q))
    np.add.at(by_site, site, r[:, :, None] * g[:, None, :] / f.M)
    D = np.einsum("sk,sij->kij", f.public.has.astype(np.float64), by_site)
    return np.asarray(np.linalg.svd(D, compute_uv=False)[:, -1] < 1e-6)


def _observed(f: Facts, share: Array) -> tuple[Array, float]:
    """Return the share (K,) of people with each outcome, of `share` whose site has it; noise."""
    missing, noise = f.kept_missing
    missing, noise = missing / share, noise / float(share.mean())
    if f.K == 1:  # both looks at it
        first, its_noise = f.missing
        both = 1 / noise**2 + 1 / its_noise**2
        mean = (float(missing[0]) / noise**2 + first / its_noise**2) / both
        return 1.0 - np.clip([mean], 0.0, 0.95), 1.0 / math.sqrt(both)
    true = max(float(np.var(missing)) - noise**2, 0.0)
    kept = true / (true + noise**2)
    mean = min(max(float(missing.mean()), 0.0), 0.95)
    missing = np.clip(mean + kept * (missing - missing.mean()), 0.0, 0.95)
    return 1.0 - missing, noise * math.sqrt(1 / f.K + kept)


def _by_group(f: Facts, observed: Array) -> Array:
    """Return the factor (K,) on D where people missing differ by group: one public column only."""
    if f.q > 1 or f.public.protected:
        return np.ones(f.K)
    (tilt, noise), (r, g, _) = f.tilt, f.people
    size, mean = max(abs(float(r[:, 0] @ g[:, 0])) / f.M, 1e-6), float(observed.mean())
    differ = float(tilt[0]) / size
    if abs(differ) < 2 * noise / size:
        return np.ones(f.K)
    differ = min(max(differ, -2.2 * (1 - mean)), 2.2 * (1 - mean))
    first = float(np.mean(r[:, 0] > 0))
    each = (mean + (1 - first) * differ) * (mean - first * differ) / mean**2
    return np.full(f.K, min(max(each, 0.3), 1.05))


def _at_odds(f: Facts, observed: Array) -> Array:
    """Return the factor (K,) on D where groups lack values at odds at sites: less lies within."""
    square, within = f.odds / observed**2, max(float((f.people[0] ** 2).sum()) / f.M, 1e-9)
    return np.asarray(1 - np.minimum(observed / 0.8, 1.0) * np.minimum(square / within, 0.5))


def _squares(f: Facts, share: Array, observed: Array) -> tuple[Array, Array, Flags]:
    """Return mean squares (K,) of w v, shrunk to their mean, and which are too small to know."""
    # With the variance (K,) of their relative error.  Their mean is shrunk to that of normal
    # outcomes of the scale found, which is better known where squares are hardly more than noise.
    each, noise = f.seen("squares")
    each, noise = each * f.M / f.n_pairs, noise * f.M / f.n_pairs / float(share.mean())
    each = (each + (f.squares_radius / 2 if f.K == 1 else 0.0)) / share
    there = float(observed.mean()) * f.square
    usual = there * cut_curve(f.C / math.sqrt(f.K), f.K)[1]
    prior, known = (USUAL_SQUARES * usual) ** 2, noise**2 / f.K
    believed = prior / (prior + known)
    mean = float(each.mean())
    # Nobody has a weight in a half without both groups.
    pooled = max(usual + believed * (mean - usual), 0.2 * there, 1e-9)
    true = max(float(np.var(each)) - noise**2, 0.0)
    low = min(0.3, 0.05 + 2 * noise / pooled) * pooled
    kept = true / (true + noise**2)
    squares = np.maximum(pooled + kept * (each - mean), low)
    # Pairs of people vary too; that of a mean of squares of normal numbers is 2.
    error = noise**2 * (believed / f.K + kept) / squares**2 + 2.5 / (f.n_pairs * share)
    return squares / observed * share, error, (each < low) & (pooled - each > CLEARLY * noise)


def answer_of(f: Facts) -> TermAnswer:
    public, K, q = f.public, f.K, f.q
    (T, noise), J = f.T, f.J
    share, lacking = public.people @ public.has / f.M, _lacking(f)
    share = np.where(lacking, 1.0, share)
    D, relative_D = _slope_of_d(f)
    D_k, ww = f.expected
    D_k = D_k @ np.linalg.pinv(f.D_all) @ D
    D_k[lacking] = ww[lacking] = np.eye(q)  # not shown
    square = np.trace(ww, axis1=1, axis2=2) / q
    observed, its_noise = _observed(f, share)
    there = (observed / f.pool if public.protected else observed) * _by_group(f, observed)
    there = there * _at_odds(f, observed)
    squares, squares_error, small = _squares(f, share, observed)
    sd = np.sqrt(squares / (square * observed * J**1.7))
    _, B_error, leak, R2 = f.effects
    found = Measured(
        D=D_k / f.z_scale,
        ww=ww / square[:, None, None],
        squares=squares,
        noise=noise,
        leak=leak * (sd * observed) ** 2 + f.left,
        kept=there * J,
        shape=(_shape(f) * sd) ** 2,
    )
    parts = variance(public, found)
    inverse = np.linalg.inv(found.D)
    own = np.einsum("kij,jk->ik", inverse, T) / found.kept
    loss, unsure, faded = _loss(f, inverse / there[:, None, None], own, sd)
    flag = (1.0 if K == 1 else faded) / np.maximum(faded, 0.05)
    rest = math.sqrt(0.2) * loss
    shape = np.einsum("ik,jk->kij", rest, rest) + np.einsum("ik,ij->kij", unsure, np.eye(q))
    own = own - loss
    parts = replace(parts, shape=parts.shape + shape)
    se = np.sqrt(np.einsum("kii->ik", parts.total))
    misfit = float(np.max(flag * np.sqrt(np.mean((loss / se) ** 2, axis=0))))
    estimate, tau, df = own + _group_effects(f), 0.0, np.full(K, math.inf)
    if public.random:
        tau, sites, df = _between(f, D, found, parts, sd)
        parts = replace(parts, sites=np.eye(q)[None] * sites[:, None, None])
    # At equal covariates: without what their effects explain, or what errors of effects add
    people = sd * math.sqrt(1.0 - R2) if R2 else np.sqrt(np.maximum(sd**2 - B_error, sd**2 / 2))
    sd_error = squares_error / 4 + (0.85 * f.kept_noise / J) ** 2 + SD_ERROR**2
    relative = (f.kept_noise / J) ** 2 + 0.02**2 + relative_D + (its_noise / observed) ** 2
    fit = _fit(f, misfit, relative_D)
    fits = tuple(
        "lacks" if lacks else "no d" if fit == "yes" and unknown else fit
        for lacks, unknown in zip(lacking.tolist(), small.tolist(), strict=True)
    )
    return TermAnswer(
        public=public,
        estimate=estimate * f.scale,
        parts=parts.times((f.scale**2)[:, None, None]),
        df=df,
        relative=relative,
        own=own * f.scale,
        sd=people * f.scale,
        sd_error=sd_error,
        observed=observed,
        fits=fits,
        J=J,
        C=f.C / math.sqrt(K),
        tau=tau,
        ends=f.ends,
    )


def _shape(f: Facts) -> float:
    """Return what the cut may have made of groups of other shape, in sd."""
    c = f.C / math.sqrt(f.K)
    heavy = HEAVY_SHAPE * cut_bias(c, f.K, f.tail) if f.tail > HEAVY else 0.0
    return math.hypot(SHAPE * cut_bias(c, f.K), heavy)


def _loss(f: Facts, inverse: Array, own: Array, sd: Array) -> tuple[Array, Array, Array]:
    """Return what groups of other shape lost to the cut (q, K), its variance, and its fading."""
    # [3] The prior is normal: what skewness and spreads by group suggest, with more variance where
    # shares cut differ by group.  Fading (K,): the loss of a large difference cannot be told from
    # it.
    (T, _), along, D = f.T, f.direction, np.linalg.inv(inverse.mean(axis=0))
    size, (lost, noise), (uneven, its_noise) = LOSS * f.C, f.kept_ramp(0), f.kept_ramp(1)
    model, variance = f.unlike(f.C / math.sqrt(f.K))
    model, variance = -model / f.J, variance / f.J**2
    found = (1 - f.J) / f.J * (T @ along) - size * lost - D @ model @ along
    believed = max(float((uneven**2).sum()) - NOISES[f.K > 1] * f.q * its_noise**2, 0.0) / f.q
    of_model = float(np.linalg.norm(D, 2)) ** 2 * float(variance.mean(axis=0) @ along**2)
    prior = (SHAPE_PRIOR * size) ** 2 * believed + of_model
    known = (size * noise) ** 2
    kept = prior / (prior + known)
    loss = model + np.einsum("kij,j->ik", inverse, kept * found) * along
    fade = np.maximum(1 - np.abs(own) / (2 * sd), 0.0).mean(axis=0)
    change = (kept * known - of_model) * along**2 * np.einsum("kij,kij->ik", inverse, inverse)
    return fade * loss, np.maximum(variance + change, 0.0) * fade**2, fade


def _between(
    f: Facts, D: Array, found: Measured, parts: Parts, sd: Array
) -> tuple[float, Array, Array]:
    """Return tau in sd, the variance (K,) it adds, and degrees of freedom (K,) of few sites."""
    # tau is one for all outcomes; its posterior comes from T by site, about their own mean.
    public, K, q = f.public, f.K, f.q
    mean, noise = f.seen("by_site")
    there = public.people > 0
    r, g, site = f.people
    share = public.people / f.M if public.protected else (
        np.bincount(site, (r * g).sum(axis=1), minlength=f.S) / f.M)  # fmt: skip
    share = np.maximum(share / max(float(share.sum()), 1e-9), 1e-6)[there, None, None]
    n_s = public.people[there, None, None]
    inverse = np.linalg.pinv(D) * f.z_scale
    y = inverse @ mean.reshape(f.S, q, K)[there] / found.kept / share
    each = [np.einsum("kii->ik", one).mean(axis=1)[None, :, None] for one in (
        np.linalg.inv(found.D) @ found.ww @ np.swapaxes(np.linalg.inv(found.D), 1, 2),
        np.linalg.inv(found.D) @ np.swapaxes(np.linalg.inv(found.D), 1, 2))]  # fmt: skip
    known = each[0] * found.squares * n_s / f.M**2 + each[1] * noise**2
    known = known / (share * found.kept) ** 2
    # In sd of people; of a protected column of numbers for one sd of it
    unit = sd * f.z_scale / math.sqrt(f.z_square[0]) if public.protected else sd
    tau = np.linspace(0, MOST_TAU, 51)
    precision = 1 / (tau[:, None, None, None] ** 2 * unit**2 + known)
    total = precision.sum(axis=1, keepdims=True)
    rest = y - (precision * y).sum(axis=1, keepdims=True) / total
    log = 0.5 * (np.log(precision) - rest**2 * precision).sum(axis=(1, 2, 3))
    log = log - 0.5 * np.log(total).sum(axis=(1, 2, 3)) - np.maximum(tau - USUAL_TAU, 0.0) / 0.15
    chance = np.exp(log - log.max())
    square = float(chance @ tau**2 / chance.sum())
    added = square * unit**2 * float((share**2).sum())
    both = np.einsum("kii->ik", parts.total).mean(axis=0) + added
    least = float(there.sum()) - 1.0
    df = np.maximum(least * (both / np.maximum(added, 1e-12)) ** 2, max(least, 1.0))
    return math.sqrt(square), added, df


def _fit(f: Facts, misfit: float, relative_D: float) -> Fit:
    if f.thin or (f.public.protected and relative_D > 1.0):
        return "range"
    if f.partly or (f.public.protected and f.z_left < 0.3):
        return "partly"
    if misfit > MISFIT[f.K > 1]:
        return "shape"
    if f.tied:
        return "ties"
    if f.ends > max(0.3, END_NOISES * f.ends_noise) and f.J < 0.9:
        return "range"
    return "large" if f.J < 0.5 else "yes"


def _of_least_squares(f: Facts) -> TermAnswer:
    K, q, random = f.K, f.q, f.public.random
    found = list(fitted(f))
    cov, nothing = np.array([one.cov for one in found]), np.zeros((K, q, q))
    added = np.array([one.added for one in found]) * random
    total = np.trace(cov, axis1=1, axis2=2) / q + added
    df = np.array([one.df for one in found])
    sites = np.array([max(one.sites - 1.0, 1.0) for one in found])
    with np.errstate(divide="ignore", invalid="ignore"):  # Satterthwaite
        df = np.where(added > 0, np.minimum(df, sites * (total / added) ** 2), df)
    sd = np.array([one.sd for one in found])
    there = f.public.people @ f.public.has
    return TermAnswer(
        public=f.public,
        estimate=np.array([one.delta for one in found]).T,
        parts=Parts(
            sampling=cov,
            privacy=nothing,
            adjustment=nothing,
            shape=nothing,
            sites=np.eye(q)[None] * added[:, None, None],
        ),
        df=df,
        relative=np.zeros(K),
        own=np.zeros((q, K)),
        sd=sd,
        sd_error=0.5 / df,
        observed=np.array([one.people for one in found]) / np.maximum(there, 1),
        fits=tuple("lacks" if math.isnan(one) else "yes" for one in sd.tolist()),
        J=1.0,
        C=math.inf,
        tau=float(np.nanmean([one.tau / one.sd for one in found])) if random else 0.0,
        ends=0.0,
    )
