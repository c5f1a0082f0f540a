"""Fig. 5 and 6 of capeDJICA: privacy curves that need no data, printed and exact."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cape.papers.accountants import (
    moments_epsilon,
    moments_epsilon_printed,
    rdp_epsilon,
    strong_composition,
    tail_delta,
)
from cape.papers.correlated import printed_factor, view_factor
from cape.privacy.accounting import gdp_delta, gdp_epsilon
from figures_lib._figure import Figure, Grid, Point
from figures_lib._style import LOOKS, canvas, curve, log_ticks, means

DELTA = 1e-5

# -- Fig. 5 ----------------------------------------------------------------------------------------


def points_5(grid: Grid) -> Sequence[Point]:
    n = 25 if grid == "full" else 13
    noises = np.geomspace(1.0, 30.0, n).round(4).tolist()
    by_noise = [
        {"panel": panel, "n_sites": S, "colluders": -(-S // 3) - 1, "epsilon": eps, "noise": noise}
        for panel, S, eps in (("a", 10, 0.5), ("b", 10, 2.0))
        for noise in noises
    ]
    by_colluders = [
        {"panel": panel, "n_sites": S, "colluders": c, "epsilon": 0.5, "noise": 6.0}
        for panel, S in (("c", 10), ("d", 30))
        for c in range(0, 1 + (2 * S) // 3, 1 if S == 10 else 2)
    ]
    return by_noise + by_colluders


def paper_deltas(*, epsilon: float, n_sites: int, colluders: int, noise: float) -> dict[str, float]:
    """Return deltas of three schemes with the accuracy of pooled data (App. F), printed and exact.

    `noise` is tau_s N_s > 0, the noise std of one site over its sensitivity 1/N_s.  The noise std
    is tau_s / S for pooled data and tau_s / sqrt(S) for the conventional scheme.  `cape_printed`,
    Theorem 1, is missing where eq. (1) is not positive.
    """
    one = 1.0 / noise
    printed = printed_factor(n_sites=n_sites, colluders=colluders)
    # At least the delta of pooled data, whose release follows from the messages of CAPE.
    right = view_factor(n_sites=n_sites, colluders=colluders, ratio=n_sites)
    found = {
        # 1.25 exp(-(epsilon/mu)^2/2), the delta of the classic calibration
        "pooled_classic": min(1.0, 1.25 * math.exp(-0.5 * (epsilon * noise) ** 2)),
        "pooled": gdp_delta(epsilon=epsilon, mu=one),
        "cape": gdp_delta(epsilon=epsilon, mu=one * math.sqrt(right)),
        "conventional": gdp_delta(epsilon=epsilon, mu=one * math.sqrt(n_sites)),
    }
    if printed is not None and printed > 0:
        found["cape_printed"] = tail_delta(epsilon, one * math.sqrt(printed))
    return found


def measure_5(point: Point) -> Mapping[str, float]:
    return paper_deltas(**{name: value for name, value in point.items() if name != "panel"})


SERIES = (
    ("pooled", "exact", "pooled: exact"),
    ("cape", "cape", "CAPE: exact"),
    ("conventional", "conv", "conventional: exact"),
    ("pooled_classic", "chance", "pooled: classic formula (paper)"),
    ("cape_printed", "other", "CAPE: eq. (1) as printed"),
)


def draw_5(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(2, 2, width=3.7, height=2.7)
    for panel, name in zip(axes.ravel(), "abcd", strict=True):
        chosen = [row for row in rows if row["panel"] == name]
        S, eps = chosen[0]["n_sites"], chosen[0]["epsilon"]
        against = "noise" if name in "ab" else "colluders"
        for column, look, label in SERIES:
            there = [row for row in chosen if column in row]
            if not there:
                continue
            x, y = means(there, against, column)
            at = x if against == "noise" else [value / S for value in x]
            style = LOOKS[look]
            panel.plot(at, np.maximum(y, 1e-12), color=style.colour, linestyle=style.line,
                       marker=style.mark, markersize=3.5, label=label)  # fmt: skip
        panel.set(yscale="log", ylim=(1e-8, 3.0), ylabel="delta")
        if against == "noise":
            log_ticks(panel, (1, 2, 4, 8, 16, 30))
            panel.set_xlabel("tau_s N_s, noise of a site over its sensitivity")
            panel.set_title(f"({name}) S {S}, S_C {chosen[0]['colluders']}, eps {eps:g}")
        else:
            panel.set_xlabel("S_C / S, share of colluding sites")
            panel.set_title(f"({name}) S {S}, tau_s N_s {chosen[0]['noise']:g}, eps {eps:g}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


# -- Fig. 6 ----------------------------------------------------------------------------------------

SIGMA2 = 0.25
RELEASE_DELTA = 0.01


def points_6(grid: Grid) -> Sequence[Point]:
    n = 25 if grid == "full" else 10
    rounds = sorted({int(j) for j in np.geomspace(1, 1000, n).round()})
    return [{"rounds": j} for j in rounds]


def measure_6(point: Point) -> Mapping[str, float]:
    J = point["rounds"]
    one = 1.0 / SIGMA2**0.5  # sigma = tau / Delta
    mu = (2 * J) ** 0.5 * one
    release = gdp_epsilon(mu=one, delta=DELTA / (4 * J))
    return {
        "exact": gdp_epsilon(mu=mu, delta=DELTA),
        "rdp": rdp_epsilon(mu, DELTA),
        "moments": moments_epsilon(mu, DELTA),
        "moments_printed": moments_epsilon_printed(mu, DELTA),
        "strong": strong_composition([(release, 2 * J)], slack=DELTA / 2),
    }


def draw_6(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, 1, width=5.2, height=3.6)
    panel = axes[0, 0]
    for column, look, label in (
        ("strong", "local", "strong composition"),
        ("moments_printed", "other", "moments, quadratic as printed"),
        ("rdp", "cape", "RDP = moments with the sign corrected"),
        ("exact", "exact", "exact"),
    ):
        x, y = means(rows, "rounds", column)
        curve(panel, x, y, look, label)
    log_ticks(panel, (1, 10, 100, 1000))
    panel.set(yscale="log", xlabel="J*, rounds (two releases each)", ylabel="total eps, delta 1e-5")
    panel.set_title("sigma_W^2 = sigma_b^2 = .25, in units of the sensitivity")
    panel.legend(loc="upper left")
    return figure


NO_DATA = "none needed: formulas of cape.privacy"

FIGURES = (
    Figure(
        name="002-fig5",
        title="capeDJICA Fig. 5: delta of CAPE, conventional and pooled",
        points=points_5, measure=measure_5, draw=draw_5, data=NO_DATA,
        privacy="delta of one release at a given eps, replace one; all schemes at the accuracy of "
        "pooled data",
        caption="paper_claim: delta_cape is below delta_pool for some noise. It compares a tail "
        "bound with the classic formula: exactly, pooled <= CAPE <= conventional everywhere, "
        "because the pooled release can be computed from what CAPE shows.",
    ),
    Figure(
        name="002-fig6",
        title="capeDJICA Fig. 6: total eps against rounds, four accountants",
        points=points_6, measure=measure_6, draw=draw_6, data=NO_DATA,
        privacy="total eps at delta 1e-5 of 2 J Gaussian releases; the per-step (eps, delta) of "
        "strong composition are not printed: here half of delta goes to the steps",
        caption="RDP in the right units equals the moments bound with its sign corrected and is a "
        "little above the exact figure; the printed quadratic is up to 3.4 times it, strong "
        "composition far above.",
    ),
)  # fmt: skip
