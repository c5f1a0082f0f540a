"""Bombs, odd entries and broken archives, beside the table of `test_bad_studies`.

Each is named by its code at the site, nobody else is blamed for it, and none of them takes more
memory than a few times its size or hangs.

Belongs to `cape/data/images.py`.
"""

import io
import os
import socket
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from cape.data.pipeline import inspect_site
from cape.errors import CapeError, ConsortiumError
from cape.protocol import wire
from cape.protocol.join import compare_cards
from cape.protocol.messages import FeatureSpace, SiteCard
from cape.settings.config import Config
from cape.settings.documents import parse_json

MATRIX = replace(
    Config(epsilon=1.0, delta=1e-5), feature_space="matrix", min_timepoints=5, standardize="demean"
)
IMAGES = replace(Config(epsilon=1.0, delta=1e-5), mask="MNI152-10mm", min_timepoints=5)
PEAK = 300 * 2**20
"""Bytes: the largest bomb below would take 8 GB."""

X = np.random.default_rng(0).standard_normal((6, 40))


def npy(array: np.ndarray, **header: object) -> bytes:
    """A .npy file, with a header that says something else if wanted."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    if not header:
        return buffer.getvalue()
    text = repr({"descr": "<f8", "fortran_order": False, "shape": array.shape, **header})
    padded = text.encode("latin-1") + b" " * (117 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(padded)) + padded + array.tobytes()


def packed(name: str, content: bytes, **info: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


def zeros(n_bytes: int, head: bytes) -> bytes:
    """Deflated: `head`, then zeros, made without holding them."""
    work = zlib.compressobj(9, zlib.DEFLATED, -15)
    out = work.compress(head)
    block = bytes(2**20)
    for _ in range(n_bytes // len(block)):
        out += work.compress(block)
    return out + work.flush()


def npz_bomb(path: Path) -> None:
    """A .npz of 750 kB whose X has 750 MB."""
    n = 750 * 2**20
    head = npy(np.zeros((0, 0)), shape=(6, n // 48))[:128]
    body, size = zeros(n, head), n + len(head)
    name = b"X.npy"
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 33, 0, len(body), size, 5, 0)
    central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 8, 0, 33, 0, len(body), size,
                          5, 0, 0, 0, 0, 0, 0)  # fmt: skip
    start = len(local) + 5 + len(body)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central) + 5, start, 0)
    path.write_bytes(local + name + body + central + name + end)


def image_head(shape: tuple[int, ...], dtype: Any = np.float32) -> bytes:
    header = nib.Nifti1Header()
    header.set_data_dtype(dtype)
    header.set_data_shape(shape)
    affine = np.diag([10.0, 10.0, 10.0, 1.0])
    header.set_sform(affine, code=4)
    header["vox_offset"] = 352
    header["magic"] = b"n+1"
    return header.binaryblock + bytes(4)


def gzip_bomb(path: Path) -> None:
    """Zeros as .nii.gz: 1.3 GB of volumes in 1.3 MB."""
    n = 1300 * 2**20
    body = zeros(n, image_head((21, 25, 20, n // (21 * 25 * 20 * 4))))
    path.write_bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + body + struct.pack("<II", 0, n & 0xFFFFFFFF))


def sparse(path: Path, head: bytes, size: int) -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)


def socket_at(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    before = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        listener.bind(path.name)
    finally:
        os.chdir(before)
        listener.close()


Write = Callable[[Path], object]

# name: file, what it is, code of its finding, a part of the private text
OF_MATRICES: dict[str, tuple[str, Write, str, str]] = {
    "npz bomb": ("a.npz", npz_bomb, "111", "a.npz"),
    "npz without numpy": ("a.npz", lambda p: p.write_bytes(packed("X.npy", b"none")), "111", ""),
    "npz of nothing": ("a.npz", lambda p: p.write_bytes(packed("x/", b"")), "1", ""),
    "npz whose X is one number": ("a.npz", lambda p: np.savez(p, X=np.float64(3)), "140", "()"),
    "npz with an object": ("a.npz", lambda p: np.savez(p, X=np.array([[{}]])), "140", "never"),
    "npz with a wrong check sum": (
        "a.npz", lambda p: p.write_bytes(packed("X.npy", npy(X)).replace(
            struct.pack("<I", zlib.crc32(npy(X))), b"\1\2\3\4")), "111", ""),
    "npy with more rows than bytes": (
        "a.npy", lambda p: p.write_bytes(npy(X, shape=(6, 10**9))), "111", "bytes"),
    "npy with a negative axis": (
        "a.npy", lambda p: p.write_bytes(npy(X, shape=(-6, -40))), "111", ""),
    "npy with a header of code": (
        "a.npy", lambda p: p.write_bytes(npy(X, shape="__import__('os')")), "111", ""),
    "npy of another version": (
        "a.npy", lambda p: p.write_bytes(b"\x93NUMPY\x09\x00" + npy(X)[8:]), "111", ""),
    "npy without time": ("a.npy", lambda p: np.save(p, np.zeros((6, 0))), "129", "0 time points"),
    "npy of long doubles past float32": (
        "a.npy", lambda p: np.save(p, np.full((6, 40), np.longdouble("1e4000"))), "125", "NaN"),
    "npy that grows with holes": (
        "a.npy", lambda p: sparse(p, npy(X, shape=(6, 2**30)), 48 * 2**30 + 128), "109", "at most"),
    "csv that grows with holes": (
        "a.csv", lambda p: sparse(p, b"a,b\n1,2\n", 2**31), "109", "at most"),
    "csv of zero bytes": ("a.csv", lambda p: p.write_bytes(b"a,b\n\0\0,1\n2,3\n"), "1", "a.csv"),
    "csv with a quote that never ends": (
        "a.csv", lambda p: p.write_text('a,b\n"1,2\n3,4\n'), "138", "line 2"),
    "csv of one endless cell": (
        "a.csv", lambda p: p.write_text("a,b\n" + "9" * 200_000 + ",1\n"), "1", "a"),
    "a socket with the name of data": ("a.npy", socket_at, "103", "a.npy"),
    "a link to a device": ("a.npy", lambda p: p.symlink_to("/dev/zero"), "102", "a.npy"),
}  # fmt: skip
OF_IMAGES: dict[str, tuple[str, Write, str, str]] = {
    "nii.gz bomb": ("a.nii.gz", gzip_bomb, "111", "a.nii.gz"),
    "nii of 32767 volumes in holes": (
        "a.nii", lambda p: sparse(p, image_head((21, 25, 20, 32767)), 352 + 42000 * 32767),
        "1", ""),
    "a sidecar of 100 MB": ("a.nii", lambda p: _with_sidecar(p, b" " * 10**8), "1", "a.nii"),
}  # fmt: skip


def _with_sidecar(path: Path, text: bytes) -> None:
    image = nib.Nifti1Image(np.ones((21, 25, 20, 9), np.float32), np.diag([10.0, 10, 10, 1]))
    path.write_bytes(image.to_bytes())
    path.with_suffix(".json").write_bytes(text)


CASES = [
    pytest.param(config, *case, id=name)
    for config, cases in ((MATRIX, OF_MATRICES), (IMAGES, OF_IMAGES))
    for name, case in cases.items()
]


@pytest.mark.parametrize(("config", "name", "write", "code", "part"), CASES)
def test_a_bad_file_is_named_and_takes_no_memory(tmp_path, config, name, write, code, part) -> None:
    site = tmp_path / "site"
    site.mkdir()
    # A name of its own: an entry of the list, not a guess.
    write(site / f"sub-{name}")
    tracemalloc.start()
    try:
        found = inspect_site(site, {}, config, site="B")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK
    texts = [f.private for f in found.findings if f.code[6:].startswith(code)]
    assert texts, [f.private for f in found.findings]
    assert any(part in text for text in texts)
    assert "SUBJECT_BREAKS" not in found.error.detail
    assert "Traceback" not in found.error.detail
    assert name not in found.error.public


SPACE = FeatureSpace.of_matrix(6)


def cards(**changed: object) -> dict[str, SiteCard]:
    given = {"protocol": 1, "version": "1", "computation": "toy", "settings": "{}", "space": SPACE,
             "n_subjects": 5, "noise": "os"}  # fmt: skip
    return {
        site: SiteCard(**{**given, "nonce": f"{k:032x}", **(changed if site == "B" else {})})
        for k, site in enumerate("ABC")
    }


@pytest.mark.parametrize("number", [0, -1, -(2**40)])
def test_a_site_of_nobody_is_refused(number) -> None:
    with pytest.raises(ConsortiumError, match="E204 number of subjects differs: B: none"):
        compare_cards(cards(n_subjects=number), MATRIX)


def test_what_a_site_calls_itself_reaches_no_screen_as_it_is() -> None:
    hostile = "1\x1b[2J\n\r\0​‮" + "x" * 10**6
    with pytest.raises(ConsortiumError) as caught:
        compare_cards(cards(version=hostile), MATRIX)
    text = caught.value.public
    assert len(text) < 600
    assert text.isascii()
    assert text.isprintable()
    assert "B has 1\\x1b[2J\\x0a\\x0d\\x00\\u200b\\u202exxx" in text


@pytest.mark.parametrize(
    "text",
    ['{"a": 1, "a": 2}', '{"b": {"a": 1, "a": 1}}', '[{"": 0, "": 0}]', b'{"a":1,"\\u0061":2}'],
)
def test_a_document_with_a_key_twice_is_none(text) -> None:
    with pytest.raises(CapeError, match="not JSON"):
        wire.loads(text)
    with pytest.raises(ValueError, match="a key stands twice"):
        parse_json(text)
    assert wire.loads('{"a": 1, "b": {"a": 2}}') == {"a": 1, "b": {"a": 2}}
