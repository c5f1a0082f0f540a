"""How many people of a site count, and why others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cape.frozen import dataclass


def how_many(n: int, word: str) -> str:
    """Return a number with its word: 1 site, 3 sites."""
    return f"{n} {word}{'s' * (n != 1)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedPeople:
    """How many of the listed people count; the others add zeros to every sum.  Private to a site.

    `why`: rules, with their limits, and how many people fail by each.
    """

    listed: int
    counted: int
    why: Mapping[str, int]

    @property
    def all(self) -> bool:
        return self.counted == self.listed

    @property
    def sentence(self) -> str:
        reasons = "; ".join(f"{n}: {reason}" for reason, n in self.why.items())
        return f"{self.counted} of {self.listed} people count{f' ({reasons})' if reasons else ''}."

    def without(self, reasons: Iterable[str]) -> CountedPeople:
        """Return the same with fewer who count: one for each of `reasons`."""
        more = Counter(reasons)
        why = dict((Counter(dict(self.why)) + more).most_common())
        return replace(self, counted=self.counted - more.total(), why=why)


def counted_together(sites: Iterable[CountedPeople]) -> CountedPeople:
    each, why = list(sites), Counter[str]()
    for site in each:
        why.update(site.why)
    return CountedPeople(
        listed=sum(site.listed for site in each),
        counted=sum(site.counted for site in each),
        why=dict(why.most_common()),
    )
