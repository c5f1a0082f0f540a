"""Two neighbouring studies are answered with the same released values.

All that a comparison asks, plans and answers must then be equal, and each vector moves by at most
its bound.  A read of data that is no release is a difference here, whatever it is: the first
versions of the estimator read a design of real people, and ended small studies after a charge.

Belongs to `cape/algorithms/regression.py`.
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import pytest

from cape.algorithms import design, rows
from cape.algorithms.answer import answers
from cape.algorithms.effects import effects, omnibus
from cape.algorithms.estimators import Array, SubjectQuery
from cape.algorithms.regression import Regressed, Regression, facts_of
from cape.privacy.mechanisms import plan_event
from cape.protocol.secure_sum import clipped_sum
from support import say
from support.fast_comparison import replace_outcomes, run
from support.neighbours import KINDS, draw, neighbour, stages


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal in all their parts, bit by bit; NaN is NaN."""
    if isinstance(one, np.ndarray) or np.isscalar(one):
        first, second = np.asarray(one), np.asarray(other)
        numbers = first.dtype.kind == "f"
        return first.shape == second.shape and np.array_equal(first, second, equal_nan=numbers)
    if dataclasses.is_dataclass(one):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def all_facts(known: Any) -> dict[str, Any]:
    """Return every fact of a term; the error instead where the looks behind it were not asked."""
    found = {}
    for name in dir(type(known)):
        if isinstance(getattr(type(known), name), (property, cached_property)):
            try:
                value = getattr(known, name)
            except Exception as err:  # of whatever kind: it must be the same one
                value = repr(err)
            found[name] = None if name == "design" else value
    return found


def changed_rows(query: SubjectQuery, mine: Array, other: SubjectQuery, theirs: Array) -> int:
    """Return how many persons, or pairs, of a site say something else."""
    first, second = query.answer(mine[:, None, :]), other.answer(theirs[:, None, :])
    return int((~np.isclose(first, second, rtol=0, atol=0, equal_nan=True)).any(axis=1).sum())


class Replay:
    """One study plays, its neighbour answers the same released values."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.played: list[tuple[Regression, list[Array], Regressed]] = []
        self.again: list[Regression] = []  # of the neighbour
        self.moved: list[float] = []  # part of mu^2 by which each stage moved
        self.largest = 0.0  # move over bound

    def pair(self, kind: str) -> None:
        one, other = neighbour(draw(kind, self.rng), self.rng)
        names = [list(stages(one, self.first)), list(stages(other, self.second))]
        assert len(names[0]) == len(names[1])
        everybody = self.moved[:1] if self.played[0][0].stage == "design" else []
        assert sum(everybody) + max(self.moved[len(everybody) :]) <= 1.0 + 1e-6
        known, _, last = self.played[-1]
        asked = replace_outcomes(one.question) if one.question.pattern else one.question
        mine, others = answers(known, last), answers(self.again[-1], last)
        assert same(mine, others), "answer"
        assert same(effects(asked, mine), effects(asked, others))
        assert same(omnibus(asked, mine), omnibus(asked, others))

    def first(self, regression: Regression, people: list[Array]) -> Regressed:
        state = run(regression, people, self.rng)
        self.played.append((regression, people, state))
        return state

    def second(self, regression: Regression, others: list[Array]) -> Regressed:
        known, people, last = self.played[len(self.again)]
        self.again.append(regression)
        assert same(known.terms, regression.terms), "public numbers"
        assert same(known.schedule(0), regression.schedule(0)), "plan"
        assert same(known.share, regression.share), "share"
        states = [dataclasses.replace(last, round=number) for number in range(last.round)]
        self.moved.append(
            sum(self.round(known, regression, state, people, others) for state in states)
        )
        for one, other in zip(facts_of(known, last), facts_of(regression, last), strict=True):
            mine, theirs = all_facts(one), all_facts(other)
            assert [name for name in mine if not same(mine[name], theirs[name])] == []
        return last

    def round(
        self, known: Regression, regression: Regression, state: Regressed,
        people: list[Array], others: list[Array],
    ) -> float:  # fmt: skip
        """Compare the questions of a round; return the part of mu^2 that the sums moved."""
        planned = [one for one in known.schedule(0) if one.round == state.round + 1]
        asked = zip(planned, known.queries(state), regression.queries(state), strict=True)
        spent = 0.0
        for one, query, other in asked:
            form = (query.size, query.clip, query.shape, query.unit, query.part is None)
            assert form == (other.size, other.clip, other.shape, other.unit, other.part is None)
            event = plan_event(phase="p", round=1, field=one.name, shape=one.shape, size=one.size,
                               clip=one.clip, mu=0.3, shares=2)  # fmt: skip
            moved = 0
            for mine, theirs in zip(people, others, strict=True):
                assert changed_rows(query, mine, other, theirs) <= 1, f"{one.name} reads others"
                sums = [
                    clipped_sum([stack[:, None, :]] if len(stack) else [], asks, event)
                    for stack, asks in ((mine, query), (theirs, other))
                ]
                moved += sum((int(a) - int(b)) ** 2 for a, b in zip(*sums, strict=True))
            assert moved <= event.delta_int**2, f"{one.name} moves by more than its bound"
            ratio = moved / event.delta_int**2
            self.largest = max(self.largest, ratio**0.5)
            spent += ratio * one.weight
        return spent


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_are_asked_the_same_and_move_by_their_bounds(kind: str) -> None:
    for seed in range(3):
        Replay(np.random.default_rng([seed, list(KINDS).index(kind)])).pair(kind)


@pytest.mark.long
def test_1_000_neighbours_are_asked_the_same() -> None:
    largest = 0.0
    for seed in range(42):
        for kind in KINDS:
            replay = Replay(np.random.default_rng([99, seed, list(KINDS).index(kind)]))
            replay.pair(kind)
            largest = max(largest, replay.largest)
    say(f"{42 * len(KINDS)} pairs without a difference; largest move {largest:.4f} of its bound")
    assert largest > 0.99


def own_median(f: Any, people: Any, asked: Any = rows.contrast_rows) -> Array:
    """Rows of the contrast about the middle of the site's own people."""
    return asked(f, dataclasses.replace(people, u=people.u - np.median(people.u, axis=0)))


def by_table(names: Any, cell: Array) -> Array:
    return np.argsort(cell, kind="stable")


def with_values(question: Any, codes: Any, n: int, cell_of: Any = design.cell_of) -> Array:
    """Cells of the people of whom all columns are known."""
    known = np.all([np.isfinite(code) for code in codes.values()], axis=0)
    return np.where(known, cell_of(question, codes, n), -1)


def overlapping(cell: Array, pairs: Any = design.pairs) -> Array:
    """Pairs of whom one person is in two."""
    found = pairs(cell)
    return np.where(np.arange(len(found))[:, None] == 1, found[:1], found) if len(found) else found


def of_any_sign(f: Any, people: Any, asked: Any = rows.squares_rows) -> Array:
    return 2 * asked(f, people) - f.squares_radius / np.sqrt(f.K)


MISTAKES = [
    (rows, "contrast_rows", own_median, "two groups, age", "contrast reads others"),
    (design, "public_order", by_table, "two groups, age", "where reads others"),
    (design, "cell_of", with_values, "two groups, 3 outcomes", "public numbers"),
    (rows, "pairs", overlapping, "a number alone", "reads others"),
    (rows, "squares_rows", of_any_sign, "two groups, 3 outcomes", "squares moves by more"),
]


@pytest.mark.parametrize(("module", "name", "wrong", "kind", "said"), MISTAKES)
def test_replay_sees(module, name, wrong, kind, said, monkeypatch) -> None:
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises(AssertionError, match=said):  # noqa: PT012 - some pairs move little
        for seed in range(60):
            Replay(np.random.default_rng(seed)).pair(kind)
