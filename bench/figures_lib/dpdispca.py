"""Paper 004 (DPdisPCA): captured energy against epsilon, N_s, S, R / K and delta."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from figures_lib._figure import Figure, Grid, Point
from figures_lib._paper_noise import PRIVACY, exact_epsilon, printed_std, symmetric_noise
from figures_lib._scores import captured_energy
from figures_lib._style import canvas, curve, legend_below, log_ticks, means, second_axis

METHODS = {
    "pooled": "pooled = capePCA",
    "full": "full = conventional",
    "dpdispca": "DPdisPCA",
    "as_coded": "DPdisPCA, SVD as coded",
    "local": "local, one site",
}
LOOK = {"as_coded": "other"}
DATA = {"synthetic": "synthetic", "mnist-like": "MNIST-like", "covtype-like": "Covertype-like"}
K = {"synthetic": 50, "mnist-like": 50, "covtype-like": 10}
N = {"synthetic": 10_000, "mnist-like": 10_000, "covtype-like": 5_000}
FIXED = {"synthetic": 0.5, "mnist-like": 1.0, "covtype-like": 0.1}
COVTYPE = (2.5e6, 1.75e6, 5.5e4, 8e3, 1500.0, 400.0, 200.0, 60.0, 30.0, 20.0)
ALL_RECORDS = 20_000
"""Of all sites together where S varies; N is that of all sites everywhere, N_s = N / S."""


# -- data -------------------------------------------------------------------------------------


def variances(data: str) -> Array:
    """Return the true eigenvalues; the covariance is diagonal without loss of generality."""
    if data == "synthetic":
        tail = 0.5 * np.random.default_rng(4).uniform(size=150)
        return np.concatenate([np.linspace(10.0, 1.0, 50), tail])
    if data == "mnist-like":
        i = np.arange(1, 785)
        spectrum = i**-0.75 * np.exp(-i / 90.0)
        return np.asarray(52.7 * spectrum / spectrum.sum())
    return np.array([*COVTYPE, *[0.1] * 44])


@lru_cache(maxsize=1)
def site_moments(data: str, n_sites: int, n_records: int, seed: int) -> tuple[Array, ...]:
    """Return the second moment of every site's records, all scaled by the largest norm."""
    std = np.sqrt(variances(data)).astype(np.float32)
    rng = np.random.default_rng([seed, 1])
    moments, largest = [], 0.0
    for _ in range(n_sites):
        x = rng.standard_normal((n_records, len(std)), dtype=np.float32) * std
        largest = max(largest, float(np.max(np.einsum("nd,nd->n", x, x))))
        moments.append((x.T @ x).astype(np.float64) / n_records)
    return tuple(m / largest for m in moments)


@lru_cache(maxsize=1)
def noisy_sites(
    data: str, n_sites: int, n_records: int, seed: int, tau: float
) -> tuple[Array, tuple[tuple[Array, Array], ...]]:
    """Return the mean of all noisy site moments, and the eigenpairs of every one of them."""
    mean, pairs = 0.0, []
    for s, moment in enumerate(site_moments(data, n_sites, n_records, seed)):
        # The same draws at every tau: curves differ by what is shown, not by luck.
        noise = symmetric_noise(np.random.default_rng([seed, 2, s]), len(moment))
        noisy = moment + tau * noise
        mean = mean + noisy / n_sites
        pairs.append(np.linalg.eigh(noisy))
    return np.asarray(mean), tuple(pairs)


# -- one point --------------------------------------------------------------------------------


def top(moment: Array, k: int) -> Array:
    return np.asarray(np.linalg.eigh(moment)[1][:, ::-1][:, :k])


def average_of_factors(pairs: Sequence[tuple[Array, Array]], rank: int, *, absolute: bool) -> Array:
    """Return the mean of P_s P_s' of all sites (DPdisPCA, Alg. 1)."""
    total = 0.0
    for values, vectors in pairs:
        kept = np.argsort(np.abs(values) if absolute else values)[::-1][:rank]
        size = np.abs(values[kept]) if absolute else np.maximum(values[kept], 0.0)
        P = vectors[:, kept] * np.sqrt(size)
        total = total + P @ P.T / len(pairs)
    return np.asarray(total)


def measure(point: Point) -> dict[str, float]:
    data, S, n = point["data"], point["n_sites"], point["n_records"] // point["n_sites"]
    seed, k = point["seed"], point["n_directions"]
    rank = round(point["rank_ratio"] * k)
    truth = np.diag(variances(data))
    best = float(np.sum(np.sort(variances(data))[::-1][:k]))
    tau = printed_std(n, point["epsilon"], point["delta"])
    full, pairs = noisy_sites(data, S, n, seed, tau)
    moments = site_moments(data, S, n, seed)
    noise = symmetric_noise(np.random.default_rng([seed, 3]), len(truth))
    values, vectors = pairs[-1]
    found = {
        "pooled": top(np.mean(moments, axis=0) + tau / S * noise, k),
        "full": top(full, k),
        "dpdispca": top(average_of_factors(pairs, rank, absolute=False), k),
        "as_coded": top(average_of_factors(pairs, rank, absolute=True), k),
        "local": vectors[:, np.argsort(values)[::-1][:k]],
    }
    energies = {name: captured_energy(V, truth) / best for name, V in found.items()}
    return {**energies, "exact_epsilon": exact_epsilon(point["epsilon"], point["delta"])}


def _point(panel: str, data: str, seed: int, **changed: Any) -> dict[str, Any]:
    return {
        "panel": panel, "data": data, "n_sites": 10, "n_records": N[data],
        "epsilon": FIXED[data], "delta": 0.01, "rank_ratio": 2.0, "n_directions": K[data],
        "seed": seed, **changed,
    }  # fmt: skip


def points_1(grid: Grid) -> list[Point]:
    quick = grid == "quick"
    found: list[Point] = []
    for data in DATA:
        big = data == "mnist-like"
        seeds = range(1 if big else 3) if quick else range(10)
        eps = (0.1, 0.5, 1, 2, 5, 10) if quick else (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
        n = (3000, 10_000, 30_000) if big else (1000, 3000, 10_000, 30_000, 60_000)
        n = n if quick else (1000, 2000, 5000, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000)
        sites = (5, 10, 20) if big else (5, 10, 20, 50, 100)
        sites = sites if quick else (5, 10, 20, 50, 100)
        ratios = (0.25, 0.5, 1, 2, 4)
        for seed in seeds:
            found += [_point("epsilon", data, seed, epsilon=float(e)) for e in eps]
            found += [_point("rank", data, seed, rank_ratio=float(r)) for r in ratios]
            found += [_point("records", data, seed, n_records=m) for m in n]
            found += [_point("sites", data, seed, n_sites=s, n_records=ALL_RECORDS) for s in sites]
    return found


PANELS = {
    "epsilon": ("epsilon", "epsilon per site, paper's formula"),
    "records": ("n_records", "records of all 10 sites, N"),
    "sites": ("n_sites", "sites S, N = 20,000 of all"),
    "rank": ("rank_ratio", "R / K"),
}


def draw_1(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(4, 3, width=3.1, height=2.35)
    for i, (panel, (x_name, label)) in enumerate(PANELS.items()):
        for j, data in enumerate(DATA):
            here = [row for row in rows if row["panel"] == panel and row["data"] == data]
            _panel(axes[i, j], here, x_name)
            axes[i, j].set_xlabel(label)
            note = "" if panel == "epsilon" else f", epsilon {FIXED[data]:g}"
            title = f"({'abcdefghijkl'[3 * i + j]}) {DATA[data]}{note}"
            axes[i, j].set_title(title, loc="left")
            if panel == "epsilon":
                x, exact = means(here, "epsilon", "exact_epsilon")
                second_axis(axes[i, j], x, exact, "exact epsilon, one person")
        axes[i, 0].set_ylabel("captured energy, q / q_o")
    legend_below(figure, axes[0, 0], 5)
    return figure


def _panel(axes: Any, rows: list[dict[str, Any]], x_name: str) -> None:
    for method, label in METHODS.items():
        x, y = means(rows, x_name, method)
        curve(axes, x, y, LOOK.get(method, method), label)
    log_ticks(axes, x)
    axes.set_ylim(0.0, 1.05)


def points_2(grid: Grid) -> list[Point]:
    quick = grid == "quick"
    deltas = (1e-4, 1e-3, 1e-2, 5e-2) if quick else (1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2)
    found: list[Point] = []
    for data, epsilon in (("synthetic", 1.0), ("mnist-like", 2.0), ("covtype-like", 0.5)):
        big = data == "mnist-like"
        seeds = range(1 if big else 3) if quick else range(10)
        changed = {"epsilon": epsilon, "n_directions": 10 if big else K[data]}
        found += [_point("delta", data, s, delta=d, **changed) for s in seeds for d in deltas]
    return found


def draw_2(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, 3, width=3.1, height=2.9)
    for j, data in enumerate(DATA):
        here = [row for row in rows if row["data"] == data]
        _panel(axes[0, j], here, "delta")
        x = sorted({row["delta"] for row in here})
        log_ticks(axes[0, j], x)
        axes[0, j].set_xlabel("delta")
        epsilon = here[0]["epsilon"]
        axes[0, j].set_title(f"({'abc'[j]}) {DATA[data]}, epsilon {epsilon:g}", loc="left")
        exact = means(here, "delta", "exact_epsilon")[1]
        second_axis(axes[0, j], x, exact, "exact epsilon at that delta")
    axes[0, 0].set_ylabel("captured energy, q / q_o")
    legend_below(figure, axes[0, 0], 5)
    return figure


SUBSTITUTES = (
    "synthetic: the authors' recipe (D 200, K 50, diagonal covariance linspace(10, 1, 50), then "
    ".5 U(0, 1)). MNIST-like: Gaussian, D 784, eigenvalues proportional to i^-.75 exp(-i/90), in "
    "place of MNIST, which is not available offline. Covertype-like: Gaussian, D 54, K 10, the "
    "variances of its columns in place of the data set. Columns are scaled by the largest norm of "
    "the data set, as in the authors' scripts. q is measured on the true covariance."
)
FIGURES = (
    Figure(
        name="004-fig1",
        title="DPdisPCA Fig. 1: captured energy against epsilon, N, S and R / K",
        points=points_1,
        measure=measure,
        draw=draw_1,
        data=SUBSTITUTES,
        privacy=PRIVACY,
        caption="pooled >= full >= DPdisPCA >= local from epsilon 1 on; rises with epsilon and N, "
        "falls with S, and rises with R up to K and from there towards full. SVD as coded: "
        "directions by absolute eigenvalue, which takes negative noise eigenvalues for components.",
        share=("data", "n_sites", "n_records", "seed"),
    ),
    Figure(
        name="004-fig2",
        title="DPdisPCA Fig. 2: captured energy against delta",
        points=points_2,
        measure=measure,
        draw=draw_2,
        data=SUBSTITUTES + " K = 10 for MNIST-like here, as in the scripts.",
        privacy=PRIVACY,
        caption="A larger delta means less noise by the classic formula; the exact epsilon at that "
        "delta says how much of it is another promise rather than a better one.",
        share=("data", "n_sites", "n_records", "seed"),
    ),
)
