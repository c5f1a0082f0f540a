"""Tables of text that a site supplies; a table that breaks a rule is refused with the line."""

import csv
import functools
import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from cape import delimited
from cape.algorithms.estimators import Array, Data
from cape.data.file_type import sniff
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.frozen import dataclass
from cape.settings.option import did_you_mean

RECORDS: Final = ("records.csv", "records.tsv")
PERSON: Final = "participant_id"
SESSION: Final = "session_id"
# How pandas writes a column without a name, and how it writes it again after reading.
UNNAMED: Final = (("",), ("Unnamed: 0",))
# Small letters of an empty cell, and of one that a program could not fill.
EMPTY_CELLS: Final = ("", "n/a", "na", "nan", "none", "null", "-", ".")
MISSING_CELLS: Final = (
    *EMPTY_CELLS, "<na>", "--", "#n/a", "#ref!", "#value!", "#div/0!", "#name?", "#null!", "#num!",
)  # fmt: skip
# Bytes of a table of confounds, runs or people: 10,000 rows of 1000 columns of 20 characters.
MAX_LIST_BYTES: Final = 200 * 2**20
# Letters of a row that is one person; more is a file pasted into it.
MAX_ROW_LETTERS: Final = 10**6
# Bytes of a table in which zeros are looked for.
MAX_SNIFFED: Final = 4096
# A fraction of two digits that is not 0, or an exponent; "1.1" may be the second column called 1
_OF_DATA: Final = re.compile(r"\.(?=\d*[1-9])\d\d|\de", re.ASCII | re.IGNORECASE)
# Columns listed where a wanted one is missing.
MAX_HEADINGS: Final = 12


def bounded(path: Path) -> bytes:
    """Return the bytes of a table; `UnusableFile` if they cannot be those of one, or OSError."""
    if path.is_symlink() and not path.exists():
        raise UnusableFile(IssueCode.FILE_POINTER, "a link whose file is not here")
    if path.exists() and not path.is_file():  # reading a pipe would block
        raise UnusableFile(IssueCode.NO_REGULAR_FILE, "no file")
    size = path.stat().st_size
    if size > MAX_LIST_BYTES:
        observed = f"{path.name}: {size} bytes"
        raise UnusableFile(IssueCode.TABLE_TOO_LARGE, observed, most=MAX_LIST_BYTES)
    content = path.read_bytes()
    if (kind := sniff(content[:512])).endswith("pointer"):
        raise UnusableFile(IssueCode.FILE_POINTER, f"{path.name} is a {kind}")
    return content


def table_lines(
    content: bytes, delimiter: str, *, by_line: bool = False, comments: bool = True
) -> list[delimited.Line]:
    """Return header and rows of a table; raises `UnusableFile` unless there is a header.

    `by_line`: rows are people: those that are no UTF-8 are kept for the caller to judge, and a
    header of semicolons or tabs alone says what separates them, whatever the name says.
    """
    # Every second byte of UTF-16 is 0, which is valid in UTF-8.  If a row is a person, only the
    # header is checked: one person's bytes must not end the run.
    if b"\0" in (content.partition(b"\n")[0] if by_line else content)[:MAX_SNIFFED]:
        raise UnusableFile(IssueCode.TABLE_NOT_UTF8, "zero bytes, as in UTF-16")
    try:
        lines = delimited.split_lines(content, delimiter, by_line=by_line, comments=comments)
    except UnicodeDecodeError as err:
        raise UnusableFile(IssueCode.TABLE_NOT_UTF8, f"byte {err.start} is no UTF-8") from err
    if not lines:
        raise UnusableFile(IssueCode.TABLE_EMPTY, "no lines")
    if not lines[0].is_utf8:
        raise UnusableFile(IssueCode.TABLE_NOT_UTF8, str(lines[0]))
    line_cells(lines[0])
    other = delimited.other_separator(lines[0])
    if (
        by_line
        and other in (";", "\t")
        and not set(lines[0].text) & set(delimited.SEPARATORS) - {other}
    ):
        return [replace(line, delimiter=other) for line in lines]
    if other:
        observed = f"{lines[0]} looks separated by {delimited.SEPARATORS[other]}"
        expected = delimited.SEPARATORS[delimiter]
        # A spreadsheet that writes semicolons writes 0,25: commas would then cut numbers in two.
        if other == ";" and re.search(rb"\d,\d", content):
            observed += ", with decimal commas"
            expected = f"decimal points and {expected}"
        raise UnusableFile(IssueCode.TABLE_SEPARATOR, observed, separator=expected)
    return lines


def line_cells(line: delimited.Line) -> tuple[str, ...]:
    try:
        return line.cells()
    except csv.Error as err:
        raise UnusableFile(IssueCode.TABLE_LINE, f"{line}: {err}") from err


def table_cells(content: bytes, delimiter: str) -> list[tuple[delimited.Line, tuple[str, ...]]]:
    """Return the lines of a table with their cells, all as many as the header has."""
    rows = [(line, line_cells(line)) for line in table_lines(content, delimiter)]
    width = len(rows[0][1])
    ragged = [(line, cells) for line, cells in rows if len(cells) != width]
    if ragged:
        lengths = (f"{line} has {len(cells)} cells, the header {width}" for line, cells in ragged)
        raise UnusableFile(IssueCode.TABLE_RAGGED, "; ".join(lengths), n_cells=width)
    return rows


def read_text_matrix(
    content: bytes, delimiter: str, *, by_feature: bool = False
) -> tuple[tuple[str, ...], Array]:
    """Return names of columns and the numbers below them, shape (rows, columns).

    A missing cell is NaN.  `by_feature`: the first column may have names, of rows, which are
    returned then.
    Without a `delimiter` (.1D, .txt) the text says it.  Such files, and those whose first line is
    of fractions or exponents (np.savetxt), may have no names.
    """
    header_optional = not delimiter
    if header_optional:
        content, delimiter = delimited.separated(content)
    lines = table_lines(content, delimiter)
    names, rows = _names_and_rows(content, lines, header_optional=header_optional)
    if not rows:
        raise UnusableFile(IssueCode.TABLE_EMPTY, "1 line")
    width = len(names) or len(line_cells(rows[0]))
    try:
        values = delimited.read_matrix_lines(rows)
    except ValueError:
        cells = [line_cells(row) for row in rows]
        if of_rows := _names_of_rows(cells):
            if not by_feature:
                observed = f"the first column has names such as '{of_rows[0][:20]}'"
                raise UnusableFile(IssueCode.TRANSPOSED, observed, n_features=len(rows)) from None
            if all(map(delimited.is_number, names[1:])) and not _count_up(
                names[1:]
            ):  # no header at all
                rows, cells, of_rows = lines, [names, *cells], (names[0], *of_rows)
            _check_names(of_rows)
            return of_rows, _with_gaps(rows, [row[1:] for row in cells], width - 1)
        values = _with_gaps(rows, cells, width)
    if values.shape[1] != width:
        _check_width(rows[0], line_cells(rows[0]), width)
    _check_no_empty_column(names, values)
    # A first column without a name that counts up is the row number that pandas writes.
    counts = np.array_equal(values[:, 0], values[0, 0] + np.arange(len(values)))
    if names[:1] in UNNAMED and counts:
        names, values = names[1:], values[:, 1:]
    _check_names(names)
    return names, values


def _names_of_rows(cells: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the names of rows in a first column of unlike words; () if it has none."""
    first = tuple(row[0] for row in cells)
    words = not any(delimited.is_number(cell) or cell.lower() in MISSING_CELLS for cell in first)
    numbers = all(len(row) > 1 and delimited.is_number(row[1]) for row in cells)
    return first if words and numbers and len(set(first)) == len(first) > 1 else ()


def _check_no_empty_column(names: Sequence[str], values: Array) -> None:
    """Raise UnusableFile if no row has a number in some columns, as XCP-D writes it."""
    empty = np.flatnonzero(np.isnan(values[0]))
    empty = empty[np.isnan(values[:, empty]).all(axis=0)]
    if 0 < len(empty) < values.shape[1]:
        name = names[empty[0]][:20] if names else f"{empty[0] + 1}"
        observed = f"column '{name}', {len(empty)} of {values.shape[1]} columns"
        raise UnusableFile(IssueCode.TABLE_COLUMN_EMPTY, observed)


def _names_and_rows(
    content: bytes, lines: Sequence[delimited.Line], *, header_optional: bool
) -> tuple[tuple[str, ...], Sequence[delimited.Line]]:
    first, width = line_cells(lines[0]), len(line_cells(lines[0]))
    # AFNI and ABIDE mark the names: "#2001\t#2002".  Another first line with # is a remark.
    for line in delimited.split_lines(content, lines[0].delimiter, comments=False):
        if line.number >= lines[0].number:
            break
        marked = tuple(cell.lstrip("# ") for cell in line_cells(line))
        if len(marked) > 1 and not marked[0]:  # "# 2001 2002": the mark stands by itself
            marked = marked[1:]
        if len(marked) == width and all(delimited.is_number(cell) for cell in first):
            return marked, lines
    if not all(delimited.is_number(cell) for cell in first):
        return first, lines[1:]
    # A first row of rising whole numbers is a header, unless the next row rises as well.
    below = line_cells(lines[1]) if len(lines) > 1 else ()
    if _count_up(first) and below and not _count_up(below):
        return first, lines[1:]
    # A header of other numbers is the first row of data, which would be lost.  Most cells with a
    # fraction or an exponent are data: no names look like that.
    n_data = sum(_OF_DATA.search(cell) is not None for cell in first)
    if not header_optional and 2 * n_data <= width:
        raise UnusableFile(IssueCode.TABLE_NO_HEADER, str(lines[0]))
    return (), lines


def _count_up(cells: Sequence[str]) -> bool:
    """Tell whether cells are at least two rising whole numbers, as labels of regions are."""
    if len(cells) < 2 or not all(cell.isdecimal() and cell.isascii() for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    return all(a < b for a, b in pairwise(numbers))


def _check_names(names: Sequence[str]) -> None:
    odd = [name for name, n in Counter(names).items() if not name or n > 1]
    if odd:
        raise UnusableFile(IssueCode.TABLE_NAMES, f"header, '{odd[0][:20]}'")


def _with_gaps(
    lines: Sequence[delimited.Line], cells: Sequence[Sequence[str]], width: int
) -> Array:
    """Return the numbers of lines, NaN for a missing cell; NumPy does not say where it failed."""
    values = np.empty((len(cells), width))
    for k, (line, row) in enumerate(zip(lines, cells, strict=True)):
        _check_width(line, row, width)
        known = ["nan" if cell.lower() in MISSING_CELLS else cell for cell in row]
        if wrong := [cell for cell in known if not delimited.is_number(cell)]:
            raise UnusableFile(IssueCode.TABLE_CELL, f"{line}: '{wrong[0][:20]}'")
        values[k] = [float(cell) for cell in known]
    return values


def _check_width(line: delimited.Line, cells: Sequence[str], width: int) -> None:
    if len(cells) != width:
        observed = f"{line} has {len(cells)} cells, the header {width}"
        raise UnusableFile(IssueCode.TABLE_RAGGED, observed, n_cells=width)


@dataclass(frozen=True, kw_only=True, slots=True)
class PersonRow:
    """A row of a table of people."""

    line: delimited.Line
    cells: tuple[str, ...]  # as many as the header has; none if the row has others
    issue: Issue | None  # what is wrong with the row, if only in some of its cells

    @property
    def width(self) -> int:
        """How many cells it has, whether they can be read or not."""
        return len(self.cells) or self.line.text.count(self.line.delimiter) + 1

    def label(self, table: str, place: int) -> str:
        """Return whom the row names; its line where that cannot be read, and never its values.

        Of a first column it hangs on that cell alone: whatever else stands in the row, it stays.
        """
        if place:
            return self.cells[place] if self.cells else f"line {self.line.number} of {table}"
        # Not by csv: after an open quote, or with another separator, the whole row is one cell.
        text, separator = self.line.text.lstrip(" "), self.line.delimiter
        quoted = _FIRST_QUOTED.match(text)
        if quoted and text[quoted.end() :].lstrip(" ")[:1] in ("", separator):
            return delimited.read_cell(quoted[1].replace('""', '"').strip())
        label, found, _ = text.partition(separator)
        if not found and len(self.cells) != 1:
            return f"line {self.line.number} of {table}"
        return delimited.read_cell(label.strip().strip('"').strip())

    def cell(self, place: int) -> str:
        """Return a cell; `UnusableFile`: it cannot be read."""
        if self.issue and (not self.cells or _OTHER_BYTE.search(self.cells[place])):
            raise self.issue.verdict()
        return self.cells[place]

    def known_cell(self, place: int, width: int, known: Callable[[str], bool]) -> str:
        """Return a cell that another cell's fault must not move; "" if none is known.

        In a row with too many or too few cells it is sought from the left and from the right end.
        `width`: cells of the header.
        """
        if self.cells:
            return self.cells[place]
        parts = self.line.text.split(self.line.delimiter)
        each = (
            parts[at].strip().strip('"').strip()
            for at in (place, place - width)
            if -len(parts) <= at < len(parts)
        )
        return next((cell for cell in each if known(cell)), "")


_FIRST_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"')
# How `Line.text` has a byte that is no UTF-8
_OTHER_BYTE: Final = re.compile(r"\\x[0-9a-f]{2}")


def rows_of_people(
    path: Path, *, comments: bool = False
) -> tuple[tuple[str, ...], Iterator[PersonRow]]:
    """Return header and rows of a table of people; no row stops the reading.

    A row is one person: its faults must not decide whether others count, and a fault in a cell that
    nobody asked for decides nothing.  `comments`: whether lines that begin with ``#`` are left out.
    `UnusableFile` or OSError for the table as a whole.
    """
    content, delimiter = bounded(path), delimited.delimiter_of(path.name)
    first, *lines = table_lines(content, delimiter, by_line=True, comments=comments)
    header = line_cells(first)
    return header, (_person_row(line, len(header)) for line in lines)


def _person_row(line: delimited.Line, width: int) -> PersonRow:
    if len(line.text) > MAX_ROW_LETTERS:
        observed = f"line {line.number} has {len(line.text)} letters"
        return PersonRow(line=line, cells=(), issue=Issue(IssueCode.TABLE_LINE, observed))
    try:
        # Without quotes no cell is too long for csv: it may be somebody's note.
        cells = line_cells(replace(line, quoted='"' in line.text))
        _check_width(line, cells, width)
    except UnusableFile as verdict:
        # A quote or a long text in one cell must not take the others: none of them has a separator.
        cells = tuple(cell.strip('"').strip() for cell in line_cells(replace(line, quoted=False)))
        whole = cells if len(cells) == width else ()
        return PersonRow(line=line, cells=whole, issue=verdict.issue)
    issue = None if line.is_utf8 else Issue(IssueCode.TABLE_NOT_UTF8, str(line))
    return PersonRow(line=line, cells=cells, issue=issue)


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """Names, labels, values (n, D) float32; a missing one is NaN, so its subject fails.

    `problems`: of rows that cannot be read; a bad cell fails its subject, not the table.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    values: Data
    problems: Mapping[int, Issue]


def column_names(header: Sequence[str]) -> list[str]:
    """Return the names of columns as they are compared."""
    cells = (unicodedata.normalize("NFC", cell.lstrip("\ufeff")) for cell in header)
    return [cell.strip().lower() for cell in cells]


def places_of(header: Sequence[str], columns: Sequence[str]) -> tuple[int, list[int]]:
    """Return where the people's names and some columns stand in a table; `UnusableFile`."""
    names = column_names(header)
    for column in (PERSON, *columns):
        if (count := names.count(column.lower())) > 1:
            raise UnusableFile(IssueCode.COLUMN_TWICE, f"{count} columns {column}")
        if not count:
            near, found = did_you_mean(column.lower(), names), ", ".join(header)[:80]
            raise UnusableFile(
                IssueCode.PERSON_COLUMN, f"no column {column}{near}; found {found}", column=column
            )
    return names.index(PERSON), [names.index(column.lower()) for column in columns]


def read_labels(path: Path) -> tuple[str, ...]:
    """Return whom each row of a table of people names; `UnusableFile` or OSError."""
    header, rows = rows_of_people(path, comments=True)
    return row_labels(header, rows, path.name)


def row_labels(header: Sequence[str], rows: Iterable[PersonRow], table: str) -> tuple[str, ...]:
    """As `read_labels`, of a table that is read."""
    person, _ = places_of(header, ())
    labels = tuple(row.label(table, person) for row in rows)
    if not labels:
        raise UnusableFile(IssueCode.RECORDS_EMPTY, "1 line")
    return labels


def read_records(path: Path) -> Records:
    """Return a table of records; `UnusableFile` or OSError."""
    state = path.stat()
    return _records(path, (state.st_mtime_ns, state.st_size))


# Each person asks for the file; time and size are in the key, so new content is read again.
@functools.lru_cache(maxsize=8)
def _records(path: Path, _stamp: object) -> Records:
    header, rows = rows_of_people(path, comments=True)
    # Column exclude says who takes part (`cape.data.marks`), and is no number of a person.
    places = [n for n in range(1, len(header)) if header[n].strip().lower() != "exclude"]
    names = tuple(header[n] for n in places)
    _check_names(names)
    labels: list[str] = []
    values: list[Array] = []
    problems: dict[int, Issue] = {}
    for i, row in enumerate(rows):
        labels.append(row.label(path.name, 0))
        values.append(np.full(len(names), np.nan))
        try:
            row.cell(0)
            values[i][:] = [_record(row.cell(place), row.line) for place in places]
        except UnusableFile as verdict:
            problems[i] = verdict.issue
    if not labels or not names:
        observed = f"{1 + len(labels)} lines, {len(names)} features"
        raise UnusableFile(IssueCode.RECORDS_EMPTY, observed)
    with np.errstate(over="ignore"):  # values beyond float32 become infinite and count as such
        table = np.array(values).astype(np.float32)
    return Records(names=names, labels=tuple(labels), values=table, problems=problems)


def _record(cell: str, line: delimited.Line) -> float:
    if cell.lower() in MISSING_CELLS:
        return np.nan
    cell = delimited.with_point(cell)
    if not delimited.is_number(cell):
        raise UnusableFile(IssueCode.TABLE_CELL, f"{line}: '{cell[:20]}'")
    return float(cell)


def read_confounds(
    path: Path, columns: Sequence[str] | None, issues: list[Issue]
) -> tuple[Array, str]:
    """Return columns (T, K) and the file's SHA-256; `issues` gets empty cells of the first row.

    None: all columns but the row numbers of pandas.
    """
    content = bounded(path)
    try:
        (_, header), *rows = table_cells(content, delimited.delimiter_of(path.name, "\t"))
    except UnusableFile as err:
        # The caller adds the name of the image; the fault is in the table beside it.
        raise err.issue.verdict(f"{path.name}: ") from None
    if columns is None:
        columns = header[1:] if header[:1] in UNNAMED else header
    absent = [name for name in columns if name not in header]
    if absent:
        more = " ..." if len(header) > MAX_HEADINGS else ""
        missing = f"{', '.join(absent)}{did_you_mean(absent[0], header)}"
        there = f"{', '.join(header[:MAX_HEADINGS])}{more}"
        observed, wanted = f"{path.name} has no {missing}; it has {there}", ", ".join(columns)
        raise UnusableFile(IssueCode.CONFOUND_COLUMNS, observed, columns=wanted)
    twice = [name for name in columns if header.count(name) > 1]
    if twice:
        observed = f"{path.name} has {header.count(twice[0])} columns {twice[0]}"
        wanted = ", ".join(columns)
        raise UnusableFile(IssueCode.CONFOUND_COLUMNS, observed, columns=f"each once: {wanted}")
    where = [header.index(name) for name in columns]
    values = [[_confound(cells[i]) for i in where] for _, cells in rows]
    table = np.array(values, dtype=np.float64).reshape(len(values), len(where))
    _fill_first_row(table, columns, issues)
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        observed = f"{path.name}: line {rows[row][0].number}, column {columns[column]}"
        raise UnusableFile(IssueCode.CONFOUND_CELL, observed)
    return table, hashlib.sha256(content).hexdigest()


def _confound(cell: str) -> float:
    """Return a cell as a number: NaN if empty, infinity if it is no number."""
    if cell.lower() in MISSING_CELLS:
        return np.nan
    return float(cell) if delimited.is_number(cell) else np.inf


def _fill_first_row(table: Array, columns: Sequence[str], issues: list[Issue]) -> None:
    # A derivative such as framewise displacement has no value at the first volume.  fMRIPrep
    # writes n/a there; its users put 0.
    empty = np.isnan(table[:1])
    if not empty.any() or np.isinf(table[:1]).any():
        return
    names = [name for name, gap in zip(columns, empty[0], strict=True) if gap]
    first = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
    issues.append(Issue(IssueCode.CONFOUND_FILLED, first))
    table[0, empty[0]] = 0.0
