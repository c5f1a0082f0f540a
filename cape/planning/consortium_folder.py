"""A consortium in one folder: the owner's settings.toml and one folder for each site."""

import dataclasses
import os
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cape.computations import load, names
from cape.data.folders import PARTICIPANTS, labels_by_names, names_below, sites_below, space_for
from cape.data.issues import Findings
from cape.data.manifest import MANIFEST_NAMES
from cape.data.names import bare
from cape.data.people import read_people
from cape.errors import CapeError, CapeWarning, ConfigError, own_words, warn_caller
from cape.frozen import dataclass
from cape.protocol.phases import Computation
from cape.settings.config import Config
from cape.settings.documents import parse_json
from cape.settings.option import coerce
from cape.settings.own_words import POLICY_FILE

# Files that mark a folder as one of data
DATASET_MARKS: Final = ("dataset_description.json", PARTICIPANTS, POLICY_FILE, *MANIFEST_NAMES)
# What `cape init` writes of an atlas, not of a computation
_OF_DATA: Final = ("label_pairs",)
# Default computations for images and for matrices.  On real brains temporal ICA separated no map
# in 18 of 18 runs (docs/choosing.md); the columns of a matrix have no known place.
PROPOSED = ("capegica", "capedjica")
# Placeholders for a budget that is not chosen yet; no plan uses them
UNSET = {"epsilon": 1.0, "delta": 1e-5}


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerSettings:
    """The owner's settings, checked."""

    computation: Computation[Any]
    config: Config
    unset: tuple[str, ...] = ()  # of epsilon and delta, those that are needed and not given

    @property
    def has_budget(self) -> bool:
        return not self.unset


def proposed(settings: Mapping[str, object]) -> str:
    """Return the computation that settings name, else the default for their data.

    If settings fit only the other default, return that one.
    """
    if name := settings.get("computation"):
        return str(name)
    candidates = list(PROPOSED)
    # The default of the setting is images.
    if settings.get("feature_space") == "matrix":
        candidates.reverse()
    fitting = (name for name in candidates if has_settings(name, settings))
    return next(fitting, candidates[0])


def has_settings(computation: str, settings: Mapping[str, object]) -> bool:
    """Return whether a computation has all of these settings."""
    options = {option.name for option in dataclasses.fields(load(computation).config)}
    return set(settings) - {"computation"} <= options


def settings_beside(folder: Path) -> Path | None:
    """Return the settings.toml in a folder, else the one beside it, else None."""
    places = (folder / "settings.toml", folder.resolve().parent / "settings.toml")
    return next((place for place in places if place.is_file()), None)


def read_settings(path: Path | None, given: Mapping[str, object]) -> OwnerSettings:
    """Return the settings of a file, overridden by those of the command line; ConfigError."""
    values = merged(read_file(path), given)
    computation = load(proposed(values))
    values.pop("computation", None)
    # Data can be checked before the owner has decided on a budget.
    config = computation.config.from_input({**UNSET, **values})
    unset = tuple(name for name in UNSET if config.private and name not in values)
    return OwnerSettings(computation=computation, config=config, unset=unset)


def read_file(path: Path | None) -> dict[str, object]:
    """Return the settings of a settings.toml or of a finished run's settings.json; {} without one.

    ConfigError E014: the file cannot be read.
    """
    if path is None:
        return {}
    try:
        if path.suffix == ".json":
            beside = parse_json((path.parent / "results.json").read_text(encoding="utf-8"))
            document = parse_json(path.read_text(encoding="utf-8"))
            return {**document["settings"], "computation": beside["computation"]}
        return tomllib.loads(path.read_text(encoding="utf-8"))
    # tomllib has no limit on nesting.
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as err:
        detail = own_words(err, "not UTF-8, or nested too deeply")
        raise ConfigError("E014", detail=f"{path}: {detail}") from err


def merged(in_file: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return the settings of the file that fit the run, overridden by `given`.

    If `given` chooses another computation, a setting of the file stays if both inherit it from a
    shared class and the chosen one keeps its default and allows the value; a CapeWarning names the
    others.  A table of the file, such as [capecontrast], applies only to that computation.
    """
    tables = {name: value for name, value in in_file.items() if isinstance(value, Mapping)}
    in_file = {name: value for name, value in in_file.items() if name not in tables}
    unknown = {name: value for name, value in tables.items() if name not in names()}
    chosen = proposed({**in_file, **given})
    given = {**unknown, **tables.get(chosen, {}), **given}
    # A file that names no computation is for either default that has its settings.
    is_open = "computation" not in in_file and chosen in PROPOSED and has_settings(chosen, in_file)
    named = chosen if is_open else proposed(in_file)
    if chosen == named:
        return {**in_file, **given}
    ours, theirs = load(chosen).config, load(named).config
    shared = next(base for base in ours.__mro__ if issubclass(theirs, base))
    common = {
        name: value for name, value in in_file.items() if _meant_for(ours, shared, name, value)
    }
    ignored = [name for name in in_file if name not in (*common, *given, *_OF_DATA)]
    if ignored:
        text = f"{chosen} ignores: {', '.join(ignored)} (settings.toml is for {named}; "
        text += "give what it needs with --set)"
        warn_caller(text, CapeWarning)
    return {**common, **given}


def _meant_for(config: type[Config], shared: type[Config], name: str, value: object) -> bool:
    fields = {field.name: field for field in dataclasses.fields(config)}
    general = {field.name: field for field in dataclasses.fields(shared)}
    if name not in general:
        return False
    # A computation with its own default needs a value of its own.
    if fields[name].default != general[name].default:
        return value == fields[name].default
    try:
        coerce(fields[name], typing.get_type_hints(config)[name], value)
    except ConfigError:
        return False
    return True


def check_names_no_person(text: str, labels: Iterable[str]) -> None:
    """Raise ConfigError E018 if settings, which all sites read, contain a person's label."""
    terms = set(re.findall(r"[A-Za-z0-9_-]+", text))
    for label in labels:
        # Settings also contain numbers and short words.
        if f"sub-{label}" in terms or (label in terms and re.search(r"(?i)[a-z].*\d", label)):
            do = "rename the folder or column; no file was written."
            problem = "settings, which all sites read, would contain the label of a person here"
            raise ConfigError("E018", problem=problem, do=do)


def check_before_it_leaves(text: str, source: Path | None) -> None:
    """Raise ConfigError E018 if a file to be sent names a person of a folder at hand.

    It searches the working folder, that of `source` (settings or an earlier job), and the folders
    in them, if they are marked as data.
    """
    at_hand = {Path.cwd()} | ({source.resolve().parent} if source else set())
    below = (path for here in at_hand for path in here.iterdir() if path.is_dir())
    for folder in {*at_hand, *below}:
        if _is_data(folder):
            check_names_no_person(text, labels_of(folder))


def labels_of(folder: Path) -> set[str]:
    """Return all labels of people that a folder states, in normal form, sites below it included."""
    labels = labels_by_names(names_below(folder))
    for base in (sites_below(folder) or {"": folder}).values():
        with suppress(CapeError):  # `cape people` says what is wrong with it
            space = {"private": False, "feature_space": space_for(names_below(base))}
            people = read_people(base, Config.from_input(space), Findings("any")).people
            labels |= {bare(person.label) for person in people}
    return labels


def _is_data(folder: Path) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:  # the owner of the settings cannot read it either
        return False
    return any(name in DATASET_MARKS or name.startswith("sub-") for name in names)
