"""Names for maps of grayordinates and parcels: labels of the owner's file on the same vertices.

Chance is the 95th percentile of |r| of the map itself turned on its spheres (the spin test of
Alexander-Bloch et al. 2018, NeuroImage 178): both hemispheres turn as mirror images, and vertices
from the medial wall do not count.  Voxels are not compared.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms.estimators import Array
from cape.errors import ConfigError
from cape.report.files import load_image
from cape.report.labels import Match, best_of, checked_names, unit
from cape.report.public_networks import Template
from cape.report.surfaces import Hemisphere, far_away
from cape.space.grayordinates import LEFT, RIGHT

SPINS: Final = 500
SPIN_PERCENTILE: Final = 95.0  # percentile: turned copies are as peaked as the map itself
# Vertices of a hemisphere, at most about, on which turned maps are compared
MAX_VERTICES: Final = 3000
STRUCTURES: Final = {"left": LEFT, "right": RIGHT}


def template_on(path: Path, spheres: Sequence[Hemisphere], names: Sequence[str] = ()) -> Template:
    """Return labels, or maps, of a dlabel.nii or dscalar.nii at the points of spheres, (n, K).

    ConfigError: CAPE-E270, E271, E273.
    """
    if not spheres:
        raise ConfigError("E270", got="CIFTI without spheres")
    try:
        image = load_image(path)
        rows, columns = (image.header.get_axis(k) for k in (0, 1))
        data = np.nan_to_num(np.asarray(image.dataobj, dtype=np.float64))
        parts = {
            str(name): (data[:, at], part.vertex)
            for name, at, part in columns.iter_structures()
            if part.nvertices
        }
    except Exception as err:  # nibabel raises errors of any kind for other files
        raise ConfigError("E271", got="no CIFTI file of vertices", detail=path.name) from err
    values = np.concatenate([_at(parts, sphere, len(data)) for sphere in spheres])
    if hasattr(rows, "label"):  # use the first map; 0 is no label
        called = {key: str(name) for key, (name, _) in rows.label[0].items() if key != 0}
        labels, maps = tuple(called.values()), [values[:, 0] == key for key in called]
        values = np.stack(maps, axis=1).astype(np.float64) if maps else values[:, :0]
    else:
        labels = tuple(str(name) for name in rows.name)
    labels = checked_names(names, labels)
    if not np.ptp(values, axis=0).any():
        raise ConfigError("E271", got="no value on the vertices of this result", detail=path.name)
    return Template(name=path.name, labels=labels, values=values)


def _at(parts: Mapping[str, tuple[Array, Any]], sphere: Hemisphere, n_maps: int) -> Array:
    part = parts.get(f"CIFTI_STRUCTURE_{STRUCTURES[sphere.side]}")
    if part is None:
        return np.zeros((len(sphere.vertex), n_maps))
    values, vertex = part
    dense = np.zeros((max(vertex.max(), sphere.vertex.max()) + 1, n_maps))
    dense[vertex] = values.T
    return dense[sphere.vertex]


def match_on_spheres(
    z: Array, template: Template, spheres: Sequence[Hemisphere]
) -> tuple[Match, ...]:
    """Return the best label of every map (D, R), and the |r| that its turned copies reach."""
    points = np.concatenate([z[sphere.feature] for sphere in spheres])
    r = unit(points).T @ unit(template.values)
    chances = np.percentile(_turned(points, template.values, spheres), SPIN_PERCENTILE, axis=0)
    return best_of(r, template, chances.tolist())


def _turned(points: Array, reference: Array, spheres: Sequence[Hemisphere]) -> Array:
    """Return the largest |r| of every map in every spin, (SPINS, R)."""
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(0)  # fixed draws: equal maps give equal files
    ends = np.cumsum([0, *(len(sphere.xyz) for sphere in spheres)])
    mirror = np.diag([-1.0, 1.0, 1.0])
    samples = []
    for sphere, first in zip(spheres, ends, strict=False):
        step = max(1, len(sphere.xyz) // MAX_VERTICES)
        tree = cKDTree(sphere.xyz)
        samples.append((sphere, first, np.arange(0, len(sphere.xyz), step), tree))
    largest = np.zeros((SPINS, points.shape[1]))
    for spin in largest:
        turn, triangle = np.linalg.qr(rng.standard_normal((3, 3)))
        turn = turn * np.sign(np.diag(triangle))  # uniform over O(3)
        turn = turn * np.linalg.det(turn)
        here, there = [], []
        for sphere, first, at, tree in samples:
            side_turn = turn if sphere.side == "left" else mirror @ turn @ mirror
            distance, nearest = tree.query(sphere.xyz[at] @ side_turn.T)
            seen = distance < far_away(sphere)
            here.append(first + at[seen])
            there.append(first + nearest[seen])
        a, b = unit(points[np.concatenate(there)]), unit(reference[np.concatenate(here)])
        spin[:] = np.abs(a.T @ b).max(axis=1)
    return largest
