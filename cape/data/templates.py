"""Public template maps of the features: the owner's file, or the maps of a finished run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.arrays import read_array
from cape.data.cifti import read_scalars, scalars_in
from cape.data.file_type import CIFTI_MAPS
from cape.data.images import Resampling, header_alone, read_image
from cape.data.issues import UnusableFile
from cape.data.runs import SiteRun
from cape.data.space import RUN_MAPS, TEMPLATE_FILES, grid_of
from cape.delimited import is_number, read_matrix_lines, split_lines
from cape.errors import DataError, FoundError, own_words
from cape.space.feature_space import MAX_TEMPLATE_NUMBERS, FeatureSpace

# Longest text of a number with its comma: -1.2345678901234567e-308 and blanks
MAX_MAPS_BYTES: Final = 32 * MAX_TEMPLATE_NUMBERS


def with_templates(space: FeatureSpace, base: Path, *, site: str) -> FeatureSpace:
    """Return the space with the maps of ``templates.nii.gz`` (4-D), ``.npy`` or ``.csv``.

    `base`: the folder of a site or of a finished run (its ``group_maps``), or a file of maps.  A
    csv has a row per feature, a column per map.  An image of another grid is resampled if it says
    that it is of the same space.  DataError CAPE-E280: no file, another grid or space, numbers that
    are not finite, constant or too many maps.
    """
    # Templates must be public: not computed from the consortium's data, except by a release.  No
    # program can check that, so the owner sends the file, and digests of all sites are compared.
    path = file_of_maps(base)
    if path is None:
        problem = f"none of {', '.join(TEMPLATE_FILES)} is in {base}; put the owner's there"
        raise DataError("E280", site=site, detail=problem)
    try:
        if path.name.endswith(CIFTI_MAPS):
            maps = read_scalars(path, space)
        else:
            maps = _template_image(path, space) if ".nii" in path.name else _template_array(path)
    except Exception as err:  # readers raise various errors; their text stays here
        observed = own_words(err, "no numbers for every feature")
        if isinstance(err, UnusableFile):
            observed = f"{err.issue.code.problem}: {err.issue.observed}"
        detail = f"{path.name} cannot be read: {observed}"
        raise DataError("E280", site=site, detail=detail) from err
    if problem := _template_problem(maps, space.n_features):
        raise DataError("E280", site=site, detail=f"{path.name} {problem}")
    return space.with_templates(maps)


def number_of_maps(base: Path) -> int:
    """Return how many maps `with_templates` would find, by their header; 0 if it fails."""
    path = file_of_maps(base)
    try:
        if path is None or path.name.endswith(CIFTI_MAPS):
            return 0 if path is None else scalars_in(path)
        if ".nii" not in path.name:
            return int(_template_array(path).shape[1])
        shape = header_alone(path).get_data_shape()
        return int(shape[3]) if len(shape) == 4 else 0
    except Exception:  # reported where they are read
        return 0


def file_of_maps(base: Path) -> Path | None:
    """Return `base` if it is a file, or the first file of maps in it; None if there is none."""
    names = (*TEMPLATE_FILES, *RUN_MAPS)
    inside = (base / part / name for part in ("", "consortium") for name in names)
    return next(filter(Path.is_file, (base, *inside)), None)


def _template_problem(maps: Array, n_features: int) -> str:
    """Return what is wrong with template maps, shape (D, K), or ""."""
    if maps.ndim != 2 or len(maps) != n_features or maps.shape[1] < 2:
        return f"holds {maps.shape}, needed {n_features} features and 2 maps or more"
    if not np.all(np.isfinite(maps)):
        return "holds NaN or infinite numbers; replace them"
    if maps.size > MAX_TEMPLATE_NUMBERS:
        problem = f"holds {maps.size} numbers, allowed {MAX_TEMPLATE_NUMBERS}"
        return f"{problem}; use a coarser grid or fewer maps"
    # The maps are regressors: collinear ones leave their time courses undetermined.
    if float(np.min(np.std(maps, axis=0))) == 0.0 or np.linalg.matrix_rank(maps) < maps.shape[1]:
        return "has a constant map, or maps that depend on each other"
    return ""


def _template_array(path: Path) -> Array:
    with path.open("rb") as stream:
        # Read no more than the allowed numbers need; a pipe or a growing file states no size.
        content = stream.read(MAX_MAPS_BYTES + 1)
    if len(content) > MAX_MAPS_BYTES:
        problem = f"more than {MAX_MAPS_BYTES // 2**20} MiB"
        raise FoundError(f"{problem}, at most {MAX_TEMPLATE_NUMBERS} numbers")
    if path.suffix == ".npy":
        return np.asarray(read_array(io.BytesIO(content), len(content)), dtype=np.float64)
    lines = split_lines(content, ",")
    # Maps may have names; a header of numbers cannot be told from a feature.
    head = 0 if all(is_number(cell) for cell in lines[0].text.split(",")) else 1
    return read_matrix_lines(lines[head:])


def _template_image(path: Path, space: FeatureSpace) -> Array:
    if not space.on_grid:
        raise FoundError("an image, but the features are no voxels of one")
    # By the header, before anything is unpacked.
    shape = header_alone(path).get_data_shape()
    if len(shape) == 4 and shape[3] * space.n_features > MAX_TEMPLATE_NUMBERS:
        problem = f"{shape[3]} maps of {space.n_features} features"
        raise FoundError(f"{problem}, at most {MAX_TEMPLATE_NUMBERS} numbers")
    run = SiteRun(path=path, name=path.name)
    series = read_image(run, grid_of(space), Resampling(resample="within_space"))
    maps = series.values.astype(np.float64)
    return maps if series.grid != "resampled" else _coarse(maps)


def _coarse(maps: Array) -> Array:
    """Round resampled maps: last bits differ between processors, but digests must not."""
    steps = 2.0 ** (np.ceil(np.log2(np.maximum(np.max(np.abs(maps), axis=0), 1e-300))) - 14)
    return np.asarray(np.rint(maps / steps) * steps)
