"""Law of the noise, with fresh entropy.  Each test: false alarm at most 1e-6, no retry."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats

from cape.privacy.noise import SecureNoise, discrete_gaussian

pytestmark = pytest.mark.statistical

ALPHA = 1e-6


def law(variance, reach):
    mass = [mpmath.exp(-mpmath.mpf(x * x) / (2 * variance)) for x in range(-reach, reach + 1)]
    total = sum(mass)
    return np.array([float(m / total) for m in mass])


def chi2_p(drawn, mass, reach):
    """p value against `mass` on -reach .. reach; cells expecting fewer than 20 are joined."""
    assert np.abs(drawn).max() <= reach
    counts = np.bincount(drawn + reach, minlength=2 * reach + 1)
    expected = mass * drawn.size
    fine = expected >= 20
    observed = np.append(counts[fine], counts[~fine].sum())
    wanted = np.append(expected[fine], expected[~fine].sum())
    if wanted[-1] < 20:  # join the rest to the last fine cell
        observed = np.append(observed[:-2], observed[-2:].sum())
        wanted = np.append(wanted[:-2], wanted[-2:].sum())
    statistic = float(((observed - wanted) ** 2 / wanted).sum())
    p = float(stats.chi2.sf(statistic, wanted.size - 1))
    return p


@pytest.mark.parametrize("variance", [1, 2, 4, 53])
def test_small_variances_follow_the_exact_law(variance):
    """False alarm 1e-6."""
    reach = 40 * math.isqrt(variance) + 40
    drawn = discrete_gaussian(variance, 1_000_000, SecureNoise())
    assert chi2_p(drawn, law(variance, reach), reach) >= ALPHA


def test_the_law_is_the_same_when_every_decision_is_exact():
    """False alarm 1e-6."""
    drawn = discrete_gaussian(4, 60_000, SecureNoise(), guard_band=1.0)
    assert chi2_p(drawn, law(4, 120), 120) >= ALPHA


@pytest.mark.parametrize("log2_sigma", [10, 20, 22, 28])
def test_moments_at_the_variances_of_releases(log2_sigma):
    """Mean, variance, 4th moment, sign: four z scores, each beyond 5.4 with probability 7e-8."""
    n = 400_000
    drawn = discrete_gaussian(4**log2_sigma, n, SecureNoise()).astype(np.float64) / 2**log2_sigma
    z = np.array(
        [
            drawn.mean() * math.sqrt(n),
            (np.mean(drawn**2) - 1) * math.sqrt(n / 2),
            (np.mean(drawn**4) - 3) * math.sqrt(n / 96),
            np.sign(drawn).mean() * math.sqrt(n),
        ]
    )
    assert np.all(np.abs(z) <= 5.4), z


def test_low_bits_are_uniform():
    """The last 8 bits of large-variance noise; false alarm 1e-6."""
    drawn = discrete_gaussian(2**44 + 1, 500_000, SecureNoise())
    counts = np.bincount(drawn & 255, minlength=256)
    p = float(stats.chisquare(counts).pvalue)
    assert p >= ALPHA


def test_a_sum_of_four_shares_follows_the_convolution():
    """False alarm 1e-6; the convolution is exact to double precision."""
    reach = 120
    shares = [discrete_gaussian(4, 400_000, SecureNoise()) for _ in range(4)]
    one = law(4, reach)
    two = np.convolve(one, one)
    four = np.convolve(two, two)[3 * reach : 5 * reach + 1]
    assert chi2_p(sum(shares), four, reach) >= ALPHA


@pytest.mark.oracle
def test_two_samples_agree_with_opendp():
    """Two-sample chi2 on 64 quantile cells at s2 = 2^20; false alarm 1e-6."""
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    n = 20_000
    space = dp.vector_domain(dp.atom_domain(T="i64"), size=n), dp.l2_distance(T="f64")
    theirs = np.array(dp.m.make_gaussian(*space, scale=1024.0)([0] * n))
    ours = discrete_gaussian(2**20, n, SecureNoise())
    edges = np.floor(1024 * stats.norm.ppf(np.arange(1, 64) / 64)) + 0.5
    table = np.array([np.bincount(np.searchsorted(edges, x), minlength=64) for x in (ours, theirs)])
    p = float(stats.chi2_contingency(table).pvalue)
    assert p >= ALPHA


def test_consecutive_draws_are_uncorrelated():
    """Lag 1 and lag 2; each beyond 5.2 with probability 2e-7."""
    n = 400_000
    drawn = discrete_gaussian(2**44, n, SecureNoise()).astype(np.float64) / 2**22
    for lag in (1, 2):
        z = float(np.mean(drawn[lag:] * drawn[:-lag])) * math.sqrt(n - lag)
        assert abs(z) <= 5.2, (lag, z)
