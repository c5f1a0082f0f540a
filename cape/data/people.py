"""Whose a file is, by its name; and what a site's participants.tsv says of people."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Final

from cape.data.issues import Findings, Issue, IssueCode, UnusableFile
from cape.data.tables import MISSING_CELLS, bounded, is_true, table_cells
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.words import parse_exclusions

PARTICIPANTS: Final = "participants.tsv"
Entities = tuple[tuple[str, str], ...]


def natural_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Return a sort key that puts ``run-2`` before ``run-10``."""
    parts = re.split(r"(\d+)", name.lower())
    key = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)
    return key, name


def subject_of(name: str) -> str:
    """Return ``sub-<label>`` of a file name or its folders, else the name without its ending."""
    pure = PurePath(name)
    for part in (pure.name, *reversed(pure.parts[:-1])):
        if match := re.search(r"sub-[A-Za-z0-9]+", part):
            return match.group()
    return re.sub(r"(\.nii)?\.[A-Za-z0-9]+$", "", pure.as_posix())


def entities_of(name: str) -> dict[str, str]:
    """Split the entities off, ``sub-01_task-rest_bold.nii.gz`` -> {sub: 01, task: rest}."""
    parts = name.split(".")[0].split("_")[:-1]
    pairs = (part.partition("-") for part in parts)
    return {key: value for key, dash, value in pairs if dash}


@dataclass(frozen=True, kw_only=True, slots=True)
class Participation:
    """What a site's participants.tsv says of one person; parts as in `bids_exclude`."""

    listed: bool = True
    only: tuple[Entities, ...] = ()  # runs that fit none of these are left out; empty: all stay
    without: tuple[Entities, ...] = ()

    def takes(self, entities: Mapping[str, str]) -> bool:
        fits = not self.only or any(has_all(entities, part) for part in self.only)
        return self.listed and fits and not any(has_all(entities, part) for part in self.without)


EVERYTHING: Final = Participation()


def has_all(entities: Mapping[str, str], wanted: Entities) -> bool:
    """Tell whether a name has all entities that are wanted; ``+`` stands between choices."""
    return all(entities.get(key) in value.split("+") for key, value in wanted)


def participants(top: Path, findings: Findings) -> dict[str, Participation]:
    """Return what columns `include` and `exclude` of the folder's participants.tsv say.

    A cell is 1 or 0 for the whole person, or names runs, such as ``ses-2`` or ``ses-1_run-2``.
    """
    path = top / PARTICIPANTS
    if not path.is_file():
        return {}
    try:
        (_, header), *rows = table_cells(bounded(path), "\t")
    except (OSError, UnusableFile) as err:
        issue = err.issue if isinstance(err, UnusableFile) else Issue(IssueCode.FILE_UNREADABLE, "")
        findings.add_issue(issue, PARTICIPANTS)
        return {}
    if "participant_id" not in header:
        return {}
    people = {}
    for line, cells in rows:
        row = dict(zip(header, cells, strict=True))
        name = row["participant_id"]
        try:
            said = _participation(row.get("include", ""), row.get("exclude", ""))
        except ConfigError:
            place = f"{PARTICIPANTS}: {line}"
            findings.add(IssueCode.PARTICIPANT_CELL, place)
            continue
        people[name if name.startswith("sub-") else f"sub-{name}"] = said
    return people


def _participation(include: str, exclude: str) -> Participation:
    unsaid = (*MISSING_CELLS, "1", "true", "yes")
    nobody = ("0", "false", "no")
    listed = include.lower() not in nobody and not is_true(exclude)
    only = "" if include.lower() in (*unsaid, *nobody) else include
    without = "" if exclude.lower() in (*MISSING_CELLS, *nobody) or is_true(exclude) else exclude
    return Participation(
        listed=listed, only=parse_exclusions(only), without=parse_exclusions(without)
    )
