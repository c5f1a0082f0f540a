"""Columns of a site's tables of people, for the first settings of a comparison.

Every column is named with its kind: levels, numbers, or why it is neither.  Ranges are usual ones
by name and never those of the data; levels of few people are shown here and go into no file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from cape.data.columns import is_comma, is_reference
from cape.data.folders import words_beside
from cape.data.issues import UnusableFile
from cape.data.marks import EXCLUDE
from cape.data.names import bare, natural_key
from cape.data.people import PeopleList
from cape.data.person_tables import tables_of
from cape.data.tables import MISSING_CELLS, PERSON, SESSION, column_names, places_of, rows_of_people
from cape.frozen import dataclass
from cape.settings.documents import toml_value
from cape.settings.question import MAX_COLUMNS, parse_number, plain, quoted
from cape.settings.usual import Usual, usual_range

# Fewest people of a level whose name goes into a file that all sites read, as `min_group`
FEWEST: Final = 5
# Levels of a column; more are texts.  Whole numbers of at most so many kinds are codes.
_MOST_LEVELS: Final = 8
_MOST_CODES: Final = 4
# Share of the cells that a kind must hold for
_MOST: Final = 0.9
_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*")
_SITES: Final = ("site", "center", "centre", "scanner", "hospital")


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundColumn:
    """A column of all sites' tables."""

    name: str
    table: str  # of the first site that has it
    lacking: tuple[str, ...]  # sites without it
    levels: Mapping[str, int]  # people of each, most first; empty: none
    is_number: bool
    why: str  # why it is neither; "" if it is one

    @property
    def usual(self) -> Usual | None:
        return usual_range(self.name) if self.is_number else None

    @property
    def text(self) -> str:
        what = f"not used: {self.why}"
        if self.levels:
            what = f"levels {', '.join(f'{level} {n}' for level, n in self.levels.items())}"
        elif self.usual:
            unit = f" {self.usual.unit}" if self.usual.unit else ""
            what = f"numbers, usually {self.usual.low:g}:{self.usual.high:g}{unit}"
        elif self.is_number:
            what = "numbers, whose range nobody but you can state"
        return f"{self.table}: {self.name}: {what}" + (
            f"; not at {', '.join(self.lacking)}" if self.lacking else ""
        )


def columns_of(lists: Mapping[str, PeopleList]) -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Return the columns of the tables of all sites, in their order, and why tables have none."""
    cells: dict[str, list[str]] = {}
    where: dict[str, dict[str, str]] = {}  # column -> site -> table
    unread: list[str] = []
    for site, people in lists.items():
        name = ""
        try:
            for name in tables_of(people.folder, words_beside(people.folder)):
                for column, own in _cells(people, name).items():
                    cells.setdefault(column, []).extend(own)
                    where.setdefault(column, {}).setdefault(site, name)
        except UnusableFile as verdict:
            unread.append(f"{site}: {name}: {verdict.issue.code.problem}: {verdict.issue.observed}")
        except OSError as err:
            unread.append(f"{site}: {name}: {err.strerror}")
    found = []
    for name, own in cells.items():
        lacking = [site for site in lists if site not in where[name]]
        found.append(_column(name, next(iter(where[name].values())), own, lacking))
    return tuple(found), unread


def _cells(people: PeopleList, table: str) -> dict[str, list[str]]:
    """Return the cells of people who take part, by column as the table spells it."""
    header, rows = rows_of_people(people.folder / table, comments=True)
    person, _ = places_of(header, ())
    listed = {bare(each.label) for each in people.listed}
    apart = {PERSON, SESSION, EXCLUDE, ""}
    places = {n: header[n].lstrip("\ufeff").strip() for n, name in enumerate(column_names(header))
              if name not in apart}  # fmt: skip
    found: dict[str, list[str]] = {name: [] for name in places.values()}
    for row in rows:
        if row.cells and bare(row.label(table, person)) in listed:
            for place, name in places.items():
                found[name].append(row.cells[place].strip())
    return found


def _column(name: str, table: str, cells: Sequence[str], lacking: Sequence[str]) -> FoundColumn:
    known = [cell for cell in cells if cell.lower() not in MISSING_CELLS]
    numbers = [cell for cell in known if parse_number(cell) == parse_number(cell)]
    kinds = Counter(map(plain, known))
    spelled = {plain(cell): cell for cell in reversed(known)}
    is_number = bool(known) and len(numbers) >= _MOST * len(known)
    whole = is_number and all(parse_number(cell).is_integer() for cell in numbers)
    is_coded = whole and len(kinds) <= _MOST_CODES and usual_range(name) is None
    levels: dict[str, int] = {}
    why = ""
    if not known:
        why = "every cell is empty"
    elif len(kinds) == 1:
        why = "all have one value"
    elif 2 * sum(map(is_comma, known)) > len(known):
        why = "decimal commas: write numbers with a decimal point"
    elif 2 * sum(_DATE.fullmatch(cell) is not None for cell in known) > len(known):
        why = "dates"
    elif is_coded or (not is_number and len(kinds) <= _MOST_LEVELS):
        levels = {spelled[kind]: n for kind, n in kinds.most_common()}
    elif not is_number:
        why = f"texts of {len(kinds)} kinds"
        if numbers:
            why += f", {len(numbers)} of {len(known)} of them numbers"
    return FoundColumn(
        name=name,
        table=table,
        lacking=tuple(lacking),
        levels=levels,
        is_number=is_number and not levels and not why,
        why=why,
    )


def first_question(columns: Iterable[FoundColumn]) -> dict[str, object]:
    """Return the settings of a comparison of these columns, and what is left to its owner."""
    everything = list(columns)
    there = [one for one in everything if not one.lacking]
    groups, open_columns = {}, []
    for one in everything:
        if one.levels and (written := _levels(one)) and not one.lacking:
            groups[one.name] = written
        elif one.levels or (one.is_number and (one.usual is None or one.lacking)):
            open_columns.append(one)
    ranged = [one for one in there if one.usual]
    # The rows of one table are the people whose outcomes are compared.
    outcomes = [one for one in ranged if one.usual and one.usual.is_outcome]
    tables = Counter(one.table for one in outcomes).most_common(1)
    elsewhere = [one for one in outcomes if one.table != tables[0][0]]
    outcomes = [one for one in outcomes if one not in elsewhere]
    groups = {name: groups[name] for name in groups if name.lower() not in _SITES}
    first = next((name for name, written in groups.items() if is_reference(written[0])), "")
    names = sorted(groups, key=lambda name: name != first)
    numbers = [one for one in ranged if one.usual and not one.usual.is_outcome]
    model = [*names, *(one.name for one in numbers)][: MAX_COLUMNS // 2]
    stated = {name: f"{quoted(name)} {'/'.join(map(quoted, groups[name]))}" for name in names}
    stated |= {one.name: _ranged(one) for one in numbers}
    rest = [name for name in stated if name not in model]
    left = [f"{one.name} ({'levels of few people' if one.levels else 'numbers'})"
            for one in (*open_columns, *elsewhere)]  # fmt: skip
    texts = {
        "variables": ", ".join(stated[name] for name in model),
        "formula": " + ".join(map(quoted, model)),
        "outcomes": ", ".join(map(_ranged, outcomes)),
        "public": quoted(names[0]) if names else "",
    }
    return {
        **{name: toml_value(text) for name, text in texts.items()},
        "whole": bool(model and outcomes),
        "some": bool(everything),
        "left": ", ".join([*left, *rest]),
        "unused": ", ".join(f"{one.name} ({one.why})" for one in everything if one.why),
    }


def _levels(column: FoundColumn) -> list[str]:
    """Return the levels that may be written, the reference first; [] if they are fewer than two."""
    written = [level for level, n in column.levels.items() if n >= FEWEST]
    # Not by their number of people, which would go out with the file.
    ordered = sorted(written, key=lambda level: (not is_reference(level), natural_key(level)))
    return ordered if len(written) > 1 else []


def _ranged(column: FoundColumn) -> str:
    usual = usual_range(column.name)
    return "" if usual is None else f"{quoted(column.name)} {usual.low:g}:{usual.high:g}"
