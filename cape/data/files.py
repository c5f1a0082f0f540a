"""Which files a site supplies, and whose they are.  Looks at names, never at image content.

A site gives exactly one of `data` (names or a glob), `manifest` (a table) and `bids` (a folder of
derivatives); with none of them, the folder's own manifest is used, else all data files in it, else
the images of its BIDS layout.  All runs of one subject are joined,
because the unit of privacy is the person.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from cape.config import did_you_mean
from cape.data.bids import CONFOUND_ENDS, bids_rows, confounds_of, is_bids
from cape.data.findings import Findings
from cape.data.manifest import ManifestRow, read_manifest
from cape.frozen import dataclass

IMAGE_SUFFIXES = (".nii", ".nii.gz", ".img")
MATRIX_SUFFIXES = (".npy", ".npz", ".csv", ".tsv", ".mat")
LONGEST_NAME = 255
"""Bytes of one part of a path, on all common file systems."""
LONGEST_PATH = 2048
SOURCES = ("data", "manifest", "bids")
MANIFEST_NAMES = ("manifest.csv", "manifest.tsv")
NO_DATA = (*MANIFEST_NAMES, "participants.tsv", "checks.tsv", "basis.npz")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFile:
    """One run: a file and what the site says about it.

    Attributes
    ----------
    path : Path
        Absolute path inside the site's folder.
    name : str
        As the site listed it; private.
    tr : float
        Repetition time in s by the manifest, 0 if not given there.
    n_dummy : int
        Volumes to drop on top of ``drop_first_volumes``.
    confounds : Path or None
        Table of the confounds: the manifest's, or the one beside an image with a BIDS name.
    trust_grid : bool
        Accept an image without affine if its shape is that of the mask.
    row : int
        Row of a table of records, from 0; -1 for a file of its own.
    """

    path: Path
    name: str
    tr: float = 0.0
    n_dummy: int = 0
    confounds: Path | None = None
    trust_grid: bool = False
    row: int = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectFiles:
    """All runs of one subject, in the order in which they are joined."""

    label: str
    runs: tuple[RunFile, ...]


def natural_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Return a sort key that puts ``run-2`` before ``run-10``."""
    parts = re.split(r"(\d+)", name.lower())
    key = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)
    return key, name


def subject_of(name: str) -> str:
    """Return ``sub-<label>`` of a file name or its folders, else the name without its ending."""
    pure = PurePath(name)
    for part in (pure.name, *reversed(pure.parts[:-1])):
        if found := re.search(r"sub-[A-Za-z0-9]+", part):
            return found.group()
    return re.sub(r"(\.nii)?\.[A-Za-z0-9]+$", "", pure.as_posix())


def discover(
    base: Path,
    given: Mapping[str, object],
    findings: Findings,
    *,
    suffixes: Sequence[str] = IMAGE_SUFFIXES,
    reserved: Sequence[str] = (),
    bids_filter: str = "",
) -> tuple[SubjectFiles, ...]:
    """Return the subjects of a site in natural order of their labels.

    Parameters
    ----------
    base : Path
        The site's folder; nothing outside it is opened.
    given : mapping
        What the site gave: `data`, `manifest` or `bids`, or nothing.  None counts as not given.
    findings : Findings
        Receives rows 1 to 5, 8, 38, 39, 51, 62.
    suffixes : sequence of str
        Endings of data files when the folder itself is listed.
    reserved : sequence of str
        Names that are no data (mask, atlas).
    bids_filter : str
        Entities that images of a BIDS folder must have.
    """
    used = {name: value for name, value in given.items() if value is not None and value != ""}
    for name in used:
        if name not in SOURCES:
            findings.add(
                51, "E", "A site gives files only; every other setting is the owner's",
                f"'{name}'{did_you_mean(name, SOURCES)}", expected=" or ".join(SOURCES),
                fix="remove it", sites=findings.site,
            )  # fmt: skip
    sources = [name for name in SOURCES if name in used]
    if len(sources) > 1:
        findings.add(
            39, "E", "Files are given in several ways", ", ".join(sources),
            expected=f"exactly one of {', '.join(SOURCES)}", fix="remove the others",
        )  # fmt: skip
        return ()
    return _group(base, _rows(base, used, findings, suffixes, reserved, bids_filter), findings)


def _rows(
    base: Path,
    used: Mapping[str, object],
    findings: Findings,
    suffixes: Sequence[str],
    reserved: Sequence[str],
    bids_filter: str,
) -> Sequence[ManifestRow]:
    """Return the runs of the one source that is given, or that the folder itself suggests."""
    if "data" in used:
        return _rows_of_names(_listed(base, used["data"], findings))
    if table := _manifest_name(base, used):
        return read_manifest(base, table, findings)
    names = _folder(base, suffixes, reserved)
    if "bids" in used or (not names and ".nii" in suffixes and is_bids(base)):
        folder = str(used.get("bids", "."))
        if PurePath(folder).is_absolute() or ".." in PurePath(folder).parts:
            _outside(folder, findings)
            return ()
        return bids_rows(base, folder, bids_filter, findings)
    if not names:
        _none_found(base, "files ending in " + ", ".join(suffixes), findings)
    return _rows_of_names(names)


def _manifest_name(base: Path, used: Mapping[str, object]) -> str:
    if "manifest" in used or "bids" in used:
        return str(used.get("manifest", ""))
    return next((name for name in MANIFEST_NAMES if (base / name).is_file()), "")


def _rows_of_names(names: Sequence[str]) -> tuple[ManifestRow, ...]:
    return tuple(ManifestRow(file=name) for name in sorted(names, key=natural_key))


def _listed(base: Path, given: object, findings: Findings) -> list[str]:
    """Return the names of a list, or those that match one glob."""
    if not isinstance(given, str):
        names = [str(name) for name in given] if isinstance(given, Sequence) else []
        if not names:
            _none_found(base, "an empty list", findings)
        return names
    if not re.search(r"[*?\[]", given):
        return [given]
    if PurePath(given).is_absolute() or ".." in PurePath(given).parts:
        _outside(given, findings)
        return []
    found = [path.relative_to(base).as_posix() for path in base.glob(given) if _shown(path)]
    if not found:
        _none_found(base, f"the pattern {given}", findings)
    return found


def _folder(base: Path, suffixes: Sequence[str], reserved: Sequence[str]) -> list[str]:
    """Return the data files of a folder: tables about people or confounds are none."""
    files = [path.name for path in base.iterdir() if _shown(path)] if base.is_dir() else []
    return [
        name
        for name in files
        if name.lower().endswith(tuple(suffixes))
        and name not in (*reserved, *NO_DATA)
        and not name.endswith(CONFOUND_ENDS)
    ]


def _shown(path: Path) -> bool:
    return not path.name.startswith(".") and (path.is_file() or path.is_symlink())


def _none_found(base: Path, sought: str, findings: Findings) -> None:
    there = len(list(base.rglob("*.nii*"))) if base.is_dir() else 0
    findings.add(
        4, "E", "There are no data files", f"{sought} in {base} ({there} *.nii* below it)",
        expected="at least one file of one subject",
        fix="list the files, correct the pattern or write a manifest.csv",
    )  # fmt: skip


def _outside(entry: str, findings: Findings) -> None:
    findings.add(
        2, "E", "A file lies outside the base directory", entry,
        expected="only files inside the base directory, as relative names without '..'",
        fix="move or copy the files there",
    )  # fmt: skip


def _group(base: Path, rows: Sequence[ManifestRow], findings: Findings) -> tuple[SubjectFiles, ...]:
    """Locate every row, and join the runs of each subject."""
    rows = [row for row in rows if _is_a_name(row.file, findings)]
    lost = _equal_names(base, rows, findings)
    seen: dict[Path, str] = {}
    missing: list[str] = []
    runs: dict[str, list[tuple[ManifestRow, RunFile]]] = {}
    for row in rows:
        if row.file in lost:
            continue
        path = _locate(base, row.file, missing, findings)
        if path is None:
            continue
        real = path.resolve()
        if real in seen:
            same_data_twice(seen[real], row.file, findings)
            continue
        seen[real] = row.file
        beside = confounds_of(path)
        entry = "" if beside is None else beside.relative_to(base).as_posix()
        if row.confounds and row.confounds.lower() != "n/a":
            entry = row.confounds
        table = _locate(base, entry, missing, findings) if entry else None
        run = RunFile(
            path=path, name=row.file, tr=row.tr, n_dummy=row.n_dummy, confounds=table,
            trust_grid=row.trust_grid,
        )  # fmt: skip
        runs.setdefault(row.subject or subject_of(row.file), []).append((row, run))
    _note_missing(base, missing, findings)
    subjects = []
    for label in sorted(runs, key=natural_key):
        ordered = sorted(runs[label], key=lambda p: (natural_key(p[0].ses), natural_key(p[0].run)))
        subjects.append(SubjectFiles(label=label, runs=tuple(run for _, run in ordered)))
    return tuple(subjects)


def _is_a_name(entry: str, findings: Findings) -> bool:
    """Tell whether a file could have this name at all, or note row 1."""
    parts = PurePath(entry).parts
    longest = max((len(part.encode("utf-8", "surrogatepass")) for part in parts), default=0)
    if "\0" not in entry and longest <= LONGEST_NAME and len(entry) <= LONGEST_PATH:
        return True
    findings.add(
        1, "E", "An entry cannot be the name of a file", f"'{entry[:60]!r}', {len(entry)} letters",
        expected=f"parts of at most {LONGEST_NAME} bytes", fix="correct the name",
    )  # fmt: skip
    return False


def same_data_twice(first: str, second: str, findings: Findings) -> None:
    """Note row 5: two entries hold the same data."""
    findings.add(
        5, "E", "The same data are listed twice: one person counted twice has 2 mu",
        f"{first} and {second}", expected="every run once", fix="remove one of the two",
    )  # fmt: skip


def _equal_names(base: Path, rows: Sequence[ManifestRow], findings: Findings) -> set[str]:
    """Note row 62 and return its entries: engines that link files by base name lose the second."""
    folders: dict[str, set[str]] = {}
    for row in rows:
        pure = PurePath(row.file)
        if ".." not in pure.parts and not pure.is_absolute():
            folders.setdefault(pure.name, set()).add(row.file)
    lost: set[str] = set()
    for name, entries in folders.items():
        absent = {entry for entry in entries if not (base / entry).exists()}
        if len(entries) > 1 and absent and (base / name).is_file():
            findings.add(
                62, "E", "Mapped files have the same base name, so that one hides the other",
                f"{len(entries)} rows ({', '.join(sorted(entries))}), 1 file {name}",
                expected="a base name of its own for every file", fix="rename the files",
            )  # fmt: skip
            lost |= entries
    return lost


def _locate(base: Path, entry: str, missing: list[str], findings: Findings) -> Path | None:
    """Return the file of an entry, or None after noting what is wrong with it."""
    pure = PurePath(entry)
    if pure.is_absolute() or ".." in pure.parts:
        _outside(entry, findings)
        return None
    path = base / pure
    if not path.exists() and not path.is_symlink() and (base / pure.name).is_file():
        path = base / pure.name  # COINSTAC links mapped files flat, by base name
    if path.is_symlink() and not path.exists() and "annex" in str(path.readlink()):
        findings.add(
            8, "E", "A file is a pointer, its content is not here", f"{entry} (a DataLad link)",
            expected="the content", fix="fetch it first: datalad get",
        )  # fmt: skip
        return None
    if not path.exists():
        missing.append(entry)
        return None
    if not path.resolve().is_relative_to(base.resolve()):
        _outside(f"{entry} (a link to another place)", findings)
        return None
    if path.is_dir():
        findings.add(
            3, "E", "An entry is a folder", f"{entry} is a folder", expected="a file",
            fix="list its files, or give a glob such as 'sub-*/*.nii.gz'",
        )  # fmt: skip
        return None
    return path


def _note_missing(base: Path, missing: Sequence[str], findings: Findings) -> None:
    """Note row 1 for all missing files, each with the nearest names that are there."""
    if not missing:
        return
    there = [path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_file()]
    for entry in missing:
        near = difflib.get_close_matches(entry, there, n=3, cutoff=0.5)
        hint = f" (nearest: {', '.join(near)})" if near else ""
        findings.add(
            1, "E", "Files are missing", f"{entry}{hint}", expected=f"files below {base}",
            fix="correct the names or put the files there",
        )  # fmt: skip
