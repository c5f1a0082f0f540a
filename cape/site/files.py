"""Files that survive a crash: replaced whole, or extended by whole lines; and locks of folders.

All files have mode 0600, and links of other users are not followed.
"""

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final

from cape.errors import StoppedError

# Seconds to wait for another process of the same party
LOCK_PATIENCE = 600.0
LOCK_PAUSE = 0.05
# The size of an overwritten file is a multiple of so many bytes.
BLOCK_BYTES = 4096
# Errors of a file system that has no locks, such as NFS without its lock daemon
NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})
# What errors of the operating system around a site's own files mean, and what to do
WHY: Final[Mapping[int, str]] = {
    errno.ENOSPC: "no room is left on the disk: free some",
    errno.EDQUOT: "the quota of this user is used up: free some, or ask for more",
    errno.EFBIG: "a file would be larger than a limit of the system: raise it (ulimit -f)",
    errno.EROFS: "the disk is read-only: mount it for writing",
    errno.EACCES: "this user may not do that there: change the rights, or the user",
    errno.EPERM: "this user may not do that there: change the rights, or the user",
    errno.EIO: "the disk does not answer: look at the log of the system",
    errno.ENXIO: "the disk is gone: mount it again",
    errno.ENODEV: "the disk is gone: mount it again",
    errno.ESTALE: "the network folder was replaced: mount it again",
    errno.ETIMEDOUT: "the network folder does not answer",
    errno.ENOTCONN: "the network folder does not answer",
    errno.EHOSTDOWN: "the network folder does not answer",
    errno.EHOSTUNREACH: "the network folder does not answer",
    errno.ENOENT: "a file or a folder is gone: put it back, or correct its name",
    errno.ENOTDIR: "a file is where a folder was: put the folder back",
    errno.EISDIR: "a folder is where a file was: remove it",
    errno.ELOOP: "a link leads to itself: remove it",
    errno.EEXIST: "something is there that cape did not make: remove it",
    errno.ENOTEMPTY: "a folder holds what cape did not make: remove it",
    errno.EBUSY: "something else uses the disk: try again",
    errno.ETXTBSY: "a program that runs is in the way: end it",
    errno.EXDEV: "a folder is on two disks: use one",
    errno.EINVAL: "the file system cannot do this: use a folder on another disk",
    **dict.fromkeys(NO_LOCKS, "the file system cannot do this: use a folder on another disk"),
    errno.ENAMETOOLONG: "the path is too long: use a folder with a shorter one",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this computer",
    errno.ENOMEM: "memory is used up",
}
# Locked instead of its folder if the file system cannot lock folders
LOCK_FILE = ".cape.lock"


def why(err: OSError) -> str:
    """Return what an error of the operating system means, without a path."""
    return WHY.get(err.errno or 0, err.strerror or type(err).__name__)


def where(err: OSError) -> str:
    """Return the path of an error, of a copy that of the new file; empty if it has none."""
    place = err.filename2 or err.filename
    return os.fsdecode(place) if isinstance(place, str | bytes | os.PathLike) else ""


def why_and_where(err: OSError) -> str:
    """As `why`, with the path: for people of this computer."""
    return f"{why(err)} ({where(err)})" if where(err) else why(err)


def side_path(path: Path, what: str) -> Path:
    """Return the path of a file or folder beside another one, such as ``ledger.jsonl.key``."""
    return path.with_name(f"{path.name}.{what}")


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, mode 0600, on disk before this returns."""
    # On the same file system, because only there a rename is atomic.
    partial = path.with_name(path.name + ".partial")
    with create_own_file(partial) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    # The new name is durable only after its folder is synced.
    sync_folder(path.parent)


def overwrite(path: Path, data: bytes) -> None:
    """Overwrite a JSON file in place, mode 0600, on disk before this returns.

    Cheaper than `write_atomically`, for files that may be lost in a crash.
    """
    is_new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "wb") as file:
        size = os.fstat(handle).st_size
        # If the size is unchanged, fdatasync need not write metadata.
        padding = -len(data) % BLOCK_BYTES
        file.write(data + b" " * padding)
        if size > len(data) + padding:
            file.truncate()
        file.flush()
        getattr(os, "fdatasync", os.fsync)(handle)
    if is_new:
        sync_folder(path.parent)


def create_own_file(path: Path) -> BinaryIO:
    """Create and open a file, mode 0600 whatever the umask; an existing file or link is removed."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.fchmod(handle, 0o600)
    return os.fdopen(handle, "wb")


def make_own_folder(path: Path) -> None:
    """Make a folder, mode 0700 whatever the umask; a link in its place is removed."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def appending(
    path: Path, party: str, *, durable: bool = True
) -> Iterator[tuple[list[bytes], Callable[[bytes], None]]]:
    """Lock a file; yield its lines and a function that appends one.

    StoppedError (E263) after `LOCK_PATIENCE`.  Lines that are not `durable` survive the process,
    and a power cut only once the system has synced them.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(handle, "r+b") as file:
        _take(handle, party, LOCK_PATIENCE)
        text = file.read()
        # Lines are written whole and synced: a crash cut off a last line without its end.
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            file.truncate(len(whole))
        if durable and not whole:
            sync_folder(path.parent)

        def append(line: bytes) -> None:
            size = os.fstat(handle).st_size
            data = line + b"\n"
            try:
                if os.write(handle, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if durable:
                    os.fsync(handle)
            except OSError:
                # A partial line would run into the next one, which belongs to another release.
                os.ftruncate(handle, size)
                raise

        yield whole.split(b"\n")[:-1], append


@contextlib.contextmanager
def folder_lock(folder: Path, party: str, *, patience: float | None = None) -> Iterator[None]:
    """Lock a folder; StoppedError (E263) after `patience` seconds, default `LOCK_PATIENCE`."""
    patience = LOCK_PATIENCE if patience is None else patience
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            _take(handle, party, patience)
        except OSError as err:
            # NFS locks files only: lock a file in the folder instead.
            if err.errno not in (errno.EBADF, errno.EINVAL, errno.EISDIR):
                raise
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            handle, of_folder = os.open(folder / LOCK_FILE, flags, 0o600), handle
            os.close(of_folder)
            _take(handle, party, patience)
        yield
    finally:
        os.close(handle)  # also releases the lock, as does the end of the process


def is_locked(path: Path) -> bool:
    """Tell whether another process has locked a file or a folder (`folder_lock`)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        _take(handle, "", 0.0)
    except StoppedError as err:
        return err.code == "CAPE-E263"
    except OSError:
        return path.is_dir() and is_locked(path / LOCK_FILE)
    finally:
        os.close(handle)
    return False


def _take(handle: int, party: str, patience: float) -> None:
    # Polling, since a blocking lock has no time limit without signals, which belong to the engine.
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                raise StoppedError("E263", party=party) from None
        except OSError as err:
            if err.errno in NO_LOCKS:
                raise StoppedError("E309", party=party, detail=why_and_where(err)) from err
            raise
        time.sleep(LOCK_PAUSE)
