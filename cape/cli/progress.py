"""Show progress and time left on stderr: a live line, or one line a minute."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final, Self

from rich.status import Status
from rich.text import Text

from cape.cli.common import STDERR, duration, figure_text, json_line

if TYPE_CHECKING:  # a command that runs nothing imports no driver
    from cape.simulation.run_loop import ProgressLine

# Seconds between lines when output is not a terminal.
LINE_SECONDS: Final = 60.0
# Exchanges after which their median predicts the others
ENOUGH_EXCHANGES: Final = 3
# Seconds assumed for all rounds, for the consortium's page and for a site's page.
ROUNDS, PAGE, SITE_PAGE = 15.0, 10.0, 10.0


# Phases in words for people; other phases keep their name
PHASE_WORDS: Final = {
    "join": "reading people",
    "zero-sum": "exchanging keys",
    "zero-sum.probe": "exchanging keys",
    "zero-sum.shares": "exchanging keys",
    "moment": "finding the common subspace",
    "spatial": "one noisy sum",
    "pca": "finding the common subspace",
    "report": "writing the results",
}
# Columns of a live line beside its bar
WORDS_WIDTH: Final = 70


class ProgressPrinter:
    """Print events as they come; a context manager for the live line."""

    def __init__(
        self, *, as_json: bool, quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._as_json, self._quiet, self._clock = as_json, quiet, clock
        self._status: Status | None = None
        self._live = False
        self._printed = self.started = clock()

    def __enter__(self) -> Self:
        self._live = STDERR.is_terminal and not (self._quiet or self._as_json)
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(
        self, words: Sequence[str], event: dict[str, object], remaining: float, done: float
    ) -> None:
        """Show a step: `words`, `left` seconds of all, and the share `done`, 0 to 1."""
        parts = [*words, f"about {duration(remaining)} left"]
        if self._as_json:
            json_line({"event": "progress", **event, "seconds_left": round(remaining, 1)})
        elif self._live:
            text = Text(_line(parts, done, STDERR.width))
            if self._status is None:
                self._status = STDERR.status(text)
                self._status.start()
            self._status.update(text)
        elif not self._quiet and self._clock() - self._printed >= LINE_SECONDS:
            self._printed = self._clock()
            STDERR.print(Text(", ".join(parts)))


def _line(parts: Sequence[str], done: float, width: int) -> str:
    """Return a line with bar and time left, of at most `width` - 2 characters (2: the spinner)."""
    n = min(max(width - WORDS_WIDTH, 8), 30)
    bar = ("#" * round(n * min(max(done, 0.0), 1.0))).ljust(n, "-")
    *words, remaining = parts
    room = width - 2 - len(bar) - len(remaining) - 4
    return f"{bar}  {'  '.join(words)[:room].ljust(room)}  {remaining}"


def _rate(people: int, seconds: float) -> str:
    rate = people / seconds if seconds > 0 else 0.0
    if rate >= 1:
        return f"{rate:.2g} a second" if rate < 10 else f"{rate:.0f} a second"
    return f"{60 * rate:.0f} a minute" if rate >= 1 / 60 else f"{3600 * rate:.0f} an hour"


class SiteProgress(ProgressPrinter):
    """Progress of checks: subjects, site by site."""

    def __call__(self, site: str, done: int, total: int) -> None:
        if done <= 1:
            self.started = self._clock() if done == 0 else self.started
        seconds = self._clock() - self.started
        remaining = seconds / max(done, 1) * (total - done)
        if done == total:
            self.started = self._clock()  # start of the next site
        words = (f"{site:.20}: reading people", f"{done} of {total}, {_rate(done, seconds)}")
        self.show(
            words, {"site": site, "done": done, "total": total}, remaining, done / max(total, 1)
        )


class RunProgress(ProgressPrinter):
    """Progress of a run: subjects read, rounds, subjects read again for the sites' pages.

    The time left covers all later steps; each kind has a constant until it is measured.
    """

    # Assumed until measured
    _n_sites = 3
    _total = 0
    _again = True  # whether people are read again for their sites' pages
    _a_subject = 0.0  # s of reading one
    _rounds: tuple[float, ...] = ()
    _report_began = 0.0
    _done = 0.0

    def subject(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if stage != "report":
            self._again = stage == "read"
            self._total = total
            self._a_subject = (now - self.started) / max(done, 1)
            remaining = self._a_subject * (total - done) + ROUNDS + self._of_report()
        else:
            # A site's page is drawn after its people are read; assume sites of one size.
            pages = SITE_PAGE * (done * self._n_sites // max(total, 1))
            reading = max(now - self._report_began - pages, 0.0)
            a_subject = reading / done if done else self._a_subject
            remaining = a_subject * (total - done) + self._n_sites * SITE_PAGE - pages + PAGE
        stage = stage.removesuffix(" once")
        what = {"read": "reading people", "report": "drawing pages"}
        since = self.started if stage == "read" else self._report_began
        words = (what[stage], f"{done} of {total}, {_rate(done, now - since)}")
        self.show(
            words, {"stage": stage, "done": done, "total": total}, remaining, self._whole(remaining)
        )

    def __call__(self, line: ProgressLine) -> None:
        self._n_sites = line.sites
        if line.exchange > 1:  # the first one read the data
            self._rounds += (line.seconds,)
        to_come = line.exchanges - line.exchange - 1  # the last one is the report
        remaining = 0.0
        if to_come >= 0:
            # The median, because the exchange of the subspace may take longer than all others.
            of_rounds = median(self._rounds) * to_come if self._rounds else 0.0
            if to_come and len(self._rounds) <= ENOUGH_EXCHANGES:
                of_rounds = max(of_rounds, ROUNDS)
            remaining = of_rounds + self._of_report()
        self._report_began = self._clock()
        self.show(_words(line), dataclasses.asdict(line), remaining, self._whole(remaining))

    def _whole(self, remaining: float) -> float:
        """Return the share of the run that is done; it never decreases."""
        spent = self._clock() - self.started
        self._done = max(self._done, spent / max(spent + remaining, 1e-9))
        return self._done

    def _of_report(self) -> float:
        # Maps of single people need their voxels, so files are read again.
        again = self._total * self._a_subject + self._n_sites * SITE_PAGE
        return (again if self._again else 0.0) + PAGE


def _words(line: ProgressLine) -> tuple[str, ...]:
    in_rounds = line.rounds > 1
    step = (
        f"round {line.round} of {line.rounds}"
        if in_rounds
        else PHASE_WORDS.get(line.phase, line.phase)
    )
    if not (math.isfinite(line.mu_budget) and line.mu_budget > 0):
        return step, "no noise"
    total = f" of {figure_text(line.epsilon_total)}" if line.epsilon_total else ""
    return step, f"epsilon {figure_text(line.epsilon)}{total}"
