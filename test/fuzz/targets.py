"""What is fuzzed: every decoder and every reader of files, each as a function of some bytes.

A target returns if the bytes were accepted or properly refused (`CapeError`, and `UnusableFile` of
the data layer); any other exception is a finding.  So is an accepted document that does not come
back as itself, and more memory or time than `run.py` and `test_fuzz.py` allow.
"""

import asyncio
import base64
import gzip
import hashlib
import io
import json
import struct
import tempfile
import warnings
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.pca import Subspace
from cape.computations import load, names
from cape.data.images import read_image
from cape.data.issues import Findings, UnusableFile
from cape.data.manifest import read_manifest
from cape.data.matrices import read_matrix
from cape.data.runs import SiteRun
from cape.data.space import grid_of, read_space
from cape.data.tables import read_text_matrix
from cape.engines.coinstac import aggregator, documents, service
from cape.engines.coinstac.computation import parse_document
from cape.engines.coinstac.documents import (
    EngineRequest,
    decode_envelope,
    decode_run,
    decode_settings,
    encode_run,
)
from cape.errors import CapeError
from cape.privacy.ledger import Ledger, read_entries
from cape.protocol import wire
from cape.protocol.messages import KeyAdvertisements, KeyBook, Masked, Progress, PublicKey, SiteCard
from cape.protocol.model import Model, Roster
from cape.protocol.phases import start
from cape.secagg import keys, shamir
from cape.secagg.aggregator_steps import PendingSum
from cape.secagg.keys import private_key_from_bytes
from cape.secagg.messages import MaskShares, SealedShareBook, SurvivorSignatures
from cape.secagg.site_steps import AdvertisedSite, ReadySite, SharedSite
from cape.settings.config import Config
from cape.settings.own_words import OwnWords
from cape.simulation.run_loop import read_setup
from cape.simulation.transports import read_drop
from cape.site.identity import IdentityFiles, KnownSites
from cape.site.ledger_lines import FIRST_LINK, read_lines
from cape.site.places import SETUP_FILE, SitePlaces
from cape.site.policy import read_policy
from cape.site.store import FileStore
from cape.space.feature_space import FeatureSpace
from support.sites import discover

REFUSED = (CapeError, UnusableFile)
Target = Callable[[bytes], None]

MESSAGES = (
    SiteCard, Roster, PublicKey, KeyBook, Masked, Progress, KeyAdvertisements, SealedShareBook,
    MaskShares, SurvivorSignatures, FeatureSpace, Subspace, Ledger, Model, AdvertisedSite,
    SharedSite, ReadySite, PendingSum,
)  # fmt: skip
SPACE = FeatureSpace.of_labels("mask", np.ones((3, 3, 2), np.int32), np.diag([4.0, 4, 4, 1]))
CONFIG = load("capedjica").config.from_input({"epsilon": 1.0, "delta": 1e-5})


def chosen(data: bytes, among: Any) -> tuple[Any, bytes]:
    """Let the first byte choose; return the choice and the rest."""
    options = list(among)
    return options[(data[0] if data else 0) % len(options)], data[1:]


def message(data: bytes) -> None:
    """Any message or stored state, by its declared type: comes back as itself or is refused."""
    kind, text = chosen(data, MESSAGES)
    document = wire.loads(text)
    value = wire.decode(document, kind)
    once = wire.dumps(wire.encode(value, kind))
    assert wire.dumps(wire.encode(wire.decode(wire.loads(once), kind), kind)) == once


def envelope(data: bytes) -> None:
    """A whole document of a peer."""
    kind, text = chosen(data, (Masked, SiteCard, PublicKey, Roster, KeyBook))
    decode_envelope(
        documents.inline(wire.loads(text), Path("/nonexistent")), kind,
        broadcast=kind in (Roster, KeyBook),
    )  # fmt: skip


def cache(data: bytes) -> None:
    """The cache that an engine hands back."""
    name, text = chosen(data, names())
    document = wire.loads(text, wire.MAX_DOCUMENT)
    run = decode_run(load(name), document, party="x")
    assert encode_run(run) == encode_run(run)


def constant(data: bytes) -> None:
    """The roster in a state: compressed by the fuzzer's text, or as it came."""
    kind, text = chosen(data, ("text", "compressed"))
    if kind == "text":
        wire.decode_constant(text.decode("latin-1"), Roster | None)
    else:
        packed = base64.b64encode(zlib.compress(text)).decode("ascii")
        wire.decode_constant(packed, Roster | None)


def call(data: bytes) -> None:
    """Standard input; and the first documents of sites at the aggregator."""
    document = parse_document(data)
    try:
        aggregator.first_settings(document)
    except CapeError:
        EngineRequest.of("local", document)


def settings(data: bytes) -> None:
    """The settings of the owner as JSON, of any computation."""
    name, text = chosen(data, names())
    config = decode_settings(load(name), text.decode("utf-8", "replace"))
    assert type(config).from_input(config.settings()) == config


def journal(data: bytes) -> None:
    """Files that a site left for itself: receipt, answer, list of files, sealed secret."""
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, ".cape", "00")
        folder.mkdir(parents=True)
        for path in (Path(top, ".cape", "receipt.jsonl"), folder / "given.json",
                     folder / "vault-x.1"):  # fmt: skip
            path.write_bytes(data)
        kept = FileStore(Path(top), Path(top), "x")
        for read in (
            lambda: kept.resume("00", bytes(32), 2), kept.receipt,
            kept.read_join, kept.replies,
            lambda: kept.answered(1, "q"),
            lambda: kept.secret("x"), lambda: kept.charge({"a": 1}),
        ):  # fmt: skip
            try:
                read()
            except CapeError:
                continue


def policy(data: bytes) -> None:
    """The site's own policy."""
    with tempfile.TemporaryDirectory() as top:
        Path(top, "p.toml").write_bytes(data)
        read = read_policy(SitePlaces(), Path(top), {"policy": "p.toml"}, "x")
        again = read.tightened("x", read)
        assert again.tightened("x", read) == again
        named = {
            "allowed_owners": list(read.allowed_owners),
            "max_run": [list(pair) for pair in read.max_run],
        }
        assert read.with_mapped("x", named).max_run == read.max_run[:1]


def identity(data: bytes) -> None:
    """Key file and list of pinned keys."""
    with tempfile.TemporaryDirectory() as top:
        one, _, other = data.partition(b"\0")
        Path(top, "identity_key").write_bytes(one)
        Path(top, "roster.json").write_bytes(other)
        IdentityFiles(folders=(Path(top),)).read("x")


def known_sites(data: bytes) -> None:
    """The list of keys that a site met: what is believed once is believed again."""
    with tempfile.TemporaryDirectory() as top:
        Path(top, "known_sites.jsonl").write_bytes(data)
        keys = KnownSites(home=Path(top))
        keys.secret("x", b"0" * 32)
        shown = {"x": b"0" * 32, "y": b"1" * 32}
        assert keys.known("x", shown, "run") == keys.known("x", shown, "other run")


def manifest(data: bytes) -> None:
    """A table of runs, and what it makes of a folder."""
    suffix, text = chosen(data, (".csv", ".tsv"))
    with tempfile.TemporaryDirectory() as top:
        Path(top, f"manifest{suffix}").write_bytes(text)
        Path(top, "sub-1.npy").write_bytes(b"x")
        findings = Findings("x")
        rows = read_manifest(Path(top), f"manifest{suffix}", findings, OwnWords())
        assert rows or findings.listing()
        config: Config = load("capedjica").config.from_input(
            {"epsilon": 1.0, "delta": 1e-5, "feature_space": "matrix"}
        )
        discover(Path(top), {}, config, findings)


def numbers(data: bytes) -> None:
    """A matrix in text."""
    delimiter, text = chosen(data, (",", "\t"))
    _, values = read_text_matrix(text, delimiter)
    assert values.ndim == 2


def matrix(data: bytes) -> None:
    """An array file, and its header alone."""
    suffix, content = chosen(data, (".npy", ".npz", ".mat"))
    with tempfile.TemporaryDirectory() as top:
        path = Path(top, f"sub-1{suffix}")
        path.write_bytes(content)
        run = SiteRun(path=path, name=path.name)
        outline = read_matrix(run, "feature_by_time", headers_only=True)
        series = read_matrix(run, "feature_by_time")
        assert series.values.ndim == 2
        assert series.values.shape == outline.values.shape


def image(data: bytes) -> None:
    """A NIfTI image, plain or compressed, with and without a grid."""
    way, content = chosen(data, range(4))
    with tempfile.TemporaryDirectory() as top:
        path = Path(top, "sub-1.nii.gz" if way & 1 else "sub-1.nii")
        path.write_bytes(gzip.compress(content, 1) if way & 1 else content)
        series = read_image(
            SiteRun(path=path, name=path.name, trust_grid=True), grid_of(SPACE) if way & 2 else None
        )
        assert series.values.shape[0] in (0, SPACE.n_features)


def mask(data: bytes) -> None:
    """A mask or atlas in the site's folder."""
    kind, content = chosen(data, ("mask", "atlas"))
    given = {"epsilon": 1.0, "delta": 1e-5, "feature_space": kind}
    config: Config = load("capedjica").config.from_input(
        given | ({"mask": "file"} if kind == "mask" else {})
    )
    with tempfile.TemporaryDirectory() as top:
        Path(top, f"{kind}.nii").write_bytes(content)
        findings = Findings("x")
        space = read_space(config, Path(top), findings)
        assert space is not None or findings.listing()


def labels(data: bytes) -> None:
    """Packed labels of a peer."""
    found = SPACE.outline().filled(data.decode("latin-1"))
    assert found.digest == SPACE.digest


def ledger(data: bytes) -> None:
    """Entries of a ledger."""
    document = wire.loads(data)
    if isinstance(document, list):
        read_entries(document)


def secrets(data: bytes) -> None:
    """Shares, keys, signatures and sealed values of any bytes."""
    for read in (
        lambda: shamir.read_share(data),
        lambda: shamir.recover({1: data[:66], 2: data[66:132]}, threshold=2),
        lambda: private_key_from_bytes(data),
        lambda: keys.verify_signature(data[:32], b"", data[32:96], site="x"),
        lambda: keys.open_sealed(bytes(32), data, context=b""),
    ):
        try:
            read()
        except CapeError:
            continue


def side_file(data: bytes) -> None:
    """A working file: what is damaged is lost, never an error."""
    with tempfile.TemporaryDirectory() as top:
        store = FileStore(Path(top), Path(top), "x")
        store.arrays_path("a").write_bytes(data)
        store.arrays("a", "k")


def references(data: bytes) -> None:
    """Names of files in a message, and the words of a drop-out."""
    with tempfile.TemporaryDirectory() as top:
        Path(top, "f").write_bytes(data)
        document = wire.loads(data)
        documents.inline(document, Path(top))
        read_drop(str(document), sites=["a"], phases=["join", "b"])


def pieces(data: bytes) -> None:
    """An array that came as a file beside its message: the right one, of any bytes and shape."""
    sizes, content = chosen(data, ([len(data) // 8], [-1], [1 << 40], [2, 3], [], [True], 7))
    with tempfile.TemporaryDirectory() as top:
        digest = hashlib.sha256(content).hexdigest()
        name = f"{'0' * 16}-1-pca-1-{digest[:16]}.bin"
        Path(top, name).write_bytes(content)
        reference = {"file": name, "sha256": digest, "shape": sizes}
        whole = documents.inline(
            json.loads(_envelope({"total": reference, "refused": False})), Path(top)
        )
        read = decode_envelope(whole, Masked, broadcast=False)
        assert read.body.total.tobytes() == content


def all_runs(data: bytes) -> None:
    """The site's ledger of all runs: as it is, and with every line chained to the one before."""
    try:
        read_lines(data.split(b"\n"))
    except CapeError:
        pass
    lines: list[bytes] = []
    for line in data.split(b"\n")[:50]:
        document = wire.loads(line)
        if isinstance(document, dict):
            previous = hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST_LINK
            chained = {**document, "v": 1, "seq": len(lines) + 1, "prev": previous}
            lines.append(json.dumps(chained).encode())
    spending = read_lines(lines)
    for run in spending.runs:
        total = spending.of(run)
        assert total.epsilon is None or total.epsilon >= 0.0


def setup(data: bytes) -> None:
    """What a finished simulation says of itself, for `cape rerun`."""
    with tempfile.TemporaryDirectory() as top:
        Path(top, SETUP_FILE).write_bytes(data)
        read = read_setup(Path(top))
        read.write(Path(top))
        assert read_setup(Path(top)) == read


class Connection:
    """A websocket of the engine that holds what it was given, and keeps what it is sent."""

    def __init__(self, data: bytes) -> None:
        parts = data.split(b"\0\0")
        self._frames = iter([_frame_of(part) for part in parts])
        self.sent: list[str] = []

    async def recv(self) -> str | bytes:
        return next(self._frames, b"")

    async def send(self, frame: str) -> None:
        self.sent.append(frame)

    async def close(self) -> None:
        self._frames = iter(())

    async def __aiter__(self) -> AsyncIterator[str | bytes]:
        for frame in self._frames:
            yield frame


def _frame_of(part: bytes) -> str | bytes:
    return part[1:] if part[:1] == b"b" else part[1:].decode("utf-8", "replace")


class Program:
    """Stands for the process that version 1 starts."""

    returncode = 0

    async def communicate(self, given: bytes) -> tuple[bytes, bytes]:
        try:
            parse_document(given)
        except CapeError as err:
            self.returncode = 1
            return b"", err.public.encode()
        return given, b""


async def _started(*command: str, **streams: int) -> Program:
    assert Path(command[1]).name in ("local.py", "remote.py")
    return Program()


def _answered(role: str, document: Mapping[str, Any], places: SitePlaces) -> bytes:
    EngineRequest.of(role, document)  # no further: paths of any bytes are not to be written to
    return wire.dumps({"output": dict(document["input"]), "cache": {}, "success": False})


def frames(data: bytes) -> None:
    """What comes over the websocket of the image, in both versions of the protocol."""
    connection = Connection(data)
    real = service.play, asyncio.create_subprocess_exec
    service.play, asyncio.create_subprocess_exec = _answered, _started  # type: ignore[assignment]
    try:
        with ThreadPoolExecutor(1) as worker:
            asyncio.run(service._serve_one(connection, worker))  # type: ignore[arg-type]
    finally:
        service.play, asyncio.create_subprocess_exec = real  # type: ignore[assignment]
    for frame in connection.sent:
        assert frame.isascii()
        assert json.loads(frame)["type"] in ("stdout", "stderr", "error", "close")


# -- where they begin -----------------------------------------------------------------------------


def _nifti(shape: tuple[int, ...] = (3, 3, 2, 2), *, second: bool = False) -> bytes:
    import nibabel as nib

    kind = nib.Nifti2Image if second else nib.Nifti1Image
    return kind(np.ones(shape, np.float32), np.diag([4.0, 4, 4, 1])).to_bytes()


def _npz(**arrays: Any) -> bytes:
    held = io.BytesIO()
    np.savez(held, **arrays)
    return held.getvalue()


def _npy(array: Any) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def _mat73() -> bytes:
    import h5py

    held = io.BytesIO()
    with h5py.File(held, "w", userblock_size=512) as file:
        file.create_dataset("X", data=np.ones((4, 3)), compression="gzip", chunks=(4, 3))
    return b"MATLAB 7.3 MAT-file".ljust(512) + held.getvalue()[512:]


def _mat() -> bytes:
    from scipy import io as scipy_io

    held = io.BytesIO()
    scipy_io.savemat(held, {"X": np.ones((3, 4))}, do_compression=True)
    return held.getvalue()


def _huge_npy() -> bytes:
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 9), }"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head) + 1) + head + b"\n" + bytes(64)


def _envelope(body: Any) -> bytes:
    return json.dumps(
        {"v": 1, "run": "0" * 32, "seq": 1, "phase": "pca", "round": 1, "config": "0" * 64,
         "body": body}
    ).encode()  # fmt: skip


def _state() -> bytes:
    computation = load("capemean")
    config = computation.config.from_input({"epsilon": 1.0, "delta": 1e-5})
    return wire.dumps(encode_run(start(computation.bind(config))))


def _lines(*documents: dict[str, Any]) -> bytes:
    return b"\n".join(json.dumps(document).encode() for document in documents)


_RUN = {
    "kind": "run", "run": "r", "dataset": "d", "people": ["a b", "c"], "computation": "capedjica",
    "date": "2026-01-01", "epsilon": 1.0, "delta": 1e-5, "promised": True, "key": "k",
}  # fmt: skip
_CHARGE = {"kind": "charge", "run": "r", "phase": "pca", "round": 1, "field": "t", "mu2": "1/9"}
_CALL = {
    "input": {}, "cache": {},
    "state": {
        "clientId": "a", "iteration": 1, "baseDirectory": "", "outputDirectory": "",
        "cacheDirectory": "", "transferDirectory": "",
    },
}  # fmt: skip
_SETUP = {
    "directory": "d", "through": "memory", "settings": {}, "policy": {}, "drops": [], "image": "",
    "memory": "",
}  # fmt: skip
_MASKED = {"total": {"base64": "AAAAAAAAAAA=", "shape": [1]}, "refused": False}
_KINDS = {kind: bytes([i]) for i, kind in enumerate(MESSAGES)}


@dataclass(frozen=True)
class Fuzzed:
    """A target and documents to begin with."""

    run: Target
    seeds: tuple[bytes, ...]


def _seeds_of_messages() -> tuple[bytes, ...]:
    golden = Path(__file__).parents[1] / "golden" / "messages_v1.json"
    known = {kind.__name__: first for kind, first in _KINDS.items()}
    stored = json.loads(golden.read_text(encoding="utf-8"))
    found = [known[name] + text.encode() for name, text in stored.items() if name in known]
    deep = b"[" * 900 + b"]" * 900
    return (*found, *(first + b'{"a":' + deep + b"}" for first in list(known.values())[:2]))


TARGETS: dict[str, Fuzzed] = {
    "message": Fuzzed(message, _seeds_of_messages()),
    "envelope": Fuzzed(
        envelope,
        (b"\0" + _envelope(_MASKED), b"\0" + b'{"body":' + b"[" * 900 + b"]" * 900 + b"}",
         b"\0" + _envelope({"file": "0" * 16 + "-1-a-1-" + "0" * 16 + ".bin", "sha256": "",
                            "shape": [1]})),
    ),
    "cache": Fuzzed(
        cache,
        (bytes([names().index("capemean")]) + _state(), b"\0[" + b"[" * 900 + b"]" * 901),
    ),
    "constant": Fuzzed(
        constant,
        (b"\1null", b"\0" + base64.b64encode(zlib.compress(bytes(10**8))),
         *(b"\1" + seed[1:] for seed in _seeds_of_messages() if seed[:1] == _KINDS[Roster])),
    ),
    "call": Fuzzed(
        call,
        (b'{"input":{},"cache":{},"state":{}}', b'{"a":{"body":{"version":"0.1.0"}}}',
         b'{"input":' + b"[" * 900 + b"]" * 900 + b"}"),
    ),
    "settings": Fuzzed(
        settings,
        (*(bytes([i]) + b'{"epsilon":1.0,"delta":1e-5,"tr":2.0,"private":true}'
           for i in range(len(names()))),
         b'\0{"epsilon":' + b"9" * 5000 + b"}", b"\0" + b"[" * 3000),
    ),
    "journal": Fuzzed(
        journal,
        (b'{"nonce":"00","seq":1,"request":"q","answer":{}}', b"[" * 3000 + b"]" * 3000,
         b'{"seq":1e999}', b'{"nonce":"00","request":"q","seq":' + b"9" * 5000 + b"}"),
    ),
    "policy": Fuzzed(
        policy,
        (b"min_subjects = 3\nveto = false\nmax_run = [[1.0, 1e-5]]\n", b"a = " + b"[" * 3000,
         b"min_subjects = " + b"9" * 5000, b"a = 0001-01-01T00:00:00+99:99",
         b"max_run = [[1e999, 1e-5]]"),
    ),
    "identity": Fuzzed(identity, (b"00" * 32 + b'\0{"x":"00"}', b"\xff\0[", b"0\0" + b"[" * 3000)),
    "known": Fuzzed(
        known_sites,
        (
            b"",
            b'{"date":"d","key":"' + b"31" * 32 + b'","run":"r","site":"y","v":1}\n',
            b'{"date":"d","key":"31","run":"","site":"x","v":1}\n{"date"',
            b'{"site":"x","site":"y"}\n',
        ),
    ),
    "manifest": Fuzzed(
        manifest,
        (b"\0file,participant_id,tr\nsub-1.npy,1,2.0\n", b'\0file,tr\n"a\nb",1\n',
         b"\1file\ttr\na\t1e400\n",
         b"\0file\n" + b"x" * 200_000 + b"\n", b'\0file,n_dummy\na,1e300\n', b"\0\0\n"),
    ),
    "numbers": Fuzzed(
        numbers, (b"\0a,b\n1,2\n3,4\n", b"\0a\n" + b"1" * 140_000 + b"\n", b'\0"a\n1')
    ),
    "matrix": Fuzzed(
        matrix,
        (b"\0" + _npy(np.ones((3, 4))), b"\1" + _npz(X=np.ones((3, 4), np.float32)),
         b"\0" + _huge_npy(), b"\1" + _npz(Y=np.ones(2)),
         b"\2" + _mat(), b"\2" + _mat73()),
    ),
    "image": Fuzzed(
        image,
        tuple(bytes([way]) + _nifti(second=second) for way in range(4) for second in (False, True)),
    ),
    # The last: an affine of which the reader's axes cannot be told (found by fuzzing).
    "mask": Fuzzed(
        mask,
        (b"\0" + _nifti((3, 3, 2)), b"\1" + _nifti((3, 3, 2)), zlib.decompress(base64.b64decode(
            "eNpjjGFkIAowgyETAyMUogIBBgUw3WAPxA5I2B4Vb3AG0m8ZBg1gwiPX4PDrP4oAAGBsC7Q="))),
    ),
    "labels": Fuzzed(labels, (SPACE.packed.encode(), b"eJw=", b"\xff")),
    "ledger": Fuzzed(
        ledger,
        (b"[]", b'[{"phase":"a","round":1,"field":"b","kind":"ball","d":1,"log2_gamma":1,'
         b'"C_int":100,"Delta_int":200,"s2":2000000,"h":1}]'),
    ),
    "secrets": Fuzzed(secrets, (bytes(32), b"\xff" * 66, bytes(132), bytes(96))),
    "side_file": Fuzzed(side_file, (_npz(head=np.array('{"key":"k","labels":[]}')), _huge_npy())),
    "references": Fuzzed(
        references,
        (_envelope({"file": "0" * 16 + "-1-a-1-" + "0" * 16 + ".bin", "sha256": "", "shape": [1]}),
         b'"a@b:1"', b'"a@b:' + b"9" * 5000 + b'"'),
    ),
    "pieces": Fuzzed(
        pieces, (b"\0" + bytes(16), b"\1" + bytes(8), b"\2" + bytes(8), b"\6x", b"\3x")
    ),
    "all_runs": Fuzzed(
        all_runs,
        (
            _lines(_RUN, _CHARGE, {**_RUN, "run": "s", "people": ["b"]}, {**_CHARGE, "run": "s"},
                   {"kind": "unpromised", "run": "s"}),
            _lines(_RUN, {**_CHARGE, "mu2": "infinite"}),
            _lines(_RUN, {**_CHARGE, "mu2": "1e4000000"}),
            _lines(_RUN, {**_CHARGE, "mu2": "9" * 5000}), _lines({**_RUN, "people": [""]}),
            _lines({**_RUN, "people": [" a"]}),
            _lines(_RUN, {**_CHARGE, "round": 1.0}).replace(b"1.0", b"1e999"),
            _lines({"kind": "charge", "run": []}), b"[" * 3000 + b"]" * 3000,
        ),
    ),
    "setup": Fuzzed(
        setup,
        (
            _lines(_SETUP), _lines({**_SETUP, "policy": {"veto": 1}}), b"[" * 3000 + b"]" * 3000,
            _lines({**_SETUP, "drops": [1]}),
            _lines({**_SETUP, "settings": {"epsilon": 1}}).replace(b": 1", b": 1e999"),
        ),
    ),
    "frames": Fuzzed(
        frames,
        (
            b"t" + _lines({"mode": "local", "data": _CALL}),
            b"b" + _lines({"mode": "x", "data": _CALL}),
            b"t" + _lines({"command": "python", "args": ["/computation/local.py"]}) + b"\0\0b"
            + _lines(_CALL) + b"\0\0b",
            b"t" + _lines({"command": "sh", "args": [["/computation/local.py"]]}),
            b"t" + _lines({"command": "python", "args": [{}]}), b"t" + b"[" * 3000, b"", b"b\xff",
            b"t" + _lines({"mode": ["local"], "data": {}}), b't{"mode":"local","data":{"a":1e999}}',
        ),
    ),
}  # fmt: skip


def attempt(name: str, data: bytes) -> None:
    """Run a target on some bytes; what it properly refuses is no finding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that overflow are judged afterwards
            TARGETS[name].run(data)
    except REFUSED:
        return
