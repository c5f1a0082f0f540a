"""Public template maps of the features, and their names: the owner's file, or a finished run."""

import functools
import io
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.algorithms.person_outcomes import are_regions
from cape.arrays import read_array
from cape.data.cifti import read_scalars, scalars_in
from cape.data.file_type import CIFTI_MAPS
from cape.data.images import Resampling, header_alone, read_image
from cape.data.issues import Findings, UnusableFile
from cape.data.label_table import Region, has_numbers, labelled_regions, table_beside
from cape.data.runs import SiteRun
from cape.data.space import (
    RUN_MAPS,
    TEMPLATE_FILES,
    grid_of,
    is_bundled,
    label_volume,
    mask_space,
    one_space,
)
from cape.data.tables import bounded, table_cells
from cape.delimited import is_number, read_matrix_lines, split_lines
from cape.errors import ConfigError, DataError, FoundError, own_words
from cape.settings.config import Config
from cape.settings.measures import Measure
from cape.settings.resolved import resolve
from cape.space.feature_space import FEATURE, MAX_OWN_NUMBERS, MAX_TEMPLATE_NUMBERS, FeatureSpace

# Longest text of a number with its comma: -1.2345678901234567e-308 and blanks
NUMBER_BYTES: Final = 32
# Correlation over the features from which two maps are named: their courses share their noise
ALIKE: Final = 0.85
MOST_SHOWN: Final = 5
# Maps named of a table whose names are not those of the settings
_MOST_NAMED: Final = 2
# Least share of a map's variance that others must leave: single precision keeps 1e-13
LEAST_OWN: Final = 1e-8
# Table that names the maps beside it
NETWORKS_FILE: Final = "networks.tsv"


def with_templates(
    space: FeatureSpace, base: Path, *, site: str, sent: bool = True
) -> FeatureSpace:
    """Return the space with the maps of ``templates.nii.gz``, ``.npy`` or ``.csv``.

    `base`: the folder of a site or of a finished run (its ``group_maps``), or a file of maps.  An
    image holds a map a volume, or one volume with the labels of an atlas, which is a map a label.
    A csv has a row per feature, a column per map.  An image of another grid is resampled if it says
    that it is of the same space.  `sent`: all parties get the maps, which are fewer then.

    DataError CAPE-E280: no file, another grid or space, numbers that are not finite, constant or
    too many maps.
    """
    # Templates must be public: not computed from the consortium's data, except by a release.  No
    # program can check that, so the owner sends the file, and digests of all sites are compared.
    path = file_of_maps(base)
    if path is None:
        problem = f"none of {', '.join(TEMPLATE_FILES)} is in {base}; put the owner's there"
        raise DataError("E280", site=site, detail=problem)
    most = MAX_TEMPLATE_NUMBERS if sent else MAX_OWN_NUMBERS
    try:
        stamp = path.stat()
        found = _templated(space, path, most, (stamp.st_mtime_ns, stamp.st_size))
        if not sent and _add_up(found.templates()):
            problem = "maps add up to a constant, so their courses are not determined"
            raise FoundError(f"{problem}; leave one out")
        return found
    except Exception as err:  # readers raise various errors; their text stays here
        observed = own_words(err, "no numbers for every feature")
        if isinstance(err, UnusableFile):
            observed = f"{err.issue.code.problem}: {err.issue.observed}"
        detail = f"{path.name} cannot be used: {observed}"
        raise DataError("E280", site=site, detail=detail) from err


# Cached: a site asks before it reads, for its basis and for its card, and a simulation for every
# site; 105 maps at 2 mm take half a minute.
@functools.lru_cache(maxsize=1)
def _templated(space: FeatureSpace, path: Path, most: int, _stamp: object) -> FeatureSpace:
    if path.name.endswith(CIFTI_MAPS):
        maps = read_scalars(path, space)
    elif ".nii" in path.name:
        maps = _template_image(path, space, most)
    else:
        maps = _template_array(path, most)
    if problem := _template_problem(maps, space.n_features, most):
        raise FoundError(problem)
    return space.with_templates(maps)


def alike(space: FeatureSpace) -> str:
    """Return the pairs of maps that correlate above `ALIKE`, by their places from 1; or ""."""
    maps = space.templates()
    r = np.abs(np.corrcoef(maps, rowvar=False))
    pairs = np.argwhere(np.triu(r, 1) > ALIKE).tolist()
    shown = [f"{i + 1} and {j + 1} (r {r[i, j]:.2f})" for i, j in pairs[:MOST_SHOWN]]
    more = len(pairs) - len(shown)
    return "maps " + ", ".join(shown) + (f" and {more} more pairs" if more else "") if pairs else ""


def named_maps(file: Path, n_maps: int) -> tuple[tuple[str, str], ...]:
    """Return name and domain of each map from the table beside a file of maps; () without one.

    The table is called as the file (``atlas.tsv`` beside ``atlas.nii.gz``) or ``networks.tsv``: a
    header with ``name`` and perhaps ``domain``, a row a map, in their order.  ConfigError E012.
    """
    stem = file.name.removesuffix(".gz").rpartition(".")[0]
    places = (file.with_name(name) for name in (f"{stem}.tsv", NETWORKS_FILE))
    table = next(filter(Path.is_file, places), None)
    if table is None:
        return ()
    do = "write a header with name and domain, then a row a map, in their order."
    try:
        header, *rows = (cells for _, cells in table_cells(bounded(table), "\t"))
    except (UnusableFile, OSError, ValueError) as err:
        problem = f"{table.name}, which names the maps, cannot be read"
        raise ConfigError("E012", problem=problem, do=do) from err
    columns = [cell.lower() for cell in header]
    if "name" not in columns or len(rows) != n_maps:
        problem = f"{table.name} beside the maps has columns {', '.join(header)} and {len(rows)} "
        raise ConfigError("E012", problem=f"{problem}rows for {n_maps} maps", do=do)
    domain = columns.index("domain") if "domain" in columns else None
    pairs = [(row[columns.index("name")], "" if domain is None else row[domain]) for row in rows]
    return tuple(pairs)


def digest_with(config: Config, maps: Path) -> str:
    """Return the digest of the features of a run with these maps.

    "": a run without maps, or its mask is at the sites alone.  DataError as `with_templates`.
    """
    on_grid = config.feature_space == "mask" and is_bundled(config)
    if not (resolve(config).templates and on_grid):
        return ""
    return with_templates(mask_space(config), maps, site="here", sent=False).digest


def number_of_maps(base: Path) -> int:
    """Return how many maps `with_templates` would find, by their header; 0 if it fails."""
    path = file_of_maps(base)
    try:
        if path is None or path.name.endswith(CIFTI_MAPS):
            return 0 if path is None else scalars_in(path)
        if ".nii" not in path.name:
            return int(_template_array(path, MAX_OWN_NUMBERS).shape[1])
        return len(label_numbers(path)) or int(header_alone(path).get_data_shape()[3])
    except Exception:  # reported where they are read
        return 0


def no_labels(base: Path) -> str:
    """Return why an image of one volume is no atlas; "" for another file, or an atlas."""
    path = file_of_maps(base)
    if path is not None and ".nii" in path.name and not path.name.endswith(CIFTI_MAPS):
        try:
            label_volume(path, "atlas", Findings("maps"))
        except UnusableFile as err:
            return f"{path.name}: {err.issue.code.problem} ({err.issue.observed})"
    return ""


def label_numbers(path: Path) -> tuple[int, ...]:
    """Return the labels of an atlas in their order; () for another file, or one that is damaged."""
    if ".nii" in path.name and not path.name.endswith(CIFTI_MAPS):
        with suppress(UnusableFile, OSError):  # told where its maps are read
            if math.prod(header_alone(path).get_data_shape()[3:]) == 1:
                labels, _, _ = label_volume(path, "atlas", Findings("maps"))
                return tuple(np.unique(labels[labels > 0]).tolist())
    return ()


def file_of_maps(base: Path) -> Path | None:
    """Return `base` if it is a file, or the first file of maps in it; None if there is none."""
    names = (*TEMPLATE_FILES, *RUN_MAPS)
    inside = (base / part / name for part in ("", "consortium") for name in names)
    return next(filter(Path.is_file, (base, *inside)), None)


def regions_of_atlas(file: Path) -> dict[int, Region]:
    """Return the regions of an atlas's labels by the table beside it; {} without one, or for maps.

    ConfigError E012: a table without numbers has another number of rows than the atlas has labels.
    """
    table = table_beside(file) if ".nii" in file.name else None
    if table is None:
        return {}
    regions = labelled_regions(table, ordered=True)
    if has_numbers(table) or not (labels := label_numbers(file)):
        return regions
    if len(regions) != len(labels):
        problem = f"{table.name} beside the atlas has no column index, and {len(regions)} rows for "
        do = "write index, name and perhaps domain, a row a label."
        raise ConfigError("E012", problem=f"{problem}{len(labels)} labels", do=do)
    return dict(zip(labels, regions.values(), strict=True))


def named_beside(file: Path, n_maps: int) -> tuple[tuple[str, str], ...]:
    """Return name and domain of each map or label by the table beside it; () without a table.

    ConfigError as `regions_of_atlas` and `named_maps`.
    """
    if labels := label_numbers(file):
        regions = regions_of_atlas(file)
        return tuple(regions.get(n, Region(f"region {n}")) for n in labels) if regions else ()
    return named_maps(file, n_maps)


def named_otherwise(stated: Sequence[tuple[str, str]], networks: Sequence[tuple[str, str]]) -> str:
    """Return which maps a table names otherwise than `networks` of a comparison does; or "".

    A domain that only one of them has is none of another name.
    """
    others = [
        f"map {k} is {_in_words(*own)}, in networks {_in_words(*given)}"
        for k, (own, given) in enumerate(zip(stated, networks, strict=False), 1)
        if any(a.casefold() != b.casefold() for a, b in zip(own, given, strict=True) if a and b)
    ]
    shown, more = "; ".join(others[:_MOST_NAMED]), len(others) - _MOST_NAMED
    return f"{shown}; and {more} more" if more > 0 else shown


def _in_words(name: str, domain: str) -> str:
    return f"{name} ({domain})" if domain else name


def check_names(base: Path, measure: Measure, *, site: str) -> None:
    """DataError E280 if the table beside a site's maps names others than the settings do.

    Results would carry the names of an earlier table.
    """
    file = file_of_maps(base)
    if file is None:
        return
    try:
        stated = named_beside(file, len(measure.networks))
    except ConfigError as err:
        raise DataError("E280", site=site, detail=err.public) from err
    domains = measure.domains or ("",) * len(measure.networks)
    if other := named_otherwise(stated, list(zip(measure.networks, domains, strict=True))):
        problem = f"the table beside {file.name} names other maps than the settings: {other}"
        raise DataError("E280", site=site, detail=problem)


def maps_with_names(base: Path) -> tuple[Path, dict[int, str]]:
    """Return a file of public maps, `base` or in it, and what a table beside it calls them, if any.

    Names are those of an atlas's labels, or of maps from 1.
    """
    path = file_of_maps(base) or base
    with suppress(ConfigError):  # told before a run; at its end numbers must do
        if regions := regions_of_atlas(path):
            return path, {label: region.name for label, region in regions.items()}
        pairs = enumerate(named_maps(path, number_of_maps(path)), start=1)
        return path, {k: name for k, (name, _) in pairs}
    return path, {}


def _template_problem(maps: Array, n_features: int, most: int) -> str:
    """Return what is wrong with template maps, shape (D, K), or ""."""
    if maps.ndim != 2 or len(maps) != n_features or maps.shape[1] < 2:
        return f"holds {maps.shape}, needed {n_features} features and 2 maps or more"
    if not np.all(np.isfinite(maps)):
        return "holds NaN or infinite numbers; replace them"
    if maps.size > most:
        problem = f"holds {maps.size} numbers, allowed {most}"
        return f"{problem}; use a coarser grid or fewer maps"
    # The maps are regressors: collinear ones leave their time courses undetermined.
    if float(np.min(np.std(maps, axis=0))) == 0.0 or np.linalg.matrix_rank(maps) < maps.shape[1]:
        return "has a constant map, or maps that depend on each other"
    return ""


def _add_up(maps: Array) -> bool:
    """Tell whether courses with a constant depend on each other; means of regions never do."""
    r = np.corrcoef(maps, rowvar=False)
    return not are_regions(maps) and bool(np.linalg.eigvalsh(r)[0] < LEAST_OWN)


def _template_array(path: Path, most: int) -> Array:
    with path.open("rb") as stream:
        # Read no more than the allowed numbers need; a pipe or a growing file states no size.
        content = stream.read(NUMBER_BYTES * most + 1)
    if len(content) > NUMBER_BYTES * most:
        problem = f"more than {NUMBER_BYTES * most // 2**20} MiB"
        raise FoundError(f"{problem}, at most {most} numbers")
    if path.suffix == ".npy":
        return np.asarray(read_array(io.BytesIO(content), len(content)), dtype=np.float64)
    lines = split_lines(content, ",")
    # Maps may have names; a header of numbers cannot be told from a feature.
    cells = lines[0].text.split(",")
    if cells[0] == FEATURE:  # as in the maps of a run whose columns have names
        lines = [replace(line, text=line.text.partition(",")[2]) for line in lines]
    head = 0 if all(map(is_number, cells)) else 1
    return read_matrix_lines(lines[head:])


def _template_image(path: Path, space: FeatureSpace, most: int) -> Array:
    if not space.on_grid:
        raise FoundError("an image, but the features are no voxels of one")
    # By the header, before anything is unpacked.
    shape = header_alone(path).get_data_shape()
    if math.prod(shape[3:]) == 1:
        return _of_regions(path, space, most)
    if len(shape) == 4 and shape[3] * space.n_features > most:
        problem = f"{shape[3]} maps of {space.n_features} features"
        raise FoundError(f"{problem}, at most {most} numbers; take a coarser grid or fewer maps")
    run = SiteRun(path=path, name=path.name)
    series = read_image(run, grid_of(space), Resampling(resample="within_space"))
    maps = series.values.astype(np.float64)
    return maps if series.grid != "resampled" else _coarse(maps)


def _of_regions(path: Path, space: FeatureSpace, most: int) -> Array:
    """Return a map (D,) for each label of an atlas: 1 where the nearest voxel of it has the label.

    In a space of parcels: the part of the parcel that has it.
    """
    labels, affine, stated = label_volume(path, "atlas", Findings("maps"))
    grid = grid_of(space)
    if stated and grid.template_space and not one_space(stated, grid.template_space):
        raise FoundError(f"an atlas of {stated}, but the features are of {grid.template_space}")
    numbers = np.unique(labels[labels > 0])
    if numbers.size * space.n_features > most:
        raise FoundError(f"{numbers.size} labels of {space.n_features} features, allowed {most}")
    places = np.argwhere(grid.inside) @ grid.affine[:3, :3].T + grid.affine[:3, 3]
    inverse = np.linalg.inv(affine)
    voxels = np.rint(places @ inverse[:3, :3].T + inverse[:3, 3]).astype(int)
    there = ((voxels >= 0) & (voxels < labels.shape)).all(axis=1)
    x, y, z = np.where(there[:, None], voxels, 0).T
    here = np.where(there, labels[x, y, z], 0)
    if lost := sorted(set(numbers.tolist()) - set(here.tolist())):
        shown = ", ".join(map(str, lost[:MOST_SHOWN]))
        do = "take a finer grid, or leave such labels out of the atlas"
        raise FoundError(f"no voxel of the features has label {shown}; {do}")
    return np.stack([grid.gather((here == n).astype(np.float64)) for n in numbers], axis=1)


def _coarse(maps: Array) -> Array:
    """Round resampled maps: last bits differ between processors, but digests must not."""
    steps = 2.0 ** (np.ceil(np.log2(np.maximum(np.max(np.abs(maps), axis=0), 1e-300))) - 14)
    return np.asarray(np.rint(maps / steps) * steps)
