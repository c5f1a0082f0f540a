"""One run read, checked and cleaned; the same files give the same bits, so it can be made again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.config import Config, confound_columns
from cape.data.cifti import read_series
from cape.data.cleaning import DEGREES, Quality, clean, nuisance, regressors
from cape.data.images import Resampling, read_image, read_image_header
from cape.data.issues import IssueCode, UnusableFile
from cape.data.matrices import read_matrix, read_matrix_header
from cape.data.runs import RunFile, Series
from cape.data.space import Grid
from cape.data.tables import read_confounds, read_records
from cape.feature_space import FeatureSpace

# Time points that regression must leave over.
LEAST_FREEDOM: Final = 3


def read_run(
    run: RunFile, config: Config, grid: Grid | FeatureSpace | None, *, headers_only: bool = False
) -> Series:
    """Return a run as stored with its confounds; UnusableFile, or OSError if it cannot be read."""
    if run.row >= 0:
        return _read_record(run)
    if run.values is not None:
        series = _read_array(run, config)
    elif config.feature_space == "matrix":
        read = read_matrix_header if headers_only else read_matrix
        series = read(run, config.orientation, config.variable)
    elif isinstance(grid, FeatureSpace):
        series = read_series(run, grid, headers_only=headers_only)
    else:
        how = Resampling(smoothing_fwhm=config.smoothing_fwhm, resample=config.resample)
        series = (read_image_header if headers_only else read_image)(run, grid, how)
    if columns := confound_columns(config.confounds):
        series = _with_confounds(series, run, config, columns)
    if (config.high_pass or config.low_pass) and not (series.tr or config.tr):
        observed = "sought in the manifest, the JSON sidecar and the header"
        raise UnusableFile(IssueCode.TR_NEEDED, observed)
    # Before anything is cleaned: a run without freedom would come out as zeros, not as an error.
    _check_freedom(series, run, config)
    return series


def _read_record(run: RunFile) -> Series:
    table = read_records(run.path)
    if problem := table.problems.get(run.row):
        raise UnusableFile(problem.code, problem.observed, **problem.values)
    row = table.values[run.row]
    # Of the row, not of the file: a row more must not make other people of the ones before.
    content = json.dumps(table.names).encode() + row.astype("<f4").tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return Series(values=row[:, None].copy(), tr=0.0, digest=digest, grid="-")


def _read_array(run: RunFile, config: Config) -> Series:
    with np.errstate(over="ignore"):  # past float32 is infinite, and counted as such
        values = np.array(run.values, dtype=np.float32)  # a copy: it is cleaned in place
    return Series(values=values, tr=config.tr, digest=run.name, grid="-")


def _with_confounds(
    series: Series, run: RunFile, config: Config, columns: tuple[str, ...]
) -> Series:
    if run.confounds is None:
        beside = "beside the file as *_desc-confounds_timeseries.tsv"
        observed = f"sought in column 'confounds' of the manifest and {beside}"
        raise UnusableFile(IssueCode.CONFOUNDS_MISSING, observed, columns=", ".join(columns))
    issues = list(series.issues)
    table, digest = read_confounds(run.confounds, columns, issues)
    n_times, n_dummy = series.values.shape[1], dummies(run, config)
    if len(table) != n_times:
        rest = f"({n_times - n_dummy} after dropping {n_dummy} dummies)"
        observed = f"{run.confounds.name}: {len(table)} rows, {n_times} volumes {rest}"
        raise UnusableFile(IssueCode.CONFOUND_ROWS, observed)
    # The digest covers the table, so that a changed one is noticed as other content.
    both = series.digest and f"{series.digest}+{digest}"
    return replace(series, confounds=table, digest=both, issues=tuple(issues))


def _check_freedom(series: Series, run: RunFile, config: Config) -> None:
    n_times = max(series.values.shape[1] - dummies(run, config), 0)
    others = _nuisance(series, run, config)
    degree = DEGREES[config.cleaning.detrend]
    removed = regressors(n_times, degree=degree, others=others).shape[1] if others.shape[1] else 0
    if removed and n_times - removed < LEAST_FREEDOM:
        observed = f"{removed} signals are regressed out of {n_times} time points"
        raise UnusableFile(IssueCode.NOTHING_LEFT, observed, least=LEAST_FREEDOM)


def _nuisance(series: Series, run: RunFile, config: Config) -> Array:
    n_times = series.values.shape[1]
    tr = series.tr or config.tr
    return nuisance(n_times, dummies(run, config), config, tr, series.confounds)


def clean_run(series: Series, run: RunFile, config: Config) -> tuple[Data, Quality]:
    """Return the preprocessed run (D, T), in the memory of `series`; and the counts for checks."""
    others = _nuisance(series, run, config)
    n_dummy = dummies(run, config)
    # A run may be half of the memory that a site has.
    return clean(series.values, n_dummy, config, others if others.shape[1] else None, in_place=True)


def dummies(run: RunFile, config: Config) -> int:
    """First volumes to drop: the owner's number and the manifest's."""
    return config.drop_first_volumes + run.n_dummy
