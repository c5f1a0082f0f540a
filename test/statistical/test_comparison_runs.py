"""Whole runs of comparisons, with integers and masks, give what the fast driver gives.

The bench and the judges of the estimator play `support.fast_comparison`, in floats and without
messages.  One study is answered again and again by both: estimates and their errors
must have one distribution.  Two-sample tests of Kolmogorov and Smirnov at 1e-7 each, six of them:
false alarms have a probability below 1e-6.
"""

import numpy as np
import pytest
from scipy import stats

from cape.algorithms.answer import TermAnswer, answers
from cape.privacy.accounting import gdp_mu
from support import say
from support.fast_comparison import play
from support.neighbours import Study, question_of, table_of
from support.table_runs import run_of

pytestmark = pytest.mark.statistical

EPSILON, DELTA = 4.0, 1e-5


def study_of(kind: str) -> Study:
    """Return four sites of 120 people, some of whom lack values."""
    rng, question = np.random.default_rng(8), question_of(kind)
    missing = not question.pattern  # which is of those who have all
    tables = tuple(table_of(question, 120, s, rng, missing=missing) for s in range(4))
    has = np.ones((4, len(question.outcomes)), dtype=bool)
    return Study(question, tables, has, gdp_mu(epsilon=EPSILON, delta=DELTA))


def first(found: tuple[TermAnswer, ...]) -> tuple[float, float]:
    """Return the first estimate and its standard error."""
    return float(found[0].estimate[0, 0]), float(found[0].cov[0, 0, 0]) ** 0.5


def whole_run(kind: str, study: Study) -> tuple[float, float]:
    run = run_of(kind, study, EPSILON)
    while run.outcome is None:
        run.exchange()
    result = run.outcome
    if result.score is not None:
        return first(answers(result.score, result.score_state))
    return first(answers(result.regression, result.state))


@pytest.mark.parametrize("kind", ["two groups, age", "a number", "pattern"])
def test_whole_runs_have_the_distribution_of_the_fast_driver(kind: str) -> None:
    study, rng = study_of(kind), np.random.default_rng()
    runs = np.array([whole_run(kind, study) for _ in range(40)])
    rows = study.rows
    quick = np.array([
        first(play(study.question, rows, study.has, study.mu, 1, rng).answers) for _ in range(400)
    ])  # fmt: skip
    for name, one, other in zip(("estimate", "error"), runs.T, quick.T, strict=True):
        p = stats.ks_2samp(one, other).pvalue
        say(f"{kind}, {name}: runs {one.mean():.4f} +- {one.std():.4f}, fast {other.mean():.4f} "
            f"+- {other.std():.4f}, p {p:.3f}")  # fmt: skip
        assert p > 1e-7
