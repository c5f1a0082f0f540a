"""One private linear model: the looks at people, in exchanges, and the state of what was released.

    u_k = site + x'B_k + g'delta_k + e_k     for the people of a site who have outcome k

One term g is asked, adjusted for covariates x.  The statistic is T = mean w v': v are outcomes
without centres, site centres and effects of covariates, cut to a ball of radius C, and w = clip(r -
Gamma'x) weighs a person's code r so that covariates are in balance.  Several terms are asked side
by side.  Without noise the answer is least squares (`cape.algorithms.least_squares`).

Each look (`cape.algorithms.rows`) asks rows in units of its own bound, so its planned clip is 1.  A
row lies within that bound, and the integers clip again.  Terms that are no sum over persons are a
site's own part; the move of a sum by one person then follows from `looks.moved`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from cape.algorithms import estimators, least_squares
from cape.algorithms.design import Public
from cape.algorithms.estimators import NO_STEP, UNCLIPPED, Array, Data, PlannedRelease, SubjectQuery
from cape.algorithms.facts import Facts
from cape.algorithms.looks import Stage, plan
from cape.algorithms.placed import Seen
from cape.algorithms.rows import Look, People, Shape, columns_of_people, looks_of
from cape.errors import MessageError
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Regressed:
    """State of `Regression`: what was released, and nothing else."""

    round: int  # exchanges made
    values: Array  # released means over the people asked, one look after the other; 0 before
    noise: Array  # (looks,) std of the noise on an entry
    status: estimators.ReleaseStatus
    record: estimators.StepRecord


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
    """All terms of a question, asked side by side; each has 1 / Q of mu^2."""

    # A pattern has three: `stage` "design" of all people, then "half" twice with the first one and
    # its last state as `given`: half A with all outcomes, half B with the one that half A found.

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
            _query(known[one.term], table_of(known[one.term])[one.name], clip)
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
        record = estimators.StepRecord(
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
        return state.round >= last or state.status not in ("waiting", "released")


def table_of(f: Facts) -> dict[str, Look]:
    if not math.isinf(f.public.G):
        return looks_of(f)
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


def _query(f: Facts, look: Look, clip: float) -> SubjectQuery:
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
