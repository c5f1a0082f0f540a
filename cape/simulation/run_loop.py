"""What a simulated run was asked for, and the loop over its exchanges."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from cape.engines.coinstac.documents import Document
from cape.errors import CapeError, ConfigError, MessageError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.simulation.transports import Transport
from cape.site.files import write_atomically
from cape.site.places import SETUP_FILE
from cape.site.policy import SitePolicy

# Maximum bytes of a setup file
MAX_SETUP = 2**20
# Far more than any settings ask for
MAX_EXCHANGES = 10_000

# Errors of a party that was stopped: it refused nothing
STOPPED = ("CAPE-E261", "CAPE-E265")
# Progress of a run before its first broadcast
_NOTHING = dict.fromkeys(("mu", "mu_budget", "epsilon", "step", "stability"), 0.0)
BEFORE_JOIN = Progress(phase="join", round=1, rounds=1, exchange=0, exchanges=0, **_NOTHING)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunOptions:
    """What a caller of `simulate` chooses; `rerun` takes the choices of the run from its files.

    `settings` override `settings_file`, else ``settings.toml``.  With a `seed`, 0 to 2^63 - 1, the
    result is not private.  `drops` are ``site@phase:round``; `policy` applies to every site, with
    absolute paths.
    `maps`: a finished run or a file of public template maps.  `replace`: begin anew over a run in
    `out`; else one that was stopped goes on, and a finished one is ConfigError E016.  `store`:
    cache folder of read files, or None.  `all_pages`: draw the page of every site, not of the first
    alone; `cape report` draws them later.
    """

    out: Path
    through: str = "memory"
    settings: Mapping[str, object] = field(default_factory=dict)
    settings_file: Path | None = None
    seed: int | None = None
    drops: Sequence[str] = ()
    policy: SitePolicy | None = None
    image: str = ""
    memory: str = ""
    maps: Path | None = None
    replace: bool = True
    store: Path | None = None
    all_pages: bool = False
    on_progress: OnProgress | None = None
    on_subject: OnSubject | None = None


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
    # Of the finished run, what the notice of each site told, one line for each finding
    notices: dict[str, tuple[str, ...]] = field(default_factory=dict, metadata={"omittable": True})

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
        document = wire.loads(path.read_bytes(), MAX_SETUP)
        return wire.decode_document(document, RunSetup, SETUP_FILE)
    except MessageError as err:
        problem = "what this folder says of its run is damaged, or of another version"
        detail = f"{path}: {err}"
        raise ConfigError("E264", problem=problem, do="type it anew.", detail=detail) from err


def was_stopped(err: BaseException) -> bool:
    """Whether a run may end well if it is started again; a party that refused refuses again."""
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
# Called with (stage, subjects done, subjects of all sites): "read", then "report"; or "read once".
OnSubject = Callable[[str, int, int], None]


def run_to_end(
    link: Transport,
    on_progress: OnProgress | None,
    *,
    epsilon: float = 0.0,
    last: Progress = BEFORE_JOIN,
    keep: Callable[[Document], None] | None = None,
) -> None:
    """Play the exchanges of a run after `last`; `keep` takes the state after each.

    `epsilon` is that of its settings, for its progress.
    """
    for exchange in range(max(last.exchange, 1), MAX_EXCHANGES):
        began = time.monotonic()
        progress, size = link.exchange()
        if keep is not None and progress is not None:
            # A run does not end for want of a bookmark; an earlier one stays valid.
            with suppress(CapeError, OSError, ValueError):
                keep(link.state())
        if on_progress is not None:
            seconds, n_sites = time.monotonic() - began, len(link.active.remaining)
            line = progress_line(exchange, last, progress or last, seconds, n_sites, size)
            on_progress(dataclasses.replace(line, epsilon_total=epsilon))
        if progress is None:
            return
        last = progress
    raise RuntimeError("the run does not end")


def progress_line(
    exchange: int, opened: Progress, latest: Progress, seconds: float, n_sites: int, size: int
) -> ProgressLine:
    # Phase and round are those that were answered; the rest is the state after it.
    answered = {"phase": opened.phase, "round": opened.round, "rounds": opened.rounds}
    count = {"exchange": exchange, "exchanges": max(exchange, latest.exchanges)}
    line = dataclasses.asdict(latest) | answered | count
    return ProgressLine(**line, seconds=seconds, sites=n_sites, bytes=size)
