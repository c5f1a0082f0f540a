"""Which axis of tables is time: from names, from sizes that differ, else from the owner."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from cape.data.matrices import Orientation, name_regions
from cape.errors import ConfigError

BY_TIME: Final[Orientation] = "time_by_feature"
BY_FEATURE: Final[Orientation] = "feature_by_time"
# Of columns that are numbered, what the word before the number says.
TIMES: Final = re.compile(r"(t|tr|time|time ?points?|vol|volume|scan|frame)[ ._-]*\d+", re.I)
REGIONS: Final = re.compile(
    r"#?(r|roi|region|parcel|node|area|label|ic|component|network|feature|voxel)[ ._-]*\d+", re.I
)
# Of programs that write a row per time point: DPABI, ABIDE's series, FSL's dual regression
WRITTEN_BY_TIME: Final = re.compile(
    r"ROISignals_.*\.mat|.*_rois_\w+\.1D|dr_stage1_subject\d+\.txt", re.I
)
# Of the files, the share that must differ: one odd file is a fault more often than a length.
DIFFER: Final = 0.25

Shape = tuple[int, int]
# What names and sizes say, and what was seen, in words
Ask = Callable[[Orientation | None, str], Orientation]


def orientation_of(
    names: Sequence[str],
    shapes: Sequence[Shape],
    columns: tuple[str, ...],
    *,
    ask: Ask,
    n_features: int = 0,
) -> Orientation:
    """Return what `ask` makes of what names and sizes say, None where they do not agree.

    `columns` are names that all text tables have, `n_features` is known of an atlas alone.
    """
    said = {_of_columns(columns), _of_files(names), _of_sizes(shapes, n_features)} - {None}
    rows, widths = Counter(s[0] for s in shapes), Counter(s[1] for s in shapes)
    seen = f"{len(shapes)} tables with {counted(rows)} rows and {counted(widths)} columns"
    if len(said) > 1:
        return ask(None, f"{seen}, whose names and sizes contradict each other")
    return ask(next(iter(said), None), seen)


def refuse(found: Orientation | None, seen: str) -> Orientation:
    """Return what was found; where nobody is there to be asked, say what to type."""
    if found:
        return found
    problem = f"nothing says which axis is time in {seen}"
    do = f"type it: a row is one time point with --orientation {BY_TIME}, "
    do += f"the series of one region with --orientation {BY_FEATURE}."
    raise ConfigError("E018", problem=problem, do=do)


def counted(sizes: Counter[int] | set[int]) -> str:
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


def _of_sizes(shapes: Sequence[Shape], n_features: int) -> Orientation | None:
    """Return it where one axis has the parcels of the atlas, or the other one differs by person."""
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
