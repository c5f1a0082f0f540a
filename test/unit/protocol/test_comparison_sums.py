"""A comparison at the one door: planned integers, pairs, parts of sites, states as messages.

Belongs to `cape/protocol/secure_sum.py`.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cape.algorithms.answer import answers
from cape.algorithms.estimators import SubjectQuery
from cape.algorithms.regression import Regressed, Regression
from cape.computations import capecontrast
from cape.computations.capecontrast import CapeContrastConfig, regression_of
from cape.errors import MessageError, PrivacyBudgetError
from cape.privacy.cost import Event
from cape.privacy.mechanisms import plan_event, verify_event
from cape.protocol import wire
from cape.protocol.model import RosterEntry
from cape.protocol.plan import make_plan
from cape.protocol.secure_sum import clipped_sum, same_form

COUNTS = ((35, 25), (40, 50))


def asked(K: int, **question: str) -> tuple[CapeContrastConfig, tuple[RosterEntry, ...]]:
    config = CapeContrastConfig.from_input({
        "epsilon": 4.0, "delta": 1e-5, "variables": "dx control/SZ, age 18:90, sex F/M",
        "formula": "dx + age + sex", "public": "dx",
        "outcomes": ", ".join(f"v{k} 0:4" for k in range(K)), **question,
    })  # fmt: skip
    public = bool(config.asked.public)
    entries = [
        RosterEntry(site=f"site{s}", nonce="", n_subjects=sum(n), counts=n if public else ())
        for s, n in enumerate(COUNTS)
    ]
    return config, tuple(entries)


def rows(K: int, *, public: bool = True) -> list[np.ndarray]:
    """Rows of two sites: outcomes, cell, three coded columns, index of the site."""
    rng, sites = np.random.default_rng(4), []
    for s, (controls, cases) in enumerate(COUNTS):
        g = np.array([0] * controls + [1] * cases)
        x = np.column_stack([2 * g - 1, rng.uniform(-1, 1, len(g)) + 0.3 * g,
                             rng.choice([-1, 1], len(g))])  # fmt: skip
        u = rng.standard_normal((len(g), K)) + 0.5 * g[:, None]
        u[rng.random(u.shape) < 0.05] = np.nan
        cell, site = g if public else 0 * g, np.full(len(g), s)
        sites.append(np.column_stack([u, cell, x, site])[:, :, None].astype(np.float32))
    return sites


@pytest.mark.parametrize(
    ("K", "question"),
    [(1, {}), (6, {}), (12, {}), (2, {"public": ""}), (3, {"ask": "age, dx"}),
     (2, {"private": False})],
)  # fmt: skip
def test_planned_integers_of_all_looks_give_what_floats_give(K: int, question: Any) -> None:
    """Every look has a plan that sites verify, and its integers are sums of answers and parts."""
    config, entries = asked(K, **question)
    estimator = regression_of(config, entries, "contrast")
    plan = make_plan(config, capecontrast.stages(config, entries), n_sites=2, n_subjects=150)
    first = state = estimator.start(0)
    sites = rows(K, public=bool(config.asked.public))
    while not estimator.done(state):
        events = [event for event in plan if event.round == state.round + 1]
        means = []
        for event, query in zip(events, estimator.queries(state), strict=True):
            verify_event(event, query.clip)
            floats = sum(query.answer(site).sum(axis=0) for site in sites)
            if query.part is not None:
                floats = floats + sum(query.part(site) for site in sites)
            stacks = [[site] if query.unit == "pair" else [site[:30], site[30:]] for site in sites]
            found = sum(clipped_sum(stack, query, event) for stack in stacks) / event.gamma
            np.testing.assert_allclose(found, floats, atol=1e-3 + 1e-4 * np.abs(floats).max())
            means.append(found / 150)
        stds = [event.noise_std(2, 150) if event.private else 0.0 for event in events]
        state = estimator.steps(state, means, stds)
        assert same_form(first, state)
    sent = wire.decode(wire.encode(state, Regressed), Regressed)
    for one, other in zip(answers(estimator, state), answers(estimator, sent), strict=True):
        np.testing.assert_array_equal(one.cov, other.cov)
        assert np.all(np.isfinite(one.cov))


def with_part(K: int = 1, **question: str) -> tuple[Regression, SubjectQuery, Event]:
    """Return the contrast of a question, whose sites add a part, and its planned release."""
    config, entries = asked(K, **question)
    estimator = regression_of(config, entries, "contrast")
    state = estimator.start(0)
    while not estimator.done(state):
        queries = estimator.queries(state)
        for query in queries:
            if query.part is not None and query.size == K:
                event = plan_event(phase="", round=1, field="", shape="ball", size=K, clip=1.0,
                                   mu=1, shares=1)  # fmt: skip
                return estimator, query, event
        state = estimator.steps(state, [np.zeros(q.size) for q in queries], [0.01] * len(queries))
    raise AssertionError("no look has a part")


def test_a_smaller_clip_of_the_plan_shrinks_answers_and_part_alike() -> None:
    """Answers were cut where the part was not: one person moved their sum by 1.36 Delta_int."""

    def answer(stack: np.ndarray) -> np.ndarray:
        return stack[:, 0] * stack[:, 1]

    def part(stack: np.ndarray) -> np.ndarray:
        return -stack[:, 0].sum(axis=0) * stack[:, 1].mean(axis=0)

    query = SubjectQuery(size=1, clip=1.0, shape="ball", answer=answer, part=part)
    event = plan_event(phase="", round=1, field="", shape="ball", size=1, clip=1.0, mu=1, shares=1)
    clip_int = event.clip_int * 3 // 5
    smaller = replace(event, clip_int=clip_int, delta_int=2 * clip_int)
    verify_event(smaller, query.clip)

    def moved(w: float, planned: Event) -> int:
        sums = []
        for v in (-1.0, 1.0):
            site = np.tile(np.array([w, 0.3])[:, None], (400, 1, 1))
            site[0, :, 0] = (0.5, v)
            sums.append(int(clipped_sum([site], query, planned)[0]))
        return abs(sums[1] - sums[0])

    for w in (-0.5, -0.2, 0.0, 0.5):
        found, close = moved(w, smaller), {"rel": 0.02, "abs": 1e-2 * clip_int}
        assert found == pytest.approx((0.5 - w) * smaller.delta_int, **close)
        assert found <= smaller.delta_int
        # Of few integers a sum moves by more than its rounding allows.
        assert moved(w, replace(event, clip_int=20, delta_int=40)) <= 40


def test_a_part_counts_everybody_or_is_refused() -> None:
    """Who was left out made a site smaller: its spread moved by 22 Delta_int."""
    _, query, event = with_part()
    (site, _), nobody = rows(1), np.zeros((1, 6, 0), dtype=np.float32)
    assert clipped_sum([site], query, event).shape == (1,)
    with pytest.raises(PrivacyBudgetError, match="E233"):
        clipped_sum([site, nobody], query, event)
    for wrong in (np.full(query.size, np.nan), np.zeros(query.size + 1)):
        with pytest.raises(PrivacyBudgetError, match=r"E233 .* another form than planned"):
            clipped_sum([site], replace(query, part=lambda stack, wrong=wrong: wrong), event)


def test_a_state_of_another_form_asks_nobody() -> None:
    config, entries = asked(2)
    estimator = regression_of(config, entries, "contrast")
    state = estimator.start(0)
    for hostile in ({"values": state.values[:-1]}, {"noise": state.noise[1:]}, {"round": 99},
                    {"round": -1}, {"noise": state.noise + np.nan},
                    {"noise": state.noise - 1}):  # fmt: skip
        with pytest.raises(MessageError, match="E202"):
            estimator.queries(replace(state, **hostile))
