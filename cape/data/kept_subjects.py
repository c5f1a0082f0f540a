"""Subjects kept in a store, so that no file is read twice.

Three kinds of entries: facts (the counts behind a subject's checks), its cleaned voxels if a site
has few of them, and its array in a public basis.  The name of an entry is a digest of everything it
depends on: contents of files, the resolved settings of readers, the feature space, the basis, and
the program.  No entry holds the name of a person or file.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Data
from cape.data.checks import RunShape, Subject
from cape.data.cleaning import Quality
from cape.data.data_store import DataStore, Stamp, content_of, stamp_of
from cape.data.discovery import SiteListing
from cape.data.file_type import suffix_of
from cape.data.issues import Issue, IssueCode
from cape.data.kept_bases import program_digest
from cape.data.runs import Person, SiteRun
from cape.data.space import stated_space
from cape.data.subjects import ReadSubject
from cape.data.templates import with_templates
from cape.errors import CapeError, DataError
from cape.frozen import dataclass
from cape.settings.documents import parse_json, plain_json
from cape.settings.resolved import Reading, Resolved
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, basis_kind, project, public_basis, widest_basis

VOXELS: Final = "voxels"
# Voxels of a site are kept up to so many bytes, so that checks need not build a basis.
MAX_VOXEL_BYTES: Final = 10**9


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenFiles:
    """The files of a subject as they were before they were read."""

    stamps: tuple[Stamp, ...]  # of the image or series of each run
    contents: tuple[str, ...]  # its SHA-256; "" if it is new here
    runs: tuple[list[object], ...]  # what else the numbers of each run depend on
    beside: tuple[tuple[Path, Stamp], ...]  # the other files


class KeptSubjects:
    """The entries of one store for one set of resolved settings and one feature space."""

    def __init__(self, store: DataStore, how: Resolved, space: FeatureSpace) -> None:
        self.store = store
        self._reading = how.reading
        what = [program_digest(), asdict(how.reading), space.digest, space.template_space]
        if how.reading.strategy:
            from importlib.metadata import version

            what.append(version("nilearn"))  # it chooses the columns of a strategy
        self._what = json.dumps(what, sort_keys=True)
        # Columns nest, but a product with more of them may round differently.
        kind = basis_kind(how, space)
        wide = how.brains and kind == "kernel"
        basis = f"{kind} {wide} {widest_basis(how, space)}"
        self._basis = hashlib.sha256(basis.encode()).hexdigest()[:16]
        self._lock = Lock()
        self._files: dict[str, tuple[int, int]] = {}  # device and inode by content

    def look(self, files: Person) -> SeenFiles | None:
        """Return the state of a subject's files; None if one is gone."""
        try:
            beside = [_beside(run, self._reading) for run in files.runs]
            return SeenFiles(
                stamps=tuple(stamp_of(run.path) for run in files.runs),
                beside=tuple((path, stamp_of(path)) for paths in beside for path in paths),
                contents=tuple(self.store.content(run.path) for run in files.runs),
                runs=tuple(
                    [*_of_name_and_list(run), [content_of(path) for path in paths]]
                    for run, paths in zip(files.runs, beside, strict=True)
                ),
            )
        except OSError:
            return None

    def facts(self, seen: SeenFiles, files: Person, site: str) -> ReadSubject | None:
        """Return a kept subject without its array; None: it has to be read."""
        if not all(seen.contents):
            return None
        entry = self.store.get(f"{self._key(seen, seen.contents)}.facts")
        try:
            read = None if entry is None else _read_subject(parse_json(entry), files, site)
        # A damaged entry is no error: the files are read again.
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return None
        if read is not None:
            self._note(seen, seen.contents)
        return read

    def array(self, seen: SeenFiles, *, voxels: bool = False) -> Data | None:
        """Return Y_m (d, T_m), or the cleaned voxels X_m (D, T_m); None if not kept."""
        kind = VOXELS if voxels else self._basis
        entry = self.store.get(f"{self._key(seen, seen.contents)}.{kind}")
        line, _, numbers = (entry or b"").partition(b"\n")
        try:
            shape = parse_json(line)
            return np.frombuffer(numbers, dtype="<f4").reshape(shape).astype(np.float32)
        except (ValueError, TypeError):
            return None

    def keep(self, seen: SeenFiles, files: Person, read: ReadSubject, X: Data | None) -> None:
        """Keep a subject, with voxels X_m if given, unless a file changed meanwhile."""
        subject = read.subject
        if subject is None or _names_somebody(read, files):
            return
        try:
            paths = [run.path for run in files.runs]
            every = [*zip(paths, seen.stamps, strict=True), *seen.beside]
            if any(stamp_of(path) != stamp for path, stamp in every):
                return
            contents = tuple(
                content_of(run.path) if suffix_of(run.path.name) == ".img" else digest[:64]
                for run, digest in zip(files.runs, subject.digests, strict=True)
            )
        except OSError:
            return
        for path, stamp, digest in zip(paths, seen.stamps, contents, strict=True):
            self.store.learn(path, stamp, digest)
        key = self._key(seen, contents)
        if X is not None:
            self._keep_array(f"{key}.{VOXELS}", X)
        if read.Y is not None:
            self._keep_array(f"{key}.{self._basis}", read.Y)
        document = {"files": contents, **_document(read, subject)}
        self.store.put(f"{key}.facts", json.dumps(plain_json(document)).encode())
        self._note(seen, contents)

    def keep_reduced(self, seen: SeenFiles, Y: Data) -> None:
        self._keep_array(f"{self._key(seen, seen.contents)}.{self._basis}", Y)

    def finish(self, base: Path) -> None:
        """Tell the store which files a site has, after a complete pass over them."""
        self.store.seen(base, self._files)

    def _keep_array(self, name: str, values: Data) -> None:
        numbers = np.ascontiguousarray(values, dtype="<f4").tobytes()
        self.store.put(name, json.dumps(values.shape).encode() + b"\n" + numbers)

    def _key(self, seen: SeenFiles, contents: tuple[str, ...]) -> str:
        return hashlib.sha256(f"{self._what} {seen.runs} {contents}".encode()).hexdigest()

    def _note(self, seen: SeenFiles, contents: tuple[str, ...]) -> None:
        at = [stamp[:2] for stamp in seen.stamps]
        with self._lock:
            self._files.update(zip(contents, at, strict=True))


class Widest:
    """The widest basis that a run may ask for, and the entries of a store in that basis."""

    def __init__(
        self,
        listing: SiteListing,
        base: Path,
        store: DataStore | None,
        *,
        reduce: bool,
        maps: Path | None = None,
    ) -> None:
        self._listing, self._base, self._maps = listing, base, maps or base
        self._lock = Lock()
        self._built = functools.cache(self._build)
        self.kept: KeptSubjects | None = None
        # Whether subjects are projected at once, and whether their voxels are kept; see `begin`
        self.reduces, self.keeps_voxels = reduce, False
        space = listing.space
        # Reading a matrix is faster than finding its entry.
        if store is not None and space is not None and space.kind != "matrix":
            with suppress(DataError):  # unusable templates are reported where the basis is used
                self.kept = KeptSubjects(store, listing.how, self._with_templates(space))

    def begin(self, n_bytes: int) -> None:
        """Decide which data of subjects of `n_bytes` each are kept.

        Voxels are kept if they are few: building a basis would take longer than reading, and other
        settings may need another one.  If they are many, the time for a basis hardly counts.
        """
        n_subjects = len(self._listing.listed)
        self.keeps_voxels = self.kept is not None and n_subjects * n_bytes <= MAX_VOXEL_BYTES
        self.reduces |= self.kept is not None and not self.keeps_voxels

    def basis(self) -> Basis | None:
        """Return B, None for the identity; CapeError, or the error that broke its building."""
        with self._lock:  # one builds it, others wait
            return self._built()

    def _build(self) -> Basis | None:
        if self._listing.space is None:
            raise ValueError("the features are not known")
        space, how = self._with_templates(self._listing.space), self._listing.how
        return public_basis(how, space, widest_basis(how, space))

    def _with_templates(self, space: FeatureSpace) -> FeatureSpace:
        if not self._listing.how.templates:
            return space
        return with_templates(space, self._maps, site=self._listing.site)

    def prepare(self) -> None:
        """Build the basis before the first subject asks for it."""
        with suppress(Exception):  # raised where the basis is used
            self.basis()

    def project(self, X: Data) -> Data | None:
        """Return Y (d, T); None without a basis, or if X has other features."""
        space = self._listing.space
        if space is None or space.n_features != len(X):
            return None
        # An unusable basis is reported if no subject has an array in it.
        with suppress(CapeError):
            return project(X, self.basis())
        return None

    def look(self, files: Person) -> tuple[SeenFiles | None, ReadSubject | None]:
        """Return the state of a subject's files, and the subject if it is kept."""
        if self.kept is None or (seen := self.kept.look(files)) is None:
            return None, None
        read = self.kept.facts(seen, files, self._listing.site)
        if read is None or not self.reduces:
            return seen, read
        Y = self.kept.array(seen)
        if Y is None and (X := self.kept.array(seen, voxels=True)) is not None:
            Y = self.project(X)
            if Y is not None:
                self.kept.keep_reduced(seen, Y)
        return seen, None if Y is None else replace(read, Y=Y)

    def finish(self) -> None:
        if self.kept is not None:
            self.kept.finish(self._base)


def _of_name_and_list(run: SiteRun) -> list[object]:
    # Readers take the kind of a file and its space from its name.
    name = run.path.name
    of_name = [suffix_of(name), stated_space(name)]
    return [*of_name, run.tr, run.n_dummy, run.trust_grid, run.confounds is not None]


def _beside(run: SiteRun, how: Reading) -> list[Path]:
    """Return the other existing files on which the numbers of a run depend."""
    name = run.path.name
    beside = [run.path.with_name(name[: -len(suffix_of(name))] + ".json")]
    beside += [run.path.with_suffix(".hdr")] if suffix_of(name) == ".img" else []
    if run.confounds is not None:
        beside += [run.confounds, run.confounds.with_suffix(".json")]
    if how.strategy:  # nilearn finds its tables by names
        beside += sorted(path for path in run.path.parent.iterdir() if "confounds" in path.name)
    return [path for path in dict.fromkeys(beside) if path.is_file()]


def _names_somebody(read: ReadSubject, files: Person) -> bool:
    """Tell whether a text of an entry would hold the name of a person or file."""
    names = {part for run in files.runs for part in (run.path.name, run.path.name.split(".")[0])}
    names |= {run.confounds.name for run in files.runs if run.confounds is not None}
    names |= {files.label} if any(letter.isalpha() for letter in files.label) else set()
    texts = [f"{issue.observed} {issue.values}" for _, issue, _ in read.notes]
    texts += [" ".join(shape.columns) for shape in read.shapes]
    return any(name in text for name in names for text in texts)


def _document(read: ReadSubject, subject: Subject) -> dict[str, Any]:
    runs = [run.name for run in subject.runs]
    return {
        "subject": _values(subject, "label", "site", "runs"),
        "shapes": [_values(shape, "name", "person") for shape in read.shapes],
        "notes": [
            [runs.index(name), issue.code.name, issue.observed, issue.values, unusable]
            for name, issue, unusable in read.notes
        ],
        "digest": read.digest,
    }


def _values(record: Any, *names: str) -> dict[str, object]:
    """Return the fields of a record without `names`, which name people and files."""
    return {f.name: getattr(record, f.name) for f in fields(record) if f.name not in names}


def _read_subject(document: dict[str, Any], files: Person, site: str) -> ReadSubject:
    facts = _tuples(document["subject"])
    facts["quality"] = Quality(**facts["quality"])
    shapes = [
        RunShape(name=run.name, person=files.label, **_tuples(shape))
        for run, shape in zip(files.runs, document["shapes"], strict=True)
    ]
    notes = [
        (files.runs[at].name, Issue(IssueCode[code], observed, _tuples(values)), unusable)
        for at, code, observed, values, unusable in document["notes"]
    ]
    return ReadSubject(
        subject=Subject(label=files.label, site=site, runs=files.runs, **facts),
        shapes=tuple(shapes),
        notes=tuple(notes),
        digest=document["digest"],
    )


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    # JSON turns tuples into lists.
    return {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
