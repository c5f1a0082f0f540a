"""Propose a settings.toml for the data of a folder, from names, sidecars and headers only.

The folder holds one site or several.  Counts are printed here; the file goes to all sites, so it
holds names of spaces, tasks and columns, and only two counts: sites and people.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import numpy as np

from cape.data.bids import confounds_beside, entities_of, has_all
from cape.data.cifti import SPHERE_FILES, read_series, structure_file
from cape.data.file_type import (
    CIFTI_SERIES,
    IMAGE_SUFFIXES,
    MATRIX_SUFFIXES,
    TEXT_SUFFIXES,
    suffix_of,
)
from cape.data.images import header_alone, read_image, sidecar_tr
from cape.data.issues import Findings, UnusableFile
from cape.data.label_table import read_label_table
from cape.data.matrices import Orientation, read_matrix
from cape.data.names import natural_key
from cape.data.runs import Series, SiteRun
from cape.data.space import (
    ATLAS_FILES,
    LABEL_TABLES,
    SCANNER_CODE,
    STRUCTURE_FILES,
    Grid,
    grid_of,
    mask_space,
    space_of,
    transform_code,
)
from cape.data.strategies import has_nilearn
from cape.data.tables import RECORDS, bounded, line_cells, read_records, table_lines
from cape.delimited import delimiter_of
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.planning.label_pairs import compare_places, pair_names
from cape.planning.orientation import BY_FEATURE, BY_TIME, AskAxis, orientation_of, range_of, refuse
from cape.settings.config import Config
from cape.settings.documents import parse_json
from cape.settings.words import parse_entities
from cape.space.feature_space import MNI152, FeatureSpace

_TEMPLATE: Final = Path(__file__).with_suffix(".toml.j2")
# Template spaces of volumes, in order of preference
SPACES: Final = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
# Voxel sizes of bundled masks, mm; the first is the default.
BUNDLED: Final = (4, 6, 8, 10)
# Share of a mask's voxels that a grid of the whole brain must hold
WHOLE: Final = 0.9
# Shortest run, volumes, from which 24 signals of motion may be regressed out
LONG_RUN: Final = 100
# Components beyond what G allows are noise; a consortium needs more people than components.
MAX_COMPONENTS, PEOPLE_PER_COMPONENT = 20, 3
MOTION: Final = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")

# A table up to its first line with content
_HEAD: Final = re.compile(rb"(?:[^\S\n]*(?:#[^\n]*)?\n)*[^\n]*")
_READ_IMAGE: Final = partial(read_image, grid=None, headers_only=True)

_Entities = Mapping[str, str]
_Sites = Any
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """The settings proposed for a folder, and the counts behind them."""

    text: str  # settings.toml
    counts: tuple[str, ...]  # lines about counts and choices
    files: Mapping[Path, bytes]  # sent beside the settings: the structure of CIFTI files


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """Findings for one kind of file: people per site, lines of counts, values of the template."""

    people: Mapping[str, int]
    counts: list[str]
    values: Mapping[str, object]
    files: Mapping[Path, bytes] = field(default_factory=dict)


def propose(folder: Path, bids_filter: str = "", *, ask: AskAxis = refuse) -> Proposal:
    """Return settings for the data of one site or of several; ConfigError E018 if there are none.

    `bids_filter` chooses images, by default the most frequent ones; `ask` decides which axis of
    tables is time if names and sizes do not.
    """
    import jinja2

    whole = read_whole(folder)
    sites = {site: read_whole(base) for site, base in sites_below(whole).items()}
    alone = not sites
    sites = sites or {folder.resolve().name: whole}
    if alone:
        _check_said(whole.reading, folder)
    survey = _survey(folder, sites, bids_filter, ask)
    total = sum(survey.people.values())
    # Plain text without escapes; a missing value is an error.
    template = jinja2.Template(
        _TEMPLATE.read_text(encoding="utf-8"),
        trim_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    tables = (first_question(whole.folder / PARTICIPANTS) for whole in (whole, *sites.values()))
    text = template.render(
        asked=next(filter(None, tables), {}),
        people=_people(total),
        alone=alone,
        sites=list(sites),
        n_components=max(2, min(MAX_COMPONENTS, total // PEOPLE_PER_COMPONENT)),
        **{"atlas": "", **survey.values},
    )
    check_names_no_person(text, [site.reading for site in sites.values()])
    lines = [f"{site}: {_people(n)}" for site, n in survey.people.items()]
    confirm = [
        f"inferred from names; if it is right, type: cape people {shlex.quote(str(whole.folder))} "
        + shlex.join(whole.reading.lines[0].typed)
        for whole in sites.values()
        if whole.reading.level == "inferred" and whole.reading.lines
    ]
    atlases = [
        f"{whole.folder.name}/{path} has the name of an atlas, and does not count as data"
        for whole in sites.values()
        for path in whole.of("volume").atlases
    ]
    overlooked = _overlooked(folder, sites, survey, bids_filter)
    counts = (*lines, *confirm, *survey.counts, *atlases, *overlooked)
    return Proposal(text=text, counts=counts, files=survey.files)


def _overlooked(folder: Path, sites: _Sites, survey: _Found, bids_filter: str) -> list[str]:
    """Return a line about an atlas whose name settings do not allow."""
    atlases_by_site = [(s.folder, foreign_atlases(s.folder)) for s in sites.values()]
    place = next((base / names[0] for base, names in atlases_by_site if names), None)
    if place is None or survey.values.get("atlas"):
        return []
    root = folder.resolve()
    typed = folder / place.relative_to(root) if place.is_relative_to(root) else place
    options = {"filter": bids_filter, "orientation": survey.values.get("orientation")}
    again = [word for name, value in options.items() if value for word in (f"--{name}", str(value))]
    line = shlex.join(["cape", "init", str(folder), "--atlas", str(typed), *again])
    return [
        f"{place.name} looks like an atlas and is not used; for maps of its regions type: {line}"
    ]


@contextmanager
def adopting(folder: Path, image: Path | None) -> Iterator[list[Path]]:
    """Copy an atlas and its table to every site below a folder; an error removes new copies."""
    copies: dict[Path, bytes] = {}
    if image is not None:
        copies.update(adopted(image, sites_below(read_whole(folder)) or {"": folder}))
    new = [path for path in copies if not path.exists()]
    try:
        for path in new:
            path.write_bytes(copies[path])
        yield list(copies)
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise


def _survey(folder: Path, sites: _Sites, bids_filter: str, ask: AskAxis) -> _Found:
    names = [name.lower() for site in sites.values() for name in site.names]
    volumes, atlas = _readings(sites, "volume"), _atlas_of(sites)
    if any(reading.evidence == "BIDS" for reading in volumes.values()):
        return _of_bids(sites, volumes, bids_filter, atlas)
    if any(name.endswith(CIFTI_SERIES) for name in names):
        return _of_cifti(sites, names, bids_filter)
    if atlas and not any(reading.images for reading in volumes.values()):
        return _of_parcels(sites, atlas, ask)
    if any(name.endswith(IMAGE_SUFFIXES) and not is_atlas(name) for name in names):
        return _of_images(sites, atlas)
    if any(name in RECORDS for name in names):
        return _of_records(sites)
    if any(is_series(name, "matrix") for name in names):
        return _of_matrices(sites, ask)
    atlases = [path for site in sites.values() for path in site.of("volume").atlases]
    other = f" except {atlases[0]}, whose name is that of an atlas" if atlases else ""
    raise _no_data(folder, f"the folder holds no image, matrix or table{other}")


def _readings(sites: _Sites, kind: FileKind) -> dict[str, FolderReading]:
    """Return the reading of each site's files; ConfigError E018 if it is ambiguous."""
    readings = {site: whole.of(kind) for site, whole in sites.items()}
    for site, reading in readings.items():
        if reading.images:
            _check_said(reading, sites[site].folder)
    return readings


def _check_said(reading: FolderReading, folder: Path) -> None:
    """Raise ConfigError E018 if names do not determine the people."""
    if reading.level in ("choice", "unknown") and (reading.images or reading.commands):
        raise _ask_people(folder, reading.why or "names do not say whose the files are")


def _ask_people(folder: Path, problem: str) -> ConfigError:
    do = f"type cape people {shlex.quote(str(folder))} to see the choices."
    return ConfigError("E018", problem=problem, do=do, detail=str(folder))


def _no_data(folder: Path, problem: str) -> ConfigError:
    do = "name the folder of one site (for fMRIPrep: the one with sub-*), or one that holds such"
    do += " folders or links to them; data to try it with: cape synth FOLDER"
    return ConfigError("E018", problem=problem, do=f"{do}.", detail=str(folder))


def _people(n: int) -> str:
    return f"{n} {'person' if n == 1 else 'people'}"


def _of_bids(
    sites: _Sites, readings: Mapping[str, FolderReading], bids_filter: str, atlas: _Atlas | None
) -> _Found:
    people, images, tables = _surveyed(sites, readings)
    counts = [_tally(tables, key) for key in ("space", "res", "desc", "task", "ses", "run")]
    usable = {p: e for p, e in tables.items() if e.get("space", "").startswith(MNI152)}
    if not usable:
        unnamed = not any("space" in e for e in tables.values())
        if unnamed and ((by_header := _of_images(sites, atlas)).values["mm"] or atlas):
            return by_header
        spaces = ", ".join(sorted({e.get("space", "none") for e in tables.values()}))
        problem = f"the names of {len(tables)} images name no MNI152 space (space- is {spaces})"
        raise _no_data(next(iter(sites.values())).folder, problem)
    space = _choose(usable, "space", SPACES)
    rests = sorted({e["task"] for e in tables.values() if e.get("task", "").startswith("rest")})
    # Prefer the combined echo (no echo entity), else echo 2.
    keys = {"desc": ("preproc",), "task": ("rest", *rests), "echo": ("", "2"), "res": ("2",)}
    wanted, chosen = _narrowed(tables, {"space": space}, keys, bids_filter)
    order = ("task", "space", "echo", "res", "desc")
    bids_filter = bids_filter or "_".join(f"{k}-{wanted[k]}" for k in order if wanted.get(k))
    without = _without(tables, wanted)
    _check_no_site_lost(images, tables, chosen, bids_filter)
    fit = set(chosen)
    taken = {image.person for each in images.values() for p, image in each.items() if p in fit}
    less = f" without {without}" if without else ""
    counts.append(f"chosen: {bids_filter}{less}, {len(chosen)} images of {len(taken)} people")
    values = {
        "kind": "bids",
        "bids_filter": bids_filter,
        "bids_exclude": without,
        **(_regions(atlas, chosen, counts) if atlas else _grid(space, chosen, counts)),
        **_scanned(sites, _runs_of(chosen), _READ_IMAGE, counts),
    }
    return _Found(people=people, counts=counts, values=values)


def _of_cifti(sites: _Sites, names: Sequence[str], bids_filter: str) -> _Found:
    dense = any(name.endswith(".dtseries.nii") for name in names)
    end = ".dtseries.nii" if dense else ".ptseries.nii"
    readings = _readings(sites, "cifti")
    people, images, tables = _surveyed(sites, readings, end)
    counts = [_tally(tables, key) for key in ("space", "den", "task", "ses", "run")]
    keys = {"space": ("fsLR",), "den": ("91k",), "task": ("rest",), "seg": ()}
    wanted, chosen = _narrowed(tables, {}, keys, bids_filter)
    bids_filter = bids_filter or "_".join(f"{k}-{value}" for k, value in wanted.items() if value)
    _check_no_site_lost(images, tables, chosen, bids_filter)
    counts.append(f"chosen: {bids_filter or 'all'}, {len(chosen)} files")

    def lacks(base: Path, files: Sequence[str]) -> bool:
        return not any((base / name).is_file() for name in files)

    structure, name = structure_file(chosen)
    bases = [site.folder for site in sites.values()]
    without = [base for base in bases if structure and lacks(base, STRUCTURE_FILES)]
    spheres = [n[0] for n in SPHERE_FILES.values() if any(lacks(b, n) for b in bases)]
    if spheres:
        counts.append(f"not there yet: {' and '.join(spheres)} (docs/howto-inputs.md)")
    values = {
        "kind": "cifti",
        "feature_space": "grayordinates" if dense else "parcels",
        "structure": name,
        "bids_filter": bids_filter,
        "bids_exclude": _without(tables, wanted),
        "space": "",
        **_scanned(
            sites, _runs_of(chosen), partial(read_series, space=None, headers_only=True), counts
        ),
    }
    files = {base / name: structure for base in without}
    return _Found(people=people, counts=counts, values=values, files=files)


def _surveyed(
    sites: _Sites, readings: Mapping[str, FolderReading], end: str = ""
) -> tuple[dict[str, int], dict[str, dict[Path, Image]], dict[Path, _Entities]]:
    """Return the number of people and the images of each site, and the entities of each image."""
    images = {
        site: {
            whole.folder / i.path: i
            for i in readings[site].images
            if i.path.endswith(end) and not i.whole
        }
        for site, whole in sites.items()
    }
    people = {site: len({image.person for image in each.values()}) for site, each in images.items()}
    return (
        people,
        images,
        {path: entities_of(path.name) for each in images.values() for path in each},
    )


def _check_no_site_lost(
    images: Mapping[str, Mapping[Path, Image]],
    tables: Mapping[Path, _Entities],
    chosen: Sequence[Path],
    bids_filter: str,
) -> None:
    """Raise ConfigError E018 if no image of a site was chosen."""
    taken = set(chosen)
    for site, each in images.items():
        if each and not taken & each.keys():
            keys = [part.partition("-")[0] for part in bids_filter.split("_")]
            there = {f"{k}-{tables[path][k]}" for path in each for k in keys if k in tables[path]}
            problem = (
                f"site {site} has no image with {bids_filter}; it has {', '.join(sorted(there))}"
            )
            do = "name images that all sites have, with + between values that mean the same: "
            do += "cape init FOLDER --filter task-rest+resting_space-..., or leave the site out."
            raise ConfigError("E018", problem=problem, do=do)


def _narrowed(
    tables: Mapping[Path, _Entities],
    wanted: dict[str, str],
    keys: Mapping[str, Sequence[str]],
    bids_filter: str,
) -> tuple[dict[str, str], list[Path]]:
    """Return `wanted` with a value for each key in the names, and the images that fit it.

    The owner's `bids_filter` replaces it.
    """
    if bids_filter:
        asked = parse_entities(bids_filter)
        return dict(asked), [path for path, e in tables.items() if has_all(e, asked)]
    for key, first in keys.items():
        fitting = {path: e for path, e in tables.items() if _fits(e, wanted)}
        values = {e.get(key) for e in fitting.values()}
        # A single resolution is not named: images are resampled to the mask's grid.
        if values - {None} and (key != "res" or len(values) > 1):
            wanted = {**wanted, key: _choose(fitting, key, first)}
    return wanted, [path for path, e in tables.items() if _fits(e, wanted)]


def _without(tables: Mapping[Path, _Entities], wanted: Mapping[str, str]) -> str:
    """Return `bids_exclude` for entities that chosen images lack; a filter cannot express that."""
    parts = []
    for key in (key for key, value in wanted.items() if not value):
        values = {entities[key] for entities in tables.values() if key in entities}
        parts.append(f"{key}-{'+'.join(sorted(values, key=natural_key))}")
    return ",".join(parts)


def _fits(entities: _Entities, wanted: Mapping[str, str]) -> bool:
    return all(entities.get(key, "") == value for key, value in wanted.items())


def _tally(tables: Mapping[Path, _Entities], key: str) -> str:
    number = Counter(entities.get(key, "none") for entities in tables.values())
    parts = [f"{value} {number[value]}" for value in sorted(number, key=natural_key)]
    return f"images by {key}: {', '.join(parts)}"


def _choose(tables: Mapping[Path, _Entities], key: str, first: Sequence[str]) -> str:
    """Return the value that most people have; ties go by `first`, then by the alphabet."""
    people: dict[str, set[tuple[Path, str]]] = {}
    for path, entities in tables.items():
        # With the site's folder: sub-01 of two sites are two people.
        top = path.parents[2 if "ses" in entities else 1]
        people.setdefault(entities.get(key, ""), set()).add((top, entities.get("sub", "")))
    ranked = [value for value in first if value in people]
    ranked += sorted(set(people) - set(ranked), key=natural_key)
    return max(ranked, key=lambda value: len(people[value]))


def _headers(runs: Iterable[SiteRun], read: Callable[[SiteRun], Series]) -> list[Series]:
    """Return the readable headers; `cape validate` reports the others."""
    headers = []
    for run in runs:
        try:
            headers.append(read(run))
        except (UnusableFile, OSError):
            continue
    return headers


def _scanned(
    sites: _Sites, runs: Sequence[SiteRun], read: Callable[[SiteRun], Series], counts: list[str]
) -> dict[str, object]:
    """Return values about time and confounds; pointers of git-annex are read from sidecars.

    Sites whose repetition times differ are listed, and no person is left out for it.
    """
    trs: dict[str, list[float]] = {site: [] for site in sites}
    headers: list[Series] = []
    unread = 0
    for run in runs:
        header = _headers([run], read)
        headers += header
        unread += not header
        site = next(s for s, whole in sites.items() if run.path.is_relative_to(whole.folder))
        trs[site].append(header[0].tr if header else run.tr or sidecar_tr(run.path, []))
    if unread:
        counts.append(f"not readable: {unread} images; cape validate says why")
    rounded = Counter(round(tr, 3) for each in trs.values() for tr in each)
    texts = (f"{tr:g} s {n}" if tr else f"not known {n}" for tr, n in sorted(rounded.items()))
    counts.append(f"images by repetition time: {', '.join(texts)}")
    times = _times(rounded)
    by_site = {site: "/".join(f"{tr:g} s" for tr in _times(each)) for site, each in trs.items()}
    if len({each for each in by_site.values() if each}) > 1:
        which = ", ".join(f"{site} {each}" for site, each in by_site.items() if each)
        counts.append(
            f"repetition times of sites: {which}; are these the images you mean? "
            "All are used; set tr in the file to use those of one time"
        )
    return {
        "min_timepoints": _fewest(headers, counts),
        "tr": f"{times[0]:g}" if len(times) == 1 else "",
        **_confounds(runs, headers, counts),
    }


def _times(seconds: Iterable[float]) -> list[float]:
    return sorted({round(tr, 3) for tr in seconds} - {0.0})


def _runs_of(paths: Iterable[Path]) -> list[SiteRun]:
    return [SiteRun(path=p, name=p.name, confounds=confounds_beside(p)) for p in paths]


def _told(path: Path, read: Callable[[Any], _T], otherwise: _T) -> _T:
    """Return what `read` finds in the header of an image, or `otherwise` if it is unreadable."""
    try:
        return read(header_alone(path))
    except Exception:  # from a library, for any damage; `cape validate` reports it
        return otherwise


def _grid(space: str, images: Sequence[Path], counts: list[str]) -> dict[str, object]:
    mm = bundled_mask(images)
    why = "the default" if mm == BUNDLED[0] else "images are that coarse"
    counts.append(f"mask: MNI152-{mm}mm ({why}), maps in {space}")
    return {"space": space, "mm": mm, "why": why}


def bundled_mask(images: Sequence[Path]) -> int:
    """Return the voxel size of the bundled mask for images, mm."""
    edges = [_told(path, lambda header: float(max(header.get_zooms()[:3])), 0.0) for path in images]
    return next((mm for mm in BUNDLED if mm >= max(edges, default=0.0) - 0.5), BUNDLED[-1])


def _of_one_grid(images: Sequence[Path], counts: list[str]) -> dict[str, object]:
    """Return a mask for images that name no space but share one grid, as normalised images do.

    Images in native space have a grid per person or a scanner's transform code.
    """
    place = _one_place(images)
    if place is None:
        return {"space": "", "mm": 0}
    mm = bundled_mask(images)
    mask = Config.from_input({"private": False, "mask": f"MNI152-{mm}mm"})
    held, same = _holds(place, grid_of(mask_space(mask)))
    if not held:
        return {"space": "", "mm": 0}
    counts.append(f"mask: MNI152-{mm}mm (no image names a space; one grid of them all holds it)")
    return {"space": "", "mm": mm, "resample": "" if same else "to_mask"}


def _one_place(images: Sequence[Path]) -> tuple[Any, ...] | None:
    """Return (shape, affine, code) of the shared grid of images; None: none, or a scanner's."""
    places = {_told(path, _place, None) for path in images}
    place = places.pop() if len(places) == 1 and len(images) > 1 else None
    return None if place is None or place[2] in (0, SCANNER_CODE) else place


def _holds(place: tuple[Any, ...], grid: Grid) -> tuple[bool, bool]:
    """Return whether images on a grid cover a mask or an atlas, and whether the grids are equal."""
    affine = np.reshape(place[1], (4, 4))
    to_voxel = np.linalg.inv(affine) @ grid.affine
    voxels = np.argwhere(grid.inside) @ to_voxel[:3, :3].T + to_voxel[:3, 3]
    inside = np.all((voxels > -0.5) & (voxels < np.array(place[0]) - 0.5), axis=1)
    same = place[0] == grid.shape and np.allclose(affine, grid.affine, atol=1e-3)
    return bool(inside.mean() >= WHOLE), same


def _place(header: Any) -> tuple[tuple[int, ...], tuple[float, ...], int]:
    affine = tuple(float(x) for x in np.round(header.get_best_affine(), 3).ravel())
    return header.get_data_shape()[:3], affine, transform_code(header)


def _fewest(headers: Sequence[Series], counts: list[str]) -> int:
    """Return a `min_timepoints` for runs shorter than its default; 0: keep the default."""
    lengths = [series.values.shape[1] for series in headers]
    usual = median(lengths) if lengths else LONG_RUN
    fewest = int(0.9 * usual) // 10 * 10
    if usual >= LONG_RUN or fewest < MAX_COMPONENTS + 2:  # too short for any settings
        return 0
    counts.append(f"volumes: {range_of(Counter(lengths))}, so min_timepoints = {fewest}")
    return fewest


def _confounds(
    runs: Sequence[SiteRun], headers: Sequence[Series], counts: list[str]
) -> dict[str, object]:
    tables = [run.confounds for run in runs if run.confounds is not None]
    columns = [names for path in tables if (names := set(_columns(path)))]
    common = set.intersection(*columns) if columns else set()
    counts.append(
        f"confound tables: {len(tables)} of {len(runs)} runs, {len(common)} columns in all"
    )
    if len(columns) < len(tables):
        counts.append(f"not readable: {len(tables) - len(columns)} tables; cape validate says why")
    if len(tables) < len(runs) or not common.issuperset(MOTION):
        if tables:
            without = [run.name for run in runs if run.confounds is None][:1]
            lacks = f"{without[0]} has no table" if without else "columns of motion are missing"
            counts.append(f"confounds = none, nothing is regressed out of any run, because {lacks}")
        return {"confound_strategy": "", "confounds": "none"}
    shortest = min((series.values.shape[1] for series in headers), default=0)
    suffixes = ("_derivative1", "_power2", "_derivative1_power2")
    derived = {name + suffix for name in MOTION for suffix in suffixes}
    full = shortest >= LONG_RUN and common >= derived
    fmriprep = all(run.confounds == confounds_beside(run.path) for run in runs)
    if not (fmriprep and has_nilearn()):  # nilearn looks for tables by their names
        return {"confound_strategy": "", "confounds": "motion24" if full else "motion6"}
    strategy = ["motion=full" if full else "motion=basic"]
    strategy += ["wm_csf=basic"] if common >= {"white_matter", "csf"} else []
    strategy += ["high_pass"] if any(name.startswith("cosine") for name in common) else []
    scrubbing = common >= {"framewise_displacement", "std_dvars"}
    return {"confound_strategy": ",".join(strategy), "scrubbing": scrubbing}


def _columns(table: Path) -> Iterable[str]:
    try:
        head = _HEAD.match(bounded(table))
        return line_cells(table_lines(head[0] if head else b"", delimiter_of(table.name, "\t"))[0])
    except (UnusableFile, OSError):
        pass
    try:  # the sidecar of a table that was not fetched describes its columns
        sidecar = parse_json(table.with_suffix(".json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return ()
    return sidecar if isinstance(sidecar, dict) else ()


def _listed(sites: _Sites, feature_space: str) -> tuple[dict[str, int], list[SiteRun]]:
    """Return the number of people of each site and all runs."""
    config = Config.from_input({"private": False, "feature_space": feature_space})
    _readings(sites, kind_for(config))
    people, runs = {}, []
    for name, whole in sites.items():
        listed = discover(whole.folder, {}, config, Findings(name))
        here = _not_fetched(whole, config) if feature_space == "mask" else {}
        runs_of_site = [*(run for each in listed for run in each.runs), *_runs_of(here)]
        if not runs_of_site:
            files = whole.of(kind_for(config))
            if take(files, config, filtered=False).doubled:
                problem = "every run has several versions, and no setting chooses among them"
                raise _ask_people(whole.folder, problem)
        runs += runs_of_site
        people[name] = len({files.label for files in listed} | set(here.values()))
    return people, runs


def _not_fetched(whole: Whole, config: Config) -> dict[Path, str]:
    """Return images that are git-annex links without content, with their people."""
    reading = whole.of("volume")
    images = {whole.folder / i.path: i for i in take(reading, config, filtered=False).runs}
    links = (path for path in images if path.is_symlink() and not path.exists())
    return {path: person_label(images[path], reading) for path in links}


def _of_images(sites: _Sites, atlas: _Atlas | None) -> _Found:
    people, runs = _listed(sites, "mask")
    if not runs:
        problem = "the folder holds images, but neither a list nor their names say whose they are"
        raise _ask_people(next(iter(sites.values())).folder, problem)
    paths = [run.path for run in runs]
    spaces = Counter(_told(path, partial(space_of, path.name), "") for path in paths)
    spaces_text = ", ".join(f"{space or 'none'} {n}" for space, n in spaces.items())
    counts = [f"images: {len(runs)}", f"images by space: {spaces_text}"]
    mni_spaces = [space for space in spaces if space.startswith(MNI152)]
    if atlas:
        place = _regions(atlas, paths, counts)
    elif len(mni_spaces) == 1:
        place = _grid(mni_spaces[0], paths, counts)
    else:
        place = _of_one_grid(paths, counts)
    values = {"kind": "images", **place, **_scanned(sites, runs, _READ_IMAGE, counts)}
    return _Found(people=people, counts=counts, values=values)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Atlas:
    """The label image shared by all sites."""

    name: str
    space: FeatureSpace
    pairs: str  # the setting label_pairs, of its table


def _atlas_of(sites: _Sites) -> _Atlas | None:
    """Return the label image shared by all sites, or None."""
    names_by_site = [{n for n in ATLAS_FILES if (s.folder / n).is_file()} for s in sites.values()]
    names = sorted(set.intersection(*names_by_site))
    if not names:
        return None
    base = next(iter(sites.values())).folder
    asked = {"private": False, "feature_space": "atlas", "atlas": names[0]}
    space = mask_space(Config.from_input(asked), base)
    table = next((base / name for name in LABEL_TABLES if (base / name).is_file()), None)
    labels = {} if table is None else read_label_table(table)
    pairs = compare_places(pair_names(labels), space).setting() if labels else ""
    return _Atlas(name=names[0], space=space, pairs=pairs)


def _regions(atlas: _Atlas, images: Sequence[Path], counts: list[str]) -> dict[str, object]:
    """Return values for an atlas; images without a stated space are resampled to its grid."""
    stated = atlas.space.template_space
    pairs = len(atlas.pairs.split(",")) if atlas.pairs else "by place"
    counts.append(
        f"atlas {atlas.name} of {atlas.space.n_features} parcels, space {stated or 'not said'}"
    )
    counts.append(f"pairs of left and right: {pairs}")
    place = _one_place(images)
    held, same = _holds(place, grid_of(atlas.space)) if place else (False, True)
    named = all(_told(path, partial(space_of, path.name), "") for path in images)
    return {
        "space": "",
        "mm": 0,
        "atlas": atlas.name,
        "label_pairs": atlas.pairs,
        "resample": "to_mask" if held and not same and not (stated and named) else "",
    }


def _of_parcels(sites: _Sites, atlas: _Atlas, ask: AskAxis) -> _Found:
    """Return findings for tables of series of an atlas's parcels."""
    people, runs = _listed(sites, "atlas")
    tables = [run for run in runs if suffix_of(run.path.name) in MATRIX_SUFFIXES]
    counts = [f"tables of series: {len(tables)}"]
    values = {
        "kind": "parcels",
        **_regions(atlas, [], counts),
        "orientation": _orientation(tables, ask, atlas.space.n_features),
    }
    return _Found(people=people, counts=counts, values=values)


def _shapes(runs: Sequence[SiteRun]) -> list[tuple[int, int]]:
    headers = _headers(runs, lambda run: read_matrix(run, BY_TIME, headers_only=True))
    return [(header.values.shape[1], header.values.shape[0]) for header in headers]


def _orientation(runs: Sequence[SiteRun], ask: AskAxis, n_features: int = 0) -> Orientation:
    names, columns = [run.path.name for run in runs], _feature_names(runs)
    return orientation_of(names, _shapes(runs), columns, ask=ask, n_features=n_features)


def _of_matrices(sites: _Sites, ask: AskAxis) -> _Found:
    people, runs = _listed(sites, "matrix")
    shapes, orientation = _shapes(runs), _orientation(runs, ask)
    rows, columns = {shape[0] for shape in shapes}, {shape[1] for shape in shapes}
    by_row = orientation == BY_FEATURE
    features = rows if by_row else columns
    values = {
        "kind": "matrices",
        "orientation": orientation,
        "n_features": min(features) if len(features) == 1 else 0,
        "columns": "" if by_row else _as_setting(_feature_names(runs)),
    }
    counts = [f"matrices: {len(runs)}, rows {range_of(rows)}, columns {range_of(columns)}"]
    return _Found(people=people, counts=counts, values=values)


def _feature_names(runs: Sequence[SiteRun]) -> tuple[str, ...]:
    """Return the header that all text tables share; empty: none, or they differ."""
    texts = [run for run in runs if suffix_of(run.path.name) in TEXT_SUFFIXES]
    headers = _headers(texts, lambda run: read_matrix(run, BY_TIME, headers_only=True))
    return headers[0].columns if len({header.columns for header in headers}) == 1 else ()


def _as_setting(names: tuple[str, ...]) -> str:
    if len(set(names)) < len(names) or any("," in name or not name for name in names):
        return ""
    return json.dumps(",".join(names), ensure_ascii=False) if names else ""


def _of_records(sites: _Sites) -> _Found:
    people, widths = dict.fromkeys(sites, 0), set()
    for site, whole in sites.items():
        base = whole.folder
        table = next((base / name for name in RECORDS if (base / name).is_file()), None)
        try:
            records = None if table is None else read_records(table)
        except (UnusableFile, OSError):
            continue
        if records is not None:
            people[site] = len(records.labels)
            widths.add(len(records.names))
    counts = [f"tables of one row per person: columns {range_of(widths)}"]
    values = {"kind": "records", "n_directions": max(1, min(3, min(widths, default=1)))}
    return _Found(people=people, counts=counts, values=values)
