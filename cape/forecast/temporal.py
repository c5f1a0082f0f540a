"""Joint temporal ICA by the G rule, measured on synthetic data (two generators, q below 0.1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar, Final

from cape.errors import ConfigError
from cape.forecast.one_release import LEAST_CLEAR, LEAST_TEMPLATE
from cape.forecast.rule import MAX_COMPONENTS, ForecastRule, RunSize, rounded_up
from cape.frozen import dataclass

# Components R -> smallest G with q < 0.1, measured with the base algorithm
USABLE: Final[dict[float, float]] = {5: 65, 10: 95, 15: 140, 20: 180, 25: 250, 30: 345}

PER_COMPONENT_ABOVE_30: Final = 12.0  # continues the measured slope, untested
PREWHITENED: Final = 0.92  # the shipped default (temporal pre-whitening, other shares) needs less
BASE: Final = 1.05  # the base on data sets that were not used for tuning

# The algorithm that all of this was measured with, and fewer rounds than it was measured for
MEASURED: Final = {"pca": "projector", "whitening": "log-euclidean", "solver": "quasi-newton"}
FEW_ROUNDS: Final = 20

# f_P, the share of mu^2 that the subspace release gets by default
PCA_SHARE: Final = 0.27

# d -> mean energy of network maps (Gaussian blobs of 9 mm) inside the 3-D cosine basis
BRAIN_ENERGY: Final[dict[float, float]] = {100: 0.72, 200: 0.81, 400: 0.90, 1000: 0.94}

# The same for the 2-D cosine basis and the maps of the synthetic generators, 30 x 30
IMAGE_ENERGY: Final[dict[float, float]] = {64: 0.922, 100: 0.979, 144: 0.995, 225: 0.999, 400: 1.0}

# On real resting-state data no temporal component was seen to be useful below this G
USEFUL_ON_REAL_DATA: Final = 400.0

# Part of the maps' energy lost to noise; the best choice of d may cost half of it
LOSS_TO_WARN: Final = 0.25

# G -> recovery error q at R = 20 on the harder synthetic data, shipped default; .35 is random
Q_AT: Final[dict[float, float]] = {
    0.0: 0.35,
    69.0: 0.30,
    128.0: 0.20,
    145.0: 0.117,
    160.0: 0.087,
    180.0: 0.054,
    200.0: 0.047,
    274.0: 0.033,
    514.0: 0.016,
    947.0: 0.009,
    1706.0: 0.006,
}


def usable(n_components: int, *, prewhitened: bool = True) -> float:
    """Return the smallest G that recovers `n_components`; linear between the measured numbers."""
    if n_components < 1:
        raise ConfigError(
            "E149", got=n_components, allowed="2 to 50", do="choose a number of components."
        )
    scale = PREWHITENED if prewhitened else BASE
    known = sorted(USABLE)
    # Fewer than 5 were not measured: they are taken to need no less than 5 do.
    if n_components <= known[0]:
        return scale * USABLE[known[0]]
    # Above 30 the measured slope goes on; `_warnings` says that this is a guess.
    if n_components > known[-1]:
        return scale * PER_COMPONENT_ABOVE_30 * n_components
    return scale * _between(USABLE, n_components)


def largest_usable_components(g: float, *, prewhitened: bool = True) -> int:
    # From above: the first that fits is the largest.
    fit = (r for r in range(MAX_COMPONENTS, 1, -1) if usable(r, prewhitened=prewhitened) <= g)
    return next(fit, 0)


def energy_inside(n_basis: int, energies: Mapping[float, float] = BRAIN_ENERGY) -> float:
    """Return the share of the maps' energy that the first `n_basis` directions can hold."""
    known = sorted(energies)
    if n_basis >= known[-1]:
        return energies[known[-1]]
    return _between({0: 0.0, **energies}, max(0, n_basis))


def choose_n_basis(
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
    # R directions or fewer cannot hold R maps and their noise.
    sizes = [int(d) for d in sorted(energies) if n_components < d <= limit] or [limit]
    cost = n_components / (PCA_SHARE * g * g)
    return max(sizes, key=lambda d: energy_inside(d, energies) * (1.0 - cost * d))


@dataclass(frozen=True, kw_only=True, slots=True)
class TemporalRule(ForecastRule):
    """Time courses that are independent of each other."""

    noun: ClassVar[str] = "components"
    prewhitened: bool = True  # time courses are filtered first, as by default
    basis_energy: float = 1.0  # what the basis can hold of the maps, see `energy_inside`
    pca_share: float = PCA_SHARE  # f_P, share of mu^2 of the subspace release

    def needed_g(self) -> float:
        return usable(self.n_components, prewhitened=self.prewhitened)

    def largest_components(self, g: float) -> int:
        return largest_usable_components(g, prewhitened=self.prewhitened)

    def largest_without_noise(self) -> int:
        return MAX_COMPONENTS

    def largest_text(self, g: float) -> str:
        most = self.largest_components(g)
        if not most:
            return "At this budget no number of components was recovered on synthetic data."
        return f"At this budget up to {most} components were recovered on synthetic data."

    def expected_q(self, g: float) -> float:
        """Return q, 0 to .35: the curve of R = 20, stretched so that q = .1 is at `needed_g`."""
        if math.isinf(g):
            return 0.0
        at = g * usable(20) / self.needed_g()
        last = max(Q_AT)
        # Between the last measured points q falls about like 1/G, so it is taken to go on so.
        return Q_AT[last] * last / at if at >= last else _between(Q_AT, at)

    def map_energy(self, g: float, n_basis: int) -> float:
        """Return E = energy * (1 - R (d - R) / (f_P G^2)), not below 0."""
        # Each of R maps is open to the noise of the d - R directions beside them; within .02 of
        # measurement for G from 275 on and d from 100 to 400.
        lost = self.n_components * max(0, n_basis - self.n_components) / (self.pca_share * g * g)
        return max(0.0, self.basis_energy * (1.0 - lost))

    def real_data(self, g: float) -> str:
        if g < USEFUL_ON_REAL_DATA:
            return (
                "On real resting-state data no useful temporal components were seen below G "
                f"{USEFUL_ON_REAL_DATA:.0f}."
            )
        return (
            "On real resting-state data temporal components were no better than a random rotation "
            f"up to G {USEFUL_ON_REAL_DATA:.0f}, the largest that was tried."
        )

    def _text(self, size: RunSize, mu: float) -> str:
        g, needed = size.g_of(mu), self.needed_g()
        if math.isinf(g):
            return "No noise is added: the maps are as good as the data, and nobody is protected."
        if g >= needed:
            return f"Usable on synthetic data: G {g:.0f}, needed {needed:.0f}."
        # Each remedy is enough by itself, by the rule that refused the run.
        best = self.largest_components(g)
        fewer = f"n_components <= {best}, " if best else ""
        return (
            f"Maps will mostly show noise: G {g:.0f}, needed {needed:.0f}. Use {fewer}"
            f"at least {math.ceil(needed * size.n_subjects / g)} subjects, "
            f"or epsilon >= {rounded_up(size.epsilon_for(needed))}."
        )

    def _warnings(self, size: RunSize, mu: float, n_basis: int) -> tuple[str, ...]:
        g = size.g_of(mu)
        warnings = []
        # Success on synthetic data must not be read as a promise for resting-state data.
        if g < USEFUL_ON_REAL_DATA:
            warnings.append(self.real_data(g))
        most = LOSS_TO_WARN * self.pca_share * g * g / self.n_components
        # A basis cannot be smaller than R, however much it loses.
        if n_basis > max(most, self.n_components):
            warnings.append(
                f"A basis of {n_basis} loses more than {LOSS_TO_WARN:.0%} of the maps' energy to "
                f"noise; up to {most:.0f} would lose less, at a coarser resolution."
            )
        if self.n_components > max(USABLE):
            warnings.append(
                f"More than {max(USABLE)} components were never measured; the rule is a guess "
                "there."
            )
        return tuple(warnings)

    def _changes(self, size: RunSize, g: float) -> tuple[str, ...]:
        changes = []
        if 2 <= (best := self.largest_components(g)) < self.n_components:
            changes.append(f"components: at most {best}")
        changes += ForecastRule._changes(self, size, g)
        # The other models need less G; spatial is named first, because it discovers its maps.
        if g >= LEAST_CLEAR:
            changes.append(
                "separation: spatial, another model, which needs less (docs/separations.md)"
            )
        elif g >= LEAST_TEMPLATE:
            changes.append("separation: template, another model, with public template maps")
        return tuple(changes)


def _between(table: Mapping[float, float], at: float) -> float:
    right = min(x for x in table if x >= at)
    if right == at:
        return table[right]
    left = max(x for x in table if x < at)
    part = (at - left) / (right - left)
    return table[left] + part * (table[right] - table[left])
