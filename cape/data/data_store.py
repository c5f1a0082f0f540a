"""A site's store of arrays that were read from its files; private, in a folder of its own.

An entry is an array file (`cape.array_file`) under a name, with the key of what it was made
of; the next one of that name replaces it.  The store holds no name of a person, file or folder:
digests of them tell whose entries to remove.

It is trusted only while its folder belongs to this user alone.  It is no channel between users:
except for public bases (`KeptBases`), those who read files write and read its entries.
"""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.array_file import Stored, own_file, read_arrays, read_note, write_arrays
from cape.data.names import bare

# Bytes that all entries together may take: 10,000 subjects of 250 volumes at d = 400.
MAX_STORE_BYTES: Final = 4 * 10**9


class DataStore:
    """A store in its folder; an error of the disk costs entries, never a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries = folder / "entries"
        self._lock = Lock()
        self._held = -1  # bytes of all entries; -1: not counted yet

    @classmethod
    def open(cls, folder: Path) -> DataStore | None:
        """Return the store; None if its folder cannot be used."""
        store = cls(folder)
        usable = _is_private(folder) and _is_private(store._entries) and os.access(folder, os.W_OK)
        return store if usable else None

    def get(self, name: str, key: str) -> Stored | None:
        """Return an entry as it was put; None if there is no sound one of this key."""
        path = self._entries / name
        try:
            with own_file(path) as (file, _):
                # With the name: a renamed entry belongs to another subject.
                stored = read_arrays(file, f"{name} {key}")
            os.utime(path)  # the least recently used goes first
        except OSError:
            return None
        return None if stored is None else Stored(note=stored.note["note"], arrays=stored.arrays)

    def put(
        self,
        name: str,
        key: str,
        arrays: Sequence[Array | Data],
        note: object = None,
        marks: Iterable[str] = (),
    ) -> None:
        """Keep an entry; `marks` say whose it is (`marks_of`)."""
        if sum(array.nbytes for array in arrays) > MAX_STORE_BYTES:
            return
        document = {"marks": sorted(marks), "note": note}
        # One at a time, so that the total size is right.
        with self._lock, suppress(OSError):
            write_arrays(self._entries / name, f"{name} {key}", document, arrays)
            self._make_room((self._entries / name).stat().st_size)

    def size(self, of: str | None = None) -> tuple[int, int]:
        """Return number and bytes of all entries, or of those `of` one person or folder."""
        sizes = [state.st_size for _, state in self._files(of)]
        return len(sizes), sum(sizes)

    def clear(self, of: str | None = None) -> tuple[int, int]:
        """Remove all entries, or those `of` one person or folder; return their number and bytes."""
        sizes = []
        for path, state in self._files(of):
            with suppress(OSError):
                path.unlink()
                sizes.append(state.st_size)
        return len(sizes), sum(sizes)

    def _make_room(self, n_bytes: int) -> None:
        """Remove the oldest entries if there are too many after one of `n_bytes` came."""
        if self._held >= 0 and (held := self._held + n_bytes) <= MAX_STORE_BYTES:
            self._held = held
            return
        by_age = sorted((f.st_mtime_ns, path, f.st_size) for path, f in self._files())
        self._held = sum(size for *_, size in by_age)
        for _, path, size in by_age:
            if self._held <= MAX_STORE_BYTES:
                return
            path.unlink(missing_ok=True)
            self._held -= size

    def _files(self, of: str | None = None) -> Iterator[tuple[Path, os.stat_result]]:
        wanted = set() if of is None else set(map(_digest, (bare(of), *_spellings(Path(of)))))
        with suppress(OSError), os.scandir(self._entries) as entries:
            for entry in entries:
                with suppress(OSError):
                    path, state = Path(entry.path), entry.stat(follow_symlinks=False)
                    # Nobody can tell whose a damaged entry was, and nobody needs it.
                    note = None if of is None else read_note(path)
                    if not isinstance(note, dict) or not wanted.isdisjoint(note["marks"]):
                        yield path, state


def marks_of(label: str, files: Iterable[Path]) -> set[str]:
    """Return digests of a person's label and of all folders above the files."""
    inside = {Path(folder) for file in files for folder in _spellings(file.parent)}
    folders = {str(each) for folder in inside for each in (folder, *folder.parents)}
    return set(map(_digest, {bare(label), *folders}))


def _spellings(folder: Path) -> tuple[str, str]:
    """Return the path of a folder as it is named, and behind links."""
    return os.path.abspath(folder), os.path.realpath(folder)


def _digest(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]


def _is_private(folder: Path) -> bool:
    # Another user who may write there could make a site answer with wrong numbers.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return False
    is_own = state.st_uid == os.getuid() and not state.st_mode & 0o077
    return is_own and stat.S_ISDIR(state.st_mode)


class KeptBases:
    """The public bases of the store in `folder`; it keeps none if the folder cannot be used.

    Each round is a new process, and a basis takes seconds.  The name of an entry is a digest of
    kind, feature space and columns; its key is the program.
    """

    def __init__(self, folder: Path) -> None:
        self._store = DataStore.open(folder)

    def get(self, what: str, n_rows: int) -> Array | None:
        """Return B (D, d), bit for bit, read-only; None if it is not kept."""
        stored = None if self._store is None else self._store.get(_name(what), program_digest())
        return None if stored is None or len(stored.arrays[0]) != n_rows else stored.arrays[0]

    def put(self, what: str, B: Array) -> None:
        if self._store is not None:
            self._store.put(_name(what), program_digest(), [B])


def _name(what: str) -> str:
    return hashlib.sha256(what.encode()).hexdigest() + ".basis"


@functools.cache
def program_digest() -> str:
    """Return digest of the code and versions of numpy and scipy, on which all numbers depend."""
    from importlib.metadata import version

    # A digest of the code: a version does not change with every edit.
    top, digest = Path(__file__).resolve().parents[1], hashlib.sha256()
    for room in ("", "algorithms", "data", "settings", "space"):
        for path in sorted((top / room).glob("*.py")):
            digest.update(path.read_bytes())
    return f"{digest.hexdigest()} {np.__version__} {version('scipy')}"
