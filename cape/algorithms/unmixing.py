"""The state and the round that all solvers share.

`quasi_newton` and those of the papers differ in the question and in the step; the norm guard, the
stability figure and the status are the same and live here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Literal

import numpy as np

from cape.algorithms.estimators import Array, StepRecord
from cape.frozen import dataclass

SolverStatus = Literal[
    "running",
    "converged",
    "unconfirmed",
    "not_separated",
    "max_rounds",
    "not_judged",
    "budget_exhausted",
    "diverged",
]

# Norm guard: solutions have norms of a few times sqrt(R); a run past this is blowing up.
MAX_NORM = 1e4


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmixing:
    """State of a solver; released quantities only."""

    W: Array  # (k, k): unmixing matrix of the solver's input: whitened data, scaled
    b: Array  # (k,): bias; 0 for `QuasiNewton`
    rho: float  # step length of the last round, or the learning rate in force
    round: int  # rounds done
    # (k, k): W some rounds ago, for `stability`.  With annealing (never in a private run): the step
    # that angles are measured against.
    anchor: Array
    # Mean |cos| between the rows of W and of the previous anchor when the anchor was last renewed,
    # in whitened coordinates; 0 while unknown
    stability: float
    status: SolverStatus
    # Signed order of the components, counted from 1; filled in at the end of the run
    order: tuple[int, ...] = ()
    # Of a quasi-Newton solver.  Variance of an angle after a spatial start; and what the answers
    # say of the dither (`verdict.judge`): (R (R - 1)/2,), and its information of every pair
    variance: float = 0.0
    response: Array = field(default_factory=lambda: np.zeros(0))
    information: float = 0.0
    # Components that were confirmed, from 0, in the order of the solver.  Judged once, by the
    # aggregator: the rounding of another host must not confirm another map.
    confirmed: tuple[int, ...] = field(default=(), metadata={"omittable": True})
    record: StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A proposed state of the solver: W of shape (k, k), b of shape (k,)."""

    W: Array
    b: Array

    def legal(self) -> bool:
        finite = bool(np.all(np.isfinite(self.W)) and np.all(np.isfinite(self.b)))
        return finite and float(np.max(np.abs(self.W), initial=0.0)) <= MAX_NORM


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRule:
    """How long a solver runs and how it judges itself; public constants."""

    n_rounds: int  # J
    look_back: int  # rounds between the two matrices that `stability` compares
    private: bool  # true: its own noisy steps never end a run


def unit_rows(W: Array) -> Array:
    """W with rows of norm 1; rows of zeros stay.  Shape (k, n)."""
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    return np.asarray(W / np.where(norms > 0.0, norms, 1.0))


def row_agreement(W: Array, earlier: Array) -> float:
    """Mean |cos| between equal rows of two matrices, shapes (k, k)."""
    return float(np.mean(np.abs(np.sum(unit_rows(W) * unit_rows(earlier), axis=1))))


def advance(
    state: Unmixing,
    propose: Callable[[float], Step],
    stop_rule: StopRule,
    *,
    settled: bool,
    record: StepRecord,
) -> Unmixing:
    """State after a round: guarded step, stability, status.

    `propose` gives the step with a factor on its length; `settled` says that the solver's tolerance
    was met, which counts without privacy only; the stability in `record` is filled in here.
    """
    done = state.round + 1
    # Halving once is post-processing of the same release; if that is too large as well, the run
    # ends with the last good W.
    step = next((s for s in map(propose, (1.0, 0.5)) if s.legal()), None)
    if step is None:
        record = replace(record, step_norm=0.0, stability=state.stability)
        return replace(state, round=done, status="diverged", record=record)
    stability, anchor = state.stability, state.anchor
    # One stored matrix is enough if it is renewed at rounds congruent to J: the last one is then.
    if (stop_rule.n_rounds - done) % stop_rule.look_back == 0:
        if done >= stop_rule.look_back:
            stability = row_agreement(step.W, anchor)
        anchor = step.W
    return replace(
        state,
        W=step.W,
        b=step.b,
        round=done,
        anchor=anchor,
        stability=stability,
        status=status_after(done, stop_rule, settled=settled),
        record=replace(record, stability=stability),
    )


def status_after(done: int, stop_rule: StopRule, *, settled: bool) -> SolverStatus:
    if not stop_rule.private and settled:
        return "converged"
    if done < stop_rule.n_rounds:
        return "running"
    # Rows that stay put under noise show that steps are short, not that sources were found.
    return "not_judged" if stop_rule.private else "max_rounds"
