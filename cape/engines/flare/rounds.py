"""The rounds of a run over calls with bytes, without FLARE: `SiteRounds`, `AggregatorRounds`.

Both call COINSTAC's interface (`cape.engines.coinstac.computation.run`) once per exchange and store
the files that COINSTAC's engine would keep, so a run can go on after a crash of any process::

    <runs>/<run>/cache-0.json      a site: its cache after an answer of even number
    <runs>/<run>/cache-1.json      after one of odd number: the last answer may have been lost
    <runs>/<run>/output/           its journal until `report`, then its private results
    <runs>/<run>/consortium/       the results of all, as the aggregator sent them at the end
    <runs>/<run>/state-0.json      the aggregator: its state after an exchange of even number
    <runs>/<run>/state-1.json      after one of odd number; the later complete one is used
    <runs>/<run>/parts/            files of a broadcast for one site each
    <runs>/<run>/results/          the results of all: complete once the state says `ended`

A site that does not answer is asked once more, with the same bytes; after that it is lost.
"""

import hashlib
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cape.computations import configured
from cape.engines.coinstac.computation import ENDED, end_message, handle_end, write_error
from cape.engines.coinstac.computation import run as border
from cape.engines.coinstac.documents import FILE_NAME, RUN_NAME, for_site, inline, is_addressed
from cape.engines.coinstac.site import SITE_INPUTS, leave_run
from cape.engines.flare.site_file import SiteFile
from cape.errors import (
    CapeError,
    CapeWarning,
    ConsortiumError,
    MessageError,
    ReportedError,
    public_text,
)
from cape.frozen import dataclass
from cape.protocol import wire
from cape.protocol.join import check_declared
from cape.protocol.messages import Progress
from cape.site.files import folder_lock, overwrite
from cape.site.places import SitePlaces

# A part of a result file's path: one name, not hidden
FILE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
# Calls per question: on the second call a late answer is in the journal.
MAX_CALLS = 2
# Errors before which no data left the site: the question may be repeated.
MAY_ASK_AGAIN = ("CAPE-E261", "CAPE-E263")
# Maximum characters of a site's error; the catalogue's texts are shorter.
MAX_ERROR_TEXT = 1000
# Seconds that a new job waits for the one before it.
START_PATIENCE = 60.0
# Seconds in which sites can receive the reason why a run ended.
FAREWELL = 15.0
# Seconds between lines of the log that name the sites without an answer.
TELL_EVERY = 60.0
MAX_CACHE = 2 * wire.MAX_DOCUMENT


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """A call of the aggregator: the number of the exchange, and the broadcast."""

    run: str
    iteration: int
    input: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A site's answer: a reply, or the public text of an error."""

    output: dict[str, Any] | None = None
    error: str = ""


def home_of_run(runs: Path, run: object) -> Path:
    """Return the folder of a run; MessageError for a name that is not 32 hex digits."""
    if not (isinstance(run, str) and RUN_NAME.fullmatch(run)):
        raise MessageError("E202", problem="the name of a run is 32 hex digits")
    return runs / run


class SiteRounds:
    """One site; `answer` and `deliver` never raise, because FLARE would send the traceback away."""

    # `operator`: paths of the process, used where the site's own file has none.

    def __init__(self, site: str, open_own: Callable[[], SiteFile], operator: SitePlaces) -> None:
        self.site, self._open_own, self._operator = site, open_own, operator
        # A repeated question waits for the first.
        self._one_at_a_time = threading.Lock()
        self._begun: set[str] = set()  # runs of this job

    def answer(self, blob: bytes, owner: str) -> bytes:
        return self._caught(lambda: self._answer(blob, owner))

    def deliver(self, run: str, files: Mapping[str, bytes]) -> bytes:
        """Write the results of the consortium, which ends the run."""
        return self._caught(lambda: self._deliver(run, files))

    def leave(self) -> None:
        """Free the reserves of this job's runs in the site's ledger, after the end of the job."""
        # A finished run has none; a run that another job resumes reserves again.
        for run in sorted(self._begun):
            with suppress(CapeError, OSError):  # the reserve stays until it expires or is closed
                own = self._open_own()
                self._leave(own, home_of_run(Path(own.runs), run))

    def _leave(self, own: SiteFile, home: Path) -> None:
        places = own.places(self._operator)
        leave_run(self.site, Path(own.data), home / "output", places, home / "working")

    def _caught(self, action: Callable[[], dict[str, Any]]) -> bytes:
        try:
            with self._one_at_a_time:
                answer = Answer(output=action())
        except Exception as err:  # only its public text leaves the site
            answer = Answer(error=public_text(err))
        return encode_blob(answer)

    def _home(self, own: SiteFile, run: str) -> Path:
        home = home_of_run(Path(own.runs), run)
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        return home

    def _answer(self, blob: bytes, owner: str) -> dict[str, Any]:
        question = decode_blob(blob, Question)
        own = self._open_own()
        home = self._home(own, question.run)
        self._begun.add(question.run)
        try:
            with folder_lock(home, f"site {self.site}"):
                return self._exchange(question, owner, own, home)
        except Exception as err:
            # `run` wrote its own errors down; this one may come from the files around it.
            write_error(home / "output", err)
            raise

    def _exchange(
        self, question: Question, owner: str, own: SiteFile, home: Path
    ) -> dict[str, Any]:
        if set(question.input) == {ENDED}:
            handle_end(home / "output", question.input[ENDED], self.site)
            self._leave(own, home)
            return {ENDED: "read"}
        # The cache from before the last answer, also if that was lost: the journal has it.
        earlier = _cache_of(home, question.iteration - 1)
        is_later = question.iteration > 1 and earlier.is_file()
        document = {
            "input": self._input(question, own),
            # `run` has its own count and refuses a wrong number.
            "cache": wire.loads(earlier.read_bytes(), MAX_CACHE) if is_later else {},
            "state": {
                "clientId": self.site,
                "baseDirectory": own.data,
                "outputDirectory": str(home / "output"),
                "cacheDirectory": str(home / "working"),
                "transferDirectory": str(home / "transfer"),
                "iteration": question.iteration,
                "owner": owner,
                "run": question.run,
            },
        }
        answer = border("local", document, own.places(self._operator))
        # Overwrites an unused cache; after a crash here the journal gives the answer again.
        overwrite(_cache_of(home, question.iteration), wire.dumps(answer["cache"]))
        return carried_inline(answer["output"], home / "transfer")

    def _input(self, question: Question, own: SiteFile) -> dict[str, Any]:
        if question.iteration > 1:
            return question.input
        # The owner's settings cannot name files of the site.
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
        # The run has ended: delete the caches with the key of the vault, which is empty now.
        for number in (0, 1):
            _cache_of(home, number).unlink(missing_ok=True)
        shutil.rmtree(home / "transfer", ignore_errors=True)
        (home / "output" / "site-error.txt").unlink(missing_ok=True)  # of an earlier stop
        return {}


def _cache_of(home: Path, iteration: int) -> Path:
    return home / f"cache-{iteration % 2}.json"


# -- the aggregator --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """State of a run after `iteration` complete exchanges, with the next question."""

    iteration: int = 0
    cache: dict[str, Any]
    input: dict[str, Any]
    remaining: tuple[str, ...]
    ended: bool = False
    # Bytes of the largest reply of the last exchange
    size: int = 0


# Sends each site its bytes and yields answers as they arrive within `timeout` s.
AskSites = Callable[[Mapping[str, bytes], float], Iterator[tuple[str, bytes]]]


class AggregatorRounds:
    """A run named `run` with the owner's `settings`; default computation: the product."""

    # `addresses`: each site receives its own bytes (`Aggregator` of `cape.protocol.ports`).

    def __init__(
        self, run: str, settings: Mapping[str, Any], runs: Path, *, addresses: bool = True
    ) -> None:
        self.home = home_of_run(runs, run)
        computation, self._config = configured(settings)
        check_declared(self._config)  # before any site reads data
        self._addresses = addresses
        # Sites have no default computation.
        self._run, self._settings = run, {"computation": computation.name, **settings}

    def state(self) -> RunState | None:
        """Return the latest state; None before the first complete exchange."""
        texts = [path.read_bytes() for n in (0, 1) if (path := self._state_file(n)).is_file()]
        whole = [
            text for head, _, text in (t.partition(b"\n") for t in texts) if _names(head, text)
        ]
        if len(texts) == 2 and not whole:
            raise MessageError("E202", problem="where the run stands is damaged")
        read = (wire.loads(text, MAX_CACHE) for text in whole)
        states = [wire.decode_document(document, RunState, "state") for document in read]
        return max(states, key=lambda state: state.iteration, default=None)

    def _write(self, state: RunState) -> None:
        # Overwrites the state before the last one: one sync instead of two.  After a crash here no
        # question was sent from it, and sites repeat their last answer.
        text = encode_blob(state)
        overwrite(self._state_file(state.iteration), _digest(text) + b"\n" + text)

    def _state_file(self, iteration: int) -> Path:
        return self.home / f"state-{iteration % 2}.json"

    @property
    def results(self) -> Path:
        return self.home / "results"

    def play(self, sites: Iterable[str], ask: AskSites, *, join: float, round: float) -> RunState:
        """Play the run from the last complete exchange to its end; CapeError, also from a site."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        # An earlier job may still be ending.
        with folder_lock(self.home, "the aggregator", patience=START_PATIENCE):
            state = self.state()
            # It is left from an earlier stop.
            (self.home / "output" / "site-error.txt").unlink(missing_ok=True)
            try:
                state = state or self.opening(sorted(sites))
                while not state.ended:
                    state = self._exchange(state, ask, join if state.iteration == 0 else round)
                    self._write(state)
                    if not is_addressed(state.input):  # otherwise the next question needs them
                        shutil.rmtree(self._parts, ignore_errors=True)
            except Exception as err:
                self._tell_end(state, sites, ask, err, min(round, FAREWELL))
                raise
        return state

    def _tell_end(
        self,
        state: RunState | None,
        sites: Iterable[str],
        ask: AskSites,
        err: Exception,
        timeout: float,
    ) -> None:
        number = 1 if state is None else state.iteration + 1
        last = encode_blob(Question(run=self._run, iteration=number, input=dict(end_message(err))))
        for _ in ask(dict.fromkeys(sites if state is None else state.remaining, last), timeout):
            pass

    def question(self, state: RunState) -> bytes:
        question = Question(run=self._run, iteration=state.iteration + 1, input=state.input)
        return encode_blob(question)

    def step(self, state: RunState, arrived: Mapping[str, bytes]) -> RunState:
        """Return the state after the answers of one exchange; CapeError as in `play`."""
        return self._exchange(state, lambda blobs, timeout: iter(arrived.items()), 0.0)

    def opening(self, sites: list[str]) -> RunState:
        """Return the first state; ConsortiumError E204 for sites that the owner did not name."""
        # Checked before any question; sites check it again.
        if wrong := self._config.wrong_sites(sites):
            raise ConsortiumError("E204", field="list of sites", sites=wrong)
        return RunState(cache={}, input=self._settings, remaining=tuple(sites))

    def _exchange(self, state: RunState, ask: AskSites, timeout: float) -> RunState:
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
                "run": self._run,
            },
        }
        answer = border(
            "remote", document, SitePlaces(), self._arriving(state, ask, timeout, arrived)
        )
        return RunState(
            iteration=number,
            cache={**state.cache, **answer["cache"]},
            input=self._carried(answer["output"]),
            remaining=tuple(site for site in state.remaining if site in arrived),
            ended=bool(answer["success"]),
            size=max(arrived.values()),
        )

    @property
    def _parts(self) -> Path:
        return self.home / "parts"

    def _carried(self, output: dict[str, Any]) -> dict[str, Any]:
        """Put the arrays of a broadcast back into it, and files for one site each into `parts`."""
        if not is_addressed(output):
            return carried_inline(output, self.results)
        # Left by an incomplete exchange.
        shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir(mode=0o700)
        for path in self.results.iterdir() if self.results.is_dir() else ():
            if FILE_NAME.fullmatch(path.name):
                path.rename(self._parts / path.name)
        return output

    def _arriving(
        self, state: RunState, ask: AskSites, timeout: float, arrived: dict[str, int]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield replies as they arrive, with sizes into `arrived`; CapeError for a lost site."""
        # With drop-outs, a site that is lost or refuses is excluded for the rest of the run.
        refused: dict[str, str] = {}
        for _ in range(MAX_CALLS):
            missing = [s for s in state.remaining if s not in arrived and s not in refused]
            heard: set[str] = set()
            with _telling_whom_it_awaits(missing, heard):
                for site, raw in ask(self._questions(state, missing), timeout) if missing else ():
                    heard.add(site)
                    answer = _read_answer(raw)
                    if answer.output is not None:
                        arrived[site] = len(raw)
                        yield site, answer.output
                    elif not answer.error.startswith(MAY_ASK_AGAIN):
                        refused[site] = answer.error
        survives = self._config.aggregation == "secagg"
        everybody = state.iteration == 0 or not survives or not arrived
        # The first exchange needs all sites: it fixes the roster.
        if refused and everybody:
            raise ReportedError(refused[min(refused)])
        lost = [site for site in state.remaining if site not in arrived]
        if lost and everybody:
            phase, number = state.input.get("phase", "join"), state.input.get("round", 1)
            raise ConsortiumError("E156", site=min(lost), phase=phase, round=number)

    def _questions(self, state: RunState, sites: Iterable[str]) -> dict[str, bytes]:
        """Encode the question: once for all sites, or for each with its parts of a broadcast."""
        if not is_addressed(state.input):
            return dict.fromkeys(sites, self.question(state))
        own = {site: inline(for_site(state.input, site), self._parts) for site in sites}
        return {site: self.question(replace(state, input=part)) for site, part in own.items()}

    def show(self, maps: Path) -> None:
        """Bring the owner's public maps to the page of a finished comparison.

        Without them the run has ended as well: a CapeWarning says why they are not shown.
        """
        # Imported here, because no exchange needs it.
        from cape.data.templates import digest_with, maps_with_names
        from cape.report import Brought, add_maps

        try:
            path, labels = maps_with_names(maps)
            add_maps(self.results, Brought(path=path, labels=labels), digest_with)
        except Exception as err:  # the results are written, so the run has ended well
            text = f"the maps of the job are not shown: {public_text(err)}"
            warnings.warn(text, CapeWarning, stacklevel=2)

    def files(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.results).as_posix(): path.read_bytes()
            for path in sorted(self.results.rglob("*"))
            if path.is_file()
        }


@contextmanager
def _telling_whom_it_awaits(asked: Sequence[str], heard: set[str]) -> Iterator[None]:
    """Log every minute which sites have not answered: `heard` grows meanwhile."""
    import logging  # no exchange needs it at a site

    done = threading.Event()

    def tell() -> None:
        while not done.wait(TELL_EVERY):
            if waiting := [site for site in asked if site not in heard]:
                logging.getLogger("cape").info("waiting for %s", ", ".join(waiting))

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _read_answer(raw: Any) -> Answer:
    try:
        answer: Answer = decode_blob(raw, Answer)
    except CapeError as err:
        return Answer(error=err.public)  # a malformed answer counts as an error
    # Only one line of a site's text is passed on.
    return replace(answer, error=answer.error.partition("\n")[0][:MAX_ERROR_TEXT])


def progress_of(state: RunState) -> Progress | None:
    document = state.input.get("progress")
    return None if document is None else wire.decode(document, Progress)


# -- bytes and files -------------------------------------------------------------------------------


def encode_blob(record: Any) -> bytes:
    return wire.dumps(wire.encode(record, type(record)))


def decode_blob(blob: Any, kind: type) -> Any:
    if not isinstance(blob, bytes):
        raise MessageError("E202", problem="a call carries bytes")
    return wire.decode_document(wire.loads(blob, wire.MAX_DOCUMENT), kind, kind.__name__.lower())


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()


def _names(digest: bytes, text: bytes) -> bool:
    # `overwrite` fills the last block with spaces.
    return _digest(text.rstrip(b" ")) == digest


def carried_inline(output: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Put arrays from files back into the message, because calls carry any size."""
    whole: dict[str, Any] = inline(output, folder)
    if whole is not output and folder.is_dir():
        for path in folder.iterdir():
            if FILE_NAME.fullmatch(path.name):
                path.unlink()
    return whole
