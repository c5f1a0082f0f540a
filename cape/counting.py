"""Numbers before nouns; how many people of a site count, and why others do not."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from cape.frozen import dataclass


def number_of(n: int, noun: str) -> str:
    """Return a number before its noun: "1 entry", "2 entries"."""
    if n != 1:
        noun = "people" if noun == "person" else re.sub(r"(?<![aeiou])y$", "ie", noun) + "s"
    return f"{n} {noun}"


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
        people = f"{self.counted} of {number_of(self.listed, 'person')}"
        verb = "counts" if self.counted == 1 else "count"
        return f"{people} {verb}{f' ({reasons})' if reasons else ''}."

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
