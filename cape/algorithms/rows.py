"""What a comparison asks of people: the rows and bound of each look, and the parts of sites.

A person's row is [K outcomes in public units, cell, C coded columns, site] as
`cape.algorithms.design` has them; a person of cell -1 is not asked and adds zeros.  NaN marks what
is missing.  Rows hang on data and on facts, which are released or public.  Numbers in brackets are
sections of docs/group-comparison.md.  Read the table at the bottom first.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from cape.algorithms import looks
from cape.algorithms.adjusted import GAMMA
from cape.algorithms.design import Counts, Flags, Public, pairs
from cape.algorithms.estimators import Array, Data
from cape.algorithms.facts import Facts
from cape.algorithms.linalg import above_diagonal
from cape.algorithms.population import BINS, asymmetry, ball, octave_of, outside, weight
from cape.frozen import dataclass

# Outcomes are cut here, in public units, before arithmetic that could overflow.
FAR = 1e6


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class People:
    """Columns of n people; zeros where a value is missing, and for people who are not asked."""

    u: Array  # (n, K) in scales
    there: Flags  # (n, K) whether outcome, covariates and z are there, and the site has the outcome
    here: Flags  # (n,) whether any outcome is there
    x: Array  # (n, p) in public units, and a protected z
    r: Array  # (n, q) codes; none of a protected term
    g: Array  # (n, q)
    asked: Flags  # (n,)
    site: Counts  # (n,)
    group: Counts  # (n,)
    cell: Counts  # (n,) of the public columns; -1: not asked
    has: Flags  # (n, K) whether the site has the outcome

    @property
    def n(self) -> int:
        """Number of people who are asked; public."""
        return int(self.asked.sum())


def columns_of_people(public: Public, stage: looks.Stage, stack: Data) -> People:
    """Take rows (n, K + 1 + C + 1) apart.  ValueError: rows of another length."""
    K = public.has.shape[1]
    rows = np.asarray(stack, dtype=np.float64).reshape(len(stack), math.prod(stack.shape[1:]))
    columns = (*public.x_columns, *public.z_columns)
    if rows.shape[1] < K + 3 + max(columns, default=-1):
        raise ValueError(f"a person has {rows.shape[1]} numbers, needed {K + 2} and all columns")
    site, cell = rows[:, -1].astype(np.int64), rows[:, K].astype(np.int64)
    asked = (cell >= 0) & (public.people > 0)[site]
    x = rows[:, [K + 1 + i for i in columns]]
    whole = asked & np.isfinite(x).all(axis=1)
    has = public.has[site] & asked[:, None]
    there = np.isfinite(rows[:, :K]) & whole[:, None] & has
    if stage == "design":  # a pattern is of people with all outcomes
        there = np.repeat(there.all(axis=1, keepdims=True), K, axis=1)
    here: Flags = np.asarray(there.any(axis=1))
    half = np.append(public.half_ranges, public.z_half)[: len(columns)]
    r, g = (np.where(asked[:, None], code[site, cell], 0.0) for code in (public.r, public.g))
    return People(
        u=np.where(there, np.clip(rows[:, :K], -FAR, FAR), 0.0),
        there=there,
        here=here,
        x=np.where(here[:, None], np.clip(x, -half, half), 0.0),
        r=r,
        g=g,
        asked=asked,
        site=site,
        group=np.zeros(len(rows), dtype=np.int64) if public.protected else public.group[cell],
        cell=np.where(asked, cell, -1),
        has=has,
    )


# -- one person's numbers, given what was released -----------------------------------------------


def _stretched(f: Facts, a: People, middle: Array, sites: Array | float = 0.0) -> Array:
    """Return all columns about a middle, stretched, less site means; a product of such columns."""
    y = (a.x - middle) * f.stretch - sites
    if f.public.z_factors:
        i, j = f.public.z_factors
        own = sites[:, -1] if isinstance(sites, np.ndarray) else sites
        y[:, f.p] = y[:, i] * y[:, j] - middle[f.p] - own
    return np.where(a.here[:, None], y, 0.0)


def _columns(f: Facts, a: People) -> Array:
    """Return all columns as they are used, (n, p), and a protected z as the last one."""
    means = f.x_sites[0]
    if f.public.protected:
        means = np.hstack([means, f.z_sites[0]])
    return _stretched(f, a, f.middle, means[a.site])


def _centred_x(f: Facts, a: People) -> Array:
    return _columns(f, a)[:, : f.p]


def _codes(f: Facts, a: People) -> tuple[Array, Array]:
    """Return r and g (n, q); a protected z scaled, r of it in [-1/2, 1/2]."""
    if not f.public.protected:
        return a.r, a.g
    z = _columns(f, a)[:, f.p :] / 4
    return np.clip(z, -0.5, 0.5), np.clip(z, -1.0, 1.0)


def _white(f: Facts, a: People) -> Array:
    """Return covariates (n, p) of mean square 1, before the ball."""
    return ball(_centred_x(f, a) @ f.Li, f.limit)


def _weights(f: Facts, a: People, gamma: Array | None = None) -> Array:
    """Return w (n, q)."""
    r = _codes(f, a)[0]
    if f.p:
        h = _white(f, a) @ (f.adjusted.gamma if gamma is None else gamma)
        r = weight(r, h, f.k)
    elif f.k is not None:
        r = weight(r, 0 * r, f.k)
    return np.where(a.here[:, None], r, 0.0)


def _outcomes(f: Facts, a: People) -> Array:
    """Return outcomes (n, K) in scales, without centres."""
    return np.where(a.there, a.u / f.scale - f.centre - f.u_sites[0][a.site], 0.0)


def _rest(f: Facts, a: People) -> Array:
    """Return outcomes without effects of covariates and centres of groups, before the cut."""
    rest = _outcomes(f, a)
    if f.L > 1:
        rest = rest - f.group_centres[a.group]
    if f.p:
        rest = rest - _white(f, a) @ f.effects.B
    return np.where(a.there, rest, 0.0)


def _norm(rows: Array) -> Array:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _blocks(place: Counts, n_blocks: int, rows: Array) -> Array:
    """Return rows (n, n_blocks d), each in the block of its place."""
    n, d = rows.shape
    blocks = np.zeros((n, n_blocks, d))
    blocks[np.arange(n), place] = rows
    return blocks.reshape(n, n_blocks * d)


def _products(one: Array, other: Array) -> Array:
    """Return the outer product of each row with that of the other, flat."""
    product = one[:, :, None] * other[:, None, :]
    return np.asarray(product.reshape(len(one), one.shape[1] * other.shape[1]))


def _part(f: Facts, a: People, w: Array, v: Array, there: Array, limit: float) -> Array:
    """Return - n A Y of a site, flat (q d): what w shares with it, times its mean v."""
    # A (q, d): sum of w over people who have the value, by n, in a ball of rho.  Y (d,): mean of v
    # in a ball of `limit`, over at least .8 n people.
    if not a.n:
        return np.zeros(w.shape[1] * v.shape[1])
    A = w.T @ there / a.n
    A = A * np.minimum(1.0, f.rho / np.maximum(np.sqrt((A**2).sum(axis=0)), 1e-12))
    mean = v.sum(axis=0) / np.maximum(there.sum(axis=0), 0.8 * a.n)
    return np.asarray(-a.n * A * ball(mean[None], limit)).ravel()


# -- round 1 -------------------------------------------------------------------------------------


def where_rows(f: Facts, a: People) -> Array:
    """Octave of differences within pairs of a cell, of each outcome or of their rms."""
    if f.by_outcome:
        return _octaves(a, a.u, a.there)
    i, j = pairs(a.cell).T
    both = a.there[i] & a.there[j]
    n = both.sum(axis=1)
    rms = _norm(np.where(both, a.u[i] - a.u[j], 0.0)) / np.sqrt(2 * np.maximum(n, 1))
    return np.asarray(np.eye(BINS)[octave_of(rms)] * (n > 0)[:, None])


def xwhere_rows(f: Facts, a: People) -> Array:
    return _octaves(a, a.x[:, f.ranges], a.here[:, None])


def _octaves(a: People, values: Array, there: Flags) -> Array:
    """Return the octave of the difference of each of n values within a pair, (n_pairs, n bins)."""
    i, j = pairs(a.cell).T
    bins = np.eye(BINS)[octave_of(np.abs(values[i] - values[j]) / math.sqrt(2))]
    both = (there[i] & there[j])[:, :, None]
    return np.asarray((bins * both).reshape(len(i), BINS * values.shape[1]))


def middle_rows(f: Facts, a: People) -> Array:
    """Covariates and z, presence in the sums, and the code times the share of outcomes."""
    # Both shares are less 1/2, as codes sum to 0 at a site.
    b = f.middle_radius
    parts = [a.x if f.stage != "half" else a.x[:, :0]]
    parts.append(2 * b * np.where(a.asked, a.here - 0.5, 0.0)[:, None])
    if not f.public.protected:
        parts.append(4 * b * _tilt(a))
    return np.hstack(parts)


def _tilt(a: People) -> Array:
    """Return the code times the share of outcomes (n, q), at most 1/4; codes sum to 0 at a site."""
    share = a.there.sum(axis=1) / np.maximum(a.has.sum(axis=1), 1)
    return np.asarray(a.r * (share - 0.5)[:, None])


# -- rounds 2 and 3 ------------------------------------------------------------------------------


def _about_first(f: Facts, a: People) -> Array:
    return _stretched(f, a, f.first_middle)


def _x_about_first(f: Facts, a: People) -> Array:
    return _about_first(f, a)[:, : f.p]


def _z_about_first(f: Facts, a: People) -> Array:
    return _about_first(f, a)[:, f.p :]


def _by_site(f: Facts, a: People, rows: Array) -> Array:
    return _blocks(a.site, f.S, rows)


def _by_group(f: Facts, a: People, rows: Array) -> Array:
    return _blocks(a.group if f.L > 1 else 0 * a.group, f.L, rows)


def design_rows(f: Facts, a: People) -> Array:
    """Second moments of covariates and code; those of public codes are known."""
    x, r = ball(_centred_x(f, a), f.design_radius), GAMMA * _codes(f, a)[0]
    i, j = above_diagonal(f.p)
    root = math.sqrt(2.0)
    parts = [x**2, root * x[:, i] * x[:, j], root * _products(x, r)]
    if f.public.protected:
        parts.append(r**2 if f.p else np.where(a.asked[:, None], r**2 - GAMMA**2 / 8, 0.0))
    return np.hstack(parts)


def sites_rows(f: Facts, a: People) -> Array:
    """Outcomes by site, and of public codes whether people without values differ by group there."""
    rows = [ball(_outcomes(f, a), f.u_sites_radius)]
    if not f.public.protected:
        rows.append(f.u_sites_radius * looks.TILT * _tilt(a))
    return _blocks(a.site, f.S, np.hstack(rows))


# -- round 4 -------------------------------------------------------------------------------------


def balance_rows(f: Facts, a: People) -> Array:
    return _products(ball(_white(f, a), f.b), _weights(f, a, f.first_gamma))


def balance_part(f: Facts, a: People) -> Array:
    x, w = ball(_white(f, a), f.b), _weights(f, a, f.first_gamma)
    there = np.repeat(a.here[:, None].astype(np.float64), f.p, axis=1)
    return _part(f, a, w, x, there, looks.Y * f.b).reshape(f.q, f.p).T.ravel()


def moments_rows(f: Facts, a: People) -> Array:
    """Second moments of whitened covariates: where columns agree, the first ones are all noise."""
    x = ball(_white(f, a), f.b)
    i, j = above_diagonal(f.p)
    return np.hstack([x**2, math.sqrt(2.0) * x[:, i] * x[:, j]])


def effects_rows(f: Facts, a: People) -> Array:
    """Of few outcomes; else one number a pair: agreement of covariates times that of outcomes."""
    x, v = ball(_white(f, a), f.b), ball(_outcomes(f, a), f.effects_radius)
    if f.few:
        return _products(x, v)
    i, j = pairs(a.cell).T
    agreement = (x[i] * x[j]).sum(axis=1) * (v[i] * v[j]).sum(axis=1) / f.K
    return np.asarray(np.clip(agreement, -1.0, 1.0)[:, None])


def skew_rows(f: Facts, a: People) -> Array:
    """Skewness of outcomes, and by code how far people lie from the centre."""
    groups = f.far_groups[a.group if f.L > 1 else 0 * a.group]
    v = np.where(a.there, _outcomes(f, a) - groups, 0.0)
    size = _norm(v) / np.sqrt(np.maximum(a.there.sum(axis=1), 1))
    skew = v * (asymmetry(size, f.K) / np.maximum(_norm(v), 1e-12))[:, None]
    spread = _codes(f, a)[0] * (a.here * (outside(size, f.K) - 0.5))[:, None]
    return np.hstack([looks.SKEW[0] * skew, looks.SKEW[1] * spread])


# -- the last rounds -----------------------------------------------------------------------------


def contrast_rows(f: Facts, a: People) -> Array:
    return _products(_weights(f, a), ball(_rest(f, a), f.C))


def contrast_part(f: Facts, a: People) -> Array:
    v = ball(_rest(f, a), f.C)
    return _part(f, a, _weights(f, a), v, a.there.astype(np.float64), looks.Y * f.C)


def by_site_rows(f: Facts, a: People) -> Array:
    return _blocks(a.site, f.S, contrast_rows(f, a))


def by_site_part(f: Facts, a: People) -> Array:
    part = np.zeros((f.S, f.q * f.K))
    if a.n:
        part[a.site[a.asked][0]] = contrast_part(f, a)
    return part.ravel()


def squares_rows(f: Facts, a: People) -> Array:
    """Squares of differences of w v within pairs: no offset of a site is in them."""
    v = ball(_rest(f, a), f.C) * (_norm(_weights(f, a)) / math.sqrt(f.q))[:, None]
    i, j = pairs(a.cell).T
    both = a.there[i] & a.there[j]
    rows = ball(np.where(both, v[i] - v[j], 0.0) ** 2 / 2, f.squares_radius)
    return rows if f.K > 1 else rows - f.squares_radius / 2


def _inside(f: Facts, a: People, rest: Array) -> Array:
    """Return the slope (n,) of the cut where half of what was found is taken back: of the chord."""
    middle = rest - (_codes(f, a)[1] @ f.half_shift)[:, None] * f.direction * a.there
    length = _norm(middle)
    slope = np.minimum(1.0, f.C / np.maximum(length, 1e-12))
    cosine = middle @ f.direction / np.maximum(length, 1e-12)
    inside = np.where(slope < 1.0, slope * (1.0 - cosine**2 if f.K > 1 else 0.0), 1.0)
    return np.where(a.here, inside, 0.0)


def kept_rows(f: Facts, a: People) -> Array:
    """Slope of the cut; what it takes, along w and by code; outcomes missing; D of public codes."""
    rest, w, (r, g) = _rest(f, a), _weights(f, a), _codes(f, a)
    size = _norm(rest)
    ramp = np.clip((size - f.C) / (f.C / 4), 0.0, 1.0)
    lost = ramp * (rest @ f.direction) / np.maximum(size, 1e-12)
    one, two = looks.RAMPS[f.public.protected]
    parts = [
        (_inside(f, a, rest) - 0.5 * a.here)[:, None],
        one * w * lost[:, None],
        two * r * (ramp - (0.0 if f.public.protected else looks.RAMP_MIDDLE))[:, None],
        looks.PART * np.where(a.has, ~a.there - 0.5, 0.0) / math.sqrt(f.K),
    ]
    if not f.public.protected:
        parts.append(_products(w, g) / f.D_unit)
    return np.hstack(parts)


def slope_rows(f: Facts, a: People) -> Array:
    """D of a protected term, inside the cut: products of differences, without site means."""
    w, g = _weights(f, a)[:, 0] * _inside(f, a, _rest(f, a)), _codes(f, a)[1][:, 0]
    i, j = pairs(a.cell).T
    product = np.clip((w[i] - w[j]) * (g[i] - g[j]) / 2, *looks.PAIR)
    return np.asarray(np.where(a.here[i] & a.here[j], product, 0.0)[:, None] - sum(looks.PAIR) / 2)


# -- the table of looks --------------------------------------------------------------------------

Rows = Callable[[Facts, People], Array]
Bound = Callable[[Facts], float]
Place = Callable[[Facts, People, Array], Array]
Shape = Literal["ball", "psd"]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Look:
    """One release of a term."""

    size: int
    rows: Rows
    bound: Bound  # half of what one person may move the sum by
    shape: Shape = "ball"
    unit: Literal["person", "pair"] = "person"
    part: Rows | None = None  # (size,) of a site


def looks_of(f: Facts) -> dict[str, Look]:
    """Return every look of a term [2, 4]; `looks.plan` says which are asked, and when."""
    S, K, p, q, L = f.S, f.K, f.p, f.q, f.L
    n = len(f.half_ranges) if f.stage != "half" else 0
    protected, ranges = f.public.protected, len(f.ranges)
    scales, tilts = K if f.by_outcome else 1, 0 if protected else q
    of_pairs: dict[str, Any] = {"shape": "psd", "unit": "pair"}
    table: dict[str, Look] = {}

    def look(name: str, size: int, of: Rows, bound: Bound, **how: Any) -> None:
        table[name] = Look(size=size, rows=of, bound=bound, **how)

    def in_ball(name: str, size: int, of: Rows, radius: Bound, place: Place | None = None) -> None:
        """Ask rows in a ball, each in the block of its group or site: the radius is the bound."""

        def rows(f: Facts, a: People) -> Array:
            inside = ball(of(f, a), radius(f))
            return place(f, a, inside) if place else inside

        look(name, size, rows, radius)

    def contrast(f: Facts) -> float:
        return looks.moved(f.public, "contrast", f.rho) * f.C

    def balance(f: Facts) -> float:
        return looks.moved(f.public, "balance", f.rho) * f.b

    def design(f: Facts) -> float:
        return f.design_radius**2 + GAMMA**2 / 4 if p else GAMMA**2 / 8

    look("where", BINS * scales, where_rows, lambda f: math.sqrt(scales), **of_pairs)
    look("xwhere", BINS * ranges, xwhere_rows, lambda f: math.sqrt(ranges), **of_pairs)
    parts = 1 + (n > 0) + (not protected)
    look("middle", n + 1 + tilts, middle_rows, lambda f: f.middle_radius * math.sqrt(parts))
    in_ball("centre", L * K, lambda f, a: a.u / f.centre_unit, lambda f: f.centre_radius, _by_group)
    in_ball("middle2", n, _about_first, lambda f: f.middle2_radius)
    in_ball("xsites", S * p, _x_about_first, lambda f: f.x_sites_radius, _by_site)
    in_ball("zsites", S, _z_about_first, lambda f: f.z_sites_radius, _by_site)
    products = p * (p + 1) // 2
    look("design", products + p * q + protected, design_rows, design, shape="psd" if p else "ball")
    longer = math.hypot(1.0, looks.TILT / 4 if tilts else 0.0)
    look("sites", S * (K + tilts), sites_rows, lambda f: f.u_sites_radius * longer)
    in_ball("again", L * K, _outcomes, lambda f: looks.sites_radius(K), _by_group)
    look("balance", p * q, balance_rows, balance, part=balance_part)
    look("moments", products, moments_rows, lambda f: f.b**2, shape="psd")
    if f.few:
        look("effects", p * K, effects_rows, lambda f: f.b * f.effects_radius)
    else:
        look("effects", 1, effects_rows, lambda f: 1.0, unit="pair")
    look("skew", K + q, skew_rows, lambda f: math.hypot(looks.SKEW[0], looks.SKEW[1] / 4))
    look("contrast", q * K, contrast_rows, contrast, part=contrast_part)
    look("by_site", S * q * K, by_site_rows, contrast, part=by_site_part)
    squares = {**of_pairs, "shape": "ball"} if K == 1 else of_pairs
    look("squares", K, squares_rows, lambda f: f.squares_radius / (2 if K == 1 else 1), **squares)
    # Of `inside`, the two ramps, the share missing, and D of public codes
    kept = 0.5 * math.sqrt(1.0 + 3 * looks.PART**2)
    if not protected:
        kept = math.sqrt(0.25 + looks.RAMP_RADIUS**2 + 2 * (looks.PART / 2) ** 2)
    look("kept", 1 + 2 * q + K + (0 if protected else q**2), kept_rows, lambda f: kept)
    look("slope", 1, slope_rows, lambda f: (looks.PAIR[1] - looks.PAIR[0]) / 2, unit="pair")
    return table
