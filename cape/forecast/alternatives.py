"""What a planned run will be worth, whatever its model of separation, and what would help.

`cape.forecast.temporal` knows joint temporal ICA; here are the rules of the two other separations,
the curve over epsilon, and the sentences of `cape budget`.  Like there: public numbers only,
measured on synthetic data unless a sentence says otherwise, no promise for real data.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Literal

from cape.algorithms.templates import MOST_TEMPLATES
from cape.forecast.temporal import (
    MAX_COMPONENTS,
    USEFUL_ON_REAL_DATA,
    Verdict,
    g_eff,
    largest_usable_components,
    usable,
)
from cape.frozen import dataclass
from cape.privacy.accounting import gdp_epsilon, gdp_mu

Separation = Literal["temporal", "spatial", "template"]

SPATIAL_SIZES: Final[tuple[tuple[float, int, int], ...]] = (
    (50.0, 40, 10),
    (90.0, 53, 15),
    (150.0, 64, 15),
    (350.0, 80, 20),
)
"""From this G on: size of the kernel basis d, and components R that real data carried."""

LEAST_SPATIAL: Final = 50.0
"""Below this G a spatial run shows noise: it is refused unless the owner accepts that."""

LEAST_CLEAR: Final = 90.0
"""From this G on spatial maps were good on synthetic data (ISI below .1)."""

LEAST_TEMPLATE: Final = 50.0
"""Smallest G at which private dual regression was measured to beat the figure without data."""

ROWS_PER_COMPONENT: Final = 0.3
"""R <= .3 d: more components than that have no room in the basis."""

Q_AT: Final[dict[float, float]] = {
    0.0: 0.35, 69.0: 0.30, 128.0: 0.20, 145.0: 0.117, 160.0: 0.087, 180.0: 0.054,
    200.0: 0.047, 274.0: 0.033, 514.0: 0.016, 947.0: 0.009, 1706.0: 0.006,
}  # fmt: skip
"""G -> recovery error q at R = 20 on the harder synthetic data, shipped default; .35 is random."""

EPSILONS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


def spatial_basis(g: float, n_components: int) -> int:
    """Return d of a spatial or template run: from G alone, and room for R components."""
    fitting = [d for least, d, _ in SPATIAL_SIZES if g >= least]
    d = fitting[-1] if fitting else SPATIAL_SIZES[0][1]
    return max(d, math.ceil(n_components / ROWS_PER_COMPONENT))


def spatial_components(g: float) -> int:
    """Return how many spatial components real data carried at G; 0 below the least G."""
    return next((r for least, _, r in reversed(SPATIAL_SIZES) if g >= least), 0)


def largest_components(separation: Separation, g: float, *, revised: bool = True) -> int:
    """Return the most components at G by the rule of this separation, 0 if G is too small.

    Temporal: those recovered on synthetic data.  Spatial: those that real data carried.  Template:
    G needs no fewer templates, so all that can be given.
    """
    if separation == "temporal":
        return largest_usable_components(g, revised=revised)
    if separation == "spatial":
        return spatial_components(g)
    return MOST_TEMPLATES if g >= LEAST_TEMPLATE else 0


def most_text(separation: Separation, g: float, *, revised: bool = True) -> str:
    """Return `largest_components` in a sentence; how many templates there are needs none."""
    most = largest_components(separation, g, revised=revised)
    if separation == "temporal":
        return (
            f"At this budget up to {most} components were recovered on synthetic data."
            if most
            else "At this budget no number of components was recovered on synthetic data."
        )
    about = f"about {most}" if most else "no"
    return f"At G {g:.0f} real data carried {about} spatial components."


def needed_g(separation: Separation, n_components: int, *, revised: bool = True) -> float:
    """Return the smallest G from which a run of this separation is called usable."""
    if separation == "temporal":
        return usable(n_components, revised=revised)
    return LEAST_CLEAR if separation == "spatial" else LEAST_TEMPLATE


def least_g(separation: Separation, n_components: int, *, revised: bool = True) -> float:
    """Return the smallest G at which a run is not refused."""
    if separation == "temporal":
        return usable(n_components, revised=revised)
    return LEAST_SPATIAL if separation == "spatial" else LEAST_TEMPLATE


def expected_q(g: float, n_components: int, *, revised: bool = True) -> float:
    """Return the recovery error q that a temporal run can be expected to have, 0 to .35.

    The measured curve at R = 20, stretched so that q = .1 falls on `usable` of these components.
    """
    if math.isinf(g):
        return 0.0
    stretched = g * usable(20) / usable(n_components, revised=revised)
    known = sorted(Q_AT)
    if stretched >= known[-1]:
        return Q_AT[known[-1]] * known[-1] / stretched
    right = next(x for x in known if x > stretched)
    left = max(x for x in known if x <= stretched)
    part = (stretched - left) / (right - left)
    return Q_AT[left] + part * (Q_AT[right] - Q_AT[left])


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One budget of the curve: what the same sites and subjects give at this epsilon."""

    epsilon: float
    g: float
    usable: bool
    largest_n_components: int
    expected_q: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """Sites, subjects and noise shares of a plan (S, M, h), and its delta."""

    n_sites: int
    n_subjects: int
    noise_shares: int
    delta: float

    def g(self, epsilon: float) -> float:
        """Return G at a total epsilon."""
        mu = gdp_mu(epsilon=epsilon, delta=self.delta)
        return self.g_of(mu)

    def g_of(self, mu: float) -> float:
        """Return G at a total mu."""
        return g_eff(
            n_subjects=self.n_subjects, mu=mu, noise_shares=self.noise_shares, n_sites=self.n_sites
        )

    def epsilon_for(self, g: float) -> float:
        """Return the smallest epsilon that reaches G."""
        return gdp_epsilon(mu=g / self.g_of(1.0), delta=self.delta)


def curve(
    size: Size, separation: Separation, n_components: int, *, epsilon: float, revised: bool = True
) -> tuple[Point, ...]:
    """Return what the same consortium gives at other budgets, the planned one among them."""
    points = []
    for at in sorted({*EPSILONS, epsilon}):
        g = size.g(at)
        temporal = separation == "temporal"
        points.append(
            Point(
                epsilon=at,
                g=g,
                usable=g >= needed_g(separation, n_components, revised=revised),
                largest_n_components=largest_components(separation, g, revised=revised),
                expected_q=expected_q(g, n_components, revised=revised) if temporal else None,
            )
        )
    return tuple(points)


@dataclass(frozen=True, kw_only=True, slots=True)
class Advice:
    """The plain answer to "will it work?", and each single change that would make it work.

    Attributes
    ----------
    answer : {"yes", "no", "perhaps"}
    reason : str
        One sentence.
    changes : tuple of str
        Each by itself is enough; empty if nothing needs to change.
    real_data : str
        What was seen on real data at this G.
    """

    answer: Literal["yes", "no", "perhaps"]
    reason: str
    changes: tuple[str, ...]
    real_data: str


def advice(
    size: Size, separation: Separation, n_components: int, mu: float, *, revised: bool = True
) -> Advice:
    """Return what to tell the owner of a plan.

    Parameters
    ----------
    size : Size
    separation : {"temporal", "spatial", "template"}
    n_components : int
        R, or K templates.
    mu : float
        Of the whole run; inf without noise.
    revised : bool
        See `cape.forecast.temporal.usable`.
    """
    g = size.g_of(mu)
    needed = needed_g(separation, n_components, revised=revised)
    if math.isinf(g):
        return Advice(
            answer="yes",
            reason="no noise is added, so only the data limit the maps; nobody is protected",
            changes=(),
            real_data="",
        )
    words = f"G is {g:.0f}, and {n_components} {_thing(separation)} need about {needed:.0f}"
    real = _real_data(separation, g)
    if g >= needed:
        return Advice(answer="yes", reason=words, changes=(), real_data=real)
    refused = g < least_g(separation, n_components, revised=revised)
    return Advice(
        answer="no" if refused else "perhaps",
        reason=words + (": the maps would mostly show noise" if refused else ""),
        changes=_changes(size, separation, n_components, g, needed, revised=revised),
        real_data=real,
    )


def _changes(
    size: Size, separation: Separation, n_components: int, g: float, needed: float, *, revised: bool
) -> tuple[str, ...]:
    """Return single changes that reach `needed`, computed from the same rule."""
    found = []
    best = largest_usable_components(g, revised=revised) if separation == "temporal" else 0
    if 2 <= best < n_components:
        found.append(f"components: at most {best}")
    found.append(f"subjects: at least {math.ceil(size.n_subjects * needed / g)}")
    found.append(f"epsilon: at least {_up(size.epsilon_for(needed))}")
    trusting = replace(size, noise_shares=size.n_sites)
    if size.noise_shares < size.n_sites and trusting.g_of(1.0) / size.g_of(1.0) * g >= needed:
        found.append("assumed_colluders: 0, if every site trusts all others not to collude")
    if separation == "temporal" and g >= LEAST_CLEAR:
        found.append("separation: spatial, another model, which needs less (docs/separations.md)")
    elif separation == "temporal" and g >= LEAST_TEMPLATE:
        found.append("separation: template, another model, with public template maps")
    return tuple(found)


def _real_data(separation: Separation, g: float) -> str:
    """Return what one real resting-state data set showed at this G."""
    if separation == "temporal":
        if g < USEFUL_ON_REAL_DATA:
            return (
                "On real resting-state data no useful temporal components were seen below G "
                f"{USEFUL_ON_REAL_DATA:.0f}."
            )
        return (
            "On real resting-state data temporal components were no better than a random rotation "
            f"up to G {USEFUL_ON_REAL_DATA:.0f}, the largest that was tried."
        )
    if separation == "spatial":
        return (
            "On one real data set (40 subjects, 10 mm) spatial maps at G 100 / 200 / 400 agreed "
            "with independent subjects by r .50 / .54 / .55; smooth noise gave .34 / .35 / .36."
        )
    return (
        "On one real data set (40 subjects, 10 mm) template maps at G 50 / 100 / 200 / 400 reached "
        "r .74 / .78 / .81 / .82 with independent subjects; without any data they reach .71."
    )


def spatial_verdict(
    size: Size, separation: Separation, n_components: int, mu: float, *, n_basis: int
) -> Verdict:
    """Return the verdict of a spatial or template run in the form of a temporal one."""
    told = advice(size, separation, n_components, mu)
    g, needed = size.g_of(mu), needed_g(separation, n_components)
    finite = math.isfinite(g)
    warnings = []
    room = int(ROWS_PER_COMPONENT * n_basis)
    if separation == "spatial" and n_components > room:
        warnings.append(f"A basis of {n_basis} has room for about {room} components.")
    if separation == "spatial" and finite and n_components > spatial_components(g) > 0:
        warnings.append(most_text(separation, g))
    if told.answer == "perhaps":
        warnings.append(f"Below G {LEAST_CLEAR:.0f} spatial maps are doubtful: {told.reason}.")
    if told.real_data:
        warnings.append(told.real_data)
    best = n_components if not finite else largest_components(separation, g)
    text = f"Usable on synthetic data: {told.reason}."
    if told.answer != "yes":
        text = f"{told.reason[0].upper()}{told.reason[1:]}. What would help: {_joined(told)}."
    return Verdict(
        g=g,
        needed=needed,
        usable=told.answer != "no",
        largest_n_components=min(best, MAX_COMPONENTS),
        smallest_epsilon=size.epsilon_for(needed) if finite else 0.0,
        smallest_n_subjects=math.ceil(needed * size.n_subjects / g) if finite else 0,
        map_energy=math.nan,
        text=text,
        warnings=tuple(warnings),
    )


def _joined(told: Advice) -> str:
    return "; or ".join(told.changes)


def _thing(separation: Separation) -> str:
    return {"temporal": "components", "spatial": "spatial components", "template": "templates"}[
        separation
    ]


def _up(value: float) -> str:
    """Return `value` with three digits, rounded up: a smaller number would not be enough."""
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / step - 1e-9) * step:.6g}"
