"""Forecast of the smallest effect that a comparison can find, before it is run, in sd of people.

The estimator itself (`cape.algorithms.regression`) is led through its looks at public people of an
ordinary study, with the standard deviations of the planned noise but without noise: what it then
says of its own errors is the forecast.  No unit enters, and nothing is drawn.  `bench/contrast.py`
compares it with runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from cape.algorithms.answer import Answer, answers
from cape.algorithms.design import Public, coded, columns
from cape.algorithms.effects import contrasts
from cape.algorithms.estimators import Array, Data
from cape.algorithms.population import normals
from cape.algorithms.regression import Regressed, Regression
from cape.algorithms.significance import Z80, power
from cape.frozen import dataclass
from cape.settings.question import HALF_RANGE, Question, Term

# Effects, in sd, whose power is forecast
EFFECTS = (0.2, 0.3, 0.5, 0.8)
# A plan whose smallest difference is at most the first is good; one whose is larger than the second
# is refused unless the owner accepts it.
GOOD, MAX_USEFUL = 0.5, 0.8

# Share of people with the second of two levels: .40 on average if shares are .5 with an sd of .12
# between sites.  Equal groups would promise too much.
USUAL_SHARE = 0.4
# An ordinary study: sd of people within a range, in public units; correlation of columns with the
# first asked one; effect of a column on an outcome, per public unit; sd of site means, in sd
SPREAD, ALIKE, EFFECT, SITES = 0.8, 0.2, 0.13, 0.3
# Looks without noise: scales have a prior of their own, and the answer is divided by what is kept
QUIET = ("where", "middle", "kept")
# Spread of people's tails, log sd; share of the variance that many outcomes have in common, and by
# how many factors
TAILS, COMMON, FACTORS = 0.22, 0.4, 6


@dataclass(frozen=True, kw_only=True, slots=True)
class TermForecast:
    """Precision of one asked term, in sd of people within sites and groups."""

    term: str
    text: str  # what the difference is of
    se: float  # standard error of a difference
    smallest: float  # difference found with power .8, after Holm over the outcomes
    power: tuple[float, ...]  # for each of `EFFECTS`, of one outcome tested at .05
    privacy: float  # share of se^2 that privacy noise adds, adjustment included


def forecast(
    question: Question, tested: Sequence[tuple[Regression, Regressed]]
) -> tuple[TermForecast, ...]:
    """Return the forecast of every asked term, of estimators that test it at their last states."""
    each = zip(*(answers(*one) for one in tested), strict=True)
    return tuple(
        _forecast(question, term, found) for term, found in zip(question.asked, each, strict=True)
    )


def _forecast(question: Question, term: Term, found: Sequence[Answer]) -> TermForecast:
    text, c = _contrasts(question, term)

    def squared(part: str) -> float:
        """Return the mean over estimators of what a part adds to se^2, in squared sd."""
        covs = (one.cov if part == "all" else getattr(one.parts, part) for one in found)
        each = [
            np.median(np.einsum("ci,kij,cj->ck", c, cov, c) / one.sd**2)
            for cov, one in zip(covs, found, strict=True)
        ]
        return float(np.mean(each))

    z = NormalDist().inv_cdf(1 - 0.025 / len(found[0].sd))
    total = squared("all")
    se = math.sqrt(total)
    return TermForecast(
        term=term.text,
        text=text,
        se=se,
        smallest=(z + Z80) * se,
        power=tuple(power(effect, se) for effect in EFFECTS),
        privacy=(squared("privacy") + squared("adjustment")) / total,
    )


def _contrasts(question: Question, term: Term) -> tuple[str, Array]:
    """Return what the forecast difference is of, in words, and its contrasts (n, q) of delta.

    Ranges: by a sd of people, a quarter of the range.
    """
    ranges = [question.variable(name).unit for name in term.names
              if question.variable(name).is_range]  # fmt: skip
    each = [factor * math.prod(ranges) * c for _, c, factor in contrasts(question, term)]
    text = term.text
    if len(each) > 1:
        text = f"a pair of {text}"
    if ranges and len(term.names) > len(ranges):
        text = f"slopes of {text}"
    return text + (", a sd" if ranges else ""), np.array(each)


# -- an ordinary study ---------------------------------------------------------------------------


def led(question: Question, asked: Regression, side: int) -> Regressed:
    """Return the last state of an estimator that was led through its looks at public people."""
    sites, public = ordinary_people(question, asked.terms[0]), asked.terms[0]
    state, planned = asked.start(0), asked.schedule(0)
    while not asked.done(state):
        means, stds = [], []
        releases = [release for release in planned if release.round == state.round + 1]
        for release, query in zip(releases, asked.queries(state), strict=True):
            total = sum(query.answer(rows).sum(axis=0) for rows in sites)
            if query.part is not None:
                total = total + sum(query.part(rows) for rows in sites)
            move = 2.0 if release.shape == "ball" else math.sqrt(2.0)
            # G is that of a term, which has 1 / Q of mu^2; the weight is a share of all.
            std = move / (public.G * math.sqrt(release.weight * len(asked.terms)))
            stds.append(std * public.M / public.everybody)
            mean = np.asarray(total / public.everybody)
            quiet = release.name.endswith(QUIET)
            means.append(mean if quiet else _noisy(mean, side * stds[-1]))
        state = asked.steps(state, means, stds)
    return state


def _noisy(mean: Array, std: float) -> Array:
    """Return a mean (n,) with noise of its usual length, at right angles to it in twos.

    Squares add, as they do on average.  The last of an odd number of entries has none.
    """
    noise = np.zeros(mean.size)
    first, second = mean[: mean.size - mean.size % 2].reshape(-1, 2).T
    size = std * math.sqrt(2.0) / np.maximum(np.hypot(first, second), 1e-300)
    noise[: 2 * len(first)] = np.column_stack([-second * size, first * size]).ravel()
    return np.asarray(mean + noise)


def ordinary_people(question: Question, public: Public) -> list[Data]:
    """Return the people of each site who are asked, as rows in public order.

    Columns go with the first asked term, and explain a few percent of an outcome but for those that
    are asked; sites differ.
    """
    n_sites, cells = public.counts.shape
    site, cell = np.divmod(np.repeat(np.arange(n_sites * cells), public.counts.ravel()), cells)
    n, n_outcomes, first = len(site), public.has.shape[1], len(question.variables)
    drawn = normals(n, first + FACTORS + n_outcomes + 1)
    names = [variable.name for variable in question.variables]
    lead = drawn[:, names.index(question.asked[0].names[0])]
    if question.asked[0].public:
        lead = (public.group[cell] - np.mean(public.group[cell])) / np.std(public.group[cell])
    codes = {}
    for i, variable in enumerate(question.variables):
        value = math.sqrt(1 - ALIKE**2) * drawn[:, i] + ALIKE * lead
        value = SPREAD * value + SITES * normals(n_sites, first, seed=4)[site, i]
        if variable.name in question.public:
            place = question.public.index(variable.name)
            levels = [variable.levels.index(one[place]) for one in question.cells]
            codes[variable.name] = np.array(levels, dtype=np.float64)[cell]
        elif variable.levels:
            ends = np.cumsum(usual_shares(len(variable.levels)))[:-1]
            codes[variable.name] = np.searchsorted(np.quantile(value, ends), value).astype(
                np.float64
            )
        else:
            codes[variable.name] = np.clip(value, -HALF_RANGE, HALF_RANGE)
    x = coded(question, codes)
    u, factors = drawn[:, first + FACTORS : -1], drawn[:, first : first + FACTORS]
    if n_outcomes > 1:
        common = factors @ normals(FACTORS, n_outcomes, seed=2) / math.sqrt(FACTORS)
        u = math.sqrt(1 - COMMON) * u + math.sqrt(COMMON) * common
    u = u * np.exp(TAILS * drawn[:, -1:] - TAILS**2)
    effects = np.where(normals(x.shape[1], n_outcomes, seed=3) > 0, EFFECT, -EFFECT)
    asked = {term.names for term in question.asked}
    effects[[column.term in asked for column in columns(question)]] = 0.0
    u = u + x @ effects + SITES * normals(n_sites, n_outcomes, seed=5)[site]
    rows = np.column_stack([u, cell, x, site]).astype(np.float32)
    return [rows[site == s][:, :, None] for s in range(n_sites)]


def usual_shares(n_levels: int, second: float = USUAL_SHARE) -> Array:
    """Return the shares of people with each level; of two, `second` have the second."""
    if n_levels == 2:
        return np.array([1.0 - second, second])
    return np.full(n_levels, 1.0 / n_levels)
