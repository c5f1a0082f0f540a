"""What several runs on the same people have spent together, from the lines of a site's ledger.

Runs compose: mu_total^2 = mu_run^2 + sum of the mu^2 of all earlier runs (Dong, Roth and Su 2022,
Cor. 3.3).  A person is known by digests, never by names: of each file and of the name at the site.
Whoever ever stood in a line with a digest in common is the same person, through any number of
runs.  A run counts for a person if it held the person, or was made on a data set of that name which
held the person in some run.  The person who spent most decides.  Sums are rounded up.  No I/O here;
`cape.site.ledger_file` keeps the lines.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from cape.errors import PrivacyBudgetError
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, gdp_mu, root_up

FORMAT: Final = 2
"""Of a line.  In format 1, which is still read, a person is one digest, of all files as one; who
knows no other format must not go on with a ledger that this one wrote: it would find nobody."""

GENESIS: Final = hashlib.sha256(b"cape/1/spending").hexdigest()
"""Digest that the first line is chained to."""

_BITS: Final = 128
"""mu^2 is summed in units of 2^-128, each charge rounded up."""

_EXACT: Final = re.compile(r"[0-9]{1,999}(/[0-9]{1,999})?", re.ASCII)
"""mu^2 as it is written; "1e9999999" would be a fraction too, and fill the memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Charge:
    """One charged release; `units` is mu^2 in units of 2^-128, None if infinite."""

    phase: str
    round: int
    field: str
    mu2: str
    units: int | None

    @classmethod
    def of(cls, *, phase: str, round: int, field: str, mu2: str) -> Charge:
        """Return the charge of a line; ValueError if mu2 is neither "p/q" nor "infinite"."""
        units = None
        if mu2 != "infinite":
            if not _EXACT.fullmatch(mu2):
                raise ValueError("mu2 is no fraction of whole numbers")
            exact = Fraction(mu2)
            if exact <= 0:
                raise ValueError("mu2 must be positive")
            units = math.ceil(exact * (1 << _BITS))
        return cls(phase=phase, round=round, field=field, mu2=mu2, units=units)

    @property
    def key(self) -> tuple[str, int, str]:
        """What may be charged once in a run."""
        return self.phase, self.round, self.field


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSpending:
    """One run at this site.

    Attributes
    ----------
    run : str
        The site's nonce of that run.
    dataset : str
        Name that the site's policy gives to the data set, else a digest of its data.
    people : frozenset of str
        What each subject is known by: one or more digests, with spaces between.
    computation, date : str
        For people.
    epsilon, delta : float
        Planned total.
    promised : bool
        False without noise, or with seeded noise: such a run costs infinity.
    key : str
        Fingerprint of the site's key that digests of names were made with; empty = no names.
    charges : tuple of Charge
        In order.
    """

    run: str
    dataset: str
    people: frozenset[str]
    computation: str
    date: str
    epsilon: float
    delta: float
    promised: bool
    key: str = ""
    charges: tuple[Charge, ...] = ()

    @property
    def units(self) -> int | None:
        """Sum of mu^2 in units of 2^-128; None if infinite."""
        known = [charge.units for charge in self.charges if charge.units is not None]
        if len(known) < len(self.charges) or (self.charges and not self.promised):
            return None
        return sum(known)


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """What some runs have spent together: mu (None = infinite), at the smallest of their deltas."""

    runs: int
    units: int | None
    delta: float

    @property
    def mu(self) -> float | None:
        """Root of the summed mu^2, rounded up; None is infinite."""
        return None if self.units is None else root_up(Fraction(self.units, 1 << _BITS))

    @property
    def epsilon(self) -> float | None:
        """Epsilon at `delta`, rounded up; None is infinite."""
        if self.mu is None:
            return None
        return gdp_epsilon(mu=self.mu, delta=self.delta) if self.mu > 0 else 0.0

    def plus(self, mu2: Fraction, *, delta: float) -> Total:
        """Return the total with a run of that mu^2 added."""
        units = None if self.units is None else self.units + math.ceil(mu2 * (1 << _BITS))
        return Total(runs=self.runs + 1, units=units, delta=min(self.delta, delta))

    def within(self, max_epsilon: float) -> bool:
        """Tell whether the total is at most (max_epsilon, delta)."""
        if self.units is None:
            return False
        limit = Fraction(gdp_mu(epsilon=max_epsilon, delta=self.delta)) ** 2
        return Fraction(self.units, 1 << _BITS) <= limit


@dataclass(frozen=True, kw_only=True, slots=True)
class Spending:
    """All runs of a ledger."""

    runs: tuple[RunSpending, ...] = ()

    def find(self, run: str) -> RunSpending | None:
        """Return one run, or None."""
        return next((known for known in self.runs if known.run == run), None)

    def of(self, run: RunSpending, *, others_only: bool = False) -> Total:
        """Return what was spent on the people of a run, by it (unless left out) and all others."""
        others = [known for known in self.runs if known.run != run.run]
        same = _joined(run.people.union(*(known.people for known in others)))
        held: dict[str, set[int]] = {same[_first(person)]: set() for person in run.people}
        for i, known in enumerate(others):
            for person in known.people:
                held.get(same[_first(person)], set()).add(i)
        own = [] if others_only else [run]
        counted: set[int] = set()
        spent: list[int | None] = []
        # Most people were in the same runs as many others; without people the data set alone.
        for runs in {frozenset(), *(frozenset(found) for found in held.values())}:
            datasets = {run.dataset, *(others[i].dataset for i in runs)}
            charged = [
                i
                for i, known in enumerate(others)
                if known.charges and (i in runs or known.dataset in datasets)
            ]
            counted.update(charged)
            spent.append(_sum(known.units for known in (*own, *(others[i] for i in charged))))
        known_spent = [units for units in spent if units is not None]
        return Total(
            runs=len(own) + len(counted),
            units=max(known_spent) if len(known_spent) == len(spent) else None,
            delta=min(known.delta for known in (run, *(others[i] for i in counted))),
        )


@lru_cache(maxsize=1)  # a table of all runs asks about the same people once for each
def _joined(people: frozenset[str]) -> dict[str, str]:
    """Return, for every digest of these people, one digest that stands for the person."""
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


def _sum(parts: Iterable[int | None]) -> int | None:
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


# -- lines --------------------------------------------------------------------------------------


DAMAGED: Final = (
    ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError,
)  # fmt: skip
"""What reading a damaged line raises."""


def read_lines(lines: Sequence[bytes]) -> Spending:
    """Return what the lines of a ledger say, after checking that each follows from the last.

    Raises
    ------
    PrivacyBudgetError
        A line is damaged, missing, added or out of place.
    """
    runs: dict[str, RunSpending] = {}
    charges: dict[str, dict[tuple[str, int, str], Charge]] = {}
    digest = GENESIS
    for seq, line in enumerate(lines, start=1):
        try:
            document = json.loads(line)
            if document["v"] not in (1, FORMAT) or (document["seq"], document["prev"]) != (
                seq,
                digest,
            ):
                raise ValueError("out of place")
            if document["kind"] == "run":
                opened = _run(document)
                if opened.run in runs:
                    raise ValueError("a run is opened twice")
                runs[opened.run], charges[opened.run] = opened, {}
            elif document["kind"] == "unpromised":
                runs[document["run"]] = replace(runs[document["run"]], promised=False)
            else:
                _take(document, charges[document["run"]])
        except DAMAGED:
            problem = f"line {seq} is damaged, missing or out of place"
            raise PrivacyBudgetError(
                "E235", problem=problem, do="restore the file; do not delete it."
            ) from None
        digest = hashlib.sha256(line).hexdigest()
    made = (replace(run, charges=tuple(charges[name].values())) for name, run in runs.items())
    return Spending(runs=tuple(made))


def _take(document: dict[str, Any], known: dict[tuple[str, int, str], Charge]) -> None:
    """Add the charge of a line; ValueError if it is none, or charged already."""
    if document["kind"] != "charge":
        raise ValueError("unknown kind of line")
    charge = Charge.of(
        phase=str(document["phase"]),
        round=int(document["round"]),
        field=str(document["field"]),
        mu2=str(document["mu2"]),
    )
    if known.setdefault(charge.key, charge) is not charge:
        raise ValueError("a release is charged twice")


def _run(document: dict[str, Any]) -> RunSpending:
    delta = float(document["delta"])
    if not 0.0 < delta < 1.0:
        raise ValueError("delta")
    people = [str(one) for one in document["people"]]
    if not all(person.split() for person in people):
        raise ValueError("somebody without a digest")
    return RunSpending(
        run=str(document["run"]),
        dataset=str(document["dataset"]),
        people=frozenset(people),
        computation=str(document["computation"]),
        date=str(document["date"]),
        epsilon=float(document["epsilon"]),
        delta=delta,
        promised=document["promised"] is True,
        key=str(document.get("key", "")),
    )


def run_line(run: RunSpending, lines: Sequence[bytes]) -> bytes:
    """Return the line that opens a run after these lines."""
    return _line(
        lines,
        kind="run",
        run=run.run,
        dataset=run.dataset,
        people=sorted(run.people),
        computation=run.computation,
        date=run.date,
        epsilon=run.epsilon,
        delta=run.delta,
        promised=run.promised,
        key=run.key,
    )


def unpromised_line(run: str, lines: Sequence[bytes]) -> bytes:
    """Return the line, after these, that a run turned out to promise nothing."""
    return _line(lines, kind="unpromised", run=run)


def charge_line(run: str, charge: Charge, lines: Sequence[bytes]) -> bytes:
    """Return the line of a charge after these lines."""
    return _line(
        lines,
        kind="charge",
        run=run,
        phase=charge.phase,
        round=charge.round,
        field=charge.field,
        mu2=charge.mu2,
    )


def _line(lines: Sequence[bytes], **content: object) -> bytes:
    previous = hashlib.sha256(lines[-1]).hexdigest() if lines else GENESIS
    document = {"v": FORMAT, "seq": len(lines) + 1, "prev": previous, **content}
    return json.dumps(document, sort_keys=True, allow_nan=False).encode("ascii")
