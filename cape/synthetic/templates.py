"""Public template maps that are partly right: for trying ``separation=template``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.estimators import Array, Data
from cape.data import Grid


def correlated(maps: Array, smooth_noise: Array, r: float) -> Array:
    """Return maps that correlate exactly r with the given ones, shape (D, R), std 1.

    Parameters
    ----------
    maps : ndarray, shape (D, R)
        True maps.
    smooth_noise : ndarray, shape (D, R)
        What the rest of each template is made of.
    r : float
        In 0..1.
    """
    truth = maps - maps.mean(axis=0)
    truth /= np.linalg.norm(truth, axis=0)
    rest = smooth_noise - smooth_noise.mean(axis=0)
    rest -= truth * np.sum(truth * rest, axis=0)
    rest /= np.linalg.norm(rest, axis=0)
    mixed = r * truth + np.sqrt(1.0 - r * r) * rest
    return np.asarray(mixed * np.sqrt(float(len(maps))))


def write_image_templates(
    folders: list[Path], grid: Grid, maps: Array, r: float, rng: np.random.Generator
) -> None:
    """Write ``templates.nii.gz`` into every site's folder."""
    import nibabel as nib

    edges = np.linalg.norm(grid.affine[:3, :3], axis=0)
    mm = (float(edges[0]), float(edges[1]), float(edges[2]))
    noise = kernel.smooth(grid.inside, mm, rng.standard_normal(maps.shape))
    volume: Data = np.zeros((*grid.shape, maps.shape[1]), dtype=np.float32)
    volume[grid.inside] = correlated(maps, noise, r)
    image = nib.Nifti1Image(volume, grid.affine)
    image.set_sform(grid.affine, code="mni")
    for folder in folders:
        nib.save(image, folder / "templates.nii.gz")


def write_matrix_templates(
    folders: list[Path], shape: tuple[int, int], maps: Array, r: float, rng: np.random.Generator
) -> None:
    """Write ``templates.npy`` into every site's folder."""
    noise = kernel.smooth_image(shape, rng.standard_normal(maps.shape))
    for folder in folders:
        np.save(folder / "templates.npy", correlated(maps, noise, r), allow_pickle=False)
