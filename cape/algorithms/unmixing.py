"""State and round of all solvers.

`quasi_newton` and the solvers of the papers differ in question and step.  They share the norm
guard, the stability and the status.
"""

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
    "closed",
    "yielded",
    "diverged",
]

# Bound of |W|: solutions have norms of a few times sqrt(R), so a run beyond this diverges.
MAX_NORM = 1e4


@dataclass(frozen=True, kw_only=True, slots=True)
class Unmixing:
    """State of a solver; released quantities only."""

    W: Array  # (k, k): unmixing matrix of the solver's input: whitened data, scaled
    b: Array  # (k,): bias; 0 for `QuasiNewton`
    rho: float  # step length of the last round, or the current learning rate
    round: int  # rounds done
    # (k, k): W some rounds ago, for `stability`; with annealing (never in a private run) the step
    # against which angles are measured
    anchor: Array
    # Mean |cos| between the rows of W and of the previous anchor when the anchor was last renewed,
    # in whitened coordinates; 0 while unknown
    stability: float
    status: SolverStatus
    # Signed order of the components, counted from 1; set at the end of the run
    order: tuple[int, ...] = ()
    # Quasi-Newton only: variance of an angle after a spatial start; response to the dither and its
    # information (`verdict.of_answers`)
    variance: float = 0.0
    response: Array = field(default_factory=lambda: np.zeros(0))
    information: float = 0.0
    # Confirmed components, from 0, in the order of the solver.  The aggregator judges them once:
    # the rounding of another host must not confirm another map.
    confirmed: tuple[int, ...] = field(default=(), metadata={"omittable": True})
    record: StepRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A proposed state of the solver."""

    W: Array  # (k, k)
    b: Array  # (k,)

    def legal(self) -> bool:
        finite = bool(np.all(np.isfinite(self.W)) and np.all(np.isfinite(self.b)))
        return finite and float(np.max(np.abs(self.W), initial=0.0)) <= MAX_NORM


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRule:
    """Public constants that end a run."""

    n_rounds: int  # J
    look_back: int  # rounds between the two matrices that `stability` compares
    private: bool  # true: noisy steps never end a run early


def unit_rows(W: Array) -> Array:
    """Scale the rows of W (k, n) to norm 1; zero rows stay zero."""
    norms = np.linalg.norm(W, axis=1, keepdims=True)
    return np.asarray(W / np.where(norms > 0.0, norms, 1.0))


def row_agreement(W: Array, earlier: Array) -> float:
    """Mean |cos| between corresponding rows of two matrices (k, k)."""
    return float(np.mean(np.abs(np.sum(unit_rows(W) * unit_rows(earlier), axis=1))))


def advance(
    state: Unmixing,
    propose: Callable[[float], Step],
    stop_rule: StopRule,
    *,
    settled: bool,
    record: StepRecord,
) -> Unmixing:
    """Return the state after a round: guarded step, stability, status."""
    # `propose` returns the step for a factor on its length.  `settled`: the solver's tolerance is
    # met, which counts without privacy only.  The stability in `record` is set here.
    done = state.round + 1
    # Halving the step is post-processing of the same release.  If the half step is too large as
    # well, the run ends with the last good W.
    step = next((s for s in map(propose, (1.0, 0.5)) if s.legal()), None)
    if step is None:
        record = replace(record, step_norm=0.0, stability=state.stability)
        return replace(state, round=done, status="diverged", record=record)
    stability, anchor = state.stability, state.anchor
    # The anchor is renewed at rounds congruent to J, so the last round has a stability.
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
    # Under noise, rows that do not move show short steps, not that sources were found.
    return "not_judged" if stop_rule.private else "max_rounds"
