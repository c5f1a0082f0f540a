"""What a notebook shows of a result: the sentence, the maps, and what is claimed of each."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from cape.protocol.outcome import IcaOutcome, Outcome
from cape.report.consortium import components_of, results_of
from cape.report.plots import installed, png_of
from cape.report.sentence import sentence


def html_of(outcome: Outcome, figure: Any) -> str:
    """Return sentence, privacy, a picture and the table of claims as HTML."""
    said = results_of(outcome)
    privacy = "NOT PRIVATE: nothing is promised."
    if said.private:
        privacy = f"epsilon {said.epsilon:.3g} at delta {said.delta:g} for every subject."
    parts = [f"<p><b>{escape(sentence(said))}</b></p>", f"<p>{privacy}</p>"]
    if not isinstance(outcome, IcaOutcome):
        tables = (table_of(table.header, table.rows) for table in outcome.tables)
        return "".join((*parts, *tables))
    if installed():
        png = base64.b64encode(png_of(figure())).decode("ascii")
        source = f"data:image/png;base64,{png}"
        parts.append(f'<img alt="all maps" style="max-width:100%" src="{source}">')
    rows = [
        (row.name, row.found_again or row.verdict or "-", row.label or "-", f"{row.peak_z:.1f}")
        for row in components_of(outcome)
    ]
    return "".join((*parts, table_of(("map", "claim", "network", "largest z"), rows)))


def table_of(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Sequence[object], tag: str) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(x))}</{tag}>' for x in cells)}</tr>"

    body = "".join(line(row, "td") for row in rows)
    return f"<table><thead>{line(header, 'th')}</thead><tbody>{body}</tbody></table>"
