"""Synthetic brains of `cape synth`: named networks, baseline, drift and noise as NIfTI images.

Coordinates are rounded textbook positions in MNI space (mm), not measurements.
"""

import gzip
from typing import Literal

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array, Data
from cape.data.space import Grid
from cape.frozen import dataclass

Centre = tuple[float, float, float]

NETWORKS: dict[str, tuple[Centre, ...]] = {
    "default-mode": ((0, -53, 26), (0, 52, -6), (-48, -62, 36), (46, -62, 32)),
    "visual": ((-10, -88, 2), (12, -88, 4)),
    "sensorimotor": ((-38, -26, 56), (40, -24, 56), (0, -10, 60)),
    "auditory": ((-54, -20, 8), (56, -18, 8)),
    "frontoparietal": ((-44, 32, 28), (44, 34, 28), (-44, -52, 48), (46, -50, 48)),
    "cingulo-opercular": ((0, 20, 38), (-36, 18, 2), (38, 20, 2)),
    "dorsal-attention": ((-26, -4, 54), (28, -4, 54), (-26, -64, 52), (26, -64, 52)),
    "cerebellar": ((-26, -68, -32), (28, -68, -32)),
    "basal-ganglia": ((-24, 6, 2), (26, 6, 2)),
    "language": ((-50, 22, 14), (-54, -42, 4)),
}

# Standard deviation of every blob, mm
BLOB_WIDTH = 9.0

# 2-norm of every map on the 10 mm grid: about 1.5 % of BASELINE at a peak
MAP_NORM = 50.0

BASELINE = 1000.0
# Trace of the noise covariance over that of the signal, in voxels
NOISE = 0.5

# Extent of the template and position of its first voxel at 1 mm, mm
EXTENT = (193.0, 229.0, 193.0)
CORNER = (-96.5, -132.5, -78.5)
# Signal outside the brain
AROUND = 200.0

# Largest linear change of a voxel over a run
DRIFT = 10.0

# Resolution of the int16 images (scl_slope)
STEP = 0.1

Storage = Literal["int16", "int16 left", "float32", "int16 qform"]
# Storage of the sites in turn: plain, x from right to left, float, qform in place of sform
STORAGES: tuple[Storage, ...] = ("int16", "int16 left", "float32", "int16 qform")


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scanner:
    """Turns time courses into images."""

    grid: Grid  # of the mask
    maps: Array  # (D, R): true maps A
    tr: float  # repetition time, s
    voxel_mm: float = 0.0  # of images on the template's grid, as fMRIPrep's; 0: the mask's grid

    def series(self, rng: np.random.Generator, courses: Data) -> Data:
        """Return voxels of one run, shape (D, T): baseline, drift, A S and white noise."""
        n_voxels, n_times = self.maps.shape[0], courses.shape[1]
        phase = np.linspace(0, 3 * np.pi, n_voxels)
        baseline = BASELINE * (1 + 0.2 * np.cos(phase))
        ramp = np.linspace(-0.5, 0.5, n_times)
        noise_std = np.sqrt(NOISE * np.sum(self.maps**2) / n_voxels)
        values = self.maps.astype(np.float32) @ courses
        values += np.float32(noise_std) * rng.standard_normal(values.shape, dtype=np.float32)
        drift = DRIFT * np.sin(phase + rng.uniform(0, 2 * np.pi))
        values += (baseline[:, None] + np.outer(drift, ramp)).astype(np.float32)
        return values

    def image(self, values: Data, storage: Storage) -> bytes:
        """Return a gzipped NIfTI file of voxels (D, T); equal input gives equal bytes."""
        import nibabel as nib

        volume = np.zeros((*self.grid.shape, values.shape[1]), dtype=np.float32)
        if self.voxel_mm:  # signal of the head around the brain
            change = STEP * (np.arange(values.shape[1]) % 7)
            volume += (AROUND + change).astype(np.float32)
        volume[self.grid.inside] = values
        affine = self.grid.affine
        if self.voxel_mm:
            volume, affine = on_template_grid(volume, affine, self.voxel_mm)
        if storage == "int16 left":
            # From right to left: readers must use the affine.
            volume = volume[::-1]
            affine = affine @ np.array(
                [[-1, 0, 0, volume.shape[0] - 1], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1.0]]
            )
        stored: npt.NDArray[np.generic] = volume
        if storage != "float32":
            stored = np.rint(volume / np.float32(STEP)).astype(np.int16)
        image = nib.Nifti1Image(stored, affine)
        image.header.set_xyzt_units("mm", "sec")
        image.header.set_zooms((*image.header.get_zooms()[:3], self.tr))
        if storage == "int16 qform":
            # Some scanners' software leaves the sform empty.
            image.set_qform(affine, code="mni")
            image.set_sform(None, code=0)
        else:
            image.set_sform(affine, code="mni")
        content = bytearray(image.to_bytes())
        if storage != "float32":
            # Set the slope in the finished header: nibabel would rescale the data.
            content[112:120] = np.array([STEP, 0.0], dtype="<f4").tobytes()
        return gzip.compress(bytes(content), compresslevel=1, mtime=0)


def on_template_grid(volume: Data, affine: Array, mm: float) -> tuple[Data, Array]:
    """Interpolate volumes (x, y, z, T) linearly on the grid of MNI152NLin2009cAsym.

    Return them with the affine of this grid of `mm` voxels (97 x 115 x 97 at 2 mm).  The input's
    `affine` must be diagonal except for its origin.
    """
    from scipy import ndimage

    shape = tuple(int(np.ceil(extent / mm)) for extent in EXTENT)
    target = np.diag([mm, mm, mm, 1.0])
    target[:3, 3] = CORNER
    steps = np.diag(affine)[:3]
    start = (np.array(CORNER) - affine[:3, 3]) / steps
    moved = [
        ndimage.affine_transform(image, mm / steps, start, shape, order=1, mode="nearest")
        for image in np.moveaxis(volume, 3, 0)
    ]
    return np.stack(moved, axis=3), target


def voxel_positions(grid: Grid) -> Array:
    """Return the centres of the mask's voxels, mm, shape (D, 3), in mask order."""
    index = np.argwhere(grid.inside)
    return np.asarray(index @ grid.affine[:3, :3].T + grid.affine[:3, 3])


def network_maps(grid: Grid, names: tuple[str, ...]) -> Array:
    """Return maps (D, R) of equal 2-norm: Gaussian blobs at the centres of each network."""
    positions = voxel_positions(grid)
    maps = []
    for name in names:
        blobs = [
            np.exp(-np.sum((positions - centre) ** 2, axis=1) / (2 * BLOB_WIDTH**2))
            for centre in np.array(NETWORKS[name])
        ]
        network = np.sum(blobs, axis=0)
        maps.append(network / np.linalg.norm(network))
    norm = MAP_NORM * (10.0 / grid.voxel_size) ** 1.5  # the same peaks on a finer grid
    return np.asarray(np.stack(maps, axis=1) * norm)
