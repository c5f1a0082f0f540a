"""A consortium in one folder: the owner's settings.toml and one folder for each site."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import tomllib
import typing
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cape.computations import load, names
from cape.data.discovery import readable
from cape.data.exclusions import MANIFEST_NAMES
from cape.data.issues import Findings
from cape.data.layout.reading import DATASET_MARKS, FolderReading, read_names
from cape.data.layout.words import KINDS, FileKind, is_series, of_kind, refused_ends, words
from cape.data.space import ATLAS_FILES
from cape.data.tables import RECORDS
from cape.data.whose import NO_DATA, RESULTS, names_below, words_beside
from cape.errors import CapeWarning, ConfigError, own_words
from cape.frozen import dataclass
from cape.planning.atlas_file import foreign_atlases
from cape.protocol.phases import Computation
from cape.settings.config import Config
from cape.settings.documents import parse_json
from cape.settings.option import coerce

# Default computations for images and for matrices.  On real brains temporal ICA separated no map
# in 18 of 18 runs (docs/separations.md); the columns of a matrix have no known place.
PROPOSED = ("capegica", "capedjica")
# Placeholders for a budget that is not chosen yet; no plan uses them
UNSET = {"epsilon": 1.0, "delta": 1e-5}


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerSettings:
    """The owner's settings, checked."""

    computation: Computation[Any]
    config: Config
    has_budget: bool  # epsilon and delta were given, or none are needed


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
    has_budget = not config.private or {"epsilon", "delta"} <= set(values)
    return OwnerSettings(computation=computation, config=config, has_budget=has_budget)


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
    ignored = [name for name in in_file if name not in (*common, *given)]
    if ignored:
        text = f"{chosen} ignores: {', '.join(ignored)} (settings.toml is for {named}; "
        text += "give what it needs with --set)"
        warnings.warn(text, CapeWarning, stacklevel=3)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Whole:
    """All files below a folder and the people they belong to; private to the site."""

    folder: Path
    names: Sequence[str]
    kind: FileKind
    reading: FolderReading

    def of(self, kind: FileKind) -> FolderReading:
        """Return the reading of the files of one kind."""
        layout = words_beside(self.folder).layout
        return self.reading if kind == self.kind else read_names(self.names, kind, layout=layout)


def read_whole(folder: Path) -> Whole:
    """Return the person of each file below a folder: of images, else surfaces, else matrices."""
    with readable(folder, Findings(folder.name)):
        names, layout = names_below(folder), words_beside(folder).layout
    readings = [read_names(names, KINDS[0], layout=layout)]
    for kind in KINDS[1:]:
        if not (readings[-1].images or readings[-1].left):
            readings.append(read_names(names, kind, layout=layout))
    at = (n for n, each in enumerate(readings) if each.images or each.left or each.commands)
    n = next(at, 0)
    return Whole(folder=folder, names=names, kind=KINDS[n], reading=readings[n])


def sites_below(whole: Whole) -> dict[str, Path]:
    """Return the folders of sites by id; {}: the folder belongs to one site.

    The reading tells folders of people from folders of sites.  If it cannot, marks of data sets or
    the owner's settings.toml beside the folders decide.
    """
    folder, reading = whole.folder, whole.reading
    if any("/" not in image.path for image in reading.images):
        return {}
    folders = _folders(whole)
    names = {path.name for path in folder.iterdir() if path.is_file() or path.is_symlink()}
    if not folders or names & {*MANIFEST_NAMES, *RECORDS}:
        return {}
    layout = words_beside(folder).layout
    if "--folders sites" in layout:
        return folders
    if layout:
        return {}
    marked = all(
        any((path / mark).is_file() for mark in (*DATASET_MARKS, *RECORDS))
        for path in folders.values()
    )
    # A site's folder holds the owner's atlas; in a person's folder an atlas is no evidence.
    of_people = any(image.subject in image.path.split("/")[0] for image in reading.images)
    marked |= not of_people and all(
        any((path / name).is_file() for name in ATLAS_FILES) or foreign_atlases(path)
        for path in folders.values()
    )
    if reading.level in ("proved", "inferred") and not reading.left:
        alone = not marked and not _apart(reading)
    else:
        alone = not marked and "settings.toml" not in names and bool(reading.images)
    return {} if alone else folders


def _apart(reading: FolderReading) -> bool:
    """Return whether every top folder with files is the site of its images."""
    apart = {
        image.path.split("/")[0]
        for image in reading.images
        if image.site.split(" ")[0] == image.path.split("/")[0]
    }
    images = [image.path for image in reading.images]
    return apart == {path.split("/")[0] for path in (*images, *reading.left)}


def _folders(whole: Whole) -> dict[str, Path]:
    """Return folders that may be a site's: not hidden, no code, logs or results."""
    below: dict[str, list[str]] = defaultdict(list)
    for name in whole.names:
        top, _, rest = name.partition("/")
        if rest and rest not in NO_DATA:
            below[top].append(rest)
    return {
        path.name: path.resolve()
        for path in sorted(whole.folder.iterdir())
        if not path.name.startswith((".", "_"))
        and path.is_dir()
        and _may_be_site(path, below[path.name])
    }


def _may_be_site(folder: Path, names: Sequence[str]) -> bool:
    if folder.name.lower() in words("no_site") or any((folder / name).exists() for name in RESULTS):
        return False
    # Keep an empty folder: the site's own check reports that it has no data.
    return (
        not names
        or any(of_kind(n, kind) or n.endswith(refused_ends()) for n in names for kind in KINDS)
        or any((folder / mark).exists() for mark in DATASET_MARKS)
    )


def site_folders(directory: Path) -> dict[str, Path]:
    """Return the folders of the sites by id, sorted; for one site the folder itself.

    ConfigError E016: the folder holds no data.
    """
    whole = read_whole(directory)
    if folders := sites_below(whole):
        return folders
    list_names = (*MANIFEST_NAMES, *RECORDS)
    reading = whole.reading
    # Equal labels in every folder may mean visits of one person or people of several sites; all
    # take them for sites.  A file of another name beside them does not change that.
    if (reading.level in ("choice", "unknown") or _apart(reading)) and (folders := _folders(whole)):
        return folders
    if reading.images or reading.left or any((directory / n).is_file() for n in list_names):
        return {directory.resolve().name: directory.resolve()}
    if any(is_series(name, "volume") for name in whole.names):
        problem = "the folder holds images, but neither a list nor their names say whose they are"
        do = f"type cape people {shlex.quote(str(directory))} to see how to list them."
        raise ConfigError("E016", problem=problem, do=do, detail=str(directory))
    do = "name the folder of one site, or one that holds a folder of each; "
    do += "data to try it with: cape synth FOLDER."
    raise ConfigError("E016", problem="the folder holds no data", do=do, detail=str(directory))


def check_names_no_person(text: str, readings: Iterable[FolderReading]) -> None:
    """Raise ConfigError E018 if settings, which all sites read, contain a person's label."""
    terms = set(re.findall(r"[A-Za-z0-9_-]+", text))
    for reading in readings:
        for _, subject in reading.people:
            bare = subject.rpartition(" ")[2]
            # Settings also contain numbers and short words.
            if f"sub-{bare}" in terms or (bare in terms and re.search(r"(?i)[a-z].*\d", bare)):
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
    folders = {*at_hand, *below}
    check_names_no_person(text, (read_whole(path).reading for path in folders if _is_data(path)))


def _is_data(folder: Path) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:  # the owner of the settings cannot read it either
        return False
    return any(name in DATASET_MARKS or name.startswith("sub-") for name in names)
