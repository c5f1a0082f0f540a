"""Groups, covariates and outcomes of people: from tables of their site, by label.

A row that cannot be read or understood fails its person, who stays counted and adds zeros; only the
site learns of it.  Faults of the table itself stop the site: a missing or unreadable table, missing
columns, or names that fit no person.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from cape.data.exclusions import alike, bare, spellings
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.outcomes import People
from cape.data.runs import leads_out
from cape.data.tables import (
    MISSING_CELLS,
    bounded,
    cells_of,
    cells_of_row,
    label_of,
    places_of,
    table_lines,
)
from cape.delimited import delimiter_of
from cape.settings.comparison import Comparison, Covariate, Range


def read_people(base: Path, asked: Comparison, listed: Sequence[str], findings: Findings) -> People:
    """Return groups and covariates of the people whom a site lists, from a table of its folder.

    Faults go to `findings`, which are the site's own; without a usable table all values are NaN.
    """
    group, covariates = asked.group, asked.covariates
    columns = (group.column, *(one.column for one in covariates))
    rows = _rows_of(base, asked.table, columns, listed, findings)
    groups = np.full(len(listed), np.nan)
    x = np.full((len(listed), len(covariates)), np.nan)
    clipped = [0] * len(covariates)
    for m, label in enumerate(listed):
        if (cells := rows.get(bare(label))) is None:
            continue
        groups[m] = _group_of(group, label, cells[0], findings)
        for j, (one, cell) in enumerate(zip(covariates, cells[1:], strict=True)):
            x[m, j], was_clipped = one.public(cell)
            clipped[j] += was_clipped
            if np.isnan(x[m, j]):
                _note_no_value(label, one.column, cell, findings)
            elif was_clipped:
                findings.add(IssueCode.COVARIATE_CLIPPED, f"'{label}': {one.column} '{cell[:20]}'")
    return People(subjects=tuple(listed), group=groups, covariates=x, clipped=tuple(clipped))


def _group_of(group: Covariate, label: str, cell: str, findings: Findings) -> float:
    """Return 1 or 0 by level, or the value of a `Range` in public units; NaN if neither."""
    place = f"'{label}': {group.column} '{cell[:20]}'"
    if isinstance(group, Range):
        value, was_clipped = group.public(cell)
        if np.isnan(value):
            _note_no_value(label, group.column, cell, findings)
        elif was_clipped:
            findings.add(IssueCode.COVARIATE_CLIPPED, place)
        return value
    level = group.which(cell)
    if level < 0:
        findings.add(IssueCode.GROUP_NONE, place)
    return (1.0, 0.0, math.nan)[level]


def _note_no_value(label: str, column: str, cell: str, findings: Findings) -> None:
    missing = cell.strip().lower() in MISSING_CELLS
    code = IssueCode.VALUE_NONE if missing else IssueCode.VALUE_UNCLEAR
    findings.add(code, f"'{label}': {column} '{cell[:20]}'")


def _rows_of(
    base: Path, name: str, columns: Sequence[str], listed: Sequence[str], findings: Findings
) -> Mapping[str, Sequence[str]]:
    """Return the wanted cells by label; {} after noting why the table cannot be used."""
    try:
        if leads_out(name):
            raise UnusableFile(IssueCode.OUTSIDE_FOLDER, "a name that leads out of the folder")
        return _rows_by_label(base / name, name, columns, listed, findings)
    except OSError as err:
        findings.add(IssueCode.FILE_UNREADABLE, f"{name}: {err.strerror or 'not there'}")
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
    return {}


def _rows_by_label(
    path: Path, name: str, columns: Sequence[str], listed: Sequence[str], findings: Findings
) -> dict[str, tuple[str, ...]]:
    """Return the wanted cells of all listed people; `UnusableFile` for the table itself."""
    # A row is one person: its faults must not decide whether others count.
    content, separator = bounded(path), delimiter_of(path.name)
    first, *lines = table_lines(content, separator, by_line=True, comments=False)
    header = cells_of(first)
    person, places = places_of(header, columns)
    rows: dict[str, tuple[str, ...]] = {}
    unclear: set[str] = set()
    broken: dict[str, str] = {}
    for line in lines:
        try:
            cells = cells_of_row(line, len(header))
        except UnusableFile as verdict:
            label = label_of(line, name, person)
            broken[bare(label)] = verdict.issue.observed
            continue
        label = bare(cells[person])
        own = tuple(cells[i].strip() for i in places)
        # A table of sessions has several rows of a person, which must agree.
        if rows.setdefault(label, own) != own:
            unclear.add(label)
    own_labels = {bare(label): label for label in listed}
    if own_labels and not {*rows, *broken} & set(own_labels):
        shown = next(iter(rows), "nobody")
        observed = f"{len(rows)} names such as '{shown}', none of {len(listed)} people here"
        raise UnusableFile(IssueCode.GROUP_OTHER, observed, example=listed[0])
    near_names = {text: label for label in rows for text in (alike(label), *spellings(label))}
    for label, own_label in own_labels.items():
        if label in broken:
            rows.pop(label, None)
            findings.add(IssueCode.ROW_BROKEN, f"'{own_label}': {broken[label]}")
        elif label in unclear:
            del rows[label]
            findings.add(IssueCode.GROUP_TWICE, f"'{own_label}'")
        elif label not in rows:
            other = near_names.get(alike(label))
            hint = f" (did you mean '{other}' there?)" if other else ""
            findings.add(IssueCode.PERSON_NOWHERE, f"'{own_label}': not in {name}{hint}")
    return rows
