"""Typed records as JSON and tables, without clock or host name: equal results, equal bytes."""

import dataclasses
import json
import math
import typing
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar

import numpy as np

from cape.delimited import rows_by_column, written_cell
from cape.errors import FoundError
from cape.protocol.wire import decode_document
from cape.settings.documents import parse_json, plain_json

# Empty cell of a table, as in BIDS
EMPTY_CELL: Final = "n/a"

Record = TypeVar("Record")


def write_json(path: Path, value: object) -> None:
    """Write a record or a mapping in its own order; non-finite numbers become null."""
    write_text(path, json.dumps(plain_json(value), indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    # Not the reader of messages, which limits their size.
    value = parse_json(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise TypeError(f"{path.name} does not hold a JSON object")
    return value


def read_record(path: Path, kind: type[Record]) -> Record:
    """Return the record that `write_json` wrote; MessageError names a field that does not fit."""
    # Unknown fields, which a later version may add, are ignored.
    return decode_document(read_json(path), kind, path.name, unknown="ignore")


def write_text(path: Path, text: str) -> None:
    # Text mode would change line ends on some systems.
    path.write_bytes(text.encode("utf-8"))


def write_markdown(path: Path, text: str) -> None:
    """Write a text with words of owners and sites, none of which becomes HTML."""
    write_text(path, text.replace("<", "&lt;"))


def cell(value: object) -> str:
    """Return a cell of a table: 12 digits, n/a for None and non-finite numbers."""
    if value is None:
        return EMPTY_CELL
    if isinstance(value, float):
        return format(value, ".12g") if math.isfinite(value) else EMPTY_CELL
    return str(value)


def write_table(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    lines = ("\t".join(map(written_cell, row)) + "\n" for row in (header, *rows))
    write_text(path, "".join(lines))


def read_table(path: Path) -> list[dict[str, str]]:
    # Tables have no quoting: a quotation mark is part of a label.
    return rows_by_column(path.read_bytes(), "\t", quoted=False)


def write_rows(path: Path, kind: type[Any], rows: Iterable[Any]) -> None:
    header = [field.name for field in dataclasses.fields(kind)]
    write_table(path, header, ([cell(getattr(row, name)) for name in header] for row in rows))


def read_rows(path: Path, kind: type[Record]) -> tuple[Record, ...]:
    hints = typing.get_type_hints(kind)
    return tuple(
        kind(**{name: _value(row[name], hint) for name, hint in hints.items()})
        for row in read_table(path)
    )


def _value(text: str, hint: Any) -> object:
    # The declared type decides, not the text: a label may be "1e5".
    kinds = typing.get_args(hint) or (hint,)
    if text == EMPTY_CELL and NoneType in kinds:
        return None
    return next(kind for kind in kinds if kind is not NoneType)(text)


def line(text: str) -> str:
    return " ".join(text.split())


def load_image(path: Path) -> Any:
    """Return an image of volumes or CIFTI; nibabel's errors, or FoundError for a surface."""
    # The XML of CIFTI is parsed by `cape.cifti_xml`, whose time is linear in its length.
    import nibabel

    if path.name.lower().endswith((".gii", ".gii.gz")):
        raise FoundError("a surface in GIFTI, not an image")
    if nibabel.Cifti2Image.path_maybe_image(path)[0]:
        return _load_cifti(path)
    return nibabel.load(path)


def _load_cifti(path: Path) -> Any:
    from nibabel.arrayproxy import ArrayProxy
    from nibabel.cifti2.cifti2 import Cifti2Image
    from nibabel.nifti2 import Nifti2Header

    from cape.cifti_xml import MAX_XML_BYTES, axes_of
    from cape.space.grayordinates import MAX_STRUCTURE_POINTS

    with path.open("rb") as stream:
        header = Nifti2Header(stream.read(540), check=False)
        order = "<" if header.endianness == "<" else ">"
        size, code = np.frombuffer(stream.read(12)[4:], dtype=f"{order}i4").tolist()
        if code != 32 or not 8 < size <= MAX_XML_BYTES:
            raise FoundError(f"extension {code} of {size} bytes")
        axes = axes_of(stream.read(size - 8).rstrip(b"\0"), MAX_STRUCTURE_POINTS)
    where = (header.get_data_shape()[4:], header.get_data_dtype(), header.get_data_offset())
    scale = [
        default if x is None else x
        for x, default in zip(header.get_slope_inter(), (1.0, 0.0), strict=True)
    ]
    return Cifti2Image(ArrayProxy(str(path), (*where, *scale)), header=axes)
