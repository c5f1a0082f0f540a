"""The files people get: released quantities for all, private ones for the site they belong to.

Two kinds of output that never share a page.  `write_consortium` writes what derives from releases
and settings; `write_site` writes what one site may keep of its own subjects.  Pictures need the
extra ``report`` (matplotlib, nilearn, jinja2), which is imported in the last phase only; without
it all files are written and the page has tables only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cape.errors import ConfigError
from cape.protocol.outcome import IcaOutcome, Outcome, SiteOutcome
from cape.report import files, methods
from cape.report.private_summary import PrivateSummary

Cell = str | int | float


def write_consortium(folder: Path, outcome: Outcome) -> None:
    """Write all files of the consortium and the page into `folder`, which is made if needed.

    Equal outcomes give equal bytes: no clock, no host name.
    """
    if isinstance(outcome, IcaOutcome):
        files.write_all(folder, outcome)
    else:
        from cape.report import tables

        tables.write_all(folder, outcome)
    render(folder)


def render(folder: Path) -> Path:
    """Write index.html again from the other files of `folder` and return its path.

    The page sees nothing but these files, so it shows released quantities and settings only.
    """
    from cape.report import page, tables

    results = folder / "results.json"
    in_tables = results.is_file() and "tables" in files.read_json(results)
    return tables.write_page(folder) if in_tables else page.write_page(folder)


def score(
    folder: Path,
    *,
    q_ngi: float | None,
    map_correlation: float | None,
    simulation: bool,
    synthetic: bool = False,
) -> None:
    """Add to results.json how close the result is to the planted truth, and render again.

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
    results = files.read_json(folder / "results.json")
    if "tables" in results:  # nothing was planted that a table could be compared with
        stamped = {**results, "simulation": simulation, "synthetic": synthetic}
        files.write_json(folder / "results.json", stamped)
        render(folder)
        return
    results.update(
        q_ngi=q_ngi, map_correlation=map_correlation, simulation=simulation, synthetic=synthetic
    )
    files.write_json(folder / "results.json", results)
    text = methods.document(
        results,
        files.read_json(folder / "privacy.json"),
        files.read_json(folder / "settings.json")["settings"],
    )
    files.write_text(folder / "methods.md", text)
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
    from cape.report.relabelling import relabel as rewrite

    rewrite(folder, template, names)
    return render(folder)


def write_site(folder: Path, site: SiteOutcome, inside: PrivateSummary | None = None) -> None:
    """Write `private/` of one site into `folder`; never sent.

    Parameters
    ----------
    folder : Path
        The site's own output folder.
    site : SiteOutcome
        Time courses, ledger, common maps.
    inside : PrivateSummary, optional
        What the driver knows of the subjects; without it there are no maps of single subjects.
    """
    from cape.report.site import write_site_files

    write_site_files(folder, site, inside)


def append_sent(private: Path, line: Mapping[str, object]) -> None:
    """Add the reply that closes the run to the site's own list of what it sent, if it has one."""
    from cape.report import site

    site.append_sent(private, line)


def rebuild(folder: Path) -> list[Path]:
    """Write every page below `folder` again from the files beside it and return their paths.

    `folder` is a consortium folder, a site's folder or its `private/`, or the folder of a whole
    simulation that holds all of them.

    Raises
    ------
    ConfigError
        CAPE-E274: there is no result in it.
    """
    from cape.report.site_page import write_page

    places = (folder, *sorted(path for path in folder.iterdir() if path.is_dir()))
    private = dict.fromkeys(p for place in places for p in (place, place / "private"))
    pages = [render(place) for place in places if (place / "results.json").is_file()]
    pages += [write_page(place) for place in private if (place / "site.json").is_file()]
    if not pages:
        raise ConfigError("E274")
    return pages


def summary(outcome: Outcome) -> dict[str, Cell]:
    """Return a few released numbers for the engine's own display: flat, no booleans, no null."""
    own: tuple[str, ...] = ()
    if isinstance(outcome, IcaOutcome):
        results = files.results_of(outcome)
        own = ("rounds", "n_components", "stability", "rank_status")
    else:
        from cape.report import tables

        results = tables.results_of(outcome)
    keys = ("status", "n_sites", "n_subjects", "epsilon", "delta", "mu", "unit", "relation",
            "computation", "version", "run", "fingerprint", *own)  # fmt: skip
    flat = {key: _flat(results[key]) for key in keys}
    return {**flat, "private": "yes" if results["private"] else "no"}


def components_table(outcome: Outcome) -> dict[str, dict[str, Cell]]:
    """Return the rows of components.tsv by name, or of the first table: flat numbers and texts."""
    if not isinstance(outcome, IcaOutcome):
        shown = outcome.tables[:1]
        return {
            str(row[0]): {n: _flat(v) for n, v in zip(table.header[1:], row[1:], strict=True)}
            for table in shown
            for row in table.rows
        }
    header, rows = files.component_rows(outcome)
    return {
        row[0]: {name: _cell(text) for name, text in zip(header[1:], row[1:], strict=True)}
        for row in rows
    }


def _flat(value: object) -> Cell:
    if value is None:
        return "none"
    return value if isinstance(value, int | float) else str(value)


def _cell(text: str) -> Cell:
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if text.lstrip("-").isdigit() else number
