"""Looks for planted values in whatever a run leaves behind, in every encoding we could think of.

A `Canary` is a value that must not be where it is looked for: words, the digits of a number, a
stretch of an array, a key.  `patterns` lists its encodings; `scan_bytes` opens what is packed (zip,
gzip, zlib anywhere, base64, hexadecimal) and finds them; `scan(folder, canaries)` does so for all
files of a folder and is what tests of containers and of the engine call.

Every pattern carries at least `LEAST_BITS` of the canary, so that a scan of a gigabyte of foreign
random bytes for 10,000 patterns finds one by accident with probability below 1e-6.
"""

from __future__ import annotations

import base64
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

LEAST_BITS = 64
"""Of a canary in a binary pattern: 2^-64 a place, 2^30 places, 10^4 patterns give 6e-7."""
GRAM = 8
DEEPEST = 5
LARGEST = 2**28
BINARY = ("<f8", ">f8", "<f4", ">f4", "<i8", ">i8", "<i4", ">i4")
PRECISIONS = (17, 12, 9, 8, 7, 6, 5, 4)
SEPARATORS = (",", ", ", " ", "\t", "\n", ";", ",\n", "\r\n")
SINGLE_DIGITS = 10
"""Digits of a number that are looked for by themselves: 1e-10 a place of digits."""


@dataclass(frozen=True)
class Canary:
    """One thing that must not be found, and all its encodings."""

    name: str
    patterns: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Hit:
    """Where a canary was found."""

    canary: str
    encoding: str
    document: str
    offset: int


@dataclass
class Report:
    """What a scan did: documents as found and unpacked, bytes, hits."""

    documents: int = 0
    bytes: int = 0
    hits: list[Hit] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.documents += other.documents
        self.bytes += other.bytes
        self.hits += other.hits


# -- what to look for -----------------------------------------------------------------------------


def secret(name: str, value: bytes) -> Canary:
    """Return a canary of at least 8 bytes that mean something by themselves: a key, a draw."""
    assert 8 * len(value) >= LEAST_BITS, "too short to be found on purpose only"
    return Canary(name, tuple(_of_bytes("raw", value)))


def text(name: str, words: str) -> Canary:
    """Return a canary of words: an id, a file name."""
    patterns = []
    for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
        for case in dict.fromkeys((words, words.lower(), words.upper())):
            raw = case.encode(encoding)
            assert len(raw) >= GRAM, "too short to be found on purpose only"
            patterns += _of_bytes(encoding, raw)
    return Canary(name, tuple(patterns))


def vector(name: str, values: Iterable[float]) -> Canary:
    """Return a canary of some neighbouring numbers of an array, three at least."""
    # Looked for: every binary form, raw, hexadecimal and base64; decimals of several precisions in
    # a row; each number by itself if its digits are many enough.
    found = np.asarray(list(values), dtype=np.float64)
    assert found.size >= 3, "too few numbers to be found on purpose only"
    assert np.unique(np.abs(found[found != 0])).size >= 3, "too plain to be found on purpose only"
    patterns: list[tuple[str, bytes]] = []
    for form in BINARY:
        whole = np.rint(found) if "i" in form else found
        limits = np.iinfo(form) if "i" in form else np.finfo(form)
        if np.abs(whole).max() > limits.max or np.abs(whole).min() < ("i" in form and 2**20):
            continue  # small integers are everywhere
        patterns += _of_bytes(form, whole.astype(form).tobytes())
    integral = bool((found == np.rint(found)).all())
    styles = [("shortest", [repr(float(v)) for v in found])]
    if integral:
        styles = [("integer", [str(int(v)) for v in found])]
    for digits in PRECISIONS:
        for style in "gfe":
            form = f".{digits}{style}"
            styles.append((form, [format(v, form) for v in found]))
    for form, written in styles:
        if sum(len(re.sub(r"\D", "", w).strip("0")) for w in written) < SINGLE_DIGITS:
            continue
        for between in SEPARATORS:
            patterns.append((f"decimal {form}", between.join(written).encode()))
    for v in found:
        patterns += [("decimal alone", run.encode()) for run in _digits_of(float(v))]
    return Canary(name, tuple(dict.fromkeys(p for p in patterns if len(p[1]) >= GRAM)))


def _digits_of(value: float) -> list[str]:
    """Return the first digits of a number as they stand in any notation that is long enough."""
    runs = set()
    for exact in (value, float(np.float32(value))):
        mantissa = format(abs(exact), ".16e").partition("e")[0]
        exponent = int(format(abs(exact), ".16e").partition("e")[2])
        digits = mantissa.replace(".", "")[:SINGLE_DIGITS]
        if len(digits.strip("0")) < SINGLE_DIGITS - 2:
            continue  # a round number
        runs.add(f"{digits[0]}.{digits[1:]}")
        if 0 <= exponent < SINGLE_DIGITS - 1:
            runs.add(f"{digits[: exponent + 1]}.{digits[exponent + 1 :]}")
        runs.add(digits)
    return sorted(runs)


def _of_bytes(name: str, raw: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, raw
    yield f"{name} hex", raw.hex().encode()
    yield f"{name} HEX", raw.hex().upper().encode()
    for shift in range(3):
        inside = base64.b64encode(bytes(shift) + raw)
        first, last = -(-8 * shift // 6), 8 * (shift + len(raw)) // 6
        piece = inside[first:last]
        if len(piece) >= GRAM:
            yield f"{name} base64+{shift}", piece
            yield f"{name} url64+{shift}", piece.replace(b"+", b"-").replace(b"/", b"_")


def windows(name: str, array: np.ndarray, *, most: int = 2) -> list[Canary]:
    """Return canaries of stretches of an array, along its last axis and along the one before it."""
    flat = np.asarray(array, dtype=np.float64)
    if flat.ndim == 0 or flat.size < 3:
        return []
    lines = [*flat.reshape(-1, flat.shape[-1])]
    if flat.ndim > 1:
        lines += [*np.moveaxis(flat, -2, -1).reshape(-1, flat.shape[-2])]
    found: list[Canary] = []
    for at in np.linspace(0, len(lines) - 1, num=min(len(lines), 2 * most)).astype(int):
        line = lines[at]
        for first in range(0, line.size - 2, max(1, line.size // 3)):
            piece = line[first : first + 3]
            plain = np.unique(np.abs(piece[piece != 0])).size < 3
            small = (piece == np.rint(piece)).all() and np.abs(piece).min() < 2**10
            if np.isfinite(piece).all() and not plain and not small:
                found.append(vector(f"{name}[{at}, {first}:]", piece))
                break
    return found[: 2 * most]


# -- looking --------------------------------------------------------------------------------------


class Scanner:
    """Finds canaries in documents; one is made for many documents."""

    def __init__(self, canaries: Iterable[Canary]) -> None:
        self._by_gram: dict[int, list[tuple[str, str, bytes]]] = {}
        for canary in canaries:
            for encoding, pattern in canary.patterns:
                assert len(pattern) >= GRAM
                gram = int.from_bytes(pattern[:GRAM], "little")
                self._by_gram.setdefault(gram, []).append((canary.name, encoding, pattern))
        self._grams = np.array(sorted(self._by_gram), dtype=np.uint64)

    @property
    def patterns(self) -> int:
        return sum(map(len, self._by_gram.values()))

    def look(self, name: str, data: bytes) -> Report:
        """Scan a document and everything packed in it."""
        report, seen = Report(), set()
        waiting = [(name, data, 0)]
        while waiting:
            where, raw, depth = waiting.pop()
            if hash(raw) in seen:
                continue
            seen.add(hash(raw))
            report.documents += 1
            report.bytes += len(raw)
            report.hits += self._find(where, raw)
            if depth < DEEPEST:
                waiting += [(f"{where} > {how}", part, depth + 1) for how, part in unpacked(raw)]
        return report

    def _find(self, name: str, raw: bytes) -> list[Hit]:
        hits: list[Hit] = []
        for shift in range(min(GRAM, max(len(raw) - GRAM + 1, 0))):
            words = np.frombuffer(raw, dtype="<u8", offset=shift, count=(len(raw) - shift) // GRAM)
            at = np.searchsorted(self._grams, words)
            at[at == self._grams.size] = 0
            for i in np.flatnonzero(self._grams[at] == words) if self._grams.size else ():
                offset = shift + GRAM * int(i)
                for canary, encoding, pattern in self._by_gram[int(words[i])]:
                    if raw.startswith(pattern, offset):
                        hits.append(Hit(canary, encoding, name, offset))
        return hits


BASE64 = re.compile(rb"[A-Za-z0-9+/]{12,}={0,2}|[A-Za-z0-9_-]{12,}={0,2}")
HEX = re.compile(rb"[0-9a-fA-F]{16,}")
ESCAPE = re.compile(rb"\\u([0-9a-fA-F]{4})")
STREAMS = (
    ("zlib", re.compile(rb"\x78[\x01\x5e\x9c\xda]"), 15),
    ("gzip", re.compile(rb"\x1f\x8b\x08"), 31),
)


def unpacked(raw: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield what is packed in a document: members of archives, streams, encoded texts."""
    if raw.startswith(b"PK"):
        try:
            with zipfile.ZipFile(io.BytesIO(raw)) as archive:
                for member in archive.infolist():
                    if member.file_size < LARGEST:
                        yield member.filename, archive.read(member)
        except (zipfile.BadZipFile, OSError, RuntimeError, zlib.error):
            pass
    if ESCAPE.search(raw):
        yield "escapes", ESCAPE.sub(lambda m: chr(int(m[1], 16)).encode("utf-8", "replace"), raw)
    for how, magic, window in STREAMS:
        for match in magic.finditer(raw):
            try:  # a stream that is cut counts as far as it goes
                part = zlib.decompressobj(window).decompress(raw[match.start() :], LARGEST)
            except zlib.error:
                continue
            if len(part) >= GRAM:
                yield how, part
    for match in BASE64.finditer(raw):
        piece = match.group().rstrip(b"=").replace(b"-", b"+").replace(b"_", b"/")
        whole = len(piece) - (len(piece) % 4 == 1)
        yield "base64", base64.b64decode(piece[:whole] + b"=" * (-whole % 4))
    for match in HEX.finditer(raw):
        piece = match.group()
        yield "hex", bytes.fromhex(piece[: len(piece) // 2 * 2].decode())


def everything(path: Path) -> bool:
    """Look at every file."""
    del path
    return True


def scan(
    folder: Path, canaries: Iterable[Canary], *, leaves: Callable[[Path], bool] = everything
) -> Report:
    """Scan the names and contents of all files below a folder.

    `leaves` tells of a path, relative to `folder`, whether it is looked at.
    """
    scanner, report = Scanner(canaries), Report()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and leaves(name):
            report.add(scanner.look(str(name), path.read_bytes()))
            report.hits += scanner.look("name of a file", str(name).encode()).hits
    return report
