"""Three ways to carry the messages of a simulated run.

``MemoryLink`` hands typed messages over by reference; ``DocumentLink`` plays the engine, with every
document encoded and decoded, and calls the parties in this process or in a new one each.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from cape import wire
from cape.computations._results import Outcome, SiteOutcome
from cape.config import Config
from cape.drivers import coinstac, site_files
from cape.drivers.codec import encode_reply, request_digest
from cape.drivers.drops import FIRST, Attendees, Drop
from cape.drivers.identity import read_identity
from cape.drivers.ledger_file import AllRuns
from cape.drivers.parties import NO_REQUEST, AggregatorParty, Origin, SiteParty
from cape.drivers.stores import FileSource, MemoryMemo
from cape.drivers.transfer import inline
from cape.errors import CapeError
from cape.messages import Progress
from cape.phases import AnyEnvelope, Computation, Run, advance_aggregator, advance_site, start
from cape.policy import SitePolicy
from cape.ports import Source
from cape.report import write_consortium, write_site


class Link(Protocol):
    """One way to carry messages: `exchange` plays a round and returns None when the run ended."""

    attendees: Attendees

    def exchange(self) -> tuple[Progress | None, int]:
        """Play one round; returns the public line of the broadcast and the bytes of one reply."""


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

        def record(result: SiteOutcome) -> None:
            if self._out is not None:
                site_files.write_record(self._out / site / "output", result)

        def publish(result: SiteOutcome) -> None:
            if self._out is not None:
                write_site(self._out / site / "output", result)

        return SiteParty(
            site=site,
            computation=self._computation.name,
            config=self._config,
            noise=site_files.noise_of(policy),
            policy=policy,
            source=source,
            memo=MemoryMemo(),
            request=NO_REQUEST,
            on_charge=lambda line: None,
            keep=vault.__setitem__,
            secret=vault.__getitem__,
            publish=publish,
            record=record,
            identity=lambda: read_identity([self.folders[site]], site),
            origin=Origin(digests=site_files.software(policy)),
            all_runs=self._all_runs(site, source, policy),
        )

    def _all_runs(self, site: str, source: Source, policy: SitePolicy) -> AllRuns | None:
        """Return the ledger of all runs; a policy in memory names it by its whole path."""
        if not isinstance(source, FileSource):
            return None
        return site_files.all_runs_of(policy, Path(), site, source)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """A party's directories as the party itself sees them."""

    base: str
    output: str
    cache: str
    transfer: str


class Caller(Protocol):
    """Runs one party for one round: JSON text in, JSON text out."""

    def places(self, party: str) -> Places:
        """Return the directories that the party's documents name."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Return the answer; CapeError with the public text if the party failed."""


class _OnThisComputer:
    """The party sees the directories that the simulation made."""

    def __init__(self, sites: Mapping[str, Path], work: Path) -> None:
        self._sites, self._work = dict(sites), work

    def places(self, party: str) -> Places:
        """Return the data of a site, and its places below the working folder."""
        home = self._work / party
        return Places(
            base=str(self._sites.get(party, home / "base")),
            output=str(home / "output"),
            cache=str(home / "cache"),
            transfer=str(home / "transfer"),
        )


class InProcess(_OnThisComputer):
    """Calls the border function here."""

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Decode, run, encode."""
        os.environ[site_files.POLICY_VARIABLE] = str(self._work / party / "site-policy.toml")
        try:
            return wire.dumps(coinstac.run(role, wire.loads(text, coinstac.MAX_DOCUMENT)))
        finally:
            del os.environ[site_files.POLICY_VARIABLE]


class NewProcess(_OnThisComputer):
    """Starts ``python local.py`` or ``python remote.py`` as the engine does."""

    def __init__(self, sites: Mapping[str, Path], work: Path) -> None:
        super().__init__(sites, work)
        top = Path(__file__).resolve().parents[2]
        self._programs = {role: top / f"{role}.py" for role in ("local", "remote")}

    def __call__(self, role: str, party: str, text: bytes) -> bytes:
        """Start the program, write the document, read the answer."""
        policy = self._work / party / "site-policy.toml"
        env = {**os.environ, site_files.POLICY_VARIABLE: str(policy)}
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
        said = done.stderr.decode("utf-8", "replace").strip()
        raise ReportedError(said, error_detail(self._work / party / "output"))


def error_detail(output: Path) -> str:
    """Return what the error file of a party says beyond the public text."""
    path = output / "site-error.txt"
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
        sites: Iterable[str],
        settings: Mapping[str, object],
        work: Path,
        call: Caller,
        attendees: Attendees,
    ) -> None:
        self._call, self._work, self.attendees = call, work, attendees
        self._caches: dict[str, Any] = {party: {} for party in (*sites, "remote")}
        self._input: Any = dict(settings)
        self._iteration = 0

    def _document(self, party: str, message: Any) -> bytes:
        places = self._call.places(party)
        state = {
            "baseDirectory": places.base,
            "outputDirectory": places.output,
            "cacheDirectory": places.cache,
            "transferDirectory": places.transfer,
            "clientId": party,
            "iteration": self._iteration,
        }
        return wire.dumps({"input": message, "cache": self._caches[party], "state": state})

    def _ask(self, role: str, party: str, message: Any) -> tuple[Any, bool, int]:
        text = self._call(role, party, self._document(party, message))
        answer = wire.loads(text, coinstac.MAX_DOCUMENT)
        self._caches[party] = {**self._caches[party], **answer["cache"]}
        if not answer["success"]:
            self._carry_files(party)
        return answer["output"], bool(answer["success"]), len(wire.dumps(answer["output"]))

    def _carry_files(self, party: str) -> None:
        """Move what a party left for others, as the engine does after each call.

        The engine would put the aggregator's files into every site's base directory; here those
        are the user's own data, so they wait in one place and `exchange` puts them inline.
        """
        arrived = self._work / "remote" / ("arrived" if party == "remote" else f"base/{party}")
        for file in (self._work / party / "transfer").iterdir():
            arrived.mkdir(parents=True, exist_ok=True)
            shutil.move(file, arrived / file.name)

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
        self._input = inline(self._input, self._work / "remote" / "arrived")
        return wire.decode(self._input["progress"], Progress), size

    def _width(self) -> int:
        # One process at a time in this one: the policy is passed by environment.
        return 1 if isinstance(self._call, InProcess) else max(2, os.cpu_count() or 2)


def make_places(parties: Iterable[str], policy: SitePolicy, work: Path) -> None:
    """Make the directories of every party, and the policy file of its own."""
    for party in parties:
        for place in ("output", "cache", "transfer", "base"):
            (work / party / place).mkdir(parents=True)
        (work / party / "site-policy.toml").write_text(
            site_files.policy_text(policy), encoding="utf-8"
        )
