"""Measures of a person's time courses of public maps, as outcomes of a comparison, and their names.

How they are computed is in `cape.algorithms.person_outcomes`.
"""

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement
from typing import Final, Literal

from cape.frozen import dataclass

MeasureKind = Literal["fnc", "domains", "power", "falff", "loadings"]
# Public unit of an edge, Fisher z, near the sd over people
UNIT_OF_Z: Final = 0.2
# Kind of outcome -> (unit in words, public unit near the sd over people, middle near their mean),
# from synthetic brains (`cape.lab.synthetic.compared`)
UNITS: Final[dict[str, tuple[str, float, float]]] = {
    "fnc": ("Fisher z", UNIT_OF_Z, 0.0),
    "domains": ("Fisher z", UNIT_OF_Z, 0.0),
    "power": ("log10 of the part of the power", 0.15, -0.35),
    "falff": ("part of the amplitude", 0.05, 0.4),
    "loadings": ("log of the standard deviation", 0.3, -1.8),
}
# Kinds that GIFT's results contain
OF_GIFT: Final = ("fnc", "domains", "power")
# Hz: two bands that a repetition time of 2 s reaches
POWER_BANDS: Final = ((0.01, 0.1), (0.1, 0.25))


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """Outcomes computed from a person's time courses of public maps (`person_outcomes`)."""

    kind: MeasureKind
    networks: tuple[str, ...]  # R names
    domains: tuple[str, ...] = ()  # R, one per network, or none


def outcome_names(measure: Measure) -> tuple[str, ...]:
    """Return the names of the K outcomes."""
    networks = measure.networks
    if measure.kind == "fnc":
        return edge_names(networks)
    if measure.kind == "domains":
        return domain_names(measure.domains)
    if measure.kind == "power":
        spans = [f"{low:g}-{high:g} Hz" for low, high in POWER_BANDS]
        return tuple(f"{name} {span}" for name in networks for span in spans)
    return networks


def edge_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of all pairs, row by row of the upper triangle."""
    return tuple(f"{one} - {other}" for one, other in combinations(names, 2))


def domain_names(domains: Sequence[str]) -> tuple[str, ...]:
    """Return the names of edges within and between domains, in the order of their first network.

    A domain of one network has no edges within.
    """
    named = tuple(dict.fromkeys(domains))
    return tuple(
        one if one == other else f"{one} - {other}"
        for one, other in combinations_with_replacement(named, 2)
        if one != other or domains.count(one) > 1
    )
