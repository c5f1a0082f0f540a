"""A simulated run that was stopped goes on: what its working folder keeps until it has ended.

A state is written after each exchange.  The exchange that was stopped is played again from it, with
the secrets that the sites drew: the same noise, the same bytes, and no second charge, as when an
engine asks a site again.  The secrets of all parties lie in the state, mode 0600, until the run
ends, so whoever could read it before has the data of all sites as well.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cape.engines.coinstac.documents import Document
from cape.engines.coinstac.site import files_below
from cape.errors import CapeError, ConfigError
from cape.protocol import wire
from cape.settings.config import VERSION
from cape.settings.documents import parse_json
from cape.simulation.run_loop import RunSetup
from cape.site.files import write_atomically
from cape.site.places import BEGUN, STATE
from cape.site.policy import NO_LEDGER

# Differences that a refusal names
_MOST_NAMED = 4


def note_begin(work: Path, setup: RunSetup, sites: Mapping[str, Path]) -> None:
    write_atomically(work / BEGUN, wire.dumps(_begun(setup, sites)))


def write_state(work: Path, state: Document) -> None:
    write_atomically(work / STATE, wire.dumps(state))


def goes_on(work: Path) -> bool:
    """Whether a run that was stopped lies in its working folder."""
    return (work / BEGUN).is_file() and (work / STATE).is_file()


def seed_of_stopped(work: Path) -> int | None:
    """Return the seed of the run that was stopped here; None without one that can be read."""
    if not goes_on(work):
        return None
    try:
        begun: Any = parse_json((work / BEGUN).read_bytes())
        seed: int = begun["policy"]["simulation_seed"]
    except (OSError, ValueError, CapeError, LookupError, TypeError):
        return None  # `read_state` says that it is damaged
    return seed if seed >= 0 else None


def read_state(work: Path, setup: RunSetup, sites: Mapping[str, Path]) -> Document | None:
    """Return the state of the stopped run, None without one.

    ConfigError E016, with what differs, for a run of another version, setup or other files: its
    round would be answered twice at one charge.
    """
    if not goes_on(work):
        return None
    try:
        earlier: Any = parse_json((work / BEGUN).read_bytes())
        state: Document = wire.loads((work / STATE).read_bytes(), wire.MAX_DOCUMENT)
    except (OSError, ValueError, CapeError):
        earlier, state = "damaged", {}
    now = parse_json(wire.dumps(_begun(setup, sites)))
    if differing := list(_differing(earlier, now, "" if state else "what is kept of it")):
        more = f" and {len(differing) - _MOST_NAMED} more" * (len(differing) > _MOST_NAMED)
        problem = f"{work.parent} holds a run that was stopped, and this one differs in "
        problem += f"{', '.join(differing[:_MOST_NAMED])}{more}"
        do = "put that back to go on, choose another --out, or begin anew with cape simulate "
        do += "--replace: what was charged stays charged."
        raise ConfigError("E016", problem=problem, do=do)
    return state


def _begun(setup: RunSetup, sites: Mapping[str, Path]) -> Document:
    # A lab may keep its ledger, which a run writes, among its data; hidden files are no data.
    ledger = setup.policy.ledger_file or NO_LEDGER
    files: dict[str, dict[str, Any]] = {
        site: {
            name: facts
            for name, *facts in files_below(folder)
            if not (name.startswith(".") or "/." in name or f"{folder / name}".startswith(ledger))
        }
        for site, folder in sites.items()
    }
    if setup.maps:
        files["--maps"] = {setup.maps: hashlib.sha256(Path(setup.maps).read_bytes()).hexdigest()}
    return {"version": VERSION, **wire.encode(setup, RunSetup), "files of": files}


def _differing(earlier: Any, now: Any, name: str = "") -> Iterator[str]:
    """Yield the names of the values that differ, with both if they are short."""
    if isinstance(earlier, dict) and isinstance(now, dict):
        for key in sorted({*earlier, *now}):
            yield from _differing(earlier.get(key), now.get(key), f"{name} {key}".strip())
    elif earlier != now:
        both = f"was {earlier}, is {now}"
        yield name if name.startswith("files of") or len(both) > 60 else f"{name} ({both})"
