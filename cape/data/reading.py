"""One run read, checked and cleaned; the same files give the same bits, so it can be made again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.data.cifti import read_series, read_series_header
from cape.data.cleaning import Quality, clean, design, nuisance
from cape.data.images import Resampling, read_image, read_image_header
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.matrices import read_matrix, read_matrix_header
from cape.data.runs import Kept, RunFile, Series
from cape.data.space import Grid
from cape.data.strategies import strategy_confounds
from cape.data.tables import read_confounds, read_records
from cape.settings.resolved import Reading
from cape.space.feature_space import FeatureSpace

DISPLACEMENT: Final = "framewise_displacement"
# Time points that regression must leave over.
LEAST_FREEDOM: Final = 3


def read_run(
    run: RunFile, how: Reading, grid: Grid | FeatureSpace | None, *, headers_only: bool = False
) -> Series:
    """Return a run as stored with its confounds; UnusableFile, or OSError if it cannot be read."""
    if run.row >= 0:
        return _read_record(run)
    if run.values is not None:
        series = _read_array(run, how)
    elif how.feature_space == "matrix":
        read = read_matrix_header if headers_only else read_matrix
        series = read(run, how.orientation, how.variable)
    elif isinstance(grid, FeatureSpace):
        series = read_series(run, grid, headers_only=headers_only)
    elif how.of_cifti:  # no structure, hence no feature: what can be said without
        series = read_series_header(run)
        series = replace(series, values=series.values[:0])
    else:
        to = Resampling(smoothing_fwhm=how.smoothing_fwhm, resample=how.resample)
        series = (read_image_header if headers_only else read_image)(run, grid, to)
    if how.confounds:
        series = _with_confounds(series, run, how)
    if how.strategy:
        series = _with_strategy(series, run, how)
    series = replace(series, mean_fd=_mean_fd(run, required=how.needs_motion))
    if how.needs_tr and not (series.tr or how.tr):
        observed = "sought in the manifest, the JSON sidecar and the header"
        raise UnusableFile(IssueCode.TR_NEEDED, observed)
    # Before anything is cleaned: a run without freedom would come out as zeros, not as an error.
    return _with_freedom(series, run, how)


def _read_record(run: RunFile) -> Series:
    table = read_records(run.path)
    if problem := table.problems.get(run.row):
        raise UnusableFile(problem.code, problem.observed, **problem.values)
    row = table.values[run.row]
    # Of the row, not of the file: a row more must not make other people of the ones before.
    content = json.dumps(table.names).encode() + row.astype("<f4").tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return Series(values=row[:, None].copy(), tr=0.0, digest=digest, grid="-")


def _read_array(run: RunFile, how: Reading) -> Series:
    with np.errstate(over="ignore"):  # past float32 is infinite, and counted as such
        values = np.array(run.values, dtype=np.float32)  # a copy: it is cleaned in place
    return Series(values=values, tr=how.tr, digest=run.name, grid="-")


def _with_confounds(series: Series, run: RunFile, how: Reading) -> Series:
    if run.confounds is None:
        beside = "beside the file as *_desc-confounds_timeseries.tsv"
        observed = f"sought in column 'confounds' of the manifest and {beside}"
        raise UnusableFile(IssueCode.CONFOUNDS_MISSING, observed, columns=", ".join(how.confounds))
    issues = list(series.issues)
    table, digest = read_confounds(run.confounds, how.confounds, issues)
    n_times, n_dummy = series.values.shape[1], dummies(run, how)
    if len(table) != n_times:
        rest = f"({n_times - n_dummy} after dropping {n_dummy} dummies)"
        observed = f"{run.confounds.name}: {len(table)} rows, {n_times} volumes {rest}"
        raise UnusableFile(IssueCode.CONFOUND_ROWS, observed)
    # The digest covers the table, so that a changed one is noticed as other content.
    both = series.digest and f"{series.digest}+{digest}"
    return replace(series, confounds=table, digest=both, issues=tuple(issues))


def _with_strategy(series: Series, run: RunFile, how: Reading) -> Series:
    n_times = series.values.shape[1]
    found = strategy_confounds(run.path, how, n_times)
    # As many columns as the owner named by hand come first.
    own = np.zeros((n_times, 0)) if series.confounds is None else series.confounds
    every = np.concatenate([own, found.values], axis=1)
    both = series.digest and f"{series.digest}+{found.digest}"
    kept = None if found.kept.all() else found.kept
    return replace(series, confounds=every, kept=kept, digest=both)


def _mean_fd(run: RunFile, *, required: bool) -> float | None:
    """Return the mean over all stored volumes but the first, which has none, mm."""
    if run.confounds is None:
        if required:
            observed = "sought beside the file as *_desc-confounds_timeseries.tsv"
            raise UnusableFile(IssueCode.CONFOUNDS_MISSING, observed, columns=DISPLACEMENT)
        return None
    try:
        table, _ = read_confounds(run.confounds, (DISPLACEMENT,), [])
    except (UnusableFile, OSError):
        if required:
            raise
        return None
    return float(table[1:].mean()) if len(table) > 1 else 0.0


def _with_freedom(series: Series, run: RunFile, how: Reading) -> Series:
    """Return the series, without volumes if scrubbing left too few; else raise UnusableFile."""
    n_times = max(series.values.shape[1] - dummies(run, how), 0)
    others = _nuisance(series, run, how)
    kept = _kept(series, run, how)
    n_left = n_times if kept is None else int(kept.sum())
    removed = 0
    if others.shape[1]:
        removed = design(others, n_times if kept is None else kept, how.cleaning).shape[1]
    if kept is not None and n_left - removed < LEAST_FREEDOM:
        observed = f"{n_left} of {n_times} volumes are kept, {removed} signals are regressed out"
        issues = (*series.issues, Issue(IssueCode.RUN_SCRUBBED, observed))
        return replace(series, kept=np.zeros(series.values.shape[1], dtype=bool), issues=issues)
    if removed and n_left - removed < LEAST_FREEDOM:
        observed = f"{removed} signals are regressed out of {n_times} time points"
        raise UnusableFile(IssueCode.NOTHING_LEFT, observed, least=LEAST_FREEDOM)
    return series


def _kept(series: Series, run: RunFile, how: Reading) -> Kept | None:
    """Return which volumes stay of those that are no dummies."""
    return None if series.kept is None else series.kept[dummies(run, how) :]


def volumes_left(series: Series, run: RunFile, how: Reading) -> tuple[int, int]:
    """Return volumes without dummies, and those that scrubbing leaves of them."""
    n_times, kept = series.values.shape[1], _kept(series, run, how)
    stored = max(n_times - dummies(run, how), 0)
    return stored, stored if kept is None else int(kept.sum())


def _nuisance(series: Series, run: RunFile, how: Reading) -> Array:
    n_times = series.values.shape[1]
    tr = series.tr or how.tr
    return nuisance(n_times, dummies(run, how), how, tr, series.confounds)


def clean_run(series: Series, run: RunFile, how: Reading) -> tuple[Data, Quality]:
    """Return the preprocessed run (D, T), in the memory of `series`; and the counts for checks."""
    others = _nuisance(series, run, how)
    n_dummy = dummies(run, how)
    # A run may be half of the memory that a site has.
    others_or_none = others if others.shape[1] else None
    kept = _kept(series, run, how)
    return clean(series.values, n_dummy, how.cleaning, others_or_none, kept=kept, in_place=True)


def dummies(run: RunFile, how: Reading) -> int:
    """First volumes to drop: the owner's number and the manifest's."""
    return how.drop_first_volumes + run.n_dummy
