"""What a paper about a run should cite, as text and as BibTeX; works stand in citations.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from cape.frozen import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """One work; fields are BibTeX's."""

    key: str
    authors: tuple[str, ...]  # "Family, Initials"; a last "others" for et al.
    year: int
    title: str
    journal: str
    rest: str  # as printed: volume, pages
    note: str = ""

    @property
    def text(self) -> str:
        names = [name.replace(",", "") for name in self.authors]
        who = ", ".join(names[:-1]) + ", et al" if names[-1] == "others" else ", ".join(names)
        tail = f" {self.note}" if self.note else ""
        return f"{who} ({self.year}). {self.title}. {self.journal} {self.rest}.{tail}"

    @property
    def bibtex(self) -> str:
        volume, _, pages = self.rest.partition(", ")
        fields = {
            "author": " and ".join(self.authors),
            "title": f"{{{self.title}}}",
            "journal": self.journal,
            "year": str(self.year),
            # A line of a conference has pages alone.
            **({"volume": volume} if pages else {}),
            "pages": (pages or self.rest).replace("-", "--"),
            "note": self.note,
        }
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
        return "\n".join([f"@article{{{self.key},", *lines, "}"])


_TABLE: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ALL: Final = {
    key: Reference(key=key, **{**work, "authors": tuple(work["authors"])})
    for key, work in _TABLE.items()
}


def references_of(
    settings: Mapping[str, object], *, kind: str, labels: str | None
) -> tuple[Reference, ...]:
    """Return what a run with these settings and this set of network names rests on."""
    keys = ["imtiaz2021", "baker2019", "dong2022", "canonne2020", "bonawitz2017"]
    if kind == "spatial":
        keys.append("hyvarinen1999")
    strategy = str(settings.get("confound_strategy", "none"))
    if "scrub" in strategy or settings.get("max_mean_fd"):
        keys.append("power2012")
    if strategy != "none":
        keys.append("abraham2014")
    keys.append("harris2020")
    if labels in ALL:
        keys.append(str(labels))
    return tuple(ALL[key] for key in keys)


def bibliography(references: Iterable[Reference]) -> str:
    return "\n\n".join(reference.bibtex for reference in references) + "\n"
