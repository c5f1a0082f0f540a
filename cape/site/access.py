"""Which runs looked at a site's data and never answered, and what each round of a run was asked.

Both outlive a run and lie beside the ledger of all runs: ``<ledger_file>.unanswered`` holds an
empty file for each exchange that looked and has not answered, ``<ledger_file>.rounds`` a file for
each run.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from cape.errors import ConfigError, ReplayError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.site.files import appending, folder_lock


@dataclass(frozen=True, kw_only=True, slots=True)
class AccessRecords:
    """Those of one owner's runs on a data set of a site."""

    ledger: Path  # the file beside which they lie
    site: str
    owner: str
    dataset_id: str  # its name, as its data were not read yet

    def look(self, run: str, *, most: int = 0) -> bool:
        """Write down, once, that a run is about to look at data; False if `most` others did.

        It stands until `answered` takes it away, so whatever ends a process in between is counted:
        an error, a full disk, the end of its memory.
        """
        make_place(self.ledger, self.site)
        folder = self._beside("unanswered")
        folder.mkdir(mode=0o700, exist_ok=True)
        # Under a lock: of runs that begin side by side each sees those before it.
        with folder_lock(folder, f"the ledger of site {self.site}"):
            if 0 < most <= self.refusals(but=run):
                return False
            # Not synced, in every round: what ends a process takes no file, only a power cut does.
            self._mark(run).touch(mode=0o600)
        return True

    def has_looked(self, run: str) -> bool:
        return self._mark(run).exists()

    def answered(self, run: str) -> None:
        if self.has_looked(run):  # the place may be no folder
            self._mark(run).unlink(missing_ok=True)

    def refusals(self, *, but: str = "", end: str = "") -> int:
        """Return how many runs looked at data and never answered, `but` one; whose names so end."""
        folder, own = self._beside("unanswered"), self._mark(but).name
        names = os.listdir(folder) if folder.is_dir() else []
        head = self._mark("").name
        return sum(n.startswith(head) and n.endswith(end) and n != own for n in names)

    def listed(self) -> str:
        """Return how many there are and which files stand for them, for the site alone."""
        return f"{self.refusals()} ({self._mark('*')})"

    def told(self, nonce: str, seq: int, transcript: bytes) -> None:
        """Write down, once, what a round of a run is about to answer; ReplayError if another.

        A folder that was set back has forgotten what it answered; this one lies elsewhere.
        """
        folder = self._beside("rounds")
        folder.mkdir(mode=0o700, exist_ok=True)
        head, line = b"%d " % seq, f"{seq} {transcript.hex()}".encode()
        with appending(folder / nonce, f"the ledger of site {self.site}") as (lines, append):
            known = [other for other in lines if other.startswith(head)]
            if known not in ([], [line]):
                raise ReplayError("E203", seq=seq)
            if not known:
                append(line)

    def _mark(self, run: str) -> Path:
        # Whatever an engine names its owner by, it takes one short word of a file's name.
        parts = wire.dumps([self.site, self.owner, self.dataset_id])
        whose = hashlib.sha256(parts).hexdigest()[:32]
        return self._beside("unanswered") / f"{whose}-{run}"

    def _beside(self, what: str) -> Path:
        return self.ledger.with_name(f"{self.ledger.name}.{what}")


def make_place(file: Path, site: str) -> None:
    """Make the folder of a file that outlives runs; ConfigError (E304) if it cannot be made."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as err:
        raise ConfigError("E304", site=site, detail=str(err)) from err
