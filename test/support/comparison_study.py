"""People to be compared: a small study of images with true maps beside it, or a table a site."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cape.lab.synthetic.consortium import Request, write_consortium
from support import consortium as helper

OF_IMAGES: dict[str, Any] = {
    "computation": "capecontrast", "epsilon": 300.0, "delta": 1e-5, "accept_low_quality": True,
}  # fmt: skip


OF_COLUMNS: dict[str, Any] = {
    "computation": "capecontrast", **helper.settings_of("capecontrast", test="each"),
}  # fmt: skip


def write_study(folder: Path, what: str) -> tuple[Path, dict[str, Any]]:
    """Return the data of "columns" or "images", and how `simulate` is asked to compare them."""
    if what == "columns":
        data = helper.write_data(folder / "study", computation="capecontrast")
        return data, {"settings": OF_COLUMNS, "seed": 5}
    study, maps = write_images(folder, (6, 5, 4))
    return study, {"settings": OF_IMAGES, "seed": 5, "maps": maps}


def write_images(folder: Path, sizes: Sequence[int] = (24, 20, 16)) -> tuple[Path, Path]:
    """Return three sites of 4-D images and a file of true maps that lies in none of them."""
    study, maps = folder / "study", folder / "maps.nii.gz"
    request = Request(
        preset="groups", n_sites=3, site_sizes=tuple(sizes), n_timepoints=40, n_networks=3,
        templates=0.999,
    )  # fmt: skip
    write_consortium(study, request)
    for site in ("local0", "local1", "local2"):
        shutil.move(study / site / "templates.nii.gz", maps)
    return study, maps
