"""The chapter on components: one picture and one line of numbers for each map.

Maps are read back from group_maps.nii.gz or group_maps.csv, numbers from components.tsv.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.delimited import read_lines, read_matrix_lines
from cape.report import files
from cape.report.page_model import Block, Entry, Picture, Text

THRESHOLD = 2.0
"""|z| from which colour is shown over an anatomical background."""

LIMITS = (4.0, 12.0)


def components(
    folder: Path,
    results: dict[str, Any],
    settings: dict[str, Any],
    rows: list[dict[str, str]],
    *,
    with_pictures: bool,
) -> tuple[Block, ...]:
    """Return the maps with their numbers, one entry for each component.

    Parameters
    ----------
    folder : Path
        Holds the maps.
    results, settings
        The parsed files.
    rows : list of dict
        Of components.tsv.
    with_pictures : bool
        False: numbers only.
    """
    drawn: Sequence[Picture | None] = [None] * len(rows)
    bar: list[Block] = []
    if with_pictures and (results["feature_space"] != "matrix" or results["grid"]):
        pictures = _draw(folder, results, settings, rows)
        bar, drawn = [pictures[0]], pictures[1:]
    entries = (
        Entry(title=row["name"], facts=_facts(row, results), picture=picture)
        for row, picture in zip(rows, drawn, strict=True)
    )
    return (*_intro(results), *bar, *entries)


def _intro(results: dict[str, Any]) -> tuple[Block, ...]:
    """Say what the numbers beside the maps mean, and what they do not."""
    numbers = (
        "Maps are z-scores over all features. Share is the share of the retained variance, from "
        "released matrices; it is not explained variance of the data. Kurtosis is 0 for a "
        "Gaussian."
    )
    band = results["noise_band"]
    if band["shown"]:
        noise = (
            "Noise level: about 95 % of a map's features are within this |z| of the map that the "
            "same data would give without noise. Expected r: the correlation with that map. On "
            "planted maps the mean of the expected r was right within "
            f"{band['margin_expected_r']:g} and the 95 % within {100 * band['margin_band']:g} "
            "points; a single component can be further off, most of all where two are confused."
        )
    else:
        noise = f"No noise level is given for the maps: {band['why_not']}."
    labels = results["labels"]
    if labels["template"] is None:
        likeness = str(labels["note"])
    else:
        likeness = (
            f"Nearest: the most similar of {len(labels['labels'])} maps of {labels['template']}, "
            "with the correlation r. Chance is the r that 1 of 20 random directions in the space "
            "of these maps reaches; a match below it says nothing. A label is no finding: any "
            "smooth map resembles some network."
        )
    return (Text(text=numbers), Text(text=noise), Text(text=likeness))


def _draw(
    folder: Path, results: dict[str, Any], settings: dict[str, Any], rows: list[dict[str, str]]
) -> list[Picture]:
    """Return the colour bar and one picture per map."""
    from cape.report import slice_plots

    space = str(results["feature_space"])
    names = [row["name"] for row in rows]
    alts = [_alt(row, results) for row in rows]
    z = _maps(folder, space)
    limit = limit_of(z)
    caption = "Colours of all maps."
    if space == "matrix":
        bar = slice_plots.colour_bar(limit, 0.0, caption)
        return [bar, *slice_plots.squares(z, tuple(results["grid"]), names, alts, limit)]
    bar = slice_plots.colour_bar(limit, THRESHOLD, caption)
    path = folder / "group_maps.nii.gz"
    return [bar, *slice_plots.strips(path, names, alts, limit, mni=files.in_mni(settings))]


def limit_of(z: Array) -> float:
    """Return one symmetric limit of colours for all maps, shape (D, R).

    The median over the maps of the 99.5th percentile of |z|, rounded up, between 4 and 12.
    """
    top = np.percentile(np.abs(z), 99.5, axis=0)
    return float(min(max(math.ceil(float(np.median(top))), LIMITS[0]), LIMITS[1]))


def _maps(folder: Path, space: str) -> Array:
    """Return the z-maps, one row per feature that any map shows."""
    if space == "matrix":
        _, *rows = read_lines((folder / "group_maps.csv").read_bytes(), ",", comments=False)
        return read_matrix_lines(rows)
    image = files.load_image(folder / "group_maps.nii.gz")
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    inside = np.any(volumes != 0, axis=3)
    maps: Array = volumes[inside]
    return maps


def _facts(row: dict[str, str], results: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    facts = [
        ("peak", _where(row, results)),
        ("z at the peak", f"{float(row['peak_z']):.1f}"),
        ("share", f"{100 * float(row['share']):.1f} %"),
        ("skewness", f"{float(row['skewness']):.2f}"),
        ("kurtosis", f"{float(row['kurtosis']):.1f}"),
    ]
    if row["noise_z"] != files.MISSING:
        facts.append(("noise level |z|", f"{float(row['noise_z']):.2f}"))
        facts.append(("expected r", f"{float(row['expected_r']):.2f}"))
    if row["label"] != files.MISSING:
        facts.append(("nearest", _nearest(row)))
    return tuple(facts)


def _nearest(row: dict[str, str]) -> str:
    r, chance = float(row["label_r"]), float(row["label_chance"])
    verdict = "chance" if abs(r) > chance else "not above chance"
    return f"{row['label']} (r {r:.2f}, {verdict} {chance:.2f})"


def _where(row: dict[str, str], results: dict[str, Any]) -> str:
    """Say where the peak is: mm, pixel, or number of the column."""
    mm = [row[f"peak_{axis}_mm"] for axis in "xyz"]
    if files.MISSING not in mm:
        return f"{' '.join(f'{float(x):.0f}' for x in mm)} mm".replace("-0 ", "0 ")
    number = int(row["peak_feature"])
    if results["grid"]:
        down, across = divmod(number - 1, int(results["grid"][1]))
        return f"row {down + 1}, column {across + 1}"
    return f"column {number}"


def _alt(row: dict[str, str], results: dict[str, Any]) -> str:
    text = f"{row['name']}: peak {_where(row, results)}, z {float(row['peak_z']):.1f}"
    if row["label"] != files.MISSING and abs(float(row["label_r"])) > float(row["label_chance"]):
        text += f", most like {row['label']}"
    return f"{text}."
