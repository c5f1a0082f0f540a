"""The looks of a comparison: which are asked, when, for which share of mu^2, and their bounds.

All of it follows from public numbers.  Numbers in brackets are sections of
docs/group-comparison.md.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from cape.algorithms.design import Public
from cape.algorithms.population import W
from cape.frozen import dataclass

Stage = Literal["whole", "design", "half"]

# Up to FEW outcomes the effects of covariates are asked one by one; above, what they explain.
FEW: Final = 8
# [2] Looks by exchange; `again` is asked where `sites` cannot be.
ROUNDS: Final = (
    ("where", "xwhere", "middle"),
    ("centre", "middle2", "xsites", "zsites"),
    ("design", "sites", "again"),
    ("moments", "balance", "effects", "skew"),
    ("contrast", "squares", "by_site"),
    ("kept", "slope"),
)
# .. of half A of a pattern, which has a direction and no errors; the scale is that of all people
HALF_A: Final = (("where",), ("middle", "centre"), ("sites", "again"), ("contrast",))
# .. and of half B, with one outcome of known scale
HALF_B: Final = (
    ("where", "middle", "centre"),
    ("sites", "again", "effects"),
    ("contrast", "squares", "by_site"),
    ("kept",),
)
# [2] Shares of mu^2 for few and for many outcomes; `contrast` has what is left.
SHARES: Final = {
    "where": (0.03, 0.01),
    "xwhere": (0.02, 0.02),
    "middle": (0.015, 0.01),
    "centre": (0.04, 0.05),
    "middle2": (0.015, 0.01),
    "xsites": (0.03, 0.03),
    "zsites": (0.06, 0.06),  # of a protected term, as `slope`
    "design": (0.05, 0.05),
    "moments": (0.03, 0.03),
    "sites": (0.03, 0.03),
    "again": (0.015, 0.015),  # taken from `centre`
    "balance": (0.10, 0.10),
    "effects": (0.08, 0.02),
    "skew": (0.05, 0.03),
    "squares": (0.04, 0.03),
    "by_site": (0.25, 0.25),
    "kept": (0.04, 0.03),
    "slope": (0.06, 0.06),
}
# [2] A pattern asks these of all people, once; its halves spend the rest.
DESIGN: Final = {
    "where": 0.01,
    "xwhere": 0.015,
    "middle": 0.015,
    "middle2": 0.015,
    "xsites": 0.025,
    "design": 0.06,
    "moments": 0.03,
    "balance": 0.09,
}

# [1] Radius of the site part of w, and of a protected term; of Y, as a share of that of v
RHO, RHO_PROTECTED, Y = 0.04, 0.2, 0.5
# [3] Ends of what a pair of people says about the slope of w on z
PAIR: Final = (-0.15, 0.5)
# Most that people missing from one group may widen it by
RHO_TILT: Final = 1.2 * 0.08
# .. and from groups at odds at sites; its unit beside outcomes by site, of radius 1
RHO_SITES: Final = 0.16
TILT: Final = 4 / 3
# [3] Factors of what the cut takes by code and along w, (public, protected)
RAMPS = ((1.3, 2.2), (0.6, 0.6))
# Size of the parts of `kept` that are no share of people
PART = 0.6
# With the ramp at 0 and 1 and either sign of the cosine, the two parts are the corners of a
# triangle; the radius of the circle around it, and the ramp at its middle
RAMP_RADIUS, RAMP_MIDDLE = 0.7425, 0.6748
# [3] Noise of a share of pairs, below which the shape of one outcome can be told: what `where` then
# has more, of a whole run and of half B
SHAPE_NOISE, MORE_WHERE = 0.02, (0.02, 0.12)
# .. to which `where` of every outcome by itself is asked, the most share it may have, and the noise
# above which it is asked of all together
WHERE_NOISE, MOST_WHERE, NO_WHERE = 0.05, 0.06, 0.07
# Parts of `skew`: skewness, spread by code
SKEW: Final = (0.5, 2.0)
# Noise of a site's mean, times S: above it, site means would cost more than they mend.
SITES_NOISE: Final = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """One look: its exchange, counted from 1, and its share of mu^2."""

    name: str
    round: int
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Looks:
    """The looks of a term at a stage, by exchange."""

    looks: tuple[Planned, ...]

    def share(self, name: str) -> float:
        return next((look.share for look in self.looks if look.name == name), 0.0)

    def asks(self, name: str) -> bool:
        return any(look.name == name for look in self.looks)

    @property
    def total(self) -> float:
        return sum(look.share for look in self.looks)


def plan(public: Public, stage: Stage = "whole", design: Looks | None = None) -> Looks:
    """Return the looks of a term, whose shares sum to 1."""
    # A pattern: together with those of `design`, asked of all, as a person is in one half only.
    K, p = public.has.shape[1], len(public.x_columns)
    ranges = bool(public.ranges.any()) or public.z_range
    few = K <= FEW
    total = 1.0 - design.total if design else 1.0
    shares = {name: total * pair[0 if few else 1] for name, pair in SHARES.items()}
    if by_outcome(public, stage):
        shares["where"] = where_share(public)
    if stage == "design":
        shares = DESIGN
    left_out = set() if ranges else {"xwhere", "middle2"}
    if not (p and ranges) or _site_noise(public, xsites_radius(p), shares["xsites"]) >= SITES_NOISE:
        left_out.add("xsites")
    if stage == "design":
        left_out |= {name for names in ROUNDS for name in names} - set(DESIGN)
        return _plan(ROUNDS, shares, left_out)
    if not p:
        left_out |= {"balance", "moments", "effects"} | (set() if public.protected else {"design"})
    rounds = ROUNDS if stage == "whole" else HALF_B if K == 1 else HALF_A
    if design and K > 1:
        left_out.add("where")
    sites = _site_noise(public, sites_radius(K), shares["sites"]) < SITES_NOISE
    left_out.add("again" if sites else "sites")
    if not public.random:
        left_out.add("by_site")
    if not public.protected:
        left_out |= {"zsites", "slope"}
    if K == 1 and look_noise(public, 1.0, 0.05, psd=True) < SHAPE_NOISE:
        shares["where"] += MORE_WHERE[stage == "half"] * total
    if "again" not in left_out:
        shares["centre"] -= shares["again"]
    asked = [name for names in rounds for name in names if name not in left_out]
    shares["contrast"] = total - sum(shares[name] for name in asked if name != "contrast")
    return _plan(rounds, shares, left_out)


def _plan(
    rounds: Sequence[Sequence[str]], shares: Mapping[str, float], left_out: set[str]
) -> Looks:
    asked = [[name for name in names if name not in left_out] for names in rounds]
    looks = tuple(
        Planned(name=name, round=i, share=shares[name])
        for i, names in enumerate((names for names in asked if names), start=1)
        for name in names
    )
    return Looks(looks=looks)


def by_outcome(public: Public, stage: Stage) -> bool:
    """Whether `where` is asked of each of several outcomes, whose ranges may not be alike."""
    K = public.has.shape[1]
    noise = look_noise(public, math.sqrt(K), where_share(public), psd=True)
    return K > 1 and stage == "whole" and noise < NO_WHERE


def where_share(public: Public) -> float:
    needed = (look_noise(public, math.sqrt(public.has.shape[1]), 1.0, psd=True) / WHERE_NOISE) ** 2
    return min(max(needed, SHARES["where"][1]), MOST_WHERE)


def _site_noise(public: Public, bound: float, share: float) -> float:
    return look_noise(public, bound, share) * len(public.people)


def look_noise(public: Public, bound: float, share: float, *, psd: bool = False) -> float:
    """Return the planned std of the noise on a mean over the people who are asked."""
    return (math.sqrt(2.0) if psd else 2.0) * bound / (public.G * math.sqrt(share))


def sites_radius(K: int) -> float:
    return 2.5 if K == 1 else 1.6 * math.sqrt(K)


def xsites_radius(p: int) -> float:
    return 2.0 * math.sqrt(p)


def moved(public: Public, what: Literal["balance", "contrast"], rho: float) -> float:
    """Return half of what one person may move sum w v' less the site part by, for |v| <= 1 [4]."""
    # rho: radius of the site part of w.  `balance`: v is a vector of x; `contrast`: of K outcomes,
    # of which a person may have some.
    high, low = W + 1.25 * rho, abs(W - 1.25 * rho)
    one = what == "balance" or public.has.shape[1] == 1
    if public.protected:
        if one:
            return max(high, W * (1.0 + Y))
        corner = math.sqrt(2.0 * (high**2 + low**2)) + 2.0 * W * Y
        return max(high * math.sqrt(4.0 + 2.0 * Y**2), corner) / 2.0
    if one:
        # Two people of several groups may differ in w and pull the site part sideways.
        return high if public.q == 1 else 1.033 * W + 1.25 * rho
    return high * math.sqrt(1.0 + Y**2 / 2.0)
