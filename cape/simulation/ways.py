"""Ways to play a simulated run, by their names in ``through``; callers may pass other ways.

``memory``   typed messages by reference, one process
``wire``     every document encoded and decoded as the engine would, one process
``process``  a new process per party and round, like ``python local.py`` and ``remote.py``
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from cape.computations import configured
from cape.engines.coinstac.documents import Document
from cape.engines.coinstac.site import NOTICE_FILE
from cape.errors import CapeWarning, ConfigError, SubjectsWarning, warn_caller
from cape.frozen import dataclass
from cape.protocol.phases import Computation
from cape.settings.config import Config
from cape.simulation import run_loop, transports
from cape.simulation.going_on import write_state
from cape.simulation.memory import MemoryTransport, contents_of
from cape.site.site_data import FileSource


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """A run to be played; its results are written below `work`."""

    setup: run_loop.RunSetup
    sites: Mapping[str, Path]
    work: Path
    options: run_loop.RunOptions  # of its caller; what is played stands in `setup`
    state: Document | None = None  # after the last exchange of a run that goes on

    @property
    def maps(self) -> Path | None:
        """The file of public maps that replaces those in the folders of sites."""
        return Path(self.setup.maps) if self.setup.maps else None

    @property
    def logs(self) -> Path:
        return self.work.parent / CONTAINER_LOGS


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """A way to play a run, and its abilities."""

    play: Callable[[Play], None]
    sees_ledgers: bool = True  # whether sites can open a policy's ledger_file on this computer
    drops_sites: bool = True


FindWay = Callable[[str], Way]
CONTAINER_LOGS = "container-logs"


def in_memory(play: Play) -> None:
    computation, config, drops, _ = _bound(play)
    read = {} if play.state is None else contents_of(play.state)
    sources = {
        site: FileSource(
            path,
            read.get(site, {}),
            config,
            site,
            stop_if_most_fail=play.setup.policy.stop_if_most_fail,
            min_group=play.setup.policy.min_group,
            store=play.options.store,
            maps=play.maps,
        )
        for site, path in play.sites.items()
    }
    if play.options.on_subject is not None:
        _count_together(sources, play.options.on_subject)
    transport = MemoryTransport(
        computation, config, sources, play.setup.policy, play.work, drops=drops, folders=play.sites
    )
    _run_to_end(transport, play)


def in_documents(play: Play, parties: AbstractContextManager[transports.PartyRunner]) -> None:
    """Play a run whose parties are called with documents, as an engine calls them.

    `parties` is entered after folders and policies exist, because containers mount them.
    """
    computation, _, _, active = _bound(play)
    transports.make_places((*play.sites, "remote"), play.setup.policy, play.work, play.sites)
    # Sites have no default computation.
    settings = {"computation": computation.name, **play.setup.settings}
    with parties as call:
        documents = transports.DocumentTransport(play.sites, settings, play.work, call, active)
        _run_to_end(documents, play)


def _on_this_computer(kind: type[transports.InProcess | transports.NewProcess], play: Play) -> None:
    parties = kind(play.sites, play.work, play.options.store, play.maps)
    in_documents(play, nullcontext(parties))


WAYS: Mapping[str, Way] = {
    "memory": Way(play=in_memory),
    "wire": Way(play=partial(_on_this_computer, transports.InProcess)),
    "process": Way(play=partial(_on_this_computer, transports.NewProcess)),
}


def find_way(through: str, ways: Mapping[str, Way] = WAYS) -> Way:
    """Return the way of this name; ConfigError E011 for another name."""
    if through not in ways:
        allowed, do = ", ".join(ways), "choose one of them."
        raise ConfigError("E011", setting="through", got=through, allowed=allowed, do=do)
    return ways[through]


def _run_to_end(transport: transports.Transport, play: Play) -> None:
    epsilon = float(play.setup.settings.get("epsilon") or 0.0)
    last = run_loop.BEFORE_JOIN
    if play.state is not None:
        last = transport.go_on(play.state)
        at = f"exchange {last.exchange} of {last.exchanges}"
        text = f"goes on at {at}, where it was stopped"
        is_private = configured(play.setup.settings)[1].private
        text += "; only the rest of its plan is charged" if is_private else ""
        warn_caller(text, CapeWarning)
    # Elsewhere a container or an engine has homes of sites that end with it.
    keep = partial(write_state, play.work) if play.setup.through in WAYS else None
    run_loop.run_to_end(transport, _telling(play), epsilon=epsilon, last=last, keep=keep)


def _telling(play: Play) -> run_loop.OnProgress:
    """Return `on_progress` of the options, which first warns of what the sites are told.

    The user of a simulation has the data of all sites, so what a site is told alone is told here,
    once all data are read.
    """
    waiting, then = [play], play.options.on_progress

    def on_progress(line: run_loop.ProgressLine) -> None:
        for lines in notices(waiting.pop()).values() if waiting else ():
            warn_caller("\n".join(lines), SubjectsWarning)
        if then is not None:
            then(line)

    return on_progress


def notices(play: Play) -> dict[str, tuple[str, ...]]:
    """Return what the notices of sites tell: who counts, then one line for each finding."""
    told = {}
    for site in play.sites:
        path = play.work / site / "output" / NOTICE_FILE
        if path.is_file():
            head, *rest = path.read_text(encoding="utf-8", errors="replace").splitlines()
            found = (f"Site {site}: {line}" for line in rest if line.startswith("CAPE-"))
            told[site] = (head, *found)
    return told


def _bound(
    play: Play,
) -> tuple[Computation[Any], Config, list[transports.Drop], transports.ActiveSites]:
    computation, config = configured(play.setup.settings)
    phases = computation.bind(config).phases
    drops = [
        transports.read_drop(text, sites=play.sites, phases=phases) for text in play.setup.drops
    ]
    active = transports.ActiveSites(
        list(play.sites), drops, survives=config.aggregation == "secagg"
    )
    return computation, config, drops, active


def _count_together(sources: Mapping[str, FileSource], on_subject: run_loop.OnSubject) -> None:
    """Report each subject with its number among those of all sites."""
    sizes = [source.count() for source in sources.values()]

    def report(before: int, stage: str, done: int) -> None:
        on_subject(stage, before + done, sum(sizes))

    for before, source in zip(accumulate(sizes, initial=0), sources.values(), strict=False):
        source.on_subject = partial(report, before)
