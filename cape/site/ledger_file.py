"""The ledger that outlives a run: one file of a site, for all runs on its data.

Kept unless ``ledger_file`` of the site's policy is "none"; where it names no place, in the folder
`cape.site.places.SitePlaces.home`.  Lines of JSON, each with the SHA-256 of the line
before it; only ever grown, under a lock, on disk before any noise is drawn.  A charge that is
there already is not charged again, so a repeated or resumed round costs nothing; a run that was
stopped stays counted.  Two runs at the same time see each other's charges.

Beside it lies ``<ledger_file>.key``, mode 0600: names of subjects are known by an HMAC under it, so
that other files of a person are still that person's, and the ledger alone tells no name; and
``<ledger_file>.head``: how many lines there were, and the SHA-256 of the last.  A crash may leave
the ledger a line ahead of it, never behind: whole lines that are gone are noticed.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from cape.errors import CapeError, ConfigError, StateLostError
from cape.frozen import dataclass
from cape.privacy.cost import INFINITE, Cost
from cape.privacy.ledger import Budget
from cape.privacy.spending import Charge, RunSpending, Spending, Total
from cape.settings.config import Config
from cape.site.access import AccessRecords, make_place
from cape.site.files import appending, write_atomically
from cape.site.ledger_lines import (
    charge_line,
    check_head,
    damaged,
    read_lines,
    run_line,
    unpromised_line,
    write_head,
)
from cape.site.policy import NO_LEDGER, SitePolicy, unusable_policy

# The ledger of a site whose policy names no place
LEDGER_NAME: Final = "ledger.jsonl"

# Stands for the delta of a run that promises nothing: never the smallest of several.
NO_DELTA = 0.5
# Hex digits of a digest that a person is known by: 128 bits.
DIGITS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """One accepted subject, as the data of a site know it; never written down like this."""

    label: str  # name of the subject at the site
    files: tuple[str, ...]  # SHA-256 of each file or row, whatever the owner chose to do with it

    def digests(self, key: bytes, *context: str) -> str:
        """Return what this person is known by: files, and the name under the site's key."""
        digests = {
            hashlib.sha256(text.encode()).hexdigest()[:DIGITS] for text in self.files if text
        }
        parts = [part.encode("utf-8", "surrogatepass") for part in (*context, self.label)]
        name = b"cape/1/person" + b"".join(len(p).to_bytes(8, "little") + p for p in parts)
        digests.add(hmac.new(key, name, hashlib.sha256).hexdigest()[:DIGITS])
        return " ".join(sorted(digests))


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerFile:
    """The file, as one run at one site sees it."""

    path: Path  # the file; made when the first run is opened
    site: str  # for error texts
    max_total_epsilon: float = 0.0  # limit over all runs on the same people; 0 = none

    def allows(self, run: RunSpending, planned: Cost) -> bool:
        if not self.max_total_epsilon:
            return True
        if not run.promised:
            return False
        others = self._spending().of(run, others_only=True)
        return others.plus(planned, delta=run.delta).within(self.max_total_epsilon)

    def open(self, run: RunSpending) -> None:
        make_place(self.path, self.site)
        with self._held() as (spending, lines, append):
            if spending.find(run.run) is None:
                append(run_line(run, lines))

    def key(self) -> tuple[bytes, str]:
        """Return the key for names and its fingerprint; both are made with the first run.

        StateLostError (E262) if earlier runs know people by another key, so that they would look
        new, or if these runs are gone and the key is there.
        """
        make_place(self.path, self.site)
        path = self.path.with_name(f"{self.path.name}.key")
        if path.exists():  # made after the file, which is not made anew beside it
            self._check_there()
        with self._held() as (spending, _, _):
            used = {run.key for run in spending.runs}
            if not path.exists() and not used:
                write_atomically(path, os.urandom(32).hex().encode())
            try:
                key = bytes.fromhex(path.read_text(encoding="ascii"))
            except (OSError, ValueError):
                raise self._unusable("its key is gone or damaged") from None
        fingerprint = hashlib.sha256(b"cape/1/ledger-key" + key).hexdigest()[:DIGITS]
        if len(key) < 32 or used - {fingerprint}:
            raise self._unusable("its key is another one")
        return key, fingerprint

    def unpromised(self, nonce: str) -> None:
        """Write down, once, that a run turned out to promise nothing: another site is seeded."""
        self._check_there()
        with self._held() as (spending, lines, append):
            run = spending.find(nonce)
            if run is not None and run.promised:
                append(unpromised_line(nonce, lines))

    def find(self, nonce: str) -> RunSpending:
        run = self._spending().find(nonce)
        if run is None:
            raise self._unusable("it does not know this run")
        return run

    def charge(
        self, nonce: str, entry: Mapping[str, Any], *, earlier: Sequence[Mapping[str, Any]] = ()
    ) -> bool:
        """Write down a charge, once, if it fits beside all that was charged; False if it does not.

        `entry` is one of `Ledger.entries`, `earlier` those before it.  StateLostError (E262) if
        the file does not know the run or a charge before, or knows another one for this round.
        """
        charge = _charge_of(entry)
        # A file that is gone would be made anew, and all earlier runs forgotten.
        self._check_there()
        with self._held() as (spending, lines, append):
            run = spending.find(nonce)
            if run is None:
                raise self._unusable("it does not know this run")
            # A folder that went back in time, ledger, key, head and all, lacks what the run knows.
            if not {_charge_of(line) for line in earlier} <= set(run.charges):
                raise self._unusable("charges of this run are gone from it")
            # A round that was stopped and asked again costs once.
            if charge in run.charges:
                return True
            # The same release with another mu: one of the lines is wrong, so neither is believed.
            if any(charge.key == other.key for other in run.charges):
                raise self._unusable("a release was charged with another mu")
            after = replace(run, charges=(*run.charges, charge))
            if self.max_total_epsilon and not spending.of(after).within(self.max_total_epsilon):
                return False
            append(charge_line(nonce, charge, lines))
            return True

    def total(self, nonce: str) -> Total | None:
        spending = self._spending()
        run = spending.find(nonce)
        return None if run is None else spending.of(run)

    def _spending(self) -> Spending:
        if not self.path.exists():
            return Spending()
        with self._held() as (spending, _, _):
            return spending

    @contextmanager
    def _held(self) -> Iterator[tuple[Spending, list[bytes], Callable[[bytes], None]]]:
        """Hold the file; yields what it says, its lines, and a function that adds one."""
        with appending(self.path, f"the ledger of site {self.site}") as (lines, append):

            def add(line: bytes) -> None:
                append(line)
                # After the line: a crash between leaves the ledger ahead of its head, never behind.
                write_head(self.path, len(lines) + 1, line)

            try:
                check_head(self.path, lines)
                spending = read_lines(lines)
            except CapeError as err:
                raise self._unusable(str(err.fields.get("problem", err))) from err
            yield spending, lines, add

    def _check_there(self) -> None:
        if not self.path.exists():
            raise self._unusable("it is gone")

    def _unusable(self, problem: str) -> StateLostError:
        return StateLostError("E262", site=self.site, detail=f"{self.path}: {problem}")


def _charge_of(entry: Mapping[str, Any]) -> Charge:
    names = ("phase", "round", "field", "mu2")
    return Charge.of(**{name: entry[name] for name in names})


class DataOfRun(Protocol):
    """What the ledger of all runs asks about the data of a site: subjects and a fingerprint."""

    @property
    def people(self) -> list[Person]: ...

    @property
    def contents(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AllRuns:
    """The ledger file with what this run is about."""

    file: LedgerFile  # where charges go
    dataset_id: str  # the policy's name of the data set; empty = the fingerprint of its data
    data: DataOfRun  # asked in `join` only, so that no later round reads a file
    owner: str = ""  # the engine's name of who asks

    @property
    def access(self) -> AccessRecords:
        return AccessRecords(
            ledger=self.file.path, site=self.file.site, owner=self.owner, dataset_id=self.dataset_id
        )

    def begin(self, nonce: str, computation: str, config: Config, *, promised: bool) -> bool:
        key, fingerprint = self.file.key()
        context = (self.file.site, self.dataset_id)
        run = RunSpending(
            run=nonce,
            dataset=self.dataset_id or self.data.contents,
            people=frozenset(person.digests(key, *context) for person in self.data.people),
            computation=computation,
            date=datetime.date.today().isoformat(),
            epsilon=config.epsilon,
            delta=config.delta or NO_DELTA,
            promised=promised,
            key=fingerprint,
        )
        # Before it is written down: a refused run leaves no line.
        if not self._fits(run, config):
            return False
        self.file.open(run)
        return True

    def go_on(self, nonce: str, config: Config, *, promised: bool) -> bool:
        if not promised:
            self.file.unpromised(nonce)
        return self._fits(self.file.find(nonce), config)

    def _fits(self, run: RunSpending, config: Config) -> bool:
        if not run.promised:
            return self.file.allows(run, INFINITE)
        return self.file.allows(run, Budget.of(epsilon=config.epsilon, delta=config.delta).cost)


def read_ledger(path: Path) -> Spending:
    """Return what a ledger file says, unchanged; PrivacyBudgetError if it is damaged."""
    text = path.read_bytes()
    lines = text[: text.rfind(b"\n") + 1].split(b"\n")[:-1]
    if text and not lines:
        raise damaged("it has no whole line")
    check_head(path, lines)
    return read_lines(lines)


def all_runs_of(
    policy: SitePolicy,
    folder: Path,
    site: str,
    source: DataOfRun,
    *,
    owner: str = "",
    home: Path | None = None,
    mapped: Path | None = None,
) -> AllRuns | None:
    """Return the ledger of all runs that a policy in that folder names, else that of `home`.

    None where the policy wants none, or where nothing is named and there is no home.

    ConfigError if it lies in the folder of the mapped files: an engine makes that one anew for
    every run, and what the aggregator sends lands there, so earlier runs would not be counted.
    """
    if policy.ledger_file == NO_LEDGER or not (policy.ledger_file or home):
        return None
    path = folder / policy.ledger_file if policy.ledger_file else Path(home or "") / LEDGER_NAME
    if mapped is not None and path.resolve().is_relative_to(mapped.resolve()):
        mistake = ConfigError("E269", detail=str(path))
        raise unusable_policy(site, mistake)
    return AllRuns(
        file=LedgerFile(path=path, site=site, max_total_epsilon=policy.max_total_epsilon),
        dataset_id=policy.dataset_id,
        data=source,
        owner=owner,
    )
