"""The manifest of a site: one row per run, CSV or TSV, UTF-8, ``#`` lines are comments."""

from __future__ import annotations

import csv
import math
from pathlib import Path, PurePath

from cape.config import did_you_mean
from cape.data.findings import Findings
from cape.frozen import dataclass

COLUMNS = ("file", "subject", "ses", "run", "tr", "n_dummy", "confounds", "exclude",
           "trust_grid", "notes")  # fmt: skip
ALIASES = {"filename": "file", "nii": "file"}
DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
FIX = "save the table again as comma-separated (.csv) or tab-separated (.tsv) UTF-8 text"


@dataclass(frozen=True, kw_only=True, slots=True)
class ManifestRow:
    """One run as listed; empty texts and zeros where the manifest says nothing."""

    file: str
    subject: str = ""
    ses: str = ""
    run: str = ""
    tr: float = 0.0
    n_dummy: int = 0
    confounds: str = ""
    trust_grid: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class _Line:
    number: int
    text: str
    cells: tuple[str, ...]


def read_manifest(base: Path, name: str, findings: Findings) -> tuple[ManifestRow, ...]:
    """Return the rows of a manifest that are not marked ``exclude``.

    Parameters
    ----------
    base : Path
        The site's folder.
    name : str
        Name of the table, relative to `base`.
    findings : Findings
        Receives rows 1, 2, 4, 38 and 39.
    """
    lines = _read_lines(base, name, findings)
    if not lines:
        return ()
    header = [_column(cell) for cell in lines[0].cells]
    if not _check_header(name, lines[0], header, findings):
        return ()
    rows = []
    for line in lines[1:]:
        cells = dict(zip(header, line.cells, strict=True))
        if _truth(cells.get("exclude", "")):
            continue
        row = _row(name, line, cells, findings)
        if row is not None:
            rows.append(row)
    if not rows:
        findings.add(
            4, "E", "The manifest lists no runs", f"{name}: {len(lines) - 1} rows, none used",
            expected="at least one row without exclude = 1", fix="add rows",
        )  # fmt: skip
    return tuple(rows)


def _read_lines(base: Path, name: str, findings: Findings) -> list[_Line]:
    """Return header and rows as cells, or [] after noting what is wrong."""
    pure = PurePath(name)
    if pure.is_absolute() or ".." in pure.parts:
        findings.add(
            2, "E", "The manifest lies outside the base directory", name,
            expected="a name inside it, without '..'", fix="copy it there",
        )  # fmt: skip
        return []
    try:
        text = (base / pure).read_bytes().decode("utf-8-sig")
    except OSError:
        findings.add(
            1, "E", "The manifest is missing", name, expected=f"a table below {base}",
            fix="correct its name",
        )  # fmt: skip
        return []
    except UnicodeDecodeError as err:
        findings.add(
            38,
            "E",
            "A table is not UTF-8 text",
            f"{name}: byte {err.start}",
            expected="UTF-8",
            fix=FIX,
        )
        return []
    delimiter = "\t" if pure.suffix.lower() == ".tsv" else ","
    lines = []
    for number, raw in enumerate(text.splitlines(), start=1):
        if raw.strip() and not raw.lstrip().startswith("#"):
            try:
                cells = next(csv.reader([raw], delimiter=delimiter))
            except csv.Error as err:
                found = f"{name}: line {number}: {err}"
                findings.add(38, "E", "A line of a table cannot be read", found, fix=FIX)
                return []
            lines.append(_Line(number=number, text=raw, cells=tuple(c.strip() for c in cells)))
    if not lines:
        findings.add(38, "E", "A table is empty", name, expected="a header and rows", fix=FIX)
    return lines if _regular(name, lines, delimiter, findings) else []


def _regular(name: str, lines: list[_Line], delimiter: str, findings: Findings) -> bool:
    """Note row 38 for a wrong delimiter and for rows of another length than the header."""
    if not lines:
        return False
    other = [d for d in DELIMITERS if d != delimiter and d in lines[0].text]
    if len(lines[0].cells) == 1 and other:
        findings.add(
            38, "E", "A table is separated by another character than its name says",
            f"{name}: line {lines[0].number} '{lines[0].text[:60]}' looks separated by "
            f"{DELIMITERS[other[0]]}",
            expected=DELIMITERS[delimiter], fix=FIX,
        )  # fmt: skip
        return False
    ragged = [line for line in lines if len(line.cells) != len(lines[0].cells)]
    for line in ragged:
        findings.add(
            38, "E", "Rows of a table have another number of cells than its header",
            f"{name}: line {line.number} '{line.text[:60]}' has {len(line.cells)} cells",
            expected=f"{len(lines[0].cells)} cells", fix=FIX,
        )  # fmt: skip
    return not ragged


def _column(cell: str) -> str:
    name = cell.lower()
    return ALIASES.get(name, name)


def _check_header(name: str, line: _Line, header: list[str], findings: Findings) -> bool:
    """Note row 39 (columns) and row 38 (no header); return whether rows can be read."""
    for column in header:
        if column == "mask":
            findings.add(
                39, "E", "The manifest has a column 'mask'", name,
                expected="one mask for the whole consortium, set by the owner",
                fix="remove the column",
            )  # fmt: skip
        elif column not in COLUMNS and "file" in header:
            findings.add(
                39, "W", "The manifest has unknown columns, which are not used",
                f"{name}: '{column}'{did_you_mean(column, COLUMNS)}",
                expected=", ".join(COLUMNS), fix="rename or remove them",
            )  # fmt: skip
    if "file" in header and len(set(header)) == len(header):
        return True
    if line.cells[0].endswith((".nii", ".nii.gz", ".img", ".npy", ".npz", ".mat")):
        findings.add(
            38, "E", "A table has no header", f"{name}: line {line.number} '{line.text[:60]}'",
            expected=", ".join(COLUMNS), fix="add a first line with the names of the columns",
        )  # fmt: skip
    else:
        findings.add(
            39, "E", "The manifest needs one column 'file'",
            f"{name}: found {', '.join(line.cells)}",
            expected=", ".join(COLUMNS), fix="name the column of the files 'file'",
        )  # fmt: skip
    return False


def _truth(cell: str) -> bool:
    return cell.lower() in ("1", "true", "yes")


def _row(name: str, line: _Line, cells: dict[str, str], findings: Findings) -> ManifestRow | None:
    """Return a checked row, or None after noting row 38."""
    where = f"{name}: line {line.number} '{line.text[:60]}'"
    if not cells["file"]:
        findings.add(
            38, "E", "A row of a table names no file", where, expected="a name in column 'file'",
            fix="fill or remove it",
        )  # fmt: skip
        return None
    numbers = {}
    for column in ("tr", "n_dummy"):
        number = _number(cells.get(column, ""))
        whole = column == "tr" or number == int(number) if math.isfinite(number) else False
        if not whole or number < 0:
            findings.add(
                38, "E", f"A cell of column '{column}' is not a number",
                f"{where}: '{cells[column]}'",
                expected="a number with a decimal point" if column == "tr" else "a whole number",
                fix="write 2.5, not 2,5 or '2.5 s'",
            )  # fmt: skip
            return None
        numbers[column] = number
    return ManifestRow(
        file=cells["file"],
        subject=cells.get("subject", ""),
        ses=cells.get("ses", ""),
        run=cells.get("run", ""),
        tr=numbers["tr"],
        n_dummy=int(numbers["n_dummy"]),
        confounds=cells.get("confounds", ""),
        trust_grid=_truth(cells.get("trust_grid", "")),
    )


def _number(cell: str) -> float:
    if cell.lower() in ("", "n/a", "na"):
        return 0.0
    try:
        return float(cell)
    except ValueError:
        return math.nan
