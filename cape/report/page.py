"""The consortium page, made from the files of its folder and from nothing else.

So the page cannot show what was not released: whatever is on it stands in those files too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass
from cape.privacy.accounting import display_epsilon
from cape.report import (
    components_chapter,
    files,
    methods,
    page_html,
    privacy_chapter,
    quality,
    separations,
)
from cape.report.methods import label_line
from cape.report.page_model import Block, Bullets, Card, Fold, Grid, Page, Picture, Section, Text

FILES = {
    "group_maps.nii.gz / group_maps.csv": "z-scored maps, one volume or column per component",
    "components.tsv": "share, skewness, kurtosis, peak, noise level and nearest template of "
    "every map",
    "unmixing.npz": "W, U, V, W_total, A and eigenvalues (float64, no pickle)",
    "rounds.tsv": "norms, step, stability, mu and epsilon after every release",
    "privacy.json": "the privacy statement and every release, to be checked by anybody",
    "results.json, settings.json": "status and figures; all settings with their digest",
    "methods.md": "the paragraph for a paper, with references",
}

AGREEMENT = (
    "Agreement of the sites: not assessed, because {why}; each site compares the maps of its own "
    "subjects with the common maps on its private page."
)
SUMS_ONLY = (
    "only sums over all sites are ever released and a statistic of one site would be a release of "
    "its own"
)
IN_NO_FILE = "the noisy sum of one site serves in the round that brings it and is kept in no file"

NOT_RELEASED = (
    "Connectivity between components, spectra and time courses: they belong to subjects and stay "
    "at the sites.",
    "Clipped fractions, excluded subjects and images of any site.",
    "Stability over restarts: not assessed, since every rerun would cost budget.",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Folder:
    """The parsed files of a result folder; `drawn` asks for pictures."""

    results: dict[str, Any]
    privacy: dict[str, Any]
    settings: dict[str, Any]
    components: list[dict[str, str]]
    rounds: list[dict[str, str]]
    eigenvalues: Array
    path: Path
    drawn: bool = True

    @classmethod
    def read(cls, path: Path) -> Folder:
        """Read the files; FileNotFoundError names the first one that is missing."""
        with np.load(path / "unmixing.npz", allow_pickle=False) as arrays:
            eigenvalues = np.asarray(arrays["eigenvalues"], dtype=np.float64)
        return cls(
            results=files.read_json(path / "results.json"),
            privacy=files.read_json(path / "privacy.json"),
            settings=dict(files.read_json(path / "settings.json")["settings"]),
            components=files.read_table(path / "components.tsv"),
            rounds=files.read_table(path / "rounds.tsv"),
            eigenvalues=eigenvalues,
            path=path,
        )


def write_page(folder: Path) -> Path:
    """Write index.html from the other files of `folder` and return its path.

    Without the extra `report` the page has all tables and no pictures.
    """
    read, target = Folder.read(folder), folder / "index.html"
    text = page_html.rendered(lambda drawn: compose(read, with_pictures=drawn))
    files.write_text(target, text)
    return target


def compose(folder: Folder, *, with_pictures: bool) -> Page:
    """Return the page as plain records."""
    results, shown = folder.results, replace(folder, drawn=with_pictures)
    label = label_line(results)
    sections = (
        Section(anchor=anchor, title=title, blocks=write(shown))
        for anchor, title, write in CHAPTERS
    )
    return Page(
        title=f"Joint ICA of {results['n_subjects']} subjects at {results['n_sites']} sites",
        label=label,
        banners=banners(results),
        cards=_cards(folder),
        sections=tuple(_stamp(section, label) for section in sections if section.blocks),
    )


Chapter = Callable[[Folder], tuple[Block, ...]]
"""Writes the blocks of one chapter from the files; no blocks leave it out."""


def _privacy(folder: Folder) -> tuple[Block, ...]:
    return privacy_chapter.promise(folder.privacy)


def _ledger(folder: Folder) -> tuple[Block, ...]:
    return privacy_chapter.ledger(folder.privacy, with_pictures=folder.drawn)


def _quality(folder: Folder) -> tuple[Block, ...]:
    return quality.quality(folder.results, folder.rounds, with_pictures=folder.drawn)


def _order(folder: Folder) -> tuple[Block, ...]:
    return quality.model_order(
        folder.results, folder.settings, folder.eigenvalues, with_pictures=folder.drawn
    )


def _components(folder: Folder) -> tuple[Block, ...]:
    return components_chapter.components(
        folder.path, folder.results, folder.settings, folder.components,
        with_pictures=folder.drawn,
    )  # fmt: skip


def _stamp(section: Section, label: str) -> Section:
    """Return the section with the privacy label in the caption of every figure."""
    blocks = tuple(
        replace(block, caption=f"{block.caption} {label}") if isinstance(block, Picture) else block
        for block in section.blocks
    )
    return replace(section, blocks=blocks)


def banners(results: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the strips above the title: simulation, not private."""
    strips = []
    if results["simulation"]:
        text = "SIMULATION: all sites were simulated on one computer"
        text += ". Their data are synthetic, not of people." if results.get("synthetic") else "."
        strips.append(("simulation", text))
    if not results["private"]:
        cause = "the noise was seeded" if results["seeded"] else "no noise was added"
        text = f"NOT PRIVATE: {cause}; nothing is promised. Do not share results of real data."
        strips.append(("danger", text))
    return tuple(strips)


def _cards(folder: Folder) -> tuple[Card, ...]:
    """Return the numbers at the top."""
    results, privacy = folder.results, folder.privacy
    if results["private"]:
        note = (
            f"at delta {results['delta']:g}, against the aggregator with "
            f"{_count(privacy['assumed_colluders'], 'site')}; protects one subject (all their "
            "scans)"
        )
    else:
        note = "this run protects nobody"
        if (planned := results["epsilon_planned"]) is not None:
            note += f"; with secret noise the plan would give {display_epsilon(planned)}"
    stability = results["stability"]
    return (
        Card(title="Epsilon", value=display_epsilon(results["epsilon"]), note=note),
        Card(title="Status", value=str(results["status"]).replace("_", " "),
             note="stability not assessed" if not stability else f"stability {stability:.2f}"),
        Card(title="Subjects", value=str(results["n_subjects"]),
             note=f"at {_count(results['n_sites'], 'site')}{_gone(results)}"),
        Card(title="Components", value=str(results["n_components"]),
             note=f"from {features(results)}"),
        Card(title="Rounds", value=str(results["rounds"]),
             note=f"of {results['rounds_planned']} planned, solver {_solver(folder)}"),
        Card(title="Run", value=str(results["run"])[:8], note=f"cape {results['version']}, "
             f"{results['computation']}, roster fingerprint {results['fingerprint']}"),
    )  # fmt: skip


def _gone(results: dict[str, Any]) -> str:
    gone = methods.departed(results)
    return f"; dropped out: {', '.join(gone)}" if gone else ""


def _sites(folder: Folder) -> tuple[Block, ...]:
    results = folder.results
    rows = tuple((site, str(n)) for site, n in results["sites"].items())
    grid = Grid(caption="Sites and accepted subjects (public by definition)",
                header=("site", "subjects"), rows=rows)  # fmt: skip
    why = IN_NO_FILE if privacy_chapter.single_sums_are_seen(folder.privacy) else SUMS_ONLY
    common = (
        f"All sites used the same feature space: {features(results)}, digest "
        f"{results['feature_space_digest']}."
    )
    return (
        grid,
        Text(text=common),
        Text(text=AGREEMENT.format(why=why)),
        Bullets(title="Not released", items=NOT_RELEASED),
    )


def _settings(folder: Folder) -> tuple[Block, ...]:
    written = Grid(caption="Files beside this page", header=("file", "content"), numeric_from=2,
                   rows=tuple(FILES.items()))  # fmt: skip
    return (*provenance(folder.results, folder.privacy, folder.settings), written)


def provenance(
    results: dict[str, Any], privacy: dict[str, Any], settings: dict[str, Any]
) -> tuple[Block, ...]:
    """Return what ran, by its digests, and all its settings."""
    facts = {
        "cape": results["version"],
        "computation": results["computation"],
        "run": results["run"],
        "settings digest": results["config_digest"],
        "feature space": features(results),
        "feature space digest": results["feature_space_digest"],
        "roster fingerprint": results["fingerprint"],
        "ledger head": privacy["ledger"]["head"],
    }
    grid = Grid(caption="Provenance", header=("what", "value"), numeric_from=2,
                rows=tuple((name, str(value)) for name, value in facts.items()))  # fmt: skip
    chosen = Grid(
        caption="All settings, defaults included",
        header=("setting", "value"),
        numeric_from=2,
        rows=tuple((name, setting_text(value)) for name, value in settings.items()),
    )
    return (grid, Fold(summary=f"All {len(chosen.rows)} settings", grid=chosen))


def _methods(folder: Folder) -> tuple[Block, ...]:
    text = methods.paragraph(folder.results, folder.privacy, folder.settings)
    return (
        Text(text=text, tone="quote"),
        Bullets(title="References", items=methods.citations(folder.results)),
    )


def features(results: dict[str, Any]) -> str:
    """Name the feature space in a few words."""
    n, d, grid = results["n_features"], results["n_basis"], results["grid"]
    word = {"mask": "voxels", "atlas": "parcels"}.get(results["feature_space"], "columns")
    shape = f" ({' x '.join(map(str, grid))})" if grid else ""
    basis = "" if n == d else f", basis of {d}"
    return f"{n} {word}{shape}{basis}"


def _solver(folder: Folder) -> str:
    kind = methods.kind_of(folder.settings)
    return (
        str(folder.settings.get("solver", folder.results["computation"]))
        if (kind == "temporal")
        else f"{kind}, one release"
    )


def _count(n: int, word: str) -> str:
    return f"{n} {word}" if n == 1 else f"{n} {word}s"


def setting_text(value: object) -> str:
    """Return the value of a setting for people."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "(empty)" if value in ("", None) else str(value)


def _separation(folder: Folder) -> tuple[Block, ...]:
    return separations.chapter(folder.path, folder.results, folder.settings, drawn=folder.drawn)


CHAPTERS: tuple[tuple[str, str, Chapter], ...] = (
    ("privacy", "Privacy in plain words", _privacy),
    ("ledger", "What was released and what it cost", _ledger),
    ("quality", "Quality of the result", _quality),
    ("order", "Number of components", _order),
    ("components", "Components", _components),
    ("separation", "What the model assumes", _separation),
    ("sites", "Sites", _sites),
    ("settings", "Settings and provenance", _settings),
    ("methods", "Methods paragraph and references", _methods),
)
"""The page from top to bottom: anchor, title, writer.  A new chapter is one more line."""
