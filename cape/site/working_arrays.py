"""Working arrays of a site, one file per name: memory-mapped, rebuilt if lost or damaged."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from cape.data.array_file import Stamp, is_settled, own_file, read_arrays, write_arrays
from cape.protocol.ports import Stacks
from cape.site.files import create_own_file


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
            with own_file(path) as (file, stamp):
                is_checked = _is_noted(seen, stamp)
                stored = read_arrays(file, f"{contents} {key}", is_checked=is_checked)
                # The checksum is verified once; later rounds trust a file not written since.
                if stored and not is_checked and is_settled(stamp):
                    with contextlib.suppress(OSError):
                        os.fsync(file.fileno())  # a power cut must not lose trusted data
                        with create_own_file(seen) as note:
                            note.write(repr(stamp).encode())
        except OSError:
            return None
        if stored is None:
            return None
        return Stacks(arrays=stored.arrays, labels=tuple(map(tuple, stored.note)))

    def write(self, name: str, key: str, contents: str, stacks: Stacks) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_arrays(self._path(name), f"{contents} {key}", stacks.labels, stacks.arrays)

    def forget(self) -> None:
        for path in self._folder.glob(f"{self._prefix}-*"):
            with contextlib.suppress(OSError):  # a folder of another user
                path.unlink(missing_ok=True)


def _is_noted(note: Path, stamp: Stamp) -> bool:
    try:
        with own_file(note) as (file, _):
            return file.read() == repr(stamp).encode()
    except OSError:
        return False
