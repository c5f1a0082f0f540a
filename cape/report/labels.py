"""Names for components: the best matching network of a public set, or of the user's own maps.

A reading aid: any smooth map resembles some network.  Each match is therefore compared with chance:
the 99th percentile of the best |r|, over all sets, of random maps that are as smooth and as
symmetric as this one.  No name is given below it.  Networks are first projected on the run's public
basis, so that a coarse run is compared at its own resolution.

Maps of grayordinates and parcels are compared with labels of the owner's file on the same vertices.
Chance is the 95th percentile of |r| of the map itself turned on its spheres (the spin test of
Alexander-Bloch et al. 2018, NeuroImage 178): both hemispheres turn as mirror images, and vertices
from the medial wall do not count.  Voxels are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from cape.algorithms import kernel
from cape.algorithms.estimators import Array
from cape.errors import ConfigError, own_words
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace
from cape.report import files
from cape.report.maps import Component, of_few_regions
from cape.report.page import text_of
from cape.report.public_networks import DEFAULT, PUBLIC_SETS, Template, at_places, of_labels
from cape.report.results import LabelSource, MapResults
from cape.report.surfaces import Hemisphere, far_away
from cape.space.feature_space import coordinates, is_cifti
from cape.space.grayordinates import LEFT, RIGHT
from cape.space.public_basis import Basis, in_basis, voxel_mm

# Random maps, and the percentile of their best |r|.  They are Gaussian; spatial ICA of smooth noise
# gives peaked maps, of which 4 in 100 reach the 99th percentile (10 in 100 the 95th).
DRAWS = 4000
CHANCE_PERCENTILE = 99.0
# mm; widths are rounded up to multiples of it, so that maps of equal width share their templates
WIDTH_STEP = 1.0
# Largest number of voxels of random maps, approximate
MAX_RANDOM_VOXELS = 50_000
# Correlation of the two sides from which a map counts as symmetric
SAME_ON_BOTH = 0.5
# Largest correlation of neighbours: a constant map has no width
MAX_ALIKE = 0.999
# Turned copies of a map on its spheres, which are as peaked as the map itself
SPINS: Final = 500
SPIN_PERCENTILE: Final = 95.0
# Vertices of a hemisphere, at most about, on which turned maps are compared
MAX_VERTICES: Final = 3000
STRUCTURES: Final = {"left": LEFT, "right": RIGHT}


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """The best template of one map: label, signed Pearson r, and the |r| that chance reaches."""

    label: str
    source: str  # set of the label
    r: float
    chance: float

    @property
    def name(self) -> str | None:
        """The label above chance, None below it."""
        return self.label if abs(self.r) > self.chance else None


def bundled(space: FeatureSpace) -> Template | None:
    return of_sets(DEFAULT, space) if space.in_mni else None


def of_sets(names: Sequence[str], space: FeatureSpace) -> Template | None:
    """Return the networks of several public sets; None if one is not on this computer."""
    where = coordinates(space)
    sets = [template for name in names if (template := PUBLIC_SETS[name](where)) is not None]
    if len(sets) < len(names):
        return None
    return Template(
        name=", ".join(s.name for s in sets),
        labels=tuple(label for s in sets for label in s.labels),
        values=np.concatenate([s.values for s in sets], axis=1),
        sources=tuple(s.name for s in sets for _ in s.labels),
    )


def at_resolution(template: Template, basis: Basis | None) -> Template:
    """Return networks projected on a public basis; unchanged if it is None."""
    if basis is None:
        return template
    return replace(template, values=np.asarray(basis @ in_basis(basis, template.values)))


def of_image(path: Path, space: FeatureSpace, names: Sequence[str] = ()) -> Template:
    """Return the volumes or labels of the user's image as templates; CAPE-E271, E273."""
    image, where = _read(path), coordinates(space)
    name = path.name.removesuffix(".gz").removesuffix(".nii")
    if sum(n > 1 for n in image.shape) == 3 and _holds_labels(image):
        numbers = [int(n) for n in np.unique(np.asarray(image.dataobj)) if n > 0]
        given = checked_names(names, [f"T{k:02d}" for k in numbers])
        called = dict(zip(numbers, given, strict=True))
        return of_labels(name, path, where, called)
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    volumes = volumes[..., None] if volumes.ndim == 3 else volumes
    labels = checked_names(names, [f"T{k:02d}" for k in range(1, volumes.shape[3] + 1)])
    # Nearest voxels of another grid are good enough for a reading aid.
    values = at_places(volumes, np.asarray(image.affine), where)
    return Template(name=name, labels=labels, values=values)


def checked_names(names: Sequence[str], given: Sequence[str]) -> tuple[str, ...]:
    """Return the user's names, or `given` if there are none; E273 if the numbers differ."""
    # A shifted list would give every component its neighbour's name.
    if names and len(names) != len(given):
        raise ConfigError("E273", got=len(names), allowed=len(given))
    return tuple(names or given)


def _holds_labels(image: Any) -> bool:
    # Integers above 1 are numbers of parcels; a mask holds 0 and 1.
    return (
        np.issubdtype(image.get_data_dtype(), np.integer)
        and float(np.max(np.asarray(image.dataobj))) > 1
    )


def of_user(
    maps_file: Path, template: str, names: Path | None, results: MapResults
) -> tuple[Array, Template, FeatureSpace]:
    """Return the z-maps of a group_maps.nii.gz, the templates on its voxels, and its space.

    `template` is the user's image, or names from `PUBLIC_SETS` with commas, for grids in MNI space.
    ConfigError: CAPE-E270, E271, E273, E275, E276.
    """
    if results.feature_space == "matrix" or not maps_file.is_file():
        raise ConfigError("E270", got=results.feature_space)
    image = files.load_image(maps_file)
    # The file holds no mask: a voxel counts where any map is not 0, so parcels count by size.
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    mask = np.any(volumes != 0, axis=3)
    affine, brain = np.asarray(image.affine), results.template_space
    space = FeatureSpace.of_labels("mask", mask.astype(np.int32), affine, brain)
    sets = [part.strip() for part in template.split(",")]
    if not set(sets) <= set(PUBLIC_SETS):
        return volumes[mask], of_image(Path(template), space, names_of(names)), space
    if not space.in_mni:
        raise ConfigError("E276", got=template)
    networks = of_sets(sets, space)
    if networks is None:
        raise ConfigError("E275", got=template)
    return volumes[mask], networks, space


def names_of(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        detail = f"{path.name}: {own_words(err, 'no UTF-8')}"
        raise ConfigError("E271", got="no readable list of names", detail=detail) from err
    # A tab inside a name would break the table of components.
    return tuple(files.line(text) for text in lines if text.strip())


def _read(path: Path) -> Any:
    try:
        image = files.load_image(path)
        shape = tuple(image.shape)
    except Exception as err:  # nibabel raises errors of any kind for other files
        raise ConfigError(
            "E271", got="nothing readable", detail=f"{path.name}: {own_words(err, 'no image')}"
        ) from err
    if len(shape) not in (3, 4):
        raise ConfigError("E271", got=f"{len(shape)} dimensions", detail=path.name)
    return image


def match_networks(z: Array, template: Template, space: FeatureSpace) -> tuple[Match, ...]:
    """Return the best template of every map (D, R); constant templates match no map."""
    reference = unit(template.values)
    return best_of(unit(z).T @ reference, template, _chances(z, reference, space))


def best_of(r: Array, template: Template, chances: Sequence[float]) -> tuple[Match, ...]:
    """Return the strongest of the correlations r (R, K) of every map, beside its chance (R,)."""
    # The sign of a map is a convention: the largest |r| counts, with its sign.
    best = zip(np.argmax(np.abs(r), axis=1).tolist(), r, chances, strict=True)
    sources = template.sources or (template.name,) * len(template.labels)
    return tuple(
        Match(label=template.labels[j], source=sources[j], r=float(x[j]), chance=c)
        for j, x, c in best
    )


def _chances(z: Array, reference: Array, space: FeatureSpace) -> list[float]:
    """Return for every map (R,) the best |r| that chance reaches with random maps like it."""
    z, reference, space = _thinned(z, reference, space)
    mirror = _mirror(space)
    # Fixed draws: equal maps give equal files.
    draws = np.random.default_rng(0).standard_normal((DRAWS, reference.shape[1]))
    mirrored = np.zeros_like(reference)
    if mirror is not None:
        mirrored[mirror >= 0] = reference[mirror[mirror >= 0]]
    by_width: dict[float, tuple[Array, Array]] = {}
    chances = []
    for column in z.T:
        width = _width(column, space)
        if width not in by_width:
            # With white noise smoothed by K, r of a template t has variance |K t|^2 / trace K K':
            # smooth the templates instead of drawing maps.
            smooth, power = _smoothed(np.c_[reference, mirrored], width, space)
            one, other = np.split(smooth, 2, axis=1)
            by_width[width] = one.T @ one / power, one.T @ other / power
        same, across = by_width[width]
        alike = 0.0 if mirror is None else _alike(column, mirror)
        # Voxels near the midline make the sides of any smooth map slightly alike.
        alike = alike if alike > SAME_ON_BOTH else 0.0
        # Half of the voxels of a symmetric map carry no new information.
        values, vectors = np.linalg.eigh(same + alike * (across + across.T) / 2.0)
        spread = vectors * np.sqrt(np.maximum(values, 0.0))
        drawn = draws @ spread.T
        # The drawn part and the rest of a map have length 1 together: no |r| exceeds 1.
        rest = np.maximum(1.0 - np.sum(spread**2, axis=1), 0.0)
        best = np.abs(drawn / np.sqrt(drawn**2 + rest)).max(axis=1)
        chances.append(float(np.percentile(best, CHANCE_PERCENTILE)))
    return chances


def _thinned(z: Array, reference: Array, space: FeatureSpace) -> tuple[Array, Array, FeatureSpace]:
    """Return maps and templates on every k-th voxel, about `MAX_RANDOM_VOXELS` at most."""
    # At 1 mm smoothing takes seconds per map and gigabytes; smooth maps need no such grid.
    k = int(np.ceil((space.n_features / MAX_RANDOM_VOXELS) ** (1 / 3)))
    if space.kind != "mask" or k <= 1:
        return z, reference, space
    number = _numbers(space)[::k, ::k, ::k]
    inside = number >= 0
    affine = np.asarray(space.affine).reshape(4, 4) @ np.diag([k, k, k, 1.0])
    small = FeatureSpace.of_labels("mask", inside.astype(np.int32), affine, space.template_space)
    return z[number[inside]], unit(reference[number[inside]]), small


def _smoothed(columns: Array, width: float, space: FeatureSpace) -> tuple[Array, float]:
    """Return the smoothed columns K c, and trace K K' less the part of the mean."""
    ones = np.ones((len(columns), 1))
    if width == 0.0:
        return columns, len(columns) - 1.0
    if space.kind == "mask":
        mask, mm = space.labels() > 0, voxel_mm(space)
        smooth = kernel.smooth(mask, mm, np.c_[columns, ones], width)
        # A squared Gaussian is a Gaussian whose width is smaller by sqrt 2.
        power = float(kernel.smooth(mask, mm, ones, width / np.sqrt(2.0)).sum())
    elif space.on_grid:
        smoother = np.exp(-(_distances(space) ** 2) / (2.0 * width**2))
        smooth, power = smoother @ np.c_[columns, ones], float(np.sum(smoother**2))
    else:
        return columns, len(columns) - 1.0
    mean = smooth[:, -1]
    return smooth[:, :-1], power - float(mean @ mean) / len(columns)


def _width(column: Array, space: FeatureSpace) -> float:
    """Return the sd (mm, rounded up) of the Gaussian that makes white noise as smooth as a map."""
    centred = column - column.mean()
    power = float(centred @ centred) / len(centred)
    if not space.on_grid or power <= 0.0:
        return 0.0
    widths = []
    for first, second, step in _neighbours(space):
        if len(first):
            r = float(np.mean(centred[first] * centred[second])) / power
            # The autocorrelation of such noise at distance h is exp(-h^2 / 4 sd^2).
            r = min(r, MAX_ALIKE)
            widths.append(step / (2.0 * np.sqrt(-np.log(r))) if r > 0.0 else 0.0)
    return float(np.ceil(np.mean(widths) / WIDTH_STEP) * WIDTH_STEP) if widths else 0.0


def _neighbours(space: FeatureSpace) -> Iterator[tuple[Any, Any, float]]:
    """Yield pairs of neighbouring features, as two index arrays, and their distance, mm."""
    if space.kind == "mask":
        number = _numbers(space)
        for axis, step in enumerate(voxel_mm(space)):
            low, high = np.moveaxis(number, axis, 0)[:-1], np.moveaxis(number, axis, 0)[1:]
            both = (low >= 0) & (high >= 0)
            yield low[both], high[both], step
        return
    distance = _distances(space)
    np.fill_diagonal(distance, np.inf)
    each, nearest = np.arange(len(distance)), distance.argmin(axis=1)
    step = float(np.mean(distance[each, nearest]))
    if np.isfinite(step):
        yield each, nearest, step


def _distances(space: FeatureSpace) -> Array:
    """Return the distances between the centres of parcels, mm (D, D)."""
    where = coordinates(space)
    square = np.sum(where**2, axis=1)
    return np.asarray(np.sqrt(np.maximum(square[:, None] + square - 2.0 * where @ where.T, 0.0)))


def _numbers(space: FeatureSpace) -> Any:
    """Return the feature of every voxel of a mask, -1 outside."""
    inside = space.labels() > 0
    number = np.full(space.shape, -1)
    number[inside] = np.arange(int(inside.sum()))
    return number


def _mirror(space: FeatureSpace) -> Any:
    """Return each voxel's mirror voxel, -1 for none; None if the midplane is unknown."""
    if not (space.in_mni and space.kind == "mask"):
        return None
    across = coordinates(space) * [-1.0, 1.0, 1.0]
    numbers, affine = _numbers(space)[..., None] + 1, np.asarray(space.affine).reshape(4, 4)
    return at_places(numbers, affine, across)[:, 0].astype(int) - 1


def _alike(column: Array, mirror: Any) -> float:
    """Return the correlation of the two sides of a map."""
    pairs = mirror >= 0
    return correlation(column[pairs], column[mirror[pairs]]) if pairs.any() else 0.0


def correlation(a: Array, b: Array) -> float:
    """Return Pearson's r of two maps, 0 if one is constant."""
    a, b = a - a.mean(), b - b.mean()
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / size if size > 0.0 else 0.0


def unit(values: Array) -> Array:
    """Return columns of mean 0 and length 1; zeros for constant ones."""
    centred = values - values.mean(axis=0)
    length = np.linalg.norm(centred, axis=0)
    # Rounding leaves a constant column about 1e-16 of its size away from its mean.
    real = length > 1e-12 * (np.linalg.norm(values, axis=0) + 1e-300)
    return np.asarray(np.where(real, centred / np.where(real, length, 1.0), 0.0))


# Verdicts of the time courses that allow a name; None: there was no verdict
CONFIRMED: Final = (None, "confirmed")


def named(
    rows: Sequence[Component], matches: Sequence[Match], feature_space: str, n_features: int
) -> tuple[Component, ...]:
    """Return the rows with their nearest networks, which become names only above chance."""
    # A single region, or a pair, is no network, whatever it is most like.
    return tuple(
        replace(
            row,
            nearest=best.label,
            nearest_set=best.source,
            # A name would turn an unconfirmed map or a mirror image into a finding.
            label=best.name
            if row.verdict in CONFIRMED
            and row.found_again != "image"
            and not of_few_regions(row, feature_space, n_features)
            else None,
            label_r=best.r,
            label_chance=best.chance,
        )
        for row, best in zip(rows, matches, strict=True)
    )


def source(
    template: Template | None, kind: str, *, in_mni: bool = False, found_nothing: bool = False
) -> LabelSource:
    """Return which networks the maps were compared with, or why there are none."""
    values = {"found": template is not None, "kind": kind, "cifti": is_cifti(kind)}
    note = text_of("labels.txt.j2", **values, found_nothing=found_nothing, in_mni=in_mni)
    name, labels = (None, ()) if template is None else (template.name, template.labels)
    return LabelSource(template=name, labels=labels, note=note)


# -- on spheres ------------------------------------------------------------------------------------


def template_on(path: Path, spheres: Sequence[Hemisphere], names: Sequence[str] = ()) -> Template:
    """Return labels, or maps, of a dlabel.nii or dscalar.nii at the points of spheres, (n, K).

    ConfigError: CAPE-E270, E271, E273.
    """
    if not spheres:
        raise ConfigError("E270", got="CIFTI without spheres")
    try:
        image = files.load_image(path)
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
