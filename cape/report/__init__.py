"""The files people get: released quantities for all, private ones for the site they belong to.

The two never share a page.  Without the extra ``report`` pages have tables only, no pictures.
"""

from __future__ import annotations

from pathlib import Path

from cape.errors import ConfigError
from cape.protocol.outcome import SiteOutcome
from cape.report import private_folder, site_page
from cape.report.consortium import add_score, relabel, write_results
from cape.report.consortium_page import render
from cape.report.private_folder import PrivateSummary, append_sent
from cape.report.sentence import sentence

__all__ = [
    "add_score",
    "append_sent",
    "rebuild",
    "relabel",
    "render",
    "sentence",
    "write_results",
    "write_site",
]


def write_site(folder: Path, site: SiteOutcome, summary: PrivateSummary | None = None) -> None:
    """Write `private/` of one site, never sent; without a summary, no maps of single subjects."""
    private = private_folder.write_private_files(folder, site, summary or PrivateSummary())
    site_page.render_site(private)


def rebuild(folder: Path) -> list[Path]:
    """Write every page below `folder` again from its files; CAPE-E274 without a result."""
    # Of a consortium, of a site (or its private/), or of a simulation that holds all of them.
    places = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    private = dict.fromkeys(p for place in places for p in (place, place / "private"))
    pages = [render(place) for place in places if (place / "results.json").is_file()]
    pages += [site_page.render_site(place) for place in private if (place / "site.json").is_file()]
    if not pages:
        raise ConfigError("E274")
    return pages
