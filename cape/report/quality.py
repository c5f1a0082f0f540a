"""The chapters on quality and on the number of components.

Written from results.json, rounds.tsv and the eigenvalues of unmixing.npz.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.forecast.spatial import LEAST_SPATIAL
from cape.report import methods
from cape.report import model_order as advice
from cape.report.files import MISSING
from cape.report.methods import RANK
from cape.report.page_model import Block, Fold, Grid, Text

MORE_COLUMNS = (
    "statistic_norm", "expected_noise_norm", "step_norm", "stability",
)  # fmt: skip


def quality(
    results: dict[str, Any],
    rounds: list[dict[str, str]],
    *,
    with_pictures: bool,
) -> tuple[Block, ...]:
    """Return the chapter on how the run ended."""
    blocks: list[Block] = [*_status(results), *_truth(results)]
    solver = [row for row in rounds if row["phase"] == rounds[-1]["phase"]] if rounds else []
    if with_pictures and solver:
        from cape.report import plots

        blocks.append(plots.progress(*(_column(solver, name) for name in MORE_COLUMNS)))
    blocks.append(Text(text=(
        "A statistic near its noise says nothing about quality by itself: late rounds are meant "
        "to be close to it. Stability over restarts is not assessed, since every rerun costs "
        "budget."
    )))  # fmt: skip
    if rounds:
        blocks.append(Fold(summary=f"All {len(rounds)} rounds", grid=_rounds(rounds)))
    return tuple(blocks)


def _status(results: dict[str, Any]) -> tuple[Block, ...]:
    """Say in words how the run ended."""
    status, stability = str(results["status"]), results["stability"]
    kind = methods.kind_of({"separation": results.get("separation", {}).get("kind", "temporal")})
    known = "not assessed" if not stability else f"{stability:.2f}"
    text = (
        f"Status {status.replace('_', ' ')}: {methods.ended(status, kind) or 'see the reason'}. "
        f"{results['reason']}"
    )
    if kind == "temporal":
        text += (
            f" Stability {known}: the mean agreement of the unmixing directions now and some "
            "rounds before; 0.85 and more counts as settled."
        )
    blocks = [Text(text=text, tone="" if status == "converged" else "warning")]
    if results["g_eff"] is not None:
        text = (
            f"Effective size G = {results['g_eff']:.0f} (subjects x mu, less the noise against "
            f"colluders); on synthetic data {results['n_components']} components need about "
            f"{results['g_needed']:.0f}."
        )
        small = results["g_eff"] < results["g_needed"]
        doubtful = kind == "spatial" and results["g_eff"] >= LEAST_SPATIAL
        text += f" The maps {'are doubtful' if doubtful else 'will mostly show noise'}." * small
        blocks.append(Text(text=text, tone="warning" if small else ""))
    return tuple(blocks)


def _truth(results: dict[str, Any]) -> tuple[Block, ...]:
    """Compare with the planted truth, where a simulation knows it."""
    q, r = results["q_ngi"], results["map_correlation"]
    if q is None and r is None:
        return ()
    rows = []
    if q is not None:
        rows.append(
            ("q_NGI (inter-symbol interference; 0 is perfect, below 0.1 is good)", f"{q:.3f}")
        )
    if r is not None:
        rows.append(("mean correlation with the planted maps (1 is perfect)", f"{r:.3f}"))
    return (Grid(caption="Compared with the planted truth", header=("measure", "value"),
                 rows=tuple(rows)),)  # fmt: skip


def model_order(
    results: dict[str, Any],
    settings: dict[str, Any],
    eigenvalues: Array,
    *,
    with_pictures: bool,
) -> tuple[Block, ...]:
    """Return the chapter on R: the eigenvalues beside the noise edge, and what they suggest."""
    if not np.any(eigenvalues):
        return ()
    n, edge = int(results["n_components"]), float(results["noise_edge"] or 0.0)
    values = np.sort(eigenvalues)[::-1]
    blocks: list[Block] = []
    rank = str(results["rank_status"])
    if rank in RANK:
        tone = "warning" if rank == "no_gap" else ""
        blocks.append(Text(text=f"R = {n}: {RANK[rank]}.", tone=tone))
    if with_pictures:
        from cape.report import plots

        blocks.append(plots.spectrum(eigenvalues, edge, n))
    under = edge > 0 and values[n - 1] < edge
    if edge > 0:
        text = (
            f"Eigenvalue {n} of the released subspace statistic is {values[n - 1]:.3g}; the noise "
            f"alone would reach {edge:.3g} (noise edge)."
        )
        if under:
            text += " It lies under the noise edge: the last components may be noise; lower R."
        blocks.append(Text(text=text, tone="warning" if under else ""))
    found = advice.of_results(results, settings, eigenvalues)
    blocks.append(Text(text=" ".join(found.sentences), tone="warning" if found.warning else ""))
    return tuple(blocks)


def _rounds(rounds: list[dict[str, str]]) -> Grid:
    names = {
        "index": "no.", "phase": "phase", "round": "round", "statistic_norm": "statistic norm",
        "expected_noise_norm": "expected noise norm", "step_norm": "step",
        "stability": "stability",
    }  # fmt: skip
    rows = tuple(tuple(_short(name, row[name]) for name in names) for row in rounds)
    return Grid(caption="Every round", header=tuple(names.values()), rows=rows, numeric_from=2)


def _short(name: str, text: str) -> str:
    if name in ("index", "phase", "round") or text == MISSING:
        return "-" if text == MISSING else text
    return f"{float(text):.3g}"


def _column(rounds: list[dict[str, str]], name: str) -> Array:
    return np.array([math.nan if row[name] == MISSING else float(row[name]) for row in rounds])
