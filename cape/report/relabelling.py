"""Labels of a finished result from the user's own templates: reads and rewrites its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cape.errors import ConfigError
from cape.protocol.messages import FeatureSpace
from cape.report import files, labels


def relabel(folder: Path, template: Path, names: Path | None = None) -> None:
    """Rewrite the labels of components.tsv and results.json; parameters as `cape.report.relabel`.

    The voxels are those where any map is not 0, so parcels count by their size.
    """
    table = folder / "components.tsv"
    if not (table.is_file() and (folder / "results.json").is_file()):
        raise ConfigError("E274")
    results = files.read_json(folder / "results.json")
    if not (folder / "group_maps.nii.gz").is_file():
        raise ConfigError("E270", got=results["feature_space"])
    image = files.load_image(folder / "group_maps.nii.gz")
    volumes = np.asarray(image.dataobj, dtype=np.float64)
    inside = np.any(volumes != 0, axis=3)
    space = FeatureSpace.of_labels("mask", inside.astype(np.int32), np.asarray(image.affine))
    found = labels.of_image(template, space, _names(names))
    matches = labels.match(volumes[inside], found)
    rows = files.read_table(table)
    header = tuple(rows[0])
    for k, row in enumerate(rows):
        row.update(zip(files.LABELS, files.label_cells(matches, k), strict=True))
    files.write_table(table, (header, [tuple(row.values()) for row in rows]))
    results["labels"] = labels.about(found, {})
    files.write_json(folder / "results.json", results)


def _names(path: Path | None) -> tuple[str, ...]:
    """Return the lines of a text file that are not empty; tabs would break the table."""
    if path is None:
        return ()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as err:
        detail = f"{path.name}: {err}"
        raise ConfigError("E271", got="no readable list of names", detail=detail) from err
    return tuple(" ".join(line.split()) for line in lines if line.strip())
