"""The one reader of delimited text: UTF-8, byte order mark or not, one row a line.

A line ends with LF, CR LF or CR and nothing else: what Unicode calls an end (U+2028, a form feed)
is a letter of a cell, so that no cell makes a row.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.frozen import dataclass

SEPARATORS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
MOST_LETTERS: Final = 60
ENDS: Final = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a table, with its number in the file, from 1: what an editor shows."""

    number: int
    text: str
    delimiter: str
    quoted: bool = True
    is_utf8: bool = True  # if not, bytes that are none stand in `text` as ``\\xff``

    # Split when asked: the cells of a matrix of 70,000 columns would need 50 times its numbers.
    def cells(self) -> tuple[str, ...]:
        """Split the line, blanks at the ends of cells removed; raises csv.Error."""
        if not self.quoted:
            return tuple(cell.strip() for cell in self.text.split(self.delimiter))
        rows = csv.reader([self.text], delimiter=self.delimiter)
        return tuple(cell.strip() for cell in next(rows))

    def __str__(self) -> str:
        return f"line {self.number} '{self.text[:MOST_LETTERS]}'"


def separated(content: bytes) -> tuple[bytes, str]:
    """Return text without a fixed separator, and the one that it has: blanks count as a tab."""
    lines = (line for line in content.splitlines() if line.strip())
    head = next((line for line in lines if not line.lstrip().startswith(b"#")), b"")
    found = next((sign for sign in SEPARATORS if sign.encode() in head), "")
    if found:
        return content, found
    return b"\n".join(b"\t".join(line.split()) for line in content.splitlines()), "\t"


def delimiter_of(name: str, default: str = ",") -> str:
    return {"csv": ",", "tsv": "\t"}.get(name.lower().rpartition(".")[2], default)


def split_lines(
    content: bytes | str,
    delimiter: str,
    *,
    comments: bool = True,
    quoted: bool = True,
    by_line: bool = False,
) -> list[Line]:
    """Return the lines of a table that are not blank; UnicodeDecodeError for bytes of no UTF-8.

    With `comments`, lines that begin with ``#`` are none; without `quoted`, quotes are letters;
    `by_line`: such bytes are a matter of their line alone (`Line.is_utf8`).
    """
    # Spreadsheets put a byte order mark first, which would become part of the first column's name.
    errors = "surrogateescape" if by_line else "strict"
    text = content if isinstance(content, str) else content.decode("utf-8-sig", errors)
    lines = []
    for number, line in enumerate(ENDS.split(text), start=1):
        if not line.strip() or (comments and line.lstrip().startswith("#")):
            continue
        shown = line
        if by_line:
            shown = line.encode("utf-8", errors).decode("utf-8", "backslashreplace")
        lines.append(
            Line(
                number=number, text=shown, delimiter=delimiter, quoted=quoted, is_utf8=shown == line
            )
        )
    return lines


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
    return cell.isascii() and "_" not in cell  # Python reads 2_5 as 25, and digits of all scripts


def read_matrix_lines(lines: Sequence[Line]) -> npt.NDArray[np.float64]:
    """Return lines of numbers as a matrix (lines, cells); ValueError unless they are one."""
    # NumPy parses line by line into doubles: cells never exist all at once as Python texts.
    return np.loadtxt([line.text for line in lines], delimiter=lines[0].delimiter, ndmin=2)
