"""Values for the chapters of a comparison's page."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from cape.algorithms.effects import SIGNIFICANT, Effect, Omnibus
from cape.algorithms.estimators import Array
from cape.frozen import dataclass
from cape.report import plots
from cape.report.comparison import ESTIMATED, WEIGHT, GroupComparison
from cape.report.comparison_words import exp, heading_of, p_text, per, r_line, y_of
from cape.report.network_maps import Drawer
from cape.report.page import Values
from cape.report.plots import Picture
from cape.report.results import ComparisonFolder
from cape.settings.question import Question, Term

# A forest plot with more rows cannot be read.
MAX_DRAWN_EFFECTS: Final = 40
# A longer table is folded, and its strongest rows are shown.
MAX_ROWS: Final = 12
STRONGEST: Final = 10
# People times mu from which a run sees how skewed outcomes are: not at 270, but at 1,070
# (docs/group-comparison.md, section 8)
SEES_SKEW: Final = 1000.0
# Edges in a glass brain; networks whose pictures stand at the edges of a matrix
MAX_GLASS: Final = 20
MAX_THUMBNAILS: Final = 24
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
    """One contrast: its pictures, and its table; `folded` has all rows if `rows` has not."""

    # `strongest`: outcomes with what is said of each and the pictures of their networks.

    title: str
    header: Cells
    rows: tuple[Cells, ...]
    folded: tuple[Cells, ...]
    pictures: tuple[Picture, ...] = ()
    strongest: tuple[tuple[str, str, tuple[Picture, ...]], ...] = ()


def what_differs(folder: ComparisonFolder, drawn: bool) -> Values | None:
    result = folder.results.comparison
    if not result.effects:
        return None
    question, tested = result.asked, result.tested
    drawer = Drawer(folder.path, result.networks) if drawn else None
    if tested is not None:
        pattern = _table_of(question, question.asked[0], tested.contrast, [tested])
        return {"pattern": pattern, "tests": (), "blocks": [_weights(result, drawer)]}
    blocks = []
    for term in question.asked:
        for contrast in result.contrasts(term.text):
            rows = result.of_term(term.text, contrast)
            block = _table_of(question, term, contrast, rows)
            if drawer is not None:
                block = replace(
                    block,
                    pictures=tuple(_pictures(result, question, term, contrast, drawer)),
                    strongest=_strongest(question, term, rows, drawer),
                )
            blocks.append(block)
    return {"blocks": blocks, "pattern": None, "tests": [_test(row) for row in result.omnibus]}


def _test(row: Omnibus) -> Cells:
    chi2 = "-" if row.chi2 is None else f"{row.chi2:.1f}"
    return (row.outcome, chi2, f"{row.df:.0f}", _p_cell(row.p), _p_cell(row.p_holm))


def _weights(result: GroupComparison, drawer: Drawer | None) -> EffectTable:
    """Return the pattern that one half gave: the largest weights, and all of them folded."""
    rows = sorted(result.pattern, key=lambda row: -abs(row.weight))
    cells = tuple((row.outcome, f"{row.weight:.3f}") for row in rows)
    pictures: tuple[Picture, ...] = ()
    strongest: list[tuple[str, str, tuple[Picture, ...]]] = []
    if drawer is not None and result.regions:
        alt = "Weights of the pattern; colours say the sign and the size, not that an edge differs."
        weights = result.matrix("", WEIGHT)
        pictures = (_edges(result, weights, alt, "weight in the pattern", drawer),)
    for row in rows[:STRONGEST]:
        if drawer and (tiles := _tiles(drawer, row.outcome, row.region_a, row.region_b)):
            strongest.append((row.outcome, f"weight {row.weight:.2f}", tiles))
    return EffectTable(
        title="Weights of the pattern",
        pictures=pictures,
        header=("outcome", "weight"),
        rows=cells[:STRONGEST],
        folded=cells if len(cells) > STRONGEST else (),
        strongest=tuple(strongest),
    )


def _strongest(
    question: Question, term: Term, rows: Sequence[Effect], drawer: Drawer
) -> tuple[tuple[str, str, tuple[Picture, ...]], ...]:
    """Return the strongest outcomes of which something is said, with pictures of their networks."""
    step, words = per(question, term)
    found = []
    for row in sorted((row for row in rows if row.p is not None), key=_p)[:STRONGEST]:
        if tiles := _tiles(drawer, row.outcome, row.region_a, row.region_b):
            d = (row.d, row.d_low95, row.d_high95)
            size = "size not known" if None in d else f"{_interval(d, step)} sd{words}"
            found.append((row.outcome, f"{size}, {p_text(row.p or 0.0)}", tiles))
    return tuple(found)


def _tiles(drawer: Drawer, outcome: str, *regions: str | None) -> tuple[Picture, ...]:
    # A share of power is named after its network: IC1 0.01-0.1 Hz.
    names = [name for name in regions if name] or [outcome]
    names = [name if name in drawer.networks else name.rsplit(" ", 2)[0] for name in names]
    return tuple(tile for name in names if (tile := drawer.tile(name)))


def _table_of(question: Question, term: Term, contrast: str, rows: Sequence[Effect]) -> EffectTable:
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
            _interval((row.d, row.d_low95, row.d_high95), step),
            _p_cell(row.p),
            *((_p_cell(row.p_holm),) if corrected else ()),
            *((row.fits,) if fits else ()),
        )

    return EffectTable(
        title=_title(question, term, contrast),
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


def _title(question: Question, term: Term, contrast: str) -> str:
    words = per(question, term)[1]
    return f"{heading_of(question, term, contrast)}{',' if words else ''}{words}"


def _p(row: Effect) -> float:
    return 2.0 if row.p is None else row.p


def _p_cell(p: float | None) -> str:
    return "-" if p is None else p_text(p).removeprefix("p ").replace("< ", "<")


def _difference(row: Effect, step: float, *, ratio: bool) -> str:
    """Return the estimate with its interval; of a logarithm, the ratio."""
    values = (row.estimate, row.low95, row.high95)
    if row.fits not in ESTIMATED or None in values:
        return "-"
    if ratio:
        return f"times {_numbers([exp(step * value) for value in values if value is not None])}"
    return _numbers([step * value for value in values if value is not None])


def _interval(values: Sequence[float | None], step: float) -> str:
    known = [f"{step * value:.2f}" for value in values if value is not None]
    return "{} [{}, {}]".format(*known) if len(known) == 3 else "-"


def _numbers(values: Sequence[float]) -> str:
    """Return a number and its interval to three digits of the largest of them."""
    largest = max(map(abs, values))
    digits = 0 if largest == 0 else 2 - math.floor(math.log10(largest))
    if digits > 6:  # too small for a fraction that is read
        return "{:.2e} [{:.2e}, {:.2e}]".format(*values)
    texts = (f"{round(value, digits):,.{max(digits, 0)}f}" for value in values)
    return "{} [{}, {}]".format(*texts)


def _pictures(
    result: GroupComparison, question: Question, term: Term, contrast: str, drawer: Drawer
) -> Iterator[Picture]:
    rows = result.of_term(term.text, contrast)
    if result.regions:
        yield from _of_edges(result, question, term, contrast, rows, drawer)
        return
    known = [row for row in rows if row.d is not None]
    if not known:
        return
    step, title = per(question, term)[0], _title(question, term, contrast)
    shown = known if len(known) <= MAX_DRAWN_EFFECTS else sorted(known, key=_p)[:MAX_DRAWN_EFFECTS]
    values = np.array([(row.d, row.d_low95, row.d_high95) for row in shown], dtype=np.float64)
    d, low, high = step * values.T
    after = " after Holm" if len(rows) > 1 else ""
    some = f": {len(shown)} of {len(rows)} outcomes" if len(shown) < len(rows) else ""
    yield plots.draw_effects(
        [row.outcome for row in shown],
        d,
        low,
        high,
        [row.found for row in shown],
        f"{title}{some}; blue differs from zero{after}.",
        _span(result, term, step),
    )
    leave = {row.outcome: step * (row.d or 0.0) for row in rows if _leaves(row)}
    alt = f"{title}: regions that leave zero (false discovery rate .05) in colour."
    if picture := drawer.regions(leave, "sd", alt):
        yield picture


def _span(result: GroupComparison, term: Term, step: float) -> tuple[float, float] | None:
    """Return the ends of the intervals of all pairs of a term; None if it has one contrast."""
    if len(result.contrasts(term.text)) < 2:
        return None
    ends = [
        step * end
        for row in result.of_term(term.text)
        for end in (row.d_low95, row.d_high95)
        if end is not None
    ]
    return min(ends), max(ends)


def _leaves(row: Effect) -> bool:
    return row.q_bh is not None and row.q_bh < SIGNIFICANT


def _of_edges(
    result: GroupComparison,
    question: Question,
    term: Term,
    contrast: str,
    rows: Sequence[Effect],
    drawer: Drawer,
) -> Iterator[Picture]:
    """Draw the edges that leave zero, the others grey; the strongest of them in a glass brain."""
    # Edges of maps have one unit; those of a table are compared in sd.
    what, unit = ("d", "difference (d)") if question.measure is None else ("estimate", "Fisher z")
    judged = [row for row in rows if row.p is not None]
    leave = sorted(filter(_leaves, judged), key=_p)
    if not leave:
        return
    regions, values = result.regions, result.matrix(contrast, what)
    kept = np.full_like(values, np.nan)
    for row in leave:
        i, j = regions.index(row.region_a or ""), regions.index(row.region_b or "")
        kept[[i, j], [j, i]] = values[i, j]
    found = sum(row.found for row in leave)
    alt = (
        f"{heading_of(question, term, contrast)}: {len(leave)} of {len(judged)} connections leave "
        f"zero (false discovery rate .05, Benjamini-Hochberg), {found} of them after Holm, too. "
        "The others are grey: they may be zero."
    )
    yield _edges(result, kept, alt, unit, drawer)
    edges = [
        (row.region_a or "", row.region_b or "", value)
        for row in leave[:MAX_GLASS]
        if (value := getattr(row, what)) is not None
    ]
    alt = f"The strongest {len(edges)} of these, red above zero, blue below."
    if picture := drawer.glass(edges, alt):
        yield picture


def _edges(result: GroupComparison, values: Array, alt: str, unit: str, drawer: Drawer) -> Picture:
    """Draw a matrix in the order of domains, with the networks at its edges."""
    domain = {one.name: one.domain or "" for one in result.networks}
    named = list(dict.fromkeys(domain.get(name, "") for name in result.regions))
    order = sorted(
        range(len(result.regions)), key=lambda i: named.index(domain.get(result.regions[i], ""))
    )
    names = [result.regions[i] for i in order]
    few = len(names) <= MAX_THUMBNAILS and all(name in drawer.networks for name in names)
    return plots.draw_edges(
        names,
        values[np.ix_(order, order)],
        alt,
        unit,
        groups=[domain.get(name, "") for name in names],
        thumbnails=[drawer.thumbnail(name) for name in names] if few else (),
    )


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
    size = folder.results.n_subjects * (folder.results.mu or math.inf)
    return {
        "parts": parts,
        "skew_unseen": size < SEES_SKEW and not question.pattern,
        "line": r_line(question, len(result.entered)),
        "y": y_of(question),
        "random": question.random,
        "alone": len(result.entered) == 1,
    }


def balance(folder: ComparisonFolder, drawn: bool) -> Values | None:
    result = folder.results.comparison
    if not result.effects:
        return None
    contrasts = list(dict.fromkeys(row.contrast for row in result.balance))
    several = len(contrasts) > 1
    rows = [
        (
            *((row.contrast,) if several else ()),
            row.column,
            "-" if row.difference is None else f"{row.difference:.2g}",
            f"{row.before:.2f}",
            f"{row.left:.2f}",
        )
        for row in result.balance
    ]
    header: Cells = ("column", "difference", "in sd of people", "may be left after weighting, sd")
    header = ("contrast", *header) if several else header
    title = "Groups, within sites" if several else f"{''.join(contrasts)}, within sites"
    adjusted = {name for term in result.asked.asked for names in term.nuisance for name in names}
    return {
        "rows": rows,
        "header": header,
        "title": title,
        "adjusted": bool(adjusted),
        "alone": len(result.entered) == 1,
        **_means(result),
    }


def _means(result: GroupComparison) -> Values:
    groups = list(dict.fromkeys(row.group for row in result.means))
    logs = {one.name for one in result.asked.outcomes if one.log}
    table: dict[str, dict[str, str]] = {}
    for row in result.means:
        mean = None if row.mean is None else exp(row.mean) if row.outcome in logs else row.mean
        shown = "-" if mean is None else f"{mean:,.4g}" if abs(mean) < 1e4 else f"{mean:,.0f}"
        if mean is not None and row.se is not None and row.outcome not in logs:
            shown += f" ± {row.se:.2g}"
        table.setdefault(row.outcome, {})[row.group] = shown
    rows = [(name, *(cells.get(group, "-") for group in groups)) for name, cells in table.items()]
    return {"mean_groups": tuple(groups), "means": rows, "logs": bool(logs)}


def people(folder: ComparisonFolder, drawn: bool) -> Values:
    result = folder.results.comparison
    sites, cells = result.sites, list(result.sites[0].counts)
    columns: dict[str, list[object]] = {
        "site": [site.site for site in sites],
        "people": [site.people for site in sites],
        **{cell: [site.counts[cell] for site in sites] for cell in cells},
    }
    if cells:
        columns["not asked"] = [site.people - site.asked for site in sites]
        columns["entered"] = [0 if site.left_out else site.asked for site in sites]
    if any(site.weight is not None for site in sites):
        columns["share of the answer"] = [f"{100 * (site.weight or 0):.0f} %" for site in sites]
    columns["does not have"] = [", ".join(site.lacks) for site in sites]
    # Each term has its own estimate of these shares.
    several = len(result.asked.asked) > 1
    seen = dict.fromkeys((row.term, row.outcome, row.observed) for row in result.outcomes)
    return {
        "header": list(columns),
        "rows": list(zip(*columns.values(), strict=True)),
        "left_out": [(site.site, site.left_out) for site in sites if site.left_out],
        "observed": [
            (*((term,) if several else ()), outcome, f"{100 * share:.0f} %")
            for term, outcome, share in seen
            if share is not None
        ],
        "observed_header": (*(("term",) if several else ()), "outcome", "share"),
        "missing": [f"{row.contrast}: {100 * row.difference:+.0f} %" for row in result.missing],
        "public": result.asked.public,
    }
