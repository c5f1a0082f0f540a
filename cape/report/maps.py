"""The released maps A as files and numbers, from released and public quantities only."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.component_order import peaks, variance_explained, z_scores
from cape.algorithms.estimators import Array
from cape.delimited import written_cell
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import component_names
from cape.report import files
from cape.report.plots import THRESHOLD, colour_limit
from cape.space.feature_space import FEATURE, coordinates


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One row of components.tsv, fields in the order of its columns."""

    name: str
    # Share of the retained variance, from released matrices; not explained variance of the data.
    # None for spatial components, which have unit variance each.
    share: float | None
    skewness: float
    kurtosis: float  # excess
    peak_feature: int  # from 1: voxel of the mask in C order, parcel, column
    peak_name: str | None = None  # of a column that the settings name
    peak_x_mm: float | None = None
    peak_y_mm: float | None = None
    peak_z_mm: float | None = None
    peak_z: float
    size_mm3: float | None = None  # volume with |z| from THRESHOLD on
    # About 95 % of the features are within `noise_z` of the map without noise, whose correlation
    # with this one is `expected_r`.
    noise_z: float | None = None
    expected_r: float | None = None
    # Verdict of the time courses (`algorithms.verdict`), and c, the curvature of its pairs
    verdict: str | None = None
    curvature: float | None = None
    # Spatial maps of brains if the left-right test is clear (`algorithms.claims`): yes, likely,
    # uncertain, or image; P(|r| > .5) and P(|r| > .7) with a network of other people; name of its
    # mirror image.  Without noise (`SplitHalf`): in halves, or maybe; |r| between halves of these
    # people.  Then, for some: sharp, few regions.
    found_again: str | None = None
    claimed: float | None = None
    claimed_strict: float | None = None
    r_halves: float | None = None
    mirror_of: str | None = None
    # Of a spatial map of the recipe: mean |r| with itself under other draws of the noise, without
    # noise of the choice of people
    stability: float | None = None
    # The most similar public network, and its set; `label` is its name if |r| is above chance
    nearest: str | None = None
    nearest_set: str | None = None
    label: str | None = None
    label_r: float | None = None
    label_chance: float | None = None  # |r| that chance reaches


# Effective number of parcels, (sum z^2)^2 / sum z^4, below which a map is of one to three regions,
# mostly a left-right pair, and no network.  In simulated cohorts of 60 to 400 parcels without noise
# all 69 pairs that were found again were below it and none of 223 networks, with noise 1 of 313.
MIN_REGIONS: Final = 4.0
# What `Component.found_again` says of such a map
FEW_REGIONS: Final = "few regions"
_PARCELS: Final = ("atlas", "parcels")


def of_few_regions(row: Component, feature_space: str, n_features: int) -> bool:
    """Whether a map of so many parcels is of one to three of them."""
    return feature_space in _PARCELS and n_features < MIN_REGIONS * (row.kurtosis + 3.0)


def describe(
    released: Array, space: FeatureSpace, columns: Sequence[str] = (), *, shares: bool = True
) -> tuple[Component, ...]:
    """Return the figures of the maps A (D, R), in final order and sign; `columns`: names of D."""
    z = z_scores(released)
    share, at = variance_explained(released), peaks(z)
    skewness, kurtosis = np.mean(z**3, axis=0), np.mean(z**4, axis=0) - 3.0
    where, volume = coordinates(space), _volumes_of_features(space)
    return tuple(
        Component(
            name=name,
            share=float(share[k]) if shares else None,
            skewness=float(skewness[k]),
            kurtosis=float(kurtosis[k]),
            peak_feature=int(at[k]) + 1,
            peak_name=columns[at[k]] if columns else None,
            **{f"peak_{axis}_mm": x for axis, x in zip("xyz", where[at[k]].tolist(), strict=False)},
            peak_z=float(z[at[k], k]),
            size_mm3=None
            if volume is None
            else round(float(volume[np.abs(z[:, k]) >= THRESHOLD].sum()), 3),
        )
        for k, name in enumerate(component_names(released.shape[1]))
    )


def _volumes_of_features(space: FeatureSpace) -> Array | None:
    """Return the volume of each feature (voxel or parcel), mm3 (D,); None without a grid."""
    if not space.on_grid:
        return None
    voxel = abs(float(np.linalg.det(np.asarray(space.affine).reshape(4, 4)[:3, :3])))
    labels = space.labels()
    if space.kind == "mask":
        return np.full(space.n_features, voxel)
    return np.asarray(np.unique(labels[labels > 0], return_counts=True)[1] * voxel)


def file_of(status: str) -> str:
    """Return the name of the file of maps, which tells if no networks were found."""
    return "unconfirmed_maps" if status == "nothing_found" else "group_maps"


# Endings of the files of maps, by feature space
ENDINGS = {
    "mask": ".nii.gz",
    "atlas": ".nii.gz",
    "matrix": ".csv",
    "grayordinates": ".dscalar.nii",
    "parcels": ".pscalar.nii",
}


# Lists of the files that hold one map each: of the consortium, and of a site's people
MAP_LIST = "maps.tsv"


def free_file_of(verdict: str | None) -> str:
    """Return the name of the free spatial maps' file, by the verdict of their left-right test."""
    return "unconfirmed_spatial_maps" if verdict == "nothing" else "spatial_maps"


def write_maps(
    folder: Path,
    name: str,
    maps: Array,
    space: FeatureSpace | None,
    *,
    stamp: str,
    digits: str = ".9g",
    level: int = 9,
    columns: Sequence[str] = (),
) -> None:
    """Write maps (D, R) as ``name`` with the ending of their feature space (`ENDINGS`)."""
    # Names of `columns` stand before the rows of a table.
    if space is not None and space.of_cifti:
        from cape.report.surfaces import cifti_of

        path = folder / f"{name}{ENDINGS[space.kind]}"
        path.write_bytes(cifti_of(maps, space, stamp=stamp))
        return
    if space is not None and space.on_grid:
        image = image_of(maps, space, stamp=stamp).to_bytes()
        # mtime=0: equal maps give equal bytes.
        packed = gzip.compress(image, compresslevel=level, mtime=0)
        (folder / f"{name}.nii.gz").write_bytes(packed)
        return
    rows = [[format(value, digits) for value in row] for row in maps.tolist()]
    head = [*([FEATURE] if columns else []), *component_names(maps.shape[1])]
    if columns:
        rows = [[written_cell(column), *row] for column, row in zip(columns, rows, strict=True)]
    text = "".join(",".join(row) + "\n" for row in (head, *rows))
    files.write_text(folder / f"{name}.csv", text)


def volumes_of(z: Array, space: FeatureSpace) -> Array:
    """Return maps (D, R) on the grid, shape (x, y, z, R), float32."""
    labels = space.labels()
    mask = labels > 0
    # Outside is 0, not NaN: most viewers show NaN as data.
    volumes = np.zeros((*space.shape, z.shape[1]), dtype=np.float32)
    parcel = np.unique(labels[mask], return_inverse=True)[1].ravel()
    volumes[mask] = z[parcel] if space.kind == "atlas" else z
    return volumes


def image_of(z: Array, space: FeatureSpace, *, stamp: str = "cape") -> Any:
    """Return maps (D, R) of a grid as a 4-D Nifti1Image, in mm."""
    from nibabel.nifti1 import Nifti1Extension, Nifti1Image

    affine = np.asarray(space.affine, dtype=np.float64).reshape(4, 4)
    image = Nifti1Image(volumes_of(z, space), affine)
    # Viewers choose their coordinates by this code of NIfTI: 4 MNI152, 2 aligned to another space.
    code = 4 if space.in_mni else 2
    image.set_sform(affine, code=code)
    image.set_qform(affine, code=code)
    image.header.set_xyzt_units("mm")
    image.header["descrip"] = stamp.encode()
    # Name and first range of the values in viewers; NIfTI has no field for names of volumes.
    image.header.set_intent("z score", name="z-map")
    image.header["cal_min"], image.header["cal_max"] = THRESHOLD, colour_limit(z)
    names = f"volumes: {' '.join(component_names(z.shape[1]))}"
    image.header.extensions.append(Nifti1Extension("comment", names.encode()))
    return image


def write_single_maps(
    folder: Path,
    prefix: str,
    what: str,
    maps: Array,
    space: FeatureSpace,
    *,
    stamp: str,
    level: int = 9,
) -> Iterator[tuple[str, str]]:
    """Write maps (D, R) of a grid, each into a file named as BIDS has it; yield name and file."""
    # `prefix`: entities before those of the map, such as sub-01; `what`: which maps, for ``desc``.
    from nibabel.nifti1 import Nifti1Extension, Nifti1Image

    whole = image_of(maps, space, stamp=stamp)
    place = f"space-{space.template_space}" if space.template_space.isalnum() else ""
    for k, name in enumerate(component_names(maps.shape[1])):
        header = whole.header.copy()
        header.extensions.clear()
        header.extensions.append(Nifti1Extension("comment", name.encode()))
        image = Nifti1Image(np.asarray(whole.dataobj)[..., k], whole.affine, header)
        entities = (prefix, place, f"desc-{what}{name}", "stat-z", "statmap.nii.gz")
        file = "_".join(filter(None, entities))
        packed = gzip.compress(image.to_bytes(), compresslevel=level, mtime=0)
        (folder / file).write_bytes(packed)
        yield name, file
