"""Forecast of the smallest effect that a comparison can find, before it is run, in sd of people.

It is the error of the answer itself (`cape.algorithms.answer.variance`) for typical facts: groups
differ by .2 to .4 sd in covariates, which explain a few percent of an outcome.  No unit enters and
nothing is drawn.  `bench/contrast.py` compares it with runs.
"""

from __future__ import annotations

from itertools import combinations
from statistics import NormalDist

import numpy as np

from cape.algorithms.answer import typical, variance
from cape.algorithms.design import Public
from cape.algorithms.estimators import Array
from cape.algorithms.regression import Regression
from cape.algorithms.significance import Z80, power
from cape.frozen import dataclass
from cape.settings.question import Question, Term

# Effects, in sd, whose power is forecast
EFFECTS = (0.2, 0.3, 0.5, 0.8)
# A plan whose smallest difference is at most the first is good; one whose is larger than the second
# is refused unless the owner accepts it.
GOOD, MAX_USEFUL = 0.5, 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class TermForecast:
    """Precision of one asked term, in sd of people within sites and groups."""

    term: str
    text: str  # what the difference is of
    se: float  # standard error of a difference
    smallest: float  # difference found with power .8, after Holm over the outcomes
    power: tuple[float, ...]  # for each of `EFFECTS`, of one outcome tested at .05
    privacy: float  # share of se^2 that privacy noise adds, adjustment included


def forecast(question: Question, tested: Regression) -> tuple[TermForecast, ...]:
    """Return the forecast of every asked term, from the estimator that tests it."""
    return tuple(
        _forecast(question, term, public)
        for term, public in zip(question.asked, tested.terms, strict=True)
    )


def _forecast(question: Question, term: Term, public: Public, stage: Stage) -> TermForecast:
    parts = variance(public, typical(public, stage))
    text, contrasts = contrast_of(question, term, public.H)

    def mean(part: Array) -> float:
        each = np.einsum("ci,kij,cj->ck", contrasts, part, contrasts)
        return float(np.mean(each))

    total, K = mean(parts.total), public.has.shape[1]
    se = float(np.sqrt(total))
    z = NormalDist().inv_cdf(1 - 0.025 / K)
    return TermForecast(
        term=term.text,
        text=text,
        se=se,
        smallest=(z + Z80) * se,
        power=tuple(power(effect, se) for effect in EFFECTS),
        privacy=(mean(parts.privacy) + mean(parts.adjustment)) / total,
    )


def contrast_of(question: Question, term: Term, H: Array) -> tuple[str, Array]:
    """Return in words the difference that is forecast, and its contrasts (n, q) of delta.

    Ranges: by a sd of people, a quarter of the range.
    """
    columns = [question.variable(name) for name in term.names]
    ranges = sum(one.is_range for one in columns)
    if term.public:
        several = len(term.names) == 1 and term.q > 1
        if several:
            pairs = combinations(range(len(H)), 2)
            return f"a pair of {term.text}", np.array([H[b] - H[a] for a, b in pairs])
        return term.text, np.eye(term.q)
    if not ranges:
        return term.text, np.array([[1.0 if len(columns) == 1 else 2.0]])
    if ranges == 1 and len(columns) == 2:
        return f"slopes of {term.text}, a sd", np.array([[0.5]])
    if ranges == 1 or term.names[0] == term.names[-1]:
        return f"a sd of {term.text}", np.array([[0.25]])
    return f"{term.text}, a sd of each", np.array([[0.125]])
