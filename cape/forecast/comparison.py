"""Forecast of the smallest effect that a comparison can find, before it is run, in sd of people.

The error is that of the answer for what typical people would release (`cape.algorithms.typical`).
No unit enters, and nothing is drawn.  `bench/comparison.py` compares it with runs.
"""

import math
from statistics import NormalDist

import numpy as np

from cape.algorithms.answer import TermAnswer
from cape.algorithms.effects import contrasts
from cape.algorithms.estimators import Array
from cape.algorithms.regression import Regression
from cape.algorithms.significance import Z80, power
from cape.algorithms.typical import expected
from cape.frozen import dataclass
from cape.settings.question import Question, Term

# Effects, in sd, whose power is forecast
EFFECTS = (0.2, 0.3, 0.5, 0.8)
# A plan whose smallest difference is at most the first is good; one whose is larger than the second
# is refused unless the owner accepts it.
GOOD, MAX_USEFUL = 0.5, 0.8

# Share of people with the second of two levels: .40 on average if shares are .5 with an sd of .12
# between sites.  Equal groups would promise too much.
USUAL_SHARE = 0.4


@dataclass(frozen=True, kw_only=True, slots=True)
class TermForecast:
    """Precision of one asked term, in sd of people within sites and groups."""

    term: str
    text: str  # what the difference is of
    se: float  # standard error of a difference
    smallest: float  # difference found with power .8, after Holm over the outcomes
    power: tuple[float, ...]  # for each of `EFFECTS`, of one outcome tested at .05
    # Standard error of d for each of `EFFECTS`: of a large one that of the sd of people counts, too
    sizes: tuple[float, ...]
    privacy: float  # share of se^2 that privacy noise adds, adjustment included


def forecast(question: Question, tested: Regression) -> tuple[TermForecast, ...]:
    """Return the forecast of every asked term, from the estimator that tests it."""
    return tuple(
        _forecast(question, term, answer)
        for term, answer in zip(question.asked, expected(tested), strict=True)
    )


def _forecast(question: Question, term: Term, answer: TermAnswer) -> TermForecast:
    parts, (text, c) = answer.parts, _contrasts(question, term)

    def squared(part: Array) -> float:
        return float(np.median(np.einsum("ci,kij,cj->ck", c, part, c)))

    z = NormalDist().inv_cdf(1 - 0.025 / len(parts.total))
    total = squared(parts.total)
    se = math.sqrt(total)
    # As `cape.algorithms.effects` has them of what was released
    of_size, of_sd = float(np.median(answer.relative)), float(np.median(answer.sd_error))
    return TermForecast(
        term=term.text,
        text=text,
        se=se,
        smallest=(z + Z80) * se,
        power=tuple(power(effect, se) for effect in EFFECTS),
        sizes=tuple(
            math.sqrt(total + max(d**2 - total, 0.0) * of_size + d**2 * of_sd) for d in EFFECTS
        ),
        privacy=(squared(parts.privacy) + squared(parts.adjustment)) / total,
    )


def _contrasts(question: Question, term: Term) -> tuple[str, Array]:
    """Return what the forecast difference is of, in words, and its contrasts (n, q) of delta.

    Ranges: by a sd of people, a quarter of the range.
    """
    ranges = [
        question.variable(name).unit for name in term.names if question.variable(name).is_range
    ]
    each = [factor * math.prod(ranges) * c for _, c, factor in contrasts(question, term)]
    text = term.text
    if len(each) > 1:
        text = f"a pair of {text}"
    if ranges and len(term.names) > len(ranges):
        text = f"slopes of {text}"
    return text + (", a sd" if ranges else ""), np.array(each)


def usual_shares(n_levels: int, second: float = USUAL_SHARE) -> Array:
    """Return the shares of people with each level; of two, `second` have the second."""
    if n_levels == 2:
        return np.array([1.0 - second, second])
    return np.full(n_levels, 1.0 / n_levels)
