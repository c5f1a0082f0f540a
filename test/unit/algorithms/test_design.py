"""Coded columns, public codes of groups, and the public order of people."""

import numpy as np
import pytest

from cape.algorithms.design import (
    cell_of,
    coded,
    columns,
    counts_of,
    in_units,
    in_words,
    pairs,
    people_rows,
    public_of,
    public_order,
)
from cape.settings.question import Question, parse_question

VARIABLES = "dx control/SZ/BD, age 0:40, sex F/M, iq 0:4"


def asked(formula: str, public: str = "dx, sex", ask: str = "", **more: str) -> Question:
    return parse_question(variables=VARIABLES, formula=formula, ask=ask, outcomes="v 1:2",
                          public=public, **more)  # fmt: skip


def test_every_term_is_columns_once() -> None:
    question = asked("dx * age + sex + I(age^2) + age:iq + dx:sex")
    found = columns(question)
    assert [one.text for one in found] == [
        "dx [SZ]", "dx [BD]", "age", "dx [SZ]:age", "dx [BD]:age", "sex [M]", "I(age^2)", "age:iq",
        "dx [SZ]:sex [M]", "dx [BD]:sex [M]", "iq",
    ]  # fmt: skip
    assert [one.half_range for one in found] == [1, 1, 2, 2, 2, 1, 2, 2, 1, 1, 2]
    codes = {
        "dx": np.array([1.0, 0.0, np.nan]),
        "age": np.array([2.0, -2.0, 1.0]),
        "sex": np.array([0.0, 1.0, 1.0]),
        "iq": np.array([2.0, 2.0, np.nan]),
    }
    x = coded(question, codes)
    assert x[0].tolist() == [1, -1, 2, 2, -2, -1, 2, 2, -1, 1, 2]
    assert x[1].tolist() == [-1, -1, -2, 2, 2, 1, 2, -2, -1, -1, 2]
    assert np.isnan(x[2]).tolist() == [1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1]
    assert (np.abs(x[:2]) <= [one.half_range for one in found]).all()


def test_a_cell_follows_from_public_columns_alone() -> None:
    question = asked("age", public="dx, sex")
    codes = {
        "dx": np.array([0.0, 2.0, np.nan, 1.0]),
        "sex": np.array([1.0, 0.0, 0.0, np.nan]),
        "age": np.full(4, np.nan),
    }
    cell = cell_of(question, codes, 4)
    assert cell.tolist() == [1, 4, -1, -1]
    assert question.cells[1] == ("control", "M")
    assert question.cells[4] == ("BD", "F")
    assert counts_of(question, cell) == (0, 1, 0, 0, 1, 0)
    assert cell_of(asked("age", public=""), codes, 4).tolist() == [0, 0, 0, 0]


def test_pairs_are_of_one_cell_in_an_order_that_no_data_decide() -> None:
    rng = np.random.default_rng(3)
    names = [f"p{i}" for i in range(41)]
    cell = rng.integers(-1, 3, 41)
    order = public_order(names, cell)
    found = pairs(cell[order])
    assert (np.diff(cell[order]) >= 0).all()
    assert (cell[order][found[:, 0]] == cell[order][found[:, 1]]).all()
    assert (cell[order][found] >= 0).all()
    assert (
        len(np.unique(found)) == 2 * len(found) == 2 * sum((cell == c).sum() // 2 for c in range(3))
    )
    mixed = rng.permutation(41)
    again = public_order([names[i] for i in mixed], cell[mixed])
    assert [names[mixed[i]] for i in again] == [names[i] for i in order]
    assert pairs(np.zeros(0, dtype=np.int64)).shape == pairs(np.array([-1, -1, 0])).shape == (0, 2)


def test_numbers_are_in_public_units_before_they_are_cut() -> None:
    outcomes = parse_question(
        variables="a 1:2", formula="a", outcomes="v 1e8:100000004, log(w) 1:81"
    )
    values = np.array([[1e8 + 3, 81.0], [np.inf, 0.0], [1e308, -1.0], [np.nan, 9.0]])
    found = in_units(outcomes.outcomes, values)
    expected = [[1, 2], [np.nan] * 2, [1e6, np.nan], [np.nan, 0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    change = in_units(outcomes.outcomes, values[3:], np.array([[1.0, 3.0]]))
    np.testing.assert_allclose(change[0, 1], np.log(3) / (np.log(81) / 4) - 2)


def test_a_row_is_said_in_the_words_of_its_owner() -> None:
    question = asked("dx + age", public="dx, sex")
    codes = {
        "dx": np.array([2.0, np.nan]), "age": np.array([0.5, np.nan]), "sex": np.array([1.0, 1.0]),
    }  # fmt: skip
    order, rows = people_rows(question, ["a", "b"], np.array([[1.0], [2.0]]), codes)
    assert order.tolist() == [1, 0]
    assert in_words(question, rows[0]) == (None, None, None)
    assert in_words(question, rows[1]) == ("BD", "25", "M")
    hidden = asked("sex + age", public="")
    _, rows = people_rows(hidden, ["a", "b"], np.array([[1.0], [2.0]]), codes)
    assert sorted(map(str, (in_words(hidden, row)[0] for row in rows))) == ["M", "M"]


def public(question: Question, counts: list[list[int]], term: int = 0):
    S = len(counts)
    return public_of(
        question, question.asked[term], counts=np.array(counts), people=np.full(S, 9),
        has=np.ones((S, 1), dtype=bool), everybody=100, G=3.0,
    )  # fmt: skip


def test_codes_of_two_groups_are_centred_at_every_site() -> None:
    question = asked("sex + age", public="sex")
    found = public(question, [[30, 10], [5, 0], [0, 0], [7, 7]])
    assert found.H.tolist() == [[-0.5], [0.5]]
    assert (found.q, found.M, found.protected) == (1, 59, False)
    assert found.g[0, :, 0] == pytest.approx([-0.25, 0.75])
    assert found.r[0, :, 0] == pytest.approx([-1 / 6, 0.5])
    assert found.r[3, :, 0] == pytest.approx([-0.5, 0.5])
    assert not found.r[1:3].any()  # one group only, nobody
    assert found.x_columns == (1,)
    assert found.half_ranges.tolist() == [2.0]
    assert found.ranges.tolist() == [True]


def test_codes_of_several_groups_and_products_give_their_differences() -> None:
    rng = np.random.default_rng(5)
    question = asked("dx * sex + age", ask="dx, dx:sex")
    counts = rng.integers(0, 30, (6, 6))
    counts[0] = [3, 4, 0, 0, 0, 0]  # one level of dx
    for term, q in ((0, 2), (1, 2)):
        found = public(question, counts.tolist(), term)
        assert found.q == q
        assert np.allclose(np.einsum("sc,scq->sq", counts, found.r), 0.0, atol=1e-12)
        norms = np.sqrt((found.r**2).sum(axis=2))
        assert norms[1:].max(axis=1) == pytest.approx(0.5)
        assert not found.r[counts == 0].any()
    groups = public(question, counts.tolist(), 0)
    assert not groups.r[0].any()
    assert groups.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert np.allclose(groups.H.T @ groups.H, np.eye(2))
    # An effect in codes is the difference of two groups, whatever the codes are.
    delta = rng.standard_normal(3)
    fitted = np.linalg.lstsq(groups.H, delta - delta.mean(), rcond=None)[0]
    assert (groups.H[2] - groups.H[1]) @ fitted == pytest.approx(delta[2] - delta[1])


def test_a_product_of_two_levels_is_the_difference_of_differences() -> None:
    question = parse_question(variables="dx a/b, sex F/M", formula="dx * sex", ask="dx:sex",
                              outcomes="v 1:2", public="dx, sex")  # fmt: skip
    found = public(question, [[9, 8, 7, 6]])
    H = found.H[:, 0]
    assert H[3] - H[2] - H[1] + H[0] == 1.0
    assert found.x_columns == (0, 1)


def test_a_protected_term_has_one_column_of_its_own() -> None:
    question = asked("dx + age", ask="age")
    found = public(question, [[3, 3, 3, 3, 3, 3]])
    assert found.z_columns == (2,)
    assert found.x_columns == (0, 1)
    assert found.protected
    assert found.r.size == found.H.size == 0
    assert found.q == 1
    nobody_said = asked("sex + age", public="")
    found = public(nobody_said, [[]])
    assert found.counts.tolist() == [[9]]
    assert found.M == 9
