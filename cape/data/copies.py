"""Runs that hold the same data under several names: exactly, scaled, or processed differently.

A person who is listed twice would count twice.  These findings depend on several people, so they
leave no subject out; the site is warned.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.data.checks import RunShape
from cape.data.issues import Findings, IssueCode

# Parts of the features whose means are compared, and numbers kept of their courses.
N_PARTS: Final = 8
N_KEPT: Final = 64
# Correlation above which two courses are the same.  For unrelated runs the kept numbers have a
# standard deviation of 1/8, so this is 7.6 deviations.
ONE_COURSE: Final = 0.95
# Fewer steps in time agree by chance.
MIN_STEPS: Final = 24
# Runs that are compared at a time: 16 MB.
MAX_COMPARED: Final = 2000


def course_of(values: Data) -> tuple[float, ...]:
    """Return numbers (64,) that scale, offset, smoothing or drift of values (D, T) hardly change.

    They project ranks of the steps in time of the means of a few parts; without ranks a drift or a
    brighter first volume would make all runs alike.
    """
    n_features, n_times = values.shape
    if n_times <= MIN_STEPS or n_features == 0:
        return ()
    ends = np.unique(np.linspace(0, n_features, N_PARTS + 1).astype(np.intp))
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [values[a:b].mean(axis=0, dtype=np.float64) for a, b in itertools.pairwise(ends)]
        steps = np.diff(parts, axis=1)
    steps = steps[np.isfinite(steps).all(axis=1) & (np.ptp(steps, axis=1) > 0)]
    if len(steps) == 0:
        return ()
    ranks = np.argsort(np.argsort(steps, axis=1, kind="stable"), axis=1, kind="stable")
    course = (ranks - ranks.mean(axis=1, keepdims=True)).ravel()
    kept = np.array(
        [course[row > 0].sum() - course[row < 0].sum() for row in _directions(course.size)]
    )
    return tuple(float(x) for x in np.round(kept / np.linalg.norm(kept), 4))


@functools.lru_cache(maxsize=4)
def _directions(n: int) -> npt.NDArray[np.int8]:
    """Return public directions of -1 and 1, shape (64, n), the same for all runs of one length."""
    return np.random.default_rng(n).integers(0, 2, (N_KEPT, n), dtype=np.int8) * 2 - 1


def note_copies(shapes: Sequence[RunShape], findings: Findings) -> None:
    """Note runs with the same values, and runs with the same course in time."""
    exact = _equal(shapes, findings)
    alike: dict[tuple[int, int], list[RunShape]] = {}
    for shape in shapes:
        if shape.course and shape.name not in exact:
            alike.setdefault((shape.n_features, shape.n_timepoints), []).append(shape)
    for group in alike.values():
        courses = np.array([shape.course for shape in group])
        for start in range(0, len(group), MAX_COMPARED):
            _note_alike(group, courses, start, findings)


def _equal(shapes: Sequence[RunShape], findings: Findings) -> set[str]:
    """Note runs with the very same values; return the names of the later ones."""
    first: dict[str, str] = {}
    later = set()
    for shape in shapes:
        if shape.values_digest in first:
            place = f"{first[shape.values_digest]} and {shape.name}"
            findings.add(IssueCode.RUN_TWICE, place)
            later.add(shape.name)
        elif shape.n_features * shape.n_timepoints and shape.values_digest:
            first[shape.values_digest] = shape.name
    return later


def _note_alike(group: Sequence[RunShape], courses: Array, start: int, findings: Findings) -> None:
    rows = courses[start : start + MAX_COMPARED]
    pairs = np.argwhere(np.triu(rows @ courses[start:].T, 1) > ONE_COURSE)
    for i, j in pairs:
        one, other = group[start + i], group[start + j]
        place = f"{one.name} and {other.name}"
        same = one.person == other.person
        findings.add(IssueCode.RUN_AGAIN if same else IssueCode.PERSON_AGAIN, place)
