"""G, the effective size of a run, and what every rule says of it: will it work, what would help.

Thresholds were measured on synthetic data unless a sentence says otherwise: no promise for real.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Final, Literal

from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, gdp_mu

Separation = Literal["temporal", "spatial", "template"]

MAX_COMPONENTS: Final = 50

# Budgets of the curve, beside the planned one
EPSILONS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def g_eff(*, n_subjects: int, mu: float, noise_shares: int, n_sites: int) -> float:
    """Return G = M mu sqrt(h / S), the one number that quality depends on.

    `mu` is that of the whole run against the headline viewer (inf without noise), and
    h = `noise_shares` are the noise shares that this viewer cannot subtract (1 with noise=local).
    """
    # The sum carries S noise shares, and the viewer can subtract all but h of them.
    return n_subjects * mu * math.sqrt(noise_shares / n_sites)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSize:
    """Sites, subjects and noise shares of a plan (S, M, h), and its delta."""

    n_sites: int
    n_subjects: int
    noise_shares: int
    delta: float

    def g(self, epsilon: float) -> float:
        return self.g_of(gdp_mu(epsilon=epsilon, delta=self.delta))

    def g_of(self, mu: float) -> float:
        return g_eff(
            n_subjects=self.n_subjects, mu=mu, noise_shares=self.noise_shares, n_sites=self.n_sites
        )

    def epsilon_for(self, g: float) -> float:
        return gdp_epsilon(mu=g / self.g_of(1.0), delta=self.delta)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What to expect of a run, in numbers."""

    g: float  # G of the run; inf without noise
    needed: float  # smallest G from which a run is called usable
    usable: bool  # whether the run is made at all, unless the owner accepts low quality
    largest_n_components: int  # largest R at this G, 0 if none is
    smallest_epsilon: float  # smallest total epsilon for this number of components, all else equal
    smallest_n_subjects: int  # fewest subjects for this number of components, all else equal
    # Expected share of the maps' energy inside the released subspace; NaN where unknown
    map_energy: float
    text: str  # one or two sentences for people
    warnings: tuple[str, ...]  # further sentences


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The plain answer to "will it work?", and each single change that would make it work."""

    answer: Literal["yes", "no", "perhaps"]
    reason: str  # one sentence
    changes: tuple[str, ...]  # each by itself is enough; empty if nothing needs to change
    real_data: str  # what was seen on real data at this G


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """One budget of the curve: what the same sites and subjects give at this epsilon."""

    epsilon: float
    g: float
    usable: bool
    largest_n_components: int
    expected_q: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ForecastRule(ABC):
    """The rule of one model of separation, for R components (K templates)."""

    n_components: int
    # What the components are called
    noun: ClassVar[str]

    @abstractmethod
    def needed_g(self) -> float:
        """Return the smallest G from which a run is called usable."""

    def refused_below(self) -> float:
        """Return the smallest G at which a run is not refused."""
        return self.needed_g()

    @abstractmethod
    def largest_components(self, g: float) -> int:
        """Return the most components at G, 0 if none."""

    def largest_text(self, g: float) -> str:
        """Return `largest_components` in a sentence; empty where it does not depend on G."""
        return ""

    @abstractmethod
    def real_data(self, g: float) -> str:
        """Return what one real resting-state data set showed at this G."""

    def expected_q(self, g: float) -> float | None:
        """Return the expected recovery error; None where it was not measured."""
        return None

    def map_energy(self, g: float, n_basis: int) -> float:
        """Return E, the expected share of the maps' energy that is kept; NaN where unknown."""
        return math.nan

    def largest_without_noise(self) -> int:
        """Return the most components of a run without noise: the data alone limit them."""
        return self.n_components

    def verdict(self, size: RunSize, mu: float, *, n_basis: int) -> Verdict:
        """Return what to expect of a run of total `mu` (inf without noise) and d = `n_basis`."""
        g, needed = size.g_of(mu), self.needed_g()
        finite = math.isfinite(g)
        most = self.largest_components(g) if finite else self.largest_without_noise()
        return Verdict(
            g=g,
            needed=needed,
            usable=g >= self.refused_below(),
            largest_n_components=min(most, MAX_COMPONENTS),
            smallest_epsilon=size.epsilon_for(needed) if finite else 0.0,
            # Without noise G is infinite: no number of subjects is too small.
            smallest_n_subjects=math.ceil(needed * size.n_subjects / g) if g > 0 else 0,
            map_energy=self.map_energy(g, n_basis),
            text=self._text(size, mu),
            warnings=self._warnings(size, mu, n_basis),
        )

    def _text(self, size: RunSize, mu: float) -> str:
        advice = self.advice(size, mu)
        if advice.answer == "yes":
            return f"Usable on synthetic data: {advice.reason}."
        reason = advice.reason[0].upper() + advice.reason[1:]
        return f"{reason}. What would help: {'; or '.join(advice.changes)}."

    def _warnings(self, size: RunSize, mu: float, n_basis: int) -> tuple[str, ...]:
        real_data = self.advice(size, mu).real_data
        return (real_data,) if real_data else ()

    def advice(self, size: RunSize, mu: float) -> Advice:
        """Return what to tell the owner of a plan of total `mu`; inf without noise."""
        g, needed = size.g_of(mu), self.needed_g()
        # Nothing protects anybody then, which matters more than how good the maps will be.
        if math.isinf(g):
            return Advice(
                answer="yes",
                reason="no noise is added, so only the data limit the maps; nobody is protected",
                changes=(),
                real_data="",
            )
        reason = f"G is {g:.0f}, and {self.n_components} {self.noun} need about {needed:.0f}"
        if g >= needed:
            return Advice(answer="yes", reason=reason, changes=(), real_data=self.real_data(g))
        # Between the two thresholds the owner decides; below both a run stops by itself.
        refused = g < self.refused_below()
        return Advice(
            answer="no" if refused else "perhaps",
            reason=reason + (": the maps would mostly show noise" if refused else ""),
            changes=self._changes(size, g),
            real_data=self.real_data(g),
        )

    def _changes(self, size: RunSize, g: float) -> tuple[str, ...]:
        needed = self.needed_g()
        changes = [
            f"subjects: at least {math.ceil(size.n_subjects * needed / g)}",
            f"epsilon: at least {rounded_up(size.epsilon_for(needed))}",
        ]
        trusting = replace(size, noise_shares=size.n_sites)
        # Nobody's noise is discounted then; offered only where that alone is enough.
        gained = trusting.g_of(1.0) / size.g_of(1.0)
        if size.noise_shares < size.n_sites and gained * g >= needed:
            changes.append("assumed_colluders: 0, if every site trusts all others not to collude")
        return tuple(changes)

    def curve(self, size: RunSize, *, epsilon: float) -> tuple[CurvePoint, ...]:
        points = []
        for at in sorted({*EPSILONS, epsilon}):
            g = size.g(at)
            points.append(
                CurvePoint(
                    epsilon=at,
                    g=g,
                    # A doubtful budget does not count as usable in the curve.
                    usable=g >= self.needed_g(),
                    largest_n_components=self.largest_components(g),
                    expected_q=self.expected_q(g),
                )
            )
        return tuple(points)


def rounded_up(value: float) -> str:
    """Return `value` with three digits, rounded up: a smaller number would not be enough."""
    if value <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    # The hair taken off keeps a number that has three digits already as it is.
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"
