"""One accepted subject as a matrix, and in the coordinates of the public basis.

Nothing here mixes subjects: no group mean, no scale from several people.  The same files give the
same bits, so that a site that lost its working files can make them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.config import Config, confound_columns
from cape.data.checks import Subject
from cape.data.confounds import check_length, read_confounds
from cape.data.files import RunFile
from cape.data.findings import Rejected
from cape.data.images import read_image, read_image_header
from cape.data.matrices import read_matrix, read_matrix_header
from cape.data.records import read_record
from cape.data.series import Series
from cape.data.signals import DEGREES, Quality, clean, nuisance, regressors
from cape.data.space import Grid, grid_of
from cape.data.volumes import Resampling
from cape.errors import DataError
from cape.feature_space import FeatureSpace

ROWS = 8192
"""Rows of a subject that are projected at a time: 8192 x 400 doubles are 26 MB."""


LEAST_FREEDOM = 3
"""Row 64: time points that regression must leave over."""


def read_run(
    run: RunFile, config: Config, grid: Grid | None, *, headers_only: bool = False
) -> Series:
    """Return one run as stored with its confounds; raises `Rejected`.

    The digest covers the confound table if it is used, so that a changed one is found.  Of headers
    only, values are `cape.data.series.unread`: their shape, not their content.
    """
    if run.row >= 0:
        return read_record(run)
    if config.feature_space == "matrix":
        read = read_matrix_header if headers_only else read_matrix
        series = read(run, config.orientation, config.variable)
    else:
        how = Resampling(smoothing_fwhm=config.smoothing_fwhm, to_mask=config.resample == "to_mask")
        series = (read_image_header if headers_only else read_image)(run, grid, how)
    return with_signals(series, run, config)


def with_signals(series: Series, run: RunFile, config: Config) -> Series:
    """Return a run as stored with its confounds, if it can be filtered; raises `Rejected`."""
    if columns := confound_columns(config.confounds):
        series = _with_confounds(series, run, config, columns)
    if (config.high_pass or config.low_pass) and not (series.tr or config.tr):
        raise Rejected(
            32, "The repetition time is not known, but a filter needs it",
            found="sought in the manifest, the JSON sidecar and the header",
            expected="seconds", fix="write it into column 'tr' of the manifest",
        )  # fmt: skip
    _check_freedom(series, run, config)
    return series


def _with_confounds(
    series: Series, run: RunFile, config: Config, columns: tuple[str, ...]
) -> Series:
    if run.confounds is None:
        raise Rejected(
            37, "A run has no confound table, but confounds are to be regressed out",
            found="sought in column 'confounds' of the manifest and beside the file as "
            "*_desc-confounds_timeseries.tsv",
            expected=f"a table with {', '.join(columns)}",
            fix="name it in the manifest, or ask the owner for confounds = none",
        )  # fmt: skip
    notes = list(series.notes)
    table, digest = read_confounds(run.confounds, columns, notes)
    n_times = series.values.shape[1]
    check_length(table, n_times, n_dummy(run, config), run.confounds.name)
    both = series.digest and f"{series.digest}+{digest}"
    return replace(series, confounds=table, digest=both, notes=tuple(notes))


def _check_freedom(series: Series, run: RunFile, config: Config) -> None:
    """Raise row 64 if confounds and filters would leave nothing of a run."""
    n_times = max(series.values.shape[1] - n_dummy(run, config), 0)
    others = _nuisance(series, run, config)
    degree = DEGREES[config.detrend]
    removed = regressors(n_times, degree=degree, others=others).shape[1] if others.shape[1] else 0
    if removed and n_times - removed < LEAST_FREEDOM:
        raise Rejected(
            64, "Confounds and filters remove all of a run",
            found=f"{removed} signals are regressed out of {n_times} time points",
            expected=f"at least {LEAST_FREEDOM} time points more than signals",
            fix="use fewer confounds or a wider pass band (the owner), or leave the run out",
            severity="X",
        )  # fmt: skip


def _nuisance(series: Series, run: RunFile, config: Config) -> Array:
    n_times = series.values.shape[1]
    tr = series.tr or config.tr
    return nuisance(n_times, n_dummy(run, config), config, tr, series.confounds)


def preprocessed(series: Series, run: RunFile, config: Config) -> tuple[Data, Quality]:
    """Return the preprocessed run, shape (D, T), and the counts behind its checks."""
    others = _nuisance(series, run, config)
    return clean(series.values, n_dummy(run, config), config, others if others.shape[1] else None)


def n_dummy(run: RunFile, config: Config) -> int:
    """Return the volumes to drop."""
    return config.drop_first_volumes + run.n_dummy


def subject_matrix(subject: Subject, space: FeatureSpace, config: Config) -> Data:
    """Return the preprocessed data of one subject, all runs joined in time.

    Parameters
    ----------
    subject : Subject
        Accepted by `load_site`.
    space : FeatureSpace
        Of the run.
    config : Config
        The owner's settings.

    Returns
    -------
    X_m : ndarray, shape (D, T_m)
        float32; every row has mean 0 over each run.

    Raises
    ------
    DataError
        CAPE-E161: the files are not those that were accepted.
    """
    grid = None if space.kind == "matrix" else grid_of(space)
    parts = []
    for run, digest in zip(subject.runs, subject.digests, strict=True):
        try:
            series = read_run(run, config, grid)
        except (Rejected, OSError) as err:
            raise DataError("E161", site=subject.site, detail=f"{run.name}: {err}") from err
        if series.digest != digest:
            raise DataError("E161", site=subject.site, detail=f"{run.name}: other content")
        parts.append(preprocessed(series, run, config)[0])
    return joined_in_time(parts, config)


def joined_in_time(parts: Sequence[Data], config: Config) -> Data:
    """Return preprocessed runs of one subject as X_m (D, T_m), at most `max_timepoints` long."""
    joined = np.concatenate(parts, axis=1)
    if config.max_timepoints and joined.shape[1] > config.max_timepoints:
        cut = joined[:, : config.max_timepoints]
        joined = np.ascontiguousarray(cut - cut.mean(axis=1, keepdims=True, dtype=np.float64))
    return joined.astype(np.float32, copy=False)


def project(values: Data, basis: Array | None) -> Data:
    """Return ``B' X``, shape (d, T), float32; `values` is X (D, T), None the identity."""
    if basis is None:
        return values
    if basis.shape[0] != values.shape[0]:
        raise ValueError(f"basis has {basis.shape[0]} rows, the data have {values.shape[0]}")
    total = np.zeros((basis.shape[1], values.shape[1]))
    for first in range(0, values.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        total += basis[rows].T @ values[rows].astype(np.float64)
    return total.astype(np.float32)
