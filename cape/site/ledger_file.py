"""The ledger of all runs on a site's data: one file per site, which outlives each run.

A site keeps it unless ``ledger_file`` of its policy is "none"; the default folder is
`cape.site.places.SitePlaces.home`.  Each line is JSON with the SHA-256 of the line before it.  The
file only grows, under a lock, and is on disk before any noise is drawn.  A repeated charge counts
once, so a resumed round costs nothing; a stopped run stays counted.  Concurrent runs see each
other's charges.

``<ledger_file>.key``, mode 0600, is the key of an HMAC of subject names: it recognises a person
with other files, and the ledger alone reveals no name.  The name of the site, which an aggregator
may choose, is not in it: sites that share a ledger share their people.  ``<ledger_file>.head``
holds the number of lines and the SHA-256 of the last.  A crash may leave the ledger one line ahead
of its head, never behind, so removed lines are noticed; so is a lost head, as it is older than the
key.
"""

import dataclasses
import hashlib
import hmac
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Any, Final, Protocol

from cape.errors import CapeError, ConfigError, StateLostError
from cape.frozen import dataclass
from cape.privacy import holds
from cape.privacy.cost import INFINITE, Cost, Event
from cape.privacy.holds import DAY, Clock, Decision, Ending, Limits
from cape.privacy.ledger import Budget
from cape.privacy.spending import Charge, Forgiven, RunSpending, Spending, SpentTotal, borne, sum_up
from cape.protocol import wire
from cape.settings.config import Config
from cape.settings.own_words import POLICY_FILE
from cape.site import ledger_lines
from cape.site.access import AccessRecords, clock_of, make_place, record_request, round_file
from cape.site.files import appending, side_path, write_atomically
from cape.site.places import SitePlaces
from cape.site.policy import NO_LEDGER, SitePolicy, limit_of, load_policy, unusable_policy

# Name of the ledger if the policy names no file
LEDGER_NAME: Final = "ledger.jsonl"

NO_LIMITS: Final = Limits()
# Delta on record for a run without a promise: never the smallest of several
NO_DELTA = 0.5
# Hex digits of a digest that identifies a person: 128 bits
DIGITS = 32


def own_ledger(
    path: Path | None = None, policy_path: Path | None = None, policy: SitePolicy | None = None
) -> tuple[Path | None, SitePolicy]:
    """Return the ledger and the policy of whoever types a command or calls a function.

    The ledger is the named one, else that of the policy or of CAPE_SITE_HOME; the policy is the
    given one, else that of `own_policy_file`, else what is shipped.
    """
    home = SitePlaces.from_environment(os.environ).home
    beside = Path()  # of a policy that is no file
    if policy is None:
        named = own_policy_file(path, policy_path)
        policy = SitePolicy() if named is None else load_policy(named)
        beside = beside if named is None else named.parent
    if path is None and policy.ledger_file not in ("", NO_LEDGER):
        path = beside / policy.ledger_file
    if path is None and home is not None and policy.ledger_file != NO_LEDGER:
        path = home / LEDGER_NAME
    return path, policy


def own_policy_file(ledger: Path | None, named: Path | None) -> Path | None:
    """Return the named policy, else that of CAPE_SITE_POLICY, else the one beside its ledger."""
    if named := named or SitePlaces.from_environment(os.environ).policy:
        return named
    beside = None if ledger is None else ledger.parent / POLICY_FILE
    if ledger is None or beside is None or not beside.is_file():
        return None
    with suppress(CapeError):  # it may be of something else
        if (beside.parent / load_policy(beside).ledger_file).resolve() == ledger.resolve():
            return beside
    return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedPerson:
    """One listed subject; this form is never written to a file."""

    label: str  # name of the subject at the site
    files: tuple[str, ...]  # SHA-256 of each file or row, independent of the owner's settings
    # Other spellings of the name: 01 in a table is sub-01 among images
    spellings: tuple[str, ...] = ()

    def digests(self, key: bytes, *contexts: tuple[str, ...]) -> str:
        """Return the digests that identify this person: of files, and of names under the key.

        Each context makes another digest of a name.
        """
        digests = {
            hashlib.sha256(text.encode()).hexdigest()[:DIGITS] for text in self.files if text
        }
        for name, context in product(filter(None, {self.label, *self.spellings}), contexts):
            parts = [part.encode("utf-8", "surrogatepass") for part in (*context, name)]
            text = b"cape/1/person" + b"".join(len(p).to_bytes(8, "little") + p for p in parts)
            digests.add(hmac.new(key, text, hashlib.sha256).hexdigest()[:DIGITS])
        return " ".join(sorted(digests))


@dataclass(frozen=True, kw_only=True, slots=True)
class LifetimeLedgerFile:
    """The file, as one run at one site sees it."""

    path: Path  # the file; made when the first run is opened
    site: str  # for error texts, and for people of earlier versions
    limits: Limits = NO_LIMITS  # over all runs on the same people

    # Each method reads all lines, decides, and writes at most one line, under one lock.

    def join(self, run: RunSpending, plan: Cost) -> Decision:
        """Admit a run if there is room for its plan; a refused run leaves no line."""
        make_place(self.path, self.site)
        with self._held() as (spending, lines, append):
            decision = holds.join_with(spending, run, _planned(run, plan), self.limits, self.clock)
            if decision.word == "in" and spending.find(run.run) is None:
                append(ledger_lines.run_line(run, lines, spending.runs))
            return decision

    def hold(
        self, nonce: str, plan: Cost, *, earlier: Sequence[Mapping[str, Any]] = (), name: str = ""
    ) -> Decision:
        """Reserve the plan of a run, once; silent runs yield the room that it needs."""
        self._check_there()
        charged = [_charge_of(line) for line in earlier]
        with self._held() as (spending, lines, append):
            run = spending.find(nonce)
            if run is not None:  # a returning run holds the same plan as before
                plan = _planned(run, plan if run.state == "asked" else run.plan)
            decision = holds.hold(spending, nonce, plan, self.limits, self.clock, charged)
            if decision.word == "lost":
                raise self._lost(spending, nonce)
            record_request(self.path, nonce)
            if decision.writes:
                append(ledger_lines.hold_line(nonce, plan, decision.yields, lines, name))
            return decision

    def charge(
        self,
        nonce: str,
        entry: Mapping[str, Any],
        plan: Cost,
        *,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> Decision:
        """Record a charge, once, within the hold of its run, which is renewed if it was lost.

        `entry` is one of `Ledger.entries`, `earlier` those before it.  StateLostError (E262) if
        the file lacks the run or an earlier charge, or has another charge for this round.
        """
        decision = self._charge(nonce, entry, earlier)
        if decision.word == "yielded":
            decision = self.hold(nonce, plan, earlier=earlier)
            if decision.word == "in":
                decision = self._charge(nonce, entry, earlier)
        return decision

    def _charge(
        self, nonce: str, entry: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]
    ) -> Decision:
        query, charged = _charge_of(entry), [_charge_of(line) for line in earlier]
        # Creating a lost file anew would forget all earlier runs.
        self._check_there()
        with self._held() as (spending, lines, append):
            decision = holds.charge(spending, nonce, query, charged)
            if decision.word == "lost":
                raise self._lost(spending, nonce)
            record_request(self.path, nonce)
            if decision.writes:
                append(ledger_lines.charge_line(nonce, query, lines))
            return decision

    def end(self, nonce: str, why: Ending, *, by: str = "", text: str = "") -> bool:
        """Free what a run holds and has not charged; False if it holds nothing."""
        if not self.path.exists():
            return False
        with self._held() as (spending, lines, append):
            ends = holds.may_end(spending.find(nonce), why)
            if ends:
                told = {"by": by, "text": text, "date": ledger_lines.today()}
                append(ledger_lines.next_line("end", lines, run=nonce, why=why, **told))
            return ends

    def forgive(self, forgiven: Forgiven) -> None:
        """Record that open accesses no longer count."""
        make_place(self.path, self.site)
        with self._held() as (_, lines, append):
            append(ledger_lines.next_line("forgiven", lines, **dataclasses.asdict(forgiven)))

    @property
    def clock(self) -> Clock:
        return clock_of(self.path)

    def is_closed(self, nonce: str) -> bool:
        """Whether people of the site ended a run for good.

        A search of the text: every round asks, and to read all lines takes as long as a charge.
        """
        if not self.path.exists():
            return False
        marks = (f'"run": "{nonce}"'.encode(), b'"kind": "end"', b'"why": "closed"')
        lines = self.path.read_bytes().splitlines()
        return any(all(mark in line for mark in marks) for line in lines)

    def held_runs(self) -> set[str]:
        return {run.run for run in self.spending().runs if run.state == "held"}

    def key(self) -> tuple[bytes, str]:
        """Return the key for names and its fingerprint; the first run creates the key.

        StateLostError (E262) if earlier runs used another key, under which their people would look
        new, or if the ledger is gone and the key is not.
        """
        make_place(self.path, self.site)
        path = side_path(self.path, "key")
        if path.exists():  # a key without its ledger: the ledger was lost
            self._check_there()
        with self._held() as (spending, lines, _):
            used = {run.key for run in spending.runs}
            if not path.exists() and not used:
                # The head first: a key without one means that lines were lost.
                ledger_lines.write_head(self.path, len(lines), lines[-1] if lines else b"")
                write_atomically(path, os.urandom(32).hex().encode())
            try:
                key = bytes.fromhex(path.read_text(encoding="ascii"))
            except (OSError, ValueError):
                raise self._unusable("its key is gone or damaged") from None
        if _is_another(key, used):
            raise self._unusable("its key is another one")
        return key, _fingerprint(key)

    def mark_not_private(self, nonce: str) -> None:
        """Record, once, that a run promises nothing because another site's noise is seeded."""
        self._check_there()
        with self._held() as (spending, lines, append):
            run = spending.find(nonce)
            if run is not None and run.promised:
                append(ledger_lines.next_line("unpromised", lines, run=nonce))

    def find(self, nonce: str) -> RunSpending:
        run = self.spending().find(nonce)
        if run is None:
            raise self._unusable("it does not know this run")
        return run

    def check_asked(self, nonce: str) -> None:
        """Raise StateLostError (E262) for an unknown run, or one whose questions are not known."""
        if not round_file(self.path, nonce).exists() and self.find(nonce).state != "asked":
            raise self._unusable("its record of what this run was asked is gone")

    def total(self, nonce: str) -> SpentTotal | None:
        spending = self.spending()
        run = spending.find(nonce)
        return None if run is None else spending.of(run)

    def spending(self) -> Spending:
        if not self.path.exists():
            return Spending()
        with self._held() as (spending, _, _):
            return spending

    @contextmanager
    def _held(self) -> Iterator[tuple[Spending, list[bytes], Callable[[bytes], None]]]:
        """Lock the file; yields its content, its lines, and a function that adds a line."""
        with appending(self.path, f"the ledger of site {self.site}") as (lines, append):

            def add(line: bytes) -> None:
                append(line)
                # After the line, so that a crash never leaves the ledger behind its head.
                ledger_lines.write_head(self.path, len(lines) + 1, line)

            try:
                spending = ledger_lines.read_whole(self.path, lines)
            except CapeError as err:
                raise self._unusable(str(err.fields.get("problem", err))) from err
            yield spending, lines, add

    def _lost(self, spending: Spending, nonce: str) -> StateLostError:
        if spending.find(nonce) is None:
            return self._unusable("it does not know this run")
        return self._unusable("charges of this run are gone from it, or are others than it says")

    def _check_there(self) -> None:
        if not self.path.exists():
            raise self._unusable("it is gone")

    def _unusable(self, problem: str) -> StateLostError:
        return StateLostError("E262", site=self.site, detail=f"{self.path}: {problem}")


def _fingerprint(key: bytes, *, version: int = 2) -> str:
    """Identify a key; in version 1 the digests of names contain the name of the site, too."""
    return hashlib.sha256(b"cape/%d/ledger-key" % version + key).hexdigest()[:DIGITS]


def _is_another(key: bytes, used: Collection[str]) -> bool:
    """Tell whether a key is not that of runs; `used`: their fingerprints."""
    return len(key) < 32 or bool({*used} - {_fingerprint(key), _fingerprint(key, version=1)})


def lost_key(path: Path, spending: Spending) -> str:
    """Return what happened to the key under which a ledger names people; empty: nothing."""
    used, key = {run.key for run in spending.runs if run.key}, key_of(path)
    if not used:
        return ""
    return ("is another one" if _is_another(key, used) else "") if key else "is gone or damaged"


def _planned(run: RunSpending, plan: Cost) -> Cost:
    """Return the cost that a run reserves: its plan, rounded up; infinite without a promise."""
    return sum_up((plan,)) if run.promised else INFINITE


def _charge_of(entry: Mapping[str, Any]) -> Charge:
    names = ("phase", "round", "field", "mu2")
    return Charge.of(**{name: entry[name] for name in names}, part=entry.get("part", ""))


class DataOfRun(Protocol):
    """Facts about a site's data that the ledger of all runs needs."""

    @property
    def people(self) -> list[ListedPerson]: ...

    @property
    def contents(self) -> str: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LifetimeLedger:
    """The ledger of all runs, with the data set and owner of the present run."""

    file: LifetimeLedgerFile
    dataset_id: str  # the policy's name of the data set; empty = the fingerprint of its data
    data: DataOfRun  # used in `join` only, so that no later round reads a file
    owner: str = ""  # the engine's name of the owner
    place: str = ""  # tells people of simulated sites apart, which share a ledger and names

    @property
    def access(self) -> AccessRecords:
        return AccessRecords(
            ledger=self.file.path,
            site=self.file.site,
            owner=self.owner,
            dataset_id=self.dataset_id,
            held=self.file.held_runs,
        )

    def begin(self, nonce: str, computation: str, config: Config, *, promised: bool) -> Decision:
        key, fingerprint = self.file.key()
        spending = self.file.spending()
        run = self._run(
            nonce, computation, config, key, fingerprint, spending=spending, promised=promised
        )
        return self.file.join(run, budget_cost(config))

    def foresee(self, computation: str, config: Config, *, promised: bool) -> Decision:
        """Return what `begin` would decide now; nothing is written."""
        path = self.file.path
        key, spending = key_of(path), read_ledger(path) if path.is_file() else Spending()
        run = self._run("", computation, config, key, "", spending=spending, promised=promised)
        plan = _planned(run, budget_cost(config))
        return holds.join_with(spending, run, plan, self.file.limits, self.file.clock)

    def _run(
        self,
        nonce: str,
        computation: str,
        config: Config,
        key: bytes,
        fingerprint: str,
        *,
        spending: Spending,
        promised: bool,
    ) -> RunSpending:
        contexts = [(self.place, self.dataset_id) if self.place else (self.dataset_id,)]
        # People with digests of version 1 have both, and stay the same.
        if _fingerprint(key, version=1) in {run.key for run in spending.runs}:
            contexts.append((self.file.site, self.dataset_id))
        settings = hashlib.sha256(wire.dumps([computation, config.digest()]))
        return RunSpending(
            run=nonce,
            dataset=self.dataset_id or self.data.contents,
            people=frozenset(person.digests(key, *contexts) for person in self.data.people),
            computation=computation,
            date=ledger_lines.today(),
            epsilon=config.epsilon,
            delta=config.delta or NO_DELTA,
            promised=promised,
            key=fingerprint,
            owner=self.owner,
            question=settings.hexdigest()[:DIGITS],
        )

    def hold(
        self, nonce: str, plan: Sequence[Event], *, promised: bool, name: str = ""
    ) -> Decision:
        """Reserve the plan of a run; `promised`: no site of the roster has seeded noise."""
        if not promised:
            self.file.mark_not_private(nonce)
        return self.file.hold(nonce, borne(plan), name=name)

    def charge(
        self,
        nonce: str,
        entry: Mapping[str, Any],
        config: Config,
        earlier: Sequence[Mapping[str, Any]],
    ) -> Decision:
        return self.file.charge(nonce, entry, budget_cost(config), earlier=earlier)


def budget_cost(config: Config) -> Cost:
    """Return the budget of a run; its plan costs slightly less."""
    if not config.private:
        return INFINITE
    return Budget.of(epsilon=config.epsilon, delta=config.delta).cost


def limits_of(policy: SitePolicy) -> Limits:
    total = limit_of(policy.max_total)
    return Limits(total=total, steps=policy.total_steps, patience=policy.hold_days * DAY)


def key_of(path: Path) -> bytes:
    """Return the key of a ledger's names; empty if it is gone or was never made."""
    try:
        return bytes.fromhex(side_path(path, "key").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return b""


def read_ledger(path: Path) -> Spending:
    """Read a ledger file without changing it.

    StateLostError (E235) if it is damaged or gone, ConfigError (E264) if it is not a ledger.
    """
    if not path.is_file() and (side_path(path, "head").exists() or key_of(path)):
        raise ledger_lines.damaged_ledger("it is gone, and files beside it are there")
    text = path.read_bytes()
    lines = text[: text.rfind(b"\n") + 1].split(b"\n")[:-1]
    # A file with a head is a damaged ledger.
    if not side_path(path, "head").exists() and text and not (lines and b'"kind"' in lines[0]):
        do = "name the ledger.jsonl of the site; docs/ledger.md says where it lies."
        raise ConfigError("E264", problem=f"{path} is no ledger of all runs", do=do)
    return ledger_lines.read_whole(path, lines)


def ledger_file_of(
    policy: SitePolicy,
    folder: Path,
    site: str,
    *,
    home: Path | None = None,
    mapped: Path | None = None,
) -> LifetimeLedgerFile | None:
    """Return the ledger that a policy in `folder` names, else that of `home`; None without either.

    ConfigError if it lies in the folder of mapped files: an engine recreates that folder for every
    run and puts received files there, so earlier runs would not be counted.
    """
    if policy.ledger_file == NO_LEDGER or not (policy.ledger_file or home):
        return None
    path = folder / policy.ledger_file if policy.ledger_file else Path(home or "") / LEDGER_NAME
    if mapped is not None and path.resolve().is_relative_to(mapped.resolve()):
        raise unusable_policy(site, ConfigError("E269", detail=str(path)))
    return LifetimeLedgerFile(path=path, site=site, limits=limits_of(policy))
