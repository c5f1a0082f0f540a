"""The same answer without noise: least squares, of what sites say of their own people.

Each outcome has the complete cases of its term, a mean for each site, and the columns of the term
beside those for which it is adjusted (type II).  The first exchange finds how long columns are, so
that integers hold all digits of the second, which adds up centred cross-products.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.facts import Facts
from cape.algorithms.linalg import smat, svec
from cape.algorithms.looks import Looks, Planned

PLAN = Looks(
    looks=(Planned(name="spread", round=1, share=0.5), Planned(name="products", round=2, share=0.5))
)
# Largest unit of a column, in public units; an outcome is cut at 62 of them, so that sums fit.
LARGEST: Final = 64.0
FURTHEST: Final = 62 * LARGEST
# Least share of a column that others do not explain: rounding leaves as much
LEAST: Final = 1e-7
# Numbers by outcome beside the cross-products: people, sites, and of effects by site
COUNTS, BY_SITE = 2, 5


class Fitted(NamedTuple):
    """Least squares of one outcome, in its public unit."""

    delta: Array  # (q,)
    cov: Array  # (q, q)
    sd: float  # of people within sites, at equal columns
    people: float
    df: float
    # sd of effects between sites, the variance it adds to that of sites like these, and the sites
    tau: float
    added: float
    sites: float


def site_squares(f: Facts, a: Any) -> Array:
    """Return sums of squares (q + p + K,) of a site's columns about their means."""
    outcomes = (_centred(_outcome(a, k)) for k in range(f.K))
    squares = [*(_centred(_columns(f, a)[a.here]) ** 2).sum(axis=0), *((y @ y) for y in outcomes)]
    return np.asarray(np.minimum(squares, LARGEST**2 * a.n))


def site_products(f: Facts, a: Any) -> Array:
    """Return the cross-products of a site, of columns in the found units, and its effects."""
    columns, units, found = _columns(f, a), _units(f), []
    for k, there in enumerate(a.there.T):
        values = _centred(np.column_stack([columns[there], _outcome(a, k)]) / units[k])
        moments = values.T @ values
        n = float(there.sum())
        found.append(np.array([*svec(moments), n, n > 0, *_own_effect(moments, f.q)]))
    return np.concatenate(found)


def parts(f: Facts) -> dict[str, tuple[int, Callable[[Facts, Any], Array]]]:
    """Return size and function of what a site says in each exchange."""
    n = f.q + f.p + 1
    of_outcome = n * (n + 1) // 2 + COUNTS + BY_SITE
    return {"spread": (n - 1 + f.K, site_squares), "products": (f.K * of_outcome, site_products)}


def fitted(f: Facts) -> Iterator[Fitted]:
    """Yield what was fitted for each outcome; NaN where no site can tell, or it does not vary."""
    q = f.q
    for row, units in zip(f.seen("products").mean.reshape(f.K, -1) * f.M, _units(f), strict=True):
        moments = smat(row[: -COUNTS - BY_SITE])
        people, sites = np.rint(row[-COUNTS - BY_SITE : -BY_SITE])
        inverse, rank = _inverse(moments[:-1, :-1], q)
        df = people - sites - rank
        if df < 1 or not rank or moments[-1, -1] <= LEAST**2 * people:  # one value for all
            nothing = np.full((q, q), np.nan)
            yield Fitted(nothing[0], nothing, math.nan, float(people), 1.0, 0.0, 0.0, 0.0)
            continue
        b = inverse @ moments[:-1, -1]
        square = max(float(moments[-1, -1] - b @ moments[:-1, -1]), 0.0) / df
        scale = units[-1] / units[:q]
        yield Fitted(
            b[:q] * scale,
            square * inverse[:q, :q] * np.outer(scale, scale),
            math.sqrt(square) * float(units[-1]),
            float(people),
            float(df),
            *(_between(row[-BY_SITE:], square) * np.array([scale[0], scale[0] ** 2, 1.0])).tolist(),
        )


def _columns(f: Facts, a: Any) -> Array:
    """Return the columns of the term, then those for which it is adjusted (n, q + p)."""
    own = a.x[:, f.p :] / (2 * f.public.z_half) if f.public.protected else a.g
    return np.hstack([own, a.x[:, : f.p]])


def _outcome(a: Any, k: int) -> Array:
    return np.asarray(np.clip(a.u[a.there[:, k], k], -FURTHEST, FURTHEST))


def _centred(values: Array) -> Array:
    return values - values.mean(axis=0) if len(values) else values


def _units(f: Facts) -> Array:
    """Return the units (K, q + p + 1) of columns and outcomes: powers of two near their sd."""
    square = np.clip(f.seen("spread").mean, LARGEST**-4, LARGEST**2)
    units = 2.0 ** np.rint(np.log2(square) / 2)
    shared = np.tile(units[: -f.K], (f.K, 1))
    return np.column_stack([shared, units[-f.K :]])


def _inverse(moments: Array, q: int) -> tuple[Array, int]:
    """Return the inverse of moments of columns and their rank; 0 if the term is not determined."""
    # A column that is constant or follows from others is left out, as in R.
    size = np.sqrt(np.maximum(np.diag(moments), LEAST))
    values, Q = np.linalg.eigh(moments / np.outer(size, size))
    kept = values > LEAST * len(values)
    inverse = (Q[:, kept] / values[kept]) @ Q[:, kept].T / np.outer(size, size)
    # Of the term itself nothing may be left out.
    lost = (Q[:q, ~kept] ** 2).sum() > LEAST or (np.diag(moments)[:q] <= LEAST).any()
    return inverse, 0 if lost else int(kept.sum())


def _own_effect(moments: Array, q: int) -> Array:
    """Return sums for effects by site: sites, a, a^2, a delta, a delta^2, of the first column."""
    inverse, rank = _inverse(moments[:-1, :-1], q)
    if not rank:
        return np.zeros(BY_SITE)
    a, delta = 1.0 / float(inverse[0, 0]), float(inverse[0] @ moments[:-1, -1])
    return np.array([1.0, a, a**2, a * delta, a * delta**2])


def _between(sums: Array, square: float) -> Array:
    """Return tau, the variance it adds, and the sites behind it (DerSimonian and Laird, 1986)."""
    sites, a, a2, ad, ad2 = sums
    if sites < 2:
        return np.zeros(3)
    tau2 = max(float(ad2 - ad**2 / a - (sites - 1) * square) / float(a - a2 / a), 0.0)
    return np.array([math.sqrt(tau2), tau2 * float(a2) / float(a) ** 2, float(sites)])
