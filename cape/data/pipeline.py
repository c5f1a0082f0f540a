"""From the folder of a site to reduced arrays: discover, read, check, clean, project.

`load_site` is the whole road, in this order::

    list_site          which files there are, whose they are, in which feature space
    accepted_subjects  reads, checks and cleans, as many subjects at a time as memory allows
    project            Y_m = B' X_m in the public basis, while X_m is in memory
    conclude           the checks of the site as a whole

Nothing here mixes subjects: no group mean, no scale from several people.  Whoever the site lists
takes part.  A subject that fails a check has no time point, hence the zero vector in every release:
who fails, and why, depends on content, so it changes nothing that leaves the site before noise.
"""

from __future__ import annotations

import functools
import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.data.checks import (
    RunShape,
    Subject,
    check_grids,
    judge,
    judge_site,
    note_columns,
    note_features,
)
from cape.data.copies import note_copies
from cape.data.data_store import DataStore
from cape.data.discovery import SiteListing, list_site, with_features_of_files
from cape.data.groups import read_people
from cape.data.issues import Finding, Findings, IssueCode, in_full
from cape.data.kept_subjects import Widest
from cape.data.outcomes import People
from cape.data.resources import (
    ResourceEstimate,
    check_room,
    estimate_resources,
    jobs,
    largest_bytes,
)
from cape.data.runs import RunFile, SubjectFiles
from cape.data.subjects import ReadSubject, joined_in_time, read_subject, subject_matrix
from cape.errors import DataError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.own_words import OwnWords
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, basis_kind, project, widest_basis

# Called with (subjects done, subjects in all).
OnSubject = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteData:
    """The people of one site; private but for `space` and M_s, the number of those it lists."""

    site: str
    space: FeatureSpace  # without templates
    listed: tuple[str, ...]  # labels in natural order
    subjects: tuple[Subject, ...]  # that passed, in the same order
    # SHA-256 of each file that could be read, of everybody listed, in the same order
    digests: tuple[tuple[str, ...], ...]
    findings: tuple[Finding, ...]
    fingerprint: str  # SHA-256 over the contents of the accepted files, groups and covariates
    people: People | None = None  # of everybody listed, where the settings compare groups

    @property
    def n_subjects(self) -> int:
        # Not of those that passed: acceptance would be an exact query about content.
        return len(self.listed)

    @property
    def failed(self) -> tuple[str, ...]:
        """Labels of those who count as zeros."""
        passed = {subject.label for subject in self.subjects}
        return tuple(label for label in self.listed if label not in passed)


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """All that a pass over a site brought to light: findings, worst first.

    `subjects` are those that could be read, `labels` those that were listed.  `accepted` is None if
    the site must stop; `error` is what `load_site` raises then.
    """

    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...]
    accepted: SiteData | None
    error: DataError | None
    labels: tuple[str, ...] = ()
    needs: ResourceEstimate | None = None
    left_out: tuple[str, ...] = ()  # how many people, by which lines of a list


class SitePass:
    """What a pass over all files of a site has found so far; private, grows with every subject."""

    def __init__(self, listing: SiteListing, findings: Findings) -> None:
        self.listing, self.findings = listing, findings
        self.subjects: list[Subject] = []  # that could be read
        self.accepted: list[Subject] = []  # that passed
        self.shapes: list[RunShape] = []  # of every run
        self.digests: dict[str, str] = {}  # of X_m, by label, of who passed
        self.people: People | None = None

    def read_people(self, base: Path) -> None:
        """Read groups and covariates of everybody listed, where the settings compare groups."""
        if asked := self.listing.config.comparison:
            labels = tuple(files.label for files in self.listing.listed)
            self.people = read_people(base, asked, labels, self.findings)


def load_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
    strict: bool = False,
    store: DataStore | None = None,
    before_records: Callable[[], None] = lambda: None,
    before_reading: Callable[[SiteListing], None] = lambda listing: None,
    on_subject: OnSubject | None = None,
    words: OwnWords | None = None,
    maps: Path | None = None,
) -> tuple[SiteData, list[tuple[str, Data]]]:
    """Check all data of a site; return its people, and label and Y_m (d, T_m) of each.

    `maps`: where public templates are, if not in the folder of the site.
    `listing` is as for `discover`, `working` the folder whose disk must hold the working files;
    what `store` holds is not read again.
    Who fails has T_m = 0.  DataError has the public text of the worst finding, for a list, mask or
    table that cannot be used, raised before `before_reading` is called and any series is read
    (`before_records`: before a table of records is, which says who is listed);
    `strict`: for content, too.  Its detail holds all private texts.
    """
    findings = Findings(site, strict=strict)
    files = list_site(base, listing, config, findings, before_records, words)
    findings.raise_if_blocked()
    before_reading(files)
    files = with_features_of_files(files, findings)
    found, widest = SitePass(files, findings), Widest(files, base, store, reduce=True, maps=maps)
    # The only pass over the voxels: whoever reads a file twice pays for it in hours at a site.
    read = accepted_subjects(found, widest, on_subject=on_subject)
    reduced = {label: Y for label, Y in read if Y is not None}
    found.read_people(base)
    site_data = accepted_site(conclude(found, working))
    passed = {subject.label for subject in site_data.subjects}
    kept = {label: Y for label, Y in reduced.items() if label in passed}
    # Of a kept subject no basis was needed: without anybody it says how long the vector is.
    nothing = next(iter(kept.values()), None)
    if nothing is None:
        nothing = _no_time_point(site_data, widest.basis())
    return site_data, [(label, kept.get(label, nothing[:, :0])) for label in site_data.listed]


def _no_time_point(site: SiteData, basis: Basis | None) -> Data:
    """Return Y_m (d, 0) of a subject that failed."""
    d = site.space.n_features if basis is None else basis.shape[1]
    return np.zeros((d, 0), dtype=np.float32)


def inspect_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
    store: DataStore | None = None,
    on_subject: OnSubject | None = None,
    headers_only: bool = False,
    words: OwnWords | None = None,
) -> Inspection:
    """Return everything that is wrong at a site, and its accepted subjects; never stops early.

    As `load_site` with `strict`; with `headers_only` headers and tables are read, no data.
    """
    findings = Findings(site, strict=True)
    listed = list_site(base, listing, config, findings, words=words)
    files = with_features_of_files(listed, findings)
    found = SitePass(files, findings)
    # Kept, so that the run that follows reads nothing again.
    keeps = store is not None and not headers_only
    widest = Widest(files, base, store, reduce=False) if keeps else None
    for _ in accepted_subjects(found, widest, on_subject=on_subject, headers_only=headers_only):
        pass
    found.read_people(base)
    return conclude(found, working)


def pass_over_arrays(
    site: str, arrays: Sequence[Array | RunFile], space: FeatureSpace, config: Config
) -> SitePass:
    """Return a pass over subjects that are arrays (D, T_m) in memory, or one run each."""
    listed = []
    for m, X in enumerate(arrays, start=1):
        label = f"sub-{m:03d}"
        run = X if isinstance(X, RunFile) else RunFile(path=Path(label), name=label, values=X)
        listed.append(SubjectFiles(label=label, runs=(run,)))
    listing = SiteListing(
        site=site, config=config, how=resolve(config), listed=tuple(listed), space=space
    )
    return SitePass(listing, Findings(site))


# ------------------------------------------------------------------------------- read, check, clean


def accepted_subjects(
    found: SitePass,
    widest: Widest | None = None,
    *,
    on_subject: OnSubject | None = None,
    headers_only: bool = False,
) -> Iterator[tuple[str, Data | None]]:
    """Read every subject; yield label of those that pass, and Y_m (d, T_m) if `widest` reduces.

    With `headers_only` subjects are judged by headers and tables.  Several are read at a time where
    processors and memory are there.  `widest` has the bases, and what is kept of the files.
    """
    listed = found.listing.listed
    read_one = functools.partial(
        _read_one, listing=found.listing, widest=widest, headers_only=headers_only
    )
    results = closing(_in_parallel(read_one, found.listing, widest))
    with results as each:  # closed at once by an error: nobody else is begun
        # In the order of the list, whoever was ready first: findings must not depend on it.
        for done, (files, result) in enumerate(zip(listed, each, strict=True), start=1):
            try:
                read = result()
                passed = _passes(read, found)
            # A reader or a mistake of ours: with others' files it went well.  Whether one person's
            # file breaks the program is content, too: nobody else hears of it.
            except Exception as err:
                what = f"{files.label}: {type(err).__name__}: {err}"
                found.findings.add(IssueCode.SUBJECT_BREAKS, what)
                passed = False
            if passed:
                yield files.label, read.Y
            if on_subject is not None:
                on_subject(done, len(listed))
    if widest is not None:
        widest.finish()


def _passes(read: ReadSubject, found: SitePass) -> bool:
    """Note what was found of a subject; tell whether it passes by itself."""
    found.shapes.extend(read.shapes)
    for name, issue, unusable in read.notes:
        found.findings.add_issue(issue, name, of_subject=unusable)
    subject = read.subject
    if subject is None:
        return False
    found.subjects.append(subject)
    if not judge(subject, found.listing.config, found.findings):
        return False
    found.accepted.append(subject)
    if read.digest:
        found.digests[subject.label] = read.digest
    return True


def _read_one(
    files: SubjectFiles, *, listing: SiteListing, widest: Widest | None, headers_only: bool
) -> ReadSubject:
    """Return what was read of a subject, from the store if it is there."""
    seen, read = (None, None) if widest is None else widest.look(files)
    if read is not None:
        return read
    # A row of a table of records has no header: the table was read to list its subjects.
    whole = not headers_only or any(run.row >= 0 for run in files.runs)
    read, parts = read_subject(files, listing, headers_only=not whole)
    if headers_only or read.subject is None:
        return read
    X = joined_in_time(parts, listing.how.reading.max_timepoints)
    parts.clear()  # joined: they would be held twice
    # Two people may well have given the same answers: a row of a table counts as its own.
    if not any(run.row >= 0 for run in files.runs):
        digest = hashlib.sha256(repr(X.shape).encode())
        digest.update(np.ascontiguousarray(X).data)
        read = replace(read, digest=digest.hexdigest())
    if widest is None:
        return read
    if widest.reduces:
        read = replace(read, Y=widest.project(X))
    if widest.kept is not None and seen is not None:
        widest.kept.keep(seen, files, read, X if widest.keeps_voxels else None)
    return read


def _in_parallel(
    function: Callable[[SubjectFiles], ReadSubject], listing: SiteListing, widest: Widest | None
) -> Generator[Callable[[], ReadSubject]]:
    """Yield what gives or raises each result, in the order of the list.

    No more are read at a time than memory allows.  The basis that the first subjects ask for is
    built beside them.
    """
    listed = listing.listed
    n_jobs, n_bytes, known = min(jobs(0), len(listed)), 0, False
    if n_jobs > 1 or widest is not None:
        n_bytes, known = _foreseen(listing, widest)
        n_jobs = min(jobs(n_bytes), n_jobs)
    if widest is not None:
        widest.begin(n_bytes)
    if n_jobs < 2:
        yield from (functools.partial(function, files) for files in listed)
        return
    # Threads: gunzip, digests and matrix products release the interpreter.  BLAS with threads of
    # its own inside each of them took four times the processor time, and most of it in waiting.
    from threadpoolctl import threadpool_limits

    one_each = threadpool_limits(1, "blas")
    with one_each, ThreadPoolExecutor(n_jobs) as pool, ThreadPoolExecutor(1) as beside:
        if widest is not None and widest.reduces and not known:
            beside.submit(widest.prepare)
        # Twice as many as are read at a time: nobody waits for a long one that came before.
        waiting = deque(pool.submit(function, files) for files in listed[: 2 * n_jobs])
        try:
            for files in (*listed[2 * n_jobs :], *[None] * len(waiting)):
                yield waiting.popleft().result
                if files is not None:
                    waiting.append(pool.submit(function, files))
        finally:  # who stops does not wait for those that have not begun
            pool.shutdown(wait=False, cancel_futures=True)


def _foreseen(listing: SiteListing, widest: Widest | None) -> tuple[int, bool]:
    """Return how many bytes a subject takes while it is read, and whether the store has it.

    Of the first one whose entry or header can be read; 0 bytes if nobody's can.
    """
    for files in listing.listed:
        kept = None if widest is None else widest.look(files)[1]
        if kept is not None:
            return largest_bytes(kept.subject), True
        with suppress(Exception):  # said when it is read
            if n_bytes := largest_bytes(read_subject(files, listing, headers_only=True)[0].subject):
                return n_bytes, False
    return 0, False


def reduce_again(site: SiteData, basis: Basis | None, config: Config) -> Iterator[tuple[str, Data]]:
    """Read every accepted subject again; yield label and Y_m (d, T_m) of all that are listed.

    DataError E161: the files are not those that were accepted.
    """
    passed = {subject.label: subject for subject in site.subjects}
    for label in site.listed:
        if label not in passed:
            yield label, _no_time_point(site, basis)
            continue
        yield label, project(subject_matrix(passed[label], site.space, config), basis)


# ------------------------------------------------------------------------------- conclude


def conclude(found: SitePass, working: Path | None = None) -> Inspection:
    """Return what a finished pass brought to light, after the checks of the site as a whole."""
    config, findings, listed = found.listing.config, found.findings, found.listing.listed
    space = found.listing.space
    if space is not None and space.kind == "matrix":
        _leave_odd_out(found, space)
    # Of a comparison nobody is: what a person adds hangs on a name, so who becomes a copy would
    # move two people's answers.
    copies = set() if config.comparison else _leave_copies_out(found)
    check_grids(found.shapes, findings)
    note_copies([s for s in found.shapes if s.name not in copies], findings)
    # Without the mask nobody could be read: that all subjects fail would only hide the reason.
    if space is not None or config.feature_space == "matrix":
        judge_site(found.subjects, found.accepted, len(listed), config, findings)
    needs = None
    in_memory = any(run.values is not None for files in listed for run in files.runs)
    if space is not None and found.accepted and not in_memory:
        how = found.listing.how
        n_basis = widest_basis(how, space)
        wide = how.brains and basis_kind(how, space) == "kernel"
        needs = estimate_resources(found.accepted, space, n_basis, working, wide=wide)
        check_room(needs, findings)
    accepted, error = None, None
    try:
        findings.raise_if_blocked()
        if space is None:  # no file says how many features there are
            detail = in_full(findings.listing())
            raise DataError("E100", site=findings.site, detail=detail)
        accepted = _site_data(found, space)
    except DataError as err:
        error = err
    return Inspection(
        subjects=tuple(found.subjects),
        findings=findings.listing(),
        accepted=accepted,
        error=error,
        labels=tuple(files.label for files in listed),
        needs=needs,
        left_out=findings.left_out,
    )


def accepted_site(inspection: Inspection) -> SiteData:
    """Return the accepted subjects; DataError if the site must stop."""
    if inspection.accepted is None:
        raise inspection.error or DataError("E000")
    return inspection.accepted


def _site_data(found: SitePass, space: FeatureSpace) -> SiteData:
    # Without names: a renamed file is the same data, and the same people.
    digests = "\n".join(" ".join(subject.digests) for subject in found.accepted)
    # Whoever changed groups would draw other halves of the same people.
    content = digests.encode() + (found.people.digest if found.people else b"")
    known = {subject.label: subject.digests for subject in found.subjects}
    return SiteData(
        site=found.findings.site,
        space=space,
        listed=tuple(files.label for files in found.listing.listed),
        subjects=tuple(found.accepted),
        digests=tuple(known.get(files.label, ()) for files in found.listing.listed),
        findings=found.findings.listing(),
        fingerprint=hashlib.sha256(content).hexdigest(),
        people=found.people,
    )


def _leave_copies_out(found: SitePass) -> set[str]:
    """Leave out who has the very same X_m as somebody before; return the names of their runs.

    A sum over *different* contributions has the sensitivity of a sum over all: replacing one
    person takes at most one of them away and puts at most one in.  So it must be the last that
    anybody is left out for: the first of two that left later would take the second along.
    """
    known: dict[str, str] = {}
    twice: dict[str, tuple[str, ...]] = {}
    for subject in found.accepted:
        digest = found.digests.get(subject.label, "")
        first = known.setdefault(digest, subject.label) if digest else subject.label
        if first != subject.label:
            names = twice[subject.label] = tuple(run.name for run in subject.runs)
            place = f"{first} and {subject.label} ({', '.join(names)})"
            found.findings.add(IssueCode.DATA_TWICE, place)
    found.accepted[:] = [s for s in found.accepted if s.label not in twice]
    return {name for names in twice.values() for name in names}


def _leave_odd_out(found: SitePass, space: FeatureSpace) -> None:
    """Leave out who has other features than the space; stop a site where nobody said which."""
    shapes, findings, names = found.shapes, found.findings, found.listing.columns
    note_features(shapes, space.n_features, findings)
    if names:
        note_columns(shapes, names, IssueCode.COLUMNS_DIFFER, findings)
    elif first_names := next((shape.columns for shape in shapes if shape.columns), ()):
        note_columns(shapes, first_names, IssueCode.COLUMNS_UNEQUAL, findings)
    odd = {
        shape.person
        for shape in shapes
        if shape.n_features != space.n_features or (names and shape.columns not in ((), names))
    }
    found.accepted[:] = [subject for subject in found.accepted if subject.label not in odd]
    of_files = any(run.row < 0 for files in found.listing.listed for run in files.runs)
    if odd and of_files and not found.listing.config.said_features:
        findings.escalate("the files differ, and no setting says which are right")
