"""Names for components: the best matching network of a public atlas, or of the user's own maps.

A reading aid; any smooth map resembles some network, so each match stands beside chance: the 95th
percentile of the best r over random directions in the span of the maps.  Built-in: networks of 160
regions by Dosenbach et al. (2010), whose coordinates nilearn installs.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.delimited import rows_by_column
from cape.errors import ConfigError
from cape.feature_space import is_cifti
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace
from cape.report import files, maps
from cape.report.maps import Component
from cape.report.results import LabelSource

ATLAS = "dosenbach_2010"
# mm; a network is a sum of Gaussians of this width at its coordinates
BLOB_SD = 9.0
DIRECTIONS = 500
# Percentile of the best |r| of random directions
CHANCE = 95.0
# Largest difference of two affines, mm, that counts as the same grid
SAME_GRID = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Template:
    """Public maps to compare with: values (D, K) on the features, one label per map."""

    name: str
    labels: tuple[str, ...]
    values: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The best template of one map: label, signed Pearson r, and the |r| that chance gives."""

    label: str
    r: float
    chance: float


def bundled(space: FeatureSpace) -> Template | None:
    """Networks of the atlas on an MNI space; None without a grid and without nilearn."""
    table = _table()
    if not space.on_grid or table is None:
        return None
    where = maps.coordinates(space)
    # Single coordinates become blobs, because a released map is smooth and a point matches nothing.
    rows = rows_by_column(table.read_bytes(), ",")
    networks: dict[str, list[Array]] = {}
    for row in rows:
        centre = np.array([float(row[axis]) for axis in "xyz"])
        distance = np.sum((where - centre) ** 2, axis=1)
        networks.setdefault(row["network"], []).append(np.exp(-distance / (2.0 * BLOB_SD**2)))
    names = sorted(networks)
    values = np.stack([np.sum(networks[name], axis=0) for name in names], axis=1)
    return Template(name=ATLAS, labels=tuple(names), values=values)


def _table() -> Path | None:
    # Importing nilearn takes seconds, for a table of 160 lines.
    try:
        spec = importlib.util.find_spec("nilearn")
    except ValueError:  # a test's stand-in for a missing library
        return None
    places = spec.submodule_search_locations if spec is not None else None
    for place in places or ():
        table = Path(place) / "datasets" / "data" / f"{ATLAS}.csv"
        if table.is_file():
            return table
    return None


def of_image(path: Path, space: FeatureSpace, names: Sequence[str] = ()) -> Template:
    """Volumes of the user's own image as templates; ConfigError: CAPE-E270 to E273."""
    if not space.on_grid:
        raise ConfigError("E270", got=space.kind)
    image = _on_grid(_read(path), space)
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    volumes = volumes[..., None] if volumes.ndim == 3 else volumes
    count = volumes.shape[3]
    # A shifted list would name every component after its neighbour.
    if names and len(names) != count:
        raise ConfigError("E273", got=len(names), allowed=count)
    grid = space.labels()
    values = np.nan_to_num(volumes[grid > 0])
    if space.kind == "atlas":
        values = maps.means_by_parcel(values, grid)
    labels = tuple(names) or tuple(f"T{k:02d}" for k in range(1, count + 1))
    name = path.name.removesuffix(".gz").removesuffix(".nii")
    return Template(name=name, labels=labels, values=values)


def of_user(
    result: Path, template: Path, names: Path | None, *, feature_space: str
) -> tuple[Array, Template]:
    """Return the z-maps of a group_maps.nii.gz, and the user's image on their voxels."""
    if not result.is_file():
        raise ConfigError("E270", got=feature_space)
    image = files.load_image(result)
    # The files do not hold the mask, so a voxel counts where any map is not 0; parcels therefore
    # count by their size.
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    mask = np.any(volumes != 0, axis=3)
    space = FeatureSpace.of_labels("mask", mask.astype(np.int32), np.asarray(image.affine))
    return volumes[mask], of_image(template, space, _names(names))


def _names(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        detail = f"{path.name}: {err}"
        raise ConfigError("E271", got="no readable list of names", detail=detail) from err
    # A tab inside a name would break the table of components.
    return tuple(files.line(text) for text in lines if text.strip())


def _read(path: Path) -> Any:
    nibabel: Any = importlib.import_module("nibabel")
    try:
        image = nibabel.load(path)
        shape = tuple(image.shape)
    except Exception as err:  # nibabel raises what it likes for what is no image
        raise ConfigError("E271", got="nothing readable", detail=f"{path.name}: {err}") from err
    if len(shape) not in (3, 4):
        raise ConfigError("E271", got=f"{len(shape)} dimensions", detail=path.name)
    return image


def _on_grid(image: Any, space: FeatureSpace) -> Any:
    affine = np.asarray(space.affine).reshape(4, 4)
    # Programs round affines when they save them.
    near = np.abs(np.asarray(image.affine) - affine).max() <= SAME_GRID
    if tuple(image.shape[:3]) == space.shape and near:
        return image
    # Labels are a reading aid, so interpolation is good enough here; subjects are never resampled
    # without being asked.
    try:
        resampling: Any = importlib.import_module("nilearn.image")
    except ImportError:
        raise ConfigError("E272") from None
    return resampling.resample_img(
        image,
        target_affine=affine,
        target_shape=space.shape,
        interpolation="continuous",
        force_resample=True,
        copy_header=True,
    )


def match(z: Array, template: Template) -> tuple[Match, ...]:
    """Best template of every map (D, R); constant templates match nothing."""
    reference = _unit(template.values)
    # The sign of a map is a convention, so the strongest |r| counts and its sign is kept.
    r = _unit(z).T @ reference
    best = np.argmax(np.abs(r), axis=1)
    chance = _chance(z, reference)
    return tuple(
        Match(label=template.labels[j], r=float(r[k, j]), chance=chance)
        for k, j in enumerate(best.tolist())
    )


def _chance(z: Array, reference: Array) -> float:
    # Fixed directions: the same maps have to give the same file.
    span = np.linalg.qr(z - z.mean(axis=0))[0]
    directions = np.random.default_rng(0).standard_normal((DIRECTIONS, span.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    best = np.abs(directions @ (span.T @ reference)).max(axis=1)
    return float(np.percentile(best, CHANCE))


def _unit(values: Array) -> Array:
    """Columns of mean 0 and length 1; zeros for constant ones."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    # Rounding leaves a constant column about 1e-16 of its size away from its mean.
    real = length > 1e-12 * (np.linalg.norm(values, axis=0) + 1e-300)
    return np.asarray(np.where(real, centred / np.where(real, length, 1.0), 0.0))


# What time courses may say of a component that gets a name; None where they were not asked
CONFIRMED: Final = (None, "confirmed", "run confirmed")


def labelled(rows: Sequence[Component], z: Array, template: Template) -> tuple[Component, ...]:
    # A name would make a finding of a map that its time courses did not confirm, and of chance.
    return tuple(
        replace(
            row,
            label=best.label if abs(best.r) > best.chance else None,
            label_r=best.r,
            label_chance=best.chance,
        )
        if row.verdict in CONFIRMED
        else row
        for row, best in zip(rows, match(z, template), strict=True)
    )


def source(template: Template | None, settings: Mapping[str, object]) -> LabelSource:
    if template is None:
        why = (
            "the features are plain columns"
            if settings.get("feature_space") == "matrix"
            else "the maps are those of grayordinates or parcels"
            if is_cifti(str(settings.get("feature_space")))
            else "nobody said that the grid is in MNI space (setting space), or there is no nilearn"
        )
        return LabelSource(template=None, labels=(), note=f"No labels: {why}.")
    note = (
        "label: best |r| among the labels; label_chance: 95th percentile of the best |r| of "
        f"{DIRECTIONS} random directions in the span of the released maps."
    )
    return LabelSource(template=template.name, labels=template.labels, note=note)
