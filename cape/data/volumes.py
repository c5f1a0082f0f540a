"""Single volumes on their way from the file to the mask: resampling and smoothing, nothing else.

scipy.ndimage is imported when a volume needs it.  The work is linear and per volume, so that one
volume is in memory at a time, whatever the length of the run.
"""

from __future__ import annotations

import numpy as np

from cape.algorithms.estimators import Array
from cape.frozen import dataclass

SD_PER_FWHM = 1 / np.sqrt(8 * np.log(2))


@dataclass(frozen=True, kw_only=True, slots=True)
class Resampling:
    """What the owner wants done to volumes.

    Attributes
    ----------
    smoothing_fwhm : float
        mm; 0 for none.
    to_mask : bool
        Bring images on another grid to that of the mask.
    """

    smoothing_fwhm: float = 0.0
    to_mask: bool = False


def smooth(volume: Array, affine: Array, fwhm: float) -> Array:
    """Return a volume (x, y, z) convolved with a Gaussian of `fwhm` mm; borders are repeated.

    Entries that are not finite count as 0 and stay what they were: a NaN does not spread.
    """
    from scipy import ndimage

    bad = ~np.isfinite(volume)
    edges = np.linalg.norm(affine[:3, :3], axis=0)
    filled = np.where(bad, 0.0, volume)
    done = ndimage.gaussian_filter(filled, fwhm * SD_PER_FWHM / edges, mode="nearest")
    return np.where(bad, volume, done)


def resample(volume: Array, affine: Array, shape: tuple[int, ...], target: Array) -> Array:
    """Return a volume on another grid, trilinear; 0 outside its field of view.

    Along an axis that becomes coarser the volume is smoothed first, with the new edge as full
    width at half maximum, so that nothing above the new sampling rate is folded back.

    Parameters
    ----------
    volume : ndarray, shape (x, y, z)
        Entries that are not finite stay so at the nearest new voxels.
    affine, target : ndarray, shape (4, 4)
        Old and new voxel to mm.
    shape : tuple of int
        New shape.
    """
    from scipy import ndimage

    matrix = np.linalg.inv(affine) @ target
    bad = ~np.isfinite(volume)
    filled = np.where(bad, 0.0, volume)
    old = np.linalg.norm(affine[:3, :3], axis=0)
    new = _edges_along(affine, target)
    wide = np.where(new > old * (1 + 1e-6), new, 0.0)
    if wide.any():
        filled = ndimage.gaussian_filter(filled, wide * SD_PER_FWHM / old, mode="nearest")
    done = ndimage.affine_transform(
        filled, matrix[:3, :3], offset=matrix[:3, 3], output_shape=shape, order=1, cval=0.0
    )
    if bad.any():
        nearest = {"offset": matrix[:3, 3], "output_shape": shape, "order": 0}
        spoiled = ndimage.affine_transform(bad.astype(np.float64), matrix[:3, :3], **nearest)
        done[spoiled > 0.5] = np.nan
    return np.asarray(done, dtype=np.float64)


def _edges_along(affine: Array, target: Array) -> Array:
    """Return the edge of the new voxels in mm along each old axis, shape (3,)."""
    axes = affine[:3, :3] / np.linalg.norm(affine[:3, :3], axis=0)
    return np.asarray(np.max(np.abs(axes.T @ target[:3, :3]), axis=1))
