"""What reading a subject gave, kept at the site so that no file is read twice: `CAPE_CACHE`.

One file per subject: the reduced array, the counts behind its checks, digests of its files.  Its
name is a digest of all that the content follows from: settings about data, feature space, basis,
and which files they are (device, inode, size, times).  No name of a person or file stands in it.

An entry is believed if the folder is this user's alone and the checksum fits; anything else is read
again.  It is no channel: entries are written by reading files and read by those who read files.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Data
from cape.data.checks import RunShape, Subject
from cape.data.cleaning import Quality
from cape.data.file_type import suffix_of
from cape.data.issues import Issue, IssueCode
from cape.data.runs import RunFile, SubjectFiles
from cape.frozen import dataclass
from cape.settings.config import VERSION, Config
from cape.settings.documents import parse_json
from cape.settings.resolved import resolve
from cape.settings.words import parse_strategy
from cape.space.feature_space import FeatureSpace

VARIABLE: Final = "CAPE_CACHE"
MAGIC: Final = b"cape-reduced-1\n"
# Bytes that all entries together may take: 10,000 subjects of 250 volumes at d = 400.
MOST_BYTES: Final = 4 * 10**9


# Name of a run, what was noted of it, and whether it cannot be used for that.
Note = tuple[str, Issue, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSubject:
    """A subject after reading its runs, or why it cannot be judged (`subject` is None)."""

    subject: Subject | None = None
    shapes: tuple[RunShape, ...]
    notes: tuple[Note, ...]
    digest: str = ""  # SHA-256 of X_m; empty of headers, and of a row of a table
    Y: Data | None = None  # (d, T_m); None if it was not asked for


class ReducedCache:
    """The entries of one folder for one set of settings."""

    def __init__(self, folder: Path, config: Config, space: FeatureSpace, n_basis: int) -> None:
        self._folder = folder
        declared = dataclasses.fields(config)
        settings = {
            f.name: getattr(config, f.name) for f in declared if f.metadata["group"] == "Data"
        }
        # Which columns a strategy means is nilearn's to say.
        nilearn = version("nilearn") if parse_strategy(config.confound_strategy) else ""
        # The words alone would name other data alike: `auto` means what other settings say.
        how = repr(resolve(config))
        what = [VERSION, settings, how, space.digest, space.template_space, n_basis, nilearn]
        self._what = json.dumps(what, sort_keys=True)

    def load(self, files: SubjectFiles, site: str) -> ReadSubject | None:
        """Return what was read of these files; None if there is no sound entry."""
        path = self._path(files)
        try:
            content = b"" if path is None else path.read_bytes()
            head, rest = content[: len(MAGIC) + 32], content[len(MAGIC) + 32 :]
            if path is None or head != MAGIC + _checksum(path.name, rest):
                return None
            line, _, numbers = rest.partition(b"\n")
            document = parse_json(line)
            Y = np.frombuffer(numbers, dtype="<f4").reshape(document["shape"]).astype(np.float32)
            read = _read_subject(document, files, site, Y)
            os.utime(path)  # the oldest goes first
        # Whatever is wrong with an entry, the files themselves know better.
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
        return read

    def key(self, files: SubjectFiles) -> str:
        """Return the name of an entry; "" if a file is gone."""
        try:
            runs = [_identity(run) for run in files.runs]
        except OSError:
            return ""
        return hashlib.sha256(f"{self._what} {runs}".encode()).hexdigest()

    def store(self, key: str, files: SubjectFiles, read: ReadSubject) -> None:
        """Keep an entry; `key` is from before the files were read, so that no change is missed."""
        if not key or key != self.key(files) or not self._is_private():
            return
        if read.subject is None or read.Y is None or _names_somebody(read, files):
            return
        numbers = np.ascontiguousarray(read.Y, dtype="<f4").tobytes()
        rest = json.dumps(_document(read, read.subject, read.Y)).encode() + b"\n" + numbers
        content = MAGIC + _checksum(key, rest) + rest
        try:
            self._make_room(len(content))
            # 0600 from the first byte, and whole or not at all.
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as stream:
                stream.write(content)
            Path(stream.name).replace(self._folder / key)
        except OSError:
            return  # a full disk costs time, not the run

    def _path(self, files: SubjectFiles) -> Path | None:
        key = self.key(files)
        return self._folder / key if key and self._is_private() else None

    def _is_private(self) -> bool:
        # Who else may write there could make a site answer with other numbers than its files hold.
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self._folder.lstat()
        except OSError:
            return False
        if not hasattr(os, "getuid"):  # Windows does not say by these who else may write
            return False
        own = found.st_uid == os.getuid() and not found.st_mode & 0o077
        return own and stat.S_ISDIR(found.st_mode)

    def _make_room(self, n_bytes: int) -> None:
        if n_bytes > MOST_BYTES:
            raise OSError("larger than the cache")
        entries = [(path.stat().st_mtime_ns, path) for path in self._folder.iterdir()]
        held = sum(path.stat().st_size for _, path in entries) + n_bytes
        for _, path in sorted(entries):
            if held <= MOST_BYTES:
                return
            held -= path.stat().st_size
            path.unlink()


def cache_of(config: Config, space: FeatureSpace | None, n_basis: int) -> ReducedCache | None:
    """Return the cache that the site asks for; None: it asks for none, or matrices are read."""
    folder = os.environ.get(VARIABLE, "")
    # A matrix is read faster than it is found, and templates are a file of their own.
    if not folder or space is None or space.kind == "matrix" or resolve(config).templates:
        return None
    return ReducedCache(Path(folder).expanduser(), config, space, n_basis)


def _checksum(key: str, rest: bytes) -> bytes:
    # With the name: an entry that was moved is another subject's.
    return hashlib.sha256(key.encode() + rest).digest()


def _identity(run: RunFile) -> list[object]:
    """Which files a run is, without their names: a changed one has another size or time."""
    name = run.path.name
    sidecar = run.path.with_name(name[: -len(suffix_of(name))] + ".json")
    beside = [sidecar, run.path.with_suffix(".hdr"), run.confounds]
    files: list[object] = [_stat(run.path)]
    if run.confounds is not None:
        beside += [run.confounds.with_suffix(".json")]
    files += [_stat(path) if path is not None and path.exists() else None for path in beside]
    return [run.tr, run.n_dummy, run.trust_grid, files]


def _stat(path: Path) -> list[int]:
    found = path.stat()
    # The time of the last change of the inode cannot be set back.
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _names_somebody(read: ReadSubject, files: SubjectFiles) -> bool:
    """Whether a text of an entry would hold a name of the site."""
    names = {part for run in files.runs for part in (run.path.name, run.path.name.split(".")[0])}
    names |= {run.confounds.name for run in files.runs if run.confounds is not None}
    names |= {files.label} if any(letter.isalpha() for letter in files.label) else set()
    texts = [f"{issue.observed} {issue.values}" for _, issue, _ in read.notes]
    texts += [" ".join(shape.columns) for shape in read.shapes]
    return any(name in text for name in names for text in texts)


def _document(read: ReadSubject, subject: Subject, Y: Data) -> dict[str, Any]:
    runs = [run.name for run in subject.runs]
    return {
        "shape": Y.shape,
        "digests": subject.digests,
        "whole": read.digest,
        "trs": [float(tr) for tr in subject.trs],
        "counts": [subject.n_features, subject.n_timepoints, subject.rank],
        "quality": dataclasses.asdict(subject.quality),
        "motion": [subject.n_scrubbed, subject.seconds, subject.mean_fd],
        "grid": subject.grid,
        "runs": [[s.n_features, s.n_timepoints, s.values_digest, s.columns] for s in read.shapes],
        "notes": [
            [runs.index(name), issue.code.name, issue.observed, _plain(issue.values), unusable]
            for name, issue, unusable in read.notes
        ],
    }


def _plain(values: Mapping[str, object]) -> dict[str, object]:
    # Numbers of numpy as numbers; tuples become lists, and tuples again when they are read.
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in values.items()
    }


def _read_subject(document: dict[str, Any], files: SubjectFiles, site: str, Y: Data) -> ReadSubject:
    n_features, n_timepoints, rank = document["counts"]
    n_scrubbed, seconds, mean_fd = document["motion"]
    subject = Subject(
        label=files.label,
        site=site,
        runs=files.runs,
        digests=tuple(document["digests"]),
        n_features=n_features,
        n_timepoints=n_timepoints,
        trs=tuple(document["trs"]),
        quality=Quality(**document["quality"]),
        rank=rank,
        n_scrubbed=n_scrubbed,
        seconds=seconds,
        mean_fd=mean_fd,
        grid=document["grid"],
    )
    shapes = [
        RunShape(
            name=run.name,
            person=files.label,
            n_features=n,
            n_timepoints=t,
            values_digest=digest,
            columns=tuple(names),
        )
        for run, (n, t, digest, names) in zip(files.runs, document["runs"], strict=True)
    ]
    notes = [
        (files.runs[at].name, Issue(IssueCode[code], observed, _tuples(values)), unusable)
        for at, code, observed, values, unusable in document["notes"]
    ]
    return ReadSubject(
        subject=subject,
        shapes=tuple(shapes),
        notes=tuple(notes),
        digest=document["whole"],
        Y=Y,
    )


def _tuples(values: Mapping[str, object]) -> dict[str, object]:
    return {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
