"""MATLAB files of version 7.3, which are HDF5: one variable, within what the file can hold.

h5py (extra ``matlab73``) is imported when such a file is opened.  HDF5 can declare more than a file
holds, point into other files and ask for filters from elsewhere; all of that is refused before
anything is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np

from cape.arrays import MOST_PACKED
from cape.data.findings import Rejected

MAGIC: Final = (b"MATLAB 7.3", b"\x89HDF")
FILTERS: Final = {1, 2, 3}
"""Deflate, shuffle, check sum: all that MATLAB writes; others are programs of somebody else."""

NUMBERS: Final = {"double", "single", "logical"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}
"""Classes of MATLAB whose values are what is stored."""

WHAT: Final = "MATLAB 7.3, which is HDF5"


def is_version_73(head: bytes) -> bool:
    """Tell whether a .mat file is HDF5, by its first bytes."""
    return head.startswith(MAGIC)


def read(stream: IO[bytes], variable: str, size: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Return a variable as MATLAB shows it, rows first.

    Parameters
    ----------
    stream : file
        The whole file, at its beginning.
    variable : str
        Name of the matrix.
    size : int
        Bytes of the file.

    Raises
    ------
    Rejected
        Row 14: it holds no real numbers; row 41: damaged, or h5py is missing; row 42: no such
        variable.
    """
    with _dataset(stream, variable, size) as found:
        return np.asarray(found[()]).T


def outline(stream: IO[bytes], variable: str, size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and type of a variable without its numbers; as `read`."""
    with _dataset(stream, variable, size) as found:
        return tuple(reversed(found.shape)), found.dtype


@contextmanager
def _dataset(stream: IO[bytes], variable: str, size: int) -> Iterator[Any]:
    """Yield the HDF5 dataset of a variable that was found to be sound."""
    try:
        import h5py
    except ImportError:
        raise Rejected(
            41, "A .mat file is of version 7.3", found=WHAT, expected="version 5 to 7",
            fix="install the extra matlab73 (pip install 'coinstac-cape[matlab73]'), or save it "
            "with save(..., '-v7')",
        ) from None  # fmt: skip
    try:
        with h5py.File(stream, "r") as file:
            named = {name: file.get(name, getlink=True) for name in file}
            inside = [name for name, link in named.items() if isinstance(link, h5py.HardLink)]
            if variable not in inside:
                raise _no_variable(variable, [n for n in inside if not n.startswith("#")])
            found = file[variable]
            if not isinstance(found, h5py.Dataset):
                raise _no_numbers("a struct, an object or a sparse matrix")
            _check(found, size)
            yield found
    except Rejected:
        raise
    except Exception as err:  # its reader raises whatever a damaged file leads it to
        raise _damaged("it cannot be read to its end") from err


def _check(found: Any, size: int) -> None:
    """Refuse a dataset that is not numbers of this file, or larger than they can be."""
    if found.dtype.kind not in "iuf":  # a pair of reals is complex; references are cells
        raise _no_numbers(f"type {found.dtype}")
    if (kind := _class_of(found)) not in NUMBERS:  # letters are stored as whole numbers
        raise _no_numbers(f"class {kind}")
    if "MATLAB_empty" in found.attrs:
        raise _damaged("the variable is empty")
    if found.external or found.is_virtual:
        raise _damaged("the variable lies in another file")
    chain = found.id.get_create_plist()
    if {chain.get_filter(i)[0] for i in range(chain.get_nfilters())} - FILTERS:
        raise _damaged("the variable is packed in a way that MATLAB does not use")
    stored = found.id.get_storage_size()
    for shape in (found.shape, found.chunks or ()):
        if math.prod(shape) * found.dtype.itemsize > MOST_PACKED * stored or stored > size:
            raise _damaged("its header declares more than the file holds")


def _class_of(found: Any) -> str:
    """Return MATLAB's name for the type of a dataset; double if other programs gave it none."""
    name = found.attrs.get("MATLAB_class", b"double")
    return name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)


def _no_numbers(found: str) -> Rejected:
    return Rejected(
        14, "An array does not hold real numbers", found=found,
        expected="integers or floats", fix="save the magnitude as a full matrix of real numbers",
    )  # fmt: skip


def _damaged(why: str) -> Rejected:
    return Rejected(
        41, "A .mat file of version 7.3 cannot be used", found=f"{WHAT}: {why}",
        expected="a whole file with a full matrix of real numbers",
        fix="copy it again, or save it with save(..., '-v7')",
    )  # fmt: skip


def _no_variable(variable: str, there: list[str]) -> Rejected:
    return Rejected(
        42, f"An array file lacks the variable {variable}",
        found=", ".join(there[:12]) or "no variables", expected=f"a matrix named {variable}",
        fix=f"save it as save(file, '{variable}', '-v7.3'), or ask the owner for another "
        "'variable'",
    )  # fmt: skip
