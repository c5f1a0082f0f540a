"""Show a site the person of each of its files, and save its confirmation in its own file."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cape.data.exclusions import MANIFEST_NAMES, leave_out, lines_of_left_out, lists_of_people
from cape.data.file_type import CIFTI_SUFFIX
from cape.data.issues import Findings
from cape.data.layout.patterns import check_pattern
from cape.data.layout.reading import AS_NAMED, FOLDERS, Choice, FolderReading, version_lines
from cape.data.layout.words import is_series
from cape.data.manifest import read_manifest
from cape.data.runs import ListedRun
from cape.data.whose import (
    Taken,
    kind_for,
    person_label,
    read_paths,
    reading_of_rows,
    rows_of,
    take,
    words_beside,
)
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.planning.consortium_folder import (
    Whole,
    read_settings,
    read_whole,
    settings_beside,
    sites_below,
)
from cape.settings.config import Config
from cape.settings.own_words import POLICY_FILE, OwnWords

# Settings for listing files without a run
NO_RUN: Final = {"private": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderOfPeople:
    """The people of one site's folder; private to the site."""

    folder: Path
    site: str  # its id in a folder of sites, else empty
    reading: FolderReading
    taken: Taken
    lines: tuple[Choice, ...]  # choices to type
    left_out: tuple[str, ...]  # who was left out, and by which list
    series: tuple[str, ...]  # files of unknown people

    @property
    def people_by_file(self) -> dict[str, str]:
        """Every file with its person if proved, else with "", for the site to fill in.

        If proved, files that a run would not use are left out, as listing them would add runs.
        """
        if self.reading.level != "proved":
            images = [image.path for image in self.reading.images]
            return dict.fromkeys((*images, *self.reading.left, *self.series), "")
        people = {image.path: person_label(image, self.reading) for image in self.taken.runs}
        doubled = self.taken.doubled
        return {
            path: "" if who in doubled else f"{self.site} {who}".strip()
            for path, who in people.items()
        }


def words_typed(layout: Sequence[str], folders: str, *, as_named: bool) -> tuple[str, ...]:
    """Return typed options as the policy stores them; ConfigError E016: not a layout."""
    for pattern in layout:
        check_pattern(pattern)
    if folders and folders not in FOLDERS:
        problem = f"got --folders {folders}, allowed {', '.join(FOLDERS)}"
        raise ConfigError("E016", problem=problem, do="choose one of them.")
    named = (AS_NAMED,) if as_named else ()
    return (*named, *((f"--folders {folders}",) if folders else ()), *layout)


def people_below(folder: Path) -> list[FolderOfPeople]:
    """Return the people of a site's folder, or of every site's folder below it."""
    whole = read_whole(folder)
    sites = sites_below(whole)
    if not sites:
        return [_read(whole, "", words_beside(folder))]
    return [
        _read(read_whole(folder / site), site, words_beside(base)) for site, base in sites.items()
    ]


def confirm(folder: Path, typed: Sequence[str]) -> FolderOfPeople:
    """Save a site's layout in its own file; ConfigError E016 unless it proves all people."""
    words = replace(words_beside(folder), layout=tuple(typed))
    people = _read(read_whole(folder), "", words)
    if people.reading.level != "proved" or not people.reading.images:
        problem = f"this does not show whose the files are: {people.reading.why or 'it fits none'}"
        do = "type a line that cape people prints; nothing was saved."
        raise ConfigError("E016", problem=problem, do=do)
    _keep(folder / POLICY_FILE, typed)
    return people


def _keep(path: Path, typed: Sequence[str]) -> None:
    """Write `layout` into a site's own file and keep its other lines."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    line = f"layout = {json.dumps(list(typed))}"
    rest = re.sub(r"^layout *=.*\n?", "", text, flags=re.MULTILINE)
    changed = f"{line}\n{rest}"
    try:
        before, after = tomllib.loads(text or ""), tomllib.loads(changed)
    except ValueError:
        before, after = {}, {}
    if not after or {**before, "layout": list(typed)} != after:
        do = f"write this line into it yourself: {line}"
        raise ConfigError("E016", problem=f"{path.name} cannot be changed", do=do)
    path.write_text(changed, encoding="utf-8")


def _read(whole: Whole, site: str, words: OwnWords) -> FolderOfPeople:
    folder, paths = whole.folder, whole.names
    config, findings = _config(whole), Findings(site or folder.name)
    table = next((name for name in MANIFEST_NAMES if (folder / name).is_file()), "")
    lists = lists_of_people(folder, ".", (table,), findings, words.other_columns)
    reading = read_paths(paths, config, words.layout, [n for each in lists for n in each.said])
    rows: tuple[ListedRun, ...] = ()
    if table:
        rows = read_manifest(folder, table, findings, words.other_columns)
        findings.raise_if_blocked()  # a list that cannot be read admits no person
        reading = reading_of_rows(rows, table, config, words.layout)
    unfiltered = take(reading, config, filtered=False)
    marked = leave_out(rows or rows_of(reading, unfiltered), lists, findings)
    findings.raise_if_blocked()
    gone = {row.file: str(row.left_out) for row in marked if row.left_out}
    filtered = (
        not table and config.feature_space != "matrix" and settings_beside(folder) is not None
    )
    taken = take(reading, config, filtered=filtered, gone=gone)
    proved = reading.level == "proved"
    lines = version_lines(reading) if proved and taken.doubled and not table else reading.lines
    unread = tuple(path for path in paths if is_series(path, kind_for(config)))
    tables = [table, *(each.name for each in lists if each.marks)]
    return FolderOfPeople(
        folder=folder,
        site=site,
        reading=reading,
        taken=taken,
        lines=lines,
        left_out=lines_of_left_out(marked, filter(None, tables)),
        series=() if reading.images else unread,
    )


def _config(whole: Whole) -> Config:
    """Return the owner's settings beside a folder, else settings that fit its files."""
    beside = settings_beside(whole.folder)
    if beside is not None:
        return read_settings(beside, {}).config
    names = [image.path for image in whole.reading.images] or list(whole.reading.left)
    space = "matrix"
    for its_space, end in CIFTI_SUFFIX.items():
        if any(name.endswith(end) for name in names):
            space = its_space
    if space == "matrix" and (not names or any(".nii" in n or n.endswith(".img") for n in names)):
        space = "mask"
    return Config.from_input({**NO_RUN, "feature_space": space})
