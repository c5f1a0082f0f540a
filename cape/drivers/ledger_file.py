"""The ledger that outlives a run: one file of a site, for all runs on its data.

Named by ``ledger_file`` of the site's policy.  Lines of JSON, each with the SHA-256 of the line
before it; only ever grown, under a lock, on disk before any noise is drawn.  A charge that is
there already is not charged again, so a repeated or resumed round costs nothing; a run that was
stopped stays counted.  Two runs at the same time see each other's charges.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from cape.config import Config
from cape.drivers.durable import appending
from cape.errors import CapeError, StateLostError
from cape.privacy.ledger import Budget
from cape.privacy.spending import (
    Charge,
    RunSpending,
    Spending,
    Total,
    charge_line,
    read_lines,
    run_line,
)

NO_DELTA = 0.5
"""Stands for the delta of a run that promises nothing: never the smallest of several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerFile:
    """The file, as one run at one site sees it.

    Attributes
    ----------
    path : Path
        The file; made when the first run is opened.
    site : str
        For error texts.
    max_total_epsilon : float
        Limit over all runs on the same people; 0 = none.
    """

    path: Path
    site: str
    max_total_epsilon: float = 0.0

    def allows(self, run: RunSpending, planned: Fraction | None) -> bool:
        """Tell whether a run that plans this mu^2 (None: infinite) fits beside all others."""
        if not self.max_total_epsilon:
            return True
        if planned is None or not run.promised:
            return False
        others = self._spending().of(run, others_only=True)
        return others.plus(planned, delta=run.delta).within(self.max_total_epsilon)

    def open(self, run: RunSpending) -> None:
        """Write down that a run begins, once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with appending(self.path) as (lines, append):
            if self._read(lines).find(run.run) is None:
                append(run_line(run, lines))

    def charge(self, nonce: str, entry: Mapping[str, Any]) -> bool:
        """Write down a charge, once, if it fits beside all that was charged; False if it does not.

        Parameters
        ----------
        nonce : str
            Of the run, which was opened.
        entry : mapping
            Of `Ledger.entries`: phase, round, field, mu2.

        Raises
        ------
        StateLostError
            E262: the file does not know the run, or knows another charge for this round.
        """
        charge = Charge.of(
            phase=entry["phase"], round=entry["round"], field=entry["field"], mu2=entry["mu2"]
        )
        with appending(self.path) as (lines, append):
            known = self._read(lines)
            run = known.find(nonce)
            if run is None:
                raise self._unusable("it does not know this run")
            if charge in run.charges:
                return True
            if any(charge.key == other.key for other in run.charges):
                raise self._unusable("a release was charged with another mu")
            after = replace(run, charges=(*run.charges, charge))
            if self.max_total_epsilon and not known.of(after).within(self.max_total_epsilon):
                return False
            append(charge_line(nonce, charge, lines))
            return True

    def total(self, nonce: str) -> Total | None:
        """Return what was charged to the people of a run, by it and by all others."""
        known = self._spending()
        run = known.find(nonce)
        return None if run is None else known.of(run)

    def _spending(self) -> Spending:
        if not self.path.exists():
            return Spending()
        with appending(self.path) as (lines, _):
            return self._read(lines)

    def _read(self, lines: list[bytes]) -> Spending:
        try:
            return read_lines(lines)
        except CapeError as err:
            raise self._unusable(str(err.fields.get("problem", err))) from err

    def _unusable(self, problem: str) -> StateLostError:
        return StateLostError("E262", site=self.site, detail=f"{self.path}: {problem}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AllRuns:
    """The ledger file with what this run is about.

    Attributes
    ----------
    file : LedgerFile
        Where charges go.
    dataset_id : str
        The policy's name of the data set; empty = the fingerprint of its data.
    people, contents : callable
        Digests of the data of every accepted subject, and of all of them.
    """

    file: LedgerFile
    dataset_id: str
    people: Callable[[], Collection[str]]
    contents: Callable[[], str]

    def begin(self, nonce: str, computation: str, config: Config, *, promised: bool) -> bool:
        """Tell whether a run fits beside all others, and write down that it begins if it does."""
        run = RunSpending(
            run=nonce,
            dataset=self.dataset_id or self.contents(),
            people=frozenset(self.people()),
            computation=computation,
            date=datetime.date.today().isoformat(),
            epsilon=config.epsilon,
            delta=config.delta or NO_DELTA,
            promised=promised,
        )
        planned = Budget.of(epsilon=config.epsilon, delta=config.delta).mu2 if promised else None
        if not self.file.allows(run, planned):
            return False
        self.file.open(run)
        return True


def read_ledger(path: Path) -> Spending:
    """Return what a ledger file says; it is not changed.

    Raises
    ------
    PrivacyBudgetError
        The file is damaged.
    """
    text = path.read_bytes()
    return read_lines(text[: text.rfind(b"\n") + 1].split(b"\n")[:-1])
