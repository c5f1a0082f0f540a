"""Small CIFTI studies: geodesic spheres, structures, and the files of people."""

from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2.cifti2_axes import BrainModelAxis, ParcelsAxis, ScalarAxis, SeriesAxis

SIDES = ("CIFTI_STRUCTURE_CORTEX_LEFT", "CIFTI_STRUCTURE_CORTEX_RIGHT")


def sphere(divisions: int) -> tuple[np.ndarray, np.ndarray]:
    """An icosahedron halved `divisions` times: unit vertices (n, 3) and triangles."""
    p = (1 + np.sqrt(5)) / 2
    points = [(-1, p, 0), (1, p, 0), (-1, -p, 0), (1, -p, 0), (0, -1, p), (0, 1, p)]
    points += [(0, -1, -p), (0, 1, -p), (p, 0, -1), (p, 0, 1), (-p, 0, -1), (-p, 0, 1)]
    xyz = [np.array(v) / np.linalg.norm(v) for v in points]
    faces = [(0, 11, 5), (0, 5, 1), (0, 1, 7), (0, 7, 10), (0, 10, 11), (1, 5, 9), (5, 11, 4)]
    faces += [(11, 10, 2), (10, 7, 6), (7, 1, 8), (3, 9, 4), (3, 4, 2), (3, 2, 6), (3, 6, 8)]
    faces += [(3, 8, 9), (4, 9, 5), (2, 4, 11), (6, 2, 10), (8, 6, 7), (9, 8, 1)]
    for _ in range(divisions):
        middle: dict[tuple[int, int], int] = {}

        def between(a: int, b: int, middle: dict[tuple[int, int], int] = middle) -> int:
            key = (min(a, b), max(a, b))
            if key not in middle:
                v = xyz[a] + xyz[b]
                xyz.append(v / np.linalg.norm(v))
                middle[key] = len(xyz) - 1
            return middle[key]

        finer = []
        for a, b, c in faces:
            ab, bc, ca = between(a, b), between(b, c), between(c, a)
            finer += [(a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca)]
        faces = finer
    return np.array(xyz), np.array(faces)


def axis(divisions: int = 3, *, voxels: bool = True, wall: float = 0.9) -> BrainModelAxis:
    """Two hemispheres without a medial wall, and a small box of voxels on each side."""
    left, _ = sphere(divisions)
    found = None
    for side, sign in zip(SIDES, (1, -1), strict=True):
        # The wall looks to the middle: +x of the left sphere, and one vertex less on the right.
        kept = np.flatnonzero(left[:, 0] < wall)
        kept = kept if sign > 0 else kept[:-1]
        model = BrainModelAxis.from_surface(kept, len(left), side)
        found = model if found is None else found + model
    if voxels:
        affine = np.diag([4.0, 4, 4, 1])
        affine[:3, 3] = (-22, -22, -22)
        for name, x in (("THALAMUS_LEFT", 2), ("THALAMUS_RIGHT", 6)):
            mask = np.zeros((12, 12, 12), dtype=bool)
            mask[x : x + 4, 3:9, 3:9] = True
            found = found + BrainModelAxis.from_mask(
                mask, name=f"CIFTI_STRUCTURE_{name}", affine=affine
            )
    return found


def parcels(divisions: int = 3, n: int = 12) -> ParcelsAxis:
    """`n` parcels a hemisphere, the nearest of which each vertex belongs to."""
    xyz, _ = sphere(divisions)
    seeds = xyz[:: len(xyz) // n][:n]
    names, vertices = [], []
    for side, letter in zip(SIDES, "LR", strict=True):
        nearest = (xyz @ seeds.T).argmax(axis=1)
        for k in range(n):
            names.append(f"{letter}_{k:02d}")
            vertices.append({side: np.flatnonzero(nearest == k)})
    held = np.empty(len(names), dtype=object)
    held[:] = [np.zeros((0, 3), dtype=int)] * len(names)
    return ParcelsAxis(names, held, vertices, nvertices=dict.fromkeys(SIDES, len(xyz)))


def write_cifti(path: Path, values: np.ndarray, columns, *, tr: float = 2.0, unit: str = "SECOND"):
    """Write values (D, T) as dtseries or ptseries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = SeriesAxis(0, tr, values.shape[1], unit)
    image = nib.Cifti2Image(values.T.astype(np.float32), header=(rows, columns))
    image.nifti_header.set_intent(3002 if isinstance(columns, BrainModelAxis) else 3004)
    image.update_headers()
    nib.save(image, path)


def write_owner_files(folder: Path, columns, divisions: int = 3, *, spheres: bool = True) -> None:
    """Write what the owner sends: the structure, and a sphere of each hemisphere."""
    folder.mkdir(parents=True, exist_ok=True)
    grayordinates = isinstance(columns, BrainModelAxis)
    rows = ScalarAxis(["structure"])
    image = nib.Cifti2Image(np.zeros((1, len(columns)), np.float32), header=(rows, columns))
    image.nifti_header.set_intent(3006 if grayordinates else 3008)
    image.update_headers()
    nib.save(image, folder / f"structure.{'d' if grayordinates else 'p'}scalar.nii")
    if not spheres:
        return
    xyz, faces = sphere(divisions)
    for letter, sign in (("L", 1.0), ("R", -1.0)):
        points = (100 * xyz * (sign, 1.0, 1.0)).astype(np.float32)
        surface = nib.gifti.GiftiImage()
        surface.add_gifti_data_array(nib.gifti.GiftiDataArray(points, "NIFTI_INTENT_POINTSET"))
        surface.add_gifti_data_array(
            nib.gifti.GiftiDataArray(faces.astype(np.int32), "NIFTI_INTENT_TRIANGLE")
        )
        nib.save(surface, folder / f"sphere.{letter}.surf.gii")


def write_study(
    folder: Path, columns, divisions: int, *, people: int = 4, n_times: int = 60, networks: int = 4
) -> np.ndarray:
    """Three sites in fMRIPrep's layout; returns maps (D, R), the same on both sides (0: noise)."""
    rng = np.random.default_rng(7)
    xyz, _ = sphere(divisions)
    maps = np.zeros((len(columns), max(networks, 1)))
    # As far from each other as they can be, off the medial wall.
    seeds = [np.array([-1.0, 0.0, 0.0])]
    for _ in range(1, maps.shape[1]):
        nearest = np.max([xyz @ seed for seed in seeds], axis=0) + (xyz[:, 0] > 0.3)
        seeds.append(xyz[nearest.argmin()])
    seeds = np.array(seeds)
    blob = np.exp(-((xyz[:, None] - seeds[None]) ** 2).sum(axis=2) / (2 * 0.3**2))
    dense = isinstance(columns, BrainModelAxis)
    if dense:
        for _, rows, model in columns.iter_structures():
            if model.surface_mask.all():
                maps[rows] = blob[model.vertex]
    else:
        for k, vertices in enumerate(columns.vertices):
            maps[k] = blob[next(iter(vertices.values()))].mean(axis=0)
    end = "dtseries" if dense else "ptseries"
    for site in range(3):
        base = folder / f"local{site}"
        write_owner_files(base, columns, divisions)
        for m in range(people):
            values = 100 + rng.standard_normal((len(columns), n_times))
            if networks:
                values += maps @ rng.laplace(size=(networks, n_times))
            label = f"sub-{site}{m}"
            name = f"{label}_task-rest_space-fsLR_den-91k_bold.{end}.nii"
            write_cifti(base / label / "func" / name, values, columns)
    return maps
