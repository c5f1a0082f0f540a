"""What a paper about a run should cite; the works stand in citations.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
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
