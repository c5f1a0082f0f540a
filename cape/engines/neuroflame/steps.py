"""A run as NeuroFLAME's iterative workflow: `begin`, `answer`, `combine`, `has_ended`, `write`.

exchange 0    a site does not know its own name: it sends a nonce and receives the name for it
exchange k    the aggregator's question and the site's answer: the bytes of
              `cape.engines.flare.rounds`, as text
the end       the last message has the results of all; every site writes them to its output folder

A party is one process for the whole run, and a run cannot be resumed.  Secrets (keys, the journal)
are in a temporary folder of that process with mode 0700, deleted at its end; the framework's own
state is an unprotected file in the output folder and holds none.  The ledger of all runs is in
the folder of the data, the only one of a site that outlives a run.

The framework passes the arguments `parameters`, `data_dir` and `output_dir` by name.
"""

import base64
import math
import os
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from cape.engines.coinstac.computation import ENDED, end_message, handle_end, write_error
from cape.engines.coinstac.site import NOTICE_FILE
from cape.engines.flare.rounds import (
    AggregatorRounds,
    RunState,
    SiteRounds,
    home_of_run,
    progress_of,
)
from cape.engines.flare.site_file import SiteFile
from cape.errors import ConfigError, MessageError, public_text
from cape.report.derivatives import DESCRIPTION
from cape.report.private_folder import SITE_JSON
from cape.settings.option import out_of_range
from cape.settings.own_words import POLICY_FILE
from cape.site.files import make_own_folder, write_atomically
from cape.site.places import HOME, SitePlaces

# Parameters of the framework, which are no settings
FRAMEWORK_PARAMETERS: Final = ("site_id_name_map", "log_level")
# Limits of the framework: a run ends after an hour; an exchange takes two seconds by default.
CAP_SECONDS: Final = 3600.0
EXCHANGE_SECONDS: Final = 2.0
MAX_ITERATIONS: Final = 5000
# With fewer threads than sites, its simulator stops the processes of sites in turn.
LOST: Final = (
    "this process does not know the run, as if it had just been started (NeuroFLAME's simulator: "
    "debugger.py with -t and the number of sites)"
)
# Drop-outs, which the framework does not support
NOT_IN_NEUROFLAME: Final = ("aggregation", "min_survivors")


class _Party:
    """A party of one run in this process, with a temporary folder."""

    def __init__(self) -> None:
        self.runs = Path(tempfile.mkdtemp(prefix="cape-"))
        # Called at the end of the run or of the process
        self.leaving: list[Callable[[], None]] = []
        self.close = weakref.finalize(self, _close, self.runs, self.leaving)


def _close(runs: Path, leaving: list[Callable[[], None]]) -> None:
    for leave in leaving:
        leave()
    shutil.rmtree(runs, ignore_errors=True)


class _Site(_Party):
    def __init__(self) -> None:
        super().__init__()
        self.nonce = secrets.token_hex(16)
        self.rounds: SiteRounds | None = None

    def named(self, message: Mapping[str, Any], data: Path) -> SiteRounds:
        if self.rounds is None:
            names = [name for name, nonce in message["names"].items() if nonce == self.nonce]
            if len(names) != 1:
                raise MessageError("E202", problem="the names of the sites do not have this one")
            operator = SitePlaces.from_environment(os.environ)
            policy = data / POLICY_FILE
            own = SiteFile(
                data=str(data),
                runs=str(self.runs),
                policy=str(policy) if policy.is_file() else "",
                identity=str(data),
                home=str(operator.home or data / HOME),
            )
            self.rounds = SiteRounds(names[0], lambda: own, replace(operator, data_last=True))
            self.leaving.append(self.rounds.leave)
        return self.rounds


class _Aggregator(_Party):
    def __init__(self, settings: Mapping[str, Any], sites: list[str]) -> None:
        super().__init__()
        self.run, self.begun = secrets.token_hex(16), time.monotonic()
        self.rounds = AggregatorRounds(self.run, settings, self.runs, addresses=False)
        self.state = self.rounds.opening(sites)


# Keyed by output folder: parties may share a process in the framework's simulator.
_SITES: dict[str, _Site] = {}
_AGGREGATORS: dict[str, _Aggregator] = {}
# Public texts of errors on their way to the sites
_ENDS: dict[str, str] = {}


def begin() -> dict[str, Any]:
    """Return the message that a site handles first, before any from the aggregator."""
    return {}


def answer(message: dict[str, Any], data_dir: str, output_dir: str) -> dict[str, Any]:
    """Return a site's reply; after an error, its public text for the aggregator."""
    if not message:
        _SITES[output_dir] = site = _Site()
        return {"nonce": site.nonce}
    known = _SITES.get(output_dir)
    if set(message) == {ENDED}:
        name = known.rounds.site if known and known.rounds else ""
        handle_end(Path(output_dir), message[ENDED], name)
        return {"answer": ""}
    if known is None:  # the process was restarted, and its secrets are lost
        raise RuntimeError(public_text(MessageError("E202", problem=LOST)))
    data, home = Path(data_dir).resolve(), home_of_run(known.runs, message.get("run"))
    reply = known.named(message, data).answer(message["question"].encode(), owner="")
    _keep_words(home / "output", Path(output_dir))
    return {"answer": reply.decode("ascii")}


def combine(
    replies: dict[str, dict[str, Any]], parameters: dict[str, Any], output_dir: str
) -> dict[str, Any]:
    """Return the next message for all sites; an error is sent to them first, raised in the next."""
    # RuntimeError with the public text makes the framework end the run.
    if (text := _ENDS.pop(output_dir, "")) and not all("nonce" in r for r in replies.values()):
        # The framework logs the traceback: raise an error with the public text only.
        raise RuntimeError(text)
    try:
        return _combine(replies, parameters, output_dir)
    except Exception as err:
        write_error(Path(output_dir), err)
        end = end_message(err)
        _ENDS[output_dir] = end[ENDED]
        return dict(end)


def _combine(
    replies: Mapping[str, Mapping[str, Any]], parameters: Mapping[str, Any], output_dir: str
) -> dict[str, Any]:
    if all("nonce" in reply for reply in replies.values()):
        settings = {k: v for k, v in parameters.items() if k not in FRAMEWORK_PARAMETERS}
        check_settings(settings)
        _AGGREGATORS[output_dir] = aggregator = _Aggregator(settings, sorted(replies))
        names = {name: str(reply["nonce"]) for name, reply in replies.items()}
        return {**_question(aggregator), "names": names}
    aggregator = _AGGREGATORS[output_dir]
    arrived = {site: str(r.get("answer", "")).encode() for site, r in replies.items()}
    aggregator.state = aggregator.rounds.step(aggregator.state, arrived)
    if aggregator.state.ended:
        shutil.copytree(aggregator.rounds.results, output_dir, dirs_exist_ok=True)
        files = {
            name: base64.b64encode(raw).decode("ascii")
            for name, raw in aggregator.rounds.files().items()
        }
        _AGGREGATORS.pop(output_dir).close()
        return {"run": aggregator.run, "files": files}
    if aggregator.state.iteration == 1:
        # Checked before any charge, when all sites have read their data.
        _check_time(aggregator.state, time.monotonic() - aggregator.begun)
    return {**_question(aggregator), "names": {}}


def check_settings(settings: Mapping[str, Any]) -> None:
    if (got := settings.get("aggregation", "all-sites")) != "all-sites":
        do = "in NeuroFLAME every site must answer to the end."
        raise out_of_range("aggregation", got, "all-sites", do)


def _question(aggregator: _Aggregator) -> dict[str, Any]:
    question = aggregator.rounds.question(aggregator.state).decode("ascii")
    return {"run": aggregator.run, "question": question}


def _check_time(state: RunState, spent: float) -> None:
    progress = progress_of(state)
    exchanges = 0 if progress is None else progress.exchanges
    seconds = EXCHANGE_SECONDS * exchanges
    if spent + seconds > CAP_SECONDS:
        raise ConfigError(
            "E320",
            exchanges=exchanges,
            minutes=math.ceil(seconds / 60),
            reading=round(spent / 60),
            total=math.ceil((spent + seconds) / 60),  # stay below the limit
            limit=round(CAP_SECONDS / 60),
        )


def has_ended(message: dict[str, Any]) -> bool:
    return "files" in message


def write(message: dict[str, Any], output_dir: str) -> None:
    """Write the results of all and the site's private results into its output folder."""
    known = _SITES.pop(output_dir, None)
    if known is None or known.rounds is None:
        return
    try:
        # Missing results mean that the framework's limit of exchanges was reached, far above ours.
        if "files" in message:
            _take(known, known.rounds, message, Path(output_dir))
    finally:
        known.close()


def _take(known: _Site, rounds: SiteRounds, message: Mapping[str, Any], target: Path) -> None:
    files = {name: base64.b64decode(text) for name, text in message["files"].items()}
    home = home_of_run(known.runs, message.get("run"))
    done = rounds.deliver(message["run"], files)
    _keep_words(home / "output", target)
    if b'"error":""' not in done:
        return
    target.mkdir(parents=True, exist_ok=True)
    # The site's own files are written last, over files of the aggregator with the same names.
    for path in _visible(home / "consortium"):
        _clear(target / path.name)
        shutil.move(path, target / path.name)
    for path in _visible(home / "output"):
        _clear(target / path.name)
        _keep(path, target / path.name)


def _visible(folder: Path) -> list[Path]:
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in there if not path.name.startswith(".")]


def _clear(target: Path) -> None:
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _keep(source: Path, target: Path) -> None:
    """Copy the files about this site's people, private from the start, without following links."""
    if source.is_dir():
        make_own_folder(target)
        # As they were written: a copy that was cut off is known by its first and its last file.
        order = {DESCRIPTION: 0, SITE_JSON: 2}
        for path in sorted(source.iterdir(), key=lambda path: order.get(path.name, 1)):
            _keep(path, target / path.name)
    else:
        write_atomically(target, source.read_bytes())


def _keep_words(home: Path, output: Path) -> None:
    """Save the texts for the site's people before the temporary folder is deleted."""
    for name in ("site-error.txt", NOTICE_FILE):
        if (home / name).is_file():
            output.mkdir(parents=True, exist_ok=True)
            write_atomically(output / name, (home / name).read_bytes())
        else:
            (output / name).unlink(missing_ok=True)
