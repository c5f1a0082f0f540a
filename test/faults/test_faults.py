"""Every row of docs/faults.md, played: the same result, or a clean stop with spending on record.

`CASES` holds one function for each row; a row without one, or one without a row, fails.  A function
breaks something at a site or at the aggregator, and returns what came of it: ``same result`` (the
bytes of a run that was left alone) or the code of the error.
"""

import copy
import errno
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cape.engines.coinstac import computation as stdio
from cape.errors import CapeError
from cape.protocol import wire
from cape.protocol.phases import prefix_of
from cape.report import files as report_files
from cape.simulation import transports
from cape.simulation.run_loop import was_stopped
from cape.site import files
from cape.site.ledger_file import read_ledger
from cape.site.places import POLICY_VARIABLE
from support import consortium as helper
from support.simulation import simulate

ROOT = Path(__file__).parents[2]
SAME = "same result"
OUTCOME = r"same result|CAPE-E\d{3}"
ROW = re.compile(rf"^\| `([a-z0-9-]+)` \|.*\| ((?:{OUTCOME})(?: or (?:{OUTCOME}))*) \|$")
ROWS = {
    match[1]: set(match[2].split(" or "))
    for line in (ROOT / "docs" / "faults.md").read_text().splitlines()
    if (match := ROW.match(line))
}


POLICY = replace(helper.POLICY, ledger_file="ledger.jsonl")
RELEASES = ("pca", "whitening", "iterate")


class Killed(BaseException):
    """As a SIGKILL: nothing that catches errors sees it."""


@dataclass
class World:
    """One exchange that is about to be played, in folders of its own."""

    engine: Any
    exchange: tuple[str, int]
    answers: dict[str, bytes]
    patch: pytest.MonkeyPatch
    tmp_path: Path
    recording: dict[str, Any]

    def site(self, message: Any = None) -> bytes:
        return self.engine.ask("local0", message)

    def again(self) -> str:
        """Ask the site as if nothing had happened."""
        assert helper.repeated(self.site()) == helper.repeated(self.answers["local0"])
        return SAME

    def combine(self, inbox: Any = None) -> bytes:
        with helper.without_pages():
            return self.engine.ask("remote", self.inbox() if inbox is None else inbox)

    def combined(self) -> str:
        assert self.combine() == self.answers["remote"]
        return SAME

    def inbox(self) -> dict[str, Any]:
        sites = sorted(set(self.answers) - {"remote"})
        found = {site: json.loads(self.answers[site])["output"] for site in sites}
        for site in sites:  # what large arrays there are came as files
            (self.engine.place("remote", "base") / site).mkdir(exist_ok=True)
        return found

    def charges(self, site: str = "local0") -> list[tuple[str, int]]:
        path = self.engine.work / site / "ledger.jsonl"
        if not path.exists():
            return []
        (run,) = read_ledger(path).runs  # which refuses a release that is charged twice
        return [(charge.phase, charge.round) for charge in run.charges]

    def lines(self, site: str = "local0") -> list[str]:
        """Kinds of the lines of the ledger of all runs, charges left out."""
        path = self.engine.work / site / "ledger.jsonl"
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
        return [kind for kind in kinds if kind != "charge"]

    @contextmanager
    def at_write(self, number: int, fail: BaseException) -> Iterator[list[str]]:
        """Let the n-th write to disk, sync or rename fail instead."""
        done: list[str] = []

        def watched(name: str) -> Callable[..., Any]:
            real = getattr(os, name)

            def call(*args: Any, **kwargs: Any) -> Any:
                if len(done) == number:
                    done.append("failed")
                    raise fail
                done.append(name)
                return real(*args, **kwargs)

            return call

        with pytest.MonkeyPatch.context() as patch:
            for name in ("replace", "fsync", "write", "mkdir", "ftruncate"):
                patch.setattr(os, name, watched(name))
            yield done


def code_of(call: Callable[..., object], *args: Any) -> str:
    """Return the code that a call ends with; its public text holds no path."""
    try:
        call(*args)
    except CapeError as err:
        caught = err
    else:
        return "no error"
    assert "/" not in caught.public
    return caught.code


def everything(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Play a whole run and keep what every exchange began and ended with."""
    data = helper.write_data(folder / "data", computation=settings["computation"])
    engine = helper.Engine(
        folder / "work", data, settings, policy=POLICY, snapshots=folder / "snapshots"
    )
    answers, inputs = {}, {}
    with helper.without_pages():
        while not engine.ended:
            cursor = engine.cursor
            inputs[cursor] = copy.deepcopy(engine.input)
            engine.exchange()
            answers[cursor] = dict(engine.answers)
    return {"engine": engine, "answers": answers, "inputs": inputs}


@pytest.fixture(scope="module")
def recordings(tmp_path_factory) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}

    class Lazy(dict):  # type: ignore[type-arg]
        def __missing__(self, name: str) -> dict[str, Any]:
            others = {"gaussian": "papermean", "contrast": "capecontrast"}
            computation = others.get(name, "capedjica")
            extra = {"aggregation": "secagg"} if name == "secagg" else {}
            settings = helper.settings_of(computation, computation=computation, **extra)
            self[name] = everything(settings, tmp_path_factory.mktemp(name))
            return self[name]

    return Lazy(made)


@pytest.fixture
def world(recordings, tmp_path, monkeypatch):
    def at(exchange: tuple[str, int], kind: str = "ring") -> World:
        recording = recordings[kind]
        number = len(list(tmp_path.iterdir()))
        engine = recording["engine"].before[exchange].copy(tmp_path / f"work{number}")
        return World(engine, exchange, recording["answers"][exchange], monkeypatch, tmp_path,
                     recording)  # fmt: skip

    return at


# -- parties that die ----------------------------------------------------------------------------


def killed_at_every_write(at: Callable[[], World], ask: str, recover: str) -> set[str]:
    """Die before the first write, then before the second, ... until the step is through."""
    found: set[str] = set()
    for number in range(60):
        w = at()
        before = w.charges()
        with w.at_write(number, Killed()) as done:
            try:
                getattr(w, ask)()
            except Killed:
                pass
        if "failed" not in done:
            assert number > 0 or ask == "combine"  # an aggregator writes at the end only
            return found | {SAME}
        try:
            found.add(getattr(w, recover)())
        except CapeError as err:
            found.add(err.code)
        after = w.charges()
        assert after[: len(before)] == before
        if ask == "site" and SAME in found and w.exchange[0] != "join":
            # The plan is held once, from the roster on, and freed once, after the results.
            ends = ["end"] if w.exchange == EVERY[-1] else []
            assert w.lines() == ["run", "hold", *ends]
        of_round = prefix_of(w.exchange[0]), w.exchange[1]  # all of its releases, or fewer
        assert set(after[len(before) :]) <= {of_round}
        if w.exchange[0] in RELEASES and SAME in found:
            assert after == [*before, w.exchange] or SAME not in found or ask == "combine"
    raise AssertionError("a step writes without end")


def site_killed(at) -> set[str]:
    return killed_at_every_write(at, "site", "again")


def aggregator_killed(at) -> set[str]:
    return killed_at_every_write(at, "combine", "combined")


DIES = """
import os, signal, sys
import cape.engines.coinstac.computation as program
if "{where}" == "before sending":
    program._write = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
else:
    os.replace = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
raise SystemExit(program.answer_once("{role}"))
"""


def _process(w: World, role: str, text: bytes, code: str | None = None, **more: Any):
    party = "local0" if role == "local" else "remote"
    policy = str(w.engine.work / party / "site-policy.toml")
    stdio = [str(ROOT / f"{role}.py")] if code is None else ["-c", code]
    return subprocess.run(
        [sys.executable, *stdio], input=text, capture_output=True, check=False, cwd=ROOT,
        env={**os.environ, POLICY_VARIABLE: policy}, **more,
    )  # fmt: skip


def _killed_process(at, role: str) -> str:
    for where in ("before storing", "before sending"):
        w = at()
        if where == "before storing" and (role == "remote" or w.exchange == EVERY[-1]):
            continue  # the aggregator keeps nothing, and a site nothing of its last answer
        message = w.engine.input if role == "local" else w.inbox()
        party = "local0" if role == "local" else "remote"
        text = w.engine.document(party, message)
        died = _process(w, role, text, DIES.format(where=where, role=role))
        assert (died.returncode, died.stdout) == (-signal.SIGKILL, b"")
        done = _process(w, role, text)
        assert helper.repeated(done.stdout) == helper.repeated(w.answers[party])
    return SAME


def site_process_killed(at) -> str:
    return _killed_process(at, "local")


def aggregator_process_killed(at) -> str:
    return _killed_process(at, "remote")


def killed_again_and_again(at) -> str:
    w = at()
    stdio = transports.NewProcess({"local0": w.engine.data / "local0"}, w.engine.work)
    w.patch.setattr(transports.subprocess, "run", lambda command, **_: subprocess.CompletedProcess(
        command, -signal.SIGKILL, b"", b""))  # fmt: skip
    text = w.engine.document("local0", w.engine.input)
    found = code_of(stdio, "local", "local0", text)
    w.patch.undo()
    w.again()
    return found


# -- disks ---------------------------------------------------------------------------------------


def disk_full(at) -> str:
    """At every write of a step, one after the other; with room again the step is repeated."""
    for number in range(60):
        w = at()
        with w.at_write(number, OSError(errno.ENOSPC, "No space left on device")) as done:
            found = code_of(w.site)
        if "failed" not in done:
            assert number > 0
            return "CAPE-E261"
        # What can be made again need not be kept: then the step simply goes on.
        assert found in ("CAPE-E261", "no error"), (number, found)
        w.again()
    raise AssertionError("a step writes without end")


def disk_full_for_real(at) -> str:
    w = at()
    text = w.engine.document("local0", w.engine.input)
    done = _process(
        w, "local", text,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, b"")
    w.again()
    return done.stderr.split()[0].decode()


def read_only(at) -> str:
    w = at()
    real = os.open

    def refuse(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, flags, *args, **kwargs)

    w.patch.setattr(os, "open", refuse)
    found = code_of(w.site)
    w.patch.undo()
    w.again()
    return found


@contextmanager
def mounted(folder: Path, *, size: str = "4m") -> Iterator[None]:
    """Put what is in a folder on a small disk of its own; skips where nobody may mount."""
    kept = folder.with_name(f"{folder.name}-kept")
    folder.rename(kept)
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.decode().strip()}")
    try:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        yield
        shutil.rmtree(kept)
        shutil.copytree(folder, kept)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
        kept.rename(folder)


def _fill(folder: Path, *, but: int) -> Path:
    """Take all room but so many pages; returns the file that holds it."""
    filler = folder / "filler"
    state = os.statvfs(folder)
    filler.write_bytes(bytes(max(state.f_bavail - but, 0) * state.f_frsize))
    return filler


def _asked(w: World, role: str, text: bytes) -> tuple[str, bytes]:
    """Ask a party in a process of its own; returns the code of its error and its answer."""
    hidden = w.tmp_path / "hidden"
    where = hidden if hidden.exists() else helper.no_pictures(hidden)
    w.patch.setenv("PYTHONPATH", f"{where}{os.pathsep}{ROOT}")
    done = _process(w, role, text)
    assert done.returncode == (1 if done.stderr else 0)
    assert bool(done.stdout) != bool(done.stderr)
    assert str(w.tmp_path).encode() not in done.stderr
    return done.stderr.split(b" ")[0].decode(), done.stdout


def _finishes(w: World) -> None:
    """Play the rest of the run: its maps and ledger are those of the run that was left alone."""
    with helper.without_pages():
        w.engine.play()
    alone = w.recording["engine"].work
    for name in ("results.json", "privacy.json", "unmixing.npz"):
        path = Path("remote", "transfer", name)
        assert (w.engine.work / path).read_bytes() == (alone / path).read_bytes(), name
    assert [c for c in w.charges() if c[0] in RELEASES] == [e for e in EVERY if e[0] in RELEASES]


def _stopped_by(
    at: Callable[[], World], role: str, stop: Callable[[Path], Callable[[], object]]
) -> str:
    """Let the disk of a party refuse, then take writes again; returns what the party said."""
    # An empty text: nothing was refused.
    w = at()
    party, message = ("local0", w.engine.input) if role == "local" else ("remote", w.inbox())
    text = w.engine.document(party, message)
    with mounted(w.engine.work / party):
        relent = stop(w.engine.work / party)
        found, _ = _asked(w, role, text)
        relent()
        code, answer = _asked(w, role, text)
        assert not code
        assert helper.repeated(answer) == helper.repeated(w.answers[party])
    _finishes(w)
    return found


def _full(but: int) -> Callable[[Path], Callable[[], object]]:
    return lambda folder: _fill(folder, but=but).unlink


def disk_full_mounted(at) -> set[str]:
    """Room for no page, for one more, ...: each time the disk is full at a later write."""
    said = [_stopped_by(at, "local", _full(0))]
    while said[-1]:  # until there is room for all
        said.append(_stopped_by(at, "local", _full(len(said))))
    assert len(said) > 2, "it was full at one write at most"
    return set(said[:-1])


def aggregator_disk_full_mounted(at) -> str:
    return _stopped_by(at, "remote", _full(1))


def _locked(folder: Path) -> Callable[[], object]:
    def remount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(folder)], check=True)

    remount("ro")
    return lambda: remount("rw")


def read_only_mounted(at) -> str:
    return _stopped_by(at, "local", _locked)


def aggregator_read_only_mounted(at) -> str:
    return _stopped_by(at, "remote", _locked)


def folder_gone(at) -> str:
    w = at()
    shutil.rmtree(w.engine.work / "local0" / "output")
    (w.engine.work / "local0" / "output").write_text("no folder any more")
    return code_of(w.site)


def results_unwritable(at) -> str:
    w = at()
    real = report_files.write_json
    w.patch.setattr(report_files, "write_json", lambda *a: _raise(OSError(errno.ENOSPC, "full")))
    found = code_of(w.combine)
    w.patch.setattr(report_files, "write_json", real)
    w.combined()
    return found


def _raise(err: BaseException) -> None:
    raise err


def ledger_damaged(at) -> str:
    w = at()
    path = w.engine.work / "local0" / "ledger.jsonl"
    path.write_bytes(b"x" + path.read_bytes()[1:])
    return code_of(w.site)


def ledger_cut(at) -> str:
    """A power cut while a line was written: it had not counted yet."""
    w = at()
    path = w.engine.work / "local0" / "ledger.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v": 1, "kind": "char')
    return w.again()


def working_files_lost(at) -> str:
    w = at()
    shutil.rmtree(w.engine.work / "local0" / "cache")
    return w.again()


def journal_lost(at) -> str:
    w = at()
    shutil.rmtree(w.engine.work / "local0" / "output" / ".cape")
    return code_of(w.site)


# -- time ----------------------------------------------------------------------------------------


def clock_jumps(at) -> str:
    """Ten years ahead, then back before the epoch, while files look older than the run."""
    for jump in (3.2e8, -3.0e9):
        w = at()
        real = time.time
        w.patch.setattr(time, "time", lambda j=jump, r=real: r() + j)
        for path in (w.engine.work / "local0" / "output").rglob("*"):
            os.utime(path, (max(real() + jump, 0.0),) * 2)
        w.again()
        w.patch.undo()
    return SAME


def slow_site(at) -> str:
    """The others wait; what comes late comes last, which changes nothing."""
    w = at()
    inbox = w.inbox()
    late = {site: inbox[site] for site in (*sorted(inbox)[1:], "local0")}
    assert w.combine(late) == w.answers["remote"]
    return w.again()


# -- messages ------------------------------------------------------------------------------------


def broadcast_lost(at) -> str:
    """A site that was not asked did not answer."""
    w = at()
    inbox = w.inbox()
    inbox.pop("local0")
    found = code_of(w.combine, inbox)
    w.again()
    return found


def broadcast_repeated(at) -> str:
    w = at()
    first = w.site()
    charged = w.charges()
    assert helper.repeated(w.site()) == helper.repeated(first)
    assert w.charges() == charged
    return w.again()


def _earlier(w: World) -> tuple[str, int]:
    played = list(w.recording["answers"])
    return played[played.index(w.exchange) - 1]


def broadcast_out_of_order(at) -> str:
    """The one before arrives again, after the site has gone on."""
    w = at()
    w.engine.take("local0", w.site())
    return code_of(w.site, w.recording["inputs"][w.exchange])


def broadcast_ahead(at) -> str:
    w = at()
    played = list(w.recording["answers"])
    after = played[played.index(w.exchange) + 1]
    found = code_of(w.site, w.recording["inputs"][after])
    w.again()
    return found


def _changed_broadcast(at, **fields: Any) -> str:
    w = at()
    found = code_of(w.site, {**w.engine.input, **fields})
    w.again()
    return found


def broadcast_truncated(at) -> set[str]:
    w, found = at(), set()
    for name in sorted(w.engine.input["body"]):
        cut = copy.deepcopy(w.engine.input)
        cut["body"].pop(name)
        found.add(code_of(w.site, cut))
    w.again()
    return found


def document_truncated(at) -> str:
    w = at()
    text = w.engine.document("local0", w.engine.input)
    codes = {code_of(stdio.parse_document, text[:n]) for n in (0, 1, len(text) // 2, len(text) - 1)}
    w.again()
    (found,) = codes
    return found


def document_oversized(at) -> str:
    w = at()
    text = w.engine.document("local0", w.engine.input)
    w.patch.setattr(wire, "MAX_DOCUMENT", len(text) - 1)
    found = code_of(stdio.parse_document, text)
    w.patch.undo()
    w.again()
    return found


def _changed_reply(at, change: Callable[[dict[str, Any]], None]) -> str:
    w = at()
    inbox = w.inbox()
    change(inbox)
    found = code_of(w.combine, inbox)
    w.combined()
    return found


def _cut_array(inbox: dict[str, Any]) -> None:
    total = inbox["local1"]["body"]["total"]
    total["base64"] = total["base64"][: len(total["base64"]) // 8 * 4]


def _grow_array(inbox: dict[str, Any]) -> None:
    inbox["local1"]["body"]["total"]["shape"] = [10**12]


def _set(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(inbox: dict[str, Any]) -> None:
        inbox["local1"][name] = value

    return change


def reply_late(at) -> str:
    """The reply to the exchange before arrives in place of the present one."""
    w = at()
    old = json.loads(w.recording["answers"][_earlier(w)]["local1"])["output"]
    found = code_of(w.combine, {**w.inbox(), "local1": old})
    w.combined()
    return found


def reply_of_a_stranger(at) -> str:
    def change(inbox: dict[str, Any]) -> None:
        inbox["somebody"] = inbox["local1"]

    return _changed_reply(at, change)


def replies_reordered(at) -> str:
    w = at()
    inbox = w.inbox()
    assert w.combine({site: inbox[site] for site in reversed(inbox)}) == w.answers["remote"]
    return w.combined()


# -- two at once ---------------------------------------------------------------------------------


def two_processes_one_document(at) -> str:
    w = at()
    text = w.engine.document("local0", w.engine.input)
    policy = str(w.engine.work / "local0" / "site-policy.toml")
    running = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "local.py")], stdin=subprocess.PIPE, cwd=ROOT,
            stdout=subprocess.PIPE, env={**os.environ, POLICY_VARIABLE: policy},
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in running:
        process.stdin.write(text)
        process.stdin.close()
    answers = []
    for process in running:
        with process.stdout:
            answers.append(process.stdout.read())
    assert [process.wait() for process in running] == [0, 0]
    assert answers[0] == answers[1]
    assert w.charges()[-1] == w.exchange
    return w.again()


def folder_held(at) -> str:
    w = at()
    w.patch.setattr(files, "LOCK_PATIENCE", 0.1)
    with files.folder_lock(w.engine.work / "local0" / "output", "other"):
        found = code_of(w.site)
    w.again()
    return found


def two_runs_one_folder(at) -> str:
    """The later run goes on; the earlier one ends, whatever it is asked next."""
    w = at()
    caches = w.engine.caches["local0"]
    due, w.engine.iteration = w.engine.iteration, 1
    w.engine.caches["local0"] = {}
    w.engine.allow("local0", replace(POLICY, simulation_seed=99))  # of a run of its own
    settings = w.recording["inputs"]["join", 1]
    later = json.loads(w.engine.ask("local0", {**settings, "n_rounds": 3}))
    w.engine.caches["local0"], w.engine.iteration = caches, due
    w.engine.allow("local0", POLICY)
    found = code_of(w.site)
    assert len(read_ledger(w.engine.work / "local0" / "ledger.jsonl").runs) >= 1
    assert later["output"]["phase"] == "join"
    return found


EVERY = [("join", 1), ("zero-sum", 1), ("zero-sum.probe", 1), ("pca", 1), ("whitening", 1),
         ("iterate", 1), ("iterate", 2), ("report", 1)]  # fmt: skip
ANSWERING = EVERY[1:]
RELEASING = [("pca", 1), ("iterate", 2)]
SHARING = [("pca", 1), ("zero-sum", 1), ("zero-sum.shares", 1), ("pca.unmask", 1)]
STAGES = [("zero-sum.shares", 1), *((f"{s}{step}", 1) for s in ("zero-sum.probe", "pca")
          for step in ("", ".consistency", ".unmask"))]  # fmt: skip
SEEDS = [("mean.released", 1), ("mean", 1)]
LOOKS = [("score", 1), ("join", 1), ("design", 1), ("contrast", 2), ("report", 1)]

CASES: dict[str, tuple[Callable[..., Any], list[tuple[str, int]], str]] = {
    "site-killed": (site_killed, EVERY, "ring"),
    "aggregator-killed": (aggregator_killed, EVERY, "ring"),
    "site-process-killed": (site_process_killed, EVERY, "ring"),
    "aggregator-process-killed": (aggregator_process_killed, EVERY, "ring"),
    "secagg-site-killed": (site_killed, SHARING, "secagg"),
    "gaussian-site-killed": (site_killed, SEEDS, "gaussian"),
    "contrast-site-killed": (site_killed, LOOKS, "contrast"),
    "contrast-aggregator-killed": (aggregator_killed, LOOKS, "contrast"),
    "killed-three-times": (killed_again_and_again, RELEASING, "ring"),
    "disk-full": (disk_full, EVERY, "ring"),
    "secagg-disk-full": (disk_full, STAGES, "secagg"),
    "gaussian-disk-full": (disk_full, SEEDS, "gaussian"),
    "disk-full-really": (disk_full_for_real, [("pca", 1)], "ring"),
    "read-only": (read_only, EVERY[:-1], "ring"),
    "disk-full-mounted": (disk_full_mounted, [("join", 1), ("pca", 1), ("iterate", 1)], "ring"),
    "read-only-mounted": (read_only_mounted, [("join", 1), ("pca", 1), ("iterate", 1)], "ring"),
    "aggregator-disk-full-mounted": (aggregator_disk_full_mounted, [("report", 1)], "ring"),
    "aggregator-read-only-mounted": (aggregator_read_only_mounted, [("report", 1)], "ring"),
    "folder-gone": (folder_gone, ANSWERING, "ring"),
    "results-unwritable": (results_unwritable, [("report", 1)], "ring"),
    "ledger-damaged": (ledger_damaged, RELEASING, "ring"),
    "ledger-cut": (ledger_cut, RELEASING, "ring"),
    "working-files-lost": (working_files_lost, RELEASING, "ring"),
    "journal-lost": (journal_lost, ANSWERING[:-1], "ring"),
    "clock-jumps": (clock_jumps, ANSWERING[:-1], "ring"),
    "slow-site": (slow_site, EVERY[:-1], "ring"),
    "broadcast-lost": (broadcast_lost, ANSWERING[:-1], "ring"),
    "broadcast-repeated": (broadcast_repeated, EVERY, "ring"),
    "broadcast-out-of-order": (broadcast_out_of_order, ANSWERING[:-1], "ring"),
    "broadcast-ahead": (broadcast_ahead, ANSWERING[:-2], "ring"),
    "broadcast-of-another-run": (
        lambda at: _changed_broadcast(at, run="0f" * 16), ANSWERING[1:-1], "ring",
    ),
    "broadcast-of-another-version": (
        lambda at: _changed_broadcast(at, v=2), ANSWERING[:-1], "ring",
    ),
    "broadcast-truncated": (broadcast_truncated, ANSWERING[:-1], "ring"),
    "document-truncated": (document_truncated, RELEASING, "ring"),
    "document-oversized": (document_oversized, RELEASING, "ring"),
    "reply-truncated": (lambda at: _changed_reply(at, _cut_array), RELEASING, "ring"),
    "reply-oversized": (lambda at: _changed_reply(at, _grow_array), RELEASING, "ring"),
    "reply-of-another-run": (
        lambda at: _changed_reply(at, _set("run", "0f" * 16)), ANSWERING, "ring",
    ),
    "reply-of-another-version": (lambda at: _changed_reply(at, _set("v", 2)), EVERY, "ring"),
    "reply-late": (reply_late, ANSWERING, "ring"),
    "reply-of-a-stranger": (reply_of_a_stranger, ANSWERING, "ring"),
    "replies-reordered": (replies_reordered, EVERY, "ring"),
    "two-processes-one-document": (two_processes_one_document, [("pca", 1)], "ring"),
    "folder-held": (folder_held, RELEASING, "ring"),
    "two-runs-one-folder": (two_runs_one_folder, ANSWERING[:-1], "ring"),
}  # fmt: skip


LONG = {name for name in CASES if name.endswith("-mounted")}
"""Played in the long form only: they need the right to mount."""


def instances() -> list[Any]:
    """Return each fault at one exchange; at all others in the long form (make test-trust)."""
    found = []
    for name, (_, exchanges, _) in CASES.items():
        short = ("iterate", 1) if ("iterate", 1) in exchanges else exchanges[0]
        for exchange in exchanges:
            marks = [] if exchange == short and name not in LONG else [pytest.mark.trust]
            where = "" if exchange == short else f"-{exchange[0]}-{exchange[1]}"
            found.append(pytest.param(name, exchange, id=f"{name}{where}", marks=marks))
    return found


@pytest.mark.parametrize(("name", "exchange"), instances())
def test_a_fault_has_its_declared_outcome(world, name, exchange) -> None:
    play, _, kind = CASES[name]
    played = play(lambda: world(exchange, kind))
    found = played if isinstance(played, set) else {played}
    sys.stdout.write(f"{name} {exchange}: {' or '.join(sorted(found))}\n")  # for `make test-trust`
    assert found <= ROWS[name]


@pytest.mark.trust
@pytest.mark.parametrize("stop", ["full", "read-only"])
def test_a_simulation_begins_again_once_its_disk_takes_writes_again(tmp_path, stop) -> None:
    """`cape simulate --through process`, stopped wherever the room ends, or between exchanges."""
    data = helper.write_data(tmp_path / "data")
    chosen: dict[str, Any] = {"settings": helper.settings_of("capedjica"), "seed": 5}
    out, hidden = tmp_path / "out", helper.no_pictures(tmp_path / "hidden")
    out.mkdir()
    relent: list[Callable[[], object]] = []

    def lock(line: Any) -> None:
        if stop == "read-only" and line.exchange == 4 and not relent:
            relent.append(_locked(out))

    with mounted(out), helper.without_pages(), pytest.MonkeyPatch.context() as patch:
        alone = simulate(data, out=tmp_path / "alone", **chosen)
        patch.setenv("PYTHONPATH", f"{hidden}{os.pathsep}{ROOT}")
        if stop == "full":
            relent.append(_full(18)(out))
        with pytest.raises((CapeError, OSError)) as caught:
            simulate(data, out=out, through="process", on_progress=lock, **chosen)
        assert was_stopped(caught.value)
        while relent:
            relent.pop()()
        simulate(data, out=out, through="process", **chosen)
        found = (out / "consortium" / "unmixing.npz").read_bytes()
    assert found == (alone / "unmixing.npz").read_bytes()


def test_every_row_of_the_table_is_played_and_every_case_is_a_row() -> None:
    elsewhere = {"simulator-killed", "processes-killed-for-200-rounds", "two-runs-one-ledger",
                 "ledger-key-lost", "simulator-disk", "no-locks"}  # fmt: skip
    assert set(ROWS) == set(CASES) | elsewhere
    text = (ROOT / "docs" / "faults.md").read_text()
    for name in re.findall(r"`(test/[a-z_/]+\.py)`", text):
        assert (ROOT / name).is_file(), name


def test_the_recording_is_what_it_says(recordings) -> None:
    """Else a fault at the wrong moment would look harmless."""
    assert list(recordings["ring"]["answers"]) == EVERY
    assert set(SHARING) < set(recordings["secagg"]["answers"])
    assert set(SEEDS) < set(recordings["gaussian"]["answers"])
    assert set(LOOKS) < set(recordings["contrast"]["answers"])
    body = json.loads(recordings["ring"]["answers"]["pca", 1]["local0"])["output"]["body"]
    assert np.frombuffer(wire.decode(body["total"], wire_array()).tobytes(), "<u8").size == 78


def wire_array() -> Any:
    from cape.protocol.messages import RingVector

    return RingVector
