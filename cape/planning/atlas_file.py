"""Copy an atlas that a site names, with its table, to the names that settings allow.

Settings may name only atlas* files; otherwise an owner could name a person's image, whose digest
leaves without noise.  So a person at the site chooses the atlas file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cape.data.folders import sites_below
from cape.data.label_table import read_label_table
from cape.data.templates import file_of_maps
from cape.errors import ConfigError

_IMAGES: Final = (".nii.gz", ".nii")
_TABLES: Final = (".tsv", ".csv", ".txt", ".xml", ".niml.lt", ".lut", ".ctbl")


def table_beside(image: Path) -> Path | None:
    """Return the label table beside a label image, by its name; None: none is readable.

    Its name may lack the image's last part (a grid), as Schaefer's does, its extension, or the
    resolution, as TemplateFlow's does.
    """
    stem = _stem(re.sub(r"_res-[^_]+", "", image.name))
    tables = {
        path: _stem(path.name) for path in image.parent.iterdir() if path.name.endswith(_TABLES)
    }
    near = [path for path, name in tables.items() if len(name) > 2 and stem.startswith(name)]
    for path in sorted(near, key=lambda path: -len(tables[path])):
        try:
            if read_label_table(path):
                return path
        except ConfigError:
            continue
    return None


def maps_with_names(base: Path) -> tuple[Path, dict[int, str]]:
    """Return a file of public maps, `base` or in it, and the names of an atlas's labels."""
    path = file_of_maps(base) or base
    table = table_beside(path) if path.name.endswith(_IMAGES) else None
    return path, {} if table is None else read_label_table(table)


@contextmanager
def adopting(folder: Path, image: Path | None) -> Iterator[list[Path]]:
    """Copy an atlas and its table to every site below a folder; an error removes new copies.

    ConfigError E016: not an image, or another file has that name.
    """
    content = {} if image is None else copies_of(image, "atlas")
    bases = (sites_below(folder) or {"": folder}).values()
    copies = {base / name: data for base in bases for name, data in content.items()}
    new = [path for path in copies if not path.exists()]
    for path in copies.keys() - new:
        if path.read_bytes() != copies[path]:
            do = "remove it, or leave out --atlas."
            raise ConfigError("E016", problem=f"{path} already exists with other content", do=do)
    try:
        for path in new:
            path.write_bytes(copies[path])
        yield list(copies)
    except BaseException:
        for path in new:
            path.unlink(missing_ok=True)
        raise


def copies_of(image: Path, stem: str) -> dict[str, bytes]:
    """Return an image and the table beside it, with `stem` in place of their names.

    ConfigError E016: it is no NIfTI image.
    """
    ending = next((end for end in _IMAGES if image.name.endswith(end)), "")
    if not ending:
        problem = f"{image.name} is no .nii or .nii.gz"
        raise ConfigError("E016", problem=problem, do="give a NIfTI image.")
    files = {f"{stem}{ending}": image.read_bytes()}
    if table := table_beside(image):
        suffix = table.suffix if table.suffix in (".tsv", ".csv") else ".txt"
        files[f"{stem}{suffix}"] = table.read_bytes()
    return files


def _stem(name: str) -> str:
    ends = "|".join(map(re.escape, (*_IMAGES, *_TABLES)))
    return re.sub(rf"(?:{ends})+$", "", name)
