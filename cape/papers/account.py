"""Totals of all accountants for the releases of a run, as a table, JSON or a picture.

No decision depends on them: runs are planned and refused by exact Gaussian DP alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from cape.cli.common import say, table
from cape.cli.privacy_check import no_privacy_file, read_privacy_file
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.papers.accountants import (
    ACCOUNTANTS,
    ComparisonRow,
    PaperDeltas,
    compare_accountants,
    paper_deltas,
)
from cape.papers.correlated import paper_colluders, positive, view_factor
from cape.papers.formulas import PAPER_RELEASE_DELTA, NoiseSharers, Releases
from cape.privacy.accounting import display_epsilon
from cape.privacy.ledger import read_entries
from cape.report.privacy_json import PrivacyStatement
from cape.settings.option import out_of_range

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DELTA = 1e-5

# Characters of an epsilon in the table; longer ones are written with an exponent.
_MAX_CHARACTERS = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Releases, and the delta to account for."""

    releases: Releases | None  # as the headline viewer sees them; None without a promise
    delta: float  # total
    per_round: int  # releases in a round, for the plot; 1 for a ledger
    unit: str  # of the plot's x axis: releases or rounds
    source: str  # of the releases, for people


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureFive:
    """Deltas of Imtiaz et al., Fig. 5, against the noise and against S_C."""

    by_noise: tuple[PaperDeltas, ...]
    by_colluders: tuple[PaperDeltas, ...]

    @property
    def rows(self) -> tuple[PaperDeltas, ...]:
        return self.by_noise + self.by_colluders


# -- cases ---------------------------------------------------------------------------------------


def from_ledger(path: Path, *, delta: float | None) -> Account:
    """Read the charged releases of a privacy.json; `delta` None: the file's own.

    ConfigError for another file, PrivacyBudgetError for a broken chain of entries.
    """
    stated = read_privacy_file(path)
    releases = None
    if stated.private:
        events = read_entries(stated.ledger.entries, head=stated.ledger.head)
        sites = _noise_sharers(stated, path)
        releases = Releases.of((event.cost for event in events), sites=sites)
        if not math.isfinite(releases.mu):
            raise no_privacy_file(path, "mu of all releases is not finite")
    return Account(
        releases=releases,
        delta=stated.delta if delta is None else delta,
        per_round=1,
        unit="releases",
        source=str(path),
    )


def _noise_sharers(stated: PrivacyStatement, path: Path) -> NoiseSharers | None:
    """Return the sites that share the noise; None for local noise."""
    t, colluders = stated.min_survivors, stated.assumed_colluders
    if not 0 <= colluders < t <= stated.n_sites:
        raise no_privacy_file(path, "n_sites, min_survivors or assumed_colluders")
    if stated.noise == "local":
        return None
    # An outsider knows no share of the noise, the aggregator knows those of its colluders.
    factor = Fraction(t, t - colluders)
    return NoiseSharers(n_sites=stated.n_sites, colluders=colluders, factor=factor)


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
    release_delta: float = PAPER_RELEASE_DELTA,
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
        sites = NoiseSharers(n_sites=n_sites, colluders=c, factor=f)
    elif colluders is not None or ratio != math.inf:
        problem = "colluders or ratio without sites"
        raise ConfigError("E012", problem=problem, do="pass --sites too.")
    if mu is None:
        noise_std = positive("noise-multiplier", noise_multiplier or 0.0)
        mu = math.sqrt(1 if sites is None else sites.factor) / noise_std
    releases = Releases.repeated(mu, rounds=rounds, per_round=per_round, sites=sites)
    return Account(
        releases=replace(releases, release_delta=release_delta),
        delta=DELTA if delta is None else delta,
        per_round=per_round,
        unit="rounds",
        source=f"{rounds} rounds of {per_round}" if per_round > 1 else f"{rounds} rounds",
    )


def default_colluders(n_sites: int) -> int:
    # As in the settings of a run: max(1, ceil(S/3) - 1), and 0 for one site.
    return min(n_sites - 1, max(1, paper_colluders(n_sites)))


def paper_figure_6() -> Account:
    """Return the case of Imtiaz et al., Fig. 6: sigma_W^2 = sigma_b^2 = 0.25, up to 1000 rounds."""
    # Two releases a round, each with mu^2 = 1 / 0.25.
    return account_of_rounds(mu=math.sqrt(8.0), rounds=1000, per_round=2)


def paper_figure_5() -> FigureFive:
    """Return the case of Imtiaz et al., Fig. 5: ten sites, epsilon 0.5 and 1.

    tau_s N_s of 2 to 10 with the papers' three colluders; 0 to 9 colluders with tau_s N_s = 4.
    """
    n, c = 10, paper_colluders(10)
    return FigureFive(
        by_noise=tuple(
            paper_deltas(epsilon=epsilon, n_sites=n, colluders=c, noise=float(x))
            for epsilon in (0.5, 1.0)
            for x in range(2, 11)
        ),
        by_colluders=tuple(
            paper_deltas(epsilon=epsilon, n_sites=n, colluders=k, noise=4.0)
            for epsilon in (0.5, 1.0)
            for k in range(n)
        ),
    )


# -- for machines --------------------------------------------------------------------------------


def as_document(case: Account | FigureFive) -> dict[str, object]:
    # epsilon and holds are null where an accountant gives no figure.
    if isinstance(case, FigureFive):
        return {"event": "result", "sites": 10, "deltas": [asdict(row) for row in case.rows]}
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
            for row in compare_accountants(releases, delta=case.delta)
        ],
    }


# -- for people ----------------------------------------------------------------------------------


def print_tables(case: Account | FigureFive) -> None:
    if isinstance(case, FigureFive):
        _print_figure_5(case)
        return
    releases = case.releases
    if releases is None:
        text = f"NOT PRIVATE: {case.source} promises nothing; epsilon is infinite under every "
        say(text + "accountant.", style="bold red")
        return
    # Compute all rows before printing: an error must not follow half a table.
    rows = compare_accountants(releases, delta=case.delta)
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


def _print_figure_5(case: FigureFive) -> None:
    columns = ("epsilon", "S_C", "noise", "classic", "printed", "pooled", "CAPE", "separate")
    rows = [
        (f"{r.epsilon:g}", r.colluders, f"{r.noise:g}", *(_delta(getattr(r, s)) for s in _SCHEMES))
        for r in case.rows
    ]
    title = "Delta of pooled data, CAPE, separate noise at equal accuracy"
    table(f"{title}; 10 sites, noise tau_s N_s", columns, rows)
    say(
        "classic: pooled data by the classic formula; printed: CAPE by Theorem 1 as printed; both "
        "are what the paper compares. The others are exact."
    )


def _delta(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _cells(row: ComparisonRow) -> tuple[str, ...]:
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


# -- pictures ------------------------------------------------------------------------------------

_POINTS = 40
_CURVES = {  # accountant: colour, dash
    "gdp": ("#000000", "-"),
    "rdp-improved": ("#0072B2", "--"),
    "rdp": ("#0072B2", "-."),
    "moments-printed": ("#B8480A", "--"),
    "theorem-1-printed": ("#B8480A", ":"),
    "strong": ("#595959", "-."),
    "basic": ("#595959", ":"),
}
_SCHEMES = {  # attribute of PaperDeltas: colour, dash, label
    "pooled_classic": ("#595959", ":", "pooled, classic formula"),
    "cape_printed": ("#B8480A", ":", "CAPE, Theorem 1 as printed"),
    "pooled": ("#595959", "-", "pooled, exact"),
    "cape": ("#0072B2", "-", "CAPE, exact"),
    "conventional": ("#000000", "--", "conventional, exact"),
}


def plot(case: Account | FigureFive, path: Path) -> None:
    """Write total epsilon against rounds, or Fig. 5; the suffix of `path` is the format."""
    figure = _figure_5(case) if isinstance(case, FigureFive) else _epsilon_against_rounds(case)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        figure.savefig(path, facecolor="white")
    except ValueError as err:  # matplotlib knows the suffixes
        raise out_of_range("plot", path.suffix, ".png, .svg or .pdf", "rename it.") from err


def epsilon_curve(account: Account, name: str) -> tuple[list[int], list[float]]:
    """Return rounds and the total epsilon after each, where accountant `name` gives a figure."""
    releases = account.releases
    if releases is None:
        raise ConfigError("E234", what="this run")
    points: dict[int, float] = {}
    last = releases.count // account.per_round
    # Up to `_POINTS` whole numbers, evenly on a log scale
    for n_rounds in sorted({round(last ** (k / (_POINTS - 1))) for k in range(_POINTS)}):
        first = releases.first(n_rounds * account.per_round)
        total = ACCOUNTANTS[name].total(first, account.delta)
        if total.epsilon is not None and total.epsilon > 0.0:
            points[n_rounds] = total.epsilon
    return list(points), list(points.values())


def _epsilon_against_rounds(account: Account) -> Figure:
    figure = _figure(7.2, 4.6)
    axes = figure.add_subplot()
    for name, (colour, dash) in _CURVES.items():
        rounds, epsilons = epsilon_curve(account, name)
        if rounds:
            marker = "." if len(rounds) == 1 else ""  # a line of one point cannot be seen
            label = ACCOUNTANTS[name].title
            axes.plot(rounds, epsilons, dash, color=colour, label=label, marker=marker)
    axes.set_xscale("log")
    _finish(axes, account.unit, f"total epsilon at delta {account.delta:g}")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _figure_5(case: FigureFive) -> Figure:
    figure = _figure(9.0, 7.0)
    # Columns are epsilon, rows noise and colluders.
    for column, epsilon in enumerate((0.5, 1.0), start=1):
        upper = [row for row in case.by_noise if row.epsilon == epsilon]
        lower = [row for row in case.by_colluders if row.epsilon == epsilon]
        axes = figure.add_subplot(2, 2, column)
        _lines(axes, [row.noise for row in upper], upper)
        _finish(axes, "tau_s N_s, 3 colluders", f"delta at epsilon {epsilon:g}")
        axes = figure.add_subplot(2, 2, column + 2)
        _lines(axes, [row.colluders / 10 for row in lower], lower)
        _finish(axes, "S_C / S, tau_s N_s = 4", f"delta at epsilon {epsilon:g}")
    figure.axes[0].legend(frameon=False, fontsize=8)
    return figure


def _lines(axes: Axes, x: Sequence[float], rows: Sequence[PaperDeltas]) -> None:
    for name, (colour, dash, label) in _SCHEMES.items():
        y = [getattr(row, name) for row in rows]
        axes.plot(x, [math.nan if v is None else v for v in y], dash, color=colour, label=label)


def _figure(width: float, height: float) -> Figure:
    try:
        from cape.report.plots import new_figure

        return new_figure(width, height)
    except ImportError as err:
        do = "install the extra: pip install 'coinstac-cape[report]'."
        raise ConfigError("E015", what="--plot", package="matplotlib", do=do) from err


def _finish(axes: Axes, xlabel: str, ylabel: str) -> None:
    axes.set(yscale="log", xlabel=xlabel, ylabel=ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
