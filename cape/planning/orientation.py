"""Find which axis of tables is time, from names and sizes, or ask the owner."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from cape.data.matrices import Orientation, name_regions
from cape.errors import ConfigError

BY_TIME: Final[Orientation] = "time_by_feature"
BY_FEATURE: Final[Orientation] = "feature_by_time"
# Numbered column names of time points and of regions
TIMES: Final = re.compile(r"(t|tr|time|time ?points?|vol|volume|scan|frame)[ ._-]*\d+", re.I)
REGIONS: Final = re.compile(
    r"#?(r|roi|region|parcel|node|area|label|ic|component|network|feature|voxel)[ ._-]*\d+", re.I
)
# Files with a row per time point: DPABI, ABIDE's series, FSL's dual regression
WRITTEN_BY_TIME: Final = re.compile(
    r"ROISignals_.*\.mat|.*_rois_\w+\.1D|dr_stage1_subject\d+\.txt", re.I
)
# Share of files that must differ in length: a single odd file is more often a fault.
DIFFER: Final = 0.25

_Shape = tuple[int, int]
# Called with the orientation by names and sizes (None: unclear) and a description
AskAxis = Callable[[Orientation | None, str], Orientation]


def orientation_of(
    names: Sequence[str],
    shapes: Sequence[_Shape],
    columns: tuple[str, ...],
    *,
    ask: AskAxis,
    n_features: int = 0,
) -> Orientation:
    """Return the answer of `ask` to the orientation by names and sizes (None: they disagree).

    `columns` are names shared by all text tables; `n_features` is 0 unless an atlas gives it.
    """
    answers = {_of_columns(columns), _of_files(names), _of_sizes(shapes, n_features)} - {None}
    rows, widths = Counter(s[0] for s in shapes), Counter(s[1] for s in shapes)
    seen = f"{len(shapes)} tables with {range_of(rows)} rows and {range_of(widths)} columns"
    if len(answers) > 1:
        return ask(None, f"{seen}, whose names and sizes contradict each other")
    return ask(next(iter(answers), None), seen)


def refuse(found: Orientation | None, seen: str) -> Orientation:
    """Return `found`; ConfigError E018 with the options to type if it is None."""
    if found:
        return found
    problem = f"neither names nor sizes show which axis is time in {seen}"
    do = f"if a row is one time point, type --orientation {BY_TIME}, "
    do += f"if it is the series of one region, --orientation {BY_FEATURE}."
    raise ConfigError("E018", problem=problem, do=do)


def range_of(sizes: Counter[int] | set[int]) -> str:
    if not sizes:
        return "not known"
    return f"{min(sizes)}" if len(sizes) == 1 else f"{min(sizes)} to {max(sizes)}"


def _of_columns(columns: tuple[str, ...]) -> Orientation | None:
    if columns and all(TIMES.fullmatch(name.strip()) for name in columns):
        return BY_FEATURE
    numbered = columns and all(REGIONS.fullmatch(name.strip()) for name in columns)
    return BY_TIME if numbered or name_regions(columns) else None


def _of_files(names: Sequence[str]) -> Orientation | None:
    return BY_TIME if names and all(WRITTEN_BY_TIME.fullmatch(n) for n in names) else None


def _of_sizes(shapes: Sequence[_Shape], n_features: int) -> Orientation | None:
    """Return the orientation if one axis has the atlas's parcels or only one differs by person."""
    rows, columns = [shape[0] for shape in shapes], [shape[1] for shape in shapes]
    of_rows = bool(shapes) and all(n == (n_features or rows[0]) for n in rows)
    of_columns = bool(shapes) and all(n == (n_features or columns[0]) for n in columns)
    if of_rows == of_columns:
        return None
    lengths = columns if of_rows else rows
    odd = len(lengths) - max(Counter(lengths).values())
    if not n_features and odd < DIFFER * len(lengths):
        return None
    return BY_FEATURE if of_rows else BY_TIME
