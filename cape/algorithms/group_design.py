"""Design of a comparison of groups: public counts, weights of people, halves of sites.

A neighbouring data set replaces one person by another of the same site and group, so all values
here are public.  Let p_s be the share of cases at site s and w_s = .5 / max(p_s, 1 - p_s).  A
person has the weight r = w_s (g - p_s).  |r| <= 1/2, and the r of a site sum to 0, so effects
common to a site cancel.  A site with one group only adds zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.frozen import dataclass

Flags = npt.NDArray[np.bool_]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Groups:
    """Public numbers of the people asked, in the order of the sites."""

    people: Counts  # (S,) n_s
    cases: Counts | None  # (S,) people with g = 1; None in the strict form, where groups are data

    @property
    def n(self) -> int:
        return int(self.people.sum())

    @property
    def separation(self) -> Array:
        """D_s (S,): mean of r (g - p_s) at each site."""
        p = _share(self)
        return np.asarray(_weight(p) * p * (1.0 - p))

    @property
    def mean_separation(self) -> float:
        """D before any adjustment: mean of r (g - p_s) over all people."""
        return float(self.people @ self.separation / self.n)

    @property
    def mean_square(self) -> float:
        """Mean of r^2 over all people."""
        return float(self.people @ (self.separation * _weight(_share(self))) / self.n)

    @property
    def between(self) -> float:
        """Variance over all people of the group indicator g."""
        share = float(np.sum(self.people * _share(self)) / self.n)
        return share * (1.0 - share)

    @property
    def effective_sites(self) -> float:
        """Variance of the answer per variance of the sites' effects: sum (n D)^2 / (sum n D)^2."""
        each = self.people * self.separation
        return float(np.sum(each**2) / np.sum(each) ** 2)


def weights(case: npt.NDArray[np.integer]) -> Array:
    """Return r (n,) of the people asked at one site; `case` (n,) is 1 or 0."""
    p = float(np.mean(case)) if len(case) else 0.0
    return np.asarray(_weight(np.array(p)) * (case - p), dtype=np.float64)


def _share(groups: Groups) -> Array:
    if groups.cases is None:
        raise ValueError("shares of groups are not public in the strict form")
    return np.asarray(groups.cases / np.maximum(groups.people, 1))


def _weight(p: Array) -> Array:
    return np.asarray(0.5 / np.maximum(p, 1.0 - p))


def half_of_sites(seed: bytes, sites: Sequence[str], people: Counts) -> Flags:
    """Return which sites are in half A: by the public seed, one of each pair of similar size.

    An answer for sites like these needs halves of sites: tested at the sites where it was found, a
    pattern would show effects of these sites.  The last of an odd number of sites is in half A.
    """
    order = sorted(range(len(sites)), key=lambda s: (-int(people[s]), sites[s].encode()))
    inside = np.zeros(len(sites), dtype=bool)
    for first in range(0, len(order), 2):
        pair = order[first : first + 2]
        label = b"\0".join((b"cape/1/half-site", seed, sites[pair[0]].encode()))
        inside[pair[hashlib.sha256(label).digest()[0] % len(pair)]] = True
    return inside
