"""Tables of records: one row per subject, one column per feature, ``records.csv`` or ``.tsv``.

The first column names the subject, the header names the features, which must be the same at all
sites.  An empty cell or NA is a missing value, and its subject is left out.  Comments begin with #.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Data
from cape.data.files import RunFile, SubjectFiles
from cape.data.findings import Findings, Rejected
from cape.data.series import Series
from cape.frozen import dataclass

RECORDS = ("records.csv", "records.tsv")
MISSING = ("", "na", "nan", "n/a")
FIX = "save it again as comma-separated (.csv) or tab-separated (.tsv) UTF-8 text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Records:
    """A table as read.

    Attributes
    ----------
    names : tuple of str
        Features, the header without its first cell.
    labels : tuple of str
        Subjects.
    values : ndarray, shape (n, D)
        float32; NaN where a value is missing.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    values: Data


def is_table(path: Path) -> bool:
    """Tell whether a file is a table of records: by its name; other tables are one run each."""
    return path.name in RECORDS


def with_records(base: Path, given: Mapping[str, object]) -> Mapping[str, object]:
    """Return what a site gave, or its own table of records if it gave nothing and has one."""
    used = [value for value in given.values() if value not in (None, "")]
    own = [name for name in RECORDS if (base / name).is_file()]
    return {"data": own} if own and not used else given


def expand(listed: Sequence[SubjectFiles], findings: Findings) -> tuple[SubjectFiles, ...]:
    """Return the subjects with every table replaced by its rows; note rows 1, 5, 38 and 44."""
    subjects: list[SubjectFiles] = []
    headers: dict[tuple[str, ...], str] = {}
    for files in listed:
        if not any(is_table(run.path) for run in files.runs):
            subjects.append(files)
            continue
        for run in files.runs:
            try:
                table = read_table(run.path)
            except Rejected as verdict:
                findings.reject(verdict, run.name)
                continue
            except OSError:
                findings.add(
                    1, "E", "A table cannot be read", run.name, expected="a readable file",
                    fix="correct its permissions",
                )  # fmt: skip
                continue
            headers.setdefault(table.names, run.name)
            subjects += [
                SubjectFiles(label=label, runs=(replace(run, row=i),))
                for i, label in enumerate(table.labels)
            ]
    if len(headers) > 1:
        findings.add(
            44, "E", "Tables of one site have other columns", ", ".join(headers.values()),
            expected="the same header", fix="use the same columns, in the same order",
            sites=f"within site {findings.site}",
        )  # fmt: skip
    twice = [label for label, n in Counter(files.label for files in subjects).items() if n > 1]
    if headers and twice:
        findings.add(
            5, "E", "A subject is listed twice: one person counted twice has 2 mu",
            ", ".join(twice[:9]), expected="one row per subject", fix="remove one of the two",
        )  # fmt: skip
    return tuple(subjects)


def columns_of(subjects: Sequence[SubjectFiles]) -> tuple[str, ...]:
    """Return the names of the features if the subjects are rows of tables, else ()."""
    for files in subjects:
        for run in files.runs:
            if run.row >= 0:
                return read_table(run.path).names
    return ()


def read_record(run: RunFile) -> Series:
    """Return one row of a table as features by one time point; raises `Rejected` or OSError."""
    table = read_table(run.path)
    row = table.values[run.row]
    # Of the row, not of the file: a row more must not make other people of the ones before.
    content = json.dumps(table.names).encode() + row.astype("<f4").tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return Series(values=row[:, None], tr=0.0, digest=digest, grid="-", notes=())


def read_table(path: Path) -> Records:
    """Return a table; raises `Rejected` (row 38) or OSError."""
    state = path.stat()
    return _read(path, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> Records:
    del changed, size  # part of the key: another content is read again
    content = path.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as err:
        raise _bad("is not UTF-8 text", f"byte {err.start}") from None
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    cells = list(csv.reader(lines, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    if len(cells) < 2 or len(cells[0]) < 2:
        raise _bad("has no rows or no columns", f"{len(cells)} lines")
    width = len(cells[0])
    ragged = [i for i, row in enumerate(cells) if len(row) != width]
    if ragged:
        raise _bad("has rows of another length than its header", f"row {ragged[0]}")
    names = tuple(cell.strip() for cell in cells[0][1:])
    if len(set(names)) < len(names) or "" in names:
        raise _bad("has columns without a name or with the same", "header")
    values = np.array(
        [[_number(cell, i) for cell in row[1:]] for i, row in enumerate(cells[1:], 1)]
    )
    return Records(
        names=names,
        labels=tuple(row[0].strip() for row in cells[1:]),
        values=values.astype(np.float32),
    )


def _number(cell: str, row: int) -> float:
    if cell.strip().lower() in MISSING:
        return float("nan")
    try:
        return float(cell)
    except ValueError:
        raise _bad("has a cell that is not a number", f"row {row}, '{cell[:20]}'") from None


def _bad(what: str, found: str) -> Rejected:
    return Rejected(
        38, f"A table {what}", found=found,
        expected="a header, then one row per subject: its name, then numbers", fix=FIX,
    )  # fmt: skip
