"""Exact Gaussian differential privacy: mu to (epsilon, delta) and back, composition, views.

Unit: one subject; relation: replace one.  A release that adds N(0, s^2 I) to a statistic of L2
sensitivity Delta is mu-GDP with mu = Delta / s, s being the noise that the viewer cannot subtract
(Dong, Roth, Su, "Gaussian differential privacy", JRSS B 2022); it satisfies (epsilon, delta)-DP
for exactly the pairs with

    delta(epsilon; mu) = Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2)

(Balle and Wang, "Improving the Gaussian mechanism", ICML 2018, Theorem 8).  This is the only
accountant that decides anything.  The papers' own formulas are in `cape.papers.accountants`.
Written without scipy, because a round of the protocol must not wait for its import.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Final, Literal

from cape.errors import CapeWarning, ConfigError
from cape.frozen import dataclass
from cape.privacy.event import Event

Noise = Literal["correlated", "local"]

_SQRT2: Final = math.sqrt(2.0)
_SERIES_FROM: Final = 12.0
"""From here on the asymptotic series of the Mills ratio reaches 1e-18 before it diverges."""


def gdp_delta(*, epsilon: float, mu: float) -> float:
    """Return the smallest delta for which mu-GDP implies (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float
        0 or more.
    mu : float
        0 or more.

    Returns
    -------
    float
        Relative error below 2e-11 for mu in [1e-3, 90].

    Raises
    ------
    ConfigError
        If an argument is negative or not finite.
    """
    _require("epsilon", epsilon, least=0.0)
    _require("mu", mu, least=0.0)
    return _delta(epsilon, mu)


def gdp_epsilon(*, mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP implies (epsilon, delta)-DP.

    The upper one of the two neighbouring floats around the root, so never too small.

    Raises
    ------
    ConfigError
        If mu is negative or not finite, or delta is not between 0 and 1.
    """
    _require("mu", mu, least=0.0)
    _require_delta(delta)
    if _delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while _delta(high, mu) > delta:
        high *= 2.0
    return _bisect(0.0, high, lambda epsilon: _delta(epsilon, mu) > delta)[1]


def gdp_mu(*, epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta)-DP.

    The lower one of the two neighbouring floats around the root, so never too large.

    Raises
    ------
    ConfigError
        If epsilon is negative or not finite, or delta is not between 0 and 1.
    """
    _require("epsilon", epsilon, least=0.0)
    _require_delta(delta)
    return _largest_mu(epsilon, delta)


# Planner, checks, progress and tuned constants all ask for the mu of one and the same budget.
@functools.lru_cache(maxsize=64)
def _largest_mu(epsilon: float, delta: float) -> float:
    high = 1.0
    while _delta(epsilon, high) <= delta:
        high *= 2.0
    return _bisect(0.0, high, lambda mu: _delta(epsilon, mu) <= delta)[0]


def compose(*mus: float) -> float:
    """Return mu of several releases together, sqrt(sum mu_j^2), also for adaptive choices."""
    return math.hypot(*mus)


def analytic_gaussian_noise(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return the smallest noise std of one (epsilon, delta)-DP Gaussian release.

    Units of `sensitivity`.  Balle and Wang 2018, Algorithm 1 (here by bisection).
    """
    _require("sensitivity", sensitivity, least=0.0)
    return sensitivity / gdp_mu(epsilon=epsilon, delta=delta)


def classic_gaussian_noise(*, epsilon: float, delta: float, sensitivity: float) -> float:
    """Return sensitivity * sqrt(2 log(1.25/delta)) / epsilon, for comparison only.

    The papers calibrate with it (Dwork and Roth 2014, Theorem A.1).  It is 30 to 38 % too much
    noise for epsilon of 1 down to 0.5, and misses its own delta above epsilon of about 8.4 at
    delta = 1e-5.
    """
    _require("epsilon", epsilon, least=0.0, strict=True)
    _require("sensitivity", sensitivity, least=0.0)
    _require_delta(delta)
    return sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def root_up(square: Fraction) -> float:
    """Return the smallest float that is not below the square root of `square`, to one step."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root


@dataclass(frozen=True, kw_only=True, slots=True)
class Views:
    """Total epsilon at one delta against three viewers, for subjects of other sites.

    Attributes
    ----------
    outsider : float
        Sees the results and the decoded sums; knows nobody's noise share.
    one_site : float
        A curious site, which knows its own share.
    aggregator : float
        The aggregator with all assumed colluders: the headline.
    """

    outsider: float
    one_site: float
    aggregator: float


def view_mu2(mu2: Fraction, *, shares: int, unknown: int) -> Fraction:
    """Return mu^2 against a viewer who does not know `unknown` noise shares.

    `mu2` is what the ledger holds, where `shares` shares were taken as unknown.
    """
    if shares < 1 or unknown < 1:
        problem = "a view needs an unknown share"
        raise ConfigError("E232", problem=problem, do="pass 1 or more.")
    return mu2 * shares / unknown


def views(mu2: Fraction, *, delta: float, shares: int, n_sites: int, noise: Noise) -> Views:
    """Return total epsilon of the three views of a run.

    Parameters
    ----------
    mu2 : Fraction
        Spent or planned mu^2 as charged, i.e. for `shares` unknown shares.
    delta : float
        Total delta.
    shares : int
        h = t - S_C.
    n_sites : int
        Noise shares in every sum: S, or the least number of survivors t where sites may drop out.
    noise : {"correlated", "local"}
        "local": every site's release is seen alone, so all views are the charged one.

    Notes
    -----
    With one site nobody else could look: its view is then the headline.
    """
    if noise == "local":
        unknown = (shares, shares, shares)
    else:
        unknown = (n_sites, max(1, n_sites - 1), shares)
    outsider, one_site, aggregator = (
        gdp_epsilon(mu=root_up(view_mu2(mu2, shares=shares, unknown=n)), delta=delta)
        for n in unknown
    )
    return Views(outsider=outsider, one_site=one_site, aggregator=aggregator)


@dataclass(frozen=True, kw_only=True, slots=True)
class LatticeSlack:
    """What the discreteness of the noise may add to (epsilon, delta) of Gaussian DP."""

    epsilon: float
    delta: float


def lattice_slack(events: Iterable[Event]) -> LatticeSlack:
    """Bound the difference between discrete and rounded continuous noise over a whole run.

    Within 12 noise stds the masses differ by a factor of at most exp(kappa), kappa = sum over
    releases of 143 d / (24 h s2); beyond lies less than 4e-33 per entry.  A run that is mu-GDP by
    its ledger satisfies (epsilon + 2 kappa, delta + 4e-33 n).

    Returns
    -------
    LatticeSlack
        2 kappa and 4e-33 n; about 6e-9 and 1e-28 for a run of 43 releases.
    """
    kappa, entries = 0.0, 0
    for event in events:
        if not event.private:
            raise ConfigError("E234", what=event.name)
        kappa += 143 * event.size / (24 * event.shares * event.variance)
        entries += event.size
    return LatticeSlack(epsilon=2.0 * kappa, delta=4e-33 * entries)


def check_delta(delta: float, *, n_subjects: int) -> None:
    """Refuse a delta that would allow publishing one subject of the run.

    Parameters
    ----------
    delta : float
        Total delta.
    n_subjects : int
        M, all subjects of the run.

    Raises
    ------
    ConfigError
        If delta is 1/M or more.

    Warns
    -----
    CapeWarning
        If delta is above 1/(10 M).
    """
    _require_delta(delta)
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
        warnings.warn(text, CapeWarning, stacklevel=2)


def display_epsilon(epsilon: float | None, *, digits: int = 4) -> str:
    """Return epsilon as text, rounded up to significant digits; None and inf are "infinite".

    Examples
    --------
    >>> display_epsilon(0.85404901)
    '0.8541'
    """
    if epsilon is None or math.isinf(epsilon):
        return "infinite"
    value = Decimal(repr(epsilon))
    if not value:
        return "0"
    step = Decimal(1).scaleb(value.adjusted() - digits + 1)
    return format(value.quantize(step, rounding=ROUND_CEILING), "f")


def _delta(epsilon: float, mu: float) -> float:
    """Evaluate delta(epsilon; mu) without overflow and without cancellation at large epsilon."""
    if mu == 0.0:
        return 0.0
    z = epsilon / mu - mu / 2.0
    density = math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    if z <= 0.0:
        return 0.5 * math.erfc(z / _SQRT2) - density * _mills(z + mu)
    return density * (_mills(z) - _mills(z + mu))


def _mills(x: float) -> float:
    """Return the Mills ratio Phi(-x) / phi(x) for x >= 0."""
    if x < _SERIES_FROM:
        return math.sqrt(math.pi / 2.0) * math.exp(0.5 * x * x) * math.erfc(x / _SQRT2)
    total, term, odd = 1.0, 1.0, 1
    while True:
        following = -term * odd / (x * x)
        if abs(following) < 1e-18 or abs(following) >= abs(term):
            return total / x
        total, term, odd = total + following, following, odd + 2


def _bisect(low: float, high: float, low_side: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighbouring floats between which `low_side` turns from true to false."""
    while True:
        middle = low + 0.5 * (high - low)
        if not low < middle < high:
            return low, high
        if low_side(middle):
            low = middle
        else:
            high = middle


def _require(setting: str, got: float, *, least: float, strict: bool = False) -> None:
    """Raise ConfigError unless `got` is finite and at least (or above) `least`."""
    if not math.isfinite(got) or got < least or (strict and got == least):
        allowed = f"finite, {'more than' if strict else 'at least'} {least:g}"
        raise ConfigError("E011", setting=setting, got=got, allowed=allowed, do="correct it.")


def _require_delta(delta: float) -> None:
    """Raise ConfigError unless delta lies strictly between 0 and 1."""
    if not 0.0 < delta < 1.0:
        raise ConfigError(
            "E011", setting="delta", got=delta, allowed="between 0 and 1", do="1e-5 is usual."
        )
