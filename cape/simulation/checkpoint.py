"""Where a simulated run stands after each complete exchange, so that a stopped one can go on.

``.work/run.json`` of the results folder, readable by its owner only, replaced whole.  What was
answered in an unfinished exchange is asked for again: sites with a journal repeat stored bytes, and
what parties in memory had drawn has left no process.  So no statistic is released twice.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from cape.config import VERSION
from cape.errors import CapeError, ConfigError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.simulation.transports import Transport
from cape.site.atomic_files import write_atomically
from cape.site.journal import DAMAGED
from cape.site.policy import SitePolicy

NAME = "run.json"
MAX_EXCHANGES = 10_000
"""Of one run; far more than any settings ask for."""

STOPPED = ("CAPE-E261", "CAPE-E263", "CAPE-E265")
"""Errors after which the same step may be asked again: nothing left the party."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSetup:
    """What a simulated run is: everything that was chosen when it began.

    Attributes
    ----------
    directory : str
        Folder of the consortium, absolute.
    through : str
        How messages travel.
    settings : dict
        The owner's.
    policy : SitePolicy
        Of every site; names files by absolute paths.
    drops : tuple of str
        Drop-outs on purpose.
    image, memory : str
        Of the containers, where there are any; empty = their defaults.
    """

    directory: str
    through: str
    settings: dict[str, Any]
    policy: SitePolicy
    drops: tuple[str, ...]
    image: str = ""
    memory: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """A run after `exchange` complete exchanges; `state` is the link's, `ended`: all is done."""

    setup: RunSetup
    exchange: int
    last: Progress | None
    ended: bool
    state: dict[str, Any] | None

    def write(self, work: Path) -> None:
        """Store it: on disk before this returns."""
        document = {
            "version": VERSION,
            "setup": {
                **{f.name: getattr(self.setup, f.name) for f in dataclasses.fields(self.setup)},
                "policy": dataclasses.asdict(self.setup.policy),
            },
            "exchange": self.exchange,
            "last": wire.encode(self.last, Progress | None, "last"),
            "ended": self.ended,
            "state": self.state,
        }
        write_atomically(work / NAME, json.dumps(document, allow_nan=False).encode())


def read_checkpoint(work: Path) -> Checkpoint:
    """Return what was stored; ConfigError if there is nothing that can go on."""
    path = work / NAME
    if not path.is_file():
        raise ConfigError("E264", problem="this folder holds no stopped run", do="start one.")
    try:
        document = json.loads(path.read_bytes())
        version = str(document["version"])
        if version != VERSION:
            raise ConfigError(
                "E264",
                problem=f"the run was started by version {version}, this is {VERSION}",
                do=f"continue it with version {version}, or start a new run.",
            )
        given, state = document["setup"], document["state"]
        if not isinstance(state, dict | None):
            raise ValueError("the state of the parties is no mapping")
        if not 0 <= int(document["exchange"]) < MAX_EXCHANGES:
            raise ValueError("no exchange has this number")
        setup = RunSetup(
            directory=str(given["directory"]),
            through=str(given["through"]),
            settings=dict(given["settings"]),
            policy=SitePolicy.from_mapping(given["policy"]),
            drops=tuple(str(drop) for drop in given["drops"]),
            image=str(given["image"]),
            memory=str(given["memory"]),
        )
        return Checkpoint(
            setup=setup,
            exchange=int(document["exchange"]),
            last=wire.decode(document["last"], Progress | None, "last"),
            ended=document["ended"] is True,
            state=state,
        )
    except (*DAMAGED, AttributeError, CapeError) as err:
        if isinstance(err, CapeError) and err.code == "CAPE-E264":
            raise
        raise damaged(work, err) from err


def damaged(work: Path, err: Exception) -> ConfigError:
    """Return the error that says that a stopped run cannot go on, because its record is damaged."""
    return ConfigError(
        "E264",
        problem="what this folder says of its stopped run is damaged",
        do="start a new run; what was spent stays spent.",
        detail=f"{work / NAME}: {type(err).__name__}: {err}",
    )


def restored(link: Transport, state: dict[str, Any] | None, work: Path) -> None:
    """Let a link stand where a checkpoint says; ConfigError (E264) if it says nonsense."""
    if state is None:
        return
    try:
        link.restore(state)
    except (*DAMAGED, AttributeError, IndexError, CapeError) as err:
        raise damaged(work, err) from err


def may_go_on(err: BaseException) -> bool:
    """Tell whether a run that this ended can be resumed: it was stopped, no party refused."""
    if isinstance(err, CapeError):
        return err.code in STOPPED
    return isinstance(err, OSError | MemoryError) or not isinstance(err, Exception)
