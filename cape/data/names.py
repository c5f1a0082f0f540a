"""Labels of people: their normal form, and labels that may mean one person."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from cape.data.issues import IssueCode, UnusableFile
from cape.data.tables import MISSING_CELLS
from cape.settings.own_words import OwnWords

_WHOLE_NUMBER: Final = re.compile(r"(\d+)\.0+")
_LEADING_ZEROS: Final = re.compile(r"(?<![0-9])0+(?=[0-9])")


def normal(text: str) -> str:
    """Return a label as it is compared: NFC, without ``sub-``, a whole number without ``.0``.

    `UnusableFile`: an empty cell or one that stands for it, such as n/a, names nobody.
    """
    if not (label := bare(text)):
        raise UnusableFile(IssueCode.PERSON_UNNAMED, f"'{text[:40]}'")
    return label


def bare(text: str) -> str:
    """Return a label as `normal` does, empty if it names nobody."""
    label = unicodedata.normalize("NFC", text).strip().removeprefix("sub-").strip()
    if number := _WHOLE_NUMBER.fullmatch(label):  # how a spreadsheet writes 7 beside an empty cell
        label = number[1]
    return "" if label.lower() in MISSING_CELLS else label


def natural_key(name: str) -> tuple[tuple[tuple[int, int, str], ...], str]:
    """Return a sort key that puts ``run-2`` before ``run-10``."""
    parts = re.split(r"(\d+)", name.lower())
    key = tuple((0, int(p), "") if p.isdecimal() else (1, 0, p) for p in parts if p)
    return key, name


def likeness(label: str) -> str:
    """Return a label without case, width, separators, leading zeros and what cannot be seen.

    Letters and digits of all scripts count, and one of signs alone is kept.
    """
    return _LEADING_ZEROS.sub("", _signless(_folded(label))) or label


def _folded(label: str) -> str:
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", label).casefold())
    text = text.removeprefix("sub-")  # SUB-01 may be sub-01
    return "".join(str(unicodedata.decimal(sign, sign)) for sign in text)


def _signless(text: str) -> str:
    return "".join(sign for sign in text if unicodedata.category(sign)[0] in "LNM")


def one_label_each(labels: Iterable[str], words: OwnWords) -> Mapping[str, str]:
    """Return for each label in normal form the one that stands for its person.

    The site's own file says which are one person's (`same_people`); the first one given there
    stands for all.
    """
    groups: list[list[str]] = []
    for group in words.same_people:
        joined = list(map(normal, group))
        for other in [other for other in groups if {*other} & {*joined}]:  # 1 as 2, and 2 as 3
            groups.remove(other)
            joined = [*other, *joined]
        groups.append(joined)
    first = {label: group[0] for group in groups for label in group}
    return {label: first.get(label, label) for label in labels}


def labels_alike(labels: Collection[str], words: OwnWords) -> Iterator[tuple[str, str]]:
    """Yield pairs of labels that the site has not said to be of different people."""
    apart = [{normal(label) for label in group} for group in words.different_people]
    by_key: dict[str, set[str]] = defaultdict(set)
    for label in labels:
        # 1-02 is like 102 without its sign, and like 1-2 without its zero.
        for key in {likeness(label), _signless(_LEADING_ZEROS.sub("", _folded(label)))} - {""}:
            by_key[key].add(label)
    pairs = {
        pair
        for group in by_key.values()
        for pair in combinations(sorted(group, key=natural_key), 2)
    }
    for pair in sorted(pairs):
        if not any({*pair} <= group for group in apart):
            yield pair
