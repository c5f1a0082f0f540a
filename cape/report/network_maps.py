"""Public maps or an atlas that the owner brings to a page: names, places and pictures.

`networks.nii.gz` beside a comparison serves pictures alone: z-scores of the maps, or the labels of
the atlas, at about 3 mm.  Nothing in it depends on the people who are compared.  Maps of an atlas
have a table with the names of their regions, which no run sends; those of CIFTI parcels are in the
files of maps themselves.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.component_order import z_scores
from cape.algorithms.estimators import Array, Data
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.protocol.messages import FeatureSpace
from cape.report import brain, files, maps, surfaces
from cape.report.comparison import Network
from cape.report.plots import THRESHOLD, Picture, colour_limit, finish, new_figure
from cape.report.results import MapResults

FILE: Final = "networks.nii.gz"
# mm from which no voxel is left out
_COARSE: Final = 2.6
# |z| below is stored as 0: no picture shows it
_NOTHING: Final = 1.0
# Code of MNI space in NIfTI
_MNI: Final = 4
_TILE: Final = 2.6  # inches
_GLASS: Final = 9.0
# Dots of a region and widths of an edge, in points
_DOT, _LINE = 4.0, 2.2
# Regions that are named of a map, at most, and their least part of its largest |z|
_MAX_NAMED: Final = 3
_LEAST: Final = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Brought:
    """The owner's maps or label image, with the names of maps from 1, or of labels, in a table."""

    path: Path
    labels: Mapping[int, str]


def bring(
    folder: Path, brought: Brought, names: Sequence[str], networks: Sequence[Network]
) -> tuple[Network, ...]:
    """Write `networks.nii.gz` of maps in the order of `networks`, or of an atlas.

    Of an atlas without `networks` those of `names`, the regions of a table, become networks.
    Without any place (no image, names that fit none) the networks are as before.  ConfigError E016:
    a table calls the maps otherwise than the run does.
    """
    if not brought.path.name.endswith((".nii", ".nii.gz")):
        return tuple(networks)
    image = files.load_image(brought.path)
    if image.ndim not in (3, 4):  # CIFTI
        return tuple(networks)
    mni = int(image.header["sform_code"]) == _MNI
    if image.ndim == 4:
        sizes = image.header.get_zooms()[:3]
        image = image.slicer[tuple(slice(None, None, math.ceil(_COARSE / mm)) for mm in sizes)]
    values: Data = np.asarray(image.dataobj, dtype=np.float32)
    if values.ndim == 4:
        _check_names(brought, range(1, values.shape[3] + 1), networks)
        inside = np.any(values != 0, axis=3)
        z = np.zeros_like(values)
        z[inside] = z_scores(values[inside].astype(np.float64))
        _write_z(folder, z, image.affine, mni=mni)
        return _placed(networks, z, image.affine)
    labels = np.rint(values).astype(np.int32)
    there = np.unique(labels[labels > 0]).tolist()
    if networks:
        _check_names(brought, there, networks)
        known = list(zip(networks, there, strict=True))
    else:
        number = {name.casefold(): label for label, name in brought.labels.items()}
        pairs = ((Network(name=one, domain=None), number.get(one.casefold())) for one in names)
        known = [(one, label) for one, label in pairs if label in there]
    if known:
        _save(folder, labels, image.affine, mni=mni)
    return tuple(
        replace(one, file=FILE, volume=label, **_place(
            np.argwhere(labels == label).mean(axis=0) @ image.affine[:3, :3].T + image.affine[:3, 3]
        ))
        for one, label in known
    )  # fmt: skip


def _check_names(brought: Brought, there: Sequence[int], networks: Sequence[Network]) -> None:
    """ConfigError E016 unless maps are as many as a run names, and called as it names them."""
    problem, do = "", "name the file of the run, with the table of names that it had."
    if len(there) != len(networks):
        problem = f"{brought.path.name} holds {len(there)} maps, the run names {len(networks)}"
    for k, one in zip(there, networks, strict=False):
        name = brought.labels.get(k, one.name)
        if not problem and name.casefold() != one.name.casefold():
            problem = (
                f"the table beside {brought.path.name} calls map {k} {name}, the run {one.name}"
            )
    if problem:
        raise ConfigError("E016", problem=problem, do=do)


def write_of_site(folder: Path, space: FeatureSpace | None) -> None:
    """Write `networks.nii.gz` of the public maps that a site itself used."""
    if space is not None and space.on_grid and space.n_templates:
        affine = np.asarray(space.affine, dtype=np.float64).reshape(4, 4)
        _write_z(
            folder, maps.volumes_of(z_scores(space.templates()), space), affine, mni=space.in_mni
        )


def _write_z(folder: Path, z: Array | Data, affine: Array, *, mni: bool) -> None:
    """Write maps (x, y, z, R), in hundredths of z."""
    hundredths = np.rint(100.0 * np.where(np.abs(z) < _NOTHING, 0.0, np.clip(z, -300, 300)))
    _save(folder, hundredths.astype(np.int16), affine, slope=0.01, mni=mni)


def _save(folder: Path, values: Any, affine: Array, *, mni: bool, slope: float = 1.0) -> None:
    import gzip

    from nibabel.nifti1 import Nifti1Image

    image = Nifti1Image(values, affine)
    image.set_sform(affine, code=_MNI if mni else 2)
    image.header.set_xyzt_units("mm")
    image.header.set_slope_inter(slope, 0.0)
    # mtime=0: equal maps give equal bytes.
    (folder / FILE).write_bytes(gzip.compress(image.to_bytes(), mtime=0))


def networks_of_site(folder: Path, names: Sequence[str]) -> tuple[Network, ...]:
    """Return the networks of a site's own file as they are drawn; none without it."""
    if not (folder / FILE).is_file():
        return ()
    image = files.load_image(folder / FILE)
    networks = [Network(name=name, domain=None) for name in names]
    return _placed(networks, np.asarray(image.dataobj, dtype=np.float32), image.affine)


def _placed(networks: Sequence[Network], z: Data, affine: Array) -> tuple[Network, ...]:
    """Return networks with the places at which their maps (x, y, z, R) are cut."""
    inside = np.any(z != 0, axis=3)
    places = (
        brain.place_of(z[..., k].astype(np.float64), inside, affine) for k in range(z.shape[3])
    )
    return tuple(
        replace(one, **_place(place), file=FILE, volume=k)
        for k, (one, place) in enumerate(zip(networks, places, strict=True))
    )


def _place(mm: Array) -> dict[str, Any]:
    return {axis: round(float(x), 1) for axis, x in zip("xyz", mm, strict=True)}


class Drawer:
    """Pictures of the networks of a folder; without its file there are none."""

    def __init__(self, folder: Path, networks: Sequence[Network]) -> None:
        there = (folder / FILE).is_file()
        self.networks = {one.name: one for one in networks if there and one.file}
        self._tiles: dict[str, Picture] = {}
        if not self.networks:
            return
        image = files.load_image(folder / FILE)
        self.values, self.affine = np.asarray(image.dataobj, dtype=np.float32), image.affine
        self.of_atlas = self.values.ndim == 3
        self.inside = self.values != 0 if self.of_atlas else np.any(self.values != 0, axis=3)
        mni = int(image.header["sform_code"]) == _MNI
        self.canvas = brain.canvas_of(self.inside, self.affine, mni=mni, parcels=self.of_atlas)
        self.limit = 2 * THRESHOLD
        if not self.of_atlas:
            z = self.values.reshape(-1, self.values.shape[3])
            self.limit = colour_limit(z.astype(np.float64))

    def _volume(self, one: Network) -> Array:
        if self.of_atlas:
            return np.where(self.values == one.volume, self.limit, 0.0)
        return np.asarray(self.values[..., one.volume], dtype=np.float64)

    def tile(self, name: str) -> Picture | None:
        """Draw a network in three planes through its largest cluster."""
        if name not in self.networks:
            return None
        if name not in self._tiles:
            one = self.networks[name]
            figure, axes = self._canvas(_TILE)
            place = np.array([one.x, one.y, one.z], dtype=np.float64)
            brain.paint_planes(
                axes, self.canvas, self.canvas.values(self._volume(one)), place, self.limit
            )
            self._tiles[name] = finish(figure, alt=f"{name}, three planes.", shape="tile")
        return self._tiles[name]

    def _canvas(self, width: float, across: int = 1) -> tuple[Any, Any]:
        wide, tall = self.canvas.size
        figure = new_figure(width, width * tall / (across * wide))
        axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
        brain.frame(axes, across * wide, tall)
        return figure, axes

    def thumbnail(self, name: str) -> Any:
        """Return the axial plane of a network as RGB, rows upwards."""
        one = self.networks[name]
        k = self.canvas.nearest(np.array([one.x, one.y, one.z], dtype=np.float64))[2]
        values = self.canvas.values(self._volume(one))[:, :, k]
        return brain.pixels(
            self.canvas.grey[:, :, k], values, self.limit, smooth=self.canvas.smooth
        )

    def regions(self, values: Mapping[str, float], unit: str, alt: str) -> Picture | None:
        """Draw the regions of an atlas in the colours of their numbers, in planes and glass."""
        shown = {name: value for name, value in values.items() if name in self.networks and value}
        if not shown or not self.of_atlas:
            return None
        least, most = (f(map(abs, shown.values())) for f in (min, max))
        whole = np.zeros(self.values.shape)
        for name, value in shown.items():
            # The smallest that is shown has the first colour.
            whole[self.values == self.networks[name].volume] = value / least * THRESHOLD
        figure, axes = self._canvas(_GLASS, across=2)
        strongest = self.networks[max(shown, key=lambda name: abs(shown[name]))]
        place = np.array([strongest.x, strongest.y, strongest.z], dtype=np.float64)
        painted, limit = self.canvas.values(whole), most / least * THRESHOLD
        brain.paint_planes(axes, self.canvas, painted, place, limit)
        brain.paint_glass(axes, self.canvas, painted, limit, (self.canvas.size[0], 0.0))
        text = f"{alt} Planes through {strongest.name}; red above zero, blue below, to {most:.2g} "
        text += f"{unit}."
        return finish(figure, alt=text, caption=text, shape="chart")

    def glass(self, edges: Sequence[tuple[str, str, float]], alt: str) -> Picture | None:
        """Draw edges between two networks, red above zero and blue below, in a glass brain."""
        known = [one for one in edges if one[0] in self.networks and one[1] in self.networks]
        if not known:
            return None
        figure, axes = self._canvas(_GLASS)
        # The outline of the anatomy where there is one: a coarse mask has holes.
        whole = replace(self.canvas, inside=self.canvas.grey < 1.0)
        boxes = brain.paint_glass(axes, whole, np.zeros(whole.inside.shape), 1.0)
        most = max(abs(value) for _, _, value in known)
        start = np.array([places[0] for places in self.canvas.places])
        mm = {
            name: np.array([one.x or 0.0, one.y or 0.0, one.z or 0.0]) - start
            for name, one in self.networks.items()
        }
        for normal, (left, _, bottom, _) in enumerate(boxes):
            seen = [k for k in range(3) if k != normal]
            for a, b, value in known:
                x, y = np.add((left, bottom), [mm[a][seen], mm[b][seen]]).T
                style: dict[str, Any] = {"color": "#b2182b" if value > 0 else "#2166ac"}
                axes.plot(x, y, linewidth=_LINE * math.sqrt(abs(value) / most), **style)
                axes.plot(x, y, "o", color="#333333", markersize=_DOT)
        return finish(figure, alt=alt, caption=alt, shape="chart")


# -- the regions of an atlas by name ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class NamedRegions:
    """Names of regions in the order of the features, and the z-maps (D, R)."""

    names: tuple[str, ...]
    z: Array

    def strongest(self, k: int) -> tuple[tuple[str, float], ...]:
        """Return the strongest regions of map `k`, each with its z."""
        z = self.z[:, k]
        order = np.argsort(-np.abs(z), kind="stable")[:_MAX_NAMED]
        least = _LEAST * abs(z[order[0]])
        return tuple((self.names[j], float(z[j])) for j in order if abs(z[j]) >= least)


def write_regions(folder: Path, results: MapResults, atlas: Brought) -> None:
    """Write a table beside each file of maps: number and name of every region, its z in every map.

    ConfigError E016: `atlas` is not the one of this run, or has no table of names.
    """
    labels = _labels_of(results, atlas)
    numbers, first = np.unique(labels, return_index=True)
    numbers, first = numbers[numbers > 0], first[numbers > 0]
    named = [(str(n), files.line(atlas.labels.get(n, f"label {n}"))) for n in numbers.tolist()]
    stems = (maps.file_of(results.status), *map(maps.free_file_of, ("nothing", None)))
    for path in (folder / f"{stem}{maps.ENDINGS['atlas']}" for stem in stems):
        if not path.is_file():
            continue
        image = files.load_image(path)
        z = np.asarray(image.dataobj, dtype=np.float64).reshape(labels.size, -1)[first]
        rows = [
            (*words, *(format(x, ".6g") for x in row))
            for words, row in zip(named, z.tolist(), strict=True)
        ]
        letter = "S" if "spatial" in path.name else "C"
        header = ("index", "name", *(f"{letter}{k:02d}" for k in range(1, z.shape[1] + 1)))
        files.write_table(_table_of(path), header, rows)


def _labels_of(results: MapResults, atlas: Brought) -> npt.NDArray[np.int32]:
    """Return the label image of the run's atlas; ConfigError E016."""
    if results.feature_space != "atlas":
        problem = f"the maps of this run are of kind {results.feature_space}, not of an atlas"
    elif not atlas.labels:
        problem = f"no readable table of names lies beside {atlas.path.name}"
    else:
        problem = f"{atlas.path.name} is not the atlas of this run"
        with suppress(Exception):  # nibabel raises errors of any kind for other files
            import nibabel

            # On the closest RAS axes, as a run reads them
            image = nibabel.as_closest_canonical(files.load_image(atlas.path))
            values = np.asarray(image.dataobj, dtype=np.float64)
            labels = np.rint(values[..., 0] if values.ndim == 4 else values).astype(np.int32)
            affine = np.asarray(image.affine, dtype=np.float64)
            space = FeatureSpace.of_labels("atlas", labels, affine)
            if space.digest == results.feature_space_digest:
                return labels
    do = "give the run's own label image, with its table of names (.tsv) beside it."
    raise ConfigError("E016", problem=problem, do=do)


def _table_of(path: Path) -> Path:
    # As the file of maps, its name tells if nothing was found.
    return path.with_name(path.name.partition(".")[0].replace("maps", "regions") + ".tsv")


def read_regions(path: Path) -> NamedRegions | None:
    """Return the regions of a file of maps; None if nothing names them."""
    if path.name.endswith(maps.ENDINGS["parcels"]):
        names = files.load_image(path).header.get_axis(1).name
        return NamedRegions(names=tuple(map(str, names)), z=surfaces.read_cifti(path))
    if not _table_of(path).is_file():
        return None
    rows = [list(row.values()) for row in files.read_table(_table_of(path))]
    z = np.array([[float(x) for x in row[2:]] for row in rows])
    return NamedRegions(names=tuple(row[1] for row in rows), z=z)
