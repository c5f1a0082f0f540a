"""The one type for mu squared: what it adds, compares, shows and refuses."""

import math
from fractions import Fraction
from types import SimpleNamespace

import pytest

from cape.privacy.accounting import gdp_epsilon, root_up
from cape.privacy.cost import FREE, INFINITE, Cost, all_within, fits, total_cost, total_of

THIRD = Cost(mu2=Fraction(1, 3))
HALF = Cost(mu2=Fraction(1, 2))


def test_costs_add_exactly_and_infinity_absorbs():
    assert THIRD + HALF == Cost(mu2=Fraction(5, 6))
    assert THIRD + FREE == THIRD
    assert THIRD + INFINITE == INFINITE + THIRD == INFINITE


def test_what_is_left_is_never_below_nothing():
    assert HALF - THIRD == Cost(mu2=Fraction(1, 6))
    assert THIRD - HALF == FREE
    assert INFINITE - HALF == INFINITE
    assert HALF - INFINITE == FREE


def test_costs_are_ordered_with_infinity_above_all():
    assert THIRD <= HALF
    assert not HALF <= THIRD
    assert THIRD <= INFINITE
    assert INFINITE <= INFINITE
    assert not INFINITE <= THIRD


@pytest.mark.parametrize("cost", [THIRD, HALF, Cost(mu2=Fraction(7)), INFINITE])
def test_a_cost_is_read_as_it_is_written(cost):
    assert Cost.parse(str(cost)) == cost


def test_the_written_form_stays_readable():
    assert [str(cost) for cost in (THIRD, Cost(mu2=Fraction(4)), INFINITE)] == [
        "1/3", "4/1", "infinite"
    ]  # fmt: skip
    assert Cost.parse("2/6") == THIRD
    assert Cost.parse("3") == Cost(mu2=Fraction(3))


@pytest.mark.parametrize("text", ["", "0", "0/5", "-1/3", "1e9999999", "1.5", "1/3 ", "inf", "1/"])
def test_a_text_that_is_no_positive_fraction_is_refused(text):
    with pytest.raises(ValueError, match="mu2"):
        Cost.parse(text)


def test_a_fraction_over_nothing_is_refused():
    with pytest.raises(ZeroDivisionError):
        Cost.parse("1/0")


def test_mu_and_epsilon_are_rounded_up_and_none_without_noise():
    assert Cost.of_mu(0.1).mu() == 0.1
    assert THIRD.mu() == root_up(Fraction(1, 3))
    assert Fraction(THIRD.mu()) ** 2 >= Fraction(1, 3)
    assert THIRD.epsilon(1e-5) == gdp_epsilon(mu=THIRD.mu(), delta=1e-5)
    assert (INFINITE.mu(), INFINITE.epsilon(1e-5)) == (None, None)


def test_without_noise_no_view_is_better():
    assert INFINITE.if_unknown(2, noise_shares=3) == INFINITE


def test_a_total_is_rounded_up_by_less_than_its_last_unit():
    exact = sum([THIRD] * 7, FREE)
    for bits in (4, 128, 256):
        rounded = total_cost([THIRD] * 7, bits=bits)
        assert 0 < rounded.mu2 - exact.mu2 < 7 * Fraction(1, 2**bits)
        assert rounded.mu2 * 2**bits == int(rounded.mu2 * 2**bits)
    assert total_cost([HALF, HALF]) == Cost.of_mu(1.0)
    assert total_cost([THIRD, INFINITE, HALF]) == INFINITE
    assert total_cost([]) == FREE


def test_what_fits_is_decided_exactly_where_rounding_cannot():
    one = Cost(mu2=Fraction(1))
    assert fits([THIRD] * 3, one)  # rounded up it would be too much
    assert not fits([THIRD] * 3 + [Cost(mu2=Fraction(1, 2**900))], one)
    assert not fits([one, HALF], one)
    assert fits([HALF], one)
    assert fits([], FREE)
    assert fits([INFINITE], INFINITE)
    assert fits([HALF], INFINITE)
    assert not fits([INFINITE], one)


def test_a_huge_and_a_tiny_mu_are_squared_without_loss():
    for mu in (1e-150, 1e150):
        assert math.isclose(Cost.of_mu(mu).mu(), mu, rel_tol=1e-15)
        assert Cost.of_mu(mu).mu2 == Fraction(mu) ** 2


@pytest.mark.parametrize(
    ("asked", "mu2"),
    [
        ([("", "1/2"), ("A", "1/3"), ("A", "1/5"), ("B", "1/2")], "31/30"),  # 1/2 + max(8/15, 1/2)
        ([("A", "1/3"), ("B", "1/2")], "1/2"),
        ([("A", "1/3")], "1/3"),  # the other half was asked nothing
        ([("", "1/3"), ("", "1/2")], "5/6"),
        ([], "0"),
    ],
)
def test_a_person_bears_what_all_are_asked_and_what_her_half_is(asked, mu2):
    """Formula of the design: sum of "" + max(sum of A, sum of B)."""
    releases = [SimpleNamespace(part=part, cost=Cost(mu2=Fraction(text))) for part, text in asked]
    exact = Fraction(mu2)
    assert 0 <= total_of(releases).mu2 - exact < Fraction(len(asked) + 1, 2**256)
    assert all_within(releases, Cost(mu2=exact))
    if exact:
        assert not all_within(releases, Cost(mu2=exact - Fraction(1, 2**900)))


def test_a_half_without_noise_costs_infinity():
    releases = [
        SimpleNamespace(part=part, cost=cost) for part, cost in [("A", HALF), ("B", INFINITE)]
    ]
    assert total_of(releases) == INFINITE
    assert not all_within(releases, HALF)
