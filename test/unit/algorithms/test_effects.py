"""Rows of an answer: which p-values are shown, and their adjustment."""

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms.answer import TermAnswer
from cape.algorithms.effects import effects, omnibus
from cape.algorithms.significance import holm
from support.fast_comparison import Found, fast


@pytest.fixture(scope="module")
def found() -> tuple[Found, object]:
    from cape.settings.question import parse_question

    rng = np.random.default_rng(1)
    dx = rng.integers(3, size=900)
    u = rng.standard_normal((900, 4)) + 0.4 * (dx == 1)[:, None] * np.array([1, 1, 0, 0])
    table = {"dx": np.array(["HC", "SZ", "BD"])[dx], **{f"u{k}": u[:, k] for k in range(4)}}
    settings = {
        "variables": "dx HC/SZ/BD", "formula": "dx", "public": "dx",
        "outcomes": ", ".join(f"u{k} -2:2" for k in range(4)),
    }  # fmt: skip
    return fast(settings, {"a": table}, epsilon=None, rng=rng), parse_question(**settings)


def test_a_pair_is_found_only_where_the_omnibus_is(found: tuple[Found, object]) -> None:
    rows, tests = found[0].effects, {row.outcome: row for row in found[0].omnibus}
    assert [row.contrast for row in rows[::4]] == ["SZ - HC", "BD - HC", "BD - SZ"]
    for row in rows:
        assert row.p_holm >= max(row.p, tests[row.outcome].p_holm)
    assert tests["u0"].p_holm < 1e-3 < tests["u2"].p_holm
    p = np.array([row.p for row in rows])
    assert max(row.p_holm for row in rows) <= 1.0
    assert np.all(np.array([row.p_holm for row in rows]) >= holm(p) - 1e-12)


def answer_with(answer: TermAnswer, fits: tuple[str, ...]) -> TermAnswer:
    return replace(answer, fits=fits)


@pytest.mark.parametrize("fit", ["shape", "partly", "ties", "lacks", "large", "range", "no d"])
def test_what_is_withheld_has_no_number(found: tuple[Found, object], fit: str) -> None:
    """No p of groups that may differ in shape; no d where the scale is not known."""
    whole, question = found
    answer = answer_with(whole.answers[0], (fit, "yes", "yes", "yes"))
    rows = [row for row in effects(question, [answer]) if row.outcome == "u0"]
    others = [row for row in effects(question, [answer]) if row.outcome != "u0"]
    for row in rows:
        assert row.fits == fit
        assert row.d is None
        assert (row.p is None) == (fit in ("shape", "partly", "lacks"))
        assert (row.p_holm is None) == (row.p is None)
        assert (row.estimate is None) == (fit == "lacks")
    assert not any(None in (row.p, row.d) for row in others)
    assert (omnibus(question, [answer])[0].p is None) == (rows[0].p is None)
    # One test less: no p-value becomes larger.
    if fit == "shape":
        before = [row.p_holm for row in whole.effects if row.outcome != "u0"]
        assert all(a.p_holm <= b + 1e-12 for a, b in zip(others, before, strict=True))


def test_an_interval_leaves_0_out_where_its_test_does(found: tuple[Found, object]) -> None:
    """A d of -3.88 [-12.77, 5.00] had p .016: its unsure scale took the sign away as well."""
    whole, question = found
    unsure = np.full(4, 2.0)
    answer = replace(whole.answers[0], relative=unsure, sd_error=unsure)
    for sure, row in zip(whole.effects, effects(question, [answer]), strict=True):
        for low, high in ((row.low95, row.high95), (row.d_low95, row.d_high95)):
            assert (low < 0 < high) == (row.p > 0.05)
        assert row.p == sure.p
        assert row.low95 <= sure.low95 or row.low95 == 0.0
        assert row.high95 >= sure.high95 or row.high95 == 0.0


def test_a_run_that_sees_2_sd_at_best_estimates_nothing(found: tuple[Found, object]) -> None:
    """Of 23 people: Fisher z -6.0 [-83.9, 0.0], d -15.30 [-443.94, 0.00], fits yes."""
    whole, question = found
    sure = whole.effects[0]
    just = (2.0 * sure.sd / (1.96 * sure.se)) ** 2
    size = np.ones((4, 1, 1))
    for factor, fits in ((0.9 * just, "yes"), (1.1 * just, "wide")):
        answer = whole.answers[0]
        row = effects(question, [replace(answer, parts=answer.parts.times(factor * size))])[0]
        assert (row.fits, row.d is None) == (fits, fits == "wide")
        assert None not in (row.p, row.estimate, row.se)
