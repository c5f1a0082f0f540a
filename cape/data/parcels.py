"""Tables of region series as the parcels of an atlas: the label of each column.

A column is found by number, by its name in the label table beside the atlas, or, in a matrix
without names, in the order of rising labels.  A column without a label is ignored; a label without
a column fails its run.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.counting import number_of
from cape.data.issues import IssueCode, UnusableFile
from cape.data.label_table import read_label_table
from cape.data.runs import Series, SiteRun
from cape.data.space import LABEL_TABLES
from cape.errors import ConfigError
from cape.space.feature_space import FeatureSpace


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
