"""No look moves by more than its bound, and no released value breaks what follows from it.

Neighbours differ in one person of a site and public cell.  A question follows from the state
alone, so both are asked the same: what is left to show is that no vector moves by more than twice
its clip (svec of PSD matrices: sqrt 2 times), whatever was released before.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from cape.algorithms.answer import answers, direction
from cape.algorithms.estimators import Array, SubjectQuery
from cape.algorithms.regression import Regressed, Regression
from support.regressions import KINDS, draw_rows, hostile_row, question_of, regression_of

SIZES = [3, 12, 40, 1]
# Rounding of sums of floats; the integers of a release have their own margin
ROUNDING = 1e-6


def asked_sum(query: SubjectQuery, rows: list[Array]) -> Array:
    total = np.zeros(query.size)
    for stack in rows:
        stack = stack[:, None, :].astype(np.float32)
        each = query.answer(stack)
        assert each.shape == (len(each), query.size)
        assert np.all(np.isfinite(each))
        # Rows lie within the clip: the integers cut nothing off.
        assert np.all(np.linalg.norm(each, axis=1) <= 1 + ROUNDING)
        total += each.sum(axis=0)
        if query.part is not None:
            part = query.part(stack)
            assert part.shape == (query.size,)
            assert np.all(np.isfinite(part))
            total += part
    return total


def moves(
    regression: Regression, rows: list[Array], other: list[Array], rng: np.random.Generator
) -> tuple[float, Regressed]:
    """Return the largest move of a look as a share of what is allowed, and the last state."""
    state, most = regression.start(0), 0.0
    planned = regression.schedule(0)
    everybody = regression.terms[0].everybody
    loud = rng.choice([1e-3, 0.05, 3.0])  # releases may be anything
    while not regression.done(state):
        asked = [one for one in planned if one.round == state.round + 1]
        means = []
        for one, query in zip(asked, regression.queries(state), strict=True):
            assert (query.size, query.clip, query.shape) == (one.size, one.clip, one.shape)
            total = asked_sum(query, rows)
            moved = float(np.linalg.norm(total - asked_sum(query, other)))
            allowed = 2.0 if query.shape == "ball" else math.sqrt(2.0)
            assert moved <= allowed + ROUNDING, f"{one.name} moves by {moved} of {allowed}"
            most = max(most, moved / allowed)
            means.append(total / everybody + loud * rng.standard_normal(query.size))
        state = regression.steps(state, means, [float(loud)] * len(means))
    return most, state


def scored(rows: Array, K: int, w: Array) -> Array:
    with np.errstate(invalid="ignore"):  # a missing value makes the score missing
        return np.column_stack([rows[:, :K] @ w, rows[:, K:]])


@pytest.mark.parametrize("kind", KINDS)
def test_one_person_moves_a_look_by_its_bound_at_most(kind: str) -> None:
    """Three looks of the prototype were above their bound, and one design was read from people."""
    question, most = question_of(kind), 0.0
    K = len(question.outcomes)
    for seed in range(6):
        rng = np.random.default_rng([seed, 7])
        rows = draw_rows(question, SIZES, rng, missing=0.3 * (seed % 2))
        site = int(rng.integers(len(rows)))
        i = int(rng.integers(len(rows[site])))
        rows[site][i] = hostile_row(rows[site][i], K, rng)
        other = [one.copy() for one in rows]
        other[site][i] = hostile_row(other[site][i], K, rng)
        has = rng.random((len(rows), K)) < 0.8
        has[0] = True
        G = float(rng.choice([5.0, 200.0, 5000.0]))
        if not question.pattern:
            regression = regression_of(question, rows, G, has)
            most = max(most, moves(regression, rows, other, rng)[0])
            continue
        given = None
        if question.model != (("dx",),):
            whole = regression_of(question, rows, G, has, stage="design")
            share, state = moves(whole, rows, other, rng)
            given, most = (whole, state), max(most, share)
        half_a = regression_of(question, rows, G, has, stage="half", given=given)
        share, state = moves(half_a, rows, other, rng)
        w = direction(half_a, state)
        score, others = ([scored(one, K, w) for one in each] for each in (rows, other))
        half_b = regression_of(question, score, G, has[:, :1], stage="half", given=given)
        most = max(most, share, moves(half_b, score, others, rng)[0])
    assert most > 0.6  # the pairs are hostile enough to come near a bound


@pytest.mark.parametrize("kind", KINDS)
def test_no_released_value_breaks_what_follows(kind: str) -> None:
    """A broadcast may hold anything; a fact that is not a number would end runs by data."""
    question = question_of(kind)
    rng = np.random.default_rng(5)
    rows = draw_rows(question, SIZES, rng)
    stages = ["design", "half"] if question.pattern and len(question.model) > 1 else ["whole"]
    if question.pattern and len(question.model) == 1:
        stages = ["half"]
    given = None
    for stage in stages:
        regression = regression_of(question, rows, 300.0, stage=stage, given=given)
        last = regression.schedule(0)[-1].round
        for values in (0.0, 1e30, -1e30, np.nan, np.inf, "mixed"):
            for noise in (0.0, 1e30, 1e-3):
                state = regression.start(0)
                n = len(state.values)
                drawn = rng.choice([1e30, -1e30, 0.0, 1.0, -1.0], n)
                for made in range(last + 1):
                    state = Regressed(
                        round=made,
                        values=drawn if isinstance(values, str) else np.full(n, values),
                        noise=np.full(len(state.noise), noise),
                        status="released",
                        record=state.record,
                    )
                    if made < last:
                        for query in regression.queries(state):
                            asked_sum(query, rows)
                if stage == "whole":
                    for answer in answers(regression, state):
                        assert np.all(np.isfinite(answer.estimate))
                        assert np.all(np.isfinite(answer.cov))
                        assert np.all(answer.sd > 0)
                given = (regression, state)
