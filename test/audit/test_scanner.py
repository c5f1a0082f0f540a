"""The scanner finds what is planted: every encoding, every wrapping; and nothing where none is."""

import base64
import gzip
import io
import json
import zipfile
import zlib

import numpy as np
import pytest

from support import scanner

VALUES = np.array([31337.135791113, -4.0404e-3 + 1.2345678e-9, 271828.182845904])
INTEGERS = np.array([3133713579, -(2**24) - 7777, 987654321])
WORDS = "sub-zqCanary07"
KEY = bytes.fromhex("8c07034fba5edc336dc1a29375d6b964e65aa01d0931f12bb9eae45be9e55f0b")

CANARIES = [
    scanner.vector("voxels", VALUES),
    scanner.vector("sums", INTEGERS),
    scanner.text("subject", WORDS),
    scanner.secret("key", KEY),
]


def png_like(raw: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n\x00\x00IDAT" + zlib.compress(raw) + b"\x00IEND"


def archive(raw: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("inside.bin", raw)
    return held.getvalue()


LOOKED = scanner.Scanner(CANARIES)
FILLER = bytes(range(256)) * 3
PLANTS: dict[str, tuple[str, bytes]] = {}
for _form in scanner.BINARY:
    _values = INTEGERS if "i4" not in _form else INTEGERS // 4
    if "f" in _form:
        PLANTS[_form] = ("voxels", VALUES.astype(_form).tobytes())
    elif "i8" in _form:
        PLANTS[_form] = ("sums", INTEGERS.astype(_form).tobytes())
for _style in ("repr", ".17g", ".9f", ".6g", ".5e", ".4g", ".12g"):
    for _between in (",", ", ", "\t", " ", "\n"):
        _written = [repr(float(v)) if _style == "repr" else format(v, _style) for v in VALUES]
        PLANTS[f"decimal {_style} {_between!r}"] = ("voxels", _between.join(_written).encode())
PLANTS["one number in a sentence"] = ("voxels", f"the value {VALUES[0]!r} is".encode())
PLANTS["one number of single precision"] = ("voxels", f"{float(np.float32(VALUES[2]))!r}".encode())
PLANTS["one number in exponents"] = ("voxels", format(VALUES[1], ".14e").encode())
PLANTS["integers"] = ("sums", json.dumps(INTEGERS.tolist()).encode())
for _encoding in ("utf-8", "utf-16-le", "utf-16-be", "utf-16"):
    PLANTS[f"words {_encoding}"] = ("subject", f"x{WORDS}y".encode(_encoding))
PLANTS["words in lower case"] = ("subject", WORDS.lower().encode())
PLANTS["words in JSON escapes"] = (
    "subject", ('{"a": "' + "".join(f"\\u{ord(c):04x}" for c in WORDS) + '"}').encode(),
)  # fmt: skip
PLANTS["key"] = ("key", KEY)

WRAPPINGS = {
    "as it is": lambda raw: raw,
    "inside": lambda raw: FILLER + raw + FILLER,
    "hex": lambda raw: raw.hex().encode(),
    "HEX in JSON": lambda raw: json.dumps({"a": raw.hex().upper()}).encode(),
    "base64": base64.b64encode,
    "base64 shifted by 1": lambda raw: b'{"a":"' + base64.b64encode(b"1" + raw + b"12") + b'"}',
    "base64 shifted by 2": lambda raw: b'{"a":"' + base64.b64encode(b"12" + raw + b"1") + b'"}',
    "base64 for addresses": lambda raw: base64.urlsafe_b64encode(b"\xff\xfe" + raw),
    "gzip": lambda raw: gzip.compress(FILLER + raw),
    "zlib inside": lambda raw: b"head" + zlib.compress(raw + FILLER) + b"tail",
    "zip": archive,
    "picture": png_like,
    "picture in a page": lambda raw: b"<img src='data:;base64," + base64.b64encode(png_like(raw)),
    "gzip in base64 in JSON": lambda raw: json.dumps(
        {"a": base64.b64encode(gzip.compress(raw)).decode()}
    ).encode(),
}


SHORT = ("inside", "gzip in base64 in JSON")


@pytest.mark.parametrize(
    "wrapping", [pytest.param(w, marks=[pytest.mark.trust] * (w not in SHORT)) for w in WRAPPINGS]
)
def test_every_plant_is_found(wrapping) -> None:
    for plant, (name, raw) in PLANTS.items():
        report = LOOKED.look("document", WRAPPINGS[wrapping](raw))
        assert name in {hit.canary for hit in report.hits}, plant


def test_nothing_is_found_where_nothing_is() -> None:
    rng = np.random.default_rng(1)
    looked = scanner.Scanner(CANARIES)
    assert looked.patterns > 200
    for raw in (
        rng.bytes(2**18),
        json.dumps(rng.standard_normal(8_000).tolist()).encode(),
        base64.b64encode(rng.bytes(2**16)),
        json.dumps(rng.integers(-(2**40), 2**40, 8_000).tolist()).encode(),
        b"",
        b"1234567",
    ):
        assert looked.look("document", raw).hits == []


def test_a_folder_is_looked_through_with_the_names_of_its_files(tmp_path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.npz").write_bytes(archive(KEY))
    (tmp_path / f"{WORDS}.txt").write_text("nothing")
    report = scanner.scan(tmp_path, CANARIES)
    assert {hit.canary for hit in report.hits} == {"key", "subject"}
    assert report.documents >= 3
    only = scanner.scan(tmp_path, CANARIES, leaves=lambda path: path.suffix == ".none")
    assert (only.hits, only.documents) == ([], 0)


def test_windows_of_an_array_are_found_along_both_axes() -> None:
    X = np.random.default_rng(2).standard_normal((6, 9)) * 1e3
    looked = scanner.Scanner(scanner.windows("X", X))
    assert looked.look("rows", np.ascontiguousarray(X).tobytes()).hits
    assert looked.look("columns", np.ascontiguousarray(X.T).astype("<f4").tobytes()).hits
    assert not looked.look("other", np.ascontiguousarray(X + 1.0).tobytes()).hits
    assert scanner.windows("zeros", np.zeros((5, 5))) == []
    assert scanner.windows("small", np.arange(50).reshape(5, 10)) == []
