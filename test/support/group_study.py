"""Two groups with known differences in connectivity and confounded covariates.

Edges have a low-rank covariance and independent noise, in units of .2 of Fisher z, in which an
edge's sd is near 1.  Means, effects and covariance follow from the seed; `ROWS` names violations of
assumptions.  Moments are like those of published comparisons of patients and controls (effects of
.25 sd rms).
"""

from typing import Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass

DOMAINS: Final = 7
FACTORS: Final = 12

# Covariates in public units: (age - 50) / 15, sex as -1 and 1, motion; their public ranges.
COVARIATES: Final = ("age", "sex", "motion")
COVARIATE_BOUNDS: Final = (2.5, 1.0, 2.0)

# rms over edges, in sd of an edge: effect of the group; of a unit of age, sex, motion
EFFECT, AGE, SEX, MOTION = 0.25, 0.12, 0.08, 0.2

# Rows of a benchmark: all have confounding, each adds one property.
ROWS: Final = (
    "motion .4 sd", "motion .8 sd", "motion 1.2 sd", "motion 2 sd", "skewed motion",
    "patients vary 1.4x", "unequal shares", "site artefact", "outliers", "effects differ by site",
)  # fmt: skip
# Shift of the motion of cases by which groups differ that much within sites
_SHIFT: Final = {"motion .4 sd": 0.0, "motion .8 sd": 0.3, "motion 1.2 sd": 0.6, "motion 2 sd": 1.2}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Population:
    """Moments of q edges, in units of .2 of Fisher z."""

    mean: Array  # (q,)
    factors: Array  # (q, f): low-rank part of the covariance of edges
    own: Array  # (q,) sd of the independent noise of an edge
    effect: Array  # (q,) cases less controls
    slopes: Array  # (3, q): age, sex, motion
    blocks: Array  # (n_blocks, q): means of the edges between two domains

    @property
    def covariance(self) -> Array:
        return np.asarray(self.factors @ self.factors.T + np.diag(self.own**2))

    @property
    def sd(self) -> Array:
        return np.asarray(np.sqrt(np.sum(self.factors**2, axis=1) + self.own**2))

    def noise(self, rng: np.random.Generator, n: int) -> Array:
        """Draw n people (n, q) around 0."""
        shared = rng.standard_normal((n, self.factors.shape[1])) @ self.factors.T
        return np.asarray(shared + self.own * rng.standard_normal((n, len(self.own))))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class People:
    """One study."""

    u: Array  # (M, q) edges
    x: Array  # (M, 3) covariates
    case: Array  # (M,) 1 or 0
    site: np.ndarray  # (M,) 0 .. S - 1


def population(n_networks: int, seed: int = 0) -> Population:
    """Return the moments of the edges between `n_networks` networks in seven domains."""
    rng = np.random.default_rng([53, seed])
    domain = np.arange(n_networks) * DOMAINS // n_networks
    one, two = np.triu_indices(n_networks, 1)
    same, q = domain[one] == domain[two], len(one)
    # Factors act on networks; the loading of an edge is the sum over its two ends.
    ends = (
        rng.standard_normal((FACTORS, n_networks))
        + rng.standard_normal((FACTORS, DOMAINS))[:, domain]
    )
    factors = (ends[:, one] + ends[:, two]).T + rng.standard_normal((q, FACTORS))
    factors *= np.sqrt(0.45 / np.mean(np.sum(factors**2, axis=1)))
    spread = np.exp(0.15 * rng.standard_normal(q))
    factors, own = factors * spread[:, None], np.sqrt(0.55) * spread
    sd = np.sqrt(np.sum(factors**2, axis=1) + own**2)

    def along(rms: float, shared: float) -> Array:
        """Return a random (q,) of that rms in sd of the edges, the share `shared` along factors."""
        a, b = factors @ rng.standard_normal(FACTORS) / sd, rng.standard_normal(q)
        a, b = a / np.sqrt(np.mean(a**2)), b / np.sqrt(np.mean(b**2))
        mixed = np.sqrt(shared) * a + np.sqrt(1 - shared) * b
        return np.asarray(rms * mixed / np.sqrt(np.mean(mixed**2)) * sd)

    pairs = domain[one] * DOMAINS + domain[two]
    blocks = np.array([(pairs == k) / np.sum(pairs == k) for k in np.unique(pairs)])
    return Population(
        mean=np.where(same, 2.0, 0.25) + 0.75 * rng.standard_normal(q),
        factors=factors,
        own=own,
        effect=along(EFFECT, 0.7),
        slopes=np.array([along(AGE, 0.3), along(SEX, 0.3), along(MOTION, 0.5)]),
        blocks=blocks,
    )


def draw(
    people: Population,
    row: str,
    *,
    n_people: int,
    n_sites: int,
    rng: np.random.Generator,
    effect: float = 0.0,
) -> People:
    """Draw a study whose groups differ by `effect` times the population's; ValueError for a row."""
    # All rows: unequal sites with offsets (10 % of the variance) and gains, heavy tails of whole
    # people, shares of cases near one half, and cases who are older, more often women, and move
    # more.
    if row not in ROWS:
        raise ValueError(f"no row {row!r}; there are {', '.join(ROWS)}")
    M, S, q = n_people, n_sites, len(people.mean)
    site = np.repeat(np.arange(S), _sizes(M, S, rng))
    shares = rng.uniform(0.2, 0.8, S) if row == "unequal shares" else rng.normal(0.5, 0.12, S)
    case = np.zeros(M)
    for s, share in enumerate(np.clip(shares, 0.2, 0.8)):
        here = np.flatnonzero(site == s)
        case[rng.permutation(here)[: round(share * len(here))]] = 1.0
    side = case - 0.5
    age = rng.normal(0, 0.5, S)[site] + 0.87 * rng.standard_normal(M) + 0.3 * side
    sex = np.where(rng.random(M) < 0.5 + 0.1 * side, 1.0, -1.0)
    moved = rng.normal(0, 0.4, S)[site] + 0.9 * rng.standard_normal(M) + 0.4 * side
    motion = (np.exp(0.5 * moved) - 1.15) / 0.6 + _SHIFT.get(row, 0.0) * side
    x = np.clip(
        np.column_stack([age, sex, motion]), [-b for b in COVARIATE_BOUNDS], COVARIATE_BOUNDS
    )
    u = people.noise(rng, M) * np.sqrt(8.0 / rng.chisquare(10, M))[:, None]
    u *= np.exp(rng.normal(0, 0.1, S))[site][:, None]
    u += people.mean + np.sqrt(0.1) * people.noise(rng, S)[site]
    u += np.outer(side, effect * people.effect) + x @ people.slopes
    if row == "skewed motion":
        u += np.outer(0.3 * (x[:, 2] ** 2 - 1.0), people.slopes[2])
    if row == "patients vary 1.4x":
        u += people.noise(rng, M) * case[:, None]
    if row == "site artefact":
        u += people.noise(rng, S)[site]
    if row == "outliers":
        u += np.outer(15.0 * (rng.random(M) < 0.02) * rng.standard_normal(M), np.ones(q))
    if row == "effects differ by site":
        u += 0.25 * people.noise(rng, S)[site] * side[:, None]
    return People(u=u, x=x, case=case, site=site)


def _sizes(n_people: int, n_sites: int, rng: np.random.Generator) -> np.ndarray:
    sizes = np.maximum(16, np.floor(rng.dirichlet(np.full(n_sites, 8.0)) * n_people).astype(int))
    sizes[np.argmax(sizes)] += n_people - sizes.sum()
    return np.asarray(sizes)
