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
from fractions import Fraction
from typing import Final

from cape.errors import ConfigError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, gdp_mu, root_up
from cape.privacy.chain import GENESIS, Entry, chain_head, write_entries
from cape.privacy.event import Event

_MARGIN: Final = 1e-9
"""Part of mu_B that a plan leaves unused, so that rounding of the shares cannot pass the budget."""

_BITS: Final = 256
_DO_RAISE: Final = "plan fewer or noisier releases, or raise epsilon"


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Total (epsilon, delta) of a run and its exact mu.

    Attributes
    ----------
    epsilon, delta : float
        Total, against the headline viewer, per subject.
    mu : float
        mu_B, the largest mu that implies (epsilon, delta); make it with `Budget.of`.
    """

    epsilon: float
    delta: float
    mu: float

    def __post_init__(self) -> None:
        """Check that mu is a positive number."""
        if not (math.isfinite(self.mu) and self.mu > 0.0):
            raise ConfigError(
                "E011", setting="mu", got=self.mu, allowed="finite, more than 0", do="correct it."
            )

    @classmethod
    def of(cls, *, epsilon: float, delta: float) -> Budget:
        """Return the budget of a total epsilon and delta; ConfigError if they are no budget."""
        return cls(epsilon=epsilon, delta=delta, mu=gdp_mu(epsilon=epsilon, delta=delta))

    @property
    def mu2(self) -> Fraction:
        """mu_B^2 of the float mu_B, exact."""
        return Fraction(self.mu) ** 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All releases of a run, fixed before the first one.

    Attributes
    ----------
    releases : tuple of Event
        At most one per phase and round; all with noise, or none.

    Raises
    ------
    ConfigError
        If two releases share phase and round, or only some carry noise.
    """

    releases: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Check that no round is planned twice and that noise is everywhere or nowhere."""
        if len({(event.phase, event.round) for event in self.releases}) < len(self.releases):
            raise ConfigError("E232", problem="a round is planned twice", do="correct the plan.")
        if len({event.private for event in self.releases}) > 1:
            problem = "only some of the planned releases carry noise"
            raise ConfigError("E232", problem=problem, do="correct the plan.")

    @property
    def private(self) -> bool:
        """Tell whether the releases carry noise (true for an empty plan)."""
        return all(event.private for event in self.releases)

    @property
    def total_mu2(self) -> Fraction:
        """Sum of mu_j^2, exact; PrivacyBudgetError if the releases carry no noise."""
        return sum((event.mu2 for event in self.releases), Fraction(0))

    def find(self, phase: str, round: int) -> Event:
        """Return the release of this phase and round.

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

    Attributes
    ----------
    budget : Budget or None
        None in runs with ``private=false`` only: such a ledger takes releases without noise and
        reports an infinite epsilon.
    events : tuple of Event
        Charges in order.
    head : str
        SHA-256 of the last entry, which holds that of the entry before it, and so on.

    Raises
    ------
    PrivacyBudgetError
        If `head` is not the digest of the events: entries were lost or changed.
    """

    budget: Budget | None
    events: tuple[Event, ...] = ()
    head: str = GENESIS

    def __post_init__(self) -> None:
        """Check the digest."""
        if chain_head(self.events) != self.head:
            problem = "it does not match its digest"
            raise PrivacyBudgetError("E235", problem=problem, do="start a new run.")

    @property
    def spent_mu2(self) -> Fraction:
        """Sum of the charged mu_j^2, exact; PrivacyBudgetError without a budget."""
        self._require_budget()
        return sum((event.mu2 for event in self.events), Fraction(0))

    @property
    def left_mu2(self) -> Fraction:
        """mu_B^2 minus the charges, exact; PrivacyBudgetError without a budget."""
        return self._require_budget().mu2 - self.spent_mu2

    def mu_spent(self) -> float | None:
        """Return the root of `spent_mu2`, rounded up; None (infinite) without a budget."""
        return None if self.budget is None else root_up(_enclose(self.events)[1])

    def epsilon_spent(self) -> float | None:
        """Return epsilon of the charges at the total delta; None (infinite) without a budget.

        A reading ("spent so far"), rounded up; the guarantee is the budget.
        """
        mu = self.mu_spent()
        if mu is None or self.budget is None:
            return None
        return gdp_epsilon(mu=mu, delta=self.budget.delta)

    def allows(self, event: Event) -> bool:
        """Tell whether `charge` would accept the release."""
        return not self._refusal(event)

    def charge(self, event: Event) -> Ledger:
        """Return the ledger with one more charge.

        Raises
        ------
        PrivacyBudgetError
            If the release does not fit what is left, was charged before, or carries no noise
            in a run with a budget (or noise in a run without).  This ledger is unchanged.
        """
        if do := self._refusal(event):
            raise self._refused(event, do)
        events = (*self.events, event)
        return Ledger(budget=self.budget, events=events, head=chain_head(events))

    def entries(self) -> tuple[Entry, ...]:
        """Return the entries for JSON, in order; `cape.privacy.chain.read_entries` checks them."""
        return write_entries(self.events)

    def _refusal(self, event: Event) -> str:
        """Say what to do instead, or return an empty text if the release is allowed."""
        key = (event.phase, event.round, event.field)
        if any(key == (old.phase, old.round, old.field) for old in self.events):
            return "it was charged already, send its stored answer again."
        if self.budget is None:
            return "a run without noise has no private release." if event.private else ""
        if not event.private:
            return "a release without noise needs private=false."
        if not _fits((*self.events, event), self.budget.mu2):
            return f"{_DO_RAISE}."
        return ""

    def _refused(self, event: Event, do: str) -> PrivacyBudgetError:
        asked = _mu_text(event.mu2) if event.private else "infinity"
        if self.budget is None:
            left, budget = "no budget", "none"
        else:
            left, budget = _mu_text(self.left_mu2, down=True), _mu_text(self.budget.mu2)
        return PrivacyBudgetError(
            "E230", what=event.name, asked=asked, left=left, budget=budget, do=do
        )

    def _require_budget(self) -> Budget:
        if self.budget is None:
            raise PrivacyBudgetError("E234", what="this run")
        return self.budget


def split_mu(mu: float, weights: Sequence[float]) -> tuple[float, ...]:
    """Share a total mu among releases: mu (1 - 1e-9) sqrt(w_j).

    Parameters
    ----------
    mu : float
        mu_B.
    weights : sequence of float
        Shares of mu_B^2, positive; their sum is 1, or less to leave a part unused.

    Raises
    ------
    ConfigError
        If a weight is not positive, or their sum is above 1.
    """
    if not all(weight > 0.0 for weight in weights) or math.fsum(weights) > 1.0 + _MARGIN:
        problem = "the shares of the budget are not positive or add up to more than 1"
        raise ConfigError("E232", problem=problem, do="correct the shares.")
    return tuple(mu * (1.0 - _MARGIN) * math.sqrt(weight) for weight in weights)


def check_plan(plan: Plan, budget: Budget | None) -> None:
    """Refuse a plan that does not fit the budget (None: private=false).

    Raises
    ------
    PrivacyBudgetError
        With the mu asked and allowed, the number of releases that fit, and the epsilon that all
        of them would need.
    """
    if budget is None or not plan.private:
        ledger = Ledger(budget=budget)
        for event in plan.releases:
            ledger = ledger.charge(event)
        return
    if _fits(plan.releases, budget.mu2):
        return
    fitting = 0
    while _fits(plan.releases[: fitting + 1], budget.mu2):
        fitting += 1
    needed = gdp_epsilon(mu=root_up(_enclose(plan.releases)[1]), delta=budget.delta)
    raise PrivacyBudgetError(
        "E230",
        what=f"the plan of {len(plan.releases)} releases",
        asked=_mu_text(plan.total_mu2),
        left=_mu_text(budget.mu2, down=True),
        budget=_mu_text(budget.mu2),
        do=f"the first {fitting} fit; {_DO_RAISE} to {needed * 1.000001:.6g}.",
    )


def _enclose(events: Sequence[Event]) -> tuple[Fraction, Fraction]:
    """Return bounds of the sum of mu_j^2, 2^-256 per event apart; cheap for thousands of them."""
    terms = (event.mu2_terms for event in events)
    low = sum((top << _BITS) // bottom for top, bottom in terms)
    high = low + len(events)
    return Fraction(low, 1 << _BITS), Fraction(high, 1 << _BITS)


def _fits(events: Sequence[Event], limit: Fraction) -> bool:
    """Tell exactly whether the sum of mu_j^2 is at most `limit`."""
    low, high = _enclose(events)
    if high <= limit:
        return True
    if low > limit:
        return False
    return sum((event.mu2 for event in events), Fraction(0)) <= limit


def _mu_text(mu2: Fraction, *, down: bool = False) -> str:
    """Return the root as text with 6 significant digits, rounded up (or down)."""
    return f"{root_up(mu2) * (1.0 + (-5e-6 if down else 5e-6)):.6g}"
