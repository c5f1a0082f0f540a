"""One run of a subject: its row of a list, its file, and its series."""

from __future__ import annotations

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


NOWHERE: Final = Mention("", 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """One run as listed; empty texts and zeros stand for values that are not given.

    Without a file it is a listed person who has no run.
    """

    file: str
    subject: str = ""
    ses: str = ""
    run: str = ""
    tr: float = 0.0
    n_dummy: int = 0
    confounds: str = ""
    trust_grid: bool = False
    left_out: Mention | None = None  # the line of a list that leaves this run out


def leads_out(entry: str) -> bool:
    """Tell whether an entry of a list names a place outside the site's folder."""
    return PurePath(entry).is_absolute() or ".." in PurePath(entry).parts


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFile:
    """One run: a file and the site's statements about it."""

    path: Path
    name: str  # as the site listed it; private
    tr: float = 0.0  # repetition time in s by the manifest, 0 if not given there
    n_dummy: int = 0  # volumes to drop on top of ``drop_first_volumes``
    # Table of the confounds: the manifest's, or the one beside an image with a BIDS name
    confounds: Path | None = None
    trust_grid: bool = False  # accept an image without affine if its shape is that of the mask
    ses: str = ""  # session and run, as names or the list have them
    run: str = ""
    row: int = -1  # row of a table of records, from 0; -1 for a file of its own
    # (D, T): a run that is an array of this process; there is no file then
    values: Array | None = field(default=None, repr=False, compare=False)
    # (T, K): signals to regress out, besides columns of tables
    signals: Array | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectFiles:
    """All runs of one subject, in the order in which they are joined."""

    label: str
    runs: tuple[RunFile, ...]


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
