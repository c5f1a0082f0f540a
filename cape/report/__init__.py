"""Reports: released quantities for all, and private ones for the site that owns them.

No page holds both.  Without the extra ``report`` pages have tables but no pictures.
"""

import shutil
from pathlib import Path

from cape.errors import ConfigError
from cape.protocol.outcome import SiteOutcome
from cape.report import private_folder, site_page
from cape.report.consortium import add_maps, add_score, relabel, write_results
from cape.report.consortium_page import render
from cape.report.derivatives import is_dataset
from cape.report.network_maps import Brought
from cape.report.page import of_run
from cape.report.private_folder import PRIVATE, SITE_JSON, PrivateSummary, append_sent, keep_private
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
    keep_private(private)


def draw_site(folder: Path) -> None:
    """Draw the page of a site that wrote its results without."""
    private = folder / PRIVATE
    # In an engine of its own a site has drawn its page already.
    if (private / SITE_JSON).is_file() and not (private / "index.html").is_file():
        of_run(site_page.render_site, private)
        keep_private(private)


def copied(folder: Path, out: Path) -> Path:
    """Copy results, which may be read-only, to a new folder `out`, and return it."""
    if out.exists():
        raise ConfigError("E016", problem=f"{out} exists already", do="choose another --out.")
    for path in (folder, *folder.rglob("*")):
        place = out / path.relative_to(folder)
        if path.is_dir():
            # Private ones stay closed to others, whatever is open in the folder to copy.
            place.mkdir(parents=True, exist_ok=True, mode=0o700 if is_dataset(path) else 0o777)
        else:
            shutil.copyfile(path, place)  # without the mark that it is read-only
    for place in (out, *out.rglob(PRIVATE)):
        if is_dataset(place):
            keep_private(place)
    return out


def rebuild(folder: Path) -> list[Path]:
    """Write every page below `folder` again from its files; CAPE-E274 without a result."""
    # `folder` belongs to a consortium, a site (or is its private/), or a simulation with both.
    folders = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    places = dict.fromkeys(p for parent in folders for p in (parent, parent / PRIVATE))
    private = [path for path in places if (path / SITE_JSON).is_file()]
    pages = [render(path) for path in folders if (path / "results.json").is_file()]
    pages += map(site_page.render_site, private)
    for path in private:
        keep_private(path)
    if not pages:
        raise ConfigError("E274")
    return pages
