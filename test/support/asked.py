"""What a site reads of its people for a comparison."""

from pathlib import Path
from typing import Any

import numpy as np

from cape.computations.capecontrast import CapeContrastConfig
from cape.site.site_data import FileSource

GIVEN: dict[str, Any] = {
    "epsilon": 8.0,
    "delta": 1e-5,
    "variables": "dx control/patient, age 18:90, sex f/m",
    "formula": "dx + age + sex",
    "outcomes": "left 2000:6000, right 8:16",
    "public": "dx",
}


def config_of(**changed: Any) -> CapeContrastConfig:
    return CapeContrastConfig.from_input({**GIVEN, **changed})


def source_of(folder: Path, **changed: Any) -> FileSource:
    return FileSource(folder, {}, config_of(**changed), "A")


def rows_of(folder: Path, **changed: Any) -> dict[str, np.ndarray]:
    """The row (K + 1 + C,) of each of a site's people, by label, in public order."""
    return {label: row[:, 0] for label, row in source_of(folder, **changed).reduced(1)}
