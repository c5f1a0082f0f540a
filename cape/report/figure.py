"""All maps of a result in one figure, for a screen, a notebook or a paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import component_names
from cape.report.plots import COLOURS, THRESHOLD, colour_limit, new_figure

COLUMNS = 5
# Inches of one panel
PANEL = 1.9


def maps_figure(z: Array, space: FeatureSpace) -> Any:
    """Draw z-maps (D, R): on a grid three planes through each peak, else squares or stems.

    Returns a matplotlib Figure; |z| below the threshold is not coloured on a grid.
    """
    names = component_names(z.shape[1])
    n_columns = min(COLUMNS, len(names))
    n_rows = math.ceil(len(names) / n_columns)
    width = 2.0 * PANEL if space.on_grid else PANEL
    figure = new_figure(width * n_columns, (PANEL + 0.25) * n_rows)
    limit = colour_limit(z)
    volumes = _volumes(z, space) if space.on_grid else None
    for k, name in enumerate(names):
        axes = figure.add_subplot(n_rows, n_columns, k + 1)
        axes.set_title(name, fontsize=9)
        style: dict[str, Any] = {"cmap": COLOURS, "vmin": -limit, "vmax": limit}
        if volumes is not None:
            planes = _planes(volumes[..., k])
            axes.set_facecolor("0.92")
            axes.imshow(np.where(np.abs(planes) < THRESHOLD, np.nan, planes), **style)
        elif len(space.shape) == 2:
            axes.imshow(z[:, k].reshape(space.shape), interpolation="nearest", **style)
        else:
            axes.stem(z[:, k], markerfmt=" ", basefmt=" ")
        axes.set_xticks([])
        axes.set_yticks([])
    where = f"|z| from {THRESHOLD:g} to {limit:g}" if volumes is not None else f"|z| to {limit:g}"
    figure.supxlabel(where, fontsize=9)
    figure.tight_layout()
    return figure


def _volumes(z: Array, space: FeatureSpace) -> Array:
    labels = space.labels()
    inside = labels > 0
    volumes = np.zeros((*space.shape, z.shape[1]))
    parcel = np.unique(labels[inside], return_inverse=True)[1].ravel()
    volumes[inside] = z[parcel] if space.kind == "atlas" else z
    return volumes


def _planes(volume: Array) -> Array:
    """Return the sagittal, coronal and axial plane through the largest |z|, side by side."""
    x, y, z = np.unravel_index(int(np.abs(volume).argmax()), volume.shape)
    planes = [np.rot90(plane) for plane in (volume[x], volume[:, y], volume[:, :, z])]
    height = max(plane.shape[0] for plane in planes)
    # An empty column between two planes keeps their borders apart.
    padded = [np.pad(p, ((height - p.shape[0], 0), (0, 1))) for p in planes]
    return np.hstack(padded)
