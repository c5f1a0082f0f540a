"""`cape.ProgressBar`: the progress of a run, below a notebook's cell or on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cape.simulation.run_loop import ProgressLine

BAR_WIDTH = 30


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
