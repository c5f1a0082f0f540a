"""A site's statements about its own files, in its site-policy.toml.

They never leave the site, but for `lacks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self

from cape.errors import FoundError
from cape.frozen import dataclass

POLICY_FILE: Final = "site-policy.toml"
# Keys of the site's file that a run takes from there alone
OWN_WORDS: Final = (
    "layout", "tables", "lacks", "same_people", "different_people", "not_exclusions",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnWords:
    """What the site says of its files and its people."""

    layout: str = ""  # pattern of the paths of its series
    tables: tuple[str, ...] = ()  # tables of people; none: those that BIDS has
    lacks: tuple[str, ...] = ()  # outcomes of comparisons that it does not have, said to all
    same_people: tuple[tuple[str, ...], ...] = ()  # labels that are one person's
    different_people: tuple[tuple[str, ...], ...] = ()  # labels that only look alike
    not_exclusions: tuple[str, ...] = ()  # columns and files that leave nobody out

    @classmethod
    def from_mapping(cls, given: Mapping[str, object]) -> Self:
        """Return the words of a parsed file, whose other keys are skipped; FoundError."""
        layout = given.get("layout", "")
        if not isinstance(layout, str):
            raise FoundError('layout is one text, such as "{subject}/rest.nii.gz"')
        texts = {
            name: _texts(name, given.get(name, []))
            for name in ("tables", "lacks", "not_exclusions")
        }
        groups = {
            name: tuple(_texts(name, group) for group in _list(name, given.get(name, [])))
            for name in ("same_people", "different_people")
        }
        return cls(layout=layout, **texts, **groups)  # type: ignore[arg-type]

    @property
    def other_columns(self) -> frozenset[str]:
        return frozenset(name.strip().lower() for name in self.not_exclusions)


def _list(name: str, value: object) -> list[object]:
    if not isinstance(value, list | tuple):
        raise FoundError(f"{name} is a list")
    return list(value)


def _texts(name: str, value: object) -> tuple[str, ...]:
    texts = _list(name, value)
    if not all(isinstance(text, str) for text in texts):
        raise FoundError(f"{name} holds texts")
    return tuple(map(str, texts))
