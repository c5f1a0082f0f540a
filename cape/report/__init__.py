"""The files people get: released quantities for all, private ones for the site they belong to.

Two kinds of output that never share a page.  `write_consortium` writes what derives from releases
and settings; `write_site` writes what one site may keep of its own subjects.  Pictures need the
extra ``report`` (matplotlib, nilearn), which is imported in the last phase only; without it all
files are written and the pages have tables only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cape.errors import ConfigError
from cape.protocol.outcome import IcaOutcome, Outcome, SiteOutcome
from cape.report import consortium, consortium_page, files, private_folder, site_page
from cape.report.maps import Component
from cape.report.private_summary import PrivateSummary
from cape.report.results import MapResults

Cell = str | int | float


def write_consortium(folder: Path, outcome: Outcome) -> None:
    """Write all files of the consortium and the page into `folder`, which is made if needed.

    Equal outcomes give equal bytes: no clock, no host name.
    """
    if isinstance(outcome, IcaOutcome):
        consortium.write_maps(folder, outcome)
    else:
        consortium.write_tables(folder, outcome)
    render(folder)


def render(folder: Path) -> Path:
    """Write index.html again from the other files of `folder` and return its path.

    The page sees nothing but these files, so it shows released quantities and settings only.
    """
    return consortium_page.write(folder)


def score(
    folder: Path,
    *,
    q_ngi: float | None,
    map_correlation: float | None,
    simulation: bool,
    synthetic: bool = False,
) -> None:
    """Add to the files how close the result is to the planted truth, and render again.

    Parameters
    ----------
    folder : Path
        Written by `write_consortium`.
    q_ngi : float or None
        Inter-symbol interference of unmixing and planted mixing; 0 is perfect.
    map_correlation : float or None
        Mean absolute correlation of matched maps; 1 is perfect.
    simulation : bool
        Stamp the page SIMULATION: all sites were simulated on one computer.
    synthetic : bool
        Say that their data are those of `cape synth`, not of people.
    """
    consortium.score(
        folder,
        q_ngi=q_ngi,
        map_correlation=map_correlation,
        simulation=simulation,
        synthetic=synthetic,
    )
    render(folder)


def relabel(folder: Path, template: Path, names: Path | None = None) -> Path:
    """Match the maps of a result with an image of the user's, and render again.

    Rewrites the label columns of components.tsv and `labels` of results.json; the maps stay.

    Parameters
    ----------
    folder : Path
        Written by `write_consortium`.
    template : Path
        Public 3-D or 4-D NIfTI image.
    names : Path, optional
        Text file with one name per volume.

    Raises
    ------
    ConfigError
        CAPE-E270 to E274.
    """
    consortium.relabel(folder, template, names)
    return render(folder)


def write_site(folder: Path, site: SiteOutcome, summary: PrivateSummary | None = None) -> None:
    """Write `private/` of one site into `folder`; never sent.

    Parameters
    ----------
    folder : Path
        The site's own output folder.
    site : SiteOutcome
        Time courses, ledger, common maps.
    summary : PrivateSummary, optional
        What the site knows of the subjects; without it there are no maps of single subjects.
    """
    private = private_folder.write(folder, site, summary or PrivateSummary())
    site_page.write(private)


def append_sent(private: Path, reply: Mapping[str, object]) -> None:
    """Add the reply that closes the run to the site's own list of what it sent, if it has one."""
    private_folder.append_sent(private, reply)


def rebuild(folder: Path) -> list[Path]:
    """Write every page below `folder` again from the files beside it and return their paths.

    `folder` is a consortium folder, a site's folder or its `private/`, or the folder of a whole
    simulation that holds all of them.

    Raises
    ------
    ConfigError
        CAPE-E274: there is no result in it.
    """
    places = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    private = dict.fromkeys(p for place in places for p in (place, place / "private"))
    pages = [render(place) for place in places if (place / "results.json").is_file()]
    pages += [site_page.write(place) for place in private if (place / "site.json").is_file()]
    if not pages:
        raise ConfigError("E274")
    return pages


def summary(outcome: Outcome) -> dict[str, Cell]:
    """Return a few released numbers for the engine's own display: flat, no booleans, no null."""
    results = consortium.results_of(outcome)
    numbers: dict[str, object] = {
        "status": results.status,
        "n_sites": results.n_sites,
        "n_subjects": results.n_subjects,
        "epsilon": results.epsilon,
        "delta": results.delta,
        "mu": results.mu,
        "unit": results.unit,
        "relation": results.relation,
        "computation": results.computation,
        "version": results.version,
        "run": results.run,
        "fingerprint": results.fingerprint,
    }
    if isinstance(results, MapResults):
        numbers["rounds"] = results.rounds
        numbers["n_components"] = results.n_components
        numbers["stability"] = results.stability
        numbers["rank_status"] = results.rank_status
    flat = {name: _flat(value) for name, value in numbers.items()}
    return {**flat, "private": "yes" if results.private else "no"}


def components_table(outcome: Outcome) -> dict[str, dict[str, Cell]]:
    """Return the rows of components.tsv by name, or of the first table: flat numbers and texts."""
    if not isinstance(outcome, IcaOutcome):
        return {
            str(row[0]): {n: _flat(v) for n, v in zip(table.header[1:], row[1:], strict=True)}
            for table in outcome.tables[:1]
            for row in table.rows
        }
    names = [name for name in Component.__slots__ if name != "name"]
    return {
        row.name: {name: _shown(getattr(row, name)) for name in names}
        for row in consortium.components_of(outcome)
    }


def _flat(value: object) -> Cell:
    if value is None:
        return "none"
    return value if isinstance(value, int | float) else str(value)


def _shown(value: object) -> Cell:
    """Return a number as it stands in the file, which has 12 digits."""
    text = files.cell(value)
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if text.lstrip("-").isdigit() else number
