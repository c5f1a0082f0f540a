"""Files and page of a computation whose released values are tables.

Nothing here knows the computation: the tables say themselves what their rows are.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from cape.delimited import read_lines
from cape.privacy.accounting import display_epsilon
from cape.protocol.outcome import Outcome, Table
from cape.report import files, page_html, privacy_chapter, privacy_json
from cape.report.methods import label_line
from cape.report.page import banners, features, provenance
from cape.report.page_model import Block, Card, Fold, Grid, Page, Section, Text

SHORT = 40
"""Rows that are shown; a longer table is folded."""


def write_all(folder: Path, outcome: Outcome) -> None:
    """Write every consortium file but index.html into `folder`, which is made if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = dict(outcome.settings)
    files.write_json(folder / "results.json", results_of(outcome))
    files.write_json(folder / "privacy.json", privacy_json.statement(outcome))
    files.write_json(
        folder / "settings.json", {"settings": settings, "digest": outcome.config_digest}
    )
    files.write_table(folder / "rounds.tsv", files.round_rows(outcome))
    for table in outcome.tables:
        files.write_text(folder / f"{table.name}.csv", csv_text(table))


def results_of(outcome: Outcome) -> dict[str, Any]:
    """Return the content of results.json."""
    written = [
        {"file": f"{table.name}.csv", "title": table.title, "note": table.note}
        for table in outcome.tables
    ]
    return {**files.facts_of(outcome), "tables": written}


def csv_text(table: Table) -> str:
    """Return a table as CSV, 12 digits, n/a for what was not released."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([[files.cell(value) for value in row] for row in table.rows])
    return target.getvalue()


def write_page(folder: Path) -> Path:
    """Write index.html from the other files of `folder` and return its path."""
    target = folder / "index.html"
    files.write_text(target, page_html.html(compose(folder), hint=""))
    return target


def compose(folder: Path) -> Page:
    """Return the page as plain records: what stands in the files, and nothing else."""
    results = files.read_json(folder / "results.json")
    privacy = files.read_json(folder / "privacy.json")
    settings = dict(files.read_json(folder / "settings.json")["settings"])
    shown = [block for told in results["tables"] for block in _table(folder, told)]
    sections = (
        Section(anchor="privacy", title="Privacy in plain words",
                blocks=privacy_chapter.promise(privacy)),
        Section(anchor="ledger", title="What was released and what it cost",
                blocks=privacy_chapter.ledger(privacy, with_pictures=False)),
        Section(anchor="results", title="Results",
                blocks=(Text(text=str(results["reason"])), *shown)),
        Section(anchor="sites", title="Sites", blocks=(_sites(results),)),
        Section(anchor="settings", title="Settings and provenance",
                blocks=provenance(results, privacy, settings)),
    )  # fmt: skip
    return Page(
        title=f"{results['computation']} of {results['n_subjects']} subjects at "
        f"{results['n_sites']} sites",
        label=label_line(results),
        banners=banners(results),
        cards=_cards(results),
        sections=sections,
    )


def _table(folder: Path, told: dict[str, str]) -> tuple[Block, ...]:
    """Return a table of the folder with its note; a long one is folded."""
    text = (folder / told["file"]).read_text(encoding="utf-8")
    header, *rows = (line.cells() for line in read_lines(text, ",", comments=False))
    grid = Grid(caption=told["title"], header=tuple(header),
                rows=tuple(tuple(row) for row in rows))  # fmt: skip
    short = len(rows) <= SHORT
    block: Block = grid if short else Fold(summary=f"{told['title']}: {len(rows)} rows", grid=grid)
    return (block, Text(text=f"{told['note']} File: {told['file']}."))


def _cards(results: dict[str, Any]) -> tuple[Card, ...]:
    n = results["n_features"]
    note = f"at delta {results['delta']:g}" if results["private"] else "this run protects nobody"
    return (
        Card(title="Epsilon", value=display_epsilon(results["epsilon"]), note=note),
        Card(title="Status", value=str(results["status"]).replace("_", " "), note=""),
        Card(title="Subjects", value=str(results["n_subjects"]),
             note=f"at {results['n_sites']} sites"),
        Card(title="Features", value=str(n), note=features(results).removeprefix(f"{n} ")),
        Card(title="Run", value=str(results["run"])[:8], note=f"cape {results['version']}, "
             f"{results['computation']}, roster fingerprint {results['fingerprint']}"),
    )  # fmt: skip


def _sites(results: dict[str, Any]) -> Grid:
    rows = tuple((site, str(n)) for site, n in results["sites"].items())
    return Grid(caption="Sites and accepted subjects (public by definition)",
                header=("site", "subjects"), rows=rows)  # fmt: skip
