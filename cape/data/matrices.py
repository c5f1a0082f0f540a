"""Array files, one run each: .npy, and .npz with the variable X.  Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import Literal

import numpy as np

from cape.data.contents import check_contents, pickled
from cape.data.files import MATRIX_SUFFIXES, RunFile
from cape.data.findings import Rejected
from cape.data.series import Series

VARIABLE = "X"


def read_matrix(run: RunFile, orientation: Literal["time_by_feature", "feature_by_time"]) -> Series:
    """Return an array file as features by time.

    Raises
    ------
    Rejected
        Rows 7, 8, 9, 11, 14, 40, 42.
    """
    check_contents(run.path, MATRIX_SUFFIXES)
    content = run.path.read_bytes()
    array = _load(content)
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
    )


def _load(content: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """Return the array of a .npy, or the variable X of a .npz."""
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        if isinstance(loaded, np.lib.npyio.NpzFile):
            if VARIABLE not in loaded.files:
                raise Rejected(
                    42, f"An array file lacks the variable {VARIABLE}",
                    found=_variables(content), expected=f"a matrix named {VARIABLE}",
                    fix=f"save it as np.savez(file, {VARIABLE}=matrix)",
                )  # fmt: skip
            return np.asarray(loaded[VARIABLE])
        return np.asarray(loaded)
    except ValueError as err:
        if "pickle" in str(err).lower():
            raise pickled("an array of Python objects") from err
        raise _truncated(content) from err
    except (EOFError, OSError, KeyError, zipfile.BadZipFile) as err:
        raise _truncated(content) from err


def _truncated(content: bytes) -> Rejected:
    return Rejected(
        11, "An array file is truncated or damaged", found=f"{len(content)} bytes",
        expected="as many as its header says", fix="copy it again",
    )  # fmt: skip


def _variables(content: bytes) -> str:
    """Return names and shapes of the variables of a .npz, read from their headers."""
    shown = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for member in archive.namelist():
            with archive.open(member) as stream:
                version = np.lib.format.read_magic(stream)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shown.append(f"{member.removesuffix('.npy')} {read(stream)[0]}")
    return ", ".join(shown) or "no variables"
