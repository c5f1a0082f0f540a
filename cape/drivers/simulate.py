"""All sites on this computer, through the code of a real run.

``memory``   typed messages by reference, one process
``wire``     every document encoded and decoded as the engine would, one process
``process``  a new ``python local.py`` or ``python remote.py`` per site and round
``docker``   the same in containers without network, one per site and one for the aggregator

With the same simulation seed all give the same maps, bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import secrets
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.metrics import isi, match_maps
from cape.computations import load
from cape.config import Config
from cape.drivers import coinstac
from cape.drivers.drops import Attendees, read_drop
from cape.drivers.links import (
    Caller,
    DocumentLink,
    InProcess,
    Link,
    MemoryLink,
    NewProcess,
    make_places,
)
from cape.drivers.stores import FileSource
from cape.errors import ConfigError, DataError
from cape.messages import Progress
from cape.policy import SitePolicy
from cape.report import score

MAX_EXCHANGES = 10_000
CONTAINER_LOGS = "container-logs"
RESERVED = ("consortium", "remote", CONTAINER_LOGS)
DOCUMENTS = ("wire", "process", "docker")
MARKS = ("results.json", "cape-site.json", "private", "site-error.txt")
"""What an earlier result has in its folder."""


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


def simulate(
    directory: Path,
    *,
    out: Path,
    through: str = "memory",
    settings: Mapping[str, object] | None = None,
    seed: int | None = None,
    drops: Sequence[str] = (),
    image: str = "",
    memory: str = "",
    on_progress: OnProgress | None = None,
) -> Path:
    """Run a consortium that lies in one folder and return the folder of its common results.

    Parameters
    ----------
    directory : Path
        ``settings.toml`` and one folder per site; ``truth.npz`` if the maps are known.
    out : Path
        Gets ``consortium/`` and one folder per site.
    through : {"memory", "wire", "process", "docker"}
        How messages travel.
    settings : mapping, optional
        Settings of the owner, over those of the file.  ``computation`` chooses another one than
        the file's; of the file then only settings that all computations have are used.
    seed : int, optional
        Reproducible noise.  The result is stamped not private; without a seed the noise comes
        from the operating system and counts.
    drops : sequence of str
        Drop-outs on purpose, each ``site@phase:round``: the site is silent from there on.
    image, memory : str, optional
        Image and memory limit of the containers, for ``docker``.
    on_progress : callable, optional
        Called after every exchange.

    Raises
    ------
    CapeError
        As in a real run; nothing of an earlier result is lost.
    """
    sites = site_folders(directory)
    given = dict(settings or {})
    chosen = {**_meant_for(given.get("computation"), _owner_settings(directory)), **given}
    # A simulation warns where a real run refuses: finding out what is too little is its purpose.
    chosen.setdefault("accept_low_quality", True)
    out = out.resolve()
    check_places(sites, out)
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if seed is None and load(str(chosen.get("computation", coinstac.PRODUCT))).simulation_only:
        seed = secrets.randbelow(2**31)  # the seed is what marks a simulation
    policy = SitePolicy(
        min_subjects=1,
        allow_not_private=True,
        private_results=True,
        simulation_seed=-1 if seed is None else seed,
    )
    try:
        with _link(through, sites, chosen, policy, work, drops, image, memory) as link:
            play(link, on_progress)
        _collect(work, out, list(sites))
    finally:
        _keep_errors(work, out)
        shutil.rmtree(work, ignore_errors=True)
    consortium = out / "consortium"
    q_ngi, correlation = compare_with_truth(directory / "truth.npz", consortium / "unmixing.npz")
    score(consortium, q_ngi=q_ngi, map_correlation=correlation, simulation=True)
    return consortium


def play(link: Link, on_progress: OnProgress | None) -> None:
    """Play all rounds of a run."""
    last: Progress | None = None
    for exchange in range(1, MAX_EXCHANGES):
        began = time.monotonic()
        progress, size = link.exchange()
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


def site_folders(directory: Path) -> dict[str, Path]:
    """Return the folders of the sites by id, sorted; DataError if there are none."""
    found = {
        path.name: path.resolve()
        for path in sorted(directory.iterdir())
        if path.is_dir() and not path.name.startswith((".", "_"))
    }
    if not found:
        detail = f"{directory} holds no folder; a consortium has one folder of data per site"
        raise DataError("E104", site="(none)", detail=detail)
    return found


def check_places(sites: Mapping[str, Path], out: Path) -> None:
    """Refuse to write where data lie, or over a folder that is no earlier result.

    Raises
    ------
    ConfigError
        A site is called like a folder of results, or a result would replace something else.
    """

    def refuse(problem: str, do: str = "choose another --out.") -> ConfigError:
        return ConfigError("E012", problem=problem, do=do)

    for name in RESERVED:
        if name in sites:
            raise refuse(f"a site cannot be called '{name}': {sites[name]}", "rename its folder.")
    for target in (out / ".work", out / "consortium", *(out / site for site in sites)):
        for place in sites.values():
            if target == place or target in place.parents or place in target.parents:
                raise refuse(f"results in {target} would lie over the data in {place}")
        ours = target.name == ".work" or any((target / mark).exists() for mark in MARKS)
        if target.is_dir() and any(target.iterdir()) and not ours:
            raise refuse(f"{target} holds something that is no earlier result of cape")


def _owner_settings(directory: Path) -> dict[str, object]:
    path = directory / "settings.toml"
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise ConfigError(
            "E012", problem="settings.toml cannot be read", do="correct it.", detail=str(err)
        ) from err


def _meant_for(name: object, settings: dict[str, object]) -> dict[str, object]:
    """Return the file's settings, of another computation than `name` the common ones only.

    Common are those that `name` has from `Config` as they are: what describes data and privacy.
    """
    if name is None or name == settings.get("computation", coinstac.PRODUCT):
        return settings
    inherited = {field.name: field for field in dataclasses.fields(Config)}
    common = [
        field.name
        for field in dataclasses.fields(load(str(name)).config)
        if field is inherited.get(field.name)
    ]
    return {key: value for key, value in settings.items() if key in common}


@contextmanager
def _link(
    through: str,
    sites: Mapping[str, Path],
    settings: Mapping[str, object],
    policy: SitePolicy,
    work: Path,
    drops: Sequence[str],
    image: str,
    memory: str,
) -> Iterator[Link]:
    chosen = dict(settings)
    computation = load(str(chosen.pop("computation", coinstac.PRODUCT)))
    config = computation.config.from_input(chosen)
    phases = computation.phases(config)
    silent = [read_drop(text, sites=sites, phases=phases) for text in drops]
    attendees = Attendees(list(sites), silent, survives=config.aggregation == "secagg")
    if through == "memory":
        sources = {site: FileSource(path, {}, config, site) for site, path in sites.items()}
        link = MemoryLink(computation, config, sources, policy, work, drops=silent)
        link.folders = dict(sites)
        yield link
        return
    if through not in DOCUMENTS:
        allowed = ", ".join(("memory", *DOCUMENTS))
        do = "choose one of them."
        raise ConfigError("E011", setting="through", got=through, allowed=allowed, do=do)
    make_places((*sites, "remote"), policy, work)
    with ExitStack() as stack:
        call: Caller = NewProcess(sites, work)
        if through == "wire":
            call = InProcess(sites, work)
        if through == "docker":
            from cape.drivers.container import Containers

            limits = {k: v for k, v in (("image", image), ("memory", memory)) if v}
            logs = work.parent / CONTAINER_LOGS
            call = stack.enter_context(Containers(sites, work, logs, **limits))
        yield DocumentLink(sites, settings, work, call, attendees)


def _collect(work: Path, out: Path, sites: Sequence[str]) -> None:
    """Put finished results where people look, replacing those of an earlier run."""
    _replace(work / "remote" / "transfer", out / "consortium")
    for site in sites:
        _replace(work / site / "output", out / site)


def _replace(new: Path, old: Path) -> None:
    shutil.rmtree(new / ".cape", ignore_errors=True)
    if not new.exists():
        return
    shutil.rmtree(old, ignore_errors=True)
    shutil.move(new, old)


def _keep_errors(work: Path, out: Path) -> None:
    """Keep the error files of a run that failed, each at its site."""
    for path in work.glob("*/output/site-error.txt"):
        site = out / path.parent.parent.name
        site.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, site / "site-error.txt")


def compare_with_truth(truth: Path, unmixing: Path) -> tuple[float | None, float | None]:
    """Return ISI of the gain matrix and mean matched |r| of the maps; None without truth or maps.

    Parameters
    ----------
    truth, unmixing : Path
        ``A`` (D, R) planted; ``W_total`` (k, D) and ``A`` (D, k) estimated.
    """
    if not (truth.is_file() and unmixing.is_file()):
        return None, None
    with np.load(truth, allow_pickle=False) as stored:
        planted = stored["A"].astype(np.float64)
    with np.load(unmixing, allow_pickle=False) as stored:
        W_total, A = stored["W_total"], stored["A"]
    if len(planted) != len(A):
        return None, None
    correlation = float(match_maps(A, planted).mean)
    gain = W_total @ planted
    return (float(isi(gain)) if gain.shape[0] == gain.shape[1] else None), correlation


def results(consortium: Path) -> dict[str, Any]:
    """Return the content of results.json."""
    loaded: dict[str, Any] = json.loads((consortium / "results.json").read_text(encoding="utf-8"))
    return loaded
