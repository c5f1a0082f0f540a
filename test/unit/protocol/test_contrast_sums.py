"""A comparison of groups at the one door: planned integers, parts of sites, states as messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cape.algorithms.contrast import Contrast, Contrasted, estimates
from cape.algorithms.group_design import Groups, weights
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
