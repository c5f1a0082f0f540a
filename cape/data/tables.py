"""Matrices in text: a header of names, then rows of numbers with a decimal point."""

from __future__ import annotations

import csv

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.findings import Rejected

OTHERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
FIX = "save the table again: a header, one separator, a decimal point, equal rows"


def read_numbers(content: bytes, delimiter: str) -> tuple[tuple[str, ...], Array]:
    """Return the header of a table and the numbers below it, shape (rows, columns), float64.

    Parameters
    ----------
    content : bytes
        UTF-8; a byte order mark and lines that start with ``#`` are skipped.
    delimiter : str
        Comma or tab.

    Raises
    ------
    Rejected
        Row 38, naming the line and its first 60 characters.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise _broken("A table is not UTF-8 text", f"byte {err.start}") from err
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]
    if len(lines) < 2:
        raise _broken("A table is empty", f"{len(lines)} lines")
    header = _cells(lines[0][1], delimiter)
    _check_header(lines[0], header, delimiter)
    try:
        values = np.loadtxt([line for _, line in lines[1:]], delimiter=delimiter, ndmin=2)
    except ValueError as err:
        for number, line in lines[1:]:
            _check_line(number, line, len(header), delimiter)
        raise _broken("A table holds something else than numbers", str(err)[:60]) from err
    if values.shape[1] != len(header):
        _check_line(*lines[1], len(header), delimiter)
    return tuple(header), np.asarray(values, dtype=np.float64)


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error as err:
        raise _broken("A line of a table cannot be read", f"{err}, '{line[:60]}'") from err


def _check_header(first: tuple[int, str], header: list[str], delimiter: str) -> None:
    number, line = first
    other = [sign for sign in OTHERS if sign != delimiter and sign in line]
    if len(header) == 1 and other:
        raise _broken(
            "A table is separated by another character than its name says",
            f"line {number} '{line[:60]}' looks separated by {OTHERS[other[0]]}",
            expected=f"{OTHERS[delimiter]} between cells",
        )
    if all(_is_number(cell) for cell in header):
        raise _broken(
            "A table has no header", f"line {number} '{line[:60]}'",
            expected="a first line with the names of the columns",
        )  # fmt: skip


def _check_line(number: int, line: str, n_cells: int, delimiter: str) -> None:
    """Raise row 38 if a line has another number of cells or a cell that is no number."""
    cells = _cells(line, delimiter)
    if len(cells) != n_cells:
        raise _broken(
            "Rows of a table have another number of cells than its header",
            f"line {number} '{line[:60]}' has {len(cells)} cells", expected=f"{n_cells} cells",
        )  # fmt: skip
    wrong = [cell for cell in cells if not _is_number(cell)]
    if wrong:
        raise _broken(
            "A cell of a table is not a number", f"line {number} '{line[:60]}': '{wrong[0][:20]}'",
            expected="numbers with a decimal point",
        )  # fmt: skip


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _broken(what: str, found: str, expected: str = "") -> Rejected:
    return Rejected(38, what, found=found, expected=expected, fix=FIX)
