"""Which run may spend: pure decisions over the lines of a site's ledger, a line at most for each.

A run is let in (`join_with`), holds its whole plan from the roster on (`hold`), charges inside of
that hold (`charge`) and frees the rest when it ends (`may_end`).  The sum of all holds never passes
the limit, so no charge is ever compared with it, and a run that finds no room is refused before it
spends anything.  A hold of a silent run yields to one that does not fit beside it, and to nobody
else; whoever comes back asks for room again.

What decides: lines of the ledger, the run's own people and settings, the limit, silence.  No value
that was computed from data is an argument here.  No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final, Literal

from cape.frozen import dataclass
from cape.privacy.cost import FREE, INFINITE, Cost
from cape.privacy.spending import Charge, RunSpending, Spending, most

# A run in such a state never charges again.
FINAL: Final = ("finished", "closed")
# Seconds of silence after which a run yields that charged nothing, or is of the same owner
SHORT_PATIENCE: Final = 3600.0
DAY: Final = 86400.0

Ending = Literal["finished", "failed", "closed"]
# in: go on; wait: there is room once open runs have ended; spent: waiting will not help; closed:
# the run has ended; yielded: it lost its place meanwhile, and there is no room to come back; lost:
# the ledger does not know the run, or not what it charged
Word = Literal["in", "wait", "spent", "closed", "yielded", "lost"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a site's policy says of all runs together."""

    total: Cost = INFINITE
    steps: int = 0  # of `total`, to which what others hold is rounded up; 0 = exactly
    patience: float = 7 * DAY  # s of silence after which any charged run yields; 0 = never

    def allow(self, others: Cost, plan: Cost) -> bool:
        return self._rounded(others) + plan <= self.total

    def left(self, others: Cost) -> Cost:
        """Return the largest plan that is allowed beside `others`."""
        return self.total - self._rounded(others)

    def _rounded(self, others: Cost) -> Cost:
        if not self.steps or not self.total.mu2 or others.mu2 is None:
            return others
        # However often somebody asks, one state of the ledger tells log2(steps + 1) bits.
        step = self.total.mu2 / self.steps
        return Cost(mu2=-(-others.mu2 // step) * step)


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Seconds since a run was last heard of, and which runs a process is computing right now."""

    silence: Callable[[str], float]
    at_work: Callable[[str], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """An answer; where it is "in", whether a line says so, and whose place it takes."""

    word: Word
    writes: bool = False
    yields: tuple[str, ...] = ()
    plan: Cost = FREE  # what was asked for
    waits_for: tuple[RunSpending, ...] = ()  # open runs that hold the room
    # How long a refusal counts for its owner: one that hangs on the owner's own open runs alone
    # tells nothing of others; one by what others hold counts while they do; all else for good.
    counts: Literal["never", "while open", "for good"] = "never"


def join_with(
    spending: Spending, run: RunSpending, plan: Cost, limits: Limits, clock: Clock
) -> Decision:
    """Tell whether there is room for a run now; it holds nothing yet.

    Other sites may still refuse it, and nobody would say so here.
    """
    return _room(spending, run, plan, limits, clock)


def hold(
    spending: Spending,
    nonce: str,
    plan: Cost,
    limits: Limits,
    clock: Clock,
    earlier: Collection[Charge] = (),
) -> Decision:
    """Reserve the whole plan of a run, once; again where it lost its place; `earlier`: its charges.

    A run that comes back takes nobody's place.
    """
    run = spending.find(nonce)
    if run is None or not set(earlier) <= set(run.charges):
        return Decision(word="lost")
    if run.state == "held":
        return Decision(word="in")
    if run.state in FINAL:
        return Decision(word="closed")
    if run.state == "asked":
        return _room(spending, run, plan, limits, clock)
    back = _room(spending, run, plan, limits, Clock(silence=lambda _: 0.0, at_work=clock.at_work))
    return back if back.word == "in" else replace(back, word="yielded")


def charge(
    spending: Spending, nonce: str, entry: Charge, earlier: Collection[Charge] = ()
) -> Decision:
    """Move a charge inside of a hold; "yielded" where there is none, and `hold` is asked first."""
    run = spending.find(nonce)
    # A folder that went back in time, ledger, key, head and all, lacks what the run knows.
    if run is None or not set(earlier) <= set(run.charges):
        return Decision(word="lost")
    # A round that was stopped and asked again costs once.
    if entry in run.charges:
        return Decision(word="in")
    # The same release with another mu: one of the lines is wrong, so neither is believed.
    if any(entry.key == other.key for other in run.charges):
        return Decision(word="lost")
    if run.state in FINAL:
        return Decision(word="closed")
    if run.state != "held":
        return Decision(word="yielded")
    if not run.cost_with(entry) <= run.plan:
        return Decision(word="lost")  # cannot be: every release was planned
    return Decision(word="in", writes=True)


def may_end(run: RunSpending | None, why: Ending) -> bool:
    """Tell whether a run ends by a line: an open one, or by its people any that might come back."""
    if run is None or run.state in FINAL:
        return False
    return run.state == "held" or why == "closed" or (why == "finished" and run.state != "asked")


def _room(
    spending: Spending, run: RunSpending, plan: Cost, limits: Limits, clock: Clock
) -> Decision:
    if limits.total == INFINITE:
        return Decision(word="in", writes=True)
    beside = spending.beside(run)
    counted = frozenset[str]().union(*beside)
    runs = {other.run: other for other in spending.runs if other.run in counted}
    charged = {name: other.cost for name, other in runs.items()}
    held = {name: other.held for name, other in runs.items()}

    def fits(without: Collection[str]) -> bool:
        return limits.allow(most(beside, held | {name: charged[name] for name in without}), plan)

    if not limits.allow(most(beside, charged), plan):
        return Decision(word="spent", plan=plan, counts="for good")
    open_runs = [other for other in runs.values() if other.state == "held"]
    gone: list[str] = []
    for other in (None, *_by_loss(open_runs, clock)):
        if other is not None:
            if not _yields(other, run, limits, clock):
                continue
            gone.append(other.run)
        if fits(gone):
            for name in gone[:-1]:  # whose place turns out not to be needed
                fewer = [one for one in gone if one != name]
                gone = fewer if fits(fewer) else gone
            return Decision(word="in", writes=True, yields=tuple(gone))
    own = [other.run for other in open_runs if other.owner == run.owner]
    if not limits.allow(most(beside, {name: held[name] for name in own}), plan):
        counts: Literal["never", "while open", "for good"] = "never"
    else:
        # Else an owner could hold a part, ask beside it, end that run and ask again, for ever.
        counts = "for good" if fits(own) else "while open"
    return Decision(word="wait", plan=plan, waits_for=tuple(open_runs), counts=counts)


def _by_loss(runs: Sequence[RunSpending], clock: Clock) -> list[RunSpending]:
    """Order runs by what is lost with them: who charged least first, of equal ones the longest."""
    return sorted(
        runs,
        key=lambda one: (one.cost.mu2 is None, one.cost.mu2 or 0, -clock.silence(one.run), one.run),
    )


def _yields(other: RunSpending, run: RunSpending, limits: Limits, clock: Clock) -> bool:
    # An engine that names nobody is known by the question.
    own = other.owner == run.owner and (run.owner != "" or other.question == run.question)
    # Who corrects a mistake starts again at once; what others charged is not lost to an impatient.
    patience = SHORT_PATIENCE if own or not other.charges else limits.patience
    return patience > 0 and clock.silence(other.run) >= patience and not clock.at_work(other.run)
