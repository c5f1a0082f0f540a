"""Answers as rows: an effect of each contrast and outcome in the outcome's unit, and its tests.

L groups have one test of all (omnibus) and every pair, later less earlier level.  A continuous
column has a slope for a unit of the column, a product of two columns the difference of slopes or of
differences.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement, product
from typing import Any, Final

import numpy as np

from cape.algorithms.answer import TermAnswer
from cape.algorithms.design import group_codes
from cape.algorithms.estimators import Array
from cape.algorithms.significance import benjamini_hochberg, f_p, holm, t95, t_p
from cape.frozen import dataclass
from cape.settings.measures import edge_names
from cape.settings.question import Question, Term

# Answers with these marks have no p: groups may differ in shape or covariates instead.
NO_P = ("shape", "partly", "lacks")
# A test that sees no fewer sd, of a slope over a quarter of its range, says nothing.
HOPELESS: Final = 2.0
# Where it differs from zero, after Holm
SIGNIFICANT: Final = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """One contrast of one outcome, a row of effects.tsv; None: withheld, or not known."""

    term: str
    contrast: str
    outcome: str
    region_a: str | None  # the ends of an edge
    region_b: str | None
    estimate: float | None
    unit: str | None  # of all to `high95`, `sd` and the errors
    se: float | None  # under the null
    low95: float | None
    high95: float | None
    d: float | None  # in `sd`
    d_low95: float | None
    d_high95: float | None
    sd: float | None  # of people within sites and groups, adjusted as the term is
    p: float | None
    p_holm: float | None  # over outcomes and contrasts of the term; at least that of the omnibus
    q_bh: float | None
    se_sampling: float | None  # the squares of these parts add up to that of `se`
    se_privacy: float | None
    se_adjustment: float | None
    se_shape: float | None
    se_sites: float | None
    observed: float | None  # share of the people asked who have a value, where the site has it
    fits: str  # "wide", or a state of `cape.algorithms.answer.Fit`

    @property
    def found(self) -> bool:
        """Whether it differs from zero after Holm."""
        return self.p_holm is not None and self.p_holm < SIGNIFICANT

    def share(self, part: str) -> float | None:
        """Return the share of a part, such as "privacy", in the square of the error."""
        value: float | None = getattr(self, f"se_{part}")
        return None if value is None or not self.se else (value / self.se) ** 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Omnibus:
    """The test that no group differs in an outcome, a row of omnibus.tsv."""

    term: str
    outcome: str
    chi2: float | None
    df: float | None
    p: float | None
    p_holm: float | None  # over outcomes
    q_bh: float | None

    @property
    def found(self) -> bool:
        return self.p_holm is not None and self.p_holm < SIGNIFICANT


def effects(question: Question, answers: Sequence[TermAnswer]) -> tuple[Effect, ...]:
    return tuple(
        row
        for term, answer in zip(question.asked, answers, strict=True)
        for row in _effects_of(question, term, answer)
    )


def omnibus(question: Question, answers: Sequence[TermAnswer]) -> tuple[Omnibus, ...]:
    """Return a row for each term of several columns and each outcome."""
    rows = []
    for term, answer in zip(question.asked, answers, strict=True):
        if answer.public.q == 1:
            continue
        chi2, p = _tests(answer)
        each = zip(chi2, p, _adjusted(holm, p), _adjusted(benjamini_hochberg, p), strict=True)
        for outcome, row in zip(question.outcomes, each, strict=True):
            values = dict(zip(("chi2", "p", "p_holm", "q_bh"), map(_known, row), strict=True))
            q = float(answer.public.q)
            rows.append(Omnibus(term=term.text, outcome=outcome.name, df=q, **values))
    return tuple(rows)


def _tests(answer: TermAnswer) -> tuple[Array, Array]:
    """Return chi2 and p (K,) of the test of all columns; NaN where the answer is withheld."""
    # Without noise it is the F test: chi2 is q F.
    cov = answer.cov
    half = np.linalg.solve(cov, answer.estimate.T[:, :, None])[:, :, 0]
    chi2 = np.einsum("ki,ik->k", half, answer.estimate)
    chi2 = np.where(_shown(answer), chi2, np.nan)
    q = answer.public.q
    return chi2, f_p(chi2 / q, q, answer.df)


def _shown(answer: TermAnswer) -> np.ndarray:
    return np.array([fit not in NO_P for fit in answer.fits])


def _adjusted(method: object, p: Array) -> Array:
    """Return adjusted p-values of those that are known."""
    known = np.isfinite(p)
    adjusted = np.full(p.shape, np.nan)
    adjusted[known] = method(p[known])  # type: ignore[operator]
    return adjusted


def _effects_of(question: Question, term: Term, answer: TermAnswer) -> Iterator[Effect]:
    names, vectors, factors = zip(*contrasts(question, term), strict=True)
    c = np.array(vectors)  # (n, q)
    units = np.array([one.unit for one in question.outcomes])
    size = np.outer(factors, units)  # (n, K), of a value in the outcome's unit

    def variance(cov: Array) -> Array:
        return np.asarray(np.einsum("ni,kij,nj->nk", c, cov, c) * size**2)

    estimate, own = (c @ one * size for one in (answer.estimate, answer.own))
    null = variance(answer.cov)
    error = null + np.maximum(own**2 - null, 0.0) * answer.relative
    t = t95(answer.df)
    shown = _shown(answer)
    with np.errstate(invalid="ignore", divide="ignore"):
        z = estimate / np.sqrt(null)
    p = np.where(shown, t_p(z, answer.df), np.nan)
    p_holm = _adjusted(holm, p.ravel()).reshape(p.shape)
    if answer.public.q > 1:
        p_holm = np.maximum(p_holm, _adjusted(holm, _tests(answer)[1]))
    q_bh = _adjusted(benjamini_hochberg, p.ravel()).reshape(p.shape)
    lacks = np.array([fit == "lacks" for fit in answer.fits])
    sd = np.where(lacks, np.nan, answer.sd * units)
    step = math.prod(v.unit for v in map(question.variable, term.names) if v.is_range)
    wide = (step * t * np.sqrt(null) > HOPELESS * sd) & [fit == "yes" for fit in answer.fits]
    fits = np.where(wide, "wide", answer.fits)
    known_d = np.where(fits == "yes", sd, np.nan)
    estimate = np.where(lacks, np.nan, estimate)
    d = estimate / known_d
    of_sign = estimate - np.sign(estimate) * t * np.sqrt(null)
    low, high = _ends(estimate, t * np.sqrt(error), of_sign)
    d_error = error / known_d**2 + d**2 * answer.sd_error
    d_low, d_high = _ends(d, t * np.sqrt(d_error), of_sign)
    parts = answer.parts
    columns: dict[str, Any] = {
        f"se_{name}": np.sqrt(variance(getattr(parts, name))) for name in parts.__slots__
    }
    columns |= {"estimate": estimate, "se": np.sqrt(null), "low95": low, "high95": high, "sd": sd}
    columns |= {"d": d, "d_low95": d_low, "d_high95": d_high, "observed": answer.observed}
    columns |= {"p": p, "p_holm": p_holm, "q_bh": q_bh}
    columns = {name: np.broadcast_to(values, size.shape) for name, values in columns.items()}
    ends = regions_of(question)
    for (i, name), (k, outcome) in product(enumerate(names), enumerate(question.outcomes)):
        region_a, region_b = ends.get(outcome.name, (None, None))
        yield Effect(
            term=term.text,
            contrast=name,
            outcome=outcome.name,
            region_a=region_a,
            region_b=region_b,
            unit=outcome.word or None,
            fits=str(fits[i, k]),
            **{name: _known(values[i, k]) for name, values in columns.items()},
        )


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def regions_of(question: Question) -> dict[str, tuple[str, str]]:
    """Return the two ends of each outcome; empty if these are not all edges of some regions."""
    names, measure = [one.name for one in question.outcomes], question.measure
    if measure is not None and measure.kind == "domains":
        named = dict.fromkeys(measure.domains)
        pairs = {
            a if a == b else f"{a} - {b}": (a, b)
            for a, b in combinations_with_replacement(named, 2)
        }
        return {name: pairs[name] for name in names}
    regions = list(dict.fromkeys(end for name in names for end in name.split(" - ")))
    if measure is not None:
        regions = list(measure.networks) if measure.kind == "fnc" else []
    ends = dict(zip(edge_names(regions), combinations(regions, 2), strict=True))
    # Columns of a table are edges if they are named so, all pairs in their order.
    return ends if len(names) > 2 and list(ends) == names else {}


def _ends(estimate: Array, half: Array, of_sign: Array) -> tuple[Array, Array]:
    """Return the ends of an interval, which leaves 0 out where the test does."""
    # A scale that is uncertain widens an interval; it cannot turn a sign.  `of_sign`: the end
    # towards 0 of the interval of the test, on the side of the estimate where 0 is left out.
    is_known = of_sign * np.sign(estimate) > 0
    low, high = estimate - half, estimate + half
    low = np.where(is_known & (estimate > 0), np.maximum(low, 0.0), low)
    high = np.where(is_known & (estimate < 0), np.minimum(high, 0.0), high)
    return low, high


def contrasts(question: Question, term: Term) -> Iterator[tuple[str, Array, float]]:
    """Yield name, c (q,) and factor: the contrast is factor c'delta, for units of the columns."""
    variables = [question.variable(name) for name in dict.fromkeys(term.names)]
    if term.public:
        each = []
        for variable in variables:
            H, levels = group_codes(len(variable.levels)), variable.levels
            each.append(
                [
                    (f"{levels[b]} - {levels[a]}", H[b] - H[a])
                    for a, b in combinations(range(len(levels)), 2)
                ]
            )
        for chosen in product(*each):
            c = np.ones(1)
            for _, one in chosen:
                c = np.kron(c, one)
            names = [name for name, _ in chosen]
            if len(names) > 1:
                names = [f"{v.name} [{name}]" for v, name in zip(variables, names, strict=True)]
            yield ":".join(names), c, 1.0
        return
    # z is a column by its half range, from -1/2 to 1/2: 1/4 for a range, 1/2 for levels, which are
    # -1 and 1, so that two levels differ by 2
    last = [variable.levels[-1] for variable in variables if not variable.is_range]
    ranges = [variable.unit for variable in variables if variable.is_range]
    square = len(variables) < len(term.names)
    factor = 2.0 ** len(last) * (0.25 if ranges else 0.5)
    if len(ranges) == 2:
        factor /= 2.0
    factor /= math.prod(ranges) ** (2 if square else 1)
    if not ranges and len(last) == 1:
        name = f"{last[0]} - {variables[0].levels[0]}"
    else:
        name = term.text + (f" [{', '.join(last)}]" if last else "")
    yield name, np.ones(1), factor
