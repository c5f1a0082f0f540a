"""The accountants of the papers behind one interface, and their formulas; for comparison only.

Runs use `cape.privacy.accounting.gdp_epsilon` alone.  It is exact, so `compare_accountants` shows
which other figures are too small.

mu is the Gaussian-DP parameter of all releases together, mu^2 = sum Delta_j^2 / sigma_j^2; in the
papers' notation mu^2 = J / sigma_RDP^2.  Printed: Imtiaz et al., Theorems 1 and 2, IV-A and
IV-B, Appendix G.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.papers.correlated import at_least, positive, printed_factor
from cape.privacy.accounting import gdp_epsilon, root_up
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
        """Return J rounds of equal releases; `mu` is the total of one round."""
        # Imtiaz et al., Alg. 4, makes two releases a round (weights and bias).
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


# -- formulas ------------------------------------------------------------------------------------


def rdp_epsilon(mu: float, delta: float) -> float:
    """Return mu^2/2 + mu sqrt(2 log(1/delta)): RDP, simple conversion (Imtiaz et al., IV-A)."""
    _check(mu, delta)
    # alpha mu^2 / 2 + log(1/delta) / (alpha - 1) at its best order, alpha = 1 + sqrt(2
    # log(1/delta)) / mu.
    return mu**2 / 2.0 + mu * math.sqrt(-2.0 * math.log(delta))


def moments_epsilon(mu: float, delta: float) -> float:
    """Return the larger root of e^2/(2 mu^2) - e/2 + mu^2/8 + log delta = 0."""
    # Imtiaz et al., Appendix G, with the sign worked out.
    # log delta = min over t of mu^2/2 (t + t^2) - t e is reached at t = e/mu^2 - 1/2 and is
    # -mu^2/2 (e/mu^2 - 1/2)^2, whose linear term is e/2.
    return _quadratic(mu, delta, linear=0.5)


def moments_epsilon_printed(mu: float, delta: float) -> float:
    """Return the larger root of the equation as printed, with -e in place of -e/2."""
    return _quadratic(mu, delta, linear=1.0)


def tail_delta(epsilon: float, mu: float) -> float:
    """Return 2 phi(u)/u at u = (epsilon - mu^2/2)/mu, at most 1 (Imtiaz et al., Theorem 1)."""
    # A valid, two-sided bound on the probability that the privacy loss (mean mu^2/2, standard
    # deviation mu) exceeds epsilon.
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


# -- accountants ---------------------------------------------------------------------------------


# Relative; the tested accuracy of the exact accountant
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountedTotal:
    """Total (epsilon, delta) by one accountant.

    epsilon is None if the accountant does not apply, its delta is 1 or more, or its epsilon is
    infinite.  Some accountants fix their own delta.
    """

    epsilon: float | None
    delta: float


TotalFormula = Callable[[Releases, float], AccountedTotal]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accountant:
    """A way to total up releases."""

    name: str  # in options and JSON
    title: str
    assumes: str
    total: TotalFormula


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRow:
    """An accountant's total beside the exact one; `exact` and `holds` are None without a figure."""

    accountant: Accountant
    total: AccountedTotal
    exact: float | None  # epsilon of the releases at the delta of `total`
    holds: bool | None  # whether epsilon of `total` is at least the exact one


def compare_accountants(releases: Releases, *, delta: float) -> tuple[ComparisonRow, ...]:
    """Return the totals of all accountants; ConfigError unless delta is between 0 and 1."""
    rows = []
    for accountant in ACCOUNTANTS.values():
        total = accountant.total(releases, delta)
        exact, holds = None, None
        # Compare at the accountant's own delta: only then do both figures mean the same promise.
        if total.epsilon is not None:
            exact = gdp_epsilon(mu=releases.mu, delta=total.delta)
            holds = total.epsilon >= exact * (1.0 - _TOLERANCE)
        rows.append(ComparisonRow(accountant=accountant, total=total, exact=exact, holds=holds))
    return tuple(rows)


def _of_mu(formula: Callable[[float, float], float]) -> TotalFormula:

    def total(releases: Releases, delta: float) -> AccountedTotal:
        return _stated(formula(releases.mu, delta), delta)

    return total


def _strong(releases: Releases, delta: float) -> AccountedTotal:
    each = delta / (2.0 * releases.count)
    parts = [(gdp_epsilon(mu=root_up(mu2), delta=each), n) for mu2, n in releases.groups]
    return _stated(strong_composition(parts, slack=delta / 2.0), delta)


def _strong_printed(releases: Releases, delta: float) -> AccountedTotal:
    spent = releases.count * releases.release_delta + delta
    return _stated(strong_composition(_printed_epsilons(releases), slack=delta), spent)


def _theorem_2(releases: Releases, _: float) -> AccountedTotal:
    total = math.fsum(epsilon * n for epsilon, n in _printed_epsilons(releases))
    return _stated(total, releases.count * releases.release_delta)


def _theorem_1_printed(releases: Releases, delta: float) -> AccountedTotal:
    """Return the tail bound with f of eq. (1); no figure where f is negative or undefined."""
    nothing = AccountedTotal(epsilon=None, delta=delta)
    if (sites := releases.sites) is None:
        return nothing
    f = printed_factor(n_sites=sites.n_sites, colluders=sites.colluders)
    if f is None or f <= 0:
        return nothing
    return _stated(tail_epsilon(root_up(releases.mu2 * f / sites.factor), delta), delta)


def _printed_epsilons(releases: Releases) -> list[tuple[float, int]]:
    # The papers calibrate a site's noise tau_s for (epsilon_i, delta_i).  Against an outsider mu is
    # Delta / tau_s: divide by the factor of the viewer.
    f = Fraction(1) if releases.sites is None else releases.sites.factor
    delta = releases.release_delta
    return [(classic_epsilon(root_up(mu2 / f), delta), n) for mu2, n in releases.groups]


def _stated(epsilon: float, delta: float) -> AccountedTotal:
    # Every mechanism satisfies DP with delta of 1 or more.
    is_bound = math.isfinite(epsilon) and delta < 1.0
    return AccountedTotal(epsilon=epsilon if is_bound else None, delta=delta)


# In the order of the table: the exact one, valid ones from tight to loose, failing ones
_TOTALS: Final[Mapping[str, TotalFormula]] = {
    "gdp": _of_mu(lambda mu, delta: gdp_epsilon(mu=mu, delta=delta)),
    "rdp": _of_mu(rdp_epsilon),
    "moments": _of_mu(moments_epsilon),
    "moments-printed": _of_mu(moments_epsilon_printed),
    "strong": _strong,
    "theorem-1-printed": _theorem_1_printed,
    "strong-printed": _strong_printed,
    "theorem-2": _theorem_2,
}
_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ACCOUNTANTS: Final = {
    name: Accountant(name=name, total=total, **_TEXTS[name]) for name, total in _TOTALS.items()
}
