"""An atlas under its makers' name: what looks like one, and its copy under a name settings may say.

Settings name atlas*, and nothing else: an owner could name somebody's image, whose digest leaves
before any noise.  So it is the person at the keyboard who says which file is the atlas.
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
    """Return the names of files of one volume at a folder's top that look like an atlas."""
    found = (
        path
        for path in folder.iterdir()
        if path.name.endswith(_IMAGES) and path.name not in ATLAS_FILES
    )
    return sorted(
        path.name
        for path in found
        if (is_atlas(path.name) or table_beside(path)) and _one_volume(path)
    )


def table_beside(image: Path) -> Path | None:
    """Return the label table that lies beside a label image, by its name; None: none is readable.

    It may leave out what the image's name has at its end (a grid), as Schaefer's does, its ending,
    or the resolution, as TemplateFlow's does.
    """
    stem = _stem(re.sub(r"_res-[^_]+", "", image.name))
    tables = {path: _stem(path.name) for path in image.parent.iterdir() if _is_table(path.name)}
    near = [path for path, name in tables.items() if len(name) > 2 and stem.startswith(name)]
    for path in sorted(near, key=lambda path: -len(tables[path])):
        try:
            if read_label_table(path):
                return path
        except ConfigError:
            continue
    return None


def adopted(image: Path, sites: Mapping[str, Path]) -> Iterator[tuple[Path, bytes]]:
    """Return an atlas and its table as every site must have them; ConfigError E016: others lie."""
    ending = next((end for end in _IMAGES if image.name.endswith(end)), "")
    if not ending:
        raise ConfigError("E016", problem=f"{image.name} is no .nii or .nii.gz", do="give one.")
    files = {f"atlas{ending}": image.read_bytes()}
    if table := table_beside(image):
        suffix = table.suffix if table.suffix in (".tsv", ".csv") else ".txt"
        files[f"atlas{suffix}"] = table.read_bytes()
    for folder in sites.values():
        for name, content in files.items():
            place = folder / name
            if place.exists() and place.read_bytes() != content:
                do = "remove it, or leave out --atlas."
                raise ConfigError("E016", problem=f"{place} is another file already", do=do)
            yield place, content


def _stem(name: str) -> str:
    ends = "|".join(map(re.escape, (*_IMAGES, *_TABLES)))
    return re.sub(rf"(?:{ends})+$", "", name)


def _is_table(name: str) -> bool:
    return name.endswith(_TABLES)


def _one_volume(path: Path) -> bool:
    try:
        shape = header_alone(path).get_data_shape()
    except (UnusableFile, OSError):
        return False
    return len([n for n in shape if n > 1]) == 3
