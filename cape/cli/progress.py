"""How far a command is and how long it takes: a live line, or a line a minute, on stderr."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Final, Self

from rich.status import Status
from rich.text import Text

from cape.cli.common import ERR, duration, json_line, number

if TYPE_CHECKING:  # a command that runs nothing imports no driver
    from cape.simulation.run_loop import ProgressLine

# s between two lines where nobody looks on.
EVERY: Final = 60.0
# Exchanges after which the others are taken to be like them
MANY: Final = 3
# s of all rounds, and of drawing a page of the consortium and of a site, before they are measured.
ROUNDS, PAGE, SITE_PAGE = 15.0, 10.0, 10.0


class Progress:
    """Prints events as they come; a context, for the live line of a terminal."""

    def __init__(
        self, *, as_json: bool, quiet: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._as_json, self._quiet, self._clock = as_json, quiet, clock
        self._status: Status | None = None
        self._printed = -math.inf
        self.started = clock()

    def __enter__(self) -> Self:
        if ERR.is_terminal and not (self._quiet or self._as_json):
            self._status = ERR.status("reading")
            self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, text: str, event: dict[str, object], left: float) -> None:
        if self._as_json:
            json_line({"event": "progress", **event, "seconds_left": round(left, 1)})
        elif self._status is not None:
            self._status.update(Text(text))
        elif not self._quiet and self._clock() - self._printed >= EVERY:
            self._printed = self._clock()
            ERR.print(Text(text))


class SiteProgress(Progress):
    """Of checks: subjects of one site after the other."""

    def __call__(self, site: str, done: int, total: int) -> None:
        if done <= 1:
            self.started = self._clock() if done == 0 else self.started
        left = (self._clock() - self.started) / max(done, 1) * (total - done)
        if done == total:
            self.started = self._clock()  # of the next site
        text = f"{site}: {done} of {total} subjects read | {duration(left)} left of this site"
        self.show(text, {"site": site, "done": done, "total": total}, left)


class RunProgress(Progress):
    """Of a run: subjects read, rounds, subjects read again for the sites' own pages.

    Time left is of all that is to come: what was measured of each kind, constants until then.
    """

    # Before anything is known
    _n_sites = 3
    _total = 0
    _a_subject = 0.0  # s of reading one
    _rounds: tuple[float, ...] = ()
    _report_began = 0.0

    def subject(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if stage == "read":
            self._total = total
            self._a_subject = (now - self.started) / max(done, 1)
            left = self._a_subject * (total - done) + ROUNDS + self._of_report()
        else:
            # The page of a site comes after its people; sites are taken to be of one size.
            pages = SITE_PAGE * (done * self._n_sites // max(total, 1))
            reading = max(now - self._report_began - pages, 0.0)
            a_subject = reading / done if done else self._a_subject
            left = a_subject * (total - done) + self._n_sites * SITE_PAGE - pages + PAGE
        words = {"read": "subjects read", "report": "subjects read for the sites' own pages"}
        text = f"{done} of {total} {words[stage]} | {duration(left)} left"
        self.show(text, {"stage": stage, "done": done, "total": total}, left)

    def __call__(self, line: ProgressLine) -> None:
        self._n_sites = line.sites
        if line.exchange > 1:  # the first one read the data
            self._rounds += (line.seconds,)
        to_come = line.exchanges - line.exchange - 1  # the last one is the report
        left = 0.0
        if to_come >= 0:
            # The median: one exchange, that of the subspace, may take longer than all others.
            of_rounds = median(self._rounds) * to_come if self._rounds else 0.0
            if to_come and len(self._rounds) <= MANY:
                of_rounds = max(of_rounds, ROUNDS)
            left = of_rounds + self._of_report()
        self._report_began = self._clock()
        text = progress_text(line, left)
        self.show(text, dataclasses.asdict(line), left)

    def _of_report(self) -> float:
        # Maps of single people need their voxels, which are read again.
        return self._total * self._a_subject + self._n_sites * SITE_PAGE + PAGE


def progress_text(line: ProgressLine, left: float) -> str:
    parts = [
        f"{line.exchange}/{line.exchanges} {line.phase} {line.round}/{line.rounds}",
        f"stability {number(line.stability or None)}",
        f"step {number(line.step)}",
        f"mu {line.mu:.3f}/{line.mu_budget:.3f} (epsilon {number(line.epsilon)})"
        if math.isfinite(line.mu_budget) and line.mu_budget > 0
        else "no noise",
        f"{line.bytes / 1000:.1f} kB/site",
        f"{line.sites} sites",
        f"{line.seconds:.2f} s",
        f"{duration(left)} left",
    ]
    return " | ".join(parts)
