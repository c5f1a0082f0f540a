"""Forecast rule of joint temporal ICA, measured on synthetic data."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from cape.algorithms.quasi_newton import dense_g, subspace_g
from cape.errors import ConfigError
from cape.forecast import rule
from cape.forecast.one_release import MIN_CLEAR_G, MIN_TEMPLATE_G
from cape.frozen import dataclass

# u(R): components R -> G from which nine of ten synthetic sets of focal maps come back with q < .1
# (measured with the spatial start at 3 to 20 and 30, 25 is between)
LIKELY: Final[dict[float, float]] = {3: 38, 5: 58, 10: 70, 15: 88, 20: 105, 25: 125, 30: 145}
LIKELY_ABOVE_30: Final = 4.9  # a component, untested

# G / u(R) -> share of runs on synthetic focal maps that end with a confirmed map: 343 runs of R 5
# to 30 in memory, one curve for all
CONFIRMED_SHARE: Final[dict[float, float]] = {
    0.5: 0.0, 0.55: 0.12, 0.64: 0.12, 0.72: 0.4, 0.8: 0.55, 0.88: 0.8, 0.97: 0.95, 1.2: 1.0,
}  # fmt: skip
# Below this part of u(R) the answer is "no": about one run in ten confirms a map
NO_BELOW: Final = 0.65
# On smooth maps 3 of 97 runs below this part of u(R) confirmed a map; all did from 2 u(R) on
SMOOTH_FROM: Final = 1.2

# From this factor on every kind of synthetic data came back: the answer is "yes".  It multiplies
# the G that networks of any shape need if all subjects have them in the same place and no direction
# of the subspace is lost.  Networks displaced by a pixel had q .18 at factor 1.03 (gate shut), .08
# at 1.45.
SURE_FACTOR: Final = 1.4

# Fewer rounds than this were not measured.
MIN_ROUNDS: Final = 20

# Settings other than the default -> factor on G for the same q (R = 20: docs/results.md)
EFFORT_FACTORS: Final[dict[tuple[str, object], float]] = {
    ("score", "tanh"): 2.0,
    ("prewhiten", "none"): 1.14,
}
# With this score there is no verdict, so rounds cannot begin at the spatial set.
WITHOUT_START: Final = ("score", "tanh")
# Constants that were tuned together; other values were not measured.
TUNED: Final = {"shares": "auto", "clip_schedule": "auto", "n_looks": 0, "step_limit": 0.0}

# f_P, the share of mu^2 that the subspace release gets by default
PCA_SHARE: Final = 0.27

# d -> mean energy of network maps (Gaussian blobs of 9 mm) inside the 3-D cosine basis
BRAIN_ENERGY: Final[dict[float, float]] = {100: 0.72, 200: 0.81, 400: 0.90, 1000: 0.94}

# The same for the 2-D cosine basis and the maps of the synthetic generators, 30 x 30
IMAGE_ENERGY: Final[dict[float, float]] = {64: 0.922, 100: 0.979, 144: 0.995, 225: 0.999, 400: 1.0}

# Part of the maps' energy lost to noise that is warned of; the best d may lose half as much
LOSS_TO_WARN: Final = 0.25

# G -> recovery error q at R = 20 on preset `realistic`; .35 is random
Q_AT: Final[dict[float, float]] = {
    0.0: 0.35,
    59.0: 0.32,
    85.0: 0.136,
    105.0: 0.09,
    130.0: 0.066,
    170.0: 0.047,
    238.0: 0.030,
    300.0: 0.025,
    514.0: 0.016,
    947.0: 0.009,
    1706.0: 0.006,
}


# Results on synthetic data by answer (docs/results.md)
SYNTHETIC: Final[dict[rule.ForecastAnswer, str]] = {
    "no": "On synthetic focal maps 2 of 50 runs of so small a size confirmed a map.",
    "perhaps": "On synthetic data 65 of 70 runs of effective size 110 and 170 (20 components) had "
    "an error below .1 where maps were focal, 1 of 4 where they were smooth.",
    "yes": "On synthetic data all 70 runs of effective size 240 (20 components) with something to "
    "separate in time had an error below .1.",
}


# Of real images; the run itself is not refused, as images may be synthetic or of another kind.
NO_TEMPORAL: Final = (
    "on images of brains temporal ICA separated nothing in 29 of 29 private runs; spatial ICA does "
    "(computation=capegica)"
)


def likely_g(n_components: int) -> float:
    """Return u(R), the G from which nine of ten sets of focal networks come back."""
    if n_components > max(LIKELY):
        return LIKELY_ABOVE_30 * n_components
    return _between(LIKELY, n_components)


def sure_g(n_components: int) -> float:
    """Return u_yes(R), the G from which all kinds of synthetic data had q < .1."""
    return SURE_FACTOR * max(dense_g(n_components), subspace_g(n_components))


def energy_inside(n_basis: int, energies: Mapping[float, float] = BRAIN_ENERGY) -> float:
    """Return the share of the maps' energy that the first `n_basis` directions can hold."""
    return _between({0: 0.0, **energies}, n_basis)


def best_n_basis(
    *,
    n_components: int,
    g: float,
    limit: int = 1000,
    energies: Mapping[float, float] = BRAIN_ENERGY,
) -> int:
    """Return measured d <= `limit` maximising energy(d) (1 - R d / (f_P G^2)); ConfigError E149."""
    if limit <= n_components:
        raise ConfigError(
            "E149",
            got=n_components,
            allowed=f"2 to {limit - 1}",
            do=f"it must be below the number of features ({limit}).",
        )
    # d must exceed R: R directions cannot hold R maps and their noise.
    sizes = [int(d) for d in sorted(energies) if n_components < d <= limit] or [limit]
    cost = n_components / (PCA_SHARE * g * g)
    return max(sizes, key=lambda d: energy_inside(d, energies) * (1.0 - cost * d))


def settings_of_rule(
    settings: Mapping[str, object], efforts: Mapping[tuple[str, object], float] = EFFORT_FACTORS
) -> dict[str, Any]:
    """Return the fields of a `TemporalRule` that follow from the settings of a run."""
    given = [item for item in efforts if settings.get(item[0]) == item[1]]
    named = [f"{name}={value}" for name, value in given]
    named += [name for name, usual in TUNED.items() if settings.get(name, usual) != usual]
    rounds = settings.get("n_rounds", MIN_ROUNDS)
    if isinstance(rounds, int) and rounds < MIN_ROUNDS:
        named.append(f"n_rounds={rounds}")
    return {
        "effort": max((efforts[item] for item in given), default=1.0),
        "spatial_start": WITHOUT_START not in given,
        "unmeasured": ", ".join(named),
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class TemporalRule(rule.ForecastRule):
    """Rule of temporal ICA: time courses that are independent of each other."""

    noun: ClassVar[str] = "components"
    effort: float = 1.0  # factor on the G that the default algorithm needs
    spatial_start: bool = True  # rounds may begin at the spatial set of the released subspace
    unmeasured: str = ""  # settings that were not measured: no answer is "yes"
    back: str = ""  # advice that leads to measured settings; empty: leave out `unmeasured`
    basis_energy: float = 1.0  # share of the maps that the basis can hold (`energy_inside`)
    pca_share: float = PCA_SHARE  # f_P, share of mu^2 of the subspace release

    def needed_g(self) -> float:
        return self.effort * sure_g(self.n_components)

    def likely_g(self) -> float:
        """Return the G from which nine of ten sets of focal networks come back."""
        min_g = likely_g(self.n_components)
        if not self.spatial_start:
            min_g = max(min_g, dense_g(self.n_components))
        return self.effort * min_g

    def refused_below(self) -> float:
        # Below u(R) only the default algorithm was measured.
        default = self.spatial_start and self.effort == 1.0 and not self.unmeasured
        return (NO_BELOW if default else 1.0) * self.likely_g()

    def chance(self, g: float) -> float:
        """Return the share of runs on synthetic focal maps that confirm a map at G."""
        return _between(CONFIRMED_SHARE, g / self.likely_g())

    def answer(self, g: float) -> rule.ForecastAnswer:
        answer = rule.ForecastRule.answer(self, g)
        return "perhaps" if self.unmeasured and answer == "yes" else answer

    def reason(self, g: float) -> str:
        sure, possible = self.needed_g(), self.refused_below()
        size = rule.size_text(g, sure, possible)
        about = f"the effective size is {size}, and {self.n_components} {self.noun} need"
        if self.unmeasured and g >= possible:
            return f"{about} {sure:.0f}, but {self.unmeasured} was not measured"
        if g >= sure:
            return f"{about} {sure:.0f}"
        about = f"{about} {sure:.0f} to be sure, {possible:.0f} at least"
        if g < possible:
            return f"{about}: the maps would mostly show noise"
        share = self.chance(g)
        tenths = math.floor(10.0 * share + 1e-9)
        often = "all runs" if share >= 1.0 else f"{tenths} of 10 runs like this"
        smooth = "nothing" if g < SMOOTH_FROM * self.likely_g() else "not always something"
        return (
            f"{about}: on synthetic focal (sparse) maps {often} confirmed some of them; of smooth "
            f"ones {smooth} is separated, and the report says which maps are confirmed"
        )

    def advice(self, size: rule.RunSize, mu: float) -> rule.Advice:
        advice = rule.ForecastRule.advice(self, size, mu)
        if not self.brains or math.isinf(mu):
            return advice
        # More people or a larger epsilon would not help.
        return replace(advice, answer="no", reason=NO_TEMPORAL, changes=(), synthetic_data="")

    def curve(self, size: rule.RunSize, *, epsilon: float) -> tuple[rule.CurvePoint, ...]:
        points = rule.ForecastRule.curve(self, size, epsilon=epsilon)
        return tuple(replace(point, answer="no") for point in points) if self.brains else points

    def synthetic_data(self, g: float) -> str:
        return SYNTHETIC[self.answer(g)] if not self.unmeasured else ""

    def largest_components(self, g: float) -> int:
        return 0 if self.unmeasured else self._largest(g, sure_g)

    def largest_possible(self, g: float) -> int:
        return self._largest(g, likely_g if self.spatial_start else dense_g)

    def _largest(self, g: float, threshold: Callable[[int], float]) -> int:
        fit = (r for r in range(rule.MAX_COMPONENTS, 1, -1) if self.effort * threshold(r) <= g)
        return next(fit, 0)

    def largest_without_noise(self) -> int:
        return rule.MAX_COMPONENTS

    def largest_text(self, g: float) -> str:
        sure, possible = self.largest_components(g), self.largest_possible(g)
        if not possible:
            return "At this budget no number of components was recovered on synthetic data."
        return (
            f"At this budget up to {possible} components were recovered on synthetic data of "
            f"focal maps, {f'up to {sure}' if sure else 'none'} on all."
        )

    def expected_q(self, g: float) -> float:
        """Return q, 0 to .35, from the curve of R = 20 with G scaled by u(20) / u(R)."""
        if math.isinf(g):
            return 0.0
        at = g * likely_g(20) / self.likely_g()
        last = max(Q_AT)
        # Beyond the last point q is extrapolated as 1/G, its course between the last points.
        return Q_AT[last] * last / at if at >= last else _between(Q_AT, at)

    def map_energy(self, g: float, n_basis: int) -> float:
        """Return E = energy * (1 - R (d - R) / (f_P G^2)), not below 0."""
        # Each of R maps takes noise from the d - R other directions; within .02 of measurements for
        # G from 275 on and d from 100 to 400.
        lost = self.n_components * max(0, n_basis - self.n_components) / (self.pca_share * g * g)
        return max(0.0, self.basis_energy * (1.0 - lost))

    def real_data(self, g: float) -> str:
        if not self.brains:
            return ""
        return (
            "On one real data set (40 resting adults, 10 mm) rounds took away what spatial ICA had "
            "found, at every effective size up to 400: for images capegica is advised."
        )

    def _warnings(self, size: rule.RunSize, mu: float, n_basis: int) -> tuple[str, ...]:
        g = size.g_of(mu)
        warnings = list(rule.ForecastRule._warnings(self, size, mu, n_basis))
        max_basis = LOSS_TO_WARN * self.pca_share * g * g / self.n_components
        # A basis cannot be smaller than R, however much it loses.
        if n_basis > max_basis > self.n_components:
            warnings.append(
                f"A basis of {n_basis} loses more than {LOSS_TO_WARN:.0%} of the maps' energy to "
                f"noise; up to {max_basis:.0f} would lose less, at a coarser resolution."
            )
        if self.n_components > max(LIKELY):
            warnings.append(
                f"More than {max(LIKELY):.0f} components were never measured; the rule is a "
                "guess there."
            )
        return tuple(warnings)

    def _changes(self, size: rule.RunSize, g: float) -> tuple[str, ...]:
        if self.unmeasured:
            plain = replace(self, effort=1.0, spatial_start=True, unmeasured="")
            if plain.answer(g) == "yes":
                return (self.back or f"settings: without {self.unmeasured}",)
            back = self.back or f"without {self.unmeasured}"
            return tuple(f"{text}; and {back}" for text in plain._changes(size, g))
        changes = []
        if 2 <= (best := self.largest_components(g)) < self.n_components:
            changes.append(f"components: at most {best}")
        changes += rule.ForecastRule._changes(self, size, g)
        # The other models need less G; spatial ICA comes first because it discovers its maps.
        if g >= MIN_CLEAR_G:
            changes.append(
                "computation: capegica, another model, which needs less (docs/choosing.md)"
            )
        elif g >= MIN_TEMPLATE_G:
            changes.append("computation: capedualreg, another model, with public template maps")
        return tuple(changes)


def _between(table: Mapping[float, float], at: float) -> float:
    """Interpolate a table linearly; outside its range return the nearest value."""
    return float(np.interp(at, list(table), list(table.values())))
