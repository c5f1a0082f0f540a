"""What a comparison of groups takes of every person of a site; private.

People are rows, in the order of the site's list.  Values are in natural units (Fisher z, ml); what
is said of them in public (units, ranges) stands in `cape.settings.comparison`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Outcomes:
    """Values that groups are compared in."""

    names: tuple[str, ...]  # K
    units: tuple[str, ...]  # K: in words, such as "Fisher z"
    values: Array  # (people, K), NaN where missing


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class People:
    """Groups and covariates of those whom a site lists."""

    subjects: tuple[str, ...]  # labels, as the site lists them
    group: npt.NDArray[
        np.int8
    ]  # (people,): 1 for the first level that is named, 0 for the second, else -1
    covariates: Array  # (people, P) in public units, inside their ranges; NaN where missing
    # Of each covariate, how many values lay outside its range; for the site's own eyes
    clipped: tuple[int, ...] = ()
