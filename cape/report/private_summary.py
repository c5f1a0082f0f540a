"""What a site knows beside the result: its subjects, its checks, what it sent.

Private: it is only read to write the site's own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from cape.algorithms.estimators import Data
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SubjectFacts:
    """One subject as the checks saw it; `tr` is 0 if unknown, `coverage` a share of the mask."""

    label: str
    files: tuple[str, ...]
    n_timepoints: int
    tr: float
    coverage: float
    rank: int
    grid: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One finding: code, severity ("E", "X" subject left out, "W") and the full private text."""

    code: str
    severity: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateSummary:
    """Everything that only the site knows and its private page tells.

    `subjects` are the accepted ones in the order of the time courses, `excluded` labels of those
    left out, `checks` worst first, `policy` the one in force.  `sent` has one line per reply: seq,
    phase, round, message, fields (with the bytes of each), bytes, sha256.  `voxels` yields
    (label, X_m (D, T_m)) of the accepted subjects in the same order.
    """

    subjects: tuple[SubjectFacts, ...] = ()
    excluded: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    policy: Mapping[str, object] = field(default_factory=dict)
    sent: tuple[Mapping[str, object], ...] = ()
    voxels: Callable[[], Iterator[tuple[str, Data]]] | None = None
