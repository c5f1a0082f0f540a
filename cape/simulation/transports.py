"""Which sites of a simulated run still answer, and its messages as JSON documents.

Drop-outs on purpose: ``local2@iterate:5`` does not answer from round 5 of `iterate` on,
``local2@iterate.unmask:5`` from the last step of that release on.  The way `memory` needs no
documents.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from cape.data.folders import words_beside
from cape.engines.coinstac.computation import run
from cape.engines.coinstac.documents import Document, for_site, inline, is_addressed
from cape.errors import CapeError, ConfigError, ReportedError, StoppedError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.settings.documents import not_default, toml_text
from cape.settings.own_words import OwnWords, as_tables
from cape.site.places import NO_STORE, SitePlaces
from cape.site.policy import SitePolicy

FIRST_PHASE = "join"
NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """A site does not answer from this phase and round on."""

    site: str
    phase: str
    round: int


def read_drop(text: str, *, sites: Collection[str], phases: Collection[str]) -> Drop:
    """Return the drop-out of ``site@phase:round`` (round 1 if left out); ConfigError if wrong."""
    site, at, rest = text.partition("@")
    phase, colon, number = rest.partition(":")
    round_ = int(number) if NUMBER.fullmatch(number) else 0 if colon else 1
    # `join` fixes the sites of the run, so no site can drop out there.
    if site not in sites or phase not in phases or phase == FIRST_PHASE or not at or round_ < 1:
        raise ConfigError(
            "E011",
            setting="drop",
            got=text,
            allowed=f"SITE@PHASE:ROUND with a site of {sorted(sites)} and a phase of "
            f"{[name for name in phases if name != FIRST_PHASE]}",
            do="such as local2@iterate:5.",
        )
    return Drop(site=site, phase=phase, round=round_)


class ActiveSites:
    """Sites that still answer; if `survives` (``aggregation=secagg``), a failed site drops out."""

    def __init__(self, sites: Sequence[str], drops: Sequence[Drop], *, survives: bool) -> None:
        self.remaining = tuple(sites)
        self._drops, self._survives = drops, survives

    def answering(self, phase: str, round: int) -> tuple[str, ...]:
        silent = {d.site for d in self._drops if (d.phase, d.round) == (phase, round)}
        # For good: a site that missed a broadcast cannot answer the next one.
        self.remaining = tuple(site for site in self.remaining if site not in silent)
        return self.remaining

    def failed(self, site: str, phase: str, err: CapeError) -> None:
        # `join` needs all sites, and a sum needs more than one.
        if not self._survives or phase == FIRST_PHASE or len(self.remaining) == 1:
            raise err
        self.remaining = tuple(other for other in self.remaining if other != site)


class Transport(Protocol):
    """A way to carry messages between the parties of a run."""

    active: ActiveSites

    def exchange(self) -> tuple[Progress | None, int]:
        """Play one round; return the broadcast's progress (None: ended) and one reply's bytes."""

    def state(self) -> Document:
        """Return what `go_on` needs after this exchange; CapeError if it is too long."""

    def go_on(self, state: Document) -> Progress:
        """Take the place of the transport that left this state; return its last progress."""


class PartyRunner(Protocol):
    """A function that runs one party for one round: JSON text in, JSON text out."""

    def places(self, party: str) -> dict[str, str]:
        """Return the party's own paths of its directories, by the engine's names."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Return the answer; CapeError with the public text if the party failed."""


class _OnThisComputer:
    """Runs parties with the directories of the simulation."""

    def __init__(
        self,
        sites: Mapping[str, Path],
        work: Path,
        store: Path | None = None,
        maps: Path | None = None,
    ) -> None:
        self._sites, self._work, self._maps = dict(sites), work, maps
        self._store = NO_STORE if store is None else str(store)

    def places(self, party: str) -> dict[str, str]:
        home = self._work / party
        return {
            "baseDirectory": str(self._sites.get(party, home / "base")),
            "outputDirectory": str(home / "output"),
            "cacheDirectory": str(home / "cache"),
            "transferDirectory": str(home / "transfer"),
        }

    def own(self, party: str) -> SitePlaces:
        """Return the party's own policy, and a home that is deleted with this simulation."""
        folder = self._work / party
        # Commands share the stored data, so they outlive a simulation.
        return SitePlaces(
            policy=folder / "site-policy.toml",
            home=folder / ".cape-site",
            store=self._store,
            maps=self._maps,
            place=party,
        )


class InProcess(_OnThisComputer):
    """Calls `run` in this process."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        return wire.dumps(run(role, wire.loads(text, wire.MAX_DOCUMENT), self.own(party)))


# Starts of one step after which a killed process counts as an error
MAX_STARTS = 3
# The code of local.py and remote.py, which an installed package lacks.  `TOP` selects this `cape`
# among several installed ones.
PARTY_PROGRAM = """
import gc, sys
gc.disable()
top, role = sys.argv[1:]
sys.path[:0] = [top] * (top not in sys.path)
from cape.kernels import pin
pin()
import cape.engines.coinstac.computation
cape.engines.coinstac.computation.program(role)
"""
TOP = str(Path(__file__).resolve().parents[2])


class NewProcess(_OnThisComputer):
    """Starts a process per call; a killed one is started again, up to `MAX_STARTS` times."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        env = self.own(party).environment(os.environ)
        # Without stored bytecode each of hundreds of starts would compile the whole package.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        # Safe because of the journal: no charge is made twice.
        for _ in range(MAX_STARTS):
            done = subprocess.run(  # noqa: S603 - this project's own programs
                # -P: modules in the working directory are not imported
                [sys.executable, "-P", "-c", PARTY_PROGRAM, TOP, role],
                input=text,
                capture_output=True,
                env=env,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            # A refusal is final, and so is a signal of the user.
            if done.returncode > 0 or -done.returncode in (signal.SIGINT, signal.SIGTERM):
                break
        if done.returncode < 0:
            who = f"site {party}" if role == "local" else "the aggregator"
            raise StoppedError("E265", party=who, detail=f"signal {-done.returncode}")
        public = done.stderr.decode("utf-8", "replace").strip()
        raise ReportedError(public, error_detail(self._work / party / "output"))


def error_detail(output: Path) -> str:
    path = output / "site-error.txt"
    if not path.is_file():
        return ""
    # Without the first line, the public text, which stderr had.
    return path.read_text(encoding="utf-8").partition("\n")[2].strip()


class DocumentTransport:
    """Plays the engine with directories and caches; every message is encoded as JSON."""

    def __init__(
        self,
        sites: Iterable[str],
        settings: Mapping[str, object],
        work: Path,
        call: PartyRunner,
        active: ActiveSites,
    ) -> None:
        self._call, self._work, self.active = call, work, active
        self._caches: dict[str, Any] = {party: {} for party in (*sites, "remote")}
        self._input: Any = dict(settings)
        self._iteration = 0

    def _ask(self, role: str, party: str, message: Any) -> tuple[Any, bool, int]:
        state = {**self._call.places(party), "clientId": party, "iteration": self._iteration}
        # `simulate` draws pages: the common one once, with the likeness of maps to planted ones.
        state |= {"addresses": role == "remote", "page": False}
        document = {"input": message, "cache": self._caches[party], "state": state}
        answer = wire.loads(self._call(role, party, wire.dumps(document)), wire.MAX_DOCUMENT)
        # Like the engine: keys that an answer leaves out keep their values.
        self._caches[party] = {**self._caches[party], **answer["cache"]}
        if not answer["success"]:
            self._carry_files(party)
        return answer["output"], bool(answer["success"]), len(wire.dumps(answer["output"]))

    def _carry_files(self, party: str) -> None:
        # The engine does this after each call.  It copies the aggregator's files into every site's
        # base directory; here that is the user's data, so one folder holds them.
        arrived = self._work / "remote" / ("arrived" if party == "remote" else f"base/{party}")
        for file in (self._work / party / "transfer").iterdir():
            arrived.mkdir(parents=True, exist_ok=True)
            shutil.move(file, arrived / file.name)

    def exchange(self) -> tuple[Progress | None, int]:
        self._iteration += 1
        first = self._iteration == 1
        phase, number = (FIRST_PHASE, 1) if first else (self._input["phase"], self._input["round"])
        answers: dict[str, tuple[Any, bool, int]] = {}
        with ThreadPoolExecutor(max_workers=self._width()) as pool:
            sites = self.active.answering(phase, number)
            answering = {s: pool.submit(self._ask, "local", s, self._own(s)) for s in sites}
            for site, future in answering.items():
                try:
                    answers[site] = future.result()
                except CapeError as err:
                    self.active.failed(site, phase, err)
        size = max(answer[2] for answer in answers.values())
        inbox = {site: answer[0] for site, answer in answers.items()}
        self._input, ended, _ = self._ask("remote", "remote", inbox)
        if ended:
            return None, size
        if not is_addressed(self._input):
            self._input = inline(self._input, self._arrived)
        return wire.decode(self._input["progress"], Progress), size

    def state(self) -> Document:
        own = {"caches": self._caches, "input": self._input, "iteration": self._iteration}
        return {**own, "remaining": list(self.active.remaining)}

    def go_on(self, state: Document) -> Progress:
        self._caches, self._input = state["caches"], state["input"]
        self._iteration, self.active.remaining = state["iteration"], tuple(state["remaining"])
        progress: Progress = wire.decode(self._input["progress"], Progress)
        return progress

    @property
    def _arrived(self) -> Path:
        return self._work / "remote" / "arrived"

    def _own(self, site: str) -> Any:
        """Return the input of a site: the broadcast with its own parts only."""
        if not is_addressed(self._input):
            return self._input
        # Parts are read only here, so that no document holds those of all sites.
        return inline(for_site(self._input, site), self._arrived)

    def _width(self) -> int:
        # In this process one site at a time, so that only one has its data in memory.
        return 1 if isinstance(self._call, InProcess) else max(2, os.cpu_count() or 2)


def make_places(
    parties: Iterable[str],
    policy: SitePolicy,
    work: Path,
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Make the folders and policies of parties; a site's policy gets the words of its folder."""
    for party in parties:
        words = words_beside(folders[party]) if party in folders else OwnWords()
        own = policy.saying(words)
        for place in ("output", "cache", "transfer", "base"):
            (work / party / place).mkdir(parents=True, exist_ok=True)
        (work / party / "site-policy.toml").write_text(
            toml_text({name: as_tables(name, value) for name, value in not_default(own).items()}),
            encoding="utf-8",
        )
