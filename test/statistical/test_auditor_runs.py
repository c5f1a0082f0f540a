"""Audit of whole runs: one with many canary subjects, and many of which right signs are counted.

One run (Steinke, Nasr, Jagielski 2023): every canary subject holds a fair bit of its own; the
adversary sees all that the aggregator and one colluding site see from `join` to `report`, and
guesses all bits.  If the run is (epsilon, delta)-DP for replacing one subject, right guesses are
bounded by a binomial law, so their number gives a lower bound of epsilon at that delta.

Certified figures exceed the true ones with probability below 1e-6 a test.  Bands of counts have
5e-7 at each end.  Entropy is fresh.
"""

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cape.privacy.accounting import gdp_epsilon, gdp_mu
from cape.protocol import secure_sum
from support import auditor, say, wiretap
from support.auditor import TOO_MUCH

HERE = Path(__file__).parent


pytestmark = pytest.mark.statistical

FALSE_ALARM = 1e-6
DELTA = 1e-12
"""Of the certified figures: the bound of one run pays 2 m delta, which must stay below 1e-6."""
MU = 2.0
WRONG_COUNT = "the number of right signs is not that of the claimed mu"


def p_value(right: int, guesses: int, epsilon: float, delta: float) -> float:
    """Return a bound of P[at least `right` of `guesses`] under (epsilon, delta)-DP."""
    # Theorem 5.2 of the paper, for m = r guesses (nobody abstains): beta + 2 m delta alpha.
    q = 1.0 / (1.0 + math.exp(-epsilon))
    beta = float(stats.binom.sf(right - 1, guesses, q))
    below = stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, q)
    gained = np.cumsum(below)  # P[right - i <= X < right], i = 1 ...
    alpha = float(np.max(gained / np.arange(1, right + 1), initial=0.0))
    return min(1.0, beta + 2.0 * guesses * delta * alpha)


def certified_epsilon(right: int, guesses: int, delta: float = DELTA) -> float:
    """Return the largest epsilon that these guesses refute at a false alarm of 1e-6; 0 if none."""
    low, high = 0.0, 20.0
    if p_value(right, guesses, low, delta) > FALSE_ALARM:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        if p_value(right, guesses, middle, delta) <= FALSE_ALARM:
            low = middle
        else:
            high = middle
    return low


def one_canary_run(n_rounds: int = 11, size: int = 1200) -> tuple[int, int, float]:
    """Return right guesses, guesses and the claimed total mu of one run of the canary."""
    bits = auditor.coins(size)
    mu = MU / math.sqrt(n_rounds)
    link, _ = wiretap.canary_run(bits, n_rounds=n_rounds, mu=mu)
    link.until("canary")
    statistic = np.zeros(size)
    for round_ in range(1, n_rounds + 1):
        link.exchange()
        statistic += wiretap.sign_of(round_) * link.seen()
    claimed = link._state.ledger.spent.mu()
    link.exchange()
    assert link.outcome is not None
    return int(((statistic > 0) == (bits > 0)).sum()), size, claimed


def one_product_run() -> tuple[int, int, float]:
    """Return the same of one run of capedjica, from `join` to `report`; bits lie in projectors."""
    link, directions, bits = auditor.subspace_run()
    link.exchange()
    statistic = directions @ link.seen()
    while link.outcome is None:
        link.exchange()
    return int(((statistic > 0) == (bits > 0)).sum()), len(bits), link._state.ledger.spent.mu()


def check_one_run(name: str, right: int, guesses: int, mu: float) -> float:
    certified = certified_epsilon(right, guesses)
    claimed = gdp_epsilon(mu=mu, delta=DELTA)
    as_mu = gdp_mu(epsilon=certified, delta=DELTA) if certified else 0.0
    say(
        f"{name}: {right} of {guesses} right; certified epsilon {certified:.3f} "
        f"(mu {as_mu:.3f}), claimed {claimed:.3f} (mu {mu:.3f}) at delta {DELTA:g}"
    )
    assert certified <= claimed, TOO_MUCH
    return certified


def test_audit_of_one_canary_run_certifies_no_more_than_claimed_and_not_nothing():
    """1,200 bits in one run of 11 releases; false alarm below 1e-6 at both ends."""
    right, guesses, mu = one_canary_run()
    assert mu == pytest.approx(MU, rel=1e-6)
    assert check_one_run("canary, whole run", right, guesses, mu) > 0.8
    check_count(right, guesses, mu)


def test_audit_of_one_run_of_the_product_certifies_no_more_than_claimed():
    """About 138 bits in one run with all its releases; false alarm below 1e-6."""
    check_one_run("capedjica, whole run", *one_product_run())


def test_audit_bound_of_one_run_is_that_of_a_binomial_and_holds_for_randomized_response():
    """Exact cases: delta 0; and 2,000 bits told with odds e^1, which must not certify above 1."""
    assert p_value(90, 100, 1.0, 0.0) == pytest.approx(
        stats.binom.sf(89, 100, math.e / (1 + math.e))
    )
    assert p_value(90, 100, 1.0, 1e-5) > p_value(90, 100, 1.0, 0.0)
    assert certified_epsilon(50, 100) == 0.0
    right = int((np.random.default_rng().random(2000) < math.e / (1 + math.e)).sum())
    assert 0.5 < certified_epsilon(right, 2000, delta=0.0) <= 1.0


def count_right(n_runs: int, size: int = 190) -> tuple[int, int]:
    """Return right signs and bits of many runs of one release at mu 2, all phases each."""
    right = 0
    for _ in range(n_runs):
        found, _, mu = one_canary_run(n_rounds=1, size=size)
        assert mu == pytest.approx(MU, rel=1e-6)
        right += found
    return right, n_runs * size


def check_count(right: int, bits: int, mu: float = MU) -> None:
    """Right signs are binomial with probability Phi(mu / 2): alarm 5e-7 at each end."""
    q = stats.norm.cdf(mu / 2.0)
    low, high = stats.binom.ppf(5e-7, bits, q), stats.binom.isf(5e-7, bits, q)
    say(f"right signs {right} of {bits}, allowed {low:.0f} to {high:.0f}")
    assert low <= right <= high, WRONG_COUNT


def test_audit_of_25_whole_runs_finds_as_many_right_signs_as_claimed():
    """T10, short form: 4,750 bits, mu within 1.79 to 2.22."""
    check_count(*count_right(25))


@pytest.mark.trust
def test_audit_of_211_whole_runs_finds_as_many_right_signs_as_claimed():
    """T10, nightly: 40,090 bits."""
    check_count(*count_right(211))


def halved(monkeypatch, by: int) -> None:
    draw = secure_sum.discrete_gaussian
    monkeypatch.setattr(
        secure_sum, "discrete_gaussian", lambda s2, size, source: draw(s2 // by, size, source)
    )


def test_audit_of_whole_runs_sees_half_the_noise_variance(monkeypatch):
    """True mu 2.83: right with .921 in place of .841; missed below 1e-9."""
    halved(monkeypatch, 2)
    with pytest.raises(AssertionError, match=WRONG_COUNT):
        check_count(*count_right(25))


def test_audit_of_one_run_sees_a_tiny_fraction_of_the_noise(monkeypatch):
    """One run certifies loosely: noise of 1/400 of the variance at mu 0.5, true mu 10."""
    halved(monkeypatch, 400)
    monkeypatch.setattr(sys.modules[__name__], "MU", 0.5)
    with pytest.raises(AssertionError, match=TOO_MUCH):
        check_one_run("broken", *one_canary_run())
