"""What a run costs the people in it, and how totals add up."""

from dataclasses import replace
from fractions import Fraction

from cape.privacy.cost import FREE, INFINITE, Cost
from cape.privacy.spending import Spending
from support.spending import charge, run


def test_a_total_is_that_of_all_runs_at_the_smallest_of_their_deltas():
    spending = Spending(runs=(run(charges=(charge(1),)),))
    total = spending.of(spending.find("one"))
    assert (total.runs, total.delta) == (1, 1e-5)
    assert total.mu == 0.5
    other = run("two", delta=1e-8, charges=(charge(1, "3/4"),))
    more = Spending(runs=(*spending.runs, other)).of(other)
    assert (more.runs, more.mu, more.delta) == (2, 1.0, 1e-8)
    assert spending.find("another") is None


def test_a_run_that_promises_nothing_costs_infinity_once_it_was_charged():
    assert run(promised=False).cost == FREE
    charged = run(promised=False, charges=(charge(),))
    assert charged.cost == INFINITE
    total = Spending(runs=(charged,)).of(charged)
    assert (total.mu, total.epsilon) == (None, None)
    other = Spending(runs=(charged, run("two"))).of(run("two"))
    assert other.cost == INFINITE


def test_a_run_holds_its_plan_as_long_as_it_is_open():
    plan = Cost(mu2=Fraction(1))
    for state, held in (("asked", "1/4"), ("held", "1"), ("yielded", "1/4"), ("finished", "1/4")):
        one = run(state=state, plan=plan, charges=(charge(),))
        assert one.held == Cost(mu2=Fraction(held))
    past = run(state="held", plan=plan, charges=(charge(1, "2"),))
    assert past.held == past.cost  # never less than what is gone


def test_a_charge_is_known_by_its_round_and_rounded_up():
    one = charge(2, "1/9")
    assert one.key == ("pca", 2, "total")
    assert Cost(mu2=Fraction(1, 9)) <= one.cost
    assert one.cost.mu2 - Fraction(1, 9) < Fraction(1, 2**128)


def test_a_run_of_halves_counts_for_everybody_as_its_dearer_half():
    """Halves of another run are others: who was in A here may be in B there."""
    charges = (charge(1, "1/2"), charge(2, "1/4", part="A"), charge(3, "1/8", part="B"))
    one, two = run("one", charges=charges), run("two", charges=charges)
    assert one.cost == Cost(mu2=Fraction(3, 4))
    assert one.cost_with(charge(4, "1/8", part="B")) == one.cost
    assert one.cost_with(charge(4, "1/4", part="B")) == Cost(mu2=Fraction(7, 8))
    assert Spending(runs=(one, two)).of(one).cost == Cost(mu2=Fraction(3, 2))


def test_a_run_is_shown_by_the_name_that_everybody_knows_once_there_is_one():
    assert run("a1b2").shown == "a1b2"
    assert replace(run("a1b2"), name="c3d4").shown == "c3d4"
