"""Budget, plan and ledger: what may be released, and what was.

A plan is made from (epsilon, delta) before any release.  A ledger only grows: a release is charged
before its noise is drawn, a charge is never refunded, and a release past the budget is refused.
The filter sum mu_j^2 <= mu_B^2 is valid for adaptively chosen releases with the same constants
(Smith and Thakurta, arXiv 2210.17520) and is compared in exact fractions.  No I/O here:
`Ledger.entries` returns what is written.  An entry holds the integers from which its mu^2 follows
and the SHA-256 of the entry before it, which reveals changed, missing or reordered entries.  A
missing end is found only with a head digest from elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, cast

from cape.errors import ConfigError, PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.privacy.cost import INFINITE, Cost, Event, Half, VectorShape, all_within, total_of

LedgerEntry = dict[str, object]

# Digest that the first entry is chained to
GENESIS: Final = hashlib.sha256(b"cape/1/ledger").hexdigest()

# Written into every entry, so that it can be understood without this program.
_VIEW: Final = "aggregator and assumed colluders"
_UNIT: Final = "subject"

# Part of mu_B that a plan leaves unused, so that rounding its weights cannot pass the budget.
_MARGIN: Final = 1e-9

_DO_RAISE: Final = "plan fewer or noisier releases, or raise epsilon"


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Total (epsilon, delta) of a run and its exact mu."""

    # Totals, against the headline viewer, per subject
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
        """Largest total cost: mu_B^2 of the float mu_B, exact."""
        return Cost.of_mu(self.mu)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """All releases of a run.  ConfigError: two have one name, or only some have noise."""

    releases: tuple[Event, ...]  # one per phase, round and field; all with noise, or none

    def __post_init__(self) -> None:
        # Of two releases with one name, the second would be sent under the charge of the first.
        if len({(e.phase, e.round, e.field) for e in self.releases}) < len(self.releases):
            raise ConfigError("E232", problem="a release is planned twice", do="correct the plan.")
        if len({event.private for event in self.releases}) > 1:
            problem = "only some of the planned releases carry noise"
            raise ConfigError("E232", problem=problem, do="correct the plan.")

    @property
    def private(self) -> bool:
        """Whether the releases carry noise (true for an empty plan)."""
        return all(event.private for event in self.releases)

    def find(self, phase: str, round: int) -> tuple[Event, ...]:
        """Planned releases of one exchange, in order; PrivacyBudgetError if there are none."""
        if found := by_exchange(self.releases).get((phase, round)):
            return found
        raise PrivacyBudgetError("E233", phase=phase, round=round, problem="is not in the plan")


def by_exchange(releases: Iterable[Event]) -> dict[tuple[str, int], tuple[Event, ...]]:
    """Return the releases of each exchange, (phase, round), in order."""
    found: dict[tuple[str, int], tuple[Event, ...]] = {}
    for event in releases:
        key = event.phase, event.round
        found[key] = (*found.get(key, ()), event)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """Charges so far; PrivacyBudgetError if `head` is not their digest."""

    # None in runs with ``private=false`` only: such a ledger takes releases without noise and
    # reports an infinite epsilon
    budget: Budget | None
    events: tuple[Event, ...] = ()  # charges in order
    # SHA-256 of the last entry, which holds that of the entry before it, and so on
    head: str = GENESIS

    def __post_init__(self) -> None:
        # A ledger is read back from a journal; one without all charges would allow too much.
        if chain_head(self.events) != self.head:
            problem = "it does not match its digest"
            raise PrivacyBudgetError("E235", problem=problem, do="start a new run.")

    @property
    def spent(self) -> Cost:
        """Sum of the charges (`total_of`), rounded up a little; infinite without a budget."""
        return INFINITE if self.budget is None else total_of(self.events)

    @property
    def remaining(self) -> Cost:
        """Budget minus charges; PrivacyBudgetError without a budget."""
        if self.budget is None:
            raise PrivacyBudgetError("E234", what="this run")
        return self.budget.cost - self.spent

    def epsilon_spent(self) -> float | None:
        """Epsilon charged at the total delta, rounded up; None (infinite) without a budget."""
        return None if self.budget is None else self.spent.epsilon(self.budget.delta)

    def charge(self, event: Event) -> Ledger:
        """Ledger with one more charge.

        PrivacyBudgetError if the release exceeds the remaining budget, was charged before, or has
        no noise in a run with a budget (or noise in a run without).  This ledger is unchanged.
        """
        if do := self._refusal(event):
            raise self._refused(event, do)
        head = next_head(self.head, len(self.events) + 1, event)
        return Ledger(budget=self.budget, events=(*self.events, event), head=head)

    def entry(self, event: Event) -> LedgerEntry:
        """Entry of the release to be charged next."""
        return _entry(len(self.events) + 1, self.head, event)

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Entries for JSON, in order; `read_entries` checks them."""
        return write_entries(self.events)

    def _refusal(self, event: Event) -> str:
        """Return the advice of a refusal; an empty text if the release is allowed."""
        # A second draw of one release, averaged with the first, would halve the noise.
        key = (event.phase, event.round, event.field)
        if any(key == (old.phase, old.round, old.field) for old in self.events):
            return "it was charged already, send its stored answer again."
        # One run has noise in all releases or in none, because its results have one label.
        if self.budget is None:
            return "a run without noise has no private release." if event.private else ""
        if not event.private:
            return "a release without noise needs private=false."
        if not all_within((*self.events, event), self.budget.cost):
            return f"{_DO_RAISE}."
        return ""

    def _refused(self, event: Event, do: str) -> PrivacyBudgetError:
        needed = _mu_text(event.cost) if event.private else "infinity"
        # The request is rounded up and the rest down, so the text never contradicts the decision.
        remaining, budget = "no budget", "none"
        if self.budget is not None:
            remaining, budget = _mu_text(self.remaining, down=True), _mu_text(self.budget.cost)
        return PrivacyBudgetError(
            "E230", what=event.name, needed=needed, remaining=remaining, budget=budget, do=do
        )


def split_mu(mu: float, mu2_weights: Sequence[float]) -> tuple[float, ...]:
    """Parts mu (1 - 1e-9) sqrt(w_j) of a total mu; ConfigError unless w_j > 0 with a sum <= 1."""
    positive = all(weight > 0.0 for weight in mu2_weights)
    if not positive or math.fsum(mu2_weights) > 1.0 + _MARGIN:
        problem = "the shares of the budget are not positive or add up to more than 1"
        raise ConfigError("E232", problem=problem, do="correct the shares.")
    # The root, because mu^2 adds.
    return tuple(mu * (1.0 - _MARGIN) * math.sqrt(weight) for weight in mu2_weights)


def check_plan(plan: Plan, budget: Budget | None) -> None:
    """Refuse a plan that does not fit the budget (None: private=false).

    PrivacyBudgetError: mu asked and allowed, how many releases fit, epsilon that all would need.
    """
    if budget is None or not plan.private:
        # For noise without a budget, or a budget without noise, the ledger words the refusal.
        ledger = Ledger(budget=budget)
        for event in plan.releases:
            ledger = ledger.charge(event)
        return
    releases = plan.releases
    if all_within(releases, budget.cost):
        return
    # The number that fits tells the owner how far off the settings are.
    fitting = 0
    while all_within(releases[: fitting + 1], budget.cost):
        fitting += 1
    whole = total_of(releases)
    # The text rounds epsilon to 6 digits: a little more, so that the shown value suffices.
    needed = (whole.epsilon(budget.delta) or 0.0) * 1.000001
    raise PrivacyBudgetError(
        "E230",
        what=f"the plan of {len(releases)} releases",
        needed=_mu_text(whole),
        remaining=_mu_text(budget.cost, down=True),
        budget=_mu_text(budget.cost),
        do=f"the first {fitting} fit; {_DO_RAISE} to {needed:.6g}.",
    )


def _mu_text(cost: Cost, *, down: bool = False) -> str:
    """Mu with 6 significant digits, rounded up (or down)."""
    return f"{(cost.mu() or 0.0) * (1.0 + (-5e-6 if down else 5e-6)):.6g}"


def write_entries(events: Sequence[Event]) -> tuple[LedgerEntry, ...]:
    """Entries of charged releases for JSON, in order."""
    # "mu2" is "p/q" in lowest terms, or "infinite".  Gaussian zero-sum noise adds "seed_ratio", a
    # release of one half "part".
    entries, head = [], GENESIS
    for seq, event in enumerate(events, start=1):
        entries.append(_entry(seq, head, event))
        head = next_head(head, seq, event)
    return tuple(entries)


def read_entries(
    entries: Sequence[Mapping[str, object]], *, head: str | None = None
) -> tuple[Event, ...]:
    """Check a chain of entries read back from JSON and give its events.

    `head` is the digest of the last entry, if known from elsewhere; without it a cut end is not
    seen.  PrivacyBudgetError if an entry does not follow from the one before it.
    """
    events: list[Event] = []
    digest = GENESIS
    for seq, entry in enumerate(entries, start=1):
        try:
            event = _event(entry)
        except (KeyError, TypeError, ConfigError):
            raise _broken(seq) from None
        # Compared as a whole: any other content (another mu2, an extra key) is damage.
        if dict(entry) != _entry(seq, digest, event):
            raise _broken(seq)
        events.append(event)
        digest = next_head(digest, seq, event)
    if head is not None and head != digest:
        raise _broken(len(events) + 1)
    return tuple(events)


@lru_cache(maxsize=256)  # a state that was written here is read here
def chain_head(events: tuple[Event, ...]) -> str:
    """Digest of the last entry; `GENESIS` without events."""
    head = GENESIS
    for seq, event in enumerate(events, start=1):
        head = next_head(head, seq, event)
    return head


@lru_cache(maxsize=65536)  # every charge asks for the digests of all earlier ones
def next_head(prev_digest: str, seq: int, event: Event) -> str:
    """SHA-256 of the canonical JSON of the entry that follows `prev_digest`."""
    text = json.dumps(_entry(seq, prev_digest, event), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _entry(seq: int, prev_digest: str, event: Event) -> LedgerEntry:
    # Written ledgers must stay readable: a change here needs a new version of the entry.
    entry: LedgerEntry = {
        "seq": seq,
        "prev_digest": prev_digest,
        "release": event.name,
        "phase": event.phase,
        "round": event.round,
        "field": event.field,
        "kind": event.shape,
        "d": event.size,
        "log2_gamma": event.log2_gamma,
        "C_int": event.clip_int,
        "Delta_int": event.delta_int,
        "s2": event.variance,
        "h": event.shares,
        "mu2": str(event.cost),
        "view": _VIEW,
        "unit": _UNIT,
    }
    if event.seed_ratio:
        entry["seed_ratio"] = event.seed_ratio
    if event.part:
        entry["part"] = event.part
    return entry


def _event(entry: Mapping[str, object]) -> Event:
    # The casts are for mypy: `Event` checks the types of its arguments.
    return Event(
        phase=cast(str, entry["phase"]),
        round=cast(int, entry["round"]),
        field=cast(str, entry["field"]),
        shape=cast(VectorShape, entry["kind"]),
        size=cast(int, entry["d"]),
        log2_gamma=cast(int, entry["log2_gamma"]),
        clip_int=cast(int, entry["C_int"]),
        delta_int=cast(int, entry["Delta_int"]),
        variance=cast(int, entry["s2"]),
        shares=cast(int, entry["h"]),
        seed_ratio=cast(int, entry.get("seed_ratio", 0)),
        part=cast(Half, entry.get("part", "")),
    )


def _broken(seq: int) -> PrivacyBudgetError:
    problem = f"entry {seq} is missing, changed or out of place"
    return PrivacyBudgetError("E235", problem=problem, do="do not rely on this ledger.")
