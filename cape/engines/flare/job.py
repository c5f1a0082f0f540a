"""A run as a job of FLARE: three JSON files, and no code in it.

Tools of FLARE that export a job copy the sources of its classes into it.  Such a job brings its own
code, and what a site allows to be built no longer counts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from cape.computations import configured
from cape.engines.flare.rounds import RUN_NAME
from cape.errors import ConfigError, MessageError
from cape.frozen import dataclass
from cape.protocol import wire
from cape.settings.config import Config
from cape.settings.documents import parse_json

META = "meta.json"
SERVER = "app/config/config_fed_server.json"
# The three files by name; `_documents` fills in what a run and its sites are.
TEMPLATE = Path(__file__).parent / "job.json"
# FLARE fills these into texts of a job from variables of its own.
FILLED = ("{", "}", "$")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """A run for FLARE; who takes part stands in the owner's settings."""

    run: str
    settings: dict[str, Any]
    least: int = 0  # sites that must be connected; 0 = all
    patience: float = 600.0  # s for an answer; twice that, and a site is lost
    join_patience: float = 3600.0  # s for the first one: the data are read


def new_run() -> str:
    return os.urandom(16).hex()


def write_job(folder: Path, plan: JobPlan) -> None:
    """Write the job; ConfigError for settings that no run has or that FLARE would change."""
    _, config = configured(plan.settings)
    for name, value in plan.settings.items():
        text = value if isinstance(value, str) else ""
        if any(mark in text for mark in FILLED) or text.startswith("@"):
            problem = f"FLARE would change the text of {name}"
            raise ConfigError("E312", problem=problem, do="leave out braces, $ and a first @.")
    if not 0 <= plan.least <= config.expected_sites or not config.expected_sites:
        problem = f"{plan.least or 'all'} of {config.expected_sites} sites must be connected"
        raise ConfigError("E312", problem=problem, do="set n_sites or site_names.")
    for name, document in _documents(plan, config).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _documents(plan: JobPlan, config: Config) -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = parse_json(TEMPLATE.read_text(encoding="utf-8"))
    meta, server = documents[META], documents[SERVER]
    names, n_sites = config.expected_names, config.expected_sites
    meta["name"] = f"cape-{plan.run[:8]}"
    meta["min_clients"] = plan.least or n_sites
    if names:
        meta["deploy_map"]["app"] = ["server", *names]
    server["components"][0]["args"] = {
        "run": plan.run,
        # A mapping that says so is none of FLARE's components, whatever its keys are called.
        "settings": {"config_type": "dict", **plan.settings},
        "patience": plan.patience,
        "join_patience": plan.join_patience,
    }
    limits = server["workflows"][0]["args"]
    # Seconds that FLARE waits until all sites have begun: one that has not ends the job.
    limits["sync_task_timeout"] += 2 * n_sites
    limits["max_call_threads"] = max(limits["max_call_threads"], n_sites)
    return documents


def read_job(folder: Path) -> JobPlan:
    """Return the run of a job that `write_job` wrote, to go on with it; ConfigError E312."""
    try:
        meta = parse_json((folder / META).read_text(encoding="utf-8"))
        server = parse_json((folder / SERVER).read_text(encoding="utf-8"))
        given = dict(server["components"][0]["args"])
        given["settings"] = {k: v for k, v in given["settings"].items() if k != "config_type"}
        given["least"] = meta["min_clients"]
        plan: JobPlan = wire.decode_document(given, JobPlan, "job")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, MessageError) as err:
        problem = "this folder holds no job of cape"
        do = "name a folder that cape flare job wrote."
        raise ConfigError("E312", problem=problem, do=do, detail=str(err)) from err
    if not RUN_NAME.fullmatch(plan.run):
        raise ConfigError("E312", problem="its run has no name of ours", do="write a new job.")
    return plan
