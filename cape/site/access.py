"""Records of unanswered accesses to a site's data, and of the question of each round.

Both outlive a run and lie beside the ledger of all runs: ``<ledger_file>.unanswered`` holds a
record (JSON) for each exchange that read data and has not answered, and for each question whose
`join` was answered and which no run has paid for; ``<ledger_file>.rounds`` a file for each run.  A
process locks that file while it works for the run; its modification time is that of the last
request.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from cape.errors import CapeError, ConfigError, ReplayError
from cape.frozen import dataclass
from cape.privacy.holds import Clock
from cape.protocol import wire
from cape.site.files import appending, folder_lock, is_locked, side_path, why_and_where

MAX_RECORD = 2**16


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """The record of one exchange that read data; empty if the file is unreadable."""

    owner: str = ""
    dataset: str = ""
    question: str = ""  # digest of settings and list of files; the same in another folder
    folder: str = ""  # of the run; locked while the exchange is computed
    exchange: str = ""  # phase and round
    date: str = ""
    # open: not answered; spent: refused by the total; wait: refused while others hold the room;
    # asked: `join` was answered, and no run with these checks was charged since
    kind: Literal["open", "spent", "wait", "asked"] = "open"
    waits_for: tuple[str, ...] = ()
    checks: str = ""  # `Config.checks_digest`: the same checks of the same data answer the same

    def counts(self, held: Collection[str]) -> bool:
        """Tell whether it counts for `max_refusals`; `held`: runs that hold a plan now."""
        return self.kind != "wait" or bool(set(self.waits_for) & set(held))

    @property
    def is_under_way(self) -> bool:
        return self.kind == "open" and bool(self.folder) and is_locked(Path(self.folder))

    @property
    def state(self) -> str:
        """The state in words."""
        if self.kind == "open":
            return "under way" if self.is_under_way else "stopped"
        if self.kind == "asked":
            return "answered, never charged"
        return "refused by the total" if self.kind == "spent" else "refused while others held it"


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRecords:
    """The access records of one owner's runs on a data set of a site."""

    ledger: Path  # the records lie beside this file
    site: str  # for error texts: an aggregator may choose it, so it is part of no key
    owner: str
    dataset_id: str  # the policy's name, as the data are not read yet
    held: Callable[[], Collection[str]]  # returns the runs that hold a plan

    def record(
        self,
        access_id: str,
        facts: Mapping[str, str],
        *,
        kind: Literal["open", "spent", "wait"] = "open",
        waits_for: tuple[str, ...] = (),
        most: int = 0,
    ) -> bool:
        """Record, once, that a run is about to read data; False if `most` other records count.

        The record stays until `clear`, so any end of the process in between counts: an error, a
        full disk, lack of memory.
        """
        make_place(self.ledger, self.site)
        folder = side_path(self.ledger, "unanswered")
        folder.mkdir(mode=0o700, exist_ok=True)
        access = Access(
            owner=self.owner,
            dataset=self.dataset_id,
            date=datetime.date.today().isoformat(),
            kind=kind,
            waits_for=waits_for,
            **facts,
        )
        # Under a lock, so that concurrent runs see each other's records.
        with folder_lock(folder, f"the ledger of site {self.site}"):
            if 0 < most <= len(self.counted(but=access_id, asks=access.checks)):
                return False
            self._write(access_id, access)
        return True

    def _write(self, access_id: str, access: Access) -> None:
        # Not synced in every round: only a power cut can lose the file.
        handle = os.open(self._path(access_id), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(wire.encode(access, Access), file)

    def has(self, access_id: str) -> bool:
        return self._path(access_id).exists()

    def asked(self, access_id: str) -> None:
        """Note that `join` is about to be answered: it says whether most of the people fail.

        Until a run with these checks is charged, the question counts once.  A process killed in
        between leaves both records, and whoever counts meanwhile waits.
        """
        path = self._path(access_id)
        # Without a record people forgave it meanwhile.
        with (
            suppress(FileNotFoundError),
            folder_lock(path.parent, f"the ledger of site {self.site}"),
        ):
            access = read_access(path)
            if access.checks:
                self._write(f"asked-{access.checks}", dataclasses.replace(access, kind="asked"))
                path.unlink()

    def paid(self, checks: str) -> None:
        """Count a question no longer: a run with these checks is charged."""
        self._path(f"asked-{checks}").unlink(missing_ok=True)

    def clear(self, access_id: str, *, question: str = "", exchange: str = "") -> None:
        """Remove the record of an answered exchange, and those of the same one in other folders.

        Its answer shows that the content of the files did not stop the others.
        """
        for name, access in self._all().items():
            same = (access.question, access.exchange) == (question, exchange) != ("", "")
            again = same and access.kind == "open" and not access.is_under_way
            if name == self._path(access_id).name or again:
                (side_path(self.ledger, "unanswered") / name).unlink(missing_ok=True)

    def counted(self, *, but: str = "", asks: str = "", of_total: bool = False) -> list[Access]:
        """Return the accesses that count for `max_refusals`, except `but`.

        `asks`: checks that are about to be asked; asked before, they count for nothing.
        `of_total`: only those that the total refused.
        """
        excepted = self._path(but).name
        accesses = [
            access
            for name, access in self._all().items()
            if name != excepted
            and not (of_total and access.kind in ("open", "asked"))
            and not (access.kind == "asked" and access.checks == asks)
        ]
        held = self.held() if any(access.kind == "wait" for access in accesses) else ()
        return that_count(accesses, held)

    def _all(self) -> dict[str, Access]:
        """Return this owner's records; a damaged one is known by the beginning of its name."""
        whose = (self.owner, self.dataset_id)
        damaged = (self._whose(), self._whose(self.site))
        return {
            name: access
            for name, access in read_accesses(self.ledger).items()
            if (
                (access.owner, access.dataset) == whose
                if access.date
                else name.partition("-")[0] in damaged
            )
        }

    def _whose(self, *site: str) -> str:
        # A digest, because an engine's name of an owner may not fit into a file name.  Records of
        # earlier versions have the name of the site in it.
        parts = wire.dumps([*site, self.owner, self.dataset_id])
        return hashlib.sha256(parts).hexdigest()[:32]

    def _path(self, access_id: str) -> Path:
        return side_path(self.ledger, "unanswered") / f"{self._whose()}-{access_id}"

    @contextmanager
    def lock_run(self, nonce: str) -> Iterator[Callable[[int, bytes], None]]:
        """Lock a run; yields a function that records the question of a round.

        It raises ReplayError if the round had another question.  A run folder that was restored
        from a copy does not know that; this file lies elsewhere.
        """
        path = round_file(self.ledger, nonce)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with appending(path, f"the ledger of site {self.site}") as (lines, append):
            os.utime(path)

            def record_question(seq: int, transcript: bytes) -> None:
                head, line = b"%d " % seq, f"{seq} {transcript.hex()}".encode()
                recorded = [other for other in lines if other.startswith(head)]
                if recorded not in ([], [line]):
                    raise ReplayError("E203", seq=seq)
                if not recorded:
                    append(line)

            yield record_question


def round_file(ledger: Path, nonce: str) -> Path:
    return side_path(ledger, "rounds") / nonce


def record_request(ledger: Path, nonce: str) -> None:
    """Record the time of a request; the silence of the run counts from it."""
    path = round_file(ledger, nonce)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)


def clock_of(ledger: Path) -> Clock:
    """Return a clock that tells how long a run is silent, and whether a process works for it."""

    def silence(nonce: str) -> float:
        try:
            return max(0.0, time.time() - round_file(ledger, nonce).stat().st_mtime)
        except OSError:
            return 0.0  # unknown, so the run keeps its room; people can close it

    return Clock(silence=silence, is_running=lambda nonce: is_locked(round_file(ledger, nonce)))


def read_accesses(ledger: Path) -> dict[str, Access]:
    """Return every access record beside a ledger, by file name; empty ones for damaged files."""
    folder = side_path(ledger, "unanswered")
    accesses = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if name.startswith("."):
            continue  # the lock file of file systems that cannot lock folders
        with suppress(FileNotFoundError):  # answered meanwhile
            accesses[name] = read_access(folder / name)
    return accesses


def read_access(path: Path) -> Access:
    """Read one record; an empty one if it is damaged."""
    try:
        return wire.decode_document(wire.loads(path.read_bytes(), MAX_RECORD), Access)
    except FileNotFoundError:
        raise
    except (OSError, CapeError):
        return Access(kind="spent" if path.name.endswith("-total") else "open")


def that_count(accesses: Iterable[Access], held: Collection[str]) -> list[Access]:
    """Return the records of one owner that count for `max_refusals`; `held`: as in `counts`.

    Those of a question that also counts as an exchange without an answer count once.
    """
    counting = [access for access in accesses if access.counts(held)]
    told = {access.checks for access in counting if access.kind != "asked"}
    return [one for one in counting if one.kind != "asked" or one.checks not in told]


def make_place(file: Path, site: str) -> None:
    """Make the folder of a file that outlives runs; ConfigError (E304) if it cannot be made."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise ConfigError("E304", site=site, detail=why_and_where(err)) from err
