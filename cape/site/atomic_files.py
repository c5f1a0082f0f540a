"""Files that survive a crash: replaced whole, or grown by whole lines; and folders locked for one.

After a crash at any moment a file holds what it held before, or what was written: never a part.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cape.errors import StoppedError

# Seconds to wait for another process that works for the same party.
PATIENCE = 600.0

PAUSE = 0.05


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, mode 0600, on disk before this returns."""
    # Beside it, on the same file system: only there a rename is atomic.
    partial = path.with_name(path.name + ".partial")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    # The name is durable only when its folder is.
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def appending(path: Path, party: str) -> Iterator[tuple[list[bytes], AppendLine]]:
    """Hold a file of lines for one writer; yields its whole lines and a function that adds one.

    A last line without an end was cut by a crash before it counted: it is removed.  StoppedError
    (E263) if another process holds the file for longer than `PATIENCE`.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "r+b") as file:
        _take(handle, party, PATIENCE)
        text = file.read()
        # Lines are written whole and synced: a rest without an end is a crash's, and never counted.
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            file.truncate(len(whole))
        if not whole:
            sync_folder(path.parent)
        yield whole.split(b"\n")[:-1], AppendLine(file.fileno())


class AppendLine:
    """Adds one line to an opened file; it is on disk before the call returns."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __call__(self, line: bytes) -> None:
        """Write `line` and its end; a line that does not fit is taken back."""
        size = os.fstat(self._handle).st_size
        data = line + b"\n"
        try:
            if os.write(self._handle, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._handle)
        except OSError:
            # Half a line would join the next one, and that is of another release.
            os.ftruncate(self._handle, size)
            raise


@contextmanager
def folder_lock(folder: Path, party: str, *, patience: float | None = None) -> Iterator[None]:
    """Hold a folder for this process; a second one waits until the first is done.

    StoppedError (E263) if that takes longer than `patience` seconds (`PATIENCE` by default).
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        handle = _lockable(handle, folder)
        _take(handle, party, PATIENCE if patience is None else patience)
        yield
    finally:
        os.close(handle)  # which also lets go of the lock, as the end of the process does


def _lockable(handle: int, folder: Path) -> int:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(handle, fcntl.LOCK_UN)
    except BlockingIOError:
        return handle
    except OSError as err:
        # NFS locks files only: there a lock file stands for its folder.
        if err.errno not in (errno.EBADF, errno.EINVAL, errno.EISDIR):
            raise
        os.close(handle)
        return os.open(folder / ".cape.lock", os.O_RDWR | os.O_CREAT, 0o600)
    return handle


def _take(handle: int, party: str, patience: float) -> None:
    """Wait for the lock of an open file; StoppedError (E263) if it does not come in time."""
    # Polling, since a blocking lock has no time limit and signals are not ours to use.
    until = time.monotonic() + patience
    while not _taken(handle):
        if time.monotonic() >= until:
            raise StoppedError("E263", party=party)
        time.sleep(PAUSE)


def _taken(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
