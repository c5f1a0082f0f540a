"""The accountants of the papers and others behind one interface; for comparison only.

Runs use `cape.privacy.accounting.gdp_epsilon` alone.  It is exact, so `compare_accountants` shows
which other figures are too small.

Printed: Imtiaz et al., Theorems 1 and 2, Sections IV-A and IV-B, Appendices F and G.  The analytic
calibration is that of Balle and Wang 2018; `cape.papers.formulas` names the other sources.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class PaperDeltas:
    """Deltas of three schemes with the accuracy of pooled data (Imtiaz et al., App. F, Fig. 5)."""

    epsilon: float
    colluders: int  # S_C
    noise: float  # tau_s N_s
    pooled_classic: float  # pooled data by the classic formula, as in the papers
    cape_printed: float | None  # Theorem 1 as printed; None where eq. (1) is not positive
    # Exact, in rising order
    pooled: float
    cape: float
    conventional: float


def paper_deltas(*, epsilon: float, n_sites: int, colluders: int, noise: float) -> PaperDeltas:
    """Return the deltas of Fig. 5 for one noise level.

    `noise` is tau_s N_s > 0, the noise std of one site over its sensitivity 1/N_s.  The noise std
    is tau_s / S for pooled data and tau_s / sqrt(S) for the conventional scheme.
    """
    one = 1.0 / positive("noise", noise)
    printed = _printed_or_none(n_sites, colluders)
    # At least the delta of pooled data, whose release follows from the messages of CAPE.
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


def _of_mu(formula: Callable[[float, float], float]) -> TotalFormula:

    def total(releases: Releases, delta: float) -> AccountedTotal:
        return _stated(formula(releases.mu, delta), delta)

    return total


def _exact(mu: float, delta: float) -> float:
    return gdp_epsilon(mu=mu, delta=delta)


def _analytic(mu: float, delta: float) -> float:
    """Return epsilon of the analytic calibration that needs the noise 1/mu."""
    return crossing(lambda epsilon: gdp_mu(epsilon=epsilon, delta=delta) < mu)


def _basic(releases: Releases, delta: float) -> AccountedTotal:
    # The theorem leaves the split of delta open; equal parts are usual.
    each = delta / releases.count
    parts = ((gdp_epsilon(mu=root_up(mu2), delta=each), n) for mu2, n in releases.groups)
    return _stated(basic_composition(parts), delta)


def _strong(releases: Releases, delta: float) -> AccountedTotal:
    each = delta / (2.0 * releases.count)
    parts = [(gdp_epsilon(mu=root_up(mu2), delta=each), n) for mu2, n in releases.groups]
    return _stated(strong_composition(parts, slack=delta / 2.0), delta)


def _strong_printed(releases: Releases, delta: float) -> AccountedTotal:
    spent = releases.count * releases.release_delta + delta
    return _stated(strong_composition(_printed_epsilons(releases), slack=delta), spent)


def _theorem_2(releases: Releases, _: float) -> AccountedTotal:
    spent = releases.count * releases.release_delta
    return _stated(basic_composition(_printed_epsilons(releases)), spent)


def _theorem_1_printed(releases: Releases, delta: float) -> AccountedTotal:
    """Return the tail bound with f of eq. (1); no figure where f is negative or undefined."""
    sites = releases.sites
    f = None if sites is None else _printed_or_none(sites.n_sites, sites.colluders)
    if sites is None or f is None:
        return AccountedTotal(epsilon=None, delta=delta)
    return _stated(tail_epsilon(root_up(releases.mu2 * f / sites.factor), delta), delta)


def _printed_or_none(n_sites: int, colluders: int) -> Fraction | None:
    """Return f of eq. (1); None if it is not positive."""
    f = printed_factor(n_sites=n_sites, colluders=colluders)
    return f if f is not None and f > 0 else None


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
