"""The type of a file by its first bytes, since its name may be wrong."""

import struct
from pathlib import Path
from typing import Final

import numpy as np

from cape.arrays import MAX_KEPT_BYTES
from cape.data.issues import IssueCode, UnusableFile

IMAGE_SUFFIXES: Final = (".nii", ".nii.gz", ".img")
MATRIX_SUFFIXES: Final = (".npy", ".npz", ".csv", ".tsv", ".mat", ".1d", ".txt")
# By feature space; every other one is of images.
CIFTI_SUFFIX: Final = {"grayordinates": ".dtseries.nii", "parcels": ".ptseries.nii"}
CIFTI_SERIES: Final = tuple(CIFTI_SUFFIX.values())
CIFTI_MAPS: Final = (".dscalar.nii", ".pscalar.nii")
TEXT_SUFFIXES: Final = (".csv", ".tsv", ".1d", ".txt")
# Bytes of a table of one run: as text it takes a few times more than in memory.
MAX_TABLE_BYTES: Final = 2**30
PROMISED: Final = {
    **dict.fromkeys((".nii", ".img", *CIFTI_SERIES), "NIfTI"),
    **dict.fromkeys(TEXT_SUFFIXES, "text"),
    **{".nii.gz": "gzip", ".npy": "NumPy array", ".npz": "zip", ".mat": "MATLAB 5"},
}

# Codes of MATLAB 4 for byte order, type and kind of a matrix; letters of its name.
MAT4_TYPES: Final = frozenset(
    1000 * order + 10 * kind + full for order in (0, 1) for kind in range(6) for full in range(3)
)
MAX_MAT4_NAME: Final = 64

# CIFTI files are NIfTI-2: only name and intent code tell them apart.
_CIFTI = ("dtseries", "dscalar", "dlabel", "ptseries", "pscalar", "dconn", "pconn")
_SURFACE = (".gii", ".gii.gz", *(f".{kind}.nii" for kind in _CIFTI))
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
    *((bytes((0x80, protocol)), "pickle") for protocol in (2, 3, 4, 5)),
)


def suffixes_of(feature_space: str) -> tuple[str, ...]:
    """Return the endings of the files that a feature space is read from."""
    if feature_space in CIFTI_SUFFIX:
        return (CIFTI_SUFFIX[feature_space],)
    if feature_space == "atlas":  # images, or series of its parcels
        return (*IMAGE_SUFFIXES, *MATRIX_SUFFIXES)
    return MATRIX_SUFFIXES if feature_space == "matrix" else IMAGE_SUFFIXES


def sniff(head: bytes) -> str:
    """Return the type of a file by its first 352 bytes or more, or "unknown"."""
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    # NIfTI has its magic word only at byte 344; the size of the header stands first, in the byte
    # order of the computer that wrote it: 348 for NIfTI-1, 540 for NIfTI-2.
    sizes = {order: struct.unpack(f"{order}i", head[:4])[0] for order in "<>" if len(head) >= 4}
    if {348, 540} & set(sizes.values()):
        return "NIfTI"
    if head[128:132] == b"DICM":
        return "DICOM"
    if head and all(byte in b"\t\n\r" or 32 <= byte < 127 for byte in head):
        return "text"
    return "unknown"


def content_word(dtype: np.dtype[np.generic]) -> str:
    """Return a word for the content of an array without real numbers."""
    words = {"c": "complex numbers", "b": "truth values", "M": "dates", "m": "durations"}
    return words.get(dtype.kind, "text" if dtype.kind in "SU" else "no numbers")


def _is_mat4(head: bytes) -> bool:
    # Five whole numbers: type, rows, columns, whether complex, letters of the name; then the name.
    if len(head) < 21:
        return False
    for order in "<>":
        kind, rows, columns, twice, letters = struct.unpack(f"{order}5i", head[:20])
        sizes = min(rows, columns) >= 0 and 0 < letters <= MAX_MAT4_NAME and twice in (0, 1)
        if kind in MAT4_TYPES and sizes and head[20:21].isalpha():
            return True
    return False


def suffix_of(name: str) -> str:
    """Return the ending of a data file that `PROMISED` knows, or its last ending."""
    lowered = name.lower()
    suffixes = [suffix for suffix in PROMISED if lowered.endswith(suffix)]
    return max(suffixes, key=len) if suffixes else Path(lowered).suffix


def check_type(path: Path, accepted: tuple[str, ...], *, cifti: bool = False) -> None:
    """Raise `UnusableFile` if empty, a pointer, not `accepted` or not the type of its name."""
    suffix = suffix_of(path.name)
    if not cifti:
        check_no_surface(path.name)
    size = path.stat().st_size
    if size == 0:
        raise UnusableFile(IssueCode.FILE_EMPTY, "0 bytes")
    # Array files and tables are read whole; images volume by volume.
    most = MAX_TABLE_BYTES if suffix in TEXT_SUFFIXES else MAX_KEPT_BYTES
    if size > most and suffix not in IMAGE_SUFFIXES:
        raise UnusableFile(IssueCode.FILE_TOO_LARGE, f"{size} bytes", most=most)
    with path.open("rb") as stream:
        head = stream.read(512)
    kind = sniff(head)
    # Checked before the ending: a pointer has the name of the file that it replaces.
    if kind.endswith("pointer"):
        raise UnusableFile(IssueCode.FILE_POINTER, f"a {kind}")
    if suffix not in accepted:
        observed = f"ends in {suffix or 'nothing'}, looks like {kind}"
        usable = " or ".join(accepted)
        raise UnusableFile(IssueCode.FILE_TYPE_UNUSABLE, observed, accepted=usable)
    if kind == "pickle":
        raise UnusableFile(IssueCode.ARRAY_PICKLED, "a pickle")
    if suffix == ".img":
        header = path.with_suffix(".hdr")
        if not header.is_file():
            raise UnusableFile(IssueCode.PAIR_WITHOUT_HEADER, f"no {header.name}")
        with header.open("rb") as stream:
            kind = sniff(stream.read(540))
    if suffix in TEXT_SUFFIXES and kind == "unknown":
        kind = "text"  # with letters beyond ASCII; its decoding is checked by the reader
    if suffix == ".mat" and kind in ("MATLAB 7.3", "HDF5"):
        return
    if suffix == ".mat" and kind == "unknown" and _is_mat4(head):
        raise UnusableFile(IssueCode.MAT_OLD, "MATLAB 4")
    if kind != PROMISED[suffix]:
        observed = f"named {suffix}, is {kind}"
        raise UnusableFile(IssueCode.FILE_TYPE_OTHER, observed, promised=PROMISED[suffix])


def check_no_surface(name: str) -> None:
    """Raise `UnusableFile` if a name is that of a surface or CIFTI file."""
    if name.lower().endswith(_SURFACE):
        raise UnusableFile(IssueCode.SURFACE_DATA, "named as a surface or CIFTI file")


def visible(path: Path) -> bool:
    """Tell whether a file of a folder counts, by its name and its type."""
    # macOS leaves ._sub-01.nii.gz beside each copied image.  Broken links (DataLad's), folders and
    # pipes with the name of data count, so that a later check reports them.
    named = path.name.lower().endswith((*IMAGE_SUFFIXES, *MATRIX_SUFFIXES))
    return not path.name.startswith(".") and (path.is_file() or path.is_symlink() or named)
