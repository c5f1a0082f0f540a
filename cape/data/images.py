"""4-D NIfTI images, read volume by volume: only the voxels of the mask are ever kept.

The file is read to its end, which alone finds truncated and damaged files, and hashed on the way.
Rounding of affines is judged in mm at the corners of the grid, not number by number.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.arrays import MOST_PACKED
from cape.data.alignment import Placement, place
from cape.data.file_type import PROMISED, check_contents, kind_of, suffix_of, surface
from cape.data.files import IMAGE_SUFFIXES, RunFile
from cape.data.findings import Rejected
from cape.data.series import HashingReader, Note, Series, unread
from cape.data.space import Grid
from cape.data.volumes import Resampling, resample, smooth
from cape.feature_space import MOST_LABELS
from cape.frozen import dataclass

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

LONGEST_TR = 20.0
"""s; a larger number in a header of unknown units is taken as ms."""

_ALL_HEADER_BYTES = 540
AS_STORED = Resampling()

Picker = Callable[[npt.NDArray[np.generic]], Array]

_CIFTI_INTENTS = range(3000, 3100)
_LABEL_INTENT = 1002


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """How the voxels lie in the file: (x, y, z, t) after squeezing, offset and scaling."""

    shape: tuple[int, int, int, int]
    dtype: np.dtype[np.generic]
    offset: int
    slope: float
    inter: float


def read_image(run: RunFile, grid: Grid | None, how: Resampling = AS_STORED) -> Series:
    """Return an image as features by time.

    Parameters
    ----------
    run : RunFile
        The file.
    grid : Grid or None
        Where to look; None checks the file alone and returns no values.
    how : Resampling
        What the owner wants done to each volume.

    Raises
    ------
    Rejected
        Rows 7 to 17, 19, 63.
    """
    with _opened(run, grid, how) as image:
        values = _volumes(image, _picker(image.layout, image.placed, grid, how), grid)
        if image.compressed:
            while image.read(1 << 20):
                pass  # to the check sum at the end of the file
        digest = image.reader.finish()
    if image.pair:
        digest = hashlib.sha256(image.pair + bytes.fromhex(digest)).hexdigest()
    return _series(image, values, run, digest)


def read_image_header(run: RunFile, grid: Grid | None, how: Resampling = AS_STORED) -> Series:
    """Return what the header of an image says, with values that are `unread`; see `read_image`."""
    with _opened(run, grid, how) as image:
        n_features = 0 if grid is None else grid.sizes.size
    return _series(image, unread(n_features, image.layout.shape[3]), run, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opened:
    """An image whose header was read and placed; `read` goes on behind `head`."""

    reader: HashingReader
    read: Callable[[int], bytes]
    compressed: bool
    pair: bytes
    head: bytes
    header: Nifti1Header
    layout: _Layout
    placed: Placement
    notes: list[Note]


@contextmanager
def _opened(run: RunFile, grid: Grid | None, how: Resampling) -> Iterator[_Opened]:
    """Open an image, read its header and find the mask's voxels; row 10 if reading it breaks."""
    check_contents(run.path, IMAGE_SUFFIXES)
    compressed = run.path.name.lower().endswith(".gz")
    pair = run.path.with_suffix(".hdr").read_bytes() if suffix_of(run.path.name) == ".img" else b""
    with run.path.open("rb") as raw:
        reader = HashingReader(raw)
        stream = gzip.GzipFile(fileobj=reader, mode="rb") if compressed else reader
        try:
            head = pair[:_ALL_HEADER_BYTES] or stream.read(_ALL_HEADER_BYTES)
            header = _header(head, run.path)
            notes: list[Note] = []
            layout = _checked_layout(header, notes)
            _check_size(run.path, layout, MOST_PACKED if compressed else 1)
            placed = place(
                header, layout.shape[:3], grid, notes, trust=run.trust_grid, to_mask=how.to_mask
            )  # fmt: skip
            yield _Opened(
                reader=reader, read=stream.read, compressed=compressed, pair=pair,
                head=b"" if pair else head, header=header, layout=layout, placed=placed,
                notes=notes,
            )  # fmt: skip
        except (EOFError, zlib.error, gzip.BadGzipFile) as err:
            raise Rejected(
                10, "A compressed image is truncated or damaged", found=str(err),
                expected="a whole file", fix="copy or compress it again",
            ) from err  # fmt: skip


def _series(image: _Opened, values: Data, run: RunFile, digest: str) -> Series:
    tr = run.tr or _sidecar_tr(run.path) or _header_tr(image.header, image.notes)
    return Series(
        values=values, tr=tr, digest=digest, grid=image.placed.word, notes=tuple(image.notes)
    )


def _header(head: bytes, path: Path) -> Nifti1Header:
    """Return the NIfTI-1 or NIfTI-2 header, or raise row 9 or 11."""
    import nibabel as nib

    kind = kind_of(head)
    if kind != "NIfTI":
        name = "nothing" if not head else kind
        raise Rejected(
            9, "A file is of another type than its name says",
            found=f"named {suffix_of(path.name)}, holds {name}", expected="a NIfTI image",
            fix="convert or rename it",
        )  # fmt: skip
    second = 540 in (int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big"))
    size = 540 if second else 348
    if len(head) < size:
        raise Rejected(
            11, "An image is truncated", found=f"{len(head)} bytes",
            expected=f"a header of {size} bytes and the volumes", fix="copy it again",
        )  # fmt: skip
    try:
        if second:
            header: Nifti1Header = nib.Nifti2Header(head[:size], check=False)
        else:
            header = nib.Nifti1Header(head[:size], check=False)
        header.get_data_shape()
    except (nib.spatialimages.HeaderDataError, ValueError) as err:
        raise _damaged(str(err)) from err
    return header


def _checked_layout(header: Nifti1Header, notes: list[Note]) -> _Layout:
    """Return the layout; numbers that no header can hold are row 9."""
    import nibabel as nib

    try:
        return _layout(header, notes)
    except (nib.spatialimages.HeaderDataError, ValueError, KeyError) as err:
        raise _damaged(str(err)) from err


def _damaged(found: str) -> Rejected:
    return Rejected(
        9, "The header of an image is damaged", found=found, expected="a NIfTI header",
        fix="convert it again",
    )  # fmt: skip


def _layout(header: Nifti1Header, notes: list[Note]) -> _Layout:
    """Return shape and type of the voxels, or raise rows 9, 12, 13, 14, 63."""
    intent = int(header["intent_code"])
    if intent in _CIFTI_INTENTS:
        raise surface(f"CIFTI intent {intent}")
    shape = tuple(int(n) for n in header.get_data_shape())
    if len(shape) > 4:
        kept = (*shape[:3], *(n for n in shape[3:] if n != 1))
        if len(kept) > 4:
            raise Rejected(
                13, "An image has more than four axes", found=f"shape {shape}",
                expected="x, y, z, time", fix="save one 4-D series per run",
            )  # fmt: skip
        notes.append(Note(row=13, what="Axes of length 1 were squeezed", found=f"shape {shape}"))
        shape = kept
    if len(shape) != 4 or min(shape) < 1:
        raise Rejected(
            12, "An image is not a 4-D series", found=f"one volume, shape {shape}",
            expected="a 4-D series (x, y, z, time)",
            fix="join the volumes of the run into one 4-D file",
        )  # fmt: skip
    dtype = np.dtype(header.get_data_dtype())
    if dtype.kind not in "iuf" or intent == _LABEL_INTENT:
        raise Rejected(
            14, "An image does not hold a real signal",
            found="a label image" if intent == _LABEL_INTENT else f"type {dtype}",
            expected="real numbers", fix="save the magnitude as float32",
        )  # fmt: skip
    slope, inter = header.get_slope_inter()
    return _Layout(
        shape=(shape[0], shape[1], shape[2], shape[3]),
        dtype=dtype,
        offset=int(header.get_data_offset()),
        slope=1.0 if slope is None else float(slope),
        inter=0.0 if inter is None else float(inter),
    )


def _check_size(path: Path, layout: _Layout, packed: int) -> None:
    """Refuse a header that declares more than the file can hold, before anything is allocated."""
    needed = layout.offset + math.prod(layout.shape) * layout.dtype.itemsize
    if math.prod(layout.shape[:3]) > MOST_LABELS:
        raise _damaged(f"shape {layout.shape}, at most {MOST_LABELS} voxels a volume")
    if layout.offset < 0 or path.stat().st_size * packed < needed:
        raise Rejected(
            11, "An image is truncated", found=f"{path.stat().st_size} bytes",
            expected=f"{needed} bytes", fix="copy it again",
        )  # fmt: skip


def _volumes(image: _Opened, pick: Picker, grid: Grid | None) -> Data:
    """Return features by time, shape (D, T); one volume is in memory at a time."""
    layout, read = image.layout, image.read
    before = image.head[layout.offset :]  # voxels that came along with the header
    if layout.offset > len(image.head):
        read(layout.offset - len(image.head))
    size = int(np.prod(layout.shape[:3])) * layout.dtype.itemsize
    n_times = layout.shape[3]
    features = 0 if grid is None else grid.sizes.size
    by_time = np.empty((n_times, features), dtype=np.float32)
    for t in range(n_times):
        block = before[:size]
        before = before[size:]
        block += read(size - len(block))
        if len(block) < size:
            raise EOFError(f"{t} of {n_times} volumes")
        if grid is not None:
            by_time[t] = grid.gather(pick(np.frombuffer(block, dtype=layout.dtype)))
    return np.ascontiguousarray(by_time.T)


def _picker(layout: _Layout, placed: Placement, grid: Grid | None, how: Resampling) -> Picker:
    """Return the function that takes the scaled voxels of the mask out of a stored volume."""

    def whole(stored: npt.NDArray[np.generic]) -> Array:
        volume = stored.reshape(layout.shape[:3], order="F").astype(np.float64)
        return volume * layout.slope + layout.inter

    def pick(stored: npt.NDArray[np.generic]) -> Array:
        if placed.index is not None and not how.smoothing_fwhm:
            return stored[placed.index].astype(np.float64) * layout.slope + layout.inter
        if grid is None:
            return np.zeros(0)
        volume = whole(stored)
        if placed.index is None:
            volume = resample(volume, placed.affine, grid.shape, grid.affine)
        if how.smoothing_fwhm:
            affine = grid.affine if placed.index is None else placed.affine
            volume = smooth(volume, affine, how.smoothing_fwhm)
        if placed.index is None:
            return np.asarray(volume[grid.inside])
        return np.asarray(volume.ravel(order="F")[placed.index])

    return pick


def _sidecar_tr(path: Path) -> float:
    """Return RepetitionTime of the JSON file beside the image, s; 0 if there is none."""
    suffix = max((s for s in PROMISED if path.name.lower().endswith(s)), key=len)
    sidecar = path.with_name(path.name[: -len(suffix)] + ".json")
    try:
        value = json.loads(sidecar.read_text(encoding="utf-8"))["RepetitionTime"]
        return max(float(value), 0.0)
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def _header_tr(header: Nifti1Header, notes: list[Note]) -> float:
    """Return the repetition time of the header, s; 0 if it says nothing (rows 32, 33)."""
    tr = float(header["pixdim"][4])
    try:
        units = header.get_xyzt_units()[1]
    except KeyError:
        units = "unknown"
    if units == "unknown" and tr == 1.0:
        tr = 0.0
    if not 0 < tr < np.inf:
        notes.append(
            Note(
                row=32, what="The repetition time is not known",
                found="sought in the manifest, the JSON sidecar and the header",
                fix="write it into column 'tr' of the manifest",
            )
        )  # fmt: skip
        return 0.0
    scale = {"msec": 1e-3, "usec": 1e-6}.get(units, 1e-3 if tr > LONGEST_TR else 1.0)
    if scale != 1.0:
        notes.append(
            Note(
                row=33, what="The repetition time was converted to seconds",
                found=f"{tr:g}, units {units}", expected="seconds",
            )
        )  # fmt: skip
    return tr * scale
