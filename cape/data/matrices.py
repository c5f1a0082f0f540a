"""Array files, one run each: .npy; a variable of .npz or .mat; .csv and .tsv with a header.

Nothing is ever unpickled.  scipy is imported when a .mat file is opened.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from pathlib import Path
from typing import Literal

import numpy as np

from cape import arrays
from cape.data.contents import TABLES, check_contents, pickled, suffix_of
from cape.data.files import MATRIX_SUFFIXES, RunFile
from cape.data.findings import Rejected
from cape.data.series import Series
from cape.data.tables import read_numbers

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def read_matrix(
    run: RunFile,
    orientation: Literal["time_by_feature", "feature_by_time"],
    variable: str = "X",
) -> Series:
    """Return an array file as features by time.

    Parameters
    ----------
    run : RunFile
        The file.
    orientation : str
        What its rows and columns are.
    variable : str
        Name of the matrix in .npz and .mat files.

    Raises
    ------
    Rejected
        Rows 7, 8, 9, 11, 14, 38, 40, 41, 42.
    """
    check_contents(run.path, MATRIX_SUFFIXES)
    content = run.path.read_bytes()
    columns, array = _read(run.path, content, variable)
    if array.dtype.kind not in "iuf":
        raise Rejected(
            14, "An array does not hold real numbers", found=f"type {array.dtype}",
            expected="integers or floats", fix="save the magnitude as float32",
        )  # fmt: skip
    if array.ndim != 2:
        raise Rejected(
            40, "An array is not a matrix", found=f"shape {array.shape}",
            expected="two axes, features and time", fix="save one matrix per run",
        )  # fmt: skip
    values = np.ascontiguousarray(
        array.T if orientation == "time_by_feature" else array, dtype=np.float32
    )
    return Series(
        values=values,
        tr=run.tr,
        digest=hashlib.sha256(content).hexdigest(),
        grid="-",
        notes=(),
        columns=columns if orientation == "time_by_feature" else (),
    )


def _read(path: Path, content: bytes, variable: str) -> tuple[tuple[str, ...], Numbers]:
    """Return names of columns, if there are any, and the array."""
    suffix = suffix_of(path.name)
    if suffix in TABLES:
        return read_numbers(content, "\t" if suffix == ".tsv" else ",")
    return (), _load_mat(content, variable) if suffix == ".mat" else _load(content, variable)


def _load_mat(content: bytes, variable: str) -> Numbers:
    """Return a named variable of a .mat file of version 5 to 7."""
    from scipy import io as scipy_io

    try:
        there = scipy_io.whosmat(io.BytesIO(content))
        shapes = {name: shape for name, shape, _ in there}
        if math.prod(shapes.get(variable, ())) > arrays.MOST_PACKED * len(content):
            raise _truncated(content)
        if variable not in shapes:
            shown = ", ".join(f"{name} {shape}" for name, shape, _ in there)
            raise _no_variable(variable, shown or "no variables", f"save(file, '{variable}')")
        loaded = scipy_io.loadmat(io.BytesIO(content), variable_names=[variable])
        return np.asarray(loaded[variable])
    except Rejected:
        raise
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _truncated(content) from err


def _load(content: bytes, variable: str) -> Numbers:
    """Return the array of a .npy, or the named variable of a .npz."""
    try:
        if not content.startswith(b"PK"):
            return arrays.read_array(io.BytesIO(content), len(content))
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if f"{variable}.npy" not in archive.namelist():
                raise _no_variable(
                    variable, _variables(archive), f"np.savez(file, {variable}=matrix)"
                )
            return arrays.read_member(archive, variable, len(content))
    except arrays.BROKEN as err:
        if "pickle" in str(err).lower():
            raise pickled("an array of Python objects") from err
        raise _truncated(content) from err


def _no_variable(variable: str, found: str, how: str) -> Rejected:
    return Rejected(
        42, f"An array file lacks the variable {variable}", found=found,
        expected=f"a matrix named {variable}",
        fix=f"save it as {how}, or ask the owner for another 'variable'",
    )  # fmt: skip


def _truncated(content: bytes) -> Rejected:
    return Rejected(
        11, "An array file is truncated or damaged", found=f"{len(content)} bytes",
        expected="as many as its header says", fix="copy it again",
    )  # fmt: skip


def _variables(archive: zipfile.ZipFile) -> str:
    """Return names and shapes of the variables of a .npz, read from their headers."""
    shown = []
    for member in archive.namelist():
        with archive.open(member) as stream:
            shown.append(f"{member.removesuffix('.npy')} {arrays.read_header(stream)[0]}")
    return ", ".join(shown) or "no variables"
