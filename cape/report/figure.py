"""All maps of a result in one figure, for a screen, a notebook or a paper."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cape.algorithms.estimators import Array
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import component_names
from cape.report import brain
from cape.report.maps import volumes_of
from cape.report.plots import COLOURS, colour_limit, new_figure

COLUMNS = 5
# Inches of one panel
PANEL = 1.9


def maps_figure(z: Array, space: FeatureSpace) -> Any:
    """Draw z-maps (D, R): on a grid three planes through each peak, else squares or stems.

    Returns a matplotlib Figure; |z| below the threshold is not coloured on a grid.
    """
    names, limit = component_names(z.shape[1]), colour_limit(z)
    if space.on_grid:
        affine = np.asarray(space.affine).reshape(4, 4)
        volumes = volumes_of(z, space)
        return brain.networks_figure(volumes, affine, names, limit, mni=space.in_mni)
    n_columns = min(COLUMNS, len(names))
    n_rows = math.ceil(len(names) / n_columns)
    figure = new_figure(PANEL * n_columns, (PANEL + 0.25) * n_rows)
    for k, name in enumerate(names):
        axes = figure.add_subplot(n_rows, n_columns, k + 1)
        axes.set_title(name, fontsize=9)
        if len(space.shape) == 2:
            style: dict[str, Any] = {"cmap": COLOURS, "vmin": -limit, "vmax": limit}
            axes.imshow(z[:, k].reshape(space.shape), interpolation="nearest", **style)
        else:
            axes.stem(z[:, k], markerfmt=" ", basefmt=" ")
        axes.set_xticks([])
        axes.set_yticks([])
    figure.supxlabel(f"|z| to {limit:g}", fontsize=9)
    figure.tight_layout()
    return figure
