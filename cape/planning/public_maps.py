"""Names of public maps as the setting `networks` of a comparison has them."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cape.data import templates
from cape.errors import ConfigError, DataError
from cape.planning.consortium_folder import proposed
from cape.protocol.outcome import component_names
from cape.report.files import read_rows
from cape.report.maps import Component
from cape.settings.measures import UNITS
from cape.settings.question import (
    MAX_NETWORKS,
    MAX_OUTCOMES,
    count_networks,
    named_networks,
    parse_measure,
    quoted,
)
from cape.space.feature_space import FeatureSpace


def networks_of(maps: Path, n_maps: int) -> str:
    """Return the names of maps, with their domains in parentheses.

    They are those of the table beside the maps (`named_maps`) or beside an atlas, or as their run
    calls them.
    """
    pairs = _stated(maps, n_maps)
    file = templates.file_of_maps(maps)
    labels = templates.label_numbers(file) if file else ()
    if not pairs and labels:
        pairs = [(f"region {n}", "") for n in labels]
    _check_once(pairs, labels)
    return _in_words(pairs or [(name, "") for name in component_names(n_maps)])


def _check_once(pairs: Sequence[tuple[str, str]], labels: Sequence[int]) -> None:
    """ConfigError E012 if the table beside maps or labels calls two of them alike."""
    first: dict[str, int] = {}
    for k, (name, _) in enumerate(pairs):
        if (other := first.setdefault(name.casefold(), k)) != k:
            kind, at = ("labels", labels) if labels else ("rows", range(1, len(pairs) + 1))
            problem = f"{kind} {at[other]} and {at[k]} of the table beside the maps are both {name}"
            raise ConfigError("E012", problem=problem, do="give each its own name.")


def _stated(maps: Path, n_maps: int) -> Sequence[tuple[str, str]]:
    """Return name and domain of each map, by the table beside it or of its run; () without one."""
    file = templates.file_of_maps(maps)
    if file is None or (pairs := templates.named_beside(file, n_maps)):
        return pairs if file else ()
    table = file.with_name("components.tsv")
    rows = read_rows(table, Component) if table.is_file() else []
    named = [(" ".join(filter(None, (row.name, row.label))), "") for row in rows]
    return named if len(named) == n_maps else ()


def _in_words(pairs: Sequence[tuple[str, str]]) -> str:
    """Return names with their domains in parentheses; ConfigError E012: one cannot be written."""
    for name, domain in pairs:
        if set(domain) & set(",()\"`'"):
            problem = f"domain {domain} of {name} beside the maps has a comma, quote or parenthesis"
            raise ConfigError("E012", problem=problem, do="call it by another name.")
        if not domain and any(other for _, other in pairs):
            do = "fill it in for everyone, or leave the column out."
            raise ConfigError("E012", problem=f"{name} has no domain, others have", do=do)
    return ", ".join(quoted(name) + (domain and f" ({domain})") for name, domain in pairs)


def lines_of_maps(maps: Path, question: Mapping[str, str]) -> list[str]:
    """Return which labels the table beside an atlas lacks, and why connectivity is not proposed."""
    file = templates.file_of_maps(maps)
    regions = templates.regions_of_atlas(file) if file else {}
    lacking = [n for n in templates.label_numbers(file) if n not in regions] if file else []
    said = ", ".join(map(str, lacking))
    lines = (
        [f"the table beside {maps.name} has no row for label {said}"] if regions and said else []
    )
    return [*lines, *filter(None, [_why_no_pairs(maps, question)])]


def _why_no_pairs(maps: Path, question: Mapping[str, str]) -> str:
    n = count_networks(question["networks"])
    if question["outcomes"] in ("fnc", "domains") or n < 2:
        return ""
    pairs = f"connectivity is not asked: {n} maps have {n * (n - 1) // 2} pairs, allowed "
    stem = maps.name.removesuffix(".gz").removesuffix(".nii")
    return f"{pairs}{MAX_OUTCOMES}; with a column domain in {stem}.tsv its means are (domains)"


def proposed_question(maps: Path) -> dict[str, str]:
    """Return `networks` of a file of maps, and the first of pairs, domains, loadings that fit."""
    n_maps = templates.number_of_maps(maps)
    if not n_maps:
        problem = templates.no_labels(maps) or f"{maps.name} holds no maps"
        do = "name a 4-D image, an atlas of whole numbers, a table, or a run."
        raise ConfigError("E012", problem=problem, do=do)
    if n_maps > MAX_NETWORKS:
        problem = (
            f"{maps.name} holds {n_maps} maps or labels, a comparison has at most {MAX_NETWORKS}"
        )
        do = f"take an atlas of at most {MAX_NETWORKS} regions, or leave labels out of this one."
        raise ConfigError("E012", problem=problem, do=do)
    networks = networks_of(maps, n_maps)
    for outcomes in ("fnc", "domains"):
        with suppress(ConfigError):
            parse_measure(outcomes, networks)
            return {"networks": networks, "outcomes": outcomes}
    parse_measure("loadings", networks)
    return {"networks": networks, "outcomes": "loadings"}


def check_labels(maps: Path, space: FeatureSpace) -> None:
    """ConfigError if maps are an atlas with labels that no voxel of `space` has."""
    file = templates.file_of_maps(maps)
    if file is None or not templates.label_numbers(file):
        return
    try:
        templates.with_templates(space, file, site="maps", sent=False)
    except DataError as err:
        do = "then type the command again."
        raise ConfigError("E018", problem=err.detail, do=do) from err


# The setting that counts or names public maps, of each computation that regresses on them
_SETTINGS: Final = {"capecontrast": "networks", "capedualreg": "n_components"}


def asking_of_maps(in_file: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return `given` with the comparison of which a file has a table, where maps are named.

    ``cape init --maps`` proposes it beside the computation that finds networks.
    """
    is_said = "computation" in given or in_file.get("computation") in _SETTINGS
    if is_said or not isinstance(in_file.get("capecontrast"), Mapping):
        return dict(given)
    return {**given, "computation": "capecontrast"}


def of_maps(maps: Path, chosen: Mapping[str, object]) -> dict[str, object]:
    """Return the setting that counts or names public maps; ConfigError if there is none.

    A comparison of tables shows an atlas and names none of its regions.
    """
    computation = proposed(chosen)
    name = _SETTINGS.get(computation)
    if name is None:
        problem = f"{computation} regresses on no maps"
        do = "choose computation = capecontrast, or capedualreg."
        raise ConfigError("E012", problem=problem, do=do, setting="computation")
    n = templates.number_of_maps(maps)
    kind = str(chosen.get("outcomes", "")).strip()
    of_tables = name == "networks" and kind not in UNITS
    if not n and not of_tables and (problem := templates.no_labels(maps)):
        do = "name an atlas of whole numbers: resample labels to the nearest voxel."
        raise ConfigError("E012", problem=problem, do=do)
    if not n or of_tables:
        return {}
    if given := str(chosen.get(name, "")).strip():
        n_named = count_networks(given) if name == "networks" else n
        if n_named != n:
            problem = f"networks names {n_named} maps, as of an earlier choice; {maps.name} has {n}"
            do = "edit networks in settings.toml, or write it again: cape init FOLDER --maps MAPS."
            raise ConfigError("E012", problem=problem, do=do, setting=name)
        pairs = named_networks(given) if name == "networks" else ()
        if other := templates.named_otherwise(_stated(maps, n), pairs):
            problem = f"the table beside {maps.name} names other maps: {other}"
            do = "mend the table or networks, or write settings.toml again: cape init FOLDER "
            do += "--maps MAPS --replace."
            raise ConfigError("E012", problem=problem, do=do, setting=name)
        return {}
    return {name: networks_of(maps, n) if name == "networks" else n}
