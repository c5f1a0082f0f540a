"""Where the values of a term lie, by its first releases: scales, middles, centres, site means.

Every fact is a function of public numbers and released values alone, so parties that hold the same
values hold the same facts.  It is computed when it is first needed, once the looks behind it were
released.  Numbers in brackets are sections of docs/group-comparison.md, which has all formulas.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from cape.algorithms import looks, population
from cape.algorithms.design import Counts, Public
from cape.algorithms.estimators import Array

# Effect of a common octave: x is multiplied by 2^-(octave + .4), never by less than 1.
XF, WIDE_X = 0.4, 1.5
# log2 of the scale of a pattern's score, before it is asked
PATTERN_OCTAVE = 0.5
# G below which half A of a pattern has no site part
SMALL_HALF = 270.0
# Share of pairs in the lowest bin above which values are tied
MOSTLY_TIED = 0.8
# Released values are cut here, so that no broadcast makes a number that is not finite.
MOST = 1e6


class Seen(NamedTuple):
    """A released mean over the people who are asked, and the std of its noise."""

    mean: Array
    noise: float


class Placed:
    """Facts of one term; S sites, K outcomes, p covariates, q columns of interest, L groups."""

    def __init__(
        self,
        public: Public,
        plan: looks.Looks,
        seen: Mapping[str, Seen],
        *,
        stage: looks.Stage = "whole",
        design: Self | None = None,
    ) -> None:
        self.public, self.plan, self.stage, self.design = public, plan, stage, design
        self._seen = seen
        self.S, self.K = public.has.shape
        self.M, self.p, self.q = max(public.M, 1), len(public.x_columns), public.q
        # A protected z is one more column, until its covariates are taken out.
        self.half_ranges = np.append(public.half_ranges, public.z_half)[: self.p + public.protected]
        self.few = self.K <= looks.FEW
        self.by_outcome = looks.by_outcome(public, stage)
        # A product's groups differ in its columns, too: one centre for all.
        self.L = len(public.H) if len(public.H) == self.q + 1 else 1
        self.n_s = np.maximum(public.people, 1).astype(np.float64)

    def after(self, seen: Mapping[str, Seen]) -> Self:
        return type(self)(self.public, self.plan, seen, stage=self.stage, design=self.design)

    def seen(self, name: str) -> Seen:
        mean, noise = self._seen[name]
        return Seen(np.clip(np.nan_to_num(mean), -MOST, MOST), min(max(float(noise), 1e-12), MOST))

    # -- round 1: where values lie ---------------------------------------------------------------

    @cached_property
    def octave(self) -> Array:
        """Log2 of the scales (K,) in public units; one of all, unless each was asked."""
        if self.design and not self.plan.asks("where"):
            return self.design.octave
        shares, noise = self.seen("where")
        if self.by_outcome:
            return population.octaves(shares.reshape(self.K, population.BINS), noise)
        prior = (PATTERN_OCTAVE, 0.7) if self.half_b else (0.0, 2.0)
        one = population.octave(shares, noise, 1 if self.K == 1 else 3 if self.few else 6, prior)
        return np.full(self.K, one)

    @cached_property
    def scale(self) -> Array:
        return np.array([2.0**one for one in self.octave.tolist()])

    @property
    def half_b(self) -> bool:
        """Whether the outcome is what half A of a pattern found."""
        return self.stage == "half" and self.K == 1

    @property
    def centre_unit(self) -> Array:
        """Unit (K,) in which the centre is asked; half B asks it together with the scale."""
        return np.array([2.0**PATTERN_OCTAVE]) if self.half_b else np.maximum(self.scale, 1.0)

    @cached_property
    def _where(self) -> Seen:
        """Shares (bins,) of pairs by octave, of all outcomes."""
        shares, noise = self.seen("where")
        each = shares.reshape(-1, population.BINS)
        return Seen(each.mean(axis=0), noise / math.sqrt(len(each)))

    @cached_property
    def ends(self) -> float:
        """Share of pairs in the first and the last bin; several outcomes by themselves may tie."""
        shares = self._where.mean
        first = 0.0 if self.by_outcome else shares[0]
        return float((first + shares[-1]) / max(shares.sum(), 0.05))

    @cached_property
    def ends_noise(self) -> float:
        shares, noise = self._where
        return float(math.sqrt(2) * noise / max(shares.sum(), 0.05))

    @cached_property
    def tied(self) -> bool:
        """Whether most pairs have equal values."""
        shares, noise = self._where
        return bool(shares[0] - 2 * noise > MOSTLY_TIED * max(shares.sum(), 0.05))

    @cached_property
    def tail(self) -> float:
        """How skewed or heavy one outcome is."""
        if self.K > 1:
            return 0.0
        return population.tail(*self.seen("where"), max(int((self.public.counts // 2).sum()), 1))

    @cached_property
    def reach(self) -> float:
        """How far out, in scales, people of one outcome lie, if far."""
        return population.reach(*self.seen("where"), float(self.octave[0])) if self.K == 1 else 0.0

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
            for j, one in zip(self.ranges, shares.reshape(-1, population.BINS), strict=True):
                found[:, j] = population.careful_octave(one, noise)
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
            return looks.RHO_PROTECTED
        tilt, noise = self.tilt
        small = self.stage == "half" and self.K > 1 and self.public.G < SMALL_HALF
        wider = min(max(float(np.linalg.norm(tilt)) - 2 * noise, 0.0) * 1.2, looks.RHO_TILT)
        return max(
            (0.0 if small else looks.RHO) + wider, min(1.5 * math.sqrt(self.odds), looks.RHO_SITES)
        )

    @cached_property
    def _odds(self) -> tuple[float, float]:
        """Mean square over sites of the code times the share of outcomes there; its noise."""
        # 0 unless it is clear: people missing from one group here and from the other one there.
        if self.public.protected or "sites" not in self._seen:
            return 0.0, 0.0 if self.public.protected else math.inf
        mean, noise = self.seen("sites")
        share = self.public.people / self.M
        unit = 1 / (looks.TILT * self.u_sites_radius * np.maximum(share, 1e-6))[:, None]
        variance = float(share @ (noise * unit[:, 0]) ** 2)
        spread = noise**2 * math.sqrt(2 * self.q * float(share**2 @ unit[:, 0] ** 4))
        tilts = mean.reshape(self.S, -1)[:, self.K :] * unit
        square = float(share @ (tilts**2).sum(axis=1)) - self.q * variance
        return (square if square > 2 * spread else 0.0), spread

    @property
    def odds(self) -> float:
        return self._odds[0]

    # -- round 2: centres and middles ------------------------------------------------------------

    @property
    def centre_radius(self) -> float:
        return 2.0 if self.K == 1 else 1.35 * math.sqrt(self.K)

    @cached_property
    def group_share(self) -> Array:
        """Share (L,) of a group in the people."""
        if self.L == 1:
            return np.ones(1)
        counts = self.public.counts.sum(axis=0).astype(np.float64)
        people = np.bincount(self.public.group, counts, minlength=self.L)
        return np.asarray(np.maximum(people, 1) / self.M)

    def _centres(self, name: str, unit: Array) -> tuple[Array, Array, Array, float]:
        """Return centre (K,), differences of groups (L, K), and the variances of their noise."""
        # `unit` (K,) is that of the look, in scales.  The first variance is (K,), the second one of
        # the sum over groups and outcomes.
        mean, noise = self.seen(name)
        by_group, error = mean.reshape(self.L, self.K) * unit / self.pool, unit * noise / self.pool
        centre, variance = by_group.sum(axis=0), self.L * error**2
        if self.L == 1:
            return centre, np.zeros((1, self.K)), variance, 1.0
        share = self.group_share
        spread = float((error**2).sum() * (1 / share**2).sum())
        return centre, by_group / share[:, None] - centre, variance, spread

    @cached_property
    def first_centre(self) -> tuple[Array, Array, Array, float]:
        unit = self.centre_unit / self.scale
        centre, groups, variance, spread = self._centres("centre", unit)
        if self.K > 2:  # James and Stein
            size = float(((centre / unit) ** 2).sum())
            noise = (self.K - 2) * float((variance / unit**2)[0]) * self.pool**2
            centre = centre * max(0.0, 1 - noise / max(size, 1e-12))
        return centre, groups, variance, spread

    @cached_property
    def recentred(self) -> tuple[Array, Array, float]:
        """Centre (K,), differences of groups (L, K) and the variance of their noise."""
        centre, groups, variance, spread = self.first_centre
        if "again" not in self._seen:
            return centre, groups, spread
        again = self._centres("again", np.ones(self.K))
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

    @cached_property
    def far_groups(self) -> Array:
        """Differences (L, K) of groups that are clearly far apart; else 0."""
        _, groups, variance = self.recentred
        return self._if_far(groups, variance)

    def _if_far(self, groups: Array, variance: float) -> Array:
        size = float((groups**2).sum())
        clear = max(variance * (1 + 2.4 * math.sqrt(2 / self.K)), 0.2 * self.K)
        return groups * (1 - variance / size) if size > clear else 0.0 * groups

    @property
    def middle2_radius(self) -> float:
        return 2.5 * math.sqrt(len(self.half_ranges)) + self.far

    @property
    def x_sites_radius(self) -> float:
        return looks.xsites_radius(self.p) + self.far

    @property
    def z_sites_radius(self) -> float:
        """As wide as planned noise allows, for site means that are far apart."""
        noise = looks.look_noise(self.public, 1.0, self.plan.share("zsites")) * self.S
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
        """Return means (S, n) of sites about their own (n,), and their variance (S, 1)."""
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
        return population.site_means(g, error, one=False)

    @cached_property
    def z_sites(self) -> tuple[Array, Array]:
        """Site means (S, 1) of stretched z, and the variance of what is left of them."""
        g, _, error = self._by_site(*self.seen("zsites"))
        return population.site_means(g, error, one=False)

    @property
    def u_sites_radius(self) -> float:
        """Wider where the first centre may be far off."""
        noise = math.sqrt(float(self.first_centre[2].mean()))
        return looks.sites_radius(self.K) + (
            0.5 * math.sqrt(self.K) * noise if noise > 0.3 else 0.0
        )

    @property
    def blocks(self) -> Seen:
        """Outcomes by site (S, K), or by group (L, K) where that is not asked."""
        sites = self.plan.asks("sites")
        mean, noise = self.seen("sites" if sites else "again")
        return Seen(mean.reshape(self.S if sites else self.L, -1)[:, : self.K], noise)

    @cached_property
    def u_sites(self) -> tuple[Array, Array, float]:
        """Site centres (S, K), the variance (S,) of what is left, and that of their mean."""
        # Their mean mends the first centre, which a wide unit makes noisy.
        if "sites" not in self._seen:
            return np.zeros((self.S, self.K)), np.full(self.S, 0.25), 0.0
        mean, noise = self.blocks
        g, middle, error = self._by_site(mean, noise)
        first, second = self.first_centre[2], self.S * (noise / self.pool) ** 2
        kept = first / (first + second + 1.0 / self.M)
        centres, variance = population.site_means(g + (1 - kept) * middle, error, one=True)
        left = float(np.minimum(first, second).mean())
        return kept * middle + centres, variance.mean(axis=1), left
