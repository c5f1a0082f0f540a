"""A first settings.toml for the data of a folder, from names, sidecars and headers alone.

Of one site, or of several side by side.  What is counted is printed here; the file goes to all
sites, so it holds names of spaces, tasks and columns, and no number but how many sites and people.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cape.data.bids import PATTERNS, bids_files, confounds_beside, is_bids
from cape.data.cifti import SPHERE_FILES, read_series_header, structure_file
from cape.data.discovery import discover
from cape.data.file_type import CIFTI_SERIES, IMAGE_SUFFIXES, MATRIX_SUFFIXES, TABLES, suffix_of
from cape.data.images import read_image_header
from cape.data.issues import Findings, UnusableFile
from cape.data.matrices import read_matrix_header
from cape.data.people import entities_of, natural_key, subject_of
from cape.data.runs import RunFile, Series, SubjectFiles
from cape.data.space import STRUCTURE_FILES
from cape.data.strategies import has_nilearn
from cape.data.tables import RECORDS, bounded, cells_of, read_records, table_lines
from cape.delimited import delimiter_of
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.planning.consortium_folder import site_folders
from cape.planning.validate import is_site
from cape.settings.config import Config
from cape.space.feature_space import MNI152

FILE: Final = "settings.toml"
# Of volumes, the first that a tree has; surfaces and single people's spaces are not for a group.
SPACES: Final = ("MNI152NLin2009cAsym", "MNI152NLin6Asym")
# mm, from the default on, which suits fMRIPrep's 2 mm and what scanners give.
BUNDLED: Final = (4, 6, 8, 10)
# Volumes of the shortest run that leave enough beside 24 signals of motion.
LONG_RUN: Final = 100
# More than G pays for are noise, and the consortium must have more people than components.
MOST_COMPONENTS, PEOPLE_PER_COMPONENT = 20, 3
MOTION: Final = ("trans_x", "trans_y", "trans_z", "rot_x", "rot_y", "rot_z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What was found in a folder, and the settings that follow."""

    text: str  # of settings.toml
    # One line each: what was counted, which choice was made among several
    counts: tuple[str, ...]
    # What the owner sends beside the settings, by its place: the structure of CIFTI files
    files: Mapping[Path, bytes]


def propose(folder: Path) -> Proposal:
    """Return settings for the data of one site, or of sites side by side; ConfigError: none."""
    alone = is_site(folder)
    sites = {folder.resolve().name: folder} if alone else site_folders(folder)
    names = [p.name.lower() for base in sites.values() for p in base.rglob("*") if p.is_file()]
    chosen: list[str]
    files: dict[Path, bytes] = {}
    if any(is_bids(base, PATTERNS) for base in sites.values()):
        people, chosen, counts = _of_bids(sites)
    elif any(name.endswith(CIFTI_SERIES) for name in names):
        people, chosen, counts, files = _of_cifti(sites, names)
    elif any(name.endswith(IMAGE_SUFFIXES) for name in names):
        people, chosen, counts = _of_images(sites)
    elif any(name in RECORDS for name in names):
        people, chosen, counts = _of_records(sites)
    elif any(name.endswith(MATRIX_SUFFIXES) for name in names):
        people, chosen, counts = _of_matrices(sites)
    else:
        raise _nothing(folder, "it holds no image, matrix or table")
    head = [
        f"# Written by `cape init` for {_count(sum(people.values()), 'person', 'people')}"
        + (" of one site." if alone else f" at {len(sites)} sites."),
        "# Every line may be changed; docs/config.md lists all settings.",
        "",
        "# The privacy of every person, for the owner to choose; there is no default on purpose.",
        "# cape budget says what a choice costs:",
        "# epsilon = 3.0",
        "# delta = 1e-5",
        "",
        *_roster(sites, alone=alone),
    ]
    lines = [f"{site}: {_count(n, 'person', 'people')}" for site, n in people.items()]
    text = "\n".join([*head, *chosen]) + "\n"
    return Proposal(text=text, counts=(*lines, *counts), files=files)


def _nothing(folder: Path, problem: str) -> ConfigError:
    do = "name the folder of one site (for fMRIPrep: the one with sub-*), or one that holds such"
    do += " folders or links to them"
    deeper = next(folder.rglob("sub-*/**/*_space-MNI152*_bold.nii*"), None)
    if deeper is not None:
        above = deeper.parts.index(next(part for part in deeper.parts if part.startswith("sub-")))
        do += f"; there are images in {Path(*deeper.parts[:above])}"
    return ConfigError("E018", problem=problem, do=f"{do}.", detail=str(folder))


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


def _roster(sites: Mapping[str, Path], *, alone: bool) -> list[str]:
    if alone:
        return ["# How many sites take part; the noise follows from it.", "# n_sites = 3", ""]
    lines = ["# Who takes part; every site refuses a run of others.", f"n_sites = {len(sites)}"]
    lines.append(f'site_names = "{",".join(sites)}"')
    if len(sites) < 3:
        lines.append(f"min_sites = {max(2, len(sites))}")
    return [*lines, ""]


def _components(n_people: int) -> list[str]:
    n = max(2, min(MOST_COMPONENTS, n_people // PEOPLE_PER_COMPONENT))
    return [
        "# Rather too few: what the budget does not pay for is noise.",
        f"n_components = {n}",
        "",
    ]


# ------------------------------------------------------------------------------- fMRIPrep


def _of_bids(sites: Mapping[str, Path]) -> tuple[dict[str, int], list[str], list[str]]:
    images = {site: sorted(set(bids_files(base, PATTERNS))) for site, base in sites.items()}
    people, tables = _surveyed(images)
    counts = [_tally(tables, key) for key in ("space", "res", "desc", "task", "ses", "run")]
    space = _choose(tables, "space", SPACES)
    if not space.startswith("MNI152"):
        found = ", ".join(sorted({e.get("space", "none") for e in tables.values()}))
        problem = f"the names of {len(tables)} images name no MNI152 space (space- is {found})"
        raise _nothing(next(iter(sites.values())), problem)
    rests = sorted({e["task"] for e in tables.values() if e.get("task", "").startswith("rest")})
    # Of the echoes their combination, which has no entity; else one that BOLD is strong in.
    keys = {"desc": ("preproc",), "task": ("rest", *rests), "echo": ("", "2"), "res": ("2",)}
    wanted, chosen = _narrowed(tables, {"space": space}, keys)
    order = ("task", "space", "echo", "res", "desc")
    bids_filter = "_".join(f"{key}-{wanted[key]}" for key in order if wanted.get(key))
    without = _without(tables, wanted)
    taken = {(site, _subject(p)) for site, paths in images.items() for p in paths if p in chosen}
    less = f" without {without}" if without else ""
    counts.append(f"chosen: {bids_filter}{less}, {len(chosen)} images of {len(taken)} people")
    headers = _headers(map(_run, chosen), _header)
    if len(headers) < len(chosen):
        # Pointers of git-annex, above all: their content makes other settings.
        counts.append(f"not readable: {len(chosen) - len(headers)} images; cape validate says why")
    confounds, more = _confounds(chosen, headers)
    text = [
        *_for_images(),
        "# Which images: task, template space and version, as their names say.  All sessions and",
        "# runs of a person are joined; bids_exclude leaves some out, such as ses-2 or task-nback.",
        f'bids_filter = "{bids_filter}"',
        f'bids_exclude = "{without}"',
        "",
        *_grid(space, chosen, counts),
        *_repetition(headers, counts),
        *confounds,
    ]
    return people, text, [*counts, *more]


# ------------------------------------------------------------------------------- CIFTI


def _of_cifti(
    sites: Mapping[str, Path], names: Sequence[str]
) -> tuple[dict[str, int], list[str], list[str], dict[Path, bytes]]:
    dense = any(name.endswith(".dtseries.nii") for name in names)
    kind = "grayordinates" if dense else "parcels"
    end = ".dtseries.nii" if dense else ".ptseries.nii"
    images = {site: sorted(base.rglob(f"*{end}")) for site, base in sites.items()}
    people, tables = _surveyed(images)
    counts = [_tally(tables, key) for key in ("space", "den", "task", "ses", "run")]
    keys = {"space": ("fsLR",), "den": ("91k",), "task": ("rest",), "seg": ()}
    wanted, chosen = _narrowed(tables, {}, keys, mni=False)
    bids_filter = "_".join(f"{key}-{value}" for key, value in wanted.items() if value)
    counts.append(f"chosen: {bids_filter or 'all'}, {len(chosen)} files")
    files: dict[Path, bytes] = {}
    structure, name = structure_file(chosen)
    for base in sites.values():
        if structure and not any((base / there).is_file() for there in STRUCTURE_FILES):
            files[base / name] = structure
    lacking = [n[0] for n in SPHERE_FILES.values() if not all(_has(b, n) for b in sites.values())]
    if lacking:
        counts.append(f"not there yet: {' and '.join(lacking)} (docs/howto-inputs.md)")
    headers = _headers(map(_run, chosen), read_series_header)
    confounds, more = _confounds(chosen, headers)
    text = [
        *_for_images(),
        *_components(sum(people.values())),
        f"# Every site has the same {name} in its folder, and spheres of both hemispheres.",
        f'feature_space = "{kind}"',
        f'bids_filter = "{bids_filter}"',
        f'bids_exclude = "{_without(tables, wanted)}"',
        "",
        *_repetition(headers, counts),
        *confounds,
    ]
    return people, text, [*counts, *more], files


def _has(base: Path, names: Sequence[str]) -> bool:
    return any((base / name).is_file() for name in names)


def _surveyed(
    images: Mapping[str, Sequence[Path]],
) -> tuple[dict[str, int], dict[Path, Mapping[str, str]]]:
    """Return how many people each site has, and the entities of every image's name."""
    people = {site: len({_subject(path) for path in paths}) for site, paths in images.items()}
    return people, {path: entities_of(path.name) for paths in images.values() for path in paths}


def _narrowed(
    tables: Mapping[Path, Mapping[str, str]],
    wanted: dict[str, str],
    keys: Mapping[str, Sequence[str]],
    *,
    mni: bool = True,
) -> tuple[dict[str, str], list[Path]]:
    """Return `wanted` with a value of each key that names have, and the images that fit it."""
    for key, first in keys.items():
        fitting = {path: e for path, e in tables.items() if _fits(e, wanted)}
        values = {e.get(key) for e in fitting.values()}
        # Without need no resolution is named: images of all are brought to the mask's grid.
        if values - {None} and (key != "res" or len(values) > 1):
            wanted = {**wanted, key: _choose(fitting, key, first, mni=mni)}
    return wanted, [path for path, e in tables.items() if _fits(e, wanted)]


def _without(tables: Mapping[Path, Mapping[str, str]], wanted: Mapping[str, str]) -> str:
    """Return `bids_exclude` for images chosen without an entity: no filter can say that."""
    parts = []
    for key in (key for key, value in wanted.items() if not value):
        values = {entities[key] for entities in tables.values() if key in entities}
        parts.append(f"{key}-{'+'.join(sorted(values, key=natural_key))}")
    return ",".join(parts)


def _run(path: Path) -> RunFile:
    return RunFile(path=path, name=path.name)


def _headers(runs: Iterable[RunFile], read: Callable[[RunFile], Series]) -> list[Series]:
    """Return the headers that can be read; of the others `cape validate` says what is wrong."""
    headers = []
    for run in runs:
        try:
            headers.append(read(run))
        except (UnusableFile, OSError):
            continue
    return headers


def _header(run: RunFile) -> Series:
    return read_image_header(run, None)


def _subject(path: Path) -> str:
    return subject_of(path.as_posix())


def _fits(entities: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(entities.get(key, "") == value for key, value in wanted.items())


def _tally(tables: Mapping[Path, Mapping[str, str]], key: str) -> str:
    found = Counter(entities.get(key, "none") for entities in tables.values())
    parts = [f"{value} {found[value]}" for value in sorted(found, key=natural_key)]
    return f"images by {key}: {', '.join(parts)}"


def _choose(
    tables: Mapping[Path, Mapping[str, str]], key: str, first: Sequence[str], *, mni: bool = True
) -> str:
    """Return the value that most people have; of equal ones as in `first`, then of the alphabet."""
    people: dict[str, set[tuple[Path, str]]] = {}
    for path, entities in tables.items():
        # Up to the site's folder: sub-01 of two sites are two people.
        top = path.parents[2 if "ses" in entities else 1]
        people.setdefault(entities.get(key, ""), set()).add((top, entities.get("sub", "")))
    usable = {
        v: len(who)
        for v, who in people.items()
        if key != "space" or not mni or v.startswith(MNI152)
    }
    ranked = [value for value in first if value in usable]
    ranked += sorted(set(usable) - set(ranked), key=natural_key)
    return max(ranked, key=lambda value: usable[value], default="")


def _for_images() -> list[str]:
    return [
        'computation = "capegica"',
        "# Independent maps from one release, with a left-right test: on real brains rounds of",
        "# temporal ICA removed what the release had found (docs/choosing.md).  How many follows",
        "# from people and budget: cape budget says it.",
        "",
    ]


def _grid(space: str, images: Sequence[Path], counts: list[str]) -> list[str]:
    edge = max((_edge(path) for path in images), default=0.0)
    mm = next((mm for mm in BUNDLED if mm >= edge - 0.5), BUNDLED[-1])
    why = "the default" if mm == BUNDLED[0] else "images are that coarse"
    counts.append(f"mask: MNI152-{mm}mm ({why}), maps in {space}")
    return [
        f"# The whole brain, {mm} mm ({why}).  Images of this template space are brought to its",
        "# grid, others refused; finer shows the same networks with more voxels.",
        f'mask = "MNI152-{mm}mm"',
        f'space = "{space}"',
        "",
    ]


def _edge(path: Path) -> float:
    """Return the largest edge of a voxel, mm; 0 if the header cannot be read."""
    import nibabel as nib

    try:
        return float(max(nib.load(path).header.get_zooms()[:3]))  # type: ignore[attr-defined]
    except Exception:  # of a reader of whatever lies there; `cape validate` says what is wrong
        return 0.0


def _repetition(headers: Sequence[Series], counts: list[str]) -> list[str]:
    trs = Counter(round(series.tr, 3) for series in headers)
    found = ", ".join(f"{tr:g} s {n}" if tr else f"not known {n}" for tr, n in sorted(trs.items()))
    counts.append(f"images by repetition time: {found}")
    known = [tr for tr in trs if tr]
    if len(known) != 1:
        return ["# Repetition times differ or are not known; 0 asks for none.", "tr = 0.0", ""]
    return ["# Whoever has another repetition time counts as zeros.", f"tr = {known[0]:g}", ""]


def _confounds(images: Sequence[Path], headers: Sequence[Series]) -> tuple[list[str], list[str]]:
    """Return the settings, and what was counted."""
    beside = [confounds_beside(path) for path in images]
    tables = [path for path in beside if path is not None]
    columns = [names for path in tables if (names := set(_columns(path)))]
    common = set.intersection(*columns) if columns else set()
    counts = [f"confound tables: {len(tables)} of {len(images)} runs, {len(common)} columns in all"]
    if len(columns) < len(tables):
        counts += [f"not readable: {len(tables) - len(columns)} tables; cape validate says why"]
    lines = ["# What fMRIPrep measured and is regressed out of every voxel (docs/howto-inputs.md)."]
    if len(tables) < len(images) or not common.issuperset(MOTION):
        return [*lines, 'confounds = "none"'], counts
    shortest = min((series.values.shape[1] for series in headers), default=0)
    model = "full" if shortest >= LONG_RUN else "basic"
    suffixes = ("_derivative1", "_power2", "_derivative1_power2")
    derived = {name + suffix for name in MOTION for suffix in suffixes}
    model = model if common >= derived else "basic"
    if not has_nilearn():
        confounds = "motion24" if model == "full" else "motion6"
        return [*lines, f'confounds = "{confounds}"'], counts
    strategy = [f"motion={model}"]
    strategy += ["wm_csf=basic"] if common >= {"white_matter", "csf"} else []
    strategy += ["high_pass"] if any(name.startswith("cosine") for name in common) else []
    lines.append(f'confound_strategy = "{",".join(strategy)}"')
    if common >= {"framewise_displacement", "std_dvars"}:
        lines += [
            "# scrub=5 in it leaves out volumes that moved more than fd_threshold, and pieces of",
            "# fewer than 5 between them.  Who fails a limit below counts as zeros; 0: no limit.",
            "fd_threshold = 0.5",
            "max_mean_fd = 0.0",
            "min_minutes = 0.0",
        ]
    return lines, counts


def _columns(table: Path) -> Iterable[str]:
    try:
        return cells_of(table_lines(bounded(table), delimiter_of(table.name, "\t"))[0])
    except (UnusableFile, OSError):
        return ()


# ------------------------------------------------------------------------------- other files


def _listed(sites: Mapping[str, Path], feature_space: str) -> dict[str, tuple[SubjectFiles, ...]]:
    config = Config.from_input({"epsilon": 1, "delta": 1e-5, "feature_space": feature_space})
    return {name: discover(base, {}, config, Findings(name)) for name, base in sites.items()}


def _of_images(sites: Mapping[str, Path]) -> tuple[dict[str, int], list[str], list[str]]:
    listed = _listed(sites, "mask")
    runs = [run for subjects in listed.values() for files in subjects for run in files.runs]
    if not runs:
        problem = "it holds images, but no list and no layout that is known names them"
        raise _nothing(next(iter(sites.values())), problem)
    headers = _headers(runs, _header)
    people = {site: len(subjects) for site, subjects in listed.items()}
    counts = [f"images: {len(runs)}"]
    spaces = Counter(_space(run.path) for run in runs)
    counts.append("images by space: " + ", ".join(f"{s or 'none'} {n}" for s, n in spaces.items()))
    known = [space for space in spaces if space.startswith(MNI152)]
    text = _for_images()
    if len(known) == 1:
        text += _grid(known[0], [run.path for run in runs], counts)
    else:
        text += [
            "# No one MNI152 space is stated by all images.  If they are in MNI152 on one grid,",
            '# ask for resample = "to_mask"; else put the mask of their space into every folder.',
            'mask = "file"',
            "",
        ]
    return people, [*text, *_repetition(headers, counts)], counts


def _space(path: Path) -> str:
    import nibabel as nib

    from cape.data.space import space_of

    try:
        return space_of(path.name, nib.load(path).header)
    except Exception:  # as above
        return ""


def _of_matrices(sites: Mapping[str, Path]) -> tuple[dict[str, int], list[str], list[str]]:
    listed = _listed(sites, "matrix")
    runs = [run for subjects in listed.values() for files in subjects for run in files.runs]
    headers = _headers(runs, lambda run: read_matrix_header(run, "feature_by_time", "X"))
    shapes = [header.values.shape for header in headers]
    people = {site: len(subjects) for site, subjects in listed.items()}
    rows, columns = ({shape[axis] for shape in shapes} for axis in (0, 1))
    counts = [f"matrices: {len(runs)}, rows {_range(rows)}, columns {_range(columns)}"]
    # People differ in time points, not in features: where only one axis is equal it is theirs.
    sure = (len(rows) == 1) != (len(columns) == 1)
    by_row = len(rows) == 1
    orientation = "feature_by_time" if by_row else "time_by_feature"
    features = rows if by_row else columns
    said = "the axis that is equal in all files" if sure else "CHECK THIS: both axes could be"
    n_features = f"n_features = {min(features)}" if len(features) == 1 else "# n_features = 100"
    text = [
        'computation = "capedjica"',
        'feature_space = "matrix"',
        f"# Features are {said}.",
        f'orientation = "{orientation}"',
        n_features,
        *([] if by_row else _feature_names(runs)),
        "",
        *_components(sum(people.values())),
    ]
    return people, text, counts


def _feature_names(runs: Sequence[RunFile]) -> list[str]:
    """Return the names that the headers of all text tables have, as the setting."""
    texts = [run for run in runs if suffix_of(run.path.name) in TABLES]
    headers = _headers(texts, lambda run: read_matrix_header(run, "time_by_feature", "X"))
    if len({header.columns for header in headers}) != 1:
        return []
    names = headers[0].columns
    if len(set(names)) < len(names) or any("," in name or not name for name in names):
        return []
    return ["columns = " + json.dumps(",".join(names), ensure_ascii=False)]


def _range(numbers: set[int]) -> str:
    if not numbers:
        return "not known"
    return f"{min(numbers)}" if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _of_records(sites: Mapping[str, Path]) -> tuple[dict[str, int], list[str], list[str]]:
    people, widths = {}, set()
    for site, base in sites.items():
        table = next((base / name for name in RECORDS if (base / name).is_file()), None)
        try:
            records = None if table is None else read_records(table)
        except (UnusableFile, OSError):
            records = None
        people[site] = 0 if records is None else len(records.labels)
        widths |= set() if records is None else {len(records.names)}
    counts = [f"tables of one row per person: columns {_range(widths)}"]
    text = [
        "# Principal components of the columns; capecca relates two blocks of them.",
        'computation = "capepca"',
        'feature_space = "matrix"',
        "# Rather too few: what the budget does not pay for is noise.",
        f"n_directions = {max(1, min(3, min(widths, default=1)))}",
    ]
    return people, text, counts
