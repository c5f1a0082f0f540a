"""From names that a site states to files on its disk: each inside the folder, each counted once."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Final

from cape.data.bids import confounds_beside
from cape.data.file_type import check_no_surface
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.runs import SiteRun, leads_out

# Bytes of one part of a path that all common file systems allow.
MAX_NAME_BYTES: Final = 255
MAX_PATH_LETTERS: Final = 2048
MAX_PATH_PARTS: Final = 64
MAX_HINTS: Final = 3


def located(
    base: Path,
    stated: Iterable[SiteRun],
    findings: Findings,
    *,
    of_cifti: bool,
    excluded: Sequence[str] = (),
    anywhere: bool = False,
) -> tuple[SiteRun, ...]:
    """Return the runs whose files are there; what is wrong with the others goes to `findings`.

    `excluded`: files that a list leaves out, which no other name may bring in again.  `anywhere`:
    links may lead out of `base`, as whoever named them has the files.
    """
    named = [run for run in stated if can_be_a_name(run.name, findings)]
    if not of_cifti:
        named = [run for run in named if _is_no_surface(run.name, findings)]
    hidden = _hidden_names(base, [run.name for run in named], findings)
    seen: dict[Path | tuple[int, int], str] = {}
    for name in excluded:
        if not leads_out(name) and (base / name).is_file():
            seen.update(dict.fromkeys(_places(base / name), name))
    missing: list[str] = []
    runs: list[SiteRun] = []
    for run in named:
        path = None
        if run.name not in hidden:
            path = _locate(base, run.name, missing, findings, anywhere=anywhere)
        if path is None:
            continue
        # By the file behind all links, hard ones too: two names of one file are one run counted
        # twice.  Contents are not compared: whether a person counts must not depend on another's.
        places = _places(path)
        if run.row < 0:
            if other := next((seen[place] for place in places if place in seen), ""):
                findings.add(IssueCode.FILE_TWICE, f"{other} and {run.name}")
                continue
            seen.update(dict.fromkeys(places, run.name))
        confounds = _confounds(base, path, run.confounds_said, missing, findings, anywhere=anywhere)
        runs.append(replace(run, path=path, confounds=confounds))
    _note_missing(base, missing, findings)
    return tuple(runs)


def _places(path: Path) -> set[Path | tuple[int, int]]:
    real, state = path.resolve(), path.stat()
    return {real, (state.st_dev, state.st_ino)} if state.st_ino else {real}


def _confounds(
    base: Path, path: Path, named: str, missing: list[str], findings: Findings, *, anywhere: bool
) -> Path | None:
    entry = named if named.lower() != "n/a" else ""
    if not entry:
        beside = confounds_beside(path)
        entry = "" if beside is None else beside.relative_to(base).as_posix()
    return _locate(base, entry, missing, findings, anywhere=anywhere) if entry else None


def can_be_a_name(entry: str, findings: Findings) -> bool:
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


def _hidden_names(base: Path, entries: Sequence[str], findings: Findings) -> set[str]:
    """Return entries that share a base name of which only one file exists."""
    # Engines link mapped files flat, by base name: a second one silently replaces the first.
    folders: dict[str, set[str]] = {}
    for entry in entries:
        if not leads_out(entry):
            folders.setdefault(PurePath(entry).name, set()).add(entry)
    hidden: set[str] = set()
    for name, same in folders.items():
        absent = {entry for entry in same if not (base / entry).exists()}
        if len(same) > 1 and absent and (base / name).is_file():
            place = f"{len(same)} rows ({', '.join(sorted(same))}), 1 file {name}"
            findings.add(IssueCode.NAMES_HIDE_FILES, place)
            hidden |= same
    return hidden


def _locate(
    base: Path, entry: str, missing: list[str], findings: Findings, *, anywhere: bool
) -> Path | None:
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
    if not (anywhere or _belongs(path.resolve(), base.resolve())):
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
