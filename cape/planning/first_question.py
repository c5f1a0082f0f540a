"""What `cape init` proposes of groups and covariates, from the words of one site's own table.

Words alone are taken from it: which columns there are, and levels that several people have.  Ranges
are public ones of a column's name, whatever values stand there.  It is a comment in settings, as to
propose is to choose.
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
from cape.settings.comparison import number, parse_covariates, parse_group

TABLE: Final = "participants.tsv"
GROUPS: Final = ("dx", "diagnosis", "group", "dx_group", "diag", "patient_group", "clinical_group")
# The second level is what others are compared with.
CONTROLS: Final = ("control", "controls", "hc", "cn", "nc", "td", "healthy", "con", "ctrl", "0")
RANGES: Final = {
    "age": "18:90", "fd_mean": "0:.5", "mean_fd": "0:.5", "meanfd": "0:.5", "education": "0:25",
    "iq": "60:140", "fiq": "60:140", "tiv": "1000:2000", "icv": "1000:2000",
}  # fmt: skip
SEXES: Final = ("sex", "gender")
PAIRS: Final = (("female", "male"), ("f", "m"), ("1", "2"), ("0", "1"))
# What a word in a setting cannot have
UNFIT: Final = ',:"\\'
# Fewer have a level of their own: their word is none to send to others
FEWEST: Final = 5


def first_question(table: Path) -> dict[str, str]:
    """Return settings that a comparison could have; {} of a table without two groups."""
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
    except ConfigError:  # words that a setting cannot hold
        return {}
    return {"group": group, "covariates": covariates}


def _group(name: str, cells: Sequence[str]) -> str:
    levels = sorted(_levels(cells))
    unfit = any({*word} & {*UNFIT} for word in levels)
    if name.lower() not in GROUPS or len(levels) < 2 or unfit:
        return ""
    # By their words, not by how many people have them.
    second = next((word for word in levels if word.lower() in CONTROLS), levels[1])
    first = next(word for word in levels if word != second)
    return f"{name}: {first}, {second}"


def _levels(cells: Sequence[str]) -> Mapping[str, int]:
    found = Counter(cell for cell in cells if cell.lower() not in MISSING_CELLS)
    return {word: n for word, n in found.items() if n >= FEWEST}


def _covariate(name: str, cells: Sequence[str]) -> str:
    known = name.lower()
    if known in RANGES and any(number(cell) == number(cell) for cell in cells):
        return f"{name} {RANGES[known]}"
    words = {word.lower(): word for word in _levels(cells)}
    pair = next((pair for pair in PAIRS if {*pair} <= {*words}), None)
    if known in SEXES and pair:
        return f"{name} {words[pair[0]]}/{words[pair[1]]}"
    return ""
