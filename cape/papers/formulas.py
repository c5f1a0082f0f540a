"""Formulas of `cape.papers.accountants`, and the releases that they account for.

mu is the Gaussian-DP parameter of all releases together, mu^2 = sum Delta_j^2 / sigma_j^2; in the
papers' notation mu^2 = J / sigma_RDP^2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Final

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.papers.correlated import at_least, positive
from cape.privacy.accounting import root_up
from cape.privacy.cost import Cost, total_cost
from cape.settings.option import out_of_range

# delta_i of the per-release calibration in the papers' experiments
PAPER_RELEASE_DELTA: Final = 0.01

# exp overflows above
_MAX_EXPONENT: Final = 700.0


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseSharers:
    """Sites that share the noise; only the printed accountants use them."""

    n_sites: int  # S
    colluders: int  # S_C
    factor: Fraction  # f in the charge of a release: `cape.papers.correlated.view_factor`


@dataclass(frozen=True, kw_only=True, slots=True)
class Releases:
    """Gaussian releases of one run, as one viewer sees them."""

    groups: tuple[tuple[Fraction, int], ...]  # mu^2 of a release, number of such releases
    sites: NoiseSharers | None = None  # if known
    # delta_i, for accountants with a fixed delta per release
    release_delta: float = PAPER_RELEASE_DELTA

    def __post_init__(self) -> None:
        """Check that there are releases and that all have noise."""
        if not self.groups or any(mu2 <= 0 or n < 1 for mu2, n in self.groups):
            problem = "no releases, or one without a positive mu"
            raise ConfigError("E232", problem=problem, do="pass one release at least.")
        if not 0.0 < self.release_delta < 1.0:
            raise out_of_range("release_delta", self.release_delta, "between 0 and 1")

    @classmethod
    def of(cls, costs: Iterable[Cost], *, sites: NoiseSharers | None = None) -> Releases:
        """Return releases from their costs, each rounded up to a multiple of 2^-256."""
        rounded = [total_cost((cost,)).mu2 for cost in costs]
        # The constructor refuses mu^2 = 0, which stands for a release without noise.
        return cls(groups=tuple((mu2 or Fraction(0), 1) for mu2 in rounded), sites=sites)

    @classmethod
    def repeated(
        cls, mu: float, *, rounds: int, per_round: int = 1, sites: NoiseSharers | None = None
    ) -> Releases:
        """Return J rounds of equal releases; `mu` is the total of one round.

        Imtiaz et al., Alg. 4, makes two releases a round (weights and bias).
        """
        count = at_least("rounds", rounds, 1) * at_least("per_round", per_round, 1)
        mu2 = Fraction(positive("mu", mu)) ** 2
        return cls(groups=((mu2 / per_round, count),), sites=sites)

    @property
    def count(self) -> int:
        return sum(n for _, n in self.groups)

    @property
    def mu2(self) -> Fraction:
        return sum((mu2 * n for mu2, n in self.groups), Fraction(0))

    @property
    def mu(self) -> float:
        """Return the root of `mu2`, rounded up."""
        return root_up(self.mu2)


def rdp_epsilon(mu: float, delta: float) -> float:
    """Return mu^2/2 + mu sqrt(2 log(1/delta)): RDP, simple conversion (Imtiaz et al., IV-A)."""
    _check(mu, delta)
    # alpha mu^2 / 2 + log(1/delta) / (alpha - 1) at its best order, alpha = 1 + sqrt(2
    # log(1/delta)) / mu.
    return mu**2 / 2.0 + mu * math.sqrt(-2.0 * math.log(delta))


def moments_epsilon(mu: float, delta: float) -> float:
    """Return the larger root of e^2/(2 mu^2) - e/2 + mu^2/8 + log delta = 0.

    Imtiaz et al., Appendix G, with the sign worked out.
    """
    # log delta = min over t of mu^2/2 (t + t^2) - t e is reached at t = e/mu^2 - 1/2 and is
    # -mu^2/2 (e/mu^2 - 1/2)^2, whose linear term is e/2.
    return _quadratic(mu, delta, linear=0.5)


def moments_epsilon_printed(mu: float, delta: float) -> float:
    """Return the larger root of the equation as printed, with -e in place of -e/2."""
    return _quadratic(mu, delta, linear=1.0)


def tail_delta(epsilon: float, mu: float) -> float:
    """Return 2 phi(u)/u at u = (epsilon - mu^2/2)/mu, at most 1 (Imtiaz et al., Theorem 1).

    A valid, two-sided bound on the probability that the privacy loss (mean mu^2/2, standard
    deviation mu) exceeds epsilon.
    """
    u = (epsilon - positive("mu", mu) ** 2 / 2.0) / mu
    # The bound is trivial below the mean of the loss.
    if u <= 0.0:
        return 1.0
    return min(1.0, _tail(u))


def tail_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon for which `tail_delta` is delta: mu^2/2 + u mu with 2 phi(u)/u = delta."""
    _check(mu, delta)
    return mu**2 / 2.0 + crossing(lambda u: _tail(u) > delta) * mu


def classic_epsilon(mu: float, delta: float) -> float:
    """Return mu sqrt(2 log(1.25/delta)) (Dwork and Roth 2014, Theorem A.1, solved for epsilon)."""
    _check(mu, delta)
    return mu * math.sqrt(2.0 * math.log(1.25 / delta))


def strong_composition(parts: Iterable[tuple[float, int]], *, slack: float) -> float:
    """Return epsilon of strong composition; its delta is sum n_i delta_i + slack.

    sqrt(2 log(1/delta') sum n_i e_i^2) + sum n_i e_i (exp(e_i) - 1), Dwork, Rothblum, Vadhan 2010
    (equal parts: e sqrt(2 k log(1/delta')) + k e (exp(e) - 1)).
    Parts are (epsilon_i, n_i); `slack` is delta', between 0 and 1.
    """
    _check(0.0, slack)
    squares, means = [], []
    for epsilon, n in parts:
        if epsilon > _MAX_EXPONENT:
            return math.inf
        squares.append(n * epsilon**2)
        means.append(n * epsilon * math.expm1(epsilon))
    return math.sqrt(-2.0 * math.log(slack) * math.fsum(squares)) + math.fsum(means)


def crossing(low_side: Callable[[float], bool]) -> float:
    """Return the smallest float x > 0, by bisection, at which `low_side` is false."""
    low, high = 0.0, 1.0
    while low_side(high):
        low, high = high, 2.0 * high
    while low < (x := low + 0.5 * (high - low)) < high:
        low, high = (x, high) if low_side(x) else (low, x)
    return high


def _quadratic(mu: float, delta: float, *, linear: float) -> float:
    _check(mu, delta)
    # Times 2 mu^2: e^2 - 2 linear mu^2 e + mu^4/4 + 2 mu^2 log delta = 0.
    half = linear * mu**2
    return half + math.sqrt(half**2 - mu**4 / 4.0 - 2.0 * mu**2 * math.log(delta))


def _tail(u: float) -> float:
    return 2.0 * math.exp(-0.5 * u * u) / (math.sqrt(2.0 * math.pi) * u)


def _check(mu: float, delta: float) -> None:
    if not (math.isfinite(mu) and mu >= 0.0):
        raise out_of_range("mu", mu, "finite, 0 or more")
    if not 0.0 < delta < 1.0:
        raise out_of_range("delta", delta, "between 0 and 1")
