"""Which run may spend: pure decisions over a site's ledger, each of which writes at most one line.

A run joins (`join_with`), holds its whole plan from the roster on (`hold`), charges within that
hold (`charge`) and frees the rest when it ends (`may_end`).  The sum of all holds never passes the
limit, so no charge is compared with the limit, and a run without room is refused before it spends.
The hold of a silent run yields only to a run that does not fit beside it; a run that comes back
asks for room again.

Decisions depend on the ledger, the run's people and settings, the limit and silence, never on a
value that was computed from data.  No I/O.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, Literal

from cape.frozen import dataclass
from cape.privacy.cost import FREE, INFINITE, Cost
from cape.privacy.spending import BY_HAND, Charge, RunSpending, Spending, largest_sum

# A run in such a state never charges again.
FINAL: Final = ("finished", "closed")
# Seconds of silence after which a run of the same owner, or one without charges, yields
SHORT_PATIENCE: Final = 3600.0
DAY: Final = 86400.0

Ending = Literal["finished", "failed", "closed"]
# in: go on; wait: there will be room once open runs have ended; spent: waiting does not help;
# closed: the run has ended; yielded: it lost its place and there is no room to come back; lost: the
# ledger lacks the run or one of its charges
DecisionWord = Literal["in", "wait", "spent", "closed", "yielded", "lost"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of a site's policy for all runs together."""

    total: Cost = INFINITE
    steps: int = 0  # of `total`, to which what others hold is rounded up; 0 = exactly
    patience: float = 7 * DAY  # s of silence after which any charged run yields; 0 = never

    def allow(self, others: Cost, plan: Cost) -> bool:
        return self._rounded(others) + plan <= self.total

    def remaining(self, others: Cost) -> Cost:
        """Return the largest plan that is allowed beside `others`."""
        return self.total - self._rounded(others)

    def _rounded(self, others: Cost) -> Cost:
        if not self.steps or not self.total.mu2 or others.mu2 is None:
            return others
        # However often an owner asks, one state of the ledger reveals log2(steps + 1) bits.
        step = self.total.mu2 / self.steps
        return Cost(mu2=-(-others.mu2 // step) * step)


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Seconds since the last sign of a run, and whether a process is computing it now."""

    silence: Callable[[str], float]
    is_running: Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """An answer; if it is "in", whether a line is written, and which runs yield."""

    word: DecisionWord
    writes: bool = False
    yields: tuple[str, ...] = ()
    plan: Cost = FREE  # the requested cost
    left: Cost = FREE  # of "spent": the largest plan that the limit allows yet
    waits_for: tuple[RunSpending, ...] = ()  # open runs that hold the room
    # How long a refusal counts for its owner: never if it depends on the owner's own open runs
    # alone, which reveals nothing; while open if it depends on the holds of others; else for good.
    counts: Literal["never", "while open", "for good"] = "never"


def join_with(
    spending: Spending, run: RunSpending, plan: Cost, limits: Limits, clock: Clock
) -> Decision:
    """Tell whether there is room for a run now."""
    # It holds nothing yet: another site may refuse it without telling this one.
    if limits.total == INFINITE:
        return Decision(word="in", writes=True)
    beside = spending.others_by_person(run)
    counted = frozenset[str]().union(*beside)
    runs = {other.run: other for other in spending.runs if other.run in counted}
    charged = {name: other.cost for name, other in runs.items()}
    held = {name: other.held for name, other in runs.items()}

    def fits(without: Collection[str]) -> bool:
        return limits.allow(
            largest_sum(beside, held | {name: charged[name] for name in without}), plan
        )

    spent = largest_sum(beside, charged)
    if not limits.allow(spent, plan):
        left = limits.remaining(spent)
        return Decision(word="spent", plan=plan, left=left, counts="for good")
    open_runs = [other for other in runs.values() if other.state == "held"]
    displaced: list[str] = []
    for other in (None, *_by_loss(open_runs, clock)):
        if other is not None:
            if not _yields(other, run, limits, clock):
                continue
            displaced.append(other.run)
        if fits(displaced):
            for name in displaced[:-1]:  # spare each run whose place is not needed after all
                fewer = [run_id for run_id in displaced if run_id != name]
                displaced = fewer if fits(fewer) else displaced
            return Decision(word="in", writes=True, yields=tuple(displaced))
    of_owner = [other.run for other in open_runs if other.owner == run.owner]
    if not limits.allow(largest_sum(beside, {name: held[name] for name in of_owner}), plan):
        counts: Literal["never", "while open", "for good"] = "never"
    else:
        # Else an owner could hold a part, ask beside it, end that run and ask again, for ever.
        counts = "for good" if fits(of_owner) else "while open"
    return Decision(word="wait", plan=plan, waits_for=tuple(open_runs), counts=counts)


def hold(
    spending: Spending,
    nonce: str,
    plan: Cost,
    limits: Limits,
    clock: Clock,
    earlier: Collection[Charge] = (),
) -> Decision:
    """Reserve the whole plan of a run, once, and again if it lost its place.

    `earlier` are the charges that the run knows.  A run that comes back displaces no other run.
    """
    run = spending.find(nonce)
    if run is None or not set(earlier) <= set(run.charges):
        return Decision(word="lost")
    if run.state == "held":
        return Decision(word="in")
    if run.state in FINAL:
        return Decision(word="closed")
    if run.state == "asked":
        return join_with(spending, run, plan, limits, clock)
    never_silent = Clock(silence=lambda _: 0.0, is_running=clock.is_running)
    decision = join_with(spending, run, plan, limits, never_silent)
    return decision if decision.word == "in" else replace(decision, word="yielded")


def charge(
    spending: Spending, nonce: str, entry: Charge, earlier: Collection[Charge] = ()
) -> Decision:
    """Charge within a hold; "yielded" if there is none: then call `hold` first."""
    run = spending.find(nonce)
    # A folder restored from an old copy (ledger, key and head) lacks charges that the run knows.
    if run is None or not set(earlier) <= set(run.charges):
        return Decision(word="lost")
    # A round that was interrupted and repeated costs once.
    if entry in run.charges:
        return Decision(word="in")
    # The same release has two values of mu: one line is wrong, so neither is trusted.
    if any(entry.key == other.key for other in run.charges):
        return Decision(word="lost")
    if run.state in FINAL:
        return Decision(word="closed")
    if run.state != "held":
        return Decision(word="yielded")
    if not run.cost_with(entry) <= run.plan:
        return Decision(word="lost")  # impossible: every release was planned
    return Decision(word="in", writes=True)


def may_end(run: RunSpending | None, why: Ending) -> bool:
    """Tell whether the end of a run needs a line: it is open, or people end one that may return."""
    if run is None or run.state in FINAL:
        return False
    return run.state == "held" or why == "closed" or (why == "finished" and run.state != "asked")


def may_return(run: RunSpending) -> bool:
    """Tell whether a run may ask for its people again: no error of its own ended it for good."""
    return run.state not in FINAL and (run.state != "failed" or run.why == BY_HAND)


def _by_loss(runs: Sequence[RunSpending], clock: Clock) -> list[RunSpending]:
    """Order runs by their charges, the smallest first; equal ones by silence, the longest first."""
    return sorted(
        runs,
        key=lambda run: (run.cost.mu2 is None, run.cost.mu2 or 0, -clock.silence(run.run), run.run),
    )


def _yields(other: RunSpending, run: RunSpending, limits: Limits, clock: Clock) -> bool:
    # Without an owner's name the question identifies the owner.
    same_owner = other.owner == run.owner and (run.owner != "" or other.question == run.question)
    # An owner who corrects a mistake waits briefly; a run with charges waits longer for others.
    patience = SHORT_PATIENCE if same_owner or not other.charges else limits.patience
    return patience > 0 and clock.silence(other.run) >= patience and not clock.is_running(other.run)
