"""The rounds of a run over calls that carry bytes, without FLARE: `SiteRounds`, `AggregatorRounds`.

Both call the border of COINSTAC (`cape.engines.coinstac.computation.run`) once per exchange and
keep on disk what COINSTAC's engine would keep for them, so a run goes on after any process died::

    <runs>/<run>/cache-0.json      a site: its cache after an answer of even number
    <runs>/<run>/cache-1.json      after one of odd number: the last answer may have been lost
    <runs>/<run>/output/           its journal until `report`, then its private results
    <runs>/<run>/consortium/       the results of all, as the aggregator sent them at the end
    <runs>/<run>/state-0.json      the aggregator: where the run stands after an exchange of even
    <runs>/<run>/state-1.json      and of odd number; the later one that is whole counts
    <runs>/<run>/parts/            what its broadcast holds for one site each, as files
    <runs>/<run>/results/          the results of all: once `ended` is on record, they are complete

A site that does not answer is asked once more, with the same bytes; then it is lost for good.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cape.computations import configured
from cape.engines.coinstac.computation import ENDED, end_message, hear_end, write_down
from cape.engines.coinstac.computation import run as border
from cape.engines.coinstac.documents import FILE_NAME, MAX_DOCUMENT, for_site, inline, is_addressed
from cape.engines.coinstac.site import SITE_INPUTS, leave_run
from cape.engines.flare.own_file import SiteFile
from cape.errors import CapeError, ConsortiumError, MessageError, ReportedError, public_text
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.messages import Progress
from cape.site.files import folder_lock, overwrite
from cape.site.places import SitePlaces

RUN_NAME = re.compile(r"[0-9a-f]{32}")
# A part of the name of a result file: no path, nothing hidden.
FILE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
# Calls of the same question: a late answer is in the journal by the second one.
ATTEMPTS = 2
# Public texts after which nothing had left the site: a question may come again.
MAY_ASK_AGAIN = ("CAPE-E261", "CAPE-E263")
# Characters of a site's error; the texts of the catalogue are shorter.
LONGEST_TEXT = 1000
# Seconds that a new job waits for the one before it.
PATIENCE = 60.0
# Seconds in which sites may hear why a run ended; who does not is told by nobody.
FAREWELL = 15.0
CACHE_LIMIT = 2 * MAX_DOCUMENT


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What the aggregator sends: the engine's number of the exchange, and the broadcast."""

    run: str
    iteration: int
    input: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a site sends back: a reply, or the public text of an error."""

    output: dict[str, Any] | None = None
    error: str = ""


def home_of_run(runs: Path, run: object) -> Path:
    """Return the folder of a run; MessageError: its name, which a peer says, must name no other."""
    if not (isinstance(run, str) and RUN_NAME.fullmatch(run)):
        raise MessageError("E202", problem="the name of a run is 32 hex digits")
    return runs / run


class SiteRounds:
    """One site; `answer` and `deliver` never raise: FLARE would send the traceback away.

    `operator`: places that the process was started with, for what the site's own file leaves open.
    """

    def __init__(self, site: str, open_own: Callable[[], SiteFile], operator: SitePlaces) -> None:
        self._site, self._open_own, self._operator = site, open_own, operator
        # A question that comes again while the first is computed waits for it.
        self._one_at_a_time = threading.Lock()
        self._begun: set[str] = set()  # runs of this job

    def answer(self, blob: bytes, owner: str) -> bytes:
        return self._caught(lambda: self._answer(blob, owner))

    def deliver(self, run: str, files: Mapping[str, bytes]) -> bytes:
        """Write the results of all, which end the run here."""
        return self._caught(lambda: self._deliver(run, files))

    def leave(self) -> None:
        """Free what runs of this job still hold in the site's ledger: the job has ended.

        A finished run holds nothing; one that goes on in another job asks for its place again.
        """
        for run in sorted(self._begun):
            with suppress(CapeError, OSError):  # it stays held: it yields, or people close it
                own = self._open_own()
                output = home_of_run(Path(own.runs), run) / "output"
                leave_run(self._site, Path(own.data), output, own.places(self._operator))

    def _caught(self, action: Callable[[], dict[str, Any]]) -> bytes:
        try:
            with self._one_at_a_time:
                answer = Answer(output=action())
        except Exception as err:  # its public text is all that leaves
            answer = Answer(error=public_text(err))
        return encode(answer)

    def _home(self, own: SiteFile, run: str) -> Path:
        home = home_of_run(Path(own.runs), run)
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home

    def _answer(self, blob: bytes, owner: str) -> dict[str, Any]:
        question = decode(blob, Question)
        own = self._open_own()
        home = self._home(own, question.run)
        self._begun.add(question.run)
        try:
            with folder_lock(home, f"site {self._site}"):
                return self._exchange(question, owner, own, home)
        except Exception as err:
            # The border wrote its own errors down; this one may be of the files around it.
            write_down(home / "output", err)
            raise

    def _exchange(
        self, question: Question, owner: str, own: SiteFile, home: Path
    ) -> dict[str, Any]:
        if set(question.input) == {ENDED}:
            hear_end(home / "output", question.input[ENDED])
            return {ENDED: "read"}
        # Also where its answer was lost: the journal has that.
        before = stored(_cache_of(home, question.iteration - 1))
        document = {
            "input": self._input(question, own),
            # Any other number is refused by the border, which counts by itself.
            "cache": {} if question.iteration == 1 or before is None else before,
            "state": {
                "clientId": self._site,
                "baseDirectory": own.data,
                "outputDirectory": str(home / "output"),
                "cacheDirectory": str(home / "working"),
                "transferDirectory": str(home / "transfer"),
                "iteration": question.iteration,
                "owner": owner,
            },
        }
        answer = border("local", document, own.places(self._operator))
        # In the place of a cache that nobody asks for any more: cut off by a crash it is written
        # again, from the journal.
        overwrite(_cache_of(home, question.iteration), wire.dumps(answer["cache"]))
        return carried_inline(answer["output"], home / "transfer")

    def _input(self, question: Question, own: SiteFile) -> dict[str, Any]:
        if question.iteration > 1:
            return question.input
        # What a site maps is its own affair: the owner's settings cannot name its files.
        settings = {k: v for k, v in question.input.items() if k not in SITE_INPUTS}
        return {**settings, **({"manifest": [own.manifest]} if own.manifest else {})}

    def _deliver(self, run: str, files: Mapping[str, bytes]) -> dict[str, Any]:
        home = self._home(self._open_own(), run)
        for name, content in files.items():
            parts = name.split("/") if isinstance(name, str) else [""]
            if len(parts) > 2 or not all(FILE_PART.fullmatch(part) for part in parts):
                raise MessageError("E202", problem="a result has a name that is no file's")
            path = home.joinpath("consortium", *parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        # Nothing is asked any more: the key of the vault, which is empty by now, goes too.
        for number in (0, 1):
            _cache_of(home, number).unlink(missing_ok=True)
        shutil.rmtree(home / "transfer", ignore_errors=True)
        (home / "output" / "site-error.txt").unlink(missing_ok=True)  # of a stop that was got over
        return {}


def _cache_of(home: Path, iteration: int) -> Path:
    return home / f"cache-{iteration % 2}.json"


# -- the aggregator --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """Where a run stands after `iteration` complete exchanges, and what is asked next."""

    iteration: int = 0
    cache: dict[str, Any]
    input: dict[str, Any]
    left: tuple[str, ...]
    ended: bool = False
    # Bytes of one reply of the last exchange
    size: int = 0


# Asks sites, each with its bytes, `timeout` s: yields each answer as it arrives, and no others.
Ask = Callable[[Mapping[str, bytes], float], Iterator[tuple[str, bytes]]]


class AggregatorRounds:
    """A run named `run`; `settings` are the owner's, of the product if they name no computation.

    `addresses`: each site is asked with bytes of its own (`Aggregator` of `cape.protocol.ports`).
    """

    def __init__(
        self, run: str, settings: Mapping[str, Any], runs: Path, *, addresses: bool = True
    ) -> None:
        self.home = home_of_run(runs, run)
        computation, self._config = configured(settings)
        self._addresses = addresses
        # Sites take no computation for granted.
        self._run, self._settings = run, {"computation": computation.name, **settings}

    def state(self) -> RunState | None:
        """Return where the run stands; None before its first exchange is complete."""
        texts = [path.read_bytes() for n in (0, 1) if (path := self._state_file(n)).is_file()]
        whole = [
            text for head, _, text in (t.partition(b"\n") for t in texts) if _names(head, text)
        ]
        if len(texts) == 2 and not whole:
            raise MessageError("E202", problem="where the run stands is damaged")
        read = (wire.loads(text, CACHE_LIMIT) for text in whole)
        states = [wire.decode_document(document, RunState, "state") for document in read]
        return max(states, key=lambda state: state.iteration, default=None)

    def _write(self, state: RunState) -> None:
        # In the place of the exchange before the last, one sync in place of two.  If it is cut off
        # by a crash, nothing was asked from it, and sites repeat their last answer.
        text = encode(state)
        overwrite(self._state_file(state.iteration), _digest(text) + b"\n" + text)

    def _state_file(self, iteration: int) -> Path:
        return self.home / f"state-{iteration % 2}.json"

    @property
    def results(self) -> Path:
        return self.home / "results"

    def play(self, sites: Iterable[str], ask: Ask, *, join: float, round: float) -> RunState:
        """Go on after the last complete exchange, to the end; CapeError, also from a site."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A job before this one may still be ending.
        with folder_lock(self.home, "the aggregator", patience=PATIENCE):
            state = self.state()
            # Of a stop that is got over now.
            (self.home / "output" / "site-error.txt").unlink(missing_ok=True)
            try:
                state = state or self.opening(sorted(sites))
                while not state.ended:
                    state = self._exchange(state, ask, join if state.iteration == 0 else round)
                    self._write(state)
                    if not is_addressed(state.input):  # else they are asked for next
                        shutil.rmtree(self._parts, ignore_errors=True)
            except Exception as err:
                self._tell_end(state, sites, ask, err, min(round, FAREWELL))
                raise
        return state

    def _tell_end(
        self, state: RunState | None, sites: Iterable[str], ask: Ask, err: Exception, timeout: float
    ) -> None:
        number = 1 if state is None else state.iteration + 1
        last = encode(Question(run=self._run, iteration=number, input=dict(end_message(err))))
        for _ in ask(dict.fromkeys(sites if state is None else state.left, last), timeout):
            pass

    def question(self, state: RunState) -> bytes:
        """Return what all sites are asked next."""
        question = Question(run=self._run, iteration=state.iteration + 1, input=state.input)
        return encode(question)

    def step(self, state: RunState, arrived: Mapping[str, bytes]) -> RunState:
        """Return where the run stands after the answers of one exchange; CapeError as `play`."""
        return self._exchange(state, lambda blobs, timeout: iter(arrived.items()), 0.0)

    def opening(self, sites: list[str]) -> RunState:
        """Return where a run begins; ConsortiumError E204 for sites that the owner does not say."""
        # Before any site is asked: what the aggregator counts, the sites count again.
        if wrong := self._config.wrong_sites(sites):
            raise ConsortiumError("E204", field="list of sites", sites=wrong)
        return RunState(cache={}, input=self._settings, left=tuple(sites))

    def _exchange(self, state: RunState, ask: Ask, timeout: float) -> RunState:
        number = state.iteration + 1
        arrived: dict[str, int] = {}
        document = {
            "input": {},
            "cache": state.cache,
            "state": {
                "clientId": "remote",
                "baseDirectory": str(self.home / "arrived"),
                "outputDirectory": str(self.home / "output"),
                "cacheDirectory": str(self.home / "working"),
                "transferDirectory": str(self.results),
                "iteration": number,
                "addresses": self._addresses,
            },
        }
        answer = border(
            "remote", document, SitePlaces(), self._arriving(state, ask, timeout, arrived)
        )
        return RunState(
            iteration=number,
            cache={**state.cache, **answer["cache"]},
            input=self._carried(answer["output"]),
            left=tuple(site for site in state.left if site in arrived),
            ended=bool(answer["success"]),
            size=max(arrived.values()),
        )

    @property
    def _parts(self) -> Path:
        return self.home / "parts"

    def _carried(self, output: dict[str, Any]) -> dict[str, Any]:
        """Take the arrays of a broadcast into it, and put files for one site each aside."""
        if not is_addressed(output):
            return carried_inline(output, self.results)
        # Of an exchange that was not completed: it is written again.
        shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir(mode=0o700)
        for path in self.results.iterdir() if self.results.is_dir() else ():
            if FILE_NAME.fullmatch(path.name):
                path.rename(self._parts / path.name)
        return output

    def _arriving(
        self, state: RunState, ask: Ask, timeout: float, arrived: dict[str, int]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield replies as they come, into `arrived` their bytes; CapeError for a lost site.

        With drop-outs a site that is lost or refuses is left out, and never asked again.
        """
        refused: dict[str, str] = {}
        for _ in range(ATTEMPTS):
            missing = [s for s in state.left if s not in arrived and s not in refused]
            for site, raw in ask(self._questions(state, missing), timeout) if missing else ():
                answer = _read_answer(raw)
                if answer.output is not None:
                    arrived[site] = len(raw)
                    yield site, answer.output
                elif not answer.error.startswith(MAY_ASK_AGAIN):
                    refused[site] = answer.error
        survives = self._config.aggregation == "secagg"
        everybody = state.iteration == 0 or not survives or not arrived
        # The first exchange needs everybody: who takes part is settled there.
        if refused and everybody:
            raise ReportedError(refused[min(refused)])
        lost = [site for site in state.left if site not in arrived]
        if lost and everybody:
            phase, number = state.input.get("phase", "join"), state.input.get("round", 1)
            raise ConsortiumError("E156", site=min(lost), phase=phase, round=number)

    def _questions(self, state: RunState, sites: Iterable[str]) -> dict[str, bytes]:
        """Encode what is asked: once for all, or what each of them needs of a broadcast."""
        if not is_addressed(state.input):
            return dict.fromkeys(sites, self.question(state))
        own = {site: inline(for_site(state.input, site), self._parts) for site in sites}
        return {site: self.question(replace(state, input=part)) for site, part in own.items()}

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.results).as_posix(): path.read_bytes()
            for path in sorted(self.results.rglob("*"))
            if path.is_file()
        }


def _read_answer(raw: Any) -> Answer:
    try:
        answer: Answer = decode(raw, Answer)
    except CapeError as err:
        return Answer(error=err.public)  # a site that sends anything else has not answered
    # A site may say what it likes; one line of it is passed on.
    return replace(answer, error=answer.error.partition("\n")[0][:LONGEST_TEXT])


def progress_of(state: RunState) -> Progress | None:
    document = state.input.get("progress")
    return None if document is None else wire.decode(document, Progress)


# -- bytes and files -------------------------------------------------------------------------------


def encode(record: Any) -> bytes:
    return wire.dumps(wire.encode(record, type(record)))


def decode(blob: Any, kind: type) -> Any:
    if not isinstance(blob, bytes):
        raise MessageError("E202", problem="a call carries bytes")
    return wire.decode_document(wire.loads(blob, MAX_DOCUMENT), kind, kind.__name__.lower())


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _names(digest: bytes, text: bytes) -> bool:
    # `overwrite` fills the last block with spaces.
    return _digest(text.rstrip(b" ")) == digest


def stored(path: Path) -> Any:
    """Return the document of a file, None if there is none; MessageError if it is damaged."""
    return wire.loads(path.read_bytes(), CACHE_LIMIT) if path.is_file() else None


def carried_inline(output: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put arrays that the border left in files back into the message: calls carry any size."""
    whole: dict[str, Any] = inline(output, folder)
    if whole is not output and folder.is_dir():
        for path in folder.iterdir():
            if FILE_NAME.fullmatch(path.name):
                path.unlink()
    return whole
