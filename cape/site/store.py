"""The state of a site between rounds: in files for a real site, in memory for simulations.

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

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cape.array_file import Stamp, is_settled, own_file, read_arrays, write_arrays
from cape.errors import CapeError, ReplayError, StateLostError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.ports import Stacks
from cape.secagg.keys import open_sealed, seal
from cape.site import files
from cape.site.policy import SitePolicy

if TYPE_CHECKING:  # most rounds read no data
    from cape.site.site_data import FileSource

T = TypeVar("T")
RECEIPT = "receipt.jsonl"
# Bytes of a stored answer: what the engine takes.
MAX_STORED = 100 * 2**20


class Card(NamedTuple):
    """The facts that a site sent in `join`, and the labels and maps, which it did not send."""

    nonce: str
    n_subjects: int
    space: str  # SHA-256 of the feature space
    labels: str
    maps: str = ""  # empty if they may not leave


@dataclass(frozen=True, kw_only=True, slots=True)
class JoinRecord:
    """The site's folder in `join`: received files land there, so later rounds use this record."""

    card: tuple[str, int, str, str, str]
    policy_at_join: SitePolicy
    identity: str
    contents: str  # fingerprint of the accepted files
    inputs: dict[str, Any]  # what the site mapped, and ``beside``: policies among the files
    question: str = ""  # of this run, for records of access


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
        self.output, self._site = output, site
        # An engine's id of a party may contain characters that file names may not.
        party = hashlib.sha256(site.encode()).hexdigest()[:16]
        self._working, self._prefix = working, f"cape-{party}-"
        self._root = output / ".cape"
        self.nonce, self.vault_key, self.seq = "", b"", 1
        self._sealed: set[str] = set()  # names of what this round kept
        self.record: JoinRecord | None = None
        # In `join`, which keeps arrays before there is a record: the data they are made of.
        self.data: FileSource | None = None
        self.card: Card | None = None

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
        # Files of an earlier run never match.
        self.clear()
        self.resume(nonce, vault_key, 1)
        files.make_own_folder(self._root)
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
        # A second draw for one round would allow averaging its noise away.
        if receipt.request != request:
            raise ReplayError("E203", seq=seq)
        what = f"answer of round {seq}"
        return self._read(self._root / RECEIPT, StoredAnswer, what, line=1).answer

    def store(self, seq: int, request: str, answer: dict[str, Any]) -> None:
        """Write an answer to disk before any byte of it leaves."""
        receipt = Receipt(nonce=self.nonce, seq=seq, request=request)
        # Not `wire.dumps`, which sorts: a repeated answer keeps the order of its fields too.
        text = json.dumps({"answer": answer}, allow_nan=False)
        # One file, so both are there or neither; the engine can only ask for the last answer again.
        lines = wire.dumps(wire.encode(receipt, Receipt)), text.encode("ascii")
        files.write_atomically(self._root / RECEIPT, b"\n".join(lines))
        for name in self._sealed:  # only now are the secrets of earlier rounds used up
            for older, path in self._versions(name):
                if older < seq:
                    path.unlink(missing_ok=True)

    def charge(self, line: Mapping[str, Any]) -> None:
        # Lines are added once: a crash between charge and answer spends nothing twice.
        self._append("ledger.jsonl", json.dumps(dict(line), sort_keys=True))

    def log_reply(self, entry: ReplyEntry) -> None:
        self._append("sent.jsonl", json.dumps(dataclasses.asdict(entry)))

    def log_last_reply(self, entry: ReplyEntry) -> None:
        from cape.report import append_sent

        append_sent(self.output / "private", dataclasses.asdict(entry))

    def _append(self, name: str, text: str) -> None:
        line = text.encode("ascii")
        party = f"site {self._site}"
        try:
            # No round depends on these lines.  Charges are also in the answer, on disk before a
            # byte leaves, and in the ledger of all runs, on disk before noise is drawn.
            with files.appending(self._folder / name, party, durable=False) as (lines, append):
                if line not in lines:
                    append(line)
        except FileNotFoundError:
            raise self._lost("journal of this run") from None

    def replies(self) -> tuple[dict[str, Any], ...]:
        # Empty if they are gone: no check depends on them.
        try:
            lines = (self._folder / "sent.jsonl").read_bytes().splitlines()
            entries = [wire.decode_document(wire.loads(line), ReplyEntry) for line in lines]
        except (OSError, CapeError):
            return ()
        return tuple(dataclasses.asdict(entry) for entry in entries)

    # -- files and card of `join`

    def write_join(self, record: JoinRecord) -> None:
        document = wire.encode(record, JoinRecord)
        files.write_atomically(self._folder / "given.json", wire.dumps(document))

    def read_join(self) -> JoinRecord:
        """StateLostError if it is gone or damaged."""
        record = self._read(self._folder / "given.json", JoinRecord, "list of mapped files")
        self.record, self.card = record, Card(*record.card)
        return record

    # -- vault

    # A round reads the secrets of earlier rounds and writes new files, so that it can be repeated
    # from the same secrets if its answer was never stored.

    def keep(self, name: str, secret: bytes) -> None:
        # Sealed to its run, name and round, so that no secret can stand in for another.
        context = self._context(name, self.seq)
        # The nonce depends on the secret: a copied folder cannot seal two texts under one nonce.
        mixed = hashlib.blake2b(context + secret, key=self.vault_key, digest_size=12)
        sealed = seal(self.vault_key, secret, context=context, nonce=mixed.digest())
        files.write_atomically(self._folder / f"vault-{name}.{self.seq}", sealed)
        self._sealed.add(name)

    def secret(self, name: str) -> bytes:
        try:
            seq, path = max(found for found in self._versions(name) if found[0] < self.seq)
            context = self._context(name, seq)
            return open_sealed(self.vault_key, path.read_bytes(), context=context)
        except Exception:  # missing, damaged, another key: all the same to the run
            raise self._lost("key of this run") from None

    def _versions(self, name: str) -> list[tuple[int, Path]]:
        """Return (round, file) of a secret, without partially written files."""
        head = f"vault-{name}."
        ends = [n.removeprefix(head) for n in os.listdir(self._folder) if n.startswith(head)]
        return [(int(end), self._folder / f"{head}{end}") for end in ends if end.isdecimal()]

    def _context(self, name: str, seq: int) -> bytes:
        return f"cape/2/vault {self.nonce} {name} {seq}".encode()

    def burn(self) -> None:
        # Without its keys this site can answer no later request of the run.
        for path in self._folder.glob("vault-*") if self.nonce else ():
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        if self._root.is_symlink():
            self._root.unlink()  # the target of the link is not ours
        if self._root.exists():
            import shutil  # and all its archive formats: only rounds that clear pay for them

            # The receipt first: while it exists, all other files exist too, and an interrupted
            # `report` can be done again; without it, `report` is repeated and needs none of them.
            with contextlib.suppress(OSError):
                (self._root / RECEIPT).unlink(missing_ok=True)
                files.sync_folder(self._root)
            shutil.rmtree(self._root, ignore_errors=True)

    # -- working arrays: memory-mapped, in a folder that others may write into

    @property
    def _contents(self) -> str:
        if self.record is not None:
            return self.record.contents
        return "" if self.data is None else self.data.contents

    def arrays_path(self, name: str) -> Path:
        return self._working / f"{self._prefix}{name}.arrays"

    def arrays(self, name: str, key: str) -> Stacks | None:
        """Return the arrays, read-only; None if lost, damaged, of another key or of other data."""
        path = self.arrays_path(name)
        seen = path.with_suffix(".seen")
        try:
            with own_file(path) as (file, stamp):
                is_checked = _is_noted(seen, stamp)
                stored = read_arrays(file, f"{self._contents} {key}", is_checked=is_checked)
                # The checksum is verified once; later rounds trust a file not written since.
                if stored and not is_checked and is_settled(stamp):
                    with contextlib.suppress(OSError):
                        os.fsync(file.fileno())  # a power cut must not lose trusted data
                        with files.create_own_file(seen) as note:
                            note.write(repr(stamp).encode())
        except OSError:
            return None
        if stored is None:
            return None
        return Stacks(arrays=stored.arrays, labels=tuple(map(tuple, stored.note)))

    def put_arrays(self, name: str, key: str, stacks: Stacks) -> None:
        self._working.mkdir(parents=True, exist_ok=True)
        path = self.arrays_path(name)
        write_arrays(path, f"{self._contents} {key}", stacks.labels, stacks.arrays)

    def forget_arrays(self) -> None:
        for path in self._working.glob(f"{self._prefix}*"):
            with contextlib.suppress(OSError):  # a folder of another user
                path.unlink(missing_ok=True)


def _is_noted(note: Path, stamp: Stamp) -> bool:
    try:
        with own_file(note) as (file, _):
            return file.read() == repr(stamp).encode()
    except OSError:
        return False


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

    def replies(self) -> tuple[dict[str, Any], ...]:
        return tuple(dataclasses.asdict(entry) for entry in self.entries)


# The store of a site within a round
SiteStore = FileStore | MemoryStore
