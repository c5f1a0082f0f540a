"""A question about groups as Python has it, in the words of the settings."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from cape.settings.option import out_of_range
from cape.settings.question import quoted

Range = tuple[float, float]
Words = str | Sequence[str]
# Characters of an argument that an error shows
MAX_SHOWN = 60


def question_in_words(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings whose mappings and lists of columns are text."""
    said = dict(settings)
    for name in ("variables", "outcomes"):
        if isinstance(said.get(name), Mapping):
            said[name] = column_words(name, said[name])
    for name in ("public", "ask", "change"):
        if isinstance(said.get(name), list | tuple):
            said[name] = listed_words(name, said[name])
    return said


def listed_words(name: str, words: Any) -> str:
    if isinstance(words, str):
        return words
    if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
        raise out_of_range(name, type(words).__name__, "text, or a list of texts")
    return ", ".join(words)


def column_words(setting: str, columns: object) -> str:
    """Return columns as the settings write them: ``dx control/SZ, age 18:90``."""
    if isinstance(columns, str):
        return columns
    if not isinstance(columns, Mapping):
        form = {"variables": "{'dx': ['control', 'SZ'], 'age': (18, 90)}"}
        allowed = f"a mapping such as {form.get(setting, str({'hippocampus': (2500, 5500)}))}"
        raise out_of_range(setting, type(columns).__name__, allowed)
    return ", ".join(
        f"{_name(str(name))} {_ends_or_levels(setting, name, of)}" for name, of in columns.items()
    )


def _name(name: str) -> str:
    inside = name.removeprefix("log(").removesuffix(")")
    return f"log({quoted(inside)})" if name == f"log({inside})" else quoted(name)


def _ends_or_levels(setting: str, column: object, of: Any) -> str:
    name = f"{setting}[{column!r}]"
    levels = setting == "variables"
    if levels and isinstance(of, set | frozenset):  # its order is another in every process
        do = "give a list: the first is the reference."
        raise out_of_range(name, "a set, which has no order", "levels in their order", do)
    one_by_one = isinstance(of, Iterable) and not isinstance(of, str | Mapping | set | frozenset)
    there = list(of) if one_by_one else []
    numbers = all(isinstance(one, Real) and not isinstance(one, bool) for one in there)
    if isinstance(of, tuple) and len(of) == 2 and numbers:
        return f"{of[0]}:{of[1]}"
    if levels and not numbers and not any(one is None for one in there):
        return "/".join(quoted(str(level)) for level in there)
    # Of one number, of none; and a list of 18 and 90 may be either.
    allowed = "a range as a tuple, or levels as text" if levels else "a range as a tuple"
    low, high = there if numbers and len(there) == 2 else (18, 90) if levels else (2500, 5500)
    do = f"write ({low}, {high}) for a range"
    if levels:
        do += f", ['{low}', '{high}'] for levels"
    if levels and isinstance(of, str) and "/" in of:
        do = f"write {[level.strip() for level in of.split('/')]}"
    got = repr(of) if len(repr(of)) <= MAX_SHOWN else type(of).__name__  # no columns of people
    raise out_of_range(name, got, allowed, f"{do}.")
