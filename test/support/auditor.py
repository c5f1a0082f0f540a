"""The adversary of the audits: runs made to be told apart, and checks of what is learned from them.

It holds what the aggregator receives, the noise of one colluding site of four, and all data but one
bit per subject, and guesses the bits.
"""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np

from cape.algorithms.linalg import svec
from cape.algorithms.quasi_newton import turned
from cape.computations import load
from cape.computations.capedjica import ITERATE
from cape.privacy.halves import halves
from support import say, wiretap

COLLUDER = "local3"
TOO_MUCH = "more is learned than claimed"
TOO_LITTLE = "the audit does not reach the true mu"


def coins(n: int) -> np.ndarray:
    return np.random.default_rng().choice([-1.0, 1.0], n)


def audit_canary(*, n_runs: int = 5, n_rounds: int = 11, size: int = 800) -> tuple[float, float]:
    """Return (certified, claimed) mu of one integer secure sum, from every round of some runs."""
    statistic, bits = [], []
    for _ in range(n_runs):
        own = coins(size)
        link, _ = wiretap.canary_run(own, n_rounds=n_rounds)
        link.until("canary")
        for round_ in range(1, n_rounds + 1):
            link.exchange()
            statistic.append(wiretap.sign_of(round_) * link.seen())
            bits.append(own)
    claimed = math.sqrt(link.event().cost.mu2)
    return wiretap.certified_mu(np.concatenate(statistic), np.concatenate(bits)), claimed


def audit_half(
    part: str, *, n_runs: int = 5, n_rounds: int = 11, size: int = 800
) -> dict[str, tuple[float, float]]:
    """Return (certified, claimed) mu of releases to one half, about the people of each half."""
    statistic, bits, asked = [], [], []
    for _ in range(n_runs):
        own = coins(size)
        link, owned = wiretap.canary_run(own, n_rounds=n_rounds, part=part)
        link.until("canary")
        places = half_places(link, owned, size)
        for round_ in range(1, n_rounds + 1):
            link.exchange()
            statistic.append(wiretap.sign_of(round_) * link.seen())
            bits.append(own)
            asked.append(places)
    claimed = math.sqrt(link.event().cost.mu2)
    seen, truth, place = map(np.concatenate, (statistic, bits, asked))
    return {
        half: (wiretap.certified_mu(seen[place == half], truth[place == half]), claimed)
        for half in ("A", "B")
    }


def half_places(link: wiretap.Wiretap, owned: dict[str, np.ndarray], size: int) -> np.ndarray:
    """Return the half of every bit, as everybody computes it from names and the run's seed."""
    places = np.full(size, "A")
    for site, own in owned.items():
        names = [f"{m:04d}" for m in range(len(own))]
        found = halves(link._state.model.fingerprint, site, dict.fromkeys(names, ""))
        places[own] = [found[name] for name in names]
    return places


def audit_repeated(link, directions: np.ndarray, bits: np.ndarray, n: int) -> tuple[float, float]:
    """Return (certified, claimed) mu of the next release, made `n` times from the same state."""
    here, statistic = link.snapshot(), []
    for _ in range(n):
        link.back(here)
        link.exchange()
        statistic.append(directions @ link.seen())
    claimed = math.sqrt(link.event().cost.mu2)
    return wiretap.certified_mu(np.concatenate(statistic), np.tile(bits, n)), claimed


def check_sound(certified: float, claimed: float) -> None:
    say(f"certified mu {certified:.4f}, claimed {claimed:.4f}, ratio {certified / claimed:.3f}")
    assert certified <= claimed, TOO_MUCH


def check_tight(certified: float, claimed: float) -> None:
    check_sound(certified, claimed)
    assert certified >= 0.9 * claimed, TOO_LITTLE


def joint_ica(bits: np.ndarray, matrices, *, n_components: int, shares: str) -> wiretap.Wiretap:
    """Return a capedjica run in which subject k of the honest sites holds ``matrices[k]``."""
    rows = matrices[0].shape[0]
    sources = {
        f"local{s}": wiretap.Subjects(matrices=tuple(matrices[s::3]), n_features=rows)
        for s in range(3)
    }
    nothing = np.zeros_like(matrices[0])
    sources[COLLUDER] = wiretap.Subjects(matrices=(nothing,), n_features=rows)
    settings = {
        **wiretap.budget(3.2),
        "n_components": n_components,
        "shares": shares,
        "n_looks": 1,
        "n_rounds": 1,
        "prewhiten": "none",
        "feature_space": "matrix",
        "basis": "none",
    }
    assert len(matrices) == len(bits)
    return wiretap.Wiretap(load("capedjica"), settings, sources, (COLLUDER,))


def disjoint_pairs(d: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return pairs of pairs (i, j), (k, l) of d indices; no two share a pair."""
    pairs = list(combinations(range(d), 2))
    np.random.default_rng().shuffle(pairs)
    chosen = []
    while pairs:  # two pairs without a common index for each subject
        first = pairs.pop()
        fitting = [p for p in pairs if not {*p} & {*first}]
        if fitting:
            pairs.remove(fitting[0])
            chosen.append((first, fitting[0]))
    return chosen


def plane(d: int, two: tuple[tuple[int, int], tuple[int, int]], sign: float) -> np.ndarray:
    """Return the unit vectors along e_i + sign e_j of both pairs, shape (d, 2)."""
    U = np.zeros((d, 2))
    for column, (i, j) in enumerate(two):
        U[i, column], U[j, column] = math.sqrt(0.5), sign * math.sqrt(0.5)
    return U


def subspace_run() -> tuple[wiretap.Wiretap, np.ndarray, np.ndarray]:
    """Return a run before its PCA release, the direction of every subject's bit, and the bits."""
    # Neighbours at the largest distance: projectors on (e_i + e_j, e_k + e_l) and on (e_i - e_j,
    # e_k - e_l) are orthogonal, and pairs of different subjects do not meet.
    d, R = 24, 2
    chosen = disjoint_pairs(d)
    bits = coins(len(chosen))
    courses = np.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    matrices, directions = [], []
    for sign, two in zip(bits, chosen, strict=True):
        ends = [plane(d, two, s) for s in (1.0, -1.0)]
        matrices.append((ends[0 if sign > 0 else 1] @ courses).astype(np.float32))
        directions.append(svec(ends[0] @ ends[0].T - ends[1] @ ends[1].T))
    link = joint_ica(bits, matrices, n_components=R, shares="0.9,0.05,0.05")
    return link.until("pca"), np.array(directions), bits


def asked_matrix(link: wiretap.Wiretap, R: int) -> np.ndarray:
    """Return the rotation at which the first round asks if it begins at I: public, as is I."""
    told = replace(link._request.body, origin=np.eye(R), gate=True)
    solver = ITERATE.estimator(link._config, replace(link._state.model, whitener=told))
    turn = solver.turn(0, R * (R - 1) // 2)
    return np.eye(R) if turn is None else turned(np.eye(R), turn)


def solver_run() -> tuple[wiretap.Wiretap, np.ndarray, np.ndarray]:
    """Return a run before a solver release, unit directions (one per subject), and the bits."""
    # The guarantee holds whatever was released before, so the adversary may choose it: V = I, and U
    # such that the matrix that is asked for, W turned by the dither, times U is I.  Subject (i, j)
    # has power in rows i and j only; its answer is past the clip, in entry (i, j).
    R, T = 20, 32
    pairs = list(combinations(range(R), 2))
    bits = coins(len(pairs))
    course = np.tile([1.0, -1.0], T // 2)
    matrices = []
    for sign, (i, j) in zip(bits, pairs, strict=True):
        Y = np.zeros((R, T), dtype=np.float32)
        strong, weak = (i, j) if sign < 0 else (j, i)
        Y[strong], Y[weak] = math.sqrt(0.9) * course, math.sqrt(0.1) * course
        matrices.append(Y)
    link = joint_ica(bits, matrices, n_components=R, shares="0.05,0.05,0.9").until("pca")
    for field, chosen in (
        ("subspace", lambda: {"V": np.eye(R)}),
        ("whitener", lambda: {"U": asked_matrix(link, R).T, "origin": np.eye(R), "gate": True}),
    ):
        link.exchange()
        body = replace(link._request.body, **chosen())
        link._request = replace(link._request, body=body)
        link._state = replace(link._state, model=replace(link._state.model, **{field: body}))
    assert link._state.cursor.phase == "iterate"
    return link, np.eye(len(pairs)), bits
