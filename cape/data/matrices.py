"""Array files, one run each: .npy; a variable of .npz or .mat; .csv and .tsv with a header.

Nothing is ever unpickled.  scipy is imported when a .mat file is opened, h5py for version 7.3.
"""

from __future__ import annotations

import hashlib
import io
import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal

import numpy as np

from cape import arrays
from cape.data import mat73
from cape.data.file_type import TABLES, check_contents, pickled, suffix_of
from cape.data.files import MATRIX_SUFFIXES, RunFile
from cape.data.findings import Rejected
from cape.data.series import Series, unread
from cape.data.tables import read_numbers

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

MAT_KINDS: Final = {"double": "f8", "single": "f4", "logical": "u1"}
"""Classes of MATLAB that have another name in NumPy; whole numbers have the same."""


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
    _check(array.shape, array.dtype, orientation)
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


def read_matrix_header(
    run: RunFile,
    orientation: Literal["time_by_feature", "feature_by_time"],
    variable: str = "X",
) -> Series:
    """Return what the header of an array file says, with values that are `unread`.

    Text has no header that tells its size: a table is read whole.  As `read_matrix`.
    """
    check_contents(run.path, MATRIX_SUFFIXES)
    if suffix_of(run.path.name) in TABLES:
        return read_matrix(run, orientation, variable)
    with run.path.open("rb") as stream:
        shape, dtype = _outline(run.path, stream, variable)
    _check(shape, dtype, orientation)
    n_features, n_times = reversed(shape) if orientation == "time_by_feature" else shape
    values = unread(n_features, n_times)
    return Series(values=values, tr=run.tr, digest="", grid="-", notes=())


def _check(shape: tuple[int, ...], dtype: np.dtype[np.generic], orientation: str) -> None:
    """Refuse what is no matrix of real numbers, or one without features (rows 14, 40)."""
    if dtype.kind not in "iuf":
        raise Rejected(
            14, "An array does not hold real numbers", found=f"type {dtype}",
            expected="integers or floats", fix="save the magnitude as float32",
        )  # fmt: skip
    if len(shape) != 2 or shape[orientation == "time_by_feature"] == 0:
        raise Rejected(
            40, "An array is not a matrix", found=f"shape {shape}",
            expected="two axes, features and time", fix="save one matrix per run",
        )  # fmt: skip


def _outline(
    path: Path, stream: BinaryIO, variable: str
) -> tuple[tuple[int, ...], np.dtype[np.generic]]:
    """Return shape and type of the array of a .npy, .npz or .mat file, from its header."""
    size = path.stat().st_size
    if suffix_of(path.name) != ".mat":
        with _opened(stream, size, variable) as (member, held):
            shape, _, dtype = arrays.read_bounded_header(member, held)
            return shape, dtype
    head = stream.read(16)
    stream.seek(0)
    if mat73.is_version_73(head):
        return mat73.outline(stream, variable, size)
    shape, kind = _shape_in_mat(stream, variable, size)
    return shape, np.dtype(kind)


def _read(path: Path, content: bytes, variable: str) -> tuple[tuple[str, ...], Numbers]:
    """Return names of columns, if there are any, and the array."""
    suffix, stream, size = suffix_of(path.name), io.BytesIO(content), len(content)
    if suffix in TABLES:
        return read_numbers(content, "\t" if suffix == ".tsv" else ",")
    if suffix != ".mat":
        with _opened(stream, size, variable) as (member, held):
            return (), arrays.read_array(member, held)
    if mat73.is_version_73(content):
        return (), mat73.read(stream, variable, size)
    return (), _load_mat(stream, variable, size)


def _load_mat(stream: BinaryIO, variable: str, size: int) -> Numbers:
    """Return a named variable of a .mat file of version 5 to 7."""
    from scipy import io as scipy_io

    _shape_in_mat(stream, variable, size)
    try:
        return np.asarray(scipy_io.loadmat(stream, variable_names=[variable])[variable])
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _truncated(size) from err


def _shape_in_mat(stream: BinaryIO, variable: str, size: int) -> tuple[tuple[int, ...], str]:
    """Return shape and kind of a variable of a .mat file of version 5 to 7, by its header."""
    from scipy import io as scipy_io

    try:
        there = {name: (shape, kind) for name, shape, kind in scipy_io.whosmat(stream)}
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _truncated(size) from err
    if variable not in there:
        shown = ", ".join(f"{name} {shape}" for name, (shape, _) in there.items())
        raise _no_variable(variable, shown or "no variables", f"save(file, '{variable}')")
    shape, kind = there[variable]
    if math.prod(shape) > arrays.MOST_PACKED * size:
        raise _truncated(size)
    return shape, MAT_KINDS.get(kind, kind if kind[:3] in ("int", "uin") else "O")


@contextmanager
def _opened(stream: BinaryIO, size: int, variable: str) -> Iterator[tuple[IO[bytes], int]]:
    """Yield the .npy of a file, or of the named variable of a .npz, and its bytes."""
    try:
        if stream.read(2) != b"PK":
            stream.seek(0)
            yield stream, size
            return
        with zipfile.ZipFile(stream) as archive:
            if f"{variable}.npy" not in archive.namelist():
                raise _no_variable(
                    variable, _variables(archive), f"np.savez(file, {variable}=matrix)"
                )
            with arrays.open_member(archive, variable, size) as (member, held):
                yield member, held
    except arrays.BROKEN as err:
        if "pickle" in str(err).lower():
            raise pickled("an array of Python objects") from err
        raise _truncated(size) from err


def _no_variable(variable: str, found: str, how: str) -> Rejected:
    return Rejected(
        42, f"An array file lacks the variable {variable}", found=found,
        expected=f"a matrix named {variable}",
        fix=f"save it as {how}, or ask the owner for another 'variable'",
    )  # fmt: skip


def _truncated(size: int) -> Rejected:
    return Rejected(
        11, "An array file is truncated or damaged", found=f"{size} bytes",
        expected="as many as its header says", fix="copy it again",
    )  # fmt: skip


def _variables(archive: zipfile.ZipFile) -> str:
    """Return names and shapes of the variables of a .npz, read from their headers."""
    shown = []
    for member in archive.namelist():
        with archive.open(member) as stream:
            shown.append(f"{member.removesuffix('.npy')} {arrays.read_header(stream)[0]}")
    return ", ".join(shown) or "no variables"
