"""Sensitivity and budget hold for whatever settings and subjects come along, in exact integers."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cape.errors import PrivacyBudgetError
from cape.privacy.accounting import gdp_delta, gdp_epsilon, gdp_mu
from cape.privacy.cost import FREE, Event, total_cost
from cape.privacy.ledger import Budget, Ledger
from cape.privacy.mechanisms import integer_sensitivity, plan_event, verify_event


@st.composite
def svec_pairs(draw):
    """Two PSD matrices of Frobenius norm up to 1 as svec vectors, and a scale."""
    n = draw(st.integers(1, 6))
    entries = st.floats(-1, 1, allow_subnormal=False)
    vectors = []
    for _ in range(2):
        rank = draw(st.integers(1, n))
        root = np.array(draw(st.lists(entries, min_size=n * rank, max_size=n * rank)))
        matrix = root.reshape(n, rank) @ root.reshape(n, rank).T
        norm = np.linalg.norm(matrix)
        matrix = matrix / norm if norm > 1e-12 else matrix * 0
        upper = np.triu_indices(n, 1)
        vectors.append(np.concatenate([np.diag(matrix), np.sqrt(2) * matrix[upper]]))
    return vectors[0], vectors[1], draw(st.integers(3, 2**20))


@given(svec_pairs())
@settings(max_examples=300, deadline=None)
def test_rounded_psd_vectors_stay_within_their_integer_sensitivity(case):
    first, second, clip_int = case
    size = first.size
    inner = clip_int - np.sqrt(size) / 2 - 1
    if inner <= 0:
        return
    u, v = (np.rint(inner * vector).astype(np.int64).tolist() for vector in (first, second))
    assert sum(x * x for x in u) <= clip_int**2
    distance2 = sum((x - y) ** 2 for x, y in zip(u, v, strict=True))
    assert distance2 <= integer_sensitivity("psd", clip_int, size) ** 2
    assert distance2 <= integer_sensitivity("ball", clip_int, size) ** 2


@given(
    shape=st.sampled_from(["ball", "psd"]),
    size=st.integers(1, 100_000),
    clip=st.floats(1e-6, 4096),
    mu=st.floats(1e-3, 5),
    shares=st.integers(1, 30),
)
@settings(max_examples=200, deadline=None)
def test_a_planned_release_never_costs_more_than_it_was_allowed(shape, size, clip, mu, shares):
    event = plan_event(
        phase="p", round=1, field="f", shape=shape, size=size, clip=clip, mu=mu, shares=shares
    )
    verify_event(event, clip)
    assert event.cost.mu2 <= Fraction(mu) ** 2
    assert event.cost.mu2 >= Fraction(mu) ** 2 * Fraction(999_999, 1_000_000)
    assert Fraction(event.clip_int) <= Fraction(clip) * Fraction(2) ** event.log2_gamma


@given(
    st.lists(
        st.builds(
            Event,
            phase=st.just("p"),
            round=st.integers(1, 20),
            field=st.just("f"),
            shape=st.just("ball"),
            size=st.just(1),
            log2_gamma=st.just(0),
            clip_int=st.just(1),
            delta_int=st.integers(1, 2**20),
            variance=st.integers(2**40, 2**46),
            shares=st.integers(1, 5),
        ),
        max_size=25,
    )
)
@settings(max_examples=100, deadline=None)
def test_a_ledger_only_grows_never_passes_its_budget(events):
    ledger = Ledger(budget=Budget.of(epsilon=1.0, delta=1e-5))
    for event in events:
        before = ledger.spent
        try:
            after = ledger.charge(event)
        except PrivacyBudgetError:
            assert ledger.spent == before
            continue
        assert after.events[:-1] == ledger.events
        assert after.spent == total_cost((before, event.cost))
        exact = sum((one.cost for one in after.events), FREE)
        assert exact <= after.spent
        assert exact <= ledger.budget.cost
        assert ledger.spent == before
        assert after.epsilon_spent() >= ledger.epsilon_spent()
        ledger = after


@given(mu=st.floats(1e-3, 90), exponent=st.floats(2, 15))
@settings(max_examples=100, deadline=None)
def test_epsilon_and_mu_are_inverse_to_each_other(mu, exponent):
    delta = 10.0**-exponent
    epsilon = gdp_epsilon(mu=mu, delta=delta)
    assert gdp_delta(epsilon=epsilon, mu=mu) <= delta
    if epsilon > 1e-3:
        back = gdp_mu(epsilon=epsilon, delta=delta)
        assert abs(back - mu) <= 1e-9 * mu
