"""What the released rounds showed: a line for each, in a state of one size in all rounds."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field, replace

from cape.errors import MessageError
from cape.frozen import dataclass
from cape.privacy.cost import Event
from cape.protocol.messages import Roster

ROW = struct.Struct("<4d")  # the four norms of a `RoundRecord`


@dataclass(frozen=True, kw_only=True, slots=True)
class RoundRecord:
    """One released round, as everybody sees it; no `survivors` where all sites must answer."""

    phase: str
    round: int
    statistic_norm: float
    noise_norm: float
    step_norm: float
    stability: float
    survivors: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The records of a run over the lines of its plan, which names phases and rounds.

    A list of records would be read and written by every party in every round, longer each time.
    """

    lines: str  # of every line of the plan, "1" if it was released, else "0"
    rows: bytes  # of every line of the plan, a `ROW`; zeros before it was released
    # Where sites may drop out: of every site of the roster, lines of the plan that it was part of
    taken: tuple[int, ...] = field(default=(), metadata={"added": True})

    def __post_init__(self) -> None:
        if len(self.rows) != ROW.size * len(self.lines) or set(self.lines) - {"0", "1"}:
            raise MessageError("E202", problem="a trace of another length than its plan")

    @property
    def last_step(self) -> tuple[float, float]:
        """Step norm and stability of the last release; zeros before the first."""
        step, stability = ROW.unpack_from(self.rows, ROW.size * max(self.lines.rfind("1"), 0))[2:]
        return step, stability


def start_trace(plan: Sequence[Event]) -> Trace:
    return Trace(lines="0" * len(plan), rows=bytes(ROW.size * len(plan)))


def with_row(
    trace: Trace,
    roster: Roster,
    phase: str,
    row: tuple[float, float, float, float],
    survivors: Sequence[str],
) -> Trace:
    """Return the trace with the next release of a phase; MessageError if none is planned."""
    waiting = (
        i for i, event in enumerate(roster.plan) if event.phase == phase and trace.lines[i] == "0"
    )
    line = next(waiting, None)
    if line is None:
        raise MessageError("E202", problem=f"{phase}: more releases than planned")
    taken = trace.taken
    if survivors:
        # Who fell silent never comes back: its lines end where it was last inside.
        inside = frozenset(survivors)
        taken = tuple(
            line + 1 if entry.site in inside else before
            for entry, before in zip(roster.sites, taken or (0,) * roster.n_sites, strict=True)
        )
    return replace(
        trace,
        lines=trace.lines[:line] + "1" + trace.lines[line + 1 :],
        rows=trace.rows[: ROW.size * line] + ROW.pack(*row) + trace.rows[ROW.size * (line + 1) :],
        taken=taken,
    )


def records(trace: Trace | None, roster: Roster) -> tuple[RoundRecord, ...]:
    """Return a record for every released round, in order."""
    if trace is None:
        return ()
    return tuple(
        RoundRecord(
            phase=event.phase,
            round=event.round,
            statistic_norm=statistic,
            noise_norm=noise,
            step_norm=step,
            stability=stability,
            survivors=tuple(
                entry.site
                for entry, taken in zip(roster.sites, trace.taken, strict=bool(trace.taken))
                if taken > i
            ),
        )
        for i, (event, released, (statistic, noise, step, stability)) in enumerate(
            zip(roster.plan, trace.lines, ROW.iter_unpack(trace.rows), strict=True)
        )
        if released == "1"
    )
