"""Structure of the columns of a CIFTI file: vertices of surfaces, voxels, or parcels of them.

Like a mask, it is public: parties compare digests first and send it only if all agree.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.errors import FoundError, MessageError
from cape.frozen import dataclass
from cape.settings.documents import parse_json

# Vertices and voxels; fsLR with 59,000 vertices a side and 1.6 mm voxels has 170,494.
MAX_STRUCTURE_POINTS: Final = 400_000
MAX_STRUCTURE_PARTS: Final = 10_000
MAX_NAME: Final = 100
# Bytes before packing: each party keeps the packed text in its 4 MiB cache between rounds.
MAX_STRUCTURE_BYTES: Final = 2**22
# Length of a unit vector in 16 bits: steps of 2 um on a sphere of the size of a hemisphere
QUANTUM: Final = 32767

LEFT, RIGHT = "CORTEX_LEFT", "CORTEX_RIGHT"

Indices = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Part:
    """Consecutive points of one anatomical structure."""

    structure: str  # CIFTI's name without CIFTI_STRUCTURE_
    n_vertices: int  # of the whole surface; 0: voxels
    parcel: int  # parcel of the points; -1: each point is a feature
    index: Indices  # vertices (n,), or voxels (n, 3)
    # Positions of the vertices on a sphere, int16 (n, 3); None for voxels and if unknown
    sphere: npt.NDArray[np.int16] | None = None

    def on_sphere(self) -> Array:
        """Return unit vectors of the vertices, (n, 3); x points right, y to the front, z up."""
        if self.sphere is None:
            raise FoundError(f"{self.structure}: no sphere")
        xyz = self.sphere.astype(np.float64)
        return np.asarray(xyz / np.linalg.norm(xyz, axis=1, keepdims=True))


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Structure:
    """Parts in the order of the columns."""

    parts: tuple[Part, ...]
    names: tuple[str, ...]  # of parcels
    raw: bytes  # the packed form of parts and names

    @property
    def n_features(self) -> int:
        return len(self.names) or sum(len(part.index) for part in self.parts)

    @property
    def has_spheres(self) -> bool:
        """Whether the positions of all vertices are known."""
        return all(part.sphere is not None for part in self.parts if part.n_vertices)

    def blocks(self) -> Iterator[tuple[Part, slice]]:
        """Yield each part with its rows among all points."""
        first = 0
        for part in self.parts:
            yield part, slice(first, first + len(part.index))
            first += len(part.index)

    def parcel_of_points(self) -> npt.NDArray[np.intp]:
        """Return the feature of every point, (n points,)."""
        if not self.names:
            return np.arange(self.n_features)
        counts = [len(part.index) for part in self.parts]
        return np.repeat([part.parcel for part in self.parts], counts)

    def summary(self) -> str:
        if self.names:
            return f"{len(self.names)} parcels"
        parts = (
            f"{part.structure.lower()} {len(part.index)}" for part in self.parts[:MAX_SUMMARY_PARTS]
        )
        more = len(self.parts) - MAX_SUMMARY_PARTS
        return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


MAX_SUMMARY_PARTS: Final = 4


def structure_of(parts: tuple[Part, ...], names: tuple[str, ...] = ()) -> Structure:
    """Return the structure of parts; ValueError if they are invalid."""
    head = {
        "parts": [
            [p.structure, p.n_vertices, p.parcel, len(p.index), p.sphere is not None] for p in parts
        ],
        "names": list(names),
    }
    arrays = [np.asarray(p.index, dtype="<i4").tobytes() for p in parts]
    arrays += [p.sphere.astype("<i2").tobytes() for p in parts if p.sphere is not None]
    text = json.dumps(head, separators=(",", ":"), sort_keys=True)
    return unpacked(b"".join([text.encode(), b"\n", *arrays]))


def quantised(xyz: Array) -> npt.NDArray[np.int16]:
    """Return directions (n, 3) in 16 bits; ValueError unless they lie on a sphere around 0."""
    radius = np.linalg.norm(xyz, axis=1)
    if not len(xyz) or not np.isfinite(radius).all() or np.ptp(radius) > 0.01 * radius.max():
        raise FoundError("the vertices do not lie on a sphere around 0")
    return np.asarray(np.rint(QUANTUM * xyz / radius[:, None]), dtype=np.int16)


def unpacked(raw: bytes) -> Structure:
    """Return the structure of its packed form; ValueError if a part is invalid."""
    line, newline, rest = raw.partition(b"\n")
    head = parse_json(line)
    if len(raw) > MAX_STRUCTURE_BYTES or not newline or set(head) != {"parts", "names"}:
        raise FoundError("no structure, or too large")
    names = tuple(head["names"])
    if not all(isinstance(name, str) and name.isprintable() for name in names):
        raise FoundError("names of parcels that are no texts")
    if max(map(len, names), default=0) > MAX_NAME or len(set(names)) < len(names):
        raise FoundError("names of parcels that are too long, or stand twice")
    declared = [_declared(entry) for entry in head["parts"]]
    if not 0 < len(declared) <= MAX_STRUCTURE_PARTS:
        raise FoundError(f"{len(declared)} parts, allowed 1 to {MAX_STRUCTURE_PARTS}")
    points = sum(n for *_, n, _ in declared)
    widths = [(1 if n_vertices else 3) * n for _, n_vertices, _, n, _ in declared]
    spheres = [3 * n for _, n_vertices, _, n, given in declared if given and n_vertices]
    if points > MAX_STRUCTURE_POINTS or len(rest) != 4 * sum(widths) + 2 * sum(spheres):
        raise FoundError("not as many points as it says")
    numbers = np.frombuffer(rest[: 4 * sum(widths)], dtype="<i4").astype(np.int32)
    places = np.frombuffer(rest[4 * sum(widths) :], dtype="<i2").astype(np.int16)
    parts, at, place = [], 0, 0
    for (name, n_vertices, parcel, n, given), width in zip(declared, widths, strict=True):
        index, at = numbers[at : at + width], at + width
        sphere = None
        if given and n_vertices:
            sphere, place = places[place : place + 3 * n].reshape(n, 3), place + 3 * n
        parts.append(
            Part(
                structure=name,
                n_vertices=n_vertices,
                parcel=parcel,
                index=index if n_vertices else index.reshape(n, 3),
                sphere=sphere,
            )
        )
    _check(parts, len(names))
    return Structure(parts=tuple(parts), names=names, raw=raw)


def _declared(entry: Any) -> tuple[str, int, int, int, bool]:
    name, n_vertices, parcel, n, given = entry
    whole = all(type(number) is int for number in (n_vertices, parcel, n))
    if not whole or not isinstance(name, str) or not re.fullmatch(r"[A-Z_]{1,60}", name):
        raise FoundError("a part without a name or with numbers that are none")
    if n < 1 or not 0 <= n_vertices <= MAX_STRUCTURE_POINTS or type(given) is not bool:
        raise FoundError("a part without points")
    return name, n_vertices, parcel, n, given


def _check(parts: list[Part], n_parcels: int) -> None:
    parcels = {part.parcel for part in parts}
    if parcels != (set(range(n_parcels)) if n_parcels else {-1}):
        raise FoundError("parcels without points, or points without a parcel")
    seen: dict[tuple[str, bool], list[Indices]] = {}
    for part in parts:
        if part.index.min() < 0 or (part.n_vertices and part.index.max() >= part.n_vertices):
            raise FoundError(f"{part.structure}: points that are not there")
        if part.sphere is not None and not part.sphere.any(axis=1).all():
            raise FoundError(f"{part.structure}: a vertex in the middle of its sphere")
        # Voxels of different structures must differ, too.
        key = (part.structure if part.n_vertices else "", bool(part.n_vertices))
        seen.setdefault(key, []).append(part.index)
    for (name, _), groups in seen.items():
        joined = np.concatenate(groups)
        if len(np.unique(joined, axis=0)) < len(joined):
            raise FoundError(f"{name.lower() or 'voxels'}: a point stands twice")


def from_peer(raw: bytes) -> Structure:
    """As `unpacked`, for bytes from another party; MessageError if they are invalid."""
    try:
        return unpacked(raw)
    except (ValueError, TypeError, KeyError, RecursionError, UnicodeError) as err:
        raise MessageError("E202", problem="labels: no structure of grayordinates") from err


def voxels_fit(structure: Structure, shape: tuple[int, ...]) -> bool:
    """Whether all voxels lie in a grid of this shape; () is the grid of no voxels."""
    voxels = [part.index for part in structure.parts if not part.n_vertices]
    if not voxels:
        return shape == ()
    if len(shape) != 3 or not 0 < math.prod(shape) <= 2**24 or min(shape) < 1:
        return False
    return bool((np.concatenate(voxels).max(axis=0) < np.array(shape)).all())
