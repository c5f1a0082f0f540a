"""Copy an atlas that a site names, with its table, to the names that settings allow.

Settings may name only atlas* files; otherwise an owner could name a person's image, whose digest
leaves without noise.  So a person at the site chooses the atlas file.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cape.data.folders import sites_below
from cape.data.label_table import copies_of
from cape.errors import ConfigError


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
