"""Small comparisons of every kind, their rows drawn at random, and hostile people."""

from typing import Final

import numpy as np

from cape.algorithms import design
from cape.algorithms.estimators import Array
from cape.algorithms.regression import Regression
from cape.settings.question import Question, parse_question

# Every kind of question: its settings beside variables and outcomes, and the number of outcomes
KINDS: Final = {
    "two groups": ({"formula": "dx + age + sex", "public": "dx"}, 1),
    "five outcomes": ({"formula": "dx + age + sex", "public": "dx"}, 5),
    "many outcomes": ({"formula": "dx + age", "public": "dx"}, 12),
    "no covariates": ({"formula": "dx", "public": "dx"}, 2),
    "levels alone": ({"formula": "dx + sex", "public": "dx"}, 1),
    "three groups": ({"formula": "group + age", "public": "group"}, 3),
    "three groups, one outcome": ({"formula": "group + age + sex", "public": "group"}, 1),
    "random": ({"formula": "dx + age", "public": "dx", "site_effects": "random"}, 2),
    "product of levels": ({"formula": "dx * sex", "ask": "dx:sex", "public": "dx, sex"}, 2),
    "age": ({"formula": "age + dx + sex", "public": "dx"}, 1),
    "age alone": ({"formula": "age"}, 3),
    "age, many": ({"formula": "age + iq"}, 12),
    "protected groups": ({"formula": "dx + age"}, 2),
    "slopes": ({"formula": "dx * age", "ask": "dx:age", "public": "dx"}, 1),
    "square": ({"formula": "age + I(age^2)", "ask": "I(age^2)"}, 1),
    "product of ranges": ({"formula": "age * iq", "ask": "age:iq"}, 2),
    "three terms": ({"formula": "dx * age + sex", "ask": "dx + age + dx:age", "public": "dx"}, 2),
    "random age": ({"formula": "age + dx", "public": "dx", "site_effects": "random"}, 1),
    "pattern": ({"formula": "dx + age + sex", "public": "dx", "test": "pattern"}, 12),
    "pattern of few": ({"formula": "dx", "public": "dx", "test": "pattern"}, 3),
}  # fmt: skip
VARIABLES: Final = "dx HC/SZ, group HC/SZ/BD, sex F/M, age 18:90, iq 40:160"


def question_of(kind: str) -> Question:
    how, K = KINDS[kind]
    return parse_question(
        variables=VARIABLES, outcomes=", ".join(f"u{k} -2:2" for k in range(K)), **how
    )


def draw_rows(
    question: Question, sizes: list[int], rng: np.random.Generator, missing: float = 0.0
) -> list[Array]:
    """Return rows of sites: normal values, some of them missing."""
    rows = []
    for site, n in enumerate(sizes):
        codes = {
            one.name: (0.76 * rng.standard_normal(n)).clip(-2, 2) if one.is_range
            else rng.integers(len(one.levels), size=n).astype(float)
            for one in question.variables
        }  # fmt: skip
        cell = np.sort(design.cell_of(question, codes, n))
        order = np.argsort(design.cell_of(question, codes, n), kind="stable")
        x = design.coded(question, codes)[order]
        u = rng.standard_normal((n, len(question.outcomes))) + 0.3 * x[:, :1]
        u[rng.random(u.shape) < missing] = np.nan
        x[rng.random(n) < missing / 3] = np.nan
        rows.append(np.column_stack([u, cell, x, np.full(n, site)]))
    return rows


def regression_of(
    question: Question, rows: list[Array], G: float, has: np.ndarray | None = None, **how: object
) -> Regression:
    """Return the looks of a question at rows of sites, or with one outcome (`has` (S, 1))."""
    K = len(question.outcomes) if has is None else has.shape[1]
    counts = np.array([design.counts_of(question, one[:, K].astype(int)) for one in rows])
    has = np.ones((len(rows), K), dtype=bool) if has is None else has
    terms = tuple(
        design.public_of(
            question, term, counts=counts, people=counts.sum(axis=1), has=has,
            everybody=int(counts.sum()) + 3, G=G,
        )
        for term in question.asked
    )  # fmt: skip
    return Regression(terms=terms, **how)  # type: ignore[arg-type]
