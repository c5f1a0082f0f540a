"""Public people and public curves: what a comparison knows without a look.

Every party draws the same people, so nothing here is released.  Numbers in brackets are sections of
docs/group-comparison.md.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from cape.algorithms.design import Counts, Flags, Public
from cape.algorithms.estimators import Array

# [1] Largest |w|; a person who looks like the other group counts W / 3 at most against it.
W = 0.5
# Edges of bins of octaves, in public units; the first and the last bin hold all beyond.
EDGES = np.arange(-6.5, 6.6)
BINS = len(EDGES) + 1
GRID = np.arange(-7.0, 7.01, 0.1)
# Octaves of outcomes about that of all: shares and sd
NEAR_OTHERS = ((0.7, 0.3), (0.3, 2.5))
# [3] Variance that a normal prior of a covariate's effects may have
PRIORS = np.array([0.01, 0.03, 0.1, 0.3, 1.0])
# Variance that a normal prior of site means may have
SPREADS = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0])
# [3] What a cut at c scales may make of groups of other shape: a exp(-c / t) sd, (K = 1, K > 1)
CUT = ((0.2, 1.2), (0.2, 0.7))
# .. and of heavy tails: log sd of a shifted lognormal; above HEAVY the cut may lie far out
TAILS = np.array([0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0])
HEAVY = 0.1
CUTS = np.arange(1.0, 16.01, 0.5)
# .. tails are as of outcomes so many times as skewed
HEAVIER = 1.8
# [3] Mean slope of `outside` by a log of spread (K = 1, K > 1)
OUTSIDE = (0.4, 0.67)
# The nearest cut of one, of a few and of many outcomes; the farthest, where people lie there
LEAST_CUT, REACH = (1.2, 1.15, 1.0), 16.0


@lru_cache(maxsize=8)
def normals(n: int, p: int, seed: int = 0) -> Array:
    """Return standard normals (n, p), the same in every run and on every machine."""
    # The stream of RandomState is frozen; that of Generator may change with numpy.
    return np.array(np.random.RandomState(12345 + seed).standard_normal((n, p)))


def ball(rows: Array, radius: float) -> Array:
    """Scale finite rows (n, d), whose squares do not overflow, into the ball of a radius."""
    norm = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return np.asarray(rows * np.minimum(1.0, radius / np.maximum(norm, 1e-12))[:, None])


def weight(r: Array, h: Array, k: float | None) -> Array:
    """Return w (n, q)."""
    # Public (k None), one column: to [-W/3, W] in the direction of r; several: h in a ball of W/2,
    # then r - h in one of W.  Protected: k (r - h), clipped to W.
    if k is not None:
        return np.asarray(np.clip(k * (r - h), -W, W))
    if r.shape[1] == 1:
        side = np.where(r >= 0, 1.0, -1.0)
        return np.asarray(np.clip((r - h) * side, -W / 3, W) * side)
    return ball(r - ball(h, W / 2), W)


# -- people --------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def public_people(public: Public) -> tuple[Array, Array, Counts]:
    """Return r (M, q), g (M, q) and the site (M,) of as many people as there are, by counts."""
    if (
        not public.M
    ):  # half of a tiny study: one person without a code, so that nothing divides by 0
        nobody = np.zeros((1, public.q))
        return nobody, nobody, np.zeros(1, dtype=np.int64)
    site, cell = np.divmod(
        np.repeat(np.arange(public.counts.size), public.counts.ravel()), public.counts.shape[1]
    )
    return public.r[site, cell], public.g[site, cell], site


def protected_levels(n: int, mean_square: float, share: float) -> Array:
    """Return z (n, 1) of mean 0 and this mean square; `share` of people have the second level."""
    z = normals(n, 1, seed=1)
    second = z > np.quantile(z, 1 - share)
    return np.asarray((second - share) * math.sqrt(mean_square / (share * (1 - share))))


def protected_people(n: int, mean_square: float) -> Array:
    """Return z (n, 1) in [-1/2, 1/2] of this mean square: from normal to two values."""
    z, low, high = normals(n, 1, seed=1), -6.0, 6.0
    for _ in range(40):
        middle = (low + high) / 2
        small = np.mean(np.clip(2.0**middle * z, -0.5, 0.5) ** 2) < mean_square
        low, high = (middle, high) if small else (low, middle)
    return np.asarray(np.clip(2.0**low * z, -0.5, 0.5))


def synthetic(r: Array, g: Array, imbalance: Array, moments: Array) -> Array:
    """Return x (n, p) of people with mean x r' (p, q) and mean x x' (p, p): g shifted, normals."""
    n, p = len(r), len(imbalance)
    shift = np.linalg.pinv(r.T @ g / n) @ imbalance.T
    values, Q = np.linalg.eigh(moments - shift.T @ (g.T @ g / n) @ shift)
    least = 0.2 * max(float(np.linalg.eigvalsh(moments)[0]), 0.05)
    root = (Q * np.sqrt(np.maximum(values, least))) @ Q.T
    return np.asarray(g @ shift + normals(n, p) @ root)


def solve(r: Array, x: Array, k: float | None) -> Array:
    """Return Gamma (p, q) with mean x w' = 0 in the people x."""
    n, gamma = len(x), np.zeros((x.shape[1], r.shape[1]))
    inverse = np.linalg.pinv(x.T @ x / n)
    for _ in range(12):
        w = weight(r, x @ gamma, k)
        left, free = x.T @ w / n, float(np.mean(unclipped(r, x @ gamma, w, k)))
        gamma = gamma + inverse @ left / (max(free, 0.4) * (k or 1.0))
        if np.abs(left).max() < 1e-5:
            break
    return gamma


def unclipped(r: Array, h: Array, w: Array, k: float | None) -> Flags:
    """Return whose weight (n,) is not clipped."""
    return np.asarray(np.abs(w - (k or 1.0) * (r - h)).max(axis=1) < 1e-9)


# -- octaves of differences within pairs ---------------------------------------------------------


@lru_cache(maxsize=4)
def octave_shares(nu: int) -> Array:
    """Return shares (grid, bins) of pairs by the octave of their rms over nu normal numbers."""
    z = np.sort(np.log2(np.sqrt((normals(4000, 6)[:, :nu] ** 2).mean(axis=1))))
    below = np.searchsorted(z, EDGES[None] - GRID[:, None]) / len(z)
    ends = np.zeros((len(GRID), 1))
    return np.asarray(0.5 * np.diff(np.hstack([ends, below, ends + 1]), axis=1))


def octave(shares: Array, noise: float, nu: int, prior: tuple[float, float]) -> float:
    """Return log2 of the sd behind shares (bins,) of pairs [3], near the posterior's mode.

    `prior`: mean and sd.
    """
    log = _of_octaves(shares, noise, nu) - (GRID - prior[0]) ** 2 / (2 * prior[1] ** 2)
    return _near_mode(log)


def octaves(shares: Array, noise: float) -> Array:
    """Return log2 of the sd of K outcomes by their own shares (K, bins): most near a common one."""
    log = np.array([_of_octaves(one, noise, 1) for one in shares])
    apart = (GRID[:, None] - GRID) ** 2
    prior = sum(share / sd * np.exp(-apart / (2 * sd**2)) for share, sd in NEAR_OTHERS)

    def summed(log: Array) -> Array:  # over the other octave
        most = log.max(axis=1, keepdims=True)
        return np.asarray(most + np.log(np.exp(log - most) @ prior))

    each = summed(log)  # by the octave of all
    rest = each.sum(axis=0) - each - GRID**2 / 8
    return np.array([_near_mode(one) for one in log + summed(rest)])


def _of_octaves(shares: Array, noise: float, nu: int) -> Array:
    """Return the log likelihood (grid,) of octaves."""
    # The lowest bin may hold pairs of equal values, which say nothing: it counts, or is left free.
    curves = octave_shares(nu)
    free = _likelihood(shares[1:], curves[:, 1:], noise, 0.02)
    return np.logaddexp(
        _likelihood(shares, curves, noise, 0.02), free + math.log(0.2 * min(5 * noise, 1.0))
    )


def _near_mode(log: Array) -> float:
    chance = np.exp(log - log.max())
    peak = GRID[np.argmax(np.convolve(chance, np.ones(7), "same"))]
    near = np.where(np.abs(GRID - peak) < 1.5, chance, 0.0)
    return float(near @ GRID / near.sum())


def careful_octave(shares: Array, noise: float) -> tuple[float, float]:
    """Return log2 of the sd of a covariate, rather too large than too small, and its own sd."""
    # A column stretched tenfold by a mistake would hide all others: that made one answer in a
    # thousand at M 1000 epsilon 1 wrong by ten standard errors.
    curves = octave_shares(1)
    if shares[1:].sum() > max(0.05, 4 * noise):
        shares, curves = shares[1:], curves[:, 1:]  # pairs of equal values say nothing of the scale
    log = _likelihood(shares, curves, noise, 0.5) - (GRID + 0.3) ** 2 / (2 * 1.5**2)
    chance = np.exp(log - log.max())
    below = np.cumsum(chance)
    found = float(GRID[np.searchsorted(below, 0.5 * below[-1])])
    return found, math.sqrt(float(chance @ (GRID - found) ** 2) / float(below[-1]))


def _likelihood(
    shares: Array, curves: Array, noise: float, least: float, misfit: float = 2e-4
) -> Array:
    """Return the log likelihood of curves (.., bins); at least this share of pairs have values."""
    # `misfit`: variance of a bin by shapes that are no curve.
    fitted = curves @ shares / np.maximum((curves**2).sum(axis=-1), 1e-3)
    rest = shares - np.clip(fitted, least, 1.05)[..., None] * curves
    return np.asarray(-(rest**2).sum(axis=-1) / (2 * (noise**2 + misfit)))


@lru_cache(maxsize=1)
def _tail_curves() -> Array:
    """Return shares (tails, grid, bins - 1) of pairs of shifted lognormals of log sd `TAILS`."""
    z, curves = normals(8000, 2, seed=4), []
    for s in TAILS:
        v = np.expm1(s * z) / s if s else z
        apart = np.abs(v[:, 0] - v[:, 1]) / math.sqrt(2)
        for octaves in GRID:
            bins = octave_of(apart * 2.0**octaves)
            curves.append(np.bincount(bins, minlength=BINS)[1:] / (2 * len(z)))
    return np.array(curves).reshape(len(TAILS), len(GRID), BINS - 1)


def tail(shares: Array, noise: float, n_pairs: int) -> float:
    """Return how skewed or heavy an outcome is: log sd of a shifted lognormal; 0: normal [3]."""
    # Pairs vary too: a bin of an eighth of `n_pairs` has a variance near .03 / n_pairs.  The
    # posterior mean by the released shares (bins,) of pairs, rather too small than too large; 0
    # where they say too little.
    log = _likelihood(shares[1:], _tail_curves(), noise, 0.02, 1e-5 + 0.03 / n_pairs)
    chance = np.exp(log - log.max()).sum(axis=1) * np.exp(-TAILS / 0.3)
    chance = chance / chance.sum()
    mean = float(chance @ TAILS)
    sd = math.sqrt(max(float(chance @ TAILS**2) - mean**2, 0.0))
    return max(mean - 0.25 * sd, 0.0) * min(max((0.25 - sd) / 0.07, 0.0), 1.0)


def reach(shares: Array, noise: float, octave: float) -> float:
    """Return the highest octave of pairs that holds people, in scales [3]."""
    # 0 unless clearly more people lie beyond 2.5 scales than of a normal outcome.
    edges = 2.0 ** (EDGES - octave)  # edges[k - 1] is the lower one of bin k
    first = int(np.searchsorted(edges, 2.5, side="right")) + 1
    beyond = np.cumsum(shares[::-1])[::-1]
    clear = noise * np.sqrt(BINS - np.arange(BINS))
    if first >= BINS or beyond[first] <= 2.5 * clear[first] + 0.004:
        return 0.0
    held = [k for k in range(first, BINS) if beyond[k] > 1.5 * clear[k]]
    return 2.0 * float(edges[max(held) - 1])


def octave_of(distance: Array) -> Counts:
    bins = np.floor(np.log2(np.maximum(distance, 1e-9)) + 6.5)
    return np.asarray(np.clip(bins, -1, BINS - 2).astype(np.int64) + 1)


# -- curves --------------------------------------------------------------------------------------


def posterior(T: Array, error: Array) -> tuple[Array, Array]:
    """Return mean and variance (p, K) of effects behind T (p, K), of this error variance (p,)."""
    # The prior of a row is normal with one of `PRIORS`.
    V, error = PRIORS[:, None, None], error[:, None]
    return _shrunk(T, error, V, _of_variances(T, error, V).sum(axis=2, keepdims=True))


def site_means(g: Array, error: Array, *, one: bool) -> tuple[Array, Array]:
    """Return mean and variance (S, n) of site means g whose errors have this variance (S, 1)."""
    # The spread over sites has one of `SPREADS`, of each column by itself or (`one`) of all.
    V = SPREADS[:, None, None]
    log = _of_variances(g, error, V).sum(axis=1, keepdims=True)
    return _shrunk(g, error, V, log.sum(axis=2, keepdims=True) if one else log - 0.3 * np.log(V))


def _of_variances(T: Array, error: Array, V: Array) -> Array:
    """Return the log likelihood (V, p, K) of prior variances V."""
    return np.asarray(-0.5 * np.log(V + error) - 0.5 * T**2 / (V + error))


def _shrunk(T: Array, error: Array, V: Array, log: Array) -> tuple[Array, Array]:
    """Return the posterior mean and variance of what is behind T, given the log chances of V."""
    chance = np.exp(log - log.max(axis=0))
    chance = chance / chance.sum(axis=0)
    kept = V / (V + error)
    mean = (chance * kept).sum(axis=0)
    variance = (chance * kept * error).sum(axis=0)
    between = np.maximum((chance * kept**2).sum(axis=0) - mean**2, 0.0)  # less than 0 by rounding
    return mean * T, variance + between * T**2


@lru_cache(maxsize=1)
def _forty() -> Array:
    return np.abs(np.sort(normals(4000, 6)[:, 0])[40::100])


def uncentred(w: float, v: float, rho: float, Y: float) -> float:
    """Return the mean square of w v less its site part, for means w, v of a site of these sd."""
    a, b = w * _forty()[:, None], v * _forty()[None]
    return float(np.mean((a * b - np.minimum(a, rho) * np.minimum(b, Y)) ** 2))


def cut_bias(c: float, K: int, tail: float = 0.0) -> float:
    """Return what a cut at c (scales; K > 1: sqrt K scales) may make of other shapes, in sd."""
    a, t = CUT[K > 1]
    return math.hypot(a * math.exp(-c / t), 0.24 * (tail / 0.33) ** 2 * math.exp(-c / 3.0))


@lru_cache(maxsize=2)
def _norms(one: bool) -> Array:
    """Return the public norms of people in scales (sqrt K scales): normal, or lognormal."""
    z = normals(4000, 6)[:, 0]
    return np.abs(z) if one else np.exp(0.38 * z - 0.14)


def cut_curve(c: float, K: int) -> tuple[float, float]:
    """Return J, the mean slope of the cut at c, and the share of squares it keeps."""
    norm = _norms(K == 1)
    inside = norm <= c if K == 1 else np.minimum(1.0, c / norm)
    return float(np.mean(inside)), float(np.mean(np.minimum(norm, c) ** 2) / np.mean(norm**2))


def asymmetry(size: Array, K: int) -> Array:
    """Return what people this far out (scales) say of skewness: a shift of all is hardly in it."""
    zero, unit = (2.3, 1.6) if K == 1 else (1.9, 1.2)
    return np.asarray(np.clip(size * (size**2 - zero) / unit, -1.0, 1.0))


def outside(size: Array, K: int) -> Array:
    """Return a number in [0, 1] that grows with the spread of people, with slope `OUTSIDE`."""
    return np.asarray(np.clip(size - (0.2 if K == 1 else 0.4), 0.0, 1.0))


@lru_cache(maxsize=2)
def _skewed(one: bool) -> tuple[Array, Array]:
    """Return skewness (tails,), and loss (tails, `CUTS`) of lognormals of log sd `TAILS`."""
    # Loss is the mean, in scales, of what a cut takes, for a log of spread: of two groups of one
    # shape, the one that is more variable loses more.
    z = normals(4000, 6)
    z = z[:, :1] if one else math.sqrt(0.6) * z[:, :1] + math.sqrt(0.4) * z[:, 1:]
    each: list[tuple[float, Array]] = []
    for s in TAILS:
        v = np.expm1(s * z) / s if s else z
        v = (v - v.mean(axis=0)) / (np.median(np.abs(np.diff(v, axis=0))) / (0.6745 * math.sqrt(2)))
        size = np.sqrt((v**2).mean(axis=1))
        along = v.mean(axis=1) / size
        skewness = float(np.mean(along * asymmetry(size, 1 if one else 2)))
        each.append((skewness, np.mean(along * size * (size > CUTS[:, None]), axis=1)))
    known, losses = (np.array(one) - one[0] for one in zip(*each, strict=True))
    # A nearer cut takes back less of it, but moves what is left from a mean to a median.
    return known, np.maximum.accumulate(losses[:, ::-1], axis=1)[:, ::-1]


def skewed_loss(c: float, K: int, skewness: float) -> float:
    """Return what a cut at c takes from a mean, for a log of spread and for a unit of skewness."""
    known, losses = _skewed(K == 1)
    at = [float(np.interp(c, CUTS, row)) for row in losses[1:] / known[1:, None]]
    return float(np.interp(HEAVIER * skewness, known[1:], at))


def inside(c: float) -> float:
    """Return the share of people with many outcomes whom a cut at c sqrt K scales leaves as is."""
    return float(np.mean(_norms(False) <= c))


def z_cut(noise: float, sampling: float) -> float:
    """Return the cut of a protected z, in sd of what covariates leave of it, by planned error."""
    # `noise`: sd of T for w of size 1; `sampling`: that of people.
    size, best = _norms(True), (np.inf, 1.0)
    for c in np.arange(1.0, 2.61, 0.1).tolist():
        cut = np.minimum(size, c)
        error = ((2 * noise * c) ** 2 + sampling**2 * float(np.mean(cut**2))) / float(
            np.mean(cut * size)
        ) ** 2
        best = min(best, (error, c))
    return best[1]


def radius(
    noise: float,
    sampling: float,
    K: int,
    tail: float = 0.0,
    unlike: Callable[[float], float] = lambda c: 0.0,
) -> float:
    """Return c, the cut with the smallest planned error [3]."""
    # `noise`: sd of the answer for c = 1; `sampling`: its sd without a cut; `unlike`: what a cut
    # makes of groups whose shapes differ.
    best, most = (np.inf, 1.0), 9.01
    for c in np.arange(LEAST_CUT[0 if K == 1 else 1 if K <= 8 else 2], most, 0.1).tolist():
        J, kept = cut_curve(c, K)
        error = ((noise * c) ** 2 + sampling**2 * kept) / J**2 + cut_bias(c, K, tail) ** 2
        error += (unlike(c) / J) ** 2
        best = min(best, (error, c))
    return best[1]
