"""Figures of DP-djICA (Imtiaz et al., CISS 2016): its noise leaves nothing to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cape.algorithms.scores import match_maps
from figures_lib import _ica
from figures_lib._figure import Figure, Grid, Point
from figures_lib._style import LOOKS, canvas, curve, log_ticks, means

LAGS = 30
SHOWN = 4

DATA = (
    "djica-sim (paper-notes 8): tilted blobs on 30 x 30, AR-GARCH time courses, R 20, T 250; in "
    "place of the papers' simulated fMRI, which is not available"
)
PRIVACY = (
    "label none: the Wishart noise of PrivateLocalPCA makes outputs impossible for a neighbour, so "
    "at best (eps, 1 - exp(-eps)); paper_claim of the rounds: J eps for one time point"
)


# -- Fig. 1 ----------------------------------------------------------------------------------------


def correlation_points(grid: Grid) -> Sequence[Point]:
    M = 256 if grid == "quick" else 1024
    return [
        {"method": method, "n_subjects": M, "epsilon_part": 1.0, "rounds": 60, "seed": 1}
        for method in ("non-private", "dpdjica", "start")
    ]


def correlations(point: Point) -> dict[str, Any]:
    """Measure autocorrelation of the estimated sources, and what it does not show."""
    M, seed = point["n_subjects"], point["seed"]
    found = _ica.data(seed, M)
    if point["method"] == "non-private":
        W = _ica.without_privacy(M, seed)
    elif point["method"] == "dpdjica":
        W = _ica.ciss_rounds(found.stack, point["epsilon_part"], rounds=point["rounds"], seed=seed)
    else:
        W = np.eye(_ica.R)
    truth = _ica.study(seed, M)
    gain = _ica.gain(W, found.sphere)
    order = match_maps(gain.T, np.eye(_ica.R)).estimate  # row of W that fits each true source
    rows = (gain @ truth)[:, order]
    flat = rows.transpose(1, 0, 2).reshape(_ica.R, -1)
    planted = truth.transpose(1, 0, 2).reshape(_ica.R, -1)
    fit = [abs(float(np.corrcoef(a, b)[0, 1])) for a, b in zip(flat, planted, strict=True)]
    squares = np.abs(np.corrcoef(flat**2)) - np.eye(_ica.R)
    result: dict[str, Any] = {
        **_ica.quality(W, found.sphere),
        "source_correlation": float(np.mean(fit)),
        "square_correlation": float(squares.sum() / (_ica.R * (_ica.R - 1))),
    }
    for c in range(SHOWN):
        s = rows[:, c] - rows[:, c].mean(axis=1, keepdims=True)
        power = float(np.sum(s * s))
        for lag in range(LAGS + 1):
            result[f"acf_{c + 1}_{lag}"] = (
                float(np.sum(s[:, lag:] * s[:, : s.shape[1] - lag])) / power
            )
    return result


def draw_correlations(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, SHOWN, width=2.6, height=2.9)
    names = {"non-private": ("non-private", "djICA"), "dpdjica": ("dpdjica", "DP-djICA, eps 1"),
             "start": ("chance", "start: PCA only")}  # fmt: skip
    lags = np.arange(LAGS + 1)
    for c, panel in enumerate(axes[0]):
        for row in rows:
            look, label = names[row["method"]]
            style = LOOKS[look]
            panel.plot(lags, [row[f"acf_{c + 1}_{lag}"] for lag in lags], color=style.colour,
                       marker=style.mark, markevery=3, markersize=4, linestyle=style.line,
                       label=label)  # fmt: skip
        panel.set(title=f"component {c + 1}", xlabel="lag, time points", ylim=(-0.1, 1.05))
    axes[0, 0].set_ylabel("autocorrelation")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    extra = [
        f"{label}: q {row['q']:.3f}, |r| with the true source {row['source_correlation']:.2f}"
        for label, row in zip(labels, rows, strict=True)
    ]
    figure.legend(handles, extra, loc="outside lower center", ncols=1)
    return figure


# -- Fig. 2 ----------------------------------------------------------------------------------------


def gain_points(grid: Grid) -> Sequence[Point]:
    panels = (("a", 1024, 4), ("b", 512, 1)) if grid == "full" else (("a", 256, 4), ("b", 128, 1))
    epsilons = (0.1, 0.5, 1.0, 2.0, 10.0, 100.0) if grid == "full" else (0.1, 1.0, 10.0)
    seeds = (1, 2, 3) if grid == "full" else (1,)
    return [
        {"panel": p, "n_subjects": M, "n_sites": S, "epsilon_part": e, "rounds": 60, "seed": seed}
        for seed in seeds
        for p, M, S in panels
        for e in epsilons
    ]


def gains(point: Point) -> Mapping[str, float]:
    found = _ica.data(point["seed"], point["n_subjects"])
    W = _ica.without_privacy(point["n_subjects"], point["seed"])
    return {**_ica.ciss(point), "q_nonprivate": _ica.quality(W, found.sphere)["q"]}


def draw_gains(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, 2, width=3.6, height=3.0)
    for panel, name in zip(axes[0], ("a", "b"), strict=True):
        chosen = [row for row in rows if row["panel"] == name]
        x, q = means(chosen, "epsilon_part", "q")
        curve(panel, x, q, "dpdjica", "DP-djICA, its PCA for free")
        curve(panel, x, means(chosen, "epsilon_part", "q_whole")[1], "local", "DP-djICA, whole")
        curve(panel, x, means(chosen, "epsilon_part", "start_q")[1], "chance", "start: PCA only")
        curve(panel, x, means(chosen, "epsilon_part", "q_nonprivate")[1], "non-private", "djICA")
        log_ticks(panel, x)
        M, S = chosen[0]["n_subjects"], chosen[0]["n_sites"]
        how = f"{S} sites" if S > 1 else "pooled"
        panel.set(title=f"({name}) {M} subjects, {how}", ylim=(0, 0.42))
        panel.set_xlabel("eps of a round and of a PCA (paper_claim)")
        panel.set_ylabel("q_NGI (ISI of the gain matrix)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return figure


FIGURES = (
    Figure(
        name="000-fig1",
        title="CISS 2016 Fig. 1: autocorrelation of estimated sources, djICA and DP-djICA, eps 1",
        points=correlation_points,
        measure=correlations,
        draw=draw_correlations,
        data=DATA,
        privacy=PRIVACY,
        caption="paper_claim: at eps 1 the components are almost as independent as without "
        "privacy. Autocorrelation of single sources does not measure independence: the start, "
        "before any learning, has the same shape. q and the correlation with the true sources do.",
    ),
    Figure(
        name="000-fig2",
        title="CISS 2016 Fig. 2: q_NGI against eps, DP-djICA",
        points=gain_points,
        measure=gains,
        draw=draw_gains,
        data=DATA,
        privacy=PRIVACY,
        caption="paper_claim: q falls towards djICA as eps grows. Not reproduced: with the printed "
        "scaling the rounds learn nothing (q stays where the PCA left it), and the printed PCA "
        "loses the subspace, so that the whole algorithm is at chance. The text calls (b) both "
        "pooled and non-pooled; here it is pooled.",
        share=("seed", "n_subjects"),
    ),
)
