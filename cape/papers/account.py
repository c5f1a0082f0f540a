"""What every accountant says about the releases of a run, as a table and as JSON.

Nothing here decides anything: a run is planned and refused by exact Gaussian DP alone.  The
papers' Figures 5 and 6 are two cases: `paper_figure_6` and `paper_figure_5`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

from cape.cli.privacy_file import privacy_document
from cape.cli.show import say, table
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.papers.accountants import PaperDeltas, Row, compare, paper_deltas
from cape.papers.correlated import paper_colluders, positive, view_factor
from cape.papers.formulas import PAPER_RELEASE_DELTA, Releases, Sites
from cape.privacy.accounting import display_epsilon
from cape.privacy.chain import read_entries

DELTA = 1e-5
# Characters of an epsilon in the table; longer ones are written with an exponent.
WIDEST = 14


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """Releases and the question about them.

    Attributes
    ----------
    releases : Releases or None
        As the headline viewer sees them; None for a run that promises nothing.
    delta : float
        PlannedRelease delta.
    per_round : int
        Releases in a round, for the plot; 1 for a ledger.
    unit : str
        What the plot counts: releases of a ledger, or rounds.
    source : str
        Where the releases come from, for people.
    """

    releases: Releases | None
    delta: float
    per_round: int
    unit: str
    source: str


def from_ledger(path: Path, *, delta: float | None) -> Account:
    """Read the charged releases of a privacy.json.

    Parameters
    ----------
    path : Path
        The file; its chain of entries is checked, every number computed anew.
    delta : float or None
        None: that of the file.

    Raises
    ------
    ConfigError
        If it is not such a file.
    PrivacyBudgetError
        If its chain of entries is broken.
    """
    with privacy_document(path) as document:
        if document["schema"] != "cape-privacy-1":
            raise ValueError(f"schema {document['schema']!r}")
        asked = float(document["delta"]) if delta is None else delta
        releases = None
        if document["private"]:
            ledger = document["ledger"]
            events = read_entries(ledger["entries"], head=ledger["head"])
            releases = Releases.of((event.cost for event in events), sites=_sites(document))
            if not math.isfinite(releases.mu):
                raise ValueError("mu of all releases is not finite")
    return Account(releases=releases, delta=asked, per_round=1, unit="releases", source=str(path))


def planned(
    *,
    mu: float | None,
    noise_multiplier: float | None,
    rounds: int,
    per_round: int,
    n_sites: int | None,
    colluders: int | None,
    ratio: float,
    delta: float | None,
    release_delta: float,
) -> Account:
    """Return an account of rounds that all cost the same.

    Parameters
    ----------
    mu, noise_multiplier : float or None
        One of the two: mu of a round against the viewer, or the noise std of the sum over its
        sensitivity, from which mu follows as sqrt(f) / multiplier.
    rounds, per_round : int
        J, and releases in a round.
    n_sites, colluders : int or None
        S and S_C; without S the viewer is an outsider, f = 1.
    ratio : float
        r of the zero-sum noise; inf is the secure sum.
    delta : float or None
        None: 1e-5.
    release_delta : float
        delta_i of the papers' per-release calibration.

    Raises
    ------
    ConfigError
        If the settings contradict each other or are out of range.
    """
    if (mu is None) == (noise_multiplier is None):
        problem = "the noise of a round has to be given once"
        raise ConfigError("E012", problem=problem, do="pass --mu or --noise-multiplier.")
    sites = _asked_sites(n_sites, colluders, ratio)
    if noise_multiplier is not None:
        mu = math.sqrt(1 if sites is None else sites.factor) / positive(
            "noise-multiplier", noise_multiplier
        )
    made = Releases.repeated(float(mu or 0.0), rounds=rounds, per_round=per_round, sites=sites)
    return Account(
        releases=replace(made, release_delta=release_delta),
        delta=DELTA if delta is None else delta,
        per_round=per_round,
        unit="rounds",
        source=f"{rounds} rounds of {per_round}" if per_round > 1 else f"{rounds} rounds",
    )


def _asked_sites(n_sites: int | None, colluders: int | None, ratio: float) -> Sites | None:
    if n_sites is None:
        if colluders is not None or ratio != math.inf:
            problem = "colluders or ratio without sites"
            raise ConfigError("E012", problem=problem, do="pass --sites too.")
        return None
    c = default_colluders(n_sites) if colluders is None else colluders
    f = view_factor(n_sites=n_sites, colluders=c, ratio=ratio)
    return Sites(n_sites=n_sites, colluders=c, factor=f)


def paper_figure_6() -> Account:
    """Return the case of Imtiaz et al., Fig. 6: sigma_W^2 = sigma_b^2 = 0.25, up to 1000 rounds."""
    return planned(
        mu=math.sqrt(8.0), noise_multiplier=None, rounds=1000, per_round=2, n_sites=None,
        colluders=None, ratio=math.inf, delta=DELTA, release_delta=PAPER_RELEASE_DELTA,
    )  # fmt: skip


def paper_figure_5() -> list[tuple[float, int, float, PaperDeltas]]:
    """Return the case of Imtiaz et al., Fig. 5: delta against tau_s N_s and against S_C.

    Ten sites; epsilon 0.5 and 1; first tau_s N_s of 2 to 10 with the papers' three colluders, then
    0 to 9 colluders with tau_s N_s = 4.  Rows (epsilon, S_C, tau_s N_s, deltas).
    """
    n, c = 10, paper_colluders(10)
    asked = [(e, c, float(x)) for e in (0.5, 1.0) for x in range(2, 11)]
    asked += [(e, k, 4.0) for e in (0.5, 1.0) for k in range(n)]
    return [
        (e, k, x, paper_deltas(epsilon=e, n_sites=n, colluders=k, noise=x)) for e, k, x in asked
    ]


def default_colluders(n_sites: int) -> int:
    """Return max(1, ceil(S/3) - 1), and 0 for one site, as the settings of a run do."""
    return min(n_sites - 1, max(1, paper_colluders(n_sites)))


def document(account: Account) -> dict[str, object]:
    """Return the table for machines; epsilon and holds are null where nothing is said."""
    releases = account.releases
    head = {"event": "result", "private": releases is not None, "delta": account.delta}
    if releases is None:
        return {**head, "accountants": []}
    sites = None
    if (who := releases.sites) is not None:
        sites = {"sites": who.n_sites, "colluders": who.colluders, "factor": float(who.factor)}
    return {
        **head,
        "releases": releases.count,
        "mu": releases.mu,
        "zcdp_rho": releases.mu**2 / 2.0,
        "viewer": sites,
        "accountants": [
            {
                "name": row.accountant.name,
                "title": row.accountant.title,
                "assumes": row.accountant.assumes,
                "epsilon": row.total.epsilon,
                "delta": row.total.delta,
                "exact": row.exact,
                "holds": row.holds,
            }
            for row in compare(releases, delta=account.delta)
        ],
    }


def document_of_figure_5() -> dict[str, object]:
    """Return the rows of Fig. 5 for machines."""
    rows = [
        {"epsilon": e, "colluders": c, "noise": x, **asdict(deltas)}
        for e, c, x, deltas in paper_figure_5()
    ]
    return {"event": "result", "sites": 10, "deltas": rows}


def show(account: Account) -> None:
    """Print the table for people."""
    releases = account.releases
    if releases is None:
        say(f"NOT PRIVATE: {account.source} promises nothing; epsilon is infinite under every "
            "accountant.", style="bold red")  # fmt: skip
        return
    rows = compare(releases, delta=account.delta)
    say(
        f"{account.source}: {releases.count} releases, mu {releases.mu:.6g} in all, "
        f"zCDP rho {releases.mu**2 / 2.0:.6g}, asked delta {account.delta:g}"
    )
    say("")
    columns = ("accountant", "epsilon", "at delta", "exact there", "against exact")
    table("Total epsilon by every accountant; only the first decides", columns, map(_cells, rows))
    for row in rows:
        wrong = row.holds is False
        say(f"{row.accountant.title}: {row.accountant.assumes}", style="red" if wrong else "")


def show_figure_5() -> None:
    """Print the rows of Fig. 5 for people."""
    columns = ("epsilon", "S_C", "noise", "classic", "printed", "pooled", "CAPE", "separate")
    table(
        "Delta of pooled data, CAPE, separate noise at equal accuracy; 10 sites, noise tau_s N_s",
        columns,
        [(f"{e:g}", c, f"{x:g}", *map(_delta, asdict(d).values())) for e, c, x, d in
         paper_figure_5()],
    )  # fmt: skip
    say("classic: pooled data by the classic formula; printed: CAPE by Theorem 1 as printed; both "
        "are what the paper compares. The others are exact.")  # fmt: skip


def _delta(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"


def _cells(row: Row) -> tuple[str, ...]:
    """Return title, epsilon, its delta, the exact epsilon at that delta, and how they compare."""
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
    """Return epsilon for a cell: one of mu 1e-12 has no seventy zeros."""
    text = display_epsilon(epsilon, digits=6)
    return f"{Decimal(text):.6g}" if len(text) > WIDEST else text


def _sites(document: dict[str, Any]) -> Sites | None:
    """Return the sharing of noise that the views of a file tell; None for local noise."""
    if document["noise"] == "local":
        return None
    mu = {view["key"]: Fraction(view["mu"]) for view in document["views"]}
    n_sites, colluders = document["n_sites"], document["assumed_colluders"]
    factor = (mu["aggregator"] / mu["outsider"]) ** 2
    if not (type(n_sites) is type(colluders) is int and 0 <= colluders < n_sites and factor > 0):
        raise ValueError("n_sites, assumed_colluders or views")
    return Sites(n_sites=n_sites, colluders=colluders, factor=factor)
