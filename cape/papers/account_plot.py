"""Pictures of `cape.papers.account`: total epsilon against rounds, and the papers' Fig. 5."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cape.errors import ConfigError
from cape.papers.account import Account, paper_figure_5
from cape.papers.accountants import PaperDeltas, find

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 40
_CURVES = {  # accountant: colour, dash
    "gdp": ("#000000", "-"),
    "rdp-improved": ("#0072B2", "--"),
    "rdp": ("#0072B2", "-."),
    "moments-printed": ("#B8480A", "--"),
    "theorem-1-printed": ("#B8480A", ":"),
    "strong": ("#595959", "-."),
    "basic": ("#595959", ":"),
}


_SCHEMES = {  # attribute of PaperDeltas: colour, dash, label
    "pooled_classic": ("#595959", ":", "pooled, classic formula"),
    "cape_printed": ("#B8480A", ":", "CAPE, Theorem 1 as printed"),
    "pooled": ("#595959", "-", "pooled, exact"),
    "cape": ("#0072B2", "-", "CAPE, exact"),
    "conventional": ("#000000", "--", "conventional, exact"),
}


def curve(account: Account, name: str) -> tuple[list[int], list[float]]:
    """Return rounds and total epsilon after them under one accountant; what it says only."""
    releases = account.releases
    if releases is None:
        return [], []
    accountant = find(name)
    said: dict[int, float] = {}
    for j in _rounds(releases.count // account.per_round):
        total = accountant.total(releases.first(j * account.per_round), account.delta)
        if total.epsilon is not None and total.epsilon > 0.0:
            said[j] = total.epsilon
    return list(said), list(said.values())


def plot(account: Account, path: Path) -> None:
    """Write total epsilon against rounds as a picture; the suffix says which kind.

    Raises
    ------
    ConfigError
        If the run promises nothing, or matplotlib is not installed.
    """
    if account.releases is None:
        raise ConfigError("E234", what="this run")
    figure = _figure(7.2, 4.6)
    axes = figure.add_subplot()
    for name, (colour, dash) in _CURVES.items():
        rounds, epsilons = curve(account, name)
        if rounds:
            axes.plot(rounds, epsilons, dash, color=colour, label=find(name).title,
                      marker="." if len(rounds) == 1 else "")  # fmt: skip
    axes.set_xscale("log")
    _finish(axes, account.unit, f"total epsilon at delta {account.delta:g}")
    axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def plot_figure_5(path: Path) -> None:
    """Write the four panels of Fig. 5: columns epsilon, rows noise and colluders."""
    figure = _figure(9.0, 7.0)
    rows = paper_figure_5()
    for place, epsilon in enumerate((0.5, 1.0), start=1):
        mine = [row for row in rows if row[0] == epsilon]
        upper, lower = mine[:9], mine[9:]
        axes = figure.add_subplot(2, 2, place)
        _lines(axes, [row[2] for row in upper], [row[3] for row in upper])
        _finish(axes, "tau_s N_s, 3 colluders", f"delta at epsilon {epsilon:g}")
        axes = figure.add_subplot(2, 2, place + 2)
        _lines(axes, [row[1] / 10 for row in lower], [row[3] for row in lower])
        _finish(axes, "S_C / S, tau_s N_s = 4", f"delta at epsilon {epsilon:g}")
        if place == 1:
            figure.axes[0].legend(frameon=False, fontsize=8)
    _save(figure, path)


def _lines(axes: Axes, x: Sequence[float], deltas: Sequence[PaperDeltas]) -> None:
    for name, (colour, dash, label) in _SCHEMES.items():
        y = [getattr(row, name) for row in deltas]
        axes.plot(x, [math.nan if v is None else v for v in y], dash, color=colour, label=label)


def _rounds(last: int) -> list[int]:
    """Return up to `_POINTS` whole numbers from 1 to `last`, evenly on a log scale."""
    return sorted({round(last ** (k / (_POINTS - 1))) for k in range(_POINTS)})


def _figure(width: float, height: float) -> Figure:
    try:
        from cape.report.plots import new_figure

        return new_figure(width, height)
    except ImportError as err:
        do = "install the extra: pip install 'coinstac-cape[report]'."
        raise ConfigError("E015", what="--plot", package="matplotlib", do=do) from err


def _finish(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set_yscale("log")
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, facecolor="white")
    except ValueError as err:
        raise ConfigError(
            "E011", setting="plot", got=path.suffix, allowed=".png, .svg or .pdf", do="rename it."
        ) from err
