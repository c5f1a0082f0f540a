"""NumPy files, read without pickles and only if the declared size fits the file."""

import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

# Signals pack ten to one, with wide margins of zeros twenty; deflate itself could do 1032 to one.
# A file that claims more than this, and more than `SMALL` bytes, is a decompression bomb.
LIKELY_PACKED: Final = 100
SMALL: Final = 2**26
# Bytes of one run in memory: 70,000 voxels of 15,000 volumes.
MAX_KEPT_BYTES: Final = 2**32
# Bytes of the text of a header; numpy accepts 10,000.
MAX_HEADER_BYTES: Final = 2**16
# Errors that a damaged array file or archive raises.
BROKEN: Final = (
    ValueError,
    EOFError,
    OSError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
)

Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


def max_unpacked(size: int) -> int:
    """Return the most bytes that a packed file of `size` bytes may be made into."""
    return min(max(SMALL, LIKELY_PACKED * size), MAX_KEPT_BYTES)


def read_header(stream: IO[bytes]) -> Header:
    """Return shape, Fortran order and dtype of a .npy; raises one of `BROKEN`."""
    version = np.lib.format.read_magic(stream)
    length = stream.read(2 if version == (1, 0) else 4)
    head = stream.read(min(int.from_bytes(length, "little"), MAX_HEADER_BYTES))
    try:
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(io.BytesIO(length + head))
        return np.lib.format.read_array_header_2_0(io.BytesIO(length + head))
    except Exception as err:  # numpy reads the header as source text: TokenError, SyntaxError ...
        raise ValueError("the header cannot be read") from err


def read_bounded_header(stream: IO[bytes], size: int) -> Header:
    """Return the header of a .npy; `BROKEN` if it is missing, has objects or exceeds `size`."""
    shape, fortran, dtype = read_header(stream)
    # Unpickling would run code from the file.
    if dtype.hasobject:
        raise ValueError("a pickle of Python objects")
    needed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or not 0 <= needed <= size:
        raise ValueError("the header declares more than the file holds")
    return shape, fortran, dtype


def read_array(stream: IO[bytes], size: int) -> npt.NDArray[Any]:
    """Return the array of a .npy of `size` bytes; raises one of `BROKEN`, also if cut off."""
    shape, fortran, dtype = read_bounded_header(stream, size)
    n_values = math.prod(shape)
    raw = stream.read(n_values * dtype.itemsize)
    if len(raw) != n_values * dtype.itemsize:
        raise EOFError("the data are cut off")
    # An array over bytes would be read-only.
    flat = np.frombuffer(bytearray(raw), dtype=dtype, count=n_values)
    return flat.reshape(shape, order="F" if fortran else "C")


@contextmanager
def open_member(archive: zipfile.ZipFile, name: str, size: int) -> Iterator[tuple[IO[bytes], int]]:
    """Yield the .npy `name` of a .npz file of `size` bytes, and its own size; or `BROKEN`."""
    info = archive.getinfo(f"{name}.npy")
    # The archive states this size, so it is compared with what the file can hold.
    if info.file_size > max_unpacked(size):
        raise ValueError("the archive declares more than it can hold")
    with archive.open(info) as stream:
        yield stream, info.file_size
