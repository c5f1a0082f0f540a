"""Does an image lie on the consortium's grid?  Flips and swapped axes are undone, no more.

Rule (docs: common-space handshake): after flips and permutations the shape is that of the mask, and
no corner of the grid is displaced by more than a hundredth of the smallest voxel edge.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.data.findings import Rejected
from cape.data.series import Note
from cape.data.space import Grid
from cape.frozen import dataclass

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

SILENT = 0.001
"""Displacement in voxels below which nothing is said: rounding of single precision."""

ACCEPTED = 0.01
"""Displacement in voxels below which an image is accepted with a warning."""

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where the mask's voxels lie in a stored volume.

    Attributes
    ----------
    index : ndarray of int, shape (n_inside,), or None
        Positions in the stored (Fortran) order of one volume, in C order of the mask.  None: there
        is no grid, or the image lies on another one and is to be resampled.
    word : str
        "ok", "reoriented", "resampled", a displacement such as "0.004 vox", or "-".
    affine : ndarray, shape (4, 4)
        Of the stored volume, mm.
    """

    index: Index | None
    word: str
    affine: Array


def displacement(a: Array, b: Array, shape: tuple[int, ...]) -> float:
    """Return the largest distance, mm, of the outer corners of a grid under two affines (4, 4)."""
    ends = np.asarray(list(itertools.product(*((-0.5, n - 0.5) for n in shape))))
    moved = ends @ (a - b)[:3, :3].T + (a - b)[:3, 3]
    return float(np.max(np.linalg.norm(moved, axis=1)))


def place(
    header: Nifti1Header,
    shape: tuple[int, ...],
    grid: Grid | None,
    notes: list[Note],
    *,
    trust: bool,
    to_mask: bool = False,
) -> Placement:
    """Return where the mask's voxels lie in a stored volume.

    Parameters
    ----------
    header : Nifti1Header
        Of the image.
    shape : tuple of int
        Its first three axes.
    grid : Grid or None
        The consortium's grid; None checks the image alone.
    notes : list of Note
        Receives rows 15, 16, 18, 20.
    trust : bool
        Accept an image without affine if its shape fits.
    to_mask : bool
        Accept an image on another grid, to be resampled.
    """
    affine = _affine(header, shape, notes)
    if affine is None:
        affine = _trusted(shape, grid, notes, trust=trust)
    if grid is None:
        return Placement(index=None, word="-", affine=affine)
    from nibabel import orientations

    try:
        turn = orientations.io_orientation(affine)
    except np.linalg.LinAlgError:
        raise _no_affine("an affine that no grid can have") from None
    if np.isnan(turn).any():
        raise _no_affine("a singular affine")
    stored = np.arange(int(np.prod(shape)), dtype=np.intp).reshape(shape, order="F")
    turned = orientations.apply_orientation(stored, turn)
    as_stored = affine
    affine = affine @ orientations.inv_ornt_aff(turn, shape)
    try:
        word = _compare(affine, turned.shape, grid, notes)
    except Rejected as verdict:
        if not to_mask:
            raise
        notes.append(
            Note(
                row=verdict.row, what="An image on another grid was resampled to the mask's",
                found=verdict.found, expected=verdict.expected,
            )
        )  # fmt: skip
        return Placement(index=None, word="resampled", affine=as_stored)
    if not np.array_equal(turn, [[0, 1], [1, 1], [2, 1]]):
        codes = "".join(str(c) for c in orientations.ornt2axcodes(turn))
        notes.append(
            Note(row=20, what="Axes were flipped or swapped to the mask's", found=f"{codes} to RAS")
        )
        word = "reoriented"
    index = np.asarray(turned[grid.inside], dtype=np.intp)
    return Placement(index=index, word=word, affine=as_stored)


def _compare(affine: Array, shape: tuple[int, ...], grid: Grid, notes: list[Note]) -> str:
    """Return a word on the displacement, or raise row 17 or 19."""
    if shape != grid.shape:
        edges = np.linalg.norm(affine[:3, :3], axis=0)
        raise Rejected(
            17, "Image grid differs from the consortium mask",
            found=f"shape {shape}, voxel {_edges(edges)}",
            expected=f"{grid.shape}, {grid.voxel_size:.1f} mm",
            fix='resample to the mask first, or ask the owner for resample = "to_mask"',
        )  # fmt: skip
    mm = displacement(affine, grid.affine, grid.shape)
    voxels = mm / grid.voxel_size
    if voxels > ACCEPTED:
        raise Rejected(
            19, "Image lies elsewhere than the consortium mask",
            found=f"displaced by {mm:.3g} mm ({voxels:.2g} voxels)",
            expected=f"at most {ACCEPTED * grid.voxel_size:.2g} mm",
            fix="another MNI variant? Use the images of the mask's space",
        )  # fmt: skip
    if voxels <= SILENT:
        return "ok"
    notes.append(
        Note(
            row=18, what="Affine differs from the mask's by rounding, accepted",
            found=f"{mm:.2g} mm", expected=f"at most {ACCEPTED * grid.voxel_size:.2g} mm",
        )
    )  # fmt: skip
    return f"{voxels:.3f} vox"


def _edges(edges: Array) -> str:
    same = float(np.ptp(edges)) < 0.01
    return f"{edges[0]:.1f} mm" if same else " x ".join(f"{e:.1f}" for e in edges) + " mm"


def _affine(header: Nifti1Header, shape: tuple[int, ...], notes: list[Note]) -> Array | None:
    """Return sform before qform, None without both; row 16 if they disagree."""
    import nibabel as nib

    sform = header.get_sform(coded=True)[0]
    if sform is not None and not np.isfinite(sform).all():
        raise _no_affine("an sform that is not finite")
    try:
        qform = header.get_qform(coded=True)[0]
    except (nib.spatialimages.HeaderDataError, ValueError):
        qform = None
    if qform is not None and not np.isfinite(qform).all():
        raise _no_affine("a qform that is not finite")
    if sform is None or qform is None:
        chosen = qform if sform is None else sform
        return None if chosen is None else np.asarray(chosen, dtype=np.float64)
    sform, qform = np.asarray(sform, dtype=np.float64), np.asarray(qform, dtype=np.float64)
    edge = float(np.min(np.linalg.norm(sform[:3, :3], axis=0)))
    mm = displacement(sform, qform, shape)
    if edge > 0 and mm / edge > ACCEPTED:
        codes = ["".join(str(c) for c in nib.aff2axcodes(a)) for a in (sform, qform)]
        if ("L" in codes[0]) != ("L" in codes[1]):
            raise Rejected(
                16, "The two affines of an image disagree about left and right",
                found=f"sform {codes[0]}, qform {codes[1]}", expected="the same axes",
                fix="set both to the one you checked by eye",
            )  # fmt: skip
        notes.append(
            Note(
                row=16, what="The two affines of an image differ; sform was used",
                found=f"{mm:.3g} mm", expected=f"at most {ACCEPTED * edge:.2g} mm",
            )
        )  # fmt: skip
    return sform


def _trusted(shape: tuple[int, ...], grid: Grid | None, notes: list[Note], *, trust: bool) -> Array:
    """Return the mask's affine for an image without one, or raise row 15."""
    if not trust or (grid is not None and shape != grid.shape):
        raise _no_affine(f"sform and qform are 0, shape {shape}")
    notes.append(
        Note(
            row=15, what="An image has no affine; the mask's was taken, as the manifest says",
            found=f"shape {shape}",
        )
    )  # fmt: skip
    return np.eye(4) if grid is None else grid.affine


def _no_affine(found: str) -> Rejected:
    return Rejected(
        15, "An image has no affine, so nobody knows where it lies", found=found,
        expected="sform or qform", fix="save it with its affine; if it was made on the mask's "
        "grid, write trust_grid = 1 in the manifest",
    )  # fmt: skip
