"""A result in a notebook: the sentence, privacy, and all maps with claims or the effects."""

import base64
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from cape.counting import CountedPeople
from cape.privacy.accounting import display_epsilon
from cape.protocol.outcome import IcaOutcome, Outcome
from cape.report.comparison import GroupComparison
from cape.report.comparison_page import STRONGEST
from cape.report.comparison_words import who_of
from cape.report.consortium import components_of, results_of
from cape.report.plots import has_matplotlib, png_of
from cape.report.results import sentence


def result_html(
    outcome: Outcome, draw_maps: Callable[[], Any], counted: CountedPeople | None = None
) -> str:
    """Return people who count, sentence, privacy, a picture and the table of claims as HTML."""
    results = results_of(outcome)
    privacy = "NOT PRIVATE: no privacy guarantee."
    if results.private:
        epsilon = display_epsilon(results.epsilon)
        privacy = f"epsilon {epsilon} at delta {results.delta:g} for every subject."
    parts = [f"<p><b>{escape(sentence(results))}</b></p>", f"<p>{privacy}</p>"]
    if counted is not None and not counted.all:
        parts.insert(0, f"<p><b>{escape(counted.sentence)}</b></p>")
    if not isinstance(outcome, IcaOutcome):
        tables = (_table(table.header, table.rows) for table in outcome.tables)
        return "".join((*parts, *tables))
    if has_matplotlib():
        png = base64.b64encode(png_of(draw_maps())).decode("ascii")
        src = f"data:image/png;base64,{png}"
        parts.append(f'<img alt="all maps" style="max-width:100%" src="{src}">')
    rows = [
        (row.name, row.found_again or row.verdict or "-", row.label or "-", f"{row.peak_z:.1f}")
        for row in components_of(outcome)
    ]
    return "".join((*parts, _table(("map", "claim", "network", "largest z"), rows)))


def comparison_html(found: GroupComparison, said: str, privacy: str) -> str:
    """Return sentence, people, privacy and the strongest effects as HTML."""
    parts = [f"<p><b>{escape(said)}</b></p>"]
    if found.effects:
        parts.append(f"<p>{escape(who_of(found))}</p>")
    rows = sorted(found.effects, key=lambda row: 2.0 if row.p is None else row.p)[:STRONGEST]
    header = ("contrast", "outcome", "estimate", "low95", "high95", "d", "p_holm", "fits")
    cells = [[_cell(getattr(row, name)) for name in header] for row in rows]
    return "".join((*parts, f"<p>{privacy}</p>", _table(header, cells)))


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Sequence[object], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(x))}</{tag}>' for x in cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"
