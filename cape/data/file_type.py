"""What a file really is, by its first bytes: a name promises nothing (rows 7, 8, 9, 40, 63)."""

from __future__ import annotations

import struct
from pathlib import Path

from cape.data.findings import Rejected

TABLES = (".csv", ".tsv")
SURFACE = (".gii", ".gii.gz", ".dtseries.nii", ".dscalar.nii", ".dlabel.nii", ".ptseries.nii",
           ".pscalar.nii", ".dconn.nii", ".pconn.nii")  # fmt: skip
PROMISED = {".nii": "NIfTI", ".nii.gz": "gzip", ".img": "NIfTI", ".npy": "NumPy array",
            ".npz": "zip", ".mat": "MATLAB 5", ".csv": "text", ".tsv": "text"}  # fmt: skip

_MAGIC = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x93NUMPY", "NumPy array"),
    (b"\x89HDF", "HDF5"),
    (b"MATLAB 5.0", "MATLAB 5"),
    (b"MATLAB 7.3", "MATLAB 7.3"),
    (b"version https://git-lfs", "Git-LFS pointer"),
    (b"/annex/objects", "DataLad pointer"),
    (b"../.git/annex", "DataLad pointer"),
    (b".git/annex", "DataLad pointer"),
    (b"\x80\x02", "pickle"),
    (b"\x80\x03", "pickle"),
    (b"\x80\x04", "pickle"),
    (b"\x80\x05", "pickle"),
)


def kind_of(head: bytes) -> str:
    """Return what a file is by its first 352 bytes or more ("unknown" if nothing fits)."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    if len(head) >= 4 and {348, 540} & {
        *struct.unpack("<i", head[:4]),
        *struct.unpack(">i", head[:4]),
    }:
        return "NIfTI"
    if head[128:132] == b"DICM":
        return "DICOM"
    if head and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        return "text"
    return "unknown"


def suffix_of(name: str) -> str:
    """Return the ending of a data file that `PROMISED` knows, or its last ending."""
    lowered = name.lower()
    known = [suffix for suffix in PROMISED if lowered.endswith(suffix)]
    return max(known, key=len) if known else Path(lowered).suffix


def check_contents(path: Path, accepted: tuple[str, ...]) -> None:
    """Raise `Rejected` for a file that is empty, a pointer or of another type than its name.

    Parameters
    ----------
    path : Path
        An existing file.
    accepted : tuple of str
        Endings that this feature space can use.
    """
    suffix = suffix_of(path.name)
    if path.name.lower().endswith(SURFACE):
        raise surface("named as a surface or CIFTI file")
    size = path.stat().st_size
    if size == 0:
        raise Rejected(
            7, "A file is empty", found="0 bytes", expected="an image or a matrix",
            fix="copy or convert it again", severity="X",
        )  # fmt: skip
    with path.open("rb") as stream:
        head = stream.read(512)
    kind = kind_of(head)
    if kind.endswith("pointer"):
        raise Rejected(
            8, "A file is a pointer, its content is not here",
            found=f"{kind}, first bytes {head[:24]!r}", expected="the content",
            fix="fetch the content first: git lfs pull, or datalad get",
        )  # fmt: skip
    if suffix not in accepted:
        raise Rejected(
            9, "A file is not of a type that this feature space can use",
            found=f"ends in {suffix or 'nothing'}, looks like {kind}",
            expected=" or ".join(accepted), fix="convert it, or leave it out",
        )  # fmt: skip
    if kind == "pickle":
        raise pickled("a pickle")
    if suffix == ".img":
        kind = _kind_of_pair(path)
    if suffix in TABLES and kind == "unknown":
        kind = "text"  # with letters beyond ASCII; its decoding is checked by the reader
    if suffix == ".mat" and kind in ("MATLAB 7.3", "HDF5"):
        return  # `cape.data.mat73`
    if kind != PROMISED[suffix]:
        raise Rejected(
            9, "A file is of another type than its name says",
            found=f"named {suffix}, is {kind}", expected=PROMISED[suffix],
            fix="convert or rename it",
        )  # fmt: skip


def _kind_of_pair(image: Path) -> str:
    """Return what the header beside an .img file is; row 9 without one."""
    header = image.with_suffix(".hdr")
    if not header.is_file():
        raise Rejected(
            9, "An .img file has no header beside it", found=f"no {header.name}",
            expected="a NIfTI pair, .hdr and .img", fix="copy both, or convert it to .nii.gz",
        )  # fmt: skip
    with header.open("rb") as stream:
        return kind_of(stream.read(540))


def surface(found: str) -> Rejected:
    """Return the verdict on surface and CIFTI files (row 63)."""
    return Rejected(
        63, "A file holds surface data", found=f"{found}",
        expected="volumetric images only in this version", fix="use the volumetric images",
    )  # fmt: skip


def pickled(found: str) -> Rejected:
    """Return the verdict on array files that hold Python objects (row 40)."""
    return Rejected(
        40, "An array file holds Python objects, which are never unpickled", found=found,
        expected="a plain array of numbers", fix="re-save as a float array",
    )  # fmt: skip
