import math
from fractions import Fraction
from statistics import NormalDist

import mpmath
import pytest

from cape.errors import CapeWarning, ConfigError
from cape.privacy.accounting import (
    check_delta,
    display_epsilon,
    display_guesses,
    display_left,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    right_guesses,
    root_up,
)
from cape.privacy.cost import Cost, total_cost
from cape.privacy.mechanisms import lattice_slack, plan_event, plan_event_without_noise

EPSILON = [  # mu, epsilon at delta 1e-5, 1e-8, 1e-12 (60 digits of mpmath)
    (0.05, 0.1600420344581, 0.2385780902644, 0.3171057668033),
    (0.1, 0.3406693646843, 0.4928503653552, 0.647008125925),
    (0.2, 0.7255217508578, 1.021170615024, 1.324111143165),
    (0.5, 1.993091404415, 2.707606334223, 3.449052150483),
    (1, 4.377178095681, 5.77609838289, 7.238494420179),
    (2, 9.997256146434, 12.74924639964, 15.64112577946),
    (4, 24.38161088311, 29.8248580352, 35.56208275049),
    (8, 65.31921988849, 76.13954209407, 87.55928430809),
]
MU = [  # epsilon, mu at delta 1e-5, 1e-6, 1e-8
    (0.1, 0.0325207840562, 0.02754465024383, 0.02176877373826),
    (0.5, 0.1422105586693, 0.1241061490305, 0.1013835427206),
    (1, 0.2680511232113, 0.2367043806634, 0.196066560214),
    (2, 0.5015516891697, 0.4483347403952, 0.3769421802521),
    (4, 0.9249308976669, 0.83785875709, 0.7165465805275),
    (8, 1.666030597846, 1.531545117566, 1.336194170101),
    (16, 2.905478155173, 2.712882185716, 2.420801773773),
    (32, 4.879598344338, 4.6256197636, 4.224849007433),
]
DELTA = [
    (0.001, 0.004, 7.159562434938e-9),
    (0.1, 0, 0.03987761167674),
    (0.1, 0.5, 6.856582455839e-9),
    (0.5, 1, 0.006829594983115),
    (1, 0, 0.382924922548),
    (1, 1, 0.1269367375066),
    (1, 5, 5.793721691919e-7),
    (1, 10, 9.812705826847e-23),
    (2, 1, 0.5098616600547),
    (3, 12, 0.003119023047502),
    (5, 20, 0.04732296418852),
    (8, 65, 1.193851693197e-5),
    (20, 300, 2.272774882319e-7),
    (90, 5000, 2.140498822143e-26),
]
MUS = [0.001, 0.01, 0.1, 0.268, 0.5, 1, 2, 4, 9, 20, 45, 90]
DELTAS = [1e-2, 1e-5, 1e-8, 1e-12, 1e-15]


def oracle_delta(epsilon, mu):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        first = mpmath.ncdf(-epsilon / mu + mu / 2)
        return first - mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mu - mu / 2)


@pytest.mark.parametrize(("mu", "epsilon", "delta"), DELTA)
def test_delta_has_its_reference_values(mu, epsilon, delta):
    assert gdp_delta(epsilon=epsilon, mu=mu) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("row", EPSILON)
def test_epsilon_has_its_reference_values(row):
    for epsilon, delta in zip(row[1:], (1e-5, 1e-8, 1e-12), strict=True):
        assert gdp_epsilon(mu=row[0], delta=delta) == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("row", MU)
def test_mu_has_its_reference_values(row):
    for mu, delta in zip(row[1:], (1e-5, 1e-6, 1e-8), strict=True):
        assert gdp_mu(epsilon=row[0], delta=delta) == pytest.approx(mu, rel=1e-9)


@pytest.mark.oracle
@pytest.mark.parametrize("mu", MUS)
def test_delta_and_epsilon_agree_with_sixty_digits(mu):
    for delta in DELTAS:
        epsilon = gdp_epsilon(mu=mu, delta=delta)
        if epsilon == 0.0:
            assert float(oracle_delta(0, mu)) <= delta
            continue
        exact = float(oracle_delta(epsilon, mu))
        assert gdp_delta(epsilon=epsilon, mu=mu) == pytest.approx(exact, rel=1e-10)
        slope = mpmath.exp(epsilon) * mpmath.ncdf(-epsilon / mpmath.mpf(mu) - mu / 2)
        assert abs(exact - delta) / float(slope) <= 1e-9 * epsilon
        assert gdp_mu(epsilon=epsilon, delta=delta) == pytest.approx(mu, rel=1e-10)


@pytest.mark.oracle
@pytest.mark.parametrize(("noise", "count"), [(1.0, 1), (5.0, 10), (25.0, 100)])
def test_composed_epsilon_agrees_with_a_privacy_loss_distribution(noise, count):
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    one = from_gaussian_mechanism(noise, value_discretization_interval=1e-4)
    theirs = one.self_compose(count).get_epsilon_for_delta(1e-5)
    ours = gdp_epsilon(mu=total_cost([Cost.of_mu(1 / noise)] * count).mu(), delta=1e-5)
    assert abs(ours - theirs) < 1e-6


@pytest.mark.oracle
def test_the_worst_case_rates_of_many_release_runs_agree_with_their_table():
    # Imtiaz et al., J = 1, 100, 1000 rounds of two releases at sigma = 6.2150229201845
    for count, epsilon in ((1, 0.835562541), (100, 11.7332304), (1000, 55.7942911)):
        mu = total_cost([Cost.of_mu(0.22754760208)] * count).mu()
        assert gdp_epsilon(mu=mu, delta=1e-5) == pytest.approx(epsilon, rel=1e-8)


def test_epsilon_and_mu_are_monotone():
    epsilons = [gdp_epsilon(mu=mu, delta=1e-6) for mu in MUS]
    assert epsilons == sorted(epsilons)
    mus = [gdp_mu(epsilon=epsilon, delta=1e-6) for epsilon in (0, 0.1, 1, 5, 50, 500)]
    assert mus == sorted(set(mus))
    deltas = [gdp_delta(epsilon=epsilon, mu=1.5) for epsilon in (0, 0.5, 1, 4, 9, 30, 800)]
    assert deltas == sorted(deltas, reverse=True)


def test_epsilon_is_the_upper_end_and_mu_the_lower_end():
    for mu in MUS:
        epsilon = gdp_epsilon(mu=mu, delta=1e-7)
        assert gdp_delta(epsilon=epsilon, mu=mu) <= 1e-7
        if epsilon > 0.0:
            below = math.nextafter(epsilon, 0.0)
            assert gdp_delta(epsilon=below, mu=mu) > 1e-7
        largest = gdp_mu(epsilon=1.0 + mu, delta=1e-7)
        assert gdp_delta(epsilon=1.0 + mu, mu=largest) <= 1e-7
        assert gdp_delta(epsilon=1.0 + mu, mu=math.nextafter(largest, 9e9)) > 1e-7


def test_no_release_costs_nothing_and_a_tiny_mu_has_epsilon_zero():
    assert gdp_delta(epsilon=0.0, mu=0.0) == 0.0
    assert gdp_epsilon(mu=0.0, delta=1e-9) == 0.0
    assert gdp_epsilon(mu=1e-6, delta=1e-2) == 0.0
    assert gdp_delta(epsilon=1.0, mu=1e-320) == 0.0
    assert total_cost([]).mu() == 0.0
    assert (Cost.of_mu(3.0) + Cost.of_mu(4.0)).mu() == 5.0


@pytest.mark.parametrize("bad", [-1.0, math.inf, math.nan])
def test_numbers_that_mean_nothing_are_refused(bad):
    with pytest.raises(ConfigError, match="epsilon"):
        gdp_delta(epsilon=bad, mu=1.0)
    with pytest.raises(ConfigError, match="mu"):
        gdp_delta(epsilon=1.0, mu=bad)
    with pytest.raises(ConfigError, match="mu"):
        gdp_epsilon(mu=bad, delta=1e-5)
    with pytest.raises(ConfigError, match="epsilon"):
        gdp_mu(epsilon=bad, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, 2.0, -1e-5, math.nan])
def test_a_delta_that_is_no_probability_is_refused(delta):
    for call in (
        lambda: gdp_epsilon(mu=1.0, delta=delta),
        lambda: gdp_mu(epsilon=1.0, delta=delta),
        lambda: check_delta(delta, n_subjects=10),
    ):
        with pytest.raises(ConfigError, match="delta"):
            call()


def test_the_views_of_the_example_consortium_have_their_reference_values():
    # S 4, S_C 1, t 4, total epsilon 1 at delta 1e-5
    cost = Cost.of_mu(gdp_mu(epsilon=1.0, delta=1e-5))
    seen = cost.by_viewer(noise_shares=3, n_sites=4, noise="correlated")
    assert seen["outsider"].epsilon(1e-5) == pytest.approx(0.854049, abs=1e-6)
    assert seen["one_site"].epsilon(1e-5) == pytest.approx(1.0, abs=1e-12)
    assert seen["aggregator"].epsilon(1e-5) == pytest.approx(1.0, abs=1e-12)
    for unknown, epsilon in ((2, 1.249911), (1, 1.834965)):
        seen_by = cost.if_unknown(unknown, noise_shares=3)
        assert seen_by.epsilon(1e-5) == pytest.approx(epsilon, abs=1e-6)


def test_with_local_noise_every_view_is_the_charged_one():
    seen = Cost.of_mu(0.5).by_viewer(noise_shares=1, n_sites=9, noise="local")
    assert set(seen.values()) == {Cost.of_mu(0.5)}
    assert seen["aggregator"].epsilon(1e-5) == gdp_epsilon(mu=0.5, delta=1e-5)


def test_one_site_alone_has_no_curious_fellow():
    seen = Cost.of_mu(0.5).by_viewer(noise_shares=1, n_sites=1, noise="correlated")
    assert seen["one_site"] == seen["outsider"] == Cost.of_mu(0.5)
    assert seen["one_site"].epsilon(1e-5) == gdp_epsilon(mu=0.5, delta=1e-5)


def test_a_view_that_knows_all_shares_is_refused():
    with pytest.raises(ConfigError, match="unknown share"):
        Cost.of_mu(1.0).if_unknown(0, noise_shares=3)
    with pytest.raises(ConfigError, match="unknown share"):
        Cost.of_mu(1.0).if_unknown(1, noise_shares=0)


def test_roots_are_rounded_up():
    assert root_up(Fraction(0)) == 0.0
    assert root_up(Fraction(9, 4)) == 1.5
    for square in (Fraction(2), Fraction(1, 3), Fraction(10**40 + 1), Fraction(7, 10**30)):
        assert Fraction(root_up(square)) ** 2 >= square
        assert Fraction(root_up(square) * (1 - 3e-16)) ** 2 < square


def test_a_delta_of_one_over_the_subjects_is_refused_and_a_tenth_of_it_is_warned_about():
    check_delta(1e-5, n_subjects=1024)
    check_delta(2.0**-14, n_subjects=1024)
    with pytest.raises(ConfigError, match="less than 1/1024"):
        check_delta(2.0**-10, n_subjects=1024)
    with pytest.warns(CapeWarning, match="tenth"):
        check_delta(math.nextafter(2.0**-10, 0), n_subjects=1024)


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (None, "infinite"),
        (math.inf, "infinite"),
        (0.0, "0"),
        (1.0, "1.000"),
        (0.85404901, "0.8541"),
        (0.99995, "1.0000"),
        (55.7942911, "55.80"),
        (1.2e-7, "0.0000001200"),
        (123456.2, "123500"),
    ],
)
def test_epsilon_is_shown_rounded_up(epsilon, text):
    assert display_epsilon(epsilon) == text
    if text not in ("infinite",):
        assert float(text) >= epsilon


def test_what_is_left_is_shown_rounded_down():
    """Exactly 1.72913 was left, "1.730" was shown, and a run of 1.730 was refused."""
    assert display_left(1.72913) == "1.729"
    assert display_left(None) == "infinite"


def test_right_guesses_are_shown_rounded_up_and_never_as_a_coin():
    """A form said "50 of 100" of epsilon .05, as if nothing could be learned; it is 50.35."""
    shown = {mu: display_guesses(mu) for mu in (0.0175, 0.268, 1.666)}
    assert shown == {0.0175: "50.4", 0.268: "56", 1.666: "80"}
    assert all(float(text) >= 100 * right_guesses(mu) for mu, text in shown.items())


def test_the_slack_of_discrete_noise_of_a_whole_run_is_negligible_and_known():
    common = {"field": "mean", "clip": 0.35, "shares": 3}
    events = [
        plan_event(phase="i", round=j, shape="ball", size=190, mu=0.0112072649, **common)
        for j in (1, 2)
    ]
    slack = lattice_slack(events)
    kappa = 2 * 143 * 190 / (24 * 3 * events[0].variance)
    assert slack.epsilon == pytest.approx(2 * kappa, rel=1e-12)
    assert slack.delta == pytest.approx(380 * 4e-33)
    without = plan_event_without_noise(
        phase="i", round=1, field="mean", shape="ball", size=190, clip=0.35, n_subjects=8
    )
    with pytest.raises(ConfigError, match="no noise"):
        lattice_slack([without])


def test_discrete_noise_is_as_private_as_its_continuous_limit():
    # sigma 10, shift 3: 5.4822721e-5 against 5.4887496e-5 of the Gaussian formula.
    with mpmath.workdps(40):
        mass = {x: mpmath.exp(-mpmath.mpf(x * x) / 200) for x in range(-300, 304)}
        total = sum(mass[x] for x in range(-300, 301))
        gaps = (mass[x] - mpmath.e * mass.get(x - 3, 0) for x in range(-297, 301))
        discrete = float(max(sum(max(g, 0) for g in gaps) / total, 0))
    assert discrete == pytest.approx(5.4822721e-5, rel=1e-7)
    assert gdp_delta(epsilon=1.0, mu=0.3) == pytest.approx(5.4887496e-5, rel=1e-7)


@pytest.mark.parametrize("mu", [0.0, 0.268, 1.666, 2.0004, 40.0])
def test_the_best_guesser_is_right_in_half_and_what_the_normal_law_adds(mu) -> None:
    assert right_guesses(mu) == pytest.approx(NormalDist().cdf(mu / 2), abs=1e-15)
