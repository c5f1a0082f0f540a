"""Playing a simulated run exchange by exchange: progress for people, a checkpoint after each."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cape.drivers.checkpoint import Checkpoint
from cape.drivers.links import Link
from cape.messages import Progress

MAX_EXCHANGES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressLine:
    """What happened in one exchange: released quantities, time and size."""

    phase: str
    round: int
    rounds: int
    exchange: int
    exchanges: int
    mu: float
    mu_budget: float
    epsilon: float
    step: float
    stability: float
    seconds: float
    sites: int
    bytes: int


OnProgress = Callable[[ProgressLine], None]


def play(
    link: Link,
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
            seconds, n_sites = time.monotonic() - began, link.attendees.count
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
    known = after or before
    return ProgressLine(
        phase=before.phase if before else "join",
        round=before.round if before else 1,
        rounds=before.rounds if before else 1,
        exchange=exchange,
        exchanges=max(exchange, known.exchanges if known else 0),
        mu=known.mu if known else 0.0,
        mu_budget=known.mu_budget if known else 0.0,
        epsilon=known.epsilon if known else 0.0,
        step=known.step if known else 0.0,
        stability=known.stability if known else 0.0,
        seconds=seconds,
        sites=n_sites,
        bytes=size,
    )
