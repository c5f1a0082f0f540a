"""Playing a simulated run exchange by exchange: progress for people, a checkpoint after each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from cape.frozen import dataclass
from cape.protocol.messages import Progress
from cape.simulation.checkpoint import MAX_EXCHANGES, Checkpoint
from cape.simulation.transports import Transport

# Where a run stands before its first broadcast.
BEFORE_JOIN = Progress(
    phase="join", round=1, rounds=1, exchange=0, exchanges=0, mu=0.0, mu_budget=0.0, epsilon=0.0,
    step=0.0, stability=0.0,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressLine(Progress):
    """The public line of an exchange, with its wall time, who answered, and one reply's bytes."""

    seconds: float
    sites: int
    bytes: int


OnProgress = Callable[[ProgressLine], None]


def run_to_end(
    link: Transport,
    on_progress: OnProgress | None,
    *,
    begin: Checkpoint | None = None,
    work: Path | None = None,
) -> None:
    """Play all rounds of a run, or those after `begin`; each is on record below `work`."""
    last: Progress | None = None if begin is None else begin.last
    first = 1 if begin is None else begin.exchange + 1
    for exchange in range(first, MAX_EXCHANGES):
        began = time.monotonic()
        progress, size = link.exchange()
        # Before people see the line: what they saw is on record.
        if begin is not None and work is not None:
            ended = progress is None
            dataclasses.replace(
                begin,
                exchange=exchange,
                last=progress,
                ended=ended,
                state=None if ended else link.state(),
            ).write(work)
        if on_progress is not None:
            seconds, n_sites = time.monotonic() - began, link.active.count
            on_progress(_line(exchange, last, progress, seconds, n_sites, size))
        if progress is None:
            return
        last = progress
    raise RuntimeError("the run does not end")


def _line(
    exchange: int,
    before: Progress | None,
    after: Progress | None,
    seconds: float,
    n_sites: int,
    size: int,
) -> ProgressLine:
    """Return the line of an exchange: the phase that was answered, the state after it."""
    opened, latest = before or BEFORE_JOIN, after or before or BEFORE_JOIN
    return ProgressLine(
        phase=opened.phase,
        round=opened.round,
        rounds=opened.rounds,
        exchange=exchange,
        exchanges=max(exchange, latest.exchanges),
        mu=latest.mu,
        mu_budget=latest.mu_budget,
        epsilon=latest.epsilon,
        step=latest.step,
        stability=latest.stability,
        seconds=seconds,
        sites=n_sites,
        bytes=size,
    )
