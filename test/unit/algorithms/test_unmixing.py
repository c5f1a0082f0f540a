"""What every solver round has in common: norm guard, stability, status."""

import numpy as np
import pytest

from cape.algorithms.estimators import NO_STEP, StepRecord
from cape.algorithms.linalg import skew, skew_exp
from cape.algorithms.unmixing import (
    MAX_NORM,
    Step,
    StopRule,
    Unmixing,
    advance,
    row_agreement,
    unit_rows,
)

RECORD = StepRecord(statistic_norm=1.0, noise_norm=0.5, step_norm=0.1)


def first() -> Unmixing:
    """Return the state of three components before the first round."""
    one = np.eye(3)
    return Unmixing(
        W=one,
        b=np.zeros(3),
        rho=0.5,
        round=0,
        anchor=one,
        stability=0.0,
        status="running",
        record=NO_STEP,
    )


def turn(state: Unmixing, angle: float, stop_rule: StopRule, *, settled: bool = False) -> Unmixing:
    """One round that turns two of three components by `angle`."""
    rotation = skew_exp(skew(np.array([angle, 0.0, 0.0]), 3)) @ state.W
    move = Step(W=rotation, b=state.b)
    return advance(state, lambda scale: move, stop_rule, settled=settled, record=RECORD)


def test_stability_compares_with_the_matrix_look_back_rounds_before_the_end() -> None:
    stop_rule = StopRule(n_rounds=23, look_back=10, private=True)
    state = first()
    matrices = [state.W]
    for t in range(23):
        state = turn(state, 0.3 if t < 17 else 0.01, stop_rule)
        matrices.append(state.W)
        assert state.round == t + 1
    assert state.stability == pytest.approx(row_agreement(matrices[23], matrices[13]))
    assert state.record.stability == state.stability
    assert state.status == "not_judged"


@pytest.mark.parametrize("n_rounds", [1, 10, 20])
def test_a_private_run_that_stays_put_has_not_converged_for_that(n_rounds: int) -> None:
    """Short steps stay put on Gaussian sources as well: stability once called them converged."""
    stop_rule = StopRule(n_rounds=n_rounds, look_back=10, private=True)
    state = first()
    for t in range(n_rounds):
        state = turn(state, 0.3 if t < 8 else 0.001, stop_rule)
        assert state.status == ("running" if t < n_rounds - 1 else "not_judged")
    assert state.stability > 0.999 or n_rounds < 20


def test_only_a_run_without_privacy_stops_on_its_tolerance() -> None:
    for private, status in ((True, "running"), (False, "converged")):
        stop_rule = StopRule(n_rounds=20, look_back=10, private=private)
        assert turn(first(), 0.1, stop_rule, settled=True).status == status
    stop_rule = StopRule(n_rounds=1, look_back=10, private=False)
    assert turn(first(), 0.1, stop_rule).status == "max_rounds"


def test_a_step_that_is_too_large_is_halved_once() -> None:
    stop_rule = StopRule(n_rounds=20, look_back=10, private=True)
    asked = []

    def propose(scale: float) -> Step:
        asked.append(scale)
        return Step(W=scale * 1.5 * MAX_NORM * np.eye(3), b=np.zeros(3))

    state = advance(first(), propose, stop_rule, settled=False, record=RECORD)
    assert asked == [1.0, 0.5]
    assert state.W[0, 0] == 0.75 * MAX_NORM
    assert state.status == "running"


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e9])
def test_a_step_that_cannot_be_saved_ends_the_run_with_the_last_good_state(bad: float) -> None:
    stop_rule = StopRule(n_rounds=20, look_back=10, private=True)
    before = turn(first(), 0.2, stop_rule)
    move = Step(W=np.full((3, 3), bad), b=np.zeros(3))
    after = advance(before, lambda scale: move, stop_rule, settled=True, record=RECORD)
    assert after.status == "diverged"
    assert after.round == 2
    np.testing.assert_array_equal(after.W, before.W)
    assert after.record.step_norm == 0.0
    # A bias may be large, as long as it is a number.
    assert Step(W=np.eye(2), b=np.array([0.0, bad])).legal() is (bad == 1e9)


def test_rows_are_compared_without_regard_to_sign_and_size() -> None:
    W = np.random.default_rng(0).standard_normal((4, 4))
    assert row_agreement(W, -3.0 * W) == pytest.approx(1.0)
    np.testing.assert_allclose(np.linalg.norm(unit_rows(W), axis=1), 1.0)
    np.testing.assert_array_equal(unit_rows(np.zeros((2, 3))), np.zeros((2, 3)))
