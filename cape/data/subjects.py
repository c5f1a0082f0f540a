"""One subject: its runs are read, checked, cleaned and joined in time."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cape.algorithms.estimators import Data
from cape.data.checks import RunShape, Subject
from cape.data.cleaning import UNREAD, clean, rank_of
from cape.data.copies import course_of
from cape.data.discovery import SiteListing
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.reading import read_run
from cape.data.runs import Person, Series, SiteRun, unread
from cape.errors import DataError, own_words
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import FeatureSpace

# Name of a run, an issue of it, and whether the issue makes it unusable.
Note = tuple[str, Issue, bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadSubject:
    """A subject after reading its runs, or why it cannot be judged (`subject` is None)."""

    subject: Subject | None = None
    shapes: tuple[RunShape, ...]
    notes: tuple[Note, ...]
    Y: Data | None = None  # (d, T_m); None if it was not asked for


def read_subject(
    files: Person, listing: SiteListing, *, headers_only: bool
) -> tuple[ReadSubject, list[Data]]:
    """Read and clean all runs of a subject; return it with its cleaned runs (D, T_run), float32.

    No subject and no runs if a run cannot be read or runs differ in their features.  With
    `headers_only` runs are `unread`, counts `UNREAD`, and the rank is its upper bound.
    """
    how = listing.how.reading
    parts: list[Data] = []
    read: list[Series] = []
    shapes: list[RunShape] = []
    notes: list[Note] = []
    quality = UNREAD
    # Go on after a bad run: the site learns of all faults in one pass.
    for run in files.runs:
        series = _read_noting(run, listing, notes, headers_only=headers_only)
        if series is None:
            continue
        shapes.append(_shape(files.label, run, series))
        if headers_only:
            part = unread(len(series.values), series.n_kept)
        else:
            part, counts = clean(series, how.cleaning)
            quality = quality.joined(counts)
        parts.append(part)
        # A copy: a view of no rows would hold the voxels of every run until the last is read.
        read.append(replace(series, values=series.values[:0].copy()))
    n_features = len(parts[0]) if parts else 0
    alike = len(read) == len(files.runs) and len({len(part) for part in parts}) == 1
    if not alike or n_features == 0:
        return ReadSubject(shapes=tuple(shapes), notes=tuple(notes)), []
    n_times = sum(part.shape[1] for part in parts)
    if n_times == 0:  # noted for the subject, not also for each run
        notes = [note for note in notes if note[1].code is not IssueCode.RUN_SCRUBBED]
    rank = min(n_features, n_times)
    if rank and not headers_only:
        rank = rank_of(_joined(parts))
    timed = all(series.tr or how.tr for series in read)
    subject = Subject(
        label=files.label,
        site=listing.site,
        runs=files.runs,
        digests=tuple(series.digest for series in read),
        n_features=n_features,
        n_timepoints=n_times,
        trs=tuple(series.tr for series in read),
        quality=quality,
        n_scrubbed=sum(series.n_times - series.n_kept for series in read),
        n_volumes=tuple(int(series.values.shape[1]) for series in read),
        left_out=_left_out(read),
        seconds=sum(series.n_kept * (series.tr or how.tr) for series in read) if timed else 0.0,
        mean_fd=_mean_fd(read),
        turned=tuple(dict.fromkeys(series.turned for series in read if series.turned)),
        rank=rank,
        grid=next((s.grid for s in read if s.grid != "ok"), read[0].grid),
    )
    return ReadSubject(subject=subject, shapes=tuple(shapes), notes=tuple(notes)), parts


def _left_out(read: Sequence[Series]) -> tuple[int, ...]:
    """Return positions of dummy and scrubbed volumes, counted over the joined runs."""
    kept = [np.ones(s.n_times, dtype=bool) if s.kept is None else s.kept for s in read]
    used = [np.pad(k, (s.values.shape[1] - len(k), 0)) for s, k in zip(read, kept, strict=True)]
    return tuple(np.flatnonzero(~np.concatenate(used)).tolist())


def _mean_fd(read: Sequence[Series]) -> float | None:
    """Return the mean over runs, weighted by volumes, mm; None if one is unknown."""
    means = [(s.mean_fd, s.n_times) for s in read if s.mean_fd is not None and s.n_times > 0]
    if not means or len(means) < len(read):
        return None
    return sum(mm * n for mm, n in means) / sum(n for _, n in means)


def _read_noting(
    run: SiteRun, listing: SiteListing, notes: list[Note], *, headers_only: bool
) -> Series | None:
    """Return one run as stored, or None after noting why it cannot be used."""
    try:
        series = read_run(run, listing.how.reading, listing.space, headers_only=headers_only)
    except UnusableFile as verdict:
        notes.append((run.name, verdict.issue, True))
        return None
    except OSError as err:
        notes.append((run.name, Issue(IssueCode.FILE_UNREADABLE, str(err.strerror)), True))
        return None
    notes.extend((run.name, issue, False) for issue in series.issues)
    return series


def _shape(person: str, run: SiteRun, series: Series) -> RunShape:
    n_features, n_times = series.values.shape
    digest = ""
    if series.digest:
        # Two people may give the same answers, so rows of a table are not compared.
        rows = f"{run.name} {run.row}".encode()
        values = rows if run.row >= 0 else np.ascontiguousarray(series.values).data
        digest = hashlib.sha256(values).hexdigest()
    return RunShape(
        name=run.name,
        person=person,
        n_features=n_features,
        n_timepoints=n_times,
        values_digest=digest,
        columns=series.columns,
        place=series.place,
        course=course_of(series.values) if series.digest and run.row < 0 else (),
    )


def _joined(parts: Sequence[Data]) -> Data:
    # A single run is not copied: it may take half of the memory of a site.
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def joined_in_time(parts: Sequence[Data], max_timepoints: int) -> Data:
    """Return preprocessed runs of one subject as X_m (D, T_m), at most `max_timepoints` if any."""
    joined = _joined(parts)
    if max_timepoints and joined.shape[1] > max_timepoints:
        # Centred again: the mean over the first time points is not that over all.
        cut = joined[:, :max_timepoints]
        joined = np.ascontiguousarray(cut - cut.mean(axis=1, keepdims=True, dtype=np.float64))
    return joined.astype(np.float32, copy=False)


def subject_matrix(subject: Subject, space: FeatureSpace, config: Config) -> Data:
    """Read an accepted subject again; return X_m (D, T_m), every row of mean 0 over each run.

    DataError CAPE-E161: the files are not those that were accepted.
    """
    parts, how = [], resolve(config).reading
    for run, digest in zip(subject.runs, subject.digests, strict=True):
        try:
            series = read_run(run, how, space)
        except (UnusableFile, OSError) as err:
            detail = f"{run.name}: {own_words(err, str(err))}"
            raise DataError("E161", site=subject.site, detail=detail) from err
        # Other data under the same name do not belong to the plan of this run.
        if series.digest != digest:
            raise DataError("E161", site=subject.site, detail=f"{run.name}: other content")
        parts.append(clean(series, how.cleaning)[0])
    return joined_in_time(parts, how.max_timepoints)
