"""What was done to the data, in sentences for a paper: from settings, and at a site with counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cape.computations import load
from cape.errors import CapeError
from cape.report.page import text_of
from cape.settings.resolved import Cleaning, resolve

Settings = Mapping[str, object]


def data_paragraph(
    computation: str,
    settings: Settings,
    feature_space: str,
    grid: Sequence[int],
    affine: Sequence[float],
    template_space: str,
) -> str:
    """Return what the settings did to the data of every site; counts of people are not in it."""
    edges: list[str] = []
    if affine:
        lengths = np.linalg.norm(np.reshape(affine, (4, 4))[:3, :3], axis=0)
        edges = [f"{edge:.3g}" for edge in lengths.tolist()]
    text = text_of(
        "data_paragraph.txt.j2",
        feature_space=feature_space,
        grid=grid,
        template_space=template_space,
        s=settings,
        cleaning=_cleaning(computation, settings),
        voxel=edges[0] if len(set(edges)) == 1 else " x ".join(edges),
    )
    return " ".join(text.split())


def _cleaning(computation: str, settings: Settings) -> Cleaning | None:
    """Return how runs were cleaned, every `auto` resolved; None for settings of another build."""
    try:
        return resolve(load(computation).config.from_input(settings)).reading.cleaning
    except CapeError:
        return None


def spread(values: Sequence[float], unit: str = "", digits: str = "g") -> str:
    """Return one value, or the smallest to the largest, with a unit; empty without any."""
    if not values:
        return ""
    low, high = f"{min(values):{digits}}", f"{max(values):{digits}}"
    return f"{low if low == high else f'{low} to {high}'}{f' {unit}' if unit else ''}"
