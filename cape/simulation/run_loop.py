"""A simulated run, exchange by exchange, with a checkpoint ``.work/run.json`` after each.

An unfinished exchange is repeated: sites with a journal send stored bytes, and noise drawn by
parties in memory never left the process.  So no statistic is released twice.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

from cape.errors import CapeError, ConfigError, MessageError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.settings.config import VERSION
from cape.simulation.transports import Transport
from cape.site.files import write_atomically
from cape.site.policy import SitePolicy

CHECKPOINT_FILE = "run.json"
# File in the folder of a finished run, with the setup that `cape rerun` repeats
SETUP_FILE = "run.json"
# Maximum bytes of a checkpoint, which has the caches of all parties
MAX_CHECKPOINT = 2**30
# Far more than any settings ask for
MAX_EXCHANGES = 10_000

# Errors after which the same step may be repeated, because no data left the party
STOPPED = ("CAPE-E261", "CAPE-E263", "CAPE-E265")
# Progress of a run before its first broadcast
_NOTHING = dict.fromkeys(("mu", "mu_budget", "epsilon", "step", "stability"), 0.0)
BEFORE_JOIN = Progress(phase="join", round=1, rounds=1, exchange=0, exchanges=0, **_NOTHING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """The part of a checkpoint that is read first: the version that wrote it."""

    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSetup:
    """All choices of a simulated run, as `simulate` takes them."""

    directory: str
    through: str
    settings: dict[str, Any]
    policy: SitePolicy
    drops: tuple[str, ...]
    image: str = ""
    memory: str = ""
    # File of public maps on which sites regress; empty: those in their folders
    maps: str = field(default="", metadata={"omittable": True})

    def write(self, out: Path) -> None:
        text = json.dumps(wire.encode(self, RunSetup), allow_nan=False, indent=1)
        write_atomically(out / SETUP_FILE, text.encode("ascii"))


def read_setup(out: Path) -> RunSetup:
    """Return the setup of the finished run in a folder of results; ConfigError E264."""
    path = out / SETUP_FILE
    if not path.is_file():
        do = f"name the --out of cape simulate, which holds {SETUP_FILE}."
        raise ConfigError("E264", problem="this folder holds no finished run", do=do)
    try:
        document = wire.loads(path.read_bytes(), MAX_CHECKPOINT)
        return wire.decode_document(document, RunSetup, SETUP_FILE)
    except MessageError as err:
        problem = "what this folder says of its run is damaged, or of another version"
        detail = f"{path}: {err}"
        raise ConfigError("E264", problem=problem, do="type it anew.", detail=detail) from err


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A run after `exchange` complete exchanges; `state` is the state of its transport."""

    version: str = VERSION
    setup: RunSetup
    exchange: int = 0
    last: Progress | None = None
    ended: bool = False
    state: dict[str, Any] | None = None

    def write(self, work: Path) -> None:
        # Not `wire.dumps`, which sorts: lists of replies keep the order of their fields.
        text = json.dumps(wire.encode(self, Checkpoint), allow_nan=False)
        write_atomically(work / CHECKPOINT_FILE, text.encode("ascii"))


def read_checkpoint(work: Path) -> Checkpoint:
    path = work / CHECKPOINT_FILE
    if not path.is_file():
        raise ConfigError("E264", problem="this folder holds no stopped run", do="start one.")
    try:
        document = wire.loads(path.read_bytes(), MAX_CHECKPOINT)
        # Version first: a checkpoint of another version may have other fields.
        origin = wire.decode_document(document, Origin, "run.json", unknown="ignore")
        if origin.version != VERSION:
            raise ConfigError(
                "E264",
                problem=f"the run was started by version {origin.version}, this is {VERSION}",
                do=f"continue it with version {origin.version}, or start a new run.",
            )
        checkpoint = wire.decode_document(document, Checkpoint, "run.json")
    except MessageError as err:
        raise damaged_checkpoint(work, err) from err
    # Without a bound the loop could run for ever.
    if not 0 <= checkpoint.exchange < MAX_EXCHANGES:
        raise damaged_checkpoint(work, ValueError("no exchange has this number"))
    return checkpoint


def damaged_checkpoint(work: Path, err: Exception) -> ConfigError:
    return ConfigError(
        "E264",
        problem="what this folder says of its stopped run is damaged",
        do="start a new run; what was spent stays spent.",
        detail=f"{work / CHECKPOINT_FILE}: {type(err).__name__}: {err}",
    )


def may_go_on(err: BaseException) -> bool:
    # A run that was stopped may go on; a party that refused would refuse again.
    if isinstance(err, CapeError):
        return err.code in STOPPED
    return isinstance(err, OSError | MemoryError) or not isinstance(err, Exception)


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressLine(Progress):
    """Progress of an exchange with its wall time, number of sites, and bytes of one reply."""

    seconds: float
    sites: int
    bytes: int
    epsilon_total: float = 0.0  # epsilon of the settings; 0: not known, or no noise


OnProgress = Callable[[ProgressLine], None]


def run_to_end(
    link: Transport,
    on_progress: OnProgress | None,
    *,
    begin: Checkpoint | None = None,
    work: Path = Path(),
) -> None:
    """Play all exchanges of a run, or those after `begin`; write a checkpoint after each."""
    last, first = BEFORE_JOIN, 1
    if begin is not None:
        last, first = begin.last or BEFORE_JOIN, begin.exchange + 1
    if begin is not None and begin.state is not None:
        try:
            link.restore(begin.state)
        except (ValueError, KeyError, CapeError) as err:
            raise damaged_checkpoint(work, err) from err
    for exchange in range(first, MAX_EXCHANGES):
        began = time.monotonic()
        progress, size = link.exchange()
        # Write the checkpoint before showing the line.
        if begin is not None:
            ended = progress is None
            dataclasses.replace(
                begin,
                exchange=exchange,
                last=progress,
                ended=ended,
                state=None if ended else link.state(),
            ).write(work)
        if on_progress is not None:
            seconds, n_sites = time.monotonic() - began, len(link.active.left)
            line = progress_line(exchange, last, progress or last, seconds, n_sites, size)
            total = 0.0 if begin is None else float(begin.setup.settings.get("epsilon") or 0.0)
            on_progress(dataclasses.replace(line, epsilon_total=total))
        if progress is None:
            return
        last = progress
    raise RuntimeError("the run does not end")


def progress_line(
    exchange: int, opened: Progress, latest: Progress, seconds: float, n_sites: int, size: int
) -> ProgressLine:
    # Phase and round are those that were answered; the rest is the state after it.
    asked = {"phase": opened.phase, "round": opened.round, "rounds": opened.rounds}
    count = {"exchange": exchange, "exchanges": max(exchange, latest.exchanges)}
    line = dataclasses.asdict(latest) | asked | count
    return ProgressLine(**line, seconds=seconds, sites=n_sites, bytes=size)
