"""A party's own file in ``local/`` of its FLARE kit, which alone names its folders.

``cape-site.toml`` at a site; ``cape-aggregator.toml`` at the server, where it is optional.  In
FLARE's simulator all parties share one ``local/``, with ``cape-site-NAME.toml`` per site.  The job,
which the owner of the consortium writes, names no folder.
"""

import copy
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from cape.errors import ConfigError, MessageError, own_words
from cape.frozen import dataclass
from cape.protocol import wire
from cape.settings.documents import parse_json
from cape.site.places import HOME, SitePlaces

R = TypeVar("R", "SiteFile", "AggregatorFile")

# Classes that a site's operator allows jobs to build, by exact names.
SITE_CLASSES = ("cape.engines.flare.collab.Site", "nvflare.collab.runtime.executor.CollabExecutor")
PARTIES = {"client": "site", "server": "server"}  # FLARE's names, and ours
SERVER_CLASSES = (
    "cape.engines.flare.collab.Aggregator",
    "nvflare.collab.runtime.controller.CollabController",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteFile:
    """``cape-site.toml``; paths are absolute."""

    data: str  # folder of the site's images or tables
    runs: str  # a folder for journals and results, one below it for every run
    manifest: str = ""  # name of a manifest in `data`; empty = everything there
    # Optional paths (`SitePlaces`); empty = from the environment of the process, else none
    policy: str = ""  # site-policy.toml
    identity: str = ""  # folder of identity_key and roster.json (key_trust=pinned)
    maps: str = ""  # file of public maps, in place of the one in `data`
    home: str = ""  # folder for files that outlive runs, such as the ledger; else in `runs`

    def __post_init__(self) -> None:
        _check_paths(self, ("data", "runs", "policy", "identity", "maps", "home"))
        data, runs = Path(self.data), Path(self.runs)
        # Results in the data folder would be read as data by the next run.
        if not data.is_dir() or data == runs or data in runs.parents:
            raise ConfigError("E310", problem="data is no folder, or runs lies in it")
        if "/" in self.manifest or self.manifest in (".", ".."):
            raise ConfigError("E310", problem="manifest is a name in the folder of the data")

    def places(self, operator: SitePlaces) -> SitePlaces:
        """Return the paths of this file, with those of the operator's process as defaults."""
        # An output folder belongs to one run; files that outlive runs are beside them.
        home = operator.home or Path(self.runs) / HOME
        return replace(
            operator,
            policy=Path(self.policy) if self.policy else operator.policy,
            identity=Path(self.identity) if self.identity else operator.identity,
            maps=Path(self.maps) if self.maps else operator.maps,
            home=Path(self.home) if self.home else home,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class AggregatorFile:
    """``cape-aggregator.toml``; without it, runs are in ``cape-runs`` of the server's kit."""

    runs: str

    def __post_init__(self) -> None:
        _check_paths(self, ("runs",))


def _check_paths(record: SiteFile | AggregatorFile, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(record, name)
        if value and not Path(value).is_absolute():
            raise ConfigError("E310", problem=f"{name} is no absolute path")


def read_site_file(local: Path, site: str) -> SiteFile:
    """Return the site's own file; ConfigError E311, whose text does not show its content."""
    named = local / f"cape-site-{site}.toml"
    path = named if named.is_file() else local / "cape-site.toml"
    return _read(path, SiteFile, "E311", site=site)


def read_aggregator_file(local: Path, root: Path) -> AggregatorFile:
    path = local / "cape-aggregator.toml"
    if not path.is_file():
        return AggregatorFile(runs=str(root.resolve() / "cape-runs"))
    return _read(path, AggregatorFile, "E310", problem="its own file cannot be used")


def _read(path: Path, kind: type[R], code: str, **fields: str) -> R:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        return wire.decode_document(document, kind, path.name)
    except MessageError as err:
        problem = err.fields["problem"]
    except OSError:
        problem = f"{path.name} is missing or cannot be read"
    except (ValueError, RecursionError):
        problem = f"{path.name} is no TOML"
    raise ConfigError(code, detail=f"{path}: {problem}", **fields)


def settings_of_flare(kit: Path, party: Literal["client", "server"]) -> dict[str, Any]:
    """Return ``resources.json`` of a party's kit, or FLARE's default; ConfigError E312."""
    of_party = f"startup/fed_{party}.json"
    if not (kit / of_party).is_file():
        problem = f"{kit.resolve().name} is no kit of a {PARTIES[party]}: {of_party} is missing"
        do = "name the folder that FLARE's provisioning made for this party."
        raise ConfigError("E312", problem=problem, do=do)
    local = kit / "local"
    path = local / "resources.json"
    path = path if path.is_file() else local / "resources.json.default"
    try:
        found = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else {}
        list(found.get("class_allow_list", ()))
        return dict(found)
    except (OSError, ValueError, TypeError, AttributeError) as err:
        problem = f"{path.name} of the kit is no JSON of FLARE"
        do = "name a kit that FLARE made."
        detail = own_words(err, "no JSON object, or no list in it")
        raise ConfigError("E312", problem=problem, do=do, detail=detail) from err


def allowing(
    found: Mapping[str, Any], classes: Sequence[str], *, stores: Path | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Return FLARE's settings as our kits need them, and a list of the changes for people.

    Jobs may build only `classes` and the classes that the settings already list; logs stay at the
    party; jobs and snapshots of a server are in `stores`, not in a world-readable folder.
    """
    wanted: dict[str, Any] = copy.deepcopy({"format_version": 2, **found})
    listed = wanted.setdefault("class_allow_list", [])
    missing = [name for name in classes if name not in listed]
    listed += missing
    lines = [f'class_allow_list: + "{name}"' for name in missing]
    places = [
        (wanted, "class_list_enforcement_mode", "enforce"),
        (wanted, "allow_log_streaming", False),
    ]
    if stores is not None and "snapshot_persistor" in wanted:
        snapshots = wanted["snapshot_persistor"]["args"]["storage"]["args"]
        places.append((snapshots, "root_dir", str(stores / "snapshots")))
        managers = [c["args"] for c in wanted["components"] if c["id"] == "job_manager"]
        places += [(arguments, "uri_root", str(stores / "jobs")) for arguments in managers]
    for holder, key, value in places:
        if holder.get(key) != value:
            holder[key] = value
            lines.append(f"{key}: {json.dumps(value)}")
    return wanted, lines


def write_resources(local: Path, wanted: Mapping[str, Any]) -> None:
    text = json.dumps(wanted, indent=1) + "\n"
    (local / "resources.json").write_text(text, encoding="utf-8")
