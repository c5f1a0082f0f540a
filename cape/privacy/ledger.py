"""Budget, plan and ledger: what may be released, and what was.

A plan is made from (epsilon, delta) before any release.  A ledger only grows: a charge comes
before the noise is drawn, there is no refund, and a release past the budget is refused.  The
filter sum mu_j^2 <= mu_B^2 holds for adaptively chosen releases with the same constants (Smith
and Thakurta, arXiv 2210.17520) and is compared in exact fractions, without a tolerance.  Queries
are pure.  Ledgers do no I/O: `Ledger.entries` is what a driver writes down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from cape.errors import ConfigError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.privacy.chain import GENESIS, Entry, chain_head, next_head, write_entries
from cape.privacy.cost import INFINITE, Cost, fits, total_cost
from cape.privacy.event import Event

# Part of mu_B that a plan leaves unused, so that rounding its weights cannot pass the budget.
_MARGIN: Final = 1e-9

_DO_RAISE: Final = "plan fewer or noisier releases, or raise epsilon"


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Total (epsilon, delta) of a run and its exact mu."""

    # epsilon, delta: Total, against the headline viewer, per subject
    epsilon: float
    delta: float
    mu: float  # mu_B, the largest mu that implies (epsilon, delta); make it with `Budget.of`

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mu) and self.mu > 0.0):
            raise ConfigError(
                "E011", setting="mu", got=self.mu, allowed="finite, more than 0", do="correct it."
            )

    @classmethod
    def of(cls, *, epsilon: float, delta: float) -> Budget:
        """Budget of a total epsilon and delta; ConfigError if they are no budget."""
        return cls(epsilon=epsilon, delta=delta, mu=gdp_mu(epsilon=epsilon, delta=delta))

    @property
    def cost(self) -> Cost:
        """What may be spent: mu_B^2 of the float mu_B, exact."""
        return Cost.of_mu(self.mu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All releases of a run, fixed before the first one.

    Raises
    ------
    ConfigError
        If two releases share phase and round, or only some carry noise.
    """

    releases: tuple[Event, ...]  # at most one per phase and round; all with noise, or none

    def __post_init__(self) -> None:
        # Two releases in one round would let the second one out under the charge of the first.
        if len({(event.phase, event.round) for event in self.releases}) < len(self.releases):
            raise ConfigError("E232", problem="a round is planned twice", do="correct the plan.")
        if len({event.private for event in self.releases}) > 1:
            problem = "only some of the planned releases carry noise"
            raise ConfigError("E232", problem=problem, do="correct the plan.")

    @property
    def private(self) -> bool:
        """Whether the releases carry noise (true for an empty plan)."""
        return all(event.private for event in self.releases)

    def find(self, phase: str, round: int) -> Event:
        """Release of this phase and round.

        Raises
        ------
        PrivacyBudgetError
            If the plan has none: a release that was not planned is never free.
        """
        for event in self.releases:
            if (event.phase, event.round) == (phase, round):
                return event
        raise PrivacyBudgetError("E233", phase=phase, round=round, problem="is not in the plan")


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """What was charged so far.

    Raises
    ------
    PrivacyBudgetError
        If `head` is not the digest of the events: entries were lost or changed.
    """

    # None in runs with ``private=false`` only: such a ledger takes releases without noise and
    # reports an infinite epsilon
    budget: Budget | None
    events: tuple[Event, ...] = ()  # charges in order
    # SHA-256 of the last entry, which holds that of the entry before it, and so on
    head: str = GENESIS

    def __post_init__(self) -> None:
        # A ledger is read back from a journal; one that lost charges would allow too much.
        if chain_head(self.events) != self.head:
            problem = "it does not match its digest"
            raise PrivacyBudgetError("E235", problem=problem, do="start a new run.")

    @property
    def spent(self) -> Cost:
        """Sum of the charges, rounded up by less than 2^-256 each; infinite without a budget."""
        return INFINITE if self.budget is None else total_cost(e.cost for e in self.events)

    @property
    def left(self) -> Cost:
        """Budget minus charges; PrivacyBudgetError without a budget."""
        if self.budget is None:
            raise PrivacyBudgetError("E234", what="this run")
        return self.budget.cost - self.spent

    def epsilon_spent(self) -> float | None:
        """Epsilon of the charges at the total delta; None (infinite) without a budget.

        A reading ("spent so far"), rounded up; the guarantee is the budget.
        """
        return None if self.budget is None else self.spent.epsilon(self.budget.delta)

    def allows(self, event: Event) -> bool:
        """Tell whether `charge` would accept the release."""
        return not self._refusal(event)

    def charge(self, event: Event) -> Ledger:
        """Ledger with one more charge.

        Raises
        ------
        PrivacyBudgetError
            If the release does not fit what is left, was charged before, or carries no noise
            in a run with a budget (or noise in a run without).  This ledger is unchanged.
        """
        if do := self._refusal(event):
            raise self._refused(event, do)
        head = next_head(self.head, len(self.events) + 1, event)
        return Ledger(budget=self.budget, events=(*self.events, event), head=head)

    def entries(self) -> tuple[Entry, ...]:
        """Entries for JSON, in order; `cape.privacy.chain.read_entries` checks them."""
        return write_entries(self.events)

    def _refusal(self, event: Event) -> str:
        """Say what to do instead; an empty text if the release is allowed."""
        # A second draw of one release, averaged with the first, would halve the noise.
        key = (event.phase, event.round, event.field)
        if any(key == (old.phase, old.round, old.field) for old in self.events):
            return "it was charged already, send its stored answer again."
        # Noise and no noise do not mix in one run: the label of its results is one of the two.
        if self.budget is None:
            return "a run without noise has no private release." if event.private else ""
        if not event.private:
            return "a release without noise needs private=false."
        if not fits([e.cost for e in (*self.events, event)], self.budget.cost):
            return f"{_DO_RAISE}."
        return ""

    def _refused(self, event: Event, do: str) -> PrivacyBudgetError:
        asked = _mu_text(event.cost) if event.private else "infinity"
        # What is asked is rounded up and what is left down, so that the text never contradicts
        # the decision.
        left, budget = "no budget", "none"
        if self.budget is not None:
            left, budget = _mu_text(self.left, down=True), _mu_text(self.budget.cost)
        return PrivacyBudgetError(
            "E230", what=event.name, asked=asked, left=left, budget=budget, do=do
        )


def split_mu(mu: float, mu2_weights: Sequence[float]) -> tuple[float, ...]:
    """Divide a total mu among releases: mu (1 - 1e-9) sqrt(w_j).

    Parameters
    ----------
    mu : float
        mu_B.
    mu2_weights : sequence of float
        Parts of mu_B^2, positive; their sum is 1, or less to leave a part unused.

    Raises
    ------
    ConfigError
        If a weight is not positive, or their sum is above 1.
    """
    positive = all(weight > 0.0 for weight in mu2_weights)
    if not positive or math.fsum(mu2_weights) > 1.0 + _MARGIN:
        problem = "the shares of the budget are not positive or add up to more than 1"
        raise ConfigError("E232", problem=problem, do="correct the shares.")
    # The root, because mu^2 is what adds.
    return tuple(mu * (1.0 - _MARGIN) * math.sqrt(weight) for weight in mu2_weights)


def check_plan(plan: Plan, budget: Budget | None) -> None:
    """Refuse a plan that does not fit the budget (None: private=false).

    Raises
    ------
    PrivacyBudgetError
        With the mu asked and allowed, the number of releases that fit, and the epsilon that all
        of them would need.
    """
    if budget is None or not plan.private:
        # Noise without a budget or a budget without noise: the ledger's own refusal names it.
        ledger = Ledger(budget=budget)
        for event in plan.releases:
            ledger = ledger.charge(event)
        return
    costs = [event.cost for event in plan.releases]
    if fits(costs, budget.cost):
        return
    # How many fit tells the owner at once how far off the settings are.
    fitting = 0
    while fits(costs[: fitting + 1], budget.cost):
        fitting += 1
    asked = total_cost(costs)
    # The epsilon in the text is rounded to 6 digits: a little more, so that typing it is enough.
    needed = (asked.epsilon(budget.delta) or 0.0) * 1.000001
    raise PrivacyBudgetError(
        "E230",
        what=f"the plan of {len(costs)} releases",
        asked=_mu_text(asked),
        left=_mu_text(budget.cost, down=True),
        budget=_mu_text(budget.cost),
        do=f"the first {fitting} fit; {_DO_RAISE} to {needed:.6g}.",
    )


def _mu_text(cost: Cost, *, down: bool = False) -> str:
    """Mu with 6 significant digits, rounded up (or down)."""
    return f"{(cost.mu() or 0.0) * (1.0 + (-5e-6 if down else 5e-6)):.6g}"
