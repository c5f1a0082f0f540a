"""`cape.ProgressBar`: how far a run is, in the output of a notebook's cell or on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cape.simulation.run_loop import ProgressLine

WIDTH = 30


class ProgressBar:
    """Show the progress of a run: ``on_progress=cape.ProgressBar()``; one bar, any number of runs.

    In a notebook it is a bar below the cell, elsewhere a line on stderr that is written over, with
    the phase and the epsilon that is spent.

    Attributes
    ----------
    text : str
        What the bar says now.

    Examples
    --------
    >>> study = cape.datasets.make_study("paper", n_subjects=6, n_components=2, seed=1)
    >>> consortium = cape.Consortium(study.sites(2), space=study.space)
    >>> settings = {"n_components": 2, "n_rounds": 2, "basis": "dct", "n_basis": 20}
    >>> bar = cape.ProgressBar()
    >>> _ = consortium.run(private=False, settings=settings, on_progress=bar)
    >>> bar.text
    'report 1/1, no noise'
    """

    def __init__(self) -> None:
        self.text = ""
        self._shown: Any = None  # the display of a notebook that is written over

    def __call__(self, line: ProgressLine) -> None:
        spent = f", epsilon {line.epsilon:.3g} spent" if line.mu_budget > 0 else ", no noise"
        self.text = f"{line.phase} {line.round}/{line.rounds}{spent}"
        done, of = line.exchange, max(line.exchanges, line.exchange)
        if _in_notebook():
            self._show_in_cell(done, of)
            return
        bar = ("#" * (WIDTH * done // of)).ljust(WIDTH, ".")
        end = "\n" if done == of else ""
        sys.stderr.write(f"\r[{bar}] {self.text:<50}{end}")
        sys.stderr.flush()

    def _show_in_cell(self, done: int, of: int) -> None:
        from IPython.display import HTML, display

        # Our own words and numbers only: nothing in them could be read as HTML.
        bar = f'<progress aria-label="run" max="{of}" value="{done}"></progress>'
        shown = HTML(f"{bar} {done}/{of} {self.text}")
        if done <= 1 or self._shown is None:
            self._shown = display(shown, display_id=True)
        else:
            self._shown.update(shown)


def _in_notebook() -> bool:
    # A kernel has loaded IPython long ago; a terminal's IPython has no kernel.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return getattr(shell, "kernel", None) is not None
