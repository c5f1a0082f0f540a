"""A site's manifest: a table with one row per run."""

import math
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from cape.counting import number_of
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.marks import EXCLUDE, check_no_other_marks, column_places, exclude_says
from cape.data.names import normal
from cape.data.runs import MAX_TR, Mention, SiteRun, leads_out
from cape.data.tables import EMPTY_CELLS, PERSON, bounded, table_cells
from cape.delimited import Line, delimiter_of, is_number
from cape.settings.own_words import OwnWords

MANIFEST_NAMES: Final = ("manifest.csv", "manifest.tsv")
COLUMNS: Final = (
    PERSON, "file", "session", "run", "tr", "n_dummy", "confounds", "trust_grid", EXCLUDE, "notes",
)  # fmt: skip
WANTED_NUMBERS: Final = {
    "tr": "seconds, such as 2.5, with a decimal point",
    "n_dummy": "a whole number",
}
MAX_DUMMIES: Final = 10**6


class ManifestRow(NamedTuple):
    """One row: a run, before its files are looked for."""

    where: Mention
    written: str  # the label as it stands there
    run: SiteRun  # with the label in normal form
    left_out: bool | None  # None: there is no column ``exclude``


def read_manifest(
    base: Path, name: str, findings: Findings, words: OwnWords
) -> tuple[ManifestRow, ...]:
    """Return the rows of a manifest; () after noting why it cannot be used."""
    if leads_out(name):
        findings.add(IssueCode.MANIFEST_OUTSIDE, name)
        return ()
    try:
        (first, header), *rows = table_cells(bounded(base / name), delimiter_of(name))
        places = _places(name, first, header, findings)
        check_no_other_marks(header, rows, words.other_columns)
    except FileNotFoundError:
        findings.add(IssueCode.MANIFEST_MISSING, name, base=base)
        return ()
    except OSError as err:
        findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror}")
        return ()
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
        return ()
    read: list[ManifestRow] = []
    marks: dict[str, bool | None] = {}
    for line, cells in rows:
        where = Mention(name, line.number)
        try:
            row = _row(base, where, cells, places)
            file = row.run.name
            if marks.setdefault(file, row.left_out) != row.left_out:
                raise UnusableFile(IssueCode.MARKED_TWICE, f"{file} stands above, too")
            read.append(row)
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, str(where))
    if len(read) == len(rows) and all(row.left_out for row in read):
        findings.add(IssueCode.NO_LISTED_RUNS, f"{name}: {number_of(len(rows), 'row')}, none used")
    return tuple(read)


def _places(
    name: str, first: Line, header: tuple[str, ...], findings: Findings
) -> Mapping[str, int]:
    """Return where the columns stand; `UnusableFile`: one is missing or stands twice."""
    places = column_places(header)
    lacking = [column for column in (PERSON, "file") if column not in places]
    if lacking:
        if any("/" in cell or cell.lower().endswith((".gz", ".nii", ".npy")) for cell in header):
            raise UnusableFile(IssueCode.TABLE_NO_HEADER, str(first))
        observed = f"no {' and no '.join(lacking)}; found {', '.join(header)[:80]}"
        raise UnusableFile(IssueCode.MANIFEST_NO_COLUMN, observed, columns=", ".join(COLUMNS))
    names = [cell.lower() for cell in header]
    for column in COLUMNS:
        if names.count(column) > 1:
            raise UnusableFile(IssueCode.COLUMN_TWICE, f"{names.count(column)} columns {column}")
    if "mask" in places:
        findings.add(IssueCode.MANIFEST_MASK, name)
    unknown = [
        n for n in places if n and n not in (*COLUMNS, "mask") and not n.startswith("notes_")
    ]
    for column in unknown:
        findings.add(IssueCode.MANIFEST_COLUMNS, f"{name}: '{column}'", columns=", ".join(COLUMNS))
    return places


def _row(
    base: Path, where: Mention, cells: tuple[str, ...], places: Mapping[str, int]
) -> ManifestRow:
    """Return the run of a row, or raise `UnusableFile`."""
    texts = {column: cells[places[column]] if column in places else "" for column in COLUMNS}
    if not texts["file"]:
        raise UnusableFile(IssueCode.MANIFEST_NO_FILE, "no file")
    left_out, trusted = exclude_says(texts[EXCLUDE]), exclude_says(texts["trust_grid"])
    if left_out is None or trusted is None:
        raise UnusableFile(IssueCode.MARK_UNCLEAR, "a row is one run, and names no others")
    name = PurePosixPath(texts["file"]).as_posix()
    run = SiteRun(
        path=base / name,
        name=name,
        person=normal(texts[PERSON]),
        session=texts["session"].removeprefix("ses-"),
        run=texts["run"],
        tr=_number(texts["tr"], "tr", MAX_TR),
        n_dummy=int(_number(texts["n_dummy"], "n_dummy", MAX_DUMMIES)),
        confounds_said=texts["confounds"],
        trust_grid=trusted,
    )
    marked = left_out if EXCLUDE in places else None
    return ManifestRow(where=where, written=texts[PERSON].strip(), run=run, left_out=marked)


def _number(cell: str, column: str, most: float) -> float:
    # "nan" is an error here: a program failed to compute the repetition time.
    if cell.lower() in EMPTY_CELLS and cell.lower() != "nan":
        return 0.0
    number = float(cell) if is_number(cell) else math.nan
    if not 0 <= number <= most or (column == "n_dummy" and number != int(number)):
        wanted = WANTED_NUMBERS[column]
        raise UnusableFile(IssueCode.MANIFEST_CELL, f"'{cell[:40]}'", column=column, wanted=wanted)
    return number
