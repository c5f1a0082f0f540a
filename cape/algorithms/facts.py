"""Facts of one term up to its last release: D, the radius C, the contrast, what the cut kept.

Numbers in brackets are sections of docs/group-comparison.md.
"""

import math
from functools import cached_property
from typing import Literal

import numpy as np

from cape.algorithms.adjusted import Adjusted
from cape.algorithms.estimators import Array
from cape.algorithms.looks import PAIR, PART, RAMPS, SKEW, Y, look_noise, moved
from cape.algorithms.population import OUTSIDE, REACH, W, radius, skewed_loss, uncentred, weight

# [3] Prior sd of the skewness of all outcomes, and of the log of spread for a unit of g
SKEW_PRIOR, SPREAD_PRIOR = 0.25, 0.6
# Loss by curves: factor of it, as noise of centres and scales blurs shapes; relative error
GAIN, MODEL = 1.6, 0.6


class Facts(Adjusted):
    """All facts of one term."""

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
        sampling = math.sqrt(self.square / self.M)

        def unlike(c: float) -> float:
            return math.sqrt(float((self.unlike(c)[0] ** 2).mean()))

        c = radius(noise * root / D, sampling / D, self.K, self.tail, unlike)
        return max(c, min(self.reach, REACH)) * root

    @cached_property
    def skewness(self) -> tuple[Array, float]:
        """Skewness (K,) of outcomes, shrunk, and the variance of an entry."""
        mean, noise = self.seen("skew")
        variance = (noise / SKEW[0] / self.pool) ** 2
        kept = SKEW_PRIOR**2 / (SKEW_PRIOR**2 + self.K * variance)
        return kept * mean[: self.K] / SKEW[0] / self.pool, kept * variance

    @cached_property
    def spread(self) -> tuple[Array, float]:
        """Log of the spread (q,) of outcomes by g, shrunk, and the variance of an entry."""
        mean, noise = self.seen("skew")
        r, g, _ = self.people
        unit = np.linalg.pinv(r.T @ g / self.M) / (SKEW[1] * self.pool * OUTSIDE[self.K > 1])
        variance = noise**2 * float((unit**2).sum()) / self.q
        kept = SPREAD_PRIOR**2 / (SPREAD_PRIOR**2 + variance)
        return kept * unit @ mean[self.K :], kept * variance

    def unlike(self, c: float) -> tuple[Array, Array]:
        """Return what a cut makes of groups of other spread (q, K), in scales; its variance."""
        if not self.plan.asks("skew"):  # of a pattern
            return np.zeros((self.q, self.K)), np.zeros((self.q, self.K))
        (skewness, its), (spread, error) = self.skewness, self.spread
        size = math.sqrt(float((skewness**2).sum()))
        unit = GAIN * math.sqrt(self.K) * skewed_loss(c, self.K, size)
        mean = unit * np.outer(spread, skewness)
        spread2, skewness2 = spread[:, None] ** 2, skewness**2
        variance = unit**2 * (spread2 * its + skewness2 * error + error * its)
        return mean, variance + (MODEL * mean) ** 2

    @cached_property
    def group_centres(self) -> Array:
        """Centres (L, K) of groups at equal covariates, if they are far apart; else 0."""
        _, groups, variance = self.recentred
        if self.L == 1:
            return groups
        if self.p:
            r, g, _ = self.people
            shift = np.linalg.pinv(r.T @ g / self.M) @ self.adjusted.imbalance.T
            groups = groups - self.public.H @ shift @ self.effects.B
        return self._if_far(groups, variance)

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

    def kept_ramp(self, i: Literal[0, 1]) -> tuple[Array, float]:
        """Mean (q,) of what is cut and its noise, 0: along `direction` times w, 1: times r."""
        # The second one says whether one group loses more.
        mean, noise = self.seen("kept")
        unit, first = RAMPS[self.public.protected][i], 1 + i * self.q
        return mean[first : first + self.q] / unit, noise / unit

    @cached_property
    def kept_missing(self) -> tuple[Array, float]:
        """Share (K,) of people without each outcome at sites that have it, and its noise."""
        mean, noise = self.seen("kept")
        unit, share = math.sqrt(self.K) / PART, self.public.people @ self.public.has / self.M
        return mean[1 + 2 * self.q : 1 + 2 * self.q + self.K] * unit + 0.5 * share, noise * unit

    @property
    def D_unit(self) -> float:
        """D of public codes is asked in this unit: a person moves it by PART."""
        longest = float(np.sqrt((self.public.g**2).sum(axis=2)).max())
        return 2 * W * max(longest, 1e-9) / PART

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
        there, B, w2, v2 = np.zeros((self.S, 2)), self.effects.B, 0.0, self.u_sites[2]
        size = 0.85
        if self.k is not None:
            size = self.k * math.erf(self.z_cut / math.sqrt(2))
            w2 = (size * self._middles[1] / 4) ** 2
            there[:, 0] = self.z_sites[1][:, 0] / 16
        if self.p:
            covariates = self.x_sites[1] @ self.Li**2
            there[:, 0] += covariates @ (self.adjusted.gamma**2).mean(axis=1)
            there[:, 1] = covariates @ (B**2).mean(axis=1)
        # What is unclear may be half of the most that as many missing people can be at odds.
        gone = float(np.clip(self.kept_missing[0], 0.0, 0.9).mean())
        odds = self.odds or min(2 * self._odds[1], 0.5 * (gone / 2) ** 2)
        there[:, 0] = size**2 * (there[:, 0] + odds) + w2
        there[:, 1] += self.u_sites[1] + (v2 if self.k is not None else 0.0)
        # People who lack an outcome, and the cut, draw its site means to 0.
        drawn = 0.1 + np.clip(self.kept_missing[0] - self.missing[0], 0.0, 0.8)
        there[:, 1] += ((self.u_sites[0] * drawn / (1.0 - drawn)) ** 2).mean(axis=1)
        share, limit = self.public.people / self.M, Y * self.C / math.sqrt(self.K)
        each = [uncentred(w, v, self.rho, limit) for w, v in np.sqrt(there).tolist()]
        common = uncentred(math.sqrt(w2), math.sqrt(v2), self.rho, limit) if w2 else 0.0
        return float(share**2 @ np.array(each)) + common

    @cached_property
    def thin(self) -> bool:
        """Whether a protected column hardly moves within its range."""
        z_octave = float(self._octaves[1][-1]) if self.public.z_range else 0.0
        return self.public.protected and z_octave > 1.6
