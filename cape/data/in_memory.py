"""Subjects that are arrays in memory, under the checks and the preprocessing of files.

What needs a file is left out: names, grids, confound tables.  Nothing here mixes subjects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.config import Config
from cape.data.checks import judge, judge_site, same_values_twice
from cape.data.files import RunFile, SubjectFiles
from cape.data.findings import Finding, Findings
from cape.data.series import Series
from cape.data.space import Grid
from cape.data.subject_reader import Pass, Reader, examine
from cape.data.subjects import joined_in_time, preprocessed, with_signals
from cape.errors import DataError
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """The subjects of one site that may take part.

    Attributes
    ----------
    subjects : tuple of (str, ndarray)
        Label and array (D, T_m) as given.
    findings : tuple of Finding
        Warnings and exclusions; private.
    """

    subjects: tuple[tuple[str, Array], ...]
    findings: tuple[Finding, ...]


def accept(site: str, arrays: Sequence[Array], config: Config) -> Accepted:
    """Return the subjects of a site that pass the checks of files.

    Parameters
    ----------
    site : str
        Public id.
    arrays : sequence of ndarray
        Of every subject X_m (D, T_m).
    config : Config
        The owner's settings.

    Raises
    ------
    DataError
        As `cape.data.load_site`: too many subjects fail, or one does that must not be left out.
    """
    given = {f"sub-{m:03d}": X for m, X in enumerate(arrays, 1)}
    findings = Findings(site)
    state = Pass(config=config, grid=None, findings=findings, read=_reader(given))
    judged, accepted = [], []
    for label in given:
        subject, _ = examine(SubjectFiles(label=label, runs=(_run(label),)), state)
        if subject is not None:
            judged.append(subject)
            if judge(subject, config, findings):
                accepted.append(subject)
    same_values_twice(state.shapes, findings)
    judge_site(judged, accepted, len(given), config, findings)
    try:
        findings.raise_if_blocked()
    except DataError as err:
        err.add_note(err.detail)  # there is no site-error.txt, and who called has the data
        raise
    return Accepted(
        subjects=tuple((subject.label, given[subject.label]) for subject in accepted),
        findings=findings.listing(),
    )


def matrices(accepted: Accepted, config: Config) -> Iterator[tuple[str, Data]]:
    """Yield label and preprocessed X_m (D, T_m), float32, of every accepted subject."""
    read = _reader(dict(accepted.subjects))
    for label, _ in accepted.subjects:
        run = _run(label)
        part = preprocessed(read(run, config, None), run, config)[0]
        yield label, joined_in_time([part], config)


def _run(label: str) -> RunFile:
    return RunFile(path=Path(label), name=label)


def _reader(given: Mapping[str, Array]) -> Reader:
    """Return what reads a run by its name from the arrays given."""

    def read(
        run: RunFile, config: Config, grid: Grid | None, *, headers_only: bool = False
    ) -> Series:
        del grid, headers_only
        with np.errstate(over="ignore"):  # past float32 is infinite, and counted as such
            values = np.asarray(given[run.name], dtype=np.float32)
        series = Series(values=values, tr=config.tr, digest=run.name, grid="-", notes=())
        return with_signals(series, run, config)

    return read
