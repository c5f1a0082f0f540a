"""The page of the consortium, from its folder only: it cannot show what was not released."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from cape.algorithms.estimators import Array
from cape.delimited import read_matrix_lines, split_lines
from cape.forecast.one_release import LEAST_SPATIAL
from cape.privacy.accounting import display_epsilon
from cape.privacy.cost import FREE
from cape.report import brain, confidence, files, maps, methods, page, plots, surfaces, viewer
from cape.report.citations import bibliography, references_of
from cape.report.maps import Component
from cape.report.page import Page, Values, text_of
from cape.report.plots import Picture
from cape.report.privacy_json import PrivacyStatement, ReleaseRow
from cape.report.results import (
    MapFolder,
    MapResults,
    Results,
    Round,
    SurrogateFigures,
    TableFolder,
)
from cape.space.feature_space import is_cifti, is_mni

SURROGATE_WORDS = {
    "stability": "stability of the rounds",
    "gap": "largest gap of the spectrum over the noise edge",
    "kurtosis": "median kurtosis of the spatial components",
    "r_template": "mean correlation with the templates",
    "strength": "mean strength of the deviation from the figure without data",
}

# The free spatial set, by what the left-right test said of it
FREE_MAPS = ("spatial_maps", "unconfirmed_spatial_maps")

Row = tuple[str, ...]
Settings = Mapping[str, object]


def render(folder: Path) -> Path:
    results = folder / "results.json"
    if results.is_file() and "tables" in files.read_json(results):
        tables = TableFolder.read(folder)
        composed = Page(
            template="tables/page.html.j2",
            values=_common(tables),
            chapters=page.chapters(TABLE_CHAPTERS, tables, drawn=False),
            illustrated=False,
        )
        # Nothing here can fail to be drawn, so there is no second attempt.
        target = folder / "index.html"
        files.write_text(target, page.html_of(composed))
        return target
    source = MapFolder.read(folder)

    def compose(drawn: bool) -> Page:
        if drawn and source.results.feature_space in ("mask", "atlas"):
            _write_figures(source)
        return compose_maps(source, drawn=drawn)

    return page.write_page(folder, compose)


def compose_maps(folder: MapFolder, *, drawn: bool) -> Page:
    return Page(
        template="consortium/page.html.j2",
        values={**_common(folder), "kind": folder.results.kind},
        chapters=page.chapters(MAP_CHAPTERS, folder, drawn=drawn),
        illustrated=drawn,
    )


def _common(folder: MapFolder | TableFolder) -> Values:
    return {
        "results": folder.results,
        "privacy": folder.privacy,
        "settings": folder.settings,
        "features": _features(folder.results),
        "label": label_line(folder.results),
    }


def _features(results: Results) -> str:
    n, d, grid = results.n_features, results.n_basis, results.grid
    words = {"mask": "voxels", "atlas": "parcels", "matrix": "columns"}
    word = words.get(results.feature_space, results.feature_space)
    of_grid = grid and not is_cifti(results.feature_space)
    shape = f" ({' x '.join(map(str, grid))})" if of_grid else ""
    basis = "" if n == d else f", basis of {d}"
    return f"{n} {word}{shape}{basis}"


def _privacy(folder: MapFolder | TableFolder, drawn: bool) -> Values:
    privacy = folder.privacy
    if privacy.epsilon is None or privacy.mu is None:
        return {}
    views = []
    for view in privacy.views:
        who = f"{view.who} (headline)" if view.headline else view.who
        views.append((who, view.sees, _number(view.mu), display_epsilon(view.epsilon)))
    return {
        "views": views,
        # mu-GDP: the best test has the power of N(0, 1) against N(mu, 1), here at equal odds.
        "guesses": 50.0 * math.erfc(-privacy.mu / 2.0 / math.sqrt(2.0)),
        # Past 10^21 no figure says more, and past 709 a float overflows.
        "factor": math.exp(privacy.epsilon) if privacy.epsilon <= 50.0 else None,
    }


def _ledger(folder: MapFolder | TableFolder, drawn: bool) -> Values:
    privacy = folder.privacy
    events = privacy.events
    # A run that promises nothing has no figures on mu and epsilon, so their columns are dropped.
    free = all(event.epsilon_so_far is None for event in events)
    curve = None
    if drawn and events and privacy.private:
        epsilon = np.array([event.epsilon_so_far for event in events], dtype=np.float64)
        phases = [event.phase for event in events]
        budget = float(privacy.budget.epsilon or 0.0)
        curve = plots.draw_budget_curve(epsilon, budget, privacy.delta, phases)
    return {
        "curve": curve,
        "free": free,
        "by_phase": list(_phase_rows(events, free=free)),
    }


def _phase_rows(events: Sequence[ReleaseRow], *, free: bool) -> Iterator[Row]:
    # Parts of mu^2 are exact fractions: phases differ by orders of magnitude.
    total = sum((event.cost for event in events), FREE).mu2
    for phase in dict.fromkeys(event.phase for event in events):
        group = [event for event in events if event.phase == phase]
        # Clips follow a schedule over the rounds of a phase, so first and last tell the range.
        first, last = group[0], group[-1]
        spent = sum((event.cost for event in group), FREE).mu2
        names = ("clip", "sensitivity", "noise_std_share", "noise_std_mean")
        ranges = (_range(getattr(first, name), getattr(last, name)) for name in names)
        row = (phase, str(len(group)), str(first.size), *ranges)
        part = "-"
        if spent and total and last.mu is not None:
            part = f"{float(100 * spent / total):.1f} %"
        so_far = (_number(last.mu_so_far), display_epsilon(last.epsilon_so_far))
        yield row if free else (*row, part, *so_far)


def _number(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.4g}"


def _range(first: float, last: float) -> str:
    texts = f"{first:.3g}", f"{last:.3g}"
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def _quality(folder: MapFolder, drawn: bool) -> Values:
    results, rounds = folder.results, folder.rounds
    kind = results.kind
    # The curve is of the last phase alone: norms of different phases have no common scale.
    solver = [_measures(row) for row in rounds if row.phase == rounds[-1].phase]
    progress = None
    # One point is no course.
    if drawn and len(solver) > 1:
        progress = plots.draw_progress(*np.array(solver, dtype=np.float64).T)
    g = results.g_eff
    return {
        "kind": kind,
        "progress": progress,
        # At this size real data carried spatial components, so noise is not all there can be.
        "doubtful": kind == "spatial" and g is not None and g >= LEAST_SPATIAL,
        "rounds": rounds,
    }


def _measures(row: Round) -> tuple[float | None, ...]:
    return row.statistic_norm, row.expected_noise_norm, row.step_norm, row.stability


def _order(folder: MapFolder, drawn: bool) -> Values | None:
    values, results = folder.eigenvalues, folder.results
    if not np.any(values):  # a computation without a released spectrum
        return None
    n, edge = results.n_components, results.noise_edge or 0.0
    # On real brains the spectrum did not tell the number of components, whatever the model.
    images = _of_images(results)
    return {
        "spectrum": plots.draw_spectrum(values, edge, n) if drawn else None,
        "edge": edge,
        "last": float(np.sort(values)[::-1][n - 1]),
        "images": images,
        "hint": None
        if images
        else confidence.hint(
            values,
            folder.settings,
            kind=results.kind,
            edge=edge,
            n_components=n,
            g=results.g_eff,
        ),
    }


def _of_images(results: MapResults) -> bool:
    model = results.separation
    return model.kind == "spatial" or (model.spatial is not None and model.spatial.recipe)


def _components(folder: MapFolder, drawn: bool) -> Values:
    results, rows = folder.results, folder.components
    bar: Picture | None = None
    pictures: list[tuple[Picture, ...]] = [()] * len(rows)
    if drawn and _has_pictures(folder):
        bar, pictures = _draw(folder)
    placed = [(row, _where(row, results)) for row in rows]
    return {
        "bar": bar,
        "components": list(zip(placed, pictures, strict=True)),
        "table": placed,
        "viewer": (folder.path / viewer.FILE).is_file(),
        "figures": drawn and results.feature_space in ("mask", "atlas"),
        "cifti": is_cifti(results.feature_space)
        and _maps_of(folder, maps.file_of(results.status)).name,
    }


def _maps_of(folder: MapFolder, name: str) -> Path:
    return folder.path / f"{name}{maps.ENDINGS[folder.results.feature_space]}"


def _has_pictures(folder: MapFolder) -> bool:
    """Whether features have a place: plain columns, and parcels without a sphere, have none."""
    if is_cifti(folder.results.feature_space):
        return (folder.path / surfaces.SPHERES).is_file()
    return folder.results.feature_space != "matrix" or bool(folder.results.grid)


def _draw(folder: MapFolder) -> tuple[Picture, list[tuple[Picture, ...]]]:
    results, rows = folder.results, folder.components
    names = [row.name for row in rows]
    alts = [_alt(row, results) for row in rows]
    path, caption = _maps_of(folder, maps.file_of(results.status)), "Colours of all maps."
    if results.feature_space == "matrix":
        _, *lines = split_lines(path.read_bytes(), ",", comments=False)
        z = read_matrix_lines(lines)
        limit = plots.colour_limit(z)
        squares = plots.draw_squares(z, results.grid, names, alts, limit)
        return plots.draw_colour_bar(limit, 0.0, caption), [(square,) for square in squares]
    limit, drawings = _drawn_set(folder, path, rows, names, alts)
    return plots.draw_colour_bar(limit, plots.THRESHOLD, caption), drawings


def _drawn_set(
    folder: MapFolder,
    path: Path,
    rows: Sequence[Component],
    names: Sequence[str],
    alts: Sequence[str],
) -> tuple[float, list[tuple[Picture, ...]]]:
    """Draw a set of maps that have places, in a brain or on spheres; with the limit of colours."""
    if is_cifti(folder.results.feature_space):
        z, spheres = surfaces.read_cifti(path), surfaces.read_spheres(folder.path)
        limit = plots.colour_limit(z)
        return limit, [(p,) for p in surfaces.draw_spheres(z, spheres, names, alts, limit)]
    limit = plots.colour_limit(maps.read_maps(path))
    mni = is_mni(folder.results.template_space)
    return limit, list(brain.draw_maps(path, alts, limit, mni=mni, peaks=_peaks(rows)))


def _peaks(rows: Sequence[Component]) -> list[Array]:
    places = [(row.peak_x_mm, row.peak_y_mm, row.peak_z_mm) for row in rows]
    return [np.array(place, dtype=np.float64) for place in places if None not in place]


def _write_figures(folder: MapFolder) -> None:
    results, rows = folder.results, folder.components
    image = files.load_image(_maps_of(folder, maps.file_of(results.status)))
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    limit = plots.colour_limit(volumes[np.any(volumes != 0, axis=3)])
    titles = [f"{row.name}  {row.label}" if row.label else row.name for row in rows]
    mni, peaks = is_mni(results.template_space), _peaks(rows)
    figure = brain.networks_figure(volumes, image.affine, titles, limit, mni=mni, peaks=peaks)
    brain.write_networks(folder.path, figure)
    viewer.write_viewer(
        folder.path,
        volumes,
        image.affine,
        titles,
        limit,
        mni=mni,
        peaks=peaks,
        values={"results": results, "label": label_line(results)},
    )


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
    return f"column {row.peak_feature}"


def _alt(row: Component, results: MapResults) -> str:
    text = f"{row.name}: peak {_where(row, results)}, z {row.peak_z:.1f}"
    return f"{text}, most like {row.label}." if row.label else f"{text}."


def _separation(folder: MapFolder, drawn: bool) -> Values:
    model = folder.results.separation
    rows, images = model.template or (), _of_images(folder.results)
    templates = [
        (f"C{k:02d}", *(f"{x:.2f}" for x in dataclasses.astuple(row)))
        for k, row in enumerate(rows, 1)
    ]
    surrogate = folder.surrogate
    compared = None if surrogate is None else list(_compared(folder.results, surrogate))
    return {
        "model": model,
        "templates": templates,
        "noise_only": sum(row.kept == 0.0 for row in rows),
        "surrogate": compared,
        # Of images they stand in a chapter of their own.
        **_free_set(folder, drawn=drawn and model.kind == "temporal" and not images),
    }


def _compared(results: MapResults, surrogate: SurrogateFigures) -> Iterator[Row]:
    figures = SurrogateFigures.of(results)
    for name, words in SURROGATE_WORDS.items():
        here, there = getattr(figures, name), getattr(surrogate, name)
        if here is not None and there is not None:
            yield words, f"{here:.2f}", f"{there:.2f}"


def _free_set(folder: MapFolder, *, drawn: bool) -> Values:
    results, rows = folder.results, folder.spatial
    path = next((p for name in FREE_MAPS if (p := _maps_of(folder, name)).is_file()), folder.path)
    pictures: list[tuple[Picture, ...]] = []
    bar: Picture | None = None
    # Columns without a grid have no image of them.
    if drawn and path != folder.path and path.suffix != ".csv" and _has_pictures(folder):
        names = [row.name for row in rows] or [
            f"Spatial {k:02d}" for k in range(1, results.n_components + 1)
        ]
        alts = [f"{name}: a spatial component of the released subspace." for name in names]
        limit, drawings = _drawn_set(folder, path, rows, names, alts)
        # Of their own: the limit of the other set differs.
        bar = plots.draw_colour_bar(limit, plots.THRESHOLD, "Colours of the spatial set.")
        for name, several in zip(names, drawings, strict=True):
            pictures.append((replace(several[0], caption=name), *several[1:]))
    return {
        "free_bar": bar,
        "free_set": pictures,
        "free_table": [(row, _where(row, results)) for row in rows],
    }


def _free_spatial_set(folder: MapFolder, drawn: bool) -> Values | None:
    model = folder.results.separation
    if model.kind != "temporal" or not _of_images(folder.results) or not folder.spatial:
        return None
    return {"model": model, **_free_set(folder, drawn=drawn)}


def _tables(folder: TableFolder, drawn: bool) -> Values:
    return {"tables": [(table, *folder.table(table.file)) for table in folder.results.tables]}


def _settings(folder: MapFolder | TableFolder, drawn: bool) -> Values:
    rows = [(name, page.setting_text(value)) for name, value in folder.settings.items()]
    return {"rows": rows, "files": sorted(path.name for path in folder.path.iterdir())}


def label_line(results: Results) -> str:
    """Sentence on privacy that stands first in the page and under every picture."""
    return text_of("label.txt.j2", results=results)


def _methods(folder: MapFolder, drawn: bool) -> Values:
    return methods_values(folder.results, folder.privacy, folder.settings)


def methods_values(results: MapResults, privacy: PrivacyStatement, settings: Settings) -> Values:
    words = {"pca": "subspace", "whitening": "whitening", "solver": "solver"}
    # Only the temporal model has these stages, whatever else its settings may name.
    stages = [key for key in words if key in settings and results.kind == "temporal"]
    paragraph = text_of(
        "methods_paragraph.txt.j2",
        results=results,
        privacy=privacy,
        settings=settings,
        kind=results.kind,
        algorithms=[f"{words[key]} '{settings[key]}'" for key in stages],
        # Who is in the last sum: the text must not count those that left.
        present={s: n for s, n in results.sites.items() if s not in results.departed},
    )
    cited = references_of(settings, kind=results.kind, labels=results.labels.template)
    place = (results.grid, results.affine, results.template_space)
    said = methods.data_paragraph(results.computation, settings, results.feature_space, *place)
    return {
        "paragraph": paragraph,
        "data": said,
        "software": methods.software_sentence(results.date, results.software),
        "references": tuple(reference.text for reference in cited),
        "bibliography": bibliography(cited),
    }


def write_methods(
    folder: Path, results: MapResults, privacy: PrivacyStatement, settings: Settings
) -> None:
    values = methods_values(results, privacy, settings)
    text = text_of("methods.md.j2", label=label_line(results), **values)
    files.write_text(folder / "methods.md", text)
    files.write_text(folder / "references.bib", values["bibliography"])


# The page from top to bottom. A new chapter is one more line and one more template.
MAP_CHAPTERS: page.Outline[MapFolder] = (
    ("consortium/components", "Components", _components),
    ("consortium/spatial", "Spatial components of the first release", _free_spatial_set),
    ("consortium/privacy", "Privacy in plain words", _privacy),
    ("consortium/ledger", "What was released and what it cost", _ledger),
    ("consortium/quality", "Quality of the result", _quality),
    ("consortium/order", "Number of components", _order),
    ("consortium/separation", "What the model assumes", _separation),
    ("consortium/sites", "Sites", page.no_values),
    ("consortium/settings", "Settings and provenance", _settings),
    ("consortium/methods", "Methods paragraph and references", _methods),
)

TABLE_CHAPTERS: page.Outline[TableFolder] = (
    ("consortium/privacy", "Privacy in plain words", _privacy),
    ("consortium/ledger", "What was released and what it cost", _ledger),
    ("tables/results", "Results", _tables),
    ("tables/sites", "Sites", page.no_values),
    ("consortium/settings", "Settings and provenance", _settings),
)
