"""What several runs on the same people have spent together, from the lines of a site's ledger.

Costs of runs add (Dong, Roth and Su 2022, Cor. 3.3).  A person is known by digests, never names: of
each file and of the name at the site; lines with a digest in common, through any number of runs,
are one person.  A run counts for a person if it held the person, or was made on a data set of that
name which held the person in some run.  The person who spent most decides.  No I/O here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from cape.frozen import dataclass
from cape.privacy.accounting import gdp_mu
from cape.privacy.cost import FREE, INFINITE, Cost, total_cost

# A ledger of years holds tens of thousands of charges: each is rounded up to 2^-128, which is
# far below what any limit resolves, so that their sums keep one denominator.
_BITS: Final = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """One charged release; `mu2` as it was written, `cost` rounded up to a multiple of 2^-128."""

    phase: str
    round: int
    field: str
    mu2: str
    cost: Cost

    @classmethod
    def of(cls, *, phase: str, round: int, field: str, mu2: str) -> Charge:
        """Charge of a line; ValueError if mu2 is neither "p/q" nor "infinite"."""
        cost = total_cost((Cost.parse(mu2),), bits=_BITS)
        return cls(phase=phase, round=round, field=field, mu2=mu2, cost=cost)

    @property
    def key(self) -> tuple[str, int, str]:
        """What may be charged once in a run."""
        return self.phase, self.round, self.field


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpending:
    """One run at this site."""

    run: str  # the site's nonce of that run
    dataset: str  # name that the site's policy gives to the data set, else a digest of its data
    # What each subject is known by: one or more digests, with spaces between
    people: frozenset[str]
    computation: str  # this and the date are for people
    date: str
    epsilon: float  # planned totals
    delta: float
    promised: bool  # false without noise, or with seeded noise: such a run costs infinity
    # Fingerprint of the site's key that digests of names were made with; empty = no names
    key: str = ""
    charges: tuple[Charge, ...] = ()  # in order

    @property
    def cost(self) -> Cost:
        if self.charges and not self.promised:
            return INFINITE
        return total_cost((charge.cost for charge in self.charges), bits=_BITS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """What some runs have spent together, at the smallest of their deltas."""

    runs: int
    cost: Cost
    delta: float

    @property
    def mu(self) -> float | None:
        return self.cost.mu()

    @property
    def epsilon(self) -> float | None:
        return self.cost.epsilon(self.delta)

    def plus(self, cost: Cost, *, delta: float) -> Total:
        """Total with a run of that cost added."""
        summed = total_cost((self.cost, cost), bits=_BITS)
        return Total(runs=self.runs + 1, cost=summed, delta=min(self.delta, delta))

    def within(self, max_epsilon: float) -> bool:
        """Tell whether the total is at most (max_epsilon, delta)."""
        return self.cost <= Cost.of_mu(gdp_mu(epsilon=max_epsilon, delta=self.delta))


@dataclass(frozen=True, kw_only=True, slots=True)
class Spending:
    """All runs of a ledger."""

    runs: tuple[RunSpending, ...] = ()

    def find(self, run: str) -> RunSpending | None:
        return next((known for known in self.runs if known.run == run), None)

    def of(self, run: RunSpending, *, others_only: bool = False) -> Total:
        """Total spent on the people of a run, by it (unless left out) and all others."""
        others = [other for other in self.runs if other.run != run.run]
        same = _joined(run.people.union(*(other.people for other in others)))
        runs_of: dict[str, set[int]] = {same[_first(person)]: set() for person in run.people}
        for i, other in enumerate(others):
            for person in other.people:
                runs_of.get(same[_first(person)], set()).add(i)
        this = [] if others_only else [run]
        counted: set[int] = set()
        worst = FREE
        # Most people were in the same runs as many others, so equal sets are looked at once; the
        # empty one stands for the data set alone, which counts even if nobody is named.
        for held in {frozenset[int](), *(frozenset(held) for held in runs_of.values())}:
            datasets = {run.dataset, *(others[i].dataset for i in held)}
            charged = [
                i
                for i, other in enumerate(others)
                if other.charges and (i in held or other.dataset in datasets)
            ]
            counted.update(charged)
            runs = (*this, *(others[i] for i in charged))
            cost = total_cost((one.cost for one in runs), bits=_BITS)
            worst = cost if worst <= cost else worst
        return Total(
            runs=len(this) + len(counted),
            cost=worst,
            # Epsilon at the smallest delta holds at every larger one, too.
            delta=min(one.delta for one in (run, *(others[i] for i in counted))),
        )


@lru_cache(maxsize=1)  # a table of all runs asks about the same people once for each
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
