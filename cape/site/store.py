"""What a site keeps between rounds: one `SiteStore`, in files for a real site, in memory for tests.

Below ``outputDirectory/.cape/``, readable by the site's own user only, until `report`::

    receipt.jsonl          nonce, seq, request digest: proof that a round was answered; in its
                           second line that answer, without the vault key
    <nonce>/ledger.jsonl   charges, written before any noise of a round is drawn
    <nonce>/vault-<name>.<seq>   a secret of this run, as round seq left it, sealed under a key that
                           stands in the cache alone
    <nonce>/sent.jsonl     fields, bytes and SHA-256 of every reply
    <nonce>/given.json     what the site mapped and said in `join`: private, stays here

docs/decisions.md says why these are files and no database.
"""

from __future__ import annotations

import binascii
import contextlib
import dataclasses
import errno
import hashlib
import itertools
import json
import math
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import ALIGNED
from cape.errors import CapeError, ReplayError, StateLostError, StoppedError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.ports import Stacks
from cape.secagg.keys import open_sealed, seal
from cape.settings.documents import parse_json
from cape.site.policy import SitePolicy

try:
    import fcntl

    POSIX = True
except ImportError:  # Windows, where the first byte of a lock file stands for its folder
    POSIX = False

if TYPE_CHECKING:  # a round that publishes nothing loads neither
    from cape.protocol.outcome import SiteOutcome
    from cape.protocol.ports import Source
    from cape.site.site_data import FileSource

T = TypeVar("T")
RECEIPT = "receipt.jsonl"
# Bytes of a stored answer: what the engine takes.
MAX_STORED = 100 * 2**20
# Hex digits in front of a file of arrays: the CRC-32 of all that follows.
CHECKSUM = 8
# Seconds after which the time of a file would tell another write.
SETTLED = 2.0
# Windows turns line ends without the first, and has no second.
BINARY = getattr(os, "O_BINARY", 0)
PLAIN = BINARY | getattr(os, "O_NOFOLLOW", 0)


class Card(NamedTuple):
    """What a site said of itself in `join`, and the labels of its mask, which it did not say."""

    nonce: str
    n_subjects: int
    space: str  # SHA-256 of the feature space
    labels: str


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinRecord:
    """The site's folder in `join`: received files land there, so none is believed anew."""

    card: tuple[str, int, str, str]
    policy_at_join: SitePolicy
    identity: str
    data: Any = None
    manifest: Any = None
    policy: Any = None
    beside: tuple[str, ...] = ()  # policies among the files
    contents: str = ""

    @property
    def inputs(self) -> dict[str, Any]:
        names = ("data", "manifest", "policy", "beside", "contents")
        return {name: value for name in names if (value := getattr(self, name))}


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """Proof that a round was answered, whatever became of the answer."""

    nonce: str
    seq: int
    request: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredAnswer:
    """The answer to the request of the receipt, as it left."""

    answer: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyEntry:
    """One reply that left the site, without its content: `fields` gives the bytes of each."""

    seq: int
    phase: str
    round: int
    message: str
    fields: dict[str, int]
    bytes: int
    sha256: str

    @classmethod
    def of(cls, document: Mapping[str, Any], message: str) -> ReplyEntry:
        whole = wire.dumps(document)
        return cls(
            seq=document["seq"],
            phase=document["phase"],
            round=document["round"],
            message=message,
            fields={name: len(wire.dumps(value)) for name, value in document["body"].items()},
            bytes=len(whole),
            sha256=hashlib.sha256(whole).hexdigest(),
        )


class FileStore:
    """The store of one site for one run: ``.cape`` in `output`, working arrays in `working`."""

    def __init__(self, output: Path, working: Path, site: str) -> None:
        self.output, self._working, self._site = output, working, site
        self._root = output / ".cape"
        self.nonce, self.vault_key, self.seq = "", b"", 1
        self._sealed: set[str] = set()  # names of what this round kept
        self.record: JoinRecord | None = None
        # In `join`, which keeps arrays before there is a record: the data they are made of.
        self.data: FileSource | None = None
        self.card: Card | None = None
        # An engine's id of a party may hold anything; the name of a file may not.
        self._prefix = f"cape-{hashlib.sha256(site.encode()).hexdigest()[:16]}"

    def _lost(self, what: str) -> StateLostError:
        return StateLostError("E210", site=f"site {self._site}", what=what)

    @property
    def _folder(self) -> Path:
        return self._root / self.nonce

    def _read(self, path: Path, kind: type[T], what: str, *, line: int | None = None) -> T:
        """Read a file of ours, or a line of it, by its declared type: damaged counts as gone."""
        try:
            with path.open("rb") as file:
                if line is None:
                    text = file.read()
                else:
                    text = next(itertools.islice(file, line, None), b"")
            return wire.decode_document(wire.loads(text, MAX_STORED), kind)
        except (OSError, CapeError):
            raise self._lost(what) from None

    # -- journal

    def begin(self, nonce: str, vault_key: bytes) -> None:
        # What an earlier run left behind never matches.
        self.clear()
        self.resume(nonce, vault_key, 1)
        own_folder(self._root)
        self._folder.mkdir(mode=0o700)

    def resume(self, nonce: str, vault_key: bytes, seq: int) -> None:
        """Go on with a run in its round `seq`."""
        self.nonce, self.vault_key, self.seq = nonce, vault_key, seq

    def receipt(self) -> Receipt:
        """StateLostError if it is gone or damaged."""
        return self._read(self._root / RECEIPT, Receipt, "receipt", line=0)

    def answered(self, seq: int, request: str) -> dict[str, Any] | None:
        """Return the stored answer if round `seq` was answered, None if it may be computed.

        ReplayError: another request of this round.  StateLostError: older cache, or answer gone.
        """
        receipt = self.receipt()
        if receipt.nonce != self.nonce:
            raise self._lost("journal of this run")
        if receipt.seq == seq - 1:
            return None
        if receipt.seq != seq:
            raise self._lost(f"cache of round {receipt.seq}")
        # A second draw for one round would average its noise away.
        if receipt.request != request:
            raise ReplayError("E203", seq=seq)
        what = f"answer of round {seq}"
        return self._read(self._root / RECEIPT, StoredAnswer, what, line=1).answer

    def store(self, seq: int, request: str, answer: dict[str, Any]) -> None:
        """Write down an answer before any byte of it leaves."""
        receipt = Receipt(nonce=self.nonce, seq=seq, request=request)
        # Not `wire.dumps`, which sorts: a repeated answer keeps the order of its fields too.
        text = json.dumps({"answer": answer}, allow_nan=False)
        # One file, so both are there or neither; the engine can only ask for the last answer again.
        lines = wire.dumps(wire.encode(receipt, Receipt)), text.encode("ascii")
        write_atomically(self._root / RECEIPT, b"\n".join(lines))
        for name in self._sealed:  # what the round started from is used up now, not before
            for older, path in self._versions(name):
                if older < seq:
                    path.unlink(missing_ok=True)

    def charge(self, line: Mapping[str, Any]) -> None:
        # Once: a crash between charge and answer spends nothing twice.
        self._append("ledger.jsonl", json.dumps(dict(line), sort_keys=True))

    def log_reply(self, entry: ReplyEntry) -> None:
        self._append("sent.jsonl", json.dumps(dataclasses.asdict(entry)))

    def log_last_reply(self, entry: ReplyEntry) -> None:
        """Put the reply of `report` on the list among the results: it is later than they are."""
        append_reply(self.output, entry)

    def _append(self, name: str, text: str) -> None:
        line = text.encode("ascii")
        try:
            with appending(self._folder / name, f"site {self._site}") as (lines, append):
                if line not in lines:
                    append(line)
        except FileNotFoundError:
            raise self._lost("journal of this run") from None

    def replies(self) -> tuple[dict[str, Any], ...]:
        # None if they are gone: they guard nothing.
        try:
            lines = (self._folder / "sent.jsonl").read_bytes().splitlines()
            entries = [wire.decode_document(wire.loads(line), ReplyEntry) for line in lines]
        except (OSError, CapeError):
            return ()
        return tuple(dataclasses.asdict(entry) for entry in entries)

    # -- what was mapped and said in `join`

    def write_join(self, record: JoinRecord) -> None:
        document = wire.encode(record, JoinRecord)
        write_atomically(self._folder / "given.json", wire.dumps(document))

    def read_join(self) -> JoinRecord:
        """StateLostError if it is gone or damaged."""
        record = self._read(self._folder / "given.json", JoinRecord, "list of mapped files")
        self.record, self.card = record, Card(*record.card)
        return record

    # -- vault

    # A round reads what earlier rounds left and writes beside it, so that it can be done again from
    # the same secrets if its answer never came to be stored.

    def keep(self, name: str, secret: bytes) -> None:
        # Sealed to its run, name and round, so that no secret can stand in for another.
        context = self._context(name, self.seq)
        # A function of what is sealed: a copied folder cannot seal two texts under one nonce.
        mixed = hashlib.blake2b(context + secret, key=self.vault_key, digest_size=12)
        sealed = seal(self.vault_key, secret, context=context, nonce=mixed.digest())
        write_atomically(self._folder / f"vault-{name}.{self.seq}", sealed)
        self._sealed.add(name)

    def secret(self, name: str) -> bytes:
        try:
            seq, path = max(found for found in self._versions(name) if found[0] < self.seq)
            context = self._context(name, seq)
            return open_sealed(self.vault_key, path.read_bytes(), context=context)
        except Exception:  # missing, damaged, another key: all the same to the run
            raise self._lost("key of this run") from None

    def _versions(self, name: str) -> list[tuple[int, Path]]:
        """Return (round, file) of a secret; a file that was being written is none."""
        head = f"vault-{name}."
        ends = [n.removeprefix(head) for n in os.listdir(self._folder) if n.startswith(head)]
        return [(int(end), self._folder / f"{head}{end}") for end in ends if end.isdecimal()]

    def _context(self, name: str, seq: int) -> bytes:
        return f"cape/2/vault {self.nonce} {name} {seq}".encode()

    def burn(self) -> None:
        # Without its keys no later request of this run can be answered, whoever asks.
        for path in self._folder.glob("vault-*") if self.nonce else ():
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        if self._root.is_symlink():
            self._root.unlink()  # what it leads to is not ours
        if self._root.exists():
            import shutil  # and all its archive formats: only rounds that clear pay for them

            # First: a `report` that finds it is done anew, from all the rest, also after a kill
            # half-way; one that does not, is repeated and needs none of it.
            with contextlib.suppress(OSError):
                (self._root / RECEIPT).unlink(missing_ok=True)
                sync_folder(self._root)
            shutil.rmtree(self._root, ignore_errors=True)

    # -- working arrays: one file per name, made again if it is lost or damaged

    def _path(self, name: str) -> Path:
        return self._working / f"{self._prefix}-{name}.arrays"

    @property
    def _contents(self) -> str:
        if self.record is not None:
            return self.record.contents
        return "" if self.data is None else self.data.contents

    def arrays(self, name: str, key: str) -> Stacks | None:
        """Return the arrays, read-only, as the file has them; pages are read when they are used.

        None if they are lost, or were made of anything else.
        """
        path = self._path(name)
        seen = path.with_suffix(".seen")
        try:
            with _own_regular_file(path) as (file, found):
                this = _identity(found)
                is_checked = _content(seen) == this
                stacks = _read_arrays(file, key, self._contents, is_checked=is_checked)
                # Summed up once: later rounds take what nobody has written since as it is.
                if stacks and not is_checked and _is_settled(found):
                    with contextlib.suppress(OSError):
                        os.fsync(file.fileno())  # a power cut must not take what is believed
                        _write(seen, this)
        except Exception:  # gone, or damaged in whatever way: it is made again
            return None
        return stacks

    def put_arrays(self, name: str, key: str, stacks: Stacks) -> None:
        self._working.mkdir(parents=True, exist_ok=True)
        partial = self._path(name).with_suffix(".partial")
        with _own_file(partial) as file:  # no fsync: what is lost is made again
            _write_arrays(file, key, self._contents, stacks)
        os.replace(partial, self._path(name))

    def forget_arrays(self) -> None:
        for path in self._working.glob(f"{self._prefix}-*"):
            with contextlib.suppress(OSError):  # a folder that a neighbour put there
                path.unlink(missing_ok=True)

    # -- results

    def write_results(self, result: SiteOutcome, source: Source, policy: SitePolicy) -> None:
        if self.record is not None:  # else `report` is repeated, and the files are there
            write_private_results(self.output, result, source, policy, self.replies())

    def write_record(self, result: SiteOutcome) -> None:
        write_site_record(self.output, result)


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
    # A sum over an array depends on its order in memory: it comes back in the same one.
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
        parts.append(bytes(-at % ALIGNED))
        parts.append(_bytes_of(np.ascontiguousarray(array.T if fortran else array)))
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
    head: ArraysHead = wire.decode(parse_json(line), ArraysHead)
    if (head.key, head.contents) != (key, contents):
        return None
    at, whole, arrays = file.tell(), _mapped(file), []
    for shape, kind, order in zip(head.shapes, head.dtypes, head.orders, strict=True):
        dtype = np.dtype(kind)
        at += -at % ALIGNED
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
    if POSIX:  # Windows replaces and removes no file that is mapped
        with contextlib.suppress(OSError):  # some file systems of other computers map nothing
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    file.seek(0)
    return memoryview(file.read())


@contextlib.contextmanager
def _own_regular_file(path: Path) -> Iterator[tuple[BinaryIO, os.stat_result]]:
    """Yield a file that this user wrote; OSError for everything else."""
    # The engine's cache may be a folder for everybody: what others put there is not what this site
    # computed, and a pipe without a writer would never open.
    handle = os.open(path, os.O_RDONLY | PLAIN | getattr(os, "O_NONBLOCK", 0))
    found = os.fstat(handle)
    is_own = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    if not (stat.S_ISREG(found.st_mode) and is_own):
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


def _write(path: Path, data: bytes) -> None:
    with _own_file(path) as file:
        file.write(data)


def _is_settled(found: os.stat_result) -> bool:
    """Whether another write of a file would show in its times; never on Windows, which reads it."""
    return POSIX and time.time() - max(found.st_mtime, found.st_ctime) > SETTLED


def _identity(found: os.stat_result) -> bytes:
    """Tell a file from every other, and from itself after a write."""
    # The last of these times is the file system's, on POSIX: no program sets it.
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return repr((found.st_dev, found.st_ino, found.st_size, *times)).encode()


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


class MemoryStore:
    """The store of a site that lives in this process; results go to `output`, if there is one."""

    def __init__(self, site: str, output: Path | None = None, card: Card | None = None) -> None:
        self.output, self.card = output, card
        self._site = site
        self.secrets: dict[str, bytes] = {}
        self.entries: list[ReplyEntry] = []
        self._arrays: dict[str, tuple[str, Stacks]] = {}

    @property
    def nonce(self) -> str:
        return "" if self.card is None else self.card.nonce

    def arrays(self, name: str, key: str) -> Stacks | None:
        known_key, stacks = self._arrays.get(name, ("", None))
        return stacks if known_key == key else None

    def put_arrays(self, name: str, key: str, stacks: Stacks) -> None:
        self._arrays[name] = key, stacks

    def charge(self, line: Mapping[str, Any]) -> None:
        """Do nothing: the run's own ledger lives and ends with the process too."""

    def keep(self, name: str, secret: bytes) -> None:
        self.secrets[name] = secret

    def secret(self, name: str) -> bytes:
        if name not in self.secrets:
            raise StateLostError("E210", site=f"site {self._site}", what=name)
        return self.secrets[name]

    def write_results(self, result: SiteOutcome, source: Source, policy: SitePolicy) -> None:
        if self.output is not None:
            replies = tuple(dataclasses.asdict(entry) for entry in self.entries)
            write_private_results(self.output, result, source, policy, replies)

    def write_record(self, result: SiteOutcome) -> None:
        if self.output is not None:
            write_site_record(self.output, result)


# What a site asks of its store within a round.
SiteStore = FileStore | MemoryStore


# -- results, written in the same way by both ----------------------------------------------------


def write_private_results(
    output: Path,
    result: SiteOutcome,
    source: Source,
    policy: SitePolicy,
    replies: tuple[dict[str, Any], ...],
) -> None:
    from cape.report import write_site

    # Arrays in memory have no files to tell of.
    describe = getattr(source, "private_summary", None)
    output.mkdir(parents=True, exist_ok=True)
    own_folder(output / "private")
    write_site(output, result, describe and describe(policy, replies))
    for path in (output / "private").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)


def append_reply(output: Path, entry: ReplyEntry) -> None:
    # The list was written with the results: the reply of `report` itself is the last.
    from cape.report import append_sent

    append_sent(output / "private", dataclasses.asdict(entry))


def write_site_record(output: Path, result: SiteOutcome) -> None:
    """Write ``cape-site.json``, with the fingerprint of keys that people compare between sites."""
    document: dict[str, Any] = {
        "site": result.site,
        "status": result.outcome_status,
        "fingerprint": result.fingerprint,
        "releases": len(result.ledger.events),
        "epsilon_spent": result.ledger.epsilon_spent(),
        "ledger_head": result.ledger.head,
    }
    if (total := result.all_runs) is not None:
        # What all runs on these people cost together, as the report says it too.
        names = ("runs", "mu", "epsilon", "delta")
        document["all_runs"] = {name: getattr(total, name) for name in names}
    if result.met_first is not None:
        document["met_first"] = list(result.met_first)
        document["epsilon_if_invented"] = result.epsilon_if_invented
    output.mkdir(parents=True, exist_ok=True)
    write_atomically(output / "cape-site.json", (json.dumps(document, indent=1) + "\n").encode())


# -- files that survive a crash: replaced whole, or grown by whole lines; and folders for one ------

# Seconds to wait for another process that works for the same party.
PATIENCE = 600.0

PAUSE = 0.05

# Bytes, of which an overwritten file has a multiple.
BLOCK = 4096


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by `data`, mode 0600, on disk before this returns."""
    # Beside it, on the same file system: only there a rename is atomic.
    partial = path.with_name(path.name + ".partial")
    with _own_file(partial) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    # The name is durable only when its folder is.
    sync_folder(path.parent)


def overwrite(path: Path, data: bytes) -> None:
    """Write JSON into a file in a folder of its own party, mode 0600, on disk before this returns.

    Cheaper than `write_atomically`, for what a crash in between does not lose.
    """
    is_new = not path.exists()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | PLAIN, 0o600)
    with os.fdopen(handle, "wb") as file:
        size = os.fstat(handle).st_size
        # Mostly its length stays: then only its content has to come to the disk.
        padding = -len(data) % BLOCK
        file.write(data + b" " * padding)
        if size > len(data) + padding:
            file.truncate()
        file.flush()
        getattr(os, "fdatasync", os.fsync)(handle)
    if is_new:
        sync_folder(path.parent)


def _own_file(path: Path) -> BinaryIO:
    """Open a new file, mode 0600 whatever the umask: no link or file of somebody else's."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN, 0o600)
    if hasattr(os, "fchmod"):
        os.fchmod(handle, 0o600)
    return os.fdopen(handle, "wb")


def own_folder(path: Path) -> None:
    """Make a folder, mode 0700 whatever the umask; a link in its place is taken away."""
    if path.is_symlink():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.chmod(0o700)


def sync_folder(folder: Path) -> None:
    if not POSIX:  # Windows opens no folders, and keeps names in a journal of its own
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def appending(path: Path, party: str) -> Iterator[tuple[list[bytes], Callable[[bytes], None]]]:
    """Yield a held file's lines and a durable append; StoppedError (E263) after `PATIENCE`."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o600)
    with os.fdopen(handle, "r+b") as file:
        _take(handle, party, PATIENCE)
        text = file.read()
        # Lines are written whole and synced: a rest without an end was cut by a crash.
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            file.truncate(len(whole))
        if not whole:
            sync_folder(path.parent)

        def append(line: bytes) -> None:
            size = os.fstat(handle).st_size
            data = line + b"\n"
            try:
                if os.write(handle, data) < len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            except OSError:
                # Half a line would join the next one, and that is of another release.
                os.ftruncate(handle, size)
                raise

        yield whole.split(b"\n")[:-1], append


@contextlib.contextmanager
def folder_lock(folder: Path, party: str, *, patience: float | None = None) -> Iterator[None]:
    """Hold a folder for this process; StoppedError (E263) after `patience` s, else `PATIENCE`."""
    handle = os.open(folder, os.O_RDONLY) if POSIX else _lock_file(folder)
    try:
        handle = _lockable(handle, folder)
        _take(handle, party, PATIENCE if patience is None else patience)
        yield
    finally:
        os.close(handle)  # which also lets go of the lock, as the end of the process does


def _lockable(handle: int, folder: Path) -> int:
    if not POSIX:
        return handle
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
        return _lock_file(folder)
    return handle


def _lock_file(folder: Path) -> int:
    return os.open(folder / ".cape.lock", os.O_RDWR | os.O_CREAT | PLAIN, 0o600)


def _take(handle: int, party: str, patience: float) -> None:
    # Polling, since a blocking lock has no time limit and signals are not ours to use.
    until = time.monotonic() + patience
    while not _taken(handle):
        if time.monotonic() >= until:
            raise StoppedError("E263", party=party)
        time.sleep(PAUSE)


def _taken(handle: int) -> bool:
    try:
        if POSIX:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            import msvcrt

            os.lseek(handle, 0, os.SEEK_SET)  # the byte that is held is that of the position
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except (BlockingIOError, PermissionError):
        return False
    return True
