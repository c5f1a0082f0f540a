"""Pictures of maps: rows of brain slices, squares of 2-D images, one common colour bar.

The background of a brain is the MNI152 template where the grid is one of ours, else the grey
outline of the mask; never a mean image, which would be private.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.report import files
from cape.report.components_chapter import THRESHOLD
from cape.report.page_model import Picture
from cape.report.plots import COLOURS, GREY, finish, new_figure

MNI_CUTS = (-32, -16, 0, 12, 24, 36, 48, 60)
STRIP = (10.0, 1.7)


def strips(
    path: Path, names: Sequence[str], alts: Sequence[str], limit: float, *, mni: bool
) -> Iterator[Picture]:
    """Yield eight axial slices for every map of an image.

    Parameters
    ----------
    path : Path
        Such as group_maps.nii.gz.
    names, alts : sequence of str
        Of each map.
    limit : float
        |z| of the darkest colour.
    mni : bool
        The grid is an MNI152 mask.
    """
    nibabel: Any = importlib.import_module("nibabel")
    plotting: Any = importlib.import_module("nilearn.plotting")
    image = files.load_image(path)
    volumes = np.asarray(image.dataobj, dtype=np.float32)
    affine = image.affine
    if not mni:
        volumes, affine = _with_margin(volumes, affine)
    inside = np.any(volumes != 0, axis=3)
    background, cuts = _background(mni=mni), MNI_CUTS if mni else _heights(inside, affine)
    outline = nibabel.Nifti1Image(inside.astype(np.float32), affine)
    for k, (name, alt) in enumerate(zip(names, alts, strict=True)):
        figure = new_figure(*STRIP)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about maps with nothing over the threshold
            display = plotting.plot_stat_map(
                nibabel.Nifti1Image(volumes[..., k], affine), bg_img=background,
                display_mode="z", cut_coords=list(cuts), threshold=THRESHOLD, vmin=-limit,
                vmax=limit, cmap=COLOURS, black_bg=False, colorbar=False, annotate=False,
                figure=figure, axes=(0, 0, 1, 1),
            )  # fmt: skip
            if background is None:
                display.add_contours(outline, levels=[0.5], colors=GREY, linewidths=0.8)
            display.annotate(size=10)
        yield finish(figure, alt=f"{alt} Eight axial slices.", caption=name, shape="strip")


def squares(
    z: Array, shape: tuple[int, ...], names: Sequence[str], alts: Sequence[str], limit: float
) -> Iterator[Picture]:
    """Yield every column of `z`, shape (D, R), as an image of `shape` (row-major)."""
    for k, (name, alt) in enumerate(zip(names, alts, strict=True)):
        figure = new_figure(2.0, 2.0 * min(shape[0] / shape[1], 2.0))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        axes.imshow(z[:, k].reshape(shape), cmap=COLOURS, vmin=-limit, vmax=limit,
                    interpolation="nearest", aspect="auto")  # fmt: skip
        axes.set_axis_off()
        yield finish(figure, alt=alt, caption=name, shape="square")


def colour_bar(limit: float, threshold: float, caption: str) -> Picture:
    """Return one horizontal bar with ticks at -limit, 0, limit; below the threshold it is grey."""
    figure = new_figure(4.2, 0.62)
    axes = figure.add_axes((0.06, 0.5, 0.88, 0.3))
    scale = np.linspace(-limit, limit, 512)
    shown = np.where(np.abs(scale) < threshold, np.nan, scale)[None]
    axes.set_facecolor("#d9d9d9")
    axes.imshow(shown, cmap=COLOURS, vmin=-limit, vmax=limit, aspect="auto",
                extent=(-limit, limit, 0.0, 1.0), interpolation="nearest")  # fmt: skip
    axes.set_yticks([])
    axes.set_xticks([-limit, 0.0, limit], [f"z = -{limit:g}", "0", f"z = {limit:g}"])
    axes.tick_params(length=3, labelsize=9)
    alt = f"Colour bar from blue, z minus {limit:g}, to red, z {limit:g}"
    alt += f"; |z| below {threshold:g} is not coloured." if threshold else "."
    return finish(figure, alt=alt, caption=caption, shape="bar")


def _background(*, mni: bool) -> Any:
    """Return the template, or None: then the outline of the mask is all there is to show."""
    if not mni:
        return None
    datasets: Any = importlib.import_module("nilearn.datasets")
    return datasets.load_mni152_template(resolution=3)


def _heights(inside: Any, affine: Array) -> tuple[float, ...]:
    """Return the heights of up to eight slices through a mask, mm."""
    height = (np.argwhere(inside) @ affine[2, :3]) + affine[2, 3]
    low, high = np.percentile(height, [5, 95])
    count = min(len(MNI_CUTS), max(1, math.ceil(float(high - low)) + 1))
    return tuple(float(cut) for cut in np.linspace(low, high, count))


def _with_margin(volumes: Any, affine: Array) -> tuple[Any, Array]:
    """Put one empty voxel around the grid, so that the outline of the mask is closed."""
    shifted = affine.copy()
    shifted[:3, 3] -= affine[:3, :3].sum(axis=1)
    return np.pad(volumes, ((1, 1), (1, 1), (1, 1), (0, 0))), shifted
