"""The person of each file of a site, and the files that a run takes.

Discovery, first settings, checks and `cape people` share this answer.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

from cape.data.bids import entities_of, has_all, natural_key
from cape.data.exclusions import MANIFEST_NAMES, PARTICIPANTS
from cape.data.file_type import CIFTI_SUFFIX, IMAGE_SUFFIXES, MATRIX_SUFFIXES
from cape.data.issues import Findings, IssueCode
from cape.data.layout.reading import FolderReading, Image, look_alike, read_names
from cape.data.layout.words import FileKind, is_series, stem, words
from cape.data.runs import ListedRun
from cape.errors import ConfigError, FoundError, own_words
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.own_words import POLICY_FILE, OwnWords
from cape.settings.resolved import resolve
from cape.settings.words import parse_entities, parse_exclusions

NO_DATA: Final = (*MANIFEST_NAMES, PARTICIPANTS, "checks.tsv", "basis.npz", "truth.npz")
# A folder with one of these holds results, not data of people.
RESULTS: Final = frozenset(("results.json", "cape-site.json", "privacy.json", "site-error.txt"))
# Entities listed where no image fits, as examples.
MAX_ENTITIES: Final = 6
# Nested folders: links may lead in a circle.
MAX_FOLDER_DEPTH: Final = 16
# Folders of the file system, which users may not read.
SYSTEM: Final = frozenset(("lost+found", "System Volume Information"))
_DATA: Final = (*IMAGE_SUFFIXES, *MATRIX_SUFFIXES)


def words_beside(base: Path) -> OwnWords:
    """Return the site's own words from the policy file in its folder; ConfigError E268.

    A run on an engine, where others can send files into the folder, takes them from the site's
    policy instead (`cape.site.policy`), which also checks the rest of the file.
    """
    path = base / POLICY_FILE
    if not path.is_file():
        return OwnWords()
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        layout, columns = given.get("layout", []), given.get("not_exclusions", "")
        if not isinstance(columns, str) or not isinstance(layout, list):
            raise FoundError("layout is a list of texts, not_exclusions a text")
        return OwnWords(layout=tuple(map(str, layout)), not_exclusions=columns)
    except (OSError, ValueError, RecursionError) as err:  # its reader has no limits of its own
        detail = own_words(err, "not UTF-8, or nested too deeply")
        raise ConfigError("E268", detail=f"{path.name}: {detail}") from err


def kind_for(config: Config) -> FileKind:
    if config.feature_space in CIFTI_SUFFIX:
        return "cifti"
    return "matrix" if config.feature_space == "matrix" else "volume"


def names_below(base: Path, reserved: Collection[str] = ()) -> list[str]:
    """Return the names of all files below a folder, without results, hidden and `reserved` ones.

    OSError if any folder cannot be read: its people would be left out silently.
    """
    if not base.exists():
        return []
    names: list[str] = []
    _walk(str(base), "", frozenset((*reserved, *NO_DATA)), MAX_FOLDER_DEPTH, names)
    return sorted(names)


def _walk(folder: str, above: str, reserved: frozenset[str], deeper: int, names: list[str]) -> None:
    entries = list(os.scandir(folder))
    if above and any(entry.name in RESULTS for entry in entries):
        return
    for entry in entries:
        name = entry.name
        if name.startswith(".") or name in SYSTEM or (not above and name in reserved):
            continue
        # A folder with the name of an image is kept: a later check reports it.
        if name.lower().endswith(_DATA) or not _is_folder(entry):
            names.append(f"{above}{name}")
        elif deeper:
            _walk(entry.path, f"{above}{name}/", reserved, deeper - 1, names)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to a place that may not be read
        return False


def read_paths(
    paths: Sequence[str], config: Config, layout: Sequence[str], names: Collection[str] = ()
) -> FolderReading:
    """Return the person of each file; `layout`: the site's words, `names`: labels of its list."""
    only = CIFTI_SUFFIX.get(config.feature_space, "")
    if config.feature_space == "atlas" and not any(is_series(path, "volume") for path in paths):
        return read_names(paths, "matrix", layout=layout, names=names)  # tables of its parcels
    return read_names(
        [p for p in paths if p.endswith(only)], kind_for(config), layout=layout, names=names
    )


def person_label(image: Image, reading: FolderReading) -> str:
    """Return the name of a person in lists and reports; with ``sub-`` if read by BIDS."""
    of_bids = reading.evidence == "BIDS" and " " not in image.subject
    return " ".join(filter(None, (image.site, "sub-" * of_bids + image.subject)))


def _row(image: Image, reading: FolderReading) -> ListedRun:
    """Return an image as a row of a list; its run, from its name, orders the runs."""
    named = entities_of(PurePath(image.path).name)
    run = {k: v for k, v in named.items() if k in words("run_entities")} or dict(image.run)
    session = run.pop("ses", run.pop("session", ""))
    order = "_".join(f"{key}-{value}" for key, value in run.items())
    return ListedRun(file=image.path, subject=person_label(image, reading), ses=session, run=order)


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The images of a site, with the reason for each that a run does not take, by path."""

    images: tuple[Image, ...]
    why_not: Mapping[str, str]
    gone: frozenset[str]  # paths left out by a list of the site
    # By person: two versions of one run that no rule chooses between
    doubled: Mapping[str, tuple[str, str]]
    entities: str  # that the owner's filter asks for; empty if the names have none

    @property
    def runs(self) -> tuple[Image, ...]:
        return tuple(image for image in self.images if image.path not in self.why_not)


def take(
    reading: FolderReading, config: Config, *, filtered: bool, gone: Mapping[str, str] | None = None
) -> Taken:
    """Choose among images by the owner's filter and the producer's row.

    `filtered`: names with BIDS entities must fit the owner's filter.  `gone`: by path, the line
    of the site's list that leaves it out.
    """
    how = resolve(config).entities
    wanted, unwanted = parse_entities(how), parse_exclusions(config.bids_exclude)
    named = {i.path for i in reading.images if filtered and _has_entities(i.path, config)}
    gone = gone or {}
    why_not: dict[str, str] = {}
    for image in reading.images:
        entities = entities_of(PurePath(image.path).name)
        if image.path in gone:
            why_not[image.path] = f"left out by {gone[image.path]}"
        elif image.whole:
            why_not[image.path] = "repeats other files of the person"
        elif image.path in named and not has_all(entities, wanted):
            why_not[image.path] = f"bids_filter asks for {how}"
        elif image.path in named and any(has_all(entities, part) for part in unwanted):
            why_not[image.path] = f"bids_exclude leaves out {config.bids_exclude}"
    doubled: dict[str, tuple[str, str]] = {}
    versions: dict[tuple[object, ...], list[Image]] = {}
    for image in reading.images:
        if image.path not in why_not:
            versions.setdefault(image.acquired, []).append(image)
    for several in versions.values():
        preferred = _chosen(several, reading)
        why_not |= {
            i.path: "another version of the run is taken" for i in several if i not in preferred
        }
        if len(preferred) > 1:
            doubled[person_label(preferred[0], reading)] = (preferred[0].path, preferred[1].path)
    return Taken(
        images=reading.images,
        why_not=why_not,
        gone=frozenset(gone),
        doubled=doubled,
        entities=how if named else "",
    )


def _has_entities(path: str, config: Config) -> bool:
    """Tell whether the owner's filter applies to a name: it has BIDS entities.

    To copies in one folder the filter applies only if the owner wrote one.
    """
    *folders, name = PurePath(path).parts
    below = any("sub-" in folder for folder in folders) or resolve(config).own_entities
    return below and "sub-" in name and "task-" in name


def _chosen(several: Sequence[Image], reading: FolderReading) -> Sequence[Image]:
    """Return the versions of a run that the producer's row prefers; all without a preference."""
    for wanted in reading.producer.take if reading.producer else ():
        if wanted == "longest":
            most = max(len(image.version) for image in several)
            return [image for image in several if len(image.version) == most]
        if some := [image for image in several if wanted in f"/{image.path}"]:
            return some
    return several


def note_evidence(reading: FolderReading, config: Config, findings: Findings) -> None:
    """Note that the people are not proved, or which series of a proved layout are left out."""
    if reading.level == "proved":
        for path in reading.left:
            findings.add(IssueCode.SERIES_LEFT, path)
        return
    place = reading.why
    if reading.images:
        place += f" ({len(reading.images)} files, {len(reading.people)} people?)"
    if reading.level == "inferred" and not config.private:
        findings.add(IssueCode.PEOPLE_INFERRED, place)
    else:
        findings.add(IssueCode.PEOPLE_UNPROVED, place)


def note_taken(taken: Taken, reading: FolderReading, findings: Findings) -> None:
    """Note people without a run, runs with several versions, and files that repeat others."""
    for image in taken.images:
        if image.whole:
            findings.add(IssueCode.RUN_REPEATS, image.path)
    for first, other in taken.doubled.values():
        findings.add(IssueCode.RUN_VERSIONS, f"{first} and {other}")
    if set(image.path for image in taken.images) - taken.gone and not taken.runs:
        place = f"{len(taken.images)} images{_entities_there(taken.images)}"
        findings.add(IssueCode.NO_BIDS_MATCH, place, wanted=taken.entities)
        return
    with_run = {person_label(image, reading) for image in taken.runs}
    people = {person_label(i, reading) for i in taken.images if i.path not in taken.gone}
    for who in sorted(people - with_run - taken.doubled.keys(), key=natural_key):
        findings.add(IssueCode.NO_BIDS_IMAGE, who, wanted=taken.entities)


def _entities_there(images: Sequence[Image]) -> str:
    pairs = (pair for image in images for pair in entities_of(PurePath(image.path).name).items())
    there = sorted({f"{k}-{v}" for k, v in pairs if k in ("task", "space", "res", "desc")})
    return f" with {', '.join(there[:MAX_ENTITIES])}" if there else ""


def every_row(reading: FolderReading, names: Sequence[str] = ()) -> tuple[ListedRun, ...]:
    """Return a row of every image, taken or not, and of every other file of `names`.

    A file without a known person gets a row of its own, so that later checks report on it.
    """
    placed = {image.path for image in reading.images}
    others = (ListedRun(file=name, subject=stem(name)) for name in names if name not in placed)
    return (*(_row(image, reading) for image in reading.images), *others)


def rows_of(
    reading: FolderReading, taken: Taken, names: Sequence[str] = ()
) -> tuple[ListedRun, ...]:
    """Return the runs that are taken, and a row without a file for each other listed person."""
    runs = [_row(i, reading) for i in taken.runs if person_label(i, reading) not in taken.doubled]
    there = {row.subject for row in runs}
    people = {person_label(i, reading) for i in taken.images if i.path not in taken.gone}
    without_run = (
        ListedRun(file="", subject=name) for name in sorted(people - there, key=natural_key)
    )
    return (*runs, *without_run, *every_row(reading, names)[len(reading.images) :])


def names_listed(names: Sequence[str], config: Config, layout: Sequence[str]) -> FolderReading:
    """Return the person of each file of a written list; all of them are series."""
    return read_names(sorted(names, key=natural_key), kind_for(config), layout=layout, listed=True)


def reading_of_rows(
    rows: Sequence[ListedRun], table: str, config: Config, layout: Sequence[str]
) -> FolderReading:
    """Return the person of each file of a manifest: by rows, or by file names if one is unnamed."""
    if not all(row.subject for row in rows):
        return names_listed([row.file for row in rows], config, layout)
    images = tuple(
        Image(
            path=row.file, subject=row.subject, run={"row": f"{n} {row.ses} {row.run}"}, version=""
        )
        for n, row in enumerate(rows)
    )
    reading = FolderReading(level="proved", images=images, evidence=table)
    why = look_alike({image.subject for image in images}, layout)
    return replace(reading, level="unknown", why=why) if why else reading


def with_people(rows: Sequence[ListedRun], reading: FolderReading) -> tuple[ListedRun, ...]:
    """Fill in the people of a reading where rows of a list name none."""
    whose = {image.path: person_label(image, reading) for image in reading.images}
    return tuple(
        replace(row, subject=row.subject or whose.get(row.file, stem(row.file))) for row in rows
    )
