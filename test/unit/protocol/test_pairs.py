"""Answers of pairs of people, at the one door: a replaced person changes one bounded row.

Belongs to `cape/protocol/secure_sum.py`.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cape.algorithms.estimators import Array, Data, SubjectQuery
from cape.algorithms.linalg import svec
from cape.errors import PrivacyBudgetError
from cape.privacy.cost import Event
from cape.privacy.mechanisms import plan_event
from cape.protocol.ports import Stacks
from cape.protocol.secure_sum import chunks, clipped_sum
from cape.secagg.field import quantize

# Values of a person's two numbers; of the last ones the clip, or the check for NaN, must hold
HOSTILE = [0.0, 1.0, -1.0, 0.3, 1e30, -1e30, np.inf, -np.inf, np.nan, 1e-45]


def differences(stack: Data) -> Array:
    """Return the difference of each pair of neighbours, (n // 2, 2)."""
    n = len(stack) // 2
    with np.errstate(all="ignore"):
        apart = stack[: 2 * n : 2, :, 0].astype(np.float64) - stack[1 : 2 * n : 2, :, 0]
    return np.asarray(apart)


def outer(stack: Data) -> Array:
    """Return svec of the outer product of each difference, (n // 2, 3)."""
    with np.errstate(all="ignore"):
        return np.asarray(svec(np.einsum("mi,mj->mij", *(2 * [differences(stack)]))))


def query(shape: Any = "ball", **changed: Any) -> SubjectQuery:
    answer, size = (differences, 2) if shape == "ball" else (outer, 3)
    asked = SubjectQuery(size=size, clip=1.0, shape=shape, answer=answer, unit="pair")
    return replace(asked, **changed)


def event(shape: Any = "ball") -> Event:
    size = 2 if shape == "ball" else 3
    return plan_event(
        phase="look", round=1, field="pairs", shape=shape, size=size, clip=1.0, mu=0.5, shares=3
    )


def people(n: int, seed: int = 0) -> Data:
    return np.random.default_rng(seed).normal(size=(n, 2, 1)).astype(np.float32)


@pytest.mark.parametrize("shape", ["ball", "psd"])
def test_pairs_are_formed_among_all_people_of_a_site_and_clipped_one_by_one(shape) -> None:
    """Stacks of a site, and parts of 32 people of them, would cut pairs in two."""
    whole, seen = people(77), []

    def answer(stack: Data) -> Array:
        seen.append(stack)
        return query(shape).answer(stack)

    stacks = Stacks(arrays=(whole[:35], whole[35:]), labels=((), ()))
    one = event(shape)
    found = clipped_sum(chunks(stacks), query(shape, answer=answer), one)
    (stack,) = seen
    np.testing.assert_array_equal(stack, whole)
    rows = quantize(
        query(shape).answer(whole), log2_gamma=one.log2_gamma, clip_int=one.clip_int, shape=shape
    )
    assert rows.shape[0] == 38
    np.testing.assert_array_equal(found, rows.sum(axis=0))
    assert np.all(np.sum(rows.astype(object) ** 2, axis=1) <= one.clip_int**2)


@pytest.mark.parametrize("n", [7, 8])
@pytest.mark.parametrize("shape", ["ball", "psd"])
def test_a_replaced_person_moves_the_sum_by_the_planned_sensitivity_at_most(shape, n) -> None:
    """Exact integers; every place, every hostile value.  Who has no partner moves nothing."""
    one, rows = event(shape), people(n)
    largest = 0.0
    for place in range(n):
        sums = []
        for value in HOSTILE:
            for other in (value, -value, 0.0):
                replaced = rows.copy()
                replaced[place, :, 0] = value, other
                sums.append(clipped_sum([replaced], query(shape), one).astype(object))
        distances = [np.sum((a - b) ** 2) for a in sums for b in sums]
        assert max(distances) <= one.delta_int**2
        largest = max(largest, float(max(distances)) ** 0.5)
        if place == n - 1 and n % 2:
            assert max(distances) == 0
    assert largest > 0.99 * one.delta_int  # the bound is reached


def test_more_pairs_than_two_people_each_allow_are_refused() -> None:
    """Five rows of nine people would hold one of them twice: nothing else can see that here."""
    for n_rows, n_people in ((5, 9), (2, 3), (1, 1), (1, 0)):
        too_many = query(answer=lambda stack, n_rows=n_rows: np.ones((n_rows, 2)))
        with pytest.raises(PrivacyBudgetError, match="does not ask each subject for one vector"):
            clipped_sum([people(n_people)], too_many, event())
    for form in ((4, 1), (4, 3), (4,), (4, 2, 1)):
        other = query(answer=lambda stack, form=form: np.ones(form))
        with pytest.raises(PrivacyBudgetError, match="does not ask each subject for one vector"):
            clipped_sum([people(9)], other, event())


def test_fewer_pairs_or_none_at_all_add_what_they_are() -> None:
    fewer = query(answer=lambda stack: differences(stack)[:1])
    rows = people(9)
    np.testing.assert_array_equal(
        clipped_sum([rows], fewer, event()), clipped_sum([rows[:2]], query(), event())
    )
    for nobody in ([], [people(0)], [people(1)]):
        assert clipped_sum(nobody, query(), event()).tolist() == [0, 0]


def test_pairs_of_people_without_data_are_refused() -> None:
    """Left out of the stack, such a person would give all people after it other partners."""
    rows = people(6)
    for other in (np.zeros((1, 2, 0), np.float32), np.zeros((1, 2, 2), np.float32)):
        with pytest.raises(PrivacyBudgetError, match="pairs of people of whom some lack data"):
            clipped_sum([rows, other], query(), event())


def test_a_part_of_the_site_and_pairs_are_not_combined() -> None:
    both = query(part=lambda stack: np.zeros(2))
    with pytest.raises(PrivacyBudgetError, match="part of the site that its bound does not cover"):
        clipped_sum([people(6)], both, event())
