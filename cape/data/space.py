"""The public feature space of a run: bundled masks, mapped mask and atlas files.

Everything is reoriented to the closest RAS axes before it is hashed, so that the same mask in
another storage order has the same digest.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.config import Config
from cape.data.file_type import check_contents
from cape.data.findings import Findings, Rejected
from cape.feature_space import MOST_LABELS, FeatureSpace
from cape.frozen import dataclass

if TYPE_CHECKING:
    import nibabel as nib

MASKS = Path(__file__).resolve().parents[1] / "masks"
MASK_FILES = ("mask.nii", "mask.nii.gz")
ATLAS_FILES = ("atlas.nii", "atlas.nii.gz")
TEMPLATE_FILES = ("templates.nii.gz", "templates.nii", "templates.npy",
                  "templates.npz", "templates.csv")  # fmt: skip

MOST_VOXELS = 70_000
"""Largest mask: 3 mm has 69,765 voxels; finer grids give smoother pictures, no information."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A feature space unpacked for reading images.

    Attributes
    ----------
    shape : tuple of int
        Axes x, y, z.
    affine : ndarray, shape (4, 4)
        Voxel to mm.
    inside : ndarray of bool, shape `shape`
        Voxels that are read.
    parcel : ndarray of int, shape (n_inside,)
        Feature of each voxel inside, in C order; 0 .. D - 1.
    sizes : ndarray, shape (D,)
        Voxels per feature.
    """

    shape: tuple[int, ...]
    affine: Array
    inside: npt.NDArray[np.bool_]
    parcel: npt.NDArray[np.intp]
    sizes: Array

    @property
    def voxel_size(self) -> float:
        """Smallest edge of a voxel, mm."""
        return float(np.min(np.linalg.norm(self.affine[:3, :3], axis=0)))

    def gather(self, voxels: Array) -> Data:
        """Return features of one volume: voxels inside, shape (n_inside,) -> (D,)."""
        if self.sizes.size == self.parcel.size:
            return voxels.astype(np.float32)
        sums = np.bincount(self.parcel, weights=voxels, minlength=self.sizes.size)
        return (sums / self.sizes).astype(np.float32)


@functools.lru_cache(maxsize=4)
def grid_of(space: FeatureSpace) -> Grid:
    """Return the grid of a mask or an atlas; features are in the order of rising labels."""
    labels = space.labels()
    inside = labels > 0
    _, parcel, sizes = np.unique(labels[inside], return_inverse=True, return_counts=True)
    if space.kind == "mask":
        parcel, sizes = np.arange(int(inside.sum())), np.ones(int(inside.sum()), dtype=np.intp)
    for array in (inside, parcel):
        array.flags.writeable = False
    return Grid(
        shape=space.shape,
        affine=np.array(space.affine).reshape(4, 4),
        inside=inside,
        parcel=parcel.ravel().astype(np.intp),
        sizes=sizes.astype(np.float64),
    )


def mask_space(
    config: Config, base: Path | None = None, *, site: str = "this site"
) -> FeatureSpace:
    """Return the feature space of a mask or an atlas.

    Parameters
    ----------
    config : Config
        `feature_space`, `mask`, `mask_hash`, `atlas`, `max_features`.
    base : Path, optional
        Folder with ``mask.nii.gz`` or the atlas; not needed for bundled masks.
    site : str
        Public id for texts.

    Returns
    -------
    FeatureSpace
        Of kind "mask" or "atlas".

    Raises
    ------
    DataError
        The file is missing, no mask, empty, too large, or not the owner's `mask_hash`.
    """
    findings = Findings(site)
    space = read_space(config, base, findings)
    findings.raise_if_blocked()
    if space is None:
        raise ValueError("a matrix has no mask")
    return space


def read_space(config: Config, base: Path | None, findings: Findings) -> FeatureSpace | None:
    """Return the space of a mask or atlas, or None after noting what is wrong with its file."""
    if config.feature_space == "matrix":
        return None
    kind: Literal["mask", "atlas"] = "atlas" if config.feature_space == "atlas" else "mask"
    path = _file_of(config, kind, base, findings)
    if path is None:
        return None
    try:
        if path.parent != MASKS:
            check_contents(path, (".nii", ".nii.gz"))
        labels, affine = _labels(path, kind, findings)
    except Rejected as verdict:
        findings.reject(verdict, path.name)
        return None
    space = FeatureSpace.of_labels(kind, labels, affine)
    _check_limits(space, config, findings)
    if config.mask_hash and config.mask_hash.lower() != space.digest:
        findings.add(
            24, "E", f"The {kind} is another one than the owner's",
            f"{path.name}: {space.digest}", expected=config.mask_hash,
            fix="use the owner's file", field=kind, sites=f"{findings.site} and mask_hash",
        )  # fmt: skip
    return space


def reserved_names(config: Config) -> tuple[str, ...]:
    """Return file names in a site's folder that are mask, atlas or templates, not data."""
    return (*MASK_FILES, *ATLAS_FILES, *TEMPLATE_FILES, config.atlas)


def _file_of(config: Config, kind: str, base: Path | None, findings: Findings) -> Path | None:
    if kind == "mask" and config.mask != "file":
        return MASKS / f"{config.mask}.nii.gz"
    names = MASK_FILES if kind == "mask" else (config.atlas,) if config.atlas else ATLAS_FILES
    for name in names:
        if base is not None and Path(name).name == name and (base / name).is_file():
            return base / name
    findings.add(
        1, "E", f"The {kind} file is missing", f"{' or '.join(names)} in {base}",
        expected=f"the {kind} that the owner sent, in the site's folder", fix="put it there",
    )  # fmt: skip
    return None


def _labels(path: Path, kind: str, findings: Findings) -> tuple[npt.NDArray[np.int32], Array]:
    """Return labels (x, y, z) on the closest RAS axes, and the affine."""
    import nibabel as nib

    try:
        image: Any = nib.load(path)
        if math.prod(image.shape) > MOST_LABELS:
            raise ValueError(f"shape {image.shape}, at most {MOST_LABELS} voxels")
        values = np.asarray(image.dataobj, dtype=np.float64)
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise Rejected(
            22, f"The {kind} cannot be read", found=str(err), fix="copy it again"
        ) from err
    if int(image.header["sform_code"]) == 0 and int(image.header["qform_code"]) == 0:
        raise Rejected(
            15, f"The {kind} has no affine", found="sform and qform are 0",
            expected="a space", fix="save it with its affine",
        )  # fmt: skip
    if values.ndim == 4 and values.shape[3] == 1:
        findings.add(23, "W", f"The {kind} has a fourth axis of length 1, squeezed", path.name)
        values = values[..., 0]
    if values.ndim != 3:
        raise Rejected(
            22, f"The {kind} is not one volume", found=f"shape {values.shape}",
            expected="three axes", fix=f"use the {kind} that the owner sent",
        )  # fmt: skip
    try:
        plain = nib.as_closest_canonical(_image(values, image.affine))
    except Exception as err:  # of nibabel and of numpy, by what is wrong with it
        raise Rejected(
            15, f"The {kind} has an affine that no grid can have", found=str(err),
            expected="an invertible affine", fix="save it with its affine",
        ) from err  # fmt: skip
    values = np.asarray(plain.dataobj)
    labels = _binary(values, path.name, findings) if kind == "mask" else _whole(values)
    if not (labels > 0).any():
        raise Rejected(
            23, f"The {kind} is empty", found=f"0 of {labels.size} voxels",
            expected="voxels above 0", fix=f"use the {kind} that the owner sent",
        )  # fmt: skip
    return labels, np.asarray(plain.affine, dtype=np.float64)


def _image(values: Array, affine: Array) -> nib.Nifti1Image:
    import nibabel as nib

    return nib.Nifti1Image(values, affine)


def _binary(values: Array, name: str, findings: Findings) -> npt.NDArray[np.int32]:
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        raise Rejected(
            22, "The mask holds numbers outside 0 to 1",
            found=f"{np.nanmin(values):g} to {np.nanmax(values):g}", expected="0 and 1",
            fix="save it as 0 and 1",
        )  # fmt: skip
    inside = values > 0.5
    if not np.isin(values, (0.0, 1.0)).all():
        findings.add(
            22, "W", "The mask is not binary; voxels above 0.5 are inside",
            f"{name}: {int(inside.sum())} voxels", expected="0 and 1",
        )  # fmt: skip
    if inside.all():
        findings.add(23, "W", "The mask has all voxels inside", f"{name}: {inside.size} voxels")
    return inside.astype(np.int32)


def _whole(values: Array) -> npt.NDArray[np.int32]:
    limit = np.iinfo(np.int32).max
    whole = np.isfinite(values).all() and (values == np.rint(values)).all()
    if not whole or values.min() < 0 or values.max() > limit:
        raise Rejected(
            22, "The atlas holds numbers that are no labels",
            found=f"{np.nanmin(values):g} to {np.nanmax(values):g}",
            expected="whole numbers, 0 outside", fix="use a label image, not probabilities",
        )  # fmt: skip
    return values.astype(np.int32)


def _check_limits(space: FeatureSpace, config: Config, findings: Findings) -> None:
    """Note row 45: more features than can be worked on."""
    if space.kind == "mask" and space.n_features > MOST_VOXELS:
        findings.add(
            45, "E", "The mask has too many voxels",
            f"{space.n_features} voxels, {space.n_features * 4e-6 * 250:.0f} MB per subject of "
            "250 time points",
            expected=f"at most {MOST_VOXELS}", fix="use a coarser grid such as MNI152-4mm",
            setting="mask", got=f"{space.n_features} voxels", allowed=MOST_VOXELS,
            do="use a coarser grid such as MNI152-4mm.",
        )  # fmt: skip
    if space.kind == "atlas":
        too_many_features(space.n_features, config, findings)


def too_many_features(n_features: int, config: Config, findings: Findings) -> None:
    """Note row 45 for spaces without a basis, where d = D."""
    if n_features > config.max_features and config.basis != "dct":
        mb = n_features * (n_features + 1) * 4 / 1e6
        findings.add(
            45, "E", "There are too many features for a run without a basis",
            f"{n_features} features, {mb:.0f} MB per release", expected=f"at most "
            f"{config.max_features}", fix="use fewer parcels, a basis, or raise max_features",
            setting="max_features", got=n_features, allowed=config.max_features,
            do="use fewer parcels or columns, or basis = dct.",
        )  # fmt: skip
