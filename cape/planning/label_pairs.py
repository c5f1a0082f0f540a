"""Pairs of left and right among the labels of an atlas, from the names of its table.

For the owner, before a run: the setting `label_pairs` holds labels and no names.  A side is a word
of a name, ``left``, ``lh`` or ``l`` in any case and place.  Two labels are a pair if nothing else
in their names differs and no third is called so.  Like names need not be like places (parcels of a
network are often counted on each side by itself), so with the image pairs are compared there too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from cape.data.issues import UnusableFile
from cape.data.tables import bounded, table_cells
from cape.delimited import Line, delimiter_of
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.space.feature_space import FeatureSpace, coordinates

LEFT: Final = ("left", "lh", "l")
RIGHT: Final = ("right", "rh", "r")
# Columns of tables, the first that is there: what the numbers, the names and the sides are called.
NUMBERS: Final = ("index", "label", "value", "id", "key", "number", "no", "no.", "roi")
NAMES: Final = tuple("name,region,structure,label,label_name,label name,roi,roi_name".split(","))
SIDES: Final = ("hemisphere", "hemi", "side", "lr")
# A line of a colour table: number, name, red, green, blue, and alpha or nothing; or of ITK-SNAP.
_COLOURS: Final = re.compile(r"\s*(\d+)\s+(?:(?:[\d.]+\s+)+\"(.+)\"|(\S.*?)(?:\s+\d+){3,4})\s*")
_KNOWN: Final = (
    "give a .tsv or .csv with a header that has index and name, or a colour table with lines such "
    "as '17 Left-Hippocampus 220 216 20 0'."
)
# thalamusLeft, LHThalamus and L1 are two words each, as thalamus_left is.
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_JOINED: Final = re.compile(r"(left|right)([a-z]{3,})|([a-z]{3,})(left|right)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPairs:
    """Every label of a table, in rising order, in one of four lists."""

    pairs: tuple[tuple[int, int], ...]  # left, right
    apart: tuple[tuple[int, int], ...]  # called so, but not the mirror images of each other
    single: tuple[int, ...]  # of a side, without exactly one label like it on the other
    middle: tuple[int, ...]  # whose names say no side, or both

    def setting(self) -> str:
        """Return the text of `label_pairs`."""
        return ",".join(f"{left}-{right}" for left, right in self.pairs)


def pair_names(names: Mapping[int, str]) -> LabelPairs:
    """Pair labels by their names."""
    words = {label: _words(name) for label, name in names.items()}
    pairs: list[tuple[int, int]] = []
    # Letters are sides only where that is needed: `left area L` is the partner of `right area L`,
    # but `FP l (Frontal Pole Left)` that of `FP r (Frontal Pole Right)`.
    for depth in (2, 3):
        taken = {label for pair in pairs for label in pair}
        groups: dict[tuple[str, ...], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for label in sorted(set(words) - taken):
            side, rest = _side(words[label], depth)
            groups[rest][side].append(label)
        for group in groups.values():
            if len(group["left"]) == len(group["right"]) == 1:
                pairs.append((group["left"][0], group["right"][0]))
    taken = {label for pair in pairs for label in pair}
    alone = sorted(set(names) - taken)
    single = tuple(label for label in alone if _side(words[label], 3)[0])
    middle = tuple(label for label in alone if label not in single)
    return LabelPairs(pairs=tuple(sorted(pairs)), apart=(), single=single, middle=middle)


def _words(name: str) -> tuple[str, ...]:
    found: list[str] = []
    for word in map(str.lower, _WORDS.findall(name)):
        joined = _JOINED.fullmatch(word)
        found += [part for part in joined.groups() if part] if joined else [word]
    return tuple(found)


def _side(words: tuple[str, ...], depth: int) -> tuple[str, tuple[str, ...]]:
    """Return ``left``, ``right`` or "", and the words with a blank for each side."""
    left, right = LEFT[:depth], RIGHT[:depth]
    found = {"left" if word in left else "right" for word in words if word in (*left, *right)}
    rest = tuple("" if word in (*left, *right) else word for word in words)
    return (found.pop() if len(found) == 1 else ""), rest


def compare_places(found: LabelPairs, space: FeatureSpace) -> LabelPairs:
    """Leave out pairs that are not where the other's mirror image is, or not in the image at all.

    A pair stays if each centre, mirrored, is nearer to its partner's than to any other label's.
    The plane between the sides is the median of the middles of all pairs.
    """
    image, centres = space.labels(), coordinates(space)
    labels: list[int] = np.unique(image[image > 0]).tolist()
    places = dict(zip(labels, centres, strict=True))
    here = [pair for pair in found.pairs if pair[0] in places and pair[1] in places]
    missing = sorted({label for pair in found.pairs if pair not in here for label in pair})
    found = replace(found, single=tuple(sorted((*found.single, *missing))))
    if not here:
        return replace(found, pairs=())
    middle = float(np.median([(places[a][0] + places[b][0]) / 2.0 for a, b in here]))

    def across(label: int) -> int:
        x, y, z = places[label]
        mirror = np.array([2.0 * middle - x, y, z])
        return labels[int(np.argmin(np.sum((centres - mirror) ** 2, axis=1)))]

    fits = tuple((a, b) for a, b in here if across(a) == b and across(b) == a)
    return replace(found, pairs=fits, apart=tuple(pair for pair in here if pair not in fits))


# ------------------------------------------------------------------------------- the table


def read_label_table(path: Path) -> dict[int, str]:
    """Return the names of labels of a table with a header (csv, tsv) or of a colour table.

    ConfigError: it is neither, or a number stands twice.
    """
    try:
        content = bounded(path)
        if path.suffix.lower() in (".csv", ".tsv"):
            rows = _rows(table_cells(content, delimiter_of(path.name)))
        else:
            rows = _colours(content.decode("utf-8-sig"))
    except (UnusableFile, OSError, ValueError) as err:
        problem = f"the label table cannot be read: {err}"
        raise ConfigError("E018", problem=problem, do=_KNOWN) from err
    # 0 is what lies outside.
    named = [(label, name) for label, name in rows if label > 0]
    twice = sorted(label for label, n in Counter(label for label, _ in named).items() if n > 1)
    if twice:
        do = "give every label one line."
        raise ConfigError("E018", problem=f"label {twice[0]} stands twice in the table", do=do)
    return dict(named)


def _rows(table: list[tuple[Line, tuple[str, ...]]]) -> list[tuple[int, str]]:
    columns = [cell.lower() for cell in table[0][1]]
    rows = [cells for _, cells in table[1:]]
    whole = {k for k in range(len(columns)) if all(row[k].isdecimal() for row in rows)}
    number = _column(columns, NUMBERS, whole)
    name = _column(columns, NAMES, set(range(len(columns))) - whole)
    if number is None or name is None or not rows:
        raise ValueError(f"no numbers or no names in columns {', '.join(columns)}")
    side = _column(columns, SIDES, set(range(len(columns))) - {name, number})
    return [
        (int(row[number]), row[name] if side is None else f"{row[side]} {row[name]}")
        for row in rows
    ]


def _column(columns: list[str], wanted: tuple[str, ...], allowed: set[int]) -> int | None:
    at = (columns.index(column) for column in wanted if column in columns)
    return next((place for place in at if place in allowed), None)


def _colours(text: str) -> list[tuple[int, str]]:
    rows = []
    for at, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _COLOURS.fullmatch(line)
        if match is None:
            raise ValueError(f"line {at}")
        rows.append((int(match[1]), match[2] or match[3]))
    if not rows:
        raise ValueError("no lines")
    return rows
