"""Public network maps by name, from files that nilearn installed or fetched on this computer.

No map is part of this package (licences: `PUBLIC_SETS`), and none is downloaded.
"""

import importlib.util
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from cape.algorithms.estimators import Array
from cape.delimited import rows_by_column
from cape.frozen import dataclass
from cape.report import files

# Width (sd) of the Gaussians that stand for single coordinates, mm
BLOB_SD: Final = 9.0

NETWORK_NAMES: Final = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)

Regions = Sequence[tuple[str, Array]]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Template:
    """Public maps to compare with: values (D, K) at the features, one label per map."""

    name: str
    labels: tuple[str, ...]
    values: Array
    sources: tuple[str, ...] = ()  # set of each label, if there are several sets


def nilearn_file(file: str) -> Path | None:
    """Return a file below the package nilearn; None without it."""
    # Importing nilearn takes seconds.
    spec = importlib.util.find_spec("nilearn")
    places = spec.submodule_search_locations if spec is not None else None
    paths = (Path(place) / file for place in places or ())
    return next((path for path in paths if path.is_file()), None)


def fetched(pattern: str) -> Path | None:
    """Return the first matching file that nilearn has fetched on this computer, or None."""
    folders = [os.environ.get(name, "") for name in ("NILEARN_SHARED_DATA", "NILEARN_DATA")]
    listed = [Path(folder) for text in folders for folder in text.split(os.pathsep) if folder]
    for folder in (*listed, Path.home() / "nilearn_data"):
        if paths := sorted(folder.glob(pattern)):
            return paths[0]
    return None


def dosenbach_regions() -> Regions:
    """Return name and place (3,), mm, of the regions of a set; none without nilearn."""
    table = nilearn_file("datasets/data/dosenbach_2010.csv")
    rows = [] if table is None else rows_by_column(table.read_bytes(), ",")
    return [(row["network"], np.array([float(row[a]) for a in "xyz"])) for row in rows]


def seitzman_regions() -> Regions:
    """Return name and place (3,), mm, of the regions of a set; none without nilearn."""
    table = nilearn_file("datasets/data/seitzman_2018_ROIs_300inVol_MNI_allInfo.txt")
    lines = [] if table is None else table.read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split() for line in lines]
    # Split "DefaultMode" into two words.
    words = [re.sub(r"(?<=[a-z])(?=[A-Z])", " ", row[5]).lower() for row in rows]
    places = [np.array([float(x) for x in row[:3]]) for row in rows]
    return [(w, at) for w, at in zip(words, places, strict=True) if w != "unassigned"]


def _blobs(name: str, regions: Regions, where: Array) -> Template | None:
    if not regions:
        return None
    # Coordinates become blobs: no smooth map resembles a point.
    labels = tuple(sorted({label for label, _ in regions}))
    values = np.zeros((len(where), len(labels)))
    for label, centre in regions:
        distance = np.sum((where - centre) ** 2, axis=1)
        values[:, labels.index(label)] += np.exp(-distance / (2.0 * BLOB_SD**2))
    return Template(name=name, labels=labels, values=values)


def _yeo(where: Array) -> Template | None:
    path = fetched("yeo_2011/**/Yeo2011_7Networks_*LiberalMask.nii.gz")
    words = dict(enumerate(NETWORK_NAMES["yeo_2011"], 1))
    return None if path is None else of_labels("yeo_2011", path, where, words)


def _schaefer(where: Array) -> Template | None:
    path = fetched("schaefer_2018/**/Schaefer2018_*Parcels_7Networks_order_FSLMNI152_*mm.nii.gz")
    table = None if path is None else path.with_name(path.name.partition("_FSL")[0] + ".txt")
    if path is None or table is None or not table.is_file():
        return None
    names = {}
    for line in table.read_text(encoding="utf-8").splitlines():
        number, name, *_ = line.split()
        short = name.split("_")[2]
        names[int(number)] = NETWORK_NAMES["schaefer_2018"].get(short, short)
    return of_labels("schaefer_2018", path, where, names)


def _smith(where: Array) -> Template | None:
    path = fetched("smith_2009/**/PNAS_Smith09_rsn10.nii.gz")
    if path is None:
        return None
    image = files.load_image(path)
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    values, names = at_places(volumes, np.asarray(image.affine), where), NETWORK_NAMES["smith_2009"]
    if values.shape[1] != len(names):
        return None
    return Template(name="smith_2009", labels=tuple(names), values=values)


def of_labels(name: str, path: Path, where: Array, names: Mapping[int, str]) -> Template:
    """Return one map per name of a label image: 1 where the nearest voxel has it, else 0."""
    image = files.load_image(path)
    labels = np.squeeze(np.asarray(image.dataobj))[..., None]
    nearest = np.rint(at_places(labels, np.asarray(image.affine), where)[:, 0])
    unique = tuple(dict.fromkeys(names.values()))
    values = np.zeros((len(where), len(unique)))
    for number, label in names.items():
        values[:, unique.index(label)] += nearest == number
    return Template(name=name, labels=unique, values=values)


def at_places(volumes: npt.NDArray[np.generic], affine: Array, where: Array) -> Array:
    """Return volumes (x, y, z, K) at the voxels nearest to places (D, 3) in mm; 0 outside."""
    inverse = np.linalg.inv(affine)
    ijk = np.rint(where @ inverse[:3, :3].T + inverse[:3, 3]).astype(int)
    inside = np.all((ijk >= 0) & (ijk < volumes.shape[:3]), axis=1)
    i, j, k = np.where(inside[:, None], ijk, 0).T
    return np.where(inside[:, None], np.nan_to_num(volumes[i, j, k].astype(np.float64)), 0.0)


# Licences as nilearn states them: Yeo and Schaefer MIT, the others unknown, so read and not copied
PUBLIC_SETS: Final[Mapping[str, Callable[[Array], Template | None]]] = {
    "seitzman_2018": lambda where: _blobs("seitzman_2018", seitzman_regions(), where),
    "dosenbach_2010": lambda where: _blobs("dosenbach_2010", dosenbach_regions(), where),
    "yeo_2011": _yeo,
    "schaefer_2018": _schaefer,
    "smith_2009": _smith,
}
# Sets of every run in MNI space: nilearn installs them, so equal runs get equal names
DEFAULT: Final = ("seitzman_2018", "dosenbach_2010")
