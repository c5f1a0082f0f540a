"""CIFTI-2 files: series of grayordinates and of parcels, their structure, and spheres beside it.

A series is stored feature by feature, so it is read in blocks of rows and never transposed.  Its
brain models or parcels must be those of the owner's structure file, which all sites share.
"""

from __future__ import annotations

import base64
import functools
import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.arrays import MAX_KEPT_BYTES
from cape.cifti_xml import MAX_XML_BYTES, axes_of, plain_xml
from cape.data.file_type import CIFTI_SERIES, check_type
from cape.data.images import HEADER_BYTES, HashingReader, in_seconds, sidecar_tr
from cape.data.issues import Findings, Issue, IssueCode, UnusableFile
from cape.data.runs import Series, SiteRun, unread
from cape.data.space import STRUCTURE_FILES, check_feature_count, check_hash
from cape.errors import FoundError, own_words
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.space.feature_space import FeatureSpace
from cape.space.grayordinates import (
    LEFT,
    MAX_STRUCTURE_POINTS,
    RIGHT,
    Part,
    Structure,
    quantised,
    structure_of,
)

if TYPE_CHECKING:
    from nibabel.cifti2.cifti2_axes import Axis, BrainModelAxis, ParcelsAxis

# Values that are read at once.
BLOCK_VALUES: Final = 2**20

# Names of the owner's spheres, and those of TemplateFlow for fsLR
SPHERE_FILES: Final = {
    LEFT: ("sphere.L.surf.gii", "tpl-fsLR_den-32k_hemi-L_sphere.surf.gii"),
    RIGHT: ("sphere.R.surf.gii", "tpl-fsLR_den-32k_hemi-R_sphere.surf.gii"),
}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Opened:
    """The head of a file: its axes, and where and how D rows of T numbers lie behind it."""

    axes: tuple[Axis, Axis]  # along rows (time), along columns (features)
    structure: Structure | None  # of the columns, if they are grayordinates or parcels
    shape: tuple[int, int]  # T, D
    dtype: np.dtype[Any]
    offset: int
    slope: float
    inter: float
    read: int  # bytes so far


def read_series(run: SiteRun, space: FeatureSpace | None, *, headers_only: bool = False) -> Series:
    """Return features by time (D, T); UnusableFile: no series of the features of `space`."""
    check_type(run.path, CIFTI_SERIES, cifti=True)
    with run.path.open("rb") as raw:
        reader = HashingReader(raw)
        head = _open(reader, run.path)
        n_times, n_features = head.shape
        if space is not None:
            _check_axes(head, space)
        issues: list[Issue] = []
        tr = run.tr or sidecar_tr(run.path, issues) or _series_tr(head.axes[0], issues)
        values, digest = unread(n_features, n_times), ""
        if not headers_only:
            values = _values(reader, head)
            digest = reader.finish()
    return Series(values=values, tr=tr, digest=digest, grid="ok", issues=tuple(issues))


def read_scalars(path: Path, space: FeatureSpace) -> Array:
    """Return maps (D, K) of the features of `space`; UnusableFile: a file of another kind."""
    with path.open("rb") as raw:
        reader = HashingReader(raw)
        head = _open(reader, path)
        _check_axes(head, space, kind="scalar")
        return _values(reader, head).astype(np.float64)


def scalars_in(path: Path) -> int:
    """Return how many maps a file has, by its header; UnusableFile."""
    with path.open("rb") as raw:
        return _open(HashingReader(raw), path).shape[0]


def _values(reader: HashingReader, head: _Opened) -> Data:
    """Return features by time, in blocks of rows."""
    n_times, n_features = head.shape
    reader.read(head.offset - head.read)
    values = np.empty((n_features, n_times), dtype=np.float32)
    step, plain = max(1, BLOCK_VALUES // n_times), head.slope == 1.0 and head.inter == 0.0
    for first in range(0, n_features, step):
        rows = values[first : first + step]
        block = reader.read(rows.size * head.dtype.itemsize)
        stored = np.frombuffer(block, dtype=head.dtype).reshape(rows.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # counted as infinite
            rows[:] = stored if plain else stored * head.slope + head.inter
    return values


def _open(reader: HashingReader, path: Path) -> _Opened:
    import nibabel as nib

    head = reader.read(HEADER_BYTES)
    try:
        header = nib.Nifti2Header(head, check=False)
        shape = tuple(int(n) for n in header.get_data_shape())
        offset, dtype = int(header.get_data_offset()), np.dtype(header.get_data_dtype())
        slope, inter = header.get_slope_inter()
    except Exception as err:  # readers raise various errors for damaged files
        observed = "numbers that no header has"
        raise UnusableFile(IssueCode.HEADER_DAMAGED, observed) from err
    rest = reader.read(12)
    order = "<" if header.endianness == "<" else ">"
    size, code = np.frombuffer(rest[4:12].ljust(8, b"\0"), dtype=f"{order}i4").tolist()
    if len(shape) != 6 or shape[:4] != (1, 1, 1, 1) or code != 32:
        observed = f"shape {shape}, first extension {code}"
        raise UnusableFile(IssueCode.CIFTI_OTHER, observed, wanted="a CIFTI-2 file")
    n_bytes = path.stat().st_size
    least = HEADER_BYTES + 4 + size
    if not 8 < size <= min(MAX_XML_BYTES, n_bytes) or not least <= offset <= least + MAX_XML_BYTES:
        raise UnusableFile(IssueCode.HEADER_DAMAGED, f"an extension of {size} bytes")
    if dtype.kind not in "iuf":
        raise UnusableFile(IssueCode.IMAGE_NO_SIGNAL, f"type {dtype}")
    needed = offset + math.prod(shape) * dtype.itemsize
    if min(shape) < 1 or needed > n_bytes:
        raise UnusableFile(IssueCode.IMAGE_TRUNCATED, f"{n_bytes} bytes", needed=f"{needed} bytes")
    if 4 * math.prod(shape) > MAX_KEPT_BYTES:
        raise UnusableFile(
            IssueCode.HEADER_DAMAGED, f"shape {shape}, at most {MAX_KEPT_BYTES} bytes"
        )
    try:
        axes, structure = _parsed(reader.read(size - 8).rstrip(b"\0"))
        if (len(axes[0]), len(axes[1])) != shape[4:]:
            raise FoundError(f"axes of {len(axes[0])} and {len(axes[1])}, data {shape[4:]}")
    except Exception as err:  # as above
        observed = own_words(err, "its XML is not that of CIFTI-2")
        raise UnusableFile(IssueCode.HEADER_DAMAGED, observed) from err
    return _Opened(
        axes=axes,
        structure=structure,
        shape=(shape[4], shape[5]),
        dtype=dtype,
        offset=offset,
        slope=1.0 if slope is None else float(slope),
        inter=0.0 if inter is None else float(inter),
        read=HEADER_BYTES + 4 + size,
    )


# Files of a study mostly have the same XML, which is faster to compare than to parse.
@functools.lru_cache(maxsize=4)
def _parsed(xml: bytes) -> tuple[tuple[Axis, Axis], Structure | None]:
    from nibabel.cifti2.cifti2_axes import BrainModelAxis, ParcelsAxis

    axes = axes_of(xml, MAX_STRUCTURE_POINTS)
    has_structure = isinstance(axes[1], BrainModelAxis | ParcelsAxis)
    return axes, structure_of_axis(axes[1]) if has_structure else None


def _check_axes(head: _Opened, space: FeatureSpace, kind: str = "tseries") -> None:
    from nibabel.cifti2.cifti2_axes import ScalarAxis, SeriesAxis

    rows = SeriesAxis if kind == "tseries" else ScalarAxis
    kind = f"{'d' if space.kind == 'grayordinates' else 'p'}{kind}"
    (along, features), structure = head.axes, head.structure
    right = structure is not None and bool(structure.names) == kind.startswith("p")
    if structure is None or not right or not isinstance(along, rows):
        observed = f"axes {type(along).__name__} and {type(features).__name__}"
        raise UnusableFile(IssueCode.CIFTI_OTHER, observed, wanted=f"a {kind}.nii file")
    wanted = space.structure()
    if structure.names != wanted.names:
        observed = _difference(structure.names, wanted.names)
        raise UnusableFile(IssueCode.PARCELS_OTHER, observed, wanted=wanted.summary())
    if _plain(structure) == _plain(wanted) and _grid(features) == (space.shape, space.affine):
        return
    code = IssueCode.PARCELS_OTHER if wanted.names else IssueCode.GRAYORDINATES_OTHER
    observed = structure.summary()
    if observed == wanted.summary():
        observed = f"{observed}, but other vertices or voxels"
    raise UnusableFile(code, observed, wanted=wanted.summary())


def _difference(names: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    if len(names) != len(wanted) or sorted(names) == sorted(wanted):
        return f"{len(names)} parcels" + (" in another order" if len(names) == len(wanted) else "")
    i, name = next((i, a) for i, (a, b) in enumerate(zip(names, wanted, strict=True), 1) if a != b)
    return f"parcel {i} is '{name[:40]}', not '{wanted[i - 1][:40]}'"


def _plain(structure: Structure) -> list[object]:
    """Return a structure without its spheres, which people's files do not hold."""
    parts = [
        (part.structure, part.n_vertices, part.parcel, part.index.tobytes())
        for part in structure.parts
    ]
    return [*parts, structure.names]


def _grid(axis: Any) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return shape and affine (mm, row-major, rounded) of the voxels; () without."""
    if axis.volume_shape is None or axis.affine is None:
        return (), ()
    rounded = np.round(np.asarray(axis.affine, dtype=np.float64), 4) + 0.0
    return tuple(int(n) for n in axis.volume_shape), tuple(float(a) for a in rounded.ravel())


def _series_tr(axis: Any, issues: list[Issue]) -> float:
    """Return the step of a series in s; 0 if it is not stated."""
    step = float(axis.step)
    if axis.unit != "SECOND" or not 0 < step < math.inf:
        issues.append(Issue(IssueCode.TR_UNKNOWN, f"a series of {step:g} {axis.unit.lower()}"))
        return 0.0
    return in_seconds(step, " said to be seconds", issues)


def structure_of_axis(axis: Any, spheres: dict[str, Array] | None = None) -> Structure:
    """Return the structure of an axis of brain models or parcels; ValueError if it is invalid."""
    from nibabel.cifti2.cifti2_axes import BrainModelAxis

    known = spheres or {}
    if isinstance(axis, BrainModelAxis):
        return structure_of(tuple(_models(axis, known)))
    return structure_of(tuple(_parcels(axis, known)), tuple(str(name) for name in axis.name))


def _models(axis: BrainModelAxis, spheres: dict[str, Array]) -> list[Part]:
    return [
        _part(
            str(name),
            -1,
            model.vertex if model.surface_mask.all() else model.voxel,
            int(axis.nvertices[name]) if model.surface_mask.all() else 0,
            spheres,
        )
        for name, _, model in axis.iter_structures()
    ]


def _parcels(axis: ParcelsAxis, spheres: dict[str, Array]) -> list[Part]:
    parts = []
    for parcel, (voxels, vertices) in enumerate(zip(axis.voxels, axis.vertices, strict=True)):
        for name in sorted(vertices):
            n_vertices = int(axis.nvertices[name])
            parts.append(_part(name, parcel, vertices[name], n_vertices, spheres))
        if len(voxels):
            parts.append(_part("OTHER", parcel, voxels, 0, spheres))
    return parts


def _part(name: str, parcel: int, index: Any, n_vertices: int, spheres: dict[str, Array]) -> Part:
    short = name.removeprefix("CIFTI_STRUCTURE_")
    points = np.asarray(index, dtype=np.int32)
    sphere = None
    if n_vertices and short in spheres:
        if len(spheres[short]) != n_vertices:
            problem = f"{short.lower()}: a sphere of {len(spheres[short])} vertices"
            raise FoundError(f"{problem}, a structure of {n_vertices}")
        sphere = quantised(spheres[short][points])
    return Part(structure=short, n_vertices=n_vertices, parcel=parcel, index=points, sphere=sphere)


def read_structure(config: Config, base: Path | None, findings: Findings) -> FeatureSpace | None:
    """Return the space of the owner's structure file, or None after noting what is wrong."""
    kind: str = config.feature_space
    names = STRUCTURE_FILES if kind == "grayordinates" else STRUCTURE_FILES[::-1]
    there = [] if base is None else [base / name for name in names if (base / name).is_file()]
    if base is None or not there:
        findings.add(IssueCode.MASK_MISSING, f"{names[0]} in {base}", kind="structure")
        return None
    path = there[0]
    try:
        check_type(path, (".nii",), cifti=True)
        with path.open("rb") as raw:
            head = _open(HashingReader(raw), path)
        if head.structure is None or bool(head.structure.names) != (kind == "parcels"):
            observed = f"columns are {type(head.axes[1]).__name__}"
            raise UnusableFile(IssueCode.CIFTI_OTHER, observed, wanted=f"a file of {kind}")
        spheres = _spheres(base)
        structure = structure_of_axis(head.axes[1], spheres)
    except (UnusableFile, ValueError, OSError) as err:
        # The file is the owner's, not a person's: it stops the site.
        problem = (
            err.issue.observed if isinstance(err, UnusableFile) else own_words(err, "no structure")
        )
        findings.add(IssueCode.MASK_UNREADABLE, f"{path.name}: {problem}", kind="structure")
        return None
    if kind == "grayordinates" and not structure.has_spheres:
        lacking = [side for side in SPHERE_FILES if side not in spheres]
        place = " and ".join(SPHERE_FILES[side][0] for side in lacking) or "no sphere fits"
        findings.add(IssueCode.MASK_MISSING, place, kind="sphere")
        return None
    shape, affine = _grid(head.axes[1])
    grid = np.array(affine).reshape(4, 4) if affine else None
    space = FeatureSpace.of_structure(structure, shape, grid)
    if kind == "parcels":
        check_feature_count(space.n_features, config, findings)
    check_hash(space, config, path, findings)
    return space


def structure_file(series: Sequence[Path]) -> tuple[bytes, str]:
    """Return a file of zeros with the columns of the first series that can be read, and its name.

    Empty if there is none.  It holds no data of any person.
    """
    import nibabel as nib
    from nibabel.cifti2.cifti2_axes import ScalarAxis

    for path in series:
        try:
            with path.open("rb") as raw:
                head = _open(HashingReader(raw), path)
        except (UnusableFile, OSError):
            continue
        if head.structure is not None:
            axes = (ScalarAxis(["structure"]), head.axes[1])
            image: Any = nib.Cifti2Image(np.zeros((1, head.shape[1]), np.float32), header=axes)
            image.update_headers()
            image.nifti_header.set_intent(3008 if head.structure.names else 3006)
            return bytes(image.to_bytes()), STRUCTURE_FILES[bool(head.structure.names)]
    return b"", STRUCTURE_FILES[0]


def _spheres(base: Path) -> dict[str, Array]:
    """Return the vertices (n, 3) of each hemisphere whose sphere the owner sent."""
    vertices = {}
    for side, names in SPHERE_FILES.items():
        path = next((base / name for name in names if (base / name).is_file()), None)
        if path is not None:
            try:
                vertices[side] = read_vertices(path)
            except ValueError as err:
                problem = own_words(err, "numbers that are none")
                raise FoundError(f"{path.name} is no surface: {problem}") from err
    return vertices


# -- spheres, by GIFTI ---------------------------------------------------------------------------
# Not by nibabel: a surface comes from others, could name another file as its data, and its packed
# numbers could expand without bound.

# Bytes of a file, and of its numbers: a sphere of 164,000 vertices has 2 million.
MAX_SURFACE_BYTES: Final = 2**25

_TYPES: Final = {"NIFTI_TYPE_FLOAT32": "f4", "NIFTI_TYPE_FLOAT64": "f8"}
_ENDIAN: Final = {"LittleEndian": "<", "BigEndian": ">"}
_ORDERS: Final = ("RowMajorOrder", "ColumnMajorOrder")
_PACKED: Final = ("ASCII", "Base64Binary", "GZipBase64Binary")


def read_vertices(path: Path) -> Array:
    """Return the vertices (n, 3) of a surface; ValueError if it has none, OSError."""
    if path.stat().st_size > MAX_SURFACE_BYTES:
        raise FoundError(f"{path.stat().st_size} bytes, at most {MAX_SURFACE_BYTES}")
    # Decoded here, so that the file cannot declare another encoding.
    text = plain_xml(path.read_bytes()).decode()
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - without entities, and of bounded size
    except ElementTree.ParseError as err:
        raise FoundError(f"no well-formed XML, line {err.position[0]}") from err
    arrays = [a for a in root.iter("DataArray") if a.get("Intent") == "NIFTI_INTENT_POINTSET"]
    if len(arrays) != 1:
        raise FoundError(f"{len(arrays)} sets of points, not one")
    return _numbers(arrays[0].attrib, arrays[0].findtext("Data", ""))


def _numbers(attributes: dict[str, str], text: str) -> Array:
    said = {name: attributes.get(name, "") for name in ("DataType", "Encoding", "Endian")}
    order = attributes.get("ArrayIndexingOrder", "RowMajorOrder")
    shape = tuple(int(attributes.get(f"Dim{k}", "")) for k in (0, 1))
    is_known = said["DataType"] in _TYPES and said["Encoding"] in _PACKED and order in _ORDERS
    if not is_known or said["Endian"] not in _ENDIAN:
        raise FoundError(f"points as {', '.join(said.values())}, {order}")
    dtype = np.dtype(_ENDIAN[said["Endian"]] + _TYPES[said["DataType"]])
    size = math.prod(shape) * dtype.itemsize
    if min(shape) < 1 or shape[1] != 3 or size > MAX_SURFACE_BYTES:
        raise FoundError(f"points of shape {shape}")
    if said["Encoding"] == "ASCII":
        stored = np.array(text.split(), dtype=np.float64)
    else:
        raw = base64.b64decode(text)
        if said["Encoding"] == "GZipBase64Binary":
            try:
                # One byte more than needed shows that it is longer, without unpacking the rest.
                raw = zlib.decompressobj(wbits=47).decompress(raw, size + 1)
            except zlib.error as err:
                raise FoundError("packed points that are damaged") from err
        stored = np.frombuffer(raw, dtype=dtype) if len(raw) == size else np.zeros(0)
    if stored.size != math.prod(shape):
        raise FoundError(f"not as many points as shape {shape} has")
    rows = stored.astype(np.float64).reshape(shape if order == "RowMajorOrder" else shape[::-1])
    return rows if order == "RowMajorOrder" else np.ascontiguousarray(rows.T)
