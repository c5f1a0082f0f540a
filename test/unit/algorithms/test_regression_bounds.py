"""No released value breaks what follows from it: a broadcast may hold anything.

Belongs to `cape/algorithms/regression.py`.
"""

import numpy as np
import pytest

from cape.algorithms.answer import answers
from cape.algorithms.estimators import Array, SubjectQuery
from cape.algorithms.regression import Regressed
from support.regressions import KINDS, draw_rows, question_of, regression_of

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
