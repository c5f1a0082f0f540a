"""What a notebook shows: a result as HTML, and the progress of a run."""

import base64
import sys
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
from cape.simulation.run_loop import ProgressLine

BAR_WIDTH = 30


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


class ProgressBar:
    """Show the progress of one run or several: ``on_progress=cape.ProgressBar()``.

    In a notebook it is a bar below the cell, elsewhere one line on stderr; both show the phase and
    the spent epsilon.

    Attributes
    ----------
    text : str; the current text of the bar

    Examples
    --------
    >>> bar = cape.ProgressBar()
    >>> _ = cape.Consortium(sites).run(private=False, settings=settings, on_progress=bar)
    >>> bar.text
    'report 1/1, no noise'
    """

    def __init__(self) -> None:
        self.text = ""
        self._display: Any = None  # the output of a notebook's cell, which is updated

    def __call__(self, line: ProgressLine) -> None:
        spent = f", epsilon {line.epsilon:.3g} spent" if line.mu_budget > 0 else ", no noise"
        self.text = f"{line.phase} {line.round}/{line.rounds}{spent}"
        done, total = line.exchange, max(line.exchanges, line.exchange)
        if _in_notebook():
            self._show_in_cell(done, total)
            return
        bar = ("#" * (BAR_WIDTH * done // total)).ljust(BAR_WIDTH, ".")
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r[{bar}] {self.text:<50}{end}")
        sys.stderr.flush()

    def _show_in_cell(self, done: int, total: int) -> None:
        from IPython.display import HTML, display

        # No escape: these words and numbers are cape's own.
        bar = f'<progress aria-label="run" max="{total}" value="{done}"></progress>'
        html = HTML(f"{bar} {done}/{total} {self.text}")
        if done <= 1 or self._display is None:
            self._display = display(html, display_id=True)
        else:
            self._display.update(html)


def _in_notebook() -> bool:
    # A notebook's kernel has imported IPython already; IPython on a terminal has no kernel.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
