"""Forecast rules of the models of one release: spatial ICA and template maps."""

import math
from collections.abc import Mapping
from typing import ClassVar, Final

from cape.algorithms.templates import FEW_TEMPLATES, MAX_TEMPLATES
from cape.forecast.rule import ForecastRule, RunSize, size_text
from cape.frozen import dataclass

# Minimum G, size of the kernel basis d, components R, number of them found again in other people
# (|r| of bagged maps above .5; smooth noise gives 1 or 2), number of claims "yes"
SPATIAL_SIZES: Final[tuple[tuple[float, int, int, int, int], ...]] = (
    (50.0, 40, 12, 7, 0),
    (70.0, 53, 12, 9, 3),
    (90.0, 64, 15, 12, 6),
    (140.0, 90, 15, 13, 8),
    (200.0, 130, 18, 15, 11),
    (350.0, 240, 18, 16, 16),
    (800.0, 300, 18, 17, 17),
)
# d of a run without noise in the mask of a whole brain: on four generators at 10 mm its maps were
# better than those of 300
NOISELESS_SIZE: Final = 600
# Data of `SPATIAL_SIZES`
MEASURED_ON: Final = "40 resting adults, 10 mm"

# Private dual regression: minimum G and d; its centre was calibrated with these sizes.
TEMPLATE_SIZES: Final[tuple[tuple[float, int], ...]] = (
    (50.0, 40),
    (90.0, 53),
    (150.0, 64),
    (350.0, 80),
)

# Minimum G of a spatial run; below it, maps show noise, and the owner has to accept that.
MIN_SPATIAL_G: Final = 50.0

# Minimum G at which spatial maps were good on synthetic data (ISI below .1)
MIN_CLEAR_G: Final = 90.0

# Maximum of R over d
MAX_R_OVER_D: Final = 0.3

# Minimum G at which private dual regression of at most `FEW_TEMPLATES` was better than maps without
# data; more need `MORE_G` each, for maps as near to planted networks as templates of r .60 are.
MIN_TEMPLATE_G, MORE_G = 50.0, 8.0
# d over K of many templates: of 75 to 250 directions for 53 the maps were alike
MANY_DIRECTIONS: Final = 1.4


def spatial_basis_size(g: float, n_components: int) -> int:
    """Return d of a spatial run: that of its G, or more if R components need it."""
    return _basis({row[0]: row[1] for row in SPATIAL_SIZES}, g, n_components)


def spatial_components(g: float) -> int:
    """Return R of a spatial run: the number that real data had at G, at least the first row's."""
    return (_row_at(g) or SPATIAL_SIZES[0])[2]


def _row_at(g: float) -> tuple[float, int, int, int, int] | None:
    return next((row for row in reversed(SPATIAL_SIZES) if g >= row[0]), None)


def room_for(n_basis: int) -> int:
    """Return the maximum R for a basis of d, approximately."""
    return int(MAX_R_OVER_D * n_basis)


def template_basis_size(g: float, n_templates: int) -> int:
    """Return d of a template run: that of its G, or more if K templates need it."""
    if n_templates > FEW_TEMPLATES:
        of_g = _basis(dict(TEMPLATE_SIZES), g, 0)
        return max(of_g, math.ceil(MANY_DIRECTIONS * n_templates))
    return _basis(dict(TEMPLATE_SIZES), g, n_templates)


def _basis(sizes: Mapping[float, int], g: float, n_components: int) -> int:
    # A larger basis is sharper and noisier: it grows with G.
    d = max((d for min_g, d in sizes.items() if g >= min_g), default=min(sizes.values()))
    return max(d, math.ceil(n_components / MAX_R_OVER_D))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpatialRule(ForecastRule):
    """Rule of spatial ICA: maps that are independent of each other over the brain."""

    noun: ClassVar[str] = "spatial components"

    def needed_g(self) -> float:
        return MIN_CLEAR_G

    def refused_below(self) -> float:
        return MIN_SPATIAL_G

    def reason(self, g: float) -> str:
        need = f"{MIN_CLEAR_G:.0f}"
        if g < MIN_CLEAR_G:
            need = f"{MIN_CLEAR_G:.0f} to be sure, {MIN_SPATIAL_G:.0f} at least"
        expected = self._expected(g)
        size = size_text(g, MIN_CLEAR_G, MIN_SPATIAL_G)
        about = f"the effective size is {size}, and {self.noun} need {need}"
        return f"{about}: {expected}" if expected else about

    def networks(self, g: float) -> str:
        row = _row_at(g) if self.brains else None
        # What was measured of 12 maps says nothing of 3.
        return "" if row is None or row[2] != self.n_components else f"{row[3]} of {row[2]}"

    def _expected(self, g: float) -> str:
        if (row := _row_at(g)) is None:
            return "the maps would mostly show noise"
        if not self.brains:
            return ""
        marked = f"{row[4] or 'none'} of them marked yes ({MEASURED_ON})"
        if not (networks := self.networks(g)):
            has = f"{row[3]} of {row[2]} maps of such a run were networks of other people, too"
            return f"{has}, {marked}; of {self.n_components} nothing was measured"
        return f"about {networks} maps are expected to be networks of other people, too, {marked}"

    def synthetic_data(self, g: float) -> str:
        return (
            "On synthetic data of effective size 100 focal maps came back by r .83, maps that are "
            "not sparse by r .42."
        )

    def largest_components(self, g: float) -> int:
        row = _row_at(g)
        return row[2] if row else 0

    def largest_text(self, g: float) -> str:
        largest = self.largest_components(g)
        about = f"about {largest}" if largest else "no"
        return f"At effective size {g:.0f} real data carried {about} spatial components."

    def real_data(self, g: float) -> str:
        row = _row_at(g)
        if row is None or not self.brains:
            return ""
        return (
            f"On one real data set ({MEASURED_ON}) at effective size {row[0]:.0f} about {row[3]} "
            f"of {row[2]} networks were found again in other people; noise alone gives 1 to 2."
        )

    def _warnings(self, size: RunSize, mu: float, n_basis: int) -> tuple[str, ...]:
        g = size.g_of(mu)
        warnings = []
        # Too many components for a basis split networks instead of finding more.
        room = room_for(n_basis)
        if self.n_components > room:
            warnings.append(f"A basis of {n_basis} has room for about {room} components.")
        if math.isfinite(g) and self.n_components > self.largest_components(g) > 0:
            warnings.append(self.largest_text(g))
        return (*warnings, *ForecastRule._warnings(self, size, mu, n_basis))


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateRule(ForecastRule):
    """Rule of private dual regression: maps that start from public templates."""

    noun: ClassVar[str] = "templates"

    def needed_g(self) -> float:
        return MIN_TEMPLATE_G + MORE_G * max(0, self.n_components - FEW_TEMPLATES)

    def reason(self, g: float) -> str:
        needed = self.needed_g()
        noise = "" if g >= needed else ": the maps would mostly show noise"
        many = f"{self.n_components} " if self.n_components > FEW_TEMPLATES else ""
        size = size_text(g, needed)
        return f"the effective size is {size}, and {many}{self.noun} need {needed:.0f}{noise}"

    def _changes(self, size: RunSize, g: float) -> tuple[str, ...]:
        fewer = self.largest_components(g)
        ways = (f"templates: at most {fewer}",) if 0 < fewer < self.n_components else ()
        return (*ForecastRule._changes(self, size, g), *ways)

    def synthetic_data(self, g: float) -> str:
        if self.n_components > FEW_TEMPLATES:
            return (
                "On synthetic data maps of 53, 105 and 200 templates of r .60 with the networks "
                "were as near to them at effective sizes of 310, 730 and 1490."
            )
        return (
            "On synthetic data templates that correlate by .60 with the networks gave maps of r "
            ".76 at effective size 100; without any data they have .48."
        )

    def largest_components(self, g: float) -> int:
        if g < MIN_TEMPLATE_G:
            return 0
        # Of few templates G limits the detail, not the number.
        return min(FEW_TEMPLATES + int(min(g, 1e9) - MIN_TEMPLATE_G) // int(MORE_G), MAX_TEMPLATES)

    def real_data(self, g: float) -> str:
        if not self.brains or self.n_components > FEW_TEMPLATES:
            return ""
        return (
            f"On one real data set ({MEASURED_ON}) template maps at effective sizes of 50, 100, "
            "200 and 400 reached r .74, .78, .81 and .82 with independent subjects; without any "
            "data they reach .71."
        )
