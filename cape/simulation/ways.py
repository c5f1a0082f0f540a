"""Ways to play a simulated run, by their word of ``through``; callers may hand in others.

``memory``   typed messages by reference, one process
``wire``     every document encoded and decoded as the engine would, one process
``process``  a new process per site and round, as ``python local.py`` and ``remote.py`` are
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from cape.computations import configured
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.protocol.phases import Computation
from cape.settings.config import Config
from cape.simulation.dropout import ActiveSites, Drop, read_drop
from cape.simulation.memory import MemoryTransport
from cape.simulation.run_loop import Checkpoint, OnProgress, RunSetup, run_to_end
from cape.simulation.transports import (
    DocumentTransport,
    InProcess,
    NewProcess,
    PartyRunner,
    make_places,
)
from cape.site.site_data import FileSource

# Called with (stage, subjects done, subjects of all sites): "read", then "report".
OnSubject = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """A run to be played from `begin` on, below `work`, where its results are left."""

    begin: Checkpoint
    sites: Mapping[str, Path]
    work: Path
    store: Path | None  # folder of what was read of files, which commands share; None: none is kept
    on_progress: OnProgress | None
    on_subject: OnSubject | None

    @property
    def setup(self) -> RunSetup:
        return self.begin.setup

    @property
    def maps(self) -> Path | None:
        """The file of public maps that stands for those in the folders of sites."""
        return Path(self.setup.maps) if self.setup.maps else None

    @property
    def logs(self) -> Path:
        return self.work.parent / CONTAINER_LOGS


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """One way to play a run, and what it cannot do."""

    play: Callable[[Play], None]
    sees_ledgers: bool = True  # the ledger_file of a policy, wherever on this computer it lies
    drops_sites: bool = True
    resumes: bool = True


FindWay = Callable[[str], Way]
CONTAINER_LOGS = "container-logs"


def in_memory(play: Play) -> None:
    computation, config, drops, _ = _bound(play)
    sources = {
        site: FileSource(path, {}, config, site, store=play.store, maps=play.maps)
        for site, path in play.sites.items()
    }
    if play.on_subject is not None:
        _tell_of_all(sources, play.on_subject)
    transport = MemoryTransport(
        computation, config, sources, play.setup.policy, play.work, drops=drops, folders=play.sites
    )
    run_to_end(transport, play.on_progress, begin=play.begin, work=play.work)


def in_documents(play: Play, parties: AbstractContextManager[PartyRunner]) -> None:
    """Play a run whose parties are called with documents, as an engine calls them.

    Parties begin when their folders and policies are there: a container mounts them.
    """
    computation, _, _, active = _bound(play)
    make_places((*play.sites, "remote"), play.setup.policy, play.work, play.sites)
    # Sites take no computation for granted.
    settings = {"computation": computation.name, **play.setup.settings}
    with parties as call:
        documents = DocumentTransport(play.sites, settings, play.work, call, active)
        run_to_end(documents, play.on_progress, begin=play.begin, work=play.work)


def in_one_process(play: Play) -> None:
    in_documents(play, nullcontext(InProcess(play.sites, play.work, play.store, play.maps)))


def in_processes(play: Play) -> None:
    in_documents(play, nullcontext(NewProcess(play.sites, play.work, play.store, play.maps)))


WAYS: Mapping[str, Way] = {
    "memory": Way(play=in_memory),
    "wire": Way(play=in_one_process),
    "process": Way(play=in_processes),
}


def find_way(through: str, ways: Mapping[str, Way] = WAYS) -> Way:
    """Return a way of `ways`; ConfigError E011 names them."""
    if through not in ways:
        allowed, do = ", ".join(ways), "choose one of them."
        raise ConfigError("E011", setting="through", got=through, allowed=allowed, do=do)
    return ways[through]


def _bound(play: Play) -> tuple[Computation[Any], Config, list[Drop], ActiveSites]:
    computation, config = configured(play.setup.settings)
    phases = computation.bind(config).phases
    drops = [read_drop(text, sites=play.sites, phases=phases) for text in play.setup.drops]
    active = ActiveSites(list(play.sites), drops, survives=config.aggregation == "secagg")
    return computation, config, drops, active


def _tell_of_all(sources: Mapping[str, FileSource], on_subject: OnSubject) -> None:
    """Let all sites count together: subject i of those of all sites."""
    sizes = {site: source.count() for site, source in sources.items()}
    before = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
    total = sum(sizes.values())
    for site, source in sources.items():
        source.on_subject = partial(_tell, on_subject, before[site], total)


def _tell(on_subject: OnSubject, before: int, total: int, stage: str, done: int) -> None:
    on_subject(stage, before + done, total)
