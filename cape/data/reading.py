"""One run with the signals to regress out of it; the same files give the same bits."""

import hashlib
import importlib.util
import json
import re
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.counting import number_of
from cape.data.cifti import read_series
from cape.data.cleaning import design, nuisance
from cape.data.file_type import MATRIX_SUFFIXES, suffix_of
from cape.data.folders import PARTICIPANTS
from cape.data.images import Resampling, read_image
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.label_table import read_label_table
from cape.data.matrices import read_matrix
from cape.data.runs import Kept, Series, SiteRun
from cape.data.space import LABEL_TABLES, grid_of
from cape.data.tables import read_confounds, read_records
from cape.errors import ConfigError
from cape.settings.resolved import Reading
from cape.settings.words import parse_strategy
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
        shape = repr(values.shape).encode()
        digest = run.values_of or hashlib.sha256(shape + values.tobytes()).hexdigest()
        return Series(values=values, tr=how.tr, digest=digest, grid="-")
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


# -- tables of regions ---------------------------------------------------------------------------
# A column is found by number, by its name in the label table beside the atlas, or, in a matrix
# without names, in the order of rising labels.  A column without a label is ignored; a label
# without a column fails its run.


def in_order_of_labels(series: Series, space: FeatureSpace | None, run: SiteRun) -> Series:
    """Return a table of regions (columns, T) as the parcels of `space` (D, T), or UnusableFile."""
    if space is None:
        return replace(series, values=series.values[:0], columns=())
    image = space.labels()
    labels: list[int] = np.unique(image[image > 0]).tolist()
    if not series.columns:
        if len(series.values) != len(labels):
            observed = f"{number_of(len(series.values), 'column')} without names"
            raise UnusableFile(IssueCode.FEATURES_DIFFER, observed, n_features=len(labels))
        return series
    digest, table = series.digest, _label_table(run)
    if all(name.isdecimal() and name.isascii() for name in series.columns):
        column = {int(name): k for k, name in enumerate(series.columns)}
    else:
        named = {} if table is None else _labels_by_name(table)
        at = ((named.get(name.strip().lower()), k) for k, name in enumerate(series.columns))
        column = {label: k for label, k in at if label is not None}
        if table is not None and digest:
            digest = f"{digest}+{hashlib.sha256(table.read_bytes()).hexdigest()}"
    missing = [label for label in labels if label not in column]
    if len(missing) == len(labels):
        raise _unnamed(series.columns, labels, table)
    if missing:
        observed = f"no column of label {missing[0]} ({len(missing)} of {len(labels)})"
        raise UnusableFile(IssueCode.FEATURES_DIFFER, observed, n_features=len(labels))
    rows = [column[label] for label in labels]
    values = np.require(series.values[rows], np.float32, ["C", "W"])
    return replace(series, values=values, digest=digest, columns=())


def _label_table(run: SiteRun) -> Path | None:
    """Return the label table beside a run, or in the site's folder, where the atlas lies."""
    folders = [run.path.parent]
    if run.path.as_posix().endswith(f"/{run.name}"):
        folders.append(run.path.parents[run.name.count("/")])
    tables = (folder / name for folder in folders for name in LABEL_TABLES)
    return next((table for table in tables if table.is_file()), None)


def _labels_by_name(table: Path) -> dict[str, int]:
    try:
        return {name.strip().lower(): label for label, name in read_label_table(table).items()}
    except ConfigError as err:
        first = table.name
        raise UnusableFile(IssueCode.COLUMNS_DIFFER, str(err), wanted="", first=first) from err


def _unnamed(columns: tuple[str, ...], labels: list[int], table: Path | None) -> UnusableFile:
    wanted = f"numbers of labels, {labels[0]} to {labels[-1]}"
    if table is None:
        wanted += f" (there is no {LABEL_TABLES[0]} beside the atlas that names them)"
    else:
        name = next(iter(read_label_table(table).values()))
        wanted += f", or names of {table.name} such as '{name[:20]}'"
    observed = f"{number_of(len(columns), 'column')} such as '{columns[0][:20]}'"
    return UnusableFile(IssueCode.PARCELS_UNNAMED, observed, wanted=wanted)


# -- strategies of nilearn -----------------------------------------------------------------------
# Ciric et al. 2017, NeuroImage 154; which columns of fMRIPrep's tables a strategy means is
# nilearn's.  It is imported only where a run is read.

# Letters of a message of nilearn that are shown
MAX_MESSAGE_LETTERS: Final = 200
# Its warnings are ignored, and warning filters belong to the process, not to a thread.
_ONE_AT_A_TIME: Final = threading.Lock()


def has_nilearn() -> bool:
    return importlib.util.find_spec("nilearn") is not None


def strategy_confounds(image: Path, how: Reading, n_times: int) -> tuple[Array, Kept, str]:
    """Return signals to regress out of a run (T, K), volumes that stay (T,), and their SHA-256.

    K may be 0.  UnusableFile if nilearn finds no table.
    """
    asked = parse_strategy(how.strategy)
    options: dict[str, Any] = {
        name: int(value) if value.isdecimal() else value for name, value in asked.items() if value
    }
    options |= {
        "fd_threshold": how.fd_threshold,
        "std_dvars_threshold": how.dvars_threshold,
        "demean": False,  # the intercept of our own least squares does it
    }
    strategy = [name for name in asked if name not in ("n_compcor", "non_steady_state")]
    try:
        with _ONE_AT_A_TIME, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from nilearn.interfaces.fmriprep import load_confounds

            # It finds the tables by this name, and only for compressed images.
            name = str(image) + (".gz" if image.name.endswith("_bold.nii") else "")
            table, sample_mask = load_confounds(name, tuple(strategy), **options)
    except Exception as err:  # nilearn and pandas raise various errors
        observed = _observed(err)
        raise UnusableFile(IssueCode.CONFOUND_STRATEGY, observed, strategy=how.strategy) from err
    empty = table is None or not table.shape[1]
    # nilearn takes what there is of this part, even nothing.
    if "high_pass" in asked and (empty or not any(c.startswith("cosine") for c in table.columns)):
        observed = "the table has no columns of high_pass (cosine00, cosine01, ...)"
        raise UnusableFile(IssueCode.CONFOUND_STRATEGY, observed, strategy=how.strategy)
    if not empty:
        if len(table) != n_times:
            observed = f"{len(table)} rows, {n_times} volumes"
            raise UnusableFile(IssueCode.CONFOUND_ROWS, observed)
        # nilearn takes names from sets, whose order differs between processes.
        table = table[sorted(table.columns)]
    values = np.zeros((n_times, 0)) if empty else table.to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        column = str(table.columns[int(np.flatnonzero(~np.isfinite(values).all(axis=0))[0])])
        raise UnusableFile(IssueCode.CONFOUND_CELL, f"column {column}")
    kept = np.ones(n_times, dtype=bool)
    if sample_mask is not None:
        kept[:] = False
        kept[np.asarray(sample_mask, dtype=np.intp)] = True
    digest = hashlib.sha256(np.ascontiguousarray(values).tobytes() + kept.tobytes()).hexdigest()
    return values, kept, digest


def _observed(err: Exception) -> str:
    """Return what nilearn misses, in our words where it lists columns."""
    text = " ".join(str(err).split())
    if missing := re.search(r"are missing:(.*?\].*?\])", text):
        columns = re.findall(r"'([^']+)'", missing[1])
        return f"the table has no columns of {', '.join(columns)}"
    return f"{text[:MAX_MESSAGE_LETTERS]} ..." if len(text) > MAX_MESSAGE_LETTERS else text
