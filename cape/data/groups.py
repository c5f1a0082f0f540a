"""Groups, covariates and outcomes of every person of a site, for a comparison; private.

People are rows, in the order of the site's list.  Outcomes are in natural units (Fisher z, ml);
public units and ranges are in `cape.settings.comparison`.

A row that cannot be read or understood fails its person, who stays counted and adds zeros; only the
site learns of it.  Faults of the table itself stop the site: a missing or unreadable table, missing
columns, or names that fit no person.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.person_outcomes import outcome_names, outcomes_of_person
from cape.data.checks import Subject
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.names import bare, likeness
from cape.data.runs import leads_out
from cape.data.tables import (
    MISSING_CELLS,
    bounded,
    cells_of_row,
    column_places,
    label_of_row,
    line_cells,
    table_lines,
)
from cape.delimited import delimiter_of
from cape.frozen import dataclass
from cape.settings.comparison import Comparison, Covariate, Measure, Range


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class People:
    """Groups and covariates of the people whom a site lists."""

    subjects: tuple[str, ...]  # labels, as the site lists them
    # (people,): 1 for the first level, 0 for the second, else NaN; for a continuous question the
    # value in public units
    group: Array
    covariates: Array  # (people, P) in public units, inside their ranges; NaN where missing

    @property
    def rows(self) -> Data:
        """Covariates and, last, the group: (people, P + 1)."""
        return np.column_stack([self.covariates, self.group]).astype(np.float32)

    @property
    def digest(self) -> bytes:
        """SHA-256 of labels, groups and covariates; never leaves the site."""
        return hashlib.sha256(json.dumps(self.subjects).encode() + self.rows.tobytes()).digest()


def read_people(base: Path, asked: Comparison, listed: Sequence[str], findings: Findings) -> People:
    """Return groups and covariates of the people whom a site lists, from a table of its folder.

    Faults go to `findings`, which are the site's own; without a usable table all values are NaN.
    """
    group, covariates = asked.group, asked.covariates
    columns = (group.column, *(one.column for one in covariates))
    rows = _rows_of(base, asked.table, columns, listed, findings)
    groups = np.full(len(listed), np.nan)
    x = np.full((len(listed), len(covariates)), np.nan)
    for m, label in enumerate(listed):
        if (cells := rows.get(bare(label))) is None:
            continue
        groups[m] = _group_of(group, label, cells[0], findings)
        x[m] = [
            _value_of(covariate, label, cell, findings)
            for covariate, cell in zip(covariates, cells[1:], strict=True)
        ]
    return People(subjects=tuple(listed), group=groups, covariates=x)


def _group_of(group: Covariate, label: str, cell: str, findings: Findings) -> float:
    """Return 1 or 0 by level, or the value of a `Range` in public units; NaN if neither."""
    if isinstance(group, Range):
        return _value_of(group, label, cell, findings)
    level = group.which(cell)
    if level < 0:
        findings.add(IssueCode.GROUP_NONE, f"'{label}': {group.column} '{cell[:20]}'")
    return (1.0, 0.0, math.nan)[level]


def _value_of(asked: Covariate, label: str, cell: str, findings: Findings) -> float:
    """Return a cell in public units; NaN, with a finding, if it holds no usable value."""
    value, was_clipped = asked.public(cell)
    place = f"'{label}': {asked.column} '{cell[:20]}'"
    if np.isnan(value):
        missing = cell.strip().lower() in MISSING_CELLS
        findings.add(IssueCode.VALUE_NONE if missing else IssueCode.VALUE_UNCLEAR, place)
    elif was_clipped:
        findings.add(IssueCode.COVARIATE_CLIPPED, place)
    return value


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
    header = line_cells(first)
    person, places = column_places(header, columns)
    rows: dict[str, tuple[str, ...]] = {}
    unclear: set[str] = set()
    broken: dict[str, str] = {}
    for line in lines:
        try:
            cells = cells_of_row(line, len(header))
        except UnusableFile as verdict:
            label = label_of_row(line, name, person)
            broken[bare(label)] = verdict.issue.observed
            continue
        label = bare(cells[person])
        wanted = tuple(cells[i].strip() for i in places)
        # A table of sessions has several rows of a person, which must agree.
        if rows.setdefault(label, wanted) != wanted:
            unclear.add(label)
    own_labels = {bare(label): label for label in listed}
    if own_labels and not {*rows, *broken} & set(own_labels):
        shown = next(iter(rows), "nobody")
        observed = f"{len(rows)} names such as '{shown}', none of {len(listed)} people here"
        raise UnusableFile(IssueCode.GROUP_OTHER, observed, example=listed[0])
    near_names = {likeness(label): label for label in rows}
    for label, own_label in own_labels.items():
        if label in broken:
            rows.pop(label, None)
            findings.add(IssueCode.ROW_BROKEN, f"'{own_label}': {broken[label]}")
        elif label in unclear:
            del rows[label]
            findings.add(IssueCode.GROUP_TWICE, f"'{own_label}'")
        elif label not in rows:
            other = near_names.get(likeness(label))
            hint = f" (did you mean '{other}' there?)" if other else ""
            findings.add(IssueCode.PERSON_NOWHERE, f"'{own_label}': not in {name}{hint}")
    return rows


def measured(
    courses: Iterable[tuple[str, Data]], trs: Mapping[str, float], measure: Measure
) -> Iterator[tuple[str, Data]]:
    """Yield label and outcomes (K, 1) of the time courses (R, T) of each person.

    Outcomes are (K, 0) if one is missing, such as for a constant course: that person adds zeros.
    `trs`: repetition times in s, 0 or absent if not known.
    """
    missing = np.full(len(outcome_names(measure)), np.nan)
    for label, S in courses:
        # A failure of the arithmetic depends on one person's courses, so it is not reported.
        try:
            with np.errstate(all="ignore"):
                of_person = outcomes_of_person(measure, S.astype(np.float64), trs.get(label, 0.0))
        except Exception:
            of_person = missing
        values = of_person[:, None]
        yield label, values[:, : int(np.isfinite(values).all())].astype(np.float32)


def repetition_times(subjects: Sequence[Subject], tr: float) -> dict[str, float]:
    """Return the repetition time of people, s; `tr` if files do not say it, 0 if runs differ."""
    times = {subject.label: {one or tr for one in subject.trs} for subject in subjects}
    return {label: found.pop() if len(found) == 1 else 0.0 for label, found in times.items()}
