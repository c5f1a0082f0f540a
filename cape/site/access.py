"""Which exchanges looked at a site's data and were never answered, and what each round was asked.

Both outlive a run and lie beside the ledger of all runs: ``<ledger_file>.unanswered`` holds a
record (JSON) for each exchange that looked and has not answered, ``<ledger_file>.rounds`` a file
for each run.  That file is locked while a process works for the run, and its time says when
somebody last asked.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from cape.errors import CapeError, ConfigError, ReplayError
from cape.frozen import dataclass
from cape.privacy.holds import Clock
from cape.protocol import wire
from cape.site.files import appending, folder_lock, is_locked

MAX_RECORD = 2**16


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """One exchange that looked at data, as its record says it; an empty one says nothing."""

    owner: str = ""
    dataset: str = ""
    question: str = ""  # digest of settings and list of files; the same in another folder
    folder: str = ""  # of the run: locked while the exchange is computed
    exchange: str = ""  # phase, and round where there are several
    date: str = ""
    # open: not answered; spent, wait: refused by the total, the second while others hold the room
    kind: Literal["open", "spent", "wait"] = "open"
    waits_for: tuple[str, ...] = ()

    def counts(self, held: Collection[str]) -> bool:
        """Tell whether it counts for `max_refusals`; `held`: runs that hold their plan now."""
        return self.kind != "wait" or bool(set(self.waits_for) & set(held))

    @property
    def is_under_way(self) -> bool:
        return self.kind == "open" and bool(self.folder) and is_locked(Path(self.folder))

    @property
    def state(self) -> str:
        """How people call it."""
        if self.kind == "open":
            return "under way" if self.is_under_way else "stopped"
        return "refused by the total" if self.kind == "spent" else "refused while others held it"


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRecords:
    """Those of one owner's runs on a data set of a site."""

    ledger: Path  # the file beside which they lie
    site: str
    owner: str
    dataset_id: str  # its name, as its data were not read yet
    held: Callable[[], Collection[str]]  # runs that hold their plan; asked where one waits for them

    def record(
        self,
        access_id: str,
        facts: Mapping[str, str],
        *,
        kind: Literal["open", "spent", "wait"] = "open",
        waits_for: tuple[str, ...] = (),
        most: int = 0,
    ) -> bool:
        """Write down, once, that a run is about to look at data; False if `most` others count.

        It stands until `clear` takes it away, so whatever ends a process in between is counted: an
        error, a full disk, the end of its memory.
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
        # Under a lock: of runs that begin side by side each sees those before it.
        with folder_lock(folder, f"the ledger of site {self.site}"):
            if 0 < most <= len(self.counted(but=access_id)):
                return False
            # Not synced, in every round: what ends a process takes no file, only a power cut does.
            handle = os.open(self._path(access_id), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(wire.encode(access, Access), file)
        return True

    def has(self, access_id: str) -> bool:
        return self._path(access_id).exists()

    def clear(self, access_id: str, *, question: str = "", exchange: str = "") -> None:
        """Take a record away: the exchange was answered, here or as the same one in another folder.

        What is answered now was not refused because of what the files hold.
        """
        for name, access in self._all().items():
            same = (access.question, access.exchange) == (question, exchange) != ("", "")
            again = same and access.kind == "open" and not access.is_under_way
            if name == self._path(access_id).name or again:
                (side_path(self.ledger, "unanswered") / name).unlink(missing_ok=True)

    def counted(self, *, but: str = "", of_total: bool = False) -> list[Access]:
        """Return what counts for `max_refusals`, without `but`; what the total refused alone."""
        own = self._path(but).name
        found = [
            access
            for name, access in self._all().items()
            if name != own and not (of_total and access.kind == "open")
        ]
        held = self.held() if any(access.kind == "wait" for access in found) else ()
        return [access for access in found if access.counts(held)]

    def _all(self) -> dict[str, Access]:
        head = self._path("").name
        found = read_accesses(self.ledger)
        return {name: access for name, access in found.items() if name.startswith(head)}

    def _path(self, access_id: str) -> Path:
        # Whatever an engine names its owner by, it takes one short word of a file's name.
        parts = wire.dumps([self.site, self.owner, self.dataset_id])
        whose = hashlib.sha256(parts).hexdigest()[:32]
        return side_path(self.ledger, "unanswered") / f"{whose}-{access_id}"

    @contextmanager
    def at_work(self, nonce: str) -> Iterator[Callable[[int, bytes], None]]:
        """Work for a run, alone; yields a function that holds a round to what it was asked.

        It writes that down once; ReplayError if it was asked something else: a folder that was set
        back has forgotten what it answered, this one lies elsewhere.
        """
        path = round_file(self.ledger, nonce)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with appending(path, f"the ledger of site {self.site}") as (lines, append):
            os.utime(path)

            def record_question(seq: int, transcript: bytes) -> None:
                head, line = b"%d " % seq, f"{seq} {transcript.hex()}".encode()
                known = [other for other in lines if other.startswith(head)]
                if known not in ([], [line]):
                    raise ReplayError("E203", seq=seq)
                if not known:
                    append(line)

            yield record_question


def side_path(ledger: Path, what: str) -> Path:
    return ledger.with_name(f"{ledger.name}.{what}")


def round_file(ledger: Path, nonce: str) -> Path:
    return side_path(ledger, "rounds") / nonce


def record_request(ledger: Path, nonce: str) -> None:
    """Note that somebody asks for a run now, from which its silence counts."""
    path = round_file(ledger, nonce)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)


def clock_of(ledger: Path) -> Clock:
    """Return how long runs of a ledger are silent by the site's clock, and which are computed."""

    def silence(nonce: str) -> float:
        try:
            return max(0.0, time.time() - round_file(ledger, nonce).stat().st_mtime)
        except OSError:
            return 0.0  # nobody knows, so it keeps its place; people can close it

    return Clock(silence=silence, at_work=lambda nonce: is_locked(round_file(ledger, nonce)))


def read_accesses(ledger: Path) -> dict[str, Access]:
    """Return every record beside a ledger by the name of its file; a damaged one says nothing."""
    folder = side_path(ledger, "unanswered")
    found = {}
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        if name.startswith("."):
            continue  # the lock where folders cannot be locked
        try:
            text = (folder / name).read_bytes()
            access = wire.decode_document(wire.loads(text, MAX_RECORD), Access)
        except FileNotFoundError:
            continue  # answered meanwhile
        except (OSError, CapeError):
            access = Access(kind="spent" if name.endswith("-total") else "open")
        found[name] = access
    return found


def make_place(file: Path, site: str) -> None:
    """Make the folder of a file that outlives runs; ConfigError (E304) if it cannot be made."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise ConfigError("E304", site=site, detail=str(err)) from err
