"""A comparison of groups as sites and aggregator play it, in floats and at once.

Sums are floats and the noise is Gaussian with the planned standard deviations; all else is the
code of a run: the question, the rows of a site, the looks, the answer.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cape.algorithms import design
from cape.algorithms.answer import TermAnswer, answers, direction
from cape.algorithms.design import Public
from cape.algorithms.effects import Effect, Omnibus, effects, omnibus
from cape.algorithms.estimators import Array
from cape.algorithms.regression import Regressed, Regression
from cape.privacy.accounting import gdp_mu
from cape.privacy.halves import half_of_sites
from cape.settings.question import Question, parse_question

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Found:
    effects: list[Effect]
    omnibus: list[Omnibus]
    answers: tuple[TermAnswer, ...]
    regression: Regression
    state: Regressed
    weights: Array | None = None  # of a pattern


def fast(
    settings: Mapping[str, str],
    sites: Mapping[str, Table],
    *,
    epsilon: float | None,
    rng: np.random.Generator,
    delta: float = 1e-5,
    colluders: int = 1,
    lacks: Mapping[str, set[str]] | None = None,
) -> Found:
    """Return the answer for tables {site: {column: values}}; NaN or "" is missing."""
    # `epsilon` None: no noise.  `lacks`: outcomes that a site states it has not.
    question = parse_question(**settings)
    mu = gdp_mu(epsilon=epsilon, delta=delta) if epsilon else math.inf
    rows = [rows_of(question, table, s, name) for s, (name, table) in enumerate(sites.items())]
    has = np.array(
        [
            [one.name not in (lacks or {}).get(name, set()) for one in question.outcomes]
            for name in sites
        ]
    )
    return play(question, rows, has, mu, colluders, rng)


def rows_of(question: Question, table: Table, site: int, name: str = "") -> Array:
    """Return the rows of a site in public order, as `cape.algorithms.regression` has them."""
    n = len(next(iter(table.values())))
    codes = {one.name: _codes(one, table[one.name]) for one in question.variables}
    cell = design.cell_of(question, codes, n)
    order = design.public_order([f"{name}-{i}" for i in range(n)], cell)
    u = np.column_stack([_outcome(one, table, question.change) for one in question.outcomes])
    columns = [u, cell, design.coded(question, codes), np.full(n, site)]
    return np.column_stack(columns)[order].astype(np.float32)


def _codes(variable: Any, values: Any) -> Array:
    values = np.asarray(values)
    if variable.is_range and values.dtype.kind in "fiu":
        return np.clip((values - variable.middle) / variable.unit, -2, 2)
    if values.dtype.kind in "fiu":
        return variable.code(["" if math.isnan(x) else str(x) for x in values.tolist()])
    return variable.code(values.tolist())


def _outcome(outcome: Any, table: Table, change: Any) -> Array:
    if change:
        earlier, later = (np.asarray(table[f"{outcome.name}@{one}"], dtype=float) for one in change)
        values = np.log(later) - np.log(earlier) if outcome.log else later - earlier
    else:
        values = np.asarray(table[outcome.name], dtype=float)
        with np.errstate(all="ignore"):
            values = np.log(values) if outcome.log else values
    with np.errstate(all="ignore"):
        values = (values - outcome.middle) / outcome.unit
    return np.where(np.isfinite(values), np.clip(values, -1e6, 1e6), np.nan)


def play(
    question: Question,
    rows: list[Array],
    has: np.ndarray,
    mu: float,
    colluders: int,
    rng: np.random.Generator,
) -> Found:
    """Play all looks at rows of sites."""
    K, S = len(question.outcomes), len(rows)

    def public(stacks: list[Array], has: np.ndarray, share: float = 1.0) -> tuple[Public, ...]:
        K = has.shape[1]
        cells = [stack[:, K].astype(int) for stack in stacks]
        counts = np.array([design.counts_of(question, one) for one in cells])
        everybody = sum(len(stack) for stack in rows)
        M = share * (counts * design.sites_asked(question, has)[:, None]).sum()
        honest = 1.0 if math.isinf(mu) else (S - colluders) / S
        G = M * mu / math.sqrt(len(question.asked)) * math.sqrt(honest)
        return tuple(
            design.public_of(
                question, term, counts=counts, people=counts.sum(axis=1), has=has,
                everybody=everybody, G=G,
            )
            for term in question.asked
        )  # fmt: skip

    if not question.pattern:
        regression = Regression(terms=public(rows, has))
        state = run(regression, rows, rng)
        found = answers(regression, state)
        return Found(
            list(effects(question, found)), list(omnibus(question, found)), found, regression, state
        )
    terms, given = public(rows, has), None
    if terms[0].x_columns and not math.isinf(mu):
        whole = Regression(terms=terms, stage="design")
        given = (whole, run(whole, rows, rng))
    first, second = halves(question, rows, rng)
    half_a = Regression(terms=public(first, has), stage="half", given=given)
    weights = direction(half_a, run(half_a, first, rng))
    score = [np.column_stack([one[:, :K] @ weights, one[:, K:]]) for one in second]
    half_b = Regression(
        terms=public(score, has.all(axis=1, keepdims=True)), stage="half", given=given
    )
    state = run(half_b, score, rng)
    found = answers(half_b, state)
    one = replace_outcomes(question)
    return Found(
        list(effects(one, found)), list(omnibus(one, found)), found, half_b, state, weights
    )


def replace_outcomes(question: Question) -> Question:
    outcome = replace(question.outcomes[0], name="pattern", unit=1.0, middle=0.0, log=False)
    return replace(question, outcomes=(outcome,))


def halves(
    question: Question, rows: list[Array], rng: np.random.Generator
) -> tuple[list[Array], list[Array]]:
    """Return halves of the people of every cell; of sites, if the answer is for sites like these.

    A site that is not in a half has no rows there.
    """
    K, first, second = len(question.outcomes), [], []
    if question.random:
        names = [str(s) for s in range(len(rows))]
        inside = half_of_sites(rng.bytes(8).hex(), names, [len(stack) for stack in rows])
        return (
            [stack if a else stack[:0] for stack, a in zip(rows, inside, strict=True)],
            [stack[:0] if a else stack for stack, a in zip(rows, inside, strict=True)],
        )
    for stack in rows:
        chosen = np.zeros(len(stack), dtype=bool)
        for cell in np.unique(stack[:, K]):
            people = rng.permutation(np.flatnonzero(stack[:, K] == cell))
            chosen[people[: (len(people) + rng.integers(2)) // 2]] = True
        first.append(stack[chosen])
        second.append(stack[~chosen])
    return first, second


def run(regression: Regression, rows: list[Array], rng: np.random.Generator) -> Regressed:
    """Return the last state of all looks at rows of sites."""
    state, planned = regression.start(0), regression.schedule(0)
    G, everybody = regression.terms[0].G, regression.terms[0].everybody
    terms, M = len(regression.terms), max(regression.terms[0].M, 1)
    stacks = [stack[:, None, :] for stack in rows]
    while not regression.done(state):
        asked = [one for one in planned if one.round == state.round + 1]
        means, stds = [], []
        for one, query in zip(asked, regression.queries(state), strict=True):
            total = sum(query.answer(stack).sum(axis=0) for stack in stacks)
            if query.part is not None:
                total = total + sum(query.part(stack) for stack in stacks)
            move = 2.0 if one.shape == "ball" else math.sqrt(2.0)
            # G is of one term, which has 1 / Q of mu^2; the weight is a share of all.
            std = (
                0.0 if math.isinf(G) else move / (G * math.sqrt(one.weight * terms)) * M / everybody
            )
            means.append(total / everybody + std * rng.standard_normal(query.size))
            stds.append(std)
        state = regression.steps(state, means, stds)
    return state
