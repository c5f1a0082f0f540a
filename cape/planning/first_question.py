"""Columns of a site's tables of people, for the first settings of a comparison.

Every column is named with its kind: levels, numbers, or why it is neither.  Ranges are usual ones
by name and never those of the data; levels of few people are shown here and go into no file.  What
a run would tell a site of its columns (`cape.data.columns`) is told before there are settings.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.data.columns import (
    SHOWN,
    Fault,
    asked_of,
    commas_of,
    fault_of_levels,
    is_comma,
    is_reference,
    is_sparse,
    mending,
    same_words,
    seen_outcome,
    seen_variable,
    whole_fault,
)
from cape.data.folders import words_beside
from cape.data.groups import OurWords
from cape.data.issues import UnusableFile
from cape.data.marks import EXCLUDE
from cape.data.names import bare, natural_key
from cape.data.people import PeopleList
from cape.data.person_tables import near_name, tables_of
from cape.data.tables import MISSING_CELLS, PERSON, SESSION, column_names, places_of, rows_of_people
from cape.frozen import dataclass
from cape.settings.documents import toml_key, toml_value
from cape.settings.own_words import POLICY_FILE, OwnWords, folded
from cape.settings.question import MAX_COLUMNS, Outcome, Variable, parse_number, plain, quoted
from cape.settings.usual import Usual, usual_range

# Fewest people of a level whose name goes into a file that all sites read, as `min_group`
FEWEST: Final = 5
_WRITE: Final = f"write into its {POLICY_FILE}"
_SITES: Final = ("site", "center", "centre", "scanner", "hospital")

# Levels of a column; more are texts.  Whole numbers of at most so many kinds are codes.
MOST_LEVELS: Final = 8
_MOST_CODES: Final = 4
# Share of the cells that a kind must hold for
_MOST: Final = 0.9
_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*")
NUMBERS, COMMAS, DATES, TEXTS = "numbers", "decimal commas", "dates", "texts"


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundColumn:
    """A column of all sites' tables."""

    name: str
    table: str  # of the first site that has it
    lacking: tuple[str, ...]  # sites without it
    levels: Mapping[str, int]  # people of each, most first; empty: none
    is_number: bool
    why: str  # why it is neither; "" if it is one
    sparse: bool = False  # whether most people of some site lack it
    has_some: bool = True  # whether most people of another site have it
    among: str = ""  # the level of those who have it, as `among` names it

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

    @property
    def left(self) -> str:
        """What the column has, and why its owner is to state it."""
        lacking = f", not at {', '.join(self.lacking)}" if self.lacking else ""
        few = "" if _levels(self) else " of few people"
        return f"levels{few}{lacking}" if self.levels else f"numbers{lacking}"


def columns_of(lists: Mapping[str, PeopleList]) -> tuple[tuple[FoundColumn, ...], list[str]]:
    """Return the columns of the tables of all sites, in their order, and what sites must mend.

    That is: tables that cannot be read, and columns that a run could not use there.
    """
    cells: dict[str, dict[str, list[str]]] = {}  # column -> site -> cells
    spelled: dict[str, str] = {}  # column -> its name at the first site that has it
    where: dict[str, dict[str, str]] = {}  # column -> site -> table
    words = {site: words_beside(people.folder) for site, people in lists.items()}
    told: list[str] = []
    for site, people in lists.items():
        name = ""
        try:
            for name in tables_of(people.folder, words[site]):
                for column, own in _cells(people, name, words[site]).items():
                    key = folded(column)
                    spelled.setdefault(key, column)
                    cells.setdefault(key, {}).setdefault(site, []).extend(own)
                    where.setdefault(key, {}).setdefault(site, name)
        except UnusableFile as verdict:
            told.append(f"{site}: {name}: {verdict.issue.code.problem}: {verdict.issue.observed}")
        except OSError as err:
            told.append(f"{site}: {name}: {err.strerror}")
    found = []
    for key, by_site in cells.items():
        name, lacking = spelled[key], [site for site in lists if site not in where[key]]
        for site in lacking:
            apart = [spelled[k] for k, sites in where.items() if list(sites) == [site]]
            if near := near_name(name, apart):
                line = f"variables.{toml_key(name)}.column = {toml_value(near)}"
                told.append(f"{site}: no column {name}; if it is '{near}' there, {_WRITE} {line}")
        right = {site for site, own in words.items() if own.takes_as_it_is(name)}
        judged = {site: own for site, own in by_site.items() if site not in right}
        judged = {} if name.lower() in _SITES else judged
        faults = unlike(name, judged, words)
        alike = {site: own for site, own in by_site.items() if site not in faults}
        lacked = {site: _missing(own) for site, own in by_site.items()}
        # Where nobody has it, another column may be meant.
        sparse = [s for s, missing in lacked.items() if is_sparse(missing) and not missing.all()]
        groups = {
            site: {
                spelled[k]: others[site]
                for k, others in cells.items()
                if k != key and len(others.get(site, ())) == len(by_site[site])
                if where[k][site] == where[key][site] and _are_groups(spelled[k], others[site])
            }
            for site in sparse
        }
        found.append(
            replace(
                _column(name, next(iter(where[key].values())), alike, lacking),
                sparse=bool(sparse),
                has_some=len(sparse) < len(by_site),
                among=asked_of(lacked[sparse[0]], groups[sparse[0]]) if sparse else "",
            )
        )
        levels = _levels(found[-1])
        for site, own in judged.items() if not found[-1].why else ():
            fault = faults.get(site) or fault_in_run(
                name, levels, own, words[site], groups.get(site, {})
            )
            if fault is not None:
                place = f"{site}: {where[key][site]}: {words[site].column(name)}: {fault.what}"
                told.append(f"{place}{'' if place.endswith('?') else '.'} To mend it: "
                            f"{mending(name, fault, words[site])}")  # fmt: skip
    return tuple(found), told


def _cells(people: PeopleList, table: str, words: OwnWords) -> dict[str, list[str]]:
    """Return the cells of people who take part, by column; both as the owner calls them."""
    header, rows = rows_of_people(people.folder / table, comments=True)
    person, _ = places_of(header, ())
    listed = {bare(each.label) for each in people.listed}
    apart = {PERSON, SESSION, EXCLUDE, ""}
    of_owner = {folded(own): name for name, own, _ in words.variables}
    places: dict[str, tuple[int, OurWords]] = {}
    for place, name in enumerate(column_names(header)):
        if name not in apart:
            column = of_owner.get(name, header[place].lstrip("\ufeff").strip())
            stated = Variable(name=column, levels=tuple(words.level_words(column)))
            places[column] = place, OurWords(stated, words)
    found: dict[str, list[str]] = {name: [] for name in places}
    for row in rows:
        if row.cells and bare(row.label(table, person)) in listed:
            for name, (place, ours) in places.items():
                found[name].append(ours.of(row.cells[place].strip()))
    return found


def _missing(cells: Sequence[str]) -> npt.NDArray[np.bool_]:
    return np.array([cell.lower() in MISSING_CELLS for cell in cells], dtype=bool)


def _are_groups(name: str, cells: Sequence[str]) -> bool:
    return bool(known := known_cells(cells)) and are_levels(name, known)


def _column(
    name: str, table: str, cells: Mapping[str, Sequence[str]], lacking: Sequence[str]
) -> FoundColumn:
    each = [known for own in cells.values() if (known := known_cells(own))]
    known = [cell for own in each for cell in own]
    kinds = Counter(map(plain, known))
    spelled = {plain(cell): cell for cell in reversed(known)}
    kind = kind_of_cells(known) if known else ""
    levels: dict[str, int] = {}
    why = ""
    if not known:
        why = "every cell is empty"
    elif len(kinds) == 1:
        why = "all have one value"
    elif kind == COMMAS:
        why = "decimal commas: write numbers with a decimal point, or state decimal_commas"
    elif kind == DATES:
        why = "dates"
    elif len(each) > 1 and all(len(set(map(plain, own))) == 1 for own in each):
        why = "one value at each site"
    elif are_levels(name, known):
        levels = {spelled[word]: n for word, n in kinds.most_common()}
    elif kind == TEXTS:
        why = f"texts of {len(kinds)} kinds"
        if numbers := sum(parse_number(cell) == parse_number(cell) for cell in known):
            why += f", {numbers} of {len(known)} of them numbers"
    return FoundColumn(
        name=name,
        table=table,
        lacking=tuple(lacking),
        levels=levels,
        is_number=not levels and not why,
        why=why,
    )


def first_question(columns: Iterable[FoundColumn]) -> dict[str, object]:
    """Return the settings of a comparison of these columns, and what is left to its owner."""
    everything = list(columns)
    there = [one for one in everything if not (one.lacking or _is_left(one))]
    groups, open_columns = {}, []
    for one in everything:
        if one.levels and (written := _levels(one)) and one in there:
            groups[one.name] = written
        elif one.levels or (one.is_number and (one.usual is None or one not in there)):
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
    left = [f"{one.name} ({one.left})" for one in (*open_columns, *elsewhere)]
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


def _is_left(column: FoundColumn) -> bool:
    """Tell whether a run would refuse a question with the column, as most people lack it.

    An outcome that some sites lack they say so of.
    """
    is_outcome = column.usual is not None and column.usual.is_outcome
    return bool(column.sparse) and not (is_outcome and column.has_some)


def why_left(column: FoundColumn) -> str:
    """Return why a column is in no question, or ""; for this site, as settings go to all."""
    if not _is_left(column):
        return ""
    ask = f"; those who have it are asked by among = {toml_value(column.among)}"
    return f"{column.name}: most people have none{ask if column.among else ''}"


def _levels(column: FoundColumn) -> tuple[str, ...]:
    """Return the levels that may be written, the reference first; () if they are fewer than two."""
    written = [level for level, n in column.levels.items() if n >= FEWEST]
    return in_order(written) if len(written) > 1 else ()


def _ranged(column: FoundColumn) -> str:
    usual = usual_range(column.name)
    return "" if usual is None else f"{quoted(column.name)} {usual.low:g}:{usual.high:g}"


# -- columns that a site writes otherwise than the others, or that a run could not use there -------


def known_cells(cells: Sequence[str]) -> list[str]:
    return [cell for cell in cells if cell.lower() not in MISSING_CELLS]


def kind_of_cells(known: Sequence[str]) -> str:
    """Return what most of some cells are, none of which is missing."""
    if 2 * sum(_DATE.fullmatch(cell) is not None for cell in known) > len(known):
        return DATES
    n_numbers = sum(parse_number(cell) == parse_number(cell) for cell in known)
    # Those that have one reading are read: one cell that has two is asked about.
    n_commas = sum(map(is_comma, known))
    if n_commas and n_commas + n_numbers >= _MOST * len(known):
        return COMMAS
    return NUMBERS if n_numbers >= _MOST * len(known) else TEXTS


def are_levels(name: str, known: Sequence[str]) -> bool:
    """Tell whether cells may be the levels of a column, as words or as codes."""
    kinds, kind = len(set(map(plain, known))), kind_of_cells(known)
    if kind == NUMBERS:
        numbers = [value for cell in known if (value := parse_number(cell)) == value]
        whole = all(value.is_integer() for value in numbers)
        return whole and kinds <= _MOST_CODES and usual_range(name) is None
    return kind == TEXTS and kinds <= MOST_LEVELS


def in_order(levels: Iterable[str]) -> tuple[str, ...]:
    """Return levels, the reference first, and not by people, whose number would go out with it."""
    return tuple(sorted(levels, key=lambda level: (not is_reference(level), natural_key(level))))


def unlike(
    name: str, cells: Mapping[str, Sequence[str]], words: Mapping[str, OwnWords]
) -> dict[str, Fault]:
    """Return which sites write a column otherwise than the others do, and what mends it."""
    known = {site: own for site, every in cells.items() if (own := known_cells(every))}
    kinds = {site: kind_of_cells(own) for site, own in known.items()}
    found: dict[str, Fault] = {}
    if all(are_levels(name, own) for own in known.values()):
        return _other_words(name, known)
    # A comma is a number that is badly written, however many sites write it so.
    most = Counter(kinds.values()).most_common(1)[0][0]
    most = NUMBERS if most == COMMAS and NUMBERS in kinds.values() else most
    for site, kind in kinds.items():
        if kind != most:
            shown = ", ".join(f"'{cell[:20]}'" for cell in known[site][:SHOWN])
            remedy = f"write {most} as at the other sites"
            if kind == COMMAS:
                remedy = f"write {commas_of(name, words[site])}, or a decimal point"
            found[site] = Fault(f"{kind}, such as {shown}; {most} elsewhere", remedy)
    return found


def _other_words(name: str, known: Mapping[str, Sequence[str]]) -> dict[str, Fault]:
    """Return the sites whose words for levels stand for others' words, or are none of them."""
    kinds = {site: Counter(map(plain, own)) for site, own in known.items()}
    often = Counter(word for own in kinds.values() for word in own)

    def shared(site: str) -> tuple[int, bool, int]:
        texts = any(parse_number(word) != parse_number(word) for word in kinds[site])
        return sum(often[word] - 1 for word in kinds[site]), texts, len(known[site])

    levels: dict[str, str] = {}
    found = {}
    for site in sorted(known, key=shared, reverse=True):
        spelled = {plain(cell): cell for cell in reversed(known[site])}
        foreign = [word for word, _ in kinds[site].most_common() if word not in levels]
        absent = [level for word, level in levels.items() if word not in spelled]
        # Remarks are words of few people, which others hardly share.
        strange = len(known[site]) >= 2 * len(spelled) > 2 and len(foreign) == len(spelled)
        if levels and foreign and (strange or same_words(absent, foreign)):
            variable = Variable(name=name, levels=in_order(levels.values()))
            seen = seen_variable(variable, (), known[site])
            found[site] = fault_of_levels(seen, len(known[site]))
        else:
            levels |= spelled
    return found


def fault_in_run(
    name: str,
    levels: Sequence[str],
    cells: Sequence[str],
    words: OwnWords,
    groups: Mapping[str, Sequence[str]],
) -> Fault | None:
    """Return for what a run would refuse a column of a site; `levels`: none for numbers.

    `groups`: as for `whole_fault`.
    """
    labels, usual = [""] * len(cells), usual_range(name)
    known = ["" if cell.lower() in MISSING_CELLS else cell for cell in cells]
    if levels:
        variable = Variable(name=name, levels=tuple(levels))
    elif usual is not None:
        variable = Variable(name=name, low=usual.low, high=usual.high)
    else:
        return None
    if usual is None or not usual.is_outcome:
        return whole_fault(seen_variable(variable, labels, known), words, groups)
    values = np.array([parse_number(cell) for cell in known])
    others = {m: known[m] for m in np.flatnonzero(np.isnan(values)).tolist() if known[m]}
    outcome = Outcome(name=name, unit=variable.unit, middle=variable.middle)
    u = (values - outcome.middle) / outcome.unit
    return whole_fault(seen_outcome(outcome, labels, u, others), words, groups)
