"""A site's store of data that were read from its files; private, in a folder of its own.

It holds entries (`cape.data.kept_subjects`), digests of the contents of files, and for each folder
the files that it had.  Entries of files that are gone are removed when the store is next used.  A
file counts as unchanged if size, samples and time stamps are those of before, never by its stamps
alone.  The store holds no name of a person or file.

It is trusted only while its folder belongs to this user alone.  It is no channel between users:
except for public bases (`cape.data.kept_bases`), those who read files write and read its entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, Final

from cape.settings.documents import parse_json

# Bytes that all entries together may take: 10,000 subjects of 250 volumes at d = 400.
MAX_STORE_BYTES: Final = 4 * 10**9
# A file that changed less than so many seconds ago may change again within one tick of its clock.
SETTLED_AFTER: Final = 2.0
# Number and bytes of the blocks of a file that are compared, the first and the last included; a
# packed file ends with the check sum of its content.
SAMPLES: Final = 16
SAMPLE_BYTES: Final = 4096
MAGIC: Final = b"cape-store-1\n"

# Device, inode, size, mtime and ctime in ns; a user cannot set ctime back.
Stamp = tuple[int, int, int, int, int]


class DataStore:
    """A store in its folder; its methods do nothing if the folder cannot be used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries, self._files = folder / "entries", folder / "files"
        self._places = folder / "folders"
        self._inside = (self._entries, self._files, self._places)
        self._lock = Lock()
        self._held = -1  # bytes of all entries; -1: not counted yet

    @classmethod
    def open(cls, folder: Path) -> DataStore | None:
        """Return the store without entries of folders that are gone; None if it cannot be used."""
        store = cls(folder)
        if not all(map(_is_private, (folder, *store._inside))):
            return None
        if not os.access(folder, os.W_OK):
            return None
        places = list(store._known_places())
        gone = [(path, place) for path, place in places if not Path(place["folder"]).is_dir()]
        for path, place in gone:
            path.unlink(missing_ok=True)
            store._forget(place["files"])
        return store

    def get(self, name: str) -> bytes | None:
        """Return an entry as it was put; None if there is no sound one."""
        path = self._entries / name
        try:
            content = path.read_bytes()
            os.utime(path)  # the least recently used goes first
        except OSError:
            return None
        head, body = content[: len(MAGIC) + 32], content[len(MAGIC) + 32 :]
        return body if head == MAGIC + _checksum(name, body) else None

    def put(self, name: str, body: bytes) -> None:
        """Keep an entry; an error of the disk is ignored."""
        # One at a time, so that the total size is right.
        with self._lock, suppress(OSError):
            self._make_room(len(body))
            _write(self._entries / name, MAGIC + _checksum(name, body) + body)

    def size(self) -> tuple[int, int]:
        """Return how many entries there are, and the bytes of all files."""
        entries = sum(1 for _ in _files_in(self._entries))
        return entries, sum(state.st_size for each in self._inside for _, state in _files_in(each))

    def clear(self) -> None:
        for each in self._inside:
            shutil.rmtree(each, ignore_errors=True)

    def _make_room(self, n_bytes: int) -> None:
        if n_bytes > MAX_STORE_BYTES:
            raise OSError("larger than the store")
        if 0 <= self._held <= MAX_STORE_BYTES - n_bytes:
            self._held += n_bytes
            return
        by_age = sorted((f.st_mtime_ns, path, f.st_size) for path, f in _files_in(self._entries))
        self._held = sum(size for *_, size in by_age) + n_bytes
        for _, path, size in by_age:
            if self._held <= MAX_STORE_BYTES:
                return
            path.unlink(missing_ok=True)
            self._held -= size

    def content(self, path: Path) -> str:
        """Return the SHA-256 of a file whose content was seen before; "" if it is new here."""
        stamp = stamp_of(path)
        name = _sampled(path, stamp[2])
        stamps_by_digest = self._known(name)
        for digest, stamps in stamps_by_digest.items():
            if list(stamp) in stamps:
                return digest
        if not stamps_by_digest:
            return ""
        # Copied, moved or touched: hash it, which takes a tenth of the time of unpacking.
        digest = content_of(path)
        if digest in stamps_by_digest:
            self.learn(path, stamp, digest)
        return digest

    def learn(self, path: Path, stamp: Stamp, digest: str) -> None:
        """Remember the content of a file that had this stamp before it was read."""
        with suppress(OSError):
            name = _sampled(path, stamp[2])
            if stamp_of(path) != stamp or time.time() - max(stamp[3:]) * 1e-9 < SETTLED_AFTER:
                # Known by its content, which is hashed once more before it is trusted.
                stamp = (0, 0, 0, 0, 0)
            stamps_by_digest = dict(self._known(name))
            same = [s for s in stamps_by_digest.get(digest, []) if s[:2] != list(stamp[:2])]
            stamps_by_digest[digest] = [*same, list(stamp)]
            _write(self._files / name, json.dumps(stamps_by_digest).encode())

    def _known(self, name: str) -> dict[str, list[list[int]]]:
        try:
            known = parse_json((self._files / name).read_bytes())
            return {str(digest): list(stamps) for digest, stamps in known.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}

    def seen(self, base: Path, files: Mapping[str, Sequence[int]]) -> None:
        """Record the files below a folder (device and inode by content) after a pass.

        Entries of files that were there before and are gone are removed.
        """
        base = base.resolve()
        path = self._places / hashlib.sha256(str(base).encode()).hexdigest()
        before: dict[str, list[int]] = next(
            (p["files"] for other, p in self._known_places() if other == path), {}
        )
        absent = {digest: at for digest, at in before.items() if digest not in files}
        if absent:
            there = set(_inodes(base))
            absent = {digest: at for digest, at in absent.items() if tuple(at) in there}
        now = {**absent, **{digest: list(at) for digest, at in files.items()}}
        if now != before:
            with suppress(OSError):
                _write(path, json.dumps({"folder": str(base), "files": now}).encode())
        self._forget(set(before) - set(now))

    def _known_places(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for path, _ in _files_in(self._places):
            with suppress(OSError, ValueError):
                place = parse_json(path.read_bytes())
                if isinstance(place, dict) and place.keys() == {"folder", "files"}:
                    yield path, place

    def _forget(self, digests: Iterable[str]) -> None:
        """Remove all entries of files of these contents, unless another folder has them."""
        wanted = set(digests)
        if wanted:
            wanted.difference_update(*(place["files"] for _, place in self._known_places()))
        if not wanted:
            return
        for path, _ in _files_in(self._files):
            if wanted & self._known(path.name).keys():
                path.unlink(missing_ok=True)
        for path, _ in list(_files_in(self._entries)):
            key, _, kind = path.name.partition(".")
            if kind == "facts" and wanted & set(files_of(self.get(path.name) or b"")):
                for entry in self._entries.glob(f"{key}.*"):
                    entry.unlink(missing_ok=True)


def files_of(facts: bytes) -> tuple[str, ...]:
    """Return the digests of the files of a subject from its facts."""
    try:
        return tuple(map(str, parse_json(facts)["files"]))
    except (ValueError, KeyError, TypeError):
        return ()


def stamp_of(path: Path) -> Stamp:
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def content_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sampled(path: Path, size: int) -> str:
    """Return a digest of the size of a file and of sample blocks."""
    digest = hashlib.sha256(str(size).encode())
    last = max(size - SAMPLE_BYTES, 0)
    with path.open("rb", buffering=0) as stream:
        for i in range(SAMPLES):
            stream.seek(last * i // (SAMPLES - 1))
            digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()


def _checksum(name: str, body: bytes) -> bytes:
    # Includes the name: a renamed entry belongs to another subject.
    return hashlib.sha256(name.encode() + body).digest()


def _write(path: Path, content: bytes) -> None:
    # 0600 from the first byte, and whole or not at all.
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as stream:
        stream.write(content)
    Path(stream.name).replace(path)


def _is_private(folder: Path) -> bool:
    # Another user who may write there could make a site answer with wrong numbers.
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.lstat()
    except OSError:
        return False
    is_own = state.st_uid == os.getuid() and not state.st_mode & 0o077
    return is_own and stat.S_ISDIR(state.st_mode)


def _files_in(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                yield Path(entry.path), entry.stat(follow_symlinks=False)


def _inodes(folder: Path) -> Iterator[tuple[int, int]]:
    for name, _, names in os.walk(folder):
        for each in names:
            with suppress(OSError):
                state = os.stat(os.path.join(name, each))
                yield state.st_dev, state.st_ino
