"""Claims: how likely is a spatial map a network that other people have, by one calibrated rule.

A run cannot compare its maps with other people.  It can measure how stable a map is under its own
noise, how skewed and symmetric it is, and how much its people have in common.  The rule was fitted
on data with other people for comparison, in good and in mixed cohorts; its constants are data
(`Calibration`).  Maps of smooth noise are stable too, so a run makes claims only if its left-right
test is clear.

Averaging both sides gives a one-sided network a mirror image.  The release before averaging tells
the two apart.
"""

import math
from dataclasses import field, fields
from typing import Any, Literal, Self

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.left_right import LeftRight
from cape.algorithms.linalg import unit_columns
from cape.frozen import dataclass

ClaimWord = Literal["yes", "likely", "uncertain", "image"]
HalfWord = Literal["in halves", "maybe", ""]

MAX_SKEWNESS = 3.0
MIN_SHARED, MAX_COHORT = 0.1, 1.5
GOOD_COHORT = 1.1  # minimum q at which one-sided maps are not suspicious
REFERENCE_BASIS = 64  # d at which the last term of `strict` is 0
MIRROR_PAIR = 0.7  # minimum |r| of a map with the mirror image of its pair
MIN_MAPS = 50  # needed to state a share: its standard error is then at most .07
IMAGE_Z = 4.0  # minimum z at which the weaker map of a pair is an image of the other
# |z| below which two maps that mirror each other are two networks (39 of 40 pairs of real people)
TWO_Z = 3.0

# Without noise: |r| between halves of the people from which a map is found again, or may be
# (docs/choosing.md says how often that was right); the number of people that are halved, at most,
# as in many people whatever they have in common is found again; and that of a run, as measured.
AGAIN, MAYBE, MOST_HALVED, MOST_PEOPLE = 0.7, 0.5, 20, 400
SAME = 0.5  # evenness from which a map is on both sides


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Constants of the rule, with the thresholds of its words."""

    found: tuple[float, ...]  # logistic of P(|r| > .5): 1, s, g, q, u
    strict: tuple[float, ...]  # logistic of P(|r| > .7): the same and log2(d / 64)
    yes: float
    yes_skewness: float  # minimum skewness of a map that is called yes
    likely: float
    sharp: float  # minimum P(|r| > .7) of a sharp map
    sharp_basis: int  # minimum d at which that held
    low_g: float  # G below which `found` is at most `low_cap`
    low_cap: float
    parcels: float  # added to both logits on an atlas


@dataclass(frozen=True, kw_only=True, slots=True)
class Cohort:
    """Statements about cohorts with at least this q."""

    q: float
    carry: str  # how many people carry networks
    check: str  # advice
    like: tuple[str, ...]  # names of measured cohorts that may have such a q


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredClaims:
    """Claims in one kind of cohort: per word, the number of maps and the share of true ones."""

    cohort: str
    claimed: float
    true: float
    yes: tuple[int, float]
    likely: tuple[int, float]
    uncertain: tuple[int, float]
    sharp: tuple[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibrated:
    """The rule with the measurements behind it."""

    rule: Calibration
    cohort: tuple[Cohort, ...]  # by falling q, the last from 0 on
    measured: tuple[MeasuredClaims, ...]

    def cohort_at(self, q: float) -> Cohort:
        return next(row for row in self.cohort if q >= row.q)

    def right(self, q: float, word: str) -> tuple[float, float] | None:
        """Return the range of the share of true claims of this word at q; None: too few seen."""
        like = self.cohort_at(q).like
        rows = [getattr(row, word) for row in self.measured if row.cohort in like]
        if min(n for n, _ in rows) < MIN_MAPS:
            return None
        return min(share for _, share in rows), max(share for _, share in rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class MapClaim:
    """The claim about one map."""

    word: ClaimWord  # "image": a mirror image of another map; it is no claim and never counted
    found: float | None  # P(|r| > .5) with a network of other people; None for an image
    strict: float | None  # P(|r| > .7)
    sharp: bool
    pair: int  # number, from 1, of the map that is its mirror image; 0: none


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """Claims about the maps of a run, in their order, and about its cohort."""

    cohort: float  # q: share of what people have in common that is the same on both sides
    maps: tuple[MapClaim, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitHalf:
    """How well two halves of these people agree on each map, in a run without noise."""

    # It is about these people alone: two populations in one cohort, or motion, repeat as well.
    # Nothing is said of maps that are on one side, unless what people have in common mostly is the
    # same on both: noise that lies at one place in all people is found again, too.

    r: tuple[float, ...]  # |r| between the halves
    silent: tuple[bool, ...]  # whether nothing is said of a map
    n_components: int | None = None  # the number that halves suggest; None: not asked, or none

    @classmethod
    def of(cls, r: Array, C: Array, J: Array, *, q: float, n_components: int | None = None) -> Self:
        """Return what halves say of maps C (d, k) under the mirror J (d, d), given r (k,)."""
        silent = (evenness(C, J) < SAME) & (q < GOOD_COHORT)
        return cls(r=tuple(r.tolist()), silent=tuple(silent.tolist()), n_components=n_components)

    @property
    def words(self) -> tuple[HalfWord, ...]:
        return tuple(
            "" if silent or r < MAYBE else "in halves" if r >= AGAIN else "maybe"
            for r, silent in zip(self.r, self.silent, strict=True)
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FoundMaps:
    """What the spatial recipe says of a set of maps, in their order."""

    converged: bool  # whether the rotation converged
    test: LeftRight | None = None  # None if left and right cannot be compared
    mirrored: bool = False  # whether left and right were averaged after a clear test
    claims: Claims | None = None  # None without noise, or unless the test is clear
    # None with noise, or unless the test is clear
    split_half: SplitHalf | None = field(default=None, metadata={"omittable": True})
    # Mean |r| of each map with itself under other draws (`bagging`); empty without them
    stability: tuple[float, ...] = field(default=(), metadata={"omittable": True})

    def said(self) -> dict[str, Any]:
        """Return these fields alone, for a record that has others besides."""
        return {one.name: getattr(self, one.name) for one in fields(FoundMaps)}


def cohort(F: Array, test: LeftRight, *, noise_std: float, n_subjects: int, rank: float) -> float:
    """Return q from a released mean F (d, d) of projectors of this rank, before any mirroring."""
    # Of soft projectors `rank` is their trace.  Both few people with networks and a cohort that
    # shares little lower the test's statistic; the energy of F tells the two apart.
    d, M = len(F), n_subjects
    energy = (float(np.sum(F * F)) - noise_std**2 * d * (d + 1) / 2.0) / rank
    # Mean overlap of the projectors of two different people
    shared = (energy - 1.0 / M) / (1.0 - 1.0 / M) if M > 1 else energy
    return float(np.clip((test.statistic - test.null) / max(shared, MIN_SHARED), 0.0, MAX_COHORT))


def claims_of(
    maps: Array,
    C: Array,
    F: Array,
    J: Array,
    *,
    stability: Array,
    q: float,
    noise_std: float,
    rank: int,
    mirrored: bool,
    kind: str,
    rule: Calibration,
) -> Claims:
    """Apply the rule to the maps (D, k), ``B C``, of a feature space of this kind."""
    # F (d, d) is the release before any mirroring.
    known = predictors(maps, C, J, stability=stability, q=q)
    more = rule.parcels if kind == "atlas" else 0.0
    found = _logistic(np.array(rule.found) @ known + more)
    size = np.clip(math.log2(len(F) / REFERENCE_BASIS), -1.0, 2.0)
    strict = np.array(rule.strict) @ np.stack([*known, np.full(len(found), size)])
    strict = _logistic(strict + more)
    strict = np.minimum(found, strict)
    if noise_std > 0.0 and math.sqrt(2.0 * rank) / noise_std < rule.low_g:
        found = np.minimum(found, rule.low_cap)
    pair, image = mirror_pairs(C, F, J, noise_std=noise_std) if mirrored else _no_pairs(len(found))
    return Claims(
        cohort=q,
        maps=tuple(
            MapClaim(
                word="image" if image[k] else _word(float(found[k]), float(known[2, k]), rule),
                found=None if image[k] else float(found[k]),
                strict=None if image[k] else float(strict[k]),
                sharp=bool(
                    kind == "mask"
                    and not image[k]
                    and strict[k] >= rule.sharp
                    and len(F) >= rule.sharp_basis
                ),
                pair=pair[k],
            )
            for k in range(len(found))
        ),
    )


def predictors(maps: Array, C: Array, J: Array, *, stability: Array, q: float) -> Array:
    """Return the predictors of the rule for each map, (5, k): 1, stability, skewness, q, doubt."""
    A = maps - maps.mean(axis=0)
    skewness = np.minimum(np.abs(np.mean((A / A.std(axis=0)) ** 3, axis=0)), MAX_SKEWNESS)
    even = evenness(C, J)
    # One-sided maps are suspicious in doubtful cohorts only.
    doubt = (1.0 - even) * max(GOOD_COHORT - q, 0.0)
    return np.stack([np.ones_like(even), stability, skewness, np.full_like(even, q), doubt])


def evenness(C: Array, J: Array) -> Array:
    """Return 0 to 1 for each map (d, k): 1 if it is the same on both sides, 0 if on one."""
    c = unit_columns(C)
    return np.asarray(np.clip(np.sum(c * (J @ c), axis=0), 0.0, 1.0))


def mirror_pairs(C: Array, F: Array, J: Array, *, noise_std: float) -> tuple[list[int], list[bool]]:
    """Return the pair of each map (d, k), from 1, or 0, and whether the map is an image."""
    # ``z = (c'Fc - d'Fd) / (sqrt 2 noise_std)`` with d = Jc.  Maps follow from the even part of F
    # and z from the odd part, whose noise is independent: z of a network on both sides is N(0, 1).
    # Two maps that mirror each other with a small z are two networks, and no pair.
    c = unit_columns(C)
    likeness = np.abs(c.T @ J @ c)
    np.fill_diagonal(likeness, 0.0)
    best = np.argmax(likeness, axis=0)
    z = np.sum(c * ((F - J @ F @ J) @ c), axis=0) / (math.sqrt(2.0) * noise_std)
    pair, image = _no_pairs(len(best))
    for k, other in enumerate(best.tolist()):
        size = float(z[k] - z[other]) / 2.0  # the two z have opposite signs
        alike = best[other] == k and likeness[k, other] >= MIRROR_PAIR
        if alike and abs(size) >= TWO_Z:
            pair[k] = other + 1
            image[k] = size <= -IMAGE_Z
    return pair, image


def countable(claims: Claims) -> list[MapClaim]:
    """Return the claims that count: no images, and the likelier one of an undecided pair."""
    counted = []
    for number, claim in enumerate(claims.maps, 1):
        if claim.word == "image":
            continue
        other = claims.maps[claim.pair - 1] if claim.pair else None
        if other is not None and other.found is not None and claim.found is not None:
            # The first of two equally likely ones counts.
            if (other.found, -claim.pair) > (claim.found, -number):
                continue
        counted.append(claim)
    return counted


def _no_pairs(n: int) -> tuple[list[int], list[bool]]:
    return [0] * n, [False] * n


def _word(found: float, skewness: float, rule: Calibration) -> ClaimWord:
    if found >= rule.yes and skewness >= rule.yes_skewness:
        return "yes"
    return "likely" if found >= rule.likely else "uncertain"


def _logistic(x: Array) -> Array:
    return np.asarray(1.0 / (1.0 + np.exp(-x)))
