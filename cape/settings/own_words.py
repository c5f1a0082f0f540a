"""A site's statements about its own files, in its site-policy.toml.

They never leave the site, but for `lacks`.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final, Self

from cape.delimited import with_point
from cape.errors import FoundError
from cape.frozen import dataclass
from cape.settings.question import parse_number

POLICY_FILE: Final = "site-policy.toml"
# Keys of the site's file that a run takes from there alone
OWN_WORDS: Final = (
    "layout", "tables", "lacks", "same_people", "different_people", "not_exclusions",
    "variables", "levels", "as_it_is", "decimal_commas",
)  # fmt: skip


def folded(name: str) -> str:
    """Return the name of a column as it is compared."""
    return unicodedata.normalize("NFC", name).strip().lower()


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnWords:
    """What the site says of its files and its people."""

    layout: str = ""  # pattern of the paths of its series
    tables: tuple[str, ...] = ()  # tables of people; none: those that BIDS has
    lacks: tuple[str, ...] = ()  # outcomes of comparisons that it does not have, said to all
    same_people: tuple[tuple[str, ...], ...] = ()  # labels that are one person's
    different_people: tuple[tuple[str, ...], ...] = ()  # labels that only look alike
    not_exclusions: tuple[str, ...] = ()  # columns and files that leave nobody out
    # Of a comparison: a column of the owner, the name of the site's own, and what its numbers are
    # multiplied by; a column, one of its levels, and how the site's table writes it
    variables: tuple[tuple[str, str, float], ...] = ()
    levels: tuple[tuple[str, str, str], ...] = ()
    as_it_is: tuple[str, ...] = ()  # columns that are right though most of their cells look wrong
    decimal_commas: tuple[str, ...] = ()  # columns of numbers such as 41,3

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> Self:
        """Return the words of a parsed file, whose other keys are skipped; FoundError."""
        layout = given.get("layout", "")
        if not isinstance(layout, str):
            raise FoundError('layout is one text, such as "{subject}/rest.nii.gz"')
        texts = {
            name: _texts(name, given.get(name, []))
            for name in ("tables", "lacks", "not_exclusions", "as_it_is", "decimal_commas")
        }
        groups = {
            name: tuple(_texts(name, group) for group in _list(name, given.get(name, [])))
            for name in ("same_people", "different_people")
        }
        columns = tuple(
            (name, *_variable(name, said)) for name, said in _table("variables", given).items()
        )
        levels = tuple(
            (name, level, _word(f"levels.{name}.{level}", word))
            for name in _table("levels", given)
            for level, word in _table(name, _table("levels", given)).items()
        )
        return cls(layout=layout, variables=columns, levels=levels, **texts, **groups)  # type: ignore[arg-type]

    def column(self, name: str) -> str:
        """Return how the site's tables call a column that the owner names."""
        return next((own for one, own, _ in self.variables if folded(one) == folded(name)), name)

    def times(self, name: str) -> float:
        """Return what the numbers of a column are multiplied by."""
        return next((by for one, _, by in self.variables if folded(one) == folded(name)), 1.0)

    def reader(self, name: str) -> Callable[[str], float]:
        """Return what reads a cell of a column in the owner's unit; NaN: it is no number.

        Each cell by itself: one person's cell must not change how others are read.  Where the site
        states decimal commas, a point is no decimal sign: 1.234 may be a thousand.
        """
        by, commas = self.times(name), self._names(self.decimal_commas, name)

        def read(cell: str) -> float:
            text = cell.replace(".", "?").replace(",", ".") if commas else with_point(cell)
            return parse_number(text) * by

        return read

    def level_words(self, name: str) -> dict[str, str]:
        """Return how the site's tables write levels of a column: level -> word."""
        return {level: word for one, level, word in self.levels if folded(one) == folded(name)}

    def takes_as_it_is(self, name: str) -> bool:
        """Tell whether the site states that a column of the owner is right."""
        return self._names(self.as_it_is, name)

    def _names(self, columns: tuple[str, ...], name: str) -> bool:
        """Tell whether columns have that of the owner, by either of its names."""
        return bool(set(map(folded, columns)) & {folded(name), folded(self.column(name))})

    @property
    def other_columns(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.not_exclusions)


def as_tables(name: str, value: object) -> object:
    """Return the value of a key as the site's file writes it: `variables`, `levels` as tables."""
    tables: dict[str, dict[str, object]] = {}
    if name == "variables" and isinstance(value, tuple):
        for one, column, by in value:
            tables[one] = {"column": column, "times": by}
    elif name == "levels" and isinstance(value, tuple):
        for one, level, word in value:
            tables.setdefault(one, {})[level] = word
    else:
        return value
    return tables


def _table(name: str, given: Mapping[str, object]) -> Mapping[str, object]:
    table = given.get(name, {})
    if not isinstance(table, Mapping):
        raise FoundError(f"{name} is a table, such as [variables.icv] or [levels.dx]")
    return table


def _variable(name: str, said: object) -> tuple[str, float]:
    """Return the site's name of a column, and what its numbers are multiplied by."""
    allowed = f'variables.{name} has column = "...", times = a number that is not 0, or both'
    if not isinstance(said, Mapping) or not said or set(said) - {"column", "times"}:
        raise FoundError(allowed)
    column, times = said.get("column", name), said.get("times", 1.0)
    if not isinstance(column, str) or not column.strip():
        raise FoundError(allowed)
    if type(times) not in (int, float) or not 1e-12 <= abs(times) <= 1e12:
        raise FoundError(allowed)
    return column, float(times)


def _word(name: str, word: object) -> str:
    if type(word) in (int, float) and math.isfinite(word):  # type: ignore[arg-type]
        return str(word)  # of a coded column: M = 1
    if not isinstance(word, str) or not word.strip():
        raise FoundError(f'{name} is the text of the cells, such as SZ = "schizophrenia"')
    return word


def _list(name: str, value: object) -> list[object]:
    if not isinstance(value, list | tuple):
        raise FoundError(f'{name} is a list, as {name} = ["..."] above all lines that begin with [')
    return list(value)


def _texts(name: str, value: object) -> tuple[str, ...]:
    texts = _list(name, value)
    if not all(isinstance(text, str) for text in texts):
        raise FoundError(f"{name} holds texts")
    return tuple(map(str, texts))
