"""One accepted subject as a matrix, and in the coordinates of the public basis.

Nothing here mixes subjects: no group mean, no scale from several people.  The same files give the
same bits, so that a site that lost its working files can make them again.
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.config import Config
from cape.data.checks import Subject
from cape.data.files import RunFile
from cape.data.findings import Rejected
from cape.data.images import read_image
from cape.data.matrices import read_matrix
from cape.data.series import Series
from cape.data.signals import clean
from cape.data.space import Grid, grid_of
from cape.errors import DataError
from cape.messages import FeatureSpace

ROWS = 8192
"""Rows of a subject that are projected at a time: 8192 x 400 doubles are 26 MB."""


def read_run(run: RunFile, config: Config, grid: Grid | None) -> Series:
    """Return one run as stored; raises `Rejected`."""
    if config.feature_space == "matrix":
        return read_matrix(run, config.orientation)
    return read_image(run, grid)


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
        parts.append(clean(series.values, n_dummy(run, config), config)[0])
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
