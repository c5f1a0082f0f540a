"""Values for the chapters of a comparison's page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from cape.frozen import dataclass
from cape.report import plots
from cape.report.comparison import ESTIMATED, SIGNIFICANT, WEIGHT, Effect, GroupComparison
from cape.report.comparison_words import per, r_line
from cape.report.page import Values
from cape.report.plots import Picture
from cape.report.results import ComparisonFolder
from cape.settings.question import Question, Term

# A forest plot with more rows cannot be read.
MAX_DRAWN_EFFECTS: Final = 40
# A longer table is folded, and its strongest rows are shown.
MAX_ROWS: Final = 12
STRONGEST: Final = 10
# Parts of an error, in words
PARTS: Final = {
    "sampling": "the choice of people",
    "privacy": "privacy noise",
    "adjustment": "what adjusting may leave",
    "shape": "values beyond the bound",
    "sites": "differences between sites",
}

Cells = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectTable:
    """One contrast: its picture, and its table; `folded` has all rows if `rows` has not."""

    title: str
    picture: Picture | None
    header: Cells
    rows: tuple[Cells, ...]
    folded: tuple[Cells, ...]


def what_differs(folder: ComparisonFolder, drawn: bool) -> Values | None:
    result = folder.results.comparison
    if not result.effects:
        return None
    question, tested = result.asked, result.tested
    if tested is not None:
        pattern = _table_of(question, question.asked[0], tested.contrast, [tested], None)
        return {"pattern": pattern, "tests": (), "blocks": [_weights(result, drawn=drawn)]}
    blocks = []
    for term in question.asked:
        for contrast in result.contrasts(term.text):
            rows = result.of_term(term.text, contrast)
            picture = _picture(result, question, term, contrast) if drawn else None
            blocks.append(_table_of(question, term, contrast, rows, picture))
    return {"blocks": blocks, "pattern": None, "tests": result.omnibus}


def _weights(result: GroupComparison, *, drawn: bool) -> EffectTable:
    """Return the pattern that one half gave: the largest weights, and all of them folded."""
    rows = sorted(result.pattern, key=lambda row: -abs(row.weight))
    cells = tuple((row.outcome, f"{row.weight:.3f}") for row in rows)
    picture = None
    if drawn and result.regions:
        alt = "Weights of the pattern; colours say the sign and the size, not that an edge differs."
        weights = result.matrix("", WEIGHT)
        picture = plots.draw_edges(result.regions, weights, alt, "weight in the pattern")
    return EffectTable(
        title="Weights of the pattern",
        picture=picture,
        header=("outcome", "weight"),
        rows=cells[:STRONGEST],
        folded=cells if len(cells) > STRONGEST else (),
    )


def _table_of(
    question: Question, term: Term, contrast: str, rows: Sequence[Effect], picture: Picture | None
) -> EffectTable:
    step, words = per(question, term)
    logs = {one.name for one in question.outcomes if one.log}
    unit = rows[0].unit if len({row.unit for row in rows}) == 1 and not logs else None
    corrected, fits = len(rows) > 1, any(row.fits != "yes" for row in rows)
    many = len(rows) > MAX_ROWS
    first = sorted(rows, key=_p)[:STRONGEST] if many else rows

    def cells(row: Effect) -> Cells:
        return (
            row.outcome,
            _difference(row, step, ratio=row.outcome in logs),
            _interval((row.d, row.d_low95, row.d_high95), step, ".2f"),
            _number(row.p),
            *((_number(row.p_holm),) if corrected else ()),
            *((row.fits,) if fits else ()),
        )

    return EffectTable(
        title=f"{contrast}{words}",
        picture=picture,
        header=(
            "outcome",
            f"{'slope' if words else 'difference'}{f', {unit}' if unit else ''} [95 %]",
            "d [95 %]",
            "p",
            *(("Holm",) if corrected else ()),
            *(("fits",) if fits else ()),
        ),
        rows=tuple(map(cells, first)),
        folded=tuple(map(cells, rows)) if many else (),
    )


def _p(row: Effect) -> float:
    return 2.0 if row.p is None else row.p


def _difference(row: Effect, step: float, *, ratio: bool) -> str:
    """Return the estimate with its interval; of a logarithm, the ratio."""
    values = (row.estimate, row.low95, row.high95)
    if row.fits not in ESTIMATED or None in values:
        return "-"
    if ratio:
        times = tuple(_exp(step * value) for value in values if value is not None)
        return "times " + _interval(times, 1.0, ".3g")
    return _interval(values, step, ".3g")


def _exp(value: float) -> float:
    # Noise may be larger than any logarithm of people.
    return math.exp(min(max(value, -700.0), 700.0))


def _interval(values: Sequence[float | None], step: float, form: str) -> str:
    known = [format(step * value, form) for value in values if value is not None]
    return "{} [{}, {}]".format(*known) if len(known) == 3 else "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g}"


def _picture(
    result: GroupComparison, question: Question, term: Term, contrast: str
) -> Picture | None:
    if result.regions:
        return _matrix(result, question, contrast, result.of_term(term.text, contrast))
    rows = [row for row in result.of_term(term.text, contrast) if row.d is not None]
    if not rows:
        return None
    step, words = per(question, term)
    shown = rows if len(rows) <= MAX_DRAWN_EFFECTS else sorted(rows, key=_p)[:MAX_DRAWN_EFFECTS]
    values = np.array([(row.d, row.d_low95, row.d_high95) for row in shown], dtype=np.float64)
    d, low, high = step * values.T
    after = " after Holm" if len(rows) > 1 else ""
    return plots.draw_effects(
        [row.outcome for row in shown],
        d,
        low,
        high,
        [row.found for row in shown],
        f"{contrast}{words}: {len(shown)} of {len(rows)} outcomes; blue differs from zero{after}.",
    )


def _matrix(
    result: GroupComparison, question: Question, contrast: str, rows: Sequence[Effect]
) -> Picture | None:
    """Draw the edges that leave zero; the others are grey."""
    # Edges of maps have one unit; those of a table are compared in sd.
    what, unit = ("d", "difference (d)") if question.measure is None else ("estimate", "Fisher z")
    judged = [row for row in rows if row.p is not None]
    leave = [row for row in judged if row.q_bh is not None and row.q_bh < SIGNIFICANT]
    if not leave:
        return None
    regions, values = result.regions, result.matrix(contrast, what)
    kept = np.full_like(values, np.nan)
    for row in leave:
        i, j = regions.index(row.region_a or ""), regions.index(row.region_b or "")
        kept[[i, j], [j, i]] = values[i, j]
    alt = (
        f"{contrast}: {len(leave)} of {len(judged)} edges leave zero (Benjamini and Hochberg, "
        ".05). The others are grey: nothing is claimed of them."
    )
    return plots.draw_edges(regions, kept, alt, unit)


def sure(folder: ComparisonFolder, drawn: bool) -> Values | None:
    result = folder.results.comparison
    if not result.effects:
        return None
    rows, parts = result.effects, {}
    for part, words in PARTS.items():
        shares = [share for row in rows if (share := row.share(part)) is not None]
        if shares and np.median(shares) >= 0.005:
            parts[words] = float(np.median(shares))
    question = result.asked
    return {"parts": parts, "line": r_line(question), "random": question.random}


def balance(folder: ComparisonFolder, drawn: bool) -> Values | None:
    result = folder.results.comparison
    if not result.effects:
        return None
    groups: dict[str, list[Cells]] = {}
    for row in result.balance:
        cells = (
            row.column,
            "-" if row.difference is None else f"{row.difference:.2g}",
            f"{row.before:.2f}",
            f"{row.left:.2f}",
        )
        groups.setdefault(row.contrast, []).append(cells)
    adjusted = {name for term in result.asked.asked for names in term.nuisance for name in names}
    return {"groups": groups, "adjusted": bool(adjusted)}


def people(folder: ComparisonFolder, drawn: bool) -> Values:
    result = folder.results.comparison
    sites, cells = result.sites, list(result.sites[0].counts)
    # Columns that are empty at all sites are left out.
    columns: dict[str, list[object]] = {
        "site": [site.site for site in sites],
        "people": [site.people for site in sites],
        **{cell: [site.counts[cell] for site in sites] for cell in cells},
    }
    if cells:
        columns["not asked"] = [site.people - site.asked for site in sites]
    if any(site.weight is not None for site in sites):
        columns["share of the answer"] = [f"{100 * (site.weight or 0):.0f} %" for site in sites]
    if any(site.lacks for site in sites):
        columns["does not have"] = [", ".join(site.lacks) for site in sites]
    seen = dict.fromkeys((row.outcome, row.observed) for row in result.outcomes)
    return {
        "header": list(columns),
        "rows": list(zip(*columns.values(), strict=True)),
        "alone": [site.site for site in sites if site.weight == 0],
        "observed": [
            (outcome, f"{100 * share:.0f} %") for outcome, share in seen if share is not None
        ],
        "missing": [f"{row.contrast}: {100 * row.difference:+.0f} %" for row in result.missing],
        "public": result.asked.public,
    }


def means(folder: ComparisonFolder, drawn: bool) -> Values | None:
    result = folder.results.comparison
    if not result.means:
        return None
    groups = list(dict.fromkeys(row.group for row in result.means))
    logs = {one.name for one in result.asked.outcomes if one.log}
    table: dict[str, dict[str, str]] = {}
    for row in result.means:
        mean = None if row.mean is None else _exp(row.mean) if row.outcome in logs else row.mean
        table.setdefault(row.outcome, {})[row.group] = "-" if mean is None else f"{mean:.4g}"
    rows = [(name, *(cells.get(group, "-") for group in groups)) for name, cells in table.items()]
    return {"groups": tuple(groups), "rows": rows, "logs": bool(logs)}
