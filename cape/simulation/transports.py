"""How the messages of a simulated run travel as documents; `memory` needs none."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from cape.data.whose import words_beside
from cape.engines.coinstac.computation import run
from cape.engines.coinstac.documents import MAX_DOCUMENT, for_site, inline, is_addressed
from cape.errors import CapeError, ReportedError, StoppedError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.settings.documents import not_default, toml_text
from cape.settings.own_words import OwnWords
from cape.simulation.dropout import FIRST, ActiveSites
from cape.site.places import NO_STORE, SitePlaces
from cape.site.policy import SitePolicy


class Transport(Protocol):
    """One way to carry messages: `exchange` plays a round and returns None when the run ended."""

    active: ActiveSites

    def state(self) -> dict[str, Any]:
        """Where all parties stand, as a JSON document, for `restore`."""

    def restore(self, document: Mapping[str, Any]) -> None:
        """Let all parties stand where `state` said that they stood; ValueError for nonsense."""

    def exchange(self) -> tuple[Progress | None, int]:
        """Play one round; returns the public line of the broadcast and the bytes of one reply."""


class PartyRunner(Protocol):
    """Runs one party for one round: JSON text in, JSON text out."""

    def places(self, party: str) -> dict[str, str]:
        """Directories by the engine's names, as the party itself sees them."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """CapeError with the public text if the party failed."""


class _OnThisComputer:
    """The party sees the directories that the simulation made."""

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
        """Return its own policy, and a home for this simulation alone: nobody met is remembered."""
        own = self._work / party
        # What was read of files outlives a simulation: commands share it.
        return SitePlaces(
            policy=own / "site-policy.toml",
            home=own / ".cape-site",
            store=self._store,
            maps=self._maps,
        )


class InProcess(_OnThisComputer):
    """Calls the border function here."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        return wire.dumps(run(role, wire.loads(text, MAX_DOCUMENT), self.own(party)))


# How often one step is started: what kills it again and again is not an accident.
ATTEMPTS = 3
# What local.py and remote.py hold; an installed package has neither.  TOP: this `cape` and no other
# that is installed.
PROGRAM = """
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
    """A process per call; if killed, again up to `ATTEMPTS`: it repeats, or had sent nothing."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        env = self.own(party).environment(os.environ)
        # Hundreds of starts: without kept bytecode each one compiles the whole package again.
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        # The journal makes it safe: what was charged is not charged again.
        for _ in range(ATTEMPTS):
            done = subprocess.run(  # noqa: S603 - this project's own programs
                # -P: nothing of the folder in which the command was typed is imported
                [sys.executable, "-P", "-c", PROGRAM, TOP, role],
                input=text,
                capture_output=True,
                env=env,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout
            # A refusal is an answer, and a signal of the user's is a wish.
            if done.returncode > 0 or -done.returncode in (signal.SIGINT, signal.SIGTERM):
                break
        if done.returncode < 0:
            who = f"site {party}" if role == "local" else "the aggregator"
            raise StoppedError("E265", party=who, detail=f"signal {-done.returncode}")
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ReportedError(said, error_detail(self._work / party / "output"))


def error_detail(output: Path) -> str:
    path = output / "site-error.txt"
    if not path.is_file():
        return ""
    # The first line is the public text, which came by itself.
    return path.read_text(encoding="utf-8").partition("\n")[2].strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredDocuments:
    """What the engine holds in a checkpoint: caches, the next input, who still answers."""

    caches: dict[str, dict[str, Any]]
    input: dict[str, Any]
    iteration: int
    left: tuple[str, ...]


class DocumentTransport:
    """Plays the engine: directories, caches, documents; every byte goes through JSON."""

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
        if role == "remote":
            # Drawn once: `simulate` adds how near the maps are to planted ones.
            state |= {"addresses": True, "page": False}
        document = {"input": message, "cache": self._caches[party], "state": state}
        answer = wire.loads(self._call(role, party, wire.dumps(document)), MAX_DOCUMENT)
        # As the engine does: keys that an answer leaves out keep their value.
        self._caches[party] = {**self._caches[party], **answer["cache"]}
        if not answer["success"]:
            self._carry_files(party)
        return answer["output"], bool(answer["success"]), len(wire.dumps(answer["output"]))

    def _carry_files(self, party: str) -> None:
        # As the engine does after each call.  It would put the aggregator's files into every site's
        # base directory; here those are the user's own data, so they wait in one place.
        arrived = self._work / "remote" / ("arrived" if party == "remote" else f"base/{party}")
        for file in (self._work / party / "transfer").iterdir():
            arrived.mkdir(parents=True, exist_ok=True)
            shutil.move(file, arrived / file.name)

    def state(self) -> dict[str, Any]:
        # All else lies in the folders of the parties.
        stored = StoredDocuments(
            caches=self._caches, input=self._input, iteration=self._iteration, left=self.active.left
        )
        return dict(wire.encode(stored, StoredDocuments))

    def restore(self, document: Mapping[str, Any]) -> None:
        stored = wire.decode_document(document, StoredDocuments, "state")
        if set(stored.caches) != set(self._caches) or not {"phase", "round"} <= set(stored.input):
            raise ValueError("a party or its next step is missing")
        self._caches, self._input = dict(stored.caches), dict(stored.input)
        self._iteration = stored.iteration
        self.active.restore(stored.left)

    def exchange(self) -> tuple[Progress | None, int]:
        self._iteration += 1
        first = self._iteration == 1
        phase, number = (FIRST, 1) if first else (self._input["phase"], self._input["round"])
        answers: dict[str, tuple[Any, bool, int]] = {}
        with ThreadPoolExecutor(max_workers=self._width()) as pool:
            left = self.active.asked(phase, number)
            answering = {s: pool.submit(self._ask, "local", s, self._own(s)) for s in left}
            for site, future in answering.items():
                try:
                    answers[site] = future.result()
                except CapeError as err:
                    self.active.failed(site, phase, err)
        size = max(answer[2] for answer in answers.values())
        inbox = {site: answer[0] for site, answer in answers.items()}
        # Files of the sites were carried before: the aggregator finds them below its base folder.
        self._input, ended, _ = self._ask("remote", "remote", inbox)
        if ended:
            return None, size
        if not is_addressed(self._input):
            self._input = inline(self._input, self._arrived)
        return wire.decode(self._input["progress"], Progress), size

    @property
    def _arrived(self) -> Path:
        return self._work / "remote" / "arrived"

    def _own(self, site: str) -> Any:
        """Return the input of a site, which is all that its process is given."""
        if not is_addressed(self._input):
            return self._input
        # Only now: the parts of all sites are never in one document.
        return inline(for_site(self._input, site), self._arrived)

    def _width(self) -> int:
        # In this process one after the other: each has all its memory.
        return 1 if isinstance(self._call, InProcess) else max(2, os.cpu_count() or 2)


def make_places(
    parties: Iterable[str],
    policy: SitePolicy,
    work: Path,
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Make the places of parties; a site's policy has what its folder says of its own files."""
    for party in parties:
        words = words_beside(folders[party]) if party in folders else OwnWords()
        own = replace(policy, layout=words.layout, not_exclusions=words.not_exclusions)
        for place in ("output", "cache", "transfer", "base"):
            (work / party / place).mkdir(parents=True, exist_ok=True)
        (work / party / "site-policy.toml").write_text(
            toml_text(not_default(own)), encoding="utf-8"
        )
