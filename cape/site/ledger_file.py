"""The ledger that outlives a run: one file of a site, for all runs on its data.

Kept unless ``ledger_file`` of the site's policy is "none"; where it names no place, in the folder
`cape.site.policy.site_home`.  Lines of JSON, each with the SHA-256 of the line
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
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from cape.errors import CapeError, ConfigError, PrivacyBudgetError, ReplayError, StateLostError
from cape.frozen import dataclass
from cape.privacy.cost import INFINITE, Cost
from cape.privacy.ledger import Budget
from cape.privacy.spending import Charge, RunSpending, Spending, Total
from cape.protocol import wire
from cape.settings.config import Config
from cape.site.files import appending, folder_lock, write_atomically
from cape.site.policy import NO_LEDGER, SitePolicy, unusable_policy

# Of a line. In format 1, which is still read, a person is one digest, of all files as one; who
# knows no other format must not go on with a ledger that this one wrote: it would find nobody.
LINE_FORMAT: Final = 2

# The ledger of a site whose policy names no place
LEDGER_NAME: Final = "ledger.jsonl"

# Digest that the first line is chained to.
FIRST_LINK: Final = hashlib.sha256(b"cape/1/spending").hexdigest()
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
        contents = {*self.files, " ".join(self.files)}  # format 1 knows people by all files as one
        digests = {hashlib.sha256(text.encode()).hexdigest()[:DIGITS] for text in contents if text}
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
        self._make_place()
        with self._held() as (spending, lines, append):
            if spending.find(run.run) is None:
                append(run_line(run, lines))

    def key(self) -> tuple[bytes, str]:
        """Return the key for names and its fingerprint; both are made with the first run.

        StateLostError (E262) if earlier runs know people by another key, so that they would look
        new, or if these runs are gone and the key is there.
        """
        self._make_place()
        path = self.path.with_name(f"{self.path.name}.key")
        if path.exists():  # made after the file, which is not made anew beside it
            self._check_there()
        with self._held() as (spending, _, _):
            used = {run.key for run in spending.runs} - {""}
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

    def look(self, whose: str, run: str, *, most: int = 0) -> bool:
        """Write down, once, that a run is about to look at data; False if `most` others did.

        It stands until `answered` takes it away, so whatever ends a process in between is counted:
        an error, a full disk, the end of its memory.
        """
        self._make_place()
        self.unanswered.mkdir(mode=0o700, exist_ok=True)
        # Under a lock: of runs that begin side by side each sees those before it.
        with folder_lock(self.unanswered, f"the ledger of site {self.site}"):
            if 0 < most <= self.refusals(whose, but=run):
                return False
            # Not synced, in every round: what ends a process takes no file, only a power cut does.
            (self.unanswered / f"{whose}-{run}").touch(mode=0o600)
        return True

    def has_looked(self, whose: str, run: str) -> bool:
        return (self.unanswered / f"{whose}-{run}").exists()

    def answered(self, whose: str, run: str) -> None:
        path = self.unanswered / f"{whose}-{run}"
        if path.exists():  # the place may be no folder
            path.unlink(missing_ok=True)

    def refusals(self, whose: str, *, but: str = "", end: str = "") -> int:
        """Return how many runs looked at data and never answered, `but` one; whose names so end."""
        head, own = f"{whose}-", f"{whose}-{but}"
        names = os.listdir(self.unanswered) if self.unanswered.is_dir() else []
        return sum(n.startswith(head) and n.endswith(end) and n != own for n in names)

    @property
    def unanswered(self) -> Path:
        return self.path.with_name(f"{self.path.name}.unanswered")

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

    def told(self, nonce: str, seq: int, transcript: bytes) -> None:
        """Write down, once, what a round of a run is about to answer; ReplayError if another.

        A folder that was set back has forgotten what it answered; this one lies elsewhere.
        """
        folder = self.path.with_name(f"{self.path.name}.rounds")
        folder.mkdir(mode=0o700, exist_ok=True)
        head, line = b"%d " % seq, f"{seq} {transcript.hex()}".encode()
        with appending(folder / nonce, f"the ledger of site {self.site}") as (lines, append):
            known = [other for other in lines if other.startswith(head)]
            if known not in ([], [line]):
                raise ReplayError("E203", seq=seq)
            if not known:
                append(line)

    def total(self, nonce: str) -> Total | None:
        spending = self._spending()
        run = spending.find(nonce)
        return None if run is None else spending.of(run)

    def _make_place(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as err:
            raise ConfigError("E304", site=self.site, detail=str(err)) from err

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
                _write_head(self.path, len(lines) + 1, line)

            yield self._read(lines), lines, add

    def _check_there(self) -> None:
        if not self.path.exists():
            raise self._unusable("it is gone")

    def _read(self, lines: list[bytes]) -> Spending:
        try:
            _check_head(self.path, lines)
            return read_lines(lines)
        except CapeError as err:
            raise self._unusable(str(err.fields.get("problem", err))) from err

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

    def look(self, owner: str, run: str, *, most: int = 0) -> bool:
        return self.file.look(self._whose(owner), run, most=most)

    def has_looked(self, owner: str, run: str) -> bool:
        return self.file.has_looked(self._whose(owner), run)

    def answered(self, owner: str, run: str) -> None:
        self.file.answered(self._whose(owner), run)

    def refusals(self, owner: str, end: str) -> int:
        return self.file.refusals(self._whose(owner), end=end)

    def unanswered(self, owner: str) -> str:
        """Return how many there are and which files stand for them, for the site alone."""
        whose = self._whose(owner)
        return f"{self.file.refusals(whose)} ({self.file.unanswered / whose}-*)"

    def _whose(self, owner: str) -> str:
        # By the name of the data set, not by its data: those were not read yet.  Whatever an engine
        # names its owner by, it takes one short word of a file's name.
        parts = wire.dumps([self.file.site, owner, self.dataset_id])
        return hashlib.sha256(parts).hexdigest()[:DIGITS]

    def _fits(self, run: RunSpending, config: Config) -> bool:
        if not run.promised:
            return self.file.allows(run, INFINITE)
        return self.file.allows(run, Budget.of(epsilon=config.epsilon, delta=config.delta).cost)


def read_ledger(path: Path) -> Spending:
    """Return what a ledger file says, unchanged; PrivacyBudgetError if it is damaged."""
    text = path.read_bytes()
    lines = text[: text.rfind(b"\n") + 1].split(b"\n")[:-1]
    if text and not lines:
        raise _damaged("it has no whole line")
    _check_head(path, lines)
    return read_lines(lines)


def all_runs_of(
    policy: SitePolicy,
    folder: Path,
    site: str,
    source: DataOfRun,
    *,
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
    )


# -- its lines: one JSON record each, chained by SHA-256 -------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLine:
    """A run begins; its fields are those of `RunSpending`."""

    v: Literal[1, 2]
    seq: int
    prev: str
    kind: Literal["run"]
    run: str
    dataset: str
    people: tuple[str, ...]
    computation: str
    date: str
    epsilon: float
    delta: float
    promised: bool
    key: str = ""

    def spending(self) -> RunSpending:
        """Return the run without charges; ValueError for values that no run of ours has."""
        if not 0.0 < self.delta < 1.0:
            raise ValueError("delta")
        if not all(person.split() for person in self.people):
            raise ValueError("somebody without a digest")
        return RunSpending(
            run=self.run,
            dataset=self.dataset,
            people=frozenset(self.people),
            computation=self.computation,
            date=self.date,
            epsilon=self.epsilon,
            delta=self.delta,
            promised=self.promised,
            key=self.key,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class UnpromisedLine:
    """A run turned out to promise nothing: another site's noise is seeded."""

    v: Literal[1, 2]
    seq: int
    prev: str
    kind: Literal["unpromised"]
    run: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ChargeLine:
    """One charged release."""

    v: Literal[1, 2]
    seq: int
    prev: str
    kind: Literal["charge"]
    run: str
    phase: str
    round: int
    field: str
    mu2: str

    def charge(self) -> Charge:
        return Charge.of(phase=self.phase, round=self.round, field=self.field, mu2=self.mu2)


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusalLine:
    """Of an earlier version, and passed over: a run ended here after data were read."""

    v: Literal[2]
    seq: int
    prev: str
    kind: Literal["refusal"]
    owner: str
    dataset: str
    date: str


# Lines of the last kind are read and never written.
LINE_TYPES: Final = RunLine | UnpromisedLine | ChargeLine | RefusalLine


def read_lines(lines: Sequence[bytes]) -> Spending:
    """PrivacyBudgetError if a line is damaged, missing, added or out of place."""
    # A ledger that says less than was spent must not let another run begin.
    runs: dict[str, RunSpending] = {}
    charges: dict[str, dict[tuple[str, int, str], Charge]] = {}
    digest = FIRST_LINK
    for seq, text in enumerate(lines, start=1):
        try:
            line = wire.decode(wire.loads(text), LINE_TYPES, "line", form="document")
            # The chain shows a line that was changed, left out or put in from another ledger.
            if (line.seq, line.prev) != (seq, digest):
                raise ValueError("out of place")
            if isinstance(line, RunLine):
                if line.run in runs:
                    # Two runs of one nonce would share their charges.
                    raise ValueError("a run is opened twice")
                runs[line.run], charges[line.run] = line.spending(), {}
            elif isinstance(line, UnpromisedLine):
                runs[line.run] = replace(runs[line.run], promised=False)
            elif isinstance(line, ChargeLine):
                charge = line.charge()
                if charges[line.run].setdefault(charge.key, charge) is not charge:
                    raise ValueError("a release is charged twice")
        except (CapeError, ValueError, KeyError, ArithmeticError):
            problem = f"line {seq} is damaged, missing or out of place"
            raise PrivacyBudgetError(
                "E235", problem=problem, do="restore the file; do not delete it."
            ) from None
        digest = hashlib.sha256(text).hexdigest()
    made = (replace(run, charges=tuple(charges[name].values())) for name, run in runs.items())
    return Spending(runs=tuple(made))


def run_line(run: RunSpending, lines: Sequence[bytes]) -> bytes:
    names = ("run", "dataset", "computation", "date", "epsilon", "delta", "promised", "key")
    fields = {name: getattr(run, name) for name in names}
    people = tuple(sorted(run.people))
    return _text(RunLine(**_place(lines), kind="run", people=people, **fields))


def unpromised_line(run: str, lines: Sequence[bytes]) -> bytes:
    return _text(UnpromisedLine(**_place(lines), kind="unpromised", run=run))


def charge_line(run: str, charge: Charge, lines: Sequence[bytes]) -> bytes:
    fields = {name: getattr(charge, name) for name in ("phase", "round", "field", "mu2")}
    return _text(ChargeLine(**_place(lines), kind="charge", run=run, **fields))


def _place(lines: Sequence[bytes]) -> dict[str, Any]:
    previous = hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST_LINK
    return {"v": LINE_FORMAT, "seq": len(lines) + 1, "prev": previous}


def _text(line: RunLine | UnpromisedLine | ChargeLine) -> bytes:
    document = wire.encode(line, type(line))
    # Not `wire.dumps`: people read this file, and lines of older versions look like this.
    return json.dumps(document, sort_keys=True, allow_nan=False).encode("ascii")


# -- how long it was -----------------------------------------------------------------------------


def _head(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _write_head(path: Path, n_lines: int, last: bytes) -> None:
    write_atomically(_head(path), f"{n_lines} {hashlib.sha256(last).hexdigest()}\n".encode())


def _check_head(path: Path, lines: list[bytes]) -> None:
    """Raise PrivacyBudgetError if lines are gone that a ledger had; older ones have no head."""
    try:
        n_text, _, digest = _head(path).read_text(encoding="ascii").strip().partition(" ")
        n_lines = int(n_text)
    except FileNotFoundError:
        return
    except ValueError:
        raise _damaged("what is known of its length is damaged") from None
    last = lines[n_lines - 1] if 0 < n_lines <= len(lines) else b""
    if hashlib.sha256(last).hexdigest() != digest:
        raise _damaged(f"it had {n_lines} lines and has {len(lines)}, or others")


def _damaged(problem: str) -> PrivacyBudgetError:
    do = "restore it with its .key and its .head; do not delete it."
    return PrivacyBudgetError("E235", problem=problem, do=do)
