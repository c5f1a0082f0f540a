"""Every accountant of the papers, and some others, behind one interface; for comparison only.

`cape.privacy.accounting.gdp_epsilon` is the only accountant that decides anything.  It is exact, so
`compare_accountants` can say of each figure whether it is smaller than what the releases really
give at its delta.

Printed: Imtiaz et al., Theorems 1 and 2, Sections IV-A and IV-B, Appendices F and G.  The other
sources stand at the formulas; the analytic calibration is that of Balle and Wang 2018.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Final

from cape.frozen import dataclass
from cape.papers.correlated import positive, printed_factor, view_factor
from cape.papers.formulas import (
    Releases,
    basic_composition,
    classic_delta,
    classic_epsilon,
    crossing,
    moments_epsilon,
    moments_epsilon_printed,
    rdp_epsilon,
    rdp_epsilon_improved,
    strong_composition,
    tail_delta,
    tail_epsilon,
    zcdp_epsilon,
)
from cape.privacy.accounting import gdp_delta, gdp_epsilon, gdp_mu, root_up

# Relative; the accuracy that the exact accountant is tested to.
_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """What an accountant says.

    epsilon is None where it says nothing: it does not apply, or its delta is 1 or more, or its
    epsilon is infinite.  delta is the one in question, except where the accountant fixes its own.
    """

    epsilon: float | None
    delta: float


Total = Callable[[Releases, float], Claim]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accountant:
    """A way to total up releases: for options and JSON, for people, what it rests on, the sum."""

    name: str
    title: str
    assumes: str
    total: Total


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparisonRow:
    """An accountant's figure, next to the epsilon that the releases really give at its delta.

    `holds`: the figure is at least the exact one.  Both None without a figure.
    """

    accountant: Accountant
    total: Claim
    exact: float | None
    holds: bool | None


def compare_accountants(releases: Releases, *, delta: float) -> tuple[ComparisonRow, ...]:
    """Return what all accountants say about releases as one viewer sees them.

    ConfigError unless delta is between 0 and 1.
    """
    exact_mu = releases.mu
    rows = []
    for accountant in ACCOUNTANTS.values():
        total = accountant.total(releases, delta)
        exact, holds = None, None
        # The exact figure is taken at the delta that the accountant fixes, or the two would not
        # be about the same promise.
        if total.epsilon is not None:
            exact = gdp_epsilon(mu=exact_mu, delta=total.delta)
            holds = total.epsilon >= exact * (1.0 - _TOLERANCE)
        rows.append(ComparisonRow(accountant=accountant, total=total, exact=exact, holds=holds))
    return tuple(rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperDeltas:
    """Delta of three schemes as accurate as pooled data (Imtiaz et al., Appendix F, Fig. 5)."""

    epsilon: float
    colluders: int  # S_C
    noise: float  # tau_s N_s
    pooled_classic: float  # pooled data, classic formula: what the papers compare with
    # CAPE by Theorem 1 as printed; None where eq. (1) is negative or undefined.
    cape_printed: float | None
    # Exact, and always in this order
    pooled: float
    cape: float
    conventional: float


def paper_deltas(*, epsilon: float, n_sites: int, colluders: int, noise: float) -> PaperDeltas:
    """Return the deltas of Fig. 5 for one noise level.

    `noise` is tau_s N_s > 0, the noise std that a site asks for over the sensitivity 1/N_s.  Pooled
    data have tau_s / S, the conventional scheme needs tau_s / sqrt(S) at each site.
    """
    one = 1.0 / positive("noise", noise)
    printed = _printed_or_none(n_sites, colluders)
    # Never less than for pooled data: the pooled release can be computed from what CAPE shows.
    right = view_factor(n_sites=n_sites, colluders=colluders, ratio=n_sites)
    return PaperDeltas(
        epsilon=epsilon,
        colluders=colluders,
        noise=noise,
        pooled_classic=min(1.0, classic_delta(epsilon, one)),
        cape_printed=None if printed is None else tail_delta(epsilon, one * math.sqrt(printed)),
        pooled=gdp_delta(epsilon=epsilon, mu=one),
        cape=gdp_delta(epsilon=epsilon, mu=one * math.sqrt(right)),
        conventional=gdp_delta(epsilon=epsilon, mu=one * math.sqrt(n_sites)),
    )


def _of_mu(formula: Callable[[float, float], float]) -> Total:

    def total(releases: Releases, delta: float) -> Claim:
        return _stated(formula(releases.mu, delta), delta)

    return total


def _exact(mu: float, delta: float) -> float:
    return gdp_epsilon(mu=mu, delta=delta)


def _analytic(mu: float, delta: float) -> float:
    """Return epsilon of the analytic calibration that needs the noise 1/mu."""
    return crossing(lambda epsilon: gdp_mu(epsilon=epsilon, delta=delta) < mu)


def _basic(releases: Releases, delta: float) -> Claim:
    # Equal parts of delta: the theorem leaves the split open, and this is what people do.
    each = delta / releases.count
    parts = ((gdp_epsilon(mu=root_up(mu2), delta=each), n) for mu2, n in releases.groups)
    return _stated(basic_composition(parts), delta)


def _strong(releases: Releases, delta: float) -> Claim:
    each = delta / (2.0 * releases.count)
    parts = [(gdp_epsilon(mu=root_up(mu2), delta=each), n) for mu2, n in releases.groups]
    return _stated(strong_composition(parts, slack=delta / 2.0), delta)


def _strong_printed(releases: Releases, delta: float) -> Claim:
    spent = releases.count * releases.release_delta + delta
    return _stated(strong_composition(_printed_epsilons(releases), slack=delta), spent)


def _theorem_2(releases: Releases, _: float) -> Claim:
    spent = releases.count * releases.release_delta
    return _stated(basic_composition(_printed_epsilons(releases)), spent)


def _theorem_1_printed(releases: Releases, delta: float) -> Claim:
    """Return the tail bound with f of eq. (1); nothing where f is negative or undefined."""
    sites = releases.sites
    f = None if sites is None else _printed_or_none(sites.n_sites, sites.colluders)
    if sites is None or f is None:
        return Claim(epsilon=None, delta=delta)
    return _stated(tail_epsilon(root_up(releases.mu2 * f / sites.factor), delta), delta)


def _printed_or_none(n_sites: int, colluders: int) -> Fraction | None:
    """Return f of eq. (1); None where it is no positive number."""
    f = printed_factor(n_sites=n_sites, colluders=colluders)
    return f if f is not None and f > 0 else None


def _printed_epsilons(releases: Releases) -> list[tuple[float, int]]:
    # The papers calibrate a site's noise tau_s for (epsilon_i, delta_i); mu of a release against an
    # outsider is Delta / tau_s, so the factor of the viewer is taken out again.
    f = Fraction(1) if releases.sites is None else releases.sites.factor
    delta = releases.release_delta
    return [(classic_epsilon(root_up(mu2 / f), delta), n) for mu2, n in releases.groups]


def _stated(epsilon: float, delta: float) -> Claim:
    # With delta 1 or more every mechanism is "private": that says nothing.
    says_something = math.isfinite(epsilon) and delta < 1.0
    return Claim(epsilon=epsilon if says_something else None, delta=delta)


# In the order of the table: the exact one, valid ones from tight to loose, those that fail.
_TOTALS: Final[Mapping[str, Total]] = {
    "gdp": _of_mu(_exact),
    "analytic": _of_mu(_analytic),
    "rdp-improved": _of_mu(rdp_epsilon_improved),
    "tail-bound": _of_mu(tail_epsilon),
    "rdp": _of_mu(rdp_epsilon),
    "zcdp": _of_mu(zcdp_epsilon),
    "moments": _of_mu(moments_epsilon),
    "moments-printed": _of_mu(moments_epsilon_printed),
    "classic": _of_mu(classic_epsilon),
    "strong": _strong,
    "basic": _basic,
    "theorem-1-printed": _theorem_1_printed,
    "strong-printed": _strong_printed,
    "theorem-2": _theorem_2,
}
_TEXTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ACCOUNTANTS: Final = {
    name: Accountant(name=name, total=total, **_TEXTS[name]) for name, total in _TOTALS.items()
}
