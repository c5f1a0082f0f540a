"""4-D NIfTI images, read volume by volume: only the voxels of the mask are kept.

A file is read and hashed to its end, because only its end shows damage.  Affines are judged in mm.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.arrays import MAX_KEPT_BYTES, max_unpacked
from cape.data import space
from cape.data.alignment import Alignment, align_to_grid
from cape.data.file_type import IMAGE_SUFFIXES, check_type, content_word, sniff, suffix_of
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.orientation import in_mni, way_turned
from cape.data.resampling import nearest_marked, parallel_axes, turned_axes
from cape.data.runs import MAX_TR, Series, SiteRun, unread
from cape.errors import FoundError, own_words
from cape.frozen import dataclass
from cape.settings.documents import parse_json
from cape.space.feature_space import MAX_LABELS

GzipFile: Any = gzip.GzipFile
_engine: Any = zlib
try:  # optional: half the time of zlib, and the same bytes
    from isal import igzip, isal_zlib
except ImportError:
    pass
else:
    GzipFile, _engine = igzip.IGzipFile, isal_zlib

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

# Bytes of a sidecar; a longer one is cut, and is then no valid JSON.
MAX_SIDECAR_BYTES: Final = 2**20
# Length of a NIfTI-2 header; that of NIfTI-1 is 348.
HEADER_BYTES: Final = 540
# Volumes that are transposed at a time: 16 numbers of 4 bytes fill one cache line.
TURNED: Final = 16
# Volumes whose mean tells how an image is turned, at most.
OF_MEAN: Final = 8
# Voxels of an axis for which a matrix of its smoothing is made: 18 MB.
MAX_AXIS: Final = 1500
_CIFTI_INTENTS = range(3000, 3100)
_LABEL_INTENT = 1002

Picker = Callable[[npt.NDArray[np.generic]], Array]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resampling:
    """How the owner wants volumes smoothed and resampled."""

    smoothing_fwhm: float = 0.0  # mm
    # Which images on another grid are resampled to that of the mask
    resample: Literal["within_space", "never", "to_mask"] = "never"


# Errors of a damaged gzip file; the first one means that it ends too early.
DAMAGED: Final = (EOFError, gzip.BadGzipFile, zlib.error, _engine.error)
AS_STORED: Final = Resampling()


class HashingReader:
    """A forward-only reader that hashes the bytes it passes on."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._stream.read(size)
        self._hash.update(block)
        return block

    def readinto(self, memory: Any) -> int:
        n: int = self._stream.readinto(memory)  # type: ignore[attr-defined]
        self._hash.update(memory[:n])
        return n

    def finish(self) -> str:
        """Read to the end and return the SHA-256 of the whole file, 64 hex digits."""
        while self.read(1 << 20):
            pass
        return self._hash.hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layout:
    """How voxels are stored: shape (x, y, z, t) after squeezing, offset, scaling."""

    shape: tuple[int, int, int, int]
    dtype: np.dtype[np.generic]
    offset: int
    slope: float
    inter: float


def read_image(
    run: SiteRun,
    grid: space.Grid | None,
    how: Resampling = AS_STORED,
    *,
    headers_only: bool = False,
) -> Series:
    """Return features by time (D, T), D = 0 without a grid; UnusableFile: no complete real series.

    With `headers_only` the values are `unread`.
    """
    check_type(run.path, IMAGE_SUFFIXES)
    compressed = run.path.name.lower().endswith(".gz")
    pair = run.path.with_suffix(".hdr").read_bytes() if suffix_of(run.path.name) == ".img" else b""
    issues: list[Issue] = []
    with run.path.open("rb") as raw:
        reader = HashingReader(raw)
        stream = GzipFile(fileobj=reader, mode="rb") if compressed else reader
        try:
            head = pair[:HEADER_BYTES] or stream.read(HEADER_BYTES)
            header = _header(head, run.path)
            layout = _layout(header, issues, pair=bool(pair))
            _check_size(run.path, layout, grid, compressed=compressed)
            resample = grid is not None and _may_resample(run, header, grid, how)
            said, code = space.stated_space(run.path.name), space.transform_code(header)
            alignment = align_to_grid(
                header,
                layout.shape[:3],
                grid,
                issues,
                trust=run.trust_grid,
                resample=resample,
                # The scanner's space, or that of one person
                native=said in space.NATIVE_NAMES or (not said and code == space.SCANNER_CODE),
            )
            values, digest = unread(0 if grid is None else grid.sizes.size, layout.shape[3]), ""
            way = ""
            if not headers_only:
                pick = None if grid is None else _picker(layout, alignment, grid, how)
                mean = _Mean(layout) if grid is not None and in_mni(grid) else None
                values = _read_volumes(stream.read, b"" if pair else head, layout, pick, grid, mean)
                if grid is not None and mean is not None:
                    way = way_turned(mean.volume(), alignment.affine, grid)
                # Only the check sum at the end of a gzip file shows damage.
                while compressed and stream.read(1 << 20):
                    pass
                digest = reader.finish()
        except (FoundError, *DAMAGED) as err:
            cut = "the data end before the end-of-stream marker"
            otherwise = cut if isinstance(err, EOFError) else "its packed bytes or check sum"
            observed = own_words(err, otherwise)
            raise UnusableFile(IssueCode.GZIP_DAMAGED, observed) from err
    if pair and digest:
        # A changed header moves or scales the same voxels: it is part of the content.
        digest = hashlib.sha256(pair + bytes.fromhex(digest)).hexdigest()
    # The manifest is more reliable than the sidecar, and the sidecar than the header.
    tr = run.tr or sidecar_tr(run.path, issues) or _header_tr(header, issues)
    unsaid = alignment.word == "resampled" and not space.space_of(run.path.name, header)
    return Series(
        values=values,
        tr=tr,
        digest=digest,
        grid=alignment.word,
        place=alignment.place(layout.shape) if unsaid else "",
        turned=way,
        issues=tuple(issues),
    )


def _may_resample(run: SiteRun, header: Nifti1Header, grid: space.Grid, how: Resampling) -> bool:
    """Tell whether an image may be on another grid; UnusableFile: it states another space."""
    here, wanted = space.space_of(run.path.name, header), grid.template_space
    same_space = space.one_space(here, wanted)
    if here and wanted and not same_space:
        raise UnusableFile(IssueCode.SPACE_OTHER, f"of {here}", space=wanted)
    return how.resample == "to_mask" or (how.resample == "within_space" and same_space)


def header_alone(path: Path) -> Nifti1Header:
    """Return the header of an image; UnusableFile, or an error of the system."""
    pair = suffix_of(path.name) == ".img"
    with (path.with_suffix(".hdr") if pair else path).open("rb") as raw:
        packed = path.name.lower().endswith(".gz")
        stream = GzipFile(fileobj=raw, mode="rb") if packed else raw
        return _header(stream.read(HEADER_BYTES), path)


def _header(head: bytes, path: Path) -> Nifti1Header:
    import nibabel as nib

    kind = sniff(head)
    if kind != "NIfTI":
        observed = f"named {suffix_of(path.name)}, holds {kind if head else 'nothing'}"
        raise UnusableFile(IssueCode.FILE_TYPE_OTHER, observed, promised="a NIfTI image")
    second = 540 in (int.from_bytes(head[:4], "little"), int.from_bytes(head[:4], "big"))
    size = 540 if second else 348
    if len(head) < size:
        needed = f"a header of {size} bytes and the volumes"
        raise UnusableFile(IssueCode.IMAGE_TRUNCATED, f"{len(head)} bytes", needed=needed)
    try:
        # check=False: nibabel would repair a header; here it is read as stored.
        version: Any = nib.Nifti2Header if second else nib.Nifti1Header
        header: Nifti1Header = version(head[:size], check=False)
        header.get_data_shape()
        if int(header["sizeof_hdr"]) != size:  # the order of bytes was guessed from the axes
            raise UnusableFile(IssueCode.HEADER_DAMAGED, "a number of axes that no image has")
        magic = header["magic"].item()
        if magic not in (header.single_magic, header.pair_magic):
            raise UnusableFile(IssueCode.IMAGE_ANALYZE, "no magic word of NIfTI")
        if magic == header.pair_magic and path.suffix != ".img":
            raise UnusableFile(IssueCode.HEADER_DAMAGED, f"the header of a pair in {path.suffix}")
    except (nib.spatialimages.HeaderDataError, ValueError) as err:
        raise UnusableFile(IssueCode.HEADER_DAMAGED, "numbers that no header has") from err
    return header


def _layout(header: Nifti1Header, issues: list[Issue], *, pair: bool) -> _Layout:
    import nibabel as nib

    intent = int(header["intent_code"])
    if intent in _CIFTI_INTENTS:
        raise UnusableFile(IssueCode.SURFACE_DATA, f"CIFTI intent {intent}")
    try:
        shape = _series_shape(header, issues)
        dtype = np.dtype(header.get_data_dtype())
        # Complex images would silently lose their phase; labels are numbers of regions.
        if dtype.kind not in "iuf" or intent == _LABEL_INTENT:
            observed = "a label image" if intent == _LABEL_INTENT else content_word(dtype)
            raise UnusableFile(IssueCode.IMAGE_NO_SIGNAL, observed)
        offset = int(header.get_data_offset())
        if not pair and offset == 0:  # not stated: right behind the header, as all writers do
            offset = header.single_vox_offset
        if not pair and 0 < offset < header.single_vox_offset:
            observed = f"its voxels begin at byte {offset}, inside the header"
            raise UnusableFile(IssueCode.HEADER_DAMAGED, observed)
        slope, inter = header.get_slope_inter()
        if np.isinf(float(header["scl_slope"])):  # nibabel ignores it
            raise UnusableFile(IssueCode.HEADER_DAMAGED, "an infinite scale")
        return _Layout(
            shape=shape,
            dtype=dtype,
            offset=offset,
            slope=1.0 if slope is None else float(slope),
            inter=0.0 if inter is None else float(inter),
        )
    except (nib.spatialimages.HeaderDataError, ValueError, KeyError) as err:
        raise UnusableFile(IssueCode.HEADER_DAMAGED, "numbers that no header has") from err


def _series_shape(header: Nifti1Header, issues: list[Issue]) -> tuple[int, int, int, int]:
    shape = tuple(int(n) for n in header.get_data_shape())
    if len(shape) > 4:
        # Some converters write x, y, z, 1, t.
        squeezed = (*shape[:3], *(n for n in shape[3:] if n != 1))
        if len(squeezed) > 4:
            raise UnusableFile(IssueCode.IMAGE_MORE_AXES, f"shape {shape}")
        issues.append(Issue(IssueCode.IMAGE_SQUEEZED, f"shape {shape}"))
        shape = squeezed
    if len(shape) != 4 or min(shape) < 1:
        raise UnusableFile(IssueCode.IMAGE_NO_SERIES, f"one volume, shape {shape}")
    return shape[0], shape[1], shape[2], shape[3]


def _check_size(path: Path, layout: _Layout, grid: space.Grid | None, *, compressed: bool) -> None:
    """Refuse a header that declares more than the file can hold, before anything is allocated."""
    size = path.stat().st_size
    held = max_unpacked(size) if compressed else size
    needed = layout.offset + math.prod(layout.shape) * layout.dtype.itemsize
    if math.prod(layout.shape[:3]) > MAX_LABELS:
        observed = f"shape {layout.shape}, at most {MAX_LABELS} voxels a volume"
        raise UnusableFile(IssueCode.HEADER_DAMAGED, observed)
    in_memory = 4 * layout.shape[3] * (0 if grid is None else grid.sizes.size)
    if in_memory > MAX_KEPT_BYTES:
        observed = (
            f"{layout.shape[3]} volumes, {in_memory} bytes in the mask, at most {MAX_KEPT_BYTES}"
        )
        raise UnusableFile(IssueCode.HEADER_DAMAGED, observed)
    if layout.offset < 0 or held < needed:
        raise UnusableFile(IssueCode.IMAGE_TRUNCATED, f"{size} bytes", needed=f"{needed} bytes")


def _read_volumes(
    read: Callable[[int], bytes],
    head: bytes,
    layout: _Layout,
    pick: Picker | None,
    grid: space.Grid | None,
    mean: _Mean | None,
) -> Data:
    """Return features by time, shape (D, T); one volume is in memory at a time.

    `read` goes on behind `head`; `mean` sees some of the volumes.
    """
    before = head[layout.offset :]  # voxels that came along with the header
    if layout.offset > len(head):
        read(layout.offset - len(head))
    size = int(np.prod(layout.shape[:3])) * layout.dtype.itemsize
    n_times = layout.shape[3]
    features = 0 if grid is None else grid.sizes.size
    values = np.empty((features, n_times), dtype=np.float32)
    # A few volumes are transposed at a time, so that the series is never held twice.
    by_time = np.empty((TURNED, features), dtype=np.float32)
    for t in range(n_times):
        block = before[:size]
        before = before[size:]
        block += read(size - len(block))
        if len(block) < size:
            raise FoundError(f"{t} of {n_times} volumes")
        if grid is None or pick is None:
            continue
        if mean is not None:
            mean.add(t, block)
        row = t % TURNED
        by_time[row] = grid.gather(pick(np.frombuffer(block, dtype=layout.dtype)))
        if row == TURNED - 1 or t == n_times - 1:
            values[:, t - row : t + 1] = by_time[: row + 1].T
    return values


class _Mean:
    """Mean size of the values of a few volumes, by voxel."""

    def __init__(self, layout: _Layout) -> None:
        self._layout, self._sum = layout, np.zeros(math.prod(layout.shape[:3]))
        self._every = max(1, -(-layout.shape[3] // OF_MEAN))

    def add(self, t: int, block: bytes) -> None:
        if t % self._every == 0:
            layout = self._layout
            stored = np.frombuffer(block, dtype=layout.dtype).astype(np.float64)
            with np.errstate(all="ignore"):  # a value may be anything
                self._sum += np.abs(stored * layout.slope + layout.inter)

    def volume(self) -> Array:
        """Return the mean (x, y, z), up to a factor."""
        return self._sum.reshape(self._layout.shape[2::-1]).T


def _picker(layout: _Layout, alignment: Alignment, grid: space.Grid, how: Resampling) -> Picker:
    """Return a function from one stored volume to the voxels of the mask."""
    index, affine, fwhm = alignment.index, alignment.affine, how.smoothing_fwhm
    if index is not None and not fwhm:
        return lambda stored: stored[index].astype(np.float64) * layout.slope + layout.inter
    shape = (layout.shape[0], layout.shape[1], layout.shape[2])
    if max(*shape, *grid.shape) > MAX_AXIS:
        observed = f"shape {shape} to {grid.shape}, at most {MAX_AXIS} voxels along an axis"
        raise UnusableFile(IssueCode.HEADER_DAMAGED, observed)
    form = parallel_axes(shape, affine, grid, index=index, smoothing_fwhm=fwhm) or turned_axes(
        affine, grid, smoothing_fwhm=fwhm
    )

    def pick(stored: npt.NDArray[np.generic]) -> Array:
        volume = stored.reshape(shape[::-1])
        bad = ~np.isfinite(volume) if volume.dtype.kind == "f" else None
        if bad is None or not bad.any():
            return form.voxels(volume, layout.slope, layout.inter)
        # One NaN would spoil its whole row of a product: it counts as 0, and only the voxels
        # nearest to it become NaN.
        filled = np.where(bad, -layout.inter / layout.slope, volume.astype(np.float64))
        spoiled = nearest_marked(bad.T, affine, grid) if index is None else bad.ravel()[index]
        return np.where(spoiled, np.nan, form.voxels(filled, layout.slope, layout.inter))

    return pick


def sidecar_tr(path: Path, issues: list[Issue]) -> float:
    """Return RepetitionTime of the JSON file beside the image, s; 0 if there is none."""
    sidecar = path.with_name(path.name[: -len(suffix_of(path.name))] + ".json")
    try:
        with sidecar.open("rb") as file:
            sidecar_values = parse_json(file.read(MAX_SIDECAR_BYTES))
        stated = sidecar_values["RepetitionTime"]
        tr = 0.0 if isinstance(stated, bool) else float(stated)
    # A sidecar that cannot be read states no repetition time.
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0.0
    # BIDS wants seconds; some converters wrote what DICOM has.
    return in_seconds(tr, " in the JSON sidecar", issues) if 0 < tr < math.inf else 0.0


def in_seconds(tr: float, where: str, issues: list[Issue], scale: float = 1.0) -> float:
    """Return a repetition time in s; without a `scale` a large one is in ms."""
    if scale == 1.0 and tr > MAX_TR:
        scale = 1e-3
    if scale != 1.0:
        issues.append(Issue(IssueCode.TR_CONVERTED, f"{tr:g}{where}"))
    return tr * scale


def _header_tr(header: Nifti1Header, issues: list[Issue]) -> float:
    """Return the repetition time of the header, s; 0 if not stated."""
    tr = float(header["pixdim"][4])
    try:
        units = header.get_xyzt_units()[1]
    except KeyError:
        units = "unknown"
    # Converters write 1.0 without a unit if they do not know; a frequency is no time.
    if (units == "unknown" and tr == 1.0) or units in ("hz", "ppm", "rads"):
        tr = 0.0
    if not 0 < tr < np.inf:
        observed = "sought in the manifest, the JSON sidecar and the header"
        issues.append(Issue(IssueCode.TR_UNKNOWN, observed))
        return 0.0
    scale = {"msec": 1e-3, "usec": 1e-6}.get(units, 1.0)
    return in_seconds(tr, f", units {units}", issues, scale)
