"""Groups, covariates and outcomes of every person of a site, for a comparison; private.

People are rows, in the order of the site's list.  Values are in natural units (Fisher z, ml);
public units and ranges are in `cape.settings.comparison`.
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
    """Groups and covariates of the people whom a site lists."""

    subjects: tuple[str, ...]  # labels, as the site lists them
    # (people,): 1 for the first level, 0 for the second, else NaN; for a continuous question the
    # value in public units
    group: Array
    covariates: Array  # (people, P) in public units, inside their ranges; NaN where missing
    # Number of values outside the range of each covariate; it stays at the site
    clipped: tuple[int, ...] = ()

    @property
    def rows(self) -> Data:
        """Covariates and, last, the group: (people, P + 1)."""
        return np.column_stack([self.covariates, self.group]).astype(np.float32)

    @property
    def digest(self) -> bytes:
        """SHA-256 of labels, groups and covariates; never leaves the site."""
        return hashlib.sha256(json.dumps(self.subjects).encode() + self.rows.tobytes()).digest()


def measured(
    courses: Iterable[tuple[str, Data]], trs: Mapping[str, float], measure: Measure
) -> Iterator[tuple[str, Data]]:
    """Yield label and outcomes (K, 1) of the time courses (R, T) of each person.

    Outcomes are (K, 0) if one is missing, such as for a constant course: that person adds zeros.
    `trs`: repetition times in s, 0 or absent if not known.
    """
    nothing = np.full(len(outcome_names(measure)), np.nan)
    for label, S in courses:
        # Whether one person's courses break the arithmetic is content, so it is not reported.
        try:
            with np.errstate(all="ignore"):
                of_person = outcomes_of_person(measure, S.astype(np.float64), trs.get(label, 0.0))
        except Exception:
            of_person = nothing
        values = of_person[:, None]
        yield label, values[:, : int(np.isfinite(values).all())].astype(np.float32)


def repetition_times(subjects: Sequence[Subject], tr: float) -> dict[str, float]:
    """Return the repetition time of people, s; `tr` if files do not say it, 0 if runs differ."""
    times = {subject.label: {one or tr for one in subject.trs} for subject in subjects}
    return {label: found.pop() if len(found) == 1 else 0.0 for label, found in times.items()}
