"""A site's manifest: a table with one row per run."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from cape.data.exclusions import (
    NEAR_PERSON,
    bare,
    letters_and_digits,
    mistyped,
    nearly,
    read_list,
    said_by,
    sides_of,
    yes_or_no,
)
from cape.data.file_type import IMAGE_SUFFIXES
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.runs import MAX_TR, ListedRun, Mention, leads_out
from cape.data.tables import MISSING_CELLS, PERSON_COLUMNS
from cape.delimited import Line, is_number
from cape.settings.option import did_you_mean

# Names of each column, the preferred one first; several may name the person, if they agree.
ALIASES: Final = {
    "file": ("file", "filename", "nii"),
    "subject": PERSON_COLUMNS,
    "ses": ("ses", "session"),
    "run": ("run",),
    "tr": ("tr",),
    "n_dummy": ("n_dummy",),
    "confounds": ("confounds",),
    "trust_grid": ("trust_grid",),
    "exclude": ("exclude",),
    "include": ("include",),
    "notes": ("notes",),
}
# A typing error in one of these could include a person, or make two people of one.
WEIGHTY: Final = ("subject", "ses", "run")
WANTED_NUMBERS: Final = {
    "tr": "seconds, such as 2.5, with a decimal point",
    "n_dummy": "a whole number",
}
MAX_DUMMIES: Final = 10**6


def read_manifest(
    base: Path, name: str, findings: Findings, not_exclusions: Collection[str] = ()
) -> tuple[ListedRun, ...]:
    """Return the runs of a manifest, one a row; `left_out` marks those that it leaves out."""
    if leads_out(name):
        findings.add(IssueCode.MANIFEST_OUTSIDE, name)
        return ()
    try:
        (first, header), *rows = read_list(base / name)
        where = _columns(name, first, header, not_exclusions, findings)
    except FileNotFoundError:
        findings.add(IssueCode.MANIFEST_MISSING, name, base=base)
        return ()
    except OSError as err:
        findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror}")
        return ()
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
        return ()
    runs: list[ListedRun] = []
    left_out: dict[str, bool] = {}
    for line, cells in rows:
        try:
            run = _run(name, line, cells, where)
            if left_out.setdefault(run.file, bool(run.left_out)) != bool(run.left_out):
                raise UnusableFile(IssueCode.MARKED_TWICE, f"{run.file} stands above, too")
            runs.append(run)
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, f"{name}: {line}")
    if len(runs) == len(rows) and all(run.left_out for run in runs):
        findings.add(IssueCode.NO_LISTED_RUNS, f"{name}: {len(rows)} rows, none used")
    return tuple(runs)


def _columns(
    name: str,
    first: Line,
    header: tuple[str, ...],
    not_exclusions: Collection[str],
    findings: Findings,
) -> dict[str, tuple[int, ...]]:
    """Return where the columns stand; `UnusableFile`: one is missing, doubled or nearly right."""
    names = [cell.lower() for cell in header]
    where = {
        column: tuple(i for i, cell in enumerate(names) if cell in aliases)
        for column, aliases in ALIASES.items()
    }
    every = ", ".join(ALIASES)
    if len(where["file"]) != 1:
        if header[0].endswith((*IMAGE_SUFFIXES, ".npy", ".npz", ".mat")):
            raise UnusableFile(IssueCode.TABLE_NO_HEADER, str(first))
        there = ", ".join(header)
        raise UnusableFile(IssueCode.MANIFEST_NO_COLUMN, f"found {there}", columns=every)
    sides_of([cell for cell in header if cell.lower() != "participant_id"], not_exclusions)
    known = {alias for aliases in ALIASES.values() for alias in aliases}
    for column, at in where.items():
        if len(at) > (len({names[i] for i in at}) if column == "subject" else 1):
            raise UnusableFile(IssueCode.COLUMN_TWICE, f"{len(at)} columns for {column}")
    for cell in names:
        if cell in known or cell in not_exclusions or cell.startswith("notes_") or not cell:
            continue
        near = mistyped(cell, [alias for column in WEIGHTY for alias in ALIASES[column]])
        if near or (not where["subject"] and NEAR_PERSON.fullmatch(letters_and_digits(cell))):
            wanted = near or "subject"
            raise nearly(cell, wanted)
        if cell == "mask":
            findings.add(IssueCode.MANIFEST_MASK, name)
        else:
            place = f"{name}: '{cell}'{did_you_mean(cell, ALIASES)}"
            findings.add(IssueCode.MANIFEST_COLUMNS, place, columns=every)
    return where


def _run(
    name: str, line: Line, cells: tuple[str, ...], where: Mapping[str, tuple[int, ...]]
) -> ListedRun:
    """Return the run of a row, or raise `UnusableFile`."""
    texts = {column: cells[at[0]] if at else "" for column, at in where.items()}
    if not texts["file"]:
        raise UnusableFile(IssueCode.MANIFEST_NO_FILE, "no file")
    sides = {side: where[side][0] for side in ("exclude", "include") if where[side]}
    marks = said_by(Mention(name, line.number), texts["file"], cells, sides)
    if marks.only or marks.without:
        raise UnusableFile(IssueCode.MARK_UNCLEAR, "a row is one run, and names no others")
    return ListedRun(
        file=texts["file"],
        subject=_person([cells[i] for i in where["subject"]]),
        ses=texts["ses"],
        run=texts["run"],
        tr=_number(texts["tr"], "tr", MAX_TR),
        n_dummy=int(_number(texts["n_dummy"], "n_dummy", MAX_DUMMIES)),
        confounds=texts["confounds"],
        trust_grid=yes_or_no(texts["trust_grid"], "trust_grid") or False,
        left_out=None if marks.listed else marks.where,
    )


def _person(names: list[str]) -> str:
    """Return the person whom a row names, "" if there is no such column."""
    if len({bare(name) for name in names if name}) > 1:
        raise UnusableFile(IssueCode.PERSON_TWO, " and ".join(names))
    if names and not any(names):
        raise UnusableFile(IssueCode.PERSON_UNNAMED, "no name")
    return next(filter(None, names), "")


def _number(cell: str, column: str, most: float) -> float:
    # "nan" is an error here: a program failed to compute the repetition time.
    if cell.lower() in MISSING_CELLS and cell.lower() != "nan":
        return 0.0
    number = float(cell) if is_number(cell) else math.nan
    if not 0 <= number <= most or (column == "n_dummy" and number != int(number)):
        wanted = WANTED_NUMBERS[column]
        raise UnusableFile(IssueCode.MANIFEST_CELL, f"'{cell[:40]}'", column=column, wanted=wanted)
    return number
