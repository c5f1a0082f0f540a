"""How far one person moves the integers of every look: hostile people, exact distances.

A neighbouring site replaces one person inside a cell of site and group: outcomes and covariates are
others, r stays; in the strict form r is another, too.  docs/group-comparison.md, sections 4, 7, 8.
Belongs to `cape/algorithms/contrast.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import isqrt

import numpy as np
import pytest

from cape.algorithms import contrast
from cape.algorithms.contrast import R_STRICT, Contrast, Contrasted
from cape.algorithms.group_design import Groups
from cape.privacy.mechanisms import plan_event
from cape.protocol.secure_sum import clipped_sum

LARGEST = (2.5, 1.0, 2.0)
STRICT = Groups(people=np.array([40, 60]), cases=None)
PUBLIC = Groups(people=np.array([40, 60]), cases=np.array([20, 33]))


def question(K: int, **how: bool) -> Contrast:
    groups = STRICT if how.get("strict") else PUBLIC
    asked = Contrast(scales=(1.0,) * K, covariates=LARGEST, groups=groups, everybody=100, **how)
    return replace(asked, noise=(1e-3,) * len(asked.looks))


def some_state(asked: Contrast, look: str, rng: np.random.Generator) -> Contrasted:
    """Released values as they may be: any reach, any direction of the adjustment."""
    K, p = asked.n_outcomes, len(LARGEST)
    start = asked.start(0)
    gamma = rng.standard_normal(p)
    return replace(
        start,
        looks=[a.name for a in asked.looks].index(look),
        radius=float(rng.choice([0.5, 1.4, 5.0])),
        effects=0.3 * rng.standard_normal((p, K)),
        gamma=gamma / np.linalg.norm(gamma),
        lam=1.0,
        reach=float(rng.choice([0.0, 0.1, 0.3, 0.5])),
        total=rng.standard_normal(K) * 0.1,
        squares=np.full(K, float(rng.choice([0.01, 0.3]))),
    )


def hostile(asked: Contrast, state: Contrasted, rng: np.random.Generator, n: int) -> np.ndarray:
    """Return `n` people of one site, at corners or in the middle."""
    K, p = asked.n_outcomes, len(LARGEST)
    axis = rng.standard_normal(K) * (rng.random(K) < 0.5) + np.eye(K)[0]
    far = np.where(rng.random(n) < 0.8, 1e4, 10.0 ** rng.uniform(-3, 1, n))
    common = rng.choice([-1.0, 1.0])
    side = np.where(rng.random(n) < 0.9, common, rng.choice([-1.0, 1.0], n))
    u = (far * side)[:, None] * axis / np.linalg.norm(axis)
    if rng.random() < 0.5:
        u = u * rng.uniform(0, 1e-4)
    along = np.sign(state.gamma) * LARGEST * rng.choice([-1.0, 0.0, 1.0])
    x = np.where(rng.random((n, 1)) < 0.8, along, rng.uniform(-3, 3, (n, p)))
    if asked.strict:
        r = np.full(n, rng.choice([-0.5, 0.5, -0.29, 0.29, 0.0]))
    else:
        r = rng.choice([-0.5, 0.5]) * np.where(rng.random(n) < 0.5, 1.0, rng.uniform(-1, 1, n))
    return np.column_stack([u, x, r])


def neighbours(
    asked: Contrast, state: Contrasted, rng: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    n = int(rng.choice([1, 2, 30, 60]))
    rows = hostile(asked, state, rng, n)
    K, p = asked.n_outcomes, len(LARGEST)
    # The first person: each pair of corners of outcomes, covariates and, strict, of the question.
    direction = rows[-1, :K] if n > 1 else rows[0, :K]
    direction = direction / np.linalg.norm(direction)
    across = rng.standard_normal(K)
    across -= direction * (across @ direction)
    across /= max(np.linalg.norm(across), 1e-9)
    turned = [direction + s * R_STRICT * across for s in (-1.0, 1.0)]
    edge = direction * state.radius * 1.000001  # one who is hardly cut
    corners = [np.zeros(K), edge, *(1e6 * a for a in (direction, -direction, across, *turned))]
    covariates = [s * np.sign(state.gamma) * LARGEST for s in (-1.0, 0.0, 1.0)]
    covariates += [rng.choice([-1.0, 1.0], p) * LARGEST for _ in range(3)]
    questions = [-0.5, 0.5, -0.3, 0.3] if asked.strict else [rows[0, -1]]
    people = []
    for _ in range(16):
        one = rows[0].copy()
        one[:K] = corners[rng.integers(len(corners))]
        one[K : K + p] = covariates[rng.integers(len(covariates))]
        one[-1] = questions[rng.integers(len(questions))]
        if rng.random() < 0.05:
            one[0] = np.nan  # no outcome
        people.append(np.vstack([one, rows[1:]]))
    for first in people:
        for second in people:
            yield first, second


def nearest(asked: Contrast, look: str, seeds: range) -> float:
    """Return the largest distance found, over the bound; AssertionError if it is passed."""
    best = 0
    for seed in seeds:
        rng = np.random.default_rng([seed, asked.n_outcomes])
        state = some_state(asked, look, rng)
        query = asked.query(state)
        event = plan_event(phase="p", round=1, field="f", shape=query.shape, size=query.size,
                           clip=query.clip, mu=0.2, shares=3)  # fmt: skip
        sums: dict[int, list[int]] = {}
        for first, second in neighbours(asked, state, rng):
            pair = []
            for site in (first, second):
                if id(site) not in sums:
                    found = clipped_sum([site[:, None, :]], query, event)
                    sums[id(site)] = [int(value) for value in found]
                pair.append(sums[id(site)])
            distance = sum((a - b) ** 2 for a, b in zip(*pair, strict=True))
            assert distance <= event.delta_int**2, (look, seed)
            best = max(best, isqrt(distance * 10**12 // event.delta_int**2))
    return best / 10**6


# How near hostile people come to the bound: it is not larger than it must be.
LOOKS = [
    (1, {}, "scale", 0.99), (1, {}, "centre", 0.99), (1, {}, "imbalance", 0.99),
    (1, {}, "moments", 0.98), (1, {}, "slope", 0.99), (1, {}, "effects", 0.99),
    (1, {}, "contrast", 0.97), (1, {}, "kappa", 0.99), (1, {}, "squares", 0.99),
    (1, {"random": True, "found": True}, "spread", 0.7),
    (5, {}, "centre", 0.99), (5, {}, "contrast", 0.97), (5, {}, "pull", 0.9),
    (5, {}, "squares", 0.97), (12, {}, "contrast", 0.97), (12, {}, "pull", 0.8),
    (70, {}, "pull", 0.99), (70, {}, "contrast", 0.97),
    (1, {"strict": True}, "imbalance", 0.96), (1, {"strict": True}, "separation", 0.95),
    (1, {"strict": True}, "contrast", 0.97), (3, {"strict": True}, "contrast", 0.96),
]  # fmt: skip


@pytest.mark.parametrize(("K", "how", "look", "near"), LOOKS)
def test_one_person_moves_the_integers_of_a_look_by_its_bound_at_most(
    K: int, how: dict[str, bool], look: str, near: float
) -> None:
    found = nearest(question(K, **how), look, range(60))
    assert near <= found <= 1.0, f"{found:.3f} of the bound"


def test_factors_of_the_strict_form_are_the_largest_over_all_angles() -> None:
    """Section 7: an earlier bound gave 1 + R + Y = 2.2: nobody moves both parts at once."""
    t, R, Y = np.linspace(0, np.pi / 2, 100_001), contrast.R_STRICT, contrast.Y_STRICT
    along, across = 2 * (np.cos(t) + Y), R * np.sin(t)
    largest = float(np.max(np.hypot(along, across) + across)) / 2
    assert largest <= contrast.STRICT_MORE <= 1.01 * largest
    assert contrast.STRICT_ONE == 1 + max(R, Y)
