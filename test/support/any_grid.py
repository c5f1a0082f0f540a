"""One stored volume to the mask's voxels by scipy alone: the form whose bits `cape.data` gives."""

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.data import images
from cape.data.resampling import SD_PER_FWHM, anti_alias_fwhm, edges_of, voxel_map
from cape.data.space import Grid


def picker(
    layout: images._Layout, alignment: images.Alignment, grid: Grid, how: images.Resampling
) -> images.Picker:
    """Return what brings one stored volume to the mask's voxels, whatever the grid and entries."""

    def pick(stored: npt.NDArray[np.generic]) -> Array:
        if alignment.index is not None and not how.smoothing_fwhm:
            return stored[alignment.index].astype(np.float64) * layout.slope + layout.inter
        volume = stored.reshape(layout.shape[:3], order="F").astype(np.float64)
        volume = volume * layout.slope + layout.inter
        if alignment.index is None:
            volume = resample_volume(volume, alignment.affine, grid.shape, grid.affine)
        if how.smoothing_fwhm:
            affine = grid.affine if alignment.index is None else alignment.affine
            volume = smooth_volume(volume, affine, how.smoothing_fwhm)
        if alignment.index is None:
            return np.asarray(volume[grid.inside])
        return np.asarray(volume.ravel(order="F")[alignment.index])

    return pick


def smooth_volume(volume: Array, affine: Array, fwhm: float) -> Array:
    """Return a volume (x, y, z) convolved with a Gaussian of `fwhm` mm; borders are repeated."""
    from scipy import ndimage

    # Entries that are not finite count as 0 and stay what they were: a NaN does not spread.
    bad = ~np.isfinite(volume)
    filled = np.where(bad, 0.0, volume)
    done = ndimage.gaussian_filter(filled, fwhm * SD_PER_FWHM / edges_of(affine), mode="nearest")
    return np.where(bad, volume, done)


def resample_volume(volume: Array, affine: Array, shape: tuple[int, ...], target: Array) -> Array:
    """Return (x, y, z) on another grid, trilinear, 0 outside; affines (4, 4) are voxel to mm."""
    from scipy import ndimage

    matrix = voxel_map(affine, target, shape)
    bad = ~np.isfinite(volume)
    filled = np.where(bad, 0.0, volume)
    wide = anti_alias_fwhm(affine, target)
    if wide.any():
        sds = wide * SD_PER_FWHM / edges_of(affine)
        filled = ndimage.gaussian_filter(filled, sds, mode="nearest")
    done = ndimage.affine_transform(
        filled, matrix[:3, :3], offset=matrix[:3, 3], output_shape=shape, order=1, cval=0.0
    )
    # What is not finite stays so at the nearest new voxels.
    if bad.any():
        nearest = {"offset": matrix[:3, 3], "output_shape": shape, "order": 0}
        spoiled = ndimage.affine_transform(bad.astype(np.float64), matrix[:3, :3], **nearest)
        done[spoiled > 0.5] = np.nan
    return np.asarray(done, dtype=np.float64)
