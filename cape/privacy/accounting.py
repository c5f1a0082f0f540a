"""Exact Gaussian differential privacy: mu to (epsilon, delta) and back.

Unit: one subject; relation: replace one.  Adding N(0, s^2 I) to a statistic of L2
sensitivity Delta is mu-GDP with mu = Delta / s, where s is the noise that the viewer cannot
subtract (Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022).  It is (epsilon, delta)-DP
for exactly the pairs

    delta(epsilon; mu) = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)

(Balle and Wang, "Improving the Gaussian mechanism", ICML 2018, Theorem 8).  Every decision uses
this accountant; `cape.privacy.cost` composes several releases.
"""

import functools
import math
import warnings
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Final

from cape.errors import ConfigError, PrivacyWarning

_SQRT2: Final = math.sqrt(2.0)

# From this argument on the asymptotic series of the Mills ratio reaches 1e-18 before it diverges.
_MIN_SERIES: Final = 12.0


def gdp_delta(*, epsilon: float, mu: float) -> float:
    """Smallest delta for which mu-GDP implies (epsilon, delta)-DP; both arguments 0 or more.

    Relative error below 2e-11 for mu in [1e-3, 90].  ConfigError if an argument is negative or
    not finite.
    """
    _require("epsilon", epsilon)
    _require("mu", mu)
    if mu == 0.0:
        return 0.0
    z = epsilon / mu - mu / 2.0
    # Both terms as density times Mills ratio: exp(epsilon) alone would overflow past 709, and the
    # difference of two probabilities near 1 would cancel.
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    if z <= 0.0:
        return 0.5 * math.erfc(z / _SQRT2) - density * _mills(z + mu)
    return density * (_mills(z) - _mills(z + mu))


def gdp_epsilon(*, mu: float, delta: float) -> float:
    """Smallest epsilon for which mu-GDP implies (epsilon, delta)-DP; ConfigError as of `gdp_mu`."""
    _require("mu", mu)
    _require_delta(delta)
    if gdp_delta(epsilon=0.0, mu=mu) <= delta:
        return 0.0
    # The upper of the two neighbouring floats around the root: never too small.
    return _around_root(lambda epsilon: gdp_delta(epsilon=epsilon, mu=mu) > delta)[1]


def gdp_mu(*, epsilon: float, delta: float) -> float:
    """Largest mu for which mu-GDP implies (epsilon, delta)-DP.

    ConfigError if epsilon is negative or not finite, or delta is not between 0 and 1.
    """
    _require("epsilon", epsilon)
    _require_delta(delta)
    return _largest_mu(epsilon, delta)


# Planner, checks, progress and tuned constants all ask for the mu of the same budget.
@functools.lru_cache(maxsize=64)
def _largest_mu(epsilon: float, delta: float) -> float:
    # The lower of the two neighbouring floats around the root: never too large.
    return _around_root(lambda mu: gdp_delta(epsilon=epsilon, mu=mu) <= delta)[0]


def right_guesses(mu: float) -> float:
    """Share of even bets about mu-GDP releases that the best guesser wins: Phi(mu / 2)."""
    return 0.5 * math.erfc(-mu / 2.0 / _SQRT2)


def root_up(square: Fraction) -> float:
    """Smallest float that is not below the square root of `square`, to one step."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


def check_delta(delta: float, *, n_subjects: int) -> None:
    """Refuse a delta that would allow publishing one subject of the run.

    ConfigError from 1/M on (a random one of all M is (0, 1/M)-DP); PrivacyWarning above 1/(10 M).
    """
    _require_delta(delta)
    # As fractions: the float product could round down below the limit.
    exact = Fraction(delta) * n_subjects
    if exact >= 1:
        raise ConfigError(
            "E011",
            setting="delta",
            got=delta,
            allowed=f"less than 1/{n_subjects} (one over the number of subjects)",
            do="1e-5 is usual.",
        )
    if exact * 10 > 1:
        text = f"delta={delta} is more than a tenth of 1/{n_subjects} subjects; 1e-5 is usual"
        warnings.warn(text, PrivacyWarning, stacklevel=2)


def display_guesses(mu: float) -> str:
    """Return how many of 100 even bets are right at most, rounded up; with a tenth near 50."""
    percent = Decimal(repr(100.0 * right_guesses(mu)))
    step = Decimal("0.1") if percent < 55 else Decimal(1)
    return format(percent.quantize(step, rounding=ROUND_CEILING), "f")


def display_left(epsilon: float | None) -> str:
    """Return an epsilon that is left as text, rounded down: what is shown is not refused."""
    return display_epsilon(epsilon, rounding=ROUND_FLOOR)


def display_epsilon(
    epsilon: float | None, *, digits: int = 4, rounding: str = ROUND_CEILING
) -> str:
    """Epsilon as text, rounded up (.85404901: "0.8541"); None and inf are "infinite"."""
    if epsilon is None or math.isinf(epsilon):
        return "infinite"
    # repr, not the binary value: 0.1 is shown as 0.1, not rounded up to 0.1001.
    value = Decimal(repr(epsilon))
    if not value:
        return "0"
    step = Decimal(1).scaleb(value.adjusted() - digits + 1)
    return format(value.quantize(step, rounding=rounding), "f")


def _mills(x: float) -> float:
    """Mills ratio Phi(-x) / phi(x), x >= 0; without scipy.special, whose import delays a round."""
    if x < _MIN_SERIES:
        return math.sqrt(math.pi / 2.0) * math.exp(0.5 * x * x) * math.erfc(x / _SQRT2)
    # 1/x (1 - 1/x^2 + 3/x^4 - 15/x^6 + ...), stopped before its terms grow again.
    total, term, odd = 1.0, 1.0, 1
    while True:
        following = -term * odd / (x * x)
        if abs(following) < 1e-18 or abs(following) >= abs(term):
            return total / x
        total, term, odd = total + following, following, odd + 2


def _around_root(low_side: Callable[[float], bool]) -> tuple[float, float]:
    """Neighbouring floats above 0 between which `low_side` turns from true to false."""
    low, high = 0.0, 1.0
    while low_side(high):
        high *= 2.0
    while True:
        # Not (low + high) / 2, which could overflow; ends when no float lies between.
        middle = low + 0.5 * (high - low)
        if not low < middle < high:
            return low, high
        if low_side(middle):
            low = middle
        else:
            high = middle


def _require(setting: str, got: float) -> None:
    if not math.isfinite(got) or got < 0.0:
        raise ConfigError(
            "E011", setting=setting, got=got, allowed="finite, at least 0", do="correct it."
        )


def _require_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:  # written so that NaN is refused, too
        raise ConfigError(
            "E011", setting="delta", got=delta, allowed="between 0 and 1", do="1e-5 is usual."
        )
