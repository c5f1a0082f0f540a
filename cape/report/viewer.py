"""viewer.html: click through all maps on anatomy, in one file that needs no network.

The report has no scripts, so this is a separate page; it runs brainsprite, which nilearn installs.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.report import brain, files, page, public_networks
from cape.report.plots import THRESHOLD, draw_colour_bar

VIEWER_FILE: Final = "viewer.html"
# Paths in nilearn: from version 0.14 on, and before
SCRIPTS: Final = ("_assets/js/brainsprite.min.js", "plotting/data/js/brainsprite.min.js")


def script() -> str | None:
    """Return brainsprite as nilearn installs it; None without it."""
    paths = filter(None, map(public_networks.nilearn_file, SCRIPTS))
    return next((path.read_text(encoding="utf-8") for path in paths), None)


def write_viewer(
    folder: Path, sampled: brain.Sampled, titles: Sequence[str], limit: float, values: page.Values
) -> None:
    """Write the viewer of maps; without nilearn write no file."""
    code = script()
    if code is None:
        return
    canvas = sampled.canvas
    maps = [
        {
            "title": title,
            "png": _png(brain.colours_of(_sprite(drawn), limit)),
            "at": canvas.nearest(place),
        }
        for title, (drawn, place) in zip(titles, sampled, strict=True)
    ]
    step = [float(p[1] - p[0]) for p in canvas.places]
    first = [float(p[0]) for p in canvas.places]
    settings = {
        "shape": list(canvas.grey.shape),
        # brainsprite counts voxels from 1.
        "affine": [
            [step[k] if k == j else 0.0 for j in range(3)] + [first[k] - step[k]] for k in range(3)
        ],
        "limit": limit,
        "maps": maps,
    }
    text = page.viewer_html(
        code=code,
        # "<" in a name could end the script.
        data=json.dumps(settings).replace("<", "\\u003c"),
        anatomy=_png(np.repeat((255 * _sprite(canvas.grey))[..., None], 3, axis=2)),
        bar=_png(brain.colours_of(np.linspace(-limit, limit, 256)[None], limit)[..., :3]),
        scale=draw_colour_bar(limit, THRESHOLD),
        titles=titles,
        threshold=THRESHOLD,
        shape=canvas.grey.shape,
        **values,
    )
    files.write_text(folder / VIEWER_FILE, text)


def _sprite(volume: Array) -> Array:
    """Return all sagittal slices side by side, row by row, z upwards: brainsprite's order."""
    nx, ny, nz = volume.shape
    down = math.ceil(math.sqrt(nx))
    across = math.ceil(nx / down)
    tiles = np.zeros((down * across, nz, ny))
    tiles[:nx] = np.moveaxis(volume, 2, 1)[:, ::-1]
    rows = tiles.reshape(down, across, nz, ny).transpose(0, 2, 1, 3)
    return np.asarray(rows.reshape(down * nz, across * ny))


def _png(pixels: npt.NDArray[Any]) -> str:
    from PIL import Image

    target = io.BytesIO()
    # Rounding bytes is needless and slow.
    whole = pixels if pixels.dtype == np.uint8 else np.rint(pixels).astype(np.uint8)
    made = Image.fromarray(whole)
    # A map has few colours: 128 are enough.
    made = made.quantize(128) if pixels.shape[2] == 4 else made
    made.save(target, format="png", optimize=False, compress_level=9)
    return base64.b64encode(target.getvalue()).decode("ascii")
