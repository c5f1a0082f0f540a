"""Runs in COINSTAC's own engine on one computer, by ``engine_program/engine.js``.

They need node, the engine's packages (`NODE_PATH`), Docker (`DOCKER_HOST`) and this project's
image; ``packaging/with-engine.sh COMMAND`` installs them on Debian.
"""

import copy
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cape.data.space import RUN_MAPS, TEMPLATE_FILES
from cape.data.templates import file_of_maps
from cape.engines.coinstac import compspec
from cape.errors import CapeError, ReportedError
from cape.frozen import dataclass
from cape.lab.engines.containers import connect, find_image
from cape.settings.config import PRODUCT
from cape.settings.documents import not_default, parse_json, toml_text
from cape.simulation.run_loop import BEFORE_JOIN, OnProgress, progress_line
from cape.simulation.ways import Play

RUN = "simulatorRun"
ENGINE_PROGRAM = Path(__file__).parent / "engine_program" / "engine.js"
# The site's own files in its output folder; the others come from the aggregator.
SITE_FILES = (
    "private",
    "cape-site.json",
    "sent.jsonl",
    "site-error.txt",
    "site-notice.txt",
    "site-policy.toml",
)
PUBLIC_TEXT = re.compile(r"CAPE-E\d{3} [^\n]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class PartyEnd:
    """The end of a run for one party: its final output, or the engine's error text."""

    party: str
    fulfilled: bool
    output: Any
    error: str


def run_engine(
    folder: Path,
    specification: Mapping[str, Any],
    inputs: Mapping[str, Mapping[str, Any]],
    *,
    others: Mapping[str, Mapping[str, Any]] | None = None,
    on_iteration: Callable[[int], None] = lambda iteration: None,
) -> tuple[PartyEnd, ...]:
    """Run the engine on ``input/<site>/simulatorRun/`` in `folder`; CapeError E241: no tools."""
    _check_parts()
    specifications = {"default": specification, **(others or {})}
    (folder / "compspecs.json").write_text(json.dumps(specifications), encoding="utf-8")
    mapped = {
        site: {name: {"value": value, "fulfilled": True} for name, value in values.items()}
        for site, values in inputs.items()
    }
    (folder / "inputs.json").write_text(json.dumps(mapped), encoding="utf-8")
    # If CI is set, the engine uses other mounts, hosts and ports.
    environment = {name: value for name, value in os.environ.items() if name != "CI"}
    command = [
        "node",
        str(ENGINE_PROGRAM),
        *(str(folder / n) for n in ("compspecs.json", "inputs.json")),
    ]
    errors = (folder / "engine.log").open("wb")
    with (
        errors,
        subprocess.Popen(  # noqa: S603 - this project's own program
            [*command, str(folder)],
            stdout=errors,
            stderr=subprocess.PIPE,
            env=environment,
            cwd=folder,
        ) as process,
    ):
        try:
            assert process.stderr is not None  # noqa: S101 - a pipe
            for line in process.stderr:
                _report_iteration(line, on_iteration)
            process.wait()
        finally:
            # Ctrl-C must end node and its containers.
            process.kill()
            _remove_containers(folder)
    return _ends(folder / "engine.log", process.returncode)


def _check_parts() -> None:
    do = "run the command under packaging/with-engine.sh, which installs all parts on Debian."
    if shutil.which("node") is None:
        raise CapeError("E241", problem="the engine of COINSTAC needs node", do=do)
    folders = [Path(name) for name in os.environ.get("NODE_PATH", "").split(os.pathsep) if name]
    if not any((folder / "coinstac-pipeline").is_dir() for folder in folders):
        raise CapeError("E241", problem="NODE_PATH names no coinstac-pipeline", do=do)
    connect().close()


def _report_iteration(line: bytes, on_iteration: Callable[[int], None]) -> None:
    try:
        iteration = parse_json(line)["update"]["currentIteration"]
    except (ValueError, KeyError, TypeError):
        return  # other output of the engine
    if isinstance(iteration, int):
        on_iteration(iteration)


def _ends(log: Path, code: int) -> tuple[PartyEnd, ...]:
    ends = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith('{"party"'):
            end = parse_json(line)
            ends.append(
                PartyEnd(
                    party=end["party"],
                    fulfilled=end["status"] == "fulfilled",
                    output=end.get("value"),
                    error=end.get("error") or "",
                )
            )
    if not ends:
        problem = f"the engine of COINSTAC did not start (exit {code})"
        do = "read engine.log in container-logs of the results folder."
        raise CapeError("E241", problem=problem, do=do)
    return tuple(ends)


def _remove_containers(folder: Path) -> None:
    # The engine leaves stopped containers; find them by the folder that they mount.
    client = connect()
    (folder / "logs").mkdir(exist_ok=True)
    try:
        for container in client.containers.list(all=True):
            mounts = client.api.inspect_container(container.id)["Mounts"]
            if any(str(mount["Source"]).startswith(str(folder)) for mount in mounts):
                (folder / "logs" / f"{container.name}.log").write_bytes(container.logs())
                container.remove(force=True)
    finally:
        client.close()


def simulate_in_engine(play: Play, *, version: int = 2) -> None:
    """Play a run in the engine; compspec `version` 1: a process per round, 2: the service."""
    _check_parts()
    setup, folder = play.setup, play.work / "engine"
    image = find_image(setup.settings, setup.image)  # fails before files are copied
    name = str(setup.settings.get("computation", PRODUCT))
    inputs = {}
    for site, data in play.sites.items():
        base = folder / "input" / site / RUN
        shutil.copytree(data, base, copy_function=_link_or_copy)
        if play.maps is not None:
            _replace_maps(base, play.maps)
        (base / "site-policy.toml").write_text(
            toml_text(not_default(setup.policy)), encoding="utf-8"
        )
        inputs[site] = {"computation": name, **setup.settings, "policy": ["site-policy.toml"]}
    specification = adapted(compspec.compspec_of(name), image=image, version=version)
    on_iteration = _iteration_reporter(play.options.on_progress, len(play.sites))
    try:
        ends = run_engine(folder, specification, inputs, on_iteration=on_iteration)
    finally:
        play.logs.mkdir(parents=True, exist_ok=True)
        for log in (folder / "engine.log", *folder.glob("logs/*.log")):
            if log.is_file():
                shutil.copy(log, play.logs / log.name)
    for site in play.sites:
        _take_results(folder / "output" / site / RUN, play.work, site)
    failed = [end for end in ends if not end.fulfilled]
    if failed:
        # The engine adds text to the public one and repeats it for every party.
        texts = [m.group() for end in failed if (m := PUBLIC_TEXT.search(end.error))]
        if not texts:
            problem, do = "the engine of COINSTAC ended the run", "read container-logs/engine.log."
            raise CapeError("E241", problem=problem, do=do, detail=failed[0].error)
        raise ReportedError(texts[0], "")


def adapted(specification: Mapping[str, Any], *, image: str, version: int) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(dict(specification))
    document["meta"]["compspecVersion"] = version
    document["computation"]["dockerImage"] = document["computation"]["remote"]["dockerImage"] = (
        image
    )
    return document


def _replace_maps(base: Path, maps: Path) -> None:
    """Replace the maps in the copy of a site's folder; containers mount no other folder."""
    while (own_maps := file_of_maps(base)) is not None:
        own_maps.unlink()
    # A standard name: the file's own may equal that of a person's file.
    names = (n for n in (*RUN_MAPS, *TEMPLATE_FILES) if maps.name.endswith(n[n.index(".") :]))
    _link_or_copy(str(maps), str(base / next(names, "templates.csv")))


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)  # as COINSTAC's application does
    except OSError:
        shutil.copy2(source, target)


def _take_results(output: Path, work: Path, site: str) -> None:
    private, common = work / site / "output", work / "remote" / "transfer"
    private.mkdir(parents=True, exist_ok=True)
    common.mkdir(parents=True, exist_ok=True)
    if not output.is_dir():
        return
    for path in sorted(output.iterdir()):
        target = (private if path.name in SITE_FILES else common) / path.name
        # The engine copies the aggregator's files to every site; keep one copy.
        if path.name != ".cape" and not target.exists():
            shutil.move(path, target)


def _iteration_reporter(on_progress: OnProgress | None, n_sites: int) -> Callable[[int], None]:
    # The engine reports only the number of its iteration.
    began, last = time.monotonic(), 0

    def report(iteration: int) -> None:
        nonlocal began, last
        if on_progress is None or iteration <= last:
            return
        now = time.monotonic()
        progress = replace(BEFORE_JOIN, phase="engine", round=iteration, rounds=iteration)
        on_progress(progress_line(iteration, progress, progress, now - began, n_sites, 0))
        began, last = now, iteration

    return report
