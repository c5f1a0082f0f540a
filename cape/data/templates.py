"""Public template maps of a site's folder, for ``separation=template`` and ``basis=templates``.

Every site maps the same file, as with a mask; digests are compared in `join` before any site shows
its own.  Templates must be public: never computed from the consortium's data.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.arrays import read_array, read_member
from cape.data.space import TEMPLATE_FILES, grid_of
from cape.errors import DataError
from cape.feature_space import MOST_TEMPLATE_NUMBERS, FeatureSpace

SHIFT = 0.01
"""Voxels by which the grid of the templates may be off."""


def with_templates(space: FeatureSpace, base: Path, *, site: str) -> FeatureSpace:
    """Return the space with the template maps of a site's folder.

    Parameters
    ----------
    space : FeatureSpace
        Of the site.
    base : Path
        Its folder: ``templates.nii.gz`` (4-D, on the consortium's grid), or for matrices
        ``templates.npy``, ``.npz`` with one array, or ``.csv`` (a row per feature, a column per
        map).
    site : str
        Public id.

    Raises
    ------
    DataError
        CAPE-E280: no file, another grid, numbers that are not finite, constant or too many maps.
    """

    def refuse(problem: str) -> DataError:
        return DataError("E280", site=site, detail=problem)

    path = next((base / name for name in TEMPLATE_FILES if (base / name).is_file()), None)
    if path is None:
        raise refuse(f"none of {', '.join(TEMPLATE_FILES)} is in {base}; put the owner's there")
    try:
        maps = _of_image(path, space) if ".nii" in path.name else _of_array(path)
    except Exception as err:  # readers raise what they like; the text stays here
        raise refuse(f"{path.name} cannot be read: {err}") from err
    if maps.ndim != 2 or len(maps) != space.n_features or maps.shape[1] < 2:
        wanted = f"{space.n_features} features and 2 maps or more"
        raise refuse(f"{path.name} holds {maps.shape}, needed {wanted}")
    if not np.all(np.isfinite(maps)):
        raise refuse(f"{path.name} holds NaN or infinite numbers; replace them")
    if maps.size > MOST_TEMPLATE_NUMBERS:
        raise refuse(
            f"{path.name} holds {maps.size} numbers, allowed {MOST_TEMPLATE_NUMBERS}; use a "
            "coarser grid or fewer maps"
        )
    if float(np.min(np.std(maps, axis=0))) == 0.0 or np.linalg.matrix_rank(maps) < maps.shape[1]:
        raise refuse(f"{path.name} has a constant map, or maps that depend on each other")
    return space.with_templates(maps)


def _of_array(path: Path) -> Array:
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) != 1:
                raise ValueError(f"{len(names)} arrays, expected one")
            found = read_member(archive, names[0].removesuffix(".npy"), path.stat().st_size)
        return np.asarray(found, dtype=np.float64)
    if path.suffix == ".npy":
        with path.open("rb") as stream:
            return np.asarray(read_array(stream, path.stat().st_size), dtype=np.float64)
    first = path.read_text(encoding="utf-8-sig").partition("\n")[0]
    try:
        [float(cell) for cell in first.split(",")]
        head = 0
    except ValueError:
        head = 1  # names of the maps
    table: Array = np.loadtxt(path, delimiter=",", skiprows=head, ndmin=2, encoding="utf-8-sig")
    return table


def _of_image(path: Path, space: FeatureSpace) -> Array:
    import nibabel as nib

    image: Any = nib.load(path)
    plain: Any = nib.as_closest_canonical(image)
    if space.kind == "matrix":
        raise ValueError("an image, but the features are columns of matrices")
    values = np.asarray(plain.dataobj, dtype=np.float64)
    grid = grid_of(space)
    if values.ndim != 4 or values.shape[:3] != grid.shape:
        raise ValueError(f"shape {values.shape}, expected {(*grid.shape, 'K')}")
    corners = np.array(np.meshgrid(*[(-0.5, n - 0.5) for n in grid.shape])).reshape(3, -1)
    corners = np.vstack([corners, np.ones(corners.shape[1])])
    off = np.linalg.norm(((plain.affine - grid.affine) @ corners)[:3], axis=0).max()
    if off > SHIFT * grid.voxel_size:
        raise ValueError(f"the grid is {off:.2f} mm off; resample it to the mask")
    return np.stack(
        [grid.gather(values[..., k][grid.inside]) for k in range(values.shape[3])], axis=1
    ).astype(np.float64)
