"""Positions of the mask's voxels in an image.

An image is on the mask's grid if its shape is the same after flips and permutations of axes, and no
corner is displaced by more than a hundredth of the smallest voxel edge.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.data.issues import Issue, IssueCode, UnusableFile
from cape.data.space import ACCEPTED, Grid, Index, displacement
from cape.frozen import dataclass

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

# Width of a volume, mm: others are in m, or in micrometres.
LEAST_WIDTH: Final = 1.0
MOST_WIDTH: Final = 1000.0
# By how much the imaginary part of a rotation may be longer than 1
LENGTH_ROUNDED: Final = 1e-4
# Displacement in voxels that is not noted: rounding of single precision.
MAX_UNNOTED: Final = 0.001

_RESAMPLED = {
    IssueCode.GRID_OTHER: IssueCode.GRID_RESAMPLED,
    IssueCode.PLACE_OTHER: IssueCode.PLACE_RESAMPLED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Alignment:
    """Positions of the mask's voxels in a stored volume."""

    # (n_inside,): positions in the stored (Fortran) order of one volume, in C order of the mask.
    # None: there is no grid, or the image lies on another one and is to be resampled.
    index: Index | None
    word: str  # "ok", "reoriented", "resampled", a displacement such as "0.004 vox", or "-"
    affine: Array  # (4, 4): of the stored volume, mm

    def place(self, shape: tuple[int, ...]) -> str:
        """Return a digest of the grid, to a tenth of a mm; 16 hex digits."""
        where = np.rint(self.affine * 10).astype(np.int64).tobytes()
        return hashlib.sha256(repr(shape[:3]).encode() + where).hexdigest()[:16]


def align_to_grid(
    header: Nifti1Header,
    shape: tuple[int, ...],
    grid: Grid | None,
    issues: list[Issue],
    *,
    trust: bool,
    resample: bool = False,
    native: bool = False,
) -> Alignment:
    """Find the mask's voxels in a volume of `shape`; without a grid the image alone is checked.

    `trust` accepts an image without affine if its shape fits; `resample` accepts another grid,
    unless the image is `native`, in the space of one person's brain.
    """
    affine = _affine_of(header, shape, issues)
    if affine is None:
        if not trust or (grid is not None and shape != grid.shape):
            raise _no_affine(f"sform and qform are 0, shape {shape}")
        issues.append(Issue(IssueCode.AFFINE_TRUSTED, f"shape {shape}"))
        affine = np.eye(4) if grid is None else grid.affine
    if grid is None:
        return Alignment(index=None, word="-", affine=affine)
    from nibabel import orientations

    try:
        turn = orientations.io_orientation(affine)
    except np.linalg.LinAlgError:
        raise _no_affine("an affine that no grid can have") from None
    if np.isnan(turn).any():
        raise _no_affine("a singular affine")
    width = float(np.max(np.linalg.norm(affine[:3, :3], axis=0) * shape))
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        limits = {"least": LEAST_WIDTH, "most": MOST_WIDTH}
        raise UnusableFile(IssueCode.VOLUME_SIZE, f"{width:.3g} mm", **limits)
    # Reorient an image of positions instead of the data: it says where to read.
    stored = np.arange(int(np.prod(shape)), dtype=np.intp).reshape(shape, order="F")
    turned = orientations.apply_orientation(stored, turn)
    turned_affine = affine @ orientations.inv_ornt_aff(turn, shape)
    try:
        word = _compare(turned_affine, turned.shape, grid, issues)
    except UnusableFile as verdict:
        issue = verdict.issue
        if native:
            raise UnusableFile(IssueCode.NATIVE_IMAGE, issue.observed) from None
        if not resample:
            raise
        issues.append(Issue(_RESAMPLED[issue.code], issue.observed, issue.values))
        return Alignment(index=None, word="resampled", affine=affine)
    if not np.array_equal(turn, [[0, 1], [1, 1], [2, 1]]):
        codes = "".join(str(c) for c in orientations.ornt2axcodes(turn))
        issues.append(Issue(IssueCode.AXES_TURNED, f"{codes} to RAS"))
        word = "reoriented"
    index = np.asarray(turned[grid.inside], dtype=np.intp)
    return Alignment(index=index, word=word, affine=affine)


def _compare(affine: Array, shape: tuple[int, ...], grid: Grid, issues: list[Issue]) -> str:
    if shape != grid.shape:
        edges = np.linalg.norm(affine[:3, :3], axis=0)
        same = float(np.ptp(edges)) < 0.01
        voxel = f"{edges[0]:.1f}" if same else " x ".join(f"{e:.1f}" for e in edges)
        observed = f"shape {shape}, voxel {voxel} mm"
        limits = {"shape": grid.shape, "voxel": grid.voxel_size}
        raise UnusableFile(IssueCode.GRID_OTHER, observed, **limits)
    mm = displacement(affine, grid.affine, grid.shape)
    voxels = mm / grid.voxel_size
    most = ACCEPTED * grid.voxel_size
    if voxels > ACCEPTED:
        observed = f"displaced by {mm:.3g} mm ({voxels:.2g} voxels)"
        raise UnusableFile(IssueCode.PLACE_OTHER, observed, most=most)
    if voxels <= MAX_UNNOTED:
        return "ok"
    issues.append(Issue(IssueCode.GRID_ROUNDED, f"{mm:.2g} mm", {"most": most}))
    return f"{voxels:.3f} vox"


def _affine_of(header: Nifti1Header, shape: tuple[int, ...], issues: list[Issue]) -> Array | None:
    """Return the sform, else the qform, else None."""
    import nibabel as nib

    sform = header.get_sform(coded=True)[0]
    if sform is not None and not np.isfinite(sform).all():
        raise _no_affine("an sform that is not finite")
    try:
        qform = _unit_quaternion(header).get_qform(coded=True)[0]
    except (nib.spatialimages.HeaderDataError, ValueError):
        qform = None
    if qform is not None and not np.isfinite(qform).all():
        raise _no_affine("a qform that is not finite")
    if sform is None or qform is None:
        only = qform if sform is None else sform
        return None if only is None else np.asarray(only, dtype=np.float64)
    sform, qform = np.asarray(sform, dtype=np.float64), np.asarray(qform, dtype=np.float64)
    edge = float(np.min(np.linalg.norm(sform[:3, :3], axis=0)))
    mm = displacement(sform, qform, shape)
    if edge > 0 and mm / edge > ACCEPTED:
        codes = ["".join(str(c) for c in nib.aff2axcodes(a)) for a in (sform, qform)]
        # A brain does not show which side is left, so no later check would find the error.
        if ("L" in codes[0]) != ("L" in codes[1]):
            observed = f"sform {codes[0]}, qform {codes[1]}"
            raise UnusableFile(IssueCode.AFFINES_FLIPPED, observed)
        most = ACCEPTED * edge
        issues.append(Issue(IssueCode.AFFINES_DIFFER, f"{mm:.3g} mm", {"most": most}))
    return sform


def _unit_quaternion(header: Nifti1Header) -> Nifti1Header:
    """Return a header whose rotation is of length 1 where rounding made it longer (NIfTI-1)."""
    names = ("quatern_b", "quatern_c", "quatern_d")
    length = math.hypot(*(float(header[name]) for name in names))
    if not 1 < length <= 1 + LENGTH_ROUNDED:
        return header
    header = header.copy()
    for name in names:
        header[name] = float(header[name]) / length
    return header


def _no_affine(observed: str) -> UnusableFile:
    return UnusableFile(IssueCode.AFFINE_MISSING, observed)
