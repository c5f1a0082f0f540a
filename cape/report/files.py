"""JSON and tables of typed records, written and read back: the same bytes every time.

Nothing here may depend on the clock, on the machine's names or on the order of a dictionary that
is not fixed by the code.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Any, Final, TypeVar

import numpy as np

from cape.delimited import rows_by_column
from cape.protocol.wire import decode_document

MISSING: Final = "n/a"
"""An empty cell of a table: what spreadsheets and BIDS readers expect."""

UNLESS_EMPTY: Final = {"unless_empty": True}
"""Metadata of a field that is not written while it is empty."""

Table = tuple[tuple[str, ...], Sequence[tuple[str, ...]]]
Record = TypeVar("Record")


# -- JSON -----------------------------------------------------------------------------------------


def write_json(path: Path, value: object) -> None:
    """Write a record or a mapping, in its own order; what is not finite becomes null."""
    write_text(path, json.dumps(_plain(value), indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise TypeError(f"{path.name} does not hold a JSON object")
    return value


def read_record(path: Path, kind: type[Record]) -> Record:
    """Return the record that `write_json` wrote; MessageError names what does not fit."""
    # A later version may have added fields; those that an earlier one lacks have a default.
    return decode_document(read_json(path), kind, path.name, unknown="ignore")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with plain line feeds on every system."""
    path.write_bytes(text.encode("utf-8"))


def _plain(value: object) -> object:
    """Return `value` with null instead of NaN and infinities, and plain Python numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) or not field.metadata.get("unless_empty")
        }
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        items: Iterable[object] = value.tolist() if isinstance(value, np.ndarray) else value
        return [_plain(item) for item in items]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


# -- tables ---------------------------------------------------------------------------------------


def cell(value: object) -> str:
    """Return one cell of a table: 12 digits, n/a for nothing and for what is not finite."""
    if value is None:
        return MISSING
    if isinstance(value, float):
        return format(value, ".12g") if math.isfinite(value) else MISSING
    return str(value)


def write_table(path: Path, table: Table) -> None:
    """Write header and rows with tabs between the cells."""
    header, rows = table
    write_text(path, "".join("\t".join(row) + "\n" for row in (header, *rows)))


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table as header -> cell."""
    # Written without quotation marks: one in a label is part of it.
    return rows_by_column(path.read_bytes(), "\t", quoted=False)


def write_rows(path: Path, kind: type[Any], rows: Iterable[Any]) -> None:
    """Write records of one kind as a table whose header is the names of its fields."""
    header = tuple(field.name for field in dataclasses.fields(kind))
    cells = [tuple(cell(getattr(row, name)) for name in header) for row in rows]
    write_table(path, (header, cells))


def read_rows(path: Path, kind: type[Record]) -> tuple[Record, ...]:
    """Return the records of a table that `write_rows` wrote."""
    hints = typing.get_type_hints(kind)
    rows = read_table(path)
    return tuple(kind(**{k: _value(row[k], hint) for k, hint in hints.items()}) for row in rows)


def _value(text: str, hint: Any) -> object:
    kinds = typing.get_args(hint) or (hint,)
    if text == MISSING and NoneType in kinds:
        return None
    return next(kind for kind in kinds if kind is not NoneType)(text)


def line(text: str) -> str:
    """Return a text that fits one cell of a table."""
    return " ".join(text.split())


def load_image(path: Path) -> Any:
    """Return a NIfTI image, read lazily."""
    nibabel: Any = importlib.import_module("nibabel")
    return nibabel.load(path)
