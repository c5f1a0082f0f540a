"""Reading one run, whatever its format: what the readers of images and matrices hand over."""

from __future__ import annotations

import hashlib
import io
from typing import BinaryIO

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A warning about one file: row of the table of bad inputs and the parts of its text."""

    row: int
    what: str
    found: str
    expected: str = ""
    fix: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One run as stored, before any preprocessing.

    Attributes
    ----------
    values : ndarray, shape (D, T)
        Features by time, float32, scaled.
    tr : float
        Repetition time in s, 0 if unknown.
    digest : str
        SHA-256 of the file's bytes, or of a row of a table; with ``+`` and that of the confounds.
        Empty if only the header was read; values are `unread` then.
    grid : str
        "ok", "reoriented", "0.004 vox", or "-" for a matrix.
    notes : tuple of Note
        Warnings.
    confounds : ndarray, shape (T, K), or None
        Signals to regress out, one row per stored volume.
    columns : tuple of str
        Names of the features, if the file has them.
    """

    values: Data
    tr: float
    digest: str
    grid: str
    notes: tuple[Note, ...]
    confounds: Array | None = None
    columns: tuple[str, ...] = ()


def unread(n_features: int, n_times: int) -> Data:
    """Return values of a shape (D, T) that were not read: one zero, seen D x T times."""
    return np.broadcast_to(np.zeros((), dtype=np.float32), (n_features, n_times))


class HashingReader:
    """Passes on the bytes of a file and hashes them; reads forward only.

    Parameters
    ----------
    stream : file
        Opened for reading bytes.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        block = self._stream.read(size)
        self._hash.update(block)
        return block

    def seek(self, offset: int) -> None:
        """Refuse: what was skipped would not be hashed (gzip never asks when reading forward)."""
        raise io.UnsupportedOperation(f"seek to {offset}")

    def finish(self) -> str:
        """Read to the end and return the SHA-256 of the whole file, 64 hex digits."""
        while self.read(1 << 20):
            pass
        return self._hash.hexdigest()
