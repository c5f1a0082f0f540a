"""One site, its ledger and several runs: every order of steps, faults between any two of them.

A step is one write, or one decision with the line that it writes under the lock.  Lines are written
and read, and decisions are taken, by the product itself; only files, processes and time are played.
An exchange may be killed between any two steps and is asked again, or never again; time passes,
people close runs, an error ends a run, the ledger or the folders of runs are set back.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

from cape.privacy import holds
from cape.privacy.cost import Cost
from cape.privacy.holds import DAY, Clock, Decision, Limits
from cape.privacy.spending import Charge, RunSpending, Spending
from cape.site import ledger_lines
from support import spending

# What a site does in an exchange: `hold`, `charge` and `end` are lines of the ledger.
JOIN = ("look", "read", "join", "store", "answered")
ROSTER = ("hold", "store")
RELEASE = ("look", "read", "charge", "journal", "draw", "answered")
REPORT = ("results", "end", "clear")
# Steps that change nothing which outlives a process
IDLE = ("look", "read", "answered", "results")
# Seconds that a run was silent: heard of just now, for more than an hour, for more than a week
SILENCES = (0.0, 1.5 * holds.SHORT_PATIENCE, 8 * DAY)
FAULTS = (
    "kills", "given up", "silences", "closings", "errors", "ledgers set back", "folders set back",
)  # fmt: skip


def cost(units: int) -> Cost:
    return Cost(mu2=Fraction(units))


@dataclasses.dataclass(frozen=True)
class Asked:
    """A run as its owner asks for it: `plan` units in equal releases, on people "ab" or "a+b"."""

    people: str
    plan: int = 4
    owner: str = ""
    question: str = ""


class Event(NamedTuple):
    """A line of the ledger: what it is, of which run, and the rest of it."""

    kind: str
    run: str
    rest: Any = None


class Journal(NamedTuple):
    """What the folder of a run knows, which may be set back."""

    run: str = ""
    answered: int = -1
    charges: tuple[int, ...] = ()  # numbers of exchanges


class Party(NamedTuple):
    """One run at the site: next exchange, its process (step, run), and how it ended."""

    exchange: int = 0
    run: str = ""
    joins: int = 0
    step: int | None = None  # of the exchange that a process works on
    working: str = ""
    journal: Journal = Journal()
    end: str = ""


class State(NamedTuple):
    ledger: tuple[Event, ...]
    parties: tuple[Party, ...]
    silent: frozenset[tuple[str, int]]  # (run, index of `SILENCES`), of those not heard of lately
    drawn: frozenset[tuple[str, int]]  # (run, exchange) of which noise left the site
    left: tuple[int, ...]  # faults that may still happen
    backups: tuple[Any, Any] = (None, None)  # of the ledger, of all folders
    was_set_back: bool = False


@dataclasses.dataclass
class Site:
    """All that may happen at one site.  `order`: the steps of a release."""

    asked: tuple[Asked, ...]
    limit: int = 6
    releases: int = 2
    faults: dict[str, int] = dataclasses.field(default_factory=dict)
    order: tuple[str, ...] = RELEASE
    clock_lies: bool = False  # every run looks silent for ever
    knows_its_journal: bool = True

    def __post_init__(self) -> None:
        exchanges = (JOIN, ROSTER, *[self.order] * self.releases, REPORT)
        # Without a fault that could fall there, they change nothing and only make orders.
        idle = () if {"kills", "errors"} & set(self.faults) else IDLE
        self.exchanges = tuple(tuple(s for s in steps if s not in idle) for steps in exchanges)
        self.limits = Limits(total=cost(self.limit))
        self._lines: dict[tuple[Event, ...], tuple[bytes, ...]] = {(): ()}
        self._read: dict[tuple[Event, ...], Spending] = {}
        self._decided: dict[Any, Decision] = {}
        self.violations: dict[str, State] = {}
        self.ends: dict[tuple[str, ...], int] = {}
        self.refused_at: set[tuple[str, str]] = set()

    # -- the product

    def read(self, ledger: tuple[Event, ...]) -> Spending:
        if ledger not in self._read:
            self._read[ledger] = ledger_lines.read_lines(self._written(ledger))
        return self._read[ledger]

    def _written(self, ledger: tuple[Event, ...]) -> tuple[bytes, ...]:
        if ledger not in self._lines:
            before = self._written(ledger[:-1])
            self._lines[ledger] = (*before, self._line(ledger[-1], before))
        return self._lines[ledger]

    def _line(self, event: Event, lines: tuple[bytes, ...]) -> bytes:
        if event.kind == "run":
            return ledger_lines.run_line(event.rest, lines)
        if event.kind == "hold":
            plan, yields = event.rest
            return ledger_lines.hold_line(event.run, cost(plan), yields, lines)
        if event.kind == "charge":
            return ledger_lines.charge_line(event.run, self.charge(*event.rest), lines)
        ended = {"why": event.rest, "by": "", "text": "", "date": ledger_lines.today()}
        return ledger_lines.next_line("end", lines, run=event.run, **ended)

    def charge(self, exchange: int, units: int) -> Charge:
        return spending.charge(exchange, f"{units}/1")

    def decide(self, state: State, i: int, name: str, run: str) -> Decision:
        party, asked = state.parties[i], self.asked[i]
        known = party.journal.charges if self.knows_its_journal else ()
        busy = frozenset(one.working for one in state.parties if one.step is not None)
        key = (state.ledger, i, name, run, party.exchange, known, state.silent, busy)
        if key not in self._decided:
            read, units = self.read(state.ledger), asked.plan // self.releases
            earlier = [self.charge(exchange, units) for exchange in known]
            levels = dict(state.silent)
            clock = Clock(
                silence=lambda other: SILENCES[2 if self.clock_lies else levels.get(other, 0)],
                is_running=lambda other: not self.clock_lies and other in busy,
            )
            if name == "join":
                found = holds.join_with(
                    read, self.run(i, run), cost(asked.plan), self.limits, clock
                )
            elif name == "hold":
                found = holds.hold(read, run, cost(asked.plan), self.limits, clock, earlier)
            else:
                found = holds.charge(read, run, self.charge(party.exchange, units), earlier)
            self._decided[key] = found
        return self._decided[key]

    def run(self, i: int, name: str) -> RunSpending:
        asked = self.asked[i]
        people = [asked.people.replace("+", " ")] if "+" in asked.people else asked.people
        return spending.run(
            name, dataset=name, people=frozenset(people), owner=asked.owner or f"owner {i}",
            question=asked.question or f"question {i}",
        )  # fmt: skip

    # -- what may happen next

    def start(self) -> State:
        left = tuple(self.faults.get(name, 0) for name in FAULTS)
        return State((), (Party(),) * len(self.asked), frozenset(), frozenset(), left)

    def following(self, state: State) -> Iterator[State]:
        for i, party in enumerate(state.parties):
            if party.end:
                continue
            if party.step is None:
                yield from self._asks(state, i, party)
                if party.exchange and (left := _one_less(state.left, "given up")):
                    yield _with(state, i, party._replace(end="given up"), left=left)
                continue
            yield from self._does(state, i, party)
            if left := _one_less(state.left, "kills"):
                yield _with(state, i, party._replace(step=None, working=""), left=left)
        yield from self._around(state)

    def _asks(self, state: State, i: int, party: Party) -> Iterator[State]:
        """Ask for the next exchange of a run, again or for the first time."""
        last, journal = len(self.exchanges) - 1, party.journal
        if party.exchange == 0:
            if party.joins < 2:
                run = f"{i}{'ab'[party.joins]}"
                begun = party._replace(joins=party.joins + 1, step=0, working=run)
                yield _with(state, i, begun)
            return
        heard = frozenset(one for one in state.silent if one[0] != party.run)
        steps = self.exchanges[party.exchange]
        if party.exchange == last and not journal.run:  # the end, asked again
            step: int | None = len(steps)
        elif journal.run != party.run or journal.answered < party.exchange - 1:
            step = None  # E210: the folder is of another time
        elif journal.answered == party.exchange:
            step = len(steps)  # the stored answer
        else:
            step = 0 if journal.answered == party.exchange - 1 else None
        if step is None:
            yield _with(state, i, party._replace(end="lost"))
        else:
            yield _with(state, i, party._replace(step=step, working=party.run), silent=heard)

    def _does(self, state: State, i: int, party: Party) -> Iterator[State]:
        """Take the next step of the exchange that a process works on."""
        steps, run = self.exchanges[party.exchange], party.working
        step = steps[party.step] if party.step is not None and party.step < len(steps) else "send"
        onward = party._replace(step=(party.step or 0) + 1)
        journal = party.journal
        if step in ("join", "hold", "charge"):
            yield self._asks_the_ledger(state, i, step, onward)
        elif step == "journal":
            known = tuple(sorted({*journal.charges, party.exchange}))
            yield _with(state, i, onward._replace(journal=journal._replace(charges=known)))
        elif step in ("store", "draw"):
            answered = Journal(run, party.exchange, journal.charges if party.exchange else ())
            drawn = state.drawn | ({(run, party.exchange)} if step == "draw" else set())
            yield _with(state, i, onward._replace(journal=answered), drawn=frozenset(drawn))
        elif step == "end":
            ended = holds.may_end(self.read(state.ledger).find(run), "finished")
            line = (Event("end", run, "finished"),) if ended else ()
            yield _with(state, i, onward, ledger=(*state.ledger, *line))
        elif step == "clear":
            yield _with(state, i, onward._replace(journal=Journal()))
        elif step == "send":
            done = party.exchange == len(self.exchanges) - 1
            sent = party._replace(
                exchange=party.exchange + 1, run=run, step=None, working="",
                end="finished" if done else "",
            )  # fmt: skip
            yield _with(state, i, sent)
        else:
            yield _with(state, i, onward)
            if step == "read" and (left := _one_less(state.left, "errors")):
                ended = holds.may_end(self.read(state.ledger).find(run), "failed")
                line = (Event("end", run, "failed"),) if ended else ()
                stopped = party._replace(step=None, working="", end="error")
                yield _with(state, i, stopped, ledger=(*state.ledger, *line), left=left)

    def _asks_the_ledger(self, state: State, i: int, step: str, onward: Party) -> State:
        run, units = onward.working, self.asked[i].plan // self.releases
        decision = self.decide(state, i, step, run)
        if step == "charge" and decision.word == "yielded":
            # It asks for its place again, and then to charge: each under the lock.
            step, decision = "hold", self.decide(state, i, "hold", run)
            onward = onward._replace(step=(onward.step or 1) - 1)
        if decision.word == "in":
            known = self.read(state.ledger).find(run)
            if step != "join" and (
                known is None
                or not set(onward.journal.charges) <= {one.round for one in known.charges}
            ):
                self.violate("a run whose charges are gone goes on", state)
            rest: dict[str, Any] = {
                "join": self.run(i, run) if step == "join" else None,
                "hold": (self.asked[i].plan, decision.yields),
                "charge": (onward.exchange, units),
            }
            writes = decision.writes or step == "join"
            line = (Event("run" if step == "join" else step, run, rest[step]),) if writes else ()
            return _with(state, i, onward, ledger=(*state.ledger, *line))
        held = self.read(state.ledger).find(run)
        where = "join" if step == "join" else "roster" if onward.exchange == 1 else "release"
        self.refused_at.add((where, decision.word))
        if decision.word in ("wait", "spent") and held and held.state == "held":
            self.violate("a run whose place is held is refused", state)
        if decision.word in ("wait", "spent") and where == "release" and not state.was_set_back:
            self.violate("the total refuses a release", state)
        if decision.word == "lost" and not state.was_set_back:
            self.violate("the ledger is not believed, and nobody set it back", state)
        return _with(state, i, onward._replace(step=None, working="", end=decision.word))

    def _around(self, state: State) -> Iterator[State]:
        """Time passes, people close runs, files are set back."""
        read, levels = self.read(state.ledger), dict(state.silent)
        for run in read.runs:
            for level in (1, 2):
                left = _one_less(state.left, "silences")
                if run.state == "held" and level > levels.get(run.run, 0) and left:
                    later = frozenset({**levels, run.run: level}.items())
                    yield state._replace(silent=later, left=left)
            left = _one_less(state.left, "closings")
            if left and holds.may_end(run, "closed"):
                line = Event("end", run.run, "closed")
                yield state._replace(ledger=(*state.ledger, line), left=left)
        ledger, folders = state.backups
        if left := _one_less(state.left, "ledgers set back"):
            if ledger is None:
                yield state._replace(backups=(state.ledger, folders))
            elif ledger != state.ledger:
                yield state._replace(ledger=ledger, left=left, was_set_back=True)
        if left := _one_less(state.left, "folders set back"):
            now = tuple(party.journal for party in state.parties)
            if folders is None:
                yield state._replace(backups=(ledger, now))
            elif folders != now and not any(one.step is not None for one in state.parties):
                parties = tuple(
                    party._replace(journal=journal)
                    for party, journal in zip(state.parties, folders, strict=True)
                )
                yield state._replace(parties=parties, left=left)

    # -- what always holds

    def violate(self, what: str, state: State) -> None:
        self.violations.setdefault(what, state)

    def check(self, state: State, *, nothing_follows: bool) -> None:
        read = self.read(state.ledger)
        charged = {(one.run, charge.round) for one in read.runs for charge in one.charges}
        if not state.was_set_back and not state.drawn <= charged:
            self.violate("noise is drawn without its charge on disk", state)
        waiting = [i for i, party in enumerate(state.parties) if not party.end]
        if nothing_follows and any(state.parties[i].joins < 2 for i in waiting):
            self.violate("a run waits for ever", state)
        if waiting and not nothing_follows:
            return
        ends = tuple(sorted(party.end for party in state.parties))
        self.ends[ends] = self.ends.get(ends, 0) + 1
        if state.left == self.start().left:  # nothing failed
            if "finished" not in ends:
                self.violate("nobody finishes, and nothing had failed", state)
            if any(one.charges and one.state != "finished" for one in read.runs):
                self.violate("spent without results, and nothing had failed", state)

    def check_ledger(self, ledger: tuple[Event, ...], state: State) -> None:
        read, limit = self.read(ledger), self.limit
        for who in _persons(read):
            mine = [run for run in read.runs if _holds(run, who)]
            for name in ("cost", "held"):
                if sum(getattr(run, name).mu2 for run in mine) > limit:
                    self.violate(f"{name} of one person is past the limit", state)
        for run in read.runs:
            if run.held.mu2 == run.cost.mu2:
                continue
            closed = self.read((*ledger, Event("end", run.run, "closed"))).find(run.run)
            ends = run.state == "held" and holds.may_end(run, "closed")
            if not ends or closed is None or closed.held != closed.cost:
                self.violate("what is held is not listed, or cannot be closed", state)

    def wander(self, orders: int, random: Random) -> None:
        """Go `orders` ways from the start to an end, at each state to any that may follow."""
        # For sites of which nobody can visit all states.
        ledgers: set[tuple[Event, ...]] = set()
        for _ in range(orders):
            state, following = self.start(), list(self.following(self.start()))
            while following:
                state = random.choice(following)
                following = list(self.following(state))
                self.check(state, nothing_follows=not following)
                if state.ledger not in ledgers:
                    ledgers.add(state.ledger)
                    self.check_ledger(state.ledger, state)

    def explore(self, most: int, *, first: bool = False) -> int:
        """Visit every state, `most` at most; with `first` until something is violated."""
        seen, todo = {self.start()}, deque([self.start()])
        ledgers: set[tuple[Event, ...]] = set()
        while todo and not (first and self.violations):
            state = todo.popleft()
            if state.ledger not in ledgers:
                ledgers.add(state.ledger)
                self.check_ledger(state.ledger, state)
            following = list(self.following(state))
            self.check(state, nothing_follows=not following)
            for after in following:
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
            if len(seen) > most:
                raise AssertionError(f"more than {most} states")
        return len(seen)


def _one_less(left: tuple[int, ...], name: str) -> tuple[int, ...] | None:
    i = FAULTS.index(name)
    return (*left[:i], left[i] - 1, *left[i + 1 :]) if left[i] else None


def _with(state: State, i: int, party: Party, **changed: Any) -> State:
    parties = (*state.parties[:i], party, *state.parties[i + 1 :])
    return state._replace(parties=parties, **changed)


def _persons(read: Spending) -> list[set[str]]:
    """Return the persons of all runs, by another way than the product: whoever shares a digest."""
    persons: list[set[str]] = []
    for run in read.runs:
        for text in run.people:
            same = [one for one in persons if one & set(text.split())]
            persons = [one for one in persons if one not in same]
            persons.append(set(text.split()).union(*same))
    return persons


def _holds(run: RunSpending, who: set[str]) -> bool:
    return any(set(person.split()) & who for person in run.people)
