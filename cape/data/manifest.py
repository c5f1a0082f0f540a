"""A site's manifest: a table with one row per run."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Final

from cape.data.file_type import IMAGE_SUFFIXES
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.runs import ListedRun, leads_out
from cape.data.tables import MISSING_CELLS, bounded, is_true, table_cells
from cape.delimited import Line, delimiter_of
from cape.settings.option import did_you_mean

MANIFEST_NAMES: Final = ("manifest.csv", "manifest.tsv")
# The last two are no properties of a run: rows that are left out, and a remark for people.
MANIFEST_COLUMNS: Final = (*(column.name for column in fields(ListedRun)), "exclude", "notes")
ALIASES: Final = {"filename": "file", "nii": "file"}


def read_manifest(base: Path, name: str, findings: Findings) -> tuple[ListedRun, ...]:
    """Return the runs of a manifest that are not marked ``exclude``; one row per run."""
    if leads_out(name):
        findings.add(IssueCode.MANIFEST_OUTSIDE, name)
        return ()
    try:
        (first, cells), *rows = table_cells(bounded(base / name), delimiter_of(name))
    except OSError:
        findings.add(IssueCode.MANIFEST_MISSING, name, base=base)
        return ()
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
        return ()
    header = [ALIASES.get(cell.lower(), cell.lower()) for cell in cells]
    if not _check_header(name, first, header, findings):
        return ()
    runs = []
    for line, row in rows:
        named = dict(zip(header, row, strict=True))
        if not is_true(named.get("exclude", "")):
            runs.append(_manifest_row(name, line, named, findings))
    listed = tuple(run for run in runs if run is not None)
    if not listed:
        findings.add(IssueCode.NO_LISTED_RUNS, f"{name}: {len(rows)} rows, none used")
    return listed


def _check_header(name: str, first: Line, header: list[str], findings: Findings) -> bool:
    every = ", ".join(MANIFEST_COLUMNS)
    for column in header:
        if column == "mask":
            findings.add(IssueCode.MANIFEST_MASK, name)
        elif column not in MANIFEST_COLUMNS and "file" in header:
            place = f"{name}: '{column}'{did_you_mean(column, MANIFEST_COLUMNS)}"
            findings.add(IssueCode.MANIFEST_COLUMNS, place, columns=every)
    if "file" in header and len(set(header)) == len(header):
        return True
    if first.cells()[0].endswith((*IMAGE_SUFFIXES, ".npy", ".npz", ".mat")):
        findings.add(IssueCode.TABLE_NO_HEADER, f"{name}: {first}")
    else:
        place = f"{name}: found {', '.join(first.cells())}"
        findings.add(IssueCode.MANIFEST_NO_COLUMN, place, columns=every)
    return False


def _manifest_row(
    name: str, line: Line, cells: dict[str, str], findings: Findings
) -> ListedRun | None:
    place = f"{name}: {line}"
    if not cells["file"]:
        findings.add(IssueCode.MANIFEST_NO_FILE, place)
        return None
    wanted = {"tr": "a number with a decimal point", "n_dummy": "a whole number"}
    numbers = {column: _number(cells.get(column, "")) for column in wanted}
    for column, number in numbers.items():
        whole = column == "tr" or number == int(number) if math.isfinite(number) else False
        if not whole or number < 0:
            seen, expected = f"{place}: '{cells[column]}'", wanted[column]
            findings.add(IssueCode.MANIFEST_CELL, seen, column=column, wanted=expected)
            return None
    texts = {name: cells.get(name, "") for name in ("file", "subject", "ses", "run", "confounds")}
    trust_grid = is_true(cells.get("trust_grid", ""))
    return ListedRun(
        tr=numbers["tr"], n_dummy=int(numbers["n_dummy"]), trust_grid=trust_grid, **texts
    )


def _number(cell: str) -> float:
    # "nan" is no gap here: a repetition time that a program failed to compute is an error.
    if cell.lower() in MISSING_CELLS and cell.lower() != "nan":
        return 0.0
    try:
        return float(cell)
    except ValueError:
        return math.nan
