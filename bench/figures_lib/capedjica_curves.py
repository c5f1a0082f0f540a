"""Curves of capeDJICA (Imtiaz et al. 2021): Fig. 1, 2 and 7, at both units of privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cape.papers.accountants import rdp_epsilon
from figures_lib import _ica
from figures_lib._figure import Figure, Grid, Point
from figures_lib._style import LOOKS, canvas, curve, log_ticks, means

UNITS = ("subject", "time point")
EPS_I = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0)
RATE, ROUNDS = 0.5, 200
Q_LABEL = "q_NGI (ISI of the gain matrix)"

DATA = (
    "djica-sim (paper-notes 8), R 20, T 250, S 4, white by a pooled non-private PCA, doubled; in "
    "place of the papers' simulated fMRI. The real fMRI panels are not reproduced: no data"
)
PRIVACY = (
    "exact totals at delta 1e-5 of 2 J releases, replace one; of the sum, and with 1 colluder. "
    "subject: sensitivity 2B/M as printed. time point: 2B/N, 250 times smaller (label "
    "dp-time-point); one subject then costs 250 times the eps_i. rho .5, J 200"
)


def point(method: str, unit: str, M: int, eps_i: float, seed: int, **changed: Any) -> Point:
    chosen = {"method": method, "unit": unit, "n_subjects": M, "eps_i": eps_i, "delta_i": 0.01,
              "rounds": ROUNDS, "rate": RATE, "seed": seed}  # fmt: skip
    return {**chosen, **changed}


def measured(at: Point) -> Mapping[str, float]:
    """Measure Alg. 4; or djICA without privacy, or DP-djICA of 2016."""
    if at["method"] == "non-private":
        found = _ica.data(at["seed"], at["n_subjects"])
        return _ica.quality(_ica.without_privacy(at["n_subjects"], at["seed"]), found.sphere)
    if at["method"] == "dpdjica":
        found = _ica.data(at["seed"], at["n_subjects"])
        W = _ica.ciss_rounds(found.stack, at["eps_i"], rounds=at["rounds"], seed=at["seed"])
        return _ica.quality(W, found.sphere)
    return _ica.alg4(at)


# -- Fig. 1 ----------------------------------------------------------------------------------------


def points_1(grid: Grid) -> Sequence[Point]:
    full = grid == "full"
    seeds = range(1, 6) if full else (1,)
    found: list[Point] = []
    for seed in seeds:
        for M in (256, 1024):
            found.append(point("non-private", "none", M, 0.0, seed))
            some = EPS_I if full or M == 256 else (0.01, 0.1, 0.5, 2.0)
            for eps in some:
                found += [point("cape", unit, M, eps, seed) for unit in UNITS]
                if full or M == 256:
                    found += [point(m, "time point", M, eps, seed) for m in ("conv", "local")]
        for eps in EPS_I if full else (0.1, 2.0):
            found.append(point("dpdjica", "time point", 256, eps, seed, rounds=60))
    return found


NAMES = {"cape": "capeDJICA", "conv": "conventional", "local": "local",
         "dpdjica": "DP-djICA (2016)", "non-private": "djICA, no privacy"}  # fmt: skip


def draw_1(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(2, 2, width=3.7, height=2.9)
    for column, unit in enumerate(UNITS):
        quality, cost = axes[0, column], axes[1, column]
        for method in ("cape", "conv", "local", "dpdjica"):
            if any(r["method"] == method and r["unit"] == unit for r in rows):
                x, q = means(rows, "eps_i", "q", method=method, unit=unit, n_subjects=256)
                curve(quality, x, q, method, f"{NAMES[method]}, M 256")
        x, q = means(rows, "eps_i", "q", method="cape", unit=unit, n_subjects=1024)
        curve(quality, x, q, "default", "capeDJICA, M 1024")
        for M, line in ((256, "--"), (1024, ":")):
            floor = means(rows, "eps_i", "q", method="non-private", n_subjects=M)[1][0]
            quality.axhline(floor, color="black", linestyle=line, linewidth=1.0,
                            label=f"{NAMES['non-private']}, M {M}")  # fmt: skip
        quality.axhline(0.1, color=LOOKS["chance"].colour, linewidth=0.8, label="q 0.1")
        quality.set(yscale="log", ylim=(0.002, 0.6), ylabel=Q_LABEL)
        quality.set_title(f"noise for one {unit}")
        _costs(cost, rows, unit)
        for panel in (quality, cost):
            log_ticks(panel, EPS_I)
            panel.set_xlabel("eps_i of a release, as printed")
    handles, labels = axes[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _costs(panel: Any, rows: list[dict[str, Any]], unit: str) -> None:
    """Draw total epsilons of all rounds against eps_i."""
    x, exact = means(rows, "eps_i", "epsilon", method="cape", unit=unit, n_subjects=256)
    scale = _ica.calibration(_ica.DELTA_I)
    printed = [rdp_epsilon((2 * ROUNDS) ** 0.5 * e / scale, _ica.DELTA) for e in x]
    curve(panel, x, exact, "exact", f"one {unit}: exact, the sum")
    colluding = means(rows, "eps_i", "epsilon_colluders", method="cape", unit=unit, n_subjects=256)
    curve(panel, x, colluding[1], "conv", "exact, with 1 colluder")
    curve(panel, x, printed, "other", "RDP in right units")
    if unit == "time point":
        subject = means(rows, "eps_i", "epsilon_subject", method="cape", unit=unit, n_subjects=256)
        curve(panel, x, subject[1], "local", "one subject: exact")
    top = 1e5 if unit == "subject" else 1e11  # room for the legend
    panel.set(yscale="log", ylabel=f"total eps after J = {ROUNDS}, delta 1e-5", ylim=(0.1, top))
    panel.legend(loc="upper left")


# -- Fig. 2 ----------------------------------------------------------------------------------------


def points_2(grid: Grid) -> Sequence[Point]:
    sizes = (64, 128, 256, 512, 1024) if grid == "full" else (64, 128, 256, 512)
    seeds = (1, 2, 3) if grid == "full" else (1,)
    methods = ("cape", "conv", "local") if grid == "full" else ("cape", "local")
    return [
        point(method, "time point", M, eps, seed)
        for seed in seeds
        for M in sizes
        for eps in (0.05, 0.5)
        for method in methods
    ] + [point("non-private", "none", M, 0.0, seed) for seed in seeds for M in sizes]


def draw_2(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, 3, width=3.0, height=3.0)
    sizes = sorted({row["n_subjects"] for row in rows})
    for eps, line in ((0.05, "-"), (0.5, "--")):
        for method in ("cape", "conv", "local"):
            if not any(row["method"] == method for row in rows):
                continue
            x, q = means(rows, "n_subjects", "q", method=method, eps_i=eps)
            style = LOOKS[method]
            axes[0, 0].plot(x, q, color=style.colour, marker=style.mark, linestyle=line,
                            label=f"{NAMES[method]}, eps_i {eps:g}")  # fmt: skip
            if method == "cape":
                axes[0, 1].plot([M * eps for M in x], q, color=style.colour, marker=style.mark,
                                linestyle=line, label=f"eps_i {eps:g}")  # fmt: skip
        x, exact = means(rows, "n_subjects", "epsilon", method="cape", eps_i=eps)
        axes[0, 2].plot(x, exact, color="black", marker="*", linestyle=line,
                        label=f"one time point, eps_i {eps:g}")  # fmt: skip
        subject = means(rows, "n_subjects", "epsilon_subject", method="cape", eps_i=eps)[1]
        axes[0, 2].plot(x, subject, color=LOOKS["local"].colour, marker="x", linestyle=line,
                        label=f"one subject, eps_i {eps:g}")  # fmt: skip
    x, floor = means(rows, "n_subjects", "q", method="non-private")
    axes[0, 0].plot(x, floor, color="black", linestyle=":", label="djICA, no privacy")
    for panel in (axes[0, 0], axes[0, 2]):
        log_ticks(panel, sizes)
        panel.set_xlabel("M, subjects")
    axes[0, 0].set(yscale="log", ylabel=Q_LABEL, title="quality, noise for one time point")
    axes[0, 1].set(xscale="log", yscale="log", xlabel="M eps_i", ylabel=Q_LABEL)
    axes[0, 1].set_title("capeDJICA: one curve in M eps_i")
    axes[0, 2].set(yscale="log", ylabel="exact total eps, delta 1e-5", title="constant in M")
    axes[0, 2].set_ylim(0.5, 1e10)  # room for the legend
    for panel in (axes[0, 1], axes[0, 2]):
        panel.legend(loc="best" if panel is axes[0, 1] else "upper left", fontsize=7)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


# -- Fig. 7 ----------------------------------------------------------------------------------------


def points_7(grid: Grid) -> Sequence[Point]:
    deltas = (1e-5, 1e-4, 1e-3, 1e-2, 5e-2)
    seeds = range(1, 6) if grid == "full" else (1,)
    M = 1024 if grid == "full" else 256
    return [
        point("cape", unit, M, 0.5, seed, delta_i=d)
        for seed in seeds
        for unit in UNITS
        for d in deltas
    ] + [point("non-private", "none", M, 0.0, seed) for seed in seeds]


def draw_7(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, 2, width=3.6, height=3.0)
    left, right = axes[0]
    for unit, look in (("subject", "conv"), ("time point", "cape")):
        x, q = means(rows, "delta_i", "q", method="cape", unit=unit)
        curve(left, x, q, look, f"capeDJICA, one {unit}")
    left.axhline(means(rows, "eps_i", "q", method="non-private")[1][0], color="black", ls="--",
                 lw=1.0, label="djICA, no privacy")  # fmt: skip
    x, exact = means(rows, "delta_i", "epsilon", method="cape", unit="subject")
    curve(right, x, exact, "exact", "exact, the sum")
    colluding = means(rows, "delta_i", "epsilon_colluders", method="cape", unit="subject")[1]
    curve(right, x, colluding, "conv", "exact, with 1 colluder")
    for panel in (left, right):
        panel.set(xscale="log", xlabel="delta_i of a release (overall delta 1e-5)")
        panel.set_xticks(x, [f"{value:.0e}".replace("e-0", "e-") for value in x])
        panel.minorticks_off()
        panel.legend(loc="center left" if panel is left else "upper left")
    M = rows[0]["n_subjects"]
    left.set(yscale="log", ylim=(0.002, 0.6), ylabel=Q_LABEL, title=f"eps_i .5, M {M}, S 4")
    right.set(ylabel=f"total eps after J = {ROUNDS}", ylim=(0, 1.35 * max(colluding)))
    right.set_title("total eps of the unit in question")
    return figure


FIGURES = (
    Figure(
        name="002-fig1",
        title="capeDJICA Fig. 1 (a)-(b): q_NGI and total eps against eps_i",
        points=points_1, measure=measured, draw=draw_1, data=DATA, privacy=PRIVACY,
        caption="paper_claim: with the subject-level sensitivity capeDJICA comes close to djICA. "
        "Not reachable: with noise for one subject q stays near chance up to eps_i 2 (left). With "
        "noise for one time point the order and shape of the paper appear (right).",
        share=("seed", "n_subjects"),
    ),
    Figure(
        name="002-fig2",
        title="capeDJICA Fig. 2 (a)-(b): q_NGI and total eps against M",
        points=points_2, measure=measured, draw=draw_2, data=DATA, privacy=PRIVACY,
        caption="paper_claim: larger M gives a smaller overall eps. At a fixed number of rounds "
        "eps does not depend on M; quality depends on M eps_i alone.",
        share=("seed", "n_subjects"),
    ),
    Figure(
        name="002-fig7",
        title="capeDJICA Fig. 7 (a): q_NGI and total eps against delta",
        points=points_7, measure=measured, draw=draw_7, data=DATA, privacy=PRIVACY,
        caption="The text mixes delta_i of a release, which sets the noise, with the overall "
        "delta; here delta_i moves and the overall delta is 1e-5. paper_claim: the overall eps is "
        "very small; at delta_i .01 it is 18 after 200 rounds.",
        share=("seed", "n_subjects"),
    ),
)  # fmt: skip
