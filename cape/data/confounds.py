"""Confound tables: one column per signal to regress out, one row per volume."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array
from cape.config import did_you_mean
from cape.data.findings import Rejected
from cape.data.series import Note

MISSING_CELLS = ("n/a", "nan", "na", "")
MOST_BYTES = 200 * 2**20
"""A larger table is none: 10,000 rows of 1000 columns of 20 characters."""


def read_confounds(path: Path, columns: Sequence[str], notes: list[Note]) -> tuple[Array, str]:
    """Return the named columns of a table, shape (T, K), and the SHA-256 of the file.

    Derivatives have no value in the first row (``n/a``): it counts as 0.

    Parameters
    ----------
    path : Path
        .tsv as fMRIPrep writes it, or .csv.
    columns : sequence of str
        What to regress out.
    notes : list of Note
        Receives row 37 for empty cells of the first row.

    Raises
    ------
    Rejected
        Row 37: a column is missing, or a cell is no number; row 38: no table.
    """
    if path.stat().st_size > MOST_BYTES:
        raise _no_table(path, f"{path.stat().st_size} bytes")
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise _no_table(path, f"byte {err.start} is no UTF-8") from err
    delimiter = "," if path.suffix.lower() == ".csv" else "\t"
    lines = [line for line in csv.reader(text.splitlines(), delimiter=delimiter) if line]
    if not lines:
        raise _no_table(path, "no lines")
    header = [cell.strip() for cell in lines[0]]
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(header):
            raise _no_table(path, f"line {number} has {len(line)} cells, the header {len(header)}")
    absent = [name for name in columns if name not in header]
    if absent:
        raise Rejected(
            37, "A confound table lacks columns",
            found=f"{path.name} has no {', '.join(absent)}{did_you_mean(absent[0], header)}; "
            f"it has {', '.join(header[:12])}" + (" ..." if len(header) > 12 else ""),
            expected=", ".join(columns), fix="add the columns, or ask the owner for others",
        )  # fmt: skip
    where = [header.index(name) for name in columns]
    values = [[_number(line[i]) for i in where] for line in lines[1:]]
    table = np.array(values, dtype=np.float64).reshape(len(values), len(where))
    return _filled(table, path, columns, notes), hashlib.sha256(content).hexdigest()


def check_length(table: Array, n_times: int, n_dummy: int, name: str) -> None:
    """Raise row 36 unless there is one row per volume of the image."""
    if len(table) != n_times:
        raise Rejected(
            36, "A confound table has another number of rows than its image has volumes",
            found=f"{name}: {len(table)} rows, {n_times} volumes "
            f"({n_times - n_dummy} after dropping {n_dummy} dummies)",
            expected="one row per stored volume; dummies are dropped from both",
            fix="use the table that belongs to the image, with its first rows",
        )  # fmt: skip


def _number(cell: str) -> float:
    """Return a cell as a number: NaN for an empty one, infinity for what is none."""
    text = cell.strip()
    if text.lower() in MISSING_CELLS:
        return np.nan
    try:
        return float(text)
    except ValueError:
        return np.inf


def _filled(table: Array, path: Path, columns: Sequence[str], notes: list[Note]) -> Array:
    """Return the table with 0 for empty cells of the first row; others are row 37."""
    bad = ~np.isfinite(table)
    if bad[:1].any() and not np.isinf(table[:1]).any():
        names = [columns[i] for i in range(len(columns)) if bad[0, i]]
        shown = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
        notes.append(
            Note(
                row=37, what="Empty cells in the first row of a confound table count as 0",
                found=f"{path.name}: {shown}",
            )
        )  # fmt: skip
        table[0, bad[0]] = 0.0
        bad[0] = False
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise Rejected(
            37, "A cell of a confound table is not a number",
            found=f"{path.name}: line {row + 2}, column {columns[column]}",
            expected="a number in every row; n/a in the first one only",
            fix="correct the table, or ask the owner for other columns",
        )  # fmt: skip
    return table


def _no_table(path: Path, found: str) -> Rejected:
    return Rejected(
        38, "A confound table cannot be read", found=f"{path.name}: {found}",
        expected="tab-separated UTF-8 text with a header and rows of equal length",
        fix="save it again, or use fMRIPrep's own file",
    )  # fmt: skip
