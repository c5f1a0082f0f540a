"""The people of a folder for ``cape people`` and ``cape init``; what a site types is kept.

All of it is private to the site.
"""

import csv
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cape.data import folders
from cape.data.bids import check_pattern
from cape.data.issues import Findings
from cape.data.manifest import COLUMNS
from cape.data.marks import EXCLUDE
from cape.data.people import ListRefusal, PeopleList, people_of_tables, read_people
from cape.delimited import written_cell
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.planning.consortium_folder import read_settings, settings_beside
from cape.settings.config import Config

# Settings for listing files without a run
NO_RUN: Final = {"private": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class SitePeople:
    """The people of one site's folder, or why its files do not state them."""

    site: str  # its id in a folder of several sites, else empty
    people: PeopleList
    refused: ListRefusal | None
    warnings: tuple[str, ...]


def config_for(folder: Path, chosen: Mapping[str, object] = MappingProxyType({})) -> Config:
    """Return the owner's settings beside a folder, else settings that fit its files.

    `chosen`: ``bids_filter`` and ``bids_exclude`` in place of the owner's; without a settings.toml
    nothing else filters.
    """
    if (beside := settings_beside(folder)) is not None:
        return read_settings(beside, chosen).config
    space = {"feature_space": folders.space_for(folders.names_below(folder)), "bids_filter": ""}
    return Config.from_input({**NO_RUN, **space, **chosen})


def people_below(
    folder: Path, chosen: Mapping[str, object] = MappingProxyType({}), layout: str = ""
) -> tuple[SitePeople, ...]:
    """Return the people of a site's folder, or of every site's folder below it."""
    found = []
    sites = ({} if layout else folders.sites_below(folder)) or {folder.resolve().name: folder}
    for site, path in sites.items():
        inside = path.is_relative_to(folder.resolve())  # then commands name it as it was typed
        base = folder / path.relative_to(folder.resolve()) if inside else path
        words = folders.words_beside(base)
        words = replace(words, layout=layout) if layout else words
        findings, participants = Findings(site, strict=True), base / folders.PARTICIPANTS
        people = read_people(base, config_for(base, chosen), findings, words=words)
        if not (people.people or people.unstated) and (words.tables or participants.is_file()):
            findings = Findings(site, strict=True)
            people = people_of_tables(base, words, findings)
        listed = findings.listing()
        found.append(
            SitePeople(
                site=site if len(sites) > 1 else "",
                people=people,
                refused=people.refusal(listed),
                warnings=tuple(f.private for f in listed if f.severity in "XW"),
            )
        )
    return tuple(found)


def keep_layout(folder: Path, pattern: str) -> Path:
    """Save a site's layout in its own file and return that.

    ConfigError E016: it is no layout, or fits no file; then nothing is saved.
    """
    check_pattern(pattern)
    (found,) = people_below(folder, layout=pattern)
    if not found.people.people:
        problem = found.refused.text if found.refused else "the layout fits no file"
        raise ConfigError("E016", problem=problem, do="correct it; nothing was saved.")
    path = folders.words_file(folder)
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    line = f"layout = {json.dumps(pattern, ensure_ascii=False)}"
    rest = re.sub(r"^layout *=.*\n?", "", text, flags=re.MULTILINE)
    changed = f"{line}\n{rest}"
    try:
        before, after = tomllib.loads(text or ""), tomllib.loads(changed)
    except ValueError:
        before, after = {}, {}
    if not after or {**before, "layout": pattern} != after:
        do = f"write this line into it yourself: {line}"
        raise ConfigError("E016", problem=f"{path.name} cannot be changed", do=do)
    try:
        path.write_text(changed, encoding="utf-8")
    except OSError as err:
        do = "name a file that can be written in CAPE_SITE_POLICY, and type the command again."
        problem = f"{path} cannot be written: {err.strerror}"
        raise ConfigError("E016", problem=problem, do=do) from err
    return path


def write_manifest(path: Path, found: tuple[SitePeople, ...]) -> bool:
    """Write one row a file; True if every row has its person, else the site fills them in.

    Where the people of one site are stated, runs that are left out have exclude = 1; else all
    files are listed, without people.
    """
    rows: list[Mapping[str, str]] = []
    for each in found:
        # Of several sites only somebody here knows who is the same person.
        folder, stated = each.people.folder, not (each.refused or each.site)
        taking = [run for person in each.people.listed for run in person.runs]
        runs = [*((run, "") for run in taking), *((run, "1") for run in each.people.runs_left_out)]
        for run, excluded in runs if stated else ():
            rows.append(
                {
                    "file": os.path.relpath(run.path, path.parent),
                    "participant_id": run.person,
                    "session": run.session,
                    "run": run.run,
                    "exclude": excluded,
                }
            )
        if not stated:
            rows += [
                {"file": os.path.relpath(folder / name, path.parent), "participant_id": ""}
                for name in each.people.unstated
            ]
    columns = [*COLUMNS[:4], EXCLUDE]
    try:
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
            table = csv.DictWriter(
                stream, columns, delimiter="\t" if path.suffix == ".tsv" else ","
            )
            table.writeheader()
            table.writerows({name: written_cell(row[name]) for name in row} for row in rows)
    except OSError as err:
        problem = f"{path} cannot be written: {err.strerror}"
        raise ConfigError("E016", problem=problem, do="choose another --write.") from err
    return all(row["participant_id"] for row in rows)
