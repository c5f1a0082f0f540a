"""Subjects kept in a store, so that no file is read twice.

An entry has the counts behind a subject's checks and its array in the widest public basis.  Its
name is a digest of the paths of its files and of the settings that made it; its key is a digest of
the program, of what the site's list says of the runs, and of the stamps of all files.  No entry
holds the name of a person or file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from threading import Lock
from typing import Any

from cape.algorithms.estimators import Data
from cape.array_file import Stamp, is_settled, stamp_of
from cape.data.checks import RunShape, Subject
from cape.data.cleaning import Quality
from cape.data.data_store import DataStore, marks_of, program_digest
from cape.data.discovery import SiteListing
from cape.data.file_type import suffix_of
from cape.data.issues import Issue, IssueCode
from cape.data.runs import Person, SiteRun
from cape.data.subjects import ReadSubject
from cape.data.templates import with_templates
from cape.errors import CapeError, DataError
from cape.frozen import dataclass
from cape.settings.documents import plain_json
from cape.settings.resolved import Reading, Resolved
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, project, public_basis, widest_basis


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenFiles:
    """The files of a subject as they were before they were read, and the entry for them."""

    stamps: tuple[tuple[Path, Stamp], ...]
    name: str
    key: str


class KeptSubjects:
    """The entries of one store for one set of resolved settings and one feature space."""

    def __init__(self, store: DataStore, how: Resolved, space: FeatureSpace) -> None:
        self._store, self._reading = store, how.reading
        self._program = program_digest()
        if how.reading.strategy:
            from importlib.metadata import version

            self._program += version("nilearn")  # it chooses the columns
        # Columns nest, but a product with more of them may round differently.
        kind = how.basis
        basis = [kind, how.brains and kind == "kernel", widest_basis(how, space)]
        what = [asdict(how.reading), space.digest, space.template_space, *basis]
        self._what = json.dumps(what, sort_keys=True)

    def look(self, files: Person) -> SeenFiles | None:
        """Return the state of a subject's files; None if one is gone, or may still change unseen.

        A file that has just changed may change again within one tick of its clock.
        """
        try:
            stamps = tuple(
                (path, stamp_of(path.stat()))
                for run in files.runs
                for path in (run.path, *_beside(run, self._reading))
            )
        except OSError:
            return None
        if not all(is_settled(stamp) for _, stamp in stamps):
            return None
        listed = [(r.tr, r.n_dummy, r.trust_grid, r.confounds is not None) for r in files.runs]
        named = [(os.path.abspath(run.path), run.row) for run in files.runs]
        return SeenFiles(
            stamps=stamps,
            name=_digest(self._what, named),
            key=_digest(self._program, listed, [(os.path.abspath(p), s) for p, s in stamps]),
        )

    def get(self, seen: SeenFiles, files: Person, site: str) -> ReadSubject | None:
        """Return a kept subject with Y_m (d, T_m); None: it has to be read."""
        stored = self._store.get(seen.name, seen.key)
        if stored is None:
            return None
        # A copy: a site may have more subjects than a process may map files.
        return replace(_read_subject(stored.note, files, site), Y=stored.arrays[0].copy(order="K"))

    def keep(self, seen: SeenFiles, files: Person, read: ReadSubject) -> None:
        """Keep a subject, unless a file changed meanwhile."""
        if read.subject is None or read.Y is None or _names_somebody(read, files):
            return
        try:
            if any(stamp_of(path.stat()) != stamp for path, stamp in seen.stamps):
                return
        except OSError:
            return
        marks = marks_of(files.label, [run.path for run in files.runs])
        facts = plain_json(_document(read, read.subject))
        self._store.put(seen.name, seen.key, [read.Y], facts, marks)


class SubjectReduction:
    """The widest basis that a run may ask for, and the entries of a store in that basis."""

    def __init__(self, listing: SiteListing, maps: Path, store: DataStore | None) -> None:
        self._listing, self._maps = listing, maps
        self._lock = Lock()
        self._built = functools.cache(self._build)
        self.kept: KeptSubjects | None = None
        space = listing.space
        # Reading a matrix is faster than finding its entry.
        if store is not None and space is not None and space.kind != "matrix":
            with suppress(DataError):  # unusable templates are reported where the basis is used
                self.kept = KeptSubjects(store, listing.how, self._with_templates(space))

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
        return with_templates(
            space, self._maps, site=self._listing.site, sent=self._listing.how.sends_maps
        )

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
        return seen, self.kept.get(seen, files, self._listing.site)


def _digest(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()


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
    )


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    # JSON turns tuples into lists.
    return {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
