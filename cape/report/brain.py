"""Draw maps on a grid: three planes through a place over anatomy, and a glass brain.

Pages and the figure for a paper share the drawing.  Maps and anatomy are sampled on one
canvas with the axes of the brain, so that oblique grids are drawn upright; voxels are interpolated
there, the files keep their resolution.  Left is left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace
from cape.protocol.outcome import component_names
from cape.report import files, plots, public_networks
from cape.report.maps import volumes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Anatomy in MNI space, a file of nilearn, whose import takes seconds
ANATOMY: Final = "datasets/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
ANATOMY_STEP: Final = 2  # use every second of its voxels of 1 mm
# Picture of one map: width in inches, how much smaller its tile is; mm between two planes
PLANES_WIDTH: Final = 6.4
TILE_SHRINK: Final = 2
PLANE_GAP: Final = 8.0
# Grey of a brain without anatomy, and of the glass
PLAIN_GREY: Final = 0.86
GLASS_GREY: Final = 0.95
RIM_GREY: Final = 0.35
# Pixels of a page per point of the canvas
PIXELS_PER_POINT: Final = 2
# The sheet of one subject: inches, |z| of the darkest colour
SHEET_WIDTH: Final = 9.6
SHEET_LIMIT: Final = 6.0
# Figure for a paper: width in inches, maps side by side, height of a title and margin in inches
PAPER_WIDTH: Final = 7.2
PAPER_COLUMNS: Final = 2
TITLE_HEIGHT: Final = 0.2
PAPER_MARGIN: Final = 0.1
PAPER_DPI: Final = 300
# Maps without a grid: panels side by side, width of a panel in inches
SQUARES_ACROSS: Final = 5
PANEL_WIDTH: Final = 1.9
# Largest number of points along an axis of a canvas without anatomy
MAX_CANVAS_POINTS: Final = 200
# mm around a brain without anatomy
EMPTY_RIM: Final = 4.0
# Share of the mask around a point from which it is drawn, where anatomy tells the outline: coarse
# voxels end inside of it
RIM_SHARE: Final = 0.25
# Largest number of points added to the anatomy on a side, whatever the affine of a mask
MAX_WIDENED: Final = 20


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Canvas:
    """Points (x, y, z) in mm, the grey drawn below a map, and the map's voxels at them."""

    places: tuple[Array, Array, Array]
    grey: Array  # 0 to 1
    inside: npt.NDArray[np.bool_]  # where a map is drawn
    voxels: Array  # (3, n): coordinates of these points in the map's grid
    filled: npt.NDArray[np.int64]  # the nearest feature of each voxel, into a raveled volume
    smooth: bool  # whether values change between voxels; parcels have borders

    def values(self, volume: Array) -> Array:
        """Return a volume of the map's grid on the canvas, 0 outside of the features."""
        from scipy import ndimage

        sampled = np.zeros(self.inside.shape)
        source = np.asarray(volume, dtype=np.float64).ravel()[self.filled]
        order = 3 if self.smooth else 0
        sampled[self.inside] = ndimage.map_coordinates(
            source, self.voxels, order=order, mode="nearest"
        )
        return sampled

    def nearest(self, place: Array) -> list[int]:
        """Return the point nearest to a place in mm."""
        return [int(np.abs(p - x).argmin()) for p, x in zip(self.places, place, strict=True)]

    @property
    def step(self) -> float:
        """Mm between two points, along all axes."""
        return float(self.places[0][1] - self.places[0][0])

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in mm of three planes side by side."""
        x, y, z = (len(p) * self.step for p in self.places)
        return 2 * x + y + 3 * PLANE_GAP, max(y, z) + 2 * PLANE_GAP


@functools.cache
def _anatomy() -> tuple[tuple[Array, Array, Array], Array] | None:
    path = public_networks.nilearn_file(ANATOMY)
    if path is None:
        return None
    image = files.load_image(path)
    volume = np.asarray(image.dataobj, dtype=np.float64)[
        ::ANATOMY_STEP, ::ANATOMY_STEP, ::ANATOMY_STEP
    ]
    step, origin = ANATOMY_STEP * np.diag(image.affine)[:3], image.affine[:3, 3]
    # Bright, so that red and blue stand out; white outside the brain.
    scaled = volume / volume.max()
    brain = np.argwhere(scaled > 0.02)
    rim = math.ceil(EMPTY_RIM / ANATOMY_STEP)
    low = np.maximum(brain.min(axis=0) - rim, 0)
    high = np.minimum(brain.max(axis=0) + rim + 1, volume.shape)
    box = scaled[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
    x, y, z = (origin[k] + step[k] * np.arange(low[k], high[k]) for k in range(3))
    return (x, y, z), np.where(box > 0.02, 0.25 + 0.75 * box, 1.0)


def canvas_of(
    mask: npt.NDArray[np.bool_], affine: Array, *, mni: bool, parcels: bool = False
) -> Canvas:
    """Return the canvas of maps over this mask: MNI anatomy, else the outline of the mask."""
    from scipy import ndimage

    anatomy = _anatomy() if mni else None
    mm = np.argwhere(mask) @ affine[:3, :3].T + affine[:3, 3]
    if anatomy is None:
        # Never draw a mean image of subjects below a map: it would be a release.
        step = float(np.sqrt((affine[:3, :3] ** 2).sum(axis=0)).min())
        low, high = mm.min(axis=0) - EMPTY_RIM - step, mm.max(axis=0) + EMPTY_RIM + step
        step = max(step / 2.0, float((high - low).max()) / MAX_CANVAS_POINTS)
        x, y, z = (np.arange(a, b, step) for a, b in zip(low, high, strict=True))
        places, grey = (x, y, z), None
    else:
        # Half a voxel, and a point without colour, so that every outline is closed.
        rim = np.abs(affine[:3, :3]).sum(axis=1) / 2.0 + ANATOMY_STEP
        places, grey = _widened(*anatomy, mm.min(axis=0) - rim, mm.max(axis=0) + rim)
    inverse = np.linalg.inv(affine)
    mm_along, shape = np.ix_(*places), tuple(map(len, places))
    at = np.stack(
        [
            np.broadcast_to(
                inverse[k, 3] + sum(inverse[k, j] * mm_along[j] for j in range(3)), shape
            )
            for k in range(3)
        ]
    )
    share = ndimage.map_coordinates(mask.astype(np.float64), at, order=0 if parcels else 1)
    if grey is None:
        inside = share >= 0.5
        grey = np.where(inside, PLAIN_GREY, 1.0)
    else:
        inside = (share >= RIM_SHARE) & (grey < 1.0)
    _, nearest = ndimage.distance_transform_edt(~mask, return_indices=True)
    return Canvas(
        places=places,
        grey=grey,
        inside=inside,
        voxels=at[:, inside],
        filled=np.ravel_multi_index(tuple(nearest), mask.shape),
        smooth=not parcels,
    )


def _widened(
    places: tuple[Array, Array, Array], grey: Array, low: Array, high: Array
) -> tuple[tuple[Array, Array, Array], Array]:
    """Return anatomy with white around it where coarse voxels, from `low` to `high`, stick out."""
    excess = [(p[0] - a, b - p[-1]) for p, a, b in zip(places, low, high, strict=True)]
    widths = [
        [min(max(0, math.ceil(mm / ANATOMY_STEP)), MAX_WIDENED) for mm in pair] for pair in excess
    ]
    x, y, z = (
        p[0] + ANATOMY_STEP * np.arange(-before, len(p) + after)
        for p, (before, after) in zip(places, widths, strict=True)
    )
    return (x, y, z), np.pad(grey, widths, constant_values=1.0)


def place_of(volume: Array, mask: npt.NDArray[np.bool_], affine: Array) -> Array:
    """Return the place (mm) of the three planes: in the largest cluster of a map."""
    # On each axis it is the slice with the largest (mass of the cluster) x (area of the mask)^2:
    # mass alone would choose nearly empty slices at the rim.
    ijk = _largest_cluster(volume)
    mass = np.abs(volume[tuple(ijk.T)])
    place = []
    for axis in range(3):
        seen = mask.sum(axis=tuple(k for k in range(3) if k != axis)).astype(np.float64)
        weight = np.bincount(ijk[:, axis], weights=mass, minlength=mask.shape[axis])
        place.append(int(np.argmax(weight * seen**2)))
    return np.asarray(affine[:3, :3] @ np.array(place, dtype=np.float64) + affine[:3, 3])


def _largest_cluster(volume: Array) -> npt.NDArray[np.int64]:
    """Return the voxels (n, 3) of the cluster with the largest sum of |z| from THRESHOLD on."""
    from scipy import ndimage

    best, top = None, 0.0
    for sign in (1.0, -1.0):
        # Voxels that touch at a corner belong to one cluster.
        numbers, n = ndimage.label(sign * volume >= plots.THRESHOLD, np.ones((3, 3, 3)))
        sums = ndimage.sum_labels(np.abs(volume), numbers, range(1, n + 1))
        if n and sums.max() > top:
            best, top = np.argwhere(numbers == int(np.argmax(sums)) + 1), float(sums.max())
    if best is None:  # no voxel reaches the threshold: take the largest |z|
        best = np.array([np.unravel_index(int(np.abs(volume).argmax()), volume.shape)])
    return best


def words_of(place: Array) -> str:
    """Return in plain words, without an atlas, where a place in MNI space lies."""
    x, y, z = place
    # From the middle of the brain, in parts of its length and height
    deep, high = (y + 17.0) / 88.0, (z - 5.0) / 70.0
    side = "midline" if abs(x) <= 10.0 else "left" if x < 0.0 else "right"
    words = [("front" if deep > 0 else "back") if abs(deep) > 0.4 else ""]
    words += [("top" if high > 0 else "low") if abs(high) > 0.4 else ""]
    return f"peak {side}, {' '.join(filter(None, words)) or 'middle'}"


def paint_planes(
    axes: Axes, canvas: Canvas, values: Array, place: Array, limit: float, corner: Any = (0.0, 0.0)
) -> None:
    """Draw the sagittal, coronal and axial plane through `place`, from `corner` (mm) on."""
    layers = [
        (np.take(canvas.grey, k, axis=normal), np.take(values, k, axis=normal))
        for normal, k in enumerate(canvas.nearest(place))
    ]
    for normal, box in enumerate(_paint(axes, canvas, layers, limit, corner)):
        _mark(axes, box, f"{'xyz'[normal]} {round(float(place[normal]))}", left=normal == 0)


def paint_glass(
    axes: Axes, canvas: Canvas, values: Array, limit: float, corner: Any = (0.0, 0.0)
) -> list[tuple[float, ...]]:
    """Draw the largest |z| along each axis, with its sign, within the outline of the features."""
    # Return the box of each plane: left, right, bottom, top in mm.
    layers = []
    for normal, grey in enumerate(_glass_of(canvas)):
        at = np.abs(values).argmax(axis=normal)
        through = np.take_along_axis(values, np.expand_dims(at, normal), axis=normal)
        layers.append((grey, through.squeeze(normal)))
    boxes = _paint(axes, canvas, layers, limit, corner)
    for normal, box in enumerate(boxes):
        _mark(axes, box, "", left=normal == 0)
    return boxes


@functools.lru_cache(maxsize=1)
def _glass_of(canvas: Canvas) -> list[Array]:
    """Return the grey of the glass brain along each axis, the same for all maps on a canvas."""
    from scipy import ndimage

    outlines = [canvas.inside.any(axis=normal) for normal in range(3)]
    rims = [outline & ~ndimage.binary_erosion(outline) for outline in outlines]
    return [
        np.where(rim, RIM_GREY, np.where(outline, GLASS_GREY, 1.0))
        for rim, outline in zip(rims, outlines, strict=True)
    ]


def _paint(
    axes: Axes, canvas: Canvas, layers: Sequence[tuple[Array, Array]], limit: float, corner: Any
) -> list[tuple[float, ...]]:
    """Draw planes (right, up) side by side, values over grey; return the box of each in mm."""
    # All planes are one image: matplotlib takes ten times as long to draw one for every layer of
    # every plane.
    pixel = canvas.step / PIXELS_PER_POINT
    gap = max(1, round(PLANE_GAP / pixel))
    planes = [pixels(grey, values, limit, smooth=canvas.smooth) for grey, values in layers]
    wide = sum(plane.shape[1] + gap for plane in planes)
    board = np.full((max(plane.shape[0] for plane in planes), wide, 3), 255, dtype=np.uint8)
    left, bottom = corner
    at, boxes = 0, list[tuple[float, ...]]()
    for plane in planes:
        up, right = plane.shape[:2]
        board[:up, at : at + right] = plane
        start = left + at * pixel
        boxes.append((start, start + right * pixel, bottom, bottom + up * pixel))
        at += right + gap
    extent = (left, left + wide * pixel, bottom, bottom + len(board) * pixel)
    style: dict[str, Any] = {"origin": "lower", "aspect": "equal", "interpolation": "nearest"}
    axes.imshow(board, extent=extent, **style)
    return boxes


def pixels(grey: Array, values: Array, limit: float, *, smooth: bool) -> npt.NDArray[np.uint8]:
    """Return a plane (right, up) as RGB, rows upwards: values over smoothed grey."""
    from PIL import Image

    size = tuple(PIXELS_PER_POINT * n for n in grey.shape)
    ways = Image.Resampling
    below = Image.fromarray(np.rint(255.0 * grey.T).astype(np.uint8)).resize(size, ways.BILINEAR)
    above = Image.fromarray(values.T.astype(np.float32))
    finer = np.asarray(above.resize(size, ways.BILINEAR if smooth else ways.NEAREST))
    over = colours_of(finer, limit)
    return np.where(over[..., 3:] > 0, over[..., :3], np.asarray(below)[..., None])


def colours_of(values: Array, limit: float) -> npt.NDArray[np.uint8]:
    """Return RGBA (0 to 255) of values on a new last axis; transparent below the threshold."""
    scaled = (np.clip(values, -limit, limit) + limit) / (2.0 * limit)
    painted: npt.NDArray[np.uint8] = _colours()(scaled, bytes=True)
    painted[..., 3] = np.where(np.abs(values) < plots.THRESHOLD, 0, 255)
    return painted


@functools.cache
def _colours() -> Any:
    from matplotlib import colormaps

    return colormaps[plots.COLOURS]  # cached: each access copies the map and builds its table anew


def _mark(axes: Axes, box: Any, name: str, *, left: bool) -> None:
    # The size follows that of the drawn plane, on a page and in a paper's panel.
    size = min(11.0, max(4.5, 0.026 * 72 * axes.get_window_extent().width / plots.DPI))
    style: dict[str, Any] = {"color": plots.GREY, "fontsize": size}
    axes.text(box[0], box[2], name, va="top", **style)
    if not left:
        axes.text(box[0], box[3], "L", va="top", **style)
        axes.text(box[1], box[3], "R", va="top", ha="right", **style)


def frame(axes: Axes, wide: float, tall: float) -> None:
    axes.set_xlim(-2.0, wide - PLANE_GAP + 2.0)
    axes.set_ylim(-2 * PLANE_GAP, tall - 2 * PLANE_GAP + 2.0)
    axes.set_axis_off()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sampled:
    """Maps on their canvas, and the place (mm) of the planes of each."""

    canvas: Canvas
    values: tuple[Array, ...]
    planes: tuple[Array, ...]

    @classmethod
    def of(cls, volumes: Array, affine: Array, *, mni: bool, parcels: bool = False) -> Sampled:
        """Sample maps (x, y, z, R)."""
        mask = np.any(volumes != 0, axis=3)
        canvas = canvas_of(mask, affine, mni=mni, parcels=parcels)
        each = [volumes[..., k] for k in range(volumes.shape[3])]
        return cls(
            canvas=canvas,
            values=tuple(canvas.values(volume) for volume in each),
            planes=tuple(place_of(volume, mask, affine) for volume in each),
        )

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        return iter(zip(self.values, self.planes, strict=True))


def draw_maps(
    sampled: Sampled, alts: Sequence[str], limit: float
) -> Iterator[tuple[plots.Picture, plots.Picture]]:
    """Yield for each map three planes through its largest cluster, large and small."""
    wide, tall = sampled.canvas.size
    for (values, place), alt in zip(sampled, alts, strict=True):
        figure = plots.new_figure(PLANES_WIDTH, PLANES_WIDTH * tall / wide)
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        paint_planes(axes, sampled.canvas, values, place, limit)
        frame(axes, wide, tall)
        text = f"{alt} Three planes through its largest cluster."
        large = plots.drawn(figure)
        small = large.reduce(TILE_SHRINK)
        yield (
            plots.picture_of(large, alt=text, shape="planes"),
            plots.picture_of(small, alt=text, shape="tile"),
        )


def draw_sheet(
    subject: str, names: Sequence[str], volumes: Array, affine: Array, *, mni: bool
) -> plots.Picture:
    """Draw the maps (x, y, z, R) of one subject, each a row of planes and a glass brain."""
    figure = plots.new_figure(SHEET_WIDTH, 1.0)
    sampled = Sampled.of(volumes, affine, mni=mni)
    canvas = sampled.canvas
    wide, tall = canvas.size
    figure.set_size_inches(SHEET_WIDTH, len(names) * SHEET_WIDTH * tall / (2 * wide))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    for k, (name, (values, place)) in enumerate(zip(names, sampled, strict=True)):
        bottom = (len(names) - 1 - k) * tall
        paint_planes(axes, canvas, values, place, SHEET_LIMIT, (0.0, bottom))
        paint_glass(axes, canvas, values, SHEET_LIMIT, (wide, bottom))
        axes.text(0.0, bottom + tall - 3 * PLANE_GAP, name, va="top", fontsize=9, fontweight="bold")
    frame(axes, 2 * wide, len(names) * tall)
    top = float(np.abs(volumes).max())
    alt = (
        f"{subject}: maps of {len(names)} components, three planes through the largest cluster of "
        f"each and a glass brain, red and blue from |z| {plots.THRESHOLD:g} "
        f"to {SHEET_LIMIT:g}; the largest |z| is {top:.1f}."
    )
    return plots.finish(figure, alt=alt, caption=alt, shape="chart")


def networks_figure(sampled: Sampled, titles: Sequence[str], limit: float) -> Any:
    """Draw all maps in a figure of two columns, for a notebook or a paper."""
    wide, tall = sampled.canvas.size
    across = min(PAPER_COLUMNS, len(titles))
    down = math.ceil(len(titles) / across)
    each = (PAPER_WIDTH - 2 * PAPER_MARGIN) / across
    high = down * (each * tall / wide + TITLE_HEIGHT) + 0.6
    figure = plots.new_figure(PAPER_WIDTH, high)
    for k, (title, (values, place)) in enumerate(zip(titles, sampled, strict=True)):
        row, column = divmod(k, across)
        top = 1.0 - (row * (each * tall / wide + TITLE_HEIGHT) + TITLE_HEIGHT) / high
        tallness = each * tall / wide / high
        left, width = (PAPER_MARGIN + column * each) / PAPER_WIDTH, 0.98 * each / PAPER_WIDTH
        axes = figure.add_axes((left, top - tallness, width, tallness))
        paint_planes(axes, sampled.canvas, values, place, limit)
        axes.images[0].set_interpolation("none")  # otherwise a PDF shows the edges of images
        frame(axes, wide, tall)
        axes.set_title(title, fontsize=8, loc="left", pad=2.0)
    plots.paint_bar(figure.add_axes((0.3, 0.3 / high, 0.4, 0.12 / high)), limit, plots.THRESHOLD)
    return figure


def maps_figure(z: Array, space: FeatureSpace) -> Any:
    """Return a Figure of z-maps (D, R): three planes on a grid, else squares or stems."""
    # On a grid |z| below the threshold is not coloured.
    names, limit = component_names(z.shape[1]), plots.colour_limit(z)
    if space.on_grid:
        affine = np.asarray(space.affine).reshape(4, 4)
        volumes = volumes_of(z, space)
        sampled = Sampled.of(volumes, affine, mni=space.in_mni, parcels=space.kind == "atlas")
        return networks_figure(sampled, names, limit)
    n_columns = min(SQUARES_ACROSS, len(names))
    n_rows = math.ceil(len(names) / n_columns)
    figure = plots.new_figure(PANEL_WIDTH * n_columns, (PANEL_WIDTH + 0.25) * n_rows)
    for k, name in enumerate(names):
        axes = figure.add_subplot(n_rows, n_columns, k + 1)
        axes.set_title(name, fontsize=9)
        if len(space.shape) == 2:
            style: dict[str, Any] = {"cmap": plots.COLOURS, "vmin": -limit, "vmax": limit}
            axes.imshow(z[:, k].reshape(space.shape), interpolation="nearest", **style)
        else:
            axes.stem(z[:, k], markerfmt=" ", basefmt=" ")
        axes.set_xticks([])
        axes.set_yticks([])
    figure.supxlabel(f"|z| to {limit:g}", fontsize=9)
    figure.tight_layout()
    return figure


def write_networks(folder: Path, figure: Any) -> None:
    """Write `networks.pdf` and `networks.svg`; equal figures give equal bytes."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "cape", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure.savefig(folder / "networks.pdf", metadata={"CreationDate": None}, dpi=PAPER_DPI)
        figure.savefig(folder / "networks.svg", metadata={"Date": None}, dpi=PAPER_DPI)
