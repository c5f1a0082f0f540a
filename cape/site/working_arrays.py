"""Working arrays of a site, one file per name: memory-mapped, rebuilt if lost or damaged."""

from __future__ import annotations

import binascii
import contextlib
import errno
import hashlib
import json
import math
import mmap
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np

from cape.algorithms.estimators import LINE_BYTES
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.ports import Stacks
from cape.site.files import create_own_file

# Hex digits at the start of a file of arrays: the CRC-32 of the rest
CHECKSUM = 8
# Seconds after which another write would change the time of a file
SETTLED = 2.0


class WorkingArrays:
    """The working arrays of one site in a folder that others may write into."""

    def __init__(self, folder: Path, site: str) -> None:
        self._folder = folder
        # An engine's id of a party may contain characters that file names may not.
        self._prefix = f"cape-{hashlib.sha256(site.encode()).hexdigest()[:16]}"

    def _path(self, name: str) -> Path:
        return self._folder / f"{self._prefix}-{name}.arrays"

    def read(self, name: str, key: str, contents: str) -> Stacks | None:
        """Return the arrays, read-only and memory-mapped.

        None if they are lost, damaged, or have another key or contents.
        """
        path = self._path(name)
        seen = path.with_suffix(".seen")
        try:
            with _own_regular_file(path) as (file, found):
                this = _identity(found)
                is_checked = _content(seen) == this
                stacks = _read_arrays(file, key, contents, is_checked=is_checked)
                # The checksum is verified once; later rounds trust a file not written since.
                if stacks and not is_checked and _is_settled(found):
                    with contextlib.suppress(OSError):
                        os.fsync(file.fileno())  # a power cut must not lose trusted data
                        with create_own_file(seen) as note:
                            note.write(this)
        except Exception:  # lost, or damaged in any way: rebuild it
            return None
        return stacks

    def write(self, name: str, key: str, contents: str, stacks: Stacks) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = self._path(name).with_suffix(".partial")
        with create_own_file(partial) as file:  # no fsync: what is lost is made again
            _write_arrays(file, key, contents, stacks)
        os.replace(partial, self._path(name))

    def forget(self) -> None:
        for path in self._folder.glob(f"{self._prefix}-*"):
            with contextlib.suppress(OSError):  # a folder of another user
                path.unlink(missing_ok=True)


# Not .npz: `zipfile` alone costs a round's start a tenth of what numpy does.
@dataclass(frozen=True, kw_only=True, slots=True)
class ArraysHead:
    """First line of a file of working arrays, behind the checksum of all that follows."""

    key: str
    contents: str
    labels: tuple[tuple[str, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    orders: tuple[Literal["C", "F"], ...]


def _write_arrays(file: BinaryIO, key: str, contents: str, stacks: Stacks) -> None:
    # A sum over an array depends on its memory order, so the file preserves it.
    is_fortran = [a.flags.f_contiguous and not a.flags.c_contiguous for a in stacks.arrays]
    head = ArraysHead(
        key=key,
        contents=contents,
        labels=stacks.labels,
        shapes=tuple(array.shape for array in stacks.arrays),
        dtypes=tuple(array.dtype.newbyteorder("<").str for array in stacks.arrays),
        orders=tuple("F" if fortran else "C" for fortran in is_fortran),
    )
    parts: list[bytes | memoryview] = [json.dumps(wire.encode(head, ArraysHead)).encode() + b"\n"]
    at = CHECKSUM + len(parts[0])
    for array, fortran in zip(stacks.arrays, is_fortran, strict=True):
        flat = np.ascontiguousarray(array.T if fortran else array).reshape(-1)
        parts += [bytes(-at % LINE_BYTES), flat.view(np.uint8).data]
        at += len(parts[-2]) + len(parts[-1])
    checksum = 0
    for part in parts:
        checksum = binascii.crc32(part, checksum)
    file.write(b"%0*x" % (CHECKSUM, checksum))
    for part in parts:
        file.write(part)


def _read_arrays(file: BinaryIO, key: str, contents: str, *, is_checked: bool) -> Stacks | None:
    """Return the arrays, or None if they are of another key, other data, or damaged."""
    expected, line = int(file.read(CHECKSUM), 16), file.readline()
    head: ArraysHead = wire.decode(wire.loads(line), ArraysHead)
    if (head.key, head.contents) != (key, contents):
        return None
    at, whole, arrays = file.tell(), _mapped(file), []
    for shape, kind, order in zip(head.shapes, head.dtypes, head.orders, strict=True):
        dtype = np.dtype(kind)
        at += -at % LINE_BYTES
        size = math.prod(shape)
        # A damaged head may declare any size.
        if dtype.kind != "f" or min(shape, default=0) < 0:
            return None
        if at + size * dtype.itemsize > len(whole):
            return None
        flat = np.frombuffer(whole, dtype, count=size, offset=at)
        arrays.append(flat.reshape(shape, order=order))
        at += flat.nbytes
    if at != len(whole) or not (is_checked or binascii.crc32(whole[CHECKSUM:]) == expected):
        return None
    return Stacks(arrays=tuple(arrays), labels=head.labels)


def _mapped(file: BinaryIO) -> memoryview:
    """Map a file that is replaced whole and never written into; where that cannot be, read it."""
    with contextlib.suppress(OSError):  # some file systems of other computers map nothing
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    file.seek(0)
    return memoryview(file.read())


@contextlib.contextmanager
def _own_regular_file(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Yield a file that this user wrote; OSError for everything else."""
    # Other users may write into the engine's cache: the site must not read their files, and a pipe
    # without a writer would block.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not (stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()):
        os.close(handle)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))
    with os.fdopen(handle, "rb") as file:
        yield file, found


def _content(path: Path) -> bytes:
    try:
        with _own_regular_file(path) as (file, _):
            return file.read()
    except OSError:
        return b""


def _is_settled(found: os.stat_result) -> bool:
    """Whether another write would change the times of a file."""
    return time.time() - max(found.st_mtime, found.st_ctime) > SETTLED


def _identity(found: os.stat_result) -> bytes:
    """Return bytes that differ for every other file, and for this one after a write."""
    # The last of these times is the file system's: no program sets it.
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return repr((found.st_dev, found.st_ino, found.st_size, *times)).encode()
