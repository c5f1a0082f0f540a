"""From the folder of a site to reduced arrays: discover, read, check, clean, project.

`load_site` is the whole road, in this order::

    start_scan         which files there are, whose they are, in which feature space
    accepted_subjects  reads, checks and cleans: one subject in memory at a time
    project            Y_m = B' X_m in the public basis, while X_m is in memory
    conclude           the checks of the site as a whole

Nothing here mixes subjects: no group mean, no scale from several people.  Whoever the site lists
takes part.  A subject that fails a check has no time point, hence the zero vector in every release:
who fails, and why, depends on content, so it changes nothing that leaves the site before noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.interpolated_basis import InterpolatedBasis
from cape.config import Config, parse_shape
from cape.data.checks import (
    RunShape,
    Subject,
    check_equal_values,
    column_names,
    count_features,
    judge,
    judge_site,
)
from cape.data.cleaning import UNREAD, rank_of
from cape.data.discovery import discover
from cape.data.issues import Finding, Findings, IssueCode, UnusableFile
from cape.data.reading import clean_run, dummies, read_run
from cape.data.resources import ResourceEstimate, check_room, estimate_resources
from cape.data.runs import RunFile, Series, SubjectFiles, unread
from cape.data.space import Grid, check_feature_count, grid_of, read_space, with_templates
from cape.data.tables import read_records
from cape.errors import CapeError, DataError
from cape.feature_space import FeatureSpace
from cape.frozen import dataclass
from cape.public_basis import Basis, public_basis, widest_basis

# Rows of a subject that are projected at a time: 8192 x 400 doubles are 26 MB.
ROWS: Final = 8192

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
    fingerprint: str  # SHA-256 over the contents of the accepted files

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


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteScan:
    """One pass over all files of a site; private.  `findings` and the lists grow with it."""

    config: Config
    listed: tuple[SubjectFiles, ...]
    findings: Findings
    space: FeatureSpace | None  # None for matrices, and where the mask could not be read
    subjects: list[Subject] = field(default_factory=list)  # that could be read
    accepted: list[Subject] = field(default_factory=list)  # that passed
    shapes: list[RunShape] = field(default_factory=list)  # of every run
    copies: set[str] = field(default_factory=set)  # names of the runs of who counts once already


def load_site(
    base: Path,
    listing: Mapping[str, object],
    config: Config,
    *,
    site: str,
    working: Path | None = None,
    strict: bool = False,
) -> tuple[SiteData, list[tuple[str, Data]]]:
    """Check all data of a site; return its people, and label and Y_m (d, T_m) of each.

    `listing` is as for `discover`, `working` the folder whose disk must hold the working files.
    Who fails has T_m = 0.  DataError has the public text of the worst finding, for a list, mask or
    table that cannot be used; `strict`: for content, too.  Its detail holds all private texts.
    """
    scan = start_scan(base, listing, config, site=site, strict=strict)
    reduced: dict[str, Data] = {}
    bases: dict[int, Basis | None] = {}
    if scan.space is not None:  # before the first subject is in memory; of matrices D is not known
        D = scan.space.n_features
        bases[D] = _widest_basis_of(scan, base, D)
    # The only pass over the voxels: whoever reads a file twice pays for it in hours at a site.
    for label, X in accepted_subjects(scan):
        # Who has other features than most is known at the end, and then left to zeros.
        if len(X) not in bases:
            bases[len(X)] = _basis_if_any(scan, base, n_features=len(X))
        B = bases[len(X)]
        if B is None or B.shape[0] == len(X):
            reduced[label] = project(X, B)
        del X  # else it would stay in memory while the next subject is read
    site_data = accepted_site(conclude(scan, working))
    D = site_data.space.n_features
    B = bases[D] if bases.get(D) is not None else _widest_basis_of(scan, base, D)
    passed = {subject.label for subject in site_data.subjects}
    nothing = _no_time_point(site_data, B)
    return site_data, [
        (label, reduced[label] if label in passed else nothing) for label in site_data.listed
    ]


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
    on_subject: OnSubject | None = None,
    headers_only: bool = False,
) -> Inspection:
    """Return everything that is wrong at a site, and its accepted subjects; never stops early.

    As `load_site` with `strict`; with `headers_only` headers and tables are read, no data.
    """
    scan = start_scan(base, listing, config, site=site, strict=True)
    for _ in accepted_subjects(scan, on_subject=on_subject, headers_only=headers_only):
        pass
    return conclude(scan, working)


# ------------------------------------------------------------------------------- discover


def start_scan(
    base: Path, listing: Mapping[str, object], config: Config, *, site: str, strict: bool = False
) -> SiteScan:
    """Find the files of a site and its feature space; looks at no data of a subject."""
    findings = Findings(site, strict=strict)
    space = read_space(config, base, findings)
    listed = discover(base, listing, config, findings)
    return SiteScan(config=config, listed=listed, findings=findings, space=space)


def scan_of_arrays(
    site: str, arrays: Sequence[Array], space: FeatureSpace, config: Config
) -> SiteScan:
    """Return a scan of subjects that are arrays (D, T_m) in memory: no names, grids or tables."""
    listed = []
    for m, X in enumerate(arrays, start=1):
        label = f"sub-{m:03d}"
        run = RunFile(path=Path(label), name=label, values=X)
        listed.append(SubjectFiles(label=label, runs=(run,)))
    return SiteScan(config=config, listed=tuple(listed), findings=Findings(site), space=space)


# ------------------------------------------------------------------------------- read, check, clean


def accepted_subjects(
    scan: SiteScan, *, on_subject: OnSubject | None = None, headers_only: bool = False
) -> Iterator[tuple[str, Data]]:
    """Read every subject; yield label and cleaned X_m (D, T_m) of those that pass.

    With `headers_only` subjects are judged by headers and tables, and nothing is yielded.
    """
    known: dict[str, str] = {}
    for done, files in enumerate(scan.listed, start=1):
        try:
            subject, X = _passed(files, scan, known, headers_only=headers_only)
        except Exception as err:  # a reader or a mistake of ours: with others' files it went well
            # Whether one person's file breaks the program is content, too: nobody else hears of it.
            scan.findings.add(
                IssueCode.SUBJECT_BREAKS, f"{files.label}: {type(err).__name__}: {err}"
            )
            subject = X = None
        if subject is not None:
            scan.accepted.append(subject)
        if X is not None:
            yield files.label, X
        del X  # one subject at a time: the next one needs this memory
        if on_subject is not None:
            on_subject(done, len(scan.listed))


def _passed(
    files: SubjectFiles, scan: SiteScan, known: dict[str, str], *, headers_only: bool
) -> tuple[Subject | None, Data | None]:
    """Read a subject; return it, with X_m (of headers None), if it passes, else None."""
    # A row of a table of records has no header: the table was read to list its subjects.
    whole = not headers_only or any(run.row >= 0 for run in files.runs)
    subject, parts = read_subject(files, scan, headers_only=not whole)
    if subject is None:
        return None, None
    scan.subjects.append(subject)
    if not judge(subject, scan.config, scan.findings):
        return None, None
    if headers_only:
        return subject, None
    X = joined_in_time(parts, scan.config)
    return (subject, X) if _is_new(subject, X, known, scan) else (None, None)


def _is_new(subject: Subject, X: Data, known: dict[str, str], scan: SiteScan) -> bool:
    """Tell whether nobody before had the very same X_m; who had counts for both.

    A sum over *different* contributions has the sensitivity of a sum over all: replacing one
    person takes at most one of them away and puts at most one in.
    """
    # Two people may well have given the same answers: a row of a table counts as its own.
    if any(run.row >= 0 for run in subject.runs):
        return True
    digest = hashlib.sha256(repr(X.shape).encode() + X.tobytes()).hexdigest()
    first = known.setdefault(digest, subject.label)
    if first == subject.label:
        return True
    names = [run.name for run in subject.runs]
    scan.copies.update(names)
    scan.findings.add(IssueCode.DATA_TWICE, f"{first} and {subject.label} ({', '.join(names)})")
    return False


def read_subject(
    files: SubjectFiles, scan: SiteScan, *, headers_only: bool
) -> tuple[Subject | None, list[Data]]:
    """Read and clean all runs of a subject; return it with its cleaned runs (D, T_run), float32.

    None and nothing if it cannot be judged: a run cannot be read, or runs differ in their features.
    Of headers only, the runs are `unread`, the counts `UNREAD` and the rank is its bound.
    """
    parts: list[Data] = []
    read: list[Series] = []
    quality = UNREAD
    # A bad run is no reason to stop: the site learns of all that is wrong in one pass.
    for run in files.runs:
        series = _read_noting(run, scan, headers_only=headers_only)
        if series is None:
            continue
        scan.shapes.append(_shape(run, series))
        if headers_only:
            n_features, n_times = series.values.shape
            part = unread(n_features, max(n_times - dummies(run, scan.config), 0))
        else:
            part, counts = clean_run(series, run, scan.config)
            quality = quality.joined(counts)
        parts.append(part)
        # A copy: a view of no rows would hold the voxels of every run until the last is read.
        read.append(replace(series, values=series.values[:0].copy()))
    if len(read) < len(files.runs) or len({len(part) for part in parts}) != 1:
        return None, []
    n_features, n_times = len(parts[0]), sum(part.shape[1] for part in parts)
    if n_features == 0:
        return None, []
    rank = min(n_features, n_times)
    if rank and not headers_only:
        rank = rank_of(_joined(parts))
    subject = Subject(
        label=files.label,
        site=scan.findings.site,
        runs=files.runs,
        digests=tuple(series.digest for series in read),
        n_features=n_features,
        n_timepoints=n_times,
        trs=tuple(series.tr for series in read),
        quality=quality,
        rank=rank,
        grid=next((s.grid for s in read if s.grid != "ok"), read[0].grid),
    )
    return subject, parts


def _read_noting(run: RunFile, scan: SiteScan, *, headers_only: bool) -> Series | None:
    """Return one run as stored, or None after noting why it cannot be used."""
    try:
        grid = _grid_of(run, scan.space)
        series = read_run(run, scan.config, grid, headers_only=headers_only)
    except UnusableFile as verdict:
        scan.findings.add_issue(verdict.issue, run.name, of_subject=True)
        return None
    except OSError as err:
        place = f"{run.name}: {err.strerror}"
        scan.findings.add(IssueCode.FILE_UNREADABLE, place, of_subject=True)
        return None
    for issue in series.issues:
        scan.findings.add_issue(issue, run.name)
    return series


def _grid_of(run: RunFile, space: FeatureSpace | None) -> Grid | None:
    """Return where the features lie in an image; None for matrices, and without a mask."""
    if space is None or space.kind == "matrix" or run.values is not None:
        return None
    return grid_of(space)


def _shape(run: RunFile, series: Series) -> RunShape:
    n_features, n_times = series.values.shape
    digest = ""
    if series.digest:
        # Two people may well have given the same answers: a row of a table counts as its own.
        rows = f"{run.name} {run.row}".encode()
        values = rows if run.row >= 0 else np.ascontiguousarray(series.values).data
        digest = hashlib.sha256(values).hexdigest()
    return RunShape(
        name=run.name,
        n_features=n_features,
        n_timepoints=n_times,
        values_digest=digest,
        columns=series.columns,
    )


def _joined(parts: Sequence[Data]) -> Data:
    # One run is not copied: it may be half of the memory that a site has.
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def joined_in_time(parts: Sequence[Data], config: Config) -> Data:
    """Return preprocessed runs of one subject as X_m (D, T_m), at most `max_timepoints` long."""
    joined = _joined(parts)
    if config.max_timepoints and joined.shape[1] > config.max_timepoints:
        # Centred again: the mean over the first time points is not that over all.
        cut = joined[:, : config.max_timepoints]
        joined = np.ascontiguousarray(cut - cut.mean(axis=1, keepdims=True, dtype=np.float64))
    return joined.astype(np.float32, copy=False)


# ------------------------------------------------------------------------------- project


def _widest_basis_of(scan: SiteScan, base: Path, n_features: int) -> Basis | None:
    """Return the widest basis that a run may ask for; None is the identity."""
    # Of matrices only D is known while the first one is in memory: all that a basis needs.
    space = scan.space or FeatureSpace.of_matrix(n_features)
    if scan.config.needs_templates:
        space = with_templates(space, base, site=scan.findings.site)
    return public_basis(scan.config, space, widest_basis(scan.config, space))


def _basis_if_any(scan: SiteScan, base: Path, n_features: int) -> Basis | None:
    try:
        return _widest_basis_of(scan, base, n_features)
    except CapeError:
        # Perhaps of one odd file: if it is the site's own number of features, it is raised later.
        return None


def project(values: Data, basis: Basis | None) -> Data:
    """Return ``B' X``, shape (d, T), float32; `values` is X (D, T), None the identity."""
    if basis is None:
        return values
    if basis.shape[0] != values.shape[0]:
        raise ValueError(f"basis has {basis.shape[0]} rows, the data have {values.shape[0]}")
    if isinstance(basis, InterpolatedBasis):
        return basis.adjoint(values).astype(np.float32)
    # Sums in doubles: in float32 the result would depend on the order of 70,000 voxels.
    total = np.zeros((basis.shape[1], values.shape[1]))
    for first in range(0, values.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        total += basis[rows].T @ values[rows].astype(np.float64)
    return total.astype(np.float32)


def subject_matrix(subject: Subject, space: FeatureSpace, config: Config) -> Data:
    """Read an accepted subject again; return X_m (D, T_m), every row of mean 0 over each run.

    DataError CAPE-E161: the files are not those that were accepted.
    """
    parts = []
    for run, digest in zip(subject.runs, subject.digests, strict=True):
        try:
            series = read_run(run, config, _grid_of(run, space))
        except (UnusableFile, OSError) as err:
            raise DataError("E161", site=subject.site, detail=f"{run.name}: {err}") from err
        # Other data under the same name would be summed into a run whose plan they are not of.
        if series.digest != digest:
            raise DataError("E161", site=subject.site, detail=f"{run.name}: other content")
        parts.append(clean_run(series, run, config)[0])
    return joined_in_time(parts, config)


def reduce_again(site: SiteData, basis: Basis | None, config: Config) -> Iterator[tuple[str, Data]]:
    """Read every accepted subject again; yield label and Y_m (d, T_m) of all that are listed.

    DataError E161 as above.
    """
    passed = {subject.label: subject for subject in site.subjects}
    for label in site.listed:
        if label not in passed:
            yield label, _no_time_point(site, basis)
            continue
        yield label, project(subject_matrix(passed[label], site.space, config), basis)


# ------------------------------------------------------------------------------- conclude


def conclude(scan: SiteScan, working: Path | None = None) -> Inspection:
    """Return what a finished pass brought to light, after the checks of the site as a whole."""
    config, findings = scan.config, scan.findings
    check_equal_values([s for s in scan.shapes if s.name not in scan.copies], findings)
    space = scan.space
    if config.feature_space == "matrix" and space is None:
        space = _matrix_space(scan)
    # Without the mask nobody could be read: that all subjects fail would only hide the reason.
    if space is not None or config.feature_space == "matrix":
        judge_site(scan.subjects, scan.accepted, len(scan.listed), config, findings)
    needs = None
    in_memory = any(run.values is not None for files in scan.listed for run in files.runs)
    if space is not None and scan.accepted and not in_memory:
        n_basis = widest_basis(config, space)
        needs = estimate_resources(scan.accepted, space, n_basis, working)
        check_room(needs, findings)
    accepted, error = None, None
    try:
        findings.raise_if_blocked()
        if space is None:  # no file says how many features there are
            detail = "\n".join(finding.private for finding in findings.listing())
            raise DataError("E100", site=findings.site, detail=detail)
        accepted = _site_data(scan, space)
    except DataError as err:
        error = err
    return Inspection(
        subjects=tuple(scan.subjects),
        findings=findings.listing(),
        accepted=accepted,
        error=error,
        labels=tuple(files.label for files in scan.listed),
        needs=needs,
    )


def accepted_site(inspection: Inspection) -> SiteData:
    """Return the accepted subjects; DataError if the site must stop."""
    if inspection.accepted is None:
        raise inspection.error or DataError("E000")
    return inspection.accepted


def _site_data(scan: SiteScan, space: FeatureSpace) -> SiteData:
    # Without names: a renamed file is the same data, and the same people.
    digests = "\n".join(" ".join(subject.digests) for subject in scan.accepted)
    known = {subject.label: subject.digests for subject in scan.subjects}
    return SiteData(
        site=scan.findings.site,
        space=space,
        listed=tuple(files.label for files in scan.listed),
        subjects=tuple(scan.accepted),
        digests=tuple(known.get(files.label, ()) for files in scan.listed),
        findings=scan.findings.listing(),
        fingerprint=hashlib.sha256(digests.encode()).hexdigest(),
    )


def _matrix_space(scan: SiteScan) -> FeatureSpace | None:
    config = scan.config
    n_features = count_features(scan.shapes, config, scan.findings)
    if n_features == 0:
        return None
    check_feature_count(n_features, config, scan.findings)
    shape = parse_shape(config.image_shape) if config.image_shape else ()
    records = (run.path for files in scan.listed for run in files.runs if run.row >= 0)
    table = next(records, None)
    names = () if table is None else read_records(table).names
    names = names or column_names(scan.shapes, scan.findings)
    # Features of other files than most have fail with their subject.
    odd = {
        shape.name
        for shape in scan.shapes
        if shape.n_features != n_features or shape.columns not in ((), names)
    }
    scan.accepted[:] = [s for s in scan.accepted if not odd & {run.name for run in s.runs}]
    return FeatureSpace.of_matrix(n_features, shape, names)
