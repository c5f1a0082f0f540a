"""All sites on this computer, through the code of a real run.

``memory``   typed messages by reference, one process
``wire``     every document encoded and decoded as the engine would, one process
``process``  a new ``python local.py`` or ``python remote.py`` per site and round

With the same simulation seed all three give the same maps, bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cape import wire
from cape.algorithms.metrics import isi, match_maps
from cape.computations import load
from cape.computations._results import Outcome, SiteOutcome
from cape.config import Config
from cape.drivers import coinstac
from cape.drivers.codec import encode_reply, request_digest
from cape.drivers.drops import FIRST, Attendees, Drop, read_drop
from cape.drivers.identity import read_identity
from cape.drivers.parties import NO_REQUEST, AggregatorParty, FileSource, MemoryMemo, SiteParty
from cape.errors import CapeError, ConfigError, DataError
from cape.messages import Progress
from cape.phases import (
    AnyEnvelope,
    Computation,
    Run,
    Source,
    advance_aggregator,
    advance_site,
    start,
)
from cape.policy import SitePolicy
from cape.report import score, write_consortium, write_site

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


class Link(Protocol):
    """One way to carry messages: `exchange` plays a round and returns None when the run ended."""

    attendees: Attendees

    def exchange(self) -> tuple[Progress | None, int]:
        """Play one round; returns the public line of the broadcast and the bytes of one reply."""


def simulate(
    directory: Path,
    *,
    out: Path,
    through: str = "memory",
    settings: Mapping[str, object] | None = None,
    seed: int | None = None,
    drops: Sequence[str] = (),
    on_progress: OnProgress | None = None,
) -> Path:
    """Run a consortium that lies in one folder and return the folder of its common results.

    Parameters
    ----------
    directory : Path
        ``settings.toml`` and one folder per site; ``truth.npz`` if the maps are known.
    out : Path
        Gets ``consortium/`` and one folder per site.
    through : {"memory", "wire", "process"}
        How messages travel.
    settings : mapping, optional
        Settings of the owner, over those of the file.  ``computation`` chooses another one than
        the file's; of the file then only settings that all computations have are used.
    seed : int, optional
        Reproducible noise.  The result is stamped not private; without a seed the noise comes
        from the operating system and counts.
    drops : sequence of str
        Drop-outs on purpose, each ``site@phase:round``: the site is silent from there on.
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
    work = out / ".work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    policy = SitePolicy(
        min_subjects=1,
        allow_not_private=True,
        private_results=True,
        simulation_seed=-1 if seed is None else seed,
    )
    try:
        link = _link(through, sites, chosen, policy, work, drops)
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


def _link(
    through: str,
    sites: Mapping[str, Path],
    settings: Mapping[str, object],
    policy: SitePolicy,
    work: Path,
    drops: Sequence[str],
) -> Link:
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
        return link
    if through == "wire":
        return DocumentLink(sites, settings, policy, work, InProcess(work), attendees)
    if through == "process":
        return DocumentLink(sites, settings, policy, work, NewProcess(work), attendees)
    raise ConfigError(
        "E011",
        setting="through",
        got=through,
        allowed="memory, wire, process",
        do="choose one of them.",
    )


class MemoryLink:
    """Parties in one process; messages are handed over by reference."""

    def __init__(
        self,
        computation: Computation[Any],
        config: Config,
        sources: Mapping[str, Source],
        policy: SitePolicy,
        out: Path | None,
        *,
        drops: Sequence[Drop] = (),
    ) -> None:
        self._computation, self._config, self._out = computation, config, out
        survives = config.aggregation == "secagg"
        self.attendees = Attendees(list(sources), drops, survives=survives)
        self._parties = {
            site: self._party(site, source, policy) for site, source in sources.items()
        }
        self._runs: dict[str, Run[Any]] = {s: start(computation, config) for s in sources}
        self._state = start(computation, config)
        self._request: AnyEnvelope | None = None
        self._kept: dict[str, bytes] = {}
        self.folders: dict[str, Path] = {}
        self.outcome: Outcome | None = None

    def _party(self, site: str, source: Source, policy: SitePolicy) -> SiteParty:
        vault: dict[str, bytes] = {}

        def publish(result: SiteOutcome) -> None:
            if self._out is not None:
                write_site(self._out / site / "output", result)

        return SiteParty(
            site=site,
            computation=self._computation.name,
            config=self._config,
            noise=coinstac.noise_of(policy),
            policy=policy,
            source=source,
            memo=MemoryMemo(),
            request=NO_REQUEST,
            on_charge=lambda line: None,
            keep=vault.__setitem__,
            secret=vault.__getitem__,
            publish=publish,
            identity=lambda: read_identity([self.folders[site]], site),
        )

    def _publish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        if self._out is not None:
            write_consortium(self._out / "remote" / "transfer", outcome)

    def exchange(self) -> tuple[Progress | None, int]:
        """Let every site answer and the aggregator combine."""
        digest = NO_REQUEST if self._request is None else request_digest(self._request)
        inbox: dict[str, AnyEnvelope] = {}
        cursor = self._state.cursor
        for site in self.attendees.asked(cursor.phase, cursor.round):
            party = self._parties[site]
            party.request = digest
            try:
                self._runs[site], inbox[site] = advance_site(
                    self._computation, self._runs[site], self._request, party
                )
            except CapeError as err:
                self.attendees.failed(site, cursor.phase, err)
        aggregator = AggregatorParty(
            config=self._config, publish=self._publish, request=digest, kept=self._kept
        )
        self._state, self._request, ended = advance_aggregator(
            self._computation, self._state, inbox, aggregator
        )
        size = len(wire.dumps(encode_reply(next(iter(inbox.values())))))
        return (None if ended else self._request.progress), size


class Caller(Protocol):
    """Runs one party for one round: JSON text in, JSON text out."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Return the answer; CapeError with the public text if the party failed."""


class InProcess:
    """Calls the border function here."""

    def __init__(self, work: Path) -> None:
        self._work = work

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Decode, run, encode."""
        os.environ[coinstac.POLICY_VARIABLE] = str(self._work / party / "site-policy.toml")
        try:
            return wire.dumps(coinstac.run(role, wire.loads(text, coinstac.MAX_DOCUMENT)))
        finally:
            del os.environ[coinstac.POLICY_VARIABLE]


class NewProcess:
    """Starts ``python local.py`` or ``python remote.py`` as the engine does."""

    def __init__(self, work: Path) -> None:
        self._work = work
        top = Path(__file__).resolve().parents[2]
        self._programs = {role: top / f"{role}.py" for role in ("local", "remote")}

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Start the program, write the document, read the answer."""
        policy = self._work / party / "site-policy.toml"
        env = {**os.environ, coinstac.POLICY_VARIABLE: str(policy)}
        # Hundreds of starts: without kept bytecode each one compiles the whole package again.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(  # noqa: S603 - this project's own programs
            [sys.executable, str(self._programs[role])],
            input=text,
            capture_output=True,
            env=env,
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
        raise ReportedError(done.stderr.decode("utf-8", "replace").strip(), self._detail(party))

    def _detail(self, party: str) -> str:
        path = self._work / party / "output" / "site-error.txt"
        if not path.is_file():
            return ""
        # The first line is the public text, which came by itself.
        return path.read_text(encoding="utf-8").partition("\n")[2].strip()


class ReportedError(CapeError):
    """An error that another process reported by its public text."""

    def __init__(self, public: str, detail: str) -> None:
        super().__init__("E000", detail=detail)
        words = public.split(" ", 1)
        self.public = public if words[0].startswith("CAPE-") else f"CAPE-E000 {public}"
        self.code = self.public.split(" ", 1)[0]
        self.args = (self.public,)


class DocumentLink:
    """Plays the engine: directories, caches, documents; every byte goes through JSON."""

    def __init__(
        self,
        sites: Mapping[str, Path],
        settings: Mapping[str, object],
        policy: SitePolicy,
        work: Path,
        call: Caller,
        attendees: Attendees,
    ) -> None:
        self._call, self._work, self.attendees = call, work, attendees
        self._bases = dict(sites)
        self._caches: dict[str, Any] = {party: {} for party in (*sites, "remote")}
        self._input: Any = dict(settings)
        self._iteration = 0
        for party in self._caches:
            for place in ("output", "cache", "transfer", "base"):
                (work / party / place).mkdir(parents=True)
            (work / party / "site-policy.toml").write_text(_policy_text(policy), encoding="utf-8")

    def _document(self, party: str, message: Any) -> bytes:
        home = self._work / party
        state = {
            "baseDirectory": str(self._bases.get(party, home / "base")),
            "outputDirectory": str(home / "output"),
            "cacheDirectory": str(home / "cache"),
            "transferDirectory": str(home / "transfer"),
            "clientId": party,
            "iteration": self._iteration,
        }
        return wire.dumps({"input": message, "cache": self._caches[party], "state": state})

    def _ask(self, role: str, party: str, message: Any) -> tuple[Any, bool, int]:
        text = self._call(role, party, self._document(party, message))
        answer = wire.loads(text, coinstac.MAX_DOCUMENT)
        self._caches[party] = {**self._caches[party], **answer["cache"]}
        return answer["output"], bool(answer["success"]), len(wire.dumps(answer["output"]))

    def exchange(self) -> tuple[Progress | None, int]:
        """Let every site answer, two at a time or more, and the aggregator combine."""
        self._iteration += 1
        first = self._iteration == 1
        phase, number = (FIRST, 1) if first else (self._input["phase"], self._input["round"])
        answers: dict[str, tuple[Any, bool, int]] = {}
        with ThreadPoolExecutor(max_workers=self._width()) as pool:
            left = self.attendees.asked(phase, number)
            asked = {s: pool.submit(self._ask, "local", s, self._input) for s in left}
            for site, future in asked.items():
                try:
                    answers[site] = future.result()
                except CapeError as err:
                    self.attendees.failed(site, phase, err)
        size = max(answer[2] for answer in answers.values())
        inbox = {site: answer[0] for site, answer in answers.items()}
        self._input, ended, _ = self._ask("remote", "remote", inbox)
        if ended:
            return None, size
        return wire.decode(self._input["progress"], Progress), size

    def _width(self) -> int:
        # One process at a time in this one: the policy is passed by environment.
        return 1 if isinstance(self._call, InProcess) else max(2, os.cpu_count() or 2)


def _policy_text(policy: SitePolicy) -> str:
    lines = [
        f"min_subjects = {policy.min_subjects}",
        f"allow_not_private = {str(policy.allow_not_private).lower()}",
        f"private_results = {str(policy.private_results).lower()}",
        f"simulation_seed = {policy.simulation_seed}",
    ]
    return "\n".join(lines) + "\n"


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
