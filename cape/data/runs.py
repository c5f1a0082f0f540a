"""One run of a person: what the site states about it, and its series."""

from dataclasses import field
from pathlib import Path, PurePath
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.data.issues import Issue
from cape.frozen import dataclass

Kept = npt.NDArray[np.bool_]

# s; no scanner is slower: a larger number is in ms.
MAX_TR: Final = 20.0


class Mention(NamedTuple):
    """A line of a list, numbered as in an editor."""

    table: str
    line: int

    def __str__(self) -> str:
        return f"{self.table}, line {self.line}"


# In place of a row: the run is a file of its own
OWN_FILE: Final = -1


def leads_out(entry: str) -> bool:
    """Tell whether an entry of a list names a place outside the site's folder."""
    return PurePath(entry).is_absolute() or ".." in PurePath(entry).parts


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteRun:
    """One run of a person: a file and what the site states about it."""

    path: Path
    name: str  # as the site listed it; private
    person: str = ""
    session: str = ""  # as its name or a list has it, without ``ses-``
    run: str = ""  # what else makes it a run of its own, ``task-rest_run-1``; a list says "2"
    tr: float = 0.0  # repetition time in s by the manifest, 0 if not given there
    n_dummy: int = 0  # volumes to drop on top of ``drop_first_volumes``
    confounds_said: str = ""  # the name of the table of confounds that a manifest gives
    # The table itself: that one, or the one beside an image with a BIDS name
    confounds: Path | None = None
    trust_grid: bool = False  # accept an image without affine if its shape is that of the mask
    row: int = OWN_FILE  # row of a table of people, from 0
    # (D, T): a run that is an array of this process; there is no file then
    values: Array | None = field(default=None, repr=False, compare=False)
    values_of: str = field(default="", compare=False)  # SHA-256 of the file that was read, if any
    # (T, K): signals to regress out, besides columns of tables
    signals: Array | None = field(default=None, repr=False, compare=False)

    @property
    def mark(self) -> str:
        """The run as a cell of column exclude names it, ``ses-1_task-rest_run-2``."""
        session = self.session and f"ses-{self.session}"
        own = f"run-{self.run}" if self.run and "-" not in self.run else self.run
        return "_".join(filter(None, (session, own)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Person:
    """All runs of one person, in the order in which they are joined."""

    label: str
    runs: tuple[SiteRun, ...]
    left_out: str = ""  # the lines of lists that leave the person out, else empty


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One run as stored, before any preprocessing."""

    values: Data  # (D, T): features by time, float32, scaled; `unread` if only the header was read
    tr: float  # repetition time in s, 0 if unknown
    # SHA-256 of the file's bytes, or of a row of a table; with ``+`` and that of the confounds.
    # Empty if only the header was read.
    digest: str
    grid: str  # "ok", "reoriented", "0.004 vox", or "-" for a matrix
    issues: tuple[Issue, ...] = ()  # warnings
    n_dummy: int = 0  # first volumes that are dropped
    others: Array | None = None  # (T - n_dummy, K): signals to regress out, K > 0
    kept: Kept | None = None  # (T - n_dummy,): volumes that scrubbing keeps; None: all
    mean_fd: float | None = None  # mean framewise displacement, mm; None if no table says
    columns: tuple[str, ...] = ()  # names of the features, if the file has them
    turned: str = ""  # how an image is turned against its header (`orientation`); "": as it says
    # Digest of the grid of an image without a stated space that is not on the mask's grid, else ""
    place: str = ""

    @property
    def n_times(self) -> int:
        """Volumes without dummies."""
        return max(int(self.values.shape[1]) - self.n_dummy, 0)

    @property
    def n_kept(self) -> int:
        """Volumes without dummies that scrubbing keeps."""
        return self.n_times if self.kept is None else int(self.kept.sum())


def unread(n_features: int, n_times: int) -> Data:
    """Return zeros (D, T) for values that were not read; they take no memory."""
    return np.broadcast_to(np.zeros((), dtype=np.float32), (n_features, n_times))
