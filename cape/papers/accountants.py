"""The accountants of the papers behind one interface; for comparison only.

Runs use `cape.privacy.accounting.gdp_epsilon` alone.  It is exact, so `compare_accountants` shows
which other figures are too small.

Printed: Imtiaz et al., Theorems 1 and 2, Sections IV-A and IV-B, Appendix G.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

from cape.frozen import dataclass
from cape.papers.correlated import printed_factor
from cape.papers.formulas import (
    Releases,
    classic_epsilon,
    moments_epsilon,
    moments_epsilon_printed,
    rdp_epsilon,
    strong_composition,
    tail_epsilon,
)
from cape.privacy.accounting import gdp_epsilon, root_up

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


def _exact(mu: float, delta: float) -> float:
    return gdp_epsilon(mu=mu, delta=delta)


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
    "gdp": _of_mu(_exact),
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
