"""Groups, covariates and outcomes of every person of a site, for a comparison; private.

People are rows, in the order of the site's list.  Outcomes are in natural units (Fisher z, ml);
public units and ranges are in `cape.settings.comparison`.

A cell that cannot be read or understood counts as missing: its person stays counted and adds zeros,
and only the site learns of it.  Faults of a table itself stop the site: a column that no table or
several have, or names that fit no person.
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
from cape.data.issues import Findings, Issue, IssueCode, UnusableFile
from cape.data.names import bare, likeness, one_label_each
from cape.data.person_tables import tables_with
from cape.data.tables import MISSING_CELLS, places_of, rows_of_people
from cape.frozen import dataclass
from cape.settings.comparison import Comparison, Covariate, Measure, Range
from cape.settings.own_words import OwnWords


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


def read_groups(
    base: Path, words: OwnWords, comparison: Comparison, listed: Sequence[str], findings: Findings
) -> People:
    """Return groups and covariates of the people whom a site lists, from its tables of people.

    Faults go to `findings`, which are the site's own; without a usable table all values are NaN.
    """
    group, covariates = comparison.group, comparison.covariates
    wanted = (group.column, *(covariate.column for covariate in covariates))
    cells = _cells_by_column(base, words, wanted, listed, findings)
    groups = np.full(len(listed), np.nan)
    x = np.full((len(listed), len(covariates)), np.nan)
    for m, label in enumerate(listed):
        if (cell := cells[group.column].get(bare(label))) is not None:
            groups[m] = _group_of(group, label, cell, findings)
        for p, covariate in enumerate(covariates):
            if (cell := cells[covariate.column].get(bare(label))) is not None:
                x[m, p] = _value_of(covariate, label, cell, findings)
    return People(subjects=tuple(listed), group=groups, covariates=x)


def _group_of(group: Covariate, label: str, cell: str, findings: Findings) -> float:
    """Return 1 or 0 by level, or the value of a `Range` in public units; NaN if neither."""
    if isinstance(group, Range):
        return _value_of(group, label, cell, findings)
    level = group.which(cell)
    if level < 0:
        findings.add(IssueCode.GROUP_NONE, f"'{label}': {group.column} '{cell[:20]}'")
    return (1.0, 0.0, math.nan)[level]


def _value_of(covariate: Covariate, label: str, cell: str, findings: Findings) -> float:
    """Return a cell in public units; NaN, with a finding, if it holds no usable value."""
    value, was_clipped = covariate.public(cell)
    place = f"'{label}': {covariate.column} '{cell[:20]}'"
    if np.isnan(value):
        missing = cell.strip().lower() in MISSING_CELLS
        findings.add(IssueCode.VALUE_NONE if missing else IssueCode.VALUE_UNCLEAR, place)
    elif was_clipped:
        findings.add(IssueCode.COVARIATE_CLIPPED, place)
    return value


def _cells_by_column(
    base: Path, words: OwnWords, columns: Sequence[str], listed: Sequence[str], findings: Findings
) -> Mapping[str, Mapping[str, str]]:
    """Return the cells of each column by label, after noting what cannot be used."""
    found: dict[str, Mapping[str, str]] = {column: {} for column in columns}
    if not listed:
        return found
    try:
        places = tables_with(base, words, columns)
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue)
        return found
    for name, own in places.items():
        try:
            found |= _cells_of_table(base, name, words, own, listed, findings)
        except UnusableFile as verdict:
            findings.add_issue(verdict.issue, name)
    return found


def _cells_of_table(
    base: Path,
    name: str,
    words: OwnWords,
    columns: Sequence[str],
    listed: Sequence[str],
    findings: Findings,
) -> dict[str, dict[str, str]]:
    """Return the cells of some columns by label; `UnusableFile` for the table itself.

    Each cell by itself: whether one can be read must not decide what another one says.
    """
    header, each = rows_of_people(base / name)
    person, places = places_of(header, columns)
    rows = [(bare(row.label(name, person)), row) for row in each]
    stands_for = one_label_each({label for label, _ in rows}, words)
    own_labels = {bare(label): label for label in listed}
    there = set(stands_for.values())
    if not there & own_labels.keys():
        shown = next(iter(stands_for), "nobody")
        observed = f"{len(there)} names such as '{shown}', none of {len(listed)} people here"
        raise UnusableFile(IssueCode.GROUP_OTHER, observed, example=listed[0])
    found: dict[str, dict[str, str]] = {column: {} for column in columns}
    unclear: set[tuple[str, str]] = set()
    for label, row in rows:
        label = stands_for[label]
        for column, place in zip(columns, places, strict=True) if label in own_labels else ():
            shown = f"'{own_labels[label]}': {column}"
            try:
                cell = row.cell(place).strip()
            except UnusableFile as verdict:
                unclear.add((column, label))
                findings.add_issue(Issue(IssueCode.VALUE_UNCLEAR, verdict.issue.observed), shown)
                continue
            # A table of sessions has several rows of a person, which must agree.
            if found[column].setdefault(label, cell) != cell:
                unclear.add((column, label))
                findings.add(IssueCode.GROUP_TWICE, shown)
    for column, label in unclear:
        found[column].pop(label, None)
    near_names = {likeness(label): label for label in stands_for}
    for label, own_label in own_labels.items():
        if label not in there:
            other = near_names.get(likeness(label))
            hint = f" (did you mean '{other}' there?)" if other else ""
            findings.add(IssueCode.PERSON_NOWHERE, f"'{own_label}': not in {name}{hint}")
    return found


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
