"""What a page is made of: plain records, so that the template only decides on looks.

The same page is written by the template (with pictures) or by `cape.report.page_html` (without any
library).  Texts are plain text; escaping is the writers' work.
"""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A paragraph; `tone` "warning" sets it apart, "quote" marks text to copy."""

    kind: ClassVar[str] = "text"
    text: str
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bullets:
    """A list of sentences under a heading of its own."""

    kind: ClassVar[str] = "bullets"
    title: str
    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A table; columns from `numeric_from` on are aligned to the right."""

    kind: ClassVar[str] = "grid"
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric_from: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A PNG in base64, its size in pixels, and the sentence that states what it shows."""

    kind: ClassVar[str] = "picture"
    png: str
    width: int
    height: int
    alt: str
    caption: str = ""
    shape: str = ""  # for the style sheet: strip, square, chart or bar


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One component: its name, a line of numbers, a picture if there is one."""

    kind: ClassVar[str] = "entry"
    title: str
    facts: tuple[tuple[str, str], ...]
    picture: Picture | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """A long table, or many pictures, behind a line to click on; printed in full."""

    kind: ClassVar[str] = "fold"
    summary: str
    grid: Grid | None = None
    pictures: tuple[Picture, ...] = ()


Block = Text | Bullets | Grid | Picture | Entry | Fold


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One number at the top of the page."""

    title: str
    value: str
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A chapter of the page."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """A whole page; `label` and `banners` (class, text) are strips above the title."""

    title: str
    label: str
    sections: tuple[Section, ...]
    banners: tuple[tuple[str, str], ...] = ()
    cards: tuple[Card, ...] = field(default=())
