"""What a site knows beside the result; read only to write the site's own private folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from cape.algorithms.estimators import Data
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectFacts:
    """One subject as the checks saw it."""

    label: str
    files: tuple[str, ...]
    n_timepoints: int
    tr: float  # s, 0 if unknown
    coverage: float  # part of the mask
    rank: int
    grid: str
    mean_fd: float | None = None  # mean framewise displacement before scrubbing, mm
    n_scrubbed: int = 0  # volumes that scrubbing left out
    minutes: float = 0.0  # that are left, 0 if unknown
    tsnr: float = 0.0  # temporal signal to noise, median over the features; 0 if unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One finding: code, severity ("E", "X" a subject counts as zeros, "W"), full private text."""

    code: str
    severity: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateSummary:
    """Everything that only the site knows and its private page tells."""

    # The accepted ones, in the order of the time courses.
    subjects: tuple[SubjectFacts, ...] = ()
    failed: tuple[str, ...] = ()  # labels of those who count as zeros
    checks: tuple[Check, ...] = ()  # worst first
    policy: Mapping[str, object] = field(default_factory=dict)
    # Of each reply: seq, phase, round, message, fields (with the bytes of each), bytes, sha256.
    sent: tuple[Mapping[str, object], ...] = ()
    # One subject at a time, (label, X_m (D, T_m)) in the same order: all would not fit in memory.
    voxels: Callable[[], Iterator[tuple[str, Data]]] | None = None
