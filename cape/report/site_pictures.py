"""Pictures of the private page: time courses, spectra, connectivity, agreement of maps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass
from cape.report.page_model import Picture
from cape.report.plots import BLUE, COLOURS, GREY, finish, framed, new_figure

FNC_LIMIT = 0.6
ROW = 0.34
"""Inches of one time course."""

SLICES = 8
MAP_THRESHOLD, MAP_LIMIT = 2.0, 6.0
"""|z| from which a map is coloured, and of the darkest colour."""

MOST_TICKS = 25
"""Names along an axis; more would overlap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Courses:
    """Time courses of one subject.

    Attributes
    ----------
    subject : str
        Name of its files.
    values : ndarray, shape (R, T)
        One row per component.
    tr : float
        Repetition time, s; 0 if unknown.
    """

    subject: str
    values: Array
    tr: float


def time_courses(names: Sequence[str], subjects: Iterable[Courses]) -> Iterator[Picture]:
    """Draw the time courses of every subject, one above the other, each in its own std.

    All are drawn into one figure, whose lines are moved: building its axes costs as much as
    drawing them.
    """
    n = len(names)
    height = 0.9 + ROW * n
    figure = new_figure(7.2, height)
    axes = framed(figure, "", "")
    lines = [axes.plot([], [], color=BLUE, linewidth=0.7)[0] for _ in names]
    axes.set_yticks(range(n - 1, -1, -1), names, fontsize=8)
    axes.set_ylim(-0.7, n - 0.3)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    # A fixed frame: fitting it would draw everything twice.
    figure.subplots_adjust(left=0.07, right=0.98, bottom=0.55 / height, top=1 - 0.1 / height)
    for one in subjects:
        courses, length = one.values, one.values.shape[1]
        at = np.arange(length) * (one.tr if one.tr > 0 else 1.0)
        std = courses.std(axis=1, keepdims=True)
        shown = (courses - courses.mean(axis=1, keepdims=True)) / np.where(std > 0, std, 1.0)
        for k, (line, row) in enumerate(zip(lines, shown, strict=True)):
            line.set_data(at, row / 6.0 + (n - 1 - k))
        axes.set_xlim(at[0], at[-1] if length > 1 else 1.0)
        axes.set_xlabel("time, s" if one.tr > 0 else "time point")
        span = f"{at[-1]:.0f} s" if one.tr > 0 else f"{length} time points"
        alt = (
            f"{one.subject}: {n} time courses over {span}, each scaled to its own standard "
            "deviation."
        )
        yield finish(figure, alt=alt, caption=alt, shape="chart")


def sheet(subject: str, names: Sequence[str], volumes: Array, affine: Array) -> Picture:
    """Draw maps (x, y, z, R) of one subject as rows of eight axial slices, grey where small.

    Own drawing, without an anatomical background: one image instead of one per map.
    """
    volumes, corner = _cropped(volumes)
    inside = np.any(volumes != 0, axis=3)
    size = inside.sum(axis=(0, 1))
    levels = np.flatnonzero(size > 0.2 * size.max())
    cuts = levels[np.unique(np.linspace(0, levels.size - 1, SLICES).round().astype(int))]
    rows, under = [], []
    for k in range(len(names)):
        strong = np.abs(volumes[..., k]) >= MAP_THRESHOLD
        shown = np.where(strong, volumes[..., k], np.nan)
        rows.append(np.concatenate([shown[:, ::-1, cut].T for cut in cuts], axis=1))
        grey = np.where(inside, 0.86, 1.0)
        under.append(np.concatenate([grey[:, ::-1, cut].T for cut in cuts], axis=1))
    wide, tall = cuts.size * volumes.shape[0], len(names) * volumes.shape[1]
    figure = new_figure(7.6, 0.5 + 6.9 * tall / wide)
    axes = figure.add_axes((0.07, 0.03, 0.92, 0.92))
    painted = _painted(np.concatenate(rows), np.concatenate(under))
    axes.imshow(painted, interpolation="nearest", aspect="auto")
    middle = volumes.shape[1] * (np.arange(len(names)) + 0.5) - 0.5
    axes.set_yticks(middle, names, fontsize=8)
    heights = ((cuts + corner) * affine[2, 2] + affine[2, 3]).tolist()
    at = volumes.shape[0] * (np.arange(cuts.size) + 0.5) - 0.5
    axes.set_xticks(at, [f"z = {height:.0f} mm" for height in heights], fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    top = float(np.abs(volumes).max())
    alt = (
        f"{subject}: maps of {len(names)} components in {cuts.size} axial slices, red and blue "
        f"from |z| {MAP_THRESHOLD:g} to {MAP_LIMIT:g}; left is left; the largest |z| is {top:.1f}."
    )
    return finish(figure, alt=alt, caption=alt, shape="chart")


def _painted(z: Array, grey: Array) -> Any:
    """Return z in the colours of maps over `grey` (0 to 1), which shows where z is NaN, as RGB."""
    from matplotlib import colormaps

    scaled = (np.clip(z, -MAP_LIMIT, MAP_LIMIT) + MAP_LIMIT) / (2 * MAP_LIMIT)
    coloured = colormaps[COLOURS](scaled, bytes=True)[..., :3]
    plain = colormaps["gray"](grey, bytes=True)[..., :3]
    return np.where(np.isnan(z)[..., None], plain, coloured)


def _cropped(volumes: Array) -> tuple[Array, int]:
    """Return the box of voxels that are not 0, one voxel wider, and where it begins in z."""
    where = np.argwhere(np.any(volumes != 0, axis=3))
    if not len(where):
        return volumes, 0
    low, high = np.maximum(where.min(axis=0) - 1, 0), where.max(axis=0) + 2
    box = tuple(slice(int(a), int(b)) for a, b in zip(low, high, strict=True))
    return volumes[box], int(low[2])


def spectra(names: Sequence[str], frequency: Array, power: Array, unit: str) -> Picture:
    """Draw the mean spectrum of every component in a small panel; `power` is (R, n)."""
    n = len(names)
    across = min(5, n)
    down = math.ceil(n / across)
    figure = new_figure(7.6, 0.5 + 1.25 * down)
    shown = slice(1, -1)  # without 0, where the mean was taken out, and the half-weighted last
    values = np.log10(np.maximum(power[:, shown], 1e-12))
    low, high = float(values.min()), float(values.max())
    for k, name in enumerate(names):
        axes = framed(figure, "", "", (down, across, k + 1))
        axes.plot(frequency[shown], values[k], color=BLUE, linewidth=1.2)
        axes.set_title(name, fontsize=8, pad=2)
        axes.set_ylim(low - 0.1, high + 0.1)
        axes.set_xlim(0.0, float(frequency[-1]))
        axes.locator_params(nbins=3)
        axes.tick_params(labelsize=7, labelbottom=k + across >= n, labelleft=k % across == 0)
    figure.supxlabel(f"frequency, {unit}", fontsize=9)
    figure.supylabel("log10 power", fontsize=9)
    figure.tight_layout()
    peak = frequency[shown][np.argmax(power[:, shown], axis=1)]
    alt = (
        f"Mean power spectra of {n} components; their peaks lie between {peak.min():.3g} and "
        f"{peak.max():.3g} {unit}."
    )
    return finish(figure, alt=alt, caption=alt, shape="chart")


def connectivity(names: Sequence[str], r: Array, what: str) -> Picture:
    """Draw a matrix of correlations (R, R) with an empty diagonal and fixed limits."""
    n = len(names)
    figure = new_figure(5.6, 4.8)
    axes = figure.add_subplot(111)
    shown = r.copy()
    np.fill_diagonal(shown, np.nan)
    axes.set_facecolor("#d9d9d9")
    image = axes.imshow(shown, cmap=COLOURS, vmin=-FNC_LIMIT, vmax=FNC_LIMIT)
    _ticks(axes, names)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[-FNC_LIMIT, 0.0, FNC_LIMIT])
    bar.set_label("correlation r", fontsize=9)
    figure.tight_layout()
    alt = f"{what}: {_strongest(names, r)}."
    if n < 2:
        alt = f"{what}: one component has no partner (0 pairs)."
    return finish(figure, alt=alt, caption=alt, shape="chart")


def connectivities(labels: Sequence[str], matrices: Sequence[Array]) -> Picture:
    """Draw small matrices of several subjects side by side, with the same limits."""
    across = min(5, len(labels))
    down = math.ceil(len(labels) / across)
    figure = new_figure(7.6, 0.2 + 1.65 * down)
    for k, (label, r) in enumerate(zip(labels, matrices, strict=True)):
        axes = figure.add_subplot(down, across, k + 1)
        shown = r.copy()
        np.fill_diagonal(shown, np.nan)
        axes.set_facecolor("#d9d9d9")
        axes.imshow(shown, cmap=COLOURS, vmin=-FNC_LIMIT, vmax=FNC_LIMIT)
        axes.set_title(label[:18], fontsize=8, pad=2)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.tight_layout()
    top = max(float(np.abs(r - np.diag(np.diag(r))).max(initial=0.0)) for r in matrices)
    alt = (
        f"Network connectivity of {len(labels)} subjects, colours as above; the largest |r| in "
        f"them is {top:.2f}."
    )
    return finish(figure, alt=alt, caption=alt, shape="chart")


def agreement(labels: Sequence[str], names: Sequence[str], r: Array) -> Picture:
    """Draw how every subject's map correlates with the common one; `r` is (subjects, R)."""
    figure = new_figure(7.2, 1.3 + max(0.12 * len(labels), 1.2))
    axes = figure.add_subplot(111)
    image = axes.imshow(r, cmap=COLOURS, vmin=-1.0, vmax=1.0, aspect="auto")
    _names(axes.set_xticks, names, rotation=90 if len(names) > 12 else 0)
    _names(axes.set_yticks, labels, rotation=0)
    bar = figure.colorbar(image, ax=axes, ticks=[-1.0, 0.0, 1.0])
    bar.set_label("correlation r", fontsize=9)
    figure.tight_layout()
    low = int(np.argmin(np.median(r, axis=0)))
    alt = (
        f"Correlation of {len(labels)} subjects' maps with the common maps: median "
        f"{np.median(r):.2f}, lowest median at {names[low]} ({np.median(r[:, low]):.2f})."
    )
    return finish(figure, alt=alt, caption=alt, shape="chart")


def _ticks(axes: Any, names: Sequence[str]) -> None:
    _names(axes.set_xticks, names, rotation=90)
    _names(axes.set_yticks, names, rotation=0)


def _names(set_ticks: Any, names: Sequence[str], rotation: int) -> None:
    """Label an axis with every name, or every second, third ... if there are many."""
    step = math.ceil(len(names) / MOST_TICKS)
    at = range(0, len(names), step)
    set_ticks(list(at), [names[k] for k in at], fontsize=7, rotation=rotation, color=GREY)


def _strongest(names: Sequence[str], r: Array) -> str:
    off = np.abs(r - np.diag(np.diag(r)))
    i, j = divmod(int(np.argmax(off)), len(names))
    return f"the strongest pair is {names[min(i, j)]} and {names[max(i, j)]} (r {r[i, j]:.2f})"
