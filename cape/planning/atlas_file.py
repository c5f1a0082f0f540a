"""Find an atlas under its makers' name, and copy it to a name that settings allow.

Settings may name only atlas* files; otherwise an owner could name a person's image, whose digest
leaves without noise.  So a person at the site chooses the atlas file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cape.data.images import header_alone
from cape.data.issues import UnusableFile
from cape.data.label_table import read_label_table
from cape.data.layout.words import is_atlas
from cape.data.space import ATLAS_FILES
from cape.errors import ConfigError

_IMAGES: Final = (".nii.gz", ".nii")
_TABLES: Final = (".tsv", ".csv", ".txt", ".xml", ".niml.lt", ".lut", ".ctbl")


def foreign_atlases(folder: Path) -> list[str]:
    """Return the names of 3-D images in a folder (not below it) that look like an atlas."""
    images = (
        path
        for path in folder.iterdir()
        if path.name.endswith(_IMAGES) and path.name not in ATLAS_FILES
    )
    return sorted(
        path.name
        for path in images
        if (is_atlas(path.name) or table_beside(path)) and _one_volume(path)
    )


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


def adopted(image: Path, sites: Mapping[str, Path]) -> Iterator[tuple[Path, bytes]]:
    """Yield (path, content) of an atlas and its table for every site.

    ConfigError E016: not an image, or another file has that name.
    """
    ending = next((end for end in _IMAGES if image.name.endswith(end)), "")
    if not ending:
        raise ConfigError(
            "E016", problem=f"{image.name} is no .nii or .nii.gz", do="give a NIfTI image."
        )
    files = {f"atlas{ending}": image.read_bytes()}
    if table := table_beside(image):
        suffix = table.suffix if table.suffix in (".tsv", ".csv") else ".txt"
        files[f"atlas{suffix}"] = table.read_bytes()
    for folder in sites.values():
        for name, content in files.items():
            place = folder / name
            if place.exists() and place.read_bytes() != content:
                do = "remove it, or leave out --atlas."
                raise ConfigError(
                    "E016", problem=f"{place} already exists with other content", do=do
                )
            yield place, content


def _stem(name: str) -> str:
    ends = "|".join(map(re.escape, (*_IMAGES, *_TABLES)))
    return re.sub(rf"(?:{ends})+$", "", name)


def _one_volume(path: Path) -> bool:
    try:
        shape = header_alone(path).get_data_shape()
    except (UnusableFile, OSError):
        return False
    return len([n for n in shape if n > 1]) == 3
