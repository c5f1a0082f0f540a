"""Joint ICA as the figures measure it: the pure algorithms in a loop, vectorised float noise.

What is drawn here is an ordinary Gaussian on doubles, at exactly the std that the exact integer
mechanism would have; a test of the secure sum compares the two.  So these loops measure quality,
and guarantee nothing by themselves: what protects anybody is the protocol of `cape.computations`.

All accounts are exact (Gaussian differential privacy) at delta 1e-5, replace one subject; two
releases a round, of W and of b.  The time-point unit is there for the papers' figures only.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cape.algorithms.basis import dct_image
from cape.algorithms.pca import ProjectorPca
from cape.algorithms.quasi_newton import QuasiNewton, tuned_constants
from cape.algorithms.scores import isi, match_maps
from cape.algorithms.spatial import spatial_start
from cape.algorithms.unmixing import MAX_NORM, unit_rows
from cape.algorithms.whitening import LogEuclidean, reduce_subject, whiten
from cape.papers.algorithms.covariance import CovariancePca, EigenWhitening
from cape.papers.algorithms.djica import DjicaInfomax
from cape.papers.algorithms.dpdjica import LaplaceInfomax, WishartPca, bounded_columns
from cape.papers.algorithms.infomax import BIAS_BOUND, GRADIENT_BOUND, clipped_gradients
from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.protocol.subject_views import map_stack, unit_trace
from figures_lib._scores import mdi
from figures_lib._study import djica_sim, djica_sim_maps

R, T, S = 20, 250, 4
S_C = 1
"""ceil(S/3) - 1 of the paper, and our default."""

DELTA = 1e-5
DELTA_I = 0.01
"""delta of one release in the papers' calibration."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Whitened data (M, R, T), float32; W `sphere` is the gain on the planted sources."""

    stack: np.ndarray
    sphere: np.ndarray


def whitened(S_all: np.ndarray, A: np.ndarray) -> Data:
    """Return data A S after pooled PCA whitening without noise."""
    courses = S_all.astype(np.float64)
    pooled = courses.transpose(1, 0, 2).reshape(courses.shape[1], -1)
    triangle = np.linalg.qr(A)[1]
    values, vectors = np.linalg.eigh(triangle @ (pooled @ pooled.T / pooled.shape[1]) @ triangle.T)
    sphere = (vectors / np.sqrt(values)).T @ triangle
    return Data(stack=(sphere.astype(np.float32) @ S_all), sphere=sphere)


@functools.lru_cache(maxsize=1)
def study(seed: int, n_subjects: int) -> np.ndarray:
    """Return the sources of djica-sim, (M, R, T) float32."""
    return djica_sim(seed, n_subjects=n_subjects).S


@functools.lru_cache(maxsize=2)
def data(seed: int, n_subjects: int, part: int = 1) -> Data:
    """Return the first M / part subjects of a study, whitened by themselves."""
    return whitened(study(seed, n_subjects)[: n_subjects // part], djica_sim_maps())


def gain(W: np.ndarray, sphere: np.ndarray) -> np.ndarray:
    """Return W_total A, (R, R)."""
    return unit_rows(W) @ sphere


def quality(W: np.ndarray, sphere: np.ndarray) -> dict[str, float]:
    """Return q_NGI (ISI) and MDI of an unmixing matrix of whitened data."""
    P = gain(W, sphere)
    return {"q": isi(P), "mdi": mdi(P)}


def calibration(delta_i: float) -> float:
    """Return sqrt(2 log(1.25/delta_i)): noise std = sensitivity * this / eps_i (eq. (3))."""
    return math.sqrt(2.0 * math.log(1.25 / delta_i))


def epsilons(eps_i: float, delta_i: float, rounds: int) -> dict[str, float]:
    """Return exact total epsilons of Alg. 4 at delta 1e-5: of the sum, and with S_C colluders."""
    mu = math.sqrt(2.0 * rounds) * eps_i / calibration(delta_i)
    return {
        "epsilon": gdp_epsilon(mu=mu, delta=DELTA),
        "epsilon_colluders": gdp_epsilon(mu=mu * math.sqrt(S / (S - S_C)), delta=DELTA),
    }


def noise_std(method: str, eps_i: float, delta_i: float, n_records: int) -> float:
    """Return the noise std on the mean gradient, for bound 1 and n records in all.

    tau_s = (2 / n_s) calibration / eps_i at a site of n_s = n/S records.  CAPE: tau_s/S;
    conventional: tau_s/sqrt(S); local: tau_s, one site alone.
    """
    tau_s = 2.0 * S / n_records * calibration(delta_i) / eps_i
    return tau_s * {"cape": 1.0 / S, "conv": 1.0 / math.sqrt(S), "local": 1.0}[method]


def infomax(
    found: Data, std: float, *, rounds: int, rate: float, rng: np.random.Generator
) -> np.ndarray:
    """Return W after J rounds of Alg. 4, B_G 30, B_h min(sqrt 30, sqrt R); blow-up restarts."""
    n = found.stack.shape[1]
    bounds = (GRADIENT_BOUND, min(BIAS_BOUND, math.sqrt(n)))
    W, b = np.eye(n), np.zeros(n)
    for _ in range(rounds):
        moments = clipped_gradients(W, b, found.stack, bounds)
        G = moments.matrix.mean(axis=0) + bounds[0] * std * rng.standard_normal((n, n))
        h = moments.vector.mean(axis=0) + bounds[1] * std * rng.standard_normal(n)
        W, b = W + rate * G, b + rate * h
        if not np.all(np.isfinite(W)) or np.max(np.abs(W)) > MAX_NORM:
            W, b, rate = np.eye(n), np.zeros(n), 0.9 * rate
    return W


def alg4(point: Mapping[str, Any]) -> dict[str, float]:
    """Measure one run of Alg. 4 on data that were whitened without noise.

    `point`: method, unit, n_subjects, eps_i, delta_i, rounds, rate, seed.
    """
    M, method = point["n_subjects"], point["method"]
    found = data(point["seed"], M, S if method == "local" else 1)
    n_records = M * (T if point["unit"] == "time point" else 1)
    std = noise_std(method, point["eps_i"], point["delta_i"], n_records)
    rng = np.random.default_rng([point["seed"], 4])
    W = infomax(found, std, rounds=point["rounds"], rate=point["rate"], rng=rng)
    start = quality(np.eye(R), found.sphere)
    spent = epsilons(point["eps_i"], point["delta_i"], point["rounds"])
    if point["unit"] == "time point":  # what the same noise is for a subject: T times the distance
        subject = epsilons(point["eps_i"] * T, point["delta_i"], point["rounds"])
        spent["epsilon_subject"] = subject["epsilon"]
    return {**quality(W, found.sphere), "start_q": start["q"], "start_mdi": start["mdi"], **spent}


def without_privacy(n_subjects: int, seed: int, rounds: int = 800, part: int = 1) -> np.ndarray:
    """Return W of djICA in full batches on the same reduced data."""
    found = data(seed, n_subjects, part)
    solver = DjicaInfomax(
        n_rounds=rounds, learning_rate=0.5, block=0, n_columns=1, n_subjects=n_subjects,
        anneal=True, tolerance=1e-6,
    )  # fmt: skip
    state = solver.start(R)
    while not solver.done(state):
        state = solver.step(state, solver.query(state).answer(found.stack).mean(axis=0), 0.0)
    return state.W


# -- DP-djICA of 2016 ----------------------------------------------------------------------------

LONGEST = 2.0 * math.sqrt(R)
"""Longest column of white data, a public constant: twice the usual one."""


def ciss_rounds(stack: np.ndarray, epsilon: float, *, rounds: int, seed: int) -> np.ndarray:
    """Return W of Alg. 3 of 2016 on white data with ||x|| <= 1/(2 sqrt 900), noise every round."""
    X = bounded_columns(stack, LONGEST) / np.float32(2.0 * math.sqrt(900))
    solver = LaplaceInfomax(n_rounds=rounds, learning_rate=0.5, round_epsilon=epsilon)
    state, rng = solver.start(stack.shape[1]), np.random.default_rng([seed, 6])
    while not solver.done(state):
        answer, mean = solver.query(state).answer, 0.0
        for first in range(0, len(X), 64):
            part = X[first : first + 64]
            E = rng.exponential(size=part.shape).astype(np.float32)
            E *= rng.choice(np.array([-1, 1], dtype=np.float32), size=part.shape)
            mean = mean + answer(np.concatenate([part, E], axis=1)).sum(axis=0)
        state = solver.step(state, mean / len(X), 0.0)
    return state.W


def ciss_subspace(courses: np.ndarray, epsilon: float, *, n_sites: int, seed: int) -> np.ndarray:
    """Return V (900, R) of PrivateGlobalPCA on columns A s scaled to ||x|| <= 1 by the largest."""
    A, rng = djica_sim_maps(), np.random.default_rng([seed, 8])
    estimator = WishartPca(n_components=R, n_local=R, n_sites=n_sites, n_subjects=1)
    state = estimator.start(900)
    gram = A.T @ A
    for part in np.array_split(courses, n_sites):
        flat = part.astype(np.float64).transpose(1, 0, 2).reshape(R, -1)
        largest = float(np.max(np.einsum("rn,rs,sn->n", flat, gram, flat, optimize=True)))
        noise = rng.standard_normal((900, 1802)) / math.sqrt(2.0 * epsilon)
        record = np.concatenate([A @ (flat @ flat.T / largest) @ A.T, noise], axis=1)
        answer = estimator.query(state).answer(record[np.newaxis].astype(np.float32))
        state = estimator.step(state, answer[0], 0.0)
    return state.V


def ciss(point: Mapping[str, Any]) -> dict[str, float]:
    """Measure DP-djICA of 2016 at an epsilon of each part, PCA free and PCA as printed."""
    M, epsilon, seed = point["n_subjects"], point["epsilon_part"], point["seed"]
    found = data(seed, M)
    W = ciss_rounds(found.stack, epsilon, rounds=point["rounds"], seed=seed)
    V = ciss_subspace(study(seed, M), epsilon, n_sites=point["n_sites"], seed=seed)
    whole = whitened(study(seed, M), V.T @ djica_sim_maps())
    W_whole = ciss_rounds(whole.stack, epsilon, rounds=point["rounds"], seed=seed)
    after = quality(W, found.sphere)
    return {
        **after,
        "q_whole": quality(W_whole, whole.sphere)["q"],
        "start_q": quality(np.eye(R), found.sphere)["q"],
        "cos2": float(np.mean(np.linalg.svd(V.T @ np.linalg.qr(djica_sim_maps())[0])[1] ** 2)),
        "epsilon_claimed": point["rounds"] * epsilon,
    }


# -- the default of this software ----------------------------------------------------------------


class Curator:
    """Clipped means of all subjects under Gaussian noise of a given G = M mu sqrt(h/S)."""

    def __init__(self, g: float, seed: int) -> None:
        self.g, self.rng = g, np.random.default_rng([seed, 7])

    def run(self, estimator: Any, rows: int, share: float, stack: np.ndarray) -> Any:
        """Return the last state of a stage that has this share of mu^2."""
        state, releases = estimator.start(rows), estimator.schedule(rows)
        total = sum(asked.weight for asked in releases)
        for asked in releases:
            query = estimator.query(state)
            mean = np.zeros(query.size)
            for first in range(0, len(stack), 64):
                mean += query.answer(stack[first : first + 64]).sum(axis=0)
            distance = (math.sqrt(2.0) if query.shape == "psd" else 2.0) * query.clip
            std = distance / (self.g * math.sqrt(share * asked.weight / total))
            mean = mean / len(stack) + std * self.rng.standard_normal(query.size)
            state = estimator.step(state, mean, std)
        return state


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate in voxels: unmixing (k, D) and maps (D, k)."""

    W_total: np.ndarray
    A: np.ndarray

    def quality(self) -> dict[str, float]:
        """Return q, MDI and map correlation against the planted maps.

        A component that the rank guard left out counts in q and MDI as an even mixture of all
        sources, the worst there is.
        """
        planted = djica_sim_maps()
        P = completed(self.W_total @ planted)
        return {"q": isi(P), "mdi": mdi(P), "map": match_maps(self.A, planted).mean,
                "n_components": len(self.W_total)}  # fmt: skip


def completed(P: np.ndarray) -> np.ndarray:
    """Return gains (k, R) with even mixtures of norm 1 in the rows that are missing, (R, R)."""
    k, n = P.shape
    return np.vstack([P, np.full((n - k, n), 1.0 / math.sqrt(n))])


@functools.lru_cache(maxsize=1)
def in_basis(seed: int, n_subjects: int) -> np.ndarray:
    """Return the subjects in the public 10 x 10 cosine basis, unit trace, (M, 100, T)."""
    seen = (dct_image((30, 30), 100).T @ djica_sim_maps()).astype(np.float32)
    courses = study(seed, n_subjects)
    return np.concatenate([map_stack(seen @ courses[i : i + 64], unit_trace) for i in
                           range(0, n_subjects, 64)])  # fmt: skip


def strength(n_subjects: int, epsilon: float) -> float:
    """Return G of a total epsilon against the aggregator with S_C of S sites."""
    return n_subjects * gdp_mu(epsilon=epsilon, delta=DELTA) * math.sqrt((S - S_C) / S)


def default(n_subjects: int, epsilon: float, seed: int) -> Estimate:
    """Return the shipped default: every stage charged, one subject, S 4, S_C 1."""
    g = strength(n_subjects, epsilon)
    public, curator, Y = tuned_constants(R, g), Curator(g, seed), in_basis(seed, n_subjects)
    V = curator.run(
        ProjectorPca(n_components=R, private=True), Y.shape[1], public.mu2_weights[0], Y
    ).V
    Z0 = np.stack([reduce_subject(V, one, "ar1") for one in Y])
    looks = LogEuclidean(n_looks=public.n_looks, clip=public.whitening_clip, private=True)
    U = curator.run(looks, V.shape[1], public.mu2_weights[1], Z0).U
    start = spatial_start(dct_image((30, 30), 100), V, U)
    solver = QuasiNewton(
        dither=public.dither, origin=start.W if start.gate else None,
        n_rounds=40, clips=public.clips, step_limit=public.step_limit,
        alpha_first=public.alpha_first, alpha_last=public.alpha_last, private=True,
    )  # fmt: skip
    W = unit_rows(curator.run(solver, V.shape[1], public.mu2_weights[2], whiten(U, Z0)).W)
    return _lifted(V, U, W)


def _lifted(V: np.ndarray, U: np.ndarray, W: np.ndarray) -> Estimate:
    directions = dct_image((30, 30), 100) @ V
    return Estimate(W_total=W @ U @ directions.T, A=directions @ np.linalg.inv(U) @ W.T)


# -- the paper's algorithm at the same account ---------------------------------------------------


def paper_at(
    n_subjects: int, epsilon: float, seed: int, *, rounds: int, rate: float, pca_share: float
) -> dict[str, float]:
    """Measure Alg. 3 and 4 at a total epsilon, one subject, S 4, S_C 1, as the default is.

    ``pca_share=0``: the PCA is free and exact, which favours it.  Else Alg. 3 in the same public
    basis has that share of mu^2, with the Frobenius clip .3 of unit-trace subjects.
    """
    g = strength(n_subjects, epsilon)
    # One joint vector [G/B_G ; h/B_h] of norm sqrt2 a round, replace one: the account of Alg. 4.
    std = 2.0 * math.sqrt(2.0) / (g * math.sqrt((1.0 - pca_share) / rounds))
    rng = np.random.default_rng([seed, 5])
    if not pca_share:
        found = data(seed, n_subjects)
        W = infomax(found, std, rounds=rounds, rate=rate, rng=rng)
        return quality(W, found.sphere)
    Y = in_basis(seed, n_subjects)
    pca = CovariancePca(n_components=R, clip=0.3, private=True)
    subspace = Curator(g, seed).run(pca, Y.shape[1], pca_share, Y)
    k = subspace.V.shape[1]
    U = EigenWhitening(eigenvalues=subspace.eigenvalues).start(k).U
    Z0 = np.stack([reduce_subject(subspace.V, one, "none") for one in Y])
    reduced = Data(stack=whiten(U, Z0), sphere=np.eye(k))
    W = infomax(reduced, std, rounds=rounds, rate=rate, rng=rng)
    return _lifted(subspace.V, U, unit_rows(W)).quality()
