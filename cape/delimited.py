"""The one reader of delimited text: UTF-8, byte order mark or not, one row a line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.frozen import dataclass

SEPARATORS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
MOST_LETTERS: Final = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a table, with its number in the file, from 1: what an editor shows."""

    number: int
    text: str
    delimiter: str
    quoted: bool = True

    # Split when asked: the cells of a matrix of 70,000 columns would need 50 times its numbers.
    def cells(self) -> tuple[str, ...]:
        """Split the line, blanks at the ends of cells removed; raises csv.Error."""
        if not self.quoted:
            return tuple(cell.strip() for cell in self.text.split(self.delimiter))
        rows = csv.reader([self.text], delimiter=self.delimiter)
        return tuple(cell.strip() for cell in next(rows))

    def __str__(self) -> str:
        return f"line {self.number} '{self.text[:MOST_LETTERS]}'"


def delimiter_of(name: str, default: str = ",") -> str:
    return {"csv": ",", "tsv": "\t"}.get(name.lower().rpartition(".")[2], default)


def split_lines(
    content: bytes | str, delimiter: str, *, comments: bool = True, quoted: bool = True
) -> list[Line]:
    """Return the lines of a table that are not blank; UnicodeDecodeError for bytes of no UTF-8.

    With `comments`, lines that begin with ``#`` are none; without `quoted`, quotes are letters.
    """
    # Spreadsheets put a byte order mark first, which would become part of the first column's name.
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    return [
        Line(number=number, text=line, delimiter=delimiter, quoted=quoted)
        for number, line in enumerate(text.splitlines(), start=1)
        if line.strip() and not (comments and line.lstrip().startswith("#"))
    ]


def rows_by_column(
    content: bytes | str, delimiter: str, *, quoted: bool = True
) -> list[dict[str, str]]:
    """Return the rows below the header, column -> cell; ValueError for rows of another length."""
    # No comments: a feature of somebody's table may well be called "#1".
    header, *rows = split_lines(content, delimiter, comments=False, quoted=quoted)
    columns = header.cells()
    return [dict(zip(columns, row.cells(), strict=True)) for row in rows]


def other_separator(header: Line) -> str:
    # One cell may be right: only another separator in it makes it suspect.
    if len(header.cells()) > 1:
        return ""
    others = (sign for sign in SEPARATORS if sign != header.delimiter and sign in header.text)
    return next(others, "")


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def read_matrix_lines(lines: Sequence[Line]) -> npt.NDArray[np.float64]:
    """Return lines of numbers as a matrix (lines, cells); ValueError unless they are one."""
    # NumPy parses line by line into doubles: cells never exist all at once as Python texts.
    return np.loadtxt([line.text for line in lines], delimiter=lines[0].delimiter, ndmin=2)
