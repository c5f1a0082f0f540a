"""One run with the signals to regress out of it; the same files give the same bits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.cifti import read_series
from cape.data.cleaning import design, nuisance
from cape.data.file_type import MATRIX_SUFFIXES, suffix_of
from cape.data.folders import PARTICIPANTS
from cape.data.images import Resampling, read_image
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.matrices import read_matrix
from cape.data.parcels import in_order_of_labels
from cape.data.runs import Series, SiteRun
from cape.data.space import grid_of
from cape.data.strategies import strategy_confounds
from cape.data.tables import read_confounds, read_records
from cape.settings.resolved import Reading
from cape.space.feature_space import FeatureSpace

DISPLACEMENT: Final = "framewise_displacement"
# Degrees of freedom that regression must leave.
MIN_FREEDOM: Final = 3


def read_run(
    run: SiteRun, how: Reading, space: FeatureSpace | None, *, headers_only: bool = False
) -> Series:
    """Return a run as stored, with the signals to regress out; UnusableFile, or OSError.

    Without a `space` (the mask cannot be read) images and CIFTI files have no features.
    """
    n_dummy = how.drop_first_volumes + run.n_dummy
    if run.row >= 0:
        return replace(_read_record(run), n_dummy=n_dummy)
    series = _stored(run, how, space, headers_only=headers_only)
    n_times, kept, issues = series.values.shape[1], None, list(series.issues)
    confounds = np.zeros((n_times, 0))
    if how.confounds:
        confounds, digest = _confounds(run, how.confounds, n_times, n_dummy, issues)
        # The digest covers the table, so that a changed one counts as other content.
        series = replace(series, digest=_both(series.digest, digest), issues=tuple(issues))
    if run.signals is not None:
        if len(run.signals) != n_times:
            observed = f"{len(run.signals)} rows, {n_times} volumes"
            raise UnusableFile(IssueCode.CONFOUND_ROWS, observed)
        confounds = np.concatenate([confounds, run.signals], axis=1)
    if how.strategy:
        try:
            signals, stay, digest = strategy_confounds(run.path, how, n_times)
        except UnusableFile as err:
            if run.confounds is None:
                raise _no_table(run, f"what {how.strategy} needs") from err
            raise
        # Columns that the owner named come first.
        confounds = np.concatenate([confounds, signals], axis=1)
        kept = None if stay.all() else stay[n_dummy:]
        series = replace(series, digest=_both(series.digest, digest))
    mean_fd = _mean_fd(run, n_times, n_dummy, required=how.needs_motion)
    tr = series.tr or how.tr
    if how.needs_tr and not tr:
        observed = "sought in the manifest, the JSON sidecar and the header"
        raise UnusableFile(IssueCode.TR_NEEDED, observed)
    others = nuisance(confounds, n_dummy, how, tr)
    series = replace(
        series,
        n_dummy=n_dummy,
        others=others if others.shape[1] else None,
        kept=kept,
        mean_fd=mean_fd,
    )
    # Checked before cleaning, which would turn a run without freedom into zeros.
    return _with_freedom(series, how)


def _stored(
    run: SiteRun, how: Reading, space: FeatureSpace | None, *, headers_only: bool
) -> Series:
    if run.values is not None:
        with np.errstate(over="ignore"):  # values beyond float32 become infinite and count as such
            values = np.array(run.values, dtype=np.float32)  # a copy: it is cleaned in place
        return Series(values=values, tr=how.tr, digest=run.name, grid="-")
    if how.feature_space == "matrix":
        return read_matrix(run, how.orientation, how.variable, headers_only=headers_only)
    if how.feature_space == "atlas" and suffix_of(run.path.name) in MATRIX_SUFFIXES:
        series = read_matrix(run, how.orientation, how.variable)
        return in_order_of_labels(series, space, run)
    if how.of_cifti:
        series = read_series(run, space, headers_only=headers_only or space is None)
        return series if space is not None else replace(series, values=series.values[:0])
    to = Resampling(smoothing_fwhm=how.smoothing_fwhm, resample=how.resample)
    grid = None if space is None else grid_of(space)
    return read_image(run, grid, to, headers_only=headers_only)


def _both(digest: str, of_table: str) -> str:
    return digest and f"{digest}+{of_table}"


def _read_record(run: SiteRun) -> Series:
    table = read_records(run.path)
    if problem := table.problems.get(run.row):
        raise problem.verdict()
    row = table.values[run.row]
    # By row, not by file: a further row must not change the digests of the others.
    content = json.dumps(table.names).encode() + row.astype("<f4").tobytes()
    digest = hashlib.sha256(content).hexdigest()
    return Series(values=row[:, None].copy(), tr=0.0, digest=digest, grid="-")


def _confounds(
    run: SiteRun, columns: tuple[str, ...], n_times: int, n_dummy: int, issues: list[Issue]
) -> tuple[Array, str]:
    """Return columns (T, K) of the table of a run, and its SHA-256."""
    if run.confounds is None:
        raise _no_table(run, ", ".join(columns))
    table, digest = read_confounds(run.confounds, columns, issues)
    if len(table) != n_times:
        rest = f"({n_times - n_dummy} after dropping {n_dummy} dummies)"
        observed = f"{run.confounds.name}: {len(table)} rows, {n_times} volumes {rest}"
        raise UnusableFile(IssueCode.CONFOUND_ROWS, observed)
    return table, digest


def _no_table(run: SiteRun, columns: str) -> UnusableFile:
    mark = f"{run.mark or 1} into column exclude of {PARTICIPANTS} for {run.person}"
    observed = f"to leave it out, write {mark}"
    return UnusableFile(IssueCode.CONFOUNDS_MISSING, observed, columns=columns)


def _mean_fd(run: SiteRun, n_times: int, n_dummy: int, *, required: bool) -> float | None:
    """Return mean framewise displacement, mm, without the first volume, which has none."""
    try:
        table, _ = _confounds(run, (DISPLACEMENT,), n_times, n_dummy, [])
    except (UnusableFile, OSError):
        if required:
            raise
        return None
    return float(table[1:].mean()) if len(table) > 1 else 0.0


def _with_freedom(series: Series, how: Reading) -> Series:
    """Return the series, without volumes if scrubbing left too few; else raise UnusableFile."""
    n_times, kept, removed = series.n_times, series.kept, 0
    if series.others is not None:
        within = n_times if kept is None else kept
        removed = design(series.others, within, how.cleaning).shape[1]
    if kept is not None and series.n_kept - removed < MIN_FREEDOM:
        observed = (
            f"{series.n_kept} of {n_times} volumes are kept, {removed} signals are regressed out"
        )
        issues = (*series.issues, Issue(IssueCode.RUN_SCRUBBED, observed))
        return replace(series, kept=np.zeros_like(kept), issues=issues)
    if removed and n_times - removed < MIN_FREEDOM:
        observed = f"{removed} signals are regressed out of {n_times} time points"
        raise UnusableFile(IssueCode.NOTHING_LEFT, observed, least=MIN_FREEDOM)
    return series
