"""The page of the consortium, made from its folder alone, which holds only what was released."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cape.computations.ica.recipe import CALIBRATED
from cape.delimited import read_matrix_lines, split_lines
from cape.frozen import dataclass
from cape.privacy.accounting import display_guesses
from cape.privacy.cost import total_of
from cape.report import (
    brain,
    comparison_page,
    confidence,
    files,
    maps,
    methods,
    network_maps,
    page,
    plots,
    surfaces,
)
from cape.report.comparison_words import notes_of, r_line, sentences_of, who_of
from cape.report.maps import FEW_REGIONS, Component
from cape.report.methods import Settings
from cape.report.network_maps import NamedRegions
from cape.report.page import Values, text_of
from cape.report.plots import THRESHOLD, Picture
from cape.report.privacy_json import PrivacyStatement, ReleaseRow
from cape.report.results import (
    ComparisonFolder,
    ComparisonResults,
    MapFolder,
    MapResults,
    Results,
    RunSettings,
    TableFolder,
    order_line,
    read_folder,
    sentence,
)
from cape.space.feature_space import is_cifti, is_mni

AnyFolder = MapFolder | TableFolder | ComparisonFolder

PAGE = "consortium/page.html.j2"
# Claims on single maps, best first, each with a shape, never a colour alone; "" is no claim
MARKS = {
    "in halves": "●",
    "maybe": "◐",
    "": "",
    "yes": "●",
    "likely": "◐",
    "uncertain": "○",
    "image": "\N{EN DASH}",
}


def render(path: Path) -> Path:
    folder = read_folder(path)
    values = values_of(folder)
    if isinstance(folder, TableFolder):
        # A page of tables has no pictures, so drawing cannot fail.
        text = page.html_of(PAGE, TABLE_CHAPTERS, folder, values, illustrated=False)
        return page.write_html(path, text)
    if isinstance(folder, ComparisonFolder):
        return page.write_page(path, PAGE, GROUP_CHAPTERS, folder, values)
    return page.write_page(path, PAGE, MAP_CHAPTERS, folder, values)


def values_of(folder: AnyFolder) -> Values:
    results, privacy = folder.results, folder.privacy
    epsilon, mu = privacy.epsilon, privacy.mu
    return {
        "folder": folder,
        "results": results,
        "privacy": privacy,
        "settings": folder.settings,
        "kind": results.kind if isinstance(results, MapResults) else None,
        "sentence": sentence(results),
        **(_said(results) if isinstance(results, ComparisonResults) else {}),
        # mu-GDP: the best test has the power of N(0, 1) against N(mu, 1); both are equally likely.
        "guesses": None if mu is None else display_guesses(mu),
        # exp(50) is above 10^21, where a larger figure says no more.
        "factor": None if epsilon is None or epsilon > 50.0 else math.exp(epsilon),
        "label": label_line(results),
    }


def _said(results: ComparisonResults) -> Values:
    """Return the first sentence of a comparison, the others, who was asked, and notes."""
    result = results.comparison
    if not result.effects:
        return {"lead": (), "notes": ()}
    first, *others = sentences_of(result)
    figures = first.partition(": ")[2]
    figures = f"{figures[:1].upper()}{figures[1:]}"
    return {"lead": (figures, *others, who_of(result)), "notes": notes_of(result)}


def _ledger(folder: AnyFolder, drawn: bool) -> Values:
    privacy = folder.privacy
    events = privacy.events
    curve = None
    # Of a comparison most is spent in one release, which the table says as well.
    of_rounds = not isinstance(folder, ComparisonFolder)
    if drawn and len(events) > 1 and privacy.private and of_rounds:
        epsilon = np.array([event.epsilon_so_far for event in events], dtype=np.float64)
        phases = [event.phase for event in events]
        budget = float(privacy.budget.epsilon or 0.0)
        curve = plots.draw_budget_curve(epsilon, budget, privacy.delta, phases)
    return {
        "curve": curve,
        # A run without a privacy guarantee has no mu and no epsilon: their columns are dropped.
        "free": all(event.epsilon_so_far is None for event in events),
        "by_phase": list(_phases(events)),
    }


def _phases(
    events: Sequence[ReleaseRow],
) -> Iterator[tuple[ReleaseRow, ReleaseRow, int, float | None]]:
    """Yield the first and last release of each phase, their number, and their share of mu^2, %."""
    # Shares are exact fractions: phases differ by orders of magnitude.
    total = total_of(events).mu2
    for phase in dict.fromkeys(event.phase for event in events):
        group = [event for event in events if event.phase == phase]
        spent = total_of(group).mu2  # of two halves the dearer one, as in `total`
        part = float(100 * spent / total) if spent and total else None
        yield group[0], group[-1], len(group), None if group[-1].mu is None else part


def _quality(folder: MapFolder, drawn: bool) -> Values:
    rounds = folder.rounds
    # Only the last phase is drawn: norms of different phases have no common scale.
    solver = [
        (row.statistic_norm, row.expected_noise_norm, row.step_norm, row.stability)
        for row in rounds
        if row.phase == rounds[-1].phase
    ]
    progress = None
    if drawn and len(solver) > 1:
        progress = plots.draw_progress(*np.array(solver, dtype=np.float64).T)
    return {"progress": progress, "rounds": rounds}


def _order(folder: MapFolder, drawn: bool) -> Values | None:
    values, results = folder.eigenvalues, folder.results
    if not np.any(values):  # a computation without a released spectrum
        return None
    n, edge = results.n_components, results.noise_edge or 0.0
    # On real brains the spectrum did not tell the number of components in any model.
    if results.separation.of_images and results.rank_status != "reduced":
        return None
    requested = confidence.requested_of(folder.settings, n)
    return {
        "spectrum": plots.draw_spectrum(values, edge, n) if drawn else None,
        "edge": edge,
        "last": float(np.sort(values)[::-1][n - 1]),
        "images": results.separation.of_images,
        "hint": confidence.hint(
            values,
            confidence.rule_of(results.computation, folder.settings, requested),
            requested=requested,
            edge=edge,
            n_components=n,
            g=results.g_eff,
        ),
    }


def _components(folder: MapFolder, drawn: bool) -> Values:
    results, rows = folder.results, folder.components
    bar: Picture | None = None
    pictures: list[tuple[Picture, ...]] = [()] * len(rows)
    path = _maps_of(folder, maps.file_of(results.status))
    found = network_maps.read_regions(path)
    on_grid = drawn and results.feature_space in ("mask", "atlas")
    if drawn and _has_pictures(folder):
        alts = [_alt(row, results) for row in rows]
        bar, pictures = _drawn(folder, path, rows, alts, figures=on_grid)
    shown = [
        Shown(
            row=row,
            spot=_spot(row, results, None if found is None else found.strongest(k)),
            claim=_claim(row),
            dim=_level(row) in ("uncertain", "image") or results.status == "nothing_found",
            pictures=drawn_pictures,
        )
        for k, (row, drawn_pictures) in enumerate(zip(rows, pictures, strict=True))
    ]
    # Strong claims come first: the first screen shows what may be read as a network.
    shown.sort(key=lambda one: (FEW_REGIONS in one.claim, list(MARKS).index(_level(one.row))))
    return {
        "shown": shown,
        "bar": bar,
        "calibrated": CALIBRATED,
        "marks": MARKS,
        "table": _table(rows, results, found),
        "order": order_line(results),
        "figures": on_grid and path.name,
        "threshold": _viewed_from(rows[0].peak_z) if rows else THRESHOLD,
        "cifti": is_cifti(results.feature_space) and path.name,
    }


def _viewed_from(peak: float) -> float:
    """Return the threshold that shows a map: of few parcels no peak reaches the usual one."""
    return THRESHOLD if abs(peak) > THRESHOLD else math.floor(5 * abs(peak)) / 10


def _maps_of(folder: MapFolder, name: str) -> Path:
    return folder.path / f"{name}{maps.ENDINGS[folder.results.feature_space]}"


def _has_pictures(folder: MapFolder) -> bool:
    """Whether features have a place to draw; columns, and parcels without spheres, have none."""
    if is_cifti(folder.results.feature_space):
        return (folder.path / surfaces.SPHERES).is_file()
    return folder.results.feature_space != "matrix" or bool(folder.results.grid)


def _drawn(
    folder: MapFolder,
    path: Path,
    rows: Sequence[Component],
    alts: Sequence[str],
    *,
    figures: bool = False,
) -> tuple[Picture, list[tuple[Picture, ...]]]:
    """Return the colour bar, and the pictures of each map: squares, spheres or slices."""
    # `figures`: also write networks.pdf and networks.svg of maps on a grid.
    results, names = folder.results, [row.name for row in rows]
    threshold = plots.THRESHOLD
    drawings: list[tuple[Picture, ...]]
    if results.feature_space == "matrix":
        _, *lines = split_lines(path.read_bytes(), ",", comments=False)
        z = read_matrix_lines(lines)
        limit, threshold = plots.colour_limit(z), 0.0
        drawings = [(p,) for p in plots.draw_squares(z, results.grid, names, alts, limit)]
    elif is_cifti(results.feature_space):
        z, spheres = surfaces.read_cifti(path), surfaces.read_spheres(folder.path)
        limit = plots.colour_limit(z)
        drawings = [(p,) for p in surfaces.draw_spheres(z, spheres, names, alts, limit)]
    else:
        image = files.load_image(path)
        volumes = np.asarray(image.dataobj, dtype=np.float64)
        limit = plots.colour_limit(volumes[np.any(volumes != 0, axis=3)])
        sampled = brain.Sampled.of(
            volumes,
            image.affine,
            mni=is_mni(results.template_space),
            parcels=results.feature_space == "atlas",
        )
        drawings = list(brain.draw_maps(sampled, alts, limit))
        if figures:
            titles = [f"{row.name}  {row.label}" if row.label else row.name for row in rows]
            brain.write_networks(folder.path, brain.networks_figure(sampled, titles, limit))
    return plots.draw_colour_bar(limit, threshold), drawings


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """A map as the page shows it; its last picture is its tile."""

    row: Component
    spot: str
    claim: str
    dim: bool
    pictures: tuple[Picture, ...]


def _level(row: Component) -> str:
    """Return the claim on a map without "sharp" and "few regions"; empty without a claim."""
    return (row.found_again or "").partition(",")[0]


def _claim(row: Component) -> str:
    """Return what is claimed of a map, in the words of mosaic, list and table; empty: nothing."""
    if not (word := _level(row)):
        return row.verdict or ""
    if word == "image":
        return f"{MARKS[word]} mirror image of {row.mirror_of}"
    figure = row.r_halves if row.claimed is None else row.claimed
    # Cut, not rounded: .4965 would read as .50, and uncertain.
    cut = "" if figure is None else f" .{min(int(100.0 * figure), 99):02d}"
    few = f", {FEW_REGIONS}" if FEW_REGIONS in (row.found_again or "") else ""
    mirror = f", mirrors {row.mirror_of}" if row.mirror_of else ""
    return f"{MARKS[word]} {word}{cut}{few}{mirror}"


def _table(
    rows: Sequence[Component], results: MapResults, found: NamedRegions | None = None
) -> tuple[tuple[str, ...], list[tuple[str, ...]], int]:
    """Return header, cells, and the first column of numbers."""

    def number(value: float | None, form: str, unit: str = "") -> str:
        return "" if value is None else f"{value:{form}}{unit}"

    table = [
        {
            "map": row.name,
            "how sure": _claim(row) + (", sharp" if ", sharp" in (row.found_again or "") else ""),
            "peak": _where(row, results),
            "strongest regions": ", ".join(
                f"{name} {z:z.1f}" for name, z in (found.strongest(k) if found else ())
            ),
            "nearest network": row.label or (f"no name ({row.nearest})" if row.nearest else ""),
            "stability": number(row.stability, ".2f"),
            "r": number(row.label_r, ".2f"),
            "chance": number(row.label_chance, ".2f"),
            "z at peak": number(row.peak_z, ".1f"),
            "size, cm³": number(None if row.size_mm3 is None else row.size_mm3 / 1e3, ".1f"),
            "share": number(None if row.share is None else 100 * row.share, ".1f", " %"),
            "noise, |z|": number(row.noise_z, ".2f"),
            "expected r": number(row.expected_r, ".2f"),
            "curvature": number(row.curvature, ".2f"),
        }
        for k, row in enumerate(rows)
    ]
    header = tuple(table[0])
    return header, [tuple(row.values()) for row in table], header.index("stability")


def _where(row: Component, results: MapResults) -> str:
    mm = [x for x in (row.peak_x_mm, row.peak_y_mm, row.peak_z_mm) if x is not None]
    if len(mm) == 3:
        return f"{' '.join(f'{x:z.0f}' for x in mm)} mm"
    if is_cifti(results.feature_space):
        word = "parcel" if results.feature_space == "parcels" else "grayordinate"
        return f"{word} {row.peak_feature}"
    if results.grid:
        down, across = divmod(row.peak_feature - 1, results.grid[1])
        return f"row {down + 1}, column {across + 1}"
    return row.peak_name or f"column {row.peak_feature}"


def _spot(row: Component, results: MapResults, named: Sequence[tuple[str, float]] | None) -> str:
    """Return the name of a map, else its place: by region, in words in MNI space, as given."""
    if named:
        return ", ".join(filter(None, (row.label, *(name for name, _ in named))))
    place = (row.peak_x_mm, row.peak_y_mm, row.peak_z_mm)
    if row.label or None in place or not is_mni(results.template_space):
        return row.label or _where(row, results)
    return brain.words_of(np.array(place, dtype=np.float64))


def _alt(row: Component, results: MapResults) -> str:
    text = f"{row.name}: peak {_where(row, results)}, z {row.peak_z:.1f}"
    return f"{text}, most like {row.label}." if row.label else f"{text}."


def _separation(folder: MapFolder, drawn: bool) -> Values:
    model = folder.results.separation
    templates = [
        (f"C{k:02d}", *(f"{x:.2f}" for x in dataclasses.astuple(row)))
        for k, row in enumerate(model.template or (), 1)
    ]
    return {
        "model": model,
        "calibrated": CALIBRATED,
        "templates": templates,
        # The spatial set of images has its own chapter (`_free_spatial_set`).
        **_free_set(folder, drawn=drawn and model.kind == "temporal" and not model.of_images),
    }


def _free_set(folder: MapFolder, *, drawn: bool) -> Values:
    results, rows = folder.results, folder.spatial
    test = results.separation.left_right
    path = _maps_of(folder, maps.free_file_of(test.verdict if test else None))
    pictures: list[tuple[Picture, ...]] = []
    bar: Picture | None = None
    # Maps of plain columns are not drawn.
    if drawn and path.is_file() and path.suffix != ".csv" and _has_pictures(folder):
        alts = [f"{row.name}: a spatial component of the released subspace." for row in rows]
        # The two sets have different colour limits, so each has its bar.
        bar, pictures = _drawn(folder, path, rows, alts)
    return {
        "free_bar": bar,
        "free_set": pictures,
        "free_table": _table(rows, results, network_maps.read_regions(path)) if rows else (),
        "free_names": [row.name for row in rows],
    }


def _free_spatial_set(folder: MapFolder, drawn: bool) -> Values | None:
    model = folder.results.separation
    if model.kind != "temporal" or not model.of_images or not folder.spatial:
        return None
    return {"model": model, "calibrated": CALIBRATED, **_free_set(folder, drawn=drawn)}


def _settings(folder: AnyFolder, drawn: bool) -> Values:
    return {"files": sorted(path.name for path in folder.path.iterdir())}


def label_line(results: Results) -> str:
    """Return the sentence on privacy for the top of the page and under every picture."""
    return text_of("label.txt.j2", results=results)


def _methods(folder: MapFolder | ComparisonFolder, drawn: bool) -> Values:
    return methods_values(folder.results, folder.privacy, folder.settings)


def methods_values(
    results: MapResults | ComparisonResults, privacy: PrivacyStatement, settings: Settings
) -> Values:
    """Return the paragraphs on data and analysis, and the works that they cite."""
    data = methods.data_paragraph(
        results.computation,
        settings,
        results.feature_space,
        results.grid,
        results.affine,
        results.template_space,
    )
    kind, sets, template, line = "", None, "methods_paragraph.txt.j2", ""
    if isinstance(results, MapResults):
        kind, sets = results.kind, results.labels.template
    else:
        question = results.comparison.asked
        kind = "pattern" if question.pattern else "each"
        line = r_line(question, len(results.comparison.entered))
        template = f"comparison/{template}"
        if question.of_tables:
            data = "Outcomes were columns of tables of the sites."
        else:
            data += (
                " Time courses of the public maps were estimated in every person by least squares; "
                f"outcomes: {settings.get('outcomes')}."
            )
    values = {
        "results": results,
        "privacy": privacy,
        "settings": settings,
        "kind": kind,
        "line": line,
    }
    references = methods.references_of(settings, kind=kind, labels=sets)
    return {"paragraph": text_of(template, **values), "data": data, "references": references}


def write_methods(folder: Path, results: MapResults | ComparisonResults) -> None:
    privacy = files.read_record(folder / "privacy.json", PrivacyStatement)
    settings = files.read_record(folder / "settings.json", RunSettings).settings
    values = methods_values(results, privacy, settings)
    text = text_of("methods.md.j2", label=label_line(results), results=results, **values)
    files.write_markdown(folder / "methods.md", text)
    files.write_text(folder / "references.bib", text_of("references.bib.j2", **values))


# The page from top to bottom. A new chapter is one more line and one more template.
MAP_CHAPTERS: page.Outline[MapFolder] = (
    ("consortium/why", "Why, and what next", None),
    ("consortium/components", "Maps", _components),
    ("consortium/spatial", "Spatial components of the first release", _free_spatial_set),
    ("consortium/quality", "How sure is this?", _quality),
    ("consortium/separation", "What the model assumes", _separation),
    ("consortium/order", "Number of components", _order),
    ("consortium/privacy", "Privacy in plain words", None),
    ("consortium/ledger", "What it cost", _ledger),
    ("consortium/sites", "Sites", None),
    ("consortium/methods", "Methods and citation", _methods),
    ("consortium/settings", "Settings and files", _settings),
)

GROUP_CHAPTERS: page.Outline[ComparisonFolder] = (
    ("comparison/answer", "What differs", comparison_page.what_differs),
    ("comparison/sure", "How sure is this?", comparison_page.sure),
    ("comparison/balance", "Were the groups alike?", comparison_page.balance),
    ("comparison/people", "Who was asked", comparison_page.people),
    ("consortium/privacy", "Privacy in plain words", None),
    ("consortium/ledger", "What it cost", _ledger),
    ("consortium/methods", "Methods and citation", _methods),
    ("consortium/settings", "Settings and files", _settings),
)

TABLE_CHAPTERS: page.Outline[TableFolder] = (
    ("tables/results", "Results", None),
    ("consortium/privacy", "Privacy in plain words", None),
    ("consortium/ledger", "What it cost", _ledger),
    ("tables/sites", "Sites", None),
    ("consortium/settings", "Settings and provenance", _settings),
)
