"""All accountants at the papers' settings, digit by digit, and against one another."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from cape.errors import ConfigError
from cape.papers.accountants import (
    ACCOUNTANTS,
    NoiseSharers,
    Releases,
    classic_epsilon,
    compare_accountants,
    moments_epsilon,
    moments_epsilon_printed,
    rdp_epsilon,
    strong_composition,
    tail_delta,
    tail_epsilon,
)
from cape.papers.correlated import printed_factor, view_factor
from cape.privacy.accounting import gdp_delta, gdp_epsilon
from cape.privacy.cost import INFINITE, Cost

SIGMA = 6.2150229201845  # classic noise of (epsilon_i, delta_i) = (0.5, 0.01)
ROUNDS = (1, 100, 200, 1000)
COLUMNS = ("gdp", "rdp")
TABLE = {  # name: f, mu of a round, then for every column the totals at J = 1, 100, 200, 1000
    "outsider": (
        1, 0.22754760208,
        "0.835562541 11.7332304 18.2684376 55.7942911",
        "1.11778202 13.5078262 20.6194909 60.4176461",
    ),
    "CAPE, S_C 1": (
        Fraction(28, 15), 0.31088921006,
        "1.17708436 17.4650548 27.7199644 89.4256229",
        "1.54013598 19.7507044 30.7625885 95.5012226",
    ),
}  # fmt: skip
MUS = (0.02, 0.2, 1.0, 3.7, 12.0)
DELTAS = (1e-2, 1e-5, 1e-9)


def paper_run(f, rounds, sites=None):
    return Releases.repeated(math.sqrt(2 * f) / SIGMA, rounds=rounds, per_round=2, sites=sites)


@pytest.mark.parametrize("view", TABLE)
@pytest.mark.parametrize(("i", "rounds"), [*enumerate(ROUNDS)])
def test_every_total_of_the_table_is_reproduced_at_its_printed_digits(view, i, rounds):
    f, mu_round, *columns = TABLE[view]
    run = paper_run(f, rounds)
    assert run.mu == pytest.approx(mu_round * math.sqrt(rounds), rel=1e-10)
    assert run.count == 2 * rounds
    for name, column in zip(COLUMNS, columns, strict=True):
        text = column.split()[i]
        last_digit = 10.0 ** -len(text.split(".")[1])  # some entries are rounded up
        total = ACCOUNTANTS[name].total(run, 1e-5)
        assert total.epsilon == pytest.approx(float(text), abs=last_digit)
        assert total.delta == 1e-5


def test_the_moments_quadratic_is_rdp_when_its_sign_is_right():
    for mu, delta in itertools.product(MUS, DELTAS):
        assert moments_epsilon(mu, delta) == pytest.approx(rdp_epsilon(mu, delta), rel=1e-12)
        e = moments_epsilon(mu, delta)
        assert e**2 / (2 * mu**2) - e / 2 + mu**2 / 8 + math.log(delta) == pytest.approx(
            0.0, abs=1e-9 * (1 + e)
        )
        e = moments_epsilon_printed(mu, delta)
        assert e**2 / (2 * mu**2) - e + mu**2 / 8 + math.log(delta) == pytest.approx(
            0.0, abs=1e-9 * (1 + e)
        )


def test_rdp_is_its_best_order():
    for mu, delta in itertools.product(MUS, DELTAS):
        a = 1 + np.geomspace(1e-6, 1e5, 400_001)
        simple = a * mu**2 / 2 - math.log(delta) / (a - 1)
        assert float(simple.min()) == pytest.approx(rdp_epsilon(mu, delta), rel=1e-6)


def test_strong_composition_says_nothing_as_the_papers_set_it():
    run = paper_run(1, 1000)
    e = classic_epsilon(run.mu / math.sqrt(2000), 0.01)
    assert e == pytest.approx(0.5, rel=1e-12)
    assert strong_composition([(e, 2000)], slack=1e-5) == pytest.approx(756.01957, abs=5.1e-6)
    found = ACCOUNTANTS["strong-printed"].total(paper_run(1, 10), 1e-5)
    assert found.epsilon == pytest.approx(
        0.5 * math.sqrt(40 * math.log(1e5)) + 10 * math.expm1(0.5)
    )
    assert found.delta == pytest.approx(0.20001)


@pytest.mark.parametrize(
    ("rounds", "epsilon"), [(1, 5.468826863), (100, 241.3603634), (1000, 2485.959668)]
)
def test_strong_composition_with_its_delta_split(rounds, epsilon):
    assert ACCOUNTANTS["strong"].total(paper_run(1, rounds), 1e-5).epsilon == pytest.approx(
        epsilon, rel=3e-10
    )


FIGURE_6 = [  # J, exact, RDP, moments printed (3 digits)
    (1, 15.456156, 17.572281, 23.2),
    (10, 77.330091, 82.919321, 161),
    (100, 519.698194, 535.722809, 1506),
    (1000, 4380.486576, 4429.193205, 14941),
]


@pytest.mark.parametrize(("rounds", "exact", "rdp", "printed"), FIGURE_6)
def test_figure_6_has_these_values(rounds, exact, rdp, printed):
    run = Releases.repeated(math.sqrt(8), rounds=rounds, per_round=2)
    assert ACCOUNTANTS["gdp"].total(run, 1e-5).epsilon == pytest.approx(exact, abs=5.1e-7)
    assert ACCOUNTANTS["rdp"].total(run, 1e-5).epsilon == pytest.approx(rdp, abs=1e-6)
    assert ACCOUNTANTS["moments"].total(run, 1e-5).epsilon == pytest.approx(rdp, abs=1e-6)
    found = ACCOUNTANTS["moments-printed"].total(run, 1e-5).epsilon
    assert found == pytest.approx(printed, rel=4e-3)


def one(mu, sites=None):
    return Releases.repeated(mu, rounds=1, sites=sites)


def test_the_tail_bound_is_valid_and_loose():
    four = {"n_sites": 4, "colluders": 1}
    for mu, delta in itertools.product(MUS, DELTAS):
        epsilon = tail_epsilon(mu, delta)
        assert tail_delta(epsilon, mu) == pytest.approx(delta, rel=1e-9)
        assert gdp_delta(epsilon=epsilon, mu=mu) < delta
    assert tail_delta(0.5, 1.0) == tail_delta(0.1, 1.0) == 1.0
    assert tail_delta(0.500001, 1.0) == 1.0
    # One release of (0.5, 0.01) at S = 4, S_C = 1, epsilon 0.5.
    right = math.sqrt(view_factor(**four, ratio=4)) / SIGMA
    printed = math.sqrt(printed_factor(**four)) / SIGMA
    assert gdp_delta(epsilon=0.5, mu=right) == pytest.approx(1.1080522e-3, rel=1e-7)
    assert tail_delta(0.5, right) == pytest.approx(3.5414249e-2, rel=1e-7)
    assert tail_delta(0.5, printed) == pytest.approx(1.5672894e-2, rel=1e-7)


def sites(n_sites, colluders, ratio):
    f = view_factor(n_sites=n_sites, colluders=colluders, ratio=ratio)
    return NoiseSharers(n_sites=n_sites, colluders=colluders, factor=f)


def test_theorem_1_as_printed_takes_its_own_mu_and_is_caught():
    who = sites(4, 1, 4)
    found = ACCOUNTANTS["theorem-1-printed"].total(paper_run(Fraction(28, 15), 1000, who), 1e-5)
    assert found.epsilon == pytest.approx(76.855689, abs=5.1e-7)
    who = sites(8, 2, 8)
    run = one(math.sqrt(who.factor) / SIGMA, who)
    row = {row.accountant.name: row for row in compare_accountants(run, delta=1e-5)}[
        "theorem-1-printed"
    ]
    assert row.total.epsilon == pytest.approx(0.8205, abs=5.1e-5)
    assert row.exact == pytest.approx(0.8524, abs=5.1e-5)
    assert row.holds is False
    who = sites(4, 1, 4)  # at this delta it is false from four sites on
    run = one(math.sqrt(who.factor) / SIGMA, who)
    row = {row.accountant.name: row for row in compare_accountants(run, delta=1e-9)}[
        "theorem-1-printed"
    ]
    assert row.total.epsilon == pytest.approx(1.2135, abs=5.1e-5)
    assert row.exact == pytest.approx(1.2192, abs=5.1e-5)


@pytest.mark.parametrize("who", [None, sites(10, 8, 10), sites(3, 2, 3)])
def test_theorem_1_as_printed_says_nothing_without_sites_or_with_a_senseless_factor(who):
    row = {row.accountant.name: row for row in compare_accountants(one(0.3, who), delta=1e-5)}
    found = row["theorem-1-printed"]
    assert (found.total.epsilon, found.exact, found.holds) == (None, None, None)


def test_the_papers_epsilon_of_a_release_is_that_against_outsiders():
    who = sites(4, 1, 4)
    found = ACCOUNTANTS["theorem-2"].total(paper_run(who.factor, 10, who), 1e-5)
    assert found.epsilon == pytest.approx(20 * 0.5, rel=1e-9)


def test_only_the_known_wrong_accountants_ever_understate():
    """Theorem 2 and the printed strong composition inherit what the classic calibration claims."""
    wrong = {"theorem-2", "strong-printed"}
    for mu, delta, rounds in itertools.product(MUS, DELTAS, (1, 7)):
        releases = Releases.repeated(mu, rounds=rounds, per_round=2)
        for row in compare_accountants(releases, delta=delta):
            loud = classic_epsilon(mu, 0.01) > 1.0
            assert row.holds is not False or (loud and row.accountant.name in wrong), row


def test_the_exact_figure_is_below_all_valid_ones():
    for mu in MUS:
        rows = {row.accountant.name: row for row in compare_accountants(one(mu), delta=1e-5)}
        exact = rows["gdp"].total.epsilon
        assert exact == gdp_epsilon(mu=mu, delta=1e-5)
        assert exact <= min(rows[name].total.epsilon for name in ("rdp", "moments-printed"))


def test_a_loud_release_overflows_nothing():
    found = {
        row.accountant.name: row.total.epsilon
        for row in compare_accountants(one(200.0), delta=1e-5)
    }
    assert found["strong"] is None
    assert strong_composition([(701.0, 1)], slack=0.1) == math.inf
    assert found["gdp"] == pytest.approx(gdp_epsilon(mu=200.0, delta=1e-5))


def test_releases_are_summed():
    run = Releases.of(Cost(mu2=Fraction(1, n)) for n in (3, 6, 2))
    assert float(run.mu2) == pytest.approx(1.0, rel=1e-15)
    assert run.mu2 >= 1
    assert run.mu >= 1.0
    with pytest.raises(ConfigError, match="positive mu"):
        Releases.of([INFINITE])


def test_every_accountant_has_a_name_of_its_own_and_one_line():
    for accountant in ACCOUNTANTS.values():
        assert "\n" not in accountant.assumes
        assert 20 < len(accountant.assumes) < 95


def test_nothing_is_lost_without_any_noise_worth_naming():
    for formula in (rdp_epsilon, moments_epsilon, moments_epsilon_printed, tail_epsilon,
                    classic_epsilon):  # fmt: skip
        assert formula(0.0, 1e-5) == 0.0


REFUSED = {
    "delta 0": lambda: rdp_epsilon(1.0, 0.0),
    "delta 1": lambda: compare_accountants(one(1.0), delta=1.0),
    "mu negative": lambda: moments_epsilon(-1.0, 1e-5),
    "mu infinite": lambda: tail_epsilon(math.inf, 1e-5),
    "mu 0 in the tail": lambda: tail_delta(1.0, 0.0),
    "delta of a release": lambda: Releases(groups=((Fraction(1), 1),), release_delta=1.0),
    "mu of a round": lambda: Releases.repeated(math.nan, rounds=1),
    "rounds": lambda: Releases.repeated(1.0, rounds=0),
    "releases per round": lambda: Releases.repeated(1.0, rounds=1, per_round=0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_argument_is_refused_with_what_is_allowed(name):
    with pytest.raises(ConfigError, match="allowed"):
        REFUSED[name]()


@pytest.mark.parametrize("groups", [(), ((Fraction(0), 1),), ((Fraction(1), 0),)])
def test_no_releases_are_refused(groups):
    with pytest.raises(ConfigError, match="no releases"):
        Releases(groups=groups)
