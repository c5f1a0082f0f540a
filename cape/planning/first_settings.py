"""Write a settings.toml for the data of a folder, from its people and from headers only.

What the files leave open is asked: the options are printed as commands, and no file is written.
The folder holds one site or several.  Counts are printed here; the file goes to all sites, so it
holds names of spaces, tasks and columns, and only two counts: sites and people.
"""

import json
import shlex
import tomllib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import Final

from cape.counting import number_of
from cape.data.bids import RUN_MAKERS, read_name
from cape.data.cifti import SPHERE_FILES, read_series, structure_file
from cape.data.file_type import CIFTI_SUFFIX
from cape.data.folders import names_below, of_kind, sites_below, words_beside
from cape.data.images import read_image
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.data.label_table import copies_of, read_label_table
from cape.data.matrices import Orientation, read_matrix
from cape.data.names import bare, natural_key
from cape.data.people import ListRefusal, PeopleList, people_of_tables, read_people
from cape.data.person_tables import TABLE_ENDS, tables_of
from cape.data.reading import read_run
from cape.data.runs import Series, SiteRun
from cape.data.space import (
    ATLAS_FILES,
    LABEL_TABLES,
    MASK_FILES,
    STRUCTURE_FILES,
    grid_of,
    mask_space,
    space_of,
)
from cape.data.tables import RECORDS
from cape.errors import CapeError, ConfigError, ConsortiumError
from cape.frozen import dataclass
from cape.planning.consortium_folder import check_names_no_person, merged
from cape.planning.first_question import columns_of, first_question, why_left
from cape.planning.judge import judge
from cape.planning.label_pairs import compare_places, pair_names
from cape.planning.public_maps import check_labels, lines_of_maps, proposed_question
from cape.planning.run_headers import (
    BUNDLED,
    MOST_COMPONENTS,
    bundled_mask,
    fewest,
    headers_of,
    of_confounds,
    of_time,
    range_of,
    resample_to,
    runs_of,
    told,
)
from cape.settings.config import Config
from cape.settings.documents import toml_value
from cape.settings.resolved import resolve
from cape.space.feature_space import MNI152, FeatureSpace

_TEMPLATE: Final = Path(__file__).with_suffix(".toml.j2")
PEOPLE_PER_COMPONENT: Final = 3
# The budget that the file gives as an example, with which its settings are judged
EXAMPLE: Final[Mapping[str, float]] = {"epsilon": 3.0, "delta": 1e-5}
# Entities of bids_filter that are written first; a single resolution is not named, because images
# are resampled to the mask's grid.
ORDER: Final = ("task", "space", "den", "seg", "echo", "res", "desc")
ORIENTATIONS: Final[Mapping[Orientation, str]] = {
    "time_by_feature": "a row is one time point",
    "feature_by_time": "a row is the series of one region",
}
# Options printed of one choice
MAX_OPTIONS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class InitOptions:
    """A command `cape init` as it was typed."""

    folder: Path
    bids_filter: str = ""
    bids_exclude: str = ""
    orientation: Orientation | None = None
    maps: Path | None = None

    def __str__(self) -> str:
        options = {
            "filter": self.bids_filter,
            "exclude": self.bids_exclude,
            "orientation": self.orientation,
            "maps": self.maps and str(self.maps),
        }
        words = [word for name, text in options.items() if text for word in (f"--{name}", text)]
        return shlex.join(["cape", "init", str(self.folder), *words])


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """The settings proposed for a folder, and the counts behind them."""

    text: str  # settings.toml
    counts: tuple[str, ...]  # lines about counts and choices
    files: Mapping[Path, bytes]  # sent beside the settings: the structure of CIFTI files


@dataclass(frozen=True, kw_only=True, slots=True)
class _Study:
    """The people of all sites, read as series of one kind."""

    asked: InitOptions
    config: Config
    lists: dict[str, PeopleList] = field(default_factory=dict)
    refusals: dict[str, ListRefusal] = field(default_factory=dict)  # by site
    lines: list[str] = field(default_factory=list)  # what is printed
    files: dict[Path, bytes] = field(default_factory=dict)

    @property
    def of_atlas(self) -> bool:
        return self.config.feature_space == "atlas"

    @property
    def regions(self) -> FeatureSpace:
        """The label image that every site has in its folder."""
        return mask_space(self.config, next(iter(self.lists.values())).folder)

    @property
    def paths(self) -> list[Path]:
        return [run.path for people in self.lists.values() for run in runs_of(people)]

    @property
    def named(self) -> list[tuple[str, str, Mapping[str, str]]]:
        """Return site, person and entities of the runs that names of BIDS state."""
        return [
            (site, run.person, stated.entities)
            for site, people in self.lists.items()
            if people.source == "BIDS"
            for run in runs_of(people)
            if (stated := read_name(run.name))
        ]

    def read(self, site: str, base: Path) -> None:
        """Add the people of a site."""
        findings = Findings(site, strict=True)
        self.lists[site] = people = read_people(base, self.config, findings)
        listed = findings.listing()
        if refusal := people.refusal(listed):
            self.refusals[site] = refusal
        self.lines.extend(finding.private for finding in listed if finding.severity != "E")


def propose(asked: InitOptions) -> Proposal:
    """Return settings for the data of one site or of several.

    ConfigError E018: there are no data, nobody states the people, or a choice is open; that of a
    run with these settings, which no command proposes.
    """
    import jinja2

    study = _of_one_version(_read(asked))
    for site, people in study.lists.items():
        study.lines.extend((f"{site}: {number_of(len(people.listed), 'person')}", *people.said))
    asks = _of_people(study)
    compared = asked.maps and proposed_question(asked.maps)
    if asked.maps and compared:
        study.lines.extend(lines_of_maps(asked.maps, compared))
    if not study.paths and not any(people.source in RECORDS for people in study.lists.values()):
        values: dict[str, object] = {"kind": "compared"}
    elif any(people.source in RECORDS for people in study.lists.values()):
        values = _of_records(study)
    elif any(of_kind(path.name, "matrix") for path in study.paths):
        values = _of_tables(study)
    else:
        values = _of_images(study)
    if asked.maps and values["kind"] == "volumes":
        check_labels(asked.maps, _space(study, values))
    total = sum(len(people.listed) for people in study.lists.values())
    # Plain text without escapes; a missing value is an error.
    template = jinja2.Template(
        _TEMPLATE.read_text(encoding="utf-8"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    text = template.render(
        people=number_of(total, "person"),
        sites=list(study.lists),
        site_names=toml_value(",".join(study.lists)),
        n_components=max(2, min(MOST_COMPONENTS, total // PEOPLE_PER_COMPONENT)),
        config=study.config,
        example=EXAMPLE,
        asks=asks,
        compared=compared,
        **values,
    )
    everyone = (person for people in study.lists.values() for person in people.people)
    check_names_no_person(text, {bare(person.label) for person in everyone})
    # A comparison whose question is yet to be stated cannot be judged.
    if asks["whole"] if values["kind"] == "compared" else not compared:
        study.lines.extend(_judged(text, len(study.lists), total))
    return Proposal(text=text, counts=tuple(study.lines), files=study.files)


def _space(study: _Study, values: Mapping[str, object]) -> FeatureSpace:
    """Return the parcels or the mask that settings of volumes name."""
    if study.of_atlas:
        return study.regions
    config = Config.from_input({"private": False, "mask": values["mask"]})
    return mask_space(config, next(iter(study.lists.values())).folder)


def _judged(text: str, n_sites: int, n_people: int) -> list[str]:
    """Return why a run of these people alone would be refused.

    ConfigError: whatever the budget, and whoever else comes.
    """
    settings = merged(tomllib.loads(text), EXAMPLE)
    with suppress(ConsortiumError):  # too few people
        judge({**settings, "private": False}, n_sites=n_sites, n_subjects=n_people)
    try:
        refusal = judge(settings, n_sites=n_sites, n_subjects=n_people).refusal
    except CapeError as err:
        refusal = err.public
    budget = ", ".join(f"{name} {value:g}" for name, value in EXAMPLE.items())
    who = "alone" if n_sites == 1 else f"of {n_sites} sites"
    return [f"{number_of(n_people, 'person')} {who}, with {budget}: {refusal}"] if refusal else []


# -- whose files, of which kind and version ------------------------------------------------------


def _read(asked: InitOptions) -> _Study:
    """Return the people of all sites: of volumes, else of surfaces, else of tables."""
    sites = sites_below(asked.folder) or {asked.folder.resolve().name: asked.folder}
    names = [name for base in sites.values() for name in _series_below(base)]
    shared = (n for n in ATLAS_FILES if all((base / n).is_file() for base in sites.values()))
    atlas = next(shared, "")
    studies: list[_Study] = []
    for space in _spaces(names, with_atlas=bool(atlas), tables=asked.orientation is not None):
        values: dict[str, object] = {"private": False, "feature_space": space}
        values |= {"bids_filter": asked.bids_filter, "bids_exclude": asked.bids_exclude}
        values |= {"atlas": atlas} if space == "atlas" else {}
        studies.append(_Study(asked=asked, config=Config.from_input(values)))
        for site, base in sites.items():
            studies[-1].read(site, base)
        if studies[-1].paths:
            return studies[-1]
    # Whose other series are is refused below; a note, or a table that nobody named, is told.
    if all(name.lower().endswith((*TABLE_ENDS, ".txt")) for name in names):
        if compared := _compared(asked, sites):
            return compared
    if not studies:
        do = "name the folder of one site (for fMRIPrep: the one with sub-*), or one that holds "
        do += "such folders or links to them; data to try it with: cape synth FOLDER."
        problem = "the folder holds no image, matrix or table"
        raise ConfigError("E018", problem=problem, do=do, detail=str(asked.folder))
    return studies[0]


def _series_below(base: Path) -> list[str]:
    """Return the names of files that may be series: without tables of people."""
    try:
        tables = tables_of(base, words_beside(base))
    except UnusableFile:  # told where they are read
        tables = ()
    return [name for name in names_below(base) if name not in tables]


def _compared(asked: InitOptions, sites: Mapping[str, Path]) -> _Study | None:
    """Return the people whom tables state, where there are no series; None without tables."""
    study = _Study(asked=asked, config=Config.from_input({"private": False}))
    for site, base in sites.items():
        findings = Findings(site, strict=True)
        people = people_of_tables(base, words_beside(base), findings)
        study.lists[site] = people
        if refusal := people.refusal(findings.listing()):
            study.refusals[site] = refusal
        for name in _series_below(base):
            if name.lower().endswith(TABLE_ENDS):
                line = f"tables = {toml_value([name])}"
                where = "if its rows are people, write into site-policy.toml"
                study.lines.append(f"{site}: {name} is not read; {where} {line}")
    return study if any(people.people for people in study.lists.values()) else None


def _spaces(names: Sequence[str], *, with_atlas: bool, tables: bool) -> list[str]:
    """Return the kinds of series that endings promise, as values of feature_space."""
    volumes, matrices = (any(of_kind(n, kind) for n in names) for kind in ("volume", "matrix"))
    spaces = ["atlas" if with_atlas else "mask"] if volumes else []
    spaces += [space for space, end in CIFTI_SUFFIX.items() if any(n.endswith(end) for n in names)]
    # Where volumes are there, too, the atlas is theirs.
    spaces += ["atlas" if with_atlas and not spaces else "matrix"] if matrices else []
    return spaces[-1:] if tables and matrices else spaces


def _of_one_version(study: _Study) -> _Study:
    """Return the study with a filter that names its one version.

    ConfigError E018: nobody states the people, or versions or tasks are to be chosen.
    """
    versions = f"CAPE-E{100 + IssueCode.RUN_VERSIONS.number}"
    refused = {site: each for site, each in study.refusals.items() if each.code != versions}
    for site, refusal in refused.items():
        problem = f"site {site}: {refusal.text.removesuffix('.')}"
        ways = "".join(f"\n  {way}" for each in refused.values() for way in each.ways)
        do = f"type one of{ways}" if ways else "then type the command again."
        if len(refused) > 1:
            problem += f"; refused as well: {', '.join(list(refused)[1:])}"
            do = f"for each site {do}" if ways else do
        raise ConfigError("E018", problem=problem, do=do)
    named = study.named
    keys = dict.fromkeys((*ORDER, *(key for *_, entities in named for key in entities)))
    choosing = [key for key in keys if key == "task" or key not in RUN_MAKERS]
    open_keys = [key for key in choosing if len({e.get(key) for *_, e in named}) > 1]
    asked = study.asked
    if study.refusals or (open_keys and not (asked.bids_filter or asked.bids_exclude)):
        raise _which(study, open_keys)
    if not named or asked.bids_filter or study.config.feature_space == "matrix":
        return study
    found = _filter_text(named[0][2], open_keys)
    return replace(study, config=replace(study.config, bids_filter=found))


def _filter_text(entities: Mapping[str, str], open_keys: Sequence[str]) -> str:
    keys = [key for key in ORDER if key != "res" or key in open_keys]
    keys += [key for key in open_keys if key not in keys]
    return "_".join(f"{key}-{entities[key]}" for key in keys if entities.get(key))


def _which(study: _Study, open_keys: Sequence[str]) -> ConfigError:
    """Return the question which images are meant, with its answers as commands."""
    named = study.named

    def every(key: str) -> str:
        return "+".join(sorted({e[key] for *_, e in named if key in e}, key=natural_key))

    def answer(entities: Mapping[str, str]) -> InitOptions:
        exclude = [f"{key}-{every(key)}" for key in open_keys if key not in entities]
        chosen = _filter_text(entities, open_keys)
        return replace(study.asked, bids_filter=chosen, bids_exclude=",".join(exclude))

    people: dict[InitOptions, set[tuple[str, str]]] = defaultdict(set)
    for site, person, entities in named if open_keys else ():
        people[answer(entities)].add((site, person))
    # An answer that some site has no image for would be refused, unless every answer would.
    everywhere = {site for site, *_ in named}
    of_all = {a: whose for a, whose in people.items() if {site for site, _ in whose} == everywhere}
    options = [
        f"{command}  ({number_of(len(whose), 'person')}: "
        f"{', '.join(sorted({site for site, _ in whose}))})"
        for command, whose in sorted(
            (of_all or people).items(), key=lambda pair: (-len(pair[1]), str(pair[0]))
        )
    ]
    if open_keys[:1] == ["task"]:
        joined = answer({**named[0][2], "task": every("task")})
        options.append(f"{joined}  (all tasks, joined)")
    if not open_keys:  # runs that repeat others of the same person
        typed = study.asked.bids_filter
        filters = dict.fromkeys(text for each in study.lists.values() for text in each.filters)
        whole = (f if f.startswith(typed) else f"{typed}_{f}" for f in filters)
        options = [str(replace(study.asked, bids_filter=text)) for text in whole]
    problem = f"{len(named)} files differ in {', '.join(f'{key}-' for key in open_keys)}"
    if not open_keys:
        problem = "; ".join(refusal.text for refusal in study.refusals.values())
    do = "\n  ".join(("which ones are meant? Type one of", *options[:MAX_OPTIONS]))
    return ConfigError("E018", problem=problem, do=do)


# -- volumes and CIFTI ---------------------------------------------------------------------------


def _of_images(study: _Study) -> dict[str, object]:
    """Return values for volumes or CIFTI files."""
    paths, lines = study.paths, study.lines
    lines.append(f"chosen: {study.config.bids_filter or 'all'}, {number_of(len(paths), 'image')}")
    read = partial(read_image, grid=None, headers_only=True)
    if study.config.of_cifti:
        place, read = _surfaces(study), partial(read_series, space=None, headers_only=True)
    else:
        place = _regions(study, paths) if study.of_atlas else _mask(study, paths)
    lengths: dict[Path, int] = {}

    def measured(run: SiteRun) -> Series:
        series = read(run)
        lengths[run.path] = series.n_times
        return series

    headers = [one for each in headers_of(study.lists, measured, lines).values() for one in each]
    return {
        **place,
        **of_time(study.lists, headers, lengths, lines),
        **of_confounds(study.lists, lengths, lines),
    }


def _mask(study: _Study, paths: Sequence[Path]) -> dict[str, object]:
    """Return the mask of images: by the space that they state, by their one grid, or a file."""
    spaces = Counter(told(path, partial(space_of, path.name), "") for path in paths)
    stated = [space for space in spaces if space.startswith(MNI152)]
    mm = bundled_mask(paths)
    name = f"MNI152-{mm}mm"
    place = {"kind": "volumes", "space": "", "resample": "", "why": ""}
    if len(spaces) == len(stated) == 1:
        why = "the default" if mm == BUNDLED[0] else "images are that coarse"
        study.lines.append(f"mask: {name} ({why}), maps in {stated[0]}")
        return {**place, "mask": name, "space": stated[0], "why": why}
    template = mask_space(Config.from_input({"private": False, "mask": name}))
    resample = None if any(spaces) else resample_to(paths, grid_of(template))
    if resample is not None:
        study.lines.append(f"mask: {name} (no image names a space; one grid holds it)")
        return {**place, "mask": name, "resample": resample}
    bases = [people.folder for people in study.lists.values()]
    if all(any((base / file).is_file() for file in MASK_FILES) for base in bases):
        study.lines.append("mask: the file in every folder (no one MNI152 space is stated)")
        return {**place, "mask": "file"}
    there = ", ".join(f"{space or 'none'} {n}" for space, n in spaces.items())
    problem = f"no one MNI152 space is stated by all images (spaces: {there})"
    do = "if they are normalised to one, say so in their names (space-MNI152NLin6Asym) or headers "
    do += "(sform code 4); else put the mask of their space into every folder, as mask.nii.gz."
    raise ConfigError("E018", problem=problem, do=do)


def _surfaces(study: _Study) -> dict[str, object]:
    """Return values of CIFTI files, whose structure goes into every folder without it."""

    def lacking(files: Collection[str]) -> list[Path]:
        bases = (people.folder for people in study.lists.values())
        return [b for b in bases if not any((b / name).is_file() for name in files)]

    structure, name = structure_file(study.paths)
    study.files.update({base / name: structure for base in lacking(STRUCTURE_FILES) if structure})
    spheres = [names[0] for names in SPHERE_FILES.values() if lacking(names)]
    if spheres:
        study.lines.append(f"not there yet: {' and '.join(spheres)} (docs/howto-inputs.md)")
    return {"kind": "cifti", "structure": name}


# -- parcels, tables of series, tables of people -------------------------------------------------


def _regions(study: _Study, images: Sequence[Path]) -> dict[str, object]:
    """Return values for an atlas; images without a stated space are resampled to its grid."""
    space, base = study.regions, next(iter(study.lists.values())).folder
    table = next((p for n in LABEL_TABLES if (p := base / n).is_file()), None)
    names = {} if table is None else read_label_table(table)
    pairs = compare_places(pair_names(names), space).setting() if names else ""
    stated = space.template_space
    study.lines.append(
        f"atlas {study.config.atlas} of {space.n_features} parcels, space {stated or 'not said'}, "
        + (f"names in {table.name}" if table else "no names (atlas.tsv: index, name)")
    )
    if images:
        places = " ".join(
            shlex.quote(str(people.folder / study.config.atlas)) for people in study.lists.values()
        )
        study.lines.append(f"of voxels without it: delete {places} and type this again")
    spaces = [told(path, partial(space_of, path.name), "") for path in images]
    resample = "" if stated and all(spaces) else resample_to(images, grid_of(space))
    return {"kind": "volumes", "resample": resample or "", "label_pairs": pairs}


def _of_tables(study: _Study) -> dict[str, object]:
    asked, lines = study.asked, study.lines
    if asked.orientation is None:
        raise _which_axis(study)
    config = replace(study.config, orientation=asked.orientation)
    how, space = resolve(config).reading, study.regions if study.of_atlas else None
    times: dict[Path, int] = {}

    def measured(run: SiteRun) -> Series:
        series = read_run(run, how, space, headers_only=True)
        times[run.path] = series.n_times
        return series

    headers = headers_of(study.lists, measured, lines)
    every = [series for each in headers.values() for series in each]
    lengths, widths = [s.n_times for s in every], Counter(len(s.values) for s in every)
    names = Counter(series.columns for series in every if series.columns)
    columns = names.most_common(1)[0][0] if names else ()
    seen = f"{range_of(lengths)} time points, {range_of(widths)} regions"
    lines.append(f"tables of series: {len(every)}, {seen}")
    for site, each in headers.items():
        others = [s.columns for s in each if s.columns and s.columns != columns]
        if others:
            same = sorted(others[0]) == sorted(columns)
            what = "the same names in another order" if same else "other names"
            lines.append(f"{site}: {len(others)} of {len(each)} tables have another header: {what}")
    return {
        **(_regions(study, []) if study.of_atlas else {}),
        "kind": "parcels" if study.of_atlas else "matrices",
        "orientation": asked.orientation,
        "n_features": len(columns) or widths.most_common(1)[0][0],
        "columns": _as_setting(columns),
        "min_timepoints": fewest(study.lists, times, lines),
    }


def _which_axis(study: _Study) -> ConfigError:
    headers = headers_of(
        study.lists, lambda run: read_matrix(run, "time_by_feature", headers_only=True), []
    )
    shapes = [series.values.shape for each in headers.values() for series in each]
    rows, columns = range_of([n for _, n in shapes]), range_of([n for n, _ in shapes])
    problem = f"{len(shapes)} tables have {rows} rows and {columns} columns: which axis is time?"
    ways = [
        f"{replace(study.asked, orientation=orientation)}  ({meaning})"
        for orientation, meaning in ORIENTATIONS.items()
    ]
    return ConfigError("E018", problem=problem, do="\n  ".join(("type one of", *ways)))


def _as_setting(names: tuple[str, ...]) -> str:
    if len(set(names)) < len(names) or any("," in name or not name for name in names):
        return ""
    return json.dumps(",".join(names), ensure_ascii=False) if names else ""


def _of_records(study: _Study) -> dict[str, object]:
    widths = {len(people.columns) for people in study.lists.values()}
    study.lines.append(f"tables of one row per person: columns {range_of(widths)}")
    return {"kind": "records", "n_directions": max(1, min(3, min(widths)))}


# -- columns of people ---------------------------------------------------------------------------


def _of_people(study: _Study) -> dict[str, object]:
    """Return the settings of a comparison that the tables of people allow; all columns are told."""
    columns, unread = columns_of(study.lists)
    study.lines.extend((*unread, *(column.text for column in columns)))
    study.lines.extend(filter(None, map(why_left, columns)))
    return first_question(columns)


# -- an atlas of any name --------------------------------------------------------------------------


@contextmanager
def adopting(folder: Path, image: Path | None) -> Iterator[list[Path]]:
    """Copy an atlas and its table to every site below a folder; an error removes new copies.

    Settings may name only atlas* files; otherwise an owner could name a person's image, whose
    digest leaves without noise.  So a person at the site chooses the file.
    ConfigError E016: not an image, or another file has that name.
    """
    content = {} if image is None else copies_of(image, "atlas")
    bases = (sites_below(folder) or {"": folder}).values()
    copies = {base / name: data for base in bases for name, data in content.items()}
    new = [path for path in copies if not path.exists()]
    for path in copies.keys() - new:
        if path.read_bytes() != copies[path]:
            do = "remove it, or leave out --atlas."
            raise ConfigError("E016", problem=f"{path} already exists with other content", do=do)
    try:
        for path in new:
            path.write_bytes(copies[path])
        yield list(copies)
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise
