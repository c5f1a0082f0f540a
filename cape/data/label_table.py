"""The label table of an atlas, which names the region of each number."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

from cape.data.issues import UnusableFile
from cape.data.tables import bounded, table_cells
from cape.delimited import Line, delimiter_of
from cape.errors import ConfigError, FoundError, own_words

# Columns of numbers, names and sides; the first that a table has is used.
NUMBER_COLUMNS: Final = tuple(
    "index,label,value,id,key,number,no,no.,roi,roiid,roi label".split(",")
)
NAME_COLUMNS: Final = tuple(
    "name,region,structure,label,label_name,label name,roi,roi_name,roiname,roi name".split(",")
)
SIDE_COLUMNS: Final = ("hemisphere", "hemi", "side", "lr")
# A line of FreeSurfer's colour table: number, name, red, green, blue and perhaps alpha
_COLOURS: Final = re.compile(r"\s*(\d+)\s+(\S*[^\W\d_]\S*)(?:\s+\d+){3,4}\s*")
_IMAGES: Final = (".nii.gz", ".nii")
_TABLES: Final = (".tsv", ".csv", ".txt", ".lut", ".ctbl")
_KNOWN: Final = (
    "write a .tsv with a header line 'index name', separated by a tab, and a line a region, or "
    "give FreeSurfer's colour table, with lines such as '17 Left-Hippocampus 220 216 20 0'."
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


def read_label_table(path: Path) -> dict[int, str]:
    """Return the names of labels, from a table with a header, or FreeSurfer's colour table.

    ConfigError: the format is unknown, or a number stands twice.
    """
    try:
        content = bounded(path)
        if path.suffix.lower() in (".csv", ".tsv"):
            # CAT12 separates by semicolons.
            sign = ";" if b";" in content.partition(b"\n")[0] else delimiter_of(path.name)
            rows = _rows(table_cells(content, sign))
        else:
            rows = _colours(content.decode("utf-8-sig"))
    except (UnusableFile, OSError, ValueError) as err:
        is_said = isinstance(err, UnusableFile)
        why = str(err) if is_said else own_words(err, "it is not utf-8 text")
        problem = f"the label table cannot be read: {why}"
        raise ConfigError("E018", problem=problem, do=_KNOWN) from err
    # 0 is outside all regions.
    named = [(label, name) for label, name in rows if label > 0]
    twice = sorted(label for label, n in Counter(label for label, _ in named).items() if n > 1)
    if twice:
        do = "give every label one line."
        raise ConfigError("E018", problem=f"label {twice[0]} stands twice in the table", do=do)
    return dict(named)


def _rows(table: list[tuple[Line, tuple[str, ...]]]) -> list[tuple[int, str]]:
    columns = [cell.lower() for cell in table[0][1]]
    rows = [cells for _, cells in table[1:]]
    whole = {k for k in range(len(columns)) if all(row[k].isdecimal() for row in rows)}
    number = _column(columns, NUMBER_COLUMNS, whole)
    name = _column(columns, NAME_COLUMNS, set(range(len(columns))) - whole)
    if number is None or name is None or not rows:
        raise FoundError(f"no numbers or no names in columns {', '.join(columns)}")
    side = _column(columns, SIDE_COLUMNS, set(range(len(columns))) - {name, number})
    return [
        (int(row[number]), row[name] if side is None else f"{row[side]} {row[name]}")
        for row in rows
    ]


def _column(columns: list[str], wanted: tuple[str, ...], allowed: set[int]) -> int | None:
    at = (columns.index(column) for column in wanted if column in columns)
    return next((place for place in at if place in allowed), None)


def _colours(text: str) -> list[tuple[int, str]]:
    rows = []
    for at, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _COLOURS.fullmatch(line)
        if match is None:
            raise FoundError(f"line {at}")
        rows.append((int(match[1]), match[2]))
    if not rows:
        raise FoundError("no lines")
    return rows


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
