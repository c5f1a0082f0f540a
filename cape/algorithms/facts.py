"""What the released means of one term say: scale, middles, Gamma, effects, radius, D.

Every fact is a function of public numbers and released values alone, so parties that hold the same
values hold the same facts.  It is computed when it is first needed, and may be asked once the looks
behind it were released.  After `scale` is known, outcomes are in scales; covariates are in public
units until they are whitened.  Numbers in brackets are sections of docs/group-comparison.md, which
has all formulas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cape.algorithms.design import Counts, Public
from cape.algorithms.estimators import Array
from cape.algorithms.linalg import smat
from cape.algorithms.looks import (
    FEW,
    PAIR,
    RAMPS,
    RHO,
    RHO_PROTECTED,
    RHO_TILT,
    SMALL,
    Plan,
    Stage,
    Y,
    look_noise,
    moved,
    sites_radius,
    xsites_radius,
)
from cape.algorithms.population import (
    BINS,
    W,
    ball,
    careful_octave,
    octave,
    posterior,
    protected_levels,
    protected_people,
    public_people,
    radius,
    site_means,
    solve,
    synthetic,
    uncentred,
    unclipped,
    weight,
    z_cut,
)

# [2] Weight of the term in the look at second moments
GAMMA = 3.0
# Effect of a common octave: x is multiplied by 2^-(octave + .4), never by less than 1.
XF, WIDE_X = 0.4, 1.5
# What covariates explain, for many outcomes: prior mean and sd
R2_PRIOR = (0.2, 0.15)
# G below which half A of a pattern has no site part
SMALL_HALF = 270.0
# Released values are cut here, so that no broadcast makes a number that is not finite.
MOST = 1e6


class Seen(NamedTuple):
    """A released mean over the people who are asked, and the std of its noise."""

    mean: Array
    noise: float


class _Adjusted(NamedTuple):
    gamma: Array  # (p, q)
    imbalance: Array  # (p, q)
    error: float  # std of what is left of the imbalance


class Facts:
    """Facts of one term; S sites, K outcomes, p covariates, q columns of interest, L groups."""

    def __init__(
        self,
        public: Public,
        plan: Plan,
        seen: Mapping[str, Seen],
        *,
        stage: Stage = "whole",
        design: Facts | None = None,
    ) -> None:
        self.public, self.plan, self.stage, self.design = public, plan, stage, design
        self._seen = seen
        self.S, self.K = public.has.shape
        self.M, self.p, self.q = public.M, len(public.x_columns), public.q
        # A protected z is one more column, until its covariates are taken out.
        self.half_ranges = np.append(public.half_ranges, public.z_half)[: self.p + public.protected]
        self.few = self.K <= FEW
        # A product's groups differ in its columns, too: one centre for all.
        self.L = len(public.H) if len(public.H) == self.q + 1 else 1
        self.n_s = np.maximum(public.people, 1).astype(np.float64)

    def after(self, seen: Mapping[str, Seen]) -> Facts:
        return Facts(self.public, self.plan, seen, stage=self.stage, design=self.design)

    def seen(self, name: str) -> Seen:
        mean, noise = self._seen[name]
        return Seen(np.clip(np.nan_to_num(mean), -MOST, MOST), min(max(float(noise), 1e-12), MOST))

    # -- round 1: where values lie ---------------------------------------------------------------

    @cached_property
    def octave(self) -> float:
        """Log2 of the scale in public units."""
        shares, noise = self.seen("where")
        prior = (0.5, 0.7) if self.stage == "half" and self.K == 1 else (0.0, 2.0)
        return octave(shares, noise, 1 if self.K == 1 else 3 if self.few else 6, prior)

    @property
    def scale(self) -> float:
        return float(2.0**self.octave)

    @cached_property
    def ends(self) -> float:
        """Share of pairs in the first and the last bin."""
        shares = self.seen("where").mean
        return float((shares[0] + shares[-1]) / max(shares.sum(), 0.05))

    @cached_property
    def tied(self) -> bool:
        """Whether nearly half of all pairs have equal values."""
        shares, noise = self.seen("where")
        return bool(shares[0] - 3 * noise > 0.45 * max(shares.sum(), 0.05))

    @cached_property
    def ranges(self) -> Counts:
        """Places of the columns of numbers; a product is made of columns that are scaled."""
        own = self.public.z_range and not self.public.z_factors
        columns = np.append(self.public.ranges, own)[: len(self.half_ranges)]
        return np.asarray(np.flatnonzero(columns), dtype=np.int64)

    @cached_property
    def _octaves(self) -> tuple[Array, Array]:
        """Log2 of the sd of every column in public units, and the sd of that."""
        found = np.zeros((2, len(self.half_ranges)))
        if self.plan.asks("xwhere"):
            shares, noise = self.seen("xwhere")
            for j, one in zip(self.ranges, shares.reshape(-1, BINS), strict=True):
                found[:, j] = careful_octave(one, noise)
        return found[0], found[1]

    @cached_property
    def stretch(self) -> Array:
        """Factors of all columns: for people closer together than the range says."""
        if self.design:
            return self.design.stretch
        f = 2.0 ** -np.minimum(self._octaves[0] + XF, 0.0)
        other = np.setdiff1d(np.arange(len(f)), self.ranges)
        f[other] = 1.0
        return f

    @cached_property
    def middle_radius(self) -> float:
        """Largest norm of what is asked about the middle."""
        if self.stage == "half":
            return 0.5
        return math.sqrt(float(np.sum(self.half_ranges**2))) or 0.5

    @cached_property
    def missing(self) -> tuple[float, float]:
        """Share of people without a covariate or any outcome, and its noise."""
        mean, noise = self.seen("middle")
        noise = noise / (2 * self.middle_radius)
        q = 0 if self.public.protected else self.q
        gone = min(max(0.5 - float(mean[len(mean) - 1 - q]) / (2 * self.middle_radius), 0.0), 0.9)
        return gone * max(0.0, 1 - (noise / gone) ** 2) if gone > 0 else 0.0, noise

    @property
    def pool(self) -> float:
        """Share of people who are in the sums."""
        return 1.0 - self.missing[0]

    @cached_property
    def tilt(self) -> tuple[Array, float]:
        """Mean (q,) of r times the share of a person's outcomes that are there; its noise."""
        mean, noise = self.seen("middle")
        b4 = 4 * self.middle_radius
        return (mean[-self.q :] / b4, noise / b4) if not self.public.protected else (np.zeros(1), 1)

    @cached_property
    def rho(self) -> float:
        """Radius of the site part of w; wider where people missing differ by group."""
        if self.public.protected:
            return RHO_PROTECTED
        tilt, noise = self.tilt
        small = self.stage == "half" and self.K > 1 and self.public.G < SMALL_HALF
        wider = min(max(float(np.linalg.norm(tilt)) - 2 * noise, 0.0) * 1.2, RHO_TILT)
        return (0.0 if small else RHO) + wider

    # -- round 2: centres and middles ------------------------------------------------------------

    @property
    def wide(self) -> float:
        """How many times wider the public unit is than the scale."""
        return 1.0 / self.scale

    @property
    def centre_radius(self) -> float:
        return (2.0 if self.K == 1 else 1.35 * math.sqrt(self.K)) * max(1.0, self.wide)

    @cached_property
    def group_share(self) -> Array:
        """Share (L,) of a group in the people."""
        if self.L == 1:
            return np.ones(1)
        counts = self.public.counts.sum(axis=0).astype(np.float64)
        people = np.bincount(self.public.group, counts, minlength=self.L)
        return np.asarray(np.maximum(people, 1) / self.M)

    def _centres(self, mean: Array, noise: float) -> tuple[Array, Array, float, float]:
        """Return centre (K,), differences of groups (L, K), and the variances of their noise.

        `mean` (L K,): sums by group.  The second variance is of the sum over groups and outcomes.
        """
        by_group = mean.reshape(self.L, self.K) / self.pool
        centre, variance = by_group.sum(axis=0), self.L * (noise / self.pool) ** 2
        if self.L == 1:
            return centre, np.zeros((1, self.K)), variance, 1.0
        share = self.group_share
        spread = float(self.K * (noise / self.pool) ** 2 * (1 / share**2).sum())
        return centre, by_group / share[:, None] - centre, variance, spread

    @cached_property
    def first_centre(self) -> tuple[Array, Array, float, float]:
        centre, groups, variance, spread = self._centres(*self.seen("centre"))
        if self.K > 2:  # James and Stein
            noise = (self.K - 2) * variance * self.pool**2
            centre = centre * max(0.0, 1 - noise / max(float(centre @ centre), 1e-12))
        return centre, groups, variance, spread

    @cached_property
    def recentred(self) -> tuple[Array, Array, float]:
        """Centre (K,), differences of groups (L, K) and the variance of their noise."""
        centre, groups, variance, spread = self.first_centre
        if "again" not in self._seen:
            return centre, groups, spread
        again = self._centres(*self.seen("again"))
        centre = centre + variance / (variance + again[2]) * again[0]
        return (centre, *min((groups, spread), again[1::2], key=lambda both: both[1]))

    @property
    def centre(self) -> Array:
        """Centre (K,); the first one, until it was asked again."""
        return self.recentred[0]

    @cached_property
    def first_middle(self) -> Array:
        """Middles of all columns; 0 for a product."""
        middle = self.seen("middle").mean[: len(self.half_ranges)] / self.pool
        if self.public.z_factors:
            middle[self.p] = 0.0
        return middle

    @cached_property
    def far(self) -> float:
        """How far stretched people may be from their first middle, by its noise."""
        f = self.stretch
        return self.seen("middle").noise * float(np.linalg.norm(f[f > WIDE_X]))

    @property
    def middle2_radius(self) -> float:
        return 2.5 * math.sqrt(len(self.half_ranges)) + self.far

    @property
    def x_sites_radius(self) -> float:
        return xsites_radius(self.p) + self.far

    @property
    def z_sites_radius(self) -> float:
        """As wide as planned noise allows, for site means that are far apart."""
        noise = look_noise(self.public, 1.0, self.plan.share("zsites")) * self.S
        f, product = float(self.stretch[-1]), bool(self.public.z_factors)
        most = 6.0 if product else 2.0 * self.public.z_half * f
        far = min(self.seen("middle").noise * f, 9.0) if f > WIDE_X else 0.0
        return float(min(max(0.35 / noise, 2.0), most) + far)

    @cached_property
    def _middles(self) -> tuple[Array, float]:
        """Middles of all columns, and the noise of the last one."""
        first = self.seen("middle").noise * self.stretch
        if not self.plan.asks("middle2"):
            return self.first_middle, float(first[-1])
        second, noise = self.seen("middle2")
        step = first**2 / (first**2 + noise**2) * second / self.pool
        middle = self.first_middle + step / self.stretch
        if self.public.z_factors:
            i, j = self.public.z_factors
            middle[self.p] = step[self.p] - step[i] * step[j]
        return middle, noise / math.sqrt(1 + (noise / first[-1]) ** 2)

    @property
    def middle(self) -> Array:
        return self.design.middle if self.design else self._middles[0]

    def _by_site(self, mean: Array, noise: float) -> tuple[Array, Array, Array]:
        """Return means (S, n) of sites about their own mean (n,), and the variance (S, 1)."""
        n_s = self.n_s[:, None]
        g = mean.reshape(self.S, -1) * self.M / n_s / self.pool
        error = (noise * self.M / n_s / self.pool) ** 2 + 1.0 / n_s
        middle = (self.public.people[:, None] * g).sum(axis=0) / self.M
        return g - middle, middle, error

    @cached_property
    def x_sites(self) -> tuple[Array, Array]:
        """Site means (S, p) of stretched x, and the variance of what is left of them."""
        if self.design:
            return self.design.x_sites
        if not self.plan.asks("xsites"):
            return np.zeros((self.S, self.p)), np.full((self.S, self.p), 0.1)
        g, _, error = self._by_site(*self.seen("xsites"))
        return site_means(g, error, one=False)

    @cached_property
    def z_sites(self) -> tuple[Array, Array]:
        """Site means (S, 1) of stretched z, and the variance of what is left of them."""
        g, _, error = self._by_site(*self.seen("zsites"))
        return site_means(g, error, one=False)

    # -- round 3: second moments, site centres ---------------------------------------------------

    @property
    def design_radius(self) -> float:
        return math.sqrt(self.p + 2.0) if self.p else 0.0

    @cached_property
    def _moments(self) -> tuple[Array, Array, float, float]:
        """S_xx (p, p), mean x r' (p, q), mean z^2, and the noise of an entry of the diagonal."""
        mean, noise = self.seen("design")
        p, pairs = self.p, self.p * (self.p + 1) // 2
        cross = mean[pairs : pairs + p * self.q].reshape(p, self.q) / math.sqrt(2) / GAMMA
        square = (
            float(mean[-1]) / GAMMA**2 + (0.0 if p else 0.125) if self.public.protected else 0.0
        )
        return smat(mean[:pairs]) / self.pool, cross / self.pool, square / self.pool, noise

    @cached_property
    def z_square(self) -> tuple[float, float]:
        """Mean z^2, of the look and of what scaling makes it, and its relative error."""
        public, middle, (octaves, unsure) = self.public, self.middle, self._octaves
        level = np.maximum(1 - middle**2, 0.05)  # mean square of columns that are -1 and 1
        scaled = 0.59 * 4.0 ** np.maximum(octaves + XF, 0.0)
        if public.z_factors:
            i, j = public.z_factors
            of_first = 0.59 * (1.2 if i == j else 1.0) if public.ranges[i] else float(level[i])
            made, error = 0.59 * of_first / 16, float(np.max(unsure[[i, j]]))
        elif public.z_range:
            made, error = float(scaled[-1]) / 16, float(unsure[-1])
        else:
            between = float(public.people @ self.z_sites[0][:, 0] ** 2) / self.M
            made, error = max(float(level[-1]) - between, 0.05) / 16, 0.0
        if public.z_range:
            error = made * math.hypot(min(1.39 * error, 1.0), 0.25)
        else:
            error = 0.1 * made + 2 * abs(float(middle[-1])) * self._middles[1] / 16
        look, noise = self._moments[2], self._moments[3] / GAMMA**2 / self.pool
        precision = 1 / error**2 + 1 / noise**2
        square = min(max((made / error**2 + look / noise**2) / precision, 0.3 * made), 0.2495)
        return square, 1 / math.sqrt(precision) / square

    @cached_property
    def _whitening(self) -> tuple[Array, Array, float, float, bool]:
        """Li, first imbalance, its noise, relative error of Li, whether columns nearly agree."""
        S, cross, _, noise = self._moments
        w = 0.1 / (0.1 + noise**2)
        S = w * S + (1 - w) * 0.6 * np.eye(self.p)
        values, Q = np.linalg.eigh(S)
        # Short columns are no sign of columns that agree.
        longer = np.sqrt(0.6 / np.clip(np.diag(S), 0.2, 0.6))
        partly = np.linalg.eigvalsh(S * np.outer(longer, longer))[0] < 0.1 + 0.6 * noise
        Li = np.asarray((Q / np.sqrt(np.maximum(values, 0.08))) @ Q.T)
        cross = Li @ cross
        each = noise / (math.sqrt(2) * GAMMA) * math.sqrt(float((Li**2).sum()) / self.p)
        size = max(float((cross**2).sum()), 1e-12)
        kept = max(0.0, 1 - max(self.p * self.q - 2, 0.5) * each**2 / size)
        return Li, kept * cross, math.sqrt(kept) * each, w * noise + 0.3 * (1 - w), bool(partly)

    @cached_property
    def limit(self) -> float:
        """Radius of whitened covariates in h and in effects: none, as these are linear.

        A column that was stretched by mistake fills its ball; then x lies in the ball everywhere.
        """
        if self.design:
            return self.design.limit
        too_long = (self.stretch[: self.p] > WIDE_X) & (np.diag(self._moments[0]) > 2.5)
        return self.b if too_long.any() else math.inf

    @property
    def Li(self) -> Array:
        """S^-1/2 (p, p)."""
        return self.design.Li if self.design else self._whitening[0]

    @property
    def partly(self) -> bool:
        """Whether covariates nearly determine each other, so that adjustment is partial."""
        if not self.p:
            return False
        return self.design.partly if self.design else self._whitening[4]

    @property
    def u_sites_radius(self) -> float:
        """Wider where the first centre may be far off."""
        noise = math.sqrt(self.first_centre[2])
        return sites_radius(self.K) + (0.5 * math.sqrt(self.K) * noise if noise > 0.3 else 0.0)

    @cached_property
    def u_sites(self) -> tuple[Array, Array, float]:
        """Site centres (S, K), the variance (S,) of what is left, and that of their mean.

        Their mean mends the first centre, which a wide unit makes noisy.
        """
        if "sites" not in self._seen:
            return np.zeros((self.S, self.K)), np.full(self.S, 0.25), 0.0
        mean, noise = self.seen("sites")
        g, middle, error = self._by_site(mean, noise)
        first, second = self.first_centre[2], self.S * (noise / self.pool) ** 2
        kept = first / (first + second + 1.0 / self.M)
        centres, variance = site_means(g + (1 - kept) * middle, error, one=True)
        return kept * middle + centres, variance.mean(axis=1), min(first, second)

    # -- round 4: Gamma and effects --------------------------------------------------------------

    @cached_property
    def people(self) -> tuple[Array, Array, Counts]:
        """Public r, g (M, q) and sites (M,)."""
        if not self.public.protected:
            return public_people(self.public)
        square = self.z_square[0]
        if self.public.z_range:
            z = protected_people(self.M, square)
        else:
            share = min(max((1 + float(self.middle[-1])) / 2, 0.03), 0.97)
            z = protected_levels(self.M, square, share)
        return z, z, np.repeat(np.arange(self.S), self.public.people)

    @cached_property
    def z_left(self) -> float:
        """Share of mean z^2 that covariates leave."""
        cross = self._whitening[1] if self.p else np.zeros(1)
        return 1.0 - float((cross**2).sum()) / self.z_square[0]

    @cached_property
    def z_cut(self) -> float:
        """Cut of a protected w, in sd of what covariates leave of z."""
        noise = look_noise(self.public, moved(self.public, "contrast", self.rho), 0.4)
        return z_cut(noise * 1.8 * math.sqrt(self.K), 1 / math.sqrt(self.M))

    @cached_property
    def k(self) -> float | None:
        """Factor of a protected w."""
        if not self.public.protected:
            return None
        return W / (self.z_cut * math.sqrt(self.z_square[0] * max(self.z_left, 0.15)))

    @cached_property
    def z_scale(self) -> float:
        """Estimates are per unit of scaled z; times this, per unit of z."""
        if not self.public.protected:
            return 1.0
        f, half = self.stretch, self.public.z_half
        if self.public.z_factors:
            i, j = self.public.z_factors
            both = 2.0 if self.public.ranges[[i, j]].all() and i != j else 1.0
            return 2 * half * both * float(f[i] * f[j]) / 4
        return 2 * half * float(f[-1]) / 4

    @property
    def b(self) -> float:
        """Radius of whitened covariates."""
        return math.sqrt(self.p + 3.3)

    @cached_property
    def first_people(self) -> Array:
        return ball(synthetic(*self.people[:2], self._whitening[1]), self.limit)

    @cached_property
    def first_gamma(self) -> Array:
        return solve(self.people[0], self.first_people, self.k)

    @cached_property
    def shown(self) -> Array:
        """Imbalance (p, q) of w and whitened covariates in their ball, of the first people."""
        w = weight(self.people[0], self.first_people @ self.first_gamma, self.k)
        return np.asarray(ball(self.first_people, self.b).T @ w / self.M)

    @cached_property
    def adjusted(self) -> _Adjusted:
        """Gamma after one step from what was measured to what synthetic people show."""
        if self.design:
            return self.design.adjusted
        x, (r, _, _), gamma = self.first_people, self.people, self.first_gamma
        w, inside = weight(r, x @ gamma, self.k), ball(x, self.b)
        mean, noise = self.seen("balance")
        _, imbalance, error, relative, _ = self._whitening
        k = self.k or 1.0
        wrong = k**2 * (error**2 + relative**2 * float((gamma**2).sum()))
        kept = wrong / (wrong + noise**2)
        step = kept * (mean.reshape(self.p, self.q) - self.shown)
        free, product = unclipped(r, x @ gamma, w, self.k), inside * x
        gamma = gamma + step * self.p * self.M / (max(float(product[free].sum()), 1e-9) * k)
        lost = float((x**2).sum() / product.sum())
        square = self.z_square[0] if self.public.protected else 0.25
        left = noise * math.sqrt(kept * (1 + 2.5 * float((gamma**2).sum()) / square)) * lost
        return _Adjusted(gamma, imbalance + step / k, left)

    @cached_property
    def x_people(self) -> Array:
        return ball(synthetic(*self.people[:2], self.adjusted.imbalance), self.limit)

    @property
    def effects_radius(self) -> float:
        return 1.8 if self.K == 1 else 1.3 * math.sqrt(self.K)

    @cached_property
    def effects(self) -> tuple[Array, Array, float]:
        """B (p, K), its error (K,) as a share of the variance, R2 of many outcomes."""
        K, p = self.K, self.p
        if not p:
            return np.zeros((0, K)), np.zeros(K), 0.0
        if not self.plan.asks("effects"):
            return np.zeros((p, K)), np.full(K, R2_PRIOR[0]), R2_PRIOR[0]
        mean, noise = self.seen("effects")
        if self.few:
            x = self.x_people
            slope = 0.93 * self.pool * float((ball(x, self.b) * x).sum() / (x**2).sum())
            B, error = posterior(mean.reshape(p, K) / slope, (noise / slope) ** 2 + 1.0 / self.M)
            return B, error, 0.0
        each = self.M / self.n_pairs
        kept = R2_PRIOR[1] ** 2 / (R2_PRIOR[1] ** 2 + (noise * each) ** 2)
        R2 = R2_PRIOR[0] + kept * (float(mean[0]) * each / self.pool - R2_PRIOR[0])
        R2 = min(max(R2, 0.03), 0.8)
        return np.zeros((p, K)), np.full(K, R2), R2

    @property
    def n_pairs(self) -> int:
        return max(int((self.public.counts // 2).sum()), 1)

    # -- round 5: the contrast -------------------------------------------------------------------

    @cached_property
    def w_people(self) -> Array:
        """Weights (M, q) of public people."""
        r = self.people[0]
        if not self.p:
            return r if self.k is None else weight(r, 0 * r, self.k)
        return weight(r, self.x_people @ self.adjusted.gamma, self.k)

    @cached_property
    def expected(self) -> tuple[Array, Array]:
        """D and mean w w' (K, q, q) of public people, over sites that have the outcome."""
        w, (_, g, site) = self.w_people, self.people
        D, ww = (np.zeros((self.S, self.q, self.q)) for _ in range(2))
        np.add.at(D, site, w[:, :, None] * g[:, None, :] / self.M)
        np.add.at(ww, site, w[:, :, None] * w[:, None, :] / self.M)
        has = self.public.has.astype(np.float64)
        return np.einsum("sk,sij->kij", has, D), np.einsum("sk,sij->kij", has, ww)

    @cached_property
    def D_all(self) -> Array:
        """D (q, q) of public people over all sites."""
        return np.asarray(self.w_people.T @ self.people[1] / self.M)

    @cached_property
    def square(self) -> float:
        """Mean square of a column of w."""
        return float((self.w_people**2).sum() / self.M / self.q)

    @cached_property
    def sensitivity(self) -> float:
        """Half of what one person may move the contrast by, for C = 1."""
        return moved(self.public, "contrast", self.rho)

    @cached_property
    def C(self) -> float:
        """Radius of the ball of outcomes, in scales."""
        D, root = abs(float(np.linalg.det(self.D_all))) ** (1 / self.q), math.sqrt(self.K)
        D = max(D, 1e-6)
        noise = look_noise(self.public, self.sensitivity, self.plan.share("contrast"))
        return radius(noise * root / D, math.sqrt(self.square / self.M) / D, self.K) * root

    @cached_property
    def group_centres(self) -> Array:
        """Centres (L, K) of groups at equal covariates, if they are far apart; else 0."""
        _, groups, variance = self.recentred
        if self.L == 1:
            return groups
        if self.p:
            r, g, _ = self.people
            shift = np.linalg.pinv(r.T @ g / self.M) @ self.adjusted.imbalance.T
            groups = groups - self.public.H @ shift @ self.effects[0]
        size = float((groups**2).sum())
        clear = max(variance * (1 + 2.4 * math.sqrt(2 / self.K)), 0.2 * self.K)
        return groups * (1 - variance / size) if size > clear else 0.0 * groups

    @property
    def squares_radius(self) -> float:
        return (W * self.C) ** 2 * min(1.0, 1.75 / math.sqrt(self.K))

    @cached_property
    def T(self) -> tuple[Array, float]:
        """The contrast (q, K) and its noise."""
        mean, noise = self.seen("contrast")
        return mean.reshape(self.q, self.K), noise

    @cached_property
    def direction(self) -> Array:
        """Unit vector (K,) over outcomes along which most was found."""
        T, _ = self.T
        along = np.linalg.svd(T, full_matrices=False)[2][0]
        return np.asarray(along * (-1.0 if float(T.sum(axis=0) @ along) < 0 else 1.0))

    @cached_property
    def half_shift(self) -> Array:
        """Half of what was found along `direction`, for a unit of g (q,)."""
        T, noise = self.T
        kept = max(0.0, 1 - self.K * noise**2 / max(float((T**2).sum()), 1e-12))
        return np.asarray(
            0.5 * np.linalg.pinv(self.D_all) @ (T @ self.direction) * kept / (0.85 * self.pool)
        )

    # -- the last round: what the cut kept -------------------------------------------------------

    @property
    def kept_noise(self) -> float:
        return self.seen("kept").noise

    @cached_property
    def J(self) -> float:
        """Slope of the cut along what was found."""
        return min(max(float(self.seen("kept").mean[0]) / self.pool + 0.5, 0.3), 1.0)

    @cached_property
    def kept_lost(self) -> tuple[Array, float]:
        """Mean (q,) of w times what is cut along `direction`, and its noise."""
        mean, noise = self.seen("kept")
        unit = RAMPS[self.public.protected][0]
        return mean[1 : 1 + self.q] / unit, noise / unit

    @cached_property
    def kept_uneven(self) -> tuple[Array, float]:
        """Mean (q,) of r times what is cut: whether one group loses more; its noise."""
        mean, noise = self.seen("kept")
        unit = RAMPS[self.public.protected][1]
        return mean[1 + self.q : 1 + 2 * self.q] / unit, noise / unit

    @cached_property
    def kept_missing(self) -> tuple[Array, float]:
        """Share (K,) of people without each outcome at sites that have it, and its noise."""
        mean, noise = self.seen("kept")
        unit, share = math.sqrt(self.K) / SMALL, self.public.people @ self.public.has / self.M
        return mean[1 + 2 * self.q : 1 + 2 * self.q + self.K] * unit + 0.5 * share, noise * unit

    @property
    def D_unit(self) -> float:
        """D of public codes is asked in this unit: a person moves it by SMALL."""
        longest = float(np.sqrt((self.public.g**2).sum(axis=2)).max())
        return 2 * W * max(longest, 1e-9) / SMALL

    @cached_property
    def kept_D(self) -> tuple[Array, float]:
        """D (q, q) as it was measured, and its noise; protected: of those inside the cut."""
        if self.public.protected:
            mean, noise = self.seen("slope")
            each = self.M / self.n_pairs / self.pool
            return (mean.reshape(1, 1) + sum(PAIR) / 2 * self.n_pairs / self.M) * each, noise * each
        mean, noise = self.seen("kept")
        D = mean[1 + 2 * self.q + self.K :].reshape(self.q, self.q)
        return D * self.D_unit / self.pool, noise * self.D_unit

    @cached_property
    def left(self) -> float:
        """Variance in T of site means of w and of outcomes, beyond what the site part removes."""
        there, B, w2, v2 = np.zeros((self.S, 2)), self.effects[0], 0.0, self.u_sites[2]
        size = 0.85
        if self.k is not None:
            size = self.k * math.erf(self.z_cut / math.sqrt(2))
            w2 = (size * self._middles[1] / 4) ** 2
            there[:, 0] = self.z_sites[1][:, 0] / 16
        if self.p:
            covariates = self.x_sites[1] @ self.Li**2
            there[:, 0] += covariates @ (self.adjusted.gamma**2).mean(axis=1)
            there[:, 1] = covariates @ (B**2).mean(axis=1)
        there[:, 0] = size**2 * there[:, 0] + w2
        there[:, 1] += self.u_sites[1] + (v2 if self.k is not None else 0.0)
        share, limit = self.public.people / self.M, Y * self.C / math.sqrt(self.K)
        each = [uncentred(w, v, self.rho, limit) for w, v in np.sqrt(there).tolist()]
        common = uncentred(math.sqrt(w2), math.sqrt(v2), self.rho, limit) if w2 else 0.0
        return float(share**2 @ np.array(each)) + common

    @cached_property
    def thin(self) -> bool:
        """Whether a protected column hardly moves within its range."""
        z_octave = float(self._octaves[1][-1]) if self.public.z_range else 0.0
        return self.public.protected and z_octave > 1.6
