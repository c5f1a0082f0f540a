"""Where a simulated run stands after each complete exchange, so that a stopped one can go on.

``.work/run.json`` of the results folder, readable by its owner only, replaced whole.  What was
answered in an unfinished exchange is asked for again: sites with a journal repeat stored bytes, and
what parties in memory had drawn has left no process.  So no statistic is released twice.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cape.config import VERSION
from cape.errors import CapeError, ConfigError, MessageError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.simulation.transports import Transport
from cape.site.atomic_files import write_atomically
from cape.site.policy import SitePolicy

NAME = "run.json"
# Bytes: all parties, each with its cache.
MAX_CHECKPOINT = 2**30
# Of one run; far more than any settings ask for.
MAX_EXCHANGES = 10_000

# Errors after which the same step may be asked again: nothing left the party.
STOPPED = ("CAPE-E261", "CAPE-E263", "CAPE-E265")


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """What is read of a record first."""

    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSetup:
    """What a simulated run is: everything that was chosen when it began, as `simulate` takes it."""

    directory: str
    through: str
    settings: dict[str, Any]
    policy: SitePolicy
    drops: tuple[str, ...]
    image: str = ""
    memory: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A run after `exchange` complete exchanges; `state` is that of its transport."""

    version: str = VERSION
    setup: RunSetup
    exchange: int = 0
    last: Progress | None = None
    ended: bool = False
    state: dict[str, Any] | None = None

    def write(self, work: Path) -> None:
        """Store it: on disk before this returns."""
        # Not `wire.dumps`, which sorts: lists of replies keep the order of their fields.
        text = json.dumps(wire.encode(self, Checkpoint), allow_nan=False)
        write_atomically(work / NAME, text.encode("ascii"))


def read_checkpoint(work: Path) -> Checkpoint:
    """Return what was stored; ConfigError if there is nothing that can go on."""
    path = work / NAME
    if not path.is_file():
        raise ConfigError("E264", problem="this folder holds no stopped run", do="start one.")
    try:
        document = wire.loads(path.read_bytes(), MAX_CHECKPOINT)
        # The version first: a record of another one may have other fields.
        version = wire.decode_document(document, Version, "run.json", unknown="ignore").version
        if version != VERSION:
            raise ConfigError(
                "E264",
                problem=f"the run was started by version {version}, this is {VERSION}",
                do=f"continue it with version {version}, or start a new run.",
            )
        checkpoint = wire.decode_document(document, Checkpoint, "run.json")
    except MessageError as err:
        raise damaged(work, err) from err
    # A number without a bound would let the loop run for ever.
    if not 0 <= checkpoint.exchange < MAX_EXCHANGES:
        raise damaged(work, ValueError("no exchange has this number"))
    return checkpoint


def damaged(work: Path, err: Exception) -> ConfigError:
    return ConfigError(
        "E264",
        problem="what this folder says of its stopped run is damaged",
        do="start a new run; what was spent stays spent.",
        detail=f"{work / NAME}: {type(err).__name__}: {err}",
    )


def restore(transport: Transport, state: dict[str, Any] | None, work: Path) -> None:
    """Let a transport stand where a checkpoint says; ConfigError (E264) if it says nonsense."""
    if state is None:
        return
    try:
        transport.restore(state)
    except (ValueError, KeyError, CapeError) as err:
        raise damaged(work, err) from err


def may_go_on(err: BaseException) -> bool:
    """Tell whether a run that this ended can be resumed: it was stopped, no party refused."""
    if isinstance(err, CapeError):
        return err.code in STOPPED
    return isinstance(err, OSError | MemoryError) or not isinstance(err, Exception)
