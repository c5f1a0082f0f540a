"""Columns that a site writes otherwise than the others, or that a run could not use there.

What a run would tell that site (`cape.data.columns`) is told before there are settings; private.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from cape.data.columns import (
    SHOWN,
    Fault,
    commas_of,
    fault_of_levels,
    is_comma,
    is_reference,
    same_words,
    seen_outcome,
    seen_variable,
    whole_fault,
)
from cape.data.names import natural_key
from cape.data.tables import MISSING_CELLS
from cape.settings.own_words import OwnWords
from cape.settings.question import Outcome, Variable, parse_number, plain
from cape.settings.usual import usual_range

# Levels of a column; more are texts.  Whole numbers of at most so many kinds are codes.
MOST_LEVELS: Final = 8
_MOST_CODES: Final = 4
# Share of the cells that a kind must hold for
_MOST: Final = 0.9
_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}.*")
NUMBERS, COMMAS, DATES, TEXTS = "numbers", "decimal commas", "dates", "texts"


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
    name: str, levels: Sequence[str], cells: Sequence[str], words: OwnWords
) -> Fault | None:
    """Return for what a run would refuse a column of a site; `levels`: none for numbers."""
    labels, usual = [""] * len(cells), usual_range(name)
    known = ["" if cell.lower() in MISSING_CELLS else cell for cell in cells]
    if levels:
        variable = Variable(name=name, levels=tuple(levels))
    elif usual is not None:
        variable = Variable(name=name, low=usual.low, high=usual.high)
    else:
        return None
    if usual is None or not usual.is_outcome:
        return whole_fault(seen_variable(variable, labels, known), words)
    values = np.array([parse_number(cell) for cell in known])
    others = {m: known[m] for m in np.flatnonzero(np.isnan(values)).tolist() if known[m]}
    outcome = Outcome(name=name, unit=variable.unit, middle=variable.middle)
    u = (values - outcome.middle) / outcome.unit
    return whole_fault(seen_outcome(outcome, labels, u, others), words)
