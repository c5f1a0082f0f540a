"""Pairs of left and right labels of an atlas, from the names of its table.

The owner uses them before a run: the setting `label_pairs` holds labels without names.  A side is a
word of a name, ``left``, ``lh`` or ``l`` in any case and position.  Two labels are a pair if their
names differ only in the side and no third label has that name.  Equal names need not mean mirrored
places (parcels of a network are often numbered per side), so an image adds a check of places.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from cape.frozen import dataclass
from cape.space.feature_space import FeatureSpace, coordinates

LEFT: Final = ("left", "lh", "l")
RIGHT: Final = ("right", "rh", "r")
# thalamusLeft, LHThalamus and L1 are two words each, as thalamus_left is.
_WORDS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_A-Za-z]+")
_JOINED: Final = re.compile(r"(left|right)([a-z]{3,})|([a-z]{3,})(left|right)")


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelPairs:
    """Every label of a table, in rising order, in one of four lists."""

    pairs: tuple[tuple[int, int], ...]  # left, right
    apart: tuple[tuple[int, int], ...]  # paired by name, but not mirror images of each other
    single: tuple[int, ...]  # with a side, but without exactly one partner
    middle: tuple[int, ...]  # names with no side, or with both

    def setting(self) -> str:
        """Return the text of `label_pairs`."""
        return ",".join(f"{left}-{right}" for left, right in self.pairs)


def pair_names(names: Mapping[int, str]) -> LabelPairs:
    """Pair labels by their names."""
    words = {label: _words(name) for label, name in names.items()}
    pairs: list[tuple[int, int]] = []
    # Single letters count as sides only if needed: `left area L` is the partner of `right area L`,
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
    words: list[str] = []
    for word in map(str.lower, _WORDS.findall(name)):
        joined = _JOINED.fullmatch(word)
        words += [part for part in joined.groups() if part] if joined else [word]
    return tuple(words)


def _side(words: tuple[str, ...], depth: int) -> tuple[str, tuple[str, ...]]:
    """Return ``left``, ``right`` or "", and the words with a blank for each side."""
    left, right = LEFT[:depth], RIGHT[:depth]
    sides = {"left" if word in left else "right" for word in words if word in (*left, *right)}
    rest = tuple("" if word in (*left, *right) else word for word in words)
    return (sides.pop() if len(sides) == 1 else ""), rest


def compare_places(by_name: LabelPairs, space: FeatureSpace) -> LabelPairs:
    """Leave out pairs that are absent from the image or not mirror images of each other.

    A pair stays if each centre, mirrored, is nearer to its partner's than to any other label's.
    The mirror plane is the median of the midpoints of all pairs.
    """
    image, centres = space.labels(), coordinates(space)
    labels: list[int] = np.unique(image[image > 0]).tolist()
    places = dict(zip(labels, centres, strict=True))
    here = [pair for pair in by_name.pairs if pair[0] in places and pair[1] in places]
    missing = sorted({label for pair in by_name.pairs if pair not in here for label in pair})
    by_name = replace(by_name, single=tuple(sorted((*by_name.single, *missing))))
    if not here:
        return replace(by_name, pairs=())
    middle = float(np.median([(places[a][0] + places[b][0]) / 2.0 for a, b in here]))

    def across(label: int) -> int:
        x, y, z = places[label]
        mirror = np.array([2.0 * middle - x, y, z])
        return labels[int(np.argmin(np.sum((centres - mirror) ** 2, axis=1)))]

    fits = tuple((a, b) for a, b in here if across(a) == b and across(b) == a)
    return replace(by_name, pairs=fits, apart=tuple(pair for pair in here if pair not in fits))
