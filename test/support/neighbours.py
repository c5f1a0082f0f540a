"""Neighbouring sites of a comparison: questions of every kind, and people made to move a look most.

A neighbouring data set replaces one person by another of the same site and public cell; the person
takes the name of the one replaced, and so the place in the public order.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from cape.algorithms import design
from cape.algorithms.answer import direction
from cape.algorithms.design import Public
from cape.algorithms.estimators import Array
from cape.algorithms.regression import Regressed, Regression
from cape.privacy.halves import halves
from cape.settings.question import Question, parse_question

FEW, MANY = "dx control/SZ, ", "dx control/SZ/BD/MDD, "
VARIABLES = "sex F/M, hand left/right, age 0:80, iq 40:160"

# formula, ask, public, levels of dx, number of outcomes, more settings
KINDS: dict[str, tuple[str, str, str, str, int, dict[str, str]]] = {
    "two groups, no covariate": ("dx", "", "dx", FEW, 1, {}),
    "two groups, age": ("dx + age", "dx", "dx", FEW, 1, {}),
    "two groups, 3 outcomes": (
        "dx + age + iq + hand", "dx", "dx", FEW, 3, {}),
    "two groups, label alone, 10 outcomes": ("dx + hand", "dx", "dx, sex", FEW, 10, {}),
    "two groups, many covariates, 45 outcomes": (
        "dx + age + iq + hand + sex + age:iq + I(age^2)", "dx", "dx", FEW, 45, {}),
    "three groups": ("dx + age", "dx", "dx", "dx control/SZ/BD, ", 1, {}),
    "four groups, 3 outcomes": ("dx + age + hand", "dx", "dx", MANY, 3, {}),
    "four groups, no covariate, 10 outcomes": ("dx", "dx", "dx", MANY, 10, {}),
    "product of groups": ("dx * sex + age", "dx:sex", "dx, sex", FEW, 3, {}),
    "several terms": ("dx + sex + age", "", "dx, sex", FEW, 1, {}),
    "a number": ("age + hand", "age", "", FEW, 1, {}),
    "a number alone": ("age", "", "", FEW, 1, {}),
    "a number beside groups, 3 outcomes": ("dx + age + iq", "age", "dx", FEW, 3, {}),
    "a protected label": ("hand + age", "hand", "dx", FEW, 3, {}),
    "group by number": ("dx * age", "dx:age", "dx", FEW, 1, {}),
    "number by number, 10 outcomes": ("age * iq + hand", "age:iq", "dx", FEW, 10, {}),
    "a square": ("age + I(age^2)", "I(age^2)", "", FEW, 3, {}),
    "a number, 45 outcomes": ("age + iq", "age", "", FEW, 45, {}),
    "random sites": ("dx + age", "dx", "dx", FEW, 1, {"site_effects": "random"}),
    "random sites, a number": ("age + iq", "age", "", FEW, 3, {"site_effects": "random"}),
    "pattern": ("dx + age + hand", "dx", "dx", FEW, 10, {"test": "pattern"}),
    "pattern, no covariate": ("dx", "dx", "dx", FEW, 3, {"test": "pattern"}),
    "pattern of many": ("dx + age", "dx", "dx, sex", FEW, 45, {"test": "pattern"}),
    "pattern, random sites": (
        "dx + age", "dx", "dx", FEW, 3, {"test": "pattern", "site_effects": "random"}),
}  # fmt: skip

# Values that a file may hold
ODD = (1e6, -1e6, 3e38, -3e38, math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-45, -1e-40, 2.0, -2.0)


@dataclass(frozen=True)
class Table:
    """The people of a site, in the order of its file."""

    names: tuple[str, ...]
    u: Array  # (n, K) outcomes in public units
    codes: dict[str, Array]  # by variable, (n,)

    def rows(self, question: Question, site: int) -> Array:
        """Return the people as `cape.algorithms.rows` has them, in public order."""
        u = np.where(np.isfinite(self.u), np.clip(self.u, -1e6, 1e6), np.nan)  # as a file is read
        _, own = design.people_rows(question, self.names, u, self.codes)
        return np.column_stack([own, np.full(len(own), site)]).astype(np.float32)


@dataclass(frozen=True)
class Study:
    """A question and its people, site by site."""

    question: Question
    tables: tuple[Table, ...]
    has: np.ndarray  # (S, K)
    mu: float

    @property
    def K(self) -> int:
        return len(self.question.outcomes)

    @property
    def rows(self) -> list[Array]:
        return [table.rows(self.question, s) for s, table in enumerate(self.tables)]


def question_of(kind: str) -> Question:
    formula, ask, public, levels, K, more = KINDS[kind]
    return parse_question(
        variables=levels + VARIABLES,
        formula=formula,
        ask=ask,
        public=public,
        outcomes=", ".join(f"o{k} -2:2" for k in range(K)),
        **more,
    )


def draw(kind: str, rng: np.random.Generator) -> Study:
    """Return a study: sites of one to many, cells of one, people who lack values or a cell."""
    question = question_of(kind)
    K = len(question.outcomes)
    S = 8 if question.random else int(rng.choice([2, 3, 5]))
    sizes = rng.choice([1, 2, 3, 8, 25, 41], S)
    sizes[rng.integers(S)] = 41
    spread, wide, missing = (
        rng.choice([0.02, 0.5, 3.0]),
        rng.choice([0.05, 1, 2]),
        rng.random() < 0.6,
    )
    tables = tuple(
        table_of(question, n, s, rng, spread=spread, wide=wide, missing=missing)
        for s, n in enumerate(sizes.tolist())
    )
    has = np.ones((S, K), dtype=bool)
    if K > 1 and rng.random() < 0.4:
        has = rng.random((S, K)) < 0.8
        has[0] = True
    mu = float(rng.choice([0.27, 1.0, 8.0]))
    return Study(question, tables, has, mu)


def table_of(
    question: Question, n: int, site: int, rng: np.random.Generator, *,
    spread: float = 1.0, wide: float = 1.0, missing: bool = False,
) -> Table:  # fmt: skip
    """Return n people of a site, whose outcomes and numbers have these sd in public units."""
    codes, K = {}, len(question.outcomes)
    for one in question.variables:
        if one.is_range:
            codes[one.name] = np.clip(wide * rng.standard_normal(n), -2, 2)
        else:
            rare = rng.random() < 0.3
            level = rng.integers(len(one.levels), size=n) * (rng.random(n) < 0.1 if rare else 1)
            codes[one.name] = level.astype(float)
        if missing:
            codes[one.name][rng.random(n) < 0.1] = np.nan
    u = spread * rng.standard_normal((n, K)) + rng.standard_normal(K) * (rng.random() < 0.5)
    if missing:
        u[rng.random((n, K)) < 0.25] = np.nan
    return Table(tuple(f"{site}-{i}" for i in range(n)), u, codes)


# -- what follows from public numbers --------------------------------------------------------------


def public_of(study: Study, rows: list[Array], has: np.ndarray, share: float) -> tuple[Public, ...]:
    """Return the public numbers of every term, from the cells of people alone."""
    # `share`: of all people in the plan; a half's plan may not hang on how halves are drawn.
    question, S = study.question, len(rows)
    counts = np.array([_counts(question, one, has.shape[1]) for one in rows])
    M = share * sum(_counts(question, one, study.K).sum() for one in study.rows)
    G = M * study.mu / math.sqrt(len(question.asked)) * math.sqrt((S - 1) / S)
    return tuple(
        design.public_of(
            question, term, counts=counts, people=counts.sum(axis=1), has=has,
            everybody=sum(map(len, rows)), G=G,
        )
        for term in question.asked
    )  # fmt: skip


def _counts(question: Question, stack: Array, K: int) -> np.ndarray:
    return np.array(design.counts_of(question, stack[:, K].astype(np.int64)))


Play = Callable[[Regression, list[Array]], Regressed]


def stages(study: Study, play: Play) -> Iterator[tuple[Regression, list[Array]]]:
    """Yield the stages of a question; `play(regression, rows)` returns the last state of each."""
    rows, has = study.rows, study.has
    if not study.question.pattern:
        regression = Regression(terms=public_of(study, rows, has, 1.0))
        play(regression, rows)
        yield regression, rows
        return
    given, everybody = None, public_of(study, rows, has, 1.0)
    if everybody[0].x_columns:
        whole = Regression(terms=everybody, stage="design")
        given = whole, play(whole, rows)
        yield whole, rows
    first, second = halved(study)
    half_a = Regression(terms=public_of(study, first, has, 0.5), stage="half", given=given)
    state = play(half_a, first)
    yield half_a, first
    u = direction(half_a, state)
    with np.errstate(all="ignore"):  # inf - inf is missing, as it is in a file
        score = [
            np.column_stack([one[:, : study.K].astype(float) @ u, one[:, study.K :]])
            for one in second
        ]
    both = has.all(axis=1, keepdims=True)
    half_b = Regression(terms=public_of(study, score, both, 0.5), stage="half", given=given)
    play(half_b, score)
    yield half_b, score


def halved(study: Study) -> tuple[list[Array], list[Array]]:
    """Return both halves of the people of every cell, or of the sites, by names alone."""
    first, second = [], []
    for s, (table, stack) in enumerate(zip(study.tables, study.rows, strict=True)):
        cell = design.cell_of(study.question, table.codes, len(table.names))
        order = design.public_order(table.names, cell)
        half_of = halves("seed", f"site{s}", dict(zip(table.names, map(str, cell), strict=True)))
        inside = np.array([half_of[table.names[i]] == "A" for i in order])
        if study.question.random:
            inside[:] = s % 2 == 0
        first.append(stack[inside])
        second.append(stack[~inside])
    return first, second


# -- hostile people --------------------------------------------------------------------------------


def hostile(person: Array, K: int, rng: np.random.Generator, axis: Array) -> Array:
    """Return another row of the same cell and site: at corners, at ends, missing, odd values."""
    row = person.copy()
    C = len(row) - K - 2
    row[:K] = hostile_outcomes(K, rng, axis)
    if C:
        x = rng.choice([-2.0, 2.0, -1.0, 1.0, 0.0], C)
        if rng.random() < 0.1:
            x[rng.integers(C)] = rng.choice(ODD)
        row[K + 1 : -1] = x
    return row


def hostile_outcomes(K: int, rng: np.random.Generator, axis: Array) -> Array:
    kind = rng.random()
    far = rng.choice([1e6, 1e6, 1e6, 3.0, 1e-3])
    if kind < 0.55:
        u = rng.choice([-1.0, 1.0]) * far * axis
    elif kind < 0.7:  # some outcomes alone
        u = far * rng.choice([-1.0, 1.0], K)
        u[rng.random(K) < 0.5] = np.nan
    elif kind < 0.8:
        u = far * rng.choice([-1.0, 0.0, 1.0], K)
    elif kind < 0.9:
        u = np.full(K, np.nan)
    else:
        u = rng.choice(ODD, K)
    if rng.random() < 0.3:
        u[rng.random(K) < 0.4] = np.nan
    return np.asarray(u)


def neighbour(study: Study, rng: np.random.Generator) -> tuple[Study, Study]:
    """Return two studies that differ in one person, who is hostile in both; files are sorted anew.

    Who is asked and in which public cell stays; all else may be another.
    """
    asked = [
        (s, i)
        for s, table in enumerate(study.tables)
        for i in np.flatnonzero(design.cell_of(study.question, table.codes, len(table.names)) >= 0)
    ]
    s, i = asked[rng.integers(len(asked))]
    found = []
    for _ in range(2):
        table = study.tables[s]
        u, codes = table.u.copy(), {name: code.copy() for name, code in table.codes.items()}
        u[i] = hostile_outcomes(study.K, rng, some_axis(study.K, rng))
        for one in study.question.variables:
            if one.name not in study.question.public:
                values = np.linspace(-2, 2, 5) if one.is_range else np.arange(len(one.levels))
                codes[one.name][i] = np.nan if rng.random() < 0.1 else rng.choice(values)
        # A file may be sorted by what is in it.
        order = np.argsort(u[:, 0], kind="stable")
        names = tuple(table.names[m] for m in order)
        table = Table(names, u[order], {name: code[order] for name, code in codes.items()})
        found.append(replace(study, tables=(*study.tables[:s], table, *study.tables[s + 1 :])))
    return found[0], found[1]


def crowd(stack: Array, K: int, rng: np.random.Generator, axis: Array) -> Array:
    """Return a site whose people leave room for one: an even or a lopsided crowd at corners."""
    found = stack.copy()
    n, C = len(found), found.shape[1] - K - 2
    sign = rng.choice([-1.0, 1.0], n) if rng.random() < 0.6 else np.full(n, rng.choice([-1.0, 1.0]))
    found[:, :K] = (rng.choice([1e6, 1.0]) * sign)[:, None] * axis
    if C:
        one = rng.choice([-2.0, -1.0, 0.0, 1.0, 2.0], C)
        each = rng.choice([-2.0, 0.0, 2.0], (n, C))
        found[:, K + 1 : -1] = np.where(rng.random((n, 1)) < rng.choice([0.0, 0.5, 1.0]), one, each)
    gone = rng.random(n) < rng.choice([0.0, 0.2, 0.2, 0.5])
    if rng.random() < 0.5:  # of one cell only
        gone &= found[:, K] == rng.choice(found[:, K])
    found[gone, :K] = np.nan
    if K > 1 and rng.random() < 0.4:
        found[:, :K][rng.random((n, K)) < 0.2] = np.nan
    return found


def some_axis(K: int, rng: np.random.Generator) -> Array:
    """Return a direction of outcomes: one, some, or all of them."""
    axis = rng.choice([-1.0, 1.0], K) * (rng.random(K) < rng.choice([0.2, 0.5, 1.0]))
    axis[rng.integers(K)] = 1.0
    return np.asarray(axis / np.linalg.norm(axis))
