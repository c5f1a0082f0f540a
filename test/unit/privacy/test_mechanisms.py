import math
from dataclasses import replace
from fractions import Fraction

import pytest

from cape.errors import ConfigError, PrivacyBudgetError
from cape.privacy.accounting import gdp_mu
from cape.privacy.cost import INFINITE, Cost, Event, total_cost
from cape.privacy.ledger import split_mu
from cape.privacy.mechanisms import (
    check_overflow,
    integer_sensitivity,
    overflow_bound,
    plan_event,
    plan_event_without_noise,
    seed_bound,
    verify_event,
)

MU_B = gdp_mu(epsilon=1.0, delta=1e-5)
ROUNDS = sum(math.sqrt(k) for k in range(1, 41))
# The worked plan: M 1024, S 4, S_C 1, h 3; shares .4/.3/.3 of mu_B^2; 2 looks, 40 rounds.
WORKED = [  # phase, round, C, shape, d, weight, mu, k, C_int, Delta_int, s2, std of the mean
    ("pca", 1, math.sqrt(20), "psd", 5050, 0.4, 0.1695304156, 17, 586171, 828994, 7970512855801,
     0.0420691),
    ("whitening", 1, 4.0, "ball", 210, 0.15, 0.1038157535, 16, 262144, 524288, 8501431494137,
     0.0868953),
    ("iterate", 1, 0.35, "ball", 190, 0.3 / ROUNDS, 0.0112072649, 16, 22937, 45874, 5584865107408,
     0.0704298),
    ("iterate", 40, 0.35, "ball", 190, 0.3 * math.sqrt(40) / ROUNDS, 0.0281847792, 18, 91750,
     183500, 14129331317300, 0.0280060),
]  # fmt: skip


def event(**changes):
    values = {
        "phase": "pca",
        "round": 1,
        "field": "mean",
        "shape": "ball",
        "size": 10,
        "log2_gamma": 10,
        "clip_int": 1024,
        "delta_int": 2048,
        "variance": 2**40,
        "shares": 3,
    }
    return Event(**{**values, **changes})


def planned(**changes):
    values = {
        "phase": "pca",
        "round": 1,
        "field": "mean",
        "shape": "ball",
        "size": 190,
        "clip": 0.35,
        "mu": 0.01,
        "shares": 3,
    }
    return plan_event(**{**values, **changes})


def without_noise(**changes):
    values = {
        "phase": "pca",
        "round": 1,
        "field": "mean",
        "shape": "ball",
        "size": 190,
        "clip": 4096.0,
        "n_subjects": 1024,
    }
    return plan_event_without_noise(**{**values, **changes})


@pytest.mark.parametrize("row", WORKED, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_worked_plan_has_its_reference_integers(row):
    phase, number, clip, shape, size, weight, mu, log2_gamma, clip_int, delta_int, s2, std = row
    (allowed,) = split_mu(MU_B, [weight])
    assert allowed == pytest.approx(mu, rel=1e-8)
    got = planned(phase=phase, round=number, shape=shape, size=size, clip=clip, mu=allowed)
    assert (got.log2_gamma, got.clip_int, got.delta_int) == (log2_gamma, clip_int, delta_int)
    assert got.variance == pytest.approx(s2, rel=1e-9)
    assert got.noise_std(4, 1024) == pytest.approx(std, abs=1e-7)
    assert got.cost.mu2 <= Fraction(allowed) ** 2
    assert math.sqrt(got.cost.mu2) == pytest.approx(allowed, rel=1e-9)
    assert overflow_bound(got, 4, 1024) < 2**30
    verify_event(got, clip)


def test_mu_is_the_sensitivity_over_the_noise_of_the_unknown_shares():
    got = event(delta_int=2048, variance=2**40, shares=3)
    assert got.cost.mu2 == Fraction(2048**2, 3 * 2**40)
    assert got.private
    assert got.gamma == 1024.0
    assert got.name == "pca round 1 (mean)"
    assert got.noise_std(4, 8) == math.sqrt(4 * 2**40) / (1024 * 8)


def test_a_release_without_noise_has_no_mu_that_could_be_summed():
    assert event(variance=0).cost == INFINITE
    assert event(variance=0).cost + event().cost == INFINITE
    assert total_cost([event().cost, event(variance=0).cost]) == INFINITE
    assert (INFINITE.mu(), INFINITE.epsilon(1e-5)) == (None, None)
    assert not event(variance=0).private


@pytest.mark.parametrize(
    "change",
    [
        {"size": 0},
        {"clip_int": 0},
        {"delta_int": 0},
        {"variance": -1},
        {"shares": 0},
        {"round": -1},
        {"round": True},
        {"size": 1.0},
        {"log2_gamma": 501},
        {"log2_gamma": -501},
        {"log2_gamma": "1"},
        {"shape": "cube"},
        {"phase": 1},
        {"field": None},
    ],
    ids=str,
)
def test_an_event_with_a_senseless_number_cannot_be_made(change):
    with pytest.raises(ConfigError, match="release"):
        event(**change)


def test_the_sensitivity_of_a_ball_is_its_diameter():
    assert integer_sensitivity("ball", 7, 3) == 14


@pytest.mark.parametrize("clip_int", [1, 7, 22937, 586171, 2**31])
@pytest.mark.parametrize("size", [1, 2, 10, 100, 111, 112, 5050])
def test_the_sensitivity_of_psd_vectors_holds_the_rounding_term(clip_int, size):
    root = integer_sensitivity("psd", clip_int, size) - 1
    rounding = math.ceil(Fraction(3, 10) * Fraction(math.isqrt(size * 10**12), 10**6))
    assert abs(rounding - 0.3 * math.sqrt(size)) < 1
    first = root - rounding
    assert (first - 1) ** 2 < 2 * clip_int**2 <= first**2


def test_rounding_can_push_psd_vectors_further_apart_than_sqrt_two_clips():
    # a a' and b b' with a, b orthogonal: their off-diagonal entries are rounded apart.
    def rounded(x, y):
        return [round(x * x), round(y * y), round(math.sqrt(2) * x * y)]

    u, v = rounded(2.1, 1.86), rounded(1.86, -2.1)
    assert (u, v) == ([4, 3, 6], [3, 4, -6])
    assert sum(x * x for x in u) == sum(x * x for x in v) == 61 <= 8**2
    distance2 = sum((x - y) ** 2 for x, y in zip(u, v, strict=True))
    assert distance2 > math.ceil(math.sqrt(2) * 8) ** 2
    assert distance2 <= integer_sensitivity("psd", 8, 3) ** 2


def test_gamma_is_raised_until_rounding_cannot_eat_the_clip():
    got = planned(size=10**6, clip=1.0, mu=0.01)
    assert got.clip_int >= 50 * 1000
    assert got.clip_int < 2 * 50 * 1000
    assert got.log2_gamma == 16  # 15 by the noise alone
    verify_event(got, 1.0)


def test_gamma_is_lowered_until_squares_of_a_very_long_vector_fit():
    got = planned(size=405_450, shape="psd", clip=math.sqrt(20), mu=3.0)
    assert 405_450 * got.clip_int**2 < 2**63 <= 405_450 * (2 * got.clip_int + 1) ** 2
    verify_event(got, math.sqrt(20))


def test_a_vector_too_long_for_any_scale_is_refused():
    with pytest.raises(ConfigError, match="too small"):
        planned(size=10**8)


def test_noise_has_about_21_bits_over_a_wide_range_of_settings():
    for clip in (1e-3, 0.35, 4.0, 300.0):
        for mu in (0.3, 0.05, 0.01):
            for shares in (1, 3, 14):
                got = planned(clip=clip, mu=mu, shares=shares, size=1)
                assert 20.9 < 0.5 * math.log2(got.variance) <= 22.1
                verify_event(got, clip)


@pytest.mark.parametrize("mu", [1e-6, 1e-30])
def test_a_release_whose_noise_does_not_fit_is_refused_when_planned(mu):
    with pytest.raises(ConfigError, match=r"2\^10 and 2\^28") as caught:
        planned(mu=mu)
    assert "raise epsilon" in caught.value.public


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_or_mu_that_is_no_positive_number_is_refused(bad):
    for call in (
        lambda: planned(clip=bad),
        lambda: planned(mu=bad),
        lambda: without_noise(clip=bad),
        lambda: verify_event(event(), bad),
    ):
        with pytest.raises(ConfigError, match="more than 0"):
            call()


def test_a_clip_too_small_for_floats_is_refused():
    with pytest.raises(ConfigError, match="log2_gamma"):
        planned(clip=1e-300)


def test_releases_without_noise_use_the_largest_safe_scale():
    got = without_noise()
    assert (got.variance, got.shares, got.private) == (0, 1, False)
    assert 190 * got.clip_int**2 < 2**63 <= 190 * (2 * got.clip_int) ** 2
    assert got.clip_int == 4096 * 2**got.log2_gamma
    assert without_noise(clip=1e-4).log2_gamma == 40
    many = without_noise(size=1, n_subjects=2**50)
    assert many.clip_int * 2**50 < 2**62 <= 2 * many.clip_int * 2**50
    check_overflow(many, 4, 2**50)
    verify_event(got, 4096.0)


def test_a_release_without_noise_that_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="does not fit"):
        without_noise(clip=1e-12)


def test_the_bound_of_a_sum_is_exact_and_rounded_up():
    worked = event(clip_int=586171, variance=7970512855801)
    bound = overflow_bound(worked, 4, 1024)
    noise = bound - 1024 * 586171
    assert (noise - 1) ** 2 < 144 * 4 * 7970512855801 <= noise**2
    assert bound < 2**30
    assert overflow_bound(event(clip_int=3, variance=0), 4, 2) == 6


def test_a_sum_that_could_leave_the_integers_is_refused():
    edge = event(clip_int=2**40, variance=0)
    assert overflow_bound(edge, 4, 2**22 - 1) == 2**62 - 2**40
    check_overflow(edge, 4, 2**22 - 1)
    with pytest.raises(ConfigError, match=r"2\^63, allowed is 2\^62"):
        check_overflow(edge, 4, 2**22)
    assert overflow_bound(event(clip_int=1, variance=2), 2, 1) == 1 + 24
    assert overflow_bound(event(clip_int=1, variance=3), 1, 1) == 1 + 21


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("clip_int", lambda good: good.clip_int + 1, "above the clip"),
        ("log2_gamma", lambda good: good.log2_gamma - 1, "above the clip"),
        ("delta_int", lambda good: good.clip_int, "sensitivity"),
        ("delta_int", lambda good: good.delta_int - 1, "sensitivity"),
        ("delta_int", lambda good: good.delta_int + 1, "sensitivity"),
        ("shape", lambda good: "psd", "sensitivity"),
        ("variance", lambda good: 2**20 - 1, "noise"),
        ("variance", lambda good: 2**56 + 1, "noise"),
        ("size", lambda good: good.clip_int**2 // 2500 + 1, "too small"),
    ],
    ids=range(9),
)
def test_a_site_refuses_a_release_whose_integers_do_not_fit_each_other(name, value, text):
    good = planned()
    with pytest.raises(PrivacyBudgetError, match=text) as caught:
        verify_event(replace(good, **{name: value(good)}), 0.35, site="site-b")
    assert "site site-b" in caught.value.public


def test_a_site_refuses_integers_whose_squares_do_not_fit():
    big = event(clip_int=2**31, delta_int=2**32, size=2, log2_gamma=31)
    with pytest.raises(PrivacyBudgetError, match="63 bits"):
        verify_event(big, 1.0)
    verify_event(replace(big, size=1), 1.0)


def test_the_ends_of_the_noise_range_are_allowed():
    # The next grid would have no room for squares: only then is the noise below 2^21 units.
    longest = event(variance=2**20, clip_int=2**31, delta_int=2**32, log2_gamma=31, size=1)
    verify_event(longest, 1.0)
    verify_event(replace(planned(), variance=2**56), 0.35)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize(("shape", "size", "clip"), [("psd", 20_100, 4.5), ("ball", 3, 1.0)])
def test_a_coarser_grid_than_a_site_would_plan_is_refused(epsilon, shape, size, clip):
    """Its slack went to 1e-4 of epsilon 1, which nobody stated or charged, at the same cost."""
    mu = gdp_mu(epsilon=epsilon, delta=1e-5)
    fine = plan_event(
        phase="p", round=1, field="t", shape=shape, size=size, clip=clip, mu=mu, shares=3
    )
    verify_event(fine, clip)
    clip_int = math.floor(clip * 2.0 ** (fine.log2_gamma - 1))
    moved = integer_sensitivity(shape, clip_int, size)
    variance = math.ceil(moved**2 / (3 * Fraction(mu) ** 2))
    coarse = replace(
        fine, log2_gamma=fine.log2_gamma - 1, clip_int=clip_int, delta_int=moved, variance=variance
    )
    assert coarse.cost <= Cost.of_mu(mu)
    with pytest.raises(PrivacyBudgetError, match="coarser"):
        verify_event(coarse, clip)


@pytest.mark.parametrize("ratio", [1, 4, 1000])
def test_gaussian_seeds_are_charged_by_the_corrected_formula_and_calibrated_for_it(ratio):
    gaussian, masked = planned(seed_ratio=ratio), planned()
    r, h = ratio, gaussian.shares
    charged = Fraction(gaussian.delta_int**2 * (r + h), h * gaussian.variance * (r + 1))
    assert gaussian.cost.mu2 == charged
    assert 0 <= 1 - gaussian.cost.mu2 / Fraction(0.01) ** 2 < 1e-9
    assert gaussian.seed_variance == r * gaussian.variance
    assert masked.seed_variance == seed_bound(masked, 4) == 0
    assert (seed_bound(gaussian, 4) - 1) ** 2 < 144 * 4 * r * gaussian.variance
    assert seed_bound(gaussian, 4) ** 2 >= 144 * 4 * r * gaussian.variance


def test_gaussian_seeds_past_the_sampler_are_refused():
    loud = event(variance=2**50, seed_ratio=100, clip_int=1024)
    with pytest.raises(PrivacyBudgetError, match="seeds of the zero-sum noise are above 2\\^28"):
        verify_event(loud, 1.0)
    verify_event(replace(loud, seed_ratio=0), 1.0)


def test_a_reply_with_gaussian_seeds_has_to_fit_62_bits_by_itself():
    big = event(clip_int=2**30, delta_int=2**31, variance=2**44)
    check_overflow(big, 4, 2**31)
    with pytest.raises(ConfigError, match="E221"):
        check_overflow(replace(big, seed_ratio=1000), 4, 2**31)
    check_overflow(replace(big, seed_ratio=1000), 4, 2**29)
