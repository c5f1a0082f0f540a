"""All pictures of the pages: small PNGs in one style; matplotlib is imported on the first call.

Colours are safe for colour-blind readers (RdBu_r, Okabe-Ito); no meaning depends on colour alone.
"""

from __future__ import annotations

import atexit
import base64
import functools
import io
import math
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.counting import number_of
from cape.frozen import dataclass
from cape.privacy.accounting import display_epsilon

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Names the folder of the image with matplotlib's list of fonts
FONT_LIST = "CAPE_FONT_LIST"
BLUE, VERMILION, GREY = "#0072B2", "#B8480A", "#595959"
# Grey of missing values and of values below the threshold
EMPTY = "#d9d9d9"
DPI = 100
COLOURS = "RdBu_r"
# Numbers of colours of a PNG: a third of the bytes of full colour, without visible difference
GREYS, HUES = 32, 64
# Level of a PNG: level 9 takes ten times as long and saves a tenth of the bytes
COMPRESSION = 6

COLOUR_LIMITS = (4.0, 12.0)
FNC_LIMIT = 0.6
# |z| from which voxels are coloured and count for the size of a map
THRESHOLD = 2.5
# Inches of one time course
COURSE_HEIGHT = 0.34
# Names along an axis; more would overlap
MAX_TICKS = 25

OVER_AXES: Mapping[str, Any] = dict(xycoords=("axes fraction", "data"), textcoords="offset points")
OVER_DATA: Mapping[str, Any] = dict(xycoords=("data", "axes fraction"), textcoords="offset points")


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """A PNG in base64, its size in pixels, and the sentence that describes it."""

    png: str
    width: int
    height: int
    alt: str
    caption: str = ""
    shape: str = ""  # for the style sheet: planes, tile, square, strip, chart or bar


@functools.cache
def _take_font_list() -> None:
    """Copy the image's list of fonts into a folder of this process, so that it is not made anew."""
    # Matplotlib uses only a list that it may write, and nobody but its builder may write the
    # image's.
    if (shipped := os.environ.get(FONT_LIST)) and "MPLCONFIGDIR" not in os.environ:
        own = tempfile.mkdtemp(prefix="cape-fonts-")  # 0700
        atexit.register(shutil.rmtree, own, ignore_errors=True)
        with suppress(OSError):  # then the list is made
            for path in Path(shipped).iterdir():
                shutil.copyfile(path, Path(own, path.name))
        os.environ["MPLCONFIGDIR"] = own


def has_matplotlib() -> bool:
    """Whether pages have pictures; nilearn, if installed, adds anatomy and names."""
    _take_font_list()
    try:
        import matplotlib  # noqa: F401  the import is the question
    except ImportError:
        return False
    return True


@functools.cache
def _shown() -> type[Figure]:
    from matplotlib.figure import Figure

    class Shown(Figure):
        """A figure that notebooks show without any import of their own."""

        _repr_png_ = png_of

    return Shown  # cached: matplotlib takes 30 ms to write the docstrings of a new class


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # pyplot would keep every figure alive and look for a screen.
    figure = _shown()(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def png_of(figure: Figure) -> bytes:
    target = io.BytesIO()
    figure.savefig(target, format="png")
    return target.getvalue()


def drawn(figure: Figure) -> Any:
    """Return the figure as an image of PIL."""
    from PIL import Image

    canvas: Any = figure.canvas
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def finish(figure: Figure, *, alt: str, caption: str = "", shape: str = "") -> Picture:
    """Return the figure as a palette PNG; equal figures give equal bytes."""
    return picture_of(drawn(figure), alt=alt, caption=caption, shape=shape)


def picture_of(full: Any, *, alt: str, caption: str = "", shape: str = "") -> Picture:
    from PIL import Image

    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    # Dither would add grains to flat areas, which compress badly and look like data.
    image = full.quantize(palette=palette, dither=Image.Dither.NONE)
    target = io.BytesIO()
    image.save(target, format="png", compress_level=COMPRESSION)
    png = base64.b64encode(target.getvalue()).decode("ascii")
    width, height = image.size
    return Picture(png=png, width=width, height=height, alt=alt, caption=caption, shape=shape)


def _chart(figure: Figure, alt: str, caption: str = "", *, fit: bool = True) -> Picture:
    if fit:
        figure.tight_layout()
    return finish(figure, alt=alt, caption=caption or alt, shape="chart")


@functools.cache
def _palette() -> list[int]:
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    # One palette for all: an adaptive one would shift colours away from the common colour bar.
    greys = np.repeat(np.linspace(0.0, 1.0, GREYS)[:, None], 3, axis=1)
    hues = colormaps[COLOURS](np.linspace(0.0, 1.0, HUES))[:, :3]
    lines = [
        np.linspace(to_rgb(colour), (1.0, 1.0, 1.0), 8, endpoint=False)
        for colour in (BLUE, VERMILION)
    ]
    rows = np.concatenate([greys, hues, *lines])
    return [round(255 * value) for value in rows.ravel().tolist()]


def _axes(figure: Figure, xlabel: str, ylabel: str, position: Any = (1, 1, 1)) -> Axes:
    axes = figure.add_subplot(*position)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def _limit_line(axes: Axes, height: float, text: str) -> None:
    axes.axhline(height, color=VERMILION, linestyle="--", linewidth=1.5)
    axes.annotate(text, (0.99, height), ha="right", xytext=(0, 4), color=VERMILION, **OVER_AXES)


def _name_ticks(set_ticks: Any, names: Sequence[str], rotation: int) -> None:
    step = math.ceil(len(names) / MAX_TICKS)
    at = range(0, len(names), step)
    set_ticks(list(at), [names[k] for k in at], fontsize=7, rotation=rotation, color=GREY)


# -- the consortium's charts ----------------------------------------------------------------------


def draw_budget_curve(epsilon: Array, budget: float, delta: float, phases: list[str]) -> Picture:
    figure = new_figure(7.2, 3.0)
    axes = _axes(figure, "release", f"epsilon so far (delta {delta:g})")
    index = np.arange(1, epsilon.size + 1)
    axes.step(index, epsilon, where="post", color=BLUE, linewidth=2)
    axes.plot(index, epsilon, ".", color=BLUE, markersize=4)
    _limit_line(axes, budget, f"budget {display_epsilon(budget)}")
    # From 0: the height of the curve shows the spent part.
    axes.set_ylim(0.0, max(budget, float(epsilon.max())) * 1.18)
    starts = [k for k, name in enumerate(phases) if k == 0 or phases[k - 1] != name]
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for level, k in enumerate(starts):
        axes.axvline(k + 0.5, color=GREY, linewidth=0.8, linestyle=":")
        # Names of short phases, which lie close together, alternate between four heights.
        at = (k + 0.5, 0.04 + 0.1 * (level % 4))
        axes.annotate(
            phases[k], at, color=GREY, fontsize=9, xytext=(5, 0), zorder=3, bbox=box, **OVER_DATA
        )
    axes.set_xlim(0.5, epsilon.size + 0.5)
    alt = (
        f"Epsilon grows to {display_epsilon(float(epsilon[-1]))} after {epsilon.size} releases; "
        f"the budget is {display_epsilon(budget)} at delta {delta:g}."
    )
    return _chart(figure, alt, "Epsilon after each release; the dashed line is the budget.")


def draw_spectrum(eigenvalues: Array, edge: float, n_components: int) -> Picture:
    # Omit the tail of a large basis, which is noise and would squeeze the rest.
    count = min(eigenvalues.size, max(40, 2 * n_components))
    values = np.sort(eigenvalues)[::-1]
    figure = new_figure(7.2, 3.0)
    axes = _axes(figure, "number of the eigenvalue", "eigenvalue")
    axes.plot(np.arange(1, count + 1), values[:count], "o", color=BLUE, markersize=4)
    axes.axvline(n_components + 0.5, color=GREY, linestyle=":", linewidth=1.2)
    at = (n_components + 0.5, 0.04)  # above, the noise edge may run through it
    axes.annotate(f"R = {n_components}", at, color=GREY, xytext=(4, 0), **OVER_DATA)
    last, after = float(values[n_components - 1]), values[n_components : n_components + 1]
    alt = f"Eigenvalue {n_components} is {last:.3g}"
    alt += f", the next is {float(after[0]):.3g}" if after.size else ""
    caption = "Spectrum of the released subspace statistic; R is the number of components."
    if edge > 0:
        axes.axhspan(min(0.0, float(values[:count].min())), edge, color="#eeeeee", zorder=0)
        _limit_line(axes, edge, f"noise edge {edge:.3g}")
        side = "above" if last > edge else "UNDER"
        alt += f"; the noise edge is {edge:.3g}, so it lies {side} it"
        caption += " What lies in the grey band may be noise alone."
    return _chart(figure, f"{alt}.", caption)


def draw_progress(statistic: Array, noise: Array, step: Array, stability: Array) -> Picture:
    rounds = np.arange(1, statistic.size + 1)
    figure = new_figure(7.2, 5.4)
    panels = {"statistic norm": statistic, "step size": step, "stability": stability}
    for k, (name, values) in enumerate(panels.items(), 1):
        axes = _axes(figure, "round of the solver" if k == 3 else "", name, (3, 1, k))
        axes.plot(rounds, values, "-o", color=BLUE, markersize=3, label="released statistic")
        if k == 1:
            style: dict[str, Any] = {"color": VERMILION, "linewidth": 1.5}
            axes.plot(rounds, noise, "--", label="expected of noise alone", **style)
            axes.legend(frameon=False, fontsize=8, loc="best", ncols=2)
        axes.set_ylim(0.0, 1.05 if k == 3 else None)
        axes.set_xlim(0.5, statistic.size + 0.5)
    figure.align_ylabels()
    last = float(stability[-1]) if stability.size else math.nan
    end = f"stability ends at {last:.2f}" if math.isfinite(last) else "stability was not assessed"
    alt = (
        f"Over {statistic.size} rounds the statistic goes from {statistic[0]:.3g} to "
        f"{statistic[-1]:.3g} (noise alone {noise[-1]:.3g}), the step from {step[0]:.3g} to "
        f"{step[-1]:.3g}; {end}."
    )
    caption = "The solver round by round: norm of the released statistic, step, stability."
    return _chart(figure, alt, caption)


# -- maps -----------------------------------------------------------------------------------------


def colour_limit(z: Array) -> float:
    """Return the median over maps (D, R) of the largest |z|, rounded up, from 4 to 12."""
    # One limit for all maps, to compare them by eye; the median: a strong map must not pale others.
    top = np.abs(z).max(axis=0)
    return float(min(max(math.ceil(float(np.median(top))), COLOUR_LIMITS[0]), COLOUR_LIMITS[1]))


def draw_squares(
    z: Array, shape: tuple[int, ...], names: Sequence[str], alts: Sequence[str], limit: float
) -> Iterator[Picture]:
    """Yield every column of `z` (D, R) as an image of `shape` (row-major)."""
    for k, (name, alt) in enumerate(zip(names, alts, strict=True)):
        figure = new_figure(2.0, 2.0 * min(shape[0] / shape[1], 2.0))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        values = z[:, k].reshape(shape)
        style: dict[str, Any] = {"interpolation": "nearest", "aspect": "auto"}
        axes.imshow(values, cmap=COLOURS, vmin=-limit, vmax=limit, **style)
        axes.set_axis_off()
        yield finish(figure, alt=alt, caption=name, shape="square")


def draw_colour_bar(limit: float, threshold: float) -> Picture:
    figure = new_figure(5.4, 0.62)
    paint_bar(figure.add_axes((0.06, 0.5, 0.62, 0.3)), limit, threshold)
    alt = f"Colour bar from blue, z minus {limit:g}, to red, z {limit:g}"
    alt += f"; |z| below {threshold:g} is not coloured." if threshold else "."
    return finish(figure, alt=alt, shape="bar")


def paint_bar(axes: Axes, limit: float, threshold: float) -> None:
    scale = np.linspace(-limit, limit, 512)
    coloured = np.where(np.abs(scale) < threshold, np.nan, scale)[None]
    axes.set_facecolor(EMPTY)
    style: dict[str, Any] = {"vmin": -limit, "vmax": limit, "interpolation": "nearest"}
    axes.imshow(coloured, cmap=COLOURS, aspect="auto", extent=(-limit, limit, 0.0, 1.0), **style)
    axes.set_yticks([])
    axes.set_xticks([-limit, 0.0, limit], [f"z = -{limit:g}", "0", f"z = {limit:g}"])
    axes.tick_params(length=3, labelsize=9)
    if threshold:
        beside = f"coloured from |z| {threshold:g}"
        axes.annotate(beside, (1.03, 0.5), xycoords="axes fraction", va="center", fontsize=9)


# -- a comparison of groups -----------------------------------------------------------------------


def draw_effects(
    names: Sequence[str],
    d: Array,
    low: Array,
    high: Array,
    which: Sequence[bool],
    alt: str,
    span: tuple[float, float] | None = None,
) -> Picture:
    """Draw effects in d with intervals of 95 %; those of `which` differ from zero."""
    # `span`: ends of an axis that several pictures share.
    n = len(names)
    figure = new_figure(7.2, 1.1 + 0.24 * n)
    axes = _axes(figure, "difference in standard deviations (d), interval of 95 %", "")
    for k, leaves in enumerate(which):
        colour = BLUE if leaves else GREY
        axes.plot([low[k], high[k]], [k, k], color=colour, linewidth=2.0)
        axes.plot([d[k]], [k], "o", color=colour, markersize=5)
    axes.axvline(0.0, color=GREY, linewidth=1.0)
    if span:
        axes.update_datalim([(end, 0.0) for end in span])
        axes.autoscale_view(scaley=False)
    axes.set_ylim(n - 0.5, -0.5)
    axes.set_yticks(range(n), [name[:40] for name in names], fontsize=8)
    return _chart(figure, alt)


def draw_edges(
    names: Sequence[str],
    values: Array,
    alt: str,
    unit: str = "difference (d)",
    *,
    groups: Sequence[str] = (),
    thumbnails: Sequence[Any] = (),
) -> Picture:
    """Draw a number of each pair of regions (R, R); NaN is not drawn."""
    # `groups`: the domain of each, in their order; lines part them.  `thumbnails`: RGB pictures,
    # rows upwards, that stand beside the names.
    limit = max(math.ceil(10 * float(np.nanmax(np.abs(values), initial=0.0))) / 10, 0.1)
    figure, axes = _matrix(names, values, limit, unit)
    ends = [k for k in range(1, len(groups)) if groups[k] != groups[k - 1]]
    for k in ends:
        axes.axhline(k - 0.5, color=GREY, linewidth=0.8)
        axes.axvline(k - 0.5, color=GREY, linewidth=0.8)
    for first, last in zip((0, *ends), (*ends, len(groups)), strict=True) if ends else ():
        at = (first + last - 1) / 2
        axes.text(at, -0.8, groups[first][:14], ha="center", va="bottom", fontsize=7)
    if thumbnails:
        figure.tight_layout()
        size = 1.0 / len(names)
        for k, picture in enumerate(thumbnails):
            beside = axes.inset_axes((-size, 1.0 - (k + 1) * size, size, size))
            below = axes.inset_axes((k * size, -size, size, size))
            for one in (beside, below):
                one.imshow(picture, origin="lower", interpolation="bilinear")
                one.set_axis_off()
        pad = axes.get_window_extent().width / len(names) * 72 / DPI
        axes.tick_params(length=0, pad=pad)
    return _chart(figure, alt)


# -- one site's subjects --------------------------------------------------------------------------


def draw_time_courses(
    names: Sequence[str], subjects: Iterable[tuple[str, Array, float]]
) -> Iterator[Picture]:
    """Draw the time courses of subjects (name, (R, T), TR in s or 0), each in its own std."""
    n = len(names)
    height = 0.9 + COURSE_HEIGHT * n
    # One figure whose lines are updated: building its axes takes as long as drawing them.
    figure = new_figure(7.2, height)
    axes = _axes(figure, "", "")
    lines = [axes.plot([], [], color=BLUE, linewidth=0.7)[0] for _ in names]
    axes.set_yticks(range(n - 1, -1, -1), names, fontsize=8)
    axes.set_ylim(-0.7, n - 0.3)
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    # A fixed frame: tight_layout would draw the figure twice.
    figure.subplots_adjust(left=0.07, right=0.98, bottom=0.55 / height, top=1 - 0.1 / height)
    for subject, courses, tr in subjects:
        length = courses.shape[1]
        at = np.arange(length) * (tr if tr > 0 else 1.0)
        # Divide by the std: the scale of a time course depends on the scale of its map.
        std = courses.std(axis=1, keepdims=True)
        scaled = (courses - courses.mean(axis=1, keepdims=True)) / np.where(std > 0, std, 1.0)
        for k, (line, row) in enumerate(zip(lines, scaled, strict=True)):
            line.set_data(at, row / 6.0 + (n - 1 - k))
        axes.set_xlim(at[0], at[-1] if length > 1 else 1.0)
        axes.set_xlabel("time, s" if tr > 0 else "time point")
        span = f"{at[-1]:.0f} s" if tr > 0 else f"{length} time points"
        yield _chart(
            figure,
            f"{subject}: {n} time courses over {span}, each scaled to its own standard deviation.",
            fit=False,
        )


def draw_subjects(labels: Sequence[str], measures: Mapping[str, Array]) -> Picture:
    """Draw one point per subject for every measure, in panels below each other."""
    figure = new_figure(7.2, 0.5 + 1.1 * len(measures))
    at = np.arange(1, len(labels) + 1)
    texts = []
    for k, (word, values) in enumerate(measures.items()):
        last = k == len(measures) - 1
        place = (len(measures), 1, k + 1)
        axes = _axes(figure, "subject, in the order of the table" if last else "", word, place)
        axes.plot(at, values, "o", color=BLUE, markersize=3)
        middle = float(np.median(values))
        axes.axhline(middle, color=GREY, linewidth=0.8, linestyle=":")
        axes.set_xlim(0.0, len(labels) + 1.0)
        axes.margins(y=0.15)
        axes.locator_params(axis="y", nbins=4)
        axes.tick_params(labelbottom=last, labelsize=8)
        worst = labels[int(values.argmax() if word.startswith("mean FD") else values.argmin())]
        low, high = values.min(), values.max()
        texts.append(f"{word} {low:.4g} to {high:.4g}, median {middle:.4g}, worst {worst}")
    figure.align_ylabels()
    return _chart(figure, f"Scans of {number_of(len(labels), 'subject')}: {'; '.join(texts)}.")


def draw_connectivity(names: Sequence[str], r: Array, what: str) -> Picture:
    i, j = divmod(int(np.argmax(_off_diagonal(r))), len(names))
    pair = f"{names[min(i, j)]} and {names[max(i, j)]} (r {r[i, j]:.2f})"
    alt = f"{what}: the strongest pair is {pair}."
    return _chart(_matrix(names, r, FNC_LIMIT, "correlation r")[0], alt)


def _matrix(names: Sequence[str], values: Array, limit: float, unit: str) -> tuple[Figure, Axes]:
    """Return one number for each pair of networks (R, R), with names and a colour bar."""
    figure = new_figure(5.6, 4.8)
    axes = figure.add_subplot(111)
    image = _paint_matrix(axes, values, limit)
    _name_ticks(axes.set_xticks, names, rotation=90)
    _name_ticks(axes.set_yticks, names, rotation=0)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, ticks=[-limit, 0.0, limit])
    bar.set_label(unit, fontsize=9)
    return figure, axes


def draw_connectivities(labels: Sequence[str], matrices: Sequence[Array]) -> Picture:
    across = min(5, len(labels))
    down = math.ceil(len(labels) / across)
    figure = new_figure(7.6, 0.2 + 1.65 * down)
    for k, (label, r) in enumerate(zip(labels, matrices, strict=True)):
        axes = figure.add_subplot(down, across, k + 1)
        _paint_matrix(axes, r, FNC_LIMIT)
        axes.set_title(label[:18], fontsize=8, pad=2)
        axes.set_xticks([])
        axes.set_yticks([])
    top = max(float(_off_diagonal(r).max(initial=0.0)) for r in matrices)
    alt = (
        f"Network connectivity of {number_of(len(labels), 'subject')}, colours as above; "
        f"the largest |r| in them is {top:.2f}."
    )
    # Margins in inches: tight_layout takes as long as drawing.
    wide, high = figure.get_size_inches()
    margin, top, between = 0.1, 0.22, 0.22
    inside = (high - margin - top) / down
    figure.subplots_adjust(
        left=margin / wide,
        right=1.0 - margin / wide,
        bottom=margin / high,
        top=1.0 - top / high,
        hspace=between / (inside - between),
        wspace=between * across / wide,
    )
    return _chart(figure, alt, fit=False)


def _paint_matrix(axes: Axes, values: Array, limit: float) -> Any:
    pairs = values.copy()
    # A diagonal of ones would have the strongest colour without information.
    np.fill_diagonal(pairs, np.nan)
    axes.set_facecolor(EMPTY)
    return axes.imshow(pairs, cmap=COLOURS, vmin=-limit, vmax=limit)


def _off_diagonal(r: Array) -> Array:
    return np.abs(r - np.diag(np.diag(r)))


def draw_agreement(labels: Sequence[str], names: Sequence[str], r: Array) -> Picture:
    """Draw the correlation of every subject's maps with the common maps; `r` is (subjects, R)."""
    figure = new_figure(7.2, 1.3 + max(0.12 * len(labels), 1.2))
    axes = figure.add_subplot(111)
    # Fixed limits: pages of two sites can be compared.
    image = axes.imshow(r, cmap=COLOURS, vmin=-1.0, vmax=1.0, aspect="auto")
    _name_ticks(axes.set_xticks, names, rotation=90 if len(names) > 12 else 0)
    _name_ticks(axes.set_yticks, labels, rotation=0)
    bar = figure.colorbar(image, ax=axes, ticks=[-1.0, 0.0, 1.0])
    bar.set_label("correlation r", fontsize=9)
    low = int(np.argmin(np.median(r, axis=0)))
    alt = (
        f"Correlation of {len(labels)} subjects' maps with the common maps: median "
        f"{np.median(r):.2f}, lowest median at {names[low]} ({np.median(r[:, low]):.2f})."
    )
    return _chart(figure, alt)
