"""A whole run whose noise is 0 gives what the fast driver gives without noise, but for rounding.

The bench and the judges of the estimator play `support.fast_comparison`; so its answers are those
of runs.  With noise: `test/statistical/test_comparison_runs.py`.
"""

from typing import Any

import numpy as np
import pytest

from cape.algorithms.answer import answers
from cape.privacy.accounting import gdp_mu
from cape.protocol import secure_sum
from support.fast_comparison import play
from support.neighbours import Study, question_of, table_of
from support.table_runs import run_of


class Silent:
    """A generator whose normal numbers are 0."""

    def standard_normal(self, n: int) -> np.ndarray:
        return np.zeros(n)


KINDS = [
    "two groups, 3 outcomes", "four groups, no covariate, 10 outcomes", "several terms",
    "group by number", "random sites, a number",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_gives_what_the_fast_driver_gives(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, question = np.random.default_rng(2), question_of(kind)
    S = 8 if question.random else 3
    tables = tuple(table_of(question, 60, s, rng, missing=True) for s in range(S))
    has = rng.random((S, len(question.outcomes))) < 0.8
    has[0] = True
    study = Study(question, tables, has, gdp_mu(epsilon=4.0, delta=1e-5))
    quick: Any = play(question, study.rows, has, study.mu, 1, Silent()).answers  # type: ignore[arg-type]
    monkeypatch.setattr(
        secure_sum, "discrete_gaussian", lambda s2, size, source: np.zeros(size, dtype=np.int64)
    )
    run = run_of(kind, study, 4.0)
    while run.outcome is None:
        run.exchange()
    result: Any = run.outcome
    for one, other in zip(answers(result.regression, result.state), quick, strict=True):
        sd = np.asarray(other.sd)
        assert one.fits == other.fits
        assert np.allclose(one.estimate / sd, other.estimate / sd, atol=1e-4, equal_nan=True)
        assert np.allclose(one.sd, sd, rtol=1e-4)
        root = np.sqrt(sd[:, None, None] * sd[:, None, None])
        assert np.allclose(one.cov / root**2, other.cov / root**2, rtol=1e-3, atol=1e-6)
