"""What several runs on the same people have spent together, from the lines of a site's ledger.

Costs of runs add (Dong, Roth and Su 2022, Cor. 3.3).  Digests, never names, identify a person: of
each file and of the name at the site.  Lines that share a digest, through any number of runs, are
one person.  A run counts for a person if it held the person, or used a data set whose name held the
person in some run.  The person with the largest sum decides.  Runs draw their halves independently,
so a run counts for all its people as for its half with the larger cost.  No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import compress
from typing import Final, Literal

from cape.frozen import dataclass
from cape.privacy.cost import FREE, INFINITE, Cost, Costly, Half, largest_cost, total_cost, total_of

# A ledger of years holds tens of thousands of charges: each is rounded up to a multiple of 2^-128,
# far below the resolution of any limit, so that sums keep one denominator.
_BITS: Final = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """One charged release; `mu2` as it was written, `cost` rounded up to a multiple of 2^-128."""

    phase: str
    round: int
    field: str
    mu2: str
    cost: Cost
    part: Half = ""

    @classmethod
    def of(cls, *, phase: str, round: int, field: str, mu2: str, part: Half = "") -> Charge:
        """Charge of a line; ValueError if mu2 is neither "p/q" nor "infinite"."""
        cost = sum_up((Cost.parse(mu2),))
        return cls(phase=phase, round=round, field=field, mu2=mu2, cost=cost, part=part)

    @property
    def key(self) -> tuple[str, int, str]:
        """Identity of a release, which a run may charge once."""
        return self.phase, self.round, self.field


# Why a run `failed` that ended without an error here: a person or its engine ended it
BY_HAND: Final = "stopped"
# asked: it joined and holds nothing; held: its whole plan is reserved, charged or not; yielded:
# another run has its place; finished, failed, closed: it ended.
SpendingState = Literal["asked", "held", "yielded", "finished", "failed", "closed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpending:
    """One run at this site."""

    run: str  # the site's nonce of that run
    dataset: str  # name that the site's policy gives to the data set, else a digest of its data
    # Each subject: one or more digests, separated by spaces
    people: frozenset[str]
    computation: str  # this and the date are for people
    date: str
    epsilon: float  # planned totals
    delta: float
    promised: bool  # false without noise, or with seeded noise: such a run costs infinity
    # Fingerprint of the site's key that digests of names were made with; empty = no names
    key: str = ""
    owner: str = ""  # who started it, as the engine names them
    question: str = ""  # digest of the settings
    charges: tuple[Charge, ...] = ()  # in order
    state: SpendingState = "asked"
    plan: Cost = FREE  # cost of all its releases, from its hold on
    # For people: the date of this state, and who ended the run, why
    since: str = ""
    by: str = ""
    why: str = ""
    name: str = ""  # by which everybody knows the run; empty before its plan was seen

    @property
    def shown(self) -> str:
        return self.name or self.run

    @property
    def cost(self) -> Cost:
        if self.charges and not self.promised:
            return INFINITE
        return borne(self.charges)

    def cost_with(self, charge: Charge) -> Cost:
        return borne((*self.charges, charge))

    @property
    def held(self) -> Cost:
        """Cost that no other run may spend: the plan of an open run, the charges of any other."""
        return self.plan if self.state == "held" and self.cost <= self.plan else self.cost


def sum_up(costs: Iterable[Cost]) -> Cost:
    return total_cost(costs, bits=_BITS)


def borne(releases: Iterable[Costly]) -> Cost:
    """Cost of releases; planned and charged ones are rounded alike, so a plan can be completed."""
    return total_of(releases, bits=_BITS)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpentTotal:
    """Sum of some runs, at the smallest of their deltas."""

    runs: int
    cost: Cost
    delta: float

    @property
    def mu(self) -> float | None:
        return self.cost.mu()

    @property
    def epsilon(self) -> float | None:
        return self.cost.epsilon(self.delta)


@dataclass(frozen=True, kw_only=True, slots=True)
class Forgiven:
    """Exchanges of an owner that people decided to count no longer, and why."""

    owner: str
    count: int
    by: str
    text: str
    date: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Spending:
    """All runs of a ledger."""

    runs: tuple[RunSpending, ...] = ()
    forgiven: tuple[Forgiven, ...] = ()

    def find(self, run: str) -> RunSpending | None:
        return next((known for known in self.runs if known.run == run), None)

    def others_by_person(self, run: RunSpending) -> set[frozenset[str]]:
        """Return, for each person of a run, the other runs that count for that person."""
        # Equal sets, which are common, appear once.  One set is that of the data set alone, which
        # counts even if no person is listed.
        others = [other for other in self.runs if other.run != run.run]
        runs_with: dict[frozenset[str], set[int]] = {}
        for i, other in enumerate(others):
            runs_with.setdefault(other.people, set()).add(i)
        same = _joined(run.people.union(*runs_with))
        runs_of: dict[str, set[int]] = {same[_first(person)]: set() for person in run.people}
        for people, those in runs_with.items():  # each list once, whatever number of runs has it
            for name in {same[_first(person)] for person in people} & runs_of.keys():
                runs_of[name] |= those
        sets = set()
        for with_person in {frozenset[int](), *map(frozenset, runs_of.values())}:
            datasets = {run.dataset, *(others[i].dataset for i in with_person)}
            counted = (
                i in with_person or other.dataset in datasets for i, other in enumerate(others)
            )
            sets.add(frozenset(other.run for other in compress(others, counted)))
        return sets

    def of(self, run: RunSpending) -> SpentTotal:
        """Total spent on the people of a run, by it and all others."""
        beside = self.others_by_person(run)
        charged = {
            other.run: other for other in self.runs if other.charges and other.run != run.run
        }
        counted = [charged[name] for name in charged.keys() & frozenset[str]().union(*beside)]
        return SpentTotal(
            runs=1 + len(counted),
            cost=sum_up((run.cost, largest_sum(beside, {one.run: one.cost for one in counted}))),
            # Epsilon at the smallest delta holds at every larger one, too.
            delta=min(one.delta for one in (run, *counted)),
        )


def largest_sum(beside: Iterable[frozenset[str]], amounts: Mapping[str, Cost]) -> Cost:
    """Largest sum of the runs' amounts over several sets of runs; 0 if there is no set."""
    return largest_cost(sum_up(amounts.get(name, FREE) for name in runs) for runs in beside)


@lru_cache(maxsize=1)  # a table of all runs asks about the same people once per run
def _joined(people: frozenset[str]) -> dict[str, str]:
    """For every digest of these people, one digest that stands for the person (union-find)."""
    above: dict[str, str] = {}

    def top(one: str) -> str:
        while above[one] != one:
            above[one] = one = above[above[one]]
        return one

    for person in people:
        digests = person.split()
        for digest in digests:
            above.setdefault(digest, digest)
            above[top(digest)] = top(digests[0])
    return {digest: top(digest) for digest in above}


def _first(person: str) -> str:
    return person.split()[0]
