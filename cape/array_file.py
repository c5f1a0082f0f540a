"""The one format of arrays that can be made again: a check sum, a line of JSON, the arrays.

Reduced data and bases (`cape.data.data_store`) and working arrays (`cape.site.store`) are
files of this kind.  One that is damaged, of another key or of another user counts as lost.
"""

import binascii
import contextlib
import errno
import json
import math
import mmap
import os
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from cape.algorithms.estimators import LINE_BYTES, Array, Data
from cape.frozen import dataclass

# Hex digits at the start of a file: the CRC-32 of the rest
CHECKSUM: Final = 8
# Seconds after which another write changes the times of a file: the slowest clock of a file system
# ticks every two
SETTLED: Final = 2.0

# Inode, size, mtime and ctime in ns.  No program sets the last one.  No device: computers that
# share a disk number it differently.
Stamp = tuple[int, int, int, int]


# Not .npz: `zipfile` alone costs a round's start a tenth of what numpy does.
@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """What was written under a key; the arrays are read-only and memory-mapped."""

    note: Any  # JSON
    arrays: tuple[Any, ...]


def write_arrays(path: Path, key: str, note: object, arrays: Sequence[Array | Data]) -> None:
    """Replace a file, mode 0600, as a whole; it is not synced, since what is lost is made again."""
    flat, kinds = [], []
    for array in arrays:
        # A sum over an array depends on its memory order, so the file preserves it.
        fortran = array.flags.f_contiguous and not array.flags.c_contiguous
        flat.append(np.ascontiguousarray(array.T if fortran else array).reshape(-1))
        kinds.append((array.shape, array.dtype.newbyteorder("<").str, "F" if fortran else "C"))
    head = json.dumps({"key": key, "note": note, "arrays": kinds}).encode() + b"\n"
    parts: list[bytes | memoryview] = [head]
    at = CHECKSUM + len(head)
    for numbers in flat:
        parts += [bytes(-at % LINE_BYTES), numbers.view(np.uint8).data]
        at += -at % LINE_BYTES + numbers.nbytes
    checksum = 0
    for part in parts:
        checksum = binascii.crc32(part, checksum)
    partial = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(b"%0*x" % (CHECKSUM, checksum))
            for part in parts:
                file.write(part)
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def read_arrays(file: BinaryIO, key: str, *, is_checked: bool = False) -> Stored | None:
    """Return what a file holds; None if it is of another key or damaged.

    `is_checked`: its check sum was verified before, and its stamp is that of then.
    """
    try:
        expected, head = _start(file)
        if head["key"] != key:
            return None
        at, whole, arrays = file.tell(), _mapped(file), []
        if not is_checked and binascii.crc32(whole[CHECKSUM:]) != expected:
            return None
        for shape, kind, order in head["arrays"]:
            at += -at % LINE_BYTES
            flat = np.frombuffer(whole, np.dtype(kind), count=math.prod(shape), offset=at)
            arrays.append(flat.reshape(shape, order=order))
            at += flat.nbytes
    except Exception:  # damaged in any way
        return None
    return Stored(note=head["note"], arrays=tuple(arrays))


def read_note(path: Path) -> Any:
    """Return the note alone, without a look at the check sum; None if it cannot be read."""
    try:
        with own_file(path) as (file, _):
            return _start(file)[1]["note"]
    except Exception:
        return None


def _start(file: BinaryIO) -> tuple[int, dict[str, Any]]:
    return int(file.read(CHECKSUM), 16), json.loads(file.readline())


def _mapped(file: BinaryIO) -> memoryview:
    """Map a file that is replaced whole and never written into; where that cannot be, read it."""
    with contextlib.suppress(OSError):  # some file systems of other computers map nothing
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    file.seek(0)
    return memoryview(file.read())


@contextlib.contextmanager
def own_file(path: Path) -> Iterator[tuple[BinaryIO, Stamp]]:
    """Yield a regular file that this user wrote, and its stamp; OSError for everything else."""
    # Other users may write into the engine's cache: the site must not read their files, and a pipe
    # without a writer would block.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()):
        os.close(handle)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    with os.fdopen(handle, "rb") as file:
        yield file, stamp_of(found)


def stamp_of(found: os.stat_result) -> Stamp:
    """Return numbers that differ for every other file, and for this one after a write."""
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def is_settled(stamp: Stamp) -> bool:
    """Whether another write would change a stamp: not within one tick of the clock of files."""
    return time.time() - max(stamp[2:]) * 1e-9 > SETTLED
