"""A site's files, their people and their feature space, by names and headers.

A site gives one of `data`, `manifest` and `bids`; by default the folder's manifest counts, else the
files below it.  `cape.data.whose` assigns files to people.  All runs of one subject are joined,
because the unit of privacy is the person.
"""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

from cape.data.bids import confounds_beside, natural_key
from cape.data.checks import Subject
from cape.data.cifti import read_structure
from cape.data.exclusions import (
    MANIFEST_NAMES,
    ListOfPeople,
    leave_out,
    lines_of_left_out,
    lists_of_people,
)
from cape.data.file_type import CIFTI_SERIES, check_no_surface, suffixes_of, visible
from cape.data.gift import read_people_rows
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.layout.reading import look_alike
from cape.data.manifest import read_manifest
from cape.data.matrices import read_matrix
from cape.data.runs import ListedRun, RunFile, Series, SubjectFiles, leads_out
from cape.data.space import check_feature_count, read_space, reserved_names
from cape.data.strategies import has_nilearn
from cape.data.tables import RECORDS
from cape.data.whose import (
    every_row,
    names_below,
    names_listed,
    note_evidence,
    note_taken,
    read_paths,
    reading_of_rows,
    rows_of,
    take,
    with_people,
    words_beside,
)
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.option import did_you_mean
from cape.settings.own_words import POLICY_FILE, OwnWords
from cape.settings.resolved import Resolved, resolve
from cape.settings.words import parse_shape
from cape.space.feature_space import FeatureSpace

# Bytes of one part of a path that all common file systems allow.
MAX_NAME_BYTES: Final = 255
MAX_PATH_LETTERS: Final = 2048
MAX_PATH_PARTS: Final = 64
SOURCES: Final = ("data", "manifest", "bids")
MAX_HINTS: Final = 3


def discover(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    findings: Findings,
    before_records: Callable[[], None] = lambda: None,
    words: OwnWords | None = None,
) -> tuple[SubjectFiles, ...]:
    """Return subjects in natural order; only files below `base` are opened.

    `before_records` is called before a table of records is: its rows are data of people.
    `words`: what the site says of its files; by default those of its folder.
    """
    sources_given = {
        name: value for name, value in listing.items() if value is not None and value != ""
    }
    for name in sources_given:
        if name not in SOURCES:
            place, public = f"'{name}'{did_you_mean(name, SOURCES)}", {"sites": findings.site}
            every = " or ".join(SOURCES)
            findings.add(IssueCode.OWNERS_SETTING, place, public=public, sources=every)
    sources = [name for name in SOURCES if name in sources_given]
    if len(sources) > 1:
        place, every = ", ".join(sources), ", ".join(SOURCES)
        findings.add(IssueCode.SEVERAL_SOURCES, place, sources=every)
        return ()
    if config.feature_space == "matrix" and not sources_given:
        # A table of records needs no list; other files beside it are not data.
        records = [name for name in RECORDS if (base / name).is_file()]
        sources_given = {"data": records} if records else {}
    if table := _table_of_people(config):
        sources_given = {"data": table}  # other files of the engine lie beside it
    with readable(base, findings):
        words = words_beside(base) if words is None else words
        lists, rows = _listed_runs(base, sources_given, config, words, findings)
        taken = [row for row in rows if row.left_out is None]
        if not config.of_cifti:
            taken = [row for row in taken if _is_no_surface(row.file, findings)]
        subjects = _grouped(base, taken, findings)
    if config.feature_space != "matrix":
        return subjects
    return _expand_records(subjects, lists, words, config, findings, before_records)


@contextmanager
def readable(base: Path, findings: Findings) -> Iterator[None]:
    """Raise DataError, not OSError, if a folder cannot be read."""
    try:
        yield
    except OSError as err:
        place = f"{str(err.filename or base)[:200]}: {err.strerror}"
        findings.add(IssueCode.FOLDER_UNREADABLE, place)
        findings.raise_if_blocked()
        raise


def _listed_runs(
    base: Path, chosen: Mapping[str, object], config: Config, words: OwnWords, findings: Findings
) -> tuple[Sequence[ListOfPeople], Sequence[ListedRun]]:
    table, folder = str(chosen.get("manifest", "")), str(chosen.get("bids", "."))
    if not chosen:
        there = (name for name in MANIFEST_NAMES if os.path.lexists(base / name))
        table = next(there, "")
    places = (table, folder, chosen.get("data", ""))
    if not all(_can_be_a_name(one, findings) for one in places if isinstance(one, str)):
        return (), ()
    if leads_out(folder):
        findings.add(IssueCode.OUTSIDE_FOLDER, folder)
        return (), ()
    columns = words.other_columns
    asked = config.comparison
    compared = (asked.table, asked.outcomes_table) if asked else ()
    lists = lists_of_people(base, folder, (table,), findings, columns, compared)
    tables = [*([table] if table else []), *(one.name for one in lists if one.marks)]
    if table:
        runs = read_manifest(base, table, findings, columns)
        if runs:
            reading = reading_of_rows(runs, table, config, words.layout)
            note_evidence(reading, config, findings)
            runs = with_people(runs, reading)
        return lists, _with_lines_noted(leave_out(runs, lists, findings), tables, findings)
    given = "data" in chosen
    if given:
        names = _names_of(base, chosen["data"], findings)
        # A member of COINSTAC may have to map the policy file as data (`cape.site.policy`).
        names = [name for name in names if PurePath(name).name != POLICY_FILE]
        if all(_is_records(base / name, config) for name in names):  # their rows name the people
            return lists, [ListedRun(file=name) for name in names]
        reading = names_listed(_of_kind(names, config), config, words.layout)
    else:
        below = names_below(base / folder, reserved_names(config))
        placed = [f"{folder}/{name}" if folder != "." else name for name in below]
        reading = read_paths(placed, config, words.layout, [n for one in lists for n in one.said])
        # Surface images beside volumes in one folder are reported as such.
        names = [name for name in below if "/" not in name and not _of_kind([name], config)]
    for path in reading.atlases:
        findings.add(IssueCode.ATLAS_NAMED, path)
    if reading.is_empty and not names:
        if not given:
            suffixes = ", ".join(suffixes_of(config.feature_space))
            _note_none(base, f"files ending in {suffixes}", findings)
        return lists, ()
    if not reading.is_empty:
        note_evidence(reading, config, findings)
    # Marks apply to all images, before the owner's filter.
    marked = leave_out(every_row(reading, names), lists, findings)
    gone = {row.file: str(row.left_out) for row in marked if row.left_out}
    # The filter applies neither to arrays, which have no BIDS names, nor to a written list.
    filtered = not given and config.feature_space != "matrix"
    taken = take(reading, config, filtered=filtered, gone=gone)
    note_taken(taken, reading, findings)
    runs = tuple(row for row in rows_of(reading, taken, names) if row.file not in gone)
    return lists, _with_lines_noted(
        (*runs, *(row for row in marked if row.left_out)), tables, findings
    )


def _table_of_people(config: Config) -> str:
    return config.comparison.outcomes_table if config.comparison else ""


def _is_records(path: Path, config: Config) -> bool:
    # Tables of other names are one run each.
    return path.name in (*RECORDS, _table_of_people(config))


def _of_kind(names: Sequence[str], config: Config) -> list[str]:
    """Return the names without surface images, unless the feature space is of surfaces."""
    return [name for name in names if config.of_cifti or not name.endswith(CIFTI_SERIES)]


def _with_lines_noted(
    rows: tuple[ListedRun, ...], tables: Sequence[str], findings: Findings
) -> tuple[ListedRun, ...]:
    findings.left_out = lines_of_left_out(rows, tables)
    return rows


def _names_of(base: Path, listed: object, findings: Findings) -> list[str]:
    if not isinstance(listed, str):
        names = [str(name) for name in listed] if isinstance(listed, Sequence) else []
        if not names:
            _note_none(base, "an empty list", findings)
        return names
    if not re.search(r"[*?\[]", listed):
        return [listed]
    if leads_out(listed):
        findings.add(IssueCode.OUTSIDE_FOLDER, listed)
        return []
    matches: list[str] = []
    with suppress(ValueError):  # an invalid pattern, such as **x
        matches = [path.relative_to(base).as_posix() for path in base.glob(listed) if visible(path)]
    if not matches:
        _note_none(base, f"the pattern {listed}", findings)
    return matches


def _note_none(base: Path, sought: str, findings: Findings) -> None:
    there = len(list(base.rglob("*.nii*"))) if base.is_dir() else 0
    findings.add(IssueCode.NO_FILES, f"{sought} in {base} ({there} *.nii* below it)")


def _grouped(
    base: Path, listed: Sequence[ListedRun], findings: Findings
) -> tuple[SubjectFiles, ...]:
    listed = [row for row in listed if _can_be_a_name(row.file, findings)]
    hidden = _hidden_names(base, listed, findings)
    seen: dict[Path | tuple[int, int], str] = {}
    missing: list[str] = []
    runs: dict[str, list[tuple[ListedRun, RunFile]]] = {}
    for row in listed:
        if not row.file:  # a listed person without a file is counted
            runs.setdefault(row.subject, [])
            continue
        path = None if row.file in hidden else _locate(base, row.file, missing, findings)
        if path is None:
            continue
        # By the file behind all links, hard ones too: two names of one file are one run counted
        # twice.  Contents are not compared: whether a person counts must not depend on another's.
        real, state = path.resolve(), path.stat()
        places: set[Path | tuple[int, int]] = {real}
        if state.st_ino:
            places.add((state.st_dev, state.st_ino))
        if other := next((seen[place] for place in places if place in seen), ""):
            findings.add(IssueCode.FILE_TWICE, f"{other} and {row.file}")
            continue
        seen.update(dict.fromkeys(places, row.file))
        run = RunFile(
            path=path,
            name=row.file,
            tr=row.tr,
            n_dummy=row.n_dummy,
            confounds=_confounds(base, path, row, missing, findings),
            trust_grid=row.trust_grid,
            ses=row.ses,
            run=row.run,
        )
        runs.setdefault(row.subject or row.file, []).append((row, run))
    _note_missing(base, missing, findings)
    # In natural order of label, session and run, not of the folder: the joined series and the
    # fingerprint of the data must be the same on every computer.
    subjects = []
    for label in sorted(runs, key=natural_key):
        ordered = sorted(runs[label], key=lambda p: (natural_key(p[0].ses), natural_key(p[0].run)))
        subjects.append(SubjectFiles(label=label, runs=tuple(run for _, run in ordered)))
    return tuple(subjects)


def _confounds(
    base: Path, path: Path, row: ListedRun, missing: list[str], findings: Findings
) -> Path | None:
    entry = row.confounds if row.confounds.lower() != "n/a" else ""
    if not entry:
        beside = confounds_beside(path)
        entry = "" if beside is None else beside.relative_to(base).as_posix()
    return _locate(base, entry, missing, findings) if entry else None


def _can_be_a_name(entry: str, findings: Findings) -> bool:
    """Tell whether a file can have this name; systems raise various errors for impossible ones."""
    parts = PurePath(entry).parts
    longest = max((len(part.encode("utf-8", "surrogatepass")) for part in parts), default=0)
    short = (
        longest <= MAX_NAME_BYTES
        and len(entry) <= MAX_PATH_LETTERS
        and len(parts) <= MAX_PATH_PARTS
    )
    if "\0" not in entry and short:
        return True
    place = f"{entry[:60]!r}, {len(entry)} letters"
    findings.add(IssueCode.FILE_NAME, place, most=MAX_NAME_BYTES, deepest=MAX_PATH_PARTS)
    return False


def _is_no_surface(name: str, findings: Findings) -> bool:
    """Tell whether a name may be a volume's: a surface would spend budget on zeros."""
    try:
        check_no_surface(name)
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
        return False
    return True


def _hidden_names(base: Path, listed: Sequence[ListedRun], findings: Findings) -> set[str]:
    """Return entries that share a base name of which only one file exists."""
    # Engines link mapped files flat, by base name: a second one silently replaces the first.
    folders: dict[str, set[str]] = {}
    for row in listed:
        if not leads_out(row.file):
            folders.setdefault(PurePath(row.file).name, set()).add(row.file)
    hidden: set[str] = set()
    for name, entries in folders.items():
        absent = {entry for entry in entries if not (base / entry).exists()}
        if len(entries) > 1 and absent and (base / name).is_file():
            place = f"{len(entries)} rows ({', '.join(sorted(entries))}), 1 file {name}"
            findings.add(IssueCode.NAMES_HIDE_FILES, place)
            hidden |= entries
    return hidden


def _locate(base: Path, entry: str, missing: list[str], findings: Findings) -> Path | None:
    if leads_out(entry):
        findings.add(IssueCode.OUTSIDE_FOLDER, entry)
        return None
    path = base / entry
    flat = base / path.name
    if not path.exists() and not path.is_symlink() and flat.is_file():
        path = flat  # COINSTAC links mapped files flat, by base name
    if path.is_symlink() and not path.exists() and "annex" in str(path.readlink()):
        findings.add(IssueCode.FILE_POINTER, f"{entry} (a DataLad link)")
        return None
    if not path.exists():
        missing.append(entry)
        return None
    if not _belongs(path.resolve(), base.resolve()):
        findings.add(IssueCode.OUTSIDE_FOLDER, f"{entry} (a link to another place)")
        return None
    if path.is_dir():
        findings.add(IssueCode.FOLDER_LISTED, f"{entry} is a folder")
        return None
    if not path.is_file():  # opening a pipe would block
        findings.add(IssueCode.NO_REGULAR_FILE, entry)
        return None
    return path


def _belongs(real: Path, base: Path) -> bool:
    # A DataLad link leads to the repository's annex, which may lie above `base`.
    annexes = (top / ".git" / "annex" / "objects" for top in base.parents)
    return real.is_relative_to(base) or any(map(real.is_relative_to, annexes))


def _note_missing(base: Path, missing: Sequence[str], findings: Findings) -> None:
    if not missing:
        return
    # Listed once: a wrong folder name makes every file a missing one.
    there = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
    for entry in missing:
        near = difflib.get_close_matches(entry, there, n=MAX_HINTS, cutoff=0.5)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        findings.add(IssueCode.FILE_MISSING, f"{entry}{hint}", base=base)


def _expand_records(
    listed: Sequence[SubjectFiles],
    lists: Sequence[ListOfPeople],
    words: OwnWords,
    config: Config,
    findings: Findings,
    before_records: Callable[[], None],
) -> tuple[SubjectFiles, ...]:
    subjects: list[SubjectFiles] = []
    headers: dict[tuple[str, ...], str] = {}
    rows: list[ListedRun] = []
    for files in listed:
        if not any(_is_records(run.path, config) for run in files.runs):
            subjects.append(files)
            continue
        for run in files.runs:
            if run.path.is_file():
                before_records()
            try:
                table = read_people_rows(run.path, resolve(config).reading)
            except UnusableFile as verdict:
                findings.add_issue(verdict.issue, run.name)
                continue
            except OSError as err:
                findings.add(IssueCode.FILE_UNREADABLE, f"{run.name}: {err.strerror}")
                continue
            if config.declared_columns:
                headers.setdefault(config.declared_columns, "the owner's setting columns")
            headers.setdefault(table.names, run.name)
            subjects += [
                SubjectFiles(label=label, runs=(replace(run, row=i),))
                for i, label in enumerate(table.labels)
            ]
            rows += [ListedRun(file=run.name, subject=label) for label in table.labels]
    if len(headers) > 1:
        public = {"sites": f"within site {findings.site}"}
        findings.add(IssueCode.RECORDS_DIFFER, ", ".join(headers.values()), public=public)
    twice = [label for label, n in Counter(files.label for files in subjects).items() if n > 1]
    if headers and twice:
        findings.add(IssueCode.SUBJECT_TWICE, ", ".join(twice[:9]))
    if not rows:
        return tuple(subjects)
    if doubt := look_alike({row.subject for row in rows}, words.layout):
        findings.add(IssueCode.PEOPLE_UNPROVED, doubt)
    marked = leave_out(rows, lists, findings)
    gone = {row.subject for row in marked if row.left_out}
    _with_lines_noted(marked, [one.name for one in lists if one.marks], findings)
    return tuple(files for files in subjects if files.label not in gone)


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteListing:
    """The files of a site, their people and their feature space; private."""

    site: str  # public id
    config: Config
    how: Resolved
    listed: tuple[SubjectFiles, ...]
    # None if the mask could not be read, or if the features of matrices are not declared
    space: FeatureSpace | None
    columns: tuple[str, ...] = ()  # declared names of the features of matrices


def list_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    findings: Findings,
    before_records: Callable[[], None] = lambda: None,
    words: OwnWords | None = None,
) -> SiteListing:
    """Find the files of a site and its feature space; opens no data but tables of records."""
    read = read_structure if config.of_cifti else read_space
    with readable(base, findings):
        space = read(config, base, findings)
    how = resolve(config)
    if how.reading.strategy and not has_nilearn():
        public, strategy = {"site": findings.site}, how.reading.strategy
        findings.add(IssueCode.NO_NILEARN, public=public, strategy=strategy)
    listed = discover(base, listing, config, findings, before_records, words)
    if config.feature_space == "matrix":
        space = _said_space(listed, config, findings)
    return SiteListing(
        site=findings.site,
        config=config,
        how=how,
        listed=listed,
        space=space,
        columns=config.declared_columns,
    )


def _said_space(
    listed: Sequence[SubjectFiles], config: Config, findings: Findings
) -> FeatureSpace | None:
    """Return the space of matrices by settings or a table of records; None if neither says it."""
    tables = (run.path for files in listed for run in files.runs if run.row >= 0)
    table = next(tables, None)
    names = () if table is None else read_people_rows(table, resolve(config).reading).names
    n_features = config.declared_features or len(names)
    if n_features == 0:
        return None
    check_feature_count(n_features, config, findings)
    shape = parse_shape(config.image_shape) if config.image_shape else ()
    return FeatureSpace.of_matrix(n_features, shape, config.declared_columns or names)


def with_features_of_files(files: SiteListing, findings: Findings) -> SiteListing:
    """Take undeclared features of matrices from the first file that can be read."""
    if files.space is not None or (first := _first_header(files)) is None:
        return files
    n_features = len(first.values)
    check_feature_count(n_features, files.config, findings)
    space = FeatureSpace.of_matrix(n_features, (), first.columns)
    return replace(files, space=space, columns=first.columns)


def _first_header(files: SiteListing) -> Series | None:
    """Return the first matrix of a site that can be read; only its header if it has one."""
    how = files.how.reading
    for run in (run for each in files.listed for run in each.runs):
        if how.feature_space == "matrix" and run.row < 0:
            with suppress(UnusableFile, OSError):
                return read_matrix(run, how.orientation, how.variable, headers_only=True)
    return None


def header_of(base: Path, config: Config) -> Series | None:
    """Return the header of the first array file of a folder; None without one, or of records."""
    return _first_header(list_site(base, {}, config, Findings(base.name)))


def check_layout_is_said(listed: Sequence[SubjectFiles | Subject], config: Config) -> None:
    """Raise ConfigError E013 if a private run would take its features from files of single people.

    One person could then change the message of `join`, and which other people count.
    """
    of_files = any(run.row < 0 for files in listed for run in files.runs)
    if config.feature_space == "matrix" and config.private and of_files:
        if not config.declared_features:
            do = "so that no person's file decides it: how many features the array files have; or "
            do += "columns, their names."
            raise ConfigError("E013", setting="n_features", do=do)
