"""The public feature space of a run, from files: bundled masks, a mapped mask, atlas.

All are reoriented to the closest RAS axes before hashing: storage order does not change a digest.
"""

import functools
import itertools
import math
import re
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.data.file_type import CIFTI_MAPS, check_type
from cape.data.issues import Findings, IssueCode, UnusableFile
from cape.errors import FoundError, own_words
from cape.frozen import dataclass
from cape.settings.config import Config
from cape.settings.resolved import resolve
from cape.space.feature_space import MAX_LABELS, MNI152, FeatureSpace

MASKS: Final = Path(__file__).resolve().parents[1] / "space" / "masks"
MASK_FILES: Final = ("mask.nii", "mask.nii.gz")
ATLAS_FILES: Final = ("atlas.nii", "atlas.nii.gz")
# Names of the labels of an atlas
LABEL_TABLES: Final = ("atlas.tsv", "atlas.csv", "atlas.txt")
STRUCTURE_FILES: Final = ("structure.dscalar.nii", "structure.pscalar.nii")
TEMPLATE_FILES: Final = ("templates.nii.gz", "templates.nii", "templates.npy", "templates.csv")
# The maps of a finished run are templates of the next
RUN_MAPS: Final = tuple(f"group_maps{kind}" for kind in (".nii.gz", ".csv", *CIFTI_MAPS))

# Largest mask: a whole brain at 1 mm has 1.8 million voxels.
MAX_MASK_VOXELS: Final = 2_000_000

# Displacement in voxels up to which an image or templates are on the mask's grid.
ACCEPTED: Final = 0.01

# How far a stored label may lie from a whole number
ROUNDED: Final = 1e-3

# NIFTI_XFORM_SCANNER_ANAT
SCANNER_CODE: Final = 1
# Values of the entity space- that mean the space of one person.
NATIVE_NAMES: Final = ("T1w", "T2w", "orig", "native", "individual", "subject", "func", "bold")

Index = npt.NDArray[np.intp]
Labels = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A feature space unpacked for reading images."""

    shape: tuple[int, ...]
    affine: Array  # (4, 4): voxel to mm
    inside: npt.NDArray[np.bool_]  # (x, y, z): the voxels that are read
    parcel: npt.NDArray[np.intp]  # (n_inside,): the feature of each, 0 .. D - 1, in C order
    sizes: Array  # (D,): voxels of each feature
    template_space: str = ""  # empty if not stated

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


def displacement(a: Array, b: Array, shape: tuple[int, ...]) -> float:
    """Return the largest distance, mm, of the outer corners of a grid under two affines (4, 4)."""
    # In mm at the corners, not number by number: a tiny rotation moves the far end by a voxel.
    ends = np.asarray(list(itertools.product(*((-0.5, n - 0.5) for n in shape))))
    moved = ends @ (a - b)[:3, :3].T + (a - b)[:3, 3]
    return float(np.max(np.linalg.norm(moved, axis=1)))


@functools.lru_cache(maxsize=4)
def grid_of(space: FeatureSpace) -> Grid:
    """Return the grid of a mask or an atlas; features are in the order of rising labels."""
    labels = space.labels()
    inside = labels > 0
    _, parcel, sizes = np.unique(labels[inside], return_inverse=True, return_counts=True)
    if space.kind == "mask":
        parcel, sizes = np.arange(int(inside.sum())), np.ones(int(inside.sum()), dtype=np.intp)
    for array in (inside, parcel):
        array.flags.writeable = False  # shared by all callers
    return Grid(
        shape=space.shape,
        affine=np.array(space.affine).reshape(4, 4),
        inside=inside,
        parcel=parcel.ravel().astype(np.intp),
        sizes=sizes.astype(np.float64),
        template_space=space.template_space,
    )


def mask_space(
    config: Config, base: Path | None = None, *, site: str = "this site"
) -> FeatureSpace:
    """As `read_space`, without `base` if bundled; DataError: no usable file, or not `mask_hash`."""
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
            check_type(path, (".nii", ".nii.gz"))
        labels, affine, stated = label_volume(path, kind, findings)
    except UnusableFile as verdict:
        findings.add_issue(verdict.issue, path.name)
        return None
    template_space = config.space or stated
    space = FeatureSpace.of_labels(kind, labels, affine, template_space)
    _check_limits(space, config, findings)
    check_hash(space, config, path, findings)
    return space


def check_hash(space: FeatureSpace, config: Config, path: Path, findings: Findings) -> None:
    """Note a mask, atlas or structure that is not the owner's, by its digest.

    Of an image the SHA-256 of the file is taken, too; a structure has further files, its spheres.
    """
    kind = "structure" if space.of_cifti else space.kind
    wanted = config.mask_hash.strip().lower()
    if wanted in ("", space.digest):
        return
    if space.of_cifti or wanted != sha256(path.read_bytes()).hexdigest():
        place = f"{path.name}: {space.digest}"
        public = {"field": kind, "sites": f"{findings.site} and mask_hash"}
        findings.add(IssueCode.MASK_OTHER, place, public=public, kind=kind, wanted=config.mask_hash)


def reserved_names(config: Config) -> tuple[str, ...]:
    """Return file names in a site's folder that are mask, atlas or templates, not data."""
    owners = (*MASK_FILES, *ATLAS_FILES, *LABEL_TABLES, *STRUCTURE_FILES, *TEMPLATE_FILES)
    return (*owners, *RUN_MAPS, config.atlas, config.mask)


def is_bundled(config: Config) -> bool:
    """Tell whether the mask, if there is one, is in this package."""
    return config.mask.startswith("MNI152-") and "." not in config.mask


def _file_of(config: Config, kind: str, base: Path | None, findings: Findings) -> Path | None:
    if kind == "mask" and is_bundled(config):
        return MASKS / f"{config.mask}.nii.gz"
    given = config.atlas if kind == "atlas" else config.mask if config.mask != "file" else ""
    names = (given,) if given else MASK_FILES if kind == "mask" else ATLAS_FILES
    for name in names:
        # The owner chooses the name: one with a path could lead out of the site's folder.
        if base is not None and Path(name).name == name and (base / name).is_file():
            return base / name
    findings.add(IssueCode.MASK_MISSING, f"{' or '.join(names)} in {base}", kind=kind)
    return None


def space_of(name: str, header: Any) -> str:
    """Return the template space that a file's name or else its header states; empty if none."""
    if stated := stated_space(name):
        return stated
    return {3: "Talairach", 4: MNI152}.get(transform_code(header), "")


def transform_code(header: Any) -> int:
    """Return the NIfTI code of the space that the affine leads to; 0 if not stated."""
    return int(header["sform_code"]) or int(header["qform_code"])


def stated_space(name: str) -> str:
    """Return the template space that a file's name states; empty if none."""
    # An entity of BIDS or TemplateFlow; shapes and affines say nothing about the space.
    stated = re.search(r"(?:^|_)(?:space|tpl)-([A-Za-z0-9]+)", name)
    return stated.group(1) if stated else ""


def one_space(a: str, b: str) -> bool:
    """Tell whether two known spaces are the same; a header says MNI152 without the kind."""
    return bool(a and b) and (a == b or (MNI152 in (a, b) and a[: len(MNI152)] == b[: len(MNI152)]))


def label_volume(path: Path, kind: str, findings: Findings) -> tuple[Labels, Array, str]:
    """Return labels (x, y, z) on the closest RAS axes, the affine, and the space stated."""
    import nibabel as nib

    try:
        image = _nifti(path)
        if math.prod(image.shape) > MAX_LABELS:
            raise FoundError(f"shape {image.shape}, at most {MAX_LABELS} voxels")
        values = np.asarray(image.dataobj, dtype=np.float64)
    except Exception as err:  # readers raise various errors for damaged files
        raise UnusableFile(
            IssueCode.MASK_UNREADABLE, own_words(err, "no whole image"), kind=kind
        ) from err
    # Without a code nibabel invents an affine from the voxel sizes.
    if not transform_code(image.header):
        raise UnusableFile(IssueCode.MASK_AFFINE_MISSING, "sform and qform are 0", kind=kind)
    if values.ndim == 4 and values.shape[3] == 1:
        findings.add(IssueCode.MASK_SQUEEZED, path.name, kind=kind)
        values = values[..., 0]
    if values.ndim != 3 or not values.size:
        raise UnusableFile(IssueCode.MASK_AXES, f"shape {values.shape}", kind=kind)
    try:
        plain = nib.as_closest_canonical(nib.Nifti1Image(values, image.affine))
    except Exception as err:  # nibabel and NumPy raise various errors
        observed = "its axes do not span a space"
        raise UnusableFile(IssueCode.MASK_AFFINE_SINGULAR, observed, kind=kind) from err
    values = np.asarray(plain.dataobj)
    # 255 with a scale of 1/255 is 1.00000006; programs that resample write 3.00005.
    whole = np.rint(values)
    values = np.where(np.abs(values - whole) < ROUNDED, whole, values)
    labels = _binary(values, path.name, findings) if kind == "mask" else _whole(values)
    if not (labels > 0).any():
        raise UnusableFile(IssueCode.MASK_EMPTY, f"0 of {labels.size} voxels", kind=kind)
    return labels, np.asarray(plain.affine, dtype=np.float64), space_of(path.name, image.header)


def _nifti(path: Path) -> Any:
    """Load a NIfTI image; ValueError for another kind, whose XML nibabel reads without a bound."""
    import nibabel as nib

    others = (nib.Cifti2Image, nib.GiftiImage)
    image = None if any(kind.path_maybe_image(path)[0] for kind in others) else nib.load(path)
    if not isinstance(image, nib.nifti1.Nifti1Pair):
        raise FoundError("no NIfTI image")
    return image


def _binary(values: Array, name: str, findings: Findings) -> Labels:
    # A probability map between 0 and 1 can be cut at a half; other numbers mean something else.
    if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
        observed = f"{np.nanmin(values):g} to {np.nanmax(values):g}"
        raise UnusableFile(IssueCode.MASK_RANGE, observed)
    inside = values > 0.5
    if not np.isin(values, (0.0, 1.0)).all():
        findings.add(IssueCode.MASK_NOT_BINARY, f"{name}: {int(inside.sum())} voxels")
    if inside.all():
        findings.add(IssueCode.MASK_FULL, f"{name}: {inside.size} voxels")
    return inside.astype(np.int32)


def _whole(values: Array) -> Labels:
    limit = np.iinfo(np.int32).max
    whole = np.isfinite(values).all() and (values == np.rint(values)).all()
    if not whole or values.min() < 0 or values.max() > limit:
        observed = f"{np.nanmin(values):g} to {np.nanmax(values):g}"
        raise UnusableFile(IssueCode.ATLAS_LABELS, observed)
    return values.astype(np.int32)


def _check_limits(space: FeatureSpace, config: Config, findings: Findings) -> None:
    n = space.n_features
    if space.kind == "mask" and n > MAX_MASK_VOXELS:
        place = f"{n} voxels, {n * 4e-6 * 250:.0f} MB per subject of 250 time points"
        remedy = "use a grid of 1 mm or coarser."
        public = {"setting": "mask", "got": f"{n} voxels", "allowed": MAX_MASK_VOXELS, "do": remedy}
        findings.add(IssueCode.MASK_TOO_LARGE, place, public=public, most=MAX_MASK_VOXELS)
    if space.kind == "atlas":
        check_feature_count(n, config, findings)


def check_feature_count(n_features: int, config: Config, findings: Findings) -> None:
    """Note too many features for spaces without a basis, where d = D."""
    if n_features <= config.max_features or resolve(config).basis in ("dct", "kernel"):
        return
    # A release holds the upper triangle of a D x D matrix in 64-bit integers.
    mb = n_features * (n_features + 1) * 4 / 1e6
    place, most = f"{n_features} features, {mb:.0f} MB per release", config.max_features
    remedy = "use fewer parcels or columns, or basis = dct."
    public = {"setting": "max_features", "got": n_features, "allowed": most, "do": remedy}
    findings.add(IssueCode.FEATURES_TOO_MANY, place, public=public, most=most)
