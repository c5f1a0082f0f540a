"""From the folder of a site to reduced arrays: list people, read, check, clean, project.

No step mixes subjects: no group mean, no scale from several people.  Everyone whom the site
lists takes part.  A subject that fails a check has no time point, hence the zero vector in every
release.  Failures depend on content, so they change no message that leaves without noise.
"""

from __future__ import annotations

import functools
import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Data
from cape.counting import CountedPeople
from cape.data import checks, resources
from cape.data.cleaning import UNREAD
from cape.data.copies import note_copies
from cape.data.data_store import DataStore
from cape.data.discovery import SiteListing, list_site, with_features_of_files
from cape.data.folders import words_beside
from cape.data.groups import Compared, read_compared
from cape.data.issues import Finding, Findings, IssueCode, in_full
from cape.data.kept_subjects import SubjectReduction
from cape.data.runs import Person, unread
from cape.data.subjects import ReadSubject, joined_in_time, read_subject, subject_matrix
from cape.data.templates import alike, check_names, with_templates
from cape.errors import DataError
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.own_words import OwnWords
from cape.space.feature_space import FeatureSpace
from cape.space.public_basis import Basis, project, widest_basis

# Called with (subjects done, subjects in all).
OnSubjectDone = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteData:
    """The people of one site; private, except `space` and M_s, the number of people listed."""

    site: str
    space: FeatureSpace  # without templates
    listed: tuple[str, ...]  # labels in natural order
    files: tuple[tuple[str, ...], ...]  # the names of each one's files
    subjects: tuple[checks.Subject, ...]  # those that passed, in the same order
    # For each label the SHA-256 of its files, () if they could not be read
    digests: tuple[tuple[str, ...], ...]
    findings: tuple[Finding, ...]
    why: Mapping[str, int]  # how many people fail by each rule
    fingerprint: str  # SHA-256 over the contents of the accepted files, and of `people`
    people: Compared | None = None  # variables and outcomes, where the settings compare people

    @property
    def n_subjects(self) -> int:
        # All that are listed: the number that passed would be an exact query about content.
        return len(self.listed)

    @property
    def failed(self) -> tuple[str, ...]:
        """Labels of the subjects that count as zeros."""
        passed = {subject.label for subject in self.subjects}
        return tuple(label for label in self.listed if label not in passed)

    def counting(
        self, config: Config, min_group: int = 1, *, measured: bool = True
    ) -> CountedPeople:
        """Return how many people count; of a comparison, without those of `adding_nothing`."""
        passed = CountedPeople(listed=len(self.listed), counted=len(self.subjects), why=self.why)
        return passed.without(self.adding_nothing(config, min_group, measured=measured).values())

    def adding_nothing(
        self, config: Config, min_group: int = 1, *, measured: bool = True
    ) -> dict[str, str]:
        """Return the people of a comparison who passed, but whose row adds nothing, and why.

        `min_group` and `measured` are those of `Compared.adds_nothing`.
        """
        if config.question is None or self.people is None:
            return {}
        failed = set(self.failed)
        without = self.people.adds_nothing(config.question, min_group, measured=measured)
        return {label: why for label, why in without.items() if label not in failed}


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """The result of a pass over a site, with findings worst first.

    `subjects` could be read, `labels` were listed.  If the site must stop, `accepted` is None and
    `error` is what `load_site` raises.
    """

    subjects: tuple[checks.Subject, ...]
    findings: tuple[Finding, ...]
    accepted: SiteData | None
    error: DataError | None
    labels: tuple[str, ...] = ()
    needs: resources.ResourceEstimate | None = None
    left_out: tuple[str, ...] = ()  # one line for each list that leaves people out
    most_fail: bool = False  # a fault of the whole site
    counted: CountedPeople
    idle: frozenset[str] = frozenset()  # who passed, but adds nothing to a comparison


class SitePass:
    """The findings of a pass over all files of a site so far; private, grows with each subject."""

    def __init__(self, listing: SiteListing, findings: Findings, *, stop: bool = True) -> None:
        self.listing, self.findings = listing, findings
        self.labels = tuple(person.label for person in listing.listed)
        self.subjects: list[checks.Subject] = []  # those that could be read
        self.accepted: list[checks.Subject] = []  # those that passed
        self.shapes: list[checks.RunShape] = []  # of every run
        self.people: Compared | None = None
        self.stop = stop  # whether a rule that most people fail stops the site

    def read_compared(self, base: Path, words: OwnWords | None) -> None:
        """Read variables and outcomes of all listed people, if the settings compare them."""
        if question := self.listing.config.question:
            words = words_beside(base) if words is None else words
            self.people = read_compared(
                base, words, question, self.labels, self.findings, stop=self.stop
            )

    def take_rows(self) -> None:
        """Take everybody who is listed, where rows of tables are the people."""
        K = 0 if self.listing.space is None else self.listing.space.n_features
        for person in self.listing.listed:
            subject = checks.Subject(
                label=person.label,
                site=self.listing.site,
                runs=person.runs,
                digests=(),
                n_features=K,
                n_timepoints=1,
                trs=(0.0,) * len(person.runs),
                n_volumes=(1,) * len(person.runs),
                quality=UNREAD,
                rank=1,
                grid="-",
            )
            self.subjects.append(subject)
            self.accepted.append(subject)


def load_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
    strict: bool = False,
    stop_if_most_fail: bool = True,
    store: DataStore | None = None,
    before_records: Callable[[], None] = lambda: None,
    before_reading: Callable[[SiteListing], None] = lambda listing: None,
    on_subject: OnSubjectDone | None = None,
    words: OwnWords | None = None,
    maps: Path | None = None,
) -> tuple[SiteData, list[tuple[str, Data]]]:
    """Check all data of a site; return its people, and label and Y_m (d, T_m) of each.

    `listing` is as for `read_people`; the disk of `working` must hold the working files; files with
    an entry in `store` are not read again; `maps` is the folder of public templates (else `base`).
    A subject that fails has T_m = 0.  `before_records` is called before a table of records, which
    says who is listed, is read, and `before_reading` before any series is.

    DataError: a list, mask, table or file of templates cannot be used, raised before
    `before_reading`; with `stop_if_most_fail`, more than half of the people fail; with `strict`
    also for other content.  Its text is the public sentence of the worst finding, its detail holds
    all private texts.
    """
    findings = Findings(site, strict=strict)
    files = list_site(base, listing, config, findings, before_records, words)
    findings.raise_if_blocked()
    if files.how.templates and files.space is not None:
        # Refused before hours of reading.
        if config.question and config.question.measure:
            check_names(maps or base, config.question.measure, site=site)
        sent = files.how.sends_maps
        if pairs := alike(with_templates(files.space, maps or base, site=site, sent=sent)):
            findings.add(IssueCode.MAPS_ALIKE, pairs)
    before_reading(files)
    files = with_features_of_files(files, findings)
    site_pass = SitePass(files, findings, stop=stop_if_most_fail)
    site_pass.read_compared(base, words)
    findings.raise_if_blocked()  # a column that cannot be used must not cost hours of reading
    reduction = SubjectReduction(files, maps or base, store)
    # The only pass over the voxels: a second one would take hours at a site.
    read = accepted_subjects(site_pass, reduction, on_subject=on_subject)
    reduced = {label: Y for label, Y in read if Y is not None}
    site_data = accepted_site(conclude(site_pass, working))
    passed = {subject.label for subject in site_data.subjects}
    passing = {label: Y for label, Y in reduced.items() if label in passed}
    # A kept subject gives d without building a basis.
    empty = next(iter(passing.values()), None)
    if empty is None:
        empty = project(unread(site_data.space.n_features, 0), reduction.basis())
    return site_data, [(label, passing.get(label, empty[:, :0])) for label in site_data.listed]


def inspect_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
    store: DataStore | None = None,
    on_subject: OnSubjectDone | None = None,
    headers_only: bool = False,
    words: OwnWords | None = None,
    maps: Path | None = None,
) -> Inspection:
    """Return all findings of a site and its accepted subjects; never stops early.

    As `load_site` with `strict`; `headers_only` reads headers and tables, no data.
    """
    findings = Findings(site, strict=True)
    listed = list_site(base, listing, config, findings, words=words)
    files = with_features_of_files(listed, findings)
    site_pass = SitePass(files, findings)
    site_pass.read_compared(base, words)
    # Kept, so that the following run reads no file again.
    reduction = SubjectReduction(files, maps or base, None if headers_only else store)
    keeping = reduction if reduction.kept else None
    for _ in accepted_subjects(
        site_pass, keeping, on_subject=on_subject, headers_only=headers_only
    ):
        pass
    return conclude(site_pass, working)


def accepted_subjects(
    site_pass: SitePass,
    reduction: SubjectReduction | None = None,
    *,
    on_subject: OnSubjectDone | None = None,
    headers_only: bool = False,
) -> Iterator[tuple[str, Data | None]]:
    """Read every subject; yield label of those that pass, and Y_m (d, T_m) with a `reduction`.

    `headers_only` judges subjects by headers and tables.  As many are read at a time as processors
    and memory allow.  `reduction` holds the bases and the kept entries.
    """
    listed, question = site_pass.listing.listed, site_pass.listing.config.question
    if question and question.of_tables:
        site_pass.take_rows()
        return
    read_one = functools.partial(
        _read_one, listing=site_pass.listing, reduction=reduction, headers_only=headers_only
    )
    results = closing(_in_parallel(read_one, site_pass.listing, reduction))
    with results as each:  # an error closes it, so that no further subject is begun
        # In the order of the list, not of completion: findings must not depend on timing.
        for done, (files, result) in enumerate(zip(listed, each, strict=True), start=1):
            try:
                read = result()
                passed = _passes(read, files.label, site_pass)
            # A reader failed, or we made a mistake.  Whether one person's file breaks the program
            # is content, too: only this person fails, and the site alone learns of it.
            except Exception as err:
                what = f"{files.label}: {type(err).__name__}: {err}"
                site_pass.findings.add(IssueCode.SUBJECT_BREAKS, what, person=files.label)
                passed = False
            if passed:
                yield files.label, read.Y
            if on_subject is not None:
                on_subject(done, len(listed))


def _passes(read: ReadSubject, label: str, site_pass: SitePass) -> bool:
    """Note the findings of a subject; tell whether it passes by itself."""
    site_pass.shapes.extend(read.shapes)
    for name, issue, unusable in read.notes:
        site_pass.findings.add_issue(issue, name, of_subject=unusable, person=label)
    subject = read.subject
    if subject is None:
        return False
    site_pass.subjects.append(subject)
    if not checks.judge_subject(subject, site_pass.listing.config, site_pass.findings):
        return False
    site_pass.accepted.append(subject)
    return True


def _read_one(
    files: Person, *, listing: SiteListing, reduction: SubjectReduction | None, headers_only: bool
) -> ReadSubject:
    """Return a subject from the store, or read it and keep it there."""
    seen, read = (None, None) if reduction is None else reduction.look(files)
    if read is not None:
        return read
    # A row of a table of records has no header: the table was read to list its subjects.
    whole = not headers_only or any(run.row >= 0 for run in files.runs)
    read, parts = read_subject(files, listing, headers_only=not whole)
    if headers_only or read.subject is None:
        return read
    X = joined_in_time(parts, listing.how.reading.max_timepoints)
    parts.clear()  # otherwise held twice
    # Two people may give the same answers, so rows of a table are not compared.
    if not any(run.row >= 0 for run in files.runs):
        digest = hashlib.sha256(repr(X.shape).encode())
        digest.update(np.ascontiguousarray(X).data)
        read = replace(read, subject=replace(read.subject, content=digest.hexdigest()))
    if reduction is None:
        return read
    read = replace(read, Y=reduction.project(X))
    if reduction.kept is not None and seen is not None:
        reduction.kept.keep(seen, files, read)
    return read


def _in_parallel(
    function: Callable[[Person], ReadSubject],
    listing: SiteListing,
    reduction: SubjectReduction | None,
) -> Generator[Callable[[], ReadSubject]]:
    """Yield for each subject, in order of the list, a function that returns or raises its result.

    Memory bounds how many are read at a time.  The basis is built while the first ones are read.
    """
    listed = listing.listed
    n_jobs, n_bytes, is_kept = min(resources.jobs(0), len(listed)), 0, False
    if n_jobs > 1 or reduction is not None:
        n_bytes, is_kept = _foreseen(listing, reduction)
        n_jobs = min(resources.jobs(n_bytes), n_jobs)
    if n_jobs < 2:
        yield from (functools.partial(function, files) for files in listed)
        return
    # Threads: gunzip, digests and matrix products release the interpreter.  With BLAS threads
    # inside each of them four times the processor time was used, mostly for waiting.
    from threadpoolctl import threadpool_limits

    one_each = threadpool_limits(1, "blas")
    # Threads have settings of NumPy of their own: the guard around a site's answer is not theirs.
    guarded = ThreadPoolExecutor(n_jobs, initializer=functools.partial(np.seterr, all="ignore"))
    with one_each, guarded as pool, ThreadPoolExecutor(1) as beside:
        if reduction is not None and not is_kept:
            beside.submit(reduction.prepare)
        # Queue twice as many as are read at a time, so that a long one does not hold up others.
        waiting = deque(pool.submit(function, files) for files in listed[: 2 * n_jobs])
        try:
            for files in (*listed[2 * n_jobs :], *[None] * len(waiting)):
                yield waiting.popleft().result
                if files is not None:
                    waiting.append(pool.submit(function, files))
        finally:  # do not wait for those that have not begun
            pool.shutdown(wait=False, cancel_futures=True)


def _foreseen(listing: SiteListing, reduction: SubjectReduction | None) -> tuple[int, bool]:
    """Return how many bytes a subject takes while it is read, and whether the store has it.

    Taken from the first one whose entry or header can be read; 0 bytes if there is none.
    """
    for files in listing.listed:
        kept = None if reduction is None else reduction.look(files)[1]
        if kept is not None:
            return resources.largest_bytes(kept.subject), True
        with suppress(Exception):  # noted when it is read
            if n_bytes := resources.largest_bytes(
                read_subject(files, listing, headers_only=True)[0].subject
            ):
                return n_bytes, False
    return 0, False


def reduce_again(site: SiteData, basis: Basis | None, config: Config) -> Iterator[tuple[str, Data]]:
    """Read the accepted subjects again; yield label and Y_m (d, T_m) of everyone listed.

    DataError E161: the files are not those that were accepted.
    """
    passed = {subject.label: subject for subject in site.subjects}
    for label in site.listed:
        if label not in passed:
            yield label, project(unread(site.space.n_features, 0), basis)
            continue
        yield label, project(subject_matrix(passed[label], site.space, config), basis)


def conclude(site_pass: SitePass, working: Path | None = None) -> Inspection:
    """Run the checks of the site as a whole and return the result of a finished pass."""
    listing, findings = site_pass.listing, site_pass.findings
    config, listed, space = listing.config, listing.listed, listing.space
    if space is not None and space.kind == "matrix":
        _leave_odd_out(site_pass, space)
    # A comparison leaves no copy out: a person's contribution depends on the label, so that one
    # person who becomes a copy would change the answers of two.
    copies = set() if config.question else _leave_copies_out(site_pass)
    # Without a mask every subject fails; saying so would only hide the reason.
    if space is not None or config.feature_space == "matrix":
        people = site_pass.subjects, site_pass.accepted, len(listed)
        checks.judge_site(*people, config, findings, stop=site_pass.stop)
    if not findings.most_fail:
        checks.check_grids(site_pass.shapes, findings)
        note_copies([s for s in site_pass.shapes if s.name not in copies], findings)
    needs = None
    in_memory = any(run.values is not None for files in listed for run in files.runs)
    if space is not None and site_pass.accepted and not in_memory:
        how = listing.how
        n_basis = widest_basis(how, space)
        needs = resources.estimate_resources(site_pass.accepted, space, n_basis, working, how)
        resources.check_room(needs, findings)
    accepted, error = None, None
    try:
        findings.raise_if_blocked()
        if space is None:  # no file says how many features there are
            detail = in_full(findings.listing())
            raise DataError("E100", site=findings.site, detail=detail)
        accepted = _site_data(site_pass, space)
    except DataError as err:
        error = err
    return Inspection(
        subjects=tuple(site_pass.subjects),
        findings=findings.listing(),
        accepted=accepted,
        error=error,
        labels=site_pass.labels,
        needs=needs,
        left_out=findings.left_out,
        most_fail=findings.most_fail,
        counted=CountedPeople(
            listed=len(listed),
            counted=len(site_pass.accepted),
            why=findings.why({subject.label for subject in site_pass.accepted}),
        ),
    )


def accepted_site(inspection: Inspection) -> SiteData:
    """Return the accepted subjects; DataError if the site must stop."""
    if inspection.accepted is None:
        raise inspection.error or DataError("E000")
    return inspection.accepted


def _site_data(site_pass: SitePass, space: FeatureSpace) -> SiteData:
    # Without names: a renamed file holds the same data of the same people.
    digests = "\n".join(" ".join(subject.digests) for subject in site_pass.accepted)
    # With variables and outcomes: changing them must not draw other halves of the same people.
    content = digests.encode() + (site_pass.people.digest if site_pass.people else b"")
    digests_of = {subject.label: subject.digests for subject in site_pass.subjects}
    names_of = {
        person.label: tuple(run.name for run in person.runs) for person in site_pass.listing.listed
    }
    return SiteData(
        site=site_pass.findings.site,
        space=space,
        listed=site_pass.labels,
        files=tuple(names_of[label] for label in site_pass.labels),
        subjects=tuple(site_pass.accepted),
        digests=tuple(digests_of.get(label, ()) for label in site_pass.labels),
        findings=site_pass.findings.listing(),
        why=site_pass.findings.why({subject.label for subject in site_pass.accepted}),
        fingerprint=hashlib.sha256(content).hexdigest(),
        people=site_pass.people,
    )


def _leave_copies_out(site_pass: SitePass) -> set[str]:
    """Leave out subjects with the very same X_m as an earlier one; return the names of their runs.

    A sum over *different* contributions has the sensitivity of a sum over all: replacing one person
    removes at most one of them and adds at most one.  This must be the last rule that leaves
    subjects out: if a later one removed the first of two copies, it would remove both.
    """
    first_by_content: dict[str, str] = {}
    copies: set[str] = set()
    for subject in tuple(site_pass.accepted):
        label = subject.label
        first = first_by_content.setdefault(subject.content or label, label)
        if first != label:
            names = [run.name for run in subject.runs]
            place = f"{first} and {label} ({', '.join(names)})"
            site_pass.findings.add(IssueCode.DATA_TWICE, place, person=label)
            site_pass.accepted.remove(subject)
            copies.update(names)
    return copies


def _leave_odd_out(site_pass: SitePass, space: FeatureSpace) -> None:
    """Leave out subjects with other features than the space; stop a site if none are declared."""
    shapes, findings, names = site_pass.shapes, site_pass.findings, site_pass.listing.columns
    checks.note_features(shapes, space.n_features, findings)
    if names:
        checks.note_columns(shapes, names, IssueCode.COLUMNS_DIFFER, findings)
    elif first_names := next((shape.columns for shape in shapes if shape.columns), ()):
        checks.note_columns(shapes, first_names, IssueCode.COLUMNS_UNEQUAL, findings)
    odd = {
        shape.person
        for shape in shapes
        if shape.n_features != space.n_features or (names and shape.columns not in ((), names))
    }
    site_pass.accepted[:] = [subject for subject in site_pass.accepted if subject.label not in odd]
    of_files = any(run.row < 0 for files in site_pass.listing.listed for run in files.runs)
    if odd and of_files and not site_pass.listing.config.declared_features:
        findings.escalate("the files differ, and no setting says which are right")
