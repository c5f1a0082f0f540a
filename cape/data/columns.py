"""What a site is told of the columns of a comparison, and which of them it cannot use; private.

A column that most people of a site lack, or whose cells are mostly outside the stated range, of no
level, or all alike, is a fault of the site's table or of its coding, and not of people.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from cape.algorithms.design import Flags
from cape.algorithms.estimators import Array
from cape.data.issues import WHERE_IT_STANDS, Findings, IssueCode
from cape.frozen import dataclass
from cape.settings.documents import toml_key, toml_value
from cape.settings.own_words import OwnWords
from cape.settings.question import HALF_RANGE, Outcome, Variable, parse_number, plain, quoted

# Fewest people, or cells, of whom most make a column a fault of its site
FEWEST_CELLS: Final = 10
# A column is constant if at most two cells, and a tenth, differ from the most frequent: that one
# person has what nobody else has must not be told.
_OTHERS: Final = 2
# Share of those with a value of whom a level is the one that has it
_MOST: Final = 0.9
# People named where a column is told, and words of a column that are shown or mapped
SHOWN: Final = 3
_MAX_WORDS: Final = 12
# Share of the stated range in which all outcomes but `_OTHERS` are alike, too: of a range that is
# so much too wide noise leaves nothing
_NARROW: Final = 0.01
# What numbers of another unit are multiplied by, and what that unit may be
_UNITS: Final = (
    (1e-3, "a thousandth of the unit, as mm3 for cm3"),
    (1e3, "a thousand of the unit, as l for cm3"),
    (0.1, "a tenth of the unit, as mm for cm"),
    (10.0, "ten of the unit, as cm for mm"),
    (0.01, "a hundredth of the unit, as cm for m"),
    (100.0, "a hundred of the unit, as m for cm"),
    (1e-6, "a millionth of the unit"),
    (1e6, "a million of the unit"),
)
_TIMES: Final = ((1 / 12, "months for years"), (1 / 365.25, "days for years"))
_OF_TIME: Final = re.compile(r"age|year|educ|duration|alter", re.IGNORECASE)
# For a word: a guess by its order (1, 2) would be copied, and groups would be swapped.
_UNSAID: Final = "..."
_COMMA: Final = re.compile(r"[+-]?\d+,\d+")
# Words for one level, in small letters
_CONTROLS: Final = (
    "control", "controls", "hc", "healthy", "healthy control", "con", "ctrl", "td", "nc", "cn",
)  # fmt: skip
_ALIKE: Final = (
    _CONTROLS,
    ("m", "male", "man", "boy"),
    ("f", "female", "woman", "girl", "w"),
    ("patient", "patients", "case", "pat", "pt"),
    ("sz", "scz", "schizophrenia", "schz"),
    ("bd", "bp", "bipolar", "bipolar disorder"),
    ("mdd", "depression", "major depression", "major depressive disorder"),
    ("asd", "autism"),
    ("yes", "y", "true", "1.0"),
    ("no", "n", "false", "0.0"),
)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SeenColumn:
    """One column, for the n people of whom it is asked."""

    name: str  # as the owner calls it
    labels: Sequence[str]
    values: Array  # (n,) numbers in the owner's unit, or indices of levels; NaN: none
    others: Mapping[int, str]  # cells that are no number, or of no level, by person
    levels: tuple[str, ...] = ()  # empty: numbers
    ends: tuple[float, float] = (0.0, 0.0)  # of the stated range
    outside: Flags  # (n,) whether a number lies so far outside that it matters
    is_outcome: bool = False
    narrow: int = 0  # outcomes within half of `_NARROW` of the middle one

    @property
    def missing(self) -> Flags:
        """Who has an empty cell or no row (n,)."""
        found = np.isnan(self.values)
        found[list(self.others)] = False
        return found

    def some(self, people: Sequence[int]) -> str:
        """Return a few people, with their cells where these say something."""
        shown = []
        for m in people[:SHOWN]:
            cell = self.others.get(m, "" if np.isnan(self.values[m]) else f"{self.values[m]:.6g}")
            shown.append(f"{self.labels[m]} '{cell[:20]}'" if cell else self.labels[m])
        return ", ".join(shown)


def seen_variable(variable: Variable, labels: Sequence[str], cells: Sequence[str]) -> SeenColumn:
    """Return a column of the formula; `cells` are in the owner's words and unit, "" if missing."""
    values = variable.code(cells)
    others = {m: cells[m] for m in np.flatnonzero(np.isnan(values)).tolist() if cells[m]}
    ends = (0.0, 0.0)
    if variable.is_range:
        values = np.array([parse_number(cell) for cell in cells], dtype=np.float64)
        ends = (variable.low, variable.high)
    return SeenColumn(
        name=variable.name,
        labels=labels,
        values=values,
        others=others,
        levels=variable.levels,
        ends=ends,
        outside=(values < ends[0]) | (values > ends[1]) if variable.is_range else values < 0,
    )


def seen_outcome(
    outcome: Outcome, labels: Sequence[str], u: Array, others: Mapping[int, str]
) -> SeenColumn:
    """Return an outcome by its values u (n,) in public units.

    Its range is that of most people, and its scale is found from data: only a value more than a
    width from the middle lies outside.
    """
    with np.errstate(all="ignore"):
        natural = np.array([*u, -HALF_RANGE, HALF_RANGE]) * outcome.unit + outcome.middle
        natural = np.exp(natural) if outcome.log else natural
        middle = float(np.median(known)) if len(known := u[~np.isnan(u)]) else 0.0
    return SeenColumn(
        name=outcome.name,
        labels=labels,
        values=natural[:-2],
        others=others,
        ends=(float(natural[-2]), float(natural[-1])),
        outside=np.abs(u) > 2 * HALF_RANGE,
        is_outcome=True,
        narrow=int((np.abs(u - middle) < _NARROW * HALF_RANGE).sum()),
    )


def tell(
    seen: SeenColumn,
    words: OwnWords,
    findings: Findings,
    *,
    stops: bool,
    only_faults: bool,
    groups: Mapping[str, Sequence[str]],
) -> bool:
    """Note a fault of a whole column, or how many cells are odd; tell whether it is a fault.

    `stops`: whether a fault stops the site, which its own file may overrule (`as_it_is`).
    `groups`: as for `whole_fault`.
    """
    with np.errstate(all="ignore"):  # whatever stands in a cell
        fault = None if words.takes_as_it_is(seen.name) else whole_fault(seen, words, groups)
    here = words.column(seen.name)
    if fault is not None:
        findings.add(
            IssueCode.COLUMN_UNUSABLE,
            f"{here}: {fault.what}",
            public={"what": "a column"},
            stops=stops,
            remedy=mending(seen.name, fault, words),
        )
    if fault is not None or only_faults:
        return fault is not None
    n = len(seen.labels)
    unread = IssueCode.GROUP_NONE if seen.levels else IssueCode.VALUE_UNCLEAR
    far = IssueCode.VALUE_FAR if seen.is_outcome else IssueCode.COVARIATE_CLIPPED
    for code, people in (
        (IssueCode.VALUE_NONE, np.flatnonzero(seen.missing).tolist()),
        (unread, list(seen.others)),
        (far, np.flatnonzero(seen.outside).tolist()),
    ):
        if people:
            findings.add(code, f"{here}: {len(people)} of {n}, such as {seen.some(people)}")
    cells = int((~seen.missing).sum())
    if cells >= FEWEST_CELLS and cells - seen.narrow <= min(_OTHERS, cells // FEWEST_CELLS):
        low, high = seen.ends
        what = f"{seen.narrow} of {cells} are within a hundredth of {low:g}:{high:g}"
        findings.add(IssueCode.RANGE_WIDE, f"{here}: {what}")
    if n and (absent := _absent(seen)):
        found = same_words(absent, [plain(cell) for cell in seen.others.values()])
        perhaps = f"; perhaps {_lines(seen, found)}" if found else ""
        findings.add(IssueCode.LEVEL_NOBODY, f"{here}: {', '.join(absent)}{perhaps}")
    return False


def mending(name: str, fault: Fault, words: OwnWords) -> str:
    """Return what the site does about a fault of a column, and what it says if there is none."""
    right = f"as_it_is = {toml_value([*words.as_it_is, name])}"
    return f"{fault.remedy}; if the column is right, write {right}; {WHERE_IT_STANDS}"


def is_reference(level: str) -> bool:
    """Tell whether a level is one that others are compared with."""
    return plain(level) in _CONTROLS


# -- faults of a whole column --------------------------------------------------------------------


class Fault(NamedTuple):
    """Why a site cannot use a column, and what mends it."""

    what: str
    remedy: str


def is_sparse(missing: Flags) -> bool:
    """Tell whether most people of a site lack a column, where they are enough to judge."""
    return len(missing) >= FEWEST_CELLS and 2 * int(missing.sum()) > len(missing)


def asked_of(missing: Flags, groups: Mapping[str, Sequence[str]]) -> str:
    """Return the level, as `among` has it, of those who have a column that others lack; or ""."""
    for name, cells in groups.items():
        have = Counter(plain(cells[m]) for m in np.flatnonzero(~missing).tolist())
        word, n = have.most_common(1)[0] if have else ("", 0)
        if word and n >= _MOST * have.total() and len(set(map(plain, cells))) > 1:
            level = next(cell for cell in cells if plain(cell) == word)
            return f"{quoted(name)} {quoted(level)}"
    return ""


def whole_fault(
    seen: SeenColumn, words: OwnWords, groups: Mapping[str, Sequence[str]]
) -> Fault | None:
    """Return the fault of a column as a whole; None without one, or below `FEWEST_CELLS`.

    `groups`: the levels of the same people in other columns, by which the owner may ask some alone.
    """
    n, missing = len(seen.labels), int(seen.missing.sum())
    cells = n - missing
    if is_sparse(seen.missing):
        other = f'variables.{toml_key(seen.name)}.column = "..."'
        remedy = f"fill the cells, or name the column that is meant, as {other}"
        if seen.is_outcome:
            lacks = toml_value([*words.lacks, seen.name])
            remedy += f", or write lacks = {lacks} if it was not measured"
        else:
            remedy += ", or ask the owner to take it out of the formula"
            if among := asked_of(seen.missing, groups):
                remedy += f" or to ask among = {toml_value(among)}"
        return Fault(f"{missing} of {n} people have no value", remedy)
    if cells < FEWEST_CELLS:
        return None
    if 2 * (len(seen.others) + int(seen.outside.sum())) > cells:
        return fault_of_levels(seen, cells) if seen.levels else _of_numbers(seen, words, cells)
    if len(seen.levels) == 1:
        return None
    known = seen.values[~np.isnan(seen.values)]
    value, often = Counter(known.tolist()).most_common(1)[0]
    few = min(_OTHERS, cells // FEWEST_CELLS)
    if cells - often <= few:
        what = seen.levels[int(value)] if seen.levels else f"{value:.6g}"
        return Fault(f"{often} of {cells} are {what}: constant?", "correct the column")
    return None


def _of_numbers(seen: SeenColumn, words: OwnWords, cells: int) -> Fault:
    low, high = seen.ends
    texts = list(seen.others.values())
    if 2 * len(texts) > cells:
        shown = ", ".join(f"'{text[:20]}'" for text in texts[:SHOWN])
        is_commas = 2 * sum(map(is_comma, texts)) > len(texts)
        why = "decimal commas?" if is_commas else "no numbers"
        what = f"{len(texts)} of {cells} cannot be read, such as {shown}: {why}"
        line = f"write {commas_of(seen.name, words)}, or numbers" if is_commas else "write numbers"
        return Fault(what, f"{line} alone, with a decimal point")
    known = seen.values[~np.isnan(seen.values)]
    middle, away = float(np.median(known)), int(seen.outside.sum())
    far = "far " if seen.is_outcome else ""
    what = f"{away} of {cells} {far}outside {low:g}:{high:g}, middle {middle:.3g}"

    def inside(times: float) -> int:
        return int(((low <= known * times) & (known * times <= high)).sum())

    ways = (*_TIMES, *_UNITS) if _OF_TIME.search(seen.name) else (*_UNITS, *_TIMES)
    times, unit = max(ways, key=lambda way: inside(way[0]))
    if 2 * inside(times) <= len(known):
        return Fault(what, "correct the column, or ask the owner for another range")
    by = times * words.times(seen.name)
    remedy = f"write variables.{toml_key(seen.name)}.times = {by:.10g}"
    return Fault(f"{what}: {unit}?", f"{remedy}, which brings {inside(times)} inside")


def commas_of(name: str, words: OwnWords) -> str:
    """Return the line that states a column of decimal commas."""
    line = f"decimal_commas = {toml_value([*words.decimal_commas, name])}"
    return f"{line} (one list of all such columns)"


def is_comma(text: str) -> bool:
    """Tell whether a cell is a number with a decimal comma."""
    return _COMMA.fullmatch(text.strip()) is not None


def fault_of_levels(seen: SeenColumn, cells: int) -> Fault:
    """Return the fault of a column of `cells` cells, most of which are of no stated level."""
    often = [word for word, _ in Counter(map(plain, seen.others.values())).most_common()]
    spelled = _spelled(seen)
    shown = ", ".join(f"'{spelled[word][:20]}'" for word in often[:SHOWN])
    what = f"{len(seen.others)} of {cells} are of none of {', '.join(seen.levels)}, such as {shown}"
    pairs = _paired(_absent(seen), often[:_MAX_WORDS])
    if not pairs:
        return Fault(what, "correct the cells, or ask the owner for other levels")
    doubt = f', with the word that means it for "{_UNSAID}"' if _UNSAID in pairs.values() else ""
    return Fault(f"{what}: another coding?", f"write {_lines(seen, pairs)}{doubt}")


def _spelled(seen: SeenColumn) -> dict[str, str]:
    """Return the words that are no level, as the site first writes them, by `plain`."""
    return {plain(cell): cell.strip() for cell in reversed(list(seen.others.values()))}


def _lines(seen: SeenColumn, pairs: Mapping[str, str]) -> str:
    """Return what the site writes where a word stands for a level."""
    column, spelled = toml_key(seen.name), _spelled(seen)
    return ", ".join(
        f"levels.{column}.{toml_key(level)} = {toml_value(spelled.get(word, word))}"
        for level, word in pairs.items()
    )


def _absent(seen: SeenColumn) -> list[str]:
    """Return the levels of which nobody is."""
    there = set(seen.values[~np.isnan(seen.values)].tolist())
    return [level for code, level in enumerate(seen.levels) if code not in there]


def same_words(levels: Sequence[str], often: Sequence[str]) -> dict[str, str]:
    """Return for levels the words that are usual ones of the same; `often`, as `plain` gives."""
    pairs: dict[str, str] = {}
    for level in levels:
        same = next((group for group in _ALIKE if plain(level) in group), ())
        if word := next((w for w in often if w in same and w not in pairs.values()), ""):
            pairs[level] = word
    return pairs


def _paired(levels: Sequence[str], often: Sequence[str]) -> dict[str, str]:
    """Return a word for levels: `_UNSAID` where one of them is meant, and only the site knows."""
    pairs = same_words(levels, often)
    rest, n_left = len(levels) - len(pairs), len(often) - len(pairs)
    if rest <= n_left <= rest + 1:
        pairs |= {level: _UNSAID for level in levels if level not in pairs}
    return pairs
