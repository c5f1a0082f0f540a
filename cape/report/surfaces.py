"""Maps of grayordinates and parcels: as CIFTI files, and drawn on spheres."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.arrays import BROKEN
from cape.frozen import dataclass
from cape.protocol.outcome import component_names
from cape.report.files import load_image
from cape.report.plots import COLOURS, THRESHOLD, Picture, finish, new_figure
from cape.space.feature_space import FeatureSpace
from cape.space.grayordinates import LEFT, RIGHT, Structure

SPHERES: Final = "spheres.npz"
# Pixels across a hemisphere
PIXELS: Final = 150
# Intent codes of CIFTI: scalars of brain models, of parcels
INTENTS: Final = {"grayordinates": 3006, "parcels": 3008}


def cifti_of(z: Array, space: FeatureSpace, *, stamp: str) -> bytes:
    """Return maps (D, R) as a dscalar.nii or pscalar.nii; equal maps give equal bytes."""
    from nibabel.cifti2.cifti2 import Cifti2Image
    from nibabel.cifti2.cifti2_axes import ScalarAxis

    structure = space.structure()
    make = _parcels if structure.names else _models
    header = (ScalarAxis(component_names(z.shape[1])), make(structure, space))
    image: Any = Cifti2Image(np.asarray(z.T, dtype=np.float32), header=header)
    image.update_headers()
    image.nifti_header.set_intent(INTENTS[space.kind])
    image.nifti_header["descrip"] = stamp.encode()
    return bytes(image.to_bytes())


def _models(structure: Structure, space: FeatureSpace) -> Any:
    from nibabel.cifti2.cifti2_axes import BrainModelAxis

    names, voxels, vertices, sizes = [], [], [], {}
    for part in structure.parts:
        n, name = len(part.index), f"CIFTI_STRUCTURE_{part.structure}"
        names += [name] * n
        # -1: a vertex has no voxel, a voxel no vertex.
        voxels.append(np.full((n, 3), -1) if part.n_vertices else part.index)
        vertices.append(part.index if part.n_vertices else np.full(n, -1))
        if part.n_vertices:
            sizes[name] = part.n_vertices
    where = {"voxel": np.concatenate(voxels), "vertex": np.concatenate(vertices)}
    return BrainModelAxis(np.array(names), **where, nvertices=sizes, **_volume(space))


def _parcels(structure: Structure, space: FeatureSpace) -> Any:
    from nibabel.cifti2.cifti2_axes import ParcelsAxis

    voxels: list[Any] = [np.zeros((0, 3), dtype=int) for _ in structure.names]
    vertices: list[dict[str, Any]] = [{} for _ in structure.names]
    sizes = {}
    for part in structure.parts:
        if part.n_vertices:
            name = f"CIFTI_STRUCTURE_{part.structure}"
            vertices[part.parcel][name], sizes[name] = part.index, part.n_vertices
        else:
            voxels[part.parcel] = part.index
    # dtype=object: numpy would stack parcels of equal size into one array.
    by_parcel = np.empty(len(voxels), dtype=object)
    by_parcel[:] = voxels
    return ParcelsAxis(structure.names, by_parcel, vertices, nvertices=sizes, **_volume(space))


def _volume(space: FeatureSpace) -> dict[str, Any]:
    if not space.shape:
        return {}
    return {"affine": np.array(space.affine).reshape(4, 4), "volume_shape": space.shape}


def read_cifti(path: Path) -> Array:
    """Return the maps of a dscalar.nii or pscalar.nii, (D, R)."""
    return np.asarray(load_image(path).dataobj, dtype=np.float64).T


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Hemisphere:
    """Vertices of one hemisphere."""

    side: str  # {"left", "right"}
    xyz: Array  # (n, 3): unit vectors; x to the right, y to the front, z up
    feature: npt.NDArray[np.intp]  # (n,): feature of each vertex, from 0
    vertex: npt.NDArray[np.intp]  # (n,): number of each vertex on the surface


def far_away(sphere: Hemisphere) -> float:
    """Return the distance above which points are no neighbours: the medial wall lies between."""
    return float(1.5 * np.sqrt(4.0 * np.pi / max(len(sphere.xyz), 1)))


def write_spheres(folder: Path, space: FeatureSpace) -> None:
    """Write the places of the features, so that the page can be drawn from its folder."""
    structure = space.structure()
    feature = structure.parcel_of_points()
    arrays: dict[str, Any] = {}
    for side, name in (("left", LEFT), ("right", RIGHT)):
        parts = [(part, rows) for part, rows in structure.blocks() if part.structure == name]
        parts = [(part, rows) for part, rows in parts if part.sphere is not None]
        if parts:
            arrays[side] = np.concatenate([p.on_sphere() for p, _ in parts]).astype(np.float32)
            arrays[f"{side}_feature"] = np.concatenate([feature[rows] for _, rows in parts])
            vertices = [part.index for part, _ in parts]
            arrays[f"{side}_vertex"] = np.concatenate(vertices).astype(np.int32)
    if arrays:
        np.savez_compressed(folder / SPHERES, **arrays)


def read_spheres(folder: Path) -> tuple[Hemisphere, ...]:
    try:
        with np.load(folder / SPHERES, allow_pickle=False) as arrays:
            return tuple(
                Hemisphere(
                    side=side,
                    xyz=arrays[side].astype(float),
                    feature=arrays[f"{side}_feature"],
                    vertex=arrays[f"{side}_vertex"],
                )
                for side in ("left", "right")
                if side in arrays
            )
    except BROKEN:  # missing or damaged: the page has no spheres
        return ()


def draw_spheres(
    z: Array, spheres: Sequence[Hemisphere], names: Sequence[str], alts: Sequence[str], limit: float
) -> Iterator[Picture]:
    """Yield a picture of every map (D, R): each hemisphere from outside and from the midline."""
    views = [(sphere, outside) for sphere in spheres for outside in (True, False)]
    if len(views) == 4:  # left from outside, left and right from the midline, right from outside
        views[2:] = views[:1:-1]
    seen = [_nearest(sphere, outside=outside) for sphere, outside in views]
    for k, (name, alt) in enumerate(zip(names, alts, strict=True)):
        figure = new_figure(2.5 * len(views), 2.7)
        for i, ((sphere, outside), (row, there)) in enumerate(zip(views, seen, strict=True)):
            axes = figure.add_axes((i / len(views), 0.0, 1 / len(views), 0.9))
            values = z[sphere.feature, k][row]
            shown = there & (np.abs(values) >= THRESHOLD)
            disc = np.where(row >= 0, np.where(there, 0.0, 0.15), np.nan)
            axes.imshow(disc, cmap="gray_r", vmin=-0.25, vmax=1.0, interpolation="nearest")
            coloured = np.where(shown, values, np.nan)
            axes.imshow(coloured, cmap=COLOURS, vmin=-limit, vmax=limit, interpolation="nearest")
            axes.set_title(f"{sphere.side}, {'lateral' if outside else 'medial'}", fontsize=9)
            axes.set_axis_off()
        text = f"{alt} Both sides of each hemisphere, as spheres; grey: |z| below {THRESHOLD:g}."
        yield finish(figure, alt=text, caption=name, shape="strip")


def _nearest(sphere: Hemisphere, *, outside: bool) -> tuple[Any, Any]:
    """Return the nearest vertex of each pixel of a disc, -1 outside, and whether one is near."""
    from scipy.spatial import cKDTree

    # Seen from the right (along -x) the front (y) is on the right, from the left on the left.
    towards = 1.0 if (sphere.side == "right") == outside else -1.0
    at = (np.arange(PIXELS) + 0.5) / PIXELS * 2.0 - 1.0
    across, up = np.meshgrid(at, -at)
    depth2 = 1.0 - across**2 - up**2
    disc = depth2 > 0.0
    depth = np.sqrt(depth2[disc])
    pixels = np.stack([towards * depth, towards * across[disc], up[disc]], axis=1)
    facing = np.flatnonzero(sphere.xyz[:, 0] * towards > -0.2)
    row, near = np.full(disc.shape, -1), np.zeros(disc.shape, dtype=bool)
    distance, nearest = cKDTree(sphere.xyz[facing]).query(pixels)
    row[disc] = facing[nearest]
    # A more distant vertex lies across the medial wall.
    near[disc] = distance <= 2.0 * np.sin(far_away(sphere) / 2.0)
    return row, near
