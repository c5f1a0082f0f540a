"""Reports: released quantities for all, and private ones for the site that owns them.

No page holds both.  Without the extra ``report`` pages have tables but no pictures.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from cape.errors import ConfigError
from cape.protocol.outcome import SiteOutcome
from cape.report import private_folder, site_page
from cape.report.consortium import add_maps, add_score, relabel, write_results
from cape.report.consortium_page import render
from cape.report.network_maps import Brought
from cape.report.page import of_run
from cape.report.private_folder import PrivateSummary, append_sent
from cape.report.results import sentence

__all__ = [
    "Brought",
    "add_maps",
    "add_score",
    "append_sent",
    "copied",
    "draw_site",
    "rebuild",
    "relabel",
    "render",
    "sentence",
    "write_results",
    "write_site",
]


def write_site(
    folder: Path, site: SiteOutcome, summary: PrivateSummary | None = None, *, page: bool = True
) -> None:
    """Write `private/` of one site, which is never sent; maps of subjects need a summary.

    Without `page` its index.html is left to `draw_site`.
    """
    private = private_folder.write_private_files(folder, site, summary or PrivateSummary())
    if page:
        of_run(site_page.render_site, private)


def draw_site(folder: Path) -> None:
    """Draw the page of a site that wrote its results without; nobody else may read it."""
    private = folder / "private"
    # In an engine of its own a site has drawn its page already.
    if (private / "site.json").is_file() and not (private / "index.html").is_file():
        of_run(site_page.render_site, private)
        for page in private.glob("index.html"):
            page.chmod(0o600)


def copied(folder: Path, out: Path) -> Path:
    """Copy results, which may be read-only, to a new folder `out`, and return it."""
    if out.exists():
        raise ConfigError("E016", problem=f"{out} exists already", do="choose another --out.")
    for path in (folder, *folder.rglob("*")):
        place = out / path.relative_to(folder)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            shutil.copyfile(path, place)  # without the mark that it is read-only
    return out


def rebuild(folder: Path) -> list[Path]:
    """Write every page below `folder` again from its files; CAPE-E274 without a result."""
    # `folder` belongs to a consortium, a site (or is its private/), or a simulation with both.
    folders = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    private = dict.fromkeys(p for parent in folders for p in (parent, parent / "private"))
    pages = [render(path) for path in folders if (path / "results.json").is_file()]
    pages += [site_page.render_site(path) for path in private if (path / "site.json").is_file()]
    if not pages:
        raise ConfigError("E274")
    return pages
