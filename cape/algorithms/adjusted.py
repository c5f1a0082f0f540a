"""Adjustment for covariates, by releases: their second moments, Gamma, and their effects.

Numbers in brackets are sections of docs/group-comparison.md.
"""

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cape.algorithms import population
from cape.algorithms.design import Counts
from cape.algorithms.estimators import Array
from cape.algorithms.linalg import smat
from cape.algorithms.looks import look_noise, moved
from cape.algorithms.placed import WIDE_X, XF, Placed

# [2] Weight of the term in the look at second moments
GAMMA = 3.0
# Covariates nearly agree below this eigenvalue of their correlations; a column whose mean square
# is less than the second agrees with none
PARTLY, SHORT = 0.045, 0.1
# Covariates nearly determine the groups if these keep less: with .07, estimates were ten of their
# errors off, as second moments have a floor; with .13 they were right
GROUPS_LEFT = 0.1
# Mean x r' of groups that lie far apart: its prior is in this unit
IMBALANCE = 0.17
# Least second moment of whitened covariates
LEAST_MOMENT = 0.05
# What covariates explain, for many outcomes: prior mean and sd
R2_PRIOR = (0.2, 0.15)


class Balance(NamedTuple):
    """What makes w and covariates balance."""

    gamma: Array  # (p, q)
    imbalance: Array  # (p, q) of r and whitened covariates
    error: Array  # (p,) std of what is left of the imbalance of w


class Effects(NamedTuple):
    """Effects of whitened covariates, for one unit of each."""

    B: Array  # (p, K)
    error: Array  # (K,) its variance, as a share of that of an outcome
    leak: Array  # (K,) variance of T by what adjustment leaves, in squared sd of people
    R2: float  # what covariates explain, of many outcomes together


class _Whitening(NamedTuple):
    """Covariates by their first moments, in p directions of mean square near 1."""

    Li: Array  # (p, p)
    moments: Array  # (p,) expected mean squares
    unsure: Array  # (p,) square root of the error of a moment
    imbalance: Array  # (p, q) mean x r', shrunk
    error: Array  # (p,) its noise


class Adjusted(Placed):
    """Facts of one term up to the effects of covariates."""

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
    def _whitening(self) -> _Whitening:
        S, cross, _, noise = self._moments
        w = 0.1 / (0.1 + noise**2 * max(self.p, 3) / 3)
        values, Q = np.linalg.eigh(w * S + (1 - w) * 0.6 * np.eye(self.p))
        length = 1 / np.sqrt(np.maximum(values, max(0.04, w * noise)))
        cross = length[:, None] * (Q.T @ cross)
        each = noise / (math.sqrt(2) * GAMMA) * length / IMBALANCE
        imbalance, variance = population.posterior(cross / IMBALANCE, each**2)
        return _Whitening(
            Li=np.asarray(Q * length),
            moments=np.maximum(values * length**2, LEAST_MOMENT),
            unsure=length * math.hypot(w * noise, 0.5 * (1 - w)),
            imbalance=IMBALANCE * imbalance,
            error=IMBALANCE * np.sqrt(variance.mean(axis=1)),
        )

    @cached_property
    def moments(self) -> tuple[Array, float]:
        """Second moments V (p, p) of whitened covariates, and the mean error of their diagonal."""
        # What was expected of the first moments and the look at them, by their errors.
        if self.design:
            return self.design.moments
        first = self._whitening
        mean, noise = self.seen("moments")
        inside = population.ball(population.normals(4000, self.p), self.b)
        look = smat(mean) / self.pool / float((inside**2).mean())
        expected, prior = np.diag(first.moments), np.outer(first.unsure, first.unsure)
        kept = prior / (prior + noise**2 * max(self.p, 3) / 3)
        values, Q = np.linalg.eigh(expected + kept * (look - expected))
        error = np.sqrt(np.diag(kept) * noise**2)
        return np.asarray((Q * np.maximum(values, max(LEAST_MOMENT, error.mean()))) @ Q.T), float(
            error.mean()
        )

    @cached_property
    def limit(self) -> float:
        """Radius of whitened covariates in h and in effects: none, as these are linear."""
        # A column that was stretched by mistake fills its ball; then x lies in the ball everywhere.
        if self.design:
            return self.design.limit
        too_long = (self.stretch[: self.p] > WIDE_X) & (np.diag(self._moments[0]) > 2.5)
        return self.b if too_long.any() else math.inf

    @property
    def Li(self) -> Array:
        """Directions (p, p) in which covariates have a mean square near 1."""
        return self.design.Li if self.design else self._whitening.Li

    @cached_property
    def _least_correlation(self) -> float:
        """Least eigenvalue of the correlations of covariates; a short column agrees with none."""
        back = np.linalg.pinv(self.Li)
        S = back.T @ self.moments[0] @ back
        size = np.sqrt(np.maximum(np.diag(S), SHORT))
        C = S / np.outer(size, size)
        # Levels of a factor with a rare reference nearly agree, and it matters to few.
        np.fill_diagonal(C, np.where(self.public.ranges, 1.0, 1.0 + 2 * PARTLY))
        return float(np.linalg.eigvalsh(C)[0])

    @cached_property
    def _groups_left(self) -> float:
        """Least share of mean r^2, over directions of r, that covariates surely leave."""
        first, r = (self.design or self)._whitening, self.people[0]
        inverse = np.linalg.pinv(r.T @ r / len(r))
        share = first.imbalance / np.sqrt(first.moments)[:, None]
        explained = float(np.linalg.eigvals(inverse @ share.T @ share).real.max())
        unsure = (first.error**2 / first.moments).sum() * float(np.linalg.eigvalsh(inverse)[-1])
        return 1.0 - explained - math.sqrt(unsure)

    @cached_property
    def partly(self) -> bool:
        """Whether covariates nearly determine each other or the groups: adjustment is partial."""
        if not self.p:
            return False
        if not self.public.protected and self._groups_left < GROUPS_LEFT:
            return True
        V, error = self.moments
        # The least eigenvalue of 1 % of columns that do not agree, by simulation
        likely = 1 - error * (math.sqrt(2 * self.p) + 0.25 + 0.17 * self.p)
        least = self._least_correlation
        unclear = float(np.linalg.eigvalsh(V)[0]) < min(3 * error, likely) and least < 0.25
        return unclear or least < PARTLY

    # -- round 4: Gamma and effects --------------------------------------------------------------

    @cached_property
    def people(self) -> tuple[Array, Array, Counts]:
        """Public r, g (M, q) and sites (M,)."""
        if not self.public.protected:
            return population.public_people(self.public)
        square = self.z_square[0]
        if self.public.z_range:
            z = population.protected_people(self.M, square)
        else:
            share = min(max((1 + float(self.middle[-1])) / 2, 0.03), 0.97)
            z = population.protected_levels(self.M, square, share)
        site = np.repeat(np.arange(self.S), self.public.people)
        return z, z, site if len(site) else np.zeros(1, dtype=np.int64)

    @cached_property
    def z_left(self) -> float:
        """Share of mean z^2 that covariates leave."""
        if not self.p:
            return 1.0
        first = self._whitening
        explained = (first.imbalance[:, 0] ** 2 / np.maximum(first.moments, 0.25)).sum()
        return 1.0 - float(explained) / self.z_square[0]

    @cached_property
    def z_cut(self) -> float:
        """Cut of a protected w, in sd of what covariates leave of z."""
        noise = look_noise(self.public, moved(self.public, "contrast", self.rho), 0.4)
        return population.z_cut(noise * 1.8 * math.sqrt(self.K), 1 / math.sqrt(self.M))

    @cached_property
    def k(self) -> float | None:
        """Factor of a protected w."""
        if not self.public.protected:
            return None
        return population.W / (self.z_cut * math.sqrt(self.z_square[0] * max(self.z_left, 0.15)))

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

    def _people(self, imbalance: Array, moments: Array) -> Array:
        r, g, _ = self.people
        return population.ball(population.synthetic(r, g, imbalance, moments), self.limit)

    @cached_property
    def first_gamma(self) -> Array:
        """Gamma (p, q) of people by first moments; rather too small, as one step follows."""
        moments = np.diag(np.maximum(self._whitening.moments, 0.5))
        return population.solve(
            self.people[0], self._people(self._whitening.imbalance, moments), self.k
        )

    @cached_property
    def second_people(self) -> Array:
        """Covariates (M, p) of public people, with the moments that were found."""
        return self._people(self._whitening.imbalance, self.moments[0])

    @cached_property
    def shown(self) -> Array:
        """Imbalance (p, q) of w and whitened covariates in their ball, of public people."""
        x = self.second_people
        w = population.weight(self.people[0], x @ self.first_gamma, self.k)
        return np.asarray(population.ball(x, self.b).T @ w / self.M)

    @cached_property
    def adjusted(self) -> Balance:
        """Gamma after one step from what was measured to what public people show."""
        if self.design:
            return self.design.adjusted
        first, (r, _, _), gamma, k = self._whitening, self.people, self.first_gamma, self.k or 1.0
        x = self.second_people
        w, inside = population.weight(r, x @ gamma, self.k), population.ball(x, self.b)
        mean, noise = self.seen("balance")
        size = float((gamma**2).sum())
        wrong = k**2 * (first.error**2 + self.moments[1] ** 2 * size)[:, None]
        kept = wrong / (wrong + noise**2)
        step = kept * (mean.reshape(self.p, self.q) - self.shown)
        free = population.unclipped(r, x @ gamma, w, self.k)
        slope = inside[free].T @ x[free] / self.M + 1e-3 * np.eye(self.p)
        gamma = gamma + np.linalg.solve(slope, step) / k
        lost = float((x**2).sum() / (inside * x).sum())
        square = self.z_square[0] if self.public.protected else 0.25
        wider = 1 + 2.5 * float((gamma**2).sum()) / square
        left = noise * np.sqrt(kept[:, 0] * wider) * lost
        return Balance(gamma, first.imbalance + step / k, left)

    @cached_property
    def x_people(self) -> Array:
        return self._people(self.adjusted.imbalance, self.moments[0])

    @property
    def effects_radius(self) -> float:
        return 1.8 if self.K == 1 else 1.3 * math.sqrt(self.K)

    @cached_property
    def effects(self) -> Effects:
        """What covariates do, and what of it is left."""
        K, p = self.K, self.p
        if not p:
            return Effects(np.zeros((0, K)), np.zeros(K), np.zeros(K), 0.0)
        values, Q = np.linalg.eigh(self.moments[0])
        # Imbalance that is left, in directions of mean square 1
        left = Q.T**2 @ self.adjusted.error**2 / values
        if not self.plan.asks("effects"):
            usual = np.full(K, R2_PRIOR[0])
            return Effects(np.zeros((p, K)), usual, usual * left.mean(), R2_PRIOR[0])
        mean, noise = self.seen("effects")
        if self.few:
            x = self.x_people @ Q
            slope = (population.ball(x, self.b) * x).sum(axis=0) / np.maximum(
                (x**2).sum(axis=0), 1e-9
            )
            scale = 0.93 * self.pool * slope * np.sqrt(values)
            T = Q.T @ mean.reshape(p, K) / scale[:, None]
            B, error = population.posterior(T, (noise / scale) ** 2 + 1.0 / self.M)
            unsure = np.minimum(self.moments[1] / values, 1.0)[:, None]
            leak = ((error + unsure**2 * (B**2 + error)) * left[:, None]).sum(axis=0)
            return Effects(Q @ (B / np.sqrt(values)[:, None]), error.sum(axis=0), leak, 0.0)
        each = self.M / self.n_pairs
        kept = R2_PRIOR[1] ** 2 / (R2_PRIOR[1] ** 2 + (noise * each) ** 2)
        R2 = R2_PRIOR[0] + kept * (float(mean[0]) * each / self.pool - R2_PRIOR[0])
        R2 = min(max(R2, 0.03), 0.8)
        return Effects(np.zeros((p, K)), np.full(K, R2), np.full(K, R2 * left.mean()), R2)

    @property
    def n_pairs(self) -> int:
        return max(int((self.public.counts // 2).sum()), 1)
