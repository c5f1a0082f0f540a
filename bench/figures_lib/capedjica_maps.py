"""Fig. 3 and 4 of capeDJICA: spatial maps, of the papers' algorithms and of the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cape.algorithms.scores import match_maps
from figures_lib import _ica
from figures_lib._figure import Figure, Grid, Point
from figures_lib._study import djica_sim_maps
from figures_lib._style import canvas

SHOWN = (0, 6, 13)
"""Planted maps that are drawn, any three of twenty: the first has a mirror image."""

RATE, ROUNDS = 0.5, 200
DATA = "djica-sim (paper-notes 8), R 20, T 250, S 4; in place of the papers' simulated fMRI"


def as_maps(W_total: np.ndarray) -> np.ndarray:
    """Return maps in voxels (900, R) of an unmixing matrix of the planted sources' space."""
    return djica_sim_maps() @ np.linalg.pinv(W_total)


def described(A: np.ndarray, numbers: Mapping[str, float]) -> dict[str, Any]:
    """Return numbers and the shown maps as text: z-scores, sign and order as planted."""
    planted = djica_sim_maps()
    found = match_maps(A, planted)
    result: dict[str, Any] = {**numbers, "map": found.mean}
    for k in SHOWN:
        at = list(found.truth).index(k)
        column = A[:, found.estimate[at]] * np.sign(found.correlation[at])
        z = (column - column.mean()) / column.std()
        result[f"r_{k}"] = abs(float(found.correlation[at]))
        result[f"map_{k}"] = " ".join(f"{value:.2f}" for value in z)
    return result


def measured(point: Point) -> Mapping[str, Any]:
    """Measure one method and keep three of its maps."""
    M, seed, method = point["n_subjects"], point["seed"], point["method"]
    if method == "truth":
        return described(djica_sim_maps(), {"q": 0.0})
    if method == "default":
        found = _ica.default(M, point["epsilon"], seed)
        return described(found.A, found.quality())
    part = _ica.S if method == "local" else 1
    found = _ica.data(seed, M, part)
    if method == "non-private":
        W, spent = _ica.without_privacy(M, seed), {}
    else:
        std = _ica.noise_std(method, point["eps_i"], _ica.DELTA_I, M * _ica.T)
        rng = np.random.default_rng([seed, 4])
        W = _ica.infomax(found, std, rounds=ROUNDS, rate=RATE, rng=rng)
        at_time_point = _ica.epsilons(point["eps_i"], _ica.DELTA_I, ROUNDS)["epsilon"]
        subject = _ica.epsilons(_ica.T * point["eps_i"], _ica.DELTA_I, ROUNDS)["epsilon"]
        spent = {"epsilon_time_point": at_time_point, "epsilon_subject": subject}
    P = _ica.gain(W, found.sphere)
    return described(as_maps(P), {**_ica.quality(W, found.sphere), **spent})


def picture(panel: Any, text: str) -> None:
    image = np.array([float(value) for value in text.split()]).reshape(30, 30)
    panel.imshow(image, cmap="RdBu_r", vmin=-6, vmax=6, interpolation="nearest")
    panel.set(xticks=[], yticks=[])
    panel.grid(False)


# -- Fig. 3 ----------------------------------------------------------------------------------------

COLUMNS = (
    ("truth", "planted", 0.0),
    ("non-private", "djICA", 0.0),
    ("local", "local", 0.5),
    ("conv", "conventional", 0.5),
    ("cape", "capeDJICA", 0.5),
    ("default", "default of cape", 1.0),
)


def points_3(grid: Grid) -> Sequence[Point]:
    M = 1024 if grid == "full" else 512
    found = []
    for method, _, budget in COLUMNS:
        at: dict[str, Any] = {"method": method, "n_subjects": M, "seed": 1}
        if method in ("local", "conv", "cape"):
            at["eps_i"] = 0.05
        if method == "default":
            at["epsilon"] = budget if grid == "full" else 2.0 * budget
        found.append(at)
    return found


def draw_3(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(len(SHOWN), len(rows), width=1.45, height=1.45)
    figure.set_size_inches(1.45 * len(rows), 1.45 * len(SHOWN) + 1.1)
    names = {method: name for method, name, _ in COLUMNS}
    for c, row in enumerate(rows):
        for r, k in enumerate(SHOWN):
            picture(axes[r, c], row[f"map_{k}"])
            if row["method"] != "truth":
                axes[r, c].set_xlabel(f"|r| {row[f'r_{k}']:.2f}", fontsize=7.5, labelpad=2)
        head = names[row["method"]]
        if row["method"] == "default":
            head += f"\neps {row['epsilon']:g} a subject\nall stages"
        elif row["method"] in ("local", "conv", "cape"):
            head += f"\neps_i {row['eps_i']:g}, eps {row['epsilon_time_point']:.2g}\na time point"
        else:
            head += "\n\n"
        axes[0, c].set_title(head, fontsize=8)
    subject = next(row["epsilon_subject"] for row in rows if row["method"] == "cape")
    M = rows[0]["n_subjects"]
    figure.suptitle(
        f"M {M}, S 4, J 200. For one subject the three in the middle spend eps {subject:,.0f}; "
        "z from -6 (blue) to 6 (red)", fontsize=8.5,
    )  # fmt: skip
    return figure


# -- Fig. 4 ----------------------------------------------------------------------------------------


def points_4(grid: Grid) -> Sequence[Point]:
    sizes = (256, 512, 1024) if grid == "full" else (256, 1024)
    budgets = (0.5, 1.0, 2.0, 4.0) if grid == "full" else (1.0, 4.0)
    releases = (0.05, 0.1, 0.5, 1.0) if grid == "full" else (0.05, 0.5)
    return [
        at
        for M in sizes
        for at in (
            *({"method": "default", "n_subjects": M, "epsilon": e, "seed": 1} for e in budgets),
            *({"method": "cape", "n_subjects": M, "eps_i": e, "seed": 1} for e in releases),
        )
    ]


def draw_4(rows: list[dict[str, Any]]) -> Any:
    sizes = sorted({row["n_subjects"] for row in rows})
    groups = [
        (method, value)
        for method, name in (("default", "epsilon"), ("cape", "eps_i"))
        for value in sorted({row[name] for row in rows if row["method"] == method})
    ]
    figure, axes = canvas(len(sizes), len(groups), width=1.5, height=1.6)
    figure.set_size_inches(1.55 * len(groups), 1.6 * len(sizes) + 0.9)
    for c, (method, value) in enumerate(groups):
        name = "epsilon" if method == "default" else "eps_i"
        for r, M in enumerate(sizes):
            row = next(
                x for x in rows
                if x["method"] == method and x[name] == value and x["n_subjects"] == M
            )  # fmt: skip
            picture(axes[r, c], row[f"map_{SHOWN[0]}"])
            axes[r, c].set_xlabel(f"q {row['q']:.3f}, |r| {row[f'r_{SHOWN[0]}']:.2f}", fontsize=7.5)
            if c == 0:
                axes[r, c].set_ylabel(f"M {M}")
        if method == "default":
            axes[0, c].set_title(f"default\neps {value:g}, a subject\nall stages", fontsize=8)
        else:
            spent = row["epsilon_time_point"]
            head = f"Alg. 4, eps_i {value:g}\neps {spent:.2g}, a time point\nPCA free"
            axes[0, c].set_title(head, fontsize=8)
    return figure


FIGURES = (
    Figure(
        name="002-fig3",
        title="capeDJICA Fig. 3: planted maps and estimates of six methods",
        points=points_3, measure=measured, draw=draw_3, data=DATA,
        privacy="default: one subject, all stages, delta 1e-5, with one colluder. Alg. 4 and its "
        "relatives: one time point (label dp-time-point), PCA free; the subject's figure stands in "
        "the title. DP-djICA of 2016 is 000-fig2: it learns nothing",
        caption="paper_claim: capeDJICA is very close to the truth at a very small eps. Seen with "
        "noise for one time point only; the default reaches it with noise for one subject.",
        share=("seed", "n_subjects"),
        version=2,
    ),
    Figure(
        name="002-fig4",
        title="capeDJICA Fig. 4: one map over eps and M",
        points=points_4, measure=measured, draw=draw_4, data=DATA,
        privacy="default: one subject, all stages, delta 1e-5, with one colluder. Alg. 4: one time "
        "point (label dp-time-point), PCA free, J 200",
        caption="More subjects or more budget sharpen the map. For one subject Alg. 4 shows noise "
        "in every cell of this grid (002-fig1).",
        share=("seed", "n_subjects"),
        version=2,
    ),
)  # fmt: skip
