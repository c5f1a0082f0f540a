"""The chapter on the model: what it assumes, how to tell whether it fits, what it showed before.

Joint temporal ICA, spatial ICA and template regression are three models.  Each page says which one
ran, and puts beside its result what the same steps give without any data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array
from cape.forecast.rule import Separation
from cape.protocol.outcome import IcaOutcome, TemplateReading
from cape.report.methods import kind_of
from cape.report.page_model import Block, Grid, Picture, Text

SPATIAL = "spatial_maps"
EVIDENCE = "template_evidence"
WITHOUT_DATA = "template_without_data"

ASSUMES = {
    "temporal": (
        "Joint temporal ICA: common maps, and time courses of each subject that are independent "
        "of each other. Maps may overlap and need not be sparse."
    ),
    "spatial": (
        "Spatial ICA: maps that are independent of each other over the brain and sparse; nothing "
        "is assumed of time courses. It is another model than joint temporal ICA and answers "
        "another question."
    ),
    "template": (
        "Template regression: networks are known beforehand as public maps, and the data say how "
        "they differ. Order, number and sign are those of the templates. Nothing is discovered."
    ),
}

SHOWED = {
    "temporal": (
        "On one real resting-state data set (40 subjects, 10 mm) temporal components agreed with "
        "independent subjects no better than a random rotation of the same subspace, at any G up "
        "to 400. The spatial set below did better there."
    ),
    "spatial": (
        "On one real resting-state data set (40 subjects, 10 mm, 15 components, basis of 53) "
        "spatial maps agreed with those of independent subjects by r .50, .54 and .55 at G 100, "
        "200 and 400; subjects made of smooth noise gave .34, .35 and .36 with the same settings."
    ),
    "template": (
        "On one real resting-state data set (40 subjects, 10 mm, 10 templates, basis of 53) maps "
        "reached r .74, .78, .81 and .82 with independent subjects at G 50, 100, 200 and 400; the "
        "figure without any data reached .71, the raw templates .58."
    ),
}

BESIDE = "surrogate.json"
"""Beside the results of a simulation: the same figures from smooth noise."""

SURROGATE = (
    "To see what these settings make of no signal at all, run `cape simulate --surrogate`: smooth "
    "noise in place of every subject."
)


def figures(outcome: IcaOutcome) -> dict[str, Any]:
    """Return the part of results.json on the model."""
    found: dict[str, Any] = {"kind": kind_of(outcome.settings), "spatial": None, "template": None}
    if outcome.spatial is not None:
        judged = outcome.spatial.sparseness
        found["spatial"] = {
            "converged": outcome.spatial.converged,
            "kurtosis": judged.kurtosis,
            "surrogate": judged.surrogate,
            "surrogate_std": judged.surrogate_std,
            "fits": judged.fits,
        }
    if outcome.template is not None:
        found["template"] = _template_rows(outcome.A, outcome.template)
    return found


def _template_rows(maps: Array, reading: TemplateReading) -> list[dict[str, float]]:
    """Return per template: likenesses, and how much of the deviation is left of its noise."""
    return [
        {
            "r_template": _r(maps[:, k], reading.templates[:, k]),
            "r_without_data": _r(maps[:, k], reading.without_data[:, k]),
            "r_template_without_data": _r(reading.without_data[:, k], reading.templates[:, k]),
            "strength": reading.strength[k],
            "kept": reading.kept[k],
        }
        for k in range(maps.shape[1])
    ]


def _r(a: Array, b: Array) -> float:
    """Return the correlation of two maps, 0 for a constant one."""
    a, b = a - a.mean(), b - b.mean()
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm > 0.0 else 0.0


def extra_maps(outcome: IcaOutcome) -> Iterator[tuple[str, Array]]:
    """Yield the further sets of maps of a run, as file stem and columns (D, R)."""
    if outcome.spatial is not None:
        yield SPATIAL, z_scores(outcome.spatial.A)
    if outcome.template is not None:
        # In units of the maps' own standard deviation, so that a small deviation looks small.
        scale = np.maximum(np.std(outcome.A, axis=0), 1e-300)
        yield EVIDENCE, outcome.template.evidence / scale
        yield WITHOUT_DATA, z_scores(outcome.template.without_data)


def chapter(
    folder: Path, results: Mapping[str, Any], settings: Mapping[str, Any], *, drawn: bool
) -> tuple[Block, ...]:
    """Return the blocks; () for results of before there was a choice."""
    if "separation" not in results:
        return ()
    found = results["separation"]
    kind = kind_of(settings)
    blocks: list[Block] = [Text(text=ASSUMES[kind]), Text(text=SHOWED[kind], tone="warning")]
    if found["spatial"] is not None:
        blocks += _fit(found["spatial"], kind)
    if found["template"] is not None:
        blocks += _template(found["template"])
    beside = folder / BESIDE
    if beside.is_file():
        blocks += _beside(results, json.loads(beside.read_text(encoding="utf-8")))
    else:
        blocks.append(Text(text=SURROGATE))
    if kind == "temporal" and found["spatial"] is not None:
        blocks += _free_set(folder, results, settings, drawn=drawn)
    return tuple(blocks)


def summary(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the figures that a run and its surrogate are compared by."""
    found = results["separation"]
    spatial, template = found["spatial"] or {}, found["template"] or []
    rows = {name: [row[name] for row in template] for name in ("r_template", "strength")}
    return {
        "stability": results["stability"] or None,
        "gap": results["gap_ratio"] or None,
        "kurtosis": spatial.get("kurtosis"),
        **{name: float(np.mean(values)) if values else None for name, values in rows.items()},
    }


NAMES = {
    "stability": "stability of the rounds",
    "gap": "largest gap of the spectrum over the noise edge",
    "kurtosis": "median kurtosis of the spatial components",
    "r_template": "mean correlation with the templates",
    "strength": "mean strength of the deviation from the figure without data",
}


def _beside(results: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[Block, ...]:
    """Put the figures of this run beside those of subjects made of smooth noise."""
    own = summary(results)
    rows = tuple(
        (words, f"{own[name]:.2f}", f"{other[name]:.2f}")
        for name, words in NAMES.items()
        if own[name] is not None and other.get(name) is not None
    )
    text = (
        "The same settings with smooth noise in place of every subject: what is not clearly better "
        "than the right column is no finding."
    )
    grid = Grid(caption="This run and its surrogate", header=("figure", "this run", "smooth noise"),
                rows=rows)  # fmt: skip
    return Text(text=text), grid


def _fit(judged: Mapping[str, Any], kind: Separation) -> tuple[Block, ...]:
    """Say whether the spatial maps are sparser than those of equally smooth noise."""
    grid = Grid(
        caption="Sparseness of the spatial components",
        header=("spatial components of", "median excess kurtosis"),
        rows=(
            ("this run", f"{judged['kurtosis']:.2f}"),
            (
                "random subspaces as smooth as this one, no data (mean, std)",
                f"{judged['surrogate']:.2f}, {judged['surrogate_std']:.2f}",
            ),
        ),
    )
    if judged["fits"]:
        text = "The maps are clearly sparser than those of smooth noise: spatial ICA has a basis."
    else:
        text = (
            "The spatial model does not fit: its maps are not sparser than those that smooth noise "
            "gives. Do not read them as networks."
        )
    if not judged["converged"]:
        text += " The rotation did not settle either."
    fits = bool(judged["fits"] and judged["converged"])
    return grid, Text(text=text, tone="" if fits or kind == "temporal" else "warning")


def _template(rows: list[dict[str, float]]) -> tuple[Block, ...]:
    text = (
        "Likeness to the templates proves nothing: a flipped template reproduces just as well. "
        "Only the deviation from the figure without data comes from the subjects "
        f"({EVIDENCE}); {WITHOUT_DATA} is what the same steps make of smooth noise. Strength is "
        "the size of the released deviation over that of its noise: near 1 there is nothing but "
        "noise; kept is the share that shrinkage left."
    )
    header = ("template", "r with template", "r with figure without data",
              "r of template and figure without data", "strength", "kept")  # fmt: skip
    cells = tuple(
        (f"C{k:02d}", *(f"{row[name]:.2f}" for name in (
            "r_template", "r_without_data", "r_template_without_data", "strength", "kept")))
        for k, row in enumerate(rows, 1)
    )  # fmt: skip
    empty = sum(row["kept"] == 0.0 for row in rows)
    blocks: list[Block] = [Text(text=text)]
    blocks.append(Grid(caption="What the data added to each template", header=header, rows=cells))
    if empty:
        said = f"{empty} of {len(rows)} templates: noise only; their maps are those without data."
        blocks.append(Text(text=said, tone="warning"))
    return tuple(blocks)


def _free_set(
    folder: Path, results: Mapping[str, Any], settings: Mapping[str, Any], *, drawn: bool
) -> tuple[Block, ...]:
    """Show the spatial components of the subspace that this temporal run released anyway."""
    text = (
        f"{SPATIAL} holds the spatial components of the released subspace. They cost no budget and "
        "are another model: do not mix them with the temporal components above."
    )
    blocks: list[Block] = [Text(text=text)]
    path = folder / f"{SPATIAL}.nii.gz"
    if drawn and path.is_file():
        blocks += _pictures(path, int(results["n_components"]), settings)
    return tuple(blocks)


def _pictures(path: Path, n: int, settings: Mapping[str, Any]) -> Iterator[Picture]:
    from cape.report import components_chapter, files, slice_plots

    volumes = np.asarray(files.load_image(path).dataobj, dtype=np.float64)
    limit = components_chapter.limit_of(volumes[np.any(volumes != 0, axis=3)])
    names = [f"Spatial {k:02d}" for k in range(1, n + 1)]
    alts = [f"{name}: a spatial component of the released subspace." for name in names]
    yield from slice_plots.strips(path, names, alts, limit, mni=files.in_mni(settings))
