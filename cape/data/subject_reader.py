"""One subject of a site: all its runs read, cleaned and judged as files, one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from cape.algorithms.estimators import Data
from cape.config import Config
from cape.data.checks import RunShape, Subject, exclusion
from cape.data.files import RunFile, SubjectFiles
from cape.data.findings import Findings, Rejected
from cape.data.series import Series
from cape.data.signals import UNREAD, Quality, rank_of
from cape.data.space import Grid
from cape.data.subjects import n_dummy, preprocessed, read_run


class Reader(Protocol):
    """Reads one run as stored; raises `Rejected`, or OSError."""

    def __call__(
        self, run: RunFile, config: Config, grid: Grid | None, /, *, headers_only: bool = False
    ) -> Series:
        """Return the run."""


@dataclass(kw_only=True, slots=True)
class Pass:
    """One pass over all files of a site: what to read with, and what it came upon.

    Attributes
    ----------
    config : Config
        The owner's settings.
    grid : Grid or None
        Where the features lie; None for matrices, and where the space could not be read.
    findings : Findings
        Grows by what is wrong.
    shapes : list of RunShape
        Grows by every run that could be read.
    read : callable
        What reads a run: from its file, unless subjects are arrays in memory.
    """

    config: Config
    grid: Grid | None
    findings: Findings
    shapes: list[RunShape] = field(default_factory=list)
    read: Reader = read_run


def examine(files: SubjectFiles, state: Pass) -> tuple[Subject | None, list[Data]]:
    """Read all runs of a subject and note what is wrong.

    Returns
    -------
    subject : Subject or None
        None if it cannot be judged: a run cannot be read, or runs differ in their features.
    parts : list of ndarray, shape (D, T_run)
        Its cleaned runs, float32; empty if it cannot be judged.
    """
    parts: list[Data] = []
    read: list[Series] = []
    quality: Quality | None = None
    for run in files.runs:
        series = _read_noting(run, state)
        if series is None:
            continue
        state.shapes.append(_shape(run, series))
        cleaned, counts = preprocessed(series, run, state.config)
        quality = counts if quality is None else quality.joined(counts)
        parts.append(cleaned)
        read.append(replace(series, values=series.values[:0]))
    complete = len(read) == len(files.runs) and len({len(part) for part in parts}) == 1
    if quality is None or not complete or len(parts[0]) == 0:
        return None, []
    joined = np.concatenate(parts, axis=1)
    rank = rank_of(joined) if joined.size else 0
    return _subject(files, state, read, joined.shape, quality, rank), parts


def outline(files: SubjectFiles, state: Pass) -> Subject | None:
    """Return what headers and tables say of a subject; None if it cannot be judged.

    No data are looked at, so what only they tell is `UNREAD` or bounded.
    """
    read = []
    n_times = 0
    for run in files.runs:
        series = _read_noting(run, state, headers_only=True)
        if series is None:
            continue
        read.append(series)
        state.shapes.append(_shape(run, series))
        n_times += max(series.values.shape[1] - n_dummy(run, state.config), 0)
    if len(read) < len(files.runs) or len({len(series.values) for series in read}) != 1:
        return None
    n_features = len(read[0].values)
    if n_features == 0:
        return None
    return _subject(files, state, read, (n_features, n_times), UNREAD, min(n_features, n_times))


def _subject(
    files: SubjectFiles,
    state: Pass,
    read: Sequence[Series],
    shape: tuple[int, ...],
    quality: Quality,
    rank: int,
) -> Subject:
    return Subject(
        label=files.label,
        site=state.findings.site,
        runs=files.runs,
        digests=tuple(series.digest for series in read),
        n_features=shape[0],
        n_timepoints=shape[1],
        trs=tuple(series.tr for series in read),
        quality=quality,
        rank=rank,
        grid=next((s.grid for s in read if s.grid != "ok"), read[0].grid),
    )


def _read_noting(run: RunFile, state: Pass, *, headers_only: bool = False) -> Series | None:
    """Return one run as stored, or None after noting why it cannot be used."""
    try:
        series = state.read(run, state.config, state.grid, headers_only=headers_only)
    except Rejected as verdict:
        if verdict.severity == "X":
            verdict.severity = exclusion(state.config)
        state.findings.reject(verdict, run.name)
        return None
    except OSError as err:
        state.findings.add(
            1, "E", "A file cannot be read", f"{run.name}: {err.strerror}",
            expected="a file that this user may read", fix="correct its permissions",
        )  # fmt: skip
        return None
    for note in series.notes:
        state.findings.add(
            note.row, "W", note.what, f"{run.name}: {note.found}",
            expected=note.expected, fix=note.fix,
        )  # fmt: skip
    return series


def _shape(run: RunFile, series: Series) -> RunShape:
    n_features, n_times = series.values.shape
    digest = ""
    if series.digest:
        # Two people may well have given the same answers: a row of a table counts as its own.
        values = f"{run.name} {run.row}".encode() if run.row >= 0 else series.values.tobytes()
        digest = hashlib.sha256(values).hexdigest()
    return RunShape(
        name=run.name, n_features=n_features, n_timepoints=n_times, values_digest=digest,
        columns=series.columns,
    )  # fmt: skip
