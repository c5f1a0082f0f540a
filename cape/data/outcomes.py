"""What a comparison of groups takes of every person of a site; private.

People are rows, in the order of the site's list.  Values are in natural units (Fisher z, ml); what
is said of them in public (units, ranges) stands in `cape.settings.comparison`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from cape.algorithms.estimators import Array, Data
from cape.algorithms.person_outcomes import outcome_names, outcomes_of_person
from cape.data.checks import Subject
from cape.frozen import dataclass
from cape.settings.comparison import Measure


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class People:
    """Groups and covariates of those whom a site lists."""

    subjects: tuple[str, ...]  # labels, as the site lists them
    # (people,): 1 for the first level that is named, 0 for the second, else NaN; of a continuous
    # question its value in public units
    group: Array
    covariates: Array  # (people, P) in public units, inside their ranges; NaN where missing
    # Of each covariate, how many values lay outside its range; for the site's own eyes
    clipped: tuple[int, ...] = ()

    @property
    def rows(self) -> Data:
        """Covariates and, last, the group: (people, P + 1)."""
        return np.column_stack([self.covariates, self.group]).astype(np.float32)

    @property
    def digest(self) -> bytes:
        """Of who is in which group, with which covariates; never leaves the site."""
        return hashlib.sha256(json.dumps(self.subjects).encode() + self.rows.tobytes()).digest()


def measured(
    courses: Iterable[tuple[str, Data]], trs: Mapping[str, float], measure: Measure
) -> Iterator[tuple[str, Data]]:
    """Yield label and outcomes (K, 1) of the time courses (R, T) of everybody.

    (K, 0) of who fails or lacks one of them, such as by a constant course: that person adds zeros.
    `trs` are in s, 0 or absent where they are not known.
    """
    nothing = np.full(len(outcome_names(measure)), np.nan)
    for label, S in courses:
        # Whether one person's courses break the arithmetic is content, too: nobody hears of it.
        try:
            with np.errstate(all="ignore"):
                of_person = outcomes_of_person(measure, S.astype(np.float64), trs.get(label, 0.0))
        except Exception:
            of_person = nothing
        values = of_person[:, None]
        yield label, values[:, : int(np.isfinite(values).all())].astype(np.float32)


def repetition_times(subjects: Sequence[Subject], tr: float) -> dict[str, float]:
    """Return the repetition time of people, s, `tr` where files do not say it; 0: runs differ."""
    times = {subject.label: {one or tr for one in subject.trs} for subject in subjects}
    return {label: found.pop() if len(found) == 1 else 0.0 for label, found in times.items()}
