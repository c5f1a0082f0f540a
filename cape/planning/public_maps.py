"""Names of public maps as the setting `networks` of a comparison has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cape.data.templates import (
    file_of_maps,
    label_numbers,
    maps_with_names,
    named_maps,
    number_of_maps,
)
from cape.errors import ConfigError
from cape.planning.consortium_folder import proposed
from cape.protocol.outcome import component_names
from cape.report.files import read_rows
from cape.report.maps import Component
from cape.settings.measures import UNITS
from cape.settings.question import parse_measure, quoted


def networks_of(maps: Path, n_maps: int) -> str:
    """Return the names of maps, with their domains in parentheses.

    They are those of the table beside the maps (`named_maps`) or beside an atlas, or as their run
    calls them.
    """
    file = file_of_maps(maps)
    if file and (labels := label_numbers(file)):
        _, names = maps_with_names(file)
        return ", ".join(quoted(names.get(label, f"region {label}")) for label in labels)
    if file and (pairs := named_maps(file, n_maps)):
        return ", ".join(quoted(name) + (domain and f" ({domain})") for name, domain in pairs)
    table = file and file.with_name("components.tsv")
    rows = read_rows(table, Component) if table and table.is_file() else []
    named = [" ".join(filter(None, (row.name, row.label))) for row in rows]
    return ", ".join(map(quoted, named if len(named) == n_maps else component_names(n_maps)))


def proposed_question(maps: Path) -> dict[str, str]:
    """Return `networks` of a file of maps, and as `outcomes` the pairs, or domains if too many."""
    n_maps = number_of_maps(maps)
    if not n_maps:
        problem, do = f"{maps.name} holds no maps", "name a 4-D image, an atlas, a table, or a run."
        raise ConfigError("E012", problem=problem, do=do)
    networks = networks_of(maps, n_maps)
    outcomes = "fnc"
    try:
        parse_measure(outcomes, networks)
    except ConfigError:
        outcomes = "domains"
    return {"networks": networks, "outcomes": outcomes}


def of_maps(maps: Path, chosen: Mapping[str, object]) -> dict[str, object]:
    """Return the setting that counts or names public maps; ConfigError if there is none.

    A comparison of tables shows an atlas and names none of its regions.
    """
    computation = proposed(chosen)
    name = {"capecontrast": "networks", "capedualreg": "n_components"}.get(computation)
    if name is None:
        problem = f"{computation} regresses on no maps"
        do = "choose computation = capecontrast, or capedualreg."
        raise ConfigError("E012", problem=problem, do=do, setting="computation")
    n = number_of_maps(maps)
    kind = str(chosen.get("outcomes", "")).strip()
    of_tables = name == "networks" and kind not in UNITS
    if name in chosen or not n or of_tables:
        return {}
    return {name: networks_of(maps, n) if name == "networks" else n}
