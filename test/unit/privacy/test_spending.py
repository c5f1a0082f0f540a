"""What a run costs the people in it, and how totals are compared with their limit."""

from __future__ import annotations

from fractions import Fraction

from cape.privacy.cost import FREE, INFINITE, Cost
from cape.privacy.spending import Spending
from support.spending import charge, run


def test_a_total_is_compared_with_its_limit_at_the_smallest_delta():
    spending = Spending(runs=(run(charges=(charge(1),)),))
    total = spending.of(spending.find("one"))
    assert (total.runs, total.delta) == (1, 1e-5)
    assert total.mu == 0.5
    assert total.within(total.epsilon)
    assert not total.within(total.epsilon * 0.999)
    more = total.plus(Cost(mu2=Fraction(3, 4)), delta=1e-8)
    assert (more.runs, more.mu, more.delta) == (2, 1.0, 1e-8)
    assert spending.find("another") is None


def test_a_run_that_promises_nothing_costs_infinity_once_it_was_charged():
    assert run(promised=False).cost == FREE
    charged = run(promised=False, charges=(charge(),))
    assert charged.cost == INFINITE
    total = Spending(runs=(charged,)).of(charged)
    assert (total.mu, total.epsilon, total.within(1e6)) == (None, None, False)
    assert total.plus(FREE, delta=1e-6).cost == INFINITE


def test_a_charge_is_known_by_its_round_and_rounded_up():
    one = charge(2, "1/9")
    assert one.key == ("pca", 2, "total")
    assert Cost(mu2=Fraction(1, 9)) <= one.cost
    assert one.cost.mu2 - Fraction(1, 9) < Fraction(1, 2**128)
