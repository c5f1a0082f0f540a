"""A comparison of groups at the one door: planned integers, parts of sites, states as messages.

Belongs to `cape/protocol/secure_sum.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cape.algorithms.contrast import Contrast, Contrasted, estimates
from cape.algorithms.group_design import Groups, weights
from cape.errors import MessageError, PrivacyBudgetError
from cape.privacy.accounting import gdp_mu
from cape.privacy.mechanisms import plan_event, verify_event
from cape.protocol import wire
from cape.protocol.secure_sum import clipped_sum, same_form

GROUPS = Groups(people=np.array([60, 90]), cases=np.array([25, 50]))


def people(K: int) -> list[np.ndarray]:
    rng, sites = np.random.default_rng(4), []
    assert GROUPS.cases is not None
    for n, cases in zip(GROUPS.people, GROUPS.cases, strict=True):
        case = np.array([1] * cases + [0] * (n - cases))
        x = rng.uniform(-1, 1, (n, 3)) + 0.4 * case[:, None]
        u = rng.standard_normal((n, K)) + 0.5 * case[:, None]
        rows = np.column_stack([u, x, weights(case)])
        sites.append(rows[:, :, None].astype(np.float32))
    return sites


@pytest.mark.parametrize(
    ("K", "how"),
    [(1, {}), (6, {}), (12, {}), (70, {}), (1, {"found": True, "random": True}),
     (2, {"strict": True})],
)  # fmt: skip
def test_planned_integers_of_all_looks_give_what_floats_give(K: int, how: dict[str, bool]) -> None:
    """Every look has a plan that sites verify, and its integers are sums of answers and parts."""
    asked = Contrast(
        scales=(1.0,) * K, covariates=(2.0, 2.0, 2.0), groups=GROUPS, everybody=150, **how
    )
    mu = gdp_mu(epsilon=1.0, delta=1e-5)
    events = [
        plan_event(phase="contrast", round=i, field="total", shape=look.shape, size=look.size,
                   clip=look.clip, mu=mu * look.weight**0.5, shares=1)
        for i, look in enumerate(asked.schedule(0))
    ]  # fmt: skip
    asked = replace(asked, noise=tuple(event.noise_std(2, 150) for event in events))
    first = state = asked.start(0)
    sites = people(K)
    for event in events:
        query = asked.query(state)
        verify_event(event, query.clip)
        floats = sum(query.answer(site).sum(axis=0) for site in sites)
        if query.part is not None:
            floats = floats + sum(query.part(site) for site in sites)
        integers = sum(clipped_sum([site[:30], site[30:]], query, event) for site in sites)
        found = integers / event.gamma
        np.testing.assert_allclose(found, floats, atol=1e-3 + 1e-4 * np.abs(floats).max())
        state = asked.step(state, found / 150, event.noise_std(2, 150))
        assert same_form(first, state)
    assert asked.done(state)
    sent = wire.decode(wire.encode(state, Contrasted), Contrasted)
    one, other = estimates(asked, state), estimates(asked, sent)
    np.testing.assert_array_equal(one.se, other.se)
    assert np.all(np.isfinite(one.p_holm))


PEOPLE = np.zeros((40, 5, 1), dtype=np.float32)
PEOPLE[:, 2:, 0] = (0.5, 0.5, 0.3)


def at(look: str, **how: Any) -> tuple[Contrast, Contrasted]:
    asked = Contrast(scales=(1.0, 1.0), covariates=(2.0, 2.0), groups=GROUPS, everybody=150)
    place = [one.name for one in asked.looks].index(look)
    known: dict[str, Any] = {"reach": 0.2, "lam": 1.0, "gamma": np.ones(2)}
    return asked, replace(asked.start(0), looks=place, **(known | how))


@pytest.mark.parametrize(
    "hostile",
    [{"reach": -0.357142}, {"reach": 0.6}, {"reach": np.nan}, {"radius": 5e-324}, {"lam": np.inf},
     {"gamma": np.array([1.0, np.nan])}, {"looks": 99}],
)  # fmt: skip
def test_a_state_that_no_release_gives_asks_nobody(hostile: dict[str, Any]) -> None:
    """A negative reach, sent by the aggregator, made the bound 0: a part 80,000 times too large."""
    asked, state = at("contrast")
    asked.query(state)
    with pytest.raises(MessageError, match="E202"):
        asked.query(replace(state, **hostile))


def test_a_smaller_clip_of_the_plan_shrinks_answers_and_part_alike() -> None:
    """Answers were cut where the part was not: one person moved their sum by 1.36 Delta_int."""
    asked = Contrast(scales=(1.0,), covariates=(), groups=GROUPS, everybody=150, strict=True)
    place = [one.name for one in asked.looks].index("contrast")
    query = asked.query(replace(asked.start(0), looks=place))
    event = plan_event(phase="", round=1, field="", shape="ball", size=1, clip=1.0, mu=1, shares=1)
    clip_int = event.clip_int * 3 // 5
    smaller = replace(event, clip_int=clip_int, delta_int=2 * clip_int)
    verify_event(smaller, query.clip)
    most, ends = 0, [(u, r) for u in (-1.0, 1.0) for r in (-0.5, 0.5)]
    for u, r in ((u, r) for u in (-0.6, -0.3, 0.3, 0.6) for r in (-0.3, -0.15, 0.15, 0.3)):
        sums = []
        for one in ends:
            rows = np.tile(np.array([u, r], dtype=np.float32)[:, None], (60, 1, 1))
            rows[0, :, 0] = one
            sums.append(int(clipped_sum([rows], query, smaller)[0]))
        most = max(most, max(sums) - min(sums))
    assert 0.8 * smaller.delta_int < most <= smaller.delta_int


def test_a_part_counts_everybody_or_is_refused() -> None:
    """Who was left out made a site smaller: its spread moved by 22 Delta_int."""
    asked, state = at("contrast")
    event = plan_event(phase="", round=1, field="", shape="ball", size=2, clip=1.0, mu=1, shares=1)
    nobody = np.zeros((1, 5, 0), dtype=np.float32)
    with pytest.raises(PrivacyBudgetError, match="E233"):
        clipped_sum([PEOPLE, nobody], asked.query(state), event)
