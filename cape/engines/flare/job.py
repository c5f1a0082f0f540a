"""A run as a job of FLARE: three JSON files without code, and perhaps public maps.

FLARE's export tools copy the sources of a job's classes into the job.  Such a job brings its own
code, and bypasses a site's list of allowed classes.
"""

import json
import os
import re
from pathlib import Path
from typing import Any, Final

from cape.computations import configured
from cape.data.label_table import copies_of
from cape.engines.coinstac.documents import RUN_NAME
from cape.errors import ConfigError, MessageError, own_words
from cape.frozen import dataclass
from cape.protocol import wire
from cape.settings.config import Config
from cape.settings.documents import parse_json

META = "meta.json"
SERVER = "app/config/config_fed_server.json"
# Public maps of a comparison and the table of their names, for its page
JOB_MAPS: Final = "public_maps"
# The three files by name; `_documents` adds the run and its sites.
_TEMPLATE = Path(__file__).parent / "job.json"
# Names that FLARE's provisioning gives to sites
SITE_NAME = re.compile(r"(?!server$)[A-Za-z0-9_][A-Za-z0-9_-]{,63}")
# Placeholders that FLARE replaces in the texts of a job.
FILLED = ("{", "}", "$")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPlan:
    """A run for FLARE; the owner's settings name the sites."""

    run: str
    settings: dict[str, Any]
    least: int = 0  # sites that must be connected; 0 = all
    patience: float = 600.0  # s to wait for an answer; after two such waits a site is lost
    join_patience: float = 3600.0  # s for the first answer, before which data are read
    maps: str = ""  # file of the public maps that a comparison shows; "" = none


def new_run() -> str:
    return os.urandom(16).hex()


def write_job(folder: Path, plan: JobPlan) -> None:
    """Write the job into a new folder.

    ConfigError for invalid settings, for settings that FLARE would change, and for a folder that is
    not empty: overwriting a job would make its run impossible to resume.
    """
    _, config = configured(plan.settings)
    for name, value in plan.settings.items():
        text = value if isinstance(value, str) else ""
        if any(mark in text for mark in FILLED) or text.startswith("@"):
            problem = f"FLARE would change the text of {name}"
            raise ConfigError("E312", problem=problem, do="leave out braces, $ and a first @.")
    if strange := [name for name in config.expected_names if not SITE_NAME.fullmatch(name)]:
        problem = f"FLARE has no site called {', '.join(map(repr, strange))}"
        do = "its names are 1 to 64 letters of ASCII, digits, - and _, with no - first; server "
        do += "is its own."
        raise ConfigError("E312", problem=problem, do=do)
    _check_least(plan.least, config)
    if folder.is_dir() and any(folder.iterdir()):
        do = "name a new one: a job that is there is needed to go on with its run (--resume)."
        raise ConfigError("E312", problem=f"the folder {folder.name} is not empty", do=do)
    documents = _documents(plan, config)
    maps = copies_of(Path(plan.maps), JOB_MAPS) if plan.maps else {}
    for name, content in maps.items():
        path = folder / Path(SERVER).with_name(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    # Written last: this file makes the folder a job (`read_job`).
    for name, document in sorted(documents.items(), key=lambda item: item[0] == META):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def maps_in(config_folder: Path) -> Path | None:
    """Return the public maps in the folder of a job's documents; None without any."""
    places = (config_folder / f"{JOB_MAPS}{end}" for end in (".nii.gz", ".nii"))
    return next(filter(Path.is_file, places), None)


def _check_least(least: int, config: Config) -> None:
    n_sites = config.expected_sites
    if not n_sites:
        do = "set n_sites or site_names."
        raise ConfigError("E312", problem="nobody says which sites must be connected", do=do)
    needed = config.survivors(n_sites)
    if least and not needed <= least <= n_sites:
        problem = (
            f"{least} of {n_sites} sites must be connected, and {needed} must answer to the end"
        )
        do = f"allowed {needed} to {n_sites}." if needed < n_sites else "leave out least."
        raise ConfigError("E312", problem=problem, do=do)


def _documents(plan: JobPlan, config: Config) -> dict[str, dict[str, Any]]:
    documents: dict[str, dict[str, Any]] = parse_json(_TEMPLATE.read_text(encoding="utf-8"))
    meta, server = documents[META], documents[SERVER]
    names, n_sites = config.expected_names, config.expected_sites
    meta["name"] = f"cape-{plan.run[:8]}"
    meta["min_clients"] = plan.least or n_sites
    if names:
        meta["deploy_map"]["app"] = ["server", *names]
    server["components"][0]["args"] = {
        "run": plan.run,
        # With this key FLARE does not build the mapping as a component, whatever its other keys.
        "settings": {"config_type": "dict", **plan.settings},
        "patience": plan.patience,
        "join_patience": plan.join_patience,
    }
    limits = server["workflows"][0]["args"]
    # Seconds that FLARE waits for all sites to begin, after which the job ends.
    limits["sync_task_timeout"] += 2 * n_sites
    limits["max_call_threads"] = max(limits["max_call_threads"], n_sites)
    return documents


def read_job(folder: Path) -> JobPlan:
    """Return the run of a job by `write_job`, to resume it; ConfigError E312."""
    try:
        meta = parse_json((folder / META).read_text(encoding="utf-8"))
        server = parse_json((folder / SERVER).read_text(encoding="utf-8"))
        given = dict(server["components"][0]["args"])
        given["settings"] = {k: v for k, v in given["settings"].items() if k != "config_type"}
        given["least"] = meta["min_clients"]
        given["maps"] = str(maps_in((folder / SERVER).parent) or "")
        plan: JobPlan = wire.decode_document(given, JobPlan, "job")
    except (OSError, ValueError, LookupError, TypeError, AttributeError, MessageError) as err:
        problem = "this folder holds no job of cape"
        do = "name a folder that cape flare job wrote."
        detail = own_words(err, "its files are not as they were written")
        raise ConfigError("E312", problem=problem, do=do, detail=detail) from err
    if not RUN_NAME.fullmatch(plan.run):
        raise ConfigError("E312", problem="its run has no name of ours", do="write a new job.")
    return plan
