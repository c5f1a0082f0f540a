"""Defects of array files and of confound tables, for `cape.synthetic.defects`."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cape.data.bids import confounds_of
from cape.errors import ConfigError

Values = npt.NDArray[np.float32]

# ------------------------------------------------------------------------------- confounds


def table(change: Callable[[list[list[str]]], list[list[str]]]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the cells of the first run's confound table."""

    def make(files: list[Path]) -> None:
        path = confounds_of(files[0])
        if path is None:
            raise ConfigError(
                "E012", problem="the first run has no confound table", do="use --layout bids."
            )
        cells = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
        lines = ["\t".join(row) for row in change(cells)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    return make


def without_column(cells: list[list[str]]) -> list[list[str]]:
    return [row[1:] for row in cells]


def text_cell(cells: list[list[str]]) -> list[list[str]]:
    return [cells[0], ["high", *cells[1][1:]], *cells[2:]]


# ------------------------------------------------------------------------------- matrices


def save(path: Path, array: npt.NDArray[Any], *, allow_pickle: bool = False) -> None:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    path.write_bytes(buffer.getvalue())


def matrix(change: Callable[[Values], npt.NDArray[Any]]) -> Callable[[list[Path]], None]:
    """Return a defect that changes the matrix of the first subject."""
    return lambda files: save(files[0], change(np.load(files[0])))


def objects(files: list[Path]) -> None:
    # The one pickle that is written: the bad input of row 40, which must never be read.
    save(files[0], np.array([{"a": 1}, None], dtype=object), allow_pickle=True)


def no_variable(files: list[Path]) -> None:
    values = np.load(files[0])
    files[0].unlink()
    np.savez(files[0].with_suffix(".npz"), bold=values)


def mat_73(files: list[Path]) -> None:
    files[0].unlink()
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created by a test"
    files[0].with_suffix(".mat").write_bytes(head.ljust(512, b" ") + b"\x89HDF\r\n\x1a\n")
