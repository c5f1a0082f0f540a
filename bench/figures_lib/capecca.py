"""Paper 003 (capeCCA): clustering and errors of correlations against epsilon, N and delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cape.algorithms.cca import canonical_pairs
from cape.algorithms.estimators import Array
from figures_lib._figure import Figure, Grid, Point
from figures_lib._paper_noise import PRIVACY, exact_epsilon, printed_std, symmetric_noise
from figures_lib._scores import calinski_harabasz, err_corr, principal_cosines
from figures_lib._style import canvas, curve, legend_below, log_ticks, means, second_axis

METHODS = {
    "non-private": "non-private",
    "cape": "capeCCA",
    "conv": "conv",
    "local": "local, one site",
}
TRUE = (0.9, 0.7, 0.5, 0.3, 0.1)
S = 10


# -- data: records as rows, scaled so that the longest joint record has norm 1 -------------------


@dataclass(frozen=True)
class Study:
    """Records of both views (N, D), the columns of the first, labels of clusters or None."""

    z: Array
    n_x: int
    n_pairs: int
    labels: npt.NDArray[np.intp] | None


@lru_cache(maxsize=2)
def study(data: str, n_records: int, seed: int) -> Study:
    rng = np.random.default_rng([seed, 11])
    if data == "digits":
        return _digits()
    if data == "mixture":
        return _mixture(rng, n_records)
    return _fmri_eeg(rng, n_records)


def _scaled(z: Array) -> Array:
    z = z - z.mean(axis=0)
    return np.asarray(z / np.max(np.linalg.norm(z, axis=1)))


def _reduced(x: Array, n: int) -> Array:
    x = x - x.mean(axis=0)
    return np.asarray(x @ np.linalg.svd(x, full_matrices=False)[2][:n].T)


def _digits() -> Study:
    """Return the digits of scikit-learn: upper and lower halves of 8 x 8 pixels, 25 dims each."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    n = len(loaded.data) // S * S
    images = loaded.data[:n]
    views = [_reduced(half, 25) for half in (images[:, :32], images[:, 32:])]
    return Study(_scaled(np.hstack(views)), 25, 10, np.asarray(loaded.target[:n]))


def _mixture(rng: np.random.Generator, n: int) -> Study:
    """Return two speakers: 25 + 25 dims, one class mean each view, a shared part of 10 dims."""
    labels = rng.integers(0, 2, n)
    shared = rng.standard_normal((n, 10)) * np.linspace(1.0, 0.3, 10)
    shared[:, 0] += np.where(labels == 1, 3.0, -3.0)
    views = []
    for _ in range(2):
        mixing = np.linalg.qr(rng.standard_normal((25, 25)))[0][:10]
        views.append(shared @ mixing + 0.5 * rng.standard_normal((n, 25)))
    return Study(_scaled(np.hstack(views)), 25, 10, np.asarray(labels))


def _fmri_eeg(rng: np.random.Generator, n: int) -> Study:
    """Return the authors' recipe: 5 blobs of 50 x 50, 5 windowed sines, known correlations."""
    A1, A2 = (np.linalg.qr(rng.standard_normal((n, 5)))[0] for _ in range(2))
    r = np.array(TRUE)
    A2 = A1 * r + A2 * np.sqrt(1.0 - r**2)
    A1, A2 = ((A - A.mean(axis=0)) / np.linalg.norm(A - A.mean(axis=0), axis=0) for A in (A1, A2))
    row, column = np.indices((50, 50), dtype=np.float64)
    centres = ((12, 12), (12, 38), (25, 25), (38, 12), (38, 38))
    blobs = [np.exp(-((row - a) ** 2 + (column - b) ** 2) / 50.0).ravel() for a, b in centres]
    t = np.linspace(0.0, 1.0, 6360)
    waves = [
        np.sin(2 * np.pi * f * t) * np.exp(-(((t - c) / 0.2) ** 2))
        for f, c in zip((3, 5, 7, 9, 11), (0.2, 0.35, 0.5, 0.65, 0.8), strict=True)
    ]
    # Only C C' of the maps matters for 5 directions of A C: their own coordinates are enough.
    maps = [np.linalg.cholesky(np.array(C) @ np.array(C).T) for C in (blobs, waves)]
    views = [_reduced(A1 @ maps[0], 5), _reduced(A2 @ maps[1], 5)]
    views = [x / np.max(np.linalg.norm(x, axis=1)) for x in views]
    return Study(_scaled(np.hstack(views)), 5, 5, None)


# -- one point ----------------------------------------------------------------------------------


def directions(found: Study, epsilon: float, delta: float, seed: int) -> Mapping[str, Any]:
    """Return the canonical pairs of every method; noise as printed, one seed for all epsilons."""
    z, n = found.z, len(found.z) // S
    sites = [z[s * n : (s + 1) * n] for s in range(S)]
    moments = [x.T @ x / n for x in sites]
    noises = [symmetric_noise(np.random.default_rng([seed, 12, s]), z.shape[1]) for s in range(S)]
    tau = printed_std(n, epsilon, delta)
    pooled = np.mean(moments, axis=0)
    noisy = {
        "non-private": (pooled, 0.0),
        "cape": (pooled + tau / S * noises[0], tau / S),
        "conv": (pooled + tau * np.mean(noises, axis=0), tau / np.sqrt(S)),
        "local": (moments[-1] + tau * noises[-1], tau),
    }
    return {
        name: canonical_pairs(C, found.n_x, found.n_pairs, noise_std=std)
        for name, (C, std) in noisy.items()
    }


def measure(point: Point) -> dict[str, float]:
    found = study(point["data"], point["n_records"], point["seed"])
    pairs = directions(found, point["epsilon"], point["delta"], point["seed"])
    values = {"exact_epsilon": exact_epsilon(point["epsilon"], point["delta"])}
    x, y = found.z[:, : found.n_x], found.z[:, found.n_x :]
    best = np.linalg.qr(pairs["non-private"].U)[0]
    for name, pair in pairs.items():
        if found.labels is None:
            values[name] = err_corr(x, y, pair.U, pair.V, np.array(TRUE))
            continue
        n_clusters = len(np.unique(found.labels))
        clusters = _clustered(x @ pair.U, n_clusters, point["seed"])
        values[name] = calinski_harabasz(x @ pair.U, clusters)
        values[f"{name}_nmi"] = _nmi(found.labels, clusters)
        cosines = principal_cosines(best, np.linalg.qr(pair.U)[0])
        values[f"{name}_cos2"] = float(np.mean(cosines**2))
    return values


def _clustered(records: Array, n_clusters: int, seed: int) -> npt.NDArray[np.intp]:
    from sklearn.cluster import KMeans

    return np.asarray(KMeans(n_clusters, n_init=4, random_state=seed).fit_predict(records))


def _nmi(labels: npt.NDArray[np.intp], clusters: npt.NDArray[np.intp]) -> float:
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(labels, clusters))


# -- Fig. 2 -------------------------------------------------------------------------------------

EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 50.0)


def points_2(grid: Grid) -> list[Point]:
    quick = grid == "quick"
    found: list[Point] = []
    for data, sizes, at in (
        ("fmri-eeg", (500, 1000), (0.5, 1.0)),
        ("digits", (1790,), ()),
        ("mixture", (10_000,), (0.1, 0.5)),
    ):
        seeds = range(20 if data == "fmri-eeg" else 2) if quick else range(100)
        if not quick and data != "fmri-eeg":
            seeds = range(10)
        more = (200, 500, 1000, 2000, 5000) if data == "fmri-eeg" else (2000, 5000, 10_000, 30_000)
        for seed in seeds:
            found += [
                _point("epsilon", data, n, e, 0.01, seed)
                for n in sizes for e in EPSILONS
            ]  # fmt: skip
            found += [_point("records", data, n, e, 0.01, seed) for e in at for n in more]
    return found


def _point(
    panel: str, data: str, n_records: int, epsilon: float, delta: float, seed: int
) -> dict[str, Any]:
    return {
        "panel": panel, "data": data, "n_records": n_records, "epsilon": epsilon,
        "delta": delta, "seed": seed,
    }  # fmt: skip


NAMES = {"fmri-eeg": "fMRI + EEG", "digits": "digits", "mixture": "two-class mixture"}
CH, NMI, ERROR = "Calinski-Harabasz index", "NMI with true classes", "err_corr"
ANGLES = "mean cos^2 to non-private"


def draw_2(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(4, 3, width=3.1, height=2.4)
    panels: list[tuple[str, dict[str, Any], str, str, str]] = [
        ("epsilon", {"data": "digits"}, "", CH, "digits"),
        ("epsilon", {"data": "mixture"}, "", CH, "mixture"),
        ("epsilon", {"data": "fmri-eeg", "n_records": 500}, "", ERROR, "fMRI + EEG, N 500"),
        ("epsilon", {"data": "digits"}, "_cos2", ANGLES, "digits"),
        ("epsilon", {"data": "mixture"}, "_nmi", NMI, "mixture"),
        ("epsilon", {"data": "fmri-eeg", "n_records": 1000}, "", ERROR, "fMRI + EEG, N 1000"),
        ("records", {"data": "mixture", "epsilon": 0.1}, "", CH, "mixture, epsilon 0.1"),
        ("records", {"data": "mixture", "epsilon": 0.5}, "", CH, "mixture, epsilon 0.5"),
        ("records", {"data": "fmri-eeg", "epsilon": 0.5}, "", ERROR, "fMRI + EEG, epsilon 0.5"),
        ("records", {"data": "mixture", "epsilon": 0.1}, "_nmi", NMI, "mixture, epsilon 0.1"),
        ("records", {"data": "mixture", "epsilon": 0.5}, "_cos2", ANGLES, "mixture, epsilon 0.5"),
        ("records", {"data": "fmri-eeg", "epsilon": 1.0}, "", ERROR, "fMRI + EEG, epsilon 1"),
    ]
    for i, (panel, where, end, label, title) in enumerate(panels):
        here = [row for row in rows if row["panel"] == panel]
        at = axes.flat[i]
        x_name = "epsilon" if panel == "epsilon" else "n_records"
        x = _curves(at, here, x_name, end, where)
        at.set(ylabel=label)
        at.set_title(f"({'abcdefghijkl'[i]}) {title}", loc="left")
        at.set_xlabel("epsilon per site, paper's formula" if panel == "epsilon" else "records N")
        if panel == "epsilon":
            exact = means(here, "epsilon", "exact_epsilon", **where)[1]
            second_axis(at, x, exact, "exact epsilon, one person")
    legend_below(figure, axes[0, 0], 4)
    return figure


def _curves(
    axes: Any, rows: Sequence[dict[str, Any]], x_name: str, end: str, where: Mapping[str, Any]
) -> list[float]:
    x: list[float] = []
    for method, label in METHODS.items():
        x, y = means(rows, x_name, f"{method}{end}", **where)
        curve(axes, x, y, method, label)
    log_ticks(axes, x)
    axes.set_ylim(0.0, 1.05 if end else None)
    return x


# -- Fig. 3 -------------------------------------------------------------------------------------

DELTAS = (1e-5, 1e-4, 1e-3, 1e-2, 5e-2)


def points_3(grid: Grid) -> list[Point]:
    found: list[Point] = []
    for data, n, epsilon in (("digits", 1790, 2.0), ("mixture", 10_000, 0.2),
                             ("fmri-eeg", 2000, 0.5)):  # fmt: skip
        few = 20 if data == "fmri-eeg" else 2
        many = 100 if data == "fmri-eeg" else 10
        for seed in range(few if grid == "quick" else many):
            found += [_point("delta", data, n, epsilon, d, seed) for d in DELTAS]
    return found


def draw_3(rows: list[dict[str, Any]]) -> Any:
    figure, axes = canvas(1, 3, width=3.1, height=2.9)
    panels = (("digits", "_cos2", ANGLES), ("mixture", "_nmi", NMI), ("fmri-eeg", "", ERROR))
    for j, (data, end, label) in enumerate(panels):
        at = axes[0, j]
        x = _curves(at, rows, "delta", end, {"data": data})
        at.set_xticks(x, [f"{d:g}" for d in x])
        epsilon = next(row["epsilon"] for row in rows if row["data"] == data)
        at.set_title(f"({'abc'[j]}) {NAMES[data]}, epsilon {epsilon:g}", loc="left")
        at.set(xlabel="delta", ylabel=label)
        exact = means(rows, "delta", "exact_epsilon", data=data)[1]
        second_axis(at, x, exact, "exact epsilon at that delta")
    legend_below(figure, axes[0, 0], 4)
    return figure


SUBSTITUTES = (
    "digits: scikit-learn's 1,790 images of 8 x 8, upper and lower half, 25 dims each by "
    "non-private PCA, in place of MNIST (N 30,000 and 50,000). mixture: two-class Gaussian views, "
    "25 + 25 dims, in place of the XRMB speech of two speakers, without its copies of records. "
    "fMRI + EEG: the authors' recipe (5 blobs, 5 windowed sines, correlations .9 .7 .5 .3 .1). "
    "The joint record is scaled by its largest norm; the authors scale each view by its own, "
    "which breaks their bound. All methods are judged on the same, whole data."
)
FIGURES = (
    Figure(
        name="003-fig2",
        title="capeCCA Fig. 2: clustering, directions and err_corr against epsilon and N",
        points=points_2,
        measure=measure,
        draw=draw_2,
        data=SUBSTITUTES,
        privacy=PRIVACY,
        caption="err_corr = |r* - r_hat| / K: canonical correlations of the non-private data under "
        "the private directions; capeCCA is nearest to the non-private CCA. The clustering index "
        "is no measure of utility: it grows with N and is not monotone in the noise, so NMI with "
        "the true classes and the angles to the non-private directions stand beside it.",
        share=("data", "n_records", "seed"),
    ),
    Figure(
        name="003-fig3",
        title="capeCCA Fig. 3: directions, clustering and err_corr against delta",
        points=points_3,
        measure=measure,
        draw=draw_3,
        data=SUBSTITUTES,
        privacy=PRIVACY,
        caption="Ten sites in all panels (the authors' scripts use five in two of them). The exact "
        "epsilon at each delta says what a larger delta buys.",
        share=("data", "n_records", "seed"),
    ),
)
