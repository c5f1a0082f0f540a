"""The reader of delimited text: UTF-8 with or without a byte order mark, one row per line.

A line ends with LF, CR LF or CR.  Other line ends of Unicode (U+2028, a form feed) belong to cells,
so that no cell can make a row.
"""

import csv
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.frozen import dataclass

SEPARATORS: Final = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
_MAX_LETTERS: Final = 60
ENDS: Final = re.compile(r"\r\n|\n|\r")
# A remark; an error of a spreadsheet is a cell.
_REMARK: Final = re.compile(r"\s*#(?!(N/A|REF!|VALUE!|DIV/0!|NAME\?|NULL!|NUM!))")
_FORMULA: Final = re.compile(r"'*[=+\-@]")
# One reading: 1,234 may be a thousand, 0,234 and 41,3 may not.
_DECIMAL_COMMA: Final = re.compile(r"[+-]?(?![1-9]\d{0,2},\d{3}$)\d+,\d+", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of a table."""

    number: int  # in the file, from 1
    text: str
    delimiter: str
    quoted: bool = True
    is_utf8: bool = True  # if not, `text` has other bytes as ``\\xff``

    # Not stored: the cells of a matrix of 70,000 columns need 50 times the memory of its numbers.
    def cells(self) -> tuple[str, ...]:
        """Return the cells without surrounding blanks; raises csv.Error."""
        cells: Sequence[str] = self.text.split(self.delimiter)
        if self.quoted:
            cells = next(csv.reader([self.text], delimiter=self.delimiter))
        return tuple(read_cell(cell.strip()) for cell in cells)

    def __str__(self) -> str:
        return f"line {self.number} '{self.text[:_MAX_LETTERS]}'"


def separated(content: bytes) -> tuple[bytes, str]:
    """Return text and its separator; blanks between cells become tabs."""
    lines = (line for line in content.splitlines() if line.strip())
    head = next((line for line in lines if not line.lstrip().startswith(b"#")), b"")
    separator = next((sign for sign in SEPARATORS if sign.encode() in head), "")
    if separator:
        return content, separator
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
    """Return the lines of a table that are not blank; UnicodeDecodeError if it is not UTF-8.

    With `comments`, remarks are left out; without `quoted`, quotes are letters; with `by_line`,
    `Line.is_utf8` marks lines that are not UTF-8.
    """
    # Spreadsheets write a byte order mark, which would become part of the first column's name.
    errors = "surrogateescape" if by_line else "strict"
    text = content if isinstance(content, str) else content.decode("utf-8-sig", errors)
    lines = []
    for number, line in enumerate(ENDS.split(text), start=1):
        if not line.strip() or (comments and _REMARK.match(line)):
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
    # No comments: a feature may be called "#1".
    header, *rows = split_lines(content, delimiter, comments=False, quoted=quoted)
    columns = header.cells()
    return [dict(zip(columns, row.cells(), strict=True)) for row in rows]


def other_separator(header: Line) -> str:
    # A single cell may be right, but not with another separator in it.
    if len(header.cells()) > 1:
        return ""
    others = (sign for sign in SEPARATORS if sign != header.delimiter and sign in header.text)
    return next(others, "")


def written_cell(text: str) -> str:
    """Return a cell of a table that we write; `read_cell` takes it back.

    Spreadsheets compute a text that begins like a formula.  An apostrophe tells them not to.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def read_cell(cell: str) -> str:
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell


def with_point(cell: str) -> str:
    """Return a number whose comma can only be a decimal sign with a point; other cells as is."""
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell.strip()) else cell


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell  # float() reads 2_5 and digits of all scripts


def read_matrix_lines(lines: Sequence[Line]) -> npt.NDArray[np.float64]:
    """Return lines of numbers as a matrix (lines, cells); ValueError if they are none."""
    # NumPy parses line by line, so the cells are never all in memory as Python texts.
    return np.loadtxt([line.text for line in lines], delimiter=lines[0].delimiter, ndmin=2)
