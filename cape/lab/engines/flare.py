"""Runs in FLARE's own simulator on one computer, with one process per site.

They need the extra ``nvflare``.  Every site has its own file, as on its own computer.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from cape.engines.flare.job import JobPlan, new_run, write_job
from cape.engines.flare.rounds import AggregatorRounds, RunState, progress_of
from cape.engines.flare.site_file import (
    SERVER_CLASSES,
    SITE_CLASSES,
    AggregatorFile,
    SiteFile,
    allowing,
    write_resources,
)
from cape.errors import CapeError, ReportedError, StoppedError
from cape.settings.documents import not_default, toml_text
from cape.simulation.run_loop import BEFORE_JOIN, OnProgress, progress_line
from cape.simulation.transports import error_detail
from cape.simulation.ways import Play

# Seconds between two readings of the run's state
_PAUSE = 0.1


def simulate_in_flare(play: Play) -> None:
    """Play a run in FLARE's simulator; CapeError E015: nvflare is not installed."""
    if importlib.util.find_spec("nvflare") is None:
        do = "install the extra 'nvflare'."
        raise CapeError("E015", what="FLARE's simulator", package="nvflare", do=do)
    sites, work = play.sites, play.work
    folder = work / "flare"
    job, kits = folder / "job", folder / "kits"
    maps = play.setup.maps if play.setup.maps.endswith((".nii", ".nii.gz")) else ""
    plan = JobPlan(run=new_run(), settings=play.setup.settings, maps=maps)
    write_job(job, plan)
    _write_own_files(play, kits / "local")
    rounds = AggregatorRounds(plan.run, plan.settings, work / "remote")
    try:
        code = _play(job, kits, list(sites), rounds, play.options.on_progress)
    finally:
        _keep_logs(kits, play.logs)
    state = rounds.state()
    if state is None or not state.ended:
        for site in sites:
            _show_error(work / site, plan.run)
        raise _end(rounds, code)
    for site in sites:
        _move(work / site / plan.run / "output", work / site / "output")
    _move(rounds.results, work / "remote" / "transfer")


def _show_error(home: Path, run: str) -> None:
    error = home / run / "output" / "site-error.txt"
    if error.is_file():
        (home / "output").mkdir(exist_ok=True)
        shutil.copy(error, home / "output" / error.name)


def _write_own_files(play: Play, local: Path) -> None:
    work, policy = play.work, toml_text(not_default(play.setup.policy))
    local.mkdir(parents=True)
    for site, data in play.sites.items():
        home = work / site
        home.mkdir(parents=True, exist_ok=True)
        (home / "site-policy.toml").write_text(policy, encoding="utf-8")
        site_file = SiteFile(
            data=str(data.resolve()),
            runs=str(home),
            policy=str(home / "site-policy.toml"),
            maps=play.setup.maps,
        )
        text = toml_text(not_default(site_file))
        (local / f"cape-site-{site}.toml").write_text(text, encoding="utf-8")
    text = toml_text(not_default(AggregatorFile(runs=str(work / "remote"))))
    (local / "cape-aggregator.toml").write_text(text, encoding="utf-8")
    # One folder for the server and all sites.
    write_resources(local, allowing({}, (*SERVER_CLASSES, *SITE_CLASSES))[0])


def _play(
    job: Path, kits: Path, sites: list[str], rounds: AggregatorRounds, tell: OnProgress | None
) -> int:
    command = [sys.executable, "-m", "nvflare.private.fed.app.simulator.simulator", str(job)]
    number = str(len(sites))
    options = ["-w", str(kits), "-c", ",".join(sites), "-t", number, "-m", number]
    with (kits.parent / "flare.log").open("ab") as log:
        process = subprocess.Popen(  # noqa: S603 - FLARE's own program
            [*command, *options],
            stdout=log,
            stderr=log,
            cwd=kits.parent,
            # The process group lets us end child processes too.
            start_new_session=True,
        )
        try:
            reporter = _ExchangeReporter(tell)
            while process.poll() is None:
                reporter.update(rounds.state())
                time.sleep(_PAUSE)
            reporter.update(rounds.state())
        finally:
            # Ctrl-C must end all processes.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode


class _ExchangeReporter:
    """Reports every finished exchange once."""

    def __init__(self, tell: OnProgress | None) -> None:
        self._tell, self._iteration, self._last = tell, 0, BEFORE_JOIN
        self._began = time.monotonic()

    def update(self, state: RunState | None) -> None:
        if self._tell is None or state is None or state.iteration <= self._iteration:
            return
        now, latest = time.monotonic(), progress_of(state) or self._last
        line = progress_line(
            state.iteration, self._last, latest, now - self._began, len(state.remaining), state.size
        )
        self._tell(line)
        self._iteration, self._last, self._began = state.iteration, latest, now


def _end(rounds: AggregatorRounds, code: int) -> CapeError:
    path = rounds.home / "output" / "site-error.txt"
    if not path.is_file():
        return StoppedError("E265", party="FLARE's simulator", detail=f"exit {code}, see flare.log")
    public = path.read_text(encoding="utf-8").partition("\n")[0]
    return ReportedError(public, error_detail(rounds.home / "output"))


def _keep_logs(kits: Path, logs: Path) -> None:
    logs.mkdir(parents=True, exist_ok=True)
    for path in (kits.parent / "flare.log", *kits.glob("*/log.txt"), *kits.glob("*/*/log.txt")):
        if path.is_file():
            name = path.name if path.parent == kits.parent else f"{path.parent.parent.name}.log"
            shutil.copy(path, logs / name)


def _move(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(source, target)
