"""Vertices of GIFTI surfaces.

Not by nibabel: a surface comes from others, could name another file as its data, and its packed
numbers could expand without bound.
"""

from __future__ import annotations

import base64
import math
import zlib
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import numpy as np

from cape.algorithms.estimators import Array
from cape.cifti_xml import plain_xml
from cape.errors import FoundError

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
