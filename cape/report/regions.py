"""The regions of an atlas by name: a table beside its maps, and the strongest of each map.

The names are of the label table beside the atlas, which no run sends; those of CIFTI parcels are in
the files of maps themselves.
"""

from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.errors import ConfigError
from cape.frozen import dataclass
from cape.report import files, maps, surfaces
from cape.report.network_maps import Brought
from cape.report.results import MapResults
from cape.space.feature_space import FeatureSpace

# Regions that are named of a map, at most, and their least part of its largest |z|
_MAX_NAMED: Final = 3
_LEAST: Final = 0.5


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
            labels, affine = _atlas(atlas.path)
            space = FeatureSpace.of_labels("atlas", labels, affine)
            if space.digest == results.feature_space_digest:
                return labels
    do = "give the run's own label image, with its table of names (.tsv) beside it."
    raise ConfigError("E016", problem=problem, do=do)


def _table_of(path: Path) -> Path:
    # As the file of maps, its name tells if nothing was found.
    return path.with_name(path.name.partition(".")[0].replace("maps", "regions") + ".tsv")


def _atlas(path: Path) -> tuple[npt.NDArray[np.int32], Array]:
    """Return the labels on the closest RAS axes, as a run reads them, and the affine."""
    import nibabel

    image = nibabel.as_closest_canonical(files.load_image(path))
    values = np.asarray(image.dataobj, dtype=np.float64)
    values = values[..., 0] if values.ndim == 4 else values
    return np.rint(values).astype(np.int32), np.asarray(image.affine, dtype=np.float64)


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
