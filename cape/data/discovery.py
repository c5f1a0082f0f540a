"""Which files a site supplies, and whose they are.  Looks at names, never at image content.

One of `data`, `manifest` and `bids`; without, the folder's manifest, else all data files, else its
BIDS layout.  All runs of one subject are joined, because the unit of privacy is the person.
"""

from __future__ import annotations

import difflib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path, PurePath
from typing import Final

from cape.data.file_type import IMAGE_SUFFIXES, MATRIX_SUFFIXES
from cape.data.issues import Findings, Issue, IssueCode, UnusableFile
from cape.data.runs import RunFile, SubjectFiles
from cape.data.space import reserved_names
from cape.data.tables import (
    MISSING_CELLS,
    RECORDS,
    bounded,
    is_records,
    read_records,
    table_cells,
)
from cape.delimited import Line, delimiter_of
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.option import did_you_mean
from cape.settings.resolved import resolve
from cape.settings.words import parse_entities, parse_exclusions

# Bytes of one part of a path, on all common file systems.
LONGEST_NAME: Final = 255
LONGEST_PATH: Final = 2048
SOURCES: Final = ("data", "manifest", "bids")
MANIFEST_NAMES: Final = ("manifest.csv", "manifest.tsv")
CIFTI_OF: Final = {"grayordinates": (".dtseries.nii",), "parcels": (".ptseries.nii",)}
POLICY_FILE: Final = "site-policy.toml"
PARTICIPANTS: Final = "participants.tsv"
NO_DATA: Final = (*MANIFEST_NAMES, PARTICIPANTS, "checks.tsv", "basis.npz")
NEAREST: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedRun:
    """One run as listed; empty texts and zeros where the list says nothing.

    Without a file it is a person who is listed and has no run.
    """

    file: str
    subject: str = ""
    ses: str = ""
    run: str = ""
    tr: float = 0.0
    n_dummy: int = 0
    confounds: str = ""
    trust_grid: bool = False


def discover(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    findings: Findings,
    before_records: Callable[[], None] = lambda: None,
) -> tuple[SubjectFiles, ...]:
    """Return subjects in natural order; None counts as not given, only `base` is opened.

    `before_records` is called before a table of records is: its rows are data of people.
    """
    chosen = {name: value for name, value in listing.items() if value is not None and value != ""}
    for name in chosen:
        if name not in SOURCES:
            place, public = f"'{name}'{did_you_mean(name, SOURCES)}", {"sites": findings.site}
            every = " or ".join(SOURCES)
            findings.add(IssueCode.OWNERS_SETTING, place, public=public, sources=every)
    sources = [name for name in SOURCES if name in chosen]
    if len(sources) > 1:
        place, every = ", ".join(sources), ", ".join(SOURCES)
        findings.add(IssueCode.SEVERAL_SOURCES, place, sources=every)
        return ()
    if config.feature_space == "matrix" and not chosen:
        # A site's own table of records needs no list; other files beside it are not its data.
        records = [name for name in RECORDS if (base / name).is_file()]
        chosen = {"data": records} if records else {}
    subjects = _grouped(base, _listed_runs(base, chosen, config, findings), findings)
    return (
        _expand_records(subjects, config, findings, before_records)
        if config.feature_space == "matrix"
        else subjects
    )


def _listed_runs(
    base: Path, chosen: Mapping[str, object], config: Config, findings: Findings
) -> Sequence[ListedRun]:
    suffixes = _suffixes(config)
    if "data" in chosen:
        names = _names_of(base, chosen["data"], findings)
        # A member of COINSTAC may have no other way to map it (`cape.site.policy`).
        return _named_runs([name for name in names if PurePath(name).name != POLICY_FILE])
    table = str(chosen.get("manifest", ""))
    if not {"manifest", "bids"} & set(chosen):
        table = next((name for name in MANIFEST_NAMES if (base / name).is_file()), "")
    if table:
        return read_manifest(base, table, findings)
    names = _data_files(base, suffixes, reserved_names(config))
    matrix = config.feature_space == "matrix"
    if "bids" in chosen or (not names and not matrix and is_bids(base, patterns_of(config))):
        folder = str(chosen.get("bids", "."))
        if _leads_out(folder):
            findings.add(IssueCode.OUTSIDE_FOLDER, folder)
            return ()
        return bids_runs(base, folder, config, findings)
    if not names:
        _note_none(base, "files ending in " + ", ".join(suffixes), findings)
    return _named_runs(names)


def _suffixes(config: Config) -> tuple[str, ...]:
    if config.of_cifti:
        return CIFTI_OF[config.feature_space]
    return MATRIX_SUFFIXES if config.feature_space == "matrix" else IMAGE_SUFFIXES


def _named_runs(names: Sequence[str]) -> tuple[ListedRun, ...]:
    return tuple(ListedRun(file=name) for name in sorted(names, key=natural_key))


def _names_of(base: Path, listed: object, findings: Findings) -> list[str]:
    if not isinstance(listed, str):
        names = [str(name) for name in listed] if isinstance(listed, Sequence) else []
        if not names:
            _note_none(base, "an empty list", findings)
        return names
    if not re.search(r"[*?\[]", listed):
        return [listed]
    if _leads_out(listed):
        findings.add(IssueCode.OUTSIDE_FOLDER, listed)
        return []
    matches = [path.relative_to(base).as_posix() for path in base.glob(listed) if _visible(path)]
    if not matches:
        _note_none(base, f"the pattern {listed}", findings)
    return matches


def _data_files(base: Path, suffixes: Sequence[str], reserved: Sequence[str]) -> list[str]:
    """Return the data files of a folder: tables about people or confounds are none."""
    names = [path.name for path in base.iterdir() if _visible(path)] if base.is_dir() else []
    return [
        name
        for name in names
        if name.lower().endswith(tuple(suffixes))
        and name not in (*reserved, *NO_DATA)
        and not name.endswith(CONFOUND_ENDS)
    ]


def _visible(path: Path) -> bool:
    # A Mac leaves ._sub-01.nii.gz beside every image that it copies.  All else counts that has the
    # name of data: links whose file is gone (DataLad's), folders and pipes are named as what they
    # are, not passed over.
    named = path.name.lower().endswith((*IMAGE_SUFFIXES, *MATRIX_SUFFIXES))
    return not path.name.startswith(".") and (path.is_file() or path.is_symlink() or named)


def _leads_out(entry: str) -> bool:
    return PurePath(entry).is_absolute() or ".." in PurePath(entry).parts


def _note_none(base: Path, sought: str, findings: Findings) -> None:
    there = len(list(base.rglob("*.nii*"))) if base.is_dir() else 0
    findings.add(IssueCode.NO_FILES, f"{sought} in {base} ({there} *.nii* below it)")


# ------------------------------------------------------------------------------- names to files


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


def _grouped(
    base: Path, listed: Sequence[ListedRun], findings: Findings
) -> tuple[SubjectFiles, ...]:
    listed = [row for row in listed if _can_be_a_name(row.file, findings)]
    hidden = _hidden_names(base, listed, findings)
    seen: dict[Path | tuple[int, int], str] = {}
    missing: list[str] = []
    runs: dict[str, list[tuple[ListedRun, RunFile]]] = {}
    for row in listed:
        if not row.file:  # somebody without a file: who is listed is counted
            runs.setdefault(row.subject, [])
            continue
        path = None if row.file in hidden else _locate(base, row.file, missing, findings)
        if path is None:
            continue
        # By the file behind all links, hard ones too: two names of one file are one run counted
        # twice.  What it holds is not asked: a person must not count by what another's files hold.
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
        )
        runs.setdefault(row.subject or subject_of(row.file), []).append((row, run))
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
    """Tell whether a file could have this name at all: systems raise what they like for others."""
    parts = PurePath(entry).parts
    longest = max((len(part.encode("utf-8", "surrogatepass")) for part in parts), default=0)
    if "\0" not in entry and longest <= LONGEST_NAME and len(entry) <= LONGEST_PATH:
        return True
    place = f"'{entry[:60]!r}', {len(entry)} letters"
    findings.add(IssueCode.FILE_NAME, place, most=LONGEST_NAME)
    return False


def _hidden_names(base: Path, listed: Sequence[ListedRun], findings: Findings) -> set[str]:
    """Return entries that share a base name, where only one file of that name is there."""
    # Engines link mapped files flat, by base name: the second replaces the first in silence.
    folders: dict[str, set[str]] = {}
    for row in listed:
        if not _leads_out(row.file):
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
    if _leads_out(entry):
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
    if not path.is_file():  # opened, a pipe would wait for ever
        findings.add(IssueCode.NO_REGULAR_FILE, entry)
        return None
    return path


def _belongs(real: Path, base: Path) -> bool:
    # A link of the site's own repository leads to its annex, which may lie above the derivatives.
    annexes = (top / ".git" / "annex" / "objects" for top in base.parents)
    return real.is_relative_to(base) or any(map(real.is_relative_to, annexes))


def _note_missing(base: Path, missing: Sequence[str], findings: Findings) -> None:
    if not missing:
        return
    # Listed once for all that are missing: a wrong folder name makes every file a missing one.
    there = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
    for entry in missing:
        near = difflib.get_close_matches(entry, there, n=NEAREST, cutoff=0.5)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        findings.add(IssueCode.FILE_MISSING, f"{entry}{hint}", base=base)


def _expand_records(
    listed: Sequence[SubjectFiles],
    config: Config,
    findings: Findings,
    before_records: Callable[[], None],
) -> tuple[SubjectFiles, ...]:
    subjects: list[SubjectFiles] = []
    headers: dict[tuple[str, ...], str] = {}
    for files in listed:
        if not any(is_records(run.path) for run in files.runs):
            subjects.append(files)
            continue
        for run in files.runs:
            if run.path.is_file():
                before_records()
            try:
                table = read_records(run.path)
            except UnusableFile as verdict:
                findings.add_issue(verdict.issue, run.name)
                continue
            except OSError as err:
                findings.add(IssueCode.FILE_UNREADABLE, f"{run.name}: {err.strerror}")
                continue
            if config.said_columns:
                headers.setdefault(config.said_columns, "the owner's setting columns")
            headers.setdefault(table.names, run.name)
            subjects += [
                SubjectFiles(label=label, runs=(replace(run, row=i),))
                for i, label in enumerate(table.labels)
            ]
    if len(headers) > 1:
        public = {"sites": f"within site {findings.site}"}
        findings.add(IssueCode.RECORDS_DIFFER, ", ".join(headers.values()), public=public)
    twice = [label for label, n in Counter(files.label for files in subjects).items() if n > 1]
    if headers and twice:
        findings.add(IssueCode.SUBJECT_TWICE, ", ".join(twice[:9]))
    return tuple(subjects)


# ------------------------------------------------------------------------------- manifest

# The last two are no properties of a run: rows that are left out, and a remark for people.
MANIFEST_COLUMNS: Final = (*(column.name for column in fields(ListedRun)), "exclude", "notes")
ALIASES: Final = {"filename": "file", "nii": "file"}


def read_manifest(base: Path, name: str, findings: Findings) -> tuple[ListedRun, ...]:
    """Return the runs of a manifest that are not marked ``exclude``; one row per run."""
    if _leads_out(name):
        findings.add(IssueCode.MANIFEST_OUTSIDE, name)
        return ()
    try:
        (first, cells), *rows = table_cells(bounded(base / name), delimiter_of(name))
    except OSError:
        findings.add(IssueCode.MANIFEST_MISSING, name, base=base)
        return ()
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, name)
        return ()
    header = [ALIASES.get(cell.lower(), cell.lower()) for cell in cells]
    if not _check_header(name, first, header, findings):
        return ()
    runs = []
    for line, row in rows:
        named = dict(zip(header, row, strict=True))
        if not _is_true(named.get("exclude", "")):
            runs.append(_manifest_row(name, line, named, findings))
    listed = tuple(run for run in runs if run is not None)
    if not listed:
        findings.add(IssueCode.NO_LISTED_RUNS, f"{name}: {len(rows)} rows, none used")
    return listed


def _check_header(name: str, first: Line, header: list[str], findings: Findings) -> bool:
    every = ", ".join(MANIFEST_COLUMNS)
    for column in header:
        if column == "mask":
            findings.add(IssueCode.MANIFEST_MASK, name)
        elif column not in MANIFEST_COLUMNS and "file" in header:
            place = f"{name}: '{column}'{did_you_mean(column, MANIFEST_COLUMNS)}"
            findings.add(IssueCode.MANIFEST_COLUMNS, place, columns=every)
    if "file" in header and len(set(header)) == len(header):
        return True
    if first.cells()[0].endswith((*IMAGE_SUFFIXES, ".npy", ".npz", ".mat")):
        findings.add(IssueCode.TABLE_NO_HEADER, f"{name}: {first}")
    else:
        place = f"{name}: found {', '.join(first.cells())}"
        findings.add(IssueCode.MANIFEST_NO_COLUMN, place, columns=every)
    return False


def _is_true(cell: str) -> bool:
    return cell.lower() in ("1", "true", "yes")


def _manifest_row(
    name: str, line: Line, cells: dict[str, str], findings: Findings
) -> ListedRun | None:
    place = f"{name}: {line}"
    if not cells["file"]:
        findings.add(IssueCode.MANIFEST_NO_FILE, place)
        return None
    wanted = {"tr": "a number with a decimal point", "n_dummy": "a whole number"}
    numbers = {column: _number(cells.get(column, "")) for column in wanted}
    for column, number in numbers.items():
        whole = column == "tr" or number == int(number) if math.isfinite(number) else False
        if not whole or number < 0:
            seen, expected = f"{place}: '{cells[column]}'", wanted[column]
            findings.add(IssueCode.MANIFEST_CELL, seen, column=column, wanted=expected)
            return None
    texts = {name: cells.get(name, "") for name in ("file", "subject", "ses", "run", "confounds")}
    trust_grid = _is_true(cells.get("trust_grid", ""))
    return ListedRun(
        tr=numbers["tr"], n_dummy=int(numbers["n_dummy"]), trust_grid=trust_grid, **texts
    )


def _number(cell: str) -> float:
    # "nan" is no gap here: a repetition time that a program failed to compute is an error.
    if cell.lower() in MISSING_CELLS and cell.lower() != "nan":
        return 0.0
    try:
        return float(cell)
    except ValueError:
        return math.nan


# ------------------------------------------------------------------------------- BIDS derivatives

CONFOUND_ENDS: Final = ("_desc-confounds_timeseries.tsv", "_desc-confounds_regressors.tsv")
# Entities that tell versions of one run apart.
VERSIONS: Final = ("space", "res", "desc", "den", "cohort", "seg", "atlas", "stat", "echo")
# Entities listed where no image fits: the first ones show how the names are made.
MOST_ENTITIES: Final = 6


# Of images
PATTERNS: Final = ("sub-*/func/*_bold.nii*", "sub-*/ses-*/func/*_bold.nii*")


def patterns_of(config: Config) -> tuple[str, ...]:
    """Return where a BIDS folder has the files of a feature space."""
    if not config.of_cifti:
        return PATTERNS
    return _cifti_patterns(*CIFTI_OF[config.feature_space])


def _cifti_patterns(*ends: str) -> tuple[str, ...]:
    return tuple(f"{place}/func/*{end}" for place in ("sub-*", "sub-*/ses-*") for end in ends)


EVERY_PATTERN: Final = (*PATTERNS, *_cifti_patterns(".dtseries.nii", ".ptseries.nii"))


def bids_files(base: Path, patterns: Sequence[str] = EVERY_PATTERN) -> Iterator[Path]:
    return (path for pattern in patterns for path in base.glob(pattern) if _visible(path))


def is_bids(base: Path, patterns: Sequence[str] = EVERY_PATTERN) -> bool:
    # The first match will do: a study has thousands.
    return any(True for _ in bids_files(base, patterns))


def entities_of(name: str) -> dict[str, str]:
    """Split the entities off, ``sub-01_task-rest_bold.nii.gz`` -> {sub: 01, task: rest}."""
    parts = name.split(".")[0].split("_")[:-1]
    pairs = (part.partition("-") for part in parts)
    return {key: value for key, dash, value in pairs if dash}


def confounds_beside(image: Path) -> Path | None:
    # One table serves all versions of a run: its name has none of their entities.
    run = [f"{k}-{v}" for k, v in entities_of(image.name).items() if k not in VERSIONS]
    if not run:
        return None
    tables = (image.with_name("_".join(run) + end) for end in CONFOUND_ENDS)
    # A link whose content was not fetched is told as that, not as no table.
    return next((table for table in tables if table.is_file() or table.is_symlink()), None)


Entities = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Participation:
    """What a site's participants.tsv says of one person; parts as in `bids_exclude`."""

    listed: bool = True
    only: tuple[Entities, ...] = ()  # runs that fit none of these are left out; empty: all stay
    without: tuple[Entities, ...] = ()

    def takes(self, entities: Mapping[str, str]) -> bool:
        fits = not self.only or any(_fits(entities, part) for part in self.only)
        return self.listed and fits and not any(_fits(entities, part) for part in self.without)


EVERYTHING: Final = Participation()


def _fits(entities: Mapping[str, str], wanted: Entities) -> bool:
    return all(entities.get(key) in value.split("+") for key, value in wanted)


def _participants(top: Path, findings: Findings) -> dict[str, Participation]:
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
    listed = include.lower() not in nobody and not _is_true(exclude)
    only = "" if include.lower() in (*unsaid, *nobody) else include
    without = "" if exclude.lower() in (*MISSING_CELLS, *nobody) or _is_true(exclude) else exclude
    return Participation(
        listed=listed, only=parse_exclusions(only), without=parse_exclusions(without)
    )


def bids_runs(base: Path, folder: str, config: Config, findings: Findings) -> tuple[ListedRun, ...]:
    bids_filter, patterns = resolve(config).entities, patterns_of(config)
    wanted, unwanted = parse_entities(bids_filter), parse_exclusions(config.bids_exclude)
    top = base / folder
    images = sorted(set(bids_files(top, patterns)))
    listed: list[ListedRun] = []
    said = _participants(top, findings)
    left_out = {subject for subject, one in said.items() if not one.listed}
    versions: dict[tuple[str, Entities], str] = {}
    doubled: set[str] = set()
    for path in images:
        entities = entities_of(path.name)
        subject = subject_of(path.as_posix())
        if not _fits(entities, wanted) or any(_fits(entities, part) for part in unwanted):
            continue
        if not said.get(subject, EVERYTHING).takes(entities):
            continue
        name = path.relative_to(base).as_posix()
        run = tuple((k, v) for k, v in entities.items() if k not in VERSIONS)
        # Joined in time, two versions of one run would be the same person's data twice.
        if (subject, run) in versions:
            findings.add(IssueCode.RUN_VERSIONS, f"{versions[subject, run]} and {name}")
            doubled.add(subject)
            continue
        versions[subject, run] = name
        order = "_".join(f"{key}-{value}" for key, value in run if key not in ("sub", "ses"))
        session = entities.get("ses", "")
        listed.append(ListedRun(file=name, subject=subject, ses=session, run=order))
    # Everybody whose name is there, whatever the owner's filter: it must not ask who has which run,
    # nor whether anybody has.
    people = {subject_of(path.as_posix()) for path in images}
    people -= left_out  # by the site itself
    if not people:
        findings.add(IssueCode.NO_FILES, f"{len(images)} images below {folder or '.'}")
    elif not listed:
        pairs = (pair for path in images for pair in entities_of(path.name).items())
        there = sorted({f"{k}-{v}" for k, v in pairs if k in ("task", *VERSIONS[:3])})
        place = f"{len(images)} images below {folder or '.'}"
        place += f" with {', '.join(there[:MOST_ENTITIES])}" if there else ""
        findings.add(IssueCode.NO_BIDS_MATCH, place, wanted=bids_filter)
    fit = {row.subject for row in listed}
    listed = [row for row in listed if row.subject not in doubled]
    for subject in sorted(people - {row.subject for row in listed}, key=natural_key):
        if fit and subject not in doubled:
            findings.add(IssueCode.NO_BIDS_IMAGE, subject, wanted=bids_filter)
        listed.append(ListedRun(file="", subject=subject))
    return tuple(listed)
