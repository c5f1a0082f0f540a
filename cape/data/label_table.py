"""The label table of an atlas, which names the region of each number."""

import re
from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

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
DOMAIN_COLUMNS: Final = ("domain", "network", "system")
# A line of FreeSurfer's colour table: number, name, red, green, blue and perhaps alpha
_COLOURS: Final = re.compile(r"\s*(\d+)\s+(\S*[^\W\d_]\S*)(?:\s+\d+){3,4}\s*")
_IMAGES: Final = (".nii.gz", ".nii")
_TABLES: Final = (".tsv", ".csv", ".txt", ".lut", ".ctbl")
_KNOWN: Final = (
    "write a .tsv with a header line 'index name', separated by a tab, and a line a region, or "
    "give FreeSurfer's colour table, with lines such as '17 Left-Hippocampus 220 216 20 0'."
)


class Region(NamedTuple):
    """What a label table says of one label."""

    name: str
    domain: str = ""  # larger network that it is of, where the table says


def table_beside(image: Path) -> Path | None:
    """Return the label table beside a label image, by its name; None: there is none.

    Its name may lack the image's last part (a grid), as Schaefer's does, its extension, or the
    resolution, as TemplateFlow's does.  ConfigError: one called as the image cannot be read.
    """
    stem = _stem(re.sub(r"_res-[^_]+", "", image.name))
    tables = {
        path: _stem(path.name) for path in image.parent.iterdir() if path.name.endswith(_TABLES)
    }
    near = [
        path
        for path, name in tables.items()
        if name == stem or (len(name) > 2 and stem.startswith(name))
    ]
    fault = None
    # Of two as near, the one that may say most: a table with a header.
    near.sort(key=lambda p: (-len(tables[p]), *(not p.name.endswith(e) for e in _TABLES), p.name))
    for path in near:
        try:
            if labelled_regions(path, ordered=tables[path] == stem):
                return path
        except ConfigError as err:
            # Regions would silently have numbers for names.
            fault = fault or (err if tables[path] == stem else None)
    if fault:
        raise fault
    return None


def read_label_table(path: Path) -> dict[int, str]:
    """Return the names of labels; errors are those of `labelled_regions`."""
    return {label: region.name for label, region in labelled_regions(path).items()}


def labelled_regions(path: Path, *, ordered: bool = False) -> dict[int, Region]:
    """Return the regions of labels, from a table with a header or a colour table.

    `ordered`: a table may have names without numbers, which are then places from 1.
    ConfigError: the format is unknown, or a number stands twice.
    """
    try:
        content = bounded(path)
        if path.suffix.lower() in (".csv", ".tsv"):
            # CAT12 separates by semicolons.
            sign = ";" if b";" in content.partition(b"\n")[0] else delimiter_of(path.name)
            rows = _rows(table_cells(content, sign), ordered=ordered)
        else:
            rows = [(n, Region(name)) for n, name in _colours(content.decode("utf-8-sig"))]
    except (UnusableFile, OSError, ValueError) as err:
        is_said = isinstance(err, UnusableFile)
        why = str(err) if is_said else own_words(err, "it is not utf-8 text")
        problem = f"the label table {path.name} cannot be read: {why}"
        raise ConfigError("E018", problem=problem, do=_KNOWN) from err
    # 0 is outside all regions.
    named = [(label, region) for label, region in rows if label > 0]
    twice = sorted(label for label, n in Counter(label for label, _ in named).items() if n > 1)
    if twice:
        do = "give every label one line."
        raise ConfigError("E018", problem=f"label {twice[0]} stands twice in the table", do=do)
    return dict(named)


def has_numbers(path: Path) -> bool:
    """Tell whether a readable table says which label each row is."""
    try:
        return bool(labelled_regions(path))
    except ConfigError:
        return False


def _rows(table: list[tuple[Line, tuple[str, ...]]], *, ordered: bool) -> list[tuple[int, Region]]:
    columns = [cell.lower() for cell in table[0][1]]
    rows = [cells for _, cells in table[1:]]
    whole = {k for k in range(len(columns)) if all(row[k].isdecimal() for row in rows)}
    others = set(range(len(columns))) - whole
    number = _column(columns, NUMBER_COLUMNS, whole)
    name = _column(columns, NAME_COLUMNS, others)
    if name is None or not rows or (number is None and not ordered):
        raise FoundError(f"no numbers or no names in columns {', '.join(columns)}")
    side = _column(columns, SIDE_COLUMNS, others - {name})
    domain = _column(columns, DOMAIN_COLUMNS, others - {name})
    return [
        (
            at if number is None else int(row[number]),
            Region(
                name=row[name] if side is None else f"{row[side]} {row[name]}",
                domain="" if domain is None else row[domain],
            ),
        )
        for at, row in enumerate(rows, start=1)
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
