"""Texts for a paper: sentences on the data, works to cite, date and software.

Sentences follow from the settings, at a site also from its counts; works are in citations.toml.
"""

import importlib.metadata
import os
import platform
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.computations import load
from cape.errors import CapeError
from cape.report.page import text_of
from cape.settings.config import VERSION
from cape.settings.resolved import Cleaning, resolve

PACKAGES: Final = ("numpy", "cryptography", "nibabel", "nilearn")

Settings = Mapping[str, object]


def data_paragraph(
    computation: str,
    settings: Settings,
    feature_space: str,
    grid: Sequence[int],
    affine: Sequence[float],
    template_space: str,
) -> str:
    """Return a paragraph on the processing of the data by the settings, without counts."""
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
    """Return the cleaning of runs with every `auto` resolved; None for another build's settings."""
    try:
        return resolve(load(computation).config.from_input(settings)).reading.cleaning
    except CapeError:
        return None


def spread(values: Sequence[float], unit: str = "", digits: str = "g") -> str:
    """Return the value, or smallest to largest, with its unit; "" without values."""
    if not values:
        return ""
    low, high = f"{min(values):{digits}}", f"{max(values):{digits}}"
    return f"{low if low == high else f'{low} to {high}'}{f' {unit}' if unit else ''}"


_TOML: Final = Path(__file__).with_name("citations.toml").read_text(encoding="utf-8")
# Works by key: authors ("Family, Initials"; a last "others" for et al.), year, title, journal,
# rest as printed (volume, pages), note
WORKS: Final[Mapping[str, Mapping[str, Any]]] = {
    key: {"key": key, "note": "", **work} for key, work in tomllib.loads(_TOML).items()
}


def references_of(
    settings: Settings, *, kind: str, labels: str | None
) -> tuple[Mapping[str, Any], ...]:
    """Return the works that a run with these settings and sets of network names cites."""
    keys = ["imtiaz2021", "baker2019", "dong2022", "canonne2020", "bonawitz2017"]
    if kind in ("each", "pattern"):
        keys.remove("baker2019")
        keys += ["cox1975"] if kind == "pattern" else []
        keys += ["holm1979", "benjamini1995"]
        keys += ["filippini2009"] if settings.get("feature_space") != "matrix" else []
    if kind == "spatial":
        keys.append("hyvarinen1999")
    strategy = str(settings.get("confound_strategy", "none"))
    if "scrub" in strategy or settings.get("max_mean_fd"):
        keys.append("power2012")
    if strategy != "none":
        keys.append("abraham2014")
    keys.append("harris2020")
    keys += [name for name in (labels or "").split(", ") if name in WORKS]
    return tuple(WORKS[key] for key in keys)


def date_of_today() -> str:
    """Return the day in UTC; SOURCE_DATE_EPOCH sets it for reproducible results."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(stated) if stated.isdecimal() else time.time()
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def package_versions() -> dict[str, str]:
    versions = {"cape": VERSION, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
