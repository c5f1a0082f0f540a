"""Settings of a group comparison: the groups and the public ranges of covariates.

The owner chooses levels and ranges; they are never taken from data.  They bound what a site adds to
a sum, and a range computed from people would reveal the oldest one.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from typing import Final, Literal

from cape.frozen import dataclass
from cape.settings.option import out_of_range

# A range covariate lies within this many public units of 0.  A usual range is about four standard
# deviations wide, so one unit is near one sd.  A covariate of two levels is -1 or 1.
HALF_RANGE: Final = 2.0
# More would need more budget than any run has.
MAX_COVARIATES: Final = 12
MAX_OUTCOMES: Final = 500
MIN_UNIT: Final = 1e-9

_EXAMPLE_GROUP: Final = "a column and its two levels, such as dx: patient, control"
_EXAMPLE_OUTCOMES: Final = (
    "columns with the range of most people, such as hippocampus 2500:5500, or, for values "
    "around 0, with their usual difference, such as score 10"
)
_EXAMPLE: Final = (
    "columns with a range or two levels, such as age 18:90, fd_mean 0:.5, sex female/male"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """A column of two levels; as a covariate the first is 1, the second -1."""

    column: str
    levels: tuple[str, str]

    @property
    def max_value(self) -> float:
        """Largest absolute value in public units."""
        return 1.0

    def which(self, cell: str) -> int:
        """Return 0 or 1, the level of a cell; -1 if it is neither."""
        wanted = _plain(cell)
        return next((i for i, one in enumerate(self.levels) if _plain(one) == wanted), -1)

    def public(self, cell: str) -> tuple[float, bool]:
        """Return a cell in public units (NaN: neither level), and False: it is never clipped."""
        return (1.0, -1.0, math.nan)[self.which(cell)], False

    def cell(self, value: float) -> str | None:
        """Return the level of a value in public units; None for NaN."""
        return self.levels[value < 0] if math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """A column of numbers and the range to which it is clipped, in the column's own unit."""

    column: str
    low: float
    high: float

    @property
    def unit(self) -> float:
        """One public unit, in the column's own unit."""
        return (self.high - self.low) / (2 * HALF_RANGE)

    @property
    def max_value(self) -> float:
        return HALF_RANGE

    def public(self, cell: str) -> tuple[float, bool]:
        value = parse_number(cell)
        if not math.isfinite(value):
            return math.nan, False
        inside = min(max(value, self.low), self.high)
        return (inside - (self.low + self.high) / 2) / self.unit, inside != value

    def cell(self, value: float) -> str | None:
        """Return a value in public units in the column's own unit; None for NaN."""
        own = value * self.unit + (self.low + self.high) / 2
        return f"{own:.6g}" if math.isfinite(own) else None


Covariate = Levels | Range


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """An outcome column of a site's table, with a public unit of about one sd.

    `middle` is subtracted first, because clipping would cut values far from 0 (volumes).
    """

    column: str
    unit: float
    middle: float = 0.0


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Measure:
    """Outcomes computed from a person's time courses of public maps (`person_outcomes`)."""

    kind: MeasureKind
    networks: tuple[str, ...]  # R names
    domains: tuple[str, ...] = ()  # R, one per network; only for kind "domains"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Columns that a site reads for a group comparison; the site says from which tables."""

    group: Covariate
    covariates: tuple[Covariate, ...]
    outcomes: tuple[str, ...] = ()  # columns of one table of people, whose rows are the people
    measure: Measure | None = None  # computed from time courses of public maps
    of_gift: Measure | None = None  # taken from GIFT's results, whose rows are the people

    @property
    def of_tables(self) -> bool:
        """Whether no series are read, and the rows of a table are the people."""
        return self.measure is None


# Kinds that GIFT's results contain
OF_GIFT: Final = ("fnc", "domains", "power")


def parse_question(text: str) -> Covariate:
    """Return two groups, or a range for ``"age 18:90"``; ConfigError E011."""
    column, _, said = text.strip().rpartition(" ")
    ends = [parse_number(end) for end in said.split(":")]
    if column.strip() and len(ends) == 2 and all(map(math.isfinite, ends)):
        return _covariate(text, "group", column.strip(), said)
    return parse_group(text)


@functools.lru_cache(maxsize=8)
def parse_outcomes(text: str) -> tuple[Column, ...]:
    """Return the outcomes of ``"hippocampus 2500:5500, score 10"``; ConfigError E011.

    The unit is a quarter of the range, or the number given for values around 0.
    """
    found = []
    for part in (part.strip() for part in text.split(",")):
        column, _, said = part.rpartition(" ")
        low, colon, high = said.partition(":")
        size, middle = parse_number(said), 0.0
        if colon:
            size = (parse_number(high) - parse_number(low)) / (2 * HALF_RANGE)
            middle = (parse_number(high) + parse_number(low)) / 2
        if not column.strip() or not math.isfinite(size):
            raise out_of_range("outcomes", part or text, _EXAMPLE_OUTCOMES)
        if not MIN_UNIT <= size <= 1.0 / MIN_UNIT:
            do = "give the difference that two people ordinarily have."
            raise out_of_range("outcomes", part, "units from 1e-9 to 1e9", do)
        found.append(Column(column=column.strip(), unit=size, middle=middle))
    _check_columns("outcomes", text[:60], found, MAX_OUTCOMES)
    return tuple(found)


def parse_group(text: str) -> Levels:
    """Return the column and the levels of ``"dx: patient, control"``; ConfigError E011.

    A difference is the first level minus the second.
    """
    column, colon, words = text.partition(":")
    levels = [word.strip() for word in words.split(",")]
    if not column.strip() or not colon or not words.strip():
        raise out_of_range("group", text, _EXAMPLE_GROUP)
    if len(levels) != 2:
        do = "name the two to compare; people of other levels count and add zeros."
        raise out_of_range("group", text, _EXAMPLE_GROUP, do)
    return _two(text, "group", column.strip(), levels, _EXAMPLE_GROUP)


def parse_covariates(text: str) -> tuple[Covariate, ...]:
    """Return the covariates of ``"age 18:90, sex female/male"``; ConfigError E011."""
    found: list[Covariate] = []
    for part in (part.strip() for part in text.split(",")):
        if not part and not text.strip():
            continue
        column, _, said = part.rpartition(" ")
        column = column.strip().removesuffix(":").strip()
        if not column or not said:
            raise out_of_range("covariates", part or text, _EXAMPLE)
        found.append(_covariate(part, "covariates", column, said))
    _check_columns("covariates", text, found, MAX_COVARIATES)
    return tuple(found)


def _check_columns(setting: str, text: str, found: Sequence[Column | Covariate], most: int) -> None:
    names = [one.column.lower() for one in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise out_of_range(setting, text, "every column once", f"name {twice} once.")
    if len(found) > most:
        allowed = f"at most {most} columns"
        raise out_of_range(setting, len(found), allowed, "leave out the least important.")


def check_question(group: Covariate, covariates: Sequence[Covariate]) -> None:
    """Raise ConfigError E011 if a covariate is the column of the groups."""
    if any(one.column.lower() == group.column.lower() for one in covariates):
        allowed, do = f"other columns than that of group ({group.column})", "leave it out."
        raise out_of_range("covariates", group.column, allowed, do)


def _covariate(part: str, setting: str, column: str, said: str) -> Covariate:
    if "/" in said:
        return _two(part, setting, column, said.split("/"), _EXAMPLE)
    low, colon, high = said.partition(":")
    ends = parse_number(low), parse_number(high)
    if not colon or not all(map(math.isfinite, ends)):
        raise out_of_range(setting, part, _EXAMPLE)
    if not ends[0] < ends[1]:
        raise out_of_range(setting, part, "the lower end first", "swap the ends.")
    return Range(column=column, low=ends[0], high=ends[1])


def _two(text: str, setting: str, column: str, words: Sequence[str], allowed: str) -> Levels:
    levels = [word.strip() for word in words]
    if len(levels) != 2 or not all(levels) or len({_plain(word) for word in levels}) < 2:
        raise out_of_range(setting, text, allowed, "name two different levels.")
    return Levels(column=column, levels=(levels[0], levels[1]))


def _plain(cell: str) -> str:
    """Return a cell without case, and numbers in one spelling, as pandas turns 1 into 1.0."""
    word = cell.strip().casefold()
    value = parse_number(word)
    return repr(value) if math.isfinite(value) else word


def parse_number(text: str) -> float:
    """Return the finite number in a cell, else NaN."""
    # float() also accepts 2_5 and digits of other scripts.
    word = text.strip()
    plain = re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", word, re.ASCII | re.IGNORECASE)
    value = float(word) if plain else math.nan
    return value if math.isfinite(value) else math.nan
