"""Difference of two groups in K outcomes, adjusted for covariates: the estimator.

The statistic is T = mean (r - h) v.  The weight r codes a person's group
(`cape.algorithms.group_design`).  The outcomes v are centred, in units of their scale, without the
effects of covariates, and clipped to a ball of radius C.  h = lam gamma'x, clipped to [-w_x, w_x],
adjusts the weights for the covariates x.  Numbers in brackets are sections of
docs/group-comparison.md, which has the design and all formulas.

Every look (release) is asked in units of its own bound, so its planned clip is 1, whatever was
released before.  Terms that are no sum over persons are a site's own part (`SubjectQuery.part`):

- [3] In T, - n R(mean -h) Y(mean v) removes what h shares with the site.  R and Y are projections
  onto parts of their balls.
- [7] In the strict form only the range of the question is public, r = a / 2A, and every look with r
  has such a part.

A person's row holds K outcomes, p covariates (public units, spread near 1) and r.  NaN marks a
missing outcome or covariate, and the r of a person in neither group; such a person adds zeros.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cape.algorithms.estimators import (
    NO_STEP,
    Array,
    Data,
    OneRelease,
    PlannedRelease,
    ReleaseStatus,
    StepRecord,
    SubjectQuery,
    clip_rows,
    step_record,
)
from cape.algorithms.group_design import Groups
from cape.algorithms.linalg import above_diagonal, smat
from cape.algorithms.significance import benjamini_hochberg, holm, two_sided_p
from cape.errors import MessageError
from cape.frozen import dataclass

# Maximum of outcomes with an effects look; above it, the look costs more than covariates explain.
MAX_PLANNED = 8
# Maximum of outcomes for which the whole Jacobian of the clip is asked; above it, only its trace.
MAX_WHOLE_JACOBIAN = 64

# [4] Shares of mu^2.  `design`: 3/4 for c_x, 1/4 for S_xx.  `jacobian`: one half before the
# effects; for K > 1 .7 of the rest for the matrix and .3 for the mean.
SHARES_FEW = {"scale": 0.03, "centre": 0.05, "design": 0.10, "effects": 0.22, "jacobian": 0.03,
              "squares": 0.05, "contrast": 0.52}  # fmt: skip
SHARES_MANY = {"centre": 0.07, "design": 0.11, "jacobian": 0.03, "squares": 0.04, "contrast": 0.75}
SHARES_STRICT = {"scale": 0.03, "centre": 0.05, "design": 0.14, "separation": 0.08, "effects": 0.20,
                 "jacobian": 0.03, "squares": 0.04, "contrast": 0.43}  # fmt: skip
SPREAD_SHARE = 0.06  # [8] taken from the share of the contrast

# [5, 6] Public priors: shares of an outcome's variance explained by all covariates, by each
# covariate of a found pattern, and by site means; factor on the variance that adjustment leaves.
R2, R2_FOUND, SITE_R2, ALLOW = 0.15, 0.3, 0.15, 1.2

# [3, 7] Radii of R and Y, as fractions of the balls they project onto.  In the public form a
# smaller Y would not lower `contrast_bound`.
R_PUBLIC, Y_PUBLIC = 0.4, 1.0
R_STRICT, Y_STRICT = 0.6, 0.6
# `strict_factor` for these radii: 1 + max(R, Y); and the maximum over t, 1.647, rounded up
STRICT_ONE, STRICT_MORE = 1.6, 1.65
# Bound of r^2 in the strict form: |r' - r| |r' + r - rho (R + R')| with |r' - r| + |r' + r| <= 1
# and |R + R'| <= R_STRICT
SEPARATION_BOUND = (1.0 + R_STRICT) ** 2 / 8

# [4] Covariates are clipped to their public norm, or to this norm if the noise is large.
SHORT_COVARIATES = 2.2
# Edges of the histogram of |u|, in steps of half an octave, in units of the outcome
OCTAVES = 2.0 ** (0.5 * np.arange(12) - 2.0)
HALF_NORMAL = 0.6745  # median of |z|
# [8] sd of effects between sites, in sd, that the spread look can represent
LIKELY_SPREAD = 0.2
# Maximum of |x| for any number x of a state
MAX_NUMBER = 1e30


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contrasted:
    """State of `Contrast`: released quantities; those not yet released have neutral values."""

    looks: int  # releases folded so far
    scale: Array  # (K,) public units
    centre: Array  # (K,) c, public units
    radius: float  # C, in scales
    imbalance: Array  # (p,) c_x, shrunk
    kept: float  # J: factor of that shrinkage
    moments: Array  # (p, p) S_xx
    separation: float  # D before adjustment
    slope: float  # of the clip, before the effects are known
    effects: Array  # (p, K) B, in scales
    effect_error: Array  # (p,) error variance of a row of B
    gamma: Array  # (p,) S_xx^-1 c_x
    lam: float
    reach: float  # w_x, bound of |h|
    adjusted: float  # D after adjustment
    leak: float  # variance that imperfect adjustment may leave in T / slope
    total: Array  # (K,) T
    pull: Array  # loss to the clip by direction: svec (K, K), or its trace
    kappa: float  # mean factor of the clip
    squares: Array  # (K,) mean ((r - h) v)^2
    spread: float  # between sites
    noise: Array  # (looks,) std of the noise of each release, in its units
    status: ReleaseStatus
    record: StepRecord


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Estimates:
    """Estimates of K outcomes and their errors, in the units of the outcomes."""

    estimate: Array  # (K,) difference of the groups; strict: per unit of r
    sd: Array  # (K,) within groups
    # (K,) standard errors: under the null, its four components, and that of the interval
    se: Array
    se_sampling: Array
    se_privacy: Array
    se_adjustment: Array
    se_sites: Array  # 0 unless the answer is for sites like these
    se_interval: Array

    @property
    def d(self) -> Array:
        return np.asarray(self.estimate / self.sd)

    @property
    def p(self) -> Array:
        return two_sided_p(self.estimate, self.se)

    @property
    def p_holm(self) -> Array:
        return holm(self.p)

    @property
    def q_bh(self) -> Array:
        return benjamini_hochberg(self.p)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _People:
    """Columns of a stack; zeros (except r) for people with a missing value."""

    u: Array  # (n, K)
    x: Array  # (n, p)
    r: Array  # (n,)
    counted: Array  # (n,) 1 for people with all values, else 0
    n_people: int  # public number of people in the two groups; strict form: of all people


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Look:
    """One release: `bound` makes the clip 1."""

    name: str
    size: int
    shape: Any
    share: float  # of mu^2
    bound: Callable[[Contrast, Contrasted], float]
    rows: Callable[[Contrast, Contrasted, _People], Array] | None
    fold: Callable[[Contrast, Contrasted, Array, float], Contrasted]
    part: Callable[[Contrast, Contrasted, _People], Array] | None = None


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Contrast(OneRelease[Contrasted]):
    """The looks of one question, in order: an estimator of `cape.algorithms.estimators`."""

    scales: tuple[float, ...]  # (K,) public unit of each outcome; for K = 1 a look asks the scale
    covariates: tuple[float, ...]  # (p,) maximum of |x_j|: half its range in public units
    groups: Groups  # the people who are asked
    everybody: int  # number of people in a released mean, with those who are not asked
    found: bool = False  # the outcome is a pattern found in the other half
    strict: bool = False
    random: bool = False  # [8] the answer is for sites like these: the spread look (K = 1)
    # (looks,) planned std of the noise on an entry of each mean, for a clip of 1
    noise: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        few = not (self.strict or self.found) or len(self.scales) <= MAX_PLANNED
        if not self.scales or not few or (self.random and (len(self.scales) > 1 or self.strict)):
            raise ValueError("no such question")

    @property
    def n_outcomes(self) -> int:
        return len(self.scales)

    @property
    def looks(self) -> tuple[_Look, ...]:
        return _looks(self)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        return tuple(
            PlannedRelease(size=look.size, clip=1.0, shape=look.shape, weight=look.share)
            for look in self.looks
        )

    def start(self, rows: int) -> Contrasted:
        K, p = self.n_outcomes, len(self.covariates)
        # Never 0: in one half of the sites, no site may have both groups.
        D = 0.25 if self.strict else max(self.groups.mean_separation, 1e-3)
        return Contrasted(
            looks=0,
            scale=np.array(self.scales),
            centre=np.zeros(K),
            radius=1.0,
            imbalance=np.zeros(p),
            kept=0.0,
            moments=np.eye(p),
            separation=D,
            slope=1.0,
            effects=np.zeros((p, K)),
            effect_error=np.full(p, R2 / max(p, 1)),
            gamma=np.zeros(p),
            lam=0.0,
            reach=0.0,
            adjusted=D,
            leak=0.0,
            total=np.zeros(K),
            pull=np.zeros(K * (K + 1) // 2 if K <= MAX_WHOLE_JACOBIAN else 1),
            kappa=1.0,
            squares=np.ones(K),
            spread=0.0,
            noise=np.zeros(len(self.looks)),
            status="waiting",
            record=NO_STEP,
        )

    def query(self, state: Contrasted) -> SubjectQuery:
        _check(self, state)
        look = self.looks[state.looks]
        bound, of_site = look.bound(self, state), look.part

        def answer(stack: Data) -> Array:
            people = _people(self, stack)
            if look.rows is None:
                return np.zeros((len(stack), look.size))
            rows = look.rows(self, state, people)
            return np.asarray(rows * (people.counted / bound)[:, None])

        return SubjectQuery(
            size=look.size,
            clip=1.0,
            shape=look.shape,
            answer=answer,
            part=of_site and (lambda stack: of_site(self, state, _people(self, stack)) / bound),
        )

    def step(self, state: Contrasted, mean: Array, noise_std: float) -> Contrasted:
        look = self.looks[state.looks]
        # People who are not asked add zeros: the mean over those who are asked is larger.
        scale = look.bound(self, state) * self.everybody / self.groups.n
        noise = state.noise.copy()
        noise[state.looks] = noise_std * scale
        after = look.fold(self, replace(state, noise=noise), mean * scale, noise_std * scale)
        record = step_record(mean, noise_std, step_norm=0.0)
        return replace(after, looks=state.looks + 1, status="released", record=record)

    def done(self, state: Contrasted) -> bool:
        return state.looks >= len(self.looks) or state.status == "budget_exhausted"

    def planned(self, name: str) -> float:
        """Planned std of the noise on a mean over the people asked, for a clip of 1."""
        if not self.noise:
            return 0.0
        return self.noise[self._place(name)] * self.everybody / self.groups.n

    def released(self, state: Contrasted, name: str) -> float:
        """Std of the noise of a release, in its units."""
        return float(state.noise[self._place(name)])

    def _place(self, name: str) -> int:
        return [look.name for look in self.looks].index(name)

    @property
    def covariate_norm(self) -> float:
        """b, the norm to which covariates are clipped."""
        norm = float(np.sqrt(np.sum(np.square(self.covariates))))
        factor = strict_factor(len(self.covariates)) if self.strict else 1.0
        return norm if norm / 2 * factor * self.planned("imbalance") < 0.05 else SHORT_COVARIATES


def _check(question: Contrast, state: Contrasted) -> None:
    """Raise MessageError for a state that no release gives, such as one with a bound near 0."""
    numbers = (np.abs(getattr(state, spec.name)) for spec in dataclasses.fields(state)[1:-2])
    looks, radius, reach = state.looks, state.radius, state.reach
    possible = 0 <= looks < len(question.looks) and radius >= 1e-3 and 0.0 <= reach <= 0.5
    # Larger numbers would overflow for some people, and a failure would then depend on data.
    if not possible or not all(np.all(size <= MAX_NUMBER) for size in numbers):
        raise MessageError("E202", problem="a comparison in a state that no release gives")


def projected_part(z: float, v: Array, n: int, z_radius: float, v_radius: float) -> Array:
    """Return - n R(mean z) Y(mean v) of a site, for sums z and v (K,) over its n people.

    R and Y are projections onto balls of these radii, so they never stretch.
    """
    if not n:
        return np.zeros(len(v))
    mean = clip_rows(v[None] / n, v_radius)[0]
    return np.asarray(-n * np.clip(z / n, -z_radius, z_radius) * mean)


# -- one person ------------------------------------------------------------------------------------


def _people(question: Contrast, stack: Data) -> _People:
    K, p = question.n_outcomes, len(question.covariates)
    rows = np.asarray(stack, dtype=np.float64).reshape(len(stack), -1)
    if rows.shape[1] != K + p + 1:
        raise ValueError(f"a person has {rows.shape[1]} numbers, needed {K + p + 1}")
    # People with a missing outcome keep r, so that the public form does not reveal who they are.
    n_people = len(rows) if question.strict else int(np.isfinite(rows[:, -1]).sum())
    r = np.clip(np.nan_to_num(rows[:, -1]), -0.5, 0.5)
    counted = np.all(np.isfinite(rows), axis=1)
    rows = np.where(counted[:, None], rows, 0.0)
    x = np.clip(rows[:, K : K + p], -np.array(question.covariates), question.covariates)
    return _People(
        u=rows[:, :K],
        x=clip_rows(x, question.covariate_norm) if p else x,
        r=r,
        counted=counted.astype(np.float64),
        n_people=n_people,
    )


def _cut(question: Contrast, state: Contrasted, people: _People) -> tuple[Array, Array]:
    """Return v (n, K) and the factors (n,) of the clip."""
    rest = (people.u - state.centre) / state.scale - people.x @ state.effects
    v = clip_rows(rest, state.radius) * people.counted[:, None]
    norm = np.sqrt(np.einsum("ij,ij->i", rest, rest))
    return v, np.minimum(1.0, state.radius / np.maximum(norm, 1e-12))


def _weights(question: Contrast, state: Contrasted, people: _People) -> tuple[Array, Array]:
    """Return r - h and h, (n,) each."""
    h = np.clip(state.lam * (people.x @ state.gamma), -state.reach, state.reach)
    return people.r - h, h


def _octave(question: Contrast, state: Contrasted, people: _People) -> Array:
    """Return the bin of |u - c| of each person as an indicator, (n, bins)."""
    distance = np.abs(people.u[:, 0] - state.centre[0]) / question.scales[0]
    bin_of = np.searchsorted(OCTAVES, distance)
    return np.asarray(np.eye(len(OCTAVES) + 1)[bin_of])


def _moments(question: Contrast, state: Contrasted, people: _People) -> Array:
    return _outer(people.x)


def _outer(rows: Array) -> Array:
    """Return `svec` of the outer product of each row with itself, without the matrices."""
    i, j = above_diagonal(rows.shape[1])
    return np.hstack([rows**2, np.sqrt(2.0) * rows[:, i] * rows[:, j]])


def _inside(question: Contrast, state: Contrasted, people: _People) -> Array:
    """Return the mean slope of each person's clip less 1/2, (n, 1)."""
    k, K = _cut(question, state, people)[1], question.n_outcomes
    return np.asarray(np.where(k < 1.0, k * (1.0 - 1.0 / K), 1.0)[:, None] - 0.5)


def _effects(question: Contrast, state: Contrasted, people: _People) -> Array:
    v, _ = _cut(question, state, people)
    return np.asarray((people.x[:, :, None] * v[:, None, :]).reshape(len(v), -1))


def _contrast(question: Contrast, state: Contrasted, people: _People) -> Array:
    v, _ = _cut(question, state, people)
    return np.asarray(_weights(question, state, people)[0][:, None] * v)


def _pull(question: Contrast, state: Contrasted, people: _People) -> Array:
    """Return what each person's clip loses along v, as svec or, less 1/2, as one number."""
    v, k = _cut(question, state, people)
    if question.n_outcomes > MAX_WHOLE_JACOBIAN:
        return np.asarray(np.where(k < 1.0, k, 0.0)[:, None] - 0.5)
    unit = v / np.maximum(np.sqrt(np.einsum("ij,ij->i", v, v)), 1e-12)[:, None]
    unit = unit * np.sqrt(np.where(k < 1.0, k, 0.0))[:, None]
    return _outer(unit)


def _kappa(question: Contrast, state: Contrasted, people: _People) -> Array:
    return np.asarray(_cut(question, state, people)[1][:, None] - 0.5)


def _squares(question: Contrast, state: Contrasted, people: _People) -> Array:
    squares = _contrast(question, state, people) ** 2
    bound = _squares_bound(question, state)
    # Centring the square of one outcome halves its bound.
    return squares - bound if question.n_outcomes == 1 else clip_rows(squares, bound)


# -- the part of a site ----------------------------------------------------------------------------


def _imbalance_part(question: Contrast, state: Contrasted, people: _People) -> Array:
    r = float(people.r @ people.counted)
    x, b = people.x.T @ people.counted, question.covariate_norm
    return projected_part(r, x, people.n_people, 0.5 * R_STRICT, Y_STRICT * b)


def _separation_part(question: Contrast, state: Contrasted, people: _People) -> Array:
    r = float(people.r @ people.counted)
    return projected_part(r, np.array([r]), people.n_people, 0.5 * R_STRICT, 0.5 * R_STRICT)


def _contrast_part(question: Contrast, state: Contrasted, people: _People) -> Array:
    v, _ = _cut(question, state, people)
    weight, h = _weights(question, state, people)
    if question.strict:
        z, z_radius = float(weight @ people.counted), R_STRICT * (0.5 + state.reach)
    else:
        z, z_radius = -float(h @ people.counted), R_PUBLIC * state.reach
    v_radius = (Y_STRICT if question.strict else Y_PUBLIC) * state.radius
    return projected_part(z, v.sum(axis=0), people.n_people, z_radius, v_radius)


def _spread_part(question: Contrast, state: Contrasted, people: _People) -> Array:
    """[8] Return n min((t - T D_s / D)^2, L^2) of a site, (1,)."""
    n = people.n_people
    if not n or not np.ptp(people.r):
        return np.zeros(1)
    total = _contrast(question, state, people).sum(axis=0)
    t = (total + _contrast_part(question, state, people))[0] / n
    # The public weights of the site give D_s = mean r^2 / w_s.
    D_s = float(np.sum(people.r**2) / np.ptp(people.r)) / n
    deviation = t - state.total[0] * D_s / question.groups.mean_separation
    limit = _spread_limit(question, state) ** 2
    return np.array([n * (min(deviation**2, limit))])


# -- bounds: half of the distance that one person can move a sum -----------------------------------


def _constant(value: float) -> Callable[[Contrast, Contrasted], float]:
    return lambda question, state: value


def _imbalance_bound(question: Contrast, state: Contrasted) -> float:
    factor = strict_factor(len(question.covariates)) if question.strict else 1.0
    return question.covariate_norm / 2 * factor


def strict_factor(size: int) -> float:
    """Return F: one person moves sum z v - n R(mean z) Y(mean v), |z|, |v| <= 1, by at most 2 F.

    The part moves by R' P dv + rho Y dz, rho in [0, 1].  P is a mean of derivatives of a
    projection: symmetric, 0 <= P <= I.  z'v' - z v - rho Y dz is convex in z and z', so its maximum
    is at z, z' = +-1.  Equal signs give 2 (1 + R).  Opposite signs, v and v' at an angle of 2 t,
    give 2 (cos t + Y) along v + v' and, as P = (I + N) / 2 with |N| <= 1, R sin t across it and R
    sin t in any direction.  For a single number t = 0.
    """
    return STRICT_ONE if size == 1 else STRICT_MORE


def contrast_bound(question: Contrast, state: Contrasted) -> float:
    """Return half of the distance that one person can move T.  Strict: F (1/2 + w_x) C.

    Public, in units of C, with a = r - h and the same r: a'v' - a v + rho Y (a - a') is at most |a|
    + |a'| + Y |a - a'|.  This is 2 (1/2 + w_x) if a and a' have one sign, as Y <= 1, else 2 (1 + Y)
    w_x.  R' dY is at most 2 R w_x.  The two cases are not added, because they exclude each other
    [4].
    """
    w = state.reach
    if question.strict:
        return (0.5 + w) * strict_factor(question.n_outcomes) * state.radius
    return (max(0.5 + w, (1.0 + Y_PUBLIC) * w) + R_PUBLIC * w) * state.radius


def _squares_bound(question: Contrast, state: Contrasted) -> float:
    K = question.n_outcomes
    square = ((0.5 + state.reach) * state.radius) ** 2
    return float(square / 2 if K == 1 else square * min(1.0, 1.75 / np.sqrt(K)))


def _spread_limit(question: Contrast, state: Contrasted) -> float:
    groups, sites = question.groups, len(question.groups.people)
    D = groups.mean_separation
    limit = 2.0 * np.sqrt(state.squares[0] * sites / groups.n + (LIKELY_SPREAD * D) ** 2)
    # No mean of a site deviates by more, and a site's part then fits the integers of its people.
    return float(min(limit, 2.0 * contrast_bound(question, state)))


# -- folding a release into the state --------------------------------------------------------------


def _fold_scale(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    """Set the scale: the median of |u|, read off its histogram, as a standard deviation."""
    # The shares add up to 1, so each cumulative share follows from the sum below it and from the
    # sum above it; the sum with fewer terms has less noise and weighs more.  The result is made to
    # rise.  Dividing by the largest noisy sum made scales 8 % too large.
    terms = np.arange(len(mean), 0, -1.0) - 1.0
    above = 1.0 - (np.cumsum(mean[::-1])[::-1] - mean)
    share = (terms * np.cumsum(mean) + (len(mean) - terms) * above) / len(mean)
    falling = np.minimum.accumulate(share[::-1])[::-1]
    share = (np.maximum.accumulate(share) + falling) / 2
    i = min(max(int(np.searchsorted(share, 0.5)), 0), len(OCTAVES) - 1)
    below, low = (share[i - 1], OCTAVES[i - 1]) if i else (0.0, OCTAVES[0] / np.sqrt(2.0))
    fraction = np.clip((0.5 - below) / max(share[i] - below, 1e-9), 0.0, 1.0)
    unit = question.scales[0]
    scale = float(low + (OCTAVES[i] - low) * fraction) / HALF_NORMAL * unit
    if state.looks:  # the second scale look, around the centre
        first = float(state.scale[0])
        scale = float(np.clip(scale, 0.2 * first, 1.2 * first))
    else:
        scale = float(np.clip(scale, 0.25 * unit, 8.0 * unit))
    return replace(state, scale=np.array([scale]))


def _fold_centre(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    """Shrink the centre by its known noise (James-Stein), and choose the radius C."""
    K = question.n_outcomes
    if K == 1:
        mean, error, base = np.clip(mean, -1.5, 1.5), 0.0, 1.4
    else:
        kept = max(0.0, 1.0 - max(K - 2, 0.5) * std**2 / float(mean @ mean))
        mean, base = kept * mean, 1.2 if K <= MAX_PLANNED else 1.0
        error = min(0.75, kept * std**2 + (0.0 if kept > 0 else 0.75))
    # A wider ball costs noise.  It is free if that noise is well below the sampling error.
    wide, noise = base, question.planned("contrast")
    noise *= strict_factor(K) if question.strict else 1.0
    for factor in (1.25, 1.5, 1.8, 2.2):
        if noise / 2 * base * factor * np.sqrt(K) < 0.3 / np.sqrt(question.groups.n):
            wide = base * factor
    return replace(state, centre=mean * state.scale, radius=float(wide * np.sqrt(K * (1 + error))))


def _fold_imbalance(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    kept = max(0.0, 1.0 - max(len(mean) - 2, 1) * std**2 / max(float(mean @ mean), 1e-300))
    return replace(state, imbalance=kept * mean, kept=kept)


def _moments_weight(std: float) -> float:
    return 0.1 / (0.1 + std**2)


def _fold_moments(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    w, p = _moments_weight(std), len(question.covariates)
    values, Q = np.linalg.eigh(w * smat(mean) + (1 - w) * 0.9 * np.eye(p))
    S = np.asarray((Q * np.maximum(values, 0.3)) @ Q.T)
    return _adjusted(question, replace(state, moments=S))


def _fold_separation(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    D = float(np.clip(mean[0] + 0.125, 0.02, 0.25))
    return _adjusted(question, replace(state, separation=D, adjusted=D))


def _fold_effects(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    """[5, 6] Set B = S_xx^-1 T_x / slope, shrunk by its known noise, and its remaining error."""
    K, p, sites = question.n_outcomes, len(question.covariates), len(question.groups.people)
    inverse, slope = np.linalg.inv(state.moments), state.slope
    B = inverse @ mean.reshape(p, K) / slope
    n = question.groups.n
    noise = (std**2 + 1.0 / n) / slope**2 + SITE_R2 / (4 * sites)
    noise *= float(np.trace(inverse @ inverse)) / p
    if question.found or question.strict:  # one prior for each covariate
        prior = np.maximum(R2_FOUND if question.found else R2 / p, np.mean(B**2, axis=1) - noise)
        known = noise
    else:
        prior = np.full(p, max(R2 / p, float(np.mean(B**2)) - noise))
        known = 0.0
    B = B * (prior / (prior + noise))[:, None]
    std_moments, std_slope = question.released(state, "moments"), question.released(state, "slope")
    w = _moments_weight(std_moments)
    relative = (std_slope / slope) ** 2 + (w * std_moments) ** 2 + (0.2 * (1 - w)) ** 2
    error = prior * noise / (prior + noise)
    error = error + relative * np.maximum(np.mean(B**2, axis=1) - known, 0.0)
    return _adjusted(question, replace(state, effects=B, effect_error=error))


def _adjusted(question: Contrast, state: Contrasted) -> Contrasted:
    """[5] Choose lam, the strength of the adjustment, with the smallest known error over D^2."""
    c = state.imbalance
    if not len(c):
        return state
    gamma = np.asarray(np.linalg.solve(state.moments, c), dtype=np.float64)
    along = float(gamma @ c)
    amplitude = float(np.sqrt(max(along, 0.0)))
    std = question.released(state, "imbalance")
    top = min((2.2 if std > 0.02 and not question.strict else 3.2) * amplitude, 0.5)
    noise, n = question.planned("contrast"), question.groups.n
    unsure = std**2 * (state.kept if state.kept > 0 else 1.0)
    # Without an effects look, the prior is the error of the sum over covariates.
    few = question.n_outcomes <= MAX_PLANNED
    error = state.effect_error if few else np.full(len(c), R2)
    sampling = (state.separation if question.strict else 0.25) / n
    smallest, best = np.inf, state
    for lam in np.linspace(0.0, 1.0, 11):
        D = max(state.separation - lam * along, 0.015 if question.strict else 0.05)
        leak = (1 - lam) ** 2 * float(error @ (c**2 + unsure))
        leak += lam**2 * std**2 * (float(error.sum()) if few else R2)
        leak *= ALLOW
        trial = replace(
            state, gamma=gamma, lam=float(lam), reach=float(lam * top), adjusted=D, leak=leak
        )
        noisy = contrast_bound(question, trial) * noise
        if (variance := (noisy**2 + leak + sampling) / D**2) < smallest:
            smallest, best = variance, trial
    return best


def _fold_squares(question: Contrast, state: Contrasted, mean: Array, std: float) -> Contrasted:
    """Shrink the squares towards their mean by their known noise."""
    K = question.n_outcomes
    limit = ((0.5 + state.reach) * state.radius) ** 2 / K
    if K == 1:
        mean = mean + limit / 2
    pool = float(np.clip(mean.mean() + std / np.sqrt(K), 0.02 * limit, limit))
    true = max(float(np.var(mean)) - std**2, 0.0)
    kept = true / (true + std**2) if true else 0.0
    squares = np.maximum(pool + kept * (mean - mean.mean()), (0.4 if K > 1 else 1.0) * pool)
    return replace(state, squares=squares)


# -- the table of looks ----------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _looks(question: Contrast) -> tuple[_Look, ...]:
    K, p, strict = question.n_outcomes, len(question.covariates), question.strict
    few = K <= MAX_PLANNED
    share = dict(SHARES_STRICT if strict else SHARES_FEW if few else SHARES_MANY)
    if K > 1 and few:
        share["contrast"] += share.pop("scale")
    if question.random:
        share["contrast"] -= SPREAD_SHARE
    if not p:
        share["contrast"] += share.pop("design") + share.pop("effects", 0.0)
    # Half of the share is for the slope, which is asked before the effects [4].
    after = share["jacobian"] * (0.5 if few and p else 1.0)
    one, half = _constant(1.0), _constant(0.5)
    radius = 2.0 if K == 1 else float(1.35 * np.sqrt(K) * (1.2 if few else 1.0))
    looks: list[_Look] = []

    def look(name: str, size: int, shape: str, weight: float, **how: Any) -> None:
        looks.append(_Look(name=name, size=size, shape=shape, share=weight, **how))

    def scale_look(name: str) -> None:
        look(name, len(OCTAVES) + 1, "psd", share["scale"] / 2,
             rows=_octave, fold=_fold_scale, bound=one)  # fmt: skip

    if K == 1:
        scale_look("scale")
    look("centre", K, "ball", share["centre"], bound=_constant(radius), fold=_fold_centre,
         rows=lambda _, state, people: clip_rows(people.u / state.scale, radius))  # fmt: skip
    if K == 1:
        scale_look("rescale")
    if p:
        look("imbalance", p, "ball", 0.75 * share["design"],
             rows=lambda _, state, people: people.r[:, None] * people.x,
             fold=_fold_imbalance, bound=_imbalance_bound,
             part=_imbalance_part if strict else None)  # fmt: skip
        look("moments", p * (p + 1) // 2, "psd", 0.25 * share["design"],
             rows=_moments, fold=_fold_moments,
             bound=lambda question, state: question.covariate_norm**2)  # fmt: skip
    if strict:
        look("separation", 1, "ball", share["separation"],
             rows=lambda _, state, people: people.r[:, None] ** 2 - 0.125,
             fold=_fold_separation, bound=_constant(SEPARATION_BOUND),
             part=_separation_part)  # fmt: skip
    if p and few:
        look("slope", 1, "ball", 0.5 * share["jacobian"], rows=_inside, bound=half,
             fold=lambda _, state, mean, std: replace(
                 state, slope=float(np.clip(mean[0] + 0.5, 0.4, 1.0))))  # fmt: skip
        look("effects", p * K, "ball", share["effects"], rows=_effects, fold=_fold_effects,
             bound=lambda question, state: question.covariate_norm * state.radius)  # fmt: skip
    look("contrast", K, "ball", share["contrast"], rows=_contrast, part=_contrast_part,
         bound=contrast_bound,
         fold=lambda _, state, mean, std: replace(state, total=mean))  # fmt: skip
    if K > 1:
        whole = K <= MAX_WHOLE_JACOBIAN
        look("pull", K * (K + 1) // 2 if whole else 1, "psd" if whole else "ball", 0.7 * after,
             rows=_pull, bound=one if whole else half,
             fold=lambda _, state, mean, std: replace(state, pull=mean))  # fmt: skip
    look("kappa", 1, "ball", after if K == 1 else 0.3 * after, bound=half,
         rows=_inside if K == 1 else _kappa,
         fold=lambda _, state, mean, std: replace(
             state, kappa=float(mean[0] + 0.5)))  # fmt: skip
    look("squares", K, "psd" if K > 1 else "ball", share["squares"],
         rows=_squares, fold=_fold_squares, bound=_squares_bound)  # fmt: skip
    if question.random:
        look("spread", 1, "ball", SPREAD_SHARE, rows=None, part=_spread_part,
             bound=lambda question, state: (
                 2.0 * _spread_limit(question, state) * contrast_bound(question, state)),
             fold=lambda _, state, mean, std: replace(
                 state, spread=float(mean[0])))  # fmt: skip
    return tuple(looks)


# -- the answer ------------------------------------------------------------------------------------


def estimates(question: Contrast, state: Contrasted) -> Estimates:
    """[5] Return beta = J^-1 T / D and its errors, in the units of the outcomes."""
    K, n, D = question.n_outcomes, question.groups.n, state.adjusted
    noise = question.released(state, "contrast") ** 2
    relative = 0.0  # relative error of the slope and, in the strict form, of D: for the interval
    if K == 1:
        slope = float(np.clip(state.kappa, 0.3, 1.0))
        inverse = np.array([[1.0 / slope]])
        relative = (question.released(state, "kappa") / slope) ** 2
        if question.strict:
            relative += (question.released(state, "separation") / D) ** 2
        square = 1.0 if not question.strict else D
        share = np.ones(1)
    else:
        inverse = np.linalg.inv(_jacobian(question, state))
        square = D if question.strict else question.groups.mean_square
        # Imperfect adjustment leaves a share of each outcome's own variance.
        share = np.maximum(state.squares / square, 1.0)
    weights = inverse**2
    sampling = weights @ (state.squares / n) / D**2
    privacy = weights @ np.full(K, noise) / D**2
    adjustment = state.leak * share / D**2
    sites = np.zeros(K)
    if question.random:
        tau2 = _between(question, state, noise, slope)
        sites = np.array([tau2 * question.groups.effective_sites])
    var = sampling + privacy + adjustment + sites
    beta = inverse @ state.total / D
    wider = var + np.maximum(beta**2 - var, 0.0) * relative
    sd = state.scale * (np.sqrt(share) if K > 1 else 1.0)
    if K == 1:  # The scale is that around one centre, and so holds the difference itself.
        between = state.separation if question.strict else question.groups.between
        sd = sd * np.sqrt(np.maximum(1.0 - between * np.maximum(beta**2 - var, 0.0), 0.25))
    return Estimates(
        estimate=state.scale * beta,
        sd=sd,
        se=state.scale * np.sqrt(var),
        se_sampling=state.scale * np.sqrt(sampling),
        se_privacy=state.scale * np.sqrt(privacy),
        se_adjustment=state.scale * np.sqrt(adjustment),
        se_sites=state.scale * np.sqrt(sites),
        se_interval=state.scale * np.sqrt(wider),
    )


def _jacobian(question: Contrast, state: Contrasted) -> Array:
    """Return the mean Jacobian of the clip (K, K): mean kappa I less the loss along each v."""
    K = question.n_outcomes
    if K > MAX_WHOLE_JACOBIAN:
        W = np.eye(K) * max(state.pull[0] + 0.5, 0.0) / K
    else:
        W, std = smat(state.pull), question.released(state, "pull")
        even = np.eye(K) * float(np.trace(W)) / K
        true = max(float(np.mean((W - even) ** 2)) - std**2 / 2, 0.0)
        W = even + true / (true + std**2 / 2 + 1e-300) * (W - even)
    J = np.clip(state.kappa, 0.3, 1.0) * np.eye(K) - W
    values, Q = np.linalg.eigh((J + J.T) / 2)
    return np.asarray((Q * np.clip(values, 0.3, 1.0)) @ Q.T)


def _between(question: Contrast, state: Contrasted, noise: float, slope: float) -> float:
    """[8] Return tau^2, the variance of effects between sites in scales, from the spread look."""
    groups = question.groups
    sites = len(groups.people)
    known = state.squares[0] * (sites - 1) / groups.n + noise
    square = float(groups.people @ groups.separation**2 / groups.n)
    limit = 2.0 * (_spread_limit(question, state) / (slope * groups.mean_separation)) ** 2
    return min(max(float(state.spread - known) / slope**2, 0.0) / square, limit)
