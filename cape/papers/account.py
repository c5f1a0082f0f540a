"""Totals of the papers' accountants for the releases of a run, as a table or JSON.

No decision depends on them: runs are planned and refused by exact Gaussian DP alone.
"""

import math
from dataclasses import asdict, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from cape.cli.common import say, table
from cape.cli.privacy_check import no_privacy_file, read_privacy_file
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.papers import accountants
from cape.papers.correlated import paper_colluders, positive, view_factor
from cape.privacy.accounting import display_epsilon
from cape.privacy.ledger import read_entries
from cape.report.privacy_json import PrivacyStatement

DELTA = 1e-5

# Characters of an epsilon in the table; longer ones are written with an exponent.
_MAX_CHARACTERS = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Releases, and the delta to account for."""

    releases: (
        accountants.Releases | None
    )  # as the headline viewer sees them; None without a promise
    delta: float  # total
    source: str  # of the releases, for people


def from_ledger(path: Path, *, delta: float | None) -> Account:
    """Read the charged releases of a privacy.json; `delta` None: the file's own.

    ConfigError for another file, PrivacyBudgetError for a broken chain of entries.
    """
    stated = read_privacy_file(path)
    releases = None
    if stated.private:
        events = read_entries(stated.ledger.entries, head=stated.ledger.head)
        sites = _noise_sharers(stated, path)
        releases = accountants.Releases.of((event.cost for event in events), sites=sites)
        if not math.isfinite(releases.mu):
            raise no_privacy_file(path, "mu of all releases is not finite")
    return Account(
        releases=releases, delta=stated.delta if delta is None else delta, source=str(path)
    )


def _noise_sharers(stated: PrivacyStatement, path: Path) -> accountants.NoiseSharers | None:
    """Return the sites that share the noise; None for local noise."""
    t, colluders = stated.min_survivors, stated.assumed_colluders
    if not 0 <= colluders < t <= stated.n_sites:
        raise no_privacy_file(path, "n_sites, min_survivors or assumed_colluders")
    if stated.noise == "local":
        return None
    # An outsider knows no share of the noise, the aggregator knows those of its colluders.
    factor = Fraction(t, t - colluders)
    return accountants.NoiseSharers(n_sites=stated.n_sites, colluders=colluders, factor=factor)


def account_of_rounds(
    *,
    mu: float | None = None,
    noise_multiplier: float | None = None,
    rounds: int,
    per_round: int,
    n_sites: int | None = None,
    colluders: int | None = None,
    ratio: float = math.inf,
    delta: float | None = None,
    release_delta: float = accountants.PAPER_RELEASE_DELTA,
) -> Account:
    """Return an account of J rounds of equal cost; ConfigError for contradictions.

    Give `mu` of a round against the viewer, or `noise_multiplier`, the noise std of the sum over
    its sensitivity: mu = sqrt(f) / multiplier.  Without S the viewer is an outsider, f = 1.
    `ratio` is r of the zero-sum noise, inf for the secure sum; `release_delta` is delta_i of the
    papers' per-release calibration.
    """
    sites = None
    if n_sites is not None:
        c = default_colluders(n_sites) if colluders is None else colluders
        f = view_factor(n_sites=n_sites, colluders=c, ratio=ratio)
        sites = accountants.NoiseSharers(n_sites=n_sites, colluders=c, factor=f)
    elif colluders is not None or ratio != math.inf:
        problem = "colluders or ratio without sites"
        raise ConfigError("E012", problem=problem, do="pass --sites too.")
    if mu is None:
        noise_std = positive("noise-multiplier", noise_multiplier or 0.0)
        mu = math.sqrt(1 if sites is None else sites.factor) / noise_std
    releases = accountants.Releases.repeated(mu, rounds=rounds, per_round=per_round, sites=sites)
    return Account(
        releases=replace(releases, release_delta=release_delta),
        delta=DELTA if delta is None else delta,
        source=f"{rounds} rounds of {per_round}" if per_round > 1 else f"{rounds} rounds",
    )


def default_colluders(n_sites: int) -> int:
    # As in the settings of a run: max(1, ceil(S/3) - 1), and 0 for one site.
    return min(n_sites - 1, max(1, paper_colluders(n_sites)))


def as_document(case: Account) -> dict[str, object]:
    # epsilon and holds are null where an accountant gives no figure.
    releases = case.releases
    head = {"event": "result", "private": releases is not None, "delta": case.delta}
    if releases is None:
        return {**head, "accountants": []}
    sites = releases.sites
    viewer = sites and {
        "sites": sites.n_sites,
        "colluders": sites.colluders,
        "factor": float(sites.factor),
    }
    return {
        **head,
        "releases": releases.count,
        "mu": releases.mu,
        "zcdp_rho": releases.mu**2 / 2.0,
        "viewer": viewer,
        "accountants": [
            {
                "name": row.accountant.name,
                "title": row.accountant.title,
                "assumes": row.accountant.assumes,
                **asdict(row.total),
                "exact": row.exact,
                "holds": row.holds,
            }
            for row in accountants.compare_accountants(releases, delta=case.delta)
        ],
    }


def print_table(case: Account) -> None:
    releases = case.releases
    if releases is None:
        text = f"NOT PRIVATE: {case.source} promises nothing; epsilon is infinite under every "
        say(text + "accountant.", style="bold red")
        return
    # Compute all rows before printing: an error must not follow half a table.
    rows = accountants.compare_accountants(releases, delta=case.delta)
    say(
        f"{case.source}: {releases.count} releases, mu {releases.mu:.6g} in all, "
        f"zCDP rho {releases.mu**2 / 2.0:.6g}, asked delta {case.delta:g}"
    )
    say("")
    columns = ("accountant", "epsilon", "at delta", "exact there", "against exact")
    table("Total epsilon by every accountant; only the first decides", columns, map(_cells, rows))
    for row in rows:
        too_small = row.holds is False
        say(f"{row.accountant.title}: {row.accountant.assumes}", style="red" if too_small else "")


def _cells(row: accountants.ComparisonRow) -> tuple[str, ...]:
    title, epsilon, delta = row.accountant.title, row.total.epsilon, f"{row.total.delta:.3g}"
    if epsilon is None or row.exact is None:
        return title, "none", delta, "-", "says nothing"
    if row.holds is False:
        against = "TOO SMALL"
    elif row.exact == 0.0:
        against = "valid"
    else:
        against = f"x {max(1.0, epsilon / row.exact):.4g}"
    return title, _epsilon(epsilon), delta, _epsilon(row.exact), against


def _epsilon(epsilon: float) -> str:
    # In full, the epsilon of mu 1e-12 would have seventy zeros.
    text = display_epsilon(epsilon, digits=6)
    return f"{Decimal(text):.6g}" if len(text) > _MAX_CHARACTERS else text
