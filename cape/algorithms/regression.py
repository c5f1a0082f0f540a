"""One private linear model: the looks at people, in exchanges, and the state of what was released.

    u_k = site + x'B_k + g'delta_k + e_k     for the people of a site who have outcome k

One term g is asked, adjusted for covariates x.  The statistic is T = mean w v': v are outcomes
without centres, site centres and effects of covariates, cut to a ball of radius C, and w = clip(r -
Gamma'x) weighs a person's code r so that covariates are in balance.  Several terms are asked side
by side.  Without noise the answer is least squares (`cape.algorithms.least_squares`).

Each look asks rows in units of its own bound, so its planned clip is 1.  A row lies within that
bound, and the integers clip again.  Terms that are no sum over persons are a site's own part; the
move of a sum by one person then follows from `looks.moved`.

A person's row is [K outcomes in public units, cell, C coded columns, site] as
`cape.algorithms.design` has them; a person of cell -1 is not asked and adds zeros.  NaN marks what
is missing.  Numbers in brackets are sections of docs/group-comparison.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from cape.algorithms import least_squares, rows
from cape.algorithms.design import Public
from cape.algorithms.estimators import (
    NO_STEP,
    UNCLIPPED,
    Array,
    Data,
    PlannedRelease,
    ReleaseStatus,
    StepRecord,
    SubjectQuery,
)
from cape.algorithms.facts import Facts
from cape.algorithms.looks import PAIR, SKEW, TILT, Stage, moved, plan, sites_radius
from cape.algorithms.placed import Seen
from cape.algorithms.population import BINS
from cape.algorithms.rows import People, columns_of_people
from cape.errors import MessageError
from cape.frozen import dataclass

Rows = Callable[[Facts, People], Array]
Bound = Callable[[Facts], float]
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


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Regressed:
    """State of `Regression`: what was released, and nothing else."""

    round: int  # exchanges made
    values: Array  # released means over the people asked, one look after the other; 0 before
    noise: Array  # (looks,) std of the noise on an entry
    status: ReleaseStatus
    record: StepRecord


# -- the table of looks --------------------------------------------------------------------------


def _looks(f: Facts) -> dict[str, Look]:
    """Return every look of a term [2, 4]; `looks.plan` says which are asked, and when."""
    S, K, p, q, L, one = f.S, f.K, f.p, f.q, f.L, f.K == 1
    n = len(f.half_ranges) if f.stage != "half" else 0
    protected, ranges = f.public.protected, len(f.ranges)
    table: dict[str, Look] = {}

    def look(name: str, size: int, of: Rows, bound: Bound, **how: Any) -> None:
        table[name] = Look(size=size, rows=of, bound=bound, **how)

    def contrast(f: Facts) -> float:
        return moved(f.public, "contrast", f.rho) * f.C

    def balance(f: Facts) -> float:
        return moved(f.public, "balance", f.rho) * f.b

    scales = K if f.by_outcome else 1
    look("where", BINS * scales, rows.where_rows, lambda f: math.sqrt(scales),
         shape="psd", unit="pair")  # fmt: skip
    look("xwhere", BINS * ranges, rows.xwhere_rows, lambda f: math.sqrt(ranges),
         shape="psd", unit="pair")  # fmt: skip
    look("middle", n + 1 + (0 if protected else q), rows.middle_rows, rows.middle_bound)
    look("centre", L * K, rows.centre_rows, lambda f: f.centre_radius)
    look("middle2", n, rows.middle2_rows, lambda f: f.middle2_radius)
    look("xsites", S * p, rows.xsites_rows, lambda f: f.x_sites_radius)
    look("zsites", S, rows.zsites_rows, lambda f: f.z_sites_radius)
    look("design", p * (p + 1) // 2 + p * q + protected, rows.design_rows, rows.design_bound,
         shape="psd" if p else "ball")  # fmt: skip
    tilts = 0 if protected else q
    look("sites", S * (K + tilts), rows.sites_rows,
         lambda f: f.u_sites_radius * math.hypot(1.0, TILT / 4 if tilts else 0.0))  # fmt: skip
    look("again", L * K, rows.again_rows, lambda f: sites_radius(K))
    look("balance", p * q, rows.balance_rows, balance, part=rows.balance_part)
    look("moments", p * (p + 1) // 2, rows.moments_rows, lambda f: f.b**2, shape="psd")
    if f.few:
        look("effects", p * K, rows.effects_rows, lambda f: f.b * f.effects_radius)
    else:
        look("effects", 1, rows.explained_rows, lambda f: 1.0, unit="pair")
    look("skew", K + q, rows.skew_rows, lambda f: math.hypot(SKEW[0], SKEW[1] / 4))
    look("contrast", q * K, rows.contrast_rows, contrast, part=rows.contrast_part)
    look("by_site", S * q * K, rows.by_site_rows, contrast, part=rows.by_site_part)
    look("squares", K, rows.squares_rows, lambda f: f.squares_radius / (2 if one else 1),
         shape="ball" if one else "psd", unit="pair")  # fmt: skip
    look("kept", 1 + 2 * q + K + (0 if protected else q**2), rows.kept_rows, rows.kept_bound)
    look("slope", 1, rows.slope_rows, lambda f: (PAIR[1] - PAIR[0]) / 2, unit="pair")
    return table


# -- the estimator -------------------------------------------------------------------------------


class _Release(NamedTuple):
    term: int
    name: str
    round: int
    share: float  # of mu^2
    size: int
    shape: Shape
    first: int  # place of its values in the state


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Regression:
    """All terms of a question, asked side by side; each has 1 / Q of mu^2.

    A pattern has three: `stage` "design" of all people, then "half" twice with the first one and
    its last state as `given`: half A with all outcomes, half B with the one that half A found.
    """

    terms: tuple[Public, ...]
    stage: Stage = "whole"
    given: tuple[Regression, Regressed] | None = None

    @property
    def noiseless(self) -> bool:
        return math.isinf(self.terms[0].G)

    @property
    def share(self) -> float:
        """Share of mu^2 that the stage spends."""
        return sum(release.share for release in _releases(self)) / len(self.terms)

    def schedule(self, rows: int) -> tuple[PlannedRelease, ...]:
        several = len(self.terms) > 1
        return tuple(
            PlannedRelease(
                size=one.size,
                clip=UNCLIPPED if self.noiseless else 1.0,
                shape=one.shape,
                weight=one.share / len(self.terms),
                round=one.round,
                name=f"{one.term + 1}.{one.name}" if several else one.name,
            )
            for one in _releases(self)
        )

    def start(self, rows: int) -> Regressed:
        releases = _releases(self)
        return Regressed(
            round=0,
            values=np.zeros(sum(one.size for one in releases)),
            noise=np.zeros(len(releases)),
            status="waiting",
            record=NO_STEP,
        )

    def queries(self, state: Regressed) -> tuple[SubjectQuery, ...]:
        known = facts_of(self, state)
        clip = UNCLIPPED if self.noiseless else 1.0
        return tuple(
            _query(one, known[one.term], table_of(known[one.term])[one.name], clip)
            for _, one in _of_round(self, state.round + 1)
        )

    def steps(
        self, state: Regressed, means: Sequence[Array], noise_stds: Sequence[float]
    ) -> Regressed:
        known, values, noise = facts_of(self, state), state.values.copy(), state.noise.copy()
        asked = _of_round(self, state.round + 1)
        for (i, one), mean, std in zip(asked, means, noise_stds, strict=True):
            f = known[one.term]
            # People who are not asked add zeros: the mean over those who are asked is larger.
            unit = table_of(f)[one.name].bound(f) * f.public.everybody / max(f.M, 1)
            values[one.first : one.first + one.size] = mean * unit
            noise[i] = std * unit
        record = StepRecord(
            statistic_norm=float(np.linalg.norm(np.concatenate(means))),
            noise_norm=math.sqrt(
                sum(std**2 * len(mean) for mean, std in zip(means, noise_stds, strict=True))
            ),
            step_norm=0.0,
        )
        return Regressed(
            round=state.round + 1, values=values, noise=noise, status="released", record=record
        )

    def done(self, state: Regressed) -> bool:
        last = max((one.round for one in _releases(self)), default=0)
        return state.round >= last or state.status == "budget_exhausted"


def table_of(f: Facts) -> dict[str, Look]:
    if not math.isinf(f.public.G):
        return _looks(f)
    return {
        name: Look(size=size, rows=partial(_nothing, size), bound=lambda f: 1.0, part=part)
        for name, (size, part) in least_squares.parts(f).items()
    }


def _nothing(size: int, f: Facts, a: People) -> Array:
    return np.zeros((len(a.u), size))


@lru_cache(maxsize=16)
def _releases(regression: Regression) -> tuple[_Release, ...]:
    """Return all releases by exchange, then by term."""
    found: list[_Release] = []
    for term, public in enumerate(regression.terms):
        f = _no_facts(regression, public)
        table = table_of(f)
        for one in f.plan.looks:
            look = table[one.name]
            found.append(_Release(term, one.name, one.round, one.share, look.size, look.shape, 0))
    found.sort(key=lambda one: one.round)  # stable
    ends = np.cumsum([0, *(one.size for one in found)])
    return tuple(one._replace(first=int(first)) for one, first in zip(found, ends, strict=False))


def _of_round(regression: Regression, number: int) -> list[tuple[int, _Release]]:
    return [(i, one) for i, one in enumerate(_releases(regression)) if one.round == number]


def _no_facts(regression: Regression, public: Public) -> Facts:
    """Return the facts of a term before any release of this stage."""
    design = facts_of(*regression.given)[0] if regression.given else None
    asked = plan(public, regression.stage, design.plan if design else None)
    asked = least_squares.PLAN if regression.noiseless else asked
    return Facts(public, asked, {}, stage=regression.stage, design=design)


@lru_cache(maxsize=8)
def facts_of(regression: Regression, state: Regressed) -> tuple[Facts, ...]:
    """Return the facts of every term.  MessageError: a state that is not of these looks."""
    releases = _releases(regression)
    n = sum(one.size for one in releases)
    form = (state.values.shape, state.noise.shape)
    planned = form == ((n,), (len(releases),)) and 0 <= state.round <= releases[-1].round
    if not (planned and np.all(state.noise >= 0.0)):  # nor NaN
        raise MessageError("E202", problem="a comparison in a state that no release gives")
    known = []
    for term, public in enumerate(regression.terms):
        seen = {
            one.name: Seen(state.values[one.first : one.first + one.size], float(state.noise[i]))
            for i, one in enumerate(releases)
            if one.term == term and one.round <= state.round
        }
        before = _no_facts(regression, public)
        known.append(before.after(seen))
    return tuple(known)


def _query(release: _Release, f: Facts, look: Look, clip: float) -> SubjectQuery:
    bound, part = look.bound(f), look.part

    def answer(stack: Data) -> Array:
        return look.rows(f, columns_of_people(f.public, f.stage, stack)) / bound

    def of_site(stack: Data) -> Array:
        return part(f, columns_of_people(f.public, f.stage, stack)) / bound if part else np.zeros(0)

    return SubjectQuery(
        size=look.size,
        clip=clip,
        shape=look.shape,
        answer=answer,
        part=of_site if part else None,
        unit=look.unit,
    )
