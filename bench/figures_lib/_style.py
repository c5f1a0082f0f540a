"""How all figures look: sizes, colours that colour-blind people tell apart, marks, second axes.

Every method has one colour and one mark in all figures, so that none depends on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

PAPER: Mapping[str, Any] = {
    "figure.dpi": 110,
    "savefig.dpi": 110,
    "figure.constrained_layout.use": True,
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.6,
    "axes.spines.right": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 5.0,
    "legend.frameon": False,
}
"""Settings of matplotlib while a figure is drawn; nowhere else, other code draws too."""


@dataclass(frozen=True)
class Look:
    """Colour (Okabe and Ito), mark and line of a method."""

    colour: str
    mark: str
    line: str


LOOKS: Mapping[str, Look] = {
    "non-private": Look("#000000", "", "--"),
    "cape": Look("#0072B2", "o", "-"),
    "pooled": Look("#0072B2", "o", "-"),
    "default": Look("#CC79A7", "D", "-"),
    "conv": Look("#E69F00", "s", "-"),
    "full": Look("#E69F00", "s", "-"),
    "dpdispca": Look("#009E73", "^", "-"),
    "dpdjica": Look("#009E73", "^", "-"),
    "local": Look("#D55E00", "x", "-"),
    "other": Look("#56B4E9", "v", "-."),
    "exact": Look("#000000", "*", "-"),
    "chance": Look("#7F7F7F", "", ":"),
}


def canvas(rows: int, columns: int, *, width: float = 3.3, height: float = 2.6) -> Any:
    """Return (figure, array of axes (rows, columns)); sizes are those of one panel, inches."""
    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)


def curve(axes: Axes, x: Sequence[float], y: Sequence[float], look: str, label: str) -> None:
    """Draw one method; a method without a mark is a reference line."""
    style = LOOKS[look]
    axes.plot(
        x, y, color=style.colour, marker=style.mark, linestyle=style.line, label=label,
        markerfacecolor="none" if style.mark in ("s", "^", "v", "D") else style.colour,
    )  # fmt: skip


def means(
    rows: Iterable[Mapping[str, Any]], x: str, y: str, **where: Any
) -> tuple[list[float], list[float]]:
    """Return x, sorted, and the mean of y over all rows (seeds) with that x and those settings."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if all(row.get(name) == value for name, value in where.items()):
            found.setdefault(row[x], []).append(row[y])
    if not found:
        raise ValueError(f"no row has {where}")
    at = sorted(found)
    return at, [float(np.mean(found[value])) for value in at]


def second_axis(axes: Axes, x: Sequence[float], exact: Sequence[float], label: str) -> None:
    """Show above the panel what the values below really are, by the exact count."""
    chosen = spread(x)
    top = axes.secondary_xaxis("top")
    top.set_xticks([x[i] for i in chosen], [short(exact[i]) for i in chosen])
    top.minorticks_off()
    top.set_xlabel(label, fontsize=8.0)
    top.tick_params(labelsize=7.0)


def spread(x: Sequence[float]) -> list[int]:
    """Return which of these points get a tick on a logarithmic axis, so that texts never touch.

    None is nearer to the one before than an eighth of the axis; of more than six, five are left.
    """
    places = np.log(np.asarray(x, dtype=float))
    least, chosen = (places[-1] - places[0]) / 8.0, [0]
    for i, place in enumerate(places):
        if place - places[chosen[-1]] > least:
            chosen.append(i)
    if len(chosen) <= 6:
        return chosen
    return [chosen[k] for k in np.linspace(0, len(chosen) - 1, 5).round().astype(int)]


def short(value: float) -> str:
    """Return a number in three digits at most: 0.013, 2.6, 137, 4.4k."""
    if not np.isfinite(value):
        return "inf"
    if abs(value) >= 1e4:
        return f"{value / 1000:.3g}k"
    return f"{value:.2g}" if abs(value) < 10 else f"{value:.0f}"


def log_ticks(axes: Axes, x: Sequence[float]) -> None:
    """Put the ticks of a logarithmic axis where points are, in plain numbers."""
    axes.set_xscale("log")
    chosen = spread(x)
    axes.set_xticks([x[i] for i in chosen], [short(x[i]) for i in chosen])
    axes.minorticks_off()


def legend_below(figure: Canvas, axes: Axes, columns: int) -> None:
    """Put one legend for all panels below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)
