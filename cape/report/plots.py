"""Pictures of released quantities as small PNGs; matplotlib is imported on the first call.

Colours are safe for colour-blind readers (RdBu_r, Okabe-Ito blue and vermilion) and no meaning
rests on colour alone: lines differ in dash and are labelled where they run.
"""

from __future__ import annotations

import base64
import io
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.report.page_model import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILION, GREY = "#0072B2", "#B8480A", "#595959"
DPI = 100
COLOURS = "RdBu_r"
GREYS, HUES = 32, 64
"""Colours of a PNG: a third of the bytes of full colour, no visible difference."""


COMPRESSION = 6
"""Of a PNG: the level above, 9, takes ten times as long and saves a tenth of the bytes."""


def installed() -> bool:
    """Tell whether the extra `report` is there: matplotlib, nilearn, jinja2."""
    try:
        import jinja2  # noqa: F401  the three imports are the question
        import matplotlib  # noqa: F401
        import nilearn  # noqa: F401
    except ImportError:
        return False
    return True


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches, that pyplot does not know of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def finish(figure: Figure, *, alt: str, caption: str = "", shape: str = "") -> Picture:
    """Return the figure as a palette PNG; equal figures give equal bytes."""
    from PIL import Image

    canvas: Any = figure.canvas
    canvas.draw()
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    image = drawn.quantize(palette=palette, dither=Image.Dither.NONE)
    held = io.BytesIO()
    image.save(held, format="png", compress_level=COMPRESSION)
    png = base64.b64encode(held.getvalue()).decode("ascii")
    width, height = image.size
    return Picture(png=png, width=width, height=height, alt=alt, caption=caption, shape=shape)


def _palette() -> list[int]:
    """Return one palette for all pictures: greys, the map colours, the two line colours.

    A palette chosen for each picture would shift its colours away from the common colour bar.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_rgb

    greys = np.repeat(np.linspace(0.0, 1.0, GREYS)[:, None], 3, axis=1)
    hues = colormaps[COLOURS](np.linspace(0.0, 1.0, HUES))[:, :3]
    lines = [
        np.linspace(to_rgb(colour), (1.0, 1.0, 1.0), 8, endpoint=False)
        for colour in (BLUE, VERMILION)
    ]
    rows = np.concatenate([greys, hues, *lines])
    return [round(255 * value) for value in rows.ravel().tolist()]


def framed(figure: Figure, xlabel: str, ylabel: str, position: Any = (1, 1, 1)) -> Axes:
    """Return axes with names, without a box, with faint horizontal lines."""
    axes = figure.add_subplot(*position)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    return axes


def budget_curve(epsilon: Array, budget: float, delta: float, phases: list[str]) -> Picture:
    """Draw epsilon after each release, with the budget as a line.

    Parameters
    ----------
    epsilon : ndarray, shape (n_releases,)
        Epsilon spent up to each release.
    budget, delta : float
        Total epsilon allowed, and its delta.
    phases : list of str
        Phase of each release; changes are marked.
    """
    figure = new_figure(7.2, 3.0)
    axes = framed(figure, "release", f"epsilon so far (delta {delta:g})")
    index = np.arange(1, epsilon.size + 1)
    axes.step(index, epsilon, where="post", color=BLUE, linewidth=2)
    axes.plot(index, epsilon, ".", color=BLUE, markersize=4)
    axes.axhline(budget, color=VERMILION, linestyle="--", linewidth=1.5)
    axes.annotate(f"budget {budget:.4g}", (0.99, budget), xycoords=("axes fraction", "data"),
                  ha="right", xytext=(0, 4), textcoords="offset points",
                  color=VERMILION)  # fmt: skip
    axes.set_ylim(0.0, max(budget, float(epsilon.max())) * 1.18)
    starts = [k for k, name in enumerate(phases) if k == 0 or phases[k - 1] != name]
    for level, k in enumerate(starts):
        axes.axvline(k + 0.5, color=GREY, linewidth=0.8, linestyle=":")
        axes.annotate(phases[k], (k + 0.5, 0.04 + 0.1 * (level % 4)), color=GREY, fontsize=9,
                      xycoords=("data", "axes fraction"), xytext=(5, 0),
                      textcoords="offset points", zorder=3,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0})  # fmt: skip
    axes.set_xlim(0.5, epsilon.size + 0.5)
    figure.tight_layout()
    last = float(epsilon[-1])
    alt = (
        f"Epsilon grows to {last:.4g} after {epsilon.size} releases; the budget is {budget:.4g} "
        f"at delta {delta:g}."
    )
    caption = "Epsilon after each release; the dashed line is the budget."
    return finish(figure, alt=alt, caption=caption, shape="chart")


def spectrum(eigenvalues: Array, edge: float, n_components: int) -> Picture:
    """Draw the eigenvalues of the released PCA statistic, the noise edge and R."""
    shown = min(eigenvalues.size, max(40, 2 * n_components))
    values = np.sort(eigenvalues)[::-1]
    figure = new_figure(7.2, 3.0)
    axes = framed(figure, "number of the eigenvalue", "eigenvalue")
    axes.plot(np.arange(1, shown + 1), values[:shown], "o", color=BLUE, markersize=4)
    axes.axvline(n_components + 0.5, color=GREY, linestyle=":", linewidth=1.2)
    axes.annotate(f"R = {n_components}", (n_components + 0.5, 0.92), color=GREY,
                  xycoords=("data", "axes fraction"), xytext=(4, 0),
                  textcoords="offset points")  # fmt: skip
    own, after = float(values[n_components - 1]), values[n_components : n_components + 1]
    alt = f"Eigenvalue {n_components} is {own:.3g}"
    alt += f", the next is {float(after[0]):.3g}" if after.size else ""
    if edge > 0:
        axes.axhspan(min(0.0, float(values[:shown].min())), edge, color="#eeeeee", zorder=0)
        axes.axhline(edge, color=VERMILION, linestyle="--", linewidth=1.5)
        axes.annotate(f"noise edge {edge:.3g}", (0.99, edge), color=VERMILION,
                      ha="right", xycoords=("axes fraction", "data"), xytext=(0, 4),
                      textcoords="offset points")  # fmt: skip
        alt += f"; the noise edge is {edge:.3g}, so it lies {'above' if own > edge else 'UNDER'} it"
    figure.tight_layout()
    caption = "Spectrum of the released subspace statistic; R is the number of components."
    caption += " What lies in the grey band may be noise alone." if edge > 0 else ""
    return finish(figure, alt=alt + ".", caption=caption, shape="chart")


def progress(statistic: Array, noise: Array, step: Array, stability: Array) -> Picture:
    """Draw norms, step and stability over the rounds of the solver.

    Parameters
    ----------
    statistic, noise, step, stability : ndarray, shape (n_rounds,)
        NaN where a value is not known.
    """
    rounds = np.arange(1, statistic.size + 1)
    figure = new_figure(7.2, 5.4)
    top = framed(figure, "", "statistic norm", (3, 1, 1))
    top.plot(rounds, statistic, "-o", color=BLUE, markersize=3, label="released statistic")
    top.plot(rounds, noise, "--", color=VERMILION, linewidth=1.5, label="expected of noise alone")
    top.set_ylim(bottom=0.0)
    top.legend(frameon=False, fontsize=8, loc="best", ncols=2)
    middle = framed(figure, "", "step size", (3, 1, 2))
    middle.plot(rounds, step, "-o", color=BLUE, markersize=3)
    middle.set_ylim(bottom=0.0)
    low = framed(figure, "round of the solver", "stability", (3, 1, 3))
    low.plot(rounds, stability, "-o", color=BLUE, markersize=3)
    low.axhline(0.85, color=VERMILION, linestyle="--", linewidth=1.2)
    low.annotate("settled from 0.85 on", (0.01, 0.85), xycoords=("axes fraction", "data"),
                 xytext=(0, -11), textcoords="offset points", color=VERMILION,
                 fontsize=9)  # fmt: skip
    low.set_ylim(0.0, 1.05)
    for axes in (top, middle, low):
        axes.set_xlim(0.5, statistic.size + 0.5)
    figure.align_ylabels()
    figure.tight_layout()
    last = float(stability[-1]) if stability.size else math.nan
    end = f"stability ends at {last:.2f}" if math.isfinite(last) else "stability was not assessed"
    alt = (
        f"Over {statistic.size} rounds the statistic goes from {statistic[0]:.3g} to "
        f"{statistic[-1]:.3g} (noise alone {noise[-1]:.3g}), the step from {step[0]:.3g} to "
        f"{step[-1]:.3g}; {end}."
    )
    caption = "The solver round by round: norm of the released statistic, step, stability."
    return finish(figure, alt=alt, caption=caption, shape="chart")
