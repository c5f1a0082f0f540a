"""Pairs of left and right among the labels of an atlas, from the names of its table.

For the owner, before a run: the setting `label_pairs` holds labels and no names.  A side is a word
of a name, ``left``, ``lh`` or ``l`` in any case and place.  Two labels are a pair if nothing else
in their names differs and no third is called so.  Like names need not be like places (parcels of a
network are often counted on each side by itself), so with the image pairs are compared there too.
"""

from __future__ import annotations

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
