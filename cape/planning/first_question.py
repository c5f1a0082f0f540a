"""Propose groups and covariates for `cape init` from one site's own table.

Only column names and levels of several people are taken from it.  Ranges are public ones that
belong to a column's name, whatever its values.  The proposal is a comment in settings, because the
owner must choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cape.data.exclusions import read_list
from cape.data.issues import UnusableFile
from cape.data.tables import MISSING_CELLS
from cape.errors import ConfigError
from cape.settings.comparison import parse_covariates, parse_group, parse_number

GROUPS: Final = ("dx", "diagnosis", "group", "dx_group", "diag", "patient_group", "clinical_group")
# Reference levels; a reference becomes the second level.
CONTROLS: Final = ("control", "controls", "hc", "cn", "nc", "td", "healthy", "con", "ctrl", "0")
RANGES: Final = {
    "age": "18:90", "fd_mean": "0:.5", "mean_fd": "0:.5", "meanfd": "0:.5", "education": "0:25",
    "iq": "60:140", "fiq": "60:140", "tiv": "1000:2000", "icv": "1000:2000",
}  # fmt: skip
SEXES: Final = ("sex", "gender")
SEX_LEVELS: Final = (("female", "male"), ("f", "m"), ("1", "2"), ("0", "1"))
# Characters that a word in a setting cannot contain
UNFIT: Final = ',:"\\'
# A level with fewer people is not named to other sites.
MIN_LEVEL_PEOPLE: Final = 5


def first_question(table: Path) -> dict[str, str]:
    """Return settings for a comparison; {} for a table without two groups."""
    try:
        (_, header), *lines = read_list(table, comments=False)
    except (OSError, UnusableFile, ValueError):
        return {}
    names = [cell.lstrip("\ufeff").strip() for cell in header]
    cells = {
        name: [row[i].strip() for _, row in lines if i < len(row)] for i, name in enumerate(names)
    }
    group = next((said for name in names if (said := _group(name, cells[name]))), "")
    covariates = ", ".join(said for name in names if (said := _covariate(name, cells[name])))
    try:
        parse_group(group)
        parse_covariates(covariates)
    except ConfigError:  # a name that settings do not allow
        return {}
    return {"group": group, "covariates": covariates}


def _group(name: str, cells: Sequence[str]) -> str:
    levels = sorted(_levels(cells))
    unfit = any({*word} & {*UNFIT} for word in levels)
    if name.lower() not in GROUPS or len(levels) < 2 or unfit:
        return ""
    # Choose by name, not by number of people.
    second = next((word for word in levels if word.lower() in CONTROLS), levels[1])
    first = next(word for word in levels if word != second)
    return f"{name}: {first}, {second}"


def _levels(cells: Sequence[str]) -> Mapping[str, int]:
    counts = Counter(cell for cell in cells if cell.lower() not in MISSING_CELLS)
    return {word: n for word, n in counts.items() if n >= MIN_LEVEL_PEOPLE}


def _covariate(name: str, cells: Sequence[str]) -> str:
    column = name.lower()
    if column in RANGES and any(parse_number(cell) == parse_number(cell) for cell in cells):
        return f"{name} {RANGES[column]}"
    words = {word.lower(): word for word in _levels(cells)}
    pair = next((pair for pair in SEX_LEVELS if {*pair} <= {*words}), None)
    if column in SEXES and pair:
        return f"{name} {words[pair[0]]}/{words[pair[1]]}"
    return ""
